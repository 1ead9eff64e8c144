%% The memory of tables, and the memory that the operating system has given to the process.
-module(bench_memory).
-export([held/1, resident/0, machine/0]).

%% @doc Bytes that all tables of `ets' or `cats' hold, binaries that they share with processes not counted.
-spec held(ets | cats) -> non_neg_integer().
held(ets) -> erlang:memory(ets);
held(cats) -> cats:memory().

%% @doc Bytes of memory that the process has (its resident set).
-spec resident() -> non_neg_integer().
resident() ->
    {ok, Text} = file:read_file("/proc/self/statm"),
    [_, Pages | _] = string:lexemes(Text, " "),
    binary_to_integer(Pages) * 4096.

%% @doc Bytes of memory of the machine.
-spec machine() -> pos_integer().
machine() ->
    {ok, Text} = file:read_file("/proc/meminfo"),
    ["MemTotal:", Kilobytes | _] = string:lexemes(binary_to_list(Text), " \n"),
    list_to_integer(Kilobytes) * 1024.
