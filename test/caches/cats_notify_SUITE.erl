%% Option `notify' and `cats:removed/1': a process is told which objects a table has removed by itself.
-module(cats_notify_SUITE).
-include_lib("stdlib/include/assert.hrl").
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, end_per_testcase/2]).
-export([expired/1, evicted/1, what_is_asked_for/1, one_message/1, interval/1, batches/1, a_slow_process/1,
         a_dead_process/1, not_told/1, not_evicted/1, owners/1, replaced_contents/1, renewed/1, names/1, each_once/1,
         memory/1, info/1, explanations/1]).

suite() -> [{timetrap, {minutes, 10}}].

all() ->
    [expired, evicted, what_is_asked_for, one_message, interval, batches, a_slow_process, a_dead_process, not_told,
     not_evicted, owners, replaced_contents, renewed, names, each_once, memory, info, explanations].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(cats),
    Config.

end_per_suite(_Config) -> ok.

end_per_testcase(_Case, _Config) -> cats_nif:stop_clock(false).

types() -> [set, ordered_set].

message(Table) -> receive {cats_removed, Table} -> ok after 60000 -> error(no_message) end.

no_message() -> receive {cats_removed, _} = Message -> error(Message) after 150 -> ok end.

%% All that is told until so many objects were told or lost.
told(Table, Number) -> told(Table, Number, {[], 0}).

told(_Table, Number, {Removed, Lost}) when length(Removed) + Lost >= Number -> {lists:sort(Removed), Lost};
told(Table, Number, {Removed, Lost}) ->
    message(Table),
    {More, Less} = cats:removed(Table),
    told(Table, Number, {More ++ Removed, Lost + Less}).

