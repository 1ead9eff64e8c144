//! Read indicator with reader groups: a count of readers, spread over cache lines to avoid contention between readers.
//!
//! Source: Lev, Luchangco, Olszewski, "Scalable reader-writer locks", SPAA 2009, and the reader groups of Erlang/OTP:
//! Klaftenegger, Sagonas, Winblad, "On the Scalability of the Erlang Term Storage", Erlang 2013, sections 3.3 and 3.4.
//!
//! A reader *arrives, then* checks for a writer. A writer *announces itself, then* waits until the indicator is
//! [empty](ReadIndicator::wait_empty). So at least one of them sees the other, because each has a sequentially
//! consistent fence between its store and its load, or equivalent accesses. An arrival is a guard, which departs from
//! the group in which it arrived.

use super::{Line, Queued, PATIENCE, SPINS};
use cats_sync::epoch::slot_index;
use cats_sync::facade::{spin_loop, store_load_fence, AtomicUsize, Ordering};
use cats_sync::Busy;
use std::marker::PhantomData;

/// See the module's documentation.
#[derive(Debug)]
pub struct ReadIndicator {
    groups: Box<[Line<AtomicUsize>]>,
}

/// A reader that is counted. Dropping it departs. It stays on its thread.
#[derive(Debug)]
pub struct Arrival<'a>(&'a AtomicUsize, PhantomData<*mut u8>);

impl ReadIndicator {
    /// Bytes of each group.
    pub const BYTES_OF_GROUP: usize = size_of::<Line<AtomicUsize>>();

    /// A read indicator with a cache line for each of `groups` groups of threads. At least one.
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

    /// Counts a reader in the group. Then the caller checks for a writer by a SeqCst load.
    #[inline]
    pub fn arrive(&self, group: usize) -> Arrival<'_> {
        let count = &*self.groups[group];
        // SeqCst: the store of a store-load pair, whose load is that of the writer's flag.
        count.fetch_add(1, Ordering::SeqCst);
        store_load_fence();
        Arrival(count, PhantomData)
    }

    /// Whether each group was without readers when it was read. The caller has announced itself by a SeqCst store or
    /// exchange.
    fn is_empty(&self) -> bool {
        // SeqCst: the loads of the store-load pair. Its Acquire part pairs with the Release of a departure: the
        // reader's reads come before the writer's writes.
        self.groups.iter().all(|count| count.load(Ordering::SeqCst) == 0)
    }

    /// Waits without bound for the present readers to leave. For a writer on which other threads rely.
    #[inline]
    pub fn wait_empty(&self) {
        store_load_fence();
        let mut queued = Queued::default();
        for count in &self.groups {
            // SeqCst: as in `is_empty`. A reader that arrives in a group that was seen empty sees the writer.
            while count.load(Ordering::SeqCst) != 0 {
                queued.wait();
            }
        }
    }

    /// Like [`wait_empty`](Self::wait_empty), for a bounded time. False if there are still readers.
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
        // Release pairs with the Acquire part of the writer's load.
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// Protects readers against a chain of writers. While a reader has raised it, no further writer tries to get the lock.
#[derive(Debug, Default)]
pub struct Barrier(Line<AtomicUsize>);

/// Lowers the barrier when dropped.
pub struct Raised<'a>(&'a AtomicUsize);

impl Barrier {
    /// Raises it until the value is dropped.
    pub fn raise(&self) -> Raised<'_> {
        // Relaxed, here and below: it gives right of way and protects no data.
        self.0.fetch_add(1, Ordering::Relaxed);
        Raised(&self.0)
    }

    /// Whether a writer must wait for readers.
    #[inline]
    pub fn is_raised(&self) -> bool {
        // Relaxed: see `raise`.
        self.0.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        // Relaxed: see `raise`.
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts this thread as a reader once there is no writer. Fails if that takes too long. `writer` tells, by a SeqCst
/// load, whether there is a writer.
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
