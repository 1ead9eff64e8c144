%% What option `notify' costs those who write: insertions into a table that tells a process what it removes by itself.
%% The process comes for it, is suspended, or has ended.
-module(bench_notices).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

about() ->
    #{title => "Insertions into a table that tells what it removes", source => "option notify of cats:new/2",
      unit => "ns", better => lower, x => removal, scale => category}.

points(Size) ->
    [#{axes => [{removal, Removal}], seconds => bench_sizes:seconds(Size, 0.5, 3),
       subjects => [{Name, cats, [Removal, Receiver]}
                    || {Name, Receiver} <- [{"nobody", none}, {"one that comes", comes}, {"a suspended one", suspended},
                                            {"a dead one", dead}]]}
     || Removal <- [evicted, expired]].

-define(OBJECTS, 10_000).

loops(quick) -> 10;
loops(_) -> 100.

measure(Size, _Axes, {_, cats, [Removal, Receiver]}, _Seed) ->
    Pid = receiver(Receiver),
    Table = cats:new(notices, [public, option(Removal) | [{notify, Pid, [{interval, 10}]} || Pid =/= none]]),
    Insert = fun(Loop) -> fun() -> insert(Table, Loop * ?OBJECTS, ?OBJECTS) end end,
    %% The first loops fill the table, and the queue of one that does not come.
    _ = [bench_workers:seconds([Insert(Loop)]) || Loop <- [-1, -2, -3]],
    Receiver =:= dead andalso until(fun() -> cats:info(Table, notify) =:= undefined end),
    Fastest = lists:min([bench_workers:seconds([Insert(Loop)]) || Loop <- lists:seq(1, loops(Size))]),
    true = cats:delete(Table),
    _ = Pid =/= none andalso exit(Pid, kill),
    [{[], 1.0e9 * Fastest / ?OBJECTS}].

%% Objects that expire are some thousand at a time.
option(evicted) -> {limit, {objects, ?OBJECTS}};
option(expired) -> {ttl, 20}.

insert(_Table, _Key, 0) ->
    ok;
insert(Table, Key, Left) ->
    true = cats:insert(Table, {Key, Left, Key}),
    insert(Table, Key + 1, Left - 1).

receiver(none) ->
    none;
receiver(comes) ->
    spawn(fun comes/0);
receiver(suspended) ->
    Pid = spawn(fun comes/0),
    true = erlang:suspend_process(Pid),
    Pid;
receiver(dead) ->
    {Pid, Monitor} = spawn_monitor(fun() -> ok end),
    receive {'DOWN', Monitor, _, _, _} -> Pid end.

comes() ->
    receive {cats_removed, Table} -> _ = cats:removed(Table) end,
    comes().

until(Condition) ->
    Condition() orelse begin timer:sleep(10), until(Condition) end.
