%% Binaries that objects share with processes. After any operations the VM counts as many references to each binary as
%% when ets has the same objects. When the objects are gone, no reference is left.
-module(cats_binaries_SUITE).
-measures([memory_comes_back]).
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([as_many_references_as_in_ets/1, parts/1, appended/1, many_at_once/1, memory_comes_back/1]).

-define(T, (cats_test_lib:tables())).
-define(BINARIES, 6).

suite() -> [{timetrap, {minutes, 10}}].

all() -> [as_many_references_as_in_ets, parts, appended, many_at_once, memory_comes_back].

init_per_suite(Config) -> cats_test_lib:start(Config).

end_per_suite(_Config) -> ok.

init_per_testcase(memory_comes_back, Config) -> cats_test_lib:with_memory(Config);
init_per_testcase(_Case, Config) -> Config.

end_per_testcase(_Case, _Config) -> ok.

%%------------------------------------------------------------------------------------------------------------
%% The same operations on both

%% Random operations on a table of each module, each with binaries of its own. CALLS (environment) is the number of
%% rounds.
as_many_references_as_in_ets(_Config) ->
    [agree(Type, More)
     || Type <- cats_test_lib:types(), More <- [[], [compressed]],
        _ <- lists:seq(1, cats_test_lib:environment("CALLS", cats_test_lib:rounds(400)) div 20)],
    ok.

agree(Type, More) ->
    Seed = {erlang:unique_integer([positive]), 2, 3},
    Options = [Type, public | More],
    Ours = [binary:copy(rand:bytes(1000 + 2 * N)) || N <- lists:seq(1, ?BINARIES)],
    Theirs = [<<Binary/binary, 0>> || Binary <- Ours],
    Tables = [{cats, cats_test_lib:new(cats, t, Options), list_to_tuple(Ours)},
              {ets, ets:new(t, Options), list_to_tuple([binary:copy(Binary) || Binary <- Theirs])}],
    Run = fun(Steps) -> [cats_test_lib:in_process(fun() -> steps(Module, Table, Binaries, Type, Seed, Steps) end)
                         || {Module, Table, Binaries} <- Tables]
          end,
    [Same, Same] = Run(60),
    eventually_equal(fun() -> [references(Binaries) || {_, _, Binaries} <- Tables] end, Tables, Seed),
    [true = Module:delete(Table) || {Module, Table, _} <- Tables],
    eventually_equal(fun() -> [references(B) || {_, _, B} <- Tables] ++ [lists:duplicate(?BINARIES, 1)] end,
                     Tables, Seed),
    ok.

%% Many other objects are replaced meanwhile, because replaced objects are freed together.
eventually_equal(Lists, Tables, Seed) ->
    Other = ?T:new(other, []),
    Equal = fun() ->
                    [?T:insert(Other, {key, rand:bytes(100)}) || _ <- lists:seq(1, 200)],
                    length(lists:usort(Lists())) =:= 1
            end,
    try
        cats_test_lib:eventually(Equal)
    catch
        Class:Reason ->
            error({Class, Reason, Lists(), [{Module, Module:tab2list(Table)} || {Module, Table, _} <- Tables], Seed})
    after
        ?T:delete(Other)
    end.

%% The number of references to each binary. All are this process' own.
references(Binaries) ->
    erlang:garbage_collect(),
    {binary, Known} = process_info(self(), binary),
    [begin
         [Count | _] = Counts = [Count || {_, Size, Count} <- Known, Size =:= byte_size(Binary)],
         1 + Count - length(Counts)
     end || Binary <- tuple_to_list(Binaries)].

%% The results of the operations, with sizes in place of the binaries.
steps(Module, Table, Binaries, Type, Seed, Steps) ->
    rand:seed(exsss, Seed),
    [without_binaries(catch_error(fun() -> step(Module, Table, Binaries, Type) end)) || _ <- lists:seq(1, Steps)].

catch_error(Function) ->
    try
        Function()
    catch
        error:Reason -> {error, Reason}
    end.

without_binaries(Binary) when is_binary(Binary) -> byte_size(Binary) div 2;
without_binaries([Head | Tail]) -> [without_binaries(Head) | without_binaries(Tail)];
without_binaries(Tuple) when is_tuple(Tuple) -> list_to_tuple(without_binaries(tuple_to_list(Tuple)));
without_binaries(Map) when is_map(Map) -> without_binaries(maps:to_list(Map));
without_binaries(Term) -> Term.

step(Module, Table, Binaries, Type) ->
    Key = key(Binaries),
    Object = {Key, rand:uniform(3), value(Binaries)},
    Sorted = fun(List) -> lists:sort(without_binaries(List)) end,
    Many = fun() -> [{key(Binaries), 1, value(Binaries)} || _ <- lists:seq(1, rand:uniform(5))] end,
    case rand:uniform(17) of
        1 -> Module:insert(Table, Many());
        2 -> Module:insert(Table, Many() ++ [{}]);
        3 -> Module:insert_new(Table, Object);
        4 -> Module:insert_new(Table, Many());
        5 -> Module:delete(Table, Key);
        6 -> Module:delete_object(Table, Object);
        7 -> Module:update_counter(Table, Key, {2, 1});
        8 -> Module:update_counter(Table, Key, {3, 1});
        9 when Type =:= set; Type =:= ordered_set -> Module:update_counter(Table, Key, {2, 1}, {x, 0, value(Binaries)});
        10 -> Module:update_element(Table, Key, {2, x});
        11 -> Module:update_element(Table, Key, [{3, value(Binaries)}, {2, 5}]);
        12 -> Sorted(Module:take(Table, Key));
        13 -> Sorted(Module:lookup(Table, Key));
        14 when Type =:= set; Type =:= ordered_set ->
            Value = value(Binaries),
            Module:select_replace(Table, [{{'$1', 1, '$2'}, [], [{{'$1', {const, Value}, '$2'}}]}]);
        15 ->
            Module:select_delete(Table,
                                 [{{'_', '_', '$1'}, [{'is_binary', '$1'}, {'=:=', 1, rand:uniform(3)}], [true]}]);
        16 -> Module:match_delete(Table, {Key, '_', value(Binaries)});
        _ -> Module:insert(Table, Object)
    end.

