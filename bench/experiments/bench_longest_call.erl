%% The longest call while all schedulers call at once, a worker on each: all workers at one key, or each at a key
%% of its own. `erlang' computes a hash instead: how long the operating system keeps a thread from its processor.
-module(bench_longest_call).
-behaviour(bench_experiment).
-include("papers.hrl").
-export([about/0, points/1, measure/4]).

about() ->
    #{title => "Longest call at one hot key and at keys of one's own",
      source => ?SCALABILITY ", section 7 (biased keys)", unit => "us", better => lower, x => operation,
      scale => category, panels => [schedulers, keys]}.

points(Size) ->
    [#{axes => [{schedulers, N}, {keys, Keys}], flags => lists:concat(["+S ", N, ":", N]),
       subjects => [{"erlang", none, []}, bench_tables:ets(""), bench_tables:ets("w"), {"cats", cats, []}],
       seconds => 8 * milliseconds(Size) / 1000}
     || N <- [1, 2, 8], Keys <- ["one", "own"]].

milliseconds(quick) -> 50;
milliseconds(default) -> 250;
milliseconds(full) -> 2000.

measure(Size, #{schedulers := Workers, keys := Keys}, {_, Tables, Options}, _Seed) ->
    Table = case Tables of
                none -> none;
                _ -> bench_shapes:table(Tables, set, Options, 1000, fun(Key) -> {Key, 0} end)
            end,
    Rows = [{[{operation, Operation}],
             longest(milliseconds(Size), [call(Operation, Tables, Table, key(Keys, Worker))
                                          || Worker <- lists:seq(1, Workers)])}
            || Operation <- [update_counter, insert]],
    Tables =/= none andalso Tables:delete(Table),
    Rows.

key("one", _Worker) -> 1;
key("own", Worker) -> bench_shapes:nth(Worker, 1000).

call(_, none, none, Key) -> fun() -> erlang:phash2(Key) end;
call(update_counter, ets, Table, Key) -> fun() -> ets:update_counter(Table, Key, 1) end;
call(update_counter, cats, Table, Key) -> fun() -> cats:update_counter(Table, Key, 1) end;
call(insert, ets, Table, Key) -> fun() -> ets:insert(Table, {Key, 1}) end;
call(insert, cats, Table, Key) -> fun() -> cats:insert(Table, {Key, 1}) end.

%% The longest of the calls that the workers make until the time is over, in microseconds.
longest(Milliseconds, Calls) ->
    Longest = counters:new(length(Calls), []),
    Time = erlang:convert_time_unit(Milliseconds, millisecond, nanosecond),
    _ = bench_workers:seconds([fun() -> record(Call, Time, Longest, Worker) end
                               || {Worker, Call} <- lists:enumerate(Calls)]),
    lists:max([counters:get(Longest, Worker) || Worker <- lists:seq(1, length(Calls))]) / 1000.

record(Call, Time, Longest, Worker) ->
    Start = erlang:monotonic_time(nanosecond),
    counters:put(Longest, Worker, watch(Call, Start, Start + Time, 0)).

%% Each call ends where the next one begins, so nothing is missed between two.
watch(_Call, Last, End, Longest) when Last >= End ->
    Longest;
watch(Call, Last, End, Longest) ->
    _ = Call(),
    Now = erlang:monotonic_time(nanosecond),
    watch(Call, Now, End, max(Longest, Now - Last)).
