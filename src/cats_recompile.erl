%% @doc Makes applications that are compiled already use `cats' in place of `ets'.
%%
%% {@link apps/3} takes the abstract code of each module from the debug information in its beam file. Erlang and Elixir
%% both write that. A beam file without debug information is compiled from its source, if that is there. The module
%% then changes as {@link cats_transform} says, and is compiled to a new beam file.
%%
%% ```
%% {ok, Modules, Warnings} = cats_recompile:apps([mnesia], "converted", [report]).
%% '''
%%
%% A VM that starts with `-pa converted/mnesia/ebin' loads the new files.
%%
%% == Where ets stays ==
%%
%% The warnings list each place where `ets' is passed as a value, is traced, or is called in a way that cats_recompile
%% does not follow. They look like those of the compiler. A place with `ets' as a value counts when one of the modules
%% has a call such as `Tables:insert(T, X)'. The options `calls', for functions that take a module, and `except', for tables that stay
%% in `ets', are described at {@link cats_transform}.
-module(cats_recompile).
-export([apps/2, apps/3, format_error/1]).
-export_type([app/0, option/0, exception/0, call/0, warning/0]).

-type app() :: atom() | file:name_all().
%% The name of an application in the code path, or the directory of one. The directory has a subdirectory `ebin'.
-type exception() :: {module(), Function :: atom()}
                   | {table, Name :: atom()}
                   | {table, module(), Variable :: atom()}
                   | {call, mfa(), EtsFunction :: atom(), Places :: [pos_integer()]}.
%% What stays with `ets', as {@link cats_transform} describes it.
-type call() :: {module(), Function :: atom(), arity(), Position :: pos_integer()}.
%% A function that takes a module, and the place of this argument, from 1. The name of a function and a list of arguments follow it.
-type option() :: report | {except, [exception()]} | {calls, [call()]}.
%% `report' prints the warnings and errors.
-type warning() :: {file:filename(), [{erl_anno:location(), module(), Description :: term()}]}.
%% A place, as the compiler describes it. The module's `format_error/1' makes a text of the description.

%% @equiv apps(Apps, OutDir, [])
-spec apps([app()], file:name_all()) -> {ok, [module()], [warning()]} | {error, [Reason :: term()]}.
apps(Apps, OutDir) ->
    apps(Apps, OutDir, []).

%% @doc Recompiles all modules of these applications for `cats'.
%%
%% The new application is `OutDir/Name/ebin', with its beam files and its `.app' file. Links lead to the other
%% directories of the original, such as `priv'. `OutDir' may be the directory that holds the originals under these
%% names. The new files then replace them.
%%
%% Nothing is written unless all modules can be recompiled. {@link format_error/1} describes the reasons of a failure.
-spec apps([app()], file:name_all(), [option()]) -> {ok, [module()], [warning()]} | {error, [Reason :: term()]}.
apps(Apps, Out, Options) ->
    OutDir = unicode:characters_to_list(Out),
    Rules = cats_forms:rules(Options),
    Found = [find(App) || App <- Apps],
    Read = [{Directory, Name, read(Beam)} || {ok, Directory, Name} <- Found, Beam <- beams(Directory)],
    Result = case [Reason || {error, Reason} <- Found] ++ [Reason || {_, _, {error, Reason}} <- Read] of
                 [] -> recompile(Found, [{Name, Module} || {_, Name, {ok, Module}} <- Read], OutDir, Rules);
                 Reasons -> {error, Reasons}
             end,
    _ = [report(Result) || proplists:get_bool(report, Options)],
    Result.

%% @doc A text for a reason of a failure.
-spec format_error(Reason :: term()) -> string().
format_error(Reason) ->
    lists:flatten(text(Reason)).

text({no_application, App}) ->
    io_lib:format("there is no application ~tp: give a name in the code path, or a directory with a subdirectory ebin", [App]);
text({no_code, File, Source}) ->
    io_lib:format("~ts has no debug information, and its source ~ts is missing", [File, Source]);
text({encrypted, File}) ->
    io_lib:format("the debug information of ~ts is encrypted", [File]);
