%% @doc Shared tables of Erlang terms with the interface of {@link ets}, held by a native library.
%%
%% Every function that `ets' has under the same name and arity takes the same arguments, returns the same
%% results and raises the same errors, as of OTP 29, on every OTP release from 25 on. What differs is said at
%% the function. Not in `ets' are {@link lookup_elements/3}, {@link memory/0}, {@link engines/0}, {@link
%% from_ets/2} and {@link to_ets/2}, and the option and the item `engine' of {@link new/2} and {@link
%% info/2}.
%%
%% A function of one object is atomic and isolated: another process sees all of its effect or nothing, and so
%% is {@link insert/2} of a list. Functions that go over a whole table (`tab2list', `first' with `next') see
%% every object that is there for the whole of the traversal exactly once; those that come or go meanwhile may
%% be seen or not.
%%
%% `N' in a statement of cost is the number of objects in the table. A table of type `ordered_set' finds a key
%% in `O(log N)', the others in `O(1)' on average. The size of the key and of what is copied in or out comes
%% on top. No call holds a scheduler for more than about a millisecond; a call that meets a lock gives way to
%% other processes.
-module(cats).

-export([all/0, delete/1, delete/2, delete_all_objects/1, delete_object/2, engines/0, first/1,
         first_lookup/1, give_away/3, i/0, info/1, info/2, insert/2, insert_new/2, last/1, last_lookup/1,
         lookup/2, lookup_element/3, lookup_element/4, lookup_elements/3, lookup_many/2, member/2, memory/0,
         new/2, next/2, next_lookup/2, prev/2, prev_lookup/2, rename/2, safe_fixtable/2, setopts/2, slot/2, tab2list/1,
         take/2, update_counter/3, update_counter/4, update_element/3, update_element/4, whereis/1]).

-export([fun2ms/1, is_compiled_ms/1, match/1, match/2, match/3, match_delete/2, match_object/1,
         match_object/2, match_object/3, match_spec_compile/1, match_spec_run/2, repair_continuation/2, select/1,
         select/2, select/3, select_count/2, select_delete/2, select_replace/2, select_reverse/1,
         select_reverse/2, select_reverse/3, test_ms/2]).

-export([foldl/3, foldr/3, from_dets/2, from_ets/2, i/1, i/2, i/3, init_table/2, file2tab/1, file2tab/2, tab2file/2,
         tab2file/3, tabfile_info/1, table/1, table/2, to_dets/2, to_ets/2]).

-export_type([engine/0, engine_option/0, info_item/0, option/0, tab/0, table/0, table_access/0, table_type/0, tid/0, update_op/0]).
-export_type([comp_match_spec/0, compiled_match_spec/0, continuation/0, match_pattern/0, match_spec/0]).

-type table() :: atom() | tid().
%% A table: its identifier, or its name if it is a named table.
-opaque tid() :: reference().
%% A table identifier, as {@link new/2} returns it.
-type tab() :: table().
%% The same as {@link table()}, for programs that use the older name.
-type table_access() :: public | protected | private.
-type table_type() :: set | ordered_set | bag | duplicate_bag.
-type engine() :: hash | ca | linear_hash | std_hash | avl | ca_avl | ca_treap | skip_list.
%% A structure that holds tables. The defaults are `hash', linear hashing over cache-line buckets, and `ca', a
%% contention adapting search tree. The others are those that the papers on ETS describe, to compare with:
%% `linear_hash', linear hashing over chains with bucket locks; `std_hash', the hash table of Rust's library
%% behind one lock; `avl', an AVL tree behind one lock; `ca_avl' and `ca_treap', contention adapting trees over
%% AVL trees and over treaps; `skip_list', a concurrent skip list. {@link engines/0} lists those that are there.
-type engine_option() :: {lock, rw | dr_mcs | cc_synch | mrqd | ets_pointer}
                       | {delegate, wait | malloc | copy}
                       | {static_stack, boolean()}
                       | {write_concurrency, 1..32768}
                       | {split, non_neg_integer()} | {join, non_neg_integer()}
                       | {base_lock, mutex | rw}.
%% What some engines let choose, for measurements: `lock', the lock of the table, and for `mrqd' by `delegate'
%% how operations are delegated; `static_stack', one stack for all searches, as ETS once had it;
%% `write_concurrency' with a power of two, that number of bucket locks; `split' and `join', the statistics at
%% which a contention adapting tree does so (the second negated); `base_lock', the lock of its base nodes.
-type option() :: table_type() | table_access() | named_table | {keypos, pos_integer()}
                | {heir, pid()} | {heir, pid(), HeirData :: term()} | {heir, none}
                | {write_concurrency, boolean() | auto} | {read_concurrency, boolean()}
                | {decentralized_counters, boolean()} | compressed | {engine, engine()} | engine_option().
-type info_item() :: base_nodes | binary | compressed | decentralized_counters | engine | fixed | heir | id
                   | keypos | memory | name | named_table | node | owner | protection | read_concurrency
                   | safe_fixed | safe_fixed_monotonic_time | size | stats | type | write_concurrency.
-type match_pattern() :: atom() | tuple().
-type match_spec() :: [{match_pattern(), Guards :: [term()], Body :: [term()]}].
-type compiled_match_spec() :: ets:comp_match_spec().
-type comp_match_spec() :: compiled_match_spec().
%% The same as {@link compiled_match_spec()}, for programs that use the older name.
-type continuation() :: cats_select:continuation().
-type update_op() :: {Pos :: pos_integer(), Increment :: integer()}
                   | {Pos :: pos_integer(), Increment :: integer(), Threshold :: integer(), SetValue :: integer()}.

%% @doc Lists all tables of this node, named ones by their name. Cost: `O(number of tables)'.
-spec all() -> [table()].
all() ->
    try
        cats_nif:all()
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, Stack)
    end.

