%% @doc Shared tables of Erlang terms with the interface of {@link ets}, held by a native library.
%%
%% Every function that `ets' has under the same name and arity takes the same arguments, returns the same
%% results and raises the same errors, as of OTP 29, on every OTP release from 25 on. What differs is said at
%% the function. Not in `ets' are {@link lookup_elements/3}, {@link memory/0} and {@link engines/0}, and the
%% option and the item `engine' of {@link new/2} and {@link info/2}.
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
         lookup/2, lookup_element/3, lookup_element/4, lookup_elements/3, member/2, memory/0, new/2, next/2,
         next_lookup/2, prev/2, prev_lookup/2, rename/2, safe_fixtable/2, setopts/2, slot/2, tab2list/1,
         take/2, update_counter/3, update_counter/4, update_element/3, update_element/4, whereis/1]).

-export_type([engine/0, info_item/0, option/0, tab/0, table/0, table_access/0, table_type/0, tid/0, update_op/0]).

-type table() :: atom() | tid().
%% A table: its identifier, or its name if it is a named table.
-opaque tid() :: reference().
%% A table identifier, as {@link new/2} returns it.
-type tab() :: table().
%% The same as {@link table()}, for programs that use the older name.
-type table_access() :: public | protected | private.
-type table_type() :: set | ordered_set | bag | duplicate_bag.
-type engine() :: hash | ca.
%% A structure that holds tables: `hash', linear hashing over cache-line buckets, for `set', `bag' and
%% `duplicate_bag'; `ca', a contention adapting search tree, for `ordered_set'.
-type option() :: table_type() | table_access() | named_table | {keypos, pos_integer()}
                | {heir, pid()} | {heir, pid(), HeirData :: term()} | {heir, none}
                | {write_concurrency, boolean() | auto} | {read_concurrency, boolean()}
                | {decentralized_counters, boolean()} | compressed | {engine, engine()}.
-type info_item() :: base_nodes | binary | compressed | decentralized_counters | engine | fixed | heir | id
                   | keypos | memory | name | named_table | node | owner | protection | read_concurrency
                   | safe_fixed | safe_fixed_monotonic_time | size | stats | type | write_concurrency.
-type update_op() :: {Pos :: pos_integer(), Increment :: integer()}
                   | {Pos :: pos_integer(), Increment :: integer(), Threshold :: integer(), SetValue :: integer()}.

%% @doc Lists all tables of this node, named ones by their name. Cost: `O(number of tables)'.
-spec all() -> [table()].
all() ->
    try
        cats_nif:all()
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, all, [], Stack)
    end.

%% @doc Deletes a table. It is gone, and its name free, when the call returns, in `O(1)'; its memory is given
%% back in the background, never by the caller.
-spec delete(table()) -> true.
delete(Table) ->
    try
        cats_nif:delete(Table)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, delete, [Table], Stack)
    end.

%% @doc Deletes all objects with the key, if there are any.
-spec delete(table(), Key :: term()) -> true.
delete(Table, Key) ->
    try
        cats_nif:delete(Table, Key)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, delete, [Table, Key], Stack)
    end.

%% @doc Deletes all objects, atomically and in `O(1)': their memory is given back in the background.
-spec delete_all_objects(table()) -> true.
delete_all_objects(Table) ->
    try
        cats_nif:delete_all_objects(Table)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, delete_all_objects, [Table], Stack)
    end.

%% @doc Deletes exactly this object, leaving others with the same key; in a `duplicate_bag' every instance of
%% it.
-spec delete_object(table(), Object :: tuple()) -> true.
delete_object(Table, Object) ->
    try
        cats_nif:delete_object(Table, Object)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, delete_object, [Table, Object], Stack)
    end.

%% @doc Lists the engines that option `engine' of {@link new/2} names, each with the table types that it
%% serves. The first one of a type is the default for it. Not in `ets'.
-spec engines() -> [#{name := engine(), types := [table_type()]}].
engines() ->
    [#{name => hash, types => [set, bag, duplicate_bag]},
     #{name => ca, types => [ordered_set]}].

%% @doc Returns the first key, in term order for an `ordered_set', or `$end_of_table' if there is none.
-spec first(table()) -> (Key :: term()) | '$end_of_table'.
first(Table) ->
    try
        cats_nif:first(Table)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, first, [Table], Stack)
    end.

