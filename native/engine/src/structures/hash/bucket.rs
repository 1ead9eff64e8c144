//! Buckets. A bucket has a head of 24 bytes, a block of 128 bytes with eight entries, and overflow blocks of 64 bytes
//! with three entries each. In a table with [cells](crate::shared::seat), an entry takes three words: a block has 192 bytes, and an overflow block two entries.
//!
//! The head holds:
//! - a version lock, which protects the whole bucket;
//! - the *marks*: for each slot of the block a tag, which is eight bits of the entry's hash;
//! - a link to the overflow blocks, with a filter for the tags of their entries.
//!
//! Heads are stored close together, apart from the blocks. So the heads of a table of a million entries stay in the
//! processor's caches. A search for an absent key reads only a head. A search for a present key also reads one cache
//! line of a block. Writers hold the lock. Readers read optimistically and validate the lock's version (a seqlock).
//!
//! Invariants, whenever the lock is free:
//! - A slot is taken exactly if its tag is not 0, and then its key word is not 0 either. The free slots of a block come
//!   after the taken ones.
//! - A slot's body is stored before its key, and the key before its tag, each with Release. A reader that sees a tag or
//!   a key (Acquire) finds a body that was stored with this key or later. It also sees what that body points to.
//! - Only a bucket whose block has no free slot has overflow blocks. Only the first of these has free slots, and it is
//!   not empty.
//! - The link's filter has the bits of exactly the tags in the overflow blocks.
//!
//! An overflow block leaves its bucket only in two ways: retired through the epoch guard, or moved into the bucket's
//! other half by a split. So an overtaken reader reads valid memory. It may stray into the other bucket, but then the
//! version of the head has changed.

use crate::shared::seat::{seat, Stored};
use crate::{hash_of, Entry};
use cats_sync::epoch::Guard;
use cats_sync::facade::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use cats_sync::slab;
use cats_sync::version_lock::VersionLock;
use std::ptr::{self, NonNull};

/// Entries of a bucket's block.
const SLOTS: usize = 8;
/// The words of a block, where entries have a key and a body.
pub const PLAIN: usize = 2 * SLOTS;
/// The same where they have a cell besides.
pub const WITH_CELLS: usize = 3 * SLOTS;
/// The words of an overflow block for entries.
const FAR_WORDS: usize = 6;
/// A reader follows this many links before it checks that it is still in the bucket.
const HOPS: usize = 16;
/// The overflow blocks that [`Bucket::load`] looks at.
const LOOKS: usize = 64;

/// See the module's documentation.
#[repr(C)]
pub struct Head {
    /// Protects the bucket.
    pub lock: VersionLock,
    /// The tags of the block.
    marks: Marks,
    link: Link,
}

/// Eight entries.
#[repr(C, align(64))]
pub struct Block<const WORDS: usize> {
    words: [AtomicU64; WORDS],
}

/// A few entries with their tags.
#[repr(C, align(64))]
pub struct Overflow {
    next: AtomicPtr<Overflow>,
    marks: Marks,
    words: [AtomicU64; FAR_WORDS],
}

/// The words of an entry: key, body, and perhaps the cell.
const fn stride(words: usize) -> usize {
    words / SLOTS
}

/// Entries of an overflow block.
pub const fn more(words: usize) -> usize {
    FAR_WORDS / stride(words)
}

/// The slots of a block or an overflow block.
#[derive(Clone, Copy)]
struct Row<'g, const WORDS: usize>(&'g [AtomicU64]);

/// The address of the first overflow block, or null. The bits that an address leaves free hold the filter.
struct Link(AtomicPtr<Overflow>);

/// A value of a link.
#[derive(Clone, Copy)]
struct Linked(*mut Overflow);

// Under a model checker atomics are larger.
const _: () = assert!(cfg!(any(loom, shuttle)) || size_of::<Head>() == 24 && size_of::<Overflow>() == 64);
const _: () = assert!(cfg!(any(loom, shuttle)) || size_of::<Block<PLAIN>>() == 128);

/// The tag of a hash, from bits that do not select the bucket. Never 0.
#[inline]
fn tag_of(hash: u64) -> u8 {
    ((hash >> 53) as u8).max(1)
}

/// The filter bit of a tag.
#[inline]
fn filter_bit(tag: u8) -> usize {
    1 << (FILTER + u32::from(tag & 15))
}

/// Whether a block with so many entries has no free slot. Only then can the bucket have overflow blocks.
#[inline]
pub fn is_full(crowd: usize) -> bool {
    crowd == SLOTS
}

