%% Insertion of many keys into an empty ordered_set, in an order that is not random: keys come near earlier ones.
-module(bench_insertion_patterns).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

about() ->
    #{title => "Insertion into an ordered_set by the order of the keys",
      source => "time series, counters and ranges of identifiers, which many programs keep in an ordered_set",
      unit => "ns", better => lower, x => order, scale => category, panels => [workers]}.

points(Size) ->
    [#{axes => [{order, Order}, {workers, Workers}],
       subjects => [bench_tables:ets(if Workers > 1 -> "w"; true -> "" end), {"cats", cats, []}],
       seconds => keys(Size) * 3.0e-6 + 0.05}
     || {Order, _} <- orders(), Workers <- bench_workers:counts()].

keys(quick) -> 1 bsl 14;
keys(default) -> 1 bsl 20;
keys(full) -> 1 bsl 22.

%% The workers take turns with the keys.
measure(Size, #{order := Order, workers := Workers}, {_, Tables, Options}, _Seed) ->
    Number = keys(Size),
    {Order, Key} = lists:keyfind(Order, 1, orders()),
    Lists = [bench_data:share({keys, Worker},
                              fun() -> keys(Key, lists:seq(Worker - 1, Number - 1, Workers), Number) end)
             || Worker <- lists:seq(1, Workers)],
    Table = Tables:new(bench, [ordered_set, public | Options]),
    Loops = bench_calls:loops(Tables),
    Seconds = bench_workers:seconds([fun() -> Loops:loop(fill, Table, List) end || List <- Lists]),
    Number = Tables:info(Table, size),
    Tables:delete(Table),
    [{[], 1.0e9 * Seconds * Workers / Number}].

keys(Key, Indices, Number) -> [Key(Index, Number) || Index <- Indices].

%% Each gives the different keys at the indices from 0 to a power of two.
orders() ->
    [{"ascending", fun(Index, _) -> Index end},
     {"random", fun permuted/2},
     {"multiples of an odd constant modulo a power of two", fun(Index, Number) -> Index * 16#9E3779B1 rem Number end},
     {"multiples of 1000 modulo a prime", fun(Index, Number) -> Index * 1000 rem prime(Number) end},
     {"64 ascending runs by turns", fun(Index, Number) -> Index rem 64 * (Number div 64) + Index div 64 end},
     {"from both ends inwards", fun inwards/2}].

inwards(Index, _) when Index rem 2 =:= 0 -> Index div 2;
inwards(Index, Number) -> Number - 1 - Index div 2.

%% A permutation of the numbers below a power of two, as each step can be undone.
permuted(Index, Number) ->
    Half = trunc(math:log2(Number)) div 2,
    lists:foldl(fun(Factor, Before) ->
                        Multiplied = Before * Factor rem Number,
                        Multiplied bxor (Multiplied bsr Half)
                end, Index, [16#9E3779B1, 16#85EBCA6B, 16#C2B2AE35, 16#27D4EB2F]).

%% The next prime after the number.
prime(16#4000) -> 16411;
prime(16#100000) -> 1048583;
prime(16#400000) -> 4194319.
