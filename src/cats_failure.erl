%% What cats does when a native function fails. It calls the function again where that is enough. Otherwise it
%% raises the error of ets, with the explanation that the shell prints for ets (error_info, EEP 54).
%%
%% A native function that fails returns `{'$cats_failure', Cause, Arguments}'. That is a value, as one exception of the
%% VM costs about as much as a call, and the user gets another one. Nothing that the user sees has changed then. Its own
%% arguments come back, so that calls that succeed need not keep them.
%%
%% | cause | meaning |
%% |---|---|
%% | `busy' | A lock was held for too long. Other processes run, then the function is called again. |
%% | `slice' | A slice of the work is done. Other processes run, then the function is called again for the rest. |
%% | `dirty' | The call would take too long for a scheduler. It is made again on a dirty one. |
%% | `settings' | The native side lacks the application's settings. It gets them, then the function is called again. |
%% | `returned' | No failure: in place of the arguments is a result that looks like a failure, as a stored term may. |
%% | `inside_transaction' | Inside that transaction's function, the error badarg. Otherwise the call is made again. |
%% | `{not_loaded, Text}' | The library could not be loaded. The error says why. The arguments are `none'. |
%% | `{system_limit, memory}' | Memory is made free, then the function is called again. In vain, it is as below. |
%% | `{system_limit, Limit}' | The error system_limit. The limit that was met is its cause. |
%% | `{panic, Text}' | The native function has a bug. The error has this reason. |
%% | others | The error badarg with this cause: the one of ets (`none' if it gives none), or one of cats' own. |
%%
%% Waiting for a lock never sleeps: in a busy VM a sleep of a millisecond can take a second.
-module(cats_failure).

-include("cats_failure.hrl").

-export([handle/2, handle/4, fail/4, info/1, cause/1, stack/4, format_error/2]).

-export_type([failure/0]).

%% So often memory is made free for one call. A table with a limit has given up nearly all of its objects then. A
%% pause of so many milliseconds, while others make some free, counts ten times. If nobody is known to do so, it counts
%% 50 times.
-define(RELIEFS, 100).
-define(PAUSE, 5).

%% What a native function returns that failed.
-type failure() :: ?FAILED(Cause :: term(), Arguments :: [term()] | none) | ?FAILED(returned, Result :: term()).

%% @private
%% @doc Handles the failure of the native function of this name. Returns what it returned in the end, or the error that
%% the function of `cats' with its name and arguments raises.
%%
%% The function itself raises it, by `erlang:error/3'. The VM then makes the stack trace for those only who ask for it.
-spec handle(failure(), Function :: atom()) ->
          {return, term()} | {raise, Reason :: term(), Arguments :: [term()] | none, [{error_info, map()}]}.
handle(?FAILED(returned, Result), _Function) ->
    {return, Result};
handle(?FAILED(Cause, Arguments), Function) when Cause =:= busy; Cause =:= slice ->
    erlang:yield(),
    outcome(apply(cats_nif, Function, Arguments), Function);
handle(?FAILED(dirty, Arguments), Function) ->
    dirty(Function, Arguments);
handle(?FAILED(settings, Arguments), Function) ->
    ok = cats_settings:pass(),
    outcome(apply(cats_nif, Function, Arguments), Function);
handle(?FAILED(inside_transaction = Cause, Arguments), Function) ->
    case cats_preferred:is_inside() of
        true ->
            {raise, badarg, Arguments, info(Cause)};
        false ->
            erlang:yield(),
            outcome(apply(cats_nif, Function, Arguments), Function)
    end;
