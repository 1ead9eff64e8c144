%% orbit, after BenchErl: the closure of a set of integers under some functions. Workers share a table of the
%% integers that they have seen. Each integer belongs to a worker. The worker looks whether the integer is new.
%% If so, it applies the functions and sends each result to the worker that owns it. With parallelism inside
%% workers, a process of its own does that for each integer.
-module(orbit).
-export([run/3]).

-include("tables.hrl").

-define(FUNCTIONS, 4).

%% @doc Finds the orbit of 1 among the integers from 0 to `space' - 1, and returns its size.
-spec run(ets | cats, [term()], #{space := pos_integer(), workers := pos_integer(), inside := boolean()}) ->
          pos_integer().
run(Tables, Options, #{space := Space, workers := Number, inside := Inside}) ->
    Table = Tables:new(orbit, [set, public | Options]),
    %% The number of integers that are under way or in work. The orbit is closed when it is 0.
    Open = atomics:new(1, []),
    Master = self(),
    %% Queues are long. On the heap of a worker they would keep the garbage collector busy.
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
