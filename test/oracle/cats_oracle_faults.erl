%% A stand-in for cats that shows that the comparison can fail: ets with a chosen fault. Without a fault the comparison
%% must find no difference. With one it must find it.
-module(cats_oracle_faults).
-export([wrong_verdicts/0, call/2]).

-define(NAMES,
        [{oracle_a, stand_in_a}, {oracle_b, stand_in_b}, {oracle_c, stand_in_c}, {undefined, stand_in_d}]).

%% @doc Runs the comparison without a fault and with each of them, and returns those about which it was wrong.
-spec wrong_verdicts() -> [Fault :: atom()].
wrong_verdicts() ->
    [none || verdict(none) =/= ok] ++ [Fault || Fault <- faults(), verdict(Fault) =/= different].

verdict(Fault) ->
    persistent_term:put(?MODULE, Fault),
    element(1, cats_oracle:compare(case Fault of none -> 20000; _ -> 1000000 end, ?MODULE)).

faults() ->
    [lookup_loses_float, minus_zero, insert_new_overwrites, insert_not_atomic, bag_order, counter_wraps,
     counter_threshold,
     update_element_position, wrong_cause, take_leaves, missing_transfer_check, delete_object_by_key,
     first_unsorted, size_off_by_one,
     fixed_forgotten, rename_clash, reader_writes].

%% @doc As ets_model:call/2, on tables whose names are not those of the oracle, with the fault of the moment.
-spec call(atom(), [term()]) -> term().
call(Function, Arguments) ->
    Renamed = rename(Function, Arguments),
    try
        back(Function, Arguments, faulty(persistent_term:get(?MODULE, none), Function, Renamed))
    catch
        error:Reason:Stack ->
            {_, Name, As, Info} = hd(Stack),
            erlang:raise(error, Reason, [{ets, Name, case As of Renamed -> Arguments; _ -> As end, Info}])
    end.

rename(rename, [Table, Name]) -> [name(Table), name(Name)];
rename(all, []) -> [];
rename(_, [Table | Arguments]) -> [name(Table) | Arguments].

name(Name) -> proplists:get_value(Name, ?NAMES, Name).

original(Name) ->
    case lists:keyfind(Name, 2, ?NAMES) of
        {Original, _} -> Original;
        false -> Name
    end.

back(Function, _, Name) when Function =:= new; Function =:= rename -> original(Name);
back(all, _, Tables) -> [original(T) || T <- Tables];
back(info, [_, Item], Name) when Item =:= name; Item =:= id -> original(Name);
back(info, [_], Items) when is_list(Items) ->
    [case Item of
         {Key, Name} when Key =:= name; Key =:= id -> {Key, original(Name)};
         _ -> Item
     end || Item <- Items];
back(_, _, Result) -> Result.

faulty(lookup_loses_float, lookup, [T, K]) ->
    [list_to_tuple([case E of 1.0 -> 1; _ -> E end || E <- tuple_to_list(Object)])
     || Object <- ets_model:call(lookup, [T, K])];
faulty(minus_zero, insert, [T, Object]) when is_tuple(Object) ->
    ets:insert(T,
               list_to_tuple([case is_float(E) andalso E == 0 of true -> 0.0; false -> E end
                              || E <- tuple_to_list(Object)]));
faulty(insert_new_overwrites, insert_new, [T, [_, _ | _] = Objects]) ->
    ets:insert_new(T, Objects) orelse begin ets:insert_new(T, [hd(Objects)]), false end;
faulty(insert_not_atomic, insert, [T, [First, Second | Rest]]) when is_tuple(First), is_tuple(Second) ->
    ets:insert(T, First),
    ets:insert(T, [Second | Rest]);
faulty(bag_order, lookup, [T, K]) ->
    case ets_model:call(lookup, [T, K]) of
        [A, B, C | Objects] -> [A, C, B | Objects];
        Objects -> Objects
    end;
faulty(counter_wraps, update_counter, Arguments) ->
    case ets_model:call(update_counter, Arguments) of
        Big when is_integer(Big), Big >= 1 bsl 64 -> Big - (1 bsl 64);
        Result -> Result
    end;
faulty(counter_threshold, update_counter, [T, K, {Position, Increment, Threshold, Set}]) when Increment < 0 ->
    ets:update_counter(T, K, {Position, Increment, Threshold - 1, Set});
faulty(update_element_position, update_element, [T, K, [{P1, V1}, {P1, _}]]) ->
    ets:update_element(T, K, {P1, V1});
faulty(wrong_cause, Function, Arguments) ->
    try ets_model:call(Function, Arguments)
    catch error:badarg:Stack ->
            {M, F, As, [{error_info, Info}]} = hd(Stack),
            Cause = case Info of #{cause := keypos} -> position; #{cause := Other} -> Other; _ -> none end,
            erlang:raise(error, badarg, [{M, F, As, [{error_info, Info#{cause => Cause}}]}])
    end;
faulty(take_leaves, take, [T, K]) ->
    case ets_model:call(take, [T, K]) of
        [A, B] -> ets:insert(T, B), [A, B];
        Objects -> Objects
    end;
faulty(missing_transfer_check, give_away, [T, Pid, _]) when Pid =:= self() ->
    ets:insert(T, []);
faulty(delete_object_by_key, delete_object, [T, Object]) when is_tuple(Object) ->
    Type = ets:info(T, type),
    Keypos = ets:info(T, keypos),
    case Type =:= set andalso tuple_size(Object) >= Keypos of
        true -> ets:delete(T, element(Keypos, Object));
        false -> ets:delete_object(T, Object)
    end;
faulty(first_unsorted, next, [T, K]) ->
    case ets:next(T, K) of
        Key when is_float(Key) -> ets:next(T, Key);
        Key -> Key
    end;
faulty(size_off_by_one, info, [T, size]) ->
    case ets:info(T, size) of
        Size when is_integer(Size), Size > 2 -> Size - 1;
        Size -> Size
    end;
faulty(fixed_forgotten, info, [T, fixed]) ->
    case ets:info(T, fixed) of true -> false; Fixed -> Fixed end;
faulty(rename_clash, rename, [T, Name]) when is_atom(Name) ->
    case ets:whereis(Name) =/= undefined andalso ets:info(T, named_table) of
        true -> ets:insert(T, []), Name;
        _ -> ets:rename(T, Name)
    end;
faulty(reader_writes, insert, [T, Object]) ->
    case ets:info(T, protection) =:= protected andalso ets:info(T, owner) =/= self() of
        true -> true;
        false -> ets:insert(T, Object)
    end;
faulty(_, Function, Arguments) ->
    ets_model:call(Function, Arguments).
