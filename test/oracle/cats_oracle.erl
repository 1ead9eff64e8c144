%% The comparison with ets as the oracle. PropEr makes random sequences of calls. Each call runs on ets (ets_model.erl)
%% and on cats. Results, exceptions with their explanation, and the final contents must be the same.
%%
%% Some results are compared loosely, because ETS promises nothing about them. These are the order of traversal and the
%% slots of hash tables, the figures for memory, and the places of identifiers. For the next or previous key of an
%% absent key in a hash table, cats answers where ETS may raise badarg. Everything else is compared exactly, to the sign
%% of a zero.
%%
%% A case is a tuple {Keys, Options of table 1, Options of table 2, Calls}. Its terms are symbolic: a key is an index
%% into the case's keys, a term an index into cats_oracle_terms, a table a number. So replay/2 can run a case again
%% later.
-module(cats_oracle).
-export([main/0, run/1, compare/2, replay/2]).

-record(side, {module, tables = #{}, garbage = []}).
-record(state, {keys, other, keypos = #{}, oracle, subject}).

-define(CASE_CALLS, 80).

%%------------------------------------------------------------------------------------------------------------
%% Running

%% @doc Compares cats with ets in CALLS calls (environment, 100000 by default), and halts: with 1 if they
%% differ.
-spec main() -> no_return().
main() ->
    halt(case run(cats_test_lib:environment("CALLS", 100000)) of
             {ok, _} -> 0;
             {different, _, _} -> 1
         end).

%% @doc Compares cats with ets in at least as many calls, and prints the number of calls compared, or the
%% shrunk case that shows a difference.
-spec run(pos_integer()) ->
    {ok, Compared :: pos_integer()} | {different, Case :: term(), Compared :: pos_integer()}.
run(Calls) ->
    case compare(Calls, cats, 2000) of
        {ok, Compared} = Verdict ->
            io:format("cats and ets: ~b calls compared, no difference~n", [Compared]),
            Verdict;
        {different, Case, Compared} = Verdict ->
            io:format("cats and ets differ, after ~b calls. cats_oracle:replay(cats, Case), with Case =~n"
                      "~0p~n",
                      [Compared, Case]),
            replay(cats, Case),
            Verdict
    end.

%% @doc Compares cats, or another module, one that has call/2 as ets_model has it, with ets. The case is not shrunk.
-spec compare(pos_integer(), module()) -> {ok, pos_integer()} | {different, Case :: term(), pos_integer()}.
compare(Calls, Subject) -> compare(Calls, Subject, 0).

compare(Calls, Subject, Shrinks) ->
    cats_test_lib:in_process(fun() ->
                                     ok = cats_test_lib:ensure_proper(),
                                     Environment = environment(),
                                     Compared = counters:new(1, []),
                                     Property = proper:forall(random_case(),
                                                              fun(Case) ->
                                                                      same(Case, Subject, Environment, Compared)
                                                              end),
                                     checked(Calls, Property, Shrinks, Compared)
                             end).

checked(Calls, Property, Shrinks, Compared) ->
    Same = proper:quickcheck(Property, [quiet, {numtests, min(250, 1 + Calls div 40)}, {max_size, 20},
                                      {max_shrinks, Shrinks}]),
    case {Same, counters:get(Compared, 1)} of
        {true, Count} when Count >= Calls -> {ok, Count};
        {true, _} -> checked(Calls, Property, Shrinks, Compared);
        {false, Count} ->
            io:format("~0tP~n", [get(difference), 100]),
            {different, hd(proper:counterexample()), Count}
    end.

%% Catches exceptions here, because PropEr handles them with code that needs an old OTP.
same(Case, Subject, Environment, Compared) ->
    try run_case(Case, Subject, Environment, Compared) =:= same
    catch Class:Reason:Stack ->
            put(difference, {Class, Reason, Stack}),
            false
    end.

%% @doc Runs one case and prints its calls, and where the two differ.
-spec replay(module(), term()) -> same | different.
replay(Subject, Case) ->
    cats_test_lib:in_process(fun() ->
                                     put(print, true),
                                     run_case(Case, Subject, environment(), counters:new(1, []))
                             end).

%% All the terms, which are the same for every case.
environment() ->
    list_to_tuple(cats_oracle_terms:all(spawn_link(fun() -> receive stop -> ok end end))).

%%------------------------------------------------------------------------------------------------------------
%% Random cases

random_case() ->
    {proper_types:vector(6, weighted([{2, proper_types:integer(1, length(cats_oracle_terms:small()))},
                                      {1, proper_types:integer(1, 180)}])),
     good_options(), good_options(), proper_types:resize(?CASE_CALLS, proper_types:list(random_call()))}.

weighted(Choices) -> proper_types:weighted_union(Choices).
oneof(Choices) -> proper_types:union(Choices).
number(Low, High) -> proper_types:integer(Low, High).
short(Type) -> proper_types:resize(4, proper_types:list(Type)).

%% {Who calls, Function, Arguments}
random_call() ->
    Calls = [{Weight, {caller(), Function, Arguments}} || {Weight, Function, Arguments} <- functions()],
    proper_types:noshrink(weighted([{1, weighted(Calls)}])).

caller() -> weighted([{14, self}, {1, other}]).

functions() ->
    T = table(), K = key(), V = value(), P = position(), O = object(),
    [{14, insert, [T, objects()]}, {6, insert_new, [T, objects()]},
     {6, lookup, [T, K]}, {4, lookup_element, [T, K, P]}, {3, lookup_element, [T, K, P, V]},
     {2, lookup_elements, [T, K, {positions, short(number(1, 4))}]}, {2, lookup_many, [T, {list, short(key()), []}]},
     {3, replace, [T, {existing, key_index(), number(0, 3)}, oneof([O, {object, key(), short(V)}])]},
     {2, replace, [T, O, O]}, {4, update, [T, K, change()]}, {3, update, [T, K, change(), O]},
     {6, add, [T, K, increments()]}, {2, take_many, [T, {list, short(key()), oneof([[], [], a])}]},
     {2, delete_many, [T, {list, short(key()), oneof([[], [], a])}]},
     {3, insert_many, [T, oneof([{list, short(O), []}, {list, short(O), oneof([a, {}, {1}])},
                                 {many, number(1, 20), number(100, 600)}])]},
     {3, member, [T, K]}, {3, take, [T, K]},
     {4, delete, [T, K]}, {5, delete_object, [T, oneof([O, {existing, key_index(), number(0, 3)}])]},
     {1, delete_all_objects, [T]}, {1, delete, [T]}, {2, new, [name(), options()]},
     {6, update_counter, [T, K, counter_operations()]}, {4, update_counter, [T, K, counter_operations(), O]},
     {5, update_element, [T, K, element_operations()]}, {4, update_element, [T, K, element_operations(), O]},
     {1, first, [T]}, {1, last, [T]}, {2, next, [T, K]}, {2, prev, [T, K]}, {1, first_lookup, [T]},
     {1, last_lookup, [T]},
     {2, next_lookup, [T, K]}, {2, prev_lookup, [T, K]},
     {1, slot, [T, {raw, oneof([0, 1, 2, 3, 5, 255, 1000000, 1 bsl 58, 1 bsl 59, -1, a, 1.0, 1 bsl 70])}]},
     {3, safe_fixtable, [T, {raw, weighted([{5, true}, {5, false}, {1, maybe_}])}]},
     {1, rename, [T, name()]}, {1, whereis, [oneof([name(), T])]},
     {1, give_away, [T, {raw, oneof([self, other, other, dead, not_a_pid])}, V]},
     {2, setopts, [T, settings()]},
     {1, info, [T]}, {3, info, [T, item()]}, {1, tab2list, [T]}, {1, all, []},
     {2, traverse, [T, {raw, oneof([next, prev, next_lookup, prev_lookup])}]}, {1, slots, [T]}].

table() ->
    weighted([{30, {table, number(1, 2)}}, {10, {table, 3}}, {3, {identifier, number(1, 3)}},
              {1, {raw, oneof([nonexistent, 42, {}, [], "name", <<"table">>])}},
              {1, {no_table, number(1, 200)}}, {1, deleted}]).

key() -> weighted([{30, {key, key_index()}}, {1, {term, number(1, 200)}}, {1, {random, any()}},
                   {1, {big, number(1, 3)}}]).

key_index() -> number(1, 6).

value() ->
    weighted([{12, {raw, number(-3, 3)}}, {6, {key, key_index()}}, {12, {term, number(1, 200)}},
              {1, {random, any()}},
              {1, {big, number(1, 4)}}]).

any() -> proper_types:resize(8, proper_types:any()).

%% No positions from 2^32 on: ETS takes them modulo 2^32, and the VM may crash.
position() ->
    weighted([{30, {raw, number(1, 4)}},
              {1, {raw, oneof([0, -1, a, 1.0, 100, 1 bsl 31, 1 bsl 62, 1 bsl 70, "1"])}}]).

%% The key is at the table's position for it, and the values around it.
object() ->
    weighted([{30, {object, key(), short(value())}},
              {2, {object, key(), proper_types:resize(30, proper_types:list(value()))}},
              {1, {raw, oneof([{}, a, [], 17, #{}])}}, {1, {tuple, short(value())}}]).

objects() ->
    weighted([{20, object()}, {8, {list, short(object()), []}},
              {2, {list, proper_types:resize(40, proper_types:list(object())), []}},
              {3, oneof([{list, short({object, {key, I}, short(value())}), []} || I <- lists:seq(1, 6)])},
              {1, {list, short(object()), oneof([a, {}, {1}])}},
              {1, {existing, key_index(), number(0, 3)}}, {1, {many, number(1, 20), number(100, 1500)}}]).

name() ->
    {raw, weighted([{10, oneof([oracle_a, oracle_b, oracle_c])},
                    {1, oneof(["name", 1, undefined, <<>>, {}])}])}.

good_options() ->
    {option_list, proper_types:list(weighted([{2, type()}, {5, good_option()}])), type()}.

type() -> oneof(cats_chosen:types([set, ordered_set, bag, duplicate_bag])).

good_option() ->
    oneof([public, protected, private, {keypos, 1}, {keypos, 2}, {keypos, 3}, named_table, compressed,
           {write_concurrency, true},
           {write_concurrency, false}, {write_concurrency, auto}, {read_concurrency, proper_types:boolean()},
           {decentralized_counters, proper_types:boolean()}, {heir, none}, {heir, other, value()}]
          ++ [{heir, other} || since(28)]).

options() ->
    %% OTP tests ets with this option. It is not for ordered_sets, so the tables of a case do not begin with it.
    Locks = {write_concurrency, {debug_hash_fixed_number_of_locks, oneof([number(1, 300), number(1, 32768)])}},
    Bad = oneof([nonsense, {keypos, 0}, {keypos, -1}, {keypos, a}, {keypos, 1 bsl 70}, {keypos, 1, 2},
                 {heir, a, b}, {heir, a},
                 {write_concurrency, 17}, {write_concurrency, maybe_},
                 {write_concurrency, {debug_hash_fixed_number_of_locks, oneof([0, 32769, -1, a, 1 bsl 64])}},
                 {write_concurrency, {debug_hash_fixed_number_of_locks}}, {write_concurrency, {number_of_locks, 64}},
                 {read_concurrency, auto},
                 {decentralized_counters, auto}, {compressed, true},
                 {named_table}, {}, [], 1, "set", {heir, dead, x}, {engine, no_such_engine}]),
    weighted([{8, good_options()}, {2, {option_list, short(weighted([{2, good_option()}, {1, Bad}])), set}},
              {4, {option_list, short(weighted([{2, good_option()}, {2, Locks}, {1, type()}])), set}},
              {1, {raw, oneof([a, {}, {improper, [set], set}, 1, #{}])}}]).

settings() ->
    Good = oneof([{heir, none}, {heir, other, value()}, {heir, self, value()}, {protection, public},
                  {protection, protected},
                  {protection, private}] ++ [{heir, other} || since(28)]),
    Bad = oneof([{heir, a, b}, {protection, nobody}, {keypos, 1}, public, {heir, none, x},
                 {protection, public, x}, {}, {heir}, a]),
    weighted([{5, {settings, Good}}, {1, {settings, Bad}},
              {4, {settings, short(weighted([{8, Good}, {1, Bad}]))}},
              {1, {raw, {improper, [{protection, public}], a}}}]).

counter_operations() ->
    Number = weighted([{10, number(-5, 5)},
                       {1, oneof([1 bsl 58, -(1 bsl 59), (1 bsl 59) - 1, 1 bsl 63, 1 bsl 64, -(1 bsl 64),
                                  1 bsl 200])}]),
    Position = weighted([{20, number(1, 4)}, {1, oneof([0, -1, 100, 1 bsl 70, a, 1.0])}]),
    Operation = weighted([{10, {Position, Number}}, {6, {Position, Number, Number, Number}},
                          {1, oneof([{}, {1}, {2, a}, {2, 1.0}, {2, 1, 1}, {2, 1, a, 1}, {2, 1, 1, a}, a,
                                     {2, 1, 1, 1, 1}])}]),
    {raw, weighted([{5, Number}, {10, Operation}, {6, short(Operation)},
                    {1, oneof([a, 1.0, {improper, [{2, 1}], a}, [1]])}])}.

increments() ->
    Number = weighted([{10, number(-5, 5)}, {10, oneof([0.5, -1.25, 0.0, -0.0, 1.0e308, -1.0e308])},
                       {1, oneof([1 bsl 58, -(1 bsl 59), (1 bsl 59) - 1, 1 bsl 63, -(1 bsl 64), 1 bsl 200,
                                  1 bsl 1100])}]),
    Position = weighted([{20, number(1, 4)}, {1, oneof([0, -1, 100, 1 bsl 70, a, 1.0])}]),
    Increment = weighted([{10, {Position, Number}}, {1, oneof([{}, {1}, {2, a}, a, {2, 1, 1, 1}])}]),
    {raw, weighted([{5, Number}, {10, Increment}, {8, short(Increment)},
                    {1, oneof([a, {improper, [{2, 1}], a}, [1]])}])}.

%% What update/3,4 do to an object. It stands for a function, so a case can be printed and run again.
change() -> {change, oneof([keep, delete, same, crash, no_fun, other_key, enlarge, shrink, nonsense, {put, value()}])}.

element_operations() ->
    Position = weighted([{20, number(1, 4)}, {1, oneof([0, -1, 100, 1 bsl 70, a, 1.0])}]),
    Operation = weighted([{20, {Position, value()}}, {1, oneof([{}, {1}, {2, a, b}, a])}]),
    {elements, weighted([{10, Operation}, {6, short(Operation)},
                         {1, oneof([a, 1, {improper, [{2, 1}], a}])}])}.

item() ->
    {raw, weighted([{20, oneof([keypos, type, protection, size, name, named_table, node, heir, owner, memory, id,
                                compressed, write_concurrency, read_concurrency, decentralized_counters, fixed,
                                safe_fixed, safe_fixed_monotonic_time, stats, binary])},
                    {1, oneof([nonsense, 1, "size", {size}])}])}.

since(Release) -> list_to_integer(erlang:system_info(otp_release)) >= Release.

%%------------------------------------------------------------------------------------------------------------
%% A case

run_case({Keys, Options1, Options2, Calls}, Subject, Universe, Compared) ->
    Other = spawn_link(fun servant/0),
    put(universe, Universe),
    State0 = #state{keys = list_to_tuple([term(I) || I <- Keys]), other = Other,
                    oracle = #side{module = ets_model}, subject = #side{module = Subject}},
    New = [{self, new, [{raw, oracle_a}, Options1]}, {self, new, [{raw, oracle_b}, Options2]}],
    Outcome = calls(New ++ Calls, State0, Compared),
    flush(),
    Outcome.

calls([Call | Calls], State0, Compared) ->
    counters:add(Compared, 1, 1),
    case step(Call, State0) of
        {same, State} -> calls(Calls, State, Compared);
        {different, State} -> clean(State), different
    end;
calls([], State, _) ->
    Outcome = contents(State),
    clean(State),
    Outcome.

step({Caller, Function, Symbolic}, State = #state{oracle = Oracle, subject = Subject}) ->
    Table = oracle_table(Symbolic, Oracle),
    Arguments = [argument(A, table_number(Symbolic), State) || A <- Symbolic],
    Type = type_of(Table),
    OracleArguments = [for_side(A, Oracle) || A <- Arguments],
    SubjectArguments = [for_side(A, Subject) || A <- Arguments],
    IsKey = fun() -> attempt(fun() -> ets:member(Table, lists:nth(2, OracleArguments)) end) end,
    Present = Type =/= undefined andalso length(Arguments) > 1 andalso by_owner(State, Table, IsKey) =:= true,
    Result1 = perform(Caller, Oracle#side.module, Function, OracleArguments, State),
    Result2 = perform(Caller, Subject#side.module, Function, SubjectArguments, State),
    Normal1 = normal(Function, OracleArguments, Result1, Oracle),
    Normal2 = normal(Function, SubjectArguments, Result2, Subject),
    Same = agree(Function, Type, Present, Normal1, Normal2, {State, Table}),
    Same orelse put(difference, {Function, OracleArguments, Normal1, Normal2}),
    get(print) =:= true andalso print(Caller, Function, OracleArguments, Normal1, Same orelse Normal2),
    case Same of
        true -> {same, after_call(Function, Symbolic, OracleArguments, Result1, Result2, State)};
        false -> {different, after_call(Function, Symbolic, OracleArguments, Result1, Result2, State)}
    end.

print(Caller, Function, Arguments, Result1, Result2) ->
    io:format("~s~s(~ts)~n    ets: ~0tP~n",
              [case Caller of self -> ""; other -> "by the other process: " end, Function,
               lists:join(", ", [io_lib:format("~0tP", [A, 30]) || A <- Arguments]), Result1, 40]),
    Result2 =:= true orelse io:format("    BUT: ~0tP~n", [Result2, 40]).

attempt(Function) ->
    try Function() catch error:badarg -> failed end.

%% The process that owns some of the tables and makes some of the calls.
servant() ->
    receive
        {From, Reference, Function} ->
            From ! {Reference, Function()},
            servant();
        _Transfer ->
            servant()
    end.

by(self, _, Function) ->
    Function();
by(other, #state{other = Other}, Function) ->
    Reference = make_ref(),
    Other ! {self(), Reference, Function},
    receive {Reference, Result} -> Result end.

by_owner(State = #state{other = Other}, Table, Function) ->
    case attempt(fun() -> ets:info(Table, owner) end) of
        Other -> by(other, State, Function);
        _ -> Function()
    end.

perform(Caller, Module, Function, Arguments, State) ->
    by(Caller, State, fun() -> perform(Module, Function, Arguments) end).

perform(Module, Function, Arguments) ->
    try
        {value, call(Module, Function, Arguments)}
    catch
        Class:Reason:Stack -> {Class, Reason, hd(Stack)}
    end.

%% All keys, or keys with objects, of a walk through a table. And all objects slot by slot, with the results for the
%% slots behind the last one.
call(Module, traverse, [Table, Step]) ->
    {First, Next} = case Step of
                        next -> {first, next};
                        prev -> {last, prev};
                        next_lookup -> {first_lookup, next_lookup};
                        prev_lookup -> {last_lookup, prev_lookup}
                    end,
    traverse(call(Module, First, [Table]), Module, Next, Table);
call(Module, slots, [Table]) ->
    slots(Module, Table, 0);
call(cats, Function, Arguments) ->
    apply(cats_chosen:module(), Function, Arguments);
call(Module, Function, Arguments) ->
    Module:call(Function, Arguments).

traverse('$end_of_table', _, _, _) -> [];
traverse(Found, Module, Next, Table) ->
    {Key, Met} = case Found of
                     {Key0, Objects} when Next =:= next_lookup; Next =:= prev_lookup ->
                         {Key0, {one_zero(Key0), Objects}};
                     _ -> {Found, one_zero(Found)}
                 end,
    [Met | traverse(call(Module, Next, [Table, Key]), Module, Next, Table)].

%% Where 0.0 and -0.0 are the same key, the table may return either.
one_zero(Key) when is_float(Key), Key == 0 ->
    case since(27) of
        true -> Key;
        false -> zero
    end;
one_zero(Key) -> Key.

slots(Module, Table, Slot) ->
    case call(Module, slot, [Table, Slot]) of
        '$end_of_table' -> [behind(Module, Table, Slot + More) || More <- [1, 2, 1000, 1 bsl 50]];
        Objects -> Objects ++ slots(Module, Table, Slot + 1)
    end.

behind(Module, Table, Slot) ->
    case perform(Module, slot, [Table, Slot]) of
        {error, Reason, {_, slot, [Table, Slot], Info} = Top} -> {behind, Reason, cause(Info), remarks(Reason, Top)};
        Other -> {behind, Other}
    end.

%%------------------------------------------------------------------------------------------------------------
%% From symbolic arguments to real ones

table_number([{Kind, Number} | _]) when Kind =:= table; Kind =:= identifier -> Number;
table_number(_) -> none.

oracle_table([First | _], Oracle) when element(1, First) =:= table; element(1, First) =:= identifier ->
    for_side(First, Oracle);
oracle_table(_, _) -> none.

type_of(none) -> undefined;
type_of(Table) -> try ets:info(Table, type) catch error:badarg -> undefined end.

%% Arguments are the same on both sides, but for tables, which for_side/2 replaces later.
argument({raw, self}, _, _) -> self();
argument({raw, other}, _, #state{other = Other}) -> Other;
argument({raw, dead}, _, _) -> dead();
argument({option_list, Options, Last}, T, S) -> [option(O, T, S) || O <- Options] ++ [Last];
argument({settings, Settings}, T, S) when is_list(Settings) -> [option(O, T, S) || O <- Settings];
argument({settings, Setting}, T, S) -> option(Setting, T, S);
argument({positions, Positions}, _, _) -> Positions;
argument({raw, {improper, Terms, Tail}}, _, _) -> Terms ++ Tail;
argument({change, {put, Value}}, T, S) ->
    Put = argument(Value, T, S),
    fun(Object) -> setelement(1 + maps:get(T, S#state.keypos, 1) rem tuple_size(Object), Object, Put) end;
argument({change, Change}, _, _) -> change(Change);
argument({elements, {improper, Terms, Tail}}, _, _) -> Terms ++ Tail;
argument({elements, Operations}, T, S) -> elements(Operations, T, S);
argument({raw, Term}, _, _) -> Term;
argument({random, Term}, _, _) -> Term;
argument({key, Index}, _, #state{keys = Keys}) -> element(Index, Keys);
argument({term, Index}, _, _) -> term(Index);
argument({no_table, Index}, _, _) ->
    case term(Index) of
        Reference when is_reference(Reference) -> make_ref();
        Name when is_atom(Name) ->
            %% Tables get such names, too.
            case ets:whereis(Name) of
                undefined -> Name;
                _ -> nonexistent
            end;
        Term -> Term
    end;
argument({big, 1}, _, _) -> binary:copy(<<"big">>, 30000);
argument({big, 2}, _, _) -> lists:seq(1, 3000);
argument({big, 3}, _, _) -> {maps:from_list([{I, <<I>>} || I <- lists:seq(1, 200)]), lists:seq(1, 30)};
argument({big, 4}, _, _) -> lists:seq(1, 30000);
argument({tuple, Values}, T, S) -> list_to_tuple([argument(V, T, S) || V <- Values]);
argument({list, Objects, Tail}, T, S) -> [argument(O, T, S) || O <- Objects] ++ Tail;
argument({object, Key, Values}, T, S = #state{keypos = Keypos}) ->
    {Before, After} = lists:split(min(maps:get(T, Keypos, 1) - 1, length(Values)),
                                  [argument(V, T, S) || V <- Values]),
    list_to_tuple(Before ++ [argument(Key, T, S) | After]);
argument({many, First, Count}, T, S) ->
    [argument({object, {raw, First + N}, [{raw, N}, {raw, a}]}, T, S) || N <- lists:seq(1, Count)];
argument({existing, Key, Index}, T, S = #state{oracle = Oracle}) ->
    Table = maps:get(T, Oracle#side.tables, none),
    case by_owner(S, Table,
                  fun() -> attempt(fun() -> ets:lookup(Table, argument({key, Key}, T, S)) end) end) of
        [_ | _] = Objects -> lists:nth(1 + Index rem length(Objects), Objects);
        _ -> argument({object, {key, Key}, [{raw, 1}]}, T, S)
    end;
argument(Table, _, _) -> {table_argument, Table}.

option({heir, Who, Data}, T, S) when Who =:= self; Who =:= other; Who =:= dead ->
    {heir, argument({raw, Who}, T, S),
     case is_tuple(Data) of true -> argument(Data, T, S); false -> Data end};
option({heir, Who}, T, S) when Who =:= self; Who =:= other -> {heir, argument({raw, Who}, T, S)};
option(Option, _, _) -> Option.

elements(Operations, T, S) when is_list(Operations) -> [elements(O, T, S) || O <- Operations];
elements({Position, Value}, T, S) -> {Position, argument(Value, T, S)};
elements(Operation, _, _) -> Operation.

term(Index) ->
    Universe = get(universe),
    element(1 + (Index - 1) rem tuple_size(Universe), Universe).

change(same) -> fun(Object) -> Object end;
change(crash) -> fun(_) -> error(crash) end;
change(no_fun) -> fun() -> keep end;
change(other_key) -> fun(Object) -> list_to_tuple([other || _ <- tuple_to_list(Object)]) end;
change(enlarge) -> fun(Object) -> list_to_tuple(tuple_to_list(Object) ++ [1.5, <<"more">>]) end;
change(shrink) -> fun(Object) -> list_to_tuple(lists:droplast(tuple_to_list(Object))) end;
change(nonsense) -> fun(Object) -> [Object] end;
change(Result) -> fun(_) -> Result end.

dead() ->
    {Pid, Monitor} = spawn_monitor(fun() -> ok end),
    receive {'DOWN', Monitor, _, _, _} -> Pid end.

for_side({table_argument, Table}, Side) -> for_side(Table, Side);
for_side({table, Number}, #side{tables = Tables}) -> maps:get(Number, Tables, missing);
for_side({identifier, Number}, Side = #side{tables = Tables}) ->
    case maps:get(Number, Tables, missing) of
        Name when is_atom(Name) ->
            case call(Side#side.module, whereis, [Name]) of
                undefined -> Name;
                Identifier -> Identifier
            end;
        Identifier -> Identifier
    end;
for_side(deleted, #side{module = Module}) ->
    Table = call(Module, new, [deleted, []]),
    call(Module, delete, [Table]),
    Table;
for_side(Term, _) -> Term.

%%------------------------------------------------------------------------------------------------------------
%% Bookkeeping

%% A new table becomes table 3, after the first two. The previous table 3 is remembered, and deleted at the end.
after_call(new, _, _, {value, Table1}, {value, Table2},
           State = #state{oracle = Oracle, subject = Subject, keypos = Keypos}) ->
    Number = case map_size(Oracle#side.tables) of
                 Size when Size < 3 -> Size + 1;
                 _ -> 3
             end,
    State#state{oracle = add(Number, Table1, Oracle), subject = add(Number, Table2, Subject),
                keypos = Keypos#{Number => ets:info(Table1, keypos)}};
%% A table that is called by its name is called by its new name from now on.
after_call(rename, [{table, Number} | _], _, {value, Table1}, {value, Table2},
           State = #state{oracle = Oracle, subject = Subject}) ->
    State#state{oracle = add(Number, Table1, Oracle), subject = add(Number, Table2, Subject)};
after_call(rename, [{identifier, Number} | _], [_, Name], {value, _}, {value, _},
           State = #state{oracle = Oracle, subject = Subject}) ->
    case maps:get(Number, Oracle#side.tables) of
        Old when is_atom(Old) ->
            State#state{oracle = add(Number, Name, Oracle), subject = add(Number, Name, Subject)};
        _ -> State
    end;
after_call(_, _, _, _, _, State) ->
    State.

add(Number, Table, Side = #side{tables = Tables, garbage = Garbage}) ->
    Side#side{tables = Tables#{Number => Table}, garbage = [Table | Garbage]}.

clean(State = #state{other = Other}) ->
    [by_side(State, Side) || Side <- [State#state.oracle, State#state.subject]],
    unlink(Other),
    Monitor = monitor(process, Other),
    exit(Other, kill),
    receive {'DOWN', Monitor, _, _, _} -> ok end.

by_side(State, #side{module = Module, garbage = Garbage}) ->
    [begin
         Delete = fun() -> attempt(fun() -> call(Module, delete, [Table]) end) end,
         by(other, State, Delete),
         by(self, State, Delete)
     end || Table <- Garbage].

flush() -> receive _ -> flush() after 0 -> ok end.

contents(State = #state{oracle = Oracle, subject = Subject}) ->
    Read = fun(#side{module = Module, tables = Tables}, Number) ->
                   Table = maps:get(Number, Tables),
                   List = fun() -> perform(Module, tab2list, [Table]) end,
                   case List() of
                       {value, Objects} -> {value, Objects};
                       _ -> by(other, State, List)
                   end
           end,
    Same = lists:all(
             fun(Number) ->
                     Type = type_of(maps:get(Number, Oracle#side.tables)),
                     Contents1 = normal(tab2list, [none], Read(Oracle, Number), Oracle),
                     Contents2 = normal(tab2list, [none], Read(Subject, Number), Subject),
                     Equal = agree(tab2list, Type, false, Contents1, Contents2, none),
                     Equal orelse put(difference, {final_contents, Number, Contents1, Contents2}),
                     Equal orelse get(print) =:= true andalso
                         io:format("final contents of table ~b~n    ets: ~0tP~n    BUT: ~0tP~n",
                                   [Number, Contents1, 200, Contents2, 200]),
                     Equal
             end, maps:keys(Oracle#side.tables)),
    case Same of true -> same; false -> different end.

%%------------------------------------------------------------------------------------------------------------
%% Comparing

%% Results with table identifiers replaced by the tables' numbers, and exceptions with their explanation.
normal(Function, _, {value, Value}, Side) when Function =:= new; Function =:= rename; Function =:= whereis ->
    {value, number_of(Value, Side)};
normal(all, _, {value, Tables}, Side) ->
    {value, lists:usort([N || T <- Tables, {table_number, N} <- [number_of(T, Side)]])};
normal(info, [_], {value, Items}, Side) when is_list(Items) ->
    {value, [{Item, information(Item, Value, Side)}
             || {Item, Value} <- Items, not lists:member(Item, [engine, base_nodes])]};
normal(info, [_, Item], {value, Value}, Side) when Value =/= undefined ->
    {value, information(Item, Value, Side)};
normal(_, _, {value, Value}, _) ->
    {value, Value};
normal(Function, Arguments, {Class, Reason, Top}, #side{module = Module}) ->
    {Class, Reason, explanation(Function, Arguments, Reason, Top, Module)}.

number_of(Table, #side{tables = Tables}) when is_reference(Table) ->
    case [N || {N, T} <- maps:to_list(Tables), T =:= Table] of
        [N | _] -> {table_number, N};
        [] -> identifier
    end;
number_of(Table, _) -> Table.

information(Item, Value, Side) ->
    case lists:member(Item, [write_concurrency, decentralized_counters])
        andalso cats_chosen:chosen(write_concurrency) of
        true -> chosen_otherwise;
        false -> alike(Item, Value, Side)
    end.

alike(id, Id, _) when is_reference(Id) -> identifier;
alike(memory, Words, _) when is_integer(Words), Words > 0 -> words;
alike(stats, _, _) -> figures;
alike(binary, Binaries, _) when is_list(Binaries) -> binaries;
alike(safe_fixed_monotonic_time, {Time, Processes}, _) when is_integer(Time) ->
    {time, lists:sort(Processes)};
alike(safe_fixed, {{_, _, _}, Processes}, _) -> {time, lists:sort(Processes)};
alike(_, Value, _) -> Value.

%% The function and arguments of an exception, its cause, and its explanation for a person.
explanation(Function, Arguments, Reason, Top = {Blamed, Name, As, Info}, Module) ->
    case Module =:= cats andalso Blamed =/= cats of
        true when Function =/= update -> {raised_elsewhere, Top};
        _ when Function =:= lookup_elements; Function =:= lookup_many; Function =:= take_many; Function =:= delete_many;
               Function =:= insert_many; Function =:= replace; Function =:= update; Function =:= add ->
            raised;
        false when Function =:= traverse; Function =:= slots ->
            raised;
        %% ets reports an internal function that does the work.
        false when Function =:= tab2list; Function =:= delete_all_objects; tl(Arguments) =:= [binary] ->
            {cause(Info), remarks(Reason, Top)};
        %% cats says more, as cats_failure_SUITE has it.
        false when Function =:= setopts -> {Name, As =:= Arguments orelse As, cause(Info)};
        false -> {Name, As =:= Arguments orelse As, cause(Info), remarks(Reason, Top), text(Reason, Top)}
    end.

%% ets does not say why it refuses options.
cause(Info) ->
    case maps:get(cause, proplists:get_value(error_info, Info, #{}), none) of
        no_hash_table -> none;
        {Why, _Option} when Why =:= invalid_option; Why =:= repeated_option -> none;
        Cause -> Cause
    end.

remarks(Reason, Top = {_, Name, As, Info}) ->
    case {explained_here(Name, As) andalso known_cause(cause(Info)), proplists:get_value(error_info, Info)} of
        {true, #{module := Explainer}} ->
            try maps:map(fun(_, Text) -> without_option(cats_test_lib:in_words_of_ets(Text)) end,
                         Explainer:format_error(Reason, [Top]))
            catch error:_ -> #{}    % as on improper lists; a person is told nothing then
            end;
        {true, undefined} -> none;
        {false, _} -> unknown
    end.

%% cats says which option is invalid. ets does not.
without_option(Text) ->
    re:replace(Text, "invalid( ?)option:.*", "invalid\\1options", [dotall, unicode, {return, binary}]).

%% Whether the running OTP explains failures of this function of ets with this cause.
known_cause(Cause) -> Cause =/= default orelse since(29).

explained_here(Name, As) -> is_list(As) andalso erlang:function_exported(ets, Name, length(As)).

%% The shell's text if it is short enough to be read, without what depends on the length of the module's name.
text(Reason, Top = {_, Name, As, Info}) ->
    case explained_here(Name, As) andalso known_cause(cause(Info)) andalso erts_debug:flat_size(As) < 100 of
        true ->
            Frame = setelement(3, Top, one_identifier(As)),
            Text = unicode:characters_to_list(erl_error:format_exception(error, Reason, [Frame])),
            Called = re:replace([C || C <- Text, C > $\s, C =/= $"], "cats:", "ets:",
                                [global, unicode, {return, binary}]),
            without_option(cats_test_lib:in_words_of_ets(Called));
        false -> long
    end.

%% Identifiers differ between the sides.
one_identifier([Table | As]) when is_reference(Table) ->
    [hd([T || T <- tuple_to_list(get(universe)), is_reference(T)]) | As];
one_identifier(As) -> As.

agree(Function, Type, Present, Result1, Result2, Where) ->
    case {Function, Result1, Result2} of
        {_, _, {value, _}} when Type =/= ordered_set, not Present,
                                (Function =:= next orelse Function =:= prev orelse
                                 Function =:= next_lookup
                                     orelse Function =:= prev_lookup), element(1, Result1) =:= error ->
            element(3, element(3, Result1)) =:= none;
        {_, {value, Key1}, {value, Key2}} when Type =/= ordered_set,
                                (Function =:= first orelse Function =:= last orelse Function =:= next
                                 orelse Function =:= prev) ->
            some_key(Function, Present, Key1, Key2, Where);
        {_, {value, Found1}, {value, Found2}} when Type =/= ordered_set,
                                (Function =:= first_lookup orelse Function =:= last_lookup orelse
                                 Function =:= next_lookup orelse Function =:= prev_lookup) ->
            some_key_with_objects(Function, Present, Found1, Found2, Where);
        {Listing, {value, List1}, {value, List2}} when Type =/= ordered_set, is_list(List1), is_list(List2),
                                (Listing =:= tab2list orelse Listing =:= traverse orelse Listing =:= slots) ->
            exactly(Type, sorted(List1), sorted(List2));
        %% For a table that does not exist, ets fails as it does for no other item.
        {info, {error, badarg, {id, _}}, {value, undefined}} -> true;
        %% An empty ordered_set of ETS with decentralized counters has no slot at all, not even the end.
        {slot, {error, badarg, {slot, _, none, _, _}}, {value, '$end_of_table'}} when Type =:= ordered_set ->
            true;
        {slots, {error, badarg, raised}, {value, [{behind, badarg, none, _} | _]}} when Type =:= ordered_set -> true;
        %% The table may decide which slot an object is in.
        {slot, {value, Objects1}, {value, Objects2}} when Type =/= ordered_set, is_list(Objects1), is_list(Objects2) ->
            true;
        _ -> exactly(Type, Result1, Result2)
    end.

%% Where 0.0 and -0.0 are the same, a fixed bag of ETS may show a deleted object again. That happens when it gets an
%% object that is equal to the deleted one.
exactly(Type, A, B) ->
    A =:= B andalso (term_to_binary(A) =:= term_to_binary(B)
                     orelse Type =:= bag andalso not since(27)
                     orelse cats_oracle_terms:same(A, B)).

%% Sorts so that 1 and 1.0 differ, and terms that differ only in the signs of zeros are neighbours.
sorted(Terms) ->
    [Term || {_, _, Term} <- lists:sort([order(term_to_binary(Term), Term) || Term <- Terms])].

order(Binary, Term) ->
    NewFloat = 70,
    {binary:replace(Binary, <<NewFloat, 1:1, 0:63>>, <<NewFloat, 0:64>>, [global]), Binary, Term}.

%% In a hash table any key may be the first or the next one, but it must be a key.
some_key(Function, _, Key1, Key2, {State, Table}) ->
    (Function =:= next orelse Function =:= prev
     orelse (Key1 =:= '$end_of_table') =:= (Key2 =:= '$end_of_table'))
        andalso (Key2 =:= '$end_of_table'
                 orelse by_owner(State, Table, fun() -> ets:member(Table, Key2) end)).

some_key_with_objects(Function, Present, '$end_of_table', Found2, Where) ->
    case Found2 of
        '$end_of_table' -> true;
        {_, _} -> (Function =:= next_lookup orelse Function =:= prev_lookup)
                      andalso some_key_with_objects(Function, Present, Found2, Found2, Where)
    end;
some_key_with_objects(Function, _, _, '$end_of_table', _) ->
    Function =:= next_lookup orelse Function =:= prev_lookup;
some_key_with_objects(_, _, _, {Key2, Objects2}, {State, Table}) ->
    exactly(type_of(Table), by_owner(State, Table, fun() -> ets:lookup(Table, Key2) end), Objects2);
some_key_with_objects(_, _, _, _, _) ->
    false.
