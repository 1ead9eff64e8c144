%% The order in which calls over a whole table return its objects. It is the same in each call, whatever else runs, and
%% it is the one that programs for ets rely on.
%%
%% For a table without order:
%%
%%   fold   the objects key by key in the order of first and next, those of a key in the order of insertion:
%%          foldl, foldr, first_lookup with next_lookup
%%   list   the keys in the opposite order, those of a key in the order of insertion:
%%          tab2list, select, select_reverse, match, match_object
%%   chunks the list, from its end, chunk by chunk. All objects of a key are met at once. If they are more than fit into
%%          a chunk, ets gives those that are left in a strange order, and so does cats:
%%          select, select_reverse, match, match_object with a limit
%%
%% For an ordered_set all are in the order of the keys, or, with `reverse', foldr and last, in the opposite one.
-module(cats_order_SUITE).
-include_lib("stdlib/include/assert.hrl").
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([one_order/1, newest_of_a_key/1, keys_of_a_specification/1, growing_and_shrinking/1,
         behind_the_end/1]).
-export([matrix/2]).

suite() -> [{timetrap, {minutes, 10}}].

all() -> [one_order, newest_of_a_key, keys_of_a_specification, growing_and_shrinking, behind_the_end].

init_per_suite(Config) -> cats_test_lib:start(Config).

end_per_suite(_Config) -> ok.

%% A walk that has come to the end does not begin anew. What names the end may be taken and looked up as any key.
behind_the_end(_Config) ->
    Tables = cats_test_lib:tables(),
    Steps = [next, prev | [Step || Step <- [next_lookup, prev_lookup], Tables =/= ets]],
    [begin
         Table = Tables:new(ended, [Type]),
         true = Tables:insert(Table, [{Key} || Key <- Keys]),
         [?assertError(badarg, Tables:Step(Table, '$end_of_table')) || Step <- Steps],
         Taken = [Tables:take(Table, Tables:first(Table)) || _ <- [more, yet | Keys]],
         ?assertEqual({lists:sort([[{Key}] || Key <- Keys]), [[], []]},
                      {lists:sort(lists:droplast(lists:droplast(Taken))), lists:nthtail(length(Keys), Taken)}),
         [?assertError(badarg, Tables:Step(Table, '$end_of_table')) || Step <- Steps]
     end || Type <- cats_test_lib:types(), Keys <- [[], [a], [b, 1, <<"x">>, {2}]]],
    %% Unless it is the key of an object, which ets does not allow in an ordered_set.
    [begin
         Table = Tables:new(ended, [Type]),
         true = Tables:insert(Table, {'$end_of_table'}),
         ?assertEqual('$end_of_table', Tables:Step(Table, '$end_of_table'))
     end || Type <- cats_test_lib:types(), Tables =/= ets orelse Type =/= ordered_set, Step <- [next, prev]],
    ok.

one_order(_Config) ->
    Calls = cats_test_lib:environment("ORDER_CALLS", cats_test_lib:rounds(1)),
    [] = [{Row, Orders, Expected}
          || {Row, Orders, Expected} <- matrix(Calls, [{default, []}]),
             {Orders, Expected} =/= {1, true}],
    ok.

%% @doc How many orders the calls of a row had, in so many calls each, and whether all were as expected. A row is an
%% engine, a type of table and a function. Other processes keep all schedulers busy meanwhile.
-spec matrix(pos_integer(), [{cats:engine() | default, [cats:option()]}]) ->
          [{Row :: term(), Orders :: pos_integer(), AsExpected :: boolean()}].
matrix(Calls, Engines) ->
    Busy = [spawn_link(fun work/0) || _ <- lists:seq(1, erlang:system_info(schedulers))],
    try
        [{{Engine, Type, Name}, length(lists:usort(Orders)), lists:all(fun(Order) -> Order =:= Expected end, Orders)}
         || {Engine, Options} <- Engines, Type <- types(Engine),
            Table <- [table(Type, Options)],
            {Name, Expected, Call} <- calls(Table, Type),
            Orders <- [[erlang:md5(term_to_binary(Call())) || _ <- lists:seq(1, Calls)]]]
    after
        [begin unlink(Pid), exit(Pid, kill) end || Pid <- Busy]
    end.

types(default) -> cats_test_lib:types();
types(Engine) -> hd([Types || #{name := Name, types := Types} <- cats:engines(), Name =:= Engine]).

work() ->
    _ = lists:sort([erlang:phash2(N) || N <- lists:seq(1, 2000)]),
    work().

table(Type, Options) ->
    Tables = cats_test_lib:tables(),
    Table = Tables:new(order, [Type | Options]),
    %% The bags have keys with one object, with some, and with so many that they come alone.
    Objects = [{Key, Value} || N <- lists:seq(1, 1500), {Key, Value} <- objects(Type, N)],
    [true = Tables:insert(Table, Object) || Object <- Objects],
    Table.

objects(Type, N) when N rem 100 =:= 0, Type =/= set, Type =/= ordered_set ->
    [{key(N), Value} || Value <- lists:seq(1, N div 5)];
objects(_Type, N) ->
    [{key(N), N}].

key(N) when N rem 5 =:= 0 -> {user, N};
key(N) when N rem 7 =:= 0 -> <<N:64>>;
key(N) -> N.

calls(Table, Type) ->
    Tables = cats_test_lib:tables(),
    Keys = keys(Tables, next, Table, Tables:first(Table)),
    ByKey = [Tables:lookup(Table, Key) || Key <- Keys],
    Fold = lists:append(ByKey),
    List = case Type of
               ordered_set -> Fold;
               _ -> lists:append(lists:reverse(ByKey))
           end,
    Reverse = case Type of
                  ordered_set -> lists:reverse(List);
                  _ -> List
              end,
    Spec = [{'$1', [], ['$1']}],
    Big = [{{'_', '$1'}, [{'>', '$1', 10}], ['$_']}],
    Whole =
        [{tab2list, List, fun() -> Tables:tab2list(Table) end},
         {select, List, fun() -> Tables:select(Table, Spec) end},
         {'select with a guard', big(List), fun() -> Tables:select(Table, Big) end},
         {select_reverse, Reverse, fun() -> Tables:select_reverse(Table, Spec) end},
         {match, [[Key, Value] || {Key, Value} <- List], fun() -> Tables:match(Table, {'$1', '$2'}) end},
         {match_object, List, fun() -> Tables:match_object(Table, '_') end},
         {'match_object of some', [Object || {_, 7} = Object <- List],
          fun() -> Tables:match_object(Table, {'_', 7}) end},
         {'first, next', Keys, fun() -> keys(Tables, next, Table, Tables:first(Table)) end},
         {foldl, lists:reverse(Fold), fun() -> Tables:foldl(fun(Object, All) -> [Object | All] end, [], Table) end},
         {foldr, foldr(Type, ByKey), fun() -> Tables:foldr(fun(Object, All) -> [Object | All] end, [], Table) end}],
    Chunks = [{{Function, Limit}, chunked(Type, Function, Wanted, Limit),
               fun() -> chunks(Tables, Function, Tables:Function(Table, What, Limit)) end}
              || {Function, What, Wanted} <- [{select, Spec, ByKey}, {select, Big, [big(Objects) || Objects <- ByKey]},
                                              {select_reverse, Spec, ByKey}, {match_object, '_', ByKey}],
                 Limit <- [1, 7, 200, 1000, 100_000]],
    [{Name, erlang:md5(term_to_binary(Expected)), Call} || {Name, Expected, Call} <- Whole ++ Chunks].

big(Objects) -> [Object || {_, Value} = Object <- Objects, Value > 10].

%% As in ets, foldr begins with the newest object of a key. In a table without order it begins with the first key.
foldr(ordered_set, ByKey) -> lists:append(ByKey);
foldr(_Type, ByKey) -> lists:append(lists:reverse(ByKey)).

keys(_Tables, _Step, _Table, '$end_of_table') -> [];
keys(Tables, Step, Table, Key) -> [Key | keys(Tables, Step, Table, Tables:Step(Table, Key))].

chunks(_Tables, _Function, '$end_of_table') -> [];
chunks(Tables, Function, {Chunk, Continuation}) -> [Chunk | chunks(Tables, Function, Tables:Function(Continuation))].

%% The chunks that are expected of objects by key.
chunked(ordered_set, Function, ByKey, Limit) ->
    in_order(case Function of
                 select_reverse -> lists:reverse(lists:append(ByKey));
                 _ -> lists:append(ByKey)
             end, Limit);
chunked(_Type, _Function, ByKey, Limit) ->
    as_met(ByKey, [], Limit, fun(Rest) -> Rest end).

in_order([], _Limit) ->
    [];
in_order(List, Limit) ->
    {Chunk, Rest} = lists:split(min(Limit, length(List)), List),
    [Chunk | in_order(Rest, Limit)].

as_met([Objects | ByKey], Found, Limit, Turn) when length(Found) < Limit ->
    as_met(ByKey, Objects ++ Found, Limit, Turn);
as_met(_ByKey, [], _Limit, _Turn) ->
    [];
as_met(ByKey, Found, Limit, Turn) ->
    {Rest, Chunk} = lists:split(max(length(Found) - Limit, 0), Found),
    [Chunk | as_met(ByKey, Turn(Rest), Limit, fun lists:reverse/1)].

%% Elixir's compiler reads the newest value of a key in this way.
newest_of_a_key(_Config) ->
    [begin
         [EtsTable, Table] = Both = [begin
                                         T = cats_test_lib:new(Module, newest, [Type]),
                                         [Module:insert(T, {k, N}) || N <- lists:seq(1, Objects)],
                                         {Module, T}
                                     end || Module <- [ets, cats]],
         [begin
              [Expected, Got] = [chunks(Module, Function, Module:Function(T, What, Limit)) || {Module, T} <- Both],
              ?assertEqual({Type, Objects, Function, Limit, Expected}, {Type, Objects, Function, Limit, Got})
          end || {Function, What} <- [{select, [{{k, '$1'}, [], ['$1']}]}, {select, [{{'_', '$1'}, [], ['$1']}]},
                                      {select_reverse, [{{k, '$1'}, [], ['$1']}]}, {match, {k, '$1'}},
                                      {match, {'_', '$1'}}, {match_object, {k, '_'}}, {match_object, '_'}],
                 Limit <- [1, 2, 3, 4, 5, 7, 100, 1000, 2000]],
         {ets, _} = EtsTable,
         {cats, CatsTable} = Table,
         ?assertMatch({[Objects], _}, cats:select(CatsTable, [{{k, '$1'}, [], ['$1']}], 1))
     end || Type <- cats_test_lib:types([bag, duplicate_bag]), Objects <- [2, 5, 15, 64, 130, 1100]].

%% If a specification gives the keys, they come in the opposite order of its clauses, as in ets. That is so while no two
%% of them are in one bucket of ets, which is true for these.
keys_of_a_specification(_Config) ->
    [begin
         Both = [begin
                     T = cats_test_lib:new(Module, keys, [Type]),
                     [Module:insert(T, {N, V}) || V <- [x, y, z], N <- lists:seq(1, 20)],
                     {Module, T}
                 end || Module <- [ets, cats]],
         [begin
              Spec = [{{Key, '$1'}, [], [{{Key, '$1'}}]} || Key <- Keys],
              [Expected, Got] = [Call(Module, T, Spec) || {Module, T} <- Both],
              ?assertEqual({Type, Keys, Expected}, {Type, Keys, Got})
          end || Keys <- [[1, 2], [2, 1], [3, 1, 17, 9, 20, 2], [5, 5, 4, 5], [30, 7, 31, 6]],
                 Call <- [fun(Module, T, Spec) -> Module:select(T, Spec) end,
                          fun(Module, T, Spec) -> Module:select_reverse(T, Spec) end
                         | [fun(Module, T, Spec) -> chunks(Module, select, Module:select(T, Spec, Limit)) end
                            || Limit <- [1, 2, 3, 4, 6, 100]]]]
     end || Type <- cats_test_lib:types()].

%% A table that grew and shrank still lists its objects in the order of first and next, and objects that stay in it keep
%% their order.
growing_and_shrinking(_Config) ->
    Tables = cats_test_lib:tables(),
    [begin
         Table = Tables:new(order, [Type]),
         Lasting = lists:seq(1, 50),
         Tables:insert(Table, [{N} || N <- Lasting]),
         Order = [N || {N} <- Tables:tab2list(Table)],
         [begin
              [Tables:insert(Table, {N}) || N <- lists:seq(51, Most)],
              listed_as_stepped(Tables, Table, Type),
              ?assertEqual(Order, [N || {N} <- Tables:tab2list(Table), N =< 50]),
              [Tables:delete(Table, N) || N <- lists:seq(51, Most), N rem 3 > 0],
              listed_as_stepped(Tables, Table, Type),
              [Tables:delete(Table, N) || N <- lists:seq(51, Most)],
              listed_as_stepped(Tables, Table, Type),
              ?assertEqual(Order, [N || {N} <- Tables:tab2list(Table)])
          end || Most <- [60, 100, 500, 3000]]
     end || Tables =/= ets, Type <- cats_test_lib:types()].

listed_as_stepped(Tables, Table, Type) ->
    Keys = keys(Tables, next, Table, Tables:first(Table)),
    Listed = case Type of
                 ordered_set -> Keys;
                 _ -> lists:reverse(Keys)
             end,
    ?assertEqual(Listed, [N || {N} <- Tables:tab2list(Table)]),
    ?assertEqual(Listed, Tables:select(Table, [{{'$1'}, [], ['$1']}])).