/// The first bit of the filter. Overflow blocks are memory of the slab, whose addresses have no bits from there on.
const FILTER: u32 = cats_sync::slab::ADDRESS_BITS;
/// A one in each byte.
const ONES: u64 = 0x0101_0101_0101_0101;

/// A word of marks: byte `i` is the tag of slot `i`.
struct Marks(AtomicU64);

impl Marks {
    #[inline]
    fn read(&self) -> Seen {
        // Acquire: the second invariant.
        Seen(self.0.load(Ordering::Acquire))
    }

    /// For the holder of the lock, like all methods below.
    fn write(&self, seen: Seen) {
        // Release: the second invariant.
        self.0.store(seen.0, Ordering::Release);
    }

    #[inline]
    fn set(&self, slot: usize, tag: u8) {
        let others = self.read().0 & !(0xff << (8 * slot));
        self.write(Seen(others | u64::from(tag) << (8 * slot)));
    }
}

/// A value of the marks.
#[derive(Clone, Copy)]
struct Seen(u64);

impl Seen {
    /// The number of taken slots.
    #[inline]
    fn crowd(self) -> usize {
        size_of::<u64>() - (self.0.leading_zeros() / 8) as usize
    }

    /// Whether the last slot of a block is taken. Then all are.
    #[inline]
    fn is_full(self) -> bool {
        self.0 >> (8 * (SLOTS - 1)) != 0
    }

    /// The slots with this tag. May contain others, too.
    #[inline]
    fn with(self, tag: u8) -> Slots {
        let differ = self.0 ^ (u64::from(tag) * ONES);
        // The subtraction borrows from a byte of zero, and so marks the lowest one.
        Slots(differ.wrapping_sub(ONES) & !differ & (ONES << 7))
    }
}

impl Link {
    #[inline]
    fn read(&self) -> Linked {
        // Acquire: the block's contents were written before the link.
        Linked(self.0.load(Ordering::Acquire))
    }

    /// For the holder of the lock.
    fn write(&self, linked: Linked) {
        // Release pairs with the Acquire of `read`.
        self.0.store(linked.0, Ordering::Release);
    }
}

impl Linked {
    const NONE: Linked = Linked(ptr::null_mut());

    /// Whether an overflow block may hold an entry with this tag.
    #[inline]
    fn lets_through(self, tag: u8) -> bool {
        self.0.addr() & filter_bit(tag) != 0
    }

    #[inline]
    fn first(self, _: &Guard) -> Option<&Overflow> {
        // SAFETY: an overflow block that was reachable when the guard was made is freed only after the guard is gone.
        unsafe { self.address().as_ref() }
    }

    fn address(self) -> *mut Overflow {
        self.0.map_addr(|address| address & ((1 << FILTER) - 1))
    }

    /// The same filter with another first block.
    fn leading_to(self, first: *mut Overflow) -> Linked {
        Linked(first.map_addr(|address| address | self.0.addr() & !((1 << FILTER) - 1)))
    }

    /// The same first block with another filter.
    fn with_filter(self, filter: usize) -> Linked {
        Linked(self.address().map_addr(|address| address | filter))
    }

    fn letting_through(self, tag: u8) -> Linked {
        Linked(self.0.map_addr(|address| address | filter_bit(tag)))
    }
}

/// A set of slots: slot `i` is bit `8 * i + 7`.
struct Slots(u64);

impl Iterator for Slots {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let slot = (self.0 != 0).then(|| self.0.trailing_zeros() as usize / 8);
        self.0 &= self.0.wrapping_sub(1);
        slot
    }
}

impl<'g, const WORDS: usize> Row<'g, WORDS> {
    /// The number of slots.
    fn slots(self) -> usize {
        self.0.len() / stride(WORDS)
    }

