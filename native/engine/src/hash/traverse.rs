//! Traversal in the order of the reversed bits of the hash (ALGORITHMS section 6.6).
//!
//! The entries of a bucket fill an interval of that order, which a split halves and a merge reunites with its
//! neighbour. So a position needs no care when the table changes: a step reads the bucket that the position is in now,
//! passes over entries before the position, and goes on behind the bucket's interval. Keys with one hash are in the
//! order of their key words, then of the schema.

use super::bucket::Bucket;
use super::{Hash, Held, Size, OPTIMISM, SPINS};
use crate::{hash_of, Busy, Cursor, Entry, Schema};
use cats_sync::epoch::Guard;
use cats_sync::facade::spin_loop;
use smallvec::SmallVec;
use std::cmp::Ordering;

/// How many buckets a scan asks for in advance.
const AHEAD: u64 = 4;

/// Position of a scan: all entries before it have been met.
#[derive(Debug, Default, Clone, Copy)]
pub struct Position {
    at: u64,
    end: bool,
}

impl Cursor for Position {}

impl Position {
    /// The position as a number, for later scans of the same table. `at` is a multiple of 4.
    pub fn number(&self) -> u64 {
        self.at | u64::from(self.end)
    }

    /// The position of such a number; any number is some position.
    pub fn of_number(number: u64) -> Self {
        Self {
            at: number & !3,
            end: number & 1 == 1,
        }
    }
}

/// The place of a hash in the order of traversal: a multiple of 4.
#[inline]
pub(super) fn position(hash: u64) -> u64 {
    (hash >> 2).reverse_bits()
}

/// The least hash that is at a position.
#[inline]
pub(super) fn hash_at(position: u64) -> u64 {
    position.reverse_bits() << 2
}

/// Whether a hash stands before another in the order of traversal: the lowest bit in which they differ decides.
#[inline]
pub(super) fn precedes(hash: u64, other: u64) -> bool {
    let differ = hash ^ other;
    other & differ & differ.wrapping_neg() != 0
}

/// The first position behind the interval of a bucket that `at` is in; nothing if it is the last one.
pub(super) fn behind(at: u64, depth: u32) -> Option<u64> {
    if depth == 0 {
        return None;
    }
    let shift = u64::BITS - depth;
    ((at >> shift) + 1).checked_mul(1 << shift)
}

impl<S: Schema> Hash<S> {
    /// Whether one entry stands before another in the order of traversal; the hashes are given.
    #[inline]
    fn is_before(&self, hash: u64, entry: Entry, other_hash: u64, other: Entry) -> bool {
        if hash != other_hash {
            return precedes(hash, other_hash);
        }
        match entry.key.cmp(&other.key) {
            // SAFETY: both were read under the caller's guard, and have one word, which ends in 00.
            Ordering::Equal if entry.key & 3 == 0 => unsafe {
                self.shared.0.schema.compare_colliding_entries(entry, other).is_lt()
            },
            order => order.is_lt(),
        }
    }

    /// Whether an entry stands behind a probe, whose word and hash are given, in the order of traversal.
    #[inline]
    fn is_behind(&self, hash: u64, entry: Entry, word: u64, probe_hash: u64, probe: &S::Probe) -> bool {
        if hash != probe_hash {
            return precedes(probe_hash, hash);
        }
        match word.cmp(&entry.key) {
            // SAFETY: as in `is_before`.
            Ordering::Equal if word & 3 == 0 => unsafe { self.shared.0.schema.compare_colliding(probe, entry).is_lt() },
            order => order.is_lt(),
        }
    }

