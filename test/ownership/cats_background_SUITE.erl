%% What cats does behind the calls. An owner's death is always followed by the transfer to the heir and by reclamation.
%% An idle VM sleeps. A copy of the library at a second path can be loaded.
-module(cats_background_SUITE).
-measures([memory_after_the_application, memory_of_replaced_objects, idle_vm_sleeps]).
-include_lib("stdlib/include/assert.hrl").
-export([all/0, suite/0, init_per_testcase/2, end_per_testcase/2]).
-export([heir_after_the_application/1, memory_after_the_application/1, heir_gets_large_data/1, heirs_of_many_tables/1,
         new_while_processes_are_killed/1, memory_of_replaced_objects/1, idle_vm_sleeps/1, library_at_a_second_path/1,
         another_library_at_a_second_path/1, another_library_after_a_purge/1, library_gone_from_the_first_path/1,
         threads_are_not_bound/1]).
-export([use_tables/0, log/2, processors/0]).

suite() -> [{timetrap, {minutes, 10}}].

all() ->
    [heir_after_the_application, memory_after_the_application, heir_gets_large_data, heirs_of_many_tables,
     new_while_processes_are_killed, memory_of_replaced_objects, idle_vm_sleeps, library_at_a_second_path,
     another_library_at_a_second_path, another_library_after_a_purge, library_gone_from_the_first_path,
     threads_are_not_bound].

init_per_testcase(Case, Config) when Case =:= memory_after_the_application; Case =:= memory_of_replaced_objects ->
    cats_test_lib:only_cats(cats_test_lib:with_memory(Config));
init_per_testcase(_Case, Config) ->
    cats_test_lib:only_cats(Config).

end_per_testcase(_Case, _Config) ->
    _ = application:stop(cats),
    ok.

%%------------------------------------------------------------------------------------------------------------
%% Deaths of owners

%% Ways to end what cats may have running.
endings() ->
    [fun() -> application:stop(cats) end,
     fun() -> kill_processes() end,
     fun() -> [attempt(fun() -> gen_server:call(Process, unknown, 1000) end) || Process <- processes_of_cats()] end,
     fun() -> [attempt(fun() -> sys:terminate(Process, normal, 1000) end) || Process <- processes_of_cats()] end,
     fun() -> [kill_processes() || _ <- lists:seq(1, 100)] end].

attempt(Fun) ->
    try Fun() catch _:_ -> failed end.

processes_of_cats() ->
    [whereis(Name) || Name <- registered(), is_pid(whereis(Name)), lists:prefix("cats_", atom_to_list(Name)),
                      not lists:suffix("SUITE", atom_to_list(Name))].

kill_processes() ->
    [cats_test_lib:in_process(fun() -> cats_test_lib:stop(Process, kill) end) || Process <- processes_of_cats()],
    ok.

heir_after_the_application(_Config) ->
    [begin
         {ok, _} = application:ensure_all_started(cats),
         Self = self(),
         {Owner, Table} = cats_test_lib:spawn_owner(fun() -> cats:new(t, [{heir, Self, data}]) end),
         End(),
         timer:sleep(100),
         End(),
         cats_test_lib:stop(Owner, kill),
         receive {'ETS-TRANSFER', Table, Owner, data} -> ok after 60000 -> ct:fail(no_transfer) end,
         true = cats:delete(Table),
         _ = application:stop(cats)
     end || End <- endings()],
    ok.

%% No call of cats looks whether the memory is back: a call would do a part of the work itself.
memory_after_the_application(_Config) ->
    [begin
         {ok, _} = application:ensure_all_started(cats),
         Before = erlang:memory(binary),
         {Owner, _} = cats_test_lib:spawn_owner(fun() ->
                                                    Table = cats:new(t, []),
                                                    [cats:insert(Table, {N, rand:bytes(100000)})
                                                     || N <- lists:seq(1, 100)],
                                                    Table
                                                end),
         End(),
         timer:sleep(100),
         End(),
         true = erlang:memory(binary) > Before + 9000000,
         cats_test_lib:stop(Owner, kill),
         cats_test_lib:eventually(fun() -> erlang:memory(binary) < Before + 1000000 end, 5000),
         _ = application:stop(cats)
     end || End <- endings()],
    ok.

