%% Number of reader groups. ets has the emulator's flag `+rg' for it. The engines of cats with readers-writer
%% locks have a setting of the application.
-module(bench_reader_groups).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

about() ->
    #{title => "ets_bench by number of reader groups",
      source => ?SCALABILITY ", section 5.2.2, figures 13 to 18; " ?RELEASE ", section 3.3.2, figure 6",
      unit => "operations/s", better => higher, x => groups, scale => log, panels => [type, workers, phase]}.

%% More than one a scheduler makes no difference.
points(Size) ->
    [#{axes => [{type, Type}, {groups, Groups}, {workers, Workers}],
       seconds => bench_sizes:papers_seconds(bench_sizes:papers(Size), 2, 3.0e6),
       flags => lists:concat(["+rg ", Groups, " -cats reader_groups ", Groups]), subjects => subjects(Type)}
     || Type <- [set, ordered_set], Workers <- bench_workers:many(),
        Groups <- lists:usort([1, 2, 4, 8, 16, 32, erlang:system_info(schedulers)]),
        Groups =< erlang:system_info(schedulers)].

subjects(set) -> [bench_tables:ets("r w"), bench_tables:engine(linear_hash, "r w")];
subjects(ordered_set) -> [bench_tables:ets("r"), bench_tables:engine(avl, "r")].

measure(Size, #{type := Type, workers := Workers}, Subject, Seed) ->
    ets_bench:papers(Subject, Type, bench_sizes:papers(Size), #{workers => Workers, seed => Seed}).
