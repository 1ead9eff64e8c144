%% Tables in files, in Dets, in ets, in queries of qlc, and on the terminal, compared with what ets does.
-module(cats_convert_SUITE).
-include_lib("stdlib/include/assert.hrl").
-include_lib("stdlib/include/qlc.hrl").
-include_lib("kernel/include/file.hrl").
-export([all/0, init_per_suite/1, end_per_suite/1]).
-export([files/1, damaged_files/1, damaged_caches/1, garbage_behind/1, much_garbage_behind/1, killed_writer/1,
         killed_keeper/1, two_writers/1, full_disk/1, special_names/1, file_arguments/1, named_in_files/1,
         dets/1, dets_arguments/1, ets/1, live/1, queries/1, query_plans/1, query_arguments/1, browser/1]).

all() ->
    [files, damaged_files, damaged_caches, garbage_behind, much_garbage_behind, killed_writer, killed_keeper,
     two_writers, full_disk, special_names, file_arguments, named_in_files, dets, dets_arguments, ets, live, queries,
     query_plans, query_arguments, browser].

init_per_suite(Config) -> cats_test_lib:start(Config).

end_per_suite(_Config) -> ok.

file(Config) ->
    filename:join(proplists:get_value(priv_dir, Config), "table").

write_options() ->
    [[], [{sync, true}], [{extended_info, []}], [{extended_info, [object_count]}], [{extended_info, [md5sum]}],
     [{sync, false}, {extended_info, [md5sum, object_count]}]].

