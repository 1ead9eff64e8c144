%% `cats:fetch/3,4': one process makes an object, the others wait for it.
-module(cats_fetch_SUITE).
-include_lib("stdlib/include/assert.hrl").
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([hits_and_misses/1, many_processes_make_one_object/1, the_function_runs_once/1, a_crash_wakes_the_next/1,
         a_kill_wakes_the_next/1, a_failure_is_shared/1, killed_at_any_instant/1, a_killed_flight_is_forgotten/1,
         no_table_is_needed/1, own_key_is_refused/1, circles/1, a_circle_through_tables/1,
         killed_waiters_close_no_circle/1, other_keys_are_fetched_within/1, another_object_stays/1,
         a_write_ends_a_flight/1, lists_end_flights/1, deleted_at_once/1, deleted_table/1, timeouts/1, equal_keys/1,
         tables_are_apart/1, rights/1, counted_once/1, explanations/1, no_room_for_a_flight/1]).
-export([fetch_without_room/0]).

suite() -> [{timetrap, {minutes, 10}}].

all() ->
    [hits_and_misses, many_processes_make_one_object, the_function_runs_once, a_crash_wakes_the_next,
     a_kill_wakes_the_next, a_failure_is_shared, killed_at_any_instant, a_killed_flight_is_forgotten,
     no_table_is_needed, own_key_is_refused, circles, a_circle_through_tables, killed_waiters_close_no_circle,
     other_keys_are_fetched_within, another_object_stays, a_write_ends_a_flight, lists_end_flights, deleted_at_once,
     deleted_table, timeouts, equal_keys, tables_are_apart, rights, counted_once, explanations,
     no_room_for_a_flight].

init_per_suite(Config) ->
    case os:getenv("TABLES", "cats") of
        "cats" -> cats_test_lib:start(Config);
        _ -> {skip, "only cats has this function"}
    end.

end_per_suite(_Config) -> ok.

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

%% In the native library neither, where dead ones are hidden from fetches.
no_flights() ->
    cats_test_lib:flights() =:= []
        andalso lists:all(fun(Table) -> lists:member(cats:info(Table, flights), [0, undefined]) end, cats:all()).

%% Waits until so many calls have waited for the function of another process.
have_waited(Table, Count) ->
    cats_test_lib:eventually(fun() -> maps:get(fetches_waited, cats:stats(Table)) =:= Count end).

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

%% Of those that wait, all get the failure, and the function runs once.
a_failure_is_shared(_Config) ->
    [begin
         Self = self(),
         Runs = counters:new(1, [atomics]),
         Make = fun(_) ->
                        counters:add(Runs, 1, 1),
                        Self ! {makes, self()},
                        receive go -> erlang:raise(Class, {failed, Class}, []) end
                end,
         Pids = [spawn_link(fun() -> Self ! {self(), catch_all(fun() -> cats:fetch(Table, key, Make, Options) end)} end)
                 || _ <- lists:seq(1, 50)],
         Leader = receive {makes, Pid} -> Pid end,
         have_waited(Table, 49),
         Leader ! go,
         [?assertEqual({Class, {failed, Class}}, receive {Pid, Result} -> Result end) || Pid <- Pids],
         ?assertEqual(1, counters:get(Runs, 1)),
         ?assertMatch(#{fetches_failed := 1, fetches_waited := 49}, cats:stats(Table)),
         cats_test_lib:eventually(fun no_flights/0)
     end || Class <- [error, exit, throw], Options <- [#{}, #{retry => false, timeout => 60_000}],
            Table <- [cats:new(t, [public])]].

%% With option retry, the first ten runs of the function fail, in each of the ways. Each process runs it once at most.
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
    Pids = [spawn_link(fun() ->
                               Self ! {self(), catch_all(fun() -> cats:fetch(Table, key, Make, #{retry => true}) end)}
                       end)
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

%% Processes are killed all the time while others fetch. Everybody who is left gets an object, and nothing is left
%% behind.
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
    [Flight] = cats_test_lib:flights(),
    {Flight, Leader, 0} = cats_test_lib:flight_to(Table, key),
    cats_test_lib:stop(Flight, kill),
    ?assertEqual({key, fast}, cats:fetch(Table, key, fun(Key) -> {Key, fast} end)),
    Leader ! go,
    ?assertEqual({key, fast}, receive {Leader, Object} -> Object end),
    ?assertEqual([{key, fast}], cats:tab2list(Table)),
    cats_test_lib:eventually(fun no_flights/0).

%% A user may have a table with any name, and sees no table of the library.
no_table_is_needed(_Config) ->
    Table = cats:new(t, [public]),
    Own = cats:new(cats_fetch, [named_table, private, bag]),
    Tables = lists:sort(cats:all()),
    {Leader, Slow} = leader(Table, made, #{}),
    ?assertEqual(Tables, lists:sort(cats:all())),
    ?assertExit({timeout, _}, cats:fetch(Table, key, Slow, #{timeout => 10})),
    Leader ! go,
    ?assertEqual({key, made}, receive {Leader, Object} -> Object end),
    ?assertEqual([], cats:tab2list(Own)),
    cats:delete(Own),
    cats_test_lib:eventually(fun no_flights/0).

own_key_is_refused(_Config) ->
    Table = cats:new(t, [public]),
    Make = fun(Key) -> cats:fetch(Table, Key, fun(_) -> {Key, inner} end) end,
    ?assertEqual(nested, cats_test_lib:cause(fun() -> cats:fetch(Table, key, Make) end)),
    ?assertEqual([], cats:tab2list(Table)),
    ?assertEqual({key, 1}, cats:fetch(Table, key, fun(Key) -> {Key, 1} end)).

%% Each process of a ring makes the object of a key of a table, and fetches the one that the next process makes. The
%% function of one of them fails, and so those of all others.
ring(Places) ->
    Self = self(),
    Make = fun(Number) ->
                   Self ! {makes, self()},
                   receive go -> ok end,
                   {NextTable, Next} = lists:nth(1 + Number rem length(Places), Places),
                   cats:fetch(NextTable, Next, fun(_) -> error(called) end)
           end,
    Pids = [spawn_link(fun() ->
                               Self ! {self(),
                                       cats_test_lib:cause(fun() ->
                                                                   cats:fetch(Table, Key, fun(_) -> Make(Number) end)
                                                           end)}
                       end)
            || {Number, {Table, Key}} <- lists:zip(lists:seq(1, length(Places)), Places)],
    %% Nobody goes on before all keys are being made.
    [receive {makes, Pid} -> ok end || Pid <- Pids],
    [Pid ! go || Pid <- Pids],
    Causes = [receive {Pid, Cause} -> Cause end || Pid <- Pids],
    cats_test_lib:eventually(fun no_flights/0),
    ?assertMatch([{circle, _}], lists:usort(Causes)),
    [{circle, Circle} | _] = Causes,
    ?assertEqual({min(10, length(Places)), []}, {length(lists:usort(Circle)), Circle -- Places}).

circles(_Config) ->
    [ring([{Table, {key, N}} || N <- lists:seq(1, Size)])
     || Table <- [cats:new(t, [Type, public]) || Type <- [set, ordered_set]],
                                                             Size <- [2, 3, 100, 2100]],
    Table = cats:new(circular, [public]),
    Self = self(),
    %% A process makes `a' and waits for this one.
    Other = fun() -> cats:fetch(Table, a, fun(_) -> cats:fetch(Table, b, fun(_) -> error(called) end) end) end,
    Make = fun(_) ->
                   _ = spawn(Other),
                   have_waited(Table, 1),
                   Self ! cats_test_lib:remarks(fetch, [Table, a, fun(_) -> error(called) end])
           end,
    catch cats:fetch(Table, b, Make),
    ?assertEqual(#{2 => <<"the function waits for itself in a circle of fetches, each of which waits for the next one:"
                          " key a of table circular, key b of table circular">>}, receive Remarks -> Remarks end).

