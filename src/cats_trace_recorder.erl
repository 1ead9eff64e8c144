%% The process of a trace: holds the recording, and collects what the VM tells beside it.
%%
%% The recording ends with its reference, and the system monitor with its process. So nothing stays on if this process
%% is killed, except microstate accounting, which costs next to nothing.
-module(cats_trace_recorder).
-behaviour(gen_server).
-export([start/2, stop/2, clock/1, finish/1, part/4]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).

-export_type([collected/0]).

-type collected() :: #{
    %% Microseconds that the trace was on.
    length := float(),
    %% The name of each thread, and its events.
    threads := [{binary(), [cats_nif:trace_event()]}],
    lost := non_neg_integer(),
    %% The tables that were there at the start or at the end: serial number, by which events know the contents, name.
    known := [{non_neg_integer(), non_neg_integer(), atom()}],
    %% The serial numbers of the tables that are wanted.
    wanted := all | [non_neg_integer()],
    %% Microstate accounting, at microseconds from the start.
    samples := [{float(), [map()]}],
    %% How many processes and ports run, how many could run, how many processes wait, at microseconds from the start.
    counts := [{float(), non_neg_integer(), non_neg_integer(), non_neg_integer()}],
    %% What the system monitor told, at microseconds from the start.
    told := [{float(), pid() | port(), atom(), term()}],
    left_out := [cats_trace:events()]}.

%% A sample each so many milliseconds, and not more than so many in all.
-define(PERIOD, 100).
-define(SAMPLES, 1000).
%% The same for the numbers of processes.
-define(COUNTED_EACH, 10).
%% How often two clocks are read beside each other.
-define(LOOKS, 5).
%% Messages of the system monitor that are kept.
-define(TOLD, 10000).
%% Milliseconds from which a schedule or a garbage collection is long.
-define(LONG, 10).

%% @private
%% @doc Starts a trace of this node, which ends with a process of any node.
-spec start(Starter :: pid(), map()) -> {ok, pid()} | {error, already_tracing}.
start(Starter, Options) ->
    case gen_server:start(?MODULE, {Starter, Options}, []) of
        {ok, Trace} -> {ok, Trace};
        ignore -> {error, already_tracing};
        {error, {Reason, _Stack}} -> error(Reason)
    end.

%% @private
%% @doc Ends a trace, and writes its files.
-spec stop(pid(), binary()) -> {ok, cats_trace:result()} | {error, term()}.
stop(Trace, Name) ->
    try
        gen_server:call(Trace, {stop, Name}, infinity)
    catch
        exit:{Reason, {gen_server, call, _}} when Reason =:= noproc; Reason =:= normal; Reason =:= killed ->
            {error, no_trace}
    end.

%% @private
%% @doc The time of the node by a clock that nobody sets, which has the pace of that of the recording, and its system
%% time, in nanoseconds.
-spec clock(pid()) -> {integer(), integer()}.
clock(Trace) -> gen_server:call(Trace, clock).

%% @private
%% @doc Records nothing more. Returns when the trace began, by the first one of these clocks, and how wrong that may be.
-spec finish(pid()) -> {integer(), non_neg_integer()}.
finish(Trace) -> gen_server:call(Trace, finish, infinity).

%% @private
%% @doc What was recorded, as {@link cats_trace_file:part/4} makes it.
-spec part(pid(), pos_integer(), float(), string()) -> cats_trace_file:part().
part(Trace, Number, Shift, Note) -> gen_server:call(Trace, {part, Number, Shift, Note}, infinity).

