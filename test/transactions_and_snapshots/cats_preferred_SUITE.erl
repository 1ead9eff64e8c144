%% The preferred transaction: others wait where it has read, and nowhere else. Its process, its keeper and those that
%% wait may be killed.
-module(cats_preferred_SUITE).
-measures([runs_for_long]).
-include_lib("stdlib/include/assert.hrl").
-import(cats_test_lib, [forever/1, repeat/1]).
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([what_is_reserved/1, beside_others/1, starvation/1, hopeless/1, nothing_to_write/1,
         preferred_dies/1, keeper_dies/1, preferred_goes_on/1, runs_for_long/1, kills/1, writes_outside/1,
         writes_after_leaving/1, fetches_outside/1, no_room_for_a_keeper/1]).
-export([prefer/1, prefer_without_room/0, writes/2]).

suite() -> [{timetrap, {minutes, 10}}].

all() ->
    [what_is_reserved, beside_others, starvation, hopeless, nothing_to_write, preferred_dies,
     keeper_dies, preferred_goes_on, runs_for_long, kills, writes_outside, writes_after_leaving, fetches_outside,
     no_room_for_a_keeper].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(cats),
    [{much, cats_test_lib:start_much()} | Config].

end_per_suite(Config) -> cats_test_lib:stop(proplists:get_value(much, Config), kill).

%%% What others may write

%% Others write what the preferred transaction has not read. What it has read they write when it has ended.
what_is_reserved(_Config) ->
    Reads = [{lookup, fun(T) -> cats_transaction:lookup(T, 5) end, [5], [1, 6]},
             {absent, fun(T) -> cats_transaction:member(T, 50) end, [50], [1, 51]},
             {several, fun(T) -> cats_transaction:lookup_many(T, [1, 5, 50]) end, [1, 5, 50], [2, 51]},
             {select, fun(T) -> cats_transaction:select(T, [{{5, '_'}, [], [true]}]) end, [5], [6]},
             {whole, fun(T) -> cats_transaction:foldl(fun(_, Count) -> Count + 1 end, 0, T) end, [1, 50], []}],
    Ordered = [{first, fun(T) -> cats_transaction:first(T) end, [0, 1], [2]},
               {next, fun(T) -> cats_transaction:next(T, 5) end, [5.5, 6], [4, 7]},
               {equal, fun(T) -> cats_transaction:lookup(T, 5.0) end, [5], [6]},
               {prev, fun(T) -> cats_transaction:prev(T, 5) end, [4, 4.5], [3, 6]},
               {range, fun(T) -> cats_transaction:range(T, 3, 8, 2) end, [3, 3.5, 4], [2, 5, 8]},
               {last, fun(T) -> cats_transaction:last(T) end, [10, 99], [9]}],
    [what_is_reserved(Type, More, Case)
     || {Type, Cases} <- [{set, Reads}, {bag, Reads}, {duplicate_bag, Reads}, {ordered_set, Reads ++ Ordered}],
        More <- [[] | [[{ttl, infinity}] || Type =:= set orelse Type =:= ordered_set] ++ [[compressed]]],
        Case <- Cases].

