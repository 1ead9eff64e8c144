%% The texts on ETS that experiments follow.
-define(SCALABILITY,
        "Klaftenegger, Sagonas, Winblad, \"On the Scalability of the Erlang Term Storage\" (2013)").
-define(ADAPTATION,
        "Sagonas, Winblad, \"More Scalable Ordered Set for ETS Using Adaptation\" (2014)").
-define(RELEASE,
        "Sagonas and others, \"Robust Scalable Erlang Virtual Machine\", RELEASE deliverable D2.4 (2015)").
-define(TWEAK, "Green, \"Ets read concurrency tweak\", erlang-questions, 17 May 2015").
