%% Objects that expire: a comparison with a model under a clock that stands still between steps, what walks, snapshots
%% and transactions see, and how fast memory comes back.
-module(cats_expiry_SUITE).
-measures([a_million_at_once]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("common_test/include/ct.hrl").

%% Milliseconds that the objects of some tables live.
-define(SHORT, 20).
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, end_per_testcase/2]).
-export([like_a_model/1, options/1, explanations/1, times/1, idle/1, own_time_and_idle/1, renewals/1, walks/1,
         long_dead_stretch/1,
         updates_keep_the_time/1, snapshots/1, transactions/1, steps_of_transactions/1, fetch/1,
         in_place_of_a_kept_object/1, files/1, objects_of_all_kinds/1, replaced_contents/1, contents_not_taken/1,
         stale_items_go/1, memory_of_expiry/1, a_million_at_once/1, readers_and_writers/1, a_stopped_vm/1,
         counted_in_slices/1]).

suite() -> [{timetrap, {minutes, 10}}].

all() ->
    [like_a_model, options, explanations, times, idle, own_time_and_idle, renewals, walks, long_dead_stretch,
     updates_keep_the_time, snapshots, transactions, steps_of_transactions, fetch, in_place_of_a_kept_object, files,
     objects_of_all_kinds, replaced_contents, contents_not_taken, stale_items_go, memory_of_expiry, a_million_at_once,
     readers_and_writers, a_stopped_vm, counted_in_slices].

init_per_suite(Config) ->
    cats_test_lib:ensure_proper(),
    {ok, _} = application:ensure_all_started(cats),
    Config.

end_per_suite(_Config) -> ok.

end_per_testcase(_Case, _Config) -> cats_nif:stop_clock(false).

%% Lets so many milliseconds pass on the clock that was stopped.
pass(Time) ->
    put(clock, cats_nif:stop_clock(get(clock) + Time)).

stop_clock() ->
    put(clock, cats_nif:stop_clock(erlang:unique_integer([positive]) * 1000000)).

types() -> [set, ordered_set].

%%------------------------------------------------------------------------------------------------------------
%% The model

%% After random steps, in both engines, a table shows what a map of objects with their deadlines has.
like_a_model(_Config) ->
    Number = cats_test_lib:environment("EXPIRY_TESTS", 300),
    [?assert(proper:quickcheck(prop_like_a_model(Type, Kind), [{numtests, Number}, {to_file, user}, quiet]))
     || Type <- types(), Kind <- [ttl, idle, both]].

