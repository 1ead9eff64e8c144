%% ran, after BenchErl: each process makes a list of 10,000 random integers, sorts it and sends its first half
%% to the process that started it. It allocates, collects garbage and sends messages, and uses no tables.
-module(ran).
-export([run/1]).

-define(LENGTH, 10_000).

%% @doc Runs so many processes, all at once.
-spec run(Processes :: pos_integer()) -> ok.
run(Processes) ->
    Parent = self(),
    Pids = [spawn_link(fun() -> Parent ! {self(), half(N)} end) || N <- lists:seq(1, Processes)],
    [receive {Pid, Half} -> ?LENGTH div 2 = length(Half) end || Pid <- Pids],
    ok.

half(Seed) ->
    {Integers, _} = lists:mapfoldl(fun(_, Random) -> rand:uniform_s(1 bsl 20, Random) end,
                                   rand:seed_s(exsp, Seed), lists:seq(1, ?LENGTH)),
    lists:sublist(lists:sort(Integers), ?LENGTH div 2).
