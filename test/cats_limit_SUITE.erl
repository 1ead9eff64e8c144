%% Tables with a limit: that it holds whoever writes, which objects stay, and what is refused.
-module(cats_limit_SUITE).
-include_lib("stdlib/include/assert.hrl").
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([options/1, refusals/1, every_writer/1, refusing/1, used_ones_stay/1, killed_writers/1, binaries/1, too_large/1, snapshots/1,
         emptied/1, ordered/1, expiring/1]).

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [options, refusals, every_writer, refusing, used_ones_stay, killed_writers, binaries, too_large, snapshots, emptied, ordered, expiring].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(cats),
    Config.

end_per_suite(_Config) -> ok.

-define(POLICIES, [s3_fifo, sieve, clock]).
-define(MS, cats_test_lib:environment("LIMIT_MS", 1000)).

options(_Config) ->
    [begin
         Table = cats:new(t, [Type, {limit, Limit}, {evict, Policy}]),
         ?assertEqual({Limit, Policy}, {cats:info(Table, limit), cats:info(Table, evict)}),
         cats:delete(Table)
     end || Type <- [set, ordered_set], Limit <- [{objects, 5}, {bytes, 1_000_000}], Policy <- [none | ?POLICIES]],
    ?assertEqual(s3_fifo, cats:info(cats:new(t, [{limit, {objects, 1}}]), evict)),
    ?assertEqual([undefined, undefined], [cats:info(cats:new(t, []), Item) || Item <- [limit, evict]]).

refusals(_Config) ->
    Here = "only tables of type set and ordered_set have a limit, with the default engine and not compressed",
    [?assertEqual(Here, explained([{limit, {objects, 5}} | Options]))
     || Options <- [[bag], [duplicate_bag], [compressed], [{engine, linear_hash}]]],
    ?assertEqual("option evict goes with option limit only", explained([{evict, sieve}])),
    [?assertError(badarg, cats:new(t, Options))
     || Options <- [[{limit, 5}], [{limit, {objects, 0}}], [{limit, {words, 5}}], [{limit, {objects, 5}}, {evict, lru}]]].

explained(Options) ->
    try cats:new(t, Options) of
        _ -> none
    catch
        error:badarg:Stack ->
            #{2 := Text} = cats_failure:format_error(badarg, Stack),
            lists:flatten(io_lib:format("~s", [Text]))
    end.

%% Each function that adds objects holds the limit.
every_writer(_Config) ->
    File = filename:join(os:getenv("TMPDIR", "/tmp"), "cats_limit_" ++ os:getpid()),
    Ets = ets:new(t, []),
    true = ets:insert(Ets, [{{from, N}, N} || N <- lists:seq(1, 500)]),
    [begin
         Table = cats:new(t, [Type, public, {limit, {objects, 100}}, {evict, Policy}]),
         Adders = [fun(N) -> cats:insert(Table, {N, N}) end,
                   fun(N) -> cats:insert(Table, [{{N, I}, x} || I <- lists:seq(1, 20)]) end,
                   fun(N) -> cats:insert_new(Table, {N, new}) end,
                   fun(N) -> cats:insert_new(Table, [{{N, I}, y} || I <- lists:seq(21, 30)]) end,
                   fun(N) -> cats:update_counter(Table, {counter, N}, 1, {x, 0}) end,
                   fun(N) -> cats:update_element(Table, {element, N}, {2, 1}, {x, 0}) end,
                   fun(N) -> cats:update(Table, {update, N}, fun({_, V}) -> {{update, N}, V + 1} end, {{update, N}, 0}) end,
                   fun(N) -> cats:insert_many(Table, [{{many, N, I}, z} || I <- lists:seq(1, 10)]) end,
                   fun(N) -> cats_transaction:run(fun() -> [cats_transaction:insert(Table, {{tx, N, I}, a}) || I <- lists:seq(1, 7)] end) end,
                   fun(N) -> cats:fetch(Table, {fetch, N}, fun(Key) -> {Key, b} end) end,
                   fun(_) -> cats:from_ets(Table, Ets) end],
         [begin
              _ = Add(N),
              ?assert(cats:info(Table, size) =< 100)
          end || Add <- Adders, N <- lists:seq(1, 50)],
         ?assertEqual({100, 100}, {cats:info(Table, size), length(cats:tab2list(Table))}),
         ok = cats:tab2file(Table, File),
         cats:delete(Table)
     end || Type <- [set, ordered_set], Policy <- ?POLICIES],
    _ = file:delete(File).

