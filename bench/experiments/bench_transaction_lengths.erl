%% How the time of a transaction grows with its length: the time of an operation, commit included, in transactions of 1
%% to 100,000 operations. An operation reads an object, or reads and writes one, or takes the first object of a queue:
%% `first', a read and a deletion. Keys differ within a transaction. One process runs one transaction after the other.
-module(bench_transaction_lengths).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).
-export([objects/1, open/3, lists/3, reads/3, reads_and_writes/3, takes/3]).

-include("papers.hrl").

about() ->
    #{title => "Time of an operation in transactions of any length",
      source => ?SCALABILITY ", section 4.1 (software transactional memory on ETS)",
      unit => "us", better => lower, x => operations, scale => log, panels => [work]}.

points(Size) ->
    [#{axes => [{work, Work}], seconds => bench_sizes:seconds(Size, 1, 15) / factor(Size),
       subjects => bench_atomic:subjects()}
     || Work <- ["reads of a set", "reads of an ordered_set", "reads and writes of a set",
                 "reads and writes of an ordered_set", "takes from an ordered_set"]].

%% A round at the full size differs from one at the default size by longer transactions, not by a larger table.
factor(full) -> 12;
factor(_) -> 1.

work("reads of a set") -> {set, fun ?MODULE:reads/3};
work("reads of an ordered_set") -> {ordered_set, fun ?MODULE:reads/3};
work("reads and writes of a set") -> {set, fun ?MODULE:reads_and_writes/3};
work("reads and writes of an ordered_set") -> {ordered_set, fun ?MODULE:reads_and_writes/3};
work("takes from an ordered_set") -> {ordered_set, fun ?MODULE:takes/3}.

-spec objects(bench_experiment:size()) -> pos_integer().
objects(quick) -> 10_000;
objects(_) -> 1_000_000.

%% Operations in all transactions of a length together. Mnesia takes long, and what takes objects needs them.
operations(quick, _, _) -> 500;
operations(Size, "takes" ++ _, mnesia) -> operations(Size) div 100;
operations(Size, Work, Way) when Way =:= mnesia; hd(Work) =:= $t -> operations(Size) div 5;
operations(Size, _, _) -> operations(Size).

operations(default) -> 50_000;
operations(full) -> 200_000.

%% Mnesia looks at all that a transaction has deleted each time it is asked for the first key. So many take minutes.
lengths(quick, _, _) -> [1, 10, 100];
lengths(Size, "takes" ++ _, mnesia) -> [N || N <- lengths(Size, "takes", cats), N =< 1600];
lengths(default, "takes" ++ _, _) -> [1, 10, 32, 100, 1600, 10_000];
lengths(full, "takes" ++ _, _) -> [1, 10, 32, 100, 1600, 10_000, 100_000];
lengths(default, _, _) -> [1, 10, 32, 100, 1000, 10_000];
lengths(full, _, _) -> [1, 10, 32, 100, 1000, 10_000, 100_000].

measure(Size, #{work := Work}, {_, _, [Way]}, _Seed) ->
    {Type, Body} = work(Work),
    Bank = open(Way, Type, objects(Size)),
    Rows = [{[{operations, Length}],
             time(Bank, Body, max(1, operations(Size, Work, Way) div Length), Length, objects(Size))}
            || Length <- lengths(Size, Work, Way)],
    bench_atomic:close(Bank),
    Rows.

-spec open(bench_atomic:words(), set | ordered_set, pos_integer()) -> bench_atomic:bank().
open(Way, Type, Number) -> bench_atomic:open(Way, [{entry, Type, Number, fun(N) -> {entry, N, N} end}]).

%% Microseconds of an operation.
time(Bank, Body, Times, Length, Number) ->
    Lists = bench_data:share({lists, Times, Length}, fun() -> lists(Times, Length, Number) end),
    Run = fun(Keys) -> {atomic, _} = bench_atomic:run(Bank, Body, Keys) end,
    1.0e6 * bench_workers:seconds([fun() -> lists:foreach(Run, Lists) end]) / (Times * Length).

%% @doc So many lists of keys. The keys of a list differ.
-spec lists(Times :: pos_integer(), Length :: pos_integer(), Number :: pos_integer()) -> [[pos_integer()]].
lists(Times, Length, Number) ->
    [[bench_shapes:nth(Time * Length + N, Number) || N <- lists:seq(1, Length)] || Time <- lists:seq(1, Times)].

-spec reads(bench_atomic:words(), map(), [pos_integer()]) -> ok.
reads(Words, #{entry := Table}, Keys) ->
    lists:foreach(fun(Key) -> [{entry, Key, _}] = bench_atomic:read(Words, Table, Key) end, Keys).

-spec reads_and_writes(bench_atomic:words(), map(), [pos_integer()]) -> ok.
reads_and_writes(Words, #{entry := Table}, Keys) ->
    lists:foreach(fun(Key) ->
                          [{entry, Key, Count}] = bench_atomic:read_to_write(Words, Table, Key),
                          bench_atomic:write(Words, Table, {entry, Key, Count + 1})
                  end, Keys).

%% Only the length of the list matters.
-spec takes(bench_atomic:words(), map(), [pos_integer()]) -> ok.
takes(Words, #{entry := Table}, Keys) ->
    lists:foreach(fun(_) ->
                          First = bench_atomic:first(Words, Table),
                          [{entry, First, _}] = bench_atomic:read_to_write(Words, Table, First),
                          bench_atomic:delete(Words, Table, First)
                  end, Keys).
