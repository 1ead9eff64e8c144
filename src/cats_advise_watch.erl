%% @private
%% Watches the tables of `ets' in the node where it runs: what they are, and who calls what on them. cats_advise sends
%% this module there, so it uses nothing but OTP.
%%
%% It looks at a table, which takes some tenth of a millisecond, and waits a hundred times as long. Once a
%% second it traces for some milliseconds. The match specification counts its messages in the trace control word, and
%% sends no more than so many, however often processes call. Schedulers that count at the same instant may count as one.
%% Outside of these milliseconds no call of `ets' has a breakpoint.
-module(cats_advise_watch).
-export([start/3]).

%% In a second: processes that are traced, the calls that they send, and the milliseconds.
-define(PROCESSES, 200).
-define(CALLS, 400).
-define(WINDOW, 10).
%% Of a core.
-define(SHARE, 0.01).
-define(MOST_TABLES, 500).
%% Milliseconds after which the module is purged.
-define(PURGED, 1000).
%% Milliseconds that the code server has for that.
-define(PATIENCE, 60000).
%% Milliseconds between two tables.
-define(REST, 10).
-define(SAMPLES, 10).
%% Objects of tables with more words an object are not read, as they would be copied.
-define(MOST_WORDS, 2000).

%% @doc In a process of its own: watches for so many seconds, and sends the caller `{Pid, watched, Result}'. Ends
%% without a trace when the caller or its node does. With `Sent', the module leaves the node in the end.
-spec start(Caller :: pid(), Seconds :: pos_integer(), Sent :: boolean()) -> pid().
start(Caller, Seconds, Sent) ->
    spawn(fun() ->
                  monitor(process, Caller),
                  Result = try watch(Caller, Seconds) after Sent andalso leave() end,
                  Caller ! {self(), watched, Result}
          end).

%% The code of this process is purged when it has ended. A code server that stands still keeps nobody for ever.
leave() ->
    {Pid, Monitor} = spawn_monitor(fun() ->
                                           _ = code:purge(?MODULE),
                                           true = code:delete(?MODULE),
                                           timer:apply_after(?PURGED, code, purge, [?MODULE])
                                   end),
    receive {'DOWN', Monitor, process, Pid, _} -> ok after ?PATIENCE -> ok end.

watch(Caller, Seconds) ->
    case erlang:trace_info({ets, lookup, 2}, traced) of
        {traced, false} ->
            End = now_us() + Seconds * 1_000_000,
            Names = ets:all(),
            Chosen = largest(Caller, Names),
            Before = [{Table, Size} || Table <- Chosen, Size <- [ets:info(Table, size)], is_integer(Size)],
            Waited = waited(),
            {Calls, Windows} = windows(Caller, End, [], 0),
            Waits = waits(Waited, waited(), Seconds),
            Tables = lists:append([begin sleep(Caller, ?REST), table(Table, Size) end || {Table, Size} <- Before]),
            #{number => length(Names), windows => Windows,
              tables => [maps:merge(with_calls(Table, Calls), Waits(Table)) || Table <- Tables],
              calls => length(Calls), otp => erlang:system_info(otp_release),
              schedulers => erlang:system_info(schedulers_online)};
        {traced, _} ->
            {error, traced}
    end.

%% The tables with the most memory, if there are many.
largest(Caller, Names) ->
    Memory = [{Words, Name} || {N, Name} <- lists:zip(lists:seq(1, length(Names)), Names),
                               Words <- [memory(Caller, N, Name)], is_integer(Words)],
    [Name || {_, Name} <- lists:sublist(lists:reverse(lists:keysort(1, Memory)), ?MOST_TABLES)].

memory(Caller, N, Name) ->
    _ = [sleep(Caller, ?REST) || N rem 50 =:= 0],
    ets:info(Name, memory).

sleep(Caller, Milliseconds) ->
    receive {'DOWN', _, process, Caller, _} -> exit(normal)
    after Milliseconds -> ok
    end.

now_us() -> erlang:monotonic_time(microsecond).

%%----------------------------------------------------------------------------------------------------------------------
%% Waiting

