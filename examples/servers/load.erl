%% The clients of a measurement. Each sends a message to itself and waits until the server delivers it, again and again.
%% The modes put and take leave persistent messages in the server, and take them from it. The mode stream writes a
%% stream of messages, reads it from its begin, and stays its consumer until the VM is ended. Prints that the clients
%% are ready, and a last line: messages, seconds, and the percentiles 50, 99 and 100 of the latency in microseconds.
-module(load).
-export([main/1]).
-include_lib("amqp_client/include/amqp_client.hrl").

%% A failure of any client ends the VM.
main(Words) ->
    {_, Monitor} = spawn_monitor(fun() -> run(Words) end),
    receive
        {'DOWN', Monitor, process, _, Reason} ->
            io:format("~tp~n", [Reason]),
            halt(1)
    end.

run(["put", Port]) ->
    Channel = channel(list_to_integer(Port)),
    #'queue.declare_ok'{} = amqp_channel:call(Channel, #'queue.declare'{queue = <<"kept">>, durable = true}),
    publish(Channel, <<"kept">>),
    halt(0);
run(["take", Port]) ->
    Channel = channel(list_to_integer(Port)),
    [begin
         Payload = integer_to_binary(N),
         Get = #'basic.get'{queue = <<"kept">>, no_ack = true},
         {#'basic.get_ok'{}, #amqp_msg{payload = Payload}} = amqp_channel:call(Channel, Get)
     end || N <- lists:seq(1, 100)],
    #'basic.get_empty'{} = amqp_channel:call(Channel, #'basic.get'{queue = <<"kept">>}),
    halt(0);
run(["stream", Port]) ->
    Channel = channel(list_to_integer(Port)),
    Declare = #'queue.declare'{queue = <<"stream">>, durable = true,
                               arguments = [{<<"x-queue-type">>, longstr, <<"stream">>}]},
    #'queue.declare_ok'{} = amqp_channel:call(Channel, Declare),
    publish(Channel, <<"stream">>),
    #'basic.qos_ok'{} = amqp_channel:call(Channel, #'basic.qos'{prefetch_count = 10}),
    Consume = #'basic.consume'{queue = <<"stream">>, arguments = [{<<"x-stream-offset">>, longstr, <<"first">>}]},
    #'basic.consume_ok'{} = amqp_channel:subscribe(Channel, Consume, self()),
    receive #'basic.consume_ok'{} -> ok end,
    [receive
         {#'basic.deliver'{delivery_tag = Tag}, #amqp_msg{payload = Payload}} ->
             Payload = integer_to_binary(N),
             ok = amqp_channel:cast(Channel, #'basic.ack'{delivery_tag = Tag})
     end || N <- lists:seq(1, 100)],
    io:format("ready~n"),
    timer:sleep(infinity);
run([Protocol, Port, Clients, Seconds]) ->
    Connect = case Protocol of
                  "rabbitmq" -> fun amqp/2;
                  "ejabberd" -> fun xmpp/2
              end,
    Time = list_to_integer(Seconds),
    Self = self(),
    Pids = [spawn_link(fun() -> client(Connect(list_to_integer(Port), N), Time, Self) end)
            || N <- lists:seq(1, list_to_integer(Clients))],
    [receive {ready, Pid} -> ok end || Pid <- Pids],
    io:format("ready~n"),
    [Pid ! go || Pid <- Pids],
    Latencies = lists:sort(lists:append([receive {latencies, Pid, List} -> List end || Pid <- Pids])),
    Count = length(Latencies),
    Percentiles = [lists:nth(max(1, Count * P div 100), Latencies) || P <- [50, 99, 100]],
    io:format("~b ~b ~b ~b ~b~n", [Count, Time | Percentiles]),
    halt(0).

client(Send, Seconds, Parent) ->
    Parent ! {ready, self()},
    receive go -> ok end,
    End = erlang:monotonic_time(microsecond) + Seconds * 1000000,
    Parent ! {latencies, self(), repeat(Send, End, [])}.

repeat(Send, End, Latencies) ->
    Begin = erlang:monotonic_time(microsecond),
    Send(),
    case erlang:monotonic_time(microsecond) of
        Now when Now < End -> repeat(Send, End, [Now - Begin | Latencies]);
        _ -> Latencies
    end.

channel(Port) ->
    {ok, _} = application:ensure_all_started(amqp_client),
    {ok, Connection} = amqp_connection:start(#amqp_params_network{host = "127.0.0.1", port = Port}),
    {ok, Channel} = amqp_connection:open_channel(Connection),
    Channel.

%% A hundred persistent messages, which the server confirms.
publish(Channel, Queue) ->
    #'confirm.select_ok'{} = amqp_channel:call(Channel, #'confirm.select'{}),
    [ok = amqp_channel:cast(Channel, #'basic.publish'{routing_key = Queue},
                            #amqp_msg{props = #'P_basic'{delivery_mode = 2}, payload = integer_to_binary(N)})
     || N <- lists:seq(1, 100)],
    true = amqp_channel:wait_for_confirms(Channel).

amqp(Port, _N) ->
    Channel = channel(Port),
    #'queue.declare_ok'{queue = Queue} = amqp_channel:call(Channel, #'queue.declare'{exclusive = true}),
    #'basic.consume_ok'{} = amqp_channel:subscribe(Channel, #'basic.consume'{queue = Queue}, self()),
    receive #'basic.consume_ok'{} -> ok end,
    Payload = binary:copy(<<"x">>, 100),
    fun() ->
            ok = amqp_channel:cast(Channel, #'basic.publish'{routing_key = Queue}, #amqp_msg{payload = Payload}),
            receive
                {#'basic.deliver'{delivery_tag = Tag}, #amqp_msg{payload = Payload}} ->
                    ok = amqp_channel:cast(Channel, #'basic.ack'{delivery_tag = Tag})
            end
    end.

%% The users are u1, u2, ... at localhost, with the password p. Each registers itself the first time.
xmpp(Port, N) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}, {nodelay, true}]),
    User = "u" ++ integer_to_list(N),
    Stream = "<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' to='localhost' "
             "version='1.0'>",
    ask(Socket, Stream, <<"</stream:features>">>),
    ask(Socket, ["<iq type='set' id='r'><query xmlns='jabber:iq:register'><username>", User,
                 "</username><password>p</password></query></iq>"], <<"id='r'">>),
    ask(Socket, ["<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>",
                 base64:encode(iolist_to_binary([0, User, 0, "p"])), "</auth>"], <<"<success">>),
    ask(Socket, Stream, <<"</stream:features>">>),
    ask(Socket, "<iq type='set' id='b'>"
                "<bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'><resource>r</resource></bind></iq>", <<"</iq>">>),
    ask(Socket, "<presence/>", <<"<presence">>),
    Message = ["<message type='chat' to='", User, "@localhost/r'><body>",
               binary:copy(<<"x">>, 100), "</body></message>"],
    fun() -> ask(Socket, Message, <<"</message>">>) end.

%% Sends, and reads until this was received.
ask(Socket, Text, Expected) ->
    ok = gen_tcp:send(Socket, Text),
    answer(Socket, Expected, <<>>).

answer(Socket, Expected, Before) ->
    {ok, Data} = gen_tcp:recv(Socket, 0, 30000),
    All = <<Before/binary, Data/binary>>,
    case binary:match(All, Expected) of
        nomatch -> answer(Socket, Expected, All);
        _ -> ok
    end.
