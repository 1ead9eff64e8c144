%% The static probes of the native library, as `readelf' reads their notes, and what the guide and the scripts say of
%% them.
-module(cats_probes_SUITE).
-include_lib("stdlib/include/assert.hrl").
-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([probes_of_the_guide/1, probes_of_the_scripts/1, traps_are_on_nops/1]).

suite() -> [{timetrap, {minutes, 10}}].

all() -> [probes_of_the_guide, probes_of_the_scripts, traps_are_on_nops].

init_per_suite(Config) ->
    case {os:type(), os:find_executable("readelf")} of
        {{unix, linux}, Readelf} when is_list(Readelf) -> cats_test_lib:only_cats(cats_test_lib:start(Config));
        _ -> {skip, "no probes on this system, or no readelf"}
    end.

end_per_suite(_Config) -> ok.

%% The library has the probes of the guide, with as many arguments, and no others.
probes_of_the_guide(_Config) ->
    ?assertEqual(guide(), lists:usort([{Name, length(Arguments)} || {Name, _Location, Arguments} <- notes()])).

%% The scripts use only probes and arguments that exist.
probes_of_the_scripts(_Config) ->
    Arguments = maps:from_list(guide()),
    [begin
         %% Each part begins with the name of a probe, or of another event that has no arguments.
         [_Before | Parts] = re:split(text(Script), Begin, [{return, list}]),
         ?assertNotEqual([], Parts, Script),
         [begin
              {match, [Name]} = re:run(Part, "^\\w+", [{capture, first, list}]),
              Known = maps:get(Name, Arguments, none),
              ?assertNotEqual(none, Known, {Script, Name}),
              Body = hd(re:split(Part, "\n(interval|END|probe end)", [{return, list}])),
              Used = case re:run(Body, Argument, [global, {capture, [1], list}]) of
                         {match, Numbers} -> lists:max([list_to_integer(Number) + 1 - First || [Number] <- Numbers]);
                         nomatch -> 0
                     end,
              ?assert(Used =< Known, {Script, Name})
          end || Part <- Parts]
     end || {Kind, Begin, Argument, First} <- [{"bt", "usdt:LIBRARY:cats:", "\\barg([0-9])", 0},
                                               {"stp", "provider\\(\"cats\"\\)\\.mark\\(\"", "\\$arg([0-9])", 1}],
            Script <- scripts(Kind)].

scripts(Kind) ->
    [_ | _] = filelib:wildcard(root("tools/probes/*." ++ Kind)).

%% At the address of each note stands the instruction that a tool replaces.
traps_are_on_nops(_Config) ->
    {ok, Library} = file:read_file(library()),
    Nop = case erlang:system_info(system_architecture) of
              "x86_64" ++ _ -> <<16#90>>;
              "aarch64" ++ _ -> <<16#1f, 16#20, 16#03, 16#d5>>
          end,
    Segments = [[list_to_integer(Digits, 16) || Digits <- Numbers]
                || Numbers <- found("LOAD +0x(\\w+) 0x(\\w+) 0x\\w+ 0x(\\w+)", readelf("-lW"))],
    [begin
         [Offset] = [Location - Address + From
                     || [From, Address, Size] <- Segments, Location >= Address, Location < Address + Size],
         ?assertEqual(Nop, binary:part(Library, Offset, byte_size(Nop)), Name)
     end || {Name, Location, _Arguments} <- notes()].

%% The name of each probe in the library, where it is, and its arguments.
notes() ->
    Notes = found("Provider: cats\\s+Name: (\\w+)\\s+Location: 0x(\\w+),.*\\s+Arguments: ?(.*)", readelf("-nW")),
    ?assertNotEqual([], Notes),
    [{Name, list_to_integer(Location, 16), string:lexemes(Arguments, " ")} || [Name, Location, Arguments] <- Notes].

%% The name and the number of arguments of each probe in the guide.
guide() ->
    Rows = found("\n\\| `(\\w+)` \\| ([^|]*) \\| [^|]* \\|", text(root("docs/guide/probes.md"))),
    lists:usort([{Name, length(string:lexemes(Arguments, ","))} || [Name, Arguments] <- Rows]).

found(Pattern, Text) ->
    {match, Found} = re:run(Text, Pattern, [global, {newline, lf}, {capture, all_but_first, list}]),
    Found.

readelf(Option) -> os:cmd("LC_ALL=C readelf " ++ Option ++ " " ++ library()).

library() -> filename:join(code:priv_dir(cats), "cats_nif.so").

root(File) -> filename:join(cats_test_lib:root(), File).

text(File) ->
    {ok, Text} = file:read_file(File),
    Text.
