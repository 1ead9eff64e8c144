%% Shapes of objects and of keys, and the tables filled with them.
-module(bench_shapes).
-export([values/0, object/2, keys/0, key/2, nth/2, table/5]).

%% @doc The shapes of values.
-spec values() -> [atom()].
values() -> [key_only, pair, record_20, small_binary, large_binary, map, nested_list, float, reference].

%% @doc An object of a shape.
-spec object(Shape :: atom(), Key :: integer()) -> tuple().
object(key_only, K) -> {K};
object(pair, K) -> {K, K};
object(record_20, K) -> {K, 1, 2, 3, 4, 5, 6, 7, 8, K, a, b, c, d, e, f, g, h, i, j};
object(small_binary, K) -> {K, <<K:256>>};
object(large_binary, K) -> {K, <<K:8192>>};
object(map, K) -> {K, #{a => K, b => 2, c => 3, d => 4, e => 5, f => 6, g => 7, h => 8, i => 9, j => 10}};
object(nested_list, K) -> {K, [[K, K + 1], [a, [b, {c, K}]], [1, 2, [3, [4]]]]};
object(float, K) -> {K, K * 1.5};
object(reference, K) -> {K, make_ref()}.

%% @doc The shapes of keys.
-spec keys() -> [atom()].
keys() -> [integer, tuple, binary, string, float, nested].

%% @doc A key of a shape.
-spec key(Shape :: atom(), integer()) -> term().
key(integer, N) -> N;
key(tuple, N) -> {user, N};
key(binary, N) -> <<"user:", (integer_to_binary(N))/binary>>;
key(string, N) -> "user:" ++ integer_to_list(N);
key(float, N) -> N * 0.5;
key(nested, N) -> {{session, <<"example.org">>}, [N rem 100, N], open}.

%% @doc The numbers from 1 to `Number', each once, in an order far from the ascending one. Neighbours are the
%% golden section apart.
-spec nth(Index :: pos_integer(), Number :: pos_integer()) -> pos_integer().
nth(Index, Number) -> 1 + (Index * 16#9E3779B1) rem Number.

%% @doc A new table of so many objects, made by a function from the numbers 1 to `Number', which are inserted
%% in the order of {@link nth/2}.
-spec table(ets | cats, Type :: atom(), [term()], Number :: pos_integer(), fun((pos_integer()) -> tuple())) ->
          ets:table() | cats:table().
table(Tables, Type, Options, Number, Object) ->
    Table = Tables:new(bench, [Type, public | Options]),
    fill(Tables, Table, Number, Object, Number),
    Table.

fill(_Tables, _Table, 0, _Object, _Number) ->
    ok;
fill(Tables, Table, Index, Object, Number) ->
    Tables:insert(Table, Object(nth(Index, Number))),
    fill(Tables, Table, Index - 1, Object, Number).
