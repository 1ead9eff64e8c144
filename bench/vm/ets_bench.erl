%% The benchmark ets_bench: its phases, their operations, and one measured run.
%%
%% Source: Klaftenegger, Sagonas, Winblad, "On the Scalability of the Erlang Term Storage" (2013), section 5.
%% Sagonas, Winblad, "More Scalable Ordered Set for ETS Using Adaptation" (2014), sections 2.3 and 5.
%%
%% A run makes a public table of objects {Key} and executes the phases on it, one after the other: insert, mixed
%% phases by share of lookups, delete. In a mixed phase inserts and deletes are equal in number, so the size
%% stays about the same. Keys are random integers. Each worker is a process and has an equal part of a phase's
%% operations. They are made before the clock starts. The time of a phase goes from the begin of the first
%% worker to the end of the last one.
%%
%% An operation is 32 bits: the key times four, plus 0 for an insert, 1 for a delete, 2 for a lookup. The
%% operations are in a binary. So reading one takes 4 bytes of the processor's caches, and the garbage collector
%% has nothing to do.
-module(ets_bench).
-export([phases/0, phase_name/1, warm_up/0, workload/1, run/4, mixed/3, papers/4]).
-export_type([phase/0, workload/0]).

-include("tables.hrl").

-type phase() :: insert | {mixed, Lookups :: 0..100} | delete.
-type workload() :: [{phase(), Total :: pos_integer(), PerWorker :: [binary()]}].

%% @doc The phases in the order in which a run executes them.
-spec phases() -> [phase()].
phases() ->
    [insert, {mixed, 100}, {mixed, 99}, {mixed, 90}, {mixed, 80}, {mixed, 50}, delete].

%% @doc What a chart calls the phase.
-spec phase_name(phase()) -> string().
phase_name({mixed, Lookups}) -> integer_to_list(Lookups) ++ "% lookups";
phase_name(Phase) -> atom_to_list(Phase).

%% @doc Lets each kind of table run for a moment. So no code is loaded and no memory is first allocated under
%% the clock.
-spec warm_up() -> ok.
warm_up() ->
    Workload = workload(#{operations => 1 bsl 14, range => 1 bsl 15}),
    [run(Tables, Type, [], Workload) || Tables <- [ets, cats], Type <- [set, ordered_set]],
    bench_tables:settle().

%% @doc Makes the operations of all phases, the same ones for the same seed. Keys of insertions are uniform in
%% 1..`range', those of other operations follow `keys' ({@link bench_keys}). `inserts' and `deletes' default to
%% `operations'.
-spec workload(#{operations := pos_integer(), range := pos_integer(), inserts => pos_integer(),
                 deletes => pos_integer(), workers => pos_integer(), phases => [phase()],
                 keys => bench_keys:distribution(), seed => integer()}) -> workload().
workload(#{operations := Operations, range := Range} = Given) ->
    #{inserts := Inserts, deletes := Deletes, workers := Workers, phases := Phases, keys := Distribution,
      seed := Seed} =
        maps:merge(#{inserts => Operations, deletes => Operations, workers => 1, phases => phases(),
                     keys => uniform, seed => 0}, Given),
    Uniform = bench_keys:generator(uniform, Range),
    Keys = bench_keys:generator(Distribution, Range),
    {Workload, _} =
        lists:mapfoldl(fun(insert, Random) -> phase(insert, Inserts, Workers, Uniform, Random);
                          (delete, Random) -> phase(delete, Deletes, Workers, Keys, Random);
                          (Phase, Random) -> phase(Phase, Operations, Workers, Keys, Random)
                       end, bench_keys:seed(Seed), Phases),
    Workload.

phase(Phase, Total, Workers, Keys, Random0) ->
    Each = max(1, Total div Workers),
    {PerWorker, Random} = lists:mapfoldl(fun(_, R) -> operations(Phase, Each, Keys, R, <<>>) end,
                                         Random0, lists:seq(1, Workers)),
    {{Phase, Workers * Each, PerWorker}, Random}.

operations(_Phase, 0, _Keys, Random, Acc) ->
    {Acc, Random};
