%% What cats:stats/0,1 counts: operations exactly, and rare events where they happen.
-module(cats_stats_SUITE).
-include_lib("stdlib/include/assert.hrl").
-measures([waits_and_adaptation, adaptation_of_others]).
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([operations/1, operations_by_name/1, operations_of_the_owner/1, operations_of_many_processes/1, transactions/1,
         long_calls_count_once/1, not_counted_without_option/1, waits_and_adaptation/1, adaptation_of_others/1,
         growth/1, delta/1,
         kept_when_emptied/1, tables_that_are_gone/1, removals/1, garbage/1, list_on_the_terminal/1, top/1,
         top_of_another_node/1, memory/1]).
-export([contend/1]).

%% How often processes contend in vain before a case gives up.
-define(ROUNDS, 500).

suite() -> [{timetrap, {minutes, 10}}].

all() ->
    [operations, operations_by_name, operations_of_the_owner, operations_of_many_processes, transactions,
     long_calls_count_once, not_counted_without_option, waits_and_adaptation, adaptation_of_others,
     growth, delta, kept_when_emptied,
     tables_that_are_gone, removals, garbage, list_on_the_terminal, top, top_of_another_node,
     memory].

init_per_suite(Config) -> cats_test_lib:only_cats(cats_test_lib:start(Config)).

end_per_suite(_Config) -> ok.

-define(KINDS, [lookups, hits, misses, inserts, updates, deletes, steps, scans]).

counted(Table) -> [maps:get(Kind, cats:stats(Table)) || Kind <- ?KINDS].

types() -> [set, ordered_set, bag, duplicate_bag].

operations(_Config) ->
    [every_operation(cats:new(table, [Type, public, {stats, true} | Options]))
     || Type <- types(), Options <- [[], [compressed]]],
    every_operation(cats:new(table, [{engine, std_hash}, {stats, true}])).

operations_by_name(_Config) ->
    [begin
         every_operation(cats:new(counted_by_name, [Type, public, named_table, {stats, true}])),
         cats:delete(counted_by_name)
     end || Type <- types()].

%% The caller is the owner, and others may not use the table.
operations_of_the_owner(_Config) ->
    [begin
         Table = cats:new(counted_by_name, [Type, private, {stats, true} | Options]),
         %% A table without contents of its own is looked at more closely.
         cats:insert(Table, {1, a}),
         ?assertEqual(access,
                      cats_test_lib:in_process(fun() -> cats_test_lib:cause(fun() -> cats:lookup(Table, 1) end) end)),
         cats:delete(Table)
     end || Type <- types(), Options <- [[named_table], []]],
    [every_operation(cats:new(table, [Type, Access, {stats, true}]))
     || Type <- types(), Access <- [private, protected]].

