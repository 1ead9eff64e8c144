%% Number of bucket locks: linear hashing as in the papers, with so many locks, beside ets with its own number
%% of them.
-module(bench_bucket_locks).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

about() ->
    #{title => "ets_bench by number of bucket locks",
      source => ?SCALABILITY ", section 6.1, figures 20 to 22; " ?RELEASE ", section 3.4.1, figure 7",
      unit => "operations/s", better => higher, x => locks, scale => log, panels => [lookups]}.

points(Size) ->
    [#{axes => [{locks, Locks}], subjects => subjects(Locks), seconds => bench_sizes:seconds(Size, 0.2, 0.3)}
     || Locks <- locks(Size)].

locks(quick) -> [1, 64];
locks(_) -> [1, 4, 16, 64, 256, 1024, 8192].

%% 64 is the number that ets had for long.
subjects(64) -> [bench_tables:ets("r w"), bench_tables:ets("r auto"), {"cats", cats, []} | subjects(none)];
subjects(_) -> [{"cats linear_hash", cats, [{engine, linear_hash}, {read_concurrency, true}]}].

measure(Size, #{locks := Locks}, {Name, Tables, Options}, Seed) ->
    Chosen = [{write_concurrency, Locks} || {engine, linear_hash} <- Options],
    ets_bench:mixed({Name, Tables, Chosen ++ Options}, set,
                    (bench_sizes:mixed(Size))#{workers => erlang:system_info(schedulers_online), seed => Seed,
                                               lookups => [90, 99, 100]}).
