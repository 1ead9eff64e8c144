%% The functions for one object that ets does not have: update, replace and add, and those for many keys. The random
%% comparison with a model of them on ets is in cats_oracle. Here are what many processes see, and cases that are rare
%% there.
-module(cats_one_object_SUITE).
-include_lib("stdlib/include/assert.hrl").
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([updates_add_up/1, conflicts/1, killed_updaters_do_all_or_nothing/1, fast_and_slow_updaters/1,
         one_replace_wins/1, replace_by_value/1, replace_by_equal_keys/1, large_objects/1, floats_add_up/1,
         large_integers_become_floats/1, one_take_many_wins/1, many_in_slices/1, crash_changes_nothing/1,
         function_uses_the_table/1, rights/1, bags_refuse/1, explanations/1]).

-define(T, (cats_test_lib:tables())).

suite() -> [{timetrap, {minutes, 10}}].

all() ->
    [updates_add_up, conflicts, killed_updaters_do_all_or_nothing, fast_and_slow_updaters, one_replace_wins,
     replace_by_value, replace_by_equal_keys, large_objects, floats_add_up, large_integers_become_floats,
     one_take_many_wins, many_in_slices, crash_changes_nothing, function_uses_the_table,
     rights, bags_refuse, explanations].

init_per_suite(Config) ->
    case os:getenv("TABLES", "cats") of
        "cats" -> cats_test_lib:start(Config);
        _ -> {skip, "only cats has these functions"}
    end.

end_per_suite(_Config) -> ok.

%% Tables of both types, compressed ones too.
tables() ->
    [?T:new(t, [public, Type | More]) || Type <- cats_test_lib:types([set, ordered_set]), More <- [[], [compressed]]].

%% Objects of several forms, each with a counter as its second element.
forms() ->
    [{k, 0}, {k, 0, a, b}, {k, 0, <<"text">>, [1.5]}, {k, 0, binary:copy(<<"long">>, 100), make_ref()},
     {k, 0, fun() -> ok end}].

count(Object) -> setelement(2, Object, element(2, Object) + 1).

updates_add_up(_Config) ->
    [begin
         true = ?T:insert(Table, Object),
         Increment = fun(_) -> ?T:update(Table, k, fun count/1) end,
         cats_test_lib:together([fun() -> lists:foreach(Increment, lists:seq(1, 500)) end || _ <- lists:seq(1, 8)]),
         ?assertEqual([setelement(2, Object, 4000)], ?T:lookup(Table, k))
     end || Table <- tables(), Object <- forms()].

%% A function that writes to its own key runs a bounded number of times, and is told why.
conflicts(_Config) ->
    [begin
         Runs = counters:new(1, []),
         Writes = fun(Object) ->
                          counters:add(Runs, 1, 1),
                          ?T:insert(Table, {k, make_ref()}),
                          setelement(2, Object, x)
                  end,
         Deletes = fun(_) -> counters:add(Runs, 1, 1), ?T:insert(Table, {k, make_ref()}), delete end,
         [begin
              ?T:insert(Table, {k, 1}),
              counters:put(Runs, 1, 0),
              ?assertEqual(#{3 => <<"the object was changed during each of 1000 runs of the function: the function "
                                    "itself writes to its key, or is slower than other processes that do">>},
                           cats_test_lib:remarks(update, Arguments)),
              ?assertEqual(1000, counters:get(Runs, 1))
          end || Arguments <- [[Table, k, Writes], [Table, k, Writes, {d, 1}], [Table, k, Deletes]]],
         ?assertError({conflict, 1000}, ?T:update(Table, k, Writes)),
         ?assertMatch({k, 2}, begin ?T:insert(Table, {k, 1}), ?T:update(Table, k, fun({k, N}) -> {k, N + 1} end) end)
     end || Table <- [cats:new(t, [Type, public]) || Type <- [set, ordered_set]]].

