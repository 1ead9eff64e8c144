//! Buckets by number, in segments that never move.
//!
//! Bucket 0 is a segment, then each power of two begins one that holds the buckets up to the next, and from bucket 256
//! on a segment has 256. So a small table is small, and growing copies no bucket. The large segments are found through
//! an array, 16 bytes for 38 KiB; when it is full, a copy of twice the length takes its place and it is retired.
//! Segments come and go with the buckets at the end; those that go are retired, through the epoch guard, too.
//!
//! Invariant: the buckets that are not in use (beyond the table's size, or in a segment that was given back) are locked
//! for good. A thread with an old idea of the table's size can't mistake one for a bucket in use.

use super::bucket::{self, Block, Bucket, Head};
use cats_sync::epoch::Guard;
use cats_sync::facade::{AtomicPtr, AtomicUsize, Ordering};
use cats_sync::slab;
use std::ptr;

/// Buckets of a large segment.
const LARGE: usize = 256;
/// Segments of lower numbers.
const SMALL_SEGMENTS: usize = LARGE.ilog2() as usize + 1;
/// The largest number of buckets.
pub const MAX: usize = 1 << 40;

/// See the module's documentation.
pub struct Directory {
    /// The segments of buckets below `LARGE`.
    small: [Segment; SMALL_SEGMENTS],
    /// The segments of the other buckets, by number divided by `LARGE` (the first is not used).
    large: AtomicPtr<Segment>,
    /// The length of that array. Of interest only to who changes the directory.
    capacity: AtomicUsize,
}

/// A segment's heads and blocks: the addresses that those of bucket 0 would have if the segment began with it, so that who seeks a
/// bucket need not know where it begins.
struct Segment {
    /// Null while the segment is not in use.
    heads: AtomicPtr<Head>,
    /// Of interest only to who has found heads.
    blocks: AtomicPtr<Block>,
}

impl Segment {
    fn new(heads: *mut Head, blocks: *mut Block) -> Self {
        Self {
            heads: AtomicPtr::new(heads),
            blocks: AtomicPtr::new(blocks),
        }
    }

    /// The bucket of a number, which is the segment's.
    #[inline]
    fn bucket<'g>(&self, _: &'g Guard, number: usize) -> Option<Bucket<'g>> {
        // Acquire, both, pairs with the Release of `make`. The heads first: they are stored last. If this is another segment's
        // blocks by then, those heads are locked for good, and who looks at the lock sees it.
        let heads = self.heads.load(Ordering::Acquire);
        let blocks = self.blocks.load(Ordering::Acquire);
        if heads.is_null() {
            return None;
        }
        // SAFETY: a segment in the directory has a bucket of this number, and is freed only after the guards that could
        // find it: its blocks, too, as they are in the directory until others take their place.
        Some(unsafe {
            Bucket {
                head: &*heads.wrapping_add(number),
                block: &*blocks.wrapping_add(number),
            }
        })
    }

    /// Makes the segment's `count` buckets from number `first` on, if there are none, adding to `bytes` what they take; false when
    /// memory is exhausted.
    fn make(&self, first: usize, count: usize, bytes: &AtomicUsize) -> bool {
        if !self.heads.load(Ordering::Relaxed).is_null() {
            return true;
        }
        let Some(blocks) = slab::alloc(count * size_of::<Block>()) else {
            return false;
        };
        let Some(heads) = slab::alloc(count * size_of::<Head>()) else {
            // SAFETY: just allocated with this size.
            unsafe { slab::free(blocks, count * size_of::<Block>()) };
            return false;
        };
        let (heads, blocks) = (heads.as_ptr().cast(), blocks.as_ptr().cast());
        // SAFETY: new memory of these sizes; the slab aligns to 8, and multiples of 64 to 64.
        unsafe {
            Head::init(heads, count);
            Block::init(blocks, count);
        }
        bytes.fetch_add(count * BUCKET, Ordering::Relaxed);
        self.blocks.store(blocks.wrapping_sub(first), Ordering::Release);
        self.heads.store(heads.wrapping_sub(first), Ordering::Release);
        true
    }

    /// Gives the memory of the segment's `count` buckets from number `first` on to `free`, if it has any. The caller is the only one
    /// who changes the segment.
    fn clear(&self, first: usize, count: usize, mut free: impl FnMut(*mut u8, usize)) {
        // Relaxed: whoever still finds it may use it. No exchanges, as nobody else changes it, and most segments of a small table
        // that is dropped have nothing.
        let heads = self.heads.load(Ordering::Relaxed);
        if heads.is_null() {
            return;
        }
        let blocks = self.blocks.load(Ordering::Relaxed);
        self.heads.store(ptr::null_mut(), Ordering::Relaxed);
        free(heads.wrapping_add(first).cast(), count * size_of::<Head>());
        free(blocks.wrapping_add(first).cast(), count * size_of::<Block>());
    }
}

/// The bytes of a bucket.
const BUCKET: usize = size_of::<Head>() + size_of::<Block>();

