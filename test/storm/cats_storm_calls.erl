%% The calls of a storm on keys that all its processes write. Each is a row:
%%   how often
%%   the function of cats
%%   what the table must be
%%   how to make the arguments after the table
%%   what is wrong with a result
%%   the causes with which it may fail
%%
%% A row of another module is an operation, which is more than one call: how often, its name, what the table must be,
%% and a function that carries it out. It returns what was wrong, or `nothing'.
-module(cats_storm_calls).

-import(cats_storm_values,
        [uniform/1, chance/1, one_of/1, shared_key/0, deep/1, object/2, value/2, position/2, pattern/3,
         wrong/2]).
-import(cats_storm_tables, [has/2, any_id/1]).

-export([operations/0, outcome/1, unexpected/3, wrong_objects/2, wrong_objects/3, is_dead/1]).
-export_type([operation/0, outcome/0]).

-type operation() :: {Weight :: pos_integer(), Name :: atom(), Needs :: [cats_storm_tables:feature()],
                      fun((cats_storm_tables:table()) -> nothing | term())}.
-type outcome() :: {returned, term()} | {badarg, Cause :: atom()} | system_limit | {raised, atom(), term(), list()}.

-spec operations() -> [operation()].
operations() ->
    [{Weight, Function, Needs, fun(Table) -> call(Function, Arguments(Table), Wrong, Causes, Table) end}
     || {Weight, Function, Needs, Arguments, Wrong, Causes} <- calls()].

call(Function, Arguments, Wrong, Causes, Table) ->
    cats_storm_worker:note({Function, Arguments}),
    case outcome(fun() -> apply(cats, Function, [any_id(Table) | Arguments]) end) of
        {returned, Result} ->
            case Wrong(Table, Arguments, Result) of
                nothing -> nothing;
                Found -> {Function, Arguments, Result, Found}
            end;
        Outcome ->
            unexpected(Table, Causes, Outcome)
    end.

%% @doc What the function returns, or how it fails.
-spec outcome(fun(() -> term())) -> outcome().
outcome(Function) ->
    try
        {returned, Function()}
    catch
        error:badarg:Stack ->
            [{_, _, _, Info} | _] = Stack,
            {badarg, maps:get(cause, proplists:get_value(error_info, Info, #{}), none)};
        error:system_limit ->
            system_limit;
        Class:Reason:Stack ->
            {raised, Class, Reason, Stack}
    end.

%% @doc What is wrong with the failure of a call on the table, which may fail with these causes: `nothing' where it is
%% to be expected.
-spec unexpected(cats_storm_tables:table(), [atom()], outcome()) -> nothing | term().
unexpected(Table, Causes, Outcome) ->
    Expected = case Outcome of
                   {badarg, {cats, Cause}} -> unexpected(Table, Causes, {badarg, Cause}) =:= nothing;
                   {badarg, id} -> is_missed(Table);
                   {badarg, access} -> not has(public, Table);
                   {badarg, Cause} -> lists:member(Cause, Causes);
                   system_limit -> has(limited, Table);
                   %% Others changed the object too often.
                   {raised, error, {conflict, _}, _} -> true;
                   _ -> false
               end,
    case Expected of
        true -> nothing;
        false -> {failed, Outcome}
    end.

