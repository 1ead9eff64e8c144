//! Delegation: updates for which the caller does not wait.

use cats_engine::{Busy, Entry, Step};
use cats_sync::epoch::Guard;

/// Runs under the lock after a detached step. Its arguments are the context, the step, and the entry that the place
/// held before. It may run on any thread.
pub type Settle = unsafe fn(*const (), Step, Option<Entry>);

/// An update for which the caller does not wait: see [`Detaching::detach`].
#[derive(Clone, Copy)]
pub struct Detached {
    /// [`Step::Put`] or [`Step::Remove`].
    pub step: Step,
    /// An entry with the key of the place. Its body is not read if the key is an immediate.
    pub key: Entry,
    pub settle: Settle,
    pub context: *const (),
}

/// What an engine has besides [`cats_engine::Engine`] if its lock delegates.
pub trait Detaching {
    /// Whether [`detach`](Self::detach) may be called, and avoids waiting.
    #[inline]
    fn detaches(&self) -> bool {
        false
    }

    /// Carries out a step whose result nobody needs, perhaps after this call has returned. It takes effect before any
    /// later operation of any thread on this engine, so nobody can see the delay. Linearizable.
    ///
    /// # Safety
    /// The engine and the context must live until all calls that are under way when this one returns have returned.
    /// Until then the entry to put, and everything that `settle` uses, belong to the engine. `settle` may be called
    /// once, on any thread.
    unsafe fn detach(&self, _guard: &Guard, _update: Detached) -> Result<(), Busy> {
        unreachable!("asked for by `detaches`")
    }
}
