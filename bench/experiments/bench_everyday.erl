%% What programs call every day: small tables in the processor's caches, tables with names, and keys and values of
%% all shapes. The calls, keys and values are those of the programs that `about' names.
-module(bench_everyday).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4, rows/0]).

-define(LARGE, 100_000).
-define(SIZES, [10, 100, 1000, 10_000, ?LARGE]).

about() ->
    #{title => "Calls of everyday programs",
      source => "what Mnesia, Registry of Elixir, Phoenix.PubSub, Cachex, gproc, ranch, telemetry, prometheus.erl, "
                "RabbitMQ and ejabberd call",
      unit => "ns", better => lower, x => call, scale => category, panels => [group, workers]}.

points(Size) ->
    [#{axes => [{group, Group}, {call, Call}], subjects => subjects(Size), seconds => seconds(Size)}
     || {Group, Calls} <- rows(), {Call, #{objects := Objects}} <- Calls,
        %% The rows of shapes are many, and alike.
        Size =/= quick orelse Group =/= shapes orelse Objects =:= hd(?SIZES)].

%% For two workers, ets has the concurrency options that those programs choose, too. The best of both counts.
subjects(Size) ->
    case lists:max(bench_workers:counts()) of
        Most when Most > 1, Size =/= quick -> [bench_tables:ets(""), bench_tables:ets("r w"), {"cats", cats, []}];
        _ -> bench_tables:subjects(plain)
    end.

seconds(quick) -> 0.15;
seconds(default) -> 0.7;
seconds(full) -> 4.

%% Number of loops, and the milliseconds of each.
loops(quick) -> {2, 2};
loops(default) -> {10, 2};
loops(full) -> {20, 20}.

measure(Size, #{group := Group, call := Call}, {_, _, Options} = Subject, Seed) ->
    {Group, Calls} = lists:keyfind(Group, 1, rows()),
    {Call, Row} = lists:keyfind(Call, 1, Calls),
    bench_data:share(checked, fun() -> bench_calls:check(Row) end),
    Workers = [Number || Number <- bench_workers:counts(), Number > 1 orelse Options =:= []],
    [{[{workers, Number}], Figure}
     || {Number, Figure} <- bench_calls:nanoseconds(Row, Subject, Workers, loops(Size), Seed)].

%%--------------------------------------------------------------------------------------------------

%% @doc All rows, by group: a name and the calls.
-spec rows() -> [{Group :: atom(), [{Call :: string(), bench_calls:calls()}]}].
rows() ->
    [{values, values()}, {shapes, shapes()}, {updates, updates()}, {keys, keys()}, {named, named()}, {bags, bags()},
     {sets, sets()}, {ordered, ordered()}].

%% Lookup and insertion over an object that is there. Caches (Cachex), sessions (ejabberd), queues (RabbitMQ),
%% configuration.
values() ->
    [{lists:concat([Calls, " of ", Text]),
      row(Calls, [set], Objects, Key, fun(K, N) -> {K, value(Value, N)} end,
          case Calls of
              lookup -> fun itself/2;
              insert -> fun(K, N) -> {K, value(Value, N + 1)} end
          end)}
     || {Text, Objects, Key, Value} <-
            [{"a pair among 10", 10, integer, integer}, {"a pair among 1000", 1000, integer, integer},
             {"a pair among 100 000", ?LARGE, integer, integer},
             {"a map of 5 pairs", 1000, integer, {map, 5}}, {"a map of 40 pairs", 1000, integer, {map, 40}},
             {"a map of 200 pairs", 1000, integer, {map, 200}},
             {"a fun", 1000, integer, function}, {"a binary of 20 bytes", 1000, integer, {binary, 20}},
             {"a binary of 200 bytes", 1000, integer, {binary, 200}},
             {"a binary of 4096 bytes", 1000, integer, {binary, 4096}},
             {"a session", 1000, token, session},
             {"a session among 100 000", ?LARGE, token, session}],
        Calls <- [lookup, insert]]
        ++
    [{"lookup of a record of 10", row(lookup, [set], 1000, binary, fun record/2, fun itself/2)},
     {"insert of a record of 10",
      row(insert, [set], 1000, binary, fun record/2, fun(K, N) -> record(K, N + 1) end)},
     {"lookup of a cache entry among 100 000",
      row(lookup, [set], ?LARGE, binary, fun cached/2, fun itself/2, [{keypos, 2}])},
     {"insert of a cache entry among 100 000",
      row(insert, [set], ?LARGE, binary, fun cached/2, fun(K, N) -> cached(K, N + 1) end, [{keypos, 2}])}].

%% What programs of their own keep, in tables of all sizes: sessions, nested records, and the parts of both.
shapes() ->
    [{lists:concat([Calls, " of ", Text, " among ", Objects]),
      row(Calls, [set], Objects, Key, fun(K, N) -> {K, value(Value, N)} end,
          case Calls of
              lookup -> fun itself/2;
              insert -> fun(K, N) -> {K, value(Value, N + 1)} end
          end)}
     || {Text, Key, Value} <-
            [{"a tuple of 24", integer, {tuple, 24}}, {"a nested record", integer, nested},
             {"a session as a map", token, session_map}, {"six nested tuples", integer, {nested, 6}},
             {"a list of 20", integer, {list, 20}}, {"a map of 7", integer, {map, 7}},
             {"three short binaries", integer, {binaries, 3}}],
        Objects <- ?SIZES, Calls <- [lookup, insert]].

%% Counters (RabbitMQ, prometheus.erl), caches that renew an entry's time (Cachex), states.
updates() ->
    [{"update_element with an integer",
      row(update_element, [set], 1000, integer, fun record/2, with(fun(N) -> {3, N} end))},
     {"update_element with a float",
      row(update_element, [set], 1000, metric, fun gauge/2, with(fun(N) -> {2, N / 7} end))},
     {"update_element with a binary",
      row(update_element, [set], 1000, integer, fun record/2, with(fun(N) -> {3, value({binary, 20}, N)} end))},
     {"update_element of two elements",
      row(update_element, [set], 1000, integer, fun record/2, with(fun(N) -> [{3, N}, {4, active}] end))},
     {"update_element of an integer and a binary",
      row(update_element, [set], 1000, integer, fun record/2,
          with(fun(N) -> [{3, N}, {4, value({binary, 20}, N)}] end))},
     {"update_element of a cache entry's time among 100 000",
      row(update_element, [set], ?LARGE, binary, fun cached/2,
          with(fun(N) -> {4, 1_700_000_000_000 + N} end), [{keypos, 2}])},
     {"update_counter", row(update_counter, [set], 1000, integer, fun pair/2, with(fun(_) -> 1 end))},
     {"update_counter among 10", row(update_counter, [set], 10, atom, fun pair/2, with(fun(_) -> 1 end))},
     {"update_counter among 100 000",
      row(update_counter, [set], ?LARGE, binary, fun pair/2, with(fun(_) -> 1 end))},
     {"update_counter of two counters",
      row(update_counter, [set], 1000, integer, fun counters/2, with(fun(_) -> [{2, 1}, {3, 5}] end))},
     {"update_counter with a limit",
      row(update_counter, [set], 1000, integer, fun pair/2, with(fun(_) -> {2, 1, 1000, 0} end))},
     {"update_counter with a default",
      row(update_counter_default, [set], 1000, binary, fun pair/2, fun(K, _) -> {K, {2, 1}, {K, 0}} end)},
     {"update_counter by labels",
      row(update_counter, [set], 1000, metric, fun counters/2, with(fun(_) -> {2, 1} end))},
     {"update_counter of a histogram",
      row(update_counter, [set], 1000, metric, fun histogram/2, with(fun(N) -> [{3, 7}, {5 + N rem 8, 1}] end))},
     {"select_replace that adds to a float",
      row(select_replace, [set], 1000, metric, fun gauge/2,
          fun(K, _) -> [{{K, '$1', '$2'}, [], [{{{K}, {'+', '$1', 0.25}, '$2'}}]}] end)}].

keys() ->
    [{lists:concat(["lookup by ", Text]), row(lookup, [set], Objects, Key, fun pair/2, fun itself/2)}
     || {Text, Objects, Key} <-
            [{"an atom", 1000, atom}, {"a string", 1000, string}, {"a binary", 1000, binary},
             {"a tuple of two", 1000, module_key}, {"a tuple of three", 1000, triple}, {"a pid", 1000, pid},
             {"a reference", 1000, reference}, {"a name of gproc", 1000, gproc}, {"a metric's labels", 1000, metric},
             {"a binary among 100 000", ?LARGE, binary}, {"a pid among 100 000", ?LARGE, pid},
             {"a tuple of three among 100 000", ?LARGE, triple}]]
        ++
    [{lists:concat(["insert by ", Text]), row(insert, [set], 1000, Key, fun pair/2, fun(K, N) -> {K, N + 1} end)}
     || {Text, Key} <- [{"a binary", binary}, {"a tuple of three", triple}, {"a pid", pid}]]
        ++
    [{"insert and delete of a monitor", row(insert_new_delete, [set], 1000, reference, fun pair/2,
                                            fun(_, N) -> Ref = make_ref(), {Ref, {Ref, self(), N}} end)}].

%% Most tables of programs have a name.
named() ->
    Set = [set, named_table],
    [{"lookup", row(lookup, Set, 1000, atom, fun pair/2, fun itself/2)},
     {"lookup_element", row(lookup_element, Set, 1000, atom, fun pair/2, fun itself/2)},
     {"member", row(member, Set, 1000, atom, fun pair/2, fun itself/2)},
     {"insert", row(insert, Set, 1000, atom, fun pair/2, fun(K, N) -> {K, N + 1} end)},
     {"insert_new of a key that is there", row(insert_new, Set, 1000, atom, fun pair/2, fun(K, N) -> {K, N} end)},
     {"update_counter", row(update_counter, Set, 1000, atom, fun pair/2, with(fun(_) -> 1 end))},
     {"delete and insert", row(delete_insert, Set, 1000, atom, fun pair/2, fun replaced/2)},
     {"lookup among 10", row(lookup, Set, 10, atom, fun pair/2, fun itself/2)},
     {"lookup_element of an option among 10",
      row(lookup_element, Set, 10, module_key, fun(K, N) -> {K, value({map, 5}, N)} end, fun itself/2)},
     {"lookup by a binary among 100 000", row(lookup, Set, ?LARGE, binary, fun pair/2, fun itself/2)},
     {"lookup of 3 in a bag", row(lookup, [bag, named_table], 1000, atom, fun three/2, fun itself/2)},
     {"lookup in an ordered_set", row(lookup, [ordered_set, named_table], 1000, integer, fun pair/2, fun itself/2)},
     {"next in an ordered_set", row(next, [ordered_set, named_table], 1000, integer, fun pair/2, fun itself/2)},
     {"info of the size", row(size, Set, 1000, atom, fun pair/2, fun itself/2)},
     {"whereis", row(whereis, Set, 1000, atom, fun pair/2, fun itself/2)}].

%% Subscribers (Registry, Phoenix.PubSub), handlers (telemetry), indices and transactions (Mnesia).
bags() ->
    [{"lookup of 3", row(lookup, [bag], 1000, atom, fun three/2, fun itself/2)},
     {"lookup_element of 3 subscribers",
      row(lookup_element, [duplicate_bag], 1000, binary, fun subscribers/2, fun itself/2)},
     {"lookup of 2 handlers", row(lookup, [duplicate_bag, {keypos, 3}], 100, event, fun handlers/2, fun itself/2)},
     {"insert and delete_object in a bag of 3",
      row(insert_delete_object, [bag], 1000, atom, fun three/2, fun(K, _) -> {K, new} end)},
     {"insert and delete_object in a bag of 10",
      row(insert_delete_object, [bag], 1000, integer, fun ten/2, fun(K, _) -> {K, new} end)},
     {"insert and delete_object in a duplicate_bag of 3",
      row(insert_delete_object, [duplicate_bag], 1000, binary, fun subscribers/2,
          fun(K, N) -> {K, {self(), N}} end)},
     {"insert and match_delete in a bag of 3",
      row(insert_match_delete, [bag], 1000, pid, fun topics/2, fun(K, N) -> {{K, new, N}, {K, new, '_'}} end)},
     {"delete and insert of 3",
      row(delete_insert, [bag], 1000, atom, fun three/2, fun(K, N) -> {K, three(K, N)} end)},
     {"match_object of a key and a field",
      row(match_object, [bag], 1000, pid, fun topics/2, fun(K, _) -> {K, topic_2, '_'} end)},
     {"a transaction's own table",
      row(transaction, [set], 10, integer, fun record/2, fun(K, N) -> {K, record(K, N)} end)}].

sets() ->
    [{"insert_new of a key that is there",
      row(insert_new, [set], 1000, integer, fun pair/2, fun(K, N) -> {K, N} end)},
     {"insert_new and delete of a new key",
      row(insert_new_delete, [set], 1000, integer, fun pair/2, fun(K, N) -> {-K, {-K, N}} end)},
     {"delete and insert", row(delete_insert, [set], 1000, integer, fun pair/2, fun replaced/2)},
     {"delete and insert among 100 000", row(delete_insert, [set], ?LARGE, binary, fun pair/2, fun replaced/2)},
     {"take and insert", row(take_insert, [set], 1000, integer, fun pair/2, fun replaced/2)},
     {"member", row(member, [set], 1000, integer, fun pair/2, fun itself/2)},
     {"member of a key that is not there",
      row(member, [set], 1000, binary, fun pair/2, fun(_, N) -> value({binary, 12}, N) end)},
     {"lookup_element of a key that is not there",
      row(lookup_element_caught, [set], 1000, integer, fun pair/2, fun(K, _) -> -K end)},
     {"lookup of a key that is not there", row(lookup, [set], 1000, integer, fun pair/2, fun(K, _) -> -K end)},
     {"tab2list of 10", row(tab2list, [set], 10, atom, fun pair/2, fun itself/2)},
     {"match_object of all 10", row(match_object, [set], 10, atom, fun pair/2, fun(_, _) -> {'_', '$1'} end)},
     {"match on a field of 10",
      row(match, [set], 10, module_key, fun pair/2, fun(_, _) -> {{listener, '$1'}, '$2'} end)},
     {"select of all 10",
      row(select, [set], 10, atom, fun pair/2, fun(_, _) -> [{{'$1', '$2'}, [], [{{'$1', '$2'}}]}] end)},
     {"select_count of all 1000",
      row(select_count, [set], 1000, integer, fun pair/2,
          fun(_, _) -> [{{'_', '$1'}, [{'<', '$1', 500}], [true]}] end)},
     {"foldl over 10", row(foldl, [set], 10, atom, fun pair/2, fun(_, _) -> fun add/2 end)},
     {"match_object of a key", row(match_object, [set], 1000, triple, fun pair/2, fun(K, _) -> {K, '_'} end)},
     {"select of a key and a guard",
      row(select, [set], 1000, binary, fun cached/2,
          fun(K, _) -> [{{entry, K, '$1', '$2', '_'}, [{'>', '$1', 1}], ['$2']}] end, [{keypos, 2}])},
     {"insert and select_delete of one",
      row(insert_select_delete, [set], 1000, integer, fun pair/2,
          fun(K, N) -> {{-K, N}, [{{-K, '_'}, [], [true]}]} end)},
     {"info of the size", row(size, [set], 1000, integer, fun pair/2, fun itself/2)}].

%% Locks (Mnesia), registrations (gproc), timers and queues, routing (RabbitMQ), counters.
ordered() ->
    [{"lookup among 10", row(lookup, [ordered_set], 10, integer, fun pair/2, fun itself/2)},
     {"lookup", row(lookup, [ordered_set], 1000, integer, fun pair/2, fun itself/2)},
     {"lookup by a binary", row(lookup, [ordered_set], 1000, binary, fun pair/2, fun itself/2)},
     {"lookup by a pid and a name", row(lookup, [ordered_set], 1000, registered, fun pair/2, fun itself/2)},
     {"lookup by a tuple of three among 100 000",
      row(lookup, [ordered_set], ?LARGE, triple, fun pair/2, fun itself/2)},
     {"insert", row(insert, [ordered_set], 1000, integer, fun pair/2, fun(K, N) -> {K, N + 1} end)},
     {"delete and insert", row(delete_insert, [ordered_set], 1000, integer, fun pair/2, fun replaced/2)},
     {"update_counter", row(update_counter, [ordered_set], 1000, integer, fun pair/2, with(fun(_) -> 1 end))},
     {"first", row(first, [ordered_set], 1000, integer, fun pair/2, fun itself/2)},
     {"last", row(last, [ordered_set], 1000, integer, fun pair/2, fun itself/2)},
     {"next among 10", row(next, [ordered_set], 10, integer, fun pair/2, fun itself/2)},
     {"next", row(next, [ordered_set], 1000, integer, fun pair/2, fun itself/2)},
     {"prev", row(prev, [ordered_set], 1000, integer, fun pair/2, fun itself/2)},
     %% The others begin at random keys of the table.
     {"next of the same key", row(next, [ordered_set], 1000, integer, fun pair/2, fun(_, _) -> 500 end)},
     {"next of a key that is not there", row(next, [ordered_set], 1000, even, fun pair/2, fun(K, _) -> K + 1 end)},
     {"next of a pid and a reference", row(next, [ordered_set], 1000, monitored, fun pair/2, fun itself/2)},
     {"next of a tuple of three among 100 000", row(next, [ordered_set], ?LARGE, triple, fun pair/2, fun itself/2)},
     {"first of a queue and insert at its end",
      row(queue, [ordered_set], 1000, integer, fun(K, _) -> {K, entry} end, fun(_, _) -> 1000 end)},
     {"match_object of a prefix of 10",
      row(match_object, [ordered_set], 1000, prefix, fun pair/2, fun({A, _}, _) -> {{A, '_'}, '_'} end)},
     {"select of a prefix of 10",
      row(select, [ordered_set], 1000, prefix, fun pair/2, fun({A, _}, _) -> [{{{A, '$1'}, '_'}, [], ['$1']}] end)},
     {"select of a lock's holders",
      row(select, [ordered_set], 100, lock, fun(K, _) -> {K} end,
          fun({Oid, _, _}, _) -> [{{{Oid, '_', '$1'}}, [], ['$1']}] end)},
     {"insert and select_delete of one",
      row(insert_select_delete, [ordered_set], 1000, prefix, fun pair/2,
          fun({A, B}, N) -> {{{A, -B}, N}, [{{{A, -B}, '_'}, [], [true]}]} end)},
     {"match_object of all 10",
      row(match_object, [ordered_set], 10, integer, fun pair/2, fun(_, _) -> {'_', '$1'} end)},
     {"tab2list of 10", row(tab2list, [ordered_set], 10, integer, fun pair/2, fun itself/2)}].

%%--------------------------------------------------------------------------------------------------

row(Calls, Options, Objects, Key, Object, Argument) ->
    row(Calls, Options, Objects, Key, Object, Argument, []).

row(Calls, Options, Objects, Key, Object, Argument, More) ->
    #{calls => Calls, options => Options ++ More, objects => Objects, key => fun(N) -> key(Key, N) end,
      object => Object, argument => Argument}.

%% Arguments of loops.
itself(Key, _) -> Key.

replaced(Key, N) -> {Key, {Key, N + 1}}.

with(Change) -> fun(Key, N) -> {Key, Change(N)} end.

add({_, N}, Sum) -> N + Sum.

key(integer, N) -> N;
key(even, N) -> 2 * N;
key(atom, N) -> list_to_atom("key_" ++ integer_to_list(N));
key(string, N) -> "user:" ++ integer_to_list(N);
key(binary, N) -> <<"user:", (integer_to_binary(N))/binary>>;
key(token, N) -> binary:encode_hex(erlang:md5(<<N:32>>));
key(pid, _) -> spawn(fun() -> ok end);
key(reference, _) -> make_ref();
key(module_key, N) -> {listener, key(atom, N)};
key(triple, N) -> {route, N rem 10, N};
key(gproc, N) -> {{n, l, {worker, N}}, n};
key(metric, N) -> {default, http_requests_total, [<<"GET">>, integer_to_binary(N)]};
key(event, N) -> [my_app, repo, key(atom, N)];
key(registered, N) -> {key(pid, N), {n, l, {worker, N}}};
key(monitored, N) -> {key(pid, N), make_ref()};
key(prefix, N) -> {N div 10, N rem 10};
key(lock, N) -> {{accounts, N}, write, {tid, N, self()}}.

value(integer, N) -> N;
value({map, Pairs}, N) -> maps:from_list([{key(atom, Pair), N + Pair} || Pair <- lists:seq(1, Pairs)]);
value({binary, Bytes}, N) -> <<N:(8 * Bytes)>>;
value({tuple, Elements}, N) -> list_to_tuple(value({list, Elements}, N));
value({list, Elements}, N) -> lists:seq(N + 1, N + Elements);
value({binaries, Number}, N) -> list_to_tuple([value({binary, 12}, N + Each) || Each <- lists:seq(1, Number)]);
value({nested, 0}, N) -> N;
value({nested, Levels}, N) -> {active, value({nested, Levels - 1}, N + 1), N};
value(nested, N) -> {ok, [{name, key(binary, N)}, {position, {N, N + 1}}], value({map, 5}, N)};
value(session_map, N) ->
    #{user => key(binary, N), roles => [user, editor], locale => en, resource => <<"web">>,
      since => 1_700_000_000 + N, seen => 1_700_000_000 + 2 * N, requests => N};
value(function, N) -> fun(X) -> X + N end;
value(session, N) ->
    {key(binary, N), #{locale => en, roles => [user, editor], resource => <<"web">>}, [online, visible],
     1_700_000_000_000 + N, N}.

%% Objects.
pair(Key, N) -> {Key, N}.

counters(Key, N) -> {Key, N, 0}.

gauge(Key, N) -> {Key, N / 3, 0}.

histogram(Key, N) -> {Key, [1, 5, 10, 50, 100, 500, 1000], N, 0, 0, 0, 0, 0, 0, 0, 0, 0}.

%% Like the description of a queue in RabbitMQ.
record(Key, N) -> {Key, N, idle, none, [], self(), undefined, [{priority, 5}], live, 0}.

cached(Key, N) -> {entry, Key, value({map, 5}, N), 1_700_000_000_000 + N, 60_000}.

three(Key, N) -> [{Key, N}, {Key, N + 1}, {Key, N + 2}].

ten(Key, N) -> [{Key, N + Each} || Each <- lists:seq(1, 10)].

subscribers(Key, N) -> [{Key, {self(), Each}} || Each <- [N, N + 1, N + 2]].

handlers(Key, _) -> [{handler, {logger, Number}, Key, fun erlang:apply/3, #{level => info}} || Number <- [1, 2]].

topics(Key, N) -> [{Key, topic_1, N}, {Key, topic_2, N}, {Key, topic_3, N}].
