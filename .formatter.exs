[inputs: ["lib/**/*.ex", "mix.exs", ".formatter.exs"], line_length: 120]
