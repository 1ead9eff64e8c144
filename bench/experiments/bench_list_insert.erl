%% Insertion of lists of objects, into a table that grows.
-module(bench_list_insert).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

about() ->
    #{title => "Insertion of lists of pairs",
      source => ?SCALABILITY ", section 3.2 (lists lock the whole table)",
      unit => "objects/s", better => higher, x => length, scale => log, panels => [type, order]}.

points(Size) ->
    [#{axes => [{type, Type}, {order, Order}, {length, Length}], subjects => bench_tables:subjects(plain),
       seconds => bench_sizes:seconds(Size, 0.1, 0.25)}
     || Type <- [set, ordered_set], Order <- [ascending, random], Length <- lengths(Size)].

lengths(quick) -> [1000];
lengths(_) -> [10, 100, 1000, 10_000].

objects(quick) -> 20_000;
objects(default) -> 200_000;
objects(full) -> 2_000_000.

measure(Size, #{type := Type, order := Order, length := Length}, {_, Tables, Options}, Seed) ->
    Lists = bench_data:share(lists, fun() -> lists(numbers(Order, objects(Size), Seed), Length) end),
    Table = Tables:new(bench, [Type, public | Options]),
    Figure = object_loads:rate(insert, Tables, Table, {Lists, 1}) * Length,
    Tables:delete(Table),
    [{[], Figure}].

numbers(ascending, Number, _) ->
    lists:seq(1, Number);
numbers(random, Number, Seed) ->
    bench_keys:list(bench_keys:generator(uniform, Number), Number, bench_keys:seed(Seed)).

lists([], _) ->
    [];
lists(Numbers, Length) ->
    {List, Rest} = lists:split(Length, Numbers),
    [[{N, N} || N <- List] | lists(Rest, Length)].
