%% Matching, selecting, folding and continuations, where more is to be said than that cats returns what ets
%% returns (which cats_oracle_SUITE sees to); the functions of match specifications alone; and the list of
%% functions and types.
-module(cats_select_SUITE).
-include_lib("stdlib/include/assert.hrl").
-include("cats_failure.hrl").
-include_lib("stdlib/include/ms_transform.hrl").
-export([all/0, init_per_suite/1, end_per_suite/1]).
-export([functions/1, types/1, results/1, maps/1, compressed/1, equal_keys/1, several_clauses/1, deep_keys/1,
         deep_replacements/1, ever_deeper/1, ranges/1, other_constants/1, many_shapes/1, keys_are_met_once/1, chunks/1,
         reused/1, repaired/1, bad_continuations/1, gone/1, limits/1, deleted_meanwhile/1, changed_meanwhile/1,
         large_objects/1, heavy_objects/1, heavy_groups/1, folds/1, fold_and_delete/1, fold_and_change/1,
         input_functions/1, specifications/1, shell_funs/1, module_funs/1]).

all() ->
    [functions, types, results, maps, compressed, equal_keys, several_clauses, deep_keys, deep_replacements,
     ever_deeper, ranges, other_constants, many_shapes, keys_are_met_once, chunks, reused, repaired, bad_continuations,
     gone, limits, deleted_meanwhile, changed_meanwhile, large_objects, heavy_objects, heavy_groups, folds,
     fold_and_delete, fold_and_change, input_functions, specifications, shell_funs, module_funs].

init_per_suite(Config) -> cats_test_lib:start(Config).

end_per_suite(_Config) -> ok.

%% Functions that ets exports for its own use: the parts of all/0, delete_all_objects/1, select_delete/2 and
%% match_spec_run/2, which are not documented.
internal() ->
    [{internal_request_all, 0}, {internal_delete_all, 2}, {internal_select_delete, 2}, {match_spec_run_r, 3}].

%% A function that a later OTP adds fails this.
functions(_Config) ->
    Ets = ets:module_info(exports) -- internal(),
    ?assertEqual([], Ets -- cats:module_info(exports)),
    %% What this OTP may not have yet, and what is not in ets.
    Newer = [{first_lookup, 1}, {last_lookup, 1}, {lookup_element, 4}, {next_lookup, 2}, {prev_lookup, 2},
             {update_element, 4}],
    Own = [{add, 3}, {budget, 0},
           {claim, 1}, {contention, 1}, {contention, 2}, {count, 2}, {count, 3},
           {delete_many, 2}, {fetch, 3}, {fetch, 4},
           {fetch_many, 3}, {fetch_many, 4}, {engines, 0}, {from_ets, 2}, {garbage, 0}, {insert, 3},
           {insert_many, 2}, {insert_new, 3},
           {lookup_elements, 3}, {lookup_many, 2}, {memory, 0}, {nth, 2}, {range, 3}, {range, 4}, {rank, 2},
           {removed, 1}, {replace, 3},
           {snapshot, 1}, {stats, 0}, {stats, 1}, {stats_delta, 2}, {take_many, 2}, {to_ets, 2},
           {touch, 3}, {ttl, 2}, {update, 3}, {update, 4}],
    ?assertEqual(lists:sort(Own), lists:sort((cats:module_info(exports) -- Ets) -- Newer)).

%% Likewise for types, in a program that Dialyzer or the compiler looks at.
types(_Config) ->
    ?assertEqual([], exported_types(ets) -- exported_types(cats)).

exported_types(Module) ->
    {ok, {Module, [{abstract_code, {_, Forms}}]}} = beam_lib:chunks(code:which(Module), [abstract_code]),
    lists:append([Types || {attribute, _, export_type, Types} <- Forms]).

kinds() -> cats_test_lib:types().

%% The same table in ets and cats.
both(Options, Objects) ->
    [begin
         Table = cats_test_lib:new(Module, both, Options),
         [true = Module:insert(Table, Object) || Object <- Objects],
         {Module, Table}
     end || Module <- [ets, cats]].

objects(Number) ->
    [{Key, Key rem 7, [Key]} || Key <- lists:seq(1, Number)].

canonical(ordered_set, Results) -> Results;
canonical(_Kind, Results) when is_list(Results) -> lists:sort(Results);
canonical(_Kind, Result) -> Result.

%% Over more objects than a slice holds.
results(_Config) ->
    Spec = [{{'$1', 3, '$2'}, [{'>', '$1', 100}], [{{'$2', '$1'}}]}],
    Calls = [{match, [{'$1', 3, '_'}]}, {match, ['$1']}, {match_object, [{'_', 3, '_'}]},
             {match_object, [{77, '_', '_'}]},
             {select, [Spec]}, {select_reverse, [Spec]}, {tab2list, []},
             {select_count, [[{{'$1', 3, '_'}, [{'<', '$1', 5000}], [true]}]]},
             {select_delete, [[{{'$1', 3, '_'}, [{'<', '$1', 5000}], [true]}]]}, {tab2list, []},
             {match_delete, [{'_', 4, '_'}]}, {tab2list, []}, {match_delete, ['_']}, {tab2list, []}],
    [begin
         Tables = both([Kind], objects(20000)),
         [?assertEqual(canonical(Kind, apply(ets, Function, [Ets | Arguments])),
                       canonical(Kind, apply(cats, Function, [Cats | Arguments])))
          || {Function, Arguments} <- Calls, [{ets, Ets}, {cats, Cats}] <- [Tables]],
         [Module:delete(Table) || {Module, Table} <- Tables]
     end || Kind <- kinds()],
    [{ets, Ets}, {cats, Cats}] = both([ordered_set], objects(20000)),
    Replace = [{{'$1', 3, '$2'}, [], [{{'$1', 8, '$2'}}]}],
    ?assertEqual(ets:select_replace(Ets, Replace), cats:select_replace(Cats, Replace)),
    ?assertEqual(ets:tab2list(Ets), cats:tab2list(Cats)).

