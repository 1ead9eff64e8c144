%% @private
%% @doc The native functions of cats: loads the library `cats_nif' and holds a stub for each function of it.
%%
%% A function returns what the function of `ets' with its name returns, or that it failed, with a cause and the
%% arguments of the call, see {@link outcome()}. `Cause' is an atom, `{system_limit, Limit}', `{panic, Text}' or
%% `{not_loaded, Text}'. `busy' means that a lock was held too long. `dirty' means that the call is too large for a
%% scheduler, see {@link dirty/2}.
%% `settings' means that the settings have not been passed yet, see {@link configure/1}. Other atoms are the causes that
%% `ets' gives for `badarg'. Nothing was done by a function that failed. The module `cats' turns causes
%% into what its callers see. `{not_loaded, Text}' means that there is no library, and says why. The arguments are
%% `none', then.
-module(cats_nif).

-include("cats_failure.hrl").

-export([
    engines/0,
    new/2,
    delete/1,
    delete/2,
    delete_object/2,
    delete_all_objects/1,
    insert/2,
    insert_new/2,
    lookup/2,
    lookup_element/3,
    lookup_element/4,
    lookup_elements/3,
    lookup_many/2,
    lookup_many_to_fetch/3,
    member/2,
    take/2,
    lookup_to_fetch/2,
    lookup_to_update/2,
    lookup_to_update/3,
    insert_absent/3,
    replace/3,
    remove/2,
    add/3,
    insert_bounded/4,
    insert_lasting/3,
    insert_new_lasting/3,
    fetched/4,
    fetched_again/4,
    insert_fetched/5,
    replace_fetched/5,
    count_fetch/2,
    flight_to/2,
    flight_begin/4,
    flights_begin/6,
    flights_store/3,
    flights_end/3,
    flights_fail/5,
    flight_wait/2,
    flight_waited/0,
    removed/1,
    times/2,
    touch/3,
    ttl/2,
    take_many/2,
    delete_many/2,
    insert_many/2,
    update_counter/3,
    update_counter/4,
    update_element/3,
    update_element/4,
    first/1,
    last/1,
    next/2,
    prev/2,
    first_lookup/1,
    last_lookup/1,
    next_lookup/2,
    prev_lookup/2,
    next_objects/2,
    prev_objects/2,
    next_numbered/3,
    prev_numbered/3,
    rank/2,
    nth/2,
    count_between/3,
    range_between/5,
    slot/2,
    safe_fixtable/2,
    rename/2,
    whereis/1,
    give_away/3,
    claim/1,
    snapshot/1,
    snapshot_finish/2,
    setopts/2,
    all/0,
    info/2,
    scan/2,
    select/4,
    select_on/2,
    is_cursor/1,
    select_at/4,
    select_chunk/3,
    select_key/2,
    select_terms/3,
    transaction_table/2,
    transaction_read/3,
    transaction_read_many/3,
    transaction_range/6,
    transaction_commit/3,
    transaction_long/3,
    transaction_whole/2,
    transaction_unchanged/1,
    transaction_end/1,
    transaction_preferred/0,
    transaction_prefer/1,
    transaction_yield/1,
    stop_clock/1,
    configure/1,
    settings/0,
    garbage/0,
    memory/0,
    budget/0,
    relieve/0,
    structure/3,
    adaptations/1,
    record/1,
    recorded/1,
    stop_recording/1,
    trace_start/2,
    trace_stop/1,
    trace_slots/1,
    trace_events/2,
    dirty/2,
    dirty_call/2,
    priv_dir/0
]).

-ifdef(SELFTEST).
-export([
    test_roundtrip/1,
    test_layout/1,
    test_layout_of_resources/0,
    test_store/1,
    test_compare/2,
    test_equal/2,
    test_hash/1,
    test_normalized_key/1,
    test_keep/1,
    test_kept/1,
    test_drop/1,
    test_batches/0,
    test_collect/0,
    test_panic/0,
    test_out_of_memory/0,
    test_watch/1,
    test_watched/0
]).
-endif.

-export_type([outcome/1, over/0, table/0, cursor/0, note/0, reads/0, place/0, settings/0, trace_event/0]).

-on_load(load/0).

%% What the library must have been built for: the version of the application.
-define(VERSION, <<"0.1.0">>).

%% The persistent term with the library that this VM has loaded: the digest of its file, and the file.
-define(LOADED, {?MODULE, library}).
%% The persistent term with what native functions return where the library could not be loaded.
-define(FAILURE, {?MODULE, failure}).

%% How many bytes of the library are read at once.
-define(PIECE, 65536).

%% The library's own reasons for not being loaded.
-define(REFUSALS, #{
    1 => "the VM still has another build of the library, which it loaded before; restart the VM to change it",
    2 => "the library and the module cats_nif are of different versions of cats",
    3 => "this VM represents terms in a way that cats does not know",
    4 => "the VM gives no resource type",
    5 => "the library failed while it was being loaded",
    6 => "there is no memory for the library",
    7 => "the system cannot keep the library in memory, as tables need it"
}).

-type outcome(Result) :: Result | cats_failure:failure().
%% What a native function returns.
-type table() :: atom() | reference().
%% A table's name or identifier.

-type settings() :: {ReaderGroups :: pos_integer(), Registry :: lock_free | locked, VmTerms :: in_place | erl_nif,
                     MemoryLimit :: pos_integer() | infinity, Reserve :: non_neg_integer()}.
%% The most groups that the readers of a lock are divided into. How tables are found. How terms of the VM are read and
%% made. The bytes that the library may hold. The bytes that it takes at once.

-type file() :: #{digest := binary(), size := non_neg_integer(), header := binary()}.
%% A file as {@link load/0} sees it: what tells builds apart, its bytes, and the first of them.

-type cursor() :: reference().
%% Where a scan of a table stands.

-type slice(Result) :: Result | {Result, cursor(), Words :: non_neg_integer()}
                     | {chunk | reversed, [term()], cursor() | '$end_of_table', place(), reference() | '$end_of_table'}.
-type place() :: non_neg_integer() | [Key :: term()] | '$end_of_table'.
%% The same for {@link select_at/4}: a term like any other, of a meaning of its own.

%% If this fails, no module is loaded, and in embedded mode the VM does not start. So a module without its library is
%% loaded all the same, and its functions fail with `not_loaded'. But it never replaces a module that is in use.
-spec load() -> ok | {error, string()}.
load() ->
    File = filename:absname(filename:join(priv_dir(), "cats_nif.so")),
    case load(File, read(File), persistent_term:get(?LOADED, none)) of
        ok ->
            ok;
        {error, Reason} ->
            Failure = naming(File, unicode:characters_to_list(Reason)),
            persistent_term:put(?FAILURE, ?FAILED({not_loaded, Failure}, none)),
            case erlang:function_exported(?MODULE, dirty, 2) of
                true -> {error, Failure};
                false -> ok
            end
    end.

