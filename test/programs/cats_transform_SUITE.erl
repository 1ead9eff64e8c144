%% What cats_transform makes of a module: every way of naming ets, and what must stay as it is.
-module(cats_transform_SUITE).
-include_lib("stdlib/include/assert.hrl").
-export([all/0]).
-export([calls/1, funs/1, imports/1, applied/1, dets/1, own_apply/1, types/1, untouched/1, fun2ms/1, option/1, warned/1,
         not_warned/1, warning_options/1, exceptions/1, exceptions_by_variable/1, named_calls/1, runs/1]).

all() ->
    [calls, funs, imports, applied, dets, own_apply, types, untouched, fun2ms, option, warned, not_warned,
     warning_options, exceptions, exceptions_by_variable, named_calls, runs].

%% The transformed module, as text without its attributes.
transformed(Lines) ->
    Transformed = case cats_transform:parse_transform(forms(Lines), []) of
                      {warning, Warned, _} -> Warned;
                      Silent -> Silent
                  end,
    Kept = [Form || Form <- Transformed,
                    element(1, Form) =:= function orelse lists:member(element(3, Form), [import, spec, type])],
    lists:keymember(function, 1, Transformed) andalso
        ({ok, _, _} = compile:forms(Transformed, [export_all, nowarn_export_all])),
    lists:flatten([[erl_pp:form(Form)] || Form <- Kept]).

forms(Lines) ->
    [begin
         {ok, Tokens, _} = erl_scan:string(Line, Number),
         {ok, Form} = erl_parse:parse_form(Tokens),
         Form
     end || {Number, Line} <- lists:zip(lists:seq(1, length(Lines) + 1), ["-module(transformed)." | Lines])].

%% The text with ets replaced in all places.
becomes_cats(Lines) ->
    [begin
         Before = lists:flatten(erl_pp:form(Form)),
         ?assertEqual(spaceless(lists:append(string:replace(Before, "ets", "cats", all))),
                      spaceless(transformed([Line])))
     end || Line <- Lines, [_, Form] <- [forms([Line])]].

%% Lines are broken elsewhere when words become longer.
spaceless(Text) ->
    [Character || Character <- Text, Character > $\s].

stays(Lines) ->
    [?assertEqual(lists:flatten(erl_pp:form(Form)), transformed([Line]))
     || Line <- Lines, [_, Form] <- [forms([Line])]].

calls(_Config) ->
    becomes_cats(["f(T) -> ets:lookup(T, k).",
                  "f(T) -> ets:insert(T, {a, ets:info(T, size)}).",
                  "f(T, F) -> ets:F(T).",
                  "f(T) -> [ets:delete(T, K) || {K} <- ets:tab2list(T), ets:member(T, K)].",
                  "f(T) -> case ets:first(T) of '$end_of_table' -> fun() -> catch ets:delete(T) end; K -> {K} end.",
                  "f(T) -> try ets:next(T, k) of K -> #{K => ets:last(T)}"
                  " catch _:_ -> ets:all() after ets:delete(T) end.",
                  "f(T) -> receive {a, X} -> ets:insert(T, X) after ets:lookup_element(T, t, 2) -> ok end.",
                  "f(T) -> <<(ets:info(T, size)):32>>.",
                  "f(T) -> X = fun F(0) -> ok; F(N) -> ets:delete(T, N), F(N - 1) end, X(3).",
                  "f() -> ets:match_spec_compile([]), ets:test_ms({}, [])."]).

funs(_Config) ->
    becomes_cats(["f() -> fun ets:insert/2.",
                  "f(F) -> fun ets:F/2.",
                  "f(A) -> fun ets:insert/A.",
                  "f(L) -> lists:foreach(fun ets:delete/1, L)."]).

imports(_Config) ->
    Text = transformed(["-import(ets, [insert/2, lookup/2]).", "f(T) -> insert(T, {1}), lookup(T, 1)."]),
    ?assertMatch({match, _}, re:run(Text, "-import\\(cats")),
    ?assertEqual(nomatch, re:run(Text, "-import\\(ets")),
    Mixed = transformed(["-import(ets, [insert/2, match_spec_run_r/3]).",
                         "f(T) -> insert(T, {1}), match_spec_run_r([], x, [])."]),
    ?assertMatch({match, _}, re:run(Mixed, "-import\\(cats, *\\[insert/2\\]")),
    ?assertMatch({match, _}, re:run(Mixed, "-import\\(ets, *\\[match_spec_run_r/3\\]")).

