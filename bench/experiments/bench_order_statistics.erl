%% Ranks, objects by number and counts of ranges in an ordered_set with random keys, and what insertions cost before and
%% after the first of these calls. The other subjects do what there is without cats: a program on ets counts by
%% select_count or walks, and Redis has a sorted set, whose members are strings. Each command to Redis is a round trip
%% through a socket, or a hundred of them are (`redis pipelined'). Without redis-server these rows are left out, and the
%% title says so.
%%
%% `integers' has integers as keys. `players' is a leaderboard with keys {Score, Player}, beside a set with the score of
%% each player.
-module(bench_order_statistics).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

-define(BATCH, 100).
-define(HIGHEST, 1_000_000).

about() ->
    #{title => "Order statistics of an ordered_set"
               ++ [" (without Redis, as redis-server is not installed)" || not has_redis()],
      source => ?SCALABILITY ", section 2 (operations)",
      unit => "us", better => lower, x => call, scale => category, panels => [keys]}.

has_redis() -> os:find_executable("redis-server") =/= false.

points(Size) ->
    [#{axes => [{keys, Keys}], seconds => bench_sizes:seconds(Size, 1, 25),
       subjects => [{"ets", ets, []}, {"cats", cats, []}]
                   ++ [Redis || Keys =:= players, has_redis(),
                                Redis <- [{"redis", none, [1]}, {"redis pipelined", none, [?BATCH]}]]}
     || Keys <- [integers, players]].

objects(quick) -> 20_000;
objects(_) -> 1_000_000.

%% How many calls are measured. Those of ets pass half of the table, on average.
calls(_, ets) -> 4;
calls(quick, _) -> 1_000;
calls(_, _) -> 50_000.

insertions(quick) -> 2_000;
insertions(_) -> 100_000.

