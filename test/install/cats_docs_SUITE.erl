%% The shell's documentation: every public function and type has a text, and internal modules are hidden.
-module(cats_docs_SUITE).
-export([all/0, modules/1, functions/1, types/1, internal_modules/1]).

-include_lib("stdlib/include/assert.hrl").
-include_lib("kernel/include/eep48.hrl").

-define(PUBLIC, [cats, cats_advise, cats_mnesia, cats_observer, cats_recompile, cats_telemetry, cats_top, cats_trace,
                 cats_transaction, cats_transform, cats_web]).

all() ->
    [modules, functions, types, internal_modules].

modules(_Config) ->
    [begin
         #docs_v1{module_doc = #{<<"en">> := [_ | _]}} = Docs = docs(Module),
         ?assertNotEqual(nomatch, string:find(rendered(shell_docs:render(Module, Docs, plain())), atom_to_list(Module)))
     end || Module <- ?PUBLIC].

functions(_Config) ->
    [?assertEqual([], [Function || Function <- exports(Module), not is_documented(Module, Function)], Module)
     || Module <- ?PUBLIC].

exports(cats_transform) ->
    %% The functions of a parse transform are for the compiler only.
    [];
exports(cats_mnesia) ->
    %% Those of a backend are for Mnesia only.
    [];
exports(cats_web) ->
    %% That of a module of httpd is for httpd only.
    [{start, 1}, {stop, 1}];
exports(Module) ->
    Module:module_info(exports) -- [{module_info, 0}, {module_info, 1}].

is_documented(Module, {Name, Arity}) ->
    #docs_v1{docs = Entries} = Docs = docs(Module),
    Text = rendered(shell_docs:render(Module, Name, Arity, Docs, plain())),
    has_text(lists:keyfind({function, Name, Arity}, 1, Entries))
        andalso string:find(Text, "-spec " ++ atom_to_list(Name) ++ "(") =/= nomatch
        andalso string:find(Text, "INVALID") =:= nomatch.

types(_Config) ->
    [begin
         #docs_v1{docs = Entries} = docs(Module),
         ?assertEqual([], [Type || Type <- exported_types(Module),
                                   not has_text(lists:keyfind(Type, 1, Entries))])
     end || Module <- ?PUBLIC].

exported_types(Module) ->
    {ok, {_, [{abstract_code, {raw_abstract_v1, Forms}}]}} = beam_lib:chunks(code:which(Module), [abstract_code]),
    [{type, Name, Arity} || {attribute, _, export_type, Types} <- Forms, {Name, Arity} <- Types].

has_text({_, _, _, #{<<"en">> := [_ | _]}, Metadata}) -> is_map_key(signature, Metadata);
has_text(_) -> false.

internal_modules(_Config) ->
    _ = application:load(cats),
    {ok, Modules} = application:get_key(cats, modules),
    [?assertMatch(#docs_v1{module_doc = hidden, docs = []}, docs(Module), Module) || Module <- Modules -- ?PUBLIC].

docs(Module) ->
    {ok, {_, [{"Docs", Chunk}]}} = beam_lib:chunks(code:which(Module), ["Docs"]),
    Docs = binary_to_term(Chunk),
    ?assertEqual({ok, Docs}, code:get_doc(Module)),
    Docs.

plain() ->
    #{encoding => unicode, ansi => false, columns => 100}.

rendered(Text) ->
    unicode:characters_to_list(Text).
