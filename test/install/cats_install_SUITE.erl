%% What a user's build does: it takes the native library from a server, the cache, a file, or from cargo, and says why
%% when it cannot. A package builds and runs in a release of rebar3 and in one of Mix. No program here finds Rust, and
%% nothing leaves the machine.
-module(cats_install_SUITE).
-include_lib("stdlib/include/assert.hrl").
-include_lib("public_key/include/public_key.hrl").
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([fetched/1, cached/1, configured/1, secure/1, proxied/1, not_fetched/1, not_verified/1, no_artifact/1, given/1,
         stays/1, built/1, not_built/1, complete/1, targets/1, rebar3/1, mix/1]).

suite() -> [{timetrap, {minutes, 10}}].

all() ->
    [fetched, cached, configured, secure, proxied, not_fetched, not_verified, no_artifact, given, stays, built,
     not_built, complete, targets, rebar3, mix].

-define(TARGET, "x86_64-unknown-linux-gnu").

init_per_suite(Config) ->
    [{ok, _} = application:ensure_all_started(Application) || Application <- [inets, ssl]],
    Tools = filename:join(proplists:get_value(priv_dir, Config), "tools"),
    link_tools(Tools, ["cargo", "rustc", "rustup", "cc"]),
    [{tools, Tools} | Config].

end_per_suite(_Config) -> ok.

%% A package of its own, and a home directory, for each case.
init_per_testcase(Case, Config) ->
    Directory = filename:join(proplists:get_value(priv_dir, Config), Case),
    Package = filename:join(Directory, "cats"),
    copy_package(Package),
    [{directory, Directory}, {package, Package} | Config].

end_per_testcase(_Case, Config) ->
    [ok = inets:stop(httpd, Server) || {httpd, Server} <- inets:services()],
    ok = file:del_dir_r(proplists:get_value(directory, Config)).

%% All programs of the PATH but some. The Erlang beside rebar3 and Mix comes first, as theirs may not run on another.
link_tools(Directory, Without) ->
    ok = filelib:ensure_path(Directory),
    Beside = [filename:dirname(Program)
              || Tool <- ["rebar3", "mix"], Program <- [os:find_executable(Tool)], Program =/= false],
    [file:make_symlink(Program, filename:join(Directory, filename:basename(Program)))
     || Path <- Beside ++ string:lexemes(os:getenv("PATH"), ":"), Program <- filelib:wildcard(filename:join(Path, "*")),
        not lists:member(filename:basename(Program), Without)].

%% The files that the application lists for its package, as rebar3_hex finds them.
copy_package(To) ->
    {ok, [{application, cats, Items}]} = file:consult(filename:join(cats_test_lib:root(), "src/cats.app.src")),
    Paths = [Path
             || Pattern <- proplists:get_value(files, Items), Path <- filelib:wildcard(Pattern, cats_test_lib:root())],
    Files = [File || Path <- Paths, File <- [Path | filelib:wildcard(Path ++ "/**", cats_test_lib:root())],
                     filelib:is_regular(filename:join(cats_test_lib:root(), File)), File =/= "checksums"],
    [begin
         New = filename:join(To, File),
         ok = filelib:ensure_dir(New),
         {ok, Info} = file:read_file_info(filename:join(cats_test_lib:root(), File)),
         {ok, _} = file:copy(filename:join(cats_test_lib:root(), File), New),
         ok = file:write_file_info(New, Info)
     end || File <- Files],
    ok.

%% Archives and servers.

name(Target) ->
    {ok, [{application, cats, Items}]} = file:consult(filename:join(cats_test_lib:root(), "src/cats.app.src")),
    lists:concat(["cats-", proplists:get_value(vsn, Items), "-", Target, ".tar.gz"]).

%% Puts an archive of a library into the directory of a server, and its checksum into the package.
publish(Library, Config) ->
    Name = name(?TARGET),
    Archive = filename:join([proplists:get_value(directory, Config), "www", Name]),
    ok = filelib:ensure_dir(Archive),
    ok = erl_tar:create(Archive, [{"cats_nif.so", Library}], [compressed]),
    {ok, Bytes} = file:read_file(Archive),
    Sum = string:lowercase(binary:encode_hex(crypto:hash(sha256, Bytes))),
    ok = file:write_file(filename:join(proplists:get_value(package, Config), "checksums"), [Sum, "  ", Name, "\n"]),
    Archive.

