defmodule Cats do
  @moduledoc """
  Transactions over the tables of cats, for Elixir.

      iex> accounts = :cats.new(:accounts, [:public])
      iex> :cats.insert(accounts, alice: 100, bob: 50)
      iex> transfer = fn amount ->
      ...>   Cats.transaction(fn ->
      ...>     if Cats.lookup_element(accounts, :alice, 2) < amount, do: Cats.abort(:no_money)
      ...>     Cats.update_counter(accounts, :alice, -amount)
      ...>     Cats.update_counter(accounts, :bob, amount)
      ...>   end)
      ...> end
      iex> transfer.(30)
      {:ok, 80}
      iex> transfer.(1000)
      {:error, :no_money}
      iex> :cats.lookup(accounts, :alice)
      [alice: 70]

  All that the function reads was there at one instant. All that it writes appears at that instant, or nothing does. If
  another process changes what the function has read, the function runs again. So it must do nothing that cannot be
  repeated: no messages, no files. `:cats_transaction` tells the rest.

  The other functions are for the inside of a transaction. They have the names, the arguments and the results of those
  of `:cats`, and also take a `Cats.Table`.
  """

  @doc """
  Runs a function as a transaction. Returns `{:ok, result}` when everything that it has written is there.

  Otherwise nothing was written. An exception or a throw in the function leaves this call, too. In other cases it
  returns `{:error, reason}`:

    * `abort(reason)` and `exit(reason)` in the function give `reason`.
    * `{:no_transactions, table, text}`: the table cannot do in a transaction what is asked for. The text says why.
    * `{:conflict, runs}`: the function has run so many times.
    * `{:timeout, runs}`: it has run so many times, and the time was over.
    * `{:memory, runs}`: it has run so many times, and its memory was not enough.
    * `{:badarg, stacktrace}` or `{:system_limit, stacktrace}`: the process may not write one of the tables any more, or
      one of them is full. That is found at the end.

  ## Options

    * `retries: n`: the function runs again at most `n` times, or without end with `:infinity`.
    * `timeout: milliseconds`: after this time it does not run again.
    * `memory: bytes`: what a transaction that reads many keys may hold, 64 MB by default.

  Inside another transaction the function is a part of that one. If it aborts or raises, only its own writes are
  forgotten. The options are those of the outer one then.
  """
  @spec transaction((() -> result),
          retries: non_neg_integer | :infinity,
          timeout: timeout,
          memory: non_neg_integer | :infinity
        ) :: {:ok, result} | {:error, reason :: term}
        when result: term
  def transaction(fun, options \\ []) do
    is_function(fun, 0) or
      raise ArgumentError, "a transaction is a function without arguments, not #{inspect(fun)}"

    case :cats_transaction.run(fn -> attempt(fun) end, [], options(options)) do
      {:atomic, result} -> {:ok, result}
      {:aborted, {__MODULE__, :raised, error, stack}} -> :erlang.raise(:error, error, stack)
      {:aborted, {__MODULE__, :thrown, value}} -> throw(value)
      {:aborted, reason} -> {:error, reason}
    end
  end

  # An abort may have any reason, so an exception and a throw get one that is known.
  defp attempt(fun) do
    fun.()
  catch
    :error, error -> abort({__MODULE__, :raised, error, __STACKTRACE__})
    :throw, value -> abort({__MODULE__, :thrown, value})
  end

  defp options(options) do
    with true <- Keyword.keyword?(options), [] <- Keyword.keys(options) -- [:retries, :timeout, :memory] do
      Map.new(options)
    else
      _ ->
        raise ArgumentError,
              "the options of a transaction are retries:, timeout: and memory:, not #{inspect(options)}"
    end
  end

  @doc """
  Ends the transaction, which returns `{:error, reason}`.
  """
  @spec abort(reason :: term) :: no_return
  def abort(reason), do: :cats_transaction.abort(reason)

  # Each function with its arguments. All take the table first, but foldl.
  words = [
    delete: [:key],
    delete_object: [:object],
    first: [],
    insert: [:objects],
    insert_new: [:objects],
    last: [],
    lookup: [:key],
    lookup_element: [:key, :position],
    lookup_element: [:key, :position, :default],
    lookup_many: [:keys],
    match_object: [:pattern],
    member: [:key],
    next: [:key],
    prev: [:key],
    range: [:range, :limit],
    range: [:from, :to, :limit],
    select: [:specification],
    select_delete: [:specification],
    take: [:key],
    update: [:key, :fun],
    update: [:key, :fun, :default],
    update_counter: [:key, :operations],
    update_counter: [:key, :operations, :default],
    update_element: [:key, :elements],
    update_element: [:key, :elements, :default]
  ]

  for {word, names} <- words do
    arguments = Enum.map(names, &Macro.var(&1, __MODULE__))
    types = Enum.map(names, fn _ -> quote(do: term) end)

    @doc "As `:cats.#{word}/#{length(names) + 1}`, in a transaction."
    @spec unquote(word)(:cats.table() | Cats.Table.t(), unquote_splicing(types)) :: term
    def unquote(word)(table, unquote_splicing(arguments)) do
      :cats_transaction.unquote(word)(id(table), unquote_splicing(arguments))
    end
  end

  @doc "As `:cats.foldl/3`, in a transaction."
  @spec foldl((object :: tuple, acc -> acc), acc, :cats.table() | Cats.Table.t()) :: acc when acc: term
  def foldl(fun, acc, table), do: :cats_transaction.foldl(fun, acc, id(table))

  defp id(%Cats.Table{id: id}), do: id
  defp id(table), do: table
end
