%% Objects with a time of their own, under keys that one process writes once. When the time is over, no call finds the
%% object.
-module(cats_storm_times).

-import(cats_storm_values, [uniform/1, one_of/1, object/2, value/2, position/2]).
-import(cats_storm_tables, [id/1]).
-import(cats_storm_calls, [outcome/1, unexpected/3]).

-export([operations/0]).

-spec operations() -> [cats_storm_calls:operation()].
operations() -> [{6, brief, [expiring, public], fun brief/1}].

%% Looks for the last such object of this process in this table, if its time is over, and inserts another one.
brief(#{tid := Tid} = Table) ->
    Now = erlang:monotonic_time(millisecond),
    case get({?MODULE, Tid}) of
        {_Key, End} when Now < End -> nothing;
        {Key, _End} ->
            case look(Table, Key) of
                nothing -> renew(Table);
                Wrong -> Wrong
            end;
        undefined -> renew(Table)
    end.

look(Table, Key) ->
    {Function, Arguments, Nothing} = one_of(looks(Table, Key)),
    cats_storm_worker:note({brief, Function, Key}),
    case outcome(fun() -> apply(cats, Function, [id(Table) | Arguments]) end) of
        {returned, Nothing} -> nothing;
        {returned, Found} -> {brief, Function, Key, Found};
        Outcome -> unexpected(Table, [], Outcome)
    end.

looks(Table, Key) ->
    Pattern = cats_storm_values:pattern(Table, Key, '_'),
    [{lookup, [Key], []}, {member, [Key], false}, {lookup_many, [[Key]], [[]]}, {take, [Key], []},
     {match_object, [Pattern], []},
     {select_count, [[{Pattern, [], [true]}]], 0}, {lookup_element, [Key, position(counter, Table), nothing], nothing}].

%% An update leaves the object its time.
renew(#{tid := Tid} = Table) ->
    Key = {brief, cats_storm_values:myself(), uniform(1 bsl 58)},
    Time = uniform(5),
    Object = object(Table, Key),
    Update = one_of([fun() -> none end | updates(Table, Key, Object)]),
    cats_storm_worker:note({brief, insert, Object, Time}),
    case outcome(fun() -> cats:insert(Tid, Object, #{ttl => Time}) end) of
        {returned, true} ->
            put({?MODULE, Tid}, {Key, erlang:monotonic_time(millisecond) + Time + 1}),
            case outcome(Update) of
                {returned, _} -> nothing;
                %% The object is gone.
                {badarg, badkey} -> nothing;
                Outcome -> unexpected(Table, [], Outcome)
            end;
        Outcome ->
            unexpected(Table, [], Outcome)
    end.

updates(#{tid := Tid} = Table, Key, Object) ->
    {Value, Mark} = value(Table, Key),
    Other = object(Table, Key),
    [fun() -> cats:update_counter(Tid, Key, {position(counter, Table), 1}) end,
     fun() -> cats:add(Tid, Key, {position(counter, Table), 0.5}) end,
     fun() -> cats:update_element(Tid, Key, [{position(value, Table), Value}, {position(mark, Table), Mark}]) end,
     fun() -> cats:replace(Tid, Object, Other) end,
     fun() -> cats:update(Tid, Key, fun(_) -> Other end) end].
