%% Mnesia three ways does the same: a stock one, one that cats_recompile made, and a stock one with tables of
%% cats_mnesia. Each runs in a node of its own. The same exercise must give the same results, and the tables must be
%% where they belong.
-module(cats_mnesia_SUITE).
-include_lib("stdlib/include/assert.hrl").
-include_lib("stdlib/include/qlc.hrl").
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([recompiled/1, tables_in_ets/1, cats_copies/1, options/1, owner/1, index_reads/1, changed_to_disc/1]).
-export([exercise/2, stores/0, option_results/0, owner_results/0, index_read_results/0, disc_results/1]).

suite() -> [{timetrap, {minutes, 10}}].

all() -> [recompiled, tables_in_ets, cats_copies, options, owner, index_reads, changed_to_disc].

init_per_suite(Config) ->
    Out = filename:join(proplists:get_value(priv_dir, Config), "recompiled"),
    {ok, _, _} = cats_recompile:apps([mnesia], Out),
    [{recompiled, filename:join(Out, "mnesia/ebin")} | Config].

end_per_suite(_Config) -> ok.

recompiled(Config) ->
    {_, Expected} = run(ram_copies, stock, Config),
    {Tables, Results} = run(ram_copies, recompiled, Config),
    same(Expected, Results),
    ?assert(lists:member(set, Tables) andalso lists:member(mnesia_held_locks, Tables)
            andalso lists:member(disc, Tables)),
    ?assertEqual(2, in_node(recompiled, stores, [], Config)).

%% A recompiled Mnesia may keep its own tables in ets, as docs/guide/mnesia.md describes.
tables_in_ets(Config) ->
    Own = cats_mnesia:own_tables(),
    Out = filename:join(proplists:get_value(priv_dir, Config), "tables_in_ets"),
    {ok, _, _} = cats_recompile:apps([mnesia], Out, [{except, Own}]),
    {_, Expected} = run(ram_copies, stock, Config),
    Config1 = lists:keystore(recompiled, 1, Config, {recompiled, filename:join(Out, "mnesia/ebin")}),
    {Tables, Results} = run(ram_copies, recompiled, Config1),
    same(Expected, Results),
    ?assertEqual([], [Table || {table, Table} <- Own, lists:member(Table, Tables)]),
    ?assertEqual(0, in_node(recompiled, stores, [], Config1)),
    ?assert(lists:member(set, Tables) andalso lists:member(disc, Tables)).

cats_copies(Config) ->
    {NoTables, Expected} = run(ram_copies, stock, Config),
    {Tables, Results} = run(cats_copies, stock, Config),
    same(Expected, Results),
    ?assertEqual([], NoTables),
    ?assert(lists:member(set, Tables) andalso not lists:member(mnesia_held_locks, Tables)).

same(Expected, Results) ->
    ?assert(length(Expected) > 1000),
    [?assertEqual({Number, One}, {Number, Other})
     || {Number, One, Other} <- lists:zip3(lists:seq(1, length(Expected)), Expected, Results)].

run(Copies, Kind, Config) ->
    Directory = filename:join(proplists:get_value(priv_dir, Config), lists:concat([Copies, "_", Kind])),
    in_node(Kind, exercise, [Copies, Directory], Config).

in_node(Kind, Function, Arguments, Config) ->
    Path = [proplists:get_value(recompiled, Config) || Kind =:= recompiled]
        ++ [filename:dirname(code:which(Module)) || Module <- [cats, ?MODULE]],
    Peer = cats_test_lib:start_peer(["-pa" | Path]),
    try peer:call(Peer, ?MODULE, Function, Arguments, infinity) after peer:stop(Peer) end.

%% How many tables of a transaction and of one within it are in cats.
stores() ->
    ok = mnesia:start(),
    Count = fun() -> length([Table || Table <- cats:all(), cats:info(Table, name) =:= mnesia_trans_store]) end,
    {atomic, {atomic, Stores}} = mnesia:transaction(fun() -> mnesia:transaction(Count) end),
    stopped = mnesia:stop(),
    Stores.

%% The options of a table reach cats, and bad ones abort the transaction.
options(Config) ->
    {Locked, Bad} = in_node(stock, option_results, [], Config),
    ?assertEqual(ca, Locked),
    ?assertMatch({aborted, {system_limit, bad, {_, {badarg, {cats, new, [bad, [_ | _]]}}}}}, Bad).

