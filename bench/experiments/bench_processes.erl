%% Throughput by number of workers, up to many more than schedulers.
-module(bench_processes).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

about() ->
    #{title => "ets_bench by number of workers, 90% lookups", source => ?SCALABILITY ", section 5.1.1",
      unit => "operations/s", better => higher, x => workers, scale => log, panels => [type]}.

points(Size) ->
    [#{axes => [{type, Type}, {workers, Workers}], subjects => bench_tables:subjects(2, Type),
       seconds => bench_sizes:seconds(Size, 0.2, 0.4)}
     || Type <- [set, ordered_set], Workers <- workers(Size)].

workers(quick) -> [1, 8];
workers(_) -> [1, 2, 4, 8, 32, 128].

measure(Size, #{type := Type, workers := Workers}, Subject, Seed) ->
    [{[], Figure} || {_, Figure} <- ets_bench:mixed(Subject, Type, (bench_sizes:mixed(Size))#{
                                                      workers => Workers, lookups => [90], seed => Seed})].
