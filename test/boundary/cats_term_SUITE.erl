%% Encodes and decodes terms without a table: tests the boundary, the term crate and the batches of held terms. Runs in
%% a VM of its own. Its native library is built with the feature `selftest' and with the assertions of a development
%% build. One of these fails where memory of the VM is read or written although the setting `vm_terms' is `erl_nif'. So
%% the comparisons with ets run here with that setting. TERM_RUNS and TERM_CALLS (environment) make random tests longer.
-module(cats_term_SUITE).
-measures([batches_are_compacted, binaries]).
-include_lib("stdlib/include/assert.hrl").
-include("cats_failure.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([
    terms_come_back/1,
    layout/1,
    random_terms_come_back/1,
    results_are_as_the_vm_has_them/1,
    objects_are_as_the_vm_has_them/1,
    order_and_equality/1,
    random_order_and_equality/1,
    normalized_keys/1,
    normalized_keys_by_erl_nif/1,
    depth/1,
    large_terms/1,
    held_terms_are_freed/1,
    batches_are_compacted/1,
    readers_during_compaction/1,
    given_back_during_compaction/1,
    binaries/1,
    funs/1,
    owners_are_watched/1,
    panic/1,
    reload/1,
    other_build/1,
    tables_by_erl_nif/1,
    calls_by_erl_nif/1,
    selections_by_erl_nif/1
]).
%% Called in the other VM.
-export([
    there_terms_come_back/0,
    there_layout/0,
    there_set_layout/1,
    there_random_terms_come_back/1,
    there_results_are_as_the_vm_has_them/1,
    there_objects_are_as_the_vm_has_them/1,
    there_order_and_equality/0,
    there_random_order_and_equality/1,
    there_normalized_keys/2,
    there_depth/0,
    there_large_terms/0,
    there_held_terms_are_freed/0,
    there_batches_are_compacted/0,
    there_readers_during_compaction/0,
    there_given_back_during_compaction/0,
    there_binaries/0,
    there_funs/0,
    there_owners_are_watched/0,
    there_panic/0,
    there_reload/0,
    there_other_build/1,
    there_tables_by_erl_nif/0
]).

-include_lib("common_test/include/ct.hrl").

suite() -> [{timetrap, {minutes, 30}}].

all() ->
    [
        terms_come_back,
        layout,
        random_terms_come_back,
        results_are_as_the_vm_has_them,
        objects_are_as_the_vm_has_them,
        order_and_equality,
        random_order_and_equality,
        normalized_keys,
        normalized_keys_by_erl_nif,
        depth,
        large_terms,
        held_terms_are_freed,
        batches_are_compacted,
        readers_during_compaction,
        given_back_during_compaction,
        binaries,
        funs,
        owners_are_watched,
        panic,
        reload,
        other_build,
        tables_by_erl_nif,
        calls_by_erl_nif,
        selections_by_erl_nif
    ].

%% Builds the library with the feature, and the module with its stubs, into the suite's directory.
init_per_suite(Config) ->
    case os:find_executable("cargo") of
        false -> {skip, "no cargo"};
        _ -> build(Config)
    end.

build(Config) ->
    Root = cats_test_lib:root(),
    Directory = filename:join(?config(priv_dir, Config), "selftest"),
    Script = filename:join([Root, "scripts", "build-selftest"]),
    ?assertEqual({0, ""}, cats_test_lib:run(Script, [Directory, filename:dirname(code:which(cats))])),
    [{ebin, filename:join(Directory, "ebin")}, {priv, filename:join(Directory, "priv")} | Config].

end_per_suite(_Config) -> ok.

init_per_testcase(Case, Config) ->
    Peer = start(Config, setting(Case)),
    Started = [{peer, Peer} | Config],
    setting(Case) =:= [] andalso there(Started, there_set_layout, [true]),
    Started.

setting(Case) ->
    case lists:suffix("_by_erl_nif", atom_to_list(Case)) of
        true -> ["-cats", "vm_terms", "erl_nif"];
        false -> []
    end.

start(Config, Setting) ->
    Paths = [?config(ebin, Config), filename:dirname(code:which(?MODULE))] ++
        [Directory || Directory <- code:get_path(), string:find(Directory, "proper") =/= nomatch],
    VM = case erlang:system_info(build_type) of
             opt -> [];
             Type -> ["-emu_type", atom_to_list(Type)]
         end,
    cats_test_lib:start_peer(VM ++ Setting ++ lists:append([["-pa", Path] || Path <- Paths])).

end_per_testcase(_Case, Config) -> peer:stop(?config(peer, Config)).

there(Config, Function, Arguments) ->
    peer:call(?config(peer, Config), ?MODULE, Function, Arguments, 600000).

