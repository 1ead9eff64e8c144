//! Growing and shrinking, a bucket at a time. The operation that finds it due does it.
//!
//! The load is estimated from the number of entries that one lock guards. Hashes are evenly distributed, and each lock
//! has its share of the buckets.

use super::chain::Chain;
use super::locks::lock_of;
use super::{directory, to_write, LinearHash, Locking};
use crate::bucket_lock::BucketLock;
use cats_engine::{hash_of, Schema};
use cats_sync::epoch::Guard;
use cats_sync::facade::Ordering;

/// The table grows at more than one entry a bucket. It shrinks below one entry for this many buckets.
const SPARSE: i64 = 4;
/// The most buckets that are split or merged for one update of a key, as in Erlang/OTP.
const ROUNDS: usize = 5;

/// The right to change the size.
struct Resizing<'a, S>(&'a LinearHash<S>);

impl<S> Drop for Resizing<'_, S> {
    fn drop(&mut self) {
        // Release pairs with the Acquire of `resizing`.
        self.0.resizing.store(false, Ordering::Release);
    }
}

impl<S: Schema> LinearHash<S> {
    /// Grows or shrinks after the number of entries under a lock has changed, if it is due and no other thread is doing
    /// it. The caller holds no bucket lock.
    #[inline]
    pub(super) fn resize(&self, guard: &Guard, locking: Locking, lock: &BucketLock) {
        let locks = self.locks.get(guard);
        for _ in 0..ROUNDS {
            let size = self.size().buckets();
            let buckets = size as i64 >> locks.len().ilog2();
            let done = if lock.entries() > buckets {
                self.split(guard, locking, locks, size)
            } else if SPARSE * lock.entries() < buckets && size > directory::FIRST.max(locks.len()) {
                self.merge(guard, locking, locks, size)
            } else {
                None
            };
            if done.is_none() {
                break;
            }
        }
    }

    fn resizing(&self) -> Option<Resizing<'_, S>> {
        // Relaxed: a first look, before the swap. Acquire: this thread sees the directory as the last holder left it.
        let taken = self.resizing.load(Ordering::Relaxed) || self.resizing.swap(true, Ordering::Acquire);
        (!taken).then(|| Resizing(self))
    }

    /// A bucket by number. The caller holds its lock.
    fn bucket(&self, guard: &Guard, number: usize) -> Chain<'_> {
        // SAFETY: the caller's promise.
        unsafe { Chain::new(self.directory.bucket(guard, number)) }
    }

    /// Splits the next bucket of a table of `size` buckets. Does nothing if another thread changes the size, the lock
    /// is not free, or memory is exhausted.
    #[cold]
    fn split(&self, guard: &Guard, locking: Locking, locks: &[BucketLock], size: usize) -> Option<()> {
        let resizing = self.resizing()?;
        if self.size().buckets() != size || size >= directory::MAX || !self.directory.extend(guard, size) {
            return None;
        }
        let half = 1 << size.ilog2();
        // It is the lock of the new bucket, too.
        let _held = to_write(lock_of(locks, (size as u64) << 2), locking).ok()?;
        self.set_size(size + 1);
        // Another thread may split the next bucket meanwhile, because the new one is locked.
        drop(resizing);
        let moves = |key| hash_of(key) >> 2 & half as u64 != 0;
        self.bucket(guard, size - half).divide(self.bucket(guard, size), moves);
        Some(())
    }

    /// Merges the last bucket of a table of `size` buckets into the one that it was once split from. Does nothing in
    /// the same cases as a split.
    #[cold]
    fn merge(&self, guard: &Guard, locking: Locking, locks: &[BucketLock], size: usize) -> Option<()> {
        let _resizing = self.resizing()?;
        if self.size().buckets() != size {
            return None;
        }
        let last = size - 1;
        let half = 1 << last.ilog2();
        let held = to_write(lock_of(locks, (last as u64) << 2), locking).ok()?;
        self.set_size(last);
        self.bucket(guard, last)
            .divide(self.bucket(guard, last - half), |_| true);
        drop(held);
        self.directory.cut(guard, last);
        Some(())
    }
}
