%% The comparison with ets for functions that take patterns. Random patterns and match specifications of all forms run
%% over the same random objects in a table of ets and in one of cats. Results, exceptions and contents must be the same.
%%
%% Results of tables without order are compared as multisets, but the objects of one key in their order. A run consists
%% of rounds, each with its own seed. A difference names its round, and round/2 repeats it.
-module(cats_select_oracle).
-import(cats_test_lib, [one_of/1]).
-export([run/1, run/2, round/2]).

%% No variable has a number of 25 or more. With one, ETS renumbers all variables, also what looks like a variable inside
%% {const, _}.

-define(OBJECTS, 60).
-define(CALLS, 40).

%% @doc Compares at least as many calls, beginning with a seed from the clock.
-spec run(pos_integer()) -> {ok, Calls :: pos_integer()} | {different, Seed :: integer(), Difference :: term()}.
run(Calls) ->
    run(Calls, erlang:system_time()).

%% @doc Compares at least as many calls, beginning with this seed.
-spec run(pos_integer(), integer()) -> {ok, pos_integer()} | {different, integer(), term()}.
run(Calls, Seed) ->
    run(Calls, Seed, 0).

run(Calls, _Seed, Done) when Done >= Calls ->
    {ok, Done};
run(Calls, Seed, Done) ->
    case round(Seed, cats_chosen:module()) of
        same -> run(Calls, Seed + 1, Done + ?CALLS);
        Difference -> {different, Seed, Difference}
    end.

%% @doc One round with a module that has the functions of ets.
-spec round(integer(), module()) -> same | {Call :: term(), Ets :: term(), Subject :: term()}.
round(Seed, Subject) ->
    {Pid, Monitor} = spawn_monitor(fun() -> exit({result, round_here(Seed, Subject)}) end),
    receive
        {'DOWN', Monitor, process, Pid, {result, Result}} -> Result;
        {'DOWN', Monitor, process, Pid, Reason} -> {crash, Reason, Seed}
    end.

round_here(Seed, Subject) ->
    _ = rand:seed(exsss, Seed),
    put(universe, list_to_tuple(cats_oracle_terms:small() ++ cats_oracle_terms:all(self()))),
    put(border, -(1 bsl 59)),
    put(functions, functions()),
    Type = one_of(cats_chosen:types([set, ordered_set, ordered_set, bag, duplicate_bag])),
    KeyPos = one_of([1, 1, 2]),
    Options = [Type, public, {keypos, KeyPos} | one_of([[], [], [compressed]])],
    put(objects, list_to_tuple([object(KeyPos) || _ <- lists:seq(1, ?OBJECTS)])),
    Sides = [{ets, ets:new(oracle, Options)}, {Subject, Subject:new(oracle, Options)}],
    calls(?CALLS, Sides, Type, KeyPos).

calls(0, _Sides, _Type, _KeyPos) ->
    same;
calls(N, Sides, Type, KeyPos) ->
    _ = [Module:insert(Table, Object)
         || N rem 8 =:= 0, Object <- tuple_to_list(get(objects)), {Module, Table} <- Sides],
    {Function, Arguments} = Call = call(KeyPos),
    [Expected, Got] = [outcome(Module, Table, Function, Arguments, Type, KeyPos) || {Module, Table} <- Sides],
    case cats_oracle_terms:same(Expected, Got) of
        true -> calls(N - 1, Sides, Type, KeyPos);
        false -> {{Type, KeyPos, Call}, Expected, Got}
    end.

%%----------------------------------------------------------------------------------------------------------------------
%% Outcomes

outcome(Module, Table, Function, Arguments, Type, KeyPos) ->
    Asked = arguments(Module, Type, Function, Arguments),
    Result = try {value, all_chunks(Module, Function, apply(Module, Function, [Table | Asked]))}
             catch Class:Reason -> {Class, Reason}
             end,
    Contents = case changes(Function) of
                   true -> arrange(Module:tab2list(Table), Type, KeyPos);
                   false -> unchanged
               end,
    {arrange_result(Result, Function, Type, KeyPos), Contents}.