operations(Phase, N, Keys, Random0, Acc) ->
    {Key, Random1} = Keys(Random0),
    {Choice, Random} = bench_keys:below(200, Random1),
    operations(Phase, N - 1, Keys, Random, <<Acc/binary, (Key * 4 + code(Phase, Choice)):32>>).

code(insert, _) -> 0;
code(delete, _) -> 1;
code({mixed, Lookups}, Choice) when Choice < 2 * Lookups -> 2;
code({mixed, _}, Choice) -> Choice band 1.

%% @doc Runs the workload once on a new table of `ets' or `cats', and returns the operations per second of
%% each phase.
-spec run(ets | cats, Type :: atom(), [term()], workload()) -> [{phase(), float()}].
run(Tables, Type, Options, Workload) -> run(Tables, Type, Options, Workload, 1).

%% The workers are dealt to so many tables.
run(Tables, Type, Options, Workload, Number) ->
    Made = [Tables:new(ets_bench, [Type, public | Options]) || _ <- lists:seq(1, Number)],
    Figures = [{Phase, Total / bench_workers:seconds([fun() -> loop(Operations, Tables, Table) end
                                                      || {Operations, Table} <- deal(PerWorker, Made, Made)])}
               || {Phase, Total, PerWorker} <- Workload],
    [Tables:delete(Table) || Table <- Made],
    Figures.

deal([Operations | Workers], [Table | Rest], All) -> [{Operations, Table} | deal(Workers, Rest, All)];
deal([], _, _) -> [];
deal(Workers, [], All) -> deal(Workers, All, All).

loop(<<Code:32, Operations/binary>>, Tables, Table) ->
    Key = Code bsr 2,
    case Code band 3 of
        0 -> ?CALL(Tables, insert(Table, {Key}));
        1 -> ?CALL(Tables, delete(Table, Key));
        2 -> ?CALL(Tables, lookup(Table, Key))
    end,
    loop(Operations, Tables, Table);
loop(<<>>, _Tables, _Table) ->
    ok.

%% @doc Each phase as the papers run it: a new table is filled, and one mix of operations goes over it. Insertion and
%% deletion alone are before and after that with lookups alone. `Papers' is of {@link bench_sizes:papers/1}.
-spec papers(bench_experiment:subject(), Type :: atom(), Papers :: map(),
             #{workers := pos_integer(), seed := integer()}) -> [bench_experiment:row()].
papers({_, Tables, Options}, Type, #{operations := Operations} = Papers, Given) ->
    [{[{phase, phase_name(Phase)}], Figure}
     || Mixed <- [{mixed, Share} || {mixed, Share} <- lists:sort(maps:keys(Operations))],
        {Phase, Figure} <- run(Tables, Type, Options, bench_data:share(Mixed, fun() ->
            workload(maps:merge(Papers#{operations := maps:get(Mixed, Operations), phases => phases(Mixed)}, Given))
        end)),
        lists:member(Phase, measured(Mixed))].

phases({mixed, 100} = Lookups) -> [insert, Lookups, delete];
phases(Mixed) -> [insert, Mixed].

measured({mixed, 100} = Lookups) -> phases(Lookups);
measured(Mixed) -> [Mixed].

%% @doc Fills a table, or each of `tables', with half of the range. Returns the operations per second of mixed
%% phases, a row for each given share of lookups. All subjects of a point have the same workload.
-spec mixed(bench_experiment:subject(), Type :: atom(),
            #{range := pos_integer(), operations := pos_integer(), lookups := [0..100],
              workers => pos_integer(), tables => pos_integer(), keys => bench_keys:distribution(),
              seed := integer()}) ->
          [bench_experiment:row()].
mixed({_, Tables, Options}, Type, #{range := Range, lookups := Shares} = Given) ->
    Number = maps:get(tables, Given, 1),
    Phases = [insert | [{mixed, Share} || Share <- Shares]],
    Workload = bench_data:share(Given, fun() ->
        workload(Given#{phases => Phases, inserts => Number * max(1, Range div 2)}) end),
    [{[{lookups, Share}], Figure}
     || {{mixed, Share}, Figure} <- run(Tables, Type, Options, Workload, Number)].
