//! Buckets of 128 bytes with chained overflow buckets.
//!
//! A head bucket is two cache lines: a version lock and seven key words, then a link and seven bodies. Its lock
//! protects its whole chain. Writers hold it; readers read optimistically and validate the head's version.
//!
//! Invariants, whenever the lock is free:
//! - A key word of 0 is a free slot; the free slots of a bucket come after those that are taken. A slot's body was
//!   stored before its key (Release), so who sees a key (Acquire) finds a body that was stored with this key or later,
//!   and what that points to.
//! - Only a head without a free slot has overflow buckets, so a reader that meets a free slot in the head is done; and
//!   of the overflow buckets only the first has free slots, and it is not empty.
//!
//! Overflow buckets leave a chain only through the epoch guard or into the chain of the bucket's other half (a split).
//! So a reader that is overtaken reads valid memory, and may wander into the other chain, but the head's version tells.

use crate::line::equal_words;
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

// The lock and the keys are the first line.
// But under a model checker, whose atomics are larger.
const _: () = assert!(cfg!(any(loom, shuttle)) || BYTES == 128 && std::mem::offset_of!(Bucket, link) == 64);

/// A slot of a chain.
#[derive(Clone, Copy)]
pub struct Place<'g> {
    bucket: &'g Bucket,
    slot: usize,
}

/// Slots of a bucket: slot `i` is bit `2 * i + 2`.
struct Hits(u32);

impl Iterator for Hits {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let slot = (self.0 != 0).then(|| self.0.trailing_zeros() as usize / 2 - 1);
        self.0 &= self.0.wrapping_sub(1);
        slot
    }
}

/// What the holder of a chain's lock finds for a key.
pub struct Search<'g> {
    pub found: Option<(Place<'g>, Entry)>,
    /// A free slot, unless all that the chain has are taken.
    pub free: Option<Place<'g>>,
    /// The number of taken slots of the head.
    pub crowd: usize,
}

