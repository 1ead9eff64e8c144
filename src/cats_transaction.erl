%% @doc Transactions over any keys of any tables of this node. Not in `ets'.
%%
%% {@link run/1} runs a function. All that the function reads by this module was there at one instant. All that it
%% writes by this module appears at that instant, or nothing does. Transactions are serializable, also against the
%% functions of {@link cats}, and against objects that appear in a range that was read. Reads and writes outside of
%% transactions pay nothing for them.
%%
%% A transaction takes no locks while its function runs. If another process changes what the function has read, the
%% function is run again. So it must have no other effects: it should send no messages and should not wait for other
%% processes. It should write by this module only: what functions of `cats' write cannot be taken back. It never sees
%% two states at once, so its own checks hold in every run.
%%
%% The tables must be of type `set', `bag' or `duplicate_bag' with the engine `hash', or of type `ordered_set' with the
%% engine `ca'. These are the defaults. A name stands for the table that had it when the transaction first used it.
%%
%% If the process is killed, the transaction has written all or nothing.
%%
%% == Cost ==
%%
%% A read of `N' reads costs `O(log N)' more than {@link cats:lookup/2}. The first ones compare all that was read
%% before, up to some 24 objects. After that the transaction is a long one. Until it ends, all writers of its tables log
%% the keys that they write. Each read looks at what was logged since the last one. Writes are kept until the end, where
%% each costs what {@link cats:insert/2} costs. In a bag, {@link insert/2}, {@link delete/2} and {@link delete_object/2}
%% read nothing, and others read all objects of the key. A step or a range passes over `N' own writes in `O(log N)'.
%%
%% == Functions ==
%%
%% The functions for the inside have the names, the arguments and the results of those of `cats'. So the body of a
%% transaction is written as without one. Outside of a transaction they fail with `no_transaction'.
%%
%% == Errors ==
%%
%% Errors are those of the functions of `cats' with the same name, and name these. Like all errors, they end the
%% transaction: {@link run/2} returns `{aborted, {badarg, Stacktrace}}'. Any function fails so when the table does not
%% exist, or when its access rights forbid to read. Where a table cannot do in a transaction what is asked for, the
%% transaction ends with `{aborted, {no_transactions, Table, Text}}'. The text says why.
%%
%% The right to write is asked for at the end. Then a transaction also fails with `system_limit' when it writes
%% more than 32 tables, when a table that it writes is full and evicts nothing, or when memory runs out. The error names
%% the full table. After ten failures a transaction needs a process of its own, and fails so where the VM has no room
%% for it.
-module(cats_transaction).

-include("cats_failure.hrl").
-include("cats_transaction.hrl").

-export([run/1, run/2, run/3, abort/1]).
-export([delete/2, delete_object/2, first/1, foldl/3, insert/2, insert_new/2, last/1, lookup/2, lookup_element/3,
         lookup_element/4, lookup_many/2, match_object/2, member/2, next/2, prev/2, range/3, range/4, read/2, select/2,
         select_delete/2, take/2, update/3, update/4, update_counter/3, update_counter/4, update_element/3,
         update_element/4]).

-export_type([result/1, options/0]).

-type result(Result) :: {atomic, Result} | {aborted, Reason :: term()}.
%% What became of a transaction.

-type options() :: #{retries => non_neg_integer() | infinity, timeout => timeout(),
                     memory => non_neg_integer() | infinity}.
%% How often the function may run again, the milliseconds after which it does not run again, and the bytes that a long
%% transaction may hold.

%% The least integer that the VM stores in several words. No object has so many elements.
-define(NO_SMALL, (1 bsl 59)).