refusing(_Config) ->
    [begin
         Table = cats:new(t, [Type, {limit, {objects, 3}}, {evict, none}]),
         true = cats:insert(Table, [{1, 1}, {2, 2}, {3, 3}]),
         Before = lists:sort(cats:tab2list(Table)),
         [?assertError(system_limit, Add())
          || Add <- [fun() -> cats:insert(Table, {4, 4}) end,
                     fun() -> cats:insert(Table, [{3, 5}, {4, 4}]) end,
                     fun() -> cats:insert_new(Table, {4, 4}) end,
                     fun() -> cats:insert_many(Table, [{4, 4}]) end,
                     fun() -> cats:update_counter(Table, 4, 1, {4, 0}) end,
                     fun() -> cats:update_element(Table, 4, {2, 1}, {4, 0}) end]],
         ?assertEqual(Before, lists:sort(cats:tab2list(Table))),
         ?assertEqual([], cats:take(Table, 4)),
         ?assertError(badarg, cats:update_counter(Table, 4, 1)),
         true = cats:insert(Table, {3, three}),
         false = cats:insert_new(Table, {3, 3}),
         true = cats:delete(Table, 1),
         true = cats:insert(Table, {4, 4}),
         ?assertEqual([{2, 2}, {3, three}, {4, 4}], lists:sort(cats:tab2list(Table)))
     end || Type <- [set, ordered_set]].

%% Objects that are read or written again and again stay when many others pass by.
used_ones_stay(_Config) ->
    [begin
         Table = cats:new(t, [Type, {limit, {objects, 100}}, {evict, Policy}]),
         true = cats:insert(Table, [{{hot, N}, 0} || N <- lists:seq(1, 10)]),
         [begin
              [_ = case N rem 2 of
                       0 -> cats:lookup(Table, {hot, N});
                       1 -> cats:update_counter(Table, {hot, N}, 1)
                   end || N <- lists:seq(1, 10)],
              true = cats:insert(Table, [{{cold, Round, N}, 0} || N <- lists:seq(1, 10)])
          end || Round <- lists:seq(1, 200)],
         ?assertEqual(lists:duplicate(10, true), [cats:member(Table, {hot, N}) || N <- lists:seq(1, 10)])
     end || Type <- [set, ordered_set], Policy <- ?POLICIES].

%% Writers are killed all the time. The limit holds, and what they leave is sound.
killed_writers(_Config) ->
    [begin
         Table = cats:new(t, [Type, public, {limit, {Unit, Limit}}, {evict, Policy}, {write_concurrency, true}]),
         fill(Table, 0),
         Writer = fun Loop() ->
                          Key = rand:uniform(50_000),
                          case rand:uniform(6) of
                              1 -> cats:delete(Table, Key);
                              2 -> cats:insert(Table, [{Key + I, Key} || I <- lists:seq(1, 9)]);
                              3 -> cats:insert(Table, {Key, binary:copy(<<7>>, rand:uniform(400))});
                              4 -> cats:insert(Table, {{Key, "a key"}, 1.5, Key});
                              5 -> cats:update_counter(Table, {counter, Key}, 1, {x, 0});
                              6 -> cats:lookup(Table, Key)
                          end,
                          Loop()
                  end,
         Used = case Unit of
                    objects -> fun() -> cats:info(Table, size) end;
                    bytes -> fun() -> 8 * cats:info(Table, memory) end
                end,
         Most = storm(Writer, Used, erlang:monotonic_time(millisecond) + ?MS, [], 0),
         ct:pal("~p ~p ~p: ~p of ~p", [Type, Unit, Policy, Most, Limit]),
         ?assert(Most =< Limit * 1.01),
         ?assert(Most >= Limit * 0.9),
         %% A killed writer may be dead for others before its last call has ended, on a dirty scheduler.
         cats_test_lib:eventually(fun() -> cats:info(Table, size) =:= length(cats:tab2list(Table)) end),
         cats:delete(Table)
     end || Type <- [set, ordered_set], Policy <- ?POLICIES, {Unit, Limit} <- [{objects, 5000}, {bytes, 2_000_000}]].

