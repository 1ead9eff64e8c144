%% Creation and deletion of empty tables, named and unnamed.
-module(bench_new_delete).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("tables.hrl").
-include("papers.hrl").

about() ->
    #{title => "Creation and deletion of an empty table",
      source => ?SCALABILITY ", section 6.3 (meta table)",
      unit => "tables/s", better => higher, x => type, scale => category, panels => [workers, name]}.

points(Size) ->
    [#{axes => [{type, Type}, {workers, Workers}], subjects => bench_tables:subjects(plain),
       seconds => bench_sizes:seconds(Size, 0.1, 0.4)}
     || Type <- [set, ordered_set, bag], Workers <- bench_workers:counts()].

tables(quick) -> 5000;
tables(default) -> 50_000;
tables(full) -> 500_000.

measure(Size, #{type := Type, workers := Workers}, {_, Tables, Options}, _Seed) ->
    Number = tables(Size) div Workers,
    [{[{name, Named}],
      Workers * Number
          / bench_workers:seconds([fun() -> loop(Number, Tables, Name, [Type | Given ++ Options]) end
                                   || Worker <- lists:seq(1, Workers),
                                      Name <- [list_to_atom(lists:concat([bench_, Worker]))]])}
     || {Named, Given} <- [{unnamed, []}, {named, [named_table]}]].

loop(0, _, _, _) ->
    ok;
loop(N, Tables, Name, Options) ->
    ?CALL(Tables, delete(?CALL(Tables, new(Name, Options)))),
    loop(N - 1, Tables, Name, Options).