%% A filled table of the module. Its objects have terms of many types, and the key in the middle.
filled(Module, Kind) ->
    Table = cats_test_lib:new(Module, written, [Kind, public, {keypos, 2}, {read_concurrency, true}]),
    [Module:insert(Table, {[N], N rem 100, #{N => make_ref()}, float(N), <<N:20>>}) || N <- lists:seq(1, 777)],
    Table.

about(Module, Table) ->
    {[{Item, Module:info(Table, Item)}
      || Item <- [name, type, keypos, protection, read_concurrency, named_table, size, compressed]],
     lists:sort(Module:tab2list(Table))}.

%% Both modules read what either of them writes.
files(Config) ->
    File = file(Config),
    [begin
         Table = filled(Writer, Kind),
         ok = Writer:tab2file(Table, File, Options),
         {ok, Info} = ets:tabfile_info(File),
         ?assertEqual({ok, Info}, cats:tabfile_info(File)),
         [begin
              {ok, Read} = Reader:file2tab(File, ReadOptions),
              ?assertEqual(about(Writer, Table), about(Reader, Read)),
              Reader:delete(Read)
          end || Reader <- [ets, cats], ReadOptions <- [[], [{verify, true}], [{verify, false}]]]
     end || Writer <- [ets, cats], Kind <- [set, ordered_set, bag, duplicate_bag], Options <- write_options()].

%% With a truncated or changed file both modules fail with the same reason, or give a table of the same size.
damaged_files(Config) ->
    File = file(Config),
    [begin
         ok = Writer:tab2file(filled(Writer, set), File, Options),
         {ok, Bytes} = file:read_file(File),
         Size = byte_size(Bytes),
         [read_by_both(File, Damaged, {Options, Damage})
          || {Damage, Damaged} <- [{half, binary:part(Bytes, 0, Size div 2)},
                                   {end_lost, binary:part(Bytes, 0, Size - 10)},
                                   {empty, <<>>}, {no_log, <<"no log">>}]
                 ++ [{Place, changed(Bytes, Place)} || Place <- [3, 40, Size div 3, Size div 2]]]
     end || Writer <- [ets, cats], Options <- write_options()].

%% No file of a cache is loaded in which one bit is another one. Tried is every fifth, so each byte.
damaged_caches(Config) ->
    File = file(Config),
    Cache = cats:new(cache, [{ttl, 3_600_000}, {limit, {objects, 10}}]),
    true = cats:insert(Cache, [{1, a}, {<<"key">>, #{b => [c]}}]),
    ok = cats:tab2file(Cache, File, [{extended_info, [object_count, md5sum]}]),
    {ok, Bytes} = file:read_file(File),
    true = cats:delete_all_objects(Cache),
    [begin
         <<Before:Place/bits, Bit:1, After/bits>> = Bytes,
         ok = file:write_file(File, <<Before/bits, (1 - Bit):1, After/bits>>),
         {error, Reason} = cats_file:load(Cache, File),
         ?assertEqual({Place, 0, true},
                      {Place, cats:info(Cache, size), lists:member(Reason, [damaged, not_a_cache])})
     end || Place <- lists:seq(0, bit_size(Bytes) - 1, 5)],
    ok = file:write_file(File, Bytes),
    ok = cats_file:load(Cache, File),
    ?assertEqual(2, cats:info(Cache, size)).

%% What is behind a table counts or not as in ets. That depends on the size of the table, as both read a hundred terms
%% at once.
garbage_behind(Config) ->
    File = file(Config),
    Noise = << <<(erlang:phash2(N))>> || N <- lists:seq(1, 400) >>,
    [begin
         Table = cats_test_lib:new(cats, written, []),
         cats:insert(Table, [{N, N} || N <- lists:seq(1, Size)]),
         ok = cats:tab2file(Table, File, Options),
         {ok, Bytes} = file:read_file(File),
         [read_by_both(File, <<Bytes/binary, Garbage/binary>>, {Size, Options, Garbage})
          || Garbage <- [<<1>>, <<0:64>>, <<0:90/unit:8>>, <<0:800/unit:8>>,
                         <<0:70000/unit:8>>, Noise, record({late, 1}),
                         record(['$end_of_table', [{count, Size}]]), <<(record({late, 2}))/binary, 0:300/unit:8>>]]
     end || Size <- [0, 1, 98, 99, 100, 101, 199, 200], Options <- write_options()].

%% A term as the files have it: its size, a magic number, and its bytes.
record(Term) ->
    Bytes = term_to_binary(Term),
    <<(byte_size(Bytes)):32, 12345:32, Bytes/binary>>.

read_by_both(File, Bytes, About) ->
    ok = file:write_file(File, Bytes),
    [begin
         [OnEts, OnCats] = [read(Reader, File, ReadOptions) || Reader <- [ets, cats]],
         %% A header that is no term raises in ets.
         OnEts =:= raised andalso OnCats =:= {error, badfile} orelse ?assertEqual({About, OnEts}, {About, OnCats})
     end || ReadOptions <- [[], [{verify, true}]]].

%% The hole behind the table has a terabyte.
much_garbage_behind(Config) ->
    File = file(Config),
    Table = cats_test_lib:new(cats, written, []),
    cats:insert(Table, {1, 2}),
    ok = cats:tab2file(Table, File),
    {ok, Device} = file:open(File, [read, write]),
    ok = file:pwrite(Device, 1 bsl 40, <<0>>),
    ok = file:close(Device),
    {ok, Read} = cats:file2tab(File),
    ?assertEqual([{1, 2}], cats:tab2list(Read)),
    ok = file:delete(File).

read(Reader, File, Options) ->
    try Reader:file2tab(File, Options) of
        {ok, Table} ->
            Size = Reader:info(Table, size),
            Reader:delete(Table),
            {ok, Size};
        {error, {read_error, _}} -> {error, read_error};
        Error -> Error
    catch
        error:_ -> raised
    end.

changed(Bytes, Place) ->
    <<Before:Place/binary, Byte, Behind/binary>> = Bytes,
    <<Before/binary, (Byte bxor 255), Behind/binary>>.

-define(MANY, 2000).

%% A directory of its own, a file in it with a table of one object, and a table of many.
directory(Config, Case) ->
    Directory = filename:join(proplists:get_value(priv_dir, Config), Case),
    File = filename:join(Directory, "table"),
    ok = filelib:ensure_dir(File),
    [Old, New] = [cats_test_lib:new(cats, Name, [public]) || Name <- [old, new]],
    cats:insert(Old, {old, 1}),
    cats:insert(New, [{N, <<N:800>>} || N <- lists:seq(1, ?MANY)]),
    ok = cats:tab2file(Old, File),
    {File, New}.

is_old(File) ->
    {ok, Read} = cats:file2tab(File, [{verify, true}]),
    Objects = cats:tab2list(Read),
    cats:delete(Read),
    Objects =:= [{old, 1}].

files_beside(File) ->
    {ok, Names} = file:list_dir(filename:dirname(File)),
    Names -- [filename:basename(File)].

%% A writer that is killed leaves one of the two tables, and no other file.
killed_writer(Config) ->
    {File, New} = directory(Config, ?FUNCTION_NAME),
    [begin
         Writer = spawn(fun Write() -> ok = cats:tab2file(New, File), Write() end),
         timer:sleep(rand:uniform(20)),
         cats_test_lib:stop(Writer, kill),
         ?assert(whole(File)),
         cats_test_lib:eventually(fun() -> files_beside(File) =:= [] end)
     end || _ <- lists:seq(1, 20)].

%% The process that would delete what a killed writer leaves is killed itself. The writer goes on, or fails with the
%% reason.
killed_keeper(Config) ->
    {File, New} = directory(Config, ?FUNCTION_NAME),
    Killer = spawn_link(fun Kill() ->
                                [exit(Pid, kill) || Pid <- processes(),
                                                    {_, {cats_whole_files, keep, 2}} <-
                                                        [process_info(Pid, current_function)]],
                                Kill()
                        end),
    Results = [cats:tab2file(New, File) || _ <- lists:seq(1, 100)],
    unlink(Killer),
    cats_test_lib:stop(Killer, kill),
    ?assertEqual([], lists:usort(Results) -- [ok, {error, killed}, {error, noproc}]),
    ?assert(whole(File)).

%% Whoever reads meanwhile sees one of the two tables.
two_writers(Config) ->
    {File, New} = directory(Config, ?FUNCTION_NAME),
    Old = cats_test_lib:new(cats, old, [public]),
    cats:insert(Old, {old, 1}),
    cats_test_lib:together([fun() -> [ok = cats:tab2file(Table, File) || _ <- lists:seq(1, 40)] end
                            || Table <- [Old, New]]
                           ++ [fun() -> [?assert(whole(File)) || _ <- lists:seq(1, 40)] end]),
    ?assertEqual([], files_beside(File)).

%% Whether the file has one of the two tables.
whole(File) ->
    {ok, Read} = cats:file2tab(File, [{verify, true}]),
    Objects = cats:info(Read, size),
    cats:delete(Read),
    lists:member(Objects, [1, ?MANY]).

%% The limit of the size of a file stands for the disk. Its signal would end the VM.
full_disk(Config) ->
    {File, New} = directory(Config, ?FUNCTION_NAME),
    Large = filename:join(proplists:get_value(priv_dir, Config), "large"),
    ok = cats:tab2file(New, Large),
    Source = io_lib:format("{ok, T} = cats:file2tab(~tp), ok = file:set_cwd(~tp), io:format(\"~~tp\", "
                           "[cats:tab2file(T, table)]), halt().",
                           [Large, filename:dirname(File)]),
    Erl = filename:join(code:root_dir(), "bin/erl"),
    ?assertEqual({0, "{error,{file_error,table,efbig}}"},
                 cats_test_lib:run("sh", ["-c", "trap '' XFSZ; ulimit -f 64; exec \"$0\" \"$@\"",
                                          Erl, "-noinput", "-pa",
                                          filename:dirname(code:which(cats)), "-eval", Source])),
    ?assert(is_old(File)),
    ?assertEqual([], files_beside(File)).

%% Names that are no plain file, and the longest one. As in ets, a link becomes a file.
special_names(Config) ->
    {File, New} = directory(Config, ?FUNCTION_NAME),
    [Link, Dangling, Long, Directory, Pipe] =
        [filename:join(filename:dirname(File), Name)
         || Name <- ["link", "dangling", lists:duplicate(255, $n), "directory", "pipe"]],
    ok = file:make_symlink(File, Link),
    ok = file:make_symlink("nothing", Dangling),
    [begin
         ok = cats:tab2file(New, Name, [{sync, true}]),
         ?assertMatch({ok, #file_info{type = regular}}, file:read_link_info(Name)),
         ?assert(whole(Name))
     end || Name <- [Link, Dangling, Long]],
    ?assert(is_old(File)),
    ok = file:make_dir(Directory),
    {0, ""} = cats_test_lib:run("mkfifo", [Pipe]),
    [?assertEqual({error, eaccess}, cats:tab2file(New, Name)) || Name <- [Directory, Pipe, filename:join(File, "x")]],
    ?assertMatch({ok, #file_info{type = other}}, file:read_link_info(Pipe)),
    ?assertEqual(lists:sort([filename:basename(Name) || Name <- [Link, Dangling, Long, Directory, Pipe]]),
                 lists:sort(files_beside(File))).

file_arguments(Config) ->
    File = file(Config),
    Tables = [{Module, cats_test_lib:new(Module, arguments, [])} || Module <- [ets, cats]],
    [same(fun(Module) -> Module:tab2file(proplists:get_value(Module, Tables), Name, Options) end)
     || Name <- [File, "/no such directory/x", filename:dirname(File), "", 7],
        Options <- [[], [{sync, no}], [{extended_info, [no]}], [{extended_info, no}], [sync], [{sync, true} | no], no,
                    [{extended_info, []}, {extended_info, []}]]],
    [same(fun(Module) -> Module:file2tab(Name, Options) end)
     || Name <- ["/no such directory/x", filename:dirname(File), 7],
        Options <- [[], [{verify, no}], [no], no, [{verify, true} | no]]],
    [same(fun(Module) -> Module:tabfile_info(Name) end)
     || Name <- ["/no such directory/x", filename:dirname(File), 7]],
    [same(fun(Module) -> Module:tab2file(Table, File) end) || Table <- [no_table, 7, make_ref(), self()]],
    Private = fun(Module) ->
                      Caller = self(),
                      spawn_link(fun() ->
                                         Caller ! {private, cats_test_lib:new(Module, private, [private])},
                                         timer:sleep(infinity)
                                 end),
                      receive {private, Table} -> Module:tab2file(Table, File ++ ".private") end
              end,
    ?assertEqual({error, badtab}, Private(cats)),
    ?assertEqual([], filelib:wildcard(File ++ ".private")
                     ++ filelib:wildcard(filename:join(filename:dirname(File), ".cats-*"))).

%% Calls the function with each module. The results or the reasons of the errors must be the same.
same(Function) ->
    [OnEts, OnCats] = [try Function(Module) catch Class:Reason -> {Class, Reason} end || Module <- [ets, cats]],
    ?assertEqual(OnEts, OnCats).

named_in_files(Config) ->
    File = file(Config),
    cats:new(named_in_file, [named_table, {engine, hash}]),
    cats:insert(named_in_file, {1, 2}),
    ok = cats:tab2file(named_in_file, File),
    ?assertEqual({error, cannot_create_table}, cats:file2tab(File)),
    cats:delete(named_in_file),
    ?assertEqual({ok, named_in_file}, cats:file2tab(File)),
    ?assertEqual([{1, 2}], cats:tab2list(named_in_file)),
    ?assertEqual(hash, cats:info(named_in_file, engine)).

dets(Config) ->
    {ok, Dets} = dets:open_file(cats_convert, [{file, file(Config) ++ ".dets"}, {type, bag}]),
    [begin
         Table = cats_test_lib:new(Module, dets, [bag]),
         Objects = [{N rem 50, N} || N <- lists:seq(1, 1000)],
         [Module:insert(Table, Object) || Object <- Objects],
         ok = dets:insert(Dets, {old, 1}),
         Dets = Module:to_dets(Table, Dets),
         ?assertEqual(lists:sort(Objects), lists:sort(dets:match_object(Dets, '_'))),
         Copy = cats_test_lib:new(Module, copy, [duplicate_bag]),
         Module:insert(Copy, {1, old}),
         true = Module:from_dets(Copy, Dets),
         ?assertEqual(lists:sort([{1, old} | Objects]), lists:sort(Module:tab2list(Copy)))
     end || Module <- [ets, cats]],
    ok = dets:close(Dets).

dets_arguments(Config) ->
    {ok, Dets} = dets:open_file(cats_convert, [{file, file(Config) ++ ".arguments"}]),
    Tables = [{Module, cats_test_lib:new(Module, arguments, [{keypos, 3}])} || Module <- [ets, cats]],
    dets:insert(Dets, {1, 2}),
    [same(fun(Module) -> Module:Function(proplists:get_value(Module, Tables), Name) end)
     || {Function, Name} <- [{from_dets, no_dets}, {to_dets, no_dets}, {from_dets, Dets}]],
    [same(fun(Module) -> Module:Function(no_table, Dets) end) || Function <- [from_dets, to_dets]],
    ok = dets:close(Dets).

ets(_Config) ->
    [begin
         [Ets, Cats, Back] = [cats_test_lib:new(Module, Kind, [Kind]) || Module <- [ets, cats, ets]],
         Objects = lists:sort([{N, [N]} || N <- lists:seq(1, 1000)]),
         ets:insert(Ets, Objects),
         cats:insert(Cats, {0, kept}),
         true = cats:from_ets(Cats, Ets),
         ?assertEqual([{0, kept} | Objects], lists:sort(cats:tab2list(Cats))),
         true = cats:to_ets(Cats, Back),
         ?assertEqual([{0, kept} | Objects], lists:sort(ets:tab2list(Back)))
     end || Kind <- [set, ordered_set, bag, duplicate_bag]],
    [Ets1, Cats1] = [cats_test_lib:new(Module, t, []) || Module <- [ets, cats]],
    [Module:insert(Table, {1}) || {Module, Table} <- [{ets, Ets1}, {cats, Cats1}]],
    [?assertError(badarg, cats:Function(Table, Ets))
     || Function <- [from_ets, to_ets], {Table, Ets} <- [{no_table, Ets1}, {Cats1, no_table}]].

%% A table is converted while it is in use.
live(_Config) ->
    [Ets, Cats] = [cats_test_lib:new(Module, live, [public]) || Module <- [ets, cats]],
    ets:insert(Ets, [{N, 0} || N <- lists:seq(1, 10000)]),
    Writer = spawn_link(fun Write() -> ets:update_counter(Ets, rand:uniform(10000), 1), Write() end),
    true = cats:from_ets(Cats, Ets),
    unlink(Writer),
    exit(Writer, kill),
    ?assertEqual(lists:seq(1, 10000), lists:sort([Key || {Key, _} <- cats:tab2list(Cats)])).

%% The same queries over both.
queries(_Config) ->
    [begin
         Both = [{Module, cats_test_lib:new(Module, Kind, [Kind])} || Module <- [ets, cats]],
         [Module:insert(Table, {N, N rem 10}) || {Module, Table} <- Both, N <- lists:seq(1, 500)],
         [begin
              Results = [lists:sort(qlc:eval(Query(Module:table(Table, Options)))) || {Module, Table} <- Both],
              ?assertMatch([[_ | _] = Result, Result], Results)
          end || Query <- [fun(H) -> qlc:q([V || {K, V} <- H, K > 490]) end,
                           fun(H) -> qlc:q([V || {K, V} <- H, K =:= 7]) end,
                           fun(H) -> qlc:q([V || {K, V} <- H, (K =:= 7) or (K =:= 8)]) end,
                           fun(H) -> qlc:q([{K, V} || {K, V} <- H, V =:= 3], [unique]) end,
                           fun(H) -> qlc:q([{A, B} || {A, V} <- H, V > 8, {B, W} <- H, A =:= W + 30]) end,
                           fun(H) -> qlc:sort(H) end],
                 Options <- [[], {traverse, select}, [{n_objects, 7}], {traverse, first_next},
                             [{traverse, last_prev}],
                             [{n_objects, default}, {traverse, select}]]],
         Spec = [{{'$1', '$2'}, [{'<', '$1', 9}], [{{'$2', '$1'}}]}],
         ?assertMatch([Result, Result], [begin
                                             Handle = Module:table(Table, {traverse, {select, Spec}}),
                                             lists:sort(qlc:eval(qlc:q([A || {A, _} <- Handle])))
                                         end || {Module, Table} <- Both]),
         %% One after the other, each with a cursor in another process.
         [Cursor] = [qlc:cursor(qlc:q([K || {K, _} <- cats:table(Table)])) || {cats, Table} <- Both],
         ?assertEqual(20, length(qlc:next_answers(Cursor, 10) ++ qlc:next_answers(Cursor, 10))),
         qlc:delete_cursor(Cursor)
     end || Kind <- [set, ordered_set, bag, duplicate_bag]],
    %% 1 and 1.0 are one key in an ordered table only.
    [begin
         Table = cats_test_lib:new(cats, Kind, [Kind]),
         cats:insert(Table, {1, found}),
         ?assertEqual(Expected, qlc:eval(qlc:q([V || {K, V} <- cats:table(Table), K == 1.0])))
     end || {Kind, Expected} <- [{set, [found]}, {ordered_set, [found]}]].

%% Query plans have the same text as those of ets.
query_plans(_Config) ->
    [begin
         Texts = [begin
                      Table = cats_test_lib:new(Module, plan, [Kind]),
                      Module:insert(Table, [{N, N} || N <- lists:seq(1, 10)]),
                      Text = lists:flatten(qlc:info(Query(Module:table(Table, Options)))),
                      Module:delete(Table),
                      %% Without the differences: identifiers, variables, line breaks.
                      Joined = re:replace(Text, "(cats|ets):|\\bKey\\b|\\bV\\b|\\s|\"", "", [global]),
                      re:replace(Joined, "#Ref<[0-9.]*>", "", [global, {return, list}])
                  end || Module <- [ets, cats]],
         ?assertMatch([Text, Text], Texts)
     end || Kind <- [set, ordered_set], Options <- [[], {traverse, first_next}, [{n_objects, 3}]],
            Query <- [fun(H) -> qlc:q([V || {K, V} <- H, K > 3]) end,
                      fun(H) -> qlc:q([V || {K, V} <- H, K =:= 3]) end,
                      fun(H) -> qlc:q([V || {K, V} <- H, (K =:= 3) or (K =:= 4)]) end]].

query_arguments(_Config) ->
    Tables = [{Module, cats_test_lib:new(Module, arguments, [])} || Module <- [ets, cats]],
    [same(fun(Module) -> is_tuple(Module:table(proplists:get_value(Module, Tables), Options)) end)
     || Options <- [[], [{n_objects, 0}], [{n_objects, no}], {traverse, no}, [{traverse, {no, x}}], no, [no]]],
    ?assertError(badarg, cats:table(no_table)).

%% The browser with prepared answers. Its pages are those of ets where both modules can show them.
browser(_Config) ->
    [begin
         Pages = [begin
                      Table = cats_test_lib:new(Module, browsed, [ordered_set]),
                      Module:insert(Table, [{N, lists:duplicate(N, $a), "text"} || N <- lists:seq(1, 60)]),
                      {Shown, Result} = cats_test_lib:with_input(Answers,
                                                                 fun() -> apply(Module, i, [Table | Size]) end),
                      {Shown, Result, Module:info(Table, type)}
                  end || Module <- [ets, cats]],
         ?assertMatch([Page, Page], Pages)
     end || Answers <- [["q\n"], ["c\n", "c\n", "q\n"], ["\n", "q\n"], ["p3\n", "q\n"],
                        ["/5\n", "p2\n", "q\n"], ["/[\n", "q\n"],
                        ["k\n"], ["nonsense\n", "q\n"], ["pX\n", "q\n"], []],
            Size <- [[], [10], [10, 40], [100]]].
