%% What must not hurt: large tables going away, processes killed in the middle of calls, the module loaded
%% again. No call and no process is held for long, nothing stays locked, no memory stays behind.
-module(cats_robustness_SUITE).
-measures([deleting_a_large_table_holds_nobody, killing_the_owner_of_a_large_table_holds_nobody,
           emptying_a_large_table_holds_nobody, freeing_an_object_of_many_funs_holds_nobody, memory_of_small_tables]).
-include_lib("stdlib/include/assert.hrl").
-include("cats_failure.hrl").
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([deleting_a_large_table_holds_nobody/1, killing_the_owner_of_a_large_table_holds_nobody/1,
         emptying_a_large_table_holds_nobody/1, freeing_an_object_of_many_funs_holds_nobody/1, memory_comes_back/1,
         memory_of_replaced_objects_comes_back/1, killed_in_the_middle/1, loading_again_keeps_tables/1,
         many_keys_at_once/1, keys_of_what_is_found/1, lists_of_operations/1, many_large_keys/1,
         packed_objects/1, heap_for_results/1, memory_of_small_tables/1, many_tables/3]).

-define(T, (cats_test_lib:tables())).

suite() -> [{timetrap, {minutes, 30}}].

all() ->
    [deleting_a_large_table_holds_nobody, killing_the_owner_of_a_large_table_holds_nobody,
     emptying_a_large_table_holds_nobody, freeing_an_object_of_many_funs_holds_nobody,
     memory_comes_back, memory_of_replaced_objects_comes_back, killed_in_the_middle,
     loading_again_keeps_tables, many_keys_at_once, keys_of_what_is_found,
     lists_of_operations, many_large_keys, packed_objects, heap_for_results, memory_of_small_tables].

init_per_suite(Config) -> cats_test_lib:start(Config).

end_per_suite(_Config) -> ok.

init_per_testcase(Case, Config)
    when Case =:= memory_comes_back; Case =:= memory_of_replaced_objects_comes_back;
                                     Case =:= loading_again_keeps_tables; Case =:= many_keys_at_once;
                                     Case =:= lists_of_operations; Case =:= many_large_keys;
                                     Case =:= packed_objects; Case =:= heap_for_results ->
    cats_test_lib:only_cats(Config);
init_per_testcase(Case, Config)
    when Case =:= memory_of_small_tables; Case =:= freeing_an_object_of_many_funs_holds_nobody ->
    cats_test_lib:only_cats(cats_test_lib:with_memory(Config));
init_per_testcase(_, Config) ->
    Config.

end_per_testcase(_, _Config) -> ok.

%%------------------------------------------------------------------------------------------------------------
%% Nobody is held

%% OBJECTS (environment, 1000000 by default) in a table. The VM reports whoever runs for over a millisecond
%% without a break. Other programs on the machine can be the reason; then it reports bystanders that do
%% nothing, too, and more often, as they run all the time, one on each scheduler. A call that takes long takes
%% long every time: one attempt without reports is enough, three with some that the machine does not excuse are
%% too many.

deleting_a_large_table_holds_nobody(_Config) ->
    holds_nobody(fun(Table) -> true = ?T:delete(Table) end).

killing_the_owner_of_a_large_table_holds_nobody(_Config) ->
    holds_nobody(fun(Table) ->
                         Owner = ?T:info(Table, owner),
                         cats_test_lib:stop(Owner, kill),
                         undefined = ?T:info(Table)
                 end).

emptying_a_large_table_holds_nobody(_Config) ->
    holds_nobody(fun(Table) -> true = ?T:delete_all_objects(Table), 0 = ?T:info(Table, size) end).

