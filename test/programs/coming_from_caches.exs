# The rows of docs/guide/coming-from-caches.md: what the calls of the last column do, where the other libraries promise
# it or the page says that it differs. A row is named by its last column. Prints what fails, and rows that only one of
# both has.

defmodule Cache do
  use Cats.Cache, ttl: :infinity, stats: true
end

{:ok, _} = Supervisor.start_link([Cache], strategy: :one_for_one)
fails = fn call -> try do call.() && :none rescue error -> error.__struct__ end end

start = fn options ->
  {:ok, pid} = Cats.Cache.start_link([{:name, :other} | options])
  pid
end

functions = [
  {"`Cache.get(key)`", fn ->
    # Cachex and ConCache: nil without the key.
    nil = Cache.get(:a)
    :ok = Cache.put(:a, 1)
    1 = Cache.get(:a)
  end},
  {"`Cache.put(key, value)`", fn ->
    # It replaces the value, and its time.
    :ok = Cache.put(:a, 1, ttl: 60_000)
    :ok = Cache.put(:a, 2)
    {2, :infinity} = {Cache.get(:a), Cache.ttl(:a)}
  end},
  {"`Cache.put(key, value, ttl: ms)`", fn ->
    :ok = Cache.put(:a, 1, ttl: 60_000)
    true = Cache.ttl(:a) in 1..60_000
    :ok = Cache.put(:a, 1, ttl: 1)
    Process.sleep(2)
    nil = Cache.get(:a)
  end},
  {"`Cache.put_all(pairs)`, also with `ttl: ms`", fn ->
    # Lists, as those of Cachex, and maps, as those of Nebulex.
    :ok = Cache.put_all([{:a, 1}, {:b, 2}])
    :ok = Cache.put_all(%{b: 3, c: 4}, ttl: 60_000)
    {1, 3, 4, :infinity} = {Cache.get(:a), Cache.get(:b), Cache.get(:c), Cache.ttl(:a)}
    true = Cache.ttl(:c) in 1..60_000
  end},
  {"`Cache.put_new(key, value)`, also with `ttl: ms`", fn ->
    true = Cache.put_new(:a, 1, ttl: 60_000)
    false = Cache.put_new(:a, 2)
    {1, true} = {Cache.get(:a), Cache.ttl(:a) in 1..60_000}
  end},
  {"`Cache.fetch!(key)`", fn ->
    # Nebulex: KeyError.
    KeyError = fails.(fn -> Cache.fetch!(:a) end)
    :ok = Cache.put(:a, nil)
    nil = Cache.fetch!(:a)
  end},
  {"`Cache.fetch(key, fun)`", fn ->
    # The function has arity 1. One of several processes calls it, and the value is stored.
    parent = self()
    make = fn key -> send(parent, :called) && Process.sleep(50) && {:made, key} end
    tasks = for _ <- 1..5, do: Task.async(fn -> Cache.fetch(:a, make) end)
    [{:made, :a}] = tasks |> Enum.map(&Task.await/1) |> Enum.uniq()
    1 = Process.info(self(), :message_queue_len) |> elem(1)
    receive do: (:called -> :ok)
    {:made, :a} = Cache.get(:a)
    ArgumentError = fails.(fn -> Cache.fetch(:b, fn -> 1 end) end)
    # Cachex calls it again where nil is stored.
    :ok = Cache.put(:c, nil)
    nil = Cache.fetch(:c, fn _ -> 1 end)
  end},
  {"`Cache.fetch_many(keys, fun)`", fn ->
    :ok = Cache.put(:a, 1)
    %{a: 1, b: 2} = Cache.fetch_many([:a, :b, :c], fn [:b, :c] -> [b: 2] end)
    {2, false} = {Cache.get(:b), Cache.has_key?(:c)}
  end},
  {"`Cache.get_and_update(key, fun)`", fn ->
    # As in Nebulex and in Map, but without the new value in the result, and it keeps the time.
    :ok = Cache.put(:a, 1, ttl: 60_000)
    1 = Cache.get_and_update(:a, &{&1, &1 + 1})
    {2, true} = {Cache.get(:a), Cache.ttl(:a) in 1..60_000}
    :no = Cache.get_and_update(:a, fn 2 -> {:ignore, :no} end)
    2 = Cache.get_and_update(:a, fn 2 -> :pop end)
    nil = Cache.get_and_update(:a, fn nil -> :pop end)
    {:first, nil} = {Cache.get_and_update(:a, fn nil -> {:first, nil} end), Cache.fetch!(:a)}
    ArgumentError = fails.(fn -> Cache.get_and_update(:a, fn _ -> :other end) end)
    # Atomic, as in Cachex and ConCache, which lock the key.
    :ok = Cache.put(:n, 0)
    add = fn -> for _ <- 1..100, do: Cache.get_and_update(:n, &{&1, &1 + 1}) end
    1..4 |> Enum.map(fn _ -> Task.async(add) end) |> Enum.each(&Task.await(&1, 60_000))
    400 = Cache.get(:n)
  end},
  {"`Cache.update(key, default, fun)`", fn ->
    # Nebulex: the default as it is, and later the function of the value; the new value is the result.
    1 = Cache.update(:a, 1, &(&1 + 1))
    2 = Cache.update(:a, 1, &(&1 + 1))
    # Nebulex stores no nil.
    {nil, true} = {Cache.update(:a, 1, fn _ -> nil end), Cache.has_key?(:a)}
  end},
  {"`Cache.increment(key, n)`, and `Cache.increment(key, n, default)`", fn ->
    {2, 5} = {Cache.increment(:a, 2), Cache.increment(:a, 3, 100)}
    103 = Cache.increment(:b, 3, 100)
    :ok = Cache.put(:c, "text")
    {ArgumentError, "text"} = {fails.(fn -> Cache.increment(:c, 1) end), Cache.get(:c)}
    :ok = Cache.put(:d, 1, ttl: 60_000)
    {2, true} = {Cache.increment(:d, 1), Cache.ttl(:d) in 1..60_000}
  end},
  {"`Cache.decrement(key, n)`", fn -> {-2, -3} = {Cache.decrement(:a, 2), Cache.decrement(:a)} end},
  {"`Cache.delete(key)`", fn ->
    # No error without the key.
    :ok = Cache.delete(:a)
    :ok = Cache.put(:a, 1)
    {:ok, nil} = {Cache.delete(:a), Cache.get(:a)}
  end},
  {"`Cache.take(key)`", fn ->
    nil = Cache.take(:a)
    :ok = Cache.put(:a, 1)
    {1, false} = {Cache.take(:a), Cache.has_key?(:a)}
  end},
  {"`Cache.has_key?(key)`", fn ->
    false = Cache.has_key?(:a)
    :ok = Cache.put(:a, nil)
    true = Cache.has_key?(:a)
  end},
  {"`Cache.clear()`", fn ->
    :ok = Cache.put_all(a: 1, b: 2)
    {:ok, 0} = {Cache.clear(), Cache.size()}
  end},
  {"`Cache.size()`", fn ->
    :ok = Cache.put_all(a: 1, b: 2)
    :ok = Cache.put(:c, 3, ttl: 1)
    Process.sleep(2)
    # Cachex counts what has expired, too.
    2 = Cache.size()
  end},
  {"`Cache.stream()`", fn ->
    :ok = Cache.put_all(for n <- 1..1000, do: {n, -n})
    true = Enum.sort(Cache.stream()) == for(n <- 1..1000, do: {n, -n})
    [_, _] = Cache.stream() |> Stream.map(&elem(&1, 0)) |> Enum.take(2)
  end},
  {"`Cache.ttl(key)`", fn ->
    nil = Cache.ttl(:a)
    :ok = Cache.put(:a, 1)
    :infinity = Cache.ttl(:a)
  end},
  {"`Cache.touch(key, ms)`", fn ->
    false = Cache.touch(:a, 60_000)
    :ok = Cache.put(:a, 1)
    {true, true} = {Cache.touch(:a, 60_000), Cache.ttl(:a) in 1..60_000}
  end},
  {"[`Cats.transaction(fun)`](elixir.md#transactions), with [functions of `Cats`](#what-is-different) in it", fn ->
    :ok = Cache.put_all(a: 0, b: 0)
    move = fn ->
      {:ok, :moved} = Cats.transaction(fn ->
        [a: a] = Cats.lookup(Cache, :a)
        Cats.insert(Cache, a: a - 1, b: Cats.lookup_element(Cache, :b, 2) + 1)
        :moved
      end)
    end
    moves = fn -> for _ <- 1..50, do: move.() end
    1..4 |> Enum.map(fn _ -> Task.async(moves) end) |> Enum.each(&Task.await(&1, 60_000))
    {-200, 200} = {Cache.get(:a), Cache.get(:b)}
    {:error, :no} = Cats.transaction(fn -> Cats.insert(Cache, {:a, 5}) && Cats.abort(:no) end)
    -200 = Cache.get(:a)
  end}
]

