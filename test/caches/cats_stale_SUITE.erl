%% `cats:fetch/4' with options `ttl' and `stale': objects that are given out after their end, and renewed by one
%% process.
-module(cats_stale_SUITE).
-include_lib("stdlib/include/assert.hrl").
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, end_per_testcase/2]).
-export([fetch_without_room/0, write_without_room/0]).
-export([lifetimes/1, by_the_clock/1, gone_for_others/1, writes_end_it/1, one_process_renews/1, nobody_waits/1,
         a_failed_renewal/1, killed_renewers/1, no_room_for_a_renewer/1, no_room_for_a_guard/1,
         limits_of_the_function/1, a_write_ends_a_renewal/1, slow_renewers/1,
         one_of_two_leads/1, killed_at_any_instant/1, races/1, not_public/1, callers/1, limits/1, long_runs/1,
         order_statistics/1, kept_as_long_as_asked/1, memory_comes_back/1, snapshots/1, counted/1, explanations/1]).

suite() -> [{timetrap, {minutes, 10}}].

all() ->
    [lifetimes, by_the_clock, gone_for_others, writes_end_it, one_process_renews, nobody_waits, a_failed_renewal,
     killed_renewers, no_room_for_a_renewer, no_room_for_a_guard, limits_of_the_function,
     a_write_ends_a_renewal, slow_renewers, one_of_two_leads,
     killed_at_any_instant, races, not_public, callers, limits, long_runs, order_statistics, kept_as_long_as_asked,
     memory_comes_back, snapshots, counted, explanations].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(cats),
    Config.

end_per_suite(_Config) -> ok.

end_per_testcase(_Case, _Config) -> cats_nif:stop_clock(false).

stop_clock() -> put(clock, cats_nif:stop_clock(erlang:unique_integer([positive]) * 1000000)).

%% Lets so many milliseconds pass on the clock that was stopped.
pass(Time) -> put(clock, cats_nif:stop_clock(get(clock) + Time)).

types() -> [set, ordered_set].

new(Type, More) -> cats:new(t, [Type, public, {ttl, 100} | More]).

%% A table with the object `{key, old}', which has just ended, and is kept for so many milliseconds.
ended(Type, Stale) ->
    stop_clock(),
    Table = new(Type, []),
    {key, old} = cats:fetch(Table, key, make(old), #{stale => Stale}),
    pass(100),
    Table.

make(Value) -> fun(Key) -> {Key, Value} end.

never() -> fun(_) -> error(called) end.

%% A function that waits for `{go, Value}', after it has told the test that it runs.
slow() ->
    Test = self(),
    fun(Key) -> Test ! {runs, self()}, receive {go, Value} -> {Key, Value} end end.

renewer() -> receive {runs, Pid} -> Pid after 60000 -> error(no_renewal) end.

no_renewer() -> receive {runs, Pid} -> error({renews, Pid}) after 50 -> ok end.

is_stored(Table, Object) ->
    cats_test_lib:eventually(fun() -> cats:lookup(Table, element(1, Object)) =:= [Object] end).

no_flights() -> cats_test_lib:eventually(fun() -> cats_test_lib:flights() =:= [] end).

%% Waits until all flights and renewers have ended.
no_processes() ->
    cats_test_lib:eventually(fun() ->
                                     [Pid || Pid <- processes(),
                                             {_, {cats_fetch, _, _}} <- [process_info(Pid, initial_call)]] =:= []
                             end).

