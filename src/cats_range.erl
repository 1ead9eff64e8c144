%% @hidden
%% Ranges of keys.
-module(cats_range).

-export([bounds/1]).

-export_type([bound/0]).

-type bound() :: [] | [Key :: term()] | {Key :: term()}.
%% No bound, a key that belongs to the range, or a key that does not.

%% @doc The lower and the upper bound of a range, as the native functions take them, and the order.
-spec bounds(cats:key_range()) -> {bound(), bound(), ascending | descending} | invalid.
bounds(Range) when is_map(Range) ->
    Known = maps:with([from, above, to, below, order], Range),
    case {bound(from, above, Range), bound(to, below, Range), maps:get(order, Range, ascending)} of
        {From, To, Order} when From =/= invalid, To =/= invalid, map_size(Known) =:= map_size(Range),
                               (Order =:= ascending orelse Order =:= descending) ->
            {From, To, Order};
        _ ->
            invalid
    end;
bounds(_Range) ->
    invalid.

bound(Inclusive, Exclusive, Range) ->
    case Range of
        #{Inclusive := _, Exclusive := _} -> invalid;
        #{Inclusive := Key} -> [Key];
        #{Exclusive := Key} -> {Key};
        #{} -> []
    end.
