%% The table browser behind cats:i/1. It shows the objects page by page, and asks for a command after each page.
-module(cats_browser).
-export([run/3]).

-record(browser, {table :: cats:table(), height :: pos_integer(), width :: pos_integer(),
                  %% Which objects to show: all, or those whose text matches.
                  wanted = all :: all | {matching, tuple()}}).

%% @private
-spec run(cats:table(), Height :: pos_integer(), Width :: pos_integer()) -> ok.
run(Table, Height, Width) ->
    Tid = case is_atom(Table) andalso cats:whereis(Table) of
              false -> Table;
              undefined -> Table;
              Identifier -> Identifier
          end,
    show_from(cats:first_lookup(Tid), 1, 1, #browser{table = Tid, height = Height, width = Width}).

%% Shows objects from the found key on. `Line' is the next line of the page. `Number' is the number of the next object.
show_from('$end_of_table', Line, Number, Browser) ->
    ask("EOT  (q)uit (p)Digits (k)ill /Regexp -->", '$end_of_table', Line, Number, Browser);
show_from(Found, Line, Number, #browser{height = Height} = Browser) when Line >= Height ->
    ask("(c)ontinue (q)uit (p)Digits (k)ill /Regexp -->", Found, Line, Number, Browser);
show_from({Key, Objects}, Line, Number, #browser{table = Table} = Browser) ->
    Shown = [Object || Object <- Objects, is_wanted(Object, Browser)],
    Next = lists:foldl(fun(Object, N) -> show(N, Object, Browser), N + 1 end, Number, Shown),
    show_from(cats:next_lookup(Table, Key), Line + length(Shown), Next, Browser).

is_wanted(_Object, #browser{wanted = all}) ->
    true;
is_wanted(Object, #browser{wanted = {matching, Expression}}) ->
    re:run(text(Object), Expression, [{capture, none}]) =:= match.

show(Number, Object, #browser{width = Width}) ->
    Text = text(Object),
    Line = case length(Text) > Width - 8 of
               true -> string:slice(Text, 0, Width - 13) ++ "  ...";
               false -> Text
           end,
    io:format("<~-4w> ~ts~n", [Number, Line]).

text(Object) ->
    lists:flatten(io_lib:format("~tp", [Object])).

ask(Prompt, Found, Line, Number, #browser{table = Table} = Browser) ->
    Again = fun() -> ask(Prompt, Found, Line, Number, Browser) end,
    case io:get_line(Prompt) of
        eof -> ok;
        {error, _} -> ok;
        Answer ->
            case string:trim(unicode:characters_to_list(Answer), trailing, "\n") of
                Continue when Continue =:= ""; Continue =:= "c" ->
                    case Found of
                        '$end_of_table' -> Again();
                        _ -> show_from(Found, 1, Number, Browser)
                    end;
                "q" ->
                    ok;
                "k" ->
                    true = cats:delete(Table),
                    ok;
                "p" ++ Digits ->
                    print(string:to_integer(Digits), Browser),
                    Again();
                "/" ++ Text ->
                    case re:compile(Text, [unicode]) of
                        {ok, Expression} ->
                            Matching = Browser#browser{wanted = {matching, Expression}},
                            show_from(cats:first_lookup(Table), 1, 1, Matching);
                        {error, {Message, _Place}} ->
                            io:format("~ts~n", [Message]),
                            Again()
                    end;
                _ ->
                    Again()
            end
    end.

%% Prints the object with this number in full.
print({Number, ""}, #browser{table = Table} = Browser) when is_integer(Number), Number > 0 ->
    print_from(cats:first_lookup(Table), Number, Browser);
print(_, _Browser) ->
    io:put_chars("Bad digits\n").

print_from('$end_of_table', _Number, _Browser) ->
    io:put_chars("No such object\n");
print_from({Key, Objects}, Number, #browser{table = Table} = Browser) ->
    Wanted = [Object || Object <- Objects, is_wanted(Object, Browser)],
    case Number - length(Wanted) of
        Further when Further > 0 -> print_from(cats:next_lookup(Table, Key), Further, Browser);
        _ -> io:format("~tp~n", [lists:nth(Number, Wanted)])
    end.
