%% @doc Shared tables of Erlang terms, with the interface of {@link ets}.
%%
%% The tables live in a native library. A function that `ets' also has takes the same arguments, returns the same
%% results and raises the same errors. This holds as of OTP 29, on every release from OTP 25 on. Each function
%% says where it differs.
%%
%% == What cats adds ==
%%
%% <ul>
%% <li>{@link lookup_elements/3} reads several elements of an object in one call.</li>
%% <li>{@link lookup_many/2}, {@link take_many/2}, {@link delete_many/2} and {@link insert_many/2} treat many keys in
%%     one call, and overlap their cache misses.</li>
%% <li>{@link fetch/3} and {@link fetch_many/3} make what is missing, once for all processes that ask for it.</li>
%% <li>{@link update/3} changes an object by a function. {@link replace/3} is compare-and-swap of an object.</li>
%% <li>Objects expire in a table with option `ttl' or `idle'. {@link insert/3}, {@link touch/3} and {@link ttl/2} treat
%%     the time of one object.</li>
%% <li>{@link add/3} adds to counters that are integers or floats.</li>
%% <li>{@link rank/2}, {@link nth/2}, {@link count/3} and {@link range/4} treat an `ordered_set' as a sequence: the
%%     place of a key, the object at a place, and the objects between two keys.</li>
%% <li>A table with option `{heir, keep}' outlives its owner. {@link claim/1} gives it a new one.</li>
%% <li>{@link from_ets/2} and {@link to_ets/2} copy a table from and to `ets'.</li>
%% <li>{@link memory/0} returns the memory of all tables and snapshots, and {@link garbage/0} what waits to be
%%     freed. {@link budget/0} returns what the library holds of the memory that it may have.</li>
%% <li>{@link engines/0} lists the structures that can hold a table. Option `engine' of {@link new/2} chooses one,
%%     and {@link info/2} returns it.</li>
%% </ul>
%%
%% == What is atomic ==
%%
%% A function that works on one key is atomic and isolated. Another process sees all of its effect or none of it.
%% The same holds for {@link insert/2} and {@link insert_new/2} of a list, and for {@link delete_all_objects/1}.
%%
%% Functions that visit a whole table are not isolated. Examples are {@link tab2list/1}, {@link select/2} and a
%% loop over {@link next/2}. They see each object that stays in the table exactly once. They may or may not see
%% objects that other processes insert or delete meanwhile.
%%
%% == Cost ==
%%
%% `N' is the number of objects in the table. Finding a key costs `O(log N)' in an `ordered_set', and `O(1)' on
%% average in the other types. The size of the key and of the copied terms adds to this.
%%
%% No call occupies a scheduler for more than about a millisecond. Longer work runs in slices, or on a dirty
%% scheduler. A call that finds a lock taken yields to other processes.
%%
%% == Errors ==
%%
%% Every function with a table argument fails with `badarg' when the table does not exist, or when its access
%% rights forbid the operation. Functions that take objects fail with `badarg' when an object is no tuple, or has
%% no element at the key position. The shell prints the reason. A function fails with `system_limit' when memory
%% runs out, or when another limit is met. The shell prints which one, and what can be done.
-module(cats).

-include("cats_failure.hrl").

%% An error shows the same as that of ets: no line of this file.
-compile(no_line_info).

-export([add/3, all/0, budget/0, claim/1, contention/1, contention/2, count/2, count/3, delete/1, delete/2,
         delete_all_objects/1, delete_many/2, delete_object/2, engines/0, fetch/3, fetch/4, fetch_many/3, fetch_many/4,
         first/1, first_lookup/1, garbage/0, give_away/3, i/0, info/1, info/2, insert/2, insert/3, insert_many/2,
         insert_new/2, insert_new/3, last/1, last_lookup/1, lookup/2, lookup_element/3, lookup_element/4,
         lookup_elements/3, lookup_many/2, member/2, memory/0, new/2, next/2, next_lookup/2, nth/2, prev/2,
         prev_lookup/2, range/3, range/4, rank/2, removed/1, rename/2, replace/3, safe_fixtable/2, setopts/2, slot/2,
         snapshot/1, stats/0, stats/1, stats_delta/2, tab2list/1, take/2, take_many/2, touch/3, ttl/2, update/3,
         update/4, update_counter/3, update_counter/4, update_element/3, update_element/4, whereis/1]).

-export([fun2ms/1, is_compiled_ms/1, match/1, match/2, match/3, match_delete/2, match_object/1,
         match_object/2, match_object/3, match_spec_compile/1, match_spec_run/2, repair_continuation/2, select/1,
         select/2, select/3, select_count/2, select_delete/2, select_replace/2, select_reverse/1,
         select_reverse/2, select_reverse/3, test_ms/2]).

-export([foldl/3, foldr/3, from_dets/2, from_ets/2, i/1, i/2, i/3, init_table/2, file2tab/1, file2tab/2, tab2file/2,
         tab2file/3, tabfile_info/1, table/1, table/2, to_dets/2, to_ets/2]).

-export_type([change/0, contention/0, recorded/0, engine/0, engine_option/0, fetch_many_options/0, fetch_options/0,
              fetch_outcome/0, increment/0, info_item/0, insert_options/0, key_range/0, lifetime/0, notify_option/0,
              option/0, tab/0, stats/0, table/0, table_access/0, table_type/0, tid/0, update_op/0]).
-export_type([comp_match_spec/0, compiled_match_spec/0, continuation/0, match_pattern/0, match_spec/0]).

%% The result of a native function that has the name and the arguments of the function around it.
-define(RESULT(Call),
        case Call of
            ?FAILED(_, _) = Failure ->
                case cats_failure:handle(Failure, ?FUNCTION_NAME) of
                    {return, Result} -> Result;
                    {raise, Reason, Arguments, Info} -> erlang:error(Reason, Arguments, Info)
                end;
            Result ->
                Result
        end).

-type table() :: atom() | tid().
%% A table: its identifier, or its name if the table is named.
-opaque tid() :: reference().
%% A table identifier. {@link new/2} and {@link whereis/1} return it.
-type tab() :: table().
%% The same as {@link table()}, for programs that use the older name.
-type table_access() :: public | protected | private.
%% Who may use a table. All processes may read and write a `public' table. All may read a `protected' one, and
%% only its owner may write. Only the owner may use a `private' one. The default is `protected'.
-type table_type() :: set | ordered_set | bag | duplicate_bag.
%% How a table treats keys. A `set' (the default) and an `ordered_set' hold one object for each key. An
%% `ordered_set' keeps its objects in term order of their keys. A `bag' holds several different objects for a key.
%% A `duplicate_bag' may also hold several equal ones.
-type engine() :: hash | ca | linear_hash | std_hash | avl | ca_avl | ca_treap | skip_list.
%% A structure that holds tables. The default engines are `hash' for hash tables and `ca' for `ordered_set'. The
%% other engines come from papers on ETS and serve comparisons.
%%
%% <ul>
%% <li>`hash': linear hashing over buckets of one cache line. Readers take no lock.</li>
%% <li>`ca': a contention-adapting search tree. Readers take no lock.</li>
%% <li>`linear_hash': linear hashing over chains, with bucket locks.</li>
%% <li>`std_hash': the hash table of Rust's library, with one lock.</li>
%% <li>`avl': an AVL tree with one lock.</li>
%% <li>`ca_avl', `ca_treap': contention-adapting trees over AVL trees or treaps.</li>
%% <li>`skip_list': a concurrent skip list.</li>
%% </ul>
-type engine_option() :: {lock, rw | dr_mcs | cc_synch | mrqd | ets_pointer}
                       | {delegate, wait | malloc | copy}
                       | {static_stack, boolean()}
                       | {write_concurrency, 1..32768}
                       | {split, non_neg_integer()} | {join, non_neg_integer()}
                       | {base_lock, mutex | rw}.
%% An option that only some engines take, for measurements. {@link engines/0} lists which.
%%
%% <ul>
%% <li>`lock': the lock of the table.</li>
%% <li>`delegate': how lock `mrqd' delegates operations.</li>
%% <li>`static_stack': whether all searches share one stack, as in an older ETS.</li>
%% <li>`write_concurrency': the number of bucket locks, a power of two.</li>
%% <li>`split': the contention statistic at which a contention-adapting tree splits a base node.</li>
%% <li>`join': the statistic at which it joins two base nodes, without its minus sign.</li>
%% <li>`base_lock': the lock of a base node.</li>
%% </ul>
-type option() :: table_type() | table_access() | named_table | {keypos, pos_integer()}
                | {heir, pid()} | {heir, pid(), HeirData :: term()} | {heir, none} | {heir, keep}
                | {write_concurrency, boolean() | auto} | {read_concurrency, boolean()}
                | {decentralized_counters, boolean()} | compressed | {engine, engine()} | engine_option()
                | {snapshot_limit, Bytes :: non_neg_integer()} | {stats, boolean()} | {ttl, lifetime()}
                | {idle, lifetime()} | {limit, limit()} | {evict, policy()} | {share, 0..100}
                | {notify, pid()} | {notify, pid(), [notify_option()]}.
%% An option of {@link new/2}. All but `engine', the {@link engine_option()}, `{heir, keep}', `snapshot_limit', `stats',
%% `ttl', `idle', `limit', `evict', `share' and `notify' are those of `ets'. With `{stats, true}' the table counts its
%% operations, see {@link stats/1}.
-type notify_option() :: {events, [expired | evicted]} | {send, objects | keys} | {queue, pos_integer()}
                       | {batch, pos_integer()} | {interval, Milliseconds :: non_neg_integer()}.
%% What a process is told of removed objects, see {@link removed/1}. By default all `events', whole `objects', of which
%% at most 10,000 wait, in batches of at most 500, with a message 100 ms after the first one.
-type limit() :: {objects, pos_integer()} | {bytes, pos_integer()}.
%% What a table may hold. Bytes are those of memory, with those of binaries outside of the table.
-type policy() :: s3_fifo | sieve | clock | none.
%% Which objects a table with a limit evicts. The first one is the default. With `none' it evicts none, and refuses what
%% would pass the limit.
-type lifetime() :: 1..1099511627775 | infinity.
%% How long an object lives, in milliseconds.
-type insert_options() :: #{ttl => lifetime()}.
%% How long the objects of {@link insert/3} and {@link insert_new/3} live. By default as long as the table's option
%% says.
-type info_item() :: base_nodes | binary | compressed | decentralized_counters | engine | evict | fixed | heir | id
                   | idle | keypos | limit | memory | name | named_table | node | notify | owner | protection
                   | read_concurrency | safe_fixed | safe_fixed_monotonic_time | share | size | stats
                   | ttl | type | used | write_concurrency.
%% An item of {@link info/2}.
-type match_pattern() :: atom() | tuple().
%% A pattern for objects. `_' matches any term. `$1', `$2' and so on are variables: the same variable matches the
%% same term everywhere in the pattern.
-type match_spec() :: [{match_pattern(), Guards :: [term()], Body :: [term()]}].
%% A match specification, as in `ets'. {@link fun2ms/1} makes one from a fun.
-type compiled_match_spec() :: ets:comp_match_spec().
%% A specification that {@link match_spec_compile/1} has compiled. It is valid on this node only.
-type comp_match_spec() :: compiled_match_spec().
%% The same as {@link compiled_match_spec()}, for programs that use the older name.
-type continuation() :: cats_select:continuation().
%% Where a call with a limit stopped. A program passes it back to the function that returned it, and does not look
%% into it.
-type update_op() :: {Pos :: pos_integer(), Increment :: integer()}
                   | {Pos :: pos_integer(), Increment :: integer(), Threshold :: integer(), SetValue :: integer()}.
%% One change of {@link update_counter/3}: add `Increment' to the element at `Pos'. With a positive increment, a
%% sum above `Threshold' becomes `SetValue'. With a negative one, a sum below `Threshold' does.

