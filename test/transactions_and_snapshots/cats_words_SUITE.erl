%% The functions of cats_transaction have the results of those of cats, to the error and its explanation.
-module(cats_words_SUITE).
-include_lib("stdlib/include/assert.hrl").
-import(cats_test_lib, [one_of/1, read_much/0]).
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([exports/1, like_cats/1, rights/1, whole_sets/1, sums/1, moved/1, expiring_sets/1, pages/1]).

suite() -> [{timetrap, {minutes, 10}}].

all() -> [exports, like_cats, rights, whole_sets, sums, moved, expiring_sets, pages].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(cats),
    [{much, cats_test_lib:start_much()} | Config].

end_per_suite(Config) -> cats_test_lib:stop(proplists:get_value(much, Config), kill).

%% Each one is a function of cats, but for `read', which is `lookup', and those that run.
exports(_Config) ->
    Others = cats_transaction:module_info(exports) -- cats:module_info(exports),
    ?assertEqual([{abort, 1}, {read, 2}, {run, 1}, {run, 2}, {run, 3}], lists:sort(Others)).

%% The same calls in a transaction and without one, with twin tables.
like_cats(_Config) ->
    [begin
         Tables = [cats:new(table, [Type, public | Options]) || _ <- [1, 2]],
         [true = cats:insert(Table, Objects) || Table <- Tables],
         Calls = [call(one_of(Kinds)) || _ <- lists:seq(1, 12)],
         [Outside, Inside] = Tables,
         Stored = sorted(cats:tab2list(Inside)),
         Expected = [outcome(cats, Function, Arguments, Outside) || {Function, Arguments} <- Calls],
         Body = fun() ->
                        Long andalso read_much(),
                        [outcome(cats_transaction, Function, Arguments, Inside) || {Function, Arguments} <- Calls]
                end,
         Case = {Type, Options, Objects, Calls},
         {aborted, Forgotten} = cats_transaction:run(fun() -> cats_transaction:abort(Body()) end),
         same(Expected, Forgotten, Calls, Case),
         same([Stored], [sorted(cats:tab2list(Inside))], [aborted], Case),
         {atomic, Done} = cats_transaction:run(Body),
         same(Expected, Done, Calls, Case),
         same([sorted(cats:tab2list(Outside))], [sorted(cats:tab2list(Inside))], [done], Case),
         [cats:delete(Table) || Table <- Tables]
     end || _ <- lists:seq(1, 250),
            {Type, Keys, Kinds} <- [{set, [1, 1.0, 2, <<"key">>, {1}], of_all()},
                                    {ordered_set, [1, 2, <<"key">>, {1}], of_all() ++ of_ordered()},
                                    {bag, [1, 1, 1.0, 2, 2, 2, {1}], of_bags()},
                                    {duplicate_bag, [1, 1, 1.0, 2, 2, 2, {1}], of_bags()}],
            Options <- [[], [{keypos, 2}], [compressed]
                        | [[{ttl, 1 bsl 39}] || lists:member(Type, [set, ordered_set])]],
            Objects <- [[object(Key, Options) || Key <- Keys, rand:uniform(3) > 1]],
            Long <- [one_of([false, true])]].

%% Who may not write to a table gets the error of cats, also where there is nothing to write.
rights(_Config) ->
    {Owner, Table} = cats_test_lib:spawn_owner(fun() ->
                                                       Table = cats:new(table, [protected]),
                                                       true = cats:insert(Table, {1, 1}),
                                                       Table
                                               end),
    Keep = fun(_) -> keep end,
    Delete = fun(_) -> delete end,
    [begin
         {raised, badarg, Function, _} = Expected = outcome(cats, Function, Arguments, Table),
         ?assertEqual({atomic, Expected},
                      cats_transaction:run(fun() -> outcome(cats_transaction, Function, Arguments, Table) end))
     end || {Function, Arguments} <- [{insert, [table, []]}, {insert_new, [table, []]}, {insert_new, [table, {1, 2}]},
                                      {delete_object, [table, {1, 2}]}, {delete_object, [table, {2}]},
                                      {take, [table, 2]}, {update, [table, 1, Keep]}, {update, [table, 2, Keep]},
                                      {update, [table, 2, Delete, {2, 1}]}, {update_counter, [table, 2, 1]},
                                      {update_counter, [table, 1, {3, 1}]}, {update_element, [table, 2, {2, 1}]},
                                      {update_element, [table, 1, {1, 1}]}, {select_delete, [table, []]}]],
    %% The right is asked for at the end.
    [?assertMatch({aborted, {badarg, [{cats, _, [Table | _], _} | _]}},
                  cats_transaction:run(fun() -> apply(cats_transaction, Function, [Table | Arguments]) end))
     || {Function, Arguments} <- [{insert, [{1, 2}]}, {take, [1]}, {update_counter, [1, 1]}, {update, [1, Delete]},
                                  {delete, [1]}]],
    cats_test_lib:stop(Owner, normal).