text({no_backend, File, Backend}) ->
    io_lib:format("~ts needs the module ~tp, of the compiler that made it, in the code path", [File, Backend]);
text({bad_file, File, Reason}) ->
    io_lib:format("~ts cannot be read or written: ~tp", [File, Reason]);
text({not_compiled, File, Errors}) ->
    [io_lib:format("~ts cannot be compiled:", [File]) | messages(Errors)].

messages(Places) ->
    [io_lib:format("~n~ts:~ts ~ts", [File, location(Location), Module:format_error(Description)])
     || {File, Infos} <- Places, {Location, Module, Description} <- Infos].

location({Line, Column}) -> io_lib:format("~b:~b:", [Line, Column]);
location(Line) -> io_lib:format("~tp:", [Line]).

report({ok, _Modules, []}) -> ok;
report({ok, _Modules, Warnings}) -> io:put_chars(string:trim(messages(Warnings), leading) ++ "\n");
report({error, Reasons}) -> [io:format("cats_recompile: ~ts~n", [format_error(Reason)]) || Reason <- Reasons].

%%------------------------------------------------------------------------------------------------------------
%% Reading

find(App) ->
    Directory = case is_atom(App) andalso code:lib_dir(App) of
                    false -> unicode:characters_to_list(App);
                    {error, bad_name} -> "";
                    Found -> Found
                end,
    case filelib:is_dir(filename:join(Directory, "ebin")) of
        true -> {ok, Directory, name(App, Directory)};
        false -> {error, {no_application, App}}
    end.

%% The name without a version, which is the name of the .app file, too.
name(App, _Directory) when is_atom(App) -> atom_to_list(App);
name(_App, Directory) ->
    case filelib:wildcard(filename:join([Directory, "ebin", "*.app"])) of
        [File] -> filename:basename(File, ".app");
        _ -> filename:basename(Directory)
    end.

beams(Directory) ->
    lists:sort(filelib:wildcard(filename:join([Directory, "ebin", "*.beam"]))).

%% The forms of a module, and the options of its compiler and the chunks of its beam file that the new one has as well.
read(Beam) ->
    case beam_lib:chunks(Beam, [debug_info, compile_info, "Docs", "ExCk"], [allow_missing_chunks]) of
        {ok, {Module, [{debug_info, Info}, {compile_info, Compiled}, Docs, Checked]}} ->
            Extra = [{list_to_binary(Name), Chunk} || {Name, Chunk} <- [Docs, Checked], is_binary(Chunk)],
            Options = case Compiled of
                          missing_chunk -> [];
                          _ -> proplists:get_value(options, Compiled, [])
                      end,
            case forms(Module, Info) of
                {ok, Forms} -> {ok, {Beam, Forms, [{extra_chunks, Extra} | kept(Options)]}};
                {error, none} -> from_source(Beam, Module, Compiled, Options);
                {error, {no_backend, Backend}} -> {error, {no_backend, Beam, Backend}}
            end;
        {error, beam_lib, {key_missing_or_invalid, _, _}} -> {error, {encrypted, Beam}};
        {error, beam_lib, Reason} -> {error, {bad_file, Beam, Reason}}
    end.

forms(Module, {debug_info_v1, Backend, Data}) ->
    case code:ensure_loaded(Backend) of
        {module, Backend} ->
            case Backend:debug_info(erlang_v1, Module, Data, []) of
                {ok, Forms} -> {ok, Forms};
                {error, _} -> {error, none}
            end;
        {error, _} -> {error, {no_backend, Backend}}
    end;
forms(_Module, _Info) ->
    {error, none}.

%% The options that change what a module does or exports. Those of the preprocessor and of parse transforms had their effect
%% already.
kept(Options) ->
    [Option || Option <- Options,
               lists:member(Option, [export_all, nowarn_export_all, inline, inline_list_funcs, no_auto_import, tuple_calls])
                   orelse lists:member(catch element(1, Option), [inline, inline_size, no_auto_import])].

