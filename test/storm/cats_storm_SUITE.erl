%% A storm of combinations (cats_storm.erl) of a fixed number of operations, in a VM of its own, on a native library
%% with debug assertions. The environment may give STORM_OPERATIONS, and another SEED.
-module(cats_storm_SUITE).

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([storm/1]).

%% The storm has the same rounds each time, so that the suite does not fail by chance. Two idle processors take about
%% a quarter of a minute.
-define(SEED, 1).
-define(OPERATIONS, 200000).

suite() -> [{timetrap, {minutes, 30}}].

all() -> [storm].

init_per_suite(Config) ->
    case os:find_executable("cargo") of
        false -> {skip, "no cargo"};
        _ -> Config
    end.

end_per_suite(_Config) -> ok.

%% If it fails, the end of what it wrote tells how to repeat it.
storm(_Config) ->
    Root = cats_test_lib:root(),
    Erl = filename:join([code:root_dir(), "bin", "erl"]),
    Operations = integer_to_list(cats_test_lib:environment("STORM_OPERATIONS", cats_test_lib:rounds(?OPERATIONS))),
    Seed = integer_to_list(cats_test_lib:environment("SEED", ?SEED)),
    Arguments = ["-u", "SECONDS", "ERL=" ++ Erl, "SEED=" ++ Seed, "OPERATIONS=" ++ Operations,
                 filename:join([Root, "scripts", "storm"])],
    case cats_test_lib:run("env", Arguments) of
        {0, Output} -> ct:log("~ts", [Output]);
        {_, Output} -> ct:fail("~ts", [lists:nthtail(max(0, length(Output) - 5000), Output)])
    end.
