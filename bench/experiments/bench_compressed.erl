%% Calls on tables with option `compressed'. ets keeps each element in a form like the external format. cats keeps
%% tuples, lists and maps in a compact form of its own, and all other elements as they are.
-module(bench_compressed).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4, shapes/0, object/3]).

-define(OBJECTS, 1000).

about() ->
    #{title => "Calls on compressed tables", source => "the manual of ets, on the option compressed",
      unit => "ns", better => lower, x => object, scale => category, panels => [call, workers]}.

points(Size) ->
    [#{axes => [{call, Call}, {object, Shape}], subjects => bench_tables:subjects(plain),
       seconds => bench_sizes:seconds(Size, 0.1, 0.4)}
     || Call <- [insert, lookup, lookup_element, update_counter], Shape <- shapes()].

loops(quick) -> {2, 2};
loops(default) -> {10, 2};
loops(full) -> {20, 20}.

measure(Size, #{call := Call, object := Shape}, Subject, Seed) ->
    Row = #{calls => Call, options => [set, compressed], objects => ?OBJECTS, key => fun(N) -> N end,
            object => fun(Key, N) -> object(Shape, Key, N) end,
            argument => fun(Key, N) -> argument(Call, Shape, Key, N) end},
    bench_data:share(checked, fun() -> bench_calls:check(Row) end),
    [{[{workers, Number}], Figure}
     || {Number, Figure} <- bench_calls:nanoseconds(Row, Subject, bench_workers:counts(), loops(Size), Seed)].

argument(insert, Shape, Key, N) -> object(Shape, Key, N + 1);
argument(update_counter, _, Key, _) -> {Key, 1};
argument(_, _, Key, _) -> Key.

%% @doc The shapes of objects. `text' is easy to pack, `random' is not.
-spec shapes() -> [string()].
shapes() ->
    ["pair", "record of 10", "record of 20", "tuple of 1000", "string of 100", "map of 5", "map of 40",
     "200 bytes of text", "200 random bytes", "4096 bytes of text", "4096 random bytes"].

%% @doc An object of a shape. The second element is a number.
-spec object(Shape :: string(), Key, N :: integer()) -> {Key, integer()} | tuple().
object("pair", Key, N) -> {Key, N};
object("record of 10", Key, N) -> {Key, N, idle, none, [], undefined, true, {1, 2}, live, 0};
object("record of 20", Key, N) -> {Key, N, 1, 2, 3, 4, 5, 6, 7, Key, a, b, c, d, e, f, g, h, i, j};
object("tuple of 1000", Key, N) -> list_to_tuple([Key, N | lists:seq(3, 1000)]);
object("string of 100", Key, N) -> {Key, N, binary_to_list(text(100, N))};
object("map of 5", Key, N) -> {Key, N, map(5, N)};
object("map of 40", Key, N) -> {Key, N, map(40, N)};
object("200 bytes of text", Key, N) -> {Key, N, text(200, N)};
object("200 random bytes", Key, N) -> {Key, N, random(200, N)};
object("4096 bytes of text", Key, N) -> {Key, N, text(4096, N)};
object("4096 random bytes", Key, N) -> {Key, N, random(4096, N)}.

map(Pairs, N) ->
    maps:from_list([{list_to_atom("key_" ++ integer_to_list(Pair)), N + Pair} || Pair <- lists:seq(1, Pairs)]).

text(Bytes, N) ->
    Line = <<"GET /users/", (integer_to_binary(N))/binary, "/orders?page=1 HTTP/1.1 200 ">>,
    first(Bytes, binary:copy(Line, 1 + Bytes div byte_size(Line))).

random(Bytes, N) ->
    first(Bytes, << <<(erlang:md5(<<N:32, Part:32>>))/binary>> || Part <- lists:seq(0, Bytes div 16) >>).

%% A copy, as a part would hold on to the whole.
first(Bytes, Binary) -> binary:copy(binary:part(Binary, 0, Bytes)).
