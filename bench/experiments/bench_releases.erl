%% The mixes by which the papers compare releases of Erlang/OTP: run with several installations.
-module(bench_releases).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

about() ->
    #{title => "ets_bench across OTP releases",
      source => ?SCALABILITY ", section 5.1, figures 4 to 9; " ?RELEASE ", section 3.3.1, figure 4",
      unit => "operations/s", better => higher, x => phase, scale => category, panels => [type, workers]}.

points(Size) ->
    [#{axes => [{type, Type}, {workers, Workers}], subjects => [bench_tables:ets("r w"), {"cats", cats, []}],
       seconds => bench_sizes:papers_seconds(bench_sizes:papers(Size), 2, 3.0e6)}
     || Type <- [set, ordered_set], Workers <- bench_workers:many()].

measure(Size, #{type := Type, workers := Workers}, Subject, Seed) ->
    ets_bench:papers(Subject, Type, bench_sizes:papers(Size), #{workers => Workers, seed => Seed}).
