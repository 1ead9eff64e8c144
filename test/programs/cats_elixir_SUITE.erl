%% The Elixir modules that Mix builds: compiled by elixirc, and used.
-module(cats_elixir_SUITE).
-include_lib("stdlib/include/assert.hrl").
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([tables/1, transactions/1, caches/1, children/1, times/1, configure/1, cache_in_transactions/1,
         limits/1, files/1, telemetry/1, coming_from_caches/1, bad_calls/1, dashboard/1]).

suite() -> [{timetrap, {minutes, 10}}].

all() ->
    [tables, transactions, caches, children, times, configure, cache_in_transactions, limits, files, telemetry,
     coming_from_caches, bad_calls, dashboard].

%% An old Elixir may not run on this OTP, whose erl comes first in the PATH here.
init_per_suite(Config) ->
    Directory = proplists:get_value(priv_dir, Config),
    case cats_test_lib:run("elixir", ["-e", "[] = []"]) of
        {0, _} ->
            Sources = filelib:wildcard(source("**/*.ex")),
            ?assertEqual({0, ""},
                         cats_test_lib:run("elixirc",
                                           ["-pa", cats(), "-o", Directory, "--warnings-as-errors" | Sources])),
            [{compiled, Directory} | Config];
        _ ->
            {skip, "no Elixir that runs on this OTP"}
    end.

end_per_suite(_Config) -> ok.

cats() -> filename:dirname(code:which(cats)).

source(Path) ->
    filename:join([cats_test_lib:root(), "lib", Path]).

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
gone = Cats.Table.new()
:cats.delete(gone.id)
for call <- [&Enum.count/1, &({} in &1), &({1, 2} in &1), &Enum.to_list/1] do
  ArgumentError = try do call.(gone) rescue error -> error.__struct__ end
end
for call <- [&Enum.count/1, &({1, 2} in &1)] do
  \"there is no table :no_such_table\" =
    try do call.(Cats.Table.wrap(:no_such_table)) rescue error -> Exception.message(error) end
end
").

