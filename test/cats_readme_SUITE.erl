%% The Erlang example of README.md does what it says.
-module(cats_readme_SUITE).
-export([all/0, erlang_example/1]).

all() ->
    [erlang_example].

erlang_example(_Config) ->
    Root = filename:dirname(filename:dirname(proplists:get_value(source, module_info(compile)))),
    {ok, Readme} = file:read_file(filename:join(Root, "README.md")),
    {match, [Example]} = re:run(Readme, "```erlang\n(.*?cats:new.*?)```", [dotall, {capture, all_but_first, list}]),
    {ok, Tokens, _} = erl_scan:string(Example),
    {ok, Expressions} = erl_parse:parse_exprs(Tokens),
    {value, true, _} = erl_eval:exprs(Expressions, []),
    true = cats:delete(log).
