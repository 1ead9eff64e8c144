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
%% Only modules that are compiled with the transform use `cats'. They cannot see `ets' tables made elsewhere.
%% `ets:fun2ms' stays, because `ms_transform' replaces it by a match specification. Either transform may come
%% first. Functions and types that `cats' lacks stay with `ets' too.
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
%% Write `cats' in such a place. Compiler option `nowarn_cats_transform', of a module or a project, disables the
%% warnings.
-module(cats_transform).
-export([parse_transform/2, format_error/1]).

%% Functions that take a module, a function and a list of arguments, with the position of the module.
-define(APPLYING,
        #{{erlang, apply, 3} => 1,
          {erlang, spawn, 3} => 1, {erlang, spawn, 4} => 2,
          {erlang, spawn_link, 3} => 1, {erlang, spawn_link, 4} => 2,
          {erlang, spawn_monitor, 3} => 1, {erlang, spawn_monitor, 4} => 2,
          {erlang, spawn_opt, 4} => 1, {erlang, spawn_opt, 5} => 2,
          {erlang, spawn_request, 3} => 1, {erlang, spawn_request, 4} => 1, {erlang, spawn_request, 5} => 2,
          {erlang, hibernate, 3} => 1,
          {proc_lib, spawn, 3} => 1, {proc_lib, spawn, 4} => 2,
          {proc_lib, spawn_link, 3} => 1, {proc_lib, spawn_link, 4} => 2,
          {proc_lib, spawn_opt, 4} => 1, {proc_lib, spawn_opt, 5} => 2,
          {timer, apply_after, 4} => 2, {timer, apply_interval, 4} => 2, {timer, apply_repeatedly, 4} => 2,
          {timer, tc, 3} => 1, {timer, tc, 4} => 1,
          {rpc, call, 4} => 2, {rpc, call, 5} => 2, {rpc, block_call, 4} => 2, {rpc, block_call, 5} => 2,
          {rpc, cast, 4} => 2, {rpc, async_call, 4} => 2, {rpc, multicall, 3} => 1, {rpc, multicall, 4} => 2,
          {rpc, multicall, 5} => 2, {rpc, eval_everywhere, 3} => 1, {rpc, eval_everywhere, 4} => 2,
          {erpc, call, 4} => 2, {erpc, call, 5} => 2, {erpc, cast, 4} => 2, {erpc, send_request, 4} => 2,
          {erpc, multicall, 4} => 2, {erpc, multicall, 5} => 2, {erpc, multicast, 4} => 2}).

