%% @hidden
%% What a transaction shall write: for each key of each table, the objects that it shall have.
%%
%% Two keys are the same here if they are the same in their table, because the VM compares them as the table does. An
%% `ordered_set' has the order of terms, so its keys are in a search tree of that order. The keys of a `set' are those
%% of a map.
-module(cats_writes).

-export([none/0, put/3, find/4, all/1, in_order/2]).

-export_type([writes/0, write/0]).

%% More writes than this are not a list. Few of them cost less as a list, to make and to search.
-define(FEW, 8).

-type write() :: {reference(), Key :: term(), [Object :: tuple()]}.
%% The objects that a key shall have: none or one.

-opaque writes() :: [write()] | #{reference() => of_table()}.

-type of_table() :: {set, #{Key :: term() => write()}} | {ordered_set, gb_trees:tree(Key :: term(), write())}.

%% @doc Nothing is written.
-spec none() -> writes().
none() -> [].

%% @doc Adds a write, in place of the one for the same key. The function tells the types of tables.
-spec put(write(), fun((reference()) -> cats:table_type()), writes()) -> writes().
put({Tid, Key, _} = Write, TypeOf, Writes) when is_list(Writes) ->
    case length(Writes) < ?FEW andalso find(Tid, TypeOf(Tid), Key, Writes) of
        none -> [Write | Writes];
        _ -> put(Write, TypeOf, lists:foldr(fun(Old, Tables) -> put_in_table(Old, TypeOf, Tables) end, #{}, Writes))
    end;
put(Write, TypeOf, Writes) ->
    put_in_table(Write, TypeOf, Writes).

put_in_table({Tid, Key, _} = Write, TypeOf, Tables) ->
    OfTable = case Tables of
                  #{Tid := {set, Map}} -> {set, Map#{Key => Write}};
                  #{Tid := {ordered_set, Tree}} -> {ordered_set, gb_trees:enter(Key, Write, Tree)};
                  #{} ->
                      case TypeOf(Tid) of
                          set -> {set, #{Key => Write}};
                          ordered_set -> {ordered_set, gb_trees:enter(Key, Write, gb_trees:empty())}
                      end
              end,
    Tables#{Tid => OfTable}.

%% @doc The objects that a key of a table of this type shall have, if it is written.
-spec find(reference(), cats:table_type(), Key :: term(), writes()) -> [Object :: tuple()] | none.
find(_Tid, _Type, _Key, []) -> none;
find(Tid, ordered_set, Key, Writes) when is_list(Writes) -> find_equal(Tid, Key, Writes);
find(Tid, set, Key, Writes) when is_list(Writes) -> find_exactly(Tid, Key, Writes);
find(Tid, _Type, Key, Tables) ->
    case Tables of
        #{Tid := {set, #{Key := {_, _, Objects}}}} -> Objects;
        #{Tid := {ordered_set, Tree}} ->
            case gb_trees:lookup(Key, Tree) of
                {value, {_, _, Objects}} -> Objects;
                none -> none
            end;
        #{} -> none
    end.

find_equal(Tid, Key, [{Tid, Written, Objects} | _]) when Written == Key -> Objects;
find_equal(Tid, Key, [_ | Writes]) -> find_equal(Tid, Key, Writes);
find_equal(_Tid, _Key, []) -> none.

find_exactly(Tid, Key, [{Tid, Key, Objects} | _]) -> Objects;
find_exactly(Tid, Key, [_ | Writes]) -> find_exactly(Tid, Key, Writes);
find_exactly(_Tid, _Key, []) -> none.

%% @doc All writes.
-spec all(writes()) -> [write()].
all(Writes) when is_list(Writes) -> Writes;
all(Tables) -> lists:append([values(OfTable) || {_, OfTable} <- maps:to_list(Tables)]).

values({set, Map}) -> maps:values(Map);
values({ordered_set, Tree}) -> gb_trees:values(Tree).

%% @doc The writes to an `ordered_set', in the order of their keys.
-spec in_order(reference(), writes()) -> [write()].
in_order(Tid, Writes) when is_list(Writes) ->
    lists:sort(fun({_, A, _}, {_, B, _}) -> A =< B end, [Write || {Written, _, _} = Write <- Writes, Written =:= Tid]);
in_order(Tid, Tables) ->
    case Tables of
        #{Tid := OfTable} -> values(OfTable);
        #{} -> []
    end.
