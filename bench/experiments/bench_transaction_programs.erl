%% Two programs of the databases' world in small. `bank' is TPC-B: a deposit changes an account, its teller and its
%% branch, and adds to the history. `orders' is the transaction New-Order of TPC-C. It takes the next number of a
%% district and reads the prices of 10 to 15 items. It reduces their stock, and writes the order with a line for each.
%% Of a hundred orders one names an item that does not exist, and is aborted. At the end the sums and the counters are
%% checked: what is wrong fails the measurement.
-module(bench_transaction_programs).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).
-export([tables/2, prepare/3, body/1, check/3]).
-export([deposit/3, order/3]).

-include("papers.hrl").

-define(TELLERS, 10). % of a branch, as in TPC-B
-define(DISTRICTS, 10). % of a warehouse, as in TPC-C
%% How many of an item are there at first, and how many come when there are too few.
-define(QUANTITY, 50).
-define(REFILL, 91).

about() ->
    #{title => "Transactions of TPC-B and of TPC-C (New-Order) in small",
      source => ?SCALABILITY ", section 4.1 (software transactional memory on ETS)",
      unit => "transactions/s", better => higher, x => workers, scale => category, panels => [program]}.

points(Size) ->
    [#{axes => [{program, Program}, {workers, Workers}], seconds => bench_sizes:seconds(Size, 1, 10) / factor(Size),
       subjects => bench_atomic:subjects()}
     || Program <- [bank, orders], Workers <- bench_workers:counts()].

factor(full) -> 10;
factor(_) -> 1.

%% Branches with the accounts of each, or warehouses with the items of each.
-type scale() :: {pos_integer(), pos_integer()}.

-spec scale(bench_experiment:size(), bank | orders) -> scale().
scale(quick, bank) -> {2, 500};
scale(_, bank) -> {10, 100_000};
scale(quick, orders) -> {1, 500};
scale(_, orders) -> {4, 100_000}.

transactions(quick, _) -> 100;
transactions(default, mnesia) -> 2_000;
transactions(default, _) -> 10_000;
transactions(full, mnesia) -> 20_000;
transactions(full, _) -> 100_000.

measure(Size, #{program := Program, workers := Workers}, {_, _, [Way]}, Seed) ->
    Scale = scale(Size, Program),
    Number = transactions(Size, Way),
    Prepare = fun() -> [prepare(Program, Scale, {Worker, Number, Seed}) || Worker <- lists:seq(1, Workers)] end,
    Lists = bench_data:share({Program, Number}, Prepare),
    Bank = bench_atomic:open(Way, tables(Program, Scale)),
    Body = body(Program),
    Work = [fun() -> lists:foreach(fun(Input) -> bench_atomic:run(Bank, Body, Input) end, List) end || List <- Lists],
    Seconds = bench_workers:seconds(Work),
    ok = check(Program, Bank, lists:append(Lists)),
    bench_atomic:close(Bank),
    [{[], Workers * Number / Seconds}].

%% @doc The tables of a program.
-spec tables(bank | orders, scale()) -> [bench_atomic:table()].
tables(bank, {Branches, Accounts}) ->
    [{account, set, Branches * Accounts, fun(N) -> {account, N, 0} end},
     {teller, set, Branches * ?TELLERS, fun(N) -> {teller, N, 0} end},
     {branch, set, Branches, fun(N) -> {branch, N, 0} end},
     {history, set, 0, fun(N) -> {history, N, 0, 0, 0, 0} end}];
tables(orders, {Warehouses, Items}) ->
    [{district, set, Warehouses * ?DISTRICTS, fun(N) -> {district, of_warehouse(N, Warehouses), 1} end},
     {item, set, Items, fun(N) -> {item, N, 1 + N rem 100} end},
     {stock, set, Warehouses * Items, fun(N) -> {stock, of_warehouse(N, Warehouses), ?QUANTITY, 0, 0} end},
     {order, ordered_set, 0, fun(N) -> {order, N, 0, 0} end},
     {line, ordered_set, 0, fun(N) -> {line, N, 0, 0, 0} end}].

of_warehouse(N, Warehouses) -> {1 + (N - 1) rem Warehouses, 1 + (N - 1) div Warehouses}.

%% @doc The arguments of so many transactions of a worker.
-spec prepare(bank | orders, scale(), {Worker :: pos_integer(), Number :: pos_integer(), Seed :: integer()}) ->
          [tuple()].
prepare(Program, Scale, {Worker, Number, Seed}) ->
    _ = rand:seed(exsss, Seed + Worker),
    [input(Program, Scale, {Worker, N}) || N <- lists:seq(1, Number)].

%% Of a hundred customers 85 come to a teller of their own branch.
input(bank, {Branches, Accounts}, Id) ->
    Branch = rand:uniform(Branches),
    Of = case rand:uniform(100) of
             Own when Own =< 85 -> Branch;
             _ -> rand:uniform(Branches)
         end,
    Account = (Of - 1) * Accounts + rand:uniform(Accounts),
    Teller = (Branch - 1) * ?TELLERS + rand:uniform(?TELLERS),
    {Id, Account, Teller, Branch, rand:uniform(1_999_999) - 1_000_000};
%% Of a hundred items one comes from another warehouse.
input(orders, {Warehouses, Items}, Id) ->
    Warehouse = rand:uniform(Warehouses),
    From = fun(1) -> rand:uniform(Warehouses);
              (_) -> Warehouse
           end,
    Lines = [{From(rand:uniform(100)), rand:uniform(Items), rand:uniform(10)}
             || _ <- lists:seq(1, 9 + rand:uniform(6))],
    Wrong = [{Warehouse, none, 1} || rand:uniform(100) =:= 1],
    {Id, {Warehouse, rand:uniform(?DISTRICTS)}, Lines ++ Wrong}.

-spec body(bank | orders) -> bench_atomic:body().
body(bank) -> fun ?MODULE:deposit/3;
body(orders) -> fun ?MODULE:order/3.

-spec deposit(bench_atomic:words(), map(), tuple()) -> Balance :: integer().
deposit(Words, #{history := History} = Tables, {Id, Account, Teller, Branch, Amount}) ->
    Balance = add(Words, Tables, account, Account, Amount),
    _ = add(Words, Tables, teller, Teller, Amount),
    _ = add(Words, Tables, branch, Branch, Amount),
    bench_atomic:write(Words, History, {history, Id, Account, Teller, Branch, Amount}),
    Balance.

add(Words, Tables, Name, Key, Amount) ->
    Table = maps:get(Name, Tables),
    [{_, _, Balance}] = bench_atomic:read_to_write(Words, Table, Key),
    bench_atomic:write(Words, Table, {Name, Key, Balance + Amount}),
    Balance + Amount.

-spec order(bench_atomic:words(), map(), tuple()) -> Total :: integer().
order(Words, #{item := Items, district := Districts, stock := Stock, order := Orders, line := OfOrders},
      {Customer, District, Lines}) ->
    Prices = [case bench_atomic:read(Words, Items, Item) of
                  [{item, _, Price}] -> Price;
                  [] -> bench_atomic:abort(Words, no_item)
              end || {_, Item, _} <- Lines],
    [{district, _, Order}] = bench_atomic:read_to_write(Words, Districts, District),
    bench_atomic:write(Words, Districts, {district, District, Order + 1}),
    bench_atomic:write(Words, Orders, {order, {District, Order}, Customer, length(Lines)}),
    lines(Words, Stock, OfOrders, {District, Order}, Lines, Prices, 1, 0).

lines(Words, Stock, OfOrders, Order, [{Warehouse, Item, Number} | Lines], [Price | Prices], Line, Total) ->
    [{stock, Key, Quantity, Sold, Times}] = bench_atomic:read_to_write(Words, Stock, {Warehouse, Item}),
    Left = case Quantity - Number of
               Enough when Enough >= 10 -> Enough;
               Little -> Little + ?REFILL
           end,
    bench_atomic:write(Words, Stock, {stock, Key, Left, Sold + Number, Times + 1}),
    bench_atomic:write(Words, OfOrders, {line, {Order, Line}, Key, Number, Number * Price}),
    lines(Words, Stock, OfOrders, Order, Lines, Prices, Line + 1, Total + Number * Price);
lines(_Words, _Stock, _OfOrders, _Order, [], [], _Line, Total) ->
    Total.

%% @doc Fails if the tables are not what these transactions make of new ones, each once and in any order.
-spec check(bank | orders, bench_atomic:bank(), [tuple()]) -> ok.
check(bank, Bank, Inputs) ->
    History = [{history, Id, Account, Teller, Branch, Amount} || {Id, Account, Teller, Branch, Amount} <- Inputs],
    same(history, lists:sort(History), lists:sort(bench_atomic:all(Bank, history))),
    [same(Name, sums([{element(Place, Input), element(5, Input)} || Input <- Inputs]),
          sums([{Key, Balance} || {_, Key, Balance} <- bench_atomic:all(Bank, Name)]))
     || {Name, Place} <- [{account, 2}, {teller, 3}, {branch, 4}]],
    ok;
check(orders, Bank, Inputs) ->
    Done = [Input || {_, _, Lines} = Input <- Inputs, not lists:keymember(none, 2, Lines)],
    Orders = bench_atomic:all(Bank, order),
    same(customers, lists:sort([{District, Customer, length(Lines)} || {Customer, District, Lines} <- Done]),
         lists:sort([{District, Customer, Lines} || {order, {District, _}, Customer, Lines} <- Orders])),
    same(numbers, lists:sort([{District, N} || {district, District, Next} <- bench_atomic:all(Bank, district),
                                               N <- lists:seq(1, Next - 1)]),
         lists:sort([Key || {order, Key, _, _} <- Orders])),
    Lines = bench_atomic:all(Bank, line),
    same(lines, lists:sort([{Key, Line} || {order, Key, _, Number} <- Orders, Line <- lists:seq(1, Number)]),
         lists:sort([Key || {line, Key, _, _, _} <- Lines])),
    Prices = maps:from_list([{Item, Price} || {item, Item, Price} <- bench_atomic:all(Bank, item)]),
    same(amounts, [], [Wrong || {line, _, {_, Item}, Number, Amount} = Wrong <- Lines,
                                Amount =/= Number * maps:get(Item, Prices)]),
    Stock = bench_atomic:all(Bank, stock),
    Sold = sums([{{Warehouse, Item}, Number} || {_, _, Of} <- Done, {Warehouse, Item, Number} <- Of]),
    same(ordered, Sold, sums([{Key, Number} || {line, _, Key, Number, _} <- Lines])),
    same(sold, Sold, sums([{Key, Number} || {stock, Key, _, Number, _} <- Stock])),
    same(times, sums([{Key, 1} || {line, _, Key, _, _} <- Lines]),
         sums([{Key, Times} || {stock, Key, _, _, Times} <- Stock])),
    same(quantities, [], [Wrong || {stock, _, Left, Number, _} = Wrong <- Stock,
                                   (?QUANTITY - Left - Number) rem ?REFILL =/= 0]),
    ok.

same(_What, Same, Same) -> ok;
same(What, _Expected, _Found) -> error({wrong, What}).

%% The sum of each key, without those of zero.
sums(Pairs) ->
    Sums = lists:foldl(fun({Key, N}, Sums) -> Sums#{Key => maps:get(Key, Sums, 0) + N} end, #{},
                       [Pair || {_, N} = Pair <- Pairs, N =/= 0]),
    maps:filter(fun(_, N) -> N =/= 0 end, Sums).
