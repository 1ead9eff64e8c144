%% Three nodes of Mnesia on one machine, on ets and on cats. Clients move money between accounts all the time. Each
%% scenario must end the same way on both: the sum of all accounts stays, and all copies of a table are equal.
%% CATS_CLUSTER_MS is the time of each load.
-module(cats_cluster_SUITE).
-include_lib("stdlib/include/assert.hrl").
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([killed/1, partitioned/1, copies/1, migrated/1, copy_on_disk/1]).
-export([start/2, client/2, clients/1, stop_clients/1, contents/1]).

-define(ACCOUNTS, 50).
-define(TABLES, [account, disc_account]).

suite() -> [{timetrap, {minutes, 10}}].

all() -> [killed, partitioned, copies, migrated, copy_on_disk].

init_per_suite(Config) ->
    Out = filename:join(proplists:get_value(priv_dir, Config), "recompiled"),
    {ok, _, _} = cats_recompile:apps([mnesia], Out),
    [{recompiled, filename:join(Out, "mnesia/ebin")} | Config].

end_per_suite(_Config) -> ok.

init_per_testcase(Case, Config) ->
    [{directory, filename:join(proplists:get_value(priv_dir, Config), Case)} | Config].

end_per_testcase(_Case, _Config) -> ok.

%% The scenario has the same result on both.
both(Scenario, Config) ->
    [OnEts, OnCats] = [told(Kind, fun() ->
                                          Scenario([{kinds, lists:duplicate(3, Kind)},
                                                    {directory, filename:join(directory(Config), Kind)}
                                                    | Config])
                                  end, Config) || Kind <- [ets, cats]],
    ?assertEqual(OnEts, OnCats).

%% Prints how many transfers the clients did in a scenario.
told(Kind, Scenario, Config) ->
    _ = put(transfers, 0),
    Result = Scenario(),
    io:format(user, "cluster: ~s on ~s: ~b transfers~n", [filename:basename(directory(Config)), Kind, get(transfers)]),
    Result.

%% A node dies without warning, and loads the tables from the others when it is back.
killed(Config) -> both(fun killed_scenario/1, Config).

killed_scenario(Config) ->
    [A, B, C] = Nodes = cluster(Config),
    load([A, B, C]),
    kill(C),
    load([A, B]),
    Sum = balance(A),
    C2 = start_node(C, Config),
    ok = join(C2),
    load([A, B, C2]),
    end_of([A, B, C2], {Sum, length(Nodes)}).

%% Two nodes lose the third, and all go on. The third then takes the tables of the others.
partitioned(Config) -> both(fun partitioned_scenario/1, Config).

partitioned_scenario(Config) ->
    [A, B, C] = cluster(Config),
    load([A, B, C]),
    cut(C, [A, B]),
    [ok = until(fun() -> not lists:member(name(C), call(N, mnesia, system_info, [running_db_nodes])) end)
     || N <- [A, B]],
    load([A, B]),
    ok = call(C, mnesia, dirty_write, [{account, 1, 1000000}]),
    Torn = {balance(A), balance(C) =:= balance(A)},
    mend(C, [A, B]),
    ok = call(C, mnesia, set_master_nodes, [[name(A)]]),
    stopped = call(C, mnesia, stop, []),
    ok = join(C),
    load([A, B, C]),
    end_of([A, B, C], Torn).

%% Copies come, move and go while clients work.
copies(Config) -> both(fun copies_scenario/1, Config).

copies_scenario(Config) ->
    [A, B, C] = Nodes = cluster(Config),
    Clients = [call(N, ?MODULE, clients, [2]) || N <- Nodes],
    Done = [begin
                timer:sleep(duration() div 8),
                call(A, mnesia, Function, Arguments)
            end || Table <- ?TABLES, Storage <- [case Table of account -> ram_copies; _ -> disc_copies end],
                   {Function, Arguments} <- [{del_table_copy, [Table, name(C)]},
                                             {add_table_copy, [Table, name(C), Storage]},
                                             {del_table_copy, [Table, name(B)]},
                                             {move_table_copy, [Table, name(C), name(B)]},
                                             {add_table_copy, [Table, name(C), Storage]}]],
    stop_all(Nodes, Clients),
    end_of(Nodes, Done).

%% The nodes change one by one from ets to cats, and back, while the others work. So both kinds are in one cluster.
migrated(Config) -> told("ets and cats", fun() -> migrated_scenario(Config) end, Config).