%% An object of many funs takes milliseconds to free, whichever way it goes. What handles such a term itself does so in
%% a process of its own, which is not watched.
freeing_an_object_of_many_funs_holds_nobody(_Config) ->
    Many = fun(1) -> many_funs(200000) end,
    Apart = fun(Call) ->
                    {Pid, Monitor} = spawn_monitor(fun() -> Call(many_funs(200000)) end),
                    receive {'DOWN', Monitor, process, Pid, normal} -> ok end
            end,
    Ways = [{set, delete, fun(T) -> cats:delete(T, 1) end},
            {set, insert, fun(T) -> cats:insert(T, {1, a}) end},
            {set, update_element, fun(T) -> cats:update_element(T, 1, {2, a}) end},
            {set, select_delete, fun(T) -> 1 = cats:select_delete(T, [{{1, '_'}, [], [true]}]) end},
            {set, delete_all_objects, fun(T) -> cats:delete_all_objects(T) end},
            {set, delete_table, fun(T) -> cats:delete(T) end},
            {set, owner, fun(T) -> cats_test_lib:stop(cats:info(T, owner), kill) end},
            {set, take, fun(T) -> Apart(fun(_) -> [_] = cats:take(T, 1) end) end},
            {set, refused, fun(T) -> Apart(fun(Object) -> false = cats:insert_new(T, [Object]) end) end},
            {set, killed, fun(T) ->
                                  {Pid, _} = spawn_monitor(fun() -> cats:insert(T, many_funs(200000)) end),
                                  timer:sleep(50),
                                  cats_test_lib:stop(Pid, kill)
                          end},
            {ordered_set, delete, fun(T) -> cats:delete(T, 1) end},
            {bag, group, fun(T) -> cats:insert(T, {1, a}), cats:delete(T, 1) end}],
    %% What the VM and the library take once.
    attempts(set, Many, 1, fun(T) -> cats:delete(T, 1) end, 6, 3),
    Before = erlang:memory(system),
    Outcomes = [{Way, attempts(Type, Many, 1, Action, 6, 3)} || {Type, Way, Action} <- Ways],
    %% The terms of one such object take more.
    cats_test_lib:eventually(fun() -> erlang:memory(system) < Before + (8 bsl 20) end),
    ct:log("memory of the system: ~b, then ~b", [Before, erlang:memory(system)]),
    {comment, io_lib:format("~0p", [Outcomes])}.

many_funs(Number) ->
    {1, [fun() -> N end || N <- lists:seq(1, Number)]}.

holds_nobody(Action) ->
    Objects = cats_test_lib:environment("OBJECTS", 1000000),
    Outcomes = [{Type, attempts(Type, Object, Objects, Action, 6, 3)}
                || {Type, Object} <- [{set, fun(N) -> {N, N} end},
                                      {ordered_set, fun(N) -> {N, [N], <<"value">>} end}],
                   lists:member(Type, cats_test_lib:types())],
    {comment, io_lib:format("~0p", [Outcomes])}.

attempts(_, _, _, _, 0, _) ->
    machine_too_busy_to_tell;
attempts(Type, Object, Objects, Action, Left, Chances) ->
    {Owner, Table} = cats_test_lib:spawn_owner(fun() -> ?T:new(t, [Type, public]) end),
    %% In a process of its own, as the end of a process with such objects on its heap takes the VM long.
    cats_test_lib:in_process(fun() -> fill(Table, Object, Objects) end),
    {Actor, ok} = cats_test_lib:spawn_owner(fun() -> ok end),
    Reports = spawn_link(fun() -> reports([]) end),
    Bystanders = [spawn_link(fun() -> bystander(erlang:monotonic_time(), 0) end)
                  || _ <- lists:seq(1, erlang:system_info(schedulers_online))],
    timer:sleep(200),
    Previous = erlang:system_monitor(Reports, [{long_schedule, 1}]),
    Took = cats_test_lib:run_in(Actor, fun() -> element(1, timer:tc(fun() -> Action(Table) end)) end),
    %% Time for what goes on behind the call.
    timer:sleep(1000),
    erlang:system_monitor(Previous),
    Reported = ask(Reports),
    Pause = lists:max([ask(Bystander) || Bystander <- Bystanders]),
    Held = [Report || {Pid, _} = Report <- Reported, lists:member(Pid, [Actor, Owner])],
    Noise = length([noise || {Pid, _} <- Reported, lists:member(Pid, Bystanders)]),
    [begin unlink(Pid), exit(Pid, kill) end || Pid <- [Reports, Actor | Bystanders]],
    cats_test_lib:stop(Owner, kill),
    ct:log("~s of ~b: the call took ~b us, longest pause of a bystander ~b us, noise: ~b, held: ~0p",
           [Type, Objects, Took, Pause, Noise, Held]),
    if
        Held =:= [] -> {call, Took, longest_pause, Pause, us};
        Noise >= length(Held) -> attempts(Type, Object, Objects, Action, Left - 1, Chances);
        Chances > 1 -> attempts(Type, Object, Objects, Action, Left - 1, Chances - 1);
        true -> ct:fail({Type, Held})
    end.

fill(Table, Object, Objects) ->
    [?T:insert(Table, Object(N)) || N <- lists:seq(1, Objects)],
    Table.

reports(Got) ->
    receive
        {monitor, Pid, long_schedule, Information} -> reports([{Pid, Information} | Got]);
        {ask, From} -> From ! {self(), Got}, reports(Got)
    end.

