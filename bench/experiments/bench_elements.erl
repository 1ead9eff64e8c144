%% Operations on one element of a record of 20 elements.
-module(bench_elements).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

about() ->
    #{title => "Operations on one element of a record of 20",
      source => ?SCALABILITY ", section 2 (operations)",
      unit => "operations/s", better => higher, x => operation, scale => category, panels => [type, place]}.

points(Size) ->
    [#{axes => [{type, Type}, {place, Place}], subjects => bench_tables:subjects(plain),
       seconds => bench_sizes:seconds(Size, 0.2, 1.7)}
     || Type <- [set, ordered_set], Place <- places(Type, Size)].

places(ordered_set, default) -> [hot];
places(_, _) -> [hot, large].

measure(Size, #{type := Type, place := Place}, {_, Tables, Options}, Seed) ->
    Work = bench_data:share(keys, fun() -> bench_places:keys(Place, Size, Seed) end),
    Table = bench_shapes:table(Tables, Type, Options, bench_places:objects(Place, Size),
                               fun(Key) -> bench_shapes:object(record_20, Key) end),
    Rows = [{[{operation, Name}], object_loads:rate(Operation, Tables, Table, Work)}
            || {Name, Operation} <- [{member, member}, {lookup_element, {lookup_element, 10}},
                                     {update_element, {update_element, {11, b}}},
                                     {update_counter, {update_counter, 10}}]],
    Tables:delete(Table),
    Rows.