%% Those of `erlang' among them that Erlang imports automatically.
-define(IMPORTED, [{apply, 3}, {spawn, 3}, {spawn, 4}, {spawn_link, 3}, {spawn_link, 4}, {spawn_monitor, 3},
                   {spawn_monitor, 4},
                   {spawn_opt, 4}, {spawn_opt, 5}, {spawn_request, 3}, {spawn_request, 4}, {spawn_request, 5}]).

-type forms() :: [erl_parse:abstract_form() | erl_parse:form_info()].

%% @private
-spec parse_transform(forms(), [compile:option()]) -> forms() | {warning, forms(), [Warnings]} when
      Warnings :: {file:filename(), [{erl_anno:location(), module(), Description :: term()}]}.
parse_transform(Forms, Options) ->
    Own = [{Name, Arity} || {function, _, Name, Arity, _} <- Forms],
    Imported = [Function || {attribute, _, import, {_, Functions}} <- Forms, Function <- Functions],
    Automatic = (?IMPORTED -- Own) -- Imported,
    Transformed = lists:flatmap(fun(Form) -> form(Form, Automatic) end, Forms),
    OwnOptions = lists:flatten([Some || {attribute, _, compile, Some} <- Forms]),
    case lists:member(nowarn_cats_transform, Options ++ OwnOptions) orelse warnings(Transformed, Automatic) of
        true -> Transformed;
        [] -> Transformed;
        Warnings -> {warning, Transformed, Warnings}
    end.

%% @private
-spec format_error(Description :: term()) -> string().
format_error(value) ->
    "ets is not replaced by cats where it is a value: a call with this module goes to ets";
format_error({function, Name}) ->
    lists:flatten(io_lib:format("ets is not replaced by cats in this module, function and arguments: ets:~tp is called", [Name])).

form({attribute, Anno, import, {ets, Functions}}, _Automatic) ->
    {Have, HaveNot} = lists:partition(fun({Name, Arity}) -> is_function_of_cats(Name, Arity) end, Functions),
    [{attribute, Anno, import, {Module, Some}} || {Module, [_ | _] = Some} <- [{cats, Have}, {ets, HaveNot}]];
form(Form, Automatic) ->
    [walk(Form, Automatic)].

walk({call, Anno, {remote, Anno1, {atom, Anno2, ets}, Name}, Arguments}, Automatic) ->
    Module = module(Name, length(Arguments)),
    {call, Anno, {remote, Anno1, {atom, Anno2, Module}, walk(Name, Automatic)}, walk(Arguments, Automatic)};
walk({call, Anno, {remote, Anno1, {atom, Anno2, dets}, {atom, Anno3, Name}}, [_, _] = Arguments}, Automatic)
  when Name =:= to_ets; Name =:= from_ets ->
    NewName = case Name of
                  to_ets -> dets_to_ets;
                  from_ets -> dets_from_ets
              end,
    {call, Anno, {remote, Anno1, {atom, Anno2, cats_convert}, {atom, Anno3, NewName}}, walk(Arguments, Automatic)};
walk({call, Anno, {remote, _, {atom, _, Module}, {atom, _, Name}} = Called, Arguments}, Automatic) ->
    {call, Anno, Called, applied({Module, Name, length(Arguments)}, walk(Arguments, Automatic))};
walk({call, Anno, {atom, _, Name} = Called, Arguments}, Automatic) ->
    WalkedArguments = walk(Arguments, Automatic),
    case lists:member({Name, length(Arguments)}, Automatic) of
        true -> {call, Anno, Called, applied({erlang, Name, length(Arguments)}, WalkedArguments)};
        false -> {call, Anno, Called, WalkedArguments}
    end;
walk({'fun', Anno, {function, {atom, Anno1, ets}, Name, Arity}}, Automatic) ->
    Module = case Arity of
                 {integer, _, Number} -> module(Name, Number);
                 _ -> cats
             end,
    {'fun', Anno, {function, {atom, Anno1, Module}, walk(Name, Automatic), walk(Arity, Automatic)}};
walk({remote_type, Anno, [{atom, Anno1, ets}, {atom, _, Name} = Type, Arguments]}, Automatic) ->
    Module = case is_type_of_cats(Name, length(Arguments)) of
                 true -> cats;
                 false -> ets
             end,
    {remote_type, Anno, [{atom, Anno1, Module}, Type, walk(Arguments, Automatic)]};
walk(Form, Automatic) when is_tuple(Form) ->
    list_to_tuple(walk(tuple_to_list(Form), Automatic));
walk([Form | Forms], Automatic) ->
    [walk(Form, Automatic) | walk(Forms, Automatic)];
walk(Form, _Automatic) ->
    Form.

%% The arguments of a function that takes a module, with ets replaced by cats.
applied(Function, Arguments) ->
    case ?APPLYING of
        #{Function := Place} ->
            {Before, [Module | Behind]} = lists:split(Place - 1, Arguments),
            case {Module, Behind} of
                {{atom, Anno, ets}, [{atom, _, Name}, List | _]} ->
                    Before ++ [{atom, Anno, module_of_list(Name, List)} | Behind];
                {{atom, Anno, ets}, _} ->
                    Before ++ [{atom, Anno, cats} | Behind];
                _ ->
                    Arguments
            end;
        _ ->
            Arguments
    end.

module_of_list(Name, List) ->
    case list_length(List, 0) of
        unknown -> cats;
        Length -> module({atom, 0, Name}, Length)
    end.

list_length({nil, _}, Length) -> Length;
list_length({cons, _, _, Tail}, Length) -> list_length(Tail, Length + 1);
list_length(_, _Length) -> unknown.

module({atom, _, fun2ms}, 1) ->
    ets;
module({atom, _, Name}, Arity) ->
    case is_function_of_cats(Name, Arity) of
        true -> cats;
        false -> ets
    end;
module(_Variable, _Arity) ->
    cats.

is_function_of_cats(module_info, _Arity) ->
    false;
is_function_of_cats(Name, Arity) ->
    {module, cats} = code:ensure_loaded(cats),
    erlang:function_exported(cats, Name, Arity).

%% The types that ets exports in any release.
is_type_of_cats(Name, 0) ->
    lists:member(Name, [tab, table, table_access, table_type, tid, match_pattern, match_spec, comp_match_spec,
                        compiled_match_spec]);
is_type_of_cats(_Name, _Arity) ->
    false.

%%------------------------------------------------------------------------------------------------------------
%% Warnings

warnings(Forms, Automatic) ->
    Dynamic = lists:any(fun(Form) -> has_dynamic(Form, Automatic) end, Forms),
    {_, Warnings} = lists:foldl(fun({attribute, _, file, {File, _}}, {_, Warnings}) ->
                                        {File, Warnings};
                                   (Form, {File, Warnings}) ->
                                        {File, [{File, [{erl_anno:location(Anno), ?MODULE, What}]}
                                                || {Anno, What} <- lists:reverse(left(Form)), Dynamic orelse What =/= value]
                                               ++ Warnings}
                                end, {"nofile", []}, Forms),
    lists:reverse(Warnings).

%% Whether a call has a module that is not literal, and a function name that ets may have.
has_dynamic({call, _, {remote, _, Module, Name}, Arguments} = Call, Automatic) ->
    may_be_ets(Module, Name, length(Arguments)) orelse is_dynamic_apply(Call, Automatic) orelse
        has_dynamic([Module, Name, Arguments], Automatic);
has_dynamic({call, _, {atom, _, _}, Arguments} = Call, Automatic) ->
    is_dynamic_apply(Call, Automatic) orelse has_dynamic(Arguments, Automatic);
has_dynamic({'fun', _, {function, Module, Name, Arity}}, _Automatic) when is_tuple(Module) ->
    may_be_ets(Module, Name, case Arity of {integer, _, Number} -> Number; _ -> any end);
has_dynamic({attribute, _, _, _}, _Automatic) ->
    false;
has_dynamic(Form, Automatic) when is_tuple(Form) ->
    has_dynamic(tuple_to_list(Form), Automatic);
has_dynamic([Form | Forms], Automatic) ->
    has_dynamic(Form, Automatic) orelse has_dynamic(Forms, Automatic);
has_dynamic(_Form, _Automatic) ->
    false.

is_dynamic_apply({call, _, {remote, _, {atom, _, Module}, {atom, _, Name}}, Arguments}, _Automatic) ->
    applies_dynamic({Module, Name, length(Arguments)}, Arguments);
is_dynamic_apply({call, _, {atom, _, Name}, Arguments}, Automatic) ->
    lists:member({Name, length(Arguments)}, Automatic)
        andalso applies_dynamic({erlang, Name, length(Arguments)}, Arguments);
is_dynamic_apply(_Call, _Automatic) ->
    false.

applies_dynamic(Function, Arguments) ->
    case ?APPLYING of
        #{Function := Place} ->
            case lists:nthtail(Place - 1, Arguments) of
                [Module, Name | _] -> may_be_ets(Module, Name, any);
                _ -> false
            end;
        _ ->
            false
    end.

may_be_ets({atom, _, _}, _Name, _Arity) -> false;
may_be_ets(_Module, {atom, _, Name}, Arity) -> is_function_of_ets(Name, Arity);
may_be_ets(_Module, _Name, _Arity) -> true.

is_function_of_ets(Name, any) ->
    lists:keymember(Name, 1, functions_of_ets());
is_function_of_ets(Name, Arity) ->
    lists:member({Name, Arity}, functions_of_ets()).

functions_of_ets() ->
    ets:module_info(exports) -- [{module_info, 0}, {module_info, 1}].

%% The places where `ets' remains as a value. In a pattern, a comparison, a map key or a table name it does no harm.
left({atom, Anno, ets}) -> [{Anno, value}];
left({attribute, _, record, {_, Fields}}) -> left(Fields);
left({attribute, _, _, _}) -> [];
left({clause, _, _Patterns, _Guards, Body}) -> left(Body);
left({match, _, _Pattern, Value}) -> left(Value);
left({maybe_match, _, _Pattern, Value}) -> left(Value);
left({Generator, _, _Pattern, Source})
  when Generator =:= generate; Generator =:= generate_strict; Generator =:= b_generate; Generator =:= b_generate_strict;
       Generator =:= m_generate; Generator =:= m_generate_strict ->
    left(Source);