    #[inline(always)]
    fn key(self, slot: usize) -> &'g AtomicU64 {
        &self.0[slot * stride(WORDS)]
    }

    #[inline(always)]
    fn body(self, slot: usize) -> &'g AtomicU64 {
        &self.0[slot * stride(WORDS) + 1]
    }

    /// The cell of an entry, in a table with cells.
    #[inline(always)]
    fn cell(self, slot: usize) -> &'g AtomicU64 {
        &self.0[slot * stride(WORDS) + 2]
    }

    /// The entry of a slot as it is in the memory. `None` if the slot is free, or there is no such slot. For a reader, the two words may
    /// belong to different entries.
    #[inline(always)]
    fn raw(self, slot: usize) -> Option<Entry> {
        // Acquire, for both: a body may be the address of a new object.
        let key = self.0.get(slot * stride(WORDS))?.load(Ordering::Acquire);
        // SAFETY: a row has whole slots, and it has the first word of this one.
        let body = unsafe { self.0.get_unchecked(slot * stride(WORDS) + 1) };
        (key != 0).then(|| Entry {
            key,
            body: body.load(Ordering::Acquire),
        })
    }

    /// The same as it is shown.
    #[inline(always)]
    fn entry(self, slot: usize) -> Option<Entry> {
        self.raw(slot).map(|entry| self.shown(slot, entry))
    }

    #[inline(always)]
    fn shown(self, slot: usize, entry: Entry) -> Entry {
        match WORDS {
            PLAIN => entry,
            _ => Entry {
                body: seat(self.body(slot)),
                ..entry
            },
        }
    }

    /// The entries from the first one to the last.
    #[inline(always)]
    fn entries(self) -> impl Iterator<Item = Entry> + 'g {
        (0..self.slots()).map_while(move |slot| self.entry(slot))
    }

    /// The entry of a slot as it is stored. `None` if the slot is free.
    #[inline]
    fn stored(self, slot: usize) -> Option<Stored> {
        let entry = self.raw(slot)?;
        // Relaxed: the caller has the lock, and what others change of a cell meanwhile is lost.
        let cell = if WORDS != PLAIN {
            self.cell(slot).load(Ordering::Relaxed)
        } else {
            0
        };
        Some(Stored { entry, cell })
    }

    #[inline]
    fn fill(self, slot: usize, stored: Stored) {
        self.replace(slot, stored);
        // Release: the second invariant.
        self.key(slot).store(stored.entry.key, Ordering::Release);
    }

    /// Replaces the body of the entry, and its cell.
    #[inline]
    fn replace(self, slot: usize, stored: Stored) {
        if WORDS != PLAIN {
            // Release, like every store on which a reader may act before it validates.
            self.cell(slot).store(stored.cell, Ordering::Release);
        }
        // Release pairs with the Acquire of `raw`: a reader that sees the body sees what it points to.
        self.body(slot).store(stored.entry.body, Ordering::Release);
    }

    fn clear(self, slot: usize) {
        // Release, like every store on which a reader may act before it validates.
        self.key(slot).store(0, Ordering::Release);
    }

    /// Takes all entries out. The caller must clear the tags.
    fn take(self) -> [Option<Stored>; SLOTS] {
        std::array::from_fn(|slot| {
            let stored = (slot < self.slots()).then(|| self.stored(slot))?;
            self.clear(slot);
            stored
        })
    }
}

impl Head {
    /// Makes `count` heads of empty buckets at `at`, all locked.
    ///
    /// # Safety
    /// There is unused memory for them at `at`, aligned to 8.
    pub unsafe fn init(at: *mut Head, count: usize) {
        for i in 0..count {
            let head = Head {
                lock: VersionLock::held(),
                marks: Marks(AtomicU64::new(0)),
                link: Link(AtomicPtr::new(ptr::null_mut())),
            };
            // SAFETY: the caller's promise.
            unsafe { at.add(i).write(head) }
        }
    }
}

impl<const WORDS: usize> Block<WORDS> {
    /// Makes `count` empty blocks at `at`.
    ///
    /// # Safety
    /// There is unused memory for them at `at`, aligned to 64.
    pub unsafe fn init(at: *mut Self, count: usize) {
        for i in 0..count {
            let block = Block {
                words: std::array::from_fn(|_| AtomicU64::new(0)),
            };
            // SAFETY: the caller's promise.
            unsafe { at.add(i).write(block) }
        }
    }

    #[inline(always)]
    fn row(&self) -> Row<'_, WORDS> {
        Row(&self.words)
    }
}

impl Overflow {
    /// An empty block.
    fn new() -> Self {
        Self {
            next: AtomicPtr::new(ptr::null_mut()),
            marks: Marks(AtomicU64::new(0)),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    #[inline(always)]
    fn row<const WORDS: usize>(&self) -> Row<'_, WORDS> {
        Row(&self.words[..more(WORDS) * stride(WORDS)])
    }

    #[inline]
    fn next<'g>(&self, _: &'g Guard) -> Option<&'g Overflow> {
        // SAFETY: as for the first block. Acquire: the block's contents were written before the link.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }
}

