%% What scripts/mnesia-bench runs: OTP's benchmarks of Mnesia, and dirty accesses of one process. All tables are in
%% memory, on one node. Each kind of Mnesia has a VM and a directory of its own, with the Mnesia and the benchmarks that
%% belong to it. The VMs take turns.
%%
%%   stock        OTP's Mnesia
%%   cats_copies  OTP's Mnesia, and benchmarks whose tables are cats_copies where they were ram_copies
%%   recompiled   OTP's Mnesia after cats_recompile, and the benchmarks after it
%%   own_in_ets   the same, but Mnesia's own tables stay in ets
-module(mnesia_rates).
-export([build/3, run/4, prepare/1, turn/3, verify/0, table/1]).

-define(KINDS, [stock, cats_copies, recompiled, own_in_ets]).
%% Tables of records of five fields, each with its number of records.
-define(FIVES, [{five, 10000}, {many, 300000}]).
%% Calls of mnesia_meter in one measurement.
-define(CALLS, 200).

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

%% Starts a VM of each kind, has them take turns of so many milliseconds, in so many rounds, and appends the rates to
%% the file `results' in the directory.
-spec run(pos_integer(), pos_integer(), file:filename(), file:filename()) -> ok.
run(Rounds, Milliseconds, Work, Erl) ->
    Peers = [{Kind, start(Kind, Work, Erl)} || Kind <- ?KINDS],
    Rows = [{Kind, peer:call(Peer, ?MODULE, prepare, [Kind], infinity)} || {Kind, Peer} <- Peers],
    Names = proplists:get_value(stock, Rows),
    Rates = [begin
                 io:format(standard_error, "round ~b of ~b: ~ts~n", [Round, Rounds, Name]),
                 {Name, [{Kind, timed(Peer, Kind, Name, Milliseconds)}
                         || {Kind, Peer} <- Peers, lists:member(Name, proplists:get_value(Kind, Rows))]}
             end || Round <- lists:seq(1, Rounds), Name <- Names],
    [begin ok = peer:call(Peer, ?MODULE, verify, [], infinity), peer:stop(Peer) end || {_, Peer} <- Peers],
    file:write_file(filename:join(Work, "results"), [io_lib:format("~p.~n", [Row]) || Row <- Rates], [append]).

start(Kind, Work, Erl) ->
    Paths = case filelib:wildcard(filename:join([Work, Kind, "mnesia", "ebin"])) of
                [Mnesia] -> [Mnesia, filename:join([Work, Kind, "programs", "ebin"])];
                [] -> [filename:join([Work, Kind, "otp", "programs", "ebin"])]
            end,
    Directory = filename:join([Work, Kind, "data"]),
    {ok, Peer, _} = peer:start_link(#{connection => standard_io, exec => Erl,
                                      args => ["-mnesia", "dir", "\"" ++ Directory ++ "\"",
                                               "-pa" | code:get_path() ++ Paths]}),
    Peer.

%% The VM before has gone to sleep when a turn begins.
timed(Peer, Kind, Name, Milliseconds) ->
    timer:sleep(20),
    peer:call(Peer, ?MODULE, turn, [Kind, Name, Milliseconds], infinity).

%% Fills the tables; the names of the benchmarks that this kind has.
-spec prepare(atom()) -> [string()].
prepare(Kind) ->
    ok = mnesia:start(),
    Copies = copies(Kind),
    [{atomic, ok} = mnesia:add_backend_type(cats_copies, cats_mnesia) || Copies =:= cats_copies],
    [begin
         {atomic, ok} = mnesia:create_table(Table, [{Copies, [node()]}, {attributes, [key, a, b, c, d]}]),
         [write(Table, Key) || Key <- lists:seq(1, Records)]
     end || {Table, Records} <- ?FIVES],
    {atomic, ok} = mnesia:create_table(person, [{Copies, [node()]}, {attributes, [name, data, married_to, children]}]),
    _ = mnesia_tpcb:init([{use_running_mnesia, true}, {replica_type, Copies}, {n_branches, 8},
                          {n_accounts_per_branch, 1000}]),
    [_ = bench:populate(options(1000)) || Copies =:= ram_copies],
    [Name || {Name, _} <- rows(Kind)].

copies(cats_copies) -> cats_copies;
copies(_) -> ram_copies.

%% How many a second.
-spec turn(atom(), string(), pos_integer()) -> pos_integer().
turn(Kind, Name, Milliseconds) ->
    {_, Measure} = lists:keyfind(Name, 1, rows(Kind)),
    Measure(Milliseconds).

-spec verify() -> ok.
verify() -> ok = mnesia_tpcb:verify_tabs().

rows(Kind) ->
    Copies = copies(Kind),
    [{"TPC-B transactions, 8 clients", fun(Milliseconds) -> bank(Copies, Milliseconds) end}]
        %% It uses fragments, of which a backend has none.
        ++ [{"`bench` transactions, 8 clients", fun subscribers/1} || Copies =:= ram_copies]
        ++ [{lists:flatten(io_lib:format("dirty ~s, 5 fields, ~b records", [What, Records])),
             fun(Milliseconds) -> rate(fun(Key) -> Do(Table, Key) end, Records, Milliseconds) end}
            || {Table, Records} <- ?FIVES, {What, Do} <- [{"writes", fun write/2}, {"reads", fun read/2}]]
        ++ [{"meter: " ++ Name, fun(Milliseconds) -> meter(Meter, Milliseconds) end}
            || {meter, Name, _, _, _} = Meter <- mnesia_meter:meters(), is_apt(Name, Copies)].

%% Those of mnesia_meter that go through Mnesia. Tables on disk are left out, and calls of ets.
is_apt(Name, Copies) ->
    string:find(Name, "ets:") =:= nomatch
        andalso (Copies =:= ram_copies orelse string:prefix(Name, "ets ") =:= nomatch).

write(Table, Key) -> ok = mnesia:dirty_write({Table, Key, a, Key, <<1, 2, 3>>, "text"}).

read(Table, Key) -> [_] = mnesia:dirty_read(Table, Key).

%% OTP's mnesia_tpcb.
bank(Copies, Milliseconds) ->
    Before = mnesia:system_info(transaction_commits),
    _ = mnesia_tpcb:run([{use_running_mnesia, true}, {replica_type, Copies}, {n_branches, 8},
                         {n_accounts_per_branch, 1000}, {n_drivers_per_node, 8}, {stop_after, Milliseconds},
                         {report_interval, Milliseconds}, {reuse_history_id, true}]),
    (mnesia:system_info(transaction_commits) - Before) * 1000 div Milliseconds.

%% OTP's `bench'.
subscribers(Milliseconds) ->
    Generators = spawn_link(fun() -> bench:generate(options(Milliseconds)) end),
    timer:sleep(Milliseconds div 2),
    Before = mnesia:system_info(transaction_commits),
    timer:sleep(Milliseconds div 2),
    Commits = mnesia:system_info(transaction_commits) - Before,
    Monitor = monitor(process, Generators),
    receive {'DOWN', Monitor, process, Generators, _} -> ok end,
    Commits * 2000 div Milliseconds.

