%% Tables in files, in the format of ets. A file is a disk_log. It starts with a header, which is a tuple of the
%% items of info/1. The objects follow. With extended information, a list with their number or checksum ends the file.
%%
%% If the objects of the table expire, the header has the options for that. Each object is in a list `[Object, Left]'
%% then, with the time that it still lives. Where reads make that longer, the list is `[Object, Left, Most]', with the
%% time to its own end. In a table that only has a limit, what does not expire is written as it is. Tables of ets cannot
%% be made from files with such lists.
-module(cats_file).
-include("cats_failure.hrl").
-export([write/3, read/2, load/2, info/1]).

-define(VERSION, {1, 0}).
-define(CHUNK, 100).
-define(ALL_OBJECTS, [{'_', [], ['$_']}]).

%% @private
-spec write(cats:table(), file:name(), [term()]) -> ok | {error, term()}.
write(Table, File, Options) ->
    try
        Info = case cats:info(Table) of
                   undefined -> throw(badtab);
                   Items -> lists:keydelete(used, 1, Items)
               end,
        is_list(Options) orelse cats_failure:fail(function_clause, none, tab2file, [Table, File, Options]),
        {Extended, Sync} = write_options(Options, none, false),
        Write = fun(Beside) ->
                        try
                            write_log(Beside, Info, Extended, Sync)
                        catch
                            throw:{file_error, Beside, Reason} -> {error, Reason}
                        end
                end,
        case cats_whole_files:write([{File, Write}]) of
            ok when Sync -> sync_directory(File);
            ok -> ok;
            {error, {_, eaccess}} -> throw(eaccess);
            {error, {_, Reason}} -> throw({file_error, File, Reason})
        end
    catch
        throw:Error -> {error, Error};
        exit:Error -> {error, Error}
    end.

%% So that the new file has the name after a crash of the machine, too. Some systems cannot.
sync_directory(File) ->
    case file:open(filename:dirname(File), [read, raw, directory]) of
        {ok, Directory} ->
            _ = file:sync(Directory),
            file:close(Directory);
        {error, _} -> ok
    end.

%% How the objects of a table with this header are written.
form(Table, Header) ->
    case has_times(Header) of
        false ->
            fun(Objects) -> Objects end;
        true ->
            {keypos, Keypos} = lists:keyfind(keypos, 1, Header),
            Idle = proplists:get_value(idle, Header),
            fun(Objects) -> [Written || Object <- Objects, Written <- with_times(Table, Object, Keypos, Idle)] end
    end.

%% Whether objects of a table, or of one with this header, may expire.
has_times(Header) when is_list(Header) ->
    lists:any(fun(Item) -> lists:keymember(Item, 1, Header) end, [ttl, idle, limit]);
has_times(Table) ->
    lists:any(fun(Item) -> cats:info(Table, Item) =/= undefined end, [ttl, limit]).

%% Nothing if the object is gone. `Idle' is `undefined' for a table that only has a limit.
with_times(Table, Object, Keypos, Idle) ->
    Key = element(Keypos, Object),
    case ?RESULT(cats_nif:times(Table, Key), times, ttl, [Table, Key]) of
        undefined -> [];
        {infinity, _} when Idle =:= undefined -> [Object];
        {Left, Most} when is_integer(Idle) -> [[Object, Left, Most]];
        {Left, _} -> [[Object, Left]]
    end.

write_log(File, Info, Extended, Sync) ->
    Log = make_ref(),
    case disk_log:open([{name, Log}, {file, File}, {repair, truncate}]) of
        {ok, Log} -> ok;
        {error, Reason} -> throw(Reason)
    end,
    try
        write_all(Log, Info, Extended),
        Sync andalso check(disk_log:sync(Log)),
        check(disk_log:close(Log))
    after
        %% It is closed already unless something has failed.
        disk_log:close(Log)
    end.

write_all(Log, Info, Extended) ->
    {id, Tid} = lists:keyfind(id, 1, Info),
    {Major, Minor} = ?VERSION,
    Written = [{written, erlang:system_time(millisecond)} || has_times(Info)],
    Header = list_to_tuple(Info ++ Written
                           ++ [{major_version, Major}, {minor_version, Minor}, {extended_info, Extended}]),
    Digest = case lists:member(md5sum, Extended) of
                 true -> erlang:md5_init();
                 false -> none
             end,
    Chunk = try
                cats:select(Tid, ?ALL_OBJECTS, ?CHUNK)
            catch
                %% Another process owns this private table.
                error:badarg -> throw(badtab)
            end,
    {LastDigest, Count} = write_objects(Chunk, form(Tid, Info), Log, write_terms([Header], Log, Digest), 0),
    End = [{count, Count} || lists:member(object_count, Extended)]
        ++ [{md5, erlang:md5_final(LastDigest)} || LastDigest =/= none],
    _ = End =/= [] andalso write_terms([['$end_of_table', End]], Log, LastDigest),
    ok.

