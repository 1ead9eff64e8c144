%% @hidden
%% @doc What is valid in the place of an invalid option, in words.
-module(cats_options).
-export([valid/2, names/1, refuse/2, refuse_argument/2, raise/2, format_error/2]).

%% The functions of `cats' that have options, and the tools that have. Options of a fetch and of a tool are in a map.
-type function_() :: new | setopts | fetch | fetch_many | tool().
-type tool() :: web | trace | top | tables | growth | workload | settings.

%% @doc What the option of this function may be, or the names of all its options if it has none of that name.
-spec valid(function_(), Option :: term()) -> unicode:chardata().
valid(Function, Option) ->
    Name = case is_tuple(Option) andalso tuple_size(Option) > 0 of
               true -> element(1, Option);
               false -> Option
           end,
    case lists:keyfind(Name, 1, options(Function)) of
        {_, Words} -> Words;
        false -> lists:join(", ", [atom_to_list(Known) || Known <- names(Function)])
    end.

%% @doc The names of the options of a function.
-spec names(function_()) -> [atom()].
names(Function) -> [Name || {Name, _} <- options(Function)].

%% @doc Raises the error `{badarg, Option}' of a tool, which the shell explains.
-spec refuse(tool(), Option :: term()) -> no_return().
refuse(Tool, Option) -> raise(Tool, {badarg, Option}).

%% @doc Raises an error that names an option of a tool as its last element, which the shell explains.
-spec raise(tool(), Reason :: tuple()) -> no_return().
raise(Tool, Reason) -> raise_with(Reason, Tool).