%% @doc Like {@link first/1}, with all objects of the key: one step, atomic, where `first' with {@link
%% lookup/2} are two.
-spec first_lookup(table()) -> {Key :: term(), [Object :: tuple()]} | '$end_of_table'.
first_lookup(Table) ->
    try
        cats_nif:first_lookup(Table)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, first_lookup, [Table], Stack)
    end.

%% @doc Makes a process the owner of the table, and sends it ``{'ETS-TRANSFER', Table, FromPid, GiftData}''.
%% Only the owner may do this; the new owner must be alive, on this node, and another process. Does not affect
%% the heir.
-spec give_away(table(), pid(), GiftData :: term()) -> true.
give_away(Table, Pid, GiftData) ->
    try
        cats_nif:give_away(Table, Pid, GiftData)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, give_away, [Table, Pid, GiftData], Stack)
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
%% there is `engine', the {@link engine()} that holds the table, and `base_nodes', the number of parts that engine
%% `ca' has divided the table into under contention, 1 without (`undefined' for other engines). `size' is exact when
%% no process is changing the table, `memory' is in words; both are cheap at any size and under any contention,
%% unlike in `ets'.
-spec info(table(), info_item()) -> term() | undefined.
info(Table, Item) ->
    try
        cats_nif:info(Table, Item)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, info, [Table, Item], Stack)
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
        error:Cause:Stack -> cats_failure:handle(Cause, insert, [Table, Objects], Stack)
    end.

%% @doc Like {@link insert/2}, if none of the keys is in the table; else does nothing and returns `false'.
%% Test and insertion are one atomic step.
-spec insert_new(table(), tuple() | [tuple()]) -> boolean().
insert_new(Table, Objects) ->
    try
        cats_nif:insert_new(Table, Objects)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, insert_new, [Table, Objects], Stack)
    end.

%% @doc Returns the last key in term order of an `ordered_set', or `$end_of_table'. For other types the same
%% as {@link first/1}.
-spec last(table()) -> (Key :: term()) | '$end_of_table'.
last(Table) ->
    try
        cats_nif:last(Table)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, last, [Table], Stack)
    end.

%% @doc Like {@link last/1}, with all objects of the key, atomically.
-spec last_lookup(table()) -> {Key :: term(), [Object :: tuple()]} | '$end_of_table'.
last_lookup(Table) ->
    try
        cats_nif:last_lookup(Table)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, last_lookup, [Table], Stack)
    end.

%% @doc Returns all objects with the key, in a bag in the order of their insertion. Keys match (`=:='), but
%% compare equal (`==') in an `ordered_set'.
-spec lookup(table(), Key :: term()) -> [Object :: tuple()].
lookup(Table, Key) ->
    try
        cats_nif:lookup(Table, Key)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, lookup, [Table, Key], Stack)
    end.

%% @doc Returns the element at a position of the object with the key; in a bag the list of those of all its
%% objects. Copies nothing else. Fails with `badarg' if there is no such key, or an object is too small.
-spec lookup_element(table(), Key :: term(), Pos :: pos_integer()) -> (Element :: term()) | [Element :: term()].
lookup_element(Table, Key, Pos) ->
    try
        cats_nif:lookup_element(Table, Key, Pos)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, lookup_element, [Table, Key, Pos], Stack)
    end.

%% @doc Like {@link lookup_element/3}, but returns `Default' if there is no such key.
-spec lookup_element(table(), Key :: term(), Pos :: pos_integer(), Default :: term()) -> term() | [term()].
lookup_element(Table, Key, Pos, Default) ->
    try
        cats_nif:lookup_element(Table, Key, Pos, Default)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, lookup_element, [Table, Key, Pos, Default], Stack)
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
        error:Cause:Stack -> cats_failure:handle(Cause, lookup_elements, [Table, Key, Positions], Stack)
    end.

%% @doc Tells whether there is an object with the key.
-spec member(table(), Key :: term()) -> boolean().
member(Table, Key) ->
    try
        cats_nif:member(Table, Key)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, member, [Table, Key], Stack)
    end.

%% @doc Returns the number of bytes that all tables hold, which `erlang:memory(ets)' does not count. Not in
%% `ets'.
-spec memory() -> non_neg_integer().
memory() ->
    try
        cats_nif:memory()
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, memory, [], Stack)
    end.

%% @doc Creates a table that the calling process owns, and returns its identifier, or with option `named_table'
%% its name. The table ends with its owner, unless it has an heir. The options are those of `ets'. The ones that
%% tune `ets' for concurrency (`read_concurrency', `write_concurrency', `decentralized_counters') are accepted and
%% reported by {@link info/2}, but not needed: tables adapt. So is `compressed', which does not compress anything
%% yet. Option `{engine, Name}' names the structure to use, see {@link engines/0}.
-spec new(Name :: atom(), [option()]) -> table().
new(Name, Options) ->
    try
        cats_nif:new(Name, Options)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, new, [Name, Options], Stack)
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
        error:Cause:Stack -> cats_failure:handle(Cause, next, [Table, Key], Stack)
    end.

%% @doc Like {@link next/2}, with all objects of the key found, atomically.
-spec next_lookup(table(), Key :: term()) -> {Key2 :: term(), [Object :: tuple()]} | '$end_of_table'.
next_lookup(Table, Key) ->
    try
        cats_nif:next_lookup(Table, Key)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, next_lookup, [Table, Key], Stack)
    end.

%% @doc Returns the key before this one in an `ordered_set', or `$end_of_table'. For other types the same as
%% {@link next/2}.
-spec prev(table(), Key :: term()) -> (Key2 :: term()) | '$end_of_table'.
prev(Table, Key) ->
    try
        cats_nif:prev(Table, Key)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, prev, [Table, Key], Stack)
    end.

