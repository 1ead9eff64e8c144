//! Why a native function failed, and the atom that says so to Erlang.

use crate::vm::atoms;
use crate::vm::{Env, Term};
use cats_sync::slab::account;
use cats_table::Cause;

/// The reason of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A lock was held longer than a bounded spin. Nothing was done. The Erlang side yields and calls again.
    Busy,
    /// The work is too large for a normal scheduler. Nothing was done. The Erlang side calls again through
    /// `cats_nif:dirty/2`.
    Big,
    /// A slice of the work is done. The Erlang side yields and calls again for the rest.
    Slice,
    /// The settings have not been passed yet, see `cats_nif:configure/1`.
    NoSettings,
    /// `system_limit`. The term says which limit was met: an atom, or `{Atom, Table}` where a transaction writes several tables.
    /// `cats_failure` has the texts.
    SystemLimit(Term),
    /// `badarg`. The atom is the cause that `ets` would give, `none`, or a more precise one. `cats_failure` has the
    /// texts.
    Bad(Term),
}

impl Failure {
    /// The cause: an atom, or `{system_limit, Limit}`. Called when the failed call holds no lock and no guard any more.
    #[cold]
    pub fn cause(self, env: Env) -> Term {
        match self {
            Failure::Busy => {
                // The operating system may have preempted the holder of the lock: give it this processor.
                cats_sync::facade::yield_now();
                atoms::busy()
            }
            Failure::Big => atoms::dirty(),
            Failure::Slice => atoms::slice(),
            Failure::NoSettings => atoms::settings(),
            Failure::SystemLimit(limit) => env.tuple(&[atoms::system_limit(), limit]),
            Failure::Bad(cause) => cause,
        }
    }
}

impl From<cats_sync::Busy> for Failure {
    fn from(_: cats_sync::Busy) -> Self {
        Failure::Busy
    }
}

impl From<cats_table::Failure> for Failure {
    #[cold]
    fn from(failure: cats_table::Failure) -> Self {
        match failure {
            cats_table::Failure::Busy => Failure::Busy,
            cats_table::Failure::Big => Failure::Big,
            cats_table::Failure::Slice => Failure::Slice,
            cats_table::Failure::NoMemory => no_memory(),
            cats_table::Failure::Full => Failure::SystemLimit(atoms::full()),
            cats_table::Failure::TooLarge => Failure::SystemLimit(atoms::too_large()),
            cats_table::Failure::LargeInteger => Failure::SystemLimit(atoms::integer()),
            cats_table::Failure::TooManyTables => Failure::SystemLimit(atoms::too_many_tables()),
            cats_table::Failure::Bad(cause) => cause.into(),
        }
    }
}

impl From<Cause> for Failure {
    #[cold]
    fn from(cause: Cause) -> Self {
        Failure::Bad(match cause {
            Cause::None => atoms::none(),
            Cause::Type => atoms::type_(),
            Cause::Id => atoms::id(),
            Cause::Access => atoms::access(),
            Cause::TableType => atoms::table_type(),
            Cause::BadKey => atoms::badkey(),
            Cause::KeyPosition => atoms::keypos(),
            Cause::Position => atoms::position(),
            Cause::Owner => atoms::owner(),
            Cause::NotOwner => atoms::not_owner(),
            Cause::AlreadyExists => atoms::already_exists(),
            Cause::Default => atoms::default(),
            Cause::Overflow => atoms::overflow(),
            Cause::Owned => atoms::owned(),
            Cause::Snapshot => atoms::snapshot(),
            Cause::NoExpiry => atoms::no_expiry(),
            Cause::SnapshotLimit => atoms::snapshot_limit(),
            Cause::NoSnapshots => atoms::no_snapshots(),
            Cause::NoContention => atoms::no_contention(),
            Cause::InsideTransaction => atoms::inside_transaction(),
        })
    }
}

/// `badarg` without a cause.
#[cold]
pub fn bad() -> Failure {
    Failure::Bad(atoms::none())
}

/// `system_limit` for want of memory.
#[cold]
pub fn no_memory() -> Failure {
    Failure::SystemLimit(match account::asked_too_much() {
        true => atoms::memory_limit(),
        false => atoms::memory(),
    })
}
