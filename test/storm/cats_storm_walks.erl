%% Ways through whole tables, while others change them. Each object that is met must be one that somebody wrote. An
%% object that stays is met exactly once: the stable objects of a kept table, which nobody writes again.
-module(cats_storm_walks).

-import(cats_storm_values, [uniform/1, chance/1, one_of/1, key/2, pattern/3]).
-import(cats_storm_tables, [has/2, id/1]).
-import(cats_storm_calls, [outcome/1, unexpected/3, wrong_objects/2]).

-export([fill/2, operations/0, all_ways/1, unless_large/2]).

%% @doc Puts this number of stable objects into a kept table.
-spec fill(cats_storm_tables:table(), non_neg_integer()) -> ok.
fill(#{tid := Tid, place := Place} = Table, Number) ->
    Objects = [cats_storm_values:object(Table, {stable, N}) || N <- lists:seq(1, Number)],
    persistent_term:put({?MODULE, Place}, Objects),
    true = cats:insert_many(Tid, Objects),
    ok.

-spec operations() -> [cats_storm_calls:operation()].
operations() ->
    [{8, walk, [], fun(Table) -> unless_large(Table, fun(_) -> walk(Table, id(Table)) end) end},
     {3, walk_snapshot, [snapshots], fun(Table) -> unless_large(Table, fun walk_snapshot/1) end},
     {3, stable_range, [kept, order_statistics], fun stable_range/1},
     {2, stable_lookups, [kept], fun stable_lookups/1}].

%% @doc Calls the function, of a large table seldom, so that storms get on.
-spec unless_large(cats_storm_tables:table(), fun((cats_storm_tables:table()) -> Result)) -> Result | nothing.
unless_large(#{tid := Tid} = Table, Function) ->
    case cats:info(Tid, size) of
        Size when is_integer(Size), Size > 500 ->
            case uniform(Size) =< 500 of
                true -> Function(Table);
                false -> nothing
            end;
        _ -> Function(Table)
    end.

stable(#{place := Place}) -> persistent_term:get({?MODULE, Place}).

%%% Ways

walk(Table, Id) ->
    {Way, Function} = one_of(ways(Table)),
    cats_storm_worker:note({walk, Way}),
    case outcome(fun() -> Function(Id) end) of
        {returned, Objects} -> wrong_walk(Way, Table, Objects);
        Outcome -> failed_walk(Table, Id, Outcome)
    end.

failed_walk(#{tid := Tid} = Table, Id, Outcome) ->
    case Outcome of
        {badarg, snapshot_limit} when Id =/= Tid ->
            case has(short_snapshots, Table) of true -> nothing; false -> Outcome end;
        _ -> unexpected(Table, [], Outcome)
    end.

%% @doc All ways through a table, each with what it meets, in its order or backwards.
-spec all_ways(cats_storm_tables:table()) -> [{atom(), fun((cats:table()) -> [tuple()])}].
all_ways(Table) -> ways(Table).

ways(Table) ->
    All = [{'_', [cats_storm_values:deep({is_tuple, '$_'})], ['$_']}],
    [{tab2list, fun cats:tab2list/1},
     {next_lookup, fun(Id) -> steps(fun cats:next_lookup/2, Id, cats:first_lookup(Id)) end},
     {prev_lookup,
      fun(Id) -> lists:append(lists:reverse(lists_of(fun cats:prev_lookup/2, Id, cats:last_lookup(Id)))) end},
     {foldl, fun(Id) -> lists:reverse(cats:foldl(fun(Object, Objects) -> [Object | Objects] end, [], Id)) end},
     {foldr, fun(Id) -> cats:foldr(fun(Object, Objects) -> [Object | Objects] end, [], Id) end},
     {select, fun(Id) -> cats:select(Id, All) end},
     {select_chunks, fun(Id) -> chunks(fun cats:select/1, cats:select(Id, All, chunk())) end},
     {select_reverse_chunks,
      fun(Id) -> lists:reverse(chunks(fun cats:select_reverse/1, cats:select_reverse(Id, All, chunk()))) end},
     {match_object_chunks, fun(Id) -> chunks(fun cats:match_object/1, cats:match_object(Id, '_', chunk())) end},
     {match, fun(Id) -> [Object || [Object] <- cats:match(Id, '$1')] end}]
        ++ [{range, fun(Id) -> cats:range(Id, #{}, infinity) end} || has(ordered, Table)].

chunk() -> one_of([3, 20, 100, 10000]).

steps(Step, Id, From) -> lists:append(lists_of(Step, Id, From)).

lists_of(_Step, _Id, '$end_of_table') -> [];
lists_of(Step, Id, {Key, Objects}) -> [Objects | lists_of(Step, Id, Step(Id, Key))].

chunks(_Next, '$end_of_table') -> [];
chunks(Next, {Objects, Continuation}) -> Objects ++ chunks(Next, Next(Continuation)).

wrong_walk(Way, Table, Objects) ->
    case wrong_objects(Table, Objects) of
        nothing ->
            case wrong_order(Table, Objects) of
                nothing -> wrong_stable(Way, Table, Objects);
                Wrong -> {Way, Wrong}
            end;
        Wrong ->
            {Way, Wrong}
    end.

wrong_order(#{type := ordered_set} = Table, Objects) ->
    Keys = [key(Table, Object) || Object <- Objects],
    case ascending(Keys) of
        true -> nothing;
        false -> {order, Keys}
    end;
wrong_order(_Table, _Objects) ->
    nothing.

ascending([First | [Second | _] = Rest]) -> First < Second andalso ascending(Rest);
ascending(_) -> true.

wrong_stable(Way, Table, Objects) ->
    case has(kept, Table) of
        true ->
            Found = lists:sort([Object || Object <- Objects, is_stable(key(Table, Object))]),
            Wanted = lists:sort(stable(Table)),
            case Found of
                Wanted -> nothing;
                _ -> {Way, {lost, Wanted -- Found}, {met_again_or_strange, Found -- Wanted}}
            end;
        false ->
            nothing
    end.

is_stable({stable, Number}) -> is_integer(Number);
is_stable(_) -> false.

%%% Snapshots

%% Whatever is written meanwhile: all ways through a snapshot meet the same objects.
walk_snapshot(#{tid := Tid} = Table) ->
    cats_storm_worker:note(walk_snapshot),
    case outcome(fun() -> cats:snapshot(Tid) end) of
        {returned, Snapshot} ->
            [{First, Way1}, {Second, Way2}] = [one_of(ways(Table)), one_of(ways(Table))],
            cats_storm_worker:note({walk_snapshot, First, Second}),
            Outcome = outcome(fun() ->
                                      Objects = Way1(Snapshot),
                                      chance(50) andalso erlang:yield(),
                                      Size = cats:info(Snapshot, size),
                                      {Objects, Size, Way2(Snapshot)}
                              end),
            chance(50) andalso cats:delete(Snapshot),
            wrong_snapshot({First, Second}, Table, Snapshot, Outcome);
        Outcome ->
            unexpected(Table, [no_snapshots], Outcome)
    end.

wrong_snapshot(Ways, Table, _Snapshot, {returned, {Objects, Size, Again}}) ->
    case lists:sort(Objects) =:= lists:sort(Again) andalso length(Objects) =:= Size of
        true -> wrong_walk(Ways, Table, Objects);
        false ->
            {Ways, {size, Size}, {first, length(Objects), Objects -- Again}, {second, length(Again), Again -- Objects}}
    end;
wrong_snapshot(_Ways, Table, Snapshot, Outcome) ->
    failed_walk(Table, Snapshot, Outcome).

%%% Parts

stable_range(Table) ->
    Number = length(stable(Table)),
    From = uniform(Number + 1),
    To = From + uniform(100),
    Wanted = max(0, min(To, Number) - From + 1),
    cats_storm_worker:note({stable_range, From, To}),
    Id = id(Table),
    Range = [Id, {stable, From}, {stable, To}],
    case outcome(fun() -> {apply(cats, count, Range), length(apply(cats, range, Range ++ [infinity]))} end) of
        {returned, {Wanted, Wanted}} -> nothing;
        Outcome -> {stable_range, From, To, Outcome}
    end.

stable_lookups(Table) ->
    case stable(Table) of
        [] ->
            nothing;
        Stable ->
            Objects = [one_of(Stable) || _ <- lists:seq(1, uniform(20))],
            Wanted = [[Object] || Object <- Objects],
            Keys = [key(Table, Object) || Object <- Objects],
            cats_storm_worker:note({stable_lookups, Keys}),
            case outcome(fun() -> cats:lookup_many(id(Table), Keys) end) of
                {returned, Wanted} -> nothing;
                Outcome -> {stable_lookups, Outcome, Wanted}
            end
    end.
