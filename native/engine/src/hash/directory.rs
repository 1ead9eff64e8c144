//! Buckets by number, in segments that never move.
//!
//! Level 0 is bucket 0, level `l > 0` the buckets from `2^(l-1)` up to `2^l`. A level of up to 1024 buckets is one segment; a
//! larger one is an array of pointers to segments of 1024. So a small table is small, and growing copies nothing. Segments
//! come and go with the buckets at the end; those that go are retired through the epoch guard.
//!
//! Invariant: the buckets that are not in use (beyond the table's size, or in a segment that was given back) are locked for
//! good. A thread with an old idea of the table's size can't mistake one for a bucket in use.

use super::bucket::{self, Bucket, BYTES};
use cats_sync::epoch::Guard;
use cats_sync::facade::{AtomicPtr, AtomicUsize, Ordering};
use cats_sync::slab;
use std::ptr::{self, NonNull};

/// Buckets of a large level's segments.
const SEGMENT: usize = 1024;
/// The last level that is one segment.
const LAST_SMALL: usize = SEGMENT.ilog2() as usize;
/// Enough for `2^37` buckets.
const LEVELS: usize = 38;
/// The largest number of buckets.
pub const MAX: usize = 1 << (LEVELS - 1);

/// See the module's documentation.
#[derive(Debug)]
pub struct Directory {
    /// The address of the level's buckets, or of its array of segments; null while the level is not in use.
    levels: [AtomicPtr<u8>; LEVELS],
}

/// Where a bucket stands: its level, the segment's place in the level, the bucket's place in the segment.
#[inline]
fn locate(number: usize) -> (usize, usize, usize) {
    let level = (usize::BITS - number.leading_zeros()) as usize;
    let within = if number == 0 { 0 } else { number - (1 << (level - 1)) };
    if level <= LAST_SMALL {
        (level, 0, within)
    } else {
        (level, within / SEGMENT, within % SEGMENT)
    }
}

/// Buckets of a segment of the level.
fn segment_buckets(level: usize) -> usize {
    1 << level.saturating_sub(1).min(LAST_SMALL)
}

/// Bytes of the array of segments of a large level.
fn array_bytes(level: usize) -> usize {
    (8 << (level - 1)) / SEGMENT
}

impl Directory {
    /// Without any bucket.
    pub fn new() -> Self {
        Self {
            levels: [const { AtomicPtr::new(ptr::null_mut()) }; LEVELS],
        }
    }

    /// The bucket of that number, unless its segment was given back.
    #[inline]
    pub fn bucket<'g>(&self, _: &'g Guard, number: usize) -> Option<&'g Bucket> {
        let address = self.address(number);
        // SAFETY: a segment in the directory holds buckets, and is freed only after the guards that could find it there.
        unsafe { address.as_ref() }
    }

    /// The address of the bucket of that number, or null.
    #[inline]
    pub fn address(&self, number: usize) -> *const Bucket {
        let (level, segment, within) = locate(number);
        // Acquire, here and below: pairs with the Release of `extend`, the segment's contents were written before.
        let mut base = self.levels[level].load(Ordering::Acquire);
        if level > LAST_SMALL && !base.is_null() {
            // SAFETY: a large level is an array of this many pointers, freed only after the guards that could find it.
            base = unsafe { &*base.cast::<AtomicPtr<u8>>().add(segment) }.load(Ordering::Acquire);
        }
        if base.is_null() {
            return ptr::null();
        }
        base.cast::<Bucket>().wrapping_add(within)
    }

    /// Makes sure that there is memory for a bucket whose predecessors have it, adding to `bytes` what it takes; false when
    /// memory is exhausted. The caller is the only one who changes the directory.
    pub fn extend(&self, number: usize, bytes: &AtomicUsize) -> bool {
        let (level, segment, _) = locate(number);
        let Some(mut slot) = self.levels.get(level) else {
            return false;
        };
        if level > LAST_SMALL {
            if slot.load(Ordering::Relaxed).is_null() {
                let size = array_bytes(level);
                let Some(array) = slab::alloc(size) else { return false };
                // SAFETY: new memory of this size; zeros are null pointers.
                unsafe { array.as_ptr().write_bytes(0, size) };
                slot.store(array.as_ptr(), Ordering::Release);
                bytes.fetch_add(size, Ordering::Relaxed);
            }
            // SAFETY: as in `address`.
            slot = unsafe { &*slot.load(Ordering::Relaxed).cast::<AtomicPtr<u8>>().add(segment) };
        }
        if slot.load(Ordering::Relaxed).is_null() {
            let count = segment_buckets(level);
            let Some(buckets) = slab::alloc(count * BYTES) else {
                return false;
            };
            // SAFETY: new memory of this size; the slab aligns multiples of 64 to 64.
            unsafe { Bucket::init(buckets.as_ptr().cast(), count) };
            slot.store(buckets.as_ptr(), Ordering::Release);
            bytes.fetch_add(count * BYTES, Ordering::Relaxed);
        }
        true
    }

    /// Takes out what is needed only for buckets from `number` on, `number` being the first that is not in use, and gives it
    /// to `free`, subtracting from `bytes`. The caller is the only one who changes the directory.
    pub fn cut(&self, number: usize, bytes: &AtomicUsize, mut free: impl FnMut(NonNull<u8>, usize)) {
        let (level, segment, within) = locate(number);
        if within != 0 {
            return;
        }
        let mut give = |slot: &AtomicPtr<u8>, size| {
            let memory = slot.load(Ordering::Relaxed);
            // Relaxed: whoever still finds it may use it.
            slot.store(ptr::null_mut(), Ordering::Relaxed);
            if let Some(memory) = NonNull::new(memory) {
                bytes.fetch_sub(size, Ordering::Relaxed);
                free(memory, size);
            }
        };
        let root = &self.levels[level];
        let size = segment_buckets(level) * BYTES;
        if level <= LAST_SMALL {
            give(root, size);
        } else {
            let array = root.load(Ordering::Relaxed).cast::<AtomicPtr<u8>>();
            if !array.is_null() {
                // SAFETY: as in `address`.
                give(unsafe { &*array.add(segment) }, size);
                if segment == 0 {
                    give(root, array_bytes(level));
                }
            }
        }
    }
}

/// Retires what [`Directory::cut`] took out of a table in use.
pub fn retire(guard: &Guard) -> impl FnMut(NonNull<u8>, usize) + '_ {
    // SAFETY: it is in the directory no more, and came from the slab with this size.
    |memory, bytes| unsafe { guard.retire_sized(memory.as_ptr(), bytes, bucket::free, bytes) }
}