write_objects('$end_of_table', _Form, _Log, Digest, Count) ->
    {Digest, Count};
write_objects({Objects, Continuation}, Form, Log, Digest, Count) ->
    Written = Form(Objects),
    NextDigest = write_terms(Written, Log, Digest),
    write_objects(cats:select(Continuation), Form, Log, NextDigest, Count + length(Written)).

write_terms(Terms, Log, Digest) ->
    Binaries = [term_to_binary(Term) || Term <- Terms],
    check(disk_log:blog_terms(Log, Binaries)),
    case Digest of
        none -> none;
        _ -> erlang:md5_update(Digest, Binaries)
    end.

check(ok) -> ok;
check({error, Reason}) -> throw(Reason).

write_options([], Extended, Sync) ->
    Items = case Extended of
                none -> [];
                _ -> [Item || Item <- [object_count, md5sum], lists:member(Item, Extended)]
            end,
    {Items, Sync};
write_options([{sync, Sync} | Options], Extended, OldSync) when is_boolean(Sync) ->
    write_options(Options, Extended, Sync orelse OldSync);
write_options([{extended_info, Items} | Options], none, Sync) ->
    check_extended(Items),
    write_options(Options, Items, Sync);
write_options([Option | _], _Extended, _Sync) ->
    throw({unknown_option, Option});
write_options(Malformed, _Extended, _Sync) ->
    throw({malformed_option, Malformed}).

check_extended([]) -> ok;
check_extended([Item | Items]) when Item =:= object_count; Item =:= md5sum -> check_extended(Items);
check_extended([Item | _]) -> throw({unknown_option, [{extended_info, [Item]}]});
check_extended(Malformed) -> throw({malformed_option, Malformed}).

%% @private
-spec read(file:name(), [term()]) -> {ok, cats:table()} | {error, term()}.
read(File, Options) ->
    try
        {Verify, Into} = read_options(Options, false, none),
        with_log(File, fun(Log, Whole) ->
                               Whole orelse not Verify orelse throw(badfile),
                               read_all(Log, Verify, Into)
                       end)
    catch
        %% The objects are more than the memory, or the limit of the table, allows.
        error:system_limit -> {error, system_limit};
        throw:Error -> {error, Error};
        exit:Error -> {error, Error}
    end.

read_options([], Verify, Into) -> {Verify, Into};
read_options([{verify, More} | Options], Verify, Into) when is_boolean(More) ->
    read_options(Options, Verify orelse More, Into);
read_options([{table, Table} | Options], Verify, none) -> read_options(Options, Verify, {table, Table});
read_options([Option | _], _Verify, _Into) -> throw({unknown_option, Option});
read_options(Malformed, _Verify, _Into) -> throw({malformed_option, Malformed}).

read_all(Log, Verify, Into) ->
    {Header, HeaderBytes, Position} = read_header(Log, Verify),
    case version(Header) of
        {Major, _} = Version when Major > element(1, ?VERSION) -> throw({unsupported_file_version, Version});
        _ -> ok
    end,
    Table = create(Header, Into),
    Extended = case Verify of
                   true -> extended(Header);
                   false -> []
               end,
    Digest = digest(Extended, HeaderBytes),
    try
        Read = read_objects(Log, Position, Verify, fun(Objects) -> insert(Table, Objects) end, {Digest, 0, none}),
        Verify andalso verify(Read, Extended, item(size, Header)),
        {ok, Table}
    catch
        Class:Failure:Stack ->
            _ = cats:delete(Table),
            erlang:raise(Class, Failure, Stack)
    end.

digest(Extended, HeaderBytes) ->
    case lists:member(md5sum, Extended) of
        true -> erlang:md5_update(erlang:md5_init(), HeaderBytes);
        false -> none
    end.

%% @private
%% @doc Inserts the pairs of a file into a table, with the times that they have left now. The file is checked first, so
%% nothing is inserted if it is damaged. The reason is `damaged', `not_a_cache' for a file that has no table of pairs of
%% key and value, or that of the file system.
-spec load(cats:table(), file:name()) -> ok | {error, not_a_cache | damaged | file:posix()}.
load(Table, File) ->
    try
        with_log(File, fun(Log, Whole) -> load_all(Log, Whole, Table) end)
    catch
        throw:{read_error, {file_error, _, Reason}} -> {error, Reason};
        throw:Error when Error =:= damaged; Error =:= not_a_cache -> {error, Error};
        throw:{read_error, {not_a_log_file, _}} -> {error, not_a_cache};
        throw:_ -> {error, damaged}
    end.

