%% What several suites need.
-module(cats_test_lib).
-export([root/0, native_calls/2, ensure_proper/0, environment/2, rounds/1, remarks/2, invalid_option/2,
         in_words_of_ets/1, start/1, new/3, only_cats/1, tables/0, with_memory/1, types/0, types/1, policies/0,
         spawn_owner/1, start_much/0, read_much/0, is_long/0, run/2, run_in/2, in_process/1, stop/2, down/1,
         eventually/1, eventually/2, clock/0, flights/0, flight_to/2, together/1, forever/1, repeat/1, repeat_for/2,
         all_objects/2, cause/1, with_input/2, one_of/1, start_peer/1, in_small_vm/2, fill_processes/0]).

-include("cats_failure.hrl").

%% @doc The directory of the project.
-spec root() -> file:filename().
root() -> filename:dirname(filename:dirname(filename:dirname(proplists:get_value(source, module_info(compile))))).

%% @doc For init_per_suite/1: chooses the tables to test. By default that is cats with the chosen engine (cats_chosen).
%% With TABLES=ets in the environment it is ets, which shows that the tests require nothing that ets does not do.
-spec start(Config) -> Config.
start(Config) ->
    Tables = list_to_atom(os:getenv("TABLES", "cats")),
    persistent_term:put(?MODULE, Tables),
    Tables =:= cats andalso application:ensure_all_started(cats),
    Tables =:= cats andalso cats_chosen:choose(environment),
    Config.

%% @doc The module under test.
-spec tables() -> module().
tables() ->
    case persistent_term:get(?MODULE, cats) of
        cats -> cats_chosen:module();
        Tables -> Tables
    end.

%% @doc As Module:new/2, for tests that name both modules: a table of cats has the engine under test.
-spec new(ets | cats, atom(), [cats:option()]) -> ets:table() | cats:table().
new(ets, Name, Options) -> ets:new(Name, Options);
new(cats, Name, Options) -> cats_chosen:new(Name, Options).

%% @doc For init_per_testcase/2 of what only cats does.
-spec only_cats(Config) -> Config | {skip, string()}.
only_cats(Config) ->
    case tables() of
        ets -> {skip, "only cats does this"};
        _ -> Config
    end.

%% @doc For init_per_testcase/2 of what reads how much memory the VM took. A VM that takes it from C's allocator does
%% not know.
-spec with_memory(Config) -> Config | {skip, string()}.
with_memory(Config) ->
    try erlang:memory(binary) of
        _Bytes -> Config
    catch
        error:notsup -> {skip, "this VM does not count its memory"}
    end.

%% @doc The table types to test.
-spec types() -> [atom()].
types() -> types([set, ordered_set, bag, duplicate_bag]).

%% @doc Those of the types that are to be tested.
-spec types([atom()]) -> [atom()].
types(Wanted) ->
    case tables() of
        ets -> Wanted;
        _ -> cats_chosen:types(Wanted)
    end.

