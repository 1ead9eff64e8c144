%% The number of objects of a point: a thousand, which fit into the processor's cache, or so many that most
%% accesses miss it.
-module(bench_places).
-export([objects/2, keys/3]).

%% @doc Number of objects in the table.
-spec objects(hot | large, bench_experiment:size()) -> pos_integer().
objects(hot, _) -> 1000;
objects(large, quick) -> 1 bsl 15;
objects(large, _) -> 1 bsl 20.

%% @doc Random keys among those numbers, and how often to go through them: about 50 ms of operations on ets.
-spec keys(hot | large, bench_experiment:size(), Seed :: integer()) ->
          {[pos_integer()], Repeats :: pos_integer()}.
keys(Place, Size, Seed) ->
    {Number, Repeats} = case {Place, Size} of
                            {hot, quick} -> {1000, 100};
                            {hot, default} -> {1000, 1000};
                            {hot, full} -> {1000, 10_000};
                            {large, quick} -> {1 bsl 14, 1};
                            {large, default} -> {1 bsl 17, 1};
                            {large, full} -> {1 bsl 20, 1}
                        end,
    Generator = bench_keys:generator(uniform, objects(Place, Size)),
    {bench_keys:list(Generator, Number, bench_keys:seed(Seed)), Repeats}.
