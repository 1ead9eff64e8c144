%% Where operations on a table meet: cats:contention/1,2.
-module(cats_contention_SUITE).
-include_lib("stdlib/include/assert.hrl").
-measures([no_scheduler_is_held]).
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([quiet_tree/1, quiet_hash_table/1, keys_are_in_their_strips/1, samples/1, other_engines/1, private_tables/1,
         bad_arguments/1, hot_place_of_a_tree/1, hot_key_of_a_hash_table/1, adaptations/1, growth/1,
         recording_ends_with_its_process/1, recordings_share/1, recorded_table_is_deleted/1, emptied_while_recorded/1,
         recording_a_table_without_contents/1, every_call_of_a_recorded_table/1, page/1,
         memory/1, no_scheduler_is_held/1]).

suite() -> [{timetrap, {minutes, 10}}].

all() ->
    [quiet_tree, quiet_hash_table, keys_are_in_their_strips, samples, other_engines, private_tables, bad_arguments,
     hot_place_of_a_tree, hot_key_of_a_hash_table, adaptations, growth, recording_ends_with_its_process,
     recordings_share, recorded_table_is_deleted, emptied_while_recorded, recording_a_table_without_contents,
     every_call_of_a_recorded_table, page, memory, no_scheduler_is_held].

init_per_suite(Config) -> cats_test_lib:only_cats(cats_test_lib:start(Config)).

end_per_suite(_Config) -> ok.

filled(Options, Number) ->
    Table = cats:new(table, [public | Options]),
    cats:insert_many(Table, [{N, 0} || N <- lists:seq(1, Number)]),
    Table.

sum(Key, Maps) -> lists:sum([maps:get(Key, Map) || Map <- Maps]).

quiet_tree(_Config) ->
    [begin
         #{engine := ca, strips := Strips, base_nodes := [Base], leaves := Sizes,
           adaptations := [], recorded := false} =
             Contention = cats:contention(filled([ordered_set], Number)),
         ?assertEqual(false, is_map_key(load, Contention)),
         ?assert(length(Strips) =< 64 andalso length(Strips) >= min(64, Number div 20000)),
         Leaves = sum(leaves, Strips),
         ?assertEqual({Number, Number, Leaves}, {sum(keys, Strips), maps:get(keys, Base), maps:get(leaves, Base)}),
         ?assertEqual({Number, Leaves},
                      {lists:sum([Keys || {_, _, Keys} <- Sizes]), lists:sum([Of || {_, Of, _} <- Sizes])}),
         ?assert(lists:all(fun({Slots, Of, Keys}) -> Keys =< Slots * Of end, Sizes)),
         ?assertEqual(false, is_map_key(from, Base)),
         ?assertEqual({0, sum(changes, Strips)}, {maps:get(waits, Base), maps:get(changes, Base)}),
         ?assertEqual(maps:get(height, Base) > 0, Leaves > 1)
     end || Number <- [0, 1, 7, 100, 5000, 200000]].

quiet_hash_table(_Config) ->
    [begin
         Table = filled([Type], Number),
         #{engine := hash, strips := Strips, buckets := Buckets, load := Load, adaptations := _, recorded := false} =
             Contention = cats:contention(Table),
         ?assertEqual(false, is_map_key(base_nodes, Contention)),
         ?assertEqual({Buckets, Number}, {sum(buckets, Strips), sum(keys, Strips)}),
         ?assertEqual(min(64, 1 bsl floor(math:log2(Buckets))), length(Strips)),
         ?assertEqual(Buckets, lists:sum([Of || {_, Of} <- Load])),
         %% Few buckets have 16 keys or more, of which only so many are told.
         Told = lists:sum([Keys * Of || {Keys, Of} <- Load]),
         ?assert(Told =< Number andalso Told >= Number * 0.99),
         ?assertEqual(Buckets, element(1, cats:info(Table, stats)))
     end || Type <- [set, bag], Number <- [0, 1, 7, 100, 5000, 200000]].

