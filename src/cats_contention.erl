%% @private
%% What `cats:contention/1,2' return.
-module(cats_contention).

-include("cats_failure.hrl").

-export([of_table/3, record/2]).

-define(STRIPS, 64).

-type called() :: {Function :: atom(), Arguments :: [term()]}.

%% @doc The contention of a table, from one in `Every' of its buckets or leaves. `Called' is what fails, if that does.
-spec of_table(cats:table(), Every :: pos_integer(), called()) -> cats:contention().
of_table(Table, Every, Called) ->
    Now = erlang:monotonic_time(microsecond),
    Recorded = native(recorded, [Table], Called),
    Shape = shape(Table, [], Every, Called, []),
    Adaptations = native(adaptations, [Table], Called),
    {Contention, Keys} = seen(Shape, Every),
    without_keys(may_read(Table),
                 Contention#{time => Now,
                             adaptations => [adaptation(Adaptation, Contention, Now) || Adaptation <- Adaptations],
                             recorded => recorded(Recorded, Keys)}).

%% @doc The same, after the table was recorded for some time.
-spec record(cats:table(), Milliseconds :: non_neg_integer()) -> cats:contention().
record(Table, Milliseconds) ->
    Called = {contention, [Table, Milliseconds]},
    %% The recording also ends with the process that has this reference.
    Recording = native(record, [Table], Called),
    try
        timer:sleep(Milliseconds),
        of_table(Table, 1, Called)
    after
        native(stop_recording, [Recording], Called)
    end.

native(Function, Arguments, {Name, Given}) ->
    ?RESULT(apply(cats_nif, Function, Arguments), Function, Name, Given).

%% All parts of the structure, the last one first.
shape(Table, From, Every, Called, Parts) ->
    Part = native(structure, [Table, From, Every], Called),
    case element(tuple_size(Part), Part) of
        [] -> [Part | Parts];
        Next -> shape(Table, Next, Every, Called, [Part | Parts])
    end.

%% The keys of recorded places in a tree are known by their hashes, each with its strip.
seen([{Buckets, _, _, _} | _] = Parts, Every) ->
    %% A table that grows may get more strips on the way.
    [Strips | Others] = [Strips || {_, Strips, _, _} <- Parts],
    Sums = lists:foldl(fun(Some, Sum) -> [add(A, B) || {A, B} <- zip(Sum, Some)] end, Strips, Others),
    Loads = lists:foldl(fun(Some, Sum) -> lists:zipwith(fun erlang:'+'/2, Sum, Some) end, lists:duplicate(17, 0),
                        [Loads || {_, _, Loads, _} <- Parts]),
    Estimate = (Every bor 1),
    {#{engine => hash, buckets => Buckets,
       strips => [#{buckets => Estimate * Number, keys => Estimate * Keys, changes => Estimate * Changes}
                  || {Number, Keys, Changes} <- Sums],
       load => [{Keys, Estimate * Number} || {Keys, Number} <- lists:enumerate(0, Loads), Number > 0]},
     #{}};
seen(Parts, _Every) ->
    {Rows, Found} = numbered(lists:reverse(Parts), 0, [], []),
    Bases = [base_node(Some) || Some <- by_base(Rows)],
    {Strips, StripOfRow} = strips(Rows),
    Sizes = lists:foldl(fun(Row, Sum) -> [add_size(A, B) || {A, B} <- lists:zip(Sum, element(9, Row))] end,
                        [{Slots, 0, 0} || {Slots, _, _} <- element(9, hd(Rows))], Rows),
    {#{engine => ca, base_nodes => Bases, strips => Strips, leaves => Sizes},
     maps:from_list([{Hash, {Key, element(Row + 1, StripOfRow)}} || {Row, Hash, Key} <- Found])}.

zip([A | As], [B | Bs]) -> [{A, B} | zip(As, Bs)];
zip(As, []) -> [{A, {0, 0, 0}} || A <- As];
zip([], Bs) -> [{B, {0, 0, 0}} || B <- Bs].

add({A, B, C}, {D, E, F}) -> {A + D, B + E, C + F}.

add_size({Slots, A, B}, {Slots, C, D}) -> {Slots, A + C, B + D}.

%% All rows in key order, and the keys that were found, with the numbers of their rows.
numbered([{Rows, Found, _Next} | Parts], Number, AllRows, AllFound) ->
    numbered(Parts, Number + length(Rows), [Rows | AllRows],
             [[{Number + Row, Hash, Key} || {Row, Hash, Key} <- Found] | AllFound]);
numbered([], _Number, AllRows, AllFound) ->
    {lists:append(lists:reverse(AllRows)), lists:append(AllFound)}.

