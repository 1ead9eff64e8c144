//! The table that an argument names, and what the caller may do to it.

use super::*;
use cats_table::Naming;

/// What a call wants of a table: a right, and what it does, if that counts as an operation.
pub(super) type Want = (Right, Option<Operation>);

/// The wants of most calls.
pub(super) const LOOKUP: Want = (Right::Read, Some(Operation::Lookup));
pub(super) const LOOKUP_TO_UPDATE: Want = (Right::Write, Some(Operation::Lookup));
/// Whoever may write may fetch. A hit writes nothing, so a transaction refuses it nowhere.
pub(super) const LOOKUP_TO_FETCH: Want = (Right::Manage, Some(Operation::Lookup));
pub(super) const STEP: Want = (Right::Read, Some(Operation::Step));
pub(super) const SCAN: Want = (Right::Read, Some(Operation::Scan));
pub(super) const INSERT: Want = (Right::Write, Some(Operation::Insert));
pub(super) const UPDATE: Want = (Right::Write, Some(Operation::Update));
pub(super) const DELETE: Want = (Right::Write, Some(Operation::Delete));
pub(super) const READ: Want = (Right::Read, None);
pub(super) const WRITE: Want = (Right::Write, None);
pub(super) const MANAGE: Want = (Right::Manage, None);
pub(super) const INFO: Want = (Right::Info, None);

/// A rough estimate of the nanoseconds for a search in what a snapshot has kept.
const NODE_NS: usize = 40;

/// The table that an argument names, if the caller may do to it what it wants. That is counted, if the table counts.
#[inline(always)]
pub(super) fn find<'g>(env: Env<'g>, guard: &'g Guard, term: Term, want: Want) -> Result<Handle<'g>, Failure> {
    if term.is_immediate() {
        return match find_near(env, guard, term, want) {
            Some((table, naming)) => Ok(Handle::by_name(table, guard, naming)),
            None => find_named(env, guard, term, want),
        };
    }
    let table = TABLES.get(env, term).ok_or(Cause::Type)?;
    check(env, guard, table, want)?;
    Ok(table.by_identifier(guard))
}

/// Reports to the scheduler how long a read of a snapshot takes that searches what all newer ones have kept.
#[cold]
#[inline(never)]
fn account_nodes(env: Env, handle: Handle<'_>) {
    env.account(handle.newer_snapshots() * NODE_NS);
}

/// Checks that the caller may do what it wants to a table whose identifier it has.
#[inline(always)]
pub(super) fn check(env: Env, guard: &Guard, table: &Table, (right, operation): Want) -> Result<(), Failure> {
    // A snapshot asks for the caller always, and other tables seldom.
    let caller = || {
        if table.is_snapshot() {
            account_nodes(env, table.by_identifier(guard));
        }
        env.this_process().0
    };
    match table.check_for(guard, right, operation, caller) {
        Ok(()) => Ok(()),
        Err(_) => check_again(env, guard, table, (right, operation)),
    }
}

/// As [`check`] after a refusal: the owner may be dead, so that the caller as its heir now owns the table.
#[cold]
pub(super) fn check_again(env: Env, guard: &Guard, table: &Table, (right, operation): Want) -> Result<(), Failure> {
    registry().lives(&Vm(env), guard, table)?;
    Ok(table.check_for(guard, right, operation, || env.this_process().0)?)
}

/// Counts a lookup that found nothing, if the table counts.
#[inline(always)]
pub(super) fn missed(handle: Handle<'_>) {
    if handle.table().is_counted() {
        handle.count_miss();
    }
}

/// Counts that a call is made again for this reason. What it did does not count.
#[cold]
pub fn again(env: Env, table: Term, event: Event) {
    let guard = pin();
    let handle = match TABLES.get(env, table) {
        Some(table) if !table.is_dead() => table.by_identifier(&guard),
        Some(_) => return,
        None => match registry().find(&Vm(env), &guard, table.0, env.this_process().0) {
            Ok(handle) => handle,
            Err(_) => return,
        },
    };
    handle.table().take_back_count(&guard);
    if event == Event::Busy {
        let again = || trace::Event::new(trace::Kind::Busy, handle.table().serial(), [0, 0]);
        trace::record(|| again().by(env.this_process().0));
    }
    handle.count_event(event, 1);
}

/// The serial number of the table, or of the table of a cursor, that an argument names; 0 for others. For a trace.
#[cold]
pub fn serial(env: Env, term: Term) -> u64 {
    if let Some(table) = TABLES.get(env, term) {
        return table.serial();
    }
    if let Some(table) = select::table_of_cursor(env, term) {
        return table.serial();
    }
    let guard = pin();
    let found = registry().find(&Vm(env), &guard, term.0, env.this_process().0);
    found.map_or(0, |handle| handle.table().serial())
}

/// The table of a name in the usual case: see [`Registry::find_near`]. Not inlined, so that calls by identifier need fewer
/// registers. Its result is two words, which stay in registers.
#[inline(never)]
pub(super) fn find_near<'g>(env: Env<'g>, guard: &'g Guard, name: Term, want: Want) -> Option<(&'g Table, Naming)> {
    let is_alive = |owner| monitor::is_alive(env, Term(owner));
    registry().find_near(guard, name.0, want, env.this_process().0, is_alive)
}

#[cold]
#[inline(never)]
pub(super) fn find_named<'g>(
    env: Env<'g>,
    guard: &'g Guard,
    name: Term,
    (right, operation): Want,
) -> Result<Handle<'g>, Failure> {
    let caller = env.this_process().0;
    let handle = match registry().find(&Vm(env), guard, name.0, caller) {
        Ok(handle) => handle,
        Err(_) if !env.is_atom(name) => return Err(Cause::Type.into()),
        Err(failure) => return Err(failure.into()),
    };
    handle.table().check_found(guard, right, operation, || caller)?;
    Ok(handle)
}
