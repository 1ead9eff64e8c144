%% `cats:fetch/3,4': one process makes an object, the others wait for it.
-module(cats_fetch_SUITE).
-include_lib("stdlib/include/assert.hrl").
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([hits_and_misses/1, many_processes_make_one_object/1, the_function_runs_once/1, a_crash_wakes_the_next/1, a_kill_wakes_the_next/1,
         killed_at_any_instant/1, a_killed_flight_is_forgotten/1, the_flights_may_be_deleted/1, own_key_is_refused/1,
         other_keys_are_fetched_within/1, another_object_stays/1, deleted_at_once/1, deleted_table/1, timeouts/1,
         equal_keys/1, tables_are_apart/1, rights/1, explanations/1]).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [hits_and_misses, many_processes_make_one_object, the_function_runs_once, a_crash_wakes_the_next, a_kill_wakes_the_next,
     killed_at_any_instant, a_killed_flight_is_forgotten, the_flights_may_be_deleted, own_key_is_refused, other_keys_are_fetched_within,
     another_object_stays, deleted_at_once, deleted_table, timeouts, equal_keys, tables_are_apart, rights, explanations].

init_per_suite(Config) ->
    case os:getenv("TABLES", "cats") of
        "cats" -> cats_test_lib:start(Config);
        _ -> {skip, "only cats has this function"}
    end.

%% Other suites know all tables.
end_per_suite(_Config) ->
    cats:delete(cats_fetch).

tables() ->
    [cats:new(t, [public, Type | More]) || Type <- [set, ordered_set], More <- [[], [compressed], [{keypos, 2}]]].

%% An object of a table.
object(Table, Key, Value) ->
    case cats:info(Table, keypos) of
        1 -> {Key, Value};
        2 -> {Value, Key}
    end.

%% A process whose function has begun to make an object, and goes on when it gets `go'. Sends `{Pid, Object}' then.
leader(Table, Value, Options) ->
    Self = self(),
    Make = fun(Key) -> Self ! {makes, self()}, receive go -> {Key, Value} end end,
    Leader = spawn_link(fun() -> Self ! {self(), cats:fetch(Table, key, Make, Options)} end),
    receive {makes, Leader} -> {Leader, Make} end.

no_flights() ->
    cats:info(cats_fetch, size) =:= 0.

