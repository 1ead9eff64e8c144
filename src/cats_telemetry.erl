%% @doc The figures of {@link cats:stats/0} as events of the library `telemetry'.
%%
%% `telemetry_poller' calls {@link measure/0} for them, if its measurements contain `{cats_telemetry, measure, []}'.
%%
%% <ul>
%% <li>`[cats, memory]': the measurement `total' has the bytes of all tables and snapshots, see
%%     {@link cats:memory/0}.</li>
%% <li>`[cats, budget]', if there is a limit for all memory: `held' and `limit' of {@link cats:budget/0}.</li>
%% <li>`[cats, garbage]': the figures of {@link cats:garbage/0}.</li>
%% <li>`[cats, system_counts]': `table_count'.</li>
%% <li>`[cats, table]', for each table: the integers of {@link cats:stats/1}, but `time'. `size' and `memory' are of
%% this moment, and the others count since the table was made. The metadata are `table', `id', `name', `type', `engine'
%% and `owner'.</li>
%% </ul>
%%
%% Cats does not depend on `telemetry'. Without it, nothing happens.
-module(cats_telemetry).
-export([measure/0, measure/1]).

%% @doc The same as {@link measure/1} for 1000 tables.
-spec measure() -> ok.
measure() ->
    measure(1000).

%% @doc Executes the events, those of tables for so many of the largest ones. `O(N log N)' for `N' tables.
-spec measure(Tables :: non_neg_integer()) -> ok.
measure(Tables) when is_integer(Tables), Tables >= 0 ->
    case code:ensure_loaded(telemetry) of
        {module, Telemetry} ->
            Telemetry:execute([cats, memory], #{total => cats:memory()}, #{}),
            _ = [Telemetry:execute([cats, budget], Budget, #{})
                 || #{limit := Limit} = Budget <- [cats:budget()], Limit =/= infinity],
            Telemetry:execute([cats, garbage], cats:garbage(), #{}),
            Telemetry:execute([cats, system_counts], #{table_count => length(cats:all())}, #{}),
            lists:foreach(fun(#{stats := Stats} = Row) ->
                                  Telemetry:execute([cats, table], measurements(Stats), maps:remove(stats, Row))
                          end, cats_stats:rows(memory, Tables));
        {error, _} ->
            ok
    end.

measurements(Stats) ->
    maps:filter(fun(Key, Value) -> is_integer(Value) andalso Key =/= time end, Stats).
