%% All engines of cats beside ets: what the papers call alternative back ends, and contention adapting trees.
-module(bench_engines).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

about() ->
    #{title => "ets_bench by engine",
      source => ?SCALABILITY ", section 6.2, figures 23 to 27; " ?ADAPTATION ", figures 4, 5",
      unit => "operations/s", better => higher, x => lookups, scale => category, panels => [type, workers]}.

points(Size) ->
    [#{axes => [{type, Type}, {workers, Workers}], subjects => subjects(Type),
       seconds => bench_sizes:seconds(Size, 0.6, 1.5)}
     || Type <- [set, ordered_set], Workers <- bench_workers:counts()].

subjects(Type) ->
    [bench_tables:ets("r w"), bench_tables:ets("")
     | [bench_tables:cats([{engine, Name}]) || #{name := Name, types := Types} <- cats:engines(),
                                               lists:member(Type, Types)]].

measure(Size, #{type := Type, workers := Workers}, Subject, Seed) ->
    ets_bench:mixed(Subject, Type, (bench_sizes:mixed(Size))#{workers => Workers, seed => Seed,
                                                              lookups => [50, 90, 100]}).