serve(Config) -> serve(Config, ip_comm).

serve(Config, Socket) ->
    Directory = filename:join(proplists:get_value(directory, Config), "www"),
    {ok, Server} = inets:start(httpd, [{port, 0}, {bind_address, {127, 0, 0, 1}}, {server_name, "localhost"},
                                       {server_root, Directory}, {document_root, Directory},
                                       {modules, [mod_get]}, {socket_type, Socket}]),
    proplists:get_value(port, httpd:info(Server)).

url(Port) -> "http://127.0.0.1:" ++ integer_to_list(Port).

%% A server that does this with each connection.
listen(Serve) ->
    {ok, Listener} = gen_tcp:listen(0, [binary, {active, false}, {ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Listener),
    Server = spawn_link(fun() -> receive go -> accept(Listener, Serve) end end),
    ok = gen_tcp:controlling_process(Listener, Server),
    Server ! go,
    Port.

accept(Listener, Serve) ->
    {ok, Socket} = gen_tcp:accept(Listener),
    Serve(Socket),
    accept(Listener, Serve).

%% Running the scripts.

install(Environment, Config) ->
    run(filename:join(proplists:get_value(package, Config), "scripts/install-native"), [],
        Environment ++ [{"CATS_TARGET", ?TARGET}], Config).

run(Program, Arguments, Environment, Config) ->
    Unset = [{Name, false}
             || Name <- ["CATS_NIF", "CATS_BUILD", "CATS_URL", "CATS_TARGET", "HEX_CACERTS_PATH", "XDG_CACHE_HOME",
                         "CARGO_HOME", "CARGO_TARGET_DIR", "REBAR_ROOT_DIR", "MIX_ENV", "ERL_LIBS",
                         "http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY"]],
    Home = filename:join(proplists:get_value(directory, Config), "home"),
    ok = filelib:ensure_path(Home),
    Basic = [{"PATH", proplists:get_value(tools, Config)}, {"HOME", Home}],
    Port = open_port({spawn_executable, Program},
                     [{args, Arguments}, {env, lists:ukeysort(1, Environment ++ Basic ++ Unset)},
                      exit_status, stderr_to_stdout,
                      binary, {cd, proplists:get_value(project, Config, proplists:get_value(directory, Config))}]),
    {Status, Output} = collect(Port, []),
    ct:log("~ts ~0tp: ~b~n~ts", [Program, Environment, Status, Output]),
    {Status, Output}.

collect(Port, Output) ->
    receive
        {Port, {data, Data}} -> collect(Port, [Output, Data]);
        {Port, {exit_status, Status}} -> {Status, unicode:characters_to_list(Output)}
    end.

installed(Config) -> file:read_file(filename:join(proplists:get_value(package, Config), "priv/cats_nif.so")).

%% It failed, left nothing, and its only message has these words.
refused({Status, Output}, Words, Config) ->
    ?assertNotEqual(0, Status),
    ?assertMatch([_], string:split(string:trim(Output), "cats: ", all) -- [""]),
    [?assertNotEqual(nomatch, string:find(Output, Word), {Word, Output}) || Word <- Words],
    ?assertEqual({error, enoent}, installed(Config)),
    ok.

%% The cases.

fetched(Config) ->
    publish(<<"first">>, Config),
    Port = serve(Config),
    ?assertEqual({0, ""}, install([{"CATS_URL", url(Port) ++ "/"}], Config)),
    ?assertEqual({ok, <<"first">>}, installed(Config)),
    %% Another package of the same version replaces it.
    publish(<<"second">>, Config),
    ?assertEqual({0, ""}, install([{"CATS_URL", url(Port)}], Config)),
    ?assertEqual({ok, <<"second">>}, installed(Config)).

%% The cache is used without a network, as long as the checksum holds.
cached(Config) ->
    publish(<<"library">>, Config),
    Port = serve(Config),
    {0, ""} = install([{"CATS_URL", url(Port)}], Config),
    [ok = inets:stop(httpd, Server) || {httpd, Server} <- inets:services()],
    Library = filename:join(proplists:get_value(package, Config), "priv/cats_nif.so"),
    ok = file:delete(Library),
    ?assertEqual({0, ""}, install([{"CATS_URL", url(Port)}], Config)),
    ?assertEqual({ok, <<"library">>}, installed(Config)),
    ok = file:delete(Library),
    Cached = filename:join([proplists:get_value(directory, Config), "home/.cache/cats", name(?TARGET)]),
    ok = file:write_file(Cached, "damaged"),
    refused(install([{"CATS_URL", url(Port)}], Config), ["connection refused"], Config).

%% A project of rebar3 has the address in its rebar.config.
configured(Config) ->
    publish(<<"library">>, Config),
    Project = proplists:get_value(directory, Config),
    ok = file:write_file(filename:join(Project, "rebar.config"),
                         io_lib:format("~p.~n", [{cats, [{url, url(serve(Config))}]}])),
    ?assertEqual({0, ""}, install([{"REBAR_ROOT_DIR", Project}], Config)),
    ?assertEqual({ok, <<"library">>}, installed(Config)).

%% Only a server with a trusted certificate of its name is asked.
secure(Config) ->
    publish(<<"library">>, Config),
    {Port, Authority} = serve_securely(Config),
    {_, Other} = serve_securely(Config),
    Url = "https://localhost:" ++ integer_to_list(Port),
    refused(install([{"CATS_URL", Url}, {"HEX_CACERTS_PATH", Other}], Config),
            [Url, "unknown_ca", "HEX_CACERTS_PATH"], Config),
    refused(install([{"CATS_URL", "https://127.0.0.1:" ++ integer_to_list(Port)}, {"HEX_CACERTS_PATH", Authority}],
                    Config),
            ["127.0.0.1", "HEX_CACERTS_PATH"], Config),
    refused(install([{"CATS_URL", Url}, {"HEX_CACERTS_PATH", "/missing.pem"}], Config), ["no certificates"], Config),
    ?assertEqual({0, ""}, install([{"CATS_URL", Url}, {"HEX_CACERTS_PATH", Authority}], Config)),
    ?assertEqual({ok, <<"library">>}, installed(Config)).

%% The port of a server, and the file with the certificate that it is known by.
serve_securely(Config) ->
    Key = {key, {namedCurve, secp256r1}},
    Name = #'Extension'{extnID = ?'id-ce-subjectAltName', extnValue = [{dNSName, "localhost"}], critical = false},
    #{server_config := Server, client_config := Client} =
        public_key:pkix_test_data(#{server_chain => #{root => [Key], intermediates => [],
                                                      peer => [Key, {extensions, [Name]}]},
                                    client_chain => #{root => [Key], intermediates => [], peer => [Key]}}),
    Port = serve(Config, {ssl, Server}),
    File = filename:join(proplists:get_value(directory, Config), integer_to_list(Port) ++ ".pem"),
    Authorities = [{'Certificate', Authority, not_encrypted} || Authority <- proplists:get_value(cacerts, Client)],
    ok = file:write_file(File, public_key:pem_encode(Authorities)),
    {Port, File}.

proxied(Config) ->
    publish(<<"library">>, Config),
    {Port, Authority} = serve_securely(Config),
    Self = self(),
    Proxy = listen(fun(Client) -> Self ! proxied, tunnel(Client) end),
    Environment = [{"CATS_URL", "https://localhost:" ++ integer_to_list(Port)}, {"HEX_CACERTS_PATH", Authority}],
    ?assertEqual({0, ""}, install([{"HTTPS_PROXY", url(Proxy)} | Environment], Config)),
    ?assertEqual({ok, <<"library">>}, installed(Config)),
    receive proxied -> ok after 0 -> ct:fail(not_proxied) end.

tunnel(Client) ->
    {ok, <<"CONNECT localhost:", Request/binary>>} = gen_tcp:recv(Client, 0),
    [Port | _] = binary:split(Request, <<" ">>),
    {ok, Server} = gen_tcp:connect("localhost", binary_to_integer(Port), [inet, binary, {active, true}]),
    ok = gen_tcp:send(Client, "HTTP/1.1 200 OK\r\n\r\n"),
    ok = inet:setopts(Client, [{active, true}]),
    pass(Client, Server).

pass(Client, Server) ->
    receive
        {tcp, Client, Data} -> gen_tcp:send(Server, Data), pass(Client, Server);
        {tcp, Server, Data} -> gen_tcp:send(Client, Data), pass(Client, Server);
        {tcp_closed, _} -> ok
    end.

not_fetched(Config) ->
    Archive = publish(<<"library">>, Config),
    Advice = ["CATS_URL", "CATS_NIF", "CATS_BUILD=1"],
    Refused = fun(Url, Words) -> refused(install([{"CATS_URL", Url}], Config), Words, Config) end,
    {ok, Closed} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Closed),
    ok = gen_tcp:close(Closed),
    Refused(url(Port), [url(Port), "connection refused" | Advice]),
    %% Names are looked for in a file only, so that the answer is that of no resolver.
    Lookups = filename:join(proplists:get_value(directory, Config), "inetrc"),
    ok = file:write_file(Lookups, "{lookup, [file]}.\n"),
    refused(install([{"CATS_URL", "http://cats.invalid"}, {"ERL_INETRC", Lookups}], Config),
            ["cats.invalid", "non-existing domain" | Advice], Config),
    Refused("ftp://cats.invalid", ["https://" | Advice]),
    Refused("somewhere", ["https://" | Advice]),
    %% A connection that ends too early.
    Half = listen(fun(Socket) ->
                      {ok, _} = gen_tcp:recv(Socket, 0),
                      ok = gen_tcp:send(Socket, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf"),
                      gen_tcp:close(Socket)
                  end),
    Refused(url(Half), ["ended before the file was whole" | Advice]),
    Web = serve(Config),
    ok = file:delete(Archive),
    Refused(url(Web), ["404" | Advice]).

%% Bytes that are not those of the checksum are refused, and never kept.
not_verified(Config) ->
    Archive = publish(<<"library">>, Config),
    Port = serve(Config),
    {ok, Bytes} = file:read_file(Archive),
    [begin
         ok = file:write_file(Archive, Wrong),
         refused(install([{"CATS_URL", url(Port)}], Config),
                 ["nothing of it is used", "SHA-256", "CATS_BUILD=1"], Config),
         ?assertEqual([], filelib:wildcard(filename:join(proplists:get_value(directory, Config), "home/.cache/cats/*")))
     end
     || Wrong <- [binary:part(Bytes, 0, byte_size(Bytes) div 2), <<Bytes/binary, 0>>, <<>>, <<"<html>Log in</html>">>]],
    ok.

%% Without an artifact for the target, without checksums, and without an address, the library is built from source.
no_artifact(Config) ->
    publish(<<"library">>, Config),
    Rust = fake_rust("1.99.0", Config),
    {0, Output} = install([{"CATS_TARGET", "sparc-sun-solaris"}, {"CATS_URL", "http://cats.invalid"}, Rust], Config),
    [?assertNotEqual(nomatch, string:find(Output, Word))
     || Word <- ["sparc-sun-solaris", "built from source", "CATS_TARGET"]],
    ?assertEqual({ok, <<"built for sparc-sun-solaris\n">>}, installed(Config)),
    ?assertMatch({0, _}, install([Rust], Config)),
    ?assertEqual({ok, <<"built for " ?TARGET "\n">>}, installed(Config)),
    ok = file:delete(filename:join(proplists:get_value(package, Config), "checksums")),
    ?assertMatch({0, _}, install([{"CATS_TARGET", "other"}, {"CATS_URL", "http://cats.invalid"}, Rust], Config)),
    ?assertEqual({ok, <<"built for other\n">>}, installed(Config)).

%% A rustc that tells this version, a cargo that writes a library, and a linker.
fake_rust(Version, Config) ->
    Directory = filename:join(proplists:get_value(directory, Config), "rust"),
    ok = filelib:ensure_path(Directory),
    Cargo = "mkdir -p target/$CATS_TARGET/release && echo built for $CATS_TARGET "
            ">target/$CATS_TARGET/release/libcats_nif.so",
    [begin
         File = filename:join(Directory, Name),
         ok = file:write_file(File, ["#!/bin/sh\n", Script, "\n"]),
         ok = file:change_mode(File, 8#755)
     end || {Name, Script} <- [{"rustc", ["echo 'rustc ", Version, " (0 2026-01-01)'"]}, {"cargo", Cargo}, {"cc", ""}]],
    {"PATH", Directory ++ ":" ++ proplists:get_value(tools, Config)}.

given(Config) ->
    File = filename:join(proplists:get_value(directory, Config), "given"),
    refused(install([{"CATS_NIF", File}], Config), ["CATS_NIF", File], Config),
    refused(install([{"CATS_NIF", "given"}], Config), ["CATS_NIF", "absolute"], Config),
    ok = file:write_file(File, "library"),
    ?assertEqual({0, ""}, install([{"CATS_NIF", File}], Config)),
    ?assertEqual({ok, <<"library">>}, installed(Config)).

%% A library that was put there stays, without Rust, until it, the system or a source is another one.
stays(Config) ->
    File = filename:join(proplists:get_value(directory, Config), "given"),
    Package = proplists:get_value(package, Config),
    Library = filename:join(Package, "priv/cats_nif.so"),
    Source = filename:join(Package, "native/nif/src/lib.rs"),
    {ok, Text} = file:read_file(Source),
    ok = file:write_file(File, "library"),
    Give = fun() -> {0, ""} = install([{"CATS_NIF", File}], Config) end,
    Stays = fun(Environment) ->
                    ?assertEqual({0, ""}, install(Environment, Config)),
                    ?assertEqual({ok, <<"library">>}, installed(Config))
            end,
    Give(),
    [Stays(Environment) || Environment <- [[], [{"MIX_ENV", "test"}], [{"MIX_ENV", "prod"}], [{"CATS_BUILD", "0"}]]],
    Rust = fake_rust("1.99.0", Config),
    Stays([Rust]),
    [begin
         Give(),
         Change(),
         ?assertMatch({0, _}, install([Rust | Environment], Config)),
         ?assertMatch({ok, <<"built for ", _/binary>>}, installed(Config)),
         ok = file:write_file(Source, Text)
     end || {Environment, Change} <- [{[], fun() -> ok = file:delete(Library) end},
                                      {[], fun() -> ok = file:write_file(Library, "another") end},
                                      {[], fun() -> ok = file:write_file(Source, [Text, "// more\n"]) end},
                                      {[{"CATS_BUILD", "1"}], fun() -> ok end},
                                      {[{"CATS_COMPARED", "0"}], fun() -> ok end},
                                      {[{"CATS_TARGET", "another"}], fun() -> ok end}]],
    %% What was built stays, too.
    Give(),
    {0, _} = install([Rust, {"CATS_BUILD", "1"}], Config),
    ?assertEqual({0, ""}, install([], Config)),
    ?assertEqual({ok, <<"built for " ?TARGET "\n">>}, installed(Config)).

%% CATS_BUILD=1 builds, although there is an artifact.
built(Config) ->
    publish(<<"library">>, Config),
    Environment = [{"CATS_URL", url(serve(Config))}, fake_rust("1.99.0", Config)],
    ?assertMatch({0, _}, install([{"CATS_BUILD", "1"} | Environment], Config)),
    ?assertEqual({ok, <<"built for " ?TARGET "\n">>}, installed(Config)),
    ?assertEqual({0, ""}, install([{"CATS_BUILD", "0"} | Environment], Config)),
    ?assertEqual({ok, <<"library">>}, installed(Config)).

not_built(Config) ->
    refused(install([], Config), ["Rust 1.", "none", "rustup.rs", "CATS_NIF"], Config),
    {"PATH", Path} = Old = fake_rust("1.63.0", Config),
    refused(install([Old], Config), ["Rust 1.63.0", "newer", "rustup.rs"], Config),
    fake_rust("1.99.0-nightly", Config),
    ok = file:delete(filename:join(hd(string:lexemes(Path, ":")), "cc")),
    refused(install([Old], Config), ["cc", "linker"], Config),
    ?assertMatch({0, _}, install([Old, {"CARGO_TARGET_ANY_LINKER", "ld"}], Config)).

%% The package has all that cargo reads of the workspace, and nothing that was built.
complete(Config) ->
    Package = proplists:get_value(package, Config),
    [?assertEqual([], filelib:wildcard(Path, Package))
     || Path <- ["priv/cats_nif.so", "_build", "test", "docs", "native/target", "native/*/tests"]],
    Arguments = ["check", "--quiet", "--locked", "--offline", "--package", "cats-sync", "--manifest-path",
                 filename:join(Package, "native/Cargo.toml")],
    ?assertMatch({0, _},
                 run(os:find_executable("cargo"), Arguments, [{"PATH", os:getenv("PATH")}, {"HOME", os:getenv("HOME")},
                                                              {"CARGO_HOME", os:getenv("CARGO_HOME")}], Config)).

%% The names that Erlang has for a machine, and those of Rust.
targets(Config) ->
    Package = proplists:get_value(package, Config),
    Names = [{"x86_64-pc-linux-gnu", "x86_64-unknown-linux-gnu"},
             {"aarch64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"},
             {"x86_64-alpine-linux-musl", "x86_64-unknown-linux-musl"},
             {"aarch64-linux-musl", "aarch64-unknown-linux-musl"},
             {"aarch64-apple-darwin24.6.0", "aarch64-apple-darwin"},
             {"x86_64-apple-darwin19.6.0", "x86_64-apple-darwin"},
             {"arm-unknown-linux-gnueabihf", "arm-unknown-linux-gnueabihf"},
             {"win32", "win32"}],
    {ok, Script} = file:read_file(filename:join(Package, "scripts/fetch-native")),
    [_, Source] = binary:split(Script, <<"\n">>),
    File = filename:join(Package, "fetch_native.erl"),
    ok = file:write_file(File, ["-module(fetch_native).\n", Source]),
    {ok, Module, Beam} = compile:file(File, [binary, export_all, nowarn_export_all]),
    {module, Module} = code:load_binary(Module, File, Beam),
    [?assertEqual(Rust, Module:target(Erlang)) || {Erlang, Rust} <- Names],
    ok.

%% Releases.

rebar3(Config) ->
    Project = project("rebar3", Config),
    ok = write(Project, "src/demo.app.src",
               "{application, demo, [{vsn, \"1\"}, {mod, {demo, []}}, {applications, [kernel, stdlib, cats]}]}.\n"),
    ok = write(Project, "src/demo.erl", "
-module(demo).
-include_lib(\"cats/include/ms_transform.hrl\").
-export([start/2]).
start(_, _) ->
    cats:new(table, [named_table]),
    cats:insert(table, {key, code:get_mode()}),
    counter:new(),
    own:new(),
    {ok, _} = cats_page:live(),
    io:format(\"found ~p ~p~n\", [cats:select(table, cats:fun2ms(fun(Object) -> Object end)), lists:sort(cats:all())]),
    halt(0).
"),
    ok = write(Project, "src/own.erl", "-module(own).\n-export([new/0]).\nnew() -> ets:new(own, [named_table]).\n"),
    %% It stands for the folsom of the recipe.
    Dependency = filename:join(Project, "_checkouts/folsom"),
    ok = write(Dependency, "src/folsom.app.src",
               "{application, folsom, [{vsn, \"1\"}, {applications, [kernel, stdlib]}]}.\n"),
    ok = write(Dependency, "src/counter.erl",
               "-module(counter).\n-export([new/0]).\nnew() -> ets:new(counters, [named_table]).\n"),
    %% Checkouts have a directory of their own.
    Recipe = string:replace(recipe("coming-from-ets.md", "{deps, [cats, folsom]}"), "/lib", "/checkouts", all),
    ok = write(Project, "rebar.config", [recipe("coming-from-ets.md", "{erl_opts, "), Recipe,
               "{relx, [{release, {demo, \"1\"}, [cats, folsom, demo]}, {mode, prod}, {include_erts, false}]}.\n"]),
    ok = file:make_symlink(proplists:get_value(package, Config), filename:join(Project, "_checkouts/cats")),
    release("rebar3", [["release"]], "_build/default/rel/demo/bin/demo", "foreground", "[counters,own,table]", Config).

mix(Config) ->
    Project = project("mix", Config),
    ok = write(Project, "lib/demo.ex", "
defmodule Demo do
  use Application
  def start(_, _) do
    :cats.new(:table, [:named_table])
    :cats.insert(:table, {:key, :code.get_mode()})
    {:ok, _} = Cachex.start()
    49 = Cachex.Shape.area(7)
    {:ok, _} = :cats_page.live()
    :io.format(\"found ~p ~p~n\", [:cats.lookup(:table, :key), :lists.sort(:cats.all())])
    System.halt(0)
  end
end
"),
    %% These stand for the libraries of the recipe: the tables of Cachex are made by Eternal. The protocol is
    %% consolidated by each `mix compile'.
    ok = write(Project, "eternal/lib/eternal.ex", "
defmodule Eternal do
  def start_link(name) do
    {:ok, :proc_lib.spawn_link(fn -> Process.sleep(:ets.new(name, [:named_table, :public]) && :infinity) end)}
  end
end
"),
    ok = write(Project, "cachex/lib/cachex.ex", "
defmodule Cachex do
  def start do
    {:ok, owner} = Eternal.start_link(:counters)
    Stream.repeatedly(fn -> :ets.whereis(:counters) end) |> Enum.find(&(&1 != :undefined))
    true = :ets.insert(:counters, {1, 2})
    {:ok, owner}
  end
end
defprotocol Cachex.Shape do
  def area(shape)
end
defimpl Cachex.Shape, for: Integer do
  def area(n), do: n * n
end
"),
    [ok = write(Project, Name ++ "/mix.exs", ["
defmodule ", Module, ".MixProject do
  use Mix.Project
  def project, do: [app: :", Name, ", version: \"1.0.0\"", Dependencies, "]
end
"]) || {Name, Module, Dependencies} <- [{"eternal", "Eternal", ""},
                                        {"cachex", "Cachex", ", deps: [{:eternal, path: \"../eternal\"}]"}]],
    Recipe = string:replace(recipe("elixir.md", "def project do"), "version: ",
                            "releases: [demo: [include_erts: false]], version: "),
    ok = write(Project, "mix.exs", ["
defmodule Demo.MixProject do
  use Mix.Project
  def application, do: [mod: {Demo, []}]
  defp deps do
    [{:cats, path: \"", proplists:get_value(package, Config), "\"}, {:cachex, path: \"cachex\"},
     {:eternal, path: \"eternal\"}]
  end
", Recipe, "
end
"]),
    release("mix", [["compile"], ["compile", "--force"], ["release", "--quiet"]], "_build/prod/rel/demo/bin/demo",
            "start", "[counters,table]", Config).

%% The block of a document of the guide that begins so.
recipe(Document, Beginning) ->
    {ok, Text} = file:read_file(filename:join([cats_test_lib:root(), "docs/guide", Document])),
    {match, [Recipe]} = re:run(Text, ["(?m)^```[a-z]*\\n(\\Q", Beginning, "\\E.*?)^```"],
                               [dotall, {capture, all_but_first, list}]),
    Recipe.

%% The package has the library of this build as an artifact.
project(Name, Config) ->
    {ok, Library} = file:read_file(filename:join(code:priv_dir(cats), "cats_nif.so")),
    publish(Library, Config),
    filename:join(proplists:get_value(directory, Config), Name).

write(Directory, Name, Text) ->
    File = filename:join(Directory, Name),
    ok = filelib:ensure_dir(File),
    file:write_file(File, Text).

%% Makes a release of a project and starts it.
release(Tool, Calls, Script, Command, Tables, Config) ->
    Project = filename:join(proplists:get_value(directory, Config), Tool),
    Environment = [{"CATS_URL", url(serve(Config))}, {"CATS_TARGET", ?TARGET}, {"MIX_ENV", "prod"},
                   {"RELEASE_DISTRIBUTION", "none"}],
    Tools = proplists:get_value(tools, Config),
    Run = fun(Program, Words) -> run(Program, Words, Environment, [{project, Project} | Config]) end,
    Architecture = erlang:system_info(system_architecture),
    Found = Run(filename:join(Tools, "erl"),
                ["-noshell", "-eval", "io:put_chars(erlang:system_info(system_architecture)), halt()."]),
    case filelib:is_file(filename:join(Tools, Tool)) andalso Found of
        false ->
            {skip, Tool ++ " is missing: `scripts/deps test` installs it"};
        {0, Architecture} ->
            [begin
                 {0, Said} = Run(filename:join(Tools, Tool), Arguments),
                 ?assertEqual(nomatch, string:find(Said, "warning"), Said)
             end || Arguments <- Calls],
            {0, Output} = Run(filename:join(Project, Script), [Command]),
            ?assertNotEqual(nomatch, string:find(Output, "found [{key,embedded}] " ++ Tables), Output);
        {0, _} ->
            {skip, "the Erlang on the PATH is not for the processor of the library"}
    end.
