%% Whole programs by number of schedulers: those that share tables, and those without any, as controls.
-module(bench_programs).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

about() ->
    #{title => "Programs by number of schedulers",
      source => ?RELEASE ", section 6, figures 11 to 15 (BenchErl)",
      unit => "s", better => lower, x => schedulers, scale => linear, panels => [program]}.

points(Size) ->
    [#{axes => [{program, Program}, {schedulers, N}], flags => lists:concat(["+S ", N, ":", N]),
       subjects => subjects(Program), seconds => bench_sizes:seconds(Size, 0.5, 0.9)}
     || Program <- ["orbit", "orbit with parallel workers", "pcmark", "mbrot", "ran", "moves"],
        N <- bench_workers:schedulers()].

subjects("orbit" ++ _) -> [bench_tables:ets(""), bench_tables:ets("w"), {"cats", cats, []}];
subjects("pcmark") -> [bench_tables:ets(""), bench_tables:ets("w"), {"cats", cats, []}];
subjects(_) -> [{"erlang", none, []}].

measure(Size, #{program := Program, schedulers := Schedulers}, {_, Tables, Options}, _Seed) ->
    [{[], bench_workers:seconds([fun() -> run(Program, Tables, Options, scale(Size), Schedulers) end])}].

scale(quick) -> 1;
scale(default) -> 2;
scale(full) -> 50.

run("orbit", Tables, Options, Scale, Schedulers) ->
    orbit:run(Tables, Options, #{space => Scale * 50_000, workers => 4 * Schedulers, inside => false});
run("orbit with parallel workers", Tables, Options, Scale, Schedulers) ->
    orbit:run(Tables, Options, #{space => Scale * 50_000, workers => 4 * Schedulers, inside => true});
run("pcmark", Tables, Options, Scale, _) ->
    pcmark:run(Tables, Options, #{objects => 1000, processes => 100 * Scale, at_once => 10});
run("mbrot", none, _, Scale, Schedulers) ->
    mbrot:run(round(250 * math:sqrt(Scale)), 4 * Schedulers);
run("ran", none, _, Scale, _) ->
    ran:run(8 * Scale);
run("moves", none, _, Scale, Schedulers) ->
    Pieces = maps:get(Scale, #{1 => 4, 2 => 5, 50 => 6}),
    moves:run(lists:duplicate(Pieces, $b) ++ "ee" ++ lists:duplicate(Pieces, $w), 4 * Schedulers).
