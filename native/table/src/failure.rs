//! Why an operation is not done.

use cats_engine::Unfinished;

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
