%% Throughput by share of lookups among the operations.
-module(bench_lookup_share).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

about() ->
    #{title => "ets_bench by share of lookups",
      source => ?SCALABILITY ", section 5.1; " ?ADAPTATION ", figures 2 and 5",
      unit => "operations/s", better => higher, x => lookups, scale => linear, panels => [type, workers]}.

points(Size) ->
    [#{axes => [{type, Type}, {workers, Workers}], subjects => bench_tables:subjects(Workers, Type),
       seconds => bench_sizes:seconds(Size, 0.4, 1.2)}
     || Type <- [set, ordered_set], Workers <- bench_workers:counts()].

measure(Size, #{type := Type, workers := Workers}, Subject, Seed) ->
    ets_bench:mixed(Subject, Type, (bench_sizes:mixed(Size))#{workers => Workers, seed => Seed,
                                                              lookups => [50, 80, 90, 99, 100]}).
