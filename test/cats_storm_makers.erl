%% Functions that run within calls of a storm, on keys that all processes write: those of fetches and of transactions. They fail, take their
%% time, abort, are nested, and their processes are killed.
-module(cats_storm_makers).

-import(cats_storm_values, [uniform/1, chance/1, one_of/1, shared_key/0, object/2]).
-import(cats_storm_tables, [has/2, id/1]).
-import(cats_storm_calls, [outcome/1, unexpected/3, wrong_objects/3]).

-export([operations/0]).

-spec operations() -> [cats_storm_calls:operation()].
operations() ->
    [{6, fetch, [set_like], fun fetch/1},
     {6, transaction, [transactions], fun transaction/1},
     {3, ordered_transaction, [transactions, ordered], fun ordered_transaction/1}].

%%% Fetches

fetch(Table) ->
    Key = shared_key(),
    Object = object(Table, Key),
    What = one_of([make, make, make, make, sleep, fail, exit, nested]),
    Nested = shared_key(),
    Made = fun(_) ->
                   case What of
                       make -> ok;
                       sleep -> timer:sleep(uniform(3));
                       fail -> error(storm);
                       exit -> exit(storm);
                       nested when Nested < Key ->
                           Fail = fun(_) -> error(storm) end,
                           _ = outcome(fun() -> cats:fetch(id(Table), Nested, Fail, #{timeout => 100}) end);
                       nested -> ok
                   end,
                   Object
           end,
    Options = fetch_options(Table),
    cats_storm_worker:note({fetch, Key, What, Nested, Options}),
    Function = case Options of
                   none -> fun() -> cats:fetch(id(Table), Key, Made) end;
                   _ -> fun() -> cats:fetch(id(Table), Key, Made, Options) end
               end,
    case outcome(Function) of
        {returned, Fetched} -> wrong_objects(Table, Key, [Fetched]);
        {raised, error, storm, _} -> nothing;
        {raised, exit, storm, _} -> nothing;
        {raised, exit, {timeout, _}, _} when is_map_key(timeout, Options) -> nothing;
        Outcome -> unexpected(Table, [], Outcome)
    end.

fetch_options(Table) ->
    Timeout = one_of([#{}, #{timeout => 0}, #{timeout => 20}, #{timeout => 5000}]),
    case has(expiring, Table) of
        true -> one_of([none, Timeout, Timeout#{ttl => one_of([1, 10, 1000])}, Timeout#{stale => one_of([1, 10, 1000])}]);
        false -> one_of([none, Timeout])
    end.

%%% Transactions

%% Some steps on this table and another one. What it reads of its own writes is what it wrote.
transaction(Table) ->
    Tables = [Table, one_of([Table | [Other || Other <- cats_storm_tables:all(), has(transactions, Other)]])],
    Steps = [{one_of(Tables), step()} || _ <- lists:seq(1, uniform(10))],
    Ends = one_of([commit, commit, commit, abort, error]),
    cats_storm_worker:note({transaction, [{maps:get(place, In), Step} || {In, Step} <- Steps], Ends}),
    Run = fun() ->
                  lists:foreach(fun({In, Step}) -> carry_out(In, Step) end, Steps),
                  case Ends of
                      commit -> done;
                      abort -> cats_transaction:abort(enough);
                      error -> error(storm)
                  end
          end,
    case {cats_transaction:run(Run), Ends} of
        {{atomic, done}, commit} -> nothing;
        {{aborted, enough}, abort} -> nothing;
        {{aborted, {storm, _}}, error} -> nothing;
        {Outcome, _} -> aborted(Tables, Outcome)
    end.

aborted(Tables, {aborted, {wrong, Wrong}}) -> {Tables, Wrong};
aborted(Tables, {aborted, {Reason, _} = Failure}) when Reason =:= badarg; Reason =:= system_limit ->
    Outcome = outcome(fun() -> erlang:raise(error, Reason, element(2, Failure)) end),
    case [nothing || Table <- Tables, unexpected(Table, [], Outcome) =:= nothing] of
        [] -> {transaction, Failure};
        _ -> nothing
    end;
%% Others were faster too often.
aborted(_Tables, {aborted, {conflict, Runs}}) when is_integer(Runs) -> nothing;
aborted(_Tables, Outcome) -> {transaction, Outcome}.

step() ->
    Key = shared_key(),
    {one_of([read, read, member, insert, insert, insert_list, delete, read_own, nested]), Key}.

carry_out(Table, {read, Key}) -> read(Table, Key);
carry_out(Table, {member, Key}) -> true = is_boolean(cats_transaction:member(id(Table), Key));
carry_out(Table, {insert, Key}) -> cats_transaction:insert(id(Table), object(Table, Key));
carry_out(Table, {insert_list, Key}) -> cats_transaction:insert(id(Table), [object(Table, Key), object(Table, shared_key())]);
carry_out(Table, {delete, Key}) -> cats_transaction:delete(id(Table), Key);
carry_out(Table, {read_own, Key}) ->
    Object = object(Table, Key),
    true = cats_transaction:insert(id(Table), Object),
    Object =:= hd(read(Table, Key)) orelse exit({wrong, {read_own, Object}});
carry_out(Table, {nested, Key}) ->
    Before = read(Table, Key),
    {aborted, no} = cats_transaction:run(fun() -> cats_transaction:insert(id(Table), object(Table, Key)), cats_transaction:abort(no) end),
    Before =:= read(Table, Key) orelse exit({wrong, {nested, Before}}).

read(Table, Key) ->
    Objects = cats_transaction:read(id(Table), Key),
    case wrong_objects(Table, Key, Objects) of
        nothing -> Objects;
        Wrong -> exit({wrong, Wrong})
    end.

%% What a walk meets is what a range has, as the transaction sees one state.
ordered_transaction(Table) ->
    {From, To} = {{shared, uniform(50)}, {shared, 50 + uniform(50)}},
    New = object(Table, {shared, uniform(100)}),
    cats_storm_worker:note({ordered_transaction, From, To}),
    Run = fun() ->
                  Id = id(Table),
                  chance(50) andalso cats_transaction:insert(Id, New),
                  Range = cats_transaction:range(Id, From, To),
                  Walked = walked(Table, Id, cats_transaction:next(Id, From), To, cats_transaction:read(Id, From)),
                  Walked =:= Range orelse exit({wrong, {range, Range -- Walked, Walked -- Range}}),
                  nothing = cats_storm_calls:wrong_objects(Table, Range),
                  done
          end,
    case cats_transaction:run(Run) of
        {atomic, done} -> nothing;
        Outcome -> aborted([Table], Outcome)
    end.

walked(_Table, _Id, '$end_of_table', _To, Objects) -> Objects;
walked(_Table, _Id, Key, To, Objects) when Key > To -> Objects;
walked(Table, Id, Key, To, Objects) ->
    walked(Table, Id, cats_transaction:next(Id, Key), To, Objects ++ cats_transaction:read(Id, Key)).
