%% How well one table serves all schedulers. There is one worker on the table, or a worker for each scheduler
%% on it, or a worker for each scheduler on a table of its own. The last is the most that can be reached.
-module(bench_scaling).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

about() ->
    #{title => "One table shared by all schedulers, beside private tables",
      source => ?RELEASE ", section 3 (time per operation independent of the number of processes)",
      unit => "operations/s", better => higher, x => tables, scale => category, panels => [type, lookups]}.

points(Size) ->
    [#{axes => [{type, Type}], subjects => [bench_tables:ets("w"), {"cats", cats, []}],
       seconds => bench_sizes:seconds(Size, 0.7, 2)} || Type <- [set, ordered_set]].

measure(Size, #{type := Type}, Subject, Seed) ->
    Workers = erlang:system_info(schedulers_online),
    #{operations := Operations} = Mixed = bench_sizes:mixed(Size),
    [{[{tables, Name} | Row], Figure}
     || {Name, W, Number} <- [{"1 worker", 1, 1}, {"shared", Workers, 1}, {"private", Workers, Workers}],
        {Row, Figure} <- ets_bench:mixed(Subject, Type, Mixed#{workers => W, tables => Number, seed => Seed,
                                                               operations => W * Operations,
                                                               lookups => [50, 90, 100]})].
