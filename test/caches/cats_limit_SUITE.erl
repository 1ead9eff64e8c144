%% Tables with a limit: that it holds whoever writes, which objects stay, and what is refused.
-module(cats_limit_SUITE).
-include_lib("stdlib/include/assert.hrl").
-import(cats_test_lib, [one_of/1]).
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, end_per_testcase/2]).
-export([options/1, refusals/1, every_writer/1, refusing/1, together/1, growing/1, larger_than_the_limit/1,
         without_need_of_room/1, fails_without_need/1, used_ones_stay/1, uses/1, killed_writers/1, binaries/1,
         held_terms/1, too_large/1, snapshots/1, emptied/1, ordered/1, expiring/1, smallest/1, lists_hold_bytes/1,
         refused_lists/1, emptied_bytes/1, fleeting/1, spread/1, few_large/1, long_lists/1, much_at_once/1,
         own_ones_are_spared/1, many_stay/1, any_size/1, any_size_together/1]).

suite() -> [{timetrap, {minutes, 10}}].

all() ->
    [options, refusals, every_writer, refusing, together, growing, larger_than_the_limit, without_need_of_room,
     fails_without_need,
     used_ones_stay, uses, killed_writers, binaries, held_terms, too_large, snapshots, emptied, ordered, expiring,
     smallest, lists_hold_bytes, refused_lists, emptied_bytes, fleeting, spread, few_large, long_lists, much_at_once,
     own_ones_are_spared, many_stay, any_size, any_size_together].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(cats),
    Config.

end_per_suite(_Config) -> ok.

end_per_testcase(_Case, _Config) -> cats_nif:stop_clock(false).

-define(POLICIES, cats_test_lib:policies()).
-define(MS, cats_test_lib:environment("LIMIT_MS", cats_test_lib:rounds(250))).
%% Tables of random sizes.
-define(TABLES, cats_test_lib:rounds(700)).

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
    ?assertEqual("options evict and share go with option limit only", explained([{evict, sieve}])),
    [?assertError(badarg, cats:new(t, Options))
     || Options <- [[{limit, 5}], [{limit, {objects, 0}}], [{limit, {words, 5}}],
                    [{limit, {objects, 5}}, {evict, lru}]]].

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
                   fun(N) ->
                           cats:update(Table, {update, N}, fun({_, V}) -> {{update, N}, V + 1} end, {{update, N}, 0})
                   end,
                   fun(N) -> cats:insert_many(Table, [{{many, N, I}, z} || I <- lists:seq(1, 10)]) end,
                   fun(N) ->
                           cats_transaction:run(fun() ->
                                                        [cats_transaction:insert(Table, {{tx, N, I}, a})
                                                         || I <- lists:seq(1, 7)]
                                                end)
                   end,
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

%% What makes the object of a key larger.
growers() ->
    Large = binary:copy(<<1>>, 2000),
    Bits = 1 bsl 8000,
    [{insert, fun(Table, Key) -> cats:insert(Table, {Key, Large, 0}) end},
     {insert_list, fun(Table, Key) -> cats:insert(Table, [{Key, Large, 0}, {{new, Key}, 0, 0}]) end},
     {insert_many, fun(Table, Key) -> cats:insert_many(Table, [{Key, Large, 0}]) end},
     {update_element, fun(Table, Key) -> cats:update_element(Table, Key, {2, Large}) end},
     {update_elements, fun(Table, Key) -> cats:update_element(Table, Key, [{2, Large}, {3, 1.5}]) end},
     {update_element_default, fun(Table, Key) -> cats:update_element(Table, {new, Key}, {2, Large}, {x, y, z}) end},
     {update_counter, fun(Table, Key) -> cats:update_counter(Table, Key, {3, Bits}) end},
     {update_counter_default, fun(Table, Key) -> cats:update_counter(Table, {new, Key}, {3, Bits}, {x, y, 0}) end},
     {add, fun(Table, Key) -> cats:add(Table, Key, {3, Bits}) end},
     {update, fun(Table, Key) -> cats:update(Table, Key, fun({K, _, N}) -> {K, Large, N} end) end},
     {replace, fun(Table, Key) ->
                       [Old] = cats:lookup(Table, Key),
                       cats:replace(Table, Old, {Key, Large, 0})
               end},
     {select_replace,
      fun(Table, Key) -> cats:select_replace(Table, [{{Key, '_', '_'}, [], [{{Key, {const, Large}, 0}}]}]) end},
     {transaction, fun(Table, Key) -> transaction(fun() -> cats_transaction:insert(Table, {Key, Large, 0}) end) end}].

%% A transaction whose failure is raised.
transaction(Body) ->
    case cats_transaction:run(Body) of
        {aborted, {system_limit, _}} -> error(system_limit);
        {atomic, Result} -> Result
    end.

