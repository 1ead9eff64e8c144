%% Tables and the processes that own, inherit, fix and use them: when an owner is dead, its tables are gone
%% and their names free, or they are the heir's; what access rights allow is what ets allows.
-module(cats_ownership_SUITE).
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2,
         own_a_name/2]).
-export([tables_end_with_their_owner/1, restarted_owner_finds_the_name_free/1, heir_inherits/1,
         heir_inherits_many/1, heir_owns_at_once/1,
         heir_without_data/1, dead_heir_inherits_nothing/1, heir_that_is_the_owner/1, heir_taken_back/1,
         heirs_die_in_a_row/1,
         give_away/1, give_away_refused/1, access_rights/1, protection_changes/1, names/1,
         rename_moves_the_name/1, many_names/1,
         fixing_process_dies/1, fixed_many_times/1]).

-define(T, (cats_test_lib:tables())).

suite() -> [{timetrap, {minutes, 15}}].

all() ->
    [tables_end_with_their_owner, restarted_owner_finds_the_name_free, heir_inherits, heir_inherits_many,
     heir_owns_at_once, heir_without_data,
     dead_heir_inherits_nothing, heir_that_is_the_owner, heir_taken_back, heirs_die_in_a_row, give_away,
     give_away_refused,
     access_rights, protection_changes, names, rename_moves_the_name, many_names,
     fixing_process_dies, fixed_many_times].

init_per_suite(Config) -> cats_test_lib:start(Config).

end_per_suite(_Config) -> ok.

init_per_testcase(heir_without_data, Config) ->
    case list_to_integer(erlang:system_info(otp_release)) of
        Release when Release < 28 -> cats_test_lib:only_cats(Config);
        _ -> Config
    end;
init_per_testcase(_, Config) -> Config.

end_per_testcase(_, _Config) -> ok.

tables_end_with_their_owner(_Config) ->
    [begin
         {Owner, Tables} =
             cats_test_lib:spawn_owner(
               fun() ->
                       Made = [?T:new(unnamed, [Type]) || Type <- cats_test_lib:types()]
                           ++ [?T:new(owned, [named_table])],
                       [?T:insert(T, [{N, Reason} || N <- lists:seq(1, 10)]) || T <- Made],
                       Made
               end),
         [10 = ?T:info(T, size) || T <- Tables],
         cats_test_lib:stop(Owner, Reason),
         undefined = ?T:whereis(owned),
         owned = ?T:new(owned, [named_table]),
         [] = ?T:tab2list(owned),
         ?T:delete(owned),
         [begin
              undefined = ?T:info(T),
              undefined = ?T:info(T, size),
              id = cats_test_lib:cause(fun() -> ?T:lookup(T, 1) end),
              false = lists:member(T, ?T:all())
          end || T <- Tables]
     end || Reason <- lists:append(lists:duplicate(50, [normal, kill, shutdown]))],
    ok.

%% A real supervisor, and an owner linked to 1000 processes, which its end must tell before anybody is told
%% that monitors it. RESTARTS in the environment: how often (500).
restarted_owner_finds_the_name_free(_Config) ->
    Linked = [spawn_link(fun survive/0) || _ <- lists:seq(1, 1000)],
    Test = self(),
    Start = fun() ->
                    proc_lib:start_link(?MODULE, own_a_name, [Test, Linked])
            end,
    %% Its reports of every restart would fill the log.
    ok = logger:set_module_level(supervisor, none),
    {ok, Supervisor} = cats_restart_supervisor:start_link(Start),
    Restarts = cats_test_lib:environment("RESTARTS", 500),
    [receive
         {owner, Pid, owned} -> exit(Pid, kill);
         {owner, _, Failure} -> ct:fail({Failure, after_restarts, N})
     after 60000 -> ct:fail(no_restart)
     end || N <- lists:seq(1, Restarts)],
    receive {owner, _, owned} -> ok end,
    unlink(Supervisor),
    exit(Supervisor, kill),
    ok = logger:unset_module_level(supervisor),
    [begin unlink(Pid), exit(Pid, kill) end || Pid <- Linked],
    {comment, io_lib:format("~b restarts", [Restarts])}.

survive() ->
    process_flag(trap_exit, true),
    receive never -> ok end.

