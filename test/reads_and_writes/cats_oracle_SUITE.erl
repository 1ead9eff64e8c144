%% The comparison of cats with ets by random calls (cats_oracle.erl), and the proof that it can fail
%% (cats_oracle_faults.erl). CALLS (environment) is the number of calls.
-module(cats_oracle_SUITE).
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, finds_every_fault/1, finds_no_difference/1,
         keys_that_begin_alike/1, keys_of_all_shapes/1, lowest_small_integer/1, elements_replace_each_other/1]).

suite() -> [{timetrap, infinity}].

all() ->
    [finds_every_fault, finds_no_difference, keys_that_begin_alike, keys_of_all_shapes, lowest_small_integer,
     elements_replace_each_other].

init_per_suite(Config) -> cats_test_lib:start(Config).

end_per_suite(_Config) -> ok.

%% It needs all table types.
finds_every_fault(_Config) ->
    case os:getenv("ENGINE", "") of
        "" -> [] = cats_oracle_faults:wrong_verdicts();
        _ -> {skip, "compares ets with itself, whatever the engine"}
    end.

finds_no_difference(_Config) ->
    {ok, Compared} = cats_oracle:run(cats_test_lib:environment("CALLS", cats_test_lib:rounds(20000))),
    {comment, io_lib:format("~b calls compared", [Compared])}.

%% So many keys that an ordered table has nodes whose separators share prefixes of various lengths.
keys_that_begin_alike(_Config) ->
    lists:foreach(fun(Key) ->
        Keys = [Key(N) || N <- lists:seq(1, 3000)],
        Table = ets:new(keys, [ordered_set]),
        Tested = cats:new(keys, [ordered_set]),
        [true = Tables:insert(T, {K}) || {Tables, T} <- [{ets, Table}, {cats, Tested}], K <- Keys],
        [[{K}] = cats:lookup(Tested, K) || K <- Keys],
        [[] = cats:lookup(Tested, Key(N + 0.5)) || N <- lists:seq(1, 3000)],
        true = ets:tab2list(Table) =:= cats:tab2list(Tested),
        true = cats:delete(Tested)
    end, [fun(N) -> {user, N} end,
          fun(N) -> {{session, <<"example.org">>}, [round(N) rem 100, N], open} end,
          fun(N) -> "user:" ++ lists:flatten(io_lib:format("~w", [N])) end,
          fun(N) -> {-(N * 0.5), {a_long_name, -N}} end,
          fun(N) -> [some_name, 1.0e30, <<0, 0, 255, "bytes">>, N] end]).

%% Every term is a key, alone and inside others, at the borders of what is searched for without encoding it. Half of the
%% keys are there. Each is sought as it was inserted, and as an equal term that lies elsewhere: parts of binaries become
%% binaries of their own.
keys_of_all_shapes(_Config) ->
    Terms = cats_oracle_terms:all(self()),
    Wraps = [fun(Term) -> Term end, fun(Term) -> {Term} end,
             fun(Term) -> {user, Term, Term} end, fun(Term) -> [a, Term] end,
             fun(Term) -> [Term | Term] end, fun(Term) -> {{n, [Term, <<"b">>, 1.5]}, make_ref, {-1 bsl 70, Term}} end]
        ++ [fun(Term) -> Around(Term, Length) end
            || Length <- [1, 2, 3, 7, 8, 9, 63, 64, 65, 124, 125, 126],
               Around <- [fun(Term, N) -> [Term | lists:seq(2, N)] end,
                          fun(Term, N) -> list_to_tuple([Term | lists:seq(2, N)]) end]]
        ++ [fun(Term) -> lists:foldl(fun(_, Nested) -> {Nested} end, Term, lists:seq(1, Depth)) end
            || Depth <- [30, 61, 62, 63, 64, 65]],
    [begin
         Tables = [{ets, ets:new(t, [Type])}, {cats, cats:new(t, [Type])}],
         Keys = [Wrap(Term) || Term <- Terms],
         {Half, _} = lists:split(length(Keys) div 2, shuffled(Keys)),
         [true = Module:insert(Table, {Key, 1}) || {Module, Table} <- Tables, Key <- Half],
         [begin
              Calls = calls(Key),
              [E, C] = [[caught(Module, Call, [Table | Arguments]) || {Call, Arguments} <- Calls]
                        || {Module, Table} <- Tables],
              true = E =:= C orelse error({differs, Type, Key, E, C})
          end || Term <- shuffled(Keys), Key <- [Term, binary_to_term(term_to_binary(Term))]],
         [E, C] = [Module:tab2list(Table) || {Module, Table} <- Tables],
         {[], []} = {E -- C, C -- E},
         [true = Module:delete(Table) || {Module, Table} <- Tables]
     end || Type <- cats_test_lib:types([set, bag, duplicate_bag, ordered_set]), Wrap <- Wraps],
    ok.

