%% Locks of a whole table: an AVL tree behind each of cats' locks, beside ets. The ordered_set of ets without
%% options is an AVL tree behind a readers-writer lock.
-module(bench_locks).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

about() ->
    #{title => "ets_bench by lock of the table (AVL tree)",
      source => ?RELEASE ", section 3.4.3, figure 10", unit => "operations/s", better => higher,
      x => workers, scale => linear, panels => [phase]}.

points(Size) ->
    [#{axes => [{workers, Workers}], subjects => subjects(),
       seconds => bench_sizes:papers_seconds(papers(Size), length(subjects()), 2.0e6)}
     || Workers <- bench_workers:counts()].

subjects() ->
    Avl = {engine, avl},
    [bench_tables:ets(""), bench_tables:ets("r") | [bench_tables:cats([Avl | Lock]) || Lock <- locks()]].

locks() ->
    [[{lock, Lock}] || Lock <- [rw, dr_mcs, cc_synch, ets_pointer]]
        ++ [[{lock, mrqd}, {delegate, Step}] || Step <- [wait, malloc, copy]].

%% The paper has its own range and number of operations.
papers(full) -> maps:map(fun(operations, Mixed) -> maps:map(fun(_, _) -> 1 bsl 22 end, Mixed);
                            (range, _) -> 1 bsl 16;
                            (_, _) -> 1 bsl 15
                         end, bench_sizes:papers(full));
papers(Size) -> (bench_sizes:papers(Size))#{range := 1 bsl 16, inserts := 1 bsl 15, deletes := 1 bsl 15}.

measure(Size, #{workers := Workers}, Subject, Seed) ->
    ets_bench:papers(Subject, ordered_set, papers(Size), #{workers => Workers, seed => Seed}).