own_a_name(Test, Linked) ->
    [link(Pid) || Pid <- Linked],
    Result = try ?T:new(owned, [named_table]) catch error:Reason -> Reason end,
    proc_lib:init_ack({ok, self()}),
    Test ! {owner, self(), Result},
    receive never -> ok end.

heir_inherits(_Config) ->
    Heir = self(),
    [begin
         {Owner, Table} =
             cats_test_lib:spawn_owner(fun() ->
                                               T = ?T:new(inherited,
                                                          [Type, Access,
                                                           {heir, Heir, {data, [Type]}} | Named]),
                                               ?T:insert(T, [{1, a}, {2, b}]),
                                               T
                                       end),
         Heir = ?T:info(Table, heir),
         cats_test_lib:stop(Owner, Reason),
         receive
             {'ETS-TRANSFER', Table, Owner, {data, [Type]}} -> ok
         after 5000 -> ct:fail(no_transfer)
         end,
         Heir = ?T:info(Table, owner),
         [{1, a}, {2, b}] = lists:sort(?T:tab2list(Table)),
         true = ?T:insert(Table, {3, c}),
         3 = ?T:info(Table, size),
         true = ?T:delete(Table)
     end || Type <- cats_test_lib:types(), Access <- [private, protected, public],
     Named <- [[], [named_table]],
            Reason <- [normal, kill]],
    ok.

heir_inherits_many(_Config) ->
    Heir = self(),
    {Owner, Tables} =
        cats_test_lib:spawn_owner(fun() -> [?T:new(t, [{heir, Heir, N}]) || N <- lists:seq(1, 500)] end),
    cats_test_lib:stop(Owner, kill),
    [receive {'ETS-TRANSFER', T, Owner, N} -> Heir = ?T:info(T, owner), ?T:delete(T)
     after 5000 -> ct:fail({no_transfer, N})
     end || {T, N} <- lists:zip(Tables, lists:seq(1, 500))],
    ok.

%% Who knows that the owner is dead may do at once what only the new owner may.
heir_owns_at_once(_Config) ->
    Heir = self(),
    [begin
         {Owner, Table} = cats_test_lib:spawn_owner(fun() ->
                                                            T = ?T:new(t, [Access, {heir, Heir, data}]),
                                                            ?T:insert(T, [{N} || N <- lists:seq(1, 1000)]),
                                                            T
                                                    end),
         cats_test_lib:stop(Owner, kill),
         ok = cats_test_lib:cause(fun() -> Use(Table) end),
         receive {'ETS-TRANSFER', Table, Owner, data} -> ok after 5000 -> ct:fail(no_transfer) end,
         true = ?T:delete(Table)
     end || _ <- lists:seq(1, 20), {Access, Use} <- uses_of_an_owner()],
    ok.

uses_of_an_owner() ->
    [{private, fun(Table) -> 1000 = length(?T:tab2list(Table)) end},
     {private, fun(Table) -> [{1}] = ?T:lookup(Table, 1) end},
     {protected, fun(Table) -> true = ?T:insert(Table, {0}) end},
     {protected, fun(Table) -> true = ?T:delete_all_objects(Table) end},
     {public, fun(Table) -> true = ?T:setopts(Table, {heir, none}) end}].

%% Since OTP 28: the heir owns the table, but is told nothing.
heir_without_data(_Config) ->
    Heir = self(),
    {Owner, Table} = cats_test_lib:spawn_owner(fun() -> ?T:new(t, [{heir, Heir}]) end),
    cats_test_lib:stop(Owner, kill),
    cats_test_lib:eventually(fun() -> ?T:info(Table, owner) =:= Heir end),
    receive Message -> ct:fail({told, Message}) after 200 -> ok end,
    true = ?T:insert(Table, {1}),
    true = ?T:delete(Table).

dead_heir_inherits_nothing(_Config) ->
    Dead = cats_test_lib:down(normal),
    {Owner, Table} = cats_test_lib:spawn_owner(fun() -> ?T:new(owned, [named_table, {heir, Dead, data}]) end),
    cats_test_lib:stop(Owner, kill),
    undefined = ?T:info(Table),
    owned = ?T:new(owned, [named_table]),
    true = ?T:delete(owned).

heir_that_is_the_owner(_Config) ->
    New = fun() -> ?T:new(owned, [named_table, {heir, self(), data}]) end,
    {Owner, Table} = cats_test_lib:spawn_owner(New),
    cats_test_lib:stop(Owner, kill),
    undefined = ?T:info(Table),
    undefined = ?T:whereis(owned),
    ok.

