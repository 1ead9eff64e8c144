//! Operations on many keys: two-phase locking in the order of bucket numbers.

use super::bucket::{more, Bucket, Search};
use super::{Aftermath, Hash, Held, SPINS};
use crate::shared::radix;
use crate::{hash_of, Busy, Entry, HeldPlace, Locked, Schema, Step};
use cats_sync::epoch::Guard;
use cats_sync::facade::spin_loop;
use smallvec::SmallVec;

/// For up to this many keys nothing is allocated.
const STACK_KEYS: usize = 16;
/// How many buckets ahead are prefetched before they are locked, and objects before they are replaced.
const AHEAD: usize = 12;

/// The keys of one multi-key operation.
pub struct Many<'a, S: Schema, const WORDS: usize> {
    table: &'a Hash<S, WORDS>,
    guard: &'a Guard,
    probes: &'a [&'a S::Probe],
    /// The key words and hashes of the probes.
    keys: SmallVec<[(u64, u64); STACK_KEYS]>,
    /// The locked buckets, by number. Dropped, and so unlocked, before the aftermath.
    buckets: SmallVec<[Group<'a, WORDS>; STACK_KEYS]>,
    /// For each probe the index of its bucket in `buckets`.
    places: SmallVec<[usize; STACK_KEYS]>,
    after: Aftermath<'a>,
}

/// A bucket of a multi-key operation.
struct Group<'a, const WORDS: usize> {
    held: Held<'a, WORDS>,
    /// The number of probes in this bucket.
    probes: usize,
}

impl<'a, S: Schema, const WORDS: usize> Many<'a, S, WORDS> {
    /// The keys, not locked yet. Inlined, because the value is large and would be copied.
    #[inline(always)]
    pub fn new(table: &'a Hash<S, WORDS>, guard: &'a Guard, probes: &'a [&'a S::Probe]) -> Self {
        Self {
            table,
            guard,
            probes,
            keys: SmallVec::new(),
            buckets: SmallVec::new(),
            places: SmallVec::new(),
            after: table.aftermath(guard),
        }
    }

    /// Locks the buckets of all keys, in the order of their numbers.
    pub fn lock(&mut self) -> Result<(), Busy> {
        let key = |probe: &&S::Probe| {
            let word = self.table.shared.0.schema.word(probe);
            (word, hash_of(word))
        };
        self.keys.extend(self.probes.iter().map(key));
        self.places.resize(self.probes.len(), 0);
        self.buckets.reserve(self.probes.len());
        let mut spins = SPINS;
        while spins > 0 {
            spins -= 1;
            if self.try_lock(&mut spins) {
                return Ok(());
            }
            self.buckets.clear();
        }
        Err(Busy)
    }

    fn try_lock(&mut self, spins: &mut usize) -> bool {
        let size = self.table.size();
        let number = |key: &(u64, u64)| size.number_of(key.1);
        // Extended in place. Collecting would copy it.
        let mut numbers: SmallVec<[(usize, usize); STACK_KEYS]> = SmallVec::new();
        numbers.extend(self.keys.iter().map(number).zip(0..));
        radix::sort(&mut numbers);
        let mut ahead = numbers.iter().map(|(number, _)| *number);
        let mut prefetch = |count| {
            for number in ahead.by_ref().take(count) {
                if let Some(bucket) = self.table.bucket(self.guard, number) {
                    bucket.prefetch();
                }
            }
        };
        prefetch(AHEAD);
        for run in numbers.chunk_by(|a, b| a.0 == b.0) {
            prefetch(run.len());
            let Some(held) = self.lock_number(run[0].0, spins) else {
                return false;
            };
            run.iter()
                .for_each(|(_, probe)| self.places[*probe] = self.buckets.len());
            self.buckets.push(Group {
                held,
                probes: run.len(),
            });
        }
        // A number that is right while its bucket is locked stays right. If all are right at this instant, all buckets
        // are the right ones.
        let now = self.table.size();
        numbers
            .iter()
            .all(|(number, probe)| now.number_of(self.keys[*probe].1) == *number)
    }

    /// Locks a bucket. `None` if that takes too long, or if the bucket is no longer in use.
    fn lock_number(&self, number: usize, spins: &mut usize) -> Option<Held<'a, WORDS>> {
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

    /// Unlocks all. Then does what is to be done without locks.
    pub fn finish(&mut self) {
        self.buckets.clear();
        self.table.finish(self.guard, &self.after);
    }

    /// Provides overflow blocks, enough to insert all probes.
    pub fn provide(&mut self) {
        for group in &self.buckets {
            let missing = group.probes.saturating_sub(group.held.bucket.room(self.guard));
            for _ in 0..missing.div_ceil(more(WORDS)) {
                self.after.spare.allocate_or_panic();
            }
        }
    }

    /// The bucket of a probe.
    fn bucket(&self, i: usize) -> Bucket<'a, WORDS> {
        self.buckets[self.places[i]].held.bucket
    }

    /// Searches a probe's bucket. While all buckets are locked, its key is in no other.
    fn search(&self, i: usize) -> Search<'a, WORDS> {
        let (word, hash) = self.keys[i];
        let held = &self.buckets[self.places[i]].held;
        self.table.search(self.guard, held, word, hash, self.probes[i])
    }
}

impl<S: Schema, const WORDS: usize> Locked for Many<'_, S, WORDS> {
    fn get(&self, i: usize) -> Option<Entry> {
        self.search(i).found.map(|(_, entry)| entry)
    }

    fn update(&mut self, i: usize, change: &mut dyn FnMut(Option<Entry>) -> Step) {
        let search = self.search(i);
        let step = change(search.found.as_ref().map(|(_, entry)| *entry));
        let held = &mut self.buckets[self.places[i]].held;
        self.table
            .step(self.guard, held, self.keys[i].1, &search, step, &mut self.after);
    }

    fn update_all(&mut self, probes: usize, change: &mut dyn FnMut(usize, Option<Entry>) -> Step) {
        let schema = &self.table.shared.0.schema;
        for i in 0..probes {
            if i + 2 * AHEAD < probes {
                self.bucket(i + 2 * AHEAD).prefetch_block();
            }
            if i + AHEAD < probes {
                let word = self.keys[i + AHEAD].0;
                self.bucket(i + AHEAD).show_hits(word, |entry| schema.prefetch(entry));
            }
            self.update(i, &mut |old| change(i, old));
        }
    }

    fn held(&self, held: &mut Vec<HeldPlace>) {
        let place = |group: &Group<'_, WORDS>| HeldPlace::new(&group.held.bucket.head.lock, group.held.version);
        held.extend(self.buckets.iter().map(place));
    }
}
