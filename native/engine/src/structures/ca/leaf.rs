//! Leaf: up to 112 entries of one key range. Point lookups find them by hash. A key order is kept as long as operations
//! use it.
//!
//! Layout: 1 to 14 lines of 8 entries each are before the address of the leaf. In a table with
//! [cells](crate::shared::seat) the cell of an entry stands behind its two words. At the address are a lock and an info
//! word about the slots. Then comes a word of *marks* for each line: for each entry a tag, which is eight bits of its
//! hash. Then comes what ordered operations need, such as a permutation with one byte for each slot. All addresses
//! follow from the leaf's address and its number of lines. The pointer to the leaf carries both.
//!
//! An entry is in its home line, which its hash chooses. If that is full, it is in one of the next lines. The info word
//! has 32 flags, one for each 32nd of the hash range. A flag says that an entry with such a hash went past its home
//! line. If it is not set, a search for an absent key ends at the home line.
//!
//! The lock and the marks take at most two cache lines. They are so small that those of a table with millions of
//! entries stay in the processor's caches. A search for an absent key reads nothing else. A search for a present key
//! also reads half a line of entries, which is one cache line.
//!
//! The permutation lists the slots in key order while the flag ORDERED is set. An empty leaf has it set. A key above
//! all others is appended to the order. For any other key the order is kept only while ordered operations use it: after
//! many such inserts without one, or before the first one, it is given up. An ordered operation that finds the flag
//! unset sorts the leaf.
//!
//! Guarantees: a leaf's key range never changes. A structural change kills the leaf (flag DEAD) and publishes new ones.
//! So if a leaf validates and is not dead, what a reader found in it is right.

use super::base::SAMPLING;
use super::Query;
use crate::shared::seat::{cell_of, seat, Stored};
use crate::shared::select::select;
use crate::{hash_of, Entry, OrderedSchema};
use cats_sync::events::Events;
use cats_sync::facade::{AtomicU64, Ordering::*};
use cats_sync::slab;
use cats_sync::version_lock::VersionLock;
use cats_sync::Busy;
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::ptr::NonNull;

/// Slots of a line.
const LINE: usize = 8;
/// The sizes of leaves, in lines. In the largest, lock and marks fill two cache lines, and the leaf has 2 KiB. The
/// second largest is for halves of the largest, which would otherwise be half empty.
pub(super) const SIZES: [usize; 6] = [1, 2, 4, 8, 10, 14];
/// Lines of the largest leaf.
pub(super) const MAX_LINES: usize = SIZES[SIZES.len() - 1];
/// Slots of the largest leaf.
pub(super) const MAX_SLOTS: usize = LINE * MAX_LINES;
/// How many lines an insert tries before the leaf counts as full.
const REACH: usize = 4;
/// How many inserts keep the order without an ordered operation in between. Inserts of ascending keys do not count.
const KEPT_FOR: u64 = 16;

const DEAD: u64 = 1 << 16;
const ORDERED: u64 = 1 << 17;
/// The bits of the info word that tell the slot of the last insertion.
const LAST: u64 = 0x7f << 18;
/// The bits that tell the slots of the last two insertions.
const RECENT: u64 = 0x3fff << 18;
/// A one in each byte.
const ONES: u64 = 0x0101_0101_0101_0101;

/// The info word of a leaf.
///
/// - Bits 0 to 7: the number of entries.
/// - Bits 8 to 15: the largest distance of an entry from its home line.
/// - The flags DEAD and ORDERED.
/// - Bits 18 to 24: the slot of the last insertion. Bits 25 to 31: that of the one before.
/// - Bits 32 to 63: the flags for hashes whose entries went past their home line.
#[derive(Clone, Copy)]
pub(super) struct Info(u64);

impl Info {
    /// The info word with one more entry, at this distance from its home line.
    fn with(self, hash: u64, distance: usize) -> Self {
        let mut info = self.0 + 1;
        if distance > 0 {
            info |= Self::passing(hash);
        }
        if self.reach() < distance {
            info = info & !0xff00 | (distance as u64) << 8;
        }
        Self(info)
    }
    /// The info word with this slot as that of the last insertion.
    fn with_last(self, slot: usize) -> Self {
        let before = self.0 << 7 & RECENT & !LAST;
        Self(self.0 & !RECENT | before | (slot as u64) << LAST.trailing_zeros())
    }
    /// The slots of the last two insertions, the later one first. A slot may be free or filled by another entry since.
    fn recent(self) -> [usize; 2] {
        let last = self.0 >> LAST.trailing_zeros();
        [last, last >> 7].map(|slot| slot as usize & 0x7f)
    }
    pub fn count(self) -> usize {
        (self.0 & 0xff) as usize
    }
    fn reach(self) -> usize {
        (self.0 >> 8 & 0xff) as usize
    }
    /// The flag which says that an entry with such a hash went past its home line. The highest bits of the hash choose
    /// it. They also choose the line.
    fn passing(hash: u64) -> u64 {
        1 << (hash >> 59 | 32)
    }
    fn passed(self, hash: u64) -> bool {
        self.0 & Self::passing(hash) != 0
    }
    pub fn dead(self) -> bool {
        self.0 & DEAD != 0
    }
    pub fn ordered(self) -> bool {
        self.0 & ORDERED != 0
    }
}

/// What every operation reads first. The marks follow.
#[repr(C)]
struct Header {
    lock: VersionLock,
    info: AtomicU64,
}