by_base([Row | Rows]) ->
    {Same, Others} = lists:splitwith(fun(Other) -> element(2, Other) =:= element(2, Row) end, Rows),
    [[Row | Same] | by_base(Others)];
by_base([]) ->
    [].

base_node([{From, _, Statistic, Waits, Height, _, _, _, _} | _] = Rows) ->
    from(From, #{statistic => Statistic, waits => Waits, height => Height, leaves => sum(6, Rows), keys => sum(7, Rows),
                 changes => sum(8, Rows)}).

from([Key], Map) -> Map#{from => Key};
from([], Map) -> Map.

sum(Place, Rows) -> lists:sum([element(Place, Row) || Row <- Rows]).

%% Strips of about as many leaves, and the strip of each row. The waits of a base node that is in several strips are
%% shared by leaves.
strips(Rows) ->
    Shared = lists:append([shared(Some) || Some <- by_base(Rows)]),
    All = max(1, sum(6, Rows)),
    {Numbered, _} = lists:mapfoldl(fun({Row, Waits}, Before) ->
                                           {{Before * ?STRIPS div All, Row, Waits}, Before + element(6, Row)}
                                   end, 0, Shared),
    Strips = by_strip(Numbered),
    Places = lists:append([lists:duplicate(length(Some), Place) || {Place, Some} <- lists:enumerate(Strips)]),
    {[strip(Some) || Some <- Strips], list_to_tuple(Places)}.

shared(Rows) ->
    Leaves = max(1, sum(6, Rows)),
    [{Row, element(4, Row) * element(6, Row) / Leaves} || Row <- Rows].

by_strip([{Number, _, _} = Row | Rows]) ->
    {Same, Others} = lists:splitwith(fun({Other, _, _}) -> Other =:= Number end, Rows),
    [[Row | Same] | by_strip(Others)];
by_strip([]) ->
    [].

strip([{_, First, _} | _] = Some) ->
    Rows = [Row || {_, Row, _} <- Some],
    from(element(1, First), #{leaves => sum(6, Rows), keys => sum(7, Rows), changes => sum(8, Rows),
                              waits => round(lists:sum([Waits || {_, _, Waits} <- Some]))}).

adaptation({Split, Nanoseconds, Number, Key}, #{engine := Engine}, Now) ->
    Kind = case {Engine, Split} of
               {ca, true} -> split;
               {ca, false} -> join;
               {hash, true} -> grow;
               {hash, false} -> shrink
           end,
    key(Key, #{time => Now - Nanoseconds div 1000, kind => Kind, number => Number}).

key([Key], Map) -> Map#{key => Key};
key([], Map) -> Map.

recorded(false, _Keys) ->
    false;
recorded({Nanoseconds, Waits, Reads, Time, Places, Meetings}, Keys) ->
    #{time => Nanoseconds div 1000, waits => Waits, reads_repeated => Reads, wait_time => Time div 1000,
      places => most([place(Place, Keys) || Place <- Places]),
      meetings => most([#{process => Process, other => Other, waits => Met, wait_time => MetTime div 1000}
                        || {Process, Other, Met, MetTime} <- Meetings])}.

place({Hash, Waits, Reads, Time, Processes, Strip, Key}, Keys) ->
    Known = #{waits => Waits, reads_repeated => Reads, wait_time => Time div 1000, processes => Processes},
    case Keys of
        #{Hash := {Found, InStrip}} -> key(Found, Known#{strip => InStrip});
        _ when Strip > 0 -> key(Key, Known#{strip => Strip});
        _ -> Known
    end.

most(Met) ->
    Rank = fun(#{waits := Waits} = One) -> {Waits + maps:get(reads_repeated, One, 0), maps:get(wait_time, One)} end,
    [One || {_, One} <- lists:reverse(lists:keysort(1, [{Rank(One), One} || One <- Met]))].

%% Keys are parts of objects, which only those see who may read the table.
may_read(Table) ->
    cats:info(Table, protection) =/= private orelse cats:info(Table, owner) =:= self().

without_keys(true, Contention) ->
    Contention;
without_keys(false, #{strips := Strips, adaptations := Adaptations, recorded := Recorded} = Contention) ->
    Less = fun(Maps) -> [maps:without([from, key], Map) || Map <- Maps] end,
    Bases = case Contention of
                #{base_nodes := Nodes} -> #{base_nodes => Less(Nodes)};
                _ -> #{}
            end,
    maps:merge(Contention#{strips := Less(Strips), adaptations := Less(Adaptations),
                           recorded := less_recorded(Recorded, Less)}, Bases).

less_recorded(false, _Less) -> false;
less_recorded(#{places := Places} = Recorded, Less) -> Recorded#{places := Less(Places)}.
