%% @doc Transactions over any keys of any tables of this node. Not in `ets'.
%%
%% {@link run/1} runs a function. All that the function reads by this module was there at one instant. All that it
%% writes by this module appears at that instant, or nothing does. Transactions are serializable, also against the
%% functions of {@link cats}, and against objects that appear in a range that was read. Reads and writes outside of
%% transactions pay nothing for them.
%%
%% A transaction takes no locks while its function runs. If another process changes what the function has read, the
%% function is run again. So it must have no other effects: it should send no messages and should not wait for other
%% processes. It should write by this module only: what functions of `cats' write cannot be taken back. It never sees
%% two states at once, so its own checks hold in every run.
%%
%% The tables must be of type `set' with the engine `hash', or of type `ordered_set' with the engine `ca'. These are
%% the defaults. A name stands for the table that had it when the transaction first used it.
%%
%% If the process is killed, the transaction has written all or nothing.
%%
%% == Cost ==
%%
%% A read of `N' reads costs `O(log N)' more than {@link cats:lookup/2}. The first ones compare all that was read
%% before, up to some 24 objects. After that the transaction is a long one. Until it ends, all writers of its tables log
%% the keys that they write. Each read looks at what was logged since the last one. Writes are kept until the end, where
%% each costs what {@link cats:insert/2} costs.
%%
%% == Errors ==
%%
%% Errors are those of the functions of `cats' with the same purpose, and name these. {@link read/2} fails as {@link
%% cats:lookup/2}. Like all errors, they end the transaction: {@link run/2} returns `{aborted, {badarg, Stacktrace}}'.
%% Any function fails so when the table does not exist, or has no transactions, or when its access rights forbid to
%% read. The right to write is asked for at the end. Then a transaction also fails with `system_limit' when it writes
%% more than 32 tables, when a table that it writes is full and evicts nothing, or when memory runs out. The error names
%% the full table. After ten failures a transaction needs a process of its own, and fails so where the VM has no room
%% for it.
-module(cats_transaction).

-include("cats_failure.hrl").

-export([run/1, run/2, run/3, abort/1]).
-export([read/2, member/2, insert/2, delete/2, delete_object/2]).
-export([first/1, last/1, next/2, prev/2, range/3, select/2]).

-export_type([result/1, options/0]).

-type result(Result) :: {atomic, Result} | {aborted, Reason :: term()}.
%% What became of a transaction.

-type options() :: #{retries => non_neg_integer() | infinity, timeout => timeout()}.
%% How often the function may run again, and the milliseconds after which it does not run again.

%% The key of the process dictionary for the state of the transaction that runs.
-define(STATE, '$cats_transaction').

%% After so many failures, a transaction becomes the only one that may commit.
-define(PATIENCE, 10).

%% So often a transaction runs as the only one that may commit.
-define(PREFERRED_RUNS, 100).

%% A transaction becomes a long one before it compares more objects at each read.
-define(COMPARED, 24).

%% A transaction runs within so many catches. Those of its process tell whether it still runs: a process that has gone
%% on elsewhere, by `erlang:hibernate/3', has none of them. What it does then may be within catches too, but hardly
%% within so many more.
-define(CATCHES, 8).
-define(CATCH(Call), try Call catch throw:?NEVER -> ?NEVER end).
-define(WITHIN_CATCHES(Call), ?CATCH(?CATCH(?CATCH(?CATCH(?CATCH(?CATCH(?CATCH(?CATCH(Call))))))))).
-define(NEVER, {?MODULE, never}).

%% Raised by `run' itself.
-define(BAD_CALL(Arguments), erlang:error(badarg, Arguments, [{error_info, #{module => cats_failure}}])).

-record(run, {
    process :: pid(),
    %% The transaction runs while its process has at least so many catches.
    level :: pos_integer(),
    %% A monotonic time in milliseconds.
    deadline :: integer() | infinity,
    %% The keeper, if only this transaction may commit.
    keeper = none :: pid() | none
}).

-record(table, {
    %% As it was called.
    name :: cats:table(),
    tid :: reference(),
    type :: cats:table_type(),
    position :: pos_integer()
}).

-record(state, {
    run :: #run{},
    %% The latest used first.
    tables = [] :: [#table{}],
    %% What a read compares, the latest first. Or the transaction runs again, because that has changed.
    notes = [] :: [cats_nif:note()] | conflict,
    %% What shall be written.
    writes = cats_writes:none() :: cats_writes:writes(),
    %% How many objects a read compares.
    compared = 0 :: non_neg_integer(),
    %% A transaction that has read much: what it has read besides the notes.
    long = none :: none | reference()
}).

-type called() :: {Function :: atom(), Arguments :: [term()]} | Function :: atom().
%% The function of `cats' in whose name errors are raised. Its arguments, if they are not given, are the table and the
%% key.

