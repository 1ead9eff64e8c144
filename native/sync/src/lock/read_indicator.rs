//! Read indicator of reader groups: a count of readers, spread over lines so that readers do not meet.
//!
//! Source: Lev, Luchangco, Olszewski, "Scalable reader-writer locks", SPAA 2009, and the reader groups of the Erlang VM:
//! Klaftenegger, Sagonas, Winblad, "On the scalability of the Erlang term storage", Erlang 2013, sections 3.3 and 3.4.
//!
//! A reader *arrives, then* looks for a writer; a writer *announces itself, then* waits until it is [empty](ReadIndicator::wait_empty).
//! So at least one of them sees the other: each has a sequentially consistent fence, or accesses that amount to one, between its
//! store and its load. An arrival is a guard that departs from the group that it arrived in, wherever the section ran.

use super::{Line, Queued, PATIENCE, SPINS};
use crate::epoch::slot_index;
use crate::facade::{spin_loop, store_load_fence, AtomicUsize, Ordering};
use crate::Busy;
use std::marker::PhantomData;

/// See the module's documentation.
#[derive(Debug)]
pub struct ReadIndicator {
    groups: Box<[Line<AtomicUsize>]>,
}

/// A reader that is counted; departs when dropped. Does not leave its thread.
#[derive(Debug)]
pub struct Arrival<'a>(&'a AtomicUsize, PhantomData<*mut u8>);

impl ReadIndicator {
    /// Memory for each group.
    pub const BYTES_OF_GROUP: usize = size_of::<Line<AtomicUsize>>();

    /// With a line for each of `groups` groups of threads, one at least.
    pub fn new(groups: usize) -> Self {
        Self {
            groups: (0..groups.max(1)).map(|_| Line(AtomicUsize::new(0))).collect(),
        }
    }

    /// The group of this thread.
    #[inline]
    pub fn group(&self) -> usize {
        slot_index() % self.groups.len()
    }

    /// Counts a reader in the group. The caller then looks for a writer by a SeqCst load.
    #[inline]
    pub fn arrive(&self, group: usize) -> Arrival<'_> {
        let count = &*self.groups[group];
        // SeqCst: the store of a store-load pair; the load is that of the writer's flag.
        count.fetch_add(1, Ordering::SeqCst);
        store_load_fence();
        Arrival(count, PhantomData)
    }

    /// Whether there was no reader in any group. The caller has announced itself by a SeqCst store or exchange.
    fn is_empty(&self) -> bool {
        // SeqCst: the loads of the store-load pair. Its Acquire part pairs with the Release of a departure: what the reader
        // read comes before what the writer writes.
        self.groups.iter().all(|count| count.load(Ordering::SeqCst) == 0)
    }

    /// Waits for the readers that were there, for a writer that others count on.
    #[inline]
    pub fn wait_empty(&self) {
        store_load_fence();
        let mut queued = Queued::default();
        for count in &self.groups {
            // SeqCst: as in `is_empty`. Who arrives in a group that was seen empty sees the writer.
            while count.load(Ordering::SeqCst) != 0 {
                queued.wait();
            }
        }
    }

    /// As [`wait_empty`](Self::wait_empty), a bounded time; false when there are readers still.
    #[inline]
    pub fn is_soon_empty(&self, spins: u32) -> bool {
        store_load_fence();
        for _ in 0..spins {
            if self.is_empty() {
                return true;
            }
            spin_loop();
        }
        false
    }
}

impl Drop for Arrival<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release pairs with the Acquire part of the writer's look.
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// What readers use against a chain of writers: while one has raised it, no further writer tries to get the lock.
#[derive(Debug, Default)]
pub struct Barrier(Line<AtomicUsize>);

/// Lowers the barrier when dropped.
pub struct Raised<'a>(&'a AtomicUsize);

impl Barrier {
    /// Raises it until the value is dropped.
    pub fn raise(&self) -> Raised<'_> {
        // Relaxed, here and below: it gives a right of way and protects nothing.
        self.0.fetch_add(1, Ordering::Relaxed);
        Raised(&self.0)
    }

    /// Whether a writer is to stand back.
    #[inline]
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts this thread as a reader once no writer is in the way; fails when that takes too long. `writer` tells by a SeqCst load
/// whether there is one.
#[inline]
pub(super) fn enter<'a>(
    indicator: &'a ReadIndicator,
    barrier: &Barrier,
    writer: impl Fn() -> bool,
) -> Result<Arrival<'a>, Busy> {
    let group = indicator.group();
    let mut raised = None;
    for spin in 0..SPINS {
        if !writer() {
            let arrival = indicator.arrive(group);
            if !writer() {
                return Ok(arrival);
            }
        }
        if spin == PATIENCE {
            raised = Some(barrier.raise());
        }
        spin_loop();
    }
    drop(raised);
    Err(Busy)
}
