%% Loops over calls of one table module, ?TABLES, which the including module defines. Each call is written out as
%% a program would write it. So the loops over ets and over cats come from one source.

-export([loop/3]).

%% A loop over the list of arguments. It returns the result of the last call, so that a test can see it.
-define(LOOP(Name, Argument, Calls),
        Name(Table, [Argument | Rest]) ->
               Result = Calls,
               case Rest of
                   [] -> Result;
                   _ -> Name(Table, Rest)
               end).

%% @doc Calls with each of these arguments, in this order. The result is that of the last call.
-spec loop(Calls :: atom(), Table :: atom() | ets:table() | cats:table(), Arguments :: nonempty_list()) -> term().
loop(Calls, Table, Arguments) ->
    case Calls of
        lookup -> lookup(Table, Arguments);
        lookup_element -> lookup_element(Table, Arguments);
        lookup_element_caught -> lookup_element_caught(Table, Arguments);
        member -> member(Table, Arguments);
        insert -> insert(Table, Arguments);
        insert_new -> insert_new(Table, Arguments);
        insert_new_delete -> insert_new_delete(Table, Arguments);
        delete_insert -> delete_insert(Table, Arguments);
        take_insert -> take_insert(Table, Arguments);
        insert_delete_object -> insert_delete_object(Table, Arguments);
        update_element -> update_element(Table, Arguments);
        update_counter -> update_counter(Table, Arguments);
        update_counter_default -> update_counter_default(Table, Arguments);
        first -> first(Table, Arguments);
        last -> last(Table, Arguments);
        next -> next(Table, Arguments);
        prev -> prev(Table, Arguments);
        queue -> queue(Table, Arguments);
        match -> match(Table, Arguments);
        match_object -> match_object(Table, Arguments);
        insert_match_delete -> insert_match_delete(Table, Arguments);
        select -> select(Table, Arguments);
        select_count -> select_count(Table, Arguments);
        select_replace -> select_replace(Table, Arguments);
        insert_select_delete -> insert_select_delete(Table, Arguments);
        tab2list -> tab2list(Table, Arguments);
        foldl -> foldl(Table, Arguments);
        size -> size(Table, Arguments);
        whereis -> whereis(Table, Arguments);
        transaction -> transaction(Table, Arguments);
        fill -> fill(Table, Arguments)
    end.

?LOOP(lookup, Key, ?TABLES:lookup(Table, Key)).
?LOOP(lookup_element, Key, ?TABLES:lookup_element(Table, Key, 2)).
%% As programs do that want a default and run on releases without lookup_element/4.
?LOOP(lookup_element_caught, Key, try ?TABLES:lookup_element(Table, Key, 2) catch error:badarg -> default end).
?LOOP(member, Key, ?TABLES:member(Table, Key)).
?LOOP(insert, Object, ?TABLES:insert(Table, Object)).
?LOOP(insert_new, Object, ?TABLES:insert_new(Table, Object)).
?LOOP(insert_new_delete, {Key, Object},
      begin
          New = ?TABLES:insert_new(Table, Object),
          ?TABLES:delete(Table, Key),
          New
      end).
?LOOP(delete_insert, {Key, Object},
      begin
          ?TABLES:delete(Table, Key),
          ?TABLES:insert(Table, Object)
      end).
?LOOP(take_insert, {Key, Object},
      begin
          Taken = ?TABLES:take(Table, Key),
          ?TABLES:insert(Table, Object),
          Taken
      end).
?LOOP(insert_delete_object, Object,
      begin
          ?TABLES:insert(Table, Object),
          ?TABLES:delete_object(Table, Object)
      end).
?LOOP(update_element, {Key, Update}, ?TABLES:update_element(Table, Key, Update)).
?LOOP(update_counter, {Key, Update}, ?TABLES:update_counter(Table, Key, Update)).
?LOOP(update_counter_default, {Key, Update, Default}, ?TABLES:update_counter(Table, Key, Update, Default)).
?LOOP(first, _, ?TABLES:first(Table)).
?LOOP(last, _, ?TABLES:last(Table)).
?LOOP(next, Key, ?TABLES:next(Table, Key)).
?LOOP(prev, Key, ?TABLES:prev(Table, Key)).
%% Takes the object with the least key and appends one. The argument is the number of objects, the keys follow
%% one another.
?LOOP(queue, Number,
      begin
          First = ?TABLES:first(Table),
          ?TABLES:delete(Table, First),
          ?TABLES:insert(Table, {First + Number, entry}),
          First
      end).
?LOOP(match, Pattern, ?TABLES:match(Table, Pattern)).
?LOOP(match_object, Pattern, ?TABLES:match_object(Table, Pattern)).
?LOOP(insert_match_delete, {Object, Pattern},
      begin
          ?TABLES:insert(Table, Object),
          ?TABLES:match_delete(Table, Pattern)
      end).
?LOOP(select, Specification, ?TABLES:select(Table, Specification)).
?LOOP(select_count, Specification, ?TABLES:select_count(Table, Specification)).
?LOOP(select_replace, Specification, ?TABLES:select_replace(Table, Specification)).
?LOOP(insert_select_delete, {Object, Specification},
      begin
          ?TABLES:insert(Table, Object),
          ?TABLES:select_delete(Table, Specification)
      end).
?LOOP(tab2list, _, ?TABLES:tab2list(Table)).
?LOOP(foldl, Fun, ?TABLES:foldl(Fun, 0, Table)).
?LOOP(size, _, ?TABLES:info(Table, size)).
?LOOP(whereis, _, is_reference(?TABLES:whereis(Table))).
%% What a transaction of Mnesia does with the table that holds its changes.
?LOOP(transaction, {Key, Object},
      begin
          Store = ?TABLES:new(store, [bag, public]),
          ?TABLES:insert(Store, {nodes, node()}),
          ?TABLES:insert(Store, {{locks, Table, Key}, write}),
          ?TABLES:insert(Store, {{Table, Key}, Object, write}),
          Written = ?TABLES:lookup(Store, {Table, Key}),
          ?TABLES:delete(Store),
          length(Written)
      end).
?LOOP(fill, Key, ?TABLES:insert(Table, {Key, 0})).
