%% @hidden
%% Single flight: of all processes that miss a key, one makes the object, and the others wait for it.
%%
%% A flight is a process that stands for the making of one object. The table `cats_fetch' has a row for each flight. Whoever
%% inserts the row of a key leads: it runs the function itself, stores the object, and tells the flight. All others wait
%% for the end of the flight, which is a monitor's message.
%%
%% | the leader | the flight | the others |
%% |---|---|---|
%% | has stored the object, removes the row | ends with the object as its reason | return the object |
%% | failed, removes the row | ends with another reason | look again, and one of them leads |
%% | was killed | removes the row, ends with another reason | the same |
%%
%% Whoever sees the end of a flight removes its row too. So no row stays when the flight itself is killed.
%%
%% Where a fetch may give out an object that has ended, nobody waits for the next one. Whoever finds such an object, and no row of its
%% key, begins a flight. Its leader is a process of its own, the renewer. It ends as other leaders do, with its function.
-module(cats_fetch).

-include("cats_failure.hrl").

-export([options/1, fetch/3, miss/3, fly/2, renew/5]).

-export_type([call/0]).

%% The function, a monotonic time in milliseconds up to which to wait, the lifetime of the object that the function makes, for how long
%% after its end that may be given out, and the arguments of `cats:fetch'.
-type call() :: {fun((term()) -> tuple()), deadline(), cats:lifetime() | default, Stale :: non_neg_integer(), Called :: [term()]}.
-type deadline() :: integer() | infinity.

