//! Operations on many keys: two-phase locking in traversal order. If that would take many locks, the table lock in
//! write mode instead.

use super::chain::{Place, Spare};
use super::locks::lock_of;
use super::{to_write, LinearHash, Locking, MOST_LOCKS};
use crate::bucket_lock::BucketLock;
use cats_engine::linear::position;
use cats_engine::{hash_of, Busy, Entry, Locked, Schema, Step};
use cats_sync::epoch::Guard;

/// The keys of one multi-key operation, all locked.
struct Many<'a, S: Schema> {
    table: &'a LinearHash<S>,
    guard: &'a Guard,
    locks: &'a [BucketLock],
    probes: &'a [&'a S::Probe],
    /// The key words and hashes of the probes.
    keys: &'a [(u64, u64)],
    spare: &'a mut Spare,
    /// Whether the number of entries has changed.
    counts: bool,
}

impl<S: Schema> LinearHash<S> {
    /// See [`cats_engine::Engine::update_many`].
    pub(super) fn change_many<R>(
        &self,
        guard: &Guard,
        probes: &[&S::Probe],
        change: impl FnOnce(&mut dyn Locked) -> R,
    ) -> Result<R, Busy> {
        let key = |probe: &&S::Probe| {
            let word = self.schema.word(probe);
            (word, hash_of(word))
        };
        let keys: Vec<_> = probes.iter().map(key).collect();
        let mut change = Some(change);
        let mut run = |locking| self.within(locking, || self.change_in(guard, locking, probes, &keys, &mut change));
        match run(self.locking)? {
            Some(result) => Ok(result),
            None => Ok(run(Locking::Table)?.expect("no other lock is needed")),
        }
    }

    /// Carries out the operation. The caller holds the table lock in the mode for `locking`. Returns `None`, and does
    /// nothing, if it would need too many locks.
    fn change_in<R>(
        &self,
        guard: &Guard,
        locking: Locking,
        probes: &[&S::Probe],
        keys: &[(u64, u64)],
        change: &mut Option<impl FnOnce(&mut dyn Locked) -> R>,
    ) -> Result<Option<R>, Busy> {
        let locks = self.locks.get(guard);
        // The hashes in traversal order, in which those of one lock are adjacent.
        let mut hashes: Vec<u64> = keys.iter().map(|key| key.1).collect();
        hashes.sort_unstable_by_key(|&hash| position(hash));
        hashes.dedup_by_key(|&mut hash| std::ptr::from_ref(lock_of(locks, hash)));
        if locking == Locking::Buckets && hashes.len() > MOST_LOCKS {
            return Ok(None);
        }
        let mut spare = Spare::new();
        let to_hold = hashes.iter().map(|&hash| to_write(lock_of(locks, hash), locking));
        let held = to_hold.collect::<Result<Vec<_>, Busy>>()?;
        let mut many = Many {
            table: self,
            guard,
            locks,
            probes,
            keys,
            spare: &mut spare,
            counts: false,
        };
        many.provide();
        let change = change.take().expect("run once");
        let result = change(&mut many);
        let counts = many.counts;
        drop(held);
        for hash in keys.iter().map(|key| key.1).filter(|_| counts) {
            self.resize(guard, locking, lock_of(locks, hash));
        }
        Ok(Some(result))
    }
}

impl<'a, S: Schema> Many<'a, S> {
    fn find(&self, i: usize) -> Place<'a> {
        let (word, hash) = self.keys[i];
        self.table.find(self.guard, hash, word, self.probes[i])
    }

    /// Provides nodes, enough to insert all keys. Removed nodes are used again.
    fn provide(&mut self) {
        for i in 0..self.keys.len() {
            if self.get(i).is_none() {
                self.spare.allocate_or_panic();
            }
        }
    }
}

impl<S: Schema> Locked for Many<'_, S> {
    fn get(&self, i: usize) -> Option<Entry> {
        self.find(i).entry()
    }

    fn update(&mut self, i: usize, change: &mut dyn FnMut(Option<Entry>) -> Step) {
        let lock = lock_of(self.locks, self.keys[i].1);
        let place = self.find(i);
        let step = change(place.entry());
        self.counts |= self.table.step(lock, place, step, self.spare);
    }
}
