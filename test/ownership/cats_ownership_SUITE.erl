%% Tables and the processes that own, inherit, fix and use them: when an owner is dead, its tables are gone
%% and their names free, or they are the heir's; what access rights allow is what ets allows.
-module(cats_ownership_SUITE).
-include_lib("stdlib/include/assert.hrl").
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2,
         own_a_name/2, claim_a_name/1]).
-export([tables_end_with_their_owner/1, restarted_owner_finds_the_name_free/1, heir_inherits/1,
         heir_inherits_many/1, heir_owns_at_once/1,
         heir_without_data/1, dead_heir_inherits_nothing/1, heir_that_is_the_owner/1, heir_taken_back/1,
         heirs_die_in_a_row/1,
         give_away/1, give_away_refused/1, access_rights/1, protection_changes/1, names/1,
         rename_moves_the_name/1, many_names/1,
         fixing_process_dies/1, fixed_many_times/1]).
-export([kept/1, kept_rights/1, kept_for_a_restarted_worker/1, one_claim_wins/1, claims_and_deletions/1,
         claims_and_deaths/1, claims_and_names/1, claim_refused/1, restarted_system/1]).

-define(T, (cats_test_lib:tables())).

suite() -> [{timetrap, {minutes, 15}}].

all() ->
    [tables_end_with_their_owner, restarted_owner_finds_the_name_free, heir_inherits, heir_inherits_many,
     heir_owns_at_once, heir_without_data,
     dead_heir_inherits_nothing, heir_that_is_the_owner, heir_taken_back, heirs_die_in_a_row, give_away,
     give_away_refused,
     access_rights, protection_changes, names, rename_moves_the_name, many_names,
     fixing_process_dies, fixed_many_times,
     kept, kept_rights, kept_for_a_restarted_worker, one_claim_wins, claims_and_deletions, claims_and_deaths,
     claims_and_names, claim_refused, restarted_system].

init_per_suite(Config) -> cats_test_lib:start(Config).

end_per_suite(_Config) -> ok.

init_per_testcase(heir_without_data, Config) ->
    case list_to_integer(erlang:system_info(otp_release)) of
        Release when Release < 28 -> cats_test_lib:only_cats(Config);
        _ -> Config
    end;
init_per_testcase(Case, Config)
  when Case =:= kept; Case =:= kept_rights; Case =:= kept_for_a_restarted_worker; Case =:= one_claim_wins;
       Case =:= claims_and_deletions; Case =:= claims_and_deaths; Case =:= claims_and_names; Case =:= claim_refused ->
    cats_test_lib:only_cats(Config);
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

%% A table whose owner has ended, which was made with {heir, keep} or got that heir later.
kept_table(Options, Reason) ->
    {Owner, Table} = cats_test_lib:spawn_owner(fun() ->
                                                       T = ?T:new(kept, Options),
                                                       ?T:info(T, heir) =:= keep orelse ?T:setopts(T, {heir, keep}),
                                                       ?T:insert(T, [{1, a}, {2, b}]),
                                                       T
                                               end),
    cats_test_lib:stop(Owner, Reason),
    Table.

%% With its objects, its name and its heir; again after the next owner's end, unless that one takes the heir away.
kept(_Config) ->
    [begin
         Table = kept_table([Type, Access] ++ More, Reason),
         ?assertEqual([undefined, keep, kept, Access, 2],
                      [?T:info(Table, Item) || Item <- [owner, heir, name, protection, size]]),
         ?assert(lists:member(Table, ?T:all())),
         Claim = fun() -> ?T:claim(Table), ?T:insert(Table, {3, c}) end,
         {Second, true} = cats_test_lib:spawn_owner(Claim),
         ?assertEqual(Second, ?T:info(Table, owner)),
         cats_test_lib:stop(Second, kill),
         ?assertEqual(undefined, ?T:info(Table, owner)),
         ?assert(?T:claim(Table)),
         ?assertEqual([{1, a}, {2, b}, {3, c}], lists:sort(?T:tab2list(Table))),
         ?assert(?T:setopts(Table, {heir, none})),
         ?assert(?T:delete(Table))
     end || Type <- cats_test_lib:types(), Access <- [private, protected, public],
            More <- [[], [named_table], [{heir, keep}], [named_table, {heir, keep}]], Reason <- [normal, kill]],
    %% The owner does not outlive itself with another heir.
    Table = kept_table([public], kill),
    {Owner, true} = cats_test_lib:spawn_owner(fun() -> ?T:claim(Table), ?T:setopts(Table, {heir, none}) end),
    cats_test_lib:stop(Owner, kill),
    cats_test_lib:eventually(fun() -> ?T:info(Table, owner) =:= undefined end),
    id = cats_test_lib:cause(fun() -> ?T:claim(Table) end),
    %% Many tables of one owner.
    {Many, Tables} = cats_test_lib:spawn_owner(fun() -> [?T:new(t, [{heir, keep}]) || _ <- lists:seq(1, 300)] end),
    cats_test_lib:stop(Many, kill),
    [true = ?T:claim(One) || One <- Tables],
    [true = ?T:delete(One) || One <- Tables],
    ok.

