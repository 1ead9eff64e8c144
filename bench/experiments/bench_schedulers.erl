%% Throughput by number of schedulers, a worker on each: the x axis of most of the papers' figures.
-module(bench_schedulers).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

about() ->
    #{title => "ets_bench by number of schedulers",
      source => ?SCALABILITY ", section 5; " ?ADAPTATION ", figures 1, 2, 4, 5",
      unit => "operations/s", better => higher, x => schedulers, scale => linear, panels => [type, lookups]}.

points(Size) ->
    [#{axes => [{type, Type}, {schedulers, N}], subjects => bench_tables:subjects(N, Type),
       flags => lists:concat(["+S ", N, ":", N]), seconds => bench_sizes:seconds(Size, 0.3, 1)}
     || Type <- [set, ordered_set], N <- bench_workers:schedulers()].

measure(Size, #{type := Type, schedulers := N}, Subject, Seed) ->
    ets_bench:mixed(Subject, Type, (bench_sizes:mixed(Size))#{workers => N, lookups => [50, 90, 99, 100],
                                                              seed => Seed}).
