%% The parse transform behind `-include_lib("cats/include/ms_transform.hrl")'. It turns
%% `cats:fun2ms(fun(...) -> ... end)' into a match specification. It renames the call to `ets:fun2ms', which
%% ms_transform of stdlib replaces.
-module(cats_ms_transform).
-export([parse_transform/2]).

%% @private
-spec parse_transform([erl_parse:abstract_form() | erl_parse:form_info()], [compile:option()]) ->
          [erl_parse:abstract_form() | erl_parse:form_info()] | {error, list(), list()} | {warning, list(), list()}.
parse_transform(Forms, Options) ->
    ms_transform:parse_transform(rename(Forms), Options).

rename({call, Anno, {remote, Anno1, {atom, Anno2, cats}, {atom, Anno3, fun2ms}}, [Fun]}) ->
    {call, Anno, {remote, Anno1, {atom, Anno2, ets}, {atom, Anno3, fun2ms}}, [rename(Fun)]};
rename(Form) when is_tuple(Form) ->
    list_to_tuple(rename(tuple_to_list(Form)));
rename([Form | Forms]) ->
    [rename(Form) | rename(Forms)];
rename(Form) ->
    Form.
