//! `cats_nif:dirty(Function, Arguments)`: runs any native function on a dirty scheduler, where it may take its time.
//!
//! No native function may raise an exception here. The VM may still be finishing to load the module. An exception on a dirty scheduler
//! then makes the VM read memory that it has freed, as the debug VM of OTP 29 shows.

use crate::calls;
use crate::entry::failure::{bad, Failure};
use crate::entry::functions::{is_failure, FUNCTIONS};
use crate::vm::{Env, Term};
use cats_sync::probe;
use cats_sync::trace::{self, Event, Kind};
use std::sync::OnceLock;
use std::time::Instant;

/// The most arguments that a native function has.
const MAX_ARITY: usize = 8;

/// The atom of each function's name, in the order of [`FUNCTIONS`].
static NAMES: OnceLock<Vec<Term>> = OnceLock::new();

/// Makes the atoms of the functions' names.
pub fn make_names(env: Env) {
    NAMES.get_or_init(|| FUNCTIONS.iter().map(|function| env.atom(function.name)).collect());
}

/// Calls the native function of this name and this number of arguments. Returns what it returned, a failure too, as the element of a
/// tuple. Refuses a function that already runs on a dirty scheduler, which is this one: calls nested in one another would fill the stack.
pub fn dirty_call(env: Env, &[name, list]: &[Term; 2]) -> Result<Term, Failure> {
    let outcome = call(env, name, list);
    // Replacing or refusing a large object leaves it to the reaper.
    calls::wake(env);
    Ok(env.tuple(&[outcome?]))
}

fn call(env: Env, name: Term, list: Term) -> Result<Term, Failure> {
    let mut arguments = [Term(0); MAX_ARITY];
    let mut arity = 0;
    let mut rest = list;
    while let Some((argument, tail)) = env.cell(rest) {
        *arguments.get_mut(arity).ok_or_else(bad)? = argument;
        arity += 1;
        rest = tail;
    }
    let names = NAMES.get().map(Vec::as_slice).unwrap_or_default();
    let (_, function) = names
        .iter()
        .zip(FUNCTIONS)
        .find(|(atom, function)| **atom == name && function.arity as usize == arity && !function.is_dirty())
        .ok_or_else(bad)?;
    probe!(dirty_begin, function.c_name(), arity);
    let traced = trace::is_on().then(|| {
        (
            Instant::now(),
            arguments[..arity].first().map_or(0, |&table| calls::serial(env, table)),
        )
    });
    let event = |kind, table, success| Event::new(kind, table, [name.0, success]).by(env.this_process().0);
    if let Some((_, table)) = traced {
        trace::record(|| event(Kind::CallBegin, table, 0));
    }
    let result = function.run(env, &arguments[..arity]);
    let succeeded = !is_failure(env, result);
    if let Some((begin, table)) = traced {
        trace::record_since(begin, || event(Kind::Call, table, succeeded.into()));
    }
    probe!(dirty_end, function.c_name(), arity, succeeded);
    Ok(result)
}
