%% Failing calls of cats against the same calls of ets: class, reason, the frame on top of the stack with its
%% cause, and the remarks on the arguments that the shell prints. Functions that the running OTP's ets does
%% not have are held against the remarks of OTP 29.
-module(cats_failure_SUITE).
-include_lib("stdlib/include/assert.hrl").
-include("cats_failure.hrl").
-export([all/0, suite/0, init_per_testcase/2, end_per_testcase/2]).
-export([table_argument/1, access/1, arguments/1, newer_functions/1, own_functions/1, callers_stack/1, mailbox/1,
         retries/1, results_like_failures/1, objects_like_failures/1]).
-export([tables_of_ets/1, options/1, failures_elsewhere/1, lookup_with_causes/2, deletions_without_memory/1,
         too_large_integers/1]).
-export([limits/1, option_words/1, options_of_tools/1, exhaust/0]).

all() ->
    [table_argument, access, arguments, newer_functions, own_functions, tables_of_ets, options, option_words,
     options_of_tools, limits, failures_elsewhere, callers_stack, mailbox, retries, results_like_failures,
     objects_like_failures, deletions_without_memory, too_large_integers].

suite() ->
    [{timetrap, {minutes, 10}}].

init_per_testcase(_Case, Config) ->
    _ = application:stop(cats),
    Config.

end_per_testcase(_Case, _Config) ->
    ok.

types() ->
    [set, ordered_set, bag, duplicate_bag].

%% Every function with a table in front, and arguments that are good.
calls() ->
    [{delete, []}, {delete, [k]}, {delete_all_objects, []}, {delete_object, [{k, 1}]}, {first, []},
     {first_lookup, []}, {give_away, [self(), gift]}, {info, []}, {info, [size]}, {insert, [{k, 1}]},
     {insert, [[{k, 1}]]}, {insert_new, [{k, 1}]}, {insert_new, [[{k, 1}]]}, {last, []}, {last_lookup, []},
     {lookup, [k]}, {lookup_element, [k, 1]}, {lookup_element, [k, 1, none]}, {member, [k]}, {next, [k]},
     {next_lookup, [k]}, {prev, [k]}, {prev_lookup, [k]}, {rename, [other]}, {safe_fixtable, [true]},
     {setopts, [{heir, none}]}, {slot, [0]}, {tab2list, []}, {take, [k]}, {update_counter, [k, 1]},
     {update_counter, [k, 1, {k, 1}]}, {update_element, [k, {2, 1}]}, {update_element, [k, {2, 1}, {k, 1}]},
     {match, ['_']}, {match, ['_', 1]}, {match_delete, ['_']}, {match_delete, [{k, 1}]},
     {match_object, [{k, '_', '_'}]},
     {match_object, ['_', 1]}, {select, [spec()]}, {select, [spec(), 1]}, {select_reverse, [spec()]},
     {select_reverse, [spec(), 1]}, {select_count, [spec()]}, {select_delete, [spec()]}, {select_replace, [spec()]}].

spec() ->
    [{{k, '$1', '_'}, [], ['$_']}].

%% Arguments that are bad, for a table of objects {Key, Atom, Integer}, with the key as its first element.
%% Some of them succeed for some types of tables. A default tuple without a key is missing: in
%% ets:update_counter/4 and ets:update_element/4 it ends the VM of releases before 29.
bad_arguments() ->
    [{delete_object, [not_a_tuple]}, {delete_object, [{}]}, {give_away, [not_a_pid, gift]},
     {give_away, [self(), gift]}, {give_away, [dead(), gift]}, {info, [no_item]}, {info, [1]},
     {info, [{safe, fixed}]}, {insert, [not_a_tuple]}, {insert, [{}]}, {insert, [[{k}, {}]]},
     {insert, [[{k} | {l}]]}, {insert, [[{k}, no]]}, {insert_new, [not_a_tuple]}, {insert_new, [{}]},
     {insert_new, [[{k}, {}]]}, {insert_new, [[{k} | {l}]]}, {lookup_element, [k, 4]},
     {lookup_element, [k, 0]}, {lookup_element, [k, -1]}, {lookup_element, [k, no]},
     {lookup_element, [k, 1 bsl 70]}, {lookup_element, [nokey, 1]}, {lookup_element, [nokey, 4]},
     {lookup_element, [nokey, 0]}, {lookup_element, [nokey, no]}, {lookup_element, [k, 4, default]},
     {lookup_element, [k, 0, default]}, {lookup_element, [k, no, default]},
     {lookup_element, [nokey, 0, default]}, {rename, ["name"]}, {rename, [taken_name()]},
     {safe_fixtable, [no]}, {setopts, [no]}, {setopts, [{heir, no}]},
     {setopts, [[{heir, none}, {heir, none}]]}, {setopts, [{heir, none, data}]},
     {setopts, [[{heir, none} | no]]}, {setopts, [{protection, public}]}, {slot, [no]}, {slot, [-1]},
     {slot, [1 bsl 20]}, {slot, [1 bsl 70]}, {update_counter, [nokey, 1]}, {update_counter, [k, 1]},
     {update_counter, [k, {2, 1}]}, {update_counter, [k, {1, 1}]}, {update_counter, [k, {0, 1}]},
     {update_counter, [k, {4, 1}]}, {update_counter, [k, {-1, 1}]}, {update_counter, [k, {1 bsl 70, 1}]},
     {update_counter, [k, {3, no}]}, {update_counter, [k, {no, 1}]}, {update_counter, [k, {3, 1, no, 1}]},
     {update_counter, [k, {3, 1, 1, no}]}, {update_counter, [k, {3, 1, 1}]}, {update_counter, [k, no]},
     {update_counter, [k, 1.0]}, {update_counter, [k, [{3, 1}, {2, 1}]]},
     {update_counter, [k, [{3, 1} | no]]}, {update_counter, [k, [{3, 1}, no]]},
     {update_counter, [k, [{3, 1}, 1]]}, {update_counter, [nokey, no]}, {update_counter, [nokey, {1, 1}]},
     {update_counter, [nokey, {9, 1}]}, {update_counter, [nokey, 1, no]},
     {update_counter, [nokey, 1, {a}]}, {update_counter, [nokey, {3, 1}, {a, 1}]},
     {update_counter, [nokey, 1, {a, b}]}, {update_counter, [k, 1, {a, 1}]},
     {update_counter, [nokey, {1, 1}, {a, 1}]}, {update_counter, [nokey, no, {a, 1}]},
     {update_counter, [k, no, no]}, {update_counter, [k, {3, 1}, no]},
     {update_counter, [k, {1, 1}, {a, 1}]}, {update_element, [k, {1, new}]}, {update_element, [k, {0, new}]},
     {update_element, [k, {4, new}]}, {update_element, [k, {-1, new}]}, {update_element, [k, {no, new}]},
     {update_element, [k, no]}, {update_element, [k, {1 bsl 70, new}]},
     {update_element, [k, [{2, a}, {4, b}]]}, {update_element, [k, [{2, a} | no]]},
     {update_element, [k, [{2, a}, no]]}, {update_element, [k, [{2, a}, {1, b}]]},
     {update_element, [nokey, {1, new}]}, {update_element, [nokey, {9, new}]}, {update_element, [nokey, no]},
     {update_element, [nokey, {2, new}, no]},
     {update_element, [nokey, {2, new}, {a}]}, {update_element, [nokey, {1, new}, {a, b}]},
     {update_element, [nokey, {0, new}, {a, b}]}, {update_element, [nokey, no, {a, b}]},
     {update_element, [nokey, no, no]}, {update_element, [k, {2, new}, no]},
     {update_element, [k, {9, new}, {a, b}]}]
    ++ [{Function, [What]} || Function <- [match, match_object, match_delete], What <- [1, [], "p", {}]]
    ++ [{Function, [What, Limit]} || Function <- [match, match_object], What <- ['_', 1], Limit <- [0, no, 1 bsl 70]]
    ++ [{Function, [What]} || Function <- [select, select_reverse, select_count, select_delete, select_replace],
                              What <- [no, [], [{k}], [{'_', [], []}], [{'_', [{no_guard}], ['$_']}], [spec() | no]]]
    ++ [{select_replace, [[{'_', [], [{{a, b, c}}]}]]}]
    ++ [{Function, [What, Limit]} || Function <- [select, select_reverse], What <- [spec(), no],
                                     Limit <- [1, 0, no, 1 bsl 70]].

