%% The figures of cats in the text format of Prometheus, version 0.0.4.
-module(cats_web_metrics).
-export([text/1]).

%% @private
%% @doc The figures of the node, and those of its largest tables.
-spec text(Limit :: pos_integer()) -> iodata().
text(Limit) ->
    Rows = [{Row, labels(Row)} || Row <- cats_stats:rows(memory, Limit)],
    #{retired := Retired, freed := Freed, bytes := Bytes} = cats:garbage(),
    #{limit := MemoryLimit, held := Held} = cats:budget(),
    [family(cats_tables, gauge, "Tables of this node.", [{[], length(cats:all())}]),
     family(cats_memory_bytes, gauge, "Memory of all tables and snapshots.", [{[], cats:memory()}]),
     family(cats_held_bytes, gauge, "Memory that the library holds, with binaries of objects.", [{[], Held}]),
     family(cats_memory_limit_bytes, gauge, "Memory that it may hold.", [{[], MemoryLimit} || is_integer(MemoryLimit)]),
     family(cats_garbage_retired_total, counter, "Blocks of memory that were taken out of use.", [{[], Retired}]),
     family(cats_garbage_freed_total, counter, "Blocks of them that were freed.", [{[], Freed}]),
     family(cats_garbage_bytes, gauge, "About the bytes of those that wait to be freed.", [{[], Bytes}]),
     family(cats_vm_memory_bytes, gauge, "Memory of the VM, as erlang:memory/1 tells it.",
            [{[label(kind, atom_to_list(Kind))], erlang:memory(Kind)}
             || Kind <- [total, processes, system, binary, ets]]),
     [family(Name, Type, Help, [{Labels, Number} || {Row, Labels} <- Rows, Number <- figure(Item, Row)])
      || {Name, Type, Item, Help} <- families()],
     kinds(cats_table_adaptations_total, "Splits and joins of base nodes or buckets.",
           [{splits, "split"}, {joins, "join"}], Rows),
     kinds(cats_table_operations_total, "Operations of tables that count them.",
           [{lookups, "lookup"}, {inserts, "insert"}, {updates, "update"}, {deletes, "delete"},
            {steps, "step"}, {scans, "scan"}],
           Rows),
     kinds(cats_table_lookups_total, "Lookups of tables that count them.", [{hits, "hit"}, {misses, "miss"}], Rows),
     waits(Rows)].

families() ->
    [{cats_table_objects, gauge, size, "Objects in the table."},
     {cats_table_memory_bytes, gauge, memory, "Memory of the table."},
     {cats_table_used_objects, gauge, used_objects, "Objects of the limit that the table has."},
     {cats_table_limit_objects, gauge, limit_objects, "Objects that the table may have."},
     {cats_table_used_bytes, gauge, used_bytes, "Bytes of the limit that the table has."},
     {cats_table_limit_bytes, gauge, limit_bytes, "Bytes that the table may have."},
     {cats_table_reads_repeated_total, counter, reads_repeated, "Reads that met a writer, and were made again."},
     {cats_table_waits_given_up_total, counter, waits_given_up, "Waits for a lock after which others ran."},
     {cats_table_busy_total, counter, busy, "Calls that were made again because a lock was held too long."},
     {cats_table_dirty_total, counter, dirty, "Calls that were made again on a dirty scheduler."},
     {cats_table_slices_total, counter, slices, "How often a long call let others run."},
     {cats_table_long_slices_total, counter, long_slices, "Slices of a millisecond or more."},
     {cats_table_expired_total, counter, expired, "Objects that were removed because their time had come."},
     {cats_table_evicted_total, counter, evicted, "Objects that were removed because of a limit."},
     {cats_table_readmitted_total, counter, readmitted, "Keys that came back soon after they were evicted."},
     {cats_table_refused_total, counter, refused, "Calls that failed because of a limit."},
     {cats_table_fetches_made_total, counter, fetches_made, "Functions of fetches that returned."},
     {cats_table_fetches_failed_total, counter, fetches_failed, "Functions of fetches that failed."},
     {cats_table_fetches_waited_total, counter, fetches_waited,
      "Fetches that waited for the function of another process."},
     {cats_table_fetches_stale_total, counter, fetches_stale, "Fetches that returned an object which had ended."}].

figure(Item, #{stats := Stats}) -> [Number || #{Item := Number} <- [Stats]].

%% A table without a name of its own is told from others of its name by its identifier. As binaries, since each row has
%% many samples.
labels(#{table := Table, name := Name, id := Id}) ->
    [label(table, atom_to_list(Name)) | [label(id, cats_stats:identifier(Id)) || not is_atom(Table)]].

label(Label, Value) -> <<(atom_to_binary(Label))/binary, "=\"", (escaped(Value))/binary, $">>.

kinds(Name, Help, Items, Rows) ->
    family(Name, counter, Help,
           [{Labels ++ [label(kind, Kind)], Number} || {Row, Labels} <- Rows, {Item, Kind} <- Items,
                                                       Number <- figure(Item, Row)]).

%% The classes of waits, as a histogram in seconds.
waits(Rows) ->
    Name = "cats_table_lock_wait_seconds",
    case Rows of
        [] -> [];
        _ -> [head(Name, histogram, "Waits for locks of the table.")
             | [histogram(Name, Labels, Stats) || {#{stats := Stats}, Labels} <- Rows]]
    end.

histogram(Name, Labels, #{waits_by_length := Classes, waits := Waits, wait_time := Microseconds}) ->
    {Buckets, _} = lists:mapfoldl(fun({Below, Number}, Sum) -> {{Below, Sum + Number}, Sum + Number} end, 0, Classes),
    [[sample([Name, "_bucket"], Labels ++ [label(le, limit(Below))], Number) || {Below, Number} <- Buckets],
     sample([Name, "_sum"], Labels, Microseconds / 1.0e6),
     sample([Name, "_count"], Labels, Waits)].

limit(infinity) -> "+Inf";
limit(Microseconds) -> io_lib:format("~.6f", [Microseconds / 1.0e6]).

family(_Name, _Type, _Help, []) -> [];
family(Name, Type, Help, Samples) ->
    [head(atom_to_list(Name), Type, Help)
     | [sample(atom_to_list(Name), Labels, Number) || {Labels, Number} <- Samples]].

head(Name, Type, Help) -> io_lib:format("# HELP ~s ~s~n# TYPE ~s ~s~n", [Name, Help, Name, Type]).

sample(Name, [], Number) -> [Name, $\s, number(Number), $\n];
sample(Name, Labels, Number) ->
    [Name, ${, lists:join($,, Labels), "} ", number(Number), $\n].

number(Number) when is_integer(Number) -> integer_to_list(Number);
number(Number) -> io_lib:format("~.6f", [Number]).

escaped(Value) ->
    Bytes = unicode:characters_to_binary(Value),
    << <<(case Character of
              $" -> <<"\\\"">>;
              $\\ -> <<"\\\\">>;
              $\n -> <<"\\n">>;
              _ -> <<Character/utf8>>
          end)/binary>> || <<Character/utf8>> <= Bytes >>.