/// The two words of an entry. The cell follows, in a table with cells.
#[repr(C)]
struct Slot {
    key: AtomicU64,
    body: AtomicU64,
}

impl Slot {
    /// The entry as it is shown. The key word was read before.
    #[inline(always)]
    fn shown<S: OrderedSchema>(&self, key: u64) -> Entry {
        let body = match S::CELLS {
            true => seat(&self.body),
            // Acquire: see `Leaf::entry`.
            false => self.body.load(Acquire),
        };
        Entry { key, body }
    }
}

/// The words of a slot.
const fn stride<S: OrderedSchema>() -> usize {
    2 + S::CELLS as usize
}

/// The slots of a line that may have a tag: slot `i` is bit `8 * i + 7`.
#[derive(Clone, Copy)]
struct Tagged(u64);

impl Tagged {
    /// The slots with this tag in a word of marks. May contain others above the first of them.
    #[inline(always)]
    fn of(marks: u64, tag: u64) -> Self {
        let differ = marks ^ (tag * ONES);
        // The subtraction borrows from a byte of zero, and so marks the lowest one.
        Self(differ.wrapping_sub(ONES) & !differ & (ONES << 7))
    }
    #[inline(always)]
    fn any(self) -> bool {
        self.0 != 0
    }
    /// The index in the line of the first slot, if there is one.
    #[inline(always)]
    fn first(self) -> usize {
        self.0.trailing_zeros() as usize / 8
    }
}

/// The tag of a hash, from bits that do not choose the line. A free slot has tag 0.
#[inline(always)]
fn tag_of(hash: u64) -> u64 {
    (hash >> 24 & 0xff).max(1)
}

/// The entries of a leaf, without an allocation.
pub(super) type Entries = SmallVec<[Entry; MAX_SLOTS]>;

/// A handle to a leaf. Its holder got it from a structure that was reached under a guard that is still alive, or owns
/// the leaf. So the memory around it is a leaf of this size. That is why its methods are safe to call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Leaf {
    at: NonNull<u8>,
    lines: usize,
}

/// A key word that is searched for, with its hash.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub word: u64,
    pub hash: u64,
}

impl Wanted {
    pub fn new(word: u64) -> Self {
        Self {
            word,
            hash: hash_of(word),
        }
    }
}

/// A free slot for a key, and its distance from the home line.
#[derive(Clone, Copy)]
pub(super) struct Place {
    slot: usize,
    distance: usize,
}

/// An optimistic read met a slot that another thread was changing (a torn read).
#[derive(Debug)]
pub(super) struct Torn;

/// [`Schema::matches`](crate::Schema::matches), not inlined, so that searches for immediate keys need not save
/// registers for it.
///
/// # Safety
/// As there.
#[inline(never)]
unsafe fn matches<S: OrderedSchema>(schema: &S, probe: &S::Probe, entry: Entry) -> bool {
    // SAFETY: as the caller promises.
    unsafe { schema.matches(probe, entry) }
}

/// Bytes before the address of a leaf with this many lines.
const fn before<S: OrderedSchema>(lines: usize) -> usize {
    lines * LINE * stride::<S>() * size_of::<AtomicU64>()
}

/// Bytes of a leaf with this many lines.
pub(super) const fn size<S: OrderedSchema>(lines: usize) -> usize {
    before::<S>(lines) + (size_of::<Header>() + words(lines) * size_of::<AtomicU64>()).next_multiple_of(64)
}

/// Words behind the header of a leaf with this many lines: the marks, `KEPT_FOR_WORD`, `SKIP_WORD`, the permutation.
const fn words(lines: usize) -> usize {
    2 * lines + ORDER_WORD
}

/// The first word behind the marks: for how many more inserts the order is kept. 0 until an ordered operation uses the
/// order.
const KEPT_FOR_WORD: usize = 0;
/// The next word: up to this byte all keys of the leaf's range have the same normalized key.
const SKIP_WORD: usize = 1;
/// From here on the permutation.
const ORDER_WORD: usize = 2;

/// The number of lines of a leaf for `count` entries, with some space to grow.
pub(super) fn lines_for(count: usize) -> usize {
    lines_with(|slots| count <= slots * 7 / 10)
}

/// The number of lines of a leaf for `count` entries to which few others will come.
pub(super) fn lines_to_stay(count: usize) -> usize {
    lines_with(|slots| count <= slots * 7 / 8)
}

/// The lines of the smallest leaf whose number of slots is `enough`, or of the largest leaf.
fn lines_with(enough: impl Fn(usize) -> bool) -> usize {
    let lines = SIZES.into_iter().find(|lines| enough(LINE * lines));
    lines.unwrap_or(MAX_LINES)
}

impl Leaf {
    /// The memory of a new leaf. It is prefetched, because it is rarely cached.
    fn allocate<S: OrderedSchema>(lines: usize) -> Self {
        let start = slab::needed(slab::alloc(size::<S>(lines)));
        // SAFETY: the memory is that large.
        let at = unsafe { start.add(before::<S>(lines)) };
        let leaf = Self { at, lines };
        leaf.prefetch_all::<S>();
        leaf
    }

