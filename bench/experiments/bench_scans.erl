%% Work over whole tables and ranges of them. The objects are {{Group, Number}, Number rem 1000, Text}, a
%% thousand in each group.
-module(bench_scans).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("tables.hrl").
-include("papers.hrl").

about() ->
    #{title => "Selects, scans and walks", source => ?SCALABILITY ", section 2 (operations over tables)",
      unit => "ms", better => lower, x => call, scale => category, panels => [type, order]}.

points(Size) ->
    [#{axes => [{type, Type}, {order, Order}], subjects => bench_tables:subjects(plain),
       seconds => bench_sizes:seconds(Size, 0.3, 1.8)}
     || Type <- [set, ordered_set], Order <- [ascending, random]].

objects(quick) -> 20_000;
objects(default) -> 300_000;
objects(full) -> 1_000_000.

measure(Size, #{type := Type, order := Order}, {_, Tables, Options}, Seed) ->
    Number = objects(Size),
    Table = table(Order, Type, Number, Tables, Options),
    Rows = [{[{call, Name}], milliseconds(fun() -> Call(Table) end, Repeats)}
            || {Name, Repeats, Call} <- calls(Type, Tables, Number, Seed)],
    Tables:delete(Table),
    Rows.

table(Order, Type, Number, Tables, Options) ->
    Nth = case Order of
              ascending -> fun(Index) -> Index end;
              random -> fun(Index) -> bench_shapes:nth(Index, Number) end
          end,
    Table = Tables:new(scans, [Type, public | Options]),
    [Tables:insert(Table, {{N div 1000, N}, N rem 1000, <<"some text">>})
     || Index <- lists:seq(1, Number), N <- [Nth(Index)]],
    Table.

%% In a process of its own, so that each run begins with a small heap.
milliseconds(Fun, Repeats) ->
    1000 * bench_workers:seconds([fun() -> [Fun() || _ <- lists:seq(1, Repeats)] end]) / Repeats.

calls(Type, Tables, Number, Seed) ->
    Prefix = 1 + Seed rem (Number div 1000 - 1),
    Count = fun(T) -> Tables:select_count(T, [{{'_', '$1', '_'}, [{'=:=', '$1', 7}], [true]}]) end,
    [{"select of 1000 by prefix", 100,
      fun(T) -> 1000 = length(Tables:select(T, [{{{Prefix, '_'}, '_', '_'}, [], ['$_']}])) end}
     || Type =:= ordered_set] ++
    [{"first select_count after filling", 1, Count},
     {"select_count of 1 in 1000", 2, Count},
     {"select of a third", 2,
      fun(T) -> Tables:select(T, [{{{'_', '$1'}, '$2', '_'}, [{'<', '$2', 333}], ['$1']}]) end},
     {"match_object on a field", 2, fun(T) -> Tables:match_object(T, {'_', 7, '_'}) end},
     {"tab2list", 1, fun(T) -> Number = length(Tables:tab2list(T)) end},
     {"first and next", 1, fun(T) -> Number = walk(?CALL(Tables, first(T)), T, Tables, 0) end},
     {"foldl", 1, fun(T) -> Tables:foldl(fun({_, N, _}, Sum) -> N + Sum end, 0, T) end}].

walk('$end_of_table', _Table, _Tables, Count) -> Count;
walk(Key, Table, Tables, Count) -> walk(?CALL(Tables, next(Table, Key)), Table, Tables, Count + 1).
