%% @hidden
%% What a transaction shall write: for each key of each table, the objects that it shall have. For a key of a bag, what
%% shall be added and removed: it may have very many objects.
%%
%% Two keys are the same here if they are the same in their table, because the VM compares them as the table does. An
%% `ordered_set' has the order of terms, so its keys are in a search tree of that order. The keys of a `set' and of a
%% bag are those of a map.
-module(cats_writes).

-export([none/0, put/3, find/4, all/1, changed/3, changes/2, puts/2, in_order/2, nearest/4, between/6, pass/5, skip/4]).

-export_type([writes/0, write/0, change/0, committed/0]).

%% More writes than this are not a list. Few of them cost less as a list, to make and to search.
-define(FEW, 8).

-type write() :: {reference(), Key :: term(), [Object :: tuple()] | change()}.
%% The objects that a key shall have: none or one. Or what becomes of the objects of a key of a bag.

-type change() :: {All :: boolean(), [(Added :: tuple()) | [Removed :: tuple()]]}.
%% Whether all objects are removed first. Then the steps, the latest first: one that adds an object, and one that
%% removes those that are the same as this one.

-type committed() :: {reference(), Key :: term(),
                      [Object :: tuple()] | {All :: boolean(), Gone :: [tuple()], Added :: [tuple()]}}.
%% A write as it is committed. In a bag, all objects go, or those that are the same as one of `Gone', before others are
%% added.

%% The writes to an `ordered_set'.
-record(ordered, {
    all = gb_trees:empty() :: gb_trees:tree(Key :: term(), write()),
    %% Those of them that put an object, each with the key before it. Made when a step or a range first needs them.
    puts = none :: none | gb_trees:tree(Key :: term(), {Object :: tuple(), Before :: key()}),
    %% Where the table has no other keys than those that are deleted here: the end of each run, and its beginning.
    runs = gb_trees:empty() :: gb_trees:tree(place(), place())
}).

-type key() :: {key, Key :: term()} | none.

-type from() :: [] | {Key :: term()}.
%% Behind which a step begins: an end of the table, or a key.

-type start() :: from() | [Key :: term()].
%% The same, or a key at which it begins.

-type place() :: {0, [], 0} | {1, Key :: term(), -1 | 1} | {2, [], 0}.
%% Between keys: at the beginning of the table, right before a key or right after it, or at the end.

-opaque writes() :: [write()] | #{reference() => of_table()}.