left({op, _, _, Left, Right}) -> left(no_atom([Left, Right]));
left({record_field, _, _Name}) -> [];
left({record_field, _, _Name, Value}) -> left(Value);
left({record_field, _, Record, _, _Name}) -> left(Record);
left({record_index, _, _, _}) -> [];
left({map_field_assoc, _, Key, Value}) -> left(no_atom([Key]) ++ [Value]);
left({map_field_exact, _, Key, Value}) -> left(no_atom([Key]) ++ [Value]);
left({tuple, _, Elements}) -> named(Elements);
left({'fun', _, {function, Module, Name, Arity}}) -> left(no_atom([Module]) ++ [Name, Arity]);
left({call, _, {remote, _, Module, Name}, Arguments}) ->
    left(no_atom([Module, Name])) ++ arguments({Module, Name, length(Arguments)}, Arguments);
left({call, _, {atom, _, _} = Name, Arguments}) -> arguments({{atom, 0, erlang}, Name, length(Arguments)}, Arguments);
left(Form) when is_tuple(Form) -> left(tuple_to_list(Form));
left([Form | Forms]) -> left(Form) ++ left(Forms);
left(_) -> [].

no_atom(Forms) -> [Form || Form <- Forms, element(1, Form) =/= atom].

%% The places in the arguments of a call. The table argument of cats is a name. The argument of `memory' is no module.
%% The module of an applied function has been replaced already where cats has the function.
arguments({{atom, _, cats}, _, _}, [Table | Arguments]) ->
    left(no_atom([Table])) ++ left(Arguments);
arguments({{atom, _, Module}, {atom, _, memory}, 1}, [Argument]) when Module =:= erlang; Module =:= c ->
    left(no_atom([Argument]));
arguments({{atom, _, Module}, {atom, _, Name}, Arity}, Arguments) when is_map_key({Module, Name, Arity}, ?APPLYING) ->
    {Before, [Applied | Behind]} = lists:split(maps:get({Module, Name, Arity}, ?APPLYING) - 1, Arguments),
    left(Before) ++ left(no_atom([Applied])) ++ left(Behind);
arguments(_Function, Arguments) ->
    named(Arguments).

%% The places in a tuple or an argument list, which may hold a module, a function and its arguments in this order.
named([{atom, Anno, ets}, {atom, _, Name} = Function, Arguments | Forms]) ->
    case is_function_of_ets(Name, any) andalso lists:member(element(1, Arguments), [nil, cons, integer]) of
        true -> [{Anno, {function, Name}} | named([Arguments | Forms])];
        false -> [{Anno, value} | named([Function, Arguments | Forms])]
    end;
named([Form | Forms]) -> left(Form) ++ named(Forms);
named([]) -> [].