terms_come_back(Config) -> in_both_ways(Config, there_terms_come_back).
layout(Config) -> there(Config, there_layout, []).
random_terms_come_back(Config) -> in_both_ways(Config, there_random_terms_come_back, [runs()]).
results_are_as_the_vm_has_them(Config) -> there(Config, there_results_are_as_the_vm_has_them, [runs()]).
objects_are_as_the_vm_has_them(Config) -> in_both_ways(Config, there_objects_are_as_the_vm_has_them, [runs()]).
order_and_equality(Config) -> in_both_ways(Config, there_order_and_equality).
random_order_and_equality(Config) -> in_both_ways(Config, there_random_order_and_equality, [runs()]).
normalized_keys(Config) -> there(Config, there_normalized_keys, [runs(), true]).
normalized_keys_by_erl_nif(Config) -> there(Config, there_normalized_keys, [runs(), false]).
depth(Config) -> in_both_ways(Config, there_depth).
large_terms(Config) -> in_both_ways(Config, there_large_terms).
held_terms_are_freed(Config) -> in_both_ways(Config, there_held_terms_are_freed).
batches_are_compacted(Config) -> in_both_ways(Config, there_batches_are_compacted).
readers_during_compaction(Config) -> in_both_ways(Config, there_readers_during_compaction).
given_back_during_compaction(Config) -> in_both_ways(Config, there_given_back_during_compaction).
binaries(Config) -> in_both_ways(Config, there_binaries).
funs(Config) -> there(Config, there_funs, []).
owners_are_watched(Config) -> there(Config, there_owners_are_watched, []).
panic(Config) -> there(Config, there_panic, []).
reload(Config) -> there(Config, there_reload, []).
other_build(Config) -> there(Config, there_other_build, [?config(priv, Config)]).
tables_by_erl_nif(Config) -> there(Config, there_tables_by_erl_nif, []).
calls_by_erl_nif(Config) -> {ok, _} = peer:call(?config(peer, Config), cats_oracle, run, [calls()], infinity).
selections_by_erl_nif(Config) ->
    {ok, _} = peer:call(?config(peer, Config), cats_select_oracle, run, [calls()], infinity).

%% Where terms are looked into, and where they are not, so that more of them are held.
in_both_ways(Config, Function) -> in_both_ways(Config, Function, []).

in_both_ways(Config, Function, Arguments) ->
    [begin
         Known = there(Config, there_set_layout, [Known]),
         there(Config, Function, Arguments)
     end || Known <- [true, false]].

there_set_layout(Known) -> cats_nif:test_layout(Known).

runs() -> cats_test_lib:environment("TERM_RUNS", cats_test_lib:rounds(3000)).
calls() -> cats_test_lib:environment("TERM_CALLS", cats_test_lib:rounds(6000)).

%%% Terms and back

there_terms_come_back() ->
    [comes_back(Term) || Term <- terms()],
    ok.

comes_back(Term) ->
    Back = roundtrip(Term),
    case cats_oracle_terms:same(Term, Back) of
        true -> true;
        false -> error({Term, Back})
    end.

roundtrip(Term) -> patiently(test_roundtrip, Term).

%% The native function's result, on a dirty scheduler if it takes long.
patiently(Function, Term) ->
    case cats_nif:Function(Term) of
        ?FAILED(dirty, _) -> result(cats_nif:dirty(Function, [Term]));
        Outcome -> result(Outcome)
    end.

result(?FAILED(returned, Result)) -> Result;
result(Outcome) -> Outcome.

%% Terms are looked into in all releases that are tested; and where they are not, everything is as well.
there_layout() ->
    Aliases = [alias() || erlang:function_exported(erlang, alias, 0)],
    Terms = [atomics:new(1, []), ets:new(table, []), binary_part(rand:bytes(30), 3, 5), <<1:3>>, {}, <<>>]
        ++ Aliases ++ terms(),
    Kept = [begin
                Known = cats_nif:test_layout(Known),
                [comes_back(Term) || Term <- Terms],
                [{Term, keep(Term)} || Term <- Terms]
            end || Known <- [true, false, true]],
    %% Wherever the part of the heap ends in which it is learned.
    [begin
         Unused = lists:duplicate(rand:uniform(200), x),
         false = cats_nif:test_layout(false),
         true = cats_nif:test_layout(true),
         Unused
     end || _ <- lists:seq(1, 500)],
    [begin
         Known = cats_nif:test_layout(Known),
         [true = cats_oracle_terms:same(Term, result(cats_nif:test_kept(Stored)))
          || Some <- Kept, {Term, Stored} <- Some],
         IsDebug = erlang:system_info(build_type) =:= debug,
         true = cats_nif:test_layout_of_resources() =:= (Known andalso not IsDebug),
         Others = [zlib:open(), counters:new(1, []), self() | Terms],
         [?assertMatch(?FAILED(none, _), cats_nif:test_kept(Term)) || Term <- Others]
     end || Known <- [false, true, false, true]],
    ok.

keep(Term) -> patiently(test_keep, Term).

there_random_terms_come_back(Runs) ->
    Leaves = list_to_tuple(terms()),
    [comes_back(random_term(Leaves, 4)) || _ <- lists:seq(1, Runs)],
    ok.

%% A decoded term cannot be told from one that the VM makes itself. Its size, order and hash are the same, and so is
%% what functions make of it, before and after garbage collections. That is so however much memory the process has left
%% when the term is made.
there_results_are_as_the_vm_has_them(Runs) ->
    Leaves = list_to_tuple([Term || Term <- terms(), erts_debug:flat_size(Term) < 50]),
    [begin
         Known = cats_nif:test_layout(Known),
         [cats_test_lib:in_process(fun() -> is_as_of_the_vm(shape(Leaves)) end) || _ <- lists:seq(1, Runs div 20)],
         [cats_test_lib:in_process(fun() -> fills(Words, Leaves) end) || Words <- lists:seq(0, 300, 5)]
     end || Known <- [false, true]],
    %% Pairs of maps are stored in the same order, however they were read.
    [cats_test_lib:in_process(fun() -> is_read_and_made(shape(Leaves)) end) || _ <- lists:seq(1, Runs div 20)],
    ok.

shape(Leaves) ->
    case rand:uniform(8) of
        1 -> random_map(Leaves, rand:uniform(40));
        8 -> random_map(Leaves, rand:uniform(100));
        2 -> [random_map(Leaves, Pairs) || Pairs <- [1, 2, 5, 31, 32, 33]];
        3 -> [list_to_tuple([random_term(Leaves, 1) || _ <- lists:seq(1, rand:uniform(20))]) || _ <- lists:seq(1, 10)];
        4 -> lists:foldl(fun wrap/2, random_map(Leaves, 3), lists:seq(1, rand:uniform(80)));
        5 -> random_term(Leaves, 5);
        6 -> [random_term(Leaves, 0) || _ <- lists:seq(1, rand:uniform(300))];
        7 -> lists:foldl(fun(_, Term) -> beside_others(Leaves, Term) end, {[]}, lists:seq(1, rand:uniform(20)))
    end.

