%% @doc A page that shows the tables of this node in a browser, while they are in use.
%%
%% ```
%% {ok, Server, Url} = cats_web:start(#{}).
%% '''
%%
%% `Url' is then the address to open. The server is the one of OTP's application `inets', which this starts. It listens
%% on the loopback address only, unless an option says another one. Nothing can be changed through it, and it shows no
%% objects.
%%
%% <ul>
%% <li>`/': the page</li>
%% <li>`/api/node', `/api/tables', `/api/table': what it shows, in JSON</li>
%% <li>`/metrics': the figures of {@link cats:stats/0} for Prometheus</li>
%% </ul>
%%
%% With a token, each request needs it: as `?token=...' in the address, or as `authorization: Bearer ...' in the head.
%% There is no TLS. For another machine, a tunnel (`ssh -L') to the loopback address is better than another address.
-module(cats_web).
-export([start/1, stop/1]).
-export([do/1]).

-export_type([options/0]).

-type options() :: #{port => inet:port_number(), ip => inet:ip_address() | loopback, token => binary() | string()}.
%% How to serve:
%%
%% <ul>
%% <li>`port': the default, 0, is one that is free.</li>
%% <li>`ip': the address to listen on. The default is `loopback'. Any other needs a token.</li>
%% <li>`token': 8 to 200 letters, digits, `-' and `_' that each request must bring.</li>
%% </ul>

%% As in inets/include/httpd.hrl. It is part of the interface of that server, and the same in OTP 25 to 29.
-record(mod, {init_data, data = [], socket_type, socket, config_db, method, absolute_uri = [], request_uri,
              http_version, request_line, parsed_header = [], entity_body, connection}).

-define(LOOPBACK, [{127, 0, 0, 1}, {0, 0, 0, 0, 0, 0, 0, 1}]).
%% Tables of which one answer tells.
-define(TABLES, 200).
-define(METRICS, 1000).
-define(NO_INETS, <<"the page is served by the application inets of Erlang/OTP: add inets to the applications of the"
                    " release">>).

%% @doc Starts a server. Returns it together with its address. Fails with `{badarg, Option}' for an invalid option, and
%% when the address is not that of loopback and there is no token. Returns the error of `inets' if it cannot listen, and
%% `{no_inets, Text, Reason}' if that cannot start, for example because a release does not contain it.
-spec start(options()) -> {ok, Server :: pid(), Url :: string()} | {error, Reason :: term()}.
start(Options) ->
    is_map(Options) orelse cats_options:refuse(web, Options),
    maps:foreach(fun check/2, Options),
    Ip = case maps:get(ip, Options, loopback) of
             loopback -> hd(?LOOPBACK);
             Given -> Given
         end,
    Token = unicode:characters_to_binary(maps:get(token, Options, "")),
    lists:member(Ip, ?LOOPBACK) orelse Token =/= <<>> orelse cats_options:refuse(web, {ip, Ip}),
    case application:ensure_all_started(inets) of
        {ok, _} -> serve(Ip, maps:get(port, Options, 0), Token);
        {error, Reason} -> {error, {no_inets, ?NO_INETS, Reason}}
    end.

serve(Ip, Wanted, Token) ->
    case inets:start(httpd, settings(Ip, Wanted, Token)) of
        {ok, Server} ->
            [{port, Port}] = httpd:info(Server, [port]),
            {ok, Server, url(Ip, Port, Token)};
        {error, Reason} ->
            {error, Reason}
    end.

%% @doc Stops a server. Fails with `{badarg, Server}' for something else than a process.
-spec stop(Server :: pid()) -> ok | {error, Reason :: term()}.
stop(Server) when is_pid(Server) ->
    inets:stop(httpd, Server);
stop(Server) ->
    cats_options:refuse_argument(Server, "the process that start/1 returned").

check(port, Port) when is_integer(Port), Port >= 0, Port < 65536 -> ok;
check(ip, loopback) -> ok;
check(ip, Ip) when is_tuple(Ip) -> inet:is_ip_address(Ip) orelse cats_options:refuse(web, {ip, Ip});
check(token, Token) -> is_token(Token) orelse cats_options:refuse(web, token);
check(Key, Value) -> cats_options:refuse(web, {Key, Value}).

is_token(Token) when is_list(Token); is_binary(Token) ->
    re:run(Token, "^[A-Za-z0-9_-]{8,200}$", [dollar_endonly, {capture, none}]) =:= match;
is_token(_) ->
    false.

%% A request is one line and a short head, without a body. A connection serves one of them. It ends if its client takes
%% long to ask, or to take the answer.
settings(Ip, Port, Token) ->
    Directory = code:root_dir(),
    [{port, Port}, {bind_address, Ip}, {ipfamily, family(Ip)}, {server_name, "cats"}, {server_tokens, none},
     %% Required, but no module reads files.
     {server_root, Directory}, {document_root, Directory}, {modules, [?MODULE]},
     {max_clients, 50}, {keep_alive, false}, {minimum_bytes_per_second, 100},
     {max_header_size, 8192}, {max_uri_size, 2048}, {max_content_length, 1000}, {max_body_size, 1000},
     {?MODULE, {Ip, Token}}].

family({_, _, _, _}) -> inet;
family(_) -> inet6.

url(Ip, Port, Token) ->
    Host = case {family(Ip), inet:ntoa(Ip)} of
               {inet, Text} -> Text;
               {inet6, Text} -> "[" ++ Text ++ "]"
           end,
    Query = case Token of
                <<>> -> "";
                _ -> "?token=" ++ binary_to_list(Token)
            end,
    lists:flatten(io_lib:format("http://~s:~b/~s", [Host, Port, Query])).

%% @private
%% @doc Answers a request, for `httpd'.
-spec do(#mod{}) -> {proceed, [{response, {response, list(), binary() | nobody}}]}.
do(#mod{method = Method, request_uri = Uri, parsed_header = Head, config_db = Db, socket = Socket}) ->
    %% For a client that does not take its answer. Fails if the client has gone.
    _ = inet:setopts(Socket, [{send_timeout, 5000}, {send_timeout_close, true}]),
    {Code, Type, Body} = answer(Method, Uri, Head, httpd_util:lookup(Db, ?MODULE)),
    Bytes = iolist_to_binary(Body),
    Headers = [{code, Code}, {content_type, Type}, {content_length, integer_to_list(byte_size(Bytes))},
               {cache_control, "no-store"}, {"x-content-type-options", "nosniff"}, {"referrer-policy", "no-referrer"},
               {"x-frame-options", "DENY"},
               {"content-security-policy", "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
                "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"}],
    Sent = case Method of
               "HEAD" -> nobody;
               _ -> Bytes
           end,
    {proceed, [{response, {response, [{"allow", "GET, HEAD"} || Code =:= 405] ++ Headers, Sent}}]}.

answer(Method, Uri, Head, Access) when Method =:= "GET"; Method =:= "HEAD" ->
    case parsed(Uri) of
        {Path, Query} ->
            case may(Query, Head, Access) of
                true -> page(Path, Query);
                {false, Code, Why} -> plain(Code, Why)
            end;
        error ->
            plain(400, "The address cannot be read.")
    end;
answer(_Method, _Uri, _Head, _Access) ->
    plain(405, "Nothing can be changed here.").

parsed(Uri) ->
    case uri_string:parse(Uri) of
        #{path := Path} = Parts ->
            case uri_string:dissect_query(maps:get(query, Parts, "")) of
                Query when is_list(Query) -> {Path, Query};
                _ -> error
            end;
        _ ->
            error
    end.

%% Without a token, the name of the host must be the one of the loopback address. A page from elsewhere could otherwise
%% read the answers in a browser, by a name of its own that leads to that address.
may(_Query, Head, {_Ip, <<>>}) ->
    Host = re:replace(proplists:get_value("host", Head, "localhost"), ":[0-9]*$", "", [{return, list}]),
    case lists:member(Host, ["localhost", "127.0.0.1", "[::1]"]) of
        true -> true;
        false -> {false, 403, "Without a token, this page is for localhost only."}
    end;
may(Query, Head, {_Ip, Token}) ->
    Brought = case proplists:get_value("authorization", Head) of
                  "Bearer " ++ Text -> Text;
                  _ -> proplists:get_value("token", Query, "")
              end,
    case is_same(Brought, Token) of
        true -> true;
        false -> {false, 401, "This page needs its token: add ?token=... to the address."}
    end.

%% Digests are compared, so the time tells nothing of the token.
is_same(Brought, Token) when is_list(Brought) ->
    erlang:md5(unicode:characters_to_binary(Brought)) =:= erlang:md5(Token);
is_same(_Brought, _Token) ->
    false.

page("/", _Query) ->
    case cats_page:live() of
        {ok, Html} -> {200, "text/html; charset=utf-8", Html};
        {error, {File, Reason}} -> plain(500, [unicode:characters_to_binary(File), ": ", file:format_error(Reason)])
    end;
page("/api/node", _Query) ->
    json(cats_web_data:node());
page("/api/tables", Query) ->
    Sorts = ["memory", "size", "waits", "operations", "reads_repeated", "busy"],
    case lists:member(Sort = proplists:get_value("sort", Query, "memory"), Sorts) of
        true -> json(cats_web_data:tables(list_to_existing_atom(Sort), ?TABLES));
        false -> plain(400, "There is no such order.")
    end;
page("/api/table", Query) ->
    case cats_web_data:table(proplists:get_value("id", Query, "")) of
        undefined -> plain(404, "There is no such table.");
        Table -> json(Table)
    end;
page("/metrics", _Query) ->
    {200, "text/plain; version=0.0.4; charset=utf-8", cats_web_metrics:text(?METRICS)};
page(_Path, _Query) ->
    plain(404, "There is no such page.").

json(Term) -> {200, "application/json", cats_web_data:json(Term)}.

plain(Code, Text) -> {Code, "text/plain; charset=utf-8", [Text, $\n]}.
