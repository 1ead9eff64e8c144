%% Copies tables from and to Dets and ets, chunk by chunk.
-module(cats_convert).
-export([from_dets/2, to_dets/2, from_ets/2, to_ets/2]).
%% cats_transform replaces `dets:to_ets/2' and `dets:from_ets/2' by these.
-export([dets_to_ets/2, dets_from_ets/2]).

-define(CHUNK, 100).
-define(ALL_OBJECTS, [{'_', [], ['$_']}]).

%% @private
-spec from_dets(cats:table(), dets:tab_name()) -> true.
from_dets(Table, DetsTable) ->
    Copied = try
                 dets_to_ets(DetsTable, Table)
             catch
                 error:system_limit:Stack ->
                     [{_, _, _, Info} | _] = Stack,
                     cats_failure:fail(system_limit, cats_failure:cause(Info), from_dets, [Table, DetsTable]);
                 error:Reason -> {error, Reason};
                 exit:Reason -> {error, Reason};
                 throw:Thrown -> Thrown
             end,
    done(Copied, Table, from_dets, [Table, DetsTable]).

%% @private
-spec dets_to_ets(dets:tab_name(), Table) -> Table | {error, Reason :: term()} when Table :: cats:table().
dets_to_ets(DetsTable, Table) ->
    undefined =/= cats:info(Table, protection) orelse error(badarg, [DetsTable, Table]),
    dets:foldl(fun(Object, _) -> true = cats:insert(Table, Object), Table end, Table, DetsTable).

%% @private
-spec to_dets(cats:table(), DetsTable) -> DetsTable when DetsTable :: dets:tab_name().
to_dets(Table, DetsTable) ->
    Copied = try
                 dets_from_ets(DetsTable, Table)
             catch
                 error:Reason -> {error, Reason};
                 exit:Reason -> {error, Reason};
                 throw:Thrown -> Thrown
             end,
    done(Copied, ok, to_dets, [Table, DetsTable]),
    DetsTable.

%% @private
-spec dets_from_ets(dets:tab_name(), cats:table()) -> ok | {error, Reason :: term()}.
dets_from_ets(DetsTable, Table) ->
    dets:init_table(DetsTable, reader(cats:select(Table, ?ALL_OBJECTS, ?CHUNK))).

%% An input function for dets:init_table/2.
reader(Chunk) ->
    fun(read) ->
            case Chunk of
                '$end_of_table' -> end_of_input;
                {Objects, Continuation} -> {Objects, reader(cats:select(Continuation))}
            end;
       (close) ->
            ok
    end.

%% Turns a failure of either table into an error of the called function, as ets does.
done(Expected, Expected, _Function, _Arguments) -> true;
done({error, Reason}, _Expected, Function, Arguments) -> cats_failure:fail(Reason, none, Function, Arguments);
done(Unexpected, _Expected, Function, Arguments) -> cats_failure:fail(Unexpected, none, Function, Arguments).

%% @private
-spec from_ets(cats:table(), ets:table()) -> true.
from_ets(Table, EtsTable) ->
    copy({ets, EtsTable}, {cats, Table}, from_ets, [Table, EtsTable]).

%% @private
-spec to_ets(cats:table(), ets:table()) -> true.
to_ets(Table, EtsTable) ->
    copy({cats, Table}, {ets, EtsTable}, to_ets, [Table, EtsTable]).

copy({FromModule, From}, {ToModule, To}, Function, Arguments) ->
    try
        %% Fails when the caller may not insert, even if there is nothing to copy.
        true = ToModule:insert(To, []),
        true = FromModule:safe_fixtable(From, true),
        try
            copy_on(FromModule:select(From, ?ALL_OBJECTS, ?CHUNK), FromModule, To, ToModule)
        after
            FromModule:safe_fixtable(From, false)
        end
    catch
        error:badarg:Stack ->
            [{Module, _, _, Info} | _] = Stack,
            Cause = maps:get(cause, proplists:get_value(error_info, Info, #{}), none),
            cats_failure:fail(badarg, {Module, Cause}, Function, Arguments)
    end.

copy_on('$end_of_table', _FromModule, _To, _ToModule) ->
    true;
copy_on({Objects, Continuation}, FromModule, To, ToModule) ->
    lists:foreach(fun(Object) -> ToModule:insert(To, Object) end, Objects),
    copy_on(FromModule:select(Continuation), FromModule, To, ToModule).
