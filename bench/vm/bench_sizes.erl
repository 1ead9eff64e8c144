%% The sizes that experiments over ets_bench have in common: those of the papers, or smaller ones, so that
%% there is time for all experiments. Their tables are still larger than a processor's own cache.
-module(bench_sizes).
-export([mixed/1, seconds/3]).

%% @doc Key range and number of operations of mixed phases.
-spec mixed(bench_experiment:size()) -> #{range := pos_integer(), operations := pos_integer()}.
mixed(quick) -> #{range => 1 bsl 14, operations => 1 bsl 15};
mixed(default) -> #{range => 1 bsl 17, operations => 1 bsl 17};
mixed(full) -> #{range => 1 bsl 21, operations => 1 bsl 22}.

%% @doc The seconds of a round at size quick, at size default, or at the size of the papers, where there are
%% 32 times as many operations.
-spec seconds(bench_experiment:size(), number(), number()) -> number().
seconds(quick, Quick, _) -> Quick;
seconds(default, _, Default) -> Default;
seconds(full, _, Default) -> 32 * Default.
