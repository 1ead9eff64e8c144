%% What scripts/mnesia-suites runs. A kind of Mnesia has a directory of its own, with the Mnesia and the suites that
%% belong to it:
%%
%%   stock        OTP's Mnesia
%%   recompiled   OTP's Mnesia after cats_recompile, and the suites after it
%%   cats_copies  OTP's Mnesia, and suites whose tables are cats_copies where they were ram_copies
%%   ets_copies   the same with the backend of cats_copies over ets in place of cats. It tells what is Mnesia's in a
%%                difference. Its tables and those that Mnesia makes itself have the same names in ets, so it hangs
%%                where Mnesia leaves one behind (consistency_after_restore_recreate_ram).
%%
%% Mnesia is compiled with its macro `debug'. Most cases of the recovery suite stop it at places that exist only then.
-module(mnesia_suites).
-export([build/3, run/2, table/1, differences/1]).

-spec build(atom(), file:filename(), file:filename()) -> ok.
build(Kind, Source, Out) ->
    Mnesia = filename:join([Out, "otp", "mnesia"]),
    Tests = filename:join([Out, "otp", "tests"]),
    copy([Source, "ebin", "mnesia.app"], [Mnesia, "ebin"], fun(_Name, Text) -> Text end),
    copy([Source, "test", "*.{erl,hrl}"], [Tests, "src"], fun(Name, Text) -> changed(Kind, Name, Text) end),
    [ok = backend(filename:join([Tests, "src", "ets_mnesia.erl"])) || Kind =:= ets_copies],
    compile([Source, "src"], [Mnesia, "ebin"], [{d, debug}]),
    compile([Tests, "src"], [Tests, "ebin"], [{i, filename:join(Source, "src")}]),
    {ok, _, _} = case Kind of
                     recompiled -> cats_recompile:apps([Mnesia, Tests], Out);
                     _ -> {ok, [], []}
                 end,
    ok.

compile(From, To, Options) ->
    All = [debug_info, report_errors, {outdir, filename:join(To)} | Options],
    ok = filelib:ensure_path(filename:join(To)),
    [{ok, _} = compile:file(File, All) || File <- filelib:wildcard(filename:join(From ++ ["*.erl"]))].

copy(From, To, Change) ->
    ok = filelib:ensure_path(filename:join(To)),
    [begin
         {ok, Text} = file:read_file(File),
         Name = filename:basename(File),
         ok = file:write_file(filename:join(To ++ [Name]), Change(Name, Text))
     end || File <- filelib:wildcard(filename:join(From))].

%% The library of the suites asks for the tables of all storage types. The schema itself cannot be in a backend.
changed(cats_copies, Name, Text) -> backed(Name, "cats", Text);
changed(ets_copies, Name, Text) -> backed(Name, "ets", Text);
changed(_Kind, _Name, Text) -> Text.

backed("ext_test" ++ _, _Backend, Text) ->
    Text;
backed("mnesia_test_lib." ++ _, Backend, Text) ->
    Added = ["{", Backend, "_copies, ", Backend, "_mnesia}"],
    replace([{"{ext_ram_copies, ext_test}", Added}, {"\\bext_ram_copies\\b", [Backend, "_copies"]}], Text);
backed(_Name, Backend, Text) ->
    replace([{"schema, (\\w+, )?ram_copies(*SKIP)(*FAIL)|\\b(ext_)?ram_copies\\b", [Backend, "_copies"]}], Text).

backend(File) ->
    {ok, Text} = file:read_file("src/cats_mnesia.erl"),
    file:write_file(File, replace([{"\\bcats:", "ets:"}, {"\\bcats_mnesia\\b", "ets_mnesia"}], Text)).

replace(Patterns, Text) ->
    lists:foldl(fun({Pattern, With}, Changed) -> re:replace(Changed, Pattern, With, [global]) end, Text, Patterns).

%% Runs the suites, and writes the result of each case to the file `results' in the directory.
-spec run([module()], file:filename()) -> ok.
run(Suites, Out) ->
    Results = [{Suite, cases(mnesia_test_lib:test({Suite, all}, mnesia_test_lib:default_config()))} || Suite <- Suites],
    ok = file:write_file(filename:join(Out, "results"), [io_lib:format("~tp.~n", [Result]) || Result <- Results]).

%% The results are nested as the cases are. The reason becomes a text, since it may have a pid.
cases({Result, {Module, Case}, Why}) when Result =:= ok; Result =:= failed; Result =:= crash; Result =:= skip ->
    [{{Module, Case}, Result, lists:flatten(io_lib:format("~tp", [Why]))}];
cases(Results) when is_list(Results) -> lists:flatmap(fun cases/1, Results);
cases(Results) when is_tuple(Results) -> cases(tuple_to_list(Results));
cases(_) -> [].

%% Prints how many cases passed, failed and were skipped in the directories, a row for each suite.
-spec table([file:filename()]) -> ok.
table(Directories) ->
    [[io:format("| ~s | ~s | ~b | ~b | ~b |~n", [Suite, filename:basename(Directory)
                                                | [length([ok || {_, Result, _} <- Cases, lists:member(Result, Some)])
                                                   || Some <- [[ok], [failed, crash], [skip]]]])
      || {Suite, Cases} <- results(Directory)] || Directory <- Directories],
    ok.

%% Prints the cases whose results are not the same in all of the directories. Returns how many there are.
-spec differences([file:filename()]) -> non_neg_integer().
differences(Directories) ->
    Kinds = [#{Case => word(Result) || {_, Cases} <- results(Directory), {Case, Result, _} <- Cases}
             || Directory <- Directories],
    All = lists:usort(lists:flatmap(fun maps:keys/1, Kinds)),
    Different = [{Case, Results} || Case <- All, Results <- [[maps:get(Case, Kind, none) || Kind <- Kinds]],
                                    length(lists:usort(Results)) > 1],
    [io:format("~s:~s:~s~n", [Module, Case, [io_lib:format(" ~s ~s", [filename:basename(Directory), Result])
                                             || {Directory, Result} <- lists:zip(Directories, Results)]])
     || {{Module, Case}, Results} <- Different],
    length(Different).

word(crash) -> failed;
word(Result) -> Result.

results(Directory) ->
    {ok, Results} = file:consult(filename:join(Directory, "results")),
    Results.
