%% cats_advise:workload/1 measures what its specification says, and refuses what it does not understand. The suite does
%% not check how fast anything is.
%% cats_advise:node/2 sees the tables of a node and what is called there. It advises by that, and leaves nothing behind.
-module(cats_advise_SUITE).
-include_lib("stdlib/include/assert.hrl").
-export([all/0, suite/0]).
-export([candidates/1, every_operation/1, shapes/1, keys/1, refusals/1, watched/1, judged/1, measured/1, page/1,
         traced_already/1, waited/1, another_node/1, gone/1]).
-export([tables/0, seen/0, contended/0]).

all() ->
    [candidates, every_operation, shapes, keys, refusals, watched, judged, measured, page, traced_already, waited,
     another_node, gone].

suite() -> [{timetrap, {minutes, 10}}].

%% Every engine of every requested type is there, beside ets. The best one comes first.
candidates(_Config) ->
    Advice = advise(#{types => [set, bag, duplicate_bag, ordered_set]}),
    ?assertEqual([], [{Type, Name} || #{name := Name, types := Types} <- cats:engines(), Type <- Types,
                                      not lists:any(fun(A) -> is_of(Type, Name, A) end, Advice)]),
    [?assert(lists:any(fun(#{tables := Tables, options := [T | _]}) -> {Tables, T} =:= {ets, Type} end, Advice))
     || Type <- [set, bag, duplicate_bag, ordered_set]],
    Rates = [Rate || #{rate := Rate} <- Advice],
    ?assertEqual(lists:reverse(lists:sort(Rates)), Rates),
    ?assertMatch([#{share := 1.0} | _], Advice),
    [?assert(Lowest =< Rate andalso Rate =< Highest andalso Bytes > 0)
     || #{lowest := Lowest, rate := Rate, highest := Highest, bytes := Bytes} <- Advice].

is_of(Type, Name, #{tables := cats, options := [Type]}) ->
    lists:member({Type, Name}, [{ordered_set, ca}, {set, hash}, {bag, hash}, {duplicate_bag, hash}]);
is_of(Type, Name, #{tables := cats, options := [Type, {engine, Name}]}) -> true;
is_of(_, _, _) -> false.

%% A fun counts the operations on the table. A worker that fails would end the caller.
every_operation(_Config) ->
    Calls = counters:new(1, []),
    Count = fun(Tables, Table, Key) -> counters:add(Calls, 1, 1), Tables:member(Table, Key) end,
    Named = [lookup, member, delete, take, next, prev, insert, insert_new, {lookup_element, 2}, {update_element, 2},
             {update_counter, 2}],
    Advice = advise(#{operations => [{Operation, 1} || Operation <- [Count | Named]], processes => 2}),
    All = 3 * length(Advice) * 20000,
    ?assert(counters:get(Calls, 1) > All div 15),
    ?assert(counters:get(Calls, 1) < All div 10).

shapes(_Config) ->
    Shapes = [integer, atom, float, binary, {binary, 100}, {tuple, 20}, {list, 5}, {map, 3}, fun(N) -> {value, N} end],
    [_ | _] = advise(#{value => Shapes, key => fun(N) -> {user, N} end, types => [set]}).

keys(_Config) ->
    [[_ | _] = advise(#{keys => Keys, types => [set]}) || Keys <- [uniform, {hot, 3}, {zipf, 1.0}, {zipf, 0.8}]].

refusals(_Config) ->
    [?assertError({bad_spec, _}, cats_advise:workload(Spec))
     || Spec <- [[], #{no_such => 1}, #{operations => []}, #{operations => [lookup]}, #{operations => [{lookup, 0}]},
                 #{operations => [{no_such, 1}]}, #{operations => [{{update_counter, 2}, 1}], value => [binary]},
                 #{operations => [{{update_counter, 1}, 1}]}, #{operations => [{{lookup_element, 3}, 1}]},
                 #{operations => [{{update_element, 2}, 1}], types => [bag]},
                 #{key => {integer, 3}}, #{value => integer}, #{objects => 0}, #{processes => 0}, #{keys => zipf},
                 #{types => []}, #{types => [table]}, #{seconds => -1}]].

%% Three rounds of the shortest length.
advise(Spec) ->
    cats_advise:workload(maps:merge(#{objects => 100, processes => 1, seconds => 0}, Spec)).

%% A node in which processes use tables. Returns when they do.
tables() ->
    Own = self(),
    spawn(fun() ->
                  Shared = ets:new(advised_shared, [public, {read_concurrency, true}]),
                  ets:new(advised_private, [private, named_table]),
                  ets:new(advised_sessions, [public, named_table, ordered_set]),
                  ets:insert(advised_private, {secret_key, <<"secret value">>}),
                  ets:insert(advised_sessions, {1, <<"secret value">>, erlang:system_time(second)}),
                  [spawn_link(fun() -> use(Shared, N) end) || N <- lists:seq(1, 3)],
                  Own ! made,
                  receive never -> ok end
          end),
    receive made -> ok end.

use(Table, N) ->
    ets:insert(Table, {N rem 100, N, <<"secret value">>}),
    ets:lookup(Table, N rem 100),
    ets:foldl(fun(_, Sum) -> Sum end, 0, Table),
    erlang:yield(),
    use(Table, N + 3).

seen() ->
    Advice = cats_advise:node(node(), 2),
    case named(advised_shared, Advice) of
        #{calls := #{insert := _, lookup := _}, advice := transform} -> Advice;
        _ -> seen()
    end.

named(Name, Advice) ->
    [Found] = [Each || #{name := N} = Each <- Advice, N =:= Name],
    Found.

%% Two seconds are two moments at most. Each of them has a limit that schedulers may pass by a little. If the machine
%% let nobody call in these moments, others follow.
watched(_Config) ->
    Old = erlang:system_flag(trace_control_word, 17),
    Peer = cats_test_lib:start_peer(["-pa" | code:get_path()]),
    ok = call(Peer, ?MODULE, tables, []),
    Advice = call(Peer, ?MODULE, seen, []),
    #{calls := Calls, callers := Callers, type := set, protection := public, samples := Samples} = Shared =
        named(advised_shared, Advice),
    ?assert(lists:sum(maps:values(Calls)) =< 2 * 2 * 400, Calls),
    ?assert(Callers >= 1 andalso Callers =< 3),
    ?assertMatch([#{key := integer, values := [integer, {binary, 12}], times := 0} | _], Samples),
    ?assertMatch(#{advice := stay, samples := [], calls := None} when map_size(None) =:= 0,
                 named(advised_private, Advice)),
    ?assertMatch(#{advice := cache, samples := [#{times := 1}]}, named(advised_sessions, Advice)),
    ?assertMatch(#{advice := stay, owner := #{otp := true, application := kernel}}, named(ac_tab, Advice)),
    [?assertEqual(nomatch, binary:match(Text, <<"secret value">>))
     || Text <- [term_to_binary(Advice), iolist_to_binary(cats_advise:json(Advice))]],
    ?assertMatch({match, _}, re:run(cats_advise:json([Shared]), "\"values\": *\\[\"integer\", *\"\\{binary,12\\}\"")),
    ?assertMatch({match, _}, re:run(cats_advise:json([Shared]), "\"why\": *\"[1-3] processes called it")),
    ?assertEqual("[]", unicode:characters_to_list(cats_advise:json([]))),
    [?assertError({bad_advice, Other}, cats_advise:json(Other)) || Other <- [x, Shared, [x], [Shared | x]]],
    %% Nothing is left behind.
    [?assertEqual({traced, false}, call(Peer, erlang, trace_info, [{ets, Function, Arity}, traced]))
     || {Function, Arity} <- [{lookup, 2}, {insert, 2}, {foldl, 3}]],
    ?assertEqual(0, call(Peer, erlang, system_flag, [trace_control_word, 0])),
    17 = erlang:system_flag(trace_control_word, Old),
    peer:stop(Peer).

%% What decides, and what is said of it.
judged(_Config) ->
    Timed = [#{key => integer, values => [integer], words => 3, times => 1}],
    Advice = fun(Changes) -> maps:get(advice, of_table(Changes)) end,
    Measured = #{ratio => 1.8, low => 0.9, high => 1.9, mix => #{lookup => 100}, percent => 90, objects => 10,
                 processes => 1},
    Busy = #{calls => #{lookup => 9, insert => 1}},
    [?assertEqual({Changes, Expected}, {Changes, Advice(Changes)})
     || {Changes, Expected} <-
            [{#{}, stay}, {Busy#{callers => 1}, stay}, {Busy#{callers => 2}, transform},
             {#{size => 1_000_000}, transform},
             {Busy#{callers => 2, protection => private}, stay}, {Busy#{callers => 2, owner => #{otp => true}}, stay},
             {#{name => my_cache, before => 9}, cache}, {#{name => my_cache, calls => #{insert => 1}}, cache},
             {#{name => my_cache, calls => #{update_counter => 4}}, stay},
             {#{name => my_cache, samples => Timed}, cache},
             {#{name => my_cache, before => 9, type => bag}, stay},
             {#{name => my_cache, before => 9, owner => #{otp => false, application => mnesia}}, stay},
             {Busy#{callers => 2, measured => Measured}, stay},
             {Busy#{callers => 2, measured => Measured#{low => 1.1}}, transform},
             {#{samples => Timed, calls => #{select_delete => 1}}, cache},
             {#{samples => Timed, calls => #{lookup => 1}}, stay},
             {#{waited => 9_999}, stay}, {#{waited => 10_000}, transform},
             {#{waited => 10_000, protection => private}, stay}]],
    Texts = fun(Key, Changes) ->
                    lists:flatten(maps:get(Key, of_table(Changes)))
            end,
    Large = #{size => 1_000_000},
    [?assertEqual({Key, Changes, Found}, {Key, Changes, string:find(Texts(Key, Changes), Word) =/= nomatch})
     || {Key, Changes, Word, Found} <-
            [{expect, Large, "1.6 to 2.7", true}, {expect, Large#{type => ordered_set}, "3.4 times", true},
             {expect, Large#{type => ordered_set}, "1.6 to 2.7", false}, {expect, #{}, "times", false},
             {expect, Large#{measured => Measured#{low => 1.1}}, "1.80 (1.10 to 1.90) times", true},
             {expect, Large#{measured => Measured#{low => 1.1}}, "1.6 to 2.7", false},
             {expect, Large#{measured => Measured}, "times", false},
             {differs, Large#{calls => #{foldl => 1}}, "another order", true},
             {differs, Large#{calls => #{foldl => 1}, type => ordered_set}, "another order", false},
             {differs, Large#{owner => #{otp => false, application => mnesia}}, "Mnesia", true},
             {differs, Large, "Mnesia", false}, {differs, Large#{heir => self()}, "heir", true},
             {differs, Large, "heir", false}]].

%% Advice on a table that is like this one but for some items.
of_table(Changes) ->
    Table = #{name => things, table => things, type => set, protection => public, named_table => false, heir => none,
              size => 10, before => 10, memory => 100, read_concurrency => false, write_concurrency => false,
              samples => [], calls => #{}, callers => 0, owner => #{otp => false, application => undefined}},
    cats_advise_judge:advice(maps:merge(Table, Changes)).

%% Objects of every shape, and every function that has one key. The others are left out, as are tables of which all
%% calls are such, and tables that stay.
measured(_Config) ->
    Shapes = [integer, atom, float, {binary, 0}, {binary, 300}, bitstring, pid, reference, port, function, {tuple, 0},
              {tuple, 3}, {map, 2}, list],
    Samples = [#{key => Key, values => [integer | Shapes], words => 400, times => 0} || Key <- Shapes],
    Single = [lookup, member, delete, take, next, prev, insert, insert_new, lookup_element, update_element,
              update_counter, first, last],
    Calls = maps:from_list([{Function, 10} || Function <- [select, foldl | Single]]),
    Seen = #{calls => Calls, callers => 2, size => 100},
    Advice = [of_table(Seen#{samples => [Sample]}) || Sample <- Samples],
    Patterns = of_table(Seen#{calls => #{select => 9}}),
    Stays = of_table(Seen#{callers => 1}),
    ?assertEqual([Patterns, Stays], cats_advise:measure([Patterns, Stays])),
    Measure = fun(Some) -> cats_advise_measure:all(Some, 10, 0, fun(#{measured := _}) -> ok end) end,
    Measured = Measure(Advice),
    {First, Rest} = lists:split(10, Measured),
    ?assertEqual(lists:nthtail(10, Advice), Rest),
    [begin
         #{measured := #{ratio := Ratio, low := Low, high := High, mix := Mix, percent := 86, objects := 100,
                         processes := Processes}} = Each,
         ?assert(0 < Low andalso Low =< Ratio andalso Ratio =< High),
         ?assertEqual(lists:sort(Single), lists:sort(maps:keys(Mix))),
         ?assert(Processes =< 2)
     end || Each <- First],
    [_ | _] = Measure(lists:nthtail(10, Advice)),
    %% Without an element to count, and without objects.
    [#{measured := #{mix := #{lookup := 100}}}] =
        cats_advise:measure([of_table(Seen#{calls => #{lookup => 5, update_counter => 5}, size => 0,
                                            samples => [#{key => atom, values => [], words => 2, times => 0}]})]),
    [#{measured := #{}}] = cats_advise:measure([of_table(Seen#{samples => []})]),
    [?assertError({bad_advice, Other}, cats_advise:measure(Other)) || Other <- [x, [x], #{}]].

%% A row for each table, without a character that would be an element.
page(_Config) ->
    Advice = [of_table(#{name => 'a<b&c', calls => #{lookup => 9, insert => 2}, callers => 2}),
              of_table(#{owner => #{otp => true, application => kernel}}), of_table(#{name => '\x{416}'})],
    Page = unicode:characters_to_list(cats_advise:page(Advice)),
    [?assertNotEqual(nomatch, string:find(Page, Text), Text)
     || Text <- ["'a&lt;b&amp;c' public set", "lookup 9, insert 2 by 2 processes", "1 more tables belong", [16#416],
                 "<b>cats</b> 2 processes called it", "<b>stay with ets</b>"]],
    ?assertEqual(nomatch, string:find(Page, "a<b")),
    ?assertEqual(3, length(string:split(Page, "<tr><th scope='row'>", all))),
    [?assertError({bad_advice, Other}, cats_advise:page(Other)) || Other <- [x, [x], #{}]].

%% However long that takes.
call(Peer, Module, Function, Arguments) -> peer:call(Peer, Module, Function, Arguments, infinity).

%% Somebody else's traces stay, and are the reason of a refusal.
traced_already(_Config) ->
    Peer = cats_test_lib:start_peer(["-pa" | code:get_path()]),
    _ = call(Peer, erlang, trace_pattern, [{ets, lookup, 2}, true, [global]]),
    ?assertEqual({cannot_watch, nonode@nohost, traced},
                 call(Peer, erlang, apply, [fun() -> try cats_advise:node(node(), 1)
                                                     catch error:Reason -> Reason
                                                     end
                                            end, []])),
    ?assertEqual({traced, global}, call(Peer, erlang, trace_info, [{ets, lookup, 2}, traced])),
    peer:stop(Peer).

%% A VM that counts locks tells how long threads waited for those of a table.
waited(_Config) ->
    Arguments = ["-emu_type", "lcnt", "-pa" | code:get_path()],
    {ok, [[Erl]]} = init:get_argument(progname),
    case os:cmd(Erl ++ " -emu_type lcnt -noshell -eval 'io:put_chars(\"counts\"), halt().'") of
        "counts" ->
            Peer = cats_test_lib:start_peer(Arguments),
            Advice = call(Peer, ?MODULE, contended, []),
            ?assertMatch(#{waited := Waited} when Waited > 0, named(advised_contended, Advice)),
            ?assertMatch(#{waited := 0}, named(advised_alone, Advice)),
            peer:stop(Peer);
        _ ->
            {skip, "no VM that counts locks"}
    end.

%% Advice on a table to which three processes write all the time, and on one with one.
contended() ->
    [Contended, Alone] = [ets:new(Name, [public]) || Name <- [advised_contended, advised_alone]],
    Writers = [spawn_link(fun Write() -> _ = [ets:insert(Table, {N}) || N <- lists:seq(1, 100)], Write() end)
               || Table <- [Contended, Contended, Contended, Alone]],
    Advice = cats_advise:node(node(), 2),
    [begin unlink(Writer), exit(Writer, kill) end || Writer <- Writers],
    Advice.

%% The other node has no cats, and has none afterwards.
another_node(_Config) ->
    [Watcher, Bare] = Peers =
        [begin
             {ok, Peer, _} = peer:start_link(#{name => peer:random_name(), host => "localhost",
                                               connection => standard_io, wait_boot => infinity,
                                               args => ["-setcookie", "advised" | Arguments]}),
             Peer
         end || Arguments <- [["-pa" | code:get_path()], []]],
    Node = call(Bare, erlang, node, []),
    [] = [M || M <- [call(Bare, code, which, [cats])], M =/= non_existing],
    _ = call(Bare, ets, new, [advised_here, [public, named_table]]),
    Advice = call(Watcher, cats_advise, node, [Node, 1]),
    ?assertMatch([_ | _], Advice),
    ?assertEqual(false, call(Bare, code, is_loaded, [cats_advise_watch])),
    %% One at a time. The module also leaves when the caller is killed.
    Loaded = fun() -> erpc:call(Node, code, is_loaded, [cats_advise_watch]) =/= false end,
    ?assertEqual({cannot_watch, Node, watched},
                 call(Watcher, erlang, apply,
                      [fun() ->
                               First = spawn(fun() -> cats_advise:node(Node, 60) end),
                               cats_test_lib:eventually(Loaded),
                               Second = try cats_advise:node(Node, 1) catch error:Reason -> Reason end,
                               exit(First, kill),
                               cats_test_lib:eventually(fun() -> not Loaded() end),
                               Second
                       end, []])),
    ?assertMatch([_ | _], call(Watcher, cats_advise, node, [Node, 1])),
    [?assertError({cannot_watch, Node, seconds}, call(Watcher, cats_advise, node, [Node, Seconds]))
     || Seconds <- [0, 1.5, infinity]],
    ?assertError({cannot_watch, nowhere@localhost, noconnection},
                 call(Watcher, cats_advise, node, [nowhere@localhost, 1])),
    %% A code server that stands still.
    ok = call(Bare, sys, suspend, [code_server]),
    ?assertError({cannot_watch, Node, timeout}, call(Watcher, cats_advise, node, [Node, 1])),
    ok = call(Bare, sys, resume, [code_server]),
    ?assertMatch([_ | _], call(Watcher, cats_advise, node, [Node, 1])),
    [peer:stop(Peer) || Peer <- Peers].

%% The watching process ends with its caller, and leaves no trace.
gone(_Config) ->
    Caller = spawn(fun() -> receive never -> ok end end),
    Watching = cats_advise_watch:start(Caller, 60, false),
    Monitor = monitor(process, Watching),
    exit(Caller, kill),
    receive {'DOWN', Monitor, process, Watching, normal} -> ok end,
    ?assertEqual({traced, false}, erlang:trace_info({ets, lookup, 2}, traced)).