/// The slot with the key, among the chosen slots, and its entry.
#[inline(always)]
fn find<const WORDS: usize>(
    row: Row<'_, WORDS>,
    chosen: Slots,
    word: u64,
    mut matches: impl FnMut(Entry) -> bool,
) -> Option<(usize, Entry)> {
    for slot in chosen {
        // False candidates of the tag search may be beyond the slots of an overflow block.
        if let Some(entry) = row.raw(slot).filter(|entry| entry.key == word) {
            if word & 3 == 3 || matches(entry) {
                return Some((slot, row.shown(slot, entry)));
            }
        }
    }
    None
}

/// A bucket: its head and its block.
#[derive(Clone, Copy)]
pub struct Bucket<'g, const WORDS: usize> {
    pub head: &'g Head,
    pub block: &'g Block<WORDS>,
}

/// A slot of a bucket.
#[derive(Clone, Copy)]
pub struct Place<'g, const WORDS: usize> {
    bucket: Bucket<'g, WORDS>,
    /// The overflow block, or `None` for the bucket's own block.
    overflow: Option<&'g Overflow>,
    slot: usize,
}

/// The result of an optimistic read of the overflow blocks. Two words, so that it is returned in registers.
enum Far {
    /// The body of the key's entry.
    Found(u64),
    Absent,
    /// The bucket changed meanwhile.
    Changing,
}

/// The result of a search by the holder of the bucket's lock.
pub struct Search<'g, const WORDS: usize> {
    pub found: Option<(Place<'g, WORDS>, Entry)>,
    /// If the key was not found: a free slot, unless all slots of the bucket are taken.
    pub free: Option<Place<'g, WORDS>>,
    /// The number of taken slots in the bucket's block.
    pub crowd: usize,
}

impl<'g, const WORDS: usize> Bucket<'g, WORDS> {
    /// Prefetches the head and the block, but no overflow blocks.
    #[inline]
    pub fn prefetch(self) {
        cats_sync::prefetch(self.head);
        self.prefetch_block();
    }

    /// Prefetches the block.
    #[inline]
    pub fn prefetch_block(self) {
        for line in 0..WORDS / 8 {
            cats_sync::prefetch(&self.block.words[8 * line]);
        }
    }

    /// The number of entries in the block.
    #[inline]
    pub fn crowd(self) -> usize {
        self.head.marks.read().crowd()
    }

    /// Whether an entry with this hash is possible, by the marks of the head. Another thread may be changing them.
    #[inline]
    pub fn may_have(self, hash: u64) -> bool {
        let tag = tag_of(hash);
        self.head.marks.read().with(tag).0 != 0 || self.head.link.read().lets_through(tag)
    }

    /// An optimistic read under `token`: the entry of the key with this key word and hash, if there is one. `None` if
    /// the bucket changed meanwhile. Inlined, because its result would otherwise go through memory.
    #[inline(always)]
    pub fn find(
        self,
        guard: &Guard,
        token: u64,
        word: u64,
        hash: u64,
        mut matches: impl FnMut(Entry) -> bool,
    ) -> Option<Option<Entry>> {
        let tag = tag_of(hash);
        if let Some((_, entry)) = find(self.block.row(), self.head.marks.read().with(tag), word, &mut matches) {
            return Some(Some(entry));
        }
        if !self.head.link.read().lets_through(tag) {
            return Some(None);
        }
        match self.find_in_overflow(guard, token, word, tag, matches) {
            Far::Found(body) => Some(Some(Entry { key: word, body })),
            Far::Absent => Some(None),
            Far::Changing => None,
        }
    }

    /// The part of an optimistic read that searches the overflow blocks.
    #[inline(never)]
    fn find_in_overflow(
        self,
        guard: &Guard,
        token: u64,
        word: u64,
        tag: u8,
        mut matches: impl FnMut(Entry) -> bool,
    ) -> Far {
        let mut at = self.overflow(guard);
        let mut hops = 0;
        while let Some(block) = at {
            if let Some((_, entry)) = find(block.row::<WORDS>(), block.marks.read().with(tag), word, &mut matches) {
                return Far::Found(entry.body);
            }
            at = block.next(guard);
            hops += 1;
            if hops % HOPS == 0 && !self.head.lock.validate(token) {
                return Far::Changing;
            }
        }
        Far::Absent
    }

