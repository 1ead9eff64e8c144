%% Work in a VM of its own, for figures that depend on the VM's past, such as how much memory it has from the
%% operating system.
-module(bench_child).
-export([result/4, main/1]).

%% @doc The value of a function of a module in a new VM with these emulator flags.
-spec result(Flags :: string(), module(), Function :: atom(), [term()]) -> term().
result(Flags, Module, Function, Arguments) ->
    Paths = lists:append([["-pa", filename:dirname(code:which(M))] || M <- [?MODULE, cats]]),
    Call = binary_to_list(base64:encode(term_to_binary({Module, Function, Arguments}))),
    Port = open_port({spawn_executable, filename:join([code:root_dir(), "bin", "erl"])},
                     [binary, exit_status, use_stdio,
                      {args, string:lexemes(Flags, " ") ++ ["-noinput" | Paths]
                           ++ ["-run", atom_to_list(?MODULE), "main", Call]}]),
    binary_to_term(base64:decode(collect(Port, <<>>))).

collect(Port, Printed) ->
    receive
        {Port, {data, Data}} -> collect(Port, <<Printed/binary, Data/binary>>);
        {Port, {exit_status, 0}} -> Printed;
        {Port, {exit_status, Status}} -> error({child_vm, Status, Printed})
    end.

%% @doc In the new VM: prints the value, and halts.
-spec main([string()]) -> pid().
main([Call]) ->
    {Module, Function, Arguments} = binary_to_term(base64:decode(Call)),
    spawn(fun() ->
                  Value = apply(Module, Function, Arguments),
                  io:put_chars(base64:encode(term_to_binary(Value))),
                  halt(0)
          end).