    /// Fills the memory of a new leaf: its words, and the entry of each slot of each line. That of a free slot is 0.
    fn initialize<S: OrderedSchema>(
        self,
        info: u64,
        word: impl Fn(usize) -> u64,
        entry: impl Fn(usize, usize) -> Entry,
    ) -> Self {
        // SAFETY: only the caller knows the memory, which is large enough for the slots, the header and the words behind
        // it.
        unsafe {
            for line in 0..self.lines {
                for i in 0..LINE {
                    let entry = entry(line, i);
                    let Stored { entry, cell } = match entry.key {
                        0 => Stored { entry, cell: 0 },
                        _ => Stored::of(entry, S::CELLS),
                    };
                    let words = self.line::<S>(line).add(i * stride::<S>());
                    words.write(AtomicU64::new(entry.key));
                    words.add(1).write(AtomicU64::new(entry.body));
                    if S::CELLS {
                        words.add(2).write(AtomicU64::new(cell));
                    }
                }
            }
            self.at.cast().write(Header {
                lock: VersionLock::new(0),
                info: AtomicU64::new(info),
            });
            let behind = self.at.add(size_of::<Header>()).cast::<AtomicU64>();
            (0..words(self.lines)).for_each(|i| behind.add(i).write(AtomicU64::new(word(i))));
        }
        self
    }

    /// A new leaf with the same entries in the same slots. Call it under the lock, for which the loads are Relaxed.
    pub fn copy<S: OrderedSchema>(self, skip: usize) -> Self {
        let word = |i: usize| match i.checked_sub(self.lines()) {
            Some(KEPT_FOR_WORD) => 0,
            Some(SKIP_WORD) => skip as u64,
            _ => self.word(i).load(Relaxed),
        };
        let entry = |line, i| self.entry::<S>(line * LINE + i).unwrap_or(Entry { key: 0, body: 0 });
        Self::allocate::<S>(self.lines).initialize::<S>(self.info().0, word, entry)
    }

    /// A new leaf without entries. It is ordered.
    pub fn empty<S: OrderedSchema>(lines: usize, skip: usize) -> Self {
        let word = |i| if i == lines + SKIP_WORD { skip as u64 } else { 0 };
        Self::allocate::<S>(lines).initialize::<S>(ORDERED, word, |_, _| Entry { key: 0, body: 0 })
    }

    /// A new leaf that holds `entries`, which may be `ordered`.
    pub fn build<S: OrderedSchema>(
        lines: usize,
        skip: usize,
        entries: impl IntoIterator<Item = Entry>,
        ordered: bool,
    ) -> Self {
        assert!(lines <= MAX_LINES);
        let leaf = Self::allocate::<S>(lines);
        // The entries are placed here first. Meanwhile the leaf's memory comes into the cache.
        let mut slots = [[Entry { key: 0, body: 0 }; LINE]; MAX_LINES];
        let mut taken = [0; MAX_LINES];
        let (mut marks, mut order) = ([0; MAX_LINES], [0; MAX_LINES]);
        let mut info = Info(0);
        for (i, entry) in entries.into_iter().enumerate() {
            let hash = hash_of(entry.key);
            let (mut line, mut distance) = (leaf.home(hash), 0);
            while taken[line] == LINE {
                line = leaf.line_behind(line);
                distance += 1;
                assert!(distance < lines, "more entries than slots");
            }
            let at = taken[line];
            taken[line] += 1;
            slots[line][at] = entry;
            info = info.with(hash, distance);
            marks[line] |= tag_of(hash) << (8 * at);
            order[i / LINE] |= ((line * LINE + at) as u64) << (i % LINE * 8);
        }
        let word = |i: usize| match i.checked_sub(lines) {
            None => marks[i],
            Some(SKIP_WORD) => skip as u64,
            Some(i @ ORDER_WORD..) if ordered => order[i - ORDER_WORD],
            Some(_) => 0,
        };
        let ordered = if ordered { ORDERED } else { 0 };
        leaf.initialize::<S>(info.0 | ordered, word, |line, i| slots[line][i])
    }

    /// # Safety
    /// `at` is the address of a leaf with this many lines that the caller may read (see [`Leaf`]).
    pub unsafe fn from_address(at: NonNull<u8>, lines: usize) -> Self {
        Self { at, lines }
    }
    pub fn address(self) -> *mut u8 {
        self.at.as_ptr()
    }
    pub fn lines(self) -> usize {
        self.lines
    }
    /// The number of lines of the next larger leaf. `None` if this is the largest size.
    pub fn more_lines(self) -> Option<usize> {
        SIZES.into_iter().find(|&lines| lines > self.lines)
    }
    pub fn size<S: OrderedSchema>(self) -> usize {
        size::<S>(self.lines())
    }
    fn slots(self) -> usize {
        LINE * self.lines()
    }
    /// The first address of the leaf's memory.
    pub fn start<S: OrderedSchema>(self) -> NonNull<u8> {
        // SAFETY: see `Leaf`.
        unsafe { self.at.sub(before::<S>(self.lines())) }
    }

