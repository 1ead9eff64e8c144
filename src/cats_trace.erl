%% @doc A timeline of what happens to tables: which process waited for a lock, how long, and what ran meanwhile.
%%
%% ```
%% {ok, Trace} = cats_trace:start(#{seconds => 5}),
%% ...
%% {ok, #{page := Page, trace := File}} = cats_trace:stop(Trace).
%% '''
%%
%% While a trace is on, rare events of tables are recorded in memory: waits for locks, slow calls, adaptations,
%% reclamation, and what happens to whole tables. Each thread has a ring for its own events. A full ring loses its
%% oldest events, and the result tells how many. Beside them stand what the schedulers did (microstate accounting), and
%% what a system monitor tells.
%%
%% `Page' is a page for a browser that needs no network. `File' is a trace in the Chrome format, for Perfetto's viewer
%% and other tools.
%%
%% With the option `nodes', the trace is of several nodes, in one timeline. They need cats. Their clocks are compared by
%% round trips, and the result tells how much they differ.
%%
%% One trace is on at a time in a node. It ends by {@link stop/1}, after `seconds', or with the process that started it.
%% Until `stop/1', one that has ended keeps what it has recorded.
-module(cats_trace).
-export([start/1, stop/1, stop/2]).

-export_type([events/0, options/0, result/0, trace/0]).

-type trace() :: pid().
%% A trace that was started.

-type events() :: waits | reads | adaptations | calls | memory | tables | schedulers | processes | monitor.
%% What to record:
%%
%% <ul>
%% <li>`waits': waits for locks, and calls that are made again because a lock was held too long.</li>
%% <li>`reads': reads that met a writer and were made again.</li>
%% <li>`adaptations': splits and joins, tables that grow and shrink, numbers of bucket locks.</li>
%% <li>`calls': calls on dirty schedulers, and slices of long calls.</li>
%% <li>`memory': what is retired and reclaimed.</li>
%% <li>`tables': tables that are created, renamed, given away and deleted.</li>
%% <li>`schedulers': the share of time that each scheduler spends in each state.</li>
%% <li>`processes': how many processes and ports run and how many could run, and how many processes wait.</li>
%% <li>`monitor': long garbage collections, long schedules and busy ports.</li>
%% </ul>

-type options() :: #{nodes => [node()], tables => all | [cats:table()], events => [events()], seconds => 1..3600,
                     ring => 16..1000000}.
%% What to trace, and how long:
%%
%% <ul>
%% <li>`nodes': one to ten nodes. The default is this one.</li>
%% <li>`tables': those whose events to show. The default is `all'. With `nodes', they are names, and each node shows
%% those of its tables that have one of them.</li>
%% <li>`events': the default is all kinds.</li>
%% <li>`seconds': the default is 10.</li>
%% <li>`ring': events that a thread keeps, 64 bytes each. The default is 16384.</li>
%% </ul>

-type result() :: #{trace := file:filename_all(), page := file:filename_all(), events := non_neg_integer(),
                    lost := non_neg_integer(), left_out := [events()],
                    nodes => #{node() => down | #{offset := float(), error := float()}}}.
%% What a trace has written:
%%
%% <ul>
%% <li>`trace', `page': the names of the two files.</li>
%% <li>`events', `lost': events in the files, and events of which no ring had room.</li>
%% <li>`left_out': what was wanted, and could not be recorded. Before OTP 28 a node has one system monitor. One that
%% another process has set stays as it is, and `monitor' is left out.</li>
%% <li>`nodes', with the option of that name: how many microseconds the system clock of each node is ahead of that of
%% this one. `error' says how wrong that may be. An event of the node may be as far from its place beside those of this
%% one. A node that could not be asked in the end is `down', and the files are without it.</li>
%% </ul>

-define(EVENTS, [waits, reads, adaptations, calls, memory, tables, schedulers, processes, monitor]).
-define(NODES, 10).

%% @doc Starts a trace. Returns `{error, already_tracing}' while another one is on. Fails with `{badarg, Option}' for an
%% option that is invalid, and for a table that does not exist.
%%
%% With `nodes', the reason of an error names the first node that cannot be traced. It is `down' if it cannot be
%% reached, and `no_cats' if it has no cats, or another version. Then no node is traced.
%%
%% Tables in use become slower only where they record.
-spec start(options()) ->
          {ok, trace()} | {error, already_tracing | {node(), already_tracing | down | no_cats | term()}}.
start(Options) ->
    is_map(Options) orelse cats_options:refuse(trace, Options),
    Here = not is_map_key(nodes, Options),
    maps:foreach(fun(Key, Value) -> valid(Key, Value, Here) orelse cats_options:refuse(trace, {Key, Value}) end,
                 Options),
    Defaults = #{tables => all, events => ?EVENTS, seconds => 10, ring => 16384},
    case maps:merge(Defaults, Options) of
        #{nodes := _} = All -> cats_trace_nodes:start(All);
        All -> cats_trace_recorder:start(self(), All)
    end.

%% @doc Ends a trace, and writes its files in the current directory. Their names tell the time.
-spec stop(trace()) -> {ok, result()} | {error, Reason :: term()}.
stop(Trace) ->
    {{Year, Month, Day}, {Hour, Minute, Second}} = calendar:local_time(),
    stop(Trace,
         io_lib:format("cats-trace-~4b~2..0b~2..0b-~2..0b~2..0b~2..0b", [Year, Month, Day, Hour, Minute, Second])).

%% @doc Ends a trace, and writes its files, `Name' with `.json' and with `.html' behind it. Returns `{error, no_trace}'
%% if the trace was stopped before, or its starter has ended. If a file cannot be written, returns the error, and `stop'
%% can be called again.
-spec stop(trace(), Name :: file:name_all()) -> {ok, result()} | {error, Reason :: term()}.
stop(Trace, Name) when is_pid(Trace) ->
    case unicode:characters_to_binary(Name) of
        Binary when is_binary(Binary) -> cats_trace_recorder:stop(Trace, Binary);
        _ -> error({badarg, Name})
    end.

valid(nodes, Nodes, _) ->
    is_list(Nodes) andalso lists:all(fun is_atom/1, Nodes) andalso Nodes =/= [] andalso length(Nodes) =< ?NODES
        andalso length(lists:usort(Nodes)) =:= length(Nodes);
valid(tables, all, _) -> true;
valid(tables, Tables, true) -> is_list(Tables) andalso lists:all(fun is_table/1, Tables);
valid(tables, Tables, false) -> is_list(Tables) andalso lists:all(fun is_atom/1, Tables);
valid(events, Events, _) -> is_list(Events) andalso Events -- ?EVENTS =:= [];
valid(seconds, Seconds, _) -> is_integer(Seconds) andalso Seconds >= 1 andalso Seconds =< 3600;
valid(ring, Ring, _) -> is_integer(Ring) andalso Ring >= 16 andalso Ring =< 1000000;
valid(_Key, _Value, _) -> false.

is_table(Table) ->
    try
        cats:info(Table, id) =/= undefined
    catch
        error:badarg -> false
    end.
