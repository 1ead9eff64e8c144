%% A backup of two tables that are in use. Writers move goods from the stock to orders, each in a transaction. So the
%% number of goods in both tables together never changes. The backup is made twice: of the tables themselves, and of a
%% snapshot of both.
-module(backup).
-export([main/3, run/3]).

-define(PIECES, 1000).

%% Makes both backups, and prints how many pieces are in each of them.
-spec main(Goods :: pos_integer(), Writers :: pos_integer(), Directory :: file:filename()) -> ok.
main(Goods, Writers, Directory) ->
    {Expected, Live, Snapshot, Held} = run(Goods, Writers, Directory),
    io:format("~b kinds of goods, ~b writers~n~n", [Goods, Writers]),
    [io:format("  ~-38s ~w~n", [Name, Figure])
     || {Name, Figure} <- [{"pieces in the tables, at any instant", Expected},
                           {"pieces in the backup of the tables", Live},
                           {"pieces in the backup of the snapshot", Snapshot},
                           {"bytes that the snapshot held back", Held}]],
    ok.

%% Returns the number of pieces that there are, the numbers in both backups, and the bytes that the snapshot held back.
-spec run(Goods :: pos_integer(), Writers :: pos_integer(), Directory :: file:filename()) ->
          {pos_integer(), non_neg_integer(), non_neg_integer(), non_neg_integer()}.
run(Goods, Writers, Directory) ->
    Stock = cats:new(stock, [public]),
    Orders = cats:new(orders, [public]),
    true = cats:insert(Stock, [{Good, ?PIECES} || Good <- lists:seq(1, Goods)]),
    true = cats:insert(Orders, [{Good, 0} || Good <- lists:seq(1, Goods)]),
    Workers = [spawn_link(fun() -> work(Stock, Orders, Goods) end) || _ <- lists:seq(1, Writers)],
    Live = backup([Stock, Orders], Directory),
    Snapshots = cats:snapshot([Stock, Orders]),
    Snapshot = backup(Snapshots, Directory),
    Held = lists:sum([cats:info(Table, memory) || Table <- Snapshots]) * erlang:system_info(wordsize),
    [begin unlink(Worker), exit(Worker, kill) end || Worker <- Workers],
    {Goods * ?PIECES, Live, Snapshot, Held}.

work(Stock, Orders, Goods) ->
    {atomic, true} = cats_transaction:run(fun order/3, [Stock, Orders, rand:uniform(Goods)]),
    work(Stock, Orders, Goods).

%% Moves one piece. If there is none left, all ordered pieces come back.
order(Stock, Orders, Good) ->
    [{_, Left}] = cats_transaction:lookup(Stock, Good),
    [{_, Ordered}] = cats_transaction:lookup(Orders, Good),
    Moved = case Left of
                0 -> -Ordered;
                _ -> 1
            end,
    cats_transaction:insert(Stock, {Good, Left - Moved}),
    cats_transaction:insert(Orders, {Good, Ordered + Moved}).

%% Writes the tables to files, reads these back, and returns the number of pieces in them.
backup(Tables, Directory) ->
    Files = [filename:join(Directory, "backup_" ++ integer_to_list(N)) || N <- lists:seq(1, length(Tables))],
    [ok = cats:tab2file(Table, File) || {Table, File} <- lists:zip(Tables, Files)],
    lists:sum([pieces(File) || File <- Files]).

pieces(File) ->
    {ok, Table} = cats:file2tab(File),
    Pieces = cats:foldl(fun({_, Count}, Sum) -> Sum + Count end, 0, Table),
    true = cats:delete(Table),
    Pieces.
