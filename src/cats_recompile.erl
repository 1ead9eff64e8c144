%% @doc Makes applications that are compiled already use `cats' in place of `ets'.
%%
%% {@link apps/3} takes the abstract code of each module from the debug information in its beam file. Erlang and Elixir
%% both write that. A beam file without debug information is compiled from its source, if that is there. The module
%% then changes as {@link cats_transform} says, and is compiled to a new beam file.
%%
%% ```
%% {ok, Changed, Warnings} = cats_recompile:apps([mnesia], "converted", [report]).
%% '''
%%
%% A VM that starts with `-pa converted/mnesia/ebin' loads the new files.
%%
%% All other files are copies. So is a module that does not use `ets', and it needs no debug information. A new beam
%% file tells the source and the compiler's options of the original. It has the documentation and Elixir's form of the
%% module, too.
%%
%% == Where ets stays ==
%%
%% The warnings list each place where `ets' is passed as a value, is traced, or is called in a way that cats_recompile
%% does not follow. They look like those of the compiler. A place with `ets' as a value counts when one of the modules
%% has a call such as `Tables:insert(T, X)', or cannot be read. Messages and keys do not count. A macro of Elixir that
%% expands to calls of `ets' counts, as the modules that use it call `ets'. The options `calls', for functions that take
%% a module, and `except', for tables that stay in `ets', are described at {@link cats_transform}.
-module(cats_recompile).
-export([apps/2, apps/3, format_error/1]).
-export_type([app/0, option/0, exception/0, call/0, warning/0]).

-include_lib("kernel/include/file.hrl").

%% What the compiler itself writes to a beam file. Other chunks are those of other tools, such as Elixir's.
-define(COMPILERS_CHUNKS, ["Atom", "AtU8", "Code", "StrT", "ImpT", "ExpT", "FunT", "LitT", "LocT", "Attr", "CInf",
                           "Abst", "Dbgi", "Line", "Type", "Meta", "DbgB", "Recs"]).

%% A module of an application. Forms is `none' where they are missing.
-record(module, {name :: module(), beam :: file:filename(), debug_info :: term(), options = [] :: [compile:option()],
                 forms = none :: cats_forms:forms() | none}).

-type app() :: atom() | file:name_all().
%% The name of an application in the code path, or the directory of one. The directory has a subdirectory `ebin'.
-type exception() :: {module(), Function :: atom()}
                   | {table, Name :: atom()}
                   | {table, module(), Variable :: atom()}
                   | {call, mfa(), EtsFunction :: atom(), Places :: [pos_integer()]}.
%% What stays with `ets', as {@link cats_transform} describes it.
-type call() :: {module(), Function :: atom(), arity(), Position :: pos_integer()}.
%% A function that takes a module, and the place of this argument, from 1. The name of a function and a list of
%% arguments follow it.
-type option() :: report | {modules, [module()]} | {except, [exception()]} | {calls, [call()]}.
%% `report' prints the warnings and errors. `modules' names the modules to convert. The others are copied.
-type warning() :: {file:filename(), [{erl_anno:location(), module(), Description :: term()}]}.
%% A place, as the compiler describes it. The module's `format_error/1' makes a text of the description.

%% @equiv apps(Apps, OutDir, [])
-spec apps([app()], file:name_all()) -> {ok, Changed :: [module()], [warning()]} | {error, [Reason :: term()]}.
apps(Apps, OutDir) ->
    apps(Apps, OutDir, []).

