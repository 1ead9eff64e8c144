%% Memory of a table that is empty, or has one object.
-module(bench_memory_table).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

-define(TABLES, 2000).

about() ->
    #{title => "Memory of a small table", source => ?SCALABILITY ", section 5.2.1 (memory of options)",
      unit => "bytes/table", better => lower, x => type, scale => category, panels => [objects]}.

points(_Size) ->
    [#{axes => [{type, Type}], seconds => 0.1,
       subjects => [bench_tables:ets(""), bench_tables:ets("r w"), {"cats", cats, []}]}
     || Type <- [set, ordered_set, bag]].

measure(_Size, #{type := Type}, {_, Tables, Options}, _Seed) ->
    Before = bench_memory:held(Tables),
    Made = [Tables:new(bench, [Type | Options]) || _ <- lists:seq(1, ?TABLES)],
    Empty = bench_memory:held(Tables) - Before,
    [Tables:insert(Table, {1, 1}) || Table <- Made],
    One = bench_memory:held(Tables) - Before,
    [Tables:delete(Table) || Table <- Made],
    [{[{objects, 0}], Empty / ?TABLES}, {[{objects, 1}], One / ?TABLES}].