%% Runs whenever it may, a fifth of a millisecond at a time, and remembers the longest time that it was kept
%% from it, in microseconds.
bystander(Last, Longest) ->
    Begin = erlang:monotonic_time(),
    run_until(Begin + erlang:convert_time_unit(200, microsecond, native)),
    receive
        {ask, From} -> From ! {self(), erlang:convert_time_unit(Longest, native, microsecond)}
    after 0 -> ok
    end,
    End = erlang:monotonic_time(),
    erlang:yield(),
    bystander(End, max(Longest, Begin - Last)).

run_until(Time) ->
    erlang:monotonic_time() < Time andalso run_until(Time).

ask(Pid) ->
    Pid ! {ask, self()},
    receive {Pid, Answer} -> Answer end.

%%------------------------------------------------------------------------------------------------------------
%% Memory

%% What cats:memory/0 tells of many small tables is what the system has given for them, but for a seventh. Each in a VM
%% of its own, after as many of them: by then the VM and the library have taken what they take once.
memory_of_small_tables(_Config) ->
    [begin
         Peer = cats_test_lib:start_peer(["+S", "1", "-pa" | code:get_path()]),
         {Resident, Told, OfOne} = peer:call(Peer, ?MODULE, many_tables, [Number, Options, Objects], 120000),
         ct:pal("~p with ~b objects: resident ~b, memory/0 ~b, info/2 ~b bytes a table",
                [Options, Objects, Resident div Number, Told div Number, OfOne]),
         ?assertEqual(OfOne, Told div Number),
         ?assert(abs(Told - Resident) * 7 < Resident, {Options, Objects, Resident div Number, OfOne}),
         peer:stop(Peer)
     end || {Number, Options, Objects} <- [{100000, [set], 0}, {50000, [set], 1}, {50000, [ordered_set], 1},
                                           {50000, [bag, public], 1}, {25000, [set], 10}, {15000, [ordered_set], 100}]],
    ok.

many_tables(Number, Options, Objects) ->
    {ok, _} = application:ensure_all_started(cats),
    Make = fun(_) ->
                   Table = cats:new(small, Options),
                   lists:foreach(fun(N) -> true = cats:insert(Table, {N, N}) end, lists:seq(1, Objects)),
                   Table
           end,
    Owner = fun Serve() ->
                    receive {From, Count} ->
                            lists:foreach(Make, lists:seq(1, Count - 1)),
                            Table = Make(last),
                            true = erlang:garbage_collect(),
                            From ! {self(), cats:info(Table, memory) * erlang:system_info(wordsize)},
                            Serve()
                    end
            end,
    Pid = spawn_link(Owner),
    Round = fun() ->
                    Pid ! {self(), Number},
                    OfOne = receive {Pid, Bytes} -> Bytes end,
                    timer:sleep(1000),
                    {resident(), cats:memory(), OfOne}
            end,
    {Resident1, Told1, _} = Round(),
    {Resident2, Told2, OfOne} = Round(),
    {Resident2 - Resident1, Told2 - Told1, OfOne}.

resident() ->
    {ok, Status} = file:read_file("/proc/self/status"),
    {match, [Kilobytes]} = re:run(Status, "VmRSS:\\s+(\\d+) kB", [{capture, all_but_first, list}]),
    list_to_integer(Kilobytes) * 1024.

memory_comes_back(_Config) ->
    Objects = cats_test_lib:environment("OBJECTS", 1000000) div 5,
    Before = settled_memory(),
    [begin
         Table = fill(?T:new(t, [Type, public]), Object, Objects),
         Filled = cats:memory(),
         true = Filled > Before + 16 * Objects,
         case End of
             delete -> ?T:delete(Table);
             delete_all_objects -> ?T:delete_all_objects(Table), ?T:delete(Table);
             one_by_one ->
                 [?T:delete(Table, element(1, Object(N))) || N <- lists:seq(1, Objects)],
                 0 = ?T:info(Table, size), ?T:delete(Table)
         end,
         came_back(Before)
     end || Type <- cats_test_lib:types(), End <- [delete, delete_all_objects, one_by_one],
            Object <- [fun(N) -> {N, N} end, fun(N) -> {{k, N}, [N, <<"value">>], make_ref()} end]],
    ok.

