//! The bucket locks: how many there are, and how contention changes that.
//!
//! Source: 003 sections 3.2, 3.4 and 6.1; that the number adapts, the Erlang VM since OTP 25 (ALGORITHMS section 6.4, whence the
//! constants).
//!
//! The lock of a bucket is found by the low bits of the hash, which all keys of the bucket share; so do both halves of
//! a split, as there are never more locks than buckets. The array is replaced only by the holder of the table lock for writing.

use cats_sync::bucket_lock::BucketLock;
use cats_sync::epoch::Guard;
use cats_sync::facade::{AtomicUsize, Ordering};
use cats_sync::lock::read_indicator::ReadIndicator;
use cats_sync::slab;
use std::ptr::NonNull;

/// Locks of a table that adapts their number: at first and at least, and at most.
pub const LEAST: usize = 64;
const MOST: usize = 8192;
/// Statistics at which the number is to be doubled or halved.
const DOUBLE_ABOVE: i32 = 1000;
const HALVE_BELOW: i32 = -10_000_000;

/// See the module's documentation.
pub struct Locks {
    /// The address of the array, with the logarithm of its length in the low six bits: one word, so that both are of one time.
    word: AtomicUsize,
    /// Reader groups of each lock, as long as there are few locks.
    groups: usize,
}

/// Reader groups are for tables with this many bucket locks at most, as in the Erlang VM.
const GROUPED: usize = 128;

fn groups_of(count: usize, groups: usize) -> usize {
    if count <= GROUPED && groups > 1 {
        groups
    } else {
        0
    }
}

/// Makes `count` locks, the lock of each number over as many entries as `entries` says; nothing when memory is exhausted.
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

/// Frees an array, for the guard too.
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
    /// So many locks, a power of two, each with so many reader groups (1 for none); nothing when memory is exhausted.
    pub fn new(count: usize, groups: usize) -> Option<Self> {
        assert!(count.is_power_of_two());
        Some(Self {
            word: AtomicUsize::new(array(count, groups, |_| 0)?),
            groups,
        })
    }

    /// The memory that they take.
    pub fn bytes(&self, guard: &Guard) -> usize {
        let locks = self.get(guard);
        size_of_val(locks) + locks.len() * groups_of(locks.len(), self.groups) * ReadIndicator::BYTES_OF_GROUP
    }

    /// The locks now; they stay so as long as the table lock is held. The guard keeps them alive for who only looks at their
    /// counts.
    #[inline]
    pub fn get<'g>(&'g self, _: &'g Guard) -> &'g [BucketLock] {
        // Acquire pairs with the Release of `replace`.
        let word = self.word.load(Ordering::Acquire);
        // SAFETY: the array has this length, and is freed only after the guards that could find it.
        unsafe { std::slice::from_raw_parts(address_of(word), count_of(word)) }
    }

    /// What a lock of which there are `count` wishes for: another number, or nothing. Forgets about its wish.
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

    /// Puts twice or half as many locks in the place of those there are. The caller holds the table lock for writing.
    pub fn replace(&self, guard: &Guard, count: usize) {
        let old = self.get(guard);
        let n = old.len();
        let entries = |i: usize| match count > n {
            // An estimate of each half, whose sum is right.
            true if i < n => old[i].entries() - old[i].entries() / 2,
            true => old[i - n].entries() / 2,
            false => old[i].entries() + old[i + count].entries(),
        };
        // Without memory there are as many as before.
        let Some(new) = array(count, self.groups, entries) else {
            return;
        };
        // Release: who finds the locks finds them made.
        self.word.store(new, Ordering::Release);
        let (address, bytes) = (old.as_ptr().cast_mut().cast(), size_of_val(old));
        // SAFETY: replaced just now; an array of this many.
        unsafe { guard.retire_sized(address, old.len(), free, bytes) };
    }
}

impl Drop for Locks {
    fn drop(&mut self) {
        let word = self.word.load(Ordering::Relaxed);
        // SAFETY: nobody else uses the table.
        unsafe { free(address_of(word).cast(), count_of(word)) };
    }
}
