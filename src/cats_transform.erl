%% The parse transform that has a module use cats where it says ets.
%%
%% With `-compile({parse_transform, cats_transform})' in a module, or `{parse_transform, cats_transform}'
%% among the compiler options of a project, these become the same of cats:
%%   - calls, `ets:insert(T, X)' and with a variable name, `ets:F(T)'; imported functions;
%%   - external funs, `fun ets:insert/2';
%%   - the functions that take module, function and arguments, where they name ets literally: `apply(ets, F, Args)',
%%     `spawn(ets, F, Args)', `timer:apply_after(Time, ets, F, Args)', `rpc:call(Node, ets, F, Args)' and their kin;
%%   - types, `ets:tid()';
%%   - calls of `dets:to_ets/2' and `dets:from_ets/2'.
%% `ets:fun2ms' stays as it is: ms_transform turns it into a match specification, before or after this
%% transform. So do functions and types that cats does not have.
-module(cats_transform).
-export([parse_transform/2]).

%% Functions with a module, a function and a list of arguments among their arguments, and the place of the module.
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

%% Those of them that are called without their module.
-define(IMPORTED, [{apply, 3}, {spawn, 3}, {spawn, 4}, {spawn_link, 3}, {spawn_link, 4}, {spawn_monitor, 3},
                   {spawn_monitor, 4},
                   {spawn_opt, 4}, {spawn_opt, 5}, {spawn_request, 3}, {spawn_request, 4}, {spawn_request, 5}]).

-type forms() :: [erl_parse:abstract_form() | erl_parse:form_info()].

%% @private
-spec parse_transform(forms(), [compile:option()]) -> forms().
parse_transform(Forms, _Options) ->
    Own = [{Name, Arity} || {function, _, Name, Arity, _} <- Forms],
    Imported = [Function || {attribute, _, import, {_, Functions}} <- Forms, Function <- Functions],
    Automatic = (?IMPORTED -- Own) -- Imported,
    lists:flatmap(fun(Form) -> form(Form, Automatic) end, Forms).

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

%% The arguments of a function that takes a module, with cats for ets.
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
