%% Keys that one process alone writes, in kept tables. Whatever the others do, each of its calls gives what the same
%% call gives on a table of `ets' that holds these keys only. So a process reads its own last write, alone, in a
%% transaction and in a snapshot.
-module(cats_storm_own).

-import(cats_storm_values, [uniform/1, chance/1, one_of/1, object/2, value/2, position/2]).
-import(cats_storm_tables, [has/2, id/1]).
-import(cats_storm_calls, [outcome/1, unexpected/3]).

-export([first_wrong/1, operations/0, check/0]).

-define(KEYS, 2).

-spec operations() -> [cats_storm_calls:operation()].
operations() ->
    [{40, own_call, [kept], fun call/1},
     {6, own_transaction, [kept, transactions], fun transaction/1},
     {4, own_snapshot, [kept, snapshots], fun snapshot/1},
     {4, old_snapshots, [kept, snapshots], fun(_) -> old_snapshots() end},
     {2, own_state, [kept], fun state/1}].

%% @doc What is wrong with all own keys of the calling process.
-spec check() -> nothing | term().
check() ->
    first_wrong([fun() -> state(Table) end || Table <- cats_storm_tables:kept(kept)] ++ [fun old_snapshots/0]).

%% @doc The first that is wrong of what these find.
-spec first_wrong([fun(() -> nothing | term())]) -> nothing | term().
first_wrong([Check | Checks]) ->
    case Check() of
        nothing -> first_wrong(Checks);
        Wrong -> Wrong
    end;
first_wrong([]) -> nothing.

key() -> one_of(keys()).
keys() ->
    [{own, cats_storm_values:myself(), Twin} || Number <- lists:seq(1, ?KEYS), Twin <- cats_storm_values:twins(Number)].

%% The table of ets that holds the same.
model(#{place := Place, type := Type, keypos := Keypos}) ->
    case get({?MODULE, Place}) of
        undefined ->
            Model = ets:new(model, [Type, {keypos, Keypos}]),
            put({?MODULE, Place}, Model),
            Model;
        Model ->
            Model
    end.

%%% Calls

call(Table) ->
    Calls = [{Weight, {Function, Arguments}}
             || {Weight, Needs, Function, Arguments} <- calls(), cats_storm_tables:fits(Needs, Table)],
    {Function, Arguments} = cats_storm_worker:weighted(Calls),
    same(Table, Function, Arguments(Table)).

same(Table, Function, Arguments) ->
    cats_storm_worker:note({own, Function, Arguments}),
    Model = model(Table),
    case outcome(fun() -> apply(cats, Function, [id(Table) | deep(Arguments)]) end) of
        system_limit ->
            unexpected(Table, [], system_limit);
        Outcome ->
            Expected = outcome(fun() -> ets_model:call(Function, [Model | Arguments]) end),
            case {Outcome, Expected} of
                {Same, Same} -> nothing;
                {{badarg, _}, {badarg, _}} -> nothing;
                _ -> {own, Function, Arguments, Outcome, Expected}
            end
    end.

%% The conditions of a match specification may be deep for cats, but not for ets.
deep([[{Head, [Condition], Body}]]) -> [[{Head, [cats_storm_values:deep(Condition)], Body}]];
deep(Arguments) -> Arguments.

calls() ->
    Set = [set_like],
    [{10, [], insert, fun(T) -> [object(T, key())] end},
     {3, [], insert, fun(T) -> [some_objects(T)] end},
     {3, [], insert_new, fun(T) -> [one_of([object(T, key()), some_objects(T)])] end},
     {2, [{no, limited}], insert_many, fun(T) -> [some_objects(T)] end},
     {10, [], lookup, fun(_) -> [key()] end},
     {2, [], lookup_many, fun(_) -> [[key() || _ <- lists:seq(1, uniform(5))]] end},
     {2, [], lookup_element, fun(T) -> [key(), position(value, T)] end},
     {2, [], lookup_element, fun(T) -> [key(), position(counter, T), none] end},
     {2, Set, lookup_elements, fun(T) -> [key(), [position(mark, T), position(counter, T)]] end},
     {3, [], member, fun(_) -> [key()] end},
     {3, [], take, fun(_) -> [key()] end},
     {1, [], take_many, fun(_) -> [[key(), key()]] end},
     {3, [], delete, fun(_) -> [key()] end},
     {1, [], delete_many, fun(_) -> [[key(), key()]] end},
     {2, [], delete_object, fun(T) -> [found(T)] end},
     {5, Set, update_counter, fun(T) -> [key(), {position(counter, T), one_of([1, -1, 1 bsl 62])}] end},
     {4, Set, add, fun(T) -> [key(), {position(counter, T), one_of([1, -2, 0.5])}] end},
     {4, Set, update_element, fun(T) -> Key = key(), [Key, new_value(T, Key)] end},
     {2, Set, update_element, fun(T) -> Key = key(), [Key, new_value(T, Key), object(T, Key)] end},
     {3, Set, update, fun(T) -> Key = key(), [Key, change(T, Key)] end},
     {2, Set, update, fun(T) -> Key = key(), [Key, change(T, Key), object(T, Key)] end},
     {3, Set, replace, fun(T) -> Old = found(T), [Old, object(T, cats_storm_values:key(T, Old))] end},
     {2, [], match_object, fun(T) -> [cats_storm_values:pattern(T, key(), '_')] end},
     {2, [], select, fun(T) -> [[{cats_storm_values:pattern(T, key(), '$1'), [{'>', '$1', 50}], ['$_']}]] end},
     {2, [], select_count, fun(T) -> [[{cats_storm_values:pattern(T, key(), '$1'), [{'>', '$1', 50}], [true]}]] end},
     {2, [], select_delete, fun(T) -> [[{cats_storm_values:pattern(T, key(), '$1'), [{'>', '$1', 90}], [true]}]] end}].

some_objects(Table) -> [object(Table, key()) || _ <- lists:seq(1, uniform(8))].

new_value(Table, Key) ->
    {Value, Mark} = value(Table, Key),
    [{position(value, Table), Value}, {position(mark, Table), Mark}].

%% What update/3 does. The function is called for both tables, so it draws nothing.
change(Table, Key) ->
    one_of([fun(_) -> delete end, fun(_) -> keep end, returning(object(Table, Key)), returning(object(Table, Key))]).

returning(Object) -> fun(_) -> Object end.

%% An object that is there, or one that is not.
found(Table) ->
    Key = key(),
    case ets:lookup(model(Table), Key) of
        [_ | _] = Objects -> one_of(Objects);
        [] -> object(Table, Key)
    end.

%%% Transactions

%% Some steps, then the end or an abort. The model is changed where they are committed. What the function writes by
%% `cats' stays.
transaction(Table) ->
    Steps = [step(Table) || _ <- lists:seq(1, uniform(8))],
    Aborts = chance(20),
    %% A transaction that runs again writes it again.
    Outside = [object(Table, {own, cats_storm_values:myself(), outside})
               || not has(limited, Table), maps:get(type, Table) =/= duplicate_bag, chance(30)],
    {ReadsBefore, Long} = {chance(20), chance(30)},
    cats_storm_worker:note({own_transaction, Long, Steps, Aborts, Outside, ReadsBefore}),
    Run = fun() ->
                  Long andalso cats_storm_tables:read_much(Table),
                  [write_outside(Table, Object, ReadsBefore) || Object <- Outside],
                  Results = [carry_out(cats_transaction, id(Table), Step) || Step <- Steps],
                  Aborts andalso cats_transaction:abort({aborted, Results}),
                  Results
          end,
    Model = model(Table),
    Before = objects(Model),
    Outcome = cats_transaction:run(Run),
    Expected = [carry_out(ets, Model, Step) || Step <- Steps],
    Wrong = case Outcome of
                {atomic, Expected} ->
                    nothing;
                {aborted, {aborted, Expected}} when Aborts ->
                    back(Model, Before);
                {aborted, {conflict, _}} ->
                    back(Model, Before);
                {aborted, {system_limit, _}} ->
                    back(Model, Before),
                    unexpected(Table, [], system_limit);
                _ ->
                    {own_transaction, Steps, Aborts, Outcome, Expected}
            end,
    true = ets:insert(Model, Outside),
    Wrong.

