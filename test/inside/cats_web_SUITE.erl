%% The live page: what it tells is well formed, nothing can be changed, and hostile clients do not hurt the node.
-module(cats_web_SUITE).
-include_lib("stdlib/include/assert.hrl").
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([decoded/1]).
-export([page/1, node/1, tables/1, table/1, json/1, metrics/1, metrics_of_odd_names/1, dashboard/1, token/1,
         names_of_the_host/1, bad_options/1, only_reads/1, odd_requests/1, connections/1,
         slow_clients/1, many_tables/1, stopped/1, without_inets/1]).

suite() -> [{timetrap, {minutes, 10}}].

all() ->
    [page, node, tables, table, json, metrics, metrics_of_odd_names, dashboard, token, names_of_the_host, bad_options,
     only_reads, odd_requests, connections, slow_clients, many_tables, stopped,
     without_inets].

init_per_suite(Config) -> cats_test_lib:only_cats(cats_test_lib:start(Config)).

end_per_suite(_Config) -> ok.

init_per_testcase(_Case, Config) ->
    {ok, Server, Url} = cats_web:start(#{}),
    unlink(Server),
    [{server, Server}, {url, Url} | Config].

end_per_testcase(_Case, Config) ->
    _ = cats_web:stop(proplists:get_value(server, Config)),
    ok.

%% --- A client ---

get(Path, Config) -> get(Path, [], Config).

get(Path, Headers, Config) ->
    Head = [[Name, ": ", Value, "\r\n"] || {Name, Value} <- Headers],
    raw(["GET ", Path, " HTTP/1.1\r\nhost: localhost\r\n", Head, "\r\n"], Config).

%% The status, the head and the body of the answer, or `closed'.
raw(Request, Config) ->
    Socket = connect(Config),
    _ = gen_tcp:send(Socket, Request),
    answer(Socket).

connect(Config) ->
    #{port := Port} = uri_string:parse(proplists:get_value(url, Config)),
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}], 30000),
    Socket.

answer(Socket) ->
    case received(Socket, <<>>) of
        <<"HTTP/1.", _, " ", Code:3/binary, _/binary>> = Answer ->
            [Head, Body] = binary:split(Answer, <<"\r\n\r\n">>),
            {binary_to_integer(Code), string:lowercase(Head), Body};
        _ ->
            closed
    end.

received(Socket, Data) ->
    case gen_tcp:recv(Socket, 0, 30000) of
        {ok, More} -> received(Socket, <<Data/binary, More/binary>>);
        {error, _} -> gen_tcp:close(Socket), Data
    end.

json_of(Path, Config) ->
    {200, Head, Body} = get(Path, Config),
    ?assertNotEqual(nomatch, string:find(Head, "content-type: application/json")),
    decoded(Body).

%% --- A reader of JSON that accepts no more than RFC 8259 does ---

%% @doc What a text in JSON stands for.
decoded(Text) ->
    {Value, Rest} = value(space(Text)),
    ?assertEqual(<<>>, space(Rest)),
    Value.

space(<<C, Rest/binary>>) when C =:= $\s; C =:= $\n; C =:= $\r; C =:= $\t -> space(Rest);
space(Text) -> Text.

value(<<"true", Rest/binary>>) -> {true, Rest};
value(<<"false", Rest/binary>>) -> {false, Rest};
value(<<"null", Rest/binary>>) -> {null, Rest};
value(<<$", Rest/binary>>) -> string(Rest, <<>>);
value(<<$[, Rest/binary>>) -> elements(space(Rest), []);
value(<<${, Rest/binary>>) -> pairs(space(Rest), #{});
value(Text) ->
    {match, [{0, Length}]} = re:run(Text, "^-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?", [{capture, first}]),
    <<Number:Length/binary, Rest/binary>> = Text,
    {try binary_to_integer(Number) catch error:badarg -> binary_to_float(Number) end, Rest}.

string(Text, Before) ->
    Length = plain(Text, 0),
    <<Plain:Length/binary, Rest/binary>> = Text,
    Plain = unicode:characters_to_binary(Plain),
    case Rest of
        <<$", After/binary>> when Before =:= <<>> -> {Plain, After};
        <<$", After/binary>> -> {<<Before/binary, Plain/binary>>, After};
        <<"\\u", Hex:4/binary, After/binary>> ->
            string(After, <<Before/binary, Plain/binary, (binary_to_integer(Hex, 16))/utf8>>);
        <<$\\, C, After/binary>> when C =:= $"; C =:= $\\; C =:= $/ -> string(After, <<Before/binary, Plain/binary, C>>)
    end.

%% Bytes before the end of the string or a backslash.
plain(<<C, Rest/binary>>, Length) when C >= 32, C =/= $", C =/= $\\ -> plain(Rest, Length + 1);
plain(_, Length) -> Length.

elements(<<$], Rest/binary>>, []) -> {[], Rest};
elements(Text, Values) ->
    {Value, After} = value(space(Text)),
    case space(After) of
        <<$,, Rest/binary>> -> elements(space(Rest), [Value | Values]);
        <<$], Rest/binary>> -> {lists:reverse([Value | Values]), Rest}
    end.

pairs(<<$}, Rest/binary>>, Map) when map_size(Map) =:= 0 -> {Map, Rest};
pairs(<<$", Text/binary>>, Map) ->
    {Key, After} = string(Text, <<>>),
    <<$:, Behind/binary>> = space(After),
    {Value, Last} = value(space(Behind)),
    ?assertNot(is_map_key(Key, Map)),
    case space(Last) of
        <<$,, Rest/binary>> -> pairs(space(Rest), Map#{Key => Value});
        <<$}, Rest/binary>> -> {Map#{Key => Value}, Rest}
    end.

%% --- What is told ---

page(Config) ->
    {200, Head, Body} = get("/", Config),
    ?assertNotEqual(nomatch, string:find(Head, "content-type: text/html; charset=utf-8")),
    ?assertNotEqual(nomatch, string:find(Head, "content-security-policy: default-src 'none'")),
    ?assertNotEqual(nomatch, string:find(Body, "<!doctype html>")),
    ?assert(is_list(unicode:characters_to_list(Body))),
    %% Nothing from elsewhere: the only address is the name of a namespace.
    ?assertEqual([], [Url || [Url] <- matches(Body, "https?://[^'\" ]*"), Url =/= <<"http://www.w3.org/2000/svg">>]),
    ?assertEqual([], matches(Body, "(?i)<(script|link|img|iframe)[^>]* (src|href)='(?!data:)")).

matches(Text, Pattern) ->
    case re:run(Text, Pattern, [global, {capture, first, binary}]) of
        {match, Found} -> Found;
        nomatch -> []
    end.

node(Config) ->
    Name = atom_to_binary(erlang:node()),
    ?assertMatch(#{<<"node">> := Name, <<"tables">> := Tables,
                   <<"memory">> := #{<<"total">> := Total, <<"cats">> := Cats}}
                   when is_integer(Tables) andalso Cats =< Total, json_of("/api/node", Config)).

tables(Config) ->
    cats_test_lib:in_process(
      fun() ->
              register(owner_of_web, self()),
              Id = cats:new(web_one, [ordered_set, public, named_table, {stats, true}]),
              cats:insert(Id, [{N, N} || N <- lists:seq(1, 2000)]),
              Other = cats:new('odd "name" \\ <b>\n\x{1F600}', []),
              #{<<"tables">> := Rows, <<"number">> := Number} = json_of("/api/tables", Config),
              ?assertEqual(length(cats:all()), Number),
              [One] = [Row || #{<<"name">> := <<"web_one">>} = Row <- Rows],
              ?assertMatch(#{<<"type">> := <<"ordered_set">>, <<"engine">> := <<"ca">>, <<"named">> := true,
                             <<"owner">> := #{<<"name">> := <<"owner_of_web">>},
                             <<"stats">> := #{<<"size">> := 2000, <<"inserts">> := 2000, <<"waits">> := 0,
                                              <<"waits_by_length">> := [0, 0, 0, 0, 0, 0]}}, One),
              Odd = list_to_binary(ref_to_list(Other)),
              ?assertMatch([_], [Row || #{<<"id">> := Ref} = Row <- Rows, Ref =:= Odd]),
              Memory = [Bytes || #{<<"stats">> := #{<<"memory">> := Bytes}} <- Rows],
              ?assertEqual(lists:reverse(lists:sort(Memory)), Memory),
              #{<<"tables">> := [First | _]} = json_of("/api/tables?sort=operations", Config),
              ?assertMatch(#{<<"name">> := <<"web_one">>}, First),
              [?assertMatch({400, _, _}, get("/api/tables?sort=" ++ Sort, Config))
               || Sort <- ["", "no_such_order_of_tables", "%ff"]]
      end).

table(Config) ->
    cats_test_lib:in_process(
      fun() ->
              [begin
                   Table = cats:new(web_table, [Type, public]),
                   cats:insert(Table, [{N, N} || N <- lists:seq(1, 100)]),
                   Path = "/api/table?id=" ++ uri_string:quote(ref_to_list(Table)),
                   #{<<"name">> := <<"web_table">>, <<"structure">> := Structure,
                     <<"owner">> := #{<<"pid">> := Pid}} = json_of(Path, Config),
                   ?assertEqual(list_to_binary(pid_to_list(self())), Pid),
                   ?assertEqual(Known, lists:sort(maps:keys(Structure))),
                   cats:delete(Table),
                   ?assertMatch({404, _, _}, get(Path, Config))
               end || {Type, Known} <- [{ordered_set, [<<"base_nodes">>, <<"depth">>, <<"route_nodes">>]},
                                        {bag, [<<"average">>, <<"buckets">>, <<"deviation">>, <<"expected_deviation">>,
                                               <<"least">>, <<"most">>]}]],
              [?assertMatch({404, _, _}, get("/api/table" ++ Query, Config))
               || Query <- ["", "?id", "?id=x", "?id=%23Ref%3C0.1.2.3%3E"]],
              %% A table without an owner.
              {Owner, Kept} = cats_test_lib:spawn_owner(fun() -> cats:new(web_kept, [named_table, {heir, keep}]) end),
              exit(Owner, kill),
              cats_test_lib:eventually(fun() -> cats:info(Kept, owner) =:= undefined end),
              Id = ref_to_list(cats:info(Kept, id)),
              ?assertMatch(#{<<"owner">> := null}, json_of("/api/table?id=" ++ uri_string:quote(Id), Config)),
              cats:claim(Kept)
      end).

json(_Config) ->
    Texts = [[C] || C <- lists:seq(0, 300)]
        ++ ["", "\"\\/", [16#2028], [16#2029], [16#ffff], [16#10ffff], <<"é"/utf8>>],
    [?assertEqual(unicode:characters_to_binary(Text), decoded(iolist_to_binary(cats_web_data:json(Text))))
     || Text <- Texts],
    ?assertEqual(#{<<"a">> => [1, -2.5, true, null, #{}], <<"b">> => []},
                 decoded(iolist_to_binary(cats_web_data:json(#{a => {list, [1, -2.5, true, null, #{}]},
                                                               b => {list, []}})))).

%% --- The text format of Prometheus, version 0.0.4 ---

metrics(Config) ->
    cats_test_lib:in_process(
      fun() ->
              cats:new(web_counted, [public, named_table, {stats, true}]),
              cats:insert(web_counted, {1}),
              [cats:lookup(web_counted, Key) || Key <- [1, 1, 2]],
              [cats:new(web_same_name, []) || _ <- [1, 2]],
              cats:new(web_contended, [public, named_table]),
              cats_stats_SUITE:contend(web_contended),
              Samples = metrics_of(Config),
              Value = fun(Name, Labels) -> maps:get({Name, lists:sort(Labels)}, Samples) end,
              Table = {<<"table">>, <<"web_counted">>},
              ?assertEqual(3.0, Value(<<"cats_table_operations_total">>, [Table, {<<"kind">>, <<"lookup">>}])),
              ?assertEqual(1.0, Value(<<"cats_table_lookups_total">>, [Table, {<<"kind">>, <<"miss">>}])),
              ?assertEqual(1.0, Value(<<"cats_table_objects">>, [Table])),
              ?assertEqual(float(length(cats:all())), Value(<<"cats_tables">>, [])),
              ?assertEqual(0.0, Value(<<"cats_table_lock_wait_seconds_bucket">>, [Table, {<<"le">>, <<"+Inf">>}])),
              %% A bucket has those of all buckets before it.
              Buckets = [Value(<<"cats_table_lock_wait_seconds_bucket">>,
                               [{<<"table">>, <<"web_contended">>}, {<<"le">>, Below}])
                         || Below <- [<<"0.000001">>, <<"0.000004">>, <<"0.000016">>, <<"0.000064">>,
                                      <<"0.000256">>, <<"+Inf">>]],
              ?assertEqual(lists:sort(Buckets), Buckets),
              ?assert(lists:last(Buckets) > 0)
      end).

metrics_of_odd_names(Config) ->
    cats_test_lib:in_process(
      fun() ->
              Names = ['a "b"', 'a\\b', 'a\nb', 'a}b,c="d"', '', '\x{1F600}'],
              [cats:new(Name, [named_table]) || Name <- Names],
              Tables = [Table || {<<"cats_table_objects">>, [{<<"table">>, Table}]} <- maps:keys(metrics_of(Config))],
              ?assertEqual([], [atom_to_binary(Name) || Name <- Names] -- Tables)
      end).

%% The dashboard for Grafana asks for what there is.
dashboard(Config) ->
    Root = cats_test_lib:root(),
    {ok, Text} = file:read_file(filename:join(Root, "tools/grafana/cats.json")),
    #{<<"panels">> := Panels} = decoded(Text),
    Asked = lists:usort([Name || #{<<"targets">> := Targets} <- Panels, #{<<"expr">> := Expression} <- Targets,
                                 [Name] <- matches(Expression, "cats_[a-z_]+")]),
    cats_test_lib:in_process(
      fun() ->
              cats:new(web_counted, [{stats, true}]),
              ?assertEqual([], Asked -- [Name || {Name, _} <- maps:keys(metrics_of(Config))])
      end),
    ?assert(length(Asked) > 10).

%% All samples: the value for a name and labels. Each family has its head before its samples, and stands in one piece.
metrics_of(Config) ->
    {200, Head, Body} = get("/metrics", Config),
    ?assertNotEqual(nomatch, string:find(Head, "content-type: text/plain; version=0.0.4")),
    ?assertEqual($\n, binary:last(Body)),
    Lines = binary:split(binary:part(Body, 0, byte_size(Body) - 1), <<"\n">>, [global]),
    {Samples, Types, _} = lists:foldl(fun line/2, {#{}, #{}, none}, Lines),
    maps:foreach(fun({Name, Labels}, Value) -> check(Name, Labels, Value, Types, Samples) end, Samples),
    Samples.

line(<<"# HELP ", Rest/binary>>, {Samples, Types, _}) ->
    [Name, _Text] = binary:split(Rest, <<" ">>),
    ?assertNot(is_map_key(Name, Types)),
    {Samples, Types, {help, Name}};
line(<<"# TYPE ", Rest/binary>>, {Samples, Types, {help, Name}}) ->
    [Name, Type] = binary:split(Rest, <<" ">>),
    ?assert(lists:member(Type, [<<"counter">>, <<"gauge">>, <<"histogram">>])),
    {Samples, Types#{Name => Type}, Name};
line(Sample, {Samples, Types, Family}) ->
    {match, [Name, Braces, Number]} =
        re:run(Sample, "^([a-zA-Z_:][a-zA-Z0-9_:]*)((?:\\{.*\\})?) ([0-9.e+-]+)$",
               [{capture, all_but_first, binary}, unicode]),
    ?assertEqual(Family, family(Name, maps:get(Family, Types))),
    Key = {Name, lists:sort(labels(Braces))},
    ?assertNot(is_map_key(Key, Samples)),
    {Samples#{Key => try binary_to_float(Number) catch error:badarg -> float(binary_to_integer(Number)) end},
     Types, Family}.

family(Name, <<"histogram">>) -> re:replace(Name, "_(bucket|sum|count)$", "", [{return, binary}]);
family(Name, _Type) -> Name.

labels(<<>>) -> [];
labels(<<${, Rest/binary>>) -> label(Rest).

label(Text) ->
    {match, [Name, Value, Rest]} =
        re:run(Text, "^([a-zA-Z_][a-zA-Z0-9_]*)=\"((?:[^\"\\\\\n]|\\\\[\\\\\"n])*)\"(.*)$",
               [{capture, all_but_first, binary}, unicode, dotall]),
    Plain = lists:foldl(fun({From, To}, V) -> binary:replace(V, From, To, [global]) end, Value,
                        [{<<"\\\\">>, <<0>>}, {<<"\\\"">>, <<"\"">>}, {<<"\\n">>, <<"\n">>}, {<<0>>, <<"\\">>}]),
    case Rest of
        <<"}">> -> [{Name, Plain}];
        <<$,, More/binary>> -> [{Name, Plain} | label(More)]
    end.

%% Counters end in _total, and the buckets of a histogram grow up to its count.
check(Name, Labels, Value, Types, Samples) ->
    case Types of
        #{Name := <<"counter">>} ->
            ?assertEqual(<<"_total">>, binary:part(Name, byte_size(Name), -6)), ?assert(Value >= 0);
        #{Name := <<"gauge">>} -> ok;
        #{} ->
            Family = family(Name, <<"histogram">>),
            ?assertEqual(<<"histogram">>, maps:get(Family, Types)),
            Own = lists:keydelete(<<"le">>, 1, Labels),
            Infinite = {<<Family/binary, "_bucket">>, lists:sort([{<<"le">>, <<"+Inf">>} | Own])},
            ?assertEqual(maps:get({<<Family/binary, "_count">>, Own}, Samples), maps:get(Infinite, Samples)),
            case binary:match(Name, <<"_bucket">>) of
                nomatch -> ok;
                _ -> ?assert(Value =< maps:get(Infinite, Samples))
            end
    end.

%% --- Who may read ---

token(_Config) ->
    {ok, Server, Url} = cats_web:start(#{token => "a_secret-1234"}),
    ?assertMatch(#{query := "token=a_secret-1234", host := "127.0.0.1"}, uri_string:parse(Url)),
    Config = [{url, Url}],
    Paths = ["/", "/api/node", "/api/tables", "/metrics", "/none"],
    [?assertMatch({401, _, _}, get(Path ++ Query, Headers, Config))
     || Path <- Paths, {Query, Headers} <- [{"", []}, {"?token=", []}, {"?token", []}, {"?token=a_secret-123", []},
                                            {"?token=a_secret-12345", []}, {"?token=A_SECRET-1234", []},
                                            {"?token=%61_secret-123%00", []},
                                            {"", [{"authorization", "Bearer x"}]},
                                            {"", [{"authorization", "Basic a_secret-1234"}]},
                                            {"?token=a_secret-1234", [{"authorization", "Bearer wrong"}]}]],
    [?assertMatch({200, _, _}, get(Path ++ Query, Headers, Config))
     || Path <- lists:droplast(Paths),
        {Query, Headers} <- [{"?token=a_secret-1234", []}, {"", [{"authorization", "Bearer a_secret-1234"}]}]],
    %% The host may have any name then.
    ?assertMatch({200, _, _}, raw("GET /?token=a_secret-1234 HTTP/1.1\r\nhost: example.org\r\n\r\n", Config)),
    ok = cats_web:stop(Server).

%% A page from elsewhere cannot read through a name that leads here.
names_of_the_host(Config) ->
    [?assertMatch({200, _, _}, raw(["GET /api/node HTTP/1.1\r\nhost: ", Host, "\r\n\r\n"], Config))
     || Host <- ["localhost", "localhost:1234", "127.0.0.1", "127.0.0.1:80", "[::1]:80"]],
    [?assertMatch({403, _, _}, raw(["GET /api/node HTTP/1.1\r\nhost: ", Host, "\r\n\r\n"], Config))
     || Host <- ["example.org", "example.org:80", "localhost.example.org", "127.0.0.1.example.org", "10.0.0.1"]].

bad_options(_Config) ->
    [?assertError({badarg, _}, cats_web:start(Options))
     || Options <- [#{ip => {0, 0, 0, 0}}, #{ip => {10, 0, 0, 1}}, #{ip => any}, #{ip => "127.0.0.1"}, #{port => -1},
                    #{port => 65536}, #{port => x}, #{token => "short"}, #{token => ""}, #{token => secret},
                    #{token => "with space in it"}, #{token => "ends-in-newline\n"}, #{tokens => "12345678"}]],
    {ok, Server, "http://0.0.0.0:" ++ _} = cats_web:start(#{ip => {0, 0, 0, 0}, token => <<"12345678">>}),
    [{port, Port}] = httpd:info(Server, [port]),
    ?assertMatch({error, _}, cats_web:start(#{ip => {0, 0, 0, 0}, token => <<"12345678">>, port => Port})),
    ok = cats_web:stop(Server).

%% --- Hostile clients ---

only_reads(Config) ->
    cats_test_lib:in_process(
      fun() ->
              Table = cats:new(web_read_only, [public, named_table]),
              cats:insert(Table, {1, 1}),
              Before = {cats:tab2list(Table), cats:all()},
              [?assertMatch({405, _, _},
                            raw([Method, " ", Path, " HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\nab"],
                                Config))
               || Method <- ["POST", "PUT", "DELETE", "PATCH"],
                  Path <- ["/", "/api/tables", "/api/table?id=web_read_only"]],
              [?assertMatch({200, _, <<>>}, raw(["HEAD ", Path, " HTTP/1.1\r\nhost: localhost\r\n\r\n"], Config))
               || Path <- ["/", "/metrics"]],
              ?assertEqual(Before, {cats:tab2list(Table), cats:all()})
      end).

odd_requests(Config) ->
    Atoms = erlang:system_info(atom_count),
    Long = lists:duplicate(100000, $a),
    [?assertMatch({404, _, _}, get(Path, Config))
     || Path <- ["/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/api/", "/api/none",
                 "/index.html", "/api/../etc", "/lib/"]],
    Refused = [["GET /", Long, " HTTP/1.1\r\nhost: localhost\r\n\r\n"],
               ["GET / HTTP/1.1\r\nhost: localhost\r\nx: ", Long, "\r\n\r\n"],
               ["GET / HTTP/1.1\r\nhost: localhost\r\n",
                [["x", integer_to_list(N), ": y\r\n"] || N <- lists:seq(1, 5000)], "\r\n"],
               ["POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000000000\r\n\r\n"],
               ["POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\n\r\n", Long],
               ["POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nffffffff\r\n", Long],
               "GET / HTTP/9.9\r\nhost: localhost\r\n\r\n", "NONSENSE\r\n\r\n", <<0, 255, 0, 255, "\r\n\r\n">>,
               "GET /?%zz HTTP/1.1\r\nhost: localhost\r\n\r\n", [Long, " / HTTP/1.1\r\n\r\n"],
               "GET http://[:: HTTP/1.1\r\nhost: localhost\r\n\r\n"],
    %% At the same time, as the server waits for the rest of some of them.
    Answers = cats_test_lib:together([fun() -> refused(raw(Request, Config)) end || Request <- Refused]),
    [?assertMatch({N, {Code, _, _}} when N > 0 andalso Code >= 400, {N, Answer})
     || {N, Answer} <- lists:enumerate(Answers)],
    [get("/atom" ++ integer_to_list(N) ++ "?key" ++ integer_to_list(N) ++ "=1",
         [{"x-header-" ++ integer_to_list(N), "1"}], Config)
     || N <- lists:seq(1, 50)],
    ?assert(erlang:system_info(atom_count) - Atoms < 50),
    ?assertMatch({200, _, _}, get("/api/node", Config)).

%% A server that closes while the client still sends resets the connection, and its answer may be lost.
refused(closed) -> {499, none, none};
refused(Answer) -> Answer.

%% More connections than are served are refused, and later ones are served again.
connections(Config) ->
    Sockets = [connect(Config) || _ <- lists:seq(1, 2000)],
    [_ = gen_tcp:send(Socket, "GET /api/node HTTP/1.1\r\nhost: localhost\r\n") || Socket <- Sockets],
    [gen_tcp:close(Socket) || Socket <- Sockets],
    cats_test_lib:eventually(fun() -> case get("/api/node", Config) of {200, _, _} -> true; _ -> false end end, 60000).

%% Clients that send or take a byte now and then lose their connection, and do not keep others out.
slow_clients(Config) ->
    Slow = [connect(Config) || _ <- lists:seq(1, 20)],
    [ok = gen_tcp:send(Socket, "GET / HTTP/1.1\r\nhost: localhost\r\nx: ") || Socket <- Slow],
    ?assertMatch({200, _, _}, get("/api/node", Config)),
    [?assertMatch({error, _}, trickle(Socket, 200)) || Socket <- Slow],
    ?assertMatch({200, _, _}, get("/", Config)).

trickle(_Socket, 0) -> still_open;
trickle(Socket, Times) ->
    case gen_tcp:send(Socket, "t") of
        ok -> timer:sleep(50), trickle(Socket, Times - 1);
        Error -> Error
    end.

%% As in a release that does not contain it.
without_inets(_Config) ->
    Peer = cats_test_lib:start_peer(["-pa", filename:dirname(code:which(cats))]),
    true = peer:call(Peer, code, del_path, [inets], infinity),
    ?assertMatch({error, {no_inets, <<"the page is served by the application inets", _/binary>>, {inets, _}}},
                 peer:call(Peer, cats_web, start, [#{}], infinity)),
    peer:stop(Peer).

many_tables(Config) ->
    cats_test_lib:in_process(
      fun() ->
              [cats:new(web_many, [{stats, true}]) || _ <- lists:seq(1, 1200)],
              #{<<"tables">> := Rows, <<"number">> := Number} = json_of("/api/tables", Config),
              ?assertEqual({200, true}, {length(Rows), Number >= 1200}),
              ?assertEqual(1000, length([1 || {<<"cats_table_objects">>, _} <- maps:keys(metrics_of(Config))])),
              %% Clients that do not take so long an answer lose their connections, and make room for others.
              Deaf = [connect(Config) || _ <- lists:seq(1, 60)],
              [_ = gen_tcp:send(Socket, "GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n") || Socket <- Deaf],
              cats_test_lib:eventually(fun() ->
                                               case get("/api/node", Config) of {200, _, _} -> true; _ -> false end
                                       end, 60000)
      end).

stopped(Config) ->
    ok = cats_web:stop(proplists:get_value(server, Config)),
    #{port := Port} = uri_string:parse(proplists:get_value(url, Config)),
    %% A connection that was made while the server stopped is reset.
    cats_test_lib:eventually(fun() -> gen_tcp:connect({127, 0, 0, 1}, Port, [], 5000) =:= {error, econnrefused} end).
