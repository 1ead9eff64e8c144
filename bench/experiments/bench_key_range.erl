%% Throughput of a mix by size of the table, sequential and parallel.
-module(bench_key_range).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

about() ->
    #{title => "ets_bench by key range, 80% lookups",
      source => ?ADAPTATION ", sections 5.2 and 5.3, figures 6 and 7",
      unit => "operations/s", better => higher, x => range, scale => log, panels => [type, workers]}.

points(Size) ->
    [#{axes => [{type, Type}, {workers, Workers}, {range, 1 bsl Bits}],
       subjects => subjects(Workers, Type),
       seconds => length(subjects(Workers, Type)) * (0.05 + ((1 bsl Bits) / 2 + operations(Size)) / 1.5e6)}
     || Type <- [set, ordered_set], Workers <- bench_workers:counts(), Bits <- bits(Size)].

%% Beside ets and cats there are the trees of the papers.
subjects(Workers, set) ->
    [bench_tables:ets("r w") | bench_tables:subjects(Workers, set)];
subjects(Workers, ordered_set) ->
    [bench_tables:ets("r") | bench_tables:subjects(Workers, ordered_set)]
        ++ [bench_tables:engine(avl, "r") | [bench_tables:engine(Engine, "") || Engine <- [avl, ca_avl, ca_treap]]].

%% The paper goes from 2^3 to 2^27. Tables that the machine has no room for are left out: half of the keys are in the
%% table, at some 100 bytes each, and in the loads of the workers.
bits(quick) -> [3, 14];
bits(default) -> [3, 7, 11, 15, 19];
bits(full) -> [Bits || Bits <- lists:seq(3, 27, 4), 100 bsl Bits < bench_memory:machine()].

operations(quick) -> 1 bsl 15;
operations(default) -> 1 bsl 17;
operations(full) -> 1 bsl 22.

measure(Size, #{type := Type, workers := Workers, range := Range}, Subject, Seed) ->
    [{[], Figure} || {_, Figure} <- ets_bench:mixed(Subject, Type, #{range => Range, workers => Workers,
                                                                     operations => operations(Size),
                                                                     lookups => [80], seed => Seed})].
