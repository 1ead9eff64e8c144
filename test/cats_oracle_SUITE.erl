%% The comparison of cats with ets by random calls (cats_oracle.erl), of which CALLS are made (100000 by
%% default), and the proof that it can fail (cats_oracle_faults.erl).
-module(cats_oracle_SUITE).
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, finds_every_fault/1, finds_no_difference/1]).

suite() -> [{timetrap, infinity}].

all() -> [finds_every_fault, finds_no_difference].

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
