%% The process that gives memory back in the background: it dismantles deleted tables, carries out what the
%% deaths of owners left to do, and frees retired memory, in slices of well under a millisecond. What there is
%% to do stands in native queues, so that a reaper that is killed loses nothing.
%%
%% The supervisor of the application runs it; without the application, the first call that needs one starts
%% it. A supervisor that starts later adopts the one that runs, so there is never a second one.
-module(cats_reaper).
-behaviour(gen_server).
-export([start_link/0, ensure/0, init/1, handle_call/3, handle_cast/2, handle_info/2]).

%% How long the reaper sleeps, in milliseconds, when no work is announced to it: memory that could not be
%% freed because somebody was reading it announces itself to nobody.
-define(TICK, 1000).

%% @private
-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    case gen_server:start_link({local, ?MODULE}, ?MODULE, [], []) of
        {error, {already_started, Pid}} ->
            link(Pid),
            {ok, Pid};
        Started ->
            Started
    end.

%% @private
%% @doc Starts a reaper if none runs, and returns when the native side knows it. A reaper that dies meanwhile
%% is no failure: the native side will ask for one again.
-spec ensure() -> ok.
ensure() ->
    case gen_server:start({local, ?MODULE}, ?MODULE, [], []) of
        {ok, _Pid} ->
            ok;
        {error, {already_started, Pid}} ->
            try
                gen_server:call(Pid, register, infinity)
            catch
                exit:_ -> ok
            end;
        {error, Reason} ->
            error(Reason)
    end.

%% @private
-spec init([]) -> {ok, no_state, 0} | {stop, term()}.
init([]) ->
    group_leader(erlang:whereis(init), self()),
    case configure() of
        ok ->
            ok = load_code(),
            ok = cats_nif:reaper(self()),
            {ok, no_state, 0};
        {error, Reason} ->
            {stop, Reason}
    end.

%% Settings of the application take effect whether it is started or not, but not once there are tables.
configure() ->
    _ = application:load(cats),
    ReaderGroups = application:get_env(cats, reader_groups, min(erlang:system_info(schedulers), 64)),
    Registry = application:get_env(cats, registry, lock_free),
    try
        cats_nif:configure({ReaderGroups, Registry})
    catch
        error:none -> {error, {bad_settings, cats, [{reader_groups, ReaderGroups}, {registry, Registry}]}}
    end.

%% What calls go through when they take more than one native call is loaded before there are tables: loading a
%% module holds a scheduler for up to half a millisecond. What is not found is left to fail where it is called.
load_code() ->
    _ = code:ensure_modules_loaded([cats_failure, cats_select, cats_slices]),
    ok.

%% @private
-spec handle_call(register, gen_server:from(), no_state) -> {reply, ok, no_state, 0}.
handle_call(register, _From, State) ->
    ok = cats_nif:reaper(self()),
    {reply, ok, State, 0}.

%% @private
-spec handle_cast(term(), no_state) -> {noreply, no_state, 0}.
handle_cast(_Request, State) ->
    {noreply, State, 0}.

%% @private
%% The messages are `reap', from the native side, and `timeout'.
-spec handle_info(term(), no_state) -> {noreply, no_state, timeout()}.
handle_info(_Message, State) ->
    case cats_nif:reap() of
        more ->
            erlang:yield(),
            {noreply, State, 0};
        idle ->
            {noreply, State, ?TICK}
    end.