    /// An optimistic read of all entries under `token`, in any order. False if the bucket changed meanwhile.
    #[inline]
    pub fn each(self, guard: &Guard, token: u64, mut show: impl FnMut(Entry)) -> bool {
        self.show_block(&mut show);
        let mut at = self.overflow(guard);
        let mut hops = 0;
        while let Some(block) = at {
            block.row::<WORDS>().entries().for_each(&mut show);
            at = block.next(guard);
            hops += 1;
            if hops % HOPS == 0 && !self.head.lock.validate(token) {
                return false;
            }
        }
        true
    }

    /// Shows the entries of the block. Another thread may be changing them.
    #[inline]
    pub fn show_block(self, show: impl FnMut(Entry)) {
        self.block.row().entries().for_each(show);
    }

    /// Shows the entries of the block that have this key word. Another thread may be changing them.
    #[inline]
    pub fn show_hits(self, word: u64, show: impl FnMut(Entry)) {
        let slots = self.head.marks.read().with(tag_of(hash_of(word)));
        let entries = slots.filter_map(|slot| self.block.row().entry(slot));
        entries.filter(|entry| entry.key == word).for_each(show);
    }

    /// Whether the block has no free slot.
    #[inline]
    pub fn has_full_block(self) -> bool {
        self.head.marks.read().is_full()
    }

    /// The number of entries, as far as [`LOOKS`] overflow blocks. Another thread may be changing them.
    pub fn load(self, guard: &Guard) -> usize {
        let marks = self.head.marks.read();
        let mut load = marks.crowd();
        let mut at = if marks.is_full() { self.overflow(guard) } else { None };
        for _ in 0..LOOKS {
            let Some(block) = at else { break };
            load += block.marks.read().crowd();
            at = block.next(guard);
        }
        load
    }

    /// The first overflow block.
    fn overflow(self, guard: &Guard) -> Option<&Overflow> {
        self.head.link.read().first(guard)
    }

    // The following methods are for the holder of the lock.

    /// The slot of the block that has a key, and its entry.
    #[inline(always)]
    pub fn find_in_block(self, word: u64, hash: u64, matches: impl FnMut(Entry) -> bool) -> Option<(usize, Entry)> {
        find(
            self.block.row(),
            self.head.marks.read().with(tag_of(hash)),
            word,
            matches,
        )
    }

