%% The loop over native slices of a call that returns all results at once.
%%
%% The results collect in the caller's heap. Each time the heap is full, the VM copies all of it into a larger one.
%% So a native slice also returns an estimate of the words that all results need. The loop enlarges the heap to that
%% size before it continues, and most results are then written only once.
-module(cats_slices).
-export([finish/2]).

%% @private
%% @doc Continues from the result of the first slice. `Next' runs another slice.
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

%% The caller has a limit on its heap size and may be killed for exceeding it, so its heap is not enlarged.
go_on({Result, Cursor, _Words}, Next) ->
    go_on(Next(Cursor, Result), Next);
go_on(Result, _Next) ->
    Result.
