%% Snapshots: a comparison with copies in ets, what processes that write see of them, and what they hold back.
-module(cats_snapshot_SUITE).
-measures([collected, takers_of_all_priorities, dropped_ones_give_memory_back]).
-include_lib("stdlib/include/assert.hrl").
-include("cats_failure.hrl").
-include_lib("stdlib/include/qlc.hrl").
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([a_taker_that_does_not_run/1, takers_of_all_priorities/1, released_ones_are_merged/1, memory_of_all/1,
         calls_after_growth/1, dropped_ones_give_memory_back/1, folds_read_many/1, numbers_are_kept/1]).
-export([refusals/1, description/1, sequential_model/1, long_walks/1, source_goes/1, collected/1, deleted/1, limit/1,
         large_entries/1, taker_dies/1, bank/1, mirrored/1, counters/1, exact_size/1, emptied_meanwhile/1,
         waits_for_writers/1, not_mixed/1, reads_of_old_ones_count/1, the_oldest_of_many/1]).

suite() -> [{timetrap, {minutes, 10}}].

all() ->
    %% The first one measures the memory of all tables.
    [memory_of_all, refusals, description, sequential_model, long_walks, source_goes, collected, deleted, limit,
     large_entries, taker_dies, bank, mirrored, counters, exact_size, emptied_meanwhile, waits_for_writers, not_mixed,
     a_taker_that_does_not_run, takers_of_all_priorities, released_ones_are_merged, calls_after_growth,
     dropped_ones_give_memory_back, folds_read_many, numbers_are_kept, reads_of_old_ones_count, the_oldest_of_many].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(cats),
    Config.

end_per_suite(_Config) -> ok.

init_per_testcase(Case, Config) when Case =:= collected; Case =:= dropped_ones_give_memory_back ->
    cats_test_lib:with_memory(Config);
init_per_testcase(_Case, Config) -> Config.

end_per_testcase(_Case, _Config) -> ok.

-define(MS, cats_test_lib:environment("SNAPSHOT_MS", cats_test_lib:rounds(500))).

%%------------------------------------------------------------------------------------------------------------
%% Errors

