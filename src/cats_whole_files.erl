%% Writes files so that each one appears whole or not at all.
%%
%% What is written goes to files beside, in the directories of the files. When all of them are whole, each takes the
%% name of its file at once. So a failure leaves the old files as they are, and writers of the same file do not mix. A
%% name that is a symbolic link becomes a file.
%%
%% The files beside are deleted on each way out, and when the writer is killed. Only a node that ends meanwhile leaves
%% them. Their names begin with `.cats-'. They are short, as a file's own name may have the greatest length already.
-module(cats_whole_files).
-export([write/1]).

-include_lib("kernel/include/file.hrl").

%% @private
%% @doc Writes these files. A function writes the file whose name it gets.
%%
%% The reason of a failure is `eaccess', as in ets, for a name that has something else than a file, or a file that
%% cannot be replaced.
-spec write([{File, iodata() | fun((Beside :: file:name_all()) -> ok | {error, Reason})}]) ->
          ok | {error, {File, Reason}} when
      File :: file:name_all(), Reason :: term().
write(Files) ->
    Caller = self(),
    {Keeper, Monitor} = spawn_monitor(fun() -> keep([], monitor(process, Caller)) end),
    try
        Written = [{File, write_beside(File, Content, Keeper, Monitor)} || {File, Content} <- Files],
        lists:foreach(fun({File, Beside}) -> check(File, file:rename(Beside, File)) end, Written)
    catch
        throw:{failed, File, Reason} -> {error, {File, Reason}}
    after
        demonitor(Monitor, [flush]),
        finish(Keeper)
    end.

finish(Keeper) ->
    Monitor = monitor(process, Keeper),
    Keeper ! finish,
    receive {'DOWN', Monitor, process, Keeper, _} -> ok end.

write_beside(File, Content, Keeper, Monitor) ->
    case file:read_link_info(File) of
        {ok, #file_info{type = Type}} when Type =:= regular; Type =:= symlink -> ok;
        {error, enoent} -> ok;
        _ -> throw({failed, File, eaccess})
    end,
    Keeper ! {create, self(), Monitor, filename:dirname(File)},
    Beside = receive
                 {Monitor, {ok, Created}} -> Created;
                 {Monitor, Failed} -> check(File, Failed);
                 {'DOWN', Monitor, process, Keeper, Killed} -> exit(Killed)
             end,
    check(File, case is_function(Content) of
                    true -> Content(Beside);
                    false -> file:write_file(Beside, Content, [raw])
                end),
    Beside.

check(_File, ok) ->
    ok;
check(File, {error, Reason}) when Reason =:= eacces; Reason =:= eperm; Reason =:= erofs ->
    throw({failed, File, case file:read_link_info(File) of {error, enoent} -> Reason; _ -> eaccess end});
check(File, {error, Reason}) ->
    throw({failed, File, Reason}).

%% Creates files beside, and deletes them in the end. It is a process of its own because the writer may be killed.
keep(Created, Writer) ->
    receive
        {create, Caller, Reply, Directory} ->
            case create(Directory) of
                {ok, Beside} ->
                    Caller ! {Reply, {ok, Beside}},
                    keep([Beside | Created], Writer);
                Failed ->
                    Caller ! {Reply, Failed},
                    keep(Created, Writer)
            end;
        finish -> delete(Created);
        {'DOWN', Writer, process, _, _} -> delete(Created)
    end.

create(Directory) ->
    Beside = filename:join(Directory, ".cats-" ++ integer_to_list(rand:uniform(1 bsl 58), 36)),
    case file:open(Beside, [write, exclusive, raw]) of
        {ok, Device} ->
            ok = file:close(Device),
            {ok, Beside};
        {error, eexist} -> create(Directory);
        Failed -> Failed
    end.

%% Most of them have been renamed.
delete(Created) ->
    lists:foreach(fun file:delete/1, Created).
