%% The limit of the library's memory: setting `memory_limit', and what is refused, given up and told near it.
-module(cats_budget_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-define(LIMIT, (48 bsl 20)).

all() ->
    [fills, goes_on, commits_deletions, unpacks, caches_first, shares, many_caches, too_much, file,
     lists, transactions, writers, alarm, reserve, settings, unlimited,
     explained].

in_peer(Settings, Function, Arguments) ->
    Given = lists:append([["-cats", atom_to_list(Name), lists:flatten(io_lib:format("~w", [Value]))]
                          || {Name, Value} <- Settings]),
    Peer = cats_test_lib:start_peer(Given ++ ["-pa" | code:get_path()]),
    try peer:call(Peer, ?MODULE, Function, Arguments, infinity) after peer:stop(Peer) end.

limited(Function, Arguments) -> in_peer([{memory_limit, ?LIMIT}], Function, Arguments).

%% Calls a function with 1, 2, ... until it fails with system_limit. Meanwhile the library never holds more than its
%% limit. Returns how often the function succeeded.
fill(Fun) -> fill(Fun, 1).

fill(Fun, N) ->
    try Fun(N) of
        _ ->
            N rem 64 =/= 0 orelse is_within_limit(),
            fill(Fun, N + 1)
    catch
        error:system_limit ->
            is_within_limit(),
            N - 1
    end.

is_within_limit() ->
    #{limit := ?LIMIT, held := Held} = cats:budget(),
    Held =< ?LIMIT orelse error({holds, Held}).

%%--------------------------------------------------------------------------------------------------

%% Whatever the memory is taken by, it ends below the limit, and the call that would pass it changes nothing.
fills(_Config) -> [ok = limited(filled, [Kind]) || {Kind, _, _} <- kinds()].

kinds() ->
    [{pairs, [], fun(Table, N) -> cats:insert(Table, {N, N}) end},
     {ordered, [ordered_set], fun(Table, N) -> cats:insert(Table, {N, N}) end},
     {records, [], fun(Table, N) -> cats:insert(Table, {{key, N}, [N, {N, self()}], #{n => float(N)}}) end},
     {bag, [bag], fun(Table, N) -> cats:insert(Table, {N div 10, N}) end},
     {equal_keys, [duplicate_bag], fun(Table, N) -> cats:insert(Table, {key, N, N}) end},
     {compressed, [compressed], fun(Table, N) -> cats:insert(Table, {N, lists:duplicate(100, {N, N})}) end},
     {binaries, [], fun(Table, N) -> cats:insert(Table, {N, binary:copy(<<N:64>>, 25)}) end},
     {large_binaries, [ordered_set], fun(Table, N) -> cats:insert(Table, {N, binary:copy(<<N:64>>, 100_000)}) end},
     {several_binaries, [], fun(Table, N) ->
                                    cats:insert(Table, {N, binary:copy(<<N:64>>, 20), [binary:copy(<<N:64>>, 9000)]})
                            end},
     {bits, [], fun(Table, N) -> cats:insert(Table, {N, <<0:(80_000 + N rem 8)>>}) end},
     {large_objects, [], fun(Table, N) -> cats:insert(Table, {N, lists:seq(N, N + 50_000)}) end},
     {update_element, [], fun(Table, N) ->
                                  cats:insert_new(Table, {N rem 500, <<>>}),
                                  cats:update_element(Table, N rem 500, {2, binary:copy(<<N:64>>, N)})
                          end},
     {lists, [], fun(Table, N) -> cats:insert(Table, [{{N, I}, N} || I <- lists:seq(1, 1000)]) end},
     {many, [ordered_set], fun(Table, N) -> cats:insert_many(Table, [{{N, I}, N} || I <- lists:seq(1, 1000)]) end},
     {expiring, [{ttl, 60_000_000}], fun(Table, N) -> cats:insert(Table, {N, N}) end},
     {tables, [], fun(Table, N) -> cats:insert(Table, {N, cats:new(t, [])}) end}].

filled(Kind) ->
    {Kind, Options, Filler} = lists:keyfind(Kind, 1, kinds()),
    Table = cats:new(Kind, [public | Options]),
    Count = fill(fun(N) -> Filler(Table, N) end),
    #{held := Held} = cats:budget(),
    {Kind, Count, true} = {Kind, Count, Held > ?LIMIT div 2},
    Size = cats:info(Table, size),
    ?assertEqual(Size, length(cats:select(Table, [{'_', [], [true]}]))),
    %% Deletions find memory, and what they give back can be used again.
    [true = cats:delete(Table, Key) || Key <- lists:sublist(keys(Table), Size div 2 + 1)],
    true = cats:delete_all_objects(Table),
    0 = cats:info(Table, size),
    [true = cats:delete(Other) || Other <- cats:all(), Other =/= Table],
    Again = fill(fun(N) -> Filler(Table, N) end),
    {Kind, Count, Again, true} = {Kind, Count, Again, Again > Count div 2},
    true = cats:delete(Table),
    ok.

keys(Table) -> cats:select(Table, [{'_', [], [{element, 1, '$_'}]}]).

%% Reads, deletions and replacements work while nothing more can be inserted.
goes_on(_Config) -> ok = limited(full, []).

full() ->
    [begin
         Table = cats:new(t, [Type]),
         Count = fill(fun(N) -> cats:insert(Table, {N, N, <<N:100/unit:8>>}) end),
         [[{N, N, _}] = cats:lookup(Table, N) || N <- lists:seq(1, Count, 100)],
         Count = cats:select_count(Table, [{'_', [], [true]}]),
         [true = cats:delete(Table, N) || N <- lists:seq(1, Count, 2)],
         [[{N, N, _}] = cats:take(Table, N) || N <- lists:seq(4, Count, 4)],
         [N = cats:update_counter(Table, N, {2, 0}) || N <- lists:seq(2, Count, 4)],
         true = cats:info(Table, size) =:= (Count + 2) div 4,
         true = cats:delete(Table)
     end || Type <- [set, ordered_set]],
    ok.

%% Transactions that only read or delete are carried out while nothing more can be inserted, also of keys that are not
%% there.
commits_deletions(_Config) -> [ok = limited(deletes, [Type]) || Type <- [set, ordered_set, bag, duplicate_bag]].

deletes(Type) ->
    Table = cats:new(t, [Type]),
    fill(fun(N) -> cats:insert(Table, [{{list, N, I}, N} || I <- lists:seq(1, 100)]) end),
    %% Until nothing is left for most keys.
    [fill(fun(N) -> cats:insert(Table, {{Round, N}, N}) end) || Round <- lists:seq(1, 20)],
    Whole = fun() -> length(cats_transaction:select(Table, [{'_', [], [true]}])) end,
    ?assertEqual({atomic, cats:info(Table, size)}, cats_transaction:run(Whole)),
    Delete = fun(Keys) -> cats_transaction:run(fun() -> [cats_transaction:delete(Table, Key) || Key <- Keys] end) end,
    Object = fun(N) -> cats_transaction:run(fun() -> cats_transaction:delete_object(Table, {{list, 1, N}, 1}) end) end,
    [?assertEqual({atomic, [true]}, Delete([{missing, N}])) || N <- lists:seq(1, 200)],
    [?assertEqual({atomic, true}, Object(N)) || N <- lists:seq(1, 50)],
    [?assertEqual({atomic, [true, true]}, Delete([{list, 1, N}, {list, 2, N}])) || N <- lists:seq(1, 100)],
    [] = cats:lookup(Table, {list, 2, 100}),
    ok.

%% Where objects are unpacked to be read, there is memory for that. What is taken is not lost.
unpacks(_Config) -> [ok = limited(unpacked, [Type]) || Type <- [set, ordered_set, bag, duplicate_bag]].

unpacked(Type) ->
    Object = fun(N) -> {N, lists:seq(N, N + 2000)} end,
    Table = cats:new(t, [Type, compressed]),
    Count = fill(fun(N) -> cats:insert(Table, Object(N)) end),
    [[{N, [N | _]}] = cats:lookup(Table, N) || N <- lists:seq(1, Count)],
    Count = cats:foldl(fun({N, [N | _]}, Sum) -> Sum + 1 end, 0, Table),
    Count = length([N || {N, [N | _]} <- walk(Table, cats:first_lookup(Table))]),
    [?assertEqual([Object(N)], cats:take(Table, N)) || N <- lists:seq(1, 20)],
    ?assertEqual([[Object(N)] || N <- lists:seq(21, 40)], cats:take_many(Table, lists:seq(21, 40))),
    ?assertEqual(Count - 40, cats:info(Table, size)),
    ok.

walk(_, '$end_of_table') -> [];
walk(Table, {Key, Objects}) -> Objects ++ walk(Table, cats:next_lookup(Table, Key)).

%% Tables that evict give up what they have before a call is refused.
caches_first(_Config) -> ok = limited(caches_give_up, []).

caches_give_up() ->
    Value = fun(N) -> <<N:100/unit:8>> end,
    Caches = [cats:new(cache, [Type, {limit, Limit}])
              || {Type, Limit} <- [{set, {objects, 100_000}}, {ordered_set, {bytes, 16 bsl 20}}]],
    [cats:insert(Cache, {N, Value(N)}) || Cache <- Caches, N <- lists:seq(1, 100_000)],
    Before = [cats:info(Cache, size) || Cache <- Caches],
    Table = cats:new(table, []),
    Alone = fill(fun(N) -> cats:insert(Table, {N, Value(N)}) end),
    After = [cats:info(Cache, size) || Cache <- Caches],
    [{B, A, true} = {B, A, A < B div 10} || {B, A} <- lists:zip(Before, After)],
    %% The caches go on with what others give back.
    [cats:delete(Table, N) || N <- lists:seq(1, Alone div 10)],
    [cats:insert(Cache, {N, 1}) || Cache <- Caches, N <- lists:seq(1, 10)],
    true = cats:delete(Table),
    [cats:delete(Cache) || Cache <- Caches],
    Other = cats:new(table, []),
    All = fill(fun(N) -> cats:insert(Other, {N, Value(N)}) end),
    {Alone, All, true} = {Alone, All, Alone > All * 2 div 3},
    ok.

%% A share of 0 keeps all, and so does a table that evicts nothing.
shares(_Config) -> ok = limited(shares_given_up, []).

shares_given_up() ->
    Caches = [cats:new(cache, [Type, {limit, {objects, 10_000}} | Options])
              || Type <- [set, ordered_set], Options <- [[{share, 0}], [{evict, none}], [{share, 1}], [{share, 100}]]],
    [cats:insert(Cache, {N, N}) || Cache <- Caches, N <- lists:seq(1, 10_000)],
    Table = cats:new(table, []),
    _ = fill(fun(N) -> cats:insert(Table, {N, <<N:100/unit:8>>}) end),
    Sizes = [cats:info(Cache, size) || Cache <- Caches],
    ?assertMatch([10_000, 10_000, A, 0, 10_000, 10_000, B, 0] when A < 10_000 andalso B < 10_000, Sizes),
    [0, 10, 1, 100] = [cats:info(Cache, share) || Cache <- lists:sublist(Caches, 4)],
    ok.

%% Tables count, and what a cache has beside its objects.
many_caches(_Config) ->
    [ok = limited(many_caches_of, [Options]) || Options <- [[], [{share, 0}], [ordered_set], [{ttl, 1000_000}]]].

many_caches_of(Options) ->
    Caches = fill(fun(_) ->
                          Cache = cats:new(c, [{limit, {objects, 100_000}} | Options]),
                          [cats:insert(Cache, {I, I}) || I <- lists:seq(1, 20)]
                  end),
    true = Caches > 500,
    ok.

%% What can never be stored costs the tables nothing.
too_much(_Config) -> ok = limited(too_much_at_once, []).

too_much_at_once() ->
    Caches = [cats:new(cache, [Type, {limit, {objects, 10_000}}]) || Type <- [set, ordered_set]],
    [cats:insert(Cache, {N, N}) || Cache <- Caches, N <- lists:seq(1, 10_000)],
    Table = cats:new(table, []),
    Large = binary:copy(<<1>>, ?LIMIT),
    [begin
         {'EXIT', {system_limit, [{cats, insert, _, Info} | _] = Stack}} = (catch cats:insert(Table, Objects)),
         memory_limit = cats_failure:cause(Info),
         #{general := _} = cats_failure:format_error(system_limit, Stack)
     end || Objects <- [{key, Large}, [{1, 1}, {key, {Large, Large}}], {key, lists:seq(1, ?LIMIT div 8)}]],
    0 = cats:info(Table, size),
    [10_000, 10_000] = [cats:info(Cache, size) || Cache <- Caches],
    ok.

%% A file with more than there is memory for is an error, and leaves no table.
file(Config) -> ok = limited(too_large_file, [filename:join(proplists:get_value(priv_dir, Config), "table")]).

too_large_file(File) ->
    Table = cats:new(table, []),
    _ = [cats:insert(Table, {N, <<N:8000>>}) || N <- lists:seq(1, ?LIMIT div 2000)],
    ok = cats:tab2file(Table, File),
    {error, system_limit} = cats:file2tab(File),
    [Table] = cats:all(),
    cats:delete(Table),
    {ok, _} = cats:file2tab(File),
    ok.

%% A list is inserted as a whole, or nothing of it.
lists(_Config) -> ok = limited(lists_whole, []).

lists_whole() ->
    [begin
         Table = cats:new(t, [Type]),
         _ = fill(fun(N) ->
                          Size = cats:info(Table, size),
                          Objects = [Object(N, I) || I <- lists:seq(1, Length)],
                          try
                              true = cats:Insert(Table, Objects)
                          catch
                              error:system_limit:Stack ->
                                  {Type, Length, Size} = {Type, Length, cats:info(Table, size)},
                                  [] = [Key || {Key, _} <- Objects, cats:member(Table, Key)],
                                  erlang:raise(error, system_limit, Stack)
                          end
                  end),
         true = cats:delete(Table)
     end || Type <- [set, ordered_set, bag], Length <- [100, 10_000],
            {Insert, Object} <- [{insert, fun(N, I) -> {N bsl 20 + I, N} end},
                                 {insert_new, fun(N, I) -> {{N, I}, <<I:70/unit:8>>} end}]],
    ok.

%% A transaction is carried out, or aborted and has written nothing.
transactions(_Config) -> ok = limited(transactions_whole, []).

transactions_whole() ->
    [A, B] = [cats:new(t, [Type]) || Type <- [set, ordered_set]],
    Write = fun(N) ->
                    [cats_transaction:insert(Table, {{N, I}, <<I:70/unit:8>>})
                     || I <- lists:seq(1, 500), Table <- [A, B]]
            end,
    Filled = fill(fun(N) ->
                          case cats_transaction:run(fun() -> Write(N) end) of
                              {atomic, _} -> ok;
                              {aborted, {system_limit, _}} -> error(system_limit)
                          end
                  end),
    true = Filled > 10,
    [Size, Size] = [cats:info(Table, size) || Table <- [A, B]],
    Size = 500 * Filled,
    ok.

%% Several writers of everything, some of which are killed.
writers(_Config) -> ok = limited(writers_within, [cats_test_lib:rounds(5)]).

writers_within(Rounds) ->
    Tables = [cats:new(t, [Type, public | Options])
              || Type <- [set, ordered_set],
                 Options <- [[], [{limit, {bytes, 24 bsl 20}}], [compressed], [{ttl, 60_000}]]],
    [begin
         Writers = [spawn_monitor(fun() -> write(Tables) end) || _ <- lists:seq(1, 4)],
         [begin timer:sleep(1), is_within_limit() end || _ <- lists:seq(1, 50)],
         exit(element(1, hd(Writers)), kill),
         Reasons = [receive {'DOWN', Monitor, process, Pid, Reason} -> Reason end || {Pid, Monitor} <- Writers],
         [] = tl(Reasons) -- [normal, normal, normal],
         [true = cats:delete_all_objects(Table) || Table <- Tables, rand:uniform(3) =:= 1]
     end || _ <- lists:seq(1, Rounds)],
    [true = cats:delete(Table) || Table <- Tables],
    cats_test_lib:eventually(fun() -> maps:get(held, cats:budget()) < ?LIMIT div 2 end),
    ok.

write(Tables) ->
    [begin
         Table = lists:nth(rand:uniform(length(Tables)), Tables),
         Key = rand:uniform(3000),
         Binary = fun() -> binary:copy(<<Key>>, rand:uniform(1 bsl rand:uniform(18))) end,
         try
             case rand:uniform(4) of
                 1 -> cats:insert(Table, {Key, Binary()});
                 2 -> cats:insert(Table, [{rand:uniform(3000), Binary()} || _ <- lists:seq(1, 20)]);
                 3 -> cats:insert(Table, {Key, lists:seq(1, rand:uniform(500))});
                 4 -> cats:delete(Table, Key)
             end,
             is_within_limit()
         catch
             error:system_limit -> is_within_limit()
         end
     end || _ <- lists:seq(1, 300)].

%% The alarm is set from 80 % on, and cleared below 75 %.
alarm(_Config) -> ok = limited(alarms, []).

alarms() ->
    {ok, _} = application:ensure_all_started(sasl),
    Alarms = fun() -> [Id || {Id, _} <- alarm_handler:get_alarms(), Id =:= cats_memory_high_watermark] end,
    [begin
         Table = cats:new(t, []),
         [] = Alarms(),
         _ = fill(fun(N) -> cats:insert(Table, {N, <<N:100/unit:8>>}) end),
         cats_test_lib:eventually(fun() -> Alarms() =/= [] end),
         [cats_memory_high_watermark] = Alarms(),
         true = cats:delete(Table),
         cats_test_lib:eventually(fun() -> Alarms() =:= [] end)
     end || _ <- [1, 2]],
    ok.

%% The reserve is there before it is used, and stays.
reserve(_Config) ->
    ok = in_peer([{reserve, 24 bsl 20}], reserved, [infinity]),
    ok = in_peer([{reserve, 24 bsl 20}, {memory_limit, ?LIMIT}], reserved, [?LIMIT]).

reserved(Limit) ->
    Table = cats:new(t, []),
    cats_test_lib:eventually(fun() -> maps:get(held, cats:budget()) >= 24 bsl 20 end),
    #{limit := Limit} = cats:budget(),
    [true = cats:insert(Table, {N, <<N:70/unit:8>>}) || N <- lists:seq(1, 150_000)],
    true = cats:delete(Table),
    cats_test_lib:eventually(fun() -> maps:get(held, cats:budget()) < 40 bsl 20 end),
    true = maps:get(held, cats:budget()) >= 24 bsl 20,
    ok.

settings(_Config) ->
    Limit = <<"valid: bytes of at least 33554432, or infinity">>,
    Reserve = <<"valid: bytes of at least 0, below memory_limit by a sixteenth of it, which is 8 to 64 MiB">>,
    [?assertEqual({{bad_setting, cats, Setting}, Explained}, in_peer([], wrong, [[Setting]]))
     || {Explained, Settings} <- [{Limit, [{memory_limit, 5}, {memory_limit, (32 bsl 20) - 1}, {memory_limit, many},
                                           {memory_limit, "64MB"}, {memory_limit, -1}]},
                                  {Reserve, [{reserve, -1}, {reserve, none}]}],
        Setting <- Settings],
    ?assertEqual({{bad_setting, cats, {reserve, ?LIMIT}}, Reserve},
                 in_peer([], wrong, [[{reserve, ?LIMIT}, {memory_limit, ?LIMIT}]])).

wrong(Settings) ->
    [application:set_env(cats, Name, Value) || {Name, Value} <- Settings],
    try
        cats:new(t, [])
    catch
        error:Reason:Stack ->
            [{_, _, _, Info} | _] = Stack,
            #{module := Module} = proplists:get_value(error_info, Info),
            {Reason, maps:get(general, Module:format_error(Reason, Stack))}
    end.

%% Without the setting there is no limit.
unlimited(_Config) ->
    Table = cats:new(t, []),
    #{limit := infinity, held := Before} = cats:budget(),
    true = cats:insert(Table, {1, lists:seq(1, 1_000_000)}),
    #{limit := infinity, held := Held} = cats:budget(),
    ?assert(Held > Before),
    true = cats:delete(Table),
    [?assertError(badarg, cats:new(t, [{limit, {objects, 5}}, {share, Share}])) || Share <- [-1, 101, 1.0, none]],
    ?assertError(badarg, cats:new(t, [{share, 5}])).

explained(_Config) ->
    Text = limited(explanation, []),
    ?assertNotEqual(nomatch, string:find(Text, "memory_limit")).

explanation() ->
    Table = cats:new(t, []),
    _ = fill(fun(N) -> cats:insert(Table, {N, <<N:1000/unit:8>>}) end),
    try
        cats:insert(Table, {key, binary:copy(<<1>>, ?LIMIT)})
    catch
        error:system_limit:Stack ->
            #{general := Text} = cats_failure:format_error(system_limit, Stack),
            unicode:characters_to_list(Text)
    end.
