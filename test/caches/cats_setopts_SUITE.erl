%% What cats:setopts/2 changes of a table that has objects, and what cats:info/1 shows of it.
-module(cats_setopts_SUITE).
-include_lib("stdlib/include/assert.hrl").
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, end_per_testcase/2]).
-export([listed/1, used/1, used_bytes/1, refused/1, nothing_changes/1, only_the_owner/1, stats/1, ttl/1, lower/1,
         lower_bytes/1, higher/1, used_ones_stay/1, beside_writers/1, killed/1, nothing_evicted/1, policies/1,
         policy_of_many/1, emptied/1, beside_emptying/1, files/1, expired_first/1, random_limits/1]).

suite() -> [{timetrap, {minutes, 10}}].

all() ->
    [listed, used, used_bytes, refused, nothing_changes, only_the_owner, stats, ttl, lower, lower_bytes, higher,
     used_ones_stay, beside_writers, killed, nothing_evicted, policies, policy_of_many, emptied, beside_emptying, files,
     expired_first, random_limits].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(cats),
    Config.

end_per_suite(_Config) -> ok.

end_per_testcase(_Case, _Config) -> cats_nif:stop_clock(false).

-define(POLICIES, cats_test_lib:policies()).
-define(OF_CACHES, [ttl, idle, limit, evict, share, used]).

stop_clock() -> put(clock, cats_nif:stop_clock(erlang:unique_integer([positive]) * 1000000)).

pass(Milliseconds) -> put(clock, cats_nif:stop_clock(get(clock) + Milliseconds)).

%% The options of tables of each kind.
shapes() ->
    [[Type | Options] || Type <- [set, ordered_set, bag, duplicate_bag],
                         Options <- [[], [compressed], [{write_concurrency, true}], [{write_concurrency, auto}],
                                     [{write_concurrency, false}, private], [{stats, true}]]].

caches() -> [[Type, public | Options] || Type <- [set, ordered_set], Options <- [[], [{write_concurrency, true}]]].

%% info/1 lists what info/2 knows of a table, after the items of ets and the engine. Other tables list nothing new.
listed(_Config) ->
    [begin
         Table = cats:new(t, Options),
         ?assertEqual([Item || {Item, _} <- cats:info(Table), Item =/= engine],
                      [Item || {Item, _} <- ets:info(ets:new(t, []))]),
         ?assertEqual([undefined || _ <- ?OF_CACHES], [cats:info(Table, Item) || Item <- ?OF_CACHES])
     end || Options <- shapes()],
    Expiring = [{[{ttl, 5000}], [{ttl, 5000}, {idle, infinity}]},
                {[{ttl, infinity}], [{ttl, infinity}, {idle, infinity}]},
                {[{idle, 5000}], [{ttl, infinity}, {idle, 5000}]},
                {[{idle, 5000}, {ttl, 7000}], [{ttl, 7000}, {idle, 5000}]},
                {[], []}],
    Limited = [{[{limit, {objects, 7}}], [{limit, {objects, 7}}, {evict, s3_fifo}, {share, 10}, {used, 1}]},
               {[{limit, {objects, 7}}, {evict, none}], [{limit, {objects, 7}}, {evict, none}, {share, 10}, {used, 1}]},
               {[], []}],
    [begin
         Table = cats:new(t, Shape ++ E ++ L),
         true = cats:insert(Table, {1, 1}),
         ?assertEqual(Times ++ Limits, lists:nthtail(16, cats:info(Table))),
         [?assertEqual(Value, cats:info(Table, Item)) || {Item, Value} <- Times ++ Limits],
         Others = [Item || {Items, []} <- [{[ttl, idle], Times}, {[limit, evict, share, used], Limits}], Item <- Items],
         ?assertEqual([undefined || _ <- Others], [cats:info(Table, Item) || Item <- Others]),
         true = cats:delete(Table),
         ?assertEqual(undefined, cats:info(Table))
     end || Shape <- caches(), {E, Times} <- Expiring, {L, Limits} <- Limited],
    Table = cats:new(t, [{limit, {bytes, 100000}}]),
    ?assertMatch([{limit, {bytes, 100000}}, {evict, s3_fifo}, {share, 10}, {used, Used}] when Used < 100000,
                 lists:nthtail(16, cats:info(Table))),
    Snapshot = cats:snapshot(Table),
    ?assertEqual(16, length(cats:info(Snapshot))).