%% Nobody has the owner's rights until a process claims the table.
kept_rights(_Config) ->
    [begin
         Table = kept_table([Access, named_table], kill),
         Cause = fun(Function, Arguments) ->
                         cats_test_lib:cause(fun() -> apply(?T, Function, [Table | Arguments]) end)
                 end,
         [?assertEqual({Access, Function, Expected}, {Access, Function, Cause(Function, Arguments)})
          || {Function, Arguments, Expected} <-
                 [{lookup, [1], Reads}, {insert, [{1, b}], Writes}, {update, [1, fun(_) -> keep end], Writes},
                  {rename, [kept], case Writes of ok -> none; _ -> access end},
                  {setopts, [{heir, none}], case Writes of ok -> none; _ -> access end},
                  {give_away, [self(), x], case Writes of ok -> not_owner; _ -> access end}, {delete, [], Writes}]],
         Writes =:= ok orelse ?T:claim(Table) andalso ?T:delete(Table),
         undefined = ?T:whereis(kept)
     end || {Access, Reads, Writes} <- [{public, ok, ok}, {protected, ok, access}, {private, access, access}]].

%% A worker under a supervisor creates the table at its first start, and claims it at each restart.
kept_for_a_restarted_worker(_Config) ->
    Test = self(),
    ok = logger:set_module_level(supervisor, none),
    {ok, Supervisor} =
        cats_restart_supervisor:start_link(fun() -> proc_lib:start_link(?MODULE, claim_a_name, [Test]) end),
    Restarts = 300,
    [receive {worker, Pid, N} -> exit(Pid, kill); {worker, _, Other} -> ct:fail({Other, at, N})
     after 60000 -> ct:fail(no_restart)
     end || N <- lists:seq(0, Restarts)],
    receive {worker, Last, Restarts1} when Restarts1 =:= Restarts + 1 -> ok end,
    unlink(Supervisor),
    exit(Supervisor, kill),
    cats_test_lib:eventually(fun() -> not is_process_alive(Last) end),
    ok = logger:unset_module_level(supervisor),
    true = ?T:claim(kept_by_worker),
    true = ?T:delete(kept_by_worker).

%% Tells the test how often the table was claimed.
claim_a_name(Test) ->
    Starts = try
                 case ?T:whereis(kept_by_worker) of
                     undefined ->
                         kept_by_worker = ?T:new(kept_by_worker, [named_table, {heir, keep}]),
                         true = ?T:insert(kept_by_worker, {starts, 0}),
                         0;
                     _ ->
                         true = ?T:claim(kept_by_worker),
                         ?T:update_counter(kept_by_worker, starts, 1)
                 end
             catch
                 error:Reason -> Reason
             end,
    proc_lib:init_ack({ok, self()}),
    Test ! {worker, self(), Starts},
    receive never -> ok end.

one_claim_wins(_Config) ->
    Test = self(),
    [begin
         Table = kept_table([], kill),
         Claim = fun() ->
                         Cause = cats_test_lib:cause(fun() -> ?T:claim(Table) end),
                         Cause =:= ok andalso ?T:give_away(Table, Test, won),
                         Cause
                 end,
         Causes = lists:sort(cats_test_lib:together([Claim || _ <- lists:seq(1, 4)])),
         ?assertEqual([ok, owned, owned, owned], Causes),
         receive {'ETS-TRANSFER', Table, _, won} -> ok end,
         ?assert(?T:delete(Table))
     end || _ <- lists:seq(1, 200)].

%% A claimed table that another process deletes is gone, whoever comes first.
claims_and_deletions(_Config) ->
    [begin
         Table = kept_table([public, named_table], kill),
         [Claimed, Deleted] =
             cats_test_lib:together([fun() -> cats_test_lib:cause(fun() -> ?T:claim(Table) end) end,
                                     fun() -> cats_test_lib:cause(fun() -> ?T:delete(Table) end) end]),
         ?assertEqual(ok, Deleted),
         ?assert(lists:member(Claimed, [ok, id])),
         ?assertEqual(undefined, ?T:info(Table)),
         kept = ?T:new(kept, [named_table]),
         ?T:delete(kept)
     end || _ <- lists:seq(1, 300)].

