%% @doc Transactions over any keys of any tables of this node. Not in `ets'.
%%
%% {@link run/1} runs a function. All that the function reads by this module was there at one instant. All that it
%% writes by this module appears at that instant, or nothing does. Transactions are serializable, also against the
%% functions of {@link cats}, and against objects that appear in a range that was read. Reads and writes outside of
%% transactions pay nothing for them.
%%
%% A transaction takes no locks while its function runs. If another process changes what the function has read, the
%% function is run again. So it must have no other effects: it should send no messages and should not wait for other
%% processes. It never sees two states at once, so its own checks hold in every run.
%%
%% The tables must be of type `set' with the engine `hash', or of type `ordered_set' with the engine `ca'. These are
%% the defaults. A name stands for the table that had it when the transaction first used it.
%%
%% If the process is killed, the transaction has written all or nothing.
%%
%% == Cost ==
%%
%% A read costs what {@link cats:lookup/2} costs, and compares all that the transaction has read before. So the time of
%% a transaction grows with the square of its reads. A second read of the same key compares nothing. Writes are kept
%% until the end, where each costs what {@link cats:insert/2} costs.
%%
%% == Errors ==
%%
%% Errors are those of the functions of `cats' with the same purpose, and name these. {@link read/2} fails as {@link
%% cats:lookup/2}. Like all errors, they end the transaction: {@link run/2} returns `{aborted, {badarg, Stacktrace}}'.
%% Any function fails so when the table does not exist, or has no transactions, or when its access rights forbid to
%% read. The right to write is asked for at the end. Then a transaction also fails with `system_limit' when it writes
%% more than 32 tables, or when memory runs out.
-module(cats_transaction).

-export([run/1, run/2, abort/1]).
-export([read/2, member/2, insert/2, delete/2, delete_object/2]).
-export([first/1, last/1, next/2, prev/2, range/3, select/2]).

-export_type([result/1]).

-type result(Result) :: {atomic, Result} | {aborted, Reason :: term()}.
%% What became of a transaction.

%% The key of the process dictionary for the state of the transaction that runs.
-define(STATE, '$cats_transaction').

%% After so many failures, a transaction becomes the only one that may commit.
-define(PATIENCE, 10).

-type place() :: nonempty_improper_list(Number :: non_neg_integer(), Key :: term()).
%% Equal for equal keys. Numbers of tables are compared faster than identifiers.

-record(state, {
    tables = #{} :: #{cats:table() => info()},
    %% All that was read, the latest first.
    notes = [] :: [cats_nif:note()],
    %% What shall be written: the objects that a key shall have.
    writes = #{} :: #{place() => {reference(), Key :: term(), [tuple()]}}
}).

-type info() :: {Number :: non_neg_integer(), reference(), cats:table_type(), KeyPosition :: pos_integer()}.
%% What is known of a table. The number is the transaction's own.

-type called() :: {Function :: atom(), Arguments :: [term()]}.
%% The function of `cats' in whose name errors are raised.

%% @doc Like {@link run/2}, with a function that has no arguments.
-spec run(fun(() -> Result)) -> result(Result).
run(Fun) -> run(Fun, []).

%% @doc Runs a function as a transaction. Returns `{atomic, Result}' when everything that it has written is there.
%%
%% Otherwise nothing was written, and it returns `{aborted, Reason}'. The reasons are those of Mnesia.
%%
%% <ul>
%% <li>{@link abort/1} gives its argument.</li>
%% <li>An error gives `{Error, Stacktrace}'.</li>
%% <li>`exit(Reason)' gives `Reason'.</li>
%% <li>`throw(Value)' gives `{throw, Value}'.</li>
%% </ul>
%%
%% The function may run several times, see {@link cats_transaction}. After ten failures no other transaction commits
%% until this one has. So two transactions cannot keep each other from finishing. Operations outside of transactions
%% can still make it fail.
%%
%% Inside another transaction the function is a part of that one. Its writes appear with those of the outer one. If it
%% aborts, only its own writes are forgotten, and the outer one goes on.
%%
%% Fails with `badarg' when `Fun' is not a function of as many arguments as `Arguments' has.
-spec run(fun((...) -> Result), Arguments :: [term()]) -> result(Result).
run(Fun, Arguments) when is_function(Fun, length(Arguments)) ->
    case get(?STATE) of
        undefined -> attempt(Fun, Arguments, 0);
        conflict -> conflict();
        Outer -> within(Outer, Fun, Arguments)
    end;
