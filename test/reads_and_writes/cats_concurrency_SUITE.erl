%% Many processes at one table: what each call promises holds whatever the others do. Each case runs its
%% processes for MILLISECONDS (environment, 250 by default), or for OPERATIONS
%% (20000 by default).
-module(cats_concurrency_SUITE).
-measures([ordered_table_adapts]).
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([lists_are_inserted_at_once/1, new_lists_are_inserted_at_once/1, counters_add_up/1,
         one_insert_new_wins/1,
         one_take_wins/1, objects_are_whole/1, traversal_meets_stable_keys_once/1, sizes_add_up/1,
         bags_keep_all/1,
         deleted_under_operations/1, emptied_under_writers/1, renamed_under_operations/1,
         ordered_table_adapts/1]).

-define(T, (cats_test_lib:tables())).

suite() -> [{timetrap, {minutes, 10}}].

all() ->
    [lists_are_inserted_at_once, new_lists_are_inserted_at_once, counters_add_up, one_insert_new_wins,
     one_take_wins,
     objects_are_whole, traversal_meets_stable_keys_once, sizes_add_up, bags_keep_all,
     deleted_under_operations,
     emptied_under_writers, renamed_under_operations, ordered_table_adapts].

init_per_suite(Config) -> cats_test_lib:start(Config).

end_per_suite(_Config) -> ok.

init_per_testcase(ordered_table_adapts, Config) ->
    case cats_test_lib:only_cats(Config) of
        Config ->
            Table = ?T:new(t, [ordered_set]),
            Base = ?T:info(Table, base_nodes),
            ?T:delete(Table),
            case Base of
                undefined -> {skip, "the engine does not adapt"};
                1 -> Config
            end;
        Skip -> Skip
    end;
init_per_testcase(_, Config) -> Config.

end_per_testcase(_, _Config) -> ok.

milliseconds() -> cats_test_lib:environment("MILLISECONDS", cats_test_lib:rounds(250)).

%% Of each process, where a number of them is done.
operations() -> cats_test_lib:environment("OPERATIONS", 20000).

run(Function) -> cats_test_lib:repeat_for(milliseconds(), Function).

new(Type) -> ?T:new(t, [public, Type, {write_concurrency, true}]).

%% Ten keys always get the same value in one call; whoever reads two of them one after the other, in whatever
%% order, must not find an older value in the second.
lists_are_inserted_at_once(_Config) ->
    [begin
         Table = new(Type),
         Insert = fun(Value) -> ?T:insert(Table, [{Key, Value} || Key <- lists:seq(1, 10)]) end,
         Insert(0),
         Read = fun(N) ->
                        [First, Second] = [1 + erlang:phash2({N, I}, 10) || I <- [a, b]],
                        Old = ?T:lookup_element(Table, First, 2),
                        true = ?T:lookup_element(Table, Second, 2) >= Old
                end,
         cats_test_lib:together([fun() -> run(Insert) end] ++ lists:duplicate(3, fun() -> run(Read) end)),
         ?T:delete(Table)
     end || Type <- cats_test_lib:types([set, ordered_set])],
    ok.

%% insert_new of ten keys is seen whole or not at all, and is refused whole.
new_lists_are_inserted_at_once(_Config) ->
    [begin
         Table = new(Type),
         Batch = atomics:new(1, []),
         Insert = fun(N) ->
                          true = ?T:insert_new(Table, [{{N, I}, N} || I <- lists:seq(1, 10)]),
                          false = ?T:insert_new(Table,
                                                [{{N, I}, again} || I <- lists:seq(11, 20)]
                                                    ++ [{{N, 5}, again}]),
                          false = ?T:member(Table, {N, 11}),
                          atomics:put(Batch, 1, N)
                  end,
         Read = fun(N) ->
                        [First, Second] = [1 + erlang:phash2({N, I}, 10) || I <- [a, b]],
                        At = atomics:get(Batch, 1) + 1,
                        case ?T:member(Table, {At, First}) of
                            true -> true = ?T:member(Table, {At, Second});
                            false -> false
                        end
                end,
         cats_test_lib:together([fun() -> run(Insert) end] ++ lists:duplicate(3, fun() -> run(Read) end)),
         ?T:delete(Table)
     end || Type <- cats_test_lib:types()],
    ok.

