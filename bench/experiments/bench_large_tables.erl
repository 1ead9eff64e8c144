%% What one caller waits for in a table of millions of pairs: a lookup, a range of keys that guards select, and the
%% deletion of the whole table.
-module(bench_large_tables).
-behaviour(bench_experiment).
-include("papers.hrl").
-export([about/0, points/1, measure/4]).

-include("tables.hrl").

-define(LOOKUPS, 200_000).
-define(RANGES, 3).
-define(RANGE, 1000).

about() ->
    #{title => "What a caller waits for in a large table",
      source => ?SCALABILITY ", section 2 (operations over tables)",
      unit => "us", better => lower, x => call, scale => category, panels => [type, objects]}.

points(Size) ->
    [#{axes => [{type, Type}, {objects, objects(Size)}], subjects => bench_tables:subjects(plain),
       seconds => objects(Size) * 2.5e-6 + 0.5} || Type <- [set, ordered_set]].

objects(quick) -> 100_000;
objects(default) -> 4_000_000;
objects(full) -> 16_000_000.

measure(Size, #{type := Type, objects := Number}, {_, Tables, Options}, Seed) ->
    Table = bench_shapes:table(Tables, Type, Options, Number, fun(Key) -> {Key, Key} end),
    Keys = bench_data:share({keys, Size}, fun() -> keys(?LOOKUPS, Number, Seed) end),
    Starts = bench_data:share({starts, Size}, fun() -> keys(?RANGES, Number - ?RANGE, Seed + 1) end),
    Rows = [{[{call, Name}], 1.0e6 * bench_workers:seconds([Work]) / Times}
            || {Name, Times, Work} <-
                   [{"lookup", ?LOOKUPS, fun() -> lookups(Keys, Tables, Table) end}]
                   ++ [{"select of 1000 by guards", ?RANGES, fun() -> ranges(Starts, Tables, Table) end}
                       || Type =:= ordered_set]
                   ++ [{"delete of the table", 1, fun() -> Tables:delete(Table) end}]],
    bench_tables:settle(),
    Rows.

keys(Number, Range, Seed) ->
    bench_keys:list(bench_keys:generator(uniform, Range), Number, bench_keys:seed(Seed)).

lookups([Key | Keys], Tables, Table) ->
    [_] = ?CALL(Tables, lookup(Table, Key)),
    lookups(Keys, Tables, Table);
lookups([], _Tables, _Table) ->
    ok.

ranges(Starts, Tables, Table) ->
    [?RANGE = length(Tables:select(Table, [{{'$1', '_'}, [{'>=', '$1', Start}, {'<', '$1', Start + ?RANGE}], ['$_']}]))
     || Start <- Starts].
