%% An experiment of the bench is a module bench_NAME in bench/experiments. `about' says what is measured.
%% `points' gives the points for a size. `measure' measures one subject in one point.
%%
%% Each round measures a point once for each of its subjects. They follow one another in one process, with the
%% same seed. The rows of a point, such as the phases of a run, come from one call of `measure'. A row has the
%% axes that the point does not have. All rows of an experiment have one unit and one direction.
-module(bench_experiment).
-export([id/1]).
-export_type([about/0, axes/0, point/0, row/0, size/0, subject/0]).

-type size() :: quick | default | full.
%% How much time there is: some seconds for all experiments, some minutes, or the sizes of the papers.
-type value() :: atom() | number() | string().
-type axes() :: [{Axis :: atom(), value()}].
-type subject() :: {Name :: string(), Tables :: ets | cats | none, Options :: [term()]}.
%% What competes in a point: a table module with options, or the VM itself.
-type about() :: #{title := string(), source => string(), unit := string(), better := higher | lower,
                   x := atom(), scale := category | linear | log, panels => [atom()], lines => [atom()]}.
%% `source' names paper, section and figure. `x' is the axis along the chart. `lines' make a line of each of their
%% values. All other axes divide the chart into panels, first those of `panels'.
-type point() :: #{axes := axes(), subjects := [subject()], flags => string(), seconds => number()}.
%% `flags' are those of the emulator that measures the point, `seconds' the expected time of one round.
-type row() :: {axes(), Figure :: number()}.

-callback about() -> about().
-callback points(size()) -> [point()].
-callback measure(size(), #{Axis :: atom() => value()}, subject(), Seed :: integer()) -> [row()].

%% @doc The name of a point or a row: `axis=value', separated by commas.
-spec id(axes()) -> string().
id(Axes) ->
    lists:flatten(lists:join($,, [[atom_to_list(Axis), $=, plain(text(Value))] || {Axis, Value} <- Axes])).

%% The separators of the protocol stand in no value.
plain(Text) ->
    [] = [C || C <- Text, lists:member(C, ",=\t\n")],
    Text.

text(Value) when is_float(Value) -> float_to_list(Value, [short]);
text(Value) when is_integer(Value) -> integer_to_list(Value);
text(Value) when is_atom(Value) -> atom_to_list(Value);
text(Value) -> Value.
