%% The comparison of cats with ets by random calls (cats_oracle.erl), of which CALLS are made (100000 by
%% default), and the proof that it can fail (cats_oracle_faults.erl).
-module(cats_oracle_SUITE).
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, finds_every_fault/1, finds_no_difference/1,
         keys_that_begin_alike/1]).

suite() -> [{timetrap, infinity}].

all() -> [finds_every_fault, finds_no_difference, keys_that_begin_alike].

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

%% So many that an ordered table has nodes whose separators have a prefix in common, of various lengths.
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
