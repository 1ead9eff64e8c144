%% mbrot, after BenchErl: which points of a square of the plane are in the Mandelbrot set. Workers share its
%% rows. It only computes, and uses no tables.
-module(mbrot).
-export([run/2]).

-define(ITERATIONS, 100).

%% @doc Returns how many of `Side' times `Side' points are in the set.
-spec run(Side :: pos_integer(), Workers :: pos_integer()) -> non_neg_integer().
run(Side, Workers) ->
    Parent = self(),
    Pids = [spawn_link(fun() -> Parent ! {self(), rows(Worker, Workers, Side, 0)} end)
            || Worker <- lists:seq(1, Workers)],
    lists:sum([receive {Pid, Count} -> Count end || Pid <- Pids]).

rows(Row, _Step, Side, Count) when Row > Side -> Count;
rows(Row, Step, Side, Count) -> rows(Row + Step, Step, Side, Count + row(Side, Row, Side, 0)).

row(0, _Row, _Side, Count) ->
    Count;
row(Column, Row, Side, Count) ->
    Inside = inside(Column / Side * 3 - 2.0, Row / Side * 2 - 1.0, 0.0, 0.0, ?ITERATIONS),
    row(Column - 1, Row, Side, Count + Inside).

inside(_, _, _, _, 0) -> 1;
inside(_, _, X, Y, _) when X * X + Y * Y > 4.0 -> 0;
inside(A, B, X, Y, Left) -> inside(A, B, X * X - Y * Y + A, 2 * X * Y + B, Left - 1).
