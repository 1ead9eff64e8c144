//! Buckets by number, in segments that never move: one of 256 buckets, then 2048 buckets each, as in Erlang/OTP.
//!
//! The segments are found through an array with 8 bytes for each. When it is full, a copy of twice the length replaces
//! it. The old array is retired, because other threads may be reading it. A segment is freed at once. The user of a
//! bucket holds its lock, and a segment is removed only after all its buckets were merged away, each under its lock.

use super::chain::Link;
use cats_sync::epoch::Guard;
use cats_sync::facade::{AtomicPtr, AtomicUsize, Ordering};
use cats_sync::slab;
use std::ptr::{self, NonNull};

/// Buckets of the first segment.
pub const FIRST: usize = if cfg!(shuttle) { 2 } else { 256 };
/// Buckets of each other segment.
const SEGMENT: usize = if cfg!(shuttle) { 2 } else { 2048 };
/// The largest number of buckets.
pub const MAX: usize = 1 << 40;

type Slot = AtomicPtr<Link>;

/// See the module's documentation.
pub struct Directory {
    /// The segments; null where none is in use.
    /// Release, for a new array, pairs with the Acquire of `slot`. The thread that changes the directory loads it Relaxed.
    segments: AtomicPtr<Slot>,
    /// The length of that array. Only the thread that changes the directory reads it.
    /// Relaxed: a plain number of that thread.
    capacity: AtomicUsize,
    /// Bytes of the array and the segments. Always Relaxed: a statistic.
    bytes: AtomicUsize,
}

/// The number of a bucket's segment, and the bucket's index there.
#[inline]
fn locate(number: usize) -> (usize, usize) {
    match number.checked_sub(FIRST) {
        None => (0, number),
        Some(rest) => (1 + rest / SEGMENT, rest % SEGMENT),
    }
}

fn segment_bytes(segment: usize) -> usize {
    size_of::<Link>() * if segment == 0 { FIRST } else { SEGMENT }
}

/// Frees memory of the slab, unless the address is null.
///
/// # Safety
/// An address that is not null came from [`slab::alloc`] with this size.
unsafe fn free(address: *mut u8, bytes: usize) {
    if let Some(block) = NonNull::new(address) {
        // SAFETY: the caller's promise.
        unsafe { slab::free(block, bytes) }
    }
}

impl Directory {
    /// A directory without buckets.
    pub fn new() -> Self {
        Self {
            segments: AtomicPtr::new(ptr::null_mut()),
            capacity: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
        }
    }

    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The address of a bucket that is in use. It stays in use because the caller holds its lock.
    #[inline]
    pub fn bucket(&self, guard: &Guard, number: usize) -> *mut Link {
        let (segment, within) = locate(number);
        // Relaxed: the segment was stored before the size with which the bucket came into use.
        let segment = self.slot(guard, segment).load(Ordering::Relaxed);
        debug_assert!(!segment.is_null());
        // SAFETY: the segment of a bucket in use is in the directory, and has a bucket of this number.
        unsafe { segment.add(within) }
    }

    #[inline]
    fn slot<'g>(&'g self, _: &'g Guard, segment: usize) -> &'g Slot {
        // Acquire pairs with the Release of `lengthen`: the array was filled before.
        let array = self.segments.load(Ordering::Acquire);
        // SAFETY: the array never becomes shorter, and was long enough before the segment came into use. It is freed
        // only after the guards that could find it.
        unsafe { &*array.add(segment) }
    }

    /// Makes sure that there is memory for a bucket whose predecessors have it. False when memory is exhausted. Only
    /// the caller changes the directory.
    pub fn extend(&self, guard: &Guard, number: usize) -> bool {
        let (segment, _) = locate(number);
        if segment >= self.capacity.load(Ordering::Relaxed) && !self.lengthen(guard) {
            return false;
        }
        let slot = self.slot(guard, segment);
        // Relaxed: only the caller changes it.
        if slot.load(Ordering::Relaxed).is_null() {
            let bytes = segment_bytes(segment);
            let Some(links) = slab::alloc(bytes) else { return false };
            // SAFETY: new memory of this size. Zeros are null links.
            unsafe { links.write_bytes(0, bytes) };
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
            // Relaxed: a thread finds it only through a size that is stored later.
            slot.store(links.as_ptr().cast(), Ordering::Relaxed);
        }
        true
    }

    /// Replaces the array by one of twice the length. False when memory is exhausted.
    #[cold]
    fn lengthen(&self, guard: &Guard) -> bool {
        let old = self.segments.load(Ordering::Relaxed);
        let length = self.capacity.load(Ordering::Relaxed);
        let new_length = (2 * length).max(4);
        let Some(new) = slab::alloc(new_length * size_of::<Slot>()) else {
            return false;
        };
        let new = new.cast::<Slot>().as_ptr();
        for i in 0..new_length {
            let segment = if i < length {
                // SAFETY: the old array has this length.
                // Relaxed: only the caller changes it.
                unsafe { &*old.add(i) }.load(Ordering::Relaxed)
            } else {
                ptr::null_mut()
            };
            // SAFETY: the new array has this length, and belongs to this thread.
            unsafe { new.add(i).write(Slot::new(segment)) };
        }
        self.segments.store(new, Ordering::Release);
        self.capacity.store(new_length, Ordering::Relaxed);
        let bytes = |length| length * size_of::<Slot>();
        self.bytes.fetch_add(bytes(new_length - length), Ordering::Relaxed);
        if length > 0 {
            // SAFETY: replaced just now. It came from the slab with this size.
            unsafe { guard.retire_sized(old.cast(), bytes(length), free, bytes(length)) }
        }
        true
    }

    /// Frees the segment that starts with bucket `number`, if one does. Only the caller changes the directory, and no
    /// bucket from `number` on is in use.
    pub fn cut(&self, guard: &Guard, number: usize) {
        let (segment, 0) = locate(number) else { return };
        let slot = self.slot(guard, segment);
        // Relaxed, for both: only the caller changes it, and nobody finds it any more.
        let links = slot.load(Ordering::Relaxed);
        slot.store(ptr::null_mut(), Ordering::Relaxed);
        self.bytes.fetch_sub(segment_bytes(segment), Ordering::Relaxed);
        // SAFETY: it came from the slab with this size. No thread is in it. Any former user held the lock of a bucket
        // while the bucket was in use, and the merge of that bucket waited for the lock.
        unsafe { free(links.cast(), segment_bytes(segment)) };
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let length = self.capacity.load(Ordering::Relaxed);
        let array = self.segments.load(Ordering::Relaxed);
        for segment in 0..length {
            // SAFETY: the array has this length. Nobody else uses the directory, whose memory came from the slab with
            // these sizes.
            unsafe {
                free(
                    // Relaxed: as nobody else uses it.
                    (*array.add(segment)).load(Ordering::Relaxed).cast(),
                    segment_bytes(segment),
                )
            };
        }
        // SAFETY: as above.
        unsafe { free(array.cast(), length * size_of::<Slot>()) };
    }
}
