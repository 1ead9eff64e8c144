%% pcmark, after BenchErl: five tables are filled, then processes go through them and update them. When one
%% process ends, the next one starts, up to a given number.
-module(pcmark).
-export([run/3]).

-include("tables.hrl").

-define(TABLES, 5).

%% @doc Runs so many processes, `at_once' of them at a time, on tables of so many objects.
-spec run(ets | cats, [term()], #{objects := pos_integer(), processes := pos_integer(),
                                  at_once := pos_integer()}) -> ok.
run(Tables, Options, #{objects := Objects, processes := Processes, at_once := AtOnce}) ->
    Made = [Tables:new(pcmark, [set, public | Options]) || _ <- lists:seq(1, ?TABLES)],
    [Tables:insert(Table, {N, N, value}) || Table <- Made, N <- lists:seq(1, Objects)],
    Start = fun() -> spawn_monitor(fun() -> [visit(Objects, Tables, Table) || Table <- Made] end) end,
    [Start() || _ <- lists:seq(1, AtOnce)],
    wait(Processes - AtOnce, AtOnce, Start),
    [Tables:delete(Table) || Table <- Made],
    ok.

wait(_ToStart, 0, _Start) ->
    ok;
wait(ToStart, Running, Start) ->
    receive
        {'DOWN', _, process, _, normal} when ToStart > 0 ->
            Start(),
            wait(ToStart - 1, Running, Start);
        {'DOWN', _, process, _, normal} ->
            wait(ToStart, Running - 1, Start)
    end.

visit(0, _Tables, _Table) ->
    ok;
visit(Key, Tables, Table) ->
    [{_, Count, Value}] = ?CALL(Tables, lookup(Table, Key)),
    case Key rem 4 of
        0 -> ?CALL(Tables, insert(Table, {Key, Count + 1, Value}));
        _ -> ok
    end,
    visit(Key - 1, Tables, Table).