%% The same objects written again and again take no more memory than once.
memory_of_replaced_objects_comes_back(_Config) ->
    Before = settled_memory(),
    [begin
         Table = ?T:new(t, [Type, public]),
         Write = fun(Round) ->
                         [?T:insert(Table,
                                    {N, Round, make_ref(), lists:duplicate(N rem 50, Round),
                                     binary:copy(<<"b">>, N rem 300)})
                          || N <- lists:seq(1, 2000)],
                         [?T:update_element(Table, N, {2, {updated, Round}}) || N <- lists:seq(1, 2000)]
                 end,
         [Write(Round) || Round <- lists:seq(1, 3)],
         Once = settled_memory(),
         [Write(Round) || Round <- lists:seq(1, 100)],
         cats_test_lib:eventually(fun() -> cats:memory() < 2 * Once + 20000000 end),
         ?T:delete(Table),
         came_back(Before)
     end || Type <- cats_test_lib:types([set, ordered_set])],
    ok.

settled_memory() ->
    timer:sleep(1500),
    cats:memory().

came_back(Before) ->
    try cats_test_lib:eventually(fun() -> cats:memory() < Before + 10000000 end, 30000)
    catch error:never_happened -> ct:fail({memory, cats:memory(), before, Before})
    end.

%%------------------------------------------------------------------------------------------------------------
%% Killed in the middle

%% Processes that do anything at all with shared tables, and with some of their own, are killed at any moment,
%% for SECONDS (environment, 5 by default). Afterwards every key of every table can be written and read, and
%% when the tables are deleted their memory is back.
killed_in_the_middle(_Config) ->
    Before = case ?T of ets -> 0; _ -> settled_memory() end,
    {Owner, Tables} = cats_test_lib:spawn_owner(fun() -> [?T:new(t, [public, Type])
                                                          || Type <- cats_test_lib:types()] end),
    End = erlang:monotonic_time(millisecond) + 1000 * cats_test_lib:environment("SECONDS", cats_test_lib:rounds(5)),
    Workers = [spawn(fun() -> work(Tables) end) || _ <- lists:seq(1, 20)],
    Killed = kill(Workers, Tables, End, 0),
    [begin
         Check = fun() ->
                         [begin
                              true = ?T:insert(Table, {Key, 0}),
                              true = lists:member({Key, 0}, ?T:lookup(Table, Key)),
                              true = ?T:delete(Table, Key)
                          end || Key <- lists:seq(0, 300)],
                         cats_test_lib:all_objects(next, Table),
                         Size = length(?T:tab2list(Table)),
                         %% ets loses count when who empties a table is killed.
                         true = ?T =:= ets orelse Size =:= ?T:info(Table, size),
                         true = ?T:insert(Table, [{Key, 1} || Key <- lists:seq(1, 300)]),
                         true = ?T:delete_all_objects(Table),
                         [] = ?T:tab2list(Table),
                         free
                 end,
         {Checker, Monitor} = spawn_monitor(fun() -> exit(Check()) end),
         receive {'DOWN', Monitor, _, Checker, free} -> ok;
                 {'DOWN', Monitor, _, Checker, Reason} -> ct:fail(Reason)
         after 30000 -> ct:fail({locked, ?T:info(Table, type), process_info(Checker, current_stacktrace)})
         end
     end || Table <- Tables],
    cats_test_lib:stop(Owner, kill),
    ?T =:= ets orelse came_back(Before),
    {comment, io_lib:format("~b killed", [Killed])}.

kill(Workers, Tables, End, Killed) ->
    case erlang:monotonic_time(millisecond) < End of
        true ->
            {Before, [Victim | After]} = lists:split(rand:uniform(length(Workers)) - 1, Workers),
            exit(Victim, kill),
            rand:uniform(4) =:= 1 andalso timer:sleep(1),
            kill([spawn(fun() -> work(Tables) end) | Before ++ After], Tables, End, Killed + 1);
        false ->
            Monitors = [monitor(process, Pid) || Pid <- Workers],
            [exit(Pid, kill) || Pid <- Workers],
            [receive {'DOWN', Monitor, _, _, _} -> ok end || Monitor <- Monitors],
            Killed
    end.

work(Tables) ->
    Table = cats_test_lib:one_of(Tables),
    Key = rand:uniform(300),
    try work(rand:uniform(20), Table, Key)
    catch error:badarg -> ok    % what bags refuse, and next of absent keys in ets
    end,
    work(Tables).

