%% @hidden
%% Single flight of many keys: one process makes the objects of all keys that are missing and not under way.
%%
%% A call looks up all keys. It begins the flights of those that are missing, all with one process (cats_flight), which
%% knows them by their numbers: their places among the missing keys, from 1 on. It runs its function once, for the keys
%% whose flights it has begun, stores what that returns, and ends these flights. Then it waits for the keys that others
%% make. So calls that miss each other's keys do not wait for each other in a circle. It looks again at the keys for
%% which it got nothing so.
%%
%% Objects are not sent to the flight, as most have nobody who waits for them. After each slice of keys that was stored,
%% the leader asks the flight which of them are waited for, and sends those. The flight passes them on.
-module(cats_fetch_many).

-include("cats_failure.hrl").
-include("cats_fetch.hrl").

-export([fetch/3, fly/2]).

%% So many keys are stored together.
-define(SLICE, 1000).

%% What a flight is told besides: its keys, from the first one's number on; that the objects up to a number are made,
%% which of them are waited for, and what became of these; and that it is over.
-define(keys(First, Keys), {?MODULE, keys, First, Keys}).
-define(made_up_to(Number, Leader, Tag), {?MODULE, made_up_to, Number, Leader, Tag}).
-define(became(Number, Outcome), {?MODULE, became, Number, Outcome}).
-define(over, {?MODULE, over}).