%% @doc Deletes a table. It is gone, and its name free, when the call returns, in `O(1)'; its memory is given
%% back in the background, never by the caller.
-spec delete(table()) -> true.
delete(Table) ->
    try
        cats_nif:delete(Table)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, Stack)
    end.

%% @doc Deletes all objects with the key, if there are any.
-spec delete(table(), Key :: term()) -> true.
delete(Table, Key) ->
    try
        cats_nif:delete(Table, Key)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, Stack)
    end.

%% @doc Deletes all objects, atomically and in `O(1)': their memory is given back in the background.
-spec delete_all_objects(table()) -> true.
delete_all_objects(Table) ->
    try
        cats_nif:delete_all_objects(Table)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, Stack)
    end.

%% @doc Deletes exactly this object, leaving others with the same key; in a `duplicate_bag' every instance of
%% it.
-spec delete_object(table(), Object :: tuple()) -> true.
delete_object(Table, Object) ->
    try
        cats_nif:delete_object(Table, Object)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, Stack)
    end.

%% @doc Lists the engines that option `engine' of {@link new/2} names, each with the table types that it
%% holds and the options that only some engines have, with their values: names, the first of them being the
%% default, or the least and the greatest number. The first engine of a type is the default for it. Not in
%% `ets'.
-spec engines() -> [#{name := engine(), types := [table_type()],
                      options := #{Option :: atom() => [atom()] | {integer(), integer()}}}].
engines() ->
    [#{name => Name, types => Types, options => maps:from_list(Options)}
     || {Name, Types, Options} <- cats_nif:engines()].

%% @doc Returns the first key, in term order for an `ordered_set', or `$end_of_table' if there is none.
-spec first(table()) -> (Key :: term()) | '$end_of_table'.
first(Table) ->
    try
        cats_nif:first(Table)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, Stack)
    end.

%% @doc Like {@link first/1}, with all objects of the key: one step, atomic, where `first' with {@link
%% lookup/2} are two.
-spec first_lookup(table()) -> {Key :: term(), [Object :: tuple()]} | '$end_of_table'.
first_lookup(Table) ->
    try
        cats_nif:first_lookup(Table)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, Stack)
    end.

%% @doc Makes a process the owner of the table, and sends it ``{'ETS-TRANSFER', Table, FromPid, GiftData}''.
%% Only the owner may do this; the new owner must be alive, on this node, and another process. Does not affect
%% the heir.
-spec give_away(table(), pid(), GiftData :: term()) -> true.
give_away(Table, Pid, GiftData) ->
    try
        cats_nif:give_away(Table, Pid, GiftData)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, Stack)
    end.

%% @doc Prints a line for each table: identifier, name, type, number of objects, memory in words, owner.
-spec i() -> ok.
i() ->
    print_row([id, name, type, size, mem, owner]),
    io:format(" ~s~n", [lists:duplicate(76, $-)]),
    lists:foreach(fun print_table/1, lists:sort(all())).

print_table(Table) ->
    case [info(Table, Item) || Item <- [name, type, size, memory, owner]] of
        [Name, Type, Size, Memory, Owner] when is_pid(Owner) ->
            print_row([Table, Name, Type, Size, Memory, registered_name(Owner)]);
        _Deleted ->
            ok
    end.

registered_name(Pid) ->
    case process_info(Pid, registered_name) of
        {registered_name, Name} -> Name;
        _ -> Pid
    end.

print_row(Fields) ->
    Texts = [io_lib:format("~tp", [Field]) || Field <- Fields],
    Padded = lists:zipwith(fun string:pad/2, Texts, [15, 17, 5, 6, 8, 0]),
    io:format(" ~ts~n", [lists:join($\s, Padded)]).

%% @doc Returns all that {@link info/2} tells, without the items that are costly or of no general use
%% (`binary', `fixed', `safe_fixed', `safe_fixed_monotonic_time', `stats'), or `undefined' if there is no such
%% table. The items stand in the order of `ets', then `engine'. Each is read on its own, while other processes
%% may change the table.
-spec info(table()) -> [{info_item(), term()}] | undefined.
info(Table) ->
    Found = try
                cats_nif:info(Table, id)
            catch
                error:Cause:Stack -> cats_failure:handle(Cause, {info, [Table, id]}, info, [Table], Stack)
            end,
    case Found of
        undefined ->
            undefined;
        Tid ->
            Items = [{Item, info(Tid, Item)} || Item <- info_items()],
            case info(Tid, id) of
                undefined -> undefined;
                Tid -> Items
            end
    end.

