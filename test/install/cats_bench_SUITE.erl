%% The part of the bench that runs in the measured VM. Every experiment declares itself at every size. One point of some
%% experiments is measured in a VM of its own, as bench/run does it. The shared loads do what they say.
-module(cats_bench_SUITE).
-include_lib("stdlib/include/assert.hrl").
-include_lib("xmerl/include/xmerl.hrl").
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([compiled_without_warnings/1, declared/1, listed/1, swept/1, papers/1, own/1, measured/1, rounds_alternate/1,
         failures_are_records/1, long_work_is_watched/1, memory_of_a_new_vm/1, keys/1, shapes/1, calls/1,
         programs/1, transactions/1, checks/1, demo/1]).

suite() -> [{timetrap, {minutes, 10}}].

all() ->
    [compiled_without_warnings, declared, listed, swept, papers, own, measured, rounds_alternate, failures_are_records,
     long_work_is_watched, memory_of_a_new_vm, keys, shapes, calls, programs, transactions, checks, demo].

%% An experiment whose measurements fail in each way.
-define(BROKEN, "
-module(bench_broken).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).
about() -> #{title => \"broken\", source => \"none\", unit => \"s\", better => lower, x => how,
             scale => category}.
points(_) -> [#{axes => [{how, How}], subjects => [{\"ets\", ets, []}, {\"cats\", cats, []}]}
              || How <- [exception, exit, separator]].
