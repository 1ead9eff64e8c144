%% The sizes that experiments over ets_bench have in common: those of the papers, or smaller ones, so that
%% there is time for all experiments. Their tables are still larger than a processor's own cache.
-module(bench_sizes).
-export([mixed/1, papers/1, papers_seconds/3, seconds/3]).

%% @doc Key range and number of operations of mixed phases.
-spec mixed(bench_experiment:size()) -> #{range := pos_integer(), operations := pos_integer()}.
mixed(quick) -> #{range => 1 bsl 14, operations => 1 bsl 15};
mixed(default) -> #{range => 1 bsl 17, operations => 1 bsl 17};
mixed(full) -> #{range => 1 bsl 21, operations => 1 bsl 22}.

%% @doc Key range, number of insertions and deletions, and operations by mix: at size full as in the papers
%% (Scalability, section 5; Adaptation, section 2.3). Where both have a phase, Scalability has more operations.
-spec papers(bench_experiment:size()) ->
          #{range := pos_integer(), inserts := pos_integer(), deletes := pos_integer(),
            operations := #{ets_bench:phase() => pos_integer()}}.
papers(full) ->
    papers(1 bsl 21, fun(Lookups) when Lookups < 90 -> 1 bsl 22; (_) -> 1 bsl 24 end);
papers(Size) ->
    #{range := Range, operations := Operations} = mixed(Size),
    papers(Range, fun(_) -> Operations end).

papers(Range, Operations) ->
    Mixed = [{{mixed, Lookups}, Operations(Lookups)} || Lookups <- [0, 50, 80, 90, 99, 100]],
    #{range => Range, inserts => Range div 2, deletes => Range div 2, operations => maps:from_list(Mixed)}.

%% @doc The seconds of a round with so many subjects, at so many operations a second.
-spec papers_seconds(Papers :: map(), Subjects :: pos_integer(), Rate :: number()) -> number().
papers_seconds(#{inserts := Inserts, operations := Operations}, Subjects, Rate) ->
    Total = lists:sum([Number + Inserts || Number <- maps:values(Operations)]),
    Total / 5.0e6 + Subjects * (0.05 * map_size(Operations) + Total / Rate).

%% @doc The seconds of a round at size quick, at size default, or at the size of the papers, where there are
%% 32 times as many operations.
-spec seconds(bench_experiment:size(), number(), number()) -> number().
seconds(quick, Quick, _) -> Quick;
seconds(default, _, Default) -> Default;
seconds(full, _, Default) -> 32 * Default.