info_items() ->
    [id, decentralized_counters, read_concurrency, write_concurrency, compressed, memory, owner, heir, name,
     size, node, named_table, type, keypos, protection, engine].

%% @doc Returns one item about the table, or `undefined' if there is no such table. Beside the items of `ets'
%% there is `engine', the {@link engine()} that holds the table, and `base_nodes', the number of parts that
%% engine `ca' has divided the table into under contention, 1 without (`undefined' for other engines). `size'
%% is exact when no process is changing the table. `memory' is in words, with what the VM and the registry take for the
%% table, but without the data of an heir. Both are cheap at any size and under any contention, unlike in `ets'.
-spec info(table(), info_item()) -> term() | undefined.
info(Table, Item) ->
    try
        cats_nif:info(Table, Item)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, Stack)
    end.

%% @doc Inserts an object or a list of objects, atomically and isolated. In a `set' or `ordered_set' an object
%% replaces the one with the same key (of several in the list with the same key, the last one stays); in a
%% `bag' it is added unless exactly it is there; in a `duplicate_bag' it is added. Unlike in `ets' the cost of
%% adding an object to a bag does not grow with the number of objects under its key.
-spec insert(table(), tuple() | [tuple()]) -> true.
insert(Table, Objects) ->
    try
        cats_nif:insert(Table, Objects)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, Stack)
    end.

%% @doc Like {@link insert/2}, if none of the keys is in the table; else does nothing and returns `false'.
%% Test and insertion are one atomic step.
-spec insert_new(table(), tuple() | [tuple()]) -> boolean().
insert_new(Table, Objects) ->
    try
        cats_nif:insert_new(Table, Objects)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, Stack)
    end.

%% @doc Returns the last key in term order of an `ordered_set', or `$end_of_table'. For other types the same
%% as {@link first/1}.
-spec last(table()) -> (Key :: term()) | '$end_of_table'.
last(Table) ->
    try
        cats_nif:last(Table)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, Stack)
    end.

%% @doc Like {@link last/1}, with all objects of the key, atomically.
-spec last_lookup(table()) -> {Key :: term(), [Object :: tuple()]} | '$end_of_table'.
last_lookup(Table) ->
    try
        cats_nif:last_lookup(Table)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, Stack)
    end.

%% @doc Returns all objects with the key, in a bag in the order of their insertion. Keys match (`=:='), but
%% compare equal (`==') in an `ordered_set'.
-spec lookup(table(), Key :: term()) -> [Object :: tuple()].
lookup(Table, Key) ->
    try
        cats_nif:lookup(Table, Key)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, Stack)
    end.

%% @doc Returns the element at a position of the object with the key; in a bag the list of those of all its
%% objects. Copies nothing else. Fails with `badarg' if there is no such key, or an object is too small.
-spec lookup_element(table(), Key :: term(), Pos :: pos_integer()) -> (Element :: term()) | [Element :: term()].
lookup_element(Table, Key, Pos) ->
    try
        cats_nif:lookup_element(Table, Key, Pos)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, Stack)
    end.

%% @doc Like {@link lookup_element/3}, but returns `Default' if there is no such key.
-spec lookup_element(table(), Key :: term(), Pos :: pos_integer(), Default :: term()) -> term() | [term()].
lookup_element(Table, Key, Pos, Default) ->
    try
        cats_nif:lookup_element(Table, Key, Pos, Default)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, Stack)
    end.

%% @doc Returns the elements at several positions of the object with the key, as a list in the order of the
%% positions; in a bag the list of such lists of all its objects. One atomic call that copies just those
%% elements. Fails with `badarg' if there is no such key, or an object is too small. Not in `ets'.
-spec lookup_elements(table(), Key :: term(), [Pos :: pos_integer()]) -> [Element] | [[Element]] when
      Element :: term().
lookup_elements(Table, Key, Positions) ->
    try
        cats_nif:lookup_elements(Table, Key, Positions)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, Stack)
    end.

