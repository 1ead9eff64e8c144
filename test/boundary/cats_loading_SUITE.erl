%% What happens when the native library cannot be loaded: the calls say why, the VM starts all the same, and a repair
%% helps. Each case has a copy of cats in a VM of its own.
-module(cats_loading_SUITE).
-export([all/0, suite/0, init_per_testcase/2, end_per_testcase/2]).
-export([broken_files/1, every_function_says_why/1, a_module_in_use_stays/1, file_deleted_after_loading/1,
         other_version/1, memory_after_loading/1, embedded_mode/1, settings/1, busy_processes/1, no_pages/1]).

-include_lib("stdlib/include/assert.hrl").

suite() -> [{timetrap, {minutes, 10}}].

all() -> [broken_files, every_function_says_why, a_module_in_use_stays, file_deleted_after_loading, other_version,
          memory_after_loading, embedded_mode, settings, busy_processes, no_pages].

%% A copy of cats, and what to call a VM with it by.
init_per_testcase(Case, Config) ->
    Home = filename:join([proplists:get_value(priv_dir, Config), Case, "cats"]),
    From = filename:dirname(filename:dirname(code:which(cats_nif))),
    [begin
         To = filename:join([Home, Directory, filename:basename(Name)]),
         ok = filelib:ensure_dir(To),
         {ok, _} = file:copy(Name, To)
     end || Directory <- ["ebin", "priv"], Name <- filelib:wildcard(filename:join([From, Directory, "*"])),
            filelib:is_regular(Name)],
    Peer = start_peer(Home, []),
    Library = filename:join([Home, "priv", "cats_nif.so"]),
    [{home, Home}, {library, Library}, {good, filename:join([From, "priv", "cats_nif.so"])}, {peer, Peer} | Config].

end_per_testcase(_Case, Config) -> peer:stop(proplists:get_value(peer, Config)).

start_peer(Home, Arguments) ->
    Peer = cats_test_lib:start_peer(["-pa", filename:join(Home, "ebin") | Arguments]),
    %% A module that is refused leaves a report.
    ok = peer:call(Peer, logger, set_primary_config, [level, none], infinity),
    Peer.

call(Config, Module, Function, Arguments) ->
    peer:call(proplists:get_value(peer, Config), Module, Function, Arguments, infinity).

%% The error of a call, with the first frame of its stack.
failure(Config, Function, Arguments) ->
    try call(Config, cats, Function, Arguments) of
        Result -> {returned, Result}
    catch
        error:Reason:Stack -> {Reason, hd(Stack)}
    end.

unload(Config) ->
    [call(Config, code, Function, [cats_nif]) || Function <- [purge, delete, purge]].

reload(Config) ->
    call(Config, code, purge, [cats_nif]),
    call(Config, code, load_file, [cats_nif]).

%%------------------------------------------------------------------------------------------------------------
%% The cases