heir_taken_back(_Config) ->
    Heir = self(),
    {Owner, Table} = cats_test_lib:spawn_owner(fun() ->
                                                       T = ?T:new(t, [{heir, Heir, data}]),
                                                       ?T:setopts(T, {heir, none}),
                                                       T
                                               end),
    none = ?T:info(Table, heir),
    cats_test_lib:stop(Owner, normal),
    undefined = ?T:info(Table),
    receive Message -> ct:fail(Message) after 100 -> ok end.

%% A table goes from heir to heir as they die, each having named the next one.
heirs_die_in_a_row(_Config) ->
    Last = self(),
    {Owner, Table} = cats_test_lib:spawn_owner(fun() -> ?T:new(t, [{heir, Last, 0}]) end),
    Final = lists:foldl(
              fun(N, Current) ->
                      {Next, ok} = cats_test_lib:spawn_owner(fun() -> ok end),
                      true = cats_test_lib:run_in(Current, fun() -> ?T:setopts(Table, {heir, Next, N}) end),
                      cats_test_lib:stop(Current, kill),
                      cats_test_lib:eventually(fun() -> ?T:info(Table, owner) =:= Next end),
                      Next
              end, Owner, lists:seq(1, 50)),
    true = cats_test_lib:run_in(Final, fun() -> ?T:setopts(Table, {heir, Last, at_last}) end),
    cats_test_lib:stop(Final, kill),
    receive {'ETS-TRANSFER', Table, Final, at_last} -> ok after 5000 -> ct:fail(no_transfer) end,
    true = ?T:delete(Table).

give_away(_Config) ->
    From = self(),
    [begin
         Table = ?T:new(given, [Type, {heir, From, back} | Named]),
         ?T:insert(Table, {1, a}),
         {To, ok} = cats_test_lib:spawn_owner(fun() -> ok end),
         true = ?T:give_away(Table, To, {gift, Type}),
         To = ?T:info(Table, owner),
         access = cats_test_lib:cause(fun() -> ?T:insert(Table, {2, b}) end),
         {'ETS-TRANSFER', Table, From, {gift, Type}} =
             cats_test_lib:run_in(To, fun() -> receive Message -> Message after 5000 -> nothing end end),
         true = cats_test_lib:run_in(To, fun() -> ?T:insert(Table, {2, b}) end),
         cats_test_lib:stop(To, kill),
         receive {'ETS-TRANSFER', Table, To, back} -> ok after 5000 -> ct:fail(no_transfer) end,
         [{1, a}, {2, b}] = lists:sort(?T:tab2list(Table)),
         true = ?T:delete(Table)
     end || Type <- cats_test_lib:types(), Named <- [[], [named_table]]],
    %% The table now lives as long as its new owner.
    {Giver, Table} = cats_test_lib:spawn_owner(fun() -> ?T:new(t, []) end),
    true = cats_test_lib:run_in(Giver, fun() -> ?T:give_away(Table, From, gift) end),
    cats_test_lib:stop(Giver, kill),
    receive {'ETS-TRANSFER', Table, Giver, gift} -> ok end,
    From = ?T:info(Table, owner),
    true = ?T:delete(Table).

give_away_refused(_Config) ->
    Table = ?T:new(t, [public]),
    {Other, ok} = cats_test_lib:spawn_owner(fun() -> ok end),
    owner = cats_test_lib:cause(fun() -> ?T:give_away(Table, self(), gift) end),
    none = cats_test_lib:cause(fun() -> ?T:give_away(Table, cats_test_lib:down(normal), gift) end),
    none = cats_test_lib:cause(fun() -> ?T:give_away(Table, not_a_pid, gift) end),
    Take = fun() -> ?T:give_away(Table, self(), gift) end,
    not_owner = cats_test_lib:run_in(Other, fun() -> cats_test_lib:cause(Take) end),
    true = ?T:delete(Table),
    id = cats_test_lib:cause(fun() -> ?T:give_away(Table, Other, gift) end),
    cats_test_lib:stop(Other, normal).

