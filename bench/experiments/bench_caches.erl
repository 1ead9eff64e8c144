%% Caches: a hit, and an insertion into a full one. The others are Cachex, ConCache and Nebulex, where bench/cache-peers
%% has built them. Without them there are no rows of theirs. In all caches objects live for an hour. Those of cats and
%% of Cachex have the same limit.
-module(bench_caches).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

about() ->
    #{title => "Caches: a hit, and an insertion into a full cache",
      source => case peers() of
                    [] -> "cats alone: ERL_LIBS has no other caches, see bench/cache-peers";
                    _ -> "Cachex, ConCache and Nebulex, with their defaults"
                end,
      unit => "operations/s", better => higher, x => operation, scale => category, panels => [workers]}.

points(Size) ->
    [#{axes => [{workers, Workers}], subjects => [{"cats", cats, []} | peers()],
       seconds => bench_sizes:seconds(Size, 3, 10)}
     || Workers <- bench_workers:counts()].

peers() ->
    case code:which('Elixir.BenchPeers') of
        non_existing -> [];
        _ -> [{"Cachex", cachex, []}, {"ConCache", con_cache, []}, {"Nebulex", nebulex, []}]
    end.

objects(quick) -> 10_000;
objects(_) -> 100_000.

%% The fastest loop counts: other programs on the machine can only make one slower.
loops(quick) -> 4;
loops(_) -> 40.

%% The keys of a point, and into how many lists they are divided, so that a loop is about as long for each cache.
-define(KEYS, 16384).
parts(cats) -> 1;
parts(_) -> 8.

measure(Size, #{workers := Workers}, {_, Cache, _}, Seed) ->
    hits(Cache, Size, Workers, Seed) ++ insertions(Cache, Size, Workers).

hits(Cache, Size, Workers, Seed) ->
    Objects = objects(Size),
    {Handle, Stop} = start(Cache, none),
    put_all(Cache, Handle, lists:seq(1, Objects)),
    Rows =
        [{[{operation, Operation}], Workers * fastest(Cache, Handle, keys(Distribution, Objects, Seed), Workers, Size)}
         || {Operation, Distribution} <- [{"a hit by uniform keys", uniform}, {"a hit by Zipf keys", zipf}]],
    Stop(),
    Rows.

keys(Distribution, Objects, Seed) ->
    bench_data:share({keys, Distribution},
                     fun() ->
                             bench_keys:list(bench_keys:generator(Distribution, Objects), ?KEYS, bench_keys:seed(Seed))
                     end).

%% The hits a second of a worker. The loops are written out: the call of a fun would take as long as a part of the hit.
fastest(Cache, Handle, Keys, Workers, Size) ->
    Each = ?KEYS div parts(Cache),
    Parts = [lists:sublist(Keys, 1 + Number * Each, Each) || Number <- lists:seq(0, parts(Cache) - 1)],
    Loop = fun(Part) -> bench_workers:seconds(lists:duplicate(Workers, fun() -> get_all(Cache, Handle, Part) end)) end,
    Each / lists:min([Loop(Part) || _ <- lists:seq(1, loops(Size) div parts(Cache) + 1), Part <- Parts]).

%% ConCache has no limit. That of Nebulex makes a new generation, and evicts no single objects.
insertions(Cache, Size, Workers) when Cache =:= cats; Cache =:= cachex ->
    Objects = objects(Size),
    {Handle, Stop} = start(Cache, Objects),
    put_all(Cache, Handle, lists:seq(1, Objects)),
    %% Cachex evicts a tenth at once, so a loop has a fifth.
    Each = Objects div 5,
    Work = fun(Number) ->
                   Keys = lists:seq(Objects + Number * Each + 1, Objects + (Number + 1) * Each),
                   fun() -> put_all(Cache, Handle, Keys) end
           end,
    Loop = fun(Loop) ->
                   bench_workers:seconds([Work(Loop * Workers + Worker) || Worker <- lists:seq(0, Workers - 1)])
           end,
    Seconds = lists:min([Loop(Number) || Number <- lists:seq(1, loops(Size) div 2)]),
    Stop(),
    [{[{operation, "an insertion into a full cache"}], Workers * Each / Seconds}];
insertions(_Cache, _Size, _Workers) ->
    [].

%% What a cache is used by, and how it ends.
start(cats, Limit) ->
    Table = cats:new(cache, [public, {ttl, 3_600_000} | [{limit, {objects, Limit}} || Limit =/= none]]),
    {Table, fun() -> cats:delete(Table) end};
start(cachex, Limit) ->
    started(cachex, fun() -> 'Elixir.BenchPeers':cachex(bench_cachex, case Limit of none -> nil; _ -> Limit end) end);
start(con_cache, none) ->
    started(con_cache, fun() -> 'Elixir.BenchPeers':con_cache(bench_con_cache) end);
start(nebulex, none) ->
    started(nebulex, fun() -> 'Elixir.BenchPeers':nebulex() end).

%% Other caches are processes, which end with the one that started them.
started(Application, Start) ->
    {ok, _} = application:ensure_all_started(Application),
    Parent = self(),
    {Owner, Monitor} = spawn_monitor(fun() -> Parent ! {started, Start()}, receive stop -> exit(shutdown) end end),
    receive
        {started, Handle} ->
            {Handle, fun() -> exit(Owner, shutdown), gone(Handle) end};
        {'DOWN', Monitor, _, _, Reason} ->
            error({not_started, Application, Reason})
    end.

%% Its name is that of its supervisor.
gone(Handle) ->
    whereis(Handle) =:= undefined orelse begin timer:sleep(10), gone(Handle) end.

get_all(_, _, []) -> ok;
get_all(cats, Table, [Key | Keys]) -> Key = cats:lookup_element(Table, Key, 2, undefined), get_all(cats, Table, Keys);
get_all(cachex, Name, [Key | Keys]) -> {ok, Key} = 'Elixir.Cachex':get(Name, Key), get_all(cachex, Name, Keys);
get_all(con_cache, Name, [Key | Keys]) -> Key = 'Elixir.ConCache':get(Name, Key), get_all(con_cache, Name, Keys);
get_all(nebulex, Module, [Key | Keys]) -> Key = Module:get(Key), get_all(nebulex, Module, Keys).

put_all(cats, Table, Keys) -> lists:foreach(fun(Key) -> true = cats:insert(Table, {Key, Key}) end, Keys);
put_all(cachex, Name, Keys) ->
    lists:foreach(fun(Key) -> {ok, true} = 'Elixir.Cachex':put(Name, Key, Key) end, Keys),
    %% Cachex evicts in a process of its own. That is a part of the work.
    ok = 'Elixir.BenchPeers':settle(Name);
put_all(con_cache, Name, Keys) -> lists:foreach(fun(Key) -> ok = 'Elixir.ConCache':put(Name, Key, Key) end, Keys);
put_all(nebulex, Module, Keys) -> lists:foreach(fun(Key) -> ok = Module:put(Key, Key) end, Keys).
