%% Emulator flags that place schedulers and balance them: binding to processors and balancing of utilization.
-module(bench_emulator_flags).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

about() ->
    #{title => "ets_bench by emulator flags",
      source => ?RELEASE ", section 2.1; " ?SCALABILITY ", section 5 (+sbt)",
      unit => "operations/s", better => higher, x => emulator, scale => category, panels => [type, lookups]}.

points(Size) ->
    [#{axes => [{type, Type}, {emulator, Flags}], flags => flags(Flags),
       subjects => bench_tables:subjects(2, Type), seconds => bench_sizes:seconds(Size, 0.3, 0.5)}
     || Type <- [set, ordered_set], Flags <- ["none", "+sbt tnnps", "+sub true"]].

flags("none") -> "";
flags(Flags) -> Flags.

measure(Size, #{type := Type}, Subject, Seed) ->
    ets_bench:mixed(Subject, Type, (bench_sizes:mixed(Size))#{
        workers => erlang:system_info(schedulers_online), lookups => [50, 99], seed => Seed}).
