%% A leaderboard. Its table has a key {Score, Player} for each player, and a table beside it the score of each player.
%% Writers raise scores, each in a transaction over both tables. Meanwhile a reader asks for places, for the best ten,
%% and for the neighbours of players.
-module(leaderboard).
-export([main/3, run/3]).

-define(NEIGHBOURS, 5).
%% How many players are looked at when the writers have ended.
-define(CHECKED, 1000).

-type read() :: place | best | neighbours.
-type result() :: #{first := float(), updates := non_neg_integer(), reads := non_neg_integer(),
                    microseconds := #{read() => float()}, disorder := non_neg_integer(), wrong := non_neg_integer()}.

%% Runs the leaderboard and prints what happened.
-spec main(Players :: pos_integer(), Writers :: pos_integer(), Milliseconds :: pos_integer()) -> ok.
main(Players, Writers, Milliseconds) ->
    #{first := First, updates := Updates, reads := Reads,
      microseconds := #{place := Place, best := Best, neighbours := Neighbours},
      disorder := Disorder, wrong := Wrong} = run(Players, Writers, Milliseconds),
    io:format("~b players, ~b writers~n~n", [Players, Writers]),
    [io:format("  ~-44s ~s~n", [Name, Figure])
     || {Name, Figure} <- [{"the first place, which counts all", microseconds(First)},
                           {"changes of scores per second", integer_to_list(Updates * 1000 div Milliseconds)},
                           {"reads of each kind per second", integer_to_list(Reads * 1000 div Milliseconds)},
                           {"the place of a player, median", microseconds(Place)},
                           {"the best ten, median", microseconds(Best)},
                           {"five above and five below a player, median", microseconds(Neighbours)},
                           {"lists out of order", integer_to_list(Disorder)},
                           {"players with a wrong place at the end", integer_to_list(Wrong)}]],
    ok.

microseconds(Time) -> io_lib:format("~.1f us", [Time]).

-spec run(Players :: pos_integer(), Writers :: pos_integer(), Milliseconds :: pos_integer()) -> result().
run(Players, Writers, Milliseconds) ->
    Scores = cats:new(scores, [public]),
    Board = cats:new(board, [ordered_set, public]),
    Updates = cats:new(updates, [public]),
    [begin
         Score = rand:uniform(1_000_000),
         true = cats:insert(Scores, {Player, Score}),
         true = cats:insert(Board, {{Score, Player}})
     end || Player <- lists:seq(1, Players)],
    true = cats:insert(Updates, {updates, 0}),
    {First, _} = timed(fun() -> place(Board, {0, 0}) end),
    Workers = [spawn_link(fun() -> write(Scores, Board, Updates, Players) end) || _ <- lists:seq(1, Writers)],
    End = erlang:monotonic_time(millisecond) + Milliseconds,
    Reads = read(Scores, Board, Players, End),
    [stop(Worker) || Worker <- Workers],
    #{first => First,
      updates => cats:lookup_element(Updates, updates, 2),
      reads => length(Reads),
      microseconds => maps:from_list([{Kind, median([Time || {Times, _} <- Reads, {Of, Time} <- Times, Of =:= Kind])}
                                      || Kind <- [place, best, neighbours]]),
      disorder => lists:sum([Disorder || {_, Disorder} <- Reads]),
      wrong => wrong(Scores, Board)}.

stop(Worker) ->
    Monitor = monitor(process, Worker),
    unlink(Worker),
    exit(Worker, kill),
    receive {'DOWN', Monitor, process, Worker, _} -> ok end.

%% Raises scores until the process is killed.
write(Scores, Board, Updates, Players) ->
    {atomic, true} = cats_transaction:run(fun raise/4, [Scores, Board, rand:uniform(Players), rand:uniform(1000)]),
    cats:update_counter(Updates, updates, 1),
    write(Scores, Board, Updates, Players).

raise(Scores, Board, Player, Points) ->
    [{_, Score}] = cats_transaction:lookup(Scores, Player),
    cats_transaction:delete(Board, {Score, Player}),
    cats_transaction:insert(Board, {{Score + Points, Player}}),
    cats_transaction:insert(Scores, {Player, Score + Points}).

%% Reads until the end. Returns for each round what each kind of read took, and how many lists were not in order.
read(Scores, Board, Players, End) ->
    [{Player, Score}] = cats:lookup(Scores, rand:uniform(Players)),
    Key = {Score, Player},
    {Place, _} = timed(fun() -> place(Board, Key) end),
    {Best, Top} = timed(fun() -> cats:range(Board, #{order => descending}, 10) end),
    {Neighbours, {Above, Below}} = timed(fun() -> neighbours(Board, Key) end),
    Disorder = length([List || List <- [Top, lists:reverse(Above, [{Key} | Below])], not descends(List)]),
    Round = {[{place, Place}, {best, Best}, {neighbours, Neighbours}], Disorder},
    case erlang:monotonic_time(millisecond) < End of
        true -> [Round | read(Scores, Board, Players, End)];
        false -> [Round]
    end.

median(Times) -> lists:nth((length(Times) + 1) div 2, lists:sort(Times)).

%% The place of a key: one more than the number of keys above.
place(Board, Key) ->
    1 + cats:count(Board, #{above => Key}).

%% Those right above a key and right below, the nearest ones first.
neighbours(Board, Key) ->
    {cats:range(Board, #{above => Key}, ?NEIGHBOURS),
     cats:range(Board, #{below => Key, order => descending}, ?NEIGHBOURS)}.

descends([First | [Second | _] = Rest]) -> First > Second andalso descends(Rest);
descends(_) -> true.

%% How many players have a wrong place, when nobody writes: some of them, compared with the sorted list of all. All, if
%% that list is not what the board has.
wrong(Scores, Board) ->
    Keys = lists:reverse(lists:sort([{Score, Player} || {Player, Score} <- cats:tab2list(Scores)])),
    Size = length(Keys),
    case [{Key} || Key <- Keys] =:= cats:range(Board, #{order => descending}, infinity) of
        true ->
            Step = max(1, Size div ?CHECKED),
            length([Key || {Place, Key} <- lists:zip(lists:seq(1, Size), Keys), Place rem Step =:= 0,
                           {place(Board, Key), cats:nth(Board, -Place)} =/= {Place, {Key}}]);
        false ->
            Size
    end.

%% What a call takes in microseconds, and what it returns.
timed(Call) ->
    Start = erlang:monotonic_time(),
    Result = Call(),
    {(erlang:monotonic_time() - Start) * 1.0e6 / erlang:convert_time_unit(1, second, native), Result}.
