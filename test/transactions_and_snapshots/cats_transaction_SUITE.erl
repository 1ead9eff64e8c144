%% Transactions: their results, a comparison with a sequential model, and what processes see of each other.
-module(cats_transaction_SUITE).
-measures([deletes_by_steps, phantoms]).
-include_lib("stdlib/include/assert.hrl").
-include("cats_failure.hrl").
-import(cats_test_lib, [forever/1, is_long/0, one_of/1, read_much/0, repeat/1]).
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([outcomes/1, nested/1, outside/1, refusals/1, options/1, behind_the_end/1, own_writes/1, equal_keys/1,
         deletes_by_steps/1,
         maps_in_keys/1, atoms_in_keys/1, selections/1, large/1, both_ways/1, sequential_model/1, bank/1,
         counters/1, phantoms/1,
         skew/1, memory/1, any_length/1,
         moving_first/1, tables_change/1, renamed/1, deleted_table/1, left_behind/1,
         swallowed_conflict/1,
         lets_others_run/1, limits/1]).
-export([woken/1]).

suite() -> [{timetrap, {minutes, 10}}].

all() ->
    [outcomes, nested, outside, refusals, options, behind_the_end, own_writes, equal_keys, deletes_by_steps,
     maps_in_keys,
     atoms_in_keys, selections, large, both_ways, sequential_model,
     memory, any_length, bank, counters, phantoms, skew, moving_first, tables_change, renamed,
     deleted_table, left_behind, swallowed_conflict,
     lets_others_run, limits].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(cats),
    [{much, cats_test_lib:start_much()} | Config].

end_per_suite(Config) -> cats_test_lib:stop(proplists:get_value(much, Config), kill).

%%------------------------------------------------------------------------------------------------------------
%% Results and errors

outcomes(_Config) ->
    Table = cats:new(table, [public]),
    Ends = fun(Body) ->
                   Outcome = cats_transaction:run(fun() -> cats_transaction:insert(Table, {key, value}), Body() end),
                   ?assertEqual(undefined, get('$cats_transaction')),
                   {Outcome, cats:tab2list(Table)}
           end,
    ?assertEqual({{aborted, reason}, []}, Ends(fun() -> cats_transaction:abort(reason) end)),
    ?assertEqual({{aborted, reason}, []}, Ends(fun() -> exit(reason) end)),
    ?assertEqual({{aborted, {throw, value}}, []}, Ends(fun() -> throw(value) end)),
    ?assertMatch({{aborted, {reason, [_ | _]}}, []}, Ends(fun() -> error(reason) end)),
    ?assertEqual({{atomic, result}, [{key, value}]}, Ends(fun() -> result end)),
    ?assertEqual({atomic, 3}, cats_transaction:run(fun(A, B) -> A + B end, [1, 2])),
    ?assertError(badarg, cats_transaction:run(fun(A, B) -> A + B end, [1])).

nested(_Config) ->
    Table = cats:new(table, [public]),
    Inner = fun(Key, End) ->
                    cats_transaction:run(fun() -> cats_transaction:insert(Table, {Key, inner}), End() end)
            end,
    Outer = fun() ->
                    cats_transaction:insert(Table, {kept, outer}),
                    {aborted, no} = Inner(kept, fun() -> cats_transaction:abort(no) end),
                    {aborted, no} = Inner(lost, fun() -> exit(no) end),
                    {atomic, yes} = Inner(inner, fun() -> yes end),
                    [{kept, outer}] = cats_transaction:read(Table, kept),
                    [] = cats_transaction:read(Table, lost),
                    [] = cats:lookup(Table, inner),
                    done
            end,
    ?assertEqual({atomic, done}, cats_transaction:run(Outer)),
    ?assertEqual([{inner, inner}, {kept, outer}], lists:sort(cats:tab2list(Table))).

