%% @hidden
%% What `update_counter' and `update_element' make of an object. A transaction changes its objects by this. Tables do it
%% natively.
-module(cats_updates).

-export([counters/3, elements/3]).

-type failed() :: {failed, Reason :: badarg | system_limit, Cause :: atom()}.
%% The error, and the cause that explains it, see `cats_failure'.

%% The VM's integers of one word.
-define(IS_SMALL(N), is_integer(N), N >= -(1 bsl 59), N < 1 bsl 59).

%% @doc The object after the operations, and the new values of its counters, as `cats:update_counter/3' returns them.
-spec counters(tuple(), Keypos :: pos_integer(), UpdateOp :: term()) ->
          {tuple(), integer() | [integer()]} | failed().
counters(Object, Keypos, Increment) when is_integer(Increment) -> count(Object, Keypos, {Keypos + 1, Increment});
counters(Object, Keypos, Op) when is_tuple(Op) -> count(Object, Keypos, Op);
counters(Object, Keypos, Ops) -> count_all(Object, Keypos, Ops, []).

count_all(Object, Keypos, [Op | Ops], Counts) ->
    case count(Object, Keypos, Op) of
        {New, Count} -> count_all(New, Keypos, Ops, [Count | Counts]);
        Failed -> Failed
    end;
count_all(Object, _Keypos, [], Counts) -> {Object, lists:reverse(Counts)};
count_all(_Object, _Keypos, _Wrong, _Counts) -> {failed, badarg, none}.

count(Object, Keypos, {Pos, Increment}) when ?IS_SMALL(Pos), is_integer(Increment) ->
    count(Object, Keypos, Pos, fun(Count) -> Count + Increment end);
count(Object, Keypos, {Pos, Increment, Threshold, Value})
  when ?IS_SMALL(Pos), is_integer(Increment), is_integer(Threshold), is_integer(Value) ->
    Up = Increment >= 0,
    Sum = fun(Count) ->
                  case Count + Increment of
                      Over when Up, Over > Threshold; not Up, Over < Threshold -> Value;
                      Within -> Within
                  end
          end,
    count(Object, Keypos, Pos, Sum);
count(_Object, _Keypos, _Wrong) ->
    {failed, badarg, none}.

count(Object, Keypos, Pos, Sum) ->
    case is_place(Object, Keypos, Pos) of
        true when is_integer(element(Pos, Object)) ->
            try Sum(element(Pos, Object)) of
                Count -> {setelement(Pos, Object, Count), Count}
            catch
                error:system_limit -> {failed, system_limit, integer}
            end;
        true -> {failed, badarg, none};
        Failed -> Failed
    end.

%% @doc The object with other elements, as `cats:update_element/3' leaves it.
-spec elements(tuple(), Keypos :: pos_integer(), ElementSpec :: term()) -> {tuple(), true} | failed().
elements(Object, Keypos, Spec) when is_tuple(Spec) -> elements(Object, Keypos, [Spec]);
elements(Object, Keypos, [{Pos, Value} | Specs]) when ?IS_SMALL(Pos) ->
    case is_place(Object, Keypos, Pos) of
        true -> elements(setelement(Pos, Object, Value), Keypos, Specs);
        Failed -> Failed
    end;
elements(Object, _Keypos, []) -> {Object, true};
elements(_Object, _Keypos, _Wrong) -> {failed, badarg, none}.

%% Whether the object has an element at the position that may change.
is_place(_Object, Keypos, Keypos) -> {failed, badarg, keypos};
is_place(Object, _Keypos, Pos) when Pos >= 1, Pos =< tuple_size(Object) -> true;
is_place(_Object, _Keypos, _Pos) -> {failed, badarg, position}.
