%% What cats_recompile makes of applications: of beam files with debug information and without, of Elixir's, and with
%% exceptions.
-module(cats_recompile_SUITE).
-include_lib("kernel/include/file.hrl").
-include_lib("stdlib/include/assert.hrl").
-export([all/0, init_per_testcase/2, end_per_testcase/2]).
-export([separate/1, in_place/1, copied/1, kept_chunks/1, chosen_modules/1, full_disk/1, from_source/1, not_possible/1,
         warned/1, exceptions/1, named_calls/1, server/1, elixir/1]).

all() ->
    [separate, in_place, copied, kept_chunks, chosen_modules, full_disk, from_source, not_possible, warned, exceptions,
     named_calls, server, elixir].

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
         {ok, _} = compile:file(File,
                                [export_all, nowarn_export_all, {outdir, filename:join(Directory, "ebin")} | Options])
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
         ?assertEqual({ok, Changed, []}, cats_recompile:apps([Directory], filename:dirname(Directory))),
         load(recompiled_a, Directory),
         ?assertEqual(cats, kind(apply(recompiled_a, new, [])))
     end || Changed <- [[recompiled_a], []]],
    ?assertEqual({ok, ["data"]}, file:list_dir(filename:join(Directory, "priv"))).

%% All files of `ebin' that need not change are copies, and what is in place already is not written again. A module that
%% does not name `ets' needs no debug information.
copied(Config) ->
    Original = application([{"recompiled_a", ?TABLES}], [debug_info], Config),
    Same = application([{"recompiled_b", "f(T) -> lists:sort(T).\n"}], [], Config),
    ok = file:delete(filename:join(Same, "src/recompiled_b.erl")),
    ok = filelib:ensure_path(filename:join(Original, "ebin/more")),
    [ok = file:write_file(filename:join([Original, "ebin", Name]), Name)
     || Name <- ["demo.appup", "more/tool", ".hidden"]],
    ok = file:change_mode(filename:join(Original, "ebin/more/tool"), 8#755),
    ?assertEqual({ok, [recompiled_a], []}, cats_recompile:apps([Original], out(Config))),
    New = filename:join(out(Config), "demo/ebin"),
    Files = ["demo.app", "demo.appup", "more/tool", ".hidden", "recompiled_b.beam"],
    [?assertEqual(file:read_file(filename:join([Original, "ebin", Name])), file:read_file(filename:join(New, Name)))
     || Name <- Files],
    ?assertMatch({ok, #file_info{mode = Mode}} when Mode band 8#777 =:= 8#755,
                 file:read_file_info(filename:join(New, "more/tool"))),
    Written = fun() ->
                      [element(2, file:read_file_info(filename:join(New, Name)))
                       || Name <- ["recompiled_a.beam" | Files]]
              end,
    Before = Written(),
    ok = file:write_file(filename:join(New, "demo.appup"), "another"),
    ?assertEqual({ok, [recompiled_a], []}, cats_recompile:apps([Original], out(Config))),
    ?assertEqual(["demo.appup"], [Name || {Name, #file_info{inode = Old}, #file_info{inode = Now}}
                                              <- lists:zip3(["recompiled_a.beam" | Files], Before, Written()),
                                          Old =/= Now]).

%% The source, the options, and what other tools have put into the file.
kept_chunks(Config) ->
    Original = application([{"recompiled_a", ?TABLES}], [debug_info, {d, 'MACRO', 7}], Config),
    File = filename:join(Original, "ebin/recompiled_a.beam"),
    {ok, _, Chunks} = beam_lib:all_chunks(File),
    {ok, Whole} = beam_lib:build_module(Chunks ++ [{"Mine", <<"more">>}]),
    ok = file:write_file(File, Whole),
    ?assertEqual({ok, [recompiled_a], []}, cats_recompile:apps([Original], out(Config))),
    [{ok, {_, [{_, Before} | Same]}}, {ok, {_, [{_, After} | Same]}}] =
        [beam_lib:chunks(filename:join([Directory, "ebin/recompiled_a.beam"]), [compile_info, "Mine"])
         || Directory <- [Original, filename:join(out(Config), "demo")]],
    ?assertEqual(lists:sort(Before), lists:sort(After)),
    load(recompiled_a, filename:join(out(Config), "demo")),
    ?assertEqual(filename:join(Original, "src/recompiled_a.erl"),
                 proplists:get_value(source, recompiled_a:module_info(compile))).

chosen_modules(Config) ->
    Original = application([{"recompiled_a", ?TABLES}, {"recompiled_b", ?TABLES}], [debug_info], Config),
    %% One that is not chosen need not be readable.
    ok = file:write_file(filename:join(Original, "ebin/recompiled_c.beam"), "nonsense"),
    ?assertEqual({error, [{no_module, recompiled_d}]},
                 cats_recompile:apps([Original], out(Config), [{modules, [recompiled_b, recompiled_d]}])),
    ?assertError({bad_module, "a"}, cats_recompile:apps([Original], out(Config), [{modules, ["a"]}])),
    ?assertEqual({ok, [recompiled_b], []}, cats_recompile:apps([Original], out(Config), [{modules, [recompiled_b]}])),
    [load(Module, filename:join(out(Config), "demo")) || Module <- [recompiled_a, recompiled_b]],
    ?assertEqual([ets, cats], [kind(apply(Module, new, [])) || Module <- [recompiled_a, recompiled_b]]),
    %% Those of OTP itself.
    {ok, Changed, _} = cats_recompile:apps([stdlib], out(Config), [{modules, [qlc, dets]}]),
    ?assertEqual([dets, qlc], lists:sort(Changed)).

%% A failure in the middle leaves all files of the original.
full_disk(Config) ->
    Original = application([{"recompiled_a", ?TABLES}], [debug_info], Config),
    Directory = filename:join(filename:dirname(Original), "demo"),
    ok = file:rename(Original, Directory),
    Large = filename:join(Directory, "ebin/zzz"),
    ok = file:write_file(Large, binary:copy(<<0>>, 100000)),
    {ok, Beam} = file:read_file(filename:join(Directory, "ebin/recompiled_a.beam")),
    Out = filename:join(out(Config), "limited"),
    Source = io_lib:format("io:format(\"~~0tp\", [cats_recompile:apps([~tp], ~tp)]), halt().", [Directory, Out]),
    {0, Output} = cats_test_lib:run("sh", ["-c", "trap '' XFSZ; ulimit -f 64; exec \"$0\" \"$@\"",
                                           filename:join(code:root_dir(), "bin/erl"), "-noinput", "-pa",
                                           filename:dirname(code:which(cats)), "-eval", Source]),
    ?assertEqual(lists:flatten(io_lib:format("{error,[{bad_file,~0tp,efbig}]}", [filename:join(Out, "demo/ebin/zzz")])),
                 Output),
    ?assertEqual({ok, []}, file:list_dir(filename:join(Out, "demo/ebin"))),
    ?assertEqual({ok, Beam}, file:read_file(filename:join(Directory, "ebin/recompiled_a.beam"))).

%% The macros and parse transforms of the first compilation count again.
from_source(Config) ->
    Source = "-include_lib(\"stdlib/include/ms_transform.hrl\").\n" ?TABLES
        "chosen() -> T = ets:new(t, []), ets:insert(T, {?KEY, 7}), ets:select(T, ets:fun2ms(fun({?KEY, N}) -> N "
        "end)).\n",
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
    [?assertError({bad_option, Option}, cats_recompile:apps([Original], out(Config), [report, Option]))
     || Option <- [repot, {exept, []}]],
    ?assertError({bad_exception, sys_dist}, cats_recompile:apps([Original], out(Config), [{except, [sys_dist]}])),
    ?assertEqual({error, enoent}, file:list_dir(out(Config))).

%% A value counts because another module calls a module that it knows only when it runs.
warned(Config) ->
    Original = application([{"recompiled_a", "f(T) -> recompiled_b:g(ets, T).\n"
                             "h() -> dbg:tp(ets, insert, []), erlang:trace_pattern({ets, insert, 2}, true), {ets, "
                             "insert, [t]}.\n"},
                            {"recompiled_b", "g(M, T) -> M:insert(T, {1}).\n"}], [debug_info], Config),
    {ok, [], Warnings} = cats_recompile:apps([Original], out(Config)),
    ?assertEqual([{3, {value, {recompiled_b, g, 2, 1}}}, {4, traced}, {4, traced}, {4, {function, insert}}],
                 [{Line, What} || {File, [{{Line, _}, cats_transform, What}]} <- Warnings,
                                  filename:basename(File) =:= "recompiled_a.erl"]),
    ?assertEqual(4, length(Warnings)).

exceptions(Config) ->
    Original = application([{"recompiled_a", ?TABLES "f() -> ets:new(t, []).\ng() -> X = ets, X:info(t).\n"
                             "names() -> [ets:new(Name, [named_table]) || Name <- [one]], ets:new(two, "
                             "[named_table]),\n"
                             "    ets:insert(two, {a}), [ets:whereis(one) =:= undefined, ets:whereis(two) =:= "
                             "undefined].\n"}],
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

%% The recipe of docs/guide/servers.md.
server(Config) ->
    Original = application([{"recompiled_a", ?TABLES}], [debug_info], Config),
    Ebin = filename:join([filename:dirname(Original), "my_server", "ebin"]),
    ok = file:rename(Original, filename:dirname(Ebin)),
    ok = file:rename(filename:join(Ebin, "demo.app"), filename:join(Ebin, "my_server.app")),
    Root = cats_test_lib:root(),
    {ok, Guide} = file:read_file(filename:join(Root, "docs/guide/servers.md")),
    {match, [Recipe, Arguments]} =
        re:run(Guide, "(?s)```\n(\\{ok.*?)```.*?\n    erl -pa \\.\\.\\./cats/ebin (.*?) \\.\\.\\.\n",
               [{capture, all_but_first, list}]),
    {ok, Tokens, _} = erl_scan:string(Recipe),
    {ok, Expressions} = erl_parse:parse_exprs(Tokens),
    {ok, Before} = file:get_cwd(),
    ok = filelib:ensure_path(out(Config)),
    ok = file:set_cwd(out(Config)),
    true = code:add_patha(Ebin),
    try
        {value, {ok, Changed, _}, _} = erl_eval:exprs(Expressions, []),
        ?assert(lists:member(recompiled_a, Changed)),
        Check = "T = recompiled_a:new(), ok = mnesia:start(), "
            "io:format(\"~w\", [[lists:member(Table, cats:all()) || Table <- [T, schema]]]), halt().",
        ?assertEqual({0, "[true,true]"},
                     cats_test_lib:run(filename:join(code:root_dir(), "bin/erl"),
                                       ["-noinput", "-pa", filename:dirname(code:which(cats))]
                                       ++ string:lexemes(Arguments, " ")
                                       ++ ["-eval", Check]))
    after
        code:del_path(Ebin),
        ok = file:set_cwd(Before)
    end.

%% Elixir writes its debug information in a form of its own. It still finds there what it needs: the clauses of
%% functions, protocols, documentation, sources.
elixir(Config) ->
    Directory = filename:join(proplists:get_value(directory, Config), "demo"),
    Beams = filename:join(Directory, "ebin"),
    ok = filelib:ensure_path(Beams),
    Source = filename:join(Directory, "counter.ex"),
    ok = file:write_file(Source, "
defmodule Counter do
  @moduledoc \"Counts.\"
  @doc \"\"\"
      iex> Counter.half(4)
      2
  \"\"\"
  def half(n) when rem(n, 2) == 0, do: div(n, 2)
  def new, do: :ets.new(:t, [:set])
  def tables, do: Enum.map([:a, :b], &:ets.new(&1, []))
  def kept, do: :ets.new(:kept_in_ets, [:named_table])
end
defmodule Counter.Macros do
  defmacro count(table, key) do
    quote do
      :ets.update_counter(unquote(table), unquote(key), 1)
    end
  end
end
defprotocol Counter.Shape do
  def area(shape)
end
defimpl Counter.Shape, for: Integer do
  def area(n), do: n * n
end
defprotocol Counter.Tabled do
  Kernel.def made, do: :ets.new(:t, [])
  def table(shape)
end
"),
    case cats_test_lib:run("elixir", ["-e", "IO.write([\"lib \", :code.lib_dir(:elixir)])"]) of
        {0, "lib " ++ Library} ->
            {0, ""} = cats_test_lib:run("elixirc", ["-o", Beams, Source]),
            elixir(Directory, Library, Config);
        _ ->
            {skip, "no Elixir that runs on this OTP"}
    end.

elixir(Directory, Library, Config) ->
    {error, [{no_backend, _, elixir_erl} | _]} = cats_recompile:apps([Directory], out(Config)),
    true = code:add_pathz(filename:join(Library, "ebin")),
    try
        {ok, Changed, Warnings} = cats_recompile:apps([Directory], out(Config), [{except, [{table, kept_in_ets}]}]),
        ?assertEqual(['Elixir.Counter', 'Elixir.Counter.Tabled'], lists:sort(Changed)),
        ?assertEqual([{14, macro}, {26, protocol}],
                     [{Line, What}
                      || {File, [{Line, cats_transform, What}]} <- Warnings, filename:basename(File) =:= "counter.ex"]),
        New = filename:join(out(Config), "demo/ebin"),
        Beam = filename:join(New, "Elixir.Counter"),
        {module, Module} = code:load_abs(Beam),
        ?assertEqual([cats, cats, cats],
                     [kind(Table) || Table <- [apply(Module, new, []) | apply(Module, tables, [])]]),
        ?assertEqual({kept_in_ets, true}, {apply(Module, kept, []), ets:whereis(kept_in_ets) =/= undefined}),
        ets:delete(kept_in_ets),
        %% What cover and Dialyzer see is what runs.
        {ok, {_, [{abstract_code, {_, Forms}}]}} = beam_lib:chunks(Beam, [abstract_code]),
        ?assertNotEqual(nomatch, string:find(io_lib:format("~p", [Forms]), "cats")),
        {ok, {_, [{debug_info, {debug_info_v1, Backend, Data}}]}} = beam_lib:chunks(Beam, [debug_info]),
        ?assertMatch({ok, #{definitions := [_ | _]}}, Backend:debug_info(elixir_v1, Module, Data, [])),
        ?assertMatch({ok, _}, Backend:debug_info(core_v1, Module, Data, [])),
        ?assertMatch({ok, [], [_]}, cats_recompile:apps([filename:dirname(New)], filename:join(out(Config), "again"),
                                                           [{except, [{table, kept_in_ets}]}])),
        ?assertEqual({0, ""}, cats_test_lib:run("elixir", ["-pa", filename:dirname(code:which(cats)), "-pa", New,
                                                           "-e", "
ExUnit.start(autorun: false, formatters: [])
defmodule CounterTest do
  use ExUnit.Case
  doctest Counter
end
%{total: 1, failures: 0} = ExUnit.run()
{:docs_v1, _, _, _, %{\"en\" => \"Counts.\"}, _, _} = Code.fetch_docs(Counter)
{_, [{Counter, :half, _, _} | _] = stack} = try do Counter.half(3) rescue e -> {e, __STACKTRACE__} end
{blamed, _} = Exception.blame(:error, :function_clause, stack)
true = Exception.message(blamed) =~ \"def half(n)\"
{:ok, consolidated} = Protocol.consolidate(Counter.Shape, [Integer])
{:module, _} = :code.load_binary(Counter.Shape, 'consolidated', consolidated)
49 = Counter.Shape.area(7)
{:ok, _} = Protocol.consolidate(Counter.Tabled, [])
"]))
    after
        code:del_path(filename:join(Library, "ebin"))
    end.
