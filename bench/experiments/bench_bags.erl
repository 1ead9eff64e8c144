%% Many objects under one key of a bag.
-module(bench_bags).
-behaviour(bench_experiment).
-export([about/0, points/1, measure/4]).

about() ->
    #{title => "Bags with many objects under one key",
      source => "the manual of ets, on the type bag",
      unit => "operations/s", better => higher, x => operation, scale => category, panels => [type, objects]}.

points(Size) ->
    [#{axes => [{type, Type}, {objects, Number}], subjects => bench_tables:subjects(plain),
       seconds => Number / 40_000 + 0.1}
     || Type <- [bag, duplicate_bag], Number <- numbers(Size)].

numbers(quick) -> [1000];
numbers(_) -> [100, 10_000].

%% Objects {key, N, N modulo 100} are inserted in random order. Then a tenth of them, from all over that order,
%% are deleted one by one. Then those with half of the values of the third element are deleted.
measure(_Size, #{type := Type, objects := Number}, {_, Tables, Options}, Seed) ->
    Objects = bench_data:share(objects, fun() ->
        Numbers = bench_keys:list(bench_keys:generator(uniform, 1 bsl 30), Number, bench_keys:seed(Seed)),
        [{key, N, N rem 100} || {_, N} <- lists:sort(lists:zip(Numbers, lists:seq(1, Number)))] end),
    Tenth = bench_data:share(tenth, fun() -> [{key, N, N rem 100} || N <- lists:seq(1, Number div 10)] end),
    Bags = [Tables:new(bag, [Type, public | Options]) || _ <- lists:seq(1, max(1, 10_000 div Number))],
    Calls = [{insert, fun(Bag, Object) -> Tables:insert(Bag, Object) end, Objects},
             {delete_object, fun(Bag, Object) -> Tables:delete_object(Bag, Object) end, Tenth},
             {match_delete, fun(Bag, N) -> Tables:match_delete(Bag, {key, '_', N}) end, lists:seq(0, 49)}],
    Rows = [{[{operation, Name}],
             length(Bags) * length(Each)
                 / bench_workers:seconds([fun() -> [Call(Bag, One) || Bag <- Bags, One <- Each] end])}
            || {Name, Call, Each} <- Calls],
    [Tables:delete(Bag) || Bag <- Bags],
    Rows.
