%% Long transactions at once: processes that each read 10,000 keys of one table in a transaction, again and again. The
%% time is that of a processor: the seconds of all, times the processors that can be busy, divided by all reads.
-module(bench_transactions_at_once).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

about() ->
    #{title => "Long transactions at once: a processor's time of a read",
      source => ?SCALABILITY ", section 4.1 (software transactional memory on ETS)",
      unit => "us", better => lower, x => processes, scale => category, panels => [type]}.

points(Size) ->
    [#{axes => [{type, Type}], seconds => bench_sizes:seconds(Size, 1, 15) / factor(Size),
       subjects => bench_atomic:subjects()} || Type <- [set, ordered_set]].

factor(full) -> 24;
factor(_) -> 1.

long(quick) -> 100;
long(_) -> 10_000.

%% Reads of all processes together.
reads(quick, _) -> 1600;
reads(_, mnesia) -> 160_000;
reads(_, _) -> 1_600_000.

measure(Size, #{type := Type}, {_, _, [Way]}, _Seed) ->
    Bank = bench_transaction_lengths:open(Way, Type, bench_transaction_lengths:objects(Size)),
    Rows = [{[{processes, Processes}], time(Bank, Processes, reads(Size, Way), Size)} || Processes <- [1, 4, 16]],
    bench_atomic:close(Bank),
    Rows.

time(Bank, Processes, Reads, Size) ->
    Length = long(Size),
    Times = Reads div (Processes * Length),
    Number = bench_transaction_lengths:objects(Size),
    Lists = bench_data:share(lists, fun() -> bench_transaction_lengths:lists(16, Length, Number) end),
    Work = [fun() -> again(Times, Bank, Keys) end || Keys <- lists:sublist(Lists, Processes)],
    Busy = min(Processes, erlang:system_info(schedulers_online)),
    1.0e6 * bench_workers:seconds(Work) * Busy / (Times * Processes * Length).

again(0, _Bank, _Keys) ->
    ok;
again(Times, Bank, Keys) ->
    {atomic, ok} = bench_atomic:run(Bank, fun bench_transaction_lengths:reads/3, Keys),
    again(Times - 1, Bank, Keys).