%% Every increment counts, and no two see the same sum.
counters_add_up(_Config) ->
    [begin
         Table = new(Type),
         Count = fun(Result) ->
                         Work = fun() -> [Result(N) || N <- lists:seq(1, operations())] end,
                         lists:append(cats_test_lib:together(lists:duplicate(4, Work)))
                 end,
         Small = Count(fun(_) -> ?T:update_counter(Table, small, 1, {small, 0}) end),
         true = lists:sort(Small) =:= lists:seq(1, 4 * operations()),
         Big = 1 bsl 70,
         Bigs = Count(fun(_) -> hd(?T:update_counter(Table, big, [{3, 1}, {2, 5}], {big, 0, Big})) end),
         true = lists:sort(Bigs) =:= [Big + N || N <- lists:seq(1, 4 * operations())],
         Added = 20 * operations(),
         [{big, Added, _}] = ?T:lookup(Table, big),
         _ = Count(fun(N) -> ?T:update_counter(Table, N rem 100, {2, 1}, {key, 0}) end),
         Sum = 4 * operations(),
         Sum = lists:sum([?T:lookup_element(Table, Key, 2) || Key <- lists:seq(0, 99)]),
         ?T:delete(Table)
     end || Type <- cats_test_lib:types([set, ordered_set])],
    ok.

one_insert_new_wins(_Config) ->
    [begin
         Table = new(Type),
         Try = fun(Who) -> [Key || Key <- lists:seq(1, operations()), ?T:insert_new(Table, {Key, Who})] end,
         Won = cats_test_lib:together([fun() -> {Who, Try(Who)} end || Who <- [a, b, c, d]]),
         true = lists:sort([{Key, Who}
                            || {Who, Keys} <- Won, Key <- Keys]) =:= lists:sort(?T:tab2list(Table)),
         true = operations() =:= ?T:info(Table, size),
         ?T:delete(Table)
     end || Type <- cats_test_lib:types()],
    ok.

%% On a busy machine the first objects may come when nobody takes any more.
one_take_wins(_Config) ->
    [cats_test_lib:eventually(fun() -> taken(Type) > 0 end) || Type <- cats_test_lib:types()],
    ok.

%% How many objects are taken, each once.
taken(Type) ->
    Table = new(Type),
    Offer = fun() -> run(fun(N) -> ?T:insert_new(Table, {k, N}) end) end,
    Take = fun() ->
                   put(taken, []),
                   run(fun(_) -> put(taken, ?T:take(Table, k) ++ get(taken)) end),
                   get(taken)
           end,
    Results = cats_test_lib:together([Offer, Take, Take, Take]),
    Taken = lists:append([Objects || Objects <- Results, is_list(Objects)]),
    true = length(Taken) =:= length(lists:usort(Taken)),
    ?T:delete(Table),
    length(Taken).

