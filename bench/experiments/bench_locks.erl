%% Locks of a whole table: an AVL tree behind each of cats' locks, beside ets. The ordered_set of ets without
%% options is an AVL tree behind a readers-writer lock.
-module(bench_locks).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

about() ->
    #{title => "ets_bench by lock of the table (AVL tree)",
      source => ?RELEASE ", section 3.4.3, figure 10", unit => "operations/s", better => higher,
      x => workers, scale => linear, panels => [lookups]}.

points(Size) ->
    [#{axes => [{workers, Workers}], subjects => subjects(), seconds => bench_sizes:seconds(Size, 1, 1.5)}
     || Workers <- bench_workers:counts()].

subjects() ->
    Avl = {engine, avl},
    [bench_tables:ets(""), bench_tables:ets("r") | [bench_tables:cats([Avl | Lock]) || Lock <- locks()]].

locks() ->
    [[{lock, Lock}] || Lock <- [rw, dr_mcs, cc_synch, ets_pointer]]
        ++ [[{lock, mrqd}, {delegate, Step}] || Step <- [wait, malloc, copy]].

measure(Size, #{workers := Workers}, Subject, Seed) ->
    ets_bench:mixed(Subject, ordered_set, (bench_sizes:mixed(Size))#{range => 1 bsl 16, workers => Workers,
                                                                     lookups => [0, 80, 99], seed => Seed}).