broken_files(Config) ->
    Library = proplists:get_value(library, Config),
    {ok, Good} = file:read_file(proplists:get_value(good, Config)),
    Cut = fun(Size) -> binary:part(Good, 0, Size) end,
    Patched = fun(At, Byte) -> <<Before:At/binary, _, After/binary>> = Good, <<Before/binary, Byte, After/binary>> end,
    IsElf = Cut(5) =:= <<127, "ELF", 2>>,
    Broken = [{delete, "no such file"}, {directory, "directory"}, {<<>>, ""}, {binary:copy(<<"text ">>, 100), ""},
              {Cut(20), ""}]
        ++ [{Cut(Size), "truncated"} || IsElf, Size <- [64, 4096, byte_size(Good) div 2, byte_size(Good) - 1]]
        ++ [{Patched(4, 1), ""} || IsElf]
        ++ [{Patched(18, Machine), Name}
            || IsElf, {Machine, Name} <- [{62, "x86_64"}, {183, "aarch64"}], binary:at(Good, 18) =/= Machine]
        ++ [{compile(Config, no_nif()), "nif_init"}, {compile(Config, nif("another", 16)), "another"},
            {compile(Config, nif("cats_nif", 99)), "newer"}],
    [begin
         place(File, Library),
         unload(Config),
         {{cats_nif_not_loaded, Text}, {cats, new, 2, Info}} = failure(Config, new, [table, []]),
         ct:log("~ts", [Text]),
         [?assertNotEqual(nomatch, string:find(Text, Part)) || Part <- [Library, Reason]],
         #{general := Shown} = cats_failure:format_error({cats_nif_not_loaded, Text}, [{cats, new, 2, Info}]),
         ?assertNotEqual(nomatch, string:find(Shown, Text)),
         {ok, _} = call(Config, application, ensure_all_started, [cats]),
         ok = call(Config, application, stop, [cats]),
         %% It is not tried again with each call. An attempt that fails leaves the module in use.
         {error, on_load_failure} = reload(Config),
         {{cats_nif_not_loaded, Text}, _} = failure(Config, info, [table])
     end || {File, Reason} <- Broken],
    place(Good, Library),
    {{cats_nif_not_loaded, _}, _} = failure(Config, new, [table, []]),
    {module, cats_nif} = reload(Config),
    table = call(Config, cats, new, [table, [named_table]]).

place(File, Path) ->
    _ = file:delete(Path),
    _ = file:del_dir(Path),
    case File of
        delete -> ok;
        directory -> ok = file:make_dir(Path);
        Bytes -> ok = file:write_file(Path, Bytes)
    end.

%% The bytes of a library with this source in C.
compile(Config, Text) ->
    [Source, Library] = [filename:join(proplists:get_value(priv_dir, Config), Name) || Name <- ["other.c", "other.so"]],
    ok = file:write_file(Source, Text),
    "" = os:cmd("cc -shared -fPIC -o " ++ Library ++ " " ++ Source ++ " 2>&1"),
    {ok, Bytes} = file:read_file(Library),
    Bytes.

no_nif() -> "int nothing;\n".

%% A library for a module, of a version of the interface.
nif(Module, Minor) ->
    io_lib:format("static struct { int major, minor; char *name; int count; void *functions, *callbacks[4];\n"
                  "                char *variant; unsigned options; unsigned long size; char *erts; }\n"
                  "entry = {2, ~b, \"~s\", 0, 0, {0}, \"beam.vanilla\", 1, 0, \"erts-99\"};\n"
                  "void *nif_init(void) { return &entry; }\n", [Minor, Module]).

every_function_says_why(Config) ->
    ok = file:delete(proplists:get_value(library, Config)),
    Native = cats_nif:module_info(exports),
    Functions = [Function || Function = {Name, _} <- cats:module_info(exports), lists:member(Function, Native),
                             Name =/= module_info],
    ?assert(length(Functions) > 30),
    %% They look at their list before they call the library.
    Listed = [delete_many, insert_many, take_many],
    [?assertMatch({{cats_nif_not_loaded, _}, {cats, Name, _, _}},
                  failure(Config, Name, case lists:member(Name, Listed) of
                                            true -> [table, []];
                                            false -> lists:duplicate(Arity, table)
                                        end))
     || {Name, Arity} <- Functions],
    [?assertMatch({{cats_nif_not_loaded, _}, {cats, _, _, _}}, failure(Config, Name, Arguments))
     || {Name, Arguments} <- [{i, []}, {tab2list, [table]}, {select, [table, [{'_', [], ['$_']}]]},
                              {match, [table, '_']}, {select_count, [table, [{'_', [], [true]}]]},
                              {match_object, [table, '_', 3]},
                              {foldl, [fun(_, A) -> A end, 0, table]}, {tab2file, [table, "file"]}]].

%% Tables need the library that is loaded. So a module whose library is broken does not replace one that works.
a_module_in_use_stays(Config) ->
    Library = proplists:get_value(library, Config),
    {module, cats_nif} = reload(Config),
    make_table(Config),
    [begin
         place(File, Library),
         {error, on_load_failure} = reload(Config),
         [{1}] = call(Config, cats, lookup, [seen, 1])
     end || File <- [directory, <<"text">>]].

