//! Buckets by number, in segments that never move.
//!
//! Bucket 0 is a segment. Each power of two starts a segment that reaches to the next, and from bucket 256 on each
//! segment has 256 buckets. So a small table is small, and growing copies no bucket. The large segments are found
//! through an array with 16 bytes for each. When it is full, a copy of twice the length replaces it, and the old array
//! is retired. Segments come and go with the buckets at the end. Freed segments are retired through the epoch guard,
//! too.
//!
//! Invariant: buckets that are not in use stay locked. These are buckets beyond the table's size, or in a segment that
//! was given back. So a thread with a stale size cannot mistake one for a bucket in use.
//!
//! Orderings: one thread at a time changes the directory, under the table's lock for that, which orders what these threads read and write
//! among themselves. So their loads are Relaxed. What others find, they publish with Release. The count of bytes orders nothing: Relaxed.

use super::bucket::{self, Block, Bucket, Head};
use cats_sync::cache_line;
use cats_sync::epoch::Guard;
use cats_sync::facade::{AtomicPtr, AtomicUsize, Ordering};
use cats_sync::slab;
use std::ptr;

/// Buckets of a large segment.
const LARGE: usize = 256;
/// The number of segments below bucket `LARGE`.
const SMALL_SEGMENTS: usize = LARGE.ilog2() as usize + 1;
/// The largest number of buckets.
pub const MAX: usize = 1 << 40;

/// See the module's documentation.
pub struct Directory<const WORDS: usize> {
    /// The segments of the buckets below `LARGE`.
    small: [Segment<WORDS>; SMALL_SEGMENTS],
    /// The segments of the other buckets, by bucket number divided by `LARGE`. The first element is not used.
    large: AtomicPtr<Segment<WORDS>>,
    /// The length of that array. Only the thread that changes the directory reads it.
    capacity: AtomicUsize,
}

/// The heads and blocks of a segment. Both addresses are those that bucket 0 would have if the segment started with it.
/// So a search for a bucket need not know where its segment starts.
struct Segment<const WORDS: usize> {
    /// Null while the segment is not in use.
    heads: AtomicPtr<Head>,
    /// Only valid if the heads are not null.
    blocks: AtomicPtr<Block<WORDS>>,
}

impl<const WORDS: usize> Segment<WORDS> {
    fn new(heads: *mut Head, blocks: *mut Block<WORDS>) -> Self {
        Self {
            heads: AtomicPtr::new(heads),
            blocks: AtomicPtr::new(blocks),
        }
    }

    /// The bucket with a number that belongs to this segment.
    #[inline]
    fn bucket<'g>(&self, _: &'g Guard, number: usize) -> Option<Bucket<'g, WORDS>> {
        // Acquire, for both, pairs with the Release of `make`. The heads are read first because they are stored last.
        // If the blocks by now belong to a newer segment, the old heads stay locked, and every user of a bucket checks
        // its lock.
        let heads = self.heads.load(Ordering::Acquire);
        let blocks = self.blocks.load(Ordering::Acquire);
        if heads.is_null() {
            return None;
        }
        // SAFETY: a segment in the directory has a bucket of this number. It is freed only after the guards that could
        // find it. So are its blocks, which stay in the directory until others replace them.
        Some(unsafe {
            Bucket {
                head: &*heads.wrapping_add(number),
                block: &*blocks.wrapping_add(number),
            }
        })
    }

    /// Makes the segment's `count` buckets from number `first` on, unless it has them. Adds their size to `bytes`.
    /// False when memory is exhausted.
    fn make(&self, first: usize, count: usize, bytes: &AtomicUsize) -> bool {
        // Relaxed: only the caller changes the segment.
        if !self.heads.load(Ordering::Relaxed).is_null() {
            return true;
        }
        let Some(blocks) = slab::alloc(count * size_of::<Block<WORDS>>()) else {
            return false;
        };
        let Some(heads) = slab::alloc(head_bytes(count)) else {
            // SAFETY: just allocated with this size.
            unsafe { slab::free(blocks, count * size_of::<Block<WORDS>>()) };
            return false;
        };
        let (heads, blocks) = (heads.as_ptr().cast(), blocks.as_ptr().cast());
        // SAFETY: new memory of these sizes; the slab aligns to 8, and multiples of 64 to 64.
        unsafe {
            Head::init(heads, count);
            Block::init(blocks, count);
        }
        // Relaxed: a figure.
        bytes.fetch_add(segment_bytes::<WORDS>(count), Ordering::Relaxed);
        // Release, for both: publishes the buckets, and with the heads also the blocks.
        self.blocks.store(blocks.wrapping_sub(first), Ordering::Release);
        self.heads.store(heads.wrapping_sub(first), Ordering::Release);
        true
    }

    /// Passes the memory of the segment's `count` buckets from number `first` on to `free`, if it has any. Only the
    /// caller changes the segment.
    fn clear(&self, first: usize, count: usize, mut free: impl FnMut(*mut u8, usize)) {
        // Relaxed: others may still find and use the memory. Plain loads and stores, because nobody else changes the
        // segment, and most segments of a small table are empty.
        let heads = self.heads.load(Ordering::Relaxed);
        if heads.is_null() {
            return;
        }
        // Relaxed, for both: as above.
        let blocks = self.blocks.load(Ordering::Relaxed);
        self.heads.store(ptr::null_mut(), Ordering::Relaxed);
        free(heads.wrapping_add(first).cast(), head_bytes(count));
        free(blocks.wrapping_add(first).cast(), count * size_of::<Block<WORDS>>());
    }
}