hits_and_misses(_Config) ->
    [begin
         Key = {key, "text", <<"of any form">>},
         Object = object(Table, Key, [made, 1.5]),
         ?assertEqual(Object, cats:fetch(Table, Key, fun(K) when K =:= Key -> Object end)),
         ?assertEqual([Object], cats:tab2list(Table)),
         Fails = fun(_) -> error(called) end,
         [?assertEqual(Object, cats:fetch(Table, Key, Fails, Options))
          || Options <- [#{}, #{timeout => 0}, #{timeout => infinity}]]
     end || Table <- tables()],
    cats_test_lib:eventually(fun no_flights/0).

%% 1000 processes miss a key at once. The function of one of them runs.
many_processes_make_one_object(_Config) ->
    [begin
         Runs = counters:new(1, []),
         Make = fun(Key) ->
                        counters:add(Runs, 1, 1),
                        timer:sleep(20),
                        object(Table, Key, {self(), make_ref()})
                end,
         Self = self(),
         Pids = [spawn_link(fun() -> Self ! {self(), cats:fetch(Table, key, Make)} end) || _ <- lists:seq(1, 1000)],
         Objects = [receive {Pid, Object} -> Object end || Pid <- Pids],
         ?assertEqual(cats:lookup(Table, key), lists:usort(Objects)),
         ?assertEqual(1, counters:get(Runs, 1))
     end || Table <- tables()],
    cats_test_lib:eventually(fun no_flights/0).

%% Several processes fetch the same keys in the same order, and the function is fast.
the_function_runs_once(_Config) ->
    [begin
         Runs = counters:new(1, []),
         Make = fun(Key) -> counters:add(Runs, 1, 1), object(Table, Key, made) end,
         Fetches = fun() -> [cats:fetch(Table, Key, Make) || Key <- lists:seq(1, 20_000)] end,
         cats_test_lib:together(lists:duplicate(4, Fetches)),
         ?assertEqual(20_000, counters:get(Runs, 1))
     end || Table <- tables()].

%% The first ten runs of the function fail, in each of the ways. Each process runs it once at most.
a_crash_wakes_the_next(_Config) ->
    Table = cats:new(t, [public]),
    Runs = counters:new(1, [atomics]),
    Make = fun(Key) ->
                   counters:add(Runs, 1, 1),
                   timer:sleep(2),
                   case counters:get(Runs, 1) of
                       Run when Run > 10 -> {Key, Run};
                       Run -> erlang:raise(lists:nth(1 + Run rem 3, [error, exit, throw]), {failed, Run}, [])
                   end
           end,
    Self = self(),
    Pids = [spawn_link(fun() -> Self ! {self(), catch_all(fun() -> cats:fetch(Table, key, Make) end)} end)
            || _ <- lists:seq(1, 100)],
    Results = [receive {Pid, Result} -> Result end || Pid <- Pids],
    Failed = lists:usort([Run || {_Class, {failed, Run}} <- Results]),
    ?assertEqual(lists:seq(1, 10), Failed),
    ?assertEqual(90, length([Result || {key, 11} = Result <- Results])),
    ?assertEqual(11, counters:get(Runs, 1)),
    cats_test_lib:eventually(fun no_flights/0).

catch_all(Function) ->
    try Function() catch Class:Reason -> {Class, Reason} end.

a_kill_wakes_the_next(_Config) ->
    Table = cats:new(t, [public]),
    Self = self(),
    Hangs = fun(_) -> Self ! {hangs, self()}, timer:sleep(infinity) end,
    Leader = spawn(fun() -> cats:fetch(Table, key, Hangs) end),
    receive {hangs, Leader} -> ok end,
    Others = [spawn_link(fun() -> Self ! {self(), cats:fetch(Table, key, fun(Key) -> {Key, self()} end)} end)
              || _ <- lists:seq(1, 50)],
    timer:sleep(20),
    ?assertEqual([], cats:lookup(Table, key)),
    cats_test_lib:stop(Leader, kill),
    Objects = [receive {Pid, Object} -> Object end || Pid <- Others],
    ?assertEqual(cats:lookup(Table, key), lists:usort(Objects)),
    cats_test_lib:eventually(fun no_flights/0).

%% Processes are killed all the time while others fetch. Everybody who is left gets an object, and nothing is left behind.
killed_at_any_instant(_Config) ->
    [begin
         Make = fun(Key) -> erlang:yield(), {Key, self()} end,
         Fetch = fun Fetch() ->
                         Key = rand:uniform(4),
                         {Key, _} = cats:fetch(Table, Key, Make),
                         rand:uniform(2) =:= 1 andalso cats:delete(Table, Key),
                         Fetch()
                 end,
         Fetches = fun() -> [{Key, _} = cats:fetch(Table, Key, Make, #{timeout => 10_000})
                             || _ <- lists:seq(1, 20_000), Key <- [rand:uniform(4)]]
                   end,
         Victims = fun Victims(0) -> ok;
                       Victims(N) ->
                           Pids = [spawn(Fetch) || _ <- lists:seq(1, 4)],
                           timer:sleep(rand:uniform(3)),
                           [cats_test_lib:stop(Pid, kill) || Pid <- Pids],
                           Victims(N - 1)
                   end,
         cats_test_lib:together([fun() -> Victims(150) end, Fetches, Fetches])
     end || Table <- tables(), cats:info(Table, keypos) =:= 1],
    cats_test_lib:eventually(fun no_flights/0).

%% Somebody kills the process that stands for the making of an object. The leader goes on, and another one may lead.
a_killed_flight_is_forgotten(_Config) ->
    Table = cats:new(t, [public]),
    {Leader, _} = leader(Table, slow, #{}),
    [{_, Flight, Leader}] = cats:tab2list(cats_fetch),
    cats_test_lib:stop(Flight, kill),
    ?assertEqual({key, fast}, cats:fetch(Table, key, fun(Key) -> {Key, fast} end)),
    Leader ! go,
    ?assertEqual({key, fast}, receive {Leader, Object} -> Object end),
    ?assertEqual([{key, fast}], cats:tab2list(Table)),
    cats_test_lib:eventually(fun no_flights/0).

the_flights_may_be_deleted(_Config) ->
    Table = cats:new(t, [public]),
    Make = fun(Key) -> catch cats:delete(cats_fetch), {Key, made} end,
    [?assertEqual({N, made}, cats:fetch(Table, N, Make)) || N <- lists:seq(1, 3)],
    ?assertEqual(undefined, cats:whereis(cats_fetch)),
    ?assertEqual({4, made}, cats:fetch(Table, 4, fun(Key) -> {Key, made} end)),
    cats_test_lib:eventually(fun no_flights/0).

own_key_is_refused(_Config) ->
    Table = cats:new(t, [public]),
    Make = fun(Key) -> cats:fetch(Table, Key, fun(_) -> {Key, inner} end) end,
    ?assertEqual(nested, cats_test_lib:cause(fun() -> cats:fetch(Table, key, Make) end)),
    ?assertEqual([], cats:tab2list(Table)),
    ?assertEqual({key, 1}, cats:fetch(Table, key, fun(Key) -> {Key, 1} end)).

other_keys_are_fetched_within(_Config) ->
    Table = cats:new(t, [public]),
    Make = fun Make(0) -> {0, 1};
               Make(N) -> {_, Value} = cats:fetch(Table, N - 1, Make), {N, N * Value}
           end,
    ?assertEqual({20, 2432902008176640000}, cats:fetch(Table, 20, Make)),
    ?assertEqual(21, cats:info(Table, size)).

%% What others store while the function runs is not overwritten. Those that wait get it too.
another_object_stays(_Config) ->
    Table = cats:new(t, [public]),
    Self = self(),
    Make = fun(Key) -> Self ! {makes, self()}, receive go -> {Key, made} end end,
    Pids = [spawn_link(fun() -> Self ! {self(), cats:fetch(Table, key, Make)} end) || _ <- lists:seq(1, 3)],
    Leader = receive {makes, First} -> First end,
    true = cats:insert(Table, {key, other}),
    Leader ! go,
    [?assertEqual({key, other}, receive {Pid, Object} -> Object end) || Pid <- Pids],
    ?assertEqual([{key, other}], cats:tab2list(Table)).

%% Those that wait get the object that was made, though somebody has deleted it. Their functions do not run.
deleted_at_once(_Config) ->
    Table = cats:new(t, [public]),
    Self = self(),
    {Leader, _} = leader(Table, made, #{}),
    Others = [spawn_link(fun() -> Self ! {self(), cats:fetch(Table, key, fun(_) -> error(called) end)} end)
              || _ <- lists:seq(1, 3)],
    [cats_test_lib:eventually(fun() -> process_info(Pid, status) =:= {status, waiting} end) || Pid <- Others],
    [erlang:suspend_process(Pid) || Pid <- Others],
    Leader ! go,
    ?assertEqual({key, made}, receive {Leader, Object} -> Object end),
    cats:delete(Table, key),
    [erlang:resume_process(Pid) || Pid <- Others],
    [?assertEqual({key, made}, receive {Pid, Object} -> Object end) || Pid <- Others],
    ?assertEqual([], cats:tab2list(Table)).

deleted_table(_Config) ->
    Self = self(),
    Table = cats:new(t, [public]),
    Make = fun(Key) -> Self ! {makes, self()}, receive go -> {Key, made} end end,
    Pids = [spawn_link(fun() -> Self ! {self(), cats_test_lib:cause(fun() -> cats:fetch(Table, key, Make) end)} end)
            || _ <- lists:seq(1, 3)],
    Leader = receive {makes, First} -> First end,
    cats:delete(Table),
    Leader ! go,
    [?assertEqual(id, receive {Pid, Cause} -> Cause end) || Pid <- Pids],
    cats_test_lib:eventually(fun no_flights/0).

%% The limit is for waiting. The leader goes on, and no message of the flight comes later.
timeouts(_Config) ->
    Table = cats:new(t, [public]),
    {Leader, Slow} = leader(Table, made, #{timeout => 0}),
    [begin
         Start = erlang:monotonic_time(millisecond),
         ?assertExit({timeout, {cats, fetch, [Table, key, Slow, #{timeout := Timeout}]}},
                     cats:fetch(Table, key, Slow, #{timeout => Timeout})),
         ?assert(erlang:monotonic_time(millisecond) - Start >= Timeout)
     end || Timeout <- [0, 1, 30]],
    Leader ! go,
    ?assertEqual({key, made}, receive {Leader, Object} -> Object end),
    cats_test_lib:eventually(fun no_flights/0),
    receive Message -> ?assertEqual(none, Message) after 0 -> ok end.

%% 1 and 1.0 are one key of an ordered_set, and two of a set.
equal_keys(_Config) ->
    Ordered = cats:new(t, [ordered_set]),
    Set = cats:new(t, [set]),
    ?assertEqual({1, a}, cats:fetch(Ordered, 1, fun(Key) -> {Key, a} end)),
    ?assertEqual({1, a}, cats:fetch(Ordered, 1.0, fun(Key) -> {Key, b} end)),
    ?assertEqual({2, c}, cats:fetch(Ordered, 2.0, fun(_) -> {2, c} end)),
    ?assertEqual({1, a}, cats:fetch(Set, 1, fun(Key) -> {Key, a} end)),
    ?assertEqual({1.0, b}, cats:fetch(Set, 1.0, fun(Key) -> {Key, b} end)),
    ?assertEqual(other_key, cats_test_lib:cause(fun() -> cats:fetch(Set, 2.0, fun(_) -> {2, c} end) end)).

%% One key of several tables, by identifier and by name.
tables_are_apart(_Config) ->
    One = cats:new(fetch_one, [named_table, public]),
    Other = cats:new(t, [public]),
    Make = fun(Key) -> {Key, cats:fetch(Other, Key, fun(_) -> {Key, other} end)} end,
    ?assertEqual({key, {key, other}}, cats:fetch(One, key, Make)),
    Within = fun(Key) -> cats:fetch(cats:whereis(One), Key, fun(_) -> {Key, inner} end) end,
    ?assertEqual(nested, cats_test_lib:cause(fun() -> cats:fetch(One, other, Within) end)),
    cats:delete(One).

rights(_Config) ->
    Make = fun(Key) -> {Key, made} end,
    [begin
         Table = cats:new(t, [Access]),
         Elsewhere = fun() -> cats_test_lib:in_process(
                                fun() -> cats_test_lib:cause(fun() -> cats:fetch(Table, key, Make) end) end)
                     end,
         ?assertEqual(access, Elsewhere()),
         ?assertEqual({key, made}, cats:fetch(Table, key, Make)),
         ?assertEqual(access, Elsewhere())
     end || Access <- [protected, private]],
    Snapshot = cats:snapshot(cats:new(t, [public])),
    ?assertEqual(snapshot, cats_test_lib:cause(fun() -> cats:fetch(Snapshot, key, fun(_) -> error(called) end) end)).

explanations(_Config) ->
    Set = cats:new(t, []),
    Bag = cats:new(t, [bag]),
    Make = fun(Key) -> {Key} end,
    NoObject = #{3 => <<"the function did not return an object with the key">>},
    NoOptions = #{4 => <<"not a map of timeout and ttl, which are a number of milliseconds or infinity,"
                         " and stale, a number of milliseconds">>},
    [?assertEqual({Arguments, Remarks}, {Arguments, cats_test_lib:remarks(fetch, Arguments)})
     || {Arguments, Remarks} <-
            [{[no_table, k, Make], #{1 => <<"the table identifier does not refer to an existing ETS table">>}},
             {[Bag, k, Make], #{1 => <<"the table is a bag: a key may have several objects">>}},
             {[Set, k, fun() -> {k} end], #{3 => <<"not a function of one argument">>}},
             {[Set, k, fun(_) -> {x} end], NoObject}, {[Set, k, fun(_) -> {} end], NoObject},
             {[Set, k, fun(_) -> k end], NoObject},
             {[Set, k, Make, []], NoOptions}, {[Set, k, Make, #{timeout => -1}], NoOptions},
             {[Set, k, Make, #{timeout => 1, ttl => 0}], NoOptions}, {[Set, k, Make, #{other => 1}], NoOptions}]],
    ?assertEqual([], cats:tab2list(Set)).