%% Raised by `run' itself.
-define(BAD_CALL(Arguments), erlang:error(badarg, Arguments, [{error_info, #{module => cats_failure}}])).

%% @doc Like {@link run/2}, with a function that has no arguments.
-spec run(fun(() -> Result)) -> result(Result).
run(Fun) when is_function(Fun, 0) -> cats_run:run(Fun, [], #{});
run(Fun) -> ?BAD_CALL([Fun]).

%% @doc Like {@link run/3}, with no options.
-spec run(fun((...) -> Result), Arguments :: [term()]) -> result(Result).
run(Fun, Arguments) when is_function(Fun, length(Arguments)) -> cats_run:run(Fun, Arguments, #{});
run(Fun, Arguments) -> ?BAD_CALL([Fun, Arguments]).

%% @doc Runs a function as a transaction. Returns `{atomic, Result}' when everything that it has written is there.
%%
%% Otherwise nothing was written, and it returns `{aborted, Reason}'. The first four reasons are those of Mnesia.
%%
%% <ul>
%% <li>{@link abort/1} gives its argument.</li>
%% <li>An error gives `{Error, Stacktrace}'.</li>
%% <li>`exit(Reason)' gives `Reason'.</li>
%% <li>`throw(Value)' gives `{throw, Value}'.</li>
%% <li>A table that cannot do what is asked for gives `{no_transactions, Table, Text}'.</li>
%% <li>A function that has run so many times gives `{conflict, Runs}'. It gives `{timeout, Runs}' if its time was over,
%% and `{memory, Runs}' if its memory was not enough.</li>
%% </ul>
%%
%% The function may run several times, see {@link cats_transaction}. After ten failures the transaction is the preferred
%% one: others that write what it has read wait until it has ended, or for ten seconds. So two transactions cannot keep
%% each other from finishing. Operations outside of transactions can still make it fail. After 100 such runs it ends.
%%
%% With `retries' it runs again so many times, or with `infinity' without end. With `timeout' it neither runs again nor
%% waits for others when so many milliseconds are over. `memory' is in bytes, 64 MB by default. It is for the keys that
%% a long transaction has read, and for those that others have written since its last call.
%%
%% Inside another transaction the function is a part of that one. Its writes appear with those of the outer one, which
%% runs again as its own options say. If it aborts, only its own writes are forgotten, and the outer one goes on.
%%
%% Fails with `badarg' when `Fun' is not a function of as many arguments as `Arguments' has, or when the options are
%% wrong.
-spec run(fun((...) -> Result), Arguments :: [term()], options()) -> result(Result).
run(Fun, Arguments, Options) when is_function(Fun, length(Arguments)), is_map(Options) ->
    case maps:fold(fun is_option/3, true, Options) of
        true -> cats_run:run(Fun, Arguments, Options);
        false -> ?BAD_CALL([Fun, Arguments, Options])
    end;
run(Fun, Arguments, Options) ->
    ?BAD_CALL([Fun, Arguments, Options]).

is_option(Option, Value, Good) when Option =:= retries; Option =:= timeout; Option =:= memory ->
    Good andalso (Value =:= infinity orelse is_integer(Value) andalso Value >= 0);
is_option(_Option, _Value, _Good) -> false.

%% @doc Ends the transaction: {@link run/1} returns `{aborted, Reason}'.
%%
%% Outside of a transaction this fails with `no_transaction'.
-spec abort(Reason :: term()) -> no_return().
abort(Reason) ->
    _ = cats_run:state({abort, [Reason]}),
    exit({aborted, Reason}).

%% @doc As {@link cats:delete/2}.
-spec delete(cats:table(), Key :: term()) -> true.
delete(Table, Key) -> cats_view:write(Key, [], cats_view:use(Table, Key, delete)).

%% @doc As {@link cats:delete_object/2}.
-spec delete_object(cats:table(), Object :: tuple()) -> true.
delete_object(Table, Object) ->
    Called = {delete_object, [Table, Object]},
    State = cats_view:use(Table, Object, Called),
    Key = key(Object, State, Called),
    case cats_view:is_bag(State) orelse found(Table, Key, Called) of
        true -> put(?STATE, cats_view:with_removal(Key, Object, State)), true;
        {[Object], Found} -> cats_view:write(Key, [], Found);
        {_, Found} -> cats_view:unwritten(true, Found, Called)
    end.

%% @doc As {@link cats:first/1}, of an `ordered_set'.
-spec first(cats:table()) -> (Key :: term()) | '$end_of_table'.
first(Table) -> cats_view:step(Table, [], false, {first, [Table]}).

%% @doc Calls `Function(Object, Acc)' for each object, as {@link cats:foldl/3} does. The objects are those of the
%% beginning. What the function writes makes no difference.
%%
%% Reads the whole table into the process. Any change of it by others makes the transaction run again.
-spec foldl(fun((Object :: tuple(), AccIn) -> AccOut), Acc0, cats:table()) -> Acc1 when
      Acc0 :: term(), Acc1 :: term(), AccIn :: term(), AccOut :: term().
