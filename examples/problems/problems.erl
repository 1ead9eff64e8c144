%% A node with one problem among tables that have none. An operator who was not told which one looks for it with
%% cats_top, cats:stats_delta/2 and cats_web only.
-module(problems).
-export([main/1, answer/0, kinds/0, start/1]).

-type kind() :: hot_key | growing_bag | leak | scan.

%% `hot_key': processes write to one key without a pause. `growing_bag': a key of a bag gets object after object.
%% `leak': of the objects that come into a table, some never go. `scan': a process goes over all objects of a table
%% every second.
-spec kinds() -> [kind()].
kinds() -> [hot_key, growing_bag, leak, scan].

%% Starts the tables with one of the problems, by chance, and the page of cats_web.
-spec main(Arguments :: [string()]) -> ok.
main(Arguments) ->
    Kind = case Arguments of
               [] -> any(kinds());
               [Name] -> list_to_existing_atom(Name)
           end,
    persistent_term:put(?MODULE, {Kind, start(Kind)}),
    {ok, _, Url} = cats_web:start(#{}),
    io:format("One table has a problem. Look for it by cats_top:start() or at ~s, then ask problems:answer().~n",
              [Url]).

%% The problem, and the name of its table.
-spec answer() -> {kind(), Table :: atom()}.
answer() ->
    persistent_term:get(?MODULE).

any(List) -> lists:nth(rand:uniform(length(List)), List).

%% Starts the tables, and processes that use them, which are linked to the caller. Returns the name of the table with
%% the problem.
-spec start(kind()) -> Table :: atom().
start(Kind) ->
    Tables = [{sessions, set, 20000}, {orders, ordered_set, 50000}, {counters, set, 500}, {prices, ordered_set, 5000},
              {subscriptions, bag, 3000}, {events, bag, 5000}],
    [table(Name, Type, Size) || {Name, Type, Size} <- Tables],
    [spawn_link(fun() -> use(Name, Size, Size) end) || {Name, _, Size} <- Tables],
    plant(Kind, [Name || {Name, Type, _} <- Tables, fits(Kind, Type)]).

table(Name, Type, Size) ->
    cats:new(Name, [Type, public, named_table, {stats, true}]),
    true = cats:insert(Name, [{Key, Key, active} || Key <- lists:seq(1, Size)]).

%% The usual work: lookups, some of which find nothing, and objects that come and go, the oldest one first.
use(Table, Size, Last) ->
    [cats:lookup(Table, Last - rand:uniform(Size + Size div 10)) || _ <- lists:seq(1, 20)],
    true = cats:insert(Table, {Last + 1, Last, active}),
    true = cats:delete(Table, Last + 1 - Size),
    timer:sleep(rand:uniform(20)),
    use(Table, Size, Last + 1).

fits(growing_bag, Type) -> Type =:= bag;
fits(_, Type) -> Type =/= bag.

plant(Kind, Tables) ->
    Table = any(Tables),
    [spawn_link(fun() -> repeat(Kind, Table, 1) end) || _ <- lists:seq(1, processes(Kind))],
    Table.

processes(hot_key) -> 4;
processes(_) -> 1.

repeat(Kind, Table, Number) ->
    problem(Kind, Table, Number),
    repeat(Kind, Table, Number + 1).

problem(hot_key, Table, _Number) ->
    cats:update_counter(Table, hot, {2, 1}, {hot, 0});
problem(growing_bag, Table, Number) ->
    true = cats:insert(Table, {waiting, Number, active}),
    timer:sleep(20);
problem(leak, Table, Number) ->
    [true = cats:insert(Table, {{Number, Part}, Number, active}) || Part <- lists:seq(1, 5)],
    [true = cats:delete(Table, {Number, Part}) || Part <- lists:seq(1, 4)],
    timer:sleep(100);
problem(scan, Table, _Number) ->
    _ = cats:match_object(Table, {'_', '_', closed}),
    timer:sleep(1000).
