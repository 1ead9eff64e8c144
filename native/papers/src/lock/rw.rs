//! Readers-writer lock with reader groups.
//!
//! Source: the table lock of ETS, as described in two texts. One is Klaftenegger, Sagonas, Winblad, "On the Scalability
//! of the Erlang Term Storage", Erlang 2013, sections 3.3 and 5.2.2. The other is Green, "Ets read concurrency tweak",
//! mailing list erlang-questions, 17 May 2015. A reader writes the cache line of its group. A writer reads those of all
//! groups.
//!
//! Once a writer has announced itself, no reader gets in, so writers do not starve. A reader that writers overtake
//! again and again raises a barrier that writers respect. Not recursive.

use super::read_indicator::{enter, Barrier, ReadIndicator};
use super::{Line, TableLock, SPINS};
use cats_sync::facade::{spin_loop, AtomicBool, Ordering};
use cats_sync::Busy;
use std::cell::UnsafeCell;

/// See the module's documentation.
#[derive(Debug)]
pub struct Rw<T> {
    /// A writer has the lock, or waits for the readers to leave.
    writer: Line<AtomicBool>,
    readers: ReadIndicator,
    barrier: Barrier,
    value: UnsafeCell<T>,
}

// SAFETY: only the writer changes the value, while there are no readers. Otherwise several threads only read it.
unsafe impl<T: Send + Sync> Sync for Rw<T> {}
// SAFETY: the owner of the lock owns the value.
unsafe impl<T: Send> Send for Rw<T> {}

/// A lock held for writing. Dropping it frees the lock.
struct Held<'a>(&'a AtomicBool);

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release pairs with the Acquire parts of the readers' and the writers' loads: they see the change.
        self.0.store(false, Ordering::Release);
    }
}

impl<T> Rw<T> {
    #[inline]
    fn lock(&self) -> Result<Held<'_>, Busy> {
        for spin in 0..SPINS {
            // Relaxed: a first look, before the exchange. SeqCst: the store of a store-load pair, whose load is in
            // `is_soon_empty`. Its Acquire part pairs with the Release of the last writer.
            if !self.writer.load(Ordering::Relaxed)
                && !self.barrier.is_raised()
                && self
                    .writer
                    .compare_exchange(false, true, Ordering::SeqCst, Ordering::Relaxed)
                    .is_ok()
            {
                let held = Held(&self.writer);
                return if self.readers.is_soon_empty(SPINS - spin) {
                    Ok(held)
                } else {
                    Err(Busy)
                };
            }
            spin_loop();
        }
        Err(Busy)
    }
}

impl<T: Send + Sync> TableLock<T> for Rw<T> {
    fn new(value: T, groups: usize) -> Self {
        Self {
            writer: Line::default(),
            readers: ReadIndicator::new(groups),
            barrier: Barrier::default(),
            value: UnsafeCell::new(value),
        }
    }

    #[inline]
    fn read_here<R>(&self, look: impl FnOnce(&T) -> R) -> Result<R, Busy> {
        // SeqCst: the load of a store-load pair, after the arrival. Its Acquire part pairs with the Release of the last writer.
        let writer = || self.writer.load(Ordering::SeqCst);
        let _arrival = enter(&self.readers, &self.barrier, writer)?;
        // SAFETY: this thread is counted as a reader, and saw no writer after that. So no writer gets in before it
        // departs.
        Ok(look(unsafe { &*self.value.get() }))
    }

    #[inline]
    fn write_here<R>(&self, change: impl FnOnce(&mut T) -> R) -> Result<R, Busy> {
        let _held = self.lock()?;
        // SAFETY: this thread is the only writer, and has seen no readers since.
        Ok(change(unsafe { &mut *self.value.get() }))
    }

    fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}
