%% Supervises the reaper.
-module(cats_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).

%% @private
-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    supervisor:start_link({local, ?MODULE}, ?MODULE, []).

%% @private
-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    Reaper = #{id => cats_reaper, start => {cats_reaper, start_link, []}},
    {ok, {#{strategy => one_for_one, intensity => 10, period => 1}, [Reaper]}}.