%% @doc Returns for each key, in the order given, what {@link lookup/2} returns. Each key is looked up by itself:
%% the objects of two keys need not have been there at the same instant. Faster than as many calls, the more so
%% the larger the table, as the waits for memory of many keys overlap. Runs in slices of some hundred keys, while
%% other processes go on. Not in `ets'.
-spec lookup_many(table(), [Key :: term()]) -> [[Object :: tuple()]].
lookup_many(Table, Keys) ->
    lookup_many(Table, Keys, [Table, Keys]).

lookup_many(Table, Keys, Called) ->
    Slice = try
                cats_nif:lookup_many(Table, Keys)
            catch
                error:Cause:Stack ->
                    cats_failure:handle(Cause, {lookup_many, [Table, Keys]}, lookup_many, Called, Stack)
            end,
    case Slice of
        {Lists, Rest} -> Lists ++ lookup_many(Table, Rest, Called);
        Lists -> Lists
    end.

%% @doc Tells whether there is an object with the key.
-spec member(table(), Key :: term()) -> boolean().
member(Table, Key) ->
    try
        cats_nif:member(Table, Key)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, Stack)
    end.

%% @doc Returns the number of bytes that all tables hold, which `erlang:memory(ets)' does not count. Not in
%% `ets'.
-spec memory() -> non_neg_integer().
memory() ->
    try
        cats_nif:memory()
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, Stack)
    end.

%% @doc Creates a table that the calling process owns, and returns its identifier, or with option `named_table'
%% its name. The table ends with its owner, unless it has an heir. The options are those of `ets'. The ones that
%% tune `ets' for concurrency (`read_concurrency', `write_concurrency', `decentralized_counters') are accepted and
%% reported by {@link info/2}, but not needed: tables adapt. Option `compressed' keeps objects compressed, except
%% their keys, where that saves memory. Option `{engine, Name}' names the structure to use, and
%% {@link engine_option()} what some of them let choose; {@link engines/0} lists both. An invalid option, or what an
%% engine lacks, a table type or an option, is refused with `badarg', and the explanation names it.
-spec new(Name :: atom(), [option()]) -> table().
new(Name, Options) ->
    try
        cats_nif:new(Name, Options)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, Stack)
    end.

%% @doc Returns the key after this one, or `$end_of_table', whether this one is there or not: in an `ordered_set'
%% the next one in term order, in other types the next one in an order of the table's own, in which an absent key
%% has a place too. So unlike in `ets' a traversal needs no {@link safe_fixtable/2}, and never fails for a key that
%% has been deleted.
-spec next(table(), Key :: term()) -> (Key2 :: term()) | '$end_of_table'.
next(Table, Key) ->
    try
        cats_nif:next(Table, Key)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, Stack)
    end.

%% @doc Like {@link next/2}, with all objects of the key found, atomically.
-spec next_lookup(table(), Key :: term()) -> {Key2 :: term(), [Object :: tuple()]} | '$end_of_table'.
next_lookup(Table, Key) ->
    try
        cats_nif:next_lookup(Table, Key)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, Stack)
    end.

%% @doc Returns the key before this one in an `ordered_set', or `$end_of_table'. For other types the same as
%% {@link next/2}.
-spec prev(table(), Key :: term()) -> (Key2 :: term()) | '$end_of_table'.
prev(Table, Key) ->
    try
        cats_nif:prev(Table, Key)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, Stack)
    end.

%% @doc Like {@link prev/2}, with all objects of the key found, atomically.
-spec prev_lookup(table(), Key :: term()) -> {Key2 :: term(), [Object :: tuple()]} | '$end_of_table'.
prev_lookup(Table, Key) ->
    try
        cats_nif:prev_lookup(Table, Key)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, Stack)
    end.

%% @doc Gives a named table another name, atomically, and returns it. A table that is not named stays so.
-spec rename(table(), Name) -> Name when Name :: atom().
rename(Table, Name) ->
    try
        cats_nif:rename(Table, Name)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, Stack)
    end.

%% @doc Fixes the table for the calling process, or releases it. Traversals need no fixing here: this only
%% serves programs that look at `safe_fixed' of {@link info/2}, costs nothing while it lasts, and keeps no
%% deleted objects.
-spec safe_fixtable(table(), Fix :: boolean()) -> true.
safe_fixtable(Table, Fix) ->
    try
        cats_nif:safe_fixtable(Table, Fix)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, Stack)
    end.

%% @doc Sets the heir: `{heir, Pid}', `{heir, Pid, HeirData}' or `{heir, none}', or a list of one. Only the
%% owner may.
-spec setopts(table(), Option | [Option]) -> true when
      Option :: {heir, pid()} | {heir, pid(), HeirData :: term()} | {heir, none}.
setopts(Table, Options) ->
    try
        cats_nif:setopts(Table, Options)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, Stack)
    end.

%% @doc Returns the objects of the table's slot of that number, counted from 0, and `$end_of_table' just behind the
%% last slot. Fails with `badarg' further behind it. What lies in which slot is up to the table; every object is in
%% one. As in `ets', a hash table has 256 slots or more, and an `ordered_set' as many as objects.
-spec slot(table(), non_neg_integer()) -> [Object :: tuple()] | '$end_of_table'.
slot(Table, Number) ->
    try
        cats_nif:slot(Table, Number)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, Stack)
    end.

%% @doc Lists all objects, those of an `ordered_set' in order. Runs in slices, while other processes go on.
-spec tab2list(table()) -> [Object :: tuple()].
tab2list(Table) ->
    Scan = fun(Cursor, Objects) ->
                   try
                       cats_nif:scan(Cursor, Objects)
                   catch
                       error:Cause:Stack ->
                           cats_failure:handle(Cause, {scan, [Cursor, Objects]}, tab2list, [Table], Stack)
                   end
           end,
    cats_slices:finish(Scan(Table, []), Scan).

%% @doc Deletes all objects with the key and returns them, atomically.
-spec take(table(), Key :: term()) -> [Object :: tuple()].
take(Table, Key) ->
    try
        cats_nif:take(Table, Key)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, Stack)
    end.

%% @doc Adds to one or several counters of the object with the key, atomically, and returns their new values.
%% An integer stands for an addition to the element after the key. With a threshold, a counter that gets
%% beyond it is set to `SetValue'. Of a list each operation works on the result of those before it; if one
%% fails, none takes effect. For `set' and `ordered_set'. Fails with `badarg' if there is no such key, a
%% counter is no integer, or a position is beyond the object or that of the key.
-spec update_counter(table(), Key :: term(), UpdateOp) -> Result | [Result] when
      UpdateOp :: update_op() | [update_op()] | (Increment :: integer()),
      Result :: integer().
