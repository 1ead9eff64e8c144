%% What must hold when no process uses the tables of a storm any more, and when the tables are gone.
-module(cats_storm_quiet).

-import(cats_storm_own, [first_wrong/1]).
-import(cats_storm_tables, [has/2]).
-import(cats_storm_calls, [outcome/1, wrong_objects/2]).

-export([check/0, check_gone/1, account/0]).

-define(TRIES, 3000).

%% So many looks, each after 10 milliseconds, find nothing freed when nothing is freed any more.
-define(STILL, 3000).

%% @doc What is wrong with all tables.
-spec check() -> nothing | term().
check() ->
    first_wrong([fun() -> table(Table) end
                 || Table <- cats_storm_tables:all(), cats:info(maps:get(tid, Table), id) =/= undefined]
                ++ [fun cats_storm_sums:check/0, fun cats_storm_caches:check/0]).

table(#{tid := Tid} = Table) ->
    case cats:info(Tid, protection) of
        private -> nothing;
        _ -> first_wrong([fun() -> contents(Table, ?TRIES) end, fun() -> limit(Table) end, fun() -> counted(Table) end,
                          fun() -> snapshot(Table) end, fun() -> room(Table, ?TRIES) end])
    end.

%% All ways meet the same objects, and the size is their number. Objects may expire meanwhile.
contents(#{tid := Tid} = Table, Tries) ->
    Size = cats:info(Tid, size),
    Found = [{Way, lists:sort(Function(Tid))} || {Way, Function} <- cats_storm_walks:all_ways(Table)],
    Counts = [length(Objects) || {_, Objects} <- Found]
        ++ [cats:select_count(Tid, [{'_', [], [true]}]), cats:info(Tid, size)]
        ++ [cats:count(Tid, #{}) || has(order_statistics, Table)]
        ++ [length(slots(Tid, 0)) || not has(expiring, Table)],
    [{_, First} | _] = Found,
    case lists:usort([Objects || {_, Objects} <- Found]) =:= [First] andalso lists:usort(Counts) =:= [Size] of
        true ->
            first_wrong([fun() -> wrong_objects(Table, First) end, fun() -> keys(Table, First, Tries) end]);
        false when Tries > 0 ->
            case has(expiring, Table) of
                true -> timer:sleep(10), contents(Table, Tries - 1);
                false -> contents(Table, 0)
            end;
        false ->
            {contents, Table, {sizes, Size, Counts},
             [{Way, Objects -- First, First -- Objects} || {Way, Objects} <- Found]}
    end.

slots(Tid, Number) ->
    case cats:slot(Tid, Number) of
        '$end_of_table' -> [];
        Objects -> Objects ++ slots(Tid, Number + 1)
    end.

%% Each object is found by its key.
keys(#{tid := Tid} = Table, Objects, Tries) ->
    Some = [{cats_storm_values:key(Table, Object), Object} || Object <- lists:sublist(Objects, 1000)],
    Keys = lists:usort([Key || {Key, _} <- Some]),
    Lost = [Object || {Key, Object} <- Some, not lists:member(Object, cats:lookup(Tid, Key))],
    case Lost =:= [] andalso length(cats:lookup_many(Tid, Keys)) =:= length(Keys) of
        true -> nothing;
        false -> case has(expiring, Table) andalso Tries > 0 of
                     true -> contents(Table, Tries - 1);
                     false -> {lost, Table, Lost}
                 end
    end.

%% Objects that wait for the process that is told of them do not count for a limit, but for the memory. Overflow blocks
%% of a hash may pass a limit by a few percent, and stale items of the timer wheel by more, for a while.
limit(#{tid := Tid} = Table) ->
    case cats:info(Tid, limit) of
        {objects, Limit} -> case cats:info(Tid, size) of
                                Size when Size =< Limit -> nothing;
                                Size -> {limit, Table, Size}
                            end;
        {bytes, Limit} ->
            Bytes = cats:info(Tid, memory) * erlang:system_info(wordsize),
            Structure = Limit div 100 + 20000,
            More = case has(expiring, Table) of true -> Structure; false -> min(Limit div 10, Structure) end,
            case Bytes > Limit + More andalso not has(notify, Table) of
                true -> {limit, Table, Bytes, cats:info(Tid)};
                false -> nothing
            end;
        undefined -> nothing
    end.

%% When all objects are deleted, as many as the limit says have room. Those that have expired take theirs until they are
%% freed.
room(#{tid := Tid} = Table, Tries) ->
    case has(wild, Table) andalso has(public, Table) andalso cats:info(Tid, limit) of
        {objects, Limit} ->
            true = cats:delete_many(Tid, [cats_storm_values:key(Table, Object) || Object <- cats:tab2list(Tid)]),
            _ = cats_storm_values:writer(),
            Options = case has(expiring, Table) of true -> [#{ttl => infinity}]; false -> [] end,
            Insert = fun(Number) ->
                             apply(cats, insert, [Tid, cats_storm_values:object(Table, {room, Number}) | Options])
                     end,
            Inserted = outcome(fun() -> lists:foreach(Insert, lists:seq(1, Limit)) end),
            case {Inserted, cats:info(Tid, size)} of
                {{returned, ok}, Limit} -> nothing;
                _ when Tries > 0 -> timer:sleep(10), room(Table, Tries - 1);
                {_, Size} -> {room, Table, Inserted, Size}
            end;
        _ -> nothing
    end.

counted(#{tid := Tid} = Table) ->
    case cats:stats(Tid) of
        #{lookups := Lookups, hits := Hits, misses := Misses} when Lookups =/= Hits + Misses ->
            {statistics, Table, Lookups, Hits, Misses};
        #{} -> nothing
    end.

%% A snapshot of a table that nobody changes.
snapshot(#{tid := Tid} = Table) ->
    case has(snapshots, Table) andalso not has(expiring, Table) of
        true ->
            Snapshot = cats:snapshot(Tid),
            Wanted = cats:tab2list(Tid),
            Found = cats:tab2list(Snapshot),
            true = cats:delete(Snapshot),
            case Found of
                Wanted -> nothing;
                _ -> {snapshot, Table, Found -- Wanted, Wanted -- Found}
            end;
        false -> nothing
    end.

%%% When all tables are gone

%% @doc The bytes that the library accounts for tables, snapshots and garbage, and the number of batches of held terms.
-spec account() -> {Bytes :: integer(), Batches :: integer()}.
account() ->
    #{bytes := Garbage} = cats:garbage(),
    Batches = case erlang:function_exported(cats_nif, test_batches, 0) of
                  true -> apply(cats_nif, test_batches, []);
                  false -> 0
              end,
    {cats:memory() + Garbage, Batches}.

%% @doc What is left of tables that are all gone, beside what there was before, when nothing more has been freed for a
%% time.
-spec check_gone({integer(), integer()}) -> nothing | term().
check_gone(Before) ->
    %% What a process has dropped is kept until its heap is collected.
    lists:foreach(fun erlang:garbage_collect/1, processes()),
    check_gone(Before, account(), ?STILL).

check_gone({Bytes, Batches}, {NowBytes, NowBatches}, _Left) when NowBytes =< Bytes + 100000, NowBatches =< Batches ->
    nothing;
check_gone(Before, Last, 0) -> {left_behind, Last, {before, Before}, [cats:info(Table) || Table <- cats:all()]};
check_gone(Before, Last, Left) ->
    timer:sleep(10),
    case account() of
        Last -> check_gone(Before, Last, Left - 1);
        Now -> check_gone(Before, Now, ?STILL)
    end.
