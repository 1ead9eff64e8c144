//! DR-MCS: a readers-writer lock made of a distributed read indicator and an MCS lock.
//!
//! Source: Calciu, Dice, Lev, Luchangco, Marathe, Shavit, "NUMA-aware reader-writer locks", PPoPP 2013. Sagonas and
//! others, "Robust Scalable Erlang Virtual Machine", RELEASE deliverable D2.4, 2015, section 3.4.3, compare it with the
//! lock of ETS.
//!
//! Writers queue. The first writer of a chain waits for the readers to leave. A writer that gets the lock from another
//! writer need not wait. The lock was not free in between, so readers that arrived since then have seen a writer and
//! left. Every wait is bounded. If the first writer of a chain gives up, the next one waits instead.

use super::mcs::Mcs;
use super::read_indicator::{enter, Barrier, ReadIndicator};
use super::{TableLock, SPINS};
use cats_sync::facade::{spin_loop, AtomicBool, Ordering};
use cats_sync::Busy;
use std::cell::UnsafeCell;

/// See the module's documentation.
#[derive(Debug)]
pub struct DrMcs<T> {
    writers: Mcs,
    readers: ReadIndicator,
    barrier: Barrier,
    /// Whether the readers have left since the lock was last free. No reader has got in since then. The holder of
    /// `writers` uses it.
    drained: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: only the holder of `writers` changes the value, while there are no readers. Otherwise several threads only
// read it.
unsafe impl<T: Send + Sync> Sync for DrMcs<T> {}
// SAFETY: the owner of the lock owns the value.
unsafe impl<T: Send> Send for DrMcs<T> {}

impl<T: Send + Sync> TableLock<T> for DrMcs<T> {
    fn new(value: T, groups: usize) -> Self {
        Self {
            writers: Mcs::default(),
            readers: ReadIndicator::new(groups),
            barrier: Barrier::default(),
            drained: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    #[inline]
    fn read_here<R>(&self, look: impl FnOnce(&T) -> R) -> Result<R, Busy> {
        let writer = || !self.writers.is_free();
        let _arrival = enter(&self.readers, &self.barrier, writer)?;
        // SAFETY: this thread is counted as a reader, and saw no writer after that. So no writer gets in before it
        // departs.
        Ok(look(unsafe { &*self.value.get() }))
    }

    #[inline]
    fn write_here<R>(&self, change: impl FnOnce(&mut T) -> R) -> Result<R, Busy> {
        let mut spins = 0;
        while self.barrier.is_raised() {
            if spins == SPINS {
                return Err(Busy);
            }
            spins += 1;
            spin_loop();
        }
        self.writers.with(|handed_over| {
            // Relaxed: ordered by the writers' lock.
            if !handed_over || !self.drained.load(Ordering::Relaxed) {
                let drained = self.readers.is_soon_empty(SPINS);
                self.drained.store(drained, Ordering::Relaxed);
                if !drained {
                    return Err(Busy);
                }
            }
            // SAFETY: this thread has the writers' lock, and there are no readers (see the module's documentation).
            Ok(change(unsafe { &mut *self.value.get() }))
        })?
    }

    fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}
