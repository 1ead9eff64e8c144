%% Transactions over bags: the results that bags have outside of them, and what processes see of each other.
-module(cats_transaction_bags_SUITE).
-include_lib("stdlib/include/assert.hrl").
-import(cats_test_lib, [one_of/1, read_much/0]).
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([like_cats/1, errors/1, additions_read_nothing/1, readers_run_again/1, large_groups/1, snapshots/1, moves/1,
         additions/1]).

-define(BAGS, [bag, duplicate_bag]).

suite() -> [{timetrap, {minutes, 10}}].

all() ->
    [like_cats, errors, additions_read_nothing, readers_run_again, large_groups, snapshots, moves, additions].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(cats),
    [{much, cats_test_lib:start_much()} | Config].

end_per_suite(Config) -> cats_test_lib:stop(proplists:get_value(much, Config), kill).

-define(MS, cats_test_lib:environment("TRANSACTIONS_MS", cats_test_lib:rounds(500))).

%%------------------------------------------------------------------------------------------------------------
%% Results

%% The same calls in transactions and without, with twin tables. Some transactions abort, and some have others inside.
like_cats(_Config) ->
    [begin
         Twins = [{Type, cats:new(inside, [Type, public | Options]), cats:new(outside, [Type, public | Options])}
                  || Type <- [set, ordered_set | ?BAGS], Options <- [[], [compressed]]],
         [transaction(Twins, Round) || Round <- lists:seq(1, 40)],
         [[cats:delete(Table) || Table <- [Inside, Outside]] || {_, Inside, Outside} <- Twins]
     end || _ <- lists:seq(1, 20)].

