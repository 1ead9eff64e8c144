%% What cats_recompile makes of applications: of beam files with debug information and without, of Elixir's, and with exceptions.
-module(cats_recompile_SUITE).
-include_lib("stdlib/include/assert.hrl").
-export([all/0, init_per_testcase/2, end_per_testcase/2]).
-export([separate/1, in_place/1, from_source/1, not_possible/1, warned/1, exceptions/1, named_calls/1, elixir/1]).

all() -> [separate, in_place, from_source, not_possible, warned, exceptions, named_calls, elixir].

init_per_testcase(Case, Config) ->
    [{directory, filename:join(proplists:get_value(priv_dir, Config), Case)} | Config].

end_per_testcase(_Case, _Config) ->
    [begin code:purge(Module), code:delete(Module), code:purge(Module) end || Module <- [recompiled_a, recompiled_b]],
    ok.

%% An application with these modules, in a directory with a version in its name.
application(Sources, Options, Config) ->
    Directory = filename:join(proplists:get_value(directory, Config), "original/demo-1.0"),
    [ok = filelib:ensure_path(filename:join(Directory, Name)) || Name <- ["src", "ebin", "priv"]],
    [begin
         File = filename:join([Directory, "src", Module ++ ".erl"]),
         ok = file:write_file(File, ["-module(", Module, ").\n\n", Source]),
         {ok, _} = compile:file(File, [export_all, nowarn_export_all, {outdir, filename:join(Directory, "ebin")} | Options])
     end || {Module, Source} <- Sources],
    ok = file:write_file(filename:join(Directory, "ebin/demo.app"), "{application, demo, [{vsn, \"1.0\"}]}.\n"),
    ok = file:write_file(filename:join(Directory, "priv/data"), "some data"),
    Directory.

out(Config) -> filename:join(proplists:get_value(directory, Config), "out").

load(Module, Directory) ->
    _ = code:purge(Module),
    {module, Module} = code:load_abs(filename:join([Directory, "ebin", Module])).

-define(TABLES, "new() -> T = ets:new(t, [public]), ets:insert(T, {a, 1}), T.\n").

%% Which module has a table.
kind(Table) ->
    case {lists:member(Table, cats:all()), lists:member(Table, ets:all())} of
        {true, false} -> cats;
        {false, true} -> ets
    end.

%% A second application, with the other files of the first.
separate(Config) ->
    Original = application([{"recompiled_a", ?TABLES}], [debug_info], Config),
    ?assertEqual({ok, [recompiled_a], []}, cats_recompile:apps([Original], out(Config))),
    New = filename:join(out(Config), "demo"),
    load(recompiled_a, New),
    ?assertEqual(cats, kind(apply(recompiled_a, new, []))),
    ?assertEqual({ok, <<"some data">>}, file:read_file(filename:join(New, "priv/data"))),
    ?assertMatch({ok, [{application, demo, _}]}, file:consult(filename:join(New, "ebin/demo.app"))),
    load(recompiled_a, Original),
    ?assertEqual(ets, kind(apply(recompiled_a, new, []))),
    %% The name of an application in the code path. The result can be made again.
    true = code:add_patha(filename:join(Original, "ebin")),
    ?assertEqual({ok, [recompiled_a], []}, cats_recompile:apps([demo], out(Config))),
    true = code:del_path(filename:join(Original, "ebin")).

%% What replaces the original can itself be recompiled.
in_place(Config) ->
    Original = application([{"recompiled_a", ?TABLES}], [debug_info], Config),
    Directory = filename:join(filename:dirname(Original), "demo"),
    ok = file:rename(Original, Directory),
    [begin
         ?assertEqual({ok, [recompiled_a], []}, cats_recompile:apps([Directory], filename:dirname(Directory))),
         load(recompiled_a, Directory),
         ?assertEqual(cats, kind(apply(recompiled_a, new, [])))
     end || _ <- [1, 2]],
    ?assertEqual({ok, ["data"]}, file:list_dir(filename:join(Directory, "priv"))).

