//! Multiple-reader queue delegation (MRQD): a readers-writer lock whose writers delegate their critical sections to the
//! holder.
//!
//! Source: Klaftenegger, Sagonas, Winblad, "Queue delegation locking", TPDS 2018. For its use in ETS: Sagonas and
//! others, "Robust Scalable Erlang Virtual Machine", RELEASE deliverable D2.4, 2015, section 3.4.3. The three steps of
//! that port are the values of [`Delegation`].
//!
//! The thread that takes the lock opens the [queue](super::qd), *then* waits for the readers to leave. Then it runs its
//! own section and those in the queue. A detached operation takes effect with its reservation in the queue. A later
//! reader or writer finds the lock taken until the operation is done.

use super::call::{contain, uncontain, Call};
use super::qd::{DelegationQueue, LONGEST};
use super::read_indicator::{enter, Barrier, ReadIndicator};
use super::{Line, Operation, Queued, TableLock, SPINS};
use cats_sync::facade::{spin_loop, AtomicBool, Ordering};
use cats_sync::Busy;
use std::cell::UnsafeCell;
use std::ptr;

/// How an operation is handled whose caller does not wait for the result: the three steps in which the RELEASE project
/// ported ETS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delegation {
    /// The caller waits nevertheless.
    Wait,
    /// The arguments are copied to the heap.
    Malloc,
    /// The arguments are copied into the queue.
    #[default]
    Copy,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Mrqd<T> {
    held: Line<AtomicBool>,
    queue: DelegationQueue<T>,
    readers: ReadIndicator,
    barrier: Barrier,
    delegation: Delegation,
    value: UnsafeCell<T>,
}

// SAFETY: only the thread that set `held` changes the value, while there are no readers. Otherwise several threads only
// read it. A section that another thread runs is `Send`, or its caller promises that any thread may run it.
unsafe impl<T: Send + Sync> Sync for Mrqd<T> {}
// SAFETY: the owner of the lock owns the value.
unsafe impl<T: Send> Send for Mrqd<T> {}

/// A section in its caller's frame.
struct Waiting<F, R> {
    call: Call<F, R>,
    done: AtomicBool,
}

/// Runs the section whose address is in the payload.
///
/// # Safety
/// It is the address of a `Waiting<F, R>` whose owner waits until it is done, and which may run on this thread.
unsafe fn run_waiting<T, F: FnOnce(&mut T) -> R, R>(value: &mut T, payload: &[u64]) {
    // SAFETY: the caller's promise. The owner only reads `done` meanwhile.
    let waiting = unsafe { &*(payload[0] as *const Waiting<F, R>) };
    // SAFETY: as above.
    unsafe { waiting.call.perform(value) };
    // Release: the owner sees the result. After this store the section may be freed.
    waiting.done.store(true, Ordering::Release);
}

/// An operation on the heap.
struct Boxed<T> {
    operation: Operation<T>,
    words: Box<[u64]>,
}

/// Runs the operation whose address is in the payload, and frees it.
///
/// # Safety
/// It is the address of a `Boxed<T>`, made into a raw pointer and passed here once.
unsafe fn run_boxed<T>(value: &mut T, payload: &[u64]) {
    // SAFETY: the caller's promise.
    let boxed = unsafe { Box::from_raw(payload[0] as *mut Boxed<T>) };
    // SAFETY: promised by the caller that detached it.
    unsafe { (boxed.operation)(value, &boxed.words) };
}

impl<T: Send + Sync> Mrqd<T> {
    /// A free lock. See [`TableLock::new`].
    pub fn with_delegation(value: T, groups: usize, delegation: Delegation) -> Self {
        Self {
            held: Line::default(),
            queue: DelegationQueue::default(),
            readers: ReadIndicator::new(groups),
            barrier: Barrier::default(),
            delegation,
            value: UnsafeCell::new(value),
        }
    }

