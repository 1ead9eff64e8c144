%% Included in a module, has literal funs in `cats:fun2ms' (and in `ets:fun2ms') turned into match specifications.
-compile({parse_transform, cats_ms_transform}).
