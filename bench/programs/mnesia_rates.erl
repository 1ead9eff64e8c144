%% What scripts/mnesia-bench runs: OTP's benchmarks of Mnesia, and dirty accesses of one process. All tables are in memory, on one node. A
%% kind of Mnesia has a directory of its own, with the Mnesia and the benchmarks that belong to it:
%%
%%   stock        OTP's Mnesia
%%   cats_copies  OTP's Mnesia, and benchmarks whose tables are cats_copies where they were ram_copies
%%   recompiled   OTP's Mnesia after cats_recompile, and the benchmarks after it
%%   own_in_ets   the same, but Mnesia's own tables stay in ets
-module(mnesia_rates).
-export([build/3, run/3, table/1]).

-define(KINDS, [stock, cats_copies, recompiled, own_in_ets]).
-define(RECORDS, 10000).
%% Calls that mnesia_meter makes of each kind in a turn, and turns. The fastest one counts, as others may use the processors.
-define(CALLS, 200).
-define(TURNS, 8).

%% Compiles the benchmarks for a kind of Mnesia. Source is the application mnesia in the source of Erlang/OTP.
-spec build(atom(), file:filename(), file:filename()) -> ok.
build(Kind, Source, Out) ->
    Programs = filename:join([Out, "otp", "programs"]),
    Text = filename:join(Programs, "src"),
    Beams = filename:join(Programs, "ebin"),
    [ok = filelib:ensure_path(Directory) || Directory <- [Text, Beams]],
    [begin
         {ok, Original} = file:read_file(File),
         ok = file:write_file(filename:join(Text, filename:basename(File)), changed(Kind, Original))
     end || Files <- ["mnesia_tpcb.erl", "mnesia_meter.erl", "bench/*.erl", "bench/*.hrl"],
            File <- filelib:wildcard(filename:join([Source, "examples", Files]))],
    [{ok, _} = compile:file(File, [debug_info, export_all, nowarn_export_all, report_errors, {outdir, Beams}])
     || File <- filelib:wildcard(filename:join(Text, "*.erl"))],
    {ok, _, _} = case Kind of
                     recompiled -> cats_recompile:apps([mnesia, Programs], Out);
                     own_in_ets -> cats_recompile:apps([mnesia, Programs], Out, [{except, cats_mnesia:own_tables()}]);
                     _ -> {ok, [], []}
                 end,
    ok.

%% Of the storage types, mnesia_tpcb knows only Mnesia's own.
changed(cats_copies, Text) -> re:replace(Text, "\\bram_copies\\b", "cats_copies", [global]);
changed(_Kind, Text) -> Text.

%% Appends a row for each benchmark to the file `results' in the directory: what it measures, and how many of that in a second.
-spec run(atom(), pos_integer(), file:filename()) -> ok.
run(Kind, Milliseconds, Out) ->
    Copies = case Kind of
                 cats_copies -> cats_copies;
                 _ -> ram_copies
             end,
    ok = mnesia:start(),
    [{atomic, ok} = mnesia:add_backend_type(cats_copies, cats_mnesia) || Copies =:= cats_copies],
    {atomic, ok} = mnesia:create_table(five, [{Copies, [node()]}, {attributes, [key, a, b, c, d]}]),
    {atomic, ok} = mnesia:create_table(person, [{Copies, [node()]}, {attributes, [name, data, married_to, children]}]),
    Rows = [{"TPC-B transactions, 8 clients", bank(Copies, Milliseconds)}]
        ++ [{"`bench` transactions, 8 clients", subscribers(Milliseconds)} || Copies =:= ram_copies]
        ++ [{"dirty writes, 5 fields", rate(fun(Key) -> ok = mnesia:dirty_write({five, Key, a, Key, <<1, 2, 3>>, "text"}) end, Milliseconds)},
            {"dirty reads, 5 fields", rate(fun(Key) -> [_] = mnesia:dirty_read(five, Key) end, Milliseconds)}]
        ++ [{"meter: " ++ Name, meter(Meter)} || Meter <- mnesia_meter:meters(), Name <- [element(2, Meter)], is_apt(Name, Copies)],
    ok = file:write_file(filename:join(Out, "results"), [io_lib:format("~p.~n", [Row]) || Row <- Rows], [append]).

%% OTP's mnesia_tpcb.
bank(Copies, Milliseconds) ->
    _ = mnesia_tpcb:init([{use_running_mnesia, true}, {replica_type, Copies}, {n_branches, 8}, {n_accounts_per_branch, 1000}]),
    Before = mnesia:system_info(transaction_commits),
    _ = mnesia_tpcb:run([{use_running_mnesia, true}, {n_drivers_per_node, 8}, {stop_after, Milliseconds},
                         {report_interval, Milliseconds}, {reuse_history_id, true}]),
    Commits = mnesia:system_info(transaction_commits) - Before,
    ok = mnesia_tpcb:verify_tabs(),
    Commits * 1000 div Milliseconds.

%% OTP's `bench'. It uses fragments, of which a backend has none.
subscribers(Milliseconds) ->
    Options = [{generator_nodes, [node()]}, {table_nodes, [node()]}, {n_generators_per_node, 8}, {generator_warmup, Milliseconds div 4},
               {generator_duration, Milliseconds}, {generator_cooldown, 1}, {statistics_detail, normal}, {write_lock_type, write},
               {n_fragments, 10}, {n_subscribers, 2500}],
    _ = bench:populate(Options),
    Generators = spawn_link(fun() -> bench:generate(Options) end),
    timer:sleep(Milliseconds div 2),
    Before = mnesia:system_info(transaction_commits),
    timer:sleep(Milliseconds div 2),
    Commits = mnesia:system_info(transaction_commits) - Before,
    Monitor = monitor(process, Generators),
    receive {'DOWN', Monitor, process, Generators, _} -> ok end,
    Commits * 2000 div Milliseconds.

