%% The comparison of cats with ets by random calls (cats_oracle.erl), and the proof that it can fail
%% (cats_oracle_faults.erl). CALLS (environment, 100000 by default) is the number of calls.
-module(cats_oracle_SUITE).
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, finds_every_fault/1, finds_no_difference/1,
         keys_that_begin_alike/1, lowest_small_integer/1]).

suite() -> [{timetrap, infinity}].

all() -> [finds_every_fault, finds_no_difference, keys_that_begin_alike, lowest_small_integer].

init_per_suite(Config) -> cats_test_lib:start(Config).

end_per_suite(_Config) -> ok.

%% It needs all table types.
finds_every_fault(_Config) ->
    case os:getenv("ENGINE", "") of
        "" -> [] = cats_oracle_faults:wrong_verdicts();
        _ -> {skip, "compares ets with itself, whatever the engine"}
    end.

finds_no_difference(_Config) ->
    {ok, Compared} = cats_oracle:run(cats_test_lib:environment("CALLS", 100000)),
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
