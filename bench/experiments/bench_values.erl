%% Lookup and insertion (over an object that is there) of every shape of value. One table fits into the
%% processor's cache, another is large.
-module(bench_values).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

about() ->
    #{title => "Lookup and insert by shape of the object",
      source => ?SCALABILITY ", section 2 (copying of objects)",
      unit => "operations/s", better => higher, x => shape, scale => category,
      panels => [type, place, operation]}.

points(Size) ->
    [#{axes => [{type, Type}, {place, Place}, {shape, Shape}], subjects => bench_tables:subjects(plain),
       seconds => seconds(Place, Size)}
     || {Type, Place} <- places(Size), Shape <- bench_shapes:values()].

places(full) -> [{ordered_set, large} | places(default)];
places(_) -> [{set, hot}, {set, large}, {ordered_set, hot}].

seconds(hot, Size) -> bench_sizes:seconds(Size, 0.2, 0.3);
seconds(large, Size) -> bench_sizes:seconds(Size, 0.2, 3).

measure(Size, #{type := Type, place := Place, shape := Shape}, {_, Tables, Options}, Seed) ->
    {Keys, Repeats} = bench_data:share(keys, fun() -> bench_places:keys(Place, Size, Seed) end),
    Objects = bench_data:share(objects, fun() -> [bench_shapes:object(Shape, Key) || Key <- Keys] end),
    Table = bench_shapes:table(Tables, Type, Options, bench_places:objects(Place, Size),
                               fun(Key) -> bench_shapes:object(Shape, Key) end),
    Rows = [{[{operation, Operation}], object_loads:rate(Operation, Tables, Table, {List, Repeats})}
            || {Operation, List} <- [{lookup, Keys}, {insert, Objects}]],
    Tables:delete(Table),
    Rows.
