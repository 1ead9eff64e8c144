//! A value that one thread at a time uses. A thread that finds it in use for long goes on without it. For what may get lost, such as
//! samples.

use crate::facade::{spin_loop, AtomicBool, Ordering};
use std::cell::UnsafeCell;

/// How often a thread looks whether the value is free.
const SPINS: u32 = 200;

/// See the module's documentation.
#[derive(Debug)]
pub struct TryCell<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time has access to the value, which may be sent.
unsafe impl<T: Send> Sync for TryCell<T> {}

/// Frees the value, even if its user panics.
struct Taken<'a>(&'a AtomicBool);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        // Release pairs with the Acquire of `with`: the next user sees what this one wrote.
        self.0.store(false, Ordering::Release);
    }
}

impl<T> TryCell<T> {
    pub fn new(value: T) -> Self {
        Self {
            taken: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Runs `f` with the value. `None` if another thread has it too long.
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        for _ in 0..SPINS {
            // Relaxed: a first look. Acquire: see `Taken`.
            if !self.taken.load(Ordering::Relaxed) && !self.taken.swap(true, Ordering::Acquire) {
                let _taken = Taken(&self.taken);
                // SAFETY: this thread alone has taken it.
                return Some(f(unsafe { &mut *self.value.get() }));
            }
            spin_loop();
        }
        None
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::panic::{catch_unwind, AssertUnwindSafe};
    use std::thread;

    #[test]
    fn one_thread_at_a_time_has_the_value() {
        let cell = TryCell::new(0_u64);
        let done: u64 = thread::scope(|scope| {
            let add = || (0..10_000).filter(|_| cell.with(|value| *value += 1).is_some()).count() as u64;
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(add)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(cell.with(|value| *value), Some(done));
    }

    #[test]
    fn a_value_in_use_is_done_without_and_a_panic_frees_it() {
        let cell = TryCell::new(0_u64);
        assert_eq!(cell.with(|_| cell.with(|_| ())), Some(None));
        let panicked = catch_unwind(AssertUnwindSafe(|| cell.with(|_| panic!("on purpose"))));
        assert!(panicked.is_err() && cell.with(|_| ()).is_some());
    }
}