    fn header<'a>(self) -> &'a Header {
        // SAFETY: see `Leaf`.
        unsafe { self.at.cast().as_ref() }
    }
    /// A word behind the header.
    #[inline(always)]
    fn word<'a>(self, i: usize) -> &'a AtomicU64 {
        debug_assert!(i < words(self.lines()));
        // SAFETY: see `Leaf`; all callers stay within the words behind the header.
        unsafe { self.at.add(size_of::<Header>()).cast::<AtomicU64>().add(i).as_ref() }
    }
    /// The marks of a line.
    #[inline(always)]
    fn marks<'a>(self, line: usize) -> &'a AtomicU64 {
        self.word(line)
    }
    /// The address of a line of entries. The first line is the last one in memory.
    #[inline(always)]
    fn line<S: OrderedSchema>(self, line: usize) -> *mut AtomicU64 {
        self.at
            .as_ptr()
            .cast::<AtomicU64>()
            .wrapping_sub((line + 1) * LINE * stride::<S>())
    }
    #[inline(always)]
    fn slot_address<S: OrderedSchema>(self, slot: usize) -> *mut Slot {
        self.line::<S>(slot / LINE)
            .wrapping_add(slot % LINE * stride::<S>())
            .cast()
    }
    fn slot<'a, S: OrderedSchema>(self, slot: usize) -> &'a Slot {
        debug_assert!(slot < self.slots());
        // SAFETY: see `Leaf`; all callers stay within the slots.
        unsafe { &*self.slot_address::<S>(slot) }
    }
    fn key<'a, S: OrderedSchema>(self, slot: usize) -> &'a AtomicU64 {
        &self.slot::<S>(slot).key
    }
    /// Relaxed: the lock orders it.
    fn kept_for<'a>(self) -> &'a AtomicU64 {
        self.word(self.lines() + KEPT_FOR_WORD)
    }
    /// Relaxed: as for `info`.
    fn order_word<'a>(self, i: usize) -> &'a AtomicU64 {
        self.word(self.lines() + ORDER_WORD + i)
    }

    pub fn lock<'a>(self) -> &'a VersionLock {
        &self.header().lock
    }
    /// Relaxed: never written after publication.
    pub fn skip(self) -> usize {
        self.word(self.lines() + SKIP_WORD).load(Relaxed) as usize
    }
    /// Relaxed: the lock orders it, or the caller validates.
    pub fn info(self) -> Info {
        Info(self.header().info.load(Relaxed))
    }
    fn set_info(self, info: u64) {
        // Relaxed: as for `info`.
        self.header().info.store(info, Relaxed);
    }

    #[inline(always)]
    fn home(self, hash: u64) -> usize {
        (((hash >> 32) * self.lines as u64) >> 32) as usize
    }
    /// The line behind a line. Behind the last comes the first.
    fn line_behind(self, line: usize) -> usize {
        if line + 1 == self.lines {
            0
        } else {
            line + 1
        }
    }

    /// Prefetches the home line of this hash, which is farthest from the leaf's address.
    #[inline(always)]
    pub fn prefetch_entries<S: OrderedSchema>(self, hash: u64) {
        let line = self.line::<S>(self.home(hash));
        for word in (0..LINE * stride::<S>()).step_by(LINE) {
            cats_sync::prefetch(line.wrapping_add(word));
        }
    }

    /// Prefetches all that a lookup of this hash reads first.
    #[inline]
    pub fn prefetch<S: OrderedSchema>(self, hash: u64) {
        cats_sync::prefetch(self.at.as_ptr());
        cats_sync::prefetch(self.marks(self.home(hash)));
        self.prefetch_entries::<S>(hash);
    }

    /// Prefetches all lines.
    pub fn prefetch_all<S: OrderedSchema>(self) {
        for line in (0..self.size::<S>()).step_by(64) {
            cats_sync::prefetch(self.start::<S>().as_ptr().wrapping_add(line));
        }
    }

    /// The entry in a slot. Its two words belong together only if the lock is held or the read validates.
    #[inline]
    pub fn entry<S: OrderedSchema>(self, slot: usize) -> Result<Entry, Torn> {
        // Acquire pairs with the Release stores of `fill`. So a key is seen with the body that came with it or a later
        // one, never with an earlier one. And the block to which a body points is seen complete.
        let slot = self.slot::<S>(slot);
        match slot.key.load(Acquire) {
            0 => Err(Torn),
            key => Ok(slot.shown::<S>(key)),
        }
    }

    /// The slots of a line that may have a tag. Relaxed: as for `info`.
    #[inline(always)]
    fn tagged(self, line: usize, tag: u64) -> Tagged {
        Tagged::of(self.marks(line).load(Relaxed), tag)
    }

    /// Shows the entry with this key word, if it is in its home line. Another thread may be changing the line.
    #[inline]
    pub fn show_home<S: OrderedSchema>(self, wanted: Wanted, show: impl FnOnce(Entry)) {
        let home = self.home(wanted.hash);
        let tagged = self.tagged(home, tag_of(wanted.hash));
        if tagged.any() {
            match self.entry::<S>(home * LINE + tagged.first()) {
                Ok(entry) if entry.key == wanted.word => show(entry),
                _ => {}
            }
        }
    }