a_circle_through_tables(_Config) ->
    ring([{cats:new(t, [Type, public | More]), key}
          || Type <- [set, ordered_set], More <- [[], [{ttl, 60_000}], [compressed]]]).

%% A process that was killed while it waited for a flight waits no more.
killed_waiters_close_no_circle(_Config) ->
    Table = cats:new(t, [public]),
    Self = self(),
    Go = fun() ->
                 Made = fun(Key) ->
                                Self ! {makes, self()},
                                receive go -> ok end,
                                {a, mine} = cats:fetch(Table, a, fun(_) -> {a, mine} end),
                                {Key, made}
                        end,
                 Self ! {self(), cats:fetch(Table, b, Made)}
         end,
    Second = spawn_link(Go),
    receive {makes, Second} -> ok end,
    First = spawn(fun() -> cats:fetch(Table, a, fun(_) -> cats:fetch(Table, b, fun(_) -> error(called) end) end) end),
    have_waited(Table, 1),
    cats_test_lib:stop(First, kill),
    Second ! go,
    ?assertEqual({b, made}, receive {Second, Object} -> Object end),
    cats_test_lib:eventually(fun no_flights/0).

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

%% When another process writes to the key while the function runs, nobody waits any more, and those that come later
%% begin anew.
a_write_ends_a_flight(_Config) ->
    Self = self(),
    [begin
         {Leader, _} = leader(Table, late, #{}),
         Waits = spawn_link(fun() -> Self ! {self(), cats:fetch(Table, key, fun(Key) -> {Key, waiter} end)} end),
         have_waited(Table, 1),
         _ = Write(Table),
         Expected = case Stored of nothing -> waiter; _ -> Stored end,
         ?assertEqual({key, Expected}, receive {Waits, Object} -> Object end),
         ?assertEqual({key, Expected}, cats:fetch(Table, key, fun(_) -> error(called) end)),
         ?assertEqual([{key, Expected}], cats:tab2list(Table)),
         Leader ! go,
         ?assertEqual({key, Expected}, receive {Leader, Late} -> Late end),
         cats_test_lib:eventually(fun no_flights/0)
     end
     || More <- [[], [{ttl, 60_000}], [{limit, {objects, 10}}], [compressed], [{engine, std_hash}],
                 [{engine, linear_hash}], [ordered_set], [ordered_set, {ttl, 60_000}], [ordered_set, {engine, ca_avl}],
                 [ordered_set, {engine, avl}, {lock, mrqd}, {delegate, copy}]],
            Snapshots <- case [More] -- [[], [ordered_set], [{ttl, 60_000}]] of [] -> [0, 1]; _ -> [0] end,
            {Stored, Write} <-
                [{x, fun(T) -> cats:insert(T, {key, x}) end},
                 {x, fun(T) -> cats:insert(T, [{other, x}, {key, x}]), cats:delete(T, other) end},
                 {x, fun(T) -> cats:insert_new(T, {key, x}) end},
                 {x, fun(T) -> cats:insert_many(T, [{key, x}]) end},
                 {x, fun(T) -> cats:update_element(T, key, {2, x}, {key, y}) end},
                 {3, fun(T) -> cats:update_counter(T, key, 1, {key, 2}) end},
                 {x, fun(T) -> cats:update(T, key, fun(_) -> {key, x} end, {key, y}) end},
                 {nothing, fun(T) -> cats:delete(T, key) end},
                 {nothing, fun(T) -> cats:delete_many(T, [key]) end},
                 {nothing, fun(T) -> cats:take(T, key) end},
                 {nothing, fun(T) -> cats:take_many(T, [key]) end},
                 {nothing, fun(T) -> cats:delete_all_objects(T) end},
                 {nothing, fun(T) -> cats:match_delete(T, '_') end}],
            Table <- [cats:new(t, [public | More])],
            _ <- [[cats:snapshot(Table) || _ <- lists:duplicate(Snapshots, s)]]].

%% So does a transaction. Other writes, and those to other keys, end no flight.
lists_end_flights(_Config) ->
    Self = self(),
    [begin
         {Leader, _} = leader(Table, made, #{}),
         Waits = spawn_link(fun() -> Self ! {self(), cats:fetch(Table, key, fun(_) -> error(called) end)} end),
         have_waited(Table, 1),
         {Flight, Leader, 0} = cats_test_lib:flight_to(Table, key),
         true = cats:insert(Table, [{N, x} || N <- lists:seq(1, 100)]),
         true = cats:insert(Table, [{other, x}]),
         false = cats:insert_new(Table, [{key, x}, {other, y}]),
         false = cats:update_element(Table, key, {2, x}),
         100 = cats:select_delete(Table, [{{'$1', '_'}, [{is_integer, '$1'}], [true]}]),
         {atomic, true} = cats_transaction:run(fun() -> cats_transaction:insert(Table, {other, z}) end),
         [] = cats:lookup(Table, key),
         ?assertEqual({Flight, Leader, 0}, cats_test_lib:flight_to(Table, key)),
         {atomic, true} = cats_transaction:run(fun() -> cats_transaction:insert(Table, {key, written}) end),
         ?assertEqual(false, cats_test_lib:flight_to(Table, key)),
         ?assertEqual({key, written}, receive {Waits, Object} -> Object end),
         Leader ! go,
         ?assertEqual({key, written}, receive {Leader, Late} -> Late end),
         cats_test_lib:eventually(fun no_flights/0)
     end || Type <- [set, ordered_set], Table <- [cats:new(t, [Type, public])]].

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
    ?assertEqual(other_key, cats_test_lib:cause(fun() -> cats:fetch(Set, 2.0, fun(_) -> {2, c} end) end)),
    %% Two of them have one flight where they are one key.
    [begin
         Table = cats:new(t, [Type, public]),
         Self = self(),
         Leader = spawn_link(fun() ->
                                     cats:fetch(Table, One,
                                                fun(_) -> Self ! {makes, self()}, receive go -> {One, made} end end)
                             end),
         receive {makes, Leader} -> ok end,
         cats:insert(Table, {{probe, One}}),
         Expected = case cats:member(Table, {probe, Other}) of
                        true -> {element(1, cats_test_lib:flight_to(Table, One)), Leader, 0};
                        false -> false
                    end,
         ?assertEqual({Type, One, Other, Expected}, {Type, One, Other, cats_test_lib:flight_to(Table, Other)}),
         ?assertEqual(Type =:= ordered_set, Expected =/= false),
         Leader ! go
     end || Type <- [set, ordered_set], {One, Other} <- [{1, 1.0}, {{a, [1.0]}, {a, [1]}}, {holding(1), holding(1.0)}]].

%% A function with a value in its environment.
holding(Value) -> fun() -> Value end.

%% A fetch counts as one lookup, however often it looks.
counted_once(_Config) ->
    [begin
         Table = cats:new(t, [public, {stats, true} | More]),
         [_ = cats:fetch(Table, Key, fun(_) -> {Key, made} end, Options) || Key <- lists:seq(1, 10)],
         ?assertMatch(#{lookups := 10, hits := 0, misses := 10, inserts := 10}, cats:stats(Table)),
         [_ = cats:fetch(Table, Key, fun(_) -> error(called) end, Options) || Key <- lists:seq(1, 10)],
         ?assertMatch(#{lookups := 20, hits := 10, misses := 10, inserts := 10}, cats:stats(Table)),
         {Leader, Slow} = leader(Table, made, Options),
         Waits = spawn_link(fun() -> cats:fetch(Table, key, Slow, Options) end),
         have_waited(Table, 1),
         unlink(Leader),
         cats_test_lib:stop(Leader, kill),
         receive {makes, Waits} -> Waits ! go end,
         cats_test_lib:eventually(fun no_flights/0),
         ?assertMatch(#{lookups := 22, hits := 10, misses := 12}, cats:stats(Table))
     end
     || {More, Options} <- [{[], #{}}, {[ordered_set], #{}}, {[{ttl, 60_000}], #{}},
                            {[{ttl, 60_000}], #{stale => 10}}]].

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
    Invalid = fun(Option) -> #{4 => cats_test_lib:invalid_option(fetch, Option)} end,
    [?assertEqual({Arguments, Remarks}, {Arguments, cats_test_lib:remarks(fetch, Arguments)})
     || {Arguments, Remarks} <-
            [{[no_table, k, Make], #{1 => <<"the table identifier does not refer to an existing table of cats">>}},
             {[Bag, k, Make], #{1 => <<"the table is a bag: a key may have several objects">>}},
             {[Set, k, fun() -> {k} end], #{3 => <<"not a function of one argument">>}},
             {[Set, k, fun(_) -> {x} end], NoObject}, {[Set, k, fun(_) -> {} end], NoObject},
             {[Set, k, fun(_) -> k end], NoObject},
             {[Set, k, Make, []],
              #{4 => <<"not a map of options (valid: returns, timeout, ttl, retry, negative_ttl, stale, refresh_ahead, "
                       "refresh_timeout)">>}},
             {[Set, k, Make, #{timeout => -1}],
              #{4 => <<"invalid option: timeout => -1 (valid: timeout => 0 to 4294967295 milliseconds, or "
                       "infinity)">>}},
             {[Set, k, Make, #{timeout => 1, ttl => 0}], Invalid({ttl, 0})},
             {[Set, k, Make, #{other => 1}], Invalid({other, 1})},
             {[Set, k, Make, #{timeout => 1 bsl 32}], Invalid({timeout, 1 bsl 32})},
             {[Set, k, Make, #{retry => 1}], Invalid({retry, 1})},
             {[Set, k, Make, #{refresh_timeout => 0}], Invalid({refresh_timeout, 0})}]],
    ?assertEqual([], cats:tab2list(Set)).

%% A VM has no room for the flight. The error says so, the function did not run, and nothing stays behind.
no_room_for_a_flight(_Config) ->
    ok = cats_test_lib:in_small_vm(?MODULE, fetch_without_room).

%% @private
fetch_without_room() ->
    Table = cats:new(t, [public]),
    Make = fun(_) -> exit(called) end,
    Sleepers = cats_test_lib:fill_processes(),
    [begin
         #{general := <<"the VM has as many processes as it may have", _/binary>>} =
             cats_test_lib:remarks(fetch, Arguments),
         false = cats_test_lib:flight_to(Table, key)
     end || Arguments <- [[Table, key, Make], [Table, key, Make, #{timeout => 1}]]],
    [exit(Pid, kill) || Pid <- Sleepers],
    cats_test_lib:eventually(fun() -> length(processes()) < 500 end),
    {key, made} = cats:fetch(Table, key, fun(Key) -> {Key, made} end),
    cats_test_lib:eventually(fun() -> cats_test_lib:flights() =:= [] end),
    ok.
