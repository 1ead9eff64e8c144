%% What the page of `cats_web' shows, as terms that `json/1' writes.
-module(cats_web_data).
-export([json/1, node/0, table/1, tables/2]).

%% The page reads all buckets or leaves of a table with fewer objects than this, and fewer of them in a larger one.
-define(READ, 500000).
%% The most places and meetings of which an answer tells.
-define(MET, 10).

-type json() :: integer() | float() | boolean() | null | unicode:chardata() | {list, [json()]} | #{atom() => json()}.

%% @private
%% @doc The node and its memory.
-spec node() -> json().
node() ->
    {Uptime, _} = erlang:statistics(wall_clock),
    Memory = maps:from_list([{Kind, erlang:memory(Kind)} || Kind <- [total, processes, system, binary, ets]]),
    #{node => atom_to_list(erlang:node()), otp => erlang:system_info(otp_release), uptime => Uptime div 1000,
      version => version(), schedulers => erlang:system_info(schedulers_online),
      processes => erlang:system_info(process_count), tables => length(cats:all()),
      memory => Memory#{cats => cats:memory(), garbage => maps:get(bytes, cats:garbage())}}.

version() ->
    _ = application:load(cats),
    {ok, Version} = application:get_key(cats, vsn),
    Version.

%% @private
%% @doc The tables with the highest figure of this kind, and how many there are.
-spec tables(Sort :: atom(), Limit :: pos_integer()) -> json().
tables(Sort, Limit) ->
    Rows = cats_stats:rows(Sort, Limit),
    #{tables => {list, [row(Row) || Row <- Rows]}, number => length(cats:all())}.

row(#{id := Id, table := Table, name := Name, type := Type, engine := Engine, owner := Owner, stats := Stats}) ->
    #{id => cats_stats:identifier(Id), name => text(Name), named => is_atom(Table), type => atom_to_list(Type),
      engine => atom_to_list(Engine), owner => process(Owner), stats => stats(Stats)}.

stats(#{waits_by_length := Classes} = Stats) ->
    Stats#{waits_by_length := {list, [Number || {_Below, Number} <- Classes]}}.

%% @private
%% @doc All about one table, of which this is the text of its identifier. Nothing if there is no such table.
-spec table(Id :: string()) -> json() | undefined.
table(Text) ->
    case [Tid || Table <- cats:all(), Tid <- [cats:info(Table, id)], Tid =/= undefined,
                 cats_stats:identifier(Tid) =:= Text] of
        [Tid] -> detail(Tid);
        [] -> undefined
    end.

detail(Tid) ->
    Items = [name, type, engine, owner, heir, protection, keypos, compressed, named_table, fixed, read_concurrency,
             write_concurrency, decentralized_counters],
    OfCaches = [ttl, idle, limit, evict, notify],
    Values = maps:from_list([{Item, cats:info(Tid, Item)} || Item <- Items]
                            ++ [{Item, Value}
                                || Item <- OfCaches, Value <- [cats:info(Tid, Item)], Value =/= undefined]),
    case cats:stats(Tid) of
        undefined ->
            undefined;
        Stats ->
            #{id => cats_stats:identifier(Tid), stats => stats(Stats), owner => owner(maps:get(owner, Values)),
              name => text(maps:get(name, Values)), named => maps:get(named_table, Values),
              structure => structure(cats:info(Tid, stats)),
              contention => contention(Tid, maps:get(engine, Values), maps:get(size, Stats)),
              options => maps:map(fun(_, Value) -> text(Value) end, maps:without([name, owner], Values))}
    end.

%% As cats:info(Table, stats) tells of hash tables and of trees.
structure({Buckets, Average, Deviation, Expected, Least, Most, _, _}) ->
    #{buckets => Buckets, average => Average, deviation => Deviation, expected_deviation => Expected,
      least => Least, most => Most};
structure({Routes, Bases, Depth}) ->
    #{route_nodes => Routes, base_nodes => Bases, depth => Depth};
structure(_) ->
    null.

%% Where operations meet, without any key. Of large tables, some leaves or buckets are looked at.
contention(Tid, Engine, Size) when Engine =:= hash; Engine =:= ca ->
    try
        contention(cats_contention:of_table(Tid, 1 + Size div ?READ, {contention, [Tid]}))
    catch
        %% The table was deleted meanwhile.
        error:badarg -> null
    end;
contention(_Tid, _Engine, _Size) ->
    null.

