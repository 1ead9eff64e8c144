%% orbit, in the way of BenchErl: the closure of a set of integers under some functions, found by workers that
%% share a table of what has been seen. Each integer belongs to a worker, which looks whether it is new and
%% sends what the functions make of it to the workers that those belong to; with parallelism inside workers, a
%% process of its own does that for each integer.
-module(orbit).
-export([run/3]).

-include("tables.hrl").

-define(FUNCTIONS, 4).

%% @doc Finds the orbit of 1 among the integers from 0 to `space' - 1, and returns its size.
-spec run(ets | cats, [term()], #{space := pos_integer(), workers := pos_integer(), inside := boolean()}) ->
          pos_integer().
run(Tables, Options, #{space := Space, workers := Number, inside := Inside}) ->
    Table = Tables:new(orbit, [set, public | Options]),
    %% How many integers are on their way or being looked at: none when the orbit is closed.
    Open = atomics:new(1, []),
    Master = self(),
    %% Queues are long, and as parts of heaps the garbage collector would take most of the time.
    Pids = [spawn_opt(fun() ->
                              receive
                                  {workers, Workers} ->
                                      worker(Inside, {Tables, Table, Space, Open, Master, Workers})
                              end
                      end, [link, {message_queue_data, off_heap}]) || _ <- lists:seq(1, Number)],
    Workers = list_to_tuple(Pids),
    [Pid ! {workers, Workers} || Pid <- Pids],
    send(1, Open, Workers),
    receive closed -> ok end,
    Size = Tables:info(Table, size),
    [begin unlink(Pid), exit(Pid, kill) end || Pid <- Pids],
    Tables:delete(Table),
    Size.

worker(Inside, Orbit) ->
    receive
        Integer when Inside ->
            spawn(fun() -> visit(Integer, Orbit) end);
        Integer ->
            visit(Integer, Orbit)
    end,
    worker(Inside, Orbit).

visit(Integer, {Tables, Table, Space, Open, Master, Workers}) ->
    case ?CALL(Tables, insert_new(Table, {Integer})) of
        true -> [send(apply_function(F, Integer, Space), Open, Workers) || F <- lists:seq(1, ?FUNCTIONS)];
        false -> ok
    end,
    case atomics:sub_get(Open, 1, 1) of
        0 -> Master ! closed;
        _ -> ok
    end.

send(Integer, Open, Workers) ->
    atomics:add(Open, 1, 1),
    element(1 + erlang:phash2(Integer, tuple_size(Workers)), Workers) ! Integer.

apply_function(1, N, Space) -> (N + 1) rem Space;
apply_function(2, N, Space) -> (3 * N + 7) rem Space;
apply_function(3, N, Space) -> (N * N + N) rem Space;
apply_function(4, N, Space) -> (N div 3 + 11 * N) rem Space.