%% The message is made outside any process.
heir_gets_large_data(_Config) ->
    Self = self(),
    Data = [#{{key, N} => [{N, float(N), <<N:4000>>, "text", 1 bsl 100 + N}]} || N <- lists:seq(1, 5000)]
        ++ [make_ref(), self(), fun erlang:abs/1, fun() -> Self end, <<1:7>>, rand:bytes(1000000)],
    [begin
         {Owner, Table} = cats_test_lib:spawn_owner(fun() -> cats:new(t, [{heir, Self, Term}]) end),
         cats_test_lib:stop(Owner, kill),
         receive {'ETS-TRANSFER', Table, Owner, Term} -> ok after 60000 -> ct:fail(no_transfer) end,
         true = cats:delete(Table)
     end || Term <- [Data | Data]],
    ok.

%% Many owners, of which each has many tables, die at once. The heirs get all that were not deleted.
heirs_of_many_tables(_Config) ->
    Self = self(),
    Owners = [cats_test_lib:spawn_owner(fun() -> [cats:new(t, [{heir, Self, N}]) || N <- lists:seq(1, 100)] end)
              || _ <- lists:seq(1, 100)],
    [exit(Owner, kill) || {Owner, _} <- Owners],
    [receive {'ETS-TRANSFER', Table, Owner, _} -> true = cats:delete(Table) after 60000 -> ct:fail(no_transfer) end
     || {Owner, Tables} <- Owners, Table <- Tables],
    ok.

new_while_processes_are_killed(_Config) ->
    {ok, _} = application:ensure_all_started(cats),
    Killer = spawn_link(fun Kill() -> kill_processes(), erlang:yield(), Kill() end),
    [cats:delete(cats:new(t, [])) || _ <- lists:seq(1, 20000)],
    unlink(Killer),
    cats_test_lib:stop(Killer, kill).

%%------------------------------------------------------------------------------------------------------------
%% An idle VM

%% What was replaced is freed, although nothing wakes anybody after the last call.
memory_of_replaced_objects(_Config) ->
    _ = application:stop(cats),
    Table = cats:new(t, []),
    Binary = rand:bytes(50000),
    {Pid, ok} = cats_test_lib:spawn_owner(
                  fun() ->
                      [cats:new(t, []) || _ <- lists:seq(1, 3)],
                      ok
                  end),
    Before = erlang:memory(binary),
    [begin
         true = cats:insert(Table, {1, rand:bytes(500000)}),
         true = cats:insert(Table, {1, Binary}),
         erlang:garbage_collect(),
         cats_test_lib:eventually(fun() -> erlang:memory(binary) < Before + 100000 end, 4000)
     end || _ <- lists:seq(1, 3)],
    cats_test_lib:stop(Pid, kill),
    true = cats:delete(Table).

%% How often the threads of a VM wake in three seconds, without cats and with tables that have been used.
idle_vm_sleeps(_Config) ->
    case filelib:is_file("/proc/self/task") of
        false -> {skip, "no /proc"};
        true ->
            [Without, With] =
                cats_test_lib:together([fun() -> wakeups(Use) end
                                        || Use <- [fun(_Peer) -> ok end,
                                                   fun(P) -> peer:call(P, ?MODULE, use_tables, [], infinity) end]]),
            ct:pal("wakeups in 3 s: without cats ~p, with cats ~p", [Without, With]),
            ?assert(With =< Without + 1, {Without, With})
    end.

wakeups(Use) ->
    Peer = cats_test_lib:start_peer(["-pa" | code:get_path()]),
    Use(Peer),
    Pid = peer:call(Peer, os, getpid, [], infinity),
    timer:sleep(6000),
    Count = lists:min([begin
                           Before = switches(Pid),
                           timer:sleep(3000),
                           switches(Pid) - Before
                       end || _ <- [1, 2, 3]]),
    peer:stop(Peer),
    Count.

switches(Pid) ->
    lists:sum([begin
                   {ok, Status} = file:read_file(File),
                   {match, [Number]} = re:run(Status, "\nvoluntary_ctxt_switches:\\s+(\\d+)",
                                              [{capture, all_but_first, list}]),
                   list_to_integer(Number)
               end || File <- filelib:wildcard("/proc/" ++ Pid ++ "/task/*/status")]).

%% Tables of all types, used by many processes that still live, some with terms that the VM holds.
use_tables() ->
    {ok, _} = application:ensure_all_started(cats),
    Owner = spawn(fun() -> owner() end),
    Owner ! {use, self()},
    receive {Owner, used} -> ok end.

owner() ->
    receive
        {use, From} ->
            Tables = [cats:new(t, [Type, public]) || Type <- [set, ordered_set, bag, duplicate_bag]],
            Users = [spawn(fun() -> user(Tables), From ! {self(), done}, receive stop -> Tables end end)
                     || _ <- lists:seq(1, 8)],
            [receive {User, done} -> ok after 0 -> ok end || User <- Users],
            [cats:delete(cats:new(t, [])) || _ <- lists:seq(1, 100)],
            user(Tables),
            From ! {self(), used},
            receive stop -> {Tables, Users} end
    end.

user(Tables) ->
    [begin
         cats:insert(Table, {N rem 500, N, fun() -> N end, make_ref(), rand:bytes(N rem 300)}),
         N rem 3 =:= 0 andalso cats:delete(Table, N rem 400)
     end || Table <- Tables, N <- lists:seq(1, 3000)].

%%------------------------------------------------------------------------------------------------------------
%% The library at a second path

%% A peer with cats at a path, and a copy of it at another one.
with_copies(Config, Change, Do) ->
    Home = filename:dirname(filename:dirname(code:which(cats_nif))),
    [First, Second] = [filename:join([proplists:get_value(priv_dir, Config), Name, "cats"])
                       || Name <- ["first", "second"]],
    [copy(Home, Directory) || Directory <- [First, Second]],
    Change(filename:join(Second, "priv/cats_nif.so")),
    Peer = cats_test_lib:start_peer(["-pa", filename:join(First, "ebin"), filename:dirname(code:which(?MODULE))]),
    Call = fun(Module, Function, Arguments) -> peer:call(Peer, Module, Function, Arguments, infinity) end,
    try Do(Call, First, Second)
    after peer:stop(Peer)
    end.

copy(From, To) ->
    [begin
         File = filename:join([To, Directory, filename:basename(Name)]),
         ok = filelib:ensure_dir(File),
         _ = file:delete(File),
         {ok, _} = file:copy(Name, File)
     end || Directory <- ["ebin", "priv"], Name <- filelib:wildcard(filename:join([From, Directory, "*"])),
            filelib:is_regular(Name)],
    ok.

change_nothing(_Library) -> ok.

append(Library) -> ok = file:write_file(Library, <<0>>, [append]).

%% A table that a process of the peer keeps.
make_table(Call) ->
    Call(erl_eval, expr, [element(2, parse("spawn(fun() -> seen = cats:new(seen, [public, named_table]), "
                                           "receive stop -> ok end end)")), []]),
    cats_test_lib:eventually(fun() -> Call(cats, info, [seen]) =/= undefined end).

parse(Text) ->
    {ok, Tokens, _} = erl_scan:string(Text ++ "."),
    {ok, [Expression]} = erl_parse:parse_exprs(Tokens),
    {ok, Expression}.

load_second(Call, Second) ->
    true = Call(code, add_patha, [filename:join(Second, "ebin")]),
    Call(code, purge, [cats_nif]),
    Call(code, load_file, [cats_nif]).

library_at_a_second_path(Config) ->
    with_copies(Config, fun change_nothing/1,
                fun(Call, _First, Second) ->
                        make_table(Call),
                        {module, cats_nif} = load_second(Call, Second),
                        true = Call(cats, insert, [seen, {1}]),
                        Call(code, purge, [cats_nif]),
                        Call(code, delete, [cats_nif]),
                        Call(code, purge, [cats_nif]),
                        {module, cats_nif} = Call(code, load_file, [cats_nif]),
                        [{1}] = Call(cats, lookup, [seen, 1])
                end).

another_library_at_a_second_path(Config) ->
    with_copies(Config, fun append/1,
                fun(Call, First, Second) ->
                        make_table(Call),
                        ok = Call(logger, add_handler, [?MODULE, ?MODULE, #{}]),
                        {error, on_load_failure} = load_second(Call, Second),
                        true = Call(cats, insert, [seen, {1}]),
                        Reports = fun() -> [Text || {{?MODULE, _}, Text} <- Call(persistent_term, get, [])] end,
                        Parts = ["another build"
                                 | [filename:join(Copy, "priv/cats_nif.so") || Copy <- [First, Second]]],
                        Has = fun(Text) -> fun(Part) -> string:find(Text, Part) =/= nomatch end end,
                        IsRefusal = fun(Text) -> lists:all(Has(Text), Parts) end,
                        cats_test_lib:eventually(fun() -> lists:any(IsRefusal, Reports()) end)
                end).

%% A report of the peer, as text.
log(Event, _Config) ->
    persistent_term:put({?MODULE, make_ref()},
                        lists:flatten(logger_formatter:format(Event,
                                                              #{single_line => true, chars_limit => unlimited}))).

%% Tables outlive the module, so a purge does not make room for another library.
another_library_after_a_purge(Config) ->
    with_copies(Config, fun append/1,
                fun(Call, _First, Second) ->
                        make_table(Call),
                        Call(code, delete, [cats_nif]),
                        Call(code, purge, [cats_nif]),
                        {module, cats_nif} = load_second(Call, Second),
                        ?assertError({cats_nif_not_loaded, _}, Call(cats, lookup, [seen, 1]))
                end).

library_gone_from_the_first_path(Config) ->
    with_copies(Config, fun change_nothing/1,
                fun(Call, First, Second) ->
                        make_table(Call),
                        ok = file:delete(filename:join(First, "priv/cats_nif.so")),
                        {module, cats_nif} = load_second(Call, Second),
                        true = Call(cats, insert, [seen, {1}])
                end).

%%------------------------------------------------------------------------------------------------------------
%% Where the threads run

%% A scheduler that is bound to a processor begins them, and they run wherever the process may all the same.
threads_are_not_bound(_Config) ->
    case filelib:is_regular("/proc/self/status") of
        true ->
            Peer = cats_test_lib:start_peer(["+sbt", "db", "-pa" | code:get_path()]),
            {Bound, All, Threads} = peer:call(Peer, ?MODULE, processors, [], infinity),
            peer:stop(Peer),
            ct:log("schedulers: ~p, process: ~s, threads: ~p", [Bound, All, Threads]),
            ?assertEqual([{"cats_memory", All}, {"cats_reaper", All}], Threads);
        false ->
            {skip, "this system does not tell where threads may run"}
    end.

%% @doc Where schedulers are bound, and the processors that Linux allows the process and each thread of cats.
processors() ->
    Table = cats:new(table, []),
    [true = cats:insert(Table, {N, N, N}) || N <- lists:seq(1, 300000)],
    Threads = [{field("Name", File), field("Cpus_allowed_list", File)}
               || File <- filelib:wildcard("/proc/self/task/*/status")],
    {erlang:system_info(scheduler_bindings), field("Cpus_allowed_list", "/proc/self/status"),
     lists:sort([Thread || {"cats_" ++ _, _} = Thread <- Threads])}.

field(Name, File) ->
    {ok, Text} = file:read_file(File),
    {match, [Value]} = re:run(Text, "^" ++ Name ++ ":\\s*(\\S+)", [multiline, {capture, all_but_first, list}]),
    Value.