%% `{{Tid, Key}, Flight, Leader}'
-define(FLIGHTS, cats_fetch).

%% What the leader does to end the flight.
-define(made(Object), {?MODULE, made, Object}).
-define(failed, {?MODULE, failed}).

%% What makes a renewer go on.
-define(lead(Row), {?MODULE, lead, Row}).

%% @doc The deadline, the lifetime and the stale time of these options, or `error'.
-spec options(term()) -> {deadline(), cats:lifetime() | default, non_neg_integer()} | error.
options(#{} = Options) ->
    Time = maps:get(ttl, Options, default),
    Stale = maps:get(stale, Options, 0),
    Known = lists:sum([1 || Name <- [timeout, ttl, stale], is_map_key(Name, Options)]) =:= map_size(Options),
    IsTime = Time =:= default orelse Time =:= infinity orelse is_integer(Time) andalso Time > 0,
    IsStale = is_integer(Stale) andalso Stale >= 0,
    case maps:get(timeout, Options, infinity) of
        infinity when Known, IsTime, IsStale ->
            {infinity, Time, Stale};
        Timeout when Known, IsTime, IsStale, is_integer(Timeout), Timeout >= 0 ->
            {erlang:monotonic_time(millisecond) + Timeout, Time, Stale};
        _ ->
            error
    end;
options(_) ->
    error.

%% @doc See {@link cats:fetch/4}.
-spec fetch(cats:table(), Key :: term(), call()) -> tuple().
fetch(Table, Key, Call) ->
    case find(Table, Key, Call) of
        {Object, false} -> Object;
        {Object, true} -> renewed(Object, Table, Key, Call);
        false -> miss(Table, Key, Call)
    end.

%% @doc The same after a miss.
-spec miss(cats:table(), Key :: term(), call()) -> tuple().
miss(Table, Key, Call) ->
    Place = {cats:info(Table, id), Key},
    case flight_to(Place) of
        [{_, _, Leader}] when Leader =:= self() -> cats_failure:fail(badarg, nested, fetch, called(Call));
        [Row] -> wait(Row, Table, Key, Call);
        [] ->
            Flight = spawn(?MODULE, fly, [Place, self()]),
            Row = {Place, Flight, self()},
            case begin_flight(Row) of
                true ->
                    lead(Row, Table, Key, Call);
                false ->
                    Flight ! ?failed,
                    miss(Table, Key, Call)
            end
    end.

called({_Fun, _Deadline, _Time, _Stale, Called}) -> Called.

%% @private
%% @doc Runs as the flight.
-spec fly(Place :: {cats:tid(), term()}, Leader :: pid()) -> no_return().
fly(Place, Leader) ->
    Monitor = monitor(process, Leader),
    Outcome = receive
                  ?made(_) = Made -> Made;
                  ?failed -> ?failed;
                  {'DOWN', Monitor, process, Leader, _} -> end_flight({Place, self(), Leader})
              end,
    exit(Outcome).

%% The object that a fetch returns which found this one, which has ended. Only public tables can be written by a renewer.
renewed(Object, Table, Key, Call) ->
    case cats:info(Table, protection) of
        public ->
            count(Table, fetch_stale),
            _ = begin_renewal({cats:info(Table, id), Key}, Table, Key, Call),
            Object;
        _ ->
            miss(Table, Key, Call)
    end.

%% Begins a flight with a renewer, unless there is one.
begin_renewal(Place, Table, Key, Call) ->
    case flight_to(Place) of
        [{_, Flight, _} = Row] ->
            %% The renewer and the flight may both have been killed.
            is_process_alive(Flight) orelse end_flight(Row);
        [] ->
            Renewer = spawn(?MODULE, renew, [self(), get('$callers'), Table, Key, Call]),
            Row = {Place, spawn(?MODULE, fly, [Place, Renewer]), Renewer},
            case begin_flight(Row) of
                true -> Renewer ! ?lead(Row);
                false -> exit(Renewer, kill)
            end
    end.

%% @private
%% @doc Runs as the renewer. As the tasks of Elixir, it knows who called it.
-spec renew(Caller :: pid(), Callers :: [pid()] | undefined, cats:table(), Key :: term(), call()) -> term().
renew(Caller, Callers, Table, Key, Call) ->
    Monitor = monitor(process, Caller),
    receive
        ?lead(Row) ->
            demonitor(Monitor, [flush]),
            put('$callers', [Caller | [Pid || Callers =/= undefined, Pid <- Callers]]),
            try
                lead(Row, Table, Key, Call)
            catch
                %% That the table is deleted meanwhile is no failure of the function.
                error:badarg:Stack -> cats:info(Table, id) =:= undefined orelse erlang:raise(error, badarg, Stack)
            end;
        {'DOWN', Monitor, process, Caller, _} ->
            ok
    end.

lead({_, Flight, _} = Row, Table, Key, Call) ->
    Object = try
                 %% Another process may have stored it before this flight began.
                 case find(Table, Key, Call) of
                     {Found, false} -> Found;
                     _ -> make(Table, Key, Call)
                 end
             catch
                 Class:Reason:Stack ->
                     end_flight(Row),
                     Flight ! ?failed,
                     erlang:raise(Class, Reason, Stack)
             end,
    end_flight(Row),
    Flight ! ?made(Object),
    Object.

make(Table, Key, {Fun, _, _, _, _} = Call) ->
    Made = try
               Fun(Key)
           catch
               Class:Reason:Stack ->
                   count(Table, fetch_failed),
                   erlang:raise(Class, Reason, Stack)
           end,
    count(Table, fetch_made),
    store(Table, Key, Made, Call).

%% Stores the object that was made, unless the table has one by now. Returns the one that the table has.
store(Table, Key, Made, Call) ->
    case insert_absent(Table, Key, Made, Call) of
        true -> Made;
        false ->
            case find(Table, Key, Call) of
                {Found, false} -> Found;
                _ -> store(Table, Key, Made, Call)
            end
    end.

%% The object of a key, and whether it has ended, or `false'.
find(Table, Key, {_, _, default, 0, Called}) ->
    Found = ?RESULT(cats_nif:lookup_to_update(Table, Key), lookup_to_update, fetch, Called),
    case Found of
        [Object] -> {Object, false};
        false -> false
    end;
find(Table, Key, {_, _, _, Stale, Called}) ->
    ?RESULT(cats_nif:fetched(Table, Key, Stale), fetched, fetch, Called).

%% Fails unless the object has this key.
insert_absent(Table, Key, Object, {_, _, Time, Stale, Called}) ->
    WithKey = case cats:info(Table, keypos) of
                  Place when is_tuple(Object), Place =< tuple_size(Object) -> setelement(Place, Object, Key);
                  _ -> no_object
              end,
    {Function, Arguments} = case {Time, Stale} of
                                {default, 0} -> {insert_absent, [Table, WithKey, Object]};
                                _ -> {insert_fetched, [Table, WithKey, Object, Time, Stale]}
                            end,
    ?RESULT(apply(cats_nif, Function, Arguments), Function, fetch, Called).

wait({_, Flight, _} = Row, Table, Key, {_, Deadline, _, _, Called} = Call) ->
    count(Table, fetch_waited),
    Monitor = monitor(process, Flight),
    receive
        {'DOWN', Monitor, process, Flight, ?made(Object)} ->
            Object;
        {'DOWN', Monitor, process, Flight, _} ->
            end_flight(Row),
            fetch(Table, Key, Call)
    after left(Deadline) ->
            demonitor(Monitor, [flush]),
            exit({timeout, {cats, fetch, Called}})
    end.

left(infinity) -> infinity;
left(Deadline) -> max(0, Deadline - erlang:monotonic_time(millisecond)).

count(Table, Event) ->
    _ = cats_nif:count_fetch(Table, Event),
    ok.

%%--------------------------------------------------------------------------------------------------
%% The table of flights. It is made when it is needed, and stays when the process that made it ends.

flight_to(Place) ->
    try
        cats:lookup(?FLIGHTS, Place)
    catch
        error:badarg -> []
    end.

begin_flight(Row) ->
    try
        cats:insert_new(?FLIGHTS, Row)
    catch
        error:badarg ->
            _ = try
                    cats:new(?FLIGHTS, [named_table, public, {heir, keep}])
                catch
                    error:badarg -> made_by_another_process
                end,
            begin_flight(Row)
    end.

end_flight(Row) ->
    try
        cats:delete_object(?FLIGHTS, Row)
    catch
        error:badarg -> true
    end.
