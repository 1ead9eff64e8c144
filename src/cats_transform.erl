%% @doc A parse transform: a module that is written for `ets' uses `cats'.
%%
%% Put `-compile({parse_transform, cats_transform}).' into a module, or `{parse_transform, cats_transform}' into
%% the compiler options of a project. The transform then replaces `ets' by `cats' in these places:
%%
%% <ul>
%% <li>calls, as in `ets:insert(T, X)' and `ets:F(T)', and imported functions;</li>
%% <li>external funs, as in `fun ets:insert/2';</li>
%% <li>functions that take a module, a function and arguments, where the module is the literal `ets'. Examples are
%%     `apply(ets, F, Args)', `spawn(ets, F, Args)', `timer:apply_after(Time, ets, F, Args)' and `rpc:call(Node,
%%     ets, F, Args)';</li>
%% <li>types, as in `ets:tid()';</li>
%% <li>calls of `dets:to_ets/2' and `dets:from_ets/2'.</li>
%% </ul>
%%
%% Only modules that are compiled with the transform use `cats'. {@link cats_recompile} does the same to modules that
%% are compiled already. They cannot see `ets' tables made elsewhere. `ets:fun2ms' stays, because `ms_transform'
%% replaces it by a match specification. Either transform may come first. Functions and types that `cats' lacks stay
%% with `ets' too.
%%
%% == What the transform cannot replace ==
%%
%% The transform does not follow a module's name through values. The compiler warns where `ets' may still become
%% the module of a call:
%%
%% <ul>
%% <li>`ets' is a value, as in `Tables = ets', `#{tables => ets}' or `start(ets)'. This warning appears only in
%%     modules with calls such as `Tables:insert(T, X)' or `Tables:F(T)'.</li>
%% <li>A function of `ets' and a list or an arity follow it, as in `{ets, insert, [T, X]}' or `my_apply(ets,
%%     insert, [T, X])'.</li>
%% </ul>
%%
%% Messages do not count, such as `ets' in `Pid ! {ets, X}', and neither do keys, such as that in `[{ets, X}]' or
%% `maps:get(ets, Map)'.
%%
%% Write `cats' in such a place, or name the function by the option `calls', below. The warning has what to write there.
%% The compiler also warns where `ets' is traced, as in `dbg:tp(ets, insert, [])'. The compiler option
%% `nowarn_cats_transform', of a module or a project, disables the warnings.
%%
%% == Functions that take a module ==
%%
%% The compiler option `{cats_transform, [{calls, [{Module, Function, Arity, Position}]}]}' of a module or a project
%% names functions of your own that take a module, a function and arguments. `Position' is the place of the module among
%% the arguments. So `{my_rpc, call, 4, 2}' makes `my_rpc:call(Node, cats, insert, [T, X])' of
%% `my_rpc:call(Node, ets, insert, [T, X])'.
%%
%% == Tables that stay in ets ==
%%
%% Some tables belong to other programs, which keep them in `ets'. The compiler option
%% `{cats_transform, [{except, Exceptions}]}' of a module or a project names what stays as it is:
%%
%% <ul>
%% <li>`{Module, Function}' keeps the functions of this name, of any arity, in this module.</li>
%% <li>`{table, Name}' keeps every call whose table is the literal `Name', as in `ets:lookup(sys_dist, Node)'.</li>
%% <li>`{table, Module, Variable}' keeps every call in this module whose table is a variable of this name. So
%%     `{table, my_module, 'Store'}' keeps `ets:insert(Store, X)'.</li>
%% <li>`{call, {Module, Function, Arity}, EtsFunction, Places}' names a function that calls one of `ets' with its
%%     arguments at these places. A call of it becomes one of `ets' where the table is one of the above. So
%%     `{call, {my_tables, match, 3}, match_object, [2, 3]}' makes `ets:match_object(sys_dist, X)' of
%%     `my_tables:match(all, sys_dist, X)'.</li>
%% </ul>
-module(cats_transform).
-export([parse_transform/2, format_error/1]).

%% @private
-spec parse_transform(cats_forms:forms(), [compile:option()]) ->
          cats_forms:forms() | {warning, cats_forms:forms(), [cats_forms:place()]}.
parse_transform(Forms, Options) ->
    All = Options ++ lists:flatten([Some || {attribute, _, compile, Some} <- Forms]),
    Rules = cats_forms:rules([Option || {cats_transform, Some} <- All, Option <- Some]),
    Transformed = cats_forms:rewrite(Forms, Rules),
    case lists:member(nowarn_cats_transform, All)
        orelse cats_forms:places(Transformed, cats_forms:is_dynamic(Transformed, Rules), Rules) of
        true -> Transformed;
        [] -> Transformed;
        Warnings -> {warning, Transformed, Warnings}
    end.

%% @private
-spec format_error(cats_forms:description()) -> string().
format_error(value) ->
    "ets is not replaced by cats where it is a value: a call with this module goes to ets";
format_error({value, Call}) ->
    format_error(value) ++ unless(Call);
format_error(traced) ->
    "ets is not replaced by cats in what is traced: calls of cats are not seen";
format_error(macro) ->
    "ets is not replaced by cats in what this makes for its callers: code that uses it calls ets";
format_error(protocol) ->
    "Elixir consolidates this protocol from its own form: then its calls go to ets again";
format_error({function, Name}) ->
    lists:flatten(io_lib:format("ets is not replaced by cats in this module, function and arguments: ets:~tp is called",
                                [Name]));
format_error({function, Name, Call}) ->
    format_error({function, Name}) ++ unless(Call).

unless(Call) ->
    lists:flatten(io_lib:format(", unless the option {calls, [~0tp]} names this function", [Call])).