%% The macros and parse transforms of the first compilation count again.
from_source(Config) ->
    Source = "-include_lib(\"stdlib/include/ms_transform.hrl\").\n" ?TABLES
        "chosen() -> T = ets:new(t, []), ets:insert(T, {?KEY, 7}), ets:select(T, ets:fun2ms(fun({?KEY, N}) -> N end)).\n",
    Original = application([{"recompiled_a", Source}], [{d, 'KEY', key}], Config),
    ?assertEqual({ok, [recompiled_a], []}, cats_recompile:apps([Original], out(Config))),
    load(recompiled_a, filename:join(out(Config), "demo")),
    ?assertEqual({cats, [7]}, {kind(apply(recompiled_a, new, [])), apply(recompiled_a, chosen, [])}).

%% All reasons are told, and nothing is written.
not_possible(Config) ->
    Original = application([{"recompiled_a", ?TABLES}, {"recompiled_b", ?TABLES}], [], Config),
    ok = file:rename(filename:join(Original, "src"), filename:join(Original, "hidden")),
    {error, [A, B]} = cats_recompile:apps([Original], out(Config)),
    [?assertEqual({match, ["no debug information", Module ++ ".erl is missing"]},
                  re:run(cats_recompile:format_error(Reason), "(no debug information).*(recompiled_..erl is missing)",
                         [{capture, all_but_first, list}]))
     || {Module, Reason} <- [{"recompiled_a", A}, {"recompiled_b", B}]],
    {error, [{no_application, nothing} = None, {no_application, "/nothing"}]} =
        cats_recompile:apps([nothing, "/nothing"], out(Config)),
    ?assertMatch({match, _}, re:run(cats_recompile:format_error(None), "no application nothing")),
    ok = file:rename(filename:join(Original, "hidden"), filename:join(Original, "src")),
    ok = file:write_file(filename:join(Original, "src/recompiled_b.erl"), "-module(recompiled_b).\nf() -> X.\n"),
    {error, [Wrong]} = cats_recompile:apps([Original], out(Config), [report]),
    ?assertMatch({match, _}, re:run(cats_recompile:format_error(Wrong), "recompiled_b.erl:2:.*'X' is unbound")),
    ok = file:write_file(filename:join(Original, "ebin/recompiled_b.beam"), "nonsense"),
    {error, [{bad_file, _, _} = Damaged]} = cats_recompile:apps([Original], out(Config)),
    ?assertMatch({match, _}, re:run(cats_recompile:format_error(Damaged), "recompiled_b.beam cannot be read")),
    ?assertError({bad_exception, sys_dist}, cats_recompile:apps([Original], out(Config), [{except, [sys_dist]}])),
    ?assertEqual({error, enoent}, file:list_dir(out(Config))).

%% A value counts because another module calls a module that it knows only when it runs.
warned(Config) ->
    Original = application([{"recompiled_a", "f(T) -> recompiled_b:g(ets, T).\n"
                             "h() -> dbg:tp(ets, insert, []), erlang:trace_pattern({ets, insert, 2}, true), {ets, insert, [t]}.\n"},
                            {"recompiled_b", "g(M, T) -> M:insert(T, {1}).\n"}], [debug_info], Config),
    {ok, [recompiled_a, recompiled_b], Warnings} = cats_recompile:apps([Original], out(Config)),
    ?assertEqual([{3, value}, {4, traced}, {4, traced}, {4, {function, insert}}],
                 [{Line, What} || {File, [{{Line, _}, cats_transform, What}]} <- Warnings,
                                  filename:basename(File) =:= "recompiled_a.erl"]),
    ?assertEqual(4, length(Warnings)).