foldl(Function, Acc0, Table) ->
    Called = {foldl, [Function, Acc0, Table]},
    fold(Function, Acc0, cats_view:whole(cats_view:use(Table, none, Called), Called)).

fold(Function, Acc, [Object | Objects]) -> fold(Function, Function(Object, Acc), Objects);
fold(_Function, Acc, []) -> Acc.

%% @doc As {@link cats:insert/2}: an object, or a list of objects.
-spec insert(cats:table(), tuple() | [tuple()]) -> true.
insert(Table, Objects) ->
    case cats_view:use(Table, Objects, insert) of
        #state{tables = [#table{position = Position} | _]} = State when tuple_size(Objects) >= Position ->
            cats_view:write(element(Position, Objects), [Objects], State);
        State ->
            insert_list(Objects, State, {insert, [Table, Objects]})
    end.

insert_list([], State, Called) -> cats_view:unwritten(true, State, Called);
insert_list(Objects, State, Called) -> insert_all(Objects, State, Called).

%% The state is noted at the end. So a wrong object in a list leaves nothing.
insert_all([Object | Objects], #state{tables = [#table{position = Position} | _]} = State, Called)
  when tuple_size(Object) >= Position ->
    insert_all(Objects, cats_view:with_write(element(Position, Object), [Object], State), Called);
insert_all([], State, _Called) ->
    put(?STATE, State),
    true;
insert_all(_Wrong, _State, Called) ->
    cats_view:fail(none, Called).

%% @doc As {@link cats:insert_new/2}: an object, or a list of objects.
-spec insert_new(cats:table(), tuple() | [tuple()]) -> boolean().
insert_new(Table, Objects) ->
    Called = {insert_new, [Table, Objects]},
    State = cats_view:use(Table, Objects, Called),
    List = if
               is_tuple(Objects) -> [Objects];
               true -> Objects
           end,
    insert_absent(keys(List, State, Called), List, Table, Called).

insert_absent([Key | Keys], Objects, Table, Called) ->
    case found(Table, Key, Called) of
        {[], _} -> insert_absent(Keys, Objects, Table, Called);
        {_, State} -> cats_view:unwritten(false, State, Called)
    end;
insert_absent([], Objects, Table, Called) ->
    insert_list(Objects, cats_view:use(Table, none, get(?STATE), Called), Called).

keys([Object | Objects], State, Called) -> [key(Object, State, Called) | keys(Objects, State, Called)];
keys([], _State, _Called) -> [];
keys(_Wrong, _State, Called) -> cats_view:fail(none, Called).

key(Object, #state{tables = [#table{position = Position} | _]}, _Called) when tuple_size(Object) >= Position ->
    element(Position, Object);
key(_Wrong, _State, Called) ->
    cats_view:fail(none, Called).

%% @doc As {@link cats:last/1}, of an `ordered_set'.
-spec last(cats:table()) -> (Key :: term()) | '$end_of_table'.
last(Table) -> cats_view:step(Table, [], true, {last, [Table]}).

%% @doc As {@link cats:lookup/2}.
-spec lookup(cats:table(), Key :: term()) -> [Object :: tuple()].
lookup(Table, Key) -> cats_view:read(Key, cats_view:use(Table, Key, lookup), lookup).

%% @doc As {@link cats:lookup_element/3}.
-spec lookup_element(cats:table(), Key :: term(), Pos :: pos_integer()) -> Element :: term().
lookup_element(Table, Key, Pos) ->
    Called = {lookup_element, [Table, Key, Pos]},
    case elements(Table, Key, Pos, Called) of
        {found, Element} -> Element;
        none -> cats_view:fail(badkey, Called)
    end.

%% @doc As {@link cats:lookup_element/4}.
-spec lookup_element(cats:table(), Key :: term(), Pos :: pos_integer(), Default :: term()) -> term().
lookup_element(Table, Key, Pos, Default) ->
    case elements(Table, Key, Pos, {lookup_element, [Table, Key, Pos, Default]}) of
        {found, Element} -> Element;
        none -> Default
    end.

elements(Table, Key, Pos, Called) ->
    State = cats_view:use(Table, Key, Called),
    is_integer(Pos) andalso Pos > 0 orelse cats_view:fail(none, Called),
    Objects = case Pos < ?NO_SMALL of
                  true -> cats_view:read(Key, State, Called);
                  false -> cats_view:fail(position, Called)
              end,
    Elements = [if
                    Pos =< tuple_size(Object) -> element(Pos, Object);
                    true -> cats_view:fail(position, Called)
                end || Object <- Objects],
    case {Elements, cats_view:is_bag(State)} of
        {[], _} -> none;
        {_, true} -> {found, Elements};
        {[Element], false} -> {found, Element}
    end.

%% @doc As {@link cats:lookup_many/2}.
-spec lookup_many(cats:table(), [Key :: term()]) -> [[Object :: tuple()]].
lookup_many(Table, Keys) ->
    Called = {lookup_many, [Table, Keys]},
    lookup_many(Keys, cats_view:use(Table, Keys, Called), Called).

lookup_many(Keys, State, Called) when length(Keys) >= 0 -> cats_view:read_many(Keys, State, Called);
lookup_many(_Keys, _State, Called) -> cats_view:fail(none, Called).

%% @doc As {@link cats:match_object/2}. Reads what {@link select/2} reads.
-spec match_object(cats:table(), cats:match_pattern()) -> [Object :: tuple()].
match_object(Table, Pattern) ->
    select(Table, [{Pattern, [], ['$_']}], {match_object, [Table, Pattern]}).

%% @doc As {@link cats:member/2}.
-spec member(cats:table(), Key :: term()) -> boolean().
member(Table, Key) -> cats_view:read(Key, cats_view:use(Table, Key, member), member) =/= [].

%% @doc As {@link cats:next/2}, of an `ordered_set'. `Key' need not be in the table.
-spec next(cats:table(), Key :: term()) -> (Key2 :: term()) | '$end_of_table'.
next(Table, Key) -> cats_view:step(Table, {Key}, false, {next, [Table, Key]}).

%% @doc As {@link cats:prev/2}, of an `ordered_set'. `Key' need not be in the table.
-spec prev(cats:table(), Key :: term()) -> (Key2 :: term()) | '$end_of_table'.
prev(Table, Key) -> cats_view:step(Table, {Key}, true, {prev, [Table, Key]}).

%% @doc As {@link cats:range/3}, of an `ordered_set'. Only changes of the part that it has listed make the transaction
%% run again.
-spec range(cats:table(), cats:key_range(), Limit :: pos_integer() | infinity) -> [Object :: tuple()].
range(Table, Range, Limit) ->
    Called = {range, [Table, Range, Limit]},
    case cats_range:bounds(Range) of
        {From, To, ascending} -> cats_view:range(Table, From, To, false, Limit, Called);
        {From, To, descending} -> cats_view:range(Table, To, From, true, Limit, Called);
        invalid -> cats_view:fail(no_range, Called)
    end.

%% @doc As {@link cats:range/4}, of an `ordered_set'. See {@link range/3}.
-spec range(cats:table(), From :: term(), To :: term(), Limit :: pos_integer() | infinity) -> [Object :: tuple()].
range(Table, From, To, Limit) ->
    cats_view:range(Table, [From], [To], false, Limit, {range, [Table, From, To, Limit]}).

%% @doc As {@link lookup/2}.
-spec read(cats:table(), Key :: term()) -> [Object :: tuple()].
read(Table, Key) -> lookup(Table, Key).

%% @doc As {@link cats:select/2}.
%%
%% If the match specification has one pattern only, which has the whole key, without maps, this reads one key. Any other
%% one reads the whole table into the process. Then any change of the table by others makes the transaction run again.
%% {@link range/3} reads a part of an `ordered_set'.
-spec select(cats:table(), cats:match_spec()) -> [Result :: term()].
select(Table, MatchSpec) -> select(Table, MatchSpec, {select, [Table, MatchSpec]}).

select(Table, MatchSpec, Called) -> select_terms(candidates(Table, MatchSpec, Called), MatchSpec, [], Called).

%% @doc As {@link cats:select_delete/2}. Reads what {@link select/2} reads.
-spec select_delete(cats:table(), cats:match_spec()) -> non_neg_integer().
select_delete(Table, MatchSpec) ->
    Called = {select_delete, [Table, MatchSpec]},
    Objects = candidates(Table, MatchSpec, Called),
    Selected = [Object || {true, Object} <- select_terms(Objects, with_objects(MatchSpec), [], Called)],
    State = cats_view:use(Table, none, get(?STATE), Called),
    Delete = fun(Object, Written) -> cats_view:with_removal(key(Object, Written, Called), Object, Written) end,
    put(?STATE, lists:foldl(Delete, State, Selected)),
    case length(Selected) of
        0 -> cats_view:unwritten(0, State, Called);
        Deleted -> Deleted
    end.

%% A match specification whose results are pairs, of the result of the given one and the object. The same one if it is
%% wrong.
with_objects(MatchSpec) ->
    try
        [{Head, Guards, lists:droplast(Body) ++ [{{lists:last(Body), '$_'}}]} || {Head, Guards, Body} <- MatchSpec]
    of
        Paired when length(Paired) =:= length(MatchSpec) -> Paired;
        _ -> MatchSpec
    catch
        error:_ -> MatchSpec
    end.

%% All that a match specification can select.
candidates(Table, MatchSpec, Called) ->
    State = cats_view:use(Table, MatchSpec, Called),
    #state{tables = [#table{position = Position} | _]} = State,
    Key = case cats_nif:select_key(MatchSpec, Position) of
              ?FAILED(_, _) = Failure -> cats_view:handle(Failure, select_key, Called);
              Outcome -> Outcome
          end,
    case Key of
        {Whole} -> cats_view:read(Whole, State, Called);
        none -> cats_view:whole(State, Called)
    end.

select_terms([], _MatchSpec, Results, _Called) ->
    lists:reverse(Results);
select_terms(Objects, MatchSpec, Results, Called) ->
    {OtherObjects, NewResults} =
        case cats_nif:select_terms(Objects, MatchSpec, Results) of
            ?FAILED(_, _) = Failure -> cats_view:handle(Failure, select_terms, Called);
            Outcome -> Outcome
        end,
    select_terms(OtherObjects, MatchSpec, NewResults, Called).

%% @doc As {@link cats:take/2}.
-spec take(cats:table(), Key :: term()) -> [Object :: tuple()].
take(Table, Key) ->
    Called = {take, [Table, Key]},
    case found(Table, Key, Called) of
        {[], State} -> cats_view:unwritten([], State, Called);
        {Objects, State} -> cats_view:write(Key, [], State), Objects
    end.

%% @doc As {@link cats:update/3}. The function runs once, as a part of the transaction, and may use this module.
-spec update(cats:table(), Key :: term(), cats:change()) -> (NewObject :: tuple()) | keep | delete | false.
update(Table, Key, Fun) -> update_by(Table, Key, Fun, [], {update, [Table, Key, Fun]}).

%% @doc As {@link cats:update/4}. The function runs once, as a part of the transaction, and may use this module.
-spec update(cats:table(), Key :: term(), cats:change(), Default :: tuple()) -> (NewObject :: tuple()) | keep | delete.
update(Table, Key, Fun, Default) -> update_by(Table, Key, Fun, [Default], {update, [Table, Key, Fun, Default]}).

update_by(Table, Key, Fun, Default, Called) ->
    is_function(Fun, 1) orelse cats_view:fail(no_fun, Called),
    case found_or(Default, Table, Key, Called) of
        none -> false;
        {Found, Object, State} ->
            Result = Fun(Object),
            NewState = cats_view:use(Table, Key, Called),
            updated(Result, Found, key(Object, State, Called), NewState, Called)
    end.

updated(keep, _Found, _Key, State, Called) ->
    cats_view:unwritten(keep, State, Called);
%% A default was never there.
updated(delete, false, _Key, State, Called) ->
    cats_view:unwritten(delete, State, Called);
updated(delete, true, Key, State, _Called) ->
    cats_view:write(Key, [], State),
    delete;
updated(New, _Found, Key, State, Called) ->
    NewKey = key(New, State, Called),
    is_same(Key, NewKey, State) orelse cats_view:fail(other_key, Called),
    cats_view:write(NewKey, [New], State),
    New.

is_same(Key, Other, #state{tables = [#table{type = ordered_set} | _]}) -> Key == Other;
is_same(Key, Other, _State) -> Key =:= Other.

%% @doc As {@link cats:update_counter/3}.
-spec update_counter(cats:table(), Key :: term(), UpdateOp) -> Result | [Result] when
      UpdateOp :: cats:update_op() | [cats:update_op()] | (Increment :: integer()), Result :: integer().
update_counter(Table, Key, UpdateOp) ->
    Called = {update_counter, [Table, Key, UpdateOp]},
    case change(Table, Key, UpdateOp, [], fun cats_updates:counters/3, Called) of
        none -> cats_view:fail(badkey, Called);
        {Counts} -> Counts
    end.

%% @doc As {@link cats:update_counter/4}.
-spec update_counter(cats:table(), Key :: term(), UpdateOp, Default :: tuple()) -> Result | [Result] when
      UpdateOp :: cats:update_op() | [cats:update_op()] | (Increment :: integer()), Result :: integer().
update_counter(Table, Key, UpdateOp, Default) ->
    Called = {update_counter, [Table, Key, UpdateOp, Default]},
    {Counts} = change(Table, Key, UpdateOp, [Default], fun cats_updates:counters/3, Called),
    Counts.

%% @doc As {@link cats:update_element/3}.
-spec update_element(cats:table(), Key :: term(), ElementSpec | [ElementSpec]) -> boolean() when
      ElementSpec :: {Pos :: pos_integer(), Value :: term()}.
update_element(Table, Key, ElementSpec) ->
    Called = {update_element, [Table, Key, ElementSpec]},
    change(Table, Key, ElementSpec, [], fun cats_updates:elements/3, Called) =/= none.

%% @doc As {@link cats:update_element/4}.
-spec update_element(cats:table(), Key :: term(), ElementSpec | [ElementSpec], Default :: tuple()) -> boolean() when
      ElementSpec :: {Pos :: pos_integer(), Value :: term()}.
update_element(Table, Key, ElementSpec, Default) ->
    Called = {update_element, [Table, Key, ElementSpec, Default]},
    change(Table, Key, ElementSpec, [Default], fun cats_updates:elements/3, Called) =/= none.

%% Changes an object as operations say. `none' if there is none, otherwise the result.
change(Table, Key, Operations, Default, Operate, Called) ->
    case found_or(Default, Table, Key, Called) of
        none ->
            none;
        {_, Object, #state{tables = [#table{position = Position} | _]} = State} ->
            case Operate(Object, Position, Operations) of
                {failed, Reason, Cause} ->
                    failed = cats_view:unwritten(failed, State, Called),
                    cats_view:fail(Reason, Cause, Called);
                {New, Result} ->
                    cats_view:write(element(Position, New), [New], State),
                    {Result}
            end
    end.

%% The objects of a key, and a state whose first table is this one.
found(Table, Key, Called) ->
    Objects = cats_view:read(Key, cats_view:use(Table, Key, Called), Called),
    {Objects, cats_view:use(Table, Key, get(?STATE), Called)}.

%% The cause of the error that bags have no such function. `ets' does not tell it for all.
bag_cause({update_element, _}) -> none;
bag_cause(_Called) -> table_type.

%% Whether the table has the object of a key, the object or else the default with this key, and the state. `none' if
%% there is neither.
found_or(Default, Table, Key, Called) ->
    #state{tables = [#table{position = Position} | _]} = Used = cats_view:use(Table, Key, Called),
    case Default of
        [Tuple] when tuple_size(Tuple) >= Position -> ok;
        [] -> ok;
        [_Wrong] -> cats_view:fail(default, Called)
    end,
    cats_view:is_bag(Used) andalso cats_view:fail(bag_cause(Called), Called),
    {Objects, State} = found(Table, Key, Called),
    case {Objects, Default} of
        {[Object], _} -> {true, Object, State};
        {[], [New]} -> {false, setelement(Position, New, Key), State};
        {[], []} -> cats_view:unwritten(none, State, Called)
    end.
