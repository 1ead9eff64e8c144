%% A storm of combinations: processes call random functions of the whole library at tables with random options, are
%% killed, and lose their tables, while a model checks what must hold.
%%
%% A storm has rounds. Each has its own tables, workers and choice of operations, all from the seed of the storm and its
%% number. What each process does is determined by them, but not how the processes meet. A line for each round tells
%% what it has. So the last line says where a storm ended that ended the VM.
%%
%% | module | holds |
%% |---|---|
%% | `cats_storm_values' | keys and objects; each object tells whether it was written |
%% | `cats_storm_tables' | tables with random options |
%% | `cats_storm_worker' | a process that calls |
%% | `cats_storm_calls' | single calls on keys that all write |
%% | `cats_storm_own' | calls on keys that one process writes, compared with `ets' |
%% | `cats_storm_sums' | transfers and counters |
%% | `cats_storm_times' | objects whose time ends |
%% | `cats_storm_walks' | ways through tables and snapshots |
%% | `cats_storm_makers' | fetches and transactions |
%% | `cats_storm_caches' | caches of Elixir |
%% | `cats_storm_lives' | deletion, owners, copies, files |
%% | `cats_storm_quiet' | what must hold when nobody calls |
-module(cats_storm).

-import(cats_storm_values, [uniform/1, chance/1, one_of/1]).

-export([main/0, run/1]).

-type options() :: #{seed := integer(), round := pos_integer(), workers := pos_integer(),
                     operations := pos_integer() | infinity, seconds := pos_integer() | infinity}.

%% After so many milliseconds without any progress a storm stands still, if the VM is not slow (SLOWNESS).
-define(STANDSTILL, 60000).

%% @doc Runs a storm as the environment says, see `scripts/storm', and halts.
-spec main() -> no_return().
main() ->
    Get = fun(Name, Default) -> cats_test_lib:environment(Name, Default) end,
    Seconds = Get("SECONDS", 0),
    Operations = Get("OPERATIONS", 0),
    Options = #{seed => Get("SEED", erlang:phash2(make_ref(), 1 bsl 30)), round => Get("ROUND", 1),
                workers => Get("WORKERS", 4), operations => case Operations of 0 -> infinity; _ -> Operations end,
                seconds => case {Seconds, Operations} of {0, 0} -> 60; {0, _} -> infinity; _ -> Seconds end},
    halt(case run(Options) of ok -> 0; failed -> 1 end).

