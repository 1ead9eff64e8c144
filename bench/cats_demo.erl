%% The main comparison: ets_bench on ets, with the options that are best for each row, and on cats with its
%% defaults, side by side in one VM, alternating, with the same operations. Prints its progress, and at the
%% end a table with a row for each table type, number of workers and phase: operations per second of both and
%% their ratio.
%%
%% For ets, first every sensible combination of concurrency options runs once; those that were best in a row
%% then compete again in every repeat, and a row shows the one with the best median. The ratio is the median
%% over the repeats of the ratio within the repeat; beside it stand the lowest and the highest one.
-module(cats_demo).
-export([main/1]).

%% @doc Runs the comparison and halts. `quick' takes smaller tables, `full' those of the papers; `against'
%% names the workload module to put in the place of cats (`ets_bench_ets' shows the noise: ratios of 1).
-spec main([quick | full | {against, module()}]) -> no_return().
main(Arguments) ->
    Subject = proplists:get_value(against, Arguments, ets_bench_cats),
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
    warm_up(Subject),
    Rows = lists:append([compare(Subject, Type, Workers, Operations, Repeats)
                         || Type <- [set, ordered_set], Workers <- lists:usort([1, Schedulers])]),
    print(Rows),
    say("~n~b seconds in all. ratio: cats to ets with its best options (r: read_concurrency, w: "
        "write_concurrency,~nwa: its auto, d: decentralized_counters, d-: without them), median over the "
        "repeats, and its spread.~n",
        [erlang:monotonic_time(second) - Start]),
    halt(0).

%% Combinations of the options with an effect on the type, named as in the last column of the table.
ets_options(set) ->
    R = {read_concurrency, true}, W = {write_concurrency, true}, A = {write_concurrency, auto},
    [{"none", []}, {"r", [R]}, {"w", [W]}, {"r w", [R, W]}, {"w d", [W, {decentralized_counters, true}]},
     {"wa", [A]}, {"r wa", [R, A]}];
ets_options(ordered_set) ->
    R = {read_concurrency, true}, W = {write_concurrency, true}, D = {decentralized_counters, false},
    [{"none", []}, {"r", [R]}, {"w", [W]}, {"r w", [R, W]}, {"w d-", [W, D]}, {"r w d-", [R, W, D]}].

%% One small run of each side, so that no code is loaded and no memory first asked for under the clock.
warm_up(Subject) ->
    Workload = ets_bench:workload(1 bsl 14, 1, 0),
    [ets_bench:run(Side, Type, [], Workload) || Side <- [ets_bench_ets, Subject], Type <- [set, ordered_set]].

compare(Subject, Type, Workers, Operations, Repeats) ->
    Title = io_lib:format("~s, ~b worker~s", [Type, Workers, plural(Workers)]),
    Trial = ets_bench:workload(Operations, Workers, 0),
    Trials = [{Option, measure(Title, "ets " ++ Name, ets_bench_ets, Type, Options, Trial)}
              || {Name, Options} = Option <- ets_options(Type)],
    Candidates = lists:usort([best(Phase, Trials) || Phase <- ets_bench:phases()]),
    Runs = [repeat(Repeat, Repeats, Title, Subject, Type, Workers, Operations, Candidates)
            || Repeat <- lists:seq(1, Repeats)],
    [row(Type, Workers, Phase, Candidates, Runs) || Phase <- ets_bench:phases()].

best(Phase, Trials) ->
    {_, Option} = lists:max([{proplists:get_value(Phase, Figures), Option} || {Option, Figures} <- Trials]),
    Option.

%% Each repeat has operations of its own; which side goes first alternates.
repeat(Repeat, Repeats, Title, Subject, Type, Workers, Operations, Candidates) ->
    Workload = ets_bench:workload(Operations, Workers, Repeat),
    Where = io_lib:format("~s, repeat ~b of ~b", [Title, Repeat, Repeats]),
    Sides = [{Name, "ets " ++ Name, ets_bench_ets, Options} || {Name, Options} <- Candidates]
        ++ [{cats, "cats", Subject, []}],
    Order = case Repeat rem 2 of
                1 -> Sides;
                0 -> lists:reverse(Sides)
            end,
    [{Id, measure(Where, Name, Module, Type, Options, Workload)} || {Id, Name, Module, Options} <- Order].

measure(Where, Name, Module, Type, Options, Workload) ->
    Figures = ets_bench:run(Module, Type, Options, Workload),
    say("~s: ~-12s~s~n",
        [Where, Name, [io_lib:format(" ~s ~s", [phase(P), millions(F)]) || {P, F} <- Figures]]),
    settle(Module),
    Figures.

%% Lets what the last table left behind go, so that nobody pays for it in the next measurement.
settle(ets_bench_cats) -> settle(cats:memory(), 100);
settle(_) -> erlang:garbage_collect(), timer:sleep(50).

settle(Before, Rounds) ->
    erlang:garbage_collect(),
    timer:sleep(50),
    case cats:memory() of
        Now when Now < Before, Rounds > 0 -> settle(Now, Rounds - 1);
        _ -> ok
    end.

row(Type, Workers, Phase, Candidates, Runs) ->
    Figures = fun(Id) -> [proplists:get_value(Phase, proplists:get_value(Id, Run)) || Run <- Runs] end,
    {Ets, Name} = lists:max([{median(Figures(Name)), Name} || {Name, _} <- Candidates]),
    Ratios = lists:zipwith(fun(C, E) -> C / E end, Figures(cats), Figures(Name)),
    {Type, Workers, Phase, Ets, Name, median(Figures(cats)), median(Ratios), lists:min(Ratios),
     lists:max(Ratios)}.

print(Rows) ->
    say("~n~-12s ~7s  ~-18s ~12s ~12s ~7s  ~-13s ~s~n",
        ["table", "workers", "phase", "ets ops/s", "cats ops/s", "ratio", "spread", "ets options"]),
    [say("~-12s ~7b  ~-18s ~12b ~12b ~7.2f  ~5.2f -~5.2f  ~s~n",
         [Type, Workers, phase(Phase), round(Ets), round(Cats), Ratio, Low, High, Name])
     || {Type, Workers, Phase, Ets, Name, Cats, Ratio, Low, High} <- Rows].

phase(insert) -> "insert";
phase(delete) -> "delete";
phase({mixed, Lookups}) -> io_lib:format("~b% lookups", [Lookups]).

millions(Figure) -> io_lib:format("~.2fM", [Figure / 1.0e6]).

plural(1) -> "";
plural(_) -> "s".

median(Figures) -> lists:nth((length(Figures) + 1) div 2, lists:sort(Figures)).

say(Format, Arguments) -> io:format(Format, Arguments).
