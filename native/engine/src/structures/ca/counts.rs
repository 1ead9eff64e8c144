//! Counts: the number of entries of each leaf below an inner node, one byte each. Order statistics add them up, eight at a time, instead of
//! reading the leaves.
//!
//! Nobody needs the counts before the first order statistic of a table. From then on a writer stores the count of a leaf that it has
//! changed, while it holds the leaf's lock. A count may be *unknown*. That is always right, and makes a reader ask the leaf.
//!
//! # Nodes that are replaced
//!
//! An inner node is replaced by a copy when one of its leaves splits or merges. Writers in its other leaves go on meanwhile, without the base
//! node's lock. The protocol between them and the replacer:
//!
//! | writer, under the leaf's lock | replacer, under the base node's lock |
//! |---|---|
//! | W1: stores the count in the node in which it has found the leaf | R1: marks the old node as replaced |
//! | W2: is that node marked? If not, it is done | R2: publishes the new node, whose counts are *fresh* |
//! | W3: searches again. If it finds the same node, it is done, else it goes on at W1 | R3: reads each count of the old node |
//! | | R4: stores it in the new node, if it is known, and if the count there is still fresh |
//!
//! A fresh count is unknown too. It becomes another one when somebody stores a count, and is never fresh again. So R4 never replaces a
//! writer's count.
//!
//! Claim: a count that is known in the present node is that of the leaf, or a writer is about to store another one and has not returned.
//! - A writer that is done at W2 did not see R1. So R3, which comes after R1, sees its count, or a later one. (W1, W2, R1 and R3 are
//!   sequentially consistent.)
//! - A writer that is done at W3 did not see R2. So R3 sees its count, or a later one. (A sequentially consistent fence is between W1 and
//!   W3, and another one between R2 and R3.)
//! - Any other writer stores its count in the new node, and so does the next one that locks the leaf: it sees what this one saw.
//!
//! A writer finds the node before it locks the leaf. Since then the node may have been replaced, and somebody may have made the count
//! known in the new one. That somebody held the leaf's lock. So the writer, which locks it later, sees R1 at W2. If the leaf had no node
//! above it, the writer searches under the lock.
//!
//! The first order statistic sets a flag in the table. A writer reads the flag under the leaf's lock. Counts become known only under that
//! lock, by a thread that knows the flag. So each later writer of the leaf sees the flag, and nobody waits for those that do not see it yet.

use super::inner::{Inner, FANOUT};
use cats_sync::facade::{AtomicPtr, AtomicU64, Ordering::*};
use cats_sync::slab;
use std::ops::Range;
use std::ptr::NonNull;

/// Counts in a word.
const IN_WORD: usize = 8;
/// The bit of a count that says that it is unknown. A leaf has fewer entries.
const UNKNOWN_BIT: u64 = 0x80;
const UNKNOWN: u64 = 0xff;
/// Unknown, and nobody has stored a count yet.
const FRESH: u64 = 0xfe;
/// A one in each byte.
const ONES: u64 = 0x0101_0101_0101_0101;
/// Every other byte.
const EVEN: u64 = 0x00ff_00ff_00ff_00ff;

/// See the module's documentation.
#[repr(C, align(64))]
pub(super) struct Counts([AtomicU64; FANOUT / IN_WORD]);

/// The count of one child. Its holder got it from a node that was reached under a guard that is still alive.
#[derive(Clone, Copy)]
pub(super) struct Count {
    word: NonNull<AtomicU64>,
    shift: u32,
}

impl Count {
    fn word<'a>(self) -> &'a AtomicU64 {
        // SAFETY: see `Count`.
        unsafe { self.word.as_ref() }
    }

    /// The count, if it is known.
    pub fn known(self) -> Option<usize> {
        // SeqCst: R3 of the protocol.
        let count = self.word().load(SeqCst) >> self.shift & 0xff;
        (count & UNKNOWN_BIT == 0).then_some(count as usize)
    }

