%% cats with the engine under test. ENGINE in the environment names the engine; without it the default ones are tested.
%% OPTIONS gives further options of its tables as an Erlang term: ENGINE=avl OPTIONS='[{lock, mrqd}]' make test-erlang.
%% A test of several table types leaves out those that the engine does not have. A test of one type uses the default
%% engine for it.
-module(cats_chosen).
-export([choose/1, choose/2, module/0, types/1, chosen/1, new/2]).

%% @doc Chooses what the environment says, and says what that is.
-spec choose(environment) -> ok.
choose(environment) ->
    case os:getenv("ENGINE", "") of
        "" ->
            choose(default, []);
        Engine ->
            {ok, Tokens, _} = erl_scan:string(os:getenv("OPTIONS", "[]") ++ "."),
            {ok, Options} = erl_parse:parse_term(Tokens),
            choose(list_to_atom(Engine), Options),
            case all_types() -- types(all_types()) of
                [] -> ok;
                Lacking ->
                    io:format(user, "~s holds no ~0p: tests over table types leave these out~n", [Engine, Lacking])
            end
    end.

%% @doc Chooses an engine with options from now on, `default' for the default ones.
-spec choose(cats:engine() | default, [cats:option()]) -> ok.
choose(default, []) ->
    persistent_term:put(?MODULE, {all_types(), []});
choose(Engine, Options) ->
    [Types] = [Types || #{name := Name, types := Types} <- cats:engines(), Name =:= Engine],
    make_module(),
    persistent_term:put(?MODULE, {Types, [{engine, Engine} | Options]}).

chosen() ->
    case persistent_term:get(?MODULE, none) of
        none -> choose(environment), chosen();
        Chosen -> Chosen
    end.

%% @doc A module with the functions of cats that makes such tables.
-spec module() -> module().
module() ->
    case chosen() of
        {_, []} -> cats;
        _ -> cats_of_engine
    end.

%% @doc Those of the table types that the engine has.
-spec types([atom()]) -> [atom()].
types(Wanted) ->
    {Types, _} = chosen(),
    [Type || Type <- Wanted, lists:member(Type, Types)].

%% @doc Whether tables get this option besides those that a test gives them.
-spec chosen(atom()) -> boolean().
chosen(Option) ->
    {_, Options} = chosen(),
    lists:keymember(Option, 1, Options).

all_types() -> [set, ordered_set, bag, duplicate_bag].

%% @doc As cats:new/2. Without a type among the options, the table is of one that the engine has.
-spec new(atom(), [cats:option()]) -> cats:table().
new(Name, Options) ->
    try
        cats:new(Name, with_engine(Options))
    catch
        error:Reason:Stack ->
            [{cats, new, [_, _], Info} | Below] = Stack,
            erlang:raise(error, Reason, [{cats, new, [Name, Options], Info} | Below])
    end.

with_engine(Options) ->
    {Types, Engine} = chosen(),
    try [Option || Option <- Options, lists:member(Option, all_types())] of
        Given ->
            case {Given, [Type || Type <- Given, Type =/= set], lists:keymember(engine, 1, Options)} of
                {_, _, true} -> Options;
                {[], [], _} -> [hd(Types) | Options] ++ Engine;
                {_, [], _} -> with_engine(set, Types, Options, Engine);
                {_, Others, _} -> with_engine(lists:last(Others), Types, Options, Engine)
            end
    catch
        error:_ -> Options
    end.

with_engine(Type, Types, Options, Engine) ->
    case lists:member(Type, Types) of
        true -> Options ++ Engine;
        false -> Options
    end.

%% Each function calls that of cats, but new/2 calls the one here.
make_module() ->
    erlang:module_loaded(cats_of_engine) orelse
        begin
            Exports = cats:module_info(exports) -- [{module_info, 0}, {module_info, 1}],
            Forms = [{attribute, 1, module, cats_of_engine}, {attribute, 1, export, Exports}
                     | [function(Name, Arity) || {Name, Arity} <- Exports]],
            {ok, Module, Code} = compile:forms(Forms),
            {module, Module} = code:load_binary(Module, "cats_of_engine", Code)
        end.

function(Name, Arity) ->
    Target = case {Name, Arity} of
                 {new, 2} -> ?MODULE;
                 _ -> cats
             end,
    Arguments = [{var, 1, list_to_atom("A" ++ integer_to_list(N))} || N <- lists:seq(1, Arity)],
    Call = {call, 1, {remote, 1, {atom, 1, Target}, {atom, 1, Name}}, Arguments},
    {function, 1, Name, Arity, [{clause, 1, Arguments, [], [Call]}]}.
