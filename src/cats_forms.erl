%% @private
%% @doc Replaces `ets' by `cats' in the forms of a module, and finds the places that it cannot replace. The parse
%% transform and cats_recompile share it.
-module(cats_forms).
-export([rewrite/2, is_dynamic/2, places/3, rules/1]).
-export_type([forms/0, rules/0, description/0, place/0]).

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

%% Functions that take a pattern of functions to trace, with its position.
-define(TRACING,
        #{{erlang, trace_pattern, 2} => 1, {erlang, trace_pattern, 3} => 1, {trace, function, 4} => 2,
          {dbg, tp, 2} => 1, {dbg, tpl, 2} => 1, {dbg, ctp, 1} => 1, {dbg, ctpl, 1} => 1}).

%% Those of `erlang' among them that Erlang imports automatically.
-define(IMPORTED, [{apply, 3}, {spawn, 3}, {spawn, 4}, {spawn_link, 3}, {spawn_link, 4}, {spawn_monitor, 3},
                   {spawn_monitor, 4},
                   {spawn_opt, 4}, {spawn_opt, 5}, {spawn_request, 3}, {spawn_request, 4}, {spawn_request, 5},
                   {get, 1}, {put, 2}, {erase, 1}]).

%% Functions that take a key or a message, with its position. `ets' is no module there.
-define(NAMING,
        #{{erlang, get, 1} => 1, {erlang, put, 2} => 1, {erlang, erase, 1} => 1,
          {erlang, send, 2} => 2, {erlang, send, 3} => 2, {erlang, send_nosuspend, 2} => 2,
          {erlang, send_nosuspend, 3} => 2, {erlang, send_after, 3} => 3, {erlang, send_after, 4} => 3,
          {erlang, start_timer, 3} => 3, {erlang, start_timer, 4} => 3, {erlang, map_get, 2} => 1,
          {erlang, is_map_key, 2} => 1, {erlang, memory, 1} => 1, {c, memory, 1} => 1, {maps, get, 2} => 1,
          {maps, get, 3} => 1, {maps, find, 2} => 1, {maps, is_key, 2} => 1, {maps, put, 3} => 1,
          {maps, update, 3} => 1, {maps, update_with, 3} => 1, {maps, update_with, 4} => 1, {maps, remove, 2} => 1,
          {maps, take, 2} => 1, {proplists, get_value, 2} => 1, {proplists, get_value, 3} => 1,
          {proplists, get_bool, 2} => 1, {proplists, delete, 2} => 1, {proplists, get_all_values, 2} => 1,
          {proplists, is_defined, 2} => 1, {proplists, lookup, 2} => 1, {proplists, lookup_all, 2} => 1,
          {lists, keyfind, 3} => 1, {lists, keymember, 3} => 1, {lists, keydelete, 3} => 1, {lists, keytake, 3} => 1,
          {lists, keysearch, 3} => 1, {lists, keyreplace, 4} => 1, {lists, keystore, 4} => 1, {lists, member, 2} => 1,
          {lists, delete, 2} => 1, {persistent_term, get, 1} => 1, {persistent_term, get, 2} => 1,
          {persistent_term, put, 2} => 1, {persistent_term, erase, 1} => 1, {application, get_env, 2} => 2,
          {application, get_env, 3} => 2, {application, set_env, 3} => 2, {gen_server, call, 2} => 2,
          {gen_server, call, 3} => 2, {gen_server, cast, 2} => 2, {gen_server, reply, 2} => 2,
          {gen_server, send_request, 2} => 2, {gen_statem, call, 2} => 2, {gen_statem, call, 3} => 2,
          {gen_statem, cast, 2} => 2, {gen_event, notify, 2} => 2, {gen_event, sync_notify, 2} => 2,
          {'Elixir.Map', get, 2} => 2, {'Elixir.Map', get, 3} => 2, {'Elixir.Map', 'fetch!', 2} => 2,
          {'Elixir.Map', put, 3} => 2, {'Elixir.Map', put_new, 3} => 2, {'Elixir.Map', delete, 2} => 2,
          {'Elixir.Map', update, 4} => 2, {'Elixir.Keyword', get, 2} => 2, {'Elixir.Keyword', get, 3} => 2,
          {'Elixir.Keyword', fetch, 2} => 2, {'Elixir.Keyword', 'fetch!', 2} => 2, {'Elixir.Keyword', put, 3} => 2,
          {'Elixir.Keyword', delete, 2} => 2, {'Elixir.Keyword', 'has_key?', 2} => 2, {'Elixir.Keyword', pop, 2} => 2,
          {'Elixir.Keyword', pop, 3} => 2, {'Elixir.Access', get, 2} => 2, {'Elixir.Access', get, 3} => 2,
          {'Elixir.Access', fetch, 2} => 2, {'Elixir.GenServer', call, 2} => 2, {'Elixir.GenServer', call, 3} => 2,
          {'Elixir.GenServer', cast, 2} => 2, {'Elixir.GenServer', reply, 2} => 2, {'Elixir.Process', send, 3} => 2,
          {'Elixir.Process', send_after, 3} => 2, {'Elixir.Process', send_after, 4} => 2}).

