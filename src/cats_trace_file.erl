%% The files of a trace: the Chrome trace format, and a page with it inside.
%%
%% The format is the "Trace Event Format" of Chromium, which Perfetto reads, as a JSON object. Each thread is a track.
%% What takes time is a complete event (`X'), which lies within that around it. The rest are instants (`i') and counters
%% (`C'). Times are microseconds.
-module(cats_trace_file).
-export([write/2, write/3, part/4, events/1]).

-export_type([part/0]).

-type part() :: #{
    %% The events as JSON, each with its time, in the order of time. Metadata come first, with the time 0.
    lines := [{number(), binary()}],
    %% Without metadata and counters.
    number := non_neg_integer(),
    %% What the trace says of itself.
    about := map()}.
%% The trace of one node.

%% The order of tracks: those of schedulers begin at these numbers.
-define(TRACKS, [{scheduler, 0, "scheduler "}, {dirty_cpu_scheduler, 2000, "dirty CPU "},
                 {dirty_io_scheduler, 4000, "dirty IO "}]).
-define(OTHERS, 6000).
-define(MONITOR, 8000).
-define(PROCESSES, 0).

%% @private
%% @doc Writes the two files of a trace of this node.
-spec write(binary(), cats_trace_recorder:collected()) ->
          {ok, cats_trace:result()} | {error, {file:name_all(), term()}}.
write(Name, #{left_out := LeftOut} = Collected) ->
    #{about := About} = Part = part(Collected, 1, 0.0, ""),
    write(Name, [Part], About#{left_out => LeftOut}).

%% @private
%% @doc The events of one node of several, which has this number and began so many microseconds after the first one.
-spec part(cats_trace_recorder:collected(), pos_integer(), float(), Note :: string()) -> part().
part(Collected, Number, Shift, Note) ->
    {Events, About} = events(Collected),
    Special = binary:compile_pattern([<<Byte>> || Byte <- [$", $\\ | lists:seq(0, 31)]]),
    Lines = [{Time, iolist_to_binary(json(Event, Special))}
             || Any <- Events, #{ts := Time} = Event <- [shifted(Any, Number, Shift, Note)]],
    #{lines => Lines, about => About,
      number => length([Event || #{ph := Phase} = Event <- Events, Phase =/= "M", Phase =/= "C"])}.

shifted(#{ph := "M", name := "process_name", args := #{name := Name}} = Event, Number, _Shift, Note) ->
    Event#{pid => Number, args => #{name => [Name, Note]}};
shifted(#{ph := "M"} = Event, Number, _Shift, _Note) ->
    Event#{pid => Number};
shifted(#{ts := Time} = Event, Number, Shift, _Note) ->
    Event#{pid => Number, ts => Time + Shift}.

%% @private
%% @doc Writes the two files of a trace of one or several nodes. What it says of itself has the events that were left
%% out as atoms.
-spec write(binary(), [part()], About :: map()) -> {ok, cats_trace:result()} | {error, {file:name_all(), term()}}.
write(Name, Parts, #{left_out := LeftOut, lost := Lost} = About) ->
    Lines = lists:foldl(fun(#{lines := Some}, All) -> lists:keymerge(1, All, Some) end, [], Parts),
    Shown = About#{left_out := {list, [atom_to_list(One) || One <- LeftOut]}},
    Text = iolist_to_binary(["{\"displayTimeUnit\":\"ns\",\"otherData\":", cats_web_data:json(Shown),
                             ",\"traceEvents\":[\n", lists:join(",\n", [Line || {_, Line} <- Lines]), "\n]}\n"]),
    [Trace, Page] = [<<Name/binary, Extension/binary>> || Extension <- [<<".json">>, <<".html">>]],
    case write_with_page(Trace, Text, Page) of
        ok ->
            Number = lists:sum([Number || #{number := Number} <- Parts]),
            {ok, #{trace => Trace, page => Page, events => Number, lost => Lost, left_out => lists:usort(LeftOut)}};
        Failed ->
            Failed
    end.

write_with_page(Trace, Text, Page) ->
    case cats_page:trace(Text) of
        {ok, Html} -> cats_whole_files:write([{Trace, Text}, {Page, Html}]);
        Failed -> Failed
    end.

%% There are many events, and few of their texts have a character that JSON escapes.
json(Map, Special) when is_map(Map) ->
    [${, lists:join($,, [[$", atom_to_binary(Key), "\":", json(Value, Special)] || {Key, Value} <- maps:to_list(Map)]),
     $}];
json(Number, _) when is_float(Number) ->
    float_to_binary(Number, [{decimals, 3}, compact]);
json(Value, _) when is_integer(Value); is_atom(Value) ->
    cats_web_data:json(Value);
json(Text, Special) ->
    Bytes = unicode:characters_to_binary(Text),
    case binary:match(Bytes, Special) of
        nomatch -> [$", Bytes, $"];
        _ -> cats_web_data:json(Bytes)
    end.

%% @private
%% @doc The events of the format, and what the trace says of itself.
-spec events(cats_trace_recorder:collected()) -> {[map()], map()}.
events(#{length := Length, threads := Threads, lost := Lost, samples := Samples, counts := Counts,
         told := Told, left_out := LeftOut} = Collected) ->
    Tracks = tracks(Threads, Samples),
    Tables = tables(Collected),
    Numbered = [{maps:get(track(Name), Tracks), told_apart(Events, Tables, 1000 * Length)}
                || {Name, Events} <- Threads],
    Busy = intervals(Numbered),
    Titles = maps:from_list([{Number, title(Track)} || {Track, Number} <- maps:to_list(Tracks)]),
    Processes = names_of_processes(),
    Recorded = [chrome(Event, Number, Tables, Busy, Titles, Processes) || {Number, Events} <- Numbered, Event <- Events,
                                                                          is_wanted(Event, Tables)],
    Events = lists:sort(fun(One, Other) -> place(One) =< place(Other) end,
                        Recorded ++ accounting(Samples, Tracks) ++ counted(Counts)
                        ++ [monitored(One, Processes) || One <- Told]),
    About = #{node => atom_to_list(node()), otp => erlang:system_info(otp_release), microseconds => Length,
              lost => Lost, left_out => LeftOut},
    {names(Titles, Counts, Told) ++ Events, About}.

%% In the order of time, and what lies within another event behind it.
place(#{ts := Time} = Event) -> {Time, -maps:get(dur, Event, 0)}.

%%------------------------------------------------------------------------------------------------------------
%% Tracks

%% The number of each track: that of the scheduler of this kind and number, or that of another thread.
tracks(Threads, Samples) ->
    Sampled = [{Type, Id} || {_, Sample} <- lists:sublist(Samples, 1), #{type := Type, id := Id} <- Sample,
                             Type =:= scheduler orelse Type =:= dirty_cpu_scheduler],
    Found = lists:usort(Sampled ++ [track(Name) || {Name, _} <- Threads]),
    Others = lists:enumerate(?OTHERS, [Name || {other, Name} <- Found]),
    maps:from_list([{{Type, Id}, Base + Id} || {Type, Id} <- Found, {Kind, Base, _} <- ?TRACKS, Kind =:= Type]
                   ++ [{{other, Name}, Number} || {Number, Name} <- Others]).

%% The scheduler by the name of its thread, which the system cuts. Names are others from OTP 26 on.
track(Name) ->
    case re:run(Name, "^(?:(\\d+)_(scheduler|dirty_cpu|dirty_io)|erts_(sched|dcpus|dios)_(\\d+)$)",
                [{capture, all_but_first, binary}]) of
        {match, [Number, Type]} -> {type(Type), binary_to_integer(Number)};
        {match, [_, _, Type, Number]} -> {type(Type), binary_to_integer(Number)};
        nomatch -> {other, Name}
    end.

type(<<"scheduler">>) -> scheduler;
type(<<"sched">>) -> scheduler;
type(<<"dirty_cpu">>) -> dirty_cpu_scheduler;
type(<<"dcpus">>) -> dirty_cpu_scheduler;
type(_) -> dirty_io_scheduler.

title({other, <<>>}) -> "another thread";
title({other, Name}) -> Name;
title({Type, Id}) ->
    {Type, _, Text} = lists:keyfind(Type, 1, ?TRACKS),
    Text ++ integer_to_list(Id).

names(Threads, Counts, Told) ->
    Meta = fun(Name, Number, Arguments) ->
                   #{ph => "M", name => Name, pid => 1, tid => Number, ts => 0, args => Arguments}
           end,
    Titles = maps:to_list(Threads) ++ [{?PROCESSES, "processes"} || Counts =/= []]
        ++ [{?MONITOR, "system monitor"} || Told =/= []],
    [Meta("process_name", 0, #{name => ["cats on ", atom_to_list(node())]})
     | lists:append([[Meta("thread_name", Number, #{name => Title}),
                      Meta("thread_sort_index", Number, #{sort_index => Number})]
                     || {Number, Title} <- lists:sort(Titles)])].

%%------------------------------------------------------------------------------------------------------------
%% Tables

%% What events know tables by: serial numbers, and the address of contents from a time on. The names are the last ones.
tables(#{known := Known, threads := Threads, wanted := Wanted}) ->
    All = lists:keysort(2, lists:append([Events || {_, Events} <- Threads])),
    Contents = [{Address, {-1, Serial}} || {Serial, Address, _} <- Known, Address =/= 0]
        ++ [{Address, {Time, Serial}} || {contents, Time, _, Serial, _, Address, _} <- All],
    Names = maps:from_list([{Serial, Name} || {Serial, _, Name} <- Known]
                           ++ [{Serial, Name}
                               || {Kind, _, _, Serial, _, Name, _} <- All, Kind =:= created orelse Kind =:= renamed]),
    %% Tables of the same name are told apart by a number.
    Same = maps:fold(fun(Serial, Name, Found) ->
                             maps:update_with(Name, fun(One) -> [Serial | One] end, [Serial], Found)
                     end, #{}, Names),
    Texts = maps:from_list(lists:append([texts(Name, lists:sort(Serials)) || {Name, Serials} <- maps:to_list(Same)])),
    Since = lists:foldr(fun({Address, One}, Map) ->
                                maps:update_with(Address, fun(Later) -> [One | Later] end, [One], Map)
                        end,
                        #{}, Contents),
    #{names => Texts, wanted => set(Wanted), contents => maps:map(fun(_, Times) -> list_to_tuple(Times) end, Since)}.

set(all) -> all;
set(Serials) -> maps:from_keys(Serials, true).

texts(Name, [Serial]) -> [{Serial, text(Name)}];
texts(Name, Serials) ->
    [{Serial, [text(Name), " (", integer_to_list(Number), ")"]} || {Number, Serial} <- lists:enumerate(Serials)].

%% The table of an event: a serial number, or 0.
table({Kind, Time, _, Subject, _, _, _}, #{contents := Contents}) ->
    case lists:member(Kind, [wait, read_again, split, join, grow, shrink, more_locks, fewer_locks, retire_contents,
                             reclaim_contents]) of
        false ->
            Subject;
        true ->
            case latest(Time, maps:get(Subject, Contents, {})) of
                {_, Serial} -> Serial;
                none -> 0
            end
    end.

%% Not every lock knows its table. No table has a name in brackets.
name(0, _) -> "(table not known)";
name(Serial, #{names := Names}) -> maps:get(Serial, Names, "(a deleted table)").

is_wanted({_Kind, _, _, Serial, _, _, _}, #{wanted := Wanted}) -> Wanted =:= all orelse is_map_key(Serial, Wanted).

%%------------------------------------------------------------------------------------------------------------
%% Events of one thread

%% The events that are shown, each with the serial number of its table. A call that has not ended lasts until the end.
told_apart(Events, Tables, End) ->
    {Mended, _} = lists:foldr(fun(Event, Behind) -> mended(Event, Behind, trunc(End)) end, {[], false},
                              [setelement(4, Event, table(Event, Tables)) || Event <- Events]),
    Mended.

%% Puts an event before those behind it, of which the second element tells whether a call has ended.
mended({contents, _, _, _, _, _, _}, Behind, _End) -> Behind;
mended({call_begin, _, _, _, _, _, _}, {Events, true}, _End) -> {Events, true};
mended({call_begin, Time, _, Table, Process, Name, _}, {Events, false}, End) ->
    {[{call, End, End - Time, Table, Process, Name, unfinished} | Events], false};
mended(Event, {Events, Ended}, _End) -> {[Event | Events], Ended orelse element(1, Event) =:= call}.

%% When each thread ran slow calls and slices on each table, in order.
intervals(Numbered) ->
    Found = [{Table, {Number, Kind}, {Time - Duration, Time, Event}}
             || {Number, Events} <- Numbered, {Kind, Time, Duration, Table, _, _, _} = Event <- Events,
                (Kind =:= call orelse Kind =:= slice) andalso Table =/= 0],
    Grouped = lists:foldl(fun({Table, Line, One}, Map) ->
                                  Lines = maps:get(Table, Map, #{}),
                                  Map#{Table => Lines#{Line => [One | maps:get(Line, Lines, [])]}}
                          end, #{}, Found),
    maps:map(fun(_, Lines) ->
                     [{Number, list_to_tuple(lists:sort(Ones))}
                      || {{Number, _Kind}, Ones} <- lists:sort(maps:to_list(Lines))]
             end,
             Grouped).

%% What ran on another thread on this table in this time: the latest of the first thread that has any.
meanwhile(Table, Number, From, To, Busy, Titles) ->
    Found = [{Other, Event} || {Other, Ones} <- maps:get(Table, Busy, []), Other =/= Number,
                               {_, End, Event} <- [latest(To, Ones)], End >= From],
    case Found of
        [] -> #{};
        [{Other, Event} | _] -> #{meanwhile => [what(Event), " on ", maps:get(Other, Titles)]}
    end.

%% The last one of those in order that begins at a time or before.
latest(_To, {}) -> none;
latest(To, Ones) -> latest(To, Ones, 1, tuple_size(Ones)).

latest(To, Ones, First, Last) when First < Last ->
    Middle = (First + Last + 1) div 2,
    case element(1, element(Middle, Ones)) =< To of
        true -> latest(To, Ones, Middle, Last);
        false -> latest(To, Ones, First, Middle - 1)
    end;
latest(To, Ones, First, _) ->
    case element(First, Ones) of
        One when element(1, One) =< To -> One;
        _ -> none
    end.

what({call, _, _, _, _, Name, _}) -> text(Name);
what({slice, _, _, _, _, _, 0}) -> "slice";
what({slice, _, _, _, _, _, _}) -> "slice".

chrome({Kind, Time, Duration, Serial, Process, First, Second} = Event, Number, Tables, Busy, Titles, Processes) ->
    Table = name(Serial, Tables),
    {Category, Name, Arguments} =
        case Event of
            {wait, _, _, _, _, _, _} ->
                {"wait", ["wait ", Table],
                 maps:merge(#{got => Second =:= 1, place => ["0x", integer_to_list(First, 16)]},
                            meanwhile(Serial, Number, Time - Duration, Time, Busy, Titles))};
            {busy, _, _, _, _, _, _} -> {"busy", "called again", #{}};
            {read_again, _, _, _, _, _, _} -> {"read", "read again", #{}};
            {call, _, _, _, _, _, unfinished} -> {"call", text(First), #{unfinished => true}};
            {call, _, _, _, _, _, _} -> {"call", text(First), #{returned => Second =:= 1}};
            {slice, _, _, _, _, 1, _} -> {"slice", "long slice", #{}};
            {slice, _, _, _, _, _, _} -> {"slice", "slice", #{}};
            {split, _, _, _, _, _, _} -> {"adaptation", "split", #{base_nodes => First}};
            {join, _, _, _, _, _, _} -> {"adaptation", "join", #{base_nodes => First}};
            {grow, _, _, _, _, _, _} -> {"adaptation", "grow", #{buckets => Second}};
            {shrink, _, _, _, _, _, _} -> {"adaptation", "shrink", #{buckets => Second}};
            {more_locks, _, _, _, _, _, _} -> {"adaptation", "more locks", #{locks => Second}};
            {fewer_locks, _, _, _, _, _, _} -> {"adaptation", "fewer locks", #{locks => Second}};
            {reclaim_contents, _, _, _, _, _, _} -> {"memory", "reclaim contents", #{}};
            {_, _, _, _, _, _, _} when Kind =:= retire; Kind =:= reclaim ->
                {"memory", atom_to_list(Kind), #{objects => First, bytes => Second}};
            {retire_contents, _, _, _, _, _, _} -> {"memory", "retire contents", #{objects => First, bytes => Second}};
            {given, _, _, _, _, _, _} ->
                {"table", "given", #{from => process(First, Processes), to => process(Second, Processes)}};
            {created, _, _, _, _, _, _} -> {"table", "created", #{}};
            {renamed, _, _, _, _, _, _} -> {"table", "renamed", #{}};
            {deleted, _, _, _, _, _, _} -> {"table", "deleted", #{}}
        end,
    Whose = maps:from_list([{table, Table} || Serial =/= 0 orelse Kind =:= wait]
                           ++ [{process, process(Process, Processes)} || is_pid(Process)]),
    About = #{name => Name, cat => Category, pid => 1, tid => Number, args => maps:merge(Arguments, Whose)},
    case lists:member(Kind, [wait, call, slice]) of
        %% What began before the trace is shown from its start on.
        true -> From = max(0, Time - Duration), About#{ph => "X", ts => From / 1000, dur => (Time - From) / 1000};
        false -> About#{ph => "i", s => "t", ts => Time / 1000}
    end.

%%------------------------------------------------------------------------------------------------------------
%% What the VM tells

%% The share of each state in percent, from one sample to the next.
accounting([{Before, One} | [{Time, Other} | _] = Samples], Tracks) ->
    Earlier = maps:from_list([{{Type, Id}, Counters} || #{type := Type, id := Id, counters := Counters} <- One]),
    Counters =
        [#{ph => "C", name => title({Type, Id}), cat => "scheduler", pid => 1, tid => Number, ts => max(0.0, Before),
           dur => Time - max(0.0, Before), args => Shares}
         || #{type := Type, id := Id, counters := Counters} <- Other, {ok, Number} <- [maps:find({Type, Id}, Tracks)],
            Shares <- [shares(Counters, maps:get({Type, Id}, Earlier, Counters))], Shares =/= #{}],
    Counters ++ accounting(Samples, Tracks);
accounting(_, _Tracks) ->
    [].

counted(Counts) ->
    [#{ph => "C", name => "processes", cat => "processes", pid => 1, tid => ?PROCESSES, ts => max(0.0, Time),
       args => #{running => Running, runnable => Runnable, waiting => Waiting}}
     || {Time, Running, Runnable, Waiting} <- Counts].

shares(Counters, Before) ->
    Differences = maps:map(fun(State, Value) -> max(0, Value - maps:get(State, Before, Value)) end, Counters),
    case lists:sum(maps:values(Differences)) of
        0 -> #{};
        Sum -> maps:map(fun(_, Value) -> 100 * Value / Sum end, Differences)
    end.

monitored({Time, Who, What, How}, Processes) ->
    Facts = case What of
                busy_port -> #{port => text(How)};
                _ -> maps:from_list([{Key, text(Value)} || {Key, Value} <- How])
            end,
    Name = string:replace(atom_to_list(What), "_", " ", all),
    #{ph => "i", s => "t", name => Name, cat => "monitor", pid => 1, tid => ?MONITOR, ts => max(0.0, Time),
      args => Facts#{process => process(Who, Processes)}}.

%%------------------------------------------------------------------------------------------------------------
%% Texts

%% The names of processes. They are looked up by name: a process that is asked for its name answers when it runs, which
%% may be late.
names_of_processes() -> maps:from_list([{whereis(Name), Name} || Name <- registered()]).

process(undefined, _) -> "nobody";
process(Port, _) when is_port(Port) -> erlang:port_to_list(Port);
process(Pid, Names) when is_map_key(Pid, Names) -> [text(maps:get(Pid, Names)), " ", pid_to_list(Pid)];
process(Pid, _) -> pid_to_list(Pid).

text(Term) -> io_lib:format("~tp", [Term]).