work(1, Table, Key) -> ?T:insert(Table, {Key, Key});
work(2, Table, Key) -> ?T:insert(Table, {Key, lists:seq(1, Key), make_ref(), binary:copy(<<"b">>, Key)});
work(3, Table, Key) -> ?T:insert(Table, [{Key + N, N, self()} || N <- lists:seq(1, 20)]);
work(4, Table, Key) -> ?T:insert(Table, [{N rem 300, Key} || N <- lists:seq(1, 2000)]);
work(5, Table, Key) -> ?T:insert(Table, {Key, lists:seq(1, 20000)});
work(6, Table, Key) -> ?T:insert_new(Table, [{Key, a}, {Key + 1, b}]);
work(7, Table, Key) -> ?T:delete(Table, Key);
work(8, Table, Key) -> ?T:take(Table, Key);
work(9, Table, Key) -> ?T:update_counter(Table, Key, 1, {Key, 0});
work(10, Table, Key) -> ?T:update_element(Table, Key, {2, make_ref()});
work(11, Table, _) -> ?T:tab2list(Table);
work(12, Table, _) -> cats_test_lib:all_objects(next, Table);
work(13, Table, Key) -> ?T:delete_object(Table, {Key, Key});
work(14, Table, _) -> rand:uniform(10) =:= 1 andalso ?T:delete_all_objects(Table);
work(15, Table, Key) -> ?T:safe_fixtable(Table, Key > 150);
work(16, _, Key) -> fill(?T:new(own, []), fun(N) -> {N, N} end, 10 * Key);
work(17, _, Key) -> ?T:delete(fill(?T:new(own, [ordered_set]), fun(N) -> {N, [N]} end, Key));
work(18, _, _) -> ?T:insert(?T:new(own_name, [named_table]), {1});
work(19, Table, Key) -> ?T:lookup(Table, Key), ?T:info(Table);
work(20, Table, Key) -> bags_stay_small(Table, Key).

bags_stay_small(Table, Key) ->
    ?T:info(Table, size) > 20000 andalso ?T:delete_all_objects(Table),
    ?T:delete(Table, Key).

%%------------------------------------------------------------------------------------------------------------
%% Loading again

%% The native library taken over by a new instance of its module, while others use the tables.
loading_again_keeps_tables(_Config) ->
    Tables = [fill(?T:new(t, [public, Type]), fun(N) -> {N, {value, N}} end, 1000)
              || Type <- cats_test_lib:types()],
    kept = ?T:new(kept, [named_table, public]),
    ?T:insert(kept, {1, a}),
    User = spawn_link(fun() -> process_flag(trap_exit, true), use(Tables, 1) end),
    [begin
         code:purge(cats_nif),
         {module, cats_nif} = code:load_file(cats_nif),
         [begin
              1000 = ?T:info(Table, size),
              [{7, {value, 7}}] = ?T:lookup(Table, 7),
              true = lists:sort(?T:tab2list(Table)) =:= [{N, {value, N}} || N <- lists:seq(1, 1000)]
          end || Table <- Tables],
         [{1, a}] = ?T:lookup(kept, 1),
         New = ?T:new(t, []),
         true = ?T:insert(New, {Round}),
         true = ?T:delete(New)
     end || Round <- lists:seq(1, 8)],
    code:purge(cats_nif),
    true = is_process_alive(User),
    unlink(User),
    cats_test_lib:stop(User, kill),
    {Owner, Table} = cats_test_lib:spawn_owner(fun() -> ?T:new(t, [{heir, self(), x}]) end),
    cats_test_lib:stop(Owner, kill),
    undefined = ?T:info(Table),
    [true = ?T:delete(T) || T <- [kept | Tables]],
    ok.

use(Tables, N) ->
    [begin
         [{_, {value, _}}] = ?T:lookup(Table, 1 + N rem 1000),
         true = ?T:insert(Table, {1 + N rem 1000, {value, 1 + N rem 1000}})
     end || Table <- tl(Tables), ?T:info(Table, type) =/= duplicate_bag],
    use(Tables, N + 1).

%% lookup_many/2 of more keys than a slice has, of all shapes, some there and some not, with objects here and there that
%% are too large for a scheduler.
many_keys_at_once(_Config) ->
    Key = fun(N) -> element(1 + N rem 4, {N, {user, N}, float(N), <<N:800>>}) end,
    Value = fun(N) when N rem 700 =:= 0 -> lists:seq(1, 30000);
               (N) -> N
            end,
    [begin
         Table = cats:new(many, [Type]),
         [cats:insert(Table, {Key(N), Value(N), Copy}) || N <- lists:seq(1, 3000), Copy <- [1, 2]],
         [cats:insert(Table, {0, N}) || Type =:= bag, N <- lists:seq(1, 2000)],
         Keys = [Key(rand:uniform(4000) - 1) || _ <- lists:seq(1, 5000)],
         [?assertEqual([cats:lookup(Table, K) || K <- Some], cats:lookup_many(Table, Some))
          || Length <- [0, 1, 15, 16, 17, 255, 256, 257, 5000], Some <- [lists:sublist(Keys, Length)]],
         cats:delete(Table)
     end || Type <- cats_test_lib:types()].

