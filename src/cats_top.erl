%% @doc The busiest tables of a node, as a list on the terminal that is refreshed: `cats_top:start()' in a shell.
%%
%% Each line has a table's size and memory. The other columns tell what happened in each second since the last refresh.
%% These are the growth in objects, waits for locks and their microseconds, repeated reads, and calls made again.
%% Operations come last, and those that went over many objects. They are counted for tables with option `{stats, true}'
%% only, see {@link cats:stats/1}.
%%
%% A letter and Enter sort by another column: `m' by memory, `s' by size, `g' by growth, `w' by waits. `r' sorts by
%% repeated reads, `b' by calls made again, `o' by operations, `c' by scans. `q' and Enter end it.
-module(cats_top).
-export([start/0, start/1]).

-export_type([options/0]).

-type options() :: #{node => node(),
                     sort => memory | size | growth | waits | reads_repeated | busy | operations | scans,
                     interval => pos_integer(), lines => pos_integer(), rounds => pos_integer() | infinity}.
%% What to show:
%%
%% <ul>
%% <li>`node': whose tables. That node needs `cats', and is asked through {@link erpc:call/4}. The default is this
%%     one.</li>
%% <li>`sort': the column to sort by. The default is `waits'.</li>
%% <li>`interval': milliseconds between two lists. The default is 2000.</li>
%% <li>`lines': the most tables in a list. The default is what fits the terminal.</li>
%% <li>`rounds': ends after so many lists, and reads no keys. The default is `infinity'.</li>
%% </ul>

-define(COLUMNS, [{$m, memory}, {$s, size}, {$g, growth}, {$w, waits}, {$r, reads_repeated}, {$b, busy},
                  {$o, operations}, {$c, scans}]).

%% @doc The same as {@link start/1} without options.
-spec start() -> ok.
start() ->
    start(#{}).

%% @doc Shows the list until `q' and Enter are typed. Fails with `{badarg, Option}' for an invalid option, and as {@link
%% erpc:call/4} when the node cannot be asked.
-spec start(options()) -> ok.
start(Options) ->
    is_map(Options) orelse cats_options:refuse(top, Options),
    maps:foreach(fun check/2, Options),
    State = maps:merge(#{node => node(), sort => waits, interval => 2000, lines => lines(), rounds => infinity},
                       Options),
    Reader = reader(State),
    try
        rounds(State, rows(State))
    after
        unlink(Reader),
        exit(Reader, kill)
    end.

check(node, Node) when is_atom(Node) -> ok;
check(interval, Interval) when is_integer(Interval), Interval > 0 -> ok;
check(lines, Lines) when is_integer(Lines), Lines > 0 -> ok;
check(rounds, Rounds) when Rounds =:= infinity; is_integer(Rounds), Rounds > 0 -> ok;
check(sort, Sort) -> lists:keymember(Sort, 2, ?COLUMNS) orelse cats_options:refuse(top, {sort, Sort});
check(Key, Value) -> cats_options:refuse(top, {Key, Value}).

%% A head, and the line that the user types on.
lines() ->
    case io:rows() of
        {ok, Rows} when Rows > 6 -> Rows - 5;
        _ -> 20
    end.