%% ETS may not look at all keys that several clauses for an ordered_set match (docs/internals/matching.md). With a
%% clause for any key it does. This one matches nothing.
arguments(ets, ordered_set, Function, [[_, _ | _] = Clauses | Limit])
  when Function =:= select; Function =:= select_reverse; Function =:= select_count; Function =:= select_delete ->
    [Clauses ++ [{'_', [false], ['$_']}] | Limit];
arguments(_Module, _Type, _Function, Arguments) ->
    Arguments.

changes(Function) -> lists:member(Function, [match_delete, select_delete, select_replace]).

%% The chunks of a call with a limit: a list of lists, for which each continuation is used twice.
all_chunks(_Module, _Function, '$end_of_table') ->
    {chunks, []};
all_chunks(Module, Function, {Chunk, Continuation}) when is_list(Chunk) ->
    {chunks, More} = all_chunks(Module, Function, Module:Function(Continuation)),
    {chunks, [Chunk | More]};
all_chunks(_Module, _Function, Result) ->
    Result.

arrange_result({value, {chunks, Chunks}}, _Function, ordered_set, _KeyPos) ->
    {lists:droplast([0 | lists:map(fun length/1, Chunks)]), lists:append(Chunks)};
arrange_result({value, {chunks, Chunks}}, _Function, _Type, _KeyPos) ->
    {lists:droplast([0 | lists:map(fun length/1, Chunks)]), exactly(lists:append(Chunks))};
arrange_result({value, List}, Function, Type, KeyPos) when is_list(List), Type =/= ordered_set ->
    case Function of
        match_object -> arrange(List, Type, KeyPos);
        _ -> exactly(List)
    end;
arrange_result(Result, _Function, _Type, _KeyPos) ->
    Result.

%% In an order that tells 1 from 1.0.
exactly(Terms) -> [Term || {Term, _} <- lists:sort([{Term, term_to_binary(Term)} || Term <- Terms])].

%% The objects by key, those of a key in the order in which the table gives them.
arrange(Objects, ordered_set, _KeyPos) ->
    Objects;
arrange(Objects, _Type, KeyPos) ->
    Keyed = lists:zip3([term_to_binary(element(KeyPos, Object)) || Object <- Objects],
                       lists:seq(1, length(Objects)), Objects),
    [Object || {_, _, Object} <- lists:sort(Keyed)].

%%----------------------------------------------------------------------------------------------------------------------
%% Random calls

call(KeyPos) ->
    case rand:uniform(20) of
        N when N =< 3 -> {match, [head()]};
        N when N =< 5 -> {match_object, [head()]};
        6 -> {match_delete, [head()]};
        N when N =< 10 -> {select, [specification()]};
        11 -> {select_reverse, [specification()]};
        N when N =< 13 -> {select_count, [conditions()]};
        14 -> {select_delete, [conditions()]};
        N when N =< 16 -> {select_replace, [replacement(KeyPos)]};
        17 -> {select, [specification(), limit()]};
        18 -> {one_of([match, match_object]), [head(), limit()]};
        19 -> {select_reverse, [specification(), limit()]};
        20 -> {one_of([select, select_count, select_delete, select_replace, match, match_object]), [broken()]}
    end.

limit() -> one_of([1, 2, 3, 7, 100, 1000, 1 bsl 40]).

specification() -> [clause(body(any)) || _ <- lists:seq(1, one_of([1, 1, 1, 2, 3]))].

conditions() -> [clause(body(condition)) || _ <- lists:seq(1, one_of([1, 1, 2]))].

clause(Body) ->
    Head = head(),
    put(variables, variables(Head, [])),
    Guards = guards(),
    put(place, body),
    {Head, Guards, Body()}.

body(any) -> fun() -> [expression(3) || _ <- lists:seq(1, one_of([1, 1, 1, 2]))] end;
body(condition) -> fun() -> [one_of([true, true, true, false, expression(2)])] end.

