%% moves, after BenchErl: the least number of moves that turns a row of black and white pieces with gaps
%% around. A piece moves into the gap beside it, or over one other piece into a gap. The search is breadth
%% first. Workers share the positions of a level. It makes short-lived terms and messages and uses no tables.
-module(moves).
-export([run/2]).

%% @doc Returns the least number of moves from a row, such as "bbbewww", to its mirror image.
-spec run(Row :: string(), Workers :: pos_integer()) -> non_neg_integer().
run(Row, Workers) ->
    search([Row], #{Row => seen}, lists:reverse(Row), Workers, 0).

search(Level, Seen, Goal, Workers, Moves) ->
    case lists:member(Goal, Level) of
        true ->
            Moves;
        false ->
            Next = lists:usort(lists:append(parallel(fun next/1, deal(Level, Workers)))),
            New = [Row || Row <- Next, not is_map_key(Row, Seen)],
            search(New, maps:merge(Seen, maps:from_keys(New, seen)), Goal, Workers, Moves + 1)
    end.

deal(Level, Workers) ->
    Indexed = lists:zip(lists:seq(1, length(Level)), Level),
    [[Row || {Index, Row} <- Indexed, Index rem Workers =:= Worker] || Worker <- lists:seq(0, Workers - 1)].

parallel(Fun, Parts) ->
    Parent = self(),
    Pids = [spawn_link(fun() -> Parent ! {self(), lists:usort(lists:flatmap(Fun, Part))} end)
            || Part <- Parts],
    [receive {Pid, Rows} -> Rows end || Pid <- Pids].

%% All rows that one move leads to.
next(Row) -> next([], Row).

next(_Before, []) ->
    [];
next(Before, [C | Rest] = Row) ->
    [lists:reverse(Before, Moved) || Moved <- steps(Row)] ++ next([C | Before], Rest).

steps([$e, C | Rest]) when C =/= $e -> [[C, $e | Rest] | jumps([$e, C | Rest])];
steps([C, $e | Rest]) -> [[$e, C | Rest] | jumps([C, $e | Rest])];
steps(Row) -> jumps(Row).

jumps([$e, B, C | Rest]) when B =/= $e, C =/= $e -> [[C, B, $e | Rest]];
jumps([C, B, $e | Rest]) when B =/= $e, C =/= $e -> [[$e, B, C | Rest]];
jumps(_) -> [].
