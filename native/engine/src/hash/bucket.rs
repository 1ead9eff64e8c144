//! Buckets of 128 bytes with chained overflow buckets.
//!
//! A head bucket is two cache lines: a version lock and seven key words, then a link and seven bodies. Its lock protects its
//! whole chain. Writers hold it; readers read optimistically and validate the head's version.
//!
//! Invariants, whenever the lock is free:
//! - A key word of 0 is a free slot. A slot's body was stored before its key (Release), so who sees a key (Acquire) finds a
//!   body that was stored with this key or later, and what that points to.
//! - Only a head without a free slot has overflow buckets, so a reader that meets a free slot in the head is done; and of the
//!   overflow buckets only the first has free slots, and it is not empty.
//!
//! Overflow buckets leave a chain only through the epoch guard or into the chain of the bucket's other half (a split). So a
//! reader that is overtaken reads valid memory, and may wander into the other chain, but the head's version tells.

use crate::Entry;
use cats_sync::epoch::Guard;
use cats_sync::facade::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use cats_sync::slab;
use cats_sync::version_lock::VersionLock;
use std::ptr::{self, NonNull};

/// Entries of one bucket.
pub const SLOTS: usize = 7;
/// The bytes of one bucket.
pub const BYTES: usize = std::mem::size_of::<Bucket>();
/// A reader follows this many links before it asks whether it is still on the chain.
const HOPS: usize = 16;

/// See the module's documentation.
#[repr(C, align(64))]
pub struct Bucket {
    /// Of a head bucket: protects the chain. Of an overflow bucket: unused.
    pub lock: VersionLock,
    keys: [AtomicU64; SLOTS],
    link: AtomicPtr<Bucket>,
    bodies: [AtomicU64; SLOTS],
}

const _: () = assert!(BYTES == 128);

/// A slot of a chain.
#[derive(Clone, Copy)]
pub struct Place<'g> {
    bucket: &'g Bucket,
    slot: usize,
}

/// What the holder of a chain's lock finds for a key.
pub struct Search<'g> {
    pub found: Option<(Place<'g>, Entry)>,
    /// A free slot, unless all that the chain has are taken.
    pub free: Option<Place<'g>>,
    /// The number of taken slots of the head.
    pub crowd: usize,
}

/// Asks the processor for both lines of a bucket.
#[inline]
pub fn prefetch(bucket: *const Bucket) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address does nothing that can be seen.
    unsafe {
        use std::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
        _mm_prefetch::<_MM_HINT_T0>(bucket.cast());
        _mm_prefetch::<_MM_HINT_T0>(bucket.cast::<i8>().wrapping_add(64));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bucket;
}

impl Bucket {
    /// Makes `count` empty buckets, locked, at `at`.
    ///
    /// # Safety
    /// There is memory for them, aligned to 64, that nobody uses.
    pub unsafe fn init(at: *mut Bucket, count: usize) {
        for i in 0..count {
            let bucket = Bucket {
                lock: VersionLock::held(),
                keys: Default::default(),
                link: AtomicPtr::default(),
                bodies: Default::default(),
            };
            // SAFETY: the caller's promise.
            unsafe { at.add(i).write(bucket) }
        }
    }

    /// A bit for each slot whose key word is `word`; for 0, the free slots.
    #[inline]
    pub fn hits(&self, word: u64) -> u32 {
        let mut hits = 0;
        for (i, key) in self.keys.iter().enumerate() {
            // Acquire: the first invariant.
            hits |= u32::from(key.load(Ordering::Acquire) == word) << i;
        }
        hits
    }

    #[inline]
    fn body(&self, slot: usize) -> u64 {
        // Acquire: a body may be the address of a block that was just built.
        self.bodies[slot].load(Ordering::Acquire)
    }

    /// The entry in a slot, or nothing if it is free. A reader's two words may be of different times.
    #[inline]
    fn entry(&self, slot: usize) -> Option<Entry> {
        let key = self.keys[slot].load(Ordering::Acquire);
        (key != 0).then(|| Entry {
            key,
            body: self.body(slot),
        })
    }

    fn fill(&self, slot: usize, entry: Entry) {
        self.bodies[slot].store(entry.body, Ordering::Release);
        // Release: the first invariant.
        self.keys[slot].store(entry.key, Ordering::Release);
    }

    fn clear(&self, slot: usize) {
        // Release: as any store that a reader may act upon before it validates.
        self.keys[slot].store(0, Ordering::Release);
    }

