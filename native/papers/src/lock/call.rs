//! A critical section in the caller's frame, with space for its result. The caller waits for it.

use std::cell::UnsafeCell;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::thread;

/// Runs a section and catches its panic, which belongs to the thread that wants the result.
#[inline]
pub fn contain<R>(section: impl FnOnce() -> R) -> thread::Result<R> {
    // A panic leaves the value as it does under any lock. The section itself must take care of invariants.
    catch_unwind(AssertUnwindSafe(section))
}

/// The result of a contained section. Resumes its panic, if there was one.
#[inline]
pub fn uncontain<R>(result: thread::Result<R>) -> R {
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

/// See the module's documentation.
pub struct Call<F, R> {
    section: UnsafeCell<Option<F>>,
    result: UnsafeCell<Option<thread::Result<R>>>,
}

impl<F, R> Call<F, R> {
    #[inline]
    pub fn new(section: F) -> Self {
        Self {
            section: UnsafeCell::new(Some(section)),
            result: UnsafeCell::new(None),
        }
    }

    /// Runs the section, unless it has run.
    ///
    /// # Safety
    /// No other thread uses the call now. If this is not its owner's thread, the section and the result are `Send`.
    #[inline]
    pub unsafe fn perform<T>(&self, value: &mut T)
    where
        F: FnOnce(&mut T) -> R,
    {
        // SAFETY: the caller's promise.
        if let Some(section) = unsafe { &mut *self.section.get() }.take() {
            let result = contain(|| section(value));
            // SAFETY: as above.
            unsafe { *self.result.get() = Some(result) };
        }
    }

    /// The result of a section that has run. Resumes its panic, if there was one.
    #[inline]
    pub fn result(self) -> R {
        uncontain(self.result.into_inner().expect("the section was performed"))
    }
}