%% It is part of what the transaction reads later, or else the transaction must not see it.
write_outside(Table, Object, ReadsBefore) ->
    Key = cats_storm_values:key(Table, Object),
    Before = [cats_transaction:read(id(Table), Key) || ReadsBefore],
    case outcome(fun() -> cats:insert(id(Table), Object) end) of
        {returned, true} -> ok;
        %% No other process may commit now. The first run has written it.
        {badarg, inside_transaction} -> cats_transaction:abort({conflict, outside})
    end,
    Read = cats_transaction:read(id(Table), Key),
    case Before of
        [Same] -> Read =:= Same;
        [] -> lists:member(Object, Read)
    end orelse exit({wrong, {outside, Read, Before}}).

back(Model, Objects) ->
    true = ets:delete_all_objects(Model),
    true = ets_model:call(insert, [Model, Objects]),
    nothing.

%% All objects of a model, those of each key in their order.
objects(Model) ->
    Position = ets:info(Model, keypos),
    Keys = maps:from_list([{element(Position, Object), known} || Object <- ets:tab2list(Model)]),
    lists:append([ets:lookup(Model, Key) || Key <- maps:keys(Keys)]).

step(Table) ->
    Key = key(),
    one_of([{read, Key}, {read, Key}, {member, Key}, {delete, Key}, {insert, object(Table, Key)},
            {insert, some_objects(Table)}, {delete_object, found(Table)}]).

