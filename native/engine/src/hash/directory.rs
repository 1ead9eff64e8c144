//! Buckets by number, in segments that never move.
//!
//! Bucket 0 is a segment, then each power of two begins one that holds the buckets up to the next, and from bucket 1024
//! on a segment has 1024. So a small table is small, and growing copies no bucket. The large segments are found through
//! an array, 8 bytes for 128 KiB; when it is full, a copy of twice the length takes its place and it is retired.
//! Segments come and go with the buckets at the end; those that go are retired, through the epoch guard, too.
//!
//! Invariant: the buckets that are not in use (beyond the table's size, or in a segment that was given back) are locked
//! for good. A thread with an old idea of the table's size can't mistake one for a bucket in use.

use super::bucket::{self, Bucket, BYTES};
use cats_sync::epoch::Guard;
use cats_sync::facade::{AtomicPtr, AtomicUsize, Ordering};
use cats_sync::slab;
use std::ptr::{self, NonNull};

/// Buckets of a large segment.
const LARGE: usize = 256;
/// Segments of lower numbers.
const SMALL_SEGMENTS: usize = LARGE.ilog2() as usize + 1;
/// The largest number of buckets.
pub const MAX: usize = 1 << 40;

/// See the module's documentation.
pub struct Directory {
    /// The segments of buckets below `LARGE`; null while not in use.
    small: [AtomicPtr<Bucket>; SMALL_SEGMENTS],
    /// The segments of the other buckets, by number divided by `LARGE` (the first is not used); null while not in use.
    large: AtomicPtr<AtomicPtr<Bucket>>,
    /// The length of that array. Of interest only to who changes the directory.
    capacity: AtomicUsize,
}

/// The small segment of a bucket, and its place there, which is the first bucket's distance from a power of two.
#[inline]
fn locate(number: usize) -> (usize, usize) {
    let segment = number.checked_ilog2().map_or(0, |log| log as usize + 1);
    (segment, number - (1 << segment >> 1))
}

/// Buckets of a small segment.
fn small_buckets(segment: usize) -> usize {
    (1 << segment >> 1).max(1)
}

impl Directory {
    /// Without any bucket.
    pub fn new() -> Self {
        Self {
            small: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            large: AtomicPtr::new(ptr::null_mut()),
            capacity: AtomicUsize::new(0),
        }
    }

