%% The workload of ets_bench over the module ets.
-module(ets_bench_ets).
-define(TABLES, ets).
-include("ets_bench.hrl").