%% Claimants that are killed at any time leave a table that can be claimed.
claims_and_deaths(_Config) ->
    Table = kept_table([], kill),
    Loop = fun Loop() -> cats_test_lib:cause(fun() -> ?T:claim(Table) end), Loop() end,
    [begin
         Pids = [spawn(Loop) || _ <- lists:seq(1, 3)],
         timer:sleep(N rem 3),
         [cats_test_lib:stop(Pid, kill) || Pid <- Pids],
         undefined = ?T:info(Table, owner)
     end || N <- lists:seq(1, 100)],
    true = ?T:claim(Table),
    [{1, a}, {2, b}] = lists:sort(?T:tab2list(Table)),
    true = ?T:delete(Table).

%% A name that is moved away is claimed by nobody.
claims_and_names(_Config) ->
    [begin
         kept = kept_table([public, named_table], kill),
         Rename = fun() -> cats_test_lib:cause(fun() -> ?T:rename(kept, moved) end) end,
         Claim = fun() -> cats_test_lib:cause(fun() -> ?T:claim(kept) end) end,
         [ok, Claimed] = cats_test_lib:together([Rename, Claim]),
         ?assert(lists:member(Claimed, [ok, id])),
         ?assertEqual(undefined, ?T:whereis(kept)),
         Claimed =:= ok orelse ?assertEqual(undefined, ?T:info(moved, owner)),
         cats_test_lib:eventually(fun() -> ?T:info(moved, owner) =:= undefined end),
         true = ?T:claim(moved),
         true = ?T:delete(moved)
     end || _ <- lists:seq(1, 200)].

claim_refused(_Config) ->
    Own = ?T:new(t, [{heir, keep}]),
    {Other, Others} = cats_test_lib:spawn_owner(fun() -> ?T:new(t, [public, {heir, keep}]) end),
    Deleted = ?T:new(t, []),
    true = ?T:delete(Deleted),
    [?assertEqual({Table, Cause}, {Table, cats_test_lib:cause(fun() -> ?T:claim(Table) end)})
     || {Table, Cause} <- [{Own, owned}, {Others, owned}, {Deleted, id}, {no_such_table, id}, {"table", type}]],
    cats_test_lib:stop(Other, normal),
    true = ?T:claim(Others),
    [true = ?T:delete(Table) || Table <- [Own, Others]].

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
         after 60000 -> ct:fail(no_transfer)
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
     after 60000 -> ct:fail({no_transfer, N})
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
         receive {'ETS-TRANSFER', Table, Owner, data} -> ok after 60000 -> ct:fail(no_transfer) end,
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
    receive {'ETS-TRANSFER', Table, Final, at_last} -> ok after 60000 -> ct:fail(no_transfer) end,
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
             cats_test_lib:run_in(To, fun() -> receive Message -> Message after 60000 -> nothing end end),
         true = cats_test_lib:run_in(To, fun() -> ?T:insert(Table, {2, b}) end),
         cats_test_lib:stop(To, kill),
         receive {'ETS-TRANSFER', Table, To, back} -> ok after 60000 -> ct:fail(no_transfer) end,
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

%% More names than the array before the table of names has places. Each leads to its own table; one that was given up,
%% to none.
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

%% After a restart of the system within the VM, kept tables are there, as docs/guide/beyond-ets.md tells. Others are
%% not. The environment of the VM tells which time it is: the arguments are evaluated again.
restarted_system(_Config) ->
    Source = "
        New = fun(Options) ->
                      spawn_monitor(fun() -> cats:insert(cats:new(t, Options), {1, 2}), receive never -> ok end end)
              end,
        Kept = fun() -> [Table || Table <- cats:all(), cats:info(Table, owner) =:= undefined] end,
        case os:getenv(\"RESTARTED\") of
            false ->
                [New(Options) || Options <- [[], [public, {heir, keep}], [private, {heir, keep}]]],
                (fun Wait() -> length([T || T <- cats:all(), cats:info(T, size) =:= 1]) =:= 3 orelse Wait() end)(),
                os:putenv(\"RESTARTED\", \"yes\"),
                init:restart();
            _ ->
                2 = length(cats:all()),
                (fun Wait() -> length(Kept()) =:= 2 orelse Wait() end)(),
                [true = cats:claim(Table) andalso cats:delete(Table) || Table <- Kept()],
                io:format(\"~p\", [cats:all()]),
                halt()
        end.",
    ?assertEqual({0, "[]"}, cats_test_lib:run(filename:join(code:root_dir(), "bin/erl"),
                                              ["-noinput", "-pa",
                                               filename:dirname(code:which(cats)), "-eval", Source])).