bad_options() ->
    [["name", []], [1, [named_table]], [t, no], [t, [set | bag]], [t, [no]], [t, [{keypos, 0}]],
     [t, [{keypos, no}]], [t, [{keypos, -1}]], [t, [{keypos, 1 bsl 70}]], [t, [{heir, no}]],
     [t, [{heir, self()}, no]], [t, [{heir, none, x}]], [t, [{write_concurrency, no}]],
     [t, [{read_concurrency, auto}]], [t, [{decentralized_counters, 1}]], [t, [{compressed, true}]],
     [t, [{no, no}]], [t, [{named_table, true}]], [taken_name(), [named_table]],
     [taken_name(), [named_table, no]], [t, {set}], ["name", no]].

taken_name() ->
    cats_failure_SUITE_taken.

%% A table that does not exist, in every way that a term can fail to be one.
table_argument(_Config) ->
    Gone = fun(Module) ->
               Table = Module:new(gone, []),
               true = Module:delete(Table),
               Table
           end,
    compare_all([{Table, Function, Arguments} || Table <- [Gone, constant(no_such_table), constant(1), constant("t"),
                                                           constant({t}), constant(make_ref()), constant(self())],
                                                 {Function, Arguments} <- calls()]),
    compare_all([{constant(Name), whereis, []} || Name <- ["name", 1, make_ref()]]).

%% Another process' table, of each kind of access.
access(_Config) ->
    Tables = [{Type, Access} || Type <- types(), Access <- [private, protected, public]],
    compare_all([{fun(Module) -> others_table(Module, [Type, Access]) end, Function, Arguments}
                 || {Type, Access} <- Tables, {Function, Arguments} <- calls()]).

arguments(_Config) ->
    [Module:new(taken_name(), [named_table]) || Module <- [ets, cats]],
    Table = fun(Type) ->
                fun(Module) -> filled(Module, Module:new(arguments, [Type])) end
            end,
    Named = fun(Module) ->
                [Module:delete(arguments) || Module:whereis(arguments) =/= undefined],
                filled(Module, Module:new(arguments, [named_table]))
            end,
    compare_all([{Table(Type), Function, Arguments} || Type <- types(), {Function, Arguments} <- bad_arguments()]),
    compare_all([{Named, Function, Arguments} || {Function, Arguments} <- bad_arguments()]),
    compare_all([{constant(Name), new, [Options]} || [Name, Options] <- bad_options()]),
    [Module:delete(taken_name()) || Module <- [ets, cats]].

