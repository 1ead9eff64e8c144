%% Reads of the size of a table beside writers: one process asks for it all the time, the others insert and delete.
-module(bench_size_beside).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").
-include("tables.hrl").

about() ->
    #{title => "info(Table, size) beside writers", source => ?ADAPTATION ", section 4 (counters)",
      unit => "operations/s", better => higher, x => work, scale => category, panels => [type, workers]}.

points(Size) ->
    [#{axes => [{type, Type}, {workers, Workers}], subjects => subjects(Type),
       seconds => length(subjects(Type)) * 4 * milliseconds(Size) / 1000}
     || Type <- [set, ordered_set], Workers <- bench_workers:counts()].

%% w has decentralized counters in an ordered_set, and none in a set unless d asks for them.
subjects(set) -> [bench_tables:ets(Names) || Names <- ["", "w", "w d"]] ++ [{"cats", cats, []}];
subjects(ordered_set) -> [bench_tables:ets(Names) || Names <- ["", "w", "w d-"]] ++ [{"cats", cats, []}].

milliseconds(quick) -> 50;
milliseconds(default) -> 200;
milliseconds(full) -> 2000.

measure(Size, #{type := Type, workers := Workers}, {_, Tables, Options}, _Seed) ->
    Table = bench_shapes:table(Tables, Type, Options, 10_000, fun(Key) -> {Key} end),
    Until = fun(Step) -> fun() -> repeat(Step, deadline(milliseconds(Size)), 0) end end,
    Asks = Until(fun(_) -> ?CALL(Tables, info(Table, size)) end),
    Writers = [Until(fun(N) -> write(Tables, Table, 20_000 + Worker + Workers * (N rem 1000)) end)
               || Worker <- lists:seq(1, Workers)],
    [Asked] = rates([Asks]),
    Alone = lists:sum(rates(Writers)),
    [AskedBeside | Beside] = rates([Asks | Writers]),
    Tables:delete(Table),
    [{[{work, "asks alone"}], Asked}, {[{work, "asks beside writes"}], AskedBeside},
     {[{work, "writes alone"}], Alone}, {[{work, "writes beside asks"}], lists:sum(Beside)}].

write(Tables, Table, Key) ->
    ?CALL(Tables, insert(Table, {Key})),
    ?CALL(Tables, delete(Table, Key)).

deadline(Milliseconds) ->
    erlang:monotonic_time() + erlang:convert_time_unit(Milliseconds, millisecond, native).

%% Looks at the clock after every ten steps.
repeat(Step, Deadline, Done) ->
    [Step(Done + N) || N <- lists:seq(1, 10)],
    case erlang:monotonic_time() < Deadline of
        true -> repeat(Step, Deadline, Done + 10);
        false -> Done + 10
    end.

%% The steps a second of each.
rates(Work) ->
    Own = self(),
    Each = [{make_ref(), Fun} || Fun <- Work],
    Seconds = bench_workers:seconds([fun() -> Own ! {Reference, Fun()} end || {Reference, Fun} <- Each]),
    [receive {Reference, Steps} -> Steps / Seconds end || {Reference, _} <- Each].
