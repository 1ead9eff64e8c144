defmodule Mix.Tasks.Compile.CatsNative do
  @moduledoc "Fetches or builds the native library, and makes it visible to the application."
  use Mix.Task.Compiler

  @impl true
  def run(_args) do
    script = Path.join(__DIR__, "scripts/install-native")
    # `config :cats, url: "https://..."` in the project that is built.
    url = System.get_env("CATS_URL") || Application.get_env(:cats, :url)

    case System.cmd(script, [], into: IO.stream(), stderr_to_stdout: true, env: [{"CATS_URL", url}]) do
      {_, 0} ->
        # A Mix that copies priv, and does not link it, has done so before.
        Mix.Project.build_structure()
        :ok

      {_, _} ->
        Mix.raise("cats: there is no native library, for the reason above")
    end
  end
end

defmodule Mix.Tasks.Compile.CatsDocs do
  @moduledoc "Adds the documentation to the compiled modules."
  use Mix.Task.Compiler

  @impl true
  def run(_args) do
    script = Path.join(__DIR__, "scripts/doc-chunks")

    case System.cmd(script, [Mix.Project.compile_path()], into: IO.stream(), stderr_to_stdout: true) do
      {_, 0} -> :ok
      {_, status} -> Mix.raise("cats: adding the documentation failed (#{status})")
    end
  end
end

defmodule Cats.MixProject do
  use Mix.Project

  {:ok, [{:application, :cats, application}]} = :file.consult(Path.join(__DIR__, "src/cats.app.src"))
  @application application

  def project do
    [
      app: :cats,
      version: to_string(@application[:vsn]),
      description: to_string(@application[:description]),
      compilers: [:cats_native] ++ Mix.compilers() ++ [:cats_docs],
      deps: deps(),
      package: [
        licenses: @application[:licenses],
        links: %{},
        files: Enum.map(@application[:files], &to_string/1)
      ]
    ]
  end

  def application, do: Keyword.take(@application, [:registered])

  # For Cats.LiveDashboardPage, which is compiled if the project that uses cats has it. Mix cannot even skip such a
  # package without Hex.
  defp deps do
    if Code.ensure_loaded?(Hex), do: [{:phoenix_live_dashboard, "~> 0.8", optional: true}], else: []
  end
end
