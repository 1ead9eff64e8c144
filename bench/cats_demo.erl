%% The main comparison: ets_bench on ets and on cats. ets has the options that are best for each row, cats has
%% its defaults. They run in turns in one VM, with the same operations. While it measures, the demo shows one
%% line with its progress and the time left. At the end it prints a table and a chart, and writes the chart to
%% an SVG file. A row has a table type, a number of workers and a phase, the operations per second of both and
%% their ratio.
%%
%% First every sensible combination of ets' concurrency options runs once. Those that were best in a row compete
%% again in every repeat. A row shows the one with the best median. Its figures are medians over the repeats, and the
%% ratio is that of these two figures. The spread is that of the ratios within each repeat.
%%
%% A second table has what programs store, see cats_demo_sessions.
-module(cats_demo).
-export([main/1, chart/1, svg/1, seconds_left/2]).
-export_type([row/0, progress/0]).

-type row() :: {Type :: atom(), Workers :: pos_integer(), ets_bench:phase(), Ets :: float(),
                EtsOptions :: string(), Cats :: float(), Ratio :: float(), Lowest :: float(), Highest :: float()}.

%% How many measurements are done, and how many there are at most. Times are in milliseconds.
-type progress() :: #{done := non_neg_integer(), total := pos_integer(), started := integer(),
                      shown := integer(), terminal := boolean()}.

%% Without a terminal, a line of progress comes at most this often.
-define(INTERVAL_MS, 10_000).

%% The longest bar of the chart in the terminal, in characters. A line of the chart has less than 80.
-define(BAR, 48).

%% @doc Runs the comparison and halts. `quick' takes smaller tables, `full' those of the papers. `against'
%% names what to put in the place of cats (`ets' shows the noise: ratios of 1). `terminal' says whether the
%% output is a terminal, where the line of progress can be rewritten. `svg' names the file for the chart.
-spec main([quick | full | {against, ets | cats} | {terminal, boolean()} | {svg, file:filename()}]) ->
          no_return().
main(Arguments) ->
    Subject = {"cats", proplists:get_value(against, Arguments, cats), []},
    {Operations, Repeats} = case lists:member(quick, Arguments) of
                                true -> {1 bsl 17, 3};
                                false -> {1 bsl 20, 3}
                            end,
    Start = now_ms(),
    Schedulers = erlang:system_info(schedulers_online),
    say("ets_bench on OTP ~s, ~b scheduler~s: ~b operations a phase~non keys from 1 to ~b, objects {Key}, "
        "~b repeats~n",
        [erlang:system_info(otp_release), Schedulers, plural(Schedulers), Operations, 2 * Operations,
         Repeats]),
    ets_bench:warm_up(),
    Groups = [{Type, Workers} || Type <- [set, ordered_set], Workers <- lists:usort([1, Schedulers])],
    Total = lists:sum([length(combinations(Type)) + Repeats * (most_candidates(Type) + 1)
                       || {Type, _} <- Groups]),
    Progress = #{done => 0, total => Total, started => now_ms(), shown => now_ms(),
                 terminal => proplists:get_bool(terminal, Arguments)},
    {Rows, Last} = lists:mapfoldl(fun({Type, Workers}, P) ->
                                      compare(Subject, Type, Workers, Operations, Repeats, P)
                                  end, Progress, Groups),
    clear(Last),
    print(lists:append(Rows)),
    say("~nratio: cats by ets with its best options (r: read_concurrency, w: write_concurrency, auto: its~n"
        "automatic number of locks, d: decentralized_counters, d-: without them). Figures are medians of the~n"
        "repeats. spread: the lowest and the highest ratio of a repeat.~n~n", []),
    say("~s~n", [chart(lists:append(Rows))]),
    cats_demo_sessions:run(Subject),
    say("~n~b seconds in all.~n", [(now_ms() - Start) div 1000]),
    File = proplists:get_value(svg, Arguments),
    ok = file:write_file(File, svg(lists:append(Rows))),
    say("The chart as a file: ~s~n", [File]),
    say("~nWhat to try next, after `make shell':~n"
        "  1. your own calls on all kinds of tables:  cats_advise:workload(#{types => [set], objects => 100000}).~n"
        "  2. the tables of a node of yours:          cats_advise:node('name@host', 60).~n"
        "  3. the page that shows tables in use:      {ok, _, Url} = cats_web:start(#{}).~n"
        "The guide begins with docs/guide/getting-started.md~n", []),
    halt(0).

