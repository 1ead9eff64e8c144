%% What all measurements of tables share: the subjects that compete, and the wait between two measurements.
-module(bench_tables).
-export([subjects/1, subjects/2, ets/1, cats/1, engine/2, engine/3, settle/0]).

%% @doc The subjects of a point: `plain' are ets and cats with their defaults, where ets' concurrency options
%% hardly matter.
-spec subjects(plain) -> [bench_experiment:subject()].
subjects(plain) -> [ets(""), {"cats", cats, []}].

%% @doc The subjects of a point by number of workers and table type: cats, and ets with the options that won
%% there in the papers and in our runs. For one worker these are none, as each option costs time. With `all'
%% there is ets with every sensible combination.
-spec subjects(Workers :: pos_integer() | all, Type :: atom()) -> [bench_experiment:subject()].
subjects(Workers, Type) -> [ets(Names) || Names <- options(Workers, Type)] ++ [{"cats", cats, []}].

options(1, _) -> [""];
options(all, ordered_set) -> ["", "r", "w", "r w", "w d-", "r w d-"];
options(all, _) -> ["", "r", "w", "r w", "w d", "auto", "r auto"];
options(_, ordered_set) -> ["", "w", "w d-"];
options(_, _) -> ["", "w", "auto"].

%% @doc A subject of ets, by the short names of its options: r read_concurrency, w write_concurrency, auto its
%% automatic number of locks, d and d- decentralized counters or none.
-spec ets(Options :: string()) -> bench_experiment:subject().
ets(Names) ->
    Options = [case Name of
                   "r" -> {read_concurrency, true};
                   "w" -> {write_concurrency, true};
                   "auto" -> {write_concurrency, auto};
                   "d" -> {decentralized_counters, true};
                   "d-" -> {decentralized_counters, false}
               end || Name <- string:lexemes(Names, " ")],
    {string:trim("ets " ++ Names), ets, Options}.

%% @doc A subject of cats with an engine of the papers and its concurrency options, by their short names. `r' is
%% read_concurrency (reader groups). `w' is write_concurrency (64 bucket locks, as ets had for long).
-spec engine(Engine :: atom(), Concurrency :: string()) -> bench_experiment:subject().
engine(Engine, Names) -> engine(Engine, Names, []).

%% @doc The same with other options, which are named by their names.
-spec engine(Engine :: atom(), Concurrency :: string(), [{atom(), term()}]) -> bench_experiment:subject().
engine(Engine, Names, Others) ->
    Options = [case Name of
                   "r" -> {read_concurrency, true};
                   "w" -> {write_concurrency, 64}
               end || Name <- string:lexemes(Names, " ")],
    {lists:flatten(lists:join($\s, ["cats", atom_to_list(Engine) | [Names || Names =/= ""]]
                                  ++ [atom_to_list(Option) || {Option, _} <- Others])),
     cats, [{engine, Engine} | Options ++ Others]}.

%% @doc A subject of cats with an engine and options of it, named by their values.
-spec cats([{engine, atom()} | {atom(), term()}]) -> bench_experiment:subject().
cats(Options) ->
    {lists:flatten(["cats" | [io_lib:format(" ~w", [Value]) || {_, Value} <- Options]]), cats, Options}.

%% @doc Returns when the memory of deleted tables is given back. cats does that in the background. So it does
%% not disturb the next measurement.
-spec settle() -> ok.
settle() ->
    erlang:garbage_collect(),
    settle(cats:memory(), 400).

settle(Before, Rounds) ->
    timer:sleep(10),
    case cats:memory() of
        Now when Now < Before, Rounds > 0 -> settle(Now, Rounds - 1);
        _ -> ok
    end.
