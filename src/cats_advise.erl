%% @doc Advice on tables.
%%
%% {@link node/2} watches the tables of `ets' in a running node, and says which of them cats would serve better.
%% {@link measure/1} tries what was seen there on this machine, and takes back advice that does not hold there.
%% {@link workload/1} tries a workload on all kinds of tables that could serve it.
-module(cats_advise).
-export([node/2, measure/1, json/1, page/1, workload/1]).
-export_type([advice/0, measured/0, spec/0, operation/0, shape/0, trial/0]).

-type advice() :: #{table := term(), advice := stay | transform | cache, why := unicode:chardata(),
                    expect := [unicode:chardata()], differs := [unicode:chardata()],
                    calls := #{Function :: atom() => pos_integer()}, callers := non_neg_integer(),
                    owner := map(), samples := [map()], waited => non_neg_integer(), measured => measured(),
                    atom() => term()}.
%% A table that was watched, with what `ets:info/1' says of it.
%%
%% <ul>
%% <li>`advice': `stay' with `ets', use cats by the parse transform (`transform'), or as a `cache'. `why' is the
%%     reason.</li>
%% <li>`expect': what measurements of this project let expect. `differs': what a program would see.</li>
%% <li>`calls': the calls that were seen, by function; `callers': by how many processes.</li>
%% <li>`samples': what some objects look like: shapes of key and values, words. Values themselves do not leave the
%%     node.</li>
%% <li>`before': the size at the beginning.</li>
%% <li>`waited': how many microseconds of a second threads waited for the locks of tables with this name. Only where
%%     the VM counts that (`erl -emu_type lcnt').</li>
%% </ul>
-type measured() :: #{ratio := float(), low := float(), high := float(), mix := #{Function :: atom() => 0..100},
                      percent := 0..100, objects := pos_integer(), processes := pos_integer()}.
%% What {@link measure/1} found of a table: how many times as fast cats was, the median and the quarter points of the
%% rounds. `mix' are the calls in percent, and `percent' tells how many of the seen calls are in it.
-type operation() :: lookup | member | delete | take | next | prev | insert | insert_new
                   | {lookup_element | update_element | update_counter, Position :: pos_integer()}
                   | fun((ets | cats, cats:table(), Key :: term()) -> term()).
%% An operation of the workload. A name stands for the function of that name on one key. The operations with a
%% position read or change the element at that position. A fun gets the module, the table and a key, and serves
%% for everything else.
-type shape() :: integer | atom | float | binary | {binary, Bytes :: non_neg_integer()}
               | {tuple | list | map, Size :: non_neg_integer()} | fun((integer()) -> term()).
%% The shape of a term. `{binary, Bytes}' has a size in bytes. `Size' counts the elements of a tuple, list or map.
%% A fun makes the term from a number.
-type spec() :: #{operations => [{operation(), Share :: number()}],
                  key => shape(),
                  value => [shape()],
                  objects => pos_integer(),
                  processes => pos_integer(),
                  keys => uniform | {hot, Number :: pos_integer()} | {zipf, Exponent :: float()},
                  types => [set | ordered_set | bag | duplicate_bag],
                  seconds => number()}.
%% A workload. {@link workload/1} describes the items.
-type trial() :: #{tables := ets | cats, options := [term()],
                    rate := float(), lowest := float(), highest := float(),
                    share := float(), bytes := float()}.
%% How one table did. `rate', `lowest' and `highest' are in operations per second, `bytes' is per object.

-define(WATCH, cats_advise_watch).
%% Milliseconds for each question to a node.
-define(PATIENCE, 5000).
-define(SHOWN, 30).
%% So many tables are measured, for so many seconds each.
-define(MEASURED, 10).
-define(SECONDS, 2).
%% Bytes from which on a table is shown even if no call was seen.
-define(LARGE, 10_000_000).

%% @doc Watches the tables of `ets' in a node for so many seconds. Prints what they are, what is called on them and
%% what would serve them, and returns it. The tables with most calls come first, those of Erlang/OTP last.
%%
%% The node needs no cats: a module that uses only OTP is sent there, and deleted in the end. It traces 200
%% processes at random for ten milliseconds, at most once a second, until it has seen 400 calls of `ets'. It looks at
%% the 500 tables with the most memory, one after the other, and at ten objects of each that others may read. Processes
%% that live for less than some milliseconds are seldom seen.
%%
%% With many tables it takes longer than that, by ten milliseconds a table.
%%
%% Raises the error `{cannot_watch, Node, Reason}'. The reason is
%%
%% <ul>
%% <li>`traced' if somebody traces functions of `ets' there</li>
%% <li>`watched' if another process watches the node</li>
%% <li>`seconds' if that is no positive integer</li>
%% <li>`timeout' if the node does not answer within five seconds</li>
%% <li>another one if the node is not reached, or ends</li>
%% </ul>
-spec node(node(), Seconds :: pos_integer()) -> [advice()].
node(Node, Seconds) when is_integer(Seconds), Seconds > 0 ->
    Known = reach(Node),
    Lock = {?MODULE, self()},
    global:set_lock(Lock, [Node], 0) orelse error({cannot_watch, Node, watched}),
    try watch(Node, Seconds, Known) of
        #{tables := Tables} = Watched ->
            Judged = [cats_advise_judge:advice(Table) || Table <- Tables],
            Advice = lists:sort(fun(A, B) -> rank(A) =< rank(B) end, Judged),
            print(Node, Watched, Advice),
            Advice;
        {error, Reason} ->
            error({cannot_watch, Node, Reason})
    after
        global:del_lock(Lock, [Node])
    end;
node(Node, _Seconds) ->
    error({cannot_watch, Node, seconds}).

%% Whether the node has the module, as a node with cats does.
reach(Node) -> ask(Node, code, which, [?WATCH]) =/= non_existing.

%% Gives up when the node does not answer, for example as its code server stands still.
ask(Node, Module, Function, Arguments) ->
    try erpc:call(Node, Module, Function, Arguments, ?PATIENCE)
    catch error:{erpc, Reason} -> error({cannot_watch, Node, Reason})
    end.

%% @doc Measures what {@link node/2} has seen: for each table for which it advises cats, the same calls on objects of
%% the same shapes, on `ets' and on cats. Prints and returns the advice. A table stays with `ets' if a quarter of the
%% rounds was not faster on cats.
%%
%% It measures in this node, with as many processes as were seen, for two seconds or more a table, and the ten tables
%% with most calls. So call it on the same kind of machine, but not in a node that is busy. Calls whose time depends on
%% their patterns, funs or lists are left out. Keys are drawn uniformly.
-spec measure([advice()]) -> [advice()].
measure(Advice) ->
    is_advice(Advice) orelse error({bad_advice, Advice}),
    cats_advise_measure:all(Advice, ?MEASURED, ?SECONDS, fun tell/1).