%% @doc Like {@link run/2}, with a function that has no arguments.
-spec run(fun(() -> Result)) -> result(Result).
run(Fun) when is_function(Fun, 0) -> run_checked(Fun, [], #{});
run(Fun) -> ?BAD_CALL([Fun]).

%% @doc Like {@link run/3}, with no options.
-spec run(fun((...) -> Result), Arguments :: [term()]) -> result(Result).
run(Fun, Arguments) when is_function(Fun, length(Arguments)) -> run_checked(Fun, Arguments, #{});
run(Fun, Arguments) -> ?BAD_CALL([Fun, Arguments]).

%% @doc Runs a function as a transaction. Returns `{atomic, Result}' when everything that it has written is there.
%%
%% Otherwise nothing was written, and it returns `{aborted, Reason}'. The first four reasons are those of Mnesia.
%%
%% <ul>
%% <li>{@link abort/1} gives its argument.</li>
%% <li>An error gives `{Error, Stacktrace}'.</li>
%% <li>`exit(Reason)' gives `Reason'.</li>
%% <li>`throw(Value)' gives `{throw, Value}'.</li>
%% <li>A function that has run so many times gives `{conflict, Runs}', and `{timeout, Runs}' if its time was over.</li>
%% </ul>
%%
%% The function may run several times, see {@link cats_transaction}. After ten failures no other transaction commits
%% while this one runs. So two transactions cannot keep each other from finishing. Operations outside of transactions
%% can still make it fail. After 100 such runs it ends.
%%
%% With `retries' it runs again so many times, or with `infinity' without end. With `timeout' it neither runs again nor
%% waits for others when so many milliseconds are over.
%%
%% Inside another transaction the function is a part of that one. Its writes appear with those of the outer one, which
%% runs again as its own options say. If it aborts, only its own writes are forgotten, and the outer one goes on.
%%
%% Fails with `badarg' when `Fun' is not a function of as many arguments as `Arguments' has, or when the options are
%% wrong.
-spec run(fun((...) -> Result), Arguments :: [term()], options()) -> result(Result).
run(Fun, Arguments, Options) when is_function(Fun, length(Arguments)), is_map(Options) ->
    case maps:fold(fun is_option/3, true, Options) of
        true -> run_checked(Fun, Arguments, Options);
        false -> ?BAD_CALL([Fun, Arguments, Options])
    end;
run(Fun, Arguments, Options) ->
    ?BAD_CALL([Fun, Arguments, Options]).

is_option(Option, infinity, Good) when Option =:= retries; Option =:= timeout -> Good;
is_option(Option, N, Good) when Option =:= retries; Option =:= timeout -> Good andalso is_integer(N) andalso N >= 0;
is_option(_Option, _Value, _Good) -> false.

run_checked(Fun, Arguments, Options) ->
    case present() of
        none ->
            Retries = maps:get(retries, Options, ?PATIENCE + ?PREFERRED_RUNS - 1),
            Deadline = case Options of
                           #{timeout := Time} when is_integer(Time) -> erlang:monotonic_time(millisecond) + Time;
                           #{} -> infinity
                       end,
            Run = #run{process = self(), level = catches() + ?CATCHES, deadline = Deadline},
            ?WITHIN_CATCHES(attempt(Fun, Arguments, Run, Retries, 0));
        #state{notes = conflict} = State -> conflict(State);
        Outer -> within(Outer, Fun, Arguments)
    end.

%% `Runs' have failed.
attempt(Fun, Arguments, #run{deadline = Deadline} = Run, Retries, Runs) ->
    Outcome = case Runs < ?PATIENCE of
                  true -> once(Fun, Arguments, Run);
                  false -> preferred(Fun, Arguments, Run)
              end,
    case Outcome of
        conflict when Runs >= Retries ->
            {aborted, {conflict, Runs + 1}};
        conflict ->
            erlang:yield(),
            case Deadline =:= infinity orelse erlang:monotonic_time(millisecond) < Deadline of
                true -> attempt(Fun, Arguments, Run, Retries, Runs + 1);
                false -> {aborted, {timeout, Runs + 1}}
            end;
        timeout ->
            {aborted, {timeout, Runs + 1}};
        not_preferred ->
            {aborted, {timeout, Runs}};
        no_process ->
            {aborted, {system_limit, cats_failure:stack(?MODULE, run, [Fun, Arguments], cats_failure:info(processes))}};
        _ ->
            Outcome
    end.

preferred(Fun, Arguments, #run{level = Level, deadline = Deadline} = Run) ->
    case cats_preferred:enter(Level, Deadline) of
        timeout ->
            not_preferred;
        no_process ->
            no_process;
        Keeper ->
            try
                once(Fun, Arguments, Run#run{keeper = Keeper})
            after
                cats_preferred:leave(Keeper)
            end
    end.

once(Fun, Arguments, Run) ->
    put(?STATE, #state{run = Run}),
    try apply(Fun, Arguments) of
        Result ->
            State = erase(?STATE),
            Outcome = commit(State, Result),
            finish(State),
            Outcome
    catch
        Class:Reason:Stack ->
            State = erase(?STATE),
            finish(State),
            case State of
                #state{notes = conflict} -> conflict;
                _ -> {aborted, reason(Class, Reason, Stack)}
            end
    end.

%% The state is not used any more.
finish(#state{long = Long}) when Long =/= none -> cats_nif:transaction_end(Long);
finish(_) -> ok.

within(#state{writes = Writes}, Fun, Arguments) ->
    try
        {atomic, apply(Fun, Arguments)}
    catch
        Class:Reason:Stack ->
            case state() of
                #state{} = State ->
                    %% What was read stays: the outer function acts on what became of this one.
                    put(?STATE, State#state{writes = Writes}),
                    {aborted, reason(Class, Reason, Stack)}
            end
    end.

reason(exit, {aborted, Reason}, _Stack) -> Reason;
reason(exit, Reason, _Stack) -> Reason;
reason(error, Error, Stack) -> {Error, Stack};
reason(throw, Value, _Stack) -> {throw, Value}.

%% What a transaction that has only read saw was there at the instant of its last read.
commit(#state{notes = conflict}, _Result) ->
    conflict;
commit(#state{writes = Writes} = State, Result) ->
    case cats_writes:all(Writes) of
        [] -> {atomic, Result};
        Changes -> commit(State, Changes, Result)
    end;
%% The function has erased the state from the dictionary.
commit(undefined, _Result) ->
    {aborted, no_transaction}.

commit(#state{run = #run{keeper = Keeper, deadline = Deadline}} = State, Changes, Result) ->
    Outcome = case cats_nif:transaction_commit(reads(State), Changes, Keeper) of
                  ?FAILED(_, _) = Failure -> cats_failure:handle(Failure, transaction_commit);
                  Returned -> {return, Returned}
              end,
    case Outcome of
        {return, true} -> {atomic, Result};
        {return, false} -> conflict;
        {return, {preferred, Other}} ->
            case cats_preferred:await(Other, Deadline) of
                ok -> commit(State, Changes, Result);
                timeout -> timeout
            end;
        {raise, Error, _, Info} ->
            try
                refused(Error, cats_failure:cause(Info), Changes, State)
            catch
                Class:Reason:Stack -> {aborted, reason(Class, Reason, Stack)}
            end
    end.

%% Raises the error of a commit, in the name of the table that it may not write. If there is no such table any more, the
%% transaction runs again.
refused(badarg, _Cause, Changes, State) ->
    _ = [cats_failure:handle(Failure, transaction_table, Function, Arguments)
         || {Tid, _, _} = Change <- Changes,
            ?FAILED(_, _) = Failure <- [cats_nif:transaction_table(Tid, write)],
            {Function, Arguments} <- [call_of(Change, State)]],
    conflict;
refused(Error, {Limit, Tid}, Changes, State) ->
    {_, _, _} = Change = lists:keyfind(Tid, 1, Changes),
    refuse(Error, Limit, Change, State);
refused(Error, Cause, [Change | _], State) ->
    refuse(Error, Cause, Change, State).

-spec refuse(Error :: term(), Cause :: term(), cats_writes:write(), #state{}) -> no_return().
refuse(Error, Cause, Change, State) ->
    {Function, Arguments} = call_of(Change, State),
    cats_failure:fail(Error, Cause, Function, Arguments).

%% The function of `cats' that writes this.
call_of({Tid, Key, Objects}, #state{tables = Tables}) ->
    #table{name = Name} = lists:keyfind(Tid, #table.tid, Tables),
    case Objects of
        [Object] -> {insert, [Name, Object]};
        [] -> {delete, [Name, Key]}
    end.

%% The body of the transaction cannot go on. A body that catches this does not get any further.
-spec conflict(#state{}) -> no_return().
conflict(State) ->
    put(?STATE, State#state{notes = conflict}),
    throw({?MODULE, conflict}).

%% @doc Ends the transaction: {@link run/1} returns `{aborted, Reason}'.
%%
%% Outside of a transaction this and the functions below call `exit({aborted, no_transaction})'.
-spec abort(Reason :: term()) -> no_return().
abort(Reason) ->
    _ = state(),
    exit({aborted, Reason}).

%% @doc Returns the objects of a key, as {@link cats:lookup/2} does.
-spec read(cats:table(), Key :: term()) -> [Object :: tuple()].
read(Table, Key) -> read(Key, use(Table, Key, state(), lookup), lookup).

%% @doc Returns whether the table holds an object with the key.
-spec member(cats:table(), Key :: term()) -> boolean().
member(Table, Key) -> read(Key, use(Table, Key, state(), member), member) =/= [].

%% @doc Inserts an object or a list of objects, as {@link cats:insert/2} does.
-spec insert(cats:table(), tuple() | [tuple()]) -> true.
insert(Table, Objects) ->
    case use(Table, Objects, state(), insert) of
        #state{tables = [#table{position = Position} | _]} = State when tuple_size(Objects) >= Position ->
            write(element(Position, Objects), [Objects], State);
        State ->
            insert_all(Objects, State, {insert, [Table, Objects]})
    end.

%% The state is noted at the end. So a wrong object in a list leaves nothing.
insert_all([Object | Objects], #state{tables = [#table{position = Position} | _]} = State, Called)
  when tuple_size(Object) >= Position ->
    insert_all(Objects, with_write(element(Position, Object), [Object], State), Called);
insert_all([], State, _Called) ->
    put(?STATE, State),
    true;
insert_all(_Wrong, _State, Called) ->
    fail(none, Called).

%% @doc Removes the object of a key, if there is one.
-spec delete(cats:table(), Key :: term()) -> true.
delete(Table, Key) -> write(Key, [], use(Table, Key, state(), delete)).

%% @doc Removes an object, if the table holds exactly this one.
-spec delete_object(cats:table(), Object :: tuple()) -> true.
delete_object(Table, Object) ->
    Called = {delete_object, [Table, Object]},
    case use(Table, Object, state(), Called) of
        #state{tables = [#table{position = Position} | _]} = State when tuple_size(Object) >= Position ->
            Key = element(Position, Object),
            case read(Key, State, Called) of
                [Object] -> write(Key, [], use(Table, Key, state(), Called));
                _ -> true
            end;
        _ ->
            fail(none, Called)
    end.

%% @doc Returns the first key of an `ordered_set', or `$end_of_table'.
-spec first(cats:table()) -> (Key :: term()) | '$end_of_table'.
first(Table) -> step(Table, [], false, {first, [Table]}).

%% @doc Returns the last key of an `ordered_set', or `$end_of_table'.
-spec last(cats:table()) -> (Key :: term()) | '$end_of_table'.
last(Table) -> step(Table, [], true, {last, [Table]}).

%% @doc Returns the key after `Key' in an `ordered_set', or `$end_of_table'. `Key' need not be in the table.
-spec next(cats:table(), Key :: term()) -> (Key2 :: term()) | '$end_of_table'.
next(Table, Key) -> step(Table, {Key}, false, {next, [Table, Key]}).

%% @doc Returns the key before `Key' in an `ordered_set', or `$end_of_table'. `Key' need not be in the table.
-spec prev(cats:table(), Key :: term()) -> (Key2 :: term()) | '$end_of_table'.
prev(Table, Key) -> step(Table, {Key}, true, {prev, [Table, Key]}).

%% @doc Returns the objects of an `ordered_set' with keys from `From' to `To', both included, in the order of keys.
%%
%% This counts as one read. It costs `O(log N)' for a table of `N' objects, and the objects that it returns.
-spec range(cats:table(), From :: term(), To :: term()) -> [Object :: tuple()].
range(Table, From, To) ->
    %% The error of a function with the same first argument.
    Called = {first, [Table]},
    all_between([From], [To], ordered(Table, Called), Called).

%% @doc Returns the results of a match specification, as {@link cats:select/2} does.
%%
%% In a `set' it must have one pattern only, which has the whole key, without maps. In an `ordered_set' any other
%% specification reads the whole table. Then any change of the table makes the transaction run again. {@link range/3}
%% reads a part.
-spec select(cats:table(), cats:match_spec()) -> [Result :: term()].
select(Table, MatchSpec) ->
    Called = {select, [Table, MatchSpec]},
    #state{tables = [#table{type = Type, position = Position} | _]} = State = use(Table, MatchSpec, state(), Called),
    Key = case cats_nif:select_key(MatchSpec, Position) of
              ?FAILED(_, _) = Failure -> handle(Failure, select_key, Called);
              Outcome -> Outcome
          end,
    Objects = case Key of
                  {Whole} -> read(Whole, State, Called);
                  none when Type =:= ordered_set -> all_between([], [], State, Called);
                  none -> fail(no_ranges, Called)
              end,
    select_terms(Objects, MatchSpec, [], Called).

select_terms([], _MatchSpec, Results, _Called) ->
    lists:reverse(Results);
select_terms(Objects, MatchSpec, Results, Called) ->
    {OtherObjects, NewResults} =
        case cats_nif:select_terms(Objects, MatchSpec, Results) of
            ?FAILED(_, _) = Failure -> handle(Failure, select_terms, Called);
            Outcome -> Outcome
        end,
    select_terms(OtherObjects, MatchSpec, NewResults, Called).

%%------------------------------------------------------------------------------------------------------------

%% The state of the transaction that runs.
state() ->
    case present() of
        #state{notes = conflict} = State -> conflict(State);
        #state{} = State -> State;
        none -> exit({aborted, no_transaction})
    end.

%% The same, or `none'. What the dictionary has may belong to a transaction that is over, or to another process, from
%% whose dictionary it was copied.
present() ->
    case get(?STATE) of
        undefined ->
            none;
        #state{run = #run{process = Process, level = Level, keeper = Keeper}} = State ->
            Own = Process =:= self(),
            case Own andalso catches() >= Level of
                true ->
                    State;
                false ->
                    Own andalso Keeper =/= none andalso cats_preferred:leave(Keeper),
                    Own andalso finish(State),
                    erase(?STATE),
                    none
            end
    end.

%% The number of catches that the process is within.
catches() ->
    {catchlevel, Catches} = process_info(self(), catchlevel),
    Catches.

%% A state whose first table is this one. `Argument' is the second argument of the function that was called.
-spec use(cats:table(), Argument :: term(), #state{}, called()) -> #state{}.
use(Table, _Argument, #state{tables = [#table{name = Table} | _]} = State, _Called) ->
    State;
use(Table, Argument, #state{tables = Tables} = State, Called) ->
    case lists:keytake(Table, #table.name, Tables) of
        {value, Known, Others} ->
            State#state{tables = [Known | Others]};
        false ->
            {Tid, Type, Position} =
                case cats_nif:transaction_table(Table, read) of
                    ?FAILED(_, _) = Failure -> handle(Failure, transaction_table, called(Called, Table, Argument));
                    Outcome -> Outcome
                end,
            State#state{tables = [#table{name = Table, tid = Tid, type = Type, position = Position} | Tables]}
    end.

called(Function, Table, Argument) when is_atom(Function) -> {Function, [Table, Argument]};
called(Called, _Table, _Argument) -> Called.

ordered(Table, Called) ->
    case use(Table, none, state(), Called) of
        #state{tables = [#table{type = ordered_set} | _]} = State -> State;
        _ -> fail(no_ranges, Called)
    end.

%% The objects of a key of the first table, in the state that the transaction sees.
read(Key, #state{tables = [#table{tid = Tid, type = Type} | _], notes = Notes, writes = Writes} = State, Called) ->
    case cats_writes:find(Tid, Type, Key, Writes) of
        none ->
            case known(Tid, Type, Key, Notes) of
                none -> read_first(Tid, Key, State, Called);
                Noted -> Noted
            end;
        Objects ->
            Objects
    end.

%% The objects of a key in the notes. A search of all of them, because the first read of a key compares them all, too.
known(_Tid, _Type, _Key, []) -> none;
known(Tid, ordered_set, Key, Notes) -> noted_equal(Tid, Key, Notes);
known(Tid, set, Key, Notes) -> noted_exactly(Tid, Key, Notes).

noted_exactly(Tid, Key, [{Tid, Key, Objects} | _]) -> Objects;
noted_exactly(Tid, Key, [_ | Notes]) -> noted_exactly(Tid, Key, Notes);
noted_exactly(_Tid, _Key, []) -> none.

%% In an ordered_set, keys that compare equal are the same.
noted_equal(Tid, Key, [{Tid, Noted, Objects} | _]) when Noted == Key -> Objects;
noted_equal(Tid, Key, [_ | Notes]) -> noted_equal(Tid, Key, Notes);
noted_equal(_Tid, _Key, []) -> none.

read_first(Tid, Key, #state{compared = Compared, long = none} = State, Called) when Compared >= ?COMPARED ->
    read_first(Tid, Key, long(State, called(Called, (hd(State#state.tables))#table.name, Key)), Called);
read_first(Tid, Key, State, Called) ->
    Outcome = case cats_nif:transaction_read(reads(State), Tid, Key) of
                  ?FAILED(_, _) = Failure ->
                      handle(Failure, transaction_read, called(Called, (hd(State#state.tables))#table.name, Key));
                  Returned ->
                      Returned
              end,
    case Outcome of
        conflict -> conflict(State);
        {logged, Objects} -> logged(Objects, State);
        Objects -> noted(Objects, {Tid, Key, Objects}, 1, State)
    end.

%% All fields of a state are given here and below, because that is faster than to change some.
noted(Objects, Note, Size, State) ->
    #state{run = Run, tables = Tables, notes = Notes, writes = Writes, compared = Compared, long = Long} = State,
    put(?STATE, #state{run = Run, tables = Tables, notes = [Note | Notes], writes = Writes, compared = Compared + Size,
                       long = Long}),
    Objects.

logged(Objects, State) ->
    put(?STATE, State#state{notes = []}),
    Objects.

%% Makes the transaction a long one.
long(#state{notes = Notes} = State, Called) ->
    Long = case cats_nif:transaction_long(Notes) of
               ?FAILED(_, _) = Failure -> handle(Failure, transaction_long, Called);
               Reference -> Reference
           end,
    NewState = State#state{long = Long},
    put(?STATE, NewState),
    NewState.

%% What was read, for the native side.
reads(#state{notes = Notes, long = none}) -> Notes;
reads(#state{notes = Notes, long = Long}) -> {Long, Notes}.

write(Key, Objects, State) ->
    put(?STATE, with_write(Key, Objects, State)),
    true.

%% A state in which a key of the first table shall have these objects.
with_write(Key, Objects, State) ->
    #state{run = Run, tables = Tables, notes = Notes, writes = Writes, compared = Compared, long = Long} = State,
    [#table{tid = Tid} | _] = Tables,
    TypeOf = fun(Written) -> (lists:keyfind(Written, #table.tid, Tables))#table.type end,
    NewWrites = cats_writes:put({Tid, Key, Objects}, TypeOf, Writes),
    #state{run = Run, tables = Tables, notes = Notes, writes = NewWrites, compared = Compared, long = Long}.

%% The next key that the transaction sees, from what is in the table and what the transaction has written.
step(Table, From, Down, Called) ->
    #state{tables = [#table{tid = Tid} | _], writes = Writes} = State = ordered(Table, Called),
    step_on(From, Down, cats_writes:nearest(Tid, From, Down, Writes), State, Called).

step_on(From, Down, Nearest, State, Called) ->
    #state{tables = [#table{tid = Tid, type = Type, position = Position} | _]} = State,
    Begin = cats_writes:skip(Tid, From, Down, State#state.writes),
    {Objects, #state{writes = Writes} = NewState} = case Begin of
                                                        finished -> {[], State};
                                                        _ -> neighbour(Begin, Down, State, Called)
                                                    end,
    case {Objects, Nearest} of
        {[], none} ->
            '$end_of_table';
        {[], {key, Key}} ->
            Key;
        {[Object], _} ->
            Key = element(Position, Object),
            case Nearest of
                {key, Own} when not Down, Own =< Key; Down, Own >= Key ->
                    Own;
                _ ->
                    case cats_writes:find(Tid, Type, Key, Writes) of
                        none ->
                            Key;
                        %% Deleted by the transaction itself.
                        _ ->
                            Passed = NewState#state{writes = cats_writes:pass(Tid, Begin, Key, Down, Writes)},
                            put(?STATE, Passed),
                            step_on({Key}, Down, Nearest, Passed, Called)
                    end
            end
    end.

%% The object behind a key in the table, if there is one. It is read once. So a transaction that deletes many keys steps
%% over them without reading them again.
neighbour(From, Down, #state{tables = [#table{tid = Tid} | _], notes = Notes} = State, Called) ->
    case stepped(Tid, From, Down, Notes) of
        none -> stored(From, [], Down, 1, State, Called);
        Objects -> {Objects, State}
    end.

%% The first object of a range that was read before. A range without objects tells nothing of what comes after it.
stepped(Tid, From, Down, [{Tid, From, To, Down, Objects} | _]) when Objects =/= []; To =:= [] ->
    lists:sublist(Objects, 1);
stepped(Tid, From, Down, [_ | Notes]) -> stepped(Tid, From, Down, Notes);
stepped(_Tid, _From, _Down, []) -> none.

%% All objects of a range that the transaction sees.
all_between(From, To, State, Called) ->
    {Stored, #state{tables = [#table{tid = Tid, type = Type, position = Position} | _], writes = Writes}} =
        stored(From, To, false, infinity, State, Called),
    Own = cats_writes:between(Tid, From, To, Writes),
    Other = [Object || Object <- Stored, cats_writes:find(Tid, Type, element(Position, Object), Writes) =:= none],
    lists:merge(fun(A, B) -> element(Position, A) =< element(Position, B) end, Own, Other).

%% Objects of a range as they are in the table.
stored(From, To, Down, Limit, #state{compared = Compared, long = none} = State, Called) when Compared >= ?COMPARED ->
    stored(From, To, Down, Limit, long(State, Called), Called);
stored(From, To, Down, Limit, #state{tables = [#table{tid = Tid, position = Position} | _]} = State, Called) ->
    Outcome = case cats_nif:transaction_range(reads(State), Tid, From, To, Down, Limit) of
                  ?FAILED(_, _) = Failure -> handle(Failure, transaction_range, Called);
                  Returned -> Returned
              end,
    Stored = case Outcome of
                 conflict ->
                     conflict(State);
                 {logged, Objects} ->
                     logged(Objects, State);
                 Objects ->
                     Size = length(Objects),
                     %% With a limit, the range that was read ends at the last object.
                     Read = case Size of
                                Limit -> [element(Position, lists:last(Objects))];
                                _ -> To
                            end,
                     noted(Objects, {Tid, From, Read, Down, Objects}, Size + 1, State)
             end,
    {Stored, get(?STATE)}.

handle(Failure, Native, {Function, Arguments}) ->
    cats_failure:handle(Failure, Native, Function, Arguments).

-spec fail(Cause :: atom(), called()) -> no_return().
fail(Cause, {Function, Arguments}) ->
    cats_failure:fail(badarg, Cause, Function, Arguments).