    /// The slot of the key, and its entry.
    #[inline(always)]
    #[expect(
        clippy::manual_map,
        reason = "results of calls are taken apart, or the usual one would pass through memory, too"
    )]
    pub fn find<S: OrderedSchema>(
        self,
        schema: &S,
        probe: &S::Probe,
        wanted: Wanted,
        info: Info,
    ) -> Option<(usize, Entry)> {
        let home = self.home(wanted.hash);
        let tagged = self.tagged(home, tag_of(wanted.hash));
        let any = tagged.any();
        if wanted.word & 3 == 3 {
            // No branches, because the processor cannot predict whether the key is there. If no tag matches, two words
            // behind the header serve as the entry, so that there is no cache miss.
            let entry = self.slot_address::<S>(home * LINE + tagged.first()).cast_const();
            let instead = std::ptr::from_ref(self.word(0)).cast();
            // SAFETY: a slot of the leaf if a tag matches, otherwise two words as in a slot; see `Leaf`.
            let seen = unsafe { &*select(any, entry, instead) };
            // Acquire: see `entry`.
            let key = seen.key.load(Acquire);
            let entry = seen.shown::<S>(key);
            // One branch, which is nearly always predictable: the first tag that matches is the key's, or none matches
            // and no entry with such a hash went past the home line.
            if select(any, key ^ wanted.word, info.0 & Info::passing(wanted.hash)) == 0 {
                let slot = home * LINE + tagged.first();
                let key = wanted.word;
                return any.then_some((slot, Entry { key, ..entry }));
            }
        } else if any {
            let slot = home * LINE + tagged.first();
            if let Ok(entry) = self.entry::<S>(slot) {
                // SAFETY: the entry was read under the caller's guard. Its words may not belong together, as `matches`
                // allows.
                if entry.key == wanted.word && unsafe { matches(schema, probe, entry) } {
                    return Some((slot, entry));
                }
            }
        }
        match self.find_further(schema, probe, wanted, info) {
            Some((slot, entry)) => Some((slot, entry)),
            None => None,
        }
    }

    /// Like `find`, but searches all lines, among all entries with that tag. An immediate key may equal another kind of
    /// key.
    #[inline(never)]
    fn find_further<S: OrderedSchema>(
        self,
        schema: &S,
        probe: &S::Probe,
        wanted: Wanted,
        info: Info,
    ) -> Option<(usize, Entry)> {
        let Wanted { word, hash } = wanted;
        // SAFETY: the entry was read under the caller's guard. Its words may not belong together, as `matches` allows.
        // Both words are hashes.
        let matches = |entry| word & 3 == 3 || unsafe { schema.matches(probe, entry) };
        // SAFETY: as above.
        let equals = |entry| unsafe { schema.compare(probe, entry) }.is_eq();
        let is_it = |entry: Entry| match entry.key == word {
            true => matches(entry),
            false => hash_of(entry.key) == hash && equals(entry),
        };
        let mut line = self.home(hash);
        for _ in 0..=info.reach() {
            let mut tagged = self.tagged(line, tag_of(hash));
            while tagged.any() {
                let slot = line * LINE + tagged.first();
                match self.entry::<S>(slot) {
                    Ok(entry) if is_it(entry) => return Some((slot, entry)),
                    _ => tagged.0 &= tagged.0 - 1,
                }
            }
            if !info.passed(hash) {
                break;
            }
            line = self.line_behind(line);
        }
        None
    }

    /// A free slot for an absent key, nearly always in its home line. `None` if the leaf counts as full for this key.
    #[inline(always)]
    pub fn room(self, hash: u64) -> Option<Place> {
        match self.free_slot(self.home(hash)) {
            Some(slot) => Some(Place { slot, distance: 0 }),
            None => self.place(hash),
        }
    }

    #[inline(never)]
    fn place(self, hash: u64) -> Option<Place> {
        let mut line = self.home(hash);
        (0..REACH.min(self.lines())).find_map(|distance| {
            let slot = self.free_slot(line);
            line = self.line_behind(line);
            Some(Place { slot: slot?, distance })
        })
    }

    #[inline(always)]
    fn free_slot(self, line: usize) -> Option<usize> {
        let free = self.tagged(line, 0);
        free.any().then(|| line * LINE + free.first())
    }

    fn fill<S: OrderedSchema>(self, place: Place, entry: Entry) {
        let hash = hash_of(entry.key);
        self.set_info(self.info().with(hash, place.distance).with_last(place.slot).0);
        self.mark(place.slot, tag_of(hash));
        self.set_body::<S>(place.slot, entry);
        // Release, body first: see `entry`.
        self.key::<S>(place.slot).store(entry.key, Release);
    }

    /// Stores the body of an entry, and its cell.
    #[inline(always)]
    fn set_body<S: OrderedSchema>(self, slot: usize, entry: Entry) {
        let Stored { entry, cell } = Stored::of(entry, S::CELLS);
        let body = &self.slot::<S>(slot).body;
        if S::CELLS {
            // SAFETY: in such a table the cell is the next word. Release, like every store on which a reader may act before it validates.
            unsafe { cell_of(seat(body)) }.store(cell, Release);
        }
        // Release, body first: see `entry`.
        body.store(entry.body, Release);
    }

    /// Sets the tag of a slot.
    fn mark(self, slot: usize, tag: u64) {
        let marks = self.marks(slot / LINE);
        let shift = 8 * (slot % LINE);
        // Relaxed: as for `info`.
        marks.store(marks.load(Relaxed) & !(0xff << shift) | tag << shift, Relaxed);
    }

    /// Stores an entry with the probe's key in a free slot. Call it under the lock.
    #[inline]
    pub fn insert<S: OrderedSchema>(self, schema: &S, probe: &S::Probe, place: Place, entry: Entry) {
        if self.info().ordered() {
            self.insert_in_order(schema, probe, place.slot);
        }
        self.fill::<S>(place, entry);
    }

    /// Inserts the probe's key into the order, or gives up the order. An entry for the key will be in the slot.
    #[inline(never)]
    fn insert_in_order<S: OrderedSchema>(self, schema: &S, probe: &S::Probe, slot: usize) {
        let query = &Query::new(schema, probe);
        let info = self.info();
        let count = info.count();
        if self.is_behind(query, info).expect("a locked leaf is whole") {
            return self.order_insert(count, slot, count);
        }
        // Relaxed: a heuristic.
        let kept_for = self.kept_for().load(Relaxed);
        if kept_for == 0 {
            return self.set_info(info.0 & !ORDERED);
        }
        self.kept_for().store(kept_for - 1, Relaxed);
        let rank = self.rank(query, count, false).expect("a locked leaf is whole");
        self.order_insert(rank, slot, count);
    }

    /// Replaces the entry in a slot by another with an equal key. Call it under the lock.
    #[inline]
    pub fn replace<S: OrderedSchema>(self, slot: usize, old: Entry, entry: Entry) {
        self.set_body::<S>(slot, entry);
        // The key word nearly always stays the same. Then its tag need not be written.
        if entry.key != old.key {
            // Release, body first: see `entry`.
            self.key::<S>(slot).store(entry.key, Release);
        }
    }

    /// Frees a slot. Call it under the lock.
    pub fn remove<S: OrderedSchema>(self, slot: usize) {
        let info = self.info();
        if info.ordered() {
            self.order_remove(slot, info.count());
        }
        self.mark(slot, 0);
        // Relaxed: who sees a free slot follows nothing.
        self.key::<S>(slot).store(0, Relaxed);
        self.set_info(match info.count() {
            // An empty leaf starts afresh.
            1 => ORDERED,
            _ => info.0 - 1,
        });
    }

    /// Marks a locked leaf as dead and frees its lock.
    pub fn kill(self, version: u64) {
        self.set_info(self.info().0 | DEAD);
        self.lock().unlock(version);
    }

    /// All entries, in order if the leaf is ordered. Call it under the lock.
    pub fn entries<S: OrderedSchema>(self) -> impl Iterator<Item = Entry> {
        let info = self.info();
        let (ordered, end) = match info.ordered() {
            true => (true, info.count()),
            false => (false, self.slots()),
        };
        (0..end).filter_map(move |i| if ordered { self.at::<S>(i) } else { self.entry::<S>(i) }.ok())
    }

    /// All entries, in the order of their slots. Call it under the lock.
    pub fn filled<S: OrderedSchema>(self) -> impl Iterator<Item = Entry> {
        (0..self.slots()).filter_map(move |slot| self.entry::<S>(slot).ok())
    }

    /// The entry with the lowest key. Call it under the lock.
    pub fn lowest<S: OrderedSchema>(self, schema: &S) -> Option<Entry> {
        match self.info().ordered() {
            true => self.at::<S>(0).ok(),
            // SAFETY: the entries of a locked leaf are valid.
            false => self
                .filled::<S>()
                .min_by(|a, b| unsafe { schema.compare_entries(*a, *b) }),
        }
    }

    /// Whether the key is above all entries (`Greater`) or below all (`Less`). Call it under the lock.
    pub fn is_beyond<S: OrderedSchema>(self, query: &Query<S>, side: Ordering) -> bool {
        // SAFETY: as in `lowest`.
        let is_beyond = |entry| unsafe { query.schema.compare(query.probe, entry) } == side;
        let info = self.info();
        match (info.ordered(), side) {
            (true, Ordering::Greater) => self.at::<S>(info.count().wrapping_sub(1)).is_ok_and(is_beyond),
            (true, _) => self.at::<S>(0).is_ok_and(is_beyond),
            (false, _) => self.filled::<S>().all(is_beyond),
        }
    }

    /// Whether the last two insertions and this key are three neighbours, in any order. Then later keys will probably
    /// come beside them, too: as an ascending or descending run, or from two sides. Call it under the lock.
    pub fn is_beside_recent<S: OrderedSchema>(self, query: &Query<S>) -> bool {
        let [Ok(last), Ok(before)] = self
            .info()
            .recent()
            .map(|slot| self.entry::<S>(slot.min(self.slots() - 1)))
        else {
            return false;
        };
        // SAFETY: as in `lowest`.
        let is_above = |entry| unsafe { query.schema.compare(query.probe, entry) }.is_lt();
        // SAFETY: as in `lowest`.
        let is_less = |a, b| unsafe { query.schema.compare_entries(a, b) }.is_lt();
        let (low, high) = if is_less(last, before) {
            (last, before)
        } else {
            (before, last)
        };
        // The key is one end of the three, and one of the two is between the ends. Or the key is between the two.
        let (from_key, to_key) = (is_above(low), !is_above(high));
        let is_between = |entry: &Entry| {
            let is_behind = if from_key {
                is_above(*entry)
            } else {
                is_less(low, *entry)
            };
            is_behind
                && if to_key {
                    !is_above(*entry)
                } else {
                    is_less(*entry, high)
                }
        };
        self.filled::<S>()
            .filter(is_between)
            .nth(usize::from(from_key || to_key))
            .is_none()
    }

    fn slot_at(self, i: usize) -> usize {
        let slot = (self.order_word(i / LINE).load(Relaxed) >> (i % LINE * 8)) as u8;
        // A reader may meet any byte here.
        usize::from(slot).min(self.slots() - 1)
    }

    /// The `i`-th entry of an ordered leaf.
    #[inline(always)]
    pub fn at<S: OrderedSchema>(self, i: usize) -> Result<Entry, Torn> {
        self.entry::<S>(self.slot_at(i.min(self.slots() - 1)))
    }

    /// The rank of a slot among the first `count` of the order. Compares eight slots at once.
    #[inline(always)]
    fn rank_of_slot(self, slot: usize, count: usize) -> Option<usize> {
        // Not by an adapter of iterators, which would be a call.
        for i in 0..count.min(self.slots()).div_ceil(LINE) {
            // The lowest byte of zero is exact. The borrow can produce false ones only above it.
            let differing = self.order_word(i).load(Relaxed) ^ (slot as u64 * ONES);
            let zeros = differing.wrapping_sub(ONES) & !differing & (ONES << 7);
            let rank = i * LINE + zeros.trailing_zeros() as usize / 8;
            if zeros != 0 && rank < count {
                return Some(rank);
            }
        }
        None
    }

    /// Like [`rank`](Self::rank), for a key that is probably in the leaf, unless it is the end of a range. Then only hashes
    /// are compared.
    #[inline(always)]
    pub fn rank_of_key<S: OrderedSchema>(self, query: &Query<S>, info: Info, through: bool) -> Result<usize, Torn> {
        let word = query.schema.word(query.probe);
        if word != 0 {
            if let Some((slot, _)) = self.find(query.schema, query.probe, Wanted::new(word), info) {
                if let Some(rank) = self.rank_of_slot(slot, info.count()) {
                    return Ok(rank + usize::from(through));
                }
            }
        }
        self.rank_of_other(query, info, through)
    }

    /// [`rank_of_key`](Self::rank_of_key) for a key that is not in the leaf, or the end of a range.
    #[inline(never)]
    fn rank_of_other<S: OrderedSchema>(self, query: &Query<S>, info: Info, through: bool) -> Result<usize, Torn> {
        // A downward walk comes here from the leaf behind this one. The rank of a number takes no longer.
        let may_come_from_behind = query.schema.word(query.probe) != 0 && query.schema.number(query.probe).is_none();
        match may_come_from_behind && self.is_behind(query, info)? {
            true => Ok(info.count()),
            false => self.rank(query, info.count(), through),
        }
    }

    /// Whether a key is behind all entries of an ordered leaf.
    fn is_behind<S: OrderedSchema>(self, query: &Query<S>, info: Info) -> Result<bool, Torn> {
        let Some(last) = info.count().checked_sub(1) else {
            return Ok(true);
        };
        let last = self.at::<S>(last)?;
        // SAFETY: the entry was read under the caller's guard. Its words may not belong together, as `compare` allows.
        Ok(unsafe { query.schema.compare(query.probe, last) }.is_gt())
    }

    /// How the key compares with an entry.
    #[inline]
    fn order<S: OrderedSchema>(self, query: &Query<S>, entry: Entry) -> Ordering {
        if !query.schema.has_quick_heads(query.probe) {
            // SAFETY: as below.
            return unsafe { query.schema.compare(query.probe, entry) };
        }
        let skip = self.skip();
        // SAFETY: the entry was read under the caller's guard. Its words may not belong together, as `compare` allows.
        unsafe {
            query
                .head(skip)
                .cmp(&query.schema.entry_head(entry, skip))
                .then_with(|| query.schema.compare(query.probe, entry))
        }
    }

    /// How many of the first `count` entries of an ordered leaf are below the key. With `through`, counts an equal one
    /// too.
    pub fn rank<S: OrderedSchema>(self, query: &Query<S>, count: usize, through: bool) -> Result<usize, Torn> {
        let count = count.min(self.slots());
        let number = query.schema.number(query.probe);
        if let Some(rank) = number.and_then(|number| self.rank_of_number(query.schema, number, count, through)) {
            return Ok(rank);
        }
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = (low + high) / 2;
            let order = self.order(query, self.at::<S>(middle)?);
            if order.is_gt() || through && order.is_eq() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// [`rank`](Self::rank) among keys that have a [`number`](OrderedSchema::number). `None` if it meets another one. No
    /// branch depends on how numbers compare, because the processor could not predict it.
    fn rank_of_number<S: OrderedSchema>(self, schema: &S, number: i64, count: usize, through: bool) -> Option<usize> {
        let is_below = |i| {
            // Relaxed: the lock orders it, or the caller validates. The body is not read.
            let other = schema.number_of_word(self.key::<S>(self.slot_at(i)).load(Relaxed))?;
            Some(usize::from((other < number) | through & (other == number)))
        };
        // The rank is between `low` and `low + left`. Three numbers are compared at once, because the waits for them overlap.
        let (mut low, mut left) = (0, count);
        while left > 2 {
            let part = (left + 1) / 4;
            let below = |parts: usize| is_below(low + parts * part - 1);
            low += part * (below(1)? + below(2)? + below(3)?);
            left -= 3 * part;
        }
        for _ in 0..left {
            low += is_below(low)?;
        }
        Some(low)
    }

    /// Records that the order is in use.
    pub fn touch_order(self) {
        // Relaxed: a heuristic. It reads before it writes, so that readers rarely contend for the cache line.
        let kept_for = self.kept_for();
        if kept_for.load(Relaxed) != KEPT_FOR {
            kept_for.store(KEPT_FOR, Relaxed);
        }
    }

    /// Sorts the leaf. Call it under the lock.
    pub fn sort<S: OrderedSchema>(self, schema: &S) {
        let skip = self.skip();
        // Key heads, with the slot in the low bits. So sorting numbers decides most comparisons without reading the
        // objects.
        let mut list = [0u128; MAX_SLOTS];
        let mut count = 0;
        self.prefetch_objects(schema);
        for slot in 0..self.slots() {
            if let Ok(entry) = self.entry::<S>(slot) {
                // SAFETY: under the lock the entry is valid.
                let head = unsafe { schema.entry_head(entry, skip) };
                list[count] = u128::from(head) << 64 | slot as u128;
                count += 1;
            }
        }
        let list = &mut list[..count];
        list.sort_unstable();
        let entry = |item: u128| self.entry::<S>(item as usize).expect("a locked leaf is whole");
        for run in list.chunk_by_mut(|a, b| a >> 64 == b >> 64).filter(|run| run.len() > 1) {
            // SAFETY: as above.
            run.sort_unstable_by(|a, b| unsafe { schema.compare_entries(entry(*a), entry(*b)) });
        }
        for (i, run) in list.chunks(LINE).enumerate() {
            let word = run.iter().rev().fold(0, |word, item| word << 8 | *item as u64);
            self.order_word(i).store(word, Relaxed);
        }
        self.kept_for().store(KEPT_FOR, Relaxed);
        self.set_info(self.info().0 | ORDERED);
    }

    /// Prefetches what the entries point to, unless the leaf is ordered. Sorting will compare it.
    pub fn prefetch_objects<S: OrderedSchema>(self, schema: &S) {
        if !self.info().ordered() {
            self.filled::<S>().for_each(|entry| schema.prefetch(entry));
        }
    }

    fn order_insert(self, rank: usize, slot: usize, count: usize) {
        let first = rank / LINE;
        let shift = rank % LINE * 8;
        let word = self.order_word(first).load(Relaxed);
        let below = word & ((1 << shift) - 1);
        let mut carry = word >> 56;
        self.order_word(first).store(
            below | (slot as u64) << shift | (word & !((1 << shift) - 1)) << 8,
            Relaxed,
        );
        for i in first + 1..=count / LINE {
            let word = self.order_word(i).load(Relaxed);
            self.order_word(i).store(word << 8 | carry, Relaxed);
            carry = word >> 56;
        }
    }

    fn order_remove(self, slot: usize, count: usize) {
        let rank = self.rank_of_slot(slot, count).expect("the slot's place in the order");
        let first = rank / LINE;
        let last = (count - 1) / LINE;
        for i in first..=last {
            let word = self.order_word(i).load(Relaxed);
            let carry = if i < last {
                self.order_word(i + 1).load(Relaxed) << 56
            } else {
                0
            };
            let kept = if i == first { (1 << (rank % LINE * 8)) - 1 } else { 0 };
            self.order_word(i)
                .store(word & kept | (word >> 8 | carry) & !kept, Relaxed);
        }
    }

    /// Frees the memory.
    ///
    /// # Safety
    /// The caller owns the leaf.
    pub unsafe fn free<S: OrderedSchema>(self) {
        // SAFETY: the caller's promise; `build` allocated this many bytes.
        unsafe { slab::free(self.start::<S>(), self.size::<S>()) }
    }
}