transaction(Twins, Round) ->
    Some = one_of([Twins, [one_of(Twins)]]),
    Steps = steps(Some, rand:uniform(one_of([6, 6, 60])), 2),
    Before = saved(Twins),
    Aborts = rand:uniform(4) =:= 1,
    Body = fun() ->
                   Round rem 2 =:= 0 andalso read_much(),
                   carry_out(Steps),
                   Aborts andalso exit(stop)
           end,
    case cats_transaction:run(Body, [], #{retries => 0}) of
        {aborted, stop} -> restore(Before);
        {atomic, false} -> ok
    end,
    [begin
         ?assertEqual([cats:lookup(Outside, Key) || Key <- keys()], [cats:lookup(Inside, Key) || Key <- keys()]),
         ?assertEqual(cats:info(Outside, size), cats:info(Inside, size))
     end || {_, Inside, Outside} <- Twins].

%% The objects of all keys of the tables outside.
saved(Twins) -> [{Outside, [cats:lookup(Outside, Key) || Key <- keys()]} || {_, _, Outside} <- Twins].

restore(Saved) ->
    [begin
         true = cats:delete_all_objects(Table),
         [true = cats:insert(Table, Objects) || Objects <- OfKeys]
     end || {Table, OfKeys} <- Saved].

steps(Twins, Count, Depth) -> [step(Twins, Depth) || _ <- lists:seq(1, Count)].

step(Twins, Depth) ->
    case rand:uniform(20) of
        1 when Depth > 0 -> {nested, steps(Twins, rand:uniform(5), Depth - 1), one_of([abort, return]), saved, Twins};
        _ ->
            {Function, Arguments} = call(one_of([insert, insert, insert, insert_all, insert_new, delete, delete_object,
                                                 delete_object, lookup, lookup, member, take, lookup_element,
                                                 lookup_many, select, match_object, select_delete, foldl])),
            {Function, Arguments, one_of(Twins)}
    end.

call(insert) -> {insert, [object()]};
call(insert_all) -> {insert, [[object() || _ <- lists:seq(1, rand:uniform(5))]]};
call(insert_new) -> {insert_new, [one_of([object(), [object(), object()]])]};
call(delete_object) -> {delete_object, [object()]};
call(lookup_element) -> {lookup_element, [key(), 2, default]};
call(lookup_many) -> {lookup_many, [[key(), key()]]};
call(select) -> {select, [[{{one_of([key(), '_']), '$1'}, [{'>', '$1', 1}], ['$_']}]]};
call(match_object) -> {match_object, [{key(), '_'}]};
call(select_delete) -> {select_delete, [[{{one_of([key(), '_']), '$1'}, [{'=:=', '$1', value()}], [true]}]]};
call(foldl) -> {foldl, [fun(Object, Objects) -> [Object | Objects] end, []]};
call(Function) -> {Function, [key()]}.

keys() -> [1, 2, 2.0, {key, [3]}].
key() -> one_of(keys()).
value() -> one_of([0, 1, 1.0, 2, <<"binary">>, lists:duplicate(40, a)]).
object() -> {key(), value()}.

carry_out(Steps) -> lists:foreach(fun carry_out_one/1, Steps).

carry_out_one({nested, Steps, End, saved, Twins}) ->
    Before = saved(Twins),
    Outcome = cats_transaction:run(fun() ->
                                           carry_out(Steps),
                                           End =:= abort andalso cats_transaction:abort(no)
                                   end),
    case End of
        abort -> ?assertEqual({aborted, no}, Outcome), restore(Before);
        return -> ?assertEqual({atomic, false}, Outcome)
    end;
carry_out_one({Function, Arguments, {Type, Inside, Outside}}) ->
    Expected = result(Function, outcome(cats, Function, Arguments, Outside)),
    ?assertEqual(Expected, result(Function, outcome(cats_transaction, Function, Arguments, Inside)),
                 {Type, Function, Arguments}).

outcome(Module, foldl, Arguments, Table) -> apply(Module, foldl, Arguments ++ [Table]);
outcome(Module, Function, Arguments, Table) -> apply(Module, Function, [Table | Arguments]).

%% The keys of a table are in no order. This one tells 2 from 2.0.
result(Function, Objects) when Function =:= foldl; Function =:= select ->
    lists:sort([{term_to_binary(Object), Object} || Object <- Objects]);
result(_Function, Result) -> Result.

%% What `ets' does not do with bags.
errors(_Config) ->
    [begin
         Table = cats:new(table, [Type, public]),
         true = cats:insert(Table, {key, 1}),
         Raised = fun(Module, {Function, Arguments}) ->
                          try apply(Module, Function, [Table | Arguments])
                          catch error:badarg:Stack -> cats_failure:format_error(badarg, Stack)
                          end
                  end,
         [?assertEqual({atomic, Raised(cats, Call)}, cats_transaction:run(fun() -> Raised(cats_transaction, Call) end))
          || Call <- [{update_counter, [key, 1]}, {update_counter, [key, 1, {key, 1}]},
                      {update_element, [key, {2, 1}]}, {update_element, [key, {2, 1}, {key, 1}]},
                      {update, [key, fun(_) -> keep end]}, {update, [key, fun(_) -> keep end, {key, 1}]}]],
         ?assertMatch({aborted, {no_transactions, Table, _}},
                      cats_transaction:run(fun() -> cats_transaction:first(Table) end))
     end || Type <- ?BAGS],
    %% A commit that may not write names a function that it would carry out.
    [begin
         {Owner, Protected} = cats_test_lib:spawn_owner(fun() -> cats:new(table, [bag, protected]) end),
         {aborted, {badarg, [{cats, Function, _, _} | _]}} =
             cats_transaction:run(fun() -> cats_transaction:Function(Protected, Argument) end),
         cats_test_lib:stop(Owner, normal)
     end || {Function, Argument} <- [{insert, {1}}, {delete, 1}, {delete_object, {1}}]].

%% A transaction that adds and removes objects without reading does not run again, whatever others do.
additions_read_nothing(_Config) ->
    [begin
         Table = cats:new(table, [Type, public]),
         true = cats:insert(Table, [{key, N} || N <- [1, 2, 3]]),
         Runs = counters:new(1, []),
         Body = fun() ->
                        counters:add(Runs, 1, 1),
                        Much andalso read_much(),
                        cats_transaction:insert(Table, {key, own}),
                        cats_test_lib:in_process(fun() -> cats:insert(Table, {key, other}) end),
                        cats_transaction:delete_object(Table, {key, 2})
                end,
         ?assertEqual({atomic, true}, cats_transaction:run(Body)),
         ?assertEqual(1, counters:get(Runs, 1)),
         ?assertEqual([{key, Value} || Value <- [1, 3, other, own]], cats:lookup(Table, key))
     end || Type <- ?BAGS, Much <- [false, true]].

%% A transaction that has read a key of a bag, or its emptiness, runs again when others change the key.
readers_run_again(_Config) ->
    [begin
         Table = cats:new(table, [Type, public]),
         Counts = cats:new(counts, [public]),
         true = cats:insert(Table, [{key, N} || N <- lists:seq(1, Size)]),
         Runs = counters:new(1, []),
         Body = fun() ->
                        counters:add(Runs, 1, 1),
                        Much andalso read_much(),
                        Count = length(cats_transaction:lookup(Table, key)),
                        counters:get(Runs, 1) =:= 1 andalso cats_test_lib:in_process(fun() -> Change(Table) end),
                        cats_transaction:insert(Table, {key, last}),
                        cats_transaction:insert(Counts, {count, Count})
                end,
         ?assertEqual({atomic, true}, cats_transaction:run(Body)),
         ?assertEqual(2, counters:get(Runs, 1), {Type, Size, Much}),
         ?assertEqual([{count, length(cats:lookup(Table, key)) - 1}], cats:lookup(Counts, count))
     end || Type <- ?BAGS, Size <- [0, 1, 2, 100, 3000], Much <- [false, true],
            Change <- [fun(Table) -> cats:insert(Table, {key, new}) end,
                       fun(Table) -> cats:insert(Table, [{key, N} || N <- [a, b, c]]) end,
                       fun(Table) -> cats_transaction:run(fun cats_transaction:insert/2, [Table, {key, new}]) end]
                ++ [Removal || Size >= 2,
                               Removal <- [fun(Table) -> cats:delete_object(Table, {key, 2}) end,
                                           fun(Table) -> cats:match_delete(Table, {key, 2}) end,
                                           fun(Table) -> cats:take(Table, key) end]]].

%% Many objects of one key: calls on dirty schedulers.
large_groups(_Config) ->
    [begin
         Table = cats:new(table, [Type, public | Options]),
         Object = fun(N) -> {key, N, lists:duplicate(20, N)} end,
         Objects = [Object(N) || N <- lists:seq(1, 20_000)],
         ?assertEqual({atomic, true}, cats_transaction:run(fun cats_transaction:insert/2, [Table, Objects])),
         ?assertEqual(Objects, cats:lookup(Table, key)),
         Body = fun() ->
                        [cats_transaction:delete_object(Table, Object(N)) || N <- lists:seq(1, 10_000)],
                        cats_transaction:insert(Table, Object(1)),
                        cats_transaction:lookup(Table, key)
                end,
         Expected = [Object(N) || N <- lists:seq(10_001, 20_000) ++ [1]],
         ?assertEqual({atomic, Expected}, cats_transaction:run(Body)),
         ?assertEqual(Expected, cats:lookup(Table, key)),
         ?assertEqual(10_001, cats:info(Table, size)),
         ?assertEqual({atomic, true}, cats_transaction:run(fun cats_transaction:delete/2, [Table, key])),
         ?assertEqual([], cats:tab2list(Table))
     end || Type <- ?BAGS, Options <- [[], [compressed]]],
    Table = cats:new(table, [duplicate_bag, public]),
    true = cats:insert(Table, lists:duplicate(5000, {key, same}) ++ [{key, other}]),
    ?assertEqual({atomic, true}, cats_transaction:run(fun cats_transaction:delete_object/2, [Table, {key, same}])),
    ?assertEqual([{key, other}], cats:tab2list(Table)).

%% A snapshot keeps what it has.
snapshots(_Config) ->
    [begin
         Table = cats:new(table, [Type, public]),
         true = cats:insert(Table, Objects = [{key, N} || N <- lists:seq(1, Size)]),
         Snapshot = cats:snapshot(Table),
         Body = fun() ->
                        cats_transaction:insert(Table, [{key, new}, {other, new}]),
                        cats_transaction:delete_object(Table, {key, 1})
                end,
         ?assertEqual({atomic, true}, cats_transaction:run(Body)),
         ?assertEqual(Objects, cats:tab2list(Snapshot)),
         ?assertEqual(tl(Objects) ++ [{key, new}], cats:lookup(Table, key)),
         ?assertEqual({atomic, true}, cats_transaction:run(fun cats_transaction:delete/2, [Table, key])),
         ?assertEqual(Objects, cats:tab2list(Snapshot)),
         ?assertEqual([{other, new}], cats:tab2list(Table))
     end || Type <- ?BAGS, Size <- [1, 2, 500]].

%%------------------------------------------------------------------------------------------------------------
%% Processes

%% Transactions move objects from key to key, in two bags at once. No object is lost or there twice. Workers are killed
%% at random.
moves(_Config) ->
    Tables = [A, _] = [cats:new(moves, [Type, public]) || Type <- ?BAGS],
    Keys = [1, 2, {3}, four],
    Tokens = lists:seq(1, 40),
    [true = cats:insert(Table, [{hd(Keys), Token} || Token <- Tokens]) || Table <- Tables],
    Move = fun() ->
                   [From, To] = [one_of(Keys) || _ <- [1, 2]],
                   Which = rand:uniform(1000),
                   {atomic, ok} = run_on(
                                    fun() ->
                                            case cats_transaction:lookup(A, From) of
                                                [] -> ok;
                                                Objects ->
                                                    {From, Token} = Object =
                                                        lists:nth(1 + Which rem length(Objects), Objects),
                                                    [begin
                                                         cats_transaction:delete_object(Table, Object),
                                                         cats_transaction:insert(Table, {To, Token})
                                                     end || Table <- Tables],
                                                    ok
                                            end
                                    end)
           end,
    Sum = fun() ->
                  {atomic, [InA, InB]} =
                      run_on(fun() ->
                                     [lists:append([cats_transaction:lookup(Table, Key) || Key <- Keys])
                                      || Table <- Tables]
                             end),
                  ?assertEqual(lists:sort(InA), lists:sort(InB)),
                  ?assertEqual(Tokens, lists:sort([Token || {_, Token} <- InA]))
          end,
    %% Other keys of the same places, outside of transactions.
    Noise = fun() ->
                    N = 100 + rand:uniform(100),
                    [case rand:uniform(3) of
                         1 -> cats:delete(Table, N);
                         _ -> cats:insert(Table, {N, rand:uniform(3)})
                     end || Table <- Tables]
            end,
    repeat([Move, Move, Sum, Noise, victims(Move)]),
    Sum().

%% Transactions add objects to keys of two bags without reading them. All that are done are there, in order, and nothing
%% of the others.
additions(_Config) ->
    Tables = [cats:new(additions, [Type, public]) || Type <- ?BAGS],
    Add = fun(Me, Number) ->
                  {atomic, true} = run_on(
                                     fun() ->
                                             [cats_transaction:insert(Table, [{key, Me, Number}, {{Me}, Number}])
                                              || Table <- Tables],
                                             true
                                     end)
          end,
    Worker = fun() ->
                     Number = case get(number) of
                                  undefined -> 1;
                                  Known -> Known
                              end,
                     Add(self(), Number),
                     put(number, Number + 1)
             end,
    Sum = fun() ->
                  {atomic, [InBag, InOther]} =
                      run_on(fun() -> [cats_transaction:lookup(Table, key) || Table <- Tables] end),
                  ?assertEqual(InBag, InOther)
          end,
    repeat([Worker, Worker, Sum, victims(Worker)]),
    Sum(),
    [InBag, InOther] = [cats:lookup(Table, key) || Table <- Tables],
    ?assertEqual(InBag, InOther),
    Workers = lists:usort([Worker || {key, Worker, _} <- InBag]),
    [begin
         Numbers = [Number || {key, Other, Number} <- InBag, Other =:= Worker],
         ?assertEqual(lists:seq(1, length(Numbers)), Numbers),
         [?assertEqual([{{Worker}, Number} || Number <- Numbers], cats:lookup(Table, {Worker})) || Table <- Tables]
     end || Worker <- Workers].

%% Runs a function in processes that are killed soon.
victims(Fun) ->
    fun() ->
            {Pid, Monitor} = spawn_monitor(fun() -> forever(Fun) end),
            timer:sleep(rand:uniform(3)),
            exit(Pid, kill),
            receive {'DOWN', Monitor, _, _, Reason} -> ?assertEqual(killed, Reason) end
    end.

forever(Fun) ->
    Fun(),
    forever(Fun).

%% Runs again without end. Every other transaction is a long one.
run_on(Fun) ->
    Body = case rand:uniform(2) of
               1 -> Fun;
               2 -> fun() -> read_much(), Fun() end
           end,
    cats_transaction:run(Body, [], #{retries => infinity}).

%% Each function runs again and again in a process of its own.
repeat(Functions) ->
    Until = erlang:monotonic_time(millisecond) + ?MS,
    Runs = [spawn_monitor(fun() -> exit({ran, repeat(Function, Until, 0)}) end) || Function <- Functions],
    Counts = [receive
                  {'DOWN', Monitor, process, Pid, {ran, Count}} -> Count;
                  {'DOWN', Monitor, process, Pid, Reason} -> ct:fail(Reason)
              end || {Pid, Monitor} <- Runs],
    ct:log("ran ~p times", [Counts]).

repeat(Function, Until, Count) ->
    Function(),
    case erlang:monotonic_time(millisecond) of
        Now when Now < Until -> repeat(Function, Until, Count + 1);
        _ -> Count + 1
    end.
