%% The stack that all searches of ets' AVL tree once shared, and what it cost parallel lookups.
-module(bench_static_stack).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

about() ->
    #{title => "Lookups in an AVL tree with a static stack and without",
      source => ?SCALABILITY ", section 5.3, figure 19", unit => "operations/s", better => higher,
      x => workers, scale => linear, panels => [phase]}.

points(Size) ->
    [#{axes => [{workers, Workers}], subjects => subjects(),
       seconds => bench_sizes:papers_seconds(bench_sizes:papers(Size), length(subjects()), 3.0e6)}
     || Workers <- bench_workers:counts()].

%% The paper has the `set' beside the trees.
subjects() ->
    [bench_tables:ets("r"), bench_tables:engine(linear_hash, "r w")]
        ++ [bench_tables:engine(avl, Names, Stack) || Names <- ["", "r"], Stack <- [[], [{static_stack, true}]]].

type(Options) ->
    case lists:member({engine, linear_hash}, Options) of
        true -> set;
        false -> ordered_set
    end.

measure(Size, #{workers := Workers}, {_, _, Options} = Subject, Seed) ->
    ets_bench:papers(Subject, type(Options), bench_sizes:papers(Size), #{workers => Workers, seed => Seed}).
