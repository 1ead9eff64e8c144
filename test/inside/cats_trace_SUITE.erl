%% The timeline: what it records, that its files are well formed, and that it changes nothing of others.
-module(cats_trace_SUITE).
-include_lib("stdlib/include/assert.hrl").
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([tables_and_calls/1, waits/1, convoy/1, adaptations_and_memory/1, lost/1, schedulers_and_monitor/1,
         monitor_of_others/1, accounting_of_others/1, one_at_a_time/1, time/1, killed_starter/1, killed_trace/1,
         chosen_tables/1, chosen_events/1, open_call/1, names/1, files/1, bad_options/1, many_events/1,
         names_of_busy_processes/1, processes/1, nodes/1, nodes_that_cannot/1, node_that_goes_down/1]).
-export([over_nodes/2, errors_of_nodes/2, until_down/2]).

suite() -> [{timetrap, {minutes, 10}}].

all() ->
    [tables_and_calls, waits, convoy, adaptations_and_memory, lost, schedulers_and_monitor, monitor_of_others,
     accounting_of_others, one_at_a_time, time, killed_starter, killed_trace, chosen_tables, chosen_events, open_call,
     names, files, bad_options, many_events, names_of_busy_processes, processes, nodes, nodes_that_cannot,
     node_that_goes_down].

init_per_suite(Config) -> cats_test_lib:only_cats(cats_test_lib:start(Config)).

end_per_suite(_Config) -> ok.

init_per_testcase(Case, Config) -> [{name, filename:join(proplists:get_value(priv_dir, Config), Case)} | Config].

end_per_testcase(_Case, _Config) -> ok.

%%------------------------------------------------------------------------------------------------------------
%% What the cases need

