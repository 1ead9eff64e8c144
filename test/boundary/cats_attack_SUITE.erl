%% What any process may do: call every native function with any arguments. The VM stays up, the tables of others stay as
%% they are, memory comes back, and no scheduler is held.
-module(cats_attack_SUITE).
-measures([costly_specifications]).
-include_lib("stdlib/include/assert.hrl").
-include("cats_failure.hrl").
-import(cats_test_lib, [one_of/1]).
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([dirty_calls_in_one_another/1, hostile_calls/1, forged_arguments/1, costly_specifications/1, costly_changes/1,
         results_of_another_kind/1]).
-export([dirty_calls/1, hostile/2, forged/0]).

suite() -> [{timetrap, {minutes, 10}}].

all() ->
    [dirty_calls_in_one_another, hostile_calls, forged_arguments, costly_specifications,
     costly_changes, results_of_another_kind].

init_per_suite(Config) -> cats_test_lib:start(Config).

end_per_suite(_Config) -> ok.

%% Runs a function of this module in a VM of its own, which may end.
in_peer(Function, Arguments) ->
    Peer = cats_test_lib:start_peer(["-pa" | code:get_path()]),
    try
        peer:call(Peer, ?MODULE, Function, Arguments, infinity)
    after
        peer:stop(Peer)
    end.

%%------------------------------------------------------------------------------------------------------------
%% Dirty calls

dirty_calls_in_one_another(_Config) ->
    ?assertMatch([?FAILED(none, _), ?FAILED(none, _)], in_peer(dirty_calls, [3000])).

dirty_calls(Depth) ->
    {ok, _} = application:ensure_all_started(cats),
    Nested = lists:foldl(fun(_, Arguments) -> [dirty_call, Arguments] end, [all, []], lists:seq(1, Depth)),
    [apply(cats_nif, dirty_call, Arguments) || Arguments <- [Nested, [dirty_call, [dirty_call, [all, []]]]]].

%%------------------------------------------------------------------------------------------------------------
%% Any arguments

%% Fewer bytes than these are left of the calls.
-define(GROWTH, 20_000_000).

calls() -> cats_test_lib:environment("CALLS", cats_test_lib:rounds(15000)).

%% CALLS (environment) of random functions with random arguments, many of them what other calls gave.
hostile_calls(_Config) ->
    {Kept, Grown, Outcomes} = in_peer(hostile, [rand:export_seed(), calls()]),
    ct:log("memory grew by ~b bytes, ~p", [Grown, Outcomes]),
    ?assert(Kept),
    ?assert(Grown < ?GROWTH, Grown),
    %% A panic is a fault, even if the VM goes on.
    ?assertEqual([], [Reason || {Reason, _} <- Outcomes, is_tuple(Reason), element(1, Reason) =:= panic]).

hostile(Seed, Calls) ->
    {ok, _} = application:ensure_all_started(cats),
    logger:set_primary_config(level, none),
    rand:seed(Seed),
    Objects = [{N, {value, N}, [N]} || N <- lists:seq(1, 500)],
    Kinds = [set, ordered_set, bag, duplicate_bag],
    Others = [begin
                  Table = cats:new(other, [Kind, protected]),
                  true = cats:insert(Table, Objects),
                  Table
              end || Kind <- Kinds],
    %% Once for what the library and the VM take for good.
    _ = attackers(Calls div 10, Others),
    Before = settled(),
    Outcomes = attackers(Calls, Others),
    Kept = lists:all(fun(Table) -> lists:sort(cats:tab2list(Table)) =:= Objects end, Others),
    %% On a busy machine it is a while until all is freed.
    _ = catch cats_test_lib:eventually(fun() -> cats:memory() - Before < ?GROWTH end),
    {Kept, cats:memory() - Before, Outcomes}.

settled() ->
    timer:sleep(1500),
    cats:memory().