%% What a reader gets was written by one writer, whatever the shapes and sizes that replace each other, and
%% update_element changes its elements at once.
objects_are_whole(_Config) ->
    [begin
         Table = new(Type),
         Shape = fun(Who, N) ->
                         case N rem 5 of
                             0 -> {k, Who};
                             1 -> {k, Who, lists:duplicate(N rem 50, Who), Who};
                             2 -> {k, Who, binary:copy(<<Who>>, N rem 200), {Who, #{Who => Who}}};
                             3 -> {k, Who, make_ref(), Who, float(Who)};
                             4 -> list_to_tuple([k | lists:duplicate(20, Who)])
                         end
                 end,
         Write = fun(Who) ->
                         fun() -> run(fun(N) -> ?T:insert(Table, Shape(Who, N)),
                                      ?T:insert(Table, [{p, Who, Who, Who}]) end) end
                 end,
         Update = fun() -> run(fun(N) -> ?T:update_element(Table, p, [{2, N}, {4, N}, {3, N}]) end) end,
         %% The new elements are mostly as long as the old ones.
         Long = fun(N) -> Length = 5 + N rem 300 div 299, {lists:duplicate(Length, N), <<N:(8 * Length)>>, {N, N}} end,
         Replace = fun() -> run(fun(N) ->
                                        {A, B, C} = Long(N),
                                        ?T:update_element(Table, q, [{2, A}, {4, C}, {5, N}, {3, B}], {q, 0, 0, 0, 0})
                                end) end,
         Read = fun(_) ->
                        case ?T:lookup(Table, k) of
                            [Object] -> true = whole(Object, element(2, Object));
                            [] -> ok
                        end,
                        case ?T:lookup(Table, p) of
                            [{p, A, A, A}] -> ok;
                            [] -> ok
                        end,
                        case [Q || Q <- ?T:lookup(Table, q) ++ ?T:tab2list(Table), element(1, Q) =:= q] of
                            [] -> ok;
                            [_] -> ok;
                            [{q, L1, B1, T1, N1}, {q, L2, B2, T2, N2}] ->
                                {L1, B1, T1} = Long(N1),
                                {L2, B2, T2} = Long(N2),
                                First = ?T:lookup_element(Table, q, 5),
                                [Second | _] = ?T:lookup_element(Table, q, 2),
                                true = N1 =< N2 andalso N2 =< First andalso First =< Second
                        end
                end,
         cats_test_lib:together([Write(1), Write(2), Update, Replace] ++ lists:duplicate(2, fun() -> run(Read) end)),
         ?T:delete(Table)
     end || Type <- cats_test_lib:types([set, ordered_set])],
    ok.

whole({k, _}, _) -> true;
whole({k, _, List, Who}, Who) -> lists:all(fun(E) -> E =:= Who end, List);
whole({k, _, Binary, {Who, Map}}, Who) ->
    Binary =:= binary:copy(<<Who>>, byte_size(Binary)) andalso Map =:= #{Who => Who};
whole({k, _, Reference, Who, Float}, Who) -> is_reference(Reference) andalso Float =:= float(Who);
whole(Object, Who) -> Object =:= list_to_tuple([k | lists:duplicate(20, Who)]).

%% While others insert and delete, a traversal meets every key that stays exactly once, and no key twice. (ets
%% asks for safe_fixtable/2 for that.)
traversal_meets_stable_keys_once(_Config) ->
    Stable = [{stable, N} || N <- lists:seq(1, 500)],
    [begin
         Table = new(Type),
         ?T:insert(Table, [{Key} || Key <- Stable]),
         Churn = fun(N) ->
                         %% Grows to some thousand keys and shrinks again.
                         Key = {churn, erlang:phash2({self(), N}, 1000), self()},
                         case (N div 2000) rem 2 of
                             0 -> ?T:insert(Table, {Key});
                             1 -> ?T:delete(Table, {churn, N rem 1000, self()}), ?T:delete(Table, Key)
                         end
                 end,
         Walk = fun(_) ->
                        ?T =:= ets andalso ets:safe_fixtable(Table, true),
                        Met = [element(1, Object) || [Object] <- cats_test_lib:all_objects(Step, Table)],
                        ?T =:= ets andalso ets:safe_fixtable(Table, false),
                        Stable = lists:sort([Key || {stable, _} = Key <- Met]),
                        ?T =:= ets orelse begin
                            true = length(Met) =:= length(lists:usort(Met)),
                            true = Type =/= ordered_set orelse Met =:= in_order(Step, Met)
                        end
                end,
         cats_test_lib:together(lists:duplicate(3, fun() -> run(Churn) end) ++ [fun() -> run(Walk) end]),
         ?T:delete(Table)
     end || Type <- cats_test_lib:types(), Step <- steps()],
    ok.

in_order(Step, Keys) when Step =:= next; Step =:= next_lookup -> lists:sort(Keys);
in_order(_, Keys) -> lists:reverse(lists:sort(Keys)).

steps() ->
    {module, _} = code:ensure_loaded(?T),
    [Step || Step <- [next, prev, next_lookup, prev_lookup], erlang:function_exported(?T, Step, 2)].

%% Each process knows what it left in its own part of the keys.
sizes_add_up(_Config) ->
    [begin
         Table = new(Type),
         Work = fun(Who) ->
                        _ = rand:seed(exsss, {Who, 1, 2}),
                        lists:foldl(
                          fun(_, Keys) ->
                                  Key = {Who, rand:uniform(200)},
                                  case rand:uniform(4) of
                                      1 -> ?T:delete(Table, Key), maps:remove(Key, Keys);
                                      2 -> ?T:take(Table, Key), maps:remove(Key, Keys);
                                      3 -> ?T:delete_object(Table, {Key}), maps:remove(Key, Keys);
                                      4 -> ?T:delete(Table, Key), ?T:insert(Table, {Key}), Keys#{Key => true}
                                  end
                          end, #{}, lists:seq(1, operations()))
                end,
         Left = cats_test_lib:together([fun() -> Work(Who) end || Who <- lists:seq(1, 4)]),
         Keys = lists:sort(lists:append([maps:keys(K) || K <- Left])),
         true = Keys =:= lists:sort([Key || {Key} <- ?T:tab2list(Table)]),
         true = ?T:info(Table, size) =:= length(Keys),
         ?T:delete(Table)
     end || Type <- cats_test_lib:types()],
    ok.

%% Objects of many writers under the same keys: none is lost, and those of one writer keep their order.
bags_keep_all(_Config) ->
    [begin
         Table = new(Type),
         cats_test_lib:together([fun() -> [?T:insert(Table, {N rem 10, Who, N})
                                           || N <- lists:seq(1, 2000)] end
                                 || Who <- lists:seq(1, 4)]),
         [begin
              Objects = ?T:lookup(Table, Key),
              800 = length(Objects),
              Written = [N || N <- lists:seq(1, 2000), N rem 10 =:= Key],
              [Written = [N || {_, W, N} <- Objects, W =:= Who] || Who <- lists:seq(1, 4)]
          end || Key <- lists:seq(0, 9)],
         8000 = ?T:info(Table, size),
         cats_test_lib:together([fun() -> [?T:delete_object(Table, {N rem 10, Who, N})
                                           || N <- lists:seq(1, 2000)] end
                                 || Who <- lists:seq(1, 4)]),
         [] = ?T:tab2list(Table),
         ?T:delete(Table)
     end || Type <- cats_test_lib:types([bag, duplicate_bag])],
    ok.

%% Whoever uses a table while it is deleted gets a result or badarg, because the table is gone; nothing else
%% happens.
deleted_under_operations(_Config) ->
    run(fun(N) ->
                Types = cats_test_lib:types(),
                Type = lists:nth(1 + N rem length(Types), Types),
                Table = new(Type),
                Use = fun() -> use_until_gone(Table, 1) end,
                Delete = fun() -> timer:sleep(N rem 5), ?T:delete(Table), deleted end,
                [gone, gone, gone, deleted] = cats_test_lib:together([Use, Use, Use, Delete])
        end),
    ok.

use_until_gone(Table, N) ->
    try
        ?T:insert(Table, [{N, a}, {N + 1, b}, {N + 2, c}]),
        ?T:lookup(Table, N),
        ?T:next(Table, N),
        ?T:delete(Table, N),
        ?T:tab2list(Table)
    of
        _ -> use_until_gone(Table, N + 1)
    catch
        error:badarg:Stack ->
            {_, _, _, Information} = hd(Stack),
            case {maps:get(cause, proplists:get_value(error_info, Information), none), ?T:info(Table), ?T} of
                {id, undefined, _} -> gone;
                %% The next key of an absent one.
                {none, _, ets} -> use_until_gone(Table, N + 1);
                Other -> error({unexpected, Other, Stack})
            end
    end.

%% What was in the table before it is emptied is not there after.
emptied_under_writers(_Config) ->
    [begin
         Table = new(Type),
         Written = [atomics:new(1, []) || _ <- [1, 2, 3]],
         Write = fun(Who, Last) ->
             run(fun(N) -> ?T:insert(Table, {{Who, N}}), atomics:put(Last, 1, N) end) end,
         Empty = fun() ->
                         run(fun(_) ->
                                     Before = [{Last, atomics:get(Last, 1)} || Last <- Written],
                                     true = ?T:delete_all_objects(Table),
                                     [false = ?T:member(Table, {Last, N}) || {Last, N} <- Before, N > 0]
                             end)
                 end,
         cats_test_lib:together([Empty | [fun() -> Write(Last, Last) end || Last <- Written]]),
         true = ?T:delete_all_objects(Table),
         0 = ?T:info(Table, size),
         [] = ?T:tab2list(Table),
         true = ?T:insert(Table, {1}),
         1 = ?T:info(Table, size),
         ?T:delete(Table)
     end || Type <- cats_test_lib:types()],
    ok.

%% A name that moves to and fro is always at one of the two places, and leads to the table.
renamed_under_operations(_Config) ->
    here = ?T:new(here, [named_table, public]),
    true = ?T:insert(here, {1, a}),
    Rename = fun(_) ->
                     there = ?T:rename(here, there),
                     undefined = ?T:whereis(here),
                     [{1, a}] = ?T:lookup(there, 1),
                     here = ?T:rename(there, here)
             end,
    Read = fun(_) ->
                   [try [{1, a}] = ?T:lookup(Name, 1), found
                    catch error:badarg -> absent
                    end || Name <- [here, there]]
           end,
    Find = fun(_) ->
                   Found = ?T:whereis(here),
                   true = Found =:= undefined orelse is_reference(Found)
           end,
    cats_test_lib:together([fun() -> run(Do) end || Do <- [Rename, Read, Read, Find]]),
    [{1, a}] = ?T:lookup(here, 1),
    ?T:delete(here),
    ok.

%% Writers that meet at neighbouring keys make an ordered table split; when one process is left, it joins
%% again.
ordered_table_adapts(_Config) ->
    Table = ?T:new(t, [ordered_set, public]),
    ?T:insert(Table, [{Key, 0} || Key <- lists:seq(1, 1000)]),
    1 = ?T:info(Table, base_nodes),
    Hammer = fun() ->
                     run_until(fun() -> ?T:info(Table, base_nodes) > 1 end,
                               fun(N) ->
                                       Key = 500 + N rem 8,
                                       ?T:insert(Table, {Key, N}),
                                       ?T:update_counter(Table, Key, 1)
                               end)
             end,
    cats_test_lib:together([Hammer, Hammer]),
    Split = ?T:info(Table, base_nodes),
    run_until(fun() -> ?T:info(Table, base_nodes) < Split end,
              fun(N) -> ?T:lookup(Table, 1 + N rem 1000) end),
    1000 = ?T:info(Table, size),
    ?T:delete(Table),
    {comment, io_lib:format("~b base nodes under contention", [Split])}.

run_until(Condition, Function) ->
    End = erlang:monotonic_time(second) + 60,
    run_until(Condition, Function, End, 1).

run_until(Condition, Function, End, N) ->
    Function(N),
    case N rem 100 =:= 0 andalso {Condition(), erlang:monotonic_time(second) > End} of
        {true, _} -> ok;
        {false, true} -> error(never_happened);
        _ -> run_until(Condition, Function, End, N + 1)
    end.