outside(_Config) ->
    Table = cats:new(table, [public]),
    [begin
         {error, no_transaction, Stack} = caught(Function, Arguments),
         Named = case Function of read -> lookup; _ -> Function end,
         ?assertMatch([{cats_transaction, Named, Arguments, [{error_info, #{module := cats_failure}}]} | _], Stack),
         ?assertMatch(#{general := <<"the process runs no transaction: call this in a function", _/binary>>},
                      cats_failure:format_error(no_transaction, Stack))
     end
     || {Function, Arguments} <- [{abort, [reason]}, {read, [Table, 1]}, {member, [Table, 1]}, {insert, [Table, {1}]},
                                  {delete, [Table, 1]}, {delete_object, [Table, {1}]}, {first, [Table]},
                                  {last, [Table]}, {next, [Table, 1]}, {prev, [Table, 1]},
                                  {range, [Table, 1, 2, infinity]}, {range, [Table, #{}, 1]}, {select, [Table, []]},
                                  {lookup, [Table, 1]}, {lookup_element, [Table, 1, 2]}, {lookup_many, [Table, []]},
                                  {foldl, [fun(_, _) -> ok end, ok, Table]}, {take, [Table, 1]},
                                  {insert_new, [Table, {1}]}, {update_counter, [Table, 1, 1]},
                                  {update_element, [Table, 1, {2, 1}]}, {select_delete, [Table, []]},
                                  {match_object, [Table, '_']}, {update, [Table, 1, fun(_) -> keep end]}]].

caught(Function, Arguments) ->
    try apply(cats_transaction, Function, Arguments)
    catch
        Class:Reason:Stack -> {Class, Reason, Stack}
    end.

refusals(_Config) ->
    Set = cats:new(set, [public]),
    Text = <<"transactions are for tables of the types set, bag and duplicate_bag with engine hash, and of type "
             "ordered_set with engine ca">>,
    [begin
         Table = cats:new(table, [Type, {engine, Name}]),
         Refused = cats_transaction:run(fun() -> cats_transaction:read(Table, key) end),
         case lists:member(Type, Transactions) of
             true -> ?assertEqual({atomic, []}, Refused);
             false -> ?assertEqual({aborted, {no_transactions, Table, Text}}, Refused)
         end
     end || #{name := Name, types := Types, transactions := Transactions} <- cats:engines(), Type <- Types],
    ?assertMatch([#{name := hash, transactions := [set, bag, duplicate_bag]},
                  #{name := ca, transactions := [ordered_set]} | _],
                 cats:engines()),
    Order = <<"not an ordered_set: in a transaction only those have a first key, a next one, and ranges">>,
    [?assertEqual({aborted, {no_transactions, Set, Order}}, cats_transaction:run(Body))
     || Body <- [fun() -> cats_transaction:first(Set) end, fun() -> cats_transaction:last(Set) end,
                 fun() -> cats_transaction:next(Set, 1) end, fun() -> cats_transaction:prev(Set, 1) end,
                 fun() -> cats_transaction:range(Set, #{}, 1) end,
                 fun() -> cats_transaction:range(Set, 1, 2, infinity) end]],
    %% An inner transaction ends, and the outer one goes on.
    ?assertEqual({atomic, {aborted, {no_transactions, Set, Order}}},
                 cats_transaction:run(fun() -> cats_transaction:run(fun() -> cats_transaction:first(Set) end) end)),
    Fails = fun(Body) -> explanation(cats_transaction:run(Body)) end,
    ?assertMatch({insert, 2, _}, Fails(fun() -> cats_transaction:insert(Set, not_a_tuple) end)),
    ?assertMatch({insert, 2, _}, Fails(fun() -> cats_transaction:insert(Set, [{1} | {2}]) end)),
    ?assertMatch({insert, 2, _}, Fails(fun() -> cats_transaction:insert(Set, {}) end)),
    ?assertMatch({lookup, 1, _}, Fails(fun() -> cats_transaction:read(no_such_table, 1) end)),
    ?assertEqual([], cats:tab2list(Set)),
    %% Of another process.
    {Owner, Protected} = cats_test_lib:spawn_owner(fun() -> cats:new(table, [protected]) end),
    ?assertEqual({atomic, []}, cats_transaction:run(fun() -> cats_transaction:read(Protected, 1) end)),
    ?assertMatch({insert, 1, _}, Fails(fun() -> cats_transaction:insert(Protected, {1}) end)),
    cats_test_lib:stop(Owner, normal).

%% The function of cats in whose name a transaction failed, and the only argument with a remark.
explanation({aborted, {badarg, [{cats, Function, _, _} | _] = Stack}}) ->
    [{Place, Remark}] = maps:to_list(cats_failure:format_error(badarg, Stack)),
    {Function, Place, unicode:characters_to_list(Remark)}.

%% As outside of a transaction. Who takes the first key of an empty table takes nothing.
behind_the_end(_Config) ->
    [begin
         Table = cats:new(table, [ordered_set]),
         true = cats:insert(Table, [{Key} || Key <- Keys]),
         Sorted = lists:sort(Keys),
         Take = fun() -> [cats_transaction:take(Table, cats_transaction:first(Table)) || _ <- [more, yet | Keys]] end,
         [begin
              {aborted, {badarg, [{cats, Step, [Table, '$end_of_table'], _} | _]}} =
                  cats_transaction:run(fun() -> cats_transaction:Step(Table, '$end_of_table') end),
              %% Unless it is the key of an object.
              {aborted, {stepped, Key}} =
                  cats_transaction:run(fun() ->
                                               true = cats_transaction:insert(Table, {'$end_of_table'}),
                                               exit({stepped, cats_transaction:Step(Table, '$end_of_table')})
                                       end),
              ?assertEqual(hd(Neighbours ++ ['$end_of_table']), Key)
          end || {Step, Neighbours} <- [{next, [Key || Key <- Sorted, Key > '$end_of_table']},
                                        {prev, [Key || Key <- lists:reverse(Sorted), Key < '$end_of_table']}]],
         ?assertEqual({atomic, [[{Key}] || Key <- Sorted] ++ [[], []]}, cats_transaction:run(Take)),
         ?assertEqual([], cats:tab2list(Table))
     end || Keys <- [[], [a], [b, 1, <<"x">>, {2}], lists:seq(1, 100)]].

own_writes(_Config) ->
    Ordered = cats:new(ordered, [ordered_set, public]),
    Set = cats:new(named, [public, named_table, {keypos, 2}]),
    true = cats:insert(Ordered, [{N, N} || N <- [1, 2, 3, 4]]),
    Body = fun() ->
                   cats_transaction:delete(Ordered, 2.0),
                   cats_transaction:insert(Ordered, [{3.0, new}, {{5, [1.0]}, tuple}]),
                   [{3.0, new}] = cats_transaction:read(Ordered, 3),
                   [{{5, [1.0]}, tuple}] = cats_transaction:read(Ordered, {5, [1]}),
                   [] = cats_transaction:read(Ordered, 2),
                   false = cats_transaction:member(Ordered, 2),
                   [1, 3.0, 4, {5, [1.0]}] = forwards(Ordered, cats_transaction:first(Ordered)),
                   [{5, [1.0]}, 4, 3.0, 1] = backwards(Ordered, cats_transaction:last(Ordered)),
                   [{1, 1}, {3.0, new}] = cats_transaction:range(Ordered, 0, 3, infinity),
                   [new, tuple] = cats_transaction:select(Ordered, [{{'_', '$1'}, [{is_atom, '$1'}], ['$1']}]),
                   cats_transaction:insert(Ordered, {#{a => 1, b => 2}, map}),
                   [map] = cats_transaction:select(Ordered, [{{#{a => 1}, '$1'}, [], ['$1']}]),
                   cats_transaction:delete(Ordered, #{a => 1, b => 2}),
                   %% By name and by identifier it is one table.
                   cats_transaction:insert(named, {value, key}),
                   [{value, key}] = cats_transaction:read(cats:whereis(Set), key),
                   [value] = cats_transaction:select(named, [{{'$1', key}, [], ['$1']}]),
                   cats_transaction:delete_object(named, {other, key}),
                   true = cats_transaction:member(named, key),
                   cats_transaction:delete_object(named, {value, key}),
                   false = cats_transaction:member(named, key)
           end,
    ?assertEqual({atomic, false}, cats_transaction:run(Body)),
    ?assertEqual([{1, 1}, {3.0, new}, {4, 4}, {{5, [1.0]}, tuple}], cats:tab2list(Ordered)),
    ?assertEqual([], cats:tab2list(named)),
    ?assertEqual({4, 0}, {cats:info(Ordered, size), cats:info(named, size)}).

forwards(_Table, '$end_of_table') -> [];
forwards(Table, Key) -> [Key | forwards(Table, cats_transaction:next(Table, Key))].

backwards(_Table, '$end_of_table') -> [];
backwards(Table, Key) -> [Key | backwards(Table, cats_transaction:prev(Table, Key))].

closure(Value) -> fun() -> Value end.

%% The table says which keys are one, not the words of their terms.
equal_keys(_Config) ->
    Pairs = [{closure(1), closure(1.0)}, {1, 1.0}, {#{k => [1]}, #{k => [1.0]}}],
    [begin
         Table = cats:new(table, [Type, public]),
         Before = [{{before, N}} || N <- lists:seq(1, Others)],
         Body = fun() ->
                        cats_transaction:insert(Table, Before),
                        cats_transaction:insert(Table, {B, 0}),
                        cats_transaction:delete(Table, B),
                        cats_transaction:insert(Table, {A, kept}),
                        cats_transaction:read(Table, B)
                end,
         {Seen, Kept} = case Type of
                            ordered_set -> {[{A, kept}], [{A, kept}]};
                            set -> {[], [{A, kept}]}
                        end,
         ?assertEqual({atomic, Seen}, cats_transaction:run(Body)),
         ?assertEqual(Kept, cats:lookup(Table, A)),
         ?assertEqual(Seen, cats:lookup(Table, B)),
         Steps = fun() ->
                         cats_transaction:insert(Table, {B, again}),
                         cats_transaction:insert(Table, {A, last}),
                         {cats_transaction:range(Table, A, B, infinity), forwards(Table, cats_transaction:first(Table))}
                 end,
         Type =:= ordered_set
             andalso ?assertEqual({atomic, {[{A, last}],
                                            [Key || {Key, _} <- lists:sort([{A, last} | [{K, 0} || {K} <- Before]])]}},
                                  cats_transaction:run(Steps)),
         cats:delete(Table)
     end || {One, Other} <- Pairs, Wrap <- [fun(Key) -> Key end, fun(Key) -> {[Key], x} end],
            {A, B} <- [{Wrap(One), Wrap(Other)}, {Wrap(Other), Wrap(One)}],
            Type <- [set, ordered_set], Others <- [0, 20]].

%% A transaction that takes many objects from the ends of a queue does not read again over what it has deleted.
deletes_by_steps(_Config) ->
    Table = cats:new(queue, [ordered_set, public]),
    true = cats:insert(Table, [{N} || N <- lists:seq(1, 1000)]),
    Take = fun(End) ->
                   Key = cats_transaction:End(Table),
                   true = cats_transaction:delete(Table, Key),
                   Key
           end,
    Body = fun() -> {[Take(first) || _ <- lists:seq(1, 100)], [Take(last) || _ <- lists:seq(1, 100)]} end,
    {Microseconds, Outcome} = timer:tc(fun() -> cats_transaction:run(Body) end),
    ?assertEqual({atomic, {lists:seq(1, 100), lists:seq(1000, 901, -1)}}, Outcome),
    ?assertEqual([{N} || N <- lists:seq(101, 900)], cats:tab2list(Table)),
    %% Some 20 milliseconds. Otherwise half a minute.
    ?assert(Microseconds < 5_000_000).

%% A map in a pattern also matches maps with more keys.
maps_in_keys(_Config) ->
    Objects = [{#{a => 1}, 1}, {#{a => 1, b => 2}, 2}, {#{a => 2, b => 2}, 3}],
    Specification = [{{#{a => 1}, '$1'}, [], ['$1']}],
    Select = fun(Table) -> cats_transaction:run(fun() -> cats_transaction:select(Table, Specification) end) end,
    [Set, Ordered] = [cats:new(table, [Type, public]) || Type <- [set, ordered_set]],
    [true = cats:insert(Table, Objects) || Table <- [Set, Ordered]],
    ?assertEqual({atomic, [1, 2]}, Select(Ordered)),
    {atomic, InSet} = Select(Set),
    ?assertEqual([1, 2], lists:sort(InSet)).

%% What is a variable, a transaction decides as a selection outside of it does.
atoms_in_keys(_Config) ->
    Atoms = ['\x{3b1}', '$\x{661}', '$01', '$1\n', '$', '$a', '$-1', '$1 ', '$00', ''],
    [begin
         Table = cats:new(table, [Type, public]),
         true = cats:insert(Table, [{Key, 1} || Atom <- Atoms, Key <- [Atom, {Atom}, [Atom | Atom]]]),
         [begin
              Specification = [{{Key, '$1'}, [], [{{'$1', {const, Key}}}]}],
              ?assertEqual([{1, Key}], cats:select(Table, Specification)),
              ?assertEqual({atomic, [{1, Key}]},
                           cats_transaction:run(fun cats_transaction:select/2, [Table, Specification]))
          end || Atom <- Atoms, Key <- [Atom, {Atom}, [Atom | Atom]]],
         [?assertMatch({atomic, Results} when length(Results) =:= 3 * length(Atoms),
                       cats_transaction:run(fun cats_transaction:select/2, [Table, [{{Key, 1}, [], [1]}]]))
          || Key <- ['$1', '$0', '$100000', '_']]
     end || Type <- [set, ordered_set]].

%% A selection in a transaction has the results of one outside, for few objects and for many, small and large.
selections(_Config) ->
    Table = cats:new(table, [ordered_set, public]),
    Keys = lists:seq(1, 20000),
    true = cats:insert(Table, [{Key, {Key rem 7, <<Key:32>>}} || Key <- Keys]),
    true = cats:insert(Table, {large, lists:duplicate(50000, large)}),
    [?assertEqual({atomic, cats:select(Table, Specification)},
                  cats_transaction:run(fun cats_transaction:select/2, [Table, Specification]))
     || Specification <- [[{'_', [], ['$_']}], [{{'$1', {3, '$2'}}, [{'>', '$1', 9000}], [{{'$2', '$1'}}]}], [],
                          [{{large, '$1'}, [], [{length, '$1'}]}],
                          [{{'$1', '_'}, [{is_atom, '$1'}], ['$_']}, {{7, '$1'}, [], ['$1']}],
                          [{{'$1', '$2'}, [], [{{'$$', [{element, 1, '$_'}]}}]}]]],
    ?assertMatch({aborted, {badarg, [{cats, select, [Table, wrong], _} | _]}},
                 cats_transaction:run(fun cats_transaction:select/2, [Table, wrong])).

%% A commit of many keys, and reads of many objects: all on dirty schedulers.
large(_Config) ->
    Tables = [A, B] = [cats:new(table, [Type, public]) || Type <- [set, ordered_set]],
    Numbers = lists:seq(1, 20000),
    [cats:insert(Table, [{{key, N}, old} || N <- Numbers]) || Table <- Tables],
    Body = fun() ->
                   Old = cats_transaction:range(B, {key, 1}, {key, 20000}, infinity),
                   20000 = length([Object || {_, old} = Object <- Old]),
                   [cats_transaction:insert(A, {{key, N}, new}) || N <- Numbers],
                   [cats_transaction:delete(B, {key, N}) || N <- Numbers],
                   ok
           end,
    ?assertEqual({atomic, ok}, cats_transaction:run(Body)),
    ?assertEqual([{{key, N}, new} || N <- Numbers], lists:sort(cats:tab2list(A))),
    ?assertEqual({20000, 0}, {cats:info(A, size), cats:info(B, size)}).

%% Steps over own deletions, one way and then the other.
both_ways(_Config) ->
    Deletions = fun(Keys) -> [{delete, Key} || Key <- Keys] end,
    Insertions = fun(Keys) -> [{insert, {Key}} || Key <- Keys] end,
    [begin
         Table = cats:new(table, [ordered_set]),
         true = cats:insert(Table, [{Key} || Key <- Keys]),
         Run = fun() ->
                       [cats_transaction:Function(Table, Argument) || {Function, Argument} <- Writes],
                       [apply(cats_transaction, Function, [Table | Arguments]) || {Function, Arguments} <- Steps]
               end,
         ?assertEqual({atomic, Expected}, cats_transaction:run(Run))
     end || {Keys, Writes, Steps, Expected} <-
                [{[7, 8], Deletions([8, 4, 4]), [{next, [7]}, {last, []}], ['$end_of_table', 7]},
                 {[2, 3], Deletions([2]) ++ Insertions([5, 5]), [{prev, [3]}, {first, []}], ['$end_of_table', 3]},
                 {[3, 5], Deletions([5]) ++ Insertions([6, 6]), [{next, [3]}, {prev, [4]}], [6, 3]},
                 {[56, 57], Deletions([56]) ++ Insertions(lists:seq(100, 107)),
                  [{prev, [57]}, {first, []}, {next, [54]}], ['$end_of_table', 57, 57]}]].

%%------------------------------------------------------------------------------------------------------------
%% Comparison with a model

%% Transactions and operations outside of them, in one process.
sequential_model(_Config) ->
    [begin
         Tables = [{cats:new(table, [Type, public | Options]), Type}
                   || Type <- [set, ordered_set], Options <- [[], [compressed]]],
         lists:foldl(fun(_, Model) -> round_of(Tables, Model) end,
                     maps:from_list([{Table, []} || {Table, _} <- Tables]), lists:seq(1, 100)),
         [cats:delete(Table) || {Table, _} <- Tables]
     end || _ <- lists:seq(1, 15)].

round_of(Tables, Model) ->
    %% A transaction of many steps in one table steps over what it has deleted, in both directions.
    Some = one_of([Tables, [one_of(Tables)]]),
    Steps = [{one_of([insert, insert, insert, insert_list, delete, delete, delete_object, read, member, first, last,
                      next, prev, range, page, page_down, select, take]),
              one_of(Some), key(), key(), value()} || _ <- lists:seq(1, rand:uniform(one_of([8, 8, 100])))],
    New = case rand:uniform(4) of
              1 -> lists:foldl(fun(Step, State) -> check(cats, Step, State) end, Model, Steps);
              2 ->
                  {aborted, stop} = cats_transaction:run(
                                      fun() ->
                                              rand:uniform(2) =:= 1 andalso read_much(),
                                              lists:foldl(fun(Step, State) -> check(cats_transaction, Step, State) end,
                                                          Model, Steps),
                                              exit(stop)
                                      end),
                  Model;
              _ ->
                  {atomic, Committed} = cats_transaction:run(
                                          fun() ->
                                                  rand:uniform(2) =:= 1 andalso read_much(),
                                                  lists:foldl(fun(Step, State) ->
                                                                      check(cats_transaction, Step, State)
                                                              end, Model, Steps)
                                          end),
                  Committed
          end,
    [begin
         ?assertEqual(exactly(maps:get(Table, New)), exactly(cats:tab2list(Table))),
         ?assertEqual(length(maps:get(Table, New)), cats:info(Table, size))
     end || {Table, _} <- Tables],
    New.

%% In an order that distinguishes 1 and 1.0.
exactly(Objects) -> lists:sort([{Object, term_to_binary(Object)} || Object <- Objects]).

%% Makes a step, and compares its result with that of the model, whose next state it returns.
check(_Module, {Function, {_, set}, _, _, _}, Model)
  when Function =:= first; Function =:= last; Function =:= next; Function =:= prev;
       Function =:= range; Function =:= page; Function =:= page_down ->
    Model;
check(Module, {Function, {Table, Type}, Key, Key2, Value} = Step, Model) ->
    Objects = maps:get(Table, Model),
    Arguments = case Function of
                    insert -> [{Key, Value}];
                    insert_list -> [[{Key, Value}, {Key2, Value}]];
                    delete_object -> [{Key, Value}];
                    range -> [Key, Key2, infinity];
                    page -> [#{above => Key, to => Key2}, 3];
                    page_down -> [#{from => Key, below => Key2, order => descending}, 3];
                    select -> [[{{'$1', '_'}, [{'>', '$1', {const, Key}}], ['$_']}]];
                    _ when Function =:= first; Function =:= last -> [];
                    _ -> [Key]
                end,
    Native = case Function of
                 insert_list -> insert;
                 read when Module =:= cats -> lookup;
                 _ when Function =:= page; Function =:= page_down -> range;
                 _ -> Function
             end,
    Result = apply(Module, Native, [Table | Arguments]),
    Same = fun(A, B) -> A =:= B orelse Type =:= ordered_set andalso A == B end,
    Without = fun(Deleted, From) -> [Object || {Other, _} = Object <- From, not Same(Deleted, Other)] end,
    Put = fun({New, _} = Object, To) -> lists:sort([Object | Without(New, To)]) end,
    Keys = [Other || {Other, _} <- Objects],
    {Expected, Next} =
        case {Function, Arguments} of
            {insert, [Object]} -> {true, Put(Object, Objects)};
            {insert_list, [List]} -> {true, lists:foldl(Put, Objects, List)};
            {delete, _} -> {true, Without(Key, Objects)};
            {delete_object, [Object]} -> {true, [Other || Other <- Objects, Other =/= Object]};
            {read, _} -> {[Object || {Other, _} = Object <- Objects, Same(Key, Other)], Objects};
            {member, _} -> {lists:any(fun(Other) -> Same(Key, Other) end, Keys), Objects};
            {first, _} -> {hd(Keys ++ ['$end_of_table']), Objects};
            {last, _} -> {hd(lists:reverse(['$end_of_table' | Keys])), Objects};
            {next, _} -> {hd([Other || Other <- Keys, Other > Key] ++ ['$end_of_table']), Objects};
            {prev, _} -> {hd([Other || Other <- lists:reverse(Keys), Other < Key] ++ ['$end_of_table']), Objects};
            {range, _} -> {[Object || {Other, _} = Object <- Objects, Key =< Other, Other =< Key2], Objects};
            {page, _} ->
                {lists:sublist([Object || {Other, _} = Object <- Objects, Key < Other, Other =< Key2], 3), Objects};
            {page_down, _} ->
                Between = [Object || {Other, _} = Object <- Objects, Key =< Other, Other < Key2],
                {lists:sublist(lists:reverse(Between), 3), Objects};
            {take, _} -> {[Object || {Other, _} = Object <- Objects, Same(Key, Other)], Without(Key, Objects)};
            {select, _} -> {[Object || {Other, _} = Object <- Objects, Other > Key], Objects}
        end,
    case {Function, Type} of
        {select, set} -> ?assertEqual(exactly(Expected), exactly(Result), {Module, Step, Objects});
        _ -> ?assertEqual(Expected, Result, {Module, Step, Objects})
    end,
    Model#{Table := Next}.

key() ->
    Number = rand:uniform(9),
    one_of([Number, Number, float(Number), {Number}, {float(Number), x}, [Number],
            integer_to_binary(Number), 1 bsl (60 + Number)]).

value() -> one_of([1, 2, a, [1], {b, 1.5}, <<"binary">>, lists:seq(1, 50), lists:seq(1, 100), #{a => 1}]).

%%------------------------------------------------------------------------------------------------------------
%% Processes

%% Transfers between accounts of two tables. Each account has a mirror in the other table. A body that reads all
%% accounts finds their sum, and a body that reads an account finds its mirror equal. Workers are killed at random.
bank(_Config) ->
    Tables = [A, B] = [cats:new(bank, [Type, public]) || Type <- [set, ordered_set]],
    Accounts = 20,
    [cats:insert(Table, [{N, 100} || N <- lists:seq(1, Accounts)] ++ [{N, noise} || N <- lists:seq(101, 200)])
     || Table <- Tables],
    Transfer = fun() ->
                       From = rand:uniform(Accounts),
                       To = 1 + From rem Accounts,
                       Amount = rand:uniform(10),
                       {atomic, ok} = run_on(
                                        fun() ->
                                                [{_, Balance}] = cats_transaction:read(A, From),
                                                [{_, Other}] = cats_transaction:read(B, To),
                                                [{_, Balance}] = cats_transaction:read(B, From),
                                                [{_, Other}] = cats_transaction:read(A, To),
                                                [cats_transaction:insert(Table,
                                                                         [{From, Balance - Amount},
                                                                          {To, Other + Amount}])
                                                 || Table <- Tables],
                                                ok
                                        end)
               end,
    Sum = fun() ->
                  {atomic, Sums} = run_on(
                                     fun() ->
                                             InA = [element(2, hd(cats_transaction:read(A, N)))
                                                    || N <- lists:seq(1, Accounts)],
                                             All = cats_transaction:range(B, 1, Accounts, infinity),
                                             InB = [Balance || {_, Balance} <- All],
                                             InA = InB,
                                             lists:sum(InA)
                                     end),
                  ?assertEqual(100 * Accounts, Sums)
          end,
    %% Other keys of the same places, outside of transactions.
    Noise = fun() ->
                    N = 100 + rand:uniform(100),
                    [case rand:uniform(2) of
                         1 -> cats:insert(Table, {N, noise});
                         2 -> cats:delete(Table, N)
                     end || Table <- Tables]
            end,
    Victims = fun() ->
                      {Pid, Monitor} = spawn_monitor(fun() -> forever(Transfer) end),
                      timer:sleep(rand:uniform(3)),
                      exit(Pid, kill),
                      receive {'DOWN', Monitor, _, _, Reason} -> ?assertEqual(killed, Reason) end
              end,
    repeat([Transfer, Transfer, Sum, Noise, Victims]),
    Sum().

%% Runs again without end, because operations outside of transactions change what the function reads. Every other
%% transaction is a long one.
run_on(Fun) ->
    Body = case rand:uniform(2) of
               1 -> Fun;
               2 -> fun() -> read_much(), Fun() end
           end,
    cats_transaction:run(Body, [], #{retries => infinity}).

%% Transactions beside updates outside of them, which change objects in place.
counters(_Config) ->
    Tables = [cats:new(counters, [Type, public]) || Type <- [set, ordered_set]],
    [cats:insert(Table, {counter, 0, 0}) || Table <- Tables],
    Plain = fun() -> [cats:update_counter(Table, counter, 1) || Table <- Tables] end,
    Inside = fun() ->
                     {atomic, _} = run_on(
                                     fun() ->
                                             [begin
                                                  [{counter, N, M}] = cats_transaction:read(Table, counter),
                                                  cats_transaction:insert(Table, {counter, N + 1, M + 1})
                                              end || Table <- Tables]
                                     end)
             end,
    [A, B, C] = repeat([Plain, Inside, Inside]),
    [?assertEqual([{counter, A + B + C, B + C}], cats:lookup(Table, counter)) || Table <- Tables].

%% Two transactions insert, each only if the range is empty: never both.
phantoms(_Config) ->
    Table = cats:new(phantoms, [ordered_set, public]),
    true = cats:insert(Table, [{0, border}, {1000, border}]),
    Claim = fun(Me) ->
                    fun() ->
                            {atomic, Claimed} =
                                run_on(
                                  fun() ->
                                          Key = rand:uniform(999),
                                          Free = case rand:uniform(3) of
                                                     1 -> cats_transaction:range(Table, 1, 999, infinity) =:= [];
                                                     2 -> cats_transaction:next(Table, 0) =:= 1000;
                                                     3 -> cats_transaction:prev(Table, 1000) =:= 0
                                                 end,
                                          Free andalso cats_transaction:insert(Table, {Key, Me}),
                                          Free andalso Key
                                  end),
                            case Claimed of
                                false -> ok;
                                Key ->
                                    %% Between its commit and this, nobody else may have inserted.
                                    ?assertEqual([{0, border}, {Key, Me}, {1000, border}], cats:tab2list(Table)),
                                    cats:delete(Table, Key)
                            end
                    end
            end,
    Counts = repeat([Claim(Me) || Me <- [a, b, c]]),
    ?assert(lists:min(Counts) > 0).

%% Two transactions read both keys of a pair, and each sets its own if both are free. Never are both set. The keys are
%% in two tables, or in one.
skew(_Config) ->
    Tables = [A, B] = [cats:new(skew, [Type, public]) || Type <- [set, ordered_set]],
    Pairs = [{{A, a}, {A, b}}, {{B, {a}}, {B, {b}}}, {{A, c}, {B, c}}],
    Free = fun({Table, Key}) -> cats_transaction:read(Table, Key) =:= [] end,
    Take = fun(Which) ->
                   fun() ->
                           Pair = one_of(Pairs),
                           {{Table, Key}, {OtherTable, OtherKey}} = {element(Which, Pair), element(3 - Which, Pair)},
                           {atomic, Taken} = run_on(
                                               fun() ->
                                                       Both = Free(element(1, Pair)) andalso Free(element(2, Pair)),
                                                       Both andalso cats_transaction:insert(Table, {Key, taken})
                                               end),
                           %% Between its commit and this, the other one may not have set its key.
                           Taken andalso ?assertEqual([], cats:lookup(OtherTable, OtherKey)),
                           Taken andalso cats:delete(Table, Key)
                   end
           end,
    repeat([Take(1), Take(2)]),
    [?assertEqual([], cats:tab2list(Table)) || Table <- Tables].

%% A long transaction whose memory is not enough ends, and says so. Others do not.
memory(_Config) ->
    [begin
         Table = cats:new(table, [Type, public]),
         Read = fun(Keys, More) ->
                        fun() -> [cats_transaction:lookup(Table, Key) || Key <- lists:seq(1, Keys)], More() end
                end,
         Run = fun(Body, Memory) -> cats_transaction:run(Body, [], #{memory => Memory}) end,
         Nothing = fun() -> done end,
         ?assertEqual({aborted, {memory, 1}}, Run(Read(10000, Nothing), 10000)),
         ?assertEqual({aborted, {memory, 1}}, Run(Read(100, Nothing), 0)),
         [?assertEqual({atomic, done}, Run(Read(Keys, Nothing), Memory))
          || {Keys, Memory} <- [{10, 0}, {1000, 1 bsl 20}, {10000, infinity}]],
         %% Others write meanwhile. Who does not look is cut off.
         Write = fun(Number) ->
                         cats_test_lib:in_process(
                           fun() -> [cats:insert(Table, {-Key, x}) || Key <- lists:seq(1, Number)], ok end)
                 end,
         Late = Read(100, fun() -> Write(100000), (Read(101, Nothing))() end),
         All = fun() -> cats_transaction:foldl(fun(_, Count) -> Count + 1 end, 0, Table) end,
         ?assertEqual({aborted, {memory, 1}}, Run(fun() -> All(), Late() end, 1 bsl 20)),
         %% They keep nothing of keys that it has not read.
         ?assertEqual({atomic, done}, Run(Late, 1 bsl 20)),
         %% What the transaction itself writes does not count.
         Writes = fun() -> [cats_transaction:insert(Table, {Key, y}) || Key <- lists:seq(1, 30000)], done end,
         ?assertEqual({atomic, done}, Run(Read(100, Writes), 100000)),
         ?assertEqual({atomic, done}, Run(Read(100, fun() -> Write(1000), done end), 1 bsl 20)),
         true = cats:delete(Table)
     end || Type <- [set, ordered_set]].

%% Any number of reads, in any table, costs the same each: no call goes to a dirty scheduler, and nothing is kept.
any_length(_Config) ->
    [begin
         Table = cats:new(table, [Type, public, {stats, true} | Options]),
         true = cats:insert(Table, [{Key(N), N} || N <- lists:seq(1, Count)]),
         Flat = fun() -> [[{_, N}] = cats_transaction:read(Table, Key(N)) || N <- lists:seq(1, Count)] end,
         {atomic, _} = cats_transaction:run(Flat),
         Write = fun() ->
                         [begin
                              [{_, N}] = cats_transaction:read(Table, Key(N)),
                              cats_transaction:insert(Table, {Key(N), -N})
                          end || N <- lists:seq(1, Count)]
                 end,
         {atomic, _} = cats_transaction:run(Write),
         ?assertEqual(lists:seq(-Count, -1), lists:sort([N || {_, N} <- cats:tab2list(Table)])),
         %% A change of any key that was read is found.
         Changed = rand:uniform(Count),
         Runs = counters:new(1, []),
         Reads = fun() ->
                         counters:add(Runs, 1, 1),
                         Objects = [Object || N <- lists:seq(1, Count), Object <- cats_transaction:read(Table, Key(N))],
                         Sum = lists:sum([N || {_, N} <- Objects]),
                         counters:get(Runs, 1) =:= 1 andalso
                             cats_test_lib:in_process(fun() -> cats:update_counter(Table, Key(Changed), 1) end),
                         cats_transaction:insert(Table, {sum, Sum})
                 end,
         ?assertEqual({atomic, true}, cats_transaction:run(Reads)),
         ?assertEqual({2, [{sum, 1 - Count * (Count + 1) div 2}]}, {counters:get(Runs, 1), cats:lookup(Table, sum)}),
         true = cats:delete(Table)
     end || Type <- [set, ordered_set],
            Options <- [[], [compressed], [{ttl, 1_000_000}], [{limit, {objects, 1_000_000}}]],
            Key <- [fun(N) -> N end, fun(N) -> {key, [N]} end],
            Count <- [10, 30, 1000] ++ [30_000 || Options =:= []]].

%% A queue: the first object goes to the end, so that the number of objects stays the same. Leaves split and join.
moving_first(_Config) ->
    Table = cats:new(queue, [ordered_set, public]),
    Length = 300,
    true = cats:insert(Table, [{N, N} || N <- lists:seq(1, Length)]),
    Move = fun() ->
                   {atomic, true} = run_on(
                                      fun() ->
                                              First = cats_transaction:first(Table),
                                              Last = cats_transaction:last(Table),
                                              [{First, Value}] = cats_transaction:read(Table, First),
                                              cats_transaction:delete(Table, First),
                                              cats_transaction:insert(Table, {Last + 1, Value})
                                      end)
           end,
    All = fun() ->
                  {atomic, Values} = run_on(fun() -> cats_transaction:select(Table, [{{'_', '$1'}, [], ['$1']}]) end),
                  ?assertEqual(lists:seq(1, Length), lists:sort(Values))
          end,
    [Moves1, Moves2, _] = repeat([Move, Move, All]),
    ?assertEqual(Moves1 + Moves2 + 1, cats:first(Table)),
    ?assertEqual(Length, cats:info(Table, size)),
    All().

%% Tables are emptied or deleted meanwhile. A transaction that writes two tables writes both or fails.
tables_change(_Config) ->
    Kept = cats:new(kept, [public]),
    Owner = fun() ->
                    Table = cats:new(table, [one_of([set, ordered_set]), public]),
                    {_, Monitor} = spawn_monitor(fun() -> write_both(Kept, Table, 1) end),
                    timer:sleep(rand:uniform(3)),
                    true = cats:delete_all_objects(Table),
                    timer:sleep(rand:uniform(2)),
                    true = cats:delete(Table),
                    Before = cats:lookup(Kept, Table),
                    receive {'DOWN', Monitor, _, _, Reason} -> ?assertEqual(normal, Reason) end,
                    %% Nothing was written after the table was deleted.
                    ?assertEqual(Before, cats:lookup(Kept, Table)),
                    cats:delete(Kept, Table)
            end,
    repeat([Owner, Owner]),
    ?assertEqual([], cats:tab2list(Kept)).

write_both(Kept, Table, N) ->
    case run_on(fun() ->
                                      cats_transaction:insert(Table, {N rem 7, N}),
                                      cats_transaction:insert(Kept, {Table, N})
                              end) of
        {atomic, true} -> write_both(Kept, Table, N + 1);
        {aborted, {badarg, [{cats, insert, _, _} | _]}} -> ok
    end.

%% Two tables change their names. A transaction finds one of them by the name, and keeps to it.
renamed(_Config) ->
    One = cats:whereis(cats:new(one, [public, named_table])),
    Other = cats:whereis(cats:new(other, [public, named_table])),
    [cats:insert(Table, [{1, 50}, {2, 50}]) || Table <- [One, Other]],
    Rename = fun() ->
                     aside = cats:rename(One, aside),
                     one = cats:rename(Other, one),
                     other = cats:rename(One, other),
                     aside = cats:rename(One, aside),
                     other = cats:rename(Other, other),
                     one = cats:rename(One, one)
             end,
    Transfer = fun() ->
                       case run_on(
                              fun() ->
                                      [{1, A}] = cats_transaction:read(one, 1),
                                      [{2, B}] = cats_transaction:read(one, 2),
                                      100 = A + B,
                                      cats_transaction:insert(one, [{1, A - 1}, {2, B + 1}])
                              end) of
                           {atomic, true} -> ok;
                           {aborted, {badarg, [{cats, lookup, _, _} | _]}} -> ok
                       end
               end,
    repeat([Rename, Transfer, Transfer]),
    [?assertEqual(100, lists:sum([Value || {_, Value} <- cats:tab2list(Table)])) || Table <- [One, Other]].

options(_Config) ->
    Remarks = fun(Arguments) ->
                      try apply(cats_transaction, run, Arguments)
                      catch error:badarg:Stack -> cats_failure:format_error(badarg, Stack)
                      end
              end,
    Body = fun() -> ok end,
    ?assertEqual({atomic, ok}, Remarks([Body, [], #{}])),
    ?assertEqual({atomic, ok}, Remarks([Body, [], #{retries => infinity, timeout => infinity, memory => infinity}])),
    Wrong = <<"not a map of retries, timeout and memory, which are an integer of at least 0 or infinity">>,
    [?assertEqual(#{3 => Wrong}, Remarks([Body, [], Options]))
     || Options <- [#{retries => -1}, #{memory => -1}, #{memory => all}, #{retries => 1.0}, #{timeout => soon},
                    #{other => 1}, [], {retries, 1}]],
    [?assertEqual(#{1 => <<"not a function of as many arguments as are given">>}, Remarks(Arguments))
     || Arguments <- [[not_a_fun], [fun(A) -> A end], [Body, [a]], [Body, [a], #{}]]],
    ?assertEqual(#{2 => <<"not a list">>}, Remarks([Body, a])),
    %% Within a transaction, too.
    ?assertMatch({atomic, #{3 := _}}, cats_transaction:run(fun() -> Remarks([Body, [], #{retries => a}]) end)).

%% What a function leaves in the dictionary of its process is no transaction.
left_behind(_Config) ->
    Table = cats:new(table, [public]),
    Write = fun(N) -> cats_transaction:run(fun() -> cats_transaction:insert(Table, {N}) end) end,
    Written = fun(N) -> cats:member(Table, N) end,
    %% The process goes on elsewhere, from a preferred transaction, too.
    Hibernate = fun(Run) ->
                        {Pid, Monitor} =
                            spawn_monitor(fun() -> Run(fun() -> erlang:hibernate(?MODULE, woken, [Write]) end) end),
                        Pid ! wake,
                        receive {'DOWN', Monitor, _, _, Outcome} -> Outcome end
                end,
    [begin
         ?assertEqual({no_transaction, {atomic, true}}, Hibernate(Run)),
         ?assert(Written(hibernated)),
         ?assertEqual({atomic, true}, Write(others)),
         cats:delete(Table, hibernated)
     end || Run <- [fun(Body) -> cats_transaction:run(Body) end,
                    fun(Body) -> cats_transaction:run(fun() -> cats_transaction:run(Body) end) end,
                    fun(Body) -> cats_preferred_SUITE:prefer(Body) end]],
    %% Without the state, nothing is written, and it is said.
    ?assertEqual({aborted, no_transaction},
                 cats_transaction:run(fun() -> erase(), cats_transaction:read(Table, lost) end)),
    ?assertEqual({aborted, no_transaction},
                 cats_transaction:run(fun() -> cats_transaction:insert(Table, {lost}), erase() end)),
    ?assertEqual({aborted, no_transaction},
                 cats_transaction:run(fun() ->
                                              cats_transaction:run(fun() ->
                                                                           cats_transaction:insert(Table, {lost}),
                                                                           erase()
                                                                   end)
                                      end)),
    ?assertNot(Written(lost)),
    %% It may be erased for a while.
    Restore = fun() -> [put(Key, Value) || {Key, Value} <- erase()], cats_transaction:insert(Table, {restored}) end,
    ?assertEqual({atomic, true}, cats_transaction:run(Restore)),
    ?assert(Written(restored)),
    %% After the end, it is worth nothing. Nor is it in another process.
    {atomic, Dictionary} = cats_transaction:run(fun() -> get() end),
    Copy = fun(N) ->
                   [put(Key, Value) || {Key, Value} <- Dictionary],
                   ?assertError(no_transaction, cats_transaction:insert(Table, {N})),
                   [put(Key, Value) || {Key, Value} <- Dictionary],
                   Write(N)
           end,
    ?assertEqual({atomic, true}, Copy(copied_back)),
    ?assertEqual({atomic, true}, cats_test_lib:in_process(fun() -> Copy(copied) end)),
    ?assert(Written(copied_back) andalso Written(copied)).

%% @private
woken(Write) ->
    receive wake -> ok end,
    Outside = try cats_transaction:insert(table, {lost}) catch error:Reason -> Reason end,
    exit({Outside, Write(hibernated)}).

%% A table that was read before is deleted. The error names it, and not the one that is read or written next.
deleted_table(_Config) ->
    [begin
         [A, B] = [cats:new(table, [Type, public]) || _ <- [a, b]],
         Body = fun(Next) ->
                        fun() ->
                                cats_transaction:read(B, key),
                                cats:info(B, id) =/= undefined
                                    andalso cats_test_lib:in_process(fun() -> cats:delete(B) end),
                                Next()
                        end
                end,
         ?assertMatch({aborted, {badarg, [{cats, Function, [B | _], _} | _]}},
                      cats_transaction:run(Body(fun() -> Use(A, B) end))),
         ?assertEqual([], cats:tab2list(A))
     end || Type <- [set, ordered_set],
            {Function, Use} <- [{lookup, fun(A, _) -> cats_transaction:read(A, key) end},
                                {lookup, fun(A, _) -> cats_transaction:insert(A, {key}) end},
                                {insert, fun(A, B) -> [cats_transaction:insert(Table, {key}) || Table <- [A, B]] end}]],
    %% The right to write is asked for at the end.
    Open = cats:new(table, [public]),
    {Owner, Protected} = cats_test_lib:spawn_owner(fun() -> cats:new(table, [protected]) end),
    [?assertMatch({aborted, {badarg, [{cats, Function, [Protected, Argument], _} | _]}}, cats_transaction:run(Body))
     || {Function, Argument, Body} <-
            [{insert, {key}, fun() -> [cats_transaction:insert(T, {key}) || T <- [Open, Protected]] end},
             {delete, key, fun() -> [cats_transaction:delete(T, key) || T <- [Protected, Open]] end}]],
    ?assertEqual([], cats:tab2list(Open)),
    cats_test_lib:stop(Owner, normal).

%% A body that catches everything runs again all the same.
swallowed_conflict(_Config) ->
    Table = cats:new(table, [public]),
    true = cats:insert(Table, [{a, 0}, {b, 0}]),
    Body = fun() ->
                   [{a, A}] = cats_transaction:read(Table, a),
                   A =:= 0 andalso cats:insert(Table, {a, 1}),
                   B = try cats_transaction:read(Table, b) catch _:_ -> swallowed end,
                   _ = try cats_transaction:insert(Table, {c, A}) catch _:_ -> swallowed end,
                   {A, B}
           end,
    ?assertEqual({atomic, {1, [{b, 0}]}}, cats_transaction:run(Body)),
    ?assertEqual([{a, 1}, {b, 0}, {c, 1}], lists:sort(cats:tab2list(Table))).

%%------------------------------------------------------------------------------------------------------------
%% Limits that are met

%% What a transaction has written may be much, and so may be what a bag has. Both are listed in parts, so others run
%% meanwhile.
lets_others_run(_Config) ->
    [Set, Bag] = [cats:new(table, [Type, public]) || Type <- [set, bag]],
    true = cats:insert(Bag, [{key, N} || N <- lists:seq(1, 100_000)]),
    Write = fun() -> cats_transaction:insert(Set, [{N} || N <- lists:seq(1, 100_000)]) end,
    Select = fun() -> Write(), length(cats_transaction:select(Set, [{'_', [], [true]}])) end,
    Read = fun() -> cats_transaction:insert(Bag, {key, 0}), length(cats_transaction:lookup(Bag, key)) end,
    [?assertMatch({Function, Pauses} when Pauses > Least, {Function, pauses(Function, Body)})
     || {Function, Least, Body} <- [{{cats_writes, all, 1}, 50, Write}, {{cats_writes, puts, 2}, 150, Select},
                                    {{cats_writes, changed, 3}, 50, Read}]].

%% How often a process that runs this transaction lets others run within calls of this function.
pauses(Function, Body) ->
    {Pid, Monitor} = spawn_monitor(fun() -> receive go -> {atomic, _} = cats_transaction:run(Body) end end),
    {module, cats_writes} = code:ensure_loaded(cats_writes),
    1 = erlang:trace_pattern(Function, [{'_', [], [{return_trace}]}], [local]),
    1 = erlang:trace(Pid, true, [call, running]),
    Pid ! go,
    receive {'DOWN', Monitor, process, Pid, Reason} -> ?assertEqual(normal, Reason) end,
    Delivered = erlang:trace_delivered(Pid),
    receive {trace_delivered, Pid, Delivered} -> ok end,
    erlang:trace_pattern(Function, false, [local]),
    pauses(Pid, false, 0).

pauses(Pid, Within, Count) ->
    receive
        {trace, Pid, call, _} -> pauses(Pid, true, Count);
        {trace, Pid, return_from, _, _} -> pauses(Pid, false, Count);
        {trace, Pid, out, _} when Within -> pauses(Pid, Within, Count + 1);
        {trace, Pid, _, _} -> pauses(Pid, Within, Count)
    after 0 -> Count
    end.

%% The error of a commit names the table whose limit was met, and the limit.
limits(_Config) ->
    [begin
         Free = cats:new(free, [Type, public]),
         [Roomy, Full] = [cats:new(limited, [Type, public, {limit, {objects, 2}}, {evict, none}]) || _ <- [1, 2]],
         true = cats:insert(Full, [{1}, {2}]),
         Fails = fun(Writes) ->
                         Insert = fun() -> [cats_transaction:insert(Table, Object) || {Table, Object} <- Writes] end,
                         {aborted, {system_limit, [{cats, Function, Arguments, Info} | _]}} =
                             cats_transaction:run(Insert),
                         {Function, Arguments, cats_failure:cause(Info)}
                 end,
         [?assertEqual({insert, [Full, {3}], full}, Fails(Writes))
          || Writes <- [[{Full, {3}}], [{Free, {1}}, {Roomy, {1}}, {Full, {3}}],
                        [{Full, {3}}, {Free, {1}}, {Roomy, {1}}]]],
         ?assertMatch({insert, [Roomy, _], too_large}, Fails([{Free, {1}}] ++ [{Roomy, {N}} || N <- [1, 2, 3]])),
         Tables = [cats:new(free, [Type, public]) || _ <- lists:seq(1, 33)],
         ?assertMatch({insert, [_, {1}], too_many_tables}, Fails([{Table, {1}} || Table <- Tables])),
         ?assertEqual({0, 0, 2}, {cats:info(Free, size), cats:info(Roomy, size), cats:info(Full, size)})
     end || Type <- [set, ordered_set]].
