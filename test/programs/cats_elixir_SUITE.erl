%% The Elixir modules that Mix builds: compiled by elixirc, and used.
-module(cats_elixir_SUITE).
-include_lib("stdlib/include/assert.hrl").
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([tables/1, caches/1, limits/1, dashboard/1]).

suite() -> [{timetrap, {minutes, 10}}].

all() -> [tables, caches, limits, dashboard].

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
\"green\" = Colours.fetch(:grass, fn _ -> raise \"not called\" end, stale: 10, timeout: 10)
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
own = fn value -> Colours.put(:nothing, make_ref()); {value, value} end
%RuntimeError{message: \"the value of :nothing in Colours was changed during each of 1000 calls\" <> _} =
  try do Colours.get_and_update(:nothing, own) rescue error -> error end
:ok = Colours.put(:nothing, 0)
1..8
|> Enum.map(fn _ -> Task.async(fn -> for _ <- 1..100, do: Colours.update(:visits, 0, &(&1 + 1)) end) end)
|> Enum.each(&Task.await(&1, :infinity))
802 = Colours.get(:visits)
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
60_000 = :cats.info(Other, :ttl)
:ok = Supervisor.terminate_child(supervisor, Other)
:undefined = :cats.info(Other)
ArgumentError = try do Other.size() rescue error -> error.__struct__ end
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
for call <- [fn -> Bounded.put(2, 2) end, fn -> Bounded.fetch(2, & &1) end] do
  \"a system limit has been reached:\" <> rest = fails.(call)
  true = rest =~ \"1st argument: the table has reached its limit ({objects,1}) and evicts nothing: delete objects\"
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
