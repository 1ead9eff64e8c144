//! The bucket locks, whose number may follow contention.
//!
//! Source: Klaftenegger, Sagonas, Winblad, "On the Scalability of the Erlang Term Storage", Erlang 2013, sections 3.2,
//! 3.4 and 6.1. The adaptive number and its constants are those of Erlang/OTP since release 25.
//!
//! The low bits of a hash select the lock of its bucket. All keys of a bucket share these bits, and so do both halves
//! of a split, because there are never more locks than buckets. Only the holder of the table lock for writing replaces
//! the array.

use crate::bucket_lock::BucketLock;
use crate::lock::read_indicator::ReadIndicator;
use cats_sync::epoch::Guard;
use cats_sync::facade::{AtomicUsize, Ordering};
use cats_sync::slab;
use std::ptr::NonNull;

/// The number of locks of a table that adapts it: the smallest (and initial) and the largest.
pub const LEAST: usize = 64;
const MOST: usize = 8192;
/// Statistics at which the number of locks doubles or halves.
const DOUBLE_ABOVE: i32 = 1000;
/// The tests do not wait that long.
const HALVE_BELOW: i32 = if cfg!(test) { -100_000 } else { -10_000_000 };

/// See the module's documentation.
pub struct Locks {
    /// The address of the array. The low six bits hold the binary logarithm of its length. One word holds both, so a
    /// reader always sees a matching pair.
    word: AtomicUsize,
    /// Reader groups of each lock, as long as there are few locks.
    groups: usize,
}

/// The largest number of bucket locks with which they have reader groups, as in Erlang/OTP.
const GROUPED: usize = 128;

fn groups_of(count: usize, groups: usize) -> usize {
    if count <= GROUPED && groups > 1 {
        groups
    } else {
        0
    }
}

/// Makes `count` locks. `entries` gives the number of entries that each lock guards. `None` when memory is exhausted.
fn array(count: usize, groups: usize, entries: impl Fn(usize) -> i64) -> Option<usize> {
    let groups = groups_of(count, groups);
    let memory = slab::alloc(count * size_of::<BucketLock>())?.cast::<BucketLock>();
    for i in 0..count {
        // SAFETY: new memory for as many locks; the slab aligns multiples of 64 to 64.
        unsafe { memory.add(i).write(BucketLock::new(entries(i), groups)) };
    }
    Some(memory.as_ptr() as usize | count.ilog2() as usize)
}

#[inline]
fn count_of(word: usize) -> usize {
    1 << (word & 63)
}

#[inline]
fn address_of(word: usize) -> *mut BucketLock {
    (word & !63) as *mut BucketLock
}

/// Frees an array. A guard may call it.
///
/// # Safety
/// The address is that of an array of this many locks, which nobody uses any more.
unsafe fn free(address: *mut u8, count: usize) {
    let locks = address.cast::<BucketLock>();
    // SAFETY: the caller's promise; the memory came from the slab with this size.
    unsafe {
        (0..count).for_each(|i| locks.add(i).drop_in_place());
        slab::free(NonNull::new_unchecked(address), count * size_of::<BucketLock>());
    }
}

/// The lock that guards the bucket of a hash.
#[inline]
pub fn lock_of(locks: &[BucketLock], hash: u64) -> &BucketLock {
    &locks[(hash >> 2) as usize & (locks.len() - 1)]
}

impl Locks {
    /// This many locks, a power of two, each with this many reader groups (1 for none). `None` when memory is
    /// exhausted.
    pub fn new(count: usize, groups: usize) -> Option<Self> {
        assert!(count.is_power_of_two());
        Some(Self {
            word: AtomicUsize::new(array(count, groups, |_| 0)?),
            groups,
        })
    }

    /// The bytes of the locks.
    pub fn bytes(&self, guard: &Guard) -> usize {
        let locks = self.get(guard);
        size_of_val(locks) + locks.len() * groups_of(locks.len(), self.groups) * ReadIndicator::BYTES_OF_GROUP
    }

    /// The present locks. They stay while the table lock is held. The guard keeps them alive for a thread that only
    /// reads their counts.
    #[inline]
    pub fn get<'g>(&'g self, _: &'g Guard) -> &'g [BucketLock] {
        // Acquire pairs with the Release of `replace`.
        let word = self.word.load(Ordering::Acquire);
        // SAFETY: the array has this length. It is freed only after the guards that could find it.
        unsafe { std::slice::from_raw_parts(address_of(word), count_of(word)) }
    }

    /// The number of locks that this lock's statistic calls for, if it differs from `count`, and resets the statistic.
    #[inline]
    pub fn wish(lock: &BucketLock, count: usize) -> Option<usize> {
        let statistic = lock.statistic();
        if (HALVE_BELOW..=DOUBLE_ABOVE).contains(&statistic) {
            return None;
        }
        lock.reset();
        let wished = if statistic > 0 { 2 * count } else { count / 2 };
        (LEAST..=MOST).contains(&wished).then_some(wished)
    }

    /// Replaces the locks by twice or half as many. The caller holds the table lock for writing. False when memory is exhausted: then the
    /// number stays the same.
    pub fn replace(&self, guard: &Guard, count: usize) -> bool {
        let old = self.get(guard);
        let n = old.len();
        let entries = |i: usize| match count > n {
            // An estimate for each half. The sum is exact.
            true if i < n => old[i].entries() - old[i].entries() / 2,
            true => old[i - n].entries() / 2,
            false => old[i].entries() + old[i + count].entries(),
        };
        let Some(new) = array(count, self.groups, entries) else {
            return false;
        };
        // Release: a thread that finds the locks sees them complete.
        self.word.store(new, Ordering::Release);
        let (address, bytes) = (old.as_ptr().cast_mut().cast(), size_of_val(old));
        // SAFETY: replaced just now. It is an array of this many locks.
        unsafe { guard.retire_sized(address, old.len(), free, bytes) };
        true
    }
}

impl Drop for Locks {
    fn drop(&mut self) {
        // Relaxed: nobody else uses the table.
        let word = self.word.load(Ordering::Relaxed);
        // SAFETY: nobody else uses the table.
        unsafe { free(address_of(word).cast(), count_of(word)) };
    }
}