replacement(KeyPos) ->
    Head = head(),
    put(place, body),
    put(variables, variables(Head, [])),
    Result = case Head of
                 _ when not is_tuple(Head); tuple_size(Head) < KeyPos -> '$_';
                 _ ->
                     Key = one_of([as_expression(element(KeyPos, Head)), {element, KeyPos, '$_'}, expression(1)]),
                     Others = [expression(1) || _ <- lists:seq(1, one_of([1, 2, 3]))],
                     {Before, After} = lists:split(min(KeyPos - 1, length(Others)), Others),
                     one_of(['$_', {list_to_tuple(Before ++ [Key | After])}, {list_to_tuple(Before ++ [Key | After])},
                           {const, element(1, get(objects))}])
             end,
    put(place, guard),
    [{Head, guards(), [Result]}].

%% A pattern as the expression that makes what it matched.
as_expression(Pattern) when is_tuple(Pattern) ->
    {list_to_tuple([as_expression(Part) || Part <- tuple_to_list(Pattern)])};
as_expression([Head | Tail]) -> [as_expression(Head) | as_expression(Tail)];
as_expression(Pattern) -> Pattern.

%% What is no specification, or one that looks nearly like one.
broken() ->
    one_of([a, [], {}, [a], [{'$1'}], [{'$1', [], []}], [{{'$1', '_'}, [], ['$2']}], [{{'$1', '_'}, a, ['$1']}],
          [{{'$1', '_'}, [{no_such_function, '$1'}], ['$1']}], [{{'$1', '_'}, [], ['$1' | a]}], [{'_', [], [{}]}],
          [{'_', [], [{{}}]}], [{'_', [], [{const}]}], [{'_', [], [{const, 1, 2}]}],
          [{{'$01', '$x'}, [], ['$_']}], [{#{'$1' => a}, [], ['$_']}], [{{#{'_' => a}, 1}, [], ['$_']}],
          [{a, [], [true]}], [{"$1", [], [true]}], [{1, [], ['$_']}],
          [{'$1', [], [{is_tuple, '$1'}]}, {'_', [], ['$_']}],
          [{{'$1', '$0', '$20'}, [], ['$$']}], {{'$1', '_'}, [], ['$1']}, [{{'$1', '_'}, [{self, 1}], [true]}],
          [{'_', [], [{{{const, {a}}, ['$_' | '$_']}}]}], [{'_', [], [{message, a}]}], [{'_', [], [{get_tcw}]}]]).

%%----------------------------------------------------------------------------------------------------------------------
%% Objects, patterns

object(KeyPos) ->
    Parts = [part(2) || _ <- lists:seq(1, one_of([0, 1, 1, 1, 2, 3]))],
    {Before, After} = lists:split(min(KeyPos - 1, length(Parts)), Parts),
    list_to_tuple(Before ++ lists:duplicate(KeyPos - 1 - length(Before), filler) ++ [key() | After]).

key() ->
    case rand:uniform(6) of
        1 -> universal_key();
        2 -> {one_of([a, b]), small()};
        3 -> {one_of([a, b]), one_of([x, y]), small()};
        4 -> [one_of([a, b]) | one_of([[], small(), [small()]])];
        _ -> small()
    end.

%% Without maps: before OTP 29, ETS handles a map wrongly, in the place of the key and elsewhere.
universal_key() ->
    Term = universal(),
    case re:run(io_lib:format("~w", [Term]), "#{|[[{]{20}", [{capture, none}]) of
        match -> small();
        nomatch -> Term
    end.

small() -> one_of([1, 2, 3, 4, 5, -1, 1.0, 2.0, 2.5, a, b]).

part(0) -> one_of([small(), universal()]);
part(Depth) ->
    case rand:uniform(9) of
        1 -> list_to_tuple([part(Depth - 1) || _ <- lists:seq(1, rand:uniform(3))]);
        2 -> [part(Depth - 1) || _ <- lists:seq(1, rand:uniform(3))];
        3 -> [part(Depth - 1) | part(Depth - 1)];
        4 -> maps:from_list([{small(), part(Depth - 1)} || _ <- lists:seq(1, rand:uniform(3))]);
        5 -> maps:from_list([{Key, Key rem 3} || Key <- lists:seq(1, one_of([31, 32, 33, 40]))]);
        6 -> universal();
        _ -> small()
    end.

universal() ->
    Universe = get(universe),
    element(rand:uniform(tuple_size(Universe)), Universe).

%% Mostly an object of the table with holes in it.
head() ->
    case rand:uniform(12) of
        1 -> '_';
        2 -> '$1';
        _ ->
            Objects = get(objects),
            Object = element(rand:uniform(tuple_size(Objects)), Objects),
            list_to_tuple([hollow(Part, 3) || Part <- tuple_to_list(Object)])
    end.

hollow(Term, Depth) ->
    case rand:uniform(8) of
        1 -> '_';
        N when N =< 4 -> variable();
        5 when is_tuple(Term), Depth > 0 -> list_to_tuple([hollow(Part, Depth - 1) || Part <- tuple_to_list(Term)]);
        6 when is_list(Term), Term =/= [], Depth > 0 -> [hollow(hd(Term), Depth - 1) | hollow(tl(Term), Depth - 1)];
        N when is_map(Term), N < 8, Depth > 0 ->
            maps:from_list([{Key, hollow(Value, Depth - 1)}
                            || {Key, Value} <- maps:to_list(Term), rand:uniform(3) > 1]);
        7 -> small();
        _ -> Term
    end.

variable() -> one_of(['$1', '$2', '$3', '$0', '$17', '$24']).

variables(Atom, Found) when is_atom(Atom) ->
    case lists:member(Atom, ['$1', '$2', '$3', '$0', '$17', '$24']) of
        true -> lists:usort([Atom | Found]);
        false -> Found
    end;
variables([Head | Tail], Found) -> variables(Tail, variables(Head, Found));
variables(Tuple, Found) when is_tuple(Tuple) -> variables(tuple_to_list(Tuple), Found);
variables(Map, Found) when is_map(Map) -> variables(maps:values(Map), Found);
variables(_, Found) -> Found.

%%----------------------------------------------------------------------------------------------------------------------
%% Guards, expressions. Bodies have no logical operators of several arguments, because two faults of ETS (in its
%% erl_db_util.c) crash the VM or give wrong results. `matchOr' and `matchAnd' remove too much from the stack when they
%% fail there. And a variable that first occurs in a branch that is not taken is returned without a copy from the table.

guards() ->
    put(place, guard),
    case rand:uniform(3) of
        1 -> [];
        _ -> [guard() || _ <- lists:seq(1, one_of([1, 1, 2, 3]))]
    end.

guard() ->
    case rand:uniform(10) of
        N when N =< 4 -> {one_of(['>', '>=', '<', '=<', '==', '=:=', '/=', '=/=']), atomic(), atomic()};
        5 -> {one_of([is_atom, is_integer, is_float, is_number, is_list, is_tuple, is_map, is_binary,
                      is_pid, is_reference]), atomic()};
        6 -> {one_of(['and', 'or', 'andalso', 'orelse']), guard(), guard()};
        7 -> {'not', guard()};
        8 -> {one_of(['andalso', 'orelse', 'and', 'or']), guard(), one_of([guard(), atomic()]), guard()};
        _ -> expression(3)
    end.

atomic() ->
    case {get(variables), rand:uniform(8)} of
        {[_ | _] = Variables, N} when N =< 4 -> one_of(Variables);
        {_, 5} -> '$_';
        {_, 6} -> '$$';
        {_, 7} -> constant(universal());
        _ -> one_of([small(), true, false])
    end.

constant(Term) -> {const, Term}.

expression(0) -> atomic();
expression(Depth) ->
    case rand:uniform(12) of
        6 -> logical(get(place), Depth);
        1 -> {list_to_tuple([expression(Depth - 1) || _ <- lists:seq(0, rand:uniform(3))])};
        2 -> [expression(Depth - 1) || _ <- lists:seq(1, rand:uniform(3))];
        3 -> [expression(Depth - 1) | atomic()];
        4 -> maps:from_list([{small(), expression(Depth - 1)} || _ <- lists:seq(1, rand:uniform(3))]);
        5 -> {const, part(1)};
        N when N =< 10 ->
            {Name, Arity} = one_of(get(functions)),
            function(Name, Arity, Depth);
        _ -> atomic()
    end.

%% Since OTP 29 an atom in the place of the size asks for a native record.
function(is_record, 3, Depth) ->
    {is_record, expression(Depth - 1), expression(Depth - 1), one_of([1, 2, 3, 1.0])};
function(Name, Arity, Depth) ->
    list_to_tuple([Name | [expression(Depth - 1) || _ <- lists:seq(1, Arity)]]).

logical(guard, Depth) -> {one_of(['andalso', 'orelse', 'and', 'or']), expression(Depth - 1), expression(Depth - 1)};
logical(body, _Depth) -> {'not', {'xor', one_of([true, false]), {is_atom, atomic()}}}.

%% The functions of guards that the running OTP's specifications know.
functions() ->
    All = [{is_atom, 1}, {is_binary, 1}, {is_bitstring, 1}, {is_boolean, 1}, {is_float, 1}, {is_function, 1},
           {is_function, 2}, {is_integer, 1}, {is_integer, 3}, {is_list, 1}, {is_map, 1}, {is_map_key, 2},
           {is_number, 1}, {is_pid, 1}, {is_port, 1}, {is_record, 3}, {is_reference, 1}, {is_tuple, 1}, {abs, 1},
           {binary_part, 2}, {binary_part, 3}, {bit_size, 1}, {byte_size, 1}, {ceil, 1}, {element, 2}, {element, 2},
           {float, 1}, {floor, 1}, {hd, 1}, {length, 1}, {map_get, 2}, {map_size, 1}, {max, 2}, {min, 2}, {node, 0},
           {node, 1}, {round, 1}, {self, 0}, {size, 1}, {tl, 1}, {trunc, 1}, {tuple_size, 1}, {'+', 1}, {'-', 1},
           {'+', 2}, {'-', 2}, {'*', 2}, {'/', 2}, {'div', 2}, {'rem', 2}, {'band', 2}, {'bor', 2}, {'bxor', 2},
           {'bnot', 1}, {'bsl', 2}, {'bsr', 2}, {'>', 2}, {'>=', 2}, {'<', 2}, {'=<', 2}, {'==', 2}, {'/=', 2},
           {'=:=', 2}, {'=/=', 2}, {'not', 1}, {'xor', 2}],
    [Function
     || {Name, Arity} = Function <- All -- faulty(), is_known(list_to_tuple([Name | lists:duplicate(Arity, 1)]))].

%% Functions in which the running OTP may differ from a newer one. They make integers of floats at the border of small
%% integers, or take abs(-0.0) or a part of a bit string that is no binary.
faulty() ->
    Rounding = [{round, 1}, {trunc, 1}, {floor, 1}, {ceil, 1}],
    Border = get(border),
    [Function || Function <- Rounding, round(float(Border)) =/= Border] ++
        [{abs, 1} || <<(abs(Border * -0.0 * Border))/float>> =/= <<0.0/float>>] ++
        [{binary_part, Arity} || takes_part(<<Border:65>>), Arity <- [2, 3]].

takes_part(Bits) ->
    try binary_part(Bits, 0, 1) of
        _ -> true
    catch error:badarg -> false
    end.

is_known(Call) ->
    try ets:match_spec_compile([{'_', [], [Call]}]) of
        _ -> true
    catch error:badarg -> false
    end.
