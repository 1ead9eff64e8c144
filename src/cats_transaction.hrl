%% The state of a transaction, in the dictionary of its process. `cats_run' makes it, `cats_view' and `cats_transaction'
%% change it.

%% The key of the process dictionary for the state of the transaction that runs.
-define(STATE, '$cats_transaction').

-record(run, {
    process :: pid(),
    %% The transaction runs while its process has at least so many catches.
    level :: pos_integer(),
    %% A monotonic time in milliseconds.
    deadline :: integer() | infinity,
    %% The bytes of what it has read and of the logs of its tables.
    memory :: non_neg_integer() | infinity,
    %% The keeper, if the transaction is the preferred one.
    keeper = none :: pid() | none
}).

-record(table, {
    %% As it was called.
    name :: cats:table(),
    tid :: reference(),
    type :: cats:table_type(),
    position :: pos_integer()
}).

-record(state, {
    run :: #run{},
    %% The latest used first.
    tables = [] :: [#table{}],
    %% What a read compares, the latest first. Or why the function cannot go on.
    notes = [] :: [cats_nif:note()] | conflict | memory,
    %% What shall be written.
    writes = cats_writes:none() :: cats_writes:writes(),
    %% How many objects a read compares.
    compared = 0 :: non_neg_integer(),
    %% A transaction that has read much: what it has read besides the notes.
    long = none :: none | reference()
}).