%% @doc See {@link cats:fetch_many/4}.
-spec fetch(cats:table(), Keys :: [term()], cats_fetch:call()) -> [tuple() | undefined | (Ignored :: term())].
fetch(Table, Keys, #call{called = Called} = Call) ->
    try
        go_on(look(Table, Keys, Call), Table, Keys, Call)
    catch
        error:Reason:Stack -> erlang:raise(error, Reason, with_callers(Stack, Called))
    end.

%% The stack of an error of this call. A stack has eight frames, so one that was made far below has none of the callers.
with_callers([{cats, fetch_many, Called, Info} | _], Called) -> cats_failure:stack(cats, fetch_many, Called, Info);
with_callers(Stack, _Called) -> Stack.

%% For each key, a list of its object, or an empty list.
look(Table, Keys, #call{ttl = Time, called = Called} = Call) ->
    Slice = ?RESULT(cats_nif:lookup_many_to_fetch(Table, Keys, Time =/= default), lookup_many_to_fetch, fetch_many,
                    Called),
    case Slice of
        {Lists, Rest} -> Lists ++ look(Table, Rest, Call);
        Lists -> Lists
    end.

%% Looks again at the keys without a result until all have one.
go_on(Found, Table, Keys, Call) ->
    case missing(Found, Keys) of
        [] -> [Result || [Result] <- Found];
        Missing -> merge(Found, go_on(miss(Table, Missing, Call), Table, Missing, Call))
    end.

missing([[] | Found], [Key | Keys]) -> [Key | missing(Found, Keys)];
missing([_ | Found], [_ | Keys]) -> missing(Found, Keys);
missing([], []) -> [].

merge([[] | Found], [Result | Results]) -> [Result | merge(Found, Results)];
merge([[Result] | Found], Results) -> [Result | merge(Found, Results)];
merge([], []) -> [].

%% For each missing key, a list of what the call returns for it, or an empty list if that is still not known.
miss(Table, Keys, Call) ->
    Tid = cats:info(Table, id),
    Flight = cats_flight:start(?MODULE, fly, [Tid, self()], Call),
    {Begun, Own} =
        try
            Rows = begin_flights(Flight, Table, Keys, Call),
            {Rows, own(Rows, Keys, 1, Flight, Call)}
        catch
            Class:Reason:Stack ->
                cats_flight:finish(Flight, {Tid, Keys}),
                exit(Flight, kill),
                erlang:raise(Class, Reason, Stack)
        end,
    Made = lead(Flight, Tid, Own, Table, Call),
    Flight ! ?over,
    Ends = cats_flight:await([Row || {Process, _, _} = Row <- Begun, Process =/= Flight], Table, Call),
    Became = fun(true, Number) -> maps:get(Number, Made);
                ({Process, _, Number}, _) when Process =:= Flight -> maps:get(Number, Made);
                (Other, _) -> cats_flight:outcome(Other, Ends)
             end,
    Result = fun([_] = Found, _, _) ->
                     Found;
                (Row, Key, Number) ->
                     Known = result(Became(Row, Number), Call),
                     Known =:= [] andalso cats_flight:finish(element(1, Row), {Table, [Key]}),
                     Known
             end,
    lists:zipwith3(Result, Begun, Keys, lists:seq(1, length(Keys))).

%% A list of what the call returns for a key of which this became.
result(?made(Object), _Call) -> [Object];
result(?ignored(Value), #call{returns = outcome}) -> [Value];
result(?absent, #call{returns = object}) -> [undefined];
result(_, _Call) -> [].

%% What there is for each key: see cats_nif:flights_begin/6.
begin_flights(Flight, Table, Keys, Call) ->
    lists:append([begin
                      Flight ! ?keys(First, Slice),
                      begin_slice(First, Slice, Flight, Table, Call)
                  end || {First, Slice} <- slices(1, Keys, length(Keys))]).

begin_slice(First, Keys, Flight, Table, #call{negative_ttl = Time, called = Called} = Call) ->
    Slice = ?RESULT(cats_nif:flights_begin(Table, Keys, First, Flight, self(), Time > 0), flights_begin, fetch_many,
                    Called),
    case Slice of
        {Begun, Rest} -> Begun ++ begin_slice(First + length(Begun), Rest, Flight, Table, Call);
        Begun -> Begun
    end.

slices(_First, [], 0) ->
    [];
slices(First, List, Length) ->
    {Slice, Rest} = lists:split(min(?SLICE, Length), List),
    [{First, Slice} | slices(First + ?SLICE, Rest, max(0, Length - ?SLICE))].

%% The keys whose flights have begun, with their numbers.
own([true | Begun], [Key | Keys], Number, Flight, Call) ->
    [{Number, Key} | own(Begun, Keys, Number + 1, Flight, Call)];
own([{failed, {Class, Reason, Stack}} | _], _Keys, _Number, _Flight, _Call) ->
    erlang:raise(Class, Reason, Stack);
own([{Process, Leader, _} | _], _Keys, _Number, Flight, Call) when Leader =:= self(), Process =/= Flight ->
    cats_flight:fail(nested, Call);
own([_ | Begun], [_ | Keys], Number, Flight, Call) ->
    own(Begun, Keys, Number + 1, Flight, Call);
own([], [], _Number, _Flight, _Call) ->
    [].

%% What became of the own keys, by their numbers.
lead(_Flight, _Tid, [], _Table, _Call) ->
    #{};
lead(Flight, Tid, Own, Table, Call) ->
    Keys = [Key || {_, Key} <- Own],
    try
        Answers = make(Keys, Table, Call),
        Made = [store_slice(Slice, Flight, Tid, Table, Call)
                || {_, Slice} <- slices(1, lists:zip(Own, Answers), length(Own))],
        maps:from_list(lists:append(Made))
    catch
        Class:Reason:Stack -> cats_flight:crash({Class, Reason, Stack}, Flight, {Tid, Keys}, Call)
    end.

%% Runs the function. Returns what is done for each key.
make(Keys, Table, Call) ->
    Returned = cats_flight:run(Keys, Table, Call),
    Kind = {cats:info(Table, type), cats:info(Table, keypos)},
    Kind =:= {undefined, undefined} andalso cats_flight:fail(id, Call),
    answers(Returned, Keys, Kind, Call).

%% `{store, Object, Call}', `{ignore, Value}', or `absent' for each key.
answers(Returned, Keys, Kind, #call{returns = outcome} = Call) ->
    is_list(Returned) andalso length(Keys) =:= proper_length(Returned) orelse cats_flight:fail(no_outcome, Call),
    lists:zipwith(fun(Key, Outcome) -> outcome(cats_fetch:outcome(Outcome, Call), Key, Kind, Call) end,
                  Keys, Returned);
answers(Objects, Keys, {Type, Place}, Call) ->
    is_list(Objects) andalso is_integer(proper_length(Objects)) andalso
        lists:all(fun(Object) -> is_tuple(Object) andalso tuple_size(Object) >= Place end, Objects)
        orelse cats_flight:fail(none, Call),
    [case Answer of
         absent -> absent;
         Object -> {store, Object, Call}
     end || Answer <- by_key(Type, Keys, Objects, Place, Call)].

outcome({store, Object, _} = Answer, Key, {Type, Place}, Call) ->
    case is_tuple(Object) andalso tuple_size(Object) >= Place
        andalso is_same(Type, Key, element(Place, Object)) of
        true -> Answer;
        false -> cats_flight:fail(other_key, Call)
    end;
outcome({ignore, _} = Answer, _Key, _Kind, _Call) ->
    Answer.

is_same(ordered_set, One, Other) -> One == Other;
is_same(set, One, Other) -> One =:= Other.

%% The length, or `improper'.
proper_length(List) ->
    try
        length(List)
    catch
        error:badarg -> improper
    end.

%% The object of each key, or `absent'. Of several objects with a key, the last.
by_key(set, Keys, Objects, Place, Call) ->
    Answers = maps:from_list([{element(Place, Object), Object} || Object <- Objects]),
    map_size(maps:without(Keys, Answers)) =:= 0 orelse cats_flight:fail(other_key, Call),
    [maps:get(Key, Answers, absent) || Key <- Keys];
by_key(ordered_set, Keys, Objects, Place, Call) ->
    %% Both are brought into the order of the table, where 1 and 1.0 are one key.
    Sorted = lists:keysort(1, lists:zip(Keys, lists:seq(1, length(Keys)))),
    {_, Answers} = lists:unzip(lists:keysort(1, pairs(Sorted, lists:keysort(Place, Objects), Place, Call))),
    Answers.

%% The number of each key, with its answer. A key that comes again has the same answer.
pairs([{Key, Number} | Keys], [Object | Objects] = All, Place, Call) ->
    case element(Place, Object) of
        Answered when Key < Answered -> [{Number, absent} | pairs(Keys, All, Place, Call)];
        Answered when Key == Answered ->
            case Objects of
                [Next | _] when element(Place, Next) == Key -> pairs([{Key, Number} | Keys], Objects, Place, Call);
                _ -> [{Number, Object} | pairs_after(Keys, All, Place, Call)]
            end;
        _ -> cats_flight:fail(other_key, Call)
    end;
pairs(Keys, [], _Place, _Call) ->
    [{Number, absent} || {_, Number} <- Keys];
pairs([], _Objects, _Place, Call) ->
    cats_flight:fail(other_key, Call).

pairs_after([{Key, _} | _] = Keys, [Object | _] = Objects, Place, Call) when element(Place, Object) == Key ->
    pairs(Keys, Objects, Place, Call);
pairs_after(Keys, [_ | Objects], Place, Call) ->
    pairs(Keys, Objects, Place, Call).

%% Stores what there is for some keys, ends their flights, and tells those that wait. Returns what became of them.
store_slice(Slice, Flight, Tid, Table, Call) ->
    Keys = [Key || {{_, Key}, _} <- Slice],
    store_flights(Flight, Tid, Keys, Call),
    Made = [{Number, became(Answer, Key, Table)} || {{Number, Key}, Answer} <- Slice],
    cats_flight:finish(Flight, {Tid, Keys}),
    {Last, _} = lists:last(Made),
    Outcomes = maps:from_list(Made),
    _ = [Flight ! ?became(Number, maps:get(Number, Outcomes, ?ended)) || Number <- waited_for(Flight, Last)],
    Made.

store_flights(_Flight, _Tid, [], _Call) ->
    ok;
store_flights(Flight, Tid, Keys, #call{called = Called} = Call) ->
    Rest = ?RESULT(cats_nif:flights_store(Tid, Keys, Flight), flights_store, fetch_many, Called),
    store_flights(Flight, Tid, Rest, Call).

became({store, Object, Storing}, Key, Table) -> ?made(cats_fetch:store(Table, Key, Object, none, Storing));
became({ignore, Value}, _Key, _Table) -> ?ignored(Value);
became(absent, _Key, _Table) -> ?absent.

%% Which keys up to this number are waited for. Nobody can wait for them from now on.
waited_for(Flight, Last) ->
    Monitor = monitor(process, Flight),
    Flight ! ?made_up_to(Last, self(), Monitor),
    receive
        {Monitor, Numbers} -> demonitor(Monitor, [flush]), Numbers;
        {'DOWN', Monitor, process, Flight, _} -> []
    end.

%%--------------------------------------------------------------------------------------------------
%% The flight

-record(flight,
        {tid :: cats:tid() | undefined,
         leader :: reference(),
         %% Slices of keys by the numbers of their first ones.
         keys = #{} :: #{pos_integer() => [term()]},
         %% Up to which number objects are made.
         made = 0 :: non_neg_integer(),
         %% The numbers of keys that others have written.
         written = #{} :: #{pos_integer() => []},
         %% Who waits for which number.
         waits = #{} :: #{pos_integer() => [{pid(), Alias :: reference()}]}}).

%% @private
%% @doc Runs as the flight.
-spec fly(cats:tid() | undefined, Leader :: pid()) -> no_return().
fly(Tid, Leader) ->
    exit(fly(#flight{tid = Tid, leader = monitor(process, Leader)})).

fly(#flight{tid = Tid, leader = Leader, keys = Slices, written = Written, waits = Waits} = State) ->
    receive
        ?keys(First, Keys) ->
            fly(State#flight{keys = Slices#{First => Keys}});
        ?waits(Process, Alias, Numbers) ->
            Joined = lists:foldl(fun(Number, Known) -> joined(Number, {Process, Alias}, Known) end, State, Numbers),
            Alias ! {Alias, joined},
            fly(Joined);
        ?place(Process, Tag, Waiting) ->
            Process ! {Tag, place(Waiting, State)},
            fly(State);
        ?written(0) ->
            ?ended;
        ?written(Number) ->
            fly(pass_on(Number, ?ended, State#flight{written = Written#{Number => []}}));
        ?made_up_to(Number, Process, Tag) ->
            Numbers = [N || N <- lists:seq(State#flight.made + 1, Number), is_map_key(N, Waits)],
            Process ! {Tag, Numbers},
            fly(State#flight{made = Number});
        ?became(Number, Outcome) ->
            fly(pass_on(Number, Outcome, State));
        ?failed(_, _, _) = Failed ->
            Failed;
        ?over ->
            ?ended;
        {'DOWN', Leader, process, _, _} ->
            [cats_flight:finish(self(), {Tid, Keys}) || Keys <- maps:values(Slices)],
            ?ended
    end.

joined(Number, {_, Alias} = Waits, #flight{made = Made, written = Written, waits = All} = State) ->
    case Number =< Made orelse is_map_key(Number, Written) of
        true ->
            Alias ! {Alias, Number, ?ended},
            State;
        false ->
            State#flight{waits = All#{Number => [Waits | maps:get(Number, All, [])]}}
    end.

pass_on(Number, Outcome, #flight{waits = Waits} = State) ->
    case maps:take(Number, Waits) of
        {Waiting, Rest} ->
            _ = [Alias ! {Alias, Number, Outcome} || {_, Alias} <- Waiting],
            State#flight{waits = Rest};
        error ->
            State
    end.

%% A key that a process waits for, or `gone'.
place(Process, #flight{tid = Tid, keys = Slices, waits = Waits}) ->
    case [Number || {Number, Waiting} <- maps:to_list(Waits), lists:keymember(Process, 1, Waiting)] of
        [] -> gone;
        [Number | _] ->
            Offset = (Number - 1) rem ?SLICE,
            {Tid, lists:nth(Offset + 1, maps:get(Number - Offset, Slices))}
    end.
