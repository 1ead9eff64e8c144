%% cats_bench:advise/1 measures what its specification says, and refuses what it does not understand. The suite does not
%% check how fast anything is.
-module(cats_advise_SUITE).
-include_lib("stdlib/include/assert.hrl").
-export([all/0, suite/0]).
-export([candidates/1, every_operation/1, shapes/1, keys/1, refusals/1]).

all() -> [candidates, every_operation, shapes, keys, refusals].

suite() -> [{timetrap, {minutes, 10}}].

%% Every engine of every requested type is there, beside ets. The best one comes first.
candidates(_Config) ->
    Advice = advise(#{types => [set, bag, duplicate_bag, ordered_set]}),
    ?assertEqual([], [{Type, Name} || #{name := Name, types := Types} <- cats:engines(), Type <- Types,
                                      not lists:any(fun(A) -> is_of(Type, Name, A) end, Advice)]),
    [?assert(lists:any(fun(#{tables := Tables, options := [T | _]}) -> {Tables, T} =:= {ets, Type} end, Advice))
     || Type <- [set, bag, duplicate_bag, ordered_set]],
    Rates = [Rate || #{rate := Rate} <- Advice],
    ?assertEqual(lists:reverse(lists:sort(Rates)), Rates),
    ?assertMatch([#{share := 1.0} | _], Advice),
    [?assert(Lowest =< Rate andalso Rate =< Highest andalso Bytes > 0)
     || #{lowest := Lowest, rate := Rate, highest := Highest, bytes := Bytes} <- Advice].

is_of(Type, Name, #{tables := cats, options := [Type]}) ->
    lists:member({Type, Name}, [{ordered_set, ca}, {set, hash}, {bag, hash}, {duplicate_bag, hash}]);
is_of(Type, Name, #{tables := cats, options := [Type, {engine, Name}]}) -> true;
is_of(_, _, _) -> false.

%% A fun counts the operations on the table. A worker that fails would end the caller.
every_operation(_Config) ->
    Calls = counters:new(1, []),
    Count = fun(Tables, Table, Key) -> counters:add(Calls, 1, 1), Tables:member(Table, Key) end,
    Named = [lookup, member, delete, take, next, prev, insert, insert_new, {lookup_element, 2}, {update_element, 2},
             {update_counter, 2}],
    Advice = advise(#{operations => [{Operation, 1} || Operation <- [Count | Named]], processes => 2}),
    All = 3 * length(Advice) * 20000,
    ?assert(counters:get(Calls, 1) > All div 15),
    ?assert(counters:get(Calls, 1) < All div 10).

shapes(_Config) ->
    Shapes = [integer, atom, float, binary, {binary, 100}, {tuple, 20}, {list, 5}, {map, 3}, fun(N) -> {value, N} end],
    [_ | _] = advise(#{value => Shapes, key => fun(N) -> {user, N} end, types => [set]}).

keys(_Config) ->
    [[_ | _] = advise(#{keys => Keys, types => [set]}) || Keys <- [uniform, {hot, 3}, {zipf, 1.0}, {zipf, 0.8}]].

refusals(_Config) ->
    [?assertError({bad_spec, _}, cats_bench:advise(Spec))
     || Spec <- [[], #{no_such => 1}, #{operations => []}, #{operations => [lookup]}, #{operations => [{lookup, 0}]},
                 #{operations => [{no_such, 1}]}, #{operations => [{{update_counter, 2}, 1}], value => [binary]},
                 #{operations => [{{update_counter, 1}, 1}]}, #{operations => [{{lookup_element, 3}, 1}]},
                 #{operations => [{{update_element, 2}, 1}], types => [bag]},
                 #{key => {integer, 3}}, #{value => integer}, #{objects => 0}, #{processes => 0}, #{keys => zipf},
                 #{types => []}, #{types => [table]}, #{seconds => -1}]].

%% Three rounds of the shortest length.
advise(Spec) ->
    cats_bench:advise(maps:merge(#{objects => 100, processes => 1, seconds => 0}, Spec)).
