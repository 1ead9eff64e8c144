%% `cats:fetch/4' with options `returns', `negative_ttl' and `refresh_ahead'.
-module(cats_fetch_options_SUITE).
-include_lib("stdlib/include/assert.hrl").
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, end_per_testcase/2]).
-export([outcomes/1, lifetimes_of_outcomes/1, an_ignored_value_is_shared/1, ignored_for_others/1,
         an_ignored_renewal/1, a_write_beside_an_ignored_value/1, no_outcomes/1, outcomes_explained/1]).
-export([remembered/1, any_failure/1, failures_for_others/1, a_write_ends_a_failure/1, what_is_not_remembered/1,
         renewals_after_a_failure/1, failures_of_equal_keys/1, failures_are_bounded/1, failures_are_freed/1,
         failures_beside_a_limit/1, like_a_model/1]).
-export([renewed_ahead/1, lifetimes_ahead/1, writes_during_a_renewal/1, failed_ahead/1, ahead_of_an_own_end/1,
         nothing_ahead/1, many_ahead/1]).

suite() -> [{timetrap, {minutes, 10}}].

all() ->
    [outcomes, lifetimes_of_outcomes, an_ignored_value_is_shared, ignored_for_others, an_ignored_renewal,
     a_write_beside_an_ignored_value, no_outcomes, outcomes_explained, remembered, any_failure, failures_for_others,
     a_write_ends_a_failure, what_is_not_remembered, renewals_after_a_failure, failures_of_equal_keys,
     failures_are_bounded, failures_are_freed, failures_beside_a_limit, like_a_model,
     renewed_ahead, lifetimes_ahead, writes_during_a_renewal, failed_ahead, ahead_of_an_own_end, nothing_ahead,
     many_ahead].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(cats),
    Config.

end_per_suite(_Config) -> ok.

end_per_testcase(_Case, _Config) -> cats_nif:stop_clock(false).

-define(OUTCOME, #{returns => outcome}).

stop_clock() -> put(clock, cats_nif:stop_clock(erlang:unique_integer([positive]) * 1000000)).

%% Lets so many milliseconds pass on the clock that was stopped.
pass(Time) -> put(clock, cats_nif:stop_clock(get(clock) + Time)).

%% Tables of all kinds that a fetch can fill.
tables() ->
    [cats:new(t, [public, Type | More])
     || Type <- [set, ordered_set],
        More <- [[], [compressed], [{ttl, 60_000}], [{idle, 60_000}], [{limit, {objects, 10}}],
                 [{limit, {bytes, 50_000}}, {ttl, infinity}]]].

leased() -> [Table || Table <- tables(), [cats:info(Table, Item) || Item <- [ttl, limit]] =/= [undefined, undefined]].

never() -> fun(_) -> error(called) end.

%% A function that waits for what it returns or how it fails, after it has told the test that it runs.
slow() ->
    Test = self(),
    fun(_) ->
            Test ! {runs, self()},
            receive
                {return, Value} -> Value;
                {fail, Class, Reason} -> erlang:raise(Class, Reason, [])
            end
    end.

runs() -> receive {runs, Pid} -> Pid end.

%% A process that evaluates a function, and what that returns or how it fails.
begins(Function) ->
    Test = self(),
    spawn_link(fun() -> Test ! {self(), try Function() catch Class:Reason -> {Class, Reason} end} end).

result(Pid) -> receive {Pid, Result} -> Result end.

%% Waits until so many calls have waited for the function of another process.
have_waited(Table, Count) ->
    cats_test_lib:eventually(fun() -> maps:get(fetches_waited, cats:stats(Table)) =:= Count end).

%% Waits until all flights and renewers have ended.
no_processes() ->
    cats_test_lib:eventually(fun() ->
                                     [Pid || Pid <- processes(),
                                             {_, {cats_fetch, _, _}} <- [process_info(Pid, initial_call)]] =:= []
                             end).

outcomes(_Config) ->
    [begin
         ?assertEqual({1, a}, cats:fetch(Table, 1, fun(Key) -> {store, {Key, a}} end, ?OUTCOME)),
         ?assertEqual({2, b}, cats:fetch(Table, 2, fun(Key) -> {store, {Key, b}, #{}} end, ?OUTCOME)),
         ?assertEqual([x, <<"y">>], cats:fetch(Table, 3, fun(_) -> {ignore, [x, <<"y">>]} end, ?OUTCOME)),
         %% Nothing is remembered of it.
         ?assertEqual({3, c}, cats:fetch(Table, 3, fun(_) -> {ignore, {3, c}} end, ?OUTCOME)),
         ?assertEqual([{1, a}, {2, b}], lists:sort(cats:tab2list(Table))),
         %% With the option's default, such a tuple is an object.
         ?assertEqual({store, {4}}, cats:fetch(Table, store, fun(_) -> {store, {4}} end, #{returns => object})),
         ?assertEqual({1, a}, cats:fetch(Table, 1, never(), ?OUTCOME)),
         ?assertMatch(#{fetches_made := 5, fetches_failed := 0}, cats:stats(Table))
     end || Table <- tables()],
    no_processes().

%% The time of an outcome goes before that of the call, which goes before the table's.
lifetimes_of_outcomes(_Config) ->
    stop_clock(),
    [begin
         Stored = fun(Key, Times) -> fun(_) -> list_to_tuple([store, {Key} | Times]) end end,
         {1} = cats:fetch(Table, 1, Stored(1, [#{ttl => 30}]), ?OUTCOME#{ttl => 70, stale => 10}),
         {2} = cats:fetch(Table, 2, Stored(2, [#{ttl => infinity}]), ?OUTCOME#{ttl => 70}),
         {3} = cats:fetch(Table, 3, Stored(3, [#{}]), ?OUTCOME#{ttl => 70}),
         {4} = cats:fetch(Table, 4, Stored(4, []), ?OUTCOME),
         Default = cats:ttl(Table, 4),
         ?assertEqual([30, infinity, 70], [cats:ttl(Table, Key) || Key <- [1, 2, 3]]),
         cats:insert(Table, {5}),
         ?assertEqual(Default, cats:ttl(Table, 5))
     end || Table <- leased()],
    no_processes().

%% All that wait get the value, and one function runs.
an_ignored_value_is_shared(_Config) ->
    [begin
         Make = slow(),
         Pids = [begins(fun() -> cats:fetch(Table, key, Make, ?OUTCOME) end) || _ <- lists:seq(1, 50)],
         Leader = runs(),
         have_waited(Table, 49),
         Leader ! {return, {ignore, {not_found, [1.5]}}},
         [?assertEqual({not_found, [1.5]}, result(Pid)) || Pid <- Pids],
         receive {runs, _} -> error(runs_twice) after 0 -> ok end,
         ?assertEqual([], cats:tab2list(Table))
     end || Table <- tables()],
    no_processes().

%% A call that expects an object gets no ignored value.
ignored_for_others(_Config) ->
    [begin
         Make = slow(),
         Leads = begins(fun() -> cats:fetch(Table, key, Make, ?OUTCOME) end),
         Leads = runs(),
         Own = fun(Key) -> {Key, own} end,
         Waits = [begins(Fetch) || Fetch <- [fun() -> cats:fetch(Table, key, Own) end,
                                             fun() -> cats:fetch(Table, key, Own, #{timeout => 60_000}) end]],
         have_waited(Table, 2),
         Leads ! {return, {ignore, nothing}},
         ?assertEqual(nothing, result(Leads)),
         [?assertEqual({key, own}, result(Pid)) || Pid <- Waits]
     end || Table <- tables()],
    no_processes().

%% A renewer that ignores its value leaves the old object for the rest of its time.
an_ignored_renewal(_Config) ->
    [begin
         stop_clock(),
         Table = cats:new(t, [Type, public, {ttl, 100}]),
         Options = ?OUTCOME#{stale => 1000},
         {key, old} = cats:fetch(Table, key, fun(Key) -> {store, {Key, old}} end, Options),
         pass(100),
         [begin
              {key, old} = cats:fetch(Table, key, slow(), Options),
              runs() ! {return, {ignore, nothing}},
              no_processes()
          end || _ <- [1, 2]],
         {key, old} = cats:fetch(Table, key, slow(), Options),
         runs() ! {return, {store, {key, new}, #{ttl => 30}}},
         no_processes(),
         ?assertEqual({[{key, new}], 30}, {cats:lookup(Table, key), cats:ttl(Table, key)})
     end || Type <- [set, ordered_set]].

%% What another process has stored meanwhile stays, and is what those get that waited.
a_write_beside_an_ignored_value(_Config) ->
    [begin
         Make = slow(),
         Leads = begins(fun() -> cats:fetch(Table, key, Make, ?OUTCOME) end),
         Leads = runs(),
         Waits = begins(fun() -> cats:fetch(Table, key, never(), ?OUTCOME) end),
         have_waited(Table, 1),
         cats:insert(Table, {key, other}),
         ?assertEqual({key, other}, result(Waits)),
         Leads ! {return, {ignore, nothing}},
         ?assertEqual(nothing, result(Leads)),
         ?assertEqual([{key, other}], cats:tab2list(Table))
     end || Table <- tables()],
    no_processes().

%% What is no outcome fails, for those that wait too, and stores nothing.
no_outcomes(_Config) ->
    [begin
         Make = slow(),
         Pids = [begins(fun() -> cats:fetch(Table, key, Make, ?OUTCOME) end) || _ <- [1, 2]],
         Leader = runs(),
         have_waited(Table, 1),
         Leader ! {return, Returned},
         [?assertEqual({error, badarg}, result(Pid)) || Pid <- Pids],
         ?assertEqual([], cats:tab2list(Table))
     end
     || Returned <- [{key, made}, store, {store, key}, {store, {other}}, {store, {}}, {store, {key}, #{ttl => 0}},
                     {store, {key}, #{ttl => 1, stale => 1}}, {store, {key}, []}, {commit, {key}}, {ignore}],
        Table <- [cats:new(t, [public]), cats:new(t, [public, ordered_set, {ttl, 1000}])]],
    no_processes().

outcomes_explained(_Config) ->
    Table = cats:new(t, []),
    NoOutcome = #{3 => <<"the function, which has option returns => outcome, returned neither {store, Object}, {store, "
                         "Object, #{ttl => Milliseconds | infinity}} nor {ignore, Value}">>},
    [?assertEqual(Remarks, cats_test_lib:remarks(fetch, [Table, key, fun(_) -> Returned end, ?OUTCOME]))
     || {Returned, Remarks} <-
            [{{key, 1}, NoOutcome}, {{store, {key, 1}, #{ttl => 1.0}}, NoOutcome},
             {{store, {other, 1}}, #{3 => <<"the function did not return an object with the key">>}},
             {{store, {key, 1}, #{ttl => 1}},
              #{1 => <<"objects of the table cannot expire: create it with option ttl or idle">>}}]],
    ?assertEqual(#{4 => cats_test_lib:invalid_option(fetch, {returns, outcomes})},
                 cats_test_lib:remarks(fetch, [Table, key, never(), #{returns => outcomes}])).

fails(Reason) -> fun(_) -> error(Reason) end.

%% A fetch whose failure is remembered for so many milliseconds.
fail(Table, Key, Reason, Time) ->
    {error, Reason} = catch_all(fun() -> cats:fetch(Table, Key, fails(Reason), #{negative_ttl => Time}) end),
    ok.

catch_all(Function) ->
    try Function() catch Class:Reason -> {Class, Reason} end.

%% What a call with the option gets: the failure, or `runs' where none is remembered, so that its function runs.
asks(Table, Key) ->
    Runs = fun(_) -> {ignore, runs} end,
    catch_all(fun() -> cats:fetch(Table, Key, Runs, ?OUTCOME#{negative_ttl => 1}) end).

%% A failure is remembered exactly so long, and one function runs.
remembered(_Config) ->
    [begin
         stop_clock(),
         Make = slow(),
         Fetch = fun() -> cats:fetch(Table, key, Make, #{negative_ttl => 50, retry => true}) end,
         Pids = [begins(Fetch) || _ <- lists:seq(1, 20)],
         Leader = runs(),
         have_waited(Table, 19),
         Leader ! {fail, error, {down, [1.5]}},
         [?assertEqual({error, {down, [1.5]}}, result(Pid)) || Pid <- Pids],
         pass(49),
         ?assertEqual({error, {down, [1.5]}}, asks(Table, key)),
         ?assertEqual(runs, asks(Table, other)),
         ?assertEqual([], cats:tab2list(Table)),
         ?assertMatch(#{fetches_failed := 1}, cats:stats(Table)),
         pass(1),
         ?assertEqual(runs, asks(Table, key)),
         ?assertEqual(runs, asks(Table, key)),
         pass(1),
         ?assertEqual({key, made}, cats:fetch(Table, key, fun(Key) -> {Key, made} end, #{negative_ttl => 50}))
     end || Table <- tables()],
    no_processes().

%% Of all classes, with terms of all kinds, and with the stack of the function.
any_failure(_Config) ->
    Reason = {self(), make_ref(), fun() -> self() end, binary:copy(<<7>>, 1000), #{a => [1.0, 1 bsl 100]}, 'x'},
    [begin
         Make = fun(_) -> erlang:raise(Class, Reason, [{of_the, test, 1, []}]) end,
         Twice = [try cats:fetch(Table, key, Make, #{negative_ttl => 60_000})
                  catch C:R:Stack -> {C, R, Stack}
                  end || _ <- [1, 2]],
         ?assertMatch([{Class, Reason, _}, {Class, Reason, _}], Twice),
         [Same, Same] = [hd(Stack) || {_, _, Stack} <- Twice]
     end || Class <- [error, exit, throw], Table <- tables()].

%% A call without the option runs its function. What that makes ends the failure, and how it fails does not.
failures_for_others(_Config) ->
    [begin
         ok = fail(Table, key, down, 60_000),
         ?assertEqual({exit, own}, catch_all(fun() -> cats:fetch(Table, key, fun(_) -> exit(own) end) end)),
         ?assertEqual({error, down}, asks(Table, key)),
         ?assertEqual({key, own}, cats:fetch(Table, key, fun(Key) -> {Key, own} end)),
         ?assertEqual({key, own}, cats:fetch(Table, key, never(), #{negative_ttl => 1})),
         cats:delete(Table, key),
         ?assertEqual(runs, asks(Table, key))
     end || Table <- tables()].

a_write_ends_a_failure(_Config) ->
    [begin
         ok = fail(Table, key, down, 60_000),
         ok = fail(Table, other, down, 60_000),
         _ = Write(Table),
         cats:delete_object(Table, {key, x}),
         ?assertEqual(runs, asks(Table, key)),
         cats:info(Table, size) =:= 1 andalso ?assertEqual({error, down}, asks(Table, other))
     end
     || Write <- [fun(T) -> cats:insert(T, [{key, x}, {third, x}]) end,
                  fun(T) -> cats:insert_new(T, {key, x}), cats:insert(T, {third, x}) end,
                  fun(T) -> cats:delete(T, key), cats:insert(T, {third, x}) end,
                  fun(T) -> cats:take(T, key), cats:insert(T, {third, x}) end,
                  fun(T) -> cats:delete_many(T, [key]), cats:insert(T, {third, x}) end,
                  fun(T) -> cats:delete_all_objects(T) end],
        Table <- tables()].

what_is_not_remembered(_Config) ->
    Options = #{negative_ttl => 60_000},
    [begin
         %% A function whose process was killed.
         Killed = begins(fun() -> cats:fetch(Table, key, slow(Self), Options) end),
         Killed = runs(),
         unlink(Killed),
         cats_test_lib:stop(Killed, kill),
         no_processes(),
         ?assertEqual(runs, asks(Table, key)),
         cats:insert(Table, {third, x}),
         %% A function during which somebody wrote to the key.
         Written = begins(fun() -> cats:fetch(Table, other, slow(Self), Options) end),
         Written = runs(),
         cats:delete(Table, other),
         Written ! {fail, error, late},
         ?assertEqual({error, late}, result(Written)),
         ?assertEqual(runs, asks(Table, other)),
         %% A large failure, which is given to those that wait all the same.
         Large = lists:seq(1, 20_000),
         ?assertEqual({error, Large}, catch_all(fun() -> cats:fetch(Table, key, fails(Large), Options) end)),
         Binary = binary:copy(<<1>>, 100_000),
         ?assertEqual({error, Binary}, catch_all(fun() -> cats:fetch(Table, key, fails(Binary), Options) end)),
         ?assertEqual(runs, asks(Table, key)),
         %% A table with the same name.
         ok = fail(Table, key, down, 60_000),
         cats:delete(Table)
     end || Table <- tables(), Self <- [self()]],
    One = cats:new(one, [named_table, public]),
    ok = fail(One, key, down, 60_000),
    cats:delete(One),
    One = cats:new(one, [named_table, public]),
    ?assertEqual(runs, asks(One, key)),
    cats:delete(One).

%% As slow/0, for this test.
slow(Test) ->
    fun(_) -> Test ! {runs, self()}, receive {fail, Class, Reason} -> erlang:raise(Class, Reason, []) end end.

%% While a failure of a renewal is remembered, none begins, and all get the old object.
renewals_after_a_failure(_Config) ->
    [begin
         stop_clock(),
         Table = cats:new(t, [Type, public, {ttl, 100}]),
         Options = #{stale => 1000, negative_ttl => 50},
         {key, old} = cats:fetch(Table, key, fun(Key) -> {Key, old} end, Options),
         pass(100),
         {key, old} = cats:fetch(Table, key, slow(), Options),
         runs() ! {fail, exit, normal},
         no_processes(),
         pass(49),
         [{key, old} = cats:fetch(Table, key, never(), Options) || _ <- lists:seq(1, 100)],
         no_processes(),
         ?assertMatch(#{fetches_failed := 1, fetches_stale := 101}, cats:stats(Table)),
         pass(1),
         {key, old} = cats:fetch(Table, key, slow(), Options),
         runs() ! {return, {key, new}},
         no_processes(),
         ?assertEqual([{key, new}], cats:lookup(Table, key))
     end || Type <- [set, ordered_set]].

failures_of_equal_keys(_Config) ->
    [begin
         Table = cats:new(t, [Type, public]),
         ok = fail(Table, {a, 1}, down, 60_000),
         ?assertEqual(Expected, asks(Table, {a, 1.0}))
     end || {Type, Expected} <- [{set, runs}, {ordered_set, {error, down}}]].

%% Where many keys fail, the last ones are remembered, in 4 MB.
failures_are_bounded(_Config) ->
    [begin
         ok = fail(Table, first, down, 0),
         {Before, Processes} = {memory(Table), length(processes())},
         [ok = fail(Table, {key, N}, {down, N}, 3_600_000) || N <- lists:seq(1, 100_000)],
         ?assertEqual({error, {down, 100_000}}, asks(Table, {key, 100_000})),
         ?assertEqual(runs, asks(Table, {key, 1})),
         ?assert(memory(Table) - Before =< 4 bsl 20),
         no_processes(),
         ?assert(length(processes()) < Processes + 50),
         cats:delete(Table)
     end || Table <- [cats:new(t, [public]), cats:new(t, [public, ordered_set, {ttl, 60_000}])]].

memory(Table) -> cats:info(Table, memory) * erlang:system_info(wordsize).

%% What is over is freed, though nobody asks.
failures_are_freed(_Config) ->
    Tables = tables(),
    stop_clock(),
    Before = [begin
                  cats:insert(Table, {other, x}),
                  %% The first event of a table takes memory for the counters.
                  ok = fail(Table, key, down, 0),
                  memory(Table)
              end || Table <- Tables],
    [[ok = fail(Table, N, down, 1000) || N <- lists:seq(1, 1000)] || Table <- Tables],
    [?assert(memory(Table) > Was) || {Table, Was} <- lists:zip(Tables, Before)],
    pass(1000),
    Freed = fun(Table, Was) -> cats_test_lib:eventually(fun() -> memory(Table) =:= Was end) end,
    [Freed(Table, Was) || {Table, Was} <- lists:zip(Tables, Before)],
    %% Where nothing else wakes who frees it.
    lists:foreach(fun cats:delete/1, Tables),
    cats_nif:stop_clock(false),
    [begin
         ok = fail(Table, key, down, 0),
         Was = memory(Table),
         [ok = fail(Table, N, down, 200) || N <- lists:seq(1, 1000)],
         Freed(Table, Was)
     end || Type <- [set, ordered_set], Table <- [cats:new(t, [public, Type])]].

%% A limit holds, and evicts nothing for failures.
failures_beside_a_limit(_Config) ->
    [begin
         [cats:insert(Table, {N}) || N <- lists:seq(1, 10)],
         [ok = fail(Table, {key, N}, down, 60_000) || N <- lists:seq(1, 100)],
         ?assertEqual([{error, down}], lists:usort([asks(Table, {key, N}) || N <- lists:seq(1, 100)])),
         ?assertEqual(lists:seq(1, 10), lists:sort([N || {N} <- cats:tab2list(Table)]))
     end || Limit <- [{objects, 10}, {bytes, 50_000}], Evict <- [s3_fifo, none], Type <- [set, ordered_set],
            Table <- [cats:new(t, [public, Type, {limit, Limit}, {evict, Evict}])]].

%% Random calls against a model: for each key the object, or the failure and its end.
like_a_model(_Config) ->
    [begin
         stop_clock(),
         Table = cats:new(t, [public, Type]),
         lists:foldl(fun(Step, Model) -> step(Table, Step, Model) end, #{}, lists:seq(1, 5000))
     end || Type <- [set, ordered_set]].

step(Table, Step, Model) ->
    Key = rand:uniform(5),
    Now = get(clock),
    Known = case Model of
                #{Key := {failed, _, End}} when End =< Now -> none;
                #{Key := Has} -> Has;
                _ -> none
            end,
    case rand:uniform(5) of
        1 -> pass(rand:uniform(20)), Model;
        2 -> cats:delete(Table, Key), maps:remove(Key, Model);
        3 -> cats:insert(Table, {Key, Step}), Model#{Key => {object, Step}};
        4 ->
            Time = rand:uniform(40),
            Got = catch_all(fun() -> cats:fetch(Table, Key, fails(Step), #{negative_ttl => Time}) end),
            case Known of
                none -> {error, Step} = Got, Model#{Key => {failed, Step, Now + Time}};
                _ -> expected(Known, Key, Got), Model
            end;
        5 ->
            Got = catch_all(fun() -> cats:fetch(Table, Key, fun(_) -> {Key, Step} end, #{negative_ttl => 1}) end),
            case Known of
                none -> {Key, Step} = Got, Model#{Key => {object, Step}};
                _ -> expected(Known, Key, Got), Model
            end
    end.

expected({object, Value}, Key, Got) -> ?assertEqual({Key, Value}, Got);
expected({failed, Reason, _End}, _Key, Got) -> ?assertEqual({error, Reason}, Got).

ahead(Time) -> #{refresh_ahead => Time}.

make(Value) -> fun(Key) -> {Key, Value} end.

%% The old object is given until the new one is there, which one process makes, and which lives anew.
renewed_ahead(_Config) ->
    [begin
         stop_clock(),
         Table = cats:new(t, [Type, public, {ttl, 100} | More]),
         {key, old} = cats:fetch(Table, key, make(old), ahead(30)),
         pass(69),
         {key, old} = cats:fetch(Table, key, never(), ahead(30)),
         pass(1),
         {key, old} = cats:fetch(Table, key, never(), ahead(29)),
         {key, old} = cats:fetch(Table, key, never()),
         {key, old} = cats:fetch(Table, key, slow(), ahead(30)),
         Renewer = runs(),
         [{key, old} = cats:fetch(Table, key, never(), ahead(30)) || _ <- lists:seq(1, 100)],
         ?assertEqual(30, cats:ttl(Table, key)),
         Renewer ! {return, {key, new}},
         no_processes(),
         ?assertEqual({[{key, new}], 100, 1}, {cats:lookup(Table, key), cats:ttl(Table, key), cats:info(Table, size)}),
         ?assertMatch(#{fetches_made := 2, fetches_stale := 0}, cats:stats(Table)),
         {key, new} = cats:fetch(Table, key, never(), ahead(30)),
         %% The new one ends at its time.
         pass(99),
         [{key, new}] = cats:lookup(Table, key),
         pass(1),
         [] = cats:lookup(Table, key),
         {key, newer} = cats:fetch(Table, key, make(newer), ahead(30))
     end || Type <- [set, ordered_set],
            More <- [[], [{limit, {objects, 1}}], [{limit, {bytes, 50_000}}, {evict, none}]]],
    no_processes().

%% With a time of its own, and as an outcome.
lifetimes_ahead(_Config) ->
    [begin
         stop_clock(),
         Table = cats:new(t, [Type, public, {ttl, 100}]),
         {key, old} = cats:fetch(Table, key, make(old), #{}),
         pass(90),
         {key, old} = cats:fetch(Table, key, make(new), (ahead(10))#{ttl => 40}),
         no_processes(),
         ?assertEqual({[{key, new}], 40}, {cats:lookup(Table, key), cats:ttl(Table, key)}),
         pass(35),
         Last = fun(Key) -> {store, {Key, last}, #{ttl => infinity}} end,
         {key, new} = cats:fetch(Table, key, Last, (ahead(10))#{returns => outcome}),
         no_processes(),
         ?assertEqual({[{key, last}], infinity}, {cats:lookup(Table, key), cats:ttl(Table, key)}),
         %% What never ends is never renewed.
         {key, last} = cats:fetch(Table, key, never(), ahead(1 bsl 40 - 1)),
         no_processes()
     end || Type <- [set, ordered_set]].

%% What others do while a renewal is under way.
writes_during_a_renewal(_Config) ->
    [begin
         stop_clock(),
         Table = cats:new(t, [Type, public, {ttl, 100}]),
         {key, old} = cats:fetch(Table, key, make(old), #{}),
         pass(90),
         {key, old} = cats:fetch(Table, key, slow(), ahead(10)),
         Renewer = runs(),
         Write(Table),
         Renewer ! {return, {key, new}},
         no_processes(),
         ?assertEqual([{key, Expected}], cats:lookup(Table, key))
     end
     || Type <- [set, ordered_set],
        {Expected, Write} <- [{other, fun(Table) -> cats:insert(Table, {key, other}) end},
                              {new, fun(_) -> pass(10) end}, {new, fun(_) -> pass(1000) end},
                              {new, fun(Table) -> cats:delete(Table, key) end}]].

%% The old object stays until its end. The next call tries again, with `negative_ttl' after that time.
failed_ahead(_Config) ->
    [begin
         stop_clock(),
         Table = cats:new(t, [Type, public, {ttl, 100}]),
         {key, old} = cats:fetch(Table, key, make(old), #{}),
         pass(50),
         [begin
              {key, old} = cats:fetch(Table, key, slow(), (ahead(50))#{negative_ttl => 10}),
              End(runs()),
              no_processes()
          end || End <- [fun(Pid) -> cats_test_lib:stop(Pid, kill) end, fun(Pid) -> Pid ! {fail, exit, normal} end]],
         [{key, old} = cats:fetch(Table, key, never(), (ahead(50))#{negative_ttl => 10}) || _ <- [1, 2]],
         pass(10),
         {key, old} = cats:fetch(Table, key, slow(), (ahead(50))#{negative_ttl => 10}),
         runs() ! {return, {other, new}},
         no_processes(),
         ?assertEqual({[{key, old}], 40}, {cats:lookup(Table, key), cats:ttl(Table, key)})
     end || Type <- [set, ordered_set]].

%% With an idle time, an object is renewed before the end to which no read moves it, and not before it would end unread.
ahead_of_an_own_end(_Config) ->
    [begin
         stop_clock(),
         Table = cats:new(t, [Type, public, {idle, 20} | Times]),
         {key, old} = cats:fetch(Table, key, make(old), Own),
         _ = [begin
                  {key, old} = cats:fetch(Table, key, never(), ahead(Ahead)),
                  pass(15)
              end || Ahead <- [10, 30, 50, 54, 10]],
         {key, old} = cats:fetch(Table, key, make(new), ahead(25)),
         no_processes(),
         ?assertEqual({[{key, new}], 20}, {cats:lookup(Table, key), cats:ttl(Table, key)})
     end || Type <- [set, ordered_set], {Times, Own} <- [{[{ttl, 100}], #{}}, {[], #{ttl => 100}}]].

%% Where only the owner may write, and where a read moves the only end, nothing is renewed ahead.
nothing_ahead(_Config) ->
    stop_clock(),
    [begin
         Table = cats:new(t, [Type | Options]),
         {key, old} = cats:fetch(Table, key, make(old), #{}),
         pass(90),
         {key, old} = cats:fetch(Table, key, never(), ahead(10))
     end || Type <- [set, ordered_set], Options <- [[{ttl, 100}], [private, {ttl, 100}], [public, {idle, 100}]]],
    ?assertEqual(#{1 => <<"objects of the table cannot expire: create it with option ttl or idle">>},
                 cats_test_lib:remarks(fetch, [cats:new(t, [public]), key, never(), ahead(10)])),
    no_processes().

%% Many processes fetch a key whose object is always due. No function runs beside another one, nobody waits, and the
%% values never go back.
many_ahead(_Config) ->
    [begin
         Table = cats:new(t, [Type, public, {ttl, 1_000_000}]),
         Running = counters:new(1, []),
         Make = fun(Key) ->
                        counters:add(Running, 1, 1),
                        1 = counters:get(Running, 1),
                        erlang:yield(),
                        counters:sub(Running, 1, 1),
                        {Key, erlang:unique_integer([monotonic])}
                end,
         {key, First} = cats:fetch(Table, key, Make),
         Fetch = fun(_, Last) ->
                         {key, Value} = cats:fetch(Table, key, Make, ahead(1_000_000)),
                         true = Value >= Last,
                         Value
                 end,
         cats_test_lib:together(lists:duplicate(4, fun() -> lists:foldl(Fetch, First, lists:seq(1, 2000)) end)),
         no_processes(),
         ?assertMatch(#{fetches_failed := 0, fetches_waited := 0}, cats:stats(Table)),
         ?assert(maps:get(fetches_made, cats:stats(Table)) > 1)
     end || Type <- [set, ordered_set]].
