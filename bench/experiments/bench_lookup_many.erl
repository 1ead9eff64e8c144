%% Lookup of many keys by one call of cats, beside a loop of lookups of one key ("cats lookup"). The one call
%% overlaps the waits for memory of all keys.
-module(bench_lookup_many).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").
-include("tables.hrl").

about() ->
    #{title => "Lookup of many keys at once",
      source => ?SCALABILITY ", section 2 (operations)", unit => "keys/s", better => higher, x => keys,
      scale => log, panels => [type, place]}.

points(Size) ->
    [#{axes => [{type, Type}, {place, Place}], seconds => seconds(Place, Size),
       subjects => [bench_tables:ets(""), {"cats", cats, [together]}, {"cats lookup", cats, []}]}
     || Type <- [set, ordered_set], Place <- [hot, large]].

seconds(hot, Size) -> bench_sizes:seconds(Size, 0.3, 0.6);
seconds(large, Size) -> bench_sizes:seconds(Size, 0.3, 4).

measure(Size, #{type := Type, place := Place}, {_, Tables, Options}, Seed) ->
    {Keys, Repeats} = bench_data:share(keys, fun() -> bench_places:keys(Place, Size, Seed) end),
    Table = bench_shapes:table(Tables, Type, [], bench_places:objects(Place, Size),
                               fun(Key) -> {Key, Key} end),
    Rows = [{[{keys, Number}], length(Keys) * Repeats / bench_workers:seconds([fun() -> Work(Repeats) end])}
            || Number <- [1, 10, 100, 1000],
               Lists <- [bench_data:share({lists, Number}, fun() -> lists(Keys, Number) end)],
               Work <- [fun(Times) -> loop(Times, Options, Tables, Table, Lists) end]],
    Tables:delete(Table),
    Rows.

lists([], _) ->
    [];
lists(Keys, Number) ->
    [lists:sublist(Keys, Number) | lists(drop(Number, Keys), Number)].

drop(_, []) -> [];
drop(0, Keys) -> Keys;
drop(Number, [_ | Keys]) -> drop(Number - 1, Keys).

loop(0, _Options, _Tables, _Table, _Lists) ->
    ok;
loop(Times, Options, Tables, Table, Lists) ->
    case Options of
        [together] -> lists:foreach(fun(List) -> cats:lookup_many(Table, List) end, Lists);
        [] -> lists:foreach(fun(List) -> lookups(List, Tables, Table) end, Lists)
    end,
    loop(Times - 1, Options, Tables, Table, Lists).

%% The same list as lookup_many makes.
lookups([Key | Keys], Tables, Table) -> [?CALL(Tables, lookup(Table, Key)) | lookups(Keys, Tables, Table)];
lookups([], _, _) -> [].