load_all(Log, Whole, Table) ->
    {Header, HeaderBytes, Position} = try
                                          read_header(Log, false)
                                      catch
                                          throw:badfile -> throw(not_a_cache)
                                      end,
    Whole orelse throw(damaged),
    IsCache = lists:member(item(type, Header), [set, ordered_set]) andalso item(keypos, Header) =:= 1
        andalso version(Header) =< ?VERSION,
    IsCache orelse throw(not_a_cache),
    Extended = extended(Header),
    Check = fun(Objects) -> lists:all(fun is_pair/1, Objects) orelse throw(not_a_cache) end,
    Read = read_objects(Log, Position, true, Check, {digest(Extended, HeaderBytes), 0, none}),
    verify(Read, Extended, item(size, Header)),
    has_end(Read, Extended),
    Now = erlang:system_time(millisecond),
    Passed = max(0, Now - proplists:get_value(written, Header, Now)),
    HasTimes = has_times(Table),
    %% One by one: a list that is larger than the table's limit would be refused.
    Insert = fun(Objects) ->
                     Living = [Later || Object <- Objects, Later <- later(Object, Passed)],
                     lists:all(fun(Written) when HasTimes -> insert_one(Table, Written);
                                  (Written) -> insert_one(Table, object(Written))
                               end, Living)
             end,
    _ = read_objects(Log, Position, true, Insert, {none, 0, none}),
    ok.

is_pair([Object | Times]) -> is_pair(Object) andalso lists:all(fun is_time/1, Times) andalso length(Times) < 3;
is_pair(Object) -> is_tuple(Object) andalso tuple_size(Object) =:= 2.

is_time(Time) -> Time =:= infinity orelse is_integer(Time) andalso Time > 0.

%% What was written, after so many milliseconds. Nothing if it has expired.
later([Object | Times], Passed) ->
    Left = [case Time of infinity -> infinity; _ -> Time - Passed end || Time <- Times],
    [[Object | Left] || lists:all(fun is_time/1, Left)];
later(Object, _Passed) ->
    [Object].

%% Checks that the end has what the header says, and nothing else. A changed header could say that there is no checksum.
has_end({_Digest, _Count, End}, Extended) ->
    Names = #{object_count => count, md5sum => md5},
    Expected = lists:sort([maps:get(Item, Names, Item) || Item <- Extended]),
    Expected =:= lists:sort([Name || End =/= none, {Name, _} <- End]) orelse throw(damaged).

%% Checks that the read objects are all that were written.
verify({_Digest, Count, none}, [], Size) ->
    Count =:= Size orelse throw(invalid_object_count);
verify({_Digest, _Count, none}, _Extended, _Size) ->
    throw(badfile);
verify({Digest, Count, End}, Extended, Size) ->
    WithDigest = lists:member(md5sum, Extended),
    not WithDigest orelse lists:keyfind(md5, 1, End) =:= {md5, erlang:md5_final(Digest)} orelse throw(checksum_error),
    Expected = case lists:member(object_count, Extended) of
                   true -> proplists:get_value(count, End);
                   false when WithDigest -> Count;
                   false -> Size
               end,
    Count =:= Expected orelse throw(invalid_object_count).

%% Passes the objects to a function. As in ets, the first chunk without objects is the last one. So what is behind the
%% table is not searched for objects.
read_objects(Log, Position, Verify, Put, {Digest, Count, _} = Read) ->
    Next = case Digest of
               none -> fun disk_log:chunk/3;
               _ -> fun disk_log:bchunk/3
           end,
    case read_chunk(Next, Log, Position, ?CHUNK, Verify) of
        eof ->
            Read;
        {NextPosition, Chunk} ->
            {Objects, NextDigest, End} = objects(Chunk, Digest),
            NextRead = {NextDigest, Count + length(Objects), End},
            case Objects of
                [] ->
                    NextRead;
                _ ->
                    true = Put(Objects),
                    read_objects(Log, NextPosition, Verify, Put, NextRead)
            end
    end.

%% Returns the objects of a chunk of terms, or of one of binaries if there is a checksum, with the new checksum and what
%% the end says.
objects([], Digest) ->
    {[], Digest, none};
