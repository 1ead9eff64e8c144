%% Loops over one operation on objects: prepared keys or objects, a number of times.
-module(object_loads).
-export([rate/4, loop/4]).
-export_type([operation/0]).

-include("tables.hrl").

-type operation() :: lookup | member | insert | {lookup_element, Pos :: pos_integer()}
                   | {update_element, {Pos :: pos_integer(), Value :: term()}}
                   | {update_counter, Pos :: pos_integer()}.
%% `insert' is over objects, the others over keys.
-type work() :: {[Key :: term()] | [Object :: tuple()], Repeats :: pos_integer()}.

%% @doc Operations per second of one worker, or of several that do the same each.
-spec rate(operation(), ets | cats, Table :: term(), work() | [work()]) -> float().
rate(Operation, Tables, Table, Work) when is_list(Work) ->
    lists:sum([length(List) * Repeats || {List, Repeats} <- Work])
        / bench_workers:seconds([fun() -> loop(Operation, Tables, Table, Each) end || Each <- Work]);
rate(Operation, Tables, Table, Work) ->
    rate(Operation, Tables, Table, [Work]).

%% @doc Does the operations.
-spec loop(operation(), ets | cats, Table :: term(), work()) -> ok.
loop(_Operation, _Tables, _Table, {_List, 0}) ->
    ok;
loop(Operation, Tables, Table, {List, Repeats}) ->
    case Operation of
        lookup -> lookup(List, Tables, Table);
        member -> member(List, Tables, Table);
        insert -> insert(List, Tables, Table);
        {lookup_element, Pos} -> lookup_element(List, Tables, Table, Pos);
        {update_element, Update} -> update_element(List, Tables, Table, Update);
        {update_counter, Pos} -> update_counter(List, Tables, Table, {Pos, 1})
    end,
    loop(Operation, Tables, Table, {List, Repeats - 1}).

lookup([Key | Keys], Tables, Table) ->
    ?CALL(Tables, lookup(Table, Key)),
    lookup(Keys, Tables, Table);
lookup([], _, _) -> ok.

member([Key | Keys], Tables, Table) ->
    ?CALL(Tables, member(Table, Key)),
    member(Keys, Tables, Table);
member([], _, _) -> ok.

insert([Object | Objects], Tables, Table) ->
    ?CALL(Tables, insert(Table, Object)),
    insert(Objects, Tables, Table);
insert([], _, _) -> ok.

lookup_element([Key | Keys], Tables, Table, Pos) ->
    ?CALL(Tables, lookup_element(Table, Key, Pos)),
    lookup_element(Keys, Tables, Table, Pos);
lookup_element([], _, _, _) -> ok.

update_element([Key | Keys], Tables, Table, Update) ->
    ?CALL(Tables, update_element(Table, Key, Update)),
    update_element(Keys, Tables, Table, Update);
update_element([], _, _, _) -> ok.

update_counter([Key | Keys], Tables, Table, Update) ->
    ?CALL(Tables, update_counter(Table, Key, Update)),
    update_counter(Keys, Tables, Table, Update);
update_counter([], _, _, _) -> ok.