%% Inserts until the table evicts.
fill(Table, N) ->
    true = cats:insert(Table, {{first, N}, N}),
    case cats:info(Table, size) of
        Size when Size > N -> fill(Table, N + 1);
        _ -> ok
    end.

storm(Writer, Used, End, Pids, Most) ->
    Now = Used(),
    case erlang:monotonic_time(millisecond) < End of
        true when length(Pids) < 4 -> storm(Writer, Used, End, Pids ++ [spawn(Writer)], max(Most, Now));
        true ->
            timer:sleep(1),
            exit(hd(Pids), kill),
            storm(Writer, Used, End, tl(Pids), max(Most, Now));
        false ->
            Monitors = [monitor(process, Pid) || Pid <- Pids],
            [exit(Pid, kill) || Pid <- Pids],
            [receive {'DOWN', Monitor, _, _, _} -> ok end || Monitor <- Monitors],
            max(Most, Used())
    end.

%% The bytes of large binaries count, though the table only refers to them.
binaries(_Config) ->
    Table = cats:new(t, [{limit, {bytes, 10_000_000}}]),
    [true = cats:insert(Table, {N, crypto:strong_rand_bytes(100_000)}) || N <- lists:seq(1, 500)],
    Size = cats:info(Table, size),
    ?assert(Size =< 100),
    ?assert(Size >= 90).

too_large(_Config) ->
    [begin
         Table = cats:new(t, [{limit, {bytes, 1_000_000}}, {evict, Policy}]),
         true = cats:insert(Table, {1, 1}),
         ?assertError(system_limit, cats:insert(Table, {2, lists:seq(1, 200_000)})),
         ?assertError(system_limit, cats:insert(Table, {2, binary:copy(<<1>>, 2_000_000)})),
         ?assertEqual([{1, 1}], cats:tab2list(Table))
     end || Policy <- [none | ?POLICIES]].

%% A snapshot keeps what is evicted later.
snapshots(_Config) ->
    [begin
         Table = cats:new(t, [Type, {limit, {objects, 50}}]),
         true = cats:insert(Table, Objects = [{N, N} || N <- lists:seq(1, 50)]),
         Snapshot = cats:snapshot(Table),
         [true = cats:insert(Table, {N, N}) || N <- lists:seq(51, 500)],
         ?assertEqual(50, cats:info(Table, size)),
         ?assertEqual(Objects, lists:sort(cats:tab2list(Snapshot)))
     end || Type <- [set, ordered_set]].

emptied(_Config) ->
    Table = cats:new(t, [{limit, {objects, 50}}]),
    [begin
         true = cats:insert(Table, [{N, N} || N <- lists:seq(1, 40)]),
         true = cats:insert(Table, [{{b, N}, N} || N <- lists:seq(1, 40)]),
         ?assertEqual(50, cats:info(Table, size)),
         true = cats:delete_all_objects(Table)
     end || _ <- lists:seq(1, 20)].

%% Order statistics see evictions.
ordered(_Config) ->
    Table = cats:new(t, [ordered_set, {limit, {objects, 1000}}]),
    [true = cats:insert(Table, {rand:uniform(1_000_000), N}) || N <- lists:seq(1, 10_000)],
    Keys = [Key || {Key, _} <- cats:tab2list(Table)],
    ?assertEqual(1000, length(Keys)),
    ?assertEqual(lists:usort(Keys), Keys),
    [?assertEqual(lists:nth(N + 1, Keys), element(1, cats:nth(Table, N))) || N <- [0, 499, 999]].

%% With a time to live, what expires makes room.
expiring(_Config) ->
    Table = cats:new(t, [{limit, {objects, 100}}, {evict, none}, {ttl, 100}]),
    true = cats:insert(Table, [{N, N} || N <- lists:seq(1, 100)]),
    ?assertError(system_limit, cats:insert(Table, {101, 101})),
    timer:sleep(400),
    true = cats:insert(Table, [{{new, N}, N} || N <- lists:seq(1, 100)]),
    ?assertEqual(100, cats:info(Table, size)).
