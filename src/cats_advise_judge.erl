%% @private
%% Says of a table of `ets' that was watched whether cats would serve it better, and what would differ. All figures are
%% measurements of this project: docs/performance/index.md and docs/papers.md.
-module(cats_advise_judge).
-export([advice/1]).

%% From so many objects on a table does not fit into the caches of a processor.
-define(LARGE, 100_000).
%% Calls that say something about a table.
-define(SEEN, 5).
%% Microseconds of a second that threads wait, which do so too.
-define(WAITED, 10_000).

-define(WRITES, [insert, insert_new, update_counter, update_element, delete, delete_object, take, delete_all_objects,
                 match_delete, select_delete, select_replace]).
-define(WALKS, [first, last, next, prev, first_lookup, next_lookup, last_lookup, prev_lookup, foldl, foldr, tab2list,
                match, match_object, match_delete, select, select_count, select_delete, select_replace, safe_fixtable,
                slot]).
-define(SWEEPS, [delete, match_delete, select_delete, select_count, select, match, foldl, first, safe_fixtable]).

%% @doc The table with `advice', and why, what to expect and what differs, as sentences.
-spec advice(map()) -> map().
advice(Table) ->
    {Advice, Why} = decide(Table),
    Table#{advice => Advice, why => lists:flatten(Why), expect => [Text || Advice =/= stay, Text <- expect(Table)],
           differs => [Text || Advice =/= stay, Text <- differs(Table)]}.

decide(#{measured := #{low := Low} = Measured}) when Low < 1 ->
    {stay, said(Measured)};
decide(#{owner := #{otp := true}}) ->
    {stay, "It belongs to Erlang/OTP."};
decide(#{protection := private}) ->
    {stay, "It is private: nobody waits for another process there."};
decide(#{type := Type, owner := Owner} = Table) ->
    Mnesia = maps:get(application, Owner, undefined) =:= mnesia,
    case {is_cache(Table), count(Table), maps:get(callers, Table)} of
        {Yes, _, _} when Yes =/= false, Type =:= set, not Mnesia; Yes =/= false, Type =:= ordered_set, not Mnesia ->
            {cache, Yes};
        {_, _, _} when is_map_key(waited, Table), map_get(waited, Table) >= ?WAITED ->
            {transform, io_lib:format("Threads waited ~b ms of a second for its locks.",
                                      [map_get(waited, Table) div 1000])};
        {_, Seen, Callers} when Seen >= ?SEEN, Callers > 1 ->
            {transform, io_lib:format("~b processes called it in ~b of the calls that were seen.", [Callers, Seen])};
        {_, _, _} when map_get(size, Table) >= ?LARGE ->
            {transform, "It is large, and cats reads less memory for an object."};
        {_, Seen, _} when Seen >= ?SEEN ->
            {stay, "One process calls it, and it is small."};
        _ ->
            {stay, "Too few calls were seen: there is little to gain."}
    end.

%% Why it may be a cache: a name, if objects come or go, or objects with a time in them that are swept or removed.
is_cache(#{name := Name, samples := Samples} = Table) ->
    Text = string:lowercase(atom_to_list(Name)),
    Timed = length([timed || #{times := Times} <- Samples, Times > 0]),
    Words = [Word || Word <- ["cache", "session", "ttl", "expir"], string:find(Text, Word) =/= nomatch],
    Comes = uses([insert, insert_new], Table) > 0 orelse map_get(before, Table) =/= map_get(size, Table),
    case {Words, uses(?SWEEPS, Table)} of
        {[Word | _], Sweeps} when Comes; Sweeps > 0; Timed > 0 ->
            io_lib:format("Its name has \"~s\". If it is a cache, cats expires and limits its objects by itself.",
                          [Word]);
        {_, Sweeps} when Sweeps > 0, Timed > 0, 2 * Timed >= length(Samples) ->
            "Its objects have a time of these days in them, and are swept or deleted. cats expires objects by itself.";
        _ ->
            false
    end.

said(#{ratio := Ratio, low := Low, high := High, mix := Mix, percent := Percent, objects := Objects,
       processes := Processes}) ->
    Parts = [io_lib:format("~b % ~w", [N, Function])
             || {N, Function} <- lists:reverse(lists:sort([{N, Function} || {Function, N} <- maps:to_list(Mix)]))],
    io_lib:format("Measured here, cats was ~.2f (~.2f to ~.2f) times as fast: ~s of ~b objects by ~b processes. "
                  "That mix has ~b % of the calls that were seen.",
                  [Ratio, Low, High, lists:join(", ", Parts), Objects, Processes, Percent]).

expect(#{measured := Measured}) ->
    [lists:flatten(said(Measured))];
expect(#{type := Type, size := Size} = Table) ->
    [Text || {Text, true} <-
        [{"Calls of common programs took 0.7 to 0.8 of the time of ets by one process, and 0.5 to 0.6 by two at once "
          "(geometric mean of 127 calls, two releases of OTP).", true},
         {"Lookups among a million objects of a set were 1.6 to 2.7 times as fast.",
          Size >= ?LARGE andalso Type =:= set},
         {"With half a million keys an ordered_set was 3.4 times as fast by one process and 4.0 times by two.",
          Size >= ?LARGE andalso Type =:= ordered_set},
         {"Calls by name were 2.4 times as fast before OTP 29, and 1.15 times with it.", map_get(named_table, Table)},
         {"Objects with funs may be slower to read, on OTP 25.", has(function, Table)},
         {"Binaries of 200 to 4096 bytes may be slower to insert: 0.65 to 1.0 times as fast.", has_binary(Table)},
         {"Work on bags gained least: 1.1 to 1.3 times as fast.", Type =:= bag orelse Type =:= duplicate_bag}]].

differs(#{type := Type, heir := Heir, owner := Owner} = Table) ->
    Mnesia = maps:get(application, Owner, undefined) =:= mnesia,
    [Text || {Text, true} <-
        [{"Walks and lists of results have another order of keys.",
          Type =/= ordered_set andalso uses(?WALKS, Table) > 0},
         {"It is Mnesia's, so Mnesia has to keep it in cats, by cats_mnesia or recompiled. Transactions call Mnesia's "
          "own tables much more often than this one.", Mnesia},
         {"All modules that call it must be converted together.", not Mnesia},
         {"Its heir gets it as in ets; the message may come a little later.", Heir =/= none},
         {"safe_fixtable has no effect, as nothing has to be fixed.", uses([safe_fixtable], Table) > 0},
         {"ets:all/0, ets:i/0, observer and erlang:memory(ets) no longer show it.", true},
         {"Concurrency options are accepted and have no effect.",
          map_get(read_concurrency, Table) =:= true orelse map_get(write_concurrency, Table) =/= false}]].

count(#{calls := Calls}) -> lists:sum(maps:values(Calls)).

uses(Functions, #{calls := Calls}) -> lists:sum(maps:values(maps:with(Functions, Calls))).

has(Shape, #{samples := Samples}) ->
    lists:any(fun(#{values := Values}) -> lists:member(Shape, Values) end, Samples).

has_binary(#{samples := Samples} = Table) ->
    uses(?WRITES, Table) > 0
        andalso [B || #{values := Values} <- Samples, {binary, B} <- Values, B >= 200, B =< 4096] =/= [].
