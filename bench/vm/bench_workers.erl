%% Work of several processes at once, under one clock.
-module(bench_workers).
-export([counts/0, many/0, asked/0, schedulers/0, swept/0, most/0, seconds/1, seconds/2]).

%% What `bench/run --schedulers' and `--processes' say to the VM, as arguments of `init'.
-define(SWEEP, sweep).
-define(PROCESSES, processes).

%% Room enough that the garbage collector seldom runs, and little enough to stay in the processor's cache.
-define(HEAP_WORDS, 16384).

%% @doc How many workers are of interest: one, and one a scheduler. Only the latter, if the number of schedulers is
%% an axis. Or those that were asked for.
-spec counts() -> [pos_integer()].
counts() ->
    case swept() of
        true -> many();
        false -> lists:usort([1 || not asked()] ++ many())
    end.

%% @doc The same where one worker is of no interest.
-spec many() -> [pos_integer()].
many() ->
    case init:get_argument(?PROCESSES) of
        {ok, [Numbers | _]} -> lists:usort([list_to_integer(Number) || Number <- Numbers]);
        error -> [erlang:system_info(schedulers_online)]
    end.

%% @doc Whether numbers of workers were asked for.
-spec asked() -> boolean().
asked() -> init:get_argument(?PROCESSES) =/= error.

%% @doc Whether each point is measured with several numbers of schedulers, of which this VM has one.
-spec swept() -> boolean().
swept() -> init:get_argument(?SWEEP) =/= error.

%% @doc Whether no VM of a sweep has more schedulers than this one. So it is without a sweep.
-spec most() -> boolean().
most() ->
    case init:get_argument(?SWEEP) of
        {ok, [[Most]]} -> list_to_integer(Most) =:= erlang:system_info(schedulers_online);
        error -> true
    end.

%% @doc How many schedulers are of interest: the powers of two up to the number of processors, and that number. Only
%% those of this VM, if the number of schedulers is an axis anyway.
-spec schedulers() -> [pos_integer()].
schedulers() ->
    case swept() of
        true -> [erlang:system_info(schedulers_online)];
        false -> up_to_processors()
    end.

up_to_processors() ->
    Most = case erlang:system_info(logical_processors_available) of
               unknown -> erlang:system_info(schedulers);
               Processors -> Processors
           end,
    lists:usort([Most | [1 bsl Bits || Bits <- lists:seq(0, 10), 1 bsl Bits =< Most]]).

%% @doc Runs each function in a process of its own, all at the same time, and returns the seconds from the
%% first one's begin to the last one's end. What they hold is copied to the processes before that.
-spec seconds([fun(() -> term())]) -> float().
seconds(Work) -> seconds(Work, ?HEAP_WORDS).

%% @doc The same, with processes that begin with a heap of this many words.
-spec seconds([fun(() -> term())], HeapWords :: pos_integer()) -> float().
seconds(Work, HeapWords) ->
    Workers = [spawn_opt(fun() ->
                                 receive go -> ok end,
                                 Start = erlang:monotonic_time(),
                                 _ = Fun(),
                                 exit({shutdown, {Start, erlang:monotonic_time()}})
                         end, [monitor, {min_heap_size, HeapWords}]) || Fun <- Work],
    erlang:garbage_collect(),
    timer:sleep(10),
    [Pid ! go || {Pid, _} <- Workers],
    Times = [receive {'DOWN', Monitor, process, _, {shutdown, Time}} -> Time;
                     {'DOWN', Monitor, process, _, Reason} -> error({worker, Reason})
             end || {_, Monitor} <- Workers],
    Begin = lists:min([Start || {Start, _} <- Times]),
    End = lists:max([Stop || {_, Stop} <- Times]),
    max(1, End - Begin) / erlang:convert_time_unit(1, second, native).
