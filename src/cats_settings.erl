%% The settings of the application. They take effect whether the application is started or not, but not once there are
%% tables.
-module(cats_settings).

-include("cats_failure.hrl").

-export([pass/0]).

%% @private
%% @doc Passes the settings to the native side, which needs them before the first table.
-spec pass() -> ok.
pass() ->
    _ = application:load(cats),
    ReaderGroups = application:get_env(cats, reader_groups, min(erlang:system_info(schedulers), 64)),
    Registry = application:get_env(cats, registry, lock_free),
    VmTerms = application:get_env(cats, vm_terms, in_place),
    MemoryLimit = application:get_env(cats, memory_limit, infinity),
    Reserve = application:get_env(cats, reserve, 0),
    ok = load_code(),
    case cats_nif:configure({ReaderGroups, Registry, VmTerms, MemoryLimit, Reserve}) of
        ok ->
            ok;
        ?FAILED(not_built, _) ->
            error({not_built, cats, {registry, Registry}});
        ?FAILED(Name, _) ->
            Settings = [{reader_groups, ReaderGroups}, {registry, Registry}, {vm_terms, VmTerms},
                        {memory_limit, MemoryLimit}, {reserve, Reserve}],
            cats_options:raise(settings, {bad_setting, cats, lists:keyfind(Name, 1, Settings)})
    end.

%% Loads what calls use that take more than one native call, as loading a module holds a scheduler for up to half a
%% millisecond. A module that is not found fails where it is called.
load_code() ->
    _ = code:ensure_modules_loaded([cats_failure, cats_select, cats_slices]),
    ok.