%% @doc Whether a table may be gone, and is.
-spec is_dead(cats_storm_tables:table()) -> boolean().
is_dead(#{tid := Tid} = Table) -> has(wild, Table) andalso cats:info(Tid, id) =:= undefined.

%% Whether a call may have found no such table: it is dead, or has another name by now.
is_missed(Table) -> is_dead(Table) orelse has(renamed, Table).

%% @doc What is wrong with objects that were read.
-spec wrong_objects(cats_storm_tables:table(), [tuple()]) -> nothing | term().
wrong_objects(Table, [Object | Objects]) ->
    case wrong(Table, Object) of
        nothing -> wrong_objects(Table, Objects);
        Wrong -> Wrong
    end;
wrong_objects(_Table, []) -> nothing;
wrong_objects(_Table, Other) -> {no_list, Other}.

%% @doc What is wrong with all objects of a key.
-spec wrong_objects(cats_storm_tables:table(), Key :: term(), [tuple()]) -> nothing | term().
wrong_objects(#{type := Type} = Table, Key, Objects) ->
    Other = [Object || Object <- Objects, case Type of
                                              ordered_set -> element(maps:get(keypos, Table), Object) /= Key;
                                              _ -> element(maps:get(keypos, Table), Object) =/= Key
                                          end],
    case length(Objects) < 2 orelse has(bag_like, Table) of
        true when Other =:= [] -> wrong_objects(Table, Objects);
        true -> {other_keys, Other};
        false -> {too_many, Objects}
    end.

%%% The calls

calls() ->
    Set = [set_like],
    Ordered = [ordered],
    Statistics = [order_statistics],
    Expiring = [expiring],
    [{12, insert, [], fun(T) -> [object(T, shared_key())] end, true(), []},
     {6, insert, [], fun(T) -> [some_objects(T)] end, true(), []},
     {4, insert, Expiring, fun(T) -> [object(T, shared_key()), #{ttl => lifetime()}] end, true(), []},
     {6, insert_new, [], fun(T) -> [one_of([object(T, shared_key()), some_objects(T)])] end, boolean(), []},
     {3, insert_many, [], fun(T) -> [some_objects(T)] end, true(), []},
     {10, lookup, [], key(), objects(), []},
     {3, lookup_many, [], keys(), lists(), []},
     {5, lookup_elements, Set, fun(T) -> [shared_key(), elements(T)] end, fun wrong_elements/3, [badkey]},
     {3, lookup_element, Set, fun(T) -> [shared_key(), position(counter, T)] end, number(), [badkey]},
     {3, lookup_element, [], fun(T) -> [shared_key(), position(mark, T), {none, 0}] end,
      fun(_, _, _) -> nothing end, []},
     {3, member, [], key(), boolean(), []},
     {5, take, [], key(), objects(), []},
     {2, take_many, [], keys(), lists(), []},
     {6, delete, [], key(), true(), []},
     {2, delete_many, [], keys(), true(), []},
     {3, delete_object, [], fun(T) -> [found(T)] end, true(), []},
     {6, update_counter, Set, fun(T) -> [shared_key(), {position(counter, T), uniform(9) - 5}] end,
      number(), [badkey, none]},
     {4, update_counter, Set,
      fun(T) -> Key = shared_key(), [Key, {position(counter, T), 1, 1000, 0}, object(T, Key)] end, number(), [none]},
     {4, add, Set, fun(T) -> [shared_key(), {position(counter, T), one_of([1, -1, 2, 0.5, 1 bsl 70, -(1 bsl 70)])}] end,
      number(), [badkey]},
     {6, update_element, Set, fun(T) -> Key = shared_key(), [Key, new_value(T, Key)] end, boolean(), []},
     {4, update_element, Set, fun(T) -> Key = shared_key(), [Key, new_value(T, Key), object(T, Key)] end, true(), []},
     {5, update, Set, fun(T) -> [shared_key(), change(T)] end, fun(_, _, _) -> nothing end, []},
     {3, update, Set, fun(T) -> Key = shared_key(), [Key, change(T), object(T, Key)] end,
      fun(_, _, _) -> nothing end, []},
     {4, replace, Set, fun(T) -> Old = found(T), [Old, object(T, cats_storm_values:key(T, Old))] end, boolean(), []},
     {4, touch, Expiring, fun(_) -> [shared_key(), lifetime()] end, boolean(), []},
     {3, ttl, Expiring, key(), fun wrong_time/3, []},
     {2, next_lookup, [], key(), step(), []},
     {2, prev_lookup, [], key(), step(), []},
     {1, first_lookup, [], fun(_) -> [] end, step(), []},
     {1, last_lookup, [], fun(_) -> [] end, step(), []},
     {1, next, [], key(), fun(_, _, _) -> nothing end, []},
     {1, slot, [{no, ordered}], fun(_) -> [uniform(256) - 1] end, any_objects(), []},
     {3, match_object, [], fun(T) -> [pattern(T, shared(), '_')] end, any_objects(), []},
     {3, match, [], fun(T) -> [pattern(T, shared(), '$1')] end,
      fun(_, _, Found) -> all_numbers(lists:append(Found)) end, []},
     {3, select, [], fun(T) -> [[{pattern(T, shared(), '$1'), [deep({'>', '$1', uniform(100)})], ['$_']}]] end,
      any_objects(), []},
     {1, select_reverse, [], fun(T) -> [[{pattern(T, shared(), '_'), [deep(true)], ['$_']}]] end, any_objects(), []},
     {2, select_count, [],
      fun(T) -> [[{pattern(T, shared(), '$1'), [deep({'<', '$1', uniform(100)})], [true]}]] end, count(), []},
     {2, select_delete, [],
      fun(T) -> [[{pattern(T, shared(), '$1'), [deep({'>', '$1', 50 + uniform(50)})], [true]}]] end, count(), []},
     {2, match_delete, [], fun(T) -> [pattern(T, {shared, uniform(50)}, uniform(100))] end, true(), []},
     {2, select_replace, Set, fun replacement/1, count(), []},
     {2, rank, Statistics, key(), count(), []},
     {2, nth, Statistics, fun(_) -> [uniform(200) - 100] end,
      fun(_, _, '$end_of_table') -> nothing; (T, _, Object) -> wrong(T, Object) end, []},
     {2, count, Statistics, fun(_) -> [shared_key(), shared_key()] end, count(), []},
     {3, range, Ordered,
      fun(_) -> [#{one_of([from, above]) => shared_key(), order => one_of([ascending, descending])}, uniform(50)] end,
      fun(T, [_, Limit], Objects) when length(Objects) =< Limit -> wrong_objects(T, Objects); (_, _, _) -> too_many end,
      []},
     {2, safe_fixtable, [], fun(_) -> [chance(50)] end, true(), [none]},
     {2, info, [], fun(_) -> [] end, fun wrong_information/3, []},
     {3, info, [], fun(_) -> [size] end, fun wrong_size/3, []},
     {2, info, [],
      fun(_) -> [one_of([memory, binary, owner, heir, name, fixed, safe_fixed, stats, base_nodes, notify])] end,
      fun(_, _, _) -> nothing end, []},
     {1, stats, [], fun(_) -> [] end, fun(_, _, _) -> nothing end, []},
     {1, contention, [], fun(_) -> [] end, fun(_, _, _) -> nothing end, [no_contention]}].

%%% Arguments

key() -> fun(_Table) -> [shared_key()] end.
keys() -> fun(_Table) -> [[shared_key() || _ <- lists:seq(1, uniform(20))]] end.

%% A pattern for keys that all processes write.
shared() -> one_of([{shared, '_'}, {shared, uniform(20)}, one_of(cats_oracle_terms:small())]).

%% A bag grows by each of them, and every walk reads it all. So one that is large gets none.
some_objects(#{tid := Tid} = Table) ->
    Most = case has(bag_like, Table) andalso cats:info(Tid, size) of
               false -> 100;
               Size when is_integer(Size), Size > 10000 -> 0;
               _ -> 10
           end,
    [object(Table, shared_key()) || _ <- lists:seq(1, min(Most, one_of([1, 3, 10, Most])))].

elements(Table) -> [position(Element, Table) || Element <- [value, mark, counter]] ++ [maps:get(keypos, Table)].

new_value(Table, Key) ->
    {Value, Mark} = value(Table, Key),
    [{position(value, Table), Value}, {position(mark, Table), Mark}].

%% What update/3 does to an object.
change(Table) ->
    case uniform(5) of
        1 -> fun(_) -> delete end;
        2 -> fun(_) -> keep end;
        _ -> fun(Object) ->
                     Key = cats_storm_values:key(Table, Object),
                     cats_storm_values:object(Table, Key, cats_storm_values:counter(Table, Object))
             end
    end.

%% An object that is in the table, or one that is not.
found(#{tid := Tid} = Table) ->
    Key = shared_key(),
    case outcome(fun() -> cats:lookup(Tid, Key) end) of
        {returned, [_ | _] = Objects} -> one_of(Objects);
        _ -> object(Table, Key)
    end.

lifetime() -> one_of([1, 2, 10, 100, 5000, infinity]).

%% Adds to the counters of some objects.
replacement(#{keypos := Keypos} = Table) ->
    Kept = list_to_tuple([{element, Place, '$_'} || Place <- [1, 2, 3, 4]]),
    Body = setelement(position(counter, Table), Kept, {'+', '$1', 1}),
    {element, Keypos, '$_'} = element(Keypos, Body),
    [[{pattern(Table, shared(), '$1'), [deep({'<', '$1', uniform(100)})], [{Body}]}]].

%%% What is wrong with results

is(Wanted) -> fun(_, _, Result) -> case Wanted(Result) of true -> nothing; false -> result end end.
true() -> is(fun(Result) -> Result =:= true end).
boolean() -> is(fun erlang:is_boolean/1).
number() -> is(fun erlang:is_number/1).
count() -> is(fun(Result) -> is_integer(Result) andalso Result >= 0 end).
any_objects() -> fun(Table, _, Objects) -> wrong_objects(Table, Objects) end.
objects() -> fun(Table, [Key], Objects) -> wrong_objects(Table, Key, Objects) end.

lists() ->
    fun(Table, [Keys], Lists) when length(Keys) =:= length(Lists) ->
            first_wrong([wrong_objects(Table, Key, Objects) || {Key, Objects} <- lists:zip(Keys, Lists)]);
       (_, _, _) -> length
    end.

first_wrong(Found) ->
    case [Wrong || Wrong <- Found, Wrong =/= nothing] of
        [] -> nothing;
        [First | _] -> First
    end.

step() ->
    fun(_, _, '$end_of_table') -> nothing;
       (Table, _, {Key, [_ | _] = Objects}) -> wrong_objects(Table, Key, Objects);
       (_, _, _) -> step
    end.

wrong_elements(Table, _Arguments, [Value, Mark, Counter, Key]) when is_number(Counter) ->
    cats_storm_values:wrong(Table, Key, Value, Mark);
wrong_elements(_Table, _Arguments, _Result) -> elements.

all_numbers(Found) -> case lists:all(fun erlang:is_number/1, Found) of true -> nothing; false -> numbers end.

wrong_time(_Table, _Arguments, Time) when is_integer(Time), Time > 0 -> nothing;
wrong_time(_Table, _Arguments, Time) when Time =:= infinity; Time =:= undefined -> nothing;
wrong_time(_Table, _Arguments, _Time) -> time.

wrong_size(Table, _Arguments, undefined) -> case is_missed(Table) of true -> nothing; false -> undefined end;
wrong_size(#{options := Options}, _Arguments, Size) when is_integer(Size), Size >= 0 ->
    case proplists:get_value(limit, Options) of
        {objects, Limit} when Size > Limit -> {limit, Limit};
        _ -> nothing
    end;
wrong_size(_Table, _Arguments, _Size) -> size.

wrong_information(Table, _Arguments, undefined) -> wrong_size(Table, [], undefined);
wrong_information(#{tid := Tid, type := Type, keypos := Keypos}, _Arguments, Items) ->
    case [proplists:get_value(Item, Items) || Item <- [id, type, keypos]] of
        [Tid, Type, Keypos] -> nothing;
        _ -> information
    end.