%% Keys that are large together are looked up in slices that a scheduler can do.
many_large_keys(_Config) ->
    [begin
         Table = cats:new(many, [Type]),
         Keys = [[N | lists:seq(1, 3000)] || N <- lists:seq(1, 100)],
         cats:insert(Table, [{Key, N} || Key = [N | _] <- Keys, N rem 50 =:= 0]),
         cats:insert(Table, [{N, N} || N <- lists:seq(1, Others)]),
         {[[], [] | Lists], Rest} = cats_nif:lookup_many(Table, Keys),
         ?assert(length(Lists) < 10),
         ?assertEqual(Keys, lists:sublist(Keys, 2 + length(Lists)) ++ Rest),
         ?assertEqual([cats:lookup(Table, Key) || Key <- Keys], cats:lookup_many(Table, Keys)),
         cats:delete(Table)
         %% In a large table, groups of keys are on their way at once.
     end || Type <- cats_test_lib:types(), Others <- [0, 200000]].

%% Calls with so many operations or positions, or with so large counters or objects, that a scheduler would be
%% held are refused there, and do what they should on a dirty one.
lists_of_operations(_Config) ->
    Elements = 50,
    Long = lists:seq(1, 10000),
    Huge = 1 bsl 100000,
    Row = fun(Value) -> list_to_tuple([k | lists:duplicate(Elements, Value)]) end,
    Place = fun(N) -> 2 + N rem Elements end,
    Calls =
        [{Row(0), update_counter, [{Place(N), N} || N <- lists:seq(1, 5000)]},
         {Row(0), update_counter, [{Place(N), 1, 3, -5} || N <- lists:seq(1, 5000)]},
         {Row(Huge), update_counter, [{Place(N), -N} || N <- lists:seq(1, Elements)]},
         {Row(Huge), update_counter, [{Place(N), 1 bsl 64} || N <- lists:seq(1, 5000)]},
         {Row(0), update_counter, [{Place(N), Huge} || N <- lists:seq(1, Elements)]},
         {Row(0), update_counter, {2, 1 bsl 2000000}},
         {Row(0), update_counter, 1 bsl 2000000},
         {Row(0), update_counter, [{3, 1 bsl 2000000}, {3, -1 bsl 2000000}, {2, 2}]},
         {Row(0), update_element, [{Place(N), N} || N <- lists:seq(1, 5000)]},
         {Row(0), update_element, [{Place(N), [N]} || N <- lists:seq(1, 5000)]},
         {Row({a}), update_element, [{Place(N), N} || N <- lists:seq(1, 100000)]},
         {Row(0), update_element, [{Place(N), Long} || N <- lists:seq(1, 10)]},
         {setelement(2, Row(0), lists:seq(1, 100000)), update_counter, {3, 1}},
         {setelement(2, Row(0), lists:seq(1, 100000)), update_counter, [{3, 1}, {4, 1}]},
         {setelement(2, Row(0), lists:seq(1, 100000)), update_element, [{3, 1}, {4, 1}]},
         {setelement(2, Row(0), [make_ref() || _ <- lists:seq(1, 6000)]), update_element, [{3, [1]}, {4, 1}]},
         {Row(0), lookup_elements, [Place(N) || N <- lists:seq(1, 5000)]},
         {setelement(2, Row(0), Long), lookup_elements, [2 || _ <- lists:seq(1, 10)]}],
    [begin
         Table = cats:new(operations, [Type | Options]),
         true = cats:insert(Table, Object),
         ?assertMatch(?FAILED(dirty, _), cats_nif:Function(Table, k, Argument)),
         [Object] = cats:lookup(Table, k),
         {Result, Changed} = expected(Function, Object, Argument),
         ?assert(Result =:= cats:Function(Table, k, Argument)),
         ?assert([Changed] =:= cats:lookup(Table, k)),
         true = cats:delete(Table)
     end || Type <- cats_test_lib:types([set, ordered_set]), Options <- [[], [compressed]],
            {Object, Function, Argument} <- Calls],
    [begin
         Table = cats:new(operations, [Type]),
         [true = cats:insert(Table, {k, N, lists:seq(1, 1000)}) || N <- lists:seq(1, 100)],
         [begin
              ?assertMatch(?FAILED(dirty, _), erlang:apply(cats_nif, Function, [Table, k | Arguments])),
              ?assertEqual(100, length(erlang:apply(cats, Function, [Table, k | Arguments])))
          end || {Function, Arguments} <- [{lookup_element, [3]},
                                           {lookup_elements, [lists:duplicate(200, 2)]}]],
         true = cats:delete(Table)
     end || Type <- cats_test_lib:types([bag, duplicate_bag])],
    ok.