%% Names the first call with another outcome.
same([Outcome | Expected], [Outcome | Outcomes], [_ | Calls], Case) -> same(Expected, Outcomes, Calls, Case);
same([], [], [], _Case) -> ok;
same([Expected | _], [Outcome | _], [Call | _], Case) -> error({Call, {expected, Expected}, {found, Outcome}, Case}).

object(Key, Options) ->
    case proplists:get_value(keypos, Options, 1) of
        1 -> {Key, rand:uniform(5), value()};
        2 -> {rand:uniform(5), Key, value()}
    end.

of_all() ->
    [delete, delete_object, foldl, insert, insert_new, lookup, lookup_element, lookup_element_default, lookup_many,
     match_object, member, select, select_delete, take, update, update_default, update_counter, update_counter_default,
     update_element, update_element_default].

%% Bags refuse the others. If arguments of those are wrong, too, the explanation is another one.
of_bags() ->
    of_all() -- [foldl, update, update_default, update_counter, update_counter_default, update_element,
                 update_element_default].

of_ordered() -> [first, last, next, prev, range, range_between, range, range_between].

%% Many of the calls are wrong.
call(foldl) ->
    {foldl, [one_of([fun(Object, Sum) -> [Object | Sum] end, fun(_, _) -> error(oops) end, wrong]), [], table]};
call(insert) -> {insert, [table, objects()]};
call(insert_new) -> {insert_new, [table, objects()]};
call(delete_object) -> {delete_object, [table, any_object()]};
call(lookup_element) -> {lookup_element, [table, key(), position()]};
call(lookup_element_default) -> {lookup_element, [table, key(), position(), value()]};
call(lookup_many) -> {lookup_many, [table, one_of([[key(), key()], [], [key() | key()], key()])]};
call(match_object) -> {match_object, [table, pattern()]};
call(select) -> {select, [table, specification()]};
call(select_delete) -> {select_delete, [table, specification()]};
call(update) -> {update, [table, key(), change()]};
call(update_default) -> {update, [table, key(), change(), any_object()]};
call(update_counter) -> {update_counter, [table, key(), operations(fun count/0)]};
call(update_counter_default) -> {update_counter, [table, key(), operations(fun count/0), any_object()]};
call(update_element) -> {update_element, [table, key(), operations(fun() -> {position(), value()} end)]};
call(update_element_default) ->
    {update_element, [table, key(), operations(fun() -> {position(), value()} end), any_object()]};
call(range) -> {range, [table, bounds(), limit()]};
call(range_between) -> {range, [table, key(), key(), limit()]};
call(Function) when Function =:= first; Function =:= last -> {Function, [table]};
call(Function) -> {Function, [table, key()]}.