%% Sends the lines that are typed.
reader(#{rounds := infinity}) ->
    Self = self(),
    spawn_link(fun() -> read(Self) end);
reader(_State) ->
    spawn_link(fun() -> timer:sleep(infinity) end).

read(To) ->
    case io:get_line("") of
        Line when is_list(Line); is_binary(Line) ->
            To ! {?MODULE, unicode:characters_to_list(Line)},
            read(To);
        _ ->
            To ! {?MODULE, "q"}
    end.

%% All rows, as a table that is quiet now may be the busiest in the next round.
rows(#{node := Node}) ->
    Rows = cats_remote:call(Node, cats_stats, rows, [memory, 1000000]),
    maps:from_list([{Id, Row} || #{id := Id} = Row <- Rows]).

rounds(State, Rows) ->
    #{interval := Interval} = State,
    wait(State, Rows, erlang:monotonic_time(millisecond) + Interval).

wait(State, Rows, Until) ->
    receive
        {?MODULE, [$q | _]} ->
            ok;
        {?MODULE, [Key | _]} ->
            Sort = proplists:get_value(Key, ?COLUMNS, maps:get(sort, State)),
            wait(State#{sort := Sort}, Rows, Until)
    after max(0, Until - erlang:monotonic_time(millisecond)) ->
            Now = rows(State),
            show(State, Rows, Now),
            case State of
                #{rounds := 1} -> ok;
                #{rounds := Rounds} when is_integer(Rounds) -> rounds(State#{rounds := Rounds - 1}, Now);
                #{} -> rounds(State, Now)
            end
    end.

show(#{node := Node, sort := Sort, lines := Lines}, Before, Now) ->
    Rates = [rates(Row, maps:get(Id, Before, Row)) || {Id, Row} <- maps:to_list(Now)],
    Sorted = lists:sublist(lists:sort(fun(A, B) -> rank(Sort, A) =< rank(Sort, B) end, Rates), Lines),
    Head = io_lib:format("~ts: ~b table~s, ~ts, by ~s. m s g w r b o c: sort, q: end",
                         [Node, map_size(Now), ["s" || map_size(Now) =/= 1], bytes(total(Now)), Sort]),
    Titles = ["table", "type", "size", "grow/s", "memory", "waits/s", "us/s", "reads/s", "busy/s",
              "oper/s", "scans/s", "hits"],
    io:put_chars([clear(), Head, $\n, line(Titles), $\n, [[line(fields(Row)), $\n] || Row <- Sorted]]).

%% A terminal begins anew, and a file goes on.
clear() ->
    case io:columns() of
        {ok, _} -> "\e[H\e[2J";
        _ -> ""
    end.

total(Rows) ->
    lists:sum([Bytes || #{stats := #{memory := Bytes}} <- maps:values(Rows)]).

%% What happened in a second, in place of what has happened.
rates(#{stats := Stats} = Row, #{stats := Before}) ->
    #{time := Microseconds, size := Growth} = Delta = cats:stats_delta(Before, Stats),
    Counts = Delta#{growth => Growth},
    Row#{rates => maps:map(fun(_, Number) when is_integer(Number) -> Number * 1.0e6 / max(1, Microseconds);
                              (_, Classes) -> Classes
                           end, Counts)}.

rank(Sort, #{stats := Stats, table := Table}) when Sort =:= memory; Sort =:= size -> {-maps:get(Sort, Stats), Table};
rank(Sort, #{rates := Rates, table := Table, stats := #{memory := Memory}}) ->
    {-maps:get(Sort, Rates, -1), -Memory, Table}.

fields(#{table := Table, name := Name, type := Type, stats := #{size := Size, memory := Memory}, rates := Rates}) ->
    #{growth := Growth, waits := Waits, wait_time := Time, reads_repeated := Reads, busy := Busy} = Rates,
    Counted = case Rates of
                  #{operations := Operations, scans := Scans, hits := Hits, misses := Misses} ->
                      [rate(Operations), rate(Scans), share(Hits, Hits + Misses)];
                  #{} ->
                      ["-", "-", "-"]
              end,
    [title(Table, Name), kind(Type), integer_to_list(Size), rate(Growth), bytes(Memory)
    | [rate(Rate) || Rate <- [Waits, Time, Reads, Busy]]] ++ Counted.

%% A table without a name of its own is told from others by the end of its reference.
title(Name, Name) -> io_lib:format("~tp", [Name]);
title(Table, Name) ->
    [_, _, _, Last] = string:lexemes(cats_stats:identifier(Table), "."),
    io_lib:format("~tp ~s", [Name, string:trim(Last, trailing, ">")]).

kind(ordered_set) -> "ordered";
kind(duplicate_bag) -> "dup_bag";
kind(Type) -> atom_to_list(Type).

%% What happens now and then is not nothing.
rate(Rate) when abs(Rate) >= 10; Rate == 0 -> integer_to_list(round(Rate));
rate(Rate) -> io_lib:format("~.1f", [Rate]).

share(_Part, Whole) when Whole == 0 -> "-";
share(Part, Whole) -> [integer_to_list(trunc(100 * Part / Whole)), $%].

bytes(Bytes) when Bytes < 10240 -> io_lib:format("~b B", [Bytes]);
bytes(Bytes) when Bytes < 10485760 -> io_lib:format("~b KiB", [Bytes div 1024]);
bytes(Bytes) -> io_lib:format("~b MiB", [Bytes div 1048576]).

line([Table, Type | Numbers]) ->
    Widths = [9, 8, 10, 9, 9, 8, 8, 9, 8, 5],
    [string:pad(string:slice(Table, 0, 24), 25), string:pad(Type, 8)
    | [string:pad(Number, Width, leading) || {Number, Width} <- lists:zip(Numbers, Widths)]].