combinations(Type) -> [Ets || {_, ets, _} = Ets <- bench_tables:subjects(all, Type)].

%% Each row has one best combination, so no more compete again than there are rows.
most_candidates(Type) -> min(length(combinations(Type)), length(ets_bench:phases())).

compare(Subject, Type, Workers, Operations, Repeats, Progress0) ->
    Title = title({Type, Workers}),
    Trial = workload(Operations, Workers, 0),
    {Trials, Progress1} = measure_all([Title, ", first runs"], combinations(Type), Type, Trial, Progress0),
    Candidates = lists:usort([best(Phase, Trials) || Phase <- ets_bench:phases()]),
    #{total := Total} = Progress1,
    Known = Progress1#{total := Total - Repeats * (most_candidates(Type) - length(Candidates))},
    {Runs, Progress} = lists:mapfoldl(fun(Repeat, P) ->
                                          repeat(Repeat, Repeats, Title, Type, Workers, Operations,
                                                 Candidates ++ [Subject], P)
                                      end, Known, lists:seq(1, Repeats)),
    {[row(Type, Workers, Phase, Candidates, Subject, Runs) || Phase <- ets_bench:phases()], Progress}.

workload(Operations, Workers, Seed) ->
    ets_bench:workload(#{operations => Operations, range => 2 * Operations, workers => Workers,
                         seed => Seed}).

best(Phase, Trials) ->
    {_, Ets} = lists:max([{proplists:get_value(Phase, Figures), Ets} || {Ets, Figures} <- Trials]),
    Ets.

%% Each repeat has operations of its own. The sides take turns in going first.
repeat(Repeat, Repeats, Title, Type, Workers, Operations, Subjects, Progress) ->
    Workload = workload(Operations, Workers, Repeat),
    Where = io_lib:format("~s, repeat ~b of ~b", [Title, Repeat, Repeats]),
    Order = case Repeat rem 2 of
                1 -> Subjects;
                0 -> lists:reverse(Subjects)
            end,
    measure_all(Where, Order, Type, Workload, Progress).

