%% How the time of each function grows with what it takes: 10, 1000 and 100,000 of it. `bench/growth' makes a table of
%% the results and names
%% what grows faster than it should, which is the axis `grows' of a row.
%%
%% Times are those of one call, without a look at how far they vary: what grows too fast differs by powers of ten.
-module(bench_growth).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

-define(SIZES, [10, 1000, 100_000]).
%% A call is repeated for so many nanoseconds, and this so many times. The least time counts.
-define(LEAST, 2_000_000).
-define(TIMES, 3).
%% A call that takes so many nanoseconds is made once.
-define(LONG, 300_000_000).
%% Milliseconds after which a call, with what makes its argument, is given up.
-define(LIMIT, 20_000).

%% A function: its name, how it grows, what makes its argument, and the call. `again': the call leaves the argument as
%% it was. `once': each
%% call needs a new one. `own': it is not in ets.
-type work() :: {Name :: string(), Grows :: string(), again | once, any | own, fun((pos_integer()) -> S),
    fun((S, pos_integer()) -> term())}.

about() ->
    #{title => "How the time of a call grows", source => "how far cats goes: ours", unit => "us", better => lower,
        x => number,
      scale => log, panels => [what]}.

points(_Size) ->
    [#{axes => [{what, What}, {number, Number}], subjects => subjects(What, Number), seconds => 5 + Number / 5000}
     || What <- ["objects of a set", "objects of an ordered_set", "objects of a key", "snapshots and caches",
          "transactions", "depth",
               "tables", "processes", "events"],
        Number <- ?SIZES].

%% A bag of ets takes a minute to get so many objects of one key.
subjects("objects of a key", 100_000) -> [{"cats", cats, []}];
subjects(_, _) -> bench_tables:subjects(plain).

measure(_Size, #{what := What, number := Number}, {_, Tables, _}, _Seed) ->
    [{[{call, Name}, {grows, Grows}], Time / 1000}
     || {Name, Grows, How, Where, Setup, Call} <- works(What, Tables), Where =:= any orelse Tables =:= cats,
        Time <- time(How, Setup, Call, Number)].

%% Nanoseconds of a call, or those after which it was given up. Nothing if it fails, as where a release of OTP lacks it.
time(How, Setup, Call, Number) ->
    {Pid, Monitor} = spawn_monitor(fun() -> exit(try {time, best(How, Setup, Call,
         Number)} catch _:_ -> failed end) end),
    receive
        {'DOWN', Monitor, process, Pid, {time, Time}} -> [Time];
        {'DOWN', Monitor, process, Pid, _} -> []
    after ?LIMIT ->
            exit(Pid, kill),
            receive {'DOWN', Monitor, process, Pid, _} -> [1.0e6 * ?LIMIT] end
    end.

best(again, Setup, Call, Number) ->
    Argument = Setup(Number),
    best_of(fun() -> loops(1, Call, Argument) end);
best(once, Setup, Call, Number) ->
    best_of(fun() -> Argument = Setup(Number), erlang:garbage_collect(), run(1, Call, Argument) end).

best_of(Measure) ->
    case Measure() of
        Long when Long > ?LONG -> Long;
        First -> lists:min([First | [Measure() || _ <- lists:seq(2, ?TIMES)]])
    end.

loops(Times, Call, Argument) ->
    case run(Times, Call, Argument) of
        Took when Took < ?LEAST -> loops(4 * Times, Call, Argument);
        Took -> Took / Times
    end.

run(Times, Call, Argument) ->
    Start = erlang:monotonic_time(nanosecond),
    repeat(Times, Call, Argument),
    erlang:monotonic_time(nanosecond) - Start.

repeat(0, _Call, _Argument) -> ok;
repeat(Left, Call, Argument) -> _ = Call(Argument, Left), repeat(Left - 1, Call, Argument).

%%------------------------------------------------------------------------------------------------------------
%% What is measured

-spec works(string(), ets | cats) -> [work()].
works("objects of a set", T) -> one(T, set) ++ whole(T, set) ++ files(T, set);
works("objects of an ordered_set", T) -> one(T, ordered_set) ++ whole(T, ordered_set) ++ order() ++ files(T,
    ordered_set);
works("objects of a key", T) -> key(T);
works("snapshots and caches", _) -> snapshots() ++ caches();
works("transactions", _) -> transactions();
works("depth", T) -> depth(T);
works("tables", T) -> tables(T);
works("processes", _) -> waiting();
works("events", _) -> events().

filled(T, Type, N) -> filled(T, Type, [], N).

filled(T, Type, Options, N) ->
    Table = T:new(table, [Type, public | Options]),
    true = T:insert(Table, pairs(N)),
    {Table, N}.

pairs(N) -> [{Key, Key} || Key <- lists:seq(1, N)].

%% Some key of the table.
key(N, I) -> I * 7919 rem N + 1.

%% Calls with one key, or few.
one(T, Type) ->
    Filled = fun(N) -> filled(T, Type, N) end,
    On = fun(Call) -> fun({Table, N}, I) -> Call(Table, key(N, I)) end end,
    Few = fun(Call) -> fun({Table, N}, I) -> Call(Table, [key(N, I + J) || J <- lists:seq(1, 5)]) end end,
    [{Name, "1", again, any, Filled, On(Call)}
     || {Name, Call} <-
            [{"lookup", fun(A, K) -> T:lookup(A, K) end}, {"member", fun(A, K) -> T:member(A, K) end},
             {"lookup_element", fun(A, K) -> T:lookup_element(A, K, 2) end}, {"insert",
                  fun(A, K) -> T:insert(A, {K, K}) end},
             {"insert_new", fun(A, K) -> T:insert_new(A, {K, K}) end},
             {"delete and insert", fun(A, K) -> T:delete(A, K), T:insert(A, {K, K}) end},
             {"take and insert", fun(A, K) -> T:take(A, K), T:insert(A, {K, K}) end},
             {"delete_object and insert", fun(A, K) -> T:delete_object(A, {K, K}), T:insert(A, {K, K}) end},
             {"update_counter", fun(A, K) -> T:update_counter(A, K, {2, 0}) end},
             {"update_element", fun(A, K) -> T:update_element(A, K, {2, K}) end},
             {"first", fun(A, _) -> T:first(A) end}, {"last", fun(A, _) -> T:last(A) end},
             {"next", fun(A, K) -> T:next(A, K) end}, {"prev", fun(A, K) -> T:prev(A, K) end},
             {"first_lookup", fun(A, _) -> T:first_lookup(A) end}, {"last_lookup", fun(A, _) -> T:last_lookup(A) end},
             {"next_lookup", fun(A, K) -> T:next_lookup(A, K) end}, {"prev_lookup",
                  fun(A, K) -> T:prev_lookup(A, K) end},
             {"select of a key", fun(A, K) -> T:select(A, [{{K, '_'}, [], ['$_']}]) end},
             {"match_object of a key", fun(A, K) -> T:match_object(A, {K, '_'}) end},
             {"select_count of a key", fun(A, K) -> T:select_count(A, [{{K, '_'}, [], [true]}]) end},
             {"select_replace of a key", fun(A, K) -> T:select_replace(A, [{{K, '_'}, [], [{{K, K}}]}]) end},
             {"select of 10", fun(A, _) -> T:select(A, [{'_', [], ['$_']}], 10) end},
             {"safe_fixtable", fun(A, _) -> T:safe_fixtable(A, true), T:safe_fixtable(A, false) end},
             {"info size", fun(A, _) -> T:info(A, size) end}, {"info memory", fun(A, _) -> T:info(A, memory) end},
             {"info", fun(A, _) -> T:info(A) end}]]
        %% The slot of an ordered_set of ets is searched from its first object on,
        %% unless the slots are asked for in turn.
        ++ [{"slot", "1", again, case Type of set -> any; ordered_set -> own end, Filled,
             On(fun(A, K) -> slot(T, A, K) end)}]
        ++ [{Name, "1", again, own, Filled, On(Call)}
            || {Name, Call} <-
                   [{"add", fun(A, K) -> cats:add(A, K, 0) end}, {"update", fun(A, K) -> cats:update(A, K,
                        fun(O) -> O end) end},
                    {"replace", fun(A, K) -> cats:replace(A, {K, K}, {K, K}) end},
                    {"lookup_elements", fun(A, K) -> cats:lookup_elements(A, K, [1, 2]) end},
                    {"stats", fun(A, _) -> cats:stats(A) end}, {"setopts",
                         fun(A, _) -> cats:setopts(A, {heir, none}) end}]]
        ++ [{Name, "1", again, own, Filled, Few(Call)}
            || {Name, Call} <-
                   [{"lookup_many of 5", fun(A, Ks) -> cats:lookup_many(A, Ks) end},
                    {"insert_many of 5", fun(A, Ks) -> cats:insert_many(A, [{K, K} || K <- Ks]) end},
                    {"take_many of 5 and insert",
                         fun(A, Ks) -> cats:take_many(A, Ks), cats:insert(A, [{K, K} || K <- Ks]) end},
                    {"delete_many of 5 and insert",
                         fun(A, Ks) -> cats:delete_many(A, Ks), cats:insert(A, [{K, K} || K <- Ks]) end}]].

%% Calls that go over the whole table.
whole(T, Type) ->
    Filled = fun(N) -> filled(T, Type, N) end,
    Empty = fun(N) -> {T:new(table, [Type, public]), pairs(N)} end,
    Log = case Type of set -> "n"; ordered_set -> "n log n" end,
    [{Name, "n", again, any, Filled, fun({Table, _}, _) -> Call(Table) end}
     || {Name, Call} <-
            [{"tab2list", fun(A) -> T:tab2list(A) end}, {"foldl", fun(A) -> T:foldl(fun(_, S) -> S + 1 end, 0, A) end},
             {"foldr", fun(A) -> T:foldr(fun(_, S) -> S + 1 end, 0, A) end},
             {"walk by next", fun(A) -> walk(T, next, A, T:first(A)) end}, {"walk by prev",
                  fun(A) -> walk(T, prev, A, T:last(A)) end},
             {"match of all", fun(A) -> T:match(A, '$1') end}, {"match_object of all",
                  fun(A) -> T:match_object(A, '_') end},
             {"select of all", fun(A) -> T:select(A, [{'_', [], ['$_']}]) end},
             {"select_reverse of all", fun(A) -> T:select_reverse(A, [{'_', [], ['$_']}]) end},
             {"select of all by 100", fun(A) -> chunks(T, T:select(A, [{'_', [], ['$_']}], 100)) end},
             {"select_count of all", fun(A) -> T:select_count(A, [{'_', [], [true]}]) end},
             {"select_replace of all", fun(A) -> T:select_replace(A, [{{'$1', '_'}, [], [{{'$1', 0}}]}]) end},
             {"table by qlc", fun(A) -> qlc:e(T:table(A)) end}]]
        ++ [{Name, Grows, once, any, Filled, fun({Table, _}, _) -> Call(Table) end}
            || {Name, Grows, Call} <-
                   [{"select_delete of all", "n", fun(A) -> T:select_delete(A, [{'_', [], [true]}]) end},
                    {"match_delete of all", "n", fun(A) -> T:match_delete(A, '_') end},
                    {"delete_all_objects", "n", fun(A) -> T:delete_all_objects(A) end}, {"delete", "n",
                         fun(A) -> T:delete(A) end}]]
        ++ [{Name, Log, once, any, Empty, Call}
            || {Name, Call} <-
                   [{"insert of a list", fun({A, L}, _) -> T:insert(A, L) end}, {"insert_new of a list",
                        fun({A, L}, _) -> T:insert_new(A, L) end},
                    {"insert one by one", fun({A, L}, _) -> [T:insert(A, O) || O <- L] end},
                    {"init_table", fun({A, L}, _) -> T:init_table(A, init(L)) end}]]
        ++ [{Name, Log, once, own, Empty, Call}
            || {Name, Call} <-
                   [{"insert_many", fun({A, L}, _) -> cats:insert_many(A, L) end},
                    {"from_ets", fun({A, L}, _) -> E = ets:new(e, []), ets:insert(E, L), cats:from_ets(A, E),
                         ets:delete(E) end}]]
        ++ [{"lookup_many of all", Log, again, own,
             fun(N) -> {Table, _} = filled(T, Type, N), {Table, lists:seq(1, N)} end,
             fun({A, Ks}, _) -> cats:lookup_many(A, Ks) end},
            {"delete_many of all", Log, once, own,
                 fun(N) -> {Table, _} = filled(T, Type, N), {Table, lists:seq(1, N)} end,
             fun({A, Ks}, _) -> cats:delete_many(A, Ks) end},
            {"to_ets", "n", again, own, Filled,
                 fun({A, _}, _) -> E = ets:new(e, []), cats:to_ets(A, E), ets:delete(E) end}].

walk(_, _, _, '$end_of_table') -> ok;
walk(T, next, Table, Key) -> walk(T, next, Table, T:next(Table, Key));
walk(T, prev, Table, Key) -> walk(T, prev, Table, T:prev(Table, Key)).

chunks(_, '$end_of_table') -> ok;
chunks(T, {_, Continuation}) -> chunks(T, T:select(Continuation)).

init([]) -> fun(_) -> end_of_input end;
init(Objects) -> fun(read) -> {Objects, init([])}; (close) -> ok end.

order() ->
    Filled = fun(N) -> filled(cats, ordered_set, N) end,
    [{Name, "1", again, own, Filled, fun({Table, N}, I) -> Call(Table, key(N, I)) end}
     || {Name, Call} <- [{"rank", fun(A, K) -> cats:rank(A, K) end}, {"nth", fun(A, K) -> cats:nth(A, K - 1) end},
                         {"count", fun(A, K) -> cats:count(A, #{from => K div 2, to => K}) end},
                         {"range of 5", fun(A, K) -> cats:range(A, K, K + 4, infinity) end}]].

files(T, Type) ->
    File = fun() -> filename:join([os:getenv("TMPDIR", "/tmp"), "bench_growth." ++ os:getpid()]) end,
    Written = fun(N) -> {Table, _} = filled(T, Type, N), ok = T:tab2file(Table, File()), T:delete(Table) end,
    [{"tab2file", "n", again, any, fun(N) -> filled(T, Type, N) end, fun({A, _}, _) -> ok = T:tab2file(A, File()) end},
     {"file2tab", "n log n", again, any, Written, fun(_, _) -> {ok, A} = T:file2tab(File()), T:delete(A) end},
     {"tabfile_info", "1", again, any, Written, fun(_, _) -> {ok, _} = T:tabfile_info(File()) end}].

%% A bag whose objects have one key.
key(T) ->
    Filled = fun(N) -> Table = T:new(table, [bag, public]), T:insert(Table, [{key, I} || I <- lists:seq(1, N)]),
        {Table, N} end,
    [{Name, Grows, again, any, Filled, fun({A, N}, I) -> Call(A, I rem N + 1) end}
     || {Name, Grows, Call} <-
            [{"lookup", "n", fun(A, _) -> T:lookup(A, key) end}, {"member", "1", fun(A, _) -> T:member(A, key) end},
             {"insert of an object that is there", "n", fun(A, I) -> T:insert(A, {key, I}) end},
             {"delete_object and insert", "n", fun(A, I) -> T:delete_object(A, {key, I}), T:insert(A, {key, I}) end},
             {"match_object of one", "n", fun(A, I) -> T:match_object(A, {key, I}) end},
             {"select_count", "n", fun(A, _) -> T:select_count(A, [{{key, '_'}, [], [true]}]) end},
             {"tab2list", "n", fun(A, _) -> T:tab2list(A) end}, {"foldl", "n",
                  fun(A, _) -> T:foldl(fun(_, S) -> S + 1 end, 0, A) end},
             {"select of all by 100", "n", fun(A, _) -> chunks(T, T:select(A, [{'_', [], ['$_']}], 100)) end}]]
        ++ [{Name, "n", once, any, Filled, fun({A, _}, _) -> Call(A) end}
            || {Name, Call} <- [{"take", fun(A) -> T:take(A, key) end}, {"delete of the key",
                 fun(A) -> T:delete(A, key) end},
                                {"delete of the table", fun(A) -> T:delete(A) end}]]
        ++ [{"insert one by one", "n", once, any, fun(N) -> {T:new(table, [bag, public]), N} end,
             fun({A, N}, _) -> [T:insert(A, {key, I}) || I <- lists:seq(1, N)] end}].

%% Half of the keys have changed since the snapshot.
snapshots() ->
    Taken = fun(Type) ->
                    fun(N) ->
                            {Table, N} = filled(cats, Type, N),
                            Snapshot = cats:snapshot(Table),
                            [cats:insert(Table, {Key, changed}) || Key <- lists:seq(1, N, 2)],
                            _ = try cats:nth(Snapshot, N) catch error:badarg -> none end,
                            {Snapshot, N}
                    end
            end,
    [{Name ++ " of a snapshot of a " ++ atom_to_list(Type), Grows, again, own, Taken(Type),
         fun({A, N}, I) -> Call(A, key(N, I)) end}
     || Type <- [set, ordered_set],
        {Name, Grows, Call} <-
            [{"lookup", "1", fun(A, K) -> cats:lookup(A, K) end}, {"next", "1", fun(A, K) -> cats:next(A, K) end},
             {"slot", "1", fun(A, K) -> slot(cats, A, K) end}, {"info memory", "1",
                  fun(A, _) -> cats:info(A, memory) end},
             {"foldl", "n", fun(A, _) -> cats:foldl(fun(_, S) -> S + 1 end, 0, A) end},
             {"tab2list", "n", fun(A, _) -> cats:tab2list(A) end}, {"walk by next", "n",
                  fun(A, _) -> walk(cats, next, A, cats:first(A)) end}]]
        ++ [{Name ++ " of a snapshot of an ordered_set", "1", again, own, Taken(ordered_set),
             fun({A, N}, I) -> Call(A, key(N, I)) end}
            || {Name, Call} <- [{"nth", fun(A, K) -> cats:nth(A, K - 1) end}, {"rank",
                 fun(A, K) -> cats:rank(A, K) end},
                                {"count", fun(A, K) -> cats:count(A, #{from => K div 2, to => K}) end}]]
        ++ [{"snapshot of a table: " ++ atom_to_list(Type), "1", again, own,
             fun(N) -> filled(cats, Type, N) end, fun({A, _}, _) -> cats:snapshot(A) end}
            || Type <- [set, ordered_set]].

caches() ->
    Cache = fun(N) -> filled(cats, set, [{ttl, 3600000}, {limit, {objects, 2 * N}}], N) end,
    Full = fun(N) -> filled(cats, set, [{limit, {objects, N}}], N) end,
    Ended = fun(N) -> Table = cats:new(table, [set, public, {ttl, 1}]), cats:insert(Table, pairs(N)),
        timer:sleep(2), Table end,
    [{Name, "1", again, own, Cache, fun({A, N}, I) -> Call(A, key(N, I)) end}
     || {Name, Call} <- [{"lookup with ttl and limit", fun(A, K) -> cats:lookup(A, K) end},
                         {"insert with ttl and limit", fun(A, K) -> cats:insert(A, {K, K}) end},
                         {"fetch that hits", fun(A, K) -> cats:fetch(A, K, fun(_) -> {K, K} end) end},
                         {"touch", fun(A, K) -> cats:touch(A, K, 3600000) end}, {"ttl",
                              fun(A, K) -> cats:ttl(A, K) end},
                         {"info size with ttl", fun(A, _) -> cats:info(A, size) end}]]
        ++ [{"insert that evicts", "1", again, own, Full, fun({A, N}, I) -> cats:insert(A, {{N, I}, I}) end},
            {"info size after all have expired", "n", once, own, Ended, fun(A, _) -> cats:info(A, size) end},
            {"tab2list after all have expired", "n", once, own, Ended, fun(A, _) -> cats:tab2list(A) end}].

transactions() ->
    Filled = fun(N) -> filled(cats, set, N) end,
    Ordered = fun(N) -> filled(cats, ordered_set, N) end,
    In = fun(Body) -> fun({A, N}, I) -> {atomic, _} = cats_transaction:run(fun() -> Body(A, N, I) end) end end,
    [{"read and insert of one", "1", again, own, Filled,
      In(fun(A, N, I) -> [O] = cats_transaction:lookup(A, key(N, I)), cats_transaction:insert(A, O) end)},
     {"next", "1", again, own, Ordered, In(fun(A, N, I) -> cats_transaction:next(A, key(N, I)) end)},
     {"reads of all", "n log n", again, own, Filled, In(fun(A, N, _) -> [cats_transaction:lookup(A,
          K) || K <- lists:seq(1, N)], ok end)},
     {"inserts of all", "n log n", again, own, Filled, In(fun(A, N, _) -> [cats_transaction:insert(A, {K,
          K}) || K <- lists:seq(1, N)], ok end)},
     {"insert of a list of all", "n log n", again, own, Filled, In(fun(A, N, _) -> cats_transaction:insert(A,
          pairs(N)) end)},
     {"inserts of all in an ordered_set", "n log n", again, own, Ordered,
      In(fun(A, N, _) -> [cats_transaction:insert(A, {K, K}) || K <- lists:seq(1, N)], ok end)},
     {"deletes of all", "n log n", once, own, Filled, In(fun(A, N, _) -> [cats_transaction:delete(A,
          K) || K <- lists:seq(1, N)], ok end)},
     {"range of all", "n log n", again, own, Ordered, In(fun(A, _, _) -> cats_transaction:range(A, #{}, infinity) end)},
     {"walk by next over all", "n log n", again, own, Ordered,
      In(fun(A, _, _) -> walk(cats_transaction, next, A, cats_transaction:first(A)) end)},
     {"select of all", "n log n", again, own, Ordered, In(fun(A, _, _) -> cats_transaction:select(A, [{'_', [],
          ['$_']}]) end)},
     {"inserts of all and select of all", "n log n", again, own, Ordered,
      In(fun(A, N, _) -> [cats_transaction:insert(A, {K, K}) || K <- lists:seq(1, N)], cats_transaction:select(A,
          [{'_', [], ['$_']}]) end)}].

%% Terms and match specifications of this depth.
depth(T) ->
    Table = fun(Term) -> A = T:new(table, [public]), T:insert(A, {key, Term}), {A, Term} end,
    Lists = fun(N) -> Table(lists:foldl(fun(_, Term) -> [Term] end, [], lists:seq(1, N))) end,
    Tuples = fun(N) -> Table(lists:foldl(fun(_, Term) -> {Term, a} end, a, lists:seq(1, N))) end,
    Maps = fun(N) -> Table(lists:foldl(fun(_, Term) -> #{a => Term} end, a, lists:seq(1, N))) end,
    Or = fun(N) -> {A, _} = Table(a), {A, [{{'$1', '_'}, [lists:foldl(fun(I, C) -> {'orelse', {'==', '$1', I},
        C} end, false, lists:seq(1, N))], [true]}]} end,
    Clauses = fun(N) -> {A, _} = Table(a), {A, [{{I, '_'}, [], [true]} || I <- lists:seq(1, N)]} end,
    Body = fun(N) -> {A, _} = Table(a), {A, [{'_', [], [lists:foldl(fun(_, B) -> {{B}} end, a, lists:seq(1, N))]}]} end,
    [{What ++ " of nested " ++ Of, "n", again, any, Make, Call}
     || {Of, Make} <- [{"lists", Lists}, {"tuples", Tuples}, {"maps", Maps}],
        {What, Call} <- [{"insert", fun({A, Term}, _) -> T:insert(A, {key, Term}) end}, {"lookup",
             fun({A, _}, _) -> T:lookup(A, key) end},
                         {"insert by a key", fun({A, Term}, _) -> T:insert(A, {Term}) end},
                         {"match_object", fun({A, Term}, _) -> T:match_object(A, {key, Term}) end}]]
        ++ [{"select_count by a chain of orelse", "n log n", again, any, Or,
             fun({A, Spec}, _) -> T:select_count(A, Spec) end},
            {"match_spec_compile of a chain of orelse", "n log n", again, any, Or,
                 fun({_, Spec}, _) -> T:match_spec_compile(Spec) end},
            {"select_count by many clauses", "n log n", again, any, Clauses,
                 fun({A, Spec}, _) -> T:select_count(A, Spec) end},
            {"select with a nested body", "n log n", again, any, Body, fun({A, Spec}, _) -> T:select(A, Spec) end}].

%% So many tables of one owner.
tables(T) ->
    Many = fun(N) -> [T:new(table, [public]) || _ <- lists:seq(1, N)] end,
    Owner = fun(N) ->
                    Self = self(),
                    {Pid, Monitor} = spawn_monitor(fun() -> Many(N), Self ! made, receive stop -> ok end end),
                    receive made -> {Pid, Monitor} end
            end,
    [{"new and delete beside others", "1", again, any, Many, fun(_, _) -> T:delete(T:new(table, [public])) end},
     {"new and delete by name beside others", "1", again, any, Many,
          fun(_, _) -> T:delete(T:new(bench_growth, [named_table, public])) end},
     {"all", "n", again, any, Many, fun(_, _) -> T:all() end},
     {"end of the owner", "n", once, any, Owner,
          fun({Pid, Monitor}, _) -> Pid ! stop, receive {'DOWN', Monitor, _, _, _} -> ok end end},
     {"stats of all tables", "n log n", again, own, Many, fun(_, _) -> cats:stats() end},
     {"memory of all tables", "n", again, own, Many, fun(_, _) -> cats:memory() end},
     {"snapshot of all tables", "n log n", again, own, Many, fun(Tables, _) -> cats:snapshot(Tables) end},
     {"a transaction on 10 of them", "1", again, own, Many,
      fun(Tables, _) -> {atomic, _} = cats_transaction:run(fun() -> [cats_transaction:insert(A, {1,
          1}) || A <- lists:sublist(Tables, 10)], ok end) end},
     {"lookup in one of them", "1", again, any, Many, fun([A | _], I) -> T:lookup(A, I) end}].

%% So many processes that wait for one key or table.
waiting() ->
    Cache = fun(N) -> {cats:new(table, [public, {ttl, 3600000}]), N} end,
    All = fun(N, Do) ->
                  Ends = [spawn_monitor(Do) || _ <- lists:seq(1, N)],
                  [receive {'DOWN', Monitor, process, Pid, Reason} -> normal = Reason end || {Pid, Monitor} <- Ends]
          end,
    [{"start and end without a call", "n", once, own, Cache, fun({_, N}, _) -> All(N, fun() -> ok end) end},
     {"fetch of one key that is missing", "n", once, own, Cache,
      fun({A, N}, _) -> All(N, fun() -> {key, 1} = cats:fetch(A, key, fun(_) -> timer:sleep(1), {key, 1} end) end) end},
     {"update_counter of one key", "n", once, own, Cache, fun({A, N}, _) -> All(N,
          fun() -> cats:update_counter(A, key, 1, {key, 0}) end) end},
     {"update of one key", "n", once, own, Cache,
      fun({A, N}, _) -> cats:insert(A, {key, 0}), All(N, fun() -> cats:update(A, key,
          fun({K, V}) -> {K, V + 1} end) end) end},
     {"a transaction on one key", "n", once, own, fun(N) -> {cats:new(table, [public]), N} end,
      fun({A, N}, _) ->
              cats:insert(A, {key, 0}),
              All(N, fun() ->
                             cats_transaction:run(fun() -> [{K, V}] = cats_transaction:lookup(A, key),
                                 cats_transaction:insert(A, {K, V + 1}) end)
                     end)
      end}].

%% So many events of a trace, of snapshots that have come and gone, and of removals that a process is told of.
events() ->
    Traced = fun(N) ->
                     {ok, Trace} = cats_trace:start(#{ring => 1000000, seconds => 600, events => [tables]}),
                     [cats:delete(cats:new(table, [])) || _ <- lists:seq(1, N div 2)],
                     Trace
             end,
    File = fun() -> filename:join([os:getenv("TMPDIR", "/tmp"), "bench_growth_trace." ++ os:getpid()]) end,
    Told = fun(N) ->
                   Table = cats:new(table, [public, {limit, {objects, 1}}, {notify, self(), [{queue, N}, {batch, N}]}]),
                   cats:insert_many(Table, pairs(N)),
                   Table
           end,
    [{"stop of a trace", "n log n", once, own, Traced, fun(Trace, _) -> {ok, _} = cats_trace:stop(Trace, File()) end},
     {"removed", "n", once, own, Told, fun(Table, _) -> cats:removed(Table) end},
     {"insert beside living snapshots", "1", again, own,
      fun(N) -> {A, _} = filled(cats, set, 100), {A, [cats:snapshot(A) || _ <- lists:seq(1, min(N, 1000))]} end,
      fun({A, _}, I) -> cats:insert(A, {I rem 100, I}) end},
     {"insert after snapshots that are gone", "1", again, own,
      fun(N) -> {A, _} = filled(cats, set, 100), [cats:delete(cats:snapshot(A)) || _ <- lists:seq(1, N)], A end,
      fun(A, I) -> cats:insert(A, {I rem 100, I}) end}].

%% The slot of a key, which a `set' with fewer slots than objects lacks.
slot(Tables, Table, Key) ->
    try Tables:slot(Table, Key - 1) catch error:badarg -> none end.