#[inline]
fn prefetch_line(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address does nothing that can be seen.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
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

    /// Asks the processor for both lines.
    #[inline]
    pub fn prefetch(&self) {
        prefetch_line(ptr::from_ref(self).cast());
        self.prefetch_bodies();
    }

    /// Asks the processor for the second line.
    #[inline]
    pub fn prefetch_bodies(&self) {
        prefetch_line(ptr::from_ref(&self.link).cast());
    }

    /// The slots whose key word is `word`. Acquires: the first invariant.
    #[inline]
    fn hits(&self, word: u64) -> Hits {
        // SAFETY: a bucket's first line, all words of which are atomics. The first is the lock.
        Hits(unsafe { equal_words(ptr::from_ref(self).cast(), word) } & 0x5554)
    }

    /// The number of entries of this bucket alone.
    #[inline]
    pub fn crowd(&self) -> usize {
        self.hits(0).next().unwrap_or(SLOTS)
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.keys[SLOTS - 1].load(Ordering::Acquire) != 0
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
    /// Inlined, as its result would pass through memory.
    #[inline(always)]
    pub fn find(
        &self,
        guard: &Guard,
        token: u64,
        word: u64,
        mut matches: impl FnMut(Entry) -> bool,
    ) -> Option<Option<Entry>> {
        if let Some(entry) = self.find_here(word, &mut matches) {
            return Some(Some(entry));
        }
        if !self.is_full() {
            return Some(None);
        }
        self.find_in_overflow(guard, token, word, matches)
    }

    /// The key's entry in this bucket alone.
    #[inline(always)]
    fn find_here(&self, word: u64, mut matches: impl FnMut(Entry) -> bool) -> Option<Entry> {
        let entry_of = |slot| Entry {
            key: word,
            body: self.body(slot),
        };
        if word & 3 == 3 {
            self.hits(word).next().map(entry_of)
        } else {
            self.hits(word).map(entry_of).find(|entry| matches(*entry))
        }
    }

    /// The same for the overflow buckets.
    #[inline(never)]
    fn find_in_overflow(
        &self,
        guard: &Guard,
        token: u64,
        word: u64,
        mut matches: impl FnMut(Entry) -> bool,
    ) -> Option<Option<Entry>> {
        let mut bucket = self;
        let mut hops = 0;
        while let Some(next) = bucket.next(guard) {
            if let Some(entry) = next.find_here(word, &mut matches) {
                return Some(Some(entry));
            }
            bucket = next;
            hops += 1;
            if hops % HOPS == 0 && !self.lock.validate(token) {
                return None;
            }
        }
        Some(None)
    }

    /// An optimistic read under `token` of all entries, in any order; false if the chain was seen changing.
    #[inline]
    pub fn each(&self, guard: &Guard, token: u64, mut show: impl FnMut(Entry)) -> bool {
        let mut bucket = self;
        let mut hops = 0;
        loop {
            bucket.show_head(&mut show);
            let Some(next) = bucket.next(guard) else { return true };
            bucket = next;
            hops += 1;
            if hops % HOPS == 0 && !self.lock.validate(token) {
                return false;
            }
        }
    }

    /// Shows the entries of this bucket alone, which may be changing.
    #[inline]
    pub fn show_head(&self, show: impl FnMut(Entry)) {
        (0..SLOTS).map_while(|slot| self.entry(slot)).for_each(show);
    }

    /// Shows the entries of this bucket alone, which may be changing, that have this key word.
    #[inline]
    pub fn show_hits(&self, word: u64, show: impl FnMut(Entry)) {
        let entry = |slot| Entry {
            key: word,
            body: self.body(slot),
        };
        self.hits(word).map(entry).for_each(show);
    }

    // What follows is for the holder of the lock.

    /// Looks for a key, and for a place for it. Inlined, as its result would pass through memory.
    #[inline(always)]
    pub fn search<'g>(&'g self, guard: &'g Guard, word: u64, mut matches: impl FnMut(Entry) -> bool) -> Search<'g> {
        let crowd = self.crowd();
        let mut search = Search {
            found: None,
            free: None,
            crowd,
        };
        if crowd < SLOTS {
            search.free = Some(Place {
                bucket: self,
                slot: crowd,
            });
        } else if let Some(overflow) = self.next(guard) {
            let slot = overflow.crowd();
            search.free = (slot < SLOTS).then_some(Place { bucket: overflow, slot });
        }
        let mut at = Some(self);
        while let Some(bucket) = at {
            for slot in bucket.hits(word) {
                let entry = Entry {
                    key: word,
                    body: bucket.body(slot),
                };
                if word & 3 == 3 || matches(entry) {
                    search.found = Some((Place { bucket, slot }, entry));
                    return search;
                }
            }
            at = bucket.next(guard);
        }
        search
    }

    /// The number of entries that find room without another overflow bucket.
    pub fn room(&self, guard: &Guard) -> usize {
        SLOTS - self.crowd() + self.next(guard).map_or(0, |overflow| SLOTS - overflow.crowd())
    }

    /// Adds an entry whose key the chain does not have, in one of the spare buckets if it must.
    fn push(&self, guard: &Guard, entry: Entry, spare: &mut Spare<'_>) {
        let crowd = self.crowd();
        if crowd < SLOTS {
            return self.fill(crowd, entry);
        }
        match self.next(guard).map(|overflow| (overflow, overflow.crowd())) {
            Some((overflow, crowd)) if crowd < SLOTS => overflow.fill(crowd, entry),
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
        // The last entry of the only bucket that may have free slots takes the place.
        let bucket = self.next(guard).unwrap_or(self);
        let last = bucket.crowd() - 1;
        // The old key goes first: nobody may find it with the new body.
        place.bucket.clear(place.slot);
        if let Some(entry) = bucket.entry(last) {
            place.bucket.fill(place.slot, entry);
            bucket.clear(last);
        }
        if last == 0 && !ptr::eq(bucket, self) {
            self.link.store(bucket.link.load(Ordering::Relaxed), Ordering::Release);
            emptied.push(NonNull::from(bucket));
        }
    }

    /// Moves the entries that `moves` chooses to the chain of `to`, which has none of their keys. Takes overflow
    /// buckets from `spare` and leaves those emptied there. If the other chain has room for those of this head, none
    /// need be provided: the entries of an overflow bucket, after it is emptied, need one more at most.
    pub fn divide(&self, guard: &Guard, to: &Bucket, spare: &mut Spare<'_>, moves: impl Fn(u64) -> bool) {
        let mut kept = 0;
        for slot in 0..SLOTS {
            let Some(entry) = self.entry(slot) else { break };
            if moves(entry.key) {
                to.push(guard, entry, spare);
                continue;
            }
            if kept < slot {
                self.clear(kept);
                self.fill(kept, entry);
            }
            kept += 1;
        }
        (kept..SLOTS).for_each(|slot| self.clear(slot));
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

/// Overflow buckets that are in no chain, linked through their own links, their slots free. Retired when dropped, as
/// readers may still be in those that were in a chain.
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

/// Frees memory of the slab, unless it is null: what an epoch guard calls.
///
/// # Safety
/// Another address came from [`slab::alloc`] with this size.
pub unsafe fn free(address: *mut u8, size: usize) {
    if let Some(block) = NonNull::new(address) {
        // SAFETY: the caller's promise.
        unsafe { slab::free(block, size) }
    }
}
