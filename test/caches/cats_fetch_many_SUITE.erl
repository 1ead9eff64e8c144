%% `cats:fetch_many/3,4': one call of a function makes the objects of all keys that are missing, and others wait for
%% those that they miss too.
-module(cats_fetch_many_SUITE).
-measures([costs]).
-include_lib("stdlib/include/assert.hrl").
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, end_per_testcase/2]).
-export([hits_and_misses/1, sizes/1, long_keys_and_objects/1, equal_keys/1, lifetimes/1, outcomes/1, limits/1]).
-export([only_what_nobody_makes/1, each_key_is_made_once/1, both_kinds_wait/1, left_out/1, what_is_passed_on/1,
         delivered_though_deleted/1, many_flights_at_once/1, asked_late/1]).
-export([no_answers/1, a_failure_is_shared/1, failures_while_storing/1, retries/1, timeouts/1, remembered/1]).
-export([a_write_ends_one_key/1, own_writes_are_not_told/1, found_after_all/1, emptied/1, deleted/1, equal_rows/1]).
-export([killed_leaders/1, killed_flights/1, killed_owners/1, killed_while_storing/1, killed_at_any_instant/1]).
-export([own_key_is_refused/1, circles/1, false_circles/1, transactions/1, rights/1, counted/1, explanations/1,
         no_room_for_a_flight/1, costs/1]).
-export([fetch_without_room/0]).

suite() -> [{timetrap, {minutes, 10}}].

all() ->
    [hits_and_misses, sizes, long_keys_and_objects, equal_keys, lifetimes, outcomes, limits, only_what_nobody_makes,
     each_key_is_made_once, both_kinds_wait, left_out, what_is_passed_on, delivered_though_deleted,
     many_flights_at_once, asked_late, no_answers, a_failure_is_shared, failures_while_storing, retries, timeouts,
     remembered, a_write_ends_one_key, own_writes_are_not_told, found_after_all, emptied, deleted, equal_rows,
     killed_leaders, killed_flights, killed_owners, killed_while_storing, killed_at_any_instant, own_key_is_refused,
     circles, false_circles, transactions, rights, counted, explanations, no_room_for_a_flight, costs].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(cats),
    Config.

end_per_suite(_Config) -> ok.

end_per_testcase(_Case, _Config) -> cats_nif:stop_clock(false).

-define(OUTCOME, #{returns => outcome}).

%% Tables of all kinds that a fetch can fill, with keys at the first place.
tables() ->
    [cats:new(t, [public, Type | More])
     || Type <- [set, ordered_set],
        More <- [[], [compressed], [{ttl, 60_000}], [{idle, 60_000}], [{limit, {objects, 10_000}}],
                 [{limit, {bytes, 5_000_000}}, {ttl, infinity}]]].

%% One of each type.
two() -> [cats:new(t, [public, Type]) || Type <- [set, ordered_set]].

make(Value) -> fun(Keys) -> [{Key, Value} || Key <- Keys] end.

never() -> fun(Keys) -> error({called, Keys}) end.

%% A function that tells the test for which keys it runs, and waits for what it returns or how it fails.
slow() ->
    Test = self(),
    fun(Keys) ->
            Test ! {runs, self(), Keys},
            receive
                {return, Returned} -> Returned;
                {fail, Class, Reason} -> erlang:raise(Class, Reason, [])
            end
    end.

%% The process whose function runs, for these keys.
runs(Keys) -> receive {runs, Pid, Keys} -> Pid end.

%% A process that evaluates a function, and what that returns or how it fails.
begins(Function) ->
    Test = self(),
    spawn_link(fun() -> Test ! {self(), caught(Function)} end).

caught(Function) -> try Function() catch Class:Reason -> {Class, Reason} end.

result(Pid) -> receive {Pid, Result} -> Result end.

%% A process that fetches these keys, whose function runs for them.
leader(Table, Keys, Options) ->
    Make = slow(),
    Leader = begins(fun() -> cats:fetch_many(Table, Keys, Make, Options) end),
    Leader = runs(Keys).

have_waited(Table, Count) ->
    cats_test_lib:eventually(fun() -> maps:get(fetches_waited, cats:stats(Table)) =:= Count end).

%% Waits until no flights are left, in the native library neither.
no_flights(Table, Keys) ->
    cats_test_lib:eventually(fun() -> cats_test_lib:flights() =:= [] end),
    Table =:= deleted orelse [?assertEqual({Key, false}, {Key, cats_test_lib:flight_to(Table, Key)}) || Key <- Keys],
    %% Nor any that flight_to/2 hides, as its process is dead.
    Table =:= deleted orelse ?assertEqual(0, cats:info(Table, flights)),
    no_messages().

no_messages() ->
    receive Message -> ?assertEqual(none, Message) after 0 -> ok end.

%%--------------------------------------------------------------------------------------------------
%% One process

hits_and_misses(_Config) ->
    [begin
         ?assertEqual([], cats:fetch_many(Table, [], never())),
         true = cats:insert(Table, [{2, old}, {{"text", <<1>>}, old}]),
         %% The function gets each missing key once, in the order of the call.
         Make = fun([1, {a, 1.5}, 3] = Keys) -> lists:reverse((make(new))(Keys)) end,
         ?assertEqual([{1, new}, {2, old}, {{a, 1.5}, new}, {1, new}, {3, new}, {2, old}, {{"text", <<1>>}, old}],
                      cats:fetch_many(Table, [1, 2, {a, 1.5}, 1, 3, 2, {"text", <<1>>}], Make)),
         ?assertEqual(5, cats:info(Table, size)),
         [?assertEqual([{3, new}, {1, new}, {3, new}], cats:fetch_many(Table, [3, 1, 3], never(), Options))
          || Options <- [#{}, ?OUTCOME, #{timeout => 0, negative_ttl => 5, retry => true}]],
         no_flights(Table, [1, 2, 3, {a, 1.5}])
     end || Table <- tables()],
    %% The key at another place.
    [begin
         Table = cats:new(t, [public, Type, {keypos, 2}]),
         Objects = [{x, b, 1}, {y, a}],
         ?assertEqual([{y, a}, {x, b, 1}], cats:fetch_many(Table, [a, b], fun([a, b]) -> Objects end)),
         ?assertEqual(lists:sort(Objects), lists:sort(cats:tab2list(Table)))
     end || Type <- [set, ordered_set]].

%% From none to many keys, of which some are there.
sizes(_Config) ->
    [begin
         Keys = [{N, K} || K <- lists:seq(1, N)],
         There = [Key || {_, K} = Key <- Keys, K rem 3 =:= 0],
         true = cats:insert(Table, (make(there))(There)),
         Missing = Keys -- There,
         Make = fun(Got) ->
                        ?assertEqual(Missing, Got),
                        [Object || {{_, K}, _} = Object <- (make(made))(Got), K rem 7 =/= 0]
                end,
         Expected = [if K rem 3 =:= 0 -> {Key, there}; K rem 7 =:= 0 -> undefined; true -> {Key, made} end
                     || {_, K} = Key <- Keys],
         ?assertEqual(Expected, cats:fetch_many(Table, Keys, Make)),
         Stored = [case Object of undefined -> []; _ -> [Object] end || Object <- Expected],
         ?assertEqual(Stored, cats:lookup_many(Table, Keys)),
         no_flights(Table, lists:sublist(Keys, 300))
     end || Table <- two(), N <- [1, 2, 10, 255, 256, 257, 999, 1000, 1001, 2500]],
    %% As many as one asks for.
    [begin
         Keys = lists:seq(1, 100_000),
         ?assertEqual([{Key, made} || Key <- Keys], cats:fetch_many(Table, Keys, make(made))),
         ?assertEqual(100_000, cats:info(Table, size)),
         no_flights(Table, lists:seq(1, 100_000, 1000))
     end || Table <- two()].

%% So long that one native call treats few of them, or none on a scheduler.
long_keys_and_objects(_Config) ->
    Long = lists:seq(1, 30_000),
    Keys = [{N, lists:seq(1, 3000)} || N <- lists:seq(1, 40)] ++ [{long, Long}, [Long | binary:copy(<<1>>, 100_000)]],
    [begin
         Objects = [{Key, Key, Long} || Key <- Keys],
         {First, Second} = lists:split(20, Keys),
         ?assertEqual([lists:sublist(Objects, 20), Objects],
                      [cats:fetch_many(Table, First, fun(Got) -> [{Key, Key, Long} || Key <- Got] end),
                       cats:fetch_many(Table, Keys, fun(Got) when Got =:= Second -> lists:nthtail(20, Objects) end)]),
         ?assertEqual(Objects, cats:fetch_many(Table, Keys, never())),
         ?assertEqual([true], lists:usort([cats:delete(Table, Key) || Key <- Keys])),
         %% Those that wait get them too, and failures are as long.
         Leader = leader(Table, Keys, #{}),
         Waits = begins(fun() -> cats:fetch_many(Table, lists:reverse(Keys), never()) end),
         have_waited(Table, 1),
         Leader ! {return, Objects},
         ?assertEqual(Objects, result(Leader)),
         ?assertEqual(lists:reverse(Objects), result(Waits)),
         no_flights(Table, Keys)
     end || Table <- two()].

%% 1 and 1.0 are one key of an ordered_set, and two of a set.
equal_keys(_Config) ->
    [Set, Ordered] = two(),
    Swap = fun(Keys) -> [{if is_float(K) -> trunc(K); true -> float(K) end, K} || K <- Keys] end,
    ?assertEqual([{1, 1}, {1.0, 1.0}, {1, 1}], cats:fetch_many(Set, [1, 1.0, 1], fun(Ks) -> [{K, K} || K <- Ks] end)),
    ?assertEqual({error, badarg}, caught(fun() -> cats:fetch_many(Set, [2, 3.0], Swap) end)),
    ?assertEqual([{1.0, 1}, {1.0, 1}, {2, 2.0}, {1.0, 1}],
                 cats:fetch_many(Ordered, [1, 1.0, 2.0, 1], fun([1, 2.0] = Keys) -> Swap(Keys) end)),
    ?assertEqual([{1.0, 1}, {2, 2.0}], cats:tab2list(Ordered)),
    %% Within keys, and in any order.
    Keys = [{N, [float(N rem 3)]} || N <- lists:seq(1, 300)],
    Answers = [{{float(N), [trunc(X)]}, N} || {N, [X]} <- Keys],
    Shuffled = [Answer || {_, Answer} <- lists:sort([{erlang:phash2(Answer), Answer} || Answer <- Answers])],
    ?assertEqual(Answers, cats:fetch_many(Ordered, Keys, fun(Got) when Got =:= Keys -> Shuffled end)),
    %% Of several objects with one key the last counts.
    [begin
         Twice = fun([a, b, c]) -> [{b, 1}, {c, 2}, {b, 3}, {a, 4}, {a, 5}] end,
         ?assertEqual([{a, 5}, {b, 3}, {c, 2}], cats:fetch_many(Table, [a, b, c], Twice))
     end || Table <- [Set, Ordered]].

lifetimes(_Config) ->
    [begin
         put(clock, cats_nif:stop_clock(erlang:unique_integer([positive]) * 1000000)),
         Table = cats:new(t, [public, Type | More]),
         true = cats:insert(Table, {0, there}),
         [_, _] = cats:fetch_many(Table, [0, 1], make(a), #{ttl => 30}),
         [_, _] = cats:fetch_many(Table, [1, 2], make(a), #{ttl => infinity}),
         [_] = cats:fetch_many(Table, [3], make(a)),
         Outcome = fun([4, 5]) -> [{store, {4}, #{ttl => 50}}, {store, {5}}] end,
         [_, _] = cats:fetch_many(Table, [4, 5], Outcome, ?OUTCOME#{ttl => 70}),
         Default = cats:ttl(Table, 0),
         ?assertEqual([30, infinity, Default, 50, 70], [cats:ttl(Table, N) || N <- lists:seq(1, 5)]),
         _ = cats_nif:stop_clock(get(clock) + 50),
         %% What has ended is missing.
         ?assertEqual([{4, b}, {1, b}], cats:fetch_many(Table, [4, 1], fun([4, 1] = Keys) -> (make(b))(Keys) end)),
         ?assertEqual([{5}], cats:fetch_many(Table, [5], never()))
     end || Type <- [set, ordered_set], More <- [[{ttl, 100}], [{ttl, infinity}], [{limit, {objects, 100}}]]].

outcomes(_Config) ->
    [begin
         true = cats:insert(Table, {2, there}),
         Make = fun([1, 3, 4, 5]) -> [{store, {1, a}}, {ignore, [x]}, {store, {4, b}, #{}}, {ignore, {5, c}}] end,
         ?assertEqual([{1, a}, {2, there}, [x], {4, b}, {5, c}, [x]],
                      cats:fetch_many(Table, [1, 2, 3, 4, 5, 3], Make, ?OUTCOME)),
         ?assertEqual([[{1, a}], [{2, there}], [], [{4, b}], []], cats:lookup_many(Table, [1, 2, 3, 4, 5])),
         %% Nothing is remembered of what was ignored. Of objects, such tuples are objects.
         ?assertEqual([{3, d}, {store, {4}}],
                      cats:fetch_many(Table, [3, store], fun([3, store]) -> [{store, {4}}, {3, d}] end)),
         no_flights(Table, [1, 2, 3, 4, 5])
     end || Table <- tables()].

%% A table with room for few of the objects. All are returned, also to those that wait.
limits(_Config) ->
    Keys = lists:seq(1, 2500),
    [begin
         Table = cats:new(t, [public, Type, {limit, {objects, 20}}, {evict, Policy}]),
         Leader = leader(Table, Keys, #{}),
         Waits = begins(fun() -> cats:fetch_many(Table, Keys, never()) end),
         have_waited(Table, 1),
         Leader ! {return, (make(made))(Keys)},
         ?assertEqual((make(made))(Keys), result(Leader)),
         ?assertEqual((make(made))(Keys), result(Waits)),
         ?assertEqual(20, cats:info(Table, size)),
         no_flights(Table, lists:sublist(Keys, 100))
     end || Type <- [set, ordered_set], Policy <- cats_test_lib:policies()],
    Full = cats:new(t, [public, {limit, {objects, 3}}, {evict, none}]),
    ?assertEqual({error, system_limit}, caught(fun() -> cats:fetch_many(Full, [1, 2, 3, 4, 5], make(a)) end)),
    %% What was stored before stays.
    ?assertEqual(3, cats:info(Full, size)),
    no_flights(Full, [1, 2, 3, 4, 5]).

%%--------------------------------------------------------------------------------------------------
%% Several processes

%% The function gets no keys for which another process makes objects. It runs before the call waits for these.
only_what_nobody_makes(_Config) ->
    [begin
         First = leader(Table, [a, b], #{}),
         Make = slow(),
         Second = begins(fun() -> cats:fetch_many(Table, [a, c, b, c, d], Make) end),
         Second = runs([c, d]),
         Third = begins(fun() -> cats:fetch_many(Table, [d, a], never()) end),
         Second ! {return, [{d, second}, {c, second}]},
         have_waited(Table, 2),
         %% What the second process has made is there before it goes on.
         ?assertEqual([{c, second}, {d, second}], cats:fetch_many(Table, [c, d], never())),
         First ! {return, [{a, first}, {b, first}]},
         ?assertEqual([{a, first}, {b, first}], result(First)),
         ?assertEqual([{a, first}, {c, second}, {b, first}, {c, second}, {d, second}], result(Second)),
         ?assertEqual([{d, second}, {a, first}], result(Third)),
         no_flights(Table, [a, b, c, d])
     end || Table <- tables()].

%% Many processes fetch many keys, in any order. Each key is made once.
each_key_is_made_once(_Config) ->
    [begin
         Runs = counters:new(2000, [atomics]),
         Make = fun(Keys) ->
                        [counters:add(Runs, Key, 1) || Key <- Keys],
                        erlang:yield(),
                        [{Key, {made, Key}} || Key <- Keys]
                end,
         Fetch = fun(_) ->
                         Keys = [rand:uniform(2000) || _ <- lists:seq(1, rand:uniform(200))],
                         ?assertEqual([{Key, {made, Key}} || Key <- Keys], cats:fetch_many(Table, Keys, Make)),
                         Key = rand:uniform(2000),
                         {Key, _} = cats:fetch(Table, Key, fun(_) -> [Object] = Make([Key]), Object end)
                 end,
         cats_test_lib:together(lists:duplicate(8, fun() -> lists:foreach(Fetch, lists:seq(1, 100)) end)),
         ?assertEqual([1], lists:usort([counters:get(Runs, Key) || [{Key, _}] <- cats:lookup_many(Table,
                                                                                          lists:seq(1, 2000))])),
         no_flights(Table, lists:seq(1, 2000))
     end || Table <- two()].

%% A call for one key waits for one for many keys, and the other way round.
both_kinds_wait(_Config) ->
    [begin
         Many = leader(Table, [a, b], #{}),
         One = begins(fun() -> cats:fetch(Table, b, never()) end),
         have_waited(Table, 1),
         Slow = slow(),
         Alone = begins(fun() -> cats:fetch(Table, c, fun(Key) -> Slow([Key]) end) end),
         Alone = runs([c]),
         Both = begins(fun() -> cats:fetch_many(Table, [c, a], never(), #{}) end),
         have_waited(Table, 2),
         Many ! {return, [{b, many}, {a, many}]},
         ?assertEqual({b, many}, result(One)),
         Alone ! {return, {c, alone}},
         ?assertEqual([{c, alone}, {a, many}], result(Both)),
         ?assertEqual({[{a, many}, {b, many}], {c, alone}}, {result(Many), result(Alone)}),
         no_flights(Table, [a, b, c])
     end || Table <- tables()].

%% A key that the function leaves out. Those that wait in the same way leave it out too. The others ask.
left_out(_Config) ->
    [begin
         Leader = leader(Table, [a, b, c], #{}),
         Many = begins(fun() -> cats:fetch_many(Table, [c, b], never()) end),
         One = begins(fun() -> cats:fetch(Table, a, fun(Key) -> {Key, one} end) end),
         Outcome = begins(fun() -> cats:fetch_many(Table, [c], fun([c]) -> [{store, {c, own}}] end, ?OUTCOME) end),
         have_waited(Table, 3),
         Leader ! {return, [{b, made}]},
         ?assertEqual([undefined, {b, made}, undefined], result(Leader)),
         ?assertEqual([undefined, {b, made}], result(Many)),
         ?assertEqual({a, one}, result(One)),
         ?assertEqual([{c, own}], result(Outcome)),
         ?assertEqual([{a, one}, {b, made}, {c, own}], lists:sort(cats:tab2list(Table))),
         no_flights(Table, [a, b, c])
     end || Table <- tables()].

%% Values that are not stored go to those that ask for outcomes, by messages. Others ask again.
what_is_passed_on(_Config) ->
    [begin
         Keys = lists:seq(1, 1500),
         Leader = leader(Table, Keys, ?OUTCOME),
         Same = begins(fun() -> cats:fetch_many(Table, lists:reverse(Keys), never(), ?OUTCOME) end),
         One = begins(fun() -> cats:fetch(Table, 1400, never(), ?OUTCOME) end),
         Own = begins(fun() -> cats:fetch_many(Table, [1, 2, 3], fun([1, 3] = Ks) -> (make(own))(Ks) end) end),
         have_waited(Table, 3),
         Outcomes = [case Key rem 2 of 0 -> {store, {Key, made}}; 1 -> {ignore, {value, Key}} end || Key <- Keys],
         Leader ! {return, Outcomes},
         Expected = [element(2, Outcome) || Outcome <- Outcomes],
         ?assertEqual(Expected, result(Leader)),
         ?assertEqual(lists:reverse(Expected), result(Same)),
         ?assertEqual({1400, made}, result(One)),
         ?assertEqual([{1, own}, {2, made}, {3, own}], result(Own)),
         ?assertEqual(752, cats:info(Table, size)),
         no_flights(Table, Keys)
     end || Table <- two()].

%% Those that wait get the objects that were made, though somebody has deleted them.
delivered_though_deleted(_Config) ->
    [begin
         Leader = leader(Table, [1, 2], #{}),
         Waits = [begins(fun() -> cats:fetch_many(Table, [2, 1], never()) end),
                  begins(fun() -> cats:fetch(Table, 2, never()) end)],
         have_waited(Table, 2),
         [erlang:suspend_process(Pid) || Pid <- Waits],
         Leader ! {return, [{1, made}, {2, made}]},
         ?assertEqual([{1, made}, {2, made}], result(Leader)),
         cats:delete_all_objects(Table),
         [erlang:resume_process(Pid) || Pid <- Waits],
         ?assertEqual([[{2, made}, {1, made}], {2, made}], [result(Pid) || Pid <- Waits]),
         ?assertEqual([], cats:tab2list(Table)),
         no_flights(Table, [1, 2])
     end || Table <- tables()].

%% A call waits for several others, which end in any order.
many_flights_at_once(_Config) ->
    [begin
         Keys = lists:seq(1, 30),
         Leaders = [{Key, leader(Table, [{Key, x}, {Key, y}], ?OUTCOME)} || Key <- Keys],
         Waits = begins(fun() ->
                                cats:fetch_many(Table, [{Key, y} || Key <- Keys] ++ [own],
                                                fun([own]) -> [{ignore, 0}] end, ?OUTCOME)
                        end),
         have_waited(Table, 1),
         [begin
              Leader ! {return, [{ignore, Key}, {ignore, {Key, y}}]},
              [Key, {Key, y}] = result(Leader)
          end || {Key, Leader} <- lists:reverse(Leaders)],
         ?assertEqual([{Key, y} || Key <- Keys] ++ [0], result(Waits)),
         ?assertEqual([], cats:tab2list(Table)),
         no_flights(Table, [{Key, x} || Key <- Keys])
     end || Table <- two()].

%% Who asks a flight for a key that is over looks again.
asked_late(_Config) ->
    [begin
         Leader = leader(Table, [1, 2], #{}),
         {Flight, Leader, 2} = cats_test_lib:flight_to(Table, 2),
         cats:insert(Table, {2, other}),
         Asks = fun(Number) ->
                        Alias = monitor(process, Flight, [{alias, demonitor}]),
                        Flight ! {cats_flight, waits, self(), Alias, [Number]},
                        Answer = receive {Alias, Number, Outcome} -> Outcome; {Alias, joined} -> joined end,
                        receive {Alias, joined} -> ok after 0 -> ok end,
                        demonitor(Alias, [flush]),
                        receive {Alias, Number, _} -> ok after 0 -> ok end,
                        Answer
                end,
         cats_test_lib:eventually(fun() -> Asks(2) =:= {cats_flight, ended} end),
         ?assertEqual(joined, Asks(1)),
         Leader ! {return, [{1, made}]},
         ?assertEqual([{1, made}, undefined], result(Leader)),
         no_flights(Table, [1, 2])
     end || Table <- two()].

%%--------------------------------------------------------------------------------------------------
%% Failures

%% What is no answer fails, for those that wait too, and nothing is stored.
no_answers(_Config) ->
    [begin
         Leader = leader(Table, [1, 2], Options),
         Waits = [begins(fun() -> cats:fetch_many(Table, [2], never(), Options) end),
                  begins(fun() -> cats:fetch(Table, 1, fun(_) -> error(called) end) end)],
         have_waited(Table, 2),
         Leader ! {return, Returned},
         [?assertEqual({Returned, {error, badarg}}, {Returned, result(Pid)}) || Pid <- [Leader | Waits]],
         ?assertEqual([], cats:tab2list(Table)),
         no_flights(Table, [1, 2])
     end
     || {Options, Bad} <- [{#{}, [ok, {1, a}, [{1, a}, b], [{1, a}, {}], [{1, a}, {3, b}], [{1, a} | {2, b}],
                                  [{0, a}], [{1, a}, {2, b}, {3, c}], [{1, a}, {1.5, b}]]},
                           {?OUTCOME, [ok, [], [{store, {1}}], [{store, {1}}, {store, {3}}],
                                       [{store, {2}}, {store, {1}}],
                                       [{store, {1}}, {2}], [{store, {1}}, {store, x}], [{store, {1}}, {store, {}}],
                                       [{store, {1}}, {store, {2}}, {ignore, 3}], [{store, {1}} | {store, {2}}],
                                       [{store, {1}}, {store, {2}, #{ttl => 0}}], [{ignore, 1}, {ignore}]]}],
        Returned <- Bad, Table <- two()].

%% All that wait for any of the keys get the failure. The function runs once.
a_failure_is_shared(_Config) ->
    [begin
         Keys = lists:seq(1, 1500),
         Leader = leader(Table, Keys, #{}),
         Pids = [begins(fun() -> cats:fetch_many(Table, Some, never()) end)
                 || Some <- [Keys, [1], [1500, 7], lists:reverse(Keys)]]
             ++ [begins(fun() -> cats:fetch(Table, Key, never()) end) || Key <- [1, 1000, 1001]],
         have_waited(Table, length(Pids)),
         Leader ! {fail, Class, {down, Class}},
         [?assertEqual({Class, {down, Class}}, result(Pid)) || Pid <- [Leader | Pids]],
         ?assertMatch(#{fetches_failed := 1, fetches_made := 0}, cats:stats(Table)),
         ?assertEqual([], cats:tab2list(Table)),
         no_flights(Table, Keys),
         %% Keys of its own are made and stay.
         First = leader(Table, [a], #{}),
         Second = begins(fun() -> cats:fetch_many(Table, [b, a], make(own)) end),
         have_waited(Table, length(Pids) + 1),
         First ! {fail, Class, no},
         ?assertEqual([{Class, no}, {Class, no}], [result(First), result(Second)]),
         ?assertEqual([{b, own}], cats:tab2list(Table)),
         no_flights(Table, [a, b])
     end || Class <- [error, exit, throw], Table <- two()].

%% When storing fails, those get the failure whose objects were not stored yet.
failures_while_storing(_Config) ->
    [begin
         Table = cats:new(t, [public, Type, {limit, {objects, 1200}}, {evict, none}]),
         Keys = lists:seq(1, 2000),
         Leader = leader(Table, Keys, #{}),
         Waits = [begins(fun() -> cats:fetch_many(Table, Some, never()) end) || Some <- [[1, 1000], [1, 1300]]],
         have_waited(Table, 2),
         Leader ! {return, (make(made))(Keys)},
         ?assertEqual({error, system_limit}, result(Leader)),
         ?assertEqual([[{1, made}, {1000, made}], {error, system_limit}], [result(Pid) || Pid <- Waits]),
         ?assertEqual(1200, cats:info(Table, size)),
         no_flights(Table, Keys)
     end || Type <- [set, ordered_set]].

%% With retry, one of those that wait runs its own function, for what it still misses.
retries(_Config) ->
    [begin
         Leader = leader(Table, [1, 2, 3], #{}),
         Runs = counters:new(4, [atomics]),
         Make = fun(Keys) -> [counters:add(Runs, Key, 1) || Key <- Keys], (make(own))(Keys) end,
         Pids = [begins(fun() -> cats:fetch_many(Table, [4, 3, 2], Make, #{retry => true}) end) || _ <- [1, 2]],
         have_waited(Table, 2),
         ?assertEqual([{4, own}], cats:fetch_many(Table, [4], never())),
         Leader ! {fail, exit, no},
         ?assertEqual({exit, no}, result(Leader)),
         [?assertEqual([{4, own}, {3, own}, {2, own}], result(Pid)) || Pid <- Pids],
         ?assertEqual([0, 1, 1, 1], [counters:get(Runs, Key) || Key <- [1, 2, 3, 4]]),
         no_flights(Table, [1, 2, 3, 4])
     end || Table <- two()].

%% The time is for waiting. Own keys are made, and no message of the flight comes later.
timeouts(_Config) ->
    [begin
         Leader = leader(Table, [1, 2], #{}),
         [begin
              Own = make(Timeout),
              ?assertExit({timeout, {cats, fetch_many, [Table, [1, {own, Timeout}, 2], Own, #{timeout := Timeout}]}},
                          cats:fetch_many(Table, [1, {own, Timeout}, 2], Own, #{timeout => Timeout})),
              ?assertEqual([{{own, Timeout}, Timeout}], cats:lookup(Table, {own, Timeout}))
          end || Timeout <- [0, 1, 30]],
         Leader ! {return, [{1, made}, {2, made}]},
         ?assertEqual([{1, made}, {2, made}], result(Leader)),
         no_flights(Table, [1, 2])
     end || Table <- two()].

%% A failure is remembered for all keys of the function. A call that misses one of them fails, and makes no other ones.
remembered(_Config) ->
    Down = fun(_) -> exit({down, erlang:unique_integer()}) end,
    Options = #{negative_ttl => 50},
    [begin
         put(clock, cats_nif:stop_clock(erlang:unique_integer([positive]) * 1000000)),
         Keys = lists:seq(1, 600),
         {exit, Reason} = caught(fun() -> cats:fetch_many(Table, Keys, Down, Options) end),
         Fails = fun(Some) -> caught(fun() -> cats:fetch_many(Table, Some, Down, Options) end) end,
         [?assertEqual({exit, Reason}, Fails(Some)) || Some <- [Keys, [1], [other, 600], [600, other]]],
         ?assertEqual({exit, Reason}, caught(fun() -> cats:fetch(Table, 300, Down, Options) end)),
         %% Nobody makes the other key now.
         no_flights(Table, [other]),
         %% Calls without the option run their function. A write ends the failure of one key.
         ?assertEqual([{1, own}], cats:fetch_many(Table, [1], make(own))),
         cats:delete(Table, 2),
         ?assertEqual([{1, own}, {2, own}], cats:fetch_many(Table, [1, 2], make(own), Options)),
         ?assertEqual({exit, Reason}, Fails([3])),
         _ = cats_nif:stop_clock(get(clock) + 50),
         ?assertEqual([{3, own}], cats:fetch_many(Table, [3], make(own), Options)),
         no_flights(Table, Keys)
     end || Table <- tables()].

%%--------------------------------------------------------------------------------------------------
%% Writes

%% Nobody waits for a key any more that another process writes. The other keys are waited for. What was stored stays.
a_write_ends_one_key(_Config) ->
    [begin
         Leader = leader(Table, [key, other], #{}),
         One = begins(fun() -> cats:fetch(Table, key, fun(Key) -> {Key, waiter} end) end),
         have_waited(Table, 1),
         Both = begins(fun() -> cats:fetch_many(Table, [other, key], make(waiter)) end),
         have_waited(Table, 2),
         _ = Write(Table),
         Expected = case Stored of nothing -> waiter; _ -> Stored end,
         ?assertEqual({key, Expected}, result(One)),
         ?assertEqual([{key, Expected}], cats:fetch_many(Table, [key], never())),
         Leader ! {return, [{other, late}, {key, late}]},
         ?assertEqual([{key, Expected}, {other, late}], result(Leader)),
         ?assertEqual([{other, late}, {key, Expected}], result(Both)),
         no_flights(Table, [key, other])
     end
     || More <- [[], [{ttl, 60_000}], [{limit, {objects, 10}}], [compressed], [{engine, std_hash}], [ordered_set],
                 [ordered_set, {ttl, 60_000}], [ordered_set, {engine, avl}, {lock, mrqd}, {delegate, copy}]],
        {Stored, Write} <- [{x, fun(T) -> cats:insert(T, {key, x}) end},
                            {x, fun(T) -> cats:insert(T, [{third, x}, {key, x}]), cats:delete(T, third) end},
                            {x, fun(T) -> cats:insert_many(T, [{key, x}]) end},
                            {3, fun(T) -> cats:update_counter(T, key, 1, {key, 2}) end},
                            {nothing, fun(T) -> cats:delete(T, key) end},
                            {nothing, fun(T) -> cats:take_many(T, [key]) end}],
        Table <- [cats:new(t, [public | More])]].

%% The flight is told of no write of its leader. So it is not told a hundred thousand times.
own_writes_are_not_told(_Config) ->
    [begin
         Test = self(),
         Keys = lists:seq(1, 3000),
         Leader = leader(Table, Keys, #{}),
         {Flight, Leader, 1} = cats_test_lib:flight_to(Table, 1),
         Tracer = spawn_link(fun() -> trace_writes(0, Test) end),
         1 = erlang:trace(Flight, true, ['receive', {tracer, Tracer}]),
         Told = fun() -> Tracer ! ask, receive {writes, Count} -> Count end end,
         true = cats:insert(Table, {5, other}),
         cats_test_lib:eventually(fun() -> Told() =:= 1 end),
         Leader ! {return, (make(made))(Keys)},
         ?assertEqual({5, other}, lists:nth(5, result(Leader))),
         no_flights(Table, Keys),
         ?assertEqual(1, Told())
     end || Table <- two()].

trace_writes(Count, Test) ->
    receive
        {trace, _, 'receive', {cats_flight, written, Number}} when Number > 0 -> trace_writes(Count + 1, Test);
        {trace, _, 'receive', _} -> trace_writes(Count, Test);
        ask -> Test ! {writes, Count}, trace_writes(Count, Test)
    end.

%% Another process stores an object after the call has looked, and before its flight begins.
found_after_all(_Config) ->
    [begin
         Flight = spawn(fun() -> receive stop -> ok end end),
         cats:insert(Table, {2, there}),
         ?assertEqual([true, [{2, there}], true], cats_nif:flights_begin(Table, [1, 2, 3], 1, Flight, self(), false)),
         ?assertEqual([{Flight, self(), 1}, false, {Flight, self(), 3}],
                      [cats_test_lib:flight_to(Table, Key) || Key <- [1, 2, 3]]),
         %% The same again, as after a failure, and with another number.
         ?assertEqual([true, [{2, there}], true], cats_nif:flights_begin(Table, [1, 2, 3], 1, Flight, self(), true)),
         ?assertEqual([{Flight, self(), 3}, true], cats_nif:flights_begin(Table, [3, 4], 4, Flight, self(), true)),
         exit(Flight, kill)
     end || Table <- two()].

%% The table is emptied while a function runs. Those that wait look again.
emptied(_Config) ->
    [begin
         Leader = leader(Table, lists:seq(1, 2000), #{}),
         Waits = [begins(fun() -> cats:fetch_many(Table, [1, 2000], make(own)) end),
                  begins(fun() -> cats:fetch(Table, 1, fun(Key) -> {Key, own} end) end)],
         have_waited(Table, 2),
         cats:delete_all_objects(Table),
         ?assertEqual([[{1, own}, {2000, own}], {1, own}], [result(Pid) || Pid <- Waits]),
         Leader ! {return, (make(late))(lists:seq(1, 2000))},
         ?assertEqual([{1, own}, {2, late}], lists:sublist(result(Leader), 2)),
         ?assertEqual(2000, cats:info(Table, size)),
         no_flights(Table, [1, 2, 2000])
     end || Table <- tables()].

deleted(_Config) ->
    [begin
         Leader = leader(Table, [1, 2], #{}),
         Waits = [begins(fun() -> cats:fetch_many(Table, [2, 1], never()) end),
                  begins(fun() -> cats:fetch(Table, 1, never()) end)],
         have_waited(Table, 2),
         cats:delete(Table),
         [?assertEqual({error, badarg}, result(Pid)) || Pid <- Waits],
         Leader ! {return, [{1, made}]},
         ?assertEqual({error, badarg}, result(Leader)),
         no_flights(deleted, [])
     end || Table <- tables()].

%% Two equal keys of an ordered_set have one row.
equal_rows(_Config) ->
    [Set, Ordered] = two(),
    First = leader(Ordered, [1, {a, 2.0}], #{}),
    Second = begins(fun() -> cats:fetch_many(Ordered, [{a, 2}, 1.0], never()) end),
    have_waited(Ordered, 1),
    First ! {return, [{1.0, x}, {{a, 2}, y}]},
    ?assertEqual([[{1.0, x}, {{a, 2}, y}], [{{a, 2}, y}, {1.0, x}]], [result(First), result(Second)]),
    Third = leader(Set, [1], #{}),
    ?assertEqual([{1.0, own}], cats:fetch_many(Set, [1.0], make(own))),
    Third ! {return, [{1, x}]},
    ?assertEqual([{1, x}], result(Third)).

%%--------------------------------------------------------------------------------------------------
%% Kills

%% One of those that wait runs its function for what the killed process has not made.
killed_leaders(_Config) ->
    [begin
         Keys = lists:seq(1, 1500),
         Leader = leader(Table, Keys, #{}),
         Waits = [begins(fun() -> cats:fetch_many(Table, Keys, make(own)) end) || _ <- [1, 2, 3]],
         have_waited(Table, 3),
         unlink(Leader),
         cats_test_lib:stop(Leader, kill),
         [?assertEqual((make(own))(Keys), result(Pid)) || Pid <- Waits],
         no_flights(Table, Keys),
         %% Nobody waits, and still nothing is left.
         Last = leader(Table, [{x, Key} || Key <- Keys], #{}),
         unlink(Last),
         cats_test_lib:stop(Last, kill),
         no_flights(Table, [{x, Key} || Key <- Keys])
     end || Table <- two()].

%% Somebody kills the process that stands for the making of objects. The leader goes on, and another one may lead.
killed_flights(_Config) ->
    [begin
         Leader = leader(Table, [1, 2, 3], #{}),
         Waits = begins(fun() -> cats:fetch_many(Table, [3, 2], make(fast)) end),
         have_waited(Table, 1),
         [Flight] = cats_test_lib:flights(),
         {Flight, Leader, 3} = cats_test_lib:flight_to(Table, 3),
         cats_test_lib:stop(Flight, kill),
         ?assertEqual([{3, fast}, {2, fast}], result(Waits)),
         Leader ! {return, (make(slow))([1, 2, 3])},
         ?assertEqual([{1, slow}, {2, fast}, {3, fast}], result(Leader)),
         no_flights(Table, [1, 2, 3]),
         %% Both at once. Whoever asks next makes the object.
         Both = leader(Table, [4, 5], #{}),
         [Other] = cats_test_lib:flights(),
         unlink(Both),
         [exit(Pid, kill) || Pid <- [Other, Both]],
         ?assertEqual([{4, new}, {5, new}], cats:fetch_many(Table, [4, 5], make(new))),
         no_flights(Table, [4, 5])
     end || Table <- two()].

%% The table goes with its owner.
killed_owners(_Config) ->
    [begin
         {Owner, Table} = cats_test_lib:spawn_owner(fun() -> cats:new(t, [public, Type]) end),
         Leader = leader(Table, [1, 2], #{}),
         Waits = begins(fun() -> cats:fetch_many(Table, [2, 1], never()) end),
         have_waited(Table, 1),
         cats_test_lib:stop(Owner, kill),
         ?assertEqual({error, badarg}, result(Waits)),
         Leader ! {return, [{1, made}]},
         ?assertEqual({error, badarg}, result(Leader)),
         no_flights(deleted, [])
     end || Type <- [set, ordered_set]].

%% A leader is killed when it has stored some of its objects. The next one makes the others.
killed_while_storing(_Config) ->
    [begin
         Keys = lists:seq(1, 20_000),
         Leader = leader(Table, Keys, #{}),
         Waits = begins(fun() -> cats:fetch_many(Table, [1 | lists:reverse(Keys)], make(own)) end),
         have_waited(Table, 1),
         unlink(Leader),
         Killer = spawn_link(fun Kill() ->
                                     case cats:info(Table, size) > 500 of
                                         true -> cats_test_lib:stop(Leader, kill);
                                         false -> Kill()
                                     end
                             end),
         Leader ! {return, (make(made))(Keys)},
         Monitor = monitor(process, Killer),
         receive {'DOWN', Monitor, _, _, _} -> ok end,
         [First | Rest] = result(Waits),
         ?assertEqual({1, made}, First),
         ?assertEqual(lists:reverse(Keys), [Key || {Key, _} <- Rest]),
         ?assertEqual(lists:sort(Rest), lists:sort(cats:tab2list(Table))),
         receive {Leader, _} -> ok after 0 -> ok end,
         no_flights(Table, Keys)
     end || Table <- two()].

%% Processes are killed all the time while others fetch: those that lead, flights, and those that wait. Everybody who is
%% left gets all objects, and nothing is left behind.
killed_at_any_instant(_Config) ->
    [begin
         Make = fun(Keys) -> erlang:yield(), (make(made))(Keys) end,
         Some = fun() -> [rand:uniform(12) || _ <- lists:seq(1, rand:uniform(8))] end,
         Fetch = fun Fetch() ->
                         Keys = Some(),
                         _ = caught(fun() -> cats:fetch_many(Table, Keys, Make) end),
                         cats:delete(Table, rand:uniform(12)),
                         rand:uniform(50) =:= 1 andalso cats:delete_all_objects(Table),
                         Fetch()
                 end,
         Fetches = fun() ->
                           [begin
                                Keys = Some(),
                                ?assertEqual((make(made))(Keys), cats:fetch_many(Table, Keys, Make,
                                                                                 #{timeout => 60_000})),
                                Key = rand:uniform(12),
                                {Key, made} = cats:fetch(Table, Key, fun(_) -> {Key, made} end)
                            end || _ <- lists:seq(1, cats_test_lib:rounds(3000))]
                   end,
         Victims = fun Victims(0) -> ok;
                       Victims(N) ->
                           Pids = [spawn(Fetch) || _ <- lists:seq(1, 4)],
                           timer:sleep(rand:uniform(3)),
                           Flights = case rand:uniform(3) of 1 -> cats_test_lib:flights(); _ -> [] end,
                           [exit(Pid, kill) || Pid <- lists:sublist(Flights, 2)],
                           [cats_test_lib:stop(Pid, kill) || Pid <- Pids],
                           Victims(N - 1)
                   end,
         cats_test_lib:together([fun() -> Victims(cats_test_lib:rounds(100)) end, Fetches, Fetches])
     end || Table <- two()],
    cats_test_lib:eventually(fun() -> cats_test_lib:flights() =:= [] end).

%%--------------------------------------------------------------------------------------------------
%% Functions that fetch

own_key_is_refused(_Config) ->
    Many = fun(Table, Key) -> fun(_) -> cats:fetch_many(Table, [x, Key], never()) end end,
    [begin
         [?assertEqual(nested, cats_test_lib:cause(Fetch))
          || Fetch <- [fun() -> cats:fetch_many(Table, [1, 2], Many(Table, 2)) end,
                       fun() -> cats:fetch(Table, 2, Many(Table, 2)) end,
                       fun() -> cats:fetch_many(Table, [1, 2], fun(_) -> cats:fetch(Table, 2, never()) end) end]],
         ?assertEqual([], cats:tab2list(Table)),
         no_flights(Table, [1, 2, x]),
         %% Other keys are fetched within.
         Within = fun([1]) -> cats:fetch_many(Table, [2, 3], make(inner)), [{1, outer}] end,
         ?assertEqual([{1, outer}], cats:fetch_many(Table, [1], Within)),
         ?assertEqual([{2, inner}, {3, inner}], cats:fetch_many(Table, [2, 3], never()))
     end || Table <- two()].

%% Each process of a ring makes some objects, and fetches one that the next process makes, by one of both functions.
circles(_Config) ->
    [begin
         Test = self(),
         Next = fun(N) -> 1 + N rem Size end,
         Make = fun(N) ->
                        Test ! {makes, self()},
                        receive go -> ok end,
                        case N rem 2 of
                            0 -> cats:fetch(Table, {Next(N), 1200}, never());
                            1 -> cats:fetch_many(Table, [{Next(N), 1200}, {Next(N), 3}], never())
                        end
                end,
         Pids = [begins(fun() ->
                                cats_test_lib:cause(fun() ->
                                                            cats:fetch_many(Table, [{N, K} || K <- lists:seq(1, 1200)],
                                                                            fun(_) -> Make(N) end)
                                                    end)
                        end) || N <- lists:seq(1, Size)],
         [receive {makes, Pid} -> ok end || Pid <- Pids],
         [Pid ! go || Pid <- Pids],
         Causes = [result(Pid) || Pid <- Pids],
         ?assertMatch([{circle, _}], lists:usort(Causes)),
         [{circle, Circle} | _] = Causes,
         ?assertEqual(min(10, Size), length(lists:usort(Circle))),
         [?assert(Tid =:= Table andalso lists:member(K, [1200, 3])) || {Tid, {_, K}} <- Circle],
         no_flights(Table, [{N, 1200} || N <- lists:seq(1, Size)])
     end || Table <- two(), Size <- [2, 3, 20]].

%% Calls that miss each other's keys wait for each other, but no function does.
false_circles(_Config) ->
    [begin
         Keys = lists:seq(1, 20),
         Fetch = fun() ->
                         Some = [Key || {_, Key} <- lists:sort([{rand:uniform(), Key} || Key <- Keys])],
                         ?assertEqual((make(made))(Some), cats:fetch_many(Table, Some, make(made)))
                 end,
         [begin
              cats:delete_all_objects(Table),
              cats_test_lib:together(lists:duplicate(6, Fetch))
          end || _ <- lists:seq(1, cats_test_lib:rounds(300))],
         no_flights(Table, Keys)
     end || Table <- two()].

%% In the function of a transaction that others may not disturb, a call that hits is allowed.
transactions(_Config) ->
    [begin
         Table = cats:new(t, [public, Type]),
         cats:insert(Table, [{1, a}, {2, b}]),
         Run = fun() ->
                       cats_transaction:read(Table, 1),
                       [{2, b}, {1, a}] = cats:fetch_many(Table, [2, 1], never()),
                       cats:fetch_many(Table, [2, 3], make(c))
               end,
         ?assertEqual({atomic, [{2, b}, {3, c}]}, cats_transaction:run(Run)),
         %% A transaction that writes to a key ends its flight.
         Leader = leader(Table, [4, 5], #{}),
         Waits = begins(fun() -> cats:fetch_many(Table, [4], never()) end),
         have_waited(Table, 1),
         {atomic, true} = cats_transaction:run(fun() -> cats_transaction:insert(Table, {4, written}) end),
         ?assertEqual([{4, written}], result(Waits)),
         Leader ! {return, [{4, late}, {5, late}]},
         ?assertEqual([{4, written}, {5, late}], result(Leader))
     end || Type <- [set, ordered_set]].

rights(_Config) ->
    [begin
         Table = cats:new(t, [Access]),
         Elsewhere = fun() -> cats_test_lib:in_process(
                                fun() -> cats_test_lib:cause(fun() -> cats:fetch_many(Table, [1], make(a)) end) end)
                     end,
         ?assertEqual(access, Elsewhere()),
         ?assertEqual([{1, a}], cats:fetch_many(Table, [1], make(a))),
         ?assertEqual(access, Elsewhere()),
         no_flights(Table, [1])
     end || Access <- [protected, private]],
    Snapshot = cats:snapshot(cats:new(t, [public])),
    ?assertEqual(snapshot, cats_test_lib:cause(fun() -> cats:fetch_many(Snapshot, [1], never()) end)).

%% Each key counts as a lookup once, and each run of a function once.
counted(_Config) ->
    [begin
         Table = cats:new(t, [public, {stats, true} | More]),
         Keys = lists:seq(1, 500),
         _ = cats:fetch_many(Table, Keys, make(a), Options),
         ?assertMatch(#{lookups := 500, hits := 0, misses := 500, inserts := 500, fetches_made := 1},
                      cats:stats(Table)),
         _ = cats:fetch_many(Table, Keys ++ [x], make(a), Options),
         ?assertMatch(#{lookups := 1001, hits := 500, misses := 501, inserts := 501, fetches_made := 2,
                        fetches_failed := 0, fetches_waited := 0},
                      cats:stats(Table))
     end || {More, Options} <- [{[], #{}}, {[ordered_set], #{}}, {[{ttl, 60_000}], #{ttl => 500}}]].

explanations(_Config) ->
    Set = cats:new(t, []),
    Bag = cats:new(t, [bag]),
    Make = make(a),
    NoObjects = #{3 => <<"the function did not return a list of objects">>},
    OtherKey = #{3 => <<"the function returned an object with a key that was not missing">>},
    NoList = #{2 => <<"not a list">>},
    NoFun = #{3 => <<"not a function of one argument">>},
    [?assertEqual({Arguments, Remarks}, {Arguments, cats_test_lib:remarks(fetch_many, Arguments)})
     || {Arguments, Remarks} <-
            [{[no_table, [k], Make], #{1 => <<"the table identifier does not refer to an existing table of cats">>}},
             {[no_table, [], Make], #{1 => <<"the table identifier does not refer to an existing table of cats">>}},
             {[Bag, [k], Make], #{1 => <<"the table is a bag: a key may have several objects">>}},
             {[Bag, [], Make], #{1 => <<"the table is a bag: a key may have several objects">>}},
             {[Set, k, Make], NoList}, {[Set, [k | l], Make], NoList}, {[Set, k, Make, #{}], NoList},
             {[Set, [k], fun() -> [] end], NoFun}, {[Set, [k], f, #{}], NoFun},
             {[Set, [k], fun(_) -> {k} end], NoObjects}, {[Set, [k], fun(_) -> [k] end], NoObjects},
             {[Set, [k], fun(_) -> [{x}] end], OtherKey},
             {[Set, [k], fun(_) -> [{store, {x}}] end, ?OUTCOME], OtherKey},
             {[Set, [k], Make, #{ttl => 5}],
              #{1 => <<"objects of the table cannot expire: create it with option ttl or idle">>}}]],
    #{3 := NoOutcome} = cats_test_lib:remarks(fetch_many, [Set, [k], fun(_) -> [{k}] end, ?OUTCOME]),
    ?assertNotEqual(nomatch, string:find(NoOutcome, "for each missing key")),
    ?assertEqual(#{4 => <<"not a map of options (valid: returns, timeout, ttl, retry, negative_ttl)">>},
                 cats_test_lib:remarks(fetch_many, [Set, [], Make, []])),
    [?assertEqual(#{4 => cats_test_lib:invalid_option(fetch_many, Option)},
                  cats_test_lib:remarks(fetch_many, [Set, [], Make, maps:from_list([Option])]))
     || Option <- [{stale, 0}, {refresh_ahead, 0}, {refresh_timeout, 5}, {timeout, -1}, {ttl, 0}, {other, 1},
                   {returns, x}, {retry, 1}, {negative_ttl, infinity}]],
    ?assertEqual([], cats:tab2list(Set)).

%% A VM has no room for the flight. The error says so, the function did not run, and nothing stays behind.
no_room_for_a_flight(_Config) ->
    ok = cats_test_lib:in_small_vm(?MODULE, fetch_without_room).

%% @private
fetch_without_room() ->
    Table = cats:new(t, [public]),
    true = cats:insert(Table, {1, there}),
    Sleepers = cats_test_lib:fill_processes(),
    #{general := <<"the VM has as many processes as it may have", _/binary>>} =
        cats_test_lib:remarks(fetch_many, [Table, [1, 2], fun(_) -> exit(called) end]),
    [{1, there}] = cats:fetch_many(Table, [1], fun(_) -> exit(called) end),
    false = cats_test_lib:flight_to(Table, 2),
    [exit(Pid, kill) || Pid <- Sleepers],
    cats_test_lib:eventually(fun() -> length(processes()) < 500 end),
    [{1, there}, {2, made}] = cats:fetch_many(Table, [1, 2], fun([2]) -> [{2, made}] end),
    cats_test_lib:eventually(fun() -> cats_test_lib:flights() =:= [] end),
    ok.

%% What a key costs, and who was held for a millisecond or longer.
costs(_Config) ->
    [begin
         Reports = spawn_link(fun() -> reports([]) end),
         Previous = erlang:system_monitor(Reports, [{long_schedule, 1}]),
         Costs = [begin
                      Rounds = max(1, 10_000 div Size),
                      Lists = [[{Round, N} || N <- lists:seq(1, Size)] || Round <- lists:seq(1, Rounds)],
                      Table = cats:new(t, [public, Type]),
                      {Miss, _} = timer:tc(fun() -> [cats:fetch_many(Table, Keys, make(made)) || Keys <- Lists] end),
                      {Hit, _} = timer:tc(fun() -> [cats:fetch_many(Table, Keys, never()) || Keys <- Lists] end),
                      ?assertEqual(Rounds * Size, cats:info(Table, size)),
                      cats:delete(Table),
                      {Size, [1000 * Time div (Rounds * Size) || Time <- [Miss, Hit]]}
                  end || Size <- [1, 10, 1000, 10_000, 100_000]],
         Slow = cats:new(t, [public, Type]),
         Keys = lists:seq(1, 100_000),
         Leader = leader(Slow, Keys, #{}),
         Waits = [begins(fun() -> length(cats:fetch_many(Slow, Keys, never())) end) || _ <- [1, 2, 3]],
         have_waited(Slow, 3),
         {Time, _} = timer:tc(fun() ->
                                      Leader ! {return, (make(made))(Keys)},
                                      [100_000 = result(Pid) || Pid <- Waits],
                                      result(Leader)
                              end),
         erlang:system_monitor(Previous),
         Reports ! {ask, self()},
         Held = receive {Reports, Got} -> Got end,
         ct:pal("~p: nanoseconds a key of a miss and a hit: ~0p; 100,000 keys for three that wait: ~b us; held: ~0p",
                [Type, Costs, Time, Held])
     end || Type <- [set, ordered_set]].

reports(Got) ->
    receive
        {monitor, Pid, long_schedule, Information} -> reports([{Pid, Information} | Got]);
        {ask, From} -> From ! {self(), Got}
    end.
