%% Tables with option `compressed'. Random operations on objects whose elements are of all shapes are compared with
%% plain tables of ets. Memory is saved and given back. Readers see whole objects while counters beside packed elements
%% change.
-module(cats_compressed_SUITE).
-include_lib("stdlib/include/assert.hrl").
-include("cats_failure.hrl").
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([random_operations/1, elements_of_all_shapes/1, memory_is_saved/1, memory_is_given_back/1, changes_are_whole/1,
         large_elements/1, copies/1]).

suite() -> [{timetrap, {minutes, 10}}].

all() ->
    [random_operations, elements_of_all_shapes, memory_is_saved, memory_is_given_back,
     changes_are_whole, large_elements, copies].

init_per_suite(Config) -> cats_test_lib:only_cats(cats_test_lib:start(Config)).

end_per_suite(_Config) -> ok.

%% Elements that are packed, and such as are not: numbers, what is held or counted, and what is short.
shapes() ->
    [fun(N) -> N end, fun(N) -> -N end, fun(N) -> list_to_atom("atom_" ++ integer_to_list(N rem 50)) end,
     fun(N) -> N / 3 end, fun(N) -> N bsl 70 end, fun(N) -> <<N:256>> end, fun(N) -> binary:copy(<<N:64>>, 20) end,
     fun(N) -> <<N:131>> end, fun(_) -> self() end, fun(_) -> make_ref() end, fun(N) -> fun() -> N end end,
     fun(N) -> fun() -> lists:seq(1, N rem 20) end end, fun(_) -> fun lists:map/2 end, fun(_) -> external_pid() end,
     fun(N) -> [N, N] end, fun(N) -> lists:duplicate(N rem 40, N) end,
     fun(N) -> lists:duplicate(N rem 40, N rem 256) end, fun(N) -> lists:duplicate(10, -1) ++ N end,
     fun(N) -> {N, [N, {N, <<N>>}, #{N => "text"}], self(), 1.5, N bsl 65} end,
     fun(N) -> list_to_tuple(lists:seq(1, N rem 100)) end,
     fun(N) -> maps:from_list([{K, K bsl (N rem 70)} || K <- lists:seq(1, N rem 30)]) end,
     fun(N) -> maps:from_list([{{K, "key"}, [K, N]} || K <- lists:seq(1, N rem 200)]) end,
     fun(N) -> [external_pid(), lists:seq(1, N rem 50)] end,
     fun(N) -> lists:duplicate(N rem 20, binary:copy(<<N:64>>, 20)) end,
     %% Parts of one packed element that are laid out at once, between such as are not.
     fun(N) ->
             [N, "a string", N bsl 65, {N, 1.5, -N, a}, maps:from_list([{K, [K]} || K <- lists:seq(1, 33 + N rem 9)]),
              #{N => "text"}, {}, #{}, [N | tail], <<>>, <<N>>, make_ref(), fun() -> {N, [N]} end,
              self(), [[], <<"text">>]]
     end,
     fun(N) -> lists:foldl(fun(_, Term) -> [Term] end, lists:seq(1, 20), lists:seq(1, N rem 80)) end, fun(_) -> [] end].

external_pid() ->
    binary_to_term(<<131, 88, 119, 7, "foo@bar", 0:32, 1:32, 0:32, 1:32>>).

element_of_some_shape() -> (cats_test_lib:one_of(shapes()))(rand:uniform(500)).

key() ->
    N = rand:uniform(12),
    lists:nth(rand:uniform(4),
              [N, {N, "a key that is a tuple with a list"}, lists:duplicate(15, N), list_to_binary([N])]).

object(Position) ->
    list_to_tuple([rand:uniform(100) | lists:duplicate(Position - 1, rand:uniform(100))]
                  ++ [element_of_some_shape() || _ <- lists:seq(1, rand:uniform(5))]).

object(Position, Key) -> setelement(Position, object(Position), Key).

random_operations(_Config) ->
    rand:seed(exsss, 17),
    [begin
         {Cats, Ets} = {cats:new(t, [Type, compressed, {keypos, Position}]), ets:new(t, [Type, {keypos, Position}])},
         repeat(1500, fun() -> operation(Type, Position, Cats, Ets) end),
         ?assertEqual(lists:sort(ets:tab2list(Ets)), lists:sort(cats:tab2list(Cats))),
         cats:delete(Cats)
     end || Type <- cats_test_lib:types(), Position <- [1, 3]].

repeat(0, _) -> ok;
repeat(Times, Function) -> Function(), repeat(Times - 1, Function).

operation(Type, Position, Cats, Ets) ->
    Key = key(),
    Object = object(Position, Key),
    {Function, Arguments} = Call = call(rand:uniform(16), Position, Key, Object, ets:lookup(Ets, Key)),
    [Expected, Got] = [try {ok, apply(Module, Function, [Table | Arguments])} catch error:Reason -> {error, Reason} end
                       || {Module, Table} <- [{ets, Ets}, {cats, Cats}]],
    ?assertEqual({Type, Call, in_order(Expected)}, {Type, Call, in_order(Got)}),
    %% What ets and cats find is the same after each change of a key.
    ?assertEqual(lists:sort(ets:lookup(Ets, Key)), lists:sort(cats:lookup(Cats, Key))).

in_order({ok, [_ | _] = Found}) when is_list(tl(Found)) -> try lists:sort(Found) catch error:_ -> Found end;
in_order(Result) -> Result.

call(1, _, _, Object, _) -> {insert, [Object]};
call(2, _, _, Object, _) -> {insert_new, [Object]};
call(3, Position, _, Object, _) -> {insert, [[Object, object(Position, key()), object(Position, key())]]};
call(4, _, Key, _, _) -> {lookup_element, [Key, rand:uniform(8)]};
call(N, _, Key, _, _) when N < 7 ->
    {update_counter, [Key, [{rand:uniform(8), rand:uniform(1000)} || _ <- lists:seq(1, rand:uniform(2))]]};
call(7, _, Key, _, _) -> {update_counter, [Key, {rand:uniform(8), 1 bsl 62}]};
call(N, _, Key, _, _) when N < 11 ->
    {update_element, [Key, [{rand:uniform(8), element_of_some_shape()} || _ <- lists:seq(1, rand:uniform(2))]]};
call(11, _, _, _, [Old | _]) -> {delete_object, [Old]};
call(11, _, _, Object, []) -> {delete_object, [Object]};
call(12, _, Key, _, _) -> {take, [Key]};
call(13, Position, _, _, [Old | _]) -> {match_object, [setelement(Position + 1, Old, '_')]};
call(13, Position, _, Object, []) -> {match_object, [setelement(Position, Object, '_')]};
call(14, Position, _, _, _) ->
    Head = list_to_tuple(['$1', '$2', '$3', '$4'] ++ ['_' || _ <- lists:seq(1, Position - 1)]),
    {select, [[{Head, [], [['$3', {{'$1', '$4'}}]]}]]};
call(15, Position, Key, Object, _) ->
    Head = setelement(Position, list_to_tuple(['_' || _ <- tuple_to_list(Object)]), {const, Key}),
    {select_delete,
     [[{setelement(Position, Head, '$1'),
        [{'=:=', '$1', {const, Key}}, {is_list, {element, Position + 1, '$_'}}], [true]}]]};
call(16, Position, _, _, [Old | _]) -> {match_delete, [setelement(Position + 1, Old, '_')]};
call(16, _, _, Object, []) -> {match_delete, [Object]}.

%% Each element is found alone and with the whole object, in every place, and after the elements around it were changed.
elements_of_all_shapes(_Config) ->
    [begin
         Table = cats:new(t, [Type, compressed]),
         [begin
              Elements = [Shape(N) || Shape <- shapes()],
              Object = list_to_tuple([N, 0 | Elements]),
              true = cats:insert(Table, Object),
              check(Table, N, Object),
              1 = cats:update_counter(Table, N, {2, 1}),
              check(Table, N, setelement(2, Object, 1)),
              2 = cats:update_counter(Table, N, {2, 1}),
              check(Table, N, setelement(2, Object, 2)),
              Changes = [{Place, lists:seq(Place, 40)} || Place <- lists:seq(3, tuple_size(Object), 3)],
              true = cats:update_element(Table, N, Changes),
              Changed = lists:foldl(fun({Place, Value}, Tuple) -> setelement(Place, Tuple, Value) end,
                                    Object, [{2, 2} | Changes]),
              check(Table, N, Changed),
              true = cats:replace(Table, Changed, Object),
              check(Table, N, Object),
              _ = cats:update(Table, N, fun(Tuple) -> setelement(3, Tuple, "a new string") end),
              check(Table, N, setelement(3, Object, "a new string"))
          end || N <- [1, 5, 17, 39, 40, 41, 99, 255, 256, 499]]
     end || Type <- cats_test_lib:types([set, ordered_set])].

check(Table, Key, Object) ->
    ?assertEqual([Object], cats:lookup(Table, Key)),
    [?assertEqual(element(Place, Object), cats:lookup_element(Table, Key, Place))
     || Place <- lists:seq(1, tuple_size(Object))],
    ?assertEqual(tuple_to_list(Object), cats:lookup_elements(Table, Key, lists:seq(1, tuple_size(Object)))),
    ?assertEqual([Object], cats:match_object(Table, setelement(tuple_size(Object), Object, '_'))),
    ?assertError(badarg, cats:update_counter(Table, Key, {tuple_size(Object), 1})).

%% A string, a tuple and maps take a fraction of what they take in a plain table, as in ets.
memory_is_saved(_Config) ->
    [begin
         [Packed, Plain] = [begin
                                Table = cats:new(t, Options),
                                true = cats:insert(Table, [{N, Element, N} || N <- lists:seq(1, 1000)]),
                                cats:info(Table, memory)
                            end || Options <- [[compressed], []]],
         ?assert(Packed < Share * Plain, {Element, Packed, Plain})
     end || {Share, Element} <- [{0.3, lists:duplicate(100, $a)}, {0.7, list_to_tuple(lists:seq(1, 20))},
                                 {0.6, maps:from_list([{K, K} || K <- lists:seq(1, 30)])},
                                 {0.6, maps:from_list([{K, K} || K <- lists:seq(1, 40)])}]].

%% After all objects are gone, a table has as much memory as a plain one after the same.
memory_is_given_back(_Config) ->
    ?assertEqual(left([]), left([compressed])).

left(Options) ->
    rand:seed(exsss, 18),
    Table = cats:new(t, Options),
    repeat(3, fun() ->
                      true = cats:insert(Table, [object(1, N) || N <- lists:seq(1, 100)]),
                      repeat(500, fun() ->
                                          catch cats:update_counter(Table, rand:uniform(100), {2, 1}),
                                          catch cats:update_element(Table, rand:uniform(100),
                                                                    {2, element_of_some_shape()})
                                  end),
                      [true = cats:delete(Table, N) || N <- lists:seq(1, 100)]
              end),
    cats:info(Table, memory).

%% The counters of an object always have the same sum, and the elements beside them stay.
changes_are_whole(_Config) ->
    [begin
         Table = cats:new(t, [Type, compressed, public]),
         Object = list_to_tuple([k, 500, 500, lists:seq(1, 100), #{a => "map"}, More] ++ lists:duplicate(Elements, x)),
         true = cats:insert(Table, Object),
         Read = fun(_) ->
                        [Found] = cats:lookup(Table, k),
                        ?assertEqual(1000, element(2, Found) + element(3, Found)),
                        ?assertEqual(setelement(2, setelement(3, Found, 500), 500), Object),
                        [[A, B]] = cats:select(Table,
                                               [{setelement(2, setelement(3, Found, '$2'), '$1'), [], [['$1', '$2']]}]),
                        ?assertEqual(1000, A + B),
                        ?assertEqual(lists:seq(1, 100), cats:lookup_element(Table, k, 4))
                end,
         Write = fun(_) -> cats:update_counter(Table, k, [{2, 1}, {3, -1}]) end,
         cats_test_lib:together([fun() -> cats_test_lib:repeat_for(100, Function) end
                                 || Function <- [Read, Read, Write, Write]])
     end || Type <- cats_test_lib:types([set, ordered_set]), Elements <- [0, 30, 500],
            More <- [last, binary:copy(<<"long">>, 100)]].

%% What takes long to unpack is unpacked on a dirty scheduler, and only by calls that need it.
large_elements(_Config) ->
    Table = cats:new(t, [compressed]),
    Object = {k, 0, lists:seq(1, 100000), "short"},
    true = cats:insert(Table, Object),
    ?assertMatch(?FAILED(dirty, _), cats_nif:lookup(Table, k)),
    ?assertMatch(?FAILED(dirty, _), cats_nif:lookup_element(Table, k, 3)),
    ?assertEqual([Object], cats:lookup(Table, k)),
    ?assertEqual(lists:seq(1, 100000), cats:lookup_element(Table, k, 3)),
    ?assertEqual("short", cats:lookup_element(Table, k, 4)),
    ?assertEqual(1, cats:update_counter(Table, k, {2, 1})),
    ?assertEqual([{k, 1, lists:seq(1, 100000), "short"}], cats:take(Table, k)).

%% Files, snapshots, transactions and copies of tables have the same objects.
copies(Config) ->
    rand:seed(exsss, 19),
    Objects = [object(1, N) || N <- lists:seq(1, 100)],
    Storable = [Object || Object <- Objects, not lists:any(fun is_function/1, tuple_to_list(Object))],
    Table = cats:new(t, [compressed, public]),
    true = cats:insert(Table, Objects),
    Snapshot = cats:snapshot(Table),
    [cats:update_element(Table, element(1, Object), {2, changed}) || Object <- Objects],
    [true = cats:delete(Table, element(1, Object)) || Object <- lists:nthtail(50, Objects)],
    same(Objects, Snapshot),
    ets:new(cats_compressed, [named_table, compressed]),
    ets:insert(cats_compressed, Storable),
    Copy = cats:new(t, [compressed]),
    true = cats:from_ets(Copy, cats_compressed),
    same(Storable, Copy),
    File = filename:join(proplists:get_value(priv_dir, Config), "compressed.tab"),
    ok = cats:tab2file(Copy, File),
    {ok, Read} = cats:file2tab(File),
    ?assertEqual(true, cats:info(Read, compressed)),
    same(Storable, Read).

same(Objects, Table) -> ?assertEqual(lists:sort(Objects), lists:sort(cats:tab2list(Table))).
