%% The process of a trace of several nodes. Each of them has a {@link cats_trace_recorder}, which ends with it.
%%
%% A node's events are timed by its own clock. Round trips tell how much the clocks of two nodes differ, as in the
%% network time protocol (Mills, "Internet time synchronization", 1991). The other node tells its time between two looks
%% at the clock of this one. Of several round trips the shortest counts, and half of it bounds the error. That is done
%% at the start and at the end, by clocks that nobody sets. What the difference changes meanwhile is added to the bound.
-module(cats_trace_nodes).
-behaviour(gen_server).
-export([start/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

%% Milliseconds until a node must have begun.
-define(PATIENCE, 10000).
%% Round trips of which the shortest counts.
-define(ROUNDS, 20).

%% @private
-spec start(map()) -> {ok, pid()} | {error, {node(), term()}}.
start(Options) ->
    case gen_server:start(?MODULE, {self(), Options}, []) of
        {ok, Trace} -> {ok, Trace};
        {error, {shutdown, Reason}} -> {error, Reason}
    end.

%% @private
-spec init({Starter :: pid(), map()}) -> {ok, map()} | {stop, {shutdown, {node(), term()}}}.
init({Starter, #{nodes := Nodes} = Options}) ->
    monitor(process, Starter),
    Began = erpc:multicall(Nodes, cats_trace_recorder, start, [self(), maps:remove(nodes, Options)], ?PATIENCE),
    case [{Node, Reason} || {Node, Result} <- lists:zip(Nodes, Began), Reason <- failed(Result)] of
        [] ->
            Recorders = [{Node, Recorder} || {Node, {ok, {ok, Recorder}}} <- lists:zip(Nodes, Began)],
            {ok, #{recorders => Recorders, clocks => clocks(Recorders), parts => none}};
        %% The recorders of the others end with this process.
        [First | _] ->
            {stop, {shutdown, First}}
    end.

failed({ok, {ok, _}}) -> [];
failed({ok, {error, Reason}}) -> [Reason];
failed({error, {erpc, Reason}}) when Reason =:= noconnection; Reason =:= timeout -> [down];
failed({error, {exception, undef, [{cats_trace_recorder, start, _, _} | _]}}) -> [no_cats];
failed({_Class, Reason}) -> [Reason].

%% @private
-spec handle_call({stop, binary()}, gen_server:from(), map()) ->
          {stop, normal, {ok, cats_trace:result()}, map()} | {reply, {error, term()}, map()}.
handle_call({stop, Name}, _From, State) ->
    #{parts := {Parts, About, Nodes}} = Collected = collected(State),
    case cats_trace_file:write(Name, Parts, About) of
        {ok, Result} -> {stop, normal, {ok, Result#{nodes => Nodes}}, Collected};
        {error, Reason} -> {reply, {error, Reason}, Collected}
    end.

collected(#{parts := none, recorders := Recorders, clocks := Before} = State) ->
    Began = asked(fun(_Node, Recorder) -> cats_trace_recorder:finish(Recorder) end, Recorders),
    After = clocks(Recorders),
    %% When each node began, by the clock of this one; how far its system clock is ahead; how wrong both may be.
    Known = [{Node, Recorder, Time - Ahead, System / 1000, (Half + abs(Ahead - Earlier) + Wrong) / 1000}
             || {Node, Recorder} <- Recorders,
                #{Node := {Time, Wrong}} <- [Began], #{Node := {Half, Ahead, System}} <- [After],
                #{Node := {_, Earlier, _}} <- [Before]],
    First = lists:min([infinity | [Time || {_, _, Time, _, _} <- Known]]),
    Found = [{Node, Number, Part, Shift, Offset, Error}
             || {Number, {Node, Recorder, Time, Offset, Error}} <- lists:enumerate(Known),
                Shift <- [(Time - First) / 1000],
                #{Node := Part} <- [asked(fun(_, One) -> part(One, Number, Shift, Offset, Error, Node) end,
                                          [{Node, Recorder}])]],
    Down = [Node || {Node, _} <- Recorders, not lists:keymember(Node, 1, Found)],
    Nodes = maps:from_list([{Node, down} || Node <- Down]
                           ++ [{Node, #{offset => Offset, error => Error}} || {Node, _, _, _, Offset, Error} <- Found]),
    State#{parts := {[Part || {_, _, Part, _, _, _} <- Found], about(Found, Down), Nodes}};
collected(State) ->
    State.

part(Recorder, Number, Shift, Offset, Error, Node) ->
    Note = [io_lib:format(", clock ~s", [difference(Offset, Error)]) || Node =/= node()],
    cats_trace_recorder:part(Recorder, Number, Shift, lists:flatten(Note)).

%% Microseconds as a text.
difference(Offset, Error) ->
    io_lib:format("~s~.3f ms \x{b1} ~.3f", [[$+ || Offset >= 0], Offset / 1000, Error / 1000]).

%% What the nodes say of themselves, together.
about(Found, Down) ->
    Each = [Of#{number => Number, begins => Shift, offset => Offset, error => Error}
            || {_, Number, #{about := Of}, Shift, Offset, Error} <- Found],
    All = fun(Key) -> [maps:get(Key, Of) || Of <- Each] end,
    Texts = fun(Key) -> lists:join(", ", lists:usort(All(Key))) end,
    Rows = [Of#{left_out := {list, [atom_to_list(One) || One <- LeftOut]}} || #{left_out := LeftOut} = Of <- Each],
    #{node => Texts(node), otp => Texts(otp), nodes => {list, Rows},
      down => {list, [atom_to_list(Node) || Node <- Down]},
      microseconds => lists:max([0.0 | [Begins + Length || #{begins := Begins, microseconds := Length} <- Each]]),
      lost => lists:sum(All(lost)), left_out => lists:usort(lists:append(All(left_out)))}.

%%------------------------------------------------------------------------------------------------------------
%% The other nodes

%% What each node answers. One that is down, or whose recorder is, has no answer.
asked(Ask, Recorders) ->
    maps:from_list([{Node, Answer} || {Node, Recorder} <- Recorders, Answer <- answer(Ask, Node, Recorder)]).

answer(Ask, Node, Recorder) ->
    try
        [Ask(Node, Recorder)]
    catch
        exit:{_Reason, {gen_server, call, _}} -> []
    end.

%% Half of the shortest round trip, and by how much the two clocks of each node are ahead of those of this one, in
%% nanoseconds.
clocks(Recorders) -> asked(fun clock/2, Recorders).

clock(Node, _Recorder) when Node =:= node() -> {0, 0, 0};
clock(_Node, Recorder) -> lists:min([round_trip(Recorder) || _ <- lists:seq(1, ?ROUNDS)]).

round_trip(Recorder) ->
    {Before, SystemBefore} = {os:perf_counter(nanosecond), os:system_time(nanosecond)},
    {Time, System} = cats_trace_recorder:clock(Recorder),
    {After, SystemAfter} = {os:perf_counter(nanosecond), os:system_time(nanosecond)},
    {(After - Before) div 2, Time - (Before + After) div 2, System - (SystemBefore + SystemAfter) div 2}.

%% @private
-spec handle_cast(term(), map()) -> {noreply, map()}.
handle_cast(_, State) -> {noreply, State}.

%% @private
-spec handle_info(term(), map()) -> {noreply, map()} | {stop, normal, map()}.
handle_info({'DOWN', _, process, _, _}, State) -> {stop, normal, State};
handle_info(_, State) -> {noreply, State}.
