%% The measured VM: it lists experiments and measures their points. In each round bench/run starts one for each
%% installation of OTP and set of emulator flags:
%%
%%     erl FLAGS -noinput -pa EBIN -pa BENCH -run bench_vm main list SIZE [NAME ...]
%%     erl FLAGS -noinput -pa EBIN -pa BENCH -run bench_vm main run SIZE ROUND SEED
%%
%% The same OTP has compiled the modules of bench/vm, bench/experiments and bench/programs into one directory.
%% Those of bench/vm come first, as it holds the behaviour and the headers.
%%
%% `run' reads lines `NAME<tab>ID' from the standard input. Each is a point to measure. `run' ends with the
%% input. A port reads it: `-noinput' keeps the VM itself away from it. Both commands write records to the
%% standard output, one record a line, with tabs between the fields. All else that the VM prints goes to the
%% standard error.
%%
%%     about   NAME  KEY  VALUE                  a line for each key of about(); panels joined by commas
%%     point   NAME  ID   FLAGS  SECONDS  SUBJECT;SUBJECT...
%%     failed  NAME  TEXT                        the experiment is unknown, or does not declare itself
%%     vm      RELEASE  ERTS  SCHEDULERS  FLAVOR  WORDSIZE
%%     start   NAME  ID
%%     sample  NAME  ID   SUBJECT  ROW  FIGURE   ROW: the axes that the point does not have, maybe none
%%     error   NAME  ID   SUBJECT  TEXT          an exception, or the point is unknown (SUBJECT `-')
%%     done    NAME  ID
%%
%% With `-sweep MOST' among the flags, the number of schedulers is an axis of each point, and the axis along the chart.
%% `-processes N ...' gives numbers of workers.
%%
%% The subjects of a point are measured in the order declared in odd rounds, reversed in even ones. Before the
%% first point, all code is loaded and each kind of table has run for a moment.
-module(bench_vm).
-export([main/1, names/0, about/2, named/4]).

%% @doc Does what the header of this file says, in a process of its own, and halts.
-spec main([string()]) -> pid().
main(Arguments) ->
    spawn(fun() ->
                  log_to_standard_error(),
                  halt(try
                           command(Arguments),
                           0
                       catch
                           Class:Reason:Stack ->
                               io:format(standard_error, "~tp~n", [{Class, Reason, Stack}]),
                               1
                       end)
          end).

