%% Readers only, from few to many more than schedulers. Each reads random keys of a filled table. In a sweep by number
%% of schedulers, only the greatest number is measured.
-module(bench_readers).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

about() ->
    #{title => "Lookups by number of readers", source => ?TWEAK,
      unit => "operations/s", better => higher, x => workers, scale => log, panels => [type]}.

points(Size) ->
    [#{axes => [{type, Type}, {workers, Workers}], subjects => subjects(Type),
       seconds => bench_sizes:seconds(Size, 0.4, 1.5)}
     || bench_workers:most(), Type <- [set, ordered_set], Workers <- workers()].

%% As many as in the text, if nobody asked for others.
workers() ->
    case bench_workers:asked() of
        true -> bench_workers:many();
        false -> [1 bsl Bits || Bits <- lists:seq(2, 10)]
    end.

subjects(set) ->
    [bench_tables:ets(""), bench_tables:ets("r"), {"cats", cats, []}, bench_tables:engine(linear_hash, ""),
     bench_tables:engine(linear_hash, "r")];
subjects(ordered_set) ->
    [bench_tables:ets(""), bench_tables:ets("r"), {"cats", cats, []}, bench_tables:engine(avl, ""),
     bench_tables:engine(avl, "r")].

%% So many lookups that starting a thousand processes is little beside them.
measure(Size, #{type := Type, workers := Workers}, Subject, Seed) ->
    #{operations := Operations} = Mixed = bench_sizes:mixed(Size),
    [{[], Figure} || {_, Figure} <- ets_bench:mixed(Subject, Type, Mixed#{
                                                      operations := 8 * Operations, workers => Workers,
                                                      lookups => [100], seed => Seed})].
