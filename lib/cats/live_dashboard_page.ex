if Code.ensure_loaded?(Phoenix.LiveDashboard.PageBuilder) do
  defmodule Cats.LiveDashboardPage do
    @moduledoc """
    A page of Phoenix LiveDashboard that shows the tables of a node.

        live_dashboard "/dashboard", additional_pages: [cats: Cats.LiveDashboardPage]

    A line has what `:cats.stats/0` tells of a table. Its rates are of the time since the page was last refreshed, so
    they come with the second refresh. A click on a line shows the whole statistics of that table. The page is there
    only if this module is compiled where `phoenix_live_dashboard` is.
    """

    use Phoenix.LiveDashboard.PageBuilder

    # The most tables that a search goes through.
    @tables 10_000
    @rates [growth: :size, waits: :waits, operations: :operations, scans: :scans]
    @operations [:lookups, :hits, :misses, :inserts, :updates, :deletes, :steps, :scans, :operations]

    @impl true
    def init(_options), do: {:ok, %{}, module: :cats}

    @impl true
    def menu_link(_session, %{modules: modules}) do
      if :cats in modules, do: {:ok, "cats"}, else: :skip
    end

    @impl true
    def handle_event("choose", %{"id" => id}, socket) do
      {:noreply, push_patch(socket, to: live_dashboard_path(socket, socket.assigns.page, id: id))}
    end

    @impl true
    def render(assigns) do
      assigns = assign(assigns, :chosen, chosen(assigns.page))

      ~H"""
      <div :if={@chosen} id="cats-chosen">
        <.card_title title={"Table #{@chosen.name}"} />
        <div class="card mb-4">
          <div class="card-body row">
            <div :for={part <- @chosen.parts} class="col-sm-4">
              <table>
                <tr :for={{name, value} <- part}>
                  <th class="pr-3 font-weight-normal text-muted"><%= name %></th>
                  <td><%= value %></td>
                </tr>
              </table>
            </div>
          </div>
        </div>
      </div>
      <.live_table
        id="cats-table"
        dom_id="cats-table"
        page={@page}
        title="Tables of cats"
        row_fetcher={{&fetch/3, %{}}}
        row_attrs={&[{"phx-click", "choose"}, {"phx-value-id", &1.id}, {"phx-page-loading", true}]}
        rows_name="tables"
        default_sort_by={:memory}
      >
        <:col field={:name} sortable={:asc} />
        <:col field={:type} />
        <:col :let={row} field={:owner}><%= inspect(row.owner) %></:col>
        <:col field={:size} text_align="right" sortable={:desc} />
        <:col :let={row} field={:memory} text_align="right" sortable={:desc}><%= bytes(row.memory) %></:col>
        <:col :let={row} field={:growth} header="Growth/s" text_align="right" sortable={:desc}>
          <%= rate(row.growth) %>
        </:col>
        <:col :let={row} field={:waits} header="Waits/s" text_align="right" sortable={:desc}>
          <%= rate(row.waits) %>
        </:col>
        <:col :let={row} field={:operations} header="Operations/s" text_align="right" sortable={:desc}>
          <%= rate(row.operations) %>
        </:col>
        <:col :let={row} field={:scans} header="Scans/s" text_align="right" sortable={:desc}>
          <%= rate(row.scans) %>
        </:col>
      </.live_table>
      """
    end

    @doc false
    # The rows of the list, and how many tables match the search. The state has the statistics of the last time.
    def fetch(%{search: search, sort_by: sort_by, sort_dir: sort_dir, limit: limit}, node, before) do
      rows = :erpc.call(node, :cats_stats, :rows, [:memory, @tables])

      matching =
        for %{id: id, stats: stats} = row <- rows, String.contains?(inspect(row.name), search || "") do
          Map.merge(
            %{id: to_string(:cats_stats.identifier(id)), name: inspect(row.name), type: row.type, owner: row.owner},
            Map.merge(rates(stats, before[id]), Map.take(stats, [:size, :memory]))
          )
        end

      sorted = Enum.sort_by(matching, &{&1[sort_by] || 0, &1.memory}, sort_dir)
      {Enum.take(sorted, limit), length(matching), Map.new(rows, &{&1.id, &1.stats})}
    end

    # What is not counted has no rate.
    defp rates(stats, before) do
      delta = before && :cats.stats_delta(before, stats)

      Map.new(@rates, fn {column, key} ->
        {column, delta && delta[key] && delta[key] * 1_000_000 / max(delta.time, 1)}
      end)
    end

    defp chosen(%{params: %{"id" => id}, node: node}) do
      case :erpc.call(node, :cats_web_data, :table, [String.to_charlist(id)]) do
        %{name: name, stats: stats, options: options} ->
          {operations, events} = Map.split(Map.delete(stats, :time), @operations)

          parts =
            for part <- [events, operations, options],
                do: for({key, value} <- Enum.sort(part), do: {key, text(value)})

          %{name: IO.chardata_to_string(name), parts: parts}

        _ ->
          nil
      end
    end

    defp chosen(_page), do: nil

    # What happens now and then is not nothing.
    defp rate(nil), do: "–"
    defp rate(rate) when abs(rate) >= 10 or rate == 0, do: round(rate)
    defp rate(rate), do: Float.round(rate, 1)

    defp text({:list, numbers}), do: Enum.join(numbers, " ")
    defp text(number) when is_integer(number), do: number
    defp text(chardata), do: IO.chardata_to_string(chardata)

    defp bytes(number) when number < 10_240, do: "#{number} B"
    defp bytes(number) when number < 10_485_760, do: "#{div(number, 1024)} KiB"
    defp bytes(number), do: "#{div(number, 1_048_576)} MiB"
  end
end