%% The reports of crashed processes would come between the records.
log_to_standard_error() ->
    _ = logger:remove_handler(default),
    ok = logger:add_handler(default, logger_std_h, #{config => #{type => standard_error}}).

command(["list", Size]) ->
    [list(Name, bench_size(Size)) || Name <- names()];
command(["list", Size | Names]) ->
    [list(Name, bench_size(Size)) || Name <- Names];
command(["run", Size, Round, Seed]) ->
    record(["vm", erlang:system_info(otp_release), erlang:system_info(version),
            erlang:system_info(schedulers_online), flavor(), erlang:system_info(wordsize)]),
    warm_up(),
    Input = open_port({fd, 0, 1}, [in, eof, {line, 4096}]),
    run(Input, bench_size(Size), list_to_integer(Round), list_to_integer(Seed)).

bench_size("quick") -> quick;
bench_size("default") -> default;
bench_size("full") -> full.

flavor() ->
    lists:concat([erlang:system_info(emu_flavor), "-", erlang:system_info(build_type)]).

%% @doc The names of all experiments: of the modules beside this one that have the behaviour bench_experiment, and of
%% a user's own.
-spec names() -> [string()].
names() ->
    [case Module of
         "bench_" ++ Name -> Name;
         _ -> Module
     end || Module <- modules("bench_*") ++ modules("own/*"),
            lists:member(bench_experiment, behaviours(list_to_atom(Module)))].

modules(Pattern) ->
    [filename:basename(Beam, ".beam")
     || Beam <- filelib:wildcard(filename:join(filename:dirname(code:which(?MODULE)), Pattern ++ ".beam"))].

behaviours(Module) ->
    lists:append(proplists:get_all_values(behaviour, Module:module_info(attributes))).

experiment(Name) ->
    [Module | _] = [Module || Module <- [list_to_atom("bench_" ++ Name), list_to_atom(Name)],
                              {module, Module} =:= code:ensure_loaded(Module)],
    Module.

%%--------------------------------------------------------------------------------------------------

list(Name, Size) ->
    try
        Experiment = experiment(Name),
        {maps:to_list(about(bench_workers:swept(), Experiment:about())), points(Experiment, Size)}
    of
        {About, Points} ->
            [record(["about", Name, Key, joined(Key, Value)]) || {Key, Value} <- About],
            [record(["point", Name, Id, maps:get(flags, Point, ""), maps:get(seconds, Point, 1),
                     lists:join($;, [Subject || {Subject, _, _} <- Subjects])])
             || {Id, #{subjects := Subjects} = Point} <- Points]
    catch
        Class:Reason:Stack -> record(["failed", Name, failure(Class, Reason, Stack)])
    end.

joined(Key, Axes) when Key =:= panels; Key =:= lines -> lists:join($,, [atom_to_list(Axis) || Axis <- Axes]);
joined(_Key, Value) -> Value.

points(Experiment, Size) ->
    Points = Experiment:points(Size),
    All = [Axes || #{axes := Axes} <- Points],
    lists:zip([bench_experiment:id(Axes) || Axes <- named(bench_workers:swept(), bench_workers:asked(),
                                                          erlang:system_info(schedulers_online), All)],
              Points).

%% @doc The axes of an experiment's points, as names have them: in a sweep the number of schedulers is the first of
%% them. If there are as many workers in all points, and nobody asked for that number, it is none.
-spec named(Swept :: boolean(), Asked :: boolean(), Schedulers :: pos_integer(), [bench_experiment:axes()]) ->
          [bench_experiment:axes()].
named(false, _, _, All) ->
    All;
named(true, Asked, Schedulers, All) ->
    Each = not Asked andalso lists:all(fun(Axes) -> proplists:get_value(workers, Axes) =:= Schedulers end, All),
    [[{schedulers, Schedulers} | Axes -- [{schedulers, Schedulers} | [{workers, Schedulers} || Each]]] || Axes <- All].

%% @doc What is said of an experiment: in a sweep a chart goes along the number of schedulers. What it went along before
%% divides it into panels, or into lines if that was a number.
-spec about(Swept :: boolean(), bench_experiment:about()) -> bench_experiment:about().
about(true, #{x := X, scale := Scale} = About) when X =/= schedulers ->
    Panels = maps:get(panels, About, []) ++ [X || Scale =:= category],
    About#{x := schedulers, scale := log, panels => Panels, lines => [X || Scale =/= category]};
about(_, About) ->
    About.

%%--------------------------------------------------------------------------------------------------

%% Loads all code, and lets each kind of table run for a moment, so that the first point does not pay for it.
warm_up() ->
    [{module, _} = code:ensure_loaded(list_to_atom(Module)) || Module <- modules("*") ++ modules("own/*")],
    ets_bench:warm_up().

run(Input, Size, Round, Seed) ->
    receive
        {Input, {data, {eol, Line}}} ->
            [Name, Id] = string:split(Line, "\t"),
            point(Name, Id, Size, Round, erlang:phash2({Seed, Round, Name, Id})),
            run(Input, Size, Round, Seed);
        {Input, eof} ->
            ok
    end.

%% In a process of its own, so that what one point leaves behind, tables and garbage, goes with it.
point(Name, Id, Size, Round, Seed) ->
    record(["start", Name, Id]),
    {Pid, Monitor} = spawn_monitor(fun() -> subjects(Name, Id, Size, Round, Seed) end),
    receive
        {'DOWN', Monitor, process, Pid, normal} -> ok;
        {'DOWN', Monitor, process, Pid, Reason} -> record(["error", Name, Id, "-", failure(exit, Reason, [])])
    end,
    bench_data:forget(),
    bench_tables:settle(),
    record(["done", Name, Id]).

subjects(Name, Id, Size, Round, Seed) ->
    Experiment = experiment(Name),
    case [Point || {Known, Point} <- points(Experiment, Size), Known =:= Id] of
        [#{axes := Axes, subjects := Subjects}] ->
            [measure(Experiment, Size, Name, Id, Axes, Subject, Seed) || Subject <- ordered(Round, Subjects)],
            ok;
        Points ->
            exit({points_with_this_id, length(Points)})
    end.

ordered(Round, Subjects) when Round rem 2 =:= 0 -> lists:reverse(Subjects);
ordered(_Round, Subjects) -> Subjects.

measure(Experiment, Size, Name, Id, Axes, {Subject, _, _} = Whole, Seed) ->
    try [{bench_experiment:id(Row), Figure}
         || {Row, Figure} <- Experiment:measure(Size, maps:from_list(Axes), Whole, Seed)]
    of
        Rows -> [record(["sample", Name, Id, Subject, Row, Figure]) || {Row, Figure} <- Rows]
    catch
        Class:Reason:Stack -> record(["error", Name, Id, Subject, failure(Class, Reason, Stack)])
    end,
    bench_tables:settle().

failure(Class, Reason, Stack) ->
    io_lib:format("~0tp: ~0tP at ~0tP", [Class, Reason, 30, lists:sublist(Stack, 3), 30]).

%% One line, whatever the fields contain.
record(Fields) ->
    io:put_chars([lists:join($\t, [[field(C) || C <- lists:flatten(text(Field))] || Field <- Fields]), $\n]).

field(C) when C =:= $\t; C =:= $\n; C =:= $\r -> $\s;
field(C) -> C.

text(Field) when is_list(Field) -> Field;
text(Field) when is_float(Field) -> float_to_list(Field, [short]);
text(Field) -> io_lib:format("~w", [Field]).
