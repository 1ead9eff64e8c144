//! Table lock made of *ETS pointers*: a reader announces itself in a cache line of its thread, which serves all tables.
//!
//! Source: Sagonas and others, "Robust Scalable Erlang Virtual Machine", RELEASE deliverable D2.4, 2015, section 3.4.4,
//! the second prototype. A thread's ETS pointer names the table that the thread is reading. A writer waits until no
//! pointer names its table. The lock needs no memory for readers. Writers pay more, because the pointers also change
//! for reads of other tables.
//!
//! A thread reads one such table at a time.

use super::read_indicator::Barrier;
use super::{Line, TableLock, PATIENCE, SPINS};
use crate::thread::{own, records};
use cats_sync::epoch::{pin, Guard};
use cats_sync::facade::{fence, spin_loop, store_load_fence, AtomicBool, AtomicPtr, Ordering};
use cats_sync::Busy;
use std::cell::UnsafeCell;
use std::ptr;

/// See the module's documentation.
#[derive(Debug)]
pub struct EtsPointer<T> {
    /// A writer has the lock, or waits for the readers to leave. The address of this field names the lock.
    writer: Line<AtomicBool>,
    barrier: Barrier,
    value: UnsafeCell<T>,
}

// SAFETY: only the writer changes the value, while there are no readers. Otherwise several threads only read it.
unsafe impl<T: Send + Sync> Sync for EtsPointer<T> {}
// SAFETY: the owner of the lock owns the value.
unsafe impl<T: Send> Send for EtsPointer<T> {}

/// A lock held for writing. Dropping it frees the lock.
struct Held<'a>(&'a AtomicBool);

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release pairs with the Acquire parts of the readers' and the writers' loads.
        self.0.store(false, Ordering::Release);
    }
}

/// A reader's announcement. Dropping it withdraws the announcement.
struct Announced<'a>(&'a AtomicPtr<()>);

impl Drop for Announced<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release pairs with the Acquire part of the writer's load: this thread's reads come before the writer's
        // writes.
        self.0.store(ptr::null_mut(), Ordering::Release);
    }
}

impl<T> EtsPointer<T> {
    fn name(&self) -> *mut () {
        ptr::from_ref(&self.writer).cast_mut().cast()
    }

    #[inline]
    fn announce(&self, guard: &Guard) -> Announced<'_> {
        let pointer = &own(guard).ets_pointer;
        debug_assert!(
            // Relaxed: this thread's own.
            pointer.load(Ordering::Relaxed).is_null(),
            "a thread reads one table at a time"
        );
        // SeqCst: the store of a store-load pair, whose load is the check for a writer.
        pointer.store(self.name(), Ordering::SeqCst);
        store_load_fence();
        Announced(pointer)
    }

    fn is_read(&self) -> bool {
        // SeqCst: the loads of the writer's store-load pair. The Acquire part pairs with the Release that withdraws an
        // announcement.
        records().any(|record| record.ets_pointer.load(Ordering::SeqCst) == self.name())
    }

    #[inline]
    fn lock(&self) -> Result<Held<'_>, Busy> {
        let mut held = None;
        for _ in 0..SPINS {
            // Relaxed: a first look, before the exchange. SeqCst: the store of a store-load pair. Its Acquire part
            // pairs with the Release of the last writer.
            if held.is_none()
                && !self.writer.load(Ordering::Relaxed)
                && !self.barrier.is_raised()
                && self
                    .writer
                    .compare_exchange(false, true, Ordering::SeqCst, Ordering::Relaxed)
                    .is_ok()
            {
                // Also a store-load pair with the making of records: a thread whose record is not found below sees the
                // writer.
                fence(Ordering::SeqCst);
                held = Some(Held(&self.writer));
            }
            if held.is_some() && !self.is_read() {
                return held.ok_or(Busy);
            }
            spin_loop();
        }
        Err(Busy)
    }
}

impl<T: Send + Sync> TableLock<T> for EtsPointer<T> {
    /// There are no reader groups.
    fn new(value: T, _groups: usize) -> Self {
        Self {
            writer: Line::default(),
            barrier: Barrier::default(),
            value: UnsafeCell::new(value),
        }
    }

    #[inline]
    fn read_here<R>(&self, look: impl FnOnce(&T) -> R) -> Result<R, Busy> {
        // While pinned, the thread keeps its record.
        let guard = pin();
        let mut raised = None;
        for spin in 0..SPINS {
            // Relaxed, the first time: a hint that spares useless announcements.
            // SeqCst, the second time: the load of a store-load pair, after the announcement. Its Acquire part pairs
            // with the Release of the last writer.
            if !self.writer.load(Ordering::Relaxed) {
                let announced = self.announce(&guard);
                if !self.writer.load(Ordering::SeqCst) {
                    drop(raised);
                    // SAFETY: this thread has announced itself, and saw no writer after that. So no writer goes on
                    // before this thread withdraws.
                    let result = look(unsafe { &*self.value.get() });
                    drop(announced);
                    return Ok(result);
                }
            }
            if spin == PATIENCE {
                raised = Some(self.barrier.raise());
            }
            spin_loop();
        }
        Err(Busy)
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
