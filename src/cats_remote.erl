%% @hidden
%% @doc Calls on other nodes. The shell explains why one cannot be made.
-module(cats_remote).
-export([call/4, format_error/2]).

%% @doc The same as `erpc:call/4'. Where that says that the node cannot be asked, the error has an explanation.
-spec call(node(), module(), Function :: atom(), Arguments :: [term()]) -> term().
call(Node, Module, Function, Arguments) ->
    try
        erpc:call(Node, Module, Function, Arguments)
    catch
        error:{erpc, _} = Reason ->
            raise(Reason, [Node, Module, Function, Arguments]);
        error:{exception, undef, [{Module, Function, _, _}]} = Reason ->
            raise(Reason, [Node, Module, Function, Arguments])
    end.

-spec raise(Reason :: term(), [term()]) -> no_return().
raise(Reason, Called) -> erlang:error(Reason, Called, [{error_info, #{module => ?MODULE}}]).

%% @private
%% @doc The explanation of such an error.
-spec format_error(Reason :: tuple(), erlang:stacktrace()) -> #{general => unicode:chardata()}.
format_error(Reason, [{_, _, [Node | _], _} | _]) ->
    #{general => unicode:characters_to_binary(explain(Reason, Node))}.

explain({erpc, noconnection}, Node) when node() =:= nonode@nohost ->
    io_lib:format("node ~tp cannot be reached, as this one has no name: start it with -name or -sname", [Node]);
explain({erpc, noconnection}, Node) ->
    io_lib:format("node ~tp is down or cannot be reached: start it, or check its name, host and cookie", [Node]);
explain({erpc, _}, Node) ->
    io_lib:format("not the name of a node: ~0tP", [Node, 20]);
explain({exception, undef, _}, Node) ->
    io_lib:format("node ~tp has no cats of this version: add it to the code path there", [Node]).
