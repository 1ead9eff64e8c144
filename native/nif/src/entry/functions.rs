//! The native functions of the module `cats_nif`: name, arity and body of each in one list.
//!
//! A body is `fn(Env, &[Term; ARITY]) -> Result<Term, Failure>`. Each runs in a panic guard: a panic becomes a failure
//! with the cause `{panic, Text}`, what unwinds for want of memory one with `system_limit`, and the VM goes on.
//!
//! A failure is returned as `{Mark, Cause, Arguments}`, for an exception would cost as much as a whole call. A result that looks like
//! one, as a stored term may, is returned as `{Mark, returned, Result}`. So a triple with the mark is never a result.

use crate::calls;
use crate::entry::failure::{no_memory, Failure};
use crate::layout;
use crate::vm::atoms;
use crate::vm::{Env, Term};
use cats_sync::caller;
use cats_sync::events::Event;
use cats_sync::slab::OutOfMemory;
use rustler::sys::*;
use std::any::Any;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// One native function.
pub struct Function {
    pub name: &'static str,
    pub arity: u32,
    name_and_zero: &'static str,
    entry: unsafe extern "C" fn(*mut ErlNifEnv, c_int, *const ErlNifTerm) -> ErlNifTerm,
    flags: c_uint,
}

impl Function {
    /// What the VM is told about the function.
    pub fn declaration(&self) -> ErlNifFunc {
        ErlNifFunc {
            name: self.name_and_zero.as_ptr().cast(),
            arity: self.arity,
            function: self.entry,
            flags: self.flags,
        }
    }

    /// The name, for C.
    pub fn c_name(&self) -> *const u8 {
        self.name_and_zero.as_ptr()
    }

    /// Whether the VM runs the function on a dirty scheduler.
    pub fn is_dirty(&self) -> bool {
        self.flags & ERL_NIF_DIRTY_JOB_CPU_BOUND != 0
    }

    /// Calls the function; panics unless it has so many arguments. Returns what it returns to Erlang.
    pub fn run(&self, env: Env, arguments: &[Term]) -> Term {
        assert_eq!(arguments.len(), self.arity as usize);
        // SAFETY: as many arguments as declared. It does not unwind.
        let result = unsafe { (self.entry)(env.raw(), self.arity as c_int, Term::words(arguments).as_ptr().cast()) };
        Term::from_raw(result)
    }
}

/// Runs a body, and returns its result or why it failed or panicked.
#[inline(always)]
fn guarded<const ARITY: usize>(
    env: Env,
    arguments: &[Term; ARITY],
    body: impl Fn(Env, &[Term; ARITY]) -> Result<Term, Failure>,
) -> Term {
    match catch_unwind(AssertUnwindSafe(|| body(env, arguments))) {
        Ok(Ok(result)) if is_failure(env, result) => failure(env, atoms::returned(), result),
        Ok(Ok(result)) => result,
        Ok(Err(failure)) => failed(env, failure, arguments),
        Err(payload) => failure(env, panicked(env, payload), env.list(arguments)),
    }
}

/// Whether a term is what [`failure`] makes. Every call asks this of its result.
#[inline(always)]
pub fn is_failure(env: Env, term: Term) -> bool {
    match layout::is_known() {
        // SAFETY: a result is alive.
        true => unsafe { layout::tuple(term) }.is_some_and(has_mark),
        false => is_failure_in_general(env, term),
    }
}

#[cold]
#[inline(never)]
fn is_failure_in_general(env: Env, term: Term) -> bool {
    env.tuple_elements(term).is_some_and(has_mark)
}

#[inline(always)]
fn has_mark(elements: &[Term]) -> bool {
    matches!(elements, [mark, _, _] if *mark == atoms::mark())
}

/// `{Mark, Cause, Detail}`
#[cold]
#[inline(never)]
fn failure(env: Env, cause: Term, detail: Term) -> Term {
    env.tuple(&[atoms::mark(), cause, detail])
}

/// Counts the failure, if the call will be made again.
#[cold]
#[inline(never)]
fn failed(env: Env, failure: Failure, arguments: &[Term]) -> Term {
    let event = match failure {
        Failure::Busy => Some(Event::Busy),
        Failure::Big => Some(Event::Dirty),
        Failure::Slice => Some(Event::Slice),
        _ => None,
    };
    if let (Some(event), Some(&table)) = (event, arguments.first()) {
        calls::again(env, table, event);
    }
    self::failure(env, failure.cause(env), env.list(arguments))
}