key(Binaries) ->
    case rand:uniform(3) of
        1 -> element(rand:uniform(3), Binaries);
        2 -> {rand:uniform(2), element(rand:uniform(3), Binaries)};
        3 -> rand:uniform(3)
    end.

value(Binaries) ->
    Binary = element(rand:uniform(?BINARIES), Binaries),
    case rand:uniform(6) of
        1 -> [Binary, x, Binary];
        2 -> #{a => Binary, 1 => 2};
        3 -> {Binary, [{Binary}], make_fun()};
        4 -> binary:part(Binary, rand:uniform(100), 500);
        5 -> rand:uniform(2);
        _ -> Binary
    end.

%% A term that is stored as a held term.
make_fun() -> fun erlang:self/0.

%%------------------------------------------------------------------------------------------------------------
%% Binaries of other kinds

%% A part keeps the whole binary, whatever the bits at which it begins and ends.
parts(_Config) ->
    Table = ?T:new(t, []),
    Whole = rand:bytes(100000),
    Parts = [Part || From <- [0, 1, 8, 13, 8000], Size <- [512, 520, 521, 8000, 400000],
                     <<_:From, Part:Size/bitstring, _/bitstring>> <- [Whole]],
    true = ?T:insert(Table, lists:enumerate(Parts)),
    [[{N, Part}] = ?T:lookup(Table, N) || {N, Part} <- lists:enumerate(Parts)],
    [true = ?T:insert(Table, {Part, N}) || {N, Part} <- lists:enumerate(Parts)],
    [[{Part, N}] = ?T:lookup(Table, binary_copy(Part)) || {N, Part} <- lists:enumerate(Parts)],
    [100000] = lists:usort([binary:referenced_byte_size(Part)
                            || [{_, Part}] <- [?T:lookup(Table, N) || N <- [2, 3, 4, 5]]]),
    ?T:delete(Table).

binary_copy(Bits) -> <<<<Bit:1>> || <<Bit:1>> <= Bits>>.

%% A binary in a table stays as it was when a process appends to it.
appended(_Config) ->
    Table = ?T:new(t, []),
    Append = fun(N, Binary) ->
                     Longer = <<Binary/binary, N:80>>,
                     true = ?T:insert(Table, [{N, Longer}, {{part, N}, binary:part(Longer, 0, N * 10)}, {Longer, N}]),
                     N rem 7 =:= 0 andalso ?T:lookup(Table, N),
                     Longer
             end,
    lists:foldl(Append, <<>>, lists:seq(1, 2000)),
    Again = fun(N, Binary) ->
                    Longer = <<Binary/binary, N:80>>,
                    [{N, Longer}] = ?T:lookup(Table, N),
                    [{_, Longer}] = ?T:lookup(Table, {part, N}),
                    [{Longer, N}] = ?T:lookup(Table, Longer),
                    <<_/binary>> = <<(element(2, hd(?T:lookup(Table, N))))/binary, 0:80>>,
                    Longer
            end,
    lists:foldl(Again, <<>>, lists:seq(1, 2000)),
    ?T:delete(Table).

%%------------------------------------------------------------------------------------------------------------
%% Many processes

%% Readers and writers use the same objects. Some are killed meanwhile, and so are owners of tables.
many_at_once(_Config) ->
    Binaries = list_to_tuple([binary:copy(rand:bytes(2000 + N)) || N <- lists:seq(1, ?BINARIES)]),
    [begin
         {Owner, Table} = cats_test_lib:spawn_owner(fun() -> ?T:new(t, [Type, public | More]) end),
         Worker = fun Loop() -> catch_error(fun() -> step(?T, Table, Binaries, Type) end), Loop() end,
         Workers = [spawn(fun() -> Worker() end) || _ <- lists:seq(1, 6)],
         timer:sleep(cats_test_lib:rounds(300)),
         {Some, Others} = lists:split(3, Workers),
         [cats_test_lib:stop(Pid, kill) || Pid <- Some],
         cats_test_lib:stop(Owner, kill),
         [cats_test_lib:stop(Pid, kill) || Pid <- Others],
         eventually_equal(fun() -> [references(Binaries), lists:duplicate(?BINARIES, 1)] end, [], none)
     end || Type <- cats_test_lib:types(), More <- [[], [compressed], [{write_concurrency, true}]]],
    ok.

%% The memory of the binaries is freed with their objects.
memory_comes_back(_Config) ->
    Table = ?T:new(t, [public]),
    Before = erlang:memory(binary),
    cats_test_lib:in_process(fun() ->
                                     [?T:insert(Table, {N, {rand:bytes(10000), N}})
                                      || _ <- [1, 2], N <- lists:seq(1, 5000)],
                                     ok
                             end),
    true = erlang:memory(binary) - Before > 45_000_000,
    cats_test_lib:in_process(fun() -> [?T:update_element(Table, N, {2, x}) || N <- lists:seq(1, 5000, 2)], ok end),
    cats_test_lib:eventually(fun() -> erlang:memory(binary) - Before < 27_000_000 end),
    ?T:delete(Table),
    cats_test_lib:eventually(fun() -> erlang:memory(binary) - Before < 1_000_000 end).