%% @doc The policies of eviction: those of the type cats:policy/0, without `none'.
-spec policies() -> [cats:policy(), ...].
policies() ->
    case persistent_term:get({?MODULE, policies}, []) of
        [] ->
            {ok, {_, [{abstract_code, {_, Forms}}]}} = beam_lib:chunks(code:which(cats), [abstract_code]),
            [Names] = [Names || {attribute, _, type, {policy, {type, _, union, Names}, []}} <- Forms],
            persistent_term:put({?MODULE, policies}, [Name || {atom, _, Name} <- Names, Name =/= none]),
            policies();
        Names -> Names
    end.

%% @doc Starts a process that runs the function and then waits for run_in/2 and stop/2; returns its result
%% too.
-spec spawn_owner(fun(() -> Result)) -> {pid(), Result}.
spawn_owner(Function) ->
    Caller = self(),
    Pid = spawn(fun() -> Caller ! {self(), Function()}, serve() end),
    receive {Pid, Result} -> {Pid, Result} end.

serve() ->
    receive
        {run, From, Reference, Function} ->
            From ! {Reference, Function()},
            serve();
        {stop, normal} -> ok;
        {stop, Reason} -> exit(Reason)
    end.

%% A table of which transactions read much.
-define(MUCH, cats_test_lib).

%% @doc Starts a process that has the table for read_much/0.
-spec start_much() -> pid().
start_much() ->
    {Owner, ?MUCH} = spawn_owner(fun() -> cats:new(?MUCH, [named_table, public]) end),
    Owner.

%% @doc Reads keys that nobody writes until the transaction of the caller is a long one.
-spec read_much() -> true.
read_much() ->
    [[] = cats_transaction:lookup(?MUCH, N) || N <- lists:seq(1, 30)],
    true = is_long().

%% @doc Whether the transaction of the caller is a long one.
-spec is_long() -> boolean().
is_long() -> is_reference(element(tuple_size(get('$cats_transaction')), get('$cats_transaction'))).

%% @doc Runs the function in such a process, and returns its result.
-spec run_in(pid(), fun(() -> Result)) -> Result.
run_in(Pid, Function) ->
    Reference = monitor(process, Pid),
    Pid ! {run, self(), Reference, Function},
    receive
        {Reference, Result} -> demonitor(Reference, [flush]), Result;
        {'DOWN', Reference, _, _, Reason} -> error({died, Reason})
    end.

%% @doc Runs the function in a process of its own, so that tables, messages and references left behind go with it, and
%% returns its result.
-spec in_process(fun(() -> Result)) -> Result.
in_process(Function) ->
    {Pid, Monitor} = spawn_monitor(fun() -> exit({result, Function()}) end),
    receive
        {'DOWN', Monitor, process, Pid, {result, Result}} -> Result;
        {'DOWN', Monitor, process, Pid, Reason} -> error(Reason)
    end.

%% @doc Ends a process and returns when it is dead; `kill' kills it.
-spec stop(pid(), term()) -> ok.
stop(Pid, kill) ->
    Monitor = monitor(process, Pid),
    exit(Pid, kill),
    receive {'DOWN', Monitor, _, _, _} -> ok end;
stop(Pid, Reason) ->
    Monitor = monitor(process, Pid),
    Pid ! {stop, Reason},
    receive {'DOWN', Monitor, _, _, _} -> ok end.

%% @doc A process that is dead.
-spec down(term()) -> pid().
down(Reason) ->
    {Pid, Monitor} = spawn_monitor(fun() -> exit(Reason) end),
    receive {'DOWN', Monitor, _, _, _} -> Pid end.

%% @doc Waits until the function returns true, for a minute or longer.
-spec eventually(fun(() -> boolean())) -> true.
eventually(Condition) -> eventually(Condition, 60000).

-spec eventually(fun(() -> boolean()), Milliseconds :: integer()) -> true.
eventually(Condition, Milliseconds) -> eventually(Condition, Milliseconds, 1).

%% Most of what must come comes soon.
eventually(Condition, Milliseconds, Pause) ->
    case Condition() of
        true -> true;
        _ when Milliseconds > 0 ->
            timer:sleep(Pause),
            eventually(Condition, Milliseconds - Pause, min(2 * Pause, 10));
        _ -> error(never_happened)
    end.

%% @doc The microseconds of the system's clock, which is that of the library. The clock of the VM may be faster or
%% slower by a percent, to come nearer to the time of day.
-spec clock() -> integer().
clock() ->
    {time, Time} = lists:keyfind(time, 1, erlang:system_info(os_monotonic_time_source)),
    erlang:convert_time_unit(Time, native, microsecond).

%% @doc The processes that stand for the making of an object, see cats_flight.
-spec flights() -> [pid()].
flights() ->
    [Pid || Pid <- processes(), {initial_call, {Module, fly, _}} <- [process_info(Pid, initial_call)],
            Module =:= cats_fetch orelse Module =:= cats_fetch_many].

