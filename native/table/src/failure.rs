//! Why an operation is not done.
//!
//! Engines report only that a write did not happen, by [`Busy`]. There may be other reasons. Work in the middle of the write may be too long
//! for a scheduler, such as a copy of a large entry. The table may be full, or a snapshot. So whoever fails for such a reason says it first.

use cats_engine::Unfinished;
use cats_sync::Busy;
use std::cell::Cell;

thread_local! {
    /// What the last [`Busy`] of this thread means.
    static WHY: Cell<Failure> = const { Cell::new(Failure::Busy) };
}

/// See the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A lock was held for longer than a bounded spin. The caller lets others run and tries again.
    Busy,
    /// Too much work for a scheduler. The caller tries again on a dirty scheduler, where it may take its time.
    Big,
    /// A slice of the work is done. The caller lets others run, and tries again to do the rest.
    Slice,
    /// Memory is exhausted, or a term is too large to be stored.
    NoMemory,
    /// The table has what its limit allows, and nothing can be evicted.
    Full,
    /// What the call would put is larger than the table's limit.
    TooLarge,
    /// A counter would become an integer that the host does not have.
    LargeInteger,
    /// A transaction writes more tables than `TABLES_LIMIT`.
    TooManyTables,
    /// The caller made a mistake.
    Bad(Cause),
}

/// What ETS reports as the `cause` of a `badarg`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    None,
    Type,
    Id,
    Access,
    TableType,
    BadKey,
    KeyPosition,
    Position,
    Owner,
    NotOwner,
    AlreadyExists,
    Default,
    /// A sum is too large for a float.
    Overflow,
    /// The table has an owner, so nobody can claim it.
    Owned,
    /// The table is a snapshot, so nobody can change it.
    Snapshot,
    /// The table is a snapshot that has died, because what was kept for it was too large.
    SnapshotLimit,
    /// The objects of the table cannot expire.
    NoExpiry,
    /// The engine has no snapshots.
    NoSnapshots,
    /// The engine does not record contention.
    NoContention,
    /// The caller runs a transaction that uses the table. See [`inside`](crate::inside).
    InsideTransaction,
}

impl From<Unfinished> for Failure {
    fn from(unfinished: Unfinished) -> Self {
        match unfinished {
            Unfinished::Busy => Failure::Busy,
            Unfinished::Long => Failure::Big,
        }
    }
}

impl From<Cause> for Failure {
    fn from(cause: Cause) -> Self {
        Failure::Bad(cause)
    }
}

/// What to fail with when the work is too long for a scheduler.
#[cold]
pub fn too_long() -> Busy {
    WHY.set(Failure::Big);
    Busy
}

/// What to fail with when the table is full and nothing can be evicted.
#[cold]
pub fn full() -> Busy {
    WHY.set(Failure::Full);
    Busy
}

/// What to fail with when the table's limit is smaller than what is put.
#[cold]
pub fn too_large() -> Busy {
    WHY.set(Failure::TooLarge);
    Busy
}

/// What to fail with when the table is a snapshot.
#[cold]
pub fn frozen() -> Busy {
    WHY.set(Failure::Bad(Cause::Snapshot));
    Busy
}

/// What a [`Busy`] of this thread means.
#[cold]
fn why_busy() -> Failure {
    WHY.replace(Failure::Busy)
}

impl From<Busy> for Failure {
    fn from(_: Busy) -> Self {
        why_busy()
    }
}
