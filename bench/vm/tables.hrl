%% A static call of the table module that is measured, as an application would make it:
%% `?CALL(Tables, lookup(Table, Key))'. Choosing between the two is a comparison that the processor foresees.
-define(CALL(Tables, Call), (case Tables of
                                 ets -> ets:Call;
                                 cats -> cats:Call
                             end)).
