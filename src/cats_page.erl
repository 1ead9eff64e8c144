%% The pages of `cats_web' and of a trace. Their files are in priv/pages, where a browser can open them, too. Here a
%% page becomes one piece without anything from elsewhere.
-module(cats_page).
-export([live/0, trace/1]).

-type page() :: {ok, iodata()} | {error, {file:filename(), file:posix()}}.

%% @private
%% @doc The page of `cats_web', in UTF-8, or which file is missing and why.
-spec live() -> page().
live() -> made(fun() -> inlined(read("live.html")) end).

%% @private
%% @doc The page with a trace inside.
-spec trace(Trace :: binary()) -> page().
trace(Trace) ->
    %% Under it a browser takes no styles and scripts from files, so it is not in the file.
    Policy = <<"<meta http-equiv='content-security-policy' content='default-src &#39;none&#39;; style-src "
               "&#39;unsafe-inline&#39;; script-src &#39;unsafe-inline&#39;; img-src data:'>">>,
    %% In a text of JSON, this stands for the same character, and ends no element of the page.
    Safe = binary:replace(Trace, <<"<">>, <<"\\u003c">>, [global]),
    made(fun() ->
                 [Before, After] = binary:split(read("trace.html"), <<"{\"traceEvents\":[]}">>),
                 [inlined(binary:replace(Before, <<"<!--policy-->">>, Policy)), Safe, inlined(After)]
         end).

made(Make) ->
    try {ok, Make()}
    catch throw:{failed, File, Reason} -> {error, {File, Reason}}
    end.

%% A page with the content of styles and scripts in place of their names.
inlined(Html) -> elements(re:split(Html, "<(?:(link) rel='stylesheet' href|(script) src)='([^']+)'>(?:</script>)?")).

elements([Before, <<"link">>, <<>>, File | After]) -> [Before, "<style>\n", read(File), "</style>" | elements(After)];
elements([Before, <<>>, <<"script">>, File | After]) ->
    [Before, "<script>\n", read(File), "</script>" | elements(After)];
elements([Last]) -> [Last].

read(Name) ->
    File = filename:join([cats_nif:priv_dir(), "pages", Name]),
    case file:read_file(File) of
        {ok, Content} -> Content;
        {error, Reason} -> throw({failed, File, Reason})
    end.
