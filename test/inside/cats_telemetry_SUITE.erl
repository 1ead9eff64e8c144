%% The events for the library telemetry. A module of its name, which this makes, passes them on.
-module(cats_telemetry_SUITE).
-include_lib("stdlib/include/assert.hrl").
-export([all/0, init_per_suite/1, end_per_suite/1, end_per_testcase/2]).
-export([events/1, limit/1, without_library/1]).

all() -> [events, limit, without_library].

init_per_suite(Config) -> cats_test_lib:only_cats(cats_test_lib:start(Config)).

end_per_suite(_Config) -> ok.

end_per_testcase(_Case, _Config) ->
    code:purge(telemetry),
    code:delete(telemetry).

%% The caller receives the events, as it would handle them itself.
load() ->
    Forms = [erl_parse_form("-module(telemetry)."), erl_parse_form("-export([execute/3])."),
             erl_parse_form("execute(Event, Measurements, Metadata) -> self() ! {Event, Measurements, Metadata}, ok.")],
    {ok, telemetry, Beam} = compile:forms(Forms),
    {module, telemetry} = code:load_binary(telemetry, "telemetry.erl", Beam).

erl_parse_form(Text) ->
    {ok, Tokens, _} = erl_scan:string(Text),
    {ok, Form} = erl_parse:parse_form(Tokens),
    Form.

received() ->
    receive
        {[cats | _], _, _} = Event -> [Event | received()]
    after 0 -> []
    end.

events(_Config) ->
    load(),
    Table = cats:new(telemetry_one, [ordered_set, named_table, {stats, true}]),
    true = cats:insert(Table, [{N, N} || N <- lists:seq(1, 100)]),
    [] = cats:lookup(Table, 0),
    Plain = cats:new(telemetry_other, []),
    ok = cats_telemetry:measure(),
    Events = received(),
    ?assertMatch([{[cats, memory], #{total := Total}, _}, {[cats, garbage], #{retired := _, freed := _, bytes := _}, _},
                  {[cats, system_counts], #{table_count := Tables}, _} | _]
                 when Total > 0 andalso Tables =:= length(Events) - 3, Events),
    Self = self(),
    Id = cats:info(Table, id),
    [Measurements] = [Of
                      || {[cats, table], Of,
                          #{table := telemetry_one, id := Found, name := telemetry_one, type := ordered_set,
                            engine := ca, owner := Owner}} <- Events, Found =:= Id, Owner =:= Self],
    ?assertMatch(#{size := 100, memory := _, inserts := 100, lookups := 1, hits := 0, misses := 1, operations := 101,
                   waits := 0, wait_time := 0, splits := _}, Measurements),
    ?assertEqual(cats:stats_delta(Measurements, maps:with(maps:keys(Measurements), cats:stats(Table))),
                 maps:map(fun(_, _) -> 0 end, Measurements)),
    [Others] = [Of || {[cats, table], Of, #{table := Found}} <- Events, Found =:= Plain],
    ?assertEqual(false, is_map_key(lookups, Others)),
    %% Reporters take numbers only.
    ?assertEqual([], [Value || {_, Of, _} <- Events, Value <- maps:values(Of), not is_integer(Value)]),
    ?assertNot(is_map_key(time, Measurements)).

limit(_Config) ->
    load(),
    Large = cats:new(telemetry_large, []),
    true = cats:insert(Large, [{N, N} || N <- lists:seq(1, 5000)]),
    [cats:new(telemetry_small, []) || _ <- [1, 2, 3]],
    ok = cats_telemetry:measure(1),
    ?assertMatch([_, _, _, {[cats, table], _, #{table := Large}}], received()),
    ok = cats_telemetry:measure(0),
    ?assertMatch([{[cats, memory], _, _}, {[cats, garbage], _, _}, {[cats, system_counts], _, _}], received()),
    ?assertError(function_clause, cats_telemetry:measure(-1)).

without_library(_Config) ->
    ?assertEqual(non_existing, code:which(telemetry)),
    ok = cats_telemetry:measure(),
    ?assertEqual([], received()).
