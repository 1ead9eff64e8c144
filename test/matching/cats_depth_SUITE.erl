%% Terms that are nested deeply: in objects, and in the heads, guards and bodies of match specifications.
-module(cats_depth_SUITE).
-import(cats_test_lib, [one_of/1]).
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([conditions/1, conditions_of_one_level/1, bodies/1, constants/1, heads/1, parts_of_objects/1, keys/1,
         ranges_of_keys/1, replacements/1, transactions/1, comparisons/1, random_specifications/1]).

-include_lib("stdlib/include/assert.hrl").

-define(DEPTHS, [1, 10, 62, 63, 64, 65, 66, 67, 100, 1000, 50000]).

suite() -> [{timetrap, {minutes, 10}}].

all() ->
    [conditions, conditions_of_one_level, bodies, constants, heads, parts_of_objects, keys, ranges_of_keys,
     replacements, transactions, comparisons, random_specifications].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(cats),
    Config.

end_per_suite(_Config) -> ok.

%% A term with so many more levels.
nest(0, _Wrap, Term) -> Term;
nest(Depth, Wrap, Term) -> nest(Depth - 1, Wrap, Wrap(Term)).

table(Type, Objects) ->
    Table = cats:new(table, [Type, public]),
    true = cats:insert(Table, Objects),
    Table.

%%------------------------------------------------------------------------------------------------------------
%% Guards

conditions(_Config) ->
    Table = table(set, [{Key} || Key <- lists:seq(1, 10)]),
    [begin
         Keys = lists:seq(6, Depth + 5),
         Or = fun(Operator, Key, Rest) -> {Operator, {'=:=', '$1', Key}, Rest} end,
         Left = fun({Operator, One, Rest}) -> {Operator, Rest, One} end,
         And = fun(Operator, Key, Rest) -> {Operator, {'=/=', '$1', Key}, Rest} end,
         Found = min(5, Depth),
         [begin
              Ors = lists:foldl(fun(Key, Rest) -> Turn(Or(OrOperator, Key, Rest)) end, false, Keys),
              Ands = lists:foldl(fun(Key, Rest) -> Turn(And(AndOperator, Key, Rest)) end, true, Keys),
              [?assertEqual({Depth, Count}, {Depth, cats:select_count(Table, [{{'$1'}, [Guard], [true]}])})
               || {Guard, Count} <- [{Ors, Found}, {{'not', Ors}, 10 - Found},
                                     {Ands, 10 - Found}, {{'not', Ands}, Found}]]
          end || Turn <- [fun(Condition) -> Condition end, Left],
                 {OrOperator, AndOperator} <- [{'orelse', 'andalso'}, {'or', 'and'}]]
     end || Depth <- ?DEPTHS],
    Ors = lists:foldl(fun(Key, Rest) -> {'orelse', {'=:=', '$1', Key}, Rest} end, false, lists:seq(1, 100)),
    Deleted = table(set, [{Key} || Key <- lists:seq(1, 200)]),
    ?assertEqual(100, cats:select_delete(Deleted, [{{'$1'}, [Ors], [true]}])),
    ?assertEqual(100, cats:info(Deleted, size)).

conditions_of_one_level(_Config) ->
    Table = table(set, [{Key} || Key <- lists:seq(1, 10)]),
    [begin
         Keys = lists:seq(6, Width + 5),
         [?assertEqual({Operator, Width, Count},
                       {Operator, Width,
                        cats:select_count(Table, [{{'$1'}, [list_to_tuple([Operator | Conditions])], [true]}])})
          || {Operators, Conditions, Count} <- [{['or', 'orelse'], [{'=:=', '$1', Key} || Key <- Keys], min(5, Width)},
                                                {['and', 'andalso'], [{'=/=', '$1', Key} || Key <- Keys],
                                                 10 - min(5, Width)}],
             Operator <- Operators]
     end || Width <- ?DEPTHS].

%%------------------------------------------------------------------------------------------------------------
%% Bodies