    /// Replaces the count where `holds` accepts the present one.
    fn put(self, count: u64, holds: impl Fn(u64) -> bool) {
        let word = self.word();
        // Relaxed: the exchange looks again.
        let mut seen = word.load(Relaxed);
        while holds(seen >> self.shift & 0xff) {
            let new = seen & !(0xff << self.shift) | count << self.shift;
            // SeqCst: W1 of the protocol.
            match word.compare_exchange_weak(seen, new, SeqCst, Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// R3 and R4 of the protocol: takes over the count from an old node. A fence is before it.
    pub fn take_over(self, old: Self) {
        if let Some(count) = old.known() {
            self.put(count as u64, |present| present == FRESH);
        }
    }
}

impl Counts {
    /// Counts that all are this unknown one.
    fn allocate(count: u64) -> Option<NonNull<Self>> {
        let at = slab::alloc(size_of::<Self>())?.cast::<Self>();
        // SAFETY: this function owns the memory, which is large enough.
        unsafe { at.write(Self(std::array::from_fn(|_| AtomicU64::new(count * ONES)))) };
        Some(at)
    }

    pub fn at(&self, child: usize) -> Count {
        Count {
            word: NonNull::from(&self.0[child / IN_WORD]),
            shift: (child % IN_WORD * 8) as u32,
        }
    }

    /// The sum of the counts of these children. Calls `ask` for each whose count is unknown.
    #[inline]
    pub fn sum(&self, children: Range<usize>, mut ask: impl FnMut(usize) -> usize) -> usize {
        let (mut pairs, mut asked) = (0, 0);
        for i in children.start / IN_WORD..children.end.div_ceil(IN_WORD) {
            let first = i * IN_WORD;
            // Relaxed: a count is a number, and whoever has waited for the writer sees it.
            let mut word = self.0[i].load(Relaxed);
            if first < children.start {
                word &= u64::MAX << (8 * (children.start - first));
            }
            if first + IN_WORD > children.end {
                word &= u64::MAX >> (8 * (first + IN_WORD - children.end));
            }
            let mut unknown = word & (UNKNOWN_BIT * ONES);
            while unknown != 0 {
                let at = unknown.trailing_zeros() as usize / 8;
                word &= !(0xff << (8 * at));
                unknown &= unknown - 1;
                asked += ask(first + at);
            }
            // The counts of a node are below 2^16 together, so no sum overflows.
            pairs += (word & EVEN) + (word >> 8 & EVEN);
        }
        asked + (pairs.wrapping_mul(0x0001_0001_0001_0001) >> 48) as usize
    }
}

/// A bit of the pointer to a node's counts, in the node: the node has been replaced, or will be.
const REPLACED: usize = 1;

/// The pointer to a node's counts, in the node.
pub(super) struct CountsPointer(AtomicPtr<u8>);

impl CountsPointer {
    /// Fresh counts, or none.
    pub fn new(counted: bool) -> Self {
        let counts = counted.then(|| slab::needed(Counts::allocate(FRESH)).cast().as_ptr());
        Self(AtomicPtr::new(counts.unwrap_or(std::ptr::null_mut())))
    }

    fn of(word: *mut u8) -> Option<NonNull<Counts>> {
        NonNull::new(word.map_addr(|address| address & !REPLACED).cast())
    }

    /// The bytes of the counts, if there are any.
    pub fn memory(&self) -> Option<(NonNull<u8>, usize)> {
        // Acquire: as in `Inner::counts`.
        Some((Self::of(self.0.load(Acquire))?.cast(), size_of::<Counts>()))
    }
}

impl<K> Inner<K> {
    pub fn counts<'a>(self) -> Option<&'a Counts> {
        // Acquire pairs with the Release of `make_counts`.
        // SAFETY: see `Inner`. The counts live as long as the node.
        CountsPointer::of(self.counts_pointer().0.load(Acquire)).map(|counts| unsafe { counts.as_ref() })
    }

    /// The count of a child, if the node has counts.
    pub fn count(self, child: usize) -> Option<Count> {
        Some(self.counts()?.at(child))
    }

    /// Gives a node counts that are unknown, if it has none and is not replaced. Returns by how many bytes the table grows.
    #[cold]
    pub fn make_counts(self) -> usize {
        let Some(counts) = Counts::allocate(UNKNOWN) else {
            return 0;
        };
        // Release: publishes the counts.
        let none = std::ptr::null_mut();
        match self
            .counts_pointer()
            .0
            .compare_exchange(none, counts.as_ptr().cast(), Release, Relaxed)
        {
            Ok(_) => size_of::<Counts>(),
            Err(_) => {
                // SAFETY: nobody else has seen this memory.
                unsafe { slab::free(counts.cast(), size_of::<Counts>()) };
                0
            }
        }
    }

    /// R1 of the protocol. From now on, the node gets no counts if it has none.
    pub fn mark_replaced(self) {
        let word = &self.counts_pointer().0;
        // SeqCst: R1. Acquire is more than is needed, as only the exchange uses the address.
        let mut seen = word.load(Acquire);
        while let Err(now) =
            word.compare_exchange_weak(seen, seen.map_addr(|address| address | REPLACED), SeqCst, Acquire)
        {
            seen = now;
        }
    }

    /// W1 and W2 of the protocol: stores the count of a child whose leaf the caller has locked. Returns false if the node is marked as
    /// replaced. Then the caller searches again, behind a fence.
    pub fn store_count(self, child: usize, count: usize) -> bool {
        if let Some(stored) = self.count(child) {
            stored.put(count as u64, |_| true);
        }
        // SeqCst: W2 of the protocol.
        self.counts_pointer().0.load(SeqCst).addr() & REPLACED == 0
    }
}