    /// The first place whose entry is wanted, and the entry.
    #[inline]
    pub fn search_where(
        self,
        guard: &'g Guard,
        mut wanted: impl FnMut(Entry) -> bool,
    ) -> Option<(Place<'g, WORDS>, Entry)> {
        let mut in_slots = |overflow, row: Row<'g, WORDS>| {
            let mut entries = row.entries().enumerate();
            let found = entries.find(|(_, entry)| wanted(*entry));
            found.map(|(slot, entry)| (self.place(overflow, slot), entry))
        };
        let mut found = in_slots(None, self.block.row());
        let mut at = self.overflow(guard);
        while let (None, Some(block)) = (found, at) {
            found = in_slots(Some(block), block.row());
            at = block.next(guard);
        }
        found
    }

    /// A slot of the block.
    #[inline]
    pub fn in_block(self, slot: usize) -> Place<'g, WORDS> {
        self.place(None, slot)
    }

    /// Replaces the entry in a slot of the block by another one of its key.
    #[inline]
    pub fn replace_in_block(self, slot: usize, entry: Entry) {
        self.block.row().replace(slot, Stored::of(entry, WORDS != PLAIN));
    }

    /// Frees a slot of the block of a bucket with so many entries, which is not full.
    #[inline]
    pub fn remove_from_block(self, slot: usize, crowd: usize) {
        // The last entry moves here. The old key is cleared first, so that nobody finds it with the new body.
        let place = self.in_block(slot);
        place.clear();
        if let Some(stored) = self.block.row().stored(crowd - 1) {
            place.fill_stored(stored, hash_of(stored.entry.key));
            self.in_block(crowd - 1).clear();
        }
    }

    /// Searches for a key, and for a free slot for it. Inlined, because its result would otherwise go through memory.
    #[inline(always)]
    pub fn search(
        self,
        guard: &'g Guard,
        word: u64,
        hash: u64,
        mut matches: impl FnMut(Entry) -> bool,
    ) -> Search<'g, WORDS> {
        let found = self.find_in_block(word, hash, &mut matches);
        let crowd = self.crowd();
        if found.is_none() && is_full(crowd) {
            return self.search_overflow(guard, word, hash, matches);
        }
        Search {
            found: found.map(|(slot, entry)| (self.place(None, slot), entry)),
            free: found.is_none().then(|| self.place(None, crowd)),
            crowd,
        }
    }

    /// Searches the overflow blocks of a bucket whose block is full and does not hold the key.
    #[inline(never)]
    pub fn search_overflow(
        self,
        guard: &'g Guard,
        word: u64,
        hash: u64,
        mut matches: impl FnMut(Entry) -> bool,
    ) -> Search<'g, WORDS> {
        let tag = tag_of(hash);
        let mut search = Search {
            found: None,
            free: None,
            crowd: SLOTS,
        };
        let linked = self.head.link.read();
        let first = linked.first(guard);
        let mut at = first.filter(|_| linked.lets_through(tag));
        while let Some(block) = at {
            if let Some((slot, entry)) = find(block.row::<WORDS>(), block.marks.read().with(tag), word, &mut matches) {
                search.found = Some((self.place(Some(block), slot), entry));
                return search;
            }
            at = block.next(guard);
        }
        search.free = first.and_then(|block| {
            let slot = block.marks.read().crowd();
            (slot < more(WORDS)).then(|| self.place(Some(block), slot))
        });
        search
    }

    #[inline]
    fn place(self, overflow: Option<&'g Overflow>, slot: usize) -> Place<'g, WORDS> {
        Place {
            bucket: self,
            overflow,
            slot,
        }
    }

    /// The number of entries that fit without another overflow block.
    pub fn room(self, guard: &Guard) -> usize {
        let overflow = self.overflow(guard);
        SLOTS - self.crowd() + overflow.map_or(0, |block| more(WORDS) - block.marks.read().crowd())
    }

    /// Adds an entry to a bucket whose block is full. The bucket does not hold the key. Takes a spare block if needed.
    fn push_further(self, guard: &'g Guard, stored: Stored, hash: u64, spare: &mut Spare<'_>) {
        match self.overflow(guard).map(|block| (block, block.marks.read().crowd())) {
            Some((block, crowd)) if crowd < more(WORDS) => self.place(Some(block), crowd).fill_stored(stored, hash),
            _ => self.push_stored(stored, hash, spare),
        }
    }

    /// Adds an entry in a spare block. All other blocks are full.
    pub fn push_overflow(self, entry: Entry, hash: u64, spare: &mut Spare<'_>) {
        self.push_stored(Stored::of(entry, WORDS != PLAIN), hash, spare);
    }

    fn push_stored(self, stored: Stored, hash: u64, spare: &mut Spare<'_>) {
        let overflow = spare.pop().expect("a spare block was provided");
        // SAFETY: the caller owns the spare blocks. Readers may still be in them, and read atomics only.
        let block = unsafe { overflow.as_ref() };
        self.place(Some(block), 0).fill_stored(stored, hash);
        let linked = self.head.link.read();
        // Release, as in `Spare::push`: readers that are still in the block follow this link.
        block.next.store(linked.address(), Ordering::Release);
        self.head.link.write(linked.leading_to(overflow.as_ptr()));
    }

    /// Frees a place. An overflow block that becomes empty goes to `emptied`.
    pub fn remove(self, guard: &'g Guard, place: Place<'_, WORDS>, emptied: &mut Spare<'_>) {
        // The last entry of the only overflow block with free slots moves here.
        let overflow = self.overflow(guard);
        let (row, marks) = match overflow {
            None => (self.block.row(), &self.head.marks),
            Some(block) => (block.row::<WORDS>(), &block.marks),
        };
        let last = marks.read().crowd() - 1;
        // The old key is cleared first, so that nobody finds it with the new body.
        place.clear();
        if let Some(stored) = row.stored(last) {
            place.fill_stored(stored, hash_of(stored.entry.key));
            marks.set(last, 0);
            row.clear(last);
        }
        if let Some(block) = overflow {
            if last == 0 {
                // Relaxed: only the holder of the lock changes it.
                let next = block.next.load(Ordering::Relaxed);
                self.head.link.write(self.head.link.read().leading_to(next));
                emptied.push(NonNull::from(block));
            }
            self.filter_anew(guard);
        }
    }

    /// Recomputes the filter from the overflow blocks.
    fn filter_anew(self, guard: &Guard) {
        let mut filter = 0;
        let mut at = self.overflow(guard);
        while let Some(block) = at {
            let tags = block.marks.read().0.to_le_bytes();
            filter |= tags
                .into_iter()
                .filter(|tag| *tag != 0)
                .map(filter_bit)
                .fold(0, |a, b| a | b);
            at = block.next(guard);
        }
        self.head.link.write(self.head.link.read().with_filter(filter));
    }

    /// Moves the entries whose hashes satisfy `moves` to the bucket `to`, which has none of their keys.
    ///
    /// Takes overflow blocks from `spare`, and adds those that become empty. No blocks need be provided if `to` has
    /// space for the entries of this bucket's block. When an overflow block is emptied, its entries need at most one
    /// block.
    pub fn divide(self, guard: &'g Guard, to: Self, spare: &mut Spare<'_>, moves: impl Fn(u64) -> bool) {
        let mut rest = self.overflow(guard);
        self.head.marks.write(Seen(0));
        self.head.link.write(Linked::NONE);
        let (mut stay, mut go) = (Filling::new(self), Filling::new(to));
        let mut push = |entries: &[Option<Stored>], spare: &mut Spare<'_>| {
            for stored in entries.iter().map_while(|stored| *stored) {
                let hash = hash_of(stored.entry.key);
                let filling = if moves(hash) { &mut go } else { &mut stay };
                filling.push(guard, stored, hash, spare);
            }
        };
        push(&self.block.row().take(), spare);
        while let Some(block) = rest {
            rest = block.next(guard);
            block.marks.write(Seen(0));
            let entries = block.row::<WORDS>().take();
            spare.push(NonNull::from(block));
            push(&entries, spare);
        }
        stay.finish();
        go.finish();
    }

    /// Frees the overflow blocks. Returns their number.
    ///
    /// # Safety
    /// The caller is the only user of the bucket.
    pub unsafe fn free_overflow(self, guard: &Guard) -> usize {
        let mut count = 0;
        let mut rest = self.overflow(guard);
        self.head.link.write(Linked::NONE);
        while let Some(overflow) = rest {
            rest = overflow.next(guard);
            // SAFETY: it came from the slab with this size, and nobody else uses it.
            unsafe { slab::free(NonNull::from(overflow).cast(), size_of::<Overflow>()) };
            count += 1;
        }
        count
    }
}