measure(_, #{how := exception}, {_, ets, _}, _) -> error(planned);
measure(_, #{how := exception}, {_, cats, _}, _) -> [{[], 1.5}];
measure(_, #{how := exit}, _, _) -> exit(self(), kill), receive never -> [] end;
measure(_, #{how := separator}, _, _) -> [{[{row, \"a,b\"}], 1}].
").

init_per_suite(Config) ->
    Beams = filename:join(proplists:get_value(priv_dir, Config), "bench"),
    ok = file:make_dir(Beams),
    Broken = filename:join(Beams, "bench_broken.erl"),
    ok = file:write_file(Broken, ?BROKEN),
    true = code:add_patha(Beams),
    Results = [compile(Source, Beams) || Part <- ["", "vm", "programs", "experiments"], Source <- sources(Part)],
    {ok, _, []} = compile(Broken, Beams),
    [{beams, Beams}, {compiled, Results} | Config].

end_per_suite(Config) ->
    code:del_path(proplists:get_value(beams, Config)).

sources(Directory) ->
    lists:sort(filelib:wildcard(filename:join([cats_test_lib:root(), "bench", Directory, "*.erl"]))).

compile(Source, Beams) ->
    compile:file(Source, [return, {i, filename:join(cats_test_lib:root(), "bench/vm")}, {outdir, Beams}]).

compiled_without_warnings(Config) ->
    [?assertMatch({ok, _, []}, Result) || Result <- proplists:get_value(compiled, Config)],
    ok.

experiments() -> [Name || Name <- bench_vm:names(), Name =/= "broken"].

%% What the tools rely on: axes that can be drawn, and different names for different points and subjects.
declared(_Config) ->
    ?assert(length(experiments()) > 25),
    [begin
         Experiment = list_to_existing_atom("bench_" ++ Name),
         #{title := [_ | _], source := [_ | _], unit := [_ | _], better := Better, x := X, scale := Scale} =
             About = Experiment:about(),
         ?assert(lists:member(Better, [higher, lower])),
         ?assert(lists:member(Scale, [category, linear, log])),
         ?assert(is_atom(X)),
         ?assert(lists:all(fun is_atom/1, maps:get(panels, About, []))),
         Points = Experiment:points(Size),
         ?assertNotEqual([], Points),
         Ids = [bench_experiment:id(Axes) || #{axes := Axes} <- Points],
         ?assertEqual(lists:usort(Ids), lists:sort(Ids), {Name, Size}),
         [begin
              Names = [Subject || {Subject, _, _} <- Subjects],
              ?assertEqual(lists:usort(Names), lists:sort(Names), {Name, Size}),
              [?assert(lists:member(Tables, [ets, cats, none])) || {_, Tables, _} <- Subjects],
              ?assert(maps:get(seconds, Point) > 0, {Name, Size})
          end || #{subjects := [_ | _] = Subjects} = Point <- Points]
     end || Name <- experiments(), Size <- [quick, default, full]],
    ok.

listed(Config) ->
    Records = vm(Config, ["list", "quick", "bags", "nonsense"], ""),
    ?assertMatch([["about", "bags", "better", "higher"]], [R || ["about", _, "better", _] = R <- Records]),
    ?assertMatch([["point", "bags", "type=bag,objects=1000", "", _, "ets;cats"], ["point", "bags" | _]],
                 [R || ["point" | _] = R <- Records]),
    ?assertMatch([["failed", "nonsense", _]], [R || ["failed" | _] = R <- Records]),
    Names = lists:usort([Name || ["point", Name | _] <- vm(Config, ["list", "quick"], "")]),
    ?assertEqual(lists:sort(bench_vm:names()), Names).

%% In a sweep the number of schedulers is an axis of each point, and that along the chart. It stands for that of
%% workers, unless other numbers of those were asked for.
swept(Config) ->
    Listed = fun(Most, Flags) ->
                     vm(Config, ["+S", "2:2", "-sweep", Most | Flags],
                        ["list", "quick", "locks", "reader_groups", "programs", "readers"], "")
             end,
    Ids = fun(Records, Name) -> [Id || ["point", N, Id | _] <- Records, N =:= Name] end,
    About = fun(Records, Name) ->
                    maps:from_list([{Key, Value} || ["about", N, Key, Value] <- Records, N =:= Name])
            end,
    Each = Listed("2", []),
    ?assertEqual(["schedulers=2"], Ids(Each, "locks")),
    ?assertEqual(["schedulers=2,type=" ++ Type ++ ",groups=" ++ Groups
                  || Type <- ["set", "ordered_set"], Groups <- ["1", "2"]],
                 Ids(Each, "reader_groups")),
    ?assertEqual("schedulers=2,program=orbit", hd(Ids(Each, "programs"))),
    ?assertMatch(["schedulers=2,type=set,workers=4", "schedulers=2,type=set,workers=8" | _], Ids(Each, "readers")),
    Fewer = Listed("4", []),
    ?assertEqual({["schedulers=2"], []}, {Ids(Fewer, "locks"), Ids(Fewer, "readers")}),
    ?assertMatch(#{"x" := "schedulers", "scale" := "log", "lines" := "workers"}, About(Each, "locks")),
    ?assertMatch(#{"x" := "schedulers", "panels" := "type,workers,phase", "lines" := "groups"},
                 About(Each, "reader_groups")),
    ?assertMatch(#{"x" := "schedulers", "scale" := "linear"}, About(Each, "programs")),
    Asked = Listed("2", ["-processes", "2", "16"]),
    ?assertEqual(["schedulers=2,workers=2", "schedulers=2,workers=16"], Ids(Asked, "locks")),
    Point = "schedulers=2,workers=16",
    Records = vm(Config, ["+S", "2:2", "-sweep", "2", "-processes", "2", "16"], ["run", "quick", "1", "17"],
                 "locks\t" ++ Point ++ "\n"),
    ?assertEqual([], [R || ["error" | _] = R <- Records]),
    ?assertEqual(["phase=" ++ Phase || Phase <- ["0% lookups", "100% lookups", "50% lookups", "80% lookups",
                                                 "90% lookups", "99% lookups", "delete", "insert"]],
                 lists:usort([Row || ["sample", "locks", Id, _, Row, _] <- Records, Id =:= Point])).

%% Size full has the numbers of the papers. Each mix goes over a table of its own.
papers(_Config) ->
    #{range := 2097152, inserts := 1048576, deletes := 1048576, operations := Operations} = bench_sizes:papers(full),
    ?assertEqual([{0, 4194304}, {50, 4194304}, {80, 4194304}, {90, 16777216}, {99, 16777216}, {100, 16777216}],
                 [{Lookups, Number} || {{mixed, Lookups}, Number} <- lists:sort(maps:to_list(Operations))]),
    Small = #{range => 64, inserts => 32, deletes => 40, operations => #{{mixed, 0} => 100, {mixed, 100} => 10}},
    Rows = ets_bench:papers({"ets", ets, []}, set, Small, #{workers => 2, seed => 1}),
    ?assertEqual([[{phase, "0% lookups"}], [{phase, "insert"}], [{phase, "100% lookups"}], [{phase, "delete"}]],
                 [Row || {Row, _} <- Rows]),
    ?assertMatch([{insert, 32, [_, _]}, {{mixed, 100}, 10, [_, _]}, {delete, 40, [_, _]}],
                 ets_bench:workload(Small#{operations := 10, workers => 2, phases => [insert, {mixed, 100}, delete]})),
    bench_data:forget().

%% An experiment of one's own lies in a folder beside the others, and may have any name.
own(Config) ->
    Own = filename:join(proplists:get_value(beams, Config), "own"),
    ok = file:make_dir(Own),
    Source = filename:join(Own, "of_mine.erl"),
    ok = file:write_file(Source, string:replace(?BROKEN, "bench_broken", "of_mine")),
    {ok, _, []} = compile(Source, Own),
    Records = vm(Config, ["-pa", Own], ["run", "quick", "1", "17"], "of_mine\thow=exception\n"),
    ?assertMatch([_], [R || ["sample", "of_mine", "how=exception", "cats", "", "1.5"] = R <- Records]),
    ?assertMatch([_ | _], [R || ["point", "of_mine" | _] = R <- vm(Config, ["-pa", Own], ["list", "quick"], "")]),
    ok = file:del_dir_r(Own).

%% One point of some experiments: the quickest of those that measure in different ways.
measured(Config) ->
    Points = [{"ets_bench", "type=set,workers=1,range=1024"}, {"values", "type=set,place=hot,shape=map"},
              {"bags", "type=bag,objects=1000"}, {"scans", "type=ordered_set,order=random"},
              {"many_tables", "access=name,workers=1,tables=1000"}, {"memory_table", "type=set"},
              {"timers", "workers=1"}, {"everyday", "group=named,call=lookup of 3 in a bag"},
              {"insertion_patterns", "order=random,workers=1"}, {"compressed", "call=lookup_element,object=map of 40"},
              {"memory_compressed", "table=compressed"}, {"transactions", "workers=1"},
              {"transaction_lengths", "work=reads and writes of a set"}, {"transactions_at_once", "type=set"},
              {"transaction_latency", "type=set,step=insert"}, {"transaction_programs", "program=orders,workers=1"}],
    Input = [[Name, $\t, Id, $\n] || {Name, Id} <- Points],
    [["vm", Release, _, _, _, "8"] | Records] = vm(Config, ["run", "quick", "1", "17"], Input),
    ?assertEqual(erlang:system_info(otp_release), Release),
    ?assertEqual([], [R || ["error" | _] = R <- Records]),
    ?assertEqual(Points, [{Name, Id} || ["done", Name, Id] <- Records]),
    [begin
         Samples = [{Subject, Row, Figure}
                    || ["sample", N, I, Subject, Row, Figure] <- Records, {N, I} =:= {Name, Id}],
         Experiment = list_to_existing_atom("bench_" ++ Name),
         [Subjects] = [[Subject || {Subject, _, _} <- Given]
                       || #{axes := Axes, subjects := Given} <- Experiment:points(quick),
                          bench_experiment:id(Axes) =:= Id],
         Rows = [Row || {Subject, Row, _} <- Samples, Subject =:= hd(Subjects)],
         ?assertEqual([{Subject, Row} || Subject <- Subjects, Row <- Rows],
                      [{Subject, Row} || {Subject, Row, _} <- Samples]),
         [?assert(number(Figure) > 0, {Name, Sample}) || {_, _, Figure} = Sample <- Samples]
     end || {Name, Id} <- Points],
    ok.

rounds_alternate(Config) ->
    [begin
         Records = vm(Config, ["run", "quick", Round, "17"], "memory_table\ttype=bag\n"),
         ?assertEqual(Subjects, [Subject || ["sample", _, _, Subject, "objects=0", _] <- Records])
     end || {Round, Subjects} <- [{"1", ["ets", "ets r w", "cats"]}, {"2", ["cats", "ets r w", "ets"]}]],
    ok.

%% Each of these is an error, and the next point is measured: an exception, the death of the measuring process, a row
%% that the protocol cannot express, an unknown point.
failures_are_records(Config) ->
    Input = ["broken\thow=exception\n", "broken\thow=exit\n", "broken\thow=separator\n",
             "broken\tnothing=1\n", "nonsense\tx=1\n", "memory_table\ttype=set\n"],
    Records = vm(Config, ["run", "quick", "1", "17"], Input),
    ?assertMatch([["error", "broken", "how=exception", "ets", _], ["error", "broken", "how=exit", "-", _],
                  ["error", "broken", "how=separator", "ets", _],
                  ["error", "broken", "how=separator", "cats", _],
                  ["error", "broken", "nothing=1", "-", _], ["error", "nonsense", "x=1", "-", _]],
                 [R || ["error" | _] = R <- Records]),
    ?assertMatch([["sample", "broken", "how=exception", "cats", "", "1.5"]],
                 [R || ["sample", "broken" | _] = R <- Records]),
    ?assertEqual(6, length([R || ["done" | _] = R <- Records])),
    ?assertEqual(6, length([R || ["sample", "memory_table" | _] = R <- Records])).

vm(Config, Arguments, Input) -> vm(Config, [], Arguments, Input).

%% Runs a VM as bench/run does, and returns its records.
vm(Config, Flags, Arguments, Input) ->
    File = filename:join(proplists:get_value(priv_dir, Config), "input"),
    ok = file:write_file(File, Input),
    Words = [filename:join([code:root_dir(), "bin", "erl"])] ++ Flags ++ ["-noinput",
             "-pa", filename:dirname(code:which(cats)), "-pa", proplists:get_value(beams, Config),
             "-run", "bench_vm", "main" | Arguments],
    Output = os:cmd(lists:flatten([[[$", Word, $", $\s] || Word <- Words], "2>/dev/null <\"", File, $"])),
    [string:split(Line, "\t", all) || Line <- string:lexemes(Output, "\n")].

number(Text) ->
    try list_to_float(Text) catch error:badarg -> list_to_integer(Text) end.

%% The longest step is recorded, and percentiles are near it when all steps take equally long.
long_work_is_watched(_Config) ->
    Times = bench_latency:during(fun() -> timer:sleep(300) end, fun() -> timer:sleep(20) end),
    ?assertMatch([{"50%", _}, {"99%", _}, {"99.9%", _}, {"longest", _}], Times),
    [?assert(Time > 19_000, Times) || {_, Time} <- Times],
    ?assertError({worker, _}, bench_latency:during(fun() -> exit(planned) end, fun erlang:yield/0)).

memory_of_a_new_vm(_Config) ->
    ?assert(bench_child:result("", bench_memory, resident, []) > 1_000_000),
    ?assertError({child_vm, _, _}, bench_child:result("+no_such_flag", bench_memory, resident, [])).

%% Keys are in their range. Keys by Zipf's law differ much in frequency, uniform ones hardly, and only few keys are hot.
keys(_Config) ->
    Counts = fun(Distribution) ->
                     Generator = bench_keys:generator(Distribution, 1000),
                     Keys = bench_keys:list(Generator, 100_000, bench_keys:seed(1)),
                     ?assert(lists:min(Keys) >= 1 andalso lists:max(Keys) =< 1000),
                     lists:reverse(lists:sort(maps:values(count(Keys))))
             end,
    ?assert(hd(Counts(uniform)) < 200),
    ?assert(hd(Counts(zipf)) > 5_000),
    ?assert(length(Counts(zipf)) > 800),
    ?assertEqual(8, length(Counts({hot, 8}))),
    ?assertEqual(lists:seq(1, 1000), lists:sort([bench_shapes:nth(N, 1000) || N <- lists:seq(1, 1000)])).

count(Keys) ->
    lists:foldl(fun(Key, Counts) -> maps:update_with(Key, fun(N) -> N + 1 end, 1, Counts) end, #{}, Keys).

%% Objects and keys of every shape come back unchanged from both modules, and the loops do all their operations.
shapes(_Config) ->
    [begin
         Table = bench_shapes:table(Tables, set, [], 50, fun(N) -> bench_shapes:object(Shape, N) end),
         ?assertEqual(50, Tables:info(Table, size)),
         [Object] = Tables:lookup(Table, 7),
         ?assertEqual(tuple_size(bench_shapes:object(Shape, 7)), tuple_size(Object)),
         Tables:delete(Table)
     end || Tables <- [ets, cats], Shape <- bench_shapes:values()],
    [begin
         Table = bench_shapes:table(Tables, ordered_set, [], 50,
                                    fun(N) -> {bench_shapes:key(Shape, N), 0, a} end),
         Keys = [bench_shapes:key(Shape, N) || N <- lists:seq(1, 50)],
         ?assert(object_loads:rate({update_counter, 2}, Tables, Table, [{Keys, 3}, {Keys, 3}]) > 0),
         ok = object_loads:loop({update_element, {3, b}}, Tables, Table, {Keys, 1}),
         [?assertEqual([{Key, 6, b}], Tables:lookup(Table, Key)) || Key <- Keys],
         ok = object_loads:loop(insert, Tables, Table, {[{Key, new} || Key <- Keys], 1}),
         [?assertEqual([{Key, new}], Tables:lookup(Table, Key)) || Key <- Keys],
         Tables:delete(Table)
     end || Tables <- [ets, cats], Shape <- bench_shapes:keys()],
    ok.

%% All everyday calls return the same from both modules, and a call that does not is noticed.
calls(_Config) ->
    [?assertEqual({Group, Call, ok}, {Group, Call, bench_calls:check(Row)})
     || {Group, Calls} <- bench_everyday:rows(), {Call, Row} <- Calls],
    Row = #{calls => foldl, options => [set], objects => 10, key => fun(N) -> N end,
            object => fun(Key, N) -> {Key, N} end, argument => fun(_, _) -> fun(_, _) -> make_ref() end end},
    ?assertError({different, _, _}, bench_calls:check(Row)).

%% The programs compute the same on any number of processes, and on both kinds of tables.
programs(_Config) ->
    Orbits = [orbit:run(Tables, [], #{space => 2000, workers => Workers, inside => Inside})
              || Tables <- [ets, cats], Workers <- [1, 3], Inside <- [false, true]],
    ?assertMatch([2000], lists:usort(Orbits)),
    [ok = pcmark:run(Tables, [], #{objects => 20, processes => 7, at_once => 2}) || Tables <- [ets, cats]],
    ?assertEqual(mbrot:run(20, 1), mbrot:run(20, 3)),
    ok = ran:run(2),
    ?assertEqual([1, 1], [moves:run("bew", Workers) - 2 || Workers <- [1, 2]]),
    ok.

%% The same bodies leave the same in all tables, in whatever way they run.
transactions(_Config) ->
    Lengths = [{Body, bench_transaction_lengths:lists(3, 20, 50)}
               || Body <- [fun bench_transaction_lengths:reads/3, fun bench_transaction_lengths:reads_and_writes/3,
                           fun bench_transaction_lengths:takes/3]],
    Left = [begin
                Bank = bench_transaction_lengths:open(Way, ordered_set, 100),
                [{atomic, ok} = bench_atomic:run(Bank, Body, Keys) || {Body, Lists} <- Lengths, Keys <- Lists],
                Objects = bench_atomic:all(Bank, entry),
                bench_atomic:close(Bank),
                Objects
            end || {_, _, [Way]} <- bench_atomic:subjects()],
    [[{entry, 61, _} | _] = Objects] = lists:usort(Left),
    ?assertEqual(40, length(Objects)),
    [?assertMatch([_], lists:usort([begin
                                        Bank = program(Way, Program),
                                        Tables = all_of(Bank, Program),
                                        bench_atomic:close(Bank),
                                        Tables
                                    end || {_, _, [Way]} <- bench_atomic:subjects()]))
     || Program <- [bank, orders]],
    stopped = mnesia:stop(),
    ok.

-define(SMALL, {2, 20}).

inputs(Program) -> bench_transaction_programs:prepare(Program, ?SMALL, {1, 100, 17}).

%% The tables after a hundred transactions of a program.
program(Way, Program) ->
    Bank = bench_atomic:open(Way, bench_transaction_programs:tables(Program, ?SMALL)),
    Results = [bench_atomic:run(Bank, bench_transaction_programs:body(Program), Input) || Input <- inputs(Program)],
    ?assertEqual([no_item || Program =:= orders], lists:usort([Reason || {aborted, Reason} <- Results])),
    ok = bench_transaction_programs:check(Program, Bank, inputs(Program)),
    Bank.

all_of(Bank, Program) ->
    [{Name, lists:sort(bench_atomic:all(Bank, Name))}
     || {Name, _, _, _} <- bench_transaction_programs:tables(Program, ?SMALL)].

%% A wrong number in any table is found, and so are a line of another order and transactions too few.
checks(_Config) ->
    [begin
         Bank = program(cats, Program),
         Wrong = [{Name, Object, [setelement(Place, Object, element(Place, Object) + 1)]}
                  || {Name, [Object | _]} <- all_of(Bank, Program), Name =/= item,
                     Place <- lists:seq(3, tuple_size(Object)), is_integer(element(Place, Object))]
             ++ [{line, Line, [setelement(2, Line, {Order, 99})]}
                 || {line, [Line | _]} <- all_of(Bank, Program), {Order, _} <- [element(2, Line)]],
         [begin
              ok = replace(Bank, Name, [Object], New),
              ?assertError({wrong, _}, bench_transaction_programs:check(Program, Bank, inputs(Program)), New),
              ok = replace(Bank, Name, New, [Object]),
              ok = bench_transaction_programs:check(Program, Bank, inputs(Program))
          end || {Name, Object, New} <- Wrong],
         ?assertError({wrong, _}, bench_transaction_programs:check(Program, Bank, tl(inputs(Program)))),
         bench_atomic:close(Bank)
     end || Program <- [bank, orders]],
    ok.

replace(Bank, Name, Old, New) ->
    Body = fun(Words, #{Name := Table}, _) ->
                   [bench_atomic:delete(Words, Table, element(2, Object)) || Object <- Old],
                   [bench_atomic:write(Words, Table, Object) || Object <- New],
                   ok
           end,
    {atomic, ok} = bench_atomic:run(Bank, Body, none),
    ok.

%% The chart of the demo for two groups of rows: bars in proportion within their group, narrow enough for a terminal.
%% The file is well-formed, is opaque, and has the same bars. The time left follows from the measurements done.
demo(_Config) ->
    Rows = [{set, 1, insert, 2.0e6, "ets", 4.0e6, 2.0, 1.9, 2.1},
            {set, 1, {mixed, 100}, 1.0e6, "ets r", 0.5e6, 0.5, 0.5, 0.5},
            {ordered_set, 64, delete, 1.0, "ets w", 2.0e8, 2.0e8, 1.0, 3.0e8}],
    Lines = string:split(string:trim(lists:flatten(cats_demo:chart(Rows)), trailing), "\n", all),
    ?assertEqual(["Operations per second, each group on its own scale",
                  "",
                  "set, 1 worker",
                  "  insert        ets  " ++ lists:duplicate(24, $-) ++ " 2.00M",
                  "                cats " ++ lists:duplicate(48, $#) ++ " 4.00M",
                  "  100% lookups  ets  " ++ lists:duplicate(12, $-) ++ " 1.00M",
                  "                cats " ++ lists:duplicate(6, $#) ++ " 0.50M",
                  "",
                  "ordered_set, 64 workers",
                  "  delete        ets  - 0.00M",
                  "                cats " ++ lists:duplicate(48, $#) ++ " 200.00M"], Lines),
    ?assertEqual([], [Line || Line <- Lines, length(Line) >= 80]),
    {#xmlElement{name = svg} = Svg, []} = xmerl_scan:string(lists:flatten(cats_demo:svg(Rows))),
    [Page | Bars] = xmerl_xpath:string("//rect", Svg),
    ?assertEqual({"100%", "100%", "#ffffff"},
                 {attribute(width, Page), attribute(height, Page), attribute(fill, Page)}),
    ?assertEqual([{Colour, Width} || {Ets, Cats} <- [{"130.0", "260.0"}, {"65.0", "32.5"}, {"0.0", "260.0"}],
                                     {Colour, Width} <- [{"#d55e00", Ets}, {"#0072b2", Cats}]],
                 [{attribute(fill, Bar), attribute(width, Bar)} || Bar <- Bars]),
    Texts = [Value || #xmlText{value = Value} <- xmerl_xpath:string("//text/text()", Svg)],
    [?assert(lists:member(Text, Texts), {Text, Texts})
     || Text <- ["set, 1 worker", "ordered_set, 64 workers", "100% lookups", "ets 2.00M", "cats 200.00M"]],
    Progress = #{done => 10, total => 40, started => 1000, shown => 1000, terminal => true},
    ?assertEqual(15, cats_demo:seconds_left(Progress, 6000)),
    ?assertEqual(0, cats_demo:seconds_left(Progress#{done := 40}, 6000)),
    %% A ratio is that of the figures beside it, and within the spread.
    Sessions = cats_demo_sessions:rows({"cats", cats, []}, 100, 3),
    ?assertEqual(["lookup", "insert over itself", "delete, and insert again", "memory of a session"],
                 [Call || {100, Call, _, _, _, _, _, _} <- Sessions]),
    [?assert(Ratio == Ets / Cats andalso Low =< Ratio andalso Ratio =< High)
     || {_, _, _, Ets, Cats, Ratio, Low, High} <- Sessions],
    ok.

attribute(Name, #xmlElement{attributes = Attributes}) ->
    #xmlAttribute{value = Value} = lists:keyfind(Name, #xmlAttribute.name, Attributes),
    Value.
