%% How long a step of one process takes while another process does something long. Times are kept in buckets,
%% 16 for each power of two. So percentiles are exact to some 4 %. The longest time is exact.
-module(bench_latency).
-export([during/2, percentiles/0]).

-define(PARTS, 16).

%% @doc The percentiles that are reported, by their names.
-spec percentiles() -> [{Name :: string(), Share :: float()}].
percentiles() -> [{"50%", 0.5}, {"99%", 0.99}, {"99.9%", 0.999}].

%% @doc Runs the operation in a process. Another process runs the step again and again, until the operation
%% ends. Returns the percentiles of the step's times, and the longest, in microseconds.
-spec during(Operation :: fun(() -> term()), Step :: fun(() -> term())) -> [{Name :: string(), float()}].
during(Operation, Step) ->
    {Worker, Monitor} = spawn_monitor(fun() -> receive go -> Operation() end end),
    Bystander = spawn_link(fun() -> receive {go, Parent} -> watch(Step, Parent) end end),
    erlang:garbage_collect(),
    timer:sleep(10),
    Bystander ! {go, self()},
    Worker ! go,
    receive
        {'DOWN', Monitor, process, Worker, normal} -> ok;
        {'DOWN', Monitor, process, Worker, Reason} -> error({worker, Reason})
    end,
    Bystander ! stop,
    receive {Bystander, Buckets, Longest} -> summary(Buckets, Longest) end.

watch(Step, Parent) ->
    Buckets = counters:new(64 * ?PARTS, []),
    Parent ! {self(), Buckets, watch(Step, Buckets, 0)}.

watch(Step, Buckets, Longest) ->
    Start = erlang:monotonic_time(nanosecond),
    _ = Step(),
    Time = max(1, erlang:monotonic_time(nanosecond) - Start),
    counters:add(Buckets, 1 + trunc(?PARTS * math:log2(Time)), 1),
    receive
        stop -> max(Longest, Time)
    after 0 ->
            watch(Step, Buckets, max(Longest, Time))
    end.

summary(Buckets, Longest) ->
    Counts = [{Index, counters:get(Buckets, Index)} || Index <- lists:seq(1, 64 * ?PARTS)],
    Total = lists:sum([Count || {_, Count} <- Counts]),
    [{Name, at(Share * Total, Counts)} || {Name, Share} <- percentiles()] ++ [{"longest", Longest / 1000}].

at(Wanted, [{Index, Count} | _]) when Wanted =< Count -> math:pow(2, (Index - 0.5) / ?PARTS) / 1000;
at(Wanted, [{_, Count} | Counts]) -> at(Wanted - Count, Counts).