%% Each process updates one counter and then its own. Whenever it is killed, the first is ahead by at most one.
killed_updaters_do_all_or_nothing(_Config) ->
    [begin
         true = ?T:insert(Table, [{all, 0, [x]} | [{N, 0, [x]} || N <- lists:seq(1, 4)]]),
         Loop = fun Loop(N) ->
                        ?T:update(Table, all, fun count/1),
                        ?T:update(Table, N, fun count/1),
                        Loop(N)
                end,
         Kills = 25,
         [begin
              Pids = [spawn(fun() -> Loop(N) end) || N <- lists:seq(1, 4)],
              timer:sleep(2),
              [cats_test_lib:stop(Pid, kill) || Pid <- Pids]
          end || _ <- lists:seq(1, Kills)],
         Own = lists:sum([?T:lookup_element(Table, N, 2) || N <- lists:seq(1, 4)]),
         Ahead = ?T:lookup_element(Table, all, 2) - Own,
         ?assert(Own > 0),
         ?assert(Ahead >= 0 andalso Ahead =< 4 * Kills)
     end || Table <- tables()].

%% A function that lets others run in between is called again until it was alone.
fast_and_slow_updaters(_Config) ->
    [begin
         true = ?T:insert(Table, {k, 0, slow}),
         Slow = fun(Object) -> erlang:yield(), count(Object) end,
         Update = fun(Fun) -> [?T:update(Table, k, Fun) || _ <- lists:seq(1, 200)] end,
         cats_test_lib:together([fun() -> Update(Fun) end || Fun <- [Slow, fun count/1, Slow, fun count/1]]),
         ?assertEqual(800, ?T:lookup_element(Table, k, 2))
     end || Table <- tables()].

