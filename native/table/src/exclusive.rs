//! A value behind a lock that never parks: a waiter spins a bounded time and then reports `Busy`.

use cats_sync::version_lock::VersionLock;
use cats_sync::Busy;
use std::cell::UnsafeCell;

/// A value that one thread at a time may use.
#[derive(Debug, Default)]
pub struct Exclusive<T> {
    lock: VersionLock,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only by the holder of the lock, one thread at a time.
unsafe impl<T: Send> Sync for Exclusive<T> {}

struct Held<'a>(&'a VersionLock, u64);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.unlock(self.1);
    }
}

impl<T> Exclusive<T> {
    pub fn new(value: T) -> Self {
        Self {
            lock: VersionLock::default(),
            value: UnsafeCell::new(value),
        }
    }

    /// Runs `f` while no other thread uses the value. `f` must be short and not come back here.
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Result<R, Busy> {
        let (version, _) = self.lock.lock()?;
        Ok(self.use_at(version, f))
    }

    /// The same, if nobody uses the value now.
    pub fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        let version = self.lock.try_lock()?;
        Some(self.use_at(version, f))
    }

    /// This thread has taken the lock at this version.
    fn use_at<R>(&self, version: u64, f: impl FnOnce(&mut T) -> R) -> R {
        let _held = Held(&self.lock, version);
        // SAFETY: this thread holds the lock until `_held` is dropped.
        f(unsafe { &mut *self.value.get() })
    }
}
