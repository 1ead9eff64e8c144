%% Throughput when some keys are used more often than others: uniform, by Zipf's law, and all workers on 8
%% keys of a large table.
-module(bench_key_distribution).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

about() ->
    #{title => "ets_bench by distribution of keys", source => ?SCALABILITY ", section 7 (biased keys)",
      unit => "operations/s", better => higher, x => keys, scale => category,
      panels => [type, workers, lookups]}.

points(Size) ->
    [#{axes => [{type, Type}, {workers, Workers}, {keys, Keys}],
       subjects => bench_tables:subjects(Workers, Type),
       seconds => bench_sizes:seconds(Size, 0.3, 0.5)}
     || Type <- [set, ordered_set], Workers <- bench_workers:counts(), Keys <- ["uniform", "zipf", "hot 8"]].

measure(Size, #{type := Type, workers := Workers, keys := Keys}, Subject, Seed) ->
    ets_bench:mixed(Subject, Type, (bench_sizes:mixed(Size))#{
        workers => Workers, keys => distribution(Keys), lookups => [50, 90], seed => Seed}).

distribution("uniform") -> uniform;
distribution("zipf") -> zipf;
distribution("hot 8") -> {hot, 8}.
