%% A hook of Common Test. Seeds the random choices of each case. Prints which case failed, why and with which seed, for
%% scripts/test, which shows it at the end of its output. SEED=N repeats the choices that the process of a case makes.
%% Its other processes make other ones.
-module(cats_reports).
-export([init/2, pre_init_per_testcase/4, on_tc_fail/4]).

init(_Id, _Options) -> {ok, none}.

pre_init_per_testcase(_Suite, _Case, Config, _State) ->
    Seed = cats_test_lib:environment("SEED", rand:uniform(1 bsl 32)),
    _ = rand:seed(exsss, Seed),
    {Config, Seed}.

on_tc_fail(Suite, Case, Reason, Seed) ->
    io:format(user, "~nFAILED ~p:~p~nseed ~p~n~tP~n~n", [Suite, Case, Seed, Reason, 100]),
    Seed.