/// The bytes of the heads of `count` buckets. They are whole cache lines, which are shared with no other table.
fn head_bytes(count: usize) -> usize {
    (count * size_of::<Head>()).next_multiple_of(cache_line::BYTES)
}

/// The bytes of a segment of `count` buckets.
fn segment_bytes<const WORDS: usize>(count: usize) -> usize {
    head_bytes(count) + count * size_of::<Block<WORDS>>()
}

/// The bytes of the segment that starts with bucket `number`. 0 if none does.
pub fn bytes_from<const WORDS: usize>(number: usize) -> usize {
    let (first, count) = match SMALL_SEGMENT.get(number) {
        Some(segment) => small_buckets(usize::from(*segment)),
        None => (number / LARGE * LARGE, LARGE),
    };
    if number == first {
        segment_bytes::<WORDS>(count)
    } else {
        0
    }
}

/// The largest number of buckets that fill their segments, if these have so many bytes together. At least 1.
pub fn buckets_within<const WORDS: usize>(bytes: usize) -> usize {
    let (mut buckets, mut left) = (1, bytes.saturating_sub(segment_bytes::<WORDS>(1)));
    while buckets < LARGE && left >= segment_bytes::<WORDS>(buckets) {
        left -= segment_bytes::<WORDS>(buckets);
        buckets *= 2;
    }
    match buckets {
        LARGE => (LARGE + left / segment_bytes::<WORDS>(LARGE) * LARGE).min(MAX),
        _ => buckets,
    }
}

/// The number of the small segment of each bucket below `LARGE`: the bit length of the bucket number.
static SMALL_SEGMENT: [u8; LARGE] = {
    let mut segments = [0; LARGE];
    let mut number = 1;
    while number < LARGE {
        segments[number] = number.ilog2() as u8 + 1;
        number += 1;
    }
    segments
};

/// The first bucket of a small segment, and the number of its buckets.
fn small_buckets(segment: usize) -> (usize, usize) {
    let first = 1 << segment >> 1;
    (first, first.max(1))
}

impl<const WORDS: usize> Directory<WORDS> {
    /// A directory without buckets.
    pub fn new() -> Self {
        Self {
            small: std::array::from_fn(|_| Segment::new(ptr::null_mut(), ptr::null_mut())),
            large: AtomicPtr::new(ptr::null_mut()),
            capacity: AtomicUsize::new(0),
        }
    }

