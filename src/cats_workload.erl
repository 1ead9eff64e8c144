%% @private
%% Tries a workload on every kind of table of `ets' and of cats that could serve it: {@link cats_advise:workload/1}.
%%
%% A trial creates a table, fills it, and lets all processes work on it at the same time. The operations of a
%% round are prepared before the clock starts, and are the same for all candidates. The rounds alternate the order
%% of the candidates. Candidates are compared within a round, so a disturbance of the machine affects all of them.
-module(cats_workload).
-export([try_all/1, rates/2]).

-record(spec, {operations, key, value, objects, processes, keys, types, seconds}).

%% Operations in a trial, of all processes together: the most, the least, and how many for each second of the
%% measurement. With fewer, the three rounds of a short measurement take little more than the time that was asked for.
-define(MOST, 400000).
-define(LEAST, 20000).
-define(EACH_SECOND, 40000).
-define(ROUNDS, 3).

%% @doc What {@link cats_advise:workload/1} does.
-spec try_all(cats_advise:spec()) -> [cats_advise:trial()].
try_all(Spec) ->
    Checked = check(Spec),
    Candidates = lists:append([candidates(Type) || Type <- Checked#spec.types]),
    io:format("~b objects, ~b process~s, ~b candidates~n",
              [Checked#spec.objects, Checked#spec.processes, plural(Checked#spec.processes), length(Candidates)]),
    Rounds = measured(Checked, Candidates, fun io:format/2),
    Advice = rank(Candidates, Rounds),
    print(Advice, length(Rounds)),
    Advice.

%% @doc Tries a workload on some tables, without a word. Returns their operations per second, by round.
-spec rates(cats_advise:spec(), [{ets | cats, Options :: [term()]}]) -> [[float()]].
rates(Spec, Candidates) ->
    [[rate(Candidate, Round) || Candidate <- Candidates]
     || Round <- measured(check(Spec), Candidates, fun(_, _) -> ok end)].

measured(Spec, Candidates, Say) ->
    Workers = [spawn_opt(fun worker/0, [link, {min_heap_size, 1000000}]) || _ <- lists:seq(1, Spec#spec.processes)],
    Start = seconds(),
    Rounds = rounds(1, Start, Start, Workers, Candidates, Spec, Say),
    [begin unlink(Worker), exit(Worker, kill) end || Worker <- Workers],
    Rounds.

%%----------------------------------------------------------------------------------------------------------------------
%% The specification

check(Spec) when is_map(Spec) ->
    Defaults = #{operations => [{lookup, 90}, {insert, 5}, {delete, 5}], key => integer, value => [integer],
                 objects => 100000, processes => erlang:system_info(schedulers_online), keys => uniform,
                 types => [set, ordered_set], seconds => 60},
    All = #{operations := Operations, key := Key, value := Value} = maps:merge(Defaults, Spec),
    [refuse(Name) || Name <- maps:keys(All), not is_map_key(Name, Defaults)],
    [refuse({Name, Item}) || {Name, Item} <- maps:to_list(All), not is_valid(Name, Item)],
    [refuse({Operation, {value, Value}})
     || {{update_counter, Position} = Operation, _} <- Operations, not is_counter(Position, Value)],
    [refuse({Operation, {value, Value}})
     || {{_, Position} = Operation, _} <- Operations, Position > 1 + length(Value)],
    [refuse({Operation, {types, maps:get(types, All)}})
     || {{Update, _} = Operation, _} <- Operations, Update =/= lookup_element,
        maps:get(types, All) -- [set, ordered_set] =/= []],
    #{objects := Objects, processes := Processes, keys := Keys, types := Types, seconds := Seconds} = All,
    #spec{operations = Operations, key = Key, value = Value, objects = Objects, processes = Processes, keys = Keys,
          types = Types, seconds = Seconds};
check(Spec) ->
    refuse(Spec).

-spec refuse(term()) -> no_return().
refuse(Item) -> cats_options:raise(workload, {bad_spec, Item}).

is_valid(operations, [_ | _] = Operations) ->
    lists:all(fun({Operation, Share}) -> is_operation(Operation) andalso is_number(Share) andalso Share >= 0;
                 (_) -> false
              end, Operations)
        andalso lists:sum([Share || {_, Share} <- Operations]) > 0;
is_valid(key, Shape) -> is_shape(Shape);
is_valid(value, Shapes) -> is_list(Shapes) andalso lists:all(fun is_shape/1, Shapes);
is_valid(objects, Number) -> is_integer(Number) andalso Number > 0;
is_valid(processes, Number) -> is_integer(Number) andalso Number > 0;
is_valid(keys, uniform) -> true;
is_valid(keys, {hot, Number}) -> is_integer(Number) andalso Number > 0;
is_valid(keys, {zipf, Exponent}) -> is_float(Exponent) andalso Exponent > 0;
is_valid(types, [_ | _] = Types) -> Types -- [set, ordered_set, bag, duplicate_bag] =:= [];
is_valid(seconds, Seconds) -> is_number(Seconds) andalso Seconds >= 0;
is_valid(_, _) -> false.

is_operation({Name, Position}) ->
    lists:member(Name, [lookup_element, update_element, update_counter])
        andalso is_integer(Position) andalso Position > 0
        andalso (Position > 1 orelse Name =:= lookup_element);
is_operation(Operation) ->
    is_function(Operation, 3)
        orelse lists:member(Operation, [lookup, member, delete, take, next, prev, insert, insert_new]).

is_shape({Name, Size}) -> lists:member(Name, [binary, tuple, list, map]) andalso is_integer(Size) andalso Size >= 0;
is_shape(Shape) -> is_function(Shape, 1) orelse lists:member(Shape, [integer, atom, float, binary]).

is_counter(Position, Value) -> Position =< 1 + length(Value) andalso lists:nth(Position - 1, Value) =:= integer.

%%----------------------------------------------------------------------------------------------------------------------
%% Candidates

candidates(Type) ->
    [{ets, [Type | Options]} || Options <- concurrency_options(Type)]
        ++ [{cats, [Type]}]
        ++ [{cats, [Type, {engine, Name}]}
            || #{name := Name, types := Types} <- cats:engines(), lists:member(Type, Types), Name =/= default(Type)].

concurrency_options(ordered_set) ->
    R = {read_concurrency, true}, W = {write_concurrency, true},
    [[], [R], [W], [R, W]];
concurrency_options(Type) ->
    concurrency_options(ordered_set) ++ [[{write_concurrency, auto}, {read_concurrency, true}] || Type =:= set].

default(ordered_set) -> ca;
default(_) -> hash.

%%----------------------------------------------------------------------------------------------------------------------
%% Measuring

%% Prints its progress at most once a second.
rounds(Number, Start, Said, Workers, Candidates, Spec, Say) ->
    Range = range(Spec),
    _ = [Worker ! {prepare, self(), operations(Spec, Range, {Number, Place, 16#CA75})}
         || {Place, Worker} <- lists:zip(lists:seq(1, length(Workers)), Workers)],
    [receive {prepared, Worker} -> ok end || Worker <- Workers],
    Order = case Number rem 2 of
                1 -> Candidates;
                0 -> lists:reverse(Candidates)
            end,
    Round = [{Candidate, trial(Candidate, Workers, Spec)} || Candidate <- Order],
    Now = seconds(),
    Passed = Now - Start,
    _ = [Say("round ~b, ~b of ~p seconds~n", [Number, round(Passed), Spec#spec.seconds]) || Now - Said >= 1],
    case Number >= ?ROUNDS andalso Passed + Passed / Number > Spec#spec.seconds of
        true -> [Round];
        false -> [Round | rounds(Number + 1, Start, said(Said, Now), Workers, Candidates, Spec, Say)]
    end.

said(Said, Now) when Now - Said >= 1 -> Now;
said(Said, _Now) -> Said.

%% Returns operations per second, and the table's bytes per object.
trial({Tables, Options}, Workers, Spec) ->
    Table = Tables:new(?MODULE, [public | Options]),
    fill(Tables, Table, Spec),
    Bytes = Tables:info(Table, memory) * erlang:system_info(wordsize) / max(1, Tables:info(Table, size)),
    _ = [Worker ! {run, self(), Tables, Table} || Worker <- Workers],
    Times = [receive {ran, Worker, Begin, End} -> {Begin, End} end || Worker <- Workers],
    Tables:delete(Table),
    Took = lists:max([End || {_, End} <- Times]) - lists:min([Begin || {Begin, _} <- Times]),
    Operations = length(Workers) * per_process(Spec),
    {Operations * erlang:convert_time_unit(1, second, native) / max(1, Took), Bytes}.

per_process(#spec{processes = Processes, seconds = Seconds}) ->
    Operations = max(?LEAST, min(?MOST, round(?EACH_SECOND * Seconds))),
    max(1, Operations div Processes).

%% Inserts only every second key when keys come from twice as many numbers as there are objects.
fill(Tables, Table, #spec{objects = Objects} = Spec) ->
    Step = range(Spec) div Objects,
    [true = Tables:insert(Table, [object(Spec, N * Step) || N <- lists:seq(First, min(Objects, First + 999))])
     || First <- lists:seq(1, Objects, 1000)],
    ok.

range(#spec{objects = Objects, operations = Operations}) ->
    case [Operation || {Operation, Share} <- Operations, Share > 0, Operation =:= delete orelse Operation =:= take] of
        [] -> Objects;
        _ -> 2 * Objects
    end.

operations(Spec, Range, Seed) ->
    fun() ->
            _ = rand:seed(exsp, Seed),
            Total = lists:sum([Share || {_, Share} <- Spec#spec.operations]),
            [operation(choose(rand:uniform() * Total, Spec#spec.operations), number(Spec#spec.keys, Range), Spec)
             || _ <- lists:seq(1, per_process(Spec))]
    end.

choose(_Place, [{Operation, _}]) -> Operation;
choose(Place, [{Operation, Share} | _]) when Place < Share -> Operation;
choose(Place, [{_, Share} | Operations]) -> choose(Place - Share, Operations).

number(uniform, Range) -> rand:uniform(Range);
number({hot, Number}, Range) -> rand:uniform(min(Number, Range));
number({zipf, 1.0}, Range) -> max(1, min(Range, floor(math:pow(Range, rand:uniform()))));
number({zipf, Exponent}, Range) ->
    %% The inverse of the continuous distribution with that density turns a uniform number into a key.
    Power = 1 - Exponent,
    max(1, min(Range, floor(math:pow(rand:uniform() * (math:pow(Range, Power) - 1) + 1, 1 / Power)))).

operation(Name, Number, Spec) when Name =:= insert; Name =:= insert_new -> {Name, object(Spec, Number)};
operation({update_counter, Position}, Number, Spec) -> {{update_counter, {Position, 1}}, object(Spec, Number)};
operation({update_element, Position}, Number, Spec) ->
    Object = object(Spec, Number),
    {{update_element, {Position, element(Position, Object)}}, element(1, Object)};
operation(Operation, Number, Spec) -> {Operation, term(Spec#spec.key, Number)}.

object(#spec{key = Key, value = Value}, Number) ->
    list_to_tuple([term(Shape, Number) || Shape <- [Key | Value]]).

term(integer, N) -> N;
term(atom, N) -> element(1 + N rem 4, {true, false, undefined, ok});
term(float, N) -> float(N);
term(binary, N) -> integer_to_binary(N);
term({binary, Bytes}, N) -> <<N:(Bytes * 8)>>;
term({tuple, Size}, N) -> list_to_tuple(lists:seq(N, N + Size - 1));
term({list, Size}, N) -> lists:seq(N, N + Size - 1);
term({map, Size}, N) -> maps:from_list([{M, N} || M <- lists:seq(1, Size)]);
term(Make, N) -> Make(N).

worker() ->
    receive {prepare, Parent, Make} -> Parent ! {prepared, self()}, worker(Make()) end.

worker(Operations) ->
    receive
        {run, Parent, Tables, Table} ->
            Begin = erlang:monotonic_time(),
            ok = work(Operations, Tables, Table),
            Parent ! {ran, self(), Begin, erlang:monotonic_time()},
            erlang:garbage_collect(),
            worker(Operations);
        {prepare, Parent, Make} ->
            Parent ! {prepared, self()},
            worker(Make())
    end.

work([{Operation, Argument} | Operations], Tables, Table) ->
    one(Operation, Argument, Tables, Table),
    work(Operations, Tables, Table);
work([], _Tables, _Table) ->
    ok.

one(lookup, Key, Tables, Table) -> Tables:lookup(Table, Key);
one(insert, Object, Tables, Table) -> Tables:insert(Table, Object);
one(delete, Key, Tables, Table) -> Tables:delete(Table, Key);
one(member, Key, Tables, Table) -> Tables:member(Table, Key);
one(take, Key, Tables, Table) -> Tables:take(Table, Key);
one(next, Key, Tables, Table) -> try Tables:next(Table, Key) catch error:badarg -> absent end;
one(prev, Key, Tables, Table) -> try Tables:prev(Table, Key) catch error:badarg -> absent end;
one(insert_new, Object, Tables, Table) -> Tables:insert_new(Table, Object);
one({lookup_element, Position}, Key, Tables, Table) ->
    try Tables:lookup_element(Table, Key, Position) catch error:badarg -> absent end;
one({update_element, Change}, Key, Tables, Table) -> Tables:update_element(Table, Key, Change);
one({update_counter, Change}, Object, Tables, Table) ->
    Tables:update_counter(Table, element(1, Object), Change, Object);
one(Fun, Key, Tables, Table) -> Fun(Tables, Table, Key).

%%----------------------------------------------------------------------------------------------------------------------
%% The result

rank(Candidates, Rounds) ->
    Rates = [{Candidate, [rate(Candidate, Round) || Round <- Rounds]} || Candidate <- Candidates],
    {_, Best} = lists:max([{median(Figures), Figures} || {_, Figures} <- Rates]),
    Ranked = lists:reverse(lists:keysort(1, [{median(Figures), Candidate, Figures} || {Candidate, Figures} <- Rates])),
    [#{tables => Tables, options => Options, rate => Median, lowest => lists:min(Figures),
       highest => lists:max(Figures),
       share => median(lists:zipwith(fun(Figure, Highest) -> Figure / Highest end, Figures, Best)),
       bytes => median([Bytes || Round <- Rounds, {C, {_, Bytes}} <- Round, C =:= Candidate])}
     || {Median, {Tables, Options} = Candidate, Figures} <- Ranked].

rate(Candidate, Round) ->
    {_, {Rate, _}} = lists:keyfind(Candidate, 1, Round),
    Rate.

print(Advice, Rounds) ->
    io:format("~n~-58s ~10s ~23s ~8s ~12s~n", ["table", "ops/s", "lowest to highest", "of best", "bytes/object"]),
    [io:format("~-58s ~10b ~10b to ~10b ~6b % ~12.1f~n",
               [io_lib:format("~s ~w", [Tables, Options]), round(Rate), round(Lowest), round(Highest),
                round(100 * Share), Bytes])
     || #{tables := Tables, options := Options, rate := Rate, lowest := Lowest, highest := Highest,
          share := Share, bytes := Bytes} <- Advice],
    [#{tables := Tables, options := Options, lowest := Lowest} | Others] = Advice,
    io:format("~nBest: ~s:new(Name, ~w)~n", [Tables, Options]),
    case length([close || #{highest := Highest} <- Others, Highest >= Lowest]) of
        0 -> ok;
        Close -> io:format("~b more reached in one of ~b rounds what it had at least.~n", [Close, Rounds])
    end.

median(Figures) -> lists:nth((length(Figures) + 1) div 2, lists:sort(Figures)).

seconds() -> erlang:monotonic_time(millisecond) / 1000.

plural(1) -> "";
plural(_) -> "es".