%% Maps that a body makes have their pairs in the VM's order, whatever stands for the keys. (ETS brings the VM down with
%% such bodies.)
maps(_Config) ->
    Keys = [z, a, 5, 1.5, {x, 1}, "s", <<"b">>, zz, 0],
    Objects = [{{A, B}, A, B} || A <- Keys, B <- Keys, A =/= B],
    Map = #{'$2' => '$1', m => {{'$3'}}, '$3' => 2, 3 => []},
    Made = fun({Key, A, B}) -> #{A => Key, m => {B}, B => 2, 3 => []} end,
    Expected = lists:sort([Made(Object) || Object <- Objects]),
    Head = {'$1', '$2', '$3'},
    Replace = [{Head, [], [{{'$1', Map, {hd, [{{'$2', Map}}]}}}]}],
    [begin
         Table = cats_test_lib:new(cats, maps, [Kind]),
         true = cats:insert(Table, Objects),
         [begin
              Got = lists:sort(cats:select(Table, [{Head, [], [Body]}])),
              ?assertEqual(Expected, Got),
              ?assertEqual(term_to_binary(Expected), term_to_binary(Got))
          end || Body <- [Map, {element, 1, {{Map}}}, {hd, [Map]}, {map_get, a, #{b => 1, a => Map}}]],
         ?assertEqual(length(Objects), cats:select_replace(Table, Replace)),
         [begin
              ?assertEqual([{Key, Made(Object), {A, Made(Object)}}], cats:lookup(Table, Key)),
              ?assert(cats:update_element(Table, Key, {2, cats:lookup_element(Table, Key, 3)})),
              Updated = [{Key, {A, Made(Object)}, {A, Made(Object)}}],
              ?assertEqual(Updated, cats:lookup(Table, Key)),
              ?assertEqual(term_to_binary(Updated), term_to_binary(cats:lookup(Table, Key)))
          end || {Key, A, _} = Object <- Objects]
     end || Kind <- [set, ordered_set]].

%% Objects that are packed are found, changed and removed as others are, by key and in a scan.
compressed(_Config) ->
    Objects = [{Key, Key rem 3, N, lists:duplicate(100 * (Key rem 2) + N, Key)}
               || Key <- lists:seq(1, 20), N <- [1, 2, 3]],
    Calls = [{match, ['_']}, {match_object, [{3, '_', '_', '$1'}]}, {match_object, [{'_', 1, '_', '_'}]},
             {select, [[{{3, '_', '$1', '$2'}, [], [{{'$1', '$2'}}]}]]},
             {select_count, [[{{'_', 2, '_', '_'}, [], [true]}]]},
             {match_delete, [{3, '_', '_', '_'}]}, {match_delete, [{5, '_', 2, '_'}]},
             {match_delete, [{5, 9, '_', '_'}]},
             {select_delete, [[{{7, '_', '_', '$1'}, [{'>', {length, '$1'}, 101}], [true]}]]},
             {select_delete, [[{{'$1', 1, '_', '_'}, [{'<', '$1', 9}], [true]}]]},
             {match_delete, [{'_', '_', 2, '_'}]}],
    Replace = [{select_replace, [[{{9, '$1', '$2', '$3'}, [], [{{9, '$2', '$1', '$3'}}]}]]},
               {select_replace, [[{{'$1', '_', '_', '$2'}, [{'>', '$1', 15}], [{{'$1', '$2', '$2', '$2'}}]}]]}],
    [begin
         Tables = both([Kind, compressed], Objects),
         [begin
              [Expected, Got] = [apply(Module, Function, [Table | Arguments]) || {Module, Table} <- Tables],
              ?assertEqual(canonical(Kind, Expected), canonical(Kind, Got)),
              [Left, Mine] = [Module:tab2list(Table) || {Module, Table} <- Tables],
              ?assertEqual(canonical(Kind, Left), canonical(Kind, Mine))
          end || {Function, Arguments} <- [Replacement || Replacement <- Replace, Kind =/= bag] ++ Calls]
     end || Kind <- kinds()].

%% A range of keys is treated in one go up to a number of keys, and in slices above.
ranges(_Config) ->
    Sizes = [0, 1, 2, 15, 16, 17, 18, 64, 100, 300],
    Part = fun(N) when N rem 5 =:= 0 -> float(N); (N) when N rem 7 =:= 0 -> {N}; (N) -> N end,
    Objects = [{{Size, Part(N), N}, N, lists:duplicate(N rem 4, <<N:32>>)} || Size <- Sizes, N <- lists:seq(1, Size)],
    [begin
         Tables = both([ordered_set | Options], Objects),
         [begin
              Head = {{Size, '$1', '$2'}, '_', '$3'},
              Above = [{Head, [{'>', '$1', 4}], ['$1']}],
              Between = [{{{Size, '$1', '_'}, '$2', '_'},
                          [{'>=', '$1', 3}, {'<', '$1', {const, {8}}}, {'=/=', '$2', 6}], [{{'$2', '$1'}}]}],
              [begin
                   [Expected, Got] = [apply(Module, Function, [Table | Arguments]) || {Module, Table} <- Tables],
                   ?assertEqual({Size, Function, Expected}, {Size, Function, Got})
               end || {Function, Arguments} <-
                              [{match, [Head]}, {match_object, [Head]}, {match_object, [{{Size, 3, '_'}, '_', '_'}]}]
                              ++ [{Function, [Specification]} || Function <- [select, select_reverse, select_count],
                                                                 Specification <- [Above, Between,
                                                                                   [{Head, [], ['$_']}],
                                                                                   Above ++ Between]]]
          end || Size <- Sizes ++ [1.0, 7]]
     end || Options <- [[], [compressed]]].

%% In an ordered_set a key may be another term than the one that finds it; no head matches then.
equal_keys(_Config) ->
    Keys = [{1, 1.0}, {2.0, 2}, {{3, a}, {3.0, a}}, {[4.0], [4]}],
    [begin
         Tables = both([ordered_set], [{Held, b} || {Held, _} <- Keys]),
         [begin
              [Expected, Got] = [apply(Module, Function, [Table | Arguments]) || {Module, Table} <- Tables],
              ?assertEqual({Function, Key, Expected}, {Function, Key, Got}),
              [Left, Mine] = [Module:tab2list(Table) || {Module, Table} <- Tables],
              ?assertEqual(Left, Mine)
          end || {Function, Arguments} <-
                         [{match, [{Key, '$1'}]}, {select_count, [[{{Key, '$1'}, [], [true]}]]},
                          {select_replace, [[{{Key, '$1'}, [], [{{{const, Key}, {{'$1', '$1'}}}}]}]]},
                          {select_delete, [[{{Key, '_'}, [], [true]}]]}]]
     end || {Stored, Other} <- Keys, Key <- [Other, Stored]].

%% Clauses for two keys of an ordered_set, where ETS may miss one of them (docs/internals/matching.md).
several_clauses(_Config) ->
    Module = cats_test_lib:tables(),
    [begin
         Table = Module:new(clauses, [ordered_set]),
         true = Module:insert(Table, [{Key, 1} || Key <- Keys]),
         Clauses = fun(Body) -> [{{Key, '_'}, [], [Body]} || Key <- Keys] end,
         ?assertEqual(lists:sort(Keys), Module:select(Table, Clauses({element, 1, '$_'}))),
         ?assertEqual(2, Module:select_count(Table, Clauses(true))),
         ?assertEqual(2, Module:select_delete(Table, Clauses(true)))
     end || {A, B} <- [{{1.0, 1}, {1, 2}}, {[1.0], [1, 2]}, {{{1}, 2}, {{1, 2}, 1}}, {[{1}, 2], [{1, 2}, 1]}],
            Keys <- [[A, B], [B, A]]].

%% A deep key is held from some level on. It stands deeper in a specification than in an object.
deep_keys(_Config) ->
    Nested = [fun(Inner) -> [Inner] end, fun(Inner) -> {Inner} end, fun(Inner) -> [a, b | Inner] end,
              fun(Inner) -> [b, {Inner} | c] end],
    Adds = fun(Y) -> fun(X) -> X + Y end end,
    [begin
         Deep = lists:foldl(fun(_, Inner) -> Nest(Inner) end, x, lists:seq(1, Levels)),
         [begin
              Results = [begin
                             Table = Module:new(deep, [Type]),
                             true = Module:insert(Table, {Key, 1}),
                             {Module:match(Table, {Key, '$1'}), Module:select(Table, [{{Key, '$1'}, [], ['$1']}]),
                              Module:select(Table, [{{'$1', '$2'}, [{'=:=', '$1', {const, Key}}], ['$2']}]),
                              [Module:select_replace(Table, [{{Key, '$1'}, [], [{{{const, Key}, {'+', '$1', 1}}}]}])
                               || Type =/= bag],
                              [Module:select_replace(Table, [{{Key, '$1'}, [], [{const, {Key, 4}}]}]) || Type =/= bag],
                              Module:lookup(Table, Key), Module:match_delete(Table, {Key, '_'}),
                              Module:info(Table, size)}
                         end || Module <- [ets, cats_test_lib:tables()]],
              ?assertMatch([Same, Same], Results, {Type, Levels, Key})
          end || Key <- [Deep, Adds(Deep), Adds(Adds(Deep)), Nest(Adds(Deep))]]
     end || Type <- cats_test_lib:types([set, ordered_set, bag]), Nest <- Nested,
            Levels <- lists:seq(28, 34) ++ lists:seq(57, 66)].

%% An object that select_replace/2 makes is found like one that is inserted, however deep its parts stood before.
deep_replacements(_Config) ->
    Deep = fun(Levels) -> lists:foldl(fun(_, Inner) -> [Inner] end, x, lists:seq(1, Levels)) end,
    [begin
         Results = [begin
                        Table = Module:new(deep, [Type]),
                        true = Module:insert(Table, [{1, deep, Deep(Levels)}, {2, shallow, {Deep(Levels)}}]),
                        2 = Module:select_replace(Table,
                                                  [{{'$1', deep, '$2'}, [],
                                                    [{{'$1', {{'$2'}}, {const, Deep(Levels)}}}]},
                                                   {{'$1', shallow, {'$2'}}, [], [{{'$1', '$2', Deep(Levels)}}]}]),
                        Objects = lists:sort(Module:tab2list(Table)),
                        {Objects, [Module:match(Table, {'$1', Value, Deep(Levels)})
                                   || Value <- [{Deep(Levels)}, Deep(Levels)]],
                         [Module:delete_object(Table, Object) || Object <- Objects], Module:info(Table, size)}
                    end || Module <- [ets, cats_test_lib:tables()]],
         ?assertMatch([Same, Same], Results, {Type, Levels})
     end || Type <- cats_test_lib:types([set, ordered_set, duplicate_bag]), Levels <- lists:seq(54, 68)].

%% Each select_replace/2 nests the object deeper.
ever_deeper(_Config) ->
    Module = cats_test_lib:tables(),
    Table = Module:new(deep, [set]),
    true = Module:insert(Table, {key, x}),
    Wrapped = lists:foldl(fun(_, Inner) -> {{Inner}} end, '$1', lists:seq(1, 25)),
    [1 = Module:select_replace(Table, [{{key, '$1'}, [], [{{key, Wrapped}}]}]) || _ <- lists:seq(1, 1000)],
    [{key, Value}] = Module:lookup(Table, key),
    ?assertEqual(25000, levels(Value, 0)).

levels({Inner}, Levels) -> levels(Inner, Levels + 1);
levels(x, Levels) -> Levels.

%% Calls that differ in their constants only, which are compiled once.
other_constants(_Config) ->
    Terms = [1, 2, -1, 1 bsl 70, 1 bsl 70 + 1, -(1 bsl 70), 1.0, 2.0, 0.0, -0.0, a, b, '$1', '_', <<>>, <<1>>, <<2>>,
             <<1:3>>, {1}, {2}, {a, 1}, {a, 2}, [1], [2], [1 | 2], [1 | 3], [], "ab", "ac", #{1 => 2}, #{2 => 2},
             #{1 => 3}, self(), {1.0, 2}, {{1}, 2.0}],
    Values = [Term || Term <- Terms, not lists:member(Term, [-0.0, '$1', '_'])],
    Objects = [{Key, Value} || Key <- Values, Value <- Values],
    [begin
         Tables = both([Kind], Objects),
         [begin
              [Expected, Got] = [apply(Module, Function, [Table | Arguments]) || {Module, Table} <- Tables],
              ?assertEqual(sorted(Kind, Expected), sorted(Kind, Got))
          end
          || A <- Terms, B <- Terms,
             {Function, Arguments} <-
                     [{match, [{A, B}]}, {match_object, [{A, '$2'}]},
                      {select_count, [[{{'$1', '$2'}, [{'=:=', '$1', {const, A}}, {'>', '$2', {const, B}}], [true]}]]},
                      {select, [[{{A, '$1'}, [], [{{{const, B}, '$1'}}]}]]},
                      {select, [[{{'$1', A}, [{'=<', '$1', {const, B}}], ['$1', {const, B}]}]]},
              {select, [[{{'$1', '$2'}, [{'==', {const, A}, '$1'}], [[{const, B}, '$2' | {const, A}]]}]]}]]
     end || Kind <- [set, ordered_set, bag]].

%% A thread keeps the code of some patterns. These are more, so that they take the places of each other.
many_shapes(_Config) ->
    Tables = [{Module, Module:new(t, [bag, public])} || Module <- [ets, cats]],
    Names = [list_to_atom("shape" ++ integer_to_list(Number)) || Number <- lists:seq(1, 60)],
    [true = Module:insert(Table, [{{Name, 1}, Number}, {{Name, 2}, Name}])
     || {Module, Table} <- Tables, {Number, Name} <- lists:enumerate(Names)],
    Patterns = [Pattern
                || Name <- Names, Pattern <- [{{Name, 1}, '$1'}, {{Name, '$1'}, Name}, {'$1', Name}, {{Name, 2}, '_'}]],
    [begin
         [Expected, Found] = [lists:sort(Module:match_object(Table, Pattern)) || {Module, Table} <- Tables],
         ?assertMatch([_], Expected),
         ?assertEqual({Pattern, Expected}, {Pattern, Found})
     end || _Round <- [1, 2], Pattern <- Patterns],
    [Module:delete(Table) || {Module, Table} <- Tables].

%% Numbers that are equal are told apart.
sorted(ordered_set, Results) -> Results;
sorted(_Kind, Results) when is_list(Results) -> lists:sort([term_to_binary(Result) || Result <- Results]);
sorted(_Kind, Result) -> Result.

%% A key that several heads name is looked at once, also where a number that equals it stands between them, and
%% numbers that are equal and not the same are both looked at.
keys_are_met_once(_Config) ->
    Zeros = [0.0, 0, -0.0, 0.0, {0.0, a}, {-0.0, a}, {0.0, a}],
    Keys = [1.0, 1, 1.0, a, 1, a, {1}, {1.0}, {1}] ++ case binary_to_term(<<131, 70, 1:1, 0:63>>) =:= hd(Zeros) of
                                                         true -> [];
                                                         false -> Zeros
                                                     end,
    [begin
         [Expected, Got] = [Module:select(Table, [{{Key}, [], ['$_']} || Key <- Keys])
                            || {Module, Table} <- both([Kind], [{Key} || Key <- Keys])],
         ?assertEqual({[], []}, {Got -- Expected, Expected -- Got})
     end || Kind <- [set, bag]].

walk(Module, Function, {Results, Continuation}) -> [Results | walk(Module, Function, Module:Function(Continuation))];
walk(_Module, _Function, '$end_of_table') -> [].

%% Every chunk but the last has just as many results as the limit says; in an ordered table the chunks are
%% those of ets.
chunks(_Config) ->
    Spec = [{{'$1', '$2', '_'}, [{'<', '$2', 4}], ['$1']}],
    Functions = [{select, Spec}, {select_reverse, Spec}, {match, {'$1', 3, '_'}}, {match_object, {'_', 3, '_'}},
                 {match_object, {42, '_', '_'}}],
    [begin
         [EtsChunks, CatsChunks] = [walk(Module, Function, Module:Function(Table, What, Limit))
                                    || {Module, Table} <- Tables],
         ?assertEqual(canonical(Kind, lists:append(EtsChunks)), canonical(Kind, lists:append(CatsChunks))),
         ?assert(lists:all(fun(Chunk) -> length(Chunk) =:= Limit end, lists:droplast(CatsChunks))),
         Kind =:= ordered_set andalso ?assertEqual(EtsChunks, CatsChunks)
     end || Kind <- kinds(), Tables <- [both([Kind], objects(1000))], {Function, What} <- Functions,
            Limit <- [1, 2, 7, 100, 571, 572, 573, 5000]],
    %% Many objects under one key.
    [begin
         Tables = both([Kind], [{Key, Value} || Key <- [a, b], Value <- lists:seq(1, 100)]),
         [begin
              [Ets, Cats] = [walk(Module, match_object, Module:match_object(Table, {Key, '_'}, Limit))
                             || {Module, Table} <- Tables],
              ?assertEqual(Ets, Cats)
          end || Limit <- [1, 7, 50, 100, 101], Key <- [a, c]]
     end || Kind <- [bag, duplicate_bag]].

%% A continuation goes on from the same place each time, in any process that may read the table, through any
%% of the functions.
reused(_Config) ->
    [begin
         Table = cats_test_lib:new(cats, reused, [Kind]),
         cats:insert(Table, objects(1000)),
         {_, Continuation} = cats:select(Table, [{{'$1', '_', '_'}, [], ['$1']}], 10),
         [First | Others] = [walk(cats, Function, cats:Function(Continuation))
                             || Function <- [select, match, match_object, select_reverse, select]],
         [?assertEqual(First, Other) || Other <- Others],
         ?assertEqual(990, length(lists:append(First))),
         Caller = self(),
         spawn_link(fun() -> Caller ! walk(cats, select, cats:select(Continuation)) end),
         receive Elsewhere -> ?assertEqual(First, Elsewhere) end,
         cats:delete(Table),
         ?assertError(badarg, walk(cats, select, cats:select(Continuation)))
     end || Kind <- kinds()],
    ?assertEqual('$end_of_table', cats:select('$end_of_table')).

%% A continuation of which only the external form is left is of no use until it is repaired.
repaired(_Config) ->
    [begin
         Table = cats_test_lib:new(cats, repaired, [Kind, public]),
         cats:insert(Table, objects(1000)),
         Spec = [{{'$1', '_', '_'}, [], ['$1']}],
         {External, Rest} = external(Table, Function, Spec),
         true = cats_test_lib:eventually(fun() -> not is_cursor(External) end),
         Dead = binary_to_term(External),
         ?assertError(badarg, walk(cats, Function, cats:Function(Dead))),
         Repaired = cats:repair_continuation(Dead, Spec),
         ?assertEqual(Rest, walk(cats, Function, cats:Function(Repaired))),
         ?assertEqual(Repaired, cats:repair_continuation(Repaired, Spec)),
         ?assertError(badarg, cats:repair_continuation(Dead, [no_spec])),
         cats:delete(Table),
         ?assertError(badarg, cats:repair_continuation(Dead, Spec))
     end || Kind <- kinds(), Function <- [select, select_reverse]],
    ?assertEqual('$end_of_table', cats:repair_continuation('$end_of_table', [])),
    Spec = [{'_', [], ['$_']}],
    Table = cats_test_lib:new(cats, repaired, []),
    [?assertError(badarg, cats:repair_continuation(Forged, Spec))
     || Forged <- [no_continuation, {}, {Table}, {Table, cursor, 0, sideways, 1, []},
                   {Table, cursor, place, select, 1, []}, {no_table, cursor, 0, select, 1, []},
                   {Table, cursor, 0, select_count, 1, []}, {Table, cursor, 0, {select}, 1, []}]].

%% Asked in a process that does not keep the cursor.
is_cursor(External) ->
    Caller = self(),
    Asked = spawn_link(fun() -> Caller ! {self(), cats_nif:is_cursor(element(2, binary_to_term(External)))} end),
    receive {Asked, Answer} -> Answer end.

%% Made in a process whose heap goes, with all references to the cursor.
external(Table, Function, Spec) ->
    Caller = self(),
    {_, Monitor} = spawn_monitor(fun() ->
                                         {_, Continuation} = cats:Function(Table, Spec, 10),
                                         Rest = walk(cats, Function, cats:Function(Continuation)),
                                         Caller ! {external, term_to_binary(Continuation), Rest}
                                 end),
    receive {'DOWN', Monitor, _, _, normal} -> ok end,
    receive {external, External, Rest} -> {External, Rest} end.

bad_continuations(_Config) ->
    Tables = both([], [{1}]),
    Bad = fun(Table) ->
                  [no_continuation, 1, [], {}, {Table}, {Table, 1}, {Table, make_ref(), [], select, 1, []},
                   {no_table, 1},
                   {1, 2}, {make_ref(), make_ref(), [], select, 1, []}]
          end,
    [begin
         [Ets, Cats] = [cats_test_lib:cause(fun() -> Module:Function(lists:nth(Number, Bad(Table))) end)
                        || {Module, Table} <- Tables],
         ?assertEqual({Function, Number, Ets}, {Function, Number, Cats})
     end || Function <- [match, match_object, select, select_reverse], Number <- lists:seq(1, 10)],
    %% Made here, and changed then.
    [begin
         Table = cats_test_lib:new(cats, Kind, [Kind]),
         Other = cats_test_lib:new(cats, Kind, [Kind]),
         cats:insert(Table, objects(100)),
         {_, Continuation} = cats:select(Table, [{'_', [], ['$_']}], 10),
         [?assertError(badarg, cats:select(setelement(Place, Continuation, Wrong)))
          || {Place, Wrong} <- [{1, Other}, {1, name}, {1, 1}, {2, cursor}, {2, make_ref()}, {2, Table}, {4, sideways},
                                {5, 0}, {5, -1}, {5, ten}, {6, [a | b]}, {6, none}]],
         ?assertError(badarg, cats:select(erlang:append_element(Continuation, more)))
     end || Kind <- kinds()].

%% Also results that were found together with the last chunk come only while the table is there, and under its name it
%% is another one that others make.
gone(_Config) ->
    [begin
         Owner = fun() ->
                         cats_test_lib:new(cats, gone, [Kind, public, named_table]),
                         cats:insert(gone, [{a, N} || N <- lists:seq(1, 10)]),
                         {[_], Continuation} = cats:select(gone, [{{a, '_'}, [], ['$_']}], 1),
                         Continuation
                 end,
         {Pid, Continuation} = cats_test_lib:spawn_owner(Owner),
         {[_], Next} = cats:select(Continuation),
         elsewhere = cats:rename(gone, elsewhere),
         ?assertMatch({[_], _}, cats:select(Next)),
         cats_test_lib:stop(Pid, kill),
         ?assertEqual(id, cats_test_lib:cause(fun() -> cats:select(Next) end)),
         [cats_test_lib:new(cats, Name, [Kind, public, named_table]) || Name <- [gone, elsewhere]],
         cats:insert(elsewhere, [{a, N} || N <- lists:seq(11, 20)]),
         ?assertEqual(id, cats_test_lib:cause(fun() -> cats:select(Next) end)),
         [true = cats:delete(Name) || Name <- [gone, elsewhere]]
     end || Kind <- cats_test_lib:types([bag, duplicate_bag])].

%% The table is looked at before the limit.
limits(_Config) ->
    Tables = both([], [{1}]),
    [begin
         Causes = [cats_test_lib:cause(fun() -> Module:Function(Which(Table), What, Limit) end)
                   || {Module, Table} <- Tables],
         ?assertMatch({_, _, [Cause, Cause]}, {Function, Limit, Causes})
     end || {Function, What} <- [{match, '_'}, {match_object, '_'}, {select, [{'_', [], ['$_']}]},
                                 {select_reverse, [{'_', [], ['$_']}]}],
            Limit <- [0, -1, 1.0, infinity, all, 1 bsl 70, "1"],
            Which <- [fun(Table) -> Table end, fun(_) -> no_such_table end]].

%% Only what was read with the last chunk may still come.
deleted_meanwhile(_Config) ->
    [begin
         [{ets, Ets}, {cats, Table}] = both([Kind], objects(1000)),
         ets:delete(Ets),
         {_, Continuation} = cats:match(Table, '_', 10),
         cats:delete_all_objects(Table),
         Left = length(lists:append(walk(cats, match, cats:match(Continuation)))),
         ?assert(Left < 30),
         Kind =:= ordered_set andalso ?assertEqual(0, Left)
     end || Kind <- kinds()].

%% Objects that are there all the time are met once, whatever comes and goes.
changed_meanwhile(_Config) ->
    [begin
         Table = cats_test_lib:new(cats, changed, [Kind]),
         cats:insert(Table, [{Key, lasting} || Key <- lists:seq(1, 4000, 2)]),
         Chunks = changing(Table, cats:select(Table, [{{'$1', lasting}, [], ['$1']}], 50), 2),
         ?assertEqual(lists:seq(1, 4000, 2), lists:sort(Chunks))
     end || Kind <- kinds()].

changing(_Table, '$end_of_table', _Key) -> [];
changing(Table, {Results, Continuation}, Key) ->
    cats:insert(Table, [{Key + N, passing} || N <- lists:seq(0, 198, 2)]),
    [cats:delete(Table, Old) || Old <- lists:seq(Key - 200, Key - 2, 4), Old > 0],
    Results ++ changing(Table, cats:select(Continuation), Key + 100).

%% A slice ends between two large objects; 1 and 1.0 are two keys where the table is not ordered.
large_objects(_Config) ->
    Long = lists:seq(1, 2000),
    [begin
         Objects = [{Key, N, Long} || N <- lists:seq(1, 120), Key <- [N rem 100, float(N rem 100)]],
         Tables = [begin
                       Table = cats_test_lib:new(Module, large, [Type]),
                       true = Module:insert(Table, Objects),
                       {Module, Table}
                   end || Module <- [ets, cats]],
         Same = fun(Call) ->
                        [Result, Result] = [case Call(Module, Table) of
                                                List when is_list(List) ->
                                                    lists:sort([{float_key(Object), Object} || Object <- List]);
                                                Other -> Other
                                            end || {Module, Table} <- Tables]
                end,
         Same(fun(Module, Table) -> Module:tab2list(Table) end),
         Same(fun(Module, Table) -> Module:select(Table, [{{'_', '$1', '_'}, [{'<', '$1', 100}], ['$_']}]) end),
         Same(fun(Module, Table) -> in_chunks(Module, Module:match_object(Table, '_', 37)) end),
         Same(fun(Module, Table) -> Module:select_delete(Table, [{{'_', '$1', Long}, [{'<', '$1', 90}], [true]}]) end),
         Same(fun(Module, Table) -> Module:tab2list(Table) end),
         [true = Module:delete(Table) || {Module, Table} <- Tables]
     end || Type <- kinds()].

%% Objects too large for a scheduler among others: each is met once all the same, and none is looked at on a scheduler.
heavy_objects(_Config) ->
    Long = lists:seq(1, 30000),
    %% In a bag, large ones stand behind small ones of their key, too.
    Objects = [{Key, 0, if Key rem 70 =:= 0 -> Long; true -> [] end} || Key <- lists:seq(1, 300)]
        ++ [{Key, N, if N rem 3 =:= 2 -> Long; true -> [] end} || Key <- [1, 71, 350, 351], N <- lists:seq(0, 7)]
        %% Together as much as a scheduler takes: many such keys make several slices.
        ++ [{Key, N, lists:seq(1, 4000)} || Key <- lists:seq(400, 450), N <- lists:seq(1, 4)],
    Calls = [{select_replace, {'$1', '$2', '$3'}, [{is_list, {tl, '$3'}}], [{{'$1', {'+', '$2', 1}, '$3'}}]},
             {select_replace, {'$1', '$2', '$3'}, [], [{{'$1', {'+', '$2', 1}, '$3'}}]},
             {select_replace, {70, '$2', '$3'}, [], [{{70, {'+', '$2', 1}, ['$2' | '$3']}}]},
             {select_count, {'$1', '$2', '$3'}, [{is_tuple, {{'$3', '$2'}}}], [true]},
             {select_count, {70, '$2', '$3'}, [{is_tuple, {{'$3', '$2'}}}], [true]},
             {select, {'$1', '$2', ['_' | '$3']}, [{is_list, {tl, '$3'}}], ['$2']},
             {select, {70, '$2', '$3'}, [], ['$3']},
             {select_delete, {70, '$2', '$3'}, [{is_list, {tl, '$3'}}], [true]},
             {select_delete, {'$1', '$2', '$3'}, [{'>', {'rem', '$1', 5}, 1}, {is_tuple, {{'$3'}}}], [true]}],
    [begin
         Tables = both([Type], Objects),
         [begin
              Results = [begin
                             Result = Module:Function(Table, [{Head, Guards, Body}]),
                             {canonical(Type, Result), canonical(Type, Module:tab2list(Table))}
                         end || {Module, Table} <- Tables],
              ?assertMatch([Same, Same], Results)
          end || {Function, Head, Guards, Body} <- Calls, Type =/= bag orelse Function =/= select_replace],
         {cats, Table} = lists:last(Tables),
         true = cats:insert(Table, {heavy, 0, Long}),
         [?assertMatch(?FAILED(dirty, _), cats_nif:select(Function, Table, [{{heavy, '$1', '$2'}, [], Body}], infinity))
          || {Function, Body} <- [{select_replace, [{{heavy, '$1', ['$1' | '$2']}}]}, {select_count, [true]},
                                  {select_delete, [true]}],
             Type =:= set orelse Type =:= ordered_set],
         [true = Module:delete(Each) || {Module, Each} <- Tables]
     end || Type <- kinds()].

%% Objects of one key that are too large for a scheduler together with their siblings, or all together.
heavy_groups(_Config) ->
    Long = lists:seq(1, 30000),
    Half = lists:seq(1, 12000),
    Groups = [[{1, 0, Long}],
              [{1, 0, []}, {1, 1, Long}],
              [{1, 0, Long}, {1, 1, []}],
              [{1, N, Half} || N <- lists:seq(0, 19)],
              [{1, N, []} || N <- lists:seq(0, 29)] ++ [{1, 30, Long}]],
    %% All of them look at every object of the key, or change a light one first.
    Calls = [{select_replace, [{is_atom, {tl, '$3'}}], [{{1, {'+', '$2', 1}, '$3'}}]},
             {select_replace, [{is_list, '$3'}], [{{1, {'+', '$2', 1}, '$3'}}]},
             {select_count, [{is_list, {tl, '$3'}}], [true]},
             {select_count, [{is_atom, {tl, '$3'}}], [true]},
             {select, [{is_list, '$3'}], ['$_']},
             {select_delete, [{is_atom, {tl, '$3'}}], [true]},
             {select_delete, [{is_list, '$3'}], [true]}],
    [begin
         Tables = [{_, Ets}, {_, Table}] = both([Type], Group),
         Specification = [{{Key, '$2', '$3'}, Guards, Body}],
         ?assertMatch(?FAILED(dirty, _), cats_nif:select(Function, Table, Specification, infinity)),
         Alike = fun() -> ?assertEqual(canonical(Type, ets:tab2list(Ets)), canonical(Type, cats:tab2list(Table))) end,
         Alike(),
         %% Objects of other keys are met once, too.
         More = [{Other, N, List} || Other <- lists:seq(2, 200), {N, List} <- [{0, []}, {1, [a]}]],
         [true = Module:insert(Each, More) || {Module, Each} <- Tables],
         ?assertMatch([Same, Same],
                      [canonical(Type, Module:Function(Each, Specification)) || {Module, Each} <- Tables]),
         Alike(),
         [true = Module:delete(Each) || {Module, Each} <- Tables]
     end || Type <- [bag, duplicate_bag], Group <- Groups, {Function, Guards, Body} <- Calls, Key <- [1, '$1'],
            Function =/= select_replace orelse (Type =/= bag andalso Key =:= 1)],
    %% Groups that fit a scheduler one by one are met there, and few of them at once.
    [begin
         [true = cats:insert(Table, [{Key, N, list_to_tuple(lists:seq(1, 20))} || N <- lists:seq(First, First + 99)])
          || Key <- lists:seq(1, 100), First <- lists:seq(1, 601, 100)],
         {Objects, _, _} = cats_nif:scan(Table, []),
         ?assertEqual(700, length(Objects)),
         ?assertEqual(70000, length(cats:tab2list(Table))),
         ?assertEqual(70000, cats:select_count(Table, [{{'_', '_', '_'}, [], [true]}])),
         cats:delete(Table)
     end || Type <- [bag, duplicate_bag], Table <- [cats:new(groups, [Type])]].

float_key(Object) -> is_float(element(1, Object)).

in_chunks(_Module, '$end_of_table') -> [];
in_chunks(Module, {Objects, Continuation}) -> Objects ++ in_chunks(Module, Module:match_object(Continuation)).

folds(_Config) ->
    Collect = fun(Object, Objects) -> [Object | Objects] end,
    [begin
         Tables = both([Kind], objects(1000) ++ [{1, 1}, {1, 2}, {1, 3}]),
         [?assertMatch([Result, Result], [canonical(Kind, Module:Function(Collect, [], Table))
                                          || {Module, Table} <- Tables])
          || Function <- [foldl, foldr]],
         %% The objects of a key stand in their order.
         [?assertMatch([Result, Result],
                       [[Object || Object <- Module:Function(Collect, [], Table), element(1, Object) =:= 1]
                        || {Module, Table} <- Tables]) || Function <- [foldl, foldr]]
     end || Kind <- kinds()],
    [?assertError(badarg, cats:Function(Collect, [], Table))
     || Function <- [foldl, foldr], Table <- [no_table, 1, make_ref()]].

%% What the function deletes does not come.
fold_and_delete(_Config) ->
    [begin
         Tables = both([ordered_set], objects(100)),
         Delete = fun(Module, Table) ->
                          fun({Key, _, _}, Keys) -> Module:delete(Table, Key + Step), [Key | Keys] end
                  end,
         ?assertMatch([Result, Result], [Module:Function(Delete(Module, Table), [], Table)
                                         || {Module, Table} <- Tables])
     end || {Function, Step} <- [{foldl, 1}, {foldr, -1}]].

%% A fold sees what its function does to the table, and other steps in between do not lead it elsewhere.
fold_and_change(_Config) ->
    [begin
         Tables = both([ordered_set, public], [Object || {Key, _, _} = Object <- objects(2000), Key rem 5 > 0]),
         Results = [Module:Function(fun({Key, _, _}, Keys) ->
                                            Done = change(Module, Table, Key, Step, Salt),
                                            [{Key, Done} | Keys]
                                    end, [], Table) || {Module, Table} <- Tables],
         ?assertMatch([Result, Result], Results)
     end || {Function, Step} <- [{foldl, 1}, {foldr, -1}], Salt <- lists:seq(1, 17)].

change(_Module, _Table, Key, _Step, _Salt) when is_float(Key); Key < 1; Key > 2000 ->
    none;
change(Module, Table, Key, Step, Salt) ->
    Object = fun(Distance) -> {Key + Step * Distance, new, [Key]} end,
    case (Key + Salt) rem 17 of
        0 -> Module:insert(Table, Object(5));
        1 -> Module:delete(Table, Key + Step);
        2 -> Module:delete(Table, Key);
        3 -> [Module:next(Table, Key), Module:next(Table, Key)];
        4 -> Module:prev(Table, Key);
        5 -> lists:foldl(fun(_, Last) -> Module:next(Table, Last) end, Module:first(Table), lists:seq(1, 50));
        6 when Key rem 3 =:= 0 -> Module:foldl(fun(_, Count) -> Count + 1 end, 0, Table);
        7 when Key rem 3 =:= 0 -> Module:foldr(fun(_, Count) -> Count + 1 end, 0, Table);
        8 -> Module:update_element(Table, Key + Step, {2, changed});
        9 when Key rem 20 =:= 1 ->
            %% So many that leaves are replaced.
            [Module:insert(Table, Object(Distance / 8)) || Distance <- lists:seq(1, 160)];
        10 ->
            {Pid, Reference} = spawn_monitor(fun() -> Module:insert(Table, Object(4)) end),
            receive {'DOWN', Reference, process, Pid, Reason} -> Reason end;
        11 -> Module:insert(Table, {Key, again, []});
        12 when Key > 1900 -> Module:select_delete(Table, [{{'_', 3, '_'}, [], [true]}]);
        _ -> none
    end.

input_functions(_Config) ->
    Input = fun Input(Left) ->
                    fun(read) when Left =:= 0 -> end_of_input;
                       (read) -> {[{Left, a}, {Left, b}], Input(Left - 1)};
                       (close) -> self() ! closed
                    end
            end,
    Table = cats_test_lib:new(cats, input, [bag]),
    cats:insert(Table, {old}),
    true = cats:init_table(Table, Input(3)),
    ?assertEqual(lists:sort([{N, V} || N <- [1, 2, 3], V <- [a, b]]), lists:sort(cats:tab2list(Table))),
    ?assertExit(wrong, cats:init_table(Table, fun(read) -> wrong end)),
    ?assertExit({badarg, _}, cats:init_table(Table, fun(read) -> {[not_a_tuple], Input(0)} end)),
    receive closed -> ok after 0 -> error(not_closed) end,
    ?assertError(badarg, cats:init_table(no_table, Input(1))).

specifications(_Config) ->
    Spec = [{{'$1', '$2'}, [{'>', '$1', 1}], ['$2']}],
    Compiled = cats:match_spec_compile(Spec),
    ?assert(cats:is_compiled_ms(Compiled)),
    ?assertNot(cats:is_compiled_ms(Spec)),
    ?assertEqual([b, c], cats:match_spec_run([{1, a}, {2, b}, other, {3, c}], Compiled)),
    ?assertEqual({ok, b}, cats:test_ms({2, b}, Spec)),
    ?assertEqual({ok, false}, cats:test_ms({1, b}, Spec)),
    ?assertMatch({error, [_ | _]}, cats:test_ms({1}, no_spec)),
    ?assertError(badarg, cats:match_spec_compile(no_spec)).

%% Funs of the shell are interpreted; others cannot be looked into.
shell_funs(_Config) ->
    {ok, Tokens, _} = erl_scan:string("cats:fun2ms(fun({K, V}) when K > Least -> {V, K} end)."),
    {ok, Expressions} = erl_parse:parse_exprs(Tokens),
    {value, Spec, _} = erl_eval:exprs(Expressions, [{'Least', 7}]),
    ?assertEqual([{{'$1', '$2'}, [{'>', '$1', {const, 7}}], [{{'$2', '$1'}}]}], Spec),
    Fun = fun cats_test_lib:types/0,
    ?assertExit({badarg, {cats, fun2ms, _}}, cats:fun2ms(Fun)).

%% In a module with the include file of cats, both are turned into specifications.
module_funs(_Config) ->
    Source = ["-module(module_funs).", "-include_lib(\"cats/include/ms_transform.hrl\").", "-export([specs/1]).",
              "specs(Least) ->",
              "    [cats:fun2ms(fun({K, V}) when K > Least -> V end),",
              "     ets:fun2ms(fun({K, V}) when K > Least -> V end)]."],
    Path = filename:join(filename:dirname(code:which(?MODULE)), "module_funs.erl"),
    ok = file:write_file(Path, lists:join($\n, Source)),
    {ok, module_funs, Binary} = compile:file(Path, [binary, return_errors]),
    {module, module_funs} = code:load_binary(module_funs, Path, Binary),
    Expected = ets:fun2ms(fun({K, V}) when K > 7 -> V end),
    [{Head, [{'>', Variable, 7}], Body}] = Expected,
    Spec = [{Head, [{'>', Variable, {const, 7}}], Body}],
    ?assertEqual([Spec, Spec], module_funs:specs(7)).