option_results() ->
    ok = mnesia:start(),
    {atomic, ok} = mnesia:add_backend_type(cats_copies, cats_mnesia),
    New = fun(Name, Options) ->
                  mnesia:create_table(Name, [{cats_copies, [node()]}, {type, ordered_set},
                                             {storage_properties, [{cats, Options}]}])
          end,
    {atomic, ok} = New(good, [{engine, ca}]),
    {cats:info(good, engine), New(bad, [nonsense])}.

%% No table outlives Mnesia.
owner(Config) ->
    ?assertEqual({[a, cats_mnesia], [], {atomic, ok}, []}, in_node(stock, owner_results, [], Config)).

owner_results() ->
    ok = mnesia:start(),
    {atomic, ok} = mnesia:add_backend_type(cats_copies, cats_mnesia),
    {atomic, ok} = mnesia:create_table(a, [{cats_copies, [node()]}]),
    ok = mnesia:dirty_write({a, 1, 1}),
    Before = lists:sort(cats:all()),
    stopped = mnesia:stop(),
    After = cats:all(),
    ok = mnesia:start(),
    {atomic, ok} = mnesia:add_backend_type(cats_copies, cats_mnesia),
    {Before, After, mnesia:create_table(a, [{cats_copies, [node()]}]), mnesia:dirty_all_keys(a)}.

%% What a table has after it was changed to disc_copies and Mnesia has started again. An old Mnesia would lose it, so
%% the change is refused.
changed_to_disc(Config) ->
    Directory = filename:join(proplists:get_value(priv_dir, Config), changed_to_disc),
    {Changed, Sizes} = in_node(stock, disc_results, [Directory], Config),
    _ = application:load(mnesia),
    {ok, Mnesia} = application:get_key(mnesia, vsn),
    case [list_to_integer(Number) || Number <- string:lexemes(Mnesia, ".")] of
        Version when Version < [4, 23, 3] ->
            ?assertMatch({aborted, {{combine_error, _}, at_once, {{ext, cats_copies, cats_mnesia}, []}}}, Changed),
            ?assertEqual([{at_once, 0}, {twice, 10}], Sizes);
        _ ->
            ?assertEqual({{atomic, ok}, [{at_once, 10}, {twice, 10}]}, {Changed, Sizes})
    end.

disc_results(Directory) ->
    ok = application:set_env(mnesia, dir, Directory),
    ok = mnesia:create_schema([node()]),
    ok = mnesia:start(),
    {atomic, ok} = mnesia:add_backend_type(cats_copies, cats_mnesia),
    Tables = [at_once, twice],
    [begin
         {atomic, ok} = mnesia:create_table(Table, [{cats_copies, [node()]}]),
         [ok = mnesia:dirty_write({Table, Key, value}) || Key <- lists:seq(1, 10)]
     end || Table <- Tables],
    Changed = mnesia:change_table_copy_type(at_once, node(), disc_copies),
    [{atomic, ok} = mnesia:change_table_copy_type(twice, node(), Storage) || Storage <- [ram_copies, disc_copies]],
    [?assertEqual(10, mnesia:table_info(Table, size)) || Table <- Tables],
    stopped = mnesia:stop(),
    ok = mnesia:start(),
    ok = mnesia:wait_for_tables(Tables, 60000),
    {Changed, [{Table, mnesia:table_info(Table, size)} || Table <- Tables]}.

%% In a transaction, an index meets each record once and as it is now, in tables and indices of all types.
index_reads(Config) ->
    Expected = [lists:seq(1, 9), [1, 2, 3, 4, 6, 7, 8, 9], [1, 2, 3, 4, 6, 8, 9, 10], [1, 2, 3, 4, 6, 8, 9, 10]],
    [?assertEqual({Kind, Expected}, {Kind, Reads}) || {Kind, Reads} <- in_node(stock, index_read_results, [], Config)].

index_read_results() ->
    ok = mnesia:start(),
    {atomic, ok} = mnesia:add_backend_type(cats_copies, cats_mnesia),
    [{{Type, Index}, index_reads(list_to_atom(lists:concat([Type, "_", Index])), Type, Index)}
     || Type <- [set, ordered_set, bag], Index <- [bag, ordered]].

