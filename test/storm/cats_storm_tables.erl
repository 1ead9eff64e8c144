%% The tables of a storm. Each has a place, which holds another table when that one is gone.
%%
%% | kind | what happens to it |
%% |---|---|
%% | `kept' | All that concerns one key. It is not deleted or emptied, and evicts nothing. Its contents are known. |
%% | `wild' | All the rest: it is deleted, emptied, given away and dies with its owner. Objects expire or are evicted. |
%% | `cache' | A wild table whose objects expire, and may be evicted. |
-module(cats_storm_tables).

-import(cats_storm_values, [uniform/1, chance/1, one_of/1]).

-export([start/0, start_round/0, new/3, at/1, all/0, kept/1, has/2, fits/2, id/1, any_id/1, names/1, read_much/1]).
-export_type([table/0, kind/0, feature/0]).

-type kind() :: kept | wild.
-type feature() :: kind() | set_like | bag_like | ordered | expiring | limited | bounded_bytes | transactions
                 | accounts | snapshots | order_statistics | short_snapshots | public | stats | notify
                 | heir | inherited | renamed.
%% `accounts': it has transactions, and one object for each key. `heir': it stays without an owner when its owner ends.
%% `inherited': the listener owns it then. `renamed': it is kept, its name is not. `bounded_bytes': its limit is one of
%% bytes. `short_snapshots': its snapshots may die.
-type table() :: #{place := pos_integer(), tid := cats:tid(), name := cats:table(), origin := term(),
                   type := cats:table_type(), keypos := 1..3, options := [cats:option()], features := [feature()]}.

%% @doc Makes what the storm itself needs.
-spec start() -> ok.
start() ->
    ?MODULE = ets:new(?MODULE, [named_table, public, {read_concurrency, true}]),
    ok.

%% @doc Begins a round without tables.
-spec start_round() -> ok.
start_round() ->
    true = ets:delete_all_objects(?MODULE),
    ok.

%% @doc Makes a table of random options at this place, in place of the one that may be there. The caller owns it.
-spec new(Place :: pos_integer(), kind() | cache, Listener :: pid()) -> table().
new(Place, cache, _Listener) ->
    Limit = perhaps(60, [{limit, {objects, one_of([50, 500])}}, {evict, one_of([none | cats_test_lib:policies()])}]),
    new_with(Place, wild, [one_of([set, ordered_set]), public, {one_of([ttl, idle]), one_of([30, 300, 5000])} | Limit]);
new(Place, Kind, Listener) -> new_with(Place, Kind, options(Kind, Listener)).

new_with(Place, Kind, Options) ->
    Origin = {Place, ets:update_counter(?MODULE, generation, 1, {generation, 0})},
    Name = one_of([storm_a, storm_b, storm_c, storm_d | [Own || Kind =:= kept, Own <- names(Place) ++ names(Place)]]),
    {Id, Used} = made(Name, Options),
    Table = #{place => Place, tid => cats:info(Id, id), name => Id, origin => Origin, options => Used,
              type => cats:info(Id, type), keypos => cats:info(Id, keypos), features => []},
    Featured = Table#{features := features(Kind, Table)},
    true = ets:insert(?MODULE, {Place, Featured}),
    Featured.

%% The name may be taken.
made(Name, Options) ->
    try
        {cats:new(Name, Options), Options}
    catch
        error:badarg -> made(Name, Options -- [named_table])
    end.

%% @doc The table at this place.
-spec at(pos_integer()) -> table().
at(Place) -> ets:lookup_element(?MODULE, Place, 2).

%% @doc All tables that the storm knows.
-spec all() -> [table()].
all() -> [Table || {Place, Table} <- lists:sort(ets:tab2list(?MODULE)), is_integer(Place)].

%% @doc The kept tables with this feature.
-spec kept(feature()) -> [table()].
kept(Feature) -> [Table || Table <- all(), has(kept, Table), has(Feature, Table)].

-spec has(feature(), table()) -> boolean().
has(Feature, #{features := Features}) -> lists:member(Feature, Features).

%% @doc Whether a table has all these features, and none of those that are negated.
-spec fits([feature() | {no, feature()}], table()) -> boolean().
fits(Needs, #{features := Features}) ->
    lists:all(fun({no, Feature}) -> not lists:member(Feature, Features);
                 (Feature) -> lists:member(Feature, Features)
              end, Needs).

%% @doc How a call names the table: by its name or its identifier. Only kept tables keep their names.
-spec id(table()) -> cats:table().
id(#{tid := Tid, name := Name} = Table) ->
    case has(kept, Table) andalso not has(renamed, Table) andalso chance(30) of
        true -> Name;
        false -> Tid
    end.

%% @doc The same, where a table that is renamed may have another name when it is called.
-spec any_id(table()) -> cats:table().
any_id(#{place := Place} = Table) ->
    case has(renamed, Table) andalso chance(50) of
        true -> one_of(names(Place));
        false -> id(Table)
    end.

%% @doc The names that a table at this place has when it is renamed.
-spec names(Place :: pos_integer()) -> [atom()].
names(Place) -> [list_to_atom("storm_" ++ integer_to_list(Place) ++ Letter) || Letter <- ["a", "b"]].

%%% Options

options(Kind, Listener) ->
    Type = one_of([set, set, ordered_set, ordered_set, ordered_set, bag, duplicate_bag]),
    Plain = [Type, access(Kind), {keypos, uniform(3)}]
        ++ perhaps(70, one_of([{heir, keep}, {heir, Listener, storm}])) ++ perhaps(30, named_table)
        ++ perhaps(20, {read_concurrency, chance(50)}) ++ perhaps(40, {write_concurrency, one_of([true, false, auto])})
        ++ perhaps(20, {decentralized_counters, chance(50)})
        ++ perhaps(25, {stats, true}) ++ perhaps(15, {snapshot_limit, one_of([0, 1000, 100000])}),
    case uniform(10) of
        1 -> [compressed | Plain];
        2 -> [{engine, one_of([Name || #{name := Name, types := Types} <- cats:engines(), lists:member(Type, Types)])}
              | Plain];
        N when N > 4, Type =/= bag, Type =/= duplicate_bag -> cache_options(Kind, Listener) ++ Plain;
        _ -> Plain
    end.

access(kept) -> public;
access(wild) -> one_of([public, public, public, public, public, public, public, protected, private]).

cache_options(kept, _Listener) ->
    perhaps(60, {ttl, infinity}) ++ perhaps(20, [{limit, {objects, one_of([10000, 100000])}}, {evict, none}]);
cache_options(wild, Listener) ->
    Expiry = perhaps(60, {one_of([ttl, idle]), one_of([1, 5, 30, 300, 5000])}),
    Limit = perhaps(60,
                    [{limit, one_of([{objects, one_of([1, 5, 50, 500, 5000])},
                                     {bytes, one_of([20000, 50000, 200000, 5000000])}])}
                   | perhaps(80, {evict, one_of([none | cats_test_lib:policies()])})]),
    Notify = [Option || Expiry ++ Limit =/= [],
                        Option <- perhaps(40,
                                          {notify, Listener, [{queue, one_of([10, 10000])}, {interval, one_of([0, 10])},
                                                            {send, one_of([objects, keys])}]})],
    Expiry ++ Limit ++ Notify.

%% The option or the options, with this probability in percent.
perhaps(Percent, Options) ->
    case chance(Percent) of
        true when is_list(Options) -> Options;
        true -> [Options];
        false -> []
    end.

features(Kind, #{place := Place, tid := Tid, name := Name, type := Type, options := Options}) ->
    [Engine] = [Found || #{name := Called} = Found <- cats:engines(), Called =:= cats:info(Tid, engine)],
    Limit = proplists:get_value(limit, Options, none),
    Conditions =
        [{Kind, true}, {set_like, Type =:= set orelse Type =:= ordered_set},
         {bag_like, Type =:= bag orelse Type =:= duplicate_bag}, {ordered, Type =:= ordered_set},
         {expiring, cats:info(Tid, ttl) =/= undefined orelse cats:info(Tid, idle) =/= undefined},
         {limited, Limit =/= none}, {bounded_bytes, is_tuple(Limit) andalso element(1, Limit) =:= bytes},
         {transactions, lists:member(Type, maps:get(transactions, Engine))},
         {accounts, lists:member(Type, maps:get(transactions, Engine) -- [bag, duplicate_bag])},
         {snapshots, maps:get(snapshots, Engine)},
         {order_statistics, lists:member(Type, maps:get(order_statistics, Engine))},
         {short_snapshots, proplists:is_defined(snapshot_limit, Options)},
         {stats, proplists:is_defined(stats, Options)}, {notify, lists:keymember(notify, 1, Options)},
         {heir, lists:member({heir, keep}, Options)},
         {inherited, lists:keymember(heir, 1, Options) andalso not lists:member({heir, keep}, Options)},
         {renamed, Kind =:= kept andalso lists:member(Name, names(Place))},
         {public, lists:member(public, Options)}],
    [Feature || {Feature, true} <- Conditions].

%% @doc Makes the transaction a long one, by reads of keys that nobody writes.
-spec read_much(table()) -> ok.
read_much(Table) ->
    lists:foreach(fun(N) -> false = cats_transaction:member(id(Table), {unwritten, N}) end, lists:seq(1, 30)).
