%% Sums that must hold over all kept tables. Transfers move amounts between accounts, in transactions or within one
%% call, so that all accounts together always have the same. What is added to the counters is tallied, before and after
%% each addition.
-module(cats_storm_sums).

-import(cats_storm_values, [uniform/1, chance/1, one_of/1, position/2, counter/2]).
-import(cats_storm_tables, [has/2, kept/1, id/1]).
-import(cats_storm_calls, [outcome/1, unexpected/3, wrong_objects/3]).

-export([start_round/0, fill/1, operations/0, check/0]).

-define(ACCOUNTS, 8).
-define(BALANCE, 1000).
-define(COUNTERS, 4).
-define(TALLY, {?MODULE, tally}).

%% @doc Begins a round with nothing tallied.
-spec start_round() -> ok.
start_round() -> persistent_term:put(?TALLY, counters:new(2, [])).

%% @doc Puts accounts and counters into a kept table that is new.
-spec fill(cats_storm_tables:table()) -> ok.
fill(#{tid := Tid} = Table) ->
    has(accounts, Table)
        andalso cats:insert(Tid, [cats_storm_values:object(Table, Key, ?BALANCE) || Key <- accounts()]),
    has(set_like, Table) andalso cats:insert(Tid, [cats_storm_values:object(Table, Key, 0) || Key <- counters()]),
    ok.

accounts() -> [{account, Number} || Number <- lists:seq(1, ?ACCOUNTS)].
counters() -> [{counter, Number} || Number <- lists:seq(1, ?COUNTERS)].

-spec operations() -> [cats_storm_calls:operation()].
operations() ->
    [{15, transfer, [kept, accounts], fun transfer/1},
     {3, move, [kept, accounts], fun move/1},
     {3, audit, [kept, accounts], fun audit/1},
     {3, audit_snapshots, [kept, accounts], fun audit_snapshots/1},
     {8, count_up, [kept, set_like], fun count_up/1}].

%% @doc What is wrong with the sums, while nobody writes.
-spec check() -> nothing | term().
check() ->
    Balances = lists:append([balances(Table, fun cats:lookup/2) || Table <- kept(accounts)]),
    Counted =
        lists:sum([counter(Table, hd(cats:lookup(id(Table), Key))) || Table <- kept(set_like), Key <- counters()]),
    [Begun, Done] = [counters:get(persistent_term:get(?TALLY), Place) || Place <- [1, 2]],
    case wrong_sum(Balances) of
        nothing when Done =< Counted, Counted =< Begun -> nothing;
        nothing -> {counters, {done, Done}, {counted, Counted}, {begun, Begun}};
        Wrong -> Wrong
    end.

%% The balance of each account of the table, or what was found in place of it.
balances(#{tid := Tid} = Table, Read) ->
    [case Read(Tid, Key) of
         [Object] -> counter(Table, Object);
         Other -> {Key, Other}
     end || Key <- accounts()].

wrong_sum(Balances) ->
    Wanted = length(kept(accounts)) * ?ACCOUNTS * ?BALANCE,
    case lists:all(fun erlang:is_integer/1, Balances) andalso lists:sum(Balances) of
        Wanted -> nothing;
        _ -> {balances, Balances, Wanted}
    end.

%%% Accounts

transfer(Table) ->
    {From, To, Amount} = {{account, uniform(?ACCOUNTS)}, {account, uniform(?ACCOUNTS)}, uniform(50)},
    Other = one_of(kept(accounts)),
    Aborts = chance(15),
    {Inner, Long} = {chance(20), chance(30)},
    cats_storm_worker:note({transfer, Long, From, maps:get(place, Other), To, Amount, Aborts, Inner}),
    Move = fun() ->
                   Long andalso cats_storm_tables:read_much(Table),
                   change(Table, From, -Amount),
                   change(Other, To, Amount),
                   Aborts andalso cats_transaction:abort(enough),
                   done
           end,
    Run = case Inner of
              true ->
                  fun() ->
                          {aborted, no} =
                              cats_transaction:run(fun() -> change(Table, From, 1), cats_transaction:abort(no) end),
                          Move()
                  end;
              false -> Move
          end,
    case cats_transaction:run(Run) of
        {atomic, done} when not Aborts -> nothing;
        {aborted, enough} when Aborts -> nothing;
        {aborted, {conflict, _}} -> nothing;
        {aborted, {system_limit, _}} ->
            either(unexpected(Table, [], system_limit), unexpected(Other, [], system_limit));
        Outcome -> {transfer, Outcome}
    end.

either(nothing, _) -> nothing;
either(_, Second) -> Second.

%% Writes a new object with a changed counter.
change(Table, Key, Amount) ->
    Id = id(Table),
    [Object] = cats_transaction:read(Id, Key),
    nothing = cats_storm_values:wrong(Table, Object),
    true = cats_transaction:insert(Id, cats_storm_values:object(Table, Key, counter(Table, Object) + Amount)).

%% A change outside of transactions that keeps the balance.
move(Table) ->
    Key = {account, uniform(?ACCOUNTS)},
    Place = position(counter, Table),
    cats_storm_worker:note({move, Key}),
    Function = one_of([fun() -> cats:update_counter(id(Table), Key, [{Place, 7}, {Place, -7}]) end,
                       fun() -> cats:update(id(Table), Key, fun(Object) -> with_value(Table, Key, Object) end) end,
                       fun() -> cats:update_element(id(Table), Key, elements(Table, Key)) end]),
    case outcome(Function) of
        {returned, _} -> nothing;
        Outcome -> unexpected(Table, [], Outcome)
    end.

elements(Table, Key) ->
    {Value, Mark} = cats_storm_values:value(Table, Key),
    [{position(value, Table), Value}, {position(mark, Table), Mark}].

with_value(Table, Key, Object) ->
    lists:foldl(fun({Place, Element}, Changed) -> setelement(Place, Changed, Element) end,
                Object, elements(Table, Key)).

%% All accounts as a transaction sees them.
audit(_Table) ->
    cats_storm_worker:note(audit),
    case cats_transaction:run(fun() ->
                                      lists:append([balances(Table, reading(Table)) || Table <- kept(accounts)])
                              end) of
        {atomic, Balances} -> wrong_sum(Balances);
        {aborted, {conflict, _}} -> nothing;
        Outcome -> {audit, Outcome}
    end.

%% Key by key, or by one range for all.
reading(Table) ->
    case has(ordered, Table) andalso chance(50) of
        true ->
            Range = cats_transaction:range(id(Table), {account, 1}, {account, ?ACCOUNTS}, infinity),
            fun(_, Key) -> [Object || Object <- Range, cats_storm_values:key(Table, Object) =:= Key] end;
        false -> fun cats_transaction:read/2
    end.

%% All accounts in snapshots of one instant.
audit_snapshots(_Table) ->
    Tables = kept(accounts),
    cats_storm_worker:note(audit_snapshots),
    case outcome(fun() -> cats:snapshot([id(Table) || Table <- Tables]) end) of
        {returned, Snapshots} ->
            Balances = [outcome(fun() -> balances(Table#{tid := Snapshot}, fun cats:lookup/2) end)
                        || {Table, Snapshot} <- lists:zip(Tables, Snapshots)],
            MayDie = lists:any(fun(Table) -> has(short_snapshots, Table) end, Tables),
            case MayDie andalso lists:member({badarg, snapshot_limit}, Balances) of
                true -> nothing;
                false -> wrong_sum(lists:append([Numbers || {returned, Numbers} <- Balances]))
            end;
        Outcome ->
            {snapshots, Outcome}
    end.

%%% Counters

count_up(Table) ->
    {Key, Amount, Place} = {{counter, uniform(?COUNTERS)}, uniform(9), position(counter, Table)},
    Tally = persistent_term:get(?TALLY),
    Add = fun(Object) -> setelement(Place, Object, element(Place, Object) + Amount) end,
    Function = one_of([fun() -> cats:update_counter(id(Table), Key, {Place, Amount}) end,
                       fun() -> cats:add(id(Table), Key, [{Place, Amount}]) end,
                       fun() -> cats:update(id(Table), Key, Add) end]
                      ++ [fun() -> counted(cats_transaction:run(fun() -> change(Table, Key, Amount) end)) end
                          || has(accounts, Table)]),
    cats_storm_worker:note({count_up, Key, Amount}),
    counters:add(Tally, 1, Amount),
    case outcome(Function) of
        {returned, _} -> counters:add(Tally, 2, Amount), nothing;
        {raised, exit, conflict, _} -> counters:sub(Tally, 1, Amount), nothing;
        system_limit -> counters:sub(Tally, 1, Amount), unexpected(Table, [], system_limit);
        Outcome -> {count_up, Outcome}
    end.

counted({atomic, true}) -> true;
counted({aborted, {conflict, _}}) -> exit(conflict);
counted({aborted, {system_limit, _}}) -> error(system_limit).
