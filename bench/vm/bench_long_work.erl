%% Operations that take long on a large table. Their order is such that two tables suffice for all of them.
-module(bench_long_work).
-export([each/4]).

%% @doc Makes tables of so many pairs, and calls the function with each operation: its name, the table that it
%% works on and what to do. The value is the list of the function's values.
-spec each(bench_experiment:subject(), Type :: atom(), Number :: pos_integer(),
           fun((Name :: atom(), Table :: term(), Operation :: fun(() -> term())) -> Value)) -> [Value].
each({_, Tables, Options}, Type, Number, Fun) ->
    [First, Second] = [bench_shapes:table(Tables, Type, Options, Number, fun(N) -> {N, N rem 1000} end)
                       || _ <- [first, second]],
    List = bench_data:share(long_list, fun() -> [{Number + N, N} || N <- lists:seq(1, Number div 10)] end),
    Half = Number div 2,
    [Fun(Name, Table, Operation)
     || {Name, Table, Operation} <-
            [{match_object, First, fun() -> Tables:match_object(First, {'_', 7}) end},
             {tab2list, First, fun() -> Tables:tab2list(First) end},
             {foldl, First, fun() -> Tables:foldl(fun({_, N}, Sum) -> N + Sum end, 0, First) end},
             {insert_list, First, fun() -> Tables:insert(First, List) end},
             {select_delete, Second,
              fun() -> Tables:select_delete(Second, [{{'$1', '_'}, [{'>', '$1', Half}], [true]}]) end},
             {delete_all_objects, Second, settled(fun() -> Tables:delete_all_objects(Second) end)},
             {delete, First, settled(fun() -> Tables:delete(First) end)}]].

%% Includes the work that the call leaves to the background.
settled(Fun) ->
    fun() ->
            Fun(),
            bench_tables:settle()
    end.