every_operation(Table) ->
    Steps = [{fun() -> cats:insert(Table, {1, a}) end, #{inserts => 1}},
             {fun() -> cats:insert(Table, [{2, a}, {3, a}, {4, a}]) end, #{inserts => 3}},
             {fun() -> cats:insert_new(Table, {5, a}) end, #{inserts => 1}},
             {fun() -> cats:insert_many(Table, [{N, a} || N <- lists:seq(6, 1000)]) end, #{inserts => 995}},
             {fun() -> cats:lookup(Table, 1) end, #{lookups => 1, hits => 1}},
             {fun() -> cats:lookup(Table, {no, key}) end, #{lookups => 1, misses => 1}},
             {fun() -> cats:lookup(Table, x) end, #{lookups => 1, misses => 1}},
             {fun() -> cats:member(Table, 1) end, #{lookups => 1, hits => 1}},
             {fun() -> cats:member(Table, x) end, #{lookups => 1, misses => 1}},
             {fun() -> cats:lookup_element(Table, 1, 2) end, #{lookups => 1, hits => 1}},
             {fun() -> cats:lookup_element(Table, x, 2, b) end, #{lookups => 1, misses => 1}},
             {fun() -> cats_test_lib:cause(fun() -> cats:lookup_elements(Table, x, [2]) end) end,
              #{lookups => 1, misses => 1}},
             {fun() -> cats:lookup_many(Table, [x | lists:seq(1, 900)]) end,
              #{lookups => 901, hits => 900, misses => 1}},
             {fun() -> cats:first(Table) end, #{steps => 1}},
             {fun() -> cats:next(Table, 1) end, #{steps => 1}},
             {fun() -> cats:next_lookup(Table, 1) end, #{steps => 1}},
             {fun() -> cats:select(Table, [{{'$1', '_'}, [], ['$1']}]) end, #{scans => 1}},
             {fun() -> cats:tab2list(Table) end, #{scans => 1}},
             {fun() -> cats:delete(Table, 1) end, #{deletes => 1}},
             {fun() -> cats:delete(Table, {no, key}) end, #{deletes => 1}},
             {fun() -> cats:delete_object(Table, {2, a}) end, #{deletes => 1}},
             {fun() -> cats:take(Table, 3) end, #{deletes => 1}},
             {fun() -> cats:delete_many(Table, lists:seq(4, 900)) end, #{deletes => 897}},
             {fun() -> cats:take_many(Table, lists:seq(901, 905)) end, #{deletes => 5}},
             {fun() -> cats:delete_all_objects(Table) end, #{deletes => 1}},
             {fun() -> [cats:info(Table, Item) || Item <- [size, memory, binary, stats]] end, #{}}
            | single(Table, cats:info(Table, type))],
    [begin
         Before = counted(Table),
         Step(),
         ?assertEqual(Expected, nonzero(Before, counted(Table)), {Number, cats:info(Table, type)})
     end || {Number, {Step, Expected}} <- lists:enumerate(Steps)],
    #{operations := All} = Stats = cats:stats(Table),
    ?assertEqual(All, lists:sum([maps:get(Kind, Stats) || Kind <- ?KINDS -- [hits, misses]])).

single(Table, Type) when Type =:= set; Type =:= ordered_set ->
    [{fun() -> cats:insert(Table, {c, 1, 2}) end, #{inserts => 1}},
     {fun() -> cats:update_counter(Table, c, 1) end, #{updates => 1}},
     {fun() -> cats:update_counter(Table, {c}, {2, 1}, {x, 0}) end, #{updates => 1}},
     {fun() -> cats:update_element(Table, c, {3, x}) end, #{updates => 1}},
     {fun() -> cats:add(Table, c, 1) end, #{updates => 1}},
     {fun() -> cats:replace(Table, {c, 3, x}, {c, 4, y}) end, #{updates => 1}},
     {fun() -> cats:fetch(Table, c, fun(K) -> {K} end) end, #{lookups => 1, hits => 1}}];
single(_Table, _Type) ->
    [].

nonzero(Before, After) ->
    maps:from_list([{Kind, A - B} || {Kind, B, A} <- lists:zip3(?KINDS, Before, After), A =/= B]).

%% Also threads that share a counter, if there are more schedulers than stripes.
operations_of_many_processes(_Config) ->
    Table = cats:new(table, [public, {stats, true}]),
    Work = fun() ->
                   [begin
                        cats:insert(Table, {N rem 50, N}),
                        cats:lookup(Table, N rem 100)
                    end || N <- lists:seq(1, 10000)]
           end,
    Workers = [spawn_monitor(Work) || _ <- lists:seq(1, 16)],
    [receive {'DOWN', Monitor, _, _, normal} -> ok end || {_, Monitor} <- Workers],
    #{inserts := Inserts, lookups := Lookups, hits := Hits} = cats:stats(Table),
    ?assertEqual({160000, 160000}, {Inserts, Lookups}),
    ?assert(Hits >= 16 * 4950 andalso Hits =< 80000).

transactions(_Config) ->
    Table = cats:new(table, [public, {stats, true}]),
    cats_transaction:run(fun() ->
                                 [] = cats_transaction:read(Table, a),
                                 cats_transaction:insert(Table, {a, 1}),
                                 cats_transaction:delete(Table, b)
                         end),
    ?assertMatch(#{lookups := 1, inserts := 1, deletes := 1}, cats:stats(Table)).

%% A call that is made again on a dirty scheduler is one operation, and so is one that runs in slices.
long_calls_count_once(_Config) ->
    Table = cats:new(table, [{stats, true}]),
    cats:insert(Table, [{N, N} || N <- lists:seq(1, 200000)]),
    ?assertMatch(#{inserts := 200000, dirty := 1}, cats:stats(Table)),
    200000 = cats:select_count(Table, [{'_', [], [true]}]),
    200000 = length(cats:tab2list(Table)),
    #{scans := 2, slices := Slices} = cats:stats(Table),
    ?assert(Slices > 0),
    %% Nothing was counted before this one.
    Other = cats:new(table, [{stats, true}]),
    cats:insert(Other, {1, binary:copy(<<1>>, 100)}),
    cats:insert(Other, [{N, binary:copy(<<1>>, 100)} || N <- lists:seq(1, 900)]),
    Before = counted(Other),
    [_ | _] = cats:info(Other, binary),
    ?assertEqual(Before, counted(Other)).

not_counted_without_option(_Config) ->
    [?assertEqual([], [Kind || Kind <- [operations | ?KINDS], is_map_key(Kind, cats:stats(cats:new(table, Options)))])
     || Options <- [[], [{stats, false}], [{stats, true}, {stats, false}]]],
    ?assertError(badarg, cats:new(table, [{stats, yes}])),
    Table = cats:new(table, [public, {stats, true}]),
    Snapshot = cats:snapshot(Table),
    cats:lookup(Snapshot, a),
    ?assertEqual(false, is_map_key(lookups, cats:stats(Snapshot))).

%% Schedulers that write to the same keys wait for each other, unless the machine runs one after the other.
waits_and_adaptation(_Config) ->
    [begin
         Table = cats:new(table, [Type, public]),
         cats:insert(Table, [{N, 0} || N <- lists:seq(1, 1000)]),
         #{waits := 0, busy := 0, reads_repeated := 0} = cats:stats(Table),
         contend(Table),
         #{waits := Waits, waits_by_length := Classes, wait_time := Time,
           waits_given_up := GivenUp} = cats:stats(Table),
         ?assertEqual(Waits, lists:sum([Number || {_, Number} <- Classes])),
         ?assertEqual([1, 4, 16, 64, 256, infinity], [Below || {Below, _} <- Classes]),
         ?assert(Time * 1000 >= 0),
         ?assert(GivenUp =< Waits)
     end || Type <- [set, ordered_set]].

%% @doc Lets processes write to the same few keys, and one to them and others at once, until one has waited.
contend(Table) ->
    Objects = [{N, N} || N <- lists:seq(0, 499)],
    contend(Table,
            [fun() -> [cats:insert(Table, Objects) || _ <- lists:seq(1, 300)] end
             | lists:duplicate(3, fun() -> [cats:insert(Table, {N rem 4, N}) || N <- lists:seq(1, 50000)] end)],
            waits, ?ROUNDS).

contend(Table, Works, Figure, Rounds) ->
    Workers = [spawn_monitor(Work) || Work <- Works],
    [receive {'DOWN', Monitor, _, _, normal} -> ok end || {_, Monitor} <- Workers],
    case cats:stats(Table) of
        #{Figure := 0} ->
            ?assert(Rounds > 0),
            contend(Table, Works, Figure, Rounds - 1);
        #{} ->
            ok
    end.

%% The trees for comparison split base nodes, and `linear_hash' doubles its bucket locks.
adaptation_of_others(_Config) ->
    [begin
         Table = cats:new(table, [public | Options]),
         cats:insert(Table, [{N, 0} || N <- lists:seq(1, 1000)]),
         ?assertMatch(#{splits := 0}, cats:stats(Table)),
         Work = fun() -> [cats:insert(Table, {7, N}) || N <- lists:seq(1, 50000)] end,
         contend(Table, lists:duplicate(4, Work), splits, ?ROUNDS),
         #{splits := Splits, joins := Joins} = cats:stats(Table),
         [?assertEqual(1 + Splits - Joins, cats:info(Table, base_nodes)) || [ordered_set | _] <- [Options]],
         cats:delete_all_objects(Table),
         ?assertMatch(#{splits := Splits, joins := Joins}, cats:stats(Table))
     end || Options <- [[ordered_set, {engine, ca_avl}, {split, 0}, {join, 0}],
                        [ordered_set, {engine, ca_treap}, {split, 0}, {join, 0}],
                        [{engine, linear_hash}, {write_concurrency, auto}]]].

growth(_Config) ->
    Table = cats:new(table, []),
    cats:insert(Table, [{N} || N <- lists:seq(1, 10000)]),
    {Buckets, _, _, _, _, _, _, _} = cats:info(Table, stats),
    ?assertMatch(#{splits := Splits, joins := 0} when Splits =:= Buckets - 1, cats:stats(Table)),
    [cats:delete(Table, N) || N <- lists:seq(1, 10000)],
    {Left, _, _, _, _, _, _, _} = cats:info(Table, stats),
    #{splits := Splits, joins := Joins} = cats:stats(Table),
    ?assertEqual(Left - 1, Splits - Joins),
    ?assert(Joins > 0).

delta(_Config) ->
    Table = cats:new(table, [{stats, true}]),
    cats:insert(Table, {1}),
    {One, All} = {cats:stats(Table), cats:stats()},
    ?assertMatch(#{Table := #{inserts := 1}}, All),
    timer:sleep(4),
    cats:insert(Table, [{2}, {3}]),
    New = cats:new(table, [{stats, true}]),
    cats:insert(New, {1}),
    Delta = cats:stats_delta(One, cats:stats(Table)),
    ?assertMatch(#{inserts := 2, size := 2, lookups := 0, waits_by_length := [{1, 0} | _]}, Delta),
    %% By another clock than that of the VM.
    ?assert(maps:get(time, Delta) >= 3000),
    ?assertMatch(#{Table := #{inserts := 2}, New := #{inserts := 1, size := 1}}, cats:stats_delta(All, cats:stats())),
    cats:delete(Table),
    ?assertNot(is_map_key(Table, cats:stats_delta(All, cats:stats()))),
    Remarks = fun(Earlier, Later) ->
                      try cats:stats_delta(Earlier, Later)
                      catch error:badarg:Stack -> cats_failure:format_error(badarg, Stack)
                      end
              end,
    No = <<"not what stats/0 or stats/1 returned">>,
    ?assertEqual(#{1 => No, 2 => No}, Remarks(foo, bar)),
    ?assertEqual(#{1 => No}, Remarks(undefined, cats:stats())),
    %% A table may have the name of an item of statistics.
    Named = cats:new(time, [named_table]),
    Later = cats:stats(),
    ?assertMatch(#{time := #{size := 0}}, cats:stats_delta(cats:stats(), Later)),
    [?assertEqual(#{2 => <<"not the same kind of statistics as the first ones">>}, Remarks(A, B))
     || {A, B} <- [{#{one => One}, One#{one => 1}}, {All, One}, {One, All}, {#{}, One}, {One, #{}}, {Later, One}]],
    true = cats:delete(Named).

kept_when_emptied(_Config) ->
    Table = cats:new(table, [{stats, true}]),
    cats:insert(Table, [{N} || N <- lists:seq(1, 10000)]),
    #{splits := Splits, dirty := Dirty} = cats:stats(Table),
    ?assert(Splits > 0),
    cats:delete_all_objects(Table),
    ?assertMatch(#{splits := Splits, dirty := Dirty, inserts := 10000, deletes := 1}, cats:stats(Table)).

tables_that_are_gone(_Config) ->
    Table = cats:new(table, []),
    cats:delete(Table),
    ?assertEqual(undefined, cats:stats(Table)),
    ?assertEqual(undefined, cats:stats(no_such_table)),
    ?assertError(badarg, cats:stats(17)),
    ?assertError(badarg, cats:stats(make_ref())),
    Stop = spawn(fun() -> come_and_go() end),
    [cats:stats() || _ <- lists:seq(1, 300)],
    exit(Stop, kill).

come_and_go() ->
    cats:new(comes_and_goes, [named_table]),
    cats:delete(comes_and_goes),
    come_and_go().

%% What the library itself removes, and why.
removals(_Config) ->
    [begin
         Limited = cats:new(table, [Type, {limit, {objects, 10}}]),
         true = cats:insert(Limited, [{N, N} || N <- lists:seq(1, 10)]),
         ?assertMatch(#{expired := 0, evicted := 0}, cats:stats(Limited)),
         [true = cats:insert(Limited, {N, N}) || N <- lists:seq(11, 15)],
         true = cats:delete(Limited, 15),
         ?assertMatch(#{expired := 0, evicted := 5}, cats:stats(Limited)),
         Expiring = cats:new(table, [Type, {ttl, infinity}]),
         true = cats:insert(Expiring, [{N, N} || N <- lists:seq(1, 10)], #{ttl => 1}),
         timer:sleep(2),
         true = cats:insert(Expiring, {1, 2}),
         ?assertMatch(1, cats:info(Expiring, size)),
         ?assertMatch(#{expired := 10, evicted := 0}, cats:stats(Expiring))
     end || Type <- [set, ordered_set]].

%% What is replaced is counted, and freed soon. Each scheduler may keep 64 blocks to itself until then.
garbage(_Config) ->
    #{retired := Before} = cats:garbage(),
    Table = cats:new(table, []),
    [true = cats:insert(Table, {1, binary:copy(<<N>>, 40)}) || N <- lists:seq(1, 10000)],
    cats_test_lib:eventually(fun() -> #{retired := Retired} = cats:garbage(), Retired - Before >= 9000 end),
    cats_test_lib:eventually(fun() ->
                                     #{retired := Retired, freed := Freed, bytes := Bytes} = cats:garbage(),
                                     Freed - Before >= 9000 andalso Freed =< Retired andalso Bytes >= 0
                             end).

list_on_the_terminal(_Config) ->
    cats:new(counted_in_list, [named_table, {stats, true}]),
    cats:insert(counted_in_list, {1}),
    cats:new(plain_in_list, [named_table]),
    Lines = string:lexemes(cats_observer_SUITE:printed(fun() -> cats:i() end), "\n"),
    [Counted] = [Line || Line <- Lines, string:find(Line, "counted_in_list") =/= nomatch],
    [Plain] = [Line || Line <- Lines, string:find(Line, "plain_in_list") =/= nomatch],
    ?assert(lists:suffix("  1 operations", Counted)),
    ?assertEqual(nomatch, string:find(Plain, "operations")).

%% The busiest tables come first, with what happened to them in a second.
top(_Config) ->
    Busy = cats:new(busy_table, [named_table, public, {stats, true}]),
    cats:insert(cats:new(large_table, [named_table]), [{N, N} || N <- lists:seq(1, 20000)]),
    [cats:new(small_table, []) || _ <- [1, 2]],
    Worker = spawn(fun() -> lookups(Busy) end),
    Lists = fun(Options) ->
                    Options1 = maps:merge(#{rounds => 1, interval => 200, lines => 3}, Options),
                    [_Head, _Titles | Lines] =
                        string:lexemes(cats_observer_SUITE:printed(fun() -> cats_top:start(Options1) end), "\n"),
                    [string:lexemes(Line, " ") || Line <- Lines]
            end,
    Shows = fun(Options, Expected) -> cats_test_lib:eventually(fun() -> Expected(hd(Lists(Options))) end) end,
    %% In a second of a busy machine nothing may happen to a table.
    Shows(#{sort => operations},
          fun(["busy_table", "set", "0", "0", _Memory, _Unit, "0", "0", "0", "0", Rate, "0", "0%"]) -> Rate =/= "0";
             (_) -> false
          end),
    [["large_table", "set", "20000", "0", _, "KiB", "0", "0", "0", "0", "-", "-", "-"] | _] = Lists(#{sort => size}),
    ?assertEqual(3, length(Lists(#{sort => memory}))),
    Grower = spawn(fun() -> grow(cats:new(growing_table, [named_table, {stats, true}]), 1) end),
    Shows(#{sort => growth, interval => 1000},
          fun(["growing_table", "set", _, Growth | _]) -> Growth =/= "0"; (_) -> false end),
    Shows(#{sort => scans, interval => 1000},
          fun(["growing_table" | Fields]) -> lists:nth(length(Fields) - 1, Fields) =/= "0"; (_) -> false end),
    exit(Grower, kill),
    %% A head, titles and tables once more.
    ?assertEqual(3 + 5, length(Lists(#{rounds => 2}))),
    exit(Worker, kill),
    [?assertError({badarg, _}, cats_top:start(Options))
     || Options <- [#{sort => name}, #{interval => 0}, #{lines => 0}, #{rounds => 0},
                    #{node => "node"}, #{nodes => node()}]].

lookups(Table) ->
    [] = cats:lookup(Table, a),
    lookups(Table).

%% An object comes and a scan is made some times a second.
grow(Table, Number) ->
    true = cats:insert(Table, {Number}),
    Number = length(cats:tab2list(Table)),
    timer:sleep(300),
    grow(Table, Number + 1).

%% By keys, until q is typed.
top_of_another_node(_Config) ->
    {Written, ok} = cats_test_lib:with_input(["s\n", "x\n", "q\n"],
                                             fun() -> cats_top:start(#{node => node(), interval => 100}) end),
    ?assert(is_list(Written)),
    ?assertError({erpc, noconnection}, cats_top:start(#{node => 'no_such@node', rounds => 1})).

%% Counters are in the memory of their table, and a table without them has none.
memory(_Config) ->
    Words = fun(Options) -> cats:info(cats:new(table, Options), memory) end,
    ?assert(Words([{stats, true}]) > Words([])),
    ?assertEqual(Words([]), Words([{stats, false}])).