%% Every function, on every kind of table, called by the owner and by another process, does what it does in
%% ets.
access_rights(_Config) ->
    Calls = [{insert, [{k, 2}]}, {insert, [[{k, 3}, {l, 3}]]}, {insert_new, [{m, 1}]}, {lookup, [k]},
             {lookup_element, [k, 2]},
             {member, [k]}, {update_counter, [k, 1]}, {update_counter, [n, 1, {n, 1}]},
             {update_element, [k, {2, 5}]}, {first, []},
             {last, []}, {next, [k]}, {prev, [k]}, {slot, [0]}, {info, [size]}, {info, [protection]},
             {take, [k]},
             {delete, [l]}, {delete_object, [{m, 1}]}, {safe_fixtable, [true]}, {safe_fixtable, [false]},
             {rename, [renamed]},
             {setopts, [{heir, none}]}, {setopts, [{protection, public}]}, {tab2list, []},
             {delete_all_objects, []}, {delete, []}],
    Run = fun(Tables, Type, Access, ByOwner) ->
                  Table = Tables:new(t, [Type, Access]),
                  Tables:insert(Table, {k, 1}),
                  {Other, ok} = cats_test_lib:spawn_owner(fun() -> ok end),
                  Results = [{Function, Arguments,
                              by(ByOwner, Other, fun() -> outcome(Tables, Function, [Table | Arguments]) end)}
                             || {Function, Arguments} <- Calls],
                  cats_test_lib:stop(Other, normal),
                  lists:member(Table, Tables:all()) andalso Tables:delete(Table),
                  Results
          end,
    [case {Run(ets, Type, Access, ByOwner), Run(?T, Type, Access, ByOwner)} of
         {Same, Same} -> ok;
         {Ets, Cats} -> ct:fail({Type, Access, ByOwner, [{E, C} || {E, C} <- lists:zip(Ets, Cats), E =/= C]})
     end || Type <- cats_test_lib:types(), Access <- [public, protected, private], ByOwner <- [true, false]],
    ok.

by(true, _, Function) -> Function();
by(false, Other, Function) -> cats_test_lib:run_in(Other, Function).

