%% Number of reader groups. ets has the emulator's flag `+rg' for it. The engines of cats with readers-writer
%% locks have a setting of the application.
-module(bench_reader_groups).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

about() ->
    #{title => "ets_bench by number of reader groups",
      source => ?SCALABILITY ", section 5.2.2, figures 13 to 18; " ?RELEASE ", section 3.3.2, figure 6",
      unit => "operations/s", better => higher, x => groups, scale => log, panels => [type, lookups]}.

%% More than one a scheduler makes no difference.
points(Size) ->
    [#{axes => [{type, Type}, {groups, Groups}], seconds => bench_sizes:seconds(Size, 0.2, 0.6),
       flags => lists:concat(["+rg ", Groups, " -cats reader_groups ", Groups]), subjects => subjects(Type)}
     || Type <- [set, ordered_set],
        Groups <- lists:usort([1, 2, 4, 8, 16, 32, erlang:system_info(schedulers)]),
        Groups =< erlang:system_info(schedulers)].

subjects(set) -> [bench_tables:ets("r w"), cats(linear_hash, [{write_concurrency, 64}])];
subjects(ordered_set) -> [bench_tables:ets("r"), cats(avl, [])].

cats(Engine, Options) ->
    {"cats " ++ atom_to_list(Engine), cats, [{engine, Engine}, {read_concurrency, true} | Options]}.

measure(Size, #{type := Type}, Subject, Seed) ->
    ets_bench:mixed(Subject, Type, (bench_sizes:mixed(Size))#{
        workers => erlang:system_info(schedulers_online), lookups => [90, 99, 100], seed => Seed}).
