%% What operators see of tables: cats:i/0, the rows of cats_observer, and the memory that the VM tells.
-module(cats_observer_SUITE).
-measures([many_tables, memory_of_the_vm]).
-include_lib("stdlib/include/assert.hrl").
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([list_on_the_terminal/1, rows/1, rows_of_observer/1, order_and_limit/1, bad_arguments/1, growth/1,
         tables_that_come_and_go/1, many_tables/1, another_node/1, observer_backend_with_the_transform/1,
         memory_of_the_vm/1]).
-export([leave_tables/1, printed/1, seen_by_backend/0, rises/0]).

suite() -> [{timetrap, {minutes, 10}}].

all() ->
    [list_on_the_terminal, rows, rows_of_observer, order_and_limit, bad_arguments, growth, tables_that_come_and_go,
     many_tables, another_node, observer_backend_with_the_transform, memory_of_the_vm].

init_per_suite(Config) -> cats_test_lib:only_cats(cats_test_lib:start(Config)).

end_per_suite(_Config) -> ok.

%% The lines are those of ets:i/0, but for the figure of memory.
list_on_the_terminal(_Config) ->
    cats_test_lib:in_process(
      fun() ->
              [First, Second] =
                  [begin
                       [Module:new(Name, [Type, named_table]) || {Name, Type} <- tables()],
                       Module:insert(a_short_name, [{N} || N <- lists:seq(1, 12)]),
                       Lines = string:lexemes(printed(fun() -> Module:i() end), "\n"),
                       Ours = [Line || Line <- Lines, {Name, _} <- tables(),
                                       string:find(Line, atom_to_list(Name)) =/= nomatch],
                       Head = lists:sublist(Lines, 2),
                       Head ++ [re:replace(Line, "(set|bag) +([0-9]+) +[0-9]+ +", "\\1 \\2 ", [{return, list}])
                                || Line <- Ours]
                   end || Module <- [ets, cats]],
              ?assertEqual(First, Second),
              ?assertEqual(5, length(First))
      end).

tables() -> [{a_short_name, set}, {a_name_of_a_table_that_is_longer_than_its_column, ordered_set}, {'a bag', bag}].

%% @doc What a function writes to the terminal.
printed(Node) when is_atom(Node) -> printed(fun() -> cats_observer:i(Node) end);
printed(Function) -> {Written, ok} = cats_test_lib:with_input([], Function), Written.

%% Each figure is that of info/2.
rows(_Config) ->
    cats_test_lib:in_process(
      fun() ->
              register(owner_of_rows, self()),
              Heir = cats_test_lib:spawn_owner(fun() -> ok end),
              Tid = cats:new(unnamed, [bag, private, compressed, {keypos, 2}, {heir, element(1, Heir), x}]),
              cats:new(named_one, [ordered_set, public, named_table]),
              cats:insert(Tid, [{N, key} || N <- lists:seq(1, 100)]),
              cats:safe_fixtable(Tid, true),
              Undefined = cats:new(undefined, []),
              [?assertMatch([#{name := undefined}], [Row || #{id := Id} = Row <- cats_observer:tables(#{sort => Sort}),
                                                            Id =:= Undefined]) || Sort <- [memory, name]],
              [Unnamed] = [Row || #{id := Id} = Row <- cats_observer:tables(), Id =:= Tid],
              [Named] = [Row || #{name := named_one} = Row <- cats_observer:tables()],
              Word = erlang:system_info(wordsize),
              ?assertEqual(#{id => Tid, name => unnamed, named_table => false, type => bag, protection => private,
                             owner => self(), reg_name => owner_of_rows, heir => element(1, Heir), size => 100,
                             memory => cats:info(Tid, memory) * Word, keypos => 2, compressed => true, fixed => true,
                             engine => hash}, Unnamed),
              ?assertEqual(#{id => cats:whereis(named_one), name => named_one, named_table => true,
                             type => ordered_set, protection => public, owner => self(), reg_name => owner_of_rows,
                             heir => none, size => 0, memory => cats:info(named_one, memory) * Word, keypos => 1,
                             compressed => false, fixed => false, engine => ca}, Named)
      end).

