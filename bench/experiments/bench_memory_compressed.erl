%% Memory of an object in a compressed table and in a plain one. Binaries outside of the tables count, too.
-module(bench_memory_compressed).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

about() ->
    #{title => "Memory of an object in a compressed table", source => "the manual of ets, on the option compressed",
      unit => "bytes/object", better => lower, x => object, scale => category, panels => [table]}.

points(Size) ->
    [#{axes => [{table, Table}, {object, Shape}], subjects => bench_tables:subjects(plain),
       seconds => objects(Size) * 2.0e-5 + 0.05}
     || Table <- [compressed, plain], Shape <- bench_compressed:shapes()].

objects(quick) -> 1000;
objects(default) -> 20_000;
objects(full) -> 100_000.

measure(Size, #{table := Kind, object := Shape}, {_, Tables, Options}, _Seed) ->
    Before = held(Tables),
    Table = bench_shapes:table(Tables, set, [compressed || Kind =:= compressed] ++ Options, objects(Size),
                               fun(Key) -> bench_compressed:object(Shape, Key, Key) end),
    Held = held(Tables) - Before,
    Tables:delete(Table),
    [{[], Held / objects(Size)}].

held(Tables) ->
    erlang:garbage_collect(),
    bench_memory:held(Tables) + erlang:memory(binary).