applied(_Config) ->
    becomes_cats(["f(T) -> apply(ets, insert, [T, {1}]).",
                  "f(T) -> erlang:apply(ets, insert, [T, {1}]).",
                  "f(F, As) -> apply(ets, F, As).",
                  "f(As) -> apply(ets, insert, As).",
                  "f(T) -> spawn(ets, delete, [T]).",
                  "f(N, T) -> spawn_link(N, ets, delete, [T]).",
                  "f(T) -> erlang:spawn_monitor(ets, delete, [T]).",
                  "f(T) -> proc_lib:spawn(ets, delete, [T]).",
                  "f(T) -> timer:apply_after(1000, ets, delete, [T]).",
                  "f(T) -> timer:tc(ets, tab2list, [T]).",
                  "f(N, T) -> rpc:call(N, ets, info, [T, size]).",
                  "f(N, T) -> erpc:call(N, ets, info, [T, size])."]).

%% What dets does with tables of ets.
dets(_Config) ->
    Text = transformed(["f(D, T) -> dets:to_ets(D, T), dets:from_ets(D, T)."]),
    ?assertMatch({match, _}, re:run(Text, "cats_convert:dets_to_ets\\(D, T\\)")),
    ?assertMatch({match, _}, re:run(Text, "cats_convert:dets_from_ets\\(D, T\\)")).

%% A function of the module's own is something else.
own_apply(_Config) ->
    Text = transformed(["-compile({no_auto_import, [apply/3]}).", "apply(M, F, A) -> {M, F, A}.",
                        "f() -> apply(ets, a, [])."]),
    ?assertMatch({match, _}, re:run(Text, "apply\\(ets, a")).

types(_Config) ->
    becomes_cats(["-spec f(ets:tab()) -> ets:tid() | ets:table().",
                  "-type t() :: {ets:table_access(), [ets:table_type()], #{a => ets:match_spec()},"
                  " ets:match_pattern()}."]).

%% Words, functions that cats does not have, and functions of other modules.
untouched(_Config) ->
    stays(["f() -> {ets, ets, [ets]}.",
           "f(M) -> M:insert(ets, {ets}).",
           "f() -> other:ets(ets, insert, []).",
           "f() -> ets:no_such_function(1, 2).",
           "f() -> fun ets:no_such_function/3.",
           "f() -> ets:module_info(exports).",
           "f() -> apply(ets, module_info, []).",
           "f() -> rpc:call(n, other, ets, [ets, insert, []]).",
           "ets() -> ets()."]).

%% ms_transform before or after makes the same of it.
fun2ms(_Config) ->
    Lines = ["f(T, N) -> ets:select(T, ets:fun2ms(fun({K, V}) when K > N -> V end))."],
    [First, Second] =
        [lists:flatten([erl_pp:form(Form)
                        || Form <- lists:foldl(fun(Module, Forms) -> Module:parse_transform(Forms, []) end,
                                                                 forms(Lines), Transforms)])
         || Transforms <- [[cats_transform, ms_transform], [ms_transform, cats_transform]]],
    ?assertEqual(First, Second),
    ?assertMatch({match, _}, re:run(First, "cats:select\\(T, *\\[\\{")).

%% By an option of the compiler, with warnings and places in the source as they were.
option(_Config) ->
    Path = filename:join(filename:dirname(code:which(?MODULE)), "transformed_by_option.erl"),
    ok = file:write_file(Path,
                         ["-module(transformed_by_option).\n-export([f/1]).\nf(T) -> Unused = ets:new(t, []),\n",
                                "    ets:insert(T, {1}).\n"]),
    {ok, _, Binary, [{_, [{Place, erl_lint, {unused_var, 'Unused'}}]}]} =
        compile:file(Path, [binary, return, {parse_transform, cats_transform}]),
    ?assertEqual(3, case Place of {Line, _} -> Line; Line -> Line end),
    {ok, {_, [{imports, Imports}]}} = beam_lib:chunks(Binary, [imports]),
    ?assertEqual([{cats, insert, 2}, {cats, new, 2}],
                 [Import || {Module, _, _} = Import <- lists:sort(Imports), Module =/= erlang]).

%% The lines and descriptions of warnings.
warnings(Lines) ->
    case cats_transform:parse_transform(forms(Lines), []) of
        {warning, _, Warnings} -> [{Line, What} || {_, [{Line, cats_transform, What}]} <- Warnings];
        Forms when is_list(Forms) -> []
    end.

