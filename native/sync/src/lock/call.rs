//! A section that its caller waits for, in the caller's frame, with a place for its result.

use std::cell::UnsafeCell;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::thread;

/// Runs a section so that its panic reaches nobody but the one that asks for its result.
#[inline]
pub fn contain<R>(section: impl FnOnce() -> R) -> thread::Result<R> {
    // A section that panics leaves the value as a section that panics under any lock does: its invariants are the section's care.
    catch_unwind(AssertUnwindSafe(section))
}

/// The result of a contained section, or its panic.
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

    /// Runs the section, unless that was done.
    ///
    /// # Safety
    /// No other thread uses the call now. If this is not its owner's thread, section and result may be sent between the two.
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

    /// The result of a section that was performed; goes on with its panic, if that is how it ended.
    #[inline]
    pub fn result(self) -> R {
        uncontain(self.result.into_inner().expect("the section was performed"))
    }
}