%% Each function that makes objects larger holds a limit of bytes. Where nothing is evicted, it fails and loses nothing.
growing(_Config) ->
    Limit = 200_000,
    [begin
         Table = cats:new(t, [Type, {limit, {bytes, Limit}}, {evict, Policy}]),
         true = cats:insert(Table, [{N, <<0>>, 0} || N <- lists:seq(1, 200)]),
         Failed = [begin
                       Before = cats:lookup(Table, Key),
                       Failed = try Grow(Table, Key), false
                                catch
                                    error:system_limit when Policy =:= none ->
                                        ?assertEqual({Name, Before}, {Name, cats:lookup(Table, Key)}),
                                        true;
                                    %% The object was evicted.
                                    error:_ when Policy =/= none, Before =:= [] -> false
                                end,
                       Used = used(Table),
                       ?assert(Used =< Limit, {Name, Policy, Used}),
                       Failed
                   end || Key <- lists:seq(1, 200)],
         %% It did come to the limit.
         case Policy of
             none ->
                 ?assert(lists:member(true, Failed), Name),
                 ?assert(cats:info(Table, size) >= 200, Name);
             _ -> ?assertMatch({Name, #{evicted := N}} when N > 0, {Name, cats:stats(Table)})
         end,
         ?assertEqual(cats:info(Table, size), length(cats:tab2list(Table))),
         ?assert(used(Table) > Limit div 2, Name),
         %% Nothing is owed.
         true = cats:delete_all_objects(Table),
         true = cats:insert(Table, {1, binary:copy(<<1>>, Limit div 2)}),
         cats:delete(Table)
     end || Type <- [set, ordered_set], Policy <- [none | ?POLICIES], {Name, Grow} <- growers()].

%% What a limit of bytes counts: large binaries too, once for each object.
used(Table) ->
    8 * cats:info(Table, memory) + lists:sum([Size || {_, Size, _} <- cats:info(Table, binary)]).

%% What is larger than the limit is refused, and nothing is evicted for it.
larger_than_the_limit(_Config) ->
    Large = binary:copy(<<1>>, 300_000),
    Half = binary:copy(<<1>>, 150_000),
    Calls = [fun(Table) -> cats:insert(Table, {1, Large}) end,
             fun(Table) -> cats:insert(Table, [{1, Half}, {2, Half}]) end,
             fun(Table) -> cats:insert_new(Table, {new, Large}) end,
             fun(Table) -> cats:update_element(Table, 1, {2, Large}) end,
             fun(Table) -> cats:update_element(Table, new, {2, Large}, {x, 0}) end,
             fun(Table) -> cats:update_counter(Table, 1, 1 bsl 2_000_000) end,
             fun(Table) -> cats:update(Table, 1, fun({1, _}) -> {1, Large} end) end,
             fun(Table) -> cats:replace(Table, {1, 0}, {1, Large}) end,
             fun(Table) -> cats:select_replace(Table, [{{1, '_'}, [], [{{1, {const, Large}}}]}]) end,
             fun(Table) -> transaction(fun() -> cats_transaction:insert(Table, {1, Large}) end) end,
             fun(Table) -> transaction(fun() -> [cats_transaction:insert(Table, {N, Half}) || N <- [1, 2]] end) end],
    [begin
         Table = cats:new(t, [Type, {limit, {bytes, 200_000}}, {evict, Policy}]),
         Objects = [{N, 0} || N <- lists:seq(1, 50)],
         true = cats:insert(Table, Objects),
         [begin
              ?assertError(system_limit, Call(Table)),
              ?assertEqual(Objects, lists:sort(cats:tab2list(Table)))
          end || Call <- Calls],
         cats:delete(Table)
     end || Type <- [set, ordered_set], Policy <- [none | ?POLICIES]].

%% In a full table, what puts nothing needs no room, and evicts nothing.
without_need_of_room(_Config) ->
    Large = binary:copy(<<1>>, 3000),
    [begin
         Table = cats:new(t, [Type, {limit, {bytes, 100_000}}, {evict, Policy}]),
         true = cats:insert(Table, [{N, 0} || N <- lists:seq(1, 50)]),
         Rest = [{{fill, N}, binary:copy(<<2>>, 1000)} || N <- lists:seq(1, 200)],
         _ = lists:takewhile(fun(Object) ->
                                     8 * cats:info(Table, memory) < 98_000
                                         andalso try cats:insert(Table, Object) catch error:system_limit -> false end
                             end, Rest),
         Size = cats:info(Table, size),
         [{Key, Value} | _] = [Object || Object = {{fill, _}, _} <- cats:tab2list(Table)],
         ?assertEqual(false, cats:insert_new(Table, {Key, Large})),
         ?assertEqual(false, cats:replace(Table, {Key, 1}, {Key, Large})),
         ?assertEqual(false, cats:update_element(Table, none, {2, Large})),
         ?assertError(badarg, cats:update_element(Table, Key, {1, Large})),
         ?assertError(badarg, cats:update_counter(Table, Key, 1 bsl 30000)),
         ?assertEqual([{Key, Value}], cats:lookup(Table, Key)),
         ?assertEqual(Size, cats:info(Table, size)),
         cats:delete(Table)
     end || Type <- [set, ordered_set], Policy <- [none | ?POLICIES]].

%% Nor does what fails, or finds no object.
fails_without_need(_Config) ->
    Calls = [{update_counter, [new, {3, 1}, {new, 0}]}, {update_counter, [new, {2, 1}, {new, x}]},
             {update_counter, [new, {2, 1}]}, {update_counter, [new, [{2, 1}, {2, x}], {new, 0}]},
             {update_element, [new, {3, x}, {new, 0}]}, {update_element, [new, {1, x}, {new, 0}]},
             {update_element, [new, {2, x}]}, {add, [new, 1]}, {replace, [{new, 0}, {new, 1}]},
             {update, [new, fun(_) -> keep end, {new, 0}]}, {update, [new, fun(_) -> delete end, {new, 0}]},
             {update, [new, fun(_) -> error(failed) end, {new, 0}]}, {update, [new, fun(_) -> wrong end, {new, 0}]},
             {insert_new, [[{new, 0}, {1, 1}]]}, {insert_new, [[{new, 0}, {}]]}, {insert, [[{new, 0}, {}]]},
             {fetch, [new, fun(_) -> error(failed) end]}, {take, [new]}, {touch, [new, 5]}],
    [begin
         Table = cats:new(t, [Type, public, {ttl, infinity}, {limit, {objects, 10}}, {evict, Policy}]),
         true = cats:insert(Table, [{N, N} || N <- lists:seq(1, 10)]),
         _ = try apply(cats, Function, [Table | Arguments]) catch error:_ -> failed end,
         ?assertEqual({Function, Arguments, [{N, N} || N <- lists:seq(1, 10)]},
                      {Function, Arguments, lists:sort(cats:tab2list(Table))}),
         cats:delete(Table)
     end || Type <- [set, ordered_set], Policy <- [none | ?POLICIES], {Function, Arguments} <- Calls].

%% The older one of two objects is evicted, unless it was used.
uses(_Config) ->
    Spec = fun(Key) -> [{{Key, '_'}, [], ['$_']}] end,
    Uses = [fun(T, K) -> [_] = cats:lookup(T, K) end,
            fun(T, K) -> true = cats:member(T, K) end,
            fun(T, K) -> {K, 1} = cats:fetch(T, K, fun(_) -> error(called) end) end,
            fun(T, K) -> {atomic, [_]} = cats_transaction:run(fun() -> cats_transaction:read(T, K) end) end,
            fun(T, K) -> true = cats:insert(T, {K, 2}) end,
            fun(T, K) -> {K, 2} = cats:update(T, K, fun(_) -> {K, 2} end) end,
            fun(T, K) -> 2 = cats:update_counter(T, K, 1) end,
            fun(T, K) -> true = cats:touch(T, K, infinity) end],
    Others = [fun(T, K) -> [_] = cats:select(T, Spec(K)) end,
              fun(T, K) -> [_] = cats:match_object(T, {K, '_'}) end,
              fun(T, K) -> keep = cats:update(T, K, fun(_) -> keep end) end,
              fun(T, K) -> false = cats:insert_new(T, {K, 2}) end,
              fun(T, _) -> [_, _] = cats:tab2list(T) end],
    Stays = fun(Type, Policy, Call) ->
                    Table = cats:new(t, [Type, {ttl, infinity}, {limit, {objects, 2}}, {evict, Policy}]),
                    true = cats:insert(Table, {1, 1}),
                    true = cats:insert(Table, {2, 1}),
                    _ = Call(Table, 1),
                    true = cats:insert(Table, {3, 1}),
                    Keys = lists:sort([Key || {Key, _} <- cats:tab2list(Table)]),
                    true = cats:delete(Table),
                    Keys =:= [1, 3]
            end,
    ?assertEqual([], [{Expected, Type, Policy, N}
                      || {Expected, Calls} <- [{true, Uses}, {false, Others}], {N, Call} <- lists:enumerate(Calls),
                                                     Type <- [set, ordered_set], Policy <- [sieve, clock],
                                                     Stays(Type, Policy, Call) =/= Expected]).

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
         ?assert(Most =< Limit),
         %% Of bytes, objects pay for more than they mostly take.
         ?assert(Most >= Limit * case {Type, Unit} of {_, bytes} -> 0.75; _ -> 0.9 end),
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

%% A limit of bytes counts what terms refer to that the VM keeps for the table, and gives it back.
held_terms(_Config) ->
    Bytes = 20_000,
    Binary = fun(N) -> binary:copy(<<N:32>>, Bytes div 4) end,
    Deep = fun(Term) ->
                   lists:foldl(fun(I, Inner) ->
                                       case I rem 3 of 0 -> {I, Inner}; 1 -> [Inner]; 2 -> #{I => Inner} end
                               end,
                               Term, lists:seq(1, 100))
           end,
    Makers = [{bits_at_the_end, fun(N) -> <<(Binary(N))/binary, 1:1>> end},
              {bits_at_the_start, fun(N) -> <<_:1, Rest/bits>> = Binary(N), Rest end},
              {bits_of_a_part, fun(N) -> <<_:7, Rest:1001/bits, _/bits>> = Binary(N), Rest end},
              {deep_binary, fun(N) -> Deep(Binary(N)) end},
              {deep_binaries, fun(N) -> <<A:10_000/binary, B/binary>> = Binary(N), Deep([A, #{a => {B}}]) end},
              {deep_bits, fun(N) -> <<_:1, Rest/bits>> = Binary(N), Deep(Rest) end},
              {deep_list, fun(_) -> Deep(lists:seq(1, Bytes div 16)) end},
              {fun_over_a_binary, fun(N) -> B = Binary(N), fun() -> B end end},
              {fun_over_bits, fun(N) -> <<_:1, B/bits>> = Binary(N), fun() -> {B, N} end end},
              {deep_fun, fun(N) -> B = Binary(N), Deep(fun() -> [B] end) end},
              {fun_over_a_fun, fun(N) -> B = Binary(N), F = fun() -> B end, fun() -> F end end}],
    [begin
         Table = cats:new(t, [Type, {limit, {bytes, 2_000_000}}, {evict, Policy}]),
         Fill = fun() -> [try cats:insert(Table, {N, Make(N)}) catch error:system_limit when Policy =:= none -> full end
                          || N <- lists:seq(1, 200)] end,
         Check = fun() ->
                         %% Two parts of a binary count as two binaries.
                         Size = cats:info(Table, size),
                         Name =:= deep_binaries orelse ?assert(Size >= 80, {Name, Size}),
                         ?assert(Size >= 40 andalso Size =< 100, {Name, Size})
                 end,
         _ = Fill(),
         Check(),
         %% Some of what stays is moved, and costs what it did.
         [true = cats:delete(Table, N) || N <- lists:seq(1, 200), N rem 10 =/= 0],
         _ = Fill(),
         Check(),
         [true = cats:delete(Table, N) || N <- lists:seq(1, 200)],
         [true = cats:insert(Table, {N, binary:copy(<<2>>, 18_000)}) || N <- lists:seq(1, 100)],
         ?assertEqual({Name, 100}, {Name, cats:info(Table, size)}),
         cats:delete(Table)
     end || Type <- [set, ordered_set], Policy <- [none, s3_fifo], {Name, Make} <- Makers].

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
    Now = cats_nif:stop_clock(1000000),
    Table = cats:new(t, [{limit, {objects, 100}}, {evict, none}, {ttl, 100}]),
    true = cats:insert(Table, [{N, N} || N <- lists:seq(1, 100)]),
    ?assertError(system_limit, cats:insert(Table, {101, 101})),
    _ = cats_nif:stop_clock(Now + 100),
    ?assertEqual(0, cats:info(Table, size)),
    true = cats:insert(Table, [{{new, N}, N} || N <- lists:seq(1, 100)]),
    ?assertEqual(100, cats:info(Table, size)).

%% A list for which all that a full table has must go: the call does not begin anew again and again.
long_lists(_Config) ->
    [begin
         Table = cats:new(t, [Type, public, {stats, true}, {limit, {objects, Size}}, {evict, Policy}]),
         _ = cats:insert_many(Table, [{N, N} || N <- lists:seq(1, Size)]),
         #{busy := Before} = cats:stats(Table),
         true = cats:insert(Table, [{N, N} || N <- lists:seq(Size + 1, 2 * Size)]),
         #{busy := After} = cats:stats(Table),
         ?assert(After - Before < 10, {Type, Policy, Size, After - Before}),
         ?assert(cats:info(Table, size) =< Size),
         true = cats:delete(Table)
     end || Type <- [set, ordered_set], Policy <- ?POLICIES, Policy =/= none, Size <- [10, 1000, 50_000]].

%% A call that needs room for much takes it from all objects that are not used.
much_at_once(_Config) ->
    New = fun(Number) -> [{{new, N}, 0} || N <- lists:seq(1, Number)] end,
    Calls = [{{objects, 20_000}, fun(Table) -> true = cats:insert(Table, New(Number)) end}
             || Number <- [17, 2000, 8000]]
        ++ [{{objects, 20_000},
             fun(Table) ->
                     {atomic, _} = cats_transaction:run(
                                     fun() -> [cats_transaction:insert(Table, Object) || Object <- New(4000)] end)
             end},
            {{bytes, 6_000_000}, fun(Table) -> true = cats:insert(Table, {new, binary:copy(<<7>>, 2_000_000)}) end}],
    [begin
         Table = cats:new(t, [Type, public, {limit, Limit}, {evict, Policy}]),
         true = cats:insert_many(Table, [{{cold, N}, 0} || N <- lists:seq(1, 50_000)]),
         Hot = [{hot, N} || N <- lists:seq(1, 50)],
         true = cats:insert(Table, [{Key, 0} || Key <- Hot]),
         _ = [cats:lookup(Table, Key) || _ <- [1, 2, 3], Key <- Hot],
         _ = Call(Table),
         ?assertEqual({Type, Policy, Limit, []},
                      {Type, Policy, Limit, [Key || Key <- Hot, not cats:member(Table, Key)]}),
         true = cats:delete(Table)
     end || Type <- [set, ordered_set], Policy <- ?POLICIES, Policy =/= none, {Limit, Call} <- Calls].

%% What insert_many writes into a full table, up to 256 objects, is there afterwards. It evicts no more than needed.
many_stay(_Config) ->
    [begin
         Table = cats:new(t, [Type, public, {limit, {objects, 300}}, {evict, Policy}]),
         true = cats:insert_many(Table, [{{old, N}, N} || N <- lists:seq(1, 600)]),
         Old = cats:tab2list(Table),
         300 = length(Old),
         %% Objects that are there already need no room.
         true = cats:insert_many(Table, [{Key, new} || {Key, _} <- lists:sublist(Old, Number)]),
         ?assertEqual({Type, Policy, Number, []},
                      {Type, Policy, Number, [Key || {Key, _} <- Old, not cats:member(Table, Key)]}),
         Keys = [{new, N, Twice} || N <- lists:seq(1, Number), Twice <- [a, a]],
         true = cats:insert_many(Table, [{Key, N} || {N, Key} <- lists:zip(lists:seq(1, length(Keys)), Keys)]),
         ?assertEqual({Type, Policy, Number, []},
                      {Type, Policy, Number, [Key || Key <- Keys, not cats:member(Table, Key)]}),
         ?assertEqual(300, cats:info(Table, size)),
         %% More than there is room for.
         true = cats:insert_many(Table, [{{more, N}, N} || N <- lists:seq(1, 1000)]),
         ?assert(cats:info(Table, size) =< 300),
         true = cats:delete(Table)
     end || Type <- [set, ordered_set], Policy <- ?POLICIES, Policy =/= none, Number <- [2, 16, 17, 45, 128]].

%% However much room a call needs, it evicts no object that it replaces as long as there are others.
own_ones_are_spared(_Config) ->
    Ways = [fun(Table, Objects) -> true = cats:insert(Table, Objects) end,
            fun(Table, Objects) ->
                    {atomic, _} = cats_transaction:run(fun() -> cats_transaction:insert(Table, Objects) end)
            end],
    [begin
         Notify = {notify, self(), [{queue, 100_000}, {batch, 100_000}]},
         Table = cats:new(t, [Type, public, {limit, {objects, Size}}, {evict, Policy}, Notify]),
         true = cats:insert(Table, [{N, old} || N <- lists:seq(1, Size)]),
         {[], 0} = cats:removed(Table),
         Own = Size div 2,
         Way(Table, [{N, new} || N <- lists:seq(1, Own)] ++ [{-N, new} || N <- lists:seq(1, Size div 4)]),
         {Removed, _} = cats:removed(Table),
         ?assertEqual({Type, Policy, Size, []},
                      {Type, Policy, Size, [Key || {evicted, {Key, _}} <- Removed, Key > 0, Key =< Own]}),
         true = cats:delete(Table)
     end || Type <- [set, ordered_set], Policy <- ?POLICIES, Policy =/= none, Size <- [1000, 6000, 20_000],
            Way <- Ways].

%% What one call writes counts together: what it removes makes room for what it adds, and of several objects of a key
%% the last one counts.
together(_Config) ->
    [begin
         Big = binary:copy(<<"x">>, 5000),
         {Limit, Size} = case Unit of
                             objects -> {10, 10};
                             bytes -> {100_000, 0}
                         end,
         Table = cats:new(t, [Type, public, {limit, {Unit, Limit}}, {evict, Policy}]),
         Fill = fun Fill(N) ->
                        try cats:insert(Table, {N, Big}) of
                            true when N =:= Size -> N;
                            true when N > 1000 -> N;
                            true -> Fill(N + 1)
                        catch
                            error:system_limit -> N - 1
                        end
                end,
         Full = case Policy of
                    none -> Fill(1);
                    _ ->
                        Fill(1),
                        cats:delete_all_objects(Table),
                        [cats:insert(Table, {N, Big}) || N <- lists:seq(1, 10)],
                        10
                end,
         Run = fun(Deleted, Inserted) ->
                       cats_transaction:run(fun() ->
                                                    [cats_transaction:insert(Table, {N, Big}) || N <- Inserted],
                                                    [cats_transaction:delete(Table, N) || N <- Deleted]
                                            end)
               end,
         ?assertMatch({atomic, _}, Run([1, 2, 3, 4, 5, 6], [new])),
         ?assertMatch({atomic, _}, Run([], [{new, N} || N <- lists:seq(1, 5)])),
         ?assertEqual(Full, cats:info(Table, size)),
         %% With many writes, too.
         ?assertMatch({atomic, _}, Run([{new, N} || N <- lists:seq(1, 5)] ++ [new | lists:seq(7, Full)],
                                       [{newer, N} || N <- lists:seq(1, Full)])),
         ?assertEqual(Full, cats:info(Table, size)),
         true = cats:delete(Table, {newer, 1}),
         true = cats:insert(Table, [{repeated, Big} || _ <- lists:seq(1, Full)]),
         ?assertEqual(Full, cats:info(Table, size)),
         true = cats:delete(Table, {newer, 2}),
         true = cats:insert(Table,
                            [{repeated, x}, {3, Big} | [{3.0, Big} || Type =:= ordered_set]] ++ [{repeated, Big}]),
         ?assertEqual(Full, cats:info(Table, size)),
         case Policy of
             none ->
                 Objects = cats:tab2list(Table),
                 ?assertMatch({aborted, {system_limit, _}}, Run([repeated], [more, most])),
                 ?assertError(system_limit, cats:insert(Table, [{repeated, Big}, {more, Big}])),
                 ?assertEqual(lists:sort(Objects), lists:sort(cats:tab2list(Table)));
             _ ->
                 ok
         end,
         cats:delete(Table)
     end || Type <- [set, ordered_set], Unit <- [objects, bytes], Policy <- [none, sieve],
            {Unit, Policy} =/= {bytes, sieve}].

%%% Limits of bytes, where the structure of the table is a large part of them

%% Limits that leave no room are refused. The least that is not has room for a small object.
smallest(_Config) ->
    Refused = "the limit of bytes is smaller than a table with these options and one small object",
    [begin
         Options = fun(Limit) -> [Type, Access, {limit, {bytes, Limit}}, {evict, Policy} | Expiry] end,
         Least = least(Options, 1, 100_000),
         ?assertEqual(Refused, explained(Options(Least - 1))),
         ?assertEqual(Refused, explained(Options(1))),
         Table = cats:new(t, Options(Least)),
         true = cats:insert(Table, {{a, key}, x}),
         ?assert(used(Table) =< Least),
         cats:delete(Table)
     end || Type <- [set, ordered_set], Access <- [public, private], Policy <- [none | ?POLICIES],
            Expiry <- [[], [{ttl, 60_000}], [{idle, 60_000}]]].

%% The least limit that is accepted, which is above the first number.
least(_, Low, High) when High =:= Low + 1 -> High;
least(Options, Low, High) ->
    Middle = (Low + High) div 2,
    try cats:new(t, Options(Middle)) of
        Table -> cats:delete(Table), least(Options, Low, Middle)
    catch
        error:badarg -> least(Options, Middle, High)
    end.

%% A list that is accepted does not pass the limit with what the structure grows by.
lists_hold_bytes(_Config) ->
    [begin
         Table = limited_bytes(Type, Policy, Limit),
         Accepted = [begin
                         Accepted = try_insert(Table, [{{Length, N}, x} || N <- lists:seq(1, Length)]),
                         Used = used(Table),
                         ?assert(Used =< Limit, {Type, Policy, Limit, Length, Used}),
                         Accepted
                     end || Length <- [10, 30, 100, 300, 1000, 3000, 10_000]],
         ?assertEqual([true, false], lists:reverse(lists:usort(Accepted))),
         cats:delete(Table)
     end || Type <- [set, ordered_set], Policy <- [none | ?POLICIES], Limit <- [20_000, 200_000]].

%% A list that is refused changes nothing: the table takes what it took before.
refused_lists(_Config) ->
    [begin
         [Fresh, Table] = [limited_bytes(Type, Policy, Limit) || _ <- [fresh, refusing]],
         %% The first refusal is counted, which takes memory.
         ?assertEqual(false, try_insert(Table, [{N, x} || N <- lists:seq(1, Limit)])),
         Before = used(Table),
         [begin
              ?assertEqual(false, try_insert(Table, [{N, x} || N <- lists:seq(1, Length)])),
              ?assertEqual({Before, 0}, {used(Table), cats:info(Table, size)})
          end || Length <- [Limit div 20, Limit div 10]],
         ?assertEqual({Type, Policy, Limit, accepted(Fresh, Limit)}, {Type, Policy, Limit, accepted(Table, Limit)}),
         [cats:delete(T) || T <- [Fresh, Table]]
     end || Type <- [set, ordered_set], Policy <- [none | ?POLICIES], Limit <- [20_000, 200_000]].

%% A table whose objects are gone takes again what it took first, however they went.
emptied_bytes(_Config) ->
    Ways = [{delete, fun(Table) -> [cats:delete(Table, Key) || {Key, _} <- cats:tab2list(Table)] end},
            {delete_all_objects, fun(Table) -> cats:delete_all_objects(Table) end},
            {select_delete, fun(Table) -> cats:select_delete(Table, [{'_', [], [true]}]) end}],
    [begin
         Table = limited_bytes(Type, Policy, Limit),
         First = accepted(Table, Limit),
         [begin
              _ = Empty(Table),
              ?assertEqual(0, cats:info(Table, size)),
              ?assertEqual({Type, Policy, Limit, Way, First}, {Type, Policy, Limit, Way, accepted(Table, Limit)})
          end || _ <- lists:seq(1, 3)],
         cats:delete(Table)
     end || Type <- [set, ordered_set], Policy <- [none | ?POLICIES], Limit <- [20_000, 200_000], {Way, Empty} <- Ways].

%% Objects that replace others all the time leave no items of the timer wheel behind that would count, or take more than
%% the limit.
fleeting(_Config) ->
    [begin
         Table = cats:new(t, [Type, public, {limit, {bytes, Limit}}, {evict, Policy}, Expiry]),
         Holds = fun() ->
                         Used = 8 * cats:info(Table, memory),
                         ?assert(Used =< Limit, {Used, Type, Policy, Expiry, Limit})
                 end,
         Take = fun Take(N) ->
                        case try_insert(Table, {Key(N), 7}) of
                            true -> Take(N + 1);
                            false when Policy =:= none -> N - 1
                        end
                end,
         case Policy of
             none ->
                 First = Take(1),
                 [begin
                      [cats:delete(Table, Key(N)) || N <- lists:seq(1, First)],
                      ?assertEqual(First, Take(1)),
                      Holds()
                  end || _ <- lists:seq(1, 20)];
             _ ->
                 [begin
                      ?assertEqual(true, try_insert(Table, {Key(N), 7})),
                      N rem 10 =:= 0 andalso Holds()
                  end || N <- lists:seq(1, 20_000)]
         end,
         cats:delete(Table)
     end || Type <- [set, ordered_set], Policy <- [none | ?POLICIES], Expiry <- [{ttl, 60_000}, {idle, 60_000}],
            Limit <- [20_000, 200_000], Key <- [fun(N) -> N end, fun(N) -> {key, [N]} end]].

%% The structure of the table becomes smaller with its objects, wherever these go. So the limit holds after each call.
spread(_Config) ->
    [begin
         Table = cats:new(t, [Type, public, {limit, {bytes, Limit}}, {evict, Policy} | Expiry]),
         Insert = fun(Object) ->
                          _ = try_insert(Table, Object) orelse [cats:delete(Table, cats:first(Table)) || _ <- [1, 2]],
                          Used = 8 * cats:info(Table, memory),
                          ?assert(Used =< Limit, {Name, Used, Limit, Type, Policy, Expiry})
                  end,
         Pass(Table, Limit, Insert),
         cats:delete(Table)
     end || Limit <- [30_000, 200_000], Type <- [set, ordered_set], Policy <- [none | ?POLICIES],
            Expiry <- [[], [{ttl, 60_000}]],
            {Name, Pass} <- [{uses, fun passes_used/3}, {sequences, fun passes_sequences/3},
                             {deletions, fun passes_deletions/3}, {sizes, fun passes_sizes/3}]].

%% A large object takes the room of many small ones, and of their share of the structure.
few_large(_Config) ->
    [begin
         Table = cats:new(t, [Type, public, {limit, {bytes, Limit}}, {evict, Policy} | Expiry]),
         Large = fun(N) -> lists:seq(1, Limit div 800 + N) end,
         [true = cats:insert(Table, {N, N, x}) || N <- lists:seq(1, Limit div 60)],
         [begin
              true = Way(Table, N, Large(N)),
              Used = 8 * cats:info(Table, memory),
              ?assert(Used =< Limit, {Used, Limit, Type, Policy, Expiry, N})
          end || Way <- [fun(Cache, N, Terms) -> cats:insert(Cache, {-N, N, Terms}) end,
                         fun(Cache, N, Terms) ->
                                 cats:insert(Cache, {{N}, N, x}) andalso
                                     cats:update_element(Cache, {N}, {3, Terms})
                         end],
                 N <- lists:seq(1, 70)],
         cats:delete(Table)
     end || Limit <- [300_000, 3_000_000], Type <- [set, ordered_set], Policy <- ?POLICIES,
            Expiry <- [[], [{ttl, 60_000}]]].

%% Which objects are evicted is spread by their uses.
passes_used(Table, Limit, Insert) ->
    [begin
         Insert({N, x}),
         [cats:lookup(Table, rand:uniform(N)) || _ <- [1, 2, 3]],
         [cats:lookup(Table, N - rand:uniform(min(N, 600))) || _ <- [1, 2, 3]],
         cats:info(Table, evict) =:= none andalso N rem 3 =:= 0 andalso cats:delete(Table, rand:uniform(N))
     end || N <- lists:seq(1, Limit div 12)].

%% Keys ascend in several places.
passes_sequences(Table, Limit, Insert) ->
    Places = max(3, Limit div 15_000),
    [begin
         Insert({{N rem Places, N}, x}),
         cats:delete(Table, {rand:uniform(Places), N - rand:uniform(min(N, 1000))})
     end || N <- lists:seq(1, Limit div 20)].

%% Most objects of a table are deleted, and some large ones come in their place.
passes_deletions(Table, Limit, Insert) ->
    Count = Limit div 200,
    [begin
         [Insert({N, x}) || N <- lists:seq(1, Count)],
         [cats:delete(Table, N) || N <- lists:seq(1, Count), N rem 20 > Round],
         [Insert({{N}, binary:copy(<<1>>, Limit div 80)}) || N <- lists:seq(1, 80)],
         [cats:delete(Table, {N}) || N <- lists:seq(1, 80)]
     end || Round <- [0, 3, 1]].

%% Many small objects, then few large ones, and so on.
passes_sizes(_Table, Limit, Insert) ->
    [Insert({rand:uniform(Limit), binary:copy(<<1>>, Size)})
     || Size <- [1, Limit div 50, 1, 60, Limit div 400, 10], _ <- lists:seq(1, Limit div 150)].

limited_bytes(Type, Policy, Limit) -> cats:new(t, [Type, public, {limit, {bytes, Limit}}, {evict, Policy}]).

try_insert(Table, Objects) ->
    try cats:insert(Table, Objects)
    catch
        error:system_limit -> false
    end.

%% How many of many small objects the table takes, one by one, and has in the end.
accepted(Table, Limit) ->
    _ = [try_insert(Table, {N, x}) || N <- lists:seq(1, Limit div 20)],
    ?assert(used(Table) =< Limit),
    cats:info(Table, size).

%% Random calls on tables of any size. The limit holds after each call. What is refused is refused by a fresh table,
%% too: with the same contents where nothing is evicted, otherwise when it is empty.
any_size(_Config) -> [any_table() || _ <- lists:seq(1, ?TABLES)].

any_table() ->
    Options = any_options(),
    try cats:new(t, Options) of
        Table ->
            Calls = any_calls(),
            {limit, {bytes, Limit}} = lists:keyfind(limit, 1, Options),
            [begin
                 any_call(Table, Options, Calls),
                 Used = any_used(Table, Calls),
                 ?assert(Used =< Limit, {Used, Options, Calls})
             end || _ <- lists:seq(1, one_of([100, 1000]))],
            cats:delete(Table)
    catch
        error:badarg -> too_small
    end.

%% Small limits are as many as large ones.
any_options() ->
    Limit = round(8000 * math:pow(250, rand:uniform())),
    [one_of([set, ordered_set]), {limit, {bytes, Limit}}, {evict, one_of([none | ?POLICIES])},
     {write_concurrency, one_of([true, false, auto])},
     one_of([public, private]) | one_of([[], [{ttl, 60_000}], [{ttl, 20}], [{idle, 60_000}], [{idle, 20}]])].

any_calls() ->
    #{key => one_of([fun(N) -> N end, fun(N) -> {user, N} end,
                     fun(N) -> {a, {b, N}, [N, 1.5]} end, fun integer_to_binary/1]),
      keys => one_of([20, 300, 10_000, 1_000_000]),
      value => one_of([1, 10, 100, 1000])}.

any_key(#{key := Key, keys := Keys}) -> Key(rand:uniform(Keys)).

any_object(#{value := Most} = Calls) ->
    Value = case rand:uniform(4) of
                1 -> x;
                2 -> rand:uniform(1 bsl 60);
                3 -> lists:seq(1, rand:uniform(Most));
                4 -> binary:copy(<<1>>, rand:uniform(4 * Most))
            end,
    {any_key(Calls), Value}.

%% Small values have no binary outside of their objects, for which each object would have to be looked at.
any_used(Table, #{value := Most}) when 4 * Most =< 64 -> 8 * cats:info(Table, memory);
any_used(Table, _Calls) -> used(Table).

any_call(Table, Options, Calls) ->
    case rand:uniform(20) of
        N when N =< 10 -> any_insert(Table, Options, any_object(Calls));
        N when N =< 12 -> any_insert(Table, Options, [any_object(Calls) || _ <- lists:seq(1, rand:uniform(8))]);
        N when N =< 16 -> cats:delete(Table, any_key(Calls));
        17 -> [cats:delete(Table, any_key(Calls)) || _ <- lists:seq(1, 50)];
        18 -> rand:uniform(10) =:= 1 andalso cats:delete_all_objects(Table);
        19 -> cats:lookup(Table, any_key(Calls));
        20 ->
            %% What is changed in place takes a word more than in a fresh table.
            Key = any_key(Calls),
            {_, Value} = any_object(Calls),
            lists:member({evict, none}, Options)
                orelse try cats:update_element(Table, Key, {2, Value}, {Key, x}) catch error:system_limit -> refused end
    end.

any_insert(Table, Options, Objects) ->
    Refuses = fun(Contents) ->
                      Fresh = cats:new(t, Options),
                      true = cats:insert(Fresh, Contents),
                      ?assertEqual({Options, false}, {Options, try_insert(Fresh, Objects)}),
                      cats:delete(Fresh)
              end,
    case try_insert(Table, Objects) orelse Options =:= [] of
        true -> true;
        false ->
            case {lists:member({evict, none}, Options), [Short || {_, 20} = Short <- Options]} of
                {false, _} -> Refuses([]);
                {true, []} -> Refuses(cats:tab2list(Table));
                %% The contents are others by now.
                {true, _} -> true
            end
    end.

%% The same under several processes: nothing is refused that fits an empty table, and the limit is not passed.
any_size_together(_Config) ->
    [begin
         Limit = round(20_000 * math:pow(100, rand:uniform())),
         Options = [Type, public, {limit, {bytes, Limit}}, {evict, Policy},
                    {write_concurrency, one_of([true, false, auto])} | Expiry],
         Table = cats:new(t, Options),
         Calls = #{key => one_of([fun(N) -> N end, fun(N) -> {user, N} end]),
                   keys => one_of([20, 1000, 1_000_000]), value => 8},
         %% Without eviction, the contents of a table that refuses are others by now.
         Known = case Policy of none -> []; _ -> Options end,
         Seeds = [rand:uniform(1 bsl 50) || _ <- lists:seq(1, 4)],
         Processes = [spawn_monitor(fun() ->
                                            rand:seed(exsss, Seed),
                                            [any_call(Table, Known, Calls) || _ <- lists:seq(1, 3000)]
                                    end) || Seed <- Seeds],
         Most = most_until_down(Table, Processes, 0),
         ct:pal("~p of ~p: ~0p", [Most, Limit, Options]),
         ?assert(Most =< Limit, {Most, Options}),
         cats:delete(Table)
     end || Type <- [set, ordered_set], Policy <- [none | ?POLICIES], Expiry <- [[], [{ttl, 60_000}], [{idle, 20}]]].

most_until_down(Table, [], Most) -> max(Most, 8 * cats:info(Table, memory));
most_until_down(Table, [{_, Monitor} | Rest] = Processes, Most) ->
    Now = max(Most, 8 * cats:info(Table, memory)),
    receive
        {'DOWN', Monitor, _, _, Reason} ->
            ?assertEqual(normal, Reason),
            most_until_down(Table, Rest, Now)
    after 0 -> most_until_down(Table, Processes, Now)
    end.
