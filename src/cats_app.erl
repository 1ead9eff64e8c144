%% The application cats. It has one supervised process, the reaper (cats_reaper). Tables also work when the
%% application is not started.
-module(cats_app).
-behaviour(application).
-export([start/2, stop/1]).

%% @private
-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_Type, _Arguments) ->
    cats_sup:start_link().

%% @private
-spec stop(term()) -> ok.
stop(_State) ->
    ok.
