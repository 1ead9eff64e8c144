//! Locks over a whole structure, behind one trait: [`TableLock`].
//!
//! | lock | module | readers | writers |
//! |---|---|---|---|
//! | readers-writer lock with reader groups | [`rw`] | share | take turns, in no order |
//! | DR-MCS | [`dr_mcs`] | share | queue, first in first out |
//! | CC-Synch | [`cc_synch`] | as writers | queue; one of them runs the sections of all |
//! | multiple-reader queue delegation | [`mrqd`] | share | leave their sections to the one who has the lock |
//! | ETS pointers | [`ets_pointer`] | share, without memory in the lock | take turns, in no order |
//!
//! Their parts stand in files of their own: the [`read_indicator`], the queue lock [`mcs`], the delegation queue [`qd`].
//!
//! # Who runs a section
//!
//! A section passed to [`read_here`](TableLock::read_here) or [`write_here`](TableLock::write_here) runs on the thread that
//! called. One passed to [`read`](TableLock::read) or [`write`](TableLock::write) may run on another thread, the *helper*, while
//! the caller waits: therefore the bounds `Send`. What the section did happens before the call returns, and what the caller did
//! before the call happens before the section, so it may use all that the caller could lend to another thread. What is
//! *thread-local* inside is the helper's. One whose result nobody waits for ([`detach`](TableLock::detach)) owns its arguments,
//! and may run when the call has returned, but before any later section of the same lock, whoever asks for it: nobody can tell
//! it from one that was waited for.
//!
//! A helper runs sections of others only between the beginning of a call of its own and its return, so it is pinned
//! ([`crate::epoch`]) if it was when it called, and no section is left behind when the last caller has left.
//!
//! # Waiting
//!
//! A wait spins a bounded time and then fails with [`Busy`] (nothing was done), except that of a thread that others already
//! count on: one that has lent out its section, or has sections of others in its charge, or meets one who is about to line up
//! behind it. It yields the processor between two looks.
//! A section that panics frees the lock, and the panic goes on in the thread that wanted the section.

mod any;
mod call;
pub mod cc_synch;
pub mod dr_mcs;
pub mod ets_pointer;
pub mod mcs;
pub mod mrqd;
pub mod qd;
pub mod read_indicator;
pub mod rw;

pub use any::{AnyLock, Kind};
pub use mrqd::Delegation;

use crate::facade::{spin_loop, yield_now};
use crate::Busy;
use std::ops::Deref;

/// How often a waiter that may leave looks before it does: as for a version lock.
const SPINS: u32 = if cfg!(loom) { 2 } else { 2000 };
/// How often a reader looks before it asks writers to let it pass. Published code has 1000 to 130,000; here a wait ends at `SPINS`.
const PATIENCE: u32 = SPINS / 2;
/// How often a waiter that may not leave looks before it yields the processor between two looks.
const QUEUED_SPINS: u32 = if cfg!(loom) { 1 } else { 500 };

/// An operation that nobody waits for: what to do, with its arguments.
pub type Operation<T> = unsafe fn(&mut T, &[u64]);

/// A value that many read or one changes. See the module's documentation.
pub trait TableLock<T>: Send + Sync {
    /// A free lock around `value`. A lock with a read indicator has a line for each of `groups` groups of readers.
    fn new(value: T, groups: usize) -> Self
    where
        Self: Sized;

    /// Runs `look` on this thread, while nobody changes the value. Linearizable.
    fn read_here<R>(&self, look: impl FnOnce(&T) -> R) -> Result<R, Busy>;

    /// Runs `change` on this thread, while nobody else sees the value. Linearizable. For sections that take long, and for
    /// those that cannot leave their thread.
    fn write_here<R>(&self, change: impl FnOnce(&mut T) -> R) -> Result<R, Busy>;

    /// As [`read_here`](Self::read_here), perhaps on another thread.
    #[inline]
    fn read<R: Send>(&self, look: impl FnOnce(&T) -> R + Send) -> Result<R, Busy> {
        self.read_here(look)
    }

    /// As [`write_here`](Self::write_here), perhaps on another thread.
    #[inline]
    fn write<R: Send>(&self, change: impl FnOnce(&mut T) -> R + Send) -> Result<R, Busy> {
        self.write_here(change)
    }

    /// Whether [`detach`](Self::detach) spares its caller a wait, so that it is worth preparing.
    #[inline]
    fn detaches(&self) -> bool {
        false
    }

    /// Runs `operation` once with `words`, as [`write`](Self::write) runs a section; perhaps after the call has returned.
    ///
    /// # Safety
    /// `operation` may be called with these words on any thread, until the last call that was under way in this lock has
    /// returned.
    #[inline]
    unsafe fn detach(&self, operation: Operation<T>, words: &[u64]) -> Result<(), Busy> {
        // SAFETY: the caller's promise.
        self.write_here(|value| unsafe { operation(value, words) })
    }

    /// The value, for a caller that has it for itself.
    fn get_mut(&mut self) -> &mut T;
}

/// Alone in its pair of cache lines (processors fetch lines in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line<T>(T);

impl<T> Deref for Line<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// The wait of a thread that cannot leave.
#[derive(Default)]
struct Queued(u32);

impl Queued {
    /// Between two looks.
    #[inline]
    fn wait(&mut self) {
        if self.0 < QUEUED_SPINS {
            self.0 += 1;
            spin_loop();
        } else {
            yield_now();
        }
    }
}