calls(Key) ->
    Calls = [{lookup, [Key]}, {member, [Key]}, {lookup_element, [Key, 2]}, {update_counter, [Key, {2, 1}]},
             {update_element, [Key, {2, 7}]}, {update_counter, [Key, {2, 1}, {key, 1}]}, {insert_new, [{Key, 5}]},
             {delete_object, [{Key, 5}]}, {take, [Key]}, {delete, [Key]}, {lookup, [Key]}, {insert, [{Key, 1}]}],
    [Call || Call <- Calls, rand:uniform(3) > 1].

caught(Module, Function, Arguments) ->
    try apply(Module, Function, Arguments) catch error:badarg -> badarg end.

%% When the VM converts the float -2^59 to an integer, the result does not have the usual form of that number. It is
%% found in objects that are stored in different ways, and in an ordered_set by the float.
lowest_small_integer(_Config) ->
    Float = binary_to_term(term_to_binary(-5.764607523034235e17)),
    Key = trunc(Float),
    [begin
         Table = cats:new(lowest, [Type]),
         true = cats:insert(Table, {Wrap(Key), Value}),
         [{_, Value}] = cats:lookup(Table, Wrap(Key)),
         true = (Type =:= ordered_set) =:= cats:member(Table, Wrap(Float)),
         true = cats:delete(Table)
     end || Type <- cats_test_lib:types([set, ordered_set]), Value <- [value, lists:seq(1, 1000)],
            Wrap <- [fun(Term) -> Term end, fun(Term) -> {Term} end, fun(Term) -> [a | Term] end]],
    ok.

%% Elements of one object are replaced again and again by others of all kinds and sizes, one or several at a time.
elements_replace_each_other(_Config) ->
    Values = [1, a, [], self(), 1.0, -0.0, 1 bsl 59, -(1 bsl 59) - 1, 1 bsl 64, 1 bsl 200, make_ref(), make_ref(), {},
              {1}, {1, 2}, {a, {b}}, {1.5, 2}, "a", "b", "abc", [1, 2, 3], [1 | 2], [[1], 2, 3], #{}, #{a => 1},
              #{a => [1]}, <<>>, <<1>>, <<"seven by">>, <<"eight by">>, <<"nine byte">>, <<1:3>>,
              binary:copy(<<"x">>, 60), binary:copy(<<"x">>, 100), fun erlang:self/0],
    Several = [[{2, A}, {4, B}] || A <- Values, B <- [1, 2.0, <<"seven by">>, <<"eight by">>, {a, {b}}]],
    Updates = [{2, Value} || Value <- Values] ++ Several
        ++ [[{2, A}, {3, 1}, {2, B}, {4, A}] || A <- Values, B <- Values],
    [begin
         Tables = [{ets, ets:new(t, [Type, {keypos, Position}])}, {cats, cats:new(t, [Type, {keypos, Position}])}],
         Object = setelement(Position, {k, 1, 2, 3, <<"stays">>}, Key),
         [true = Module:insert(Table, Object) || {Module, Table} <- Tables],
         [begin
              [E, C] = [{Module:update_element(Table, Key, Update), Module:lookup(Table, Key),
                         Module:lookup_element(Table, Key, 2), Module:lookup_element(Table, Key, 4)}
                        || {Module, Table} <- Tables],
              true = E =:= C orelse error({differs, Update, E, C})
          end || Update <- shuffled(Updates)],
         [E, C] = [Module:tab2list(Table) || {Module, Table} <- Tables],
         true = E =:= C,
         [true = Module:delete(Table) || {Module, Table} <- Tables]
     end || Type <- cats_test_lib:types([set, ordered_set]), {Position, Key} <- [{1, k}, {1, {k, "1"}}, {5, <<"k">>}],
            _ <- lists:seq(1, 5)],
    ok.

shuffled(List) ->
    [Element || {_, Element} <- lists:sort([{rand:uniform(), Element} || Element <- List])].
