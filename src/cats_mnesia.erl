%% @doc The tables of a stock Mnesia can be tables of `cats'.
%%
%% This module is a backend of Mnesia. A backend adds a storage type to `ram_copies' and the others:
%%
%% ```
%% {atomic, ok} = mnesia:add_backend_type(cats_copies, cats_mnesia).
%% {atomic, ok} = mnesia:create_table(person, [{cats_copies, [node()]}, {attributes, [name, age]}]).
%% '''
%%
%% A `cats_copies' table lives in memory. A node that starts loads it from another node, or it is empty. The table
%% property `{storage_properties, [{cats, Options}]}' passes options to {@link cats:new/2}.
%%
%% Mnesia treats tables of a backend worse than its own:
%%
%% <ul>
%% <li>It writes every transaction on them to its log, if it has a directory.</li>
%% <li>`dump_tables/1' does not save them, and a fallback does not restore them. `backup/1' and `restore/2' work.
%% They need no dump of these tables.</li>
%% <li>`mnesia_frag' makes no fragments of them.</li>
%% <li>`mnesia:ets/1' does not find them.</li>
%% <li>A node that has one cannot change its schema to `ram_copies'.</li>
%% <li>`restore/2' with `recreate_tables' leaves an `ets' table of the same name behind. A later change of the storage
%% type then ends Mnesia. Use `clear_tables', which is the default.</li>
%% <li>Each access goes through more of Mnesia's code.</li>
%% </ul>
%%
%% A Mnesia that {@link cats_recompile} made has none of these limits.
-module(cats_mnesia).
%% It is a mnesia_backend_type, too. The compiler would warn of that behaviour where Mnesia is not installed.
-behaviour(gen_server).

-export([own_tables/0]).
-export([init_backend/0, add_aliases/1, remove_aliases/1, check_definition/4, semantics/2,
         real_suffixes/0, tmp_suffixes/0]).
-export([create_table/3, load_table/4, close_table/2, sync_close_table/2, delete_table/2]).
-export([sender_init/4, receiver_first_message/4, receive_data/5, receive_done/4]).
-export([index_is_consistent/3, is_index_consistent/2]).
-export([validate_key/6, validate_record/6]).
-export([insert/3, lookup/3, delete/3, match_delete/3, update_counter/4, first/2, last/2, next/3, prev/3,
         slot/3, fixtable/3, info/3]).
-export([select/1, select/3, select/4, select_reverse/3, select_reverse/4, repair_continuation/2]).
-export([start_link/0, init/1, handle_call/3, handle_cast/2]).

%% A table has its own name. Those of an index or a checkpoint have none. The table `cats_mnesia' has the identifiers
%% of these.
-type tag() :: atom() | {atom(), index | retainer, term()}.