%% @doc The flight to a key of a table, as the native library tells it. Asks again where another process is in the way,
%% and on a dirty scheduler for a key that is too long for a normal one.
-spec flight_to(Table :: cats:tab(), Key :: term()) -> term().
flight_to(Table, Key) ->
    case cats_nif:flight_to(Table, Key) of
        ?FAILED(busy, _) -> flight_to(Table, Key);
        ?FAILED(dirty, Arguments) -> cats_nif:dirty(flight_to, Arguments);
        Flight -> Flight
    end.

%% @doc Runs a program of the PATH. Returns its exit status and all that it wrote, or `none' if there is no such
%% program.
-spec run(Program :: string(), Arguments :: [string()]) -> {Status :: integer(), Output :: string()} | none.
run(Program, Arguments) ->
    case os:find_executable(Program) of
        false -> none;
        Found -> output(open_port({spawn_executable, Found}, [{args, Arguments}, exit_status, stderr_to_stdout]), [])
    end.

output(Port, Output) ->
    receive
        {Port, {data, Data}} -> output(Port, [Output | Data]);
        {Port, {exit_status, Status}} -> {Status, lists:flatten(Output)}
    end.

%% @doc Runs the functions at the same time, each in a process, and returns their results.
-spec together([fun(() -> Result)]) -> [Result].
together(Functions) ->
    Caller = self(),
    Workers = [spawn_monitor(fun() ->
                                     receive go -> Caller ! {self(), Function()} end
                             end) || Function <- Functions],
    [Pid ! go || {Pid, _} <- Workers],
    [receive
         {Pid, Result} -> demonitor(Monitor, [flush]), Result;
         {'DOWN', Monitor, _, _, Reason} -> error(Reason)
     end || {Pid, Monitor} <- Workers].

%% @doc Calls the function without end.
-spec forever(fun(() -> term())) -> no_return().
forever(Fun) ->
    Fun(),
    forever(Fun).

%% @doc Each function runs again and again in a process of its own, for half a second or so. Returns how often each ran.
-spec repeat([fun(() -> term())]) -> [pos_integer()].
repeat(Functions) ->
    Milliseconds = environment("TRANSACTIONS_MS", rounds(500)),
    Run = fun(Function) ->
                  spawn_monitor(fun() -> exit({ran, repeat_for(Milliseconds, fun(_) -> Function() end)}) end)
          end,
    Counts = [receive
                  {'DOWN', Monitor, process, Pid, {ran, Count}} -> Count;
                  {'DOWN', Monitor, process, Pid, Reason} -> ct:fail(Reason)
              end || {Pid, Monitor} <- lists:map(Run, Functions)],
    ct:log("ran ~p times", [Counts]),
    Counts.

%% @doc Calls the function with 1, 2, 3 ... for so many milliseconds; returns the number of calls.
-spec repeat_for(integer(), fun((pos_integer()) -> term())) -> non_neg_integer().
repeat_for(Milliseconds, Function) ->
    repeat_until(erlang:monotonic_time(millisecond) + Milliseconds, Function, 1).

repeat_until(End, Function, N) ->
    case erlang:monotonic_time(millisecond) < End of
        true ->
            Function(N),
            repeat_until(End, Function, N + 1);
        false -> N - 1
    end.

%% @doc The objects met on the way through the table by `next', `prev', `next_lookup' or `prev_lookup'.
-spec all_objects(atom(), Table :: term()) -> [[tuple()]].
all_objects(Step, Table) ->
    Tables = tables(),
    First = case Step of
                next -> first;
                prev -> last;
                next_lookup -> first_lookup;
                prev_lookup -> last_lookup
            end,
    walk(Tables, Step, Table, Tables:First(Table)).

walk(_, _, _, '$end_of_table') -> [];
walk(Tables, Step, Table, {Key, Objects}) when Step =:= next_lookup; Step =:= prev_lookup ->
    [Objects | walk(Tables, Step, Table, Tables:Step(Table, Key))];
walk(Tables, Step, Table, Key) ->
    [[{Key}] | walk(Tables, Step, Table, Tables:Step(Table, Key))].

