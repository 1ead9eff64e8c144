//! Growing and shrinking, a few buckets at a time, waiting for nobody.
//!
//! The load is estimated, so that no insertion writes a counter that all share: one key in eight is counted (by its
//! hash), and only insertions into overflow blocks, about a quarter of them at full load, look at the count, so a small
//! table may also grow a little by crowding alone.

use super::bucket::MORE;
use super::{Hash, Held, Line};
use crate::Schema;
use cats_sync::epoch::Guard;
use cats_sync::facade::Ordering;

/// A deletion from a bucket with at most this many entries asks whether to shrink.
pub const LONELY: usize = 2;
/// Tenths of entries a bucket at which the table grows; at half of it, it shrinks.
const LOAD: i64 = 68;
/// Keys that the estimate is more than the count, so that small tables need no sample to be large enough.
const SLACK: i64 = 32;
/// From this size on, `BATCH` buckets are split or merged at once, so that the size, which all calls read, is written
/// less often.
const BATCHED: usize = 16;
const BATCH: usize = 4;
/// Batches for one update of a key at most.
const ROUNDS: u32 = 3;

/// The right to change the size.
struct Resizing<'a, S>(&'a Hash<S>);

impl<S> Drop for Resizing<'_, S> {
    fn drop(&mut self) {
        // Release pairs with the Acquire of `resizing`.
        self.0.growth.0.resizing.store(false, Ordering::Release);
    }
}

impl<S: Schema> Hash<S> {
    fn resizing(&self) -> Option<Resizing<'_, S>> {
        let Line(growth) = &self.growth;
        // Relaxed: only a first look. Acquire: the directory is as the last one left it.
        let taken = growth.resizing.load(Ordering::Relaxed) || growth.resizing.swap(true, Ordering::Acquire);
        (!taken).then(|| Resizing(self))
    }

    /// Ten times the estimated number of keys.
    fn keys(&self) -> i64 {
        10 * (8 * self.growth.0.sample.load(Ordering::Relaxed) + SLACK)
    }

    fn overfull(&self, size: usize) -> bool {
        self.keys() >= LOAD * size as i64 && size < super::directory::MAX
    }

    fn underfull(&self, size: usize) -> bool {
        2 * self.keys() < LOAD * size as i64
    }

    /// Splits buckets if the load is too high, after so many keys have been added to crowded ones.
    #[inline(never)]
    pub(super) fn grow(&self, guard: &Guard, crowded: u32) {
        for _ in 0..ROUNDS.saturating_mul(crowded) {
            let size = self.size().buckets();
            if !self.overfull(size) || self.split(guard, size).is_none() {
                break;
            }
        }
    }

    /// Splits buckets until so many keys more, all added while nothing can be split, would crowd none.
    #[inline]
    pub(super) fn grow_for(&self, guard: &Guard, more: usize) {
        loop {
            let size = self.size().buckets();
            if 10 * more as i64 <= LOAD * size as i64 || self.split(guard, size).is_none() {
                return;
            }
        }
    }

    /// Merges buckets if the load is too low.
    #[inline(never)]
    pub(super) fn shrink(&self, guard: &Guard) {
        for _ in 0..ROUNDS {
            let size = self.size().buckets();
            if !self.underfull(size) || self.merge(guard, size).is_none() {
                break;
            }
        }
    }

    /// Locks a bucket that is in use and whose lock is free.
    fn try_hold<'g>(&self, guard: &'g Guard, number: usize) -> Option<Held<'g>> {
        let mut held = Held::new(self.bucket(guard, number)?)?;
        held.changed = false;
        Some(held)
    }

    /// Splits the next buckets of a table that has `size` of them. Does nothing if somebody else changes the size or
    /// holds one of the locks, or memory is exhausted.
    #[cold]
    pub(super) fn split(&self, guard: &Guard, size: usize) -> Option<()> {
        let batch = if size < BATCHED { 1 } else { BATCH };
        let half = 1 << size.ilog2();
        let first = size - half;
        for i in 0..batch {
            if let Some(bucket) = self.bucket(guard, first + i) {
                bucket.prefetch();
            }
        }
        let mut spare = self.spare(guard);
        let mut from = [const { None }; BATCH];
        let resizing = self.resizing()?;
        if self.size().buckets() != size || !self.shared.0.directory.extend(guard, size, &self.growth.0.bytes) {
            return None;
        }
        for (i, from) in from[..batch].iter_mut().enumerate() {
            *from = Some(self.try_hold(guard, first + i)?);
        }
        // The new buckets are locked since they were made or last in use; from here on they are this thread's.
        self.set_size(size + batch);
        // The next ones may be split while these are still being filled: all of them are locked.
        drop(resizing);
        for (i, mut from) in from.into_iter().flatten().enumerate() {
            let bucket = self.bucket(guard, size + i).expect("a bucket in use");
            let to = Held {
                bucket,
                version: bucket.head.lock.held_version(),
                changed: true,
            };
            from.changed = true;
            from.bucket
                .divide(guard, to.bucket, &mut spare, |hash| hash >> 2 & half as u64 != 0);
        }
        Some(())
    }

    /// Merges the last buckets of a table that has `size` of them into those that they were once split from. Does
    /// nothing in the same cases.
    #[cold]
    pub(super) fn merge(&self, guard: &Guard, size: usize) -> Option<()> {
        let batch = if size <= BATCHED { 1 } else { BATCH };
        let first = size.checked_sub(batch).filter(|&first| first > 0)?;
        let half = 1 << (size - 1).ilog2();
        let mut spare = self.spare(guard);
        let _resizing = self.resizing()?;
        if self.size().buckets() != size {
            return None;
        }
        let mut pairs = [const { None }; BATCH];
        for (i, pair) in pairs[..batch].iter_mut().enumerate() {
            let to = self.try_hold(guard, first + i - half)?;
            let from = self.try_hold(guard, first + i)?;
            // The entries of the block may need more overflow blocks; those of an overflow block take its place.
            let missing = from.bucket.crowd().saturating_sub(to.bucket.room(guard));
            if !(0..missing.div_ceil(MORE)).all(|_| spare.allocate()) {
                return None;
            }
            *pair = Some((to, from));
        }
        self.set_size(first);
        for (mut to, from) in pairs.into_iter().flatten() {
            to.changed = true;
            from.bucket.divide(guard, to.bucket, &mut spare, |_| true);
            // Locked for good, or until it is in use again.
            std::mem::forget(from);
        }
        self.shared
            .0
            .directory
            .cut(first, &self.growth.0.bytes, super::directory::retire(guard));
        Some(())
    }
}