measure_all(Where, Subjects, Type, Workload, Progress) ->
    lists:mapfoldl(fun({_, Tables, Options} = Subject, #{done := Done} = P) ->
                       Figures = ets_bench:run(Tables, Type, Options, Workload),
                       bench_tables:settle(),
                       {{Subject, Figures}, show(Where, P#{done := Done + 1})}
                   end, Progress, Subjects).

show(Where, #{shown := Shown, terminal := Terminal, done := Done, total := Total} = Progress) ->
    case now_ms() of
        Now when Terminal; Now - Shown >= ?INTERVAL_MS ->
            Line = io_lib:format("~s: ~b of at most ~b runs, ~s left",
                                 [Where, Done, Total, duration(seconds_left(Progress, Now))]),
            case Terminal of
                true -> say("\r~-79s", [Line]);
                false -> say("~s~n", [Line])
            end,
            Progress#{shown := Now};
        _ ->
            Progress
    end.

clear(#{terminal := true}) -> say("\r~79s\r", [""]);
clear(#{terminal := false}) -> ok.

%% @doc The time left at the time `Now', if each measurement to do takes as long as those done did on average.
-spec seconds_left(progress(), Now :: integer()) -> non_neg_integer().
seconds_left(#{done := Done, total := Total, started := Started}, Now) ->
    ceil((Now - Started) * (Total - Done) / Done / 1000).

duration(Seconds) when Seconds < 100 -> io_lib:format("~b s", [Seconds]);
duration(Seconds) -> io_lib:format("~b min", [ceil(Seconds / 60)]).

row(Type, Workers, Phase, Candidates, Subject, Runs) ->
    Figures = fun(S) -> [proplists:get_value(Phase, proplists:get_value(S, Run)) || Run <- Runs] end,
    {Ets, Best} = lists:max([{median(Figures(Candidate)), Candidate} || Candidate <- Candidates]),
    Ratios = lists:zipwith(fun(C, E) -> C / E end, Figures(Subject), Figures(Best)),
    Cats = median(Figures(Subject)),
    {Type, Workers, Phase, Ets, element(1, Best), Cats, Cats / Ets, lists:min(Ratios), lists:max(Ratios)}.

print(Rows) ->
    say("~n~-12s ~7s  ~-18s ~12s ~12s ~7s  ~-13s ~s~n",
        ["table", "workers", "phase", "ets ops/s", "cats ops/s", "ratio", "spread", "ets options"]),
    [say("~-12s ~7b  ~-18s ~12b ~12b ~7.2f  ~5.2f -~5.2f  ~s~n",
         [Type, Workers, ets_bench:phase_name(Phase), round(Ets), round(Cats), Ratio, Low, High, Name])
     || {Type, Workers, Phase, Ets, Name, Cats, Ratio, Low, High} <- Rows].

%% @doc The chart in the terminal: a bar of ets and one of cats for each row. The rows of one table type and
%% number of workers have a scale of their own.
-spec chart([row()]) -> iolist().
chart(Rows) ->
    ["Operations per second, each group on its own scale\n"
     | [[io_lib:format("~n~s~n", [title(Group)])
         | [[text_bar(ets_bench:phase_name(Phase), "ets", $-, Ets / Most),
             io_lib:format(" ~s~n", [millions(Ets)]),
             text_bar("", "cats", $#, Cats / Most),
             io_lib:format(" ~s~n", [millions(Cats)])]
            || {_, _, Phase, Ets, _, Cats, _, _, _} <- Members]]
        || {Group, Most, Members} <- groups(Rows)]].

text_bar(Label, Name, Character, Share) ->
    io_lib:format("  ~-13s ~-4s ~s", [Label, Name, lists:duplicate(max(1, round(?BAR * Share)), Character)]).

%% @doc The chart as an SVG file: the groups of {@link chart/1} in two columns.
-spec svg([row()]) -> iolist().
svg(Rows) ->
    Groups = groups(Rows),
    Tallest = lists:max([length(Members) || {_, _, Members} <- Groups]),
    Height = 50 + 34 * Tallest,
    {Width, Lines} = {960, (length(Groups) + 1) div 2},
    [io_lib:format(
       "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ~b ~b\" width=\"~b\" height=\"~b\" "
       "font-family=\"sans-serif\" font-size=\"12\" fill=\"#1f2328\">~n"
       "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>~n",
       [Width, 50 + Height * Lines, Width, 50 + Height * Lines]),
     text(20, 30, "font-size=\"16\" font-weight=\"bold\"",
          "ets_bench: operations per second of ets with its best options and of cats"),
     [[text(X + 20, Y + 24, "font-weight=\"bold\"", title(Group))
       | [[text(X + 20, Top + 18, "", ets_bench:phase_name(Phase)),
           svg_bar(X + 110, Top, "#d55e00", Ets / Most, ["ets ", millions(Ets)]),
           svg_bar(X + 110, Top + 14, "#0072b2", Cats / Most, ["cats ", millions(Cats)])]
          || {N, {_, _, Phase, Ets, _, Cats, _, _, _}} <- numbered(Members), Top <- [Y + 36 + 34 * N]]]
      || {Place, {Group, Most, Members}} <- numbered(Groups),
         X <- [480 * (Place rem 2)], Y <- [50 + Height * (Place div 2)]],
     "</svg>\n"].

svg_bar(X, Y, Colour, Share, Label) ->
    Length = 260 * Share,
    [io_lib:format("<rect x=\"~b\" y=\"~b\" width=\"~.1f\" height=\"13\" fill=\"~s\"/>~n",
                   [X, Y, Length, Colour]),
     text(round(X + Length) + 5, Y + 11, "", Label)].

text(X, Y, Attributes, Text) ->
    io_lib:format("<text x=\"~b\" y=\"~b\" ~s>~s</text>~n", [X, Y, Attributes, Text]).

numbered(List) -> lists:zip(lists:seq(0, length(List) - 1), List).

%% The rows of each table type and number of workers in their order, with the highest figure among them.
groups([]) ->
    [];
groups([{Type, Workers, _, _, _, _, _, _, _} | _] = Rows) ->
    {Members, Rest} = lists:splitwith(fun(Row) -> {element(1, Row), element(2, Row)} =:= {Type, Workers} end,
                                      Rows),
    Most = lists:max([max(Ets, Cats) || {_, _, _, Ets, _, Cats, _, _, _} <- Members]),
    [{{Type, Workers}, Most, Members} | groups(Rest)].

title({Type, Workers}) -> io_lib:format("~s, ~b worker~s", [Type, Workers, plural(Workers)]).

millions(Figure) -> io_lib:format("~.2fM", [Figure / 1.0e6]).

plural(1) -> "";
plural(_) -> "s".

median(Figures) -> lists:nth((length(Figures) + 1) div 2, lists:sort(Figures)).

now_ms() -> erlang:monotonic_time(millisecond).

say(Format, Arguments) -> io:format(Format, Arguments).
