%% Random keys: integers from 1 to a range, by one of three distributions.
-module(bench_keys).
-export([generator/2, seed/1, below/2, list/3]).
-export_type([distribution/0, generator/0]).

-type distribution() :: uniform | zipf | {hot, Keys :: pos_integer()}.
%% `zipf' has the exponent 0.99, like the benchmark YCSB. Its frequent keys are spread over the range. `hot'
%% takes a few keys only, which are spread over the range, too.
-type random() :: term().
-type generator() :: fun((random()) -> {Key :: pos_integer(), random()}).

-define(EXPONENT, 0.99).

%% @doc A state of the generator of random numbers.
-spec seed(integer()) -> random().
seed(Seed) -> element(2, rand:seed_s(exsp, {Seed, 16#5EED, 16#CA75})).

%% @doc A uniform number from 0 to `Limit' - 1, of at most 32 bits.
-spec below(Limit :: pos_integer(), random()) -> {non_neg_integer(), random()}.
below(Limit, Random0) ->
    {Bits, Random} = rand:exsp_next(Random0),
    {(Bits bsr 8) rem Limit, Random}.

%% @doc What gives keys of a distribution over a range.
-spec generator(distribution(), Range :: pos_integer()) -> generator().
generator(uniform, Range) ->
    fun(Random0) ->
            {Bits, Random} = rand:exsp_next(Random0),
            {1 + (Bits bsr 8) rem Range, Random}
    end;
generator({hot, Keys}, Range) ->
    fun(Random0) ->
            {Bits, Random} = rand:exsp_next(Random0),
            {spread((Bits bsr 8) rem Keys, Range), Random}
    end;
generator(zipf, Range) ->
    %% Jim Gray et al., "Quickly Generating Billion-Record Synthetic Databases", figure 8.
    Zeta = zeta(Range),
    Alpha = 1 / (1 - ?EXPONENT),
    Eta = (1 - math:pow(2 / Range, 1 - ?EXPONENT)) / (1 - zeta(2) / Zeta),
    Second = 1 + math:pow(0.5, ?EXPONENT),
    fun(Random0) ->
            {Bits, Random} = rand:exsp_next(Random0),
            Uniform = (Bits bsr 8) / (1 bsl 50),
            Rank = case Uniform * Zeta of
                       Sum when Sum < 1 -> 0;
                       Sum when Sum < Second -> 1;
                       _ -> min(Range - 1, trunc(Range * math:pow(Eta * Uniform - Eta + 1, Alpha)))
                   end,
            {spread(Rank, Range), Random}
    end.

%% The key of a rank. Ranks have different keys, as the factor is a prime.
spread(Rank, Range) -> 1 + (Rank * 16#9E3779B1) rem Range.

%% The sum of 1 / N^exponent. Beyond some thousand terms it is approximated by its integral.
zeta(Range) when Range =< 4096 -> lists:sum([math:pow(N, -?EXPONENT) || N <- lists:seq(1, Range)]);
zeta(Range) -> zeta(4096) + (integral(Range) - integral(4096)).

integral(N) -> math:pow(N, 1 - ?EXPONENT) / (1 - ?EXPONENT).

%% @doc As many keys as asked for.
-spec list(generator(), Number :: non_neg_integer(), random()) -> [pos_integer()].
list(_Generator, 0, _Random) ->
    [];
list(Generator, Number, Random0) ->
    {Key, Random} = Generator(Random0),
    [Key | list(Generator, Number - 1, Random)].
