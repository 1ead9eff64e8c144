%% Caches: a hit, and an insertion into a full one. The others are Cachex, ConCache and Nebulex, where bench/cache-peers has built them.
%% Without them there are no rows of theirs. In all caches objects live for an hour. Those of cats and of Cachex have the same limit.
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
    [#{axes => [{workers, Workers}], subjects => [{"cats", cats, []} | peers()], seconds => bench_sizes:seconds(Size, 3, 10)}
     || Workers <- bench_workers:counts()].

peers() ->
    case code:which('Elixir.BenchPeers') of
        non_existing -> [];
        _ -> [{"Cachex", cachex, []}, {"ConCache", con_cache, []}, {"Nebulex", nebulex, []}]
    end.

objects(quick) -> 10_000;
objects(_) -> 100_000.

measure(Size, #{workers := Workers}, {_, Cache, _}, Seed) ->
    Objects = objects(Size),
    _ = rand:seed(exsss, Seed),
    Keys = bench_data:share(keys, fun() -> [rand:uniform(Objects) || _ <- lists:seq(1, Objects)] end),
    hits(Cache, Objects, Keys, Workers) ++ insertions(Cache, Objects, Workers).

hits(Cache, Objects, Keys, Workers) ->
    {Handle, Stop} = start(Cache, none),
    put_all(Cache, Handle, lists:seq(1, Objects)),
    Get = getter(Cache, Handle),
    Passes = passes(Cache),
    Work = fun() -> [lists:foreach(Get, Keys) || _ <- lists:seq(1, Passes)] end,
    Seconds = bench_workers:seconds(lists:duplicate(Workers, Work)),
    Stop(),
    [{[{operation, hit}], Workers * Passes * length(Keys) / Seconds}].

%% About as long for each.
passes(cats) -> 20;
passes(_) -> 1.

%% ConCache has no limit. That of Nebulex makes a new generation, and evicts no single objects.
insertions(Cache, Objects, Workers) when Cache =:= cats; Cache =:= cachex ->
    {Handle, Stop} = start(Cache, Objects),
    put_all(Cache, Handle, lists:seq(1, Objects)),
    %% Cachex evicts a tenth at once, so there must be many.
    Work = fun(Me) -> fun() -> put_all(Cache, Handle, lists:seq(Objects * Me + 1, Objects * Me + Objects)) end end,
    Seconds = bench_workers:seconds([Work(Me) || Me <- lists:seq(1, Workers)]),
    Stop(),
    [{[{operation, 'insert into a full cache'}], Workers * Objects / Seconds}];
insertions(_Cache, _Objects, _Workers) ->
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

getter(cats, Table) -> fun(Key) -> Key = cats:lookup_element(Table, Key, 2, undefined) end;
getter(cachex, Name) -> fun(Key) -> {ok, Key} = 'Elixir.Cachex':get(Name, Key) end;
getter(con_cache, Name) -> fun(Key) -> Key = 'Elixir.ConCache':get(Name, Key) end;
getter(nebulex, Module) -> fun(Key) -> Key = Module:get(Key) end.

put_all(cats, Table, Keys) -> lists:foreach(fun(Key) -> true = cats:insert(Table, {Key, Key}) end, Keys);
put_all(cachex, Name, Keys) ->
    lists:foreach(fun(Key) -> {ok, true} = 'Elixir.Cachex':put(Name, Key, Key) end, Keys),
    %% Cachex evicts in a process of its own. That is a part of the work.
    ok = 'Elixir.BenchPeers':settle(Name);
put_all(con_cache, Name, Keys) -> lists:foreach(fun(Key) -> ok = 'Elixir.ConCache':put(Name, Key, Key) end, Keys);
put_all(nebulex, Module, Keys) -> lists:foreach(fun(Key) -> ok = Module:put(Key, Key) end, Keys).
