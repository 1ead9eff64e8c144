//! Which keys long transactions read: a counting filter for all tables, so its memory is bounded.
//!
//! Source: Fan, Cao, Almeida and Broder, "Summary cache: a scalable wide-area web cache sharing protocol", SIGCOMM 1998. Theirs has four
//! slots for each key. This one has one slot, as a key that is taken for another one costs little: its writers tell the log.
//!
//! A reader announces a key before it reads it. A writer locks the place of a key before it asks the filter. So if the reader has found the
//! place unlocked, whoever locks it later finds the key announced.

use super::Log;
use crate::failure::Failure;
use crate::garbage::{Expected, Garbage, ReapProcess};
use cats_engine::hash_of;
use cats_sync::facade::{fence, AtomicU32, Ordering};
use cats_term::mix;
use std::mem;

const SLOTS: usize = if cfg!(shuttle) { 4 } else { 1 << 18 };

/// More slots than this are left to the reaper, so many at once.
const FREED: usize = 10_000;

/// How many announcements each slot has. They need memory of their own, so there are fewer of them than a count can tell.
static COUNTS: [AtomicU32; SLOTS] = [const { AtomicU32::new(0) }; SLOTS];

fn slot(log: &Log, word: u64) -> usize {
    mix(hash_of(word) ^ (log as *const Log).addr() as u64) as usize % SLOTS
}

/// Between what a reader announces and what it reads, and between what a writer locks and what it asks.
pub(super) fn order() {
    // SeqCst: one of the two sees what the other one has done.
    fence(Ordering::SeqCst);
}

/// Whether a reader may have announced the key with this word. To be asked after [`order`].
pub(super) fn has(log: &Log, word: u64) -> bool {
    // Relaxed: see `order`.
    COUNTS[slot(log, word)].load(Ordering::Relaxed) != 0
}

/// The slots that a reader has announced.
#[derive(Default)]
pub(super) struct Slots(Vec<u32>);

impl Slots {
    /// Announces the key with this word. To be followed by [`order`].
    pub(super) fn announce(&mut self, log: &Log, word: u64) {
        let slot = slot(log, word);
        self.0.push(slot as u32);
        // Relaxed: see `order`.
        COUNTS[slot].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<u32>()
    }

    /// Gives up to `most` of them up.
    fn give_up(&mut self, most: usize) {
        for slot in self.0.drain(self.0.len().saturating_sub(most)..) {
            // Relaxed: the reader needs no writes any more.
            COUNTS[slot as usize].fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        match self.0.len() {
            0..=FREED => self.give_up(FREED),
            _ => Expected::new().enqueue(GivenUp(mem::take(self))),
        }
    }
}

/// Slots that the reaper gives up.
struct GivenUp(Slots);

impl Garbage for GivenUp {
    fn step(&mut self, _reap: ReapProcess<'_>) -> Result<bool, Failure> {
        self.0.give_up(FREED);
        Ok(!self.0 .0.is_empty())
    }
}