-type key_range() :: #{from | above => Key :: term(), to | below => Key :: term(), order => ascending | descending}.
%% The keys of an `ordered_set' between two bounds. `from' and `to' belong to them, `above' and `below' do not. Without
%% `from' or `above', they begin with the first key. Without `to' or `below', they end with the last one. `order' says
%% in which order {@link range/3} lists their objects. The default is `ascending'.

-type stats() :: #{time := integer(), size := integer(), memory := integer(),
                   splits := integer(), joins := integer(), reads_repeated := integer(),
                   waits := integer(), waits_given_up := integer(), wait_time := integer(),
                   waits_by_length := [{Below :: pos_integer() | infinity, Waits :: integer()}],
                   busy := integer(), dirty := integer(), slices := integer(), long_slices := integer(),
                   expired := integer(), evicted := integer(), readmitted := integer(), refused := integer(),
                   fetches_made := integer(), fetches_failed := integer(), fetches_waited := integer(),
                   fetches_stale := integer(), used_objects => integer(), limit_objects => integer(),
                   used_bytes => integer(), limit_bytes => integer(), operations => integer(),
                   lookups => integer(), hits => integer(), misses => integer(), inserts => integer(),
                   updates => integer(), deletes => integer(), steps => integer(), scans => integer()}.
%% What happened to a table, see {@link stats/1}. All are counted from when the table was made, but for the first three
%% and those of the limit:
%%
%% <ul>
%% <li>`time': when this was read, by `erlang:monotonic_time(microsecond)'.</li>
%% <li>`size', `memory': objects and bytes then.</li>
%% <li>`splits', `joins': adaptations. Engines `ca', `ca_avl' and `ca_treap' split and join base nodes, `hash' buckets.
%%     `linear_hash' doubles and halves the number of its bucket locks.</li>
%% <li>`reads_repeated': reads that met a writer, so that they were made again.</li>
%% <li>`waits': how often a thread found a lock held. `wait_time' is the sum of these waits in microseconds.
%%     `waits_by_length' counts those of less than 1, 4, 16, 64, 256 microseconds, and the longer ones.
%%     `waits_given_up' counts those after which the process let others run.</li>
%% <li>`busy': calls that were made again because a lock was held too long.</li>
%% <li>`dirty': calls that were made again on a dirty scheduler, as they were too long for a normal one.</li>
%% <li>`slices': how often a long call let others run. `long_slices' counts slices of a millisecond or more.</li>
%% <li>`expired': objects that were removed because their time had come. They may be removed some time later.</li>
%% <li>`evicted': objects that were removed because of the table's limit. `readmitted': keys that came back soon after
%%     that, as far as policy `s3_fifo' remembers. Many of them say that the limit is low. `refused': calls that failed
%%     with `system_limit' because of the limit.</li>
%% <li>`fetches_made', `fetches_failed': how often the function of a {@link fetch/3} or {@link fetch_many/3} returned,
%%     or failed. `fetches_waited': how often a process waited for the function of another one. `fetches_stale': how
%%     often an object was returned that had ended.</li>
%% </ul>
%%
%% For a table with a limit of objects there are `limit_objects', the limit, and `used_objects', what is taken of it.
%% For one with a limit of bytes there are `limit_bytes' and `used_bytes', see `used' of {@link info/2}.
%%
%% The others are there for a table with option `{stats, true}' only:
%%
%% <ul>
%% <li>`lookups': keys that were read. `hits' of them had an object, and `misses' had none.</li>
%% <li>`inserts': objects to insert. `deletes': keys or objects to delete.</li>
%% <li>`updates': calls of {@link update_counter/3}, {@link update_element/3}, {@link add/3}, {@link replace/3}.</li>
%% <li>`steps': calls of {@link next/2}, {@link first/1} and their kin.</li>
%% <li>`scans': calls of {@link select/2}, {@link match/2}, {@link tab2list/1}, {@link rank/2}, {@link range/3} and
%%     their kin.</li>
%% <li>`operations': the sum of all, without hits and misses.</li>
%% </ul>
-type contention() :: #{engine := ca | hash, time := integer(),
                        strips := [#{from => Key :: term(), leaves | buckets := non_neg_integer(),
                                     keys := non_neg_integer(),
                                     changes := non_neg_integer(), waits => non_neg_integer()}],
                        base_nodes => [#{from => Key :: term(), statistic := integer(), waits := non_neg_integer(),
                                         height := non_neg_integer(), leaves := pos_integer(),
                                         keys := non_neg_integer(), changes := non_neg_integer()}],
                        leaves => [{Slots :: pos_integer(), Leaves :: non_neg_integer(), Keys :: non_neg_integer()}],
                        buckets => pos_integer(), load => [{Keys :: non_neg_integer(), Buckets :: pos_integer()}],
                        adaptations := [#{time := integer(), kind := split | join | grow | shrink,
                                          number := pos_integer(), key => Key :: term()}],
                        recorded := false | recorded()}.
%% Where the operations on a table meet, see {@link contention/1}.
%%
%% <ul>
%% <li>`time': when this was read, by `erlang:monotonic_time(microsecond)'.</li>
%% <li>`strips': the table in at most 64 parts. With engine `ca' they are in key order, with about as many leaves, and
%%     `from' is the lowest key that may be there. With `hash', they are parts of the hash range. `changes' counts the
%%     changes of what is there now, since it was made: a leaf or bucket that is split begins anew.</li>
%% <li>`base_nodes', for `ca', in key order: `statistic' is the contention statistic, which a wait raises by 250 and an
%%     operation without one lowers by 1. A base node is split above 1000, and joined with a neighbour below -1000.
%%     `waits' is how often contention was met since the base node was made. `height' counts the nodes above a
%%     leaf.</li>
%% <li>`leaves', for `ca': how many leaves have room for so many keys, and how many keys they have.</li>
%% <li>`load', for `hash': how many buckets have so many keys. 16 stands for 16 or more.</li>
%% <li>`adaptations': the last 64, the oldest first. Engine `ca' splits and joins base nodes at a key. `hash' grows and
%%     shrinks to this number of buckets, of which powers of 2 from 1024 on are kept.</li>
%% <li>`recorded': what {@link contention/2} records now, or `false'.</li>
%% </ul>
%%
%% Keys are left out for a process that may not read the table.
-type recorded() :: #{time := non_neg_integer(), waits := non_neg_integer(), reads_repeated := non_neg_integer(),
                      wait_time := non_neg_integer(),
                      places := [#{key => Key :: term(), strip => pos_integer(), waits := non_neg_integer(),
                                   reads_repeated := non_neg_integer(), wait_time := non_neg_integer(),
                                   processes := [pid()]}],
                      meetings := [#{process := pid(), other := pid(), waits := pos_integer(),
                                     wait_time := non_neg_integer()}]}.
%% What was recorded, in the last `time' microseconds.
%%
%% <ul>
%% <li>`waits', `reads_repeated', `wait_time': as for {@link stats/1}.</li>
%% <li>`places': the keys for which most had to wait, those first. `strip' is the number of the strip in which the key
%%     is. Both are missing if the key is not there any more, or if a call waited that goes over many keys. `processes'
%%     are up to four of those that met there.</li>
%% <li>`meetings': pairs of processes that met most, those first. `process' waited while `other' was in a call. With two
%%     schedulers, `other' held the lock. With more, it is one of those that may have.</li>
%% </ul>
%%
%% A table keeps 256 places and as many meetings. What is rare gets lost, so that their waits may be less than all.
-type increment() :: number() | {Pos :: pos_integer(), Increment :: number()}.
%% One addition of {@link add/3}. A number alone is added to the element after the key.
-type fetch_options() :: #{timeout => 0..4294967295 | infinity, ttl => lifetime(), stale => 0..1099511627775,
                           retry => boolean(), refresh_timeout => 1..4294967295 | infinity,
                           returns => object | outcome, negative_ttl => 0..1099511627775,
                           refresh_ahead => 0..1099511627775}.
%% See {@link fetch/4}. Times are in milliseconds.
-type fetch_outcome() :: {store, Object :: tuple()} | {store, Object :: tuple(), #{ttl => lifetime()}}
                       | {ignore, Value :: term()}.
%% What a function returns that makes an object for {@link fetch/4} with option `returns'.
-type fetch_many_options() :: #{timeout => 0..4294967295 | infinity, ttl => lifetime(), retry => boolean(),
                                returns => object | outcome, negative_ttl => 0..1099511627775}.
%% See {@link fetch_many/4}. Times are in milliseconds.
-type change() :: fun((Object :: tuple()) -> (NewObject :: tuple()) | keep | delete).
%% What {@link update/3} does to an object. It returns the object to store, `keep' to change nothing, or `delete' to
%% delete the object.

%% @doc Adds to one or several counters of the object with the key, and returns their new values. Atomic and
%% isolated. Not in `ets'.
%%
%% Counters and increments are integers or floats. The sum is that of `+': an integer if both are integers, else a
%% float. So an integer counter becomes a float when a float is added. Additions of a list run in order. If one of them
%% fails, none takes effect. The result is one number, or a list of numbers if `Increments' is a list.
%%
%% An integer that is added to a float counts as the nearest float. In older releases of OTP, `+' itself may take the
%% float beside that, for an integer beyond 64 bits.
%%
%% From the second call on, the counters of a small object are changed in place.
%%
%% Works with `set' and `ordered_set' only. Fails with `badarg' when the table does not hold the key, when a counter is
%% no number, or when a sum is too large for a float. It also fails when a position is outside of the object or is the
%% key position.
-spec add(table(), Key :: term(), Increments) -> Result | [Result] when
      Increments :: increment() | [{Pos :: pos_integer(), Increment :: number()}],
      Result :: number().
add(Table, Key, Increments) ->
    ?RESULT(cats_nif:add(Table, Key, Increments)).

%% @doc Returns all tables of this node. A named table appears under its name. Costs `O(number of tables)'.
-spec all() -> [table()].
all() ->
    ?RESULT(cats_nif:all()).

%% @doc Makes the calling process the owner of a table that nobody owns. Not in `ets'.
%%
%% Such a table was created with option `{heir, keep}', and its owner has ended. Any process of the node may claim it,
%% whatever the access rights. Of several processes that claim it, one gets it. The table keeps its heir: when the new
%% owner ends, the table stays again. No message is sent. The size of the table does not matter.
%%
%% Fails with `badarg' when the table has an owner, also when that is the caller.
-spec claim(table()) -> true.
claim(Table) ->
    ?RESULT(cats_nif:claim(Table)).

%% @doc Returns the number of objects whose keys are in a range. Not in `ets'.
%%
%% As {@link count/3}, with bounds that may be open.
-spec count(table(), key_range()) -> non_neg_integer().
count(Table, Range) ->
    case cats_range:bounds(Range) of
        {From, To, _Order} -> count_between(Table, From, To, [Table, Range]);
        invalid -> cats_failure:fail(badarg, no_range, count, [Table, Range])
    end.

%% @doc Returns the number of objects with keys from `From' to `To'. Both keys belong to the range, and need not be in
%% the table. The number is 0 if `To' is below `From'. Not in `ets'.
%%
%% An object that is in the table during the whole call is counted exactly once. Objects outside of the range make no
%% difference. The call is not atomic: of the objects that other processes insert or delete meanwhile, it may count
%% some and not others.
%%
%% The cost is as for {@link rank/2}. Works with `ordered_set' and engine `ca' only.
-spec count(table(), From :: term(), To :: term()) -> non_neg_integer().
count(Table, From, To) ->
    count_between(Table, [From], [To], [Table, From, To]).

count_between(Table, From, To, Called) ->
    ?RESULT(cats_nif:count_between(Table, From, To), count_between, count, Called).

%% @doc Deletes a table. When the call returns, the table is gone and its name is free. The call takes `O(1)'
%% time: a background process frees the memory later. Unlike in `ets', the size of the table does not matter.
-spec delete(table()) -> true.
delete(Table) ->
    ?RESULT(cats_nif:delete(Table)).

%% @doc Deletes all objects with the key. Does nothing if there are none. Atomic and isolated.
-spec delete(table(), Key :: term()) -> true.
delete(Table, Key) ->
    ?RESULT(cats_nif:delete(Table, Key)).

%% @doc Deletes all objects of the table, atomically and isolated. Takes `O(1)' time: a background process frees
%% the memory later.
-spec delete_all_objects(table()) -> true.
delete_all_objects(Table) ->
    ?RESULT(cats_nif:delete_all_objects(Table)).

%% @doc Deletes all objects with these keys. Not in `ets'.
%%
%% In a large table this is faster than one call for each key, because the cache misses of several keys overlap. Each
%% deletion is atomic, but the whole call is not. The work runs in slices of a few hundred keys. Fails with `badarg',
%% and deletes nothing, when `Keys' is no list.
-spec delete_many(table(), Keys :: [term()]) -> true.
delete_many(Table, Keys) when length(Keys) >= 0 ->
    through(delete_many, Table, Keys, [Table, Keys]);
delete_many(Table, Keys) ->
    cats_failure:fail(badarg, none, delete_many, [Table, Keys]).

%% Calls the native function for what its last call has left, until nothing is left.
through(Function, Table, List, Called) ->
    case slice(Function, Table, List, Called) of
        [] -> true;
        Rest -> through(Function, Table, Rest, Called)
    end.

%% One native call, which treats the first elements of the list.
slice(Function, Table, List, Called) ->
    ?RESULT(cats_nif:Function(Table, List), Function, Function, Called).

%% @doc Deletes exactly this object. Other objects with the same key stay. In a `duplicate_bag' it deletes all
%% equal instances. Atomic and isolated.
-spec delete_object(table(), Object :: tuple()) -> true.
delete_object(Table, Object) ->
    ?RESULT(cats_nif:delete_object(Table, Object)).

%% @doc Lists the engines that option `engine' of {@link new/2} accepts. Not in `ets'.
%%
%% Each map holds the name, the table types that the engine can hold, and its own options. An option comes with a
%% list of names, the default first, or with its smallest and largest number. The first engine with a type is the
%% default for that type. `transactions' lists the types with which {@link cats_transaction} works.
%% `order_statistics' lists the types with which {@link rank/2}, {@link nth/2} and {@link count/3} work. `snapshots'
%% says whether {@link snapshot/1} works.
-spec engines() -> [#{name := engine(), types := [table_type()],
                      options := #{Option :: atom() => [atom()] | {integer(), integer()}},
                      transactions := [table_type()], order_statistics := [table_type()], snapshots := boolean()}].
