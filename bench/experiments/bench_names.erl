%% Access to a table by its name and by its identifier.
-module(bench_names).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

about() ->
    #{title => "Access by name and by identifier",
      source => ?SCALABILITY ", sections 2 and 6.3 (meta table)",
      unit => "operations/s", better => higher, x => access, scale => category,
      panels => [type, workers, operation]}.

points(Size) ->
    [#{axes => [{type, Type}, {workers, Workers}, {access, Access}],
       subjects => bench_tables:subjects(Workers, Type),
       seconds => bench_sizes:seconds(Size, 0.2, 0.5)}
     || Type <- [set, ordered_set], Workers <- bench_workers:counts(), Access <- [name, identifier]].

measure(Size, #{type := Type, workers := Workers, access := Access}, {_, Tables, Options}, Seed) ->
    {Keys, Repeats} = bench_data:share(keys, fun() -> bench_places:keys(hot, Size, Seed) end),
    Objects = bench_data:share(objects, fun() -> [{Key, Key} || Key <- Keys] end),
    Table = bench_shapes:table(Tables, Type, [named_table || Access =:= name] ++ Options, 1000,
                               fun(Key) -> {Key, Key} end),
    Each = Repeats div (2 * Workers),
    Rows = [{[{operation, Operation}],
             object_loads:rate(Operation, Tables, Table, lists:duplicate(Workers, {List, Each}))}
            || {Operation, List} <- [{lookup, Keys}, {insert, Objects}]],
    Tables:delete(Table),
    Rows.
