%% Several reads and writes in one step, in three ways. Two are a transaction of cats, and one of Mnesia on tables in
%% memory. The third is a process that owns tables of ets and does one thing after the other. Objects are records as
%% those of Mnesia: the name of the table, then the key. So one body serves all ways. It is
%% `fun(Words, Tables, Argument)', where Words are what the functions of this module take first, and Tables maps names
%% to tables.
-module(bench_atomic).
-export([subjects/0, open/2, close/1, run/3, all/2, read/3, read_to_write/3, write/3, delete/3, first/2, abort/2]).
-export_type([words/0, bank/0, body/0, table/0]).

-type words() :: cats | mnesia | server.
-type table() :: {Name :: atom(), Type :: set | ordered_set, Number :: non_neg_integer(),
                  Object :: fun((pos_integer()) -> tuple())}.
%% How many objects it has at first, and how the one of a number is made.
-type body() :: fun((words(), #{Name :: atom() => term()}, Argument :: term()) -> term()).
-opaque bank() :: {words(), #{atom() => term()}} | {server, pid()}.

%% @doc What competes. Mnesia is left out where it is not installed.
-spec subjects() -> [bench_experiment:subject()].
subjects() ->
    [{"mnesia", ets, [mnesia]} || is_list(code:which(mnesia))]
        ++ [{"gen_server", ets, [server]}, {"cats", cats, [cats]}].

%% @doc Makes the tables.
-spec open(words(), [table()]) -> bank().
open(cats, Specs) ->
    {cats, maps:from_list([{Name, filled(cats:new(Name, [Type, public, {keypos, 2}]), fun cats:insert/2, Number, Make)}
                           || {Name, Type, Number, Make} <- Specs])};
open(mnesia, Specs) ->
    ok = mnesia:start(),
    {mnesia, maps:from_list([{Name, in_mnesia(Name, Type, Number, Make)} || {Name, Type, Number, Make} <- Specs])};
open(server, Specs) ->
    Server = spawn_link(fun() -> serve(maps:from_list([{Name, in_ets(Spec)} || {Name, _, _, _} = Spec <- Specs])) end),
    ok = gen_server:call(Server, ready, infinity),
    {server, Server}.

filled(Table, Insert, Number, Make) ->
    [Insert(Table, Make(bench_shapes:nth(N, Number))) || N <- lists:seq(1, Number)],
    Table.

in_mnesia(Name, Type, Number, Make) ->
    Attributes = [list_to_atom("element" ++ integer_to_list(N)) || N <- lists:seq(2, tuple_size(Make(1)))],
    {atomic, ok} = mnesia:create_table(Name, [{ram_copies, [node()]}, {type, Type}, {attributes, Attributes}]),
    filled(Name, fun mnesia:dirty_write/2, Number, Make).

in_ets({Name, Type, Number, Make}) ->
    filled(ets:new(Name, [Type, {keypos, 2}]), fun ets:insert/2, Number, Make).

%% @doc Deletes the tables.
-spec close(bank()) -> ok.
close({server, Server}) ->
    gen_server:call(Server, stop, infinity);
close({cats, Tables}) ->
    lists:foreach(fun cats:delete/1, maps:values(Tables));
close({mnesia, Tables}) ->
    lists:foreach(fun(Table) -> {atomic, ok} = mnesia:delete_table(Table) end, maps:values(Tables)).

%% @doc Runs a body in one step. To the process goes a message with it, so it should be one of a module.
-spec run(bank(), body(), Argument :: term()) -> {atomic, term()} | {aborted, term()}.
run({cats, Tables}, Body, Argument) -> cats_transaction:run(Body, [cats, Tables, Argument]);
run({mnesia, Tables}, Body, Argument) -> mnesia:transaction(Body, [mnesia, Tables, Argument]);
run({server, Server}, Body, Argument) -> gen_server:call(Server, {run, Body, Argument}, infinity).

%% The loop of a gen_server, without what one does not need here.
serve(Tables) ->
    receive
        {'$gen_call', From, {run, Body, Argument}} ->
            gen_server:reply(From, try {atomic, Body(server, Tables, Argument)}
                                   catch throw:{?MODULE, Reason} -> {aborted, Reason}
                                   end),
            serve(Tables);
        {'$gen_call', From, {all, Name}} ->
            gen_server:reply(From, ets:tab2list(maps:get(Name, Tables))),
            serve(Tables);
        {'$gen_call', From, ready} ->
            gen_server:reply(From, ok),
            serve(Tables);
        {'$gen_call', From, stop} ->
            gen_server:reply(From, ok)
    end.

%% @doc All objects of a table, while nobody writes.
-spec all(bank(), Name :: atom()) -> [tuple()].
all({cats, Tables}, Name) -> cats:tab2list(maps:get(Name, Tables));
all({mnesia, Tables}, Name) -> ets:tab2list(maps:get(Name, Tables));
all({server, Server}, Name) -> gen_server:call(Server, {all, Name}, infinity).

read(cats, Table, Key) -> cats_transaction:lookup(Table, Key);
read(mnesia, Table, Key) -> mnesia:read(Table, Key, read);
read(server, Table, Key) -> ets:lookup(Table, Key).

%% @doc Reads what the body is going to write. Only Mnesia wants to know: it locks once then.
read_to_write(mnesia, Table, Key) -> mnesia:read(Table, Key, write);
read_to_write(Words, Table, Key) -> read(Words, Table, Key).

write(cats, Table, Object) -> cats_transaction:insert(Table, Object);
write(mnesia, Table, Object) -> mnesia:write(Table, Object, write);
write(server, Table, Object) -> ets:insert(Table, Object).

delete(cats, Table, Key) -> cats_transaction:delete(Table, Key);
delete(mnesia, Table, Key) -> mnesia:delete(Table, Key, write);
delete(server, Table, Key) -> ets:delete(Table, Key).

first(cats, Table) -> cats_transaction:first(Table);
first(mnesia, Table) -> mnesia:first(Table);
first(server, Table) -> ets:first(Table).

%% @doc Ends the body. The process writes at once, so there nothing may be written before.
-spec abort(words(), Reason :: term()) -> no_return().
abort(cats, Reason) -> cats_transaction:abort(Reason);
abort(mnesia, Reason) -> mnesia:abort(Reason);
abort(server, Reason) -> throw({?MODULE, Reason}).
