%% Matching and selecting: the loops over native slices, and the continuations of calls with a limit.
%%
%% A slice holds its scheduler for well under a millisecond and leaves a native cursor, which holds no lock and
%% never changes. So going on twice from a continuation does the same twice, but for changes of the table.
-module(cats_select).

-include("cats_failure.hrl").

-export([all/3, chunk/4, next_chunk/2, repair/2]).

-export_type([continuation/0]).

-type continuation() :: '$end_of_table'
                      | {Identifier :: reference(), cats_nif:cursor(),
                         %% Where the cursor stands, as a term that survives it, and the function that goes that way.
                         cats_nif:place(), select | select_reverse,
                         %% How many results make a chunk.
                         Limit :: pos_integer(),
                         %% Results that were found too many, the next ones at the end.
                         Surplus :: [term()]}.

%% @private
%% @doc The whole of a call without a limit. `Function' is one of `cats', and its name that of the work.
-spec all(Function :: atom(), cats:table(), Specification :: term()) -> [term()] | non_neg_integer().
all(Function, Table, Specification) ->
    Sliced = ?RESULT(cats_nif:select(Function, Table, Specification, infinity), select,
                     Function, [Table, Specification]),
    case Sliced of
        {_, _, _} ->
            cats_slices:finish(Sliced,
                               fun(Cursor, Result) -> slice(Cursor, Result, Function, [Table, Specification]) end);
        Result -> Result
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
    Sliced = ?RESULT(cats_nif:select(Function, Table, Specification, NativeLimit), select, Function, Arguments),
    {Rest, Chunk, Continue} = complete(Sliced, [], Limit, Function, Arguments),
    result(Chunk, Continue, {way(Function), Limit, Rest}).

way(select_reverse) -> select_reverse;
way(_Function) -> select.

%% @private
%% @doc The next chunk. `Function' is the one of `cats' that was called.
-spec next_chunk(Function :: atom(), continuation()) -> {[term()], continuation()} | '$end_of_table'.
next_chunk(_Function, '$end_of_table') ->
    '$end_of_table';
next_chunk(Function, {Table, Cursor, Place, Way, Limit, Surplus} = Continuation) ->
    {Rest, Chunk, Continue} =
        case begin_chunk(Function, Continuation, Table, Cursor, missing(Way, Limit, Surplus)) of
            ok -> split(Surplus, Limit, {Table, Cursor, Place});
            Sliced -> complete(Sliced, Surplus, Limit, Function, [Continuation])
        end,
    %% As in ets, what is left of a surplus is turned round.
    result(Chunk, Continue, {Way, Limit, lists:reverse(Rest)});
next_chunk(Function, Continuation) when is_tuple(Continuation), tuple_size(Continuation) > 0 ->
    begin_chunk(Function, Continuation, element(1, Continuation), no_cursor, 0);
next_chunk(Function, Continuation) ->
    cats_failure:fail(badarg, none, Function, [Continuation]).

%% As in ets, the table is complained about first.
begin_chunk(Function, Continuation, Table, Cursor, Missing) ->
    ?RESULT(cats_nif:select_chunk(Table, Cursor, Missing), select_chunk, Function, [Continuation]).

%% How many results a chunk lacks; no number if the continuation was not made here.
missing(Way, Limit, Surplus)
  when Way =:= select orelse Way =:= select_reverse, is_integer(Limit), Limit > 0, length(Surplus) >= 0 ->
    max(Limit - length(Surplus), 0);
missing(_Way, _Limit, _Surplus) ->
    unknown.

%% Brings a chunk to its end. `Surplus' are the results that there were before.
complete({Order, Results, Cursor, Place, Table}, Surplus, Limit, _Function, _Arguments) ->
    Found = case Order of
                reversed -> lists:reverse(Results);
                chunk -> Results ++ Surplus
            end,
    split(Found, Limit, {Table, Cursor, Place});
complete({Results, Cursor, _Words}, Surplus, Limit, Function, Arguments) ->
    complete(slice(Cursor, Results, Function, Arguments), Surplus, Limit, Function, Arguments).

%% A chunk are the last results: those of a key come from the newest to the oldest, chunk by chunk, and within a chunk
%% in the order of insertion.
split(Results, Limit, Continue) ->
    {Rest, Chunk} = lists:split(max(length(Results) - Limit, 0), Results),
    {Rest, Chunk, Continue}.

result([], {_Table, _Cursor, '$end_of_table'}, {_Way, _Limit, []}) ->
    '$end_of_table';
result(Chunk, {_Table, _Cursor, '$end_of_table'}, {_Way, _Limit, []}) ->
    {Chunk, '$end_of_table'};
result(Chunk, {Table, Cursor, Place}, {Way, Limit, Surplus}) ->
    {Chunk, {Table, Cursor, Place, Way, Limit, Surplus}}.

slice(Cursor, Result, Function, Arguments) ->
    ?RESULT(cats_nif:select_on(Cursor, Result), select_on, Function, Arguments).

%% @private
%% @doc Replaces a cursor that has not survived by one at the same place.
-spec repair(continuation(), cats:match_spec()) -> continuation().
repair('$end_of_table', _MatchSpec) ->
    '$end_of_table';
repair({Table, Cursor, Place, Way, _Limit, _Surplus} = Continuation, MatchSpec) ->
    case cats_nif:is_cursor(Cursor) of
        true ->
            Continuation;
        false ->
            NewCursor = ?RESULT(cats_nif:select_at(Way, Table, MatchSpec, Place), select_at,
                                repair_continuation, [Continuation, MatchSpec]),
            setelement(2, Continuation, NewCursor)
    end;
repair(Continuation, MatchSpec) ->
    cats_failure:fail(badarg, none, repair_continuation, [Continuation, MatchSpec]).
