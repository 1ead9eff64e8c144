%% What ets' options for concurrency do, all combinations of them, beside cats, which has none.
-module(bench_concurrency_options).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

about() ->
    #{title => "ets_bench by concurrency options",
      source => ?SCALABILITY ", section 5.2.1, figures 10 to 12; " ?ADAPTATION ", figures 1 and 2",
      unit => "operations/s", better => higher, x => phase, scale => category, panels => [type, workers]}.

points(Size) ->
    [#{axes => [{type, Type}, {workers, Workers}], subjects => bench_tables:subjects(all, Type),
       seconds => bench_sizes:papers_seconds(bench_sizes:papers(Size), 7, 3.0e6)}
     || Type <- [set, ordered_set], Workers <- bench_workers:many()].

measure(Size, #{type := Type, workers := Workers}, Subject, Seed) ->
    ets_bench:papers(Subject, Type, bench_sizes:papers(Size), #{workers => Workers, seed => Seed}).