index_reads(Table, Type, Index) ->
    {atomic, ok} = mnesia:create_table(Table, [{cats_copies, [node()]}, {type, Type},
                                               {attributes, [key, a]}, {index, [{a, Index}]}]),
    [ok = mnesia:dirty_write({Table, Key, here}) || Key <- [8, 3, 9, 1, 5, 7, 2, 6, 4]],
    Read = fun() -> lists:sort([Key || {_, Key, here} <- mnesia:index_read(Table, here, a)]) end,
    Move = fun(Key) -> mnesia:delete_object({Table, Key, here}), mnesia:write({Table, Key, away}) end,
    {atomic, Reads} = mnesia:transaction(fun() ->
        First = Read(),
        Move(5),
        Second = Read(),
        {atomic, Third} = mnesia:transaction(fun() -> Move(7), mnesia:write({Table, 10, here}), Read() end),
        [First, Second, Third]
    end),
    Reads ++ [lists:sort([Key || {_, Key, here} <- mnesia:dirty_index_read(Table, here, a)])].

%%------------------------------------------------------------------------------------------------------------
%% The exercise

%% The named tables of cats at the end, and the results.
exercise(Copies, Directory) ->
    _ = rand:seed(exsss, 7),
    _ = file:del_dir_r(Directory),
    ok = application:set_env(mnesia, dir, Directory),
    ok = mnesia:create_schema([node()]),
    ok = mnesia:start(),
    [{atomic, ok} = mnesia:add_backend_type(cats_copies, cats_mnesia) || Copies =:= cats_copies],
    Tables = [set, ordered, bag, disc],
    [{atomic, ok} = mnesia:create_table(Table, [{Storage, [node()]}, {type, Type},
                                                {attributes, [key, a, b]}, {index, [{a, Index}]}])
     || {Table, Storage, Type, Index} <- [{set, Copies, set, bag}, {ordered, Copies, ordered_set, ordered},
                                          {bag, Copies, bag, ordered}, {disc, disc_copies, set, ordered}]],
    Steps = [begin
                 Arguments = [lists:nth(rand:uniform(4), Tables), rand:uniform(30), rand:uniform(5)],
                 {Arguments, step(rand:uniform(14), rand:uniform(3), Arguments)}
             end || _ <- lists:seq(1, 1200)],
    Results = [counters(Copies), walks(), infos(Tables), queries(Tables), checkpoints(Directory),
               fragments(), indices(), kinds(Copies), loads(Copies), backups(Directory), cleared()],
    Named = [Table || Table <- cats:all(), is_atom(Table)],
    Contents = contents([disc]),
    stopped = mnesia:stop(),
    ok = mnesia:start(),
    ok = mnesia:wait_for_tables([set, disc], 60000),
    Restarted = {Contents =:= contents([disc]), contents([set])},
    stopped = mnesia:stop(),
    {Named, Steps ++ Results ++ [Restarted]}.

contents(Tables) ->
    [{Table, lists:sort(mnesia:dirty_match_object(mnesia:table_info(Table, wild_pattern)))} || Table <- Tables].

step(Kind, 1, Arguments) -> mnesia:transaction(operation(Kind, Arguments));
step(Kind, 2, Arguments) -> catch mnesia:activity(async_dirty, operation(Kind, Arguments));
step(Kind, 3, Arguments) ->
    Inner = operation(Kind, Arguments),
    [Table, Key, A] = Arguments,
    mnesia:sync_transaction(fun() -> mnesia:write({Table, Key, A, nested}), mnesia:transaction(Inner) end).

operation(1, [Table, Key, A]) -> fun() -> mnesia:write({Table, Key, A, x}) end;
operation(2, [Table, Key, A]) -> fun() -> mnesia:s_write({Table, Key, A, y}) end;
operation(3, [Table, Key, _]) -> fun() -> lists:sort(mnesia:read(Table, Key, read)) end;
operation(4, [Table, Key, _]) -> fun() -> mnesia:delete({Table, Key}) end;
operation(5, [Table, _, A]) -> fun() -> lists:sort(mnesia:index_read(Table, A, a)) end;
operation(6, [Table, _, A]) -> fun() -> lists:sort(mnesia:match_object({Table, '_', A, '_'})) end;
operation(7, [Table, Key, _]) ->
    fun() -> lists:sort(mnesia:select(Table, [{{Table, '$1', '$2', '_'}, [{'<', '$1', Key}], [{{'$1', '$2'}}]}])) end;