exceptions(Config) ->
    Original = application([{"recompiled_a", ?TABLES "f() -> ets:new(t, []).\ng() -> X = ets, X:info(t).\n"
                             "names() -> [ets:new(Name, [named_table]) || Name <- [one]], ets:new(two, [named_table]),\n"
                             "    ets:insert(two, {a}), [ets:whereis(one) =:= undefined, ets:whereis(two) =:= undefined].\n"}],
                           [debug_info], Config),
    Options = [{except, [{recompiled_a, f}, {recompiled_a, g}, {table, two}]}],
    ?assertEqual({ok, [recompiled_a], []}, cats_recompile:apps([Original], out(Config), Options)),
    load(recompiled_a, filename:join(out(Config), "demo")),
    ?assertEqual({cats, ets}, {kind(apply(recompiled_a, new, [])), kind(apply(recompiled_a, f, []))}),
    ?assertEqual([false, false], apply(recompiled_a, names, [])),
    ?assertEqual({[{a}], undefined}, {ets:lookup(two, a), cats:whereis(two)}),
    ?assertEqual({undefined, []}, {ets:whereis(one), cats:tab2list(one)}).

%% A function that takes a module is followed if it is named, in all applications.
named_calls(Config) ->
    Original = application([{"recompiled_a", "new() -> recompiled_b:call(ets, new, [t, [public]]).\n"},
                            {"recompiled_b", "call(M, F, A) -> apply(M, F, A).\n"}], [debug_info], Config),
    {ok, _, [_]} = cats_recompile:apps([Original], out(Config)),
    ?assertMatch({ok, _, []}, cats_recompile:apps([Original], out(Config), [{calls, [{recompiled_b, call, 3, 1}]}])),
    [load(Module, filename:join(out(Config), "demo")) || Module <- [recompiled_a, recompiled_b]],
    ?assertEqual(cats, kind(apply(recompiled_a, new, []))).

%% Elixir writes its debug information in a form of its own. The documentation stays.
elixir(Config) ->
    Directory = filename:join(proplists:get_value(directory, Config), "demo"),
    ok = filelib:ensure_path(filename:join(Directory, "ebin")),
    Source = filename:join(Directory, "counter.ex"),
    ok = file:write_file(Source, "
defmodule Counter do
  @moduledoc \"Counts.\"
  def new, do: :ets.new(:t, [:set])
  def tables, do: Enum.map([:a, :b], &:ets.new(&1, []))
  def kept, do: :ets.new(:kept_in_ets, [:named_table])
end
"),
    case os:find_executable("elixir") of
        false -> {skip, "Elixir is missing: `scripts/deps test` installs it"};
        Elixir ->
            Command = ["'", Elixir, "' -e 'Code.compiler_options(docs: true); [{m, b}] = Code.compile_file(\"", Source,
                       "\"); File.write!(\"", filename:join(Directory, "ebin"),
                       "/#{m}.beam\", b); IO.write([\"lib \", :code.lib_dir(:elixir)])' 2>&1"],
            case string:split(os:cmd(lists:flatten(Command)), "lib ") of
                ["", Library] -> elixir(Directory, Library, Config);
                _ -> {skip, "no Elixir that runs on this OTP"}
            end
    end.

elixir(Directory, Library, Config) ->
    ?assertMatch({error, [{no_backend, _, elixir_erl}]}, cats_recompile:apps([Directory], out(Config))),
    true = code:add_pathz(filename:join(Library, "ebin")),
    try
        ?assertEqual({ok, ['Elixir.Counter'], []}, cats_recompile:apps([Directory], out(Config), [{except, [{table, kept_in_ets}]}])),
        Beam = filename:join(out(Config), "demo/ebin/Elixir.Counter"),
        {module, Module} = code:load_abs(Beam),
        ?assertEqual([cats, cats, cats], [kind(Table) || Table <- [apply(Module, new, []) | apply(Module, tables, [])]]),
        ?assertEqual({kept_in_ets, true}, {apply(Module, kept, []), ets:whereis(kept_in_ets) =/= undefined}),
        {ok, {_, Chunks}} = beam_lib:chunks(Beam, ["Docs"]),
        ?assertMatch([{"Docs", <<_, _/binary>>}], Chunks)
    after
        code:del_path(filename:join(Library, "ebin"))
    end.
