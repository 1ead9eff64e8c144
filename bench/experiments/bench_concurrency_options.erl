%% What ets' options for concurrency do, all combinations of them, beside cats, which has none.
-module(bench_concurrency_options).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

about() ->
    #{title => "ets_bench by concurrency options",
      source => ?SCALABILITY ", section 5.2.1, figures 10 to 12; " ?ADAPTATION ", figure 2",
      unit => "operations/s", better => higher, x => lookups, scale => category, panels => [type, workers]}.

points(Size) ->
    [#{axes => [{type, Type}, {workers, Workers}], subjects => bench_tables:subjects(all, Type),
       seconds => bench_sizes:seconds(Size, 0.7, 1.5)}
     || Type <- [set, ordered_set], Workers <- [erlang:system_info(schedulers_online)]].

measure(Size, #{type := Type, workers := Workers}, Subject, Seed) ->
    ets_bench:mixed(Subject, Type, (bench_sizes:mixed(Size))#{workers => Workers, seed => Seed,
                                                              lookups => [90, 99, 100]}).