operation(8, [Table, Key, A]) -> fun() -> mnesia:write({Table, Key, A, z}), mnesia:abort(no) end;
operation(9, [Table, _, _]) -> fun() -> lists:sort(mnesia:foldl(fun(Record, All) -> [Record | All] end, [], Table)) end;
operation(10, [Table, Key, A]) -> fun() -> mnesia:delete_object({Table, Key, A, x}) end;
operation(11, [Table, Key, A]) -> fun() -> mnesia:write({Table, Key, A, w}), lists:sort(mnesia:wread({Table, Key})) end;
operation(12, [Table, _, A]) -> fun() -> lists:sort(mnesia:index_match_object({Table, '_', A, '_'}, a)) end;
operation(13, [Table, _, _]) -> fun() -> lists:sort(mnesia:all_keys(Table)) end;
operation(14, [Table, _, A]) ->
    fun() -> lists:sort(in_parts(mnesia:select(Table, [{{Table, '_', A, '_'}, [], ['$_']}], 3, read))) end.

in_parts('$end_of_table') -> [];
in_parts({Some, Continuation}) -> Some ++ in_parts(mnesia:select(Continuation)).

counters(Copies) ->
    {atomic, ok} = mnesia:create_table(counter, [{Copies, [node()]}]),
    [mnesia:dirty_update_counter(counter, n, Step) || Step <- [7, 7, -3, -100]] ++ [mnesia:dirty_read(counter, n)].

walks() ->
    [mnesia:dirty_first(ordered), mnesia:dirty_last(ordered), mnesia:dirty_next(ordered, 7),
     mnesia:dirty_prev(ordered, 7), mnesia:dirty_slot(ordered, 0),
     failure(fun() -> mnesia:dirty_slot(ordered, 10000) end),
     mnesia:transaction(fun() -> mnesia:foldr(fun(Record, All) -> [Record | All] end, [], ordered) end),
     mnesia:transaction(fun() -> mnesia:write({ordered, 0, 1, new}), mnesia:first(ordered) end)].

infos(Tables) ->
    [[{Item, mnesia:table_info(Table, Item)}
      || Item <- [size, type, attributes, index, arity, record_name, access_mode, wild_pattern,
                  where_to_read, where_to_write, active_replicas, checkpoints]]
     || Table <- Tables]
        ++ [[Item || {Item, _} <- mnesia:table_info(disc, all), Item =/= cats_copies],
            [mnesia:table_info(Table, memory) > 0 || Table <- Tables], lists:sort(mnesia:system_info(tables)),
            mnesia:system_info(is_running), mnesia:system_info(held_locks), mnesia:system_info(transactions),
            failure(fun() -> mnesia:table_info(nothing, size) end)].

queries(Tables) ->
    [mnesia:transaction(fun() -> lists:sort(qlc:e(Query)) end)
     || Table <- Tables, Traverse <- [select, first_next],
        Query <- [qlc:q([{Key, B}
                         || {_, Key, A, B} <- mnesia:table(Table, [{traverse, Traverse}, {n_objects, 4}]), A > 2]),
                  qlc:q([A || {_, Key, A, _} <- mnesia:table(Table), Key =:= 7])]]
        ++ [mnesia:transaction(fun() ->
                                       lists:sort(qlc:e(qlc:q([{K, B1, B2}
                                                               || {_, K, _, B1} <- mnesia:table(set),
                                                                  {_, K2, _, B2} <- mnesia:table(bag), K =:= K2])))
                               end)].

%% A checkpoint keeps the old state, also under later changes and transactions.
checkpoints(Directory) ->
    Before = contents([set, bag]),
    {ok, Name, _} = mnesia:activate_checkpoint([{name, point}, {max, [set, bag]}, {ram_overrides_dump, true}]),
    [mnesia:transaction(fun() -> mnesia:write({set, Key, 1, late}), mnesia:delete({bag, Key}) end)
     || Key <- lists:seq(1, 40)],
    File = filename:join(Directory, "checkpoint"),
    ok = mnesia:backup_checkpoint(Name, File),
    Retained = mnesia:table_info(set, checkpoints),
    ok = mnesia:deactivate_checkpoint(Name),
    {ok, All} = mnesia:traverse_backup(File, mnesia_backup, dummy, read_only,
                                       fun(Item, All) -> {[Item], [Item | All]} end, []),
    %% A record is inserted, and a table with a key tells that the key's records are deleted.
    Apply = fun({_, Key}, Records) -> [Record || Record <- Records, element(2, Record) =/= Key];
               (Record, Records) -> [Record | Records]
            end,
    Before = [{Table, lists:sort(lists:foldr(Apply, [], [Item || Item <- All, element(1, Item) =:= Table]))}
              || Table <- [set, bag]],
    [Retained, Before].