contention(#{time := Now} = Contention) ->
    #{strips := Strips, adaptations := Adaptations, recorded := Recorded} = Contention,
    Met = met(Recorded),
    #{strips => {list, [strip(Strip, maps:get(Place, Met, 0)) || {Place, Strip} <- lists:enumerate(Strips)]},
      bases => {list, [maps:with([leaves, keys, statistic, waits, height], Base)
                       || Base <- maps:get(base_nodes, Contention, [])]},
      leaves => counts([{Slots, Leaves} || {Slots, Leaves, _} <- maps:get(leaves, Contention, [])]),
      load => counts(maps:get(load, Contention, [])),
      adaptations => {list, [#{ago => Now - Time, kind => atom_to_list(Kind), number => Number}
                             || #{time := Time, kind := Kind, number := Number} <- Adaptations]},
      recorded => recorded(Recorded)}.

%% The recorded waits in each strip.
met(false) ->
    #{};
met(#{places := Places}) ->
    lists:foldl(fun(#{strip := Strip, waits := Waits}, Met) ->
                        maps:update_with(Strip, fun(Sum) -> Sum + Waits end, Waits, Met);
                   (_Elsewhere, Met) -> Met
                end, #{}, Places).

strip(#{keys := Keys, changes := Changes} = Strip, Met) ->
    #{keys => Keys, changes => Changes, waits => maps:get(waits, Strip, null), met => Met}.

counts(Pairs) ->
    {list, [#{size => Size, number => Number} || {Size, Number} <- Pairs]}.

recorded(false) ->
    null;
recorded(#{places := Places, meetings := Meetings} = Recorded) ->
    Recorded#{places := {list, [place(Place) || Place <- lists:sublist(Places, ?MET)]},
              meetings := {list, [Met#{process := process(Process), other := process(Other)}
                                  || #{process := Process, other := Other} = Met <- lists:sublist(Meetings, ?MET)]}}.

place(#{processes := Processes} = Place) ->
    Shown = maps:without([key], Place),
    Shown#{strip => maps:get(strip, Place, null), processes := {list, [process(Process) || Process <- Processes]}}.

process(undefined) -> null;
process(Pid) -> #{pid => pid_to_list(Pid), name => registered(Pid)}.

registered(Pid) ->
    case process_info(Pid, registered_name) of
        {registered_name, Name} -> text(Name);
        _ -> null
    end.

owner(undefined) ->
    null;
owner(Pid) ->
    Owner = process(Pid),
    case process_info(Pid, [initial_call, current_function, message_queue_len, memory, reductions]) of
        [{_, {M, F, A}}, {_, {N, G, B}}, {_, Queue}, {_, Memory}, {_, Reductions}] ->
            Owner#{initial_call => text(fun M:F/A), current_function => text(fun N:G/B), message_queue => Queue,
                   memory => Memory, reductions => Reductions};
        _ ->
            Owner
    end.

%% Any term, for people.
text(Atom) when is_atom(Atom) -> io_lib:format("~tp", [Atom]);
text(Fun) when is_function(Fun) -> string:trim(io_lib:format("~tp", [Fun]), leading, "fun ");
text(Term) -> io_lib:format("~tp", [Term]).

%% @private
%% @doc A term as JSON.
-spec json(json()) -> iodata().
json(Number) when is_integer(Number) -> integer_to_binary(Number);
json(Number) when is_float(Number) -> io_lib:format("~.6f", [Number]);
json(Atom) when is_boolean(Atom); Atom =:= null -> atom_to_binary(Atom);
json({list, List}) -> [$[, lists:join($,, [json(Value) || Value <- List]), $]];
json(Map) when is_map(Map) ->
    Pairs = [[string(atom_to_list(Key)), $:, json(Value)] || {Key, Value} <- lists:sort(maps:to_list(Map))],
    [${, lists:join($,, Pairs), $}];
json(Text) -> string(Text).

string(Text) ->
    Bytes = unicode:characters_to_binary(Text),
    [$", << <<(escaped(Character))/binary>> || <<Character/utf8>> <= Bytes >>, $"].

escaped($") -> <<"\\\"">>;
escaped($\\) -> <<"\\\\">>;
escaped(Character)
  when Character < 32; Character >= 127, Character < 160; Character =:= 16#2028; Character =:= 16#2029 ->
    iolist_to_binary(io_lib:format("\\u~4.16.0b", [Character]));
escaped(Character) -> <<Character/utf8>>.