%% These hold on every OTP release, also when its ets knows neither the function nor the remark.
newer_functions(_Config) ->
    Table = filled(cats, cats:new(newer, [])),
    NoTable = <<"the table identifier does not refer to an existing table of cats">>,
    Expected =
        [{lookup_element, [no_table, k, 1, d], #{1 => NoTable}},
         {lookup_element, [Table, k, 4, d], #{3 => <<"position is greater than the size of the object">>}},
         {lookup_element, [Table, k, 0, d], #{3 => <<"out of range">>}},
         {lookup_element, [Table, k, no, d], #{3 => <<"not an integer">>}},
         {first_lookup, [no_table], #{1 => NoTable}},
         {last_lookup, [no_table], #{1 => NoTable}},
         {next_lookup, [no_table, k], #{1 => NoTable}},
         {prev_lookup, [no_table, k], #{1 => NoTable}},
         {update_element, [Table, nokey, {2, new}, no], #{4 => <<"not a tuple">>}},
         {update_element, [Table, nokey, {2, new}, {}], #{4 => <<"default tuple too small">>}},
         {update_element, [Table, k, no, {a, b}], #{3 => <<"is not a valid element specification">>}},
         {update_element, [Table, k, {1, new}, {a, b}], #{3 => <<"the position is the same as the key position">>}}],
    [?assertEqual({Function, Arguments, Remarks}, {Function, Arguments, remarks(failure(cats, Function, Arguments))})
     || {Function, Arguments, Remarks} <- Expected].

own_functions(_Config) ->
    Table = filled(cats, cats:new(own, [])),
    NoTable = <<"the table identifier does not refer to an existing table of cats">>,
    NoSpec = <<"not a valid match specification">>,
    Place = {Table, make_ref(), 0, select, 1, []},
    Whole = [{foldl, [fun max/2, 0, no_table], #{3 => NoTable}}, {foldr, [fun max/2, 0, no_table], #{3 => NoTable}},
             {init_table, [no_table, fun(_) -> end_of_input end], #{1 => NoTable}},
             {table, [no_table, []], #{1 => NoTable}}, {repair_continuation, [Place, no_spec], #{2 => NoSpec}},
             {select, [{no_table, make_ref(), 0, select, 1, []}], #{1 => <<"invalid continuation">>}}],
    [?assertEqual({Function, Remarks}, {Function, remarks(failure(cats, Function, Arguments))})
     || {Function, Arguments, Remarks} <- Whole],
    NoPositions = <<"not a list of positions">>,
    Expected = [{[no_table, k, [1]], #{1 => NoTable}},
                {[Table, nokey, [1]], #{2 => <<"not a key that exists in the table">>}},
                {[Table, k, [1, 4]], #{3 => <<"position is greater than the size of the object">>}},
                {[Table, k, [1, 0]], #{3 => NoPositions}},
                {[Table, k, 1], #{3 => NoPositions}},
                {[Table, k, [1 | 2]], #{3 => NoPositions}}],
    [?assertEqual({Arguments, Remarks}, {Arguments, remarks(failure(cats, lookup_elements, Arguments))})
     || {Arguments, Remarks} <- Expected],
    NoList = <<"not a list">>,
    [?assertEqual({Arguments, Remarks}, {Arguments, remarks(failure(cats, lookup_many, Arguments))})
     || {Arguments, Remarks} <- [{[no_table, []], #{1 => NoTable}}, {[no_table, k], #{1 => NoTable, 2 => NoList}},
                                 {[Table, k], #{2 => NoList}}, {[Table, [1 | 2]], #{2 => NoList}},
                                 {[Table, lists:seq(1, 1000) ++ 2], #{2 => NoList}}]],
    ?assertEqual(#{2 => <<"engine hash does not hold ordered sets">>},
                 remarks(failure(cats, new, [t, [ordered_set, {engine, hash}]]))).

%% Who gives cats a table of ets is told so, and what to do, in every function that takes a table.
tables_of_ets(_Config) ->
    Remark = <<"a table of ets, not of cats: create it by cats:new/2, compile the module that creates it with"
               " cats_transform, or copy it by cats:from_ets/2">>,
    Named = ets:new(tables_of_ets, [named_table]),
    Unnamed = ets:new(tables_of_ets, []),
    Others = fun(Table) ->
                 [{foldl, [fun max/2, 0, Table], 3}, {foldr, [fun max/2, 0, Table], 3},
                  {init_table, [Table, fun(_) -> end_of_input end], 1}, {lookup_elements, [Table, k, [1]], 1},
                  {lookup_many, [Table, [k]], 1}, {fetch_many, [Table, [k], fun(_) -> [] end], 1},
                  {rank, [Table, k], 1}, {nth, [Table, 0], 1},
                  {count, [Table, 1, 2], 1}, {range, [Table, 1, 2, 3], 1}, {from_ets, [Table, Table], 1},
                  {to_ets, [Table, Table], 1}, {from_dets, [Table, dets], 1}, {to_dets, [Table, dets], 1}]
             end,
    [?assertEqual({Function, Remark}, {Function, maps:get(Place, remarks(failure(cats, Function, Arguments)))})
     || Table <- [Named, Unnamed],
        {Function, Arguments, Place} <- Others(Table) ++ [{Function, [Table | More], 1} || {Function, More} <- calls(),
                                                                                    Function =/= info]],
    ?assertEqual(Remark, maps:get(1, remarks(failure(cats, table, [Named, []])))),
    %% Where both have one, it is cats that counts.
    tables_of_ets = cats:new(tables_of_ets, [named_table]),
    [] = cats:lookup(tables_of_ets, k),
    ?assertEqual(#{2 => <<"not a key that exists in the table">>},
                 remarks(failure(cats, lookup_element, [tables_of_ets, k, 1]))),
    true = cats:delete(tables_of_ets).

%% Which option is refused, where ets says that one is.
options(_Config) ->
    Table = cats:new(options, []),
    Invalid = fun(Function, Option) -> #{2 => cats_test_lib:invalid_option(Function, Option)} end,
    Wrong = [foo, "name", <<"name">>, 1, {}, {foo}, {foo, 1}, {keypos, 0}, {heir, foo}, {heir, foo, data},
             {heir, none, data}, {write_concurrency, maybe_}, {read_concurrency, 1}, {decentralized_counters, x},
             {write_concurrency, {debug_hash_fixed_number_of_locks, 0}}, {engine, no_such_engine}, {lock, no_such_lock},
             {named_table, true}, {'name with spaces', "\x{3b1}"}],
    [?assertEqual({Options, Invalid(new, Option)}, {Options, remarks(failure(cats, new, [t, Options]))})
     || Option <- Wrong, Options <- [[Option], [set, public, Option], [Option, named_table, bar]]],
    [?assertEqual({Options, Invalid(setopts, Option)}, {Options, remarks(failure(cats, setopts, [Table, Options]))})
     || Option <- Wrong ++ [set, {protection, 1}, {protection, set}, {protection}],
        Options <- [[Option], [{heir, none}, Option], [Option, bar]] ++ [Option || is_tuple(Option)]],
    [?assertEqual({Options, Invalid(table, Option)}, {Options, remarks(failure(cats, table, [Table, Options]))})
     || Option <- [foo, {foo, 1}, {n_objects, 0}, {n_objects, x}, {traverse, x}, {traverse, select, x}, {info_fun, 1}],
        Options <- [[Option], [Option, {pre_fun, fun(_) -> ok end}], Option]],
    Again = fun(Option) ->
                    #{2 => unicode:characters_to_binary(io_lib:format("invalid option: ~0tp again", [Option]))}
            end,
    ?assertEqual(Again({heir, none}), remarks(failure(cats, setopts, [Table, [{heir, self(), x}, {heir, none}]]))),
    ?assertEqual(Again({protection, public}),
                 remarks(failure(cats, setopts, [Table, [{protection, public}, {protection, public}]]))),
    %% A long one is cut short.
    #{2 := Long} = remarks(failure(cats, new, [t, [{foo, lists:seq(1, 10000)}]])),
    ?assert(size(Long) < 800),
    ?assertEqual(#{2 => <<"invalid option: {ttl,\"1s\"} (valid: {ttl, 1 to 1099511627775 milliseconds, or "
                          "infinity})">>},
                 remarks(failure(cats, new, [t, [{ttl, "1s"}]]))),
    ?assertEqual(#{2 => <<"invalid option: {idle,1} (valid: heir, protection, stats, ttl, limit, evict)">>},
                 remarks(failure(cats, setopts, [Table, {idle, 1}]))),
    [?assertMatch(#{2 := <<"not an option, nor a list of options (valid: ", _/binary>>},
                  remarks(failure(cats, setopts, [Table, Options])))
     || Options <- [heir, #{heir => none}, [{heir, none} | no]]],
    {_, Public} = cats_test_lib:spawn_owner(fun() -> cats:new(options, [public]) end),
    ?assertEqual(#{1 => <<"the calling process does not own the table">>},
                 remarks(failure(cats, setopts, [Public, {heir, none}]))).

%% Every option of the type has words.
option_words(_Config) ->
    [begin
         {ok, {_, [{abstract_code, {_, Forms}}]}} = beam_lib:chunks(code:which(Module), [abstract_code]),
         Types = maps:from_list([{Name, Type} || {attribute, _, type, {Name, Type, []}} <- Forms]),
         ?assertEqual(lists:usort(names(maps:get(Named, Types), Types)), lists:sort(cats_options:names(Function)))
     end || {Function, Module, Named} <- [{new, cats, option}, {fetch, cats, fetch_options},
                                          {fetch_many, cats, fetch_many_options}, {web, cats_web, options},
                                          {trace, cats_trace, options}, {top, cats_top, options}]].

%% What is valid where an option of a tool is not.
options_of_tools(_Config) ->
    Explained = fun(Call, Options) ->
                        try Call(Options) of
                            Result -> error({not_refused, Result})
                        catch
                            error:Reason:Stack ->
                                [{_, _, _, Info} | _] = Stack,
                                #{module := Module} = proplists:get_value(error_info, Info),
                                maps:get(general, Module:format_error(Reason, Stack))
                        end
                end,
    [?assertEqual({Options, Words}, {Options, Explained(Call, Options)})
     || {Call, Options, Words} <-
            [{fun cats_web:start/1, #{port => 65536}, <<"valid: port => 0 to 65535">>},
             {fun cats_web:start/1, #{prot => 1}, <<"valid: port, ip, token">>},
             {fun cats_web:start/1, [{port, 1}], <<"not a map; valid options: port, ip, token">>},
             {fun cats_web:start/1, #{token => "short"}, <<"valid: token => 8 to 200 letters, digits, - and _">>},
             {fun cats_web:start/1, #{ip => {0, 0, 0, 0}},
              <<"valid: ip => loopback or an address; any but that of the loopback needs the option token, too">>},
             {fun cats_trace:start/1, #{seconds => 0}, <<"valid: seconds => 1 to 3600">>},
             {fun cats_trace:start/1, [], <<"not a map; valid options: nodes, tables, events, seconds, ring">>},
             {fun cats_top:start/1, #{lines => 0}, <<"valid: lines => at least 1">>},
             {fun cats_top:start/1, [], <<"not a map; valid options: node, sort, interval, lines, rounds">>},
             {fun cats_observer:tables/1, #{sort => type}, <<"valid: sort => memory, size, name or owner">>},
             {fun(Map) -> cats_observer:growth(0, Map) end, #{sort => name},
              <<"valid: sort => memory or size">>},
             {fun cats_observer:growth/1, soon, <<"valid: milliseconds of at least 0">>},
             {fun cats_web:stop/1, cats_web, <<"valid: the process that start/1 returned">>},
             {fun(Node) -> cats_top:start(#{node => Node, rounds => 1}) end, 'no_such@node',
              <<"node no_such@node cannot be reached, as this one has no name: start it with -name or -sname">>},
             {fun(Node) -> cats_observer:tables(Node, #{}) end, "nobody@host",
              <<"not the name of a node: \"nobody@host\"">>},
             {fun(Fake) -> cats_remote:call(node(), Fake, rows, []) end, no_such_module,
              <<"node nonode@nohost has no cats of this version: add it to the code path there">>},
             {fun cats_advise:workload/1, #{opertions => []},
              <<"valid: operations, key, value, objects, processes, keys, types, seconds">>},
             {fun cats_advise:workload/1, [],
              <<"not a map; valid options: operations, key, value, objects, processes, keys, types, seconds">>},
             {fun cats_advise:workload/1, #{keys => zipf},
              <<"valid: keys => uniform, {hot, a number of keys} or {zipf, a float above 0}">>},
             {fun cats_advise:workload/1, #{operations => [{{update_counter, 3}, 1}]},
              <<"an operation on element N needs N - 1 shapes in value, a counter the shape integer there, and an "
                "update types of set and ordered_set only">>}]].

names({atom, _, Name}, _Types) -> [Name];
names({type, _, union, Parts}, Types) -> lists:append([names(Part, Types) || Part <- Parts]);
names({type, _, map, Pairs}, _Types) -> [Name || {type, _, map_field_assoc, [{atom, _, Name}, _]} <- Pairs];
names({type, _, tuple, [{atom, _, Name} | _]}, _Types) -> [Name];
names({user_type, _, Name, []}, Types) -> names(maps:get(Name, Types), Types).

%% Which limit was met, and what can be done.
limits(Config) ->
    Objects = cats:new(limits, [{limit, {objects, 2}}, {evict, none}]),
    true = cats:insert(Objects, [{a, 1}, {b, 1}]),
    Bytes = cats:new(limits, [{limit, {bytes, 100_000}}]),
    true = cats:insert(Bytes, {a, 1}),
    Large = binary:copy(<<1>>, 200_000),
    Full = #{1 => <<"the table has reached its limit ({objects,2}) and evicts nothing: delete objects, or create it"
                    " with a larger limit or another option evict">>},
    TooLarge = fun(Limit) ->
                       #{1 => <<"the call inserts more at once than the table's limit (", Limit/binary, ") allows:"
                                " insert smaller objects or shorter lists, copy parts of larger binaries by"
                                " binary:copy/1, or create the table with a larger limit">>}
               end,
    Calls = [{Objects, full, Full, insert, [{c, 1}]}, {Objects, full, Full, insert, [[{c, 1}]]},
             {Objects, full, Full, insert_new, [{c, 1}]}, {Objects, full, Full, insert_many, [[{c, 1}]]},
             {Objects, full, Full, update_counter, [c, 1, {c, 1}]},
             {Objects, full, Full, update_element, [c, {2, 1}, {c, 1}]},
             {Objects, full, Full, update, [c, fun(_) -> {c, 1} end, {c, 0}]},
             {Objects, full, Full, fetch, [c, fun(_) -> {c, 1} end]},
             {Objects, full, Full, fetch_many, [[a, c], fun([c]) -> [{c, 1}] end]},
             {Objects, too_large, TooLarge(<<"{objects,2}">>), insert, [[{a, 1}, {b, 1}, {c, 1}]]},
             {Bytes, too_large, TooLarge(<<"{bytes,100000}">>), insert, [{b, Large}]},
             {Bytes, too_large, TooLarge(<<"{bytes,100000}">>), update_element, [a, {2, Large}]},
             {Bytes, too_large, TooLarge(<<"{bytes,100000}">>), replace, [{a, 1}, {a, Large}]}],
    [begin
         Arguments = [Table | More],
         {error, system_limit, [{cats, Function, Arguments, Info}, {?MODULE, attempt, 3, _} | _]} = Failure =
             failure(cats, Function, Arguments),
         ?assertEqual({Function, Cause, Remarks}, {Function, cause(Info), limit_remarks(Failure)})
     end || {Table, Cause, Remarks, Function, More} <- Calls],
    %% Of the copy of a table.
    Ets = ets:new(limits, []),
    true = ets:insert(Ets, {c, 1}),
    {error, system_limit, [{cats, insert, _, _} | _]} = Copied = failure(cats, from_ets, [Objects, Ets]),
    ?assertEqual(Full, limit_remarks(Copied)),
    {ok, dets} = dets:open_file(dets, [{file, filename:join(proplists:get_value(priv_dir, Config), "dets")}]),
    ok = dets:insert(dets, {c, 1}),
    {error, system_limit, [{cats, from_dets, [Objects, dets], _} | _]} = FromDets =
        failure(cats, from_dets, [Objects, dets]),
    ?assertEqual(Full, limit_remarks(FromDets)),
    ok = dets:close(dets),
    %% A table that is gone by now has no limit to tell.
    {error, system_limit, _} = Gone = failure(cats, insert, [Objects, {c, 1}]),
    true = cats:delete(Objects),
    ?assertMatch(#{1 := <<"the table has reached its limit and evicts nothing: ", _/binary>>}, limit_remarks(Gone)),
    %% A table that evicts is full only while others take all room.
    ?assertEqual(#{1 => <<"the table has reached its limit ({bytes,100000}), and other calls took all room that"
                          " evictions made: repeat the call, or create the table with a larger limit">>},
                 limit_remarks({error, system_limit, [{cats, insert, [Bytes, {c, 1}], cats_failure:info(full)}]})),
    %% Those of other tests.
    [?assertMatch(#{general := <<_:10/binary, _/binary>>},
                  limit_remarks({error, system_limit, [{cats, lookup, [t, k], Info}]}))
     || Limit <- [memory, integer, processes, thread, too_many_tables], Info <- [cats_failure:info(Limit)]],
    ?assertEqual(#{}, limit_remarks({error, system_limit, [{cats, lookup, [t, k], cats_failure:info(none)}]})).

%% Without the reason, which is the one that the shell prints anyway.
limit_remarks(Failure) ->
    {Reason, Remarks} = maps:take(reason, remarks(Failure)),
    ?assertEqual(<<"a system limit has been reached">>, Reason),
    Remarks.

%% What cats calls in other modules, it is blamed for itself: the caller sees the function that it called, and what is
%% wrong with its arguments.
failures_elsewhere(_Config) ->
    Table = filled(cats, cats:new(elsewhere, [])),
    Ets = filled(ets, ets:new(elsewhere, [])),
    Private = others_table(ets, [private]),
    NoTable = <<"the table identifier does not refer to an existing table of cats">>,
    NoEts = <<"the table identifier does not refer to an existing table of ets">>,
    NoSpec = <<"not a valid match specification">>,
    Compiled = cats:match_spec_compile(spec()),
    NotCompiled = <<"not a compiled match specification">>,
    Small = cats:new(elsewhere, [{keypos, 4}]),
    KeyPosition = <<"the key position is out of range for an object of the other table">>,
    Expected =
        [{match_spec_compile, [no_spec], #{1 => NoSpec}},
         {match_spec_run, [no_list, Compiled], #{1 => <<"not a list">>}},
         {match_spec_run, [[{k} | l], Compiled], #{1 => <<"not a list">>}},
         {match_spec_run, [[{k}], spec()], #{2 => NotCompiled}},
         {match_spec_run, [no_list, no_spec], #{1 => <<"not a list">>, 2 => NotCompiled}},
         {from_ets, [Table, no_table], #{2 => NoEts}},
         {from_ets, [Table, Table], #{2 => <<"a table of cats, not of ets">>}},
         {from_ets, [Table, 1], #{2 => <<"not an atom or a table identifier">>}},
         {from_ets, [no_table, Ets], #{1 => NoTable}},
         {from_ets, [no_table, ets:new(empty, [])], #{1 => NoTable}},
         {from_ets, [Table, Private],
          #{2 => <<"the table identifier refers to a table of ets with insufficient access rights">>}},
         {from_ets, [Small, Ets], #{1 => KeyPosition}},
         {to_ets, [no_table, Ets], #{1 => NoTable}},
         {to_ets, [Table, no_table], #{2 => NoEts}},
         {to_ets, [cats:new(empty, []), no_table], #{2 => NoEts}},
         {to_ets, [Table, ets:new(small, [{keypos, 4}])], #{2 => KeyPosition}},
         {to_ets, [others_table(cats, [private]), Ets],
          #{1 => <<"the table identifier refers to a table of cats with insufficient access rights">>}},
         {table, [Table, [{traverse, select} | no_list]], #{}}],
    [begin
         {error, badarg, [{cats, Function, Arguments, _}, {?MODULE, attempt, 3, _} | _]} = Failure =
             failure(cats, Function, Arguments),
         ?assertEqual({Function, Arguments, Remarks}, {Function, Arguments, remarks(Failure)})
     end || {Function, Arguments, Remarks} <- Expected],
    %% Those that ets has no clause for, either.
    [{error, function_clause, [{cats, Function, Arguments, _}, {?MODULE, attempt, 3, _} | _]} =
         failure(cats, Function, Arguments)
     || {Function, Arguments} <- [{tab2file, [Table, "file", no_list]}, {tabfile_info, [1]}]],
    ok.

%% The caller's frame follows that of the function, and nothing of cats' inside is to be seen.
callers_stack(_Config) ->
    [{error, badarg, [{cats, Function, Arguments, _}, {?MODULE, attempt, 3, _} | _]} =
         failure(cats, Function, Arguments)
     || {Function, Arguments} <- [{lookup, [no_table, k]}, {tab2list, [no_table]}, {info, [1]}]].

%% A failing call neither takes nor leaves a message.
mailbox(_Config) ->
    self() ! message,
    _ = failure(cats, new, [t, [no]]),
    {messages, [message]} = process_info(self(), messages),
    receive message -> ok end.

%% What a call does about the causes with which its native function fails one after the other. In another VM, with
%% native functions made up for it.
retries(_Config) ->
    Peer = cats_test_lib:start_peer(["-pa" | code:get_path()]),
    {module, cats_nif} = peer:call(Peer, code, load_binary, [cats_nif, "made_up", made_up_nif()], infinity),
    Lookup = fun(Causes) -> peer:call(Peer, ?MODULE, lookup_with_causes, [Causes, []], infinity) end,
    Relieved = fun(Causes, Reliefs) ->
                       peer:call(Peer, ?MODULE, lookup_with_causes, [Causes, Reliefs], infinity)
               end,
    ?assertEqual(plain, Lookup([])),
    ?assertEqual(plain, Lookup(lists:duplicate(100, busy))),
    ?assertEqual({dirty, lookup, [t, k]}, Lookup([busy, dirty])),
    ?assertEqual({dirty, lookup, [t, k]}, Lookup([dirty, busy, busy])),
    ?assertMatch({error, badarg, [{cats, lookup, [t, k], [{error_info, #{cause := id}}]} | _]},
                 Lookup([dirty, busy, id])),
    ?assertMatch({error, badarg, [{cats, lookup, [t, k], [{error_info, #{}}]} | _]}, Lookup([none])),
    ?assertMatch({error, system_limit, [{cats, lookup, [t, k], [{error_info, #{cause := memory}}]} | _]},
                 Lookup([busy, {system_limit, memory}])),
    Short = {system_limit, memory},
    ?assertEqual({dirty, lookup, [t, k]}, Relieved([busy, Short, busy, Short], [again, busy])),
    ?assertMatch({error, system_limit, _}, Relieved([Short, Short], [again])),
    ?assertMatch({error, system_limit, _}, Relieved([Short, Short, Short], [none, none])),
    ?assertMatch({error, system_limit, _},
                 Relieved([Short || _ <- lists:seq(0, 100)], [again || _ <- lists:seq(1, 100)])),
    ?assertMatch({error, {panic, text}, [{cats, lookup, [t, k], []} | _]}, Lookup([busy, {panic, text}])),
    ?assertMatch({error, undef, [{cats_nif, _, _, _} | _]}, Lookup([undef])),
    peer:stop(Peer).

made_up_nif() ->
    Functions = ["lookup(T, K) -> result(plain, lookup, [T, K]).",
                 "dirty(F, A) -> result({dirty, F, A}, dirty, A).",
                 "relieve() -> case get(reliefs) of [] -> undefined; [R | Rs] -> put(reliefs, Rs), R end.",
                 "result(R, F, A) -> case get(causes) of [] -> R; [undef] -> put(causes, []),"
                 " erlang:raise(error, undef,"
                 "    [{cats_nif, F, A, []}]); [C | Cs] -> put(causes, Cs), {'$cats_failure', C, A} end."],
    Forms = [begin {ok, Tokens, _} = erl_scan:string(Text), {ok, Form} = erl_parse:parse_form(Tokens), Form end
             || Text <- ["-module(cats_nif).", "-export([lookup/2, dirty/2, relieve/0])." | Functions]],
    {ok, cats_nif, Binary} = compile:forms(Forms),
    Binary.

%% A term that looks like a failure is a term like any other, wherever a table has it.
results_like_failures(_Config) ->
    Marks = [?FAILED(badkey, [t, k, 2]), ?FAILED(dirty, [t, k]), ?FAILED(returned, x),
             ?FAILED(busy, []), ?FAILED(1, 2)],
    [begin
         Table = cats:new(marks, [Type]),
         true = cats:insert(Table, {Mark, Mark}),
         Objects = [{Mark, Mark}],
         Element = case lists:member(Type, [set, ordered_set]) of
                       true -> Mark;
                       false -> [Mark]
                   end,
         ?assertEqual(Element, cats:lookup_element(Table, Mark, 2)),
         ?assertEqual(Mark, cats:lookup_element(Table, none, 2, Mark)),
         Elements = cats:lookup_elements(Table, Mark, [1, 2]),
         ?assert(lists:member(Elements, [[Mark, Mark], [[Mark, Mark]]])),
         [?assertEqual(Mark, cats:Step(Table)) || Step <- [first, last]],
         [?assertEqual({Mark, Objects}, cats:Step(Table)) || Step <- [first_lookup, last_lookup]],
         %% In an ordered_set, the triples are between these.
         true = cats:insert(Table, [{below, x}, {<<"above">>, x}]),
         [?assertEqual([Mark, Mark], [cats:next(Table, below), cats:prev(Table, <<"above">>)]) || Type =:= ordered_set],
         ?assert(lists:member(Mark,
                              [cats:first(Table) | [cats:next(Table, Key) || Key <- [below, Mark, <<"above">>]]])),
         [true = cats:delete(Table, Key) || Key <- [below, <<"above">>]],
         ?assertEqual(Objects, cats:lookup(Table, Mark)),
         ?assertEqual([Objects, []], cats:lookup_many(Table, [Mark, x])),
         [?assertEqual(Objects, Found) || Found <- [cats:tab2list(Table), cats:match_object(Table, '_')]],
         ?assertEqual([Mark], cats:select(Table, [{{'$1', '_'}, [], ['$1']}])),
         ?assertEqual([[Mark]], cats:match(Table, {'_', '$1'})),
         ?assertEqual([Mark], cats:foldl(fun({Key, _}, Keys) -> [Key | Keys] end, [], Table)),
         true = cats:delete_many(Table, lists:duplicate(1000, Mark)),
         ?assertEqual([], cats:tab2list(Table)),
         true = cats:insert_many(Table, [{N, Mark} || N <- lists:seq(1, 1000)]),
         ?assertEqual(1000, cats:select_count(Table, [{{'_', Mark}, [], [true]}])),
         true = cats:delete_all_objects(Table),
         true = cats:insert(Table, {Mark, Mark}),
         ?assertEqual(Objects, cats:take(Table, Mark)),
         true = cats:delete(Table)
     end || Type <- types(), Mark <- Marks].

%% The same for an object.
objects_like_failures(_Config) ->
    [begin
         Table = cats:new(marks, [Type, {keypos, 3}]),
         Objects = [?FAILED(Cause, Key) || {Cause, Key} <- [{badkey, 1}, {returned, 2}, {busy, 3}]],
         true = cats:insert(Table, [{a, b, 0}, {a, b, 4} | Objects]),
         All = [{a, b, 0}] ++ Objects ++ [{a, b, 4}],
         ?assertEqual(All, lists:sort(fun by_key/2, cats:tab2list(Table))),
         [?assertEqual(All, lists:sort(fun by_key/2, cats:Fold(fun(Object, Found) -> [Object | Found] end, [], Table)))
          || Fold <- [foldl, foldr]],
         [?assertEqual([Object], cats:lookup(Table, element(3, Object))) || Object <- All],
         [?assertEqual(All, [cats:nth(Table, N) || N <- lists:seq(0, 4)]) || Type =:= ordered_set],
         [begin
              ?assertEqual(keep,
                           cats:update(Table, 5, fun(Object) -> ?FAILED(busy, 5) = Object, keep end, ?FAILED(busy, x))),
              ?assertEqual(?FAILED(busy, 5), cats:update(Table, 5, fun(Object) -> Object end, ?FAILED(busy, x))),
              ?assertEqual(?FAILED(new, 5), cats:update(Table, 5, fun(?FAILED(busy, 5)) -> ?FAILED(new, 5) end)),
              ?assertEqual(?FAILED(new, 5), cats:fetch(Table, 5, fun(_) -> error(never) end))
          end || not lists:member(Type, [bag, duplicate_bag])],
         true = cats:delete(Table)
     end || Type <- types()].

by_key(A, B) -> element(3, A) =< element(3, B).

%% Also sees to it that no message is taken from the caller or left to it.
lookup_with_causes(Causes, Reliefs) ->
    put(causes, Causes),
    put(reliefs, Reliefs),
    {messages, Messages} = process_info(self(), messages),
    self() ! message,
    Result = attempt(cats, lookup, [t, k]),
    Expected = Messages ++ [message],
    {messages, Expected} = process_info(self(), messages),
    receive message -> ok end,
    {[], []} = {get(causes), get(reliefs)},
    Result.

constant(Term) ->
    fun(_Module) -> Term end.

filled(Module, Table) ->
    true = Module:insert(Table, [{k, b, 1}, {l, b, 1}]),
    Table.

%% A table whose owner lives as long as the calling process.
others_table(Module, Options) ->
    Self = self(),
    Owner = spawn_link(fun() ->
                           Self ! {self(), filled(Module, Module:new(others, Options))},
                           receive stop -> ok end
                       end),
    receive {Owner, Table} -> Table end.

dead() ->
    {Pid, Monitor} = spawn_monitor(fun() -> ok end),
    receive {'DOWN', Monitor, process, Pid, _} -> Pid end.

%% Each element is a fun that makes the first argument for a module, the function, and the other arguments.
%% All differences are printed before the test case fails.
compare_all(Calls) ->
    Differences = lists:append([compare(Call) || Call <- Calls]),
    [ct:print("~p", [Difference]) || Difference <- Differences],
    ?assertEqual(0, length(Differences)),
    ?assert(length(Calls) > 0).

compare({First, Function, Arguments}) ->
    case erlang:function_exported(ets, Function, length(Arguments) + 1) of
        true ->
            [Expected, Seen] = [seen(failure(Module, Function, [First(Module) | Arguments]))
                                || Module <- [ets, cats]],
            case agree(Expected, in_words_of_ets(Seen)) of
                true -> [];
                false -> [#{call => {Function, [First(ets) | Arguments]}, ets => Expected, cats => Seen}]
            end;
        false ->
            []
    end.

in_words_of_ets(Seen) when is_map(element(tuple_size(Seen), Seen)) ->
    Remarks = element(tuple_size(Seen), Seen),
    In = fun(_Place, Remark) -> cats_test_lib:in_words_of_ets(Remark) end,
    setelement(tuple_size(Seen), Seen, maps:map(In, Remarks));
in_words_of_ets(Seen) ->
    Seen.

agree(Expected, Seen) when Expected =:= Seen ->
    true;
%% Causes that have come since the running release.
agree({Reason, Function, Arguments, none, Remarks}, {Reason, Function, Arguments, Cause, Remarks})
  when Cause =:= default; Cause =:= position ->
    list_to_integer(erlang:system_info(otp_release)) < 29;
%% cats says which option is invalid, what options are, and who may set them.
agree({Reason, setopts, Arguments, none, #{2 := <<"invalid options">>}}, {Reason, setopts, Arguments, none, Named}) ->
    case Named of
        #{2 := <<"not an option, nor a list of options (valid: ", _/binary>>} -> map_size(Named) =:= 1;
        #{1 := <<"the calling process does not own the table">>} -> map_size(Named) =:= 1;
        _ -> false
    end;
agree({Reason, Function, Arguments, none, #{2 := <<"invalid options">>} = Remarks},
      {Reason, Function, Arguments, {_, _}, Named})
  when Function =:= new; Function =:= setopts ->
    #{2 := <<"invalid option: ", _/binary>>} = Named,
    map_size(Named) =:= map_size(Remarks);
agree(_Expected, _Seen) ->
    false.

%% What ets implements in Erlang fails in a function of another name.
seen({error, Reason, [{ets, Name, Arguments, Info} | _]} = Failure)
  when Name =:= internal_delete_all; Name =:= match_object, tl(Arguments) =:= ['_'] ->
    {Reason, cause(Info), maps:with([1], remarks(Failure))};
seen({error, Reason, [{cats, Name, _, Info} | _]} = Failure) when Name =:= delete_all_objects; Name =:= tab2list ->
    {Reason, cause(Info), remarks(Failure)};
seen({error, Reason, [{Module, Name, _, Info} | _]} = Failure)
  when Module =:= ets, Name =:= internal_select_delete;
       Module =:= cats, Name =:= select_delete;
       Module =:= cats, Name =:= match_delete ->
    {Reason, cause(Info), remarks(Failure)};
seen({error, Reason, [{_Module, Name, Arguments, Info} | _]} = Failure) ->
    {Reason, Name, tl(Arguments), cause(Info), remarks(Failure)};
seen(_Success) ->
    success.

cause(Info) ->
    maps:get(cause, proplists:get_value(error_info, Info, #{}), none).

%% Those that the shell prints. It prints none if the explanation fails, as that of ets does on improper lists.
remarks({error, Reason, [{_, _, _, Info} | _] = Stack}) ->
    #{module := Module} = proplists:get_value(error_info, Info, #{module => cats_failure}),
    try Module:format_error(Reason, Stack) of
        Remarks ->
            Printed = unicode:characters_to_list(erl_error:format_exception(error, Reason, Stack)),
            [?assertNotEqual(nomatch, string:find(Printed, unicode:characters_to_list(Remark)))
             || Remark <- maps:values(Remarks)],
            Remarks
    catch
        error:function_clause when Module =/= cats_failure -> #{}
    end.

failure(Module, Function, Arguments) ->
    attempt(Module, Function, Arguments).

attempt(Module, Function, Arguments) ->
    try apply(Module, Function, Arguments) of
        Result -> Result
    catch
        Class:Reason:Stack -> {Class, Reason, Stack}
    end.

%%------------------------------------------------------------------------------------------------------------
%% Exhausted memory

%% What gives memory back does so when there is none left. In a VM of its own, whose address space is limited. Where
%% that VM itself wants memory in the end, it tells nothing.
deletions_without_memory(_Config) ->
    Erl = filename:join(code:root_dir(), "bin/erl"),
    Paths = lists:append([["-pa", filename:dirname(code:which(Module))] || Module <- [cats, ?MODULE]]),
    Arguments = ["-c", "ulimit -v 2500000; exec \"$0\" \"$@\"", Erl, "-noshell" | Paths]
        ++ ["-eval", "cats_failure_SUITE:exhaust()"],
    case cats_test_lib:run("sh", Arguments) of
        {0, Output} -> ?assertEqual("[]", Output);
        {_, Output} -> {skip, Output}
    end.

%% Prints the deletions that failed.
exhaust() ->
    {ok, _} = application:ensure_all_started(cats),
    Kinds = [[Type | Options] || Type <- types(), Options <- [[], [compressed]]]
        ++ [[Type, {Option, 1000000}] || Type <- [set, ordered_set], Option <- [ttl, idle]],
    Works = [{Name, Call, cats:new(t, [public | Kind])} || {Name, Call} <- deletions(), Kind <- Kinds],
    [true = cats:insert(Table, {N, N, {N}}) || {_, _, Table} <- Works, N <- lists:seq(1, 3000)],
    Ballast = cats:new(ballast, []),
    {_, Failed} = lists:foldl(fun({Name, Call, Table}, {Key, Failed}) ->
                                      Next = fill(Ballast, Key, 200),
                                      try Call(Table) of
                                          _ -> {Next, Failed}
                                      catch
                                          error:Reason -> {Next, [{Name, cats:info(Table, type), Reason} | Failed]}
                                      end
                              end, {1, []}, Works),
    io:format("~0p", [Failed]),
    halt().

%% Inserts objects until so many did not fit.
fill(_Table, Key, 0) -> Key;
fill(Table, Key, Failures) ->
    Inserted = try cats:insert(Table, {Key, <<0:480>>, Key})
               catch error:system_limit -> false
               end,
    fill(Table, Key + 1, case Inserted of true -> Failures; false -> Failures - 1 end).

deletions() ->
    [{delete, fun(Table) -> [true = cats:delete(Table, Key) || Key <- lists:seq(1, 1000)] end},
     {delete_object,
      fun(Table) -> [true = cats:delete_object(Table, {Key, Key, {Key}}) || Key <- lists:seq(1, 100)] end},
     {delete_many, fun(Table) -> cats:delete_many(Table, lists:seq(1, 400)) end},
     {match_delete, fun(Table) -> cats:match_delete(Table, {'_', 500, '_'}) end},
     {match_delete_all, fun(Table) -> cats:match_delete(Table, '_') end},
     {select_delete,
      fun(Table) -> 999 = cats:select_delete(Table, [{{'_', '$1', '_'}, [{'<', '$1', 1000}], [true]}]) end},
     {select_delete_key, fun(Table) -> 1 = cats:select_delete(Table, [{{100, '_', '_'}, [], [true]}]) end},
     {delete_all_objects, fun(Table) -> true = cats:delete_all_objects(Table) end},
     {delete_table, fun(Table) -> true = cats:delete(Table) end}].

%% An object whose counter would become larger than the VM's integers stays as it was.
too_large_integers(_Config) ->
    Power = largest_power(64, 1 bsl 32),
    Largest = (1 bsl Power) - 1 + (1 bsl Power),
    [begin
         T = Module:new(counters, [Type]),
         true = Module:insert(T, {k, Largest, 1}),
         ?assertError(system_limit, Module:Function(T, k, Operations)),
         %% The failure does not show the object, which is large.
         ?assert([{k, Largest, 1}] =:= Module:lookup(T, k)),
         true = Module:delete(T)
     end || Type <- [set, ordered_set], Operations <- [1, Largest, {2, 1}, [{3, 1}, {2, 1}]],
            {Module, Function} <- [{ets, update_counter} || not is_list(Operations)] ++
                                      [{cats, update_counter}, {cats, add}]],
    Table = cats:new(counters, []),
    true = cats:insert(Table, {k, Largest}),
    ?assertMatch(#{general := <<"the integer is larger than the VM allows">>},
                 cats_test_lib:remarks(update_counter, [Table, k, 1])).

%% The exponent of the largest power of two that the VM has is this one, between these.
largest_power(From, To) when To - From =:= 1 -> From;
largest_power(From, To) ->
    Middle = (From + To) div 2,
    try 1 bsl Middle of
        _ -> largest_power(Middle, To)
    catch
        error:system_limit -> largest_power(From, Middle)
    end.
