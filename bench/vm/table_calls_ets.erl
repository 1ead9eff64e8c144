%% The loops of table_calls.hrl over ets.
-module(table_calls_ets).

-define(TABLES, ets).
-include("table_calls.hrl").
