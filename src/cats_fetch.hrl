%% What the modules of fetches share.

%% How a fetch was called.
-record(call,
        {name :: fetch | fetch_many,
         function :: fun((term()) -> term()),
         %% The arguments of `cats:fetch' or `cats:fetch_many'.
         called :: [term()],
         %% What the function returns.
         returns = object :: object | outcome,
         %% A monotonic time in milliseconds up to which to wait for others.
         deadline = infinity :: integer() | infinity,
         %% The lifetime of the object that the function makes.
         ttl = default :: cats:lifetime() | default,
         %% For how long after its end an object may be given out.
         stale = 0 :: non_neg_integer(),
         %% For how long before its end an object is renewed.
         refresh_ahead = 0 :: non_neg_integer(),
         %% Whether to look again when the function of another process fails.
         retry = false :: boolean(),
         %% For how long a failure is remembered. If not at all, none that is remembered is given to this call.
         negative_ttl = 0 :: non_neg_integer(),
         %% How long a renewer may take, in milliseconds.
         refresh_timeout = 60_000 :: pos_integer() | infinity}).

%% How a flight ends, or one of its keys.
-define(made(Object), {cats_flight, made, Object}).
-define(ignored(Value), {cats_flight, ignored, Value}).
-define(absent, {cats_flight, absent}).
-define(failed(Class, Reason, Stack), {cats_flight, failed, Class, Reason, Stack}).
-define(ended, {cats_flight, ended}).

%% What a flight is told besides: that another process has written to the key with this number, that a process waits for
%% some keys, and that somebody asks for a key that a process waits for.
-define(written(Number), {cats_flight, written, Number}).
-define(waits(Process, Alias, Numbers), {cats_flight, waits, Process, Alias, Numbers}).
-define(place(Process, Tag, Waits), {cats_flight, place, Process, Tag, Waits}).
