%% All engines of cats beside ets: what the papers call alternative back ends, and contention adapting trees.
-module(bench_engines).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

about() ->
    #{title => "ets_bench by engine",
      source => ?SCALABILITY ", section 6.2, figures 23 to 27; " ?ADAPTATION ", figures 4, 5; " ?RELEASE
          ", figure 9",
      unit => "operations/s", better => higher, x => phase, scale => category, panels => [type, workers]}.

points(Size) ->
    [#{axes => [{type, Type}, {workers, Workers}], subjects => subjects(Type),
       seconds => bench_sizes:papers_seconds(bench_sizes:papers(Size), length(subjects(Type)), 3.0e6)}
     || Type <- [set, ordered_set], Workers <- bench_workers:counts()].

%% With the concurrency options that the papers vary, none and each.
subjects(set) ->
    [bench_tables:ets(Names) || Names <- ["", "r", "w", "r w"]]
        ++ [{"cats", cats, []}]
        ++ [bench_tables:engine(linear_hash, Names) || Names <- ["", "r", "w", "r w"]]
        ++ [bench_tables:engine(std_hash, Names) || Names <- ["", "r"]];
subjects(ordered_set) ->
    [bench_tables:ets(Names) || Names <- ["", "r", "w"]]
        ++ [{"cats", cats, []}]
        ++ [bench_tables:engine(avl, Names) || Names <- ["", "r"]]
        ++ [bench_tables:engine(ca_avl, ""), bench_tables:engine(ca_avl, "", [{base_lock, rw}]),
            bench_tables:engine(ca_treap, ""), bench_tables:engine(skip_list, "")].

measure(Size, #{type := Type, workers := Workers}, Subject, Seed) ->
    ets_bench:papers(Subject, Type, bench_sizes:papers(Size), #{workers => Workers, seed => Seed}).
