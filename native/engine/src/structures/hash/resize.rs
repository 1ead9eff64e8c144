//! Growing and shrinking, a few buckets at a time, without waiting.
//!
//! The load is estimated, so that an insertion need not write a shared counter. The hash chooses one key in eight to be
//! counted. Only insertions into overflow blocks check the estimate, about a quarter of all at full load. So a small
//! table may also grow a little because its buckets are crowded.

use super::bucket::more;
use super::directory;
use super::{Hash, Held, Line};
use crate::{Busy, Engine, Schema};
use cats_sync::epoch::Guard;
use cats_sync::events::{Adaptation, Event};
use cats_sync::facade::Ordering;
use cats_sync::probe;
use cats_sync::trace::Kind;
use std::time::Instant;

/// A deletion that leaves at most this many entries in its bucket checks whether to shrink.
pub const LONELY: usize = 2;
/// The table grows at this many entries a bucket, in tenths. It shrinks at half of it.
const LOAD: i64 = 68;
/// [`Hash::trim`] merges so many batches at most.
const MERGES: usize = 256;
/// With at most so many bytes, the table grows only if this part is left. So it does not grow and shrink by turns.
const SPARED: usize = 16;
/// Added to the estimated number of keys, so that a small table can grow before its sample is large.
const SLACK: i64 = 32;
/// From this size on, `BATCH` buckets are split or merged at once. So the size, which every call reads, is written less
/// often.
const BATCHED: usize = 16;
const BATCH: usize = 4;
/// From this size on, it is logged when the size comes to a power of two. Smaller tables have no log.
const LOGGED: usize = 1024;
/// The most batches for one update of a key.
const ROUNDS: u32 = 3;

/// The right to change the size.
struct Resizing<'a, S, const WORDS: usize>(&'a Hash<S, WORDS>);

impl<S, const WORDS: usize> Drop for Resizing<'_, S, WORDS> {
    fn drop(&mut self) {
        // Release pairs with the Acquire of `resizing`.
        self.0.growth.0.resizing.store(false, Ordering::Release);
    }
}

impl<S: Schema, const WORDS: usize> Hash<S, WORDS> {
    fn resizing(&self) -> Option<Resizing<'_, S, WORDS>> {
        let Line(growth, _) = &self.growth;
        // Relaxed: a first look, before the swap. Acquire: this thread sees the directory as the last holder left it.
        let taken = growth.resizing.load(Ordering::Relaxed) || growth.resizing.swap(true, Ordering::Acquire);
        (!taken).then(|| Resizing(self))
    }

    /// Ten times the estimated number of keys.
    fn keys(&self) -> i64 {
        // Relaxed: an estimate.
        10 * (8 * self.growth.0.sample.load(Ordering::Relaxed) + SLACK)
    }

    fn overfull(&self, size: usize) -> bool {
        // Relaxed: a number of its own.
        self.keys() >= LOAD * size as i64 && size < self.growth.0.most.load(Ordering::Relaxed) && self.may_grow(size)
    }

    /// Whether one more bucket takes no more bytes than the table may have.
    fn may_grow(&self, size: usize) -> bool {
        let Line(growth, _) = &self.growth;
        // Relaxed: a number of its own.
        let most = growth.most_bytes.load(Ordering::Relaxed);
        most == usize::MAX
            || match directory::bytes_from::<WORDS>(size) {
                0 => true,
                more => self.bytes() + more + most / SPARED <= most,
            }
    }

    fn underfull(&self, size: usize) -> bool {
        2 * self.keys() < LOAD * size as i64
    }

    /// Splits buckets if the load is too high. Called after this many keys were added to crowded buckets.
    #[inline(never)]
    pub(super) fn grow(&self, guard: &Guard, crowded: u32) {
        for _ in 0..ROUNDS.saturating_mul(crowded) {
            let size = self.size().buckets();
            if !self.overfull(size) || self.split(guard, size).is_none() {
                break;
            }
        }
    }

    /// Splits buckets until this many further keys crowd none. They will be added while nothing can be split.
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

    /// Merges buckets until the table takes at most so many bytes. It takes care not to take more from then on. Ends after a bounded time in
    /// any case. Fails if other threads were in the way.
    #[inline]
    pub fn trim(&self, guard: &Guard, most: usize) -> Result<(), Busy> {
        let Line(growth, _) = &self.growth;
        // Relaxed: a number of its own. The load first spares the line a write.
        if growth.most_bytes.load(Ordering::Relaxed) != most {
            growth.most_bytes.store(most, Ordering::Relaxed);
        }
        for _ in 0..MERGES {
            let size = self.size().buckets();
            if self.bytes() <= most || size == 1 {
                break;
            }
            self.merge(guard, size).ok_or(Busy)?;
        }
        Ok(())
    }

    /// Locks a bucket that is in use, if its lock is free.
    fn try_hold<'g>(&self, guard: &'g Guard, number: usize) -> Option<Held<'g, WORDS>> {
        let mut held = Held::new(self.bucket(guard, number)?)?;
        held.changed = false;
        Some(held)
    }

    /// Splits the next buckets of a table of `size` buckets. Does nothing if another thread changes the size or holds
    /// one of the locks, if there would be too many, or if memory is exhausted.
    #[cold]
    pub(super) fn split(&self, guard: &Guard, size: usize) -> Option<()> {
        let batch = if size < BATCHED { 1 } else { BATCH };
        // Relaxed: a number of its own.
        if size + batch > self.growth.0.most.load(Ordering::Relaxed) {
            return None;
        }
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
        // The new buckets have been locked since they were made or last in use. From here on this thread holds these
        // locks.
        self.set_size(size + batch);
        // Another thread may split the next buckets while these are being filled, because all of these are locked.
        drop(resizing);
        probe!(hash_grow, std::ptr::from_ref(self), size, size + batch);
        self.events().record(Kind::Grow, [size as u64, (size + batch) as u64]);
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
        self.resized(true, batch, size + batch);
        Some(())
    }

    /// Counts a change of the size by a batch, and logs it if it is one that leads to a power of two in a table that is not small.
    fn resized(&self, split: bool, batch: usize, buckets: usize) {
        if buckets < LOGGED || !buckets.is_power_of_two() {
            return self
                .events()
                .count(if split { Event::Split } else { Event::Join }, batch);
        }
        self.events().adapted(batch, || Adaptation {
            split,
            at: Instant::now(),
            number: buckets,
            key: None,
            bytes: 0,
        });
    }

    /// Merges the last buckets of a table of `size` buckets into those that they were once split from. Does nothing in
    /// the same cases as a split.
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
            // Entries of the block may need more overflow blocks. Those of an overflow block use the block that they
            // free.
            let missing = from.bucket.crowd().saturating_sub(to.bucket.room(guard));
            if !(0..missing.div_ceil(more(WORDS))).all(|_| spare.allocate()) {
                return None;
            }
            *pair = Some((to, from));
        }
        self.set_size(first);
        probe!(hash_shrink, std::ptr::from_ref(self), size, first);
        self.events().record(Kind::Shrink, [size as u64, first as u64]);
        for (mut to, from) in pairs.into_iter().flatten() {
            to.changed = true;
            from.bucket.divide(guard, to.bucket, &mut spare, |_| true);
            // It stays locked until it is in use again.
            std::mem::forget(from);
        }
        self.shared
            .0
            .directory
            .cut(first, &self.growth.0.bytes, directory::retire(guard));
        self.resized(false, batch, first);
        Some(())
    }
}
