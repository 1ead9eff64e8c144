%% Matching and selecting: the loops over native slices, and the continuations of calls with a limit.
%%
%% A slice holds its scheduler for well under a millisecond and leaves a native cursor, which holds no lock and
%% never changes. A continuation is `{Table, Cursor, Limit, Surplus}': where the scan stands (`$end_of_table' if
%% there is no more), how many results make a chunk, and results that were found too many (all objects of a key
%% are read at once).
%% Going on twice from a continuation does the same twice, but for changes of the table.
-module(cats_select).
-export([all/3, chunk/4, next_chunk/2, repair/2]).

-export_type([continuation/0]).

-type continuation() :: '$end_of_table'
                      | {cats:table(), cats_nif:cursor() | '$end_of_table', Limit :: pos_integer(), Surplus :: [term()]}.

%% @private
%% @doc The whole of a call without a limit. `Function' is one of `cats', and its name that of the work.
-spec all(Function :: atom(), cats:table(), Specification :: term()) -> [term()] | non_neg_integer().
all(Function, Table, Specification) ->
    Native = [Function, Table, Specification, infinity],
    Sliced = try
                 cats_nif:select(Function, Table, Specification, infinity)
             catch
                 error:Cause:Stack ->
                     cats_failure:handle(Cause, {select, Native}, Function, [Table, Specification], Stack)
             end,
    case Sliced of
        {Result, Cursor} -> all_on(Cursor, Result, Function, [Table, Specification]);
        Result -> Result
    end.

all_on(Cursor, Result, Function, Arguments) ->
    case slice(Cursor, Result, Function, Arguments) of
        {MoreResult, NextCursor} -> all_on(NextCursor, MoreResult, Function, Arguments);
        WholeResult -> WholeResult
    end.

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
    complete(Sliced, [], Table, Limit, Function, Arguments).

%% @private
%% @doc The next chunk. `Function' is the one of `cats' that was called.
-spec next_chunk(Function :: atom(), continuation()) -> {[term()], continuation()} | '$end_of_table'.
next_chunk(_Function, '$end_of_table') ->
    '$end_of_table';
next_chunk(Function, {Table, Cursor, Limit, Surplus} = Continuation)
  when is_integer(Limit), Limit > 0, is_list(Surplus) ->
    case take(Limit, Surplus) of
        {Results, Rest, 0} -> {Results, continuation(Table, Cursor, Limit, Rest)};
        {Results, [], _Missing} when Cursor =:= '$end_of_table' -> {Results, '$end_of_table'};
        {_Few, [], Missing} ->
            Sliced = try
                         cats_nif:select_chunk(Cursor, Missing)
                     catch
                         error:Cause:Stack ->
                             Native = {select_chunk, [Cursor, Missing]},
                             cats_failure:handle(Cause, Native, Function, [Continuation], Stack)
                     end,
            complete(Sliced, Surplus, Table, Limit, Function, [Continuation])
    end;
next_chunk(Function, Continuation) when is_tuple(Continuation), tuple_size(Continuation) > 0 ->
    %% As ets does it, the table is complained about first.
    _ = try
            cats_nif:lookup(element(1, Continuation), [])
        catch
            error:Cause:Stack -> cats_failure:handle(Cause, Function, [Continuation], Stack)
        end,
    cats_failure:fail(badarg, none, Function, [Continuation]);
next_chunk(Function, Continuation) ->
    cats_failure:fail(badarg, none, Function, [Continuation]).

%% Brings a chunk to its end. `Earlier' are results that stand before it.
complete({chunk, Reversed, Cursor}, Earlier, Table, Limit, _Function, _Arguments) ->
    {Results, Surplus, 0} = take(Limit, Earlier ++ lists:reverse(Reversed)),
    {Results, continuation(Table, Cursor, Limit, Surplus)};
complete({Reversed, Cursor}, Earlier, Table, Limit, Function, Arguments) ->
    complete(slice(Cursor, Reversed, Function, Arguments), Earlier, Table, Limit, Function, Arguments);
complete([], [], _Table, _Limit, _Function, _Arguments) ->
    '$end_of_table';
complete(Reversed, Earlier, Table, Limit, _Function, _Arguments) ->
    {Results, Surplus, _Missing} = take(Limit, Earlier ++ lists:reverse(Reversed)),
    {Results, continuation(Table, '$end_of_table', Limit, Surplus)}.

continuation(_Table, '$end_of_table', _Limit, []) -> '$end_of_table';
continuation(Table, Cursor, Limit, Surplus) -> {Table, Cursor, Limit, Surplus}.

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
repair({_Table, _Cursor, Limit, Surplus} = Continuation, _MatchSpec) when is_integer(Limit), is_list(Surplus) ->
    Continuation.
