%% @hidden
%% Runs the function of a transaction until what it has written is there, or it is clear that this will not be.
-module(cats_run).

-include("cats_failure.hrl").
-include("cats_transaction.hrl").

-export([run/3, state/1, reads/1, over/2]).

%% After so many failures, a transaction asks to be the preferred one.
-define(PATIENCE, 10).

%% So often a transaction runs as the preferred one.
-define(PREFERRED_RUNS, 100).

%% The memory of a transaction, unless its options say another, in bytes.
-define(MEMORY, (64 bsl 20)).

%% A transaction runs within so many catches. Those of its process tell whether it still runs: a process that has gone
%% on elsewhere, by `erlang:hibernate/3', has none of them. What it does then may be within catches too, but hardly
%% within so many more.
-define(CATCHES, 8).
-define(CATCH(Call), try Call catch throw:?NEVER -> ?NEVER end).
-define(WITHIN_CATCHES(Call), ?CATCH(?CATCH(?CATCH(?CATCH(?CATCH(?CATCH(?CATCH(?CATCH(Call))))))))).
-define(NEVER, {?MODULE, never}).

%% @doc What {@link cats_transaction:run/3} does. The arguments are right.
-spec run(fun((...) -> Result), Arguments :: [term()], cats_transaction:options()) -> cats_transaction:result(Result).
run(Fun, Arguments, Options) ->
    case present() of
        none ->
            Retries = maps:get(retries, Options, ?PATIENCE + ?PREFERRED_RUNS - 1),
            Deadline = case Options of
                           #{timeout := Time} when is_integer(Time) -> erlang:monotonic_time(millisecond) + Time;
                           #{} -> infinity
                       end,
            Run = #run{process = self(), level = catches() + ?CATCHES, deadline = Deadline,
                       memory = maps:get(memory, Options, ?MEMORY)},
            ?WITHIN_CATCHES(attempt(Fun, Arguments, Run, Retries, 0));
        #state{notes = Why} = State when is_atom(Why) -> over(Why, State);
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
        Why when Why =:= timeout; Why =:= memory ->
            {aborted, {Why, Runs + 1}};
        not_preferred ->
            {aborted, {timeout, Runs}};
        no_process ->
            Info = cats_failure:info(processes),
            {aborted, {system_limit, cats_failure:stack(cats_transaction, run, [Fun, Arguments], Info)}};
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
                #state{notes = Why} when is_atom(Why) -> Why;
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
            State = state({run, [Fun, Arguments]}),
            %% What was read stays: the outer function acts on what became of this one.
            put(?STATE, State#state{writes = Writes}),
            {aborted, reason(Class, Reason, Stack)}
    end.

reason(exit, {aborted, Reason}, _Stack) -> Reason;
reason(exit, Reason, _Stack) -> Reason;
%% The function has erased the state from the dictionary.
reason(error, no_transaction, _Stack) -> no_transaction;
reason(error, Error, Stack) -> {Error, Stack};
reason(throw, Value, _Stack) -> {throw, Value}.

%% What a transaction that has only read saw was there at the instant of its last read.
commit(#state{notes = Why}, _Result) when is_atom(Why) ->
    Why;
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
        {return, Why} when is_atom(Why) -> Why;
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

-spec refuse(Error :: term(), Cause :: term(), cats_writes:committed(), #state{}) -> no_return().
refuse(Error, Cause, Change, State) ->
    {Function, Arguments} = call_of(Change, State),
    cats_failure:fail(Error, Cause, Function, Arguments).

%% The function of `cats' that writes this.
call_of({Tid, Key, Objects}, #state{tables = Tables}) ->
    #table{name = Name} = lists:keyfind(Tid, #table.tid, Tables),
    case Objects of
        [Object] -> {insert, [Name, Object]};
        {_, _, [Object | _]} -> {insert, [Name, Object]};
        {false, [Object | _], []} -> {delete_object, [Name, Object]};
        _ -> {delete, [Name, Key]}
    end.

%% @doc The body of the transaction cannot go on. A body that catches this does not get any further.
-spec over(cats_nif:over(), #state{}) -> no_return().
over(Why, State) ->
    put(?STATE, State#state{notes = Why}),
    throw({?MODULE, Why}).

%% @doc The state of the transaction that runs, for a function of `cats_transaction'.
-spec state({Function :: atom(), Arguments :: [term()]}) -> #state{}.
state({Function, Arguments}) ->
    case present() of
        #state{notes = Why} = State when is_atom(Why) ->
            over(Why, State);
        #state{} = State ->
            State;
        none ->
            Info = cats_failure:info(none),
            erlang:raise(error, no_transaction, cats_failure:stack(cats_transaction, Function, Arguments, Info))
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

%% @doc What was read, for the native side.
-spec reads(#state{}) -> cats_nif:reads().
reads(#state{notes = Notes, long = none}) -> Notes;
reads(#state{notes = Notes, long = Long}) -> {Long, Notes}.
