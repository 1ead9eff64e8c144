%% The loop over native slices of a call whose results are wanted as a whole.
%%
%% Results pile up in the caller's heap, which the VM enlarges bit by bit, each time going over all that is there.
%% Native functions tell how many words there may be in the end, and the heap is made that large before they come:
%% most of them are written once, where they stay. (`tab2list' of 300,000 objects of 13 words took 82 ns an object,
%% and takes 30.)
-module(cats_slices).
-export([finish/2]).

%% @private
%% @doc Carries on from what the first slice returned; `Next' is what calls for another one.
-spec finish(Slice, fun((cats_nif:cursor(), Result) -> Slice)) -> Result when
      Slice :: {Result, cats_nif:cursor(), Words :: non_neg_integer()} | Result,
      Result :: [term()] | non_neg_integer().
finish({_, _, _} = Slice, Next) ->
    case process_info(self(), [min_heap_size, max_heap_size]) of
        [{_, Least}, {_, #{size := 0}}] ->
            try
                go_on(Slice, Next, Least)
            after
                process_flag(min_heap_size, Least)
            end;
        _Limited ->
            go_on(Slice, Next)
    end;
finish(Result, _Next) ->
    Result.

go_on({Result, Cursor, Words}, Next, Least) ->
    process_flag(min_heap_size, max(Words, Least)),
    go_on(Next(Cursor, Result), Next, Least);
go_on(Result, _Next, _Least) ->
    Result.

%% In a heap that may not grow beyond a limit, and whose process may be killed for it.
go_on({Result, Cursor, _Words}, Next) ->
    go_on(Next(Cursor, Result), Next);
go_on(Result, _Next) ->
    Result.