%% Each attacker makes some calls with tables of its own, and ends.
attackers(Calls, Others) ->
    Each = 200,
    Attacker = fun() ->
                       Tables = [cats:new(own, [Kind, public | Options])
                                 || Kind <- [set, ordered_set, bag, duplicate_bag], Options <- [[], [compressed]]],
                       [cats:insert(Table, {N rem 100, N, [N]}) || Table <- Tables, N <- lists:seq(1, 300)],
                       exit({outcomes, attack(Each, Tables ++ Others, [], #{})})
               end,
    Ended = fun(_, Outcomes) ->
                    Seed = rand:uniform(1 bsl 58),
                    {Pid, Monitor} = spawn_monitor(fun() -> rand:seed(exsss, Seed), Attacker() end),
                    receive
                        {'DOWN', Monitor, process, Pid, {outcomes, Found}} ->
                            maps:fold(fun(Reason, Count, Sum) ->
                                              maps:update_with(Reason, fun(N) -> N + Count end, Count, Sum)
                                      end,
                                      Outcomes, Found)
                    end
            end,
    maps:to_list(lists:foldl(Ended, #{}, lists:seq(1, Calls div Each))).

%% `Loot' is what calls gave.
attack(0, _Tables, _Loot, Outcomes) ->
    Outcomes;
attack(Calls, Tables, Loot, Outcomes) ->
    {Function, Arity} = one_of(functions()),
    Arguments = [argument(Tables, Loot) || _ <- lists:seq(1, Arity)],
    {Outcome, Found} =
        try call(Function, named(Function, Arguments)) of
            ?FAILED(returned, Result) -> {returned, Result};
            ?FAILED(Cause, _) -> {Cause, []};
            Result -> {returned, Result}
        catch
            %% What this module does in Erlang.
            error:Reason -> {Reason, []}
        end,
    NewLoot = case Found of
                  [] -> Loot;
                  _ -> lists:sublist([Found | parts(Found)] ++ Loot, 30)
              end,
    Kind = case Outcome of
               {panic, _} -> Outcome;
               _ when is_tuple(Outcome) -> element(1, Outcome);
               _ -> Outcome
           end,
    attack(Calls - 1, Tables, NewLoot, maps:update_with(Kind, fun(N) -> N + 1 end, 1, Outcomes)).

parts(Found) when is_tuple(Found) -> tuple_to_list(Found);
parts(_Found) -> [].

call(Function, Arguments) ->
    case rand:uniform(3) of
        1 -> cats_nif:dirty(Function, Arguments);
        _ -> apply(cats_nif, Function, Arguments)
    end.

%% Those that would end the tables of this very test, or take long by intent, are not among them.
functions() ->
    [{Function, Arity} || {Function, Arity} <- cats_nif:module_info(exports),
                          not lists:member(Function, [module_info, give_away]),
                          not lists:prefix("test_", atom_to_list(Function))].

%% Functions whose first argument is a name need a name to come anywhere.
named(Function, [_ | Arguments]) when Function =:= select; Function =:= select_at ->
    [one_of([match, match_object, match_delete, select, select_reverse, select_count, select_delete, select_replace])
     | Arguments];
%% What a transaction has read and writes has a shape.
named(transaction_read, [Term, Table, Key]) ->
    [notes(Table, Key, Term), Table, Key];
named(transaction_read_many, [Term, Table, Keys]) ->
    [notes(Table, Keys, Term), Table, one_of([Keys, [Keys, Term]])];
named(transaction_range, [Term, Table, From, To, Down, Limit]) ->
    [notes(Table, From, Term), Table, one_of([[], [From], {From}, From]), one_of([[], [To], To]), Down,
     one_of([1, infinity, Limit])];
%% The keeper ends with the attacker.
named(transaction_prefer, [Pid]) when is_pid(Pid) ->
    [self()];
named(transaction_commit, [Table, Term, Keeper]) ->
    Writes = [{Table, Term, []}, {Table, Term, [{Term, Table}]}, {Table, 1, [{1, Term}]}, {Table, Term, Term}, Term],
    [notes(Table, Term, []), one_of([[], Writes, [one_of(Writes)], [one_of(Writes), one_of(Writes)]]),
     one_of([none, Keeper])];
named(_Function, Arguments) ->
    Arguments.

notes(Table, Key, Term) ->
    Notes = some_notes(Table, Key, Term),
    case rand:uniform(2) of
        1 -> Notes;
        2 -> {cats_nif:transaction_long(one_of([Notes, [{Table, Key, []}]]), one_of([none, self()]),
                                        one_of([infinity, 1 bsl 26, 0])),
              Notes}
    end.

some_notes(Table, Key, Term) ->
    one_of([[], Term, [{Table, Key, []}], [{Table, Key, Term}, {Table, Key, [Term]}],
            [{Table, [Key], one_of([[], [Term]]), Term, Term}], [{Table, {Key}, [], true, []} | Term]]).

argument(Tables, Loot) ->
    case rand:uniform(4) of
        1 -> one_of(Tables);
        2 when Loot =/= [] -> one_of(Loot);
        _ -> term(rand:uniform(37))
    end.

term(N) when N =< 8 -> specification(N);
term(9) -> '$end_of_table';
term(10) -> infinity;
term(11) -> rand:uniform(300);
term(12) -> 0;
term(13) -> -1;
term(14) -> 1 bsl rand:uniform(70);
term(15) -> -(1 bsl 10000);
term(16) -> [a | b];
term(17) -> [1, 2 | 3];
term(18) -> {rand:uniform(100), rand:uniform(5)};
term(19) -> [{rand:uniform(100), x, y} || _ <- lists:seq(1, rand:uniform(20))];
term(20) -> [{1, 2} | oops];
term(21) -> {2, 1 bsl 59};
term(22) -> [{3, 1}, {2, 1, 5, -5}, x];
term(23) -> nested(rand:uniform(200), fun(Term) -> [Term] end);
term(24) -> nested(10000, fun(Term) -> {Term, x} end);
term(25) -> nested(3000, fun(Term) -> #{Term => x} end);
term(26) -> maps:from_list([{I, I} || I <- lists:seq(1, 3000)]);
term(27) -> <<1:1, 0:(rand:uniform(100000))>>;
term(28) -> binary:copy(<<"x">>, rand:uniform(100000));
term(29) -> fun(Loot) -> Loot end;
term(30) -> self();
term(31) -> cats_test_lib:down(normal);
term(32) -> make_ref();
term(33) -> binary_to_term(<<131, 88, 119, 9, "far@where", 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1>>);
term(34) -> one_of([set, bag, public, true, false, size, memory, fixed, safe_fixed, binary, stats, owner, {keypos, 2}]);
term(35) ->
    [one_of([set, bag, ordered_set, public, compressed, {keypos, 1 bsl 40},
             {heir, self(), x}, {write_concurrency, 5}])];
term(36) -> list_to_tuple(lists:seq(1, rand:uniform(3000)));
term(37) -> ?FAILED(one_of([busy, returned, x]), []).

specification(1) -> [{'_', [], ['$_']}];
specification(2) -> [{{'$1', '$2', '_'}, [{'>', '$2', rand:uniform(300)}], ['$$']}];
specification(3) -> [{{rand:uniform(100), '_', '_'}, [], [true]}];
specification(4) -> [{{K, '_', '_'}, [], ['$_']} || K <- lists:seq(1, rand:uniform(50))];
specification(5) -> {'$1', '_', '$3'};
specification(6) -> [{{'$1', '$2', '$3'}, [], [{{'$1', '$3', '$2'}}]}];
specification(7) -> [{{'$1', '_', '_'}, [nested(rand:uniform(100), fun(Term) -> {'not', Term} end)], ['$_']}];
specification(8) -> [{{'$1', '_', '_'}, [], [nested(rand:uniform(100), fun(Term) -> {{Term}} end)]} | oops].

nested(Depth, Wrap) ->
    lists:foldl(fun(_, Term) -> Wrap(Term) end, '$1', lists:seq(1, Depth)).

%%------------------------------------------------------------------------------------------------------------
%% Arguments that are right but for one part

%% In each call of some that succeed, each part of each argument is replaced by each of many terms: tables of all kinds,
%% dead ones, what other calls gave. No function panics.
forged_arguments(_Config) ->
    {Functions, Panics} = in_peer(forged, []),
    ?assertEqual([], Panics),
    %% None was forgotten.
    ?assertEqual([], functions() -- Functions).

forged() ->
    {ok, _} = application:ensure_all_started(cats),
    logger:set_primary_config(level, none),
    Names = lists:usort([{Function, length(Arguments)} || {Function, Arguments} <- templates(environment())]),
    Panics = [Panic || Name <- Names, Panic <- forge(Name)],
    {Names, lists:ukeysort(1, Panics)}.

%% The panics of one function, in an environment of its own, which the calls may spoil. The process is one of their own,
%% too.
forge({Function, Arity}) ->
    cats_test_lib:in_process(
      fun() ->
              Environment = #{pool := Pool} = environment(),
              Templates = [Arguments || {Name, Arguments} <- templates(Environment), Name =:= Function,
                                        length(Arguments) =:= Arity],
              [Panic || Template <- Templates,
                        Arguments <- [Template | [tuple_to_list(Forged) || Forged <- forgeries(Template, Pool)]],
                        Panic <- panics(Function, Arguments)]
      end).

panics(Function, Arguments) ->
    Called = try apply(cats_nif, Function, Arguments) of
                 ?FAILED(dirty, _) -> cats_nif:dirty(Function, Arguments);
                 Result -> Result
             catch
                 %% What this module does in Erlang.
                 error:_ -> ok
             end,
    case Called of
        ?FAILED({panic, Text}, _) -> [{{Function, Text}, io_lib:format("~0P", [Arguments, 50])}];
        _ -> []
    end.

%% The lists in which one part of a list of arguments is another term.
forgeries(Arguments, Pool) ->
    Places = lists:seq(1, length(Arguments)),
    [put_at([Place | Path], list_to_tuple(Arguments), Term)
     || Place <- Places, Path <- paths(lists:nth(Place, Arguments), 3), Term <- Pool].

%% The ways to the parts of a term, down to some depth.
paths(_Term, 0) ->
    [[]];
paths([Head | Tail], Depth) ->
    [[]] ++ [[head | Path] || Path <- paths(Head, Depth - 1)] ++ [[tail | Path] || Path <- paths(Tail, Depth)];
paths(Term, Depth) when is_tuple(Term) ->
    [[]] ++ [[N | Path] || N <- lists:seq(1, min(6, tuple_size(Term))), Path <- paths(element(N, Term), Depth - 1)];
paths(_Term, _Depth) ->
    [[]].

put_at([], _Old, New) -> New;
put_at([head | Path], [Head | Tail], New) -> [put_at(Path, Head, New) | Tail];
put_at([tail | Path], [Head | Tail], New) -> [Head | put_at(Path, Tail, New)];
put_at([N | Path], Tuple, New) -> setelement(N, Tuple, put_at(Path, element(N, Tuple), New)).

%% Tables, what calls gave, and terms of all types.
environment() ->
    Options = [[], [compressed], [{ttl, 100000}], [{idle, 100000}], [{limit, {objects, 100}}],
               [{limit, {bytes, 100000}}, {evict, none}], [{stats, true}], [{snapshot_limit, 0}],
               [{ttl, 100000}, {notify, self()}]],
    New = fun(Kind, Some) ->
                  try [cats:new(forged, [Kind, public | Some])]
                  catch error:badarg -> []
                  end
          end,
    Empty = lists:append([New(Kind, Some) || Kind <- [set, ordered_set, bag, duplicate_bag], Some <- Options]),
    Engines = lists:append([New(hd(Types), [{engine, Engine}]) || {Engine, Types, _, _, _} <- cats_nif:engines()]),
    Filled = lists:append([New(Kind, Some) || Kind <- [set, ordered_set, bag, duplicate_bag], Some <- Options])
        ++ Engines,
    [true = cats:insert(Table, {N, N, [N]}) || Table <- Filled, N <- lists:seq(1, 50)],
    Snapshots = lists:append([try [cats:snapshot(Table)] catch error:_ -> [] end || Table <- Filled ++ Empty]),
    %% That of a table with a limit of no bytes for them dies.
    [true = cats:insert(Table, {1, changed, [1]}) || Table <- Filled],
    Dead = [begin T = cats:new(dead, [Kind, public]), true = cats:delete(T), T end || Kind <- [set, ordered_set]]
        ++ [begin S = cats:snapshot(hd(Filled)), true = cats:delete(S), S end],
    {_Owner, Private} = cats_test_lib:spawn_owner(fun() -> cats:new(private, [private]) end),
    All = [{{'$1', '_', '_'}, [], ['$1']}],
    Cursors = lists:append([loot(fun() -> cats_nif:select(Function, Table, All, 3) end)
                            || Table <- lists:sublist(Filled, 3) ++ lists:sublist(Filled, 10, 3)
                               ++ lists:sublist(Snapshots, 12),
                               Function <- [select, select_reverse]]),
    Scans = lists:append([loot(fun() -> cats_nif:scan(Table, []) end)
                          || Table <- [hd(Filled) | lists:sublist(Snapshots, 2)]]),
    Record = cats_nif:record(hd(Filled)),
    Long = loot(fun() ->
                        Notes = [{Table, 1, []} || Table <- lists:sublist(Filled, 12)],
                        cats_nif:transaction_long(Notes, none, infinity)
                end),
    Begun = loot(fun() -> cats_nif:snapshot([hd(Filled), lists:nth(10, Filled)]) end),
    %% One that another environment has made goes on.
    erlang:garbage_collect(),
    Traces = [Trace || Trace <- [cats_nif:trace_start([created, call], 1000)], is_reference(Trace)],
    Terms = [-1, 0, 1, 2, 3, 4, 51, 1 bsl 31, 1 bsl 32, (1 bsl 59) - 1, 1 bsl 59, -(1 bsl 59), (1 bsl 63),
             (1 bsl 64) - 1, 1 bsl 64, -(1 bsl 100), 1.0, -0.0, 1.0e300, a, '', true, false, infinity, default, '_',
             '$1', '$$', '$end_of_table', no_cursor, select, select_reverse, match_delete, select_count, select_replace,
             size, [], {}, <<>>, <<1:1>>, "text", [a | b], [1], {1}, {1, 2}, {1, 2, 3}, {2, 5}, {0, 1}, {a, b, c},
             [{1, 2, 3}], [{1, 2}, {2, 3}], [[]], [{}], #{}, #{a => '$1'}, {4, 1 bsl 70}, {[1], true}, {[], false},
             self(), make_ref(), fun(X) -> X end, fun erlang:now/0, ?FAILED(returned, x), <<1:1, 0:1000>>,
             binary:copy(<<"x">>, 1000), All, [{'$1', [], [true]}], {reversed, [], [], [], []}],
    Pool = Terms ++ Empty ++ Filled ++ Snapshots ++ Dead ++ [Private, Record] ++ Traces ++ Cursors ++ Scans ++ Begun
        ++ Long,
    #{pool => Pool,
      tables => [lists:nth(N, Filled) || N <- [1, 3, 6, 9, 10, 12, 20]] ++ [hd(Snapshots), lists:nth(3, Snapshots)],
      cursors => Cursors, scans => Scans, references => [Record | Traces], begun => Begun, long => Long}.

%% The parts of what a call gives.
loot(Call) ->
    case Call() of
        ?FAILED(_, _) -> [];
        Tuple when is_tuple(Tuple) -> tuple_to_list(Tuple);
        Other -> [Other]
    end.

%% Calls, of which most succeed.
templates(#{tables := Tables, cursors := Cursors, scans := Scans,
            references := [Record | _] = References, begun := Begun, long := Long}) ->
    All = [{{'$1', '$2', '_'}, [{'>', '$2', 1}], ['$1']}],
    Cursor = [C || C <- Cursors ++ Scans, cats_nif:is_cursor(C) =:= true],
    Two = [hd(Tables), lists:nth(3, Tables)],
    Calls =
        [{Function, [Table]}
         || Function <- [delete, delete_all_objects, first, last, first_lookup, last_lookup, removed, claim,
                         adaptations, record, recorded], Table <- Tables]
        ++ [{Function, [Table, 3]}
            || Function <- [delete, lookup, member, take, lookup_to_fetch, lookup_to_update, ttl, next, prev,
                            next_lookup, prev_lookup, rank, nth, slot], Table <- Tables]
        ++ [{Function, [Table, {3, 3, [3]}]}
            || Function <- [delete_object, insert, insert_new, remove, next_objects, prev_objects],
                                                Table <- Tables]
        ++ [{Function, [Table, [3, 4]]} || Function <- [lookup_many, take_many, delete_many], Table <- Tables]
        ++ [{Function, [Table, 3, 2]} || Function <- [lookup_element, update_counter, add], Table <- Tables]
        ++ [{Function, [Table, {3, 3, [3]}, 3]} || Function <- [next_numbered, prev_numbered], Table <- Tables],
    Calls
        ++ lists:append(
             [[{insert, [T, [{3, 3, [3]}, {4, 4, [4]}]]},
               {insert_many, [T, [{3, 3, [3]}, {4, 4, [4]}]]},
               {lookup_element, [T, 3, 2, default]},
               {lookup_elements, [T, 3, [1, 2]]},
               {update_counter, [T, 3, [{2, 1}, {2, 1, 5, 0}]]},
               {update_counter, [T, 3, {2, 1}, {3, 3, [3]}]},
               {update_element, [T, 3, {2, 4}]},
               {update_element, [T, 3, [{2, 4}, {3, [4]}]]},
               {update_element, [T, 3, {2, 4}, {3, 3, [3]}]},
               {lookup_to_update, [T, 60, {3, 3, [3]}]},
               {insert_absent, [T, {60, 0}, {60, 1, 2}]},
               {replace, [T, {3, 3, [3]}, {3, 4, [5]}]},
               {add, [T, 3, [{2, 1.5}, {2, 2}]]},
               {insert_bounded, [T, {3, 3, [3]}, 1000, 2000]},
               {insert_lasting, [T, {3, 3, [3]}, 1000]},
               {insert_lasting, [T, [{3, 3, [3]}], infinity]},
               {insert_new_lasting, [T, {3, 3, [3]}, 1000]},
               {insert_new_lasting, [T, [{3, 3, [3]}, {4, 4, [4]}], infinity]},
               {fetched, [T, 3, 1000, 1000]},
               {insert_fetched, [T, {60, 0}, {60, 1, 2}, 1000, 1000]},
               {insert_fetched, [T, {60, 0}, {60, 1, 2}, default, 0]},
               {fetched_again, [T, 3, 1000, 1000]},
               {replace_fetched, [T, {3, 3, [3]}, {3, 3, 4}, 1000, 1000]},
               {replace_fetched, [T, {3, 3, [3]}, {3, 3, 4}, default, 0]},
               {flight_to, [T, 3]},
               {flight_begin, [T, 3, self(), self()]},
               {flights_begin, [T, [3, 60, 61], 1, self(), self(), true]},
               {flights_begin, [T, [60, 61], 2, self(), self(), false]},
               {flights_store, [T, [3, 60], self()]},
               {flights_end, [T, [3, 60], self()]},
               {flights_fail, [T, [60, 61], self(), {error, bad, []}, 1000]},
               {lookup_many_to_fetch, [T, [3, 60], false]},
               {lookup_many_to_fetch, [T, [3, 60], true]},
               {count_fetch, [T, fetch_made]},
               {times, [T, 3]},
               {touch, [T, 3, 1000]},
               {count_between, [T, [3], {10}]},
               {range_between, [T, [3], [20], false, 5]},
               {safe_fixtable, [T, true]},
               {rename, [T, other]},
               {setopts, [T, [{heir, none}]]},
               {setopts, [T, {heir, self(), data}]},
               {setopts, [T, [{stats, true}, {ttl, 1000}, {limit, {objects, 5}}, {evict, sieve}]]},
               {info, [T, size]},
               {scan, [T, []]},
               {select, [select, T, All, 3]},
               {select, [select_reverse, T, All, infinity]},
               {select, [match_delete, T, {3, '_', '_'}, infinity]},
               {select_at, [select, T, All, 3]},
               {select_chunk, [T, hd(Cursor), 3]},
               {snapshot, [[T]]},
               {structure, [T, [], 1]},
               {transaction_table, [T, read]},
               {transaction_table, [T, write]},
               {transaction_read, [[{T, 3, [{3, 3, [3]}]}, {T, [1], [3], false, []}], T, 4]},
               {transaction_read, [[{T, 3, [{3, 3, [3]}]}], T, 4]},
               {transaction_range, [[{T, 3, [{3, 3, [3]}]}], T, [3], [10], false, 3]},
               {transaction_commit, [[{T, 3, [{3, 3, [3]}]}], [{T, 3, [{3, 5, 6}]}, {T, 4, []}], none]}]
              || T <- Tables])
        ++ [{select_on, [C, Result]} || C <- Cursor, Result <- [[], 0]]
        ++ [{scan, [C, []]} || C <- Cursor]
        ++ [{select_chunk, [hd(Tables), C, 0]} || C <- Cursor]
        ++ [{is_cursor, [hd(Cursor)]}, {stop_recording, [Record]}, {whereis, [name]}, {all, []},
            {garbage, []}, {budget, []}, {relieve, []},
            {memory, []}, {engines, []}, {select_key, [All, 1]}, {select_terms, [[{1, 2, 3}], All, []]}, {settings, []},
            {priv_dir, []}, {stop_clock, [false]}, {transaction_preferred, []}, {transaction_prefer, [self()]},
            {transaction_yield, [self()]}, {trace_start, [[call], 100]}, {new, [forged, [set, {keypos, 1}, {ttl, 5}]]},
            {new, [forged, [ordered_set, {limit, {bytes, 20000}}, {evict, sieve}, {notify, self(), [{batch, 3}]}]]},
            {flight_wait, [self(), self()]}, {flight_waited, []}, {configure, [#{}]},
            {dirty_call, [lookup, [hd(Tables), 3]]}, {dirty, [lookup, [hd(Tables), 3]]}]
        ++ [{Function, [Reference]} || Function <- [trace_slots, trace_stop], Reference <- References]
        ++ [{trace_events, [Reference, Slot]} || Reference <- References, Slot <- [0, 1, 5]]
        ++ [{snapshot_finish, [Two, Some]} || Some <- [Begun | Begun]]
        ++ [Call || Some <- Long, T <- Tables,
                    Call <- [{transaction_read, [{Some, []}, T, 4]}, {transaction_read, [{Some, [{T, 9, []}]}, T, 4]},
                             {transaction_range, [{Some, []}, T, [], [], false, infinity]},
                             {transaction_commit, [{Some, []}, [{T, 4, []}], none]}]]
        ++ [{transaction_long, [[{T, 3, []}, {T, [3], [4], true, []}], none, infinity]} || T <- Tables]
        ++ [{transaction_read_many, [Reads, T, [3, 4]]}
            || T <- Tables, Reads <- [[{T, 3, [{3, 3, [3]}]}] | [{Some, []} || Some <- Long]]]
        ++ [{transaction_whole, [{Some, []}, T]} || Some <- Long, T <- Tables]
        ++ [{transaction_unchanged, [Some]} || Some <- Long]
        ++ [{transaction_end, [Some]} || Some <- Long].

%%------------------------------------------------------------------------------------------------------------
%% Costly specifications

%% Where a specification costs too much for a scheduler, even with one object, the native function says so, soon.
costly_specifications(_Config) ->
    Slowness = cats_test_lib:environment("SLOWNESS", 1),
    Long = lists:seq(1, 10000),
    Objects = [{N, N, Long} || N <- lists:seq(1, 64)],
    Specifications = specifications(),
    [begin
         Table = cats_test_lib:new(cats, costly, [Kind]),
         true = cats:insert(Table, Objects),
         [begin
              ct:log("~p ~s ~s", [Kind, Function, Name]),
              is_soon_over(fun() -> cats_nif:select(Function, Table, Specification, infinity) end, 10000 * Slowness)
          end || {Name, Specification} <- Specifications, Function <- [select, select_count]],
         true = cats:delete(Table)
     end || Kind <- cats_test_lib:types()],
    %% The results are those that they would be in slices.
    Table = cats_test_lib:new(cats, costly, [set]),
    true = cats:insert(Table, [{N, N, [N]} || N <- lists:seq(1, 10)]),
    Square = [{{'$1', '_', '_'}, [], [{'rem', {'*', {'bsl', '$1', 200000}, {'bsl', '$1', 200000}}, 1000007}]}],
    ?assertEqual(lists:sort([(N bsl 200000) * (N bsl 200000) rem 1000007 || N <- lists:seq(1, 10)]),
                 lists:sort(cats:select(Table, Square))),
    Map = [{{'$1', '_', '_'},
            [{'==', 1000, {map_size, maps:from_list([{{{I, '$1'}}, I} || I <- lists:seq(1, 1000)])}}], [true]}],
    ?assertEqual(10, cats:select_count(Table, Map)),
    true = cats:delete(Table).

specifications() ->
    Variables = [list_to_atom("$" ++ integer_to_list(N)) || N <- lists:seq(1, 15000)],
    Some = lists:sublist(Variables, 2000),
    Power = nested(6, {'bsl', '$1', 100000}, fun(Term) -> {'*', Term, Term} end),
    [{variables, [{{'_', Variables}, [], ['$_']}]},
     {comparisons, [{list_to_tuple(Some), [{'>', Variable, 0} || Variable <- Some], ['$_']}]},
     {guards, [{{'$1', '$2', '_'}, [{'==', '$1', '$2'} || _ <- lists:seq(1, 2500)], [true]}]},
     {map_of_constants,
      [{{'$1', '_', '_'}, [{is_map, maps:from_list([{N, '$1'} || N <- lists:seq(1, 4000)])}], [true]}]},
     {map, [{{'$1', '_', '_'}, [{is_map, maps:from_list([{{{N, '$1'}}, 1} || N <- lists:seq(1, 2000)])}], [true]}]},
     {product, [{{'$1', '_', '_'}, [{'>', {'*', {'bsl', '$1', 4000000}, {'bsl', '$1', 100000}}, 0}], [true]}]},
     {quotient, [{{'$1', '_', '_'}, [{'>', {'div', {'bsl', '$1', 4000000}, {'bsl', '$1', 2000000}}, 0}], [true]}]},
     {power, [{{'$1', '_', '_'}, [{'>', Power, 0}], [true]}]},
     {copies, [{{'_', '_', '$3'}, [{is_tuple, {{'$3', N}}} || N <- lists:seq(1, 2000)], [true]}]},
     {one_large, [{{'_', '_', '$3'}, [{is_tuple, {list_to_tuple(lists:duplicate(2000, '$3'))}}], [true]}]},
     {results, [{{'_', '_', '$3'}, [], [lists:duplicate(1000, '$3')]}]}].

nested(0, Term, _Wrap) -> Term;
nested(Depth, Term, Wrap) -> nested(Depth - 1, Wrap(Term), Wrap).

%% Some call takes less than this many microseconds. What else the machine does adds to the time of a call.
is_soon_over(Call, Limit) ->
    cats_test_lib:eventually(fun() ->
                                     {Took, _} = timer:tc(Call),
                                     Took < Limit
                             end).

%% Deleting and replacing, in place of which the call is refused, has changed nothing.
costly_changes(_Config) ->
    Bits = {'bsl', '$1', 200000},
    Guard = {'>', {'*', Bits, Bits}, 0},
    [begin
         Table = cats_test_lib:new(cats, costly, [Kind]),
         Objects = [{N, 0} || N <- lists:seq(1, 20)],
         true = cats:insert(Table, Objects),
         Replace = [{{'$1', '$2'}, [Guard], [{{'$1', {'+', '$2', 1}}}]}],
         ?assertMatch(?FAILED(dirty, _), cats_nif:select(select_replace, Table, Replace, infinity)),
         ?assertEqual(Objects, lists:sort(cats:tab2list(Table))),
         ?assertEqual(20, cats:select_replace(Table, Replace)),
         ?assertEqual([{N, 1} || N <- lists:seq(1, 20)], lists:sort(cats:tab2list(Table))),
         Delete = [{{'$1', '_'}, [Guard], [true]}],
         ?assertMatch(?FAILED(dirty, _), cats_nif:select(select_delete, Table, Delete, infinity)),
         ?assertEqual(20, cats:info(Table, size)),
         ?assertEqual(20, cats:select_delete(Table, Delete)),
         true = cats:delete(Table)
     end || Kind <- cats_test_lib:types([set, ordered_set])].

%% A cursor that counts goes on from a number only, and does nothing else.
results_of_another_kind(_Config) ->
    [begin
         Table = cats_test_lib:new(cats, counted, [Kind]),
         true = cats:insert(Table, [{N, N} || N <- lists:seq(1, 20000)]),
         {Count, Cursor, _Words} = cats_nif:select(select_delete, Table,
                                                   [{{'_', '_'}, [{'>', 1, 0}], [true]}], infinity),
         Left = cats:info(Table, size),
         [?assertMatch(?FAILED(none, _), cats_nif:select_on(Cursor, Wrong))
          || Wrong <- [[], foo, -1, 1.0, 1 bsl 64, [1 | 2]]],
         ?assertEqual(20000 - Count, Left),
         ?assertEqual(Left, cats:info(Table, size)),
         true = cats:delete(Table)
     end || Kind <- cats_test_lib:types()].