%% @doc Like {@link prev/2}, with all objects of the key found, atomically.
-spec prev_lookup(table(), Key :: term()) -> {Key2 :: term(), [Object :: tuple()]} | '$end_of_table'.
prev_lookup(Table, Key) ->
    try
        cats_nif:prev_lookup(Table, Key)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, prev_lookup, [Table, Key], Stack)
    end.

%% @doc Gives a named table another name, atomically, and returns it. A table that is not named stays so.
-spec rename(table(), Name) -> Name when Name :: atom().
rename(Table, Name) ->
    try
        cats_nif:rename(Table, Name)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, rename, [Table, Name], Stack)
    end.

%% @doc Fixes the table for the calling process, or releases it. Traversals need no fixing here: this only
%% serves programs that look at `safe_fixed' of {@link info/2}, costs nothing while it lasts, and keeps no
%% deleted objects.
-spec safe_fixtable(table(), Fix :: boolean()) -> true.
safe_fixtable(Table, Fix) ->
    try
        cats_nif:safe_fixtable(Table, Fix)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, safe_fixtable, [Table, Fix], Stack)
    end.

%% @doc Sets the heir: `{heir, Pid}', `{heir, Pid, HeirData}' or `{heir, none}', or a list of one. Only the
%% owner may.
-spec setopts(table(), Option | [Option]) -> true when
      Option :: {heir, pid()} | {heir, pid(), HeirData :: term()} | {heir, none}.
setopts(Table, Options) ->
    try
        cats_nif:setopts(Table, Options)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, setopts, [Table, Options], Stack)
    end.

%% @doc Returns the objects of the table's slot of that number, counted from 0, and `$end_of_table' behind the
%% last slot. What lies in which slot is up to the table; every object is in one.
-spec slot(table(), non_neg_integer()) -> [Object :: tuple()] | '$end_of_table'.
slot(Table, Number) ->
    try
        cats_nif:slot(Table, Number)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, slot, [Table, Number], Stack)
    end.

%% @doc Lists all objects, those of an `ordered_set' in order. Runs in slices, while other processes go on.
-spec tab2list(table()) -> [Object :: tuple()].
tab2list(Table) ->
    tab2list(Table, Table, []).

tab2list(Table, Cursor, Objects) ->
    Scanned = try
                  cats_nif:scan(Cursor, Objects)
              catch
                  error:Cause:Stack ->
                      cats_failure:handle(Cause, {scan, [Cursor, Objects]}, tab2list, [Table], Stack)
              end,
    case Scanned of
        {MoreObjects, NextCursor} -> tab2list(Table, NextCursor, MoreObjects);
        AllObjects -> AllObjects
    end.

%% @doc Deletes all objects with the key and returns them, atomically.
-spec take(table(), Key :: term()) -> [Object :: tuple()].
take(Table, Key) ->
    try
        cats_nif:take(Table, Key)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, take, [Table, Key], Stack)
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
        error:Cause:Stack -> cats_failure:handle(Cause, update_counter, [Table, Key, UpdateOp], Stack)
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
        error:Cause:Stack -> cats_failure:handle(Cause, update_counter, [Table, Key, UpdateOp, Default], Stack)
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
        error:Cause:Stack -> cats_failure:handle(Cause, update_element, [Table, Key, ElementSpec], Stack)
    end.

%% @doc Like {@link update_element/3}; if there is no such key, `Default' with this key in its place is
%% inserted first, in the same atomic step.
-spec update_element(table(), Key :: term(), ElementSpec | [ElementSpec], Default :: tuple()) -> boolean() when
      ElementSpec :: {Pos :: pos_integer(), Value :: term()}.
update_element(Table, Key, ElementSpec, Default) ->
    try
        cats_nif:update_element(Table, Key, ElementSpec, Default)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, update_element, [Table, Key, ElementSpec, Default], Stack)
    end.

%% @doc Returns the identifier of the table with the name, or `undefined'. Calls with the identifier save
%% looking up the name.
-spec whereis(Name :: atom()) -> tid() | undefined.
whereis(Name) ->
    try
        cats_nif:whereis(Name)
    catch
        error:Cause:Stack -> cats_failure:handle(Cause, whereis, [Name], Stack)
    end.
