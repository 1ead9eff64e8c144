%% @hidden
%% @doc What is valid in the place of an invalid option, in words.
-module(cats_options).
-export([valid/2, names/1]).

%% @doc What the option of this function may be, or the names of all its options if it has none of that name.
-spec valid(new | setopts, Option :: term()) -> unicode:chardata().
valid(Function, Option) ->
    Name = case is_tuple(Option) andalso tuple_size(Option) > 0 of
               true -> element(1, Option);
               false -> Option
           end,
    case lists:keyfind(Name, 1, options(Function)) of
        {_, Words} -> Words;
        false -> lists:join(", ", [atom_to_list(Known) || Known <- names(Function)])
    end.

%% @doc The names of the options of a function.
-spec names(new | setopts) -> [atom()].
names(Function) -> [Name || {Name, _} <- options(Function)].

options(setopts) ->
    [heir(), {protection, "{protection, public, protected or private}"}];
options(new) ->
    [{Flag, [atom_to_list(Flag), ", without a value"]}
     || Flag <- [set, ordered_set, bag, duplicate_bag, public, protected, private, named_table, compressed]]
    ++ [heir(),
        {keypos, "{keypos, an integer of at least 1}"},
        {write_concurrency, "{write_concurrency, true, false or auto}, or a power of two with engine linear_hash"},
        {read_concurrency, boolean(read_concurrency)},
        {decentralized_counters, boolean(decentralized_counters)},
        {stats, boolean(stats)},
        {ttl, lifetime(ttl)},
        {idle, lifetime(idle)},
        {limit, "{limit, {objects, N}} or {limit, {bytes, N}}, with an integer of at least 1"},
        {evict, "{evict, s3_fifo, sieve, clock or none}"},
        {notify, "{notify, process} or {notify, process, options}, with events, send, queue, batch and interval: see"
                 " cats:notify_option()"},
        {snapshot_limit, "{snapshot_limit, bytes of at least 0}"},
        {engine, ["{engine, ", one_of([Name || #{name := Name} <- cats:engines()]), "}"]},
        {lock, "{lock, rw, dr_mcs, cc_synch, mrqd or ets_pointer}"},
        {delegate, "{delegate, wait, malloc or copy}"},
        {static_stack, boolean(static_stack)},
        {split, "{split, an integer of at least 0}"},
        {join, "{join, an integer of at least 0}"},
        {base_lock, "{base_lock, mutex or rw}"}].

heir() -> {heir, "{heir, process}, {heir, process, data}, {heir, none} or {heir, keep}"}.

boolean(Name) -> io_lib:format("{~s, true or false}", [Name]).

lifetime(Name) -> io_lib:format("{~s, 1 to 1099511627775 milliseconds, or infinity}", [Name]).

one_of(Names) ->
    {Others, [Last]} = lists:split(length(Names) - 1, [atom_to_list(Name) || Name <- Names]),
    [lists:join(", ", Others), " or ", Last].