/// The small segment of each bucket below `LARGE`: the length of its number, in bits.
static SMALL_SEGMENT: [u8; LARGE] = {
    let mut segments = [0; LARGE];
    let mut number = 1;
    while number < LARGE {
        segments[number] = number.ilog2() as u8 + 1;
        number += 1;
    }
    segments
};

/// The first bucket of a small segment, and how many it has.
fn small_buckets(segment: usize) -> (usize, usize) {
    let first = 1 << segment >> 1;
    (first, first.max(1))
}

impl Directory {
    /// Without any bucket.
    pub fn new() -> Self {
        Self {
            small: std::array::from_fn(|_| Segment::new(ptr::null_mut(), ptr::null_mut())),
            large: AtomicPtr::new(ptr::null_mut()),
            capacity: AtomicUsize::new(0),
        }
    }

    /// The bucket of that number, which is or was in use since the guard was made, unless its segment was given back.
    #[inline]
    pub fn bucket<'g>(&self, guard: &'g Guard, number: usize) -> Option<Bucket<'g>> {
        let segment = match SMALL_SEGMENT.get(number) {
            Some(segment) => &self.small[usize::from(*segment)],
            None => self.large_segment(number),
        };
        segment.bucket(guard, number)
    }

    /// The segment of a bucket from `LARGE` on.
    #[inline]
    fn large_segment(&self, number: usize) -> &Segment {
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
        if let Some(segment) = SMALL_SEGMENT.get(number) {
            let segment = usize::from(*segment);
            let (first, count) = small_buckets(segment);
            return self.small[segment].make(first, count, bytes);
        }
        if number / LARGE >= self.capacity.load(Ordering::Relaxed) && !self.lengthen(guard, bytes) {
            return false;
        }
        let first = number / LARGE * LARGE;
        self.large_segment(number).make(first, LARGE, bytes)
    }

    /// Puts an array of twice the length in place of the one for the large segments; false when memory is exhausted.
    #[cold]
    fn lengthen(&self, guard: &Guard, bytes: &AtomicUsize) -> bool {
        const SLOT: usize = size_of::<Segment>();
        let old = self.large.load(Ordering::Relaxed);
        let length = self.capacity.load(Ordering::Relaxed);
        let new_length = (2 * length).max(8);
        let Some(new) = slab::alloc(new_length * SLOT) else {
            return false;
        };
        let new = new.as_ptr().cast::<Segment>();
        for i in 0..new_length {
            let segment = if i < length {
                // SAFETY: the old array has this length.
                let old = unsafe { &*old.add(i) };
                Segment::new(old.heads.load(Ordering::Relaxed), old.blocks.load(Ordering::Relaxed))
            } else {
                Segment::new(ptr::null_mut(), ptr::null_mut())
            };
            // SAFETY: the new array has this length, and is this thread's own.
            unsafe { new.add(i).write(segment) };
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

    /// The memory of all segments and of the array.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        let length = self.capacity.load(Ordering::Relaxed);
        // SAFETY: the array has this length.
        let large = (0..length).map(|i| (unsafe { &*self.large.load(Ordering::Acquire).add(i) }, LARGE));
        let small = self.small.iter().zip((0..).map(|segment| small_buckets(segment).1));
        let segments = small.chain(large);
        let made = segments.filter(|(segment, _)| !segment.heads.load(Ordering::Relaxed).is_null());
        made.map(|(_, count)| count * BUCKET).sum::<usize>() + length * size_of::<Segment>()
    }

    /// Takes out the segment that begins with bucket `number`, if one does, and gives its memory to `free`, subtracting from
    /// `bytes`. The caller is the only one who changes the directory, and no bucket from there on is in use.
    pub fn cut(&self, number: usize, bytes: &AtomicUsize, free: impl FnMut(*mut u8, usize)) {
        let (segment, (first, count)) = match SMALL_SEGMENT.get(number) {
            Some(segment) => (&self.small[usize::from(*segment)], small_buckets(usize::from(*segment))),
            None => (self.large_segment(number), (number / LARGE * LARGE, LARGE)),
        };
        if number == first && !segment.heads.load(Ordering::Relaxed).is_null() {
            bytes.fetch_sub(count * BUCKET, Ordering::Relaxed);
            segment.clear(first, count, free);
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
            let (first, count) = small_buckets(i);
            segment.clear(first, count, free);
        }
        for i in 0..length {
            // SAFETY: the array has this length.
            unsafe { &*array.add(i) }.clear(i * LARGE, LARGE, free);
        }
        free(array.cast(), length * size_of::<Segment>());
    }
}

/// Retires what [`Directory::cut`] took out of a table in use.
pub fn retire(guard: &Guard) -> impl FnMut(*mut u8, usize) + '_ {
    // SAFETY: it is in the directory no more, and came from the slab with this size.
    |memory, bytes| unsafe { guard.retire_sized(memory, bytes, bucket::free, bytes) }
}
