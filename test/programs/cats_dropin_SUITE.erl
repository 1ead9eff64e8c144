%% Programs of others run unchanged on cats through cats_transform: OTP's digraph with digraph_utils, pg and Mnesia, and
%% Debian's folsom, a metrics library that uses ets. Each is taken from the abstract code in its installed beam files.
%% It is loaded into a node of its own, once unchanged and once transformed. Both run the same random or scripted
%% exercise. The results must be the same, and the transformed program must have used tables of cats.
-module(cats_dropin_SUITE).
-include_lib("stdlib/include/assert.hrl").
-export([all/0]).
-export([digraphs/1, process_groups/1, database/1, metrics/1]).
-export([exercise_digraph/1, exercise_pg/1, exercise_mnesia/1, exercise_folsom/1]).

all() ->
    [digraphs, process_groups, database, metrics].

digraphs(_Config) ->
    same([digraph, digraph_utils], [], exercise_digraph, lists:seq(1, 6)).

process_groups(_Config) ->
    same([pg], [], exercise_pg, lists:seq(1, 3)).

database(Config) ->
    Modules = [list_to_atom(filename:basename(File, ".beam"))
               || File <- filelib:wildcard(filename:join(filename:dirname(code:which(mnesia)), "*.beam"))],
    same(Modules, [], exercise_mnesia, [filename:join(proplists:get_value(priv_dir, Config), "mnesia")]).

metrics(_Config) ->
    case libraries("folsom") of
        [Directory | _] ->
            Modules = [list_to_atom(filename:basename(File, ".beam"))
                       || File <- filelib:wildcard(filename:join(Directory, "*.beam"))],
            same(Modules, [Directory | libraries("{bear,meck}")], exercise_folsom, [1]);
        [] ->
            {skip, "Debian's package erlang-folsom is missing: `scripts/deps test` installs it"}
    end.

libraries(Name) -> filelib:wildcard(filename:join("/usr/lib/erlang/lib", Name ++ "-*/ebin")).

%% Runs the exercise on both with each argument, and compares the results.
same(Modules, Path, Exercise, Arguments) ->
    Both = [[code(Module, Path, Transform) || Module <- Modules] || Transform <- [false, true]],
    [same_results([run(Codes, Path, Exercise, Argument) || Codes <- Both]) || Argument <- Arguments].

same_results([OnEts, OnCats]) ->
    #{tables := EtsTables, results := Expected} = OnEts,
    #{tables := CatsTables, results := Results} = OnCats,
    ?assertEqual(0, EtsTables),
    ?assert(CatsTables > 0),
    [?assertEqual({Number, One}, {Number, Other})
     || {Number, One, Other} <- lists:zip3(lists:seq(1, length(Expected)), Expected, Results)],
    ?assert(length(Expected) > 10).

run(Codes, Path, Exercise, Argument) ->
    Peer = cats_test_lib:start_peer(["-pa" | code:get_path()]),
    try
        true = peer:call(Peer, code, add_pathsa, [Path], infinity) =:= ok,
        [begin
             _ = peer:call(Peer, code, unstick_mod, [Module], infinity),
             {module, Module} = peer:call(Peer, code, load_binary, [Module, File, Code], infinity)
         end || {Module, File, Code} <- Codes],
        peer:call(Peer, ?MODULE, Exercise, [Argument], infinity)
    after
        peer:stop(Peer)
    end.

%% A module as it is, or compiled with the parse transform.
code(Module, Path, Transform) ->
    File = case [Beam || Directory <- Path,
                         Beam <- [filename:join(Directory, atom_to_list(Module) ++ ".beam")],
                         filelib:is_file(Beam)] of
               [Beam | _] -> Beam;
               [] -> code:which(Module)
           end,
    {ok, Code} = case Transform of
                     true ->
                         {ok, {Module, [{abstract_code, {_, Forms}}]}} = beam_lib:chunks(File, [abstract_code]),
                         Transformed = cats_transform:parse_transform(Forms, [nowarn_cats_transform]),
                         {ok, Module, Compiled} = compile:forms(Transformed, [nowarn_deprecated_catch]),
                         {ok, Compiled};
                     false ->
                         file:read_file(File)
                 end,
    {Module, File, Code}.