%% What is packed and large is unpacked on a dirty scheduler.
packed_objects(_Config) ->
    Large = lists:duplicate(100000, 1),
    Object = {k, Large, last},
    Specification = [{{'_', '_', last}, [], [true]}],
    Functions = [{lookup, [k], [Object]}, {first_lookup, [], {k, [Object]}},
                 {lookup_element, [k, 2], Large}, {lookup_elements, [k, [3]], [last]}],
    [begin
         Table = cats:new(packed, [Type, compressed]),
         true = cats:insert(Table, Object),
         ?assert(8 * cats:info(Table, memory) < 150000),
         [begin
              ?assertMatch(?FAILED(dirty, _), erlang:apply(cats_nif, Function, [Table | Arguments])),
              Found = erlang:apply(cats, Function, [Table | Arguments]),
              ?assert(lists:member(Found, [Expected, [Expected]]))
          end || {Function, Arguments, Expected} <- Functions],
         ?assertMatch(?FAILED(dirty, _), cats_nif:select(select_count, Table, Specification, infinity)),
         ?assertEqual(1, cats:select_count(Table, Specification)),
         ?assertMatch(?FAILED(dirty, _), cats_nif:select(match, Table, {k, '_', '$1'}, infinity)),
         ?assertEqual([[last]], cats:match(Table, {k, '_', '$1'})),
         ?assertEqual(ok, cats:foldl(fun(Shown, ok) when Shown =:= Object -> ok end, ok, Table)),
         ?assert([[Object]] =:= cats:lookup_many(Table, [k])),
         ?assert([Object] =:= cats:tab2list(Table)),
         ?assertMatch(?FAILED(dirty, _), cats_nif:take(Table, k)),
         ?assert([Object] =:= cats:take(Table, k)),
         %% None of these is too large alone.
         true = cats:insert(Table, [{N, lists:duplicate(10000, N), last} || N <- lists:seq(1, 20)]),
         ?assertMatch([_], cats_nif:lookup(Table, 1)),
         ?assertMatch(?FAILED(dirty, _), cats_nif:select(select_count, Table, Specification, infinity)),
         ?assertEqual(20, cats:select_count(Table, Specification)),
         true = cats:delete(Table)
     end || Type <- cats_test_lib:types([set, ordered_set, bag, duplicate_bag])],
    ok.

%% The heap is made large for results to come: no longer than the call takes, not in a process whose heap is limited,
%% and not for a whole table where a range of its keys is asked for.
heap_for_results(_Config) ->
    Table = cats:new(results, [ordered_set, public]),
    Objects = [{N, large, lists:seq(1, 2000)} || N <- lists:seq(1, 300)],
    [true = cats:insert(Table, Object) || Object <- Objects],
    Least = fun() -> element(2, process_info(self(), min_heap_size)) end,
    Slices = [{[], cursor, 100000}, {[1], cursor, 1000000}, {[2, 1], cursor, 10}],
    %% What each slice had for the least size, the first one being the call's.
    Leasts = fun() ->
                     Next = fun(cursor, Shown) ->
                                    put(leasts, [Least() | get(leasts)]),
                                    lists:nth(length(Shown) + 2, Slices ++ [done])
                            end,
                     put(leasts, [Least()]),
                     done = cats_slices:finish(hd(Slices), Next),
                     ?assertError(oops, cats_slices:finish(hd(Slices), fun(_, _) -> error(oops) end)),
                     lists:reverse([Least() | get(leasts)])
             end,
    Calls = fun() ->
                    ?assert(Objects =:= cats:tab2list(Table)),
                    ?assert(Objects =:= cats:select(Table, [{{'_', large, '_'}, [], ['$_']}])),
                    ?assert(Objects =:= cats:match_object(Table, {'_', large, '_'})),
                    Leasts()
            end,
    Run = fun(Options) ->
                  {Pid, Monitor} = spawn_opt(fun() -> exit(Calls()) end, [monitor | Options]),
                  receive {'DOWN', Monitor, process, Pid, Result} -> Result end
          end,
    [Small, First, Second, Small, Small] = Run([]),
    ?assert(First >= 100000 andalso Second >= 1000000),
    [Some, _, Second, Some, Some] = Run([{min_heap_size, 50000}]),
    ?assert(Some >= 50000),
    ?assertEqual(lists:duplicate(5, Small), Run([{max_heap_size, 20000000}])),
    true = cats:delete(Table),
    Wide = cats:new(wide, [ordered_set, public]),
    [true = cats:insert(Wide, {N, N, N, N, N, N, N, N}) || N <- lists:seq(1, 200000)],
    Spec = [{{'$1', '_', '_', '_', '_', '_', '_', '_'}, [{'=<', '$1', 15000}], ['$_']}],
    {Pid, Monitor} = spawn_monitor(fun() ->
                                           Found = cats:select(Wide, Spec),
                                           {_, Heap} = process_info(self(), total_heap_size),
                                           exit({length(Found), Heap / erts_debug:flat_size(Found)})
                                   end),
    {15000, Ratio} = receive {'DOWN', Monitor, process, Pid, Result} -> Result end,
    ?assert(Ratio < 5, Ratio),
    true = cats:delete(Wide),
    ok.