objects([['$end_of_table', End]], none) ->
    {[], none, End};
objects([Object | Chunk], none) ->
    {Objects, none, End} = objects(Chunk, none),
    {[Object | Objects], none, End};
objects([Bytes | Chunk], Digest) ->
    try binary_to_term(Bytes) of
        ['$end_of_table', End] ->
            {[], Digest, End};
        Object ->
            {Objects, NextDigest, End} = objects(Chunk, erlang:md5_update(Digest, Bytes)),
            {[Object | Objects], NextDigest, End}
    catch
        error:_ -> objects(Chunk, Digest)
    end.

insert(Table, Objects) ->
    case lists:any(fun is_list/1, Objects) of
        false -> cats:insert(Table, Objects);
        true -> insert_written(Table, Objects, has_times(Table))
    end.

insert_written(Table, Objects, false) ->
    cats:insert(Table, [object(Written) || Written <- Objects]);
insert_written(Table, Objects, true) ->
    lists:all(fun(Written) -> insert_one(Table, Written) end, Objects).

object([Object | _Times]) -> Object;
object(Object) -> Object.

insert_one(Table, [Object, Left]) ->
    cats:insert(Table, Object, #{ttl => Left});
insert_one(Table, [Object, Left, Most]) ->
    ?RESULT(cats_nif:insert_bounded(Table, Object, Left, Most), insert_bounded, insert,
            [Table, Object, #{ttl => Left}]);
insert_one(Table, Object) ->
    cats:insert(Table, Object).

read_chunk(Next, Log, Position, Number, Verify) ->
    case Next(Log, Position, Number) of
        {_, _, BadBytes} when Verify, BadBytes > 0 -> throw(badfile);
        {NextPosition, Chunk, _BadBytes} -> {NextPosition, Chunk};
        {error, Reason} -> throw(Reason);
        Chunk -> Chunk
    end.

%% Returns the items of the header, its bytes, and the position after it.
read_header(Log, Verify) ->
    case read_chunk(fun disk_log:bchunk/3, Log, start, 1, Verify) of
        {Position, [Bytes]} -> {header(Bytes), Bytes, Position};
        _ -> throw(badfile)
    end.

header(Bytes) ->
    try tuple_to_list(binary_to_term(Bytes)) of
        Items ->
            Needed = [name, type, protection, named_table, keypos, size],
            lists:all(fun(Key) -> lists:keymember(Key, 1, Items) end, Needed) orelse throw(badfile),
            Items
    catch
        error:badarg -> throw(badfile)
    end.

item(Key, Header) ->
    {Key, Value} = lists:keyfind(Key, 1, Header),
    Value.

version(Header) ->
    {proplists:get_value(major_version, Header, 0), proplists:get_value(minor_version, Header, 0)}.

extended(Header) ->
    case lists:keyfind(extended_info, 1, Header) of
        {extended_info, Items} when is_list(Items) -> Items;
        _ -> []
    end.

create(_Header, {table, Table}) ->
    Table;
create(Header, none) ->
    Options = [item(type, Header), item(protection, Header), {keypos, item(keypos, Header)}]
        ++ [Option || Option <- [named_table, compressed], lists:keyfind(Option, 1, Header) =:= {Option, true}]
        ++ [Option || Key <- [read_concurrency, write_concurrency, engine, ttl, idle, limit, evict, share],
                      Option <- [lists:keyfind(Key, 1, Header)], Option =/= false],
    try
        cats:new(item(name, Header), Options)
    catch
        error:_ -> throw(cannot_create_table)
    end.

%% @private
-spec info(file:name()) -> {ok, [{atom(), term()}]} | {error, term()}.
info(File) ->
    try
        with_log(File, fun(Log, _Whole) ->
                               {Header, _Bytes, _Position} = read_header(Log, false),
                               {ok, [{Key, item(Key, Header)}
                                     || Key <- [name, type, protection, named_table, keypos, size]]
                                    ++ [{extended_info, extended(Header)}, {version, version(Header)}]}
                       end)
    catch
        throw:Error -> {error, Error};
        exit:Error -> {error, Error}
    end.

%% Calls the function with the open log, and with whether its writer closed it properly.
with_log(File, Function) ->
    Log = make_ref(),
    Whole = case disk_log:open([{name, Log}, {file, File}, {mode, read_only}]) of
                {ok, Log} -> true;
                {repaired, Log, _, _} -> false;
                {error, Reason} -> throw({read_error, Reason})
            end,
    try
        Function(Log, Whole)
    after
        disk_log:close(Log)
    end.
