%% Keys, objects and operations that are made before the clock starts, and used by all subjects of a point.
%% They are literals (persistent terms). So no process copies them, and no garbage collector visits them.
-module(bench_data).
-export([share/2, forget/0]).

%% @doc The value of the function, which is called once in a point for each key.
-spec share(Key :: term(), fun(() -> Value)) -> Value.
share(Key, Make) ->
    try
        persistent_term:get({?MODULE, Key})
    catch
        error:badarg ->
            persistent_term:put({?MODULE, Key}, Make()),
            persistent_term:get({?MODULE, Key})
    end.

%% @doc Forgets all values, at the end of a point.
-spec forget() -> ok.
forget() ->
    [persistent_term:erase(Term) || {{?MODULE, _} = Term, _} <- persistent_term:get()],
    ok.
