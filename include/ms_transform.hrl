%% A module that includes this file may call `cats:fun2ms` and `ets:fun2ms` with a literal fun. The compiler turns each
%% call into a match specification.
-compile({parse_transform, cats_ms_transform}).