what_is_reserved(Type, More, {Name, Read, Reserved, Free}) ->
    Other = cats:new(table, [public]),
    Table = cats:new(table, [public, Type | More]),
    true = cats:insert(Table, [{N, N} || N <- lists:seq(1, 10)]),
    {Pid, Monitor, Keeper} = spawn_preferred(fun() -> Read(Table) end,
                                             fun() -> receive stop -> cats_transaction:abort(over) end end),
    Commit = fun(Writes) ->
                     cats_nif:transaction_commit([], [{T, Key, written(T, Key)} || {T, Key} <- Writes], none)
             end,
    What = {Type, More, Name},
    [?assertEqual({What, Key, true}, {What, Key, Commit([{Table, Key}])}) || Key <- Free],
    %% Nothing is written if one of several keys is reserved, in whichever order.
    [[?assertEqual({What, Key, {preferred, Keeper}}, {What, Key, Commit(Writes)})
      || Writes <- [[{Table, Key}], [{Other, 1}, {Table, Key}], [{Table, Key}, {Table, 1000}, {Other, 1}]]]
     || Key <- Reserved],
    ?assertEqual({What, []}, {What, cats:tab2list(Other)}),
    Delete = fun() -> cats_transaction:delete(Table, hd(Reserved)) end,
    {Waiter, Waiting} = spawn_monitor(fun() -> exit(cats_transaction:run(Delete)) end),
    _ = waits(Waiter),
    %% Operations outside of transactions do not wait.
    true = cats:insert(Table, {hd(Reserved), outside}),
    Pid ! stop,
    receive {'DOWN', Waiting, _, _, Outcome} -> ?assertEqual({atomic, true}, Outcome) end,
    receive {'DOWN', Monitor, _, _, _} -> ok end,
    ?assertEqual([], cats:lookup(Table, hd(Reserved))),
    [?assertEqual({What, Key, true}, {What, Key, Commit([{Table, Key}])}) || Key <- Reserved],
    [true = cats:delete(T) || T <- [Table, Other]].

written(Table, Key) ->
    case lists:member(cats:info(Table, type), [bag, duplicate_bag]) of
        true -> {false, [], [{Key, commit}]};
        false -> [{Key, commit}]
    end.

%% A transaction that reads much commits beside short ones in its first preferred run. Only a commit that began before
%% that may make it fail once more.
beside_others(_Config) ->
    [begin
         Table = cats:new(table, [Type, public]),
         true = cats:insert(Table, [{N, 0} || N <- lists:seq(1, 2000)]),
         Add = fun() ->
                       Keys = [rand:uniform(2000), rand:uniform(2000)],
                       {atomic, true} = cats_transaction:run(
                                          fun() ->
                                                  Known = [hd(cats_transaction:lookup(Table, Key)) || Key <- Keys],
                                                  cats_transaction:insert(Table, [{K, V + 1} || {K, V} <- Known])
                                          end)
               end,
         Short = [spawn_link(fun() -> forever(Add) end) || _ <- [1, 2, 3]],
         [begin
              Runs = counters:new(1, []),
              Sum = fun() ->
                            counters:add(Runs, 1, 1),
                            Objects = case Way of
                                          keys -> lists:append(cats_transaction:lookup_many(Table, lists:seq(1, 2000)));
                                          whole -> cats_transaction:select(Table, [{'_', [], ['$_']}])
                                      end,
                            cats_transaction:insert(Table, {sum, lists:sum([V || {_, V} <- Objects])})
                    end,
              ?assertEqual({atomic, true}, cats_transaction:run(Sum)),
              ?assert(counters:get(Runs, 1) =< 12)
          end || Way <- [keys, whole, keys]],
         [begin unlink(Pid), exit(Pid, kill) end || Pid <- Short]
     end || Type <- [set, ordered_set]].

%%% Preference, and its end

%% A transaction that takes long ends beside short ones that conflict with it all the time.
starvation(_Config) ->
    Table = cats:new(table, [public]),
    true = cats:insert(Table, [{N, 0} || N <- lists:seq(1, 50)]),
    Add = fun() ->
                  {atomic, true} = cats_transaction:run(
                                     fun() ->
                                             Key = rand:uniform(50),
                                             [{Key, Value}] = cats_transaction:read(Table, Key),
                                             cats_transaction:insert(Table, {Key, Value + 1})
                                     end)
          end,
    Short = [spawn_link(fun() -> forever(Add) end) || _ <- [1, 2]],
    Long = fun() ->
                   {atomic, _} = cats_transaction:run(
                                   fun() ->
                                           Sum = lists:sum([begin
                                                                erlang:yield(),
                                                                [{_, Value}] = cats_transaction:read(Table, Key),
                                                                Value
                                                            end || Key <- lists:seq(1, 50)]),
                                           timer:sleep(2),
                                           cats_transaction:insert(Table, {1, Sum})
                                   end)
           end,
    [Long() || _ <- lists:seq(1, 10)],
    [begin unlink(Pid), exit(Pid, kill) end || Pid <- Short].