%% The first statistic of a table of cats counts all leaves. It is a row of its own.
measure(Size, #{keys := integers}, {_, Tables, _}, Seed) ->
    Number = objects(Size),
    Keys = bench_data:share(keys, fun() -> keys(Number + 2 * insertions(Size), Seed) end),
    {Filling, Rest} = lists:split(Number, Keys),
    {Before, After} = lists:split(insertions(Size), Rest),
    Table = Tables:new(table, [ordered_set, public]),
    [Tables:insert(Table, {Key, Key}) || Key <- Filling],
    Calls = calls(Size, Tables),
    Probes = keys(Calls, Seed + 1),
    Rows = [time("insert", Before, fun(Key) -> Tables:insert(Table, {Key, Key}) end),
            time("first rank", [hd(Probes)], fun(Key) -> rank(Tables, Table, Key) end),
            time("counted insert", After, fun(Key) -> Tables:insert(Table, {Key, Key}) end),
            time("rank", Probes, fun(Key) -> rank(Tables, Table, Key) end),
            time("nth", numbers(Calls, Number, Seed), fun(N) -> nth(Tables, Table, N) end),
            time("count", pairs(Probes), fun({From, To}) -> count(Tables, Table, From, To) end)],
    Tables:delete(Table),
    bench_tables:settle(),
    Rows;
measure(Size, #{keys := players}, {_, none, [Batch]}, Seed) ->
    with_redis(fun(Socket) -> players(Size, Seed, redis(Socket, Batch)) end);
measure(Size, #{keys := players}, {_, Tables, []}, Seed) ->
    Board = Tables:new(board, [ordered_set, public]),
    Scores = Tables:new(scores, [public]),
    Rows = players(Size, Seed, tables(Tables, Board, Scores)),
    [Tables:delete(Table) || Table <- [Board, Scores]],
    bench_tables:settle(),
    Rows.

keys(Number, Seed) ->
    bench_keys:list(bench_keys:generator(uniform, 1 bsl 40), Number, bench_keys:seed(Seed)).

numbers(Number, Below, Seed) ->
    [N - 1 || N <- bench_keys:list(bench_keys:generator(uniform, Below), Number, bench_keys:seed(Seed + 2))].

pairs([From, To | Keys]) -> [{min(From, To), max(From, To)} | pairs(Keys)];
pairs(_) -> [].

%% A row: microseconds of a call.
time(Name, Arguments, Call) ->
    time(Name, Arguments, fun(All) -> lists:foreach(Call, All) end, length(Arguments)).

time(Name, Arguments, CallAll, Number) ->
    {[{call, Name}], 1.0e6 * bench_workers:seconds([fun() -> CallAll(Arguments) end]) / Number}.

%%--------------------------------------------------------------------------------------------------
%% Tables

rank(cats, Table, Key) -> cats:rank(Table, Key);
rank(ets, Table, Key) -> ets:select_count(Table, [{{'$1', '_'}, [{'<', '$1', {const, Key}}], [true]}]).

nth(cats, Table, N) -> cats:nth(Table, N);
nth(ets, Table, N) -> ets:lookup(Table, walk(Table, ets:first(Table), N)).

walk(_Table, Key, 0) -> Key;
walk(Table, Key, N) -> walk(Table, ets:next(Table, Key), N - 1).

count(cats, Table, From, To) -> cats:count(Table, From, To);
count(ets, Table, From, To) ->
    ets:select_count(Table, [{{'$1', '_'}, [{'>=', '$1', {const, From}}, {'=<', '$1', {const, To}}], [true]}]).

%%--------------------------------------------------------------------------------------------------
%% The leaderboard. A subject is a map of functions that make all calls of a list.

players(Size, Seed, #{calls := Kind, fill := Fill, change := Change, rank := Rank, nth := Nth, count := Count}) ->
    Number = objects(Size),
    Generator = bench_keys:generator(uniform, ?HIGHEST),
    Random = fun(Times, Of, More) -> bench_keys:list(Of, Times, bench_keys:seed(Seed + More)) end,
    Fill(lists:zip(lists:seq(1, Number), Random(Number, Generator, 1))),
    Players = fun(Times, More) -> Random(Times, bench_keys:generator(uniform, Number), More) end,
    Changes = insertions(Size),
    NewScores = fun(More) -> lists:zip(Players(Changes, More), Random(Changes, Generator, More + 1)) end,
    Calls = calls(Size, Kind),
    [time("new score", NewScores(2), Change, Changes),
     time("first rank", Players(1, 4), Rank, 1),
     time("counted new score", NewScores(5), Change, Changes),
     time("rank", Players(Calls, 7), Rank, Calls),
     time("nth", numbers(Calls, Number, Seed), Nth, Calls),
     time("count", pairs(Random(2 * Calls, Generator, 8)), Count, Calls)].

tables(Tables, Board, Scores) ->
    Change = fun({Player, Score}) ->
                     case Tables:lookup(Scores, Player) of
                         [{_, Old}] -> Tables:delete(Board, {Old, Player});
                         [] -> ok
                     end,
                     Tables:insert(Board, {{Score, Player}, []}),
                     Tables:insert(Scores, {Player, Score})
             end,
    Rank = fun(Player) ->
                   [{_, Score}] = Tables:lookup(Scores, Player),
                   rank(Tables, Board, {Score, Player})
           end,
    Each = fun(Call) -> fun(All) -> lists:foreach(Call, All) end end,
    #{calls => Tables, fill => Each(Change), change => Each(Change), rank => Each(Rank),
      nth => Each(fun(N) -> nth(Tables, Board, N) end),
      count => Each(fun({From, To}) -> count(Tables, Board, {From, 0}, {To + 1, 0}) end)}.

%%--------------------------------------------------------------------------------------------------
%% Redis

redis(Socket, Batch) ->
    InBatches = fun(Of, Command) ->
                        fun(Arguments) -> commands(Socket, Of, [Command(Argument) || Argument <- Arguments]) end
                end,
    All = fun(Command) -> InBatches(Batch, Command) end,
    Change = fun({Player, Score}) -> ["ZADD", "board", integer_to_list(Score), player(Player)] end,
    #{calls => redis,
      fill => InBatches(?BATCH, Change),
      change => All(Change),
      rank => All(fun(Player) -> ["ZRANK", "board", player(Player)] end),
      nth => All(fun(N) -> ["ZRANGE", "board", integer_to_list(N), integer_to_list(N)] end),
      count => All(fun({From, To}) -> ["ZCOUNT", "board", integer_to_list(From), integer_to_list(To)] end)}.

player(Player) -> integer_to_list(Player).

%% Sends commands, as many at once as a batch has, and waits for the replies to all of them.
commands(_Socket, _Batch, []) ->
    ok;
commands(Socket, Batch, Commands) ->
    Now = lists:sublist(Commands, Batch),
    ok = gen_tcp:send(Socket, [encoded(Command) || Command <- Now]),
    [reply(Socket) || _ <- Now],
    commands(Socket, Batch, lists:nthtail(length(Now), Commands)).

%% The protocol of Redis (RESP): commands are arrays of strings.
encoded(Words) ->
    [[$*, integer_to_list(length(Words)), "\r\n"]
     | [[$$, integer_to_list(length(Word)), "\r\n", Word, "\r\n"] || Word <- Words]].

reply(Socket) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, <<"-", Error/binary>>} -> error({redis, Error});
        {ok, <<"$-1", _/binary>>} -> none;
        {ok, <<"$", _/binary>>} -> {ok, Line} = gen_tcp:recv(Socket, 0), Line;
        {ok, <<"*", Length/binary>>} -> [reply(Socket) || _ <- lists:seq(1, binary_to_integer(string:trim(Length)))];
        {ok, Line} -> Line
    end.

%% Calls a function with a socket to a server that has no other clients. The server keeps everything in memory. It ends
%% with the port, also if this VM is killed.
with_redis(Measure) ->
    Directory = filename:join(os:getenv("TMPDIR", "/tmp"), "cats-redis-" ++ os:getpid()),
    ok = file:make_dir(Directory),
    ok = file:change_mode(Directory, 8#700),
    Path = filename:join(Directory, "socket"),
    Server = open_port({spawn_executable, "/bin/sh"},
                       [{args, ["-c", "redis-server \"$@\" >/dev/null & cat >/dev/null; kill $!", "sh", "--port", "0",
                                "--unixsocket", Path, "--save", "", "--appendonly", "no", "--dir", Directory]}]),
    try
        Measure(connect(Path, 100))
    after
        port_close(Server),
        file:del_dir_r(Directory)
    end.

connect(Path, Times) ->
    case gen_tcp:connect({local, Path}, 0, [local, binary, {active, false}, {packet, line}]) of
        {ok, Socket} ->
            Socket;
        {error, _} when Times > 0 ->
            timer:sleep(50),
            connect(Path, Times - 1)
    end.
