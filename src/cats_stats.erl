%% @private
%% What `cats:stats/0,1' and `cats:stats_delta/2' return.
-module(cats_stats).
-export([all/0, delta/2, identifier/1, of_table/1, rows/2]).

-export_type([row/0]).

-type row() :: #{id := cats:tid(), table := cats:table(), name := atom(), type := cats:table_type(),
                 engine := cats:engine(), owner := pid() | undefined, stats := cats:stats()}.

%% @doc The statistics of each table that lives.
-spec all() -> #{cats:table() => cats:stats()}.
all() ->
    maps:from_list([{Table, Stats} || Table <- cats:all(), Stats <- [living(Table)], Stats =/= undefined]).

%% A table may lose its name in the meantime.
living(Table) ->
    try
        of_table(Table)
    catch
        error:badarg -> undefined
    end.

%% @doc The statistics of one table, or `undefined' if it does not exist.
-spec of_table(cats:table()) -> cats:stats() | undefined.
of_table(Table) ->
    case [cats:info(Table, Item) || Item <- [counters, size, memory, used, limit]] of
        [{Events, Operations}, Size, Memory, Used, Limit] when is_integer(Size), is_integer(Memory) ->
            Now = erlang:monotonic_time(microsecond),
            Stats = (events(Events))#{size => Size, memory => Memory * erlang:system_info(wordsize), time => Now},
            maps:merge(maps:merge(Stats, limit(Used, Limit)), operations(Operations));
        _ ->
            undefined
    end.

limit(Used, {objects, Limit}) when is_integer(Used) -> #{used_objects => Used, limit_objects => Limit};
limit(Used, {bytes, Limit}) when is_integer(Used) -> #{used_bytes => Used, limit_bytes => Limit};
limit(_Used, _None) -> #{}.

%% In the order of native/sync/src/events.rs.
events({Splits, Joins, ReadsRepeated, GivenUp, Nanoseconds, Busy, Dirty, Slices, LongSlices, Expired, Evicted,
        Readmitted, Refused, Made, Failed, Waited, Stale, Wait1, Wait4, Wait16, Wait64, Wait256, Longer}) ->
    Classes = [{1, Wait1}, {4, Wait4}, {16, Wait16}, {64, Wait64}, {256, Wait256}, {infinity, Longer}],
    #{splits => Splits, joins => Joins, reads_repeated => ReadsRepeated,
      waits => lists:sum([Number || {_, Number} <- Classes]), waits_given_up => GivenUp,
      wait_time => Nanoseconds div 1000, waits_by_length => Classes, busy => Busy, dirty => Dirty, slices => Slices,
      long_slices => LongSlices, expired => Expired, evicted => Evicted, readmitted => Readmitted, refused => Refused,
      fetches_made => Made, fetches_failed => Failed, fetches_waited => Waited, fetches_stale => Stale}.

%% In the order of native/table/src/table/counters.rs.
operations(false) ->
    #{};
operations({Lookups, Misses, Inserts, Updates, Deletes, Steps, Scans}) ->
    #{lookups => Lookups, hits => max(0, Lookups - Misses), misses => Misses, inserts => Inserts, updates => Updates,
      deletes => Deletes, steps => Steps, scans => Scans,
      operations => Lookups + Inserts + Updates + Deletes + Steps + Scans}.

%% @doc What changed from the first statistics to the second.
-spec delta(Earlier, Later) -> Delta when
      Earlier :: cats:stats() | #{cats:table() => cats:stats()},
      Later :: cats:stats() | #{cats:table() => cats:stats()},
      Delta :: cats:stats() | #{cats:table() => cats:stats()}.
delta(Earlier, Later) ->
    is_of_one(Earlier) =:= is_of_one(Later) orelse error(badarg),
    changes(Earlier, Later).

%% Whether these are the statistics of one table. Those of all have one with the name `time' by a map.
is_of_one(#{time := Time}) -> is_integer(Time);
is_of_one(_) -> false.

changes(Earlier, Later) ->
    maps:map(fun(Key, Value) -> less(Value, maps:get(Key, Earlier, nothing)) end, Later).

less(Value, nothing) -> Value;
less(Value, Before) when is_integer(Value) -> Value - Before;
less(Classes, Before) when is_list(Classes) ->
    lists:zipwith(fun({Class, A}, {Class, B}) -> {Class, A - B} end, Classes, Before);
less(Stats, Before) when is_map(Stats) -> changes(Before, Stats).

%% @doc Rows of the tables with the highest figure of this kind, the highest first. A table that does not count
%% operations has none.
-spec rows(Sort :: atom(), Limit :: non_neg_integer()) -> [row()].
rows(Sort, Limit) ->
    Ranked = lists:sort([{-maps:get(Sort, Stats, 0), Table} || {Table, Stats} <- maps:to_list(all())]),
    [Row || {_, Table} <- lists:sublist(Ranked, Limit), Row <- row(Table)].

%% Nothing, if the table is gone.
row(Table) ->
    Items = [id, name, type, engine, owner],
    try {[cats:info(Table, Item) || Item <- Items], of_table(Table)} of
        {[Id | _], Stats} when Id =:= undefined; Stats =:= undefined -> [];
        {Values, Stats} -> [maps:from_list([{table, Table}, {stats, Stats} | lists:zip(Items, Values)])]
    catch
        error:badarg -> []
    end.

%% @doc A table's identifier as a text.
-spec identifier(cats:tid()) -> string().
identifier(Id) ->
    lists:flatten(io_lib:format("~w", [Id])).