%% The objects of a limit that are used are those that are there.
used(_Config) ->
    stop_clock(),
    [begin
         Table = cats:new(t, Shape ++ [{ttl, 1000}, {limit, {objects, 1000}}, {evict, Policy}]),
         Check = fun(Size) ->
                         ?assertEqual([Size, Size], [cats:info(Table, Item) || Item <- [size, used]]),
                         ?assertMatch(#{used_objects := Size, limit_objects := 1000}, cats:stats(Table))
                 end,
         Check(0),
         true = cats:insert(Table, [{N, N} || N <- lists:seq(1, 500)]),
         Check(500),
         true = cats:insert(Table, [{N, x} || N <- lists:seq(401, 700)]),
         Check(700),
         [true = cats:delete(Table, N) || N <- lists:seq(1, 100)],
         Check(600),
         true = cats:insert(Table, [{{long, N}, N} || N <- lists:seq(1, 50)], #{ttl => infinity}),
         Check(650),
         pass(2000),
         Check(50),
         true = cats:delete_all_objects(Table),
         Check(0)
     end || Shape <- caches(), Policy <- [none | ?POLICIES]].

%% Bytes that objects pay are free again when they are gone, and a full table has used nearly all.
used_bytes(_Config) ->
    [begin
         Limit = 300_000,
         Table = cats:new(t, Shape ++ [{limit, {bytes, Limit}}, {evict, Policy}]),
         Used = fun() -> cats:info(Table, used) end,
         Empty = Used(),
         true = cats:insert(Table, {1, binary:copy(<<1>>, 10_000)}),
         One = Used(),
         ?assert(One - Empty > 10_000 andalso One - Empty < 11_000),
         ?assertMatch(#{used_bytes := One, limit_bytes := Limit}, cats:stats(Table)),
         true = cats:insert(Table, {1, 1}),
         ?assert(Used() < Empty + 300),
         true = cats:delete(Table, 1),
         ?assertEqual(Empty, Used()),
         _ = [catch cats:insert(Table, {N, x}) || N <- lists:seq(1, 10_000)],
         ?assert(Used() =< Limit andalso Used() > Limit - 200),
         ?assert(8 * cats:info(Table, memory) =< Used())
     end || Shape <- caches(), Policy <- [none | ?POLICIES]].

refused(_Config) ->
    Refused = fun(Options, Changes) -> cats_test_lib:remarks(setopts, [cats:new(t, Options), Changes]) end,
    [begin
         ?assertEqual(#{2 => <<"only a table that was created with option ttl can have another one">>},
                      Refused(Shape, {ttl, 5})),
         ?assertEqual(#{2 => <<"the table was created without option limit">>}, Refused(Shape, {limit, {objects, 5}})),
         ?assertEqual(#{2 => <<"the table was created without option limit">>}, Refused(Shape, [{evict, sieve}]))
     end || Shape <- shapes(), not lists:member(private, Shape)],
    ?assertEqual(#{2 => <<"only a table that was created with option ttl can have another one">>},
                 Refused([{idle, 5}], {ttl, 5})),
    ?assertEqual(#{2 => <<"only a table that was created with option ttl can have another one">>},
                 Refused([{limit, {objects, 5}}], {ttl, 5})),
    ?assertEqual(#{2 => <<"the limit of the table counts objects, as it was created">>},
                 Refused([{limit, {objects, 5}}], {limit, {bytes, 50000}})),
    ?assertEqual(#{2 => <<"the limit of the table counts bytes, as it was created">>},
                 Refused([{limit, {bytes, 50000}}], {limit, {objects, 5}})),
    ?assertEqual(#{2 => <<"the table was created with {evict, none}, so it does not know which objects to evict">>},
                 Refused([{limit, {objects, 5}}, {evict, none}], {evict, clock})),
    ?assertMatch(#{2 := <<"the limit of bytes is smaller than ", _/binary>>},
                 Refused([{limit, {bytes, 1000000}}], {limit, {bytes, 5000}})),
    [begin
         Text = io_lib:format("invalid option: {limit,{objects,~b}} (valid: {limit, {objects, N}} or {limit, {bytes, "
                              "N}}, with an integer from 1 to ~b)", [Number, Most]),
         ?assertEqual(#{2 => iolist_to_binary(Text)}, Refused([{limit, {objects, Most}}], {limit, {objects, Number}}))
     end || Most <- [(1 bsl 59) - 1], Number <- [0, Most + 1]],
    ?assertEqual(#{2 => <<"invalid option: {stats,1} (valid: {stats, true or false})">>}, Refused([], {stats, 1})),
    ?assertEqual(#{2 => <<"invalid option: {ttl,2} again">>}, Refused([{ttl, 5}], [{ttl, 1}, {ttl, 2}])).

%% A call that is refused has changed nothing.
nothing_changes(_Config) ->
    Table = cats:new(t, [public, {ttl, 5000}, {limit, {objects, 100}}]),
    true = cats:insert(Table, [{N, N} || N <- lists:seq(1, 100)]),
    Before = cats:info(Table),
    Good = [{ttl, 1000}, {limit, {objects, 10}}, {evict, sieve}, {stats, true}, {protection, private}, {heir, self()}],
    [?assertError(badarg, cats:setopts(Table, Good ++ [Bad]))
     || Bad <- [{limit, {bytes, 1000}}, {idle, 5}, {ttl, 0}, {ttl, 1}, foo, {keypos, 1}]],
    ?assertEqual(Before, cats:info(Table)),
    ?assertNot(is_map_key(lookups, cats:stats(Table))),
    ?assert(cats:setopts(Table, Good)),
    ?assertEqual([{protection, private}, {heir, self()}, {ttl, 1000}, {limit, {objects, 10}}, {evict, sieve},
                  {size, 10}],
                 [{Item, cats:info(Table, Item)} || Item <- [protection, heir, ttl, limit, evict, size]]),
    ?assert(is_map_key(lookups, cats:stats(Table))).

only_the_owner(_Config) ->
    Options = [{ttl, 5000}, {limit, {objects, 100}}],
    [Public, Protected, Private] = Tables = [cats:new(t, [Access | Options])
                                             || Access <- [public, protected, private]],
    Other = fun(Table, Option) ->
                    cats_test_lib:in_process(fun() -> try cats:setopts(Table, Option) catch error:E -> E end end)
            end,
    [?assertEqual(badarg, Other(Table, Option))
     || Table <- Tables,
        Option <- [{ttl, 1}, {limit, {objects, 1}}, {evict, clock}, [{stats, true}, {evict, clock}], []]],
    %% Operations are counted for whoever may write.
    ?assertEqual([true, badarg, badarg], [Other(Table, {stats, true}) || Table <- Tables]),
    ?assert(Other(Public, [{stats, false}])),
    ?assert(Other(Public, [{stats, true}])),
    ?assertEqual([true, false, false],
                 [is_map_key(lookups, cats:stats(Table)) || Table <- [Public, Protected, Private]]),
    Table = Public,
    Snapshot = cats:snapshot(Table),
    ?assertError(badarg, cats:setopts(Snapshot, {stats, true})).

%% Operations are counted while that is switched on.
stats(_Config) ->
    [begin
         Table = cats:new(t, lists:delete({stats, true}, Shape)),
         Counts = fun() -> maps:with([lookups, inserts], cats:stats(Table)) end,
         ?assertEqual(#{}, Counts()),
         ?assert(cats:setopts(Table, {stats, false})),
         true = cats:insert(Table, {1, 1}),
         ?assert(cats:setopts(Table, {stats, true})),
         ?assertEqual(#{lookups => 0, inserts => 0}, Counts()),
         [[_] = cats:lookup(Table, 1) || _ <- lists:seq(1, 10)],
         true = cats:insert(Table, [{1, 2}, {2, 2}]),
         ?assertEqual(#{lookups => 10, inserts => 2}, Counts()),
         ?assert(cats:setopts(Table, [{stats, false}])),
         [[_ | _] = cats:lookup(Table, 1) || _ <- lists:seq(1, 10)],
         ?assertEqual(#{}, Counts()),
         ?assert(cats:setopts(Table, [{stats, true}])),
         true = cats:delete_all_objects(Table),
         ?assertMatch(#{lookups := 10, inserts := 2}, Counts()),
         true = cats:delete(Table)
     end || Shape <- shapes()],
    %% A table in which nothing was written yet.
    Blank = cats:new(t, []),
    ?assert(cats:setopts(Blank, {stats, true})),
    [] = cats:lookup(Blank, 1),
    ?assertMatch(#{lookups := 1, misses := 1}, cats:stats(Blank)).

%% Objects keep their time. What is written from then on gets the new one.
ttl(_Config) ->
    stop_clock(),
    [begin
         Table = cats:new(t, Shape ++ Limit ++ [{ttl, First}]),
         true = cats:insert(Table, [{1, 1}, {2, 1}]),
         true = cats:insert(Table, {own, 1}, #{ttl => 77}),
         ?assert(cats:setopts(Table, {ttl, Second})),
         ?assertEqual(Second, cats:info(Table, ttl)),
         ?assertEqual([First, First, 77], [cats:ttl(Table, Key) || Key <- [1, 2, own]]),
         true = cats:insert(Table, [{2, 2}, {3, 2}]),
         2 = cats:update_counter(Table, 1, 1),
         3 = cats:update_counter(Table, 4, 1, {4, 2}),
         {5, made} = cats:fetch(Table, 5, fun(Key) -> {Key, made} end),
         ?assertEqual([First, Second, Second, Second, Second], [cats:ttl(Table, Key) || Key <- [1, 2, 3, 4, 5]]),
         pass(5000),
         ?assertEqual([Time =:= infinity || Time <- [First, Second, Second, Second, Second, 77]],
                      [cats:member(Table, Key) || Key <- [1, 2, 3, 4, 5, own]]),
         ?assertEqual(length([Key || Key <- [1, 2, 3, 4, 5, own], cats:member(Table, Key)]), cats:info(Table, size))
     end || Shape <- caches(), Limit <- [[], [{limit, {objects, 50}}]],
            {First, Second} <- [{1000, 3000}, {3000, 1000}, {infinity, 1000}, {1000, infinity}]],
    %% Beside an idle time, too.
    [begin
         Table = cats:new(t, Shape ++ [{idle, 1000}, {ttl, 1500}]),
         true = cats:insert(Table, {1, 1}),
         ?assert(cats:setopts(Table, {ttl, 500})),
         true = cats:insert(Table, {2, 1}),
         ?assert(cats:setopts(Table, {ttl, infinity})),
         true = cats:insert(Table, {3, 1}),
         ?assertEqual([1000, 500, 1000], [cats:ttl(Table, Key) || Key <- [1, 2, 3]]),
         pass(900),
         _ = cats:lookup_many(Table, [1, 2, 3]),
         ?assertEqual([600, undefined, 1000], [cats:ttl(Table, Key) || Key <- [1, 2, 3]])
     end || Shape <- caches()].

%% A lower limit holds when the call returns, with as many objects as it allows.
lower(_Config) ->
    [begin
         Table = cats:new(t, Shape ++ [{limit, {objects, From}}, {evict, Policy}]),
         true = cats:insert_many(Table, [{N, N} || N <- lists:seq(1, From + From div 2)]),
         ?assertEqual(From, cats:info(Table, size)),
         ?assert(cats:setopts(Table, {limit, {objects, To}})),
         ?assertEqual([To, To, {objects, To}], [cats:info(Table, Item) || Item <- [size, used, limit]]),
         ?assertEqual(To, length(cats:tab2list(Table))),
         %% The table is as one that was made so.
         true = cats:insert_many(Table, [{{new, N}, N} || N <- lists:seq(1, 2 * To)]),
         ?assertEqual([To, To], [cats:info(Table, Item) || Item <- [size, used]]),
         true = cats:delete_all_objects(Table),
         true = cats:insert_many(Table, [{N, N} || N <- lists:seq(1, 2 * To)]),
         ?assertEqual([To, To], [cats:info(Table, Item) || Item <- [size, used]]),
         true = cats:delete(Table)
     end || Shape <- caches(), Policy <- ?POLICIES,
            {From, To} <- [{10, 1}, {10, 10}, {1000, 10}, {1000, 999}, {30_000, 10}, {30_000, 15_000}]].

%% Of bytes, the memory stays within the limit, too.
lower_bytes(_Config) ->
    [begin
         Table = cats:new(t, Shape ++ Times ++ [{limit, {bytes, From}}, {evict, Policy}]),
         true = cats:insert_many(Table, [{Key(N), N} || N <- lists:seq(1, From div 60)]),
         ?assert(cats:setopts(Table, {limit, {bytes, To}})),
         Holds = fun() ->
                         Used = cats:info(Table, used),
                         Memory = 8 * cats:info(Table, memory),
                         ?assert(Used =< To andalso Used > To * 0.9),
                         ?assertEqual([], [{Shape, Times, Policy, Key(1), From, To, Memory} || Memory > To]),
                         ?assertEqual(length(cats:tab2list(Table)), cats:info(Table, size))
                 end,
         Holds(),
         true = cats:insert_many(Table, [{Key({new, N}), N} || N <- lists:seq(1, To div 50)]),
         Holds(),
         true = cats:delete(Table)
     end || Shape <- caches(), Times <- [[], [{ttl, 100_000}]], Policy <- ?POLICIES,
            Key <- [fun(N) -> N end, fun(N) -> {N, "a key that is copied"} end],
            {From, To} <- [{50_000, 40_000}, {1_000_000, 300_000}, {2_500_000, 500_000}]].

%% A higher one lets the table grow at once, as one that was made with it.
higher(_Config) ->
    [begin
         Table = cats:new(t, Shape ++ [{limit, {Unit, From}}, {evict, Policy}]),
         Fill = fun(Name, Objects) ->
                        _ = [catch cats:insert(Table, {{Name, N}, N}) || N <- lists:seq(1, Objects)],
                        Table
                end,
         Fill(a, 200),
         Before = cats:info(Table, size),
         ?assert(cats:setopts(Table, {limit, {Unit, To}})),
         ?assertEqual(Before, cats:info(Table, size)),
         Fill(b, 30_000),
         Used = cats:info(Table, used),
         ?assert(Used =< To andalso Used > To * 0.99),
         ?assert(Unit =:= bytes orelse cats:info(Table, size) =:= To),
         ?assert(Unit =:= objects orelse 8 * cats:info(Table, memory) =< To),
         %% And back.
         case Policy of
             none ->
                 ok;
             _ ->
                 Back = case Unit of objects -> From; bytes -> To div 2 end,
                 ?assert(cats:setopts(Table, {limit, {Unit, Back}})),
                 ?assert(cats:info(Table, used) =< Back),
                 Fill(c, 100),
                 ?assert(cats:info(Table, used) =< Back)
         end,
         true = cats:delete(Table)
     end || Shape <- caches(), Policy <- [none | ?POLICIES],
            {Unit, From, To} <- [{objects, 10, 20_000}, {objects, 100, 101}, {bytes, 20_000, 1_500_000}]].

%% What is used again and again stays when the limit becomes lower, and after that. Far fewer shards have it then.
used_ones_stay(_Config) ->
    [begin
         Table = cats:new(t, [Type, {limit, {objects, 20_000}}, {evict, Policy}]),
         Hot = [{hot, N} || N <- lists:seq(1, 10)],
         true = cats:insert(Table, [{Key, 0} || Key <- Hot]),
         Use = fun(When) ->
                       Lost = [Key || _ <- [1, 2, 3], Key <- Hot, cats:lookup(Table, Key) =:= []],
                       Again = [{Key, cats:lookup(Table, Key)} || Key <- Lost],
                       ?assertEqual({Type, Policy, When, []}, {Type, Policy, When, Again})
               end,
         [begin
              Use({before, Round}),
              true = cats:insert_many(Table, [{{cold, Round, N}, 0} || N <- lists:seq(1, 1000)])
          end || Round <- lists:seq(1, 25)],
         Use(before),
         ?assert(cats:setopts(Table, {limit, {objects, 100}})),
         [begin
              Use({'after', Round}),
              true = cats:insert(Table, [{{cool, Round, N}, 0} || N <- lists:seq(1, 10)])
          end || Round <- lists:seq(1, 200)],
         ?assertEqual(100, cats:info(Table, size))
     end || Type <- [set, ordered_set], Policy <- ?POLICIES].

%% While the limit becomes lower and others write, it holds at each instant.
beside_writers(_Config) ->
    [begin
         Table = cats:new(t, [Type, public, {write_concurrency, true}, {limit, {objects, 50_000}}, {evict, Policy}]),
         true = cats:insert_many(Table, [{N, N} || N <- lists:seq(1, 50_000)]),
         Writers = [spawn_link(fun() -> write(Table, Seed, 1) end) || Seed <- [1, 2]],
         Looker = spawn_link(fun() -> look(Table, infinity) end),
         [?assert(cats:setopts(Table, {limit, {objects, Limit}})) || Limit <- [20_000, 19_000, 5000, 100, 3]],
         ?assertEqual({objects, 3}, cats:info(Table, limit)),
         ?assert(cats:info(Table, size) =< 3),
         [cats_test_lib:stop(Pid, kill) || Pid <- begin [unlink(P) || P <- Writers], Writers end],
         Looker ! {stop, self()},
         receive {looked, Number} -> ct:pal("~p ~p: ~p looks", [Type, Policy, Number]) end,
         cats_test_lib:eventually(fun() -> cats:info(Table, used) =:= cats:info(Table, size) end),
         true = cats:delete(Table)
     end || Type <- [set, ordered_set], Policy <- ?POLICIES].

write(Table, Seed, N) ->
    Key = erlang:phash2({Seed, N}, 100_000),
    case N rem 4 of
        0 -> cats:delete(Table, Key);
        1 -> cats:insert(Table, [{Key, N}, {Key + 1, N}]);
        _ -> cats:insert(Table, {Key, N})
    end,
    write(Table, Seed, N + 1).

%% The limit is read before the size, and only becomes lower.
look(Table, Before) -> look(Table, Before, 1).

look(Table, Before, Number) ->
    {objects, Limit} = cats:info(Table, limit),
    Size = cats:info(Table, size),
    true = Limit =< Before andalso Size =< Limit,
    receive
        {stop, From} -> From ! {looked, Number}
    after 0 ->
            look(Table, Limit, Number + 1)
    end.

%% Who lowers a limit is killed. The limit is somewhere between then, and holds. The heir goes on.
killed(_Config) ->
    Between = [begin
                   Heir = self(),
                   Owner = cats_test_lib:spawn_owner(
                             fun() ->
                                     T = cats:new(t, [Type, public, {heir, Heir, t}, {limit, {objects, 100_000}},
                                                      {evict, Policy}]),
                                     true = cats:insert_many(T, [{N, N} || N <- lists:seq(1, 100_000)]),
                                     T
                             end),
                   {Pid, Table} = Owner,
                   Pid ! {run, self(), make_ref(), fun() -> cats:setopts(Table, {limit, {objects, 10}}) end},
                   until_below(Table, 99_000),
                   cats_test_lib:stop(Pid, kill),
                   receive {'ETS-TRANSFER', Table, Pid, t} -> ok end,
                   {objects, Limit} = cats:info(Table, limit),
                   ?assertEqual([Limit, Limit], [cats:info(Table, Item) || Item <- [size, used]]),
                   true = cats:insert_many(Table, [{{new, N}, N} || N <- lists:seq(1, 1000)]),
                   ?assertEqual(Limit, cats:info(Table, size)),
                   ?assert(cats:setopts(Table, {limit, {objects, 10}})),
                   ?assertEqual([10, 10], [cats:info(Table, Item) || Item <- [size, used]]),
                   ?assert(cats:setopts(Table, {limit, {objects, 100}})),
                   true = cats:insert_many(Table, [{{newer, N}, N} || N <- lists:seq(1, 1000)]),
                   ?assertEqual(100, cats:info(Table, size)),
                   true = cats:delete(Table),
                   Limit
               end || Type <- [set, ordered_set], Policy <- ?POLICIES],
    ct:pal("killed at ~p", [Between]),
    ?assert(lists:any(fun(Limit) -> Limit > 10 end, Between)).

until_below(Table, Limit) ->
    case cats:info(Table, limit) of
        {objects, Present} when Present < Limit -> ok;
        _ -> until_below(Table, Limit)
    end.

%% Where nothing is evicted, a limit below what is there is refused.
nothing_evicted(_Config) ->
    [begin
         Table = cats:new(t, Shape ++ [{limit, {objects, 100}}, {evict, none}, {ttl, infinity}]),
         true = cats:insert(Table, [{N, N} || N <- lists:seq(1, 50)]),
         ?assert(cats:setopts(Table, {limit, {objects, 50}})),
         ?assertError(system_limit, cats:insert(Table, {51, 51})),
         Text = try cats:setopts(Table, [{ttl, 5}, {limit, {objects, 49}}])
                catch error:system_limit:Stack -> maps:get(1, cats_failure:format_error(system_limit, Stack))
                end,
         ?assertMatch({match, _}, re:run(Text, "more of its limit .* than the new one allows, and evicts nothing")),
         ?assertEqual([{objects, 50}, 50, infinity], [cats:info(Table, Item) || Item <- [limit, size, ttl]]),
         true = cats:delete(Table, 1),
         ?assert(cats:setopts(Table, {limit, {objects, 49}})),
         ?assert(cats:setopts(Table, {limit, {objects, 60}})),
         true = cats:insert(Table, [{{new, N}, N} || N <- lists:seq(1, 11)]),
         ?assertError(system_limit, cats:insert(Table, {51, 51}))
     end || Shape <- caches()],
    %% With another policy in the same call, room is made.
    Table = cats:new(t, [{limit, {objects, 100}}]),
    true = cats:insert(Table, [{N, N} || N <- lists:seq(1, 100)]),
    ?assert(cats:setopts(Table, {evict, none})),
    ?assertError(system_limit, cats:setopts(Table, {limit, {objects, 10}})),
    ?assert(cats:setopts(Table, [{limit, {objects, 10}}, {evict, clock}])),
    ?assertEqual([10, clock], [cats:info(Table, Item) || Item <- [size, evict]]).

%% Each policy takes the place of each other one, with the objects that are there.
policies(_Config) ->
    [begin
         Table = cats:new(t, [Type, {limit, {Unit, Limit}}, {evict, One}]),
         Hot = [{hot, N} || N <- lists:seq(1, 10)],
         true = cats:insert(Table, [{Key, 0} || Key <- Hot]),
         Round = fun(Name, Number) ->
                         [[_] = cats:lookup(Table, Key) || _ <- [1, 2, 3], Key <- Hot],
                         true = cats:insert(Table, [{{Name, Number, N}, 0} || N <- lists:seq(1, 10)])
                 end,
         [Round(one, N) || N <- lists:seq(1, 50)],
         ?assert(cats:setopts(Table, {evict, none})),
         Size = cats:info(Table, size),
         ?assertError(system_limit, [cats:insert(Table, {{more, N}, 0}) || N <- lists:seq(1, 100)]),
         ?assert(cats:info(Table, size) >= Size),
         ?assert(cats:setopts(Table, {evict, Other})),
         ?assertEqual(Other, cats:info(Table, evict)),
         [Round(other, N) || N <- lists:seq(1, 200)],
         ?assert(cats:info(Table, used) =< Limit),
         ?assert(Unit =:= objects orelse 8 * cats:info(Table, memory) =< Limit),
         %% S3-FIFO keeps what came first as long as what passes by goes through its small queue.
         ?assert(Other =:= s3_fifo orelse [] =:= [Object || {{one, _, _}, _} = Object <- cats:tab2list(Table)]),
         true = cats:delete(Table)
     end || Type <- [set, ordered_set], One <- ?POLICIES, Other <- ?POLICIES,
            {Unit, Limit} <- [{objects, 100}, {bytes, 40_000}]].

%% Another policy for many objects that are in many shards.
policy_of_many(_Config) ->
    [begin
         Table = cats:new(t, [Type, {limit, {objects, 100_000}}, {evict, One}]),
         true = cats:insert_many(Table, [{N, N} || N <- lists:seq(1, 100_000)]),
         [begin
              ?assert(cats:setopts(Table, {evict, Policy})),
              true = cats:insert_many(Table, [{{Policy, N}, N} || N <- lists:seq(1, 60_000)]),
              ?assertEqual([100_000, 100_000], [cats:info(Table, Item) || Item <- [size, used]])
          end || Policy <- ?POLICIES ++ ?POLICIES],
         true = cats:delete(Table)
     end || Type <- [set, ordered_set], One <- ?POLICIES].

%% What is changed stays so when the table is emptied.
emptied(_Config) ->
    [begin
         Table = cats:new(t, Shape ++ [{ttl, 1000}, {limit, {objects, 10}}]),
         ?assert(cats:setopts(Table, [{ttl, 2000}, {limit, {objects, 5}}, {evict, sieve}, {stats, true}])),
         true = cats:delete_all_objects(Table),
         ?assertEqual([2000, {objects, 5}, sieve], [cats:info(Table, Item) || Item <- [ttl, limit, evict]]),
         true = cats:insert(Table, [{N, N} || N <- lists:seq(1, 5)]),
         true = cats:insert(Table, {6, 6}),
         ?assertEqual(5, cats:info(Table, size)),
         ?assert(cats:ttl(Table, 6) > 1000)
     end || Shape <- caches()].

%% The table is emptied all the time. It has the last settings in the end.
beside_emptying(_Config) ->
    [begin
         Table = cats:new(t, Shape ++ [{ttl, 1000}, {limit, {objects, 10_000}}]),
         Objects = [{N, N} || N <- lists:seq(1, 3000)],
         Empty = fun() ->
                         true = cats:insert_many(Table, Objects),
                         true = cats:delete_all_objects(Table)
                 end,
         Emptier = spawn_link(fun() -> cats_test_lib:forever(Empty) end),
         [begin
              Limit = 1 + erlang:phash2(N, 4000),
              ?assert(cats:setopts(Table, [{ttl, N}, {limit, {objects, Limit}}])),
              ?assertEqual([N, {objects, Limit}], [cats:info(Table, Item) || Item <- [ttl, limit]])
          end || N <- lists:seq(1000, 1000 + cats_test_lib:rounds(200))],
         unlink(Emptier),
         cats_test_lib:stop(Emptier, kill),
         true = cats:delete(Table)
     end || Shape <- caches()].

%% A file has the settings that the table had then.
files(_Config) ->
    File = filename:join(os:getenv("TMPDIR", "/tmp"), "cats_setopts_" ++ os:getpid()),
    [begin
         Table = cats:new(t, Shape ++ Options),
         true = cats:insert(Table, [{N, N} || N <- lists:seq(1, 10)]),
         ?assert(cats:setopts(Table, Changes)),
         ok = cats:tab2file(Table, File),
         {ok, Read} = cats:file2tab(File),
         Items = [ttl, idle, limit, evict, share, used, size],
         ?assertEqual([cats:info(Table, Item) || Item <- Items], [cats:info(Read, Item) || Item <- Items])
     end || Shape <- caches(),
            {Options, Changes} <- [{[{ttl, 60_000}, {limit, {objects, 20}}],
                                    [{ttl, 70_000}, {limit, {objects, 9}}, {evict, clock}]},
                                   {[{idle, 60_000}, {limit, {objects, 20}}], {limit, {objects, 30}}},
                                   {[{limit, {objects, 20}}], {evict, none}}]],
    _ = file:delete(File).

%% What has expired needs no room.
expired_first(_Config) ->
    [begin
         stop_clock(),
         Table = cats:new(t, Shape ++ [{ttl, 1000}, {limit, {objects, 100}}, {evict, Policy}]),
         true = cats:insert(Table, [{N, N} || N <- lists:seq(1, 60)]),
         pass(900),
         true = cats:insert(Table, [{N, N} || N <- lists:seq(61, 80)]),
         pass(200),
         ?assertEqual(20, cats:info(Table, used)),
         ?assert(cats:setopts(Table, {limit, {objects, 20}})),
         ?assertEqual(lists:seq(61, 80), lists:sort([Key || {Key, _} <- cats:tab2list(Table)]))
     end || Shape <- caches(), Policy <- [none | ?POLICIES]].

%% Limits that become higher and lower at random, with objects of random sizes.
random_limits(_Config) ->
    [begin
         Table = cats:new(t, [Type, public, {limit, {Unit, Most}} | Times]),
         lists:foldl(fun(_, Limit) ->
                             Size = rand:uniform(300),
                             [true = cats:insert(Table, {rand:uniform(100_000), binary:copy(<<1>>, rand:uniform(Size))})
                              || _ <- lists:seq(1, rand:uniform(500))],
                             ?assert(cats:info(Table, used) =< Limit),
                             ?assert(Unit =:= objects orelse 8 * cats:info(Table, memory) =< Limit),
                             ?assertEqual(cats:info(Table, size), length(cats:tab2list(Table))),
                             ?assert(Unit =:= bytes orelse cats:info(Table, size) =:= cats:info(Table, used)),
                             Next = case Unit of
                                        objects -> rand:uniform(Most);
                                        bytes -> Most div 4 + rand:uniform(Most)
                                    end,
                             ?assert(cats:setopts(Table, [{limit, {Unit, Next}}
                                                          | [{evict, cats_test_lib:one_of(?POLICIES)}
                                                             || rand:uniform(5) =:= 1]])),
                             ?assertEqual({Unit, Next}, cats:info(Table, limit)),
                             ?assert(cats:info(Table, used) =< Next),
                             ?assert(Unit =:= objects orelse 8 * cats:info(Table, memory) =< Next),
                             Next
                     end, Most, lists:seq(1, cats_test_lib:rounds(60))),
         true = cats:delete(Table)
     end || Type <- [set, ordered_set], Times <- [[], [{ttl, 1000}], [{idle, 1000}]],
            {Unit, Most} <- [{objects, 3000}, {objects, 20_000}, {bytes, 400_000}, {bytes, 3_000_000}]].