run(Fun, Arguments) ->
    error(badarg, [Fun, Arguments]).

attempt(Fun, Arguments, Failures) ->
    Preferred = Failures >= ?PATIENCE andalso cats_nif:transaction_prefer(),
    put(?STATE, #state{}),
    Outcome = try
                  Result = apply(Fun, Arguments),
                  case commit(get(?STATE)) of
                      true -> {atomic, Result};
                      false -> conflict
                  end
              catch
                  Class:Reason:Stack ->
                      case get(?STATE) of
                          conflict -> conflict;
                          _ -> {aborted, reason(Class, Reason, Stack)}
                      end
              after
                  _ = erase(?STATE),
                  _ = Preferred andalso cats_nif:transaction_yield()
              end,
    case Outcome of
        conflict ->
            erlang:yield(),
            attempt(Fun, Arguments, Failures + 1);
        _ ->
            Outcome
    end.

within(#state{writes = Writes}, Fun, Arguments) ->
    try
        {atomic, apply(Fun, Arguments)}
    catch
        Class:Reason:Stack ->
            case get(?STATE) of
                conflict ->
                    conflict();
                State ->
                    %% What was read stays: the outer function acts on what became of this one.
                    put(?STATE, State#state{writes = Writes}),
                    {aborted, reason(Class, Reason, Stack)}
            end
    end.

reason(exit, {aborted, Reason}, _Stack) -> Reason;
reason(exit, Reason, _Stack) -> Reason;
reason(error, Error, Stack) -> {Error, Stack};
reason(throw, Value, _Stack) -> {throw, Value}.

%% What a transaction that has only read saw was there at the instant of its last read.
commit(conflict) ->
    false;
commit(#state{writes = Writes}) when map_size(Writes) =:= 0 ->
    true;
commit(#state{notes = Notes, writes = Writes} = State) ->
    Changes = maps:values(Writes),
    try
        cats_nif:transaction_commit(Notes, Changes)
    catch
        error:Cause:Stack ->
            {_, _, Objects} = hd(Changes),
            cats_failure:handle(Cause, {transaction_commit, [Notes, Changes]}, insert, [table_of(Changes, State), Objects], Stack)
    end.

%% The table of the first change, as it was called.
table_of([{Tid, _, _} | _], #state{tables = Tables}) ->
    hd([Table || {Table, {_, Known, _, _}} <- maps:to_list(Tables), Known =:= Tid]).

%% The body of the transaction cannot go on. A body that catches this does not get any further.
-spec conflict() -> no_return().
conflict() ->
    put(?STATE, conflict),
    throw({?MODULE, conflict}).

%% @doc Ends the transaction: {@link run/1} returns `{aborted, Reason}'.
%%
%% Outside of a transaction this and the functions below call `exit({aborted, no_transaction})'.
-spec abort(Reason :: term()) -> no_return().
abort(Reason) ->
    _ = state(),
    exit({aborted, Reason}).

%% @doc Returns the objects of a key, as {@link cats:lookup/2} does.
-spec read(cats:table(), Key :: term()) -> [Object :: tuple()].
read(Table, Key) ->
    {Info, State} = table(Table, state(), {lookup, [Table, Key]}),
    read(Info, Key, State, {lookup, [Table, Key]}).

%% @doc Returns whether the table holds an object with the key.
-spec member(cats:table(), Key :: term()) -> boolean().
member(Table, Key) ->
    {Info, State} = table(Table, state(), {member, [Table, Key]}),
    read(Info, Key, State, {member, [Table, Key]}) =/= [].

%% @doc Inserts an object or a list of objects, as {@link cats:insert/2} does.
-spec insert(cats:table(), tuple() | [tuple()]) -> true.
insert(Table, Objects) ->
    Called = {insert, [Table, Objects]},
    {Info, #state{writes = Writes} = State} = table(Table, state(), Called),
    NewWrites = case Objects of
                    _ when is_tuple(Objects) -> put_object(Info, Objects, Writes, Called);
                    _ -> put_objects(Info, Objects, Writes, Called)
                end,
    put_writes(State, NewWrites).

put_objects(Info, [Object | Objects], Writes, Called) ->
    put_objects(Info, Objects, put_object(Info, Object, Writes, Called), Called);
put_objects(_Info, [], Writes, _Called) ->
    Writes;
put_objects(_Info, _Improper, _Writes, Called) ->
    fail(none, Called).

put_object({Number, Tid, Type, Position}, Object, Writes, _Called) when tuple_size(Object) >= Position ->
    Key = element(Position, Object),
    Writes#{place(Number, Type, Key) => {Tid, Key, [Object]}};
put_object(_Info, _Object, _Writes, Called) ->
    fail(none, Called).

%% @doc Removes the object of a key, if there is one.
-spec delete(cats:table(), Key :: term()) -> true.
delete(Table, Key) ->
    {Info, State} = table(Table, state(), {delete, [Table, Key]}),
    write(Info, Key, [], State).

%% @doc Removes an object, if the table holds exactly this one.
-spec delete_object(cats:table(), Object :: tuple()) -> true.
delete_object(Table, Object) ->
    Called = {delete_object, [Table, Object]},
    case table(Table, state(), Called) of
        {{_, _, _, Position} = Info, State} when tuple_size(Object) >= Position ->
            Key = element(Position, Object),
            case read(Info, Key, State, Called) of
                [Object] -> write(Info, Key, [], get(?STATE));
                _ -> true
            end;
        _ ->
            fail(none, Called)
    end.

%% @doc Returns the first key of an `ordered_set', or `$end_of_table'.
-spec first(cats:table()) -> (Key :: term()) | '$end_of_table'.
first(Table) -> step(Table, [], false, {first, [Table]}).

%% @doc Returns the last key of an `ordered_set', or `$end_of_table'.
-spec last(cats:table()) -> (Key :: term()) | '$end_of_table'.
last(Table) -> step(Table, [], true, {last, [Table]}).

%% @doc Returns the key after `Key' in an `ordered_set', or `$end_of_table'. `Key' need not be in the table.
-spec next(cats:table(), Key :: term()) -> (Key2 :: term()) | '$end_of_table'.
next(Table, Key) -> step(Table, {Key}, false, {next, [Table, Key]}).

%% @doc Returns the key before `Key' in an `ordered_set', or `$end_of_table'. `Key' need not be in the table.
-spec prev(cats:table(), Key :: term()) -> (Key2 :: term()) | '$end_of_table'.
prev(Table, Key) -> step(Table, {Key}, true, {prev, [Table, Key]}).

%% @doc Returns the objects of an `ordered_set' with keys from `From' to `To', both included, in the order of keys.
%%
%% This counts as one read. It costs `O(log N)' for a table of `N' objects, and the objects that it returns.
-spec range(cats:table(), From :: term(), To :: term()) -> [Object :: tuple()].
range(Table, From, To) ->
    %% The error of a function with the same first argument.
    Called = {first, [Table]},
    {Info, State} = ordered(Table, Called),
    all_between(Info, [From], [To], State, Called).

%% @doc Returns the results of a match specification, as {@link cats:select/2} does.
%%
%% In a `set' it must have one pattern only, which has the whole key, without maps. In an `ordered_set' any other
%% specification reads the whole table. Then any change of the table makes the transaction run again. {@link range/3}
%% reads a part.
-spec select(cats:table(), cats:match_spec()) -> [Result :: term()].
select(Table, MatchSpec) ->
    Called = {select, [Table, MatchSpec]},
    {{_, _, Type, Position} = Info, State} = table(Table, state(), Called),
    Compiled = try ets:match_spec_compile(MatchSpec)
               catch error:badarg -> fail(none, Called)
               end,
    Objects = case [key_of(Position, Head) || {Head, _, _} <- MatchSpec] of
                  [{key, Key}] -> read(Info, Key, State, Called);
                  _ when Type =:= ordered_set -> all_between(Info, [], [], State, Called);
                  _ -> fail(no_ranges, Called)
              end,
    ets:match_spec_run(Objects, Compiled).

key_of(Position, Head) when tuple_size(Head) >= Position ->
    Key = element(Position, Head),
    case is_whole(Key) of
        true -> {key, Key};
        false -> none
    end;
key_of(_Position, _Head) ->
    none.

%% Whether a pattern matches only itself. A map also matches maps with more keys.
is_whole('_') -> false;
is_whole(Atom) when is_atom(Atom) -> re:run(atom_to_list(Atom), "^\\$[0-9]+$", [{capture, none}]) =:= nomatch;
is_whole([Head | Tail]) -> is_whole(Head) andalso is_whole(Tail);
is_whole(Tuple) when is_tuple(Tuple) -> is_whole(tuple_to_list(Tuple));
is_whole(Map) when is_map(Map) -> false;
is_whole(_) -> true.

%%------------------------------------------------------------------------------------------------------------

state() ->
    case get(?STATE) of
        #state{} = State -> State;
        undefined -> exit({aborted, no_transaction});
        conflict -> conflict()
    end.

-spec table(cats:table(), #state{}, called()) -> {info(), #state{}}.
table(Table, #state{tables = Tables} = State, Called) ->
    case Tables of
        #{Table := Info} ->
            {Info, State};
        #{} ->
            {Tid, Type, Position} =
                try
                    cats_nif:transaction_table(Table)
                catch
                    error:Cause:Stack -> handle(Cause, {transaction_table, [Table]}, Called, Stack)
                end,
            Info = {number(Tid, Tables), Tid, Type, Position},
            {Info, State#state{tables = Tables#{Table => Info}}}
    end.

%% A table may be known by its name and by its identifier.
number(_Tid, Tables) when map_size(Tables) =:= 0 ->
    0;
number(Tid, Tables) ->
    case [Number || {Number, Known, _, _} <- maps:values(Tables), Known =:= Tid] of
        [Number | _] -> Number;
        [] -> map_size(Tables)
    end.

ordered(Table, Called) ->
    case table(Table, state(), Called) of
        {{_, _, ordered_set, _}, _} = Found -> Found;
        _ -> fail(no_ranges, Called)
    end.

%% The objects of a key in the state that the transaction sees.
read(Info, Key, #state{writes = Writes} = State, Called) when map_size(Writes) =:= 0 ->
    read_noted(Info, Key, State, Called);
read({Number, _, Type, _} = Info, Key, #state{writes = Writes} = State, Called) ->
    Place = place(Number, Type, Key),
    case Writes of
        #{Place := {_, _, Objects}} -> Objects;
        #{} -> read_noted(Info, Key, State, Called)
    end.

read_noted({_, Tid, Type, _}, Key, #state{notes = Notes} = State, Called) ->
    Noted = case Type of
                ordered_set -> noted_equal(Tid, Key, Notes);
                _ -> noted(Tid, Key, Notes)
            end,
    case Noted of
        none -> read_first(Tid, Key, State, Called);
        _ -> Noted
    end.

%% The objects of a key that was read before. A search of all notes, because the first read of a key compares them all, too.
noted(Tid, Key, [{Tid, Key, Objects} | _]) -> Objects;
noted(Tid, Key, [_ | Notes]) -> noted(Tid, Key, Notes);
noted(_Tid, _Key, []) -> none.

%% In an ordered_set, keys that compare equal are the same.
noted_equal(Tid, Key, [{Tid, Noted, Objects} | _]) when Noted == Key -> Objects;
noted_equal(Tid, Key, [_ | Notes]) -> noted_equal(Tid, Key, Notes);
noted_equal(_Tid, _Key, []) -> none.

%% All fields of a state are given here, because that is faster than to change some.
read_first(Tid, Key, #state{tables = Tables, notes = Notes, writes = Writes}, Called) ->
    Objects = try
                  unless_conflict(cats_nif:transaction_read(Notes, Tid, Key))
              catch
                  error:Cause:Stack -> unless_conflict(handle(Cause, {transaction_read, [Notes, Tid, Key]}, Called, Stack))
              end,
    put(?STATE, #state{tables = Tables, notes = [{Tid, Key, Objects} | Notes], writes = Writes}),
    Objects.

write({Number, Tid, Type, _}, Key, Objects, #state{writes = Writes} = State) ->
    put_writes(State, Writes#{place(Number, Type, Key) => {Tid, Key, Objects}}).

put_writes(#state{tables = Tables, notes = Notes}, Writes) ->
    put(?STATE, #state{tables = Tables, notes = Notes, writes = Writes}),
    true.

%% The next key that the transaction sees, from what is in the table and what the transaction has written.
step(Table, From, Down, Called) ->
    {Info, State} = ordered(Table, Called),
    Own = [Key || {Key, [_]} <- written(Info, State), is_beyond(Key, From, Down)],
    Nearest = case {Own, Down} of
                  {[], _} -> none;
                  {_, false} -> {key, hd(Own)};
                  {_, true} -> {key, lists:last(Own)}
              end,
    step_on(Info, From, Down, Nearest, State, Called).

step_on({Number, _, Type, Position} = Info, From, Down, Nearest, State, Called) ->
    {Objects, NewState} = neighbour(Info, From, Down, State, Called),
    case {Objects, Nearest} of
        {[], none} ->
            '$end_of_table';
        {[], {key, Key}} ->
            Key;
        {[Object], _} ->
            Key = element(Position, Object),
            case {NewState#state.writes, Nearest} of
                {_, {key, Own}} when not Down, Own =< Key; Down, Own >= Key -> Own;
                {#{}, _} ->
                    case is_map_key(place(Number, Type, Key), NewState#state.writes) of
                        %% Deleted by the transaction itself.
                        true -> step_on(Info, {Key}, Down, Nearest, NewState, Called);
                        false -> Key
                    end
            end
    end.

%% The object behind a key in the table, if there is one. It is read once. So a transaction that deletes many keys steps over
%% them without reading them again.
neighbour({_, Tid, _, _} = Info, From, Down, #state{notes = Notes} = State, Called) ->
    case stepped(Tid, From, Down, Notes) of
        none -> stored(Info, From, [], Down, 1, State, Called);
        Objects -> {Objects, State}
    end.

%% The first object of a range that was read before.
stepped(Tid, From, Down, [{Tid, From, _To, Down, Objects} | _]) -> lists:sublist(Objects, 1);
stepped(Tid, From, Down, [_ | Notes]) -> stepped(Tid, From, Down, Notes);
stepped(_Tid, _From, _Down, []) -> none.

is_beyond(_Key, [], _Down) -> true;
is_beyond(Key, {From}, false) -> Key > From;
is_beyond(Key, {From}, true) -> Key < From.

%% The keys of a table that the transaction has written, with the objects that they shall have, in order.
written({_, Tid, _, _}, #state{writes = Writes}) ->
    lists:sort(fun({A, _}, {B, _}) -> A =< B end,
               [{Key, Objects} || {Written, Key, Objects} <- maps:values(Writes), Written =:= Tid]).

%% All objects of a range that the transaction sees.
all_between({Number, _, Type, Position} = Info, From, To, State, Called) ->
    {Stored, #state{writes = Writes} = NewState} = stored(Info, From, To, false, infinity, State, Called),
    Own = [Object || {Key, [Object]} <- written(Info, NewState), is_between(Key, From, To)],
    Other = [Object || Object <- Stored, not is_map_key(place(Number, Type, element(Position, Object)), Writes)],
    lists:merge(fun(A, B) -> element(Position, A) =< element(Position, B) end, Own, Other).

is_between(Key, From, To) ->
    (From =:= [] orelse hd(From) =< Key) andalso (To =:= [] orelse Key =< hd(To)).

%% Objects of a range as they are in the table.
stored({_, Tid, _, Position}, From, To, Down, Limit, #state{notes = Notes} = State, Called) ->
    Arguments = [Notes, Tid, From, To, Down, Limit],
    Objects = try
                  unless_conflict(cats_nif:transaction_range(Notes, Tid, From, To, Down, Limit))
              catch
                  error:Cause:Stack -> unless_conflict(handle(Cause, {transaction_range, Arguments}, Called, Stack))
              end,
    %% With a limit, the range that was read ends at the last object.
    Read = case length(Objects) of
               Limit -> [element(Position, lists:last(Objects))];
               _ -> To
           end,
    NewState = State#state{notes = [{Tid, From, Read, Down, Objects} | Notes]},
    put(?STATE, NewState),
    {Objects, NewState}.

unless_conflict(conflict) -> conflict();
unless_conflict(Objects) -> Objects.

%% Keys of an ordered_set are the same if they compare equal.
place(Number, ordered_set, Key) -> [Number | normal(Key)];
place(Number, _Type, Key) -> [Number | Key].

%% The same term for terms that compare equal.
normal(Float) when is_float(Float) ->
    case trunc(Float) of
        Integer when Integer == Float -> Integer;
        _ -> Float
    end;
normal([Head | Tail]) -> [normal(Head) | normal(Tail)];
normal(Tuple) when is_tuple(Tuple) -> list_to_tuple(normal(tuple_to_list(Tuple)));
normal(Map) when is_map(Map) -> maps:map(fun(_, Value) -> normal(Value) end, Map);
normal(Term) -> Term.

handle(Cause, Native, {Function, Arguments}, Stack) ->
    cats_failure:handle(Cause, Native, Function, Arguments, Stack).

-spec fail(Cause :: atom(), called()) -> no_return().
fail(Cause, {Function, Arguments}) ->
    cats_failure:fail(badarg, Cause, Function, Arguments).
