%% Measures the time of calls on a table, and checks first that ets and cats return the same.
-module(bench_calls).
-export([check/1, nanoseconds/5, loops/1]).
-export_type([calls/0]).

-type key() :: term().
-type calls() :: #{calls := atom(), options := [term()], objects := pos_integer(),
                   key := fun((N :: pos_integer()) -> key()),
                   object := fun((key(), N :: pos_integer()) -> tuple() | [tuple()]),
                   argument := fun((key(), N :: pos_integer()) -> term())}.
%% `calls' names a loop of table_calls.hrl. `options' are those of the table, its type among them. The table has
%% `objects' keys, the N-th of which is `key(N)'. `object' gives the object of a key, or several for a bag, and
%% `argument' what the loop does with the key.

-define(CHECKED, 10).
-define(HOT_ARGUMENTS, 1000).
-define(LARGE_ARGUMENTS, 16384).

%% @doc Makes each call once on small tables of both kinds. Fails if their results differ, or what is in the tables
%% afterwards.
-spec check(calls()) -> ok.
check(#{calls := Calls, objects := Objects, argument := Argument} = Row) ->
    Keys = keys(Row, min(Objects, ?CHECKED)),
    Arguments = [Argument(element(N, Keys), N) || N <- lists:seq(1, tuple_size(Keys))],
    [Ets, Cats] = [begin
                       Table = table(Row, Tables, [], Keys),
                       Results = [canonical((loops(Tables)):loop(Calls, Table, [Each])) || Each <- Arguments],
                       Left = lists:sort(Tables:tab2list(Table)),
                       Tables:delete(Table),
                       {Results, Left}
                   end || Tables <- [ets, cats]],
    case Cats of
        Ets -> ok;
        _ -> error({different, Ets, Cats})
    end.

%% The order of results does not count, as it differs in all types but ordered_set.
canonical(Results) when is_list(Results) -> lists:sort(Results);
canonical(Result) -> Result.

%% @doc The module with the loops over ets or cats.
-spec loops(ets | cats) -> module().
loops(ets) -> table_calls_ets;
loops(cats) -> table_calls_cats.

%% @doc The nanoseconds that a call takes, for each number of workers: in the fastest of so many loops of so many
%% milliseconds. Other programs on the machine can only make a loop slower, and they seldom disturb all of several
%% short ones.
-spec nanoseconds(calls(), bench_experiment:subject(), Workers :: [pos_integer()],
                  {Loops :: pos_integer(), Milliseconds :: pos_integer()}, Seed :: integer()) ->
          [{Workers :: pos_integer(), Nanoseconds :: float()}].
nanoseconds(Row, {_, Tables, Options}, Workers, {Times, Milliseconds}, Seed) ->
    Keys = bench_data:share(keys, fun() -> keys(Row, maps:get(objects, Row)) end),
    Lists = [bench_data:share({arguments, Worker}, fun() -> arguments(Row, Keys, Seed + Worker) end)
             || Worker <- lists:seq(1, lists:max(Workers))],
    Table = table(Row, Tables, Options, Keys),
    Figures = [{Number, fastest(Row, Tables, Table, lists:sublist(Lists, Number), Times, Milliseconds)}
               || Number <- Workers],
    Tables:delete(Table),
    Figures.

keys(#{key := Key}, Number) ->
    list_to_tuple([Key(N) || N <- lists:seq(1, Number)]).

table(#{options := Given, object := Object}, Tables, Options, Keys) ->
    Table = Tables:new(everyday, [public | Given ++ Options]),
    Number = tuple_size(Keys),
    [Tables:insert(Table, Object(element(N, Keys), N))
     || Index <- lists:seq(1, Number), N <- [bench_shapes:nth(Index, Number)]],
    Table.

arguments(#{objects := Objects, argument := Argument}, Keys, Seed) ->
    Number = if Objects > ?HOT_ARGUMENTS -> ?LARGE_ARGUMENTS; true -> ?HOT_ARGUMENTS end,
    [Argument(element(N, Keys), N)
     || N <- bench_keys:list(bench_keys:generator(uniform, Objects), Number, bench_keys:seed(Seed))].

fastest(#{calls := Calls}, Tables, Table, Lists, Times, Milliseconds) ->
    Loops = loops(Tables),
    {Once, _} = timer:tc(fun() -> Loops:loop(Calls, Table, hd(Lists)) end),
    Repeats = max(1, round(1000 * Milliseconds / max(1, Once))),
    Work = [fun() -> repeat(Loops, Calls, Table, List, Repeats) end || List <- Lists],
    Seconds = lists:min([bench_workers:seconds(Work) || _ <- lists:seq(1, Times)]),
    1.0e9 * Seconds / (Repeats * length(hd(Lists))).

repeat(_Loops, _Calls, _Table, _List, 0) ->
    ok;
repeat(Loops, Calls, Table, List, Repeats) ->
    Loops:loop(Calls, Table, List),
    repeat(Loops, Calls, Table, List, Repeats - 1).