/// The order of two valid entries with their key heads.
pub(super) fn compare_headed<S: OrderedSchema>(schema: &S, a: (u64, Entry), b: (u64, Entry)) -> Ordering {
    // SAFETY: the caller's promise.
    a.0.cmp(&b.0).then_with(|| unsafe { schema.compare_entries(a.1, b.1) })
}

/// A leaf's lock. Dropping it frees the lock.
pub(super) struct Held {
    pub leaf: Leaf,
    pub version: u64,
    /// Whether a reader may have seen a change.
    pub changed: bool,
}

impl Held {
    /// Takes the lock after a bounded spin. Returns whether it had to wait. `hash` is that of the key for which, or 0.
    #[inline]
    pub fn lock(leaf: Leaf, events: &Events, hash: u64) -> Result<(Self, bool), Busy> {
        let (version, waited) = leaf.lock().lock_counted(events, hash)?;
        let held = Self {
            leaf,
            version,
            changed: false,
        };
        Ok((held, waited))
    }
    /// Takes the lock if nobody has held it since the token was taken.
    #[inline]
    pub fn lock_since(leaf: Leaf, token: u64) -> Option<Self> {
        leaf.lock().lock_since(token).then(|| Self {
            leaf,
            version: token,
            changed: false,
        })
    }
    pub fn try_lock(leaf: Leaf) -> Option<Self> {
        leaf.lock().try_lock().map(|version| Self {
            leaf,
            version,
            changed: false,
        })
    }
    /// True for one in [`SAMPLING`] changes of a leaf.
    #[inline]
    pub fn is_sampled(&self) -> bool {
        self.version / 2 % u64::from(SAMPLING) == u64::from(SAMPLING) / 2
    }
    /// Marks the leaf as dead and frees the lock.
    pub fn kill(self) {
        self.leaf.kill(self.version);
        std::mem::forget(self);
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        if self.changed {
            self.leaf.lock().unlock(self.version);
        } else {
            self.leaf.lock().unlock_unchanged(self.version);
        }
    }
}
