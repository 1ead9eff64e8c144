%% Order statistics: rank, nth, count and range, beside a sorted list, beside writers, and in error.
-module(cats_order_statistics_SUITE).
-include_lib("stdlib/include/assert.hrl").
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([like_a_sorted_list/1, large_tables/1, slots/1, open_bounds/1, equal_numbers/1, pages/1, large_objects/1,
         stable_below_a_writer/1, stable_between_writers/1, emptied_and_filled_again/1,
         only_ordered_sets_of_ca/1, rights/1, explanations/1]).

-define(T, (cats_test_lib:tables())).

suite() -> [{timetrap, {minutes, 10}}].

all() ->
    [like_a_sorted_list, large_tables, slots, open_bounds, equal_numbers, pages, large_objects, stable_below_a_writer,
     stable_between_writers, emptied_and_filled_again, only_ordered_sets_of_ca, rights, explanations].

init_per_suite(Config) ->
    case {os:getenv("TABLES", "cats"), os:getenv("ENGINE", "ca")} of
        {"cats", "ca"} -> cats_test_lib:start(Config);
        _ -> {skip, "only engine ca of cats has these functions"}
    end.

end_per_suite(_Config) -> ok.

new(Options) -> ?T:new(t, [public, ordered_set | Options]).

%% Keys of one shape for each number: immediates, floats, tuples, long texts with a common beginning, and all of them
%% mixed.
shapes() ->
    [fun(N) -> N end,
     fun(N) -> N / 4 end,
     fun(N) -> {N div 10, <<"player ", (integer_to_binary(N))/binary>>} end,
     fun(N) -> <<"a long beginning that all of these keys have in common ", N:32>> end,
     fun(N) ->
             lists:nth(N rem 6 + 1, [N, N + 0.5, {N}, [N], <<N:16>>, list_to_atom("a" ++ integer_to_list(N rem 50))])
     end].

%% After each change of a table, its order statistics are those of the sorted list of its keys.
like_a_sorted_list(_Config) ->
    [begin
         rand:seed(exsss, Seed),
         Table = new(Options),
         lists:foldl(fun(Round, Keys) ->
                             change_and_compare(Table, proplists:get_value(keypos, Options, 1), Shape, Round, Keys)
                     end,
                     [], lists:seq(1, 12)),
         true = ?T:delete(Table)
     end || Shape <- shapes(), {Seed, Options} <- [{1, []}, {2, [{keypos, 2}]}, {3, [compressed]}]].

