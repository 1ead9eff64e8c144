%% A hook of Common Test. Prints which case failed and why, for scripts/test, which shows it at the end of its output.
-module(cats_reports).
-export([init/2, on_tc_fail/4]).

init(_Id, _Options) -> {ok, []}.

on_tc_fail(Suite, Case, Reason, State) ->
    io:format(user, "~nFAILED ~p:~p~n~tP~n~n", [Suite, Case, Reason, 100]),
    State.