bodies(_Config) ->
    Table = table(set, [{1, x}]),
    Select = fun(Body) -> cats:select(Table, [{{'$1', '$2'}, [], [Body]}]) end,
    [begin
         ?assertEqual([nest(Depth, Made, x)], Select(nest(Depth, Wrap, '$2'))),
         %% The same as stored terms, of which functions take parts.
         ?assertEqual([nest(Depth, Made, x)], Select({hd, [nest(Depth, Wrap, '$2')]})),
         ?assertEqual([{{nest(Depth, Made, x)}}], Select({{{element, 1, {{{{nest(Depth, Wrap, '$2')}}}}}}}))
     end || Depth <- ?DEPTHS,
            {Wrap, Made} <- [{fun(X) -> {{X}} end, fun(X) -> {X} end}, {fun(X) -> [X] end, fun(X) -> [X] end},
                             {fun(X) -> {{X, ['$1'], [X1 || X1 <- [a]]}} end, fun(X) -> {X, [1], [a]} end},
                             {fun(X) -> [a, X | '$2'] end, fun(X) -> [a, X | x] end},
                             {fun(X) -> #{'$1' => X, {{'$2'}} => 3} end, fun(X) -> #{1 => X, {x} => 3} end}]],
    [begin
         ?assertEqual([Depth + 1], Select(nest(Depth, fun(X) -> {'+', X, 1} end, '$1'))),
         ?assertEqual([Depth + 1], Select(nest(Depth, fun(X) -> {'+', 1, X} end, '$1'))),
         ?assertEqual([x], Select(nest(Depth, fun(X) -> {hd, [X]} end, '$2'))),
         ?assertEqual([x], Select(nest(Depth, fun(X) -> {element, 2, {{'$1', X}}} end, '$2'))),
         ?assertEqual([x], Select(nest(Depth, fun(X) -> {map_get, a, #{a => X}} end, '$2'))),
         ?assertEqual(['EXIT'], Select(nest(Depth, fun(X) -> {abs, X} end, '$2'))),
         ?assertEqual([2],
                      cats:select(Table,
                                  [{{'$1', '$2'},
                                    [{'=:=', nest(Depth, fun(X) -> {'+', X, 1} end, '$1'), Depth + 1}], [2]}]))
     end || Depth <- ?DEPTHS].

constants(_Config) ->
    Table = table(set, [{1, x}]),
    [begin
         Constant = nest(Depth, Wrap, '$2'),
         [Result] = cats:select(Table,
                                [{{'$1', '$2'}, [{'=:=', {const, Constant}, {const, nest(Depth, Wrap, '$2')}}],
                                  [{const, Constant}]}]),
         ?assert(Constant =:= Result),
         ?assertEqual([],
                      cats:select(Table,
                                  [{{'$1', '$2'},
                                    [{'==', {const, Constant}, {const, nest(Depth, Wrap, '$1')}}], [1]}])),
         %% A constant `const' in a constant is one.
         ?assertEqual([nest(Depth, fun(X) -> {const, X} end, 1)],
                      cats:select(Table, [{'_', [], [{const, nest(Depth, fun(X) -> {const, X} end, 1)}]}]))
     end || Depth <- ?DEPTHS, Wrap <- wraps()].

%% What adds a level to an object.
wraps() ->
    [fun(X) -> {X} end, fun(X) -> [X] end, fun(X) -> [a, X | b] end, fun(X) -> #{a => X} end,
     fun(X) -> {[1], X, [a], #{b => 1.5}} end].

%%------------------------------------------------------------------------------------------------------------
%% Objects and heads

heads(_Config) ->
    [begin
         Term = fun(Inner) -> nest(Depth, Wrap, Inner) end,
         Objects = [{1, Term({x, [y]})}, {2, Term({x, [z]})}, {3, Term({y, [y]})}, {4, Term(1.0)}, {5, Term([])}],
         Table = table(Type, Objects),
         [?assertEqual({Depth, Head, Found},
                       {Depth, Head, lists:sort([element(1, Object) || Object <- cats:match_object(Table, Head)])})
          || {Head, Found} <- [{{'_', Term({'$1', ['$2']})}, [1, 2, 3]}, {{'_', Term({'$1', ['$1']})}, [3]},
                               {{'_', Term({x, '_'})}, [1, 2]}, {{'_', Term('$5')}, [1, 2, 3, 4, 5]},
                               {{'_', Term({x, [y]})}, [1]}, {{'_', Term(1)}, []}, {{'_', Term(1.0)}, [4]},
                               {{'$7', Term({'_', ['_' | '_']})}, [1, 2, 3]}, {{'_', Term({'_'})}, []},
                               {{'_', Term(Wrap('_'))}, [5 || Wrap([]) =:= []]}, {{3, Term('_')}, [3]}]],
         ?assertEqual([[x, y]], cats:match(Table, {1, Term({'$1', ['$2']})})),
         ?assertEqual([{x, 2}, {y, 3}],
                      lists:sort(cats:select(Table,
                                             [{{'$3', Term({'$1', '$2'})}, [{'=/=', '$3', 1}], [{{'$1', '$3'}}]}]))),
         ?assertEqual(1, cats:select_count(Table, [{{'$1', Term('$2')}, [{'=:=', '$2', 1.0}], [true]}])),
         ?assertEqual(3, cats:select_delete(Table, [{{'_', Term({'$1', ['$2']})}, [], [true]}])),
         ?assertEqual([{4, Term(1.0)}, {5, Term([])}], lists:sort(cats:tab2list(Table))),
         cats:delete(Table)
     end || Type <- [set, ordered_set, duplicate_bag],
            Depth <- [5000 || Type =:= set] ++ ?DEPTHS -- [50000], Wrap <- wraps()].

parts_of_objects(_Config) ->
    [begin
         Deep = nest(Depth, fun(X) -> {X, a} end, {x, [1, 2], #{k => v}}),
         Table = table(set, [{1, Deep}]),
         Part = nest(Depth, fun(X) -> {element, 1, X} end, '$1'),
         ?assertEqual([{x, [1, 2], [2], v, 1, 2, 3, true}],
                      cats:select(Table, [{{1, '$1'}, [],
                                           [{{{element, 1, Part}, {element, 2, Part}, {tl, {element, 2, Part}},
                                              {map_get, k, {element, 3, Part}}, {map_size, {element, 3, Part}},
                                              {length, {element, 2, Part}}, {tuple_size, Part},
                                              {is_record, Part, x, 3}}}]}])),
         ?assertEqual([1],
                      cats:select(Table,
                                  [{{'$1', '$2'},
                                    [{is_map_key, k, {element, 3, nest(Depth, fun(X) -> {element, 1, X} end, '$2')}},
                                     {'=:=', '$2', {const, Deep}},
                                     {'==', nest(Depth, fun(X) -> {{X, a}} end, Part2), '$2'}],
                                    ['$1']}]))
     end || Depth <- ?DEPTHS -- [50000], Part2 <- [nest(Depth, fun(X) -> {element, 1, X} end, '$2')]].

%% Keys are found by heads that have them.
keys(_Config) ->
    [begin
         Keys = [nest(Depth, Wrap, Inner) || Inner <- [1, {2, [2.5]}, [], <<"binary">>]],
         Table = table(Type, [{Key, N} || {N, Key} <- lists:enumerate(Keys)]),
         [begin
              ?assertEqual([{Key, N}], cats:lookup(Table, Key)),
              ?assertEqual([{Key, N}], cats:match_object(Table, {Key, '_'})),
              ?assertEqual([N], cats:select(Table, [{{Key, '$1'}, [], ['$1']}])),
              ?assertEqual([N], cats:select(Table, [{{'$2', '$1'}, [{'=:=', '$2', {const, Key}}], ['$1']}])),
              ?assertEqual([N],
                           lists:usort(cats:select(Table, [{{Key, '$1'}, [], ['$1']}, {{{none}, '$1'}, [], ['$1']}])))
          end || {N, Key} <- lists:enumerate(Keys)],
         ?assertEqual(4, cats:select_count(Table, [{{Key, '_'}, [], [true]} || Key <- Keys])),
         ?assertEqual([2], cats:select(Table, [{{nest(Depth, Wrap, {2, '_'}), '$1'}, [], ['$1']}])),
         [?assertEqual(1, cats:select_delete(Table, [{{Key, '_'}, [], [true]}])) || Key <- Keys],
         cats:delete(Table)
     end || Type <- [set, ordered_set, bag, duplicate_bag], Depth <- [1, 10, 61, 62, 63, 64, 65, 66, 100, 1000],
            Wrap <- tl(lists:reverse(wraps()))].

ranges_of_keys(_Config) ->
    [begin
         Table = table(ordered_set, [{{A, nest(Depth, Wrap, {B, c})}} || A <- [1, 2, 3], B <- [1, 2, 3]]),
         ?assertEqual([{{2, nest(Depth, Wrap, {B, c})}} || B <- [1, 2, 3]],
                      cats:match_object(Table, {{2, nest(Depth, Wrap, {'$1', c})}})),
         ?assertEqual([{2, 3}],
                      cats:select(Table,
                                  [{{{'$1', nest(Depth, Wrap, {'$2', '_'})}}, [{'==', '$1', 2.0}, {'>', '$2', 2}],
                                    [{{'$1', '$2'}}]}])),
         ?assertEqual(3,
                      cats:select_count(Table,
                                        [{{{'_', '$1'}}, [{'=:=', '$1', {const, nest(Depth, Wrap, {1, c})}}], [true]}]))
     end || Depth <- [1, 10, 61, 62, 63, 64, 65, 100, 1000], Wrap <- wraps()].

%% A replacement keeps the key, if its form says so.
replacements(_Config) ->
    [begin
         [Key, Head] = [nest(Depth, Wrap, {Inner, [b]}) || Inner <- [a, '$1']],
         Body = nest(Depth, Build, {{'$1', ['$9']}}),
         Table = table(Type, [{Key, b, 1}]),
         [begin
              ?assertEqual(1,
                           cats:select_replace(Table,
                                               [{{KeyHead, '$9', '$3'}, [], [{{KeyBody, '$9', {'+', '$3', 1}}}]}])),
              ?assertEqual([{Key, b, N + 1}], cats:tab2list(Table))
          end
          || {N, {KeyHead, KeyBody}} <-
                 lists:enumerate([{nest(Depth, Wrap, {'$1', ['$2']}), nest(Depth, Build, {{'$1', ['$2']}})},
                                  {Head, nest(Depth, Build, {{'$1', [b]}})},
                                  {Head, nest(Depth, Build, {{'$1', {const, [b]}}})},
                                  {Key, {const, Key}}, {'$1', '$1'}])],
         ?assertError(badarg, cats:select_replace(Table, [{{Head, '$9', '$3'}, [], [{{Body, '$9', '$3'}}]}])),
         ?assertEqual(1,
                      cats:select_replace(Table, [{{'$1', '$2', '$3'}, [], [{{'$1', nest(Depth, Build, '$2'), 0}}]}])),
         ?assertEqual([{Key, nest(Depth, Wrap, b), 0}], cats:lookup(Table, Key)),
         cats:delete(Table)
     end || Type <- [set, ordered_set], Depth <- [1, 10, 61, 62, 63, 64, 65, 100, 1000],
            {Wrap, Build} <- [{fun(X) -> {X} end, fun(X) -> {{X}} end}, {fun(X) -> [a, X] end, fun(X) -> [a, X] end},
                              {fun(X) -> [X | a] end, fun(X) -> [X | a] end}]].

transactions(_Config) ->
    [begin
         Key = nest(Depth, Wrap, {a}),
         Table = table(Type, [{Key, nest(Depth, Wrap, b)}]),
         Select = fun(Specification) -> cats_transaction:run(fun cats_transaction:select/2, [Table, Specification]) end,
         ?assertEqual({atomic, [b]}, Select([{{Key, nest(Depth, Wrap, '$1')}, [], ['$1']}])),
         ?assertEqual({atomic, [Depth]}, Select([{{Key, '_'}, [], [nest(Depth, fun(X) -> {'+', X, 1} end, 0)]}]))
     end || Type <- [set, ordered_set], Depth <- [1, 62, 63, 64, 65, 100, 1000], Wrap <- wraps(),
            not is_map(Wrap(1)) orelse Type =:= ordered_set, not is_tuple(Wrap(1)) orelse tuple_size(Wrap(1)) =:= 1].

%% The order of deep terms is that of the VM.
comparisons(_Config) ->
    [begin
         Terms = [nest(Depth, Wrap, Inner) || Wrap <- wraps(), Inner <- [1, 1.0, 2, {a}, [a], #{a => 1}, <<1>>]],
         Table = table(set, [{N, Term} || {N, Term} <- lists:enumerate(Terms)]),
         [?assertEqual({Operator, Term, [N || {N, Other} <- lists:enumerate(Terms), erlang:Operator(Other, Term)]},
                       {Operator, Term,
                        lists:sort(cats:select(Table, [{{'$1', '$2'}, [{Operator, '$2', {const, Term}}], ['$1']}]))})
          || Operator <- ['<', '==', '=:=', '>='], Term <- Terms]
     end || Depth <- [10, 63, 64, 65, 200]].

%%------------------------------------------------------------------------------------------------------------
%% Random specifications, compared with ets

%% A difference names the seed of its round.
random_specifications(_Config) ->
    First = erlang:system_time(),
    [begin
         _ = rand:seed(exsss, Seed),
         Depth = lists:nth(rand:uniform(4), [20, 70, 300, 3000]),
         {Value, Head} = random_object(rand:uniform(Depth), leaf(), one_of(['$1', '$2', '_'])),
         Objects = [{1, Value, 1}, {2, leaf(), Value}, {3, {Value}, 2.0}, {4, Value, Value}],
         Specification = [{{'$3', Head, '$4'},
                           [random_guard(rand:uniform(Depth), one_of([true, '$3', {'>', '$3', 1}, {is_tuple, '$4'}]))],
                           [random_body(rand:uniform(Depth), one_of(['$3', '$4', '$_', '$$', x, 1]))]}],
         Sides = [begin
                      Table = Module:new(table, [Type, public]),
                      Module:insert(Table, Objects),
                      outcome(fun() -> lists:sort(Module:select(Table, Specification)) end)
                  end || Type <- [one_of([set, ordered_set, bag])], Module <- [ets, cats]],
         case Sides of
             %% Before OTP 29 there are limits.
             [{error, system_limit}, {value, _}] -> ok;
             [Same, Same] -> ok;
             [Ets, Cats] -> ct:fail({different, Seed, hash(Ets), hash(Cats)})
         end
     end || Seed <- lists:seq(First, First + 199)].

outcome(Fun) ->
    try {value, Fun()} catch error:Reason -> {error, Reason} end.

hash({value, Results}) ->
    {value, length(Results), [{erlang:phash2(Result), erts_debug:flat_size(Result)} || Result <- Results]};
hash(Error) -> Error.

leaf() -> one_of([1, 1.0, a, [], <<"binary">>, {}, #{}]).

%% A value, and a head that is nested alike.
random_object(0, Value, Head) -> {Value, Head};
random_object(Depth, Value, Head) ->
    Wrap = one_of(wraps()),
    random_object(Depth - 1, Wrap(Value), Wrap(Head)).

random_guard(0, Guard) -> Guard;
random_guard(Depth, Guard) ->
    random_guard(Depth - 1, case rand:uniform(9) of
                                1 -> {'not', Guard};
                                2 -> {'andalso', Guard, one_of([true, '$3', {'<', '$3', 4}])};
                                3 -> {'orelse', {'=:=', '$3', 3}, Guard};
                                4 -> {'and', one_of([true, {is_list, '$4'}]), Guard};
                                5 -> {'or', Guard, false};
                                6 -> {element, 1, {{Guard, '$4'}}};
                                7 -> {hd, [Guard | '$4']};
                                8 -> {'=:=', Guard, true};
                                9 -> {'=/=', {{Guard}}, {{false}}}
                            end).

random_body(0, Body) -> Body;
random_body(Depth, Body) ->
    random_body(Depth - 1, case rand:uniform(12) of
                               1 -> {{Body}};
                               2 -> {{a, Body, '$3'}};
                               3 -> [Body];
                               4 -> [Body, b | '$3'];
                               5 -> [a | Body];
                               6 -> #{a => Body};
                               7 -> {element, 1, {{Body, '$4'}}};
                               8 -> {hd, [Body]};
                               9 -> {tl, [a | Body]};
                               10 -> {map_get, a, #{a => Body}};
                               11 -> {'+', Body, '$3'};
                               12 -> {{Body, [Body || Body <- [a, b]]}}
                           end).
