//! Marks: what an optimistic read saw, so that several reads can be validated together.

use cats_sync::epoch::Guard;
use cats_sync::version_lock::VersionLock;
use std::marker::PhantomData;
use std::ptr;

/// The lock of a place that was read, and its version at that time.
///
/// Several marks are taken, and later all are asked. If all hold, everything that was read was so at one instant. That
/// instant is after the last read, and before the first question.
#[derive(Clone, Copy)]
pub struct Mark<'g> {
    lock: &'g VersionLock,
    version: u64,
    guard: PhantomData<&'g Guard>,
}

impl<'g> Mark<'g> {
    pub(crate) fn new(lock: &'g VersionLock, version: u64) -> Self {
        Self {
            lock,
            version,
            guard: PhantomData,
        }
    }

    /// Whether nobody has locked the place since the mark was taken.
    #[inline]
    pub fn holds(&self) -> bool {
        self.lock.validate(self.version)
    }

    /// What [`Locked::held`](crate::Locked::held) shows if the place is locked and was unchanged until then.
    #[inline]
    pub fn place(&self) -> HeldPlace {
        HeldPlace::new(self.lock, self.version)
    }
}

/// A lock that an operation holds, and the version at which it took the lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeldPlace {
    lock: *const VersionLock,
    version: u64,
}

impl HeldPlace {
    #[inline]
    pub(crate) fn new(lock: &VersionLock, version: u64) -> Self {
        Self {
            lock: ptr::from_ref(lock),
            version,
        }
    }
}