one_replace_wins(_Config) ->
    [begin
         true = ?T:insert(Table, {k, 0, Part}),
         Try = fun(N) -> ?T:replace(Table, {k, N, Part}, {k, N + 1, Part}) end,
         [?assertEqual([false, false, false, true],
                       lists:sort(cats_test_lib:together([fun() -> Try(N) end || _ <- lists:seq(1, 4)])))
          || N <- lists:seq(0, 99)],
         ?assertEqual([{k, 100, Part}], ?T:lookup(Table, k))
     end || Table <- tables(), Part <- [a, [a], #{a => <<"b">>}]].

%% An object is compared as a whole and exactly, also after it was changed in place.
replace_by_value(_Config) ->
    [begin
         true = ?T:insert(Table, {k, 1, 2.0, [a]}),
         [?assertNot(?T:replace(Table, Old, {k, new}))
          || Old <- [{k, 1.0, 2.0, [a]}, {k, 1, 2, [a]}, {k, 1, 2.0, [b]}, {k, 1, 2.0},
                     {k, 1, 2.0, [a], 1}, {k}, {k, 1}]],
         [2, 2.5] = ?T:add(Table, k, [{2, 1}, {3, 0.5}]),
         [3, 3.0] = ?T:add(Table, k, [{2, 1}, {3, 0.5}]),
         ?assertNot(?T:replace(Table, {k, 2, 3.0, [a]}, {k, new})),
         ?assertNot(?T:replace(Table, {k, 3, 2.5, [a]}, {k, new})),
         ?assert(?T:replace(Table, {k, 3, 3.0, [a]}, {k, new})),
         ?assertNot(?T:replace(Table, {none, new}, {none, newer})),
         ?assert(?T:replace(Table, {k, new}, {k, new})),
         ?assertEqual([{k, new}], ?T:tab2list(Table))
     end || Table <- tables()].

%% In an ordered set the keys 1 and 1.0 are the same. But the old object must be the stored one.
replace_by_equal_keys(_Config) ->
    [begin
         true = ?T:insert(Table, {1, a}),
         case ?T:info(Table, type) of
             ordered_set ->
                 ?assertNot(?T:replace(Table, {1.0, a}, {1, b})),
                 ?assert(?T:replace(Table, {1, a}, {1.0, b})),
                 ?assertEqual({2.0, c}, ?T:update(Table, 2, fun({2, b}) -> {2.0, c} end, {x, b})),
                 ?assertEqual([{1.0, b}, {2.0, c}], ?T:tab2list(Table));
             set ->
                 ?assertError(badarg, ?T:replace(Table, {1, a}, {1.0, b})),
                 ?assertEqual([{1, a}], ?T:tab2list(Table))
         end
     end || Table <- tables()].

%% Objects that a scheduler does not compare or copy at once.
large_objects(_Config) ->
    Large = {k, lists:seq(1, 50000), #{a => lists:seq(1, 100)}},
    [begin
         true = ?T:insert(Table, Large),
         ?assertNot(?T:replace(Table, setelement(2, Large, lists:seq(1, 50001)), {k, 1})),
         Larger = erlang:append_element(Large, more),
         ?assertEqual(Larger, ?T:update(Table, k, fun(Object) -> erlang:append_element(Object, more) end)),
         ?assert(?T:replace(Table, Larger, Large)),
         ?assertEqual(delete, ?T:update(Table, k, fun(_) -> delete end)),
         ?assertEqual(0, ?T:info(Table, size))
     end || Table <- tables()].

%% Halves are exact, so the sum tells whether an addition was lost.
floats_add_up(_Config) ->
    [begin
         true = ?T:insert(Table, {k, 0, 0.0, a}),
         Add = fun(_) -> ?T:add(Table, k, [{2, 1}, {3, 0.5}]) end,
         Read = fun(_) ->
                        [{k, Count, Sum, a}] = ?T:lookup(Table, k),
                        ?assertEqual(Count / 2, Sum)
                end,
         cats_test_lib:together([fun() -> lists:foreach(Do, lists:seq(1, 1000)) end
                                 || Do <- [Add, Add, Add, Add, Read]]),
         ?assertEqual([{k, 4000, 2000.0, a}], ?T:lookup(Table, k))
     end || Table <- tables()].

%% To the nearest float. `float/1' of OTP 25 may give the one beside it, so the floats are written here.
large_integers_become_floats(_Config) ->
    [begin
         true = ?T:insert(Table, {k, Sign * Integer}),
         ?assertEqual(Sign * Float, ?T:add(Table, k, 0.0)),
         true = ?T:insert(Table, {k, 0.0}),
         ?assertEqual(Sign * Float, ?T:add(Table, k, Sign * Integer))
     end || Table <- tables(), Sign <- [1, -1],
            {Integer, Float} <- [{428654966685883400000, 4.286549666858834e20},
                                 {(1 bsl 117) + (1 bsl 64) + 1, 1.6615349947311452e35},
                                 {(1 bsl 117) + (1 bsl 64), 1.6615349947311448e35},
                                 {(1 bsl 1024) - (1 bsl 970) - 1, 1.7976931348623157e308}]].

one_take_many_wins(_Config) ->
    [begin
         Keys = lists:seq(1, 2000),
         true = ?T:insert_many(Table, [{Key, [Key]} || Key <- Keys]),
         Taken = cats_test_lib:together([fun() -> lists:append(?T:take_many(Table, Keys)) end || _ <- lists:seq(1, 4)]),
         ?assertEqual([{Key, [Key]} || Key <- Keys], lists:sort(lists:append(Taken))),
         ?assertEqual(0, ?T:info(Table, size))
     end || Table <- tables()].

%% More keys than a slice has, in a table beyond the caches, some absent, some keys long, some objects large.
many_in_slices(_Config) ->
    [begin
         Table = ?T:new(t, [Type]),
         true = ?T:insert_many(Table, [{N, N} || N <- lists:seq(1, 60000)]),
         Long = [{{N, binary:copy(<<N>>, 100)}, lists:seq(1, 100 * N)} || N <- lists:seq(1, 40)],
         true = ?T:insert_many(Table, Long),
         ?assertEqual(60040, ?T:info(Table, size)),
         Keys = [Key || {Key, _} <- Long] ++ lists:seq(59900, 61000),
         Expected = [?T:lookup(Table, Key) || Key <- Keys],
         ?assertEqual(Expected, ?T:take_many(Table, Keys)),
         ?assertEqual([[] || _ <- Keys], ?T:take_many(Table, Keys)),
         true = ?T:delete_many(Table, lists:seq(1, 59898)),
         ?assertEqual([{59899, 59899}], ?T:tab2list(Table)),
         %% Of objects with one key in a set, the last one stays, and a bag keeps all.
         true = ?T:insert_many(Table, [{k, N} || N <- lists:seq(1, 1000)]),
         Count = case lists:member(Type, [set, ordered_set]) of true -> 1; false -> 1000 end,
         ?assertEqual(Count, length(?T:lookup(Table, k))),
         ?assertEqual({k, 1000}, lists:last(?T:lookup(Table, k))),
         true = ?T:delete(Table)
     end || Type <- cats_test_lib:types()],
    %% What is no list, or has no key, is found before anything is done.
    [begin
         true = ?T:insert(Table, {1, 1}),
         [?assertError(badarg, ?T:Function(Table, [1 || _ <- lists:seq(1, 1000)] ++ a))
          || Function <- [take_many, delete_many, insert_many]],
         ?assertError(badarg, ?T:insert_many(Table, [{N, N} || N <- lists:seq(1, 1000)] ++ [{}])),
         ?assertEqual([{1, 1}], ?T:tab2list(Table))
     end || Table <- tables()].

crash_changes_nothing(_Config) ->
    [begin
         true = ?T:insert(Table, {k, 1}),
         ?assertError(function_clause, ?T:update(Table, k, fun({other, _}) -> keep end)),
         ?assertExit(stop, ?T:update(Table, k, fun(_) -> exit(stop) end)),
         ?assertThrow(ball, ?T:update(Table, none, fun(_) -> throw(ball) end, {none, 1})),
         [?assertError(badarg, ?T:update(Table, Key, fun(_) -> Result end, {d, 1}))
          || Key <- [k, none], Result <- [{other, 1}, {}, [], [{k, 1}], [{none, 1}], ok]],
         ?assertEqual([{k, 1}], ?T:tab2list(Table))
     end || Table <- tables()].

%% No lock is held while the function runs. It may even change its own object: then it runs again.
function_uses_the_table(_Config) ->
    [begin
         true = ?T:insert(Table, {k, 1, a}),
         Change = fun({k, 1, a}) -> ?T:insert(Table, {k, 2, b}), {k, 3, c};
                     ({k, 2, b}) -> ?T:insert(Table, {other, 1}), {k, 4, d}
                  end,
         ?assertEqual({k, 4, d}, ?T:update(Table, k, Change)),
         %% It was absent at first.
         New = fun({new, 0}) -> ?T:insert(Table, {new, 5}), {new, 1};
                  ({new, 5}) -> {new, 6}
               end,
         ?assertEqual({new, 6}, ?T:update(Table, new, New, {default, 0})),
         %% And gone when the result came.
         Gone = fun({k, 4, d}) -> ?T:delete(Table, k), delete end,
         ?assertEqual(false, ?T:update(Table, k, Gone)),
         ?assertEqual([{new, 6}, {other, 1}], lists:sort(?T:tab2list(Table))),
         ?assertError(badarg, ?T:update(Table, new, fun(Object) -> ?T:delete(Table), Object end))
     end || Table <- tables()].

%% All of them write, even where they change nothing.
rights(_Config) ->
    Calls = calls(),
    {Owner, Tables} = cats_test_lib:spawn_owner(fun() ->
                                                        [?T:new(t, [Access, Type])
                                                         || Access <- [protected, private],
                                                            Type <- cats_test_lib:types([set, ordered_set])]
                                                end),
    [?assertEqual({Function, access},
                  {Function, cats_test_lib:cause(fun() -> apply(?T, Function, [Table | Arguments]) end)})
     || Table <- Tables, {Function, Arguments} <- Calls],
    cats_test_lib:stop(Owner, normal),
    [?assertEqual({Function, id},
                  {Function, cats_test_lib:cause(fun() -> apply(?T, Function, [Table | Arguments]) end)})
     || Table <- Tables, {Function, Arguments} <- Calls].

calls() ->
    [{update, [k, fun(_) -> keep end]}, {update, [k, fun(_) -> keep end, {d, 1}]}, {replace, [{k, 1}, {k, 2}]},
     {add, [k, 1]}, {add, [k, 1.5]}, {take_many, [[k]]}, {delete_many, [[k]]}, {insert_many, [[{k, 1}]]},
     {take_many, [[]]}, {delete_many, [[]]}, {insert_many, [[]]}].

bags_refuse(_Config) ->
    [begin
         Table = ?T:new(t, [Type]),
         true = ?T:insert(Table, {k, 1}),
         [?assertEqual({Function, table_type},
                       {Function, cats_test_lib:cause(fun() -> apply(?T, Function, [Table | Arguments]) end)})
          || {Function, Arguments} <- calls(), lists:member(Function, [update, replace, add])],
         ?assertEqual([{k, 1}], ?T:tab2list(Table))
     end || Type <- cats_test_lib:types([bag, duplicate_bag])].

explanations(_Config) ->
    Set = cats:new(t, []),
    Bag = cats:new(t, [bag]),
    true = cats:insert(Set, {k, 1, a}),
    Keep = fun(_) -> keep end,
    NoTable = <<"the table identifier does not refer to an existing table of cats">>,
    IsBag = #{1 => <<"the table is a bag: a key may have several objects">>},
    NoResult = #{3 => <<"the function returned neither an object with the same key, nor keep or delete">>},
    NoList = #{2 => <<"not a list">>},
    NoObjects = #{2 => <<"not a list of objects with a key">>},
    [?assertEqual({Function, Arguments, Remarks}, {Function, Arguments, cats_test_lib:remarks(Function, Arguments)})
     || {Function, Arguments, Remarks} <-
            [{update, [no_table, k, Keep], #{1 => NoTable}}, {update, [Bag, k, Keep], IsBag},
             {update, [Set, k, fun() -> keep end], #{3 => <<"not a function of one argument">>}},
             {update, [Set, k, fun(_) -> {x} end], NoResult}, {update, [Set, k, fun(_) -> ok end], NoResult},
             {update, [Set, x, Keep, {}], #{4 => <<"default tuple too small">>}},
             {update, [Set, x, Keep, []], #{4 => <<"not a tuple">>}},
             {replace, [no_table, {k}, {k}], #{1 => NoTable}}, {replace, [Bag, {k}, {k}], IsBag},
             {replace, [Set, {k}, {x}], #{3 => <<"the key is not that of the old object">>}},
             {replace, [Set, k, {k}], #{2 => <<"not a tuple">>}},
             {replace, [Set, k, v], #{2 => <<"not a tuple">>, 3 => <<"not a tuple">>}},
             {replace, [Set, {k}, {}], #{general => <<"a tuple has no element at the key position">>}},
             {add, [no_table, k, 1], #{1 => NoTable}}, {add, [Bag, k, 1], IsBag},
             {add, [Set, x, 1.5], #{2 => <<"not a key that exists in the table">>}},
             {add, [Set, k, [{2, 1}, {3, 1.5}]], #{3 => <<"a counter is not a number">>}},
             {add, [Set, k, {4, 1.5}], #{3 => <<"the position in the update operation is out of range">>}},
             {add, [Set, k, {1, 1}], #{3 => <<"the position is the same as the key position">>}},
             {add, [Set, k, a], #{3 => <<"not a number, nor a position with a number, nor a list of such">>}},
             {add, [Set, k, [{2, 1} | {3, 4}]],
              #{3 => <<"not a number, nor a position with a number, nor a list of such">>}},
             {add, [no_table, k, [{2, 1} | {3, 4}]], #{1 => NoTable}},
             {add, [Set, k, [{2, 1.0e308}, {2, 1.7e308}]], #{3 => <<"the sum is too large for a float">>}},
             {take_many, [no_table, []], #{1 => NoTable}}, {take_many, [Set, k], NoList},
             {delete_many, [no_table, []], #{1 => NoTable}}, {delete_many, [Set, [k | k]], NoList},
             {insert_many, [no_table, []], #{1 => NoTable}}, {insert_many, [Set, k], NoObjects},
             {insert_many, [Set, [{k}, {}]], NoObjects}]].