from_source(Beam, Module, Compiled, Options) ->
    case source(Beam, Module, Compiled) of
        {ok, Source} ->
            Directory = filename:dirname(Source),
            Again = [Option || Option <- Options,
                               lists:member(catch element(1, Option), [d, i, parse_transform])],
            All = [binary, debug_info, return_errors, {i, Directory}, {i, filename:join(filename:dirname(Directory), "include")}
                   | Again ++ kept(Options)],
            case compile:noenv_file(Source, All) of
                {ok, Module, Binary} ->
                    {ok, {_, [{debug_info, Info}]}} = beam_lib:chunks(Binary, [debug_info]),
                    {ok, Forms} = forms(Module, Info),
                    {ok, {Beam, Forms, kept(Options)}};
                {error, Errors, _} -> {error, {not_compiled, Source, Errors}}
            end;
        {error, Missing} -> {error, {no_code, Beam, Missing}}
    end.

%% The source beside the ebin directory, or else where the compiler found it.
source(Beam, Module, Compiled) ->
    Sources = filename:join(filename:dirname(filename:dirname(Beam)), "src"),
    Name = atom_to_list(Module) ++ ".erl",
    Known = [Source || is_list(Compiled), Source <- [proplists:get_value(source, Compiled)], is_list(Source)],
    case [File || File <- filelib:wildcard(filename:join([Sources, "**", Name])) ++ Known, filelib:is_regular(File)] of
        [File | _] -> {ok, File};
        [] -> {error, filename:join(Sources, Name)}
    end.

%%------------------------------------------------------------------------------------------------------------
%% Writing

recompile(Found, Modules, OutDir, Rules) ->
    Rewritten = [{Name, Beam, cats_forms:rewrite(Forms, Rules), Options} || {Name, {Beam, Forms, Options}} <- Modules],
    Dynamic = lists:any(fun({_, _, Forms, _}) -> cats_forms:is_dynamic(Forms, Rules) end, Rewritten),
    Warnings = lists:append([cats_forms:places(Forms, Dynamic, Rules) || {_, _, Forms, _} <- Rewritten]),
    Compiled = [{Name, Beam, compile:noenv_forms(Forms, [debug_info, return_errors | Options])}
                || {Name, Beam, Forms, Options} <- Rewritten],
    case [{not_compiled, Beam, Errors} || {_, Beam, {error, Errors, _}} <- Compiled] of
        [] ->
            Files = [{target(OutDir, Name, Beam), Binary} || {Name, Beam, {ok, _, Binary}} <- Compiled]
                ++ [{target(OutDir, Name, File), Content}
                    || {ok, Directory, Name} <- Found, File <- filelib:wildcard(filename:join([Directory, "ebin", "*.app"])),
                       {ok, Content} <- [file:read_file(File)]],
            case write(Files, [{Directory, filename:join(OutDir, Name)} || {ok, Directory, Name} <- Found]) of
                ok -> {ok, [Module || {_, _, {ok, Module, _}} <- Compiled], Warnings};
                {error, Reason} -> {error, [Reason]}
            end;
        Reasons ->
            {error, Reasons}
    end.

target(OutDir, Name, File) -> filename:join([OutDir, Name, "ebin", filename:basename(File)]).

write([], []) -> ok;
write([], [{Original, New} | Apps]) ->
    Linked = [{filename:absname(filename:join(Original, Name)), filename:join(New, Name)}
              || {ok, Names} <- [file:list_dir(Original)], Name <- Names, Name =/= "ebin"],
    case [{bad_file, Link, Reason} || {Target, Link} <- Linked, not exists(Link), {error, Reason} <- [file:make_symlink(Target, Link)]] of
        [] -> write([], Apps);
        [Bad | _] -> {error, Bad}
    end;
write([{File, Content} | Files], Apps) ->
    %% A file is replaced at once, so that a failure leaves the old one.
    Whole = File ++ ".new",
    Steps = [fun() -> filelib:ensure_dir(File) end, fun() -> file:write_file(Whole, Content) end, fun() -> file:rename(Whole, File) end],
    case lists:foldl(fun(Step, ok) -> Step(); (_, Failed) -> Failed end, ok, Steps) of
        ok -> write(Files, Apps);
        {error, Reason} -> {error, {bad_file, File, Reason}}
    end.

exists(File) -> element(1, file:read_link_info(File)) =:= ok.