%% A row has all that OTP's observer shows of a table of ets, with the same meanings.
rows_of_observer(_Config) ->
    cats_test_lib:in_process(
      fun() ->
              register(owner_of_rows, self()),
              [Module:new(observed, [bag, public, {keypos, 2}]) || Module <- [ets, cats]],
              [Theirs] = [maps:from_list(Row) || Row <- observer_backend:get_table_list(ets, []),
                                                 lists:member({name, observed}, Row)],
              [Ours] = [Row || #{name := observed} = Row <- cats_observer:tables()],
              Same = maps:without([id, memory], Theirs),
              ?assertEqual(Same, maps:with(maps:keys(Same), Ours)),
              ?assert(is_map_key(id, Ours) andalso is_map_key(memory, Ours))
      end).

order_and_limit(_Config) ->
    cats_test_lib:in_process(
      fun() ->
              [begin
                   Table = cats:new(Name, []),
                   cats:insert(Table, [{N, binary:copy(<<0>>, Bytes)} || N <- lists:seq(1, Size)])
               end || {Name, Size, Bytes} <- [{order_c, 10, 60}, {order_a, 100, 60}, {order_b, 30, 60000}]],
              {Pid, _} = cats_test_lib:spawn_owner(fun() -> cats:new(order_d, [private]) end),
              cats:insert(cats:new(order_e, []), [{N, lists:seq(1, 1000)} || N <- lists:seq(1, 20)]),
              Names = fun(Options) -> names(cats_observer:tables(Options)) end,
              ?assertEqual([order_a, order_b, order_c, order_d, order_e], Names(#{sort => name})),
              ?assertEqual([order_a, order_b, order_e, order_c, order_d], Names(#{sort => size})),
              ?assertMatch([order_e, order_a | _], Names(#{})),
              ?assertEqual(Names(#{}), Names(#{sort => memory, limit => infinity})),
              Owners = [Owner || #{owner := Owner} <- cats_observer:tables(#{sort => owner})],
              ?assertEqual(lists:sort(Owners), Owners),
              ?assert(lists:member(Pid, Owners)),
              Rows = cats_observer:tables(#{sort => size}),
              ?assertEqual(lists:sublist(Rows, 2), cats_observer:tables(#{sort => size, limit => 2})),
              ?assertEqual([], cats_observer:tables(#{limit => 0})),
              ?assertEqual(length(cats:all()), length(cats_observer:tables(#{limit => 1 bsl 64})))
      end).

%% Those of this test's tables, in their order.
names(Rows) ->
    [Name || #{name := Name} <- Rows, string:prefix(atom_to_list(Name), "order_") =/= nomatch].

bad_arguments(_Config) ->
    [?assertError({badarg, Bad}, Call())
     || {Bad, Call} <- [{[], fun() -> cats_observer:tables([]) end},
                        {{sort, type}, fun() -> cats_observer:tables(#{sort => type}) end},
                        {{limit, -1}, fun() -> cats_observer:tables(#{limit => -1}) end},
                        {{limit, 1.0}, fun() -> cats_observer:tables(#{limit => 1.0}) end},
                        {{node, here}, fun() -> cats_observer:tables(#{node => here}) end},
                        {-1, fun() -> cats_observer:growth(-1) end},
                        {now, fun() -> cats_observer:growth(now, #{}) end},
                        {{sort, name}, fun() -> cats_observer:growth(0, #{sort => name}) end}]].

growth(_Config) ->
    cats_test_lib:in_process(
      fun() ->
              [Grows, Shrinks, Stays] = [cats:new(Name, [public]) || Name <- [grows, shrinks, stays]],
              [cats:insert(Table, [{N} || N <- lists:seq(1, 100)]) || Table <- [Grows, Shrinks, Stays]],
              Change = fun() ->
                               cats:insert(Grows, [{N} || N <- lists:seq(101, 300)]),
                               cats:delete_all_objects(Shrinks),
                               New = cats:new(new, []),
                               cats:insert(New, [{N} || N <- lists:seq(1, 50)]),
                               New
                       end,
              {Rows, New} = growth_meanwhile(Change),
              ?assertMatch([{Grows, 200, 300}, {New, 50, 50}],
                           [{Id, Growth, Size} || #{id := Id, growth := Growth, size := Size} <- Rows,
                                                  lists:member(Id, [Grows, Shrinks, Stays, New])]),
              cats:delete(New),
              ?assertEqual([], [Row || #{id := Id} = Row <- cats_observer:growth(1),
                                       lists:member(Id, [Grows, Shrinks, Stays])])
      end).

%% What has grown while this function ran, and its result. It runs while the process that asks waits, however long that
%% takes.
growth_meanwhile(Change) ->
    {Pid, Monitor} = spawn_monitor(fun() -> exit({rows, cats_observer:growth(1000, #{sort => size})}) end),
    Changed = [Change() || is_suspended_while_it_waits(Pid)],
    _ = [erlang:resume_process(Pid) || Changed =/= []],
    receive
        {'DOWN', Monitor, process, Pid, {rows, Rows}} when Changed =/= [] -> {Rows, hd(Changed)};
        {'DOWN', Monitor, process, Pid, {rows, _}} -> growth_meanwhile(Change)
    end.

%% False if it has ended before.
is_suspended_while_it_waits(Pid) ->
    try erlang:suspend_process(Pid) of
        true ->
            process_info(Pid, current_function) =:= {current_function, {timer, sleep, 1}} orelse
                begin
                    erlang:resume_process(Pid),
                    erlang:yield(),
                    is_suspended_while_it_waits(Pid)
                end
    catch
        error:badarg -> false
    end.

%% Tables are made and deleted, and names change their tables, while rows are read.
tables_that_come_and_go(_Config) ->
    Churn = fun Churn() ->
                    Tables = [cats:new(coming_and_going, []) || _ <- lists:seq(1, 20)],
                    Named = cats:new(churning, [named_table]),
                    [true = cats:delete(Table) || Table <- [Named | Tables]],
                    Churn()
            end,
    Churners = [spawn(Churn), spawn(fun() -> timer:sleep(10), catch Churn() end)],
    cats_test_lib:repeat_for(500, fun(_) ->
                                          Rows = cats_observer:tables(#{sort => name}),
                                          [true = is_pid(Owner) || #{owner := Owner} <- Rows],
                                          _ = cats_observer:growth(0, #{limit => 3})
                                  end),
    [exit(Pid, kill) || Pid <- Churners].

%% The work is done in the slices of a process. A slice has 4000 reductions.
many_tables(_Config) ->
    cats_test_lib:in_process(
      fun() ->
              [cats:new(many, []) || _ <- lists:seq(1, 20000)],
              erlang:garbage_collect(),
              {reductions, Before} = process_info(self(), reductions),
              {Cpu, _} = statistics(runtime),
              Rows = [length(cats_observer:tables(Options)) || Options <- [#{limit => 10}, #{sort => name}]],
              {reductions, Now} = process_info(self(), reductions),
              Milliseconds = element(1, statistics(runtime)) - Cpu,
              ct:log("~b ms of a processor, ~b reductions", [Milliseconds, Now - Before]),
              ?assertMatch([10, All] when All >= 20000, Rows),
              ?assert(Milliseconds < (Now - Before) div 4000)
      end).

%% One node reads the tables of another, and prints them.
another_node(_Config) ->
    [{Peer, Node}, {OtherPeer, Other}] = Peers = [peer(), peer()],
    ok = peer:call(OtherPeer, ?MODULE, leave_tables, [[{small, 10}, {large, 1000}, {middle, 100}]], infinity),
    ?assertMatch([#{name := large, size := 1000, owner := Owner}, #{name := middle}] when node(Owner) =:= Other,
                 peer:call(Peer, cats_observer, tables, [Other, #{sort => size, limit => 2}], infinity)),
    ?assertEqual([], peer:call(Peer, cats_observer, tables, [Node, #{}], infinity)),
    Printed = peer:call(Peer, ?MODULE, printed, [Other], infinity),
    ?assertMatch([_Head, _Line, _, _, _], string:lexemes(Printed, "\n")),
    [?assertNotEqual(nomatch, string:find(Printed, Name)) || Name <- ["small", "middle", "large"]],
    ?assertError({erpc, noconnection}, peer:call(Peer, cats_observer, tables, [nobody@localhost, #{}], infinity)),
    [peer:stop(P) || {P, _} <- Peers].

%% @doc In another VM: makes tables with so many objects, and leaves them to a process.
leave_tables(Tables) ->
    {_, ok} = cats_test_lib:spawn_owner(fun() ->
                                                [cats:insert(cats:new(Name, []), [{N} || N <- lists:seq(1, Objects)])
                                                 || {Name, Objects} <- Tables],
                                                ok
                                        end),
    ok.

%% A distributed node.
peer() ->
    Name = peer:random_name("cats_observer") ++ "@localhost",
    peer("-sname " ++ Name).

peer(Arguments) ->
    Peer = cats_test_lib:start_peer(string:lexemes(Arguments, " ") ++ ["-pa" | code:get_path()]),
    {Peer, peer:call(Peer, erlang, node, [], infinity)}.

%% The guide tells how the window of observer lists tables of cats.
observer_backend_with_the_transform(_Config) ->
    {Peer, _} = peer(""),
    ?assertEqual(#{tables => [seen], objects => [[{1, a}]]}, peer:call(Peer, ?MODULE, seen_by_backend, [], infinity)),
    peer:stop(Peer).

%% @doc In a VM of its own.
seen_by_backend() ->
    {ok, {observer_backend, [{abstract_code, {_, Forms}}]}} =
        beam_lib:chunks(code:which(observer_backend), [abstract_code]),
    {ok, Module, Code} = compile:forms(Forms, [{parse_transform, cats_transform}, nowarn_cats_transform]),
    {module, Module} = code:load_binary(Module, "", Code),
    Table = cats:new(seen, [public]),
    cats:insert(Table, {1, a}),
    Pid = observer_backend:get_table(self(), Table, ets),
    Objects = receive {Pid, Found} -> Found end,
    #{tables => [proplists:get_value(name, Row) || Row <- observer_backend:get_table_list(ets, [])],
      objects => Objects}.

%% The VM counts the memory of tables as its own, and as much of it as the system has given.
memory_of_the_vm(_Config) ->
    {Peer, _} = peer("+S 1"),
    {Resident, System, Tables} = peer:call(Peer, ?MODULE, rises, [], infinity),
    ct:pal("resident size ~b, erlang:memory(system) ~b, cats:memory() ~b", [Resident, System, Tables]),
    ?assert(abs(System - Resident) * 10 < Resident),
    ?assert(Tables < System),
    peer:stop(Peer).

%% @doc In a VM of its own: the rise of each figure with 300,000 objects.
rises() ->
    Table = cats:new(t, [public]),
    Fill = fun(First, Last) ->
                   {_, Monitor} = spawn_monitor(fun() -> fill(Table, First, Last) end),
                   receive {'DOWN', Monitor, process, _, normal} -> ok end,
                   %% The library's thread fills its stock of memory.
                   timer:sleep(1000),
                   {resident(), erlang:memory(system), cats:memory()}
           end,
    {Resident, System, Tables} = Fill(1, 10000),
    {Resident2, System2, Tables2} = Fill(10001, 310000),
    {Resident2 - Resident, System2 - System, Tables2 - Tables}.

fill(_Table, Number, Last) when Number > Last ->
    ok;
fill(Table, Number, Last) ->
    cats:insert(Table, {Number, <<Number:400>>}),
    Number rem 1000 =:= 0 andalso use_and_free_memory(),
    fill(Table, Number + 1, Last).

%% What the VM gives next may be memory that it has kept from here.
use_and_free_memory() ->
    _ = length(lists:seq(1, 300_000)),
    erlang:garbage_collect().

resident() ->
    {ok, Status} = file:read_file("/proc/self/status"),
    {match, [Kilobytes]} = re:run(Status, "VmRSS:\\s+(\\d+) kB", [{capture, all_but_first, list}]),
    list_to_integer(Kilobytes) * 1024.