%% Those of mnesia_meter that go through Mnesia. Tables on disk are left out, and calls of ets.
is_apt(Name, Copies) ->
    string:find(Name, "ets:") =:= nomatch andalso (Copies =:= ram_copies orelse string:prefix(Name, "ets ") =:= nomatch).

%% A meter of OTP's mnesia_meter, by one process.
meter({meter, _, Init, Meter, _}) ->
    Turn = fun() ->
                   {atomic, ok} = mnesia_meter:init_records(Init, ?CALLS),
                   Start = erlang:monotonic_time(nanosecond),
                   ok = mnesia_meter:repeat_meter(Meter, ?CALLS),
                   ?CALLS * 1000_000_000 div (erlang:monotonic_time(nanosecond) - Start)
           end,
    lists:max([Turn() || _ <- lists:seq(1, ?TURNS)]).

%% By the fastest of the turns through all keys.
rate(Do, Milliseconds) ->
    lists:foreach(Do, lists:seq(1, ?RECORDS)),
    Fastest = fastest(Do, lists:seq(1, ?RECORDS), erlang:monotonic_time(nanosecond) + Milliseconds * 1000_000, infinity),
    ?RECORDS * 1000_000_000 div Fastest.

fastest(Do, Keys, End, Before) ->
    Start = erlang:monotonic_time(nanosecond),
    lists:foreach(Do, Keys),
    case erlang:monotonic_time(nanosecond) of
        Now when Now < End -> fastest(Do, Keys, End, min(Before, Now - Start));
        Now -> min(Before, Now - Start)
    end.

%% Prints the medians. The directory has those of the kinds.
-spec table(file:filename()) -> ok.
table(Work) ->
    [Stock | _] = All = [begin
                             {ok, Rows} = file:consult(filename:join([Work, Kind, "results"])),
                             Rows
                         end || Kind <- ?KINDS],
    io:format("| per second | stock | cats_copies | recompiled | own tables in ets | to stock |~n|---|---|---|---|---|---|~n"),
    [begin
         [A, B, C, D] = [median([Rate || {Other, Rate} <- Rows, Other =:= Name]) || Rows <- All],
         Backed = case B of none -> "does not run"; _ -> integer_to_list(B) end,
         io:format("| ~ts | ~b | ~s | ~b | ~b | ~.2f, ~.2f |~n", [Name, A, Backed, C, D, C / A, D / A])
     end || Name <- in_order([Name || {Name, _} <- Stock])],
    ok.

in_order(Names) -> lists:foldl(fun(Name, Known) -> Known ++ [Name || not lists:member(Name, Known)] end, [], Names).

median([]) -> none;
median(Rates) -> lists:nth((length(Rates) + 1) div 2, lists:sort(Rates)).
