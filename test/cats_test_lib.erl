%% What several suites need.
-module(cats_test_lib).
-export([ensure_proper/0, environment/2]).

%% @doc Makes PropEr usable. A PropEr compiled by an OTP too old for the running one (a distribution's package) is compiled
%% again, in memory, from the source in its debug information.
-spec ensure_proper() -> ok.
ensure_proper() ->
    #{level := Level} = logger:get_primary_config(),
    logger:set_primary_config(level, none),
    try
        load_proper()
    after
        logger:set_primary_config(level, Level)
    end.

load_proper() ->
    case code:ensure_loaded(proper_types) of
        {module, _} -> ok;
        {error, badfile} -> [recompile(File) || File <- beams(filename:dirname(code:which(proper_types)))], ok;
        {error, nofile} ->
            case filelib:wildcard("/usr/lib/erlang/lib/proper-*/ebin") of
                [Directory | _] -> true = code:add_pathz(Directory), load_proper();
                [] -> error(proper_is_not_installed)
            end
    end.

beams(Directory) ->
    filelib:wildcard(filename:join(Directory, "{proper,vararg}*.beam")).

recompile(File) ->
    {ok, {Module, [{abstract_code, {_, Forms}}]}} = beam_lib:chunks(File, [abstract_code]),
    {ok, Module, Binary} = compile:forms(Forms, []),
    {module, Module} = code:load_binary(Module, File, Binary).

%% @doc The number in the environment variable, or the default.
-spec environment(string(), number()) -> number().
environment(Name, Default) ->
    case os:getenv(Name) of
        Unset when Unset =:= false; Unset =:= "" -> Default;
        Value -> list_to_integer(Value)
    end.