update_counter(Table, Key, UpdateOp) ->
    try
        cats_nif:update_counter(Table, Key, UpdateOp)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, Stack)
    end.

%% @doc Like {@link update_counter/3}; if there is no such key, `Default' with this key in its place is
%% inserted first, in the same atomic step.
-spec update_counter(table(), Key :: term(), UpdateOp, Default :: tuple()) -> Result | [Result] when
      UpdateOp :: update_op() | [update_op()] | (Increment :: integer()),
      Result :: integer().
update_counter(Table, Key, UpdateOp, Default) ->
    try
        cats_nif:update_counter(Table, Key, UpdateOp, Default)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, Stack)
    end.

%% @doc Replaces one or several elements of the object with the key, atomically. Returns `false' if there is
%% no such key. For `set' and `ordered_set'. Fails with `badarg' if a position is beyond the object or that of
%% the key.
-spec update_element(table(), Key :: term(), ElementSpec | [ElementSpec]) -> boolean() when
      ElementSpec :: {Pos :: pos_integer(), Value :: term()}.
update_element(Table, Key, ElementSpec) ->
    try
        cats_nif:update_element(Table, Key, ElementSpec)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, Stack)
    end.

%% @doc Like {@link update_element/3}; if there is no such key, `Default' with this key in its place is
%% inserted first, in the same atomic step.
-spec update_element(table(), Key :: term(), ElementSpec | [ElementSpec], Default :: tuple()) -> boolean() when
      ElementSpec :: {Pos :: pos_integer(), Value :: term()}.
update_element(Table, Key, ElementSpec, Default) ->
    try
        cats_nif:update_element(Table, Key, ElementSpec, Default)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, Stack)
    end.

%% @doc Returns the identifier of the table with the name, or `undefined'. Calls with the identifier save
%% looking up the name.
-spec whereis(Name :: atom()) -> tid() | undefined.
whereis(Name) ->
    try
        cats_nif:whereis(Name)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, Stack)
    end.

%%% Match patterns and match specifications