refusals(_Config) ->
    [begin
         Table = cats:new(table, [hd(Types), {engine, Name}]),
         case Snapshots of
             true -> ?assertEqual(0, cats:info(cats:snapshot(Table), size));
             false -> ?assertEqual({snapshot, 1, "snapshots are for tables with engine hash or ca"},
                                   remark(fun() -> cats:snapshot([Table]) end))
         end
     end || #{name := Name, types := Types, snapshots := Snapshots} <- cats:engines()],
    ?assertMatch([#{name := hash, snapshots := true}, #{name := ca, snapshots := true} | _], cats:engines()),
    Set = cats:new(set, [public, named_table]),
    true = cats:insert(set, [{1, 1}, {2, 2}]),
    Snapshot = cats:snapshot(set),
    ?assertEqual([], cats:snapshot([])),
    ?assertMatch([_, _], cats:snapshot([Set, Set])),
    ?assertEqual({snapshot, 1, "a snapshot, of which no other can be taken"},
                 remark(fun() -> cats:snapshot(Snapshot) end)),
    ?assertEqual({snapshot, 1, "not a proper list"}, remark(fun() -> cats:snapshot([Set | Set]) end)),
    ?assertMatch({snapshot, 1, _}, remark(fun() -> cats:snapshot(no_such_table) end)),
    ?assertMatch({snapshot, 1, _}, remark(fun() -> cats:snapshot([Set, no_such_table]) end)),
    Writes = [{insert, [{1, 2}]}, {insert, [[{1, 2}]]}, {insert_new, [{3, 3}]}, {delete, [1]},
              {delete_object, [{1, 1}]}, {delete_all_objects, []}, {take, [1]}, {update_counter, [1, 1]},
              {update_counter, [1, 1, {1, 1}]}, {update_element, [1, {2, 1}]}, {replace, [{1, 1}, {1, 2}]},
              {update, [1, fun(Object) -> Object end]}, {add, [1, 1]}, {take_many, [[1]]}, {delete_many, [[1]]},
              {insert_many, [[{1, 2}]]}, {select_delete, [[{'_', [], [true]}]]}, {match_delete, ['_']},
              {select_replace, [[{{'$1', '_'}, [], [{{'$1', 0}}]}]]}, {rename, [other]}, {give_away, [self(), data]},
              {setopts, [{heir, none}]}, {claim, []}],
    [begin
         {Name, Place, Text} = remark(fun() -> apply(cats, Function, [Snapshot | Arguments]) end),
         ?assertEqual({Function, 1, "a snapshot, which cannot be changed"}, {Name, Place, Text})
     end || {Function, Arguments} <- Writes],
    ?assertEqual({ttl, 1, "a snapshot, whose objects do not expire"}, remark(fun() -> cats:ttl(Snapshot, 1) end)),
    ?assertMatch({from_ets, 1, "a snapshot, which cannot be changed"},
                 remark(fun() -> cats:from_ets(Snapshot, ets:new(t, [])) end)),
    ?assertError(badarg, cats:init_table(Snapshot, fun(_) -> end_of_input end)),
    Refusal = {aborted, {no_transactions, Snapshot,
                         <<"a snapshot, which stays as it is: read it by the functions of cats">>}},
    [?assertEqual(Refusal, cats_transaction:run(Body))
     || Body <- [fun() -> cats_transaction:read(Snapshot, 1) end, fun() -> cats_transaction:first(Snapshot) end,
                 fun() -> cats_transaction:insert(Snapshot, {1, 2}) end]],
    ?assertEqual([{1, 1}, {2, 2}], lists:sort(cats:tab2list(Snapshot))),
    %% A snapshot may be taken by whoever may read, and read by whoever has it.
    {Owner, {Protected, Private, Own}} =
        cats_test_lib:spawn_owner(fun() ->
                                          Private = cats:new(table, [private]),
                                          cats:insert(Private, {1, 1}),
                                          {cats:new(table, [protected]), Private, cats:snapshot(Private)}
                                  end),
    ?assertEqual([], cats:tab2list(cats:snapshot(Protected))),
    ?assertMatch({snapshot, 1, _}, remark(fun() -> cats:snapshot(Private) end)),
    ?assertEqual([{1, 1}], cats:tab2list(Own)),
    ?assertError(badarg, cats:new(table, [{snapshot_limit, -1}])),
    ?assertError(badarg, cats:new(table, [{snapshot_limit, infinity}])),
    cats_test_lib:stop(Owner, normal).

%% In whose name a call fails, and the only argument with a remark.
remark(Call) ->
    try
        Call(),
        succeeded
    catch
        error:badarg:Stack ->
            [{cats, Function, _, _} | _] = Stack,
            [{Place, Remark}] = maps:to_list(cats_failure:format_error(badarg, Stack)),
            {Function, Place, unicode:characters_to_list(Remark)}
    end.

description(_Config) ->
    Table = cats:new(table, [ordered_set, public, named_table, {keypos, 2}]),
    true = cats:insert(Table, [{N, N} || N <- lists:seq(1, 10)]),
    Before = cats:all(),
    Snapshot = cats:snapshot(table),
    ?assertEqual(lists:sort(Before), lists:sort(cats:all())),
    ?assertEqual([10, ordered_set, 2, table, false, undefined, none, protected, ca, false, false],
                 [cats:info(Snapshot, Item)
                  || Item <- [size, type, keypos, name, named_table, owner, heir, protection,
                              engine, fixed, safe_fixed]]),
    ?assertEqual(lists:sort([Item || {Item, _} <- cats:info(Table)]),
                 lists:sort([Item || {Item, _} <- cats:info(Snapshot)])),
    true = cats:safe_fixtable(Snapshot, true),
    true = cats:safe_fixtable(Snapshot, false),
    ?assertError(badarg, cats:safe_fixtable(Snapshot, 'maybe')),
    ?assertMatch({_, _, _}, cats:info(Snapshot, stats)),
    ?assertMatch({_, _, _, _, _, _, 0, 0}, cats:info(cats:snapshot(cats:new(set, [])), stats)),
    ?assertEqual([], cats:info(Snapshot, binary)).

%%------------------------------------------------------------------------------------------------------------
%% Comparison with copies in ets

%% Random writes to a table of cats and to one of ets. Now and then a snapshot of the first, and a copy of the second.
sequential_model(_Config) ->
    Steps = cats_test_lib:environment("SNAPSHOT_STEPS", cats_test_lib:rounds(100)),
    [begin
         Seed = rand:uniform(1 bsl 40),
         try
             compare([Type | Options], Steps, Seed)
         catch
             Class:Reason:Stack -> ct:fail({[Type | Options], {seed, Seed}, Class, Reason, Stack})
         end
     end || Type <- [set, ordered_set, bag, duplicate_bag], Options <- [[], [{keypos, 2}], [compressed]]].

compare(Options, Steps, Seed) ->
    rand:seed(exsss, Seed),
    %% With these objects, a compressed table of ets brings the VM of OTP 29.1.1 down.
    Live = {cats:new(table, [public | Options]), ets:new(table, [public | Options -- [compressed]])},
    Snapshots = steps(Live, hd(Options), cats:info(element(1, Live), keypos), Steps, []),
    same(hd(Options), Live),
    [same_in_all(hd(Options), Pair) || Pair <- Snapshots].

steps(_Live, _Type, _Pos, 0, Snapshots) -> Snapshots;
steps({Table, Model} = Live, Type, Pos, Left, Snapshots) ->
    [change(Live, Type, Pos) || _ <- lists:seq(1, rand:uniform(10))],
    Next = case rand:uniform(12) of
               1 ->
                   [{cats:snapshot(Table), copy(Model)} | Snapshots];
               2 when Snapshots =/= [] ->
                   {Snapshot, _} = Gone = cats_test_lib:one_of(Snapshots),
                   _ = rand:uniform(2) =:= 1 andalso cats:delete(Snapshot),
                   lists:delete(Gone, Snapshots);
               3 when Snapshots =/= [] ->
                   same_in_all(Type, cats_test_lib:one_of(Snapshots)),
                   Snapshots;
               _ ->
                   [same(Type, Pair) || Pair <- Snapshots, rand:uniform(4) =:= 1],
                   Snapshots
           end,
    steps(Live, Type, Pos, Left - 1, Next).

copy(Model) ->
    [Type, Pos] = [ets:info(Model, Item) || Item <- [type, keypos]],
    Copy = ets:new(copy, [Type, {keypos, Pos}]),
    [ets:insert(Copy, Object) || Object <- ets:tab2list(Model)],
    Copy.

%% Few different keys, so that most of them are changed again and again.
key() ->
    N = rand:uniform(12),
    lists:nth(rand:uniform(7), [N, N, float(N), {N, "key"}, <<"key", N>>, [N | <<0:800>>], 1 bsl 70 + N]).

value() ->
    N = rand:uniform(3),
    lists:nth(rand:uniform(8),
              [N, N, float(N), atom, lists:duplicate(40, N), <<N:2000>>, {fun lists:append/1, N}, #{N => [N]}]).

object(Pos) ->
    Key = key(),
    Elements = [N || N <- [rand:uniform(3), value(), value()], rand:uniform(3) > 1],
    case Pos of
        1 -> list_to_tuple([Key | Elements]);
        2 -> list_to_tuple([rand:uniform(3), Key | Elements])
    end.

%% The same change of both.
change({Table, Model} = Live, Type, Pos) ->
    Is_bag = Type =:= bag orelse Type =:= duplicate_bag,
    Both = fun(Function, Arguments) ->
                   [Result, Expected] =
                       [try {ok, apply(Module, Function, [T | Arguments])} catch error:Reason -> Reason end
                        || {Module, T} <- [{cats, Table}, {ets, Model}]],
                   ?assertEqual(Expected, Result, {Function, Arguments})
           end,
    Other = 3 - Pos,
    case rand:uniform(40) of
        N when N =< 10 -> Both(insert, [object(Pos)]);
        N when N =< 15 -> Both(delete, [key()]);
        N when N =< 17 -> Both(take, [key()]);
        18 -> Both(insert_new, [object(Pos)]);
        19 -> Both(insert, [distinct(Pos)]);
        20 -> Both(insert_new, [distinct(Pos)]);
        N when N =< 24, not Is_bag -> Both(update_counter, [key(), {Other, 1}]);
        N when N =< 26, not Is_bag -> Both(update_counter, [key(), {Other, 1}, erlang:make_tuple(2, 0)]);
        N when N =< 29, not Is_bag -> Both(update_element, [key(), {Other, value()}]);
        N when N =< 31, not Is_bag -> Both(update_element, [key(), [{Other, value()}, {3, value()}]]);
        N when N =< 26 -> Both(delete_object, [object(Pos)]);
        N when N =< 31 -> Both(insert, [object(Pos)]);
        32 -> Both(select_delete, [[{'$1', [{'=:=', {element, Other, '$1'}, rand:uniform(3)}], [true]}]]);
        33 -> Both(match_delete, [setelement(Pos, {'_', '_'}, key())]);
        34 when Type =/= bag ->
            Both(select_replace, [[{setelement(Pos, {'_', '_', 2}, '$1'), [], [{setelement(Pos, {7, 7}, '$1')}]}]]);
        35 when not Is_bag -> changed_by_function(Live, key());
        36 when not Is_bag -> in_transaction(Live, Pos);
        37 ->
            Keys = [key(), key()],
            true = cats:delete_many(Table, Keys),
            [ets:delete(Model, Key) || Key <- Keys];
        38 ->
            Objects = [object(Pos), object(Pos)],
            true = cats:insert_many(Table, Objects),
            [ets:insert(Model, Object) || Object <- Objects];
        39 ->
            Keys = [key(), key()],
            ?assertEqual([ets:take(Model, Key) || Key <- Keys], cats:take_many(Table, Keys));
        40 -> _ = rand:uniform(8) =:= 1 andalso Both(delete_all_objects, []);
        _ -> Both(insert, [object(Pos)])
    end.

%% Objects with different keys, also in the order of terms.
distinct(Pos) ->
    Keyed = maps:from_list([{erlang:phash2(element(Pos, Object), 1), Object} || Object <- [object(Pos)]]),
    maps:values(Keyed) ++ [setelement(Pos, erlang:make_tuple(Pos, x), {list, rand:uniform(5)})].

changed_by_function({Table, Model}, Key) ->
    case ets:lookup(Model, Key) of
        [Object] ->
            New = erlang:append_element(Object, more),
            case rand:uniform(3) of
                1 -> cats:update(Table, Key, fun(_) -> New end);
                2 -> true = cats:replace(Table, Object, New);
                3 -> cats:update(Table, Key, fun(_) -> delete end)
            end,
            case cats:lookup(Table, Key) of
                [] -> ets:delete(Model, Key);
                [Changed] -> ets:insert(Model, Changed)
            end;
        [] -> ok
    end.

in_transaction({Table, Model}, Pos) ->
    Objects = [object(Pos) || _ <- lists:seq(1, 3)],
    Keys = [key(), key()],
    {atomic, _} = cats_transaction:run(fun() ->
                                               [cats_transaction:delete(Table, Key) || Key <- Keys],
                                               [cats_transaction:insert(Table, Object) || Object <- Objects]
                                       end),
    [ets:delete(Model, Key) || Key <- Keys],
    ets:insert(Model, Objects).

%% The order of a hash table is its own.
canonical(ordered_set, List) -> List;
canonical(_Type, List) -> sorted(List).

%% Tells 1 from 1.0.
sorted(List) -> [Term || {Term, _} <- lists:sort([{Term, term_to_binary(Term)} || Term <- List])].

same(Type, {Table, Model}) ->
    ?assertEqual(canonical(Type, ets:tab2list(Model)), canonical(Type, cats:tab2list(Table))),
    ?assertEqual(ets:info(Model, size), cats:info(Table, size)),
    Keys = [key() || _ <- lists:seq(1, 5)],
    [?assertEqual(ets:lookup(Model, Key), cats:lookup(Table, Key)) || Key <- Keys].

%% All functions that read.
same_in_all(Type, {Table, Model} = Pair) ->
    same(Type, Pair),
    Pos = ets:info(Model, keypos),
    Keys = [key() || _ <- lists:seq(1, 10)] ++ [element(Pos, Object) || Object <- ets:tab2list(Model)],
    Both = fun(Function, Arguments) ->
                   [apply(Module, Function, [T | Arguments]) || {Module, T} <- [{ets, Model}, {cats, Table}]]
           end,
    Same = fun(Function, Arguments) ->
                   [Expected, Result] = Both(Function, Arguments),
                   ?assertEqual(Expected, Result, {Function, Arguments})
           end,
    All = fun(Function, Arguments) ->
                  [Expected, Result] = Both(Function, Arguments),
                  ?assertEqual(canonical(Type, Expected), canonical(Type, Result), {Function, Arguments})
          end,
    [begin
         Same(lookup, [Key]),
         Same(member, [Key]),
         [try ets:lookup_element(Model, Key, Element) of
              Expected -> ?assertEqual(Expected, cats:lookup_element(Table, Key, Element))
          catch
              error:badarg -> ?assertError(badarg, cats:lookup_element(Table, Key, Element))
          end || Element <- [1, 2, 3]],
         ?assertEqual(none, cats:lookup_element(Table, no_such_key, 1, none)),
         Same(match_object, [setelement(Pos, {'_', '_'}, Key)]),
         Same(select_count, [[{setelement(Pos, {'_', '_', '_'}, Key), [], [true]}]])
     end || Key <- Keys],
    ?assertEqual([ets:lookup(Model, Key) || Key <- Keys], cats:lookup_many(Table, Keys)),
    Whole = [{'$1', [], ['$1']}],
    Odd = [{'$1', [{'<', {size, '$1'}, 3}], [{element, Pos, '$1'}]}],
    [All(select, [Specification]) || Specification <- [Whole, Odd]],
    [All(select_reverse, [Specification]) || Specification <- [Whole, Odd]],
    Same(select_count, [[{'$1', [{'<', {size, '$1'}, 3}], [true]}]]),
    All(match, [setelement(Pos, {'_', '_'}, '$1')]),
    [?assertEqual(canonical(Type, ets:Function(Model, Whole)),
                  canonical(Type, chunks(Function, cats:Function(Table, Whole, 2))))
     || Function <- [select, select_reverse]],
    Collect = fun(Object, Objects) -> [Object | Objects] end,
    [?assertEqual(canonical(Type, ets:Fold(Collect, [], Model)), canonical(Type, cats:Fold(Collect, [], Table)))
     || Fold <- [foldl, foldr]],
    [?assertEqual(canonical(Type, walk(ets, Model, First, Next)), canonical(Type, walk(cats, Table, First, Next)))
     || {First, Next} <- [{first, next}, {last, prev}]],
    _ = Type =:= ordered_set andalso [Same(Next, [Key]) || Next <- [next, prev], Key <- Keys],
    ?assertEqual(canonical(Type, [{Key, ets:lookup(Model, Key)} || Key <- walk(ets, Model, first, next)]),
                 canonical(Type, with_objects(Table, cats:first_lookup(Table)))),
    _ = Type =:= ordered_set andalso same_statistics(Table, Pos, ets:tab2list(Model), Keys),
    ?assertEqual(sorted(ets:tab2list(Model)), sorted(slots(Table, 0))),
    ?assertEqual(sorted(ets:tab2list(Model)), sorted(qlc:e(qlc:q([Object || Object <- cats:table(Table)])))),
    ?assertEqual(sorted([Object || Object <- ets:tab2list(Model), element(Pos, Object) =:= hd(Keys)]),
                 sorted(qlc:e(qlc:q([Object || Object <- cats:table(Table), element(Pos, Object) =:= hd(Keys)])))),
    Copy = ets:new(copy, [Type, {keypos, Pos}]),
    cats:to_ets(Table, Copy),
    ?assertEqual(sorted(ets:tab2list(Model)), sorted(ets:tab2list(Copy))),
    ets:delete(Copy),
    %% A list of functions cannot be read back from a file by every release.
    File = filename:join(os:getenv("TMPDIR", "/tmp"), "snapshot-" ++ os:getpid()),
    ok = cats:tab2file(Table, File),
    {ok, Read} = cats:file2tab(File),
    ok = file:delete(File),
    ?assertEqual(canonical(Type, ets:tab2list(Model)), canonical(Type, cats:tab2list(Read))),
    true = cats:delete(Read).

%% The order statistics are those of this sorted list of objects.
same_statistics(Table, Pos, Objects, Keys) ->
    Size = length(Objects),
    ?assertEqual(Size, cats:count(Table, #{})),
    ?assertEqual(Objects ++ ['$end_of_table'], [cats:nth(Table, N) || N <- lists:seq(0, Size)]),
    ?assertEqual(lists:reverse(Objects) ++ ['$end_of_table'], [cats:nth(Table, -N) || N <- lists:seq(1, Size + 1)]),
    [begin
         ?assertEqual({Key, length([x || Object <- Objects, element(Pos, Object) < Key])},
                      {Key, cats:rank(Table, Key)}),
         [begin
              Within = [Object || Object <- Objects, Compare(element(Pos, Object), Key)],
              ?assertEqual({Side, Key, length(Within)}, {Side, Key, cats:count(Table, #{Side => Key})}),
              ?assertEqual({Side, Key, Within}, {Side, Key, cats:range(Table, #{Side => Key}, infinity)}),
              ?assertEqual({Side, Key, lists:sublist(lists:reverse(Within), 3)},
                           {Side, Key, cats:range(Table, #{Side => Key, order => descending}, 3)})
          end || {Side, Compare} <- [{from, fun erlang:'>='/2}, {above, fun erlang:'>'/2}, {to, fun erlang:'=<'/2},
                                     {below, fun erlang:'<'/2}]]
     end || Key <- Keys].

chunks(_Function, '$end_of_table') -> [];
chunks(Function, {Results, Continuation}) -> Results ++ chunks(Function, cats:Function(Continuation)).

walk(Module, Table, First, Next) -> walk_on(Module, Table, Module:First(Table), Next).

walk_on(_Module, _Table, '$end_of_table', _Next) -> [];
walk_on(Module, Table, Key, Next) -> [Key | walk_on(Module, Table, Module:Next(Table, Key), Next)].

with_objects(_Table, '$end_of_table') -> [];
with_objects(Table, {Key, Objects}) -> [{Key, Objects} | with_objects(Table, cats:next_lookup(Table, Key))].

slots(Table, Number) ->
    case cats:slot(Table, Number) of
        '$end_of_table' ->
            ?assertError(badarg, cats:slot(Table, Number + 1)),
            [];
        Objects -> Objects ++ slots(Table, Number + 1)
    end.

%% Tables with many more objects than a slice has, most of which came after the snapshot or have gone since.
long_walks(_Config) ->
    Half = 20000,
    [begin
         Table = cats:new(table, [Type, public]),
         Old = [{Key, old} || Key <- lists:seq(1, Half)],
         true = cats:insert(Table, Old),
         {Empty, Full} = {cats:snapshot(cats:new(table, [Type])), cats:snapshot(Table)},
         [cats:delete(Table, Key) || Key <- lists:seq(1, Half, 2)],
         true = cats:insert(Table, [{Key, new} || Key <- lists:seq(Half div 2, 2 * Half)]),
         Newer = cats:snapshot(Table),
         New = lists:sort(cats:tab2list(Table)),
         true = cats:delete_all_objects(Table),
         [begin
              ?assertEqual(Objects, lists:sort(cats:tab2list(Snapshot))),
              ?assertEqual(Objects, lists:sort(cats:foldl(fun(Object, All) -> [Object | All] end, [], Snapshot))),
              ?assertEqual(lists:usort([Key || {Key, _} <- Objects]), lists:sort(walk(cats, Snapshot, first, next))),
              ?assertEqual(lists:usort([Key || {Key, _} <- Objects]), lists:sort(walk(cats, Snapshot, last, prev))),
              ?assertEqual(length(Objects), length(chunks(select, cats:select(Snapshot, [{'_', [], [x]}], 100)))),
              _ = Type =:= ordered_set andalso long_statistics(Snapshot, list_to_tuple(Objects))
          end || {Objects, Snapshot} <- [{Old, Full}, {New, Newer}, {[], Empty}]],
         %% All that is found is hidden.
         Refilled = cats:new(table, [Type, public]),
         Nothing = cats:snapshot(Refilled),
         true = cats:insert(Refilled, [{Key, new} || Key <- lists:seq(1, 2 * Half)]),
         ?assertEqual(['$end_of_table', '$end_of_table', '$end_of_table', [], 0],
                      [cats:first(Nothing), cats:last(Nothing), cats:next(Nothing, 7),
                       cats:tab2list(Nothing), cats:info(Nothing, size)]),
         ?assertEqual('$end_of_table', cats:select(Nothing, [{'_', [], ['$_']}], 1))
     end || Type <- [set, ordered_set, bag]].

long_statistics(Snapshot, Objects) ->
    Size = tuple_size(Objects),
    ?assertEqual([Size, '$end_of_table', '$end_of_table'],
                 [cats:count(Snapshot, #{}), cats:nth(Snapshot, Size), cats:nth(Snapshot, -Size - 1)]),
    [begin
         Object = {Key, _} = element(N + 1, Objects),
         ?assertEqual([Object, Object, N, N, Size - N - 1],
                      [cats:nth(Snapshot, N), cats:nth(Snapshot, N - Size), cats:rank(Snapshot, Key),
                       cats:count(Snapshot, #{below => Key}), cats:count(Snapshot, #{above => Key})]),
         Last = min(Size, N + 700),
         ?assertEqual([element(I, Objects) || I <- lists:seq(N + 1, Last)],
                      cats:range(Snapshot, Key, element(1, element(Last, Objects)), infinity))
     end || N <- [0 || Size > 0] ++ [rand:uniform(Size) - 1 || Size > 0, _ <- lists:seq(1, 20)]].

%% A fold over a snapshot calls the library once for many objects. Large objects come in smaller numbers.
folds_read_many(_Config) ->
    [begin
         Table = cats:new(table, [Type, public | Options]),
         [cats:insert(Table, {Key, Value}) || Key <- lists:seq(1, 4000)],
         Snapshot = cats:snapshot(Table),
         [cats:insert(Table, {Key, new}) || Key <- lists:seq(1, 4000, 2)],
         [begin
              {Calls, Objects} = cats_test_lib:native_calls([next_objects, prev_objects, next_numbered, prev_numbered],
                                         fun() -> cats:Fold(fun(Object, All) -> [Object | All] end, [], Snapshot) end),
              ?assertEqual([{Key, Value} || Key <- lists:seq(1, 4000)], lists:sort(Objects)),
              Keys = [Key || {Key, _} <- lists:reverse(Objects)],
              {First, Next} = case Fold of foldl -> {first, next}; foldr -> {last, prev} end,
              ?assertEqual(walk(cats, Snapshot, First, Next), Keys),
              ?assert(Calls < Most, {Type, Fold, Calls})
          end || Fold <- [foldl, foldr]]
     end || Type <- [set, ordered_set, bag],
            {Value, Options, Most} <- [{old, [], 400}, {lists:seq(1, 100), [], 800},
                                       {lists:duplicate(1000, 0), [compressed], 4000}]].

%% The first search passes all objects before the one that it looks for, on a dirty scheduler. Later ones know the
%% numbers of some keys.
numbers_are_kept(_Config) ->
    Size = 60000,
    Table = cats:new(table, [ordered_set, public]),
    true = cats:insert(Table, [{Key, old} || Key <- lists:seq(1, Size)]),
    Snapshot = cats:snapshot(Table),
    [cats:delete(Table, Key) || Key <- lists:seq(1, Size, 2)],
    true = cats:insert(Table, [{Key + 0.5, new} || Key <- lists:seq(1, Size, 3)]),
    Numbers = [0, Size - 1 | [rand:uniform(Size) - 1 || _ <- lists:seq(1, 50)]],
    {Calls, _} = cats_test_lib:native_calls([dirty], fun() -> [numbers(Snapshot, Size, N) || N <- Numbers] end),
    ?assert(Calls < 10, Calls),
    ?assert(cats:info(Snapshot, memory) > 0),
    %% Bounds that nobody has passed are counted by the objects between them.
    Other = cats:snapshot(Table),
    Range = #{from => 50000, below => 50100},
    ?assertEqual({0, cats:count(Table, Range)},
                 cats_test_lib:native_calls([dirty], fun() -> cats:count(Other, Range) end)).

numbers(Snapshot, Size, N) ->
    Object = {N + 1, old},
    ?assertEqual([[Object], Object, Object, N, N, Size - N - 1, min(Size - N, 100)],
                 [cats:slot(Snapshot, N), cats:nth(Snapshot, N), cats:nth(Snapshot, N - Size),
                  cats:rank(Snapshot, N + 1), cats:count(Snapshot, #{below => N + 1}),
                  cats:count(Snapshot, #{above => N + 1}), cats:count(Snapshot, #{from => N + 1, below => N + 101})]),
    ?assertEqual('$end_of_table', cats:slot(Snapshot, Size)),
    ?assertEqual(N + 1, cats:rank(Snapshot, N + 1.5)).

%%------------------------------------------------------------------------------------------------------------
%% How long snapshots and what they need live

source_goes(_Config) ->
    Objects = [{Key, "value"} || Key <- lists:seq(1, 1000)],
    Fill = fun() ->
                   Table = cats:new(table, [public]),
                   cats:insert(Table, Objects),
                   {Table, cats:snapshot(Table)}
           end,
    {Emptied, OfEmptied} = Fill(),
    true = cats:delete_all_objects(Emptied),
    true = cats:insert(Emptied, {1, new}),
    {Deleted, OfDeleted} = Fill(),
    true = cats:delete(Deleted),
    {Owner, {_, OfDead}} = cats_test_lib:spawn_owner(Fill),
    cats_test_lib:stop(Owner, kill),
    [begin
         ?assertEqual(Objects, lists:sort(cats:tab2list(Snapshot))),
         %% What only the snapshot refers to is its memory, as soon as the reaper has freed the rest of the source.
         cats_test_lib:eventually(fun() -> cats:info(Snapshot, memory) > 1000 * 6 end),
         ?assertEqual(Objects, lists:sort(cats:tab2list(Snapshot)))
     end || Snapshot <- [OfEmptied, OfDeleted, OfDead]].

%% What the snapshot alone holds is given back when nobody refers to it any more: many snapshots need no more memory
%% than a few.
collected(_Config) ->
    Table = cats:new(table, [public]),
    Write = fun(N) -> true = cats:insert(Table, [{Key, lists:seq(N, N + 100)} || Key <- lists:seq(1, 3000)]) end,
    Write(0),
    Round = fun(N) ->
                    {Taker, Snapshot} = cats_test_lib:spawn_owner(fun() -> cats:snapshot(Table) end),
                    Write(N),
                    Held = cats:info(Snapshot, memory) * erlang:system_info(wordsize),
                    ?assert(Held > 3000 * 100 * 8),
                    ?assertEqual([{1, lists:seq(N - 1, N + 99)}], cats:lookup(Snapshot, 1)),
                    cats_test_lib:stop(Taker, normal),
                    Held
            end,
    %% Each round in a process, which ends with its snapshot.
    Rounds = fun(Numbers) -> [hd(cats_test_lib:together([fun() -> Round(N) end])) || N <- Numbers] end,
    _ = Rounds(lists:seq(1, 5)),
    Before = erlang:memory(system),
    Held = lists:sum(Rounds(lists:seq(6, 55))),
    cats_test_lib:eventually(fun() -> erlang:memory(system) < Before + Held div 4 end).

deleted(_Config) ->
    Table = cats:new(table, [public]),
    true = cats:insert(Table, {1, 1}),
    [First, Second] = [cats:snapshot(Table), cats:snapshot(Table)],
    {Other, _} = cats_test_lib:spawn_owner(fun() -> ok end),
    ?assertEqual(true, cats_test_lib:run_in(Other, fun() -> cats:delete(First) end)),
    ?assertError(badarg, cats:lookup(First, 1)),
    ?assertError(badarg, cats:delete(First)),
    ?assertEqual(undefined, cats:info(First)),
    true = cats:insert(Table, {1, 2}),
    ?assertEqual([{1, 1}], cats:lookup(Second, 1)),
    cats_test_lib:stop(Other, normal).

limit(_Config) ->
    Table = cats:new(table, [public, {snapshot_limit, 100000}]),
    [Old, New] = [cats:snapshot(Table), cats:snapshot(Table)],
    true = cats:insert(Table, {key, value}),
    ?assertEqual([], cats:tab2list(New)),
    [cats:insert(Table, {Key, lists:seq(1, 50)}) || Key <- lists:seq(1, 10000)],
    Text = "a snapshot that has died: what it kept was more than the table's snapshot_limit",
    [begin
         ?assertEqual({lookup, 1, Text}, remark(fun() -> cats:lookup(Snapshot, 1) end)),
         ?assertEqual({info, 1, Text}, remark(fun() -> cats:info(Snapshot, size) end)),
         ?assertEqual({insert, 1, Text}, remark(fun() -> cats:insert(Snapshot, {1}) end)),
         ?assertEqual({foldl, 3, Text}, remark(fun() -> cats:foldl(fun(_, Sum) -> Sum end, 0, Snapshot) end)),
         ?assertEqual({tab2list, 1, Text}, remark(fun() -> cats:tab2list(Snapshot) end))
     end || Snapshot <- [Old, New]],
    true = cats:delete(Old),
    ?assertError(badarg, cats:delete(Old)),
    %% Those that are taken after that have the limit for themselves.
    Later = cats:snapshot(Table),
    true = cats:delete(Table, 1),
    ?assertEqual([{1, lists:seq(1, 50)}], cats:lookup(Later, 1)),
    [cats:delete(Table, Key) || Key <- lists:seq(1, 10000)],
    ?assertEqual({lookup, 1, Text}, remark(fun() -> cats:lookup(Later, 1) end)),
    %% Likewise by number and by place.
    Ordered = cats:new(table, [public, ordered_set, {snapshot_limit, 0}]),
    Dead = cats:snapshot(Ordered),
    true = cats:insert(Ordered, {1}),
    ?assertEqual({nth, 1, Text}, remark(fun() -> cats:nth(Dead, 0) end)),
    ?assertEqual({rank, 1, Text}, remark(fun() -> cats:rank(Dead, 1) end)),
    ?assertEqual({count, 1, Text}, remark(fun() -> cats:count(Dead, #{}) end)),
    ?assertEqual({range, 1, Text}, remark(fun() -> cats:range(Dead, #{}, 1) end)),
    %% No copy fits.
    None = cats:new(table, [public, {snapshot_limit, 0}]),
    Dies = cats:snapshot(None),
    ?assertEqual([], cats:tab2list(Dies)),
    true = cats:insert(None, {1}),
    ?assertError(badarg, cats:tab2list(Dies)).

%% Entries whose copies take too long for a scheduler.
large_entries(_Config) ->
    Bag = cats:new(table, [duplicate_bag, public]),
    Objects = [{key, N, "value"} || N <- lists:seq(1, 50000)],
    true = cats:insert(Bag, Objects),
    Set = cats:new(table, [public]),
    Large = {key, lists:seq(1, 200000)},
    true = cats:insert(Set, Large),
    [OfBag, OfSet] = cats:snapshot([Bag, Set]),
    true = cats:insert(Bag, {key, 0, "value"}),
    true = cats:delete(Set, key),
    true = cats:delete(Bag, key),
    true = cats:insert(Set, {key, 1}),
    ?assertEqual(Objects, cats:lookup(OfBag, key)),
    ?assertEqual([Large], cats:lookup(OfSet, key)).

%% A process may be killed at any time while it takes a snapshot. Writers go on.
taker_dies(_Config) ->
    Tables = [cats:new(table, [public]), cats:new(table, [ordered_set, public])],
    Count = 300,
    Takers = [spawn(fun() -> endlessly(fun() -> cats:snapshot(Tables) end) end) || _ <- lists:seq(1, 3)],
    Write = fun(N) -> [true = cats:insert(Table, {N rem 10, N}) || Table <- Tables] end,
    [begin
         Write(N),
         Taker = spawn(fun() -> endlessly(fun() -> cats:snapshot(Tables) end) end),
         erlang:yield(),
         exit(Taker, kill),
         Write(N)
     end || N <- lists:seq(1, Count)],
    [exit(Taker, kill) || Taker <- Takers],
    Snapshots = cats:snapshot(Tables),
    true = cats:insert(hd(Tables), {0, changed}),
    ?assertEqual([[{0, Count}]], lists:usort([cats:lookup(Snapshot, 0) || Snapshot <- Snapshots])).

endlessly(Function) ->
    Function(),
    endlessly(Function).

%%------------------------------------------------------------------------------------------------------------
%% Beside writers

-define(ACCOUNTS, 50).

%% Transfers by transactions and within one table by lists. The sum of both tables is the same in all snapshots of both.
bank(_Config) ->
    [begin
         Tables = [A, B] = [cats:new(bank, [Type, public]) || _ <- [a, b]],
         [true = cats:insert(Table, [{Account, 100} || Account <- lists:seq(1, ?ACCOUNTS)]) || Table <- Tables],
         Transfer = fun() ->
                            [From, To] = [lists:nth(rand:uniform(2), Tables) || _ <- [from, to]],
                            [X, Y] = [rand:uniform(?ACCOUNTS) || _ <- [x, y]],
                            {atomic, _} = cats_transaction:run(
                                            fun() ->
                                                    [{X, Some}] = cats_transaction:read(From, X),
                                                    cats_transaction:insert(From, {X, Some - 1}),
                                                    [{Y, Other}] = cats_transaction:read(To, Y),
                                                    cats_transaction:insert(To, {Y, Other + 1})
                                            end)
                    end,
         %% Single operations and lists that keep the sum. A list is atomic, the numbers of extra accounts cancel out.
         Pair = fun() ->
                        N = rand:uniform(1000),
                        true = cats:insert(A, [{{extra, 1}, N}, {{extra, 2}, -N}])
                end,
         Total = 2 * ?ACCOUNTS * 100,
         Check = fun() ->
                         Taken = cats:snapshot([A, B]),
                         _ = rand:uniform(2) =:= 1 andalso Transfer(),
                         Sums = [lists:sum([sum_by(How, Snapshot) || Snapshot <- Taken])
                                 || How <- [select, fold, list, lookup]],
                         ?assertEqual([Total, Total, Total, Total], Sums),
                         ?assertEqual(2 * ?ACCOUNTS,
                                      lists:sum([length(cats:select(Snapshot,
                                                                    [{{'$1', '_'}, [{is_integer, '$1'}], [x]}]))
                                                 || Snapshot <- Taken]))
                 end,
         beside([Transfer, Transfer, Pair], [Check, Check])
     end || Type <- [set, ordered_set]].

sum_by(select, Table) -> lists:sum(cats:select(Table, [{{'_', '$1'}, [], ['$1']}]));
sum_by(fold, Table) -> cats:foldl(fun({_, Amount}, Sum) -> Sum + Amount end, 0, Table);
sum_by(list, Table) -> lists:sum([Amount || {_, Amount} <- cats:tab2list(Table)]);
sum_by(lookup, Table) ->
    Extra = [{extra, 1}, {extra, 2}],
    lists:sum([Amount || Key <- lists:seq(1, ?ACCOUNTS) ++ Extra, {_, Amount} <- cats:lookup(Table, Key)]).

%% Runs the writers again and again while each of the checks runs, for a time.
beside(Writers, Checks) ->
    Pids = [spawn_link(fun() -> rand:seed(exsss), endlessly(Writer) end) || Writer <- Writers],
    cats_test_lib:together([fun() -> rand:seed(exsss), cats_test_lib:repeat_for(?MS div 4, fun(_) -> Check() end) end
                            || Check <- Checks]),
    [begin
         unlink(Pid),
         exit(Pid, kill)
     end || Pid <- Pids].

%% A key and its mirror are inserted and deleted together.
mirrored(_Config) ->
    [begin
         Table = cats:new(table, [Type, public]),
         Flip = fun() ->
                        Key = rand:uniform(200),
                        {atomic, _} = cats_transaction:run(fun() ->
                                                                   case cats_transaction:member(Table, Key) of
                                                                       true ->
                                                                           [cats_transaction:delete(Table, K)
                                                                            || K <- [Key, -Key]];
                                                                       false ->
                                                                           [cats_transaction:insert(Table, {K, self()})
                                                                            || K <- [Key, -Key]]
                                                                   end
                                                           end)
                end,
         Check = fun() ->
                         Snapshot = cats:snapshot(Table),
                         Keys = lists:sort(walk(cats, Snapshot, first, next)),
                         ?assertEqual(Keys, lists:sort([-Key || Key <- Keys])),
                         ?assertEqual(Keys, lists:sort([Key || {Key, _} <- cats:tab2list(Snapshot)])),
                         ?assertEqual(length(Keys), cats:info(Snapshot, size))
                 end,
         beside([Flip, Flip], [Check])
     end || Type <- [set, ordered_set]].

%% Objects that are changed in place.
counters(_Config) ->
    [begin
         Table = cats:new(table, [Type, public]),
         Keys = lists:seq(1, 5),
         true = cats:insert(Table, [{Key, 0, 0, 0.0} || Key <- Keys]),
         Count = fun() -> [cats:update_counter(Table, Key, [{2, 1}, {3, -1}]) || Key <- Keys] end,
         %% The writer counts the keys one after the other, so their counts differ by one at most.
         Check = fun() ->
                         Snapshot = cats:snapshot(Table),
                         Read = fun() -> [hd(cats:lookup(Snapshot, Key)) || Key <- Keys] end,
                         First = Read(),
                         Counts = [N || {_, N, M, _} <- First, N + M =:= 0],
                         ?assertEqual(length(Keys), length(Counts)),
                         ?assert(lists:max(Counts) - lists:min(Counts) =< 1),
                         ?assertEqual(Counts, lists:reverse(lists:sort(Counts))),
                         [?assertEqual(Counts, [cats:lookup_element(Snapshot, Key, 2) || Key <- Keys])
                          || _ <- lists:seq(1, 3)],
                         ?assertEqual(First, lists:sort(cats:tab2list(Snapshot))),
                         ?assertEqual(First, Read())
                 end,
         beside([Count], [Check, Check])
     end || Type <- [set, ordered_set]].

%% The size is that of the instant, and it is the number of objects.
exact_size(_Config) ->
    [begin
         Table = cats:new(table, [Type, public]),
         Write = fun() ->
                         Key = rand:uniform(100),
                         case rand:uniform(4) of
                             1 -> cats:delete(Table, Key);
                             2 -> cats:take(Table, Key);
                             3 -> cats:insert(Table, [{Key, 1}, {Key + 1, 1}]);
                             4 -> cats:insert(Table, {Key, 2})
                         end
                 end,
         Check = fun() ->
                         Snapshot = cats:snapshot(Table),
                         ?assertEqual(cats:info(Snapshot, size), length(cats:tab2list(Snapshot))),
                         ?assertEqual(cats:info(Snapshot, size), cats:select_count(Snapshot, [{'_', [], [true]}])),
                         _ = Type =:= ordered_set
                             andalso same_statistics(Snapshot, 1, cats:tab2list(Snapshot), [1, 50, 101])
                 end,
         beside([Write, Write], [Check])
     end || Type <- [set, ordered_set, bag]].

%% A table is emptied while snapshots are taken. Both tables are of one instant: the second is never older than the
%% first.
emptied_meanwhile(_Config) ->
    Tables = [A, B] = [cats:new(table, [public]) || _ <- [a, b]],
    Round = fun() ->
                    N = erlang:unique_integer([monotonic]),
                    true = cats:delete_all_objects(B),
                    true = cats:insert(A, {round, N}),
                    true = cats:insert(B, {round, N})
            end,
    Round(),
    Check = fun() ->
                    [[{round, InA}], InB] = [cats:lookup(Snapshot, round) || Snapshot <- cats:snapshot(Tables)],
                    ?assert(InB =:= [] orelse InB =:= [{round, InA}])
            end,
    beside([Round], [Check, Check]).

%% A long call that writes is under way when the snapshot is taken.
waits_for_writers(_Config) ->
    Table = cats:new(table, [public]),
    Writer = fun() ->
                     N = erlang:unique_integer(),
                     true = cats:insert(Table, [{Key, N} || Key <- lists:seq(1, 3000)])
             end,
    Writer(),
    Check = fun() ->
                    Snapshot = cats:snapshot(Table),
                    ?assertMatch([_], lists:usort(cats:select(Snapshot, [{{'_', '$1'}, [], ['$1']}])))
            end,
    beside([Writer], [Check]).

%% A key that always has one object is met once in each walk, whatever happens to it meanwhile.
not_mixed(_Config) ->
    [begin
         Table = cats:new(table, [Type, public]),
         Keys = [case N rem 3 of 0 -> N; 1 -> {N, "key"}; 2 -> <<N:600>> end || N <- lists:seq(1, 300)],
         true = cats:insert(Table, [{Key, 0, "value"} || Key <- Keys]),
         Write = fun() ->
                         Key = lists:nth(rand:uniform(300), Keys),
                         case rand:uniform(3) of
                             1 when Type =/= bag -> cats:update_counter(Table, Key, 1);
                             2 when Type =/= bag -> cats:insert(Table, {Key, 0, "other"});
                             _ -> cats:insert(Table, {{new, rand:uniform(300)}, 1, "new"})
                         end
                 end,
         Check = fun() ->
                         Snapshot = cats:snapshot(Table),
                         [begin
                              Objects = cats:tab2list(Snapshot),
                              Met = [Key || {Key, _, _} <- Objects],
                              ?assertEqual(lists:sort(Met), lists:usort(Met)),
                              ?assertEqual([], Keys -- Met),
                              ?assertEqual(cats:info(Snapshot, size), length(Met)),
                              ?assertEqual(lists:sort(Objects), lists:sort(cats:tab2list(Snapshot)))
                          end || _ <- [1, 2]]
                 end,
         beside([Write, Write], [Check])
     end || Type <- [set, ordered_set, bag]].

%%------------------------------------------------------------------------------------------------------------
%% Takers that do not run, and what stays behind

%% Calls on dirty schedulers, so that takers have to wait for guards.
long_calls() ->
    Table = cats:new(long, [duplicate_bag, public]),
    true = cats:insert(Table, [{key, N} || N <- lists:seq(1, 50_000)]),
    Snapshot = cats:snapshot(Table),
    true = cats:insert(Table, {key, more}),
    cats:delete(Snapshot),
    cats:delete(Table),
    long_calls().

%% A process has begun a snapshot, and is never scheduled again. Others take theirs.
a_taker_that_does_not_run(_Config) ->
    Table = cats:new(table, [public]),
    Self = self(),
    Begin = fun Begin() ->
                    case catch cats_nif:snapshot([Table]) of
                        {wait, _} = Wait -> Self ! {begun, self()}, receive never -> Wait end;
                        _ -> Begin()
                    end
            end,
    Long = spawn(fun long_calls/0),
    Stopped = spawn(Begin),
    receive {begun, Stopped} -> ok end,
    cats_test_lib:stop(Long, kill),
    true = cats:insert(Table, {key, 1}),
    Snapshot = cats_test_lib:in_process(fun() -> cats:snapshot(Table) end),
    true = cats:insert(Table, {key, 2}),
    ?assertEqual([{key, 1}], cats:lookup(Snapshot, key)),
    cats_test_lib:stop(Stopped, kill).

%% A taker of high priority never gives way to one of normal priority.
takers_of_all_priorities(_Config) ->
    Table = cats:new(table, [public]),
    Long = spawn(fun long_calls/0),
    Take = fun(Priority) ->
                   process_flag(priority, Priority),
                   cats_test_lib:repeat_for(?MS, fun(_) -> ?assertEqual(0, cats:info(cats:snapshot(Table), size)) end)
           end,
    Schedulers = erlang:system_flag(schedulers_online, 1),
    try
        Numbers = cats_test_lib:together([fun() -> Take(Priority) end || Priority <- [normal, high, high, low]]),
        [?assert(Number > 0) || Number <- Numbers]
    after
        erlang:system_flag(schedulers_online, Schedulers),
        cats_test_lib:stop(Long, kill)
    end.

%% What snapshots that come and go have kept moves into older ones that live, in the right order.
released_ones_are_merged(_Config) ->
    [begin
         Table = cats:new(table, [public, Type | Options]),
         Keys = [1, 1.5, key, {tuple, 1}, "string", <<"binary">> | [N || N <- lists:seq(2, 40)]],
         Object = fun(Key, Value) -> {Key, Value, lists:duplicate(5, Value)} end,
         [cats:insert(Table, Object(Key, 0)) || Key <- Keys],
         Expected = lists:sort(cats:tab2list(Table)),
         Old = cats:snapshot(Table),
         Round = fun(N) ->
                         Snapshot = cats:snapshot(Table),
                         Key = lists:nth(N rem length(Keys) + 1, Keys),
                         cats:delete(Table, Key),
                         cats:insert(Table, {new, N}),
                         _ = N rem 3 =:= 0 orelse cats:insert(Table, Object(Key, N)),
                         cats:delete(Snapshot)
                 end,
         Read = fun Read() -> [[_] = cats:lookup(Old, Key) || Key <- Keys], Read() end,
         Reader = spawn_link(Read),
         [Round(N) || N <- lists:seq(1, 500)],
         Middle = cats:snapshot(Table),
         Half = lists:sort(cats:tab2list(Table)),
         [begin
              Round(N),
              _ = N rem 50 =:= 0 andalso ?assertEqual(Expected, lists:sort(cats:tab2list(Old)))
          end || N <- lists:seq(501, 1500)],
         Small = fun(Snapshot) -> cats:info(Snapshot, memory) * erlang:system_info(wordsize) < 40_000 end,
         cats_test_lib:eventually(fun() -> Small(Old) andalso Small(Middle) end),
         [?assertEqual(Objects, lists:sort(cats:tab2list(Snapshot)))
          || {Snapshot, Objects} <- [{Old, Expected}, {Middle, Half}]],
         cats:delete(Middle),
         [Round(N) || N <- lists:seq(1501, 1600)],
         ?assertEqual(Expected, lists:sort(cats:tab2list(Old))),
         [?assertEqual([Object(Key, 0)], cats:lookup(Old, Key)) || Key <- Keys],
         cats_test_lib:eventually(fun() -> Small(Old) end),
         ?assertEqual(Expected, lists:sort(cats:tab2list(Old))),
         unlink(Reader),
         cats_test_lib:stop(Reader, kill)
     end || Type <- [set, ordered_set, bag], Options <- [[], [compressed]]].

%% memory/0 has what snapshots hold back, of tables that are deleted too.
memory_of_all(_Config) ->
    %% What other suites have left is freed first.
    Settled = fun() -> Now = cats:memory(), timer:sleep(1500), cats:memory() =:= Now end,
    cats_test_lib:eventually(Settled),
    Held = fun(Before) -> cats:memory() - Before end,
    Before = cats:memory(),
    Table = cats:new(table, [public]),
    [cats:insert(Table, {N, lists:seq(1, 20)}) || N <- lists:seq(1, 10_000)],
    Bytes = Held(Before),
    Snapshot = cats:snapshot(Table),
    [cats:insert(Table, {N, changed}) || N <- lists:seq(1, 10_000)],
    ?assert(Held(Before) > Bytes),
    cats:delete(Table),
    Objects = fun() -> cats:info(Snapshot, memory) * erlang:system_info(wordsize) end,
    cats_test_lib:eventually(fun() -> Objects() > Bytes andalso abs(Held(Before) - Objects()) < 2000 end),
    cats:delete(Snapshot),
    cats_test_lib:eventually(fun() -> abs(Held(Before)) < 2000 end).

%% Slots of a small snapshot are large parts of a table that has grown.
calls_after_growth(_Config) ->
    Table = cats:new(table, [public]),
    [cats:insert(Table, {N}) || N <- lists:seq(1, 10)],
    Snapshot = cats:snapshot(Table),
    cats:insert_many(Table, [{N} || N <- lists:seq(11, 300_000)]),
    Slots = [cats:slot(Snapshot, N) || N <- lists:seq(0, 3)],
    ?assertEqual([{N} || N <- lists:seq(1, 10)], lists:sort(lists:append([Slot || Slot <- Slots, is_list(Slot)]))),
    ?assertMatch({_, _, _, _, _, _, 0, 0}, cats:info(Snapshot, stats)),
    ?assertEqual([], cats:info(Snapshot, binary)),
    [?assertMatch(?FAILED(dirty, _), apply(cats_nif, Function, Arguments))
     || {Function, Arguments} <- [{slot, [Snapshot, 0]}, {info, [Snapshot, stats]}, {info, [Snapshot, binary]}]].

%% Processes end with their snapshots, and nothing else happens to tables.
dropped_ones_give_memory_back(_Config) ->
    Table = cats:new(table, [public]),
    true = cats:insert(Table, {key, value}),
    Others = cats:memory(),
    Round = fun() ->
                    [cats_test_lib:in_process(fun() -> _ = cats:snapshot(Table), ok end) || _ <- lists:seq(1, 3000)],
                    cats_test_lib:eventually(fun() -> cats:memory() < Others + 1_000_000 end),
                    erlang:memory(system)
            end,
    [Round() || _ <- lists:seq(1, 3)],
    Before = Round(),
    After = lists:last([Round() || _ <- lists:seq(1, 8)]),
    ?assert(After - Before < 6_000_000).

%% A read that searches many snapshots uses up the time slice of its process, so that others run and timers fire.
reads_of_old_ones_count(_Config) ->
    [begin
         Table = cats:new(t, [Type]),
         true = cats:insert(Table, [{Key, 0} || Key <- lists:seq(1, 100)]),
         Snapshots = [cats:snapshot(Table) || _ <- lists:seq(1, 1000)],
         Used = fun(Snapshot, Read) ->
                        Reductions = fun() -> element(2, process_info(self(), reductions)) end,
                        Before = Reductions(),
                        [Read(Snapshot) || _ <- lists:seq(1, 100)],
                        Reductions() - Before
                end,
         [begin
              [Old, New] = [Used(Snapshot, Read) || Snapshot <- [hd(Snapshots), lists:last(Snapshots)]],
              ?assert({Type, Old} > {Type, 100 * 500}),
              ?assert({Type, New} < {Type, 100 * 100})
          end || Read <- [fun(Snapshot) -> [_] = cats:lookup(Snapshot, 7) end,
                          fun(Snapshot) -> true = cats:member(Snapshot, 7) end,
                          fun(Snapshot) -> cats:next(Snapshot, 7) end,
                          fun(Snapshot) -> [[_], [_]] = cats:lookup_many(Snapshot, [7, 8]) end]],
         true = cats:delete(Table)
     end || Type <- [set, ordered_set]].

%% No scheduler searches thousands of newer snapshots for one answer.
the_oldest_of_many(_Config) ->
    [begin
         Table = cats:new(t, [Type]),
         true = cats:insert(Table, [{Key, 0} || Key <- lists:seq(1, 100)]),
         Snapshots = [cats:snapshot(Table) || _ <- lists:seq(1, 3000)],
         true = cats:insert(Table, {7, 1}),
         First = cats:first(Table),
         [begin
              ?assertEqual({Type, Function, Expected},
                           {Type, Function, apply(cats, Function, [hd(Snapshots) | Arguments])}),
              ?assertMatch({_, _, ?FAILED(dirty, _)},
                           {Type, Function, apply(cats_nif, Function, [hd(Snapshots) | Arguments])}),
              ?assertNotMatch({_, _, ?FAILED(dirty, _)},
                              {Type, Function, apply(cats_nif, Function, [lists:nth(2000, Snapshots) | Arguments])})
          end || {Function, Arguments, Expected} <-
                     [{lookup, [7], [{7, 0}]}, {member, [7], true}, {first, [], First},
                      {next, [7], cats:next(Table, 7)}, {slot, [3], cats:slot(lists:last(Snapshots), 3)}]],
         true = cats:delete(Table)
     end || Type <- [set, ordered_set]].
