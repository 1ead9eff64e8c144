%% The keys and objects of a storm. Whoever reads an object can tell, without knowing anything else, whether a process
%% wrote it under this key of this table.
%%
%% An object has four elements, and its key is where the table has its key position. The others, in this order:
%%
%% | element | what it is |
%% |---|---|
%% | counter | an integer or float, which counters and transfers change |
%% | value | `{Writer, Number, Checksum, Payload}': the Number-th write of this writer, with any payload |
%% | mark | `{Writer, Number}' again. Nobody writes one of both without the other. |
-module(cats_storm_values).

-export([start_round/2, writer/0, myself/0, terms/0, uniform/1, chance/1, one_of/1, shared_key/0, twins/1, deep/1]).
-export([object/2, object/3, value/2, key/2, counter/2, with_counter/3, position/2, pattern/3, wrong/2, wrong/4]).

%% What all processes of a storm know.
-define(ROUND, {?MODULE, round}).

-define(MOST_WRITERS, 100000).

-record(twin, {number :: number(), name = <<"twin">>}).

%% @doc Begins a round. Writers of earlier ones are forgotten.
-spec start_round(Round :: term(), Keys :: pos_integer()) -> ok.
start_round(Round, Keys) ->
    Terms = case persistent_term:get(?ROUND, none) of
                none -> list_to_tuple(cats_oracle_terms:all(spawn(fun() -> receive stop -> ok end end)));
                #{terms := Known} -> Known
            end,
    persistent_term:put(?ROUND, #{round => Round, keys => Keys, terms => Terms, writers => atomics:new(1, []),
                                  numbers => atomics:new(?MOST_WRITERS, [])}).

round() -> persistent_term:get(?ROUND).

%% @doc Makes the calling process a writer, and returns which.
-spec writer() -> pos_integer().
writer() ->
    Writer = atomics:add_get(maps:get(writers, round()), 1, 1),
    put(?MODULE, Writer),
    Writer.

%% @doc The number of the calling process as a writer.
-spec myself() -> pos_integer().
myself() -> get(?MODULE).

%% @doc Terms of all kinds.
-spec terms() -> tuple().
terms() -> maps:get(terms, round()).

%%% Chance. Each process has its own, from the seed of the storm.

uniform(N) -> rand:uniform(N).
chance(Percent) -> rand:uniform(100) =< Percent.
one_of(List) -> lists:nth(rand:uniform(length(List)), List).

%%% Keys

%% @doc A key that every process may write.
-spec shared_key() -> term().
shared_key() ->
    case uniform(10) of
        1 -> one_of(cats_oracle_terms:small());
        2 -> element(uniform(min(maps:get(keys, round()), tuple_size(terms()))), terms());
        3 -> one_of(twins(uniform(min(10, maps:get(keys, round())))));
        _ -> {shared, uniform(maps:get(keys, round()))}
    end.