%% A slot is the object with this number. To find it takes no longer behind many objects: no call goes to a dirty
%% scheduler.
slots(_Config) ->
    [begin
         Table = new(Options),
         true = ?T:insert(Table, [{N, N} || N <- lists:seq(1, Size)]),
         %% The tree counts its objects when they are first asked for.
         {1, 1} = ?T:nth(Table, 0),
         #{dirty := Before} = cats:stats(Table),
         [?assertEqual([?T:nth(Table, N)], ?T:slot(Table, N)) || N <- [0, 1, Size div 2, Size - 2, Size - 1]],
         ?assertEqual('$end_of_table', ?T:slot(Table, Size)),
         ?assertError(badarg, ?T:slot(Table, Size + 1)),
         ?assertMatch(#{dirty := Before}, cats:stats(Table)),
         true = ?T:delete(Table)
     end || Options <- [[], [{ttl, 1_000_000}]], Size <- [10, 1000, 100_000]].

change_and_compare(Table, KeyPos, Shape, Round, Keys0) ->
    Some = [Shape(rand:uniform(3000)) || _ <- lists:seq(1, rand:uniform(400))],
    Keys = case Round rem 3 of
               0 ->
                   [true = ?T:delete(Table, Key) || Key <- Some],
                   [Key || Key <- Keys0, not lists:any(fun(Other) -> Other == Key end, Some)];
               1 ->
                   [true = ?T:insert(Table, object(KeyPos, Key)) || Key <- Some],
                   lists:umerge(lists:usort(Some), Keys0);
               2 ->
                   true = ?T:insert(Table, [object(KeyPos, Key) || Key <- Some]),
                   lists:umerge(lists:usort(Some), Keys0)
           end,
    ?assertEqual(length(Keys), ?T:count(Table, #{})),
    compare(Table, KeyPos, Keys, [Shape(rand:uniform(3000)) || _ <- lists:seq(1, 10)]),
    Keys.

object(1, Key) -> {Key, value};
object(2, Key) -> {value, Key, [value]}.

compare(Table, KeyPos, Keys, Some) ->
    Size = length(Keys),
    Objects = [object(KeyPos, Key) || Key <- Keys],
    [?assertEqual({Key, length([K || K <- Keys, K < Key])}, {Key, ?T:rank(Table, Key)}) || Key <- Some],
    [?assertEqual({N, nth(N, Size, Objects)}, {N, ?T:nth(Table, N)})
     || _ <- lists:seq(1, 10), N <- [rand:uniform(Size + 10) - 1, -rand:uniform(Size + 10)]],
    [begin
         Between = [Object || Object <- Objects, element(KeyPos, Object) >= From, element(KeyPos, Object) =< To],
         ?assertEqual({From, To, length(Between)}, {From, To, ?T:count(Table, From, To)}),
         Limit = rand:uniform(100),
         ?assertEqual({From, To, lists:sublist(Between, Limit)}, {From, To, ?T:range(Table, From, To, Limit)}),
         ?assertEqual({From, To, lists:sublist(lists:reverse(Between), Limit)},
                      {From, To, ?T:range(Table, #{from => From, to => To, order => descending}, Limit)}),
         Inside = [Object || Object <- Between, element(KeyPos, Object) /= From, element(KeyPos, Object) /= To],
         Range = #{above => From, below => To},
         ?assertEqual({From, To, length(Inside)}, {From, To, ?T:count(Table, Range)}),
         ?assertEqual({From, To, Inside}, {From, To, ?T:range(Table, Range, infinity)}),
         ?assertEqual({From, To, lists:reverse(Inside)},
                      {From, To, ?T:range(Table, Range#{order => descending}, infinity)})
     end || [From | Rest] <- [Some], To <- Rest].

nth(N, Size, Objects) when N >= 0, N < Size -> lists:nth(N + 1, Objects);
nth(N, Size, Objects) when N < 0, -N =< Size -> lists:nth(Size + N + 1, Objects);
nth(_N, _Size, _Objects) -> '$end_of_table'.

%% So large that one call on a scheduler cannot count the leaves for the first time.
large_tables(_Config) ->
    Table = new([]),
    Size = 400000,
    %% An odd factor is invertible, so these are all keys, in another order.
    [true = ?T:insert(Table, {N * 17 rem Size * 2}) || N <- lists:seq(1, Size)],
    [begin
         Number = rand:uniform(Size) - 1,
         Key = 2 * Number,
         ?assertEqual({Number, Number + 1}, {?T:rank(Table, Key), ?T:rank(Table, Key + 1)}),
         ?assertEqual({{Key}, {Key}}, {?T:nth(Table, Number), ?T:nth(Table, Number - Size)}),
         ?assertEqual(Size - Number, ?T:count(Table, #{from => Key})),
         ?assertEqual(Number, ?T:count(Table, #{below => Key}))
     end || _ <- lists:seq(1, 200)],
    ?assertEqual([{2 * N} || N <- lists:seq(0, Size - 1)], ?T:range(Table, #{}, infinity)),
    ?assertEqual('$end_of_table', ?T:nth(Table, Size)),
    ?assertEqual('$end_of_table', ?T:nth(Table, -Size - 1)),
    true = ?T:delete(Table).

open_bounds(_Config) ->
    Table = new([]),
    ?assertEqual({0, 0, [], '$end_of_table', '$end_of_table'},
                 {?T:rank(Table, a), ?T:count(Table, #{}), ?T:range(Table, #{}, 5),
                  ?T:nth(Table, 0), ?T:nth(Table, -1)}),
    true = ?T:insert(Table, [{N} || N <- lists:seq(1, 9)]),
    ?assertEqual([9, 7, 6, 3, 2, 0],
                 [?T:count(Table, Range) || Range <- [#{}, #{from => 3}, #{above => 3}, #{to => 3}, #{below => 3},
                                                 #{above => 3, below => 4}]]),
    ?assertEqual([{1}, {2}], ?T:range(Table, #{}, 2)),
    ?assertEqual([{9}, {8}], ?T:range(Table, #{order => descending}, 2)),
    ?assertEqual([{6}, {5}], ?T:range(Table, #{below => 7, order => descending}, 2)),
    ?assertEqual([{8}, {9}], ?T:range(Table, #{above => 7, order => ascending}, 5)),
    ?assertEqual({0, []}, {?T:count(Table, 5, 4), ?T:range(Table, 5, 4, 10)}).

%% 1 and 1.0 are one key of an ordered_set.
equal_numbers(_Config) ->
    Table = new([]),
    true = ?T:insert(Table, [{0}, {1}, {2.0}, {3}]),
    ?assertEqual([1, 1, 2, 2], [?T:rank(Table, Key) || Key <- [1, 1.0, 2, 2.0]]),
    ?assertEqual([1, 1, 0, 2], [?T:count(Table, 1, 1.0), ?T:count(Table, #{from => 2, below => 3.0}),
                                ?T:count(Table, #{above => 2, to => 2}), ?T:count(Table, 0.5, 2)]),
    ?assertEqual([{3}], ?T:range(Table, #{above => 2}, 5)),
    ?assertEqual([{1}, {0}], ?T:range(Table, #{below => 2, order => descending}, 5)).

%% A reader that turns pages continues behind its last key, also if that was deleted meanwhile.
pages(_Config) ->
    Table = new([]),
    Size = 2000,
    true = ?T:insert(Table, [{{N rem 10, N}, N} || N <- lists:seq(1, Size)]),
    All = ?T:tab2list(Table),
    ?assertEqual(All, turn(Table, #{}, above, [])),
    ?assertEqual(lists:reverse(All), turn(Table, #{order => descending}, below, [])),
    Key = element(1, lists:nth(1000, All)),
    Before = ?T:range(Table, #{below => Key}, infinity),
    true = ?T:delete(Table, Key),
    ?assertEqual(Before, ?T:range(Table, #{below => Key}, infinity)),
    ?assertEqual(All -- [{Key, element(2, Key)}], Before ++ ?T:range(Table, #{from => Key}, infinity)).

turn(Table, Range, Side, Before) ->
    case ?T:range(Table, Range, 700) of
        [] -> Before;
        Page -> turn(Table, Range#{Side => element(1, lists:last(Page))}, Side, Before ++ Page)
    end.

%% Objects of which one slice holds few, or not even one.
large_objects(_Config) ->
    [begin
         Table = new(Options),
         Objects = [{N, lists:seq(1, N * 2000)} || N <- lists:seq(1, 30)],
         true = ?T:insert(Table, Objects),
         ?assertEqual(Objects, ?T:range(Table, #{}, infinity)),
         ?assertEqual(lists:sublist(Objects, 7), ?T:range(Table, 1, 30, 7)),
         ?assertEqual(lists:last(Objects), ?T:nth(Table, -1)),
         ?assertEqual(29, ?T:rank(Table, 30))
     end || Options <- [[], [compressed]]].

%% Writers change only keys above some key. So the ranks of all keys below do not change.
stable_below_a_writer(_Config) ->
    Table = new([]),
    Stable = 3000,
    [true = ?T:insert(Table, {{N, stable}, N}) || N <- lists:seq(0, Stable - 1)],
    stir(Table, [fun(N) -> {Stable + N, unstable} end || _ <- [1, 2]],
         fun() ->
                 N = rand:uniform(Stable) - 1,
                 ?assertEqual(N, ?T:rank(Table, {N, stable})),
                 ?assertEqual({{N, stable}, N}, ?T:nth(Table, N)),
                 ?assertEqual(Stable - N, ?T:count(Table, {N, stable}, {Stable - 1, stable}))
         end),
    ?assertEqual(?T:info(Table, size), ?T:count(Table, #{})).

%% Writers insert and delete beside all stable keys, but not where one reader counts. Other counts are between those
%% without and with all unstable keys.
stable_between_writers(_Config) ->
    Table = new([]),
    Stable = 4000,
    Quiet = {1500, 2500},
    [true = ?T:insert(Table, {{N, stable}, N}) || N <- lists:seq(0, Stable - 1)],
    Noisy = fun(N) ->
                    Place = N rem 3000,
                    {case Place < 1500 of true -> Place; false -> Place + 1001 end, N}
            end,
    stir(Table, [Noisy, Noisy],
         fun() ->
                 {From, To} = Quiet,
                 ?assertEqual(To - From + 1, ?T:count(Table, #{from => {From, 0}, below => {To + 1, 0}})),
                 ?assertEqual(To - From + 1, length(?T:range(Table, {From, stable}, {To, stable}, infinity))),
                 N = rand:uniform(Stable) - 1,
                 Rank = ?T:rank(Table, {N, stable}),
                 ?assert(Rank >= N),
                 case ?T:nth(Table, Rank) of
                     '$end_of_table' -> ok;
                     {_, _} -> ok
                 end
         end),
    [?assertEqual(N, length([Key || {{_, stable} = Key, _} <- ?T:range(Table, #{below => {N, stable}}, infinity)]))
     || N <- [0, 1000, 3999]],
    All = ?T:tab2list(Table),
    ?assertEqual(lists:seq(0, length(All) - 1), [?T:rank(Table, Key) || {Key, _} <- All]),
    ?assertEqual(All, [?T:nth(Table, N) || N <- lists:seq(0, length(All) - 1)]).

%% Runs a check again and again while each writer inserts and deletes keys.
stir(Table, Writers, Check) ->
    [Unstable, Time] = [3000, cats_test_lib:rounds(2000)],
    Write = fun(Key) ->
                    cats_test_lib:repeat_for(Time,
                                             fun(_) ->
                                                     Keys = [Key(rand:uniform(Unstable)) || _ <- lists:seq(1, 200)],
                                                     {Single, Together} = lists:split(100, Keys),
                                                     [true = ?T:insert(Table, {K, x}) || K <- Single],
                                                     true = ?T:insert(Table, [{K, y} || K <- Together]),
                                                     [true = ?T:delete(Table, K) || K <- Keys]
                                             end)
            end,
    cats_test_lib:together([fun() -> Write(Key) end || Key <- Writers]
                           ++ [fun() -> cats_test_lib:repeat_for(Time, fun(_) -> Check() end) end || _ <- [1, 2]]).

emptied_and_filled_again(_Config) ->
    Table = new([]),
    Keys = lists:seq(1, 5000),
    [begin
         [true = ?T:insert(Table, {Key}) || Key <- Keys],
         ?assertEqual([Key - 1 || Key <- Keys], [?T:rank(Table, Key) || Key <- Keys]),
         case Way of
             delete_all_objects -> true = ?T:delete_all_objects(Table);
             delete -> [true = ?T:delete(Table, Key) || Key <- Keys];
             select_delete -> 5000 = ?T:select_delete(Table, [{'_', [], [true]}])
         end,
         ?assertEqual({0, 0}, {?T:rank(Table, 2500), ?T:count(Table, #{})})
     end || Way <- [delete_all_objects, delete, select_delete, delete]].

only_ordered_sets_of_ca(_Config) ->
    With = [{Name, Types} || #{name := Name, order_statistics := Types} <- cats:engines(), Types =/= []],
    ?assertEqual([{ca, [ordered_set]}], With),
    Remark = <<"order statistics are for tables of type ordered_set with engine ca">>,
    Others = [cats:new(t, [Type]) || Type <- [set, bag, duplicate_bag]]
        ++ [cats:new(t, [ordered_set, {engine, Name}])
            || #{name := Name, types := [ordered_set]} <- cats:engines(), Name =/= ca],
    [?assertEqual({Function, #{1 => Remark}}, {Function, explanation(Function, [Table | Arguments])})
     || Table <- Others, {Function, Arguments} <- [{rank, [k]}, {nth, [0]}, {count, [1, 2]}, {count, [#{}]}]],
    [begin
         true = cats:insert(Table, [{1}, {2}]),
         case cats:info(Table, type) of
             ordered_set -> ?assertEqual([{1}, {2}], cats:range(Table, 1, 2, 5));
             _ -> ?assertEqual(#{1 => <<"not an ordered_set">>}, explanation(range, [Table, 1, 2, 5]))
         end
     end || Table <- Others].

rights(_Config) ->
    Table = cats:new(t, [ordered_set, private]),
    Calls = [{rank, [Table, k]}, {nth, [Table, 0]}, {count, [Table, 1, 2]}, {count, [Table, #{}]},
             {range, [Table, #{}, 1]}, {range, [Table, 1, 2, 3]}],
    [Remarks] =
        cats_test_lib:together([fun() -> [explanation(Function, Arguments) || {Function, Arguments} <- Calls] end]),
    [?assertEqual(#{1 => <<"the table identifier refers to a table of cats with insufficient access rights">>}, Remark)
     || Remark <- Remarks],
    true = cats:delete(Table),
    [?assertEqual(#{1 => <<"the table identifier does not refer to an existing table of cats">>},
                  explanation(Function, Arguments))
     || {Function, Arguments} <- Calls].

explanations(_Config) ->
    Table = cats:new(t, [ordered_set]),
    NoRange = <<"not a range of keys: a map with from or above, to or below, and order">>,
    [?assertEqual({Range, #{2 => NoRange}}, {Range, explanation(Function, [Table, Range | More])})
     || {Function, More} <- [{count, []}, {range, [1]}],
        Range <- [x, [], #{from => 1, above => 1}, #{to => 1, below => 1}, #{order => up}, #{form => 1}]],
    NoLimit = <<"neither a positive integer of at most 64 bits nor infinity">>,
    [?assertEqual({Limit, #{3 => NoLimit}, #{4 => NoLimit}},
                  {Limit, explanation(range, [Table, #{}, Limit]), explanation(range, [Table, 1, 2, Limit])})
     || Limit <- [0, -1, all, 1.0]],
    [?assertEqual({N, #{2 => <<"not an integer of at most 64 bits">>}}, {N, explanation(nth, [Table, N])})
     || N <- [a, 1.0, 1 bsl 80]].

%% What the shell says of a call that fails.
explanation(Function, Arguments) ->
    try apply(cats, Function, Arguments) of
        Result -> {returned, Result}
    catch
        error:badarg:Stack -> cats_failure:format_error(badarg, Stack)
    end.
