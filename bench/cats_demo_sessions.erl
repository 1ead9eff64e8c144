%% What programs store: sessions, with a binary as the key and a map. A table of 100 of them, of 1000, and so on, in ets
%% and in cats, both with their defaults, for one process.
%%
%% The tables take turns. A row shows the median time of a call over all rounds, and how fast cats is by that of ets:
%% the ratio of these two figures. The spread is that of the ratios within each round.
-module(cats_demo_sessions).
-export([run/1, rows/3]).

-type row() :: {Sessions :: pos_integer(), Call :: string(), Unit :: string(), Ets :: float(), Cats :: float(),
                Ratio :: float(), Lowest :: float(), Highest :: float()}.

-define(SIZES, [100, 1000, 10_000, 100_000]).
-define(ROUNDS, 7).
%% How many keys a loop goes over, and how long it takes in microseconds.
-define(KEYS, 1000).
-define(LOOP, 20_000).

%% @doc Measures, and prints the table.
-spec run(bench_experiment:subject()) -> ok.
run(Subject) ->
    io:format("What programs store: sessions, a binary of 32 bytes and a map of 4 pairs, in a set, for one process~n~n"
              "~9s  ~-26s ~11s ~11s ~7s  ~s~n", ["sessions", "call", "ets", "cats", "ratio", "spread"]),
    [io:format("~9b  ~-26s ~11s ~11s ~7.2f  ~5.2f -~5.2f~n",
               [Sessions, Call, figure(Ets, Unit), figure(Cats, Unit), Ratio, Lowest, Highest])
     || Size <- ?SIZES, {Sessions, Call, Unit, Ets, Cats, Ratio, Lowest, Highest} <- rows(Subject, Size, ?ROUNDS)],
    io:format("~nratio: how fast cats is by that of ets, and how much ets takes by what cats takes. Below 1, "
              "cats loses.~n").

figure(Value, Unit) -> io_lib:format("~b ~s", [round(Value), Unit]).

%% @doc The rows of tables with so many sessions.
-spec rows(bench_experiment:subject(), pos_integer(), Rounds :: pos_integer()) -> [row()].
rows({_, Tables, Options}, Size, Rounds) ->
    Keys = list_to_tuple([token(N) || N <- lists:seq(1, Size)]),
    Sides = [{bench_calls:loops(Module), Module, filled(Module, Given, Keys)}
             || {Module, Given} <- [{ets, []}, {Tables, Options}]],
    Rows = [row(Size, Call, "ns", [both(Round, Sides, Loop, Arguments) || Round <- lists:seq(1, Rounds)])
            || {Call, Loop, Argument} <- calls(), Arguments <- [arguments(Keys, Size, Argument)]],
    [Ets, Cats] = [Module:info(Table, memory) * erlang:system_info(wordsize) / Size || {_, Module, Table} <- Sides],
    [Module:delete(Table) || {_, Module, Table} <- Sides],
    bench_tables:settle(),
    Rows ++ [row(Size, "memory of a session", "bytes", [{Ets, Cats}])].

%% What a call takes in ets and in cats, which take turns in going first.
both(Round, [Ets, Cats], Loop, Arguments) when Round rem 2 =:= 1 ->
    First = time(Ets, Loop, Arguments),
    {First, time(Cats, Loop, Arguments)};
both(_Round, [Ets, Cats], Loop, Arguments) ->
    First = time(Cats, Loop, Arguments),
    {time(Ets, Loop, Arguments), First}.

row(Size, Call, Unit, Rounds) ->
    {Ets, Cats} = lists:unzip(Rounds),
    Ratios = [E / C || {E, C} <- Rounds],
    {Size, Call, Unit, median(Ets), median(Cats), median(Ets) / median(Cats), lists:min(Ratios), lists:max(Ratios)}.

median(Figures) -> lists:nth((length(Figures) + 1) div 2, lists:sort(Figures)).

calls() ->
    [{"lookup", lookup, fun(Key, _) -> Key end},
     {"insert over itself", insert, fun(Key, N) -> {Key, session(N + 1)} end},
     {"delete, and insert again", delete_insert, fun(Key, N) -> {Key, {Key, session(N + 1)}} end}].

filled(Module, Options, Keys) ->
    Table = Module:new(sessions, [public | Options]),
    [true = Module:insert(Table, {element(N, Keys), session(N)}) || N <- lists:seq(1, tuple_size(Keys))],
    Table.

token(N) -> binary:encode_hex(erlang:md5(<<N:32>>)).

session(N) ->
    #{user => <<"user:", (integer_to_binary(N))/binary>>, roles => [user, editor], locale => en, since => N}.

arguments(Keys, Size, Argument) ->
    Generator = bench_keys:generator(uniform, Size),
    [Argument(element(N, Keys), N) || N <- bench_keys:list(Generator, ?KEYS, bench_keys:seed(Size))].

%% The nanoseconds of a call.
time({Loops, _Module, Table}, Loop, Arguments) ->
    {Once, _} = timer:tc(fun() -> Loops:loop(Loop, Table, Arguments) end),
    Repeats = max(1, ?LOOP div max(1, Once)),
    {Micros, _} = timer:tc(fun() -> [Loops:loop(Loop, Table, Arguments) || _ <- lists:seq(1, Repeats)] end),
    1000 * Micros / (Repeats * length(Arguments)).
