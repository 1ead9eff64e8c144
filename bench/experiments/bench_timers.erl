%% What timers and clocks cost. Messages go to a process that waits with a timeout, and to one that waits
%% without. Clocks are read.
-module(bench_timers).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

about() ->
    #{title => "Timers and time retrieval", source => ?RELEASE ", section 2.5.4",
      unit => "operations/s", better => higher, x => operation, scale => category, panels => [workers]}.

points(Size) ->
    [#{axes => [{workers, Workers}], subjects => [{"erlang", none, []}],
       seconds => bench_sizes:seconds(Size, 0.3, 1)} || Workers <- bench_workers:counts()].

turns(quick) -> 20_000;
turns(default) -> 200_000;
turns(full) -> 2_000_000.

measure(Size, #{workers := Workers}, _, _Seed) ->
    Turns = turns(Size),
    [{[{operation, Name}],
      Workers * Turns / bench_workers:seconds([fun() -> Work(Turns) end || _ <- lists:seq(1, Workers)])}
     || {Name, Work} <- [{"receive", fun(N) -> ping_pong(N, infinity) end},
                         {"receive after", fun(N) -> ping_pong(N, 60_000) end},
                         {"monotonic_time", fun monotonic_time/1},
                         {"monotonic_time + time_offset", fun system_time/1},
                         {"os:timestamp", fun timestamp/1}]].

ping_pong(Turns, Timeout) ->
    Parent = self(),
    Other = spawn_link(fun() -> pong(Parent, Timeout) end),
    ping(Turns, Other, Timeout),
    unlink(Other),
    exit(Other, kill).

ping(0, _Other, _Timeout) ->
    ok;
ping(Turns, Other, Timeout) ->
    Other ! ping,
    receive pong -> ok after Timeout -> exit(timeout) end,
    ping(Turns - 1, Other, Timeout).

pong(Other, Timeout) ->
    receive ping -> Other ! pong after Timeout -> exit(timeout) end,
    pong(Other, Timeout).

monotonic_time(0) -> ok;
monotonic_time(N) -> _ = erlang:monotonic_time(), monotonic_time(N - 1).

system_time(0) -> ok;
system_time(N) -> _ = erlang:monotonic_time() + erlang:time_offset(), system_time(N - 1).

timestamp(0) -> ok;
timestamp(N) -> _ = os:timestamp(), timestamp(N - 1).
