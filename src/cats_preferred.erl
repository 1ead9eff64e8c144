%% @hidden
%% The preferred transaction, of which there is one at most. What it has read is reserved.
%%
%% A keeper is a process that stands for such a transaction. The native library has its pid, and refuses commits of
%% others that write what is reserved. They wait for the end of the keeper, which is a monitor's message.
%%
%% | the transaction | the keeper |
%% |---|---|
%% | has run | is told, and ends |
%% | was killed | gets to know it by a monitor, and ends |
%% | goes on elsewhere by `erlang:hibernate/3' | finds that the catches of the function are gone, and ends |
%% | runs for very long | ends, so others commit again. The transaction goes on without preference |
%%
%% For the catches it looks each second, and before a write by the process from outside is refused.
-module(cats_preferred).

-export([enter/2, leave/1, await/2, is_inside/0, keep/2]).

%% After so many milliseconds, the keeper looks whether the function still runs.
-define(LOOK, 1000).

%% So often the keeper looks. Then the transaction is not preferred any more.
-define(LOOKS, 10).

-type deadline() :: integer() | infinity.
%% A monotonic time in milliseconds.

%% @doc Makes the caller's transaction the preferred one, when no other is. It runs while the caller has so many
%% catches. `no_process' means that the VM has no room for the keeper.
-spec enter(Level :: pos_integer(), deadline()) -> Keeper :: pid() | timeout | no_process.
enter(Level, Deadline) ->
    case cats_nif:transaction_preferred() of
        none ->
            try spawn(?MODULE, keep, [self(), Level]) of
                Keeper ->
                    case cats_nif:transaction_prefer(Keeper) of
                        true ->
                            Keeper;
                        false ->
                            exit(Keeper, kill),
                            enter(Level, Deadline)
                    end
            catch
                error:system_limit -> no_process
            end;
        Other ->
            case await(Other, Deadline) of
                ok -> enter(Level, Deadline);
                timeout -> timeout
            end
    end.

%% @doc Ends the preference.
-spec leave(Keeper :: pid()) -> ok.
leave(Keeper) ->
    ok = cats_nif:transaction_yield(Keeper),
    exit(Keeper, kill),
    ok.

%% @doc Waits until the transaction of this keeper is not preferred any more.
-spec await(Keeper :: pid(), deadline()) -> ok | timeout.
await(Keeper, Deadline) ->
    Monitor = monitor(process, Keeper),
    receive
        {'DOWN', Monitor, process, Keeper, _} -> ok
    after left(Deadline) ->
            demonitor(Monitor, [flush]),
            timeout
    end.

%% @doc Whether the caller is inside the function of the preferred transaction. If it has left it by
%% `erlang:hibernate/3', nothing is reserved after this call.
-spec is_inside() -> boolean().
is_inside() ->
    case cats_nif:transaction_preferred() of
        none ->
            false;
        Keeper ->
            Monitor = monitor(process, Keeper),
            Keeper ! {is_inside, self(), Monitor},
            receive
                {Monitor, IsInside} ->
                    demonitor(Monitor, [flush]),
                    IsInside;
                {'DOWN', Monitor, process, Keeper, _} ->
                    false
            end
    end.

left(infinity) -> infinity;
left(Deadline) -> max(0, Deadline - erlang:monotonic_time(millisecond)).

%% @private
%% @doc Runs as the keeper.
-spec keep(Process :: pid(), Level :: pos_integer()) -> ok.
keep(Process, Level) ->
    keep(Process, Level, monitor(process, Process), ?LOOKS).

keep(_Process, _Level, _Monitor, 0) ->
    cats_nif:transaction_yield(self());
keep(Process, Level, Monitor, Looks) ->
    receive
        {'DOWN', Monitor, process, Process, _} ->
            cats_nif:transaction_yield(self());
        {is_inside, Process, Tag} ->
            look(Process, Level, Monitor, Looks, fun() -> Process ! {Tag, true} end);
        {is_inside, Other, Tag} ->
            Other ! {Tag, false},
            keep(Process, Level, Monitor, Looks)
    after ?LOOK ->
            look(Process, Level, Monitor, Looks - 1, fun() -> ok end)
    end.

%% Ends unless the function still runs.
look(Process, Level, Monitor, Looks, IsInside) ->
    case process_info(Process, catchlevel) of
        {catchlevel, Catches} when Catches >= Level ->
            _ = IsInside(),
            keep(Process, Level, Monitor, Looks);
        _ ->
            cats_nif:transaction_yield(self())
    end.
