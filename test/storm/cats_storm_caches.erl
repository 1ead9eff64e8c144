%% Caches of Elixir (`Cats.Cache') in a storm. One keeps all that it has. The other one evicts, its objects expire, and
%% its process is killed and started again, as a supervisor does. A VM that has no Elixir has no such operations.
-module(cats_storm_caches).

-import(cats_storm_values, [uniform/1, chance/1, one_of/1]).
-import(cats_storm_calls, [outcome/1]).

-export([operations/0, start_round/0, check/0]).

-define(CACHE, 'Elixir.Cats.Cache').
-define(KEPT, 'Elixir.CatsStormKept').
-define(LOSSY, 'Elixir.CatsStormLossy').
-define(TALLY, {?MODULE, tally}).
-define(KEYS, 4).
-define(COUNTERS, 3).

-spec operations() -> [cats_storm_calls:operation()].
operations() ->
    case is_here() of
        true ->
            [{10, cache_call, [], fun(_) -> call(one_of([?KEPT, ?LOSSY])) end},
             {10, cache_own, [], fun(_) -> own(one_of([?KEPT, ?LOSSY])) end},
             {10, cache_count, [], fun(_) -> count_up() end},
             {1, cache_end, [], fun(_) -> stop() end}];
        false -> []
    end.

is_here() ->
    code:ensure_loaded(?CACHE) =:= {module, ?CACHE}
        andalso code:ensure_loaded('Elixir.Enum') =:= {module, 'Elixir.Enum'}.

%% @doc Starts the caches of a round. They end with the process that is returned.
-spec start_round() -> pid().
start_round() ->
    persistent_term:put(?TALLY, counters:new(2, [])),
    Keeping = one_of([[], [compressed], [{ttl, infinity}], [{limit, {objects, 100000}}, {evict, none}]]),
    Options = [{?KEPT, [one_of([set, ordered_set]) | Keeping]},
               {?LOSSY, [one_of([set, ordered_set]), {one_of([ttl, idle]), one_of([5, 300])}
                         | one_of([[], [{limit, {objects, one_of([5, 100])}},
                                        {evict, one_of([none | cats_test_lib:policies()])}]])]}],
    Caller = self(),
    {Keeper, Monitor} = spawn_monitor(fun() ->
                                              process_flag(trap_exit, true),
                                              is_here() andalso [started(Cache) || Cache <- Options],
                                              Caller ! {self(), started},
                                              keep(Options)
                                      end),
    receive
        {Keeper, started} -> demonitor(Monitor, [flush]), Keeper;
        {'DOWN', Monitor, process, Keeper, Reason} -> error(Reason)
    end.

started({Name, Options}) -> {ok, _} = ?CACHE:start_link([{name, Name} | Options]).

%% A cache can be started again at once when its process has ended.
keep(Options) ->
    receive
        {'EXIT', _, _} ->
            [started(Cache) || {Name, _} = Cache <- Options, whereis(Name) =:= undefined],
            keep(Options)
    end.

%% @doc What is wrong with the caches, while nobody writes.
-spec check() -> nothing | term().
check() ->
    case is_here() of
        true ->
            Pairs = pairs(?KEPT),
            Sizes = {length(Pairs), map_size(maps:from_list(Pairs)), ?CACHE:size(?KEPT)},
            Counted = lists:sum([Count || {{counter, _}, Count} <- Pairs]),
            [Begun, Done] = [counters:get(persistent_term:get(?TALLY), Place) || Place <- [1, 2]],
            case Sizes of
                {Size, Size, Size} when Done =< Counted, Counted =< Begun -> wrong_pairs(?KEPT, Pairs);
                _ -> {cache, Sizes, {done, Done}, {counted, Counted}, {begun, Begun}}
            end;
        false -> nothing
    end.

pairs(Cache) -> 'Elixir.Enum':to_list(?CACHE:stream(Cache)).

%%% Values

table(Cache) -> #{origin => {cache, Cache}}.

value(Cache, Key) -> cats_storm_values:value(table(Cache), Key).

wrong(_Cache, {counter, _}, Count) when is_integer(Count) -> nothing;
wrong(Cache, Key, {Value, Mark}) -> cats_storm_values:wrong(table(Cache), Key, Value, Mark);
wrong(_Cache, Key, Other) -> {no_value, Key, Other}.

wrong_pairs(Cache, Pairs) ->
    case [Wrong || {Key, Value} <- Pairs, Wrong <- [wrong(Cache, Key, Value)], Wrong =/= nothing] of
        [] -> nothing;
        [First | _] -> First
    end.

%% A cache that evicts may refuse objects, and is gone while its process is started again.
unexpected(?LOSSY, {badarg, Cause}) when Cause =:= id; Cause =:= {cats, id} -> nothing;
unexpected(?LOSSY, {raised, error, #{'__struct__' := 'Elixir.ArgumentError'}, _}) -> nothing;
unexpected(?LOSSY, system_limit) -> nothing;
%% Others changed the value too often.
unexpected(_Cache, {raised, error, #{'__struct__' := 'Elixir.RuntimeError'}, _}) -> nothing;
unexpected(Cache, Outcome) -> {cache, Cache, Outcome}.

%%% Calls on keys that all processes write

call(Cache) ->
    Key = cats_storm_values:shared_key(),
    {Function, Arguments, Wrong} = one_of(calls(Cache, Key)),
    cats_storm_worker:note({cache, Cache, Function, Arguments}),
    case outcome(fun() -> apply(?CACHE, Function, [Cache | Arguments]) end) of
        {returned, Result} ->
            case Wrong(Result) of
                nothing -> nothing;
                Found -> {cache, Cache, Function, Arguments, Result, Found}
            end;
        Outcome ->
            unexpected(Cache, Outcome)
    end.

calls(Cache, Key) ->
    Value = value(Cache, Key),
    Right = fun(nil) -> nothing; (Found) -> wrong(Cache, Key, Found) end,
    Is = fun(Wanted) ->
                 fun(Found) -> case lists:member(Found, Wanted) of true -> nothing; false -> {wanted, Wanted} end end
         end,
    Ok = Is([ok]),
    Boolean = Is([true, false]),
    [{get, [Key], Right}, {get, [Key], Right}, {get, [Key, nil], Right},
     {put, [Key, Value], Ok}, {put, [Key, Value], Ok}, {put_new, [Key, Value], Boolean},
     {put_all, [[{Another, value(Cache, Another)}
                 || _ <- lists:seq(1, uniform(150)), Another <- [cats_storm_values:shared_key()]]], Ok},
     {fetch, [Key, fun(_) -> Value end | one_of([[], [[{timeout, infinity}, {retry, true}]]])], Right},
     {get_and_update, [Key, fun(Old) -> {Old, Value} end], Right}, {get_and_update, [Key, fun(_) -> pop end], Right},
     {update, [Key, Value, fun(_) -> Value end], Right},
     {delete, [Key], Ok}, {take, [Key], Right}, {'has_key?', [Key], Boolean},
     {size, [], fun(Size) when is_integer(Size), Size >= 0 -> nothing; (Size) -> {size, Size} end},
     {stream, [], fun(Stream) -> walked(Cache, outcome(fun() -> 'Elixir.Enum':to_list(Stream) end)) end}]
        ++ [{clear, [], Ok} || Cache =:= ?LOSSY]
        ++ [{put, [Key, Value, [{ttl, one_of([1, 50, infinity])}]], Ok} || Cache =:= ?LOSSY]
        ++ [{touch, [Key, one_of([1, 50, infinity])], Boolean} || Cache =:= ?LOSSY]
        ++ [{fetch, [Key, fun(_) -> Value end, [{ttl, one_of([1, 50])} | one_of([[], [{stale, 20}]])]], Right}
            || Cache =:= ?LOSSY]
        ++ [{ttl, [Key],
             fun(Time) when is_integer(Time); Time =:= infinity; Time =:= nil -> nothing; (Time) -> {time, Time} end}
            || Cache =:= ?LOSSY].

walked(Cache, {returned, Pairs}) ->
    case map_size(maps:from_list(Pairs)) =:= length(Pairs) of
        true -> wrong_pairs(Cache, Pairs);
        false -> {met_twice, Pairs}
    end;
walked(Cache, Outcome) -> unexpected(Cache, Outcome).

%%% Keys that one process alone writes

%% The cache has what this process wrote last. The one that evicts may have lost it.
own(Cache) ->
    Key = {own, cats_storm_values:myself(), uniform(?KEYS)},
    Value = value(Cache, Key),
    Known = case get({?MODULE, Cache, Key}) of undefined -> nil; Written -> Written end,
    {Function, Arguments} =
        one_of([{get, [Key]}, {put, [Key, Value]}, {put_new, [Key, Value]}, {fetch, [Key, fun(_) -> Value end]},
                {get_and_update, [Key, fun(Old) -> {Old, Value} end]}, {get_and_update, [Key, fun(_) -> pop end]},
                {update, [Key, Value, fun(_) -> Value end]}, {delete, [Key]}, {take, [Key]}, {'has_key?', [Key]}]),
    cats_storm_worker:note({cache_own, Cache, Function, Arguments, Known}),
    Expected = [expected(Function, lists:last(Arguments), Value, Before)
                || Before <- [Known | [nil || Cache =:= ?LOSSY]]],
    case outcome(fun() -> apply(?CACHE, Function, [Cache | Arguments]) end) of
        {returned, Result} ->
            case lists:keyfind(Result, 1, Expected) of
                {_, Next} -> put({?MODULE, Cache, Key}, Next), nothing;
                false -> {cache_own, Cache, Function, Arguments, Result, Expected}
            end;
        Outcome ->
            unexpected(Cache, Outcome)
    end.

%% What a function returns, and the value after it.
expected(get, _, _, Before) -> {Before, Before};
expected(put, _, Value, _) -> {ok, Value};
expected(put_new, _, Value, nil) -> {true, Value};
expected(put_new, _, _, Before) -> {false, Before};
expected(fetch, _, Value, nil) -> {Value, Value};
expected(fetch, _, _, Before) -> {Before, Before};
expected(get_and_update, Function, _, Before) ->
    case Function(Before) of
        {Before, Value} -> {Before, Value};
        pop -> {Before, nil}
    end;
expected(update, _, Value, _) -> {Value, Value};
expected(delete, _, _, _) -> {ok, nil};
expected(take, _, _, Before) -> {Before, nil};
expected('has_key?', _, _, Before) -> {Before =/= nil, Before}.

%%% Counters of the cache that keeps all

count_up() ->
    {Key, Amount} = {{counter, uniform(?COUNTERS)}, uniform(9)},
    Tally = persistent_term:get(?TALLY),
    Add = fun(Count) -> Count + Amount end,
    Function = one_of([fun() -> ?CACHE:increment(?KEPT, Key, Amount) end,
                       fun() -> ?CACHE:update(?KEPT, Key, Amount, Add) end,
                       fun() ->
                               ?CACHE:get_and_update(?KEPT, Key,
                                                     fun(nil) -> {nil, Amount}; (Count) -> {Count, Add(Count)} end)
                       end]),
    cats_storm_worker:note({cache_count, Key, Amount}),
    counters:add(Tally, 1, Amount),
    case outcome(Function) of
        {returned, _} -> counters:add(Tally, 2, Amount), nothing;
        Outcome -> counters:sub(Tally, 1, Amount), unexpected(?KEPT, Outcome)
    end.

%%% The process of a cache

%% Ends the process of the cache that evicts.
stop() ->
    cats_storm_worker:note(cache_end),
    case whereis(?LOSSY) of
        undefined -> ok;
        Process -> exit(Process, kill)
    end,
    nothing.
