defmodule Cats.Table do
  @moduledoc """
  A table of cats as an Elixir value.

  It implements `Enumerable` and `Collectable`. So the functions of `Enum`, `Stream` and `for ... into:` work on a
  table. They read it in slices, and never copy the whole of it.

      iex> fruit = Cats.Table.new([:ordered_set])
      iex> Enum.into([{:apples, 3}, {:pears, 5}], fruit)
      iex> Enum.map(fruit, fn {name, number} -> {number, name} end)
      [{3, :apples}, {5, :pears}]
      iex> {:apples, 3} in fruit
      true

  All other functions are those of the module `:cats`, on `table.id`.

  A walk meets each object that is in the table all the time exactly once, and others at most once. It is not one state
  of the table. For that, walk over a snapshot: `Cats.Table.wrap(:cats.snapshot(table.id))`.
  """

  @enforce_keys [:id]
  defstruct [:id]

  @type t :: %__MODULE__{id: :cats.table()}

  # The number of objects that a walk reads at once.
  @slice 500

  @doc """
  Creates a table with options of `:cats.new/2`. It belongs to the calling process.
  """
  @spec new([:cats.option()]) :: t
  def new(options \\ []), do: wrap(:cats.new(__MODULE__, options))

  @doc """
  The value for a table that exists: its identifier, or its name.
  """
  @spec wrap(:cats.table()) :: t
  def wrap(id), do: %__MODULE__{id: id}

  @doc """
  A stream of what a match specification selects. By default these are all objects. It reads the table in slices.

      iex> squares = Enum.into(1..9, Cats.Table.new([:ordered_set]), &{&1, &1 * &1})
      iex> Cats.Table.stream(squares, [{{:"$1", :"$2"}, [{:>, :"$2", 50}], [:"$1"]}]) |> Enum.take(1)
      [8]
  """
  @spec stream(t, :ets.match_spec()) :: Enumerable.t()
  def stream(table, specification \\ [{:_, [], [:"$_"]}]), do: stream(table, specification, & &1.())

  @doc false
  # `read` is called with the function that reads a slice. It calls that, and may treat its errors.
  def stream(%__MODULE__{id: id}, specification, read) do
    Stream.resource(
      fn -> fn -> :cats.select(id, specification, @slice) end end,
      fn select ->
        case read.(select) do
          :"$end_of_table" -> {:halt, select}
          {results, continuation} -> {results, fn -> :cats.select(continuation) end}
        end
      end,
      fn _ -> :ok end
    )
  end

  defimpl Enumerable do
    def count(table), do: {:ok, info(table, :size)}

    def member?(table, object) when is_tuple(object) do
      position = info(table, :keypos)
      {:ok, tuple_size(object) >= position and object in :cats.lookup(table.id, elem(object, position - 1))}
    end

    def member?(_table, _object), do: {:ok, false}

    def slice(_table), do: {:error, __MODULE__}

    def reduce(table, accumulator, fun), do: Enumerable.reduce(Cats.Table.stream(table), accumulator, fun)

    defp info(table, item) do
      case :cats.info(table.id, item) do
        :undefined -> raise ArgumentError, "there is no table #{inspect(table.id)}"
        value -> value
      end
    end
  end

  defimpl Collectable do
    # Objects are inserted in lists of this length.
    @batch 100

    def into(table) do
      collect = fn
        {count, objects}, {:cont, object} when count < @batch ->
          {count + 1, [object | objects]}

        {_, objects}, {:cont, object} ->
          insert(table, objects)
          {1, [object]}

        {_, objects}, :done ->
          insert(table, objects)
          table

        _, :halt ->
          :ok
      end

      {{0, []}, collect}
    end

    defp insert(table, objects), do: :cats.insert_many(table.id, Enum.reverse(objects))
  end
end
