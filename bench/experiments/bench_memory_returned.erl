%% How much memory the operating system gets back from tables that fill and empty. The VM takes its memory
%% from mmap or from a super carrier. First a table is filled from one scheduler and thinned to a tenth at
%% random. So its memory is full of holes. Then another table is filled from another scheduler. It can use the
%% holes if they migrate to it. Then both are deleted.
-module(bench_memory_returned).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4, states/3]).

-include("papers.hrl").

about() ->
    #{title => "Resident memory of a VM whose tables fill and empty",
      source => ?RELEASE ", section 2.3 (carrier migration) and 2.4 (super carrier)",
      unit => "MiB", better => lower, x => state, scale => category, panels => [carrier]}.

points(Size) ->
    [#{axes => [{carrier, Carrier}], subjects => bench_tables:subjects(plain),
       seconds => bench_sizes:seconds(Size, 3, 4)}
     || Carrier <- carriers(Size)].

carriers(quick) -> ["mmap", "+MMscs 1024 +MMsco true"];
carriers(_) -> ["mmap", "+MMscs 1024 +MMsco false", "+MMscs 4096 +MMsco true"].

objects(quick) -> 50_000;
objects(default) -> 400_000;
objects(full) -> 2_000_000.

%% Each in a VM of its own: what one leaves to the VM's allocators the next would use.
measure(Size, #{carrier := Carrier}, {_, Tables, Options}, _Seed) ->
    Flags = case Carrier of
                "mmap" -> "";
                _ -> Carrier
            end,
    [{[{state, State}], Bytes / 1048576}
     || {State, Bytes} <- bench_child:result(Flags, ?MODULE, states, [Tables, Options, objects(Size)])].

%% @doc In a new VM: goes through the states, and returns how much more memory the process has in each than
%% before.
-spec states(ets | cats, [term()], pos_integer()) -> [{State :: string(), Bytes :: integer()}].
states(Tables, Options, Number) ->
    ets_bench:warm_up(),
    Start = resident(),
    First = Tables:new(first, [set, public | Options]),
    Second = Tables:new(second, [set, public | Options]),
    Most = lists:seq(1, Number * 9 div 10),
    on(1, fun() -> [Tables:insert(First, object(N)) || N <- lists:seq(1, Number)] end),
    Filled = resident(),
    on(1, fun() -> [Tables:delete(First, bench_shapes:nth(N, Number)) || N <- Most] end),
    Thinned = resident(),
    on(2, fun() -> [Tables:insert(Second, object(N)) || N <- Most] end),
    Refilled = resident(),
    Tables:delete(First),
    Tables:delete(Second),
    [{"filled", Filled - Start}, {"thinned", Thinned - Start}, {"filled from elsewhere", Refilled - Start},
     {"emptied", resident() - Start}].

object(N) -> {N, <<N:256>>, N}.

%% Runs it on a scheduler, by the option that OTP has for its own tests.
on(Scheduler, Fun) ->
    Chosen = 1 + (Scheduler - 1) rem erlang:system_info(schedulers_online),
    {Pid, Monitor} = spawn_opt(Fun, [monitor, {scheduler, Chosen}]),
    receive {'DOWN', Monitor, process, Pid, normal} -> ok end.

resident() ->
    bench_tables:settle(),
    timer:sleep(200),
    bench_memory:resident().