%% The result of a trace of this function, however long that takes, and its events but for the metadata.
traced(Options, Function, Config) ->
    {ok, Trace} = cats_trace:start(Options#{seconds => 3600}),
    Function(),
    read(cats_trace:stop(Trace, proplists:get_value(name, Config))).

read({ok, #{trace := File, lost := Lost} = Result}) ->
    {ok, Text} = file:read_file(File),
    #{<<"traceEvents">> := Events,
      <<"otherData">> := #{<<"lost">> := Lost, <<"microseconds">> := Length}} = cats_web_SUITE:decoded(Text),
    Shown = [Event || #{<<"ph">> := Phase} = Event <- Events, Phase =/= <<"M">>],
    well_formed(Shown, [Event || #{<<"ph">> := <<"M">>} = Event <- Events], Length),
    {Result, Shown}.

%% As the format wants it, and Perfetto: with known tracks, in order, and each complete event within that around it or
%% beside it.
well_formed(Events, Meta, Length) ->
    Tracks = [{Node, Track}
              || #{<<"name">> := <<"thread_name">>, <<"pid">> := Node, <<"tid">> := Track,
                   <<"args">> := #{<<"name">> := _}} <- Meta],
    ?assertEqual(lists:usort(Tracks), lists:sort(Tracks)),
    [begin
         ?assertMatch(#{<<"name">> := _, <<"cat">> := _, <<"args">> := #{}}, Event),
         ?assert(lists:member(maps:get(<<"ph">>, Event), [<<"X">>, <<"i">>, <<"C">>])),
         ?assert(lists:member({maps:get(<<"pid">>, Event), maps:get(<<"tid">>, Event)}, Tracks)),
         ?assert(maps:get(<<"ts">>, Event) >= 0),
         ?assert(maps:get(<<"ts">>, Event) =< Length + 1)
     end || Event <- Events],
    Times = [Time || #{<<"ts">> := Time} <- Events],
    ?assertEqual(lists:sort(Times), Times),
    [nested([{From, From + Duration}
             || #{<<"ph">> := <<"X">>, <<"pid">> := Node, <<"tid">> := Of, <<"ts">> := From,
                  <<"dur">> := Duration} <- Events, {Node, Of} =:= Track], []) || Track <- Tracks].

%% A microsecond has three decimals.
nested([{From, _} = One | Rest], [{_, End} | Open]) when End =< From + 0.0005 -> nested([One | Rest], Open);
nested([{_, To} = One | Rest], Open) ->
    [?assert(To =< End + 0.0025, {One, Open}) || {_, End} <- lists:sublist(Open, 1)],
    nested(Rest, [One | Open]);
nested([], _Open) -> ok.

%% The events of this category, on this table.
of_table(Category, Table, Events) ->
    [Event
     || #{<<"cat">> := One, <<"args">> := #{<<"table">> := Of}} = Event <- Events, One =:= Category, Of =:= Table].

names_of(Events) -> [Name || #{<<"name">> := Name} <- Events].

%%------------------------------------------------------------------------------------------------------------
%% What is recorded

tables_and_calls(Config) ->
    Self = list_to_binary(pid_to_list(self())),
    {Other, _} = cats_test_lib:spawn_owner(fun() -> ok end),
    {_, Events} =
        traced(#{}, fun() ->
                            Table = cats:new(trace_one, [named_table, public]),
                            cats:insert(Table, [{N, N} || N <- lists:seq(1, 200000)]),
                            200000 = cats:select_count(Table, [{'_', [], [true]}]),
                            trace_two = cats:rename(Table, trace_two),
                            cats:give_away(trace_two, Other, none),
                            cats_test_lib:run_in(Other, fun() -> cats:delete(trace_two) end)
                    end, Config),
    ?assertEqual([<<"created">>, <<"renamed">>, <<"given">>, <<"deleted">>],
                 names_of(of_table(<<"table">>, <<"trace_two">>, Events))),
    [#{<<"name">> := <<"insert">>, <<"dur">> := Time, <<"args">> := #{<<"process">> := Self, <<"returned">> := true}}]
        = [Call || #{<<"name">> := <<"insert">>} = Call <- of_table(<<"call">>, <<"trace_two">>, Events)],
    ?assert(Time > 100),
    [_ | _] = Slices = of_table(<<"slice">>, <<"trace_two">>, Events),
    ?assertEqual([], [Slice || #{<<"args">> := #{<<"process">> := Process}} = Slice <- Slices, Process =/= Self]),
    cats_test_lib:stop(Other, normal).

waits(Config) ->
    [begin
         Table = cats:new(trace_waits, [Type, public]),
         {_, Events} = traced(#{ring => 1000000}, fun() -> cats_stats_SUITE:contend(Table) end, Config),
         #{waits := Waits, waits_given_up := GivenUp, wait_time := Micros} = cats:stats(Table),
         Recorded = of_table(<<"wait">>, <<"trace_waits">>, Events),
         ?assertEqual(Waits, length(Recorded)),
         ?assertEqual(GivenUp, length([Wait || #{<<"args">> := #{<<"got">> := false}} = Wait <- Recorded])),
         %% Statistics and trace ask the clock one after the other.
         Sum = lists:sum([Time || #{<<"dur">> := Time} <- Recorded]),
         ?assert(Sum + 1 >= Micros),
         %% Who waits is known, and who calls again.
         [?assertMatch(#{<<"args">> := #{<<"process">> := <<"<", _/binary>>}}, Event)
          || Category <- [<<"wait">>, <<"busy">>], Event <- of_table(Category, <<"trace_waits">>, Events)],
         cats:delete(Table)
     end || Type <- [set, ordered_set]].

%% One process holds all locks for a long time, and others want a key: they wait, and the trace tells for whom.
convoy(Config) ->
    {_, Events} = traced(#{ring => 1000000, events => [waits, calls]}, fun() -> convoy() end, Config),
    Waits = of_table(<<"wait">>, <<"trace_convoy">>, Events),
    ?assertNotEqual([],
                    [Wait
                     || #{<<"args">> := #{<<"meanwhile">> := <<"insert on dirty CPU ", _/binary>>}} = Wait <- Waits]),
    ?assertNotEqual([], [Wait || #{<<"args">> := #{<<"got">> := false, <<"process">> := _}} = Wait <- Waits]),
    Waiting = lists:usort([Process || #{<<"args">> := #{<<"process">> := Process}} <- Waits]),
    ?assert(length(Waiting) > 1).

convoy() ->
    Table = cats:new(trace_convoy, [public]),
    Objects = [{N, N} || N <- lists:seq(1, 300000)],
    cats:insert(Table, Objects),
    Wait = fun Wait() -> cats:update_counter(Table, 1, 1), Wait() end,
    Waiters = [spawn(Wait) || _ <- lists:seq(1, 8)],
    [cats:insert(Table, Objects) || _ <- lists:seq(1, 3)],
    [cats_test_lib:stop(Waiter, kill) || Waiter <- Waiters],
    cats:delete(Table).

adaptations_and_memory(Config) ->
    {_, Events} =
        traced(#{ring => 100000},
               fun() ->
                       Table = cats:new(trace_grows, [public]),
                       [cats:insert(Table, {N, N}) || N <- lists:seq(1, 5000)],
                       [cats:delete(Table, N) || N <- lists:seq(1, 5000)],
                       [cats:insert(Table, {N, list_to_binary(lists:duplicate(100, 0))}) || N <- lists:seq(1, 5000)],
                       [cats:insert(Table, {N, list_to_binary(lists:duplicate(100, 1))}) || N <- lists:seq(1, 5000)],
                       cats:delete(Table)
               end, Config),
    Adaptations = names_of(of_table(<<"adaptation">>, <<"trace_grows">>, Events)),
    ?assert(lists:member(<<"grow">>, Adaptations)),
    ?assert(lists:member(<<"shrink">>, Adaptations)),
    Memory = [Event || #{<<"cat">> := <<"memory">>} = Event <- Events],
    [?assert(lists:member(Name, names_of(Memory)), Name)
     || Name <- [<<"retire">>, <<"reclaim">>, <<"retire contents">>]].

%% The oldest events of a thread go, and the result tells how many.
lost(Config) ->
    {#{lost := Lost, events := Number}, Events} =
        traced(#{ring => 16, events => [tables]},
               fun() -> [cats:delete(cats:new(trace_lost, [])) || _ <- lists:seq(1, 1000)] end, Config),
    ?assert(Lost >= 2000 - 16 * erlang:system_info(schedulers)),
    ?assertEqual(Number, length(Events)),
    ?assert(Number =< 16 * erlang:system_info(schedulers)),
    %% A table without a name event is there all the same.
    ?assertEqual(2000, length([Event || #{<<"cat">> := <<"table">>} = Event <- Events]) + Lost).

schedulers_and_monitor(Config) ->
    {ok, Trace} = cats_trace:start(#{events => [schedulers, monitor]}),
    Spinner = spawn_link(fun Spin() -> Spin() end),
    Recorded = fun(Item) -> maps:get(Item, sys:get_state(Trace, infinity)) end,
    cats_test_lib:eventually(fun() -> length(Recorded(samples)) > 3 end),
    %% Until one takes more than 10 ms.
    cats_test_lib:eventually(fun() -> collect_garbage(), lists:keymember(long_gc, 3, Recorded(told)) end, 1000),
    unlink(Spinner),
    cats_test_lib:stop(Spinner, kill),
    {_, Events} = read(cats_trace:stop(Trace, proplists:get_value(name, Config))),
    Shares = [{Name, Arguments} || #{<<"ph">> := <<"C">>, <<"name">> := Name, <<"args">> := Arguments} <- Events],
    [?assert(lists:any(fun({One, _}) -> One =:= <<"scheduler ", (integer_to_binary(N))/binary>> end, Shares))
     || N <- lists:seq(1, erlang:system_info(schedulers))],
    [?assert(abs(lists:sum(maps:values(Arguments)) - 100) < 0.1) || {_, Arguments} <- Shares],
    ?assert(lists:any(fun({_, #{<<"emulator">> := Share}}) -> Share > 1 end, Shares)),
    ?assertNotEqual([],
                    [Event
                     || #{<<"cat">> := <<"monitor">>, <<"name">> := <<"long gc">>,
                          <<"args">> := #{<<"process">> := _}} = Event <- Events]),
    %% Nothing stays.
    ?assertEqual(undefined, erlang:system_monitor()),
    ?assertEqual(false, erlang:system_flag(microstate_accounting, false)).

collect_garbage() ->
    cats_test_lib:in_process(fun() -> List = lists:seq(1, 2000000), erlang:garbage_collect(), hd(List) end).

%%------------------------------------------------------------------------------------------------------------
%% What belongs to others

%% Before OTP 28 there is one system monitor, and the trace does without.
monitor_of_others(Config) ->
    Own = {self(), [{long_gc, 100000}]},
    undefined = erlang:system_monitor(self(), [{long_gc, 100000}]),
    {#{left_out := LeftOut}, Events} = traced(#{}, fun() -> ?assertEqual(Own, erlang:system_monitor()) end, Config),
    ?assertEqual(Own, erlang:system_monitor(undefined)),
    case list_to_integer(erlang:system_info(otp_release)) < 28 of
        true ->
            ?assertEqual([monitor], LeftOut),
            ?assertEqual([], [Event || #{<<"cat">> := <<"monitor">>} = Event <- Events]);
        false ->
            ?assertEqual([], LeftOut)
    end,
    %% One that comes while a trace is on stays, too.
    {_, _} = traced(#{}, fun() -> erlang:system_monitor(self(), [{long_gc, 100000}]) end, Config),
    ?assertEqual(Own, erlang:system_monitor(undefined)).

accounting_of_others(Config) ->
    false = erlang:system_flag(microstate_accounting, true),
    {_, _} = traced(#{}, fun() -> ok end, Config),
    ?assertEqual(true, erlang:system_flag(microstate_accounting, false)).

%%------------------------------------------------------------------------------------------------------------
%% Beginning and end

one_at_a_time(Config) ->
    {ok, Trace} = cats_trace:start(#{}),
    ?assertEqual({error, already_tracing}, cats_trace:start(#{})),
    ?assertEqual({error, already_tracing}, cats_test_lib:in_process(fun() -> cats_trace:start(#{}) end)),
    {ok, _} = cats_trace:stop(Trace, proplists:get_value(name, Config)),
    ?assertEqual({error, no_trace}, cats_trace:stop(Trace, proplists:get_value(name, Config))),
    {_, _} = traced(#{}, fun() -> ok end, Config).

%% One that has ended has what was recorded until then, and another one may begin.
time(Config) ->
    cats_test_lib:eventually(
      fun() ->
              {ok, Trace} = cats_trace:start(#{seconds => 1, events => [tables]}),
              cats:delete(cats:new(trace_before, [])),
              ?assert(cats_test_lib:eventually(fun() -> is_free(Config) end)),
              cats:delete(cats:new(trace_after, [])),
              {_, Events} = read(cats_trace:stop(Trace, proplists:get_value(name, Config))),
              ?assertEqual([], of_table(<<"table">>, <<"trace_after">>, Events)),
              %% On a busy machine it may have ended before that table was made.
              names_of(of_table(<<"table">>, <<"trace_before">>, Events)) =:= [<<"created">>, <<"deleted">>]
      end).

is_free(Config) ->
    case cats_trace:start(#{}) of
        {ok, Trace} -> {ok, _} = cats_trace:stop(Trace, proplists:get_value(name, Config)), true;
        {error, already_tracing} -> false
    end.

killed_starter(Config) ->
    {Starter, {ok, Trace}} = cats_test_lib:spawn_owner(fun() -> cats_trace:start(#{}) end),
    cats_test_lib:stop(Starter, kill),
    cats_test_lib:eventually(fun() -> not is_process_alive(Trace) end),
    ?assertEqual({error, no_trace}, cats_trace:stop(Trace, proplists:get_value(name, Config))),
    cats_test_lib:eventually(fun() -> is_free(Config) end),
    ?assertEqual(undefined, erlang:system_monitor()),
    ?assertEqual(false, erlang:system_flag(microstate_accounting, false)).

%% Recording ends with the process that holds it.
killed_trace(Config) ->
    {ok, Trace} = cats_trace:start(#{}),
    cats_test_lib:stop(Trace, kill),
    cats_test_lib:eventually(fun() -> is_free(Config) end).

%%------------------------------------------------------------------------------------------------------------
%% Options

chosen_tables(Config) ->
    [One, Other] = [cats:new(Name, [public]) || Name <- [trace_wanted, trace_unwanted]],
    {_, Events} = traced(#{tables => [One]},
                         fun() -> [cats:insert(Table, {N, N}) || Table <- [One, Other], N <- lists:seq(1, 1000)] end,
                         Config),
    ?assertNotEqual([], of_table(<<"adaptation">>, <<"trace_wanted">>, Events)),
    ?assertEqual([<<"trace_wanted">>], lists:usort([Table || #{<<"args">> := #{<<"table">> := Table}} <- Events])),
    [cats:delete(Table) || Table <- [One, Other]].

chosen_events(Config) ->
    {_, Events} = traced(#{events => [adaptations]},
                         fun() ->
                                 Table = cats:new(trace_some, [named_table]),
                                 cats:insert(Table, [{N} || N <- lists:seq(1, 100000)]),
                                 cats:delete(Table)
                         end, Config),
    ?assertEqual([<<"adaptation">>],
                 lists:usort([Category
                              || #{<<"cat">> := Category, <<"args">> := #{<<"table">> := <<"trace_some">>}} <- Events,
                                 Category =/= <<"table">>])),
    ?assertEqual([], [Event || #{<<"cat">> := Category} = Event <- Events,
                               lists:member(Category, [<<"call">>, <<"wait">>, <<"scheduler">>])]).

%% A call that has not ended when the trace does is shown until then.
open_call(Config) ->
    Table = cats:new(trace_open, [public]),
    Objects = [{N, N} || N <- lists:seq(1, 2000000)],
    Name = proplists:get_value(name, Config),
    cats_test_lib:eventually(
      fun() ->
              {ok, Trace} = cats_trace:start(#{}),
              {Caller, Monitor} = spawn_monitor(fun() -> cats:insert(Table, Objects) end),
              timer:sleep(100),
              {_, Events} = read(cats_trace:stop(Trace, Name)),
              exit(Caller, kill),
              receive {'DOWN', Monitor, _, _, _} -> ok end,
              [] =/= [Call || #{<<"args">> := #{<<"unfinished">> := true}} = Call
                                  <- of_table(<<"call">>, <<"trace_open">>, Events)]
      end),
    cats:delete(Table).

%%------------------------------------------------------------------------------------------------------------
%% Files

%% Names of all kinds, and several tables of one name. What is in the page is what is in the file, and it comes from
%% nowhere else.
names(Config) ->
    Names = ['</script><b>"x"', 'a\\b\n', '\x{1F600}', ''],
    {#{trace := File, page := Page}, Events} =
        traced(#{}, fun() -> [cats:delete(cats:new(Name, [])) || Name <- Names, _ <- [1, 2]] end, Config),
    Shown = [Name || #{<<"name">> := <<"created">>, <<"args">> := #{<<"table">> := Name}} <- Events],
    ?assertEqual(lists:sort([unicode:characters_to_binary(io_lib:format("~tp (~b)", [Name, N]))
                             || Name <- Names, N <- [1, 2]]),
                 lists:sort(Shown)),
    {ok, Trace} = file:read_file(File),
    {ok, Html} = file:read_file(Page),
    {match, [Inside]} = re:run(Html, "<script type='application/json' id='trace'>(.*?)</script>",
                               [dotall, {capture, all_but_first, binary}]),
    ?assertEqual(cats_web_SUITE:decoded(Trace), cats_web_SUITE:decoded(Inside)),
    ?assertEqual(nomatch, re:run(Html, "https?://")),
    ?assertEqual(nomatch, re:run(Html, "(?i)<(script|link|img|iframe)[^>]* (src|href)='(?!data:)")),
    ?assertEqual(3, length(binary:matches(Html, <<"</script>">>))).

%% Without a name they are in the current directory. One that cannot be written is told, and nothing is lost.
files(Config) ->
    {ok, Before} = file:get_cwd(),
    ok = file:set_cwd(proplists:get_value(priv_dir, Config)),
    {ok, Trace} = cats_trace:start(#{}),
    cats:delete(cats:new(trace_kept, [])),
    ?assertMatch({error, {<<"no/such/directory.json">>, enoent}}, cats_trace:stop(Trace, "no/such/directory")),
    {ok, #{trace := <<"cats-trace-", _/binary>>, page := Page}} = Stopped = cats_trace:stop(Trace),
    {_, Events} = read(Stopped),
    ?assertEqual([<<"created">>, <<"deleted">>], names_of(of_table(<<"table">>, <<"trace_kept">>, Events))),
    ?assert(filelib:is_regular(Page)),
    ok = file:set_cwd(Before).

bad_options(_Config) ->
    [?assertError({badarg, _}, cats_trace:start(Options))
     || Options <- [[], #{seconds => 0}, #{seconds => 3601}, #{ring => 15}, #{ring => 1.0}, #{events => [wait]},
                    #{events => waits}, #{tables => [no_such_table]}, #{tables => trace}, #{tables => [make_ref()]},
                    #{tables => [17]}, #{table => all}, #{nodes => []}, #{nodes => node()},
                    #{nodes => [node(), node()]},
                    #{nodes => ["a@b"]}, #{nodes => [list_to_atom("n" ++ [N]) || N <- lists:seq($a, $k)]},
                    #{nodes => [node()], tables => [make_ref()]}]].

%%------------------------------------------------------------------------------------------------------------
%% Many events

%% The work grows with the number of events, whatever they are, and whether they have anything in common.
many_events(_Config) ->
    Kinds = [wait, busy, read_again, split, join, grow, shrink, more_locks, fewer_locks, slice, call_begin,
             call, retire, reclaim, retire_contents, reclaim_contents, contents, created, renamed, given, deleted],
    Cases = [{[Kind], Common} || Kind <- Kinds, Common <- [true, false]]
        ++ [{[contents, wait], true}, {[created, contents, wait, call], false},
            {[call_begin, slice, wait, busy], true}],
    [begin
         [Few, Many] = [work(Events, Common, Number) || Number <- [300, 9000]],
         ct:log("~p, in common: ~p: ~b and ~b reductions", [Events, Common, Few, Many]),
         ?assert(Many < 60 * Few, {Events, Common, Few, Many})
     end || {Events, Common} <- Cases].

%% The reductions for so many events of these kinds in turn. They have subjects in common or not, and all the tables are
%% wanted.
work(Kinds, Common, Number) ->
    Subject = fun(N) -> if Common -> 1; true -> N end end,
    Event = fun(N, Kind) -> event(Kind, 1000 * N, Subject(N div length(Kinds))) end,
    Events = [Event(N, Kind)
              || {N, Kind} <- lists:zip(lists:seq(1, Number), lists:sublist(in_turn(Kinds, Number), Number))],
    {Some, Others} = lists:partition(fun(One) -> element(2, One) rem 2000 =:= 0 end, Events),
    Collected = #{length => 1.0 * Number, threads => [{<<"1_scheduler">>, Some}, {<<"2_scheduler">>, Others}],
                  lost => 0, known => [], wanted => [0 | lists:seq(1, Number)], samples => [], counts => [],
                  told => [], left_out => []},
    {Pid, Ref} = spawn_monitor(fun() ->
                                       {reductions, Before} = process_info(self(), reductions),
                                       {Found, _} = cats_trace_file:events(Collected),
                                       {reductions, After} = process_info(self(), reductions),
                                       exit({done, After - Before, length(Found)})
                               end),
    receive {'DOWN', Ref, process, Pid, {done, Reductions, _}} -> Reductions end.

in_turn(Kinds, Number) -> lists:append(lists:duplicate(Number div length(Kinds) + 1, Kinds)).

%% A kind, when it ended, how long it took, table or address, process, two facts.
event(Kind, Time, Subject) when Kind =:= created; Kind =:= renamed -> {Kind, Time, 0, Subject, self(), a_table, 0};
event(Kind, Time, Subject) when Kind =:= call; Kind =:= call_begin -> {Kind, Time, 1000, Subject, self(), insert, 1};
event(given, Time, Subject) -> {given, Time, 0, Subject, self(), self(), self()};
event(wait, Time, Subject) -> {wait, Time, 100, Subject, self(), 16#100, 0};
event(contents, Time, Subject) -> {contents, Time, 0, Subject, undefined, Subject, 0};
event(Kind, Time, Subject) -> {Kind, Time, 500, Subject, self(), 1, 2}.

%% A process that is asked for its name answers when it runs. So none is asked.
names_of_busy_processes(Config) ->
    {ok, Trace} = cats_trace:start(#{}),
    true = register(?FUNCTION_NAME, self()),
    [cats:delete(cats:new(trace_asks, [])) || _ <- lists:seq(1, 50)],
    erlang:trace(Trace, true, [call]),
    erlang:trace_pattern({erlang, process_info, '_'}, true, []),
    {_, Events} = read(cats_trace:stop(Trace, proplists:get_value(name, Config))),
    erlang:trace_pattern({erlang, process_info, '_'}, false, []),
    true = unregister(?FUNCTION_NAME),
    ?assertEqual([], [Asked || {trace, _, call, {_, _, [Asked | _]}} <- flush(), Asked =/= Trace]),
    Name = list_to_binary(atom_to_list(?FUNCTION_NAME) ++ " " ++ pid_to_list(self())),
    ?assertNotEqual([], [Event || #{<<"args">> := #{<<"process">> := Process}} = Event <- Events, Process =:= Name]).

flush() -> receive Message -> [Message | flush()] after 0 -> [] end.

%%------------------------------------------------------------------------------------------------------------
%% Processes

%% Some processes always run or could run, and others always wait.
processes(Config) ->
    {ok, Trace} = cats_trace:start(#{events => [processes]}),
    Busy = [spawn_link(fun Spin() -> Spin() end) || _ <- lists:seq(1, 7)],
    Idle = [spawn_link(fun() -> receive never -> ok end end) || _ <- lists:seq(1, 100)],
    Counted = fun() -> maps:get(counts, sys:get_state(Trace, infinity)) end,
    IsIt = fun({_, Running, Runnable, Waiting}) ->
                   Running > 0 andalso Running + Runnable >= 7 andalso Waiting > 100
           end,
    cats_test_lib:eventually(fun() -> lists:any(IsIt, Counted()) end),
    [begin unlink(Pid), cats_test_lib:stop(Pid, kill) end || Pid <- Busy ++ Idle],
    Expected = length(Counted()),
    {_, Events} = read(cats_trace:stop(Trace, proplists:get_value(name, Config))),
    Counts = [Counts || #{<<"ph">> := <<"C">>, <<"name">> := <<"processes">>, <<"args">> := Counts} <- Events],
    ?assert(length(Counts) >= Expected),
    All = lists:sum([erlang:system_info(Item) || Item <- [schedulers, dirty_cpu_schedulers, dirty_io_schedulers]]),
    [?assert(map_size(One) =:= 3 andalso lists:min(maps:values(One)) >= 0 andalso Running =< All, One)
     || #{<<"running">> := Running} = One <- Counts],
    ?assert(lists:any(fun(#{<<"waiting">> := Waiting}) -> Waiting > 100 end, Counts)),
    ?assert(lists:any(fun(#{<<"running">> := Running, <<"runnable">> := Runnable}) -> Running + Runnable >= 7 end,
                      Counts)).

%%------------------------------------------------------------------------------------------------------------
%% Several nodes

%% Nodes that know each other. The first one has a trace of them, as this one is none.
start_nodes(Paths) ->
    Name = fun() -> list_to_atom(lists:concat(["cats_trace_", os:getpid(), "_", erlang:unique_integer([positive])]))
           end,
    Started = [peer:start_link(#{name => Name(), host => "localhost", connection => standard_io, wait_boot => 120000,
                                 args => ["-setcookie", "cats_trace", "-pa" | Path]}) || Path <- Paths],
    {[Peer || {ok, Peer, _} <- Started], [Node || {ok, _, Node} <- Started]}.

with_nodes(Paths, Function, Config) ->
    {[First | _] = Peers, Nodes} = start_nodes(Paths),
    Result = peer:call(First, ?MODULE, Function, [Nodes, proplists:get_value(name, Config)], infinity),
    [peer:stop(Peer) || Peer <- Peers, is_process_alive(Peer)],
    {Nodes, Result}.

%% What happens on one node after the other, as the messages between them tell, is in that order as far as the bounds of
%% the errors say.
nodes(Config) ->
    {[One, Other], {Result, Times}} = with_nodes([code:get_path(), code:get_path()], over_nodes, Config),
    {#{nodes := Clocks}, Events} = read(Result),
    #{One := #{offset := 0.0, error := Own}, Other := #{offset := Offset, error := Error}} = Clocks,
    ?assert(abs(Offset - 7000000) =< Error, {Offset, Error}),
    ?assert(Error < Times),
    {ok, Text} = file:read_file(maps:get(trace, element(2, Result))),
    #{<<"otherData">> := #{<<"nodes">> := [#{<<"node">> := First, <<"number">> := 1},
                                           #{<<"node">> := Second, <<"number">> := 2, <<"error">> := _}]},
      <<"traceEvents">> := All} = cats_web_SUITE:decoded(Text),
    ?assertEqual([atom_to_binary(One), atom_to_binary(Other)], [First, Second]),
    Names = [Name || #{<<"name">> := <<"process_name">>, <<"args">> := #{<<"name">> := Name}} <- All],
    ?assertMatch([<<"cats on ", _/binary>>, <<"cats on ", _/binary>>], Names),
    ?assertMatch([_], [Name || Name <- Names, binary:match(Name, <<"clock">>) =/= nomatch]),
    Created = [{Table, Node, Time}
               || #{<<"name">> := <<"created">>, <<"pid">> := Node, <<"ts">> := Time,
                    <<"args">> := #{<<"table">> := Table}} <- Events],
    [{_, 1, T1}, {_, 2, T2}, {_, 1, T3}] =
        [lists:keyfind(Name, 1, Created) || Name <- [<<"trace_first">>, <<"trace_second">>, <<"trace_third">>]],
    ?assert(T1 =< T2 + Error + Own, {T1, T2, Error, Own}),
    ?assert(T2 =< T3 + Error + Own, {T2, T3, Error, Own}),
    %% Pids are written as their node does.
    ?assertEqual([], [Process || #{<<"args">> := #{<<"process">> := Process}} <- Events,
                                 binary:match(Process, <<"<0.">>) =:= nomatch]).

%% @doc On the first of these nodes: the result of a trace, and the microseconds that it took.
over_nodes([_, Other] = Nodes, Name) ->
    {module, _} = erpc:call(Other, code, load_binary, [cats_trace_recorder, "ahead", ahead(filename:dirname(Name))]),
    Before = erlang:monotonic_time(microsecond),
    {ok, Trace} = cats_trace:start(#{nodes => Nodes}),
    cats:new(trace_first, [named_table]),
    erpc:call(Other, cats, new, [trace_second, []]),
    cats:new(trace_third, [named_table]),
    Result = cats_trace:stop(Trace, Name),
    {error, no_trace} = cats_trace:stop(Trace, Name),
    {Result, erlang:monotonic_time(microsecond) - Before}.

%% The code of the recorder with clocks that are ahead, the one that nobody sets by 5 s, and the system's by 7 s.
ahead(Directory) ->
    {ok, Source} = file:read_file(filename:join(cats_test_lib:root(), "src/cats_trace_recorder.erl")),
    Later = fun(Clock, Text, Seconds) -> binary:replace(Text, Clock, <<Clock/binary, Seconds/binary>>, [global]) end,
    Changed = Later(<<"os:perf_counter(nanosecond)">>,
                    Later(<<"os:system_time(nanosecond)">>, Source, <<" + 7000000000">>), <<" + 5000000000">>),
    File = filename:join(Directory, "cats_trace_recorder.erl"),
    ok = file:write_file(File, Changed),
    {ok, cats_trace_recorder, Code} = compile:file(File, [binary]),
    Code.

%% The error names the node, and no other one is traced.
nodes_that_cannot(Config) ->
    {[_, Other, Bare], Found} =
        with_nodes([code:get_path(), code:get_path(), []], errors_of_nodes, Config),
    ?assertEqual([{error, {no_such@localhost, down}}, {error, {Bare, no_cats}}, {error, {Other, already_tracing}}, ok],
                 Found).

errors_of_nodes([One, Other, Bare], Name) ->
    Errors = [cats_trace:start(#{nodes => Nodes}) || Nodes <- [[One, Other, no_such@localhost], [One, Bare, Other]]],
    {ok, Trace} = eventually_started(#{nodes => [Other]}),
    Busy = cats_trace:start(#{nodes => [One, Other]}),
    {ok, #{nodes := #{Other := #{offset := _}}}} = cats_trace:stop(Trace, Name),
    {ok, Last} = eventually_started(#{nodes => [One]}),
    {ok, _} = cats_trace:stop(Last, Name),
    Errors ++ [Busy, ok].

%% A recorder ends a moment after the trace to which it belongs.
eventually_started(Options) ->
    case cats_trace:start(Options) of
        {error, {_, already_tracing}} -> timer:sleep(10), eventually_started(Options);
        Started -> Started
    end.

%% The files are without a node that is gone.
node_that_goes_down(Config) ->
    {[One, Other], Result} = with_nodes([code:get_path(), code:get_path()], until_down, Config),
    {#{nodes := Clocks}, Events} = read(Result),
    ?assertMatch(#{One := #{offset := 0.0}, Other := down}, Clocks),
    ?assertEqual([1], lists:usort([Node || #{<<"pid">> := Node} <- Events])),
    {ok, Text} = file:read_file(maps:get(trace, element(2, Result))),
    ?assertMatch(#{<<"otherData">> := #{<<"down">> := [_]}}, cats_web_SUITE:decoded(Text)).

until_down([_, Other] = Nodes, Name) ->
    {ok, Trace} = cats_trace:start(#{nodes => Nodes}),
    cats:new(trace_here, [named_table]),
    monitor_node(Other, true),
    erpc:cast(Other, erlang, halt, [0, [{flush, false}]]),
    receive {nodedown, Other} -> ok end,
    cats_trace:stop(Trace, Name).
