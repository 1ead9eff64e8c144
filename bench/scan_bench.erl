%% Work over whole tables and ranges of them, on ets and cats side by side in one VM, alternating; and how
%% long other processes' calls take while a table is being emptied by select_delete.
-module(scan_bench).
-export([main/1]).

-define(REPEATS, 5).

%% @doc Runs both parts and halts. `objects' is the size of the tables that are scanned, inserted in this
%% `order' of the keys, `deleted' of the one that is emptied.
-spec main([{objects | deleted, pos_integer()} | {order, ascending | random}]) -> no_return().
main(Arguments) ->
    Objects = proplists:get_value(objects, Arguments),
    Order = proplists:get_value(order, Arguments),
    io:format("OTP ~s, ~b objects in ~p order, milliseconds (median of ~b, lowest to highest); ratio: ets to cats~n",
              [erlang:system_info(otp_release), Objects, Order, ?REPEATS]),
    io:format("~-12s ~-32s ~26s ~26s ~6s~n", ["table", "call", "ets", "cats", "ratio"]),
    [scans(Type, Objects, Order) || Type <- [set, ordered_set]],
    bystander(proplists:get_value(deleted, Arguments)),
    halt(0).

scans(Type, Objects, Order) ->
    Numbers = numbers(Order, Objects),
    Tables = [{Module, table(Module, Type, Numbers)} || Module <- [ets, cats]],
    [row(Type, Name, Tables, Call) || {Name, Call} <- calls(Type, Objects)],
    [Module:delete(Table) || {Module, Table} <- Tables].

%% Objects {{Group, Number}, Number modulo 1000, Text}: a thousand to a group.
table(Module, Type, Numbers) ->
    Table = Module:new(scans, [Type, public]),
    [Module:insert(Table, {{N div 1000, N}, N rem 1000, <<"some text">>}) || N <- Numbers],
    Table.

numbers(ascending, Objects) -> lists:seq(0, Objects - 1);
numbers(random, Objects) -> [N || {_, N} <- lists:sort([{rand:uniform(), N} || N <- lists:seq(0, Objects - 1)])].

calls(Type, Objects) ->
    Group = Objects div 2000,
    [{"select, a bound prefix, 1000", fun(M, T) -> 1000 = length(M:select(T, [{{{Group, '_'}, '_', '_'}, [], ['$_']}])) end}
     || Type =:= ordered_set] ++
    [{"select_count, 1 in 1000", fun(M, T) -> M:select_count(T, [{{'_', '$1', '_'}, [{'=:=', '$1', 7}], [true]}]) end},
     {"match_object on a field", fun(M, T) -> length(M:match_object(T, {'_', 7, '_'})) end},
     {"tab2list", fun(M, T) -> Objects = length(M:tab2list(T)) end},
     {"first and next", fun(M, T) -> Objects = walk(M, T, M:first(T), 0) end},
     {"foldl", fun(M, T) -> M:foldl(fun({_, N, _}, Sum) -> N + Sum end, 0, T) end}].

walk(_Module, _Table, '$end_of_table', Count) -> Count;
walk(Module, Table, Key, Count) -> walk(Module, Table, Module:next(Table, Key), Count + 1).

row(Type, Name, Tables, Call) ->
    Runs = [[{Module, milliseconds(fun() -> Call(Module, Table) end)} || {Module, Table} <- Tables]
            || _ <- lists:seq(1, ?REPEATS)],
    [Ets, Cats] = [lists:sort([proplists:get_value(Module, Run) || Run <- Runs]) || Module <- [ets, cats]],
    io:format("~-12s ~-32s ~26s ~26s ~6.2f~n", [Type, Name, spread(Ets), spread(Cats), median(Ets) / median(Cats)]).

spread(Times) -> io_lib:format("~.2f (~.2f to ~.2f)", [median(Times), hd(Times), lists:last(Times)]).

median(Sorted) -> lists:nth((length(Sorted) + 1) div 2, Sorted).

%% In a process of its own, so that each run begins with a small heap.
milliseconds(Fun) ->
    {Pid, Monitor} = spawn_monitor(fun() ->
                                           {Time, _} = timer:tc(Fun),
                                           exit({time, Time / 1000})
                                   end),
    receive {'DOWN', Monitor, process, Pid, {time, Time}} -> Time end.

%%--------------------------------------------------------------------------------------------------

bystander(Objects) ->
    io:format("~nselect_delete of all ~b objects; microseconds of another process' lookups and inserts meanwhile~n", [Objects]),
    io:format("~-12s ~8s ~10s ~10s ~10s ~10s ~10s~n", ["table", "took ms", "calls", "median", "99 %", "99.9 %", "longest"]),
    [emptied(Type, Objects) || Type <- [set, ordered_set]].

emptied(Type, Objects) ->
    Table = cats:new(emptied, [Type, public]),
    [cats:insert(Table, {N, N}) || N <- lists:seq(1, Objects)],
    Self = self(),
    Bystander = spawn_link(fun() -> watch(Table, Objects, Self) end),
    erlang:garbage_collect(),
    {Time, Count} = timer:tc(fun() -> cats:select_delete(Table, [{{'$1', '_'}, [{'=<', '$1', Objects}], [true]}]) end),
    true = Count >= Objects - 1000,
    Bystander ! stop,
    Times = receive {Bystander, List} -> lists:sort(List) end,
    At = fun(Share) -> lists:nth(max(1, round(Share * length(Times))), Times) / 1000 end,
    io:format("~-12s ~8.1f ~10b ~10.1f ~10.1f ~10.1f ~10.1f~n",
              [Type, Time / 1000, length(Times), At(0.5), At(0.99), At(0.999), At(1)]),
    cats:delete(Table).

watch(Table, Objects, Parent) ->
    watch(Table, Objects, Parent, []).

watch(Table, Objects, Parent, Times) ->
    Lookup = nanoseconds(fun() -> cats:lookup(Table, rand:uniform(Objects)) end),
    Insert = nanoseconds(fun() -> cats:insert(Table, {Objects + rand:uniform(1000), new}) end),
    receive
        stop -> Parent ! {self(), [Lookup, Insert | Times]}
    after 0 ->
            watch(Table, Objects, Parent, [Lookup, Insert | Times])
    end.

nanoseconds(Fun) ->
    Start = erlang:monotonic_time(nanosecond),
    _ = Fun(),
    erlang:monotonic_time(nanosecond) - Start.
