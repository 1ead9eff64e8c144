%% Thousands of tables: many workers create them, use them in turn and delete them. This loads the registry,
%% which finds a table by its identifier or its name.
-module(bench_many_tables).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-include("tables.hrl").
-include("papers.hrl").

about() ->
    #{title => "Thousands of tables",
      source => ?SCALABILITY ", section 6.3; " ?RELEASE ", section 3.4.4 (meta table)",
      unit => "operations/s", better => higher, x => tables, scale => log,
      panels => [access, workers, phase]}.

points(Size) ->
    [#{axes => [{access, Access}, {workers, Workers}, {tables, Number}],
       subjects => bench_tables:subjects(plain),
       seconds => bench_sizes:seconds(Size, 0.2, 0.6)}
     || Access <- [identifier, name], Workers <- bench_workers:counts(), Number <- numbers(Size)].

numbers(quick) -> [1000];
numbers(default) -> [1000, 10_000];
numbers(full) -> [1000, 10_000, 100_000].

uses(quick) -> 1;
uses(default) -> 20;
uses(full) -> 100.

%% The process of the point owns the tables of the phases `use' and `delete', those of `create' go with their
%% workers.
measure(Size, #{access := Access, workers := Workers, tables := Number}, {_, Tables, Options}, _Seed) ->
    Each = Number div Workers,
    Given = [public | [named_table || Access =:= name]] ++ Options,
    Names = bench_data:share(names, fun() ->
        [[list_to_atom(lists:concat([bench_, Worker, $_, N])) || N <- lists:seq(1, Each)]
         || Worker <- lists:seq(1, Workers)] end),
    Create = rate(Workers * Each, [fun() -> create(Part, Tables, Given) end || Part <- Names]),
    Parts = bench_data:share({tables, Tables}, fun() -> [create(Part, Tables, Given) || Part <- Names] end),
    Uses = uses(Size),
    %% Each worker goes through the tables of all.
    All = lists:append(Parts),
    Use = rate(3 * Uses * length(All) * Workers, [fun() -> use(Uses, All, Tables) end || _ <- Names]),
    Delete = rate(Workers * Each, [fun() -> delete(Part, Tables) end || Part <- Parts]),
    [{[{phase, create}], Create}, {[{phase, use}], Use}, {[{phase, delete}], Delete}].

rate(Count, Work) -> Count / bench_workers:seconds(Work).

create([Name | Names], Tables, Options) ->
    [?CALL(Tables, new(Name, Options)) | create(Names, Tables, Options)];
create([], _, _) ->
    [].

use(0, _, _) ->
    ok;
use(Uses, All, Tables) ->
    lists:foreach(fun(Table) ->
                          ?CALL(Tables, insert(Table, {Uses, value})),
                          ?CALL(Tables, lookup(Table, Uses)),
                          ?CALL(Tables, lookup(Table, absent))
                  end, All),
    use(Uses - 1, All, Tables).

delete([Table | Rest], Tables) ->
    ?CALL(Tables, delete(Table)),
    delete(Rest, Tables);
delete([], _) ->
    ok.