options(Milliseconds) ->
    [{generator_nodes, [node()]}, {table_nodes, [node()]}, {n_generators_per_node, 8},
     {generator_warmup, Milliseconds div 4}, {generator_duration, Milliseconds}, {generator_cooldown, 1},
     {statistics_detail, normal}, {write_lock_type, write}, {n_fragments, 10}, {n_subscribers, 2500}].

%% A meter of OTP's mnesia_meter, by one process.
meter({meter, _, Init, Meter, _}, Milliseconds) ->
    ?CALLS * 1000_000_000 div fastest(fun() -> {atomic, ok} = mnesia_meter:init_records(Init, ?CALLS) end,
                                      fun() -> ok = mnesia_meter:repeat_meter(Meter, ?CALLS) end, Milliseconds).

rate(Do, Records, Milliseconds) ->
    Keys = lists:seq(1, Records),
    Records * 1000_000_000 div fastest(fun() -> ok end, fun() -> lists:foreach(Do, Keys) end, Milliseconds).

%% The shortest time of Do in nanoseconds, as others may use the processors. Prepare runs before each.
fastest(Prepare, Do, Milliseconds) ->
    fastest(Prepare, Do, erlang:monotonic_time(nanosecond) + Milliseconds * 1000_000, infinity).

fastest(Prepare, Do, End, Before) ->
    Prepare(),
    Start = erlang:monotonic_time(nanosecond),
    Do(),
    Now = erlang:monotonic_time(nanosecond),
    Least = min(Before, Now - Start),
    case Now < End of
        true -> fastest(Prepare, Do, End, Least);
        false -> Least
    end.

%% Prints the medians of the rates, and of the ratios to stock within a round with the lowest and highest.
-spec table(file:filename()) -> ok.
table(Work) ->
    {ok, Rows} = file:consult(filename:join(Work, "results")),
    io:format("| per second | stock | cats_copies | recompiled | own tables in ets | recompiled to stock "
              "| own tables in ets, to stock |~n"
              "|---|---|---|---|---|---|---|~n"),
    [begin
         Rounds = [Rates || {Other, Rates} <- Rows, Other =:= Name],
         Medians = [median([Rate || Rates <- Rounds, {Of, Rate} <- Rates, Of =:= Kind]) || Kind <- ?KINDS],
         Ratios =
             [lists:sort([proplists:get_value(Kind, Rates) / Stock
                          || Rates <- Rounds, {stock, Stock} <- Rates, Stock > 0])
              || Kind <- [recompiled, own_in_ets]],
         io:format("| ~ts |~ts~n",
                   [Name, [[" ", Cell, " |"]
                           || Cell <- lists:map(fun shown/1, Medians) ++ lists:map(fun range/1, Ratios)]])
     end || Name <- in_order([Name || {Name, _} <- Rows])],
    ok.

shown(none) -> "does not run";
shown(Rate) -> integer_to_list(Rate).

range([]) -> "";
range(Ratios) -> io_lib:format("**~.2f** (~.2f to ~.2f)", [median(Ratios), hd(Ratios), lists:last(Ratios)]).

in_order(Names) -> lists:foldl(fun(Name, Known) -> Known ++ [Name || not lists:member(Name, Known)] end, [], Names).

median([]) -> none;
median(Rates) -> lists:nth((length(Rates) + 1) div 2, lists:sort(Rates)).