carry_out(ets, Table, {read, Key}) -> ets:lookup(Table, Key);
carry_out(ets, Table, {Function, Argument}) -> ets_model:call(Function, [Table, Argument]);
carry_out(Module, Table, {Function, Argument}) -> Module:Function(Table, Argument).

%%% Snapshots

%% The snapshot has what this process has written. It is kept, and must have the same later.
snapshot(#{tid := Tid} = Table) ->
    cats_storm_worker:note(own_snapshot),
    case outcome(fun() -> cats:snapshot(Tid) end) of
        {returned, Snapshot} ->
            Known = case get(snapshots) of undefined -> []; Some -> Some end,
            put(snapshots,
                lists:sublist([{Snapshot, Table, [{Key, ets:lookup(model(Table), Key)} || Key <- keys()]} | Known],
                              uniform(4))),
            old_snapshots();
        Outcome ->
            unexpected(Table, [], Outcome)
    end.

old_snapshots() ->
    cats_storm_worker:note(old_snapshots),
    case get(snapshots) of
        undefined -> nothing;
        Snapshots -> first_wrong([fun() -> old_snapshot(Snapshot) end || Snapshot <- Snapshots])
    end.

old_snapshot({Snapshot, Table, Contents}) ->
    Keys = [Key || {Key, _} <- Contents],
    case outcome(fun() -> cats:lookup_many(Snapshot, Keys) end) of
        {returned, Found} ->
            case lists:zip(Keys, Found) of
                Contents -> nothing;
                Other -> {snapshot, Other, Contents}
            end;
        {badarg, snapshot_limit} = Outcome ->
            case has(short_snapshots, Table) of true -> nothing; false -> Outcome end;
        Outcome ->
            {snapshot, Outcome}
    end.

%%% All own keys

state(Table) ->
    cats_storm_worker:note(own_state),
    Model = model(Table),
    first_wrong([fun() -> same(Table, lookup, [Key]) end || Key <- keys()]
                ++ [fun() -> same_objects(Table, ets:tab2list(Model)) end]).

same_objects(#{tid := Tid} = Table, Expected) ->
    Pattern = cats_storm_values:pattern(Table, {own, cats_storm_values:myself(), '_'}, '_'),
    case outcome(fun() -> cats:match_object(Tid, Pattern) end) of
        {returned, Found} ->
            case lists:sort(Found) =:= lists:sort(Expected) of
                true -> nothing;
                false -> {own_state, Found, Expected}
            end;
        Outcome ->
            {own_state, Outcome}
    end.