%% A change of one key shows in the strip whose keys are about it, and only there.
keys_are_in_their_strips(_Config) ->
    Table = filled([ordered_set], 200000),
    Strip = fun(Key, Strips) ->
                    length([From || #{from := From} <- Strips, From =< Key]) + 1
            end,
    [begin
         #{strips := Old} = cats:contention(Table),
         [cats:insert(Table, {Key, [N]}) || N <- lists:seq(1, 500)],
         #{strips := New} = cats:contention(Table),
         More = [maps:get(changes, B) - maps:get(changes, A) || {A, B} <- lists:zip(Old, New)],
         ?assertEqual(500, lists:nth(Strip(Key, New), More), Key),
         ?assertEqual(500, lists:sum(More))
     end || Key <- [1, 2, 1000, 77777, 123456, 199999, 200000]].

%% One in some leaves or buckets gives nearly the same figures.
samples(_Config) ->
    [begin
         Table = filled([Type], 200000),
         [cats:insert(Table, {N, [N]}) || N <- lists:seq(1, 200000)],
         #{strips := All} = cats:contention(Table),
         #{strips := Some} = cats_contention:of_table(Table, Every, {contention, [Table]}),
         ?assertEqual(length(All), length(Some)),
         [?assert(abs(1 - sum(Key, Some) / sum(Key, All)) < 0.1, {Type, Every, Key}) || Key <- [keys, changes]],
         ?assert(lists:all(fun(#{keys := Keys}) -> Keys > 0 end, Some))
     end || Type <- [set, ordered_set], Every <- [2, 7, 16]].

other_engines(_Config) ->
    [begin
         Table = cats:new(table, [{engine, Engine}, Type]),
         [begin
              ?assertEqual(no_contention, cats_test_lib:cause(fun() -> apply(cats, contention, Arguments) end)),
              #{1 := Text} = cats_test_lib:remarks(contention, Arguments),
              ?assertNotEqual(nomatch, string:find(Text, "engine hash or ca"))
          end || Arguments <- [[Table], [Table, 1]]]
     end || #{name := Engine, types := [Type | _]} <- cats:engines(), Engine =/= hash, Engine =/= ca],
    Snapshot = cats:snapshot(cats:new(table, [])),
    [?assertMatch(#{1 := _}, cats_test_lib:remarks(contention, Arguments)) || Arguments <- [[Snapshot], [Snapshot, 1]]].

%% Others see the figures of a private table, but neither its keys, nor may they record it.
private_tables(_Config) ->
    Table = cats:new(table, [ordered_set, private]),
    cats:insert_many(Table, [{N, 0} || N <- lists:seq(1, 100000)]),
    #{strips := [_, #{from := _} | _]} = cats:contention(Table),
    Others = cats_test_lib:in_process(fun() -> {cats:contention(Table), catch cats:contention(Table, 0)} end),
    {#{strips := [_, Strip | _] = Strips}, {'EXIT', {badarg, _}}} = Others,
    ?assertEqual({100000, false}, {sum(keys, Strips), is_map_key(from, Strip)}).

bad_arguments(_Config) ->
    Table = cats:new(table, []),
    [?assertMatch(#{2 := _}, cats_test_lib:remarks(contention, [Table, Time]))
     || Time <- [-1, 1.0, infinity, 1 bsl 32, on]],
    ?assertMatch(#{1 := _}, cats_test_lib:remarks(contention, [no_table_of_this_name])),
    ?assertMatch(#{1 := _}, cats_test_lib:remarks(contention, [1])),
    cats:delete(Table),
    [?assertMatch(#{1 := _}, cats_test_lib:remarks(contention, Arguments)) || Arguments <- [[Table], [Table, 1]]].

%% Processes that do this again and again until they are stopped.
busy(Number, Work) ->
    [spawn_link(fun() -> again(Work) end) || _ <- lists:seq(1, Number)].

again(Work) ->
    Work(),
    again(Work).

%% When it returns, none of them does anything any more.
stop(Workers) ->
    Monitors = [begin
                    unlink(Worker),
                    exit(Worker, kill),
                    monitor(process, Worker)
                end || Worker <- Workers],
    [receive {'DOWN', Monitor, process, _, _} -> ok end || Monitor <- Monitors].

%% Records while processes work, until there is enough, or for long. Also returns who may have been met: the process
%% that asks for the contention is in a call on the table, too.
recorded(Table, Work, Enough) ->
    Workers = busy(8, Work),
    Contention = recorded_until(Table, Enough, 20),
    stop(Workers),
    {[self() | Workers], Contention}.

recorded_until(Table, Enough, Tries) ->
    #{recorded := #{waits := Waits, reads_repeated := Reads}} = Contention = cats:contention(Table, 500),
    case Waits + Reads >= Enough orelse Tries =:= 0 orelse erlang:system_info(schedulers_online) =:= 1 of
        true -> Contention;
        false -> recorded_until(Table, Enough, Tries - 1)
    end.

%% Eight processes write to 50 neighbouring keys of 300000.
hot_place_of_a_tree(_Config) ->
    Table = filled([ordered_set], 300000),
    Hot = 200000,
    Work = fun() -> [cats:insert(Table, {Hot + N, self()}) || N <- lists:seq(1, 50)] end,
    {Processes, #{recorded := Recorded, base_nodes := Bases, strips := Strips}} = recorded(Table, Work, 100),
    #{waits := Waits, places := Places, meetings := Meetings, time := Time} = Recorded,
    ?assert(Time >= 490000),
    case Waits of
        0 ->
            {comment, "no process had to wait"};
        _ ->
            Named = [Place || #{key := _} = Place <- Places],
            ?assertEqual([], [Key || #{key := Key} <- Named, Key =< Hot orelse Key > Hot + 50]),
            %% Nearly all waits were for one of these keys, and are told with their processes.
            ?assert(sum(waits, Named) >= Waits div 2),
            [?assertEqual([], Met -- Processes) || #{processes := Met} <- Places],
            ?assert(lists:all(fun(#{processes := Met}) -> Met =/= [] end, lists:sublist(Named, 5))),
            [?assert(A =/= B andalso [A, B] -- Processes =:= []) || #{process := A, other := B} <- Meetings],
            ?assert(length(Strips) >= lists:max([Strip || #{strip := Strip} <- Named])),
            %% The keys are in the strip that is told.
            [?assert(maps:get(from, lists:nth(Strip, Strips), 0) =< Key) || #{strip := Strip, key := Key} <- Named],
            ?assert(length(Bases) >= 1)
    end.

hot_key_of_a_hash_table(_Config) ->
    Table = filled([set], 100000),
    %% However few of these the processes do.
    [cats:insert(Table, {hot, N}) || N <- lists:seq(1, 10000)],
    Work = fun() -> [cats:insert(Table, {hot, self()}) || _ <- lists:seq(1, 50)] end,
    {Processes, #{recorded := Recorded, strips := Strips}} = recorded(Table, Work, 20),
    case Recorded of
        #{waits := 0} -> {comment, "no process had to wait"};
        #{places := [#{key := hot, strip := Strip, waits := Waits, processes := [_ | _] = Met} | _], waits := All} ->
            ?assert(Waits >= All div 2),
            ?assertEqual([], Met -- Processes),
            ?assert(Strip >= 1 andalso Strip =< length(Strips)),
            {_, Changed} = lists:max([{Changes, Number} || {Number, #{changes := Changes}} <- lists:enumerate(Strips)]),
            ?assertEqual(Changed, Strip)
    end.

%% A tree that one process uses does not split. So the thresholds are such that a few reads join, and one conflict
%% splits.
adaptations(_Config) ->
    Table = filled([ordered_set], 100000),
    {_, _} = recorded(Table, fun() -> [cats:insert(Table, {5000, self()}) || _ <- lists:seq(1, 100)] end, 200),
    #{adaptations := Adaptations, base_nodes := Bases, time := Now} = cats:contention(Table),
    case cats:stats(Table) of
        #{splits := 0} -> {comment, "nothing was split"};
        #{splits := Splits, joins := Joins} ->
            %% Those that happen while another thread uses the log are not kept.
            Lost = min(64, Splits + Joins) - length(Adaptations),
            ?assert(Lost >= 0 andalso Adaptations =/= []),
            Times = [Time || #{time := Time} <- Adaptations],
            ?assertEqual(lists:sort(Times), Times),
            ?assert(lists:last(Times) =< Now andalso hd(Times) > Now - 60_000_000),
            ?assert(Lost > 0 orelse length(Bases) =:= maps:get(number, lists:last(Adaptations))),
            [?assert(is_integer(maps:get(key, Adaptation))
                     andalso lists:member(maps:get(kind, Adaptation), [split, join]))
             || Adaptation <- Adaptations],
            %% The base nodes that a split made begin at its key.
            [?assert(lists:member(Key, [From || #{from := From} <- Bases]))
             || #{kind := split, key := Key} <- Adaptations, Joins =:= 0]
    end.

growth(_Config) ->
    Table = filled([set], 50000),
    #{adaptations := Grown} = cats:contention(Table),
    ?assertEqual([1024, 2048, 4096], [Number || #{kind := grow, number := Number} <- Grown]),
    [cats:delete(Table, N) || N <- lists:seq(1, 50000)],
    #{adaptations := All} = cats:contention(Table),
    ?assertEqual([4096, 2048, 1024], [Number || #{kind := shrink, number := Number} <- All]),
    ?assertEqual([], [Key || #{key := Key} <- All]),
    #{adaptations := []} = cats:contention(filled([set], 1000)).

is_recorded(Table) ->
    maps:get(recorded, cats:contention(Table)) =/= false.

recording_ends_with_its_process(_Config) ->
    [begin
         Table = filled([Type], 100),
         ?assertEqual(false, is_recorded(Table)),
         Bytes = cats:info(Table, memory),
         #{recorded := #{waits := _}} = cats:contention(Table, 1),
         ?assertEqual(false, is_recorded(Table)),
         Long = spawn(fun() -> cats:contention(Table, 1000000) end),
         cats_test_lib:eventually(fun() -> is_recorded(Table) end),
         ?assert(cats:info(Table, memory) > Bytes + 1000),
         exit(Long, kill),
         cats_test_lib:eventually(fun() -> not is_recorded(Table) end),
         ?assert(cats:info(Table, memory) < Bytes + 100)
     end || Type <- [set, ordered_set]].

%% One recording ends, another one goes on with what both have.
recordings_share(_Config) ->
    Table = filled([set], 100),
    Long = spawn(fun() -> cats:contention(Table, 1000000) end),
    cats_test_lib:eventually(fun() -> is_recorded(Table) end),
    timer:sleep(20),
    #{recorded := #{time := Time}} = cats:contention(Table, 0),
    %% By another clock than that of the VM.
    ?assert(Time >= 19000),
    [#{recorded := #{}} = cats:contention(Table, 1) || _ <- lists:seq(1, 20)],
    ?assert(is_recorded(Table)),
    exit(Long, kill),
    cats_test_lib:eventually(fun() -> not is_recorded(Table) end).

recorded_table_is_deleted(_Config) ->
    [begin
         Table = filled([Type], 1000),
         {Caller, Monitor} = spawn_monitor(fun Record() -> cats:contention(Table, 100), Record() end),
         cats_test_lib:eventually(fun() -> is_recorded(Table) end),
         Workers = busy(4, fun() -> catch cats:insert(Table, {1, self()}) end),
         cats:delete(Table),
         receive {'DOWN', Monitor, process, Caller, {badarg, _}} -> ok end,
         stop(Workers)
     end || Type <- [set, ordered_set], _ <- lists:seq(1, 3)].

emptied_while_recorded(_Config) ->
    [begin
         Table = filled([Type], 20000),
         Long = spawn(fun() -> cats:contention(Table, 1000000) end),
         cats_test_lib:eventually(fun() -> is_recorded(Table) end),
         Workers = busy(4, fun() -> [cats:insert(Table, {N, 0}) || N <- lists:seq(1, 100)] end),
         [begin
              cats:delete_all_objects(Table),
              timer:sleep(1),
              ?assert(is_recorded(Table))
          end || _ <- lists:seq(1, 20)],
         stop(Workers),
         exit(Long, kill),
         cats_test_lib:eventually(fun() -> not is_recorded(Table) end)
     end || Type <- [set, ordered_set]].

%% Such a table shares its contents with all others of the kind.
recording_a_table_without_contents(_Config) ->
    [Table, Other] = [cats:new(table, [public]) || _ <- [1, 2]],
    #{recorded := #{waits := 0}, strips := [#{keys := 0}]} = cats:contention(Table, 0),
    Long = spawn(fun() -> cats:contention(Table, 1000000) end),
    cats_test_lib:eventually(fun() -> is_recorded(Table) end),
    ?assertEqual(false, is_recorded(Other)),
    exit(Long, kill).

%% The calls of a recorded table do what they always do, under all access rights, by name, with statistics.
every_call_of_a_recorded_table(_Config) ->
    [begin
         Table = cats:new(recorded_by_name, [Type, Access, named_table | Options]),
         Tid = cats:whereis(Table),
         Self = self(),
         Long = spawn_link(fun() ->
                                   Self ! go_on,
                                   catch cats:contention(Tid, 1000000)
                           end),
         receive go_on -> ok end,
         Access =:= private orelse cats_test_lib:eventually(fun() -> is_recorded(Tid) end),
         [begin
              true = cats:insert(Use, {1, 0}),
              1 = cats:update_counter(Use, 1, 1),
              [{1, 1}] = cats:lookup(Use, 1),
              true = cats:delete(Use, 1),
              [] = cats:lookup(Use, 1),
              Others =
                  cats_test_lib:in_process(fun() -> {catch cats:lookup(Use, 1), catch cats:insert(Use, {2, 2})} end),
              case {Access, Others} of
                  {public, {[], true}} -> cats:delete(Use, 2);
                  {protected, {[], {'EXIT', {badarg, _}}}} -> ok;
                  {private, {{'EXIT', {badarg, _}}, {'EXIT', {badarg, _}}}} -> ok
              end
          end || Use <- [Table, Tid]],
         lists:member({stats, true}, Options) andalso
             begin
                 #{updates := 2, deletes := Deletes} = cats:stats(Table),
                 ?assert(Deletes >= 2)
             end,
         unlink(Long),
         exit(Long, kill),
         cats:setopts(Table, {heir, none}),
         cats:delete(Table)
     end || Type <- [set, ordered_set], Access <- [public, protected, private], Options <- [[], [{stats, true}]]].

%% The page shows the same figures, and no keys.
page(_Config) ->
    [begin
         Table = cats:new(table, [public, Type]),
         cats:insert_many(Table, [{{secret_key, N}, 0} || N <- lists:seq(1, 50000)]),
         Work = fun() -> [cats:insert(Table, {{secret_key, 25000}, self()}) || _ <- lists:seq(1, 100)] end,
         Watcher = spawn(fun Record() -> recorded(Table, Work, 10), Record() end),
         Seen = until_seen(Table, Watcher),
         cats_test_lib:stop(Watcher, kill),
         #{contention := #{strips := {list, Strips}, recorded := Recorded} = Contention} = Seen,
         ?assertEqual(50000, sum(keys, Strips)),
         ?assertMatch(#{waits := _, places := {list, _}}, Recorded),
         ?assertMatch({list, [_ | _]}, maps:get(if Type =:= set -> load; true -> bases end, Contention)),
         Json = iolist_to_binary(cats_web_data:json(Seen)),
         ?assertEqual(nomatch, binary:match(Json, <<"secret_key">>)),
         ?assertNotEqual(nomatch, binary:match(Json, <<"\"contention\":{\"adaptations\":[">>))
     end || Type <- [set, ordered_set]],
    #{contention := null} =
        cats_web_data:table(cats_stats:identifier(cats:info(cats:new(table, [{engine, std_hash}]), id))).

until_seen(Table, Watcher) ->
    case cats_web_data:table(cats_stats:identifier(Table)) of
        #{contention := #{recorded := null}} ->
            ?assert(is_process_alive(Watcher)),
            timer:sleep(5),
            until_seen(Table, Watcher);
        Seen ->
            Seen
    end.

%% What is recorded of many places is bounded.
memory(_Config) ->
    Table = filled([ordered_set], 50000),
    Bytes = cats:info(Table, memory),
    {_, #{recorded := #{places := Places, meetings := Meetings}}} =
        recorded(Table, fun() -> [cats:insert(Table, {rand:uniform(200), self()}) || _ <- lists:seq(1, 100)] end, 50),
    ?assert(length(Places) =< 256 andalso length(Meetings) =< 256),
    timer:sleep(10),
    ?assert((cats:info(Table, memory) - Bytes) * erlang:system_info(wordsize)
            < 64 * 1024 + 2048 * erlang:system_info(schedulers)).

%% No slice of the view takes a scheduler long. Also counts those of another table, so that one late slice does not
%% matter.
no_scheduler_is_held(_Config) ->
    [begin
         Table = filled([Type], 1000000),
         Slices = slices(Table, [], []),
         Longest = lists:nth(length(Slices) * 9 div 10 + 1, lists:sort(Slices)),
         ct:log("~p slices of ~p: nine in ten take at most ~p us, the longest ~p us",
                [length(Slices), Type, Longest, lists:max(Slices)]),
         ?assert(Longest < 1000)
     end || Type <- [set, ordered_set]].

slices(Table, From, Slices) ->
    {Time, Part} = timer:tc(fun() -> cats_nif:structure(Table, From, 1) end),
    case element(tuple_size(Part), Part) of
        [] -> [Time | Slices];
        Next -> slices(Table, Next, [Time | Slices])
    end.