/// The cause of a failure by a panic.
#[cold]
#[inline(never)]
fn panicked(env: Env, payload: Box<dyn Any + Send>) -> Term {
    if payload.is::<OutOfMemory>() {
        return no_memory().cause(env);
    }
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("unknown");
    env.tuple(&[atoms::panic(), env.binary(text.as_bytes())])
}

macro_rules! functions {
    ($($(#[$attribute:meta])* $name:ident / $arity:literal $([$flag:ident])? => $body:path),* $(,)?) => {
        &[$(
            $(#[$attribute])*
            {
                unsafe extern "C" fn entry(env: *mut ErlNifEnv, _: c_int, arguments: *const ErlNifTerm) -> ErlNifTerm {
                    // SAFETY: the VM, or `run`, calls, with an environment for the call and as many arguments as declared.
                    let (env, arguments) = unsafe { (Env::new(env), &*arguments.cast::<[Term; $arity]>()) };
                    caller::within(env.raw().cast(), || guarded(env, arguments, $body)).raw()
                }
                Function {
                    name: stringify!($name),
                    arity: $arity,
                    name_and_zero: concat!(stringify!($name), "\0"),
                    entry,
                    flags: 0 $(| $flag)?,
                }
            }
        ),*]
    };
}

/// All native functions.
pub static FUNCTIONS: &[Function] = functions! {
    dirty_call/2 [ERL_NIF_DIRTY_JOB_CPU_BOUND] => crate::entry::dirty::dirty_call,
    configure/1 => crate::entry::settings::configure,
    settings/0 => crate::entry::settings::settings,
    engines/0 => calls::manage::engines,
    new/2 => calls::manage::new,
    delete/1 => calls::manage::delete,
    delete/2 => calls::write::delete_key,
    delete_object/2 => calls::write::delete_object,
    delete_all_objects/1 => calls::write::delete_all_objects,
    insert/2 => calls::write::insert,
    insert_new/2 => calls::write::insert_new,
    lookup/2 => calls::read::lookup,
    lookup_element/3 => calls::read::lookup_element,
    lookup_element/4 => calls::read::lookup_element_default,
    lookup_elements/3 => calls::read::lookup_elements,
    lookup_many/2 => calls::many::lookup_many,
    lookup_many_to_fetch/3 => calls::many::lookup_many_to_fetch,
    member/2 => calls::read::member,
    take/2 => calls::write::take,
    update_counter/3 => calls::update::update_counter,
    update_counter/4 => calls::update::update_counter_default,
    update_element/3 => calls::update::update_element,
    update_element/4 => calls::update::update_element_default,
    lookup_to_fetch/2 => calls::one::lookup_to_fetch,
    lookup_to_update/2 => calls::one::lookup_to_update,
    lookup_to_update/3 => calls::one::lookup_to_update_default,
    insert_absent/3 => calls::one::insert_absent,
    replace/3 => calls::one::replace,
    remove/2 => calls::one::remove,
    add/3 => calls::one::add,
    insert_bounded/4 => calls::expiry::insert_bounded,
    insert_lasting/3 => calls::expiry::insert_lasting,
    insert_new_lasting/3 => calls::expiry::insert_new_lasting,
    fetched/4 => calls::expiry::fetched,
    fetched_again/4 => calls::expiry::fetched_again,
    insert_fetched/5 => calls::expiry::insert_fetched,
    replace_fetched/5 => calls::expiry::replace_fetched,
    count_fetch/2 => calls::expiry::count_fetch,
    flight_to/2 => calls::flights::flight_to,
    flight_begin/4 => calls::flights::flight_begin,
    flights_begin/6 => calls::flights::flights_begin,
    flights_store/3 => calls::flights::flights_store,
    flights_end/3 => calls::flights::flights_end,
    flights_fail/5 => calls::flights::flights_fail,
    flight_wait/2 => calls::flights::flight_wait,
    flight_waited/0 => calls::flights::flight_waited,
    removed/1 => calls::notices::removed,
    times/2 => calls::expiry::times,
    touch/3 => calls::expiry::touch,
    ttl/2 => calls::expiry::ttl,
    take_many/2 => calls::many::take_many,
    delete_many/2 => calls::many::delete_many,
    insert_many/2 => calls::many::insert_many,
    first/1 => calls::traverse::first,
    last/1 => calls::traverse::last,
    next/2 => calls::traverse::next,
    prev/2 => calls::traverse::prev,
    first_lookup/1 => calls::traverse::first_lookup,
    last_lookup/1 => calls::traverse::last_lookup,
    next_lookup/2 => calls::traverse::next_lookup,
    prev_lookup/2 => calls::traverse::prev_lookup,
    next_objects/2 => calls::traverse::next_objects,
    prev_objects/2 => calls::traverse::prev_objects,
    next_numbered/3 => calls::traverse::next_numbered,
    prev_numbered/3 => calls::traverse::prev_numbered,
    rank/2 => calls::order::rank,
    nth/2 => calls::order::nth,
    count_between/3 => calls::order::count_between,
    range_between/5 => calls::order::range_between,
    slot/2 => calls::traverse::slot,
    safe_fixtable/2 => calls::manage::safe_fixtable,
    rename/2 => calls::manage::rename,
    whereis/1 => calls::manage::whereis,
    give_away/3 => calls::manage::give_away,
    claim/1 => calls::manage::claim,
    setopts/2 => calls::manage::setopts,
    all/0 => calls::manage::all,
    info/2 => calls::info::info,
    scan/2 => calls::select::scan,
    select/4 => calls::select::select,
    select_on/2 => calls::select::go_on,
    is_cursor/1 => calls::select::is_cursor,
    select_at/4 => calls::select::select_at,
    select_chunk/3 => calls::select::next_chunk,
    select_key/2 => calls::select_terms::select_key,
    select_terms/3 => calls::select_terms::select_terms,
    snapshot/1 => calls::snapshot::snapshot,
    snapshot_finish/2 => calls::snapshot::finish,
    transaction_table/2 => calls::transaction::transaction_table,
    transaction_read/3 => calls::transaction::transaction_read,
    transaction_read_many/3 => calls::transaction::transaction_read_many,
    transaction_range/6 => calls::transaction::transaction_range,
    transaction_commit/3 => calls::transaction::transaction_commit,
    transaction_long/3 => calls::long::transaction_long,
    transaction_whole/2 => calls::long::transaction_whole,
    transaction_unchanged/1 => calls::long::transaction_unchanged,
    transaction_end/1 => calls::long::transaction_end,
    transaction_preferred/0 => calls::transaction::transaction_preferred,
    transaction_prefer/1 => calls::transaction::transaction_prefer,
    transaction_yield/1 => calls::transaction::transaction_yield,
    stop_clock/1 => calls::expiry::stop_clock,
    garbage/0 => calls::info::garbage,
    memory/0 => calls::info::memory,
    budget/0 => calls::shortage::budget,
    relieve/0 => calls::shortage::relieve,
    structure/3 => calls::contention::structure,
    adaptations/1 => calls::contention::adaptations,
    record/1 => calls::contention::record,
    recorded/1 => calls::contention::recorded,
    stop_recording/1 => calls::contention::stop_recording,
    trace_start/2 => calls::tracing::start,
    trace_stop/1 => calls::tracing::stop,
    trace_slots/1 => calls::tracing::slots,
    trace_events/2 => calls::tracing::events,
    #[cfg(feature = "selftest")]
    test_roundtrip/1 => crate::entry::selftest::roundtrip,
    #[cfg(feature = "selftest")]
    test_layout/1 => crate::entry::selftest::layout,
    #[cfg(feature = "selftest")]
    test_layout_of_resources/0 => crate::entry::selftest::layout_of_resources,
    #[cfg(feature = "selftest")]
    test_store/1 => crate::entry::selftest::store_and_free,
    #[cfg(feature = "selftest")]
    test_compare/2 => crate::entry::selftest::compare,
    #[cfg(feature = "selftest")]
    test_equal/2 => crate::entry::selftest::equal,
    #[cfg(feature = "selftest")]
    test_hash/1 => crate::entry::selftest::hash,
    #[cfg(feature = "selftest")]
    test_normalized_key/1 => crate::entry::selftest::normalized_key,
    #[cfg(feature = "selftest")]
    test_keep/1 => crate::entry::selftest::keep,
    #[cfg(feature = "selftest")]
    test_kept/1 => crate::entry::selftest::kept,
    #[cfg(feature = "selftest")]
    test_drop/1 => crate::entry::selftest::drop_kept,
    #[cfg(feature = "selftest")]
    test_batches/0 => crate::entry::selftest::batches,
    #[cfg(feature = "selftest")]
    test_collect/0 => crate::entry::selftest::collect,
    #[cfg(feature = "selftest")]
    test_panic/0 => crate::entry::selftest::panic,
    #[cfg(feature = "selftest")]
    test_out_of_memory/0 => crate::entry::selftest::out_of_memory,
    #[cfg(feature = "selftest")]
    test_watch/1 => crate::entry::selftest::watch,
    #[cfg(feature = "selftest")]
    test_watched/0 => crate::entry::selftest::watched,
};
