//! Why an operation did nothing.

use cats_sync::Busy;

/// See the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A lock was held for longer than a bounded spin. Let others run and try again.
    Busy,
    /// Too much work for a scheduler. Try again on a thread that may take its time.
    Big,
    /// Memory or numbers are exhausted.
    SystemLimit,
    /// The caller's mistake.
    Bad(Cause),
}

/// What ETS gives as the `cause` of a `badarg`.
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
}

impl From<Busy> for Failure {
    fn from(_: Busy) -> Self {
        Failure::Busy
    }
}

impl From<Cause> for Failure {
    fn from(cause: Cause) -> Self {
        Failure::Bad(cause)
    }
}