    /// Takes the lock if it is free.
    #[inline]
    fn try_lock(&self) -> bool {
        // Relaxed: a first look, before the swap. SeqCst: the store of a store-load pair, whose load is in
        // `wait_empty`. Its Acquire part pairs with the Release of the last holder.
        !self.held.load(Ordering::Relaxed)
            && self
                .held
                .compare_exchange(false, true, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
    }

    /// Runs the holder's own section and those of others, and frees the lock. If its own section panicked, resumes the
    /// panic after that.
    #[inline]
    fn session<R>(&self, own: impl FnOnce(&mut T) -> R) -> R {
        self.queue.open();
        self.readers.wait_empty();
        // SAFETY: this thread has set `held`, and saw no readers after that. No other thread makes such a reference
        // meanwhile.
        let value = unsafe { &mut *self.value.get() };
        let result = contain(|| own(value));
        self.queue.flush(value);
        // Release pairs with the Acquire parts of the readers' and the writers' loads.
        self.held.store(false, Ordering::Release);
        uncontain(result)
    }

    /// Delegates a section by `enqueue`, or takes the lock and returns false. Fails if neither succeeds for long.
    #[inline]
    fn leave_or_lock(&self, mut enqueue: impl FnMut() -> bool) -> Result<bool, Busy> {
        for _ in 0..SPINS {
            if !self.barrier.is_raised() {
                if self.try_lock() {
                    return Ok(false);
                }
                if enqueue() {
                    return Ok(true);
                }
            }
            spin_loop();
        }
        Err(Busy)
    }
}

impl<T: Send + Sync> TableLock<T> for Mrqd<T> {
    fn new(value: T, groups: usize) -> Self {
        Self::with_delegation(value, groups, Delegation::default())
    }

    #[inline]
    fn read_here<R>(&self, look: impl FnOnce(&T) -> R) -> Result<R, Busy> {
        // SeqCst: the load of a store-load pair, after the arrival. Its Acquire part pairs with the Release of the last holder.
        let writer = || self.held.load(Ordering::SeqCst);
        let _arrival = enter(&self.readers, &self.barrier, writer)?;
        // SAFETY: this thread is counted as a reader, and saw no holder after that. So no holder goes on before this
        // thread departs.
        Ok(look(unsafe { &*self.value.get() }))
    }

    #[inline]
    fn write_here<R>(&self, change: impl FnOnce(&mut T) -> R) -> Result<R, Busy> {
        self.leave_or_lock(|| false)?;
        Ok(self.session(change))
    }

    #[inline]
    fn write<R: Send>(&self, change: impl FnOnce(&mut T) -> R + Send) -> Result<R, Busy> {
        fn runner<T, F: FnOnce(&mut T) -> R, R>(_: &Waiting<F, R>) -> Operation<T> {
            run_waiting::<T, F, R>
        }
        let waiting = Waiting {
            call: Call::new(change),
            done: AtomicBool::new(false),
        };
        let (run, payload) = (runner::<T, _, R>(&waiting), [ptr::from_ref(&waiting) as u64]);
        // SAFETY: this thread waits below until the section is done. The section and the result are `Send`.
        if self.leave_or_lock(|| unsafe { self.queue.enqueue(run, &payload) })? {
            let mut queued = Queued::default();
            // Acquire pairs with the Release of `run_waiting`.
            while !waiting.done.load(Ordering::Acquire) {
                queued.wait();
            }
        } else {
            // SAFETY: no other thread knows the section.
            self.session(|value| unsafe { waiting.call.perform(value) });
        }
        Ok(waiting.call.result())
    }

    #[inline]
    fn detaches(&self) -> bool {
        self.delegation != Delegation::Wait
    }

    #[inline]
    unsafe fn detach(&self, operation: Operation<T>, words: &[u64]) -> Result<(), Busy> {
        if self.delegation == Delegation::Wait {
            // SAFETY: the caller's promise.
            return self.write(|value| unsafe { operation(value, words) });
        }
        let left = if self.delegation == Delegation::Copy && words.len() <= LONGEST {
            // SAFETY: the caller's promise.
            self.leave_or_lock(|| unsafe { self.queue.enqueue(operation, words) })
        } else {
            let words = words.into();
            let boxed = Box::into_raw(Box::new(Boxed { operation, words }));
            // SAFETY: made above. The queue runs it once, and the caller has promised for what it holds.
            let left = self.leave_or_lock(|| unsafe { self.queue.enqueue(run_boxed, &[boxed as u64]) });
            if left != Ok(true) {
                // SAFETY: made above, and not delegated.
                drop(unsafe { Box::from_raw(boxed) });
            }
            left
        };
        if !left? {
            // SAFETY: the caller's promise.
            self.session(|value| unsafe { operation(value, words) });
        }
        Ok(())
    }

    fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}
