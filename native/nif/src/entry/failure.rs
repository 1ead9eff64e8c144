//! Why a native function failed, and how the Erlang side hears of it: `error:Cause`, with an atom as the cause.

use crate::vm::atoms;
use crate::vm::Term;

/// See the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A lock was held for longer than a bounded spin. Nothing was done; let others run and call again.
    Busy,
    /// The work is too large for a scheduler. Nothing was done; call again through `cats_nif:dirty/2`.
    Big,
    /// The settings have not been passed yet, see `cats_nif:configure/1`.
    NoSettings,
    /// Memory or numbers are exhausted.
    SystemLimit,
    /// `badarg`, with the atom that `ets` would give as its cause, or `none`, or with more than `ets` tells (`cats_failure` has
    /// the words).
    Bad(Term),
}

impl Failure {
    /// The atom that stands for it. Called when the failed call holds no lock and no guard any more.
    #[cold]
    pub fn reason(self) -> Term {
        match self {
            Failure::Busy => {
                // The operating system may have preempted the holder of the lock: give it this processor.
                cats_sync::facade::yield_now();
                atoms::busy()
            }
            Failure::Big => atoms::dirty(),
            Failure::NoSettings => atoms::settings(),
            Failure::SystemLimit => atoms::system_limit(),
            Failure::Bad(cause) => cause,
        }
    }
}

impl From<cats_sync::Busy> for Failure {
    fn from(_: cats_sync::Busy) -> Self {
        Failure::Busy
    }
}