lifetimes(_Config) ->
    [begin
         stop_clock(),
         Table = cats:new(t, [Type, public | Options]),
         {1, a} = cats:fetch(Table, 1, make(a), #{}),
         {2, a} = cats:fetch(Table, 2, make(a), #{ttl => 30}),
         {3, a} = cats:fetch(Table, 3, make(a), #{ttl => infinity, timeout => 10}),
         {4, a} = cats:fetch(Table, 4, make(a), #{ttl => 200, stale => 10}),
         {2, a} = cats:fetch(Table, 2, never(), #{ttl => 50}),
         Default = proplists:get_value(ttl, Options, infinity),
         ?assertEqual([Default, 30, infinity, 200], [cats:ttl(Table, N) || N <- [1, 2, 3, 4]]),
         pass(30),
         {2, b} = cats:fetch(Table, 2, make(b), #{ttl => 50}),
         ?assertEqual(50, cats:ttl(Table, 2))
     end
     || Type <- types(),
        Options <- [[{ttl, 100}], [{ttl, infinity}], [{limit, {objects, 100}}], [{ttl, 100}, {limit, {bytes, 50000}}]]].

by_the_clock(_Config) ->
    [begin
         stop_clock(),
         Table = new(Type, []),
         {key, old} = cats:fetch(Table, key, make(old), #{stale => 50}),
         pass(99),
         {key, old} = cats:fetch(Table, key, never(), #{stale => 50}),
         pass(1),
         {key, old} = cats:fetch(Table, key, slow(), #{stale => 50}),
         Renewer = renewer(),
         %% The second look of the wheel.
         0 = cats:info(Table, size),
         pass(49),
         {key, old} = cats:fetch(Table, key, never(), #{stale => 50}),
         0 = cats:info(Table, size),
         Renewer ! {go, new},
         is_stored(Table, {key, new}),
         {key, new} = cats:fetch(Table, key, never(), #{stale => 50}),
         no_flights(),
         pass(100),
         %% Another call wants less.
         {key, newer} = cats:fetch(Table, key, make(newer), #{}),
         pass(150),
         {key, newest} = cats:fetch(Table, key, make(newest), #{stale => 50}),
         no_flights()
     end || Type <- types()].

%% For all other functions an object is gone at its time, before and after it was looked for.
gone_for_others(_Config) ->
    [begin
         stop_clock(),
         Table = new(Type, [{keypos, 2}]),
         Objects = [{N, {key, N}, <<"text">>} || N <- lists:seq(1, 20)],
         [Object = cats:fetch(Table, Key, fun(_) -> Object end, #{stale => 1000}) || {_, Key, _} = Object <- Objects],
         pass(100),
         Gone = fun() ->
                        ?assertEqual({[], false, undefined, '$end_of_table', [], [], 0, false},
                                     {cats:lookup(Table, {key, 1}), cats:member(Table, {key, 2}),
                                      cats:ttl(Table, {key, 3}), cats:first(Table), cats:tab2list(Table),
                                      cats:select(Table, [{'_', [], ['$_']}]),
                                      cats:select_count(Table, [{'_', [], [true]}]), cats:touch(Table, {key, 4}, 10)}),
                        ?assertEqual({atomic, []},
                                     cats_transaction:run(fun() -> cats_transaction:read(Table, {key, 5}) end)),
                        ?assertEqual([[]], cats:lookup_many(Table, [{key, 6}])),
                        ?assertEqual(0, cats:info(Table, size))
                end,
         Gone(),
         {10, {key, 10}, _} = cats:fetch(Table, {key, 10}, slow(), #{stale => 1000}),
         exit(renewer(), kill),
         Gone(),
         timer:sleep(120),
         Gone(),
         {11, {key, 11}, _} = cats:fetch(Table, {key, 11}, slow(), #{stale => 1000}),
         exit(renewer(), kill),
         no_flights()
     end || Type <- types()].

%% What writes to the key of an object that has ended, ends it for fetches too.
writes_end_it(_Config) ->
    [begin
         Table = ended(Type, 1000),
         Look andalso cats:info(Table, size),
         _ = Write(Table),
         {key, made} = cats:fetch(Table, key, make(made), #{stale => 1000}),
         ?assertEqual({1, [{key, made}]}, {cats:info(Table, size), cats:tab2list(Table)}),
         no_flights()
     end || Type <- types(), Look <- [false, true],
            Write <- [fun(T) -> cats:delete(T, key) end, fun(T) -> cats:take(T, key) end,
                      fun(T) -> cats:delete_all_objects(T) end, fun(T) -> cats:delete_many(T, [key]) end,
                      fun(T) -> cats:insert(T, {key, other}), cats:delete(T, key) end]],
    %% A new object of an insertion is not kept, unless a fetch finds it.
    [begin
         stop_clock(),
         Table = new(Type, []),
         {key, old} = cats:fetch(Table, key, make(old), #{stale => 1000}),
         true = cats:insert(Table, {key, other}),
         true = cats:insert(Table, [{found, other}]),
         {found, other} = cats:fetch(Table, found, never(), #{stale => 1000}),
         true = cats:update_element(Table, found, {2, changed}),
         pass(100),
         {key, made} = cats:fetch(Table, key, make(made), #{stale => 1000}),
         {found, changed} = cats:fetch(Table, found, make(made), #{stale => 1000}),
         is_stored(Table, {found, made}),
         no_flights()
     end || Type <- types()].

one_process_renews(_Config) ->
    [begin
         stop_clock(),
         Table = new(Type, []),
         Runs = counters:new(1, []),
         Make = fun(Key) -> counters:add(Runs, 1, 1), timer:sleep(20), {Key, {self(), make_ref()}} end,
         Old = cats:fetch(Table, key, Make, #{stale => 10000}),
         pass(100),
         Test = self(),
         Pids = [spawn_link(fun() -> Test ! {self(), cats:fetch(Table, key, Make, #{stale => 10000})} end)
                 || _ <- lists:seq(1, 1000)],
         Objects = lists:usort([receive {Pid, Object} -> Object end || Pid <- Pids]),
         no_flights(),
         ?assertEqual(2, counters:get(Runs, 1)),
         ?assertEqual([], Objects -- [Old | cats:lookup(Table, key)])
     end || Type <- types()].

%% The function takes seconds, but no call does.
nobody_waits(_Config) ->
    Table = ended(set, 1000),
    [{key, old} = cats:fetch(Table, key, slow(), #{stale => 1000, timeout => 0}) || _ <- lists:seq(1, 1000)],
    Renewer = renewer(),
    no_renewer(),
    %% Who does not want the old object waits for the new one.
    ?assertExit({timeout, _}, cats:fetch(Table, key, never(), #{timeout => 10})),
    Test = self(),
    Waits = spawn_link(fun() -> Test ! {self(), cats:fetch(Table, key, never())} end),
    cats_test_lib:eventually(fun() -> process_info(Waits, status) =:= {status, waiting} end),
    Renewer ! {go, new},
    ?assertEqual({key, new}, receive {Waits, Object} -> Object end),
    no_flights().

a_failed_renewal(_Config) ->
    Table = ended(set, 100),
    [begin
         {key, old} = cats:fetch(Table, key, fun(_) -> erlang:Class(failed) end, #{stale => 100}),
         no_flights()
     end || Class <- [exit, throw]],
    {key, old} = cats:fetch(Table, key, fun(_) -> no_object end, #{stale => 100}),
    no_flights(),
    pass(100),
    ?assertError(failed, cats:fetch(Table, key, fun(_) -> error(failed) end, #{stale => 100})),
    ?assertEqual({key, new}, cats:fetch(Table, key, make(new), #{stale => 100})).

killed_renewers(_Config) ->
    Table = ended(set, 1000),
    [begin
         {key, old} = cats:fetch(Table, key, slow(), #{stale => 1000}),
         exit(renewer(), kill),
         no_flights()
     end || _ <- lists:seq(1, 20)],
    %% The flight is killed, and then both.
    {key, old} = cats:fetch(Table, key, slow(), #{stale => 1000}),
    First = renewer(),
    {Flight, First, 0} = cats_test_lib:flight_to(Table, key),
    cats_test_lib:stop(Flight, kill),
    cats_test_lib:stop(First, kill),
    [{key, old} = cats:fetch(Table, key, slow(), #{stale => 1000}) || _ <- [1, 2]],
    renewer() ! {go, new},
    is_stored(Table, {key, new}),
    no_flights().

%% A table in which an object has ended that is kept for a minute.
with_old_object() ->
    Table = cats:new(t, [public, {ttl, infinity}]),
    {key, old} = cats:fetch(Table, key, make(old), #{ttl => 1, stale => 60_000}),
    cats_test_lib:eventually(fun() -> not cats:member(Table, key) end),
    Table.

%% A VM has no room for the renewer, or for its flight. Every call returns the old object, and no process stays behind.
no_room_for_a_renewer(_Config) ->
    ok = cats_test_lib:in_small_vm(?MODULE, fetch_without_room).

%% @private
fetch_without_room() ->
    Table = with_old_object(),
    Sleepers = cats_test_lib:fill_processes(),
    [begin
         [cats_test_lib:stop(Pid, kill) || Pid <- lists:sublist(Sleepers, Room)],
         {key, old} = cats:fetch(Table, key, never(), #{stale => 60_000})
     end || Room <- [0, 1]],
    no_processes(),
    [exit(Pid, kill) || Pid <- Sleepers],
    cats_test_lib:eventually(fun() ->
                                     {key, Value} = cats:fetch(Table, key, make(new), #{stale => 60_000}),
                                     Value =:= new
                             end),
    no_flights(),
    ok.

%% A VM has no room for the process that ends a renewer in time whose flight has ended. The renewer ends with its
%% flight.
no_room_for_a_guard(_Config) ->
    ok = cats_test_lib:in_small_vm(?MODULE, write_without_room).

%% @private
write_without_room() ->
    Table = with_old_object(),
    {key, old} = cats:fetch(Table, key, slow(), #{stale => 60_000, refresh_timeout => 50_000}),
    Renewer = renewer(),
    {Flight, Renewer, 0} = cats_test_lib:flight_to(Table, key),
    [FlightMonitor, Monitor] = [monitor(process, Pid) || Pid <- [Flight, Renewer]],
    _ = cats_test_lib:fill_processes(),
    true = cats:delete(Table, key),
    {cats_flight, ended} = receive {'DOWN', FlightMonitor, process, Flight, Reason} -> Reason end,
    killed = receive {'DOWN', Monitor, process, Renewer, Why} -> Why end,
    #{fetches_failed := 1} = cats:stats(Table),
    ok.

%% Where the function itself meets a limit, it is the function that has failed: for the caller if it runs there.
limits_of_the_function(_Config) ->
    Fails = fun(_) -> error(system_limit) end,
    [begin
         Table = ended(Type, 1000),
         {key, old} = cats:fetch(Table, key, Fails, #{stale => 1000}),
         cats_test_lib:eventually(fun() -> maps:get(fetches_failed, cats:stats(Table)) =:= 1 end),
         Protected = cats:new(t, [Type, protected, {ttl, 100}]),
         {key, old} = cats:fetch(Protected, key, make(old), #{stale => 1000}),
         pass(100),
         [?assertError(system_limit, cats:fetch(Of, Key, Fails, #{stale => 1000}))
          || {Of, Key} <- [{Protected, key}, {Table, none}]],
         no_flights()
     end || Type <- types()].

%% A renewal that hangs keeps nobody from the key after a write.
a_write_ends_a_renewal(_Config) ->
    [begin
         Table = ended(Type, 1000),
         Look andalso cats:info(Table, size),
         {key, old} = cats:fetch(Table, key, slow(), #{stale => 1000}),
         Renewer = renewer(),
         Test = self(),
         %% Who does not want the old object.
         Waits = spawn_link(fun() -> Test ! {self(), cats:fetch(Table, key, make(waiter))} end),
         cats_test_lib:eventually(fun() -> maps:get(fetches_waited, cats:stats(Table)) =:= 1 end),
         _ = Write(Table),
         ?assertEqual({key, Stored}, receive {Waits, Object} -> Object end),
         ?assertEqual({key, Stored}, cats:fetch(Table, key, never(), #{stale => 1000})),
         exit(Renewer, kill),
         no_flights()
     end || Type <- types(), Look <- [false, true],
            {Stored, Write} <- [{waiter, fun(T) -> cats:delete(T, key) end}, {waiter, fun(T) -> cats:take(T, key) end},
                                {waiter, fun(T) -> cats:delete_all_objects(T) end},
                                {waiter, fun(T) -> cats:delete_many(T, [key]) end},
                                {other, fun(T) -> cats:insert(T, {key, other}, #{ttl => infinity}) end}]].

%% A renewer that takes too long is killed, also after a write. On a busy machine that may be before its function runs.
slow_renewers(_Config) ->
    [begin
         Table = ended(Type, 1000),
         {key, old} = cats:fetch(Table, key, slow(), #{stale => 1000, refresh_timeout => 1}),
         no_processes(),
         ?assertMatch(#{fetches_failed := 1}, cats:stats(Table)),
         receive {runs, _} -> ok after 0 -> ok end,
         Renewer = running_renewer(fun() ->
                                           Options = #{stale => 1000, refresh_timeout => 300},
                                           {key, old} = cats:fetch(Table, key, slow(), Options)
                                   end),
         cats:delete(Table, key),
         {key, new} = cats:fetch(Table, key, make(new), #{stale => 1000}),
         cats_test_lib:eventually(fun() -> not is_process_alive(Renewer) end),
         {key, new} = cats:fetch(Table, key, never(), #{stale => 1000}),
         no_processes()
     end || Type <- types()].

running_renewer(Fetch) ->
    Fetch(),
    receive {runs, Pid} -> Pid after 1000 -> running_renewer(Fetch) end.

%% Of two fetches that begin a renewal at the same instant, the function of one runs.
one_of_two_leads(_Config) ->
    Runs = counters:new(1, []),
    Make = fun(Key) -> counters:add(Runs, 1, 1), timer:sleep(3), {Key, old} end,
    Rounds = cats_test_lib:rounds(50),
    Table = ended(set, 1000),
    [begin
         Ready = atomics:new(1, []),
         Fetch = fun() ->
                         atomics:add(Ready, 1, 1),
                         both_are(Ready),
                         exit(cats:fetch(Table, key, Make, #{stale => 1000}))
                 end,
         %% On one scheduler they would run one after the other.
         Both = [spawn_opt(Fetch, [monitor, {scheduler, Scheduler}])
                 || Scheduler <- [1, erlang:system_info(schedulers_online)]],
         [receive {'DOWN', Monitor, _, _, Object} -> ?assertEqual({key, old}, Object) end || {_, Monitor} <- Both],
         no_flights(),
         pass(100)
     end || _ <- lists:seq(1, Rounds)],
    ?assertEqual(Rounds, counters:get(Runs, 1)).

%% Waits without a pause, so that both go on at once.
both_are(Ready) -> atomics:get(Ready, 1) =:= 2 orelse both_are(Ready).

%% Callers and renewers are killed all the time. All others get objects at once, and nothing is left behind.
killed_at_any_instant(_Config) ->
    Table = cats:new(t, [public, {ttl, 1}]),
    Test = self(),
    Make = fun(Key) -> rand:uniform(50) =:= 1 andalso exit(self(), kill), erlang:yield(), {Key, self()} end,
    Options = #{stale => 100000},
    [{Key, _} = cats:fetch(Table, Key, fun(_) -> {Key, Test} end, Options) || Key <- [1, 2, 3]],
    Fetch = fun Fetch() -> {_, _} = cats:fetch(Table, rand:uniform(3), Make, Options), Fetch() end,
    Fetches = fun() ->
                      cats_test_lib:repeat_for(1500,
                                               fun(_) -> {_, _} = cats:fetch(Table, rand:uniform(3), Make, Options) end)
              end,
    Victims = fun Victims(0) -> ok;
                  Victims(N) ->
                      Pids = [spawn(Fetch) || _ <- [1, 2, 3]],
                      timer:sleep(rand:uniform(3)),
                      [cats_test_lib:stop(Pid, kill) || Pid <- Pids],
                      Victims(N - 1)
              end,
    cats_test_lib:together([fun() -> Victims(200) end, Fetches, Fetches]),
    timer:sleep(10),
    no_flights().

%% What others do while a renewal runs.
races(_Config) ->
    During = fun(Change) ->
                     Table = ended(set, 1000),
                     {key, old} = cats:fetch(Table, key, slow(), #{stale => 1000}),
                     Renewer = renewer(),
                     Change(Table),
                     Renewer ! {go, new},
                     cats_test_lib:eventually(fun() -> not is_process_alive(Renewer) end),
                     no_flights(),
                     Table
             end,
    ?assertEqual([{key, other}], cats:tab2list(During(fun(T) -> cats:insert(T, {key, other}) end))),
    ?assertEqual([{key, new}], cats:tab2list(During(fun(T) -> cats:delete(T, key) end))),
    ?assertEqual([{key, new}], cats:tab2list(During(fun(T) -> pass(100), 0 = cats:info(T, size) end))),
    ?assertEqual([{key, new}], cats:tab2list(During(fun(T) -> pass(5000), 0 = cats:info(T, size) end))),
    ?assertEqual([{key, new}], cats:tab2list(During(fun(T) -> cats:delete_all_objects(T) end))),
    ?assertEqual(undefined, cats:info(During(fun(T) -> cats:delete(T) end), size)),
    %% An object that has ended and then lives again by an insertion, and ends again, is not kept.
    Again = During(fun(T) -> cats:insert(T, {key, other}), pass(100) end),
    ?assertEqual([{key, new}], cats:tab2list(Again)).

%% Only the owner writes, so it runs the function itself.
not_public(_Config) ->
    [begin
         stop_clock(),
         Table = cats:new(t, [Access, {ttl, 100}]),
         {key, old} = cats:fetch(Table, key, make(old), #{stale => 100}),
         pass(100),
         Self = self(),
         ?assertEqual({key, Self}, cats:fetch(Table, key, fun(Key) -> {Key, self()} end, #{stale => 100})),
         ?assertError(failed,
                      begin pass(100), cats:fetch(Table, key, fun(_) -> error(failed) end, #{stale => 100}) end),
         no_flights()
     end || Access <- [protected, private]].

callers(_Config) ->
    Table = ended(set, 100),
    Self = self(),
    Callers = fun(Key) -> {Key, get('$callers')} end,
    {key, old} = cats_test_lib:in_process(fun() ->
                                                  put('$callers', [Self]),
                                                  cats:fetch(Table, key, Callers, #{stale => 100})
                                          end),
    cats_test_lib:eventually(fun() -> cats:lookup(Table, key) =/= [] end),
    ?assertMatch([{key, [_, Self]}], cats:lookup(Table, key)).

%% Objects that have ended make room when an eviction meets them. They count for the limit.
limits(_Config) ->
    [begin
         stop_clock(),
         Table = new(Type, [{limit, {objects, 100}}, {evict, Policy}]),
         [{N, a} = cats:fetch(Table, N, make(a), #{stale => 10000}) || N <- lists:seq(1, 100)],
         pass(100),
         ?assertEqual(0, cats:info(Table, size)),
         [true = cats:insert(Table, {N, b}) || N <- lists:seq(101, 160)],
         Living = cats:info(Table, size),
         Kept = length([N || N <- lists:seq(1, 100), cats_nif:fetched(Table, N, 10000, 0) =/= false]),
         ?assertEqual({100, Living}, {Kept + Living, length(cats:tab2list(Table))}),
         lists:member(Policy, [sieve, clock]) andalso ?assertEqual(60, Living),
         pass(20000),
         ?assertEqual(0, cats:info(Table, size)),
         [true = cats:insert(Table, {N, c}) || N <- lists:seq(1, 100)],
         ?assertEqual(100, cats:info(Table, size)),
         ?assertMatch(#{expired := Expired, evicted := Evicted} when Expired + Evicted =:= 160, cats:stats(Table))
     end || Type <- types(), Policy <- cats_test_lib:policies()],
    [begin
         stop_clock(),
         Table = new(Type, [{limit, {objects, 10}}, {evict, none}]),
         [{N, a} = cats:fetch(Table, N, make(a), #{stale => 10000}) || N <- lists:seq(1, 10)],
         ?assertError(system_limit, cats:insert(Table, {11, b})),
         ?assertMatch(#{refused := 1}, cats:stats(Table)),
         pass(100),
         ?assertEqual(0, cats:info(Table, size)),
         [true = cats:insert(Table, {N, b}) || N <- lists:seq(11, 20)]
     end || Type <- types()].

%% Walks go over long runs of objects that have ended. They remove some.
long_runs(_Config) ->
    [begin
         stop_clock(),
         Table = new(Type, []),
         [{N, a} = cats:fetch(Table, N, make(a), #{stale => 100000}) || N <- lists:seq(1, 5000)],
         true = cats:insert(Table, [{0, first}, {9999, last}], #{ttl => infinity}),
         pass(100),
         Looks andalso cats:info(Table, size),
         Walk = fun Walk('$end_of_table') -> []; Walk(Key) -> [Key | Walk(cats:next(Table, Key))] end,
         ?assertEqual([0, 9999], lists:sort(Walk(cats:first(Table)))),
         ?assertEqual([{0, first}, {9999, last}], lists:sort(cats:tab2list(Table))),
         ?assertEqual([0, 9999], lists:sort(cats:select(Table, [{{'$1', '_'}, [], ['$1']}]))),
         ?assertEqual(2, cats:info(Table, size)),
         ?assertMatch(#{expired := 5000}, cats:stats(Table)),
         Memory = cats:info(Table, memory),
         pass(200000),
         ?assertEqual(2, cats:info(Table, size)),
         ?assert(cats:info(Table, memory) < Memory)
     end || Type <- types(), Looks <- [false, true]].

order_statistics(_Config) ->
    stop_clock(),
    Table = new(ordered_set, []),
    [{N, a} = cats:fetch(Table, N, make(a), #{stale => 100000}) || N <- lists:seq(1, 5000)],
    true = cats:insert(Table, [{N, b} || N <- lists:seq(5001, 5010)], #{ttl => infinity}),
    ?assertEqual({5005, 5010}, {cats:rank(Table, 5006), cats:count(Table, #{})}),
    pass(100),
    10 = cats:info(Table, size),
    ?assertEqual({5, {5003, b}, 10}, {cats:rank(Table, 5006), cats:nth(Table, 2), cats:count(Table, #{})}),
    ?assertEqual(10, cats:info(Table, size)),
    %% They are removed.
    ?assertEqual(false, cats_nif:fetched(Table, 1, 100000, 0)).

%% An object is kept for the longest time that a call of the table has had.
kept_as_long_as_asked(_Config) ->
    stop_clock(),
    Table = new(set, []),
    {1, a} = cats:fetch(Table, 1, make(a), #{stale => 10}),
    {2, a} = cats:fetch(Table, 2, make(a), #{stale => 1000}),
    {3, a} = cats:fetch(Table, 3, make(a), #{}),
    pass(100),
    0 = cats:info(Table, size),
    pass(500),
    0 = cats:info(Table, size),
    ?assertEqual({false, {{1, a}, ended}, {{2, a}, ended}, false},
                 {cats_nif:fetched(Table, 1, 10, 0), cats_nif:fetched(Table, 1, 1000, 0),
                  cats_nif:fetched(Table, 2, 1000, 0), cats_nif:fetched(Table, 3, 1000, 0)}).

memory_comes_back(_Config) ->
    [begin
         Table = cats:new(t, [Type, public, {ttl, 50}]),
         Empty = cats:info(Table, memory),
         [_ = cats:fetch(Table, N, fun(_) -> {N, lists:seq(1, 50)} end, #{stale => 100}) || N <- lists:seq(1, 1000)],
         Full = cats:info(Table, memory),
         cats_test_lib:eventually(fun() -> cats:info(Table, size) =:= 0 end),
         cats_test_lib:eventually(fun() -> cats:info(Table, memory) - Empty < (Full - Empty) / 10 end)
     end || Type <- types()].

snapshots(_Config) ->
    [begin
         stop_clock(),
         Table = new(Type, []),
         {key, old} = cats:fetch(Table, key, make(old), #{stale => 1000}),
         Before = cats:snapshot(Table),
         pass(100),
         After = cats:snapshot(Table),
         0 = cats:info(Table, size),
         {key, old} = cats:fetch(Table, key, make(new), #{stale => 1000}),
         is_stored(Table, {key, new}),
         ?assertEqual({[{key, old}], []}, {cats:tab2list(Before), cats:tab2list(After)}),
         no_flights()
     end || Type <- types()].

counted(_Config) ->
    stop_clock(),
    Table = new(set, [{stats, true}]),
    {key, a} = cats:fetch(Table, key, make(a), #{stale => 1000}),
    {key, a} = cats:fetch(Table, key, never(), #{stale => 1000}),
    ?assertError(failed, cats:fetch(Table, other, fun(_) -> error(failed) end)),
    ?assertMatch(#{fetches_made := 1, fetches_failed := 1, fetches_waited := 0, fetches_stale := 0}, cats:stats(Table)),
    pass(100),
    {key, a} = cats:fetch(Table, key, slow(), #{stale => 1000}),
    Renewer = renewer(),
    Test = self(),
    Waits = spawn_link(fun() -> Test ! {self(), cats:fetch(Table, key, never())} end),
    cats_test_lib:eventually(fun() -> maps:get(fetches_waited, cats:stats(Table)) =:= 1 end),
    Renewer ! {go, b},
    {key, b} = receive {Waits, Object} -> Object end,
    ?assertMatch(#{fetches_made := 2, fetches_failed := 1, fetches_waited := 1, fetches_stale := 1, expired := 1},
                 cats:stats(Table)),
    no_flights().

explanations(_Config) ->
    Table = new(set, []),
    Plain = cats:new(t, [public]),
    NoExpiry = #{1 => <<"objects of the table cannot expire: create it with option ttl or idle">>},
    [?assertEqual({Options, NoExpiry}, {Options, cats_test_lib:remarks(fetch, [Plain, k, never(), Options])})
     || Options <- [#{ttl => 1}, #{stale => 1}, #{ttl => infinity, timeout => 1}]],
    [?assertEqual(#{4 => cats_test_lib:invalid_option(fetch, Option)},
                  cats_test_lib:remarks(fetch, [Table, k, never(), maps:from_list([{timeout, 1}, Option])]))
     || Option <- [{ttl, 0}, {ttl, -1}, {ttl, 1.0}, {stale, infinity}, {stale, -1}, {other, 1}, {idle, 1}]],
    ?assertEqual({k, v}, cats:fetch(Plain, k, make(v), #{stale => 0})),
    ?assertEqual([], cats:tab2list(Table)).