more = [
  {"`Cache.size()`", fn -> true = Cache.size() == 0 end},
  {"`:cats.update_element(Cache, key, {2, value})`; it keeps the time, and returns `false` if there is no such key",
   fn ->
    false = :cats.update_element(Cache, :a, {2, 1})
    :ok = Cache.put(:a, 1, ttl: 60_000)
    true = :cats.update_element(Cache, :a, {2, 2})
    {2, true} = {Cache.get(:a), Cache.ttl(:a) in 1..60_000}
  end},
  {"`:cats.update(Cache, key, fn {key, value} -> {key, fun.(value)} end)`; the same", fn ->
    double = fn {key, value} -> {key, value * 2} end
    false = :cats.update(Cache, :a, double)
    :ok = Cache.put(:a, 1, ttl: 60_000)
    {:a, 2} = :cats.update(Cache, :a, double)
    {2, true} = {Cache.get(:a), Cache.ttl(:a) in 1..60_000}
  end},
  {"`Cache.keys()`", fn ->
    :ok = Cache.put_all(a: 1, b: 2)
    :ok = Cache.put(:c, 3, ttl: 1)
    Process.sleep(2)
    [:a, :b] = Enum.sort(Cache.keys())
  end},
  {"`Enum.to_list(Cache.stream())`", fn ->
    :ok = Cache.put_all(a: 1, b: 2)
    [a: 1, b: 2] = Enum.sort(Enum.to_list(Cache.stream()))
  end},
  {"`{value, value}` and `{:ignore, value}`; the result is the value", fn ->
    5 = Cache.get_and_update(:a, fn nil -> {5, 5} end)
    {7, 5} = {Cache.get_and_update(:a, fn 5 -> {:ignore, 7} end), Cache.get(:a)}
  end},
  {"`Cache.put_all(pairs)`", fn ->
    # What was exported.
    :ok = Cache.put_all(a: 1, b: 2)
    pairs = Enum.to_list(Cache.stream())
    :ok = Cache.clear()
    :ok = Cache.put(:c, 3)
    :ok = Cache.put_all(pairs)
    [a: 1, b: 2, c: 3] = Enum.sort(Cache.stream())
  end},
  {"`Cache.touch(key, :infinity)`", fn ->
    :ok = Cache.put(:a, 1, ttl: 60_000)
    {true, :infinity} = {Cache.touch(:a, :infinity), Cache.ttl(:a)}
  end},
  {"`Cache.touch(key, ms)`", fn ->
    :ok = Cache.put(:a, 1, ttl: 1000)
    {true, true} = {Cache.touch(:a, 60_000), Cache.ttl(:a) > 1000}
  end},
  {"`Cache.touch(key, time - System.os_time(:millisecond))`", fn ->
    :ok = Cache.put_all(a: 1, b: 2)
    now = System.os_time(:millisecond)
    true = Cache.touch(:a, now + 60_000 - System.os_time(:millisecond))
    true = Cache.ttl(:a) in 1..60_000
    # A time that is over.
    {true, nil} = {Cache.touch(:b, now - 1 - System.os_time(:millisecond)), Cache.get(:b)}
  end},
  {"not needed", fn ->
    # Cachex' `prune` makes room, and `purge` removes what has expired.
    pid = start.(limit: {:objects, 10})
    :ok = Cats.Cache.put_all(:other, for(n <- 1..20, do: {n, n}))
    10 = Cats.Cache.size(:other)
    :ok = GenServer.stop(pid)
  end},
  {"`Cache.clear()`", fn -> {:ok, []} = {Cache.clear(), Cache.keys()} end},
  {"`Cache.dump(path)`, `Cache.load(path)`", fn ->
    path = Path.join(System.get_env("DIRECTORY"), "rows")
    :ok = Cache.put_all(a: 1, b: 2)
    :ok = Cache.put(:c, 3, ttl: 60_000)
    :ok = Cache.put(:d, 4, ttl: 200)
    :ok = Cache.dump(path)
    Process.sleep(210)
    :ok = Cache.clear()
    :ok = Cache.put_all(a: :new, e: 5)
    :ok = Cache.load(path)
    # Cachex drops what has expired, and Nebulex overwrites what is there.
    [a: 1, b: 2, c: 3, e: 5] = Enum.sort(Cache.stream())
    {:infinity, true} = {Cache.ttl(:a), Cache.ttl(:c) <= 59_800}
    {:error, :enoent} = Cache.load(path <> "none")
  end},
  {"`:cats.info(Cache)`, and [`:cats.stats(Cache)`](seeing-inside.md#statistics) with option `stats: true`", fn ->
    :ok = Cache.put(:a, 1)
    before = :cats.stats(Cache)
    {1, nil, :none} = {Cache.get(:a), Cache.get(:b), Cache.get(:c, :none)}
    {true, false} = {Cache.has_key?(:a), Cache.has_key?(:b)}
    1 = Cache.fetch(:a, & &1)
    :d = Cache.fetch(:d, & &1)
    KeyError = fails.(fn -> Cache.fetch!(:b) end)
    %{hits: 3, misses: 5} = :cats.stats_delta(before, :cats.stats(Cache))
    true = is_list(:cats.info(Cache))
  end},
  {"`Cache.fetch(key, fun)`, with a function that raises what it cannot make", fn ->
    # Nothing is stored, and the next call runs its function.
    RuntimeError = fails.(fn -> Cache.fetch(:a, fn _ -> raise "no" end) end)
    1 = Cache.fetch(:a, fn _ -> 1 end)
  end},
  {"the functions above: no call takes a lock of a process", fn ->
    # Also while the process of the cache does nothing.
    pid = Process.whereis(Cache)
    :ok = :sys.suspend(pid)
    {:ok, 1, 2, :ok} = {Cache.put(:a, 1), Cache.get(:a), Cache.update(:a, 0, &(&1 + 1)), Cache.delete(:a)}
    :ok = :sys.resume(pid)
  end},
  {"`:cats.lookup_many(Cache, keys)`; with a function for what is missing `Cache.fetch_many(keys, fun)`", fn ->
    :ok = Cache.put_all(a: 1, b: 2)
    [[a: 1], [], [b: 2]] = :cats.lookup_many(Cache, [:a, :c, :b])
    true = %{a: 1, b: 2} == Cache.fetch_many([:a, :c, :b], fn _ -> [] end)
  end},
  {"`:cats.insert_new(Cache, pairs)`, of a list", fn ->
    # Nebulex: all or none.
    true = :cats.insert_new(Cache, a: 1, b: 2)
    false = :cats.insert_new(Cache, b: 3, c: 3)
    [a: 1, b: 2] = Enum.sort(Cache.stream())
  end},
  {"`:cats.select_delete/2`, `:cats.select_count/2`", fn ->
    :ok = Cache.put_all(a: 1, b: 2, c: 3)
    above = [{{:_, :"$1"}, [{:>, :"$1", 1}], [true]}]
    {2, 2, [:a]} = {:cats.select_count(Cache, above), :cats.select_delete(Cache, above), Cache.keys()}
  end},
  {"none", fn ->
    names = for {name, _} <- Cache.__info__(:functions), do: name
    [] = for(name <- [:execute, :invoke, :isolated, :try_isolated, :in_transaction?], name in names, do: name)
  end}
]

