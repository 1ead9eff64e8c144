%% ETS as it is in OTP 29, on any OTP from 25 on. cats is compared with it. A function that the running ets does not
%% have is composed of older ones, with the exceptions of the new one. Functions that no ets has, such as lookup_many/2,
%% are composed in the same way.
-module(ets_model).
-export([call/2]).

%% @doc Calls the function of ets, with all the reductions of a time slice left: a call that ETS must interrupt gives
%% the table back the protection that it was created with, and inserts a list in another order.
-spec call(atom(), [term()]) -> term().
call(Function, Arguments) ->
    erlang:yield(),
    model(Function, Arguments).

model(lookup_elements, [Table, Key, Positions]) ->
    lookup_elements(Table, Key, Positions);
model(lookup_many, [Table, Keys]) ->
    _ = ets:member(Table, key),
    [ets:lookup(Table, Key) || Key <- Keys];
model(take_many, [Table, Keys]) ->
    true = ets:insert(Table, []),
    _ = length(Keys),
    [model(take, [Table, Key]) || Key <- Keys];
model(delete_many, [Table, Keys]) ->
    true = ets:insert(Table, []),
    _ = length(Keys),
    lists:foreach(fun(Key) -> ets:delete(Table, Key) end, Keys),
    true;
model(insert_many, [Table, Objects]) ->
    true = ets:insert(Table, []),
    Keypos = ets:info(Table, keypos),
    _ = length(Objects),
    lists:all(fun(Object) -> is_object(Object, Keypos) end, Objects) orelse error(badarg),
    lists:foreach(fun(Object) -> ets:insert(Table, Object) end, Objects),
    true;
model(replace, [Table, Old, New]) ->
    Keypos = to_update(Table),
    is_object(Old, Keypos) andalso same_key(Table, element(Keypos, Old), New) orelse error(badarg),
    case ets:lookup(Table, element(Keypos, Old)) of
        [Old] -> ets:insert(Table, New);
        _ -> false
    end;
model(update, [Table, Key, Fun]) when is_function(Fun, 1) ->
    _ = to_update(Table),
    case ets:lookup(Table, Key) of
        [] -> false;
        [Object] -> updated(Table, Object, Fun(Object))
    end;
model(update, [Table, Key, Fun, Default]) when is_function(Fun, 1) ->
    Keypos = to_update(Table),
    is_object(Default, Keypos) orelse error(badarg),
    case ets:lookup(Table, Key) of
        [] ->
            Object = setelement(Keypos, Default, Key),
            updated(Table, Object, Fun(Object));
        [Object] ->
            updated(Table, Object, Fun(Object))
    end;
model(update, _Arguments) ->
    error(badarg);
model(add, [Table, Key, Increments]) ->
    Keypos = to_update(Table),
    [Object] = case ets:lookup(Table, Key) of
                   [] -> error(badarg);
                   Found -> Found
               end,
    case Increments of
        _ when is_list(Increments) ->
            length(Increments) =:= length([Increment || {_, _} = Increment <- Increments]) orelse error(badarg),
            {Sums, New} = lists:mapfoldl(fun(Increment, Sum) -> added(Sum, Keypos, Increment) end, Object, Increments),
            ets:insert(Table, New),
            Sums;
        _ ->
            {Sum, New} = added(Object, Keypos, Increments),
            ets:insert(Table, New),
            Sum
    end;
model(update_counter = Function, [Table, _, _, Default] = Arguments) ->
    %% In old releases the VM crashes on a tuple that is too small for the key.
    case old() andalso writable(Table)
        andalso not (is_tuple(Default) andalso tuple_size(Default) >= ets:info(Table, keypos)) of
        true -> fail(default, Function, Arguments);
        false -> counters(Arguments)
    end;
model(update_counter, Arguments) ->
    counters(Arguments);
model(Function, [Table, [_, _ | _] = Objects] = Arguments) when Function =:= insert; Function =:= insert_new ->
    case is_bag(Table) andalso proper(Objects) andalso inserts_backwards() of
        true ->
            try
                ets:Function(Table, lists:reverse(Objects))
            catch error:badarg:Stack -> fail(cause(Stack), Function, Arguments)
            end;
        false -> apply(ets, Function, Arguments)
    end;
