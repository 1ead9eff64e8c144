%% Throughput of a mix by size of the table, sequential and parallel.
-module(bench_key_range).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

about() ->
    #{title => "ets_bench by key range, 80% lookups",
      source => ?ADAPTATION ", sections 5.2 and 5.3, figures 6 and 7",
      unit => "operations/s", better => higher, x => range, scale => log, panels => [type, workers]}.

points(Size) ->
    [#{axes => [{type, Type}, {workers, Workers}, {range, 1 bsl Bits}],
       subjects => bench_tables:subjects(Workers, Type),
       seconds => 0.1 + (1 bsl Bits + operations(Size)) * (Workers + 1) / 1.0e6}
     || Type <- [set, ordered_set], Workers <- bench_workers:counts(), Bits <- bits(Size)].

bits(quick) -> [3, 14];
bits(default) -> [3, 7, 11, 15, 19];
bits(full) -> lists:seq(3, 23, 2).

operations(quick) -> 1 bsl 15;
operations(default) -> 1 bsl 17;
operations(full) -> 1 bsl 22.

measure(Size, #{type := Type, workers := Workers, range := Range}, Subject, Seed) ->
    [{[], Figure} || {_, Figure} <- ets_bench:mixed(Subject, Type, #{range => Range, workers => Workers,
                                                                     operations => operations(Size),
                                                                     lookups => [80], seed => Seed})].