options = [
  {"`limit: {:objects, n}`, held at each instant", fn ->
    pid = start.(limit: {:objects, 10})
    for n <- 1..50 do
      :ok = Cats.Cache.put(:other, n, n)
      true = Cats.Cache.size(:other) <= 10
    end
    :ok = GenServer.stop(pid)
  end},
  {"`limit: {:objects, n}`, `limit: {:bytes, n}`", fn ->
    pid = start.(limit: {:bytes, 100_000})
    :ok = Cats.Cache.put_all(:other, for(n <- 1..2000, do: {n, String.duplicate("x", 100)}))
    true = Cats.Cache.size(:other) in 100..1000
    true = :cats.info(:other, :memory) * 8 <= 100_000
    :ok = GenServer.stop(pid)
  end},
  {"`ttl: ms`", fn ->
    pid = start.(ttl: 60_000)
    :ok = Cats.Cache.put(:other, 1, 1)
    :ok = Cats.Cache.put(:other, 2, 2, ttl: :infinity)
    {true, :infinity} = {Cats.Cache.ttl(:other, 1) in 1..60_000, Cats.Cache.ttl(:other, 2)}
    :ok = GenServer.stop(pid)
  end},
  {"`idle: ms`", fn ->
    pid = start.(idle: 60_000)
    :ok = Cats.Cache.put(:other, 1, 1)
    Process.sleep(2)
    1 = Cats.Cache.get(:other, 1)
    :ok = Cats.Cache.put(:other, 2, 2, ttl: 50)
    Process.sleep(51)
    {true, nil} = {Cats.Cache.ttl(:other, 1) in 1..60_000, Cats.Cache.get(:other, 2)}
    :ok = GenServer.stop(pid)
  end},
  {"`evict: policy`, see [Limits](caches.md#limits)", fn ->
    for policy <- [:s3_fifo, :sieve, :clock] do
      pid = start.(limit: {:objects, 100}, evict: policy)
      :ok = Cats.Cache.put(:other, :used, 1)
      for n <- 1..1000 do
        1 = Cats.Cache.get(:other, :used)
        :ok = Cats.Cache.put(:other, n, n)
      end
      :ok = GenServer.stop(pid)
    end
  end},
  {"[`notify`](caches.md#being-told-what-goes)", fn ->
    pid = start.([{:limit, {:objects, 1}}, {:notify, self(), [interval: 1]}])
    :ok = Cats.Cache.put_all(:other, a: 1, b: 2)
    :ok = receive do: ({:cats_removed, :other} -> :ok)
    {[evicted: {_, _}], 0} = :cats.removed(:other)
    :ok = GenServer.stop(pid)
  end},
  {"`stats: true`, and [`:cats_telemetry`](seeing-inside.md#telemetry)", fn ->
    true = Code.ensure_loaded?(:cats_telemetry)
    %{hits: _, misses: _} = :cats.stats(Cache)
  end},
  {"`Cache.fetch(key, fun, ttl: ms, stale: ms)`", fn ->
    1 = Cache.fetch(:a, fn _ -> 1 end, ttl: 1, stale: 60_000)
    Process.sleep(2)
    nil = Cache.get(:a)
    1 = Cache.fetch(:a, fn _ -> 2 end, ttl: 60_000, stale: 60_000)
  end}
]

# The last columns of the page's tables, heads left out.
page = File.read!(System.get_env("PAGE"))
[_, functions_text, options_text | _] = String.split(page, ~r/^## (?=Functions|Options|What each)/m)

tables = fn text ->
  text
  |> String.split("\n")
  |> Enum.chunk_by(&String.starts_with?(&1, "|"))
  |> Enum.filter(&String.starts_with?(hd(&1), "|"))
  |> Enum.map(fn [_, _ | rows] ->
    for row <- rows, do: row |> String.split(~r/ ?\| /) |> List.last() |> String.trim_trailing(" |")
  end)
end

[functions_page, more_page] = tables.(functions_text)
[options_page] = tables.(options_text)

for {rows, page} <- [{functions, functions_page}, {more, more_page}, {options, options_page}] do
  names = for {name, _} <- rows, do: name
  if names != page, do: IO.inspect(page: page -- names, here: names -- page, order: names -- (names -- page))

  for {name, run} <- rows do
    :ok = Cache.clear()

    try do
      run.()
    catch
      class, reason -> IO.puts([name, "\n", Exception.format(class, reason, __STACKTRACE__)])
    end
  end
end