-type of_table() :: {set | bag, #{Key :: term() => write()}} | #ordered{}.

%% @doc Nothing is written.
-spec none() -> writes().
none() -> [].

%% @doc Adds a write, in place of the one for the same key, or to that one in a bag. The function tells the types of
%% tables.
-spec put(write(), fun((reference()) -> cats:table_type()), writes()) -> writes().
put({Tid, Key, _} = Write, TypeOf, Writes) when is_list(Writes) ->
    case length(Writes) < ?FEW andalso find(Tid, TypeOf(Tid), Key, Writes) of
        none -> [Write | Writes];
        _ -> put(Write, TypeOf, lists:foldr(fun(Old, Tables) -> put_in_table(Old, TypeOf, Tables) end, #{}, Writes))
    end;
put(Write, TypeOf, Writes) ->
    put_in_table(Write, TypeOf, Writes).

put_in_table({Tid, Key, _} = Write, TypeOf, Tables) ->
    OfTable = case Tables of
                  #{Tid := {set, Map}} -> {set, Map#{Key => Write}};
                  #{Tid := {bag, Map}} -> {bag, Map#{Key => joined(Write, Map)}};
                  #{Tid := #ordered{} = Ordered} -> put_in_order(Write, Ordered);
                  #{} ->
                      case TypeOf(Tid) of
                          set -> {set, #{Key => Write}};
                          ordered_set -> put_in_order(Write, #ordered{});
                          _ -> {bag, #{Key => Write}}
                      end
              end,
    Tables#{Tid => OfTable}.

%% The change of a key of a bag after those before.
joined({Tid, Key, {false, Steps}}, Map) when is_map_key(Key, Map) ->
    #{Key := {_, _, {All, Before}}} = Map,
    {Tid, Key, {All, Steps ++ Before}};
joined(Write, _Map) ->
    Write.

put_in_order({_, Key, _} = Write, #ordered{all = All, puts = none} = Ordered) ->
    Ordered#ordered{all = gb_trees:enter(Key, Write, All)};
put_in_order({_, Key, Objects} = Write, #ordered{all = All, puts = Puts} = Ordered) ->
    Before = put_before({Key}, Puts),
    NewPuts = case Objects of
                  [Object] -> put_behind({key, Key}, Key, gb_trees:enter(Key, {Object, Before}, Puts));
                  [] -> put_behind(Before, Key, gb_trees:delete_any(Key, Puts))
              end,
    Ordered#ordered{all = gb_trees:enter(Key, Write, All), puts = NewPuts}.

%% Puts of which the next one behind a key has this one before it.
put_behind(Before, Key, Puts) ->
    case put_after({Key}, Puts) of
        {key, Next} ->
            {Object, _} = gb_trees:get(Next, Puts),
            gb_trees:update(Next, {Object, Before}, Puts);
        none -> Puts
    end.

put_after([], Puts) ->
    case gb_trees:is_empty(Puts) of
        true -> none;
        false -> {key, element(1, gb_trees:smallest(Puts))}
    end;
put_after({From}, Puts) ->
    case gb_trees:next(gb_trees:iterator_from(From, Puts)) of
        {Key, _, _} when Key > From -> {key, Key};
        {_, _, Rest} ->
            case gb_trees:next(Rest) of
                {Key, _, _} -> {key, Key};
                none -> none
            end;
        none -> none
    end.

put_before([], Puts) ->
    case gb_trees:is_empty(Puts) of
        true -> none;
        false -> {key, element(1, gb_trees:largest(Puts))}
    end;
put_before({From}, Puts) ->
    case gb_trees:next(gb_trees:iterator_from(From, Puts)) of
        {_, {_, Before}, _} -> Before;
        none -> put_before([], Puts)
    end.

%% @doc The objects that a key of a table of this type shall have, or its change in a bag, if it is written.
-spec find(reference(), cats:table_type(), Key :: term(), writes()) -> [Object :: tuple()] | change() | none.
find(_Tid, _Type, _Key, []) -> none;
find(Tid, ordered_set, Key, Writes) when is_list(Writes) -> find_equal(Tid, Key, Writes);
find(Tid, _Type, Key, Writes) when is_list(Writes) -> find_exactly(Tid, Key, Writes);
find(Tid, _Type, Key, Tables) ->
    case Tables of
        #{Tid := {_, #{Key := {_, _, Written}}}} -> Written;
        #{Tid := #ordered{all = All}} ->
            case gb_trees:lookup(Key, All) of
                {value, {_, _, Objects}} -> Objects;
                none -> none
            end;
        #{} -> none
    end.

find_equal(Tid, Key, [{Tid, Written, Objects} | _]) when Written == Key -> Objects;
find_equal(Tid, Key, [_ | Writes]) -> find_equal(Tid, Key, Writes);
find_equal(_Tid, _Key, []) -> none.

find_exactly(Tid, Key, [{Tid, Key, Objects} | _]) -> Objects;
find_exactly(Tid, Key, [_ | Writes]) -> find_exactly(Tid, Key, Writes);
find_exactly(_Tid, _Key, []) -> none.

%% @doc All writes, as they are committed.
-spec all(writes()) -> [committed()].
all(Writes) when is_list(Writes) -> [committed(Write) || Write <- Writes];
all(Tables) -> lists:append([values(OfTable) || {_, OfTable} <- maps:to_list(Tables)]).

values({set, Map}) -> map_values(Map);
values({bag, Map}) -> [committed(Write) || Write <- map_values(Map)];
values(#ordered{all = All}) -> gb_trees:values(All).

%% The values of a map that may be large. `maps:values/1' and its like would hold the scheduler for the whole map.
map_values(Map) -> maps:fold(fun(_, Value, Values) -> [Value | Values] end, [], Map).

committed({Tid, Key, {All, Steps}}) ->
    case sorted(Steps) of
        {_, []} when All -> {Tid, Key, []};
        {_, Added} when All -> {Tid, Key, {true, [], Added}};
        {Gone, Added} -> {Tid, Key, {false, map_values(Gone), Added}}
    end;
committed(Write) ->
    Write.

%% Other steps with the same outcome: what is removed first, and then what is added, in this order.
sorted(Steps) -> sorted(Steps, #{}, []).

sorted([[Object] | Steps], Gone, Added) -> sorted(Steps, Gone#{Object => Object}, Added);
sorted([Object | Steps], Gone, Added) when is_map_key(Object, Gone) -> sorted(Steps, Gone, Added);
sorted([Object | Steps], Gone, Added) -> sorted(Steps, Gone, [Object | Added]);
sorted([], Gone, Added) -> {Gone, Added}.

%% @doc The objects of a key of a bag of this type after a change.
-spec changed(bag | duplicate_bag, change(), [Object :: tuple()]) -> [Object :: tuple()].
changed(Type, {All, Steps}, Objects) ->
    {Gone, Added} = sorted(Steps),
    Kept = if
               All -> [];
               Gone =:= #{} -> Objects;
               true -> [Object || Object <- Objects, not is_map_key(Object, Gone)]
           end,
    case Type of
        duplicate_bag -> Kept ++ Added;
        bag ->
            Absent = lists:foldl(fun(Object, Others) -> Others#{Object => absent} end, #{}, Added),
            Kept ++ absent(Added, lists:foldl(fun without/2, Absent, Kept))
    end.

without(Object, Objects) when is_map_key(Object, Objects) -> maps:remove(Object, Objects);
without(_Object, Objects) -> Objects.

%% The objects that a bag gets which has none of those in the map. Each is listed once.
absent([Object | Objects], Absent) when is_map_key(Object, Absent) ->
    [Object | absent(Objects, maps:remove(Object, Absent))];
absent([_Present | Objects], Absent) -> absent(Objects, Absent);
absent([], _Absent) -> [].

%% @doc The changes of all keys of a bag.
-spec changes(reference(), writes()) -> #{Key :: term() => change()}.
changes(Tid, Tables) when is_map(Tables) ->
    case Tables of
        #{Tid := {bag, Map}} ->
            maps:fold(fun(Key, {_, _, Change}, Changes) -> Changes#{Key => Change} end, #{}, Map);
        #{} -> #{}
    end;
changes(Tid, Writes) ->
    maps:from_list([{Key, Change} || {Written, Key, Change} <- Writes, Written =:= Tid]).

%% @doc The objects that are put into a `set'.
-spec puts(reference(), writes()) -> [Object :: tuple()].
puts(Tid, Tables) when is_map(Tables) ->
    case Tables of
        #{Tid := {set, Map}} -> [Object || {_, _, [Object]} <- map_values(Map)];
        #{} -> []
    end;
puts(Tid, Writes) ->
    [Object || {Written, _, [Object]} <- Writes, Written =:= Tid].

%% @doc The same writes, so that {@link nearest/4} and {@link between/6} may ask for those to this `ordered_set'. Or
%% `unchanged'.
%%
%% Takes `O(N)' for `N' writes once. Then each write keeps up what they need.
-spec in_order(reference(), writes()) -> writes() | unchanged.
in_order(Tid, Tables) when is_map(Tables) ->
    case Tables of
        #{Tid := #ordered{all = All, puts = none} = Ordered} ->
            Tables#{Tid := Ordered#ordered{puts = gb_trees:from_orddict(linked(gb_trees:values(All), none))}};
        #{} -> unchanged
    end;
in_order(_Tid, _Writes) ->
    unchanged.

linked([{_, Key, [Object]} | Writes], Before) -> [{Key, {Object, Before}} | linked(Writes, {key, Key})];
linked([_Deletion | Writes], Before) -> linked(Writes, Before);
linked([], _Before) -> [].

%% @doc The first key behind this place, or before it if `Down', at which an object is put into an `ordered_set'.
%%
%% Takes `O(log N)' for `N' writes.
-spec nearest(reference(), from(), Down :: boolean(), writes()) -> key().
nearest(Tid, From, Down, Tables) when is_map(Tables) ->
    case Tables of
        #{Tid := #ordered{puts = Puts}} when Down -> put_before(From, Puts);
        #{Tid := #ordered{puts = Puts}} -> put_after(From, Puts);
        #{} -> none
    end;
nearest(Tid, From, Down, Writes) ->
    Keys = [Key || {Written, Key, [_]} <- Writes, Written =:= Tid, is_beyond(Key, From, Down)],
    case {Keys, Down} of
        {[], _} -> none;
        {_, false} -> {key, lists:min(Keys)};
        {_, true} -> {key, lists:max(Keys)}
    end.

is_beyond(_Key, [], _Down) -> true;
is_beyond(Key, {From}, false) -> Key > From;
is_beyond(Key, {From}, true) -> Key < From.

%% @doc Up to so many objects that are put into an `ordered_set', from one bound to another, downwards if `Down'.
%%
%% Takes `O(log N)' for `N' writes, and for each object.
-spec between(reference(), cats_range:bound(), cats_range:bound(), Down :: boolean(), Limit, writes()) ->
          [Object :: tuple()] when Limit :: pos_integer() | infinity.
between(Tid, From, To, Down, Limit, Tables) when is_map(Tables) ->
    case Tables of
        #{Tid := #ordered{puts = Puts}} -> puts_between(begin_at(From, Down, Puts), To, Down, Limit, Puts);
        #{} -> []
    end;
between(Tid, From, To, Down, Limit, Writes) ->
    Puts = [{Key, Object} || {Written, Key, [Object]} <- Writes, Written =:= Tid,
                             is_up_to(Key, From, not Down), is_up_to(Key, To, Down)],
    InOrder = fun({A, _}, {B, _}) when Down -> A >= B;
                 ({A, _}, {B, _}) -> A =< B
              end,
    Objects = [Object || {_, Object} <- lists:sort(InOrder, Puts)],
    case Limit of
        infinity -> Objects;
        _ -> lists:sublist(Objects, Limit)
    end.

%% The first key behind a bound.
begin_at([From], Down, Puts) ->
    case gb_trees:is_defined(From, Puts) of
        true -> {key, From};
        false -> begin_at({From}, Down, Puts)
    end;
begin_at(From, true, Puts) -> put_before(From, Puts);
begin_at(From, false, Puts) -> put_after(From, Puts).

puts_between({key, Key}, To, Down, Limit, Puts) when Limit > 0 ->
    case is_up_to(Key, To, Down) of
        true ->
            {Object, Before} = gb_trees:get(Key, Puts),
            Next = case Down of
                       true -> Before;
                       false -> put_after({Key}, Puts)
                   end,
            [Object | puts_between(Next, To, Down, less(Limit), Puts)];
        false -> []
    end;
puts_between(_, _To, _Down, _Limit, _Puts) ->
    [].

less(infinity) -> infinity;
less(Limit) -> Limit - 1.

%% Whether a key is not behind a bound.
is_up_to(_Key, [], _Down) -> true;
is_up_to(Key, [To], Down) -> if Down -> Key >= To; true -> Key =< To end;
is_up_to(Key, {To}, Down) -> if Down -> Key > To; true -> Key < To end.

%% @doc Notes that a step from this place has come to a key that is deleted here. So the next one can {@link skip/4} it.
%% A few writes are not worth that.
-spec pass(reference(), start(), Key :: term(), Down :: boolean(), writes()) -> writes().
pass(Tid, From, Key, Down, Tables) when is_map(Tables) ->
    #{Tid := #ordered{runs = Runs} = Ordered} = Tables,
    {First, Last} = case Down of
                        false -> {place(From, Down), after_key(Key)};
                        true -> {before_key(Key), place(From, Down)}
                    end,
    {Begin, Runs1} = case run_at(First, Runs) of
                         {RunFirst, RunLast} -> {RunFirst, gb_trees:delete(RunLast, Runs)};
                         none -> {First, Runs}
                     end,
    {End, Runs2} = case run_at(Last, Runs1) of
                       {_, OtherLast} -> {OtherLast, gb_trees:delete(OtherLast, Runs1)};
                       none -> {Last, Runs1}
                   end,
    Tables#{Tid := Ordered#ordered{runs = gb_trees:insert(End, Begin, Runs2)}};
pass(_Tid, _From, _Key, _Down, Writes) ->
    Writes.

%% @doc Where a step may begin to look, as all that the table has before is deleted here. `finished' if nothing is left.
-spec skip(reference(), start(), Down :: boolean(), writes()) -> start() | finished.
skip(Tid, From, Down, Tables) when is_map(Tables) ->
    case Tables of
        #{Tid := #ordered{runs = Runs}} ->
            case {run_at(place(From, Down), Runs), Down} of
                {none, _} -> From;
                {{_, {1, Key, 1}}, false} -> {Key};
                {{_, {1, Key, -1}}, false} -> [Key];
                {{{1, Key, -1}, _}, true} -> {Key};
                {{{1, Key, 1}, _}, true} -> [Key];
                {_, _} -> finished
            end;
        #{} -> From
    end;
skip(_Tid, From, _Down, _Writes) ->
    From.

place([], false) -> {0, [], 0};
place([], true) -> {2, [], 0};
place({Key}, false) -> after_key(Key);
place({Key}, true) -> before_key(Key);
place([Key], false) -> before_key(Key);
place([Key], true) -> after_key(Key).

before_key(Key) -> {1, Key, -1}.
after_key(Key) -> {1, Key, 1}.

%% The run that has this place: its first place and its last.
run_at(Place, Runs) ->
    case gb_trees:next(gb_trees:iterator_from(Place, Runs)) of
        {Last, First, _} when First =< Place -> {First, Last};
        _ -> none
    end.