%% The first version of Mnesia that saves a table of a backend when that becomes `disc_copies', and what to say of
%% others.
-define(SAVES, [4, 23, 3]).
-define(LOST, "Mnesia before 4.23.3 loses the contents at its next start, and older ones run on ~0p: change the table "
        "to ram_copies first, and then to disc_copies").

%% The bytes that a message to a loading node has, as in Mnesia.
-define(TRANSFERRED, 64000).

%% @doc Mnesia's own tables that are small and much used, as exceptions for {@link cats_recompile:apps/3}. With them
%% these tables stay in `ets': what Mnesia knows of itself, its locks, and the table that each transaction has for what
%% it reads and writes.
%%
%% ```
%% {ok, _, _} = cats_recompile:apps([mnesia], "converted", [{except, cats_mnesia:own_tables()}]).
%% '''
-spec own_tables() -> [cats_recompile:exception()].
own_tables() ->
    [{table, Table}
     || Table <- [mnesia_gvar, mnesia_stats, mnesia_held_locks, mnesia_tid_locks, mnesia_sticky_locks,
                  mnesia_lock_queue, mnesia_trans_store]]
        %% The loop of the process that has the locks reads tables whose names it is told.
        ++ [{mnesia_locker, loop}, {call, {mnesia_lib, db_match_object, 3}, match_object, [2, 3]}]
        %% The table of a transaction is in a variable of this name, or in another one in these functions.
        ++ [{table, Module, 'Store'} || Module <- [mnesia, mnesia_locker, mnesia_schema, mnesia_tm]]
        ++ [{mnesia, Function} || Function <- [add_previous, find_ops]]
        ++ [{mnesia_tm, Function}
            || Function <- [doit_loop, del_coord_store, erase_ets_tabs, copy_ets, do_copy_ets, insert_objs]].

%%------------------------------------------------------------------------------------------------------------
%% The backend

%% @private
-spec init_backend() -> ok.
init_backend() ->
    %% The owner lives and dies with Mnesia, and so do the tables.
    case mnesia_ext_sup:start_proc(?MODULE, ?MODULE, start_link, []) of
        {ok, _Owner} -> ok;
        {error, {already_started, _Owner}} -> ok
    end.

%% @private
-spec add_aliases([atom()]) -> ok.
add_aliases(_Aliases) -> ok.

%% @private
-spec remove_aliases([atom()]) -> ok.
remove_aliases(_Aliases) -> ok.

%% @private
-spec check_definition(atom(), atom(), [node()], [{atom(), term()}]) -> ok | {error, {combine_error, string()}}.
check_definition(Alias, Table, _Nodes, Properties) ->
    Before = try mnesia:table_info(Table, Alias) catch exit:_ -> [] end,
    case [Node || Node <- proplists:get_value(disc_copies, Properties, []),
                  lists:member(Node, Before), loses_contents(Node)] of
        [] -> ok;
        Losing -> {error, {combine_error, lists:flatten(io_lib:format(?LOST, [Losing]))}}
    end.

%% Whether the Mnesia of a node leaves a table of a backend without a file when it becomes `disc_copies'.
loses_contents(Node) ->
    {ok, Version} = erpc:call(Node, application, get_key, [mnesia, vsn]),
    [list_to_integer(Number) || Number <- string:lexemes(Version, ".")] < ?SAVES.

%% @private
-spec semantics(atom(), atom()) -> ram_copies | [set | ordered_set | bag | ordered] | undefined.
semantics(_Alias, storage) -> ram_copies;
semantics(_Alias, types) -> [set, ordered_set, bag];
semantics(_Alias, index_types) -> [ordered, bag];
semantics(_Alias, _Item) -> undefined.

%% @private
-spec real_suffixes() -> [].
real_suffixes() -> [].

%% @private
-spec tmp_suffixes() -> [].
tmp_suffixes() -> [].

%%------------------------------------------------------------------------------------------------------------
%% Whole tables

%% @private
-spec create_table(atom(), tag(), [{atom(), term()}]) -> ok | {error, term()}.
create_table(_Alias, Tag, Properties) ->
    %% Where another node has added the backend, Mnesia has not started it yet.
    ok = init_backend(),
    gen_server:call(?MODULE, {create, Tag, options(Tag, Properties)}, infinity).

options({_Table, index, {_Position, ordered}}, _Properties) -> [ordered_set, public];
options({_Table, index, {_Position, bag}}, _Properties) -> [bag, public];
options({_Table, retainer, _Checkpoint}, _Properties) -> [set, public, {keypos, 2}];
options(_Table, Properties) ->
    Type = proplists:get_value(type, Properties, set),
    [Type, public, named_table, {keypos, 2}
     | proplists:get_value(cats, proplists:get_value(storage_properties, Properties, []), [])].

%% @private
-spec load_table(atom(), tag(), term(), [{atom(), term()}]) -> ok | {error, term()}.
load_table(Alias, Tag, _Reason, Properties) ->
    create_table(Alias, Tag, Properties).

