%% What scripts/mnesia-bench runs in a VM with a Mnesia: OTP's TPC-B with 8 clients, and dirty accesses of one process.
-module(mnesia_rates).
-export([main/2]).

-define(RECORDS, 10000).

%% Transactions, dirty writes and dirty reads per second, of tables with this storage. Each takes this number of milliseconds.
-spec main(ram_copies | cats_copies, pos_integer()) -> {integer(), integer(), integer()}.
main(Copies, Milliseconds) ->
    ok = mnesia:start(),
    [{atomic, ok} = mnesia:add_backend_type(cats_copies, cats_mnesia) || Copies =:= cats_copies],
    Commits = bank(Copies, Milliseconds),
    {atomic, ok} = mnesia:create_table(five, [{Copies, [node()]}, {attributes, [key, a, b, c, d]}]),
    Writes = rate(fun(Key) -> ok = mnesia:dirty_write({five, Key, a, Key, <<1, 2, 3>>, "text"}) end, Milliseconds),
    Reads = rate(fun(Key) -> [_] = mnesia:dirty_read(five, Key) end, Milliseconds),
    {Commits, Writes, Reads}.

%% mnesia_tpcb does not run on tables of a backend: it knows only Mnesia's own storage types.
bank(cats_copies, _Milliseconds) ->
    0;
bank(Copies, Milliseconds) ->
    _ = mnesia_tpcb:init([{use_running_mnesia, true}, {replica_type, Copies}, {n_branches, 8}, {n_accounts_per_branch, 1000}]),
    Before = mnesia:system_info(transaction_commits),
    _ = mnesia_tpcb:run([{use_running_mnesia, true}, {n_drivers_per_node, 8}, {stop_after, Milliseconds},
                         {report_interval, Milliseconds}, {reuse_history_id, true}]),
    Commits = mnesia:system_info(transaction_commits) - Before,
    ok = mnesia_tpcb:verify_tabs(),
    Commits * 1000 div Milliseconds.

rate(Do, Milliseconds) ->
    lists:foreach(Do, lists:seq(1, ?RECORDS)),
    Start = erlang:monotonic_time(microsecond),
    Times = repeat(Do, lists:seq(1, ?RECORDS), Start + Milliseconds * 1000, 0),
    Times * ?RECORDS * 1000000 div (erlang:monotonic_time(microsecond) - Start).

repeat(Do, Keys, End, Times) ->
    lists:foreach(Do, Keys),
    case erlang:monotonic_time(microsecond) < End of
        true -> repeat(Do, Keys, End, Times + 1);
        false -> Times + 1
    end.
