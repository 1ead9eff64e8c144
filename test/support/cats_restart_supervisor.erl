%% A supervisor of one child, that it restarts at once and as often as need be.
-module(cats_restart_supervisor).
-behaviour(supervisor).
-export([start_link/1, init/1]).

-spec start_link(fun(() -> {ok, pid()})) -> supervisor:startlink_ret().
start_link(Start) ->
    supervisor:start_link(?MODULE, Start).

init(Start) ->
    {ok, {#{strategy => one_for_one, intensity => 1000000, period => 1},
          [#{id => child, start => {erlang, apply, [Start, []]}, shutdown => brutal_kill}]}}.
