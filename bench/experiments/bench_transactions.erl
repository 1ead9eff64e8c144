%% Transfers between two of many accounts, which each process chooses at random. cats and Mnesia make each transfer in a
%% transaction, on a table in memory. cats reads the accounts one by one, or both by `lookup_many'. Another way is a
%% process that owns a table of ets. It makes one transfer after the other.
-module(bench_transactions).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

about() ->
    #{title => "Transfers between two accounts",
      source => ?SCALABILITY ", section 4.1 (software transactional memory on ETS)",
      unit => "transfers/s", better => higher, x => workers, scale => category}.

points(Size) ->
    [#{axes => [{workers, Workers}], seconds => bench_sizes:seconds(Size, 0.5, 15),
       subjects => [{"mnesia", ets, [mnesia]} || is_list(code:which(mnesia))]
                   ++ [{"gen_server", ets, [server]}, {"cats", cats, [fun one_by_one/3]},
                       {"cats lookup_many", cats, [fun many/3]}]}
     || Workers <- bench_workers:counts()].

accounts(quick) -> 10_000;
accounts(_) -> 1_000_000.

transfers(quick) -> 5_000;
transfers(default) -> 200_000;
transfers(full) -> 6_400_000.

measure(Size, #{workers := Workers}, {_, _, [Way]}, Seed) ->
    Accounts = accounts(Size),
    %% Mnesia takes long.
    Transfers = case Way of
                    mnesia -> transfers(Size) div 5;
                    _ -> transfers(Size)
                end,
    {Transfer, Close} = open(Way, Accounts),
    Work = fun(Worker) ->
                   Random = rand:seed_s(exsss, Seed + Worker),
                   fun() -> transfer(Transfers, Accounts, Transfer, Random) end
           end,
    Seconds = bench_workers:seconds([Work(Worker) || Worker <- lists:seq(1, Workers)]),
    Close(),
    [{[], Workers * Transfers / Seconds}].

transfer(0, _Accounts, _Transfer, _Random) ->
    ok;
transfer(Left, Accounts, Transfer, Random0) ->
    {From, Random1} = rand:uniform_s(Accounts, Random0),
    {Distance, Random2} = rand:uniform_s(Accounts - 1, Random1),
    Transfer(From, 1 + (From + Distance - 1) rem Accounts),
    transfer(Left - 1, Accounts, Transfer, Random2).

%% How one account is debited and another one credited, and how to close the bank.
open(mnesia, Accounts) ->
    ok = mnesia:start(),
    {atomic, ok} = mnesia:create_table(account, [{ram_copies, [node()]}]),
    [mnesia:dirty_write({account, N, 100}) || N <- lists:seq(1, Accounts)],
    Body = fun(From, To) ->
                   [{_, _, A}] = mnesia:read(account, From, write),
                   [{_, _, B}] = mnesia:read(account, To, write),
                   mnesia:write({account, From, A - 1}),
                   mnesia:write({account, To, B + 1})
           end,
    {fun(From, To) -> {atomic, ok} = mnesia:transaction(Body, [From, To]) end,
     fun() -> {atomic, ok} = mnesia:delete_table(account) end};
%% The loop of a gen_server, without what one does not need here.
open(server, Accounts) ->
    Server = spawn_link(fun() ->
                                Table = ets:new(accounts, []),
                                [ets:insert(Table, {N, 100}) || N <- lists:seq(1, Accounts)],
                                serve(Table)
                        end),
    ok = gen_server:call(Server, ready, infinity),
    {fun(From, To) -> ok = gen_server:call(Server, {transfer, From, To}, infinity) end,
     fun() -> ok = gen_server:call(Server, stop, infinity) end};
open(Body, Accounts) ->
    Table = cats:new(accounts, [public]),
    [cats:insert(Table, {N, 100}) || N <- lists:seq(1, Accounts)],
    {fun(From, To) -> {atomic, true} = cats_transaction:run(Body, [Table, From, To]) end,
     fun() -> cats:delete(Table) end}.

one_by_one(Table, From, To) ->
    [{_, A}] = cats_transaction:lookup(Table, From),
    [{_, B}] = cats_transaction:lookup(Table, To),
    cats_transaction:insert(Table, {From, A - 1}),
    cats_transaction:insert(Table, {To, B + 1}).

many(Table, From, To) ->
    [[{_, A}], [{_, B}]] = cats_transaction:lookup_many(Table, [From, To]),
    cats_transaction:insert(Table, {From, A - 1}),
    cats_transaction:insert(Table, {To, B + 1}).

serve(Table) ->
    receive
        {'$gen_call', From, {transfer, Account, Other}} ->
            [{_, A}] = ets:lookup(Table, Account),
            [{_, B}] = ets:lookup(Table, Other),
            ets:insert(Table, [{Account, A - 1}, {Other, B + 1}]),
            gen_server:reply(From, ok),
            serve(Table);
        {'$gen_call', From, ready} ->
            gen_server:reply(From, ok),
            serve(Table);
        {'$gen_call', From, stop} ->
            gen_server:reply(From, ok)
    end.
