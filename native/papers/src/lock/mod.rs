//! Locks for a whole structure, with one trait: [`TableLock`].
//!
//! | lock | module | readers | writers |
//! |---|---|---|---|
//! | readers-writer lock with reader groups | [`rw`] | share | exclude each other, in no order |
//! | DR-MCS | [`dr_mcs`] | share | queue in FIFO order |
//! | CC-Synch | [`cc_synch`] | as writers | queue, and one of them runs the sections of all |
//! | multiple-reader queue delegation | [`mrqd`] | share | delegate their sections to the holder |
//! | ETS pointers | [`ets_pointer`] | share, without memory in the lock | exclude each other, in no order |
//!
//! Their parts have modules of their own: the [`read_indicator`], the queue lock [`mcs`] and the delegation queue
//! [`qd`].
//!
//! # Which thread runs a section
//!
//! A *section* is a critical section. One that is passed to [`read_here`](TableLock::read_here) or
//! [`write_here`](TableLock::write_here) runs on the calling thread. One that is passed to [`read`](TableLock::read) or
//! [`write`](TableLock::write) may run on another thread, the *helper*, while the caller waits. Hence the bounds
//! `Send`.
//!
//! What the caller did before the call happens before the section. What the section did happens before the call
//! returns. So the section may use everything that the caller could lend to another thread. Thread-locals in it are
//! those of the helper.
//!
//! A detached section ([`detach`](TableLock::detach)) is one whose caller does not wait. It owns its arguments, and may
//! run after the call has returned. But it runs before any later section of the same lock on any thread, so nobody can
//! see the delay.
//!
//! A helper runs other threads' sections only during a call of its own. So it is pinned ([`cats_sync::epoch`]) if it was
//! pinned when it called. No section remains when the last caller has left.
//!
//! # Waiting
//!
//! A wait spins for a bounded time and then fails with [`Busy`]: nothing was done. Three kinds of threads cannot give
//! up, because other threads rely on them. The first has lent out its section. The second has sections of others to
//! run. The third hands the lock on to a thread that is just entering the queue. Such a thread yields the processor
//! between two tries.
//!
//! A section that panics frees the lock. The panic goes on in the thread that wanted the section.

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

use cats_sync::facade::{spin_loop, yield_now};
use cats_sync::Busy;
use std::ops::Deref;

/// How often a waiter that may leave tries before it does: as for a version lock.
const SPINS: u32 = if cfg!(loom) { 2 } else { 2000 };
/// How often a reader tries before it raises the barrier against writers. Published code has 1000 to 130,000. Here a
/// wait ends at `SPINS`.
const PATIENCE: u32 = SPINS / 2;
/// How often a waiter that may not leave tries before it starts to yield the processor.
const QUEUED_SPINS: u32 = if cfg!(loom) { 1 } else { 500 };

/// An operation for which no caller waits. Its arguments are passed as words.
pub type Operation<T> = unsafe fn(&mut T, &[u64]);

/// A value with one writer or several readers. See the module's documentation.
pub trait TableLock<T>: Send + Sync {
    /// A free lock around `value`. A lock with a read indicator has a cache line for each of `groups` reader groups.
    fn new(value: T, groups: usize) -> Self
    where
        Self: Sized;

    /// Runs `look` on this thread, while no thread changes the value. Linearizable.
    fn read_here<R>(&self, look: impl FnOnce(&T) -> R) -> Result<R, Busy>;

    /// Runs `change` on this thread, with exclusive access. Linearizable. For sections that take long or cannot leave
    /// their thread.
    fn write_here<R>(&self, change: impl FnOnce(&mut T) -> R) -> Result<R, Busy>;

    /// Like [`read_here`](Self::read_here), perhaps on another thread.
    #[inline]
    fn read<R: Send>(&self, look: impl FnOnce(&T) -> R + Send) -> Result<R, Busy> {
        self.read_here(look)
    }

    /// Like [`write_here`](Self::write_here), perhaps on another thread.
    #[inline]
    fn write<R: Send>(&self, change: impl FnOnce(&mut T) -> R + Send) -> Result<R, Busy> {
        self.write_here(change)
    }

    /// Whether [`detach`](Self::detach) avoids waiting, so that it is worth preparing.
    #[inline]
    fn detaches(&self) -> bool {
        false
    }

    /// Runs `operation` once with `words`, as [`write`](Self::write) runs a section. It may run after this call has
    /// returned.
    ///
    /// # Safety
    /// `operation` may be called with these words on any thread, until the last call that was under way in this lock
    /// has returned.
    #[inline]
    unsafe fn detach(&self, operation: Operation<T>, words: &[u64]) -> Result<(), Busy> {
        // SAFETY: the caller's promise.
        self.write_here(|value| unsafe { operation(value, words) })
    }

    /// The value, for a caller with exclusive access.
    fn get_mut(&mut self) -> &mut T;
}

/// Alone in a pair of cache lines, because processors fetch lines in pairs.
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

/// The back-off of a waiter that cannot leave.
#[derive(Default)]
struct Queued(u32);

impl Queued {
    /// Waits between two tries.
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