%% The results, and the number of tables of cats at the end.
report(Results) ->
    #{results => Results, tables => length(cats:all())}.

%%% digraph: random steps. After each step come all questions whose answer does not depend on the order of a hash table.

exercise_digraph(Seed) ->
    _ = rand:seed(exsss, Seed),
    Graph = digraph:new(lists:nth(1 + Seed rem 3, [[], [acyclic], [protected, cyclic]])),
    Results = [step(Graph, rand:uniform(12), rand:uniform(15), rand:uniform(15)) || _ <- lists:seq(1, 200)],
    report([digraph:delete(digraph:new()) | Results]).

step(Graph, Kind, V1, V2) ->
    Done = case Kind of
               1 -> digraph:add_vertex(Graph);
               2 -> digraph:add_vertex(Graph, V1);
               3 -> digraph:add_vertex(Graph, V1, {label, V2});
               4 -> digraph:del_vertex(Graph, V1);
               5 -> digraph:del_path(Graph, V1, V2);
               6 -> digraph:del_edges(Graph, lists:sublist(lists:sort(digraph:edges(Graph)), V1 rem 3));
               _ -> digraph:add_edge(Graph, V1, V2, {label, V2})
           end,
    {Kind, V1, V2, Done, about(Graph, V1, V2), summary(Graph), derived(Graph, V1)}.

about(Graph, V1, V2) ->
    {digraph:vertex(Graph, V1), digraph:out_neighbours(Graph, V1), digraph:in_neighbours(Graph, V1),
     digraph:out_degree(Graph, V1), digraph:in_degree(Graph, V1), digraph:in_edges(Graph, V1),
     lists:sort(digraph:edges(Graph, V1)), [digraph:edge(Graph, Edge) || Edge <- digraph:out_edges(Graph, V1)],
     digraph:get_path(Graph, V1, V2), digraph:get_short_path(Graph, V1, V2),
     digraph:get_cycle(Graph, V1), digraph:get_short_cycle(Graph, V1)}.

summary(Graph) ->
    {lists:sort(digraph:vertices(Graph)), lists:sort(digraph:edges(Graph)), digraph:no_vertices(Graph),
     digraph:no_edges(Graph), lists:sort(digraph:source_vertices(Graph)), lists:sort(digraph:sink_vertices(Graph)),
     proplists:delete(memory, digraph:info(Graph))}.

derived(Graph, Vertex) ->
    Sets = [lists:sort([lists:sort(Set) || Set <- digraph_utils:Function(Graph)])
            || Function <- [components, strong_components, cyclic_strong_components]],
    Known = [Vertex || digraph:vertex(Graph, Vertex) =/= false],
    Reached = [lists:sort(digraph_utils:Function(Known, Graph))
               || Function <- [reachable, reachable_neighbours, reaching, reaching_neighbours]],
    Answers = [digraph_utils:Function(Graph)
               || Function <- [is_acyclic, is_tree, is_arborescence, arborescence_root]],
    %% Before OTP 29 these may leave out vertices of a cycle, depending on the order of the table.
    Walks = [lists:sort(digraph_utils:Function(Graph))
             || digraph_utils:is_acyclic(Graph), Function <- [topsort, preorder, postorder]],
    Loops = lists:sort(digraph_utils:loop_vertices(Graph)),
    Subgraph = digraph_utils:subgraph(Graph, Known ++ lists:seq(1, 15, 2)),
    Condensation = digraph_utils:condensation(Graph),
    Graphs = [{length(digraph:vertices(New)), length(digraph:edges(New))} || New <- [Subgraph, Condensation]],
    [true, true] = [digraph:delete(New) || New <- [Subgraph, Condensation]],
    {Sets, Reached, Answers, Walks, Loops, Graphs}.

%%% pg: processes that join, leave and die.

exercise_pg(Seed) ->
    _ = rand:seed(exsss, Seed),
    {ok, Scope} = pg:start(dropin),
    Processes = maps:from_list([{Number, spawn(fun idle/0)} || Number <- lists:seq(1, 12)]),
    {Results, _} = lists:mapfoldl(fun(_, Alive) -> pg_step(rand:uniform(8), Alive) end, Processes, lists:seq(1, 200)),
    Report = report(Results),
    ok = gen_server:stop(Scope),
    Report.

