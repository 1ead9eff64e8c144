%% The workload of ets_bench over the module cats.
-module(ets_bench_cats).
-define(TABLES, cats).
-include("ets_bench.hrl").