%% @private
-spec close_table(atom(), tag()) -> ok.
close_table(_Alias, _Tag) -> ok.

%% @private
-spec sync_close_table(atom(), tag()) -> ok.
sync_close_table(_Alias, _Tag) -> ok.

%% @private
-spec delete_table(atom(), tag()) -> ok.
delete_table(_Alias, Tag) ->
    %% Mnesia also deletes tables before it starts its backends. There is none then.
    case whereis(?MODULE) of
        undefined -> ok;
        _Owner -> gen_server:call(?MODULE, {delete, Tag}, infinity)
    end.

%% @private
-spec sender_init(atom(), tag(), term(), pid()) -> {standard, fun(() -> term()), fun((term()) -> term())}.
sender_init(_Alias, Tag, _RemoteStorage, _Receiver) ->
    Table = table(Tag),
    Bytes = cats:info(Table, memory) * erlang:system_info(wordsize) div max(1, cats:info(Table, size)),
    Objects = ?TRANSFERRED div max(1, Bytes) + 1,
    {standard, fun() -> cats:select(Table, [{'_', [], ['$_']}], Objects) end, fun cats:select/1}.

%% @private
-spec receiver_first_message(pid(), {first, Size}, atom(), tag()) -> {Size, []}.
receiver_first_message(_Sender, {first, Size}, _Alias, _Tag) -> {Size, []}.

%% @private
-spec receive_data([tuple()], atom(), tag(), pid(), State) -> {more, State}.
receive_data(Objects, _Alias, Tag, _Sender, State) ->
    true = cats:insert(table(Tag), Objects),
    {more, State}.

%% @private
-spec receive_done(atom(), tag(), pid(), term()) -> ok.
receive_done(_Alias, _Tag, _Sender, _State) -> ok.

%% Mnesia builds the index anew when it loads the table.

%% @private
-spec index_is_consistent(atom(), tag(), boolean()) -> ok.
index_is_consistent(_Alias, _Tag, _Consistent) -> ok.

%% @private
-spec is_index_consistent(atom(), tag()) -> false.
is_index_consistent(_Alias, _Tag) -> false.

%%------------------------------------------------------------------------------------------------------------
%% Objects

%% @private
-spec validate_key(atom(), atom(), Name, Arity, Type, term()) -> {Name, Arity, Type}.
validate_key(_Alias, _Table, Name, Arity, Type, _Key) -> {Name, Arity, Type}.

%% @private
-spec validate_record(atom(), atom(), Name, Arity, Type, tuple()) -> {Name, Arity, Type}.
validate_record(_Alias, _Table, Name, Arity, Type, _Record) -> {Name, Arity, Type}.

%% @private
-spec insert(atom(), tag(), tuple()) -> ok.
insert(_Alias, Tag, Object) ->
    true = cats:insert(table(Tag), Object),
    ok.

%% @private
-spec lookup(atom(), tag(), term()) -> [tuple()].
lookup(_Alias, Tag, Key) -> cats:lookup(table(Tag), Key).

%% @private
-spec delete(atom(), tag(), term()) -> true.
delete(_Alias, Tag, Key) -> cats:delete(table(Tag), Key).

%% @private
-spec match_delete(atom(), tag(), ets:match_pattern()) -> true.
match_delete(_Alias, Tag, Pattern) -> cats:match_delete(table(Tag), Pattern).

%% @private
-spec update_counter(atom(), tag(), term(), integer()) -> integer().
update_counter(_Alias, Tag, Key, Increment) -> cats:update_counter(table(Tag), Key, Increment).

%% @private
-spec first(atom(), tag()) -> term().
first(_Alias, Tag) -> cats:first(table(Tag)).

%% @private
-spec last(atom(), tag()) -> term().
last(_Alias, Tag) -> cats:last(table(Tag)).

%% @private
-spec next(atom(), tag(), term()) -> term().
next(_Alias, Tag, Key) -> cats:next(table(Tag), Key).

