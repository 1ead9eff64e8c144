%% The mixes by which the papers compare releases of Erlang/OTP: run with several installations.
-module(bench_releases).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

about() ->
    #{title => "ets_bench across OTP releases",
      source => ?SCALABILITY ", section 5.1, figures 4 to 9; " ?RELEASE ", section 3.3.1, figure 4",
      unit => "operations/s", better => higher, x => lookups, scale => category, panels => [type]}.

points(Size) ->
    [#{axes => [{type, Type}], subjects => [bench_tables:ets("r w"), {"cats", cats, []}],
       seconds => bench_sizes:seconds(Size, 0.2, 0.5)} || Type <- [set, ordered_set]].

measure(Size, #{type := Type}, Subject, Seed) ->
    ets_bench:mixed(Subject, Type, (bench_sizes:mixed(Size))#{
        workers => erlang:system_info(schedulers_online), lookups => [90, 99, 100], seed => Seed}).
