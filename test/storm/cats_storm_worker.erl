%% A process of a storm that calls. Its seed determines its operations.
-module(cats_storm_worker).

-import(cats_storm_values, [uniform/1]).

-export([start_round/1, run/3, weighted/1]).
-export([note/1, notes/1, listener/0, directory/0, other/0]).

%% What all workers of a round share.
-define(ROUND, {?MODULE, round}).

-define(NOTES, 12).

-type round() :: #{listener := pid(), directory := file:filename(), places := pos_integer(),
                   progress := counters:counters_ref(), operations := [cats_storm_calls:operation()]}.

-spec start_round(round()) -> ok.
start_round(Round) -> persistent_term:put(?ROUND, Round).

round() -> persistent_term:get(?ROUND).

listener() -> maps:get(listener, round()).
directory() -> maps:get(directory, round()).

%% @doc Another worker, or the caller itself.
-spec other() -> pid().
other() ->
    case ets:tab2list(cats_storm_workers) of
        [] -> self();
        Workers -> element(2, lists:nth(uniform(length(Workers)), lists:sort(Workers)))
    end.

%% @doc Carries out so many operations. Ends with the reason `{wrong, _}' when something is wrong.
-spec run(Index :: pos_integer(), Seed :: term(), Count :: non_neg_integer()) -> ok.
run(Index, Seed, Count) ->
    _ = rand:seed(exsss, erlang:phash2(Seed, 1 bsl 32)),
    _ = cats_storm_values:writer(),
    true = ets:insert(cats_storm_workers, {Index, self()}),
    loop(Index, round(), Count),
    good(own_keys, cats_storm_own:check()).

loop(_Index, _Round, 0) -> ok;
loop(Index, #{places := Places, progress := Progress} = Round, Count) ->
    Table = cats_storm_tables:at(uniform(Places)),
    {Name, Run} = weighted(fitting(Table, Round)),
    good(Name, Run(Table)),
    counters:add(Progress, Index, 1),
    forget_messages(),
    loop(Index, Round, Count - 1).

good(_Name, nothing) -> ok;
good(Name, Wrong) -> exit({wrong, {Name, Wrong}}).

forget_messages() -> receive _ -> forget_messages() after 0 -> ok end.

fitting(#{features := Features} = Table, #{operations := Operations}) ->
    case get({fitting, Features}) of
        undefined ->
            Fitting = [{Weight, {Name, Run}}
                       || {Weight, Name, Needs, Run} <- Operations, cats_storm_tables:fits(Needs, Table)],
            put({fitting, Features}, Fitting),
            Fitting;
        Fitting ->
            Fitting
    end.

%% @doc One of these, by their weights.
-spec weighted([{Weight :: pos_integer(), Thing}]) -> Thing.
weighted(Choices) -> pick(uniform(lists:sum([Weight || {Weight, _} <- Choices])), Choices).

pick(Number, [{Weight, Thing} | _]) when Number =< Weight -> Thing;
pick(Number, [{Weight, _} | Choices]) -> pick(Number - Weight, Choices).

%% @doc Notes what this process is about to do, for a report.
-spec note(term()) -> ok.
note(What) ->
    Before = case get(notes) of undefined -> []; Notes -> Notes end,
    put(notes, lists:sublist([What | Before], ?NOTES)),
    ok.

%% @doc What a process did last, the last first.
-spec notes(pid()) -> [term()].
notes(Pid) ->
    case process_info(Pid, dictionary) of
        {dictionary, Dictionary} -> proplists:get_value(notes, Dictionary, []);
        undefined -> []
    end.
