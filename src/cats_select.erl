%% Matching and selecting: the loops over native slices, and the continuations of calls with a limit.
%%
%% A slice holds its scheduler for well under a millisecond and leaves a native cursor, which holds no lock and
%% never changes. So going on twice from a continuation does the same twice, but for changes of the table.
-module(cats_select).
-export([all/3, chunk/4, next_chunk/2, repair/2]).

-export_type([continuation/0]).

-type continuation() :: '$end_of_table'
                      | {cats:table(),
                         %% Where the scan stands, if there is more.
                         cats_nif:cursor() | '$end_of_table',
                         %% The same as a term that survives the cursor, and the function that goes that way.
                         cats_nif:place(), select | select_reverse,
                         %% How many results make a chunk.
                         Limit :: pos_integer(),
                         %% Results that were found too many: all objects of a key are read at once.
                         Surplus :: [term()]}.

%% @private
%% @doc The whole of a call without a limit. `Function' is one of `cats', and its name that of the work.
-spec all(Function :: atom(), cats:table(), Specification :: term()) -> [term()] | non_neg_integer().
all(Function, Table, Specification) ->
    Sliced = try
                 cats_nif:select(Function, Table, Specification, infinity)
             catch
                 error:Cause:Stack ->
                     Native = [Function, Table, Specification, infinity],
                     cats_failure:handle(Cause, {select, Native}, Function, [Table, Specification], Stack)
             end,
    cats_slices:finish(Sliced, fun(Cursor, Result) -> slice(Cursor, Result, Function, [Table, Specification]) end).

%% @private
%% @doc The first chunk of a call with a limit.
-spec chunk(Function :: atom(), cats:table(), Specification :: term(), Limit :: term()) ->
          {[term()], continuation()} | '$end_of_table'.
chunk(Function, Table, Specification, Limit) ->
    Arguments = [Table, Specification, Limit],
    %% The native function refuses 0 in the turn in which ets checks limits: after the table.
    NativeLimit = case is_integer(Limit) of
                      true -> Limit;
                      false -> 0
                  end,
    Sliced = try
                 cats_nif:select(Function, Table, Specification, NativeLimit)
             catch
                 error:Cause:Stack ->
                     Native = {select, [Function, Table, Specification, NativeLimit]},
                     cats_failure:handle(Cause, Native, Function, Arguments, Stack)
             end,
    complete(Sliced, [], {Table, Limit, way(Function)}, Function, Arguments).

way(select_reverse) -> select_reverse;
way(_Function) -> select.

%% @private
%% @doc The next chunk. `Function' is the one of `cats' that was called.
-spec next_chunk(Function :: atom(), continuation()) -> {[term()], continuation()} | '$end_of_table'.
next_chunk(_Function, '$end_of_table') ->
    '$end_of_table';
next_chunk(Function, {Table, Cursor, Place, Way, Limit, Surplus} = Continuation)
  when is_integer(Limit), Limit > 0, is_list(Surplus) ->
    Scan = {Table, Limit, Way},
    case take(Limit, Surplus) of
        {Results, Rest, 0} -> {Results, continuation(Scan, Cursor, Place, Rest)};
        {Results, [], _Missing} when Cursor =:= '$end_of_table' -> {Results, '$end_of_table'};
        {_Few, [], Missing} ->
            Sliced = try
                         cats_nif:select_chunk(Cursor, Missing)
                     catch
                         error:none ->
                             bad_continuation(Function, Continuation);
                         error:Cause:Stack ->
                             Native = {select_chunk, [Cursor, Missing]},
                             cats_failure:handle(Cause, Native, Function, [Continuation], Stack)
                     end,
            complete(Sliced, Surplus, Scan, Function, [Continuation])
    end;
next_chunk(Function, Continuation) ->
    bad_continuation(Function, Continuation).

%% As ets does it, the table is complained about first.
-spec bad_continuation(atom(), term()) -> no_return().
bad_continuation(Function, Continuation) when is_tuple(Continuation), tuple_size(Continuation) > 0 ->
    Table = element(1, Continuation),
    _ = try
            cats_nif:first(Table)
        catch
            error:Cause:Stack -> cats_failure:handle(Cause, {first, [Table]}, Function, [Continuation], Stack)
        end,
    cats_failure:fail(badarg, none, Function, [Continuation]);
bad_continuation(Function, Continuation) ->
    cats_failure:fail(badarg, none, Function, [Continuation]).

%% Brings a chunk to its end. `Earlier' are results that stand before it.
complete({chunk, Reversed, Cursor, Place}, Earlier, {_, Limit, _} = Scan, _Function, _Arguments) ->
    {Results, Surplus, 0} = take(Limit, Earlier ++ lists:reverse(Reversed)),
    {Results, continuation(Scan, Cursor, Place, Surplus)};
complete({Reversed, Cursor, _Words}, Earlier, Scan, Function, Arguments) ->
    complete(slice(Cursor, Reversed, Function, Arguments), Earlier, Scan, Function, Arguments);
complete([], [], _Scan, _Function, _Arguments) ->
    '$end_of_table';
complete(Reversed, Earlier, {_, Limit, _} = Scan, _Function, _Arguments) ->
    {Results, Surplus, _Missing} = take(Limit, Earlier ++ lists:reverse(Reversed)),
    {Results, continuation(Scan, '$end_of_table', [], Surplus)}.

continuation(_Scan, '$end_of_table', _Place, []) -> '$end_of_table';
continuation({Table, Limit, Way}, Cursor, Place, Surplus) -> {Table, Cursor, Place, Way, Limit, Surplus}.

%% The first results, up to so many, the others, and how many the first ones lack.
take(Limit, Results) ->
    take(Limit, Results, []).

take(0, Results, Taken) -> {lists:reverse(Taken), Results, 0};
take(Missing, [], Taken) -> {lists:reverse(Taken), [], Missing};
take(Missing, [Result | Results], Taken) -> take(Missing - 1, Results, [Result | Taken]).

slice(Cursor, Result, Function, Arguments) ->
    try
        cats_nif:select_on(Cursor, Result)
    catch
        error:Cause:Stack ->
            cats_failure:handle(Cause, {select_on, [Cursor, Result]}, Function, Arguments, Stack)
    end.

%% @private
%% @doc Replaces a cursor that has not survived by one at the same place.
-spec repair(continuation(), cats:match_spec()) -> continuation().
repair('$end_of_table', _MatchSpec) ->
    '$end_of_table';
repair({_Table, '$end_of_table', _Place, _Way, Limit, _Surplus} = Continuation, _MatchSpec) when is_integer(Limit) ->
    Continuation;
repair({Table, Cursor, Place, Way, Limit, Surplus} = Continuation, MatchSpec)
  when is_reference(Cursor), is_integer(Limit), is_list(Surplus) ->
    case cats_nif:is_cursor(Cursor) of
        true ->
            Continuation;
        false ->
            Native = [Way, Table, MatchSpec, Place],
            NewCursor = try
                            cats_nif:select_at(Way, Table, MatchSpec, Place)
                        catch
                            error:Cause:Stack ->
                                Arguments = [Continuation, MatchSpec],
                                cats_failure:handle(Cause, {select_at, Native}, repair_continuation, Arguments, Stack)
                        end,
            {Table, NewCursor, Place, Way, Limit, Surplus}
    end.
