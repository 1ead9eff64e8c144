%% The benchmark ets_bench of the papers named in ets_bench.hrl: the phases, their operations, and one
%% measured run.
%%
%% A run makes a public table and executes the phases on it one after the other: insert, mixed with 100, 99,
%% 90, 80 and 50 % lookups (the rest inserts and deletes in equal parts, so that the size stays about the
%% same), delete. Keys are random integers from 1 to twice the number of inserts. The operations of a phase
%% are dealt equally to the workers, each a process of its own, and made before the clock starts. The time of
%% a phase is from the first worker's begin to the last one's end.
-module(ets_bench).
-export([phases/0, workload/3, run/4]).
-export_type([phase/0, workload/0]).

-type phase() :: insert | {mixed, Lookups :: 0..100} | delete.
-type workload() :: [{phase(), Total :: pos_integer(), PerWorker :: [binary()]}].

%% @doc The phases in the order in which a run executes them.
-spec phases() -> [phase()].
phases() ->
    [insert, {mixed, 100}, {mixed, 99}, {mixed, 90}, {mixed, 80}, {mixed, 50}, delete].

%% @doc Makes the operations of all phases, `Operations' in each, the same ones for the same seed.
-spec workload(Operations :: pos_integer(), Workers :: pos_integer(), Seed :: integer()) -> workload().
workload(Operations, Workers, Seed) ->
    {Workload, _} =
        lists:mapfoldl(
          fun(Phase, Random0) ->
                  {PerWorker, Random} =
                      lists:mapfoldl(
                        fun(_, R) -> operations(Phase, Operations div Workers, 2 * Operations, R, <<>>) end,
                        Random0, lists:seq(1, Workers)),
                  {{Phase, Workers * (Operations div Workers), PerWorker}, Random}
          end,
          element(2, rand:seed_s(exsp, {Seed, 16#5EED, 16#CA75})), phases()),
    Workload.

operations(_Phase, 0, _Range, Random, Acc) ->
    {Acc, Random};
operations(Phase, N, Range, Random0, Acc) ->
    {KeyBits, Random1} = rand:exsp_next(Random0),
    {ChoiceBits, Random} = rand:exsp_next(Random1),
    Key = 1 + (KeyBits bsr 8) rem Range,
    Code = code(Phase, (ChoiceBits bsr 8) rem 200),
    operations(Phase, N - 1, Range, Random, <<Acc/binary, (Key * 4 + Code):32>>).

code(insert, _) -> 0;
code(delete, _) -> 1;
code({mixed, Lookups}, Choice) when Choice < 2 * Lookups -> 2;
code({mixed, _}, Choice) -> Choice band 1.

%% @doc Runs the workload once on a new table, and returns the operations per second of each phase.
-spec run(module(), atom(), [term()], workload()) -> [{phase(), float()}].
run(Workload, Type, Options, Phases) ->
    Table = Workload:new(ets_bench, [Type, public | Options]),
    Figures = [{Phase, Total / seconds(Workload, Table, PerWorker)} || {Phase, Total, PerWorker} <- Phases],
    Workload:delete(Table),
    Figures.

seconds(Workload, Table, PerWorker) ->
    Workers = [spawn_monitor(fun() ->
                                     receive go -> ok end,
                                     exit({shutdown, Workload:run(Table, Operations)})
                             end) || Operations <- PerWorker],
    erlang:garbage_collect(),
    timer:sleep(20),
    [Pid ! go || {Pid, _} <- Workers],
    Times = [receive {'DOWN', Monitor, process, _, {shutdown, Time}} -> Time;
                     {'DOWN', Monitor, process, _, Reason} -> error({worker, Reason})
             end || {_, Monitor} <- Workers],
    Begin = lists:min([Start || {Start, _} <- Times]),
    End = lists:max([Stop || {_, Stop} <- Times]),
    max(1, End - Begin) / erlang:convert_time_unit(1, second, native).
