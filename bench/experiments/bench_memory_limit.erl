%% The memory of a node under its memory limit. Four processes write binaries of mixed sizes into two caches and a
%% plain table. Where a call finds no memory, its process deletes some of the plain table's objects and goes on.
-module(bench_memory_limit).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4, course/1]).

-define(LIMIT, (256 bsl 20)).
-define(WRITERS, 4).
%% So many objects of the plain table a process deletes where a call finds no memory.
-define(DELETED, 1000).
-define(SAMPLES, 40).
%% A sample is the most of what was seen since the one before. So often it is looked at, in milliseconds.
-define(LOOK, 10).

about() ->
    #{title => "A node under a memory limit of 256 MiB and four writers", source => "how far cats goes: ours",
      unit => "MiB", better => lower, x => second, scale => linear, lines => [memory]}.

points(Size) -> [#{axes => [], subjects => [{"cats", cats, []}], seconds => seconds(Size) + 1}].

seconds(quick) -> 4;
seconds(default) -> 20;
seconds(full) -> 600.

measure(Size, _, _, _Seed) ->
    Flags = "-cats memory_limit " ++ integer_to_list(?LIMIT),
    [{[{second, Second}, {memory, What}], Bytes / 1048576}
     || {Second, What, Bytes} <- bench_child:result(Flags, ?MODULE, course, [seconds(Size)])].

%% @doc In a new VM with a memory limit, for so many seconds: what the library held at most, and how much the memory of
%% the process grew at most.
-spec course(Seconds :: pos_integer()) -> [{Second :: float(), What :: string(), Bytes :: integer()}].
course(Seconds) ->
    ets_bench:warm_up(),
    Start = bench_memory:resident(),
    Plain = cats:new(plain, [public, {write_concurrency, true}]),
    Caches = [cats:new(cache, [public, {limit, {objects, 1_000_000}}]),
              cats:new(cache, [public, ordered_set, {limit, {bytes, ?LIMIT}}])],
    Writers = [spawn_link(fun() -> write(Plain, Caches, First, First) end)
               || Number <- lists:seq(1, ?WRITERS), First <- [Number bsl 40]],
    Samples = [sample(Start, Seconds * 1000 / ?SAMPLES / ?LOOK) || _ <- lists:seq(1, ?SAMPLES)],
    [begin unlink(Writer), exit(Writer, kill) end || Writer <- Writers],
    [{Number * Seconds / ?SAMPLES, What, Bytes}
     || {Number, Sample} <- lists:enumerate(Samples), {What, Bytes} <- Sample].

sample(Start, Looks) ->
    Seen = [begin
                timer:sleep(?LOOK),
                {maps:get(held, cats:budget()), bench_memory:resident() - Start}
            end || _ <- lists:seq(1, round(Looks))],
    [{"limit", ?LIMIT}, {"held", lists:max([Held || {Held, _} <- Seen])},
     {"of the process without what it had at the start", lists:max([Resident || {_, Resident} <- Seen])}].

%% Every fourth object goes to the plain table. `Oldest' is the key of its oldest one.
write(Plain, Caches, N, Oldest) ->
    Table = case N rem 4 of
                0 -> Plain;
                Other -> lists:nth(1 + Other rem length(Caches), Caches)
            end,
    try cats:insert(Table, {N, binary:copy(<<N:64>>, 1 bsl rand:uniform(13))}) of
        true -> write(Plain, Caches, N + 1, Oldest)
    catch
        error:system_limit ->
            Next = min(Oldest + 4 * ?DELETED, N - N rem 4),
            [cats:delete(Plain, Key) || Key <- lists:seq(Oldest, Next - 4, 4)],
            write(Plain, Caches, N + 1, Next)
    end.
