%% A bank. Workers move money between accounts, each in a transaction that also writes the journal. Some workers are
%% killed at any instant. Meanwhile an auditor takes snapshots of both tables, and checks the balances against the
%% journal.
-module(bank).
-export([main/3, run/3]).

-define(START, 100).

-type result() :: #{transfers := non_neg_integer(), refused := non_neg_integer(), killed := non_neg_integer(),
                    audits := pos_integer(), wrong := non_neg_integer()}.

%% Runs the bank and prints what happened.
-spec main(Accounts :: pos_integer(), Workers :: pos_integer(), Milliseconds :: pos_integer()) -> ok.
main(Accounts, Workers, Milliseconds) ->
    #{transfers := Transfers, refused := Refused, killed := Killed, audits := Audits, wrong := Wrong} =
        run(Accounts, Workers, Milliseconds),
    io:format("~b accounts, ~b workers~n~n", [Accounts, Workers]),
    [io:format("  ~-38s ~w~n", [Name, Figure])
     || {Name, Figure} <- [{"transfers per second", Transfers * 1000 div Milliseconds},
                           {"transfers refused for lack of money", Refused},
                           {"workers killed", Killed},
                           {"audits", Audits},
                           {"audits that found money lost or made", Wrong}]],
    ok.

-spec run(Accounts :: pos_integer(), Workers :: pos_integer(), Milliseconds :: pos_integer()) -> result().
run(Accounts, Workers, Milliseconds) ->
    Balances = cats:new(balances, [public]),
    Journal = cats:new(journal, [ordered_set, public]),
    Counts = cats:new(counts, [public]),
    true = cats:insert(Balances, [{Account, ?START} || Account <- lists:seq(1, Accounts)]),
    true = cats:insert(Counts, [{refused, 0}, {killed, 0}]),
    Start = fun() -> spawn(fun() -> work({Balances, Journal, Counts}, Accounts, 1) end) end,
    End = erlang:monotonic_time(millisecond) + Milliseconds,
    Audits = watch([Start() || _ <- lists:seq(1, Workers)], Start, {Balances, Journal, Counts}, End),
    #{transfers => cats:info(Journal, size),
      refused => cats:lookup_element(Counts, refused, 2),
      killed => cats:lookup_element(Counts, killed, 2),
      audits => length(Audits),
      wrong => length([wrong || false <- Audits])}.

%% Transfers until the process is killed. The entries of the journal have keys that no other worker makes.
work({Balances, Journal, Counts} = Bank, Accounts, Number) ->
    From = rand:uniform(Accounts),
    To = 1 + (From + rand:uniform(Accounts - 1) - 1) rem Accounts,
    case cats_transaction:run(fun transfer/6, [Balances, Journal, {self(), Number}, From, To, rand:uniform(20)]) of
        {atomic, true} -> ok;
        {aborted, no_money} -> cats:update_counter(Counts, refused, 1)
    end,
    work(Bank, Accounts, Number + 1).

transfer(Balances, Journal, Entry, From, To, Amount) ->
    [{_, Balance}] = cats_transaction:lookup(Balances, From),
    [{_, Other}] = cats_transaction:lookup(Balances, To),
    Balance >= Amount orelse cats_transaction:abort(no_money),
    cats_transaction:insert(Balances, [{From, Balance - Amount}, {To, Other + Amount}]),
    cats_transaction:insert(Journal, {Entry, From, To, Amount}).

%% Audits until the end. Before each audit one worker is killed, and another takes its place. Returns the results of all
%% audits.
watch([Victim | Others], Start, {Balances, Journal, Counts} = Bank, End) ->
    exit(Victim, kill),
    cats:update_counter(Counts, killed, 1),
    Right = audit(Balances, Journal),
    Workers = Others ++ [Start()],
    case erlang:monotonic_time(millisecond) < End of
        true ->
            timer:sleep(20),
            [Right | watch(Workers, Start, Bank, End)];
        false ->
            [exit(Worker, kill) || Worker <- Workers],
            [Right, audit(Balances, Journal)]
    end.

%% Whether each account has what the journal says. Both tables are seen as they were at the same instant.
audit(Balances, Journal) ->
    [BalancesThen, JournalThen] = cats:snapshot([Balances, Journal]),
    Expected = cats:foldl(fun({_, From, To, Amount}, Sums) -> add(From, -Amount, add(To, Amount, Sums)) end,
                          #{}, JournalThen),
    IsRight = fun({Account, Balance}) -> Balance =:= ?START + maps:get(Account, Expected, 0) end,
    lists:all(IsRight, cats:tab2list(BalancesThen)).

add(Account, Amount, Sums) ->
    maps:update_with(Account, fun(Sum) -> Sum + Amount end, Amount, Sums).
