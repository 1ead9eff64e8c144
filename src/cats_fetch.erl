%% @hidden
%% Single flight: of all processes that miss a key, one makes the object, and the others wait for it.
%%
%% Whoever begins the flight of a key (cats_flight) leads: it runs the function itself, stores the object, and tells the
%% flight, which ends with that. All others wait for the end of the flight.
%%
%% The leader goes on after another process has written to the key. It stores its object if the key has none then.
%%
%% A failure may be remembered for some time. It is where the flight was: who misses the key finds it there.
%%
%% Where a fetch may give out an object that has ended, or that ends soon, nobody waits for the next one. Whoever finds
%% such an object, and no flight of its key, begins one. Its leader is a process of its own, the renewer. It is killed
%% when it takes too long.
-module(cats_fetch).

-include("cats_failure.hrl").
-include("cats_fetch.hrl").

-export([call/2, call_many/2, fetch/3, miss/3, outcome/2, store/5, fly/3, guard/2, renew/5]).

-export_type([call/0]).

-type call() :: #call{}.
-type place() :: {cats:tid() | undefined, Key :: term()}.

%% What a flight of one key is told besides: that the leader stores its object now.
-define(stores, {?MODULE, stores}).

%% What makes a renewer go on.
-define(lead(Flight), {?MODULE, lead, Flight}).