%% @doc Returns for each object that matches the pattern the list of what its variables stand for, in the order
%% of their numbers (`$1', `$2' ...).
%%
%% In this function and those below, a pattern or specification whose patterns have no variables in the key
%% costs a lookup for each key. In an `ordered_set' a key that begins like a term (a tuple or list whose
%% first elements have no variables) costs its range of keys only, and so do guards that compare the key to
%% constants. Everything else goes over the whole table, in slices, while other processes go on. Objects that
%% do not match are not copied.
-spec match(table(), match_pattern()) -> [[term()]].
match(Table, Pattern) ->
    cats_select:all(match, Table, Pattern).

%% @doc Like {@link match/2}, but returns the matches in chunks of `Limit', each with a continuation from
%% which {@link match/1} goes on, or `$end_of_table'. A continuation may be used several times. It is a term
%% without a meaning of its own; it does not survive its node, see {@link repair_continuation/2}.
-spec match(table(), match_pattern(), Limit :: pos_integer()) -> {[[term()]], continuation()} | '$end_of_table'.
match(Table, Pattern, Limit) ->
    cats_select:chunk(match, Table, Pattern, Limit).

%% @doc Returns the next chunk.
-spec match(continuation()) -> {[[term()]], continuation()} | '$end_of_table'.
match(Continuation) ->
    cats_select:next_chunk(match, Continuation).

%% @doc Deletes all objects that match the pattern, each one atomically; with the pattern `_' all objects at once.
-spec match_delete(table(), match_pattern()) -> true.
match_delete(Table, '_') ->
    try
        cats_nif:delete_all_objects(Table)
    catch
        error:Cause:Stack ->
            cats_failure:handle(Cause, {delete_all_objects, [Table]}, match_delete, [Table, '_'], Stack)
    end;
match_delete(Table, Pattern) ->
    _ = cats_select:all(match_delete, Table, Pattern),
    true.

%% @doc Returns the objects that match the pattern, those of an `ordered_set' in order.
-spec match_object(table(), match_pattern()) -> [Object :: tuple()].
match_object(Table, Pattern) ->
    cats_select:all(match_object, Table, Pattern).

%% @doc Like {@link match_object/2}, in chunks as {@link match/3} has them.
-spec match_object(table(), match_pattern(), Limit :: pos_integer()) ->
          {[Object :: tuple()], continuation()} | '$end_of_table'.
match_object(Table, Pattern, Limit) ->
    cats_select:chunk(match_object, Table, Pattern, Limit).

%% @doc Returns the next chunk.
-spec match_object(continuation()) -> {[Object :: tuple()], continuation()} | '$end_of_table'.
match_object(Continuation) ->
    cats_select:next_chunk(match_object, Continuation).

%% @doc Returns what the specification makes of each object that it matches, in the order of the keys for an
%% `ordered_set'.
-spec select(table(), match_spec()) -> [term()].
select(Table, MatchSpec) ->
    cats_select:all(select, Table, MatchSpec).

%% @doc Like {@link select/2}, in chunks as {@link match/3} has them.
-spec select(table(), match_spec(), Limit :: pos_integer()) -> {[term()], continuation()} | '$end_of_table'.
select(Table, MatchSpec, Limit) ->
    cats_select:chunk(select, Table, MatchSpec, Limit).

%% @doc Returns the next chunk.
-spec select(continuation()) -> {[term()], continuation()} | '$end_of_table'.
select(Continuation) ->
    cats_select:next_chunk(select, Continuation).

%% @doc Like {@link select/2}, from the last key of an `ordered_set' to its first.
-spec select_reverse(table(), match_spec()) -> [term()].
select_reverse(Table, MatchSpec) ->
    cats_select:all(select_reverse, Table, MatchSpec).

%% @doc Like {@link select/3}, from the last key of an `ordered_set' to its first.
-spec select_reverse(table(), match_spec(), Limit :: pos_integer()) -> {[term()], continuation()} | '$end_of_table'.
select_reverse(Table, MatchSpec, Limit) ->
    cats_select:chunk(select_reverse, Table, MatchSpec, Limit).

%% @doc Returns the next chunk.
-spec select_reverse(continuation()) -> {[term()], continuation()} | '$end_of_table'.
select_reverse(Continuation) ->
    cats_select:next_chunk(select_reverse, Continuation).

%% @doc Counts the objects for which the specification returns `true'.
-spec select_count(table(), match_spec()) -> non_neg_integer().
select_count(Table, MatchSpec) ->
    cats_select:all(select_count, Table, MatchSpec).

%% @doc Deletes the objects for which the specification returns `true', each one atomically, and returns how
%% many they were.
-spec select_delete(table(), match_spec()) -> non_neg_integer().
select_delete(Table, MatchSpec) ->
    cats_select:all(select_delete, Table, MatchSpec).

%% @doc Replaces each object that matches by what the specification returns for it, each one atomically, and
%% returns how many they were. Fails with `badarg' if it cannot tell beforehand that every key stays the
%% same. Not for type `bag'.
-spec select_replace(table(), match_spec()) -> non_neg_integer().
select_replace(Table, MatchSpec) ->
    cats_select:all(select_replace, Table, MatchSpec).

%% @doc Returns a continuation from which its function goes on where `Continuation' stands, also if that has
%% become useless because all that was left of it for some time was its external form (in a file, or a
%% message to another node and back). `MatchSpec' is the specification of the call that it comes from. Use
%% this before going on from a continuation that may have left its node; one that has not is returned as it
%% is.
-spec repair_continuation(continuation(), match_spec()) -> continuation().
repair_continuation(Continuation, MatchSpec) ->
    cats_select:repair(Continuation, MatchSpec).

%% @doc Tells whether the term is a specification that {@link match_spec_compile/1} has compiled.
-spec is_compiled_ms(term()) -> boolean().
is_compiled_ms(Term) ->
    ets:is_compiled_ms(Term).

%% @doc Compiles a specification for {@link match_spec_run/2}. The functions of tables need no such preparation.
-spec match_spec_compile(match_spec()) -> compiled_match_spec().
match_spec_compile(MatchSpec) ->
    try
        ets:match_spec_compile(MatchSpec)
    catch
        error:Reason -> cats_failure:fail(Reason, none, match_spec_compile, [MatchSpec])
    end.

%% @doc Returns what a compiled specification makes of each term of the list that it matches, as {@link
%% select/2} does with the objects of a table.
-spec match_spec_run([term()], compiled_match_spec()) -> [term()].
match_spec_run(Terms, CompiledMatchSpec) ->
    try
        ets:match_spec_run(Terms, CompiledMatchSpec)
    catch
        error:Reason -> cats_failure:fail(Reason, none, match_spec_run, [Terms, CompiledMatchSpec])
    end.

%% @doc Returns what the specification makes of an object, or what is wrong with the specification.
-spec test_ms(Object :: tuple(), match_spec()) -> {ok, Result :: term()} | {error, [{warning | error, string()}]}.
test_ms(Object, MatchSpec) ->
    ets:test_ms(Object, MatchSpec).

%% @doc Turns a literal fun into a match specification: in the shell as this call; in modules with
%% `-include_lib("cats/include/ms_transform.hrl")' when they are compiled. What the fun may be is said in
%% {@link ms_transform}.
-spec fun2ms(fun()) -> match_spec().
fun2ms(Fun) when is_function(Fun) ->
    try
        ets:fun2ms(Fun)
    catch
        exit:{badarg, {ets, fun2ms, Text}} -> exit({badarg, {?MODULE, fun2ms, Text}})
    end.

%%% Whole tables

%% @doc Calls `Function(Object, Acc)' for each object, with what the last call returned, and returns what the
%% last one returns; of an `ordered_set' from the first key to the last. What the function itself inserts and
%% deletes behind the object it is at has its effect.
-spec foldl(fun((Object :: tuple(), AccIn) -> AccOut), Acc0, table()) -> Acc1 when
      Acc0 :: term(), Acc1 :: term(), AccIn :: term(), AccOut :: term().
foldl(Function, Acc0, Table) ->
    Tid = tid(Table),
    First = try
                cats_nif:first_lookup(Tid)
            catch
                error:Cause:Stack ->
                    cats_failure:handle(Cause, {first_lookup, [Tid]}, foldl, [Function, Acc0, Table], Stack)
            end,
    case First of
        '$end_of_table' -> Acc0;
        {_Key, Objects} -> foldl_over(Objects, Function, Acc0, Tid)
    end.

foldl_over([Object], Function, Acc, Tid) ->
    foldl_from(Object, Acc, 0, Function, Tid);
foldl_over([Object | _] = Objects, Function, Acc, Tid) ->
    foldl_behind(Object, Function, lists:foldl(Function, Acc, Objects), Tid).

%% The object is in the place with the number, if that is not 0. No `try', as its frame takes time.
foldl_from(Object, Acc0, Number, Function, Tid) ->
    Acc = Function(Object, Acc0),
    case cats_nif:next_numbered(Tid, Object, Number) of
        Next when is_tuple(Next) -> foldl_from(Next, Acc, Number + 1, Function, Tid);
        [Found | Next] when is_integer(Found) -> foldl_from(Next, Acc, Found, Function, Tid);
        [_ | _] = Objects -> foldl_over(Objects, Function, Acc, Tid);
        '$end_of_table' -> Acc;
        _Cause -> foldl_behind(Object, Function, Acc, Tid)
    end.

foldl_behind(Object, Function, Acc, Tid) ->
    Next = try
               cats_nif:next_objects(Tid, Object)
           catch
               error:Cause:Stack ->
                   cats_failure:handle(Cause, {next_objects, [Tid, Object]}, foldl, [Function, Acc, Tid], Stack)
           end,
    case Next of
        '$end_of_table' -> Acc;
        _ when is_tuple(Next) -> foldl_from(Next, Acc, 0, Function, Tid);
        _ -> foldl_over(Next, Function, Acc, Tid)
    end.

%% @doc Like {@link foldl/3}; of an `ordered_set' from the last key to the first.
-spec foldr(fun((Object :: tuple(), AccIn) -> AccOut), Acc0, table()) -> Acc1 when
      Acc0 :: term(), Acc1 :: term(), AccIn :: term(), AccOut :: term().
foldr(Function, Acc0, Table) ->
    Tid = tid(Table),
    Last = try
               cats_nif:last_lookup(Tid)
           catch
               error:Cause:Stack ->
                   cats_failure:handle(Cause, {last_lookup, [Tid]}, foldr, [Function, Acc0, Table], Stack)
           end,
    case Last of
        '$end_of_table' -> Acc0;
        {_Key, Objects} -> foldr_over(Objects, Function, Acc0, Tid)
    end.

%% Not one loop for both directions, as a step by a fun would take longer.
foldr_over([Object], Function, Acc, Tid) ->
    foldr_from(Object, Acc, 0, Function, Tid);
foldr_over([Object | _] = Objects, Function, Acc, Tid) ->
    foldr_behind(Object, Function, lists:foldr(Function, Acc, Objects), Tid).

%% The object is in the place with the number, if that is not 0. No `try', as its frame takes time.
foldr_from(Object, Acc0, Number, Function, Tid) ->
    Acc = Function(Object, Acc0),
    case cats_nif:prev_numbered(Tid, Object, Number) of
        Next when is_tuple(Next) -> foldr_from(Next, Acc, Number + 1, Function, Tid);
        [Found | Next] when is_integer(Found) -> foldr_from(Next, Acc, Found, Function, Tid);
        [_ | _] = Objects -> foldr_over(Objects, Function, Acc, Tid);
        '$end_of_table' -> Acc;
        _Cause -> foldr_behind(Object, Function, Acc, Tid)
    end.

foldr_behind(Object, Function, Acc, Tid) ->
    Next = try
               cats_nif:prev_objects(Tid, Object)
           catch
               error:Cause:Stack ->
                   cats_failure:handle(Cause, {prev_objects, [Tid, Object]}, foldr, [Function, Acc, Tid], Stack)
           end,
    case Next of
        '$end_of_table' -> Acc;
        _ when is_tuple(Next) -> foldr_from(Next, Acc, 0, Function, Tid);
        _ -> foldr_over(Next, Function, Acc, Tid)
    end.

%% A named table's identifier, so that the table stays the same one; what is no table is left to fail.
tid(Name) when is_atom(Name) ->
    case ?MODULE:whereis(Name) of
        undefined -> Name;
        Tid -> Tid
    end;
tid(Tid) ->
    Tid.

%% @doc Replaces all objects by those that a function gives: called with `read' it returns `{Objects,
%% NextFunction}' or `end_of_input'. Called with `close' it is told that objects could not be inserted.
-spec init_table(table(), InitFun) -> true when
      InitFun :: fun((read | close) -> end_of_input | {[Object :: tuple()], InitFun} | term()).
init_table(Table, InitFun) ->
    Tid = tid(Table),
    true = try
               cats_nif:delete_all_objects(Tid)
           catch
               error:Cause:Stack ->
                   cats_failure:handle(Cause, {delete_all_objects, [Tid]}, init_table, [Table, InitFun], Stack)
           end,
    init_table_on(Tid, InitFun(read)).

init_table_on(_Tid, end_of_input) ->
    true;
init_table_on(Tid, {Objects, InitFun}) when is_list(Objects), is_function(InitFun) ->
    try
        lists:foreach(fun(Object) -> insert(Tid, Object) end, Objects)
    catch
        error:Reason:Stack ->
            _ = (catch InitFun(close)),
            exit({Reason, Stack})
    end,
    init_table_on(Tid, InitFun(read));
init_table_on(_Tid, Error) ->
    exit(Error).

%% @doc Inserts all objects of an open Dets table. Objects that are there already stay, unless they have the
%% key of one that comes.
-spec from_dets(table(), dets:tab_name()) -> true.
from_dets(Table, DetsTable) ->
    cats_convert:from_dets(Table, DetsTable).

%% @doc Replaces all objects of an open Dets table by those of this one.
-spec to_dets(table(), DetsTable) -> DetsTable when DetsTable :: dets:tab_name().
to_dets(Table, DetsTable) ->
    cats_convert:to_dets(Table, DetsTable).

%% @doc Inserts all objects of a table of `ets', which keeps them. Objects that are there already stay,
%% unless they have the key of one that comes. Each object is copied as it is when the copying comes to it,
%% while other processes may go on to use both tables. Not in `ets'.
-spec from_ets(table(), EtsTable :: ets:table()) -> true.
from_ets(Table, EtsTable) ->
    cats_convert:from_ets(Table, EtsTable).

%% @doc Inserts all objects into a table of `ets', as {@link from_ets/2} does in the other direction. Not in `ets'.
-spec to_ets(table(), EtsTable :: ets:table()) -> true.
to_ets(Table, EtsTable) ->
    cats_convert:to_ets(Table, EtsTable).

%% @doc The same as {@link tab2file/3} without options.
-spec tab2file(table(), file:name()) -> ok | {error, Reason :: term()}.
tab2file(Table, File) ->
    cats_file:write(Table, File, []).

%% @doc Writes the table to a file that `ets' reads as well. `extended_info' has the number of objects or a
%% checksum of all of them written along, for {@link file2tab/2} to see whether the file is complete; `sync'
%% has the file flushed to the disk.
-spec tab2file(table(), file:name(), [Option]) -> ok | {error, Reason :: term()} when
      Option :: {extended_info, [object_count | md5sum]} | {sync, boolean()}.
tab2file(Table, File, Options) ->
    cats_file:write(Table, File, Options).

%% @doc The same as {@link file2tab/2} without options.
-spec file2tab(file:name()) -> {ok, table()} | {error, Reason :: term()}.
file2tab(File) ->
    cats_file:read(File, []).

%% @doc Creates a table from a file that {@link tab2file/3} or its like in `ets' wrote. With `verify' a
%% damaged file is an error, by the extended information if it has any, or else by the size of the table when
%% it was written.
-spec file2tab(file:name(), [Option]) -> {ok, table()} | {error, Reason :: term()} when
      Option :: {verify, boolean()}.
file2tab(File, Options) ->
    cats_file:read(File, Options).

%% @doc Tells what table a file holds, without reading all of it.
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

%% @doc Makes a query handle for {@link qlc}. Keys that a query compares to constants are looked up.
%% Otherwise the table is traversed: with `{traverse, select}', the default, by {@link select/3} with a
%% specification made from the query, so many objects at once as `n_objects' says (100 by default); with
%% `{select, MatchSpec}' by that specification; with `first_next' or `last_prev' key by key.
-spec table(table(), Option | [Option]) -> qlc:query_handle() when
      Option :: {n_objects, default | pos_integer()}
              | {traverse, first_next | last_prev | select | {select, match_spec()}}
              | term().
table(Table, Options) ->
    cats_qlc:table(Table, Options).

%% @doc Shows the objects of the table on the terminal, page by page.
-spec i(table()) -> ok.
i(Table) ->
    cats_browser:run(Table, 40, 80).

%% @doc Like {@link i/1}, on pages of so many lines.
-spec i(table(), Height :: pos_integer()) -> ok.
i(Table, Height) ->
    cats_browser:run(Table, Height, 80).

%% @doc Like {@link i/2}, with lines of at most so many characters.
-spec i(table(), Height :: pos_integer(), Width :: pos_integer()) -> ok.
i(Table, Height, Width) ->
    cats_browser:run(Table, Height, Width).
