%% Insertions that replace objects: without a snapshot, and beside one that has a copy of each key already. And beside
%% one that is taken anew for each round, so that each insertion is the first one of its key.
-module(bench_snapshots).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

about() ->
    #{title => "Insertions over all objects beside a snapshot",
      source => "cats:snapshot/1", unit => "insertions/s", better => higher, x => type, scale => category}.

points(Size) ->
    [#{axes => [{type, Type}], seconds => bench_sizes:seconds(Size, 0.5, 10),
       subjects => [{atom_to_list(Way), cats, [Type, Way]} || Way <- [without, later, first]]}
     || Type <- [set, ordered_set]].

objects(quick) -> 10_000;
objects(_) -> 1_000_000.

measure(Size, _Axes, {_, cats, [Type, Way]}, Seed) ->
    Objects = objects(Size),
    Table = cats:new(objects, [Type, public]),
    %% A prime number of steps visits all keys in another order.
    Insert = fun(Value) -> insert(Table, Objects, Seed rem Objects, Value, Objects) end,
    Insert(1),
    Snapshot = case Way of
                   without -> none;
                   _ -> cats:snapshot(Table)
               end,
    _ = Way =:= later andalso Insert(2),
    Seconds = bench_workers:seconds([fun() -> Insert(3) end]),
    _ = Snapshot =/= none andalso cats:delete(Snapshot),
    true = cats:delete(Table),
    [{[], Objects / Seconds}].

insert(_Table, _Objects, _Key, _Value, 0) ->
    ok;
insert(Table, Objects, Key, Value, Left) ->
    true = cats:insert(Table, {Key, Value, Left}),
    insert(Table, Objects, (Key + 7_368_787) rem Objects, Value, Left - 1).
