%% Every engine that cats:engines/0 lists, with every value of each of its options. Each runs some of the comparisons
%% with ets and of the tests of concurrency. MILLISECONDS (environment, 20 by default) is the time for each test. Whole
%% suites run over an engine with ENGINE and OPTIONS, see cats_chosen. An engine refuses the options that it does not
%% have, and says which.
-module(cats_engines_SUITE).
-include_lib("stdlib/include/assert.hrl").
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([listed/1, not_built/1, defaults/1, values/1, lacking_types/1, lacking_options/1, delegation/1, bucket_locks/1,
         hash_locks/1, slots/1, hash/1, ca/1, linear_hash/1, std_hash/1, avl/1, ca_avl/1, ca_treap/1, skip_list/1]).

%% Calls of each of the two comparisons.
-define(CALLS, cats_test_lib:rounds(500)).
-define(SELECTS, cats_test_lib:rounds(200)).
%% Operations of a process, in tests that count them.
-define(OPERATIONS, "1000").

suite() -> [{timetrap, {minutes, 10}}].

all() ->
    [listed, not_built, defaults, values, lacking_types, lacking_options, delegation, bucket_locks, hash_locks, slots
     | names()].

names() -> [hash, ca, linear_hash, std_hash, avl, ca_avl, ca_treap, skip_list].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(cats),
    Config.

end_per_suite(_Config) ->
    cats_chosen:choose(environment).

hash(_Config) -> conforms(hash).
ca(_Config) -> conforms(ca).
linear_hash(_Config) -> conforms(linear_hash).
std_hash(_Config) -> conforms(std_hash).
avl(_Config) -> conforms(avl).
ca_avl(_Config) -> conforms(ca_avl).
ca_treap(_Config) -> conforms(ca_treap).
skip_list(_Config) -> conforms(skip_list).

%%------------------------------------------------------------------------------------------------------------
%% Conformance

