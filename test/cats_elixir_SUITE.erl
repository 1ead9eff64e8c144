%% The Elixir modules that Mix builds: compiled by elixirc, and used.
-module(cats_elixir_SUITE).
-include_lib("stdlib/include/assert.hrl").
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([tables/1, caches/1]).

suite() -> [{timetrap, {minutes, 3}}].

all() -> [tables, caches].

%% An old Elixir may not run on this OTP, whose erl comes first in the PATH here.
init_per_suite(Config) ->
    Directory = proplists:get_value(priv_dir, Config),
    Root = filename:dirname(filename:dirname(proplists:get_value(source, module_info(compile)))),
    case cats_test_lib:run("elixir", ["-e", "[] = []"]) of
        {0, _} ->
            Sources = filelib:wildcard(filename:join(Root, "lib/**/*.ex")),
            ?assertEqual({0, ""}, cats_test_lib:run("elixirc", ["-pa", cats(), "-o", Directory, "--warnings-as-errors" | Sources])),
            [{compiled, Directory} | Config];
        _ ->
            {skip, "no Elixir that runs on this OTP"}
    end.

end_per_suite(_Config) -> ok.

cats() -> filename:dirname(code:which(cats)).

evaluate(Config, Source) ->
    Arguments = ["-pa", cats(), "-pa", proplists:get_value(compiled, Config), "-e", Source],
    ?assertEqual({0, ""}, cats_test_lib:run("elixir", Arguments)).

tables(Config) ->
    evaluate(Config, "
fruit = Cats.Table.new([:ordered_set])
^fruit = Enum.into([{:apples, 3}, {:pears, 5}], fruit)
[{3, :apples}, {5, :pears}] = Enum.map(fruit, fn {name, number} -> {number, name} end)
true = {:apples, 3} in fruit
false = {:apples, 4} in fruit
false = {} in fruit
false = :apples in fruit
2 = Enum.count(fruit)
[:pears] = Cats.Table.stream(fruit, [{{:\"$1\", :\"$2\"}, [{:>, :\"$2\", 3}], [:\"$1\"]}]) |> Enum.to_list()
for type <- [:set, :ordered_set, :bag] do
  numbers = Enum.into(1..3000, Cats.Table.new([type]), &{&1, &1 * &1})
  3000 = Enum.count(numbers)
  true = Enum.sort(Enum.map(numbers, &elem(&1, 0))) == Enum.to_list(1..3000)
  [_, _] = Enum.take(numbers, 2)
  snapshot = if type == :bag, do: numbers, else: Cats.Table.wrap(:cats.snapshot(numbers.id))
  3000 = Enum.count(Enum.zip(snapshot, numbers))
  9_004_500_500 = Enum.reduce(numbers, 0, fn {_, square}, sum -> sum + square end)
end
[] = Enum.to_list(Cats.Table.new())
").

caches(Config) ->
    evaluate(Config, "
defmodule Colours do
  use Cats.Cache, limit: {:objects, 100}, ttl: :infinity
end
defmodule Other do
  use Cats.Cache
end
{:ok, supervisor} = Supervisor.start_link([Colours, {Other, ttl: 60_000}], strategy: :one_for_one)
:ok = Colours.put(:sky, \"blue\")
\"blue\" = Colours.get(:sky)
nil = Colours.get(:grass)
:none = Colours.get(:grass, :none)
\"green\" = Colours.fetch(:grass, fn :grass -> \"green\" end)
\"green\" = Colours.fetch(:grass, fn _ -> raise \"not called\" end)
false = Colours.put_new(:sky, \"grey\")
true = Colours.put_new(:snow, \"white\")
\"white\" = Colours.take(:snow)
nil = Colours.take(:snow)
3 = Colours.increment(:visits, 3)
4 = Colours.increment(:visits)
4 = Colours.get_and_update(:visits, &{&1, &1 * 10})
40 = Colours.get_and_update(:visits, fn 40 -> :pop end)
nil = Colours.get_and_update(:visits, fn nil -> :pop end)
:first = Colours.get_and_update(:visits, fn nil -> {:first, 1} end)
2 = Colours.update(:visits, 0, &(&1 + 1))
0 = Colours.update(:nothing, 0, &(&1 + 1))
1..8 |> Enum.map(fn _ -> Task.async(fn -> for _ <- 1..100, do: Colours.update(:visits, 0, &(&1 + 1)) end) end) |> Enum.each(&Task.await/1)
802 = Colours.get(:visits)
true = Enum.sort(Colours.stream()) == [grass: \"green\", nothing: 0, sky: \"blue\", visits: 802]
:ok = Colours.put_all(for n <- 1..1000, do: {n, n})
100 = Colours.size()
:ok = Colours.delete(1000)
false = Colours.has_key?(1000)
:infinity = Colours.ttl(999)
:ok = Colours.put(:short, 1, ttl: 20)
true = Colours.ttl(:short) <= 20
Process.sleep(40)
nil = Colours.get(:short)
nil = Colours.ttl(:short)
false = Colours.touch(:short, 100)
:ok = Colours.clear()
0 = Colours.size()
:ok = Other.put(1, 2)
true = Other.ttl(1) <= 60_000
true = Other.touch(1, :infinity)
:infinity = Other.ttl(1)
60_000 = :cats.info(Other, :ttl)
:ok = Supervisor.terminate_child(supervisor, Other)
:undefined = :cats.info(Other)
").
