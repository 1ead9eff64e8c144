%% The main comparison: ets_bench on ets and on cats. ets has the options that are best for each row, cats has
%% its defaults. They run in turns in one VM, with the same operations. The demo prints its progress, and at
%% the end a table. A row has a table type, a number of workers and a phase, the operations per second of both
%% and their ratio.
%%
%% First every sensible combination of ets' concurrency options runs once. Those that were best in a row compete
%% again in every repeat. A row shows the one with the best median. The ratio is taken within each repeat. The
%% table has its median over the repeats, and the lowest and the highest one.
-module(cats_demo).
-export([main/1]).

%% @doc Runs the comparison and halts. `quick' takes smaller tables, `full' those of the papers; `against'
%% names what to put in the place of cats (`ets' shows the noise: ratios of 1).
-spec main([quick | full | {against, ets | cats}]) -> no_return().
main(Arguments) ->
    Subject = {"cats", proplists:get_value(against, Arguments, cats), []},
    {Operations, Repeats} = case lists:member(quick, Arguments) of
                                true -> {1 bsl 17, 3};
                                false -> {1 bsl 20, 3}
                            end,
    Start = erlang:monotonic_time(second),
    Schedulers = erlang:system_info(schedulers_online),
    say("ets_bench on OTP ~s, ~b scheduler~s: ~b operations a phase on keys from 1 to ~b, objects {Key}, "
        "~b repeats~n",
        [erlang:system_info(otp_release), Schedulers, plural(Schedulers), Operations, 2 * Operations,
         Repeats]),
    ets_bench:warm_up(),
    Rows = lists:append([compare(Subject, Type, Workers, Operations, Repeats)
                         || Type <- [set, ordered_set], Workers <- lists:usort([1, Schedulers])]),
    print(Rows),
    say("~n~b seconds in all. ratio: cats to ets with its best options (r: read_concurrency, w: "
        "write_concurrency,~nauto: its automatic number of locks, d: decentralized_counters, d-: without "
        "them), median over the repeats,~nand its spread.~n",
        [erlang:monotonic_time(second) - Start]),
    halt(0).

compare(Subject, Type, Workers, Operations, Repeats) ->
    Title = io_lib:format("~s, ~b worker~s", [Type, Workers, plural(Workers)]),
    Trial = workload(Operations, Workers, 0),
    Trials = [{Ets, measure(Title, Ets, Type, Trial)}
              || {_, ets, _} = Ets <- bench_tables:subjects(all, Type)],
    Candidates = lists:usort([best(Phase, Trials) || Phase <- ets_bench:phases()]),
    Runs = [repeat(Repeat, Repeats, Title, Type, Workers, Operations, Candidates ++ [Subject])
            || Repeat <- lists:seq(1, Repeats)],
    [row(Type, Workers, Phase, Candidates, Subject, Runs) || Phase <- ets_bench:phases()].

workload(Operations, Workers, Seed) ->
    ets_bench:workload(#{operations => Operations, range => 2 * Operations, workers => Workers,
                         seed => Seed}).

best(Phase, Trials) ->
    {_, Ets} = lists:max([{proplists:get_value(Phase, Figures), Ets} || {Ets, Figures} <- Trials]),
    Ets.

%% Each repeat has operations of its own. The sides take turns in going first.
repeat(Repeat, Repeats, Title, Type, Workers, Operations, Subjects) ->
    Workload = workload(Operations, Workers, Repeat),
    Where = io_lib:format("~s, repeat ~b of ~b", [Title, Repeat, Repeats]),
    Order = case Repeat rem 2 of
                1 -> Subjects;
                0 -> lists:reverse(Subjects)
            end,
    [{Subject, measure(Where, Subject, Type, Workload)} || Subject <- Order].

measure(Where, {Name, Tables, Options}, Type, Workload) ->
    Figures = ets_bench:run(Tables, Type, Options, Workload),
    say("~s: ~-12s~s~n",
        [Where, Name, [io_lib:format(" ~s ~s", [ets_bench:phase_name(P), millions(F)])
                       || {P, F} <- Figures]]),
    bench_tables:settle(),
    Figures.

row(Type, Workers, Phase, Candidates, Subject, Runs) ->
    Figures = fun(S) -> [proplists:get_value(Phase, proplists:get_value(S, Run)) || Run <- Runs] end,
    {Ets, Best} = lists:max([{median(Figures(Candidate)), Candidate} || Candidate <- Candidates]),
    Ratios = lists:zipwith(fun(C, E) -> C / E end, Figures(Subject), Figures(Best)),
    {Type, Workers, Phase, Ets, element(1, Best), median(Figures(Subject)), median(Ratios), lists:min(Ratios),
     lists:max(Ratios)}.

print(Rows) ->
    say("~n~-12s ~7s  ~-18s ~12s ~12s ~7s  ~-13s ~s~n",
        ["table", "workers", "phase", "ets ops/s", "cats ops/s", "ratio", "spread", "ets options"]),
    [say("~-12s ~7b  ~-18s ~12b ~12b ~7.2f  ~5.2f -~5.2f  ~s~n",
         [Type, Workers, ets_bench:phase_name(Phase), round(Ets), round(Cats), Ratio, Low, High, Name])
     || {Type, Workers, Phase, Ets, Name, Cats, Ratio, Low, High} <- Rows].

millions(Figure) -> io_lib:format("~.2fM", [Figure / 1.0e6]).

plural(1) -> "";
plural(_) -> "s".

median(Figures) -> lists:nth((length(Figures) + 1) div 2, lists:sort(Figures)).

say(Format, Arguments) -> io:format(Format, Arguments).
