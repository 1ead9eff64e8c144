%% The registry of cats with locks, as ETS had it in the papers, beside the one without: many processes make, use and
%% delete tables, with names and without. ets has the one of its release.
-module(bench_registry).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("papers.hrl").

about() ->
    #{title => "Many tables, by registry",
      source => ?SCALABILITY ", section 6.3; " ?RELEASE ", section 3.4.4 (meta table locks)",
      unit => "operations/s", better => higher, x => workers, scale => log, panels => [access, phase],
      lines => [registry]}.

points(Size) ->
    [#{axes => [{registry, Registry}, {access, Access}, {workers, Workers}],
       flags => "-cats registry " ++ atom_to_list(Registry), subjects => bench_tables:subjects(plain),
       seconds => bench_sizes:seconds(Size, 0.3, 1.2)}
     || Registry <- [lock_free, locked], Access <- [identifier, name], Workers <- workers(Size)].

workers(Size) ->
    case bench_workers:asked() of
        true -> bench_workers:many();
        false when Size =:= quick -> [2, 16];
        false -> [1, 2, 16, 128]
    end.

measure(Size, #{access := Access, workers := Workers}, Subject, Seed) ->
    bench_many_tables:measure(Size, #{access => Access, workers => Workers, tables => tables(Size)}, Subject, Seed).

tables(quick) -> 1000;
tables(_) -> 4096.