    /// The bucket with this number, which is in use or was since the guard was made. `None` if its segment was given
    /// back.
    #[inline]
    pub fn bucket<'g>(&self, guard: &'g Guard, number: usize) -> Option<Bucket<'g, WORDS>> {
        let segment = match SMALL_SEGMENT.get(number) {
            Some(segment) => &self.small[usize::from(*segment)],
            None => self.large_segment(number),
        };
        segment.bucket(guard, number)
    }

    /// The segment of a bucket from number `LARGE` on.
    #[inline]
    fn large_segment(&self, number: usize) -> &Segment<WORDS> {
        // Acquire pairs with the Release of `lengthen`: the array was filled before.
        let array = self.large.load(Ordering::Acquire);
        // SAFETY: the array never becomes shorter, so it is long enough for all buckets that were ever in use. A thread
        // that uses a number has read a size that was stored after the array for it. The array is freed only after the
        // guards that could find it, and `self` does not outlive it.
        unsafe { &*array.add(number / LARGE) }
    }

    /// Makes sure that there is memory for a bucket whose predecessors have it. Adds its size to `bytes`. False when
    /// memory is exhausted. Only the caller changes the directory.
    pub fn extend(&self, guard: &Guard, number: usize, bytes: &AtomicUsize) -> bool {
        if let Some(segment) = SMALL_SEGMENT.get(number) {
            let segment = usize::from(*segment);
            let (first, count) = small_buckets(segment);
            return self.small[segment].make(first, count, bytes);
        }
        // Relaxed: only the caller changes the directory.
        if number / LARGE >= self.capacity.load(Ordering::Relaxed) && !self.lengthen(guard, bytes) {
            return false;
        }
        let first = number / LARGE * LARGE;
        self.large_segment(number).make(first, LARGE, bytes)
    }

    /// Replaces the array for the large segments by one of twice the length. False when memory is exhausted.
    #[cold]
    fn lengthen(&self, guard: &Guard, bytes: &AtomicUsize) -> bool {
        let slot_bytes = size_of::<Segment<WORDS>>();
        // Relaxed, for all loads here: only the caller changes the directory.
        let old = self.large.load(Ordering::Relaxed);
        let length = self.capacity.load(Ordering::Relaxed);
        let new_length = (2 * length).max(8);
        let Some(new) = slab::alloc(new_length * slot_bytes) else {
            return false;
        };
        let new = new.as_ptr().cast::<Segment<WORDS>>();
        for i in 0..new_length {
            let segment = if i < length {
                // SAFETY: the old array has this length.
                let old = unsafe { &*old.add(i) };
                // Relaxed: as above.
                Segment::new(old.heads.load(Ordering::Relaxed), old.blocks.load(Ordering::Relaxed))
            } else {
                Segment::new(ptr::null_mut(), ptr::null_mut())
            };
            // SAFETY: the new array has this length, and belongs to this thread.
            unsafe { new.add(i).write(segment) };
        }
        // Release: publishes the array.
        self.large.store(new, Ordering::Release);
        // Relaxed, for both: only who changes the directory reads the capacity, and the bytes are a figure.
        self.capacity.store(new_length, Ordering::Relaxed);
        bytes.fetch_add((new_length - length) * slot_bytes, Ordering::Relaxed);
        if length > 0 {
            // SAFETY: replaced just now. It came from the slab with this size.
            unsafe { guard.retire_sized(old.cast(), length * slot_bytes, bucket::free, length * slot_bytes) }
        }
        true
    }

    /// The bytes of all segments and of the array.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        // Relaxed: a test looks when nobody changes the directory.
        let length = self.capacity.load(Ordering::Relaxed);
        // SAFETY: the array has this length.
        let large = (0..length).map(|i| (unsafe { &*self.large.load(Ordering::Acquire).add(i) }, LARGE));
        let small = self.small.iter().zip((0..).map(|segment| small_buckets(segment).1));
        let segments = small.chain(large);
        let made = segments.filter(|(segment, _)| !segment.heads.load(Ordering::Relaxed).is_null());
        made.map(|(_, count)| segment_bytes::<WORDS>(count)).sum::<usize>() + length * size_of::<Segment<WORDS>>()
    }

    /// Takes out the segment that starts with bucket `number`, if one does. Passes its memory to `free` and subtracts
    /// its size from `bytes`. Only the caller changes the directory, and no bucket from `number` on is in use.
    pub fn cut(&self, number: usize, bytes: &AtomicUsize, free: impl FnMut(*mut u8, usize)) {
        let (segment, (first, count)) = match SMALL_SEGMENT.get(number) {
            Some(segment) => (&self.small[usize::from(*segment)], small_buckets(usize::from(*segment))),
            None => (self.large_segment(number), (number / LARGE * LARGE, LARGE)),
        };
        // Relaxed, for both: only the caller changes the directory, and the bytes are a figure.
        if number == first && !segment.heads.load(Ordering::Relaxed).is_null() {
            bytes.fetch_sub(segment_bytes::<WORDS>(count), Ordering::Relaxed);
            segment.clear(first, count, free);
        }
    }
}

impl<const WORDS: usize> Drop for Directory<WORDS> {
    fn drop(&mut self) {
        // Relaxed, for both: nobody else has the directory any more.
        let length = self.capacity.load(Ordering::Relaxed);
        let array = self.large.load(Ordering::Relaxed);
        let free = |memory: *mut u8, bytes| {
            // SAFETY: nobody else uses the directory. Its memory came from the slab with these sizes.
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
        free(array.cast(), length * size_of::<Segment<WORDS>>());
    }
}

/// Retires what [`Directory::cut`] took out of a table in use.
pub fn retire(guard: &Guard) -> impl FnMut(*mut u8, usize) + '_ {
    // SAFETY: it is no longer in the directory, and came from the slab with this size.
    |memory, bytes| unsafe { guard.retire_sized(memory, bytes, bucket::free, bytes) }
}
