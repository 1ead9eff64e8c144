//! What the buckets look like, for people: how full they are, and in which part of the hash range they are changed.

use super::Hash;
use crate::shared::linear::position;
use crate::Schema;
use cats_sync::epoch::Guard;

/// The most strips into which the hash range is divided.
pub const STRIPS: usize = 64;
/// A bucket with this number of keys or more counts for the last load.
pub const LOADS: usize = 16;

/// The buckets of one part of the hash range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Strip {
    pub buckets: usize,
    pub keys: usize,
    /// Changes of the buckets since these were made.
    pub changes: u64,
}

/// Sums over buckets.
#[derive(Debug)]
pub struct View {
    /// In traversal order. The last ones may have no bucket: see [`View::strips`].
    pub strips: [Strip; STRIPS],
    /// How many buckets have so many keys.
    pub loads: [usize; LOADS + 1],
}

impl Default for View {
    fn default() -> Self {
        Self {
            strips: [Strip::default(); STRIPS],
            loads: [0; LOADS + 1],
        }
    }
}

impl View {
    /// The number of strips for a table of so many buckets: a power of two, so that each strip has a bucket.
    pub fn strips(buckets: usize) -> usize {
        STRIPS.min(1 << buckets.max(1).ilog2())
    }

    /// The strip of a hash, of so many.
    pub fn strip_of(hash: u64, strips: usize) -> usize {
        ((u128::from(position(hash)) * strips as u128) >> 64) as usize
    }
}

impl<S: Schema, const WORDS: usize> Hash<S, WORDS> {
    /// Adds up one in `every` of the buckets from number `first` on, `limit` at most. `strips` is from [`View::strips`]. Returns the number
    /// from which to go on, or `None` at the end. Buckets whose number is below `every` are looked at in any case.
    ///
    /// What it sees of the buckets is of no one instant.
    pub fn view(
        &self,
        guard: &Guard,
        first: usize,
        (limit, every): (usize, usize),
        strips: usize,
        view: &mut View,
    ) -> Option<usize> {
        let buckets = self.size().buckets();
        let mut number = first;
        for _ in 0..limit {
            if number >= buckets {
                return None;
            }
            if let Some(bucket) = self.bucket(guard, number) {
                let keys = bucket.load(guard);
                let strip = &mut view.strips[View::strip_of((number as u64) << 2, strips)];
                strip.buckets += 1;
                strip.keys += keys;
                strip.changes += bucket.head.lock.changes();
                view.loads[keys.min(LOADS)] += 1;
            }
            number += every.max(1);
        }
        Some(number)
    }
}