    #[inline]
    fn next<'g>(&self, _: &'g Guard) -> Option<&'g Bucket> {
        // SAFETY: an overflow bucket that could be reached when the guard was made is freed only after it. Acquire: the
        // bucket's contents were written before the link.
        unsafe { self.link.load(Ordering::Acquire).as_ref() }
    }

    /// An optimistic read under `token`: the key's entry, or that there is none; `None` if the chain was seen changing.
    #[inline]
    pub fn find(
        &self,
        guard: &Guard,
        token: u64,
        word: u64,
        mut matches: impl FnMut(Entry) -> bool,
    ) -> Option<Option<Entry>> {
        let mut bucket = self;
        let mut hops = 0;
        loop {
            let mut hits = bucket.hits(word);
            while hits != 0 {
                let slot = hits.trailing_zeros() as usize;
                let entry = Entry {
                    key: word,
                    body: bucket.body(slot),
                };
                if word & 3 == 3 || matches(entry) {
                    return Some(Some(entry));
                }
                hits &= hits - 1;
            }
            if hops == 0 && self.hits(0) != 0 {
                return Some(None);
            }
            let Some(next) = bucket.next(guard) else {
                return Some(None);
            };
            bucket = next;
            hops += 1;
            if hops % HOPS == 0 && !self.lock.validate(token) {
                return None;
            }
        }
    }

    /// An optimistic read under `token` of all entries, in any order; false if the chain was seen changing.
    #[inline]
    pub fn each(&self, guard: &Guard, token: u64, mut show: impl FnMut(Entry)) -> bool {
        let mut bucket = self;
        let mut hops = 0;
        loop {
            for slot in 0..SLOTS {
                bucket.entry(slot).into_iter().for_each(&mut show);
            }
            let Some(next) = bucket.next(guard) else { return true };
            bucket = next;
            hops += 1;
            if hops % HOPS == 0 && !self.lock.validate(token) {
                return false;
            }
        }
    }

    // What follows is for the holder of the lock.

    /// Looks for a key, and for a place for it.
    #[inline]
    pub fn search<'g>(&'g self, guard: &'g Guard, word: u64, mut matches: impl FnMut(Entry) -> bool) -> Search<'g> {
        let free = self.hits(0);
        let crowd = SLOTS - free.count_ones() as usize;
        let mut search = Search {
            found: None,
            free: None,
            crowd,
        };
        if free != 0 {
            search.free = Some(Place {
                bucket: self,
                slot: free.trailing_zeros() as usize,
            });
        } else if let Some(overflow) = self.next(guard) {
            let free = overflow.hits(0);
            search.free = (free != 0).then(|| Place {
                bucket: overflow,
                slot: free.trailing_zeros() as usize,
            });
        }
        let mut at = Some(self);
        while let Some(bucket) = at {
            let mut hits = bucket.hits(word);
            while hits != 0 {
                let slot = hits.trailing_zeros() as usize;
                let entry = Entry {
                    key: word,
                    body: bucket.body(slot),
                };
                if word & 3 == 3 || matches(entry) {
                    search.found = Some((Place { bucket, slot }, entry));
                    return search;
                }
                hits &= hits - 1;
            }
            at = bucket.next(guard);
        }
        search
    }

    /// The number of entries that find room without another overflow bucket.
    pub fn room(&self, guard: &Guard) -> usize {
        (self.hits(0).count_ones() + self.next(guard).map_or(0, |overflow| overflow.hits(0).count_ones())) as usize
    }

    /// The number of entries of this bucket alone.
    pub fn crowd(&self) -> usize {
        SLOTS - self.hits(0).count_ones() as usize
    }

    /// Adds an entry whose key the chain does not have, in one of the spare buckets if it must.
    fn push(&self, guard: &Guard, entry: Entry, spare: &mut Spare<'_>) {
        let free = self.hits(0);
        if free != 0 {
            return self.fill(free.trailing_zeros() as usize, entry);
        }
        match self.next(guard).map(|overflow| (overflow, overflow.hits(0))) {
            Some((overflow, free)) if free != 0 => overflow.fill(free.trailing_zeros() as usize, entry),
            _ => self.push_overflow(entry, spare),
        }
    }

    /// Adds an entry in a spare bucket, all others being full.
    pub fn push_overflow(&self, entry: Entry, spare: &mut Spare<'_>) {
        let overflow = spare.pop().expect("a spare bucket was provided");
        // SAFETY: the spare buckets are the caller's; readers may still pass through, and read atomics.
        let bucket = unsafe { overflow.as_ref() };
        bucket.fill(0, entry);
        bucket.link.store(self.link.load(Ordering::Relaxed), Ordering::Release);
        // Release pairs with the Acquire of `next`.
        self.link.store(overflow.as_ptr(), Ordering::Release);
    }

    /// Frees a place; `emptied` gets an overflow bucket that is needed no more.
    pub fn remove(&self, guard: &Guard, place: Place<'_>, emptied: &mut Spare<'_>) {
        let Some(overflow) = self.next(guard) else {
            return place.bucket.clear(place.slot);
        };
        if ptr::eq(place.bucket, overflow) {
            overflow.clear(place.slot);
        } else {
            // The place is filled from the first overflow bucket, so that only that one has free slots.
            let last = (!overflow.hits(0)).trailing_zeros() as usize;
            let entry = overflow.entry(last).expect("an overflow bucket is not empty");
            // The key's word goes first: nobody may find the old key with the new body.
            place.bucket.clear(place.slot);
            place.bucket.fill(place.slot, entry);
            overflow.clear(last);
        }
        if overflow.hits(0).count_ones() as usize == SLOTS {
            self.link
                .store(overflow.link.load(Ordering::Relaxed), Ordering::Release);
            emptied.push(NonNull::from(overflow));
        }
    }

    /// Moves the entries that `moves` chooses to the chain of `to`, which has none of their keys. Takes overflow buckets from
    /// `spare` and leaves those emptied there. If the other chain has room for those of this head, none need be provided: the
    /// entries of an overflow bucket, after it is emptied, need one more at most.
    pub fn divide(&self, guard: &Guard, to: &Bucket, spare: &mut Spare<'_>, moves: impl Fn(u64) -> bool) {
        for slot in 0..SLOTS {
            if let Some(entry) = self.entry(slot).filter(|entry| moves(entry.key)) {
                to.push(guard, entry, spare);
                self.clear(slot);
            }
        }
        let mut rest = self.next(guard);
        self.link.store(ptr::null_mut(), Ordering::Release);
        while let Some(bucket) = rest {
            rest = bucket.next(guard);
            let mut entries = [None; SLOTS];
            for (slot, entry) in entries.iter_mut().enumerate() {
                *entry = bucket.entry(slot);
                bucket.clear(slot);
            }
            spare.push(NonNull::from(bucket));
            for entry in entries.into_iter().flatten() {
                if moves(entry.key) { to } else { self }.push(guard, entry, spare);
            }
        }
    }
}