%% @private
-spec init({Starter :: pid(), map()}) -> {ok, map()} | ignore.
init({Starter, #{events := Events, ring := Room, tables := Tables, seconds := Seconds}}) ->
    monitor(process, Starter),
    case cats_nif:trace_start(kinds(Events), Room) of
        false ->
            ignore;
        Recording when is_reference(Recording) ->
            %% So that samples come in time when schedulers are busy.
            process_flag(priority, high),
            process_flag(message_queue_data, off_heap),
            erlang:send_after(1000 * Seconds, self(), ended),
            Period = max(?PERIOD, 1000 * Seconds div ?SAMPLES),
            State = #{recording => Recording, known => known(), wanted => wanted(Tables), period => Period,
                      each => max(?COUNTED_EACH, 1000 * Seconds div ?SAMPLES), counts => [], samples => [],
                      told => [], number_told => 0, left_out => [], accounting => none,
                      monitor => none, on => true},
            {ok, lists:foldl(fun begin_to/2, State, Events)}
    end.

kinds(Events) ->
    lists:usort([contents, created, renamed | lists:append([kinds_of(Event) || Event <- Events])]).

kinds_of(waits) -> [wait, busy];
kinds_of(reads) -> [read_again];
kinds_of(adaptations) -> [split, join, grow, shrink, more_locks, fewer_locks];
kinds_of(calls) -> [slice, call_begin, call];
kinds_of(memory) -> [retire, reclaim, retire_contents, reclaim_contents];
kinds_of(tables) -> [created, renamed, given, deleted];
kinds_of(_) -> [].

known() -> [Table || Tid <- cats:all(), Table <- known(Tid)].

%% Nothing, if the table is gone.
known(Table) ->
    try {cats:info(Table, trace), cats:info(Table, name)} of
        {{Serial, Contents}, Name} when Name =/= undefined -> [{Serial, Contents, Name}];
        _ -> []
    catch
        error:badarg -> []
    end.

wanted(all) -> all;
wanted(Tables) -> [Serial || Table <- Tables, {Serial, _, _} <- known(Table)].

begin_to(schedulers, State) ->
    Before = erlang:system_flag(microstate_accounting, true),
    self() ! sample,
    State#{accounting := Before};
begin_to(processes, State) ->
    self() ! count,
    State;
begin_to(monitor, #{left_out := LeftOut} = State) ->
    case set_monitor() of
        false -> State#{left_out := [monitor | LeftOut]};
        Monitor -> State#{monitor := Monitor}
    end;
begin_to(_, State) ->
    State.

%% From OTP 28 on each trace session has a system monitor of its own. Before, the node has one. That of somebody else
%% stays.
set_monitor() ->
    case code:ensure_loaded(trace) of
        {module, Trace} ->
            set_in_session(Trace, erlang:function_exported(Trace, system, 3));
        {error, _} ->
            set_in_node()
    end.

set_in_session(_Trace, false) ->
    set_in_node();
set_in_session(Trace, true) ->
    Session = Trace:session_create(?MODULE, self(), []),
    [ok = Trace:system(Session, Event, Value) || {Event, Value} <- monitored()],
    {session, Trace, Session}.

set_in_node() ->
    case erlang:system_monitor() of
        undefined -> set_if_none(erlang:system_monitor(self(), [{long_gc, ?LONG}, {long_schedule, ?LONG}, busy_port]));
        _ -> false
    end.

monitored() -> [{long_gc, ?LONG}, {long_schedule, ?LONG}, {busy_port, true}].

%% Somebody may have set one at the same moment: gives it back.
set_if_none(undefined) -> own;
set_if_none({Process, Options}) -> _ = erlang:system_monitor(Process, Options), false.

%% @private
-spec handle_call(term(), gen_server:from(), map()) ->
          {stop, normal, {ok, cats_trace:result()}, map()} | {reply, term(), map()}.
handle_call({stop, Name}, _From, State) ->
    Ended = end_all(State),
    process_flag(priority, normal),
    case cats_trace_file:write(Name, collected(Ended)) of
        {ok, Result} -> {stop, normal, {ok, Result}, Ended};
        {error, Reason} -> {reply, {error, Reason}, Ended}
    end;
handle_call(clock, _From, State) ->
    {reply, {os:perf_counter(nanosecond), os:system_time(nanosecond)}, State};
handle_call(finish, _From, State) ->
    Ended = end_all(State),
    {Half, Began} = lists:min([began(State) || _ <- lists:seq(1, ?LOOKS)]),
    {reply, {Began, Half}, Ended};
handle_call({part, Number, Shift, Note}, _From, State) ->
    process_flag(priority, normal),
    {reply, cats_trace_file:part(collected(State), Number, Shift, Note), State}.

%% How wrong the other may be, and when the recording began.
began(#{recording := Recording}) ->
    Before = os:perf_counter(nanosecond),
    {Elapsed, _} = cats_nif:trace_stop(Recording),
    After = os:perf_counter(nanosecond),
    {(After - Before) div 2, (Before + After) div 2 - Elapsed}.

collected(#{recording := Recording, ended := Length} = State) ->
    {Elapsed, Now} = cats_nif:trace_stop(Recording),
    {Slots, Missed} = cats_nif:trace_slots(Recording),
    Threads = [cats_nif:dirty(trace_events, [Recording, Slot]) || Slot <- Slots],
    %% Microseconds from the start of the recording. The VM may correct its clock meanwhile. So what it tells is not
    %% after the end.
    At = fun(Time) ->
                 min(Length, Elapsed - erlang:convert_time_unit(Now - Time, native, nanosecond)) / 1000
         end,
    #{length => Length / 1000, threads => [{Name, Events} || {Name, _, Events} <- Threads],
      lost => Missed + lists:sum([Lost || {_, Lost, _} <- Threads]),
      samples => [{At(Time), Sample} || {Time, Sample} <- lists:reverse(maps:get(samples, State))],
      counts => [{At(Time), Running, Runnable, Waiting}
                 || {Time, Running, Runnable, Waiting} <- lists:reverse(maps:get(counts, State))],
      told => [{At(Time), Who, What, How} || {Time, Who, What, How} <- lists:reverse(maps:get(told, State))],
      %% The event that tells of a new table may be lost.
      known => lists:usort(maps:get(known, State) ++ known()), wanted => maps:get(wanted, State),
      left_out => maps:get(left_out, State)}.

%% @private
-spec handle_cast(term(), map()) -> {noreply, map()}.
handle_cast(_, State) -> {noreply, State}.

%% @private
-spec handle_info(term(), map()) -> {noreply, map()} | {stop, normal, map()}.
handle_info(sample, #{on := true, period := Period, samples := Samples} = State) ->
    erlang:send_after(Period, self(), sample),
    Sample = erlang:statistics(microstate_accounting),
    {noreply, State#{samples := [{erlang:monotonic_time(), Sample} | Samples]}};
handle_info(count, #{on := true, each := Period, counts := Counts} = State) ->
    erlang:send_after(Period, self(), count),
    {noreply, State#{counts := [count() | Counts]}};
handle_info({monitor, Who, What, How}, #{on := true, told := Told, number_told := Number} = State)
  when Number < ?TOLD ->
    {noreply, State#{told := [{erlang:monotonic_time(), Who, What, How} | Told], number_told := Number + 1}};
handle_info(ended, State) ->
    {noreply, end_all(State)};
handle_info({'DOWN', _, process, _, _}, State) ->
    {stop, normal, State};
handle_info(_, State) ->
    {noreply, State}.

%% @private
-spec terminate(term(), map()) -> map().
terminate(_Reason, State) -> end_all(State).

%% This process runs, and is not counted. The numbers are read one after the other.
count() ->
    Runnable = erlang:statistics(total_run_queue_lengths_all),
    Running = max(0, erlang:statistics(total_active_tasks_all) - Runnable - 1),
    Waiting = max(0, erlang:system_info(process_count) - Running - Runnable - 1),
    {erlang:monotonic_time(), Running, Runnable, Waiting}.

%% Ends what was begun, once.
end_all(#{on := true, recording := Recording, accounting := Accounting, monitor := Monitor} = State) ->
    {Length, _} = cats_nif:trace_stop(Recording),
    Accounting =:= false andalso erlang:system_flag(microstate_accounting, false),
    case {Monitor, erlang:system_monitor()} of
        {{session, Trace, Session}, _} -> Trace:session_destroy(Session);
        {own, {Process, _}} when Process =:= self() -> erlang:system_monitor(undefined);
        _ -> ok
    end,
    State#{on := false, ended => Length};
end_all(State) ->
    State.
