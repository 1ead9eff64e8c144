# The caches that experiment `caches` compares with. bench/cache-peers builds this. It is no part of cats.
defmodule BenchPeers.MixProject do
  use Mix.Project

  def project, do: [app: :bench_peers, version: "0.1.0", deps: deps()]

  defp deps do
    [{:cachex, "4.1.1"}, {:con_cache, "1.1.1"}, {:nebulex, "2.6.4"}, {:shards, "~> 1.1"}, {:telemetry, "~> 1.0"}]
  end
end