%% Result of a call, and the object afterwards.
expected(update_counter, Object, Operations) when is_list(Operations) ->
    lists:mapfoldl(fun add/2, Object, Operations);
expected(update_counter, Object, Operation) when is_tuple(Operation) -> add(Operation, Object);
expected(update_counter, Object, Increment) -> add({2, Increment}, Object);
expected(update_element, Object, Operations) ->
    Set = fun({Position, Value}, Row) -> setelement(Position, Row, Value) end,
    {true, lists:foldl(Set, Object, Operations)};
expected(lookup_elements, Object, Positions) ->
    {[element(Position, Object) || Position <- Positions], Object}.

add({Position, Increment}, Object) ->
    Value = element(Position, Object) + Increment,
    {Value, setelement(Position, Object, Value)};
add({Position, Increment, Threshold, SetValue}, Object) ->
    case element(Position, Object) + Increment of
        Value when Value > Threshold -> {SetValue, setelement(Position, Object, SetValue)};
        Value -> {Value, setelement(Position, Object, Value)}
    end.

%% The key in what `lookup/2' gives out is the stored one where it differs from the one that was asked for, and
%% keeps no larger binary of which that one has a part.
keys_of_what_is_found(_Config) ->
    %% The compiler must not know the answer.
    Zeros = binary_to_term(term_to_binary(0.0)) =:= binary_to_term(term_to_binary(-0.0)),
    [begin
         Table = ?T:new(keys, [Type]),
         [begin
              true = ?T:insert(Table, {Stored, <<"value">>}),
              [{Found, <<"value">>}] = ?T:lookup(Table, Asked),
              ?assertEqual(term_to_binary(Stored), term_to_binary(Found)),
              true = ?T:delete(Table, Stored)
          end || {Stored, Asked, Types} <- [{{1, [2]}, {1, [2]}, [set, ordered_set]},
                                            {{a, {1.0}}, {a, {1}}, [ordered_set]},
                                            {{a, {1}}, {a, {1.0}}, [ordered_set]},
                                            {[1, 2.0], [1, 2], [ordered_set]},
                                            {[1, 2], [1, 2.0], [ordered_set]},
                                            {{-0.0}, {0.0}, [ordered_set | [set || Zeros]]},
                                            {{0.0}, {-0.0}, [ordered_set | [set || Zeros]]}],
                 lists:member(Type, Types)],
         Whole = binary:copy(<<"0123456789">>, 1000),
         [begin
              true = ?T:insert(Table, {Key(binary:copy(Part)), <<"value">>}),
              [{Found, _}] = ?T:lookup(Table, Key(Part)),
              ?assert(binary:referenced_byte_size(binary_of(Found)) < 200)
          end || Size <- [10, 100], Part <- [binary:part(Whole, 3, Size)],
                 Key <- [fun(Binary) -> Binary end, fun(Binary) -> {user, Binary} end,
                         fun(Binary) -> [a, {1, Binary}] end]],
         true = ?T:delete(Table)
     end || Type <- cats_test_lib:types(), lists:member(Type, [set, ordered_set])].

binary_of({_, Binary}) -> Binary;
binary_of([_, Element]) -> binary_of(Element);
binary_of(Binary) -> Binary.