%% The longest time for which a process can wait.
-define(LONGEST, 16#FFFFFFFF).

%% The longest time that an object can live, as in native/table/src/operations/expiry.rs.
-define(LONGEST_LIFE, 1 bsl 40 - 1).

%% @doc The call with these arguments and options, or why the latter are none.
-spec call(Called :: [term()], Options :: term()) -> call() | {error, Cause :: term()}.
call(Called, Options) -> call(fetch, Called, Options).

%% @doc The same for many keys.
-spec call_many(Called :: [term()], Options :: term()) -> call() | {error, Cause :: term()}.
call_many(Called, Options) -> call(fetch_many, Called, Options).

call(Name, [_Table, _Key, Function | _] = Called, #{} = Options) ->
    maps:fold(fun option/3, #call{name = Name, function = Function, called = Called}, Options);
call(_Name, _Called, _Options) ->
    {error, no_fetch_options}.

option(_Name, _Value, {error, _} = Error) -> Error;
option(returns, Returns, Call) when Returns =:= object; Returns =:= outcome -> Call#call{returns = Returns};
option(timeout, infinity, Call) -> Call;
option(timeout, Time, Call) when is_integer(Time), Time >= 0, Time =< ?LONGEST ->
    Call#call{deadline = cats_flight:deadline(Time)};
option(ttl, infinity, Call) -> Call#call{ttl = infinity};
option(ttl, Time, Call) when is_integer(Time), Time > 0, Time =< ?LONGEST_LIFE -> Call#call{ttl = Time};
option(stale, Time, #call{name = fetch} = Call) when is_integer(Time), Time >= 0, Time =< ?LONGEST_LIFE ->
    Call#call{stale = Time};
option(negative_ttl, Time, Call) when is_integer(Time), Time >= 0, Time =< ?LONGEST_LIFE ->
    Call#call{negative_ttl = Time};
option(refresh_ahead, Time, #call{name = fetch} = Call) when is_integer(Time), Time >= 0, Time =< ?LONGEST_LIFE ->
    Call#call{refresh_ahead = Time};
option(retry, Retry, Call) when is_boolean(Retry) -> Call#call{retry = Retry};
option(refresh_timeout, infinity, #call{name = fetch} = Call) -> Call#call{refresh_timeout = infinity};
option(refresh_timeout, Time, #call{name = fetch} = Call) when is_integer(Time), Time > 0, Time =< ?LONGEST ->
    Call#call{refresh_timeout = Time};
option(Name, Value, _Call) -> {error, {invalid_option, {Name, Value}}}.

%% @doc See {@link cats:fetch/4}.
-spec fetch(cats:table(), Key :: term(), call()) -> tuple() | (Ignored :: term()).
fetch(Table, Key, Call) ->
    go_on(find(Table, Key, Call), Table, Key, Call).

go_on({Object, lives}, _Table, _Key, _Call) -> Object;
go_on({Object, Life}, Table, Key, Call) -> renewed(Object, Life, Table, Key, Call);
go_on(false, Table, Key, Call) -> miss(Table, Key, Call).

%% Looks again.
again(Table, Key, Call) ->
    go_on(find_again(Table, Key, Call), Table, Key, Call).

%% @doc The same after a miss.
-spec miss(cats:table(), Key :: term(), call()) -> tuple() | (Ignored :: term()).
miss(Table, Key, Call) ->
    case flight_to(Table, Key, Call) of
        {failed, {Class, Reason, Stack}} ->
            erlang:raise(Class, Reason, Stack);
        {_, Leader, _} when Leader =:= self() ->
            cats_flight:fail(nested, Call);
        {_, _, _} = Flight ->
            wait(Flight, Table, Key, Call);
        false ->
            Place = {cats:info(Table, id), Key},
            case take_off(Place, self(), infinity, Table, Call) of
                {begun, Flight} -> lead(Flight, Place, Table, Call#call{refresh_ahead = 0});
                not_begun -> miss(Table, Key, Call)
            end
    end.

%% Begins a flight, unless the key has one by now.
-spec take_off(place(), Leader :: pid(), Limit :: pos_integer() | infinity, cats:table(), call()) ->
          {begun, Flight :: pid()} | not_begun.
take_off({_, Key} = Place, Leader, Limit, Table, Call) ->
    Flight = cats_flight:start(?MODULE, fly, [Place, Leader, Limit], Call),
    try begin_flight({Flight, Leader}, Table, Key, Call) of
        true ->
            {begun, Flight};
        false ->
            exit(Flight, kill),
            not_begun
    catch
        Class:Reason:Stack ->
            exit(Flight, kill),
            erlang:raise(Class, Reason, Stack)
    end.

%% @private
%% @doc Runs as the flight. Ends it when the leader takes longer than the limit.
-spec fly(place(), Leader :: pid(), Limit :: pos_integer() | infinity) -> no_return().
fly(Place, Leader, Limit) ->
    Monitor = monitor(process, Leader),
    exit(fly(Place, {Leader, Monitor}, false, cats_flight:deadline(Limit))).

fly(Place, {Leader, Monitor} = Led, Stores, Deadline) ->
    receive
        ?made(_) = Made ->
            Made;
        ?ignored(_) = Ignored ->
            Ignored;
        ?failed(_, _, _) = Failed ->
            Failed;
        ?stores ->
            fly(Place, Led, true, Deadline);
        ?written(_) when Stores ->
            %% Perhaps it was the leader. It tells what the table has by now.
            fly(Place, Led, Stores, Deadline);
        ?written(_) ->
            Deadline =:= infinity orelse leave(Leader, Deadline, Place),
            ?ended;
        ?waits(_Process, Alias, _Numbers) ->
            Alias ! {Alias, joined},
            fly(Place, Led, Stores, Deadline);
        ?place(Process, Tag, _Waits) ->
            Process ! {Tag, Place},
            fly(Place, Led, Stores, Deadline);
        {'DOWN', Monitor, process, Leader, _} ->
            end_flight(self(), Place),
            ?ended
    after cats_flight:left(Deadline) ->
            end_flight(self(), Place),
            stop(Leader, Place),
            ?ended
    end.

%% Leaves a renewer to another process, which ends it in time. Where there is no room for one, the renewer ends now.
leave(Renewer, Deadline, Place) ->
    try
        spawn(?MODULE, guard, [Renewer, Deadline])
    catch
        error:system_limit -> stop(Renewer, Place)
    end.

stop(Renewer, {Tid, _Key}) ->
    exit(Renewer, kill),
    cats_flight:count(Tid, fetch_failed).

%% @private
%% @doc Kills a renewer that takes too long, where its flight has ended.
-spec guard(pid(), Deadline :: integer()) -> true.
guard(Renewer, Deadline) ->
    Monitor = monitor(process, Renewer),
    receive
        {'DOWN', Monitor, process, Renewer, _} -> true
    after cats_flight:left(Deadline) -> exit(Renewer, kill)
    end.

%% The object that a fetch returns which found this one, which has ended or is due. Only public tables can be written by
%% a renewer.
renewed(Object, Life, Table, Key, Call) ->
    case {cats:info(Table, protection), Life} of
        {public, _} ->
            _ = Life =:= ended andalso cats_flight:count(Table, fetch_stale),
            %% The object is there, whether a renewal can begin or not. It cannot where there is no room for a process,
            %% where the caller runs a transaction and may not write, and where the table has just been deleted. The
            %% function does not run here, so these are no errors of its own.
            _ = try
                    flight_to(Table, Key, Call) =:= false andalso begin_renewal(Table, Key, Call)
                catch
                    error:Reason when Reason =:= badarg; Reason =:= system_limit -> false
                end,
            Object;
        {_, due} ->
            Object;
        {_, ended} ->
            miss(Table, Key, Call)
    end.

%% Begins a flight with a renewer.
begin_renewal(Table, Key, #call{refresh_timeout = Limit} = Call) ->
    Place = {cats:info(Table, id), Key},
    Renewer = cats_flight:start(?MODULE, renew, [self(), get('$callers'), Place, Table, Call], Call),
    try take_off(Place, Renewer, Limit, Table, Call) of
        {begun, Flight} -> Renewer ! ?lead(Flight);
        not_begun -> exit(Renewer, kill)
    catch
        Class:Reason:Stack ->
            exit(Renewer, kill),
            erlang:raise(Class, Reason, Stack)
    end.

%% @private
%% @doc Runs as the renewer. As the tasks of Elixir, it knows who called it.
-spec renew(Caller :: pid(), Callers :: [pid()] | undefined, place(), cats:table(), call()) -> term().
renew(Caller, Callers, Place, Table, Call) ->
    Monitor = monitor(process, Caller),
    receive
        ?lead(Flight) ->
            demonitor(Monitor, [flush]),
            put('$callers', [Caller | [Pid || Callers =/= undefined, Pid <- Callers]]),
            try
                lead(Flight, Place, Table, Call)
            catch
                %% That the table is deleted meanwhile is no failure of the function.
                error:badarg:Stack -> cats:info(Table, id) =:= undefined orelse erlang:raise(error, badarg, Stack)
            end;
        {'DOWN', Monitor, process, Caller, _} ->
            ok
    end.

lead(Flight, {_, Key} = Place, Table, Call) ->
    {_, _, Result} = Outcome =
        try
            %% Another process may have stored it before this flight began.
            case find_again(Table, Key, Call) of
                {Found, lives} -> ?made(Found);
                {Due, due} -> make(Flight, Table, Key, Due, Call);
                _ -> make(Flight, Table, Key, none, Call)
            end
        catch
            Class:Reason:Stack -> cats_flight:crash({Class, Reason, Stack}, Flight, keys(Place), Call)
        end,
    end_flight(Flight, Place),
    Flight ! Outcome,
    Result.

%% `Due' is the object that the new one replaces, or `none'.
make(Flight, Table, Key, Due, Call) ->
    case outcome(cats_flight:run(Key, Table, Call), Call) of
        {store, Made, Storing} ->
            Flight ! ?stores,
            ?made(store(Table, Key, Made, Due, Storing));
        {ignore, Value} ->
            ?ignored(Value)
    end.

%% @doc What becomes of what the function has returned. An object comes with the call as which it is stored.
-spec outcome(Returned :: term(), call()) -> {store, Made :: term(), call()} | {ignore, Value :: term()}.
outcome(Made, #call{returns = object} = Call) -> {store, Made, Call};
outcome({store, Made}, Call) -> {store, Made, Call};
outcome({store, Made, #{ttl := Time} = Options}, Call) when map_size(Options) =:= 1 ->
    case option(ttl, Time, Call) of
        {error, _} -> cats_flight:fail(no_outcome, Call);
        Storing -> {store, Made, Storing}
    end;
outcome({store, Made, Options}, Call) when Options =:= #{} -> {store, Made, Call};
outcome({ignore, _} = Ignored, _Call) -> Ignored;
outcome(_Returned, Call) -> cats_flight:fail(no_outcome, Call).

%% @doc Stores the object that was made, unless the table has one by now that is not due. Returns the one that the table
%% has. `Due' is the object that the new one replaces, or `none'.
-spec store(cats:table(), Key :: term(), Made :: term(), Due :: tuple() | none, call()) -> tuple().
store(Table, Key, Made, Due, Call) ->
    Stored = case Due of
                 none -> insert_absent(Table, Key, Made, Call);
                 _ -> replace_due(Table, Due, Made, Call)
             end,
    case Stored of
        true -> Made;
        false ->
            case find_again(Table, Key, Call#call{refresh_ahead = 0}) of
                {Found, lives} -> Found;
                _ -> store(Table, Key, Made, none, Call)
            end
    end.

replace_due(Table, Due, Made, #call{ttl = Time, stale = Stale, called = Called}) ->
    ?RESULT(cats_nif:replace_fetched(Table, Due, Made, Time, Stale), replace_fetched, fetch, Called).

%% The object of a key, and whether it lives, is due or has ended, or `false'.
find(Table, Key, #call{ttl = default, stale = 0, refresh_ahead = 0, called = Called}) ->
    Found = ?RESULT(cats_nif:lookup_to_fetch(Table, Key), lookup_to_fetch, fetch, Called),
    case Found of
        [Object] -> {Object, lives};
        false -> false
    end;
find(Table, Key, #call{stale = Stale, refresh_ahead = Ahead, called = Called}) ->
    ?RESULT(cats_nif:fetched(Table, Key, Stale, Ahead), fetched, fetch, Called).

%% The same for a call that has looked before. It counts as no lookup.
find_again(Table, Key, #call{name = Name, stale = Stale, refresh_ahead = Ahead, called = Called}) ->
    ?RESULT(cats_nif:fetched_again(Table, Key, Stale, Ahead), fetched_again, Name, Called).

%% Fails unless the object has this key.
insert_absent(Table, Key, Object, #call{name = Name, ttl = Time, stale = Stale, called = Called}) ->
    WithKey = case cats:info(Table, keypos) of
                  Place when is_tuple(Object), Place =< tuple_size(Object) -> setelement(Place, Object, Key);
                  _ -> no_object
              end,
    {Function, Arguments} = case {Time, Stale} of
                                {default, 0} -> {insert_absent, [Table, WithKey, Object]};
                                _ -> {insert_fetched, [Table, WithKey, Object, Time, Stale]}
                            end,
    ?RESULT(apply(cats_nif, Function, Arguments), Function, Name, Called).

wait({Flight, _, _} = To, Table, Key, Call) ->
    case cats_flight:outcome(To, cats_flight:await([To], Table, Call)) of
        ?made(Object) ->
            Object;
        ?ignored(Value) when Call#call.returns =:= outcome ->
            Value;
        _ ->
            end_flight(Flight, {Table, Key}),
            again(Table, Key, Call)
    end.

%%--------------------------------------------------------------------------------------------------
%% The flights that the native library knows.

%% A flight, or a failure that is remembered.
-spec flight_to(cats:table(), Key :: term(), call()) ->
          cats_flight:flight() | {failed, cats_flight:failure()} | false.
flight_to(Table, Key, #call{negative_ttl = Time, called = Called}) ->
    case ?RESULT(cats_nif:flight_to(Table, Key), flight_to, fetch, Called) of
        {failed, _} when Time =:= 0 -> false;
        Known -> Known
    end.

begin_flight({Flight, Leader}, Table, Key, #call{called = Called}) ->
    ?RESULT(cats_nif:flight_begin(Table, Key, Flight, Leader), flight_begin, fetch, Called).

end_flight(Flight, Place) -> cats_flight:finish(Flight, keys(Place)).

keys({Table, Key}) -> {Table, [Key]}.
