%% Lookup and insertion (over an object that is there) of pairs by shape of the key.
-module(bench_keys_by_shape).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

about() ->
    #{title => "Lookup and insert by shape of the key",
      source => ?SCALABILITY ", section 2 (hashing and comparison)",
      unit => "operations/s", better => higher, x => key, scale => category,
      panels => [type, place, operation]}.

points(Size) ->
    [#{axes => [{type, Type}, {place, Place}, {key, Key}], subjects => bench_tables:subjects(plain),
       seconds => seconds(Place, Size)}
     || Type <- [set, ordered_set], Place <- [hot, large], Key <- bench_shapes:keys()].

seconds(hot, Size) -> bench_sizes:seconds(Size, 0.2, 0.3);
seconds(large, Size) -> bench_sizes:seconds(Size, 0.2, 0.6).

%% An eighth of the objects that other experiments take for a large table.
objects(large, default) -> bench_places:objects(large, default) div 8;
objects(Place, Size) -> bench_places:objects(Place, Size).

measure(Size, #{type := Type, place := Place, key := Shape}, {_, Tables, Options}, Seed) ->
    Number = objects(Place, Size),
    {Keys, Repeats} = bench_data:share(keys, fun() ->
        {Numbers, Repeats} = bench_places:keys(Place, Size, Seed),
        {[bench_shapes:key(Shape, 1 + N rem Number) || N <- Numbers], Repeats} end),
    Objects = bench_data:share(objects, fun() -> [{Key, new} || Key <- Keys] end),
    Table = bench_shapes:table(Tables, Type, Options, Number, fun(N) -> {bench_shapes:key(Shape, N), N} end),
    Rows = [{[{operation, Operation}], object_loads:rate(Operation, Tables, Table, {List, Repeats})}
            || {Operation, List} <- [{lookup, Keys}, {insert, Objects}]],
    Tables:delete(Table),
    Rows.