conforms(Name) ->
    case [Engine || #{name := Listed} = Engine <- cats:engines(), Listed =:= Name] of
        [] -> {skip, "not built"};
        [Engine] ->
            Combinations = combinations(Engine),
            [conforms(Name, Options) || Options <- Combinations],
            {comment, io_lib:format("~b combinations of options", [length(Combinations)])}
    end.

conforms(Name, Options) ->
    cats_chosen:choose(Name, Options),
    Before = [{Variable, os:getenv(Variable)} || Variable <- ["MILLISECONDS", "OPERATIONS"]],
    os:putenv("MILLISECONDS", os:getenv("MILLISECONDS", "20")),
    os:putenv("OPERATIONS", ?OPERATIONS),
    try
        [Name = cats:info(Table, engine) || Type <- cats_chosen:types(types()),
                                            Table <- [(cats_chosen:module()):new(chosen, [Type])]],
        {ok, _} = cats_oracle:run(?CALLS),
        {ok, _} = cats_select_oracle:run(?SELECTS),
        [cats_concurrency_SUITE:Case([]) || Case <- concurrent()]
    catch
        Class:Reason:Stack -> ct:fail({Name, Options, {Class, Reason, Stack}})
    after
        [case Value of
             false -> os:unsetenv(Variable);
             _ -> os:putenv(Variable, Value)
         end || {Variable, Value} <- Before],
        cats_chosen:choose(environment)
    end.

concurrent() ->
    [lists_are_inserted_at_once, new_lists_are_inserted_at_once, counters_add_up, one_insert_new_wins, one_take_wins,
     objects_are_whole, traversal_meets_stable_keys_once, sizes_add_up, bags_keep_all, emptied_under_writers].

types() -> [set, ordered_set, bag, duplicate_bag].

%% The options of an engine one by one. A lock that delegates comes with each way of delegating. One combination has
%% everything, with a tree that adapts often.
combinations(#{options := Options}) ->
    One = [[{Option, Value}]
           || {Option, Values} <- maps:to_list(Options), Option =/= delegate, Value <- some(Option, Values)],
    Delegating = [[{lock, mrqd}, {delegate, Value}] || Value <- maps:get(delegate, Options, [])],
    Adapting = [[{split, 1}, {join, 1} | Base] || maps:is_key(split, Options), Base <- adapting(Options)],
    [[]] ++ One ++ Delegating ++ Adapting.

some(_, Values) when is_list(Values) -> tl(Values);
some(write_concurrency, {Least, Most}) -> [Least, 4, 64, Most, true, auto];
some(_, {_, _}) -> [].

adapting(#{base_lock := Locks}) -> [[{base_lock, Lock}] || Lock <- Locks];
adapting(_) -> [[]].

%%------------------------------------------------------------------------------------------------------------
%% The list, and refusals

listed(_Config) ->
    [begin
         ?assert(lists:member(Name, names())),
         ?assertEqual([], Types -- types()),
         [?assert(is_tuple(Values) orelse [] =:= [Value || Value <- Values, not is_atom(Value)])
          || Values <- maps:values(Options)]
     end || #{name := Name, types := Types, options := Options} <- cats:engines()],
    [hash, ca | _] = [Name || #{name := Name} <- cats:engines()],
    ok.

%% A build with CATS_COMPARED=0, on which scripts/test-small runs, has the default engines only. It names what it lacks.
not_built(_Config) ->
    Listed = [Name || #{name := Name} <- cats:engines()],
    ?assertEqual(case os:getenv("CATS_COMPARED") of "0" -> [hash, ca]; _ -> names() end, Listed),
    [begin
         Text = io_lib:format("engine ~s is not in this build of cats, which was made with CATS_COMPARED=0", [Name]),
         [?assertEqual(#{2 => iolist_to_binary(Text)}, refusal([Type, {engine, Name}])) || Type <- types()]
     end || Name <- names() -- Listed],
    ?assertEqual(invalid({engine, no_such_engine}), refusal([{engine, no_such_engine}])),
    Peer = cats_test_lib:start_peer(["-cats", "registry", "locked", "-pa" | code:get_path()]),
    New = fun() -> peer:call(Peer, cats, new, [table, [named_table]], infinity) end,
    case Listed =:= names() of
        true -> ?assertEqual(table, New());
        false -> ?assertError({not_built, cats, {registry, locked}}, New())
    end,
    peer:stop(Peer).

%% The first engine that holds a type is the default.
defaults(_Config) ->
    [?assertEqual(hd([Name || #{name := Name, types := Types} <- cats:engines(), lists:member(Type, Types)]),
                  cats:info(cats:new(t, [Type]), engine)) || Type <- types()],
    ok.

%% Every listed value is accepted, and the values just outside are not.
values(_Config) ->
    [case Values of
         {Least, Most} ->
             [accepted(Name, Type, {Option, Value}) || Value <- [Least, Most]],
             [?assertEqual(invalid({Option, Value}), refusal([Type, {engine, Name}, {Option, Value}]))
              || Value <- [Least - 1, Most + 1, -1, 1 bsl 40, 1 bsl 70, 1.0, "1"]];
         [_ | _] ->
             With = case Option of delegate -> [{lock, mrqd}]; _ -> [] end,
             [accepted(Name, Type, {Option, Value}, With) || Value <- Values],
             [?assertEqual(invalid({Option, Value}), refusal([Type, {engine, Name}, {Option, Value}]))
              || Value <- [no_such_value, 1, "rw"]]
     end || #{name := Name, types := [Type | _], options := Options} <- cats:engines(),
            {Option, Values} <- maps:to_list(Options)],
    ok.

accepted(Name, Type, Option) -> accepted(Name, Type, Option, []).

accepted(Name, Type, Option, With) ->
    Table = cats:new(t, [Type, {engine, Name}, Option | With]),
    ?assertEqual(Name, cats:info(Table, engine)),
    true = cats:insert(Table, {1, 2}),
    [{1, 2}] = cats:lookup(Table, 1),
    true = cats:delete(Table).

lacking_types(_Config) ->
    Words = #{set => "sets", ordered_set => "ordered sets", bag => "bags", duplicate_bag => "duplicate bags"},
    [?assertEqual(#{2 => iolist_to_binary(io_lib:format("engine ~s does not hold ~s", [Name, maps:get(Type, Words)]))},
                  refusal([Type, {engine, Name}]))
     || #{name := Name, types := Types} <- cats:engines(), Type <- types() -- Types],
    ok.

lacking_options(_Config) ->
    Examples = #{lock => rw, delegate => wait, static_stack => false, split => 1, join => 1, base_lock => mutex},
    [?assertEqual(#{2 => iolist_to_binary(io_lib:format("engine ~s does not have option ~s", [Name, Option]))},
                  refusal([Type, {engine, Name}, {Option, maps:get(Option, Examples)}]))
     || #{name := Name, types := [Type | _], options := Options} <- cats:engines(),
        Option <- maps:keys(Examples) -- maps:keys(Options)],
    %% Those of the default engine.
    ?assertEqual(#{2 => <<"engine hash does not have option lock">>}, refusal([{lock, mrqd}])),
    ok.

delegation(_Config) ->
    [?assertEqual(#{2 => <<"option delegate goes with {lock, mrqd} only">>},
                  refusal([Type, {engine, Name}, {delegate, wait} | Lock]))
     || #{name := Name, types := [Type | _], options := #{lock := _}} <- cats:engines(),
        Lock <- [[], [{lock, dr_mcs}]]],
    ok.

bucket_locks(_Config) ->
    [?assertEqual(#{2 => iolist_to_binary(io_lib:format("engine ~s has no number of bucket locks to choose", [Name]))},
                  refusal([Type, {engine, Name}, {write_concurrency, 16}]))
     || #{name := Name, types := [Type | _], options := Options} <- cats:engines(),
        not maps:is_key(write_concurrency, Options)],
    [begin
         Table = cats:new(t, [Type, {engine, Name}, {write_concurrency, 16}]),
         ?assertEqual(16, cats:info(Table, write_concurrency)),
         ?assertEqual(invalid({write_concurrency, 17}), refusal([Type, {engine, Name}, {write_concurrency, 17}]))
     end || #{name := Name, types := Types, options := #{write_concurrency := _}} <- cats:engines(), Type <- Types],
    ok.

%% The option with which OTP tests ets, in every place of a list of options. cats does with it what ets does.
hash_locks(_Config) ->
    Locks = fun(Number) -> {write_concurrency, {debug_hash_fixed_number_of_locks, Number}} end,
    Numbers = [-1, 0, 1, 2, 63, 64, 65, 127, 128, 1000, 1024, 32767, 32768, 32769, 1 bsl 31,
               1 bsl 32, 1 bsl 64, a, 64.0],
    Others = [[{write_concurrency, true}], [{write_concurrency, auto}], [{write_concurrency, false}], [private],
              [{decentralized_counters, false}], [ordered_set], []],
    Malformed = [{write_concurrency, Value} || Value <- [{debug_hash_fixed_number_of_locks}, {no_such_option, 64},
                                                         {debug_hash_fixed_number_of_locks, 64, 64}]],
    Lists = [[Locks(Number)] || Number <- Numbers]
        ++ [Before ++ [Locks(64)] ++ After || Before <- Others, After <- Others]
        ++ [[Option] || Option <- Malformed],
    Made = fun(Module, Options) ->
                   try Module:new(t, Options) of
                       Table -> [Module:info(Table, Item) || Item <- [write_concurrency, decentralized_counters]]
                   catch
                       error:Reason -> Reason
                   end
           end,
    [?assertEqual({Options, Made(ets, [Type | Options])},
                  {Options, Made(cats, [Type | [{engine, Name} || not lists:member(ordered_set, Options)] ++ Options])})
     || Options <- Lists, #{name := Name, types := Types} <- cats:engines(), Type <- Types],
    ?assertEqual(#{2 => <<"invalid option: debug_hash_fixed_number_of_locks is for hash tables only">>},
                 refusal([ordered_set, Locks(64)])).

%% Every object is in one of the slots. The slot behind the last one is the end of the table, and slots beyond fail. An
%% empty ordered_set of ets with decentralized counters has no end.
slots(_Config) ->
    Sizes = [0, 1, 3, 255, 256, 257, 2000],
    Behind = [1, 2, 1000, 1 bsl 40, (1 bsl 59) - 1],
    Wrong = [-1, -(1 bsl 59), 1 bsl 59, 1 bsl 64, 1 bsl 70, -(1 bsl 70), 1.0, a, "1", {}, [], make_ref()],
    [begin
         Objects = [{N rem 1999, N} || N <- lists:seq(1, Size)],
         [Ets, Cats] = [begin
                            Table = Module:new(slots, [Type | Options]),
                            %% One by one: which of a list's objects of one key ets keeps depends on where it yields.
                            [true = Module:insert(Table, Object) || Object <- Objects],
                            Table
                        end || {Module, Options} <- [{ets, []}, {cats, [{engine, Name}]}]],
         Slots = slots(cats, Cats, 0),
         Number = length(Slots),
         ?assertEqual(lists:sort(ets:tab2list(Ets)), lists:sort(lists:append(Slots))),
         case Type of
             ordered_set -> ?assertEqual(ets:info(Ets, size), Number);
             _ when Size =:= 0 -> ?assertEqual(256, Number);
             _ -> ?assert(Number >= 256)
         end,
         EtsNumber = length(slots(ets, Ets, 0)),
         [?assertEqual(outcome(ets, Ets, EtsNumber + More), outcome(cats, Cats, Number + More)) || More <- Behind],
         [?assertEqual(outcome(ets, Ets, Slot), outcome(cats, Cats, Slot)) || Slot <- Wrong],
         true = cats:delete_all_objects(Cats),
         ?assertEqual([], lists:append(slots(cats, Cats, 0)))
     end || #{name := Name, types := Types} <- cats:engines(), Type <- Types, Size <- Sizes],
    ok.

slots(Module, Table, Slot) ->
    case Module:slot(Table, Slot) of
        '$end_of_table' -> [];
        Objects when is_list(Objects) -> [Objects | slots(Module, Table, Slot + 1)]
    end.

%% A failure with its explanation, without the arguments.
outcome(Module, Table, Slot) ->
    try
        Module:slot(Table, Slot)
    catch
        error:Reason:Stack ->
            [{Module, slot, [Table, Slot], Info} | _] = Stack,
            #{module := Explainer} = proplists:get_value(error_info, Info),
            Remarks = Explainer:format_error(Reason, Stack),
            {Reason, maps:map(fun(_, Text) -> cats_test_lib:in_words_of_ets(Text) end, Remarks)}
    end.

invalid(Option) -> #{2 => cats_test_lib:invalid_option(new, Option)}.

%% The explanation of each argument, as a person reads it.
refusal(Options) ->
    try cats:new(refused, Options) of
        Table -> error({accepted, Options, cats:info(Table)})
    catch
        error:badarg:Stack ->
            [{cats, new, [refused, Options], Info} | _] = Stack,
            #{module := Module} = proplists:get_value(error_info, Info),
            maps:map(fun(_, Text) -> unicode:characters_to_binary(Text) end, Module:format_error(badarg, Stack))
    end.