%% A term somewhere among up to 20 others, in a tuple, a list or an improper list: at some depth, many parts of what is
%% around wait.
beside_others(Leaves, Term) ->
    Others = fun() -> [random_term(Leaves, rand:uniform(2) - 1) || _ <- lists:seq(1, rand:uniform(10))] end,
    case rand:uniform(4) of
        1 -> list_to_tuple(Others() ++ [Term | Others()]);
        2 -> Others() ++ [Term | Others()];
        3 -> Others() ++ [Term | {Others()}];
        4 -> Others() ++ {Term}
    end.

wrap(_, Term) ->
    case rand:uniform(6) of
        1 -> {Term};
        2 -> [Term];
        3 -> [x, Term | y];
        4 -> #{key => Term, {other} => []};
        5 ->
            %% Twice the same, but not of ever the double: only terms that are not yet large.
            case erts_debug:flat_size(Term) < 10000 of
                true -> #{Term => [Term]};
                false -> #{Term => []}
            end;
        6 -> {a, Term, [b]}
    end.

random_map(Leaves, Pairs) ->
    maps:from_list([{random_key(Leaves), random_term(Leaves, rand:uniform(2) - 1)} || _ <- lists:seq(1, Pairs)]).

random_key(Leaves) ->
    case rand:uniform(6) of
        1 -> random_term(Leaves, 1);
        2 -> rand:uniform(100);
        3 -> element(rand:uniform(10), {a, b, c, zz, key, '', id, name, undefined, true});
        4 -> {rand:uniform(100) / 1, x};
        5 -> rand:uniform(1 bsl 62);
        6 ->
            Colliding = cats_oracle_terms:colliding_keys(),
            cats_test_lib:one_of(Colliding)
    end.

is_as_of_the_vm(Term) ->
    Back = roundtrip(Term),
    Own = erts_debug:copy_shared(Term),
    Tests = fun() -> is_same(Own, Back) andalso are_maps_same(Own, Back) end,
    Tests() orelse error({Term, Back}),
    erlang:garbage_collect(self(), [{type, minor}]),
    Tests() orelse error({collected, Term, Back}),
    erlang:garbage_collect(),
    Tests() orelse error({collected_again, Term, Back}).

is_same(Own, Back) ->
    Own =:= Back
        andalso erts_debug:flat_size(Own) =:= erts_debug:flat_size(Back)
        andalso erlang:phash2(Own) =:= erlang:phash2(Back)
        andalso term_to_binary(Own) =:= term_to_binary(Back)
        andalso cats_oracle_terms:same(Own, Back).

