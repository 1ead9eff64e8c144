%% How long a single lookup or insertion takes while another process runs long transactions on the table. They read
%% 10,000 keys, or they write 10,000 keys at their end. Beside them is the same loop without transactions: the process
%% reads or writes these keys by `cats', or sleeps. The bystander's keys differ from those of the transactions.
-module(bench_transaction_latency).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

about() ->
    #{title => "Latency of others' lookups and insertions beside transactions of 10,000 keys",
      source => ?SCALABILITY ", section 4.1 (software transactional memory on ETS)",
      unit => "us", better => lower, x => percentile, scale => category, panels => [type, step]}.

points(Size) ->
    [#{axes => [{type, Type}, {step, Step}], seconds => 6 * milliseconds(Size) / 1000 + 2,
       subjects => [{"sleep", cats, [sleep]}, {"lookups", cats, [lookups]}, {"insertions", cats, [insertions]},
                    {"reads in transactions", cats, [reads]}, {"writes in transactions", cats, [writes]}]}
     || Type <- [set, ordered_set], Step <- [lookup, insert]].

milliseconds(quick) -> 50;
milliseconds(default) -> 500;
milliseconds(full) -> 5000.

%% The transactions use the odd keys, the bystander the even ones.
measure(Size, #{type := Type, step := Step}, {_, _, [Work]}, _Seed) ->
    Number = bench_transaction_lengths:objects(Size),
    Table = bench_shapes:table(cats, Type, [], Number, fun(N) -> {N, N} end),
    Keys = bench_data:share(keys, fun() -> [2 * bench_shapes:nth(N, Number div 2) - 1 || N <- lists:seq(1, count(Size))]
                                  end),
    Operation = fun() -> until(erlang:monotonic_time(millisecond) + milliseconds(Size), Work, Table, Keys) end,
    Rows = [{[{percentile, Percentile}], Time}
            || {Percentile, Time} <- bench_latency:during(Operation, step(Step, Table, Number div 2))],
    cats:delete(Table),
    Rows.

count(quick) -> 1000;
count(_) -> 10_000.

step(lookup, Table, Half) -> fun() -> cats:lookup(Table, 2 * rand:uniform(Half)) end;
step(insert, Table, Half) -> fun() -> Key = 2 * rand:uniform(Half), cats:insert(Table, {Key, Key}) end.

until(End, Work, Table, Keys) ->
    work(Work, Table, Keys),
    erlang:monotonic_time(millisecond) < End andalso until(End, Work, Table, Keys).

work(sleep, _Table, _Keys) -> timer:sleep(10);
work(lookups, Table, Keys) -> lists:foreach(fun(Key) -> [_] = cats:lookup(Table, Key) end, Keys);
work(insertions, Table, Keys) -> lists:foreach(fun(Key) -> cats:insert(Table, {Key, Key}) end, Keys);
work(reads, Table, Keys) ->
    Read = fun(Key) -> [_] = cats_transaction:lookup(Table, Key) end,
    {atomic, ok} = cats_transaction:run(fun lists:foreach/2, [Read, Keys]);
work(writes, Table, Keys) ->
    Write = fun(Key) -> cats_transaction:insert(Table, {Key, Key}) end,
    {atomic, ok} = cats_transaction:run(fun lists:foreach/2, [Write, Keys]).
