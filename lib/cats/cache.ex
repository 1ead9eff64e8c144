defmodule Cats.Cache do
  @moduledoc """
  A cache with a name and a supervisor, on a table of cats.

      defmodule MyApp.Sessions do
        use Cats.Cache, limit: {:objects, 100_000}, ttl: :timer.minutes(30)
      end

  Add the module to the children of a supervisor:

      children = [MyApp.Sessions]

  Then every process uses the cache. All calls go to the table directly, none to the process that owns it. A cache
  without a module of its own is `{Cats.Cache, name: :sessions, ttl: 1000}`, and `Cats.Cache.get(:sessions, key)`.

      iex> defmodule Colours do
      ...>   use Cats.Cache, limit: {:objects, 1000}
      ...> end
      iex> {:ok, _} = Supervisor.start_link([Colours], strategy: :one_for_one)
      iex> Colours.put(:sky, "blue")
      iex> Colours.get(:sky)
      "blue"
      iex> Colours.fetch(:grass, fn _ -> "green" end)
      "green"
      iex> Colours.get(:grass)
      "green"

  ## Options

  The options of `use` are those of `:cats.new/2`. They may also be given to the child, as in
  `{MyApp.Sessions, ttl: 1000}`, which come first. With `otp_app: :my_app`, those in the configuration of that
  application come between: `config :my_app, MyApp.Sessions, ttl: 1000`. The child also takes `id:` and `restart:`, as
  its specification has them. Useful ones are:

    * `limit: {:objects, n}` or `limit: {:bytes, n}`: what the cache may hold. It evicts objects to stay within it.
    * `evict: policy`: which objects are evicted. See the type `policy` of `:cats`.
    * `share: percent`: what the cache gives up when all of cats has no memory left. See `:cats.budget/0`.
    * `ttl: milliseconds`: how long a value lives, unless `put/3` or `fetch/3` says otherwise.
    * `idle: milliseconds`: how long a value lives after it was last read. With `ttl:`, or a time of its own, the
      earlier end counts.
    * `stats: true`: counts hits and misses, for `:cats.stats/1` and the events of `:cats_telemetry`.
    * `engine: ...` and `:compressed`: see `:cats.new/2`. Then values have times only with one of the options above.

  Options of bags, of access, `keypos` and `heir` are not for caches.

  The cache is empty when its process starts, and gone when that ends.

  ## Functions

  The module that uses this one has them without the argument `cache`: `MyApp.Sessions.get(key)` is
  `Cats.Cache.get(MyApp.Sessions, key)`. It may override them.

  `ttl:` is a number of milliseconds, or `:infinity`. A value with a time of 0 or less is gone at once.

  They raise an `ArgumentError` that says what is wrong where an argument, or what a function returned, is not as it
  should be. Nothing has changed then. They also do so when the process of the cache does not run.
  """

  use GenServer

  @type cache :: module
  @type key :: term
  @type value :: term
  @type outcome :: {:store, value} | {:store, value, ttl: lifetime} | {:ignore, value}
  @typedoc "Why a file is not written or read: `:not_a_cache` and `:damaged`, or what the file system says."
  @type file_error :: :not_a_cache | :damaged | File.posix()
  @typedoc "Milliseconds. What has no time left is gone."
  @type lifetime :: integer | :infinity

  # The functions of a module that uses this one, with what they return.
  @functions quote(
               do: [
                 clear() :: :ok,
                 configure(options) :: :ok,
                 decrement(key, by \\ 1, default \\ 0) :: integer,
                 delete(key) :: :ok,
                 dump(path) :: :ok | {:error, Cats.Cache.file_error()},
                 fetch(key, fun, options \\ []) :: term,
                 fetch!(key) :: term,
                 fetch_many(keys, fun, options \\ []) :: map,
                 get(key, default \\ nil) :: term,
                 get_and_update(key, fun) :: term,
                 has_key?(key) :: boolean,
                 increment(key, by \\ 1, default \\ 0) :: integer,
                 keys() :: [term],
                 load(path) :: :ok | {:error, Cats.Cache.file_error()},
                 put(key, value, options \\ []) :: :ok,
                 put_all(pairs, options \\ []) :: :ok,
                 put_new(key, value, options \\ []) :: boolean,
                 size() :: non_neg_integer,
                 stream() :: Enumerable.t(),
                 take(key) :: term,
                 touch(key, ttl) :: boolean,
                 ttl(key) :: Cats.Cache.lifetime() | nil,
                 update(key, initial, fun) :: term
               ]
             )
  @types [
    by: quote(do: integer),
    fun: quote(do: (term -> term)),
    keys: quote(do: [term]),
    options: quote(do: keyword),
    pairs: quote(do: Enumerable.t()),
    path: quote(do: Path.t()),
    ttl: quote(do: Cats.Cache.lifetime())
  ]

  defp generated({:"::", _, [{name, _, arguments}, result]}) do
    variables = Enum.map(arguments, &variable/1)
    types = Enum.map(variables, fn {variable, _, _} -> @types[variable] || quote(do: term) end)

    quote do
      @doc "As `Cats.Cache.#{unquote(name)}/#{unquote(length(arguments) + 1)}`, of this cache."
      @spec unquote(name)(unquote_splicing(types)) :: unquote(result)
      def unquote(name)(unquote_splicing(arguments)),
        do: Cats.Cache.unquote(name)(__MODULE__, unquote_splicing(variables))
    end
  end

  defp variable({:\\, _, [variable, _default]}), do: variable
  defp variable(variable), do: variable

  @doc false
  defmacro __using__(options) do
    quote do
      @doc "The specification of a child that starts the cache."
      @spec child_spec([:cats.option() | {:id, term} | {:restart, Supervisor.restart()}]) :: Supervisor.child_spec()
      def child_spec(options \\ []), do: Cats.Cache.child_spec(__MODULE__, __MODULE__, options)

      @doc "Starts the process that owns the cache."
      @spec start_link([:cats.option()]) :: GenServer.on_start()
      def start_link(options \\ []), do: Cats.Cache.start_link(__MODULE__, unquote(options), options)

      unquote_splicing(Enum.map(@functions, &generated/1))

      defoverridable unquote(overridable())
    end
  end

  defp overridable do
    functions =
      Enum.flat_map(@functions, fn {:"::", _, [{name, _, arguments}, _]} ->
        optional = Enum.count(arguments, &match?({:\\, _, _}, &1))
        for arity <- (length(arguments) - optional)..length(arguments), do: {name, arity}
      end)

    functions ++ [child_spec: 0, child_spec: 1, start_link: 0, start_link: 1]
  end

  @doc """
  The specification of a child that starts a cache with the option `name:`, an atom.
  """
  @spec child_spec([:cats.option() | {:name, cache} | {:id, term} | {:restart, Supervisor.restart()}]) ::
          Supervisor.child_spec()
  def child_spec(options), do: child_spec(__MODULE__, name(options), options)

  @doc false
  def child_spec(module, name, options) do
    {id, options} = pop(options, :id, name)
    {restart, options} = pop(options, :restart, :permanent)
    %{id: id, restart: restart, start: {module, :start_link, [options]}}
  end

  # What is no list of options is refused when the cache starts.
  defp pop(options, key, default) when is_list(options) do
    case List.keytake(options, key, 0) do
      {{_, value}, rest} -> {value, rest}
      _ -> {default, options}
    end
  end

  defp pop(options, _key, default), do: {default, options}

  defp name(options) do
    case pop(options, :name, nil) do
      {nil, _} -> raise ArgumentError, "a cache needs the option name:, or a module with `use Cats.Cache`"
      {name, _} -> name
    end
  end

  # `:undefined` stands for no name in Erlang.
  defp name?(name), do: is_atom(name) and name != :undefined

  @doc """
  Starts the process that owns the cache with the option `name:`.
  """
  @spec start_link([:cats.option() | {:name, cache}]) :: GenServer.on_start()
  def start_link(options), do: start_link(name(options), [], elem(pop(options, :name, nil), 1))

  @doc """
  Starts the process that owns the cache `name`, with options of `:cats.new/2`. Those of the second list come first.
  """
  @spec start_link(cache, [:cats.option()], [:cats.option()]) :: GenServer.on_start()
  def start_link(name, options, more) do
    name?(name) or raise ArgumentError, "the name of a cache is an atom other than :undefined, not #{inspect(name)}"
    {application, options} = pop(options, :otp_app, nil)
    is_atom(application) or refuse(name, :start_link, "takes otp_app: the name of an application, an atom", application)
    configured = if application, do: Application.get_env(application, name, []), else: []
    Enum.each([options, configured, more], &check_options(name, :start_link, &1))
    GenServer.start_link(__MODULE__, {name, options ++ configured ++ more}, name: name)
  end

  @impl true
  def init({name, options}) do
    # What is given first is the last in the list, where it counts.
    all = [:named_table, :public, {:write_concurrency, true} | options]
    has_times = Enum.any?([:engine, :idle, :limit, :ttl], &List.keymember?(options, &1, 0))
    all = if has_times or :compressed in options, do: all, else: [{:ttl, :infinity} | all]
    {:ok, :cats.new(name, all)}
  end

  @impl true
  def handle_call({:configure, options}, _from, cache) do
    true = :cats.setopts(cache, options)
    {:reply, :ok, cache}
  catch
    :error, reason -> {:reply, {:error, reason, __STACKTRACE__}, cache}
  end

  # A request that nobody expects does not end the cache.
  def handle_call(_request, _from, state), do: {:reply, {:error, :unknown_request}, state}

  @impl true
  def handle_cast(_request, state), do: {:noreply, state}

  # What an option may be.
  @lifetime "up to 1099511627775 milliseconds, or :infinity"
  @meaning %{
    ttl: @lifetime,
    stale: "from 0 to 1099511627775 milliseconds",
    timeout: "from 0 to 4294967295 milliseconds, or :infinity",
    refresh_timeout: "from 1 to 4294967295 milliseconds, or :infinity",
    negative_ttl: "from 0 to 1099511627775 milliseconds",
    refresh_ahead: "from 0 to 1099511627775 milliseconds",
    returns: ":value or :outcome",
    retry: "true or false"
  }

  defguardp is_within(value, least, most) when is_integer(value) and value >= least and value <= most
  defguardp is_timeout(value, least) when value == :infinity or is_within(value, least, 4_294_967_295)

  # Whether a time is over.
  defguardp is_over(ttl) when is_integer(ttl) and ttl <= 0

  defp good?({:ttl, value}), do: value == :infinity or is_over(value) or is_within(value, 1, 1_099_511_627_775)

  defp good?({option, value}) when option in [:stale, :negative_ttl, :refresh_ahead],
    do: is_within(value, 0, 1_099_511_627_775)

  defp good?({:returns, value}), do: value in [:value, :outcome]
  defp good?({:timeout, value}), do: is_timeout(value, 0)
  defp good?({:refresh_timeout, value}), do: is_timeout(value, 1)
  defp good?({:retry, value}), do: is_boolean(value)
  defp good?(_), do: false

  defp options(:start_link), do: :any
  defp options(:configure), do: [:ttl, :limit, :evict, :stats]

  defp options(:fetch),
    do: [:ttl, :stale, :refresh_ahead, :negative_ttl, :returns, :timeout, :retry, :refresh_timeout]

  defp options(:fetch_many), do: [:ttl, :negative_ttl, :returns, :timeout, :retry]
  defp options(_function), do: [:ttl]

  defp check_options(_cache, _function, []), do: :ok

  defp check_options(cache, function, [option | rest]) do
    check_option(cache, function, options(function), option)
    check_options(cache, function, rest)
  end

  defp check_options(cache, function, other), do: refuse(cache, function, "takes a list of options", other)

  # Other options are checked by `:cats.new/2`.
  defp check_option(cache, function, :any, option) do
    fits =
      case option do
        type when type in [:bag, :duplicate_bag, :private, :protected] -> false
        {:keypos, position} -> position == 1
        {:heir, heir} -> heir == :none
        {:heir, _, _} -> false
        _ -> true
      end

    fits or refuse(cache, function, "takes no option that gives a cache another type, access, key or heir", option)
  end

  defp check_option(cache, function, names, option) do
    name = with {name, _} <- option, do: name

    cond do
      # These are checked by `:cats.setopts/2`.
      function == :configure and name in names -> true
      name not in names -> refuse(cache, function, "takes no options but #{Enum.join(names, ", ")}", option)
      good?(option) -> true
      true -> refuse(cache, function, "takes #{name}: #{@meaning[name]}", option)
    end
  end

  defp check_fun(_cache, _function, fun) when is_function(fun, 1), do: :ok
  defp check_fun(cache, function, other), do: refuse(cache, function, "takes a function of one argument", other)

  @spec refuse(cache, atom, String.t(), term) :: no_return
  defp refuse(cache, function, instead, value),
    do: raise(ArgumentError, "#{inspect(cache)}.#{function} #{instead}, not: #{inspect(value)}")

  @spec refuse_absent(cache, atom) :: no_return
  defp refuse_absent(cache, function) do
    raise ArgumentError,
          "#{inspect(cache)}.#{function} finds no cache #{inspect(cache)}: its process does not run. Start it by a " <>
            "supervisor that has it among its children"
  end

  # A call of `:cats`, whose errors are explained in the words of this module.
  defmacrop on(cache, function, call) do
    quote do
      try do
        unquote(call)
      catch
        :error, :badarg -> fail(unquote(cache), unquote(function), __STACKTRACE__)
      end
    end
  end

  @spec fail(cache, atom, Exception.stacktrace()) :: no_return
  defp fail(cache, function, [{:cats, called, [cache | arguments], info} | _] = stack) do
    case {called, info[:error_info][:cause]} do
      {_, :id} ->
        refuse_absent(cache, function)

      {_, :no_expiry} ->
        raise ArgumentError,
              "#{inspect(cache)}.#{function} cannot give or tell a time: the cache was made without option ttl, " <>
                "idle or limit"

      {:update_counter, nil} ->
        refuse_value(cache, function, hd(arguments))
        :erlang.raise(:error, :badarg, stack)

      _ ->
        :erlang.raise(:error, :badarg, stack)
    end
  end

  # The next slice of a stream.
  defp fail(cache, :stream = function, [{:cats, :select, [_continuation], info} | _] = stack) do
    case info[:error_info][:cause] do
      :id -> raise ArgumentError, "#{inspect(cache)}.#{function} cannot go on: the process of the cache has ended"
      _ -> :erlang.raise(:error, :badarg, stack)
    end
  end

  # What the function of a caller has raised, or another table.
  defp fail(_cache, _function, stack), do: :erlang.raise(:error, :badarg, stack)

  # Another process may have changed the value by now.
  defp refuse_value(cache, function, key) do
    with [{_, value}] when not is_integer(value) <- :cats.lookup(cache, key) do
      raise ArgumentError,
            "#{inspect(cache)}.#{function} changes an integer, and the value of #{inspect(key)} is not one: " <>
              inspect(value)
    end
  end

  @doc """
  The value of a key, or the default.
  """
  @spec get(cache, key, default :: term) :: value | term
  def get(cache, key, default \\ nil), do: on(cache, :get, :cats.lookup_element(cache, key, 2, default))

  @doc """
  Stores a value. With `ttl: milliseconds` it lives for a time of its own.
  """
  @spec put(cache, key, value, ttl: lifetime) :: :ok
  def put(cache, key, value, options \\ [])

  def put(cache, key, value, []) do
    true = on(cache, :put, :cats.insert(cache, {key, value}))
    :ok
  end

  def put(cache, key, value, options) do
    true = on(cache, :put, insert(cache, {key, value}, lifetime(cache, :put, options)))
    :ok
  end

  # The options of `:cats.insert/3`.
  defp lifetime(cache, function, options) do
    check_options(cache, function, options)
    first(options)
  end

  # Of options with one name, the first counts.
  defp first(options), do: options |> Enum.reverse() |> Map.new()

  defp insert(cache, {key, _}, %{ttl: ttl}) when is_over(ttl), do: :cats.delete(cache, key)
  defp insert(cache, object, options), do: :cats.insert(cache, object, options)

  @doc """
  Stores a value if the key has none. Returns whether the key had none. With `ttl: milliseconds` it lives for a time of
  its own.
  """
  @spec put_new(cache, key, value, ttl: lifetime) :: boolean
  def put_new(cache, key, value, options \\ []) do
    case lifetime(cache, :put_new, options) do
      %{ttl: ttl} when is_over(ttl) -> not on(cache, :put_new, :cats.member(cache, key))
      options -> on(cache, :put_new, :cats.insert_new(cache, {key, value}, options))
    end
  end

  @doc """
  Stores the values of a list of pairs, or of a map. Others may see some of them before all are there. With
  `ttl: milliseconds` they live for a time of their own.
  """
  @spec put_all(cache, Enumerable.t(), ttl: lifetime) :: :ok
  def put_all(cache, pairs, options \\ []) do
    options = lifetime(cache, :put_all, options)
    list = listed(cache, pairs)
    check_pairs(cache, list)
    on(cache, :put_all, insert_all(cache, list, options))
    :ok
  end

  # Pairs that are inserted in one step, if they have a time of their own.
  @together 100

  defp insert_all(cache, pairs, options) when options == %{}, do: :cats.insert_many(cache, pairs)

  defp insert_all(cache, pairs, %{ttl: ttl}) when is_over(ttl),
    do: :cats.delete_many(cache, Enum.map(pairs, fn {key, _} -> key end))

  defp insert_all(cache, pairs, options),
    do: pairs |> Enum.chunk_every(@together) |> Enum.each(&:cats.insert(cache, &1, options))

  defp listed(cache, pairs) do
    Enum.to_list(pairs)
  rescue
    error in Protocol.UndefinedError ->
      if error.value === pairs, do: refuse_pairs(cache, pairs), else: reraise(error, __STACKTRACE__)
  end

  defp check_pairs(_cache, []), do: :ok
  defp check_pairs(cache, [{_, _} | pairs]), do: check_pairs(cache, pairs)
  defp check_pairs(cache, [other | _]), do: refuse_pairs(cache, other)
  defp check_pairs(cache, other), do: refuse_pairs(cache, other)

  @spec refuse_pairs(cache, term) :: no_return
  defp refuse_pairs(cache, other), do: refuse(cache, :put_all, "takes pairs {key, value}", other)

  @doc """
  The value of a key. If there is none, the function makes it from the key, and it is stored.

  Of several processes that miss the key, one calls the function, and the others wait for the value. If it fails, all of
  them fail with its exception. Options are:

    * `ttl: milliseconds`: how long the value lives that the function makes.
    * `stale: milliseconds`: for so long after its end, the old value is returned at once, while a process of its own
      makes the new one.
    * `refresh_ahead: milliseconds`: for so long before its end, the value is returned at once, while a process of its
      own makes the new one.
    * `negative_ttl: milliseconds`: for so long after the function has failed, calls with this option fail with the same
      exception, unless the key was written.
    * `returns: :outcome`: the function returns `{:store, value}`, `{:store, value, ttl: milliseconds}`, or
      `{:ignore, value}`, which is not stored. All of them return the value.
    * `timeout: milliseconds`: how long to wait for the function of another process.
    * `retry: true`: when the function of another process has failed, one of those that have waited calls its own.
    * `refresh_timeout: milliseconds`: how long the process of `stale` may take, before it is killed. By default a
      minute.

  See `:cats.fetch/4`.
  """
  @spec fetch(cache, key, (key -> value | outcome), [option]) :: value
        when option:
               {:ttl, lifetime}
               | {:stale, 0..1_099_511_627_775}
               | {:refresh_ahead, 0..1_099_511_627_775}
               | {:negative_ttl, 0..1_099_511_627_775}
               | {:returns, :value | :outcome}
               | {:timeout, timeout}
               | {:retry, boolean}
               | {:refresh_timeout, 1..4_294_967_295 | :infinity}
  def fetch(cache, key, fun, options \\ []) do
    check_fun(cache, :fetch, fun)
    check_options(cache, :fetch, options)
    {returns, is_over, native} = returns(options)

    if returns == :outcome or is_over do
      made = fn key -> outcome(cache, :fetch, returns, is_over, key, fun.(key)) end

      # What is ignored is no pair, so that it differs from an object.
      case on(cache, :fetch, :cats.fetch(cache, key, made, Map.put(native, :returns, :outcome))) do
        {_, value} -> value
        {value} -> value
        # A function of `fetch_many/4`, of another process, has left out the key.
        {} -> fetch(cache, key, fun, options)
      end
    else
      {_, value} = on(cache, :fetch, :cats.fetch(cache, key, fn key -> {key, fun.(key)} end, native))
      value
    end
  end

  # What the function returns, whether the time of its values is over, and the options for `:cats`.
  defp returns(options) do
    {returns, options} = Map.pop(first(options), :returns)
    if is_over(options[:ttl]), do: {returns, true, Map.delete(options, :ttl)}, else: {returns, false, options}
  end

  # An outcome for `:cats.fetch/4`.
  defp outcome(cache, function, returns, is_over, key, answer) do
    case made(returns, cache, function, key, answer) do
      {:store, {_, value}} when is_over -> {:ignore, {value}}
      outcome -> outcome
    end
  end

  defp made(:outcome, _cache, _function, key, {:store, value}), do: {:store, {key, value}}
  defp made(:outcome, _cache, _function, _key, {:ignore, value}), do: {:ignore, {value}}

  defp made(:outcome, cache, function, key, {:store, value, options}) do
    case lifetime(cache, :"#{function}'s outcome", options) do
      %{ttl: ttl} when is_over(ttl) -> {:ignore, {value}}
      options -> {:store, {key, value}, options}
    end
  end

  defp made(:outcome, cache, function, _key, other) do
    refuse(
      cache,
      function,
      "needs a function that returns {:store, value}, {:store, value, ttl: milliseconds} or {:ignore, value}",
      other
    )
  end

  defp made(_value, _cache, _function, key, value), do: {:store, {key, value}}

  @doc """
  The value of a key. Raises a `KeyError` if there is none.
  """
  @spec fetch!(cache, key) :: value
  def fetch!(cache, key) do
    case on(cache, :fetch!, :cats.lookup(cache, key)) do
      [{_, value}] -> value
      [] -> raise KeyError, key: key, term: cache
    end
  end

  @doc """
  The values of a list of keys, as a map. The keys that have none are given to the function, as a list. It makes their
  values, all at once, and they are stored. It is not called if all keys have values.

  The function returns pairs `{key, value}`, as a list or a map. A key that it leaves out is not in the result, and the
  next call asks for it again. Keys that another process is making values for are not given to the function. Their
  values are waited for. If the function of either call fails, all that wait for it fail with its exception.

  Options are `ttl`, `negative_ttl`, `timeout` and `retry`, which mean the same as for `fetch/4`, and
  `returns: :outcome`: the function then returns pairs of a key and `{:store, value}`,
  `{:store, value, ttl: milliseconds}`, or `{:ignore, value}`, which is not stored.

  See `:cats.fetch_many/4`.
  """
  @spec fetch_many(cache, [key], ([key] -> pairs), [option]) :: %{key => value}
        when pairs: %{key => value | outcome} | [{key, value | outcome}],
             option:
               {:ttl, lifetime}
               | {:negative_ttl, 0..1_099_511_627_775}
               | {:returns, :value | :outcome}
               | {:timeout, timeout}
               | {:retry, boolean}
  def fetch_many(cache, keys, fun, options \\ []) do
    is_list(keys) or refuse(cache, :fetch_many, "takes a list of keys", keys)
    check_fun(cache, :fetch_many, fun)
    check_options(cache, :fetch_many, options)
    {returns, is_over, options} = returns(options)

    made = fn missing ->
      answers = answers(cache, missing, fun.(missing))

      for key <- missing do
        case answers do
          %{^key => answer} -> outcome(cache, :fetch_many, returns, is_over, key, answer)
          _ -> {:ignore, {}}
        end
      end
    end

    results = on(cache, :fetch_many, :cats.fetch_many(cache, keys, made, Map.put(options, :returns, :outcome)))

    # A pair, or a tuple of a value that is not stored, or of none for a key that was left out.
    for {key, result} <- Enum.zip(keys, results), result != {}, into: %{} do
      {key, elem(result, tuple_size(result) - 1)}
    end
  end

  defp answers(cache, keys, %{} = answers) when not is_struct(answers) do
    for {key, _} <- Map.drop(answers, keys) do
      refuse(cache, :fetch_many, "needs a function that returns values of the keys that it gets", key)
    end

    answers
  end

  defp answers(cache, keys, answers) do
    pairs?(answers) or refuse(cache, :fetch_many, "needs a function that returns pairs {key, value}", answers)
    answers(cache, keys, Map.new(answers))
  end

  defp pairs?([]), do: true
  defp pairs?([{_, _} | pairs]), do: pairs?(pairs)
  defp pairs?(_), do: false

  @changes "{get, value}, {:ignore, get} or :pop"

  @doc """
  Changes the value of a key, atomically. The function gets the value, or `nil`. It returns `{get, value}`, `:pop` to
  delete the key, or `{:ignore, get}` to change nothing. Returns `get`, or for `:pop` the old value. If another process
  changes the value meanwhile, the function is called again, so it must have no effect that may not be repeated. After
  1000 calls it raises an error. It also does so if the function itself changes the value.

  The value keeps its time to live.
  """
  @spec get_and_update(cache, key, (value | nil -> {get, value} | {:ignore, get} | :pop)) :: get | value when get: term
  def get_and_update(cache, key, fun) do
    check_fun(cache, :get_and_update, fun)

    change = fn values ->
      case fun.(List.first(values)) do
        :pop -> :pop
        {:ignore, get} -> {:keep, get}
        {get, new} -> {:put, get, new}
        other -> refuse(cache, :get_and_update, "needs a function that returns #{@changes}", other)
      end
    end

    change(:get_and_update, cache, key, change, 1)
  end

  # The most calls of the function.
  @calls 1000

  # The function gets a list of the value, or an empty one.
  defp change(function, cache, key, fun, call) do
    objects = on(cache, function, :cats.lookup(cache, key))

    {result, done} =
      case {fun.(for {_, value} <- objects, do: value), objects} do
        {:pop, []} -> {nil, true}
        {:pop, [{_, value} = old]} -> {value, deleted?(cache, key, old)}
        {{:keep, get}, _} -> {get, true}
        {{:put, get, new}, []} -> {get, :cats.insert_new(cache, {key, new})}
        {{:put, get, new}, [old]} -> {get, :cats.replace(cache, old, {key, new})}
      end

    cond do
      done ->
        result

      call < @calls ->
        change(function, cache, key, fun, call + 1)

      true ->
        raise "the value of #{inspect(key)} in #{inspect(cache)} was changed during each of #{@calls} calls of the " <>
                "function: the function itself writes to its key, or is slower than other processes that do"
    end
  end

  defp deleted?(cache, key, object),
    do: :cats.update(cache, key, &if(&1 === object, do: :delete, else: :keep)) == :delete

  @doc """
  Changes the value of a key by a function of the old one, atomically. If there is none, stores the default. Returns the
  new value. The function may be called several times, as that of `get_and_update/3`.
  """
  @spec update(cache, key, default :: value, (value -> value)) :: value
  def update(cache, key, default, fun) do
    check_fun(cache, :update, fun)

    change = fn
      [] -> {:put, default, default}
      [value] -> with(new <- fun.(value), do: {:put, new, new})
    end

    change(:update, cache, key, change, 1)
  end

  @doc """
  Adds an integer to the value of a key, or to the default if there is none. Returns the sum.
  """
  @spec increment(cache, key, integer, default :: integer) :: integer
  def increment(cache, key, by \\ 1, default \\ 0), do: add(:increment, cache, key, 1, by, default)

  @doc """
  Subtracts an integer from the value of a key, or from the default if there is none. Returns the difference.
  """
  @spec decrement(cache, key, integer, default :: integer) :: integer
  def decrement(cache, key, by \\ 1, default \\ 0), do: add(:decrement, cache, key, -1, by, default)

  defp add(function, cache, key, sign, by, default) do
    for number <- [by, default], not is_integer(number), do: refuse(cache, function, "takes integers", number)
    on(cache, function, :cats.update_counter(cache, key, {2, sign * by}, {key, default}))
  end

  @doc """
  Deletes a key.
  """
  @spec delete(cache, key) :: :ok
  def delete(cache, key) do
    true = on(cache, :delete, :cats.delete(cache, key))
    :ok
  end

  @doc """
  Deletes a key and returns its value, or `nil`.
  """
  @spec take(cache, key) :: value | nil
  def take(cache, key) do
    case on(cache, :take, :cats.take(cache, key)) do
      [{_, value}] -> value
      [] -> nil
    end
  end

  @doc """
  Changes options of the cache: `ttl:`, `limit:`, `evict:` and `stats:`, as `:cats.setopts/2` does.

  Values that are there keep their time. A lower limit has evicted what is too much when the call returns. `ttl:` may be
  changed in a cache that was started with it, or without any of `ttl:`, `idle:`, `limit:` and `engine:`. `limit:` and
  `evict:` may be changed in one that was started with `limit:`. A cache that is started again has the options of its
  start.
  """
  @spec configure(cache, [option]) :: :ok
        when option:
               {:ttl, 1..1_099_511_627_775 | :infinity}
               | {:limit, :cats.limit()}
               | {:evict, :cats.policy()}
               | {:stats, boolean}
  def configure(cache, options) do
    check_options(cache, :configure, options)
    size(cache, :configure)

    with {:error, reason, stack} <- GenServer.call(cache, {:configure, options}, :infinity),
         do: :erlang.raise(:error, reason, stack)
  end

  @doc """
  Writes all values to a file, with the times that they still live. Values that other processes change meanwhile may be
  the old or the new ones. A file of this name is replaced when the new one is whole.
  """
  @spec dump(cache, Path.t()) :: :ok | {:error, file_error}
  def dump(cache, path) do
    size(cache, :dump)

    case :cats.tab2file(cache, file(path), extended_info: [:object_count, :md5sum]) do
      :ok -> :ok
      {:error, :badtab} -> refuse_absent(cache, :dump)
      {:error, :eaccess} -> {:error, :eacces}
      {:error, {:file_error, _, reason}} -> {:error, reason}
      {:error, reason} -> {:error, reason}
    end
  end

  @doc """
  Stores the values of a file that `dump/2` has written, beside those that are there. A value of the file takes the
  place of one with the same key.

  Each lives as long as it would have lived without the file: what has expired since the dump is not stored. In a cache
  without times it stays. A limit holds, so the cache may evict some.

  The whole file is checked before the first value is stored. `{:error, :not_a_cache}` says that the file is none of
  `dump/2`, and `{:error, :damaged}` that it is cut or changed. Where the limit is met and nothing is evicted, this
  raises as `put/3` does, and what came before stays.
  """
  @spec load(cache, Path.t()) :: :ok | {:error, file_error}
  def load(cache, path) do
    size(cache, :load)
    on(cache, :load, :cats_file.load(cache, file(path)))
  end

  # The name of a file as `:disk_log` takes it.
  defp file(path), do: path |> IO.chardata_to_string() |> String.to_charlist()

  @doc """
  Deletes all keys.
  """
  @spec clear(cache) :: :ok
  def clear(cache) do
    true = on(cache, :clear, :cats.delete_all_objects(cache))
    :ok
  end

  @doc """
  Whether the key has a value.
  """
  @spec has_key?(cache, key) :: boolean
  def has_key?(cache, key), do: on(cache, :has_key?, :cats.member(cache, key))

  @doc """
  The number of values.
  """
  @spec size(cache) :: non_neg_integer
  def size(cache), do: size(cache, :size)

  defp size(cache, function) do
    case :cats.info(cache, :size) do
      :undefined -> refuse_absent(cache, function)
      size -> size
    end
  end

  @doc """
  The milliseconds that the value of a key still lives, `:infinity`, or `nil` if there is none.
  """
  @spec ttl(cache, key) :: lifetime | nil
  def ttl(cache, key) do
    case on(cache, :ttl, :cats.ttl(cache, key)) do
      :undefined -> nil
      time -> time
    end
  end

  @doc """
  Lets the value of a key live for so many milliseconds from now on. Returns false if there is none.
  """
  @spec touch(cache, key, lifetime) :: boolean
  def touch(cache, key, ttl) do
    check_options(cache, :touch, ttl: ttl)
    on(cache, :touch, if(is_over(ttl), do: :cats.take(cache, key) != [], else: :cats.touch(cache, key, ttl)))
  end

  @doc """
  A list of all keys.
  """
  @spec keys(cache) :: [key]
  def keys(cache), do: on(cache, :keys, :cats.select(cache, [{{:"$1", :_}, [], [:"$1"]}]))

  @doc """
  A stream of all pairs of key and value. It reads the cache in slices.
  """
  @spec stream(cache) :: Enumerable.t()
  def stream(cache) do
    Cats.Table.stream(Cats.Table.wrap(cache), [{:_, [], [:"$_"]}], fn select -> on(cache, :stream, select.()) end)
  end
end
