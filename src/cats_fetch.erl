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
-module(cats_fetch).
-export([fetch/5, miss/5, fly/2]).

%% `{{Tid, Key}, Flight, Leader}'
-define(FLIGHTS, cats_fetch).

%% What the leader does to end the flight.
-define(made(Object), {?MODULE, made, Object}).
-define(failed, {?MODULE, failed}).

%% @doc See {@link cats:fetch/4}. `Deadline' is a monotonic time in milliseconds, or `infinity'. `Called' is the arguments
%% of `cats:fetch'.
-spec fetch(cats:table(), Key :: term(), fun((term()) -> tuple()), Deadline, Called :: [term()]) -> tuple() when
      Deadline :: integer() | infinity.
fetch(Table, Key, Fun, Deadline, Called) ->
    case find(Table, Key, Called) of
        [Object] -> Object;
        false -> miss(Table, Key, Fun, Deadline, Called)
    end.

%% @doc The same after a miss.
-spec miss(cats:table(), Key :: term(), fun((term()) -> tuple()), Deadline, Called :: [term()]) -> tuple() when
      Deadline :: integer() | infinity.
miss(Table, Key, Fun, Deadline, Called) ->
    Place = {cats:info(Table, id), Key},
    case flight_to(Place) of
        [{_, _, Leader}] when Leader =:= self() -> cats_failure:fail(badarg, nested, fetch, Called);
        [Row] -> wait(Row, Table, Key, Fun, Deadline, Called);
        [] ->
            Flight = spawn(?MODULE, fly, [Place, self()]),
            Row = {Place, Flight, self()},
            case begin_flight(Row) of
                true ->
                    lead(Row, Table, Key, Fun, Called);
                false ->
                    Flight ! ?failed,
                    miss(Table, Key, Fun, Deadline, Called)
            end
    end.

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

lead({_, Flight, _} = Row, Table, Key, Fun, Called) ->
    Object = try
                 %% Another process may have stored it before this flight began.
                 case find(Table, Key, Called) of
                     [Found] -> Found;
                     false -> store(Table, Key, Fun(Key), Called)
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

%% Stores the object that was made, unless the table has one by now. Returns the one that the table has.
store(Table, Key, Made, Called) ->
    case insert_absent(Table, Key, Made, Called) of
        true -> Made;
        false ->
            case find(Table, Key, Called) of
                [Found] -> Found;
                false -> store(Table, Key, Made, Called)
            end
    end.

find(Table, Key, Called) ->
    try
        cats_nif:lookup_to_update(Table, Key)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, {lookup_to_update, [Table, Key]}, fetch, Called, Stack)
    end.

%% Fails unless the object has this key.
insert_absent(Table, Key, Object, Called) ->
    WithKey = case cats:info(Table, keypos) of
                  Place when is_tuple(Object), Place =< tuple_size(Object) -> setelement(Place, Object, Key);
                  _ -> no_object
              end,
    try
        cats_nif:insert_absent(Table, WithKey, Object)
    catch
        error:Cause:Stack ->
            cats_failure:handle(Cause, {insert_absent, [Table, WithKey, Object]}, fetch, Called, Stack)
    end.

wait({_, Flight, _} = Row, Table, Key, Fun, Deadline, Called) ->
    Monitor = monitor(process, Flight),
    receive
        {'DOWN', Monitor, process, Flight, ?made(Object)} ->
            Object;
        {'DOWN', Monitor, process, Flight, _} ->
            end_flight(Row),
            fetch(Table, Key, Fun, Deadline, Called)
    after left(Deadline) ->
            demonitor(Monitor, [flush]),
            exit({timeout, {cats, fetch, Called}})
    end.

left(infinity) -> infinity;
left(Deadline) -> max(0, Deadline - erlang:monotonic_time(millisecond)).

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
