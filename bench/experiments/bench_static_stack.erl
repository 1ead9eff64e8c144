%% The stack that all searches of ets' AVL tree once shared, and what it cost parallel lookups.
-module(bench_static_stack).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

about() ->
    #{title => "Lookups in an AVL tree with a static stack and without",
      source => ?SCALABILITY ", section 5.3, figure 19", unit => "operations/s", better => higher,
      x => workers, scale => linear, panels => []}.

points(Size) ->
    [#{axes => [{workers, Workers}], seconds => bench_sizes:seconds(Size, 0.2, 0.4),
       subjects => [bench_tables:ets("r"),
                    {"cats avl", cats, [{engine, avl}, {read_concurrency, true}]},
                    {"cats avl static_stack", cats,
                     [{engine, avl}, {read_concurrency, true}, {static_stack, true}]}]}
     || Workers <- bench_workers:counts()].

measure(Size, #{workers := Workers}, Subject, Seed) ->
    [{[], Figure} || {_, Figure} <- ets_bench:mixed(Subject, ordered_set, (bench_sizes:mixed(Size))#{
                                                      workers => Workers, lookups => [100], seed => Seed})].
