%% What a native function returns in place of a result when it fails, see `cats_failure'. A result is never such a
%% tuple: a native function that has one as its result, as a stored term may be one, returns it as
%% `?FAILED(returned, Result)'.
-define(FAILED(Cause, Arguments), {'$cats_failure', Cause, Arguments}).

%% The result of the call `Call' of the native function `Native'. Raises the error of `cats:Function' with these
%% arguments if it failed.
-define(RESULT(Call, Native, Function, Arguments),
        case Call of
            ?FAILED(_, _) = Failure -> cats_failure:handle(Failure, Native, Function, Arguments);
            Outcome -> Outcome
        end).