%% @doc Why the call fails with badarg, as error_info says it; `ok' if it does not fail.
-spec cause(fun(() -> term())) -> atom().
cause(Function) ->
    try Function() of
        _ -> ok
    catch error:badarg:Stack ->
            {_, _, _, Information} = hd(Stack),
            maps:get(cause, proplists:get_value(error_info, Information, #{}), none)
    end.

%% @doc The remarks on the arguments of a call of `cats' that fails with badarg.
-spec remarks(Function :: atom(), Arguments :: [term()]) -> #{pos_integer() | general => binary()} | {returned, term()}.
remarks(Function, Arguments) ->
    try
        {returned, apply(cats, Function, Arguments)}
    catch
        error:Reason:Stack ->
            {cats, Function, Arguments, Info} = hd(Stack),
            #{error_info := #{module := Module}} = maps:from_list(Info),
            maps:map(fun(_, Text) -> unicode:characters_to_binary(Text) end, Module:format_error(Reason, Stack))
    end.

%% @doc The remark on an invalid option of this function.
-spec invalid_option(Function :: atom(), Option :: term()) -> binary().
invalid_option(Function, Option) when Function =:= new; Function =:= setopts ->
    unicode:characters_to_binary(io_lib:format("invalid option: ~0tp (valid: ~ts)",
                                               [Option, cats_options:valid(Function, Option)]));
invalid_option(Function, {Name, Value} = Option) when Function =:= fetch; Function =:= fetch_many ->
    unicode:characters_to_binary(io_lib:format("invalid option: ~0tp => ~0tp (valid: ~ts)",
                                               [Name, Value, cats_options:valid(Function, Option)]));
invalid_option(_Function, Option) ->
    unicode:characters_to_binary(io_lib:format("invalid option: ~0tp", [Option])).

%% @doc A remark of cats, which says "a table of cats" where ets says "an ETS table". Spaces may be missing.
-spec in_words_of_ets(unicode:chardata()) -> binary().
in_words_of_ets(Text) ->
    Ets = re:replace(Text, "an( ?)existing( ?)table ?of ?cats", "an\\1existing\\2ETS\\2table", [unicode, global]),
    re:replace(Ets, "refers( ?)to( ?)a( ?)table ?of ?cats", "refers\\1to\\2an\\2ETS\\3table",
               [unicode, global, {return, binary}]).

