defmodule BenchPeers.Nebulex do
  @moduledoc false
  use Nebulex.Cache, otp_app: :bench_peers, adapter: Nebulex.Adapters.Local
end

defmodule BenchPeers do
  @moduledoc """
  Starts other caches for the experiment `caches`. Objects live for an hour. A limit is a number of objects.
  """
  import Cachex.Spec

  @hour 3_600_000

  def cachex(name, limit) do
    hooks = if limit, do: [hook(module: Cachex.Limit.Evented, args: {limit, []})], else: []
    {:ok, _} = Cachex.start_link(name, expiration: expiration(default: @hour), hooks: hooks)
    name
  end

  @doc """
  Waits until Cachex has evicted what it must. It does so in a process of its own.
  """
  def settle(name) do
    {:ok, cache(hooks: hooks(pre: pre, post: post))} = Cachex.inspect(name, :cache)
    for hook(name: process) <- pre ++ post, do: :sys.get_state(process, :infinity)
    :ok
  end

  def con_cache(name) do
    {:ok, _} = ConCache.start_link(name: name, ttl_check_interval: 1000, global_ttl: @hour)
    name
  end

  def nebulex do
    {:ok, _} = BenchPeers.Nebulex.start_link(gc_interval: @hour)
    BenchPeers.Nebulex
  end
end