impl Bucket {
    /// Frees the overflow buckets; returns how many.
    ///
    /// # Safety
    /// The caller is the only one who uses the bucket.
    pub unsafe fn free_overflow(&self, guard: &Guard) -> usize {
        let mut count = 0;
        while let Some(overflow) = self.next(guard) {
            self.link
                .store(overflow.link.load(Ordering::Relaxed), Ordering::Relaxed);
            // SAFETY: it came from the slab with this size, and nobody else uses it.
            unsafe { slab::free(NonNull::from(overflow).cast(), BYTES) };
            count += 1;
        }
        count
    }
}

impl Place<'_> {
    /// Puts an entry into a free place.
    pub fn fill(&self, entry: Entry) {
        self.bucket.fill(self.slot, entry);
    }
    /// Replaces the body of the entry.
    pub fn replace(&self, body: u64) {
        // Release pairs with the Acquire of `body`.
        self.bucket.bodies[self.slot].store(body, Ordering::Release);
    }
}

/// Overflow buckets that are in no chain, linked through their own links, their slots free. Retired when dropped, as readers
/// may still be in those that were in a chain.
pub struct Spare<'g> {
    guard: &'g Guard,
    /// Counts the memory of all overflow buckets of the table.
    bytes: &'g AtomicUsize,
    first: Option<NonNull<Bucket>>,
}

impl<'g> Spare<'g> {
    pub fn new(guard: &'g Guard, bytes: &'g AtomicUsize) -> Self {
        Self {
            guard,
            bytes,
            first: None,
        }
    }

    /// Adds a new bucket; false when memory is exhausted.
    pub fn allocate(&mut self) -> bool {
        let Some(memory) = slab::alloc(BYTES) else { return false };
        // SAFETY: new memory of a bucket's size; the slab aligns multiples of 64 to 64.
        unsafe { Bucket::init(memory.as_ptr().cast(), 1) };
        self.bytes.fetch_add(BYTES, Ordering::Relaxed);
        self.push(memory.cast());
        true
    }

    /// Adds a new bucket; unwinds when memory is exhausted.
    #[cold]
    pub fn allocate_or_panic(&mut self) {
        assert!(self.allocate(), "out of memory");
    }

    fn push(&mut self, bucket: NonNull<Bucket>) {
        let next = self.first.map_or(ptr::null_mut(), NonNull::as_ptr);
        // SAFETY: the caller took the bucket out of its chain. Release: readers that pass through act on links.
        unsafe { bucket.as_ref() }.link.store(next, Ordering::Release);
        self.first = Some(bucket);
    }

    fn pop(&mut self) -> Option<NonNull<Bucket>> {
        let first = self.first?;
        // SAFETY: buckets in the list are the list's own.
        self.first = NonNull::new(unsafe { first.as_ref() }.link.load(Ordering::Relaxed));
        Some(first)
    }
}

impl Drop for Spare<'_> {
    #[inline]
    fn drop(&mut self) {
        while let Some(bucket) = self.pop() {
            self.bytes.fetch_sub(BYTES, Ordering::Relaxed);
            // SAFETY: the bucket is in no chain any more; it came from the slab with this size.
            unsafe { self.guard.retire_sized(bucket.as_ptr().cast(), BYTES, free, BYTES) };
        }
    }
}

/// Frees memory of the slab: what an epoch guard calls.
///
/// # Safety
/// The address came from [`slab::alloc`] with this size.
pub unsafe fn free(address: *mut u8, size: usize) {
    if let Some(block) = NonNull::new(address) {
        // SAFETY: the caller's promise.
        unsafe { slab::free(block, size) }
    }
}