prop_like_a_model(Type, Kind) ->
    proper:forall(list(step()),
                  fun(Steps) ->
                          stop_clock(),
                          forget_ended(),
                          Table = cats:new(t, [Type, public | times_of(Kind)]),
                          try
                              _ = lists:foldl(fun(Step, Model) -> run(Step, Table, Kind, Model) end, #{}, Steps),
                              true
                          catch
                              %% Not left to PropEr, which handles exceptions with code that needs an old OTP.
                              Class:Reason:Stack ->
                                  ct:pal("~0p of a ~p:~n~p~n~p", [Kind, Type, Steps, {Class, Reason, Stack}]),
                                  false
                          after
                              cats:delete(Table)
                          end
                  end).

times_of(both) -> [{idle, 1000}, {ttl, 1500}];
times_of(Kind) -> [{Kind, 1000}].

list(Type) -> proper_types:list(Type).
oneof(Types) -> proper_types:union(Types).
range(Low, High) -> proper_types:integer(Low, High).
frequency(Choices) -> proper_types:weighted_union(Choices).

%% Immediates, floats, tuples and binaries.
key() -> oneof([range(1, 8), {range(1, 4)}, <<"a binary">>, 2.5, a, [list]]).

value() -> oneof([range(0, 9), <<"text">>, {tuple, [1, 2]}, 1.5]).

object() -> oneof([{key(), value()}, {key(), range(0, 9), value()}, {key()}]).

%% From a tick of the wheel to more than one turn of its three lowest levels.
lifetime() -> oneof([range(1, 40), range(1, 3000), range(1, 200000), 20000000, infinity]).

passing() -> oneof([0, range(1, 40), range(1, 1500), range(1, 200000), 20000000]).

step() ->
    frequency([{4, {insert, object()}}, {4, {insert, object(), lifetime()}}, {2, {insert_new, object()}},
               {2, {insert_new, object(), lifetime()}}, {1, {insert_new, list(object()), lifetime()}},
               {3, {touch, key(), lifetime()}}, {2, {delete, key()}}, {1, {take, key()}},
               {2, {counter, key(), range(0, 5)}}, {1, {element, key(), value()}}, {1, {insert_list, list(object())}},
               {2, {lookup, key()}}, {4, {pass, passing()}}, {2, all}, {1, replace_all}, {1, {replace, key(), value()}},
               {1, {update, key(), value()}}, {1, {select, key()}}, {1, delete_all}, {1, {many, list(key())}},
               {1, {transaction, object()}}, {2, {read, key()}}, {2, {fetch, key(), lifetime()}},
               {1, {snapshot, key(), range(1, 1500)}}, {3, {fetched, key(), oneof([0, range(1, 2000), 300000])}},
               {4, {own, object(), oneof([near(), near(), infinity]), range(1, 1100), oneof([none, near()]),
                    range(1, 1100)}}]).

%% Times about that of the table.
near() -> oneof([range(1, 2500), range(950, 1100)]).

%% What lives, by the model: the key with the object, its deadline, and its own end where reads move the deadline.
living(Model) -> maps:filter(fun(_, {_, Deadline, _}) -> Deadline > get(clock) end, Model).

after_now(infinity) -> infinity;
after_now(Time) -> get(clock) + Time.

put_object(both, Object, Model) -> put_lasting(both, Object, 1500, Model);
put_object(Kind, Object, Model) -> put_lasting(Kind, Object, default, Model).

%% Of an own time and the idle time of a table, the earlier one ends the object.
put_lasting(Kind, Object, Time, Model) ->
    Times = case Time of
                default -> {Object, after_now(1000), infinity};
                _ when Kind =:= ttl; Time =:= infinity -> {Object, after_now(Time), infinity};
                _ -> {Object, after_now(min(Time, 1000)), after_now(Time)}
            end,
    Model#{element(1, Object) => Times}.

%% A read moves the deadline where there is an idle time, if that becomes later by more than a sixteenth, or reaches the
%% own end.
used(ttl, _Key, Model) -> Model;
used(_Kind, Key, Model) ->
    case Model of
        #{Key := {Object, Deadline, End}} when Deadline =/= infinity ->
            Later = get(clock) + 1000,
            IsLater = Later - Deadline > 1000 div 16 orelse End =< Later,
            case min(Later, End) of
                New when IsLater, New > Deadline -> Model#{Key := {Object, New, End}};
                _ -> Model
            end;
        #{} -> Model
    end.

run(Step, Table, Kind, Model0) ->
    Model = living(Model0),
    [put({ended, Key}, Ended) || {Key, Ended} <- maps:to_list(maps:without(maps:keys(Model), Model0))],
    New = step(Step, Table, Kind, Model),
    compare(Table, living(New)),
    New.

step({insert, Object}, Table, Kind, Model) ->
    true = cats:insert(Table, Object),
    put_object(Kind, Object, Model);
step({insert, Object, Time}, Table, Kind, Model) ->
    true = cats:insert(Table, Object, #{ttl => Time}),
    put_lasting(Kind, Object, Time, Model);
%% An object with a time of its own is read twice, and perhaps touched in between.
step({own, Object, Time, Passed, Touch, PassedThen}, Table, Kind, Model) ->
    Key = element(1, Object),
    Steps = [{insert, Object, Time}, {pass, Passed}, {lookup, Key}] ++ [{touch, Key, Touch} || Touch =/= none]
        ++ [{pass, PassedThen}, {lookup, Key}],
    lists:foldl(fun(Step, M) -> run(Step, Table, Kind, M) end, Model, Steps);
step({insert_list, Objects}, Table, Kind, Model) ->
    true = cats:insert(Table, Objects),
    lists:foldl(fun(Object, M) -> put_object(Kind, Object, M) end, Model, Objects);
step({insert_new, Object}, Table, Kind, Model) ->
    IsNew = not is_map_key(element(1, Object), Model),
    ?assertEqual(IsNew, cats:insert_new(Table, Object)),
    case IsNew of
        true -> put_object(Kind, Object, Model);
        false -> Model
    end;
step({insert_new, Objects, Time}, Table, Kind, Model) ->
    New = lists:flatten([Objects]),
    IsNew = not lists:any(fun(Object) -> is_map_key(element(1, Object), Model) end, New),
    ?assertEqual(IsNew, cats:insert_new(Table, Objects, #{ttl => Time})),
    case IsNew of
        true -> lists:foldl(fun(Object, M) -> put_lasting(Kind, Object, Time, M) end, Model, New);
        false -> Model
    end;
step({touch, Key, Time}, Table, Kind, Model) ->
    ?assertEqual(is_map_key(Key, Model), cats:touch(Table, Key, Time)),
    case Model of
        #{Key := {Object, _, infinity}} when Kind =/= both -> Model#{Key := {Object, after_now(Time), infinity}};
        #{Key := {Object, _, _}} -> Model#{Key := {Object, after_now(Time), after_now(Time)}};
        #{} -> Model
    end;
step({fetch, Key, Time}, Table, Kind, Model) ->
    Object = cats:fetch(Table, Key, fun(_) -> {Key, fetched} end, #{ttl => Time}),
    case found(Key, Model) of
        [Found] ->
            ?assertEqual(Found, Object),
            used(Kind, Key, Model);
        [] ->
            ?assertEqual({Key, fetched}, Object),
            put_lasting(Kind, Object, Time, Model)
    end;
%% What a fetch finds. An object that has ended may be gone earlier.
step({fetched, Key, Stale}, Table, Kind, Model) ->
    case cats_nif:fetched(Table, Key, Stale, 0) of
        {Object, lives} ->
            ?assertEqual([Object], found(Key, Model));
        {Object, ended} ->
            ?assertEqual([], found(Key, Model)),
            {Ended, Deadline, _} = get({ended, Key}),
            ?assertEqual(Ended, Object),
            ?assert(get(clock) < Deadline + Stale);
        false ->
            ?assertEqual([], found(Key, Model))
    end,
    used(Kind, Key, Model);
step({delete, Key}, Table, _, Model) ->
    erase({ended, Key}),
    true = cats:delete(Table, Key),
    maps:remove(Key, Model);
step({take, Key}, Table, _, Model) ->
    ?assertEqual(found(Key, Model), cats:take(Table, Key)),
    maps:remove(Key, Model);
step({counter, Key, Increment}, Table, Kind, Model) ->
    case Model of
        #{Key := {Object, Deadline, End}} when tuple_size(Object) > 1, is_integer(element(2, Object)) ->
            Sum = element(2, Object) + Increment,
            ?assertEqual(Sum, cats:update_counter(Table, Key, {2, Increment})),
            Model#{Key := {setelement(2, Object, Sum), Deadline, End}};
        #{Key := _} ->
            ?assertError(badarg, cats:update_counter(Table, Key, {2, Increment})),
            Model;
        #{} ->
            ?assertEqual(7 + Increment, cats:update_counter(Table, Key, {2, Increment}, {Key, 7})),
            put_object(Kind, {Key, 7 + Increment}, Model)
    end;
step({element, Key, Value}, Table, _, Model) ->
    case Model of
        #{Key := {Object, Deadline, End}} when tuple_size(Object) > 1 ->
            true = cats:update_element(Table, Key, {2, Value}),
            Model#{Key := {setelement(2, Object, Value), Deadline, End}};
        #{Key := _} ->
            Model;
        #{} ->
            ?assertEqual(false, cats:update_element(Table, Key, {2, Value})),
            Model
    end;
step({replace, Key, Value}, Table, _, Model) ->
    case Model of
        #{Key := {Object, Deadline, End}} ->
            ?assertEqual(false, cats:replace(Table, {Key, other, other}, {Key, Value})),
            ?assertEqual(true, cats:replace(Table, Object, {Key, Value})),
            Model#{Key := {{Key, Value}, Deadline, End}};
        #{} ->
            ?assertEqual(false, cats:replace(Table, {Key, Value}, {Key, Value})),
            Model
    end;
step({update, Key, Value}, Table, _, Model) ->
    case Model of
        #{Key := {Object, Deadline, End}} ->
            ?assertEqual(keep, cats:update(Table, Key, fun(Old) when Old =:= Object -> keep end)),
            ?assertEqual({Key, Value}, cats:update(Table, Key, fun(Old) when Old =:= Object -> {Key, Value} end)),
            Model#{Key := {{Key, Value}, Deadline, End}};
        #{} ->
            ?assertEqual(false, cats:update(Table, Key, fun(_) -> error(called) end)),
            Model
    end;
step({select, Key}, Table, _, Model) ->
    ?assertEqual(found(Key, Model),
                 cats:select(Table, [{Pattern, [], ['$_']} || Pattern <- [{Key}, {Key, '_'}, {Key, '_', '_'}]])),
    Model;
step({lookup, Key}, Table, Kind, Model) ->
    ?assertEqual(found(Key, Model), cats:lookup(Table, Key)),
    used(Kind, Key, Model);
step({many, Keys}, Table, Kind, Model) ->
    ?assertEqual([found(Key, Model) || Key <- Keys], cats:lookup_many(Table, Keys)),
    lists:foldl(fun(Key, M) -> used(Kind, Key, M) end, Model, Keys);
step({pass, Time}, _Table, _, Model) ->
    pass(Time),
    Model;
step(all, Table, _, Model) ->
    walk(Table, Model),
    Model;
step(replace_all, Table, _, Model) ->
    Spec = [{{'$1', '$2'}, [{is_integer, '$2'}], [{{'$1', {'+', '$2', 1}}}]}],
    IsCounter = fun(_, {Object, _, _}) -> tuple_size(Object) =:= 2 andalso is_integer(element(2, Object)) end,
    Counters = maps:filter(IsCounter, Model),
    ?assertEqual(map_size(Counters), cats:select_replace(Table, Spec)),
    More = fun(_, {{Key, Value}, Deadline, End}) -> {{Key, Value + 1}, Deadline, End} end,
    maps:merge(Model, maps:map(More, Counters));
step({transaction, Object}, Table, Kind, Model) ->
    Key = element(1, Object),
    Found = found(Key, Model),
    ?assertEqual({atomic, Found}, cats_transaction:run(fun() ->
                                                              Read = cats_transaction:read(Table, Key),
                                                              cats_transaction:insert(Table, Object),
                                                              Read
                                                      end)),
    put_object(Kind, Object, Model);
step({read, Key}, Table, Kind, Model) ->
    ?assertEqual({atomic, found(Key, Model)},
                 cats_transaction:run(fun() -> cats_transaction:read(Table, Key) end)),
    used(Kind, Key, Model);
%% A read of a snapshot is none of the table, and the time of a snapshot stands still.
step({snapshot, Key, Time}, Table, _, Model) ->
    Snapshot = cats:snapshot(Table),
    true = cats:insert(Table, {other, 1}, #{ttl => Time}),
    true = cats:delete(Table, other),
    pass(Time),
    ?assertEqual(found(Key, Model), cats:lookup(Snapshot, Key)),
    ?assertEqual(lists:sort([Object || {Object, _, _} <- maps:values(Model)]), lists:sort(cats:tab2list(Snapshot))),
    true = cats:delete(Snapshot),
    Model;
step(delete_all, Table, _, _Model) ->
    forget_ended(),
    true = cats:delete_all_objects(Table),
    #{}.

forget_ended() -> [erase(Key) || {ended, _} = Key <- get_keys()].

found(Key, Model) ->
    case Model of
        #{Key := {Object, _, _}} -> [Object];
        #{} -> []
    end.

%% Nothing here counts as a read, so nothing changes.
compare(Table, Model) ->
    Objects = lists:sort([Object || {Object, _, _} <- maps:values(Model)]),
    ?assertEqual(Objects, lists:sort(cats:tab2list(Table))),
    ?assertEqual(map_size(Model), cats:info(Table, size)),
    [?assertEqual({Key, case Deadline of infinity -> infinity; _ -> Deadline - get(clock) end},
                  {Key, cats:ttl(Table, Key)})
     || {Key, {_, Deadline, _}} <- maps:to_list(Model)],
    [?assertEqual({Key, undefined}, {Key, cats:ttl(Table, Key)})
     || Key <- [1, {1}, a, 2.5, <<"a binary">>], not is_map_key(Key, Model)].

walk(Table, Model) ->
    Keys = lists:sort(maps:keys(Model)),
    Walked = fun(Step, First) ->
                     (fun Walk('$end_of_table') -> [];
                          Walk(Key) -> [Key | Walk(cats:Step(Table, Key))]
                      end)(cats:First(Table))
             end,
    [?assertEqual(Keys, lists:sort(Walked(Step, First))) || {Step, First} <- [{next, first}, {prev, last}]],
    ?assertEqual(Keys, lists:sort(cats:foldl(fun(Object, Acc) -> [element(1, Object) | Acc] end, [], Table))),
    ?assertEqual(map_size(Model), cats:select_count(Table, [{'_', [], [true]}])),
    ?assertEqual(map_size(Model), length(in_chunks(cats:select(Table, [{'_', [], ['$_']}], 2)))),
    case cats:info(Table, type) of
        ordered_set ->
            ?assertEqual(Keys, Walked(next, first)),
            ?assertEqual(length(Keys), cats:count(Table, #{})),
            [?assertEqual(element(1, cats:nth(Table, N - 1)), lists:nth(N, Keys)) || N <- lists:seq(1, length(Keys))],
            ?assertEqual(Keys, [element(1, Object) || Object <- cats:range(Table, #{}, infinity)]);
        set -> ok
    end,
    ?assertEqual(map_size(Model), length(slots(Table, 0))),
    ok.

in_chunks('$end_of_table') -> [];
in_chunks({Objects, Continuation}) -> Objects ++ in_chunks(cats:select(Continuation)).

slots(Table, Number) ->
    case cats:slot(Table, Number) of
        '$end_of_table' -> [];
        Objects -> Objects ++ slots(Table, Number + 1)
    end.

%%------------------------------------------------------------------------------------------------------------
%% Options and errors

options(_Config) ->
    Table = cats:new(t, [{ttl, 10}]),
    ?assertEqual({10, infinity}, {cats:info(Table, ttl), cats:info(Table, idle)}),
    ?assertEqual({infinity, 10}, begin T = cats:new(t, [{idle, 10}]), {cats:info(T, ttl), cats:info(T, idle)} end),
    ?assertEqual({20, 10},
                 begin T = cats:new(t, [{idle, 10}, {ttl, 20}]), {cats:info(T, ttl), cats:info(T, idle)} end),
    ?assertEqual({undefined, undefined}, begin T = cats:new(t, []), {cats:info(T, ttl), cats:info(T, idle)} end),
    Forever = cats:new(t, [ordered_set, {ttl, infinity}]),
    true = cats:insert(Forever, {1}),
    true = cats:insert(Forever, {2}, #{ttl => 60000}),
    ?assertMatch({infinity, Left} when Left > 50000, {cats:ttl(Forever, 1), cats:ttl(Forever, 2)}),
    true = cats:insert(Forever, {2}, #{}),
    ?assertEqual(infinity, cats:ttl(Forever, 2)).

explanations(_Config) ->
    Only = #{2 => <<"objects expire only in tables of type set and ordered_set, with the default engine and not "
                    "compressed">>},
    [?assertEqual(Only, cats_test_lib:remarks(new, [t, [{ttl, 10} | Options]]))
     || Options <- [[bag], [duplicate_bag], [compressed], [{engine, std_hash}], [ordered_set, {engine, avl}]]],
    [?assertMatch(#{2 := <<"invalid option: ", _/binary>>}, cats_test_lib:remarks(new, [t, [{Key, Value}]]))
     || Key <- [ttl, idle], Value <- [0, -1, 1.5, never, 1 bsl 70]],
    Longest = 1 bsl 40 - 1,
    ?assertEqual(#{2 => <<"invalid option: {ttl,1099511627776} (valid: {ttl, 1 to 1099511627775 milliseconds, or "
                          "infinity})">>},
                 cats_test_lib:remarks(new, [t, [{ttl, Longest + 1}]])),
    Lasting = cats:new(t, [{ttl, Longest}]),
    true = cats:insert(Lasting, {1, x}, #{ttl => Longest}),
    ?assertEqual({Longest, true}, {cats:info(Lasting, ttl), cats:ttl(Lasting, 1) > Longest - 60_000}),
    Plain = cats:new(t, []),
    Lacks = #{1 => <<"objects of the table cannot expire: create it with option ttl or idle">>},
    [?assertEqual(Lacks, cats_test_lib:remarks(Function, Arguments))
     || {Function, Arguments} <- [{insert, [Plain, {1}, #{ttl => 1}]}, {insert_new, [Plain, {1}, #{ttl => 1}]},
                                   {touch, [Plain, 1, 1]}, {ttl, [Plain, 1]}]],
    Never = #{1 => <<"objects expire only in tables of type set and ordered_set, with the default engine and not "
                     "compressed">>},
    [?assertEqual(Never, cats_test_lib:remarks(insert, [cats:new(t, Options), {1}, #{ttl => 1}]))
     || Options <- [[bag], [duplicate_bag], [compressed], [ordered_set, compressed]]],
    Table = cats:new(t, [{ttl, 10}]),
    NoTime = #{3 => <<"neither from 1 to 1099511627775 milliseconds nor infinity">>},
    [?assertEqual(NoTime, cats_test_lib:remarks(Function, Arguments))
     || Time <- [0, -1, 1.0, never, 1 bsl 40, 1 bsl 60],
        {Function, Arguments} <- [{insert, [Table, {1}, #{ttl => Time}]}, {insert_new, [Table, {1}, #{ttl => Time}]},
                                  {touch, [Table, 1, Time]}]],
    ?assertEqual(#{3 => <<"not a map with ttl: from 1 to 1099511627775 milliseconds, or infinity">>},
                 cats_test_lib:remarks(insert, [Table, {1}, #{idle => 1}])),
    ?assertEqual(cats_test_lib:remarks(insert, [Table, {1}, #{idle => 1}]),
                 cats_test_lib:remarks(insert_new, [Table, {1}, #{idle => 1}])),
    ?assertError(badarg, cats:insert(Table, {1}, [])),
    ?assertError(badarg, cats:insert_new(Table, {1}, [])),
    ?assertMatch(#{2 := _}, cats_test_lib:remarks(insert_new, [Table, not_a_tuple, #{ttl => 1}])),
    ?assertMatch(#{2 := _}, cats_test_lib:remarks(insert, [Table, not_a_tuple, #{ttl => 1}])),
    true = cats:delete(Table),
    [?assertMatch(#{1 := _}, cats_test_lib:remarks(Function, Arguments))
     || {Function, Arguments} <- [{insert, [Table, {1}, #{ttl => 1}]}, {touch, [Table, 1, 1]}, {ttl, [Table, 1]}]],
    Protected = cats_test_lib:in_process(fun() ->
                                                 T = cats:new(t, [{ttl, 10}, {heir, self(), x}]),
                                                 cats:info(T, protection)
                                         end),
    ?assertEqual(protected, Protected).

%%------------------------------------------------------------------------------------------------------------
%% Times

%% Of an own time and that of the table, the earlier one ends an object, whatever is read and updated.
own_time_and_idle(_Config) ->
    stop_clock(),
    Big = binary:copy(<<"long">>, 1000),
    [begin
         Table = cats:new(t, [Type, public, {idle, 1000} | Options]),
         Left = fun(Key) -> cats:ttl(Table, Key) end,
         true = cats:insert(Table, {a, 1, Value}, #{ttl => 2500}),
         true = cats:insert(Table, [{b, 1, Value}, {c, 1, Value}], #{ttl => 100}),
         true = cats:insert_new(Table, {d, 1, Value}, #{ttl => 2500}),
         {e, 1, _} = cats:fetch(Table, e, fun(e) -> {e, 1, Value} end, #{ttl => 2500}),
         true = cats:insert(Table, {f, 1, Value}),
         true = cats:insert(Table, {g, 1, Value}, #{ttl => 1030}),
         ?assertEqual([1000, 100, 100, 1000, 1000, 1000], [Left(Key) || Key <- [a, b, c, d, e, f]]),
         _ = [[_] = cats:lookup(Table, Key) || Key <- [a, b, c, d, e, f]],
         ?assertEqual([1000, 100, 100, 1000, 1000, 1000], [Left(Key) || Key <- [a, b, c, d, e, f]]),
         pass(99),
         ?assert(cats:member(Table, b)),
         ?assertEqual(1, Left(b)),
         pass(1),
         ?assertEqual([], cats:lookup(Table, b)),
         pass(800),
         [_] = cats:lookup(Table, g),
         ?assertEqual(130, Left(g)),
         %% A shorter time, too, holds from then on.
         true = cats:touch(Table, g, 50),
         [_] = cats:lookup(Table, g),
         ?assertEqual(50, Left(g)),
         true = cats:delete(Table, g),
         Updates = #{a => fun() -> 2 = cats:update_counter(Table, a, {2, 1}) end,
                     d => fun() -> true = cats:update_element(Table, d, [{2, 7}, {3, Big}]) end,
                     e => fun() -> {e, 8, Big} = cats:update(Table, e, fun({e, 1, _}) -> {e, 8, Big} end) end,
                     f => fun() -> 2 = cats:update_counter(Table, f, {2, 1}) end},
         _ = [Update() || Update <- maps:values(Updates)],
         1 = cats:select_replace(Table, [{{e, '$1', '$2'}, [], [{{e, '$1', '$2', x}}]}]),
         true = cats:replace(Table, {e, 8, Big, x}, {e, 8, Big}),
         Snapshot = cats:snapshot(Table),
         {atomic, [_]} = cats_transaction:run(fun() -> cats_transaction:read(Table, a) end),
         _ = [[_] = cats:lookup(Table, Key) || Key <- [d, e, f]],
         ?assertEqual([1000, 1000, 1000, 1000], [Left(Key) || Key <- [a, d, e, f]]),
         pass(900),
         _ = [[_] = cats:lookup(Table, Key) || Key <- [a, d, e, f]],
         %% The own end is near now.
         ?assertEqual([700, 700, 700, 1000], [Left(Key) || Key <- [a, d, e, f]]),
         %% A touch gives a new own time, also a longer one, and a write the time of the table.
         true = cats:touch(Table, a, 1500),
         true = cats:insert(Table, {d, 9, Value}),
         ?assertEqual([1500, 1000], [Left(Key) || Key <- [a, d]]),
         pass(699),
         _ = [[_] = cats:lookup(Table, Key) || Key <- [a, d, e, f]],
         ?assertEqual([801, 1000, 1, 1000], [Left(Key) || Key <- [a, d, e, f]]),
         pass(1),
         ?assertEqual([[], [{f, 2, Value}]], [cats:lookup(Table, Key) || Key <- [e, f]]),
         pass(800),
         ?assertEqual([[], [{d, 9, Value}], [{f, 2, Value}]], [cats:lookup(Table, Key) || Key <- [a, d, f]]),
         pass(1000),
         ?assertEqual({0, []}, {cats:info(Table, size), cats:tab2list(Table)}),
         %% The last read reaches the own end, however near that is.
         true = cats:insert(Table, {g, 1, Value}, #{ttl => 1030}),
         pass(40),
         [_] = cats:lookup(Table, g),
         ?assertEqual(990, Left(g)),
         ?assertEqual([{a, 2, Value}, {d, 7, Big}, {e, 8, Big}, {f, 2, Value}], lists:sort(cats:tab2list(Snapshot))),
         true = cats:delete(Snapshot),
         true = cats:delete(Table)
     end || Type <- types(), Options <- [[], [{limit, {objects, 100}}], [{limit, {bytes, 1000000}}]],
            Value <- [x, 1.5, <<"text">>, Big, fun() -> Big end, lists:seq(1, 3000)]].

%% By the clock of the system.
times(_Config) ->
    [begin
         Table = cats:new(t, [Type, {ttl, 60}]),
         Start = cats_test_lib:clock(),
         true = cats:insert(Table, {1, a, b}),
         Inserted = cats_test_lib:clock(),
         {Last, First} = until_gone(Table, Start),
         ct:log("~p: found after ~b us, gone after ~b us", [Type, Last - Inserted, First - Start]),
         %% The time is one of whole milliseconds.
         ?assert(Last - Inserted =< 60000),
         ?assert(First - Start >= 59000)
     end || Type <- types()].

%% When a lookup that found the object began, and when the first one that did not find it had ended.
until_gone(Table, Last) ->
    Begin = cats_test_lib:clock(),
    case cats:lookup(Table, 1) of
        [_] -> until_gone(Table, Begin);
        [] -> {Last, cats_test_lib:clock()}
    end.

idle(_Config) ->
    [begin
         stop_clock(),
         Table = cats:new(t, [Type, {idle, 160}]),
         true = cats:insert(Table, [{N, N} || N <- lists:seq(1, 9)]),
         true = cats:insert(Table, {forever}, #{ttl => infinity}),
         true = cats:insert(Table, {long}, #{ttl => 10000}),
         Reads = [fun(T) -> [_] = cats:lookup(T, 1) end, fun(T) -> 2 = cats:lookup_element(T, 2, 2) end,
                  fun(T) -> true = cats:member(T, 3) end, fun(T) -> [[_]] = cats:lookup_many(T, [4]) end,
                  fun(T) -> {5, 5} = cats:fetch(T, 5, fun(_) -> error(none) end) end,
                  fun(T) -> {atomic, [_]} = cats_transaction:run(fun() -> cats_transaction:read(T, 6) end) end],
         [begin
              pass(100),
              [Read(Table) || Read <- Reads],
              [_] = cats:lookup(Table, long)
          end || _ <- lists:seq(1, 20)],
         ?assertEqual([1, 2, 3, 4, 5, 6, forever, long],
                      lists:sort([element(1, Object) || Object <- cats:tab2list(Table)])),
         ?assertEqual({160, infinity, 160}, {cats:ttl(Table, 1), cats:ttl(Table, forever), cats:ttl(Table, long)}),
         %% By less than a sixteenth.
         pass(10),
         [_] = cats:lookup(Table, 1),
         ?assertEqual(150, cats:ttl(Table, 1)),
         pass(1),
         [_] = cats:lookup(Table, 1),
         ?assertEqual(160, cats:ttl(Table, 1)),
         pass(160),
         ?assertEqual([{forever}], cats:tab2list(Table))
     end || Type <- types()].

%% Which functions count as reads, and make the time longer. All others leave it as it is.
renewals(Config) ->
    File = filename:join(?config(priv_dir, Config), "table"),
    [begin
         stop_clock(),
         Table = cats:new(t, [Type, public, {idle, 1600}]),
         Left = fun(Call, Key) ->
                        true = cats:insert(Table, {Key, 1, a}),
                        pass(1000),
                        _ = Call(Table, Key),
                        cats:ttl(Table, Key)
                end,
         Others = no_reads(File) ++ [Call || Type =:= ordered_set, Call <- in_order()],
         ?assertEqual({Type, []}, {Type, [{Name, Key, Time} || {Expected, Calls} <- [{1600, reads()}, {600, Others}],
                                                               {Name, Call} <- Calls, Key <- [key, {a, <<"key">>}],
                                                               Time <- [Left(Call, Key)], Time =/= Expected]}),
         true = cats:delete_all_objects(Table),
         %% A read in a transaction counts when it is made, and not once more when the transaction looks whether it
         %% still holds.
         true = cats:insert(Table, {key}),
         {atomic, true} = cats_transaction:run(fun() ->
                                                       [_] = cats_transaction:read(Table, key),
                                                       pass(500),
                                                       [] = cats_transaction:read(Table, other),
                                                       cats_transaction:insert(Table, {third})
                                               end),
         ?assertEqual({Type, 1100}, {Type, cats:ttl(Table, key)}),
         true = cats:delete(Table)
     end || Type <- types()].

reads() ->
    [{lookup, fun(T, K) -> [_] = cats:lookup(T, K) end},
     {lookup_many, fun(T, K) -> [[_], []] = cats:lookup_many(T, [K, other]) end},
     {lookup_element, fun(T, K) -> 1 = cats:lookup_element(T, K, 2) end},
     {lookup_element, fun(T, K) -> 1 = cats:lookup_element(T, K, 2, default) end},
     {lookup_elements, fun(T, K) -> [1, a] = cats:lookup_elements(T, K, [2, 3]) end},
     {member, fun(T, K) -> true = cats:member(T, K) end},
     {fetch, fun(T, K) -> {K, 1, a} = cats:fetch(T, K, fun(_) -> error(called) end) end},
     {fetch, fun(T, K) -> {K, 1, a} = cats:fetch(T, K, fun(_) -> error(called) end, #{ttl => 10}) end},
     {transaction, fun(T, K) -> {atomic, [_]} = cats_transaction:run(fun() -> cats_transaction:read(T, K) end) end},
     {long_transaction, fun(T, K) ->
                                Read = fun() ->
                                               [[] = cats_transaction:read(T, {none, N}) || N <- lists:seq(1, 100)],
                                               cats_transaction:read(T, K)
                                       end,
                                {atomic, [_]} = cats_transaction:run(Read)
                        end},
     {transaction, fun(T, K) -> {atomic, true} = cats_transaction:run(fun() -> cats_transaction:member(T, K) end) end},
     {transaction, fun(T, K) ->
                           Spec = [{{K, '_', '_'}, [], ['$_']}],
                           {atomic, [_]} = cats_transaction:run(fun() -> cats_transaction:select(T, Spec) end)
                   end},
     {transaction, fun(T, K) ->
                           {atomic, [_]} = cats_transaction:run(fun() ->
                                                                        [] = cats_transaction:read(T, other),
                                                                        cats_transaction:read(T, K)
                                                                end)
                   end}].

no_reads(File) ->
    Spec = fun(K, Result) -> [{{K, '_', '_'}, [], [Result]}] end,
    [{select, fun(T, K) -> [_] = cats:select(T, Spec(K, '$_')) end},
     {select, fun(T, K) -> {[_], _} = cats:select(T, Spec(K, '$_'), 1) end},
     {select_of_keys, fun(T, K) -> [_] = cats:select(T, Spec(K, '$_') ++ Spec(other, '$_')) end},
     {select_reverse, fun(T, K) -> [_] = cats:select_reverse(T, Spec(K, '$_')) end},
     {select_count, fun(T, K) -> 1 = cats:select_count(T, Spec(K, true)) end},
     {select_delete, fun(T, K) -> 0 = cats:select_delete(T, Spec(K, false)) end},
     {select_replace, fun(T, K) -> 1 = cats:select_replace(T, Spec(K, '$_')) end},
     {select_replace, fun(T, K) -> 0 = cats:select_replace(T, [{{K, 2, '_'}, [], ['$_']}]) end},
     {match, fun(T, K) -> [[1, a]] = cats:match(T, {K, '$1', '$2'}) end},
     {match, fun(T, K) -> {[[1, a]], _} = cats:match(T, {K, '$1', '$2'}, 1) end},
     {match_object, fun(T, K) -> [_] = cats:match_object(T, {K, '_', '_'}) end},
     {match_object, fun(T, K) -> {[_], _} = cats:match_object(T, {K, '_', '_'}, 1) end},
     {match_delete, fun(T, K) -> true = cats:match_delete(T, {K, 2, '_'}) end},
     {walk, fun(T, K) -> K = cats:first(T), '$end_of_table' = cats:next(T, K), '$end_of_table' = cats:prev(T, K) end},
     {walk, fun(T, K) -> {K, [_]} = cats:first_lookup(T), {K, [_]} = cats:last_lookup(T) end},
     {foldl, fun(T, _) -> 1 = cats:foldl(fun(_, N) -> N + 1 end, 0, T) end},
     {tab2list, fun(T, _) -> [_] = cats:tab2list(T) end},
     {slot, fun(T, _) -> [_] = slots(T, 0) end},
     {tab2file, fun(T, _) -> ok = cats:tab2file(T, File) end},
     {info, fun(T, _) -> 1 = cats:info(T, size) end},
     {snapshot, fun(T, K) ->
                        S = cats:snapshot(T),
                        [_] = cats:lookup(S, K),
                        true = cats:member(S, K),
                        true = cats:delete(S)
                end},
     {update, fun(T, K) -> keep = cats:update(T, K, fun(_) -> keep end) end},
     {update, fun(T, K) -> {K, 2, a} = cats:update(T, K, fun(Object) -> setelement(2, Object, 2) end) end},
     {update, fun(T, K) -> keep = cats:update(T, K, fun({_, 1, a}) -> keep end, {K, 0, b}) end},
     {update, fun(T, K) -> {K, 2, a} = cats:update(T, K, fun(Object) -> setelement(2, Object, 2) end, {K, 0, b}) end},
     {update_fails, fun(T, K) -> {'EXIT', failed} = catch cats:update(T, K, fun(_) -> exit(failed) end) end},
     {insert_new, fun(T, K) -> false = cats:insert_new(T, {K, 2, b}) end},
     {insert_new, fun(T, K) -> false = cats:insert_new(T, {K, [2], b}) end},
     {insert_new, fun(T, K) -> false = cats:insert_new(T, [{K, 2, b}]) end},
     {insert_new, fun(T, K) -> false = cats:insert_new(T, [{other, 2, b}, {K, 2, b}]) end},
     {replace, fun(T, K) -> true = cats:replace(T, {K, 1, a}, {K, 2, b}) end},
     {replace, fun(T, K) -> false = cats:replace(T, {K, 2, a}, {K, 2, b}) end},
     {replace, fun(T, K) -> false = cats:replace(T, {K, [2], a}, {K, 2, b}) end},
     {add, fun(T, K) -> 2 = cats:add(T, K, {2, 1}) end},
     {add, fun(T, K) -> [] = cats:add(T, K, []) end},
     {update_counter, fun(T, K) -> 2 = cats:update_counter(T, K, {2, 1}) end},
     {update_counter, fun(T, K) -> [] = cats:update_counter(T, K, []) end},
     {update_element, fun(T, K) -> true = cats:update_element(T, K, {2, [1]}) end},
     {update_element, fun(T, K) -> true = cats:update_element(T, K, []) end},
     {delete_object, fun(T, K) -> true = cats:delete_object(T, {K, 2, a}) end}].

in_order() ->
    [{next, fun(T, K) -> {K, [_]} = cats:next_lookup(T, 1), K = cats:next(T, 1) end},
     {prev, fun(T, K) -> {K, [_]} = cats:prev_lookup(T, <<1>>), K = cats:prev(T, <<1>>) end},
     {range, fun(T, _) -> [_] = cats:range(T, #{}, infinity) end},
     {nth, fun(T, K) -> {K, _, _} = cats:nth(T, 0) end},
     {rank, fun(T, K) -> 0 = cats:rank(T, K), 1 = cats:count(T, #{}) end},
     {transaction, fun(T, K) -> {atomic, K} = cats_transaction:run(fun() -> cats_transaction:first(T) end) end},
     {transaction,
      fun(T, K) -> {atomic, [_]} = cats_transaction:run(fun() -> cats_transaction:range(T, K, K, infinity) end) end}].

%%------------------------------------------------------------------------------------------------------------
%% Walks and counts

%% Every second object has expired. The reaper may or may not have removed them.
walks(_Config) ->
    [begin
         stop_clock(),
         Table = cats:new(t, [Type, public, {ttl, 1000}]),
         [true = cats:insert(Table, {Shape(N), N}, #{ttl => 100 + 10000 * (N rem 2)}) || N <- lists:seq(1, 4000)],
         Living = lists:sort([Shape(N) || N <- lists:seq(1, 4000, 2)]),
         pass(100),
         Spec = [{{'_', '$1'}, [{'<', '$1', 100}], ['$1']}],
         ?assertEqual(lists:seq(1, 99, 2), lists:sort(cats:select(Table, Spec))),
         ?assertEqual(Living, lists:sort([Key || [{Key}] <- walked(next, first, Table)])),
         ?assertEqual(Living, lists:sort([Key || [{Key}] <- walked(prev, last, Table)])),
         ?assertEqual(2000, cats:info(Table, size)),
         ?assertEqual(2000, cats:foldl(fun(_, N) -> N + 1 end, 0, Table)),
         ?assertEqual(50, cats:select_delete(Table, [{{'_', '$1'}, [{'<', '$1', 100}], [true]}])),
         ?assertEqual(1950, cats:info(Table, size)),
         true = cats:delete(Table)
     end || Type <- types(), Shape <- [fun(N) -> N end, fun(N) -> {key, N} end]].

walked(Step, First, Table) ->
    (fun Walk('$end_of_table') -> []; Walk(Key) -> [[{Key}] | Walk(cats:Step(Table, Key))] end)(cats:First(Table)).

%% Who asks for the size of a table in which much has expired removes it in slices, and takes no dirty scheduler. Each
%% of them is counted.
counted_in_slices(_Config) ->
    [begin
         stop_clock(),
         Table = cats:new(t, [Type, public, {ttl, 1000}]),
         true = cats:insert(Table, {0, 0}, #{ttl => 10000}),
         [true = cats:insert(Table, {N, N}) || N <- lists:seq(1, 100000)],
         pass(2000),
         ?assertEqual({0, {1, 1}},
                      cats_test_lib:native_calls([dirty], fun() -> {Ask(Table), cats:info(Table, size)} end)),
         ct:log("~p slices", [maps:get(slices, cats:stats(Table))]),
         true = cats:delete(Table)
     end || {Type, Ask} <- [{set, fun(T) -> cats:info(T, size) end}, {ordered_set, fun(T) -> cats:info(T, size) end},
                            {ordered_set, fun(T) -> cats:count(T, #{}) end},
                            {set, fun(T) -> cats:info(T, memory), 1 end},
                            {ordered_set, fun(T) -> cats:rank(T, 1) end}]].

%% So many expired objects in a row that a step does not pass them at once.
long_dead_stretch(_Config) ->
    [begin
         stop_clock(),
         Table = cats:new(t, [Type, public, {ttl, 10}]),
         true = cats:insert(Table, {0}, #{ttl => 10000}),
         true = cats:insert_many(Table, [{N} || N <- lists:seq(1, 200000)]),
         true = cats:insert(Table, {200001}, #{ttl => 10000}),
         pass(10),
         ?assertEqual([0, 200001], lists:sort([Key || [{Key}] <- walked(next, first, Table)])),
         ?assertEqual(2, cats:info(Table, size)),
         Type =:= ordered_set andalso ?assertEqual({2, {200001}}, {cats:count(Table, #{}), cats:nth(Table, 1)}),
         true = cats:delete(Table)
     end || Type <- types()].

%%------------------------------------------------------------------------------------------------------------
%% With the rest of cats

updates_keep_the_time(_Config) ->
    stop_clock(),
    [begin
         Table = cats:new(t, [Type, public, {ttl, 1000}]),
         Long = lists:seq(1, 100),
         true = cats:insert(Table, [{1, 1, a}, {2, Long, 1.5}]),
         pass(400),
         _ = [cats:update_counter(Table, 1, {2, N}) || N <- [1, 2, 3]],
         _ = [cats:update_counter(Table, 1, [{2, N}, {2, 1 bsl 70}]) || N <- [1, 2]],
         _ = cats:add(Table, 2, {3, 1.5}),
         true = cats:update_element(Table, 2, [{2, <<"text">>}, {3, fun() -> Long end}]),
         {2, _, _} = cats:update(Table, 2, fun({2, _, F}) -> {2, F, Long} end),
         1 = cats:select_replace(Table, [{{1, '_', a}, [], [{{1, 5, b}}]}]),
         ?assertEqual({600, 600}, {cats:ttl(Table, 1), cats:ttl(Table, 2)}),
         true = cats:insert(Table, {1, 1}),
         ?assertEqual(1000, cats:ttl(Table, 1)),
         pass(600),
         ?assertEqual([{1, 1}], cats:tab2list(Table)),
         pass(400),
         ?assertEqual([], cats:tab2list(Table)),
         ?assertEqual(5, cats:update_counter(Table, 1, {2, 1}, {x, 4})),
         ?assertEqual(1000, cats:ttl(Table, 1)),
         true = cats:delete(Table)
     end || Type <- types()].

%% A snapshot shows what lived at its instant, whatever the reaper removes and writers change.
snapshots(_Config) ->
    [begin
         stop_clock(),
         Table = cats:new(t, [Type, public, {ttl, 1000}]),
         Held = fun() -> Type end,
         true = cats:insert(Table, [{N, N, Held} || N <- lists:seq(1, 500)], #{ttl => 100}),
         true = cats:insert(Table, [{N, N} || N <- lists:seq(501, 1000)], #{ttl => 200}),
         First = cats:snapshot(Table),
         pass(100),
         Second = cats:snapshot(Table),
         ?assertEqual(500, cats:info(Table, size)),
         true = cats:touch(Table, 501, 5000),
         true = cats:insert(Table, {502, new}),
         true = cats:insert(Table, {1, new}),
         true = cats:delete(Table, 503),
         pass(100),
         [begin
              ?assertEqual(lists:seq(From, 1000),
                           lists:sort([element(1, Object) || Object <- cats:tab2list(Snapshot)])),
              ?assertEqual(1001 - From, cats:info(Snapshot, size)),
              ?assertEqual([{502, 502}], cats:lookup(Snapshot, 502)),
              ?assertEqual(From =:= 1, cats:member(Snapshot, 2)),
              ?assertEqual(lists:seq(From, 1000), lists:sort([Key || [{Key}] <- walked(next, first, Snapshot)])),
              ?assertError(badarg, cats:ttl(Snapshot, 501)),
              Type =:= ordered_set andalso ?assertEqual(1001 - From, cats:count(Snapshot, #{}))
          end || _ <- [now, later], {Snapshot, From} <- [{First, 1}, {Second, 501}],
                 begin cats:info(Table, size), true end],
         ?assertEqual([1, 501, 502], lists:sort([element(1, Object) || Object <- cats:tab2list(Table)])),
         true = cats:delete(Second),
         ?assertEqual(1000, cats:info(First, size)),
         true = cats:delete(First),
         true = cats:delete(Table)
     end || Type <- types()].

%% A transaction steps over what has expired and is not freed yet.
steps_of_transactions(_Config) ->
    stop_clock(),
    Step = fun(Function, Arguments) ->
                   {atomic, Key} = cats_transaction:run(fun() -> apply(cats_transaction, Function, Arguments) end),
                   Key
           end,
    [begin
         Table = cats:new(t, [ordered_set, {ttl, 1000}]),
         true = cats:insert(Table, [{Key, old} || Key <- lists:seq(1, Number)]),
         true = cats:insert(Table, [{Key, new} || Key <- [0.5, Number div 2, Number + 0.5]], #{ttl => 5000}),
         pass(1000),
         ?assertEqual(0.5, Step(first, [Table])),
         ?assertEqual(Number div 2, Step(next, [Table, 0.5])),
         ?assertEqual(Number + 0.5, Step(next, [Table, Number div 2])),
         ?assertEqual(Number div 2, Step(prev, [Table, Number + 0.5])),
         ?assertEqual(Number + 0.5, Step(last, [Table])),
         true = cats:delete(Table)
     end || Number <- [4, 10, 1000, 10000]],
    ok.

%% What was read must live at the commit.
transactions(_Config) ->
    [begin
         stop_clock(),
         Table = cats:new(t, [Type, public, {ttl, 1000}]),
         Other = cats:new(t, [public]),
         true = cats:insert(Table, {1, a}),
         Runs = counters:new(1, []),
         Outcome = cats_transaction:run(fun() ->
                                                counters:add(Runs, 1, 1),
                                                Read = cats_transaction:read(Table, 1),
                                                counters:get(Runs, 1) =:= 1 andalso pass(1000),
                                                cats_transaction:insert(Other, {result, Read}),
                                                Read
                                        end),
         ?assertEqual({{atomic, []}, 2, [{result, []}]}, {Outcome, counters:get(Runs, 1), cats:tab2list(Other)}),
         %% A touch is a change.
         true = cats:insert(Table, {1, a}),
         {atomic, [{1, a}]} = cats_transaction:run(fun() -> cats_transaction:read(Table, 1) end),
         {atomic, _} = cats_transaction:run(fun() ->
                                                    cats_transaction:insert(Table, {2, b}),
                                                    cats_transaction:delete(Table, 1)
                                            end),
         ?assertEqual({undefined, 1000}, {cats:ttl(Table, 1), cats:ttl(Table, 2)}),
         pass(1000),
         {atomic, []} = cats_transaction:run(fun() -> cats_transaction:read(Table, 2) end),
         ?assertEqual(0, cats:info(Table, size)),
         true = cats:delete(Table)
     end || Type <- types()].

fetch(_Config) ->
    stop_clock(),
    Table = cats:new(t, [public, {ttl, 1000}]),
    Make = fun(Key) -> {Key, make_ref()} end,
    Object = cats:fetch(Table, key, Make),
    ?assertEqual(Object, cats:fetch(Table, key, Make)),
    pass(1000),
    Next = cats:fetch(Table, key, Make),
    ?assertNotEqual(Object, Next),
    ?assertEqual(1000, cats:ttl(Table, key)).

%% An object that ends before the one that it replaced would have gone is counted out at its own end.
in_place_of_a_kept_object(_Config) ->
    stop_clock(),
    [begin
         Table = cats:new(t, [Type, public, {ttl, 1000}]),
         {key, 1} = cats:fetch(Table, key, fun(Key) -> {Key, 1} end, #{stale => 60000}),
         pass(1000),
         ?assertEqual(0, cats:info(Table, size)),
         true = cats:insert(Table, {key, 2}, #{ttl => 10}),
         ?assertEqual(1, cats:info(Table, size)),
         pass(10),
         ?assertEqual(0, cats:info(Table, size)),
         true = cats:delete(Table)
     end || Type <- types()].

files(Config) ->
    stop_clock(),
    File = filename:join(?config(priv_dir, Config), "table"),
    [begin
         Table = cats:new(t, [Type | times_of(Kind)]),
         true = cats:insert(Table, {1, a}),
         true = cats:insert(Table, {2, b}, #{ttl => infinity}),
         true = cats:insert(Table, {3, c}, #{ttl => 200}),
         true = cats:insert(Table, {4, d}, #{ttl => 1300}),
         pass(100),
         ok = cats:tab2file(Table, File, Options),
         {ok, Read} = cats:file2tab(File, [{verify, true}]),
         ?assertEqual({[cats:info(Table, Item) || Item <- [ttl, idle]], [{1, a}, {2, b}, {3, c}, {4, d}]},
                      {[cats:info(Read, Item) || Item <- [ttl, idle]], lists:sort(cats:tab2list(Read))}),
         ?assertEqual({900, infinity, 100}, {cats:ttl(Read, 1), cats:ttl(Read, 2), cats:ttl(Read, 3)}),
         %% Reads go on to move what has no own time, and no other beyond it.
         pass(99),
         _ = cats:lookup_many(Read, [1, 2, 3, 4]),
         case Kind of
             ttl -> ?assertEqual([801, infinity, 1, 1101], [cats:ttl(Read, Key) || Key <- [1, 2, 3, 4]]);
             _ -> ?assertEqual([1000, infinity, 1, 1000], [cats:ttl(Read, Key) || Key <- [1, 2, 3, 4]])
         end,
         pass(500),
         _ = cats:lookup_many(Read, [1, 2, 3, 4]),
         case Kind of
             ttl -> ?assertEqual([301, infinity, undefined, 601], [cats:ttl(Read, Key) || Key <- [1, 2, 3, 4]]);
             idle -> ?assertEqual([1000, infinity, undefined, 601], [cats:ttl(Read, Key) || Key <- [1, 2, 3, 4]]);
             both -> ?assertEqual([801, infinity, undefined, 601], [cats:ttl(Read, Key) || Key <- [1, 2, 3, 4]])
         end,
         Plain = cats:new(t, []),
         {ok, Plain} = cats:file2tab(File, [{table, Plain}]),
         ?assertEqual([{1, a}, {2, b}, {3, c}, {4, d}], lists:sort(cats:tab2list(Plain)))
     end || Type <- types(), Kind <- [ttl, idle, both], Options <- [[], [{extended_info, [md5sum, object_count]}]]],
    %% A table that only has a limit.
    Limited = cats:new(t, [{limit, {objects, 10}}]),
    true = cats:insert(Limited, [{1, a}, {2, b}]),
    ok = cats:tab2file(Limited, File),
    {ok, Stock} = ets:file2tab(File),
    ?assertEqual([{1, a}, {2, b}], lists:sort(ets:tab2list(Stock))),
    true = cats:insert(Limited, {3, c}, #{ttl => 200}),
    ok = cats:tab2file(Limited, File),
    {ok, Restored} = cats:file2tab(File, [{verify, true}]),
    ?assertEqual([infinity, infinity, 200], [cats:ttl(Restored, Key) || Key <- [1, 2, 3]]),
    Source = ets:new(t, []),
    true = ets:insert(Source, {1}),
    Copy = cats:new(t, [{ttl, 1000}]),
    true = cats:from_ets(Copy, Source),
    ?assertEqual(1000, cats:ttl(Copy, 1)).

%% Short and long objects, with terms that are held or counted.
objects_of_all_kinds(_Config) ->
    stop_clock(),
    Values = [[], 1.5, 1 bsl 100, <<"short">>, binary:copy(<<"long">>, 1000), <<1:3>>, lists:seq(1, 100000),
              fun() -> self() end, make_ref(), #{a => <<"b">>}, maps:from_list([{N, N} || N <- lists:seq(1, 100)]),
              list_to_tuple(lists:seq(1, 40000)),
              [fun() -> N end || N <- lists:seq(1, 2000)], [binary:copy(<<N>>, 100) || N <- lists:seq(1, 200)]],
    [begin
         Table = cats:new(t, [Type, {ttl, 1000}]),
         Objects = [{Key, Value} || {N, Value} <- lists:enumerate(Values), Key <- [N, {N, Value}]],
         [true = cats:insert(Table, Object) || Object <- Objects],
         [?assertEqual([Object], cats:lookup(Table, element(1, Object))) || Object <- Objects],
         true = cats:insert(Table, Objects),
         ?assertEqual(lists:sort(Objects), lists:sort(cats:tab2list(Table))),
         [true = cats:update_element(Table, Key, {2, [Value]}) || {Key, Value} <- Objects],
         [?assertEqual([{Key, [Value]}], cats:lookup(Table, Key)) || {Key, Value} <- Objects],
         Snapshot = cats:snapshot(Table),
         pass(1000),
         ?assertEqual({[], 0}, {cats:tab2list(Table), cats:info(Table, size)}),
         ?assertEqual(lists:sort([{Key, [Value]} || {Key, Value} <- Objects]), lists:sort(cats:tab2list(Snapshot))),
         true = cats:delete(Table)
     end || Type <- types()].

%% A new wheel goes with new contents.
replaced_contents(_Config) ->
    stop_clock(),
    [begin
         Table = cats:new(t, [Type, named_table, {ttl, 1000}]),
         true = cats:insert(Table, [{N} || N <- lists:seq(1, 1000)]),
         true = cats:delete_all_objects(Table),
         true = cats:insert(Table, {1}),
         ?assertEqual({1, 1000}, {cats:info(Table, size), cats:ttl(Table, 1)}),
         u = cats:rename(Table, u),
         pass(1000),
         ?assertEqual({[], 0, 1000}, {cats:lookup(u, 1), cats:info(u, size), cats:info(u, ttl)}),
         true = cats:delete(u)
     end || Type <- types()].

%% Several processes empty a table while others write. New contents that the table does not take are not left to the
%% reaper.
contents_not_taken(_Config) ->
    [begin
         Table = cats:new(t, [Type, public, Option]),
         Empty = fun() -> [true = cats:delete_all_objects(Table) || _ <- lists:seq(1, 20000)] end,
         Inserter = spawn_link(fun Insert() -> true = cats:insert(Table, {rand:uniform(1000), x}), Insert() end),
         Processes = [spawn_monitor(Empty) || _ <- [1, 2]],
         [receive {'DOWN', Monitor, process, Pid, Reason} -> ?assertEqual(normal, Reason) end
          || {Pid, Monitor} <- Processes],
         unlink(Inserter),
         cats_test_lib:stop(Inserter, kill),
         true = cats:delete_all_objects(Table),
         ?assertEqual({0, []}, {cats:info(Table, size), cats:tab2list(Table)}),
         true = cats:delete(Table)
     end || Type <- types(), Option <- [{ttl, 1000}, {idle, 1000}, {limit, {objects, 100}}]].

%%------------------------------------------------------------------------------------------------------------
%% Memory

%% Objects that were deleted before their time leave items in the wheel, but not for ever.
stale_items_go(_Config) ->
    [begin
         Table = cats:new(t, [Type, public, {ttl, 86400000}]),
         [begin true = cats:insert(Table, {N rem Keys, N}), true = cats:delete(Table, N rem Keys) end
          || N <- lists:seq(1, 500000)],
         cats_test_lib:eventually(fun() -> cats:info(Table, memory) * 8 < 500000 end),
         true = cats:delete(Table)
     end || Type <- types(), Keys <- [10, 1000000]],
    %% Each of these deadlines is earlier than the last, and gets an item. The object lives.
    [begin
         Table = cats:new(t, [Type, public, {ttl, 86400000}]),
         [true = cats:insert(Table, {key, N}, #{ttl => 86400000 - 100 * N}) || N <- lists:seq(1, 100000)],
         cats_test_lib:eventually(fun() -> cats:info(Table, memory) * 8 < 100000 end),
         true = cats:delete(Table)
     end || Type <- types()].

memory_of_expiry(_Config) ->
    Size = 100000,
    [begin
         [Plain, Leased] = [begin
                                Table = cats:new(t, [Type, public | Options]),
                                [true = cats:insert(Table, {N, N, N}) || N <- lists:seq(1, Size)],
                                cats:info(Table, memory) * 8
                            end || Options <- [[], [{ttl, 3600000}]]],
         ct:log("~p: ~.1f bytes an object", [Type, (Leased - Plain) / Size]),
         ?assert(Leased - Plain =< 18 * Size)
     end || Type <- types()].

%% A million objects that expire within a second: nobody is held, and their memory is free two seconds later.
a_million_at_once(_Config) ->
    Size = cats_test_lib:environment("OBJECTS", 1000000),
    [begin
         Table = cats:new(t, [Type, public, {ttl, 60000}]),
         [true = cats:insert(Table, {N, N, N}) || N <- lists:seq(1, Size)],
         Full = cats:memory(),
         [true = cats:touch(Table, N, 3000 + N rem 1000) || N <- lists:seq(1, Size)],
         End = erlang:monotonic_time(millisecond) + 4000,
         Reports = spawn_link(fun() -> reports([]) end),
         Previous = erlang:system_monitor(Reports, [{long_schedule, 1}]),
         %% Unlike the table's own memory, asking for this removes nothing.
         cats_test_lib:eventually(fun() ->
                                          erlang:monotonic_time(millisecond) >= End andalso cats:memory() < Full div 10
                                  end,
                                  60000),
         Took = erlang:monotonic_time(millisecond) - End,
         erlang:system_monitor(Previous),
         Reports ! {ask, self()},
         Held = receive {Reports, Got} -> Got end,
         ct:log("~p: ~b bytes, then ~b; free ~b ms after the last deadline; held: ~0p",
                [Type, Full, cats:memory(), Took, Held]),
         %% How long it takes depends on what else the machine does: the reaper is one thread.
         ?assertEqual(0, cats:info(Table, size)),
         true = cats:delete(Table)
     end || Type <- types()].

reports(Got) ->
    receive
        {monitor, Pid, long_schedule, Information} -> reports([{Pid, Information} | Got]);
        {ask, From} -> From ! {self(), Got}
    end.

%%------------------------------------------------------------------------------------------------------------
%% Concurrency

%% Whatever others do, nobody finds an object after its time, and no object is lost before.
readers_and_writers(_Config) ->
    Time = cats_test_lib:environment("EXPIRY_MS", cats_test_lib:rounds(1000)),
    [begin
         Table = cats:new(t, [Type, public, {Kind, ?SHORT}]),
         Writer = fun(Me) ->
                          fun() ->
                                  cats_test_lib:repeat_for(Time, fun(N) -> write(Table, Kind, Me, N) end)
                          end
                  end,
         Reader = fun() ->
                          cats_test_lib:repeat_for(Time, fun(N) ->
                                                                 _ = cats:lookup(Table, {N rem 4, N rem 50}),
                                                                 N rem 100 =:= 0 andalso cats:info(Table, size),
                                                                 N rem 1000 =:= 0 andalso cats:tab2list(Table)
                                                         end)
                  end,
         _ = cats_test_lib:together([Writer(Me) || Me <- [0, 1, 2]] ++ [Reader]),
         cats_test_lib:eventually(fun() -> {0, []} =:= {cats:info(Table, size), cats:tab2list(Table)} end),
         true = cats:delete(Table)
     end || Type <- types(), Kind <- [ttl, idle]].

%% Only this process writes its keys. With an idle time, the earlier end counts.
write(Table, Kind, Me, N) ->
    Key = {Me, rand:uniform(50)},
    Time = rand:uniform(60),
    Begin = cats_test_lib:clock() div 1000,
    true = cats:insert(Table, {Key, N}, #{ttl => Time}),
    Found = cats:lookup(Table, Key),
    End = cats_test_lib:clock() div 1000,
    Least = case Kind of
                ttl -> Time;
                idle -> min(Time, ?SHORT)
            end,
    Found =:= [{Key, N}] orelse End - Begin >= Least orelse error({lost, Begin, End, Time, Found}),
    rand:uniform(4) =:= 1 andalso cats:delete(Table, Key),
    rand:uniform(4) =:= 1 andalso cats:touch(Table, Key, rand:uniform(60)).

%% A VM that stops itself in the middle finds nothing that has expired meanwhile. Its own clock may differ from that of
%% the system by a percent, so the latter is asked.
a_stopped_vm(Config) ->
    Stopped = filename:join(?config(priv_dir, Config), "stopped"),
    _ = file:delete(Stopped),
    Code = "{ok, _} = application:ensure_all_started(cats),"
        "T = cats:new(t, [public, {ttl, 1000}]),"
        "Now = fun() -> {_, Time} = lists:keyfind(time, 1, erlang:system_info(os_monotonic_time_source)),"
        "               erlang:convert_time_unit(Time, native, millisecond) end,"
        "Begin = Now(),"
        "cats:insert(T, [{N, N, N} || N <- lists:seq(1, 10000)]),"
        "End = Now() + 1000,"
        "{_, Stop} = spawn_monitor(fun() -> os:cmd(\"kill -STOP \" ++ os:getpid() ++ \"; : > \\\"$STOPPED\\\"\") end),"
        "(fun Loop() ->"
        "  Before = Now(),"
        "  Found = cats:lookup(T, 10000),"
        "  After = Now(),"
        "  case Found of"
        "    [_] when Before >= End -> io:format(\"found after its time~n\"), halt();"
        "    [_] -> Loop();"
        "    [] when After < Begin + 1000 -> io:format(\"lost~n\"), halt();"
        "    [] -> ok"
        "  end end)(),"
        "0 = cats:info(T, size), [] = cats:tab2list(T),"
        "receive {'DOWN', Stop, _, _, _} -> ok end,"
        "io:format(\"good ~b~n\", [cats:info(T, memory)]), halt().",
    Paths = lists:append([["-pa", Path] || Path <- [filename:dirname(code:which(cats))]]),
    Port = open_port({spawn_executable, os:find_executable("erl")},
                     [{args, ["-noshell" | Paths] ++ ["-eval", Code]}, {env, [{"STOPPED", Stopped}]}, {line, 100}]),
    {os_pid, Pid} = erlang:port_info(Port, os_pid),
    cats_test_lib:eventually(fun() -> filelib:is_file(Stopped) end),
    timer:sleep(cats_test_lib:environment("STOPPED_MS", 2000)),
    "" = os:cmd("kill -CONT " ++ integer_to_list(Pid)),
    ?assertMatch("good " ++ _, line(Port)).

line(Port) ->
    receive
        {Port, {data, {eol, Line}}} -> Line
    after 60000 -> timeout
    end.