transactions(Config) ->
    evaluate(Config, "
{:module, :cats_transaction} = Code.ensure_loaded(:cats_transaction)
words = :cats_transaction.module_info(:exports) -- [module_info: 0, module_info: 1, run: 1, run: 2, run: 3, read: 2]
[] = words -- Cats.__info__(:functions)
[transaction: 1, transaction: 2] = Enum.sort(Cats.__info__(:functions) -- words)

fruit = Cats.Table.new([:ordered_set, :public])
{:ok, true} = Cats.transaction(fn -> Cats.insert(fruit, for(n <- 1..10, do: {n, n})) end)
{:ok, 55} = Cats.transaction(fn -> Cats.foldl(fn {_, n}, sum -> n + sum end, 0, fruit) end)
{:ok, [{9, 9}, {8, 8}]} =
  Cats.transaction(fn -> Cats.range(fruit, %{below: 10, order: :descending}, 2) end, retries: 3, timeout: 60_000)
{:error, :no} = Cats.transaction(fn -> Cats.delete(fruit.id, 1) && Cats.abort(:no) end)
{:error, :left} = Cats.transaction(fn -> Cats.delete(fruit, 1) && exit(:left) end)
{:error, {:throw, 1}} = Cats.transaction(fn -> Cats.delete(fruit, 1) && Cats.abort({:throw, 1}) end)
{:error, {:throw, 1}} = Cats.transaction(fn -> exit({:throw, 1}) end)
:thrown = try do Cats.transaction(fn -> Cats.delete(fruit, 1) && throw(:thrown) end) catch value -> value end
\"oops\" = try do Cats.transaction(fn -> Cats.delete(fruit, 1) && raise \"oops\" end)
         rescue error in RuntimeError -> error.message end
message = try do Cats.transaction(fn -> Cats.delete(fruit, 1) && Cats.lookup(:no_such_table, 1) end)
          rescue error in ArgumentError -> error |> Exception.message() end
true = message =~ \"the table identifier does not refer to an existing\"
true = :cats.member(fruit.id, 1)

# What is forgotten of an inner one that raises.
{:ok, [true, false]} = Cats.transaction(fn ->
  Cats.insert(fruit, {:outer, 1})
  try do Cats.transaction(fn -> Cats.insert(fruit, {:inner, 1}) && raise \"oops\" end) rescue _ -> :ok end
  [Cats.member(fruit, :outer), Cats.member(fruit, :inner)]
end)

# An exception in a run that fails is none: the function runs again.
{:ok, pid} = Agent.start_link(fn -> 0 end)
{:ok, 2} = Cats.transaction(fn ->
  [{1, n}] = Cats.lookup(fruit, 1)
  runs = Agent.get_and_update(pid, &{&1 + 1, &1 + 1})
  if runs == 1, do: Task.await(Task.async(fn -> :cats.insert(fruit.id, {1, n + 1}) end))
  if n == 1, do: raise(inspect(Cats.lookup(fruit, 2)))
  n
end)

for options <- [[tries: 1], %{}, :retries, [retries: 1, other: 2]] do
  message = try do Cats.transaction(fn -> 1 end, options) rescue error in ArgumentError -> error.message end
  true = message =~ \"retries:, timeout: and memory:\"
end
for options <- [[retries: -1], [timeout: :never], [memory: :all]] do
  ArgumentError = try do Cats.transaction(fn -> 1 end, options) rescue error -> error.__struct__ end
end
snapshot = :cats.snapshot(fruit.id)
{:error, {:no_transactions, ^snapshot, text}} = Cats.transaction(fn -> Cats.lookup(snapshot, 1) end)
true = text =~ \"a snapshot\"
").

caches(Config) ->
    evaluate(Config, "
defmodule Colours do
  use Cats.Cache, limit: {:objects, 100}, ttl: :infinity
end
defmodule Other do
  use Cats.Cache, [:ordered_set]
end
{:ok, supervisor} = Supervisor.start_link([Colours, {Other, ttl: 60_000}], strategy: :one_for_one)
:ok = Colours.put(:sky, \"blue\")
\"blue\" = Colours.get(:sky)
nil = Colours.get(:grass)
:none = Colours.get(:grass, :none)
\"green\" = Colours.fetch(:grass, fn :grass -> \"green\" end)
\"green\" = Colours.fetch(:grass, fn _ -> raise \"not called\" end, stale: 10, timeout: 10)
{:a, :pair} = Colours.fetch(:night, fn _ -> {:ignore, {:a, :pair}} end, returns: :outcome)
false = Colours.has_key?(:night)
\"black\" = Colours.fetch(:night, fn :night -> {:store, \"black\", ttl: 5_000} end, returns: :outcome)
true = Colours.ttl(:night) <= 5_000
\"blue\" = Colours.fetch(:sea, fn _ -> {:store, \"blue\"} end, returns: :outcome, refresh_ahead: 10)
down = fn ->
  try do
    Colours.fetch(:down, fn _ -> throw(System.unique_integer()) end, negative_ttl: 60_000)
  catch
    number -> number
  end
end
true = down.() == down.()
:ok = Enum.each([:night, :sea, :down], &Colours.delete/1)
paint = fn keys -> Map.new(keys, &{&1, \"#{&1} colour\"}) end
%{sky: \"blue\", rose: \"rose colour\", leaf: \"leaf colour\"} =
  many = Colours.fetch_many([:sky, :rose, :leaf, :rose], fn [:rose, :leaf] = keys -> paint.(keys) end)
3 = map_size(many)
\"leaf colour\" = Colours.get(:leaf)
%{rose: \"rose colour\"} = Colours.fetch_many([:rose], fn _ -> raise \"not called\" end)
%{} = none = Colours.fetch_many([:gone], fn _ -> [] end, timeout: 10)
0 = map_size(none)
%{night: {:a, :pair}, sea: \"blue\", leaf: \"leaf colour\"} =
  mixed =
  Colours.fetch_many(
    [:night, :gone, :leaf, :sea],
    fn [:night, :gone, :sea] -> [sea: {:store, \"blue\", ttl: 5_000}, night: {:ignore, {:a, :pair}}] end,
    returns: :outcome
  )
3 = map_size(mixed)
{true, false, false} = {Colours.ttl(:sea) <= 5_000, Colours.has_key?(:night), Colours.has_key?(:gone)}
%{\"grass\" => :over} = Colours.fetch_many([\"grass\"], fn _ -> [{\"grass\", :over}] end, ttl: 0)
false = Colours.has_key?(\"grass\")
:ok = Enum.each([:rose, :leaf, :sea], &Colours.delete/1)
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
:ok = Colours.put(:null, nil)
[nil] = Colours.update(:null, 0, &[&1])
:same = Colours.get_and_update(:null, fn [nil] -> {:ignore, :same} end)
[nil] = Colours.fetch!(:null)
:ignore = Colours.update(:null, 0, fn [nil] -> :ignore end)
:ignore = Colours.get(:null)
:ignore = Colours.update(:fresh, :ignore, & &1)
:ignore = Colours.take(:fresh)
:ok = Colours.delete(:null)
%KeyError{key: :null, term: Colours} = try do Colours.fetch!(:null) rescue error -> error end
7 = Colours.increment(:null, 2, 5)
6 = Colours.decrement(:null)
-1 = Colours.decrement(:null, 7)
-2 = Colours.decrement(:fresh, 3, 1)
for key <- [:null, :fresh], do: :ok = Colours.delete(key)
own = fn value -> Colours.put(:nothing, make_ref()); {value, value} end
%RuntimeError{message: \"the value of :nothing in Colours was changed during each of 1000 calls\" <> _} =
  try do Colours.get_and_update(:nothing, own) rescue error -> error end
:ok = Colours.put(:nothing, 0)
1..8
|> Enum.map(fn _ -> Task.async(fn -> for _ <- 1..100, do: Colours.update(:visits, 0, &(&1 + 1)) end) end)
|> Enum.each(&Task.await(&1, :infinity))
802 = Colours.get(:visits)
[:grass, :nothing, :sky, :visits] = Enum.sort(Colours.keys())
true = Enum.sort(Colours.stream()) == [grass: \"green\", nothing: 0, sky: \"blue\", visits: 802]
:ok = Colours.put_all(for n <- 1..1000, do: {n, n})
100 = Colours.size()
:ok = Colours.delete(1000)
false = Colours.has_key?(1000)
:infinity = Colours.ttl(999)
:ok = Colours.put(:long, 1, ttl: 60_000)
true = Colours.ttl(:long) <= 60_000
:ok = Colours.put(:short, 1, ttl: 1)
Process.sleep(2)
nil = Colours.get(:short)
nil = Colours.ttl(:short)
false = Colours.touch(:short, 100)
:ok = Colours.clear()
0 = Colours.size()
:ok = Other.put(1, 2)
true = Other.ttl(1) <= 60_000
true = Other.touch(1, :infinity)
:infinity = Other.ttl(1)
{60_000, :ordered_set} = {:cats.info(Other, :ttl), :cats.info(Other, :type)}
:ok = Supervisor.terminate_child(supervisor, Other)
:undefined = :cats.info(Other)
ArgumentError = try do Other.size() rescue error -> error.__struct__ end
").

%% A cache as a child, with options from everywhere, and with functions of its own.
children(Config) ->
    evaluate(Config, "
defmodule Known do
  use Cats.Cache, otp_app: :shop, ttl: 1000, limit: {:objects, 5}
  def get(key, default), do: {:known, super(key, default)}
end
defmodule Deaf do
  use Cats.Cache
end
:ok = Application.put_env(:shop, Known, ttl: 2000, limit: {:objects, 10})
children = [
  {Cats.Cache, name: :sessions, ttl: 5_000},
  {Cats.Cache, [:ordered_set, name: :scores, id: {:scores, 1}, restart: :temporary]},
  {Known, limit: {:objects, 20}},
  {Deaf, [{:ttl, 1000}, {:notify, self(), [events: [:expired]]}, {:id, :deaf}, {:restart, :transient}]}
]
{:ok, supervisor} = Supervisor.start_link(children, strategy: :one_for_one)
[{Known, _, _, _}, {:deaf, _, _, _}, {:sessions, _, _, _}, {{:scores, 1}, _, _, _}] =
  Enum.sort(Supervisor.which_children(supervisor))
{:temporary, :transient, :permanent} =
  {Supervisor.child_spec(Enum.at(children, 1), []).restart, Supervisor.child_spec(Enum.at(children, 3), []).restart,
   Known.child_spec().restart}
:ok = Cats.Cache.put(:sessions, 1, :ada)
:ada = Cats.Cache.get(:sessions, 1)
true = Cats.Cache.ttl(:sessions, 1) <= 5_000
:ordered_set = :cats.info(:scores, :type)
{2000, {:objects, 20}} = {:cats.info(Known, :ttl), :cats.info(Known, :limit)}
:ok = Known.put(1, 2)
{:known, 2} = Known.get(1, nil)
{:known, nil} = Known.get(2)
for options <- [[], [ttl: 1], :x] do
  \"a cache needs the option name:\" <> _ =
    try do Cats.Cache.start_link(options) rescue error in ArgumentError -> Exception.message(error) end
end
{:docs_v1, _, :elixir, _, _, _, docs} = Code.fetch_docs(Cats.Cache)
[] = for {{:function, name, arity}, _, _, :none, _} <- docs, do: {name, arity}
").

%% Times in a cache that has no option of times, and times that are over.
times(Config) ->
    evaluate(Config, "
defmodule Plain do
  use Cats.Cache
end
defmodule Full do
  use Cats.Cache, limit: {:objects, 1000}
end
{:ok, _} = Supervisor.start_link([Plain, Full], strategy: :one_for_one)
defmodule Compressed do
  use Cats.Cache, [:compressed]
end
{:ok, compressed} = Compressed.start_link()
:ok = Compressed.put(1, :a)
{:error, :unknown_request} = GenServer.call(compressed, :anything)
:ok = GenServer.cast(compressed, :anything)
{:error, :unknown_request} = GenServer.call(compressed, :more)
:a = Compressed.get(1)
snapshot = :cats.snapshot(Compressed)
\"errors were found at the given arguments:\" <> _ =
  try do Cats.Cache.increment(snapshot, 1) rescue error in ArgumentError -> Exception.message(error) end
for cache <- [Plain, Full] do
  :ok = cache.put(1, :a, ttl: 70_000, ttl: :infinity)
  true = cache.ttl(1) <= 70_000
  :ok = cache.put(1, :a)
  :infinity = cache.ttl(1)
  :ok = cache.put(1, :a, ttl: 60_000)
  true = cache.ttl(1) <= 60_000
  true = cache.put_new(2, :b, ttl: 50_000)
  false = cache.put_new(2, :c, ttl: 60_000)
  {:b, true} = {cache.get(2), cache.ttl(2) <= 50_000}
  for count <- [0, 1, 100, 350] do
    keys = for(n <- 1..count//1, do: {:many, n})
    :ok = cache.put_all(Map.new(keys, &{&1, &1}), ttl: 40_000)
    true = Enum.all?(keys, &(cache.get(&1) == &1 and cache.ttl(&1) <= 40_000))
    :ok = cache.put_all(Enum.map(keys, &{&1, &1}), ttl: 0)
    false = Enum.any?(keys, &cache.has_key?/1)
  end
  :d = cache.fetch(3, fn 3 -> :d end, ttl: 30_000)
  true = cache.ttl(3) <= 30_000

  for over <- [0, -5] do
    :ok = cache.put(1, :z, ttl: over)
    false = cache.has_key?(1)
    true = cache.put_new(1, :z, ttl: over)
    false = cache.has_key?(1)
    false = cache.put_new(2, :z, ttl: over)
    :b = cache.get(2)
    :z = cache.fetch(1, fn _ -> :z end, ttl: over)
    :d = cache.fetch(3, fn _ -> :z end, ttl: over)
    :z = cache.fetch(1, fn _ -> {:store, :z} end, ttl: over, returns: :outcome)
    :z = cache.fetch(1, fn _ -> {:store, :z, ttl: over} end, returns: :outcome)
    :z = cache.fetch(1, fn _ -> {:ignore, :z} end, ttl: over, returns: :outcome)
    false = cache.has_key?(1)
    :z = cache.fetch(1, fn _ -> {:store, :z, ttl: 9} end, ttl: over, returns: :outcome)
    true = cache.ttl(1) in [nil | Enum.to_list(1..9)]
    :ok = cache.put(1, :a)
    true = cache.touch(1, over)
    false = cache.touch(1, over)
    nil = cache.get(1)
  end
end
").

%% A cache gets other options while it runs, from any process.
configure(Config) ->
    evaluate(Config, "
defmodule Flexible do
  use Cats.Cache, limit: {:objects, 100}, ttl: 60_000
end
defmodule Plain do
  use Cats.Cache
end
{:ok, _} = Supervisor.start_link([Flexible, Plain], strategy: :one_for_one)
:ok = Flexible.put_all(for n <- 1..100, do: {n, n})
[60_000, {:objects, 100}, :s3_fifo, 100] = for item <- [:ttl, :limit, :evict, :used], do: :cats.info(Flexible, item)
:ok = Flexible.configure(limit: {:objects, 10}, evict: :sieve, ttl: 50_000, stats: true)
[50_000, {:objects, 10}, :sieve, 10] = for item <- [:ttl, :limit, :evict, :used], do: :cats.info(Flexible, item)
10 = Flexible.size()
10 = length(Enum.filter(1..100, &(Flexible.get(&1) != nil)))
%{hits: 10, misses: 90, used_objects: 10, limit_objects: 10} = :cats.stats(Flexible)
:ok = Flexible.put(:new, 1)
true = Flexible.ttl(:new) <= 50_000
:ok = Flexible.configure([])
:ok = Plain.configure(ttl: 50_000)
:ok = Plain.put(1, 1)
true = Plain.ttl(1) <= 50_000
fails = fn call -> try do call.() rescue error in ArgumentError -> Exception.message(error) end end
for {call, says} <- [
      {fn -> Plain.configure(limit: {:objects, 1}) end, \"the table was created without option limit\"},
      {fn -> Flexible.configure(limit: {:bytes, 1}) end, \"the limit of the table counts objects\"},
      {fn -> Flexible.configure(ttl: 0) end, \"invalid option: {ttl,0} (valid: {ttl, 1 to\"},
      {fn -> Flexible.configure(idle: 5) end, \"takes no options but ttl, limit, evict, stats, not: {:idle, 5}\"},
      {fn -> Flexible.configure(:x) end, \"Flexible.configure takes a list of options, not: :x\"},
      {fn -> Cats.Cache.configure(Nobody, ttl: 5) end, \"Nobody.configure finds no cache Nobody\"}] do
  true = fails.(call) =~ says
end
[50_000, {:objects, 10}] = for item <- [:ttl, :limit], do: :cats.info(Flexible, item)
").

%% Functions of `Cats' are in the transaction. Those of the cache are not, and stay when it is aborted.
cache_in_transactions(Config) ->
    evaluate(Config, "
defmodule Counted do
  use Cats.Cache
end
{:ok, _} = Supervisor.start_link([Counted], strategy: :one_for_one)
:ok = Counted.put(:n, 0)
add = fn ->
  for _ <- 1..250 do
    {:ok, true} = Cats.transaction(fn ->
      [{:n, n}] = Cats.lookup(Counted, :n)
      Cats.insert(Counted, {:n, n + 1})
    end)
  end
end
1..4 |> Enum.map(fn _ -> Task.async(add) end) |> Enum.each(&Task.await(&1, 60_000))
1000 = Counted.get(:n)
{:error, :stop} = Cats.transaction(fn -> Cats.insert(Counted, {:n, 5}); Cats.abort(:stop) end)
1000 = Counted.get(:n)
{:error, :stop} = Cats.transaction(fn -> Counted.put(:n, 5); Cats.abort(:stop) end)
5 = Counted.get(:n)
").

%% What the exception says.
limits(Config) ->
    evaluate(Config, "
defmodule Bounded do
  use Cats.Cache, limit: {:objects, 1}, evict: :none
end
{:ok, _} = Supervisor.start_link([Bounded], strategy: :one_for_one)
:ok = Bounded.put(1, 1)
fails = fn call -> try do call.() rescue error in SystemLimitError -> Exception.message(error) end end
for call <- [fn -> Bounded.put(2, 2) end, fn -> Bounded.fetch(2, & &1) end,
             fn -> Bounded.fetch_many([1, 2], fn [2] -> %{2 => 2} end) end] do
  \"a system limit has been reached:\" <> rest = fails.(call)
  true = rest =~ \"1st argument: the table has reached its limit ({objects,1}) and evicts nothing: delete objects\"
end
").

%% A cache in a file, and what is in the way. Nothing is stored of a file that is cut or changed, or is no cache.
files(Config) ->
    put_environment(Config),
    evaluate(Config, "
defmodule Source do
  use Cats.Cache, ttl: 60_000
end
defmodule Idle do
  use Cats.Cache, idle: 60_000
end
defmodule Limited do
  use Cats.Cache, limit: {:objects, 50}
end
defmodule Full do
  use Cats.Cache, limit: {:objects, 50}, evict: :none
end
defmodule Timeless do
  use Cats.Cache, [:compressed]
end
defmodule Absent do
  use Cats.Cache
end
caches = [Source, Idle, Limited, Full, Timeless]
{:ok, _} = Supervisor.start_link(caches, strategy: :one_for_one)
path = Path.join(System.get_env(\"DIRECTORY\"), \"dump é\")
:ok = Source.put_all(for n <- 1..1000, do: {n, {:value, n}})
:ok = Source.put(:forever, \"text\", ttl: :infinity)
:ok = Source.put(:own, [1.5], ttl: 30_000)
:ok = Source.dump(path)

# Beside what is there, in place of what has the same key.
:ok = Source.clear()
:ok = Source.put_all([{1, :newer}, {:other, 2}])
:ok = Source.load([path])
{1003, {:value, 1}, 2, {:value, 1000}} = {Source.size(), Source.get(1), Source.get(:other), Source.get(1000)}
{true, :infinity, true} = {Source.ttl(1) <= 60_000, Source.ttl(:forever), Source.ttl(:own) <= 30_000}

# Into caches of other kinds.
:ok = Idle.load(path)
{1002, :infinity, true} = {Idle.size(), Idle.ttl(:forever), Idle.ttl(:own) <= 30_000}
[1.5] = Idle.get(:own)
true = Idle.ttl(:own) <= 30_000
:ok = Limited.load(path)
50 = Limited.size()
SystemLimitError = try do Full.load(path) rescue error -> error.__struct__ end
true = Full.size() <= 50
:ok = Timeless.load(path)
{1002, \"text\"} = {Timeless.size(), Timeless.get(:forever)}

# What has an own time in a cache with idle, or with a limit only.
again = fn cache ->
  :ok = cache.clear()
  :ok = cache.put(:own, 1, ttl: 90_000)
  :ok = cache.put(:none, 2)
  :ok = cache.dump(path)
  :ok = cache.clear()
  :ok = cache.load(path)
end
:ok = again.(Idle)
[own: 1, none: 2] = for key <- [:own, :none], do: {key, Idle.get(key)}
{60_000, {left, most}} = {:cats.info(Idle, :idle), :cats_nif.times(Idle, :own)}
true = left <= 60_000 and most > 60_000 and most <= 90_000
{_, :infinity} = :cats_nif.times(Idle, :none)
:ok = again.(Limited)
{true, :infinity} = {Limited.ttl(:own) <= 90_000, Limited.ttl(:none)}

# What expires after the dump, on a clock that goes by itself.
:ok = Source.clear()
:ok = Source.put(:short, 1, ttl: 300)
:ok = Source.put(:long, 1, ttl: 60_000)
:ok = Source.dump(path)
Process.sleep(310)
:ok = Source.load(path)
{nil, true} = {Source.get(:short), Source.ttl(:long) <= 59_700}

# An empty one.
:ok = Source.clear()
:ok = Source.dump(path)
:ok = Source.load(path)
0 = Source.size()

# Files that are missing, cut, changed or foreign.
:ok = Source.put_all(for n <- 1..1000, do: {n, String.duplicate(\"x\", n)})
:ok = Source.dump(path)
:ok = Source.clear()
whole = File.read!(path)
{:error, :enoent} = Source.load(path <> \" none\")
{:error, :enoent} = Source.dump(Path.join([path <> \" none\", \"a\"]))
for size <- [0, 3, 8, 100, 1000, div(byte_size(whole), 2), byte_size(whole) - 1] do
  File.write!(path, binary_part(whole, 0, size))
  {:error, reason} = Source.load(path)
  true = reason in [:damaged, :not_a_cache]
  0 = Source.size()
end
for place <- [500, div(byte_size(whole), 2), byte_size(whole) - 10] do
  <<before::binary-size(place), byte, rest::binary>> = whole
  File.write!(path, [before, Bitwise.bxor(byte, 1), rest])
  {:error, reason} = Source.load(path)
  true = reason in [:damaged, :not_a_cache]
  0 = Source.size()
end
File.write!(path, \"a text of more than a few words, which is no cache and no log\")
{:error, :not_a_cache} = Source.load(path)
for {options, object} <- [{[], {1, 2, 3}}, {[], {1}}, {[:bag], {1, 2}}, {[keypos: 2], {1, 2}}] do
  table = :cats.new(:table, options)
  true = :cats.insert(table, object)
  :ok = :cats.tab2file(table, String.to_charlist(path))
  {:error, :not_a_cache} = Source.load(path)
end
stock = :ets.new(:stock, [])
true = :ets.insert(stock, {1, 2})
:ok = :ets.tab2file(stock, String.to_charlist(path <> \"ets\"))
:ok = Source.load(path <> \"ets\")
[{1, 2}] = Enum.to_list(Source.stream())
File.write!(path, whole)
:ok = Source.load(path)
1000 = Source.size()
for call <- [fn -> Absent.load(path) end, fn -> Absent.dump(path) end, fn -> Absent.load(\"none\") end] do
  true = (try do call.() rescue error in ArgumentError -> Exception.message(error) end) =~ \"finds no cache Absent\"
end
^whole = File.read!(path)
").

%% Where the Elixir code finds files.
put_environment(Config) ->
    true = os:putenv("DIRECTORY", proplists:get_value(priv_dir, Config)),
    true = os:putenv("PAGE", filename:join(cats_test_lib:root(), "docs/guide/coming-from-caches.md")).

%% Hits and misses of a cache as events, with a stand-in for the library.
telemetry(Config) ->
    evaluate(Config, "
defmodule :telemetry do
  def execute(event, measurements, metadata), do: send(self(), {event, measurements, metadata}) && :ok
end
defmodule Counted do
  use Cats.Cache, limit: {:objects, 10}, stats: true
end
defmodule Plain do
  use Cats.Cache
end
{:ok, _} = Supervisor.start_link([Counted, Plain], strategy: :one_for_one)
:ok = Counted.put(:a, 1)
for _ <- 1..3, do: 1 = Counted.get(:a)
nil = Counted.get(:b)
1 = Counted.fetch(:a, & &1)
:c = Counted.fetch(:c, & &1)
%{a: 1, d: 4} = Counted.fetch_many([:a, :d], fn [:d] -> [d: 4] end)
measured = fn cache ->
  :ok = :cats_telemetry.measure()
  flush = fn flush, seen -> receive do: (event -> flush.(flush, [event | seen])), after: (0 -> seen) end
  [measurements] = for {[:cats, :table], found, %{name: ^cache}} <- flush.(flush, []), do: found
  measurements
end
%{hits: 5, misses: 3, size: 3, used_objects: 3, limit_objects: 10, evicted: 0} = measured.(Counted)
false = Map.has_key?(measured.(Plain), :hits)
:ok = Plain.configure(stats: true)
nil = Plain.get(:a)
%{hits: 0, misses: 1} = measured.(Plain)
").

%% Each row of the page, as a script.
coming_from_caches(Config) ->
    put_environment(Config),
    Script = filename:join(cats_test_lib:root(), "test/programs/coming_from_caches.exs"),
    Arguments = ["-pa", cats(), "-pa", proplists:get_value(compiled, Config), Script],
    ?assertEqual({0, ""}, cats_test_lib:run("elixir", Arguments)).

%% Each says what is wrong, names the function, and changes nothing.
bad_calls(Config) ->
    evaluate(Config, "
defmodule Timed do
  use Cats.Cache, ttl: :infinity
end
defmodule Plain do
  use Cats.Cache, engine: :linear_hash
end
defmodule Absent do
  use Cats.Cache
end
defmodule StringApp do
  use Cats.Cache, otp_app: \"shop\"
end
{:ok, _} = Supervisor.start_link([Timed, Plain], strategy: :one_for_one)
for cache <- [Timed, Plain], do: :ok = cache.put(:sky, \"blue\")
many = Stream.concat([for(n <- 1..300, do: {n, n}), [:odd]])
no_time = \"cannot give or tell a time: the cache was made without option ttl, idle or limit\"
lifetime = \"takes ttl: up to 1099511627775 milliseconds, or :infinity, not: \"
timeout = \"to 4294967295 milliseconds, or :infinity, not: \"
options =
  \"takes no options but ttl, stale, refresh_ahead, negative_ttl, returns, timeout, retry, refresh_timeout, not: \"
outcomes =
  \"needs a function that returns {:store, value}, {:store, value, ttl: milliseconds} or {:ignore, value}, not: \"
function = \"takes a function of one argument, not: \"
result = \"needs a function that returns {get, value}, {:ignore, get} or :pop, not: \"
pairs = \"takes pairs {key, value}, not: \"
unfit = \"takes no option that gives a cache another type, access, key or heir, not: \"
cases = [
  {Timed, :put, [1, 2, [tll: 1]], \"takes no options but ttl, not: {:tll, 1}\"},
  {Timed, :put, [1, 2, [ttl: 1_099_511_627_776]], lifetime <> \"{:ttl, 1099511627776}\"},
  {Timed, :put, [1, 2, [ttl: 1.5]], lifetime <> \"{:ttl, 1.5}\"},
  {Timed, :put, [1, 2, [:ttl]], lifetime <> \":ttl\"},
  {Timed, :put, [1, 2, %{ttl: 5}], \"takes a list of options, not: %{ttl: 5}\"},
  {Timed, :put, [1, 2, [{:ttl, 5} | :x]], \"takes a list of options, not: :x\"},
  {Plain, :put, [1, 2, [ttl: 5]], no_time},
  {Plain, :put_new, [1, 2, [ttl: 5]], no_time},
  {Plain, :put_all, [[{1, 2}], [ttl: 5]], no_time},
  {Timed, :put_new, [1, 2, [tll: 1]], \"takes no options but ttl, not: {:tll, 1}\"},
  {Timed, :put_all, [[{1, 2}], [ttl: 1.5]], lifetime <> \"{:ttl, 1.5}\"},
  {Timed, :put_all, [5], pairs <> \"5\"},
  {Timed, :put_all, [[{1, 2}, 3]], pairs <> \"3\"},
  {Timed, :put_all, [[{1, 2}, {3, 4, 5}]], pairs <> \"{3, 4, 5}\"},
  {Timed, :put_all, [[{1, 2} | 3]], pairs <> \"3\"},
  {Timed, :put_all, [many], pairs <> \":odd\"},
  {Timed, :put_all, [& &1], pairs <> \"#Function\"},
  {Timed, :fetch, [:sky, :blue], function <> \":blue\"},
  {Timed, :fetch, [:sky, fn -> 1 end], function <> \"#Function\"},
  {Timed, :fetch, [:grass, & &1, [tll: 1]], options <> \"{:tll, 1}\"},
  {Timed, :fetch, [:grass, & &1, [ttl: :never]], lifetime <> \"{:ttl, :never}\"},
  {Timed, :fetch, [:grass, fn _ -> :green end, [returns: :outcome, ttl: 0]], outcomes <> \":green\"},
  {Timed, :fetch, [:grass, & &1, [timeout: -1]], \"takes timeout: from 0 \" <> timeout <> \"{:timeout, -1}\"},
  {Timed, :fetch, [:grass, & &1, [refresh_timeout: 0.5]],
   \"takes refresh_timeout: from 1 \" <> timeout <> \"{:refresh_timeout, 0.5}\"},
  {Timed, :fetch, [:grass, & &1, [refresh_timeout: 0]],
   \"takes refresh_timeout: from 1 \" <> timeout <> \"{:refresh_timeout, 0}\"},
  {Timed, :fetch, [:grass, & &1, [negative_ttl: :infinity]],
   \"takes negative_ttl: from 0 to 1099511627775 milliseconds, not: {:negative_ttl, :infinity}\"},
  {Timed, :fetch, [:grass, & &1, [returns: :object]], \"takes returns: :value or :outcome, not: {:returns, :object}\"},
  {Timed, :fetch, [:grass, fn _ -> :green end, [returns: :outcome]], outcomes <> \":green\"},
  {Timed, \"fetch's outcome\", fn -> Timed.fetch(:grass, fn _ -> {:store, 1, 50} end, returns: :outcome) end,
   \"takes a list of options, not: 50\"},
  {Timed, :fetch, [:grass, & &1, [stale: -1]],
   \"takes stale: from 0 to 1099511627775 milliseconds, not: {:stale, -1}\"},
  {Timed, :fetch, [:grass, & &1, [retry: 1]], \"takes retry: true or false, not: {:retry, 1}\"},
  {Timed, :fetch, [:grass, & &1, :ttl], \"takes a list of options, not: :ttl\"},
  {Plain, :fetch, [:grass, & &1, [ttl: 1]], no_time},
  {Plain, :fetch, [:grass, & &1, [stale: 1]], no_time},
  {Timed, :fetch_many, [:sky, & &1], \"takes a list of keys, not: :sky\"},
  {Timed, :fetch_many, [[:sky], :blue], function <> \":blue\"},
  {Timed, :fetch_many, [[:grass], & &1, [stale: 1]],
   \"takes no options but ttl, negative_ttl, returns, timeout, retry, not: {:stale, 1}\"},
  {Timed, :fetch_many, [[:grass], & &1], \"needs a function that returns pairs {key, value}, not: [:grass]\"},
  {Timed, :fetch_many, [[:grass], fn _ -> [moss: 1] end],
   \"needs a function that returns values of the keys that it gets, not: :moss\"},
  {Timed, :fetch_many, [[:grass], fn _ -> [moss: 1] end, [returns: :outcome]],
   \"needs a function that returns values of the keys that it gets, not: :moss\"},
  {Timed, :fetch_many, [[:grass], fn _ -> [grass: 1] end, [returns: :outcome]], outcomes <> \"1\"},
  {Plain, :fetch_many, [[:grass], & &1, [ttl: 1]], no_time},
  {Timed, :get_and_update, [:sky, fn -> 1 end], function <> \"#Function\"},
  {Timed, :get_and_update, [:sky, & &1], result <> \"\\\"blue\\\"\"},
  {Timed, :get_and_update, [:grass, &{1, &1, 3}], result <> \"{1, nil, 3}\"},
  {Timed, :update, [:grass, 1, 2], function <> \"2\"},
  {Timed, :increment, [:sky], \"changes an integer, and the value of :sky is not one: \\\"blue\\\"\"},
  {Timed, :increment, [:grass, 1.5], \"takes integers, not: 1.5\"},
  {Timed, :increment, [:grass, {2, 1}], \"takes integers, not: {2, 1}\"},
  {Timed, :decrement, [:grass, 1, :none], \"takes integers, not: :none\"},
  {Timed, :decrement, [:sky], \"changes an integer, and the value of :sky is not one: \\\"blue\\\"\"},
  {Timed, :touch, [:sky, 0.0], lifetime <> \"{:ttl, 0.0}\"},
  {Plain, :touch, [:sky, 1], no_time},
  {Plain, :ttl, [:sky], no_time},
  {Absent, :start_link, [:x], \"takes a list of options, not: :x\"}
] ++ for option <- [:bag, :duplicate_bag, :private, :protected, {:keypos, 2}, {:heir, :keep}, {:heir, self(), 1}] do
  {Absent, :start_link, [[option]], unfit <> inspect(option)}
end ++ for {function, arguments} <- [get: [1], put: [1, 2], put_new: [1, 2], put_all: [[a: 1]], fetch: [1, & &1],
                                     fetch_many: [[1], & &1], get_and_update: [1, &{&1, &1}], update: [1, 1, & &1],
                                     increment: [1], delete: [1], take: [1], clear: [], has_key?: [1], size: [],
                                     ttl: [1],
                                     touch: [1, 1], touch: [1, 0], put: [1, 2, [ttl: 1]], put: [1, 2, [ttl: 0]],
                                     put_new: [1, 2, [ttl: 1]], put_new: [1, 2, [ttl: 0]], keys: [], fetch!: [1],
                                     dump: [\"x\"], load: [\"x\"],
                                     put_all: [[a: 1], [ttl: 1]], put_all: [[a: 1], [ttl: 0]], decrement: [1]] do
  {Absent, function, arguments, \"finds no cache Absent: its process does not run. Start it by a supervisor\"}
end
\"Absent.stream finds no cache Absent\" <> _ =
  try do Enum.count(Absent.stream()) rescue error in ArgumentError -> Exception.message(error) end
for {cache, function, arguments, words} = bad <- cases do
  call = if is_function(arguments), do: arguments, else: fn -> apply(cache, function, arguments) end
  message = try do call.() rescue error in ArgumentError -> Exception.message(error) end
  if is_binary(message) and String.starts_with?(message, \"#{inspect(cache)}.#{function} #{words}\"), do: :ok, else:
    IO.inspect({bad, message})
end
for cache <- [Timed, Plain], do: [sky: \"blue\"] = Enum.to_list(cache.stream())
\"StringApp.start_link takes otp_app: the name of an application, an atom, not: \" <> _ =
  try do StringApp.start_link() rescue error in ArgumentError -> Exception.message(error) end
for name <- [:undefined, \"colours\"] do
  \"the name of a cache is an atom other than :undefined, not \" <> _ =
    try do Cats.Cache.start_link(name: name) rescue error in ArgumentError -> Exception.message(error) end
end

# A cache that ends during a stream, and one that begins again.
for again <- [false, true] do
  {:ok, cache} = Cats.Cache.start_link(name: :ends)
  :ok = Cats.Cache.put_all(:ends, for(n <- 1..2000, do: {n, n}))
  stop = fn _ ->
    if Process.alive?(cache) do
      :ok = GenServer.stop(cache)
      if again, do: {:ok, _} = Cats.Cache.start_link(name: :ends)
    end
  end
  \":ends.stream cannot go on: the process of the cache has ended\" =
    try do Enum.each(Cats.Cache.stream(:ends), stop) rescue error in ArgumentError -> Exception.message(error) end
end
:ok = GenServer.stop(:ends)

# What the functions of others raise is theirs.
for raises <- [fn _ -> raise \"mine\" end, fn _ -> :cats.lookup(:none, 1) end, fn _ -> :erlang.error(:badarg) end],
    call <- [&Timed.fetch(:grass, &1), &Timed.fetch_many([:grass], &1), &Timed.get_and_update(:sky, &1),
             &Timed.update(:sky, 1, &1)] do
  message = try do call.(raises) rescue error -> Exception.message(error) end
  false = message =~ \"Timed\"
end
").

%% The page for Phoenix LiveDashboard, with a stand-in for what it uses. Its template is a text there.
dashboard(Config) ->
    evaluate(Config, "false = Code.ensure_loaded?(Cats.LiveDashboardPage)"),
    Directory = filename:join(proplists:get_value(priv_dir, Config), "dashboard"),
    File = filename:join(Directory, "page_builder.ex"),
    ok = filelib:ensure_dir(File),
    ok = file:write_file(File, "
defmodule Phoenix.LiveDashboard.PageBuilder do
  @callback init(term) :: term
  @callback menu_link(map, map) :: term
  @callback render(map) :: term
  @callback handle_event(binary, map, map) :: term
  defmacro __using__(_) do
    quote do
      @behaviour Phoenix.LiveDashboard.PageBuilder
      import Phoenix.LiveDashboard.PageBuilder
    end
  end
  def assign(assigns, key, value), do: Map.put(assigns, key, value)
  def push_patch(socket, to: path), do: {socket, path}
  def live_dashboard_path(_socket, page, extra), do: {page, extra}
  defmacro sigil_H({:<<>>, _, [text]}, _), do: quote(do: {var!(assigns), unquote(text)})
end
"),
    {0, _} = cats_test_lib:run("elixirc", ["-o", Directory, File]),
    {0, _} = cats_test_lib:run("elixirc", ["-pa", cats(), "-pa", Directory, "-o", Directory,
                                           source("cats/live_dashboard_page.ex")]),
    evaluate([{compiled, Directory} | Config], "
alias Cats.LiveDashboardPage, as: Page
{:ok, session, module: :cats} = Page.init([])
{:ok, \"cats\"} = Page.menu_link(session, %{modules: [:cats]})
:skip = Page.menu_link(session, %{modules: []})

table = :cats.new(:shown, [:named_table, stats: true])
:cats.insert(table, for(n <- 1..1000, do: {n, n}))
:cats.new(:other, [:ordered_set])
params = %{search: nil, sort_by: :memory, sort_dir: :desc, limit: 50}
{[%{name: \":shown\", size: 1000, waits: nil} = row, %{name: \":other\"}], 2, state} = Page.fetch(params, node(), %{})

Process.sleep(50)
:cats.insert(table, {0, 0})
:cats.tab2list(table)
by_scans = %{params | sort_by: :scans}
{[%{growth: growth, scans: scans, waits: 0.0}, %{growth: 0.0, scans: nil, operations: nil}], 2, _} =
  Page.fetch(by_scans, node(), state)
true = growth > 0 and growth < 20 and scans == growth
{[%{name: \":other\"}, _], 2, _} = Page.fetch(%{params | sort_by: :name, sort_dir: :asc}, node(), state)
{[_], 2, _} = Page.fetch(%{params | limit: 1}, node(), state)
{[%{name: \":other\"}], 1, _} = Page.fetch(%{params | search: \"oth\"}, node(), state)
{[], 0, _} = Page.fetch(%{params | search: \"none\"}, node(), state)

page = %{params: %{}, node: node()}
{%{chosen: nil}, template} = Page.render(%{page: page})
fields = for [_, field] <- Regex.scan(~r/field={:(\\w+)}/, template), do: String.to_atom(field)
[] = fields -- Map.keys(row)
8 = length(fields -- [:type])
{:noreply, {_, {^page, id: id}}} = Page.handle_event(\"choose\", %{\"id\" => row.id}, %{assigns: %{page: page}})
{%{chosen: %{name: \"shown\", parts: parts}}, _} = Page.render(%{page: %{page | params: %{\"id\" => id}}})
[1001, \"set\"] = for key <- [:size, :type], {^key, value} <- List.flatten(parts), do: value
{%{chosen: nil}, _} = Page.render(%{page: %{page | params: %{\"id\" => \"none\"}}})
").