#[cfg(test)]
impl<const WORDS: usize> Bucket<'_, WORDS> {
    /// Asserts the invariants of a bucket that nobody is changing. Returns its entries and the number of its overflow
    /// blocks.
    pub fn check(self, guard: &Guard) -> (Vec<Entry>, usize) {
        let mut entries = Vec::new();
        let mut part = |row: Row<'_, WORDS>, marks: &Marks| {
            let tags = marks.read().0.to_le_bytes();
            let before = entries.len();
            entries.extend(row.entries());
            let count = entries.len() - before;
            assert_eq!(marks.read().crowd(), count);
            assert!(
                (count..row.slots()).all(|slot| row.raw(slot).is_none()),
                "free slots are last"
            );
            let tag = |i: usize| entries.get(before + i).map_or(0, |entry| tag_of(hash_of(entry.key)));
            (0..tags.len()).for_each(|i| assert_eq!(tags[i], tag(i)));
            count
        };
        let full = part(self.block.row(), &self.head.marks) == SLOTS;
        let linked = self.head.link.read();
        let (mut at, mut blocks) = (linked.first(guard), 0);
        while let Some(block) = at {
            let count = part(block.row(), &block.marks);
            assert!(full && count > 0 && (blocks == 0 || count == more(WORDS)));
            at = block.next(guard);
            blocks += 1;
        }
        let far = entries.iter().skip(SLOTS).map(|entry| tag_of(hash_of(entry.key)));
        let filter = far.fold(0, |filter, tag| filter | filter_bit(tag));
        assert_eq!(linked.0.addr() & !((1 << FILTER) - 1), filter);
        (entries, blocks)
    }
}

/// A bucket that receives many entries. Its tags are written at the end.
struct Filling<'g, const WORDS: usize> {
    bucket: Bucket<'g, WORDS>,
    crowd: usize,
    tags: u64,
}

impl<'g, const WORDS: usize> Filling<'g, WORDS> {
    fn new(bucket: Bucket<'g, WORDS>) -> Self {
        let seen = bucket.head.marks.read();
        Self {
            bucket,
            crowd: seen.crowd(),
            tags: seen.0,
        }
    }

