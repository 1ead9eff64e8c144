%% Memory of an object by its shape: what the tables hold with the objects, less what they held before,
%% divided by the number of objects.
-module(bench_memory_object).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

about() ->
    #{title => "Memory of an object",
      source => ?SCALABILITY ", section 3 (memory of options)",
      unit => "bytes/object", better => lower, x => shape, scale => category, panels => [type, objects]}.

points(Size) ->
    [#{axes => [{type, Type}, {objects, Number}, {shape, Shape}], subjects => bench_tables:subjects(plain),
       seconds => Number * 2.0e-6 + 0.05}
     || Type <- [set, ordered_set], Number <- numbers(Size), Shape <- bench_shapes:values()].

numbers(quick) -> [1 bsl 14];
numbers(default) -> [1 bsl 17];
numbers(full) -> [1 bsl 20].

measure(_Size, #{type := Type, objects := Number, shape := Shape}, {_, Tables, Options}, _Seed) ->
    Before = bench_memory:held(Tables),
    Table = bench_shapes:table(Tables, Type, Options, Number,
                               fun(Key) -> bench_shapes:object(Shape, Key) end),
    Held = bench_memory:held(Tables) - Before,
    Tables:delete(Table),
    [{[], Held / Number}].