%% Where ets stays, as a value that may become the module of a call.
warned(_Config) ->
    Values = ["f(T) -> M = ets, M:insert(T, {1}).",
              "f(T) -> M = ets, M:insert(T, {1}), M = ets.",
              "f(T, D) -> M = case D of true -> dets; false -> ets end, M:insert(T, {1}).",
              "f(T, F) -> M = ets, M:F(T).",
              "f(T) -> M = ets, apply(M, insert, [T, {1}]).",
              "f(T) -> M = ets, erlang:apply(M, insert, [T, {1}]).",
              "f(As) -> {M, F, A} = {ets, insert, As}, apply(M, F, A).",
              "f(T) -> M = ets, spawn(M, delete, [T]).",
              "f(T) -> M = ets, fun M:delete/1.",
              "f(T) -> {M, T} = {ets, T}, M:delete(T).",
              "f(T) -> S = #{tables => ets}, (maps:get(tables, S)):delete(T).",
              "f(T) -> (fun() -> ets end()):delete(T).",
              "f(T) -> [M:delete(T) || M <- [ets]].",
              "f(T) -> (begin ets end):delete(T).",
              "f(T) -> M = ets, timer:apply_after(1, M, delete, [T])."],
    [?assertEqual({Line, lists:duplicate(Number, {2, value})}, {Line, warnings(functions(Line))})
     || Line <- Values, Number <- [length(string:split(Line, "M = ets", all)) - 1, 1], Number > 0,
        Number =:= lists:max([1, length(string:split(Line, "M = ets", all)) - 1])],
    ?assertEqual([{2, value}], warnings(["-record(state, {tables = ets}).", "f(S, T) -> (S#state.tables):delete(T)."])),
    ?assertEqual([{3, value}], warnings(["f(M, T) -> M:delete(T).", "g() -> f({ets, T})."])),
    [?assertEqual({Line, [{2, {function, insert}}]}, {Line, warnings([Line])})
     || Line <- ["f(T) -> {ets, insert, [T, {1}]}.",
                 "f() -> {ets, insert, 2}.",
                 "f(T) -> #{start => {ets, insert, [T, {1}]}}.",
                 "f(P, T) -> P ! {ets, insert, [T, {1}]}.",
                 "f() -> {mine, ets, insert, []}."]],
    %% The warning has what to write into the option `calls'.
    [begin
         [{2, What}] = warnings(Lines),
         ?assertEqual(Expected, What),
         Call = element(tuple_size(What), What),
         ?assertNotEqual(nomatch, string:find(cats_transform:format_error(What),
                                              lists:flatten(io_lib:format("{calls, [~0tp]}", [Call])))),
         ?assert(is_list(cats_transform:parse_transform(forms(Lines), [{cats_transform, [{calls, [Call]}]}])))
     end
     || {Lines, Expected} <-
            [{["f(T) -> g(ets, insert, [T, {1}]).", "g(_, _, _) -> ok."], {function, insert, {transformed, g, 3, 1}}},
             {["f(T) -> g(T, ets).", "g(T, M) -> M:delete(T)."], {value, {transformed, g, 2, 2}}},
             {["f(T, X) -> other:call(node(), ets, insert, [T | X])."], {function, insert, {other, call, 4, 2}}}]],

    [?assertEqual({Line, [{2, traced}]}, {Line, warnings([Line])})
     || Line <- ["f() -> dbg:tp(ets, insert, []).",
                 "f() -> dbg:tpl(ets, x).",
                 "f() -> dbg:tp({ets, insert, 2}, []).",
                 "f() -> erlang:trace_pattern({ets, '_', '_'}, true, [local]).",
                 "f(S) -> trace:function(S, {ets, insert, 2}, true, [])."]],
    [?assert(io_lib:printable_unicode_list(cats_transform:format_error(What)))
     || What <- [value, traced, macro, protocol, {function, insert}]],
    ok.

functions(Line) -> string:lexemes(string:replace(Line, ". g", ".\ng"), "\n").

%% What is followed, is no module, or has nowhere to go.
not_warned(_Config) ->
    [?assertEqual({Lines, []}, {Lines, warnings(Lines)})
     || Lines <- [["f(T) -> ets:insert(T, {1}), apply(ets, insert, [T, {1}]), fun ets:insert/2."],
                  ["f(M, T) -> M:insert(T, {1})."],
                  ["f(M, F, A) -> apply(M, F, A)."],
                  ["f(M, F, A) -> apply(ets, F, A), apply(M, F, A)."],
                  %% A message or a key.
                  ["f(M, T) -> M:insert(T, {1}), self() ! ets, erlang:send(self(), {ets, 1}), gen_server:call(M, {ets, "
                   "[T]})."],
                  ["f(M, T) -> M:insert(T, {1}), maps:get(ets, T, maps:put(ets, T, #{ets => 1})), lists:keyfind(ets, "
                   "1, [{ets, T}])."],
                  ["f(M, T) -> M:insert(T, {1}), put(ets, 1), get(ets), erlang:get(ets), proplists:get_value(ets, "
                   "[{ets, 1}])."],
                  ["f(M, T) -> M:insert(T, {1}), ets:insert(T, {ets, 1}), ets:lookup(T, ets), ets:update_counter(T, "
                   "ets, 1)."],
                  %% No call can have it as its module.
                  ["f() -> {ets, ets, [ets]}."],
                  ["f() -> {ets, a_tag, [1]}."],
                  ["f(M) -> M:start(ets)."],
                  ["f(X) -> X =:= ets.", "g(M, T) -> M:insert(T, {1})."],
                  ["f(ets) -> true; f(_) -> false.", "g(M, T) -> M:insert(T, {1})."],
                  ["f(X) -> case X of ets -> 1; dets -> 2 end.", "g(M, T) -> M:insert(T, {1})."],
                  ["f(X) -> #{ets => X}.", "g(M, T) -> M:insert(T, {1})."],
                  ["-record(r, {ets}).", "f(X) -> #r{ets = X}.", "h(R) -> R#r.ets.", "g(M, T) -> M:insert(T, {1})."],
                  ["f() -> ets:new(ets, [named_table]), ets:insert(ets, {1}).", "g(M, T) -> M:insert(T, {1})."],
                  ["f() -> erlang:memory(ets), c:memory(ets).", "g(M, T) -> M:insert(T, {1})."],
                  ["f() -> ets:no_such_function(), fun ets:no_such_function/1, apply(ets, module_info, []).",
                   "g(M, T) -> M:insert(T, {1})."],
                  ["f(T) -> ets:select(T, ets:fun2ms(fun({K}) -> K end)).", "g(M, T) -> M:insert(T, {1})."],
                  ["-type t() :: ets | dets.", "-spec f(ets) -> ets.", "f(X) -> X.", "-my_attribute(ets).",
                   "g(M, T) -> M:insert(T, {1})."]]],
    ok.

%% Warnings stand where the atom does; they are errors for who wants that, and silenced by an option.
warning_options(_Config) ->
    Path = filename:join(filename:dirname(code:which(?MODULE)), "transformed_with_warning.erl"),
    Write = fun(Attributes) ->
                    ok = file:write_file(Path, ["-module(transformed_with_warning).\n-export([f/1]).\n", Attributes,
                                                "\nf(T) ->\n    M = ets,\n    M:info(T).\n"])
            end,
    Options = [binary, return, {parse_transform, cats_transform}],
    Write(""),
    {ok, _, _, [{Path, [{{5, 9}, cats_transform, value}]}]} = compile:file(Path, Options),
    {error, [], [{Path, [{{5, 9}, cats_transform, value}]}]} = compile:file(Path, [warnings_as_errors | Options]),
    {ok, _, _, []} = compile:file(Path, [nowarn_cats_transform | Options]),
    Write("-compile(nowarn_cats_transform)."),
    {ok, _, _, []} = compile:file(Path, [warnings_as_errors | Options]),
    ok = file:delete(Path).

%% Functions and tables that stay in ets, by options of the compiler and of the module.
exceptions(_Config) ->
    Except = {cats_transform, [{except, [{transformed, f}, {table, kept}]}]},
    Lines = fun(More) -> More ++
        ["-import(ets, [insert/2]).",
         "f(T) -> M = ets, M:info(T), insert(T, {1}), ets:info(T), g(fun insert/2).",
         "g(T) -> insert(T, {1}), insert(kept, {1}), ets:info(kept), ets:info(T), dets:to_ets(d, kept), dets:to_ets(d, "
         "T), apply(ets, info, [kept]), apply(ets, info, [T])."]
            end,
    Expected = [<<"f(T) -> M = ets, M:info(T), ets:insert(T, {1}), ets:info(T), g(fun ets:insert/2).">>,
                <<"g(T) -> insert(T, {1}), ets:insert(kept, {1}), ets:info(kept), cats:info(T), dets:to_ets(d, kept), "
                  "cats_convert:dets_to_ets(d, T), apply(ets, info, [kept]), apply(cats, info, [T]).">>],
    [?assertEqual([spaceless(binary_to_list(Text)) || Text <- Expected],
                  [spaceless(lists:flatten(erl_pp:form(Form)))
                   || Form <- cats_transform:parse_transform(forms(Lines(Attributes)), Options),
                      element(1, Form) =:= function])
     || {Attributes, Options} <-
            [{[], [Except]}, {["-compile({cats_transform, [{except, [{transformed, f}, {table, kept}]}]})."], []}]],
    [?assertError({bad_exception, Bad},
                  cats_transform:parse_transform(forms(["f() -> ok."]), [{cats_transform, [{except, [Bad]}]}]))
     || Bad <- [f, {table, transformed, 1}, {call, {other, match, 2}, match, [3]}]].

%% Tables in variables of a name, and functions that call one of ets.
exceptions_by_variable(_Config) ->
    Exceptions = [{table, kept}, {table, transformed, 'Kept'}, {table, other, 'T'},
                  {call, {other, match, 3}, match_object, [2, 3]}],
    Lines = ["-import(ets, [insert/2]).",
             "f(Kept, T) -> ets:insert(Kept, T), ets:insert(T, Kept), insert(Kept, T), insert(T, Kept), apply(ets, "
             "info, [Kept]).",
             "g(Kept, T) -> ets:foldl(T, Kept, Kept), ets:foldl(Kept, Kept, T), apply(ets, foldr, [T, T, Kept]), "
             "ets:info(Kept, T).",
             "h(Kept, T) -> other:match(T, kept, ets:info(T)), other:match(T, Kept, T), other:match(Kept, T, T), "
             "other:match(kept, T)."],
    Expected = ["f(Kept, T) -> ets:insert(Kept, T), cats:insert(T, Kept), ets:insert(Kept, T), insert(T, Kept), "
                "apply(ets, info, [Kept]).",
                "g(Kept, T) -> ets:foldl(T, Kept, Kept), cats:foldl(Kept, Kept, T), apply(ets, foldr, [T, T, Kept]), "
                "ets:info(Kept, T).",
                "h(Kept, T) -> ets:match_object(kept, cats:info(T)), ets:match_object(Kept, T), "
                "other:match(Kept, T, T), other:match(kept, T)."],
    ?assertEqual([spaceless(Text) || Text <- Expected],
                 [spaceless(lists:flatten(erl_pp:form(Form)))
                  || {function, _, _, _, _} = Form
                         <- cats_transform:parse_transform(forms(Lines), [{cats_transform, [{except, Exceptions}]}])]).

%% Functions that take a module, named by an option: of another module, imported, and of the module itself.
named_calls(_Config) ->
    Lines = ["-import(other, [start/3]).",
             "f(N, T) -> other:call(N, ets, info, [T, size], 1000), other:call(N, ets, kept).",
             "g(T) -> start(ets, info, [T]), on(ets, info, [T]), other:call(n, ets, no_such_function, [], 1).",
             "on(M, F, A) -> M:F(A)."],
    Option = {cats_transform,
              [{calls, [{other, call, 5, 2}, {other, start, 3, 1}]}, {calls, [{transformed, on, 3, 1}]}]},
    {warning, Transformed, Warnings} = cats_transform:parse_transform(forms(Lines), [Option]),
    ?assertEqual([spaceless(Text)
                  || Text <- ["f(N, T) -> other:call(N, cats, info, [T, size], 1000), other:call(N, ets, kept).",
                              "g(T) -> start(cats, info, [T]), on(cats, info, [T]),"
                              " other:call(n, ets, no_such_function, [], 1).",
                              "on(M, F, A) -> M:F(A)."]],
                 [spaceless(lists:flatten(erl_pp:form(Form))) || {function, _, _, _, _} = Form <- Transformed]),
    %% The call with three arguments is not named.
    ?assertMatch([{_, [{3, cats_transform, {value, {other, call, 3, 2}}}]}], Warnings),
    [?assertError({bad_call, Bad},
                  cats_transform:parse_transform(forms(["f() -> ok."]), [{cats_transform, [{calls, [Bad]}]}]))
     || Bad <- [{other, call}, {other, call, 3, 0}, {other, call, 3, 4}, {other, "call", 3, 1}]].

%% The whole of it at work.
runs(_Config) ->
    Forms = cats_transform:parse_transform(
              forms(["-export([run/0]).", "-import(ets, [insert/2]).",
                     "run() -> T = apply(ets, new, [t, [ordered_set]]),"
                     " lists:foreach(fun(N) -> insert(T, {N}) end, [3, 1, 2]),"
                     " F = fun ets:tab2list/1, {F(T), ets:info(T, engine)}."]), []),
    {ok, Module, Binary} = compile:forms(Forms),
    {module, Module} = code:load_binary(Module, "transformed", Binary),
    ?assertEqual({[{1}, {2}, {3}], ca}, Module:run()).
