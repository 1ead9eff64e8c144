%% Functions that run within calls of a storm, on keys that all processes write: those of fetches and of transactions.
%% They fail, take their time, abort, are nested, and their processes are killed.
-module(cats_storm_makers).

-import(cats_storm_values, [uniform/1, chance/1, one_of/1, shared_key/0, object/2]).
-import(cats_storm_tables, [has/2, any_id/1, id/1]).
-import(cats_storm_calls, [outcome/1, unexpected/3, wrong_objects/3]).

-export([operations/0]).

%% Why a fetch is refused that would wait for itself.
-define(IS_CIRCLE(Cause), (Cause =:= nested orelse is_tuple(Cause) andalso element(1, Cause) =:= circle)).

-spec operations() -> [cats_storm_calls:operation()].
operations() ->
    [{6, fetch, [set_like], fun fetch/1},
     {6, fetch_many, [set_like], fun fetch_many/1},
     {6, fetch_crosswise, [set_like], fun fetch_crosswise/1},
     {6, transaction, [transactions], fun transaction/1},
     {3, ordered_transaction, [transactions, ordered], fun ordered_transaction/1}].

%%% Fetches

fetch(Table) ->
    Key = shared_key(),
    Nested = shared_key(),
    {What, Make} = what(Nested),
    Options = fetch_options(Table),
    cats_storm_worker:note({fetch, Key, What, Nested, Options}),
    (fetching(Table, Key, Make, Options))().