%% @private
-spec prev(atom(), tag(), term()) -> term().
prev(_Alias, Tag, Key) -> cats:prev(table(Tag), Key).

%% @private
-spec slot(atom(), tag(), non_neg_integer()) -> [tuple()] | '$end_of_table'.
slot(_Alias, Tag, Place) -> cats:slot(table(Tag), Place).

%% @private
-spec fixtable(atom(), tag(), boolean()) -> true.
fixtable(_Alias, Tag, Fixed) -> cats:safe_fixtable(table(Tag), Fixed).

%% @private
-spec info(atom(), tag(), atom()) -> term().
info(_Alias, Tag, Item) ->
    try cats:info(table(Tag), Item) catch error:_ -> undefined end.

%% @private
-spec select(term()) -> {[term()], term()} | '$end_of_table'.
select(Continuation) -> cats:select(Continuation).

%% @private
-spec select(atom(), tag(), ets:match_spec()) -> [term()].
select(_Alias, {_Table, index, {_Position, bag}} = Tag, Specification) ->
    %% Mnesia merges what it finds by an index of an ordered_set with what the transaction wrote, and takes it to be in
    %% the order of keys.
    lists:sort(cats:select(table(Tag), Specification));
select(_Alias, Tag, Specification) ->
    cats:select(table(Tag), Specification).

%% @private
-spec select(atom(), tag(), ets:match_spec(), pos_integer()) -> {[term()], term()} | '$end_of_table'.
select(_Alias, Tag, Specification, Limit) -> cats:select(table(Tag), Specification, Limit).

%% @private
-spec select_reverse(atom(), tag(), ets:match_spec()) -> [term()].
select_reverse(_Alias, Tag, Specification) -> cats:select_reverse(table(Tag), Specification).

%% @private
-spec select_reverse(atom(), tag(), ets:match_spec(), pos_integer()) -> {[term()], term()} | '$end_of_table'.
select_reverse(_Alias, Tag, Specification, Limit) -> cats:select_reverse(table(Tag), Specification, Limit).

%% @private
-spec repair_continuation(term(), ets:match_spec()) -> term().
repair_continuation(Continuation, Specification) -> cats:repair_continuation(Continuation, Specification).

table(Table) when is_atom(Table) -> Table;
table(Tag) -> cats:lookup_element(?MODULE, Tag, 2).

%%------------------------------------------------------------------------------------------------------------
%% The owner of all tables

%% @private
-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% @private
-spec init([]) -> {ok, []}.
init([]) ->
    ?MODULE = cats:new(?MODULE, [named_table, public]),
    {ok, []}.

%% @private
-spec handle_call({create, tag(), [term()]} | {delete, tag()}, gen_server:from(), []) ->
          {reply, ok | {error, term()}, []}.
handle_call({create, Tag, Options}, _From, []) ->
    {reply, create(Tag, Options), []};
handle_call({delete, Tag}, _From, []) ->
    case owned(Tag) of
        {ok, Table} ->
            true = cats:delete(Table),
            true = cats:delete(?MODULE, Tag);
        none ->
            true
    end,
    {reply, ok, []}.

%% @private
-spec handle_cast(term(), []) -> {noreply, []}.
handle_cast(_Message, []) -> {noreply, []}.

create(Tag, Options) ->
    case owned(Tag) of
        {ok, _Table} -> ok;
        none ->
            Name = case Tag of
                       {Of, Kind, _} when is_atom(Of) -> Kind;
                       _ -> Tag
                   end,
            try cats:new(Name, Options) of
                Table ->
                    true = cats:insert(?MODULE, {Tag, Table}),
                    ok
            catch
                error:Reason -> {error, {Reason, {cats, new, [Name, Options]}}}
            end
    end.

owned(Tag) ->
    case cats:lookup(?MODULE, Tag) of
        [{_, Table}] -> {ok, Table};
        [] -> none
    end.