engines() ->
    Engines = ?RESULT(cats_nif:engines()),
    [#{name => Name, types => Types, options => maps:from_list(Options),
       transactions => Transactions, order_statistics => OrderStatistics, snapshots => Snapshots}
     || {Name, Types, Options, Transactions, OrderStatistics, Snapshots} <- Engines].

%% @doc Returns the object with the key. When the table does not hold the key, the function makes the object, which is
%% stored. Of all processes that miss the key at the same time, one runs the function, and the others wait for its
%% object. Not in `ets'.
%%
%% The function gets the key, and returns an object with that key. It runs in the calling process, without any lock.
%% When it fails, the call fails with the same exception, and so do the calls of those that wait. Nothing is stored.
%% When its process is killed, one of those that wait runs its own function.
%%
%% Nobody waits any more when another process writes to the key meanwhile. Who waited looks again: it returns what was
%% stored, or runs its own function after a deletion. The first function goes on. An object that somebody else has
%% stored stays, and is returned in place of the one that was made. After a deletion, the one that was made is stored
%% all the same. So a function may store what was read before the deletion.
%%
%% When the function fetches its own key, that call fails with `badarg'. So does a call that would close a circle,
%% because the function that it waits for waits for the caller's own function in the end. The explanation lists the
%% keys.
%%
%% Works with `set' and `ordered_set' only, and needs the right to write. Fails with `badarg' when the function returns
%% anything but an object with this key. The keys are the same as in {@link replace/3}.
%%
%% A hit costs a few nanoseconds more than {@link lookup/2}, and no other process takes part in it.
-spec fetch(table(), Key :: term(), fun((Key :: term()) -> Object :: tuple())) -> Object :: tuple().
fetch(Table, Key, Fun) when is_function(Fun, 1) ->
    %% As cats_fetch:fetch/3, without its calls.
    case cats_nif:lookup_to_fetch(Table, Key) of
        [Object] -> Object;
        false -> cats_fetch:miss(Table, Key, cats_fetch:call([Table, Key, Fun], #{}));
        ?FAILED(_, _) -> cats_fetch:fetch(Table, Key, cats_fetch:call([Table, Key, Fun], #{}))
    end;
fetch(Table, Key, Fun) ->
    cats_failure:fail(badarg, no_fun, fetch, [Table, Key, Fun]).

%% @doc Like {@link fetch/3}, with options:
%%
%% <ul>
%% <li>`returns': with `outcome', the function says what is done with what it returns, which is a {@link
%%     fetch_outcome()}. `{store, Object}' stores an object, and `{store, Object, #{ttl => Time}}' one that lives for
%%     so long. `{ignore, Value}' stores nothing. The call returns the object, or the value. By default `object': the
%%     function returns an object, which is stored.</li>
%% <li>`timeout': how many milliseconds to wait for the function of another process. After that the call exits with
%%     `{timeout, _}'. The other process goes on. By default there is no limit.</li>
%% <li>`retry': whether to run the own function when that of another process has failed for which the call waited. If
%%     several calls wait, one of them does so. By default `false'.</li>
%% <li>`negative_ttl': for how many milliseconds a failure of the function is remembered. Until then, calls with this
%%     option that miss the key fail with the same exception, and run no function. By default 0.</li>
%% <li>`ttl': how long the object lives that the function makes, as in {@link insert/3}. By default as long as
%%     others.</li>
%% <li>`stale': for so many milliseconds after its end, the object is returned at once, while a process of its own runs
%%     the function. By default 0.</li>
%% <li>`refresh_ahead': for so many milliseconds before its end, the object is returned at once, while a process of its
%%     own runs the function. By default 0.</li>
%% <li>`refresh_timeout': how many milliseconds that process may take. After that it is killed. By default 60,000.</li>
%% </ul>
%%
%% With `stale', the first call that finds an object which has ended starts a process that runs the function and stores
%% the new object. Until then all calls get the old one, and none waits. When the function fails, or its process is
%% killed, the next call starts another one, as it does when the VM has no room for a process. In a table that is not
%% public, the calling process runs the function itself.
%%
%% An object that this function has made or found with `stale' is kept for so long after its end. It is kept longer
%% where another call on the table has had a longer time. Only calls with `stale' see it. For all other functions it is
%% gone at its time. A write to its key ends it, as a deletion does. It also goes when the table needs its room for a
%% limit, when a walk meets hundreds of such objects in a row, and when order statistics are asked for. With `{evict,
%% none}' nothing is kept.
%%
%% `refresh_ahead' does the same before the end. The new object is stored in place of the one that was found, or where
%% the key has none by then. What another process has stored meanwhile stays. Only calls that find the object begin its
%% renewal, so what nobody fetches ends at its time. Nothing is renewed ahead in a table that is not public. In a table
%% with `idle', where a read moves the end, only an object with a time besides is, before that ends.
%%
%% A write to the key ends a failure that is remembered, as a deletion does. A failure of a renewal is remembered too,
%% and no other renewal begins until then. Where a failure is remembered, `retry' has no effect. The failures of a table
%% take at most 4 MB, which is some 4000 with their stacks, and which no limit counts. Where there are more, those go
%% first that end first. One of more than 64 KB is not remembered.
%%
%% A value that is not stored is also the result of those that wait for the function, if they have `returns => outcome'
%% too. A call without that option looks again, and runs its own function.
%%
%% `ttl', `stale' and `refresh_ahead' fail with `badarg' when the objects of the table cannot expire.
-spec fetch(table(), Key :: term(), fun((Key :: term()) -> Object | fetch_outcome()), fetch_options()) ->
          Object | (Value :: term()) when
      Object :: tuple().
fetch(Table, Key, Fun, Options) when is_function(Fun, 1) ->
    Called = [Table, Key, Fun, Options],
    case cats_fetch:call(Called, Options) of
        {error, Cause} -> cats_failure:fail(badarg, Cause, fetch, Called);
        Call -> cats_fetch:fetch(Table, Key, Call)
    end;
fetch(Table, Key, Fun, Options) ->
    cats_failure:fail(badarg, no_fun, fetch, [Table, Key, Fun, Options]).

%% @doc Returns the object of each key, in the order of the keys. One call of the function makes the objects of all keys
%% that the table does not hold. Of all processes that miss a key at the same time, one makes its object, and the others
%% wait. Not in `ets'.
%%
%% The function gets a list of the keys that are missing, and for which no other process is making an object. It is not
%% called if there are none. It returns a list of objects, in any order, each with one of these keys. They are stored,
%% one after the other. A key for which it returns no object gets `undefined' in the result. Nothing is stored for it,
%% and the next call asks for it again. So the function may be a query that returns what it finds.
%%
%% Afterwards the call waits for the keys that other processes are making objects for. So calls that miss each other's
%% keys do not wait for each other in a circle.
%%
%% When the function fails, the call fails with the same exception, and so do all calls that wait for any of its keys.
%% Nothing is stored then. So it is when the function returns something else, or an object with another key: `badarg'.
%% For the rest, each key is treated as by {@link fetch/3}. Calls of both wait for each other.
%%
%% The work runs in slices of a few hundred keys. The whole call is not atomic: the table may change between two keys.
%% When storing an object fails, those stay that were stored before.
-spec fetch_many(table(), [Key :: term()], fun((Missing :: [Key :: term()]) -> [Object :: tuple()])) ->
          [(Object :: tuple()) | undefined].
fetch_many(Table, Keys, Fun) ->
    fetch_many(Table, Keys, Fun, #{}, [Table, Keys, Fun]).

%% @doc Like {@link fetch_many/3}, with options, which mean the same as for {@link fetch/4}:
%%
%% <ul>
%% <li>`returns': with `outcome', the function returns a list with a {@link fetch_outcome()} for each of the missing
%%     keys, in their order. For a value that is not stored, the result has the value.</li>
%% <li>`ttl': how long the objects live that the function makes.</li>
%% <li>`negative_ttl': for how many milliseconds a failure of the function is remembered, for all of its keys. Until
%%     then, calls with this option that miss one of these keys fail with the same exception, and run no function.</li>
%% <li>`timeout': how many milliseconds to wait for the functions of other processes.</li>
%% <li>`retry': whether to run the own function when that of another process has failed for which the call
%%     waited.</li>
%% </ul>
%%
%% Other options fail with `badarg': `stale', `refresh_ahead' and `refresh_timeout' are for {@link fetch/4} only.
-spec fetch_many(table(), [Key :: term()], fun((Missing :: [Key :: term()]) -> [Object] | [fetch_outcome()]),
                 fetch_many_options()) ->
          [Object | undefined | (Value :: term())] when
      Object :: tuple().
fetch_many(Table, Keys, Fun, Options) ->
    fetch_many(Table, Keys, Fun, Options, [Table, Keys, Fun, Options]).

fetch_many(Table, Keys, Fun, Options, Called) when length(Keys) >= 0, is_function(Fun, 1) ->
    case cats_fetch:call_many(Called, Options) of
        {error, Cause} -> cats_failure:fail(badarg, Cause, fetch_many, Called);
        Call -> cats_fetch_many:fetch(Table, Keys, Call)
    end;
fetch_many(_Table, Keys, _Fun, _Options, Called) when length(Keys) >= 0 ->
    cats_failure:fail(badarg, no_fun, fetch_many, Called);
fetch_many(_Table, _Keys, _Fun, _Options, Called) ->
    cats_failure:fail(badarg, no_keys, fetch_many, Called).

%% @doc Returns the first key, or `$end_of_table' if the table is empty. In an `ordered_set' it is the smallest
%% key in term order. The other types have an order of their own.
-spec first(table()) -> (Key :: term()) | '$end_of_table'.
first(Table) ->
    ?RESULT(cats_nif:first(Table)).

%% @doc Returns the first key with all its objects, or `$end_of_table' if the table is empty. The step is atomic.
%% {@link first/1} followed by {@link lookup/2} takes two steps.
-spec first_lookup(table()) -> {Key :: term(), [Object :: tuple()]} | '$end_of_table'.
first_lookup(Table) ->
    ?RESULT(cats_nif:first_lookup(Table)).

%% @doc Makes the process `Pid' the owner of the table. The new owner receives the message ``{'ETS-TRANSFER',
%% Table, FromPid, GiftData}''. The heir of the table stays the same.
%%
%% Fails with `badarg' when the caller does not own the table. It also fails when `Pid' is dead, lives on another
%% node, or owns the table already.
-spec give_away(table(), pid(), GiftData :: term()) -> true.
give_away(Table, Pid, GiftData) ->
    ?RESULT(cats_nif:give_away(Table, Pid, GiftData)).

%% @doc Prints a line for each table: identifier, name, type, number of objects, memory in words, owner. Then come the
%% number of waits for locks and of operations, where such were counted: see {@link stats/1}.
%%
%% {@link cats_observer:i/1} prints the tables of another node. {@link cats_observer:tables/1} returns rows for
%% programs.
-spec i() -> ok.
i() ->
    print_row([id, name, type, size, mem, owner]),
    io:format(" ~s~n", [lists:duplicate(76, $-)]),
    lists:foreach(fun print_table/1, lists:sort(all())).

print_table(Table) ->
    case [info(Table, Item) || Item <- [name, type, size, memory, owner]] of
        [_Name, undefined | _] ->
            ok;
        [Name, Type, Size, Memory, Owner] ->
            print_row([Table, Name, Type, Size, Memory, registered_name(Owner)], counted(stats(Table)))
    end.

counted(undefined) ->
    "";
counted(Stats) ->
    [io_lib:format("  ~b ~s", [Number, Item])
     || Item <- [waits, operations], #{Item := Number} <- [Stats], Number > 0].

registered_name(undefined) ->
    undefined;
registered_name(Pid) ->
    case process_info(Pid, registered_name) of
        {registered_name, Name} -> Name;
        _ -> Pid
    end.

print_row(Fields) ->
    print_row(Fields, "").

print_row(Fields, More) ->
    Texts = [io_lib:format("~tp", [Field]) || Field <- Fields],
    Padded = lists:zipwith(fun string:pad/2, Texts, [15, 17, 5, 6, 8, 0]),
    io:format(" ~ts~ts~n", [lists:join($\s, Padded), More]).

%% @doc Returns the common items of {@link info/2} as a list, or `undefined' if the table does not exist. The
%% order is that of `ets', followed by `engine'. A table whose objects expire also has `ttl' and `idle', and one with a
%% limit `limit', `evict', `share' and `used'.
%%
%% The list leaves out `base_nodes', `binary', `fixed', `notify', `safe_fixed', `safe_fixed_monotonic_time' and `stats'.
%% Each item is read on its own, so other processes may change the table between two items.
-spec info(table()) -> [{info_item(), term()}] | undefined.
info(Table) ->
    Found = ?RESULT(cats_nif:info(Table, id), info, info, [Table]),
    case Found of
        undefined ->
            undefined;
        Tid ->
            Items = [{Item, info(Tid, Item)} || Item <- info_items()],
            OfCaches = [{Item, Value} || Item <- [ttl, idle, limit, evict, share, used], Value <- [info(Tid, Item)],
                                         Value =/= undefined],
            case info(Tid, id) of
                undefined -> undefined;
                Tid -> Items ++ OfCaches
            end
    end.

info_items() ->
    [id, decentralized_counters, read_concurrency, write_concurrency, compressed, memory, owner, heir, name,
     size, node, named_table, type, keypos, protection, engine].

%% @doc Returns one item, or `undefined' if the table does not exist. Fails with `badarg' when there is no such
%% item.
%%
%% The items are those of `ets', and nine more. `engine' is the {@link engine()} of the table. `base_nodes' is the
%% number of parts into which engine `ca' has divided the table under contention. It is 1 without contention, and
%% `undefined' for other engines. `ttl' and `idle' are the options of a table whose objects expire, and `undefined' for
%% others. So are `limit', `evict' and `share' for a table with a limit, and `used' is what is taken of that: objects,
%% or bytes. Of bytes, it is what the objects pay, each with its share of the structure, and what is kept for the table
%% itself. So a table is full when it has used its limit, and may take less memory than that. `notify' is `{Pid,
%% Options}' with all of them, or `undefined'.
%%
%% `owner' is `undefined' for a table that nobody owns, and `heir' is `keep' for one that is kept, see {@link claim/1}.
%%
%% `size' is exact when no process is changing the table. `memory' counts words, including what the VM and the
%% registry of tables need, but not the heir's data. Unlike in `ets', both are cheap for any table size and under
%% any contention.
-spec info(table(), info_item()) -> term() | undefined.
info(Table, Item) ->
    ?RESULT(cats_nif:info(Table, Item)).

%% @doc Inserts an object or a list of objects. The whole call is atomic and isolated, also for a list.
%%
%% <ul>
%% <li>`set', `ordered_set': an object replaces the one with the same key. If the list holds several with the same
%%     key, the last one stays.</li>
%% <li>`bag': an object is added unless the same object is there.</li>
%% <li>`duplicate_bag': an object is always added.</li>
%% </ul>
%%
%% Unlike in `ets', the cost of adding an object to a bag does not grow with the number of objects under its key.
-spec insert(table(), tuple() | [tuple()]) -> true.
insert(Table, Objects) ->
    ?RESULT(cats_nif:insert(Table, Objects)).

%% @doc Like {@link insert/2}, for objects that live for a time of their own: `#{ttl => Milliseconds}' or `#{ttl =>
%% infinity}'. Not in `ets'.
%%
%% The time takes the place of option `ttl'. In a table with option `idle' both times hold, and the earlier one ends the
%% object. So no read lets it live beyond its own time, and with `infinity' it lives until it is deleted.
%%
%% Fails with `badarg' when the objects of the table cannot expire: it has neither option `ttl' nor option `idle'.
-spec insert(table(), tuple() | [tuple()], insert_options()) -> true.
insert(Table, Objects, #{ttl := Time} = Options) when map_size(Options) =:= 1 ->
    ?RESULT(cats_nif:insert_lasting(Table, Objects, Time), insert_lasting, insert, [Table, Objects, Options]);
insert(Table, Objects, Options) when map_size(Options) =:= 0 ->
    insert(Table, Objects);
insert(Table, Objects, Options) ->
    cats_failure:fail(badarg, no_insert_options, insert, [Table, Objects, Options]).

%% @doc Inserts a list of objects, one after the other, each as {@link insert/2} does. Not in `ets'.
%%
%% Each insertion is atomic, but the whole call is not: other processes may see some of the objects without the others.
%% In a large table it is faster than one call for each object, because the cache misses of several objects overlap. In
%% a large `ordered_set' it is also faster than {@link insert/2} of the list. The work runs in slices of a few hundred
%% objects.
%%
%% Fails with `badarg', and inserts nothing, when `Objects' is no list of objects with a key.
-spec insert_many(table(), Objects :: [tuple()]) -> true.
insert_many(Table, Objects) when length(Objects) >= 0 ->
    Keypos = ?RESULT(cats_nif:info(Table, keypos), info, insert_many, [Table, Objects]),
    case are_objects(Objects, Keypos) of
        true -> through(insert_many, Table, Objects, [Table, Objects]);
        false -> cats_failure:fail(badarg, no_object, insert_many, [Table, Objects])
    end;
insert_many(Table, Objects) ->
    cats_failure:fail(badarg, no_object, insert_many, [Table, Objects]).

%% Without a table there is no key position. The native function says what is wrong then.
are_objects(_Objects, undefined) -> true;
are_objects([Object | Objects], Keypos) when tuple_size(Object) >= Keypos -> are_objects(Objects, Keypos);
are_objects(Rest, _Keypos) -> Rest =:= [].

%% @doc Inserts an object or a list of objects if the table holds none of their keys. Otherwise does nothing and
%% returns `false'. The test and the insertion are one atomic, isolated step.
-spec insert_new(table(), tuple() | [tuple()]) -> boolean().
insert_new(Table, Objects) ->
    ?RESULT(cats_nif:insert_new(Table, Objects)).

%% @doc Like {@link insert_new/2}, for objects that live for a time of their own, as those of {@link insert/3}. Not in
%% `ets'.
-spec insert_new(table(), tuple() | [tuple()], insert_options()) -> boolean().
insert_new(Table, Objects, #{ttl := Time} = Options) when map_size(Options) =:= 1 ->
    ?RESULT(cats_nif:insert_new_lasting(Table, Objects, Time), insert_new_lasting, insert_new,
            [Table, Objects, Options]);
insert_new(Table, Objects, Options) when map_size(Options) =:= 0 ->
    insert_new(Table, Objects);
insert_new(Table, Objects, Options) ->
    cats_failure:fail(badarg, no_insert_options, insert_new, [Table, Objects, Options]).

%% @doc Returns the largest key of an `ordered_set' in term order, or `$end_of_table' if the table is empty. For
%% other types it is the same as {@link first/1}.
-spec last(table()) -> (Key :: term()) | '$end_of_table'.
last(Table) ->
    ?RESULT(cats_nif:last(Table)).

%% @doc Returns the last key with all its objects, or `$end_of_table' if the table is empty. The step is atomic.
%% The order is that of {@link last/1}.
-spec last_lookup(table()) -> {Key :: term(), [Object :: tuple()]} | '$end_of_table'.
last_lookup(Table) ->
    ?RESULT(cats_nif:last_lookup(Table)).

%% @doc Returns all objects with the key, or an empty list. A bag returns them in the order of insertion. The call
%% is atomic and takes no lock with the default engines.
%%
%% Keys of an `ordered_set' are the same if they compare equal (`=='), so `1' finds `1.0'. In other types they
%% must match (`=:=').
-spec lookup(table(), Key :: term()) -> [Object :: tuple()].
lookup(Table, Key) ->
    ?RESULT(cats_nif:lookup(Table, Key)).

%% @doc Returns the element at position `Pos' of the object with the key. A bag returns a list with one element
%% for each object. The call is atomic and copies only these elements.
%%
%% Fails with `badarg' when the table does not hold the key, or when an object has fewer than `Pos' elements.
-spec lookup_element(table(), Key :: term(), Pos :: pos_integer()) -> (Element :: term()) | [Element :: term()].
lookup_element(Table, Key, Pos) ->
    ?RESULT(cats_nif:lookup_element(Table, Key, Pos)).

%% @doc Like {@link lookup_element/3}, but returns `Default' when the table does not hold the key.
-spec lookup_element(table(), Key :: term(), Pos :: pos_integer(), Default :: term()) -> term() | [term()].
lookup_element(Table, Key, Pos, Default) ->
    ?RESULT(cats_nif:lookup_element(Table, Key, Pos, Default)).

%% @doc Returns the elements at several positions of the object with the key, in the order of `Positions'. A bag
%% returns such a list for each object. The call is atomic and copies only these elements.
%%
%% Fails with `badarg' when the table does not hold the key, or when an object is too small for one of the
%% positions. Not in `ets'.
-spec lookup_elements(table(), Key :: term(), [Pos :: pos_integer()]) -> [Element] | [[Element]] when
      Element :: term().
lookup_elements(Table, Key, Positions) ->
    ?RESULT(cats_nif:lookup_elements(Table, Key, Positions)).

%% @doc Looks up many keys, and returns for each of them what {@link lookup/2} returns, in the order of the keys.
%% Not in `ets'.
%%
%% In a large table this is faster than one call for each key, because the cache misses of several keys overlap.
%% Each lookup is atomic, but the whole call is not: the table may change between two keys. The work runs in
%% slices of a few hundred keys.
-spec lookup_many(table(), [Key :: term()]) -> [[Object :: tuple()]].
lookup_many(Table, Keys) ->
    lookup_many(Table, Keys, [Table, Keys]).

lookup_many(Table, Keys, Called) ->
    Slice = ?RESULT(cats_nif:lookup_many(Table, Keys), lookup_many, lookup_many, Called),
    case Slice of
        {Lists, Rest} -> Lists ++ lookup_many(Table, Rest, Called);
        Lists -> Lists
    end.

%% @doc Returns whether the table holds an object with the key. Atomic, and copies nothing.
-spec member(table(), Key :: term()) -> boolean().
member(Table, Key) ->
    ?RESULT(cats_nif:member(Table, Key)).

%% @doc Returns how many blocks of memory were taken out of use, as objects were replaced and deleted, and how many of
%% those were freed. `bytes' is about the memory of the others. They are freed when no call is left that began before
%% and may still read them. It is normal that some wait. The last blocks of each scheduler, 64 at most, are not counted
%% yet. Not in `ets'.
-spec garbage() -> #{retired := non_neg_integer(), freed := non_neg_integer(), bytes := non_neg_integer()}.
garbage() ->
    {Retired, Freed, Bytes} = ?RESULT(cats_nif:garbage()),
    #{retired => Retired, freed => Freed, bytes => Bytes}.

%% @doc Returns the memory of all tables and snapshots in bytes. `erlang:memory(ets)' does not include it;
%% `erlang:memory(system)' does, with the memory that is free for more objects. Not in `ets'.
-spec memory() -> non_neg_integer().
memory() ->
    ?RESULT(cats_nif:memory()).

%% @doc Returns what the whole library holds, and what it may hold by the setting `memory_limit', in bytes. `held' is
%% more than {@link memory/0}. It has all that was taken from the VM and the system for tables. Part of it is free for
%% more objects, or waits to be freed. With a limit it also has the binaries outside of tables that objects refer to.
%%
%% A call that would pass the limit has memory made free first: each table with option `limit' gives up its `share',
%% again and again. If that is not enough, the call fails with `system_limit', and has changed nothing. Functions that
%% write one object after the other keep what they wrote before. Calls that store are refused somewhat below the limit,
%% so that reads and deletions can go on: by a sixteenth of it, which is at least 8 MiB and at most 64 MiB.
%%
%% When `held' comes to 80 % of the limit, the alarm `cats_memory_high_watermark' is set in `alarm_handler'. Below 75 %
%% it is cleared. `O(1)'. Not in `ets'.
-spec budget() -> #{limit := pos_integer() | infinity, held := non_neg_integer()}.
budget() ->
    {Limit, Held} = ?RESULT(cats_nif:budget()),
    #{limit => Limit, held => Held}.

%% @doc Creates a table that belongs to the calling process. Returns its identifier, or its name with option
%% `named_table'. When the owner ends, the table is deleted, or goes to its heir if it has one. With `{heir, keep}' it
%% stays without an owner until a process calls {@link claim/1}. Until then its name, its objects and its access rights
%% are as before. So nobody can write to a `protected' table, and nobody can read a `private' one.
%%
%% The options are those of `ets'. The concurrency options (`read_concurrency', `write_concurrency',
%% `decentralized_counters') are accepted, and {@link info/2} returns them. The default engines do not need them.
%% Option `compressed' compresses the elements other than the key where that saves memory.
%%
%% `{engine, Name}' chooses the structure of the table, see {@link engine()}. Some engines take an {@link
%% engine_option()} as well.
%%
%% `{snapshot_limit, Bytes}' bounds what is kept for the snapshots of the table, see {@link snapshot/1}.
%%
%% `{ttl, Milliseconds}' lets each object expire so long after it was inserted, `{idle, Milliseconds}' so long after it
%% was last read. With both, the earlier end counts. An object may have a time of its own, see {@link insert/3}. With
%% `{ttl, infinity}' only objects with a time of their own expire. An expired object is gone for every function at its
%% time, by the monotonic clock of the system. The functions that insert an object give it its time. Those that update
%% one keep it, such as {@link update_counter/3} and {@link update/3}. Reads move the time of option `idle' in steps of
%% a sixteenth, so that few reads write. Both options are for `set' and `ordered_set' with the default engine, and not
%% for `compressed' tables.
%%
%% `{notify, Pid}' and `{notify, Pid, Options}' let a process be told of the objects that expire or are evicted, see
%% {@link removed/1}.
%%
%% `{limit, {objects, N}}' and `{limit, {bytes, N}}' bound what the table holds. Whoever adds an object makes room for
%% it first: the table evicts others. So it never holds more than N objects. A limit of bytes counts what `info(Table,
%% memory)' counts, and the binaries outside of the table that its objects refer to. It does not count what waits for
%% the process of option `notify'. It must leave room for the table itself. `{evict, Policy}' chooses which objects are
%% evicted, see {@link policy()}. Lookups and writes of a key count as its use, walks and `select' do not. With `{evict,
%% none}' nothing is evicted. A function that would pass the limit fails with `system_limit' then, and changes nothing.
%% Those that write one object after the other keep what they wrote before, as {@link select_replace/2} and {@link
%% insert_many/2} do. Under each policy it also fails so when what it writes together has no room in an empty table.
%% Both options are for `set' and `ordered_set' with the default engine, and not for `compressed' tables.
%%
%% `{share, Percent}' goes with option `limit': so much of its objects the table gives up at a time when all of cats has
%% no memory left, see {@link budget/0}. The default is 10. With 0, or with `{evict, none}', it gives up nothing.
%%
%% Fails with `badarg' when an option is invalid, when the name is taken, or when the engine does not support the
%% table type or an option. The explanation names the option.
-spec new(Name :: atom(), [option()]) -> table().
new(Name, Options) ->
    ?RESULT(cats_nif:new(Name, Options)).

%% @doc Returns the key after `Key', or `$end_of_table' if there is none. In an `ordered_set' it is the next
%% larger key in term order. The other types have an order of their own.
%%
%% Unlike in `ets', `Key' need not be in the table, because absent keys have a place in the order too. So a
%% traversal needs no {@link safe_fixtable/2}, and does not fail when another process deletes its current key.
-spec next(table(), Key :: term()) -> (Key2 :: term()) | '$end_of_table'.
next(Table, Key) ->
    ?RESULT(cats_nif:next(Table, Key)).

%% @doc Returns the key after `Key' with all its objects, or `$end_of_table' if there is none. The step is atomic.
%% The order is that of {@link next/2}.
-spec next_lookup(table(), Key :: term()) -> {Key2 :: term(), [Object :: tuple()]} | '$end_of_table'.
next_lookup(Table, Key) ->
    ?RESULT(cats_nif:next_lookup(Table, Key)).

%% @doc Returns the object with number `N' in key order. The first object has number 0, as in {@link rank/2}. Negative
%% numbers count from the end: the last object has number -1. Returns `$end_of_table' if the table has too few objects.
%% Not in `ets'.
%%
%% An object that is in the table during the whole call is counted exactly once. So if no other process writes,
%% `nth(Table, rank(Table, Key))' is the object with this key.
%%
%% The cost is as for {@link rank/2}. Works with `ordered_set' and engine `ca' only.
-spec nth(table(), N :: integer()) -> (Object :: tuple()) | '$end_of_table'.
nth(Table, N) ->
    ?RESULT(cats_nif:nth(Table, N)).

%% @doc Returns the key before `Key' in an `ordered_set', or `$end_of_table' if there is none. For other types it
%% is the same as {@link next/2}. `Key' need not be in the table.
-spec prev(table(), Key :: term()) -> (Key2 :: term()) | '$end_of_table'.
prev(Table, Key) ->
    ?RESULT(cats_nif:prev(Table, Key)).

%% @doc Returns the key before `Key' with all its objects, or `$end_of_table' if there is none. The step is
%% atomic. The order is that of {@link prev/2}.
-spec prev_lookup(table(), Key :: term()) -> {Key2 :: term(), [Object :: tuple()]} | '$end_of_table'.
prev_lookup(Table, Key) ->
    ?RESULT(cats_nif:prev_lookup(Table, Key)).

%% @doc Returns up to `Limit' objects whose keys are in a range, as a list in the order of the range. Not in `ets'.
%%
%% `Limit' is a positive integer or `infinity'. A page of results can be continued in both directions from any key,
%% which need not be in the table any more:
%%
%% ```
%% Next = cats:range(Table, #{above => Last}, 10),
%% Previous = cats:range(Table, #{below => First, order => descending}, 10).
%% '''
%%
%% An object that is in the table during the whole call is listed exactly once, if it is within the limit. The call is
%% not atomic. It runs in slices of a few hundred objects. Works with `ordered_set' only, with any engine. Costs
%% `O(log N)', and more for each object that is listed.
-spec range(table(), key_range(), Limit :: pos_integer() | infinity) -> [Object :: tuple()].
range(Table, Range, Limit) ->
    case cats_range:bounds(Range) of
        {From, To, Order} -> range_between(Table, From, To, Order =:= descending, Limit, [Table, Range, Limit]);
        invalid -> cats_failure:fail(badarg, no_range, range, [Table, Range, Limit])
    end.

%% @doc Returns up to `Limit' objects with keys from `From' to `To', in ascending order. Both keys belong to the range,
%% and need not be in the table. The list is empty if `To' is below `From'. Not in `ets'.
%%
%% See {@link range/3}, which also has open bounds and the descending order.
-spec range(table(), From :: term(), To :: term(), Limit :: pos_integer() | infinity) -> [Object :: tuple()].
range(Table, From, To, Limit) ->
    range_between(Table, [From], [To], false, Limit, [Table, From, To, Limit]).

range_between(Table, From, To, Down, Limit, Called) ->
    Slice = ?RESULT(cats_nif:range_between(Table, From, To, Down, Limit), range_between, range, Called),
    case Slice of
        {Objects, Last, Left} when Down -> Objects ++ range_between(Table, From, {Last}, Down, Left, Called);
        {Objects, Last, Left} -> Objects ++ range_between(Table, {Last}, To, Down, Left, Called);
        Objects -> Objects
    end.

%% @doc Returns the number of keys of the table that are below `Key', in term order. So the first key has rank 0. `Key'
%% itself need not be in the table: then the rank is the one that it would have. Not in `ets'.
%%
%% An object that is in the table during the whole call is counted exactly once. The call is not atomic: of the objects
%% that other processes insert or delete meanwhile, it may count some and not others.
%%
%% `count(Table, #{above => Key})' is the number of keys above `Key', so it is the rank counted from the end.
%%
%% In a table of a million objects it takes some microseconds. The cost is `O(log N + N / 10000)'. The first of these
%% calls on a table costs `O(N / 100)', as it reads the number of objects of each leaf of the tree. From then on
%% insertions and deletions keep these counts. Works with `ordered_set' and engine `ca' only.
-spec rank(table(), Key :: term()) -> non_neg_integer().
rank(Table, Key) ->
    ?RESULT(cats_nif:rank(Table, Key)).

%% @doc Returns objects that the table has removed by itself, each with the reason, and the number of those that were
%% lost. For the process of option `notify' of {@link new/2} only. Not in `ets'.
%%
%% When there are such objects, that process gets the message `{cats_removed, Table}', with the identifier of the table,
%% or with its name if it was named. It calls this function then, which returns a batch. If more are left, another
%% message comes. No second message comes before the call.
%%
%% An object is told at most once, some time after it was removed, in no certain order. What a call deletes or replaces
%% is not told. An object that `fetch/4' keeps is told when it goes. The table waits for nobody: objects for which
%% option `queue' has no room are counted as lost. Those that are queued count in `info(Table, memory)'. When the
%% process has ended, the table notices that within seconds, frees them and tells nobody any more. A new owner of the
%% table changes nothing.
%%
%% Fails with `badarg' when the table has no option `notify', or has another process there.
-spec removed(table()) -> {[{expired | evicted, ObjectOrKey :: term()}], Lost :: non_neg_integer()}.
removed(Table) ->
    ?RESULT(cats_nif:removed(Table)).

%% @doc Gives the table a new name and returns that name. Atomic. A table that was created without `named_table'
%% still cannot be used by its name. Fails with `badarg' when another named table has the new name.
-spec rename(table(), Name) -> Name when Name :: atom().
rename(Table, Name) ->
    ?RESULT(cats_nif:rename(Table, Name)).

%% @doc Stores the object `New' in place of the object `Old', if the table holds exactly that. Returns whether it did.
%% This is compare-and-swap of a whole object. Atomic and isolated. Not in `ets'.
%%
%% The object in the table must match `Old' (`=:='), key included, also in an `ordered_set'. Both have the same key. In
%% an `ordered_set', keys that compare equal (`==') are the same. Then the table holds the key of `New' afterwards.
%%
%% Works with `set' and `ordered_set' only. Fails with `badarg' when the keys differ.
-spec replace(table(), Old :: tuple(), New :: tuple()) -> boolean().
replace(Table, Old, New) ->
    ?RESULT(cats_nif:replace(Table, Old, New)).

%% @doc Fixes the table for the calling process, or releases it. Unlike in `ets', a traversal does not need this.
%% It has an effect only on `fixed', `safe_fixed' and `safe_fixed_monotonic_time' of {@link info/2}. A fixed table
%% keeps no deleted objects.
-spec safe_fixtable(table(), Fix :: boolean()) -> true.
safe_fixtable(Table, Fix) ->
    ?RESULT(cats_nif:safe_fixtable(Table, Fix)).

%% @doc Changes options of the table. Fails with `badarg' when the caller does not own the table, or when an option is
%% invalid. `stats' alone may be changed by each process that may write the table.
%%
%% <ul>
%% <li>`heir': who gets the table when its owner ends.</li>
%% <li>`protection': who may read and write from now on.</li>
%% <li>`stats': whether operations are counted from now on, see {@link stats/1}. Not in `ets'.</li>
%% <li>`ttl': how long objects live that are written from now on. What is in the table keeps its time. For tables that
%%     were created with option `ttl'. Not in `ets'.</li>
%% <li>`limit': another number of objects, or of bytes. For tables that were created with such a limit. Not in
%%     `ets'.</li>
%% <li>`evict': which objects are evicted from now on. For tables that were created with a limit, and with another
%%     policy than `none'. Not in `ets'.</li>
%% </ul>
%%
%% For a lower limit, objects are evicted before the call returns. The limit becomes lower step by step, while other
%% processes run. So it holds at each instant. If the caller is killed, it stays where it has come to. With `{evict,
%% none}', and more objects in the table than the limit allows, the call fails with `system_limit' and changes nothing.
-spec setopts(table(), Option | [Option]) -> true when
      Option :: {heir, pid()} | {heir, pid(), HeirData :: term()} | {heir, none} | {heir, keep}
              | {protection, table_access()} | {stats, boolean()} | {ttl, lifetime()} | {limit, limit()}
              | {evict, policy()}.
setopts(Table, Options) ->
    ?RESULT(cats_nif:setopts(Table, Options)).

%% @doc Returns the objects of slot `Number'. The first slot has number 0. The number after the last slot returns
%% `$end_of_table', and a larger one fails with `badarg'.
%%
%% Every object is in exactly one slot, as long as no process changes the table. A hash table has at least 256
%% slots. An `ordered_set' has one slot for each object. There the cost is as for {@link nth/2}, and with other engines
%% than `ca' it grows with `Number'.
-spec slot(table(), non_neg_integer()) -> [Object :: tuple()] | '$end_of_table'.
slot(Table, Number) ->
    ?RESULT(cats_nif:slot(Table, Number)).

%% @doc Returns a read-only table that holds what the table holds at one instant. Of a list of tables, returns a list of
%% such tables, in this order and all of the same instant. So a transaction, or an inserted list, is wholly in the
%% snapshots or not at all. Not in `ets'.
%%
%% All functions that read tables take a snapshot in the place of a table. Those that change a table fail with `badarg'.
%% Any process that has the snapshot may read it. It has no owner and no name, and {@link all/0} does not list it. It
%% goes when nobody refers to it any more, or by {@link delete/1}, which any process may call that has it.
%%
%% The time does not depend on the size of the tables. But the call waits for calls that are under way. While there is a
%% snapshot, the first change of a key copies what the key had. ``info(Snapshot, memory)'' is the memory that the
%% snapshot holds back. Option `snapshot_limit' of {@link new/2} is the number of bytes that the copies for all
%% snapshots of a table may have. If they need more, its snapshots die: all calls on them fail with `badarg'. Without
%% the option there is no limit.
%%
%% The snapshot stays when the table is emptied or deleted, or when its owner ends. A snapshot that is stored in its own
%% table refers to itself, so it stays until {@link delete/1}.
%%
%% A key that has changed is looked for in what each newer snapshot of the table has kept. So a call on a snapshot takes
%% longer the more newer snapshots there are that somebody still has.
%%
%% Fails with `badarg' when the caller may not read a table, when a table is a snapshot itself, and for engines other
%% than `hash' and `ca'.
-spec snapshot(table()) -> tid();
              ([table()]) -> [tid()].
snapshot(Tables) when is_list(Tables) ->
    snapshot(Tables, Tables);
snapshot(Table) ->
    [Snapshot] = snapshot([Table], Table),
    Snapshot.

snapshot(Tables, Called) ->
    Begun = ?RESULT(cats_nif:snapshot(Tables), snapshot, snapshot, [Called]),
    Taken = case Begun of
                {wait, Beginning} -> finish_snapshots(Tables, Beginning, Called);
                _ -> Begun
            end,
    case Taken of
        again -> snapshot(Tables, Called);
        _ -> Taken
    end.

finish_snapshots(Tables, Beginning, Called) ->
    ?RESULT(cats_nif:snapshot_finish(Tables, Beginning), snapshot_finish, snapshot, [Called]).

%% @doc Returns the statistics of all tables. Tables that are deleted meanwhile are left out. Not in `ets'.
-spec stats() -> #{table() => stats()}.
stats() ->
    cats_stats:all().

%% @doc Returns what happened to a table since it was made: waits for locks, reads that were repeated, adaptations, long
%% calls. Returns `undefined' if the table does not exist. Not in `ets'.
%%
%% What is rare is counted for every table, and costs other operations nothing. A table with option `{stats, true}' also
%% counts its operations, which takes a few nanoseconds of each. The memory for that is a cache line for each of twice
%% the number of processors.
%%
%% Sums are exact when no process uses the table. Waits, adaptations and repeated reads are counted with the engines
%% `hash' and `ca'. Those during {@link delete_all_objects/1} may be missing.
-spec stats(table()) -> stats() | undefined.
stats(Table) ->
    case cats_nif:info(Table, id) of
        ?FAILED(_, _) = Failure -> cats_failure:handle(Failure, info, stats, [Table]);
        undefined -> undefined;
        Tid -> cats_stats:of_table(Tid)
    end.

%% @doc Returns where the operations on a table meet, how it has adapted, and what its structure looks like. For tables
%% with engine `hash' or `ca'. Not in `ets'.
%%
%% Costs `O(N)' for `N' leaves or buckets, in slices. Nothing of it is of one instant.
-spec contention(table()) -> contention().
contention(Table) ->
    cats_contention:of_table(Table, 1, {contention, [Table]}).

%% @doc Records for some time where processes wait for each other, and which. Then returns the same as
%% {@link contention/1}, with what was recorded. The caller must have the right to read the table. Not in `ets'.
%%
%% Meanwhile {@link contention/1} shows what was recorded so far to every process. What several record, they record
%% together. Only calls that wait write to the record. Each call on the table also tells which
%% process makes it. The record takes 32 KiB, and is freed at the end. It ends early if the caller ends.
-spec contention(table(), Milliseconds :: non_neg_integer()) -> contention().
contention(Table, Milliseconds) when is_integer(Milliseconds), Milliseconds >= 0, Milliseconds < 1 bsl 32 ->
    cats_contention:record(Table, Milliseconds);
contention(Table, Milliseconds) ->
    cats_failure:fail(badarg, no_time, contention, [Table, Milliseconds]).

%% @doc Returns what changed from earlier statistics to later ones, of one table or of all. `time' is the number of
%% microseconds between them. A table that was made meanwhile counts from its beginning, and one that was deleted is
%% left out. Not in `ets'.
-spec stats_delta(Earlier, Later) -> Delta when
      Earlier :: stats() | #{table() => stats()},
      Later :: stats() | #{table() => stats()},
      Delta :: stats() | #{table() => stats()}.
stats_delta(Earlier, Later) ->
    try
        cats_stats:delta(Earlier, Later)
    catch
        error:_ -> cats_failure:fail(badarg, none, stats_delta, [Earlier, Later])
    end.

%% @doc Returns all objects as a list. Those of an `ordered_set' are in term order of their keys. Costs `O(N)', in
%% slices. Each object is read atomically, but the whole call is not.
-spec tab2list(table()) -> [Object :: tuple()].
tab2list(Table) ->
    Scan = fun(Cursor, Objects) ->
                   ?RESULT(cats_nif:scan(Cursor, Objects), scan, tab2list, [Table])
           end,
    cats_slices:finish(Scan(Table, []), Scan).

%% @doc Deletes all objects with the key, and returns them. Atomic and isolated.
-spec take(table(), Key :: term()) -> [Object :: tuple()].
take(Table, Key) ->
    ?RESULT(cats_nif:take(Table, Key)).

%% @doc Deletes all objects with these keys, and returns for each key what {@link take/2} returns, in the order of the
%% keys. Not in `ets'.
%%
%% In a large table this is faster than one call for each key, because the cache misses of several keys overlap. Each
%% key is taken atomically, but the whole call is not. The work runs in slices of a few hundred keys. Fails with
%% `badarg', and takes nothing, when `Keys' is no list. When the table is deleted during the call, the call fails, and
%% what it took before is gone with the table.
-spec take_many(table(), Keys :: [term()]) -> [[Object :: tuple()]].
take_many(Table, Keys) when length(Keys) >= 0 ->
    take_many(Table, Keys, [Table, Keys]);
take_many(Table, Keys) ->
    cats_failure:fail(badarg, none, take_many, [Table, Keys]).

take_many(Table, Keys, Called) ->
    case slice(take_many, Table, Keys, Called) of
        {Lists, Rest} -> Lists ++ take_many(Table, Rest, Called);
        Lists -> Lists
    end.

%% @doc Lets the object with the key live for this time from now on, whatever was left. Returns whether there is one.
%% Atomic and isolated. Not in `ets'.
%%
%% In a table with option `idle', a read may make the time longer. It does not for an object with a time of its own, or
%% of option `ttl': this is a new one then.
%%
%% Fails with `badarg' when the objects of the table cannot expire, see {@link insert/3}.
-spec touch(table(), Key :: term(), lifetime()) -> boolean().
touch(Table, Key, Time) ->
    ?RESULT(cats_nif:touch(Table, Key, Time)).

%% @doc Returns how long the object with the key still lives: milliseconds, or `infinity'. `undefined' if the table does
%% not hold the key. Does not count as a read for option `idle'. Not in `ets'.
%%
%% Fails with `badarg' when the objects of the table cannot expire, see {@link insert/3}.
-spec ttl(table(), Key :: term()) -> lifetime() | undefined.
ttl(Table, Key) ->
    ?RESULT(cats_nif:ttl(Table, Key)).

%% @doc Changes the object with the key by a function, and returns the function's result. Returns `false', and does
%% not call the function, when the table does not hold the key. Atomic and isolated. Not in `ets'.
%%
%% The function gets the object. It returns a new object with the same key, `keep' to change nothing, or `delete' to
%% delete the object. The function runs in the calling process and without any lock. So it may take its time and may use
%% tables. When it fails, the call fails with the same exception, and nothing is changed.
%%
%% When another process changes the object meanwhile, the function runs again with the new object. Only its last run
%% counts. So it must have no effect that may not be repeated. Of several processes that update one object, one always
%% makes progress. But a slow function may have to run many times beside fast ones. After 1000 runs the call fails with
%% `{conflict, 1000}'. It also does so when the function itself changes the object.
%%
%% Works with `set' and `ordered_set' only, and needs the right to write. Fails with `badarg' when the function returns
%% anything else, or an object with another key. Keys are the same as in {@link replace/3}.
-spec update(table(), Key :: term(), change()) -> (NewObject :: tuple()) | keep | delete | false.
update(Table, Key, Fun) ->
    update(Table, Key, Fun, [], 0).

%% @doc Like {@link update/3}, but works when the table does not hold the key too. Then the function gets `Default',
%% with `Key' as its key, and the object that it returns is inserted. With `keep' and `delete' nothing is inserted.
-spec update(table(), Key :: term(), change(), Default :: tuple()) -> (NewObject :: tuple()) | keep | delete.
update(Table, Key, Fun, Default) ->
    update(Table, Key, Fun, [Default], 0).

%% `Default' is a list of the default if there is one. `Failures' counts the runs that came to nothing because another
%% process was faster.
update(Table, Key, Fun, Default, Failures) when is_function(Fun, 1) ->
    Outcome = case Default of
                  [] -> cats_nif:lookup_to_update(Table, Key);
                  [New] -> cats_nif:lookup_to_update(Table, Key, New)
              end,
    Found = case Outcome of
                ?FAILED(_, _) = Failure ->
                    cats_failure:handle(Failure, lookup_to_update, update, [Table, Key, Fun | Default]);
                _ -> Outcome
            end,
    case Found of
        [Object] -> updated(Table, Key, Fun, Default, Failures, Object, Fun(Object));
        false -> false;
        Object -> inserted(Table, Key, Fun, Default, Failures, Object, Fun(Object))
    end;
update(Table, Key, Fun, Default, _Failures) ->
    cats_failure:fail(badarg, no_fun, update, [Table, Key, Fun | Default]).

updated(_Table, _Key, _Fun, _Default, _Failures, _Object, keep) ->
    keep;
updated(Table, Key, Fun, Default, Failures, Object, Result) ->
    Outcome = case Result of
                  delete -> cats_nif:remove(Table, Object);
                  _ -> cats_nif:replace(Table, Object, Result)
              end,
    Done = case Outcome of
               ?FAILED(_, _) = Failure when Result =:= delete ->
                   cats_failure:handle(Failure, remove, update, [Table, Key, Fun | Default]);
               ?FAILED(_, _) = Failure ->
                   cats_failure:handle(Failure, replace, update, [Table, Key, Fun | Default]);
               _ ->
                   Outcome
           end,
    case Done of
        true -> Result;
        false -> update_again(Table, Key, Fun, Default, Failures)
    end.

%% The table does not hold the key, so the function got the default.
inserted(_Table, _Key, _Fun, _Default, _Failures, _Object, Result) when Result =:= keep; Result =:= delete ->
    Result;
inserted(Table, Key, Fun, Default, Failures, Object, New) ->
    Done = ?RESULT(cats_nif:insert_absent(Table, Object, New), insert_absent, update, [Table, Key, Fun | Default]),
    case Done of
        true -> New;
        false -> update_again(Table, Key, Fun, Default, Failures)
    end.

%% The most runs of the function of an update.
-define(RUNS, 1000).

%% Lets other processes run first, the longer the more often they were faster.
update_again(Table, Key, Fun, Default, Failures) when Failures + 1 < ?RUNS ->
    lists:foreach(fun(_) -> erlang:yield() end, lists:seq(1, min(Failures, 16))),
    update(Table, Key, Fun, Default, Failures + 1);
update_again(Table, Key, Fun, Default, _Failures) ->
    cats_failure:fail({conflict, ?RUNS}, none, update, [Table, Key, Fun | Default]).

%% @doc Adds to one or several counters of the object with the key, and returns their new values. Atomic and
%% isolated.
%%
%% A single integer is added to the element after the key. An {@link update_op()} names the position. Operations
%% of a list run in order, each on the result of those before it. If one of them fails, none takes effect. The
%% result is one integer, or a list of integers if `UpdateOp' is a list.
%%
%% Works with `set' and `ordered_set' only. Fails with `badarg' when the table does not hold the key, or when a
%% counter is no integer. It also fails when a position is outside of the object or is the key position.
-spec update_counter(table(), Key :: term(), UpdateOp) -> Result | [Result] when
      UpdateOp :: update_op() | [update_op()] | (Increment :: integer()),
      Result :: integer().
update_counter(Table, Key, UpdateOp) ->
    ?RESULT(cats_nif:update_counter(Table, Key, UpdateOp)).

%% @doc Like {@link update_counter/3}, but works when the table does not hold the key too. Then it inserts
%% `Default', with `Key' as its key, and updates that object. All of it is one atomic step.
-spec update_counter(table(), Key :: term(), UpdateOp, Default :: tuple()) -> Result | [Result] when
      UpdateOp :: update_op() | [update_op()] | (Increment :: integer()),
      Result :: integer().
update_counter(Table, Key, UpdateOp, Default) ->
    ?RESULT(cats_nif:update_counter(Table, Key, UpdateOp, Default)).

%% @doc Replaces one or several elements of the object with the key. Returns `false' when the table does not hold
%% the key. Atomic and isolated.
%%
%% Works with `set' and `ordered_set' only. Fails with `badarg' when a position is outside of the object or is the
%% key position.
-spec update_element(table(), Key :: term(), ElementSpec | [ElementSpec]) -> boolean() when
      ElementSpec :: {Pos :: pos_integer(), Value :: term()}.
update_element(Table, Key, ElementSpec) ->
    ?RESULT(cats_nif:update_element(Table, Key, ElementSpec)).

%% @doc Like {@link update_element/3}, but works when the table does not hold the key too. Then it inserts
%% `Default', with `Key' as its key, and updates that object. All of it is one atomic step.
-spec update_element(table(), Key :: term(), ElementSpec | [ElementSpec], Default :: tuple()) -> boolean() when
      ElementSpec :: {Pos :: pos_integer(), Value :: term()}.
update_element(Table, Key, ElementSpec, Default) ->
    ?RESULT(cats_nif:update_element(Table, Key, ElementSpec, Default)).

%% @doc Returns the identifier of the table with this name, or `undefined' if there is none. Calls that use the
%% identifier skip the lookup of the name.
-spec whereis(Name :: atom()) -> tid() | undefined.
whereis(Name) ->
    ?RESULT(cats_nif:whereis(Name)).

%%% Match patterns and match specifications

%% @doc Matches each object against the pattern, and returns the values of its variables. Each result is a list in
%% the order of `$1', `$2' and so on.
%%
%% This function and those after it decide from the pattern what they have to visit:
%%
%% <ul>
%% <li>A pattern without variables in its key costs one lookup.</li>
%% <li>In an `ordered_set', a key that begins with known terms costs the range of keys with that beginning. This
%%     works for tuples and lists.</li>
%% <li>In an `ordered_set', guards that compare the key with constants limit the range too. Unlike in `ets', this
%%     needs no fixed beginning.</li>
%% <li>Everything else costs a visit of the whole table, in slices.</li>
%% </ul>
%%
%% Objects that do not match are not copied. Each object is read atomically, but the whole call is not. Fails with
%% `badarg' when the pattern is malformed.
-spec match(table(), match_pattern()) -> [[term()]].
match(Table, Pattern) ->
    cats_select:all(match, Table, Pattern).

%% @doc Like {@link match/2}, but returns at most `Limit' results and a continuation. {@link match/1} continues
%% from there. Returns `$end_of_table' when nothing is left.
%%
%% A program may use the same continuation several times. A continuation is valid on its node only, see {@link
%% repair_continuation/2}.
-spec match(table(), match_pattern(), Limit :: pos_integer()) -> {[[term()]], continuation()} | '$end_of_table'.
match(Table, Pattern, Limit) ->
    cats_select:chunk(match, Table, Pattern, Limit).

%% @doc Returns the next results of {@link match/3}. Fails with `badarg' when the continuation is invalid.
-spec match(continuation()) -> {[[term()]], continuation()} | '$end_of_table'.
match(Continuation) ->
    cats_select:next_chunk(match, Continuation).

%% @doc Deletes all objects that match the pattern. Each deletion is atomic, but the whole call is not. The
%% pattern `_' deletes all objects atomically, in `O(1)'. Pattern and cost are explained at {@link match/2}.
-spec match_delete(table(), match_pattern()) -> true.
match_delete(Table, '_') ->
    ?RESULT(cats_nif:delete_all_objects(Table), delete_all_objects, match_delete, [Table, '_']);
match_delete(Table, Pattern) ->
    _ = cats_select:all(match_delete, Table, Pattern),
    true.

%% @doc Returns all objects that match the pattern. Those of an `ordered_set' are in term order of their keys.
%% Pattern and cost are explained at {@link match/2}.
-spec match_object(table(), match_pattern()) -> [Object :: tuple()].
match_object(Table, Pattern) ->
    cats_select:all(match_object, Table, Pattern).

%% @doc Like {@link match_object/2}, but returns at most `Limit' objects and a continuation. {@link
%% match_object/1} continues from there. Returns `$end_of_table' when nothing is left.
-spec match_object(table(), match_pattern(), Limit :: pos_integer()) ->
          {[Object :: tuple()], continuation()} | '$end_of_table'.
match_object(Table, Pattern, Limit) ->
    cats_select:chunk(match_object, Table, Pattern, Limit).

%% @doc Returns the next objects of {@link match_object/3}. Fails with `badarg' when the continuation is invalid.
-spec match_object(continuation()) -> {[Object :: tuple()], continuation()} | '$end_of_table'.
match_object(Continuation) ->
    cats_select:next_chunk(match_object, Continuation).

%% @doc Applies a match specification to the objects, and returns a result for each object that matches. Results
%% of an `ordered_set' are in term order of the keys. Costs are those of {@link match/2}. Fails with `badarg' when
%% the specification is malformed.
-spec select(table(), match_spec()) -> [term()].
select(Table, MatchSpec) ->
    cats_select:all(select, Table, MatchSpec).

%% @doc Like {@link select/2}, but returns at most `Limit' results and a continuation. {@link select/1} continues
%% from there. Returns `$end_of_table' when nothing is left.
-spec select(table(), match_spec(), Limit :: pos_integer()) -> {[term()], continuation()} | '$end_of_table'.
select(Table, MatchSpec, Limit) ->
    cats_select:chunk(select, Table, MatchSpec, Limit).

%% @doc Returns the next results of {@link select/3}. Fails with `badarg' when the continuation is invalid.
-spec select(continuation()) -> {[term()], continuation()} | '$end_of_table'.
select(Continuation) ->
    cats_select:next_chunk(select, Continuation).

%% @doc Like {@link select/2}, but visits an `ordered_set' from its last key to its first.
-spec select_reverse(table(), match_spec()) -> [term()].
select_reverse(Table, MatchSpec) ->
    cats_select:all(select_reverse, Table, MatchSpec).

%% @doc Like {@link select/3}, but visits an `ordered_set' from its last key to its first. {@link
%% select_reverse/1} continues.
-spec select_reverse(table(), match_spec(), Limit :: pos_integer()) -> {[term()], continuation()} | '$end_of_table'.
select_reverse(Table, MatchSpec, Limit) ->
    cats_select:chunk(select_reverse, Table, MatchSpec, Limit).

%% @doc Returns the next results of {@link select_reverse/3}. Fails with `badarg' when the continuation is
%% invalid.
-spec select_reverse(continuation()) -> {[term()], continuation()} | '$end_of_table'.
select_reverse(Continuation) ->
    cats_select:next_chunk(select_reverse, Continuation).

%% @doc Returns the number of objects for which the match specification returns `true'. Costs are those of {@link
%% match/2}; no object is copied.
-spec select_count(table(), match_spec()) -> non_neg_integer().
select_count(Table, MatchSpec) ->
    cats_select:all(select_count, Table, MatchSpec).

%% @doc Deletes the objects for which the match specification returns `true', and returns their number. Each
%% deletion is atomic, but the whole call is not. Costs are those of {@link match/2}.
-spec select_delete(table(), match_spec()) -> non_neg_integer().
select_delete(Table, MatchSpec) ->
    cats_select:all(select_delete, Table, MatchSpec).

%% @doc Replaces each matching object by the result of the match specification, and returns the number of replaced
%% objects. Each replacement is atomic, but the whole call is not. Costs are those of {@link match/2}.
%%
%% Fails with `badarg' when the specification does not guarantee that every object keeps its key. Does not work
%% with type `bag'. Where a limit of the table has no room for a replacement, it fails with `system_limit', and keeps
%% what it replaced before.
-spec select_replace(table(), match_spec()) -> non_neg_integer().
select_replace(Table, MatchSpec) ->
    cats_select:all(select_replace, Table, MatchSpec).

%% @doc Makes a continuation valid again after it was stored in a file, or was sent to another node and back.
%% `MatchSpec' is the match specification of the call that returned it. Returns a valid continuation unchanged.
-spec repair_continuation(continuation(), match_spec()) -> continuation().
repair_continuation(Continuation, MatchSpec) ->
    cats_select:repair(Continuation, MatchSpec).

%% @doc Returns whether the term is a valid result of {@link match_spec_compile/1}.
-spec is_compiled_ms(term()) -> boolean().
is_compiled_ms(Term) ->
    ets:is_compiled_ms(Term).

%% @doc Compiles a match specification for {@link match_spec_run/2}. Functions on tables do not need this. Fails
%% with `badarg' when the specification is malformed.
-spec match_spec_compile(match_spec()) -> compiled_match_spec().
match_spec_compile(MatchSpec) ->
    try
        ets:match_spec_compile(MatchSpec)
    catch
        error:Reason -> cats_failure:fail(Reason, none, match_spec_compile, [MatchSpec])
    end.

%% @doc Applies a compiled match specification to a list of terms. Returns a result for each term that matches, in
%% the order of the list. Fails with `badarg' when an argument is invalid.
-spec match_spec_run([term()], compiled_match_spec()) -> [term()].
match_spec_run(Terms, CompiledMatchSpec) ->
    try
        ets:match_spec_run(Terms, CompiledMatchSpec)
    catch
        error:Reason -> cats_failure:fail(Reason, none, match_spec_run, [Terms, CompiledMatchSpec])
    end.

%% @doc Applies a match specification to one object, without a table. Returns its result, `{ok, false}' if the
%% object does not match, or a list of errors and warnings.
-spec test_ms(Object :: tuple(), match_spec()) -> {ok, Result :: term()} | {error, [{warning | error, string()}]}.
test_ms(Object, MatchSpec) ->
    ets:test_ms(Object, MatchSpec).

%% @doc Turns a literal fun into a match specification. {@link ms_transform} describes which funs it accepts.
%%
%% In the shell this works as a call. A module must include `-include_lib("cats/include/ms_transform.hrl").', and
%% the compiler then replaces the call.
-spec fun2ms(fun()) -> match_spec().
fun2ms(Fun) when is_function(Fun) ->
    try
        ets:fun2ms(Fun)
    catch
        exit:{badarg, {ets, fun2ms, Text}} -> exit({badarg, {?MODULE, fun2ms, Text}})
    end.

%%% Whole tables

%% @doc Calls `Function(Object, Acc)' for each object, and returns the last result. Each call gets the result of
%% the previous one, and the first gets `Acc0'. The fold visits an `ordered_set' from its first key to its last.
%% Costs `O(N)'.
%%
%% The function may change the table. The fold reads each object only when it reaches it, so it sees changes to
%% later objects.
-spec foldl(fun((Object :: tuple(), AccIn) -> AccOut), Acc0, table()) -> Acc1 when
      Acc0 :: term(), Acc1 :: term(), AccIn :: term(), AccOut :: term().
foldl(Function, Acc0, Table) ->
    Tid = tid(Table),
    First = ?RESULT(cats_nif:first_lookup(Tid), first_lookup, foldl, [Function, Acc0, Table]),
    case First of
        '$end_of_table' -> Acc0;
        {_Key, Objects} -> foldl_over(Objects, Function, Acc0, Tid)
    end.

foldl_over([Object], Function, Acc, Tid) ->
    foldl_from(Object, Acc, 0, Function, Tid);
foldl_over([Object | _] = Objects, Function, Acc, Tid) ->
    foldl_behind(Object, Function, lists:foldl(Function, Acc, Objects), Tid).

%% `Number' is the place of the object in its container, or 0 if unknown.
foldl_from(Object, Acc0, Number, Function, Tid) ->
    Acc = Function(Object, Acc0),
    case cats_nif:next_numbered(Tid, Object, Number) of
        ?FAILED(_, _) -> foldl_behind(Object, Function, Acc, Tid);
        Next when is_tuple(Next) -> foldl_from(Next, Acc, Number + 1, Function, Tid);
        [Found | Next] when is_integer(Found) -> foldl_from(Next, Acc, Found, Function, Tid);
        [[_ | _] = Objects] -> foldl_through(Objects, Function, Acc, Tid);
        [_ | _] = Objects -> foldl_over(Objects, Function, Acc, Tid);
        '$end_of_table' -> Acc
    end.

foldl_behind(Object, Function, Acc, Tid) ->
    Next = ?RESULT(cats_nif:next_objects(Tid, Object), next_objects, foldl, [Function, Acc, Tid]),
    case Next of
        '$end_of_table' -> Acc;
        _ when is_tuple(Next) -> foldl_from(Next, Acc, 0, Function, Tid);
        [[_ | _] = Objects] -> foldl_through(Objects, Function, Acc, Tid);
        _ -> foldl_over(Next, Function, Acc, Tid)
    end.

%% The next objects of a snapshot, of one key or more.
foldl_through([Object], Function, Acc, Tid) -> foldl_behind(Object, Function, Function(Object, Acc), Tid);
foldl_through([Object | Objects], Function, Acc, Tid) -> foldl_through(Objects, Function, Function(Object, Acc), Tid).

%% @doc Like {@link foldl/3}, but visits an `ordered_set' from its last key to its first.
-spec foldr(fun((Object :: tuple(), AccIn) -> AccOut), Acc0, table()) -> Acc1 when
      Acc0 :: term(), Acc1 :: term(), AccIn :: term(), AccOut :: term().
foldr(Function, Acc0, Table) ->
    Tid = tid(Table),
    Last = ?RESULT(cats_nif:last_lookup(Tid), last_lookup, foldr, [Function, Acc0, Table]),
    case Last of
        '$end_of_table' -> Acc0;
        {_Key, Objects} -> foldr_over(Objects, Function, Acc0, Tid)
    end.

%% Each direction has its own loop. A shared loop would call a fun at each step, which is slower.
foldr_over([Object], Function, Acc, Tid) ->
    foldr_from(Object, Acc, 0, Function, Tid);
foldr_over([Object | _] = Objects, Function, Acc, Tid) ->
    foldr_behind(Object, Function, lists:foldr(Function, Acc, Objects), Tid).

%% `Number' is the place of the object in its container, or 0 if unknown.
foldr_from(Object, Acc0, Number, Function, Tid) ->
    Acc = Function(Object, Acc0),
    case cats_nif:prev_numbered(Tid, Object, Number) of
        ?FAILED(_, _) -> foldr_behind(Object, Function, Acc, Tid);
        Next when is_tuple(Next) -> foldr_from(Next, Acc, Number + 1, Function, Tid);
        [Found | Next] when is_integer(Found) -> foldr_from(Next, Acc, Found, Function, Tid);
        [[_ | _] = Objects] -> foldr_through(Objects, Function, Acc, Tid);
        [_ | _] = Objects -> foldr_over(Objects, Function, Acc, Tid);
        '$end_of_table' -> Acc
    end.

foldr_behind(Object, Function, Acc, Tid) ->
    Next = ?RESULT(cats_nif:prev_objects(Tid, Object), prev_objects, foldr, [Function, Acc, Tid]),
    case Next of
        '$end_of_table' -> Acc;
        _ when is_tuple(Next) -> foldr_from(Next, Acc, 0, Function, Tid);
        [[_ | _] = Objects] -> foldr_through(Objects, Function, Acc, Tid);
        _ -> foldr_over(Next, Function, Acc, Tid)
    end.

foldr_through([Object], Function, Acc, Tid) -> foldr_behind(Object, Function, Function(Object, Acc), Tid);
foldr_through([Object | Objects], Function, Acc, Tid) -> foldr_through(Objects, Function, Function(Object, Acc), Tid).

%% The identifier of a named table. With it, a later call cannot reach another table with the same name. Anything
%% else is returned unchanged, and fails in the call that uses it.
tid(Name) when is_atom(Name) ->
    case ?MODULE:whereis(Name) of
        undefined -> Name;
        Tid -> Tid
    end;
tid(Tid) ->
    Tid.

%% @doc Replaces all objects of the table by those from a function. `InitFun(read)' returns `{Objects,
%% NextFunction}' or `end_of_input'. When an object cannot be inserted, `InitFun(close)' is called, and the call
%% exits. Not atomic.
-spec init_table(table(), InitFun) -> true when
      InitFun :: fun((read | close) -> end_of_input | {[Object :: tuple()], InitFun} | term()).
init_table(Table, InitFun) ->
    Tid = tid(Table),
    true = ?RESULT(cats_nif:delete_all_objects(Tid), delete_all_objects, init_table, [Table, InitFun]),
    init_table_on(Tid, InitFun(read)).

init_table_on(_Tid, end_of_input) ->
    true;
init_table_on(Tid, {Objects, InitFun}) when is_list(Objects), is_function(InitFun) ->
    try
        lists:foreach(fun(Object) -> insert(Tid, Object) end, Objects)
    catch
        error:Reason:Stack ->
            _ = try InitFun(close) catch _:_ -> ok end,
            exit({Reason, Stack})
    end,
    init_table_on(Tid, InitFun(read));
init_table_on(_Tid, Error) ->
    exit(Error).

%% @doc Inserts all objects of an open Dets table. They replace objects with the same keys, and other objects
%% stay. Fails with `badarg' when one of the tables does not exist. Not atomic.
-spec from_dets(table(), dets:tab_name()) -> true.
from_dets(Table, DetsTable) ->
    cats_convert:from_dets(Table, DetsTable).

%% @doc Replaces all objects of an open Dets table by those of this table. Fails with `badarg' when one of the
%% tables does not exist. Not atomic.
-spec to_dets(table(), DetsTable) -> DetsTable when DetsTable :: dets:tab_name().
to_dets(Table, DetsTable) ->
    cats_convert:to_dets(Table, DetsTable).

%% @doc Inserts all objects of a table of `ets'. The source keeps them. They replace objects with the same keys,
%% and other objects stay. Not in `ets'.
%%
%% Each object is copied as it is at that moment, so the whole call is not atomic. Other processes may use both
%% tables meanwhile. Fails with `badarg' when one of the tables does not exist or may not be used.
-spec from_ets(table(), EtsTable :: ets:table()) -> true.
from_ets(Table, EtsTable) ->
    cats_convert:from_ets(Table, EtsTable).

%% @doc Inserts all objects into a table of `ets'. This table keeps them. Works like {@link from_ets/2} in the
%% other direction. Not in `ets'.
-spec to_ets(table(), EtsTable :: ets:table()) -> true.
to_ets(Table, EtsTable) ->
    cats_convert:to_ets(Table, EtsTable).

%% @doc The same as {@link tab2file/3} without options.
-spec tab2file(table(), file:name()) -> ok | {error, Reason :: term()}.
tab2file(Table, File) ->
    cats_file:write(Table, File, []).

%% @doc Writes the table to a file. `ets:file2tab/1' can read the file too. Not atomic: the file may hold some
%% changes that other processes make meanwhile, and miss others. A {@link snapshot/1} has one moment.
%%
%% A file of this name is replaced when the new one is whole. So a failure leaves the old one, and two processes that
%% write the same file do not mix. The directory needs room for both. Only a node that ends meanwhile leaves a file
%% behind, whose name begins with `.cats-'.
%%
%% `extended_info' adds the number of objects, or an MD5 checksum of them. {@link file2tab/2} uses it to check
%% that the file is complete. `sync' flushes the file and its name to the disk. Returns `{error, Reason}' when the
%% table, the file or an option is unusable.
-spec tab2file(table(), file:name(), [Option]) -> ok | {error, Reason :: term()} when
      Option :: {extended_info, [object_count | md5sum]} | {sync, boolean()}.
tab2file(Table, File, Options) ->
    cats_file:write(Table, File, Options).

%% @doc The same as {@link file2tab/2} without options.
-spec file2tab(file:name()) -> {ok, table()} | {error, Reason :: term()}.
file2tab(File) ->
    cats_file:read(File, []).

%% @doc Creates a table from a file of {@link tab2file/3} or of `ets'. The calling process owns it.
%%
%% With `{verify, true}' a damaged file is an error. The check uses the extended information of the file. Without
%% any, it compares the number of objects with the size of the table at the time of writing.
%%
%% The reason is `system_limit' when there is no memory for all objects. No table is left then.
-spec file2tab(file:name(), [Option]) -> {ok, table()} | {error, Reason :: term()} when
      Option :: {verify, boolean()}.
file2tab(File, Options) ->
    cats_file:read(File, Options).

%% @doc Returns what table a file holds, without reading the objects.
-spec tabfile_info(file:name()) -> {ok, [InfoItem]} | {error, Reason :: term()} when
      InfoItem :: {name, atom()} | {type, table_type()} | {protection, table_access()} | {named_table, boolean()}
                | {keypos, pos_integer()} | {size, non_neg_integer()} | {extended_info, [object_count | md5sum]}
                | {version, {Major :: non_neg_integer(), Minor :: non_neg_integer()}}.
tabfile_info(File) when is_list(File); is_atom(File) ->
    cats_file:info(File).

%% @doc The same as {@link table/2} without options.
-spec table(table()) -> qlc:query_handle().
table(Table) ->
    cats_qlc:table(Table, []).

%% @doc Returns a query handle for {@link qlc}. A query that compares the key with constants uses lookups.
%% Otherwise option `traverse' says how to visit the table:
%%
%% <ul>
%% <li>`select' (the default): {@link select/3}, with a match specification from the query.</li>
%% <li>`{select, MatchSpec}': {@link select/3} with this specification.</li>
%% <li>`first_next', `last_prev': key by key.</li>
%% </ul>
%%
%% `n_objects' is the number of objects in a step of `select' (100 by default). Other options are those of
%% `qlc:table/2'. Fails with `badarg' when an option is invalid.
-spec table(table(), Option | [Option]) -> qlc:query_handle() when
      Option :: {n_objects, default | pos_integer()}
              | {traverse, first_next | last_prev | select | {select, match_spec()}}
              | term().
table(Table, Options) ->
    cats_qlc:table(Table, Options).

%% @doc Shows the objects of the table on the terminal, page by page. The prompt lists the commands.
-spec i(table()) -> ok.
i(Table) ->
    cats_browser:run(Table, 40, 80).

%% @doc Like {@link i/1}, with pages of `Height' lines.
-spec i(table(), Height :: pos_integer()) -> ok.
i(Table, Height) ->
    cats_browser:run(Table, Height, 80).

%% @doc Like {@link i/2}, with lines of at most `Width' characters.
-spec i(table(), Height :: pos_integer(), Width :: pos_integer()) -> ok.
i(Table, Height, Width) ->
    cats_browser:run(Table, Height, Width).