-type forms() :: [erl_parse:abstract_form() | erl_parse:form_info()].
-type description() :: value | {value, cats_recompile:call()} | traced | macro | protocol | {function, atom()}
                     | {function, atom(), cats_recompile:call()}.
-type place() :: {file:filename(), [{erl_anno:location(), module(), description()}]}.

%% What the user has chosen: what stays with ets, and all functions that take a module, with its position.
-record(rules, {except :: [cats_recompile:exception()], applying :: #{mfa() => pos_integer()}}).
-opaque rules() :: #rules{}.

%% What the walk over a form must know:
%%   local      the modules of the functions that are called without one
%%   imported   the functions that the module imports from ets
%%   tables     the names of the tables that stay in ets
%%   variables  the variables that have such a table
%%   wrappers   the functions that call one of ets
%%   applying   the functions that take a module
-record(context, {local :: #{{atom(), arity()} => module()}, imported :: [{atom(), arity()}],
                  tables :: [atom()], variables :: [atom()],
                  wrappers :: #{mfa() => {Name :: atom(), Places :: [pos_integer()]}},
                  applying :: #{mfa() => pos_integer()}}).

%% @doc The forms with `ets' replaced, as the rules say. Replaced forms stay as they are.
-spec rewrite(forms(), rules()) -> forms().
rewrite(Forms, Rules) ->
    Context = context(Forms, Rules),
    lists:flatmap(fun(Form) ->
                          case is_excepted(Form, module_of(Forms), Rules) of
                              true -> [keep(Form, Context)];
                              false -> form(Form, Context)
                          end
                  end, Forms).

%% @doc Whether the module has calls whose module is not literal and may be `ets'.
-spec is_dynamic(forms(), rules()) -> boolean().
is_dynamic(Forms, Rules) ->
    Context = context(Forms, Rules),
    lists:any(fun(Form) -> has_dynamic(Form, Context) end, Forms).

%% @doc The places in rewritten forms where `ets' remains, as the compiler's warnings. Dynamic tells whether a value may
%% become the module of a call. Functions that are excepted have no places.
-spec places(forms(), Dynamic :: boolean(), rules()) -> [place()].
places(Forms, Dynamic, Rules) ->
    Module = module_of(Forms),
    Context = context(Forms, Rules),
    {_, Places} = lists:foldl(fun({attribute, _, file, {File, _}}, {_, Places}) ->
                                      {File, Places};
                                 (Form, {File, Places}) ->
                                      {File, [{File, [{erl_anno:location(Anno), cats_transform, What}]}
                                              || not is_excepted(Form, Module, Rules),
                                                 {Anno, What} <- lists:reverse(left(Form, Context)),
                                                 Dynamic orelse not is_value(What)]
                                             ++ Places}
                              end, {"nofile", []}, Forms),
    lists:reverse(Places).

%% @doc The rules in options of the forms `{except, Exceptions}' and `{calls, Calls}'.
-spec rules([term()]) -> rules().
rules(Options) ->
    #rules{except = checked(except, fun is_exception/1, bad_exception, Options),
           applying = lists:foldl(fun({Module, Name, Arity, Position}, Applying) ->
                                          Applying#{{Module, Name, Arity} => Position}
                                  end,
                                  ?APPLYING, checked(calls, fun is_call/1, bad_call, Options))}.

checked(Key, Is, Error, Options) ->
    All = lists:append(proplists:get_all_values(Key, Options)),
    [error({Error, Bad}) || Bad <- All, not Is(Bad)],
    All.

is_exception({Module, Name}) -> is_atom(Module) andalso is_atom(Name);
is_exception({table, Module, Variable}) -> is_atom(Module) andalso is_atom(Variable);
is_exception({call, {Module, Name, Arity}, Called, [_ | _] = Places}) ->
    is_atom(Module) andalso is_atom(Name) andalso is_integer(Arity) andalso is_atom(Called)
        andalso lists:all(fun(Place) -> is_integer(Place) andalso 1 =< Place andalso Place =< Arity end, Places);
is_exception(_) -> false.

is_call({Module, Name, Arity, Position}) ->
    is_atom(Module) andalso is_atom(Name) andalso is_integer(Arity) andalso is_integer(Position)
        andalso 1 =< Position andalso Position =< Arity;
is_call(_) ->
    false.

context(Forms, #rules{except = Exceptions, applying = Applying}) ->
    Module = module_of(Forms),
    Automatic = [{Function, erlang} || Function <- ?IMPORTED],
    Imported = [{Function, From} || {attribute, _, import, {From, Functions}} <- Forms, Function <- Functions],
    Own = [{{Name, Arity}, Module} || {function, _, Name, Arity, _} <- Forms],
    #context{local = maps:from_list(Automatic ++ Imported ++ Own),
             imported = [Function || {attribute, _, import, {ets, Functions}} <- Forms, Function <- Functions],
             tables = [Name || {table, Name} <- Exceptions],
             variables = [Variable || {table, In, Variable} <- Exceptions, In =:= Module],
             wrappers = maps:from_list([{Function, {Name, Places}} || {call, Function, Name, Places} <- Exceptions]),
             applying = Applying}.

module_of(Forms) ->
    case lists:keyfind(module, 3, [Form || {attribute, _, module, _} = Form <- Forms]) of
        {attribute, _, module, {Module, _Parameters}} -> Module;
        {attribute, _, module, Module} -> Module;
        false -> undefined
    end.

is_excepted({function, _, Name, _, _}, Module, #rules{except = Exceptions}) -> lists:member({Module, Name}, Exceptions);
is_excepted(_Form, _Module, _Rules) -> false.

%% A function that stays with ets. What it imports from there is named with its module, as the import may have become
%% one of cats.
keep({call, Anno, {atom, Anno1, Name}, Arguments}, Context) ->
    Kept = keep(Arguments, Context),
    case is_imported(Name, length(Arguments), Context) of
        true -> {call, Anno, {remote, Anno1, {atom, Anno1, ets}, {atom, Anno1, Name}}, Kept};
        false -> {call, Anno, {atom, Anno1, Name}, Kept}
    end;
keep({'fun', Anno, {function, Name, Arity}}, Context) ->
    case is_imported(Name, Arity, Context) of
        true -> {'fun', Anno, {function, {atom, Anno, ets}, {atom, Anno, Name}, {integer, Anno, Arity}}};
        false -> {'fun', Anno, {function, Name, Arity}}
    end;
keep(Form, Context) when is_tuple(Form) ->
    list_to_tuple(keep(tuple_to_list(Form), Context));
keep([Form | Forms], Context) ->
    [keep(Form, Context) | keep(Forms, Context)];
keep(Form, _Context) ->
    Form.

is_imported(Name, Arity, #context{imported = Imported}) -> lists:member({Name, Arity}, Imported).

%% The module of a function that is called without one, where it matters.
local_module(Name, Arity, #context{local = Local}) -> maps:get({Name, Arity}, Local, undefined).

%% Whether the table in these arguments of a function of ets is one that stays there.
stays({atom, _, Name}, Arguments, Context) when Name =:= foldl; Name =:= foldr ->
    length(Arguments) =:= 3 andalso table_stays(lists:last(Arguments), Context);
stays(_Function, [Table | _], Context) ->
    table_stays(Table, Context);
stays(_Function, [], _Context) ->
    false.

table_stays({atom, _, Table}, #context{tables = Tables}) -> lists:member(Table, Tables);
table_stays({var, _, Variable}, #context{variables = Variables}) -> lists:member(Variable, Variables);
table_stays(_Table, _Context) -> false.

form({attribute, Anno, import, {ets, Functions}}, _Context) ->
    {Have, HaveNot} = lists:partition(fun({Name, Arity}) -> is_function_of_cats(Name, Arity) end, Functions),
    [{attribute, Anno, import, {Module, Some}} || {Module, [_ | _] = Some} <- [{cats, Have}, {ets, HaveNot}]];
form(Form, Context) ->
    [walk(Form, Context)].

walk({call, Anno, {remote, Anno1, {atom, Anno2, ets}, Name}, Arguments}, Context) ->
    Module = case stays(Name, Arguments, Context) of
                 true -> ets;
                 false -> module(Name, length(Arguments))
             end,
    {call, Anno, {remote, Anno1, {atom, Anno2, Module}, walk(Name, Context)}, walk(Arguments, Context)};
walk({call, Anno, {remote, Anno1, {atom, Anno2, dets}, {atom, Anno3, Name}}, [_, Table] = Arguments}, Context)
  when Name =:= to_ets; Name =:= from_ets ->
    {NewModule, NewName} = case table_stays(Table, Context) of
                               true -> {dets, Name};
                               false when Name =:= to_ets -> {cats_convert, dets_to_ets};
                               false -> {cats_convert, dets_from_ets}
                           end,
    {call, Anno, {remote, Anno1, {atom, Anno2, NewModule}, {atom, Anno3, NewName}}, walk(Arguments, Context)};
walk({call, Anno, {remote, Anno1, {atom, Anno2, Module}, {atom, Anno3, Name}} = Called, Arguments}, Context) ->
    Function = {Module, Name, length(Arguments)},
    Walked = walk(Arguments, Context),
    case wrapped(Function, Arguments, Context) of
        {Of, Places} ->
            {call, Anno, {remote, Anno1, {atom, Anno2, ets}, {atom, Anno3, Of}},
             [lists:nth(Place, Walked) || Place <- Places]};
        none -> {call, Anno, Called, applied(Function, Walked, Context)}
    end;
walk({call, Anno, {atom, Anno1, Name} = Called, Arguments}, Context) ->
    Walked = walk(Arguments, Context),
    Arity = length(Arguments),
    case is_imported(Name, Arity, Context) andalso stays({atom, Anno1, Name}, Arguments, Context) of
        true -> {call, Anno, {remote, Anno1, {atom, Anno1, ets}, Called}, Walked};
        false -> {call, Anno, Called, applied({local_module(Name, Arity, Context), Name, Arity}, Walked, Context)}
    end;
walk({'fun', Anno, {function, {atom, Anno1, ets}, Name, Arity}}, Context) ->
    Module = case Arity of
                 {integer, _, Number} -> module(Name, Number);
                 _ -> cats
             end,
    {'fun', Anno, {function, {atom, Anno1, Module}, walk(Name, Context), walk(Arity, Context)}};
walk({remote_type, Anno, [{atom, Anno1, ets}, {atom, _, Name} = Type, Arguments]}, Context) ->
    Module = case is_type_of_cats(Name, length(Arguments)) of
                 true -> cats;
                 false -> ets
             end,
    {remote_type, Anno, [{atom, Anno1, Module}, Type, walk(Arguments, Context)]};
walk(Form, Context) when is_tuple(Form) ->
    list_to_tuple(walk(tuple_to_list(Form), Context));
walk([Form | Forms], Context) ->
    [walk(Form, Context) | walk(Forms, Context)];
walk(Form, _Context) ->
    Form.

%% The function of ets that is called by another function with a table that stays there, and the places of its
%% arguments.
wrapped(Function, Arguments, #context{wrappers = Wrappers} = Context) ->
    case Wrappers of
        #{Function := {Name, Places}} ->
            case stays({atom, 0, Name}, [lists:nth(Place, Arguments) || Place <- Places], Context) of
                true -> {Name, Places};
                false -> none
            end;
        _ ->
            none
    end.

%% The arguments of a function that takes a module, with ets replaced by cats.
applied(Function, Arguments, #context{applying = Applying} = Context) ->
    case Applying of
        #{Function := Place} ->
            {Before, [Module | Behind]} = lists:split(Place - 1, Arguments),
            case {Module, Behind} of
                {{atom, Anno, ets}, [{atom, _, Name}, List | _]} ->
                    Before ++ [{atom, Anno, module_of_list(Name, List, Context)} | Behind];
                {{atom, Anno, ets}, _} ->
                    Before ++ [{atom, Anno, cats} | Behind];
                _ ->
                    Arguments
            end;
        _ ->
            Arguments
    end.

module_of_list(Name, List, Context) ->
    case {stays({atom, 0, Name}, elements(List), Context), list_length(List, 0)} of
        {true, _} -> ets;
        {false, unknown} -> cats;
        {false, Length} -> module({atom, 0, Name}, Length)
    end.

elements({cons, _, First, Rest}) -> [First | elements(Rest)];
elements(_) -> [].

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
%% Places that remain

%% Whether a call has a module that is not literal, and a function name that ets may have.
has_dynamic({call, _, {remote, _, Module, Name}, Arguments} = Call, Context) ->
    may_be_ets(Module, Name, length(Arguments)) orelse is_dynamic_apply(Call, Context) orelse
        has_dynamic([Module, Name, Arguments], Context);
has_dynamic({call, _, {atom, _, _}, Arguments} = Call, Context) ->
    is_dynamic_apply(Call, Context) orelse has_dynamic(Arguments, Context);
has_dynamic({'fun', _, {function, Module, Name, Arity}}, _Context) when is_tuple(Module) ->
    may_be_ets(Module, Name, case Arity of {integer, _, Number} -> Number; _ -> any end);
has_dynamic({attribute, _, _, _}, _Context) ->
    false;
has_dynamic(Form, Context) when is_tuple(Form) ->
    has_dynamic(tuple_to_list(Form), Context);
has_dynamic([Form | Forms], Context) ->
    has_dynamic(Form, Context) orelse has_dynamic(Forms, Context);
has_dynamic(_Form, _Context) ->
    false.

is_dynamic_apply({call, _, {remote, _, {atom, _, Module}, {atom, _, Name}}, Arguments}, Context) ->
    applies_dynamic({Module, Name, length(Arguments)}, Arguments, Context);
is_dynamic_apply({call, _, {atom, _, Name}, Arguments}, Context) ->
    Arity = length(Arguments),
    applies_dynamic({local_module(Name, Arity, Context), Name, Arity}, Arguments, Context);
is_dynamic_apply(_Call, _Context) ->
    false.

applies_dynamic(Function, Arguments, #context{applying = Applying}) ->
    case Applying of
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

is_value(value) -> true;
is_value({value, _Call}) -> true;
is_value(_What) -> false.

%% The places where `ets' remains as a value. In a pattern, a comparison, a map key or a table name it does no harm.
left({atom, Anno, ets}, _Context) -> [{Anno, value}];
left({attribute, _, record, {_, Fields}}, Context) -> left(Fields, Context);
left({attribute, _, _, _}, _Context) -> [];
left({clause, Anno, _Patterns, _Guards, Body}, Context) ->
    %% What Elixir quotes has no line. That of the clause is the next best.
    [{case erl_anno:line(Own) of 0 -> Anno; _ -> Own end, What} || {Own, What} <- left(Body, Context)];
left({match, _, _Pattern, Value}, Context) -> left(Value, Context);
left({maybe_match, _, _Pattern, Value}, Context) -> left(Value, Context);
left({Generator, _, _Pattern, Source}, Context)
  when Generator =:= generate; Generator =:= generate_strict; Generator =:= b_generate; Generator =:= b_generate_strict;
       Generator =:= m_generate; Generator =:= m_generate_strict ->
    left(Source, Context);
left({op, _, '!', To, Message}, Context) -> left(no_atom([To]), Context) ++ name(Message, Context);
left({op, _, _, Left, Right}, Context) -> left(no_atom([Left, Right]), Context);
left({record_field, _, _Name}, _Context) -> [];
left({record_field, _, _Name, Value}, Context) -> left(Value, Context);
left({record_field, _, Record, _, _Name}, Context) -> left(Record, Context);
left({record_index, _, _, _}, _Context) -> [];
left({map_field_assoc, _, Key, Value}, Context) -> left(no_atom([Key]) ++ [Value], Context);
left({map_field_exact, _, Key, Value}, Context) -> left(no_atom([Key]) ++ [Value], Context);
%% A pair in a list has a key.
left({cons, _, {tuple, _, [_, _]} = Pair, Rest}, Context) -> name(Pair, Context) ++ left(Rest, Context);
%% What Elixir has of a call in the result of a macro.
left({tuple, _, [{atom, _, '.'}, _Meta, {cons, _, {atom, Anno, ets}, _}]}, _Context) -> [{Anno, macro}];
left({tuple, _, Elements}, Context) ->
    named(Elements, fun(_Position, What) -> What end, Context);
left({'fun', _, {function, Module, Name, Arity}}, Context) -> left(no_atom([Module]) ++ [Name, Arity], Context);
left({call, _, {remote, _, Module, Name}, Arguments}, Context) ->
    left(no_atom([Module, Name]), Context) ++ arguments({Module, Name, length(Arguments)}, Arguments, Context);
left({call, _, {atom, Anno, Name} = Called, Arguments}, Context) ->
    Arity = length(Arguments),
    arguments({{atom, Anno, local_module(Name, Arity, Context)}, Called, Arity}, Arguments, Context);
left(Form, Context) when is_tuple(Form) -> left(tuple_to_list(Form), Context);
left([Form | Forms], Context) -> left(Form, Context) ++ left(Forms, Context);
left(_, _Context) -> [].

no_atom(Forms) -> [Form || Form <- Forms, element(1, Form) =/= atom].

%% The places in the arguments of a call. The table argument of cats is a name, and keys follow it.
%% The module of an applied function has been replaced already where cats has the function.
arguments({{atom, _, cats}, _, _}, Arguments, Context) ->
    lists:append([name(Argument, Context) || Argument <- Arguments]);
arguments({{atom, _, dbg}, _, _}, [{atom, Anno, ets} | Arguments], Context) ->
    [{Anno, traced} | left(Arguments, Context)];
arguments({{atom, _, Module}, {atom, _, Name}, Arity}, Arguments, #context{applying = Applying} = Context) ->
    Function = {Module, Name, Arity},
    case {?TRACING, ?NAMING, Applying} of
        {#{Function := Position}, _, _} -> at(Position, Arguments, fun traced/2, Context);
        {_, #{Function := Position}, _} -> at(Position, Arguments, fun name/2, Context);
        {_, _, #{Function := Position}} ->
            at(Position, Arguments, fun(Applied, _) -> left(no_atom([Applied]), Context) end, Context);
        _ when Module =/= undefined ->
            named(Arguments, fun(Position, What) -> with_call(What, {Module, Name, Arity, Position}) end, Context);
        _ -> named(Arguments, fun(_Position, What) -> What end, Context)
    end;
arguments(_Function, Arguments, Context) ->
    named(Arguments, fun(_Position, What) -> What end, Context).

%% The option `calls' may name this call.
with_call(value, Call) -> {value, Call};
with_call({function, Name}, Call) -> {function, Name, Call}.

%% The argument at the position has places of its own kind.
at(Position, Arguments, Places, Context) ->
    {Before, [Argument | Behind]} = lists:split(Position - 1, Arguments),
    left(Before, Context) ++ Places(Argument, Context) ++ left(Behind, Context).

%% The place in a pattern of functions to trace.
traced({tuple, _, [{atom, Anno, ets} | Rest]}, Context) -> [{Anno, traced} | left(Rest, Context)];
traced(Form, Context) -> left(Form, Context).

%% The places in a key or a message, where `ets' and a tuple that begins with it are just names.
name({atom, _, ets}, _Context) -> [];
name({tuple, _, [{atom, Anno, ets} | _]} = Tuple, Context) -> left(Tuple, Context) -- [{Anno, value}];
name(Form, Context) -> left(Form, Context).

%% The places in a tuple or an argument list, which may hold a module, a function and its arguments in this order.
%% `Describe' gets the position of the module and what is there.
named(Forms, Describe, Context) -> named(Forms, 1, Describe, Context).

named([{atom, Anno, ets} | Forms], Position, Describe, Context) ->
    What = case Forms of
               [{atom, _, Name}, Arguments | _] when element(1, Arguments) =:= nil; element(1, Arguments) =:= cons;
                                                     element(1, Arguments) =:= integer ->
                   case is_function_of_ets(Name, any) of
                       true -> {function, Name};
                       false -> value
                   end;
               _ ->
                   value
           end,
    [{Anno, Describe(Position, What)} | named(Forms, Position + 1, Describe, Context)];
named([Form | Forms], Position, Describe, Context) ->
    left(Form, Context) ++ named(Forms, Position + 1, Describe, Context);
named([], _Position, _Describe, _Context) ->
    [].
