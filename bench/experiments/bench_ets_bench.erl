%% The papers' ets_bench, phase by phase, on small and large ranges of keys, with one worker and with one for
%% each scheduler.
-module(bench_ets_bench).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

about() ->
    #{title => "ets_bench by phase",
      source => ?SCALABILITY ", section 5; " ?ADAPTATION ", section 2.3, figures 1 and 2",
      unit => "operations/s", better => higher, x => phase, scale => category,
      panels => [type, workers, range]}.

points(Size) ->
    [#{axes => [{type, Type}, {workers, Workers}, {range, Range}],
       subjects => bench_tables:subjects(Workers, Type),
       seconds => seconds(Size, Type, Range)}
     || Range <- ranges(Size), Type <- [set, ordered_set], Workers <- bench_workers:counts()].

ranges(quick) -> [1 bsl 10, 1 bsl 17];
ranges(_) -> [1 bsl 3, 1 bsl 10, 1 bsl 16, 1 bsl 21].

operations(quick, _) -> 1 bsl 16;
operations(default, Range) when Range < 1 bsl 21 -> 1 bsl 19;
operations(default, _) -> 1 bsl 18;
operations(full, _) -> 1 bsl 22.

seconds(quick, _, _) -> 0.6;
seconds(default, _, Range) when Range < 1 bsl 16 -> 1;
seconds(default, ordered_set, 1 bsl 21) -> 6;
seconds(default, _, _) -> 3;
seconds(full, _, _) -> 60.

measure(Size, #{type := Type, workers := Workers, range := Range}, {_, Tables, Options}, Seed) ->
    Workload = bench_data:share(workload, fun() ->
        Operations = operations(Size, Range),
        ets_bench:workload(#{operations => Operations, inserts => max(Operations, Range div 2),
                             range => Range, workers => Workers, seed => Seed}) end),
    [{[{phase, ets_bench:phase_name(Phase)}], Figure}
     || {Phase, Figure} <- ets_bench:run(Tables, Type, Options, Workload)].
