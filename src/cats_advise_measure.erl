%% @private
%% Measures the mix of calls that was seen on a table, on a table of `ets' with the same options and on one of cats.
%%
%% What a trace does not tell is left out or assumed. Calls with patterns, funs or lists of keys are left out, as their
%% time depends on these. Keys are drawn uniformly, and an insertion has one object. Objects have the shapes and the
%% size of one that was sampled.
-module(cats_advise_measure).
-export([all/4]).

-define(MOST_OBJECTS, 200_000).

%% @doc Measures the tables for which cats is advised, at most so many and each for so many seconds or three rounds.
%% Calls the function with the new advice on each, and returns all.
-spec all([cats_advise:advice()], non_neg_integer(), number(), fun((cats_advise:advice()) -> term())) ->
          [cats_advise:advice()].
all([#{advice := stay} = Table | Advice], Most, Seconds, Tell) ->
    [Table | all(Advice, Most, Seconds, Tell)];
all([Table | Advice], Most, Seconds, Tell) when Most > 0 ->
    case measured(Table, Seconds) of
        none ->
            [Table | all(Advice, Most, Seconds, Tell)];
        Measured ->
            Judged = cats_advise_judge:advice(Table#{measured => Measured}),
            Tell(Judged),
            [Judged | all(Advice, Most - 1, Seconds, Tell)]
    end;
all(Advice, _, _, _) ->
    Advice.

%% How many times as fast cats was: the median and the quarter points of the rounds. And with what: the calls in
%% percent, what share of the seen ones they are, how many objects and processes. Nothing if no such call was seen.
-spec measured(cats_advise:advice(), number()) -> cats_advise:measured() | none.
measured(#{type := Type, calls := Calls, size := Size, callers := Callers, samples := Samples} = Table, Seconds) ->
    Sample = sample(Samples),
    Known = [{Function, Operation, N} || {Function, N} <- lists:sort(maps:to_list(Calls)),
                                         Operation <- operation(Function, Sample)],
    case lists:sum([N || {_, _, N} <- Known]) of
        0 ->
            none;
        Number ->
            Objects = max(1, min(Size, ?MOST_OBJECTS)),
            Processes = max(1, min(Callers, erlang:system_info(schedulers_online))),
            {Key, Values} = shapes(Sample),
            Spec = #{operations => [{Operation, N} || {_, Operation, N} <- Known], key => Key, value => Values,
                     objects => Objects, processes => Processes, types => [Type], seconds => Seconds},
            Rates = cats_workload:rates(Spec, [{ets, options(ets, Table)}, {cats, options(cats, Table)}]),
            Ratios = lists:sort([Cats / Ets || [Ets, Cats] <- Rates]),
            %% Of three rounds, the lowest and the highest.
            Quarter = (length(Ratios) - 1) div 4,
            #{ratio => lists:nth((length(Ratios) + 1) div 2, Ratios), low => lists:nth(1 + Quarter, Ratios),
              high => lists:nth(length(Ratios) - Quarter, Ratios),
              mix => maps:from_list([{Function, round(100 * N / Number)} || {Function, _, N} <- Known]),
              percent => 100 * Number div lists:sum(maps:values(Calls)), objects => Objects,
              processes => Processes}
    end.

%% cats ignores options about concurrency.
options(cats, #{type := Type} = Table) -> [Type | [compressed || maps:get(compressed, Table, false)]];
options(ets, Table) ->
    Names = [read_concurrency, write_concurrency, decentralized_counters],
    options(cats, Table) ++ [{Name, Value} || Name <- Names, Value <- [maps:get(Name, Table, false)], Value =/= false].

%% The one in the middle by size.
sample([]) -> #{key => integer, values => [integer], words => 0};
sample(Samples) ->
    Sorted = lists:sort(fun(#{words := A}, #{words := B}) -> A =< B end, Samples),
    lists:nth((length(Sorted) + 1) div 2, Sorted).

%%----------------------------------------------------------------------------------------------------------------------
%% Operations

operation(Name, _) when Name =:= lookup; Name =:= member; Name =:= delete; Name =:= take; Name =:= next; Name =:= prev;
                        Name =:= insert; Name =:= insert_new ->
    [Name];
operation(lookup_element, #{values := Values}) -> [{lookup_element, min(2, 1 + length(Values))}];
operation(update_element, #{values := [_ | _]}) -> [{update_element, 2}];
operation(update_counter, #{values := Values}) ->
    lists:sublist([{update_counter, Place} || {Place, integer} <- lists:zip(lists:seq(2, 1 + length(Values)), Values)],
                  1);
operation(first, _) -> [fun(Tables, Table, _) -> Tables:first(Table) end];
operation(last, _) -> [fun(Tables, Table, _) -> Tables:last(Table) end];
operation(_, _) -> [].

%%----------------------------------------------------------------------------------------------------------------------
%% Objects

shapes(#{key := Key, values := Values, words := Words}) ->
    Shapes = [shape(Value) || Value <- Values],
    {key(Key), widened(Shapes, Words - erts_debug:flat_size(list_to_tuple([1 | [term(Shape) || Shape <- Shapes]])))}.

%% The terms in the middle of a shape.
term({tuple, Size}) -> list_to_tuple(lists:seq(1, Size));
term({list, Size}) -> lists:seq(1, Size);
term({map, Size}) -> maps:from_list([{N, N} || N <- lists:seq(1, Size)]);
term(_) -> 0.

%% The first value that can have terms inside has those that are missing, in a list.
widened([{Kind, Size} | Shapes], Words) when Kind =/= binary, Size > 0, Words > 1 ->
    Term = term({Kind, Size}),
    More = lists:seq(1, Words div 2),
    [fun(N) -> wide(Kind, Term, [N | More]) end | Shapes];
widened([Shape | Shapes], Words) -> [Shape | widened(Shapes, Words)];
widened([], _) -> [].

wide(tuple, Tuple, More) -> setelement(1, Tuple, More);
wide(map, Map, More) -> Map#{1 => More};
wide(list, _, More) -> More.

%% There must not be many new atoms. A small integer is a word, too.
key(atom) -> integer;
key(Shape) -> shape(Shape).

shape(list) -> {list, 1};
shape(pid) -> fun(N) -> list_to_pid("<0." ++ integer_to_list(N) ++ ".0>") end;
shape(reference) -> fun(N) -> list_to_ref("#Ref<0.0.0." ++ integer_to_list(N) ++ ">") end;
shape(function) -> fun(N) -> fun() -> N end end;
shape(bitstring) -> binary;
shape(port) -> integer;
shape(Shape) -> Shape.
