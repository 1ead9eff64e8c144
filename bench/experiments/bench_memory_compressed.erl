%% Memory of an object in a compressed table and in a plain one. Binaries outside of the tables count, too. So each
%% measurement has a VM of its own, in which nobody else frees binaries.
-module(bench_memory_compressed).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4, held/3]).

about() ->
    #{title => "Memory of an object in a compressed table", source => "the manual of ets, on the option compressed",
      unit => "bytes/object", better => lower, x => object, scale => category, panels => [table]}.

points(Size) ->
    [#{axes => [{table, Table}], subjects => bench_tables:subjects(plain), seconds => objects(Size) * 1.0e-4 + 0.5}
     || Table <- [compressed, plain]].

objects(quick) -> 1000;
objects(default) -> 10_000;
objects(full) -> 20_000.

measure(Size, #{table := Kind}, {_, Tables, Options}, _Seed) ->
    [{[{object, Shape}], Bytes / objects(Size)}
     || {Shape, Bytes} <- bench_child:result("", ?MODULE, held,
                                             [Tables, [compressed || Kind =:= compressed] ++ Options, objects(Size)])].

%% @doc In a new VM: the bytes that so many objects of each shape take. No table is deleted, as that would free memory
%% while the next one is filled. The first shape goes twice, as the VM may still free what its start took.
-spec held(ets | cats, [term()], Number :: pos_integer()) -> [{Shape :: string(), Bytes :: integer()}].
held(Tables, Options, Number) ->
    ets_bench:warm_up(),
    [First | _] = Shapes = bench_compressed:shapes(),
    tl([begin
            Before = held(Tables),
            bench_shapes:table(Tables, set, Options, Number, fun(Key) -> bench_compressed:object(Shape, Key, Key) end),
            {Shape, held(Tables) - Before}
        end || Shape <- [First | Shapes]]).

held(Tables) ->
    erlang:garbage_collect(),
    bench_memory:held(Tables) + erlang:memory(binary).
