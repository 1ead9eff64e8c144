%% How long work on a table delays other processes: the time that lookups and insertions of a bystander take
%% meanwhile. They are on the same table, or on another one while a table is deleted.
-module(bench_bystander).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

about() ->
    #{title => "Latency of a bystander's lookups and inserts during long work on the table",
      source => ?SCALABILITY ", section 2",
      unit => "us", better => lower, x => percentile, scale => category, panels => [type, operation]}.

points(Size) ->
    [#{axes => [{type, Type}], subjects => [bench_tables:ets(""), bench_tables:ets("w"), {"cats", cats, []}],
       seconds => bench_sizes:seconds(Size, 1.5, 3.5)} || Type <- [set, ordered_set]].

objects(quick) -> 50_000;
objects(default) -> 300_000;
objects(full) -> 10_000_000.

measure(Size, #{type := Type}, {_, Tables, Options} = Subject, _Seed) ->
    Number = objects(Size),
    Other = bench_shapes:table(Tables, Type, Options, 1000, fun(N) -> {N, N} end),
    Rows = bench_long_work:each(Subject, Type, Number, fun
        (delete, _Deleted, Operation) -> rows(delete, Operation, Tables, Other, 1000);
        (Name, Table, Operation) -> rows(Name, Operation, Tables, Table, Number)
    end),
    Tables:delete(Other),
    lists:append(Rows).

rows(Name, Operation, Tables, Table, Number) ->
    [{[{operation, Name}, {percentile, Percentile}], Time}
     || {Percentile, Time} <- bench_latency:during(Operation, step(Tables, Table, Number))].

step(Tables, Table, Number) ->
    fun() ->
            Key = rand:uniform(Number),
            Tables:lookup(Table, Key),
            Tables:insert(Table, {Key, Key rem 1000})
    end.