make_table(Config) ->
    Owner = call(Config, erlang, spawn, [timer, sleep, [infinity]]),
    seen = call(Config, cats, new, [seen, [public, named_table, {heir, Owner, none}]]),
    cats_test_lib:eventually(fun() -> call(Config, cats, info, [seen, owner]) =:= Owner end),
    true = call(Config, cats, insert, [seen, {1}]).

%% The linker still knows the library by its path.
file_deleted_after_loading(Config) ->
    make_table(Config),
    ok = file:delete(proplists:get_value(library, Config)),
    {module, cats_nif} = reload(Config),
    [{1}] = call(Config, cats, lookup, [seen, 1]),
    unload(Config),
    {module, cats_nif} = call(Config, code, load_file, [cats_nif]),
    [{1}] = call(Config, cats, lookup, [seen, 1]).

%% The VM keeps a library that was refused, too. So it must be told apart from the file that replaces it.
other_version(Config) ->
    Library = proplists:get_value(library, Config),
    Ebin = filename:join(proplists:get_value(home, Config), "ebin"),
    {ok, {_, [{abstract_code, {_, Forms}}]}} = beam_lib:chunks(filename:join(Ebin, "cats_nif.beam"), [abstract_code]),
    {ok, cats_nif, Code} = compile:forms(with_version(Forms), []),
    {module, cats_nif} = call(Config, code, load_binary, [cats_nif, filename:join(Ebin, "cats_nif.beam"), Code]),
    {{cats_nif_not_loaded, Text}, _} = failure(Config, all, []),
    ?assertMatch({match, _}, re:run(Text, "different versions")),
    {ok, Good} = file:read_file(Library),
    place(<<Good/binary, 0>>, Library),
    unload(Config),
    {{cats_nif_not_loaded, Replaced}, _} = failure(Config, all, []),
    ?assertMatch({match, _}, re:run(Replaced, "restart the VM")),
    place(Good, Library),
    unload(Config),
    [] = call(Config, cats, all, []).

with_version({bin, _, [{bin_element, _, {string, Line, [_ | _]}, _, _}]}) ->
    {bin, Line, [{bin_element, Line, {string, Line, "0.0.0"}, default, default}]};
with_version(Form) when is_tuple(Form) -> list_to_tuple(with_version(tuple_to_list(Form)));
with_version([Form | Forms]) -> [with_version(Form) | with_version(Forms)];
with_version(Form) -> Form.

%% Nobody keeps the bytes of the library.
memory_after_loading(Config) ->
    Binaries = fun() -> call(Config, erlang, memory, [binary]) end,
    Before = Binaries(),
    {module, cats_nif} = call(Config, code, ensure_loaded, [cats_nif]),
    Size = filelib:file_size(proplists:get_value(library, Config)),
    cats_test_lib:eventually(fun() -> Binaries() - Before < min(Size, 1000000) end).

%% In embedded mode a failure of an -on_load function ends the VM.
embedded_mode(Config) ->
    Home = proplists:get_value(home, Config),
    Boot = boot_file(Home),
    Say = "io:format(\"<~0p>\", [try cats:new(table, [named_table]) catch error:Reason -> Reason end]), halt().",
    Run = fun() ->
                  Erl = filename:join([code:root_dir(), "bin", "erl"]),
                  os:cmd(lists:join(" ", [Erl, "-mode embedded -noshell -boot", Boot, "-eval '" ++ Say ++ "' 2>&1"]))
          end,
    ?assertMatch("<table>", Run()),
    ok = file:delete(proplists:get_value(library, Config)),
    ?assertMatch("<{cats_nif_not_loaded,\"" ++ _, Run()),
    ok = file:write_file(proplists:get_value(library, Config), "text"),
    ?assertMatch("<{cats_nif_not_loaded,\"" ++ _, Run()).