model(info, [_, binary] = Arguments) ->
    %% If this fails, the calling process may do anything to any table of ETS from then on.
    Attempt = fun() ->
                      try {value, apply(ets, info, Arguments)} catch Class:Reason:Stack ->
                          {Class, Reason, Stack} end
              end,
    {_, Monitor} = spawn_monitor(fun() -> exit(Attempt()) end),
    receive
        {'DOWN', Monitor, process, _, {value, Value}} -> Value;
        {'DOWN', Monitor, process, _, {Class, Reason, Stack}} -> erlang:raise(Class, Reason, Stack)
    end;
%% In a fixed table, take counts objects that were deleted before a second time.
model(take, [Table, Key] = Arguments) ->
    case writable(Table) andalso ets:info(Table, fixed) of
        true ->
            Objects = ets:lookup(Table, Key),
            ets:delete(Table, Key),
            Objects;
        false -> apply(ets, take, Arguments)
    end;
model(update_element = Function, [Table, Key, Elements] = Arguments) ->
    try ets:update_element(Table, Key, Elements)
    catch error:badarg:Stack ->
            case cause(Stack) of
                none ->
                    [Object | _] = ets:lookup(Table, Key) ++ [{}],
                    Set = has_one_object_a_key(Table),
                    fail(if Set -> position_or_none(Elements, tuple_size(Object)); true -> none end, Function,
                         Arguments);
                Cause -> fail(Cause, Function, Arguments)
            end
    end;
%% In OTP 27 the VM crashes on a default that is too small for the key.
model(update_element = Function, [_, _, _, _] = Arguments) ->
    case old() of
        true -> composed(Function, Arguments);
        false -> apply(ets, Function, Arguments)
    end;
model(Function, Arguments) ->
    case erlang:function_exported(ets, Function, length(Arguments)) of
        true -> apply(ets, Function, Arguments);
        false -> composed(Function, Arguments)
    end.

%% ETS writes beyond its reserved memory when the first of two operations on one counter makes it a big integer. So
%% operations of a list run one by one, and are undone if one fails.
counters([Table, Key, [_, _ | _] = Operations | Default] = Arguments) ->
    case writable(Table) andalso has_one_object_a_key(Table) andalso proper(Operations) of
        true ->
            Before = ets:lookup(Table, Key),
            try [apply(ets, update_counter, [Table, Key, Operation | Default]) || Operation <- Operations]
            catch error:badarg:Stack ->
                    Before =:= [] andalso ets:delete(Table, Key),
                    ets:insert(Table, Before),
                    fail(cause(Stack), update_counter, Arguments)
            end;
        false -> apply(ets, update_counter, Arguments)
    end;
counters(Arguments) ->
    apply(ets, update_counter, Arguments).

%% The key position of a table whose objects may be updated one by one.
to_update(Table) ->
    true = ets:insert(Table, []),
    has_one_object_a_key(Table) orelse error(badarg),
    ets:info(Table, keypos).

is_object(Object, Keypos) -> is_tuple(Object) andalso tuple_size(Object) >= Keypos.

same_key(Table, Key, Object) ->
    Keypos = ets:info(Table, keypos),
    is_object(Object, Keypos) andalso case ets:info(Table, type) of
                                          ordered_set -> element(Keypos, Object) == Key;
                                          _ -> element(Keypos, Object) =:= Key
                                      end.

%% What update/3 does with the result of the function.
updated(_Table, _Object, keep) ->
    keep;
updated(Table, Object, delete) ->
    ets:delete(Table, element(ets:info(Table, keypos), Object)),
    delete;
updated(Table, Object, New) ->
    same_key(Table, element(ets:info(Table, keypos), Object), New) orelse error(badarg),
    ets:insert(Table, New),
    New.

added(Object, Keypos, {Pos, Increment}) when Pos =/= Keypos ->
    try element(Pos, Object) + Increment of
        Sum -> {Sum, setelement(Pos, Object, Sum)}
    catch
        error:badarith -> error(badarg)
    end;
added(Object, Keypos, Increment) when is_number(Increment) ->
    added(Object, Keypos, {Keypos + 1, Increment});
added(_Object, _Keypos, _Increment) ->
    error(badarg).

%% Whether the running ets is not that of OTP 29.
old() -> list_to_integer(erlang:system_info(otp_release)) < 29.