    /// Appends to `out` the entries of the bucket that the hash is in, without those before the hash `from`;
    /// optimistically at first. Returns the number of entries and the size that made it that bucket.
    fn visit<T>(
        &self,
        guard: &Guard,
        hash: u64,
        from: u64,
        out: &mut Vec<T>,
        expand: &mut impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<(usize, Size), Busy> {
        let before = out.len();
        let mut overtaken = 0;
        let mut read = |head: &Bucket, token| {
            let size = self.size();
            let mut met = 0;
            out.truncate(before);
            let whole = head.each(guard, token, |entry| {
                if !precedes(hash_of(entry.key), from) {
                    met += 1;
                    expand(entry, out);
                }
            });
            (whole && head.lock.validate(token)).then_some((met, size))
        };
        for _ in 0..SPINS {
            let Some((head, token)) = self.token(guard, hash) else {
                spin_loop();
                continue;
            };
            if let Some(done) = read(head, token) {
                return Ok(done);
            }
            overtaken += 1;
            if overtaken == OPTIMISM {
                break;
            }
        }
        let held = self.lock_to_read(guard, hash)?;
        Ok(read(held.head, held.token()).expect("nobody else changes a locked bucket"))
    }

    /// The first entry behind the key, with the buckets chosen, locked or not, by `open`.
    fn least<'g>(
        &self,
        guard: &'g Guard,
        after: Option<(u64, &S::Probe)>,
        mut open: impl FnMut(u64) -> Option<(&'g Bucket, u64)>,
    ) -> Option<Option<Entry>> {
        let after = after.map(|(word, probe)| (word, hash_of(word), probe));
        let mut hash = after.map_or(0, |(_, hash, _)| hash);
        loop {
            let (head, token) = open(hash)?;
            let size = self.size();
            let mut least: Option<(u64, Entry)> = None;
            let whole = head.each(guard, token, |entry| {
                let hash = hash_of(entry.key);
                if after.is_none_or(|(word, after, probe)| self.is_behind(hash, entry, word, after, probe))
                    && least.is_none_or(|(least_hash, least)| self.is_before(hash, entry, least_hash, least))
                {
                    least = Some((hash, entry));
                }
            });
            if !whole {
                return None;
            }
            let next = behind(position(hash), size.depth(hash)).map(hash_at);
            if let Some((_, least)) = least {
                // The bucket that a walk needs soon.
                if let Some(next) = next {
                    self.prefetch_hash(guard, next);
                }
                return Some(Some(least));
            }
            match next {
                Some(next) => hash = next,
                None => return Some(None),
            }
        }
    }

    /// See [`crate::Engine::next`].
    pub(super) fn step_on<R>(
        &self,
        guard: &Guard,
        after: Option<&S::Probe>,
        mut look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        let after = after.map(|probe| (self.shared.0.schema.word(probe), probe));
        // Few, as a table shrinks with its keys.
        let mut read = SmallVec::<[_; 8]>::new();
        let mut overtaken = 0;
        for _ in 0..SPINS {
            read.clear();
            let least = self.least(guard, after, |hash| {
                let opened = self.token(guard, hash)?;
                read.push(opened);
                Some(opened)
            });
            let Some(found) = least else {
                spin_loop();
                continue;
            };
            let result = look(found);
            // No bucket that was read has changed since: there was an instant at which all were as read.
            if read.iter().all(|(head, token)| head.lock.validate(*token)) {
                return Ok(result);
            }
            overtaken += 1;
            if overtaken == OPTIMISM {
                break;
            }
        }
        // Out of the order in which others lock, but no wait is without bound.
        let mut locked: Vec<Held<'_>> = Vec::new();
        let least = self.least(guard, after, |hash| {
            let held = self.lock_to_read(guard, hash).ok()?;
            let opened = (held.head, held.token());
            locked.push(held);
            Some(opened)
        });
        least.map(look).ok_or(Busy)
    }

    /// See [`crate::Engine::scan`].
    pub(super) fn scan_on<T>(
        &self,
        guard: &Guard,
        cursor: &mut Position,
        limit: usize,
        out: &mut Vec<T>,
        mut expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy> {
        let mut places = 0;
        while !cursor.end && places < limit.max(1) {
            let (before, hash) = (out.len(), hash_at(cursor.at));
            let Ok((met, size)) = self.visit(guard, hash, hash, out, &mut expand) else {
                out.truncate(before);
                return if places > 0 { Ok(true) } else { Err(Busy) };
            };
            places += met;
            match behind(cursor.at, size.depth(hash)) {
                Some(next) => {
                    let ahead = next.saturating_add((next - cursor.at).saturating_mul(AHEAD));
                    self.prefetch_hash(guard, hash_at(ahead));
                    cursor.at = next;
                }
                None => cursor.end = true,
            }
        }
        Ok(!cursor.end)
    }

    /// See [`crate::Engine::slot`].
    pub(super) fn entries_of<T>(
        &self,
        guard: &Guard,
        number: usize,
        mut expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<Option<Vec<T>>, Busy> {
        if number >= self.size().buckets() {
            return Ok(None);
        }
        let mut out = Vec::new();
        // A hash that is in the bucket of this number, as long as there is one.
        let (_, size) = self.visit(guard, (number as u64) << 2, 0, &mut out, &mut expand)?;
        Ok((number < size.buckets()).then_some(out))
    }
}
