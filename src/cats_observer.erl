%% @doc What the tables of a node hold and who owns them, as rows that tools can read.
%%
%% OTP's `observer' does not know the tables of `cats'. A row holds what its table viewer shows of a table of
%% `ets', under the keys of `observer_backend:get_table_list/2'.
%%
%% Every function works in the calling process, step by step, so it stops no scheduler. It reads figures only, never
%% objects. The tables stay in use meanwhile: the figures of two tables, or two figures of one, are not of one
%% instant. Tables that are deleted meanwhile are left out.
%%
%% Functions fail with `{badarg, Argument}' when an argument or an option is invalid.
-module(cats_observer).
-export([growth/1, growth/2, i/1, tables/0, tables/1, tables/2]).

-export_type([options/0, row/0]).

-type options() :: #{sort => memory | size | name | owner, limit => non_neg_integer() | infinity}.
%% How to order the rows, and how many there are at most. Without options, all rows come by memory.
%%
%% <ul>
%% <li>`memory', `size': the largest first.</li>
%% <li>`name', `owner': in term order.</li>
%% </ul>
-type row() :: #{id := cats:tid(), name := atom(), named_table := boolean(), type := cats:table_type(),
                 protection := cats:table_access(), owner := pid() | undefined, reg_name := atom(),
                 heir := pid() | none | keep,
                 size := non_neg_integer(), memory := non_neg_integer(), keypos := pos_integer(),
                 compressed := boolean(), fixed := boolean(), engine := cats:engine(), growth => pos_integer()}.
%% A table. The keys are items of {@link cats:info/2}, with these differences:
%%
%% <ul>
%% <li>`memory' counts bytes, not words.</li>
%% <li>`owner' is `undefined' for a table that nobody owns, see {@link cats:claim/1}.</li>
%% <li>`reg_name' is the registered name of the owner, or `undefined'.</li>
%% <li>`growth' is in the rows of {@link growth/2} only.</li>
%% </ul>

%% @doc Returns a row for each table of this node, the largest memory first.
-spec tables() -> [row()].
tables() ->
    tables(#{}).

%% @doc Returns rows of the tables of this node. Costs `O(N log N)' for `N' tables. With a limit, only one figure
%% of the other tables is read.
-spec tables(options()) -> [row()].
tables(Options) ->
    {Sort, Limit} = checked(tables, Options, [memory, size, name, owner]),
    rows(lists:sort([{rank(Sort, Value), Tid} || {Tid, Value} <- figures(Sort)]), Limit).

%% @doc Returns rows of the tables of another node, as {@link tables/1} does. The other node sorts and limits them.
%% Fails as {@link erpc:call/4} does when the node cannot be reached, or does not have `cats'.
-spec tables(node(), options()) -> [row()].
tables(Node, Options) ->
    cats_remote:call(Node, ?MODULE, tables, [Options]).

%% @doc The same as {@link growth/2} without options.
-spec growth(Milliseconds :: non_neg_integer()) -> [row()].
growth(Milliseconds) ->
    growth(Milliseconds, #{}).

%% @doc Waits, and returns rows of the tables that have grown meanwhile, the largest growth first. By default,
%% `growth' counts bytes. With `sort => size' it counts objects. A table that was made meanwhile has grown from
%% nothing.
-spec growth(Milliseconds :: non_neg_integer(), #{sort => memory | size, limit => non_neg_integer() | infinity}) ->
          [row()].
growth(Milliseconds, Options) when is_integer(Milliseconds), Milliseconds >= 0 ->
    {Sort, Limit} = checked(growth, Options, [memory, size]),
    Before = maps:from_list(figures(Sort)),
    timer:sleep(Milliseconds),
    Grown = [{Then - Value, Tid} || {Tid, Value} <- figures(Sort), Then <- [maps:get(Tid, Before, 0)], Value > Then],
    Growth = maps:from_list([{Tid, -Rank} || {Rank, Tid} <- Grown]),
    [Row#{growth => maps:get(Id, Growth)} || #{id := Id} = Row <- rows(lists:sort(Grown), Limit)];
growth(Milliseconds, _Options) ->
    cats_options:refuse_argument(Milliseconds, "milliseconds of at least 0").

%% @doc Prints the tables of another node on this terminal, as {@link cats:i/0} does for this node. Fails as {@link
%% tables/2} does.
-spec i(node()) -> ok.
i(Node) ->
    cats_remote:call(Node, cats, i, []).

%% The item to sort by, and how many rows there may be.
checked(Function, Options, Sorts) when is_map(Options) ->
    maps:foreach(fun(sort, Sort) -> lists:member(Sort, Sorts) orelse cats_options:refuse(Function, {sort, Sort});
                    (limit, infinity) -> ok;
                    (limit, Limit) when is_integer(Limit), Limit >= 0 -> ok;
                    (Key, Value) -> cats_options:refuse(Function, {Key, Value})
                 end, Options),
    {maps:get(sort, Options, memory), maps:get(limit, Options, infinity)};
checked(Function, Options, _Sorts) ->
    cats_options:refuse(Function, Options).

%% An item of each table.
figures(Item) ->
    [{Tid, figure(Item, Value)}
     || Table <- cats:all(), Tid <- [cats:info(Table, id)], Tid =/= undefined,
        Value <- [cats:info(Tid, Item)], lives(Tid, [Value])].

%% Whether the table lived when these values were read. A living table may have the name `undefined'.
lives(Tid, Values) ->
    not lists:member(undefined, Values) orelse cats:info(Tid, id) =:= Tid.

figure(memory, Words) -> Words * erlang:system_info(wordsize);
figure(_Item, Value) -> Value.

rank(Item, Value) when Item =:= memory; Item =:= size -> -Value;
rank(_Item, Value) -> Value.

%% The rows of the first tables that are still there.
rows(_Ranked, 0) ->
    [];
rows([], _Limit) ->
    [];
rows([{_Rank, Tid} | Ranked], Limit) ->
    case row(Tid) of
        undefined -> rows(Ranked, Limit);
        Row -> [Row | rows(Ranked, less(Limit))]
    end.

less(infinity) -> infinity;
less(Limit) -> Limit - 1.

row(Tid) ->
    Items = [name, named_table, type, protection, owner, heir, size, memory, keypos, compressed, fixed, engine],
    Values = [cats:info(Tid, Item) || Item <- Items],
    case lives(Tid, Values) of
        true ->
            Row = maps:from_list(lists:zipwith(fun(Item, Value) -> {Item, figure(Item, Value)} end, Items, Values)),
            Row#{id => Tid, reg_name => registered_name(maps:get(owner, Row))};
        false ->
            undefined
    end.

registered_name(undefined) ->
    undefined;
registered_name(Pid) ->
    case process_info(Pid, registered_name) of
        {registered_name, Name} -> Name;
        _ -> undefined
    end.