migrated_scenario(Config) ->
    Nodes = cluster([{kinds, [ets, ets, ets]} | Config]),
    Both = lists:foldl(fun({Number, Kind}, Now) ->
                               {Before, [Old | Behind]} = lists:split(Number - 1, Now),
                               Clients = [{N, call(N, ?MODULE, clients, [2])} || N <- Before ++ Behind],
                               stopped = call(Old, mnesia, stop, []),
                               kill(Old),
                               timer:sleep(duration() div 8),
                               New = start_node(Old#{kind := Kind}, Config),
                               ok = join(New),
                               timer:sleep(duration() div 8),
                               [stop_all([N], [Started]) || {N, Started} <- Clients],
                               Now2 = Before ++ [New | Behind],
                               load(Now2),
                               equal(Now2),
                               Now2
                       end, Nodes, [{Number, Kind} || Kind <- [cats, ets], Number <- [1, 2, 3]]),
    end_of(Both, done).

%% A table has a copy on disk in one node, and one of cats_copies in another. Both nodes die, first the one with the
%% disk. They start in the same order, or in the other one. With master nodes, the table has what the disk has. Without
%% them, it may be empty.
copy_on_disk(Config) ->
    [begin
         Nodes = [Disk, Memory] =
             [start_node(#{number => Number, kind => ets, directory => filename:join(directory(Config), Order)}, Config)
              || Number <- [1, 2]],
         Names = [name(N) || N <- Nodes],
         pong = call(Disk, net_adm, ping, [name(Memory)]),
         ok = call(Disk, mnesia, create_schema, [Names]),
         [ok = call(N, mnesia, start, []) || N <- Nodes],
         {atomic, ok} = call(Disk, mnesia, add_backend_type, [cats_copies, cats_mnesia]),
         {atomic, ok} = call(Disk, mnesia, create_table,
                             [account, [{disc_copies, [name(Disk)]}, {cats_copies, [name(Memory)]}]]),
         [ok = call(N, mnesia, set_master_nodes, [account, [name(Disk)]]) || N <- Nodes],
         ok = call(Memory, mnesia, activity, [sync_transaction, fun mnesia:write/1, [{account, 1, 100}], mnesia]),
         [?assertEqual([{account, 1, 100}], call(N, ?MODULE, contents, [account])) || N <- Nodes],
         ok = call(Disk, mnesia, sync_log, []),
         ?assertEqual([false, true], [lists:member(account, call(N, cats, all, [])) || N <- Nodes]),
         kill(Disk),
         ok = until(fun() -> call(Memory, mnesia, system_info, [running_db_nodes]) =:= [name(Memory)] end),
         kill(Memory),
         Started = [begin
                        Again = start_node(N, Config),
                        ok = call(Again, mnesia, start, []),
                        Again
                    end || N <- in(Order, Nodes)],
         [begin
              ok = call(N, mnesia, wait_for_tables, [[account], 60000]),
              ?assertEqual([{account, 1, 100}], call(N, ?MODULE, contents, [account]))
          end || N <- Started],
         [ok = peer:stop(Peer) || #{peer := Peer} <- Started]
     end || Order <- [same, other]].

in(same, Nodes) -> Nodes;
in(other, Nodes) -> lists:reverse(Nodes).

directory(Config) -> proplists:get_value(directory, Config).

%%------------------------------------------------------------------------------------------------------------
%% Nodes

duration() -> list_to_integer(os:getenv("CATS_CLUSTER_MS", "300")).

cluster(Config) ->
    Nodes = [start_node(#{number => Number, kind => Kind, directory => directory(Config)}, Config)
             || {Number, Kind} <- lists:zip([1, 2, 3], proplists:get_value(kinds, Config))],
    Names = [name(N) || N <- Nodes],
    [pong = call(hd(Nodes), net_adm, ping, [Name]) || Name <- Names],
    ok = call(hd(Nodes), mnesia, create_schema, [Names]),
    [ok = call(N, mnesia, start, []) || N <- Nodes],
    [{atomic, ok} = call(hd(Nodes), mnesia, create_table, [Table, [{Storage, Names}]])
     || {Table, Storage} <- [{account, ram_copies}, {disc_account, disc_copies}]],
    [ok = call(hd(Nodes), mnesia, dirty_write, [{Table, Key, 100}])
     || Table <- ?TABLES, Key <- lists:seq(1, ?ACCOUNTS)],
    [ok = call(N, mnesia, wait_for_tables, [?TABLES, 60000]) || N <- Nodes],
    check_kinds(Nodes),
    Nodes.

%% A node of a kind. It is controlled by its standard input, whatever its connections to others.
start_node(#{number := Number, kind := Kind, directory := Directory} = Node, Config) ->
    Path = [filename:dirname(code:which(cats)), filename:dirname(code:which(?MODULE))]
        ++ [proplists:get_value(recompiled, Config) || Kind =:= cats],
    Name = list_to_atom(lists:concat(["cats_cluster_", os:getpid(), "_", Number])),
    Dir = filename:join(Directory, integer_to_list(Number)),
    ok = filelib:ensure_path(Dir),
    {ok, Peer, Full} =
        peer:start_link(#{name => Name, host => "localhost", connection => standard_io, wait_boot => 60000,
                          args => ["-setcookie", "cats_cluster", "-kernel", "prevent_overlapping_partitions", "false",
                                   "-mnesia", "dir", "\"" ++ Dir ++ "\"", "-pa" | Path]}),
    Node#{peer => Peer, name => Full}.

name(#{name := Name}) -> Name.

call(#{peer := Peer}, Module, Function, Arguments) -> peer:call(Peer, Module, Function, Arguments, 120000).

%% As by the kernel: nothing is flushed or closed.
kill(#{peer := Peer} = Node) ->
    unlink(Peer),
    Monitor = monitor(process, Peer),
    _ = os:cmd("kill -9 " ++ call(Node, os, getpid, [])),
    receive {'DOWN', Monitor, process, Peer, _} -> ok end.

join(Node) ->
    ok = call(Node, mnesia, start, []),
    call(Node, mnesia, wait_for_tables, [?TABLES, 60000]).

cut(Node, Others) ->
    [begin
         true = call(Node, erlang, set_cookie, [name(Other), cut]),
         true = call(Other, erlang, set_cookie, [name(Node), cut_too]),
         _ = call(Node, erlang, disconnect_node, [name(Other)])
     end || Other <- Others].

mend(Node, Others) ->
    [begin
         true = call(Node, erlang, set_cookie, [name(Other), cats_cluster]),
         true = call(Other, erlang, set_cookie, [name(Node), cats_cluster])
     end || Other <- Others],
    [pong = call(Node, net_adm, ping, [name(Other)]) || Other <- Others].

%% The tables are where the kind of the node says.
check_kinds(Nodes) ->
    [?assertEqual({Kind, Kind =:= cats}, {Kind, lists:member(account, call(N, cats, all, []))})
     || #{kind := Kind} = N <- Nodes].

%% The end: all copies are equal, the sum is there, and the tables are of the right kind.
end_of(Nodes, Result) ->
    equal(Nodes),
    check_kinds(Nodes),
    ?assertEqual([?ACCOUNTS * 100 || _ <- ?TABLES], balance(hd(Nodes))),
    [ok = peer:stop(Peer) || #{peer := Peer} <- Nodes],
    Result.

%% A transaction returns before its commit has come to all nodes (mnesia:sync_transaction/1 would wait), so the last one
%% may be on its way.
equal(Nodes) ->
    [ok = until(fun() -> length(lists:usort([call(N, ?MODULE, contents, [Table]) || N <- Nodes])) =:= 1 end)
     || Table <- ?TABLES].

balance(Node) -> [lists:sum([Amount || {_, _, Amount} <- call(Node, ?MODULE, contents, [Table])]) || Table <- ?TABLES].

until(Condition) -> until(Condition, 600).

until(Condition, Rest) when Rest > 0 ->
    case Condition() of
        true -> ok;
        false -> timer:sleep(100), until(Condition, Rest - 1)
    end.

%%------------------------------------------------------------------------------------------------------------
%% Clients

load(Nodes) ->
    Clients = [call(N, ?MODULE, clients, [2]) || N <- Nodes],
    timer:sleep(duration()),
    stop_all(Nodes, Clients).

%% Every client does something before it ends.
stop_all(Nodes, Clients) ->
    [put(transfers, get(transfers) + lists:sum(call(N, ?MODULE, stop_clients, [Started])))
     || {N, Started} <- lists:zip(Nodes, Clients)].

%% In a node.
clients(Number) -> [spawn(?MODULE, start, [Table, Seed]) || Table <- ?TABLES, Seed <- lists:seq(1, Number)].

stop_clients(Clients) ->
    [Client ! {stop, self()} || Client <- Clients],
    [receive {Client, Done} -> Done end || Client <- Clients].

contents(Table) -> lists:sort(mnesia:dirty_select(Table, [{'_', [], ['$_']}])).

start(Table, Seed) ->
    _ = rand:seed(exsss, {Seed, erlang:phash2(node()), 1}),
    client(Table, 0).

client(Table, Done) ->
    [From, To] = [rand:uniform(?ACCOUNTS) || _ <- [1, 2]],
    Amount = rand:uniform(10),
    Move = fun() ->
                   [{_, _, Has}] = mnesia:read(Table, From, write),
                   ok = mnesia:write({Table, From, Has - Amount}),
                   [{_, _, Gets}] = mnesia:read(Table, To, write),
                   ok = mnesia:write({Table, To, Gets + Amount})
           end,
    %% A transaction may end aborted when a node or a copy goes.
    Sum = case mnesia:transaction(Move) of
              {atomic, ok} -> Done + 1;
              {aborted, _} -> Done
          end,
    receive {stop, From2} when Sum > 0 -> From2 ! {self(), Sum} after 0 -> client(Table, Sum) end.
