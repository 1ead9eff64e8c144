//! What hash tables with linear hashing share: the bucket of a hash, and a traversal order that resizing does not
//! disturb.
//!
//! Source for the bucket number: Larson, "Dynamic hash tables", CACM 1988. The reversed bits are also the order of
//! Shalev and Shavit, "Split-ordered lists: lock-free extensible hash tables", JACM 2006. The two low bits of a hash
//! have another meaning ([`Entry::key`]) and take no part in either.
//!
//! Traversal goes in the order of the reversed bits of the hash. The entries of a bucket fill one interval of that
//! order. A split halves the interval, and a merge reunites it with its neighbour. So a traversal position stays valid
//! when the table is resized. A step reads the bucket that now holds the position, skips the entries before it, and
//! goes on behind the bucket's interval. Keys with the same hash are in the order of their key words, then of the
//! schema.

use crate::shared::trail::RUN;
use crate::{hash_of, Cursor, Entry, Numbered, Schema};
use std::cmp::Ordering;

/// A scan counts at least one place for every so many items that it shows. So a step stays short where a place shows many.
pub const EACH: usize = 8;

/// The number of buckets in use, with the integer part of its binary logarithm. One word holds both, so a reader always
/// sees a matching pair.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Size(pub usize);

impl Size {
    pub fn new(buckets: usize) -> Self {
        Self(buckets << 6 | buckets.checked_ilog2().unwrap_or(0) as usize)
    }
    #[inline]
    pub fn buckets(self) -> usize {
        self.0 >> 6
    }
    #[inline]
    fn level(self) -> u32 {
        self.0 as u32 & 63
    }

    /// The number of the bucket of a hash.
    #[inline]
    pub fn number_of(self, hash: u64) -> usize {
        let half = 1 << self.level();
        let number = (hash >> 2) as usize & (2 * half - 1);
        if number >= self.buckets() {
            number & !half
        } else {
            number
        }
    }

    /// How many bits of the hash select its bucket.
    #[inline]
    pub fn depth(self, hash: u64) -> u32 {
        let half = 1 << self.level();
        let number = self.number_of(hash);
        self.level() + u32::from(number >= half || number < self.buckets() - half)
    }
}

/// The position of a scan. All entries before it have been met.
#[derive(Debug, Default, Clone, Copy)]
pub struct Position {
    pub at: u64,
    pub end: bool,
}

impl Cursor for Position {}

impl Numbered for Position {
    /// `at` is a multiple of 4.
    fn number(&self) -> u64 {
        self.at | u64::from(self.end)
    }

    fn of_number(number: u64) -> Self {
        Self {
            at: number & !3,
            end: number & 1 == 1,
        }
    }
}

/// The place of a hash in traversal order: a multiple of 4.
#[inline]
pub fn position(hash: u64) -> u64 {
    (hash >> 2).reverse_bits()
}

/// The least hash at a position.
#[inline]
pub fn hash_at(position: u64) -> u64 {
    position.reverse_bits() << 2
}

/// Whether a hash comes before another in traversal order. The lowest bit in which they differ decides.
#[inline]
pub fn precedes(hash: u64, other: u64) -> bool {
    let differ = hash ^ other;
    other & differ & differ.wrapping_neg() != 0
}

/// The first position behind the interval of the bucket that holds `at`. `None` if it is the last bucket.
pub fn behind(at: u64, depth: u32) -> Option<u64> {
    if depth == 0 {
        return None;
    }
    let shift = u64::BITS - depth;
    ((at >> shift) + 1).checked_mul(1 << shift)
}

/// Where a step begins.
pub enum StepFrom<'a, S: Schema> {
    Start,
    /// Behind a key, which need not be present.
    Key(&'a S::Probe),
    /// Behind an entry, which is valid under the caller's guard.
    Entry(Entry),
}

impl<S: Schema> Clone for StepFrom<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<S: Schema> Copy for StepFrom<'_, S> {}

impl<'a, S: Schema> StepFrom<'a, S> {
    /// Behind this key. Without a key, the start.
    pub fn of(after: Option<&'a S::Probe>) -> Self {
        after.map_or(StepFrom::Start, StepFrom::Key)
    }
}

/// Collects the first entries behind a place in traversal order, at most [`RUN`], among those that are offered.
pub struct First<'a, S: Schema> {
    schema: &'a S,
    after: StepFrom<'a, S>,
    /// The hash of the place.
    hash: u64,
    len: usize,
    entries: [(u64, Entry); RUN],
}