    /// Adds an entry whose key the bucket does not have. Takes a spare block if needed.
    #[inline]
    fn push(&mut self, guard: &'g Guard, stored: Stored, hash: u64, spare: &mut Spare<'_>) {
        if is_full(self.crowd) {
            return self.bucket.push_further(guard, stored, hash, spare);
        }
        self.bucket.block.row().fill(self.crowd, stored);
        self.tags |= u64::from(tag_of(hash)) << (8 * self.crowd);
        self.crowd += 1;
    }

    fn finish(self) {
        self.bucket.head.marks.write(Seen(self.tags));
    }
}

impl<const WORDS: usize> Place<'_, WORDS> {
    fn row_and_marks(&self) -> (Row<'_, WORDS>, &Marks) {
        match self.overflow {
            None => (self.bucket.block.row(), &self.bucket.head.marks),
            Some(block) => (block.row(), &block.marks),
        }
    }

    /// Stores an entry with this hash in a free slot.
    #[inline]
    pub fn fill(&self, entry: Entry, hash: u64) {
        self.fill_stored(Stored::of(entry, WORDS != PLAIN), hash);
    }

    #[inline]
    fn fill_stored(&self, stored: Stored, hash: u64) {
        let tag = tag_of(hash);
        let (row, marks) = self.row_and_marks();
        row.fill(self.slot, stored);
        marks.set(self.slot, tag);
        if self.overflow.is_some() {
            let link = &self.bucket.head.link;
            link.write(link.read().letting_through(tag));
        }
    }

    #[inline]
    fn clear(&self) {
        let (row, marks) = self.row_and_marks();
        marks.set(self.slot, 0);
        row.clear(self.slot);
    }

    /// Replaces the entry by another one of its key.
    #[inline]
    pub fn replace(&self, entry: Entry) {
        self.row_and_marks()
            .0
            .replace(self.slot, Stored::of(entry, WORDS != PLAIN));
    }
}

/// Overflow blocks that are in no bucket, with all slots free, linked through their own links. Dropping the list
/// retires them, because readers may still be in blocks that were in a bucket.
pub struct Spare<'g> {
    guard: &'g Guard,
    /// The bytes of all overflow blocks of the table. Relaxed: a figure.
    bytes: &'g AtomicUsize,
    first: Option<NonNull<Overflow>>,
}

impl<'g> Spare<'g> {
    pub fn new(guard: &'g Guard, bytes: &'g AtomicUsize) -> Self {
        Self {
            guard,
            bytes,
            first: None,
        }
    }

    /// Adds a new block. False when memory is exhausted.
    pub fn allocate(&mut self) -> bool {
        let Some(memory) = slab::alloc(size_of::<Overflow>()) else {
            return false;
        };
        let block = memory.cast::<Overflow>();
        // SAFETY: new memory of a block's size; the slab aligns multiples of 64 to 64.
        unsafe { block.write(Overflow::new()) };
        self.bytes.fetch_add(size_of::<Overflow>(), Ordering::Relaxed);
        self.push(block);
        true
    }

    /// Adds a new block. Unwinds when memory is exhausted.
    #[cold]
    pub fn allocate_or_panic(&mut self) {
        slab::needed(self.allocate().then_some(()));
    }

    fn push(&mut self, block: NonNull<Overflow>) {
        let next = self.first.map_or(ptr::null_mut(), NonNull::as_ptr);
        // SAFETY: the caller took the block out of its bucket. Release: readers that are still in the block follow this
        // link.
        unsafe { block.as_ref() }.next.store(next, Ordering::Release);
        self.first = Some(block);
    }

    fn pop(&mut self) -> Option<NonNull<Overflow>> {
        let first = self.first?;
        // SAFETY: the list owns its blocks.
        // Relaxed: only the owner of the list changes the link.
        self.first = NonNull::new(unsafe { first.as_ref() }.next.load(Ordering::Relaxed));
        Some(first)
    }
}

impl Drop for Spare<'_> {
    #[inline]
    fn drop(&mut self) {
        let mut bytes = 0;
        while let Some(block) = self.pop() {
            bytes += size_of::<Overflow>();
            // SAFETY: the block is in no bucket. It came from the slab with this size.
            unsafe { self.guard.retire_memory(block.cast(), size_of::<Overflow>()) };
        }
        if bytes > 0 {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

/// Frees memory of the slab, unless the address is null. An epoch guard calls it.
///
/// # Safety
/// An address that is not null came from [`slab::alloc`] with this size.
pub unsafe fn free(address: *mut u8, size: usize) {
    if let Some(block) = NonNull::new(address) {
        // SAFETY: the caller's promise.
        unsafe { slab::free(block, size) }
    }
}