%% A boot file of a release with cats.
boot_file(Home) ->
    Boot = filename:join(Home, "cats_release"),
    Ebin = filename:join(Home, "ebin"),
    Version = fun(Application) -> element(2, {ok, _} = application:get_key(Application, vsn)) end,
    _ = application:load(cats),
    Release = {release, {"cats_release", "1"}, {erts, erlang:system_info(version)},
               [{Application, Version(Application)} || Application <- [kernel, stdlib, cats]]},
    ok = file:write_file(Boot ++ ".rel", io_lib:format("~tp.~n", [Release])),
    {ok, systools_make, _} = systools:make_script(Boot, [local, silent, {path, [Ebin]}, {outdir, Home}]),
    Boot.

%% A setting that is wrong is named. The setting `vm_terms' is the one of the application.
settings(Config) ->
    [begin
         Peer = start_peer(proplists:get_value(home, Config), ["-cats", atom_to_list(Name), Value]),
         ?assertError({bad_setting, cats, {Name, _}}, peer:call(Peer, cats, new, [table, []], infinity)),
         peer:stop(Peer)
     end || {Name, Value} <- [{vm_terms, "elsewhere"}, {reader_groups, "0"}, {registry, "open"}]],
    ok = call(Config, application, set_env, [[{cats, [{vm_terms, erl_nif}]}]]),
    table = call(Config, cats, new, [table, [named_table]]),
    {_, lock_free, erl_nif, infinity, 0} = call(Config, cats_nif, settings, []).

%% The file is read and digested in many steps. The process that takes them does not wait for busy processes in between.
busy_processes(Config) ->
    Traced = evaluate(Config,
                      "_ = [erlang:trace_pattern(Function, true, [global])"
                      " || Function <- [{erlang, process_flag, 2}, {erlang, md5_update, 2}]],"
                      "_ = erlang:trace(new_processes, true, [call]),"
                      "{module, cats_nif} = code:load_file(cats_nif),"
                      "_ = erlang:trace(new_processes, false, [call]),"
                      "Reference = erlang:trace_delivered(all),"
                      "(fun Collect() ->"
                      "     receive"
                      "         {trace, _, call, {erlang, Function, Arguments}} -> [{Function, Arguments} | Collect()];"
                      "         {trace_delivered, all, Reference} -> []"
                      "     end"
                      " end)()"),
    Flags = [{process_flag, [priority, high]}, {process_flag, [priority, normal]}],
    Steps = [Step || Step = {Function, _} <- Traced, Function =:= md5_update orelse lists:member(Step, Flags)],
    ?assertMatch([{process_flag, [priority, high]}, {md5_update, _} | _], Steps),
    ?assertEqual({process_flag, [priority, normal]}, lists:last(Steps)).

%% The value of an expression in the other VM.
evaluate(Config, Text) ->
    {ok, Tokens, _} = erl_scan:string(Text ++ "."),
    {ok, Expressions} = erl_parse:parse_exprs(Tokens),
    {value, Value, _} = call(Config, erl_eval, exprs, [Expressions, #{}]),
    Value.

%% The copies have no subdirectories of priv, and so no pages. What needs one says so and goes on.
no_pages(Config) ->
    Answers = evaluate(Config,
                       "{ok, Server, Url} = cats_web:start(#{}),"
                       "Get = fun(Path) ->"
                       "          {ok, {{_, Code, _}, _, Body}} = httpc:request(Url ++ Path),"
                       "          {Code, Body}"
                       "      end,"
                       "Answers = [Get(Path) || Path <- [\"\", \"api/node\"]],"
                       "ok = cats_web:stop(Server),"
                       "Answers"),
    [Page, Trace] = [filename:join([proplists:get_value(home, Config), "priv/pages", Name])
                     || Name <- ["live.html", "trace.html"]],
    Told = Page ++ ": no such file or directory\n",
    ?assertMatch([{500, Told}, {200, _}], Answers),
    ?assertEqual([{error, {Trace, enoent}}, false],
                 evaluate(Config, "{ok, Trace} = cats_trace:start(#{}),"
                                  "[cats_trace:stop(Trace, \"no_pages\"), filelib:is_file(\"no_pages.json\")]")).