naming(File, Text) ->
    case string:find(Text, File) of
        nomatch -> lists:flatten([File, ": ", Text]);
        _ -> Text
    end.

%% Tables are in the image of the library that was loaded first. So a copy of its file is not loaded: the linker would
%% make another image of it. The linker knows an image by its path, whether the file is still there or not.
-spec load(file:filename(), {ok, file()} | {error, term()}, none | {binary(), file:filename()}) ->
          ok | {error, unicode:chardata()}.
load(_File, {ok, #{digest := Digest}}, {Digest, Loaded}) ->
    load_nif(Loaded, Digest);
load(File, {error, enoent}, {Digest, File}) ->
    load_nif(File, Digest);
load(_File, {error, Reason}, _) ->
    {error, file:format_error(Reason)};
load(File, {ok, #{digest := Digest} = Read}, none) ->
    case is_truncated(Read) of
        true -> {error, "the file is truncated"};
        false -> with_processor(Read, load_nif(File, Digest))
    end;
load(File, _, {_, File}) ->
    {error, [File, " is not the file any more that this VM has loaded, but another build, and tables need the one that "
                   "is loaded; restart the VM to change it"]};
load(File, _, {_, Loaded}) ->
    {error, [File, " is another build than ", Loaded, ", which this VM has loaded and tables need; restart the VM to"
                   " change it"]}.

-spec load_nif(file:filename(), binary()) -> ok | {error, string()}.
load_nif(File, Digest) ->
    case erlang:load_nif(filename:rootname(File), {?VERSION, Digest}) of
        ok -> persistent_term:put(?LOADED, {Digest, File});
        {error, {Stage, Text}} when Stage =:= load; Stage =:= upgrade -> {error, explain(Text)};
        {error, {_, Text}} -> {error, Text}
    end.

%% The VM tells only the number of a refusal, as "... unsuccessful (2)".
-spec explain(string()) -> string().
explain(Text) ->
    case re:run(Text, "\\((\\d+)\\)", [{capture, all_but_first, list}]) of
        {match, [Number]} -> maps:get(list_to_integer(Number), ?REFUSALS, Text);
        nomatch -> Text
    end.

%% Reads a file in pieces, without the file server: otherwise the VM would keep all of it in memory. The process yields
%% at each piece, and the first calls of `cats' wait for it. With the usual priority it would wait each time until all
%% busy processes have had their turn.
-spec read(file:filename()) -> {ok, file()} | {error, term()}.
read(File) ->
    case file:open(File, [read, raw, binary]) of
        {ok, Device} ->
            Priority = process_flag(priority, high),
            try read(Device, <<>>, 0, erlang:md5_init())
            after
                _ = file:close(Device),
                process_flag(priority, Priority)
            end;
        Error -> Error
    end.

read(Device, Header, Size, Context) ->
    case file:read(Device, ?PIECE) of
        {ok, Piece} when Size =:= 0 -> read(Device, Piece, byte_size(Piece), erlang:md5_update(Context, Piece));
        {ok, Piece} -> read(Device, Header, Size + byte_size(Piece), erlang:md5_update(Context, Piece));
        eof -> {ok, #{digest => erlang:md5_final(Context), size => Size, header => Header}};
        Error -> Error
    end.

%% Whether a file ends before its table of sections, which is the last part of an ELF file. The linker would map such a
%% file, and the VM would die at the first access behind its end.
-spec is_truncated(file()) -> boolean().
is_truncated(#{size := Size, header := Header}) ->
    is_elf(Header) andalso number(Header, 40, 8) + number(Header, 58, 2) * number(Header, 60, 2) > Size.

%% Of a file for another processor the linker says that there is none.
with_processor(#{header := Header}, {error, Text}) ->
    Processor = case is_elf(Header) andalso number(Header, 18, 2) of
                    62 -> "x86_64";
                    183 -> "aarch64";
                    _ -> ""
                end,
    Own = erlang:system_info(system_architecture),
    case lists:prefix(Processor, Own) of
        true -> {error, Text};
        false -> {error, [Text, "; it was built for ", Processor, ", and this VM for ", Own]}
    end;
with_processor(_Read, ok) ->
    ok.

%% Whether these are the first bytes of an ELF file of 64 bits. No binary is matched against a pattern here: OTP 29 does
%% not load the instructions for that which the compiler of OTP 25 makes.
is_elf(Header) -> byte_size(Header) >= 64 andalso binary:part(Header, 0, 6) =:= <<127, "ELF", 2, 1>>.

%% A number in a file: its place and its bytes.
number(Header, At, Bytes) -> binary:decode_unsigned(binary:part(Header, At, Bytes), little).

%% What a function returns that has no library. Its type is unknown to Dialyzer, as that of a native function is.
not_loaded() -> persistent_term:get(?FAILURE).

%% @doc Where the library and the pages are. Beside the directory that this module was loaded from, if the application
%% is not on the code path as such.
-spec priv_dir() -> file:filename().
priv_dir() ->
    case code:priv_dir(cats) of
        {error, bad_name} ->
            Ebin = filename:dirname(filename:absname(code:which(?MODULE))),
            filename:join(filename:dirname(Ebin), "priv");
        Directory ->
            Directory
    end.

-spec engines() -> outcome([{Name, [Type :: atom()], [{Option :: atom(), [atom()] | {integer(), integer()}}],
                     Transactions :: [Type :: atom()], Snapshots :: boolean()}])
              when Name :: cats:engine().
engines() -> not_loaded().

-spec new(atom(), list()) -> outcome(table()).
new(_Name, _Options) -> not_loaded().

-spec delete(table()) -> outcome(true).
delete(_Table) -> not_loaded().

-spec delete(table(), term()) -> outcome(true).
delete(_Table, _Key) -> not_loaded().

-spec delete_object(table(), tuple()) -> outcome(true).
delete_object(_Table, _Object) -> not_loaded().

-spec delete_all_objects(table()) -> outcome(true).
delete_all_objects(_Table) -> not_loaded().

-spec insert(table(), tuple() | [tuple()]) -> outcome(true).
insert(_Table, _Objects) -> not_loaded().

-spec insert_new(table(), tuple() | [tuple()]) -> outcome(boolean()).
insert_new(_Table, _Objects) -> not_loaded().

-spec lookup(table(), term()) -> outcome([tuple()]).
lookup(_Table, _Key) -> not_loaded().

-spec lookup_element(table(), term(), pos_integer()) -> outcome(term() | [term()]).
lookup_element(_Table, _Key, _Position) -> not_loaded().

-spec lookup_element(table(), term(), pos_integer(), term()) -> outcome(term() | [term()]).
lookup_element(_Table, _Key, _Position, _Default) -> not_loaded().

-spec lookup_elements(table(), term(), [pos_integer()]) -> outcome([term()] | [[term()]]).
lookup_elements(_Table, _Key, _Positions) -> not_loaded().

-spec lookup_many(table(), [term()]) -> outcome([[tuple()]] | {[[tuple()]], Rest :: [term()]}).
lookup_many(_Table, _Keys) -> not_loaded().

%% @doc The same for a process that may write to the table, which is no bag. If `Lasting', fails unless the objects of
%% the table can expire. An object counts as used.
-spec lookup_many_to_fetch(table(), [term()], Lasting :: boolean()) ->
          outcome([[tuple()]] | {[[tuple()]], Rest :: [term()]}).
lookup_many_to_fetch(_Table, _Keys, _Lasting) -> not_loaded().

-spec member(table(), term()) -> outcome(boolean()).
member(_Table, _Key) -> not_loaded().

-spec take(table(), term()) -> outcome([tuple()]).
take(_Table, _Key) -> not_loaded().

%% @doc As {@link lookup_to_update/2}, but counts as a use of the object.
-spec lookup_to_fetch(table(), term()) -> outcome([tuple()] | false).
lookup_to_fetch(_Table, _Key) -> not_loaded().

%% @doc A list of the object of a key, or `false'. Fails where the caller may not write, and where a key may have
%% several objects.
-spec lookup_to_update(table(), term()) -> outcome([tuple()] | false).
lookup_to_update(_Table, _Key) -> not_loaded().

%% @doc As {@link lookup_to_update/2}, but returns the default with the key in place of `false'.
-spec lookup_to_update(table(), term(), tuple()) -> outcome([tuple()] | tuple()).
lookup_to_update(_Table, _Key, _Default) -> not_loaded().

%% @doc Inserts `New', which has the key of `Default', unless the table holds that key. Returns whether it did.
-spec insert_absent(table(), Default :: tuple(), New :: tuple()) -> outcome(boolean()).
insert_absent(_Table, _Default, _New) -> not_loaded().

-spec replace(table(), tuple(), tuple()) -> outcome(boolean()).
replace(_Table, _Old, _New) -> not_loaded().

%% @doc Deletes exactly this object, and returns whether it was there.
-spec remove(table(), tuple()) -> outcome(boolean()).
remove(_Table, _Object) -> not_loaded().

-spec add(table(), term(), number() | tuple() | [tuple()]) -> outcome(number() | [number()]).
add(_Table, _Key, _Increments) -> not_loaded().

%% @doc Inserts an object that has so much time left, and if it is read, at most the second time.
-spec insert_bounded(table(), tuple(), Left :: pos_integer() | infinity, Most :: pos_integer() | infinity) ->
          outcome(true).
insert_bounded(_Table, _Object, _Left, _Most) -> not_loaded().

-spec insert_lasting(table(), tuple() | [tuple()], pos_integer() | infinity) -> outcome(true).
insert_lasting(_Table, _Objects, _Time) -> not_loaded().
-spec insert_new_lasting(table(), tuple() | [tuple()], pos_integer() | infinity) -> outcome(boolean()).
insert_new_lasting(_Table, _Objects, _Time) -> not_loaded().

-spec count_fetch(table(), fetch_made | fetch_failed | fetch_waited | fetch_stale) -> outcome(true).
count_fetch(_Table, _What) -> not_loaded().

%% @doc What a fetch finds: the object of a key that lives, and whether it ends within `Ahead' milliseconds, or that has
%% ended by less than `Stale' milliseconds. Fails as {@link lookup_to_update/2} does.
-spec fetched(table(), term(), Stale :: non_neg_integer(), Ahead :: non_neg_integer()) ->
          outcome({tuple(), lives | due | ended} | false).
fetched(_Table, _Key, _Stale, _Ahead) -> not_loaded().

%% @doc The same in any table, for a fetch that has looked before. It counts as no lookup.
-spec fetched_again(table(), term(), Stale :: non_neg_integer(), Ahead :: non_neg_integer()) ->
          outcome({tuple(), lives | due | ended} | false).
fetched_again(_Table, _Key, _Stale, _Ahead) -> not_loaded().

%% @doc The flight of a key, whose process lives, its leader, and which of the flight's keys this is. If it has none, a
%% failure that is remembered.
-spec flight_to(table(), term()) ->
          outcome({Flight :: pid(), Leader :: pid(), Number :: non_neg_integer()} | {failed, Failure :: term()}
                  | false).
flight_to(_Table, _Key) -> not_loaded().

%% @doc Begins the flight of a key, whose number is 0, unless it has one. Returns whether it did. When a call writes to
%% the key, it has no flight any more, and the process `Flight' gets `{cats_flight, written, 0}'. The same happens when
%% the table is emptied or deleted.
-spec flight_begin(table(), term(), Flight :: pid(), Leader :: pid()) -> outcome(boolean()).
flight_begin(_Table, _Key, _Flight, _Leader) -> not_loaded().

%% @doc Begins the flights of the first keys, which get the numbers from `First' on. Returns for each of them whether it
%% did: `true', the object that the table has, or what {@link flight_to/2} returns. Where a failure is remembered, it
%% does not begin if `Failures'. The process `Flight' gets the number of a key that is written, as for
%% {@link flight_begin/4}. A key that has the same flight with the same number is begun again.
-spec flights_begin(table(), [term()], First :: pos_integer(), Flight :: pid(), Leader :: pid(),
                    Failures :: boolean()) ->
          outcome([Begun] | {[Begun], Rest :: [term()]}) when
      Begun :: true | [tuple()] | {Flight :: pid(), Leader :: pid(), Number :: non_neg_integer()}
             | {failed, Failure :: term()}.
flights_begin(_Table, _Keys, _First, _Flight, _Leader, _Failures) -> not_loaded().

%% @doc Notes for the first keys that have this flight that its leader is about to store their objects. So the flight is
%% not told that they are written. Returns the keys that are left.
-spec flights_store(table(), [term()], Flight :: pid()) -> outcome(Rest :: [term()]).
flights_store(_Table, _Keys, _Flight) -> not_loaded().

%% @doc Ends the flights of the first keys that have this one. Returns the keys that are left.
-spec flights_end(table(), [term()], Flight :: pid()) -> outcome(Rest :: [term()]).
flights_end(_Table, _Keys, _Flight) -> not_loaded().

%% @doc The same as the function of the flight has failed. The failure is remembered for some milliseconds, unless
%% somebody writes to the key.
-spec flights_fail(table(), [term()], Flight :: pid(), Failure :: term(), Time :: non_neg_integer()) ->
          outcome(Rest :: [term()]).
flights_fail(_Table, _Keys, _Flight, _Failure, _Time) -> not_loaded().

%% @doc The calling process waits for this flight, until {@link flight_waited/0}. If it would wait for itself, it does
%% not wait: returns the processes of the circle, each with the flight that it waits for, the caller first.
-spec flight_wait(Flight :: pid(), Leader :: pid()) -> outcome(true | [{Waits :: pid(), Flight :: pid()}]).
flight_wait(_Flight, _Leader) -> not_loaded().

-spec flight_waited() -> outcome(true).
flight_waited() -> not_loaded().

%% @doc As {@link insert_absent/3}, for an object with a time to live. A fetch may have it for `Stale' milliseconds
%% after its end.
-spec insert_fetched(table(), WithKey :: tuple(), New :: tuple(), pos_integer() | infinity | default,
                     Stale :: non_neg_integer()) ->
          outcome(boolean()).
insert_fetched(_Table, _WithKey, _New, _Time, _Stale) -> not_loaded().

%% @doc Puts such an object in place of the old one. Returns whether the table had that one.
-spec replace_fetched(table(), Old :: tuple(), New :: tuple(), pos_integer() | infinity | default,
                      Stale :: non_neg_integer()) ->
          outcome(boolean()).
replace_fetched(_Table, _Old, _New, _Time, _Stale) -> not_loaded().

-spec removed(table()) -> outcome({[{expired | evicted, term()}], Lost :: non_neg_integer()}).
removed(_Table) -> not_loaded().

%% @doc The two times of {@link insert_bounded/4}.
-spec times(table(), term()) -> outcome({pos_integer() | infinity, pos_integer() | infinity} | undefined).
times(_Table, _Key) -> not_loaded().

-spec touch(table(), term(), pos_integer() | infinity) -> outcome(boolean()).
touch(_Table, _Key, _Time) -> not_loaded().

-spec ttl(table(), term()) -> outcome(pos_integer() | infinity | undefined).
ttl(_Table, _Key) -> not_loaded().

%% Stops the clock of tables with expiry at a time in milliseconds, or lets it go on. For tests.
-spec stop_clock(At :: non_neg_integer() | false) -> outcome(Now :: non_neg_integer()).
stop_clock(_At) -> not_loaded().

-spec take_many(table(), [term()]) -> outcome([[tuple()]] | {[[tuple()]], Rest :: [term()]}).
take_many(_Table, _Keys) -> not_loaded().

%% @doc Deletes the objects of the first keys, and returns the keys that are left.
-spec delete_many(table(), [term()]) -> outcome(Rest :: [term()]).
delete_many(_Table, _Keys) -> not_loaded().

%% @doc Inserts the first objects, and returns those that are left.
-spec insert_many(table(), [tuple()]) -> outcome(Rest :: [tuple()]).
insert_many(_Table, _Objects) -> not_loaded().

-spec update_counter(table(), term(), integer() | tuple() | [tuple()]) -> outcome(integer() | [integer()]).
update_counter(_Table, _Key, _Operations) -> not_loaded().

-spec update_counter(table(), term(), integer() | tuple() | [tuple()], tuple()) ->
    outcome(integer() | [integer()]).
update_counter(_Table, _Key, _Operations, _Default) -> not_loaded().

-spec update_element(table(), term(), tuple() | [tuple()]) -> outcome(boolean()).
update_element(_Table, _Key, _Elements) -> not_loaded().

-spec update_element(table(), term(), tuple() | [tuple()], tuple()) -> outcome(true).
update_element(_Table, _Key, _Elements, _Default) -> not_loaded().

-spec first(table()) -> outcome(term() | '$end_of_table').
first(_Table) -> not_loaded().

-spec last(table()) -> outcome(term() | '$end_of_table').
last(_Table) -> not_loaded().

-spec next(table(), term()) -> outcome(term() | '$end_of_table').
next(_Table, _Key) -> not_loaded().

-spec prev(table(), term()) -> outcome(term() | '$end_of_table').
prev(_Table, _Key) -> not_loaded().

-spec first_lookup(table()) -> outcome({term(), [tuple()]} | '$end_of_table').
first_lookup(_Table) -> not_loaded().

-spec last_lookup(table()) -> outcome({term(), [tuple()]} | '$end_of_table').
last_lookup(_Table) -> not_loaded().

-spec next_lookup(table(), term()) -> outcome({term(), [tuple()]} | '$end_of_table').
next_lookup(_Table, _Key) -> not_loaded().

-spec prev_lookup(table(), term()) -> outcome({term(), [tuple()]} | '$end_of_table').
prev_lookup(_Table, _Key) -> not_loaded().

%% @doc The objects of the key after that of an object, which need not be in the table any more: a tuple if the table's
%% keys have one each. In a snapshot: those of some keys, in a list in a list.
-spec next_objects(table(), tuple()) -> outcome(tuple() | [tuple()] | [[tuple()]] | '$end_of_table').
next_objects(_Table, _Object) -> not_loaded().

-spec prev_objects(table(), tuple()) -> outcome(tuple() | [tuple()] | [[tuple()]] | '$end_of_table').
prev_objects(_Table, _Object) -> not_loaded().

%% @doc As {@link next_objects/2}, from the place with a number, which is that of the object. What it comes to has the
%% next number, or, where the way had to be searched, the one that comes with it.
-spec next_numbered(table(), tuple(), non_neg_integer()) ->
          outcome(tuple() | nonempty_improper_list(pos_integer(), tuple()) | [tuple()] | [[tuple()]] | '$end_of_table').
next_numbered(_Table, _Object, _Number) -> not_loaded().

-spec prev_numbered(table(), tuple(), non_neg_integer()) ->
          outcome(tuple() | nonempty_improper_list(pos_integer(), tuple()) | [tuple()] | [[tuple()]] | '$end_of_table').
prev_numbered(_Table, _Object, _Number) -> not_loaded().

-spec rank(table(), Key :: term()) -> outcome(non_neg_integer()).
rank(_Table, _Key) -> not_loaded().

-spec nth(table(), integer()) -> outcome(tuple() | '$end_of_table').
nth(_Table, _Number) -> not_loaded().

-spec count_between(table(), bound(), bound()) -> outcome(non_neg_integer()).
count_between(_Table, _From, _To) -> not_loaded().

%% If one call cannot return all objects, returns the last key, and how many objects are still wanted.
-spec range_between(table(), bound(), bound(), Down :: boolean(), Limit) ->
          outcome([tuple()] | {[tuple()], Key :: term(), Limit}) when
      Limit :: pos_integer() | infinity.
range_between(_Table, _From, _To, _Down, _Limit) -> not_loaded().

-spec slot(table(), non_neg_integer()) -> outcome([tuple()] | '$end_of_table').
slot(_Table, _Number) -> not_loaded().

-spec safe_fixtable(table(), boolean()) -> outcome(true).
safe_fixtable(_Table, _Fix) -> not_loaded().

-spec rename(table(), atom()) -> outcome(atom()).
rename(_Table, _Name) -> not_loaded().

-spec whereis(atom()) -> outcome(reference() | undefined).
whereis(_Name) -> not_loaded().

-spec give_away(table(), pid(), term()) -> outcome(true).
give_away(_Table, _Process, _Data) -> not_loaded().

-spec claim(table()) -> outcome(true).
claim(_Table) -> not_loaded().

%% Takes a snapshot of a list of tables. `again' means that the call is to be made again, and `wait' that
%% {@link snapshot_finish/2} is to be called.
-spec snapshot([table()]) -> outcome([reference()] | again | {wait, Beginning :: reference()}).
snapshot(_Tables) -> not_loaded().

%% Finishes a snapshot that must wait. Fails with `busy' while it must.
-spec snapshot_finish([table()], Beginning :: reference()) -> outcome([reference()] | again).
snapshot_finish(_Tables, _Beginning) -> not_loaded().

-spec setopts(table(), term()) -> outcome(true).
setopts(_Table, _Options) -> not_loaded().

-spec all() -> outcome([table()]).
all() -> not_loaded().

-spec info(table(), atom()) -> outcome(term() | undefined).
info(_Table, _Item) -> not_loaded().

%% @doc Puts the objects of one slice of a table before a list. The first call has the table; while a tuple comes back,
%% the next has its list and its cursor; `Words' is how many words all objects may take together. The order is that of
%% {@link select/4}.
-spec scan(table() | cursor(), [tuple()]) -> outcome({[tuple()], cursor(), Words :: non_neg_integer()} | [tuple()]).
scan(_TableOrCursor, _Objects) -> not_loaded().

%% The first slice of `match', `match_object', `match_delete', `select', `select_reverse', `select_count',
%% `select_delete' or `select_replace', by name. Returns `{Result, Cursor, Words}' when there is more to do: all results
%% may take so many words together. Returns the result when there is not. With a limit, returns
%% `{Order, Results, Cursor, Place, Table}' when there are as many results as it says, or all. `Order' is `reversed'
%% where the results are to be turned round, as they are in an ordered_set; else it is `chunk'. Without a limit
%% (`infinity') results are in their order. There are more results than the limit where those of a key come together,
%% and where the specification has the keys. `Place' is `$end_of_table' where nothing more is to be found.
-spec select(atom(), table(), term(), pos_integer() | infinity) -> outcome(slice([term()] | non_neg_integer())).
select(_Function, _Table, _Specification, _Limit) -> not_loaded().

%% The next slice, given the result so far. Returns as `select/4' does.
-spec select_on(cursor(), Result) -> outcome(slice(Result)) when Result :: [term()] | non_neg_integer().
select_on(_Cursor, _Result) -> not_loaded().

-spec is_cursor(term()) -> outcome(boolean()).
is_cursor(_Term) -> not_loaded().

%% A cursor where an equal selection of the table, with a limit, has been. `Function' is `select' or `select_reverse'.
-spec select_at(atom(), table(), term(), place()) -> outcome(cursor()).
select_at(_Function, _Table, _Specification, _Place) -> not_loaded().

%% The first slice of the next chunk, of so many results. Returns as `select/4' does. With 0 results it just looks
%% whether the cursor is one of this table, and whether that can be read, and returns `ok'.
-spec select_chunk(table(), cursor() | no_cursor, non_neg_integer()) -> outcome(ok | slice([term()])).
select_chunk(_Table, _Cursor, _Limit) -> not_loaded().

%% `{Key}', if objects match a specification only with this key at that position.
-spec select_key(cats:match_spec(), pos_integer()) -> outcome({Key :: term()} | none).
select_key(_Specification, _Position) -> not_loaded().

%% The results of a specification for some of these objects, from the first on, are put before a list. Returns the other
%% objects, too.
-spec select_terms([tuple()], cats:match_spec(), Results) -> outcome({[tuple()], Results}) when Results :: [term()].
select_terms(_Objects, _Specification, _Results) -> not_loaded().

%% What a transaction has read: the objects of a key, or those of a range of an ordered_set.
-type note() :: {table(), Key :: term(), [tuple()]}
              | {table(), From :: bound(), To :: bound(), Down :: boolean(), [tuple()]}.
-type bound() :: cats_range:bound().
%% In a note, `To' is none or belongs to the range.

%% The identifier of a table, its type and the position of the key. Fails with `no_transactions' if its engine has none,
%% and with `snapshot' for one. Fails, too, unless the caller may do this.
-spec transaction_table(table(), read | write) -> outcome({reference(), cats:table_type(), pos_integer()}).
transaction_table(_Table, _Right) -> not_loaded().

-type reads() :: [note()] | {Long :: reference(), [note()]}.
%% What a transaction has read. A long transaction has notes of what it has read since it became one, until a read has
%% returned `logged'.

-type over() :: conflict | memory.
%% Why the function of a transaction cannot go on: what it has read does not hold any more, or its memory is exhausted.

%% The objects of a key, as they were at an instant when all that was read held. `logged' says that no notes are needed
%% any more, of this read neither.
-spec transaction_read(reads(), table(), term()) -> outcome([tuple()] | {logged, [tuple()]} | over()).
transaction_read(_Notes, _Table, _Key) -> not_loaded().

%% The same for several keys: a list for each, or for each of the first ones.
-spec transaction_read_many(reads(), table(), [term()]) -> outcome([[tuple()]] | {logged, [[tuple()]]} | over()).
transaction_read_many(_Notes, _Table, _Keys) -> not_loaded().

%% The same for the first objects of a range, from `From' to `To', downwards if `Down'.
-spec transaction_range(reads(), table(), bound(), bound(), Down :: boolean(), pos_integer() | infinity) ->
          outcome([tuple()] | {logged, [tuple()]} | over()).
transaction_range(_Notes, _Table, _From, _To, _Down, _Limit) -> not_loaded().

%% Carries out these writes, in one step, if all that was read holds. If the preferred transaction has read what is to
%% be written, returns its keeper.
-spec transaction_commit(reads(), [cats_writes:committed()], Keeper :: pid() | none) ->
          outcome(true | over() | {preferred, pid()}).
transaction_commit(_Notes, _Writes, _Keeper) -> not_loaded().

%% Makes a transaction with these notes a long one. Until it ends, all writers of its tables log the keys that they
%% write. If it is preferred, what it reads is reserved. `Memory' is in bytes.
-spec transaction_long([note()], Keeper :: pid() | none, Memory :: non_neg_integer() | infinity) ->
          outcome(reference()).
transaction_long(_Notes, _Keeper, _Memory) -> not_loaded().

%% Adds the whole of a `set' to what a long transaction has read. After that it reads the set, and then asks whether
%% all that it has read is unchanged. If objects of the set may expire, each of them is to be read by itself, too.
-spec transaction_whole({Long :: reference(), [note()]}, table()) -> outcome({logged, Expire :: boolean()} | over()).
transaction_whole(_Reads, _Table) -> not_loaded().

-spec transaction_unchanged(Long :: reference()) -> outcome(true | over()).
transaction_unchanged(_Long) -> not_loaded().

%% To be called when a long transaction has ended.
-spec transaction_end(Long :: reference()) -> ok.
transaction_end(_Long) -> not_loaded().

%% The keeper of the preferred transaction.
-spec transaction_preferred() -> pid() | none.
transaction_preferred() -> not_loaded().

%% Prefers the transaction of this keeper, which is the caller's. Returns false if there is another living keeper.
-spec transaction_prefer(Keeper :: pid()) -> boolean().
transaction_prefer(_Keeper) -> not_loaded().

%% Ends that, if this is the keeper.
-spec transaction_yield(Keeper :: pid()) -> ok.
transaction_yield(_Keeper) -> not_loaded().

%% @doc Passes the settings of the application (see {@link settings()}). The first call counts. It comes before the
%% first table. Raises the name of a setting that is wrong.
-spec configure(settings()) -> outcome(ok).
configure(_Settings) -> not_loaded().

%% @doc The settings that count, `none' before the first {@link configure/1}.
-spec settings() -> outcome(settings() | none).
settings() -> not_loaded().

%% @doc Bytes that all tables hold.
-spec garbage() -> outcome({Retired :: non_neg_integer(), Freed :: non_neg_integer(), Bytes :: non_neg_integer()}).
garbage() -> not_loaded().

-spec memory() -> outcome(non_neg_integer()).
memory() -> not_loaded().

%% @doc The limit of the library's memory, and what it holds, in bytes.
-spec budget() -> outcome({Limit :: pos_integer() | infinity, Held :: non_neg_integer()}).
budget() -> not_loaded().

%% @doc Makes memory free for a call that has found none within the limit. Returns `again' if there is some now, `busy'
%% if others are about to make some, otherwise `none', and `undefined' without a limit.
-spec relieve() -> outcome(again | busy | none | undefined).
relieve() -> not_loaded().

%% @doc A part of the structure of a table, see native/nif/src/calls/contention.rs. `From' is `[]', and then the last
%% element of the part before. One in `Every' buckets or leaves is read.
-spec structure(cats:table(), From, Every :: pos_integer()) -> outcome(Buckets | Leaves) when
      From :: [term()],
      Buckets :: {Buckets :: pos_integer(), Strips :: [{non_neg_integer(), non_neg_integer(), non_neg_integer()}],
                  Loads :: [non_neg_integer()], From},
      Leaves :: {[Stretch :: tuple()], [Found :: tuple()], From}.
structure(_Table, _From, _Every) -> not_loaded().

%% @doc The last adaptations, the oldest first.
-spec adaptations(cats:table()) ->
          outcome([{Split :: boolean(), NanosecondsAgo :: non_neg_integer(),
                    Number :: pos_integer(), Key :: [term()]}]).
adaptations(_Table) -> not_loaded().

%% @doc Has a table recorded, as long as the process has the result.
-spec record(cats:table()) -> outcome(Recording :: reference()).
record(_Table) -> not_loaded().

%% @doc What was recorded of a table.
-spec recorded(cats:table()) -> outcome(false | tuple()).
recorded(_Table) -> not_loaded().

%% @doc Ends a recording.
-spec stop_recording(Recording :: reference()) -> outcome(true).
stop_recording(_Recording) -> not_loaded().
%% @doc Starts to record events of these kinds (see native/sync/src/trace.rs), up to so many of each thread. Returns
%% `false' if a recording is on. One ends with its reference.
-spec trace_start(Kinds :: [atom()], Room :: pos_integer()) -> outcome(reference() | false).
trace_start(_Kinds, _Room) -> not_loaded().

%% @doc Ends a recording. Returns the nanoseconds since its start, and the monotonic time of the VM now.
-spec trace_stop(reference()) -> outcome({Nanoseconds :: non_neg_integer(), integer()}).
trace_stop(_Recording) -> not_loaded().

%% @doc The threads that have recorded anything, and how many events found no room at all.
-spec trace_slots(reference()) -> outcome({[non_neg_integer()], Missed :: non_neg_integer()}).
trace_slots(_Recording) -> not_loaded().

%% @doc What one of these threads has recorded, the oldest first, and how many older events were lost. Fails with
%% `dirty' unless called on a dirty scheduler.
-spec trace_events(reference(), Slot :: non_neg_integer()) ->
          outcome({Thread :: binary(), Lost :: non_neg_integer(), [trace_event()]}).
trace_events(_Recording, _Slot) -> not_loaded().

%% What happened, and to what. End and duration are in nanoseconds, the end from the start of the recording.
-type trace_event() :: {Kind :: atom(), End :: non_neg_integer(), Duration :: non_neg_integer(),
                        Subject :: non_neg_integer(), pid() | undefined, First :: term(), Second :: term()}.

%% @doc Calls the native function with that name on a dirty scheduler, where it never fails with `dirty'.
-spec dirty(atom(), [term()]) -> outcome(term()).
dirty(Function, Arguments) ->
    case dirty_call(Function, Arguments) of
        {Outcome} -> Outcome;
        ?FAILED(_, _) = Failed -> Failed
    end.

-spec dirty_call(atom(), [term()]) -> outcome({outcome(term())}).
dirty_call(_Function, _Arguments) -> not_loaded().

-ifdef(SELFTEST).
%% The functions that the library has when it is built with the feature `selftest'.

-spec test_layout(boolean()) -> outcome(boolean()).
test_layout(_Learned) -> not_loaded().

-spec test_layout_of_resources() -> outcome(boolean()).
test_layout_of_resources() -> not_loaded().

-spec test_roundtrip(Term) -> outcome(Term).
test_roundtrip(_Term) -> not_loaded().

-spec test_store(tuple()) -> outcome(true).
test_store(_Object) -> not_loaded().

-spec test_compare(term(), term()) -> outcome(-1 | 0 | 1).
test_compare(_A, _B) -> not_loaded().

-spec test_equal(term(), term()) -> outcome(boolean()).
test_equal(_A, _B) -> not_loaded().

-spec test_hash(term()) -> outcome({Exact :: non_neg_integer(), OfValue :: non_neg_integer()}).
test_hash(_Term) -> not_loaded().

-spec test_normalized_key(term()) -> outcome(binary()).
test_normalized_key(_Term) -> not_loaded().

-spec test_keep(term()) -> outcome(reference()).
test_keep(_Term) -> not_loaded().

-spec test_kept(reference()) -> outcome(term()).
test_kept(_Reference) -> not_loaded().

-spec test_drop(reference()) -> outcome(boolean()).
test_drop(_Reference) -> not_loaded().

-spec test_batches() -> outcome(non_neg_integer()).
test_batches() -> not_loaded().

-spec test_collect() -> outcome(more | idle).
test_collect() -> not_loaded().

-spec test_panic() -> outcome(no_return()).
test_panic() -> not_loaded().

-spec test_out_of_memory() -> outcome(no_return()).
test_out_of_memory() -> not_loaded().

-spec test_watch(pid()) -> outcome(boolean()).
test_watch(_Process) -> not_loaded().

-spec test_watched() -> outcome(non_neg_integer()).
test_watched() -> not_loaded().
-endif.