%% @doc Keys of which each is equal to another one, but not the same. An `ordered_set' has one object for both of them.
-spec twins(pos_integer()) -> [term()].
twins(Number) ->
    lists:append([[{twin, N}, #twin{number = N}, adding(N), [N | #{a => N}]] || N <- [Number, float(Number)]]).

adding(Number) -> fun(Other) -> Other + Number end.

%% Equal for keys that compare equal. A fun may differ from one with an equal environment.
normal(Float) when is_float(Float), Float == trunc(Float) -> trunc(Float);
normal([Head | Tail]) -> [normal(Head) | normal(Tail)];
normal(Tuple) when is_tuple(Tuple) -> list_to_tuple(normal(tuple_to_list(Tuple)));
normal(Map) when is_map(Map) -> map_size(Map);
normal(Fun) when is_function(Fun) -> function;
normal(Term) -> Term.

%%% Match specifications

%% @doc The same condition, in some cases many levels deep.
-spec deep(Condition :: term()) -> Condition :: term().
deep(Condition) ->
    case chance(10) of
        true -> nest(one_of([60, 300, 3000]), one_of(levels()), one_of(levels()), Condition);
        false -> Condition
    end.

nest(0, _Level, _Other, Condition) -> Condition;
nest(Depth, Level, Other, Condition) -> nest(Depth - 1, Other, Level, Level(Condition)).

levels() ->
    [fun(Condition) -> {'not', {'not', Condition}} end, fun(Condition) -> {'andalso', Condition, true} end,
     fun(Condition) -> {'andalso', true, Condition} end, fun(Condition) -> {'orelse', Condition, false} end,
     fun(Condition) -> {'orelse', false, Condition} end, fun(Condition) -> {'and', true, Condition} end,
     fun(Condition) -> {'or', Condition, false} end, fun(Condition) -> {'xor', Condition, false} end,
     fun(Condition) -> {'=:=', true, Condition} end, fun(Condition) -> {hd, [Condition]} end,
     fun(Condition) -> {element, 1, {{Condition}}} end].

%%% Objects

%% @doc A new object of this process for a key.
-spec object(cats_storm_tables:table(), Key :: term()) -> tuple().
object(Table, Key) -> object(Table, Key, uniform(100)).

-spec object(cats_storm_tables:table(), Key :: term(), Counter :: number()) -> tuple().
object(#{keypos := Keypos} = Table, Key, Counter) ->
    {Value, Mark} = value(Table, Key),
    {Before, After} = lists:split(Keypos - 1, [Counter, Value, Mark]),
    list_to_tuple(Before ++ [Key | After]).

%% @doc A new value of this process for a key, and the mark that goes with it.
-spec value(cats_storm_tables:table(), Key :: term()) -> {tuple(), tuple()}.
value(Table, Key) ->
    #{numbers := Numbers} = round(),
    Writer = myself(),
    Number = atomics:add_get(Numbers, Writer, 1),
    Payload = payload(),
    {{Writer, Number, checksum(Table, Key, Writer, Number, Payload), Payload}, {Writer, Number}}.

payload() ->
    case uniform(12) of
        1 -> binary:copy(<<(uniform(256))>>, uniform(3000));
        2 -> binary:part(binary:copy(<<"part">>, 500), uniform(100), uniform(1000));
        3 -> element(uniform(tuple_size(terms())), terms());
        4 -> lists:seq(1, uniform(300));
        5 -> #{uniform(1000) => [self(), make_ref()]};
        6 -> <<(uniform(1 bsl 20)):21, 3:(uniform(500))>>;
        _ -> uniform(1000)
    end.

checksum(#{origin := Origin}, Key, Writer, Number, Payload) ->
    #{round := Round} = round(),
    erlang:phash2({Round, Origin, normal(Key), Writer, Number, Payload}).

%% @doc The place of an element: `counter', `value' or `mark'.
-spec position(counter | value | mark, cats_storm_tables:table()) -> pos_integer().
position(Element, #{keypos := Keypos}) ->
    Place = case Element of counter -> 1; value -> 2; mark -> 3 end,
    case Place < Keypos of true -> Place; false -> Place + 1 end.

key(#{keypos := Keypos}, Object) -> element(Keypos, Object).
counter(Table, Object) -> element(position(counter, Table), Object).
with_counter(Table, Object, Counter) -> setelement(position(counter, Table), Object, Counter).

%% @doc A pattern for the objects of a key, which may be a pattern, with this one for the counter.
-spec pattern(cats_storm_tables:table(), Key :: term(), Counter :: term()) -> tuple().
pattern(#{keypos := Keypos} = Table, Key, Counter) ->
    with_counter(Table, setelement(Keypos, {'_', '_', '_', '_'}, Key), Counter).

%% @doc What is wrong with a term that was read as an object of the table: `nothing', if a process wrote it there.
-spec wrong(cats_storm_tables:table(), term()) -> nothing | term().
wrong(Table, Object) when tuple_size(Object) =:= 4 ->
    [Counter, Value, Mark] = [element(position(Element, Table), Object) || Element <- [counter, value, mark]],
    case is_number(Counter) of
        true -> wrong(Table, key(Table, Object), Value, Mark);
        false -> {no_counter, Object}
    end;
wrong(_Table, Other) ->
    {no_object, Other}.

%% @doc The same for a value and a mark that were read together.
-spec wrong(cats_storm_tables:table(), Key :: term(), Value :: term(), Mark :: term()) -> nothing | term().
wrong(Table, Key, {Writer, Number, Checksum, Payload}, {Writer, Number}) when is_integer(Writer), is_integer(Number) ->
    case checksum(Table, Key, Writer, Number, Payload) of
        Checksum ->
            case atomics:get(maps:get(numbers, round()), Writer) >= Number of
                true -> nothing;
                false -> {never_written, {Writer, Number}}
            end;
        _ ->
            {wrong_checksum, Key, {Writer, Number, Checksum, Payload}}
    end;
wrong(_Table, Key, Value, Mark) ->
    {torn, Key, Value, Mark}.
