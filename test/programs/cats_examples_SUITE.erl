%% The examples of README.md and of the guide do what they say. All blocks of a language in a document run one after the
%% other, and each sees the variables of those before it. A block that begins with -module is compiled and loaded. Other
%% attributes are parsed. The programs of examples/ run with few objects.
-module(cats_examples_SUITE).
-include_lib("stdlib/include/assert.hrl").
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([erlang/1, elixir/1, bank/1, backup/1, leaderboard/1, problems/1]).

suite() -> [{timetrap, {minutes, 10}}].

all() -> [erlang, elixir, bank, backup, leaderboard, problems].

init_per_suite(Config) -> cats_test_lib:start(Config).

end_per_suite(_Config) -> ok.

documents() ->
    Root = cats_test_lib:root(),
    [filename:join(Root, "README.md") | filelib:wildcard(filename:join(Root, "docs/guide/*.md"))].

%% Some examples show what happens within a second or so, and fail on a machine that is busy for as long.
tries(Run) -> tries(Run, 3).

tries(Run, 1) -> Run();
tries(Run, Left) ->
    try
        Run()
    catch
        error:Reason ->
            ct:pal("fails: ~p", [Reason]),
            tries(Run, Left - 1)
    end.

%% The blocks of a language in a document.
blocks(Document, Language) ->
    {ok, Text} = file:read_file(Document),
    case re:run(Text, ["(?m)^```", Language, "\\n(.*?)^```"], [dotall, global, {capture, all_but_first, list}]) of
        {match, Blocks} -> lists:append(Blocks);
        nomatch -> []
    end.

erlang(Config) ->
    Directory = proplists:get_value(priv_dir, Config),
    {ok, Before} = file:get_cwd(),
    %% Some write files.
    ok = file:set_cwd(Directory),
    Run = fun(Blocks) -> lists:foldl(fun(Block, Bindings) -> run(Block, Bindings, Directory) end, [], Blocks) end,
    Ran = [tries(fun() -> in_process(fun() -> Run(Blocks) end, Document) end)
           || Document <- documents(), Blocks <- [blocks(Document, "erlang")], Blocks =/= []],
    ok = file:set_cwd(Before),
    ?assert(length(Ran) > 3).

run("-module(" ++ Name = Source, Bindings, Directory) ->
    File = filename:join(Directory, hd(string:lexemes(Name, ")"))),
    ok = file:write_file(File ++ ".erl", Source),
    {ok, Module} = compile:file(File, [{outdir, Directory}, report, warnings_as_errors]),
    {module, Module} = code:load_abs(File),
    Bindings;
run("-" ++ _ = Attribute, Bindings, _Directory) ->
    {ok, Tokens, _} = erl_scan:string(Attribute),
    {ok, _} = erl_parse:parse_form(Tokens),
    Bindings;
run(Expressions, Bindings0, _Directory) ->
    {ok, Tokens, _} = erl_scan:string(Expressions),
    {ok, Parsed} = erl_parse:parse_exprs(Tokens),
    {value, _, Bindings} = erl_eval:exprs(Parsed, Bindings0, none, {value, fun called/2}),
    Bindings.

%% Of Mnesia two modules are recompiled, which takes long. The other suites of this folder recompile all of it.
called({cats_recompile, apps}, [[mnesia] = Apps, Out | Options]) ->
    cats_recompile:apps(Apps, Out, lists:append(Options) ++ [{modules, [mnesia_locker, mnesia_lib]}]);
called({Module, Function}, Arguments) ->
    apply(Module, Function, Arguments);
called(Fun, Arguments) ->
    apply(Fun, Arguments).

%% An old Elixir may not run on this OTP, whose erl comes first in the PATH here.
elixir(_Config) ->
    case evaluate("[] = []") of
        {0, _} ->
            Documents = [Document || Document <- documents(), blocks(Document, "elixir") =/= []],
            ?assert(length(Documents) > 2),
            [tries(fun() -> ?assertMatch({_, {0, _}}, {Document, evaluate(source(Document))}) end)
             || Document <- Documents];
        _ ->
            {skip, "no Elixir that runs on this OTP"}
    end.

%% All blocks but those of mix.exs, which begin with defp.
source(Document) ->
    lists:append([Block || Block <- blocks(Document, "elixir"), string:prefix(Block, "defp ") =:= nomatch]).

evaluate(Source) ->
    cats_test_lib:run("elixir", ["-pa", filename:dirname(code:which(cats)), "-e", Source]).

bank(Config) ->
    load(bank, Config),
    in_process(fun() ->
                       some_work(fun() ->
                                         #{transfers := Transfers, killed := Killed, audits := Audits, wrong := 0} =
                                             bank:run(20, 4, 300),
                                         min(min(Transfers, Killed), Audits - 1)
                                 end)
               end, bank).

%% On a busy machine the first runs may do nothing.
some_work(Run) -> cats_test_lib:eventually(fun() -> Run() > 0 end).

backup(Config) ->
    load(backup, Config),
    in_process(fun() ->
                       {Pieces, _, Pieces, Held} = backup:run(500, 4, proplists:get_value(priv_dir, Config)),
                       ?assert(Held > 0)
               end, backup).

leaderboard(Config) ->
    load(leaderboard, Config),
    in_process(fun() ->
                       some_work(fun() ->
                                         #{updates := Updates, reads := Reads, disorder := 0, wrong := 0} =
                                             leaderboard:run(5000, 3, 500),
                                         min(Updates, Reads)
                                 end)
               end, leaderboard).

%% Each problem is seen in what changes meanwhile: the table with it is the first by the figure that tells.
problems(Config) ->
    load(problems, Config),
    Figures = #{hot_key => operations, growing_bag => size, leak => size, scan => scans},
    ?assertEqual(lists:sort(maps:keys(Figures)), lists:sort(problems:kinds())),
    [in_process(fun() ->
                        Table = problems:start(Kind),
                        Before = cats:stats(),
                        cats_test_lib:eventually(
                          fun() ->
                                  timer:sleep(500),
                                  Changes = [{maps:get(Figure, Change), Name}
                                             || {Name, #{Figure := _} = Change} <-
                                                    maps:to_list(cats:stats_delta(Before, cats:stats()))],
                                  [{Most, First}, {Next, _} | _] = lists:reverse(lists:sort(Changes)),
                                  First =:= Table andalso Most > Next + 3
                          end, 60000),
                        #{scans := Scans} = maps:get(Table, cats:stats()),
                        ?assertEqual(Kind =:= scan, Scans > 0)
                end, Kind) || {Kind, Figure} <- maps:to_list(Figures)].

%% Compiles and loads a program of examples/.
load(Module, Config) ->
    [Document | _] = documents(),
    Source = filename:join([filename:dirname(Document), "examples", Module, Module]),
    Directory = proplists:get_value(priv_dir, Config),
    {ok, Module} = compile:file(Source, [{outdir, Directory}, report, warnings_as_errors]),
    {module, Module} = code:load_abs(filename:join(Directory, Module)).

%% Runs in a process of its own. Its tables end with it, and so do the processes that it is linked to. They could use
%% tables of the next process otherwise, which have the same names.
in_process(Function, Document) ->
    {Pid, Monitor} = spawn_monitor(fun() -> Function(), end_linked() end),
    receive {'DOWN', Monitor, process, Pid, Reason} -> ?assertEqual({Document, normal}, {Document, Reason}) end.

end_linked() ->
    process_flag(trap_exit, true),
    {links, Linked} = process_info(self(), links),
    [begin exit(Process, kill), receive {'EXIT', Process, _} -> ok end end || Process <- Linked, is_pid(Process)].
