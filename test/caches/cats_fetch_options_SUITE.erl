%% `cats:fetch/4' with what its function may say besides an object.
-module(cats_fetch_options_SUITE).
-include_lib("stdlib/include/assert.hrl").
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, end_per_testcase/2]).
-export([outcomes/1, lifetimes_of_outcomes/1, an_ignored_value_is_shared/1, ignored_for_others/1,
         an_ignored_renewal/1, a_write_beside_an_ignored_value/1, no_outcomes/1, outcomes_explained/1]).

suite() -> [{timetrap, {minutes, 10}}].

all() ->
    [outcomes, lifetimes_of_outcomes, an_ignored_value_is_shared, ignored_for_others, an_ignored_renewal,
     a_write_beside_an_ignored_value, no_outcomes, outcomes_explained].

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
    #{4 := Options} = cats_test_lib:remarks(fetch, [Table, key, never(), #{returns => outcomes}]),
    [?assertNotEqual(nomatch, string:find(Options, Name))
     || Name <- ["timeout", "refresh_timeout", "ttl", "stale", "retry", "returns"]].