%% All kinds of keys and values, and objects of different sizes. The references differ each time.
objects() ->
    [{a}, {1, 2}, {2.5, <<"text">>}, {<<"a key">>, [1, 2, {3}]}, {{tuple, 1}, #{a => <<0:8000>>}, self()},
     {fun lists:map/2, make_ref()}].

expired(_Config) ->
    [begin
         Table = cats:new(t, [Type, public, {ttl, 20}, {notify, self(), [{interval, 5}]}]),
         Objects = objects(),
         true = cats:insert(Table, Objects),
         ?assertEqual({lists:sort([{expired, Object} || Object <- Objects]), 0}, told(Table, 6))
     end || Type <- types()].

evicted(_Config) ->
    [begin
         Table = cats:new(t,
                          [Type, public, {limit, {objects, 10}}, {evict, Policy}, {notify, self(), [{interval, 5}]}]),
         [true = cats:insert(Table, {N, N}) || N <- lists:seq(1, 100)],
         {Removed, 0} = told(Table, 90),
         Left = cats:tab2list(Table),
         ?assertEqual(lists:sort([{evicted, {N, N}} || N <- lists:seq(1, 100), not lists:member({N, N}, Left)]),
                      Removed),
         no_message()
     end || Type <- types(), Policy <- cats_test_lib:policies()].

what_is_asked_for(_Config) ->
    [begin
         Table = cats:new(t, [Type, public, {keypos, 2}, {ttl, infinity}, {limit, {objects, 2}},
                              {notify, self(), [{events, Events}, {send, Send}, {interval, 0}]}]),
         true = cats:insert(Table, {x, {key, 1}}, #{ttl => 1}),
         cats_test_lib:eventually(fun() -> cats:info(Table, size) =:= 0 end),
         [true = cats:insert(Table, {x, {key, N}}) || N <- [2, 3, 4]],
         Expired = [{expired, {key, 1}} || lists:member(expired, Events)],
         Evicted = [evicted || lists:member(evicted, Events)],
         {Removed, 0} = told(Table, length(Expired ++ Evicted)),
         Keys = [{Why, case Send of keys -> What; objects -> {x, Key} = What, Key end} || {Why, What} <- Removed],
         ?assertMatch({Expired, [_ | _], _}, {[Pair || {expired, _} = Pair <- Keys], Keys, Evicted}),
         ?assertEqual(Evicted, [evicted || {evicted, {key, N}} <- Keys, N > 1])
     end || Type <- types(), Send <- [objects, keys], Events <- [[expired], [evicted], [expired, evicted]]].

%% However much is removed, one message comes until the process has come for it.
one_message(_Config) ->
    Table = cats:new(t, [public, {limit, {objects, 1}}, {notify, self(), [{interval, 1}, {batch, 1000000}]}]),
    [begin
         [true = cats:insert(Table, {N}) || N <- lists:seq(1, 50)],
         timer:sleep(20)
     end || _ <- lists:seq(1, 10)],
    %% Meanwhile the reaper has asked whether the process lives.
    timer:sleep(1200),
    message(Table),
    no_message(),
    ?assertMatch({[_ | _], 0}, cats:removed(Table)),
    ?assertEqual({[], 0}, cats:removed(Table)),
    no_message(),
    true = cats:insert(Table, {new}),
    message(Table),
    ?assertMatch({[{evicted, {50}}], 0}, cats:removed(Table)).

%% The message comes after the interval, for all that was removed in it.
interval(_Config) ->
    Table = cats:new(t, [public, {limit, {objects, 1}}, {notify, self(), [{interval, 300}]}]),
    Start = cats_test_lib:clock(),
    [true = cats:insert(Table, {N}) || N <- [1, 2, 3]],
    message(Table),
    %% The interval is one of whole milliseconds.
    ?assert(cats_test_lib:clock() - Start >= 299_000),
    ?assertMatch({[_, _], 0}, cats:removed(Table)).

batches(_Config) ->
    Table = cats:new(t, [public, {limit, {objects, 1}}, {notify, self(), [{interval, 1}, {batch, 7}]}]),
    [true = cats:insert(Table, {N}) || N <- lists:seq(0, 100)],
    Batches = [begin message(Table), {Batch, 0} = cats:removed(Table), length(Batch) end || _ <- lists:seq(1, 15)],
    ?assertEqual(lists:duplicate(14, 7) ++ [2], Batches),
    no_message(),
    %% Large objects come in smaller batches, so that no call is long.
    Large = cats:new(t, [public, {limit, {objects, 1}}, {notify, self(), [{interval, 1}]}]),
    [true = cats:insert(Large, {N, lists:seq(1, 10000)}) || N <- lists:seq(0, 50)],
    message(Large),
    {Some, 0} = cats:removed(Large),
    ?assert(length(Some) < 25),
    ?assertMatch({_, 0}, told(Large, 50 - length(Some))).

%% How many messages wait for this process. On OTP 25, a process that asks for its own does not see those that have come
%% since it last received one, for as long as it receives none.
messages() ->
    Self = self(),
    cats_test_lib:in_process(fun() -> process_info(Self, message_queue_len) end).

%% Nobody waits for it. Its mailbox and the queue have a bound.
a_slow_process(_Config) ->
    Table = cats:new(t, [public, {limit, {objects, 10}}, {notify, self(), [{queue, 100}, {interval, 0}]}]),
    [true = cats:insert(Table, {N}) || N <- lists:seq(1, 10010)],
    cats_test_lib:eventually(fun() -> messages() =/= {message_queue_len, 0} end),
    %% More evictions bring no second message.
    [true = cats:insert(Table, {N}) || N <- lists:seq(10011, 10020)],
    timer:sleep(20),
    ?assertEqual({message_queue_len, 1}, messages()),
    ?assertMatch({[_ | _], 9910}, told(Table, 10010)),
    true = cats:insert(Table, {last}),
    ?assertMatch({[{evicted, _}], 0}, told(Table, 1)).

a_dead_process(_Config) ->
    [begin
         Receiver = spawn(fun() -> receive {cats_removed, _} when Reads -> receive stop -> ok end; stop -> ok end end),
         Table = cats:new(t, [public, {limit, {objects, 10}}, {notify, Receiver, [{interval, 0}, {queue, 100000}]}]),
         [true = cats:insert(Table, {N, lists:seq(1, 100)}) || N <- lists:seq(1, 1000)],
         timer:sleep(20),
         Memory = cats:info(Table, memory),
         ?assertMatch({Receiver, [_ | _]}, cats:info(Table, notify)),
         cats_test_lib:stop(Receiver, kill),
         cats_test_lib:eventually(fun() ->
                                          true = cats:insert(Table, {rand:uniform(), x}),
                                          cats:info(Table, notify) =:= undefined
                                  end),
         ?assert(cats:info(Table, memory) < Memory div 10),
         [true = cats:insert(Table, {N, x}) || N <- lists:seq(1, 1000)],
         ?assert(cats:info(Table, memory) < Memory div 10)
     end || Reads <- [true, false]].

%% What calls remove is not told, nor what goes with the table.
not_told(_Config) ->
    Table = cats:new(t, [public, {ttl, infinity}, {limit, {objects, 100}}, {notify, self(), [{interval, 0}]}]),
    true = cats:insert(Table, [{N, x} || N <- lists:seq(1, 50)]),
    true = cats:delete(Table, 1),
    true = cats:insert(Table, {2, y}),
    [_] = cats:take(Table, 3),
    10 = cats:select_delete(Table, [{{'$1', '_'}, [{'>', '$1', 40}], [true]}]),
    true = cats:delete_all_objects(Table),
    true = cats:insert(Table, [{N, x} || N <- lists:seq(1, 50)]),
    no_message(),
    ?assertEqual({[], 0}, cats:removed(Table)),
    true = cats:delete(Table),
    no_message().

%% What a call writes or deletes is not evicted to make room for it. So as much is evicted as it adds.
not_evicted(_Config) ->
    [begin
         Options = [Type, public, {evict, Policy}, {notify, self(), [{interval, 0}]}],
         Table = cats:new(t, [{limit, {objects, 10}} | Options]),
         [true = cats:insert(Table, {N, old}) || N <- lists:seq(1, 10)],
         [cats:lookup(Table, rand:uniform(10)) || _ <- lists:seq(1, 20)],
         Shuffled = [Key || {_, Key} <- lists:sort([{rand:uniform(), Key} || Key <- lists:seq(1, 10)])],
         {Deleted, Others} = lists:split(Deletes, Shuffled),
         %% In an ordered_set, the same key in another form.
         Replaced = [case Type of ordered_set -> float(Key); set -> Key end || Key <- lists:sublist(Others, Replaces)],
         Objects = [{Key, new} || Key <- Replaced ++ [{new, N} || N <- lists:seq(1, Inserts)]],
         Write = fun() ->
                         [cats_transaction:delete(Table, Key) || Key <- Deleted],
                         cats_transaction:insert(Table, Objects)
                 end,
         case Deletes of
             0 -> true = cats:insert(Table, Objects);
             _ -> {atomic, true} = cats_transaction:run(Write)
         end,
         More = max(0, Inserts - Deletes),
         {Told, 0} = told(Table, More),
         ?assertEqual([], [Key || {evicted, {Key, _}} <- Told, Written <- Deleted ++ Replaced, Key == Written]),
         ?assertEqual({More, 10 - Deletes + Inserts - More}, {length(Told), cats:info(Table, size)}),
         ?assertEqual(lists:sort(Objects), lists:sort([Object || {_, new} = Object <- cats:tab2list(Table)])),
         ?assertEqual({[], 0}, cats:removed(Table))
     end || Type <- types(), Policy <- cats_test_lib:policies(), _ <- lists:seq(1, 10),
            {Deletes, Inserts, Replaces} <- [{3, 3, 0}, {3, 1, 0}, {3, 6, 0}, {2, 5, 3}, {5, 0, 5}, {0, 4, 3},
                                             {0, 1, 9}, {9, 10, 0}]],
    %% A list of which one key is taken adds nothing.
    [begin
         Table = cats:new(t, [Type, public, {limit, {Unit, Limit}}, {evict, Policy}]),
         Fill = fun Fill(N) when N < Limit -> cats:insert(Table, {N, binary:copy(<<"x">>, 100)}), Fill(N + 10);
                    Fill(_) -> ok
                end,
         try Fill(0) catch error:system_limit -> ok end,
         Objects = lists:sort(cats:tab2list(Table)),
         {Taken, _} = cats_test_lib:one_of(Objects),
         New = [{{new, N}, x} || N <- lists:seq(1, 5)],
         [?assertEqual({false, Objects}, {cats:insert_new(Table, List), lists:sort(cats:tab2list(Table))})
          || List <- [New ++ [{Taken, y}], [{Taken, y} | New], [{Taken, y}, {Taken, z}]]]
     end || Type <- types(), Policy <- [none | cats_test_lib:policies()],
            {Unit, Limit} <- [{objects, 100}, {bytes, 30000}]],
    %% An object that grows is not evicted for itself.
    [begin
         Table = cats:new(t, [Type, public, {limit, {bytes, 60000}}, {evict, Policy}, {notify, self()}]),
         [true = cats:insert(Table, {N, binary:copy(<<"x">>, 1000)}) || N <- lists:seq(1, 100)],
         [begin
              {Key, _} = cats_test_lib:one_of(cats:tab2list(Table)),
              true = Write(Table, Key, binary:copy(<<"x">>, 3000 + rand:uniform(5000))),
              {Told, 0} = cats:removed(Table),
              ?assertNot(lists:keymember(Key, 1, [Object || {evicted, Object} <- Told]))
          end || _ <- lists:seq(1, 50),
                 Write <- [fun(T, Key, Value) -> cats:insert(T, {Key, Value}) end,
                           fun(T, Key, Value) -> cats:insert(T, [{Key, Value}, {Key, Value}]) end,
                           fun(T, Key, Value) -> cats:update_element(T, Key, {2, Value}) end,
                           fun(T, Key, Value) -> cats:update(T, Key, fun(_) -> {Key, Value} end), true end]]
     end || Type <- types(), Policy <- cats_test_lib:policies()].

%% The process stays that of the option. The table may have another owner.
owners(_Config) ->
    Table = cats:new(t, [public, {ttl, 20}, {notify, self(), [{interval, 0}]}]),
    Other = spawn_link(fun() -> receive stop -> ok end end),
    true = cats:give_away(Table, Other, x),
    true = cats:insert(Table, {1}),
    ?assertEqual({[{expired, {1}}], 0}, told(Table, 1)),
    Others = cats:new(t, [public, {ttl, 20}, {notify, Other}]),
    ?assertEqual(not_receiver, cats_test_lib:cause(fun() -> cats:removed(Others) end)),
    Other ! stop.

replaced_contents(_Config) ->
    Table = cats:new(t, [public, {ttl, 20}, {notify, self(), [{interval, 0}]}]),
    true = cats:insert(Table, {1}),
    true = cats:delete_all_objects(Table),
    true = cats:insert(Table, {2}),
    ?assertEqual({[{expired, {2}}], 0}, told(Table, 1)).

%% An object that a fetch keeps is told when it goes.
renewed(_Config) ->
    Table = cats:new(t, [public, {ttl, 20}, {notify, self(), [{interval, 0}]}]),
    {1, old} = cats:fetch(Table, 1, fun(_) -> {1, old} end, #{stale => 100000}),
    {2, old} = cats:fetch(Table, 2, fun(_) -> {2, old} end, #{}),
    ?assertEqual({[{expired, {2, old}}], 0}, told(Table, 1)),
    {1, old} = cats:fetch(Table, 1, fun(_) -> {1, new} end, #{stale => 100000}),
    ?assertEqual({[{expired, {1, old}}], 0}, told(Table, 1)).

names(_Config) ->
    Named = cats:new(notified, [named_table, public, {ttl, 10}, {notify, self(), [{interval, 0}]}]),
    true = cats:insert(notified, {1}),
    ?assertEqual({[{expired, {1}}], 0}, told(Named, 1)),
    %% Who has got the old name only is told again.
    true = cats:insert(notified, {2}),
    message(notified),
    renamed = cats:rename(notified, renamed),
    message(renamed),
    ?assertEqual({[{expired, {2}}], 0}, cats:removed(renamed)),
    no_message(),
    true = cats:insert(renamed, {3}),
    ?assertEqual({[{expired, {3}}], 0}, told(renamed, 1)),
    true = cats:delete(renamed).

%% Several processes add objects. Each of them is there, was told or is lost, and none twice.
each_once(_Config) ->
    [begin
         Limit = case Kind of limit -> [{limit, {objects, 100}}]; ttl -> [{ttl, 5}] end,
         Table = cats:new(t, [Type, public, {notify, self(), [{interval, 1}, {queue, 2000}]} | Limit]),
         Writer = fun(Me) -> fun() -> [true = cats:insert(Table, {{Me, N}, N}) || N <- lists:seq(1, 20000)] end end,
         Test = self(),
         spawn_link(fun() -> cats_test_lib:together([Writer(Me) || Me <- [1, 2, 3]]), Test ! done end),
         {Removed, Lost} = collect(Table, {[], 0}),
         ?assertEqual(length(Removed), length(lists:usort(Removed))),
         ?assertEqual(60000, length(Removed) + Lost + cats:info(Table, size)),
         ct:log("~p: ~b told, ~b lost", [{Type, Kind}, length(Removed), Lost])
     end || Type <- types(), Kind <- [limit, ttl]].

collect(Table, {Removed, Lost}) ->
    receive
        {cats_removed, Table} ->
            {More, Less} = cats:removed(Table),
            collect(Table, {More ++ Removed, Lost + Less});
        done ->
            timer:sleep(300),
            rest(Table, {Removed, Lost})
    end.

rest(Table, {Removed, Lost}) ->
    _ = cats:info(Table, size),
    case cats:removed(Table) of
        {[], 0} -> flush(Table), {Removed, Lost};
        {More, Less} -> rest(Table, {More ++ Removed, Lost + Less})
    end.

flush(Table) -> receive {cats_removed, Table} -> flush(Table) after 0 -> ok end.

%% What is queued counts, and is freed with the table.
memory(_Config) ->
    Table = cats:new(t, [public, {limit, {objects, 1}}, {notify, self(), [{queue, 1000000}]}]),
    Before = cats:info(Table, memory),
    [true = cats:insert(Table, {N, lists:seq(1, 100)}) || N <- lists:seq(1, 1000)],
    ?assert(cats:info(Table, memory) - Before > 1000 * 100),
    told(Table, 999),
    ?assert(cats:info(Table, memory) - Before < 1000),
    [true = cats:insert(Table, {N, lists:seq(1, 100)}) || N <- lists:seq(1, 1000)],
    true = cats:delete(Table).

info(_Config) ->
    Self = self(),
    Default = [{events, [expired, evicted]}, {send, objects}, {queue, 10000}, {batch, 500}, {interval, 100}],
    ?assertEqual({Self, Default}, cats:info(cats:new(t, [{ttl, 10}, {notify, Self}]), notify)),
    Given = [{events, [evicted]}, {send, keys}, {queue, 1}, {batch, 2}, {interval, 0}],
    ?assertEqual({Self, Given}, cats:info(cats:new(t, [{idle, 10}, {notify, Self, Given}]), notify)),
    ?assertEqual(undefined, cats:info(cats:new(t, [{ttl, 10}]), notify)),
    ?assertEqual(undefined, cats:info(cats:new(t, []), notify)),
    ?assertEqual(undefined, cats:info(cats:snapshot(cats:new(t, [{ttl, 10}, {notify, Self}])), notify)).

explanations(_Config) ->
    ?assertEqual(#{2 => <<"option notify goes with ttl, idle or limit only">>},
                 cats_test_lib:remarks(new, [t, [{notify, self()}]])),
    [?assertMatch(#{2 := <<"invalid option: ", _/binary>>}, cats_test_lib:remarks(new, [t, [{ttl, 1}, Option]]))
     || Option <- [{notify, x}, {notify, self(), x}, {notify, self(), [x]}, {notify, self(), [{queue, 0}]},
                   {notify, self(), [{batch, 0}]}, {notify, self(), [{interval, -1}]}, {notify, self(), [{events, []}]},
                   {notify, self(), [{events, [deleted]}]},
                   {notify, self(), [{send, all}]}, {notify, self(), [{batch, 1} | x]}]],
    ?assertEqual(#{1 => <<"the table has no option notify">>},
                 cats_test_lib:remarks(removed, [cats:new(t, [{ttl, 1}])])),
    Other = spawn_link(fun() -> receive stop -> ok end end),
    ?assertEqual(#{1 => <<"option notify of the table has another process">>},
                 cats_test_lib:remarks(removed, [cats:new(t, [{ttl, 1}, {notify, Other}])])),
    ?assertMatch(#{1 := _}, cats_test_lib:remarks(removed, [no_table])),
    Other ! stop.
