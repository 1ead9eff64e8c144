%% The debug information of an Elixir module that cats_recompile has changed.
%%
%% Elixir's own form of the module stays, as Elixir reads it without asking whose it is. What else asks gets the Erlang
%% forms of the changed module: Dialyzer, cover, and cats_recompile itself.
-module(cats_debug_info).
-export([elixir/2, debug_info/4]).

-define(KEY, cats_recompile).

%% @private
%% @doc The debug information that takes the place of the original's, if that is Elixir's.
-spec elixir(term(), cats_forms:forms()) -> [{debug_info_v1, ?MODULE, term()}].
elixir({debug_info_v1, _Backend, {elixir_v1, #{} = Map, Specs}}, Forms) ->
    [{debug_info_v1, ?MODULE, {elixir_v1, Map#{?KEY => Forms}, Specs}}];
elixir(_DebugInfo, _Forms) -> [].

%% @private
%% @doc What the compiler calls a backend.
-spec debug_info(atom(), module(), term(), [term()]) -> {ok, term()} | {error, term()}.
debug_info(elixir_v1, _Module, {elixir_v1, Map, _Specs}, _Options) ->
    {ok, maps:remove(?KEY, Map)};
debug_info(Format, Module, {elixir_v1, #{?KEY := Forms}, _Specs}, Options) ->
    erl_abstract_code:debug_info(Format, Module, {Forms, []}, Options).