%% How many nanoseconds threads have waited for the locks of tables with each name. `none' if the VM does not count
%% that: it does if it was built for it and started with `-emu_type lcnt'.
waited() ->
    case erlang:system_info(build_type) =:= lcnt andalso lists:member(db, erts_debug:lcnt_control(mask)) of
        true ->
            {locks, Locks} = lists:keyfind(locks, 1, erts_debug:lcnt_collect()),
            lists:foldl(fun({Lock, Name, _Type, Stats}, Sums) when Lock =:= db_tab; Lock =:= db_hash_slot ->
                                Sums#{Name => maps:get(Name, Sums, 0) + lists:sum([waited(Stat) || Stat <- Stats])};
                           (_, Sums) ->
                                Sums
                        end, #{}, Locks);
        false ->
            none
    end.

waited({_Place, {_Tries, _Collisions, {Seconds, Nanoseconds, _Times}}, _Histogram}) ->
    1_000_000_000 * Seconds + Nanoseconds.

%% What is known of a table: the microseconds of a second. Tables with the same name are one here.
waits(none, _, _) -> fun(_) -> #{} end;
waits(Before, After, Seconds) ->
    fun(#{name := Name}) ->
            More = maps:get(Name, After, 0) - maps:get(Name, Before, 0),
            #{waited => max(0, More) div (1000 * Seconds)}
    end.

%%----------------------------------------------------------------------------------------------------------------------
%% Calls

windows(Caller, End, Calls, Number) ->
    Begin = now_us(),
    case Begin >= End of
        true ->
            {Calls, Number};
        false ->
            More = window(),
            Spent = now_us() - Begin - ?WINDOW * 1000,
            %% At random, as processes that work once a second would always or never be seen.
            Rest = max(1_000_000, Spent / ?SHARE) + rand:uniform(500_000),
            sleep(Caller, max(1, round(min(End - now_us(), Rest) / 1000))),
            windows(Caller, End, More ++ Calls, Number + 1)
    end.

window() ->
    Old = erlang:system_flag(trace_control_word, 0),
    try traced()
    after
        _ = erlang:trace_pattern({ets, '_', '_'}, false, [global]),
        _ = erlang:system_flag(trace_control_word, Old)
    end,
    Delivered = erlang:trace_delivered(all),
    receive {trace_delivered, all, Delivered} -> calls([]) end.

traced() ->
    trace('_', '_', [['$1' | Rest] || Rest <- [[], ['_'], ['_', '_'], ['_', '_', '_']]]),
    [trace(Fold, 3, [['_', '_', '$1']]) || Fold <- [foldl, foldr]],
    Armed = [Pid || Pid <- some(processes()), Pid =/= self(), arm(Pid)],
    timer:sleep(?WINDOW),
    [disarm(Pid) || Pid <- Armed],
    ok.

%% Sends the table, which is the argument `$1'.
trace(Function, Arity, Heads) ->
    Count = {set_tcw, {'+', {get_tcw}, 1}},
    Spec = [{Head, [{'<', {get_tcw}, ?CALLS}], [Count, {message, '$1'}]} || Head <- Heads],
    erlang:trace_pattern({ets, Function, Arity}, Spec, [global]).

%% Not those that another tracer has.
arm(Pid) ->
    try erlang:trace(Pid, true, [call, arity]) =:= 1
    catch error:badarg -> false
    end.

%% It may have ended meanwhile.
disarm(Pid) ->
    try erlang:trace(Pid, false, [call, arity])
    catch error:badarg -> 0
    end.

calls(Calls) ->
    receive {trace, Pid, call, {ets, Function, _}, Table} -> calls([{Table, Function, Pid} | Calls])
    after 0 -> Calls
    end.

%% So many at random.
some(Pids) ->
    Number = length(Pids),
    [Pid || Pid <- Pids, rand:uniform(Number) =< ?PROCESSES].

%%----------------------------------------------------------------------------------------------------------------------
%% Tables

%% Nothing of a table that is gone. A named table is called by its name or by its identifier.
table(Table, Before) ->
    Info = ets:info(Table),
    case Info =/= undefined andalso maps:from_list(Info) of
        false ->
            [];
        #{size := Size, memory := Words, owner := Owner, protection := Protection} = Items ->
            [maps:merge(maps:with([name, type, keypos, protection, named_table, compressed, heir, size, memory,
                                   write_concurrency, read_concurrency, decentralized_counters], Items),
                        #{table => Table, id => id(Table), before => Before,
                          owner => owner(Owner, maps:get(name, Items)),
                          samples => samples(Table, Protection, Size, Words, maps:get(keypos, Items))})]
    end.

id(Table) when is_atom(Table) -> ets:whereis(Table);
id(Table) -> Table.

owner(Pid, Table) ->
    Name = case process_info(Pid, registered_name) of
               {registered_name, Registered} -> Registered;
               _ -> undefined
           end,
    Module = module(Pid),
    Application = case application:get_application(Pid) of
                      {ok, Found} -> Found;
                      undefined -> of_module(Module)
                  end,
    #{pid => pid_to_list(Pid), name => Name, module => Module, application => Application,
      otp => is_otp(Name, Application) andalso not is_of_program(Application, Table)}.

%% The callback module of a process of a behaviour.
module(Pid) ->
    try proc_lib:translate_initial_call(Pid) of
        {Module, _, _} when Module =/= proc_lib, Module =/= erlang -> Module;
        _ -> undefined
    catch _:_ -> undefined
    end.

of_module(Module) ->
    case application:get_application(Module) of
        {ok, Found} -> Found;
        undefined -> undefined
    end.

%% Processes that belong to no application are those that start the system.
is_otp(Name, undefined) ->
    lists:member(Name, [init, code_server, application_controller, erl_prim_loader, erts_code_purger, logger]);
is_otp(_, Application) ->
    case code:lib_dir(Application) of
        {error, _} -> false;
        Directory -> lists:prefix(code:root_dir(), Directory)
    end.

%% Mnesia keeps the tables of programs beside its own ones.
is_of_program(mnesia, schema) -> false;
is_of_program(mnesia, Table) -> not lists:prefix("mnesia_", atom_to_list(Table));
is_of_program(_, _) -> false.

samples(_, private, _, _, _) -> [];
samples(_, _, 0, _, _) -> [];
samples(_, _, Size, Words, _) when Words div Size > ?MOST_WORDS -> [];
samples(Table, _, _, _, KeyPos) ->
    Now = erlang:system_time(second),
    try ets:select(Table, [{'_', [], ['$_']}], ?SAMPLES) of
        {Objects, _} -> [sample(Object, KeyPos, Now) || Object <- Objects];
        '$end_of_table' -> []
    catch error:badarg -> []
    end.

%% What an object looks like. No value leaves the node.
sample(Object, KeyPos, Now) ->
    Others = tuple_to_list(erlang:delete_element(KeyPos, Object)),
    #{key => shape(element(KeyPos, Object)), values => [shape(Element) || Element <- Others],
      words => erts_debug:flat_size(Object), times => length([time || Element <- Others, is_time(Element, Now)])}.

shape(Term) when is_integer(Term) -> integer;
shape(Term) when is_atom(Term) -> atom;
shape(Term) when is_float(Term) -> float;
shape(Term) when is_binary(Term) -> {binary, byte_size(Term)};
shape(Term) when is_bitstring(Term) -> bitstring;
shape(Term) when is_pid(Term) -> pid;
shape(Term) when is_reference(Term) -> reference;
shape(Term) when is_port(Term) -> port;
shape(Term) when is_function(Term) -> function;
shape(Term) when is_tuple(Term) -> {tuple, tuple_size(Term)};
shape(Term) when is_map(Term) -> {map, map_size(Term)};
shape(Term) when is_list(Term) -> list.

%% Whether it may be a time of these days, in seconds or in a finer unit.
is_time(Number, Now) when is_integer(Number) ->
    lists:any(fun(Unit) -> abs(Number / Unit - Now) < 30 * 86400 end, [1, 1_000, 1_000_000, 1_000_000_000]);
is_time(_, _) ->
    false.

with_calls(#{table := Table, id := Id} = Watched, Calls) ->
    Mine = [{Function, Pid} || {Called, Function, Pid} <- Calls, Called =:= Table orelse Called =:= Id],
    Kinds = lists:foldl(fun({Function, _}, Counts) -> Counts#{Function => maps:get(Function, Counts, 0) + 1} end,
                        #{}, Mine),
    (maps:without([id], Watched))#{calls => Kinds, callers => length(lists:usort([Pid || {_, Pid} <- Mine]))}.