%% @doc Makes the modules of these applications use `cats'. Returns the modules that were changed.
%%
%% The new application is `OutDir/Name/ebin', with all files of the original. Links lead to the other directories of the
%% original, such as `priv'. `OutDir' may be the directory that holds the originals under these names. The new files
%% then replace them.
%%
%% Nothing is written unless all modules can be recompiled, and a file that would not change stays.
%% {@link format_error/1} describes the reasons of a failure. An option that there is not raises `{bad_option, Option}'.
-spec apps([app()], file:name_all(), [option()]) ->
          {ok, Changed :: [module()], [warning()]} | {error, [Reason :: term()]}.
apps(Apps, Out, Options) ->
    OutDir = unicode:characters_to_list(Out),
    [error({bad_option, Option}) || Option <- Options, not is_option(Option)],
    Rules = cats_forms:rules(Options),
    Wanted = wanted(proplists:get_all_values(modules, Options)),
    Found = [find(App) || App <- Apps],
    Read = [read(Beam) || {ok, Directory, _} <- Found, Beam <- beams(Directory)],
    Known = [Name || {_, #module{name = Name}} <- Read],
    Reasons = [Reason || {error, Reason} <- Found]
        ++ [Reason || {{error, Reason}, Module} <- Read, is_wanted(Module, Wanted)]
        ++ [{no_module, Name} || is_list(Wanted), Name <- Wanted -- Known],
    Result = case Reasons of
                 [] ->
                     Originals = [{Directory, Name} || {ok, Directory, Name} <- Found],
                     recompile(Originals, [Module || {_, Module} <- Read], Wanted, OutDir, Rules);
                 _ -> {error, Reasons}
             end,
    _ = [report(Result) || proplists:get_bool(report, Options)],
    Result.

is_option(report) -> true;
is_option({Name, _}) -> lists:member(Name, [report, modules, except, calls]);
is_option(_) -> false.

wanted([]) -> all;
wanted(Lists) ->
    Wanted = lists:append(Lists),
    [error({bad_module, Name}) || Name <- Wanted, not is_atom(Name)],
    Wanted.

is_wanted(_Module, all) -> true;
is_wanted(#module{name = Name}, Wanted) -> lists:member(Name, Wanted).

%% @doc A text for a reason of a failure.
-spec format_error(Reason :: term()) -> string().
format_error(Reason) ->
    lists:flatten(text(Reason)).

text({no_application, App}) ->
    io_lib:format("there is no application ~tp: give a name in the code path, or a directory with a subdirectory ebin",
                  [App]);
text({no_module, Module}) ->
    io_lib:format("none of the applications has the module ~tp", [Module]);
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
    {ok, Names} = file:list_dir(filename:join(Directory, "ebin")),
    [filename:join([Directory, "ebin", Name]) || Name <- lists:sort(Names), filename:extension(Name) =:= ".beam"].

%% A module, and whether it can be changed. One that does not name `ets' needs no forms.
read(Beam) ->
    case beam_lib:chunks(Beam, [debug_info, compile_info, atoms], [allow_missing_chunks]) of
        {ok, {Name, [{debug_info, Info}, {compile_info, Compiled}, {atoms, Atoms}]}} ->
            Options = case Compiled of
                          missing_chunk -> [];
                          _ -> proplists:get_value(options, Compiled, [])
                      end,
            Module = #module{name = Name, beam = Beam, debug_info = Info, options = kept(Options)},
            case forms(Name, Info) of
                {ok, Forms} -> {ok, Module#module{forms = Forms}};
                {error, Reason} ->
                    case {lists:any(fun({_, Atom}) -> Atom =:= ets orelse Atom =:= dets end, Atoms), Reason} of
                        {false, _} -> {ok, Module};
                        {true, none} -> from_source(Module, Compiled, Options);
                        {true, {no_backend, Backend}} -> {{error, {no_backend, Beam, Backend}}, Module}
                    end
            end;
        {error, beam_lib, {key_missing_or_invalid, _, _}} -> {{error, {encrypted, Beam}}, unread(Beam)};
        {error, beam_lib, Reason} -> {{error, {bad_file, Beam, Reason}}, unread(Beam)}
    end.

unread(Beam) -> #module{name = list_to_atom(filename:basename(Beam, ".beam")), beam = Beam}.

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

%% The options that change what a module does or exports. Those of the preprocessor and of parse transforms had their
%% effect already.
kept(Options) ->
    [Option || Option <- Options,
               lists:member(Option,
                            [export_all, nowarn_export_all, inline, inline_list_funcs, no_auto_import, tuple_calls])
                   orelse lists:member(catch element(1, Option), [inline, inline_size, no_auto_import])].

from_source(#module{name = Name, beam = Beam} = Module, Compiled, Options) ->
    case source(Beam, Name, Compiled) of
        {ok, Source} ->
            Directory = filename:dirname(Source),
            Again = [Option || Option <- Options,
                               lists:member(catch element(1, Option), [d, i, parse_transform])],
            All = [binary, debug_info, return_errors, {i, Directory},
                   {i, filename:join(filename:dirname(Directory), "include")}
                   | Again ++ kept(Options)],
            case compile:noenv_file(Source, All) of
                {ok, Name, Binary} ->
                    {ok, {_, [{debug_info, Info}]}} = beam_lib:chunks(Binary, [debug_info]),
                    {ok, Forms} = forms(Name, Info),
                    {ok, Module#module{forms = Forms}};
                {error, Errors, _} -> {{error, {not_compiled, Source, Errors}}, Module}
            end;
        {error, Missing} -> {{error, {no_code, Beam, Missing}}, Module}
    end.

%% The source beside the ebin directory, or else where the compiler found it.
source(Beam, Module, Compiled) ->
    Sources = filename:join(filename:dirname(filename:dirname(Beam)), "src"),
    Name = atom_to_list(Module) ++ ".erl",
    Known = [Source || is_list(Compiled), Source <- [proplists:get_value(source, Compiled)], is_list(Source),
                       filename:extension(Source) =:= ".erl"],
    case [File || File <- filelib:wildcard(filename:join([Sources, "**", Name])) ++ Known, filelib:is_regular(File)] of
        [File | _] -> {ok, File};
        [] -> {error, filename:join(Sources, Name)}
    end.

%%------------------------------------------------------------------------------------------------------------
%% Writing

recompile(Apps, Modules, Wanted, OutDir, Rules) ->
    Chosen = [Module || Module <- Modules, is_wanted(Module, Wanted)],
    Rewritten = [{Module, cats_forms:rewrite(Forms, Rules)}
                 || #module{forms = Forms} = Module <- Chosen, Forms =/= none],
    Dynamic = lists:any(fun(#module{forms = Forms}) -> Forms =:= none orelse cats_forms:is_dynamic(Forms, Rules) end,
                        Modules),
    Warnings = lists:append([cats_forms:places(Forms, Dynamic, Rules) ++ consolidated(Module, Forms)
                             || {Module, Forms} <- Rewritten]),
    Compiled = [{Module, Forms, compile:noenv_forms(Forms, [debug_info, return_errors | Module#module.options])}
                || {#module{forms = Old} = Module, Forms} <- Rewritten, Forms =/= Old],
    case [{not_compiled, Beam, Errors} || {#module{beam = Beam}, _, {error, Errors, _}} <- Compiled] of
        [] ->
            New = maps:from_list([{Beam, whole(Module, Forms, Binary)}
                                  || {#module{beam = Beam} = Module, Forms, {ok, _, Binary}} <- Compiled]),
            case write(Apps, New, OutDir) of
                ok -> {ok, [Name || {#module{name = Name}, _, _} <- Compiled], Warnings};
                {error, Reason} -> {error, [Reason]}
            end;
        Reasons ->
            {error, Reasons}
    end.

%% Elixir makes the final module of a protocol from its own form, in which `ets' stays.
consolidated(#module{debug_info = {debug_info_v1, _, {elixir_v1, #{attributes := Attributes}, _}}, forms = Old}, Forms)
  when Forms =/= Old ->
    [{File, [{Location, cats_transform, protocol}]} || lists:keymember('__protocol__', 1, Attributes),
                                                       {attribute, Anno, file, {File, _}} <- lists:sublist(Forms, 1),
                                                       Location <- [erl_anno:location(Anno)]];
consolidated(_Module, _Forms) ->
    [].

%% The compiled module with what the original's file tells of its source and its compiler's options, with Elixir's form
%% of the module, and with the chunks of other tools.
whole(#module{name = Name, beam = Beam, debug_info = DebugInfo}, Forms, Binary) ->
    {ok, Name, Compiled} = beam_lib:all_chunks(Binary),
    {ok, Name, Original} = beam_lib:all_chunks(Beam),
    Kept = [Chunk || {Id, _} = Chunk <- Original, not lists:member(Id, ?COMPILERS_CHUNKS)]
        ++ [{"CInf", compile_info(About, New)} || {"CInf", About} <- Original, {"CInf", New} <- Compiled]
        ++ [{"Dbgi", term_to_binary(Elixir, [compressed])} || Elixir <- cats_debug_info:elixir(DebugInfo, Forms)],
    {ok, Whole} = beam_lib:build_module(lists:ukeymerge(1, lists:keysort(1, Kept), lists:keysort(1, Compiled))),
    Whole.

%% All but the version of the compiler.
compile_info(Original, New) ->
    Version = lists:keyfind(version, 1, binary_to_term(New)),
    term_to_binary(lists:keyreplace(version, 1, binary_to_term(Original), Version)).

%% Writes all files of the applications, or none. A file that is there already stays, so that what builds on it need not
%% be built again.
write(Apps, New, OutDir) ->
    Files =
        [{filename:join([OutDir, Name | lists:nthtail(length(filename:split(Directory)), filename:split(File))]), File}
         || {Directory, Name} <- Apps, File <- files(filename:join(Directory, "ebin"))],
    try
        Changed = [{Target, content(File, New)} || {Target, File} <- Files, is_other(Target, File, New)],
        [check(Target, filelib:ensure_dir(Target)) || {Target, _} <- Changed],
        case cats_whole_files:write(Changed) of
            ok -> ok;
            {error, {Failed, Why}} -> throw({bad_file, Failed, Why})
        end,
        lists:foreach(fun({Directory, Name}) -> link_others(Directory, filename:join(OutDir, Name)) end, Apps)
    catch
        throw:{bad_file, _, _} = Bad -> {error, Bad}
    end.

files(Directory) -> filelib:fold_files(Directory, "", true, fun(File, Files) -> [File | Files] end, []).

content(File, New) ->
    case New of
        #{File := Binary} -> Binary;
        _ -> fun(Beside) -> copy(File, Beside) end
    end.

is_other(Target, File, New) ->
    case New of
        #{File := Binary} -> file:read_file(Target) =/= {ok, Binary};
        _ -> file:read_file(Target) =/= file:read_file(File)
    end.

copy(From, To) ->
    case file:copy(From, To) of
        {ok, _} ->
            {ok, #file_info{mode = Mode}} = file:read_file_info(From),
            file:change_mode(To, Mode);
        Failed ->
            Failed
    end.

link_others(Original, New) ->
    {ok, Names} = file:list_dir(Original),
    [check(Link, file:make_symlink(filename:absname(filename:join(Original, Name)), Link))
     || Name <- Names, Name =/= "ebin", Link <- [filename:join(New, Name)],
        element(1, file:read_link_info(Link)) =:= error],
    ok.

check(_File, ok) -> ok;
check(File, {error, Reason}) -> throw({bad_file, File, Reason}).