    /// The bucket of that number, which is or was in use since the guard was made, unless its segment was given back.
    #[inline]
    pub fn bucket<'g>(&self, _: &'g Guard, number: usize) -> Option<&'g Bucket> {
        let (slot, within) = if number >= LARGE {
            (self.large_slot(number), number % LARGE)
        } else {
            let (segment, within) = locate(number);
            (&self.small[segment], within)
        };
        // Acquire pairs with the Release of `extend`: the buckets were made before.
        let segment = slot.load(Ordering::Acquire);
        // SAFETY: a segment in the directory has a bucket of this number, and is freed only after the guards that could
        // find it.
        (!segment.is_null()).then(|| unsafe { &*segment.add(within) })
    }

    /// The place in the array for the segment of a bucket from `LARGE` on.
    #[inline]
    fn large_slot(&self, number: usize) -> &AtomicPtr<Bucket> {
        // Acquire pairs with the Release of `lengthen`: the array was filled before.
        let array = self.large.load(Ordering::Acquire);
        // SAFETY: the array is long enough for all buckets that were ever in use, as it only ever becomes longer, and
        // who knows of a number knows of a size that was stored after the array for it. It is freed only after the
        // guards that could find it, and `self` does not outlive it.
        unsafe { &*array.add(number / LARGE) }
    }

    /// Makes sure that there is memory for a bucket whose predecessors have it, adding to `bytes` what it takes; false
    /// when memory is exhausted. The caller is the only one who changes the directory.
    pub fn extend(&self, guard: &Guard, number: usize, bytes: &AtomicUsize) -> bool {
        let (slot, count) = if number < LARGE {
            let (segment, _) = locate(number);
            (&self.small[segment], small_buckets(segment))
        } else {
            if number / LARGE >= self.capacity.load(Ordering::Relaxed) && !self.lengthen(guard, bytes) {
                return false;
            }
            (self.large_slot(number), LARGE)
        };
        if slot.load(Ordering::Relaxed).is_null() {
            let Some(buckets) = slab::alloc(count * BYTES) else {
                return false;
            };
            // SAFETY: new memory of this size; the slab aligns multiples of 64 to 64.
            unsafe { Bucket::init(buckets.as_ptr().cast(), count) };
            bytes.fetch_add(count * BYTES, Ordering::Relaxed);
            slot.store(buckets.as_ptr().cast(), Ordering::Release);
        }
        true
    }

    /// Puts an array of twice the length in place of the one for the large segments; false when memory is exhausted.
    #[cold]
    fn lengthen(&self, guard: &Guard, bytes: &AtomicUsize) -> bool {
        const SLOT: usize = size_of::<AtomicPtr<Bucket>>();
        let old = self.large.load(Ordering::Relaxed);
        let length = self.capacity.load(Ordering::Relaxed);
        let new_length = (2 * length).max(8);
        let Some(new) = slab::alloc(new_length * SLOT) else {
            return false;
        };
        let new = new.as_ptr().cast::<AtomicPtr<Bucket>>();
        for i in 0..new_length {
            let segment = if i < length {
                // SAFETY: the old array has this length.
                unsafe { &*old.add(i) }.load(Ordering::Relaxed)
            } else {
                ptr::null_mut()
            };
            // SAFETY: the new array has this length, and is this thread's own.
            unsafe { new.add(i).write(AtomicPtr::new(segment)) };
        }
        self.large.store(new, Ordering::Release);
        self.capacity.store(new_length, Ordering::Relaxed);
        bytes.fetch_add((new_length - length) * SLOT, Ordering::Relaxed);
        if length > 0 {
            // SAFETY: replaced just now; it came from the slab with this size.
            unsafe { guard.retire_sized(old.cast(), length * SLOT, bucket::free, length * SLOT) }
        }
        true
    }

    /// Takes out the segment that begins with bucket `number`, if one does, and gives it to `free`, subtracting from
    /// `bytes`. The caller is the only one who changes the directory, and no bucket from there on is in use.
    pub fn cut(&self, number: usize, bytes: &AtomicUsize, free: impl FnOnce(NonNull<u8>, usize)) {
        let (slot, count) = if number < LARGE {
            let (segment, within) = locate(number);
            (
                &self.small[segment],
                if within == 0 { small_buckets(segment) } else { 0 },
            )
        } else {
            (
                self.large_slot(number),
                if number.is_multiple_of(LARGE) { LARGE } else { 0 },
            )
        };
        if count == 0 {
            return;
        }
        let segment = slot.load(Ordering::Relaxed);
        // Relaxed: whoever still finds it may use it.
        slot.store(ptr::null_mut(), Ordering::Relaxed);
        if let Some(segment) = NonNull::new(segment) {
            bytes.fetch_sub(count * BYTES, Ordering::Relaxed);
            free(segment.cast(), count * BYTES);
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let length = self.capacity.load(Ordering::Relaxed);
        let array = self.large.load(Ordering::Relaxed);
        let free = |memory: *mut u8, bytes| {
            // SAFETY: nobody else uses the directory; its memory came from the slab with these sizes.
            unsafe { bucket::free(memory, bytes) }
        };
        for (i, segment) in self.small.iter().enumerate() {
            free(segment.load(Ordering::Relaxed).cast(), small_buckets(i) * BYTES);
        }
        for i in 0..length {
            // SAFETY: the array has this length.
            let segment = unsafe { &*array.add(i) }.load(Ordering::Relaxed);
            free(segment.cast(), LARGE * BYTES);
        }
        free(array.cast(), length * size_of::<AtomicPtr<Bucket>>());
    }
}

/// Retires what [`Directory::cut`] took out of a table in use.
pub fn retire(guard: &Guard) -> impl FnOnce(NonNull<u8>, usize) + '_ {
    // SAFETY: it is in the directory no more, and came from the slab with this size.
    |memory, bytes| unsafe { guard.retire_sized(memory.as_ptr(), bytes, bucket::free, bytes) }
}
