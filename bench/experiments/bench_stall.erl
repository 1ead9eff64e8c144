%% How long a call keeps a scheduler from all other processes. Measured is the longest time that a process
%% waited for its turn, on one scheduler, while another process worked on a large table. `control' is a
%% process that only computes. It shows what other programs on the machine do to the measurement. If they are
%% at work, the measurement is worth nothing.
-module(bench_stall).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

about() ->
    #{title => "Longest stall of a scheduler",
      source => ?SCALABILITY ", section 2",
      unit => "us", better => lower, x => operation, scale => category, panels => [type]}.

points(Size) ->
    [#{axes => [{type, Type}], flags => "+S 1:1", subjects => subjects(Type),
       seconds => bench_sizes:seconds(Size, 0.5, 2.2)} || Type <- [set, ordered_set, control]].

subjects(control) -> [{"erlang", none, []}];
subjects(_) -> bench_tables:subjects(plain).

objects(quick) -> 50_000;
objects(default) -> 500_000;
objects(full) -> 10_000_000.

measure(Size, #{type := control}, _, _Seed) ->
    Turns = objects(Size) * 500,
    [row(control, fun() -> compute(Turns) end)];
measure(Size, #{type := Type}, Subject, _Seed) ->
    bench_long_work:each(Subject, Type, objects(Size), fun(Name, _, Operation) -> row(Name, Operation) end).

row(Name, Operation) ->
    Waits = bench_latency:during(Operation, fun erlang:yield/0),
    {[{operation, Name}], proplists:get_value("longest", Waits)}.

compute(0) -> ok;
compute(N) -> compute(N - 1).