tell(#{name := Name, advice := Advised, why := Why, expect := Expect, owner := Owner}) ->
    Application = maps:get(application, Owner, undefined),
    io:format("~tw: ~s. ~ts~n", [Name, said(Advised, Application), hd(Expect ++ [Why])]).

is_advice(Advice) ->
    is_list(Advice) andalso lists:all(fun(Each) -> is_map(Each) andalso is_map_key(advice, Each) end, Advice).

watch(Node, Seconds, Known) ->
    Known orelse send(Node),
    Pid = ask(Node, ?WATCH, start, [self(), Seconds, not Known]),
    Monitor = monitor(process, Pid),
    receive
        {Pid, watched, Result} ->
            demonitor(Monitor, [flush]),
            Result;
        {'DOWN', Monitor, process, Pid, Reason} ->
            {error, Reason}
    end.

send(Node) ->
    {?WATCH, Code, File} = code:get_object_code(?WATCH),
    {module, ?WATCH} = ask(Node, code, load_binary, [?WATCH, File, Code]).

rank(#{owner := #{otp := Otp}, calls := Calls, memory := Words}) ->
    {Otp, -lists:sum(maps:values(Calls)), -Words}.

%% @doc The advice as JSON, an array with an object for each table. Raises the error `{bad_advice, Advice}' for anything
%% but the result of {@link node/2} or {@link measure/1}.
-spec json([advice()]) -> iodata().
json(Advice) ->
    try [maps:map(fun(_, Value) -> value(Value) end, Each) || Each <- Advice] of
        Tables -> cats_web_data:json({list, Tables})
    catch
        error:{Reason, _} when Reason =:= bad_generator; Reason =:= badmap -> error({bad_advice, Advice})
    end.

%% @doc The advice as a page for a browser, which needs nothing else.
-spec page([advice()]) -> unicode:chardata().
page(Advice) ->
    is_advice(Advice) orelse error({bad_advice, Advice}),
    cats_advise_page:page(Advice).

value(Value) when is_integer(Value); is_float(Value); is_boolean(Value) -> Value;
value(undefined) -> null;
value(Value) when is_atom(Value) -> atom_to_list(Value);
value(Value) when is_map(Value) -> maps:map(fun(_, Inner) -> value(Inner) end, Value);
value([Map | _] = List) when is_map(Map) -> {list, [value(Each) || Each <- List]};
value([]) -> {list, []};
value([Each | _] = List) when is_atom(Each); is_tuple(Each); is_list(Each) -> {list, [value(E) || E <- List]};
value(Text) when is_list(Text) -> Text;
value(Term) -> io_lib:format("~0tp", [Term]).

print(Node, #{number := Number, calls := Calls, windows := Windows}, Advice) ->
    io:format("~s: ~b tables, ~b calls seen in ~b moments~n", [Node, Number, Calls, Windows]),
    {Otp, Own} = lists:partition(fun(#{owner := #{otp := Is}}) -> Is end, Advice),
    {Shown, Others} = lists:partition(fun is_shown/1, Own),
    {Printed, Common} = apart(lists:sublist(Shown, ?SHOWN)),
    lists:foreach(fun print/1, Printed),
    [io:format("~nfor all of these~n") || Common =/= []],
    [io:format("  ~-7s ~ts~n", [Key, Text]) || {Key, Text} <- Common],
    [io:format("~nand ~b more tables~n", [length(Shown) - ?SHOWN]) || length(Shown) > ?SHOWN],
    [io:format("~n~b more tables stay with ets, as they are small and few calls were seen: ~ts~n",
               [length(Others), lists:join(", ", [io_lib:format("~tw", [Name]) || #{name := Name} <- Others])])
     || Others =/= []],
    io:format("~n~b tables belong to Erlang/OTP. They stay.~n", [length(Otp)]).

%% The tables without the sentences that are said of all for which cats is advised, if there are several, and those.
apart(Tables) ->
    case [[{Key, Text} || Key <- [expect, differs], Text <- maps:get(Key, Table)]
          || #{advice := Advised} = Table <- Tables, Advised =/= stay] of
        [First, _ | _] = Said ->
            Common = [Each || Each <- First, lists:all(fun(Others) -> lists:member(Each, Others) end, Said)],
            {[maps:map(fun(Key, Texts) when Key =:= expect; Key =:= differs -> Texts -- [T || {_, T} <- Common];
                          (_, Value) -> Value
                       end, Table) || Table <- Tables], Common};
        _ ->
            {Tables, []}
    end.

%% Not those of which there is nothing to say.
is_shown(#{advice := stay, calls := Calls, memory := Words}) ->
    map_size(Calls) > 0 orelse Words * erlang:system_info(wordsize) >= ?LARGE;
is_shown(_) ->
    true.

print(#{name := Name, table := Id, type := Type, protection := Protection, size := Size, before := Before,
        memory := Words, owner := #{pid := Pid, name := Registered, application := Application}, calls := Calls,
        callers := Callers, advice := Advice, why := Why, expect := Expect, differs := Differs,
        samples := Samples} = Table) ->
    io:format("~n~tw~s, ~s ~s, ~b objects (~b at first), ~b kB~n",
              [Name, [io_lib:format(" ~w", [Id]) || Id =/= Name], Protection, Type, Size, Before,
               Words * 8 div 1024]),
    io:format("  owner   ~s~s~s~n", [Pid, [io_lib:format(" ~tw", [Registered]) || Registered =/= undefined],
                                    [io_lib:format(" of ~w", [Application]) || Application =/= undefined]]),
    [io:format("  objects such as key ~0tp, values ~0tp~n", [Key, Values])
     || #{key := Key, values := Values} <- lists:sublist(Samples, 1)],
    Total = lists:sum(maps:values(Calls)),
    [io:format("  calls   ~s, by ~b processes~n",
               [lists:join(", ", [io_lib:format("~b % ~w", [100 * N div Total, Function])
                                  || {N, Function} <- by_number(Calls)]), Callers]) || Total > 0],
    [io:format("  waits   ~b microseconds of a second for locks~n", [Waited]) || #{waited := Waited} <- [Table]],
    io:format("  advice  ~s. ~ts~n", [said(Advice, Application), Why]),
    [io:format("  expect  ~ts~n", [Text]) || Text <- Expect],
    lists:foreach(fun(Text) -> io:format("  differs ~ts~n", [Text]) end, Differs).

by_number(Calls) -> lists:reverse(lists:sort([{N, Function} || {Function, N} <- maps:to_list(Calls)])).

said(stay, _) -> "stay with ets";
said(transform, mnesia) -> "cats, by cats_mnesia";
said(transform, _) -> "cats, by the parse transform";
said(cache, _) -> "cats, as a cache with a lifetime or a limit".

%% @doc Tries a workload on all tables that could serve it. Prints them and returns them, the best one first.
%%
%% Every item of the specification has a default:
%%
%% <ul>
%% <li>`operations': the operations with their weights. Default: `[{lookup, 90}, {insert, 5}, {delete, 5}]'.</li>
%% <li>`key': the shape of the keys. Default: `integer'.</li>
%% <li>`value': the shapes of the other elements of an object. Default: `[integer]'.</li>
%% <li>`objects': how many objects the table holds at first. Default: 100,000. If the workload deletes, keys come
%%     from twice as many numbers, so that equal weights of `insert' and `delete' keep the size.</li>
%% <li>`processes': how many processes work on the table. Default: the number of schedulers.</li>
%% <li>`keys': the distribution of keys. `uniform' is the default, `{hot, Number}' uses only that many keys, and
%%     `{zipf, Exponent}' follows Zipf's law.</li>
%% <li>`types': the table types that could serve. Default: `[set, ordered_set]'.</li>
%% <li>`seconds': how long to measure. Default: 60. At least three rounds run.</li>
%% </ul>
%%
%% The result has a map for each table:
%%
%% <ul>
%% <li>`tables' and `options': the module, and the options for its `new/2'.</li>
%% <li>`rate': operations per second of all processes, the median over the rounds.</li>
%% <li>`lowest', `highest': the range of the rate.</li>
%% <li>`share': the rate as a share of the best table's, the median over the rounds.</li>
%% <li>`bytes': the memory of the table per object.</li>
%% </ul>
%%
%% Raises the error `{bad_spec, Item}' for an item that is invalid.
-spec workload(spec()) -> [trial()].
workload(Spec) -> cats_workload:try_all(Spec).
