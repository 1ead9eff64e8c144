%% Number of bucket locks: linear hashing as in the papers, with so many locks, beside ets with its own number
%% of them.
-module(bench_bucket_locks).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

about() ->
    #{title => "ets_bench by number of bucket locks",
      source => ?SCALABILITY ", section 6.1, figures 20 to 22; " ?RELEASE ", section 3.4.1, figure 7",
      unit => "operations/s", better => higher, x => locks, scale => log, panels => [workers, phase]}.

points(Size) ->
    [#{axes => [{locks, Locks}, {workers, Workers}], subjects => subjects(Locks),
       seconds => bench_sizes:papers_seconds(bench_sizes:papers(Size), length(subjects(Locks)), 3.0e6)}
     || Workers <- bench_workers:many(), Locks <- locks(Size)].

locks(quick) -> [1, 64];
locks(_) -> [1, 4, 16, 64, 256, 1024, 8192].

%% 64 is the number that ets had for long.
subjects(64) -> [bench_tables:ets("r w"), bench_tables:ets("r auto"), {"cats", cats, []} | subjects(none)];
subjects(_) -> [bench_tables:engine(linear_hash, "r")].

measure(Size, #{locks := Locks, workers := Workers}, {Name, Tables, Options}, Seed) ->
    Chosen = [{write_concurrency, Locks} || {engine, linear_hash} <- Options],
    ets_bench:papers({Name, Tables, Options ++ Chosen}, set, bench_sizes:papers(Size),
                     #{workers => Workers, seed => Seed}).
