%% @hidden
%% The tables as a transaction sees them: what they had at the instant of its last read, with its own writes. The
%% functions work on the first table of a state. Those that read note it in the state that the process has.
-module(cats_view).

-include("cats_failure.hrl").
-include("cats_transaction.hrl").

-export([use/3, use/4, is_bag/1, read/3, read_many/3, step/4, whole/2, range/6, write/3, with_write/3,
         with_removal/3, unwritten/3, handle/3, fail/2, fail/3]).

-export_type([called/0]).

%% A transaction becomes a long one before it compares more objects at each read.
-define(COMPARED, 12).

%% Whether a transaction becomes a long one before it reads so many keys more. What a preferred one reads is reserved,
%% which only a long one can do.
-define(IS_TO_BE_LONG(State, More),
        ((State)#state.long =:= none
         andalso ((State)#state.compared + More >= ?COMPARED orelse ((State)#state.run)#run.keeper =/= none))).

%% What a table cannot do in a transaction.
-define(NO_TRANSACTIONS,
        <<"transactions are for tables of the types set, bag and duplicate_bag with engine hash, and of type "
          "ordered_set with engine ca">>).
-define(SNAPSHOT, <<"a snapshot, which stays as it is: read it by the functions of cats">>).
-define(NO_ORDER, <<"not an ordered_set: in a transaction only those have a first key, a next one, and ranges">>).

-type called() :: {Function :: atom(), Arguments :: [term()]} | Function :: atom().
%% The function of `cats' in whose name errors are raised. Its arguments, if they are not given, are the table and the
%% key.

%% @doc A state whose first table is this one. `Argument' is the second argument of the function that was called.
-spec use(cats:table(), Argument :: term(), called()) -> #state{}.
use(Table, Argument, Called) -> use(Table, Argument, cats_run:state(called(Called, Table, Argument)), Called).

%% @doc The same, for a state of the transaction.
-spec use(cats:table(), Argument :: term(), #state{}, called()) -> #state{}.
use(Table, _Argument, #state{tables = [#table{name = Table} | _]} = State, _Called) ->
    State;
use(Table, Argument, #state{tables = Tables} = State, Called) ->
    case lists:keytake(Table, #table.name, Tables) of
        {value, Known, Others} ->
            State#state{tables = [Known | Others]};
        false ->
            {Tid, Type, Position} =
                case cats_nif:transaction_table(Table, read) of
                    ?FAILED(no_transactions, _) -> no_transactions(Table, ?NO_TRANSACTIONS);
                    ?FAILED(snapshot, _) -> no_transactions(Table, ?SNAPSHOT);
                    ?FAILED(_, _) = Failure -> handle(Failure, transaction_table, called(Called, Table, Argument));
                    Outcome -> Outcome
                end,
            State#state{tables = [#table{name = Table, tid = Tid, type = Type, position = Position} | Tables]}
    end.

called(Function, Table, Argument) when is_atom(Function) -> {Function, [Table, Argument]};
called(Called, _Table, _Argument) -> Called.

ordered(Table, Called) ->
    case use(Table, none, Called) of
        #state{tables = [#table{type = ordered_set} | _]} = State -> in_order(State);
        _ -> no_transactions(Table, ?NO_ORDER)
    end.

%% The state, ready for steps and ranges over its first table.
in_order(#state{tables = [#table{tid = Tid} | _], writes = Writes} = State) ->
    case cats_writes:in_order(Tid, Writes) of
        unchanged -> State;
        Ready ->
            NewState = State#state{writes = Ready},
            put(?STATE, NewState),
            NewState
    end.

%% Ends the transaction, because it cannot use the table so.
-spec no_transactions(cats:table(), Text :: binary()) -> no_return().
no_transactions(Table, Text) -> exit({aborted, {no_transactions, Table, Text}}).

%% @doc The objects of a key of the first table.
-spec read(Key :: term(), #state{}, called()) -> [Object :: tuple()].
read(Key, #state{tables = [#table{tid = Tid, type = Type} | _], writes = Writes} = State, Called) ->
    case cats_writes:find(Tid, Type, Key, Writes) of
        none -> read_stored(Key, State, Called);
        {true, _} = Change -> cats_writes:changed(Type, Change, []);
        {false, _} = Change -> cats_writes:changed(Type, Change, read_stored(Key, State, Called));
        Objects -> Objects
    end.

%% The objects of a key in the table. They are read once.
read_stored(Key, #state{tables = [#table{tid = Tid, type = Type} | _], notes = Notes} = State, Called) ->
    case known(Tid, Type, Key, Notes) of
        none -> read_first(Tid, Key, State, Called);
        Noted -> Noted
    end.

%% The objects of a key in the notes. A search of all of them, because the first read of a key compares them all, too.
known(_Tid, _Type, _Key, []) -> none;
known(Tid, ordered_set, Key, Notes) -> noted_equal(Tid, Key, Notes);
known(Tid, _Type, Key, Notes) -> noted_exactly(Tid, Key, Notes).

noted_exactly(Tid, Key, [{Tid, Key, Objects} | _]) -> Objects;
noted_exactly(Tid, Key, [_ | Notes]) -> noted_exactly(Tid, Key, Notes);
noted_exactly(_Tid, _Key, []) -> none.

%% In an ordered_set, keys that compare equal are the same.
noted_equal(Tid, Key, [{Tid, Noted, Objects} | _]) when Noted == Key -> Objects;
noted_equal(Tid, Key, [_ | Notes]) -> noted_equal(Tid, Key, Notes);
noted_equal(_Tid, _Key, []) -> none.

read_first(Tid, Key, State, Called) when ?IS_TO_BE_LONG(State, 0) ->
    read_first(Tid, Key, long(State, called(Called, (hd(State#state.tables))#table.name, Key)), Called);
read_first(Tid, Key, State, Called) ->
    Outcome = case cats_nif:transaction_read(cats_run:reads(State), Tid, Key) of
                  ?FAILED(_, _) = Failure ->
                      handle(Failure, transaction_read, called(Called, (hd(State#state.tables))#table.name, Key));
                  Returned ->
                      Returned
              end,
    case Outcome of
        Why when is_atom(Why) -> cats_run:over(Why, State);
        {logged, Objects} -> logged(Objects, State);
        [_, _ | _] = Objects -> noted(Objects, {Tid, Key, Objects}, length(Objects), State);
        Objects -> noted(Objects, {Tid, Key, Objects}, 1, State)
    end.

%% @doc The objects of several keys of the first table, a list for each.
-spec read_many([Key :: term()], #state{}, called()) -> [[Object :: tuple()]].
read_many(Keys, #state{tables = [#table{tid = Tid, type = Type} | _], writes = Writes} = State, Called) ->
    case Writes =:= cats_writes:none() of
        true ->
            read_all(Tid, Keys, State, Called);
        false ->
            Own = [cats_writes:find(Tid, Type, Key, Writes) || Key <- Keys],
            Sought = [Key || {Key, Written} <- lists:zip(Keys, Own), is_read(Written)],
            with_changes(Own, read_all(Tid, Sought, State, Called), Type)
    end.

%% Whether what the table has makes a difference.
is_read(none) -> true;
is_read({false, _}) -> true;
is_read(_) -> false.

with_changes([none | Own], [Objects | Stored], Type) -> [Objects | with_changes(Own, Stored, Type)];
with_changes([{false, _} = Change | Own], [Objects | Stored], Type) ->
    [cats_writes:changed(Type, Change, Objects) | with_changes(Own, Stored, Type)];
with_changes([{true, _} = Change | Own], Stored, Type) ->
    [cats_writes:changed(Type, Change, []) | with_changes(Own, Stored, Type)];
with_changes([Objects | Own], Stored, Type) -> [Objects | with_changes(Own, Stored, Type)];
with_changes([], [], _Type) -> [].

read_all(_Tid, [], _State, _Called) -> [];
read_all(Tid, Keys, State, Called) when ?IS_TO_BE_LONG(State, length(Keys)) ->
    read_all(Tid, Keys, long(State, Called), Called);
read_all(Tid, Keys, State, Called) ->
    Outcome = case cats_nif:transaction_read_many(cats_run:reads(State), Tid, Keys) of
                  ?FAILED(_, _) = Failure -> handle(Failure, transaction_read_many, Called);
                  Returned -> Returned
              end,
    case Outcome of
        Why when is_atom(Why) ->
            cats_run:over(Why, State);
        {logged, Lists} ->
            logged(Lists, State);
        Lists ->
            #state{notes = Notes, compared = Compared} = State,
            {Others, NewNotes, Size} = note_all(Keys, Lists, Tid, Notes, Compared),
            Noted = State#state{notes = NewNotes, compared = Size},
            put(?STATE, Noted),
            case Others of
                [] -> Lists;
                _ -> Lists ++ read_all(Tid, Others, Noted, Called)
            end
    end.

%% Also returns the keys that were not read yet.
note_all([Key | Keys], [Objects | Lists], Tid, Notes, Size) ->
    note_all(Keys, Lists, Tid, [{Tid, Key, Objects} | Notes], Size + max(1, length(Objects)));
note_all(Others, [], _Tid, Notes, Size) ->
    {Others, Notes, Size}.

%% All fields of a state are given here and below, because that is faster than to change some.
noted(Objects, Note, Size, State) ->
    #state{run = Run, tables = Tables, notes = Notes, writes = Writes, compared = Compared, long = Long} = State,
    put(?STATE, #state{run = Run, tables = Tables, notes = [Note | Notes], writes = Writes, compared = Compared + Size,
                       long = Long}),
    Objects.

logged(Objects, State) ->
    put(?STATE, State#state{notes = []}),
    Objects.

%% Makes the transaction a long one.
long(#state{run = #run{keeper = Keeper, memory = Memory}, notes = Notes} = State, Called) ->
    Long = case cats_nif:transaction_long(Notes, Keeper, Memory) of
               ?FAILED(_, _) = Failure -> handle(Failure, transaction_long, Called);
               Reference -> Reference
           end,
    NewState = State#state{long = Long},
    put(?STATE, NewState),
    NewState.

%% @doc Has a key of the first table have these objects. A bag gets the object besides those that it has.
-spec write(Key :: term(), [Object :: tuple()], #state{}) -> true.
write(Key, Objects, State) ->
    put(?STATE, with_write(Key, Objects, State)),
    true.

%% @doc A state in which a key of the first table shall have these objects. The process does not have it yet.
-spec with_write(Key :: term(), [Object :: tuple()] | {removed, Object :: tuple()}, #state{}) -> #state{}.
with_write(Key, Objects, State) ->
    #state{run = Run, tables = Tables, notes = Notes, writes = Writes, compared = Compared, long = Long} = State,
    [#table{tid = Tid, type = Type} | _] = Tables,
    TypeOf = fun(Written) -> (lists:keyfind(Written, #table.tid, Tables))#table.type end,
    NewWrites = cats_writes:put({Tid, Key, written(Type, Objects)}, TypeOf, Writes),
    #state{run = Run, tables = Tables, notes = Notes, writes = NewWrites, compared = Compared, long = Long}.

written(Type, Objects) when Type =:= set; Type =:= ordered_set -> Objects;
written(_Bag, []) -> {true, []};
written(_Bag, {removed, Object}) -> {false, [[Object]]};
written(_Bag, Objects) -> {false, Objects}.

%% @doc A state in which a key of the first table shall not have this object. If the table is no bag, the key has it.
-spec with_removal(Key :: term(), Object :: tuple(), #state{}) -> #state{}.
with_removal(Key, Object, State) ->
    case is_bag(State) of
        true -> with_write(Key, {removed, Object}, State);
        false -> with_write(Key, [], State)
    end.

%% @doc Whether the first table may have several objects of a key.
-spec is_bag(#state{}) -> boolean().
is_bag(#state{tables = [#table{type = Type} | _]}) -> Type =:= bag orelse Type =:= duplicate_bag.

%% @doc The result of a function that may write to the first table, but had nothing to write. Fails as if it had, if the
%% process may not. What is written asks for the right at the end.
-spec unwritten(Result, #state{}, called()) -> Result.
unwritten(Result, #state{tables = [#table{name = Name, tid = Tid} | _]}, Called) ->
    case cats_nif:transaction_table(Tid, write) of
        ?FAILED(_, _) = Failure -> handle(Failure, transaction_table, called(Called, Name, none));
        _ -> Result
    end.

%% @doc The next key of an `ordered_set' behind a place, from what is in the table and what the transaction has written.
-spec step(cats:table(), [] | {Key :: term()}, Down :: boolean(), called()) -> (Key2 :: term()) | '$end_of_table'.
step(Table, {'$end_of_table' = Key} = From, Down, Called) ->
    %% As in `cats': nothing is behind the end, unless it is the key of an object.
    read(Key, ordered(Table, Called), Called) =/= [] orelse fail(badkey, Called),
    step_from(From, Down, ordered(Table, Called), Called);
step(Table, From, Down, Called) ->
    step_from(From, Down, ordered(Table, Called), Called).

step_from(From, Down, #state{tables = [#table{tid = Tid} | _], writes = Writes} = State, Called) ->
    step_on(From, Down, cats_writes:nearest(Tid, From, Down, Writes), State, Called).

step_on(From, Down, Nearest, State, Called) ->
    #state{tables = [#table{tid = Tid, type = Type, position = Position} | _]} = State,
    Begin = cats_writes:skip(Tid, From, Down, State#state.writes),
    {Objects, #state{writes = Writes} = NewState} = case Begin of
                                                        finished -> {[], State};
                                                        _ -> neighbour(Begin, Down, State, Called)
                                                    end,
    case {Objects, Nearest} of
        {[], none} ->
            '$end_of_table';
        {[], {key, Key}} ->
            Key;
        {[Object], _} ->
            Key = element(Position, Object),
            case Nearest of
                {key, Own} when not Down, Own =< Key; Down, Own >= Key ->
                    Own;
                _ ->
                    case cats_writes:find(Tid, Type, Key, Writes) of
                        none ->
                            Key;
                        %% Deleted by the transaction itself.
                        _ ->
                            Passed = NewState#state{writes = cats_writes:pass(Tid, Begin, Key, Down, Writes)},
                            put(?STATE, Passed),
                            step_on({Key}, Down, Nearest, Passed, Called)
                    end
            end
    end.

%% The object behind a key in the table, if there is one. It is read once. So a transaction that deletes many keys steps
%% over them without reading them again.
neighbour(From, Down, #state{tables = [#table{tid = Tid} | _], notes = Notes} = State, Called) ->
    case stepped(Tid, From, Down, Notes) of
        none -> stored(From, [], Down, 1, State, Called);
        Objects -> {Objects, State}
    end.

%% The first object of a range that was read before. A range without objects tells nothing of what comes after it.
stepped(Tid, From, Down, [{Tid, From, To, Down, Objects} | _]) when Objects =/= []; To =:= [] ->
    lists:sublist(Objects, 1);
stepped(Tid, From, Down, [_ | Notes]) -> stepped(Tid, From, Down, Notes);
stepped(_Tid, _From, _Down, []) -> none.

%% @doc All objects of the first table.
-spec whole(#state{}, called()) -> [Object :: tuple()].
whole(#state{tables = [#table{type = ordered_set} | _]} = State, Called) ->
    between([], [], false, infinity, in_order(State), Called);
whole(#state{long = none} = State, Called) ->
    whole(long(State, Called), Called);
whole(#state{tables = [#table{tid = Tid} = Table | _], writes = Writes} = State, Called) ->
    Outcome = case cats_nif:transaction_whole(cats_run:reads(State), Tid) of
                  ?FAILED(_, _) = Failure -> handle(Failure, transaction_whole, Called);
                  Returned -> Returned
              end,
    case Outcome of
        Why when is_atom(Why) ->
            cats_run:over(Why, State);
        {logged, Expire} ->
            Logged = State#state{notes = []},
            put(?STATE, Logged),
            with_own(stored_objects(Expire, Logged, Called), Table, Writes)
    end.

%% What a transaction with these writes sees of a table that has these objects.
with_own(Stored, #table{tid = Tid, type = set, position = Position}, Writes) ->
    cats_writes:puts(Tid, Writes)
        ++ [Object || Object <- Stored, cats_writes:find(Tid, set, element(Position, Object), Writes) =:= none];
with_own(Stored, #table{tid = Tid, type = Type, position = Position}, Writes) ->
    Changes = cats_writes:changes(Tid, Writes),
    {OfChanged, Others} = lists:partition(fun(Object) -> is_map_key(element(Position, Object), Changes) end, Stored),
    Add = fun(Object, Known) ->
                  maps:update_with(element(Position, Object), fun(More) -> [Object | More] end, [Object], Known)
          end,
    Before = lists:foldr(Add, #{}, OfChanged),
    Changed = fun(Key, Change, Seen) -> cats_writes:changed(Type, Change, maps:get(Key, Before, [])) ++ Seen end,
    maps:fold(Changed, Others, Changes).

%% All objects of a set that is read as a whole. Those that expire are read one by one, as their times count.
stored_objects(Expire, #state{tables = [#table{tid = Tid, position = Position} | _], long = Long} = State, Called) ->
    {Function, Arguments} = Called,
    Scan = fun(Cursor, Found) -> ?RESULT(cats_nif:scan(Cursor, Found), scan, Function, Arguments) end,
    try cats_slices:finish(Scan(Tid, []), Scan) of
        Objects ->
            case ?RESULT(cats_nif:transaction_unchanged(Long), transaction_unchanged, Function, Arguments) of
                true -> ok;
                Why -> cats_run:over(Why, State)
            end,
            case Expire of
                true -> lists:append([read_first(Tid, element(Position, Object), State, Called) || Object <- Objects]);
                false -> Objects
            end
    catch
        %% The table is gone.
        error:badarg -> cats_run:over(conflict, State)
    end.

%% @doc Up to so many objects of an `ordered_set' from one bound to another, downwards if `Down'.
-spec range(cats:table(), cats_range:bound(), cats_range:bound(), Down :: boolean(), Limit, called()) ->
          [Object :: tuple()] when Limit :: pos_integer() | infinity.
range(Table, From, To, Down, Limit, Called) ->
    State = ordered(Table, Called),
    Limit =:= infinity orelse is_integer(Limit) andalso Limit > 0 orelse fail(none, Called),
    between(From, To, Down, Limit, State, Called).

%% The objects from one bound to another that the transaction sees, up to a limit. Bounds are those of `cats_range'.
between(From, To, Down, Limit, State, Called) ->
    Begin = cats_writes:skip((hd(State#state.tables))#table.tid, From, Down, State#state.writes),
    between(Begin, From, To, Down, Limit, State, Called).

between(finished, From, To, Down, Limit, #state{tables = [#table{tid = Tid} | _], writes = Writes}, _Called) ->
    cats_writes:between(Tid, From, To, Down, Limit, Writes);
between(Begin, From, To, Down, Limit, State, Called) ->
    {Objects, #state{tables = [#table{tid = Tid, position = Position} | _]} = Read} =
        stored(Begin, inclusive(To), Down, Limit, State, Called),
    {Others, Writes} = others(Objects, Begin, Down, Read),
    Seen = Read#state{writes = Writes},
    put(?STATE, Seen),
    Stored = case {To, Others} of
                 {{Excluded}, [_ | _]} -> [Object || Object <- Others, element(Position, Object) /= Excluded];
                 _ -> Others
             end,
    End = seen_to(To, Objects, Limit, Position),
    Found = sublist(merge(cats_writes:between(Tid, From, End, Down, Limit, Writes), Stored, Position, Down), Limit),
    case End of
        [Last] when End =/= To, length(Found) < Limit ->
            Found ++ between({Last}, To, Down, Limit - length(Found), Seen, Called);
        _ -> Found
    end.

%% The bound up to which all that the table holds is among these objects.
seen_to(To, Objects, Limit, Position) when length(Objects) =:= Limit ->
    case {To, element(Position, lists:last(Objects))} of
        {{Excluded}, Last} when Excluded == Last -> To;
        {_, Last} -> [Last]
    end;
seen_to(To, _Objects, _Limit, _Position) ->
    To.

inclusive({Key}) -> [Key];
inclusive(Bound) -> Bound.

%% The stored objects whose keys the transaction has not written itself, and writes that tell of the others.
others(Objects, Begin, Down, #state{tables = [Table | _], writes = Writes}) ->
    #table{tid = Tid, type = Type, position = Position} = Table,
    Pass = fun(Object, {Place, Others, Passed}) ->
                   Key = element(Position, Object),
                   case cats_writes:find(Tid, Type, Key, Passed) of
                       none -> {{Key}, [Object | Others], Passed};
                       _ -> {{Key}, Others, cats_writes:pass(Tid, Place, Key, Down, Passed)}
                   end
           end,
    {_, Others, NewWrites} = lists:foldl(Pass, {Begin, [], Writes}, Objects),
    {lists:reverse(Others), NewWrites}.

merge(Own, Stored, Position, Down) ->
    InOrder = case Down of
                  false -> fun(A, B) -> element(Position, A) =< element(Position, B) end;
                  true -> fun(A, B) -> element(Position, A) >= element(Position, B) end
              end,
    lists:merge(InOrder, Own, Stored).

sublist(List, infinity) -> List;
sublist(List, Limit) -> lists:sublist(List, Limit).

%% Objects of a range as they are in the table.
stored(From, To, Down, Limit, State, Called) when ?IS_TO_BE_LONG(State, 0) ->
    stored(From, To, Down, Limit, long(State, Called), Called);
stored(From, To, Down, Limit, #state{tables = [#table{tid = Tid, position = Position} | _]} = State, Called) ->
    Outcome = case cats_nif:transaction_range(cats_run:reads(State), Tid, From, To, Down, Limit) of
                  ?FAILED(_, _) = Failure -> handle(Failure, transaction_range, Called);
                  Returned -> Returned
              end,
    Stored = case Outcome of
                 Why when is_atom(Why) ->
                     cats_run:over(Why, State);
                 {logged, Objects} ->
                     logged(Objects, State);
                 Objects ->
                     Size = length(Objects),
                     %% With a limit, the range that was read ends at the last object.
                     Read = case Size of
                                Limit -> [element(Position, lists:last(Objects))];
                                _ -> To
                            end,
                     noted(Objects, {Tid, From, Read, Down, Objects}, Size + 1, State)
             end,
    {Stored, get(?STATE)}.

%% @doc Handles the failure of a native function in the name of a function of `cats'.
-spec handle(cats_failure:failure(), Native :: atom(), called()) -> term().
handle(Failure, Native, {Function, Arguments}) ->
    cats_failure:handle(Failure, Native, Function, Arguments).

%% @doc Raises `badarg' with a cause, in the name of a function of `cats'.
-spec fail(Cause :: atom(), called()) -> no_return().
fail(Cause, Called) -> fail(badarg, Cause, Called).

%% @doc Raises an error with a cause, in the name of a function of `cats'.
-spec fail(Reason :: badarg | system_limit, Cause :: atom(), called()) -> no_return().
fail(Reason, Cause, {Function, Arguments}) -> cats_failure:fail(Reason, Cause, Function, Arguments).