impl<'a, S: Schema> First<'a, S> {
    pub fn new(schema: &'a S, after: StepFrom<'a, S>) -> Self {
        Self {
            schema,
            after,
            hash: match after {
                StepFrom::Start => 0,
                StepFrom::Key(probe) => hash_of(schema.word(probe)),
                StepFrom::Entry(entry) => hash_of(entry.key),
            },
            len: 0,
            entries: [(0, Entry { key: 0, body: 0 }); RUN],
        }
    }

    /// A hash in the bucket where the search begins.
    #[inline]
    pub fn start(&self) -> u64 {
        self.hash
    }

    /// The first of the entries offered so far.
    #[inline]
    pub fn found(&self) -> Option<Entry> {
        self.entries().next()
    }

    /// All entries collected, in order.
    #[inline]
    pub fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        self.entries[..self.len].iter().map(|(_, entry)| *entry)
    }

    /// Inserts an entry in order, unless it is behind all that can be kept.
    ///
    /// # Safety
    /// As for [`Schema::matches`], for each entry offered, except that the key words need not be equal.
    #[inline]
    pub unsafe fn offer(&mut self, entry: Entry) {
        let hash = hash_of(entry.key);
        // SAFETY: the caller's promise.
        if !unsafe { self.is_behind(hash, entry) } {
            return;
        }
        let mut place = self.len;
        while place > 0 {
            let (other_hash, other) = self.entries[place - 1];
            // SAFETY: the caller's promise, for both.
            if unsafe { self.is_before(other_hash, other, hash, entry) } {
                break;
            }
            if place < RUN {
                self.entries[place] = (other_hash, other);
            }
            place -= 1;
        }
        if place < RUN {
            self.entries[place] = (hash, entry);
            self.len = (self.len + 1).min(RUN);
        }
    }

    #[inline]
    unsafe fn is_behind(&self, hash: u64, entry: Entry) -> bool {
        match self.after {
            StepFrom::Start => true,
            StepFrom::Entry(_) | StepFrom::Key(_) if hash != self.hash => precedes(self.hash, hash),
            // SAFETY: the caller's promise.
            StepFrom::Entry(before) => unsafe { self.is_before(self.hash, before, hash, entry) },
            StepFrom::Key(probe) => match self.schema.word(probe).cmp(&entry.key) {
                // SAFETY: the caller's promise. The words are equal and end in bits 00.
                Ordering::Equal if entry.key & 3 == 0 => unsafe { self.schema.compare_colliding(probe, entry).is_lt() },
                order => order.is_lt(),
            },
        }
    }

    #[inline]
    unsafe fn is_before(&self, hash: u64, entry: Entry, other_hash: u64, other: Entry) -> bool {
        if hash != other_hash {
            return precedes(hash, other_hash);
        }
        match entry.key.cmp(&other.key) {
            // SAFETY: as in `is_behind`.
            Ordering::Equal if entry.key & 3 == 0 => unsafe {
                self.schema.compare_colliding_entries(entry, other).is_lt()
            },
            order => order.is_lt(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mix;

    #[test]
    fn intervals_of_buckets_tile_the_order() {
        for buckets in [1, 2, 3, 5, 8, 13, 64, 100] {
            let size = Size::new(buckets);
            let (mut at, mut seen) = (Some(0), Vec::new());
            while let Some(from) = at {
                let number = size.number_of(hash_at(from));
                assert!(number < buckets);
                let next = behind(from, size.depth(hash_at(from)));
                let last = next.unwrap_or(0).wrapping_sub(4);
                for i in 0..20 {
                    let inside = from + (mix(i) % ((last - from) / 4 + 1)) * 4;
                    assert_eq!(size.number_of(hash_at(inside)), number);
                }
                assert_eq!(size.number_of(hash_at(last)), number);
                seen.push(number);
                at = next;
            }
            seen.sort_unstable();
            assert_eq!(seen, (0..buckets).collect::<Vec<_>>());
        }
        for i in 0..100 {
            let hash = mix(i) & !3;
            assert_eq!(hash_at(position(hash)), hash);
            for other in [hash, 0, hash ^ 4, hash ^ 1 << 63, mix(i + 1) & !3] {
                assert_eq!(precedes(hash, other), position(hash) < position(other));
            }
        }
    }
}