%% @private
%% @doc Runs a transaction that fails until it is the preferred one, and then calls this function within it.
prefer(Inside) ->
    Table = cats:new(table, [public]),
    Fails = counters:new(1, []),
    cats_transaction:run(fun() ->
                                 [] = cats_transaction:read(Table, key),
                                 cats_transaction:insert(Table, {key}),
                                 counters:add(Fails, 1, 1),
                                 case counters:get(Fails, 1) > 10 of
                                     true -> Inside();
                                     false -> change(Table)
                                 end
                         end).

%% What the transaction has read changes, and changes back.
change(Table) ->
    cats:insert(Table, {key}),
    try cats_transaction:read(Table, other) catch throw:_ -> ok end,
    cats:delete(Table, key).

%% A process that runs the preferred transaction, and its keeper. The transaction has read by the first function when
%% this returns, and goes on with the second one.
spawn_preferred(Read, Inside) ->
    Parent = self(),
    {Pid, Monitor} = spawn_monitor(fun() -> prefer(fun() -> Read(), Parent ! {preferred, self()}, Inside() end) end),
    receive {preferred, Pid} -> ok end,
    {Pid, Monitor, cats_nif:transaction_preferred()}.

%% The reductions of a process since it has begun to wait.
waits(Pid) ->
    cats_test_lib:eventually(fun() -> process_info(Pid, status) =:= {status, waiting} end),
    {reductions, Reductions} = process_info(Pid, reductions),
    Reductions.

%% Functions that find nothing to write do so in the preferred transaction, too.
nothing_to_write(_Config) ->
    Keep = fun(_) -> keep end,
    [begin
         Table = cats:new(table, [Type, public]),
         true = cats:insert(Table, {5, x}),
         Call = fun() -> apply(cats_transaction, Function, [Table | Arguments]) end,
         {atomic, Result} = cats_transaction:run(Call),
         ?assertEqual({atomic, Result}, prefer(Call)),
         ?assertEqual([{5, x}], cats:tab2list(Table))
     end || Type <- [set, ordered_set],
            {Function, Arguments} <- [{take, [8]}, {delete, [8]}, {delete_object, [{8, x}]}, {delete_object, [{5, y}]},
                                      {update, [8, Keep]}, {update, [5, Keep]},
                                      {update, [8, fun(_) -> delete end, {8, x}]}, {update_element, [8, {2, x}]},
                                      {update_element, [5, []]}, {update_counter, [5, []]}, {insert, [[]]},
                                      {insert_new, [[]]}, {insert_new, [{5, y}]}, {insert_new, [[{5, y}, {8, y}]]},
                                      {select_delete, [[]]}, {select_delete, [[{{8, '_'}, [], [true]}]]},
                                      {select_delete, [[{'_', [], [false]}]]}]].

%% The process of the preferred transaction is killed. Who waits for it sleeps, and is told.
preferred_dies(_Config) ->
    Table = cats:new(table, [public]),
    {Pid, Monitor, Keeper} = spawn_preferred(fun() -> cats_transaction:lookup_many(Table, lists:seq(1, 20)) end,
                                             fun() -> timer:sleep(infinity) end),
    ?assertEqual({preferred, Keeper}, cats_nif:transaction_commit([], [{Table, 1, [{1}]}], none)),
    ?assertNot(cats_nif:transaction_prefer(self())),
    Run = fun(N) ->
                  spawn_monitor(fun() ->
                                        exit(cats_transaction:run(fun() -> cats_transaction:insert(Table, {N}) end))
                                end)
          end,
    [{Killed, _} | Others] = Waiters = [Run(N) || N <- lists:seq(1, 20)],
    Look = fun() -> [waits(Waiter) || {Waiter, _} <- Waiters] end,
    %% On a busy machine it is a while until all of them sleep.
    cats_test_lib:eventually(fun() -> Before = Look(), timer:sleep(100), Look() =:= Before end),
    exit(Killed, kill),
    exit(Pid, kill),
    receive {'DOWN', Monitor, _, _, Reason} -> ?assertEqual(killed, Reason) end,
    [receive {'DOWN', Waits, _, _, Outcome} -> ?assertEqual({atomic, true}, Outcome) end || {_, Waits} <- Others],
    ?assertEqual(lists:seq(2, 20), lists:sort([N || {N} <- cats:tab2list(Table)])),
    ?assertEqual(none, cats_nif:transaction_preferred()).

