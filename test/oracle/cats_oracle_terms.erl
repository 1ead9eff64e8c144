%% The terms that the comparison uses as keys and values. They are of every type and at the borders between
%% representations. Some pairs are equal only for some table types, as 1 and 1.0.
-module(cats_oracle_terms).
-include("cats_failure.hrl").
-export([small/0, all/1, same/2, colliding_keys/0]).

%% @doc Terms that meet each other often when keys are drawn from them.
small() ->
    [1, 1.0, 0, 0.0, minus_zero(), 2, a, b, -1, [], {1}, {1.0}, <<"a">>, [1], [1.0], #{1 => a}].

%% @doc All the terms; `Other' is a live process.
all(Other) ->
    small() ++ integers() ++ floats() ++ atoms() ++ binaries() ++ lists() ++ tuples() ++ maps()
        ++ identifiers(Other) ++ funs().

integers() ->
    Borders = [27, 31, 32, 59, 60, 63, 64, 100, 127, 128, 1000],
    [3, 5, -2, 42, 255, 256, 65536]
        ++ lists:append([[1 bsl N, (1 bsl N) - 1, (1 bsl N) + 1, -(1 bsl N), -(1 bsl N) - 1, -(1 bsl N) + 1]
                         || N <- Borders]).

floats() ->
    [2.0, -1.0, 1.5, -1.5, 3.0, 255.0, float(1 bsl 31), float(1 bsl 53), float(1 bsl 59), -float(1 bsl 59),
     float(1 bsl 63),
     -float(1 bsl 63), float(1 bsl 64), float(1 bsl 100), 1.0e300, -1.0e300, 5.0e-324, -5.0e-324,
     2.2250738585072014e-308, 0.1].

minus_zero() ->
    <<Float/float>> = <<1:1, 0:63>>,
    Float.

atoms() ->
    ['', true, false, undefined, c, 'with space', '$1', '_', list_to_atom([229, 228, 246]),
     list_to_atom([1078, 1079]), ets].

binaries() ->
    Large = binary:copy(<<"0123456789">>, 500),
    [<<>>, <<0>>, <<0, 0>>, <<0, 1>>, <<1>>, <<255>>, <<"a", 0>>, <<"ab">>, binary:copy(<<7>>, 63),
     binary:copy(<<7>>, 64),
     binary:copy(<<7>>, 65), Large, binary:part(Large, 10, 4900), binary:part(Large, 10, 100),
     binary:part(Large, 5, 20),
     <<0:1>>, <<1:1>>, <<5:3>>, <<0:7>>, <<"abc", 1:3>>, <<"abc", 2:3>>, <<Large/binary, 3:5>>,
     begin <<_:3, Bits:77/bitstring, _/bitstring>> = Large, Bits end].

lists() ->
    ["string", [a], [a | b], [1, 2 | 3], [1, 2 | 3.0], [[]], [[], []], [[a] | [b]], [1, 1.0], [1.0, 1],
     lists:seq(1, 300), lists:duplicate(70, a),
     [{K, <<"v">>} || K <- lists:seq(1, 20)], lists:foldl(fun(_, L) -> [L] end, x, lists:seq(1, 100))].

tuples() ->
    [{}, {a, b}, {1, 1}, {1, 1.0}, {a}, ?FAILED(badkey, [t, k]), ?FAILED(returned, x), {1, {2, {3, <<"x">>}}},
     list_to_tuple(lists:seq(1, 20)), list_to_tuple(lists:seq(1, 300)),
     {self(), [x | y], #{}}, lists:foldl(fun(_, T) -> {T} end, x, lists:seq(1, 100)), {[], {}, <<>>, #{}}].

maps() ->
    Large = maps:from_list([{K, K * K} || K <- lists:seq(1, 33)]),
    [#{}, #{a => 1}, #{a => 1.0}, #{1.0 => a}, #{1 => b}, #{a => 1, b => 2}, #{a => 1, b => 3},
     #{a => #{b => #{}}}, Large,
     Large#{x => y}, Large#{33 => 0}, maps:from_list([{{K, <<K>>}, [K]} || K <- lists:seq(1, 100)]),
     maps:from_list([{float(K), K} || K <- lists:seq(1, 33)]), #{1 => a, 1.0 => b},
     #{[] => {}, <<>> => self()}] ++ trees(Large).

%% Maps that are trees in the VM. Some are nested in others, as keys and as values.
trees(Large) ->
    Bytes = binary:copy(<<"value">>, 20),
    Colliding = maps:from_list([{Key, [Key]} || Key <- colliding_keys()]),
    Mixed =
        maps:from_list(lists:append([[{K, Bytes}, {-K / 3, 1 bsl (60 + K)}, {{K, [K]}, #{K => Bytes}},
                                      {<<K:700>>, self()}, {1 bsl (64 + K), fun(X) -> X + K end}, {[K | K], make_ref()}]
                                     || K <- lists:seq(1, 20)])),
    [Colliding, Mixed, Mixed#{5 => 5.0}, maps:from_list([{K, -K} || K <- lists:seq(1, 3000)]),
     maps:from_list([{K, Large#{K => Bytes}} || K <- lists:seq(1, 40)]),
     maps:from_list([{Large#{K => y}, #{}} || K <- lists:seq(1, 40)])].

%% @doc Keys whose hashes in maps agree. In OTP 25 pairs of the first integers agree in all 32 bits. In OTP 29 pairs of
%% the other integers agree in 32 of the 64 bits, and all binaries have the hash 0.
-spec colliding_keys() -> [integer() | binary()].
colliding_keys() ->
    [280384, 198773, 281280, 229095, 307353, 128918, 309680, 123268]
        ++ [0, -2155350068, 1073741824, 2807978463, 3625918826, 1073741830, 2090309310, -1375115411, -2016799213]
        ++ [hashes_to_zero(N) || N <- lists:seq(1, 40)].

%% The hash of a binary of 15 bytes is computed from two sums. The first 8 bytes determine Alpha, and the others, which
%% are `N', determine Beta. The hash is 0 if Alpha is -2 times Beta after the last step.
hashes_to_zero(N) ->
    {C1, C2, Type, Size} = {16#87C37B91114253D5, 16#4CF5AD432745937F, 12, 120},
    Alpha = low(low(rotated(mixed(Type, C1, 31, C2), 27)) * 5 + 16#52DCE729),
    Beta = low((rotated(mixed(Size, C2, 33, C1), 31) + Alpha) * 5 + 16#38495AB5) bxor mixed(N, C2, 33, C1),
    Ticks = 2,
    Wanted = low(-2 * (Beta bxor Ticks)) bxor Ticks,
    First = low(rotated(low((Alpha bxor Wanted) * inverse(C2)), 64 - 31) * inverse(C1)),
    <<First:64/little, N:56/little>>.

mixed(Value, Factor, Bits, Other) -> low(rotated(low(Value * Factor), Bits) * Other).

low(Value) -> Value band 16#FFFFFFFFFFFFFFFF.

rotated(Value, Bits) -> low(Value bsl Bits) bor (Value bsr (64 - Bits)).

%% The inverse of an odd number modulo 2^64, by Newton's method.
inverse(Odd) -> lists:foldl(fun(_, X) -> low(X * (2 - Odd * X)) end, Odd, lists:seq(1, 6)).

identifiers(Other) ->
    Dead = spawn(fun() -> ok end),
    External = fun(Bytes) -> binary_to_term(<<131, Bytes/binary>>) end,
    Node = <<119, 9, "other@far">>,
    [self(), Other, Dead,
     External(<<88, Node/binary, 77:32, 1:32, 3:32>>), External(<<88, Node/binary, 78:32, 0:32, 3:32>>),
     hd(erlang:ports()), External(<<89, Node/binary, 12:32, 3:32>>),
     make_ref(), make_ref(), External(<<90, 3:16, Node/binary, 3:32, 1:32, 2:32, 3:32>>),
     ets:new(cats_oracle_terms, [public]), atomics:new(1, [])].

%% Since OTP 27 the VM may crash when external funs are stored in tables of ets and changed or deleted. So these terms
%% are only in tests that need no ets.
funs() ->
    Big = 1 bsl 90,
    External = case list_to_integer(erlang:system_info(otp_release)) >= 27 of
                   true -> [];
                   false -> [fun erlang:abs/1, fun lists:map/2, fun no_module:no_function/7]
               end,
    Adds = fun(Y) -> fun(X) -> X + Y end end,
    External ++ [fun() -> ok end, fun(X) -> {X, Big, self()} end, fun(X) -> X + Big end,
                 Adds(1), Adds(1.0), Adds(2), Adds(self()), Adds("string"), Adds(#{a => <<0:1000>>}), Adds(Adds(1)),
                 Adds(lists:foldl(fun(_, List) -> [List] end, x, lists:seq(1, 70)))].

%% @doc Whether nothing can tell two terms apart, not even the sign of a zero.
-spec same(term(), term()) -> boolean().
same(A, B) when is_float(A), is_float(B) ->
    <<A/float>> =:= <<B/float>>;
same([A | As], [B | Bs]) ->
    same(A, B) andalso same(As, Bs);
same(A, B) when is_tuple(A), is_tuple(B) ->
    same(tuple_to_list(A), tuple_to_list(B));
same(A, B) when is_map(A), is_map(B) ->
    map_size(A) =:= map_size(B)
        andalso lists:all(fun({K, V}) ->
                                  case B of
                                      #{K := W} -> same(V, W);
                                      _ -> false
                                  end
                          end, maps:to_list(A));
same(A, B) ->
    A =:= B.
