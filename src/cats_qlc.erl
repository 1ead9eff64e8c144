%% Query handles of qlc for tables.
-module(cats_qlc).
-export([table/2]).

%% @private
-spec table(cats:table(), term()) -> qlc:query_handle().
table(Table, Options) ->
    Called = [Table, Options],
    OptionList = list(Options),
    _ = try length(OptionList) catch error:badarg -> refuse(none, Called) end,
    Traverse = option(traverse, OptionList, Called),
    Number = option(n_objects, OptionList, Called),
    Tid = tid(Table, Called),
    Others = lists:keydelete(n_objects, 1, lists:keydelete(traverse, 1, OptionList)),
    _ = [is_option(Option) orelse refuse({invalid_option, Option}, Called) || Option <- Others],
    qlc:table(traversal(Traverse, Tid, Number),
              [{pre_fun, fun(_) -> cats:safe_fixtable(Tid, true) end},
               {post_fun, fun() -> cats:safe_fixtable(Tid, false) end},
               {info_fun, fun(Item) -> info(Tid, Item) end},
               {format_fun, fun(What) -> format(What, Tid, Options) end},
               {key_equality, key_equality(Tid)},
               {lookup_fun, lookup(Traverse, Tid)} | Others]).

list(Options) when is_list(Options) -> Options;
list(Option) -> [Option].

-spec refuse(Cause :: term(), Called :: [term()]) -> no_return().
refuse(Cause, Called) ->
    cats_failure:fail(badarg, Cause, table, Called).

%% Whether qlc:table/2 accepts the option.
is_option(Option) ->
    try qlc:table(fun() -> [] end, [Option]) of
        _ -> true
    catch
        error:badarg -> false
    end.

tid(Name, Called) when is_atom(Name) ->
    case cats:whereis(Name) of
        undefined -> refuse(id, Called);
        Tid -> Tid
    end;
tid(Tid, _Called) ->
    Tid.

option(Key, Options, Called) ->
    case lists:keyfind(Key, 1, Options) of
        false when Key =:= traverse -> select;
        {traverse, Method} when Method =:= select; Method =:= first_next; Method =:= last_prev -> Method;
        {traverse, {select, MatchSpec}} -> {select, MatchSpec};
        false when Key =:= n_objects -> 100;
        {n_objects, default} -> 100;
        {n_objects, Number} when is_integer(Number), Number > 0 -> Number;
        Option -> refuse({invalid_option, Option}, Called)
    end.

traversal(first_next, Tid, _Number) -> fun() -> step(next, Tid, cats:first_lookup(Tid)) end;
traversal(last_prev, Tid, _Number) -> fun() -> step(prev, Tid, cats:last_lookup(Tid)) end;
traversal(select, Tid, Number) -> fun(MatchSpec) -> chunk(cats:select(Tid, MatchSpec, Number)) end;
traversal({select, MatchSpec}, Tid, Number) -> fun() -> chunk(cats:select(Tid, MatchSpec, Number)) end.

step(_Direction, _Tid, '$end_of_table') -> [];
step(next, Tid, {Key, Objects}) -> Objects ++ fun() -> step(next, Tid, cats:next_lookup(Tid, Key)) end;
step(prev, Tid, {Key, Objects}) -> Objects ++ fun() -> step(prev, Tid, cats:prev_lookup(Tid, Key)) end.

chunk('$end_of_table') -> [];
chunk({Objects, Continuation}) -> Objects ++ fun() -> chunk(cats:select(Continuation)) end.

info(Tid, num_of_objects) -> cats:info(Tid, size);
info(Tid, keypos) -> cats:info(Tid, keypos);
info(Tid, is_unique_objects) -> cats:info(Tid, type) =/= duplicate_bag;
info(Tid, is_sorted_key) -> cats:info(Tid, type) =:= ordered_set;
info(_Tid, _Item) -> undefined.

key_equality(Tid) ->
    case cats:info(Tid, type) of
        ordered_set -> '==';
        _ -> '=:='
    end.

%% The results of a match specification need not contain the key, so qlc must not look them up.
lookup({select, _MatchSpec}, _Tid) -> undefined;
lookup(_Traverse, Tid) -> fun(_Position, Keys) -> lists:flatmap(fun(Key) -> cats:lookup(Tid, Key) end, Keys) end.

%% The text of the table in qlc:info/1.
format({all, _Elements, _Element}, Tid, []) ->
    {cats, table, [Tid]};
format({all, _Elements, _Element}, Tid, Options) ->
    {cats, table, [Tid, Options]};
format({match_spec, MatchSpec}, Tid, Options) ->
    {cats, table, [Tid, [{traverse, {select, MatchSpec}} | list(Options)]]};
format({lookup, _Position, [Key], _Elements, Element}, Tid, _Options) ->
    io_lib:format("cats:lookup(~w, ~w)", [Tid, Element(Key)]);
format({lookup, _Position, Keys, _Elements, Element}, Tid, _Options) ->
    Formatted = [Element(Key) || Key <- Keys],
    io_lib:format("lists:flatmap(fun(Key) -> cats:lookup(~w, Key) end, ~w)", [Tid, Formatted]).