outcome(Tables, Function, Arguments) ->
    try apply(Tables, Function, Arguments) of
        %% Which key comes first, and what is in which slot, is up to the table.
        _ when Function =:= first; Function =:= last; Function =:= next; Function =:= prev;
               Function =:= slot ->
            allowed;
        Reference when is_reference(Reference) -> identifier;
        Result when is_list(Result) -> lists:sort(Result);
        Result -> Result
    catch
        error:Reason:Stack ->
            {_, _, _, Information} = hd(Stack),
            {Reason, maps:get(cause, proplists:get_value(error_info, Information, #{}), none)}
    end.

protection_changes(_Config) ->
    Table = ?T:new(t, [private]),
    {Other, ok} = cats_test_lib:spawn_owner(fun() -> ok end),
    Allowed = fun() ->
                      Read = fun() -> cats_test_lib:cause(fun() -> ?T:lookup(Table, k) end) end,
                      Write = fun() -> cats_test_lib:cause(fun() -> ?T:insert(Table, {k}) end) end,
                      {cats_test_lib:run_in(Other, Read), cats_test_lib:run_in(Other, Write)}
              end,
    {access, access} = Allowed(),
    true = ?T:setopts(Table, {protection, protected}),
    {ok, access} = Allowed(),
    true = ?T:setopts(Table, [{protection, public}]),
    {ok, ok} = Allowed(),
    true = ?T:setopts(Table, {protection, private}),
    {access, access} = Allowed(),
    cats_test_lib:stop(Other, normal),
    true = ?T:delete(Table).

names(_Config) ->
    undefined = ?T:whereis(nobody),
    named = ?T:new(named, [named_table]),
    Identifier = ?T:whereis(named),
    true = is_reference(Identifier),
    true = ?T:insert(Identifier, {1, a}),
    [{1, a}] = ?T:lookup(named, 1),
    already_exists = cats_test_lib:cause(fun() -> ?T:new(named, [named_table]) end),
    Unnamed = ?T:new(named, []),
    named = ?T:info(Unnamed, name),
    false = ?T:info(Unnamed, named_table),
    true = lists:member(named, ?T:all()),
    true = lists:member(Unnamed, ?T:all()),
    true = ?T:delete(Unnamed),
    true = ?T:delete(named),
    undefined = ?T:whereis(named),
    id = cats_test_lib:cause(fun() -> ?T:lookup(Identifier, 1) end),
    ok.

rename_moves_the_name(_Config) ->
    one = ?T:new(one, [named_table]),
    three = ?T:new(three, [named_table]),
    ?T:insert(one, {1, a}),
    Identifier = ?T:whereis(one),
    two = ?T:rename(one, two),
    id = cats_test_lib:cause(fun() -> ?T:lookup(one, 1) end),
    [{1, a}] = ?T:lookup(two, 1),
    Identifier = ?T:whereis(two),
    none = cats_test_lib:cause(fun() -> ?T:rename(two, three) end),
    [{1, a}] = ?T:lookup(two, 1),
    four = ?T:rename(Identifier, four),
    four = ?T:info(Identifier, name),
    Unnamed = ?T:new(x, []),
    Unnamed = ?T:rename(Unnamed, y),
    y = ?T:info(Unnamed, name),
    [true = ?T:delete(T) || T <- [four, three, Unnamed]],
    ok.

%% More names than the array before the table of names has places. Each leads to its own table; one that was given up, to none.
many_names(_Config) ->
    Name = fun(N, Kind) -> list_to_atom(lists:concat([Kind, "_of_many_names_", N])) end,
    Numbers = lists:seq(1, 2000),
    [begin
         Old = ?T:new(Name(N, old), [named_table]),
         true = ?T:insert(Old, {number, N})
     end || N <- Numbers],
    Leads = fun(N, Kind) -> [{number, N}] =:= ?T:lookup(Name(N, Kind), number) end,
    [true = Leads(N, old) || N <- Numbers],
    [begin
         Table = ?T:whereis(Name(N, old)),
         case N rem 4 of
             0 -> true = ?T:delete(Name(N, old));
             1 -> New = Name(N, new), New = ?T:rename(Name(N, old), New), Table = ?T:whereis(New);
             _ -> ok
         end
     end || N <- Numbers],
    [begin
         Gone = N rem 4 < 2,
         Gone = undefined =:= ?T:whereis(Name(N, old)),
         true = Gone orelse Leads(N, old),
         true = N rem 4 =/= 1 orelse Leads(N, new)
     end || N <- Numbers],
    %% Names that are free again, in places that others may have taken.
    [begin
         Again = ?T:new(Name(N, old), [named_table]),
         true = ?T:insert(Again, {number, N})
     end || N <- Numbers, N rem 4 < 2],
    [true = Leads(N, old) || N <- Numbers],
    [true = ?T:delete(Name(N, old)) || N <- Numbers],
    [true = ?T:delete(Name(N, new)) || N <- Numbers, N rem 4 =:= 1],
    [undefined = ?T:whereis(Name(N, Kind)) || N <- Numbers, Kind <- [old, new]],
    ok.

fixing_process_dies(_Config) ->
    [begin
         Table = ?T:new(t, [public, Type]),
         Fixers = [element(1, cats_test_lib:spawn_owner(fun() -> ?T:safe_fixtable(Table, true) end))
                   || _ <- lists:seq(1, 20)],
         {_, Fixed} = ?T:info(Table, safe_fixed_monotonic_time),
         true = lists:sort(Fixed) =:= lists:sort([{Pid, 1} || Pid <- Fixers]),
         true = ?T:info(Table, fixed),
         {Dying, Living} = lists:split(19, Fixers),
         [cats_test_lib:stop(Pid, kill) || Pid <- Dying],
         Left = [{hd(Living), 1}],
         Fixing = fun() -> element(2, ?T:info(Table, safe_fixed_monotonic_time)) end,
         cats_test_lib:eventually(fun() -> Fixing() =:= Left end),
         cats_test_lib:stop(hd(Living), normal),
         cats_test_lib:eventually(fun() -> ?T:info(Table, safe_fixed) =:= false end),
         false = ?T:info(Table, fixed),
         true = ?T:delete(Table)
     end || Type <- cats_test_lib:types()],
    ok.

fixed_many_times(_Config) ->
    Table = ?T:new(t, []),
    Self = self(),
    [true = ?T:safe_fixtable(Table, true) || _ <- lists:seq(1, 3)],
    {_, [{Self, 3}]} = ?T:info(Table, safe_fixed_monotonic_time),
    [true = ?T:safe_fixtable(Table, false) || _ <- lists:seq(1, 3)],
    false = ?T:info(Table, safe_fixed_monotonic_time),
    true = ?T:safe_fixtable(Table, false),
    false = ?T:info(Table, fixed),
    true = ?T:delete(Table).