handle(?FAILED({not_loaded, Text}, none), _Function) ->
    {raise, {cats_nif_not_loaded, Text}, none, [{error_info, #{module => ?MODULE}}]};
handle(?FAILED({system_limit, memory}, _Arguments), relieve) ->
    {return, undefined};
handle(?FAILED({system_limit, memory}, _) = Failure, Function) ->
    relieved(Failure, Function, ?RELIEFS);
handle(?FAILED({system_limit, _}, _) = Failure, _Function) ->
    refused(Failure);
handle(?FAILED({panic, _Text} = Panic, Arguments), _Function) ->
    {raise, Panic, Arguments, []};
handle(?FAILED(Cause, Arguments), _Function) ->
    {raise, badarg, Arguments, info(Cause)}.

%% The function has found no memory within the limit for all of cats. On a dirty scheduler, as it is not asked to go
%% there then.
relieved(?FAILED({system_limit, memory}, Arguments) = Failure, Function, Left) ->
    case Left > 0 andalso outcome(cats_nif:relieve(), relieve) of
        {return, again} -> relieved(cats_nif:dirty(Function, Arguments), Function, Left - 1);
        {return, busy} -> paused(Function, Arguments, Left - 10);
        {return, none} -> paused(Function, Arguments, Left - 50);
        _ -> refused(Failure)
    end;
relieved(?FAILED(busy, Arguments), Function, Left) ->
    erlang:yield(),
    relieved(cats_nif:dirty(Function, Arguments), Function, Left);
relieved(Outcome, Function, _Left) ->
    outcome(Outcome, Function).

paused(Function, Arguments, Left) ->
    timer:sleep(?PAUSE),
    relieved(cats_nif:dirty(Function, Arguments), Function, Left).

refused(?FAILED({system_limit, Limit}, Arguments)) -> {raise, system_limit, Arguments, info(Limit)}.

dirty(Function, Arguments) ->
    case cats_nif:dirty(Function, Arguments) of
        ?FAILED(busy, _) ->
            erlang:yield(),
            dirty(Function, Arguments);
        Outcome ->
            outcome(Outcome, Function)
    end.

outcome(?FAILED(_, _) = Failure, Function) -> handle(Failure, Function);
outcome(Result, _Function) -> {return, Result}.

%% @private
%% @doc Handles the failure of the native function `Native'. Returns what it returned in the end, or raises the error of
%% `cats:Function' with these arguments.
-spec handle(failure(), Native :: atom(), Function :: atom(), Arguments :: [term()]) -> term().
handle(Failure, Native, Function, Arguments) ->
    case handle(Failure, Native) of
        {return, Result} -> Result;
        {raise, Reason, _, Info} -> raise(Reason, Function, Arguments, Info)
    end.

%% @private
%% @doc What a stack trace has of an error with this cause.
-spec info(Cause :: term()) -> [{error_info, map()}].
info(none) -> [{error_info, #{module => ?MODULE}}];
info(Cause) -> [{error_info, #{cause => Cause, module => ?MODULE}}].

%% @private
%% @doc The cause in that, or `none'.
-spec cause([{atom(), term()}]) -> Cause :: term().
cause(Info) -> maps:get(cause, proplists:get_value(error_info, Info, #{}), none).

%% @private
%% @doc Raises an error in the name of `cats:Function', with a cause if it is one of cats' own.
-spec fail(Reason :: term(), Cause :: term(), Function :: atom(), Arguments :: [term()]) -> no_return().
fail(badarg, Cause, Function, Arguments) -> raise(badarg, Function, Arguments, info(Cause));
fail({conflict, _} = Reason, Cause, Function, Arguments) -> raise(Reason, Function, Arguments, info(Cause));
fail(system_limit, Limit, Function, Arguments) when Limit =/= none ->
    raise(system_limit, Function, Arguments, info(Limit));
fail(Reason, _Cause, Function, Arguments) -> raise(Reason, Function, Arguments, []).

-spec raise(Reason :: term(), Function :: atom(), Arguments :: [term()], [{error_info, map()}]) -> no_return().
raise(Reason, Function, Arguments, Info) ->
    erlang:raise(error, Reason, stack(cats, Function, Arguments, Info)).

%% @private
%% @doc The stack of the calling process, with this function in place of the frames on top that are the library's own.
-spec stack(module(), Function :: atom(), Arguments :: [term()], [{error_info, map()}]) -> erlang:stacktrace().
stack(Module, Function, Arguments, Info) ->
    {current_stacktrace, Stack} = process_info(self(), current_stacktrace),
    [{Module, Function, Arguments, Info} | callers(Module, Stack)].

%% The stack below the function that was called.
callers(Module, Stack) ->
    Own = [?MODULE, Module, cats_browser, cats_contention, cats_convert, cats_fetch, cats_fetch_many, cats_file,
           cats_flight, cats_nif, cats_qlc, cats_run, cats_select, cats_slices, cats_transaction, cats_view],
    lists:dropwhile(fun(Frame) -> lists:member(element(1, Frame), Own) end, Stack).

%% @private
%% @doc The remarks on the arguments of a failed call, as `erl_error' asks for them: those that the running
%% OTP has for `ets'. If the library could not be loaded, a remark on the whole call.
-spec format_error(Reason :: term(), erlang:stacktrace()) -> #{pos_integer() | general | reason => unicode:chardata()}.
format_error({cats_nif_not_loaded, Failure}, _Stack) ->
    #{general => text("the native library of cats is not loaded: ~ts", [Failure])};
format_error(system_limit, [{_Module, Function, Arguments, Info} | _]) ->
    explain_limit(cause(Info), table_place(Function), Arguments);
format_error(no_transaction, _Stack) ->
    #{general => <<"the process runs no transaction: call this in a function that is given to"
                   " cats_transaction:run/1">>};
format_error(badarg, [{cats_transaction, run, Arguments, _} | _]) ->
    explain_run(Arguments);
format_error(Reason, [{cats, Function, Arguments, Info} | _]) ->
    Cause = cause(Info),
    name_ets(Cause, table_place(Function), Arguments, explain(Reason, Function, Arguments, Cause)).

%% Elixir would say that the arguments are wrong, if it were not for this reason. It is the one that the shell gives.
explain_limit(Limit, Place, Arguments) ->
    Remarks = case limit_remark(which_limit(Limit, Place, Arguments)) of
                  {table, Format} -> #{Place => text(Format, [limit_of(Place, Arguments)])};
                  {general, Remark} -> #{general => Remark};
                  none -> #{}
              end,
    Remarks#{reason => <<"a system limit has been reached">>}.

%% A full table that evicts has nothing to evict only where others were faster many times in turn.
which_limit(full, Place, Arguments) ->
    case lists:member(table_info(Place, Arguments, evict), [none, undefined]) of
        true -> full;
        false -> starved
    end;
which_limit(Limit, _Place, _Arguments) ->
    Limit.

%% The limits that are met: what they bound, and what can be done. Those of a table are described.
limit_remark(full) ->
    {table, "the table has reached its limit~ts and evicts nothing: delete objects, or create it with a larger limit"
            " or another option evict"};
limit_remark(starved) ->
    {table, "the table has reached its limit~ts, and other calls took all room that evictions made: repeat the call, or"
            " create the table with a larger limit"};
limit_remark(holds_more) ->
    {table, "the table has used more of its limit~ts than the new one allows, and evicts nothing: delete objects"
            " first"};
limit_remark(too_large) ->
    {table, "the call inserts more at once than the table's limit~ts allows: insert smaller objects or shorter lists,"
            " copy parts of larger binaries by binary:copy/1, or create the table with a larger limit"};
limit_remark(too_many_tables) ->
    {general, <<"a transaction writes at most 32 tables: write to the others in another transaction, or keep what"
                " belongs together in one table">>};
limit_remark(memory) ->
    {general, <<"cats has as much memory as its setting memory_limit allows, or the machine, or the system's limit for"
                " the VM, has no more: delete objects or tables, bound tables by option limit, or raise that limit">>};
limit_remark(memory_limit) ->
    {general, <<"the call stores more at once than the setting memory_limit of cats allows for all tables: store"
                " smaller objects or shorter lists">>};
limit_remark(integer) ->
    {general, <<"the integer is larger than the VM allows">>};
limit_remark(processes) ->
    {general, <<"the VM has as many processes as it may have, and the call needs one more: start it with a"
                " larger +P">>};
limit_remark(thread) ->
    {general, <<"the system refuses a thread, which cats needs for its first table: raise its limit of threads">>};
limit_remark(_) ->
    none.

%% The limit of the table, in brackets. It may be gone by now.
limit_of(Place, Arguments) ->
    case table_info(Place, Arguments, limit) of
        undefined -> "";
        Limit -> text(" (~0p)", [Limit])
    end.

%% An item of the information on the table. `undefined' if that is gone by now.
table_info(Place, Arguments, Item) ->
    try cats:info(lists:nth(Place, Arguments), Item)
    catch
        error:_ -> undefined
    end.

explain_run([Fun]) ->
    explain_run([Fun, []]);
explain_run([Fun, Arguments | Options]) ->
    case is_proper(Arguments) of
        false -> #{2 => <<"not a list">>};
        true when not is_function(Fun, length(Arguments)) ->
            #{1 => <<"not a function of as many arguments as are given">>};
        true when Options =/= [] ->
            #{3 => <<"not a map of retries, timeout and memory, which are an integer of at least 0 or infinity">>}
    end.

%% Which argument is the table.
table_place(foldl) -> 3;
table_place(foldr) -> 3;
table_place(_Function) -> 1.

%% Where the table is not found, but ets has one, says so.
name_ets(Cause, Place, Arguments, Remarks) when Cause =:= id; Cause =:= type ->
    case is_map_key(Place, Remarks) andalso is_table(ets, lists:nth(Place, Arguments)) of
        true -> Remarks#{Place := table_of_ets()};
        false -> Remarks
    end;
name_ets(_Cause, _Place, _Arguments, Remarks) ->
    Remarks.

table_of_ets() ->
    <<"a table of ets, not of cats: create it by cats:new/2, compile the module that creates it with cats_transform,"
      " or copy it by cats:from_ets/2">>.

is_table(Module, Table) ->
    try
        Module:info(Table, type) =/= undefined
    catch
        error:badarg -> false
    end.

explain(Reason, Function, Arguments, Cause) ->
    case remark(Function, Cause) of
        {Place, Remark} when Reason =:= badarg -> #{Place => Remark};
        _ -> explain_by_call(Reason, Function, Arguments, Cause)
    end.

%% What causes say that tell all: the argument that is wrong, and why. The causes of a function come before those of any
%% function.
remark(new, nothing_delegated) -> {2, <<"option delegate goes with {lock, mrqd} only">>};
remark(new, no_hash_table) -> {2, <<"invalid option: debug_hash_fixed_number_of_locks is for hash tables only">>};
remark(new, no_expiry_here) -> {2, no_expiry_here()};
remark(new, no_limit_here) ->
    {2, <<"only tables of type set and ordered_set have a limit, with the default engine and not compressed">>};
remark(new, small_limit) ->
    {2, <<"the limit of bytes is smaller than a table with these options and one small object">>};
remark(new, nothing_evicted) -> {2, <<"options evict and share go with option limit only">>};
remark(setopts, no_ttl) -> {2, <<"only a table that was created with option ttl can have another one">>};
remark(setopts, unlimited) -> {2, <<"the table was created without option limit">>};
remark(setopts, {other_unit, Unit}) -> {2, text("the limit of the table counts ~s, as it was created", [Unit])};
remark(setopts, small_limit) ->
    {2, <<"the limit of bytes is smaller than what is kept for a table that had its largest limit, and one small"
         " object">>};
remark(setopts, no_queues) ->
    {2, <<"the table was created with {evict, none}, so it does not know which objects to evict">>};
remark(new, nothing_removed) -> {2, <<"option notify goes with ttl, idle or limit only">>};
remark(removed, no_notices) -> {1, <<"the table has no option notify">>};
remark(removed, not_receiver) -> {1, <<"option notify of the table has another process">>};
remark(Function, no_insert_options) when Function =:= insert; Function =:= insert_new ->
    {3, <<"not a map with ttl: from 1 to 1099511627775 milliseconds, or infinity">>};
remark(contention, no_contention) -> {1, <<"contention is known of tables with engine hash or ca, not of snapshots">>};
remark(contention, no_time) -> {2, <<"not a number of milliseconds below 2^32">>};
remark(fetch, nested) -> {2, <<"the function fetches the key for which it makes the object">>};
remark(fetch, no_outcome) ->
    {3, <<"the function, which has option returns => outcome, returned neither {store, Object}, {store, Object, "
         "#{ttl => Milliseconds | infinity}} nor {ignore, Value}">>};
remark(fetch_many, no_keys) -> {2, <<"not a list">>};
remark(fetch_many, nested) -> {2, <<"the function fetches a key for which it makes the object">>};
remark(fetch_many, no_outcome) ->
    {3, <<"the function, which has option returns => outcome, did not return a list with {store, Object}, {store, "
         "Object, #{ttl => Milliseconds | infinity}} or {ignore, Value} for each missing key">>};
remark(fetch_many, no_fun) -> {3, <<"not a function of one argument">>};
remark(range, no_ranges) -> {1, <<"not an ordered_set">>};
remark(snapshot, snapshot) -> {1, <<"a snapshot, of which no other can be taken">>};
remark(snapshot, no_snapshots) -> {1, <<"snapshots are for tables with engine hash or ca">>};
remark(claim, owned) -> {1, <<"the table has an owner">>};
remark(fetch, no_fun) -> {3, <<"not a function of one argument">>};
remark(add, overflow) -> {3, <<"the sum is too large for a float">>};
remark(insert_many, no_object) -> {2, <<"not a list of objects with a key">>};
remark(_, no_time) -> {3, <<"neither from 1 to 1099511627775 milliseconds nor infinity">>};
remark(_, no_order_statistics) -> {1, <<"order statistics are for tables of type ordered_set with engine ca">>};
remark(_, _) -> none.

no_expiry_here() ->
    <<"objects expire only in tables of type set and ordered_set, with the default engine and not compressed">>.

%% What depends on the arguments, or is as in ets.
explain_by_call(badarg, new, [_Name, _Options], {engine_lacks_type, Engine, Type}) ->
    Tables = #{set => "sets", ordered_set => "ordered sets", bag => "bags", duplicate_bag => "duplicate bags"},
    #{2 => text("engine ~s does not hold ~s", [Engine, maps:get(Type, Tables)])};
explain_by_call(badarg, new, [_Name, _Options], {engine_not_built, Engine}) ->
    #{2 => text("engine ~s is not in this build of cats, which was made with CATS_COMPARED=0", [Engine])};
explain_by_call(badarg, new, [_Name, _Options], {engine_lacks_option, Engine, write_concurrency}) ->
    #{2 => text("engine ~s has no number of bucket locks to choose", [Engine])};
explain_by_call(badarg, new, [_Name, _Options], {engine_lacks_option, Engine, Option}) ->
    #{2 => text("engine ~s does not have option ~s", [Engine, Option])};
explain_by_call(badarg, stats_delta, [Earlier, Later], none) ->
    case [Place || {Place, Stats} <- [{1, Earlier}, {2, Later}], not is_map(Stats)] of
        [] -> #{2 => <<"not the same kind of statistics as the first ones">>};
        Places -> maps:from_list([{Place, <<"not what stats/0 or stats/1 returned">>} || Place <- Places])
    end;
explain_by_call(Reason, removed, [Table], Cause) ->
    as_ets(Reason, delete, [Table], Cause);
explain_by_call(badarg, Function, _Arguments, {circle, Places}) when Function =:= fetch; Function =:= fetch_many ->
    Names = [io_lib:format("key ~0tP of table ~tp", [Key, 20, cats:info(Tid, name)]) || {Tid, Key} <- Places],
    #{2 => text("the function waits for itself in a circle of fetches, each of which waits for the next one: ~ts",
                [lists:join(", ", Names)])};
explain_by_call(badarg, fetch, _Arguments, Cause) when Cause =:= none; Cause =:= other_key ->
    #{3 => <<"the function did not return an object with the key">>};
explain_by_call(badarg, fetch_many, _Arguments, none) ->
    #{3 => <<"the function did not return a list of objects">>};
explain_by_call(badarg, fetch_many, _Arguments, other_key) ->
    #{3 => <<"the function returned an object with a key that was not missing">>};
explain_by_call(badarg, Function, _Arguments, inside_transaction) ->
    #{table_place(Function) => <<"the calling process runs a transaction that uses the table: in its function, only "
                                 "functions of cats_transaction may write to the table">>};
explain_by_call(badarg, _Function, Arguments, no_expiry) ->
    case [table_info(1, Arguments, Item) || Item <- [type, engine, compressed]] of
        [Type, Engine, false] when Type =:= set, Engine =:= hash; Type =:= ordered_set, Engine =:= ca ->
            #{1 => <<"objects of the table cannot expire: create it with option ttl or idle">>};
        _ ->
            #{1 => no_expiry_here()}
    end;
explain_by_call(badarg, ttl, _Arguments, snapshot) ->
    #{1 => <<"a snapshot, whose objects do not expire">>};
explain_by_call(badarg, Function, _Arguments, Cause) when Cause =:= snapshot; Cause =:= snapshot_limit ->
    #{table_place(Function) => snapshot_remark(Cause)};
explain_by_call(badarg, Function, _Arguments, no_range) when Function =:= count; Function =:= range ->
    #{2 => <<"not a range of keys: a map with from or above, to or below, and order">>};
explain_by_call(badarg, range, Arguments, none) ->
    #{length(Arguments) => <<"neither a positive integer of at most 64 bits nor infinity">>};
explain_by_call(badarg, nth, [_Table, _N], none) ->
    #{2 => <<"not an integer of at most 64 bits">>};
explain_by_call(Reason, Function, [Table | _], Cause)
  when Function =:= contention; Function =:= rank; Function =:= nth; Function =:= count; Function =:= range ->
    as_ets(Reason, delete, [Table], Cause);
explain_by_call(badarg, snapshot, [Tables], none) when is_list(Tables) ->
    #{1 => <<"not a proper list">>};
explain_by_call(Reason, snapshot, [Tables], Cause) ->
    as_ets(Reason, delete, [Tables], Cause);
explain_by_call(badarg, setopts, [_Table, Options], none) ->
    case is_tuple(Options) orelse is_proper(Options) of
        true -> #{1 => <<"the calling process does not own the table">>};
        false -> #{2 => text("not an option, nor a list of options (valid: ~ts)", [cats_options:valid(setopts, none)])}
    end;
explain_by_call(badarg, Function, _Arguments, no_fetch_options) ->
    #{4 => text("not a map of options (valid: ~ts)", [cats_options:valid(Function, none)])};
explain_by_call(badarg, Function, _Arguments, {invalid_option = Why, Option})
  when Function =:= fetch; Function =:= fetch_many ->
    #{4 => invalid(Why, Function, Option)};
explain_by_call(Reason, Function, Arguments, {Why, Option}) when Why =:= invalid_option; Why =:= repeated_option ->
    case as_ets(Reason, Function, Arguments, none) of
        #{2 := Remark} = Remarks when Remark =/= <<"invalid options">> -> Remarks;
        Remarks -> Remarks#{2 => invalid(Why, Function, Option)}
    end;
explain_by_call(Reason, Function, [Table, _EtsTable], {cats, Cause}) when Function =:= from_ets; Function =:= to_ets ->
    name_ets(Cause, 1, [Table], copied(Reason, 1, Table, Cause, cats));
explain_by_call(Reason, Function, [_Table, EtsTable], {ets, Cause}) when Function =:= from_ets; Function =:= to_ets ->
    case is_table(cats, EtsTable) andalso not is_table(ets, EtsTable) of
        true -> #{2 => <<"a table of cats, not of ets">>};
        false -> copied(Reason, 2, EtsTable, Cause, ets)
    end;
explain_by_call(badarg, Function, [Table, _DetsTable], none) when Function =:= from_dets; Function =:= to_dets ->
    case is_table(ets, Table) andalso not is_table(cats, Table) of
        true -> #{1 => table_of_ets()};
        false -> #{}
    end;
explain_by_call(badarg, match_spec_run, [Terms, Compiled], none) ->
    maps:from_list([{1, <<"not a list">>} || not is_proper(Terms)]
                   ++ [{2, <<"not a compiled match specification">>} || not ets:is_compiled_ms(Compiled)]);
explain_by_call(Reason, lookup_elements, [Table, Key, Positions], Cause) ->
    case is_positions(Positions) of
        true -> as_ets(Reason, lookup_element, [Table, Key, 1], Cause);
        false -> maps:put(3, <<"not a list of positions">>, as_ets(Reason, delete, [Table], Cause))
    end;
explain_by_call(badarg, Function, _Arguments, table_type)
  when Function =:= add; Function =:= fetch; Function =:= fetch_many; Function =:= replace; Function =:= update ->
    #{1 => <<"the table is a bag: a key may have several objects">>};
explain_by_call(badarg, replace, [_Table, Old, New], Cause) when Cause =:= none; Cause =:= other_key ->
    case Cause of
        other_key -> #{3 => <<"the key is not that of the old object">>};
        none when is_tuple(Old), is_tuple(New) -> #{general => <<"a tuple has no element at the key position">>};
        none ->
            maps:from_list([{Place, <<"not a tuple">>}
                            || {Place, Object} <- [{2, Old}, {3, New}], not is_tuple(Object)])
    end;
explain_by_call({conflict, Runs}, update, _Arguments, none) ->
    #{3 => text("the object was changed during each of ~b runs of the function: the function itself writes to its key, "
                "or is slower than other processes that do", [Runs])};
explain_by_call(badarg, update, Arguments, Cause)
  when Cause =:= none; Cause =:= other_key; Cause =:= no_fun; Cause =:= default ->
    case Cause of
        no_fun -> #{3 => <<"not a function of one argument">>};
        default -> #{4 => default_remark(default, lists:last(Arguments))};
        _ -> #{3 => <<"the function returned neither an object with the same key, nor keep or delete">>}
    end;
explain_by_call(badarg, add, [_Table, _Key, Increments], none) ->
    case is_increments(Increments) of
        true -> #{3 => <<"a counter is not a number">>};
        false -> #{3 => <<"not a number, nor a position with a number, nor a list of such">>}
    end;
explain_by_call(Reason, Function, [Table, Objects, _Options], Cause)
  when Function =:= insert; Function =:= insert_new ->
    as_ets(Reason, Function, [Table, Objects], Cause);
explain_by_call(Reason, add, [Table, Key, Increments], Cause) ->
    as_ets(Reason, update_counter, [Table, Key, in_integers(Increments)], Cause);
explain_by_call(Reason, Function, [Table | _], Cause)
  when Function =:= claim; Function =:= fetch; Function =:= fetch_many; Function =:= insert_many; Function =:= replace;
       Function =:= touch; Function =:= ttl; Function =:= update ->
    as_ets(Reason, delete, [Table], Cause);
explain_by_call(Reason, Function, [Table, Keys], Cause)
  when Function =:= lookup_many; Function =:= take_many; Function =:= delete_many ->
    Remarks = as_ets(Reason, delete, [Table], Cause),
    case is_proper(Keys) of
        true -> Remarks;
        false -> Remarks#{2 => <<"not a list">>}
    end;
%% What ets implements in Erlang fails there in a function that it calls.
explain_by_call(Reason, Function, Arguments, Cause) when Function =:= select_delete; Function =:= match_delete ->
    as_ets(Reason, internal_select_delete, Arguments, Cause);
explain_by_call(Reason, Function, [_, _, Table], Cause) when Function =:= foldl; Function =:= foldr ->
    case as_ets(Reason, first, [Table], Cause) of
        #{1 := Remark} -> #{3 => Remark};
        Remarks -> Remarks
    end;
explain_by_call(Reason, repair_continuation, [_Continuation, MatchSpec], none) ->
    #{1 := Remark} = as_ets(Reason, match_spec_compile, [MatchSpec], none),
    #{2 => Remark};
explain_by_call(Reason, Function, Arguments, Cause) ->
    case is_known(Function, Arguments, Cause) of
        true -> as_ets(Reason, Function, Arguments, Cause);
        false -> explain_newer(Reason, Function, Arguments, Cause)
    end.

%% Whether the running OTP explains such a failure. OTP 27 has update_element/4, but not this cause.
is_known(update_element, [_Table, _Key, _ElementSpec, _Default], default) ->
    list_to_integer(erlang:system_info(otp_release)) >= 28;
is_known(Function, Arguments, _Cause) ->
    erlang:function_exported(ets, Function, length(Arguments)).

invalid(invalid_option, Function, Option) when Function =:= new; Function =:= setopts ->
    text("invalid option: ~0tP (valid: ~ts)", [Option, 30, cats_options:valid(Function, Option)]);
invalid(invalid_option, Function, {Name, Value} = Option) when Function =:= fetch; Function =:= fetch_many ->
    text("invalid option: ~0tP => ~0tP (valid: ~ts)", [Name, 30, Value, 30, cats_options:valid(Function, Option)]);
invalid(invalid_option, _Function, Option) ->
    text("invalid option: ~0tP", [Option, 30]);
invalid(repeated_option, _Function, Option) ->
    text("invalid option: ~0tP again", [Option, 30]).

text(Format, Arguments) ->
    unicode:characters_to_binary(io_lib:format(Format, Arguments)).

%% Functions that the running OTP's ets may not have, through those that it has.
explain_newer(Reason, lookup_element, [Table, Key, Pos, _Default], Cause) ->
    as_ets(Reason, lookup_element, [Table, Key, Pos], Cause);
explain_newer(Reason, update_element, [Table, Key, ElementSpec, Default], Cause) ->
    case default_remark(Cause, Default) of
        "" -> as_ets(Reason, update_element, [Table, Key, ElementSpec], Cause);
        Remark -> #{4 => Remark}
    end;
explain_newer(Reason, Function, Arguments, Cause) ->
    as_ets(Reason, Function, Arguments, Cause).

default_remark(default, Default) when is_tuple(Default) -> <<"default tuple too small">>;
default_remark(Cause, Default) when Cause =:= default; Cause =:= none ->
    case is_tuple(Default) of
        true -> "";
        false -> <<"not a tuple">>
    end;
default_remark(_Cause, _Default) -> "".

%% erl_stdlib_errors fails on a cause that is newer than it, and, whatever the cause, on an improper list of
%% operations.
as_ets(Reason, Function, Arguments, Cause) -> as_ets(Reason, Function, Arguments, Cause, cats).

%% The same for tables of this module.
as_ets(Reason, Function, Arguments, Cause, Module) ->
    Frame = {ets, Function, Arguments, [{error_info, #{cause => Cause}}]},
    try erl_stdlib_errors:format_error(Reason, [Frame]) of
        Remarks -> maps:map(fun(_Place, Remark) -> of_module(Module, Remark) end, Remarks)
    catch
        error:_ when Cause =/= none -> as_ets(Reason, Function, Arguments, none, Module);
        error:_ -> #{}
    end.

%% The remark of ets, about tables of a module.
of_module(Module, Remark) when is_binary(Remark) ->
    Name = atom_to_binary(Module),
    Existing = binary:replace(Remark, <<"an existing ETS table">>, <<"an existing table of ", Name/binary>>),
    binary:replace(Existing, <<"an ETS table">>, <<"a table of ", Name/binary>>);
of_module(_Module, Remark) ->
    Remark.

%% What is wrong with one of two tables between which objects are copied.
copied(_Reason, Place, _Table, none, _Module) ->
    #{Place => <<"the key position is out of range for an object of the other table">>};
copied(_Reason, Place, _Table, Cause, _Module) when Cause =:= snapshot; Cause =:= snapshot_limit ->
    #{Place => snapshot_remark(Cause)};
copied(Reason, Place, Table, Cause, Module) ->
    #{1 := Remark} = as_ets(Reason, delete, [Table], Cause, Module),
    #{Place => Remark}.

snapshot_remark(snapshot) -> <<"a snapshot, which cannot be changed">>;
snapshot_remark(snapshot_limit) ->
    <<"a snapshot that has died: what it kept was more than the table's snapshot_limit">>.

is_proper(List) ->
    is_list(List) andalso
        try length(List) of
            _ -> true
        catch
            error:badarg -> false
        end.

%% Whether these are increments of add/3.
is_increments(Increments) when is_list(Increments) ->
    is_proper(Increments) andalso lists:all(fun is_increment/1, Increments);
is_increments(Increments) ->
    is_number(Increments) orelse is_increment(Increments).

is_increment({Pos, Increment}) -> is_integer(Pos) andalso is_number(Increment);
is_increment(_Other) -> false.

%% Increments as ets knows them, for its remarks on keys and positions.
in_integers(Increments) when is_list(Increments) ->
    case is_proper(Increments) of
        true -> [in_integers(Increment) || Increment <- Increments];
        false -> 1
    end;
in_integers({Pos, _Increment}) -> {Pos, 1};
in_integers(_Increment) -> 1.

is_positions(Positions) ->
    try
        lists:all(fun(Pos) -> is_integer(Pos) andalso Pos > 0 end, Positions)
    catch
        error:_ -> false
    end.