%% The keeper of the preferred transaction is killed: others may write what it has read, and it goes on.
keeper_dies(_Config) ->
    Table = cats:new(table, [public]),
    {Pid, Monitor, Keeper} =
        spawn_preferred(fun() -> cats_transaction:lookup(Table, 2) end,
                        fun() -> receive go_on -> exit(cats_transaction:insert(Table, {1})) end end),
    exit(Keeper, kill),
    ?assertEqual({atomic, true}, cats_transaction:run(fun() -> cats_transaction:insert(Table, {2}) end)),
    ?assertEqual(none, cats_nif:transaction_preferred()),
    Pid ! go_on,
    receive {'DOWN', Monitor, _, _, Reason} -> ?assertEqual(normal, Reason) end.

%% Transactions that all want to be preferred are killed at any instant. The others end.
kills(_Config) ->
    Table = cats:new(table, [public]),
    Numbers = lists:seq(1, 8),
    true = cats:insert(Table, [{N, 0} || N <- Numbers]),
    Add = fun() ->
                  cats_transaction:run(fun() ->
                                               Sums = [begin
                                                           [{N, Sum}] = cats_transaction:read(Table, N),
                                                           erlang:yield(),
                                                           {N, Sum + 1}
                                                       end || N <- Numbers],
                                               cats_transaction:insert(Table, Sums)
                                       end, [], #{retries => infinity})
          end,
    Victims = fun() ->
                      Pids = [spawn_monitor(fun() -> forever(Add) end) || _ <- Numbers],
                      timer:sleep(rand:uniform(3)),
                      [begin
                           exit(Pid, kill),
                           receive {'DOWN', Monitor, _, _, Reason} -> ?assertEqual(killed, Reason) end
                       end || {Pid, Monitor} <- Pids]
              end,
    repeat([Victims, Add, Add]),
    ?assertEqual({atomic, true}, Add()),
    ?assertMatch([_], lists:usort([Sum || {_, Sum} <- cats:tab2list(Table)])),
    ?assertEqual(none, cats_nif:transaction_preferred()).

%% A transaction that can never commit ends.
hopeless(_Config) ->
    Table = cats:new(table, [public]),
    Runs = counters:new(1, []),
    %% Another process does it, so nobody can forbid it.
    Changes = fun() ->
                      counters:add(Runs, 1, 1),
                      _ = cats_transaction:read(Table, key),
                      cats_test_lib:in_process(fun() -> cats:update_counter(Table, key, 1, {key, 0}) end),
                      cats_transaction:insert(Table, {written})
              end,
    Run = fun(Options) ->
                  counters:put(Runs, 1, 0),
                  {aborted, {Reason, N}} = cats_transaction:run(Changes, [], Options),
                  ?assertEqual(N, counters:get(Runs, 1)),
                  {Reason, N}
          end,
    ?assertEqual({conflict, 110}, Run(#{})),
    ?assertEqual({conflict, 1}, Run(#{retries => 0})),
    ?assertEqual({conflict, 10}, Run(#{retries => 9})),
    ?assertEqual({conflict, 300}, Run(#{retries => 299, timeout => infinity})),
    ?assertEqual({timeout, 1}, Run(#{timeout => 0})),
    %% Its time may be over in the first run of a machine that is busy.
    cats_test_lib:eventually(fun() -> {timeout, N} = Run(#{retries => infinity, timeout => 50}), N > 1 end),
    ?assertEqual([], cats:lookup(Table, written)),
    ?assertEqual(none, cats_nif:transaction_preferred()),
    %% Who waits for another one ends in time, too.
    {Pid, Monitor, _} = spawn_preferred(fun() -> cats_transaction:lookup(Table, written) end,
                                        fun() -> timer:sleep(infinity) end),
    ?assertEqual({aborted, {timeout, 1}},
                 cats_transaction:run(fun() -> cats_transaction:insert(Table, {written}) end, [], #{timeout => 10})),
    Reads = fun() ->
                    _ = cats_transaction:read(Table, key),
                    cats_test_lib:in_process(fun() -> cats:update_counter(Table, key, 1, {key, 0}) end),
                    cats_transaction:read(Table, other)
            end,
    cats_test_lib:eventually(fun() ->
                                     {aborted, {timeout, N}} = cats_transaction:run(Reads, [], #{timeout => 200}),
                                     ?assert(N =< 10),
                                     N =:= 10
                             end),
    exit(Pid, kill),
    receive {'DOWN', Monitor, _, _, _} -> ok end.

%% The process that runs the preferred transaction may not write to its tables from outside. Its other tables it may,
%% and other processes may.
writes_outside(_Config) ->
    Table = cats:new(named, [public, named_table]),
    Counted = cats:new(table, [public, ordered_set, {stats, true}]),
    Other = cats:new(table, [public]),
    Refused = fun(Write) ->
                      Outcome = cats_transaction:run(
                                  fun() ->
                                          cats_transaction:read(Table, key),
                                          cats_transaction:read(Counted, key),
                                          Write(),
                                          cats_transaction:insert(Table, {written})
                                  end),
                      {aborted, {badarg, [{cats, Function, _, _} | _] = Stack}} = Outcome,
                      #{1 := <<"the calling process runs a transaction that uses the table", _/binary>>} =
                          cats_failure:format_error(badarg, Stack),
                      Function
              end,
    Next = fun() -> {key, erlang:unique_integer()} end,
    ?assertEqual(insert, Refused(fun() -> cats:insert(Table, Next()) end)),
    ?assertEqual(insert, Refused(fun() -> cats:insert(cats:whereis(Table), Next()) end)),
    ?assertEqual(insert, Refused(fun() -> cats:insert(Counted, Next()) end)),
    ?assertEqual(update_counter, Refused(fun() -> cats:update_counter(Counted, key, 1, {key, 0}) end)),
    ?assertEqual([], cats:lookup(Table, written)),
    %% Afterwards it may again.
    true = cats:insert(Table, {key, 1}),
    true = cats:insert(Counted, {key, 1}),
    ?assertEqual({atomic, true},
                 prefer(fun() ->
                                cats_transaction:read(Table, key),
                                true = cats:insert(Other, {key, 1}),
                                [_] = cats:lookup(Table, key),
                                true = cats_test_lib:in_process(fun() -> cats:insert(Table, {other, 1}) end)
                        end)).

%% A process that has left the function of the preferred transaction writes at once, before its keeper looks by itself.
writes_after_leaving(_Config) ->
    [begin
         Table = cats:new(table, [public, {stats, Counted}]),
         Leaves = fun() ->
                          cats_transaction:read(Table, key),
                          erlang:hibernate(?MODULE, writes, [Table, Before])
                  end,
         {Pid, Monitor} = spawn_monitor(fun() -> prefer(Leaves) end),
         Pid ! wake,
         receive {'DOWN', Monitor, _, _, Outcome} -> ?assertEqual({true, none}, Outcome) end,
         ?assertEqual([{key, 1}], cats:tab2list(Table))
     end || Counted <- [false, true], Before <- [fun() -> ok end, fun() -> erase() end]].

%% @private
writes(Table, Before) ->
    receive wake -> ok end,
    _ = Before(),
    exit({cats:insert(Table, {key, 1}), cats_nif:transaction_preferred()}).

%% A fetch that hits writes nothing, so the preferred transaction may call it, too. One that misses would write.
fetches_outside(_Config) ->
    Never = fun(_) -> error(called) end,
    [begin
         Table = cats:new(table, [public, Type, {ttl, infinity} | More]),
         {key, 1} = cats:fetch(Table, key, fun(Key) -> {Key, 1} end),
         {ended, 1} = cats:fetch(Table, ended, fun(Key) -> {Key, 1} end, #{ttl => 1, stale => 60_000}),
         cats_test_lib:eventually(fun() -> not cats:member(Table, ended) end),
         Outcome = prefer(fun() ->
                                  cats_transaction:read(Table, other),
                                  {ended, 1} = cats:fetch(Table, ended, Never, #{stale => 60_000}),
                                  {key, 1} = cats:fetch(Table, key, Never, #{stale => 60_000}),
                                  {key, 1} = cats:fetch(Table, key, Never),
                                  [{key, 1}] = cats:fetch_many(Table, [key], Never),
                                  [cats_test_lib:cause(Fetch)
                                   || Fetch <- [fun() -> cats:fetch(Table, none, Never) end,
                                                fun() -> cats:fetch_many(Table, [key, none], Never) end]]
                          end),
         ?assertEqual({atomic, [inside_transaction, inside_transaction]}, Outcome),
         ?assertEqual([], cats_test_lib:flights())
     end || Type <- [set, ordered_set], More <- [[], [{stats, true}]]].

%% The keeper finds that the function of its transaction is gone, though its process lives and makes no transactions.
preferred_goes_on(_Config) ->
    Table = cats:new(table, [public]),
    {Pid, Monitor, Keeper} = spawn_preferred(fun() -> cats_transaction:lookup(Table, 1) end,
                                             fun() -> erlang:hibernate(timer, sleep, [infinity]) end),
    Keeping = monitor(process, Keeper),
    ?assertEqual({atomic, true}, cats_transaction:run(fun() -> cats_transaction:insert(Table, {1}) end)),
    receive {'DOWN', Keeping, _, _, _} -> ok end,
    ?assert(is_process_alive(Pid)),
    exit(Pid, kill),
    receive {'DOWN', Monitor, _, _, _} -> ok end.

%% A VM has no room for the keeper of a transaction that has failed often. It is aborted, and leaves nothing behind.
no_room_for_a_keeper(_Config) ->
    ok = cats_test_lib:in_small_vm(?MODULE, prefer_without_room).

%% @private
prefer_without_room() ->
    Before = get(),
    Sleepers = cats_test_lib:fill_processes(),
    {aborted, {system_limit, [{cats_transaction, run, [_, []], _}, {?MODULE, _, _, _} | _] = Stack}} =
        prefer(fun() -> exit(preferred) end),
    #{general := <<"the VM has as many processes as it may have", _/binary>>} =
        cats_failure:format_error(system_limit, Stack),
    Before = get(),
    none = cats_nif:transaction_preferred(),
    {messages, []} = process_info(self(), messages),
    Table = cats:new(table, [public]),
    {atomic, true} = cats_transaction:run(fun() -> cats_transaction:insert(Table, {key, 1}) end),
    true = cats:insert(Table, {key, 2}),
    [exit(Pid, kill) || Pid <- Sleepers],
    cats_test_lib:eventually(fun() -> length(processes()) < 500 end),
    {aborted, preferred} = prefer(fun() -> exit(preferred) end),
    none = cats_nif:transaction_preferred(),
    ok.

%% A transaction that is preferred for very long is so no more. It goes on.
runs_for_long(_Config) ->
    Table = cats:new(table, [public]),
    {Pid, Monitor, Keeper} = spawn_preferred(fun() -> cats_transaction:lookup(Table, 1) end,
                                             fun() -> timer:sleep(infinity) end),
    Keeping = monitor(process, Keeper),
    ?assertEqual({atomic, true}, cats_transaction:run(fun() -> cats_transaction:insert(Table, {1, written}) end)),
    %% The message of this monitor may come after the one for which the commit has waited.
    receive {'DOWN', Keeping, _, _, _} -> ok end,
    ?assertEqual(none, cats_nif:transaction_preferred()),
    ?assert(is_process_alive(Pid)),
    ?assertEqual([{1, written}], cats:lookup(Table, 1)),
    exit(Pid, kill),
    receive {'DOWN', Monitor, _, _, _} -> ok end.