backups(Directory) ->
    File = filename:join(Directory, "backup"),
    Before = contents([set, ordered, bag, disc]),
    %% backup/1 takes ram_copies from their dump.
    {ok, Name, _} = mnesia:activate_checkpoint([{max, mnesia:system_info(tables)}, {ram_overrides_dump, true}]),
    ok = mnesia:backup_checkpoint(Name, File),
    ok = mnesia:deactivate_checkpoint(Name),
    [ok = mnesia:dirty_write({Table, 1000, 1, more}) || Table <- [set, bag, disc]],
    {atomic, Cleared} = mnesia:restore(File, [{default_op, clear_tables}]),
    Same = Before =:= contents([set, ordered, bag, disc]),
    {atomic, Recreated} = mnesia:restore(File, [{default_op, recreate_tables}]),
    [lists:sort(Cleared), Same, lists:sort(Recreated), Before =:= contents([set, ordered, bag, disc])].

%% Mnesia makes no fragments of a backend's tables: it aborts add_frag.
fragments() ->
    Created = mnesia:create_table(pieces,
                                  [{frag_properties, [{n_fragments, 4}, {n_ram_copies, 1}, {node_pool, [node()]}]}]),
    Write = fun(Key) -> mnesia:write(pieces, {pieces, Key, Key * Key}, write) end,
    [ok = mnesia:activity(transaction, Write, [Key], mnesia_frag) || Key <- lists:seq(1, 100)],
    Read = fun() ->
                   mnesia:activity(sync_dirty,
                                   fun() -> [mnesia:read(pieces, Key) || Key <- [1, 50, 100, 101]] end, mnesia_frag)
           end,
    Sizes = fun() -> mnesia:activity(async_dirty, fun() -> mnesia:table_info(pieces, frag_size) end, mnesia_frag) end,
    First = {Sizes(), Read()},
    Added = mnesia:change_table_frag(pieces, {add_frag, [node()]}),
    Second = {Sizes(), Read()},
    Removed = mnesia:change_table_frag(pieces, del_frag),
    Specification = [{{pieces, '$1', '$2'}, [{'<', '$1', 9}], ['$2']}],
    Matched = mnesia:activity(transaction,
                              fun() -> lists:sort(mnesia:select(pieces, Specification, read)) end, mnesia_frag),
    [Created, First, Added, Second, Removed, Sizes(), Read(), Matched].

indices() ->
    [mnesia:add_table_index(set, b), lists:sort(mnesia:dirty_index_read(set, late, b)), mnesia:del_table_index(set, a),
     failure(fun() -> mnesia:dirty_index_read(set, 1, a) end), mnesia:add_table_index(set, a),
     lists:sort(mnesia:dirty_index_read(set, 1, a)), lists:sort(mnesia:table_info(set, index))].

kinds(Copies) ->
    Before = contents([bag, ordered]),
    Changes = [[to_disc(Table, Copies), mnesia:change_table_copy_type(Table, node(), Copies)]
               || Table <- [bag, ordered]],
    Same = Before =:= contents([bag, ordered]),
    Transformed = mnesia:transform_table(ordered,
                                         fun({ordered, Key, A, B}) -> {ordered, Key, A, B, new} end, [key, a, b, c]),
    [Changes, Same, Transformed, contents([ordered])].

%% By way of `ram_copies', as an old Mnesia would lose the contents of cats_copies otherwise.
to_disc(Table, Copies) ->
    _ = [{atomic, ok} = mnesia:change_table_copy_type(Table, node(), ram_copies) || Copies =/= ram_copies],
    mnesia:change_table_copy_type(Table, node(), disc_copies).

loads(Copies) ->
    {atomic, ok} = mnesia:create_table(large, [{Copies, [node()]}, {attributes, [key, binary]}]),
    [ok = mnesia:dirty_write({large, Key, binary:copy(<<Key>>, Key * 10)}) || Key <- lists:seq(1, 255)],
    [mnesia:table_info(large, size), mnesia:dirty_read(large, 200), mnesia:delete_table(large),
     failure(fun() -> mnesia:dirty_read(large, 200) end)].

cleared() ->
    [mnesia:clear_table(set), mnesia:table_info(set, size),
     mnesia:dirty_index_read(set, 1, a), mnesia:dirty_first(set)].

failure(Function) ->
    try Function() catch Class:Reason -> {Class, Reason} end.
