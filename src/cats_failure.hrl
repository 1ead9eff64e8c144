%% What a native function returns in place of a result when it fails, see `cats_failure'. A result is never such a tuple: a native function
%% that has one as its result, as a stored term may be one, returns it as `?FAILED(returned, Result)'.
-define(FAILED(Cause, Arguments), {'$cats_failure', Cause, Arguments}).
