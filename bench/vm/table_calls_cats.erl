%% The loops of table_calls.hrl over cats.
-module(table_calls_cats).

-define(TABLES, cats).
-include("table_calls.hrl").
