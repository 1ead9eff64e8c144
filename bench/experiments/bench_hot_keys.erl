%% All workers on one key, and on a thousand keys that all of them use.
-module(bench_hot_keys).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

about() ->
    #{title => "All workers on few keys", source => ?SCALABILITY ", section 7 (biased keys)",
      unit => "operations/s", better => higher, x => operation, scale => category,
      panels => [type, workers, keys]}.

points(Size) ->
    [#{axes => [{type, Type}, {workers, Workers}, {keys, Keys}],
       subjects => bench_tables:subjects(Workers, Type),
       seconds => bench_sizes:seconds(Size, 0.3, 1)}
     || Type <- [set, ordered_set], Workers <- bench_workers:counts(), Keys <- [1, 1000]].

repeats(quick) -> 50;
repeats(default) -> 400;
repeats(full) -> 5000.

measure(Size, #{type := Type, workers := Workers, keys := Number}, {_, Tables, Options}, Seed) ->
    Work = bench_data:share(keys, fun() ->
        Generator = bench_keys:generator(uniform, Number),
        [{bench_keys:list(Generator, 1000, bench_keys:seed(Seed + Worker)), repeats(Size) div Workers}
         || Worker <- lists:seq(1, Workers)] end),
    Pairs = bench_shapes:table(Tables, Type, Options, 1000, fun(Key) -> {Key, 0} end),
    Records = bench_shapes:table(Tables, Type, Options, 1000, fun(Key) -> {Key, 0, a} end),
    Rows = [{[{operation, Name}], object_loads:rate(Operation, Tables, Table, Work)}
            || {Name, Table, Operation} <-
                   [{"update_counter", Pairs, {update_counter, 2}},
                    {"update_counter of three elements", Records, {update_counter, 2}},
                    {"update_element of three elements", Records, {update_element, {3, b}}},
                    {"lookup", Pairs, lookup}]],
    [Tables:delete(Table) || Table <- [Pairs, Records]],
    Rows.