%% @doc Raises the error `{badarg, Argument}' of a function for which this is valid, as the shell explains.
-spec refuse_argument(Argument :: term(), Valid :: string()) -> no_return().
refuse_argument(Argument, Valid) -> raise_with({badarg, Argument}, {valid, Valid}).

-spec raise_with(Reason :: tuple(), tool() | {valid, string()}) -> no_return().
raise_with(Reason, Cause) -> erlang:error(Reason, none, [{error_info, #{module => ?MODULE, cause => Cause}}]).

%% @private
%% @doc The explanation of such an error.
-spec format_error(Reason :: tuple(), erlang:stacktrace()) -> #{general => unicode:chardata()}.
format_error({bad_spec, {{_, _}, {_, _}}}, _) ->
    #{general => <<"an operation on element N needs N - 1 shapes in value, a counter the shape integer there, and an "
                   "update types of set and ordered_set only">>};
format_error(Reason, [{_, _, _, Info} | _]) ->
    #{cause := Cause} = proplists:get_value(error_info, Info),
    #{general => unicode:characters_to_binary(explain(Cause, element(tuple_size(Reason), Reason)))}.

explain({valid, Words}, _Argument) -> ["valid: ", Words];
explain(Tool, Options) when is_list(Options) -> ["not a map; valid options: ", valid(Tool, Options)];
explain(Tool, Option) -> ["valid: ", valid(Tool, Option)].

options(web) ->
    [{port, "port => 0 to 65535"},
     {ip, "ip => loopback or an address; any but that of the loopback needs the option token, too"},
     {token, "token => 8 to 200 letters, digits, - and _"}];
options(trace) ->
    [{nodes, "nodes => a list of one to ten different nodes"},
     {tables, "tables => all, or a list of tables of cats that exist; with nodes, of names"},
     {events,
      "events => a list of waits, reads, adaptations, calls, memory, tables, schedulers, processes and monitor"},
     {seconds, "seconds => 1 to 3600"},
     {ring, "ring => 16 to 1000000 events"}];
options(top) ->
    [{node, "node => the name of a node"},
     {sort, "sort => memory, size, growth, waits, reads_repeated, busy, operations or scans"},
     {interval, "interval => milliseconds of at least 1"},
     {lines, "lines => at least 1"},
     {rounds, "rounds => at least 1, or infinity"}];
options(tables) ->
    [{sort, "sort => memory, size, name or owner"}, rows()];
options(growth) ->
    [{sort, "sort => memory or size"}, rows()];
options(workload) ->
    [{operations, "operations => a list of {Operation, Share}, with lookup, member, insert, insert_new, delete, take,"
                  " next, prev, {lookup_element, N}, {update_element, N}, {update_counter, N} or a fun of 3 arguments"},
     {key, ["key => ", shapes()]},
     {value, ["value => a list of shapes, each ", shapes()]},
     {objects, "objects => at least 1"},
     {processes, "processes => at least 1"},
     {keys, "keys => uniform, {hot, a number of keys} or {zipf, a float above 0}"},
     {types, "types => a list of set, ordered_set, bag and duplicate_bag"},
     {seconds, "seconds => at least 0"}];
options(settings) ->
    [{reader_groups, "an integer of at least 1"},
     {registry, "lock_free or locked"},
     {vm_terms, "in_place or erl_nif"},
     {memory_limit, "bytes of at least 33554432, or infinity"},
     {reserve, "bytes of at least 0, below memory_limit by a sixteenth of it, which is 8 to 64 MiB"}];
options(fetch) ->
    options(fetch_many)
    ++ [{stale, time(stale)},
        {refresh_ahead, time(refresh_ahead)},
        {refresh_timeout, "refresh_timeout => 1 to 4294967295 milliseconds, or infinity"}];
options(fetch_many) ->
    [{returns, "returns => object or outcome"},
     {timeout, "timeout => 0 to 4294967295 milliseconds, or infinity"},
     {ttl, "ttl => 1 to 1099511627775 milliseconds, or infinity"},
     {retry, "retry => true or false"},
     {negative_ttl, time(negative_ttl)}];
options(setopts) ->
    [heir(), {protection, "{protection, public, protected or private}"}, {stats, boolean(stats)}, {ttl, lifetime(ttl)},
     limit(), evict()];
options(new) ->
    [{Flag, [atom_to_list(Flag), ", without a value"]}
     || Flag <- [set, ordered_set, bag, duplicate_bag, public, protected, private, named_table, compressed]]
    ++ [heir(),
        {keypos, "{keypos, an integer of at least 1}"},
        {write_concurrency, "{write_concurrency, true, false or auto}, or a power of two with engine linear_hash"},
        {read_concurrency, boolean(read_concurrency)},
        {decentralized_counters, boolean(decentralized_counters)},
        {stats, boolean(stats)},
        {ttl, lifetime(ttl)},
        {idle, lifetime(idle)},
        limit(),
        evict(),
        {share, "{share, 0 to 100 percent}"},
        {notify, "{notify, process} or {notify, process, options}, with events, send, queue, batch and interval: see"
                 " cats:notify_option()"},
        {snapshot_limit, "{snapshot_limit, bytes of at least 0}"},
        {engine, ["{engine, ", one_of([Name || #{name := Name} <- cats:engines()]), "}"]},
        {lock, "{lock, rw, dr_mcs, cc_synch, mrqd or ets_pointer}"},
        {delegate, "{delegate, wait, malloc or copy}"},
        {static_stack, boolean(static_stack)},
        {split, "{split, an integer of at least 0}"},
        {join, "{join, an integer of at least 0}"},
        {base_lock, "{base_lock, mutex or rw}"}].

heir() -> {heir, "{heir, process}, {heir, process, data}, {heir, none} or {heir, keep}"}.

shapes() ->
    "integer, atom, float, binary, {binary, Bytes}, {tuple, N}, {list, N}, {map, N} or a fun of a number".

rows() -> {limit, "limit => rows of at least 0, or infinity"}.

time(Name) -> io_lib:format("~s => 0 to 1099511627775 milliseconds", [Name]).

limit() -> {limit, "{limit, {objects, N}} or {limit, {bytes, N}}, with an integer from 1 to 576460752303423487"}.

evict() -> {evict, "{evict, s3_fifo, sieve, clock or none}"}.

boolean(Name) -> io_lib:format("{~s, true or false}", [Name]).

lifetime(Name) -> io_lib:format("{~s, 1 to 1099511627775 milliseconds, or infinity}", [Name]).

one_of(Names) ->
    {Others, [Last]} = lists:split(length(Names) - 1, [atom_to_list(Name) || Name <- Names]),
    [lists:join(", ", Others), " or ", Last].