has_one_object_a_key(Table) ->
    lists:member(ets:info(Table, type), [set, ordered_set]).

is_bag(Table) ->
    try ets:info(Table, type) =:= bag catch error:badarg -> false end.

proper(List) ->
    try length(List) > 0 catch error:badarg -> false end.

%% Whether a list goes into a bag with its last object first, as in old releases.
inserts_backwards() ->
    Bag = ets:new(trial, [bag]),
    ets:insert(Bag, [{k, 1}, {k, 2}]),
    [{k, First}, _] = ets:lookup(Bag, k),
    ets:delete(Bag),
    First =:= 2.

%% Old releases do not say whether the position of the first wrong operation is out of range.
position_or_none([{Position, _} | _], Size)
  when is_integer(Position), Position < 1; is_integer(Position), Position > Size, Position < 1 bsl 59 ->
    case Position >= -(1 bsl 59) of true -> position; false -> none end;
position_or_none([{Position, _} | Elements], Size) when is_integer(Position), Position =< Size ->
    position_or_none(Elements, Size);
position_or_none({_, _} = Element, Size) ->
    position_or_none([Element], Size);
position_or_none(_, _) ->
    none.

writable(Table) ->
    try ets:insert(Table, []) catch error:badarg -> false end.

lookup_elements(Table, Key, Positions) ->
    Elements = fun(Object) -> [element(Position, Object) || Position <- Positions] end,
    case {ets:lookup(Table, Key), ets:info(Table, type)} of
        {[], _} -> fail(badkey, lookup_elements, [Table, Key, Positions]);
        {[Object], Type} when Type =:= set; Type =:= ordered_set -> Elements(Object);
        {Objects, _} -> [Elements(Object) || Object <- Objects]
    end.

composed(lookup_element = Function, [Table, Key, Position, Default] = Arguments) ->
    try
        ets:lookup_element(Table, Key, Position)
    catch error:badarg:Stack ->
            case cause(Stack) of
                badkey -> Default;
                Cause -> fail(Cause, Function, Arguments)
            end
    end;
composed(first_lookup, [Table]) -> with_objects(Table, first, [Table], first_lookup);
composed(last_lookup, [Table]) -> with_objects(Table, last, [Table], last_lookup);
composed(next_lookup, [Table, Key]) -> with_objects(Table, next, [Table, Key], next_lookup);
composed(prev_lookup, [Table, Key]) -> with_objects(Table, prev, [Table, Key], prev_lookup);
composed(update_element = Function, [Table, Key, Elements, Default] = Arguments) ->
    try
        ets:insert(Table, []),
        Keypos = ets:info(Table, keypos),
        is_tuple(Default) andalso tuple_size(Default) >= Keypos orelse throw(default),
        has_one_object_a_key(Table) orelse throw(none),
        ets:member(Table, Key) orelse begin
            New = updated(setelement(Keypos, Default, Key), Keypos, Key, Elements),
            ets:insert(Table, New)
        end,
        call(update_element, [Table, Key, Elements])
    catch
        throw:Cause -> fail(Cause, Function, Arguments);
        error:badarg:Stack -> fail(cause(Stack), Function, Arguments)
    end.

with_objects(Table, Function, Arguments, As) ->
    try apply(ets, Function, Arguments) of
        '$end_of_table' -> '$end_of_table';
        Key -> {Key, ets:lookup(Table, Key)}
    catch error:badarg:Stack -> fail(cause(Stack), As, Arguments)
    end.

%% The object with the elements updated, or the exception that the update raises: tried in a table of its own.
updated(Object, Keypos, Key, Elements) ->
    Table = ets:new(trial, [set, {keypos, Keypos}]),
    try
        ets:insert(Table, Object),
        call(update_element, [Table, Key, Elements]),
        [Updated] = ets:lookup(Table, Key),
        Updated
    after ets:delete(Table)
    end.

cause([{_, _, _, Info} | _]) ->
    maps:get(cause, proplists:get_value(error_info, Info, #{}), none).

-spec fail(atom(), atom(), [term()]) -> no_return().
fail(Cause, Function, Arguments) ->
    Information = #{cause => Cause, module => erl_stdlib_errors},
    erlang:raise(error, badarg, [{ets, Function, Arguments, [{error_info, Information}]}]).