%% @doc Runs a storm, and prints what it does.
-spec run(options()) -> ok | failed.
run(#{seed := Seed, round := Round} = Options) ->
    io:format("storm: SEED=~b on OTP ~s~n", [Seed, erlang:system_info(otp_release)]),
    process_flag(trap_exit, true),
    ok = cats_storm_tables:start(),
    cats_storm_workers = ets:new(cats_storm_workers, [named_table, public]),
    Directory = filename:join(os:getenv("TMPDIR", "/tmp"), "cats_storm_" ++ os:getpid()),
    ok = file:make_dir(Directory),
    Begun = erlang:monotonic_time(millisecond),
    Outcome = rounds(Round, 0, Begun, Options#{directory => Directory, before => warm_up(), known => cats:all()}),
    _ = file:del_dir_r(Directory),
    Outcome.

%% What the library makes for itself is there before the first round.
warm_up() ->
    Table = cats:new(warm_up, [public]),
    {key, 1} = cats:fetch(Table, key, fun(Key) -> {Key, 1} end),
    true = cats:delete(Table),
    cats_storm_quiet:account().

rounds(Round, Done, Begun, #{operations := Operations, seconds := Seconds, seed := Seed} = Options) ->
    Elapsed = erlang:monotonic_time(millisecond) - Begun,
    case Done >= Operations orelse Seconds =/= infinity andalso Elapsed >= 1000 * Seconds of
        true ->
            io:format("storm: ~b operations in ~b s, nothing wrong~n", [Done, Elapsed div 1000]),
            ok;
        false ->
            io:format("~8b s, ~9b operations, round ~b: ", [Elapsed div 1000, Done, Round]),
            case round({Seed, Round}, Options) of
                {ok, Count} ->
                    rounds(Round + 1, Done + Count, Begun, Options);
                {wrong, Wrong} ->
                    report(Wrong),
                    io:format("To repeat it: make storm SEED=~b ROUND=~b~n", [Seed, Round]),
                    failed
            end
    end.

%%% A round

round(Seed, #{workers := Most, directory := Directory, known := Known, before := Before}) ->
    _ = rand:seed(exsss, erlang:phash2(Seed, 1 bsl 32)),
    ok = cats_storm_values:start_round(Seed, one_of([3, 20, 100, 1000])),
    ok = cats_storm_tables:start_round(),
    ok = cats_storm_sums:start_round(),
    true = ets:delete_all_objects(cats_storm_workers),
    #{workers := Workers, kinds := Kinds, topics := Few, each := Each, kills := Kills} = plan(Seed, Most),
    Progress = counters:new(Workers, []),
    {Listener, _} = spawn_monitor(fun listen/0),
    Owners = [owner(Place, Kind, Listener, one_of([0, 10, 100, 1000]))
              || {Place, Kind} <- lists:zip(lists:seq(1, length(Kinds)), Kinds)],
    ok = cats_storm_worker:start_round(#{listener => Listener, directory => Directory, places => length(Kinds),
                                         progress => Progress, operations => chosen_operations(Few)}),
    Keeper = cats_storm_caches:start_round(),
    io:format("~b workers of ~b operations, tables ~0p, kills ~p~n", [Workers, Each, Kinds, Kills]),
    Running = maps:from_list([{worker(Index, Seed, 0, Each), {Index, 0}} || Index <- lists:seq(1, Workers)]),
    Killer = spawn_link(fun() -> killer({Seed, killer}, Kills, Owners) end),
    Outcome = wait(Running, Seed, Each, Progress, {0, ?STANDSTILL * slowness()}),
    exit_and_wait(Killer),
    Wrong = case Outcome of
                ok -> checked(fun cats_storm_quiet:check/0);
                _ -> Outcome
            end,
    [exit_and_wait(Pid) || {_, Pid} <- ets:tab2list(cats_storm_workers)],
    [exit_and_wait(Owner) || {Owner, _} <- Owners],
    exit_and_wait(Listener),
    exit_and_wait(Keeper),
    case Wrong of
        ok ->
            delete_all(Known),
            case checked(fun() -> cats_storm_quiet:check_gone(Before) end) of
                ok -> {ok, Workers * Each};
                Left -> Left
            end;
        _ -> Wrong
    end.

%% A storm begins with processes that empty one cache at the same time, while it is filled.
plan({_, Round}, Most) when Round =< 3 ->
    #{workers => max(3, Most), kinds => [cache], topics => at_once, each => 10000, kills => none};
%% One in three rounds has few topics, the first of which is another one each time.
plan({_, Round}, Most) ->
    Workers = uniform(Most),
    Kinds = [kept || _ <- lists:seq(1, uniform(3) - 1)] ++ [wild || _ <- lists:seq(1, uniform(3))],
    {Few, Each} = case Round rem 3 of
                      1 -> {{few, Round div 3}, one_of([1000, 3000, 6000])};
                      _ -> one_of([{emptied, 10000}, {false, one_of([100, 300, 1000])}])
                  end,
    #{workers => Workers, kinds => Kinds, topics => Few, each => Each, kills => one_of([none, none, 50, 5])}.

checked(Check) ->
    try Check() of
        nothing -> ok;
        Wrong -> {wrong, Wrong}
    catch
        Class:Reason:Stack -> {wrong, {Class, Reason, Stack}}
    end.

%% Some rounds only fill tables and empty them, those at the begin by an exchange of all contents. Others have a few
%% topics only, which meet more often than all of them do. The rest leave some operations out and have some more often.
chosen_operations(Few) ->
    All = cats_storm_calls:operations() ++ cats_storm_own:operations() ++ cats_storm_sums:operations()
        ++ cats_storm_walks:operations()
        ++ cats_storm_makers:operations() ++ cats_storm_lives:operations() ++ cats_storm_times:operations()
        ++ cats_storm_caches:operations(),
    [_, Emptied | _] = Topics =
        [[Operation || Operation <- All, lists:member(element(2, Operation), Names)] || Names <- topics()],
    [] = All -- lists:append(Topics),
    Chosen = case Few of
                 at_once -> as_often([Operation || {_, delete_all_objects, _, _} = Operation <- Emptied]);
                 emptied -> as_often(Emptied);
                 {few, Number} ->
                     as_often(lists:nth(1 + Number rem length(Topics), Topics))
                         ++ as_often(one_of([Emptied, Emptied | Topics]));
                 false -> [setelement(1, Operation, Factor * element(1, Operation))
                           || Operation <- All, Factor <- [one_of([0, 0, 1, 1, 1, 1, 5, 20])], Factor > 0]
             end,
    Chosen ++ as_often(hd(Topics)).

%% The same operations, with weights whose sum is that of other topics.
as_often(Operations) ->
    Sum = lists:sum([Weight || {Weight, _, _, _} <- Operations]),
    [setelement(1, Operation, 1 + 1000 * element(1, Operation) div Sum) || Operation <- Operations].

%% What belongs together. The first of these is in each round, as it fits each table. The second is chosen more often,
%% as all that a table refers to changes then. The third comes early, as fetches that meet in a circle are rare.
topics() ->
    [[insert, insert_new, insert_many, lookup, brief],
     [delete_all_objects, match_delete_all, select_delete_all, init_table],
     [fetch, fetch_many, fetch_crosswise],
     [delete_table, revive, every_table],
     [fill],
     [rename, rename_kept, give_away, setopts, claim],
     [to_ets, from_ets, files],
     [cache_call, cache_own, cache_count, cache_end],
     [transaction, ordered_transaction],
     [transfer, move, audit, audit_snapshots, count_up],
     [own_call, own_transaction, own_state],
     [own_snapshot, old_snapshots, walk_snapshot],
     [walk, stable_range, stable_lookups],
     [update_counter, add, update_element],
     [update, replace],
     [lookup_many, lookup_element, lookup_elements, member],
     [take, take_many, delete, delete_many, delete_object],
     [match, match_object, select, select_reverse, select_count],
     [select_delete, match_delete, select_replace],
     [touch, ttl],
     [rank, nth, count, range],
     [first_lookup, last_lookup, next_lookup, prev_lookup, next, slot],
     [safe_fixtable, info, stats, contention]].

%%% Owners

owner(Place, Kind, Listener, Stable) ->
    Caller = self(),
    Seed = uniform(1 bsl 32),
    Owner = spawn(fun() ->
                          _ = rand:seed(exsss, Seed),
                          _ = cats_storm_values:writer(),
                          Table = cats_storm_tables:new(Place, Kind, Listener),
                          case Kind of
                              kept -> cats_storm_sums:fill(Table), cats_storm_walks:fill(Table, Stable);
                              _ -> ok
                          end,
                          Caller ! {self(), Table},
                          receive stop -> ok end
                  end),
    Monitor = monitor(process, Owner),
    receive
        {Owner, Table} -> demonitor(Monitor, [flush]), {Owner, Table};
        {'DOWN', Monitor, process, Owner, Reason} -> error(Reason)
    end.

%%% Workers

worker(Index, Seed, Life, Count) ->
    {Pid, _} = spawn_monitor(fun() -> cats_storm_worker:run(Index, {Seed, Index, Life}, Count) end),
    Pid.

wait(Running, _Seed, _Each, _Progress, _Watched) when map_size(Running) =:= 0 -> ok;
wait(Running, Seed, Each, Progress, {Before, Patience}) ->
    receive
        {'DOWN', _, process, Pid, Reason} when is_map_key(Pid, Running) ->
            {{Index, Life}, Others} = maps:take(Pid, Running),
            case Reason of
                normal ->
                    wait(Others, Seed, Each, Progress, {Before, Patience});
                killed ->
                    Next = worker(Index, Seed, Life + 1, max(0, Each - counters:get(Progress, Index))),
                    wait(Others#{Next => {Index, Life + 1}}, Seed, Each, Progress, {Before, Patience});
                _ ->
                    report_notes(maps:keys(Others)),
                    {wrong, Reason}
            end;
        {'DOWN', _, process, _Listener, Reason} when Reason =/= killed ->
            {wrong, Reason}
    after 1000 ->
            case counters_sum(Progress, map_size(Running)) of
                Before when Patience =< 0 ->
                    report_notes(maps:keys(Running)),
                    {wrong, {stands_still, [process_info(Pid, current_stacktrace) || Pid <- maps:keys(Running)]}};
                Before -> wait(Running, Seed, Each, Progress, {Before, Patience - 1000});
                Now -> wait(Running, Seed, Each, Progress, {Now, ?STANDSTILL * slowness()})
            end
    end.

slowness() -> cats_test_lib:environment("SLOWNESS", 1).

counters_sum(Progress, _) ->
    #{size := Size} = counters:info(Progress),
    lists:sum([counters:get(Progress, Index) || Index <- lists:seq(1, Size)]).

%%% Reports

report(Wrong) ->
    io:format("~nWRONG: ~0tP~n", [Wrong, 150]),
    [io:format("table ~0p of ~0p: ~0p~n", [Tid, Origin, Options])
     || #{tid := Tid, origin := Origin, options := Options} <- cats_storm_tables:all()].

%% What processes did last.
report_notes(Pids) ->
    [[io:format("~n~p: ~0tP", [Pid, Note, 15]) || Note <- cats_storm_worker:notes(Pid)] || Pid <- Pids].

%%% Kills

%% Kills workers, and owners whose tables may go with them, at any instant: one in so many milliseconds.
killer(_Seed, none, _Owners) -> receive stop -> ok end;
killer(Seed, Pause, Owners) ->
    _ = rand:seed(exsss, erlang:phash2(Seed, 1 bsl 32)),
    Mortal = [Owner || {Owner, Table} <- Owners,
                       lists:any(fun(Feature) -> cats_storm_tables:has(Feature, Table) end, [wild, heir, inherited])],
    kill(Pause, Mortal).

kill(Pause, Owners) ->
    timer:sleep(uniform(2 * Pause)),
    Workers = [Pid || {_, Pid} <- ets:tab2list(cats_storm_workers)],
    case Owners =/= [] andalso chance(10) of
        true -> exit(one_of(Owners), kill);
        false when Workers =/= [] -> exit(one_of(Workers), kill);
        false -> ok
    end,
    kill(Pause, Owners).

exit_and_wait(Pid) ->
    Monitor = monitor(process, Pid),
    exit(Pid, kill),
    receive {'DOWN', Monitor, _, _, _} -> ok end.

%%% What tables tell

%% Takes what tables tell of removed objects, and the tables that it inherits.
listen() ->
    receive
        {cats_removed, Id} ->
            case cats_storm_calls:outcome(fun() -> cats:removed(Id) end) of
                {returned, {Removed, Lost}} when is_integer(Lost), Lost >= 0 ->
                    lists:foreach(fun({What, Told}) -> told(Id, What, Told) end, Removed);
                {badarg, _} -> ok
            end;
        {'ETS-TRANSFER', Tid, _, storm} ->
            [inherit(Table) || #{tid := Known} = Table <- cats_storm_tables:all(), Known =:= Tid]
    end,
    listen().

%% Nobody takes away a table that is kept. Others go on to a worker at times.
inherit(#{tid := Tid} = Table) ->
    case {cats_storm_tables:has(kept, Table), cats:info(Tid, owner)} of
        {true, Owner} when Owner =/= self() -> exit({wrong, {owner, Table, Owner}});
        {true, _} -> ok;
        {false, _} ->
            chance(50)
                andalso cats_storm_calls:outcome(fun() -> cats:give_away(Tid, cats_storm_worker:other(), storm) end)
    end.

told(Id, What, Told) when What =:= expired; What =:= evicted ->
    [case cats_storm_values:wrong(Table, Told) of
         nothing -> ok;
         Wrong -> exit({wrong, {told, Wrong}})
     end || #{tid := Tid, options := Options} = Table <- cats_storm_tables:all(), Tid =:= Id,
            {notify, _, Settings} <- Options, lists:member({send, objects}, Settings)].

%%% The end of a round

%% A table that nobody may write needs an owner first. A table that goes from a dead owner to nobody may be missing in a
%% list.
delete_all(Kept) ->
    cats_test_lib:eventually(fun() ->
                                     Left = cats:all() -- Kept,
                                     [delete(Table) || Table <- Left],
                                     Left =:= [] andalso [] =:= [Tid || #{tid := Tid} <- cats_storm_tables:all(),
                                                                        cats:info(Tid, id) =:= Tid]
                             end).

delete(Table) ->
    _ = cats_storm_calls:outcome(fun() -> cats:claim(Table) end),
    cats_storm_calls:outcome(fun() -> cats:delete(Table) end).
