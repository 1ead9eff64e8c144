%% What the VM and cats tell of the memory of a table, beside what the operating system tells. Each figure is
%% the rise while a table is filled, in a VM of its own.
-module(bench_memory_truth).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4, rises/4]).

-include("papers.hrl").

about() ->
    #{title => "The memory of a table, as it is told and as it is",
      source => ?SCALABILITY ", section 3 (memory of options)",
      unit => "MiB", better => lower, x => teller, scale => category, panels => [shape]}.

points(Size) ->
    [#{axes => [{objects, objects(Size)}, {shape, Shape}], subjects => bench_tables:subjects(plain),
       seconds => objects(Size) * 5.0e-6 + 2}
     || Shape <- shapes()].

objects(quick) -> 30_000;
objects(default) -> 300_000;
objects(full) -> 1_000_000.

shapes() -> [integers, binary_of_50, binary_of_1000, map_of_40, string_and_list].

object(integers, K) -> {K, K};
object(binary_of_50, K) -> {K, <<K:400>>};
object(binary_of_1000, K) -> {K, <<K:8000>>};
object(map_of_40, K) -> {K, maps:from_list([{I, K + I} || I <- lists:seq(1, 40)])};
object(string_and_list, K) -> {bench_shapes:key(string, K), [K, K + 1, {a, K}, [b, c]]}.

measure(Size, #{shape := Shape}, {_, Tables, Options}, _Seed) ->
    Rises = bench_child:result("", ?MODULE, rises, [Tables, Options, Shape, objects(Size)]),
    [{[{teller, Teller}], Bytes / 1048576} || {Teller, Bytes} <- Rises].

%% @doc In a new VM: fills a table, and returns by how much each figure has risen. A small table comes first, so
%% that what the VM and the library take once does not count.
-spec rises(ets | cats, [term()], Shape :: atom(), pos_integer()) -> [{Teller :: string(), Bytes :: integer()}].
rises(Tables, Options, Shape, Number) ->
    filled(Tables, Options, Shape, Number div 100),
    Before = told(Tables),
    filled(Tables, Options, Shape, Number),
    lists:zipwith(fun({Teller, Less}, {Teller, More}) -> {Teller, More - Less} end, Before, told(Tables)).

%% A process fills the table and ends, so its heap does not count. The table goes to the caller.
filled(Tables, Options, Shape, Number) ->
    Caller = self(),
    {_, Monitor} = spawn_monitor(fun() ->
                                         Fill = fun(Key) -> object(Shape, Key) end,
                                         Table = bench_shapes:table(Tables, set, Options, Number, Fill),
                                         Tables:give_away(Table, Caller, filled)
                                 end),
    receive {'DOWN', Monitor, process, _, normal} -> ok end.

told(Tables) ->
    _ = [erlang:garbage_collect(Pid) || Pid <- processes()],
    timer:sleep(1000),
    Vm = erlang:memory(),
    [{"resident size", bench_memory:resident()}, {atom_to_list(Tables) ++ " tables", bench_memory:held(Tables)}
     | [{"erlang:memory " ++ atom_to_list(Item), proplists:get_value(Item, Vm)} || Item <- [total, system, binary]]].
