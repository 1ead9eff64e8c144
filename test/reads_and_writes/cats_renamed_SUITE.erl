%% Ordered tables whose node gets another name. The VM orders pids, ports and references of this node beside those of
%% other nodes by the name that this node has at the moment. So ets no longer finds all keys then.
-module(cats_renamed_SUITE).
-include_lib("stdlib/include/assert.hrl").
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([keys_stay_in_order/1, keys_that_change_their_order/1]).
-export([stay_in_order/0, change_their_order/0]).

suite() -> [{timetrap, {minutes, 10}}].

all() -> [keys_stay_in_order, keys_that_change_their_order].

init_per_suite(Config) ->
    %% A node that has a name from its start sees to it that epmd runs.
    {ok, Named, _Node} = peer:start(#{name => peer:random_name(), connection => standard_io, wait_boot => infinity}),
    ok = peer:stop(Named),
    cats_test_lib:start(Config).

end_per_suite(_Config) -> ok.

in_peer(Function) ->
    Peer = cats_test_lib:start_peer(["-pa" | code:get_path()]),
    try
        {ok, _} = peer:call(Peer, application, ensure_all_started, [cats], infinity),
        peer:call(Peer, ?MODULE, Function, [], 240000)
    after
        peer:stop(Peer)
    end.

keys_stay_in_order(_Config) -> ok = in_peer(stay_in_order).

%% @doc Whatever the name of the node: all keys are found, walks and searches meet each key once, in one order.
stay_in_order() ->
    Keys = shuffled(identifiers(150) ++ [{a, Identifier, b} || Identifier <- identifiers(150)] ++ lists:seq(1, 300)),
    Reference = ets:new(reference, [ordered_set]),
    true = ets:insert(Reference, [{Key} || Key <- Keys]),
    Order = [Key || {Key} <- ets:tab2list(Reference)],
    {First, Second} = lists:split(length(Keys) div 2, Keys),
    Table = cats:new(table, [ordered_set]),
    insert(Table, First),
    check(Table, [Key || Key <- Order, cats:member(Table, Key)], length(First)),
    named(zzz),
    check(Table, [Key || Key <- Order, lists:member(Key, First)], length(First)),
    insert(Table, Second),
    check(Table, Order, length(Keys)),
    named(aaa),
    check(Table, Order, length(Keys)),
    insert(Table, lists:reverse(Keys)),
    check(Table, Order, length(Keys)),
    Later = cats:new(later, [ordered_set]),
    insert(Later, Keys),
    check(Later, Order, length(Keys)),
    [true = cats:delete(Table, Key) || Key <- Keys],
    check(Table, [], 0).

check(Table, Order, Size) ->
    ?assertEqual(Size, cats:info(Table, size)),
    ?assertEqual(Order, walk(Table, next, cats:first(Table), Size + 1)),
    ?assertEqual(lists:reverse(Order), walk(Table, prev, cats:last(Table), Size + 1)),
    ?assertEqual(Order, cats:select(Table, [{{'$1'}, [], ['$1']}])),
    ?assertEqual([], [Key || Key <- Order, not cats:member(Table, Key)]).

keys_that_change_their_order(_Config) -> ok = in_peer(change_their_order).

%% @doc The VM compares what is in funs. Nothing fails or goes on for ever, and the other keys are found.
change_their_order() ->
    Changing = shuffled([fun() -> Identifier end || Identifier <- identifiers(1000)]),
    Others = shuffled(lists:seq(1, 1000) ++ identifiers(200)),
    Table = cats:new(table, [ordered_set]),
    insert(Table, lists:sublist(Changing, 2000) ++ Others),
    lists:foreach(
        fun(Name) ->
            named(Name),
            [insert(Table, shuffled(Changing ++ Others)) || _ <- lists:seq(1, 3)],
            ?assertEqual([], [Key || Key <- Others, not cats:member(Table, Key)]),
            _ = cats:tab2list(Table),
            [true = cats:delete(Table, Key) || Key <- lists:sublist(Changing, 500)]
        end,
        [zzz, aaa, mmm, nnn]),
    true = cats:delete_all_objects(Table),
    insert(Table, Changing),
    ?assertEqual(length(Changing), length(cats:tab2list(Table))),
    ok.

insert(Table, Keys) -> true = cats:insert(Table, [{Key} || Key <- Keys]).

walk(_Table, _Step, '$end_of_table', _Most) -> [];
walk(_Table, _Step, _Key, 0) -> [endless];
walk(Table, Step, Key, Most) -> [Key | walk(Table, Step, cats:Step(Table, Key), Most - 1)].

named(Name) ->
    _ = net_kernel:stop(),
    {ok, _} = net_kernel:start([Name, shortnames]),
    ok.

%% Pids, ports and references of this node and of three others. Pids of all nodes have the same numbers.
identifiers(Count) ->
    Here = [[make_ref(), list_to_pid(lists:concat(["<0.", N, ".0>"])), list_to_port(lists:concat(["#Port<0.", N, ">"]))]
            || N <- lists:seq(1, Count)],
    Elsewhere = [binary_to_term(<<131, Format/binary>>)
                 || N <- lists:seq(1, Count), Node <- ['a@host', 'm@host', 'z@host'], Format <- external(Node, N)],
    lists:append([Elsewhere | Here]).

external(Node, N) ->
    Atom = <<119, (byte_size(atom_to_binary(Node))), (atom_to_binary(Node))/binary>>,
    [<<88, Atom/binary, N:32, 0:32, 7:32>>, <<120, Atom/binary, N:64, 7:32>>,
     <<90, 3:16, Atom/binary, 7:32, N:32, 1:32, 2:32>>].

shuffled(Keys) -> [Key || {_, _, Key} <- lists:sort([{erlang:phash2(N), N, Key} || {N, Key} <- lists:enumerate(Keys)])].