idle() ->
    receive stop -> ok end.

pg_step(Kind, Processes) ->
    Number = rand:uniform(maps:size(Processes)),
    #{Number := Process} = Processes,
    Others = [maps:get(N, Processes) || N <- lists:seq(1, Number)],
    Group = {group, rand:uniform(4)},
    {Done, After} =
        case Kind of
            1 ->
                Monitor = monitor(process, Process),
                Process ! stop,
                receive {'DOWN', Monitor, _, _, _} -> ok end,
                %% The scope is told of this before it answers, and of an earlier exit before a later one.
                {died, Processes#{Number := spawn(fun idle/0)}};
            2 -> {pg:leave(dropin, Group, Process), Processes};
            3 -> {pg:leave(dropin, Group, Others), Processes};
            4 -> {pg:join(dropin, Group, Others), Processes};
            _ -> {pg:join(dropin, Group, Process), Processes}
        end,
    _ = sys:get_state(dropin),
    Numbers = maps:from_list([{Pid, N} || {N, Pid} <- maps:to_list(After)]),
    Members = [{Name, [maps:get(Pid, Numbers) || Pid <- pg:Function(dropin, Name)]}
               || Name <- lists:sort(pg:which_groups(dropin)), Function <- [get_members, get_local_members]],
    {{Kind, Number, Group, Done, Members, pg:get_members(dropin, nobody)}, After}.

%%% Mnesia: transactions, indices, tables in memory and on disk, a backup, and a restart.

exercise_mnesia(Directory) ->
    _ = rand:seed(exsss, 7),
    _ = file:del_dir_r(Directory),
    ok = application:set_env(mnesia, dir, Directory),
    Started = [mnesia:create_schema([node()]), mnesia:start()],
    Created = [mnesia:create_table(Table, [{Copies, [node()]}, {type, Type}, {attributes, [key, a, b]}, {index, [a]}])
               || {Table, Copies, Type} <- [{set, ram_copies, set}, {ordered, ram_copies, ordered_set},
                                            {bag, ram_copies, bag}, {copied, disc_copies, set},
                                            {disc, disc_only_copies, set}]],
    Tables = [set, ordered, bag, copied, disc],
    ok = mnesia:wait_for_tables(Tables, 60000),
    Done = [begin
                Arguments = [lists:nth(rand:uniform(5), Tables), rand:uniform(30), rand:uniform(5)],
                {Arguments, mnesia:transaction(transaction(rand:uniform(9), Arguments))}
            end || _ <- lists:seq(1, 2000)],
    Counted = [mnesia:create_table(counter, [])] ++ [mnesia:dirty_update_counter(counter, n, 7) || _ <- [1, 2, 3]],
    Walked = [mnesia:dirty_first(ordered), mnesia:dirty_last(ordered), mnesia:dirty_next(ordered, 7)],
    Contents = [lists:sort(mnesia:dirty_match_object({Table, '_', '_', '_'})) || Table <- Tables],
    Stored = [mnesia:dump_tables([set]), mnesia:backup(Directory ++ "/backup"),
              mnesia:change_table_copy_type(ordered, node(), disc_copies), mnesia:stop(), mnesia:start(),
              mnesia:wait_for_tables(Tables, 60000)],
    Restarted = [lists:sort(mnesia:dirty_match_object({Table, '_', '_', '_'})) || Table <- Tables],
    {atomic, Recreated} = mnesia:restore(Directory ++ "/backup", [{default_op, recreate_tables}]),
    Restored = [lists:sort(Recreated)
                | [lists:sort(mnesia:dirty_match_object({Table, '_', '_', '_'})) || Table <- Tables]],
    report([Started, Created, Counted, Walked, Contents, Stored, Restarted, Restored] ++ Done).

transaction(1, [Table, Key, A]) -> fun() -> mnesia:write({Table, Key, A, x}) end;
transaction(2, [Table, Key, A]) -> fun() -> mnesia:write({Table, Key, A, y}) end;
transaction(3, [Table, Key, _]) -> fun() -> lists:sort(mnesia:read(Table, Key)) end;
transaction(4, [Table, Key, _]) -> fun() -> mnesia:delete({Table, Key}) end;
transaction(5, [Table, _, A]) -> fun() -> lists:sort(mnesia:index_read(Table, A, a)) end;
transaction(6, [Table, _, A]) -> fun() -> lists:sort(mnesia:match_object({Table, '_', A, '_'})) end;
transaction(7, [Table, Key, _]) ->
    Spec = [{{Table, '$1', '$2', '_'}, [{'<', '$1', Key}], [{{'$1', '$2'}}]}],
    fun() -> lists:sort(mnesia:select(Table, Spec)) end;
transaction(8, [Table, Key, A]) -> fun() -> mnesia:write({Table, Key, A, z}), mnesia:abort(no) end;
transaction(9, [Table, _, _]) ->
    fun() -> lists:sort(mnesia:foldl(fun(Record, All) -> [Record | All] end, [], Table)) end.

%%% folsom: all kinds of metrics.

exercise_folsom(_) ->
    {ok, _} = application:ensure_all_started(folsom),
    Samples = [uniform, exdec, slide, slide_uniform, none],
    Created = [folsom_metrics:new_counter(counter), folsom_metrics:new_gauge(gauge), folsom_metrics:new_meter(meter),
               folsom_metrics:new_meter_reader(reader), folsom_metrics:new_spiral(spiral),
               folsom_metrics:new_duration(duration), folsom_metrics:new_history(history, 5)]
        ++ [folsom_metrics:new_histogram(Sample, Sample, 100) || Sample <- [uniform, exdec, slide, none]]
        ++ [folsom_metrics:new_histogram(slide_uniform, slide_uniform, {60, 100})],
    Numbers = [(N * 7919) rem 1000 || N <- lists:seq(1, 90)],
    Noted = [[folsom_metrics:notify({Name, Number}) || Name <- [gauge, meter, spiral, history | Samples]]
             ++ [folsom_metrics:notify({counter, {inc, Number}}), folsom_metrics:notify({counter, {dec, 3}})]
             || Number <- Numbers],
    Timed = [folsom_metrics:histogram_timed_update(none, fun() -> N end) || N <- lists:seq(1, 5)],
    Values = [folsom_metrics:get_metric_value(Name) || Name <- [counter, gauge, spiral]],
    %% Fewer numbers than the samples have room for, so that no sample is random.
    Whole = [uniform, slide, slide_uniform],
    %% How many numbers this one keeps depends on chance, and on whether the second changes meanwhile.
    Unknown = folsom_metrics:get_metric_value(exdec) -- Numbers,
    %% The last digits of sums of floats depend on the order of the table.
    Statistics = [[{Item, rounded(Value)}
                   || {Item, Value} <- lists:sort(folsom_metrics:get_histogram_statistics(Name))]
                  || Name <- Whole],
    Sampled = [lists:sort(folsom_metrics:get_metric_value(Name)) || Name <- Whole],
    History = [[Event || {_Time, Events} <- folsom_metrics:get_history_values(history, N), Event <- Events]
               || N <- [1, 3, 10]],
    Tagged = [folsom_metrics:tag_metric(Name, tag) || Name <- [counter, gauge]]
        ++ [folsom_metrics:untag_metric(counter, tag), lists:sort(folsom_metrics:get_metrics_value(tag))],
    Known = [lists:sort(folsom_metrics:get_metrics()), lists:sort(folsom_metrics:get_metrics_info()),
             folsom_metrics:metric_exists(gauge), folsom_metrics:metric_exists(nothing)],
    Failures = [failure(fun() -> folsom_metrics:get_metric_value(nothing) end), folsom_metrics:notify({nothing, 1}),
                folsom_metrics:new_counter(counter), folsom_metrics:notify({counter, {bad, 1}})],
    report([Created, Noted, Timed, Values, Statistics, Sampled, Unknown, History, Tagged, Known, Failures]
           ++ [[folsom_metrics:delete_metric(Name), folsom_metrics:metric_exists(Name)]
               || Name <- [counter, gauge, spiral]]).

rounded(Value) when is_float(Value) -> round(Value * 1.0e6);
rounded(Value) -> Value.

failure(Fun) ->
    try Fun() catch Class:Reason -> {Class, Reason} end.
