%% The lives of tables in a storm. They are deleted and made anew, emptied, filled, renamed, given away, claimed, copied
%% and written to files. The processes that do so may be killed meanwhile.
-module(cats_storm_lives).

-import(cats_storm_values, [uniform/1, chance/1, one_of/1, shared_key/0, object/2]).
-import(cats_storm_tables, [has/2, id/1]).
-import(cats_storm_calls, [outcome/1, unexpected/3, wrong_objects/2, is_dead/1]).

-export([operations/0]).

-spec operations() -> [cats_storm_calls:operation()].
operations() ->
    [{2, delete_table, [wild], fun delete/1},
     {4, revive, [wild], fun revive/1},
     {6, delete_all_objects, [wild], fun(Table) -> call(Table, delete_all_objects, [], []) end},
     {2, match_delete_all, [wild], fun(Table) -> call(Table, match_delete, ['_'], []) end},
     {2, select_delete_all, [wild], fun(Table) -> call(Table, select_delete, [[{'_', [], [true]}]], []) end},
     {2, init_table, [wild, {no, limited}], fun init_table/1},
     {3, fill, [wild], fun fill/1},
     {2, rename, [wild], fun(Table) -> call(Table, rename, [one_of([storm_a, storm_b, storm_c, storm_d])], [none]) end},
     {2, rename_kept, [renamed],
      fun(#{place := Place} = T) -> call(T, rename, [one_of(cats_storm_tables:names(Place))], [none]) end},
     {2, give_away, [wild],
      fun(Table) -> call(Table, give_away, [cats_storm_worker:other(), gift], [owner, not_owner, none]) end},
     {2, setopts, [wild], fun(Table) -> call(Table, setopts, [heir()], [not_owner, none]) end},
     {3, claim, [heir], fun(Table) -> call(Table, claim, [], [owned, not_owner]) end},
     {1, to_ets, [], fun(Table) -> cats_storm_walks:unless_large(Table, fun to_ets/1) end},
     {1, from_ets, [{no, limited}], fun from_ets/1},
     {1, files, [], fun(Table) -> cats_storm_walks:unless_large(Table, fun files/1) end},
     {1, every_table, [], fun every_table/1}].

call(#{tid := Tid} = Table, Function, Arguments, Causes) ->
    cats_storm_worker:note({Function, Arguments}),
    case outcome(fun() -> apply(cats, Function, [Tid | Arguments]) end) of
        {returned, _} -> nothing;
        Outcome -> unexpected(Table, Causes, Outcome)
    end.

delete(#{place := Place} = Table) ->
    case call(Table, delete, [], []) of
        nothing ->
            is_dead(Table) andalso cats_storm_tables:new(Place, wild, cats_storm_worker:listener()),
            nothing;
        Wrong ->
            Wrong
    end.

%% A new table in place of one that died with its owner.
revive(#{place := Place} = Table) ->
    cats_storm_worker:note(revive),
    is_dead(Table) andalso cats_storm_tables:new(Place, wild, cats_storm_worker:listener()),
    nothing.

heir() -> one_of([{heir, none}, {heir, keep}, {heir, cats_storm_worker:other(), gift}]).

some_objects(Table, Number) -> [object(Table, shared_key()) || _ <- lists:seq(1, Number)].

init_table(Table) ->
    Objects = some_objects(Table, one_of([0, 10, 100])),
    Initialize = fun(read) -> {Objects, fun(read) -> end_of_input; (close) -> ok end}; (close) -> ok end,
    cats_storm_worker:note(init_table),
    case outcome(fun() -> cats:init_table(id(Table), Initialize) end) of
        {returned, true} -> nothing;
        {raised, exit, {badarg, Stack}, _} ->
            unexpected(Table, [], outcome(fun() -> erlang:raise(error, badarg, Stack) end));
        Outcome -> unexpected(Table, [], Outcome)
    end.

fill(Table) ->
    empty_bag(Table),
    Objects = some_objects(Table, one_of([10, 100, 100, 1000])),
    call(Table, one_of([insert, insert_many]), [Objects], []).

%% A bag to which much is added would grow without end.
empty_bag(#{tid := Tid} = Table) ->
    has(bag_like, Table) andalso outcome(fun() -> cats:delete_all_objects(Tid) end).

%%% Copies

to_ets(#{type := Type, keypos := Keypos} = Table) ->
    cats_storm_worker:note(to_ets),
    Copy = ets:new(copy, [Type, {keypos, Keypos}]),
    Wrong = case outcome(fun() -> cats:to_ets(id(Table), Copy) end) of
                {returned, _} -> wrong_objects(Table, ets:tab2list(Copy));
                Outcome -> unexpected(Table, [], Outcome)
            end,
    ets:delete(Copy),
    Wrong.

from_ets(Table) ->
    case has(kept, Table) andalso has(bag_like, Table) of
        true -> nothing;
        false -> empty_bag(Table), copy_from_ets(Table)
    end.

copy_from_ets(#{type := Type, keypos := Keypos} = Table) ->
    cats_storm_worker:note(from_ets),
    Source = ets:new(source, [Type, {keypos, Keypos}]),
    ets:insert(Source, some_objects(Table, one_of([1, 10, 100]))),
    Wrong = case outcome(fun() -> cats:from_ets(id(Table), Source) end) of
                {returned, _} -> nothing;
                Outcome -> unexpected(Table, [], Outcome)
            end,
    ets:delete(Source),
    Wrong.

%% Writes a table, or a snapshot of it, to a file of this process, and reads the file.
files(#{tid := Tid} = Table) ->
    cats_storm_worker:note(files),
    File = filename:join(cats_storm_worker:directory(), "table" ++ integer_to_list(cats_storm_values:myself())),
    Options = one_of([[], [{extended_info, [object_count]}], [{extended_info, [md5sum]}]]),
    Source = case outcome(fun() -> cats:snapshot(Tid) end) of
                 {returned, Snapshot} -> one_of([Tid, Snapshot]);
                 _ -> Tid
             end,
    Written = outcome(fun() -> cats:tab2file(Source, File, Options) end),
    Wrong = case Written of
                {returned, ok} -> read(Table, Source, File, Options);
                {returned, {error, Reason}} ->
                    case is_dead(Table) orelse not has(public, Table) orelse has(short_snapshots, Table) of
                        true -> nothing;
                        false -> {tab2file, Reason}
                    end;
                Outcome -> unexpected(Table, [snapshot_limit || has(short_snapshots, Table)], Outcome)
            end,
    _ = file:delete(File),
    Wrong.

%% What the table held while it was written, or at the instant of the snapshot.
read(#{tid := Tid} = Table, Source, File, Options) ->
    case outcome(fun() -> cats:file2tab(File, [{verify, Options =/= []}]) end) of
        {returned, {ok, Read}} ->
            Objects = cats:tab2list(Read),
            cats:delete(Read),
            case wrong_objects(Table, Objects) of
                nothing when Source =/= Tid ->
                    case outcome(fun() -> lists:sort(cats:tab2list(Source)) end) of
                        {returned, Same} -> case lists:sort(Objects) of Same -> nothing; _ -> {file, Objects, Same} end;
                        Outcome -> case has(short_snapshots, Table) of true -> nothing; false -> Outcome end
                    end;
                Found ->
                    Found
            end;
        {returned, {error, cannot_create_table}} ->
            %% The name may be taken, as that of the table itself is.
            nothing;
        system_limit ->
            unexpected(Table, [], system_limit);
        Outcome ->
            {file2tab, Outcome}
    end.

%%% All tables

every_table(_Table) ->
    cats_storm_worker:note(every_table),
    Tables = cats:all(),
    _ = [cats:info(Tid) || Tid <- Tables],
    _ = [chance(20) andalso cats:info(Tid, size) || Tid <- Tables],
    true = cats:memory() >= 0,
    true = is_map(cats:garbage()),
    true = is_map(cats:stats()),
    nothing.
