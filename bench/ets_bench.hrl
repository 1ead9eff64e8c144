%% The workload of ets_bench, from "On the Scalability of the Erlang Term Storage" (section 5) and "More
%% Scalable Ordered Set for ETS Using Adaptation" (section 2.3): one loop over prepared operations. A module
%% that defines TABLES and includes this file is the workload over that table module, with static calls, as an
%% application would make them.
%%
%% An operation is 32 bits: the key times four, plus 0 for an insert, 1 for a delete, 2 for a lookup. They
%% come in a binary, so that reading them costs the processor's caches 4 bytes an operation, and the garbage
%% collector nothing.

-export([new/2, delete/1, run/2]).

%% @doc Makes a table.
new(Name, Options) -> ?TABLES:new(Name, Options).

%% @doc Deletes a table.
delete(Table) -> ?TABLES:delete(Table).

%% @doc Runs the operations on the table, and returns when it began and ended, in native units of monotonic
%% time.
run(Table, Operations) ->
    Start = erlang:monotonic_time(),
    ok = loop(Operations, Table),
    {Start, erlang:monotonic_time()}.

loop(<<Code:32, Operations/binary>>, Table) ->
    Key = Code bsr 2,
    case Code band 3 of
        0 -> ?TABLES:insert(Table, {Key});
        1 -> ?TABLES:delete(Table, Key);
        2 -> ?TABLES:lookup(Table, Key)
    end,
    loop(Operations, Table);
loop(<<>>, _Table) ->
    ok.
