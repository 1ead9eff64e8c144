%% What ets can do only by several calls, if at all: an update of an object by a function, beside a lookup and an
%% insertion. Those two calls lose updates of other processes between them.
-module(bench_beyond).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").
-include("tables.hrl").

about() ->
    #{title => "Update of an object by a function",
      source => ?SCALABILITY ", section 2 (operations)", unit => "updates/s", better => higher, x => object,
      scale => category, panels => [type, place]}.

points(Size) ->
    [#{axes => [{type, Type}, {place, Place}], seconds => bench_sizes:seconds(Size, 0.3, 4),
       subjects => [bench_tables:ets(""), {"cats", cats, [update]}, {"cats lookup and insert", cats, []}]}
     || Type <- [set, ordered_set], Place <- [hot, large]].

measure(Size, #{type := Type, place := Place}, {_, Tables, Options}, Seed) ->
    {Keys, Repeats} = bench_data:share(keys, fun() -> bench_places:keys(Place, Size, Seed) end),
    [begin
         Table = bench_shapes:table(Tables, Type, [], bench_places:objects(Place, Size), Make),
         Work = fun() -> loop(Repeats, Options, Tables, Table, Keys) end,
         Rate = length(Keys) * Repeats / bench_workers:seconds([Work]),
         Tables:delete(Table),
         {[{object, Object}], Rate}
     end || {Object, Make} <- [{"pair", fun(Key) -> {Key, 0} end},
                               {"five elements", fun(Key) -> {Key, 0, <<"some name">>, [a, b], 1.5} end}]].

loop(0, _Options, _Tables, _Table, _Keys) ->
    ok;
loop(Times, Options, Tables, Table, Keys) ->
    case Options of
        [update] -> lists:foreach(fun(Key) -> cats:update(Table, Key, fun count/1) end, Keys);
        [] -> lists:foreach(fun(Key) -> look_and_insert(Tables, Table, Key) end, Keys)
    end,
    loop(Times - 1, Options, Tables, Table, Keys).

look_and_insert(Tables, Table, Key) ->
    [Object] = ?CALL(Tables, lookup(Table, Key)),
    ?CALL(Tables, insert(Table, count(Object))).

count(Object) -> setelement(2, Object, element(2, Object) + 1).