%% Several keys, of which the function makes those that are missing, but for one now and then.
fetch_many(Table) ->
    Keys = [shared_key() || _ <- lists:seq(1, uniform(8))],
    Nested = shared_key(),
    {What, Make} = what(Nested),
    Left = one_of([none, none, hd(Keys)]),
    Options = one_of([none, #{retry => true}, #{timeout => 0}, #{timeout => 20}, #{timeout => 5000}]),
    cats_storm_worker:note({fetch_many, Keys, What, Nested, Left, Options}),
    Made = fun(Missing) ->
                   leading([{Table, Key} || Key <- Missing], Make),
                   [object(Table, Key) || Key <- Missing, Key =/= Left]
           end,
    Arguments = [any_id(Table), Keys, Made | [Options || Options =/= none]],
    try lists:zip(Keys, apply(cats, fetch_many, Arguments)) of
        Results ->
            %% Others leave out keys too.
            Wrong = [wrong_objects(Table, Key, [Object]) || {Key, Object} <- Results, Object =/= undefined],
            hd([Found || Found <- Wrong, Found =/= nothing] ++ [nothing])
    catch
        Class:Reason:Stack ->
            case {outcome(fun() -> erlang:raise(Class, Reason, Stack) end), hd(Stack)} of
                {{badarg, Circle}, {cats, fetch_many, Arguments, _}} when ?IS_CIRCLE(Circle) ->
                    wrong_circle(Circle, Table, Keys);
                {Outcome, _} -> failed(Table, Options, Outcome)
            end
    end.

%% What a function does before it returns.
what(Nested) ->
    Within = within(fetching(one_of(set_like()), Nested, fun() -> ok end, none)),
    one_of([{make, fun() -> ok end}, {make, fun() -> ok end}, {sleep, fun() -> timer:sleep(uniform(3)) end},
            {fail, fun() -> error(storm) end}, {exit, fun() -> exit(storm) end},
            {nested, Within}, {nested, Within}]).

%% Processes make objects for the same few keys, and each of them fetches the others too, in its own order.
fetch_crosswise(_Table) ->
    Tables = lists:sublist(set_like(), 2),
    Path = [{one_of(Tables), {crosswise, Number}}
            || {_, Number} <- lists:sort([{uniform(100), Number} || Number <- [1, 2, 3]])],
    Options = one_of([none, none, #{retry => true}, #{timeout => 5000}]),
    cats_storm_worker:note({fetch_crosswise, [{maps:get(place, Table), Key} || {Table, Key} <- Path], Options}),
    [outcome(fun() -> cats:delete(id(Table), Key) end) || {Table, Key} <- Path, chance(70)],
    %% Time enough for others to begin elsewhere.
    Fetch = fun({Table, Key}, Within) ->
                    Next = within(Within),
                    fetching(Table, Key, fun() -> timer:sleep(1), Next() end, Options)
            end,
    (lists:foldr(Fetch, fun() -> nothing end, Path))().

set_like() -> [Table || Table <- cats_storm_tables:all(), has(set_like, Table)].

%% A function that fetches a key, and returns what is wrong with the outcome. The object is made by what calls this
%% other function first. That may run in another process, so all that is by chance is known before.
fetching(Table, Key, Make, Options) ->
    Object = object(Table, Key),
    Made = fun(_) -> leading([{Table, Key}], Make), Object end,
    Arguments = [any_id(Table), Key, Made | [Options || Options =/= none]],
    fun() ->
            try
                wrong_objects(Table, Key, [apply(cats, fetch, Arguments)])
            catch
                Class:Reason:Stack ->
                    case {outcome(fun() -> erlang:raise(Class, Reason, Stack) end), hd(Stack)} of
                        {{badarg, Circle}, {cats, fetch, Arguments, _}} when ?IS_CIRCLE(Circle) ->
                            wrong_circle(Circle, Table, [Key]);
                        {Outcome, _} -> failed(Table, Options, Outcome)
                    end
            end
    end.

%% The same as a part of a function that makes an object.
within(Fetching) ->
    Fails = chance(10),
    fun() ->
            case Fetching() of
                nothing when Fails -> error(storm);
                nothing -> ok;
                Wrong -> exit({wrong, Wrong})
            end
    end.

%% How a fetch may fail, by itself or as that of another process did.
failed(_Table, _Options, {raised, exit, {wrong, Wrong}, _}) -> Wrong;
failed(_Table, _Options, {raised, _, storm, _}) -> nothing;
failed(_Table, _Options, {badarg, Circle}) when ?IS_CIRCLE(Circle) -> nothing;
failed(_Table, #{timeout := _}, {raised, exit, {timeout, _}, _}) -> nothing;
failed(Table, _Options, Outcome) -> unexpected(Table, [], Outcome).

%% Notes for which keys the calling process makes objects.
leading(Places, Make) ->
    Before = led(),
    put(?MODULE, [{Tid, Key} || {#{tid := Tid}, Key} <- Places] ++ Before),
    try Make() after put(?MODULE, Before) end.

led() -> case get(?MODULE) of undefined -> []; Places -> Places end.

%% A fetch is refused only when the caller itself makes the object that is waited for in the end.
wrong_circle(Circle, #{tid := Tid}, Keys) ->
    Places = case Circle of
                 {circle, Named} -> Named;
                 nested -> [{Tid, Key} || Key <- Keys]
             end,
    case [Place || Place <- Places, Led <- led(), Place == Led] of
        [] when length(Places) < 10 -> {circle, Circle, {Tid, Keys}, {leads, led()}};
        _ -> nothing
    end.

fetch_options(Table) ->
    Timeout = one_of([#{}, #{timeout => 0}, #{timeout => 20}, #{timeout => 5000}]),
    case has(expiring, Table) of
        true ->
            one_of([none, Timeout, Timeout#{ttl => one_of([1, 10, 1000])}, Timeout#{stale => one_of([1, 10, 1000])}]);
        false -> one_of([none, Timeout])
    end.

%%% Transactions

%% Some steps on this table and another one. What it reads of its own writes is what it wrote.
transaction(Table) ->
    Tables = [Table, one_of([Table | [Other || Other <- cats_storm_tables:all(), has(transactions, Other)]])],
    Steps = [{one_of(Tables), step()} || _ <- lists:seq(1, uniform(10))],
    Ends = one_of([commit, commit, commit, abort, error]),
    Long = chance(30),
    cats_storm_worker:note({transaction, Long, [{maps:get(place, In), Step} || {In, Step} <- Steps], Ends}),
    Run = fun() ->
                  Long andalso cats_storm_tables:read_much(Table),
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
    {one_of([read, read, member, select, insert, insert, insert_list, delete, read_own, nested, outside]), Key}.

carry_out(Table, {read, Key}) -> read(Table, Key);
carry_out(Table, {member, Key}) -> true = is_boolean(cats_transaction:member(id(Table), Key));
carry_out(Table, {select, {shared, _} = Key}) ->
    Pattern = cats_storm_values:pattern(Table, Key, '$1'),
    Found = cats_transaction:select(id(Table), [{Pattern, [cats_storm_values:deep({is_number, '$1'})], ['$_']}]),
    Found =:= read(Table, Key) orelse exit({wrong, {select, Found}});
carry_out(Table, {select, Key}) -> read(Table, Key);
%% What is written by `cats' is no part of the transaction.
carry_out(Table, {outside, Key}) ->
    Object = object(Table, Key),
    {Function, Arguments} = one_of([{insert, [Object]}, {delete, [Key]}]
                                   ++ [{fetch, [Key, fun(_) -> Object end, #{timeout => 5}]} || has(set_like, Table)]),
    case outcome(fun() -> apply(cats, Function, [any_id(Table) | Arguments]) end) of
        {returned, _} -> ok;
        %% No other process may commit now.
        {badarg, inside_transaction} -> ok;
        Outcome -> nothing =:= failed(Table, #{timeout => 5}, Outcome) orelse exit({wrong, {outside, Outcome}})
    end;
carry_out(Table, {insert, Key}) -> cats_transaction:insert(id(Table), object(Table, Key));
carry_out(Table, {insert_list, Key}) ->
    cats_transaction:insert(id(Table), [object(Table, Key), object(Table, shared_key())]);
carry_out(Table, {delete, Key}) -> cats_transaction:delete(id(Table), Key);
carry_out(Table, {read_own, Key}) ->
    Object = object(Table, Key),
    true = cats_transaction:insert(id(Table), Object),
    lists:member(Object, read(Table, Key)) orelse exit({wrong, {read_own, Object}});
carry_out(Table, {nested, Key}) ->
    Before = read(Table, Key),
    {aborted, no} = cats_transaction:run(fun() ->
                                                 cats_transaction:insert(id(Table), object(Table, Key)),
                                                 cats_transaction:abort(no)
                                         end),
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
    Long = chance(30),
    cats_storm_worker:note({ordered_transaction, Long, From, To}),
    Run = fun() ->
                  Id = id(Table),
                  Long andalso cats_storm_tables:read_much(Table),
                  chance(50) andalso cats_transaction:insert(Id, New),
                  Range = cats_transaction:range(Id, From, To, infinity),
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
