%% The comparison of cats with ets by random patterns and match specifications (cats_select_oracle.erl), in CALLS calls
%% (environment).
-module(cats_select_oracle_SUITE).
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, finds_no_difference/1]).

suite() -> [{timetrap, infinity}].

all() -> [finds_no_difference].

init_per_suite(Config) -> cats_test_lib:start(Config).

end_per_suite(_Config) -> ok.

finds_no_difference(_Config) ->
    {ok, Compared} = cats_select_oracle:run(cats_test_lib:environment("CALLS", cats_test_lib:rounds(15000))),
    {comment, io_lib:format("~b calls compared", [Compared])}.