key() -> one_of([1, 1.0, 2, 2.0, 3, <<"key">>, {1}, {1.0}, [], #{1 => 2}, 1 bsl 70]).
value() -> one_of([1, 2, 3.0, -1, atom, <<"binary">>, [list], {1}, 1 bsl 80]).
position() -> one_of([1, 1, 2, 2, 3, 3, 3, 4, 0, -1, atom, 2.0, 1 bsl 70]).
limit() -> one_of([1, 2, 3, 10, infinity, 0, -1, atom]).
any_object() -> one_of([{key(), value(), value()}, {value(), key(), 1}, {key(), 2}, {key()}, {}, atom]).
objects() ->
    one_of([any_object(), [any_object(), any_object()], [{key(), key(), value()}, {key(), key(), value()}], []]).
bounds() ->
    Lowest = [{one_of([from, above]), key()} || rand:uniform(2) =:= 1],
    Highest = [{one_of([to, below]), key()} || rand:uniform(4) > 1],
    Order = [{order, one_of([ascending, descending, descending])} || rand:uniform(2) =:= 1],
    case rand:uniform(8) of
        1 -> one_of([wrong, #{unknown => 1}, #{order => wrong}, #{from => 1, above => 1}]);
        _ -> maps:from_list(Lowest ++ Highest ++ Order)
    end.

operations(Operation) -> one_of([Operation(), [Operation(), Operation()], [Operation()], [], [Operation() | x], atom]).

count() ->
    one_of([number(), {position(), number()}, {position(), number(), number(), number()}, {2, 1}, {3, 1},
            {3, -2, 0, 10}, {3, 2, 3, 0}, {}, {1, 2, 3}]).
number() -> one_of([1, 5, -3, 0, 1 bsl 65, -(1 bsl 65), 1.0, atom]).

change() ->
    one_of([fun(_) -> keep end, fun(_) -> delete end, fun(_) -> wrong end, fun(_) -> {} end, fun(_) -> error(oops) end,
            fun(Object) -> setelement(tuple_size(Object), Object, new) end,
            fun(Object) -> erlang:append_element(Object, 1) end,
            fun(Object) -> setelement(1, Object, other) end,
            fun(Object) -> setelement(1, Object, case element(1, Object) of 1 -> 1.0; Other -> Other end) end,
            fun(_, _) -> keep end, not_a_function]).

pattern() ->
    one_of(['_', '$1', {'_', '_', '_'}, {key(), '_', '_'}, {'_', key(), '_'}, {'$1', '$1', '_'}, {'$1', 2, '$2'},
            {#{}, '_', '_'}, atom, [], {}, {'$1', '_', {1}}]).

specification() ->
    Body = one_of([['$_'], [true], [{'is_integer', '$1'}], ['$1', true], [{{'$1'}}], [{hd, '$1'}], [false], [], wrong,
                   [{element, 1, '$_'}], ['$$']]),
    Guards = one_of([[], [{'>', '$1', 1}], [{is_binary, '$1'}], [{'=:=', '$1', {const, 2}}], wrong, [{wrong}]]),
    one_of([[{pattern(), Guards, Body}], [{{'$1', '_', '_'}, Guards, Body}, {pattern(), [], [true]}],
            [{{key(), '$1', '_'}, Guards, Body}], [], wrong, [{pattern(), Guards, Body} | wrong], [{Guards, Body}],
            [{{'_', '$1', '_'}, [], [true]}]]).

%% What a call returns or raises. `table' stands for the table.
outcome(Module, Function, Arguments, Table) ->
    OfTable = [case Argument of
                   table -> Table;
                   _ -> Argument
               end || Argument <- Arguments],
    try apply(Module, Function, OfTable) of
        Objects when is_list(Objects), Function =/= lookup_many, Function =/= range -> {returned, sorted(Objects)};
        Result -> {returned, Result}
    catch
        error:Reason:Stack ->
            case Stack of
                [{cats, Called, _, [{error_info, #{module := Explains}}]} | _] ->
                    {raised, Reason, Called, Explains:format_error(Reason, Stack)};
                _ ->
                    {raised, Reason}
            end
    end.

%% In an order that tells 1 from 1.0.
sorted(List) -> lists:sort([{erlang:phash2(Element), Element} || Element <- List]).

%% A set that is read as a whole does not change for the transaction.
whole_sets(_Config) ->
    [begin
         Table = cats:new(table, [public | Options]),
         true = cats:insert(Table, [{N, 1} || N <- lists:seq(1, Size)]),
         Sum = fun() -> cats_transaction:foldl(fun({_, Count}, Sum) -> Count + Sum end, 0, Table) end,
         Runs = counters:new(1, []),
         Body = fun(Change) ->
                        counters:add(Runs, 1, 1),
                        First = Sum(),
                        counters:get(Runs, 1) =:= 1 andalso cats_test_lib:in_process(Change),
                        cats_transaction:insert(Table, {own, 5}),
                        Deleted = length(cats_transaction:take(Table, 1)),
                        First + 5 - Deleted =:= Sum()
                end,
         [begin
              counters:put(Runs, 1, 0),
              ?assertEqual({atomic, true}, cats_transaction:run(Body, [Change])),
              ?assertEqual({Change, Expected}, {Change, counters:get(Runs, 1)}),
              true = cats:delete(Table, own),
              true = cats:insert(Table, {1, 1})
          end || {Change, Expected} <- [{fun() -> ok end, 1},
                                        {fun() -> cats:insert(Table, {new, 1}) end, 2},
                                        {fun() -> cats:delete(Table, new) end, 2},
                                        {fun() -> cats:update_counter(Table, 2, 1) end, 2},
                                        {fun() -> cats:delete_all_objects(Table) end, 2}]],
         cats:delete(Table)
     end || Size <- [3, 1000], Options <- [[], [compressed], [{ttl, 1 bsl 39}]]].

%% A sum that others keep is seen whole, also where it is all that the transaction reads.
sums(_Config) ->
    Table = cats:new(table, [public]),
    true = cats:insert(Table, [{N, 0} || N <- lists:seq(1, 500)]),
    Transfer = fun() ->
                       cats_transaction:update_counter(Table, rand:uniform(500), {2, -1}),
                       cats_transaction:update_counter(Table, rand:uniform(500), {2, 1})
               end,
    Writer = spawn_link(fun Write() -> {atomic, _} = cats_transaction:run(Transfer), Write() end),
    Sum = fun() -> cats_transaction:foldl(fun({_, Count}, Sum) -> Count + Sum end, 0, Table) end,
    Sums = [cats_transaction:run(Sum, [], #{retries => infinity}) || _ <- lists:seq(1, 100)],
    unlink(Writer),
    ok = cats_test_lib:stop(Writer, kill),
    ?assertEqual([{atomic, 0}], lists:usort(Sums)).

%% An object that others move between two sets is in one of them, also where one is empty and its objects expire.
moved(_Config) ->
    Sets = [cats:new(table, [public, {ttl, 1 bsl 39}]) || _ <- [1, 2]],
    [One, Other] = Sets,
    true = cats:insert(One, {key}),
    Move = fun() ->
                   case {cats_transaction:take(One, key), cats_transaction:take(Other, key)} of
                       {[Object], []} -> cats_transaction:insert(Other, Object);
                       {[], [Object]} -> cats_transaction:insert(One, Object)
                   end
           end,
    Writer = spawn_link(fun Write() -> {atomic, true} = cats_transaction:run(Move), Write() end),
    Count = fun() -> [length(cats_transaction:match_object(Set, '_')) || Set <- Sets] end,
    Counts = [cats_transaction:run(Count, [], #{retries => infinity})
              || _ <- lists:seq(1, cats_test_lib:rounds(1000))],
    unlink(Writer),
    ok = cats_test_lib:stop(Writer, kill),
    ?assertEqual([], lists:usort(Counts) -- [{atomic, [0, 1]}, {atomic, [1, 0]}]).

%% What expires within the transaction makes it run again.
expiring_sets(_Config) ->
    Table = cats:new(table, [public, {ttl, infinity}]),
    true = cats:insert(Table, [{N} || N <- lists:seq(1, 100)]),
    Count = fun() -> cats_transaction:foldl(fun(_, Count) -> Count + 1 end, 0, Table) end,
    Body = fun() ->
                   Before = Count(),
                   cats_test_lib:eventually(fun() -> not cats:member(Table, short) end),
                   {Before, Count()}
           end,
    true = cats:insert(Table, {short}, #{ttl => 100}),
    ?assertEqual({atomic, {100, 100}}, cats_transaction:run(Body)).

%% A queue that is read by pages passes each of its own deletions once.
pages(_Config) ->
    Table = cats:new(table, [ordered_set, public]),
    Last = 3000,
    true = cats:insert(Table, [{N} || N <- lists:seq(1, Last)]),
    Take = fun Take(Range) ->
                   case cats_transaction:range(Table, Range, 7) of
                       [] -> [];
                       Page ->
                           [cats_transaction:delete(Table, Key) || {Key} <- Page],
                           Page ++ Take(Range)
                   end
           end,
    Body = fun() -> {Take(#{to => 1500}), Take(#{order => descending}), cats_transaction:first(Table)} end,
    ?assertEqual({atomic, {[{N} || N <- lists:seq(1, 1500)], [{N} || N <- lists:seq(Last, 1501, -1)], '$end_of_table'}},
                 cats_transaction:run(Body)),
    ?assertEqual(0, cats:info(Table, size)).
