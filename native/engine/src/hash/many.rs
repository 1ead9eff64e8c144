//! Operations on many keys: two-phase locking in the order of the buckets' numbers.

use super::bucket::{Search, SLOTS};
use super::{Aftermath, Hash, Held, SPINS};
use crate::{hash_of, Busy, Entry, Locked, Schema, Step};
use cats_sync::epoch::Guard;
use cats_sync::facade::spin_loop;

/// The keys of one multi-key operation.
pub struct Many<'a, S: Schema> {
    table: &'a Hash<S>,
    guard: &'a Guard,
    probes: &'a [&'a S::Probe],
    /// The words and hashes of the probes.
    keys: Vec<(u64, u64)>,
    /// The buckets by number, locked. Dropped, and so unlocked, before the aftermath.
    buckets: Vec<Group<'a>>,
    after: Aftermath<'a>,
}

/// A bucket of a multi-key operation.
struct Group<'a> {
    number: usize,
    held: Held<'a>,
    /// How many of the probes are there.
    probes: usize,
}

impl<'a, S: Schema> Many<'a, S> {
    /// Locks the buckets of all keys, in the order of their numbers.
    pub fn lock(table: &'a Hash<S>, guard: &'a Guard, probes: &'a [&'a S::Probe]) -> Result<Self, Busy> {
        let key = |probe: &&S::Probe| {
            let word = table.shared.0.schema.word(probe);
            (word, hash_of(word))
        };
        let mut many = Self {
            table,
            guard,
            probes,
            keys: probes.iter().map(key).collect(),
            buckets: Vec::new(),
            after: table.aftermath(guard),
        };
        let mut spins = SPINS;
        while spins > 0 {
            spins -= 1;
            if many.try_lock(&mut spins) {
                return Ok(many);
            }
            many.buckets.clear();
        }
        Err(Busy)
    }

    fn try_lock(&mut self, spins: &mut usize) -> bool {
        let size = self.table.size();
        let mut numbers: Vec<usize> = self.keys.iter().map(|key| size.number_of(key.1)).collect();
        numbers.sort_unstable();
        for run in numbers.chunk_by(|a, b| a == b) {
            let Some(held) = self.lock_number(run[0], spins) else {
                return false;
            };
            self.buckets.push(Group {
                number: run[0],
                held,
                probes: run.len(),
            });
        }
        // A number that is right while its bucket is locked stays so. If all are right now, all are locked and right.
        let size = self.table.size();
        self.keys.iter().all(|key| self.group(size.number_of(key.1)).is_some())
    }

    /// Locks a bucket, unless that takes too long or it is in use no more.
    fn lock_number(&self, number: usize, spins: &mut usize) -> Option<Held<'a>> {
        while *spins > 0 && number < self.table.size().buckets() {
            if let Some(mut held) = Held::new(self.table.bucket(self.guard, number)?) {
                held.changed = false;
                return Some(held);
            }
            *spins -= 1;
            spin_loop();
        }
        None
    }

    /// The place in `buckets` of a bucket's number.
    fn group(&self, number: usize) -> Option<usize> {
        self.buckets.binary_search_by_key(&number, |group| group.number).ok()
    }

    /// Unlocks all; returns what is left to do.
    pub fn unlock(self) -> Aftermath<'a> {
        self.after
    }

    /// Provides overflow blocks for the case that all probes are inserted.
    pub fn provide(&mut self) {
        for group in &self.buckets {
            let missing = group.probes.saturating_sub(group.held.bucket.room(self.guard));
            for _ in 0..missing.div_ceil(SLOTS) {
                self.after.spare.allocate_or_panic();
            }
        }
    }

    /// The place in `buckets` of a probe's bucket, and what is there.
    fn search(&self, i: usize) -> (usize, Search<'a>) {
        let (word, hash) = self.keys[i];
        // While all are locked, no other size gives another number.
        let group = self
            .group(self.table.size().number_of(hash))
            .expect("the bucket is locked");
        let held = &self.buckets[group].held;
        (group, self.table.search(self.guard, held, word, hash, self.probes[i]))
    }
}

impl<S: Schema> Locked for Many<'_, S> {
    fn get(&self, i: usize) -> Option<Entry> {
        self.search(i).1.found.map(|(_, entry)| entry)
    }

    fn step(&mut self, i: usize, step: Step) {
        let (group, search) = self.search(i);
        let held = &mut self.buckets[group].held;
        self.table
            .step(self.guard, held, self.keys[i].1, &search, step, &mut self.after);
    }
}
