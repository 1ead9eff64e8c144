%% @hidden
%% Flights, as those see them that begin one or wait for one.
%%
%% A flight is a process that stands for the making of objects by its leader. The native library knows the flight of
%% each key, by the table's own equality of keys (native/table/src/flights.rs). All others wait for what becomes of the
%% key: for the end of the flight, which is a monitor's message, or for a message of a flight with several keys.
%%
%% | what happens | the flight or its key ends with | the others |
%% |---|---|---|
%% | the leader has stored the object | the object | return the object |
%% | its function gave a value to ignore | the value | return it if they ask for outcomes, or look again |
%% | its function gave nothing for the key | that | return so if they have many keys, or look again |
%% | its function failed | the exception | fail with it, or look again |
%% | it was killed, others wrote to the key, or the table was emptied or deleted | `ended' | look again; one leads |
%%
%% A process whose function waits for another flight may wait for itself in the end. The native library knows who waits
%% for which flight, and tells the one that would close the circle.
-module(cats_flight).

-include("cats_failure.hrl").
-include("cats_fetch.hrl").

-export([start/4, run/3, await/3, outcome/2, finish/2, crash/4, count/2, fail/2, deadline/1, left/1]).

-export_type([flight/0, failure/0, ends/0]).

%% The flight of a key, and which of the flight's keys it is: 0 if there are no others.
-type flight() :: {Flight :: pid(), Leader :: pid(), Number :: non_neg_integer()}.
-type failure() :: {error | exit | throw, Reason :: term(), Stack :: list()}.
%% How flights have ended, and before that some of their keys.
-opaque ends() :: #{Flight :: pid() => {End :: term(), #{Number :: non_neg_integer() => Outcome :: term()}}}.
-type place() :: {cats:tid() | undefined, Key :: term()}.

%% So many places of a circle are named.
-define(NAMED, 10).

%% So many keys are asked for in a message.
-define(ASKED, 1000).

%% @doc Starts a process.
-spec start(module(), Function :: atom(), Arguments :: [term()], #call{}) -> pid().
start(Module, Function, Arguments, #call{name = Name, called = Called}) ->
    try
        spawn(Module, Function, Arguments)
    catch
        error:system_limit -> cats_failure:fail(system_limit, processes, Name, Called)
    end.

%% @doc Runs the function of a call, and counts that.
-spec run(KeyOrKeys :: term(), cats:table(), #call{}) -> Returned :: term().
run(KeyOrKeys, Table, #call{function = Function}) ->
    Returned = try
                   Function(KeyOrKeys)
               catch
                   Class:Reason:Stack ->
                       count(Table, fetch_failed),
                       erlang:raise(Class, Reason, Stack)
               end,
    count(Table, fetch_made),
    Returned.

%% @doc Waits for these keys. Fails as a flight does, when the time is over, and when a process would wait for itself.
-spec await([flight()], cats:table(), #call{}) -> ends().
await(Flights, Table, Call) ->
    %% All are joined before the first is waited for, as they end in any order.
    Joined = [join(Flight, Leader, Numbers) || {Flight, {Leader, Numbers}} <- maps:to_list(by_process(Flights))],
    try
        Waits = maps:from_list([{Monitor, Wait} || {Monitor, _, Wait} <- Joined]),
        Told = collect([{Monitor, Leader} || {Monitor, Leader, _} <- Joined], Waits, Table, Call),
        maps:from_list([{Flight, {End, Outcomes}} || {Flight, _, End, Outcomes} <- maps:values(Told)])
    after
        [leave(Monitor) || {Monitor, _, _} <- Joined]
    end.

by_process(Flights) ->
    lists:foldl(fun({Flight, Leader, Number}, Known) ->
                        {_, Numbers} = maps:get(Flight, Known, {Leader, []}),
                        Known#{Flight => {Leader, [Number | Numbers]}}
                end,
                #{},
                Flights).

%% @doc What became of a key.
-spec outcome(flight(), ends()) -> term().
outcome({Flight, _Leader, Number}, Ends) ->
    #{Flight := {End, Outcomes}} = Ends,
    maps:get(Number, Outcomes, End).

%% Monitors a flight, and tells it what this process waits for. When it has answered, it will tell how these keys end.
%% Returns the monitor, which is also the alias to which it tells this, and what is known: of how many keys it will
%% tell, how it has ended, and how keys have.
join(Flight, Leader, Numbers) ->
    Monitor = monitor(process, Flight, [{alias, demonitor}]),
    Count = length(Numbers),
    case ask(Flight, Monitor, Count, Numbers) of
        joined -> {Monitor, Leader, {Flight, Count, none, #{}}};
        {ended, Reason} -> {Monitor, Leader, {Flight, 0, Reason, #{}}}
    end.

ask(_Flight, _Monitor, 0, []) ->
    joined;
ask(Flight, Monitor, Count, Numbers) ->
    {Some, Rest} = lists:split(min(?ASKED, Count), Numbers),
    Flight ! ?waits(self(), Monitor, Some),
    receive
        {Monitor, joined} -> ask(Flight, Monitor, max(0, Count - ?ASKED), Rest);
        {'DOWN', Monitor, process, Flight, Reason} -> {ended, Reason}
    end.

%% Nothing comes to the alias any more after this.
leave(Monitor) ->
    demonitor(Monitor, [flush]),
    forget(Monitor).

forget(Monitor) ->
    receive
        {Monitor, _Number, _Outcome} -> forget(Monitor)
    after 0 -> ok
    end.

%% Waits for one flight after the other.
collect([], Waits, _Table, _Call) ->
    Waits;
collect([{Monitor, Leader} | Others], Waits, Table, Call) ->
    case Waits of
        #{Monitor := {_, 0, End, _}} ->
            check(End, Call),
            collect(Others, Waits, Table, Call);
        #{Monitor := {Flight, _, _, Outcomes}} ->
            case note_wait(Flight, Leader, Call) of
                true ->
                    count(Table, fetch_waited),
                    {End, Told} = told(Monitor, Waits, Call),
                    _ = cats_nif:flight_waited(),
                    check(End, Call),
                    collect(Others, Told, Table, Call);
                Circle ->
                    case places(lists:sublist(Circle, ?NAMED), []) of
                        gone -> collect(Others, Waits#{Monitor := {Flight, 0, gone, Outcomes}}, Table, Call);
                        Places -> fail(Places, Call)
                    end
            end
    end.

%% Receives what flights tell, until one has told all. Ends before when one fails, or when the time is over.
told(Monitor, Waits, _Call) when element(2, map_get(Monitor, Waits)) =:= 0 ->
    {none, Waits};
told(Monitor, Waits, #call{deadline = Deadline, retry = Retry} = Call) ->
    receive
        {Teller, Number, Outcome} when is_map_key(Teller, Waits) ->
            {Flight, Left, End, Outcomes} = map_get(Teller, Waits),
            Told = {Flight, max(0, Left - 1), End, Outcomes#{Number => Outcome}},
            told(Monitor, Waits#{Teller := Told}, Call);
        {'DOWN', Teller, process, _, ?failed(_, _, _) = Failed} when is_map_key(Teller, Waits), not Retry ->
            {Failed, Waits};
        {'DOWN', Teller, process, _, Reason} when is_map_key(Teller, Waits) ->
            {Flight, _, _, Outcomes} = map_get(Teller, Waits),
            told(Monitor, Waits#{Teller := {Flight, 0, Reason, Outcomes}}, Call)
    after left(Deadline) -> {timeout, Waits}
    end.

check(?failed(Class, Reason, Stack), #call{retry = false}) -> erlang:raise(Class, Reason, Stack);
check(timeout, #call{name = Name, called = Called}) -> exit({timeout, {cats, Name, Called}});
check(_End, _Call) -> ok.

%% `true', or the processes of a circle, each with the flight that it waits for.
note_wait(Flight, Leader, #call{name = Name, called = Called}) ->
    ?RESULT(cats_nif:flight_wait(Flight, Leader), flight_wait, Name, Called).

%% What the processes of a circle wait for, or `gone' if one of them waits no more.
-spec places([{Waits :: pid(), Flight :: pid()}], [place()]) -> {circle, [place()]} | gone.
places([], Places) ->
    {circle, lists:reverse(Places)};
places([{Waits, Flight} | Circle], Places) ->
    Monitor = monitor(process, Flight),
    Flight ! ?place(self(), Monitor, Waits),
    Answer = receive
                 {Monitor, Place} -> Place;
                 {'DOWN', Monitor, process, Flight, _} -> gone
             end,
    demonitor(Monitor, [flush]),
    case Answer of
        gone -> gone;
        _ -> places(Circle, [Answer | Places])
    end.

%% @doc Ends a flight of some keys. Does nothing if the table is gone.
-spec finish(Flight :: pid(), {cats:table() | undefined, Keys :: [term()]}) -> ok.
finish(Flight, {Table, Keys}) ->
    each(flights_end, Table, Keys, [Flight]).

%% @doc Ends a flight of some keys of which this is the failure, and fails so.
-spec crash(failure(), Flight :: pid(), {cats:table() | undefined, Keys :: [term()]}, #call{}) -> no_return().
crash({Class, Reason, Stack} = Failure, Flight, Places, Call) ->
    remember(Failure, Flight, Places, Call),
    finish(Flight, Places),
    Flight ! ?failed(Class, Reason, Stack),
    erlang:raise(Class, Reason, Stack).

%% Ends the flight of which this is the failure, if the call wants that to be remembered.
-spec remember(failure(), Flight :: pid(), {cats:table() | undefined, Keys :: [term()]}, #call{}) -> ok.
remember(_Failure, _Flight, _Places, #call{negative_ttl = 0}) ->
    ok;
remember(Failure, Flight, {Table, Keys}, #call{negative_ttl = Time}) ->
    each(flights_fail, Table, Keys, [Flight, Failure, Time]).

%% Calls a native function until no keys are left.
each(_Function, _Table, [], _More) ->
    ok;
each(Function, Table, Keys, More) ->
    Outcome = case apply(cats_nif, Function, [Table, Keys | More]) of
                  ?FAILED(_, _) = Failure -> cats_failure:handle(Failure, Function);
                  Rest -> {return, Rest}
              end,
    case Outcome of
        {return, Left} -> each(Function, Table, Left, More);
        {raise, _, _, _} -> ok
    end.

%% @doc Counts what happened.
-spec count(cats:table() | undefined, fetch_made | fetch_failed | fetch_waited | fetch_stale) -> ok.
count(Table, Event) ->
    _ = cats_nif:count_fetch(Table, Event),
    ok.

%% @doc Fails as the function does that was called.
-spec fail(Cause :: term(), #call{}) -> no_return().
fail(Cause, #call{name = Name, called = Called}) -> cats_failure:fail(badarg, Cause, Name, Called).

%% @doc The monotonic time in so many milliseconds.
-spec deadline(Time :: non_neg_integer() | infinity) -> integer() | infinity.
deadline(infinity) -> infinity;
deadline(Time) -> erlang:monotonic_time(millisecond) + Time.

%% @doc How many milliseconds are left until then.
-spec left(integer() | infinity) -> non_neg_integer() | infinity.
left(infinity) -> infinity;
left(Deadline) -> max(0, Deadline - erlang:monotonic_time(millisecond)).
