%% A hook of Common Test. Seeds the random choices of each case. Prints which case failed, why and with which seed, for
%% scripts/test, which shows it at the end of its output. SEED=N repeats the choices that the process of a case makes.
%% Its other processes make other ones. In the end prints the cases that took longest.
-module(cats_reports).
-export([init/2, pre_init_per_testcase/4, post_end_per_testcase/5, on_tc_fail/4, terminate/1]).

-record(state, {seed, begun, times = []}).

-define(SHOWN, 20).

init(_Id, _Options) -> {ok, #state{}}.

pre_init_per_testcase(_Suite, _Case, Config, State) ->
    Seed = cats_test_lib:environment("SEED", rand:uniform(1 bsl 32)),
    _ = rand:seed(exsss, Seed),
    {Config, State#state{seed = Seed, begun = now_and_runtime()}}.

post_end_per_testcase(Suite, Case, _Config, Return, #state{begun = {Begun, Runtime}, times = Times} = State) ->
    {Now, Since} = now_and_runtime(),
    {Return, State#state{times = [{Now - Begun, Since - Runtime, Suite, Case} | Times]}}.

on_tc_fail(Suite, Case, Reason, #state{seed = Seed} = State) ->
    io:format(user, "~nFAILED ~p:~p~nseed ~p~n~tP~n~n", [Suite, Case, Seed, Reason, 100]),
    State.

%% The processor time is that of this VM, without the programs that a case starts.
terminate(#state{times = Times}) ->
    Longest = lists:sublist(lists:reverse(lists:sort(Times)), ?SHOWN),
    Sum = fun(N) -> lists:sum([element(N, Time) || Time <- Times]) / 1000 end,
    io:format(user, "~n elapsed processor~n~8.1f s ~7.1f s  all ~b cases~n", [Sum(1), Sum(2), length(Times)]),
    [io:format(user, "~8.1f s ~7.1f s  ~p:~p~n", [Elapsed / 1000, Runtime / 1000, Suite, Case])
     || {Elapsed, Runtime, Suite, Case} <- Longest],
    ok.

now_and_runtime() -> {erlang:monotonic_time(millisecond), element(1, statistics(runtime))}.
