%% @private
%% Advice on tables as a page for a browser.
-module(cats_advise_page).
-export([page/1]).

-define(STYLE, "body { font: 15px/1.45 system-ui, sans-serif; max-width: 1240px; margin: 0 auto; padding: 16px; }"
               "table { border-collapse: collapse; width: 100%; } caption { text-align: left; padding: 8px 0; }"
               "th, td { border-top: 1px solid #8888; padding: 7px 8px; text-align: left; vertical-align: top; }"
               ".number { text-align: right; } p { margin: 0 0 4px; } :root { color-scheme: light dark; }").

%% @doc A row for each table, those of Erlang/OTP only as a number.
-spec page([cats_advise:advice()]) -> unicode:chardata().
page(Advice) ->
    Own = [Table || #{owner := #{otp := false}} = Table <- Advice],
    ["<!DOCTYPE html>\n<html lang='en'>\n<meta charset='utf-8'>\n<meta name='viewport' content='width=device-width'>\n"
     "<title>Advice on tables</title>\n<style>", ?STYLE, "</style>\n<h1>Advice on tables</h1>\n<table>\n<caption>",
     integer_to_list(length(Advice) - length(Own)), " more tables belong to Erlang/OTP. They stay.</caption>\n<tr>",
     [["<th scope='col'>", Title] || Title <- ["table", "advice", "calls seen", "objects", "kB"]], "\n",
     lists:map(fun row/1, Own), "</table>\n</html>\n"].

row(#{name := Name, type := Type, protection := Protection, size := Size, memory := Words, calls := Calls,
      callers := Callers, advice := Advice, why := Why, expect := Expect, differs := Differs,
      owner := #{application := Application}}) ->
    Kinds = [io_lib:format("~w ~b", [Function, N])
             || {Function, N} <- lists:reverse(lists:keysort(2, maps:to_list(Calls)))],
    ["<tr><th scope='row'>", escaped(io_lib:format("~tw", [Name])),
     escaped(io_lib:format(" ~s ~s", [Protection, Type])), [[" of ", escaped(atom_to_list(Application))]
                                                           || Application =/= undefined],
     "<td><p><b>", advice(Advice), "</b> ", escaped(Why), "\n",
     [["<p>", escaped(Text), "\n"] || Text <- Expect ++ Differs],
     "<td>", lists:join(", ", Kinds), [io_lib:format(" by ~b processes", [Callers]) || Kinds =/= []],
     [["<td class='number'>", integer_to_list(Number)]
      || Number <- [Size, Words * erlang:system_info(wordsize) div 1024]], "\n"].

advice(stay) -> "stay with ets";
advice(transform) -> "cats";
advice(cache) -> "cats, as a cache".

escaped(Text) ->
    [case Character of
         $< -> "&lt;";
         $& -> "&amp;";
         _ -> Character
     end || Character <- unicode:characters_to_list(Text)].