are_maps_same(Own, Back) when is_map(Own) ->
    maps:to_list(Own) =:= maps:to_list(Back)
        andalso maps:from_list(maps:to_list(Back)) =:= Own
        andalso is_same(maps:put(new, value, Own), maps:put(new, value, Back))
        andalso is_same(maps:merge(#{b => 1, 7 => 2}, Own), maps:merge(#{b => 1, 7 => 2}, Back))
        andalso lists:all(fun(Key) ->
                                  #{Key := Value} = Back,
                                  Value =:= maps:get(Key, Own)
                                      andalso is_same(maps:remove(Key, Own), maps:remove(Key, Back))
                                      andalso is_same(Own#{Key := x}, Back#{Key := x})
                          end, maps:keys(Own));
are_maps_same([_ | _] = Own, [_ | _] = Back) ->
    are_maps_same(hd(Own), hd(Back)) andalso are_maps_same(tl(Own), tl(Back));
are_maps_same(Own, Back) when is_tuple(Own) -> are_maps_same(tuple_to_list(Own), tuple_to_list(Back));
are_maps_same(_, _) -> true.

%% Results begin at every distance from the end of a heap.
fills(Words, Leaves) ->
    Term = random_map(Leaves, rand:uniform(60)),
    Filled = list_to_tuple(lists:duplicate(Words, x)),
    Backs = [roundtrip(Term), roundtrip([Term, {Term, 1.5}]), roundtrip({<<"bytes">>, [Term | x]})],
    erlang:garbage_collect(self(), [{type, minor}]),
    true = is_same([Term, [Term, {Term, 1.5}], {<<"bytes">>, [Term | x]}], Backs),
    erlang:garbage_collect(),
    true = is_same([Term, [Term, {Term, 1.5}], {<<"bytes">>, [Term | x]}], Backs),
    Filled.

is_read_and_made(Term) ->
    [begin
         Read = cats_nif:test_layout(Read),
         Kept = keep(Term),
         Made = cats_nif:test_layout(Made),
         Back = result(cats_nif:test_kept(Kept)),
         is_same(Term, Back) andalso are_maps_same(Term, Back) orelse error({Read, Made, Term, Back})
     end || {Read, Made} <- [{false, true}, {true, false}, {true, true}]].

%% The same of objects with few or many elements, which are looked up, or listed with others.
there_objects_are_as_the_vm_has_them(Runs) ->
    Leaves = list_to_tuple([Term || Term <- terms(), erts_debug:flat_size(Term) < 50]),
    [cats_test_lib:in_process(fun() -> are_objects_as_of_the_vm(Leaves) end) || _ <- lists:seq(1, Runs div 20)],
    ok.

are_objects_as_of_the_vm(Leaves) ->
    Place = rand:uniform(3),
    Table = cats:new(objects, [ordered_set, {keypos, Place}]),
    Keys = lists:usort([random_key(Leaves) || _ <- lists:seq(1, 5)]),
    Objects = [setelement(Place, random_elements(Leaves), Key) || Key <- Keys],
    true = cats:insert(Table, Objects),
    Backs = [hd(cats:lookup(Table, element(Place, Object))) || Object <- Objects],
    Listed = cats:tab2list(Table),
    Tests = fun() -> is_same(Objects, Backs) andalso is_same(Objects, Listed) end,
    Tests() orelse error({Objects, Backs, Listed}),
    erlang:garbage_collect(self(), [{type, minor}]),
    Tests() orelse error({collected, Objects, Backs, Listed}),
    erlang:garbage_collect(),
    Tests() orelse error({collected_again, Objects, Backs, Listed}).

random_elements(Leaves) ->
    list_to_tuple([random_term(Leaves, rand:uniform(4) - 1) || _ <- lists:seq(1, 2 + rand:uniform(50))]).

%% The terms of the comparison with ets, and some that only matter here.
terms() ->
    cats_oracle_terms:all(spawn(fun() -> receive after infinity -> ok end end)) ++
        [1 bsl 100000, -(1 bsl 8000) + 1, rand:bytes(65), rand:bytes(5000), rand:bytes(40000),
         [fun erlang:self/0 | make_ref()], persistent_term_fun(),
         maps:from_list([{make_ref(), K} || K <- lists:seq(1, 40)])].

persistent_term_fun() ->
    Key = make_ref(),
    persistent_term:put(?MODULE, fun() -> Key end),
    persistent_term:get(?MODULE).

random_term(Leaves, 0) ->
    element(rand:uniform(tuple_size(Leaves)), Leaves);
random_term(Leaves, Depth) ->
    Some = fun() -> [random_term(Leaves, Depth - 1) || _ <- lists:seq(1, rand:uniform(4))] end,
    case rand:uniform(8) of
        1 -> list_to_tuple(Some());
        2 -> Some();
        3 -> Some() ++ random_term(Leaves, Depth - 1);
        4 -> maps:from_list([{Key, x} || Key <- Some()]);
        5 -> maps:from_list([{Key, Key} || Key <- Some()]);
        _ -> random_term(Leaves, 0)
    end.

%%% Order, equality, hashes

there_order_and_equality() ->
    Terms = terms(),
    [agrees(A, B) || A <- Terms, B <- Terms],
    ok.

%% Terms built from few leaves, so that they differ late or not at all.
there_random_order_and_equality(Runs) ->
    Leaves = list_to_tuple(cats_oracle_terms:small() ++ [make_ref(), self(), <<1:3>>, fun erlang:abs/1]),
    [agrees(random_term(Leaves, 3), random_term(Leaves, 3)) || _ <- lists:seq(1, Runs)],
    [begin
         Term = random_term(Leaves, 3),
         agrees(Term, binary_to_term(term_to_binary(Term)))
     end || _ <- lists:seq(1, Runs)],
    %% In keys of maps integers order before floats, also far inside and in funs.
    Inside = [fun(Number) -> fun() -> Number end end, fun(Number) -> {key, fun() -> [Number] end} end,
              fun(Number) -> lists:foldl(fun wrap/2, Number, lists:seq(1, 80)) end,
              fun(Number) -> lists:foldl(fun(_, List) -> [a, List] end, Number, lists:seq(1, 80)) end],
    Maps = [#{Put(Number) => 1, Other => 2} || Put <- Inside, Number <- [1, 1.0, 2, 2.0, 1 bsl 70], Other <- [b, 3]],
    [agrees(A, B) || A <- Maps, B <- Maps],
    ok.

agrees(A, B) ->
    Order = if
                A < B -> -1;
                A > B -> 1;
                true -> 0
            end,
    Expected = {Order, A =:= B},
    case {cats_nif:test_compare(A, B), cats_nif:test_equal(A, B)} of
        Expected -> ok;
        Other -> error({A, B, Expected, Other})
    end,
    {{HashA, ValueA}, {HashB, ValueB}} = {cats_nif:test_hash(A), cats_nif:test_hash(B)},
    (A =/= B orelse HashA =:= HashB) orelse error({hash, A, B}),
    (A /= B orelse ValueA =:= ValueB) orelse error({hash_of_value, A, B}),
    ok.

%% Normalized keys order as the terms do. Pids and references are of this node before and after it gets a name, of an
%% earlier incarnation of it, and of nodes whose names order below and above.
there_normalized_keys(Runs, AreTold) ->
    [AreTold = byte_size(cats_nif:test_normalized_key(Term)) > 1
     || Term <- [self(), make_ref(), alias(), atomics:new(1, [])]],
    {UnnamedHere, UnnamedElsewhere} = identifiers(),
    Unnamed = UnnamedHere ++ UnnamedElsewhere,
    Before = [{Term, cats_nif:test_normalized_key(Term)} || Term <- Unnamed],
    are_ordered(terms() ++ Unnamed, Runs),
    _ = os:cmd("epmd -daemon"),
    Name = list_to_atom("cats_term_" ++ os:getpid()),
    {ok, _} = net_kernel:start([Name, shortnames]),
    %% What tables keep of terms of this node is still right.
    Own = [Each || {Term, _} = Each <- Before, is_pid(Term) orelse is_reference(Term), node(Term) =:= node()],
    [Key = cats_nif:test_normalized_key(Term) || {Term, Key} <- Own],
    %% Those of this node beside others keep the order of the first name: see cats_renamed_SUITE.
    {Here, Elsewhere} = identifiers(),
    are_ordered(Here ++ [Term || {Term, _} <- Own], Runs),
    are_ordered(Elsewhere, Runs),
    ok = net_kernel:stop().

are_ordered(Terms, Runs) ->
    Leaves = list_to_tuple(Terms),
    Any = fun() -> element(rand:uniform(tuple_size(Leaves)), Leaves) end,
    [begin
         {A, B, C, D} = {Any(), Any(), Any(), Any()},
         [is_ordered(X, Y)
          || {X, Y} <- [{A, B}, {{A, B}, {A, C}}, {{A, B}, {C, D}}, {[A | B], [A | C]}, {{A, B}, {A, B}}]]
     end || _ <- lists:seq(1, Runs)],
    Keys = [Any() || _ <- lists:seq(1, 300)] ++ [{Any(), Any()} || _ <- lists:seq(1, 3000)],
    [Ets, Cats] = [begin
                       Table = Tables:new(keys, [ordered_set]),
                       [Tables:insert(Table, {Key}) || Key <- Keys],
                       Found = [{Tables:lookup(Table, Key), Tables:next(Table, Key)} || Key <- Keys],
                       All = Tables:tab2list(Table),
                       Tables:delete(Table),
                       {Found, All}
                   end || Tables <- [ets, cats]],
    true = Ets =:= Cats.

is_ordered(A, B) ->
    agrees(A, B),
    {KeyA, KeyB} = {cats_nif:test_normalized_key(A), cats_nif:test_normalized_key(B)},
    KeyA =:= KeyB orelse (KeyA < KeyB) =:= (A < B) orelse error({normalized_key, A, KeyA, B, KeyB}).

%% Identifiers and other terms of this node, and identifiers of other nodes.
identifiers() ->
    <<131, Here/binary>> = term_to_binary(self()),
    Size = byte_size(Here) - 13,
    <<_, Own:Size/binary, _:64, Creation:32>> = Here,
    Far = fun(Name) -> <<119, (byte_size(Name)), Name/binary>> end,
    Others = [{Own, Creation bxor 2}, {Own, Creation bxor 16#40000000}, {Far(<<"a@a">>), 3},
              {Far(<<"a@a">>), 4}, {Far(<<"zz@z">>), 1}],
    Random = fun() -> rand:uniform(1 bsl rand:uniform(32)) - 1 end,
    Numbers = [0, 1, 2, 7, 8, 255, 256, 1 bsl 14, (1 bsl 15) - 1, 1 bsl 15, (1 bsl 28) - 1, 1 bsl 28, (1 bsl 32) - 1],
    Some = [{Serial, Id} || Serial <- [0, 1, 5, 8191, (1 bsl 32) - 1], Id <- Numbers]
        ++ [{Random(), Random()} || _ <- lists:seq(1, 60)],
    Pids = fun(Node, Incarnation) ->
                   [<<88, Node/binary, Id:32, Serial:32, Incarnation:32>> || {Serial, Id} <- Some]
           end,
    References = fun(Node, Incarnation) ->
                         [<<90, 3:16, Node/binary, Incarnation:32, (Random() band 16#3ffff):32,
                            (Random()):32, (Random()):32>>
                          || _ <- lists:seq(1, 20)]
                 end,
    %% A pid of this node may have too large a number.
    Made = fun(Each) ->
                   try [binary_to_term(<<131, Each/binary>>)]
                   catch error:badarg -> []
                   end
           end,
    Crafted = fun({Node, Incarnation}) ->
                      lists:flatmap(Made, Pids(Node, Incarnation) ++ References(Node, Incarnation))
              end,
    Processes = [spawn(fun() -> ok end) || _ <- lists:seq(1, 50)],
    {Processes ++ Crafted({Own, Creation}) ++ [make_ref() || _ <- lists:seq(1, 20)]
     ++ [alias() || _ <- lists:seq(1, 10)]
     ++ [atomics:new(1, []) || _ <- lists:seq(1, 10)] ++ [ets:new(table, []), ets:new(table, [])] ++ erlang:ports()
     ++ [1, a, {}, <<"a">>],
     lists:flatmap(Crafted, Others)}.

%% Terms nested deeper than 64 are held: one way or the other, nobody can tell.
there_depth() ->
    Wraps = [fun(T) -> {T} end, fun(T) -> [T] end, fun(T) -> #{a => T} end, fun(T) -> [x | {T}] end],
    Deep = fun(Wrap, Leaf, Depth) -> lists:foldl(fun(_, T) -> Wrap(T) end, Leaf, lists:seq(1, Depth)) end,
    [begin
         Term = Deep(Wrap, Leaf, Depth),
         comes_back(Term),
         [agrees(Term, Deep(Wrap, Other, Depth + More)) || Other <- [1, 1.0, a, 1 bsl 70], More <- [0, 1]]
     end || Wrap <- Wraps, Depth <- [30, 62, 63, 64, 65, 66, 200, 5000], Leaf <- [1, a, 2.5]],
    %% A term is held at the place where it is too deep, whatever stands beside it there.
    [agrees(Deep(fun(T) -> {T} end, A, 63), Deep(fun(T) -> {T} end, B, 63))
     || A <- shallow(), B <- shallow()],
    ok.

shallow() -> [{}, {1}, {{1}}, {1.0}, [1], [[1]], #{1 => 2}, #{1 => #{}}, <<1:3>>, <<1>>, <<>>, [], [1 | 2], [{1} | 2]].

%% What is too large for a scheduler is refused there, and done on a dirty one.
there_large_terms() ->
    Large = [
        lists:seq(1, 20000), lists:duplicate(20000, {a}), list_to_tuple(lists:seq(1, 20000)),
        maps:from_list([{K, K} || K <- lists:seq(1, 10000)]),
        maps:from_list([{{K}, [K]} || K <- lists:seq(1, 100000)]), lists:seq(1, 20000) ++ improper,
        lists:foldl(fun(_, T) -> [T] end, lists:seq(1, 20000), lists:seq(1, 100)), {1 bsl 2000000}
    ],
    [begin
         ?assertMatch(?FAILED(dirty, _), cats_nif:test_roundtrip(Term)),
         true = Term =:= cats_nif:dirty(test_roundtrip, [Term])
     end || Term <- Large],
    %% A large binary is no large term.
    comes_back(binary:copy(<<7>>, 10000000)),
    ok.

%%% Held terms

there_held_terms_are_freed() ->
    Idle = batches(),
    Kept = [cats_nif:test_keep(Term) || _ <- lists:seq(1, 20), Term <- held()],
    true = batches() > Idle,
    [true = cats_nif:test_drop(Reference) || Reference <- Kept],
    expect(fun() -> batches() =< Idle + 1 end),
    ok.

held() ->
    [make_ref(), fun() -> self() end, <<1:700>>, binary:copy(<<1>>, 100), binary:copy(<<1>>, 100000),
     lists:foldl(fun(_, T) -> [T] end, x, lists:seq(1, 100)), {make_ref(), [make_ref()], rand:bytes(1000)}].

batches() ->
    collect(),
    cats_nif:test_batches().

collect() ->
    [cats_nif:test_collect() || _ <- lists:seq(1, 10)].

%% For a minute or longer.
expect(Condition) -> expect(Condition, 3000).

expect(Condition, 0) -> error({never, Condition});
expect(Condition, Times) ->
    case Condition() of
        true -> ok;
        false ->
            collect(),
            timer:sleep(20),
            expect(Condition, Times - 1)
    end.

%% Of many held terms few are left: the others hold no memory any more.
there_batches_are_compacted() ->
    [begin
         Idle = batches(),
         Kept = [{Term, cats_nif:test_keep(Term)} || _ <- lists:seq(1, Count), Term <- [Make()]],
         {Left, Gone} = lists:partition(fun({N, _}) -> N rem 50 =:= 0 end, lists:zip(lists:seq(1, Count), Kept)),
         Full = batches(),
         true = Full - Idle < Count div 20,
         [cats_nif:test_drop(Reference) || {_, {_, Reference}} <- Gone],
         %% Batches in proportion to what is left, but for those open.
         expect(fun() -> batches() - Idle =< (Full - Idle) div 8 + 3 end),
         [Term = cats_nif:test_kept(Reference) || {_, {Term, Reference}} <- Left],
         [cats_nif:test_drop(Reference) || {_, {_, Reference}} <- Left],
         expect(fun() -> batches() =< Idle + 1 end)
     end || {Count, Make} <- [{10000, fun erlang:make_ref/0}, {5000, fun() -> {rand:bytes(70), make_ref()} end},
                              {2000, fun() -> rand:bytes(3000) end},
                              {5000, fun() -> N = rand:uniform(1000), fun() -> N end end},
                              {5000, fun() -> <<1:(rand:uniform(1000) * 8 + 1)>> end}]],
    weights().

%% One small binary left of each dozen, beside large ones that are gone, keeps none of these.
weights() ->
    Before = binaries_size(),
    Kept = [{N, cats_nif:test_keep(rand:bytes(case N rem 12 of 0 -> 100; _ -> 4000 end))} || N <- lists:seq(1, 6000)],
    true = binaries_size() - Before > 10000000,
    [cats_nif:test_drop(Reference) || {N, Reference} <- Kept, N rem 12 =/= 0],
    expect(fun() -> binaries_size() - Before < 5000000 end),
    [100 = byte_size(cats_nif:test_kept(Reference)) || {N, Reference} <- Kept, N rem 12 =:= 0],
    hidden().

%% References that stay do not keep alive a term that is gone, even if the VM did not say that it was large.
hidden() ->
    [begin
         Before = binaries_size(),
         Some = [cats_nif:test_keep(make_ref()) || _ <- lists:seq(1, 20)],
         Large = cats_nif:test_keep(Make()),
         More = [cats_nif:test_keep(make_ref()) || _ <- lists:seq(1, 100)],
         true = binaries_size() - Before > 30000000,
         cats_nif:test_drop(Large),
         expect(fun() -> binaries_size() - Before < 5000000 end),
         [true = is_reference(cats_nif:test_kept(Reference)) || Reference <- Some ++ More]
     end || Make <- [fun() -> <<0:400000001>> end,
                     fun() -> Bytes = <<0:400000000>>, fun() -> Bytes end end,
                     fun() -> binary:part(<<0:400000000>>, 0, 100) end]],
    ok.

%% Without what only this process has not yet let go of. What was freed on another thread counts until a scheduler of
%% the allocator wakes.
binaries_size() ->
    erlang:garbage_collect(),
    erlang:memory(binary).

%% Processes read what is left of batches while these are compacted, and their memory is used again.
there_readers_during_compaction() ->
    [compaction_round() || _ <- lists:seq(1, cats_test_lib:rounds(75))].

compaction_round() ->
    Rounds = [{{Term, cats_nif:test_keep(Term)}, [cats_nif:test_keep(make_ref()) || _ <- lists:seq(1, 30)]}
              || N <- lists:seq(1, 300), Term <- [{N, make_ref(), rand:bytes(80)}]],
    {Lasting, Beside} = lists:unzip(Rounds),
    Readers = [spawn_monitor(fun() -> read(Lasting) end) || _ <- lists:seq(1, 3)],
    [cats_nif:test_drop(Reference) || References <- Beside, Reference <- References],
    Reuse = [cats_nif:test_keep({make_ref(), make_ref()}) || _ <- lists:seq(1, 1000), cats_nif:test_collect() =/= none],
    [Reader ! stop || {Reader, _} <- Readers],
    [receive {'DOWN', Monitor, process, _, Reason} -> normal = Reason end || {_, Monitor} <- Readers],
    [cats_nif:test_drop(Reference) || Reference <- Reuse],
    [Term = cats_nif:test_kept(Reference) || {Term, Reference} <- Lasting],
    [cats_nif:test_drop(Reference) || {_, Reference} <- Lasting].

read(Lasting) ->
    [Term = cats_nif:test_kept(Reference) || {Term, Reference} <- Lasting],
    receive
        stop -> ok
    after 0 -> read(Lasting)
    end.

%% Processes free terms of the same batches, each every fourth one. What one of them compacts, others are about to free.
there_given_back_during_compaction() ->
    Idle = batches(),
    [begin
         Kept = [{N, cats_nif:test_keep({make_ref(), make_ref()})} || N <- lists:seq(1, 4000)],
         Droppers = [spawn_monitor(fun() ->
                                       [true = cats_nif:test_drop(Reference)
                                        || {N, Reference} <- Kept, N rem 4 =:= Own],
                                       collect()
                                   end) || Own <- lists:seq(0, 3)],
         [receive {'DOWN', Monitor, process, _, Reason} -> normal = Reason end || {_, Monitor} <- Droppers]
     end || _ <- lists:seq(1, 50)],
    expect(fun() -> batches() =< Idle + 1 end).

there_binaries() ->
    %% A large one is shared: many copies of it, taken out, are one.
    Large = cats_nif:test_keep(rand:bytes(10000000)),
    Before = binaries_size(),
    Out = [cats_nif:test_kept(Large) || _ <- lists:seq(1, 100)],
    true = binaries_size() - Before < 1000000,
    100 = length(Out),
    %% A part keeps the whole, and lets go of it.
    Parts = lists:append([begin
                              Whole = rand:bytes(10000000),
                              [cats_nif:test_keep(binary:part(Whole, At, Size))
                               || {At, Size} <- [{0, 100}, {64, 4096}, {5, 65}]]
                          end || _ <- lists:seq(1, 5)]),
    erlang:garbage_collect(),
    [10000000 = binary:referenced_byte_size(cats_nif:test_kept(Part)) || Part <- Parts],
    [100, 4096, 65 | _] = [byte_size(cats_nif:test_kept(Part)) || Part <- Parts],
    [cats_nif:test_drop(Part) || Part <- Parts],
    expect(fun() -> erlang:garbage_collect(), binaries_size() - Before < 5000000 end),
    %% Bytes that begin within a byte; and one that is being appended to.
    <<_:3, Shifted:8000/binary, _/bitstring>> = rand:bytes(9000),
    comes_back(Shifted),
    Kept = cats_nif:test_keep(Shifted),
    Others = [cats_nif:test_keep(rand:bytes(5000)) || _ <- lists:seq(1, 100)],
    [cats_nif:test_drop(Other) || Other <- Others],
    Shifted = cats_nif:test_kept(Kept),
    true = cats_nif:test_equal(Shifted, cats_nif:test_kept(Kept)),
    {_, Appended} = lists:foldl(
        fun(N, {Binary, References}) ->
            Longer = <<Binary/binary, N:80>>,
            {Longer, [{Longer, cats_nif:test_keep(Longer)} | References]}
        end, {<<>>, []}, lists:seq(1, 1000)),
    [Binary = cats_nif:test_kept(Reference) || {Binary, Reference} <- Appended],
    ok.

%%% Processes, failures, loading

%% A stored fun keeps its entry in the VM's table of funs, also without its module, and gives it back.
there_funs() ->
    Code = module_of_funs(cats_test_funs),
    %% The second time, no other module is loaded meanwhile.
    [stored_funs(cats_test_funs, Code, Entries)
     || Entries <- [fun(_) -> ok end, fun(Number) -> Number = fun_entries() end]],
    [comes_back({fun(Y) -> {X, Y} end, X}) || X <- terms()],
    External = fun lists:no_such_function/3,
    comes_back(External),
    {arity, 3} = erlang:fun_info(roundtrip(External), arity),
    comes_back([fun erlang:self/0 | External]).

stored_funs(Module, Code, AreEntries) ->
    {module, Module} = code:load_binary(Module, atom_to_list(Module), Code),
    {Batches, Entries} = {batches(), fun_entries()},
    Kept = cats_test_lib:in_process(
             fun() ->
                     Terms = [X || _ <- lists:seq(1, 100), X <- [1, a, self(), []]],
                     [{X, self(), cats_nif:test_keep(Module:make(X))} || X <- Terms]
             end),
    true = code:delete(Module),
    code:purge(Module),
    true = batches() =< Batches,
    AreEntries(Entries),
    %% Since OTP 29 nobody counts the references, and funs do not tell who made them.
    ArePlain = erlang:system_info(otp_release) >= "29",
    [begin
         Fun = cats_nif:test_kept(Reference),
         {env, [X]} = erlang:fun_info(Fun, env),
         true = {pid, Creator} =:= erlang:fun_info(Fun, pid) orelse ArePlain,
         {arity, 1} = erlang:fun_info(Fun, arity),
         ?assertError(_, Fun(y)),
         comes_back(Fun),
         comes_back({Fun, [#{Fun => X}]}),
         agrees(Fun, of_another_node(Fun))
     end || {X, Creator, Reference} <- Kept],
    [true = cats_nif:test_drop(Reference) || {_, _, Reference} <- Kept],
    collect(),
    erlang:garbage_collect(),
    ArePlain orelse AreEntries(Entries - 1).

%% The same fun, created by a process of another node.
of_another_node(Fun) ->
    <<131, 112, _:32, Parts/binary>> = term_to_binary(Fun),
    Pid = term_to_binary(self()),
    [Before, <<_:96, Behind/binary>>] = binary:split(Parts, binary:part(Pid, 1, byte_size(Pid) - 13)),
    Foreign = <<Before/binary, 88, 119, 7, "foo@bar", 1:32, 2:32, 3:32, Behind/binary>>,
    Made = binary_to_term(<<131, 112, (byte_size(Foreign) + 4):32, Foreign/binary>>),
    true = Made =:= Fun,
    Made.

%% A module with a function that makes a fun.
module_of_funs(Module) ->
    Forms = [{attribute, 1, module, Module},
             {attribute, 1, export, [{make, 1}]},
             {function, 1, make, 1,
              [{clause, 1, [{var, 1, 'X'}], [],
                [{'fun', 1,
                  {clauses, [{clause, 1, [{var, 1, 'Y'}], [], [{tuple, 1, [{var, 1, 'X'}, {var, 1, 'Y'}]}]}]}}]}]}],
    {ok, Module, Code} = compile:forms(Forms),
    Code.

%% The number of entries in the VM's table of funs.
fun_entries() ->
    collect(),
    case re:run(erlang:system_info(info), "=hash_table:fun_table\\n.*\\n.*\\nobjs: (\\d+)", [{capture, [1], list}]) of
        {match, [Number]} -> list_to_integer(Number);
        nomatch -> none
    end.

there_owners_are_watched() ->
    {Dead, Monitor} = spawn_monitor(fun() -> ok end),
    receive {'DOWN', Monitor, process, _, _} -> ok end,
    false = cats_nif:test_watch(Dead),
    0 = cats_nif:test_watched(),
    Living = [spawn(fun() -> receive stop -> ok end end) || _ <- lists:seq(1, 1000)],
    [[true, true] = [cats_nif:test_watch(Process) || _ <- [1, 2]] || Process <- Living],
    1000 = cats_nif:test_watched(),
    [Process ! stop || Process <- Living],
    expect(fun() -> cats_nif:test_watched() =:= 0 end),
    %% Whoever ends while it is being watched is told of, unless the answer was that it has ended.
    [cats_nif:test_watch(spawn(fun() -> ok end)) || _ <- lists:seq(1, 20000)],
    expect(fun() -> cats_nif:test_watched() =:= 0 end),
    ok.

there_panic() ->
    %% Also while the VM is still busy with loading the library.
    [begin
         code:purge(cats_nif),
         {module, _} = code:load_file(cats_nif),
         Calls = [spawn_monitor(fun() -> ?assertMatch(?FAILED(none, _), cats_nif:dirty(no_function, [])) end)
                  || _ <- lists:seq(1, 20)],
         [receive {'DOWN', Monitor, process, _, Reason} -> normal = Reason end || {_, Monitor} <- Calls]
     end || _ <- lists:seq(1, 30)],
    ?assertMatch(?FAILED({panic, <<"as asked">>}, []), cats_nif:test_panic()),
    ?assertMatch(?FAILED({panic, <<"as asked">>}, []), cats_nif:dirty(test_panic, [])),
    ?assertMatch(?FAILED({system_limit, memory}, []), cats_nif:test_out_of_memory()),
    ?assertMatch(?FAILED({system_limit, memory}, []), cats_nif:dirty(test_out_of_memory, [])),
    comes_back({still, here}),
    ok.

there_reload() ->
    Term = {make_ref(), rand:bytes(100), fun erlang:abs/1},
    First = cats_nif:test_keep(Term),
    Steps = [
        fun() -> {module, _} = code:load_file(cats_nif) end,
        fun() -> code:purge(cats_nif), {module, _} = code:load_file(cats_nif) end,
        fun() -> code:purge(cats_nif), code:delete(cats_nif), {module, _} = code:load_file(cats_nif) end,
        fun() ->
            code:purge(cats_nif), code:delete(cats_nif), code:purge(cats_nif),
            {module, _} = code:load_file(cats_nif)
        end
    ],
    [begin
         Step(),
         Kept = cats_nif:test_keep(Term),
         [Term = cats_nif:test_kept(Reference) || Reference <- [First, Kept]]
     end || Step <- Steps ++ Steps],
    true = cats_nif:test_drop(First),
    undefined = cats_nif:test_kept(First),
    ok.

%% A library that was replaced on disk, or is another one, is refused, and the one that is loaded goes on.
there_other_build(Priv) ->
    Kept = cats_nif:test_keep(kept),
    Library = filename:join(Priv, "cats_nif.so"),
    Aside = Library ++ ".aside",
    ok = file:rename(Library, Aside),
    {ok, Bytes} = file:read_file(Aside),
    ok = file:write_file(Library, [Bytes, "other"]),
    logger:set_primary_config(level, none),
    Loaded = code:load_file(cats_nif),
    ok = file:rename(Aside, Library),
    {error, on_load_failure} = Loaded,
    kept = cats_nif:test_kept(Kept),
    {module, cats_nif} = code:load_file(cats_nif),
    kept = cats_nif:test_kept(Kept),
    ok.

%% All terms as keys and as values, with the setting `vm_terms'.
there_tables_by_erl_nif() ->
    Terms = terms(),
    [begin
         Table = cats:new(by_erl_nif, [Type, public, {heir, self(), Terms}]),
         [begin
              true = cats:insert(Table, {Term, Term}),
              true = cats:insert(Table, [{N, Term}, {N, Term, N}]),
              true = lists:any(fun(Object) -> element(2, Object) =:= Term end, cats:lookup(Table, Term)),
              true = cats:member(Table, Term)
          end || {N, Term} <- lists:enumerate(Terms)],
         [true = cats:delete(Table, Term) || Term <- Terms],
         true = cats:delete(Table)
     end || Type <- [set, ordered_set, bag, duplicate_bag]],
    {_, lock_free, erl_nif, infinity, 0} = cats_nif:settings(),
    false = cats_nif:test_layout_of_resources(),
    ok.