%% @doc Starts a VM with these arguments, however long that takes. It ends with the caller.
-spec start_peer([string()]) -> pid().
start_peer(Arguments) ->
    {ok, Peer, _Node} = peer:start_link(#{connection => standard_io, wait_boot => infinity, args => Arguments}),
    Peer.

%% @doc Calls the function, which has no arguments, in a VM that has room for few processes.
-spec in_small_vm(module(), Function :: atom()) -> ok.
in_small_vm(Module, Function) ->
    Peer = start_peer(["+P", "1024", "-pa" | code:get_path()]),
    {ok, _} = peer:call(Peer, application, ensure_all_started, [cats], infinity),
    %% To load one later takes processes.
    {ok, Modules} = peer:call(Peer, application, get_key, [cats, modules], infinity),
    ok = peer:call(Peer, code, ensure_modules_loaded, [[Module | Modules]], infinity),
    %% The VM tells of each process for which it has no room.
    ok = peer:call(Peer, logger, set_primary_config, [level, none], infinity),
    ok = peer:call(Peer, Module, Function, [], infinity),
    peer:stop(Peer).

%% @doc Processes that leave no room for another one.
-spec fill_processes() -> [pid()].
fill_processes() ->
    try spawn(fun() -> timer:sleep(infinity) end) of
        Pid -> [Pid | fill_processes()]
    catch
        error:system_limit -> []
    end.

%% @doc Makes PropEr usable. A PropEr compiled by an OTP too old for the running one (a distribution's
%% package) is compiled again, in memory, from the source in its debug information.
-spec ensure_proper() -> ok.
ensure_proper() ->
    #{level := Level} = logger:get_primary_config(),
    logger:set_primary_config(level, none),
    try
        load_proper()
    after
        logger:set_primary_config(level, Level)
    end.

load_proper() ->
    case code:ensure_loaded(proper_types) of
        {module, _} -> ok;
        {error, badfile} ->
            [recompile(File) || File <- beams(filename:dirname(code:which(proper_types)))],
            ok;
        {error, nofile} ->
            case filelib:wildcard("/usr/lib/erlang/lib/proper-*/ebin") of
                [Directory | _] -> true = code:add_pathz(Directory), load_proper();
                [] -> error(proper_is_not_installed)
            end
    end.

beams(Directory) ->
    filelib:wildcard(filename:join(Directory, "{proper,vararg}*.beam")).

recompile(File) ->
    {ok, {Module, [{abstract_code, {_, Forms}}]}} = beam_lib:chunks(File, [abstract_code]),
    {ok, Module, Binary} = compile:forms(Forms, []),
    {module, Module} = code:load_binary(Module, File, Binary).

%% @doc The number in the environment variable, or the default.
-spec environment(string(), number()) -> number().
environment(Name, Default) ->
    case os:getenv(Name) of
        Unset when Unset =:= false; Unset =:= "" -> Default;
        Value -> list_to_integer(Value)
    end.

%% @doc How much a random test does, where `make test' does as much as this: rounds, calls or milliseconds. THOROUGH=n
%% in the environment makes it n times as much.
-spec rounds(pos_integer()) -> pos_integer().
rounds(Number) -> Number * environment("THOROUGH", 1).

%% @doc Runs the function with answers for its questions on the terminal. Returns what it wrote, and its result.
-spec with_input([string()], fun(() -> Result)) -> {Written :: string(), Result}.
with_input(Answers, Function) ->
    Before = group_leader(),
    Caller = self(),
    Terminal = spawn_link(fun() -> terminal(Answers, [], Caller) end),
    group_leader(Terminal, self()),
    Result = try Function() after group_leader(Before, self()) end,
    Terminal ! stop,
    receive {Terminal, Written} -> {Written, Result} end.

terminal(Answers, Written, Caller) ->
    receive
        stop ->
            Caller ! {self(), unicode:characters_to_list(lists:reverse(Written))};
        {io_request, From, Reference, {put_chars, Encoding, Chars}} ->
            From ! {io_reply, Reference, ok},
            terminal(Answers, [unicode:characters_to_list(Chars, Encoding) | Written], Caller);
        {io_request, From, Reference, {put_chars, Encoding, Module, Function, Arguments}} ->
            From ! {io_reply, Reference, ok},
            Chars = apply(Module, Function, Arguments),
            terminal(Answers, [unicode:characters_to_list(Chars, Encoding) | Written], Caller);
        {io_request, From, Reference, {get_line, _Encoding, Prompt}} ->
            {Answer, Left} = case Answers of
                                 [] -> {eof, []};
                                 [First | Others] -> {First, Others}
                             end,
            From ! {io_reply, Reference, Answer},
            terminal(Left, [io_lib:format("~s", [Prompt]) | Written], Caller);
        {io_request, From, Reference, _Other} ->
            From ! {io_reply, Reference, {error, request}},
            terminal(Answers, Written, Caller)
    end.

%% @doc How often some native functions are called, and the result.
native_calls(Names, Function) ->
    Calls = [Call || {Name, _} = Call <- cats_nif:module_info(exports), lists:member(Name, Names)],
    [1 = erlang:trace_pattern({cats_nif, Name, Arity}, true, [local, call_count]) || {Name, Arity} <- Calls],
    try Function() of
        Result ->
            Counts = [erlang:trace_info({cats_nif, Name, Arity}, call_count) || {Name, Arity} <- Calls],
            {lists:sum([Count || {call_count, Count} <- Counts]), Result}
    after
        [erlang:trace_pattern({cats_nif, Name, Arity}, false, [local, call_count]) || {Name, Arity} <- Calls]
    end.

%% @doc One element by chance, from the seed of the process.
-spec one_of([Element, ...]) -> Element.
one_of(List) -> lists:nth(rand:uniform(length(List)), List).
