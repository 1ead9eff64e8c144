//! What the contents of a table look like inside, and where operations met contention.

use crate::object::schema::{OwnedKey, Probe};
use crate::object::{body_bytes, is_group, key_of};
use crate::store::engine::DefaultEngine;
use crate::table::Handle;
use cats_engine::ca::{Sight, Stretch};
use cats_engine::hash::View;
use cats_engine::{hash_of, Entry};
use cats_sync::events::Adaptation;
use cats_sync::recorder::Recorder;
use cats_sync::Busy;
use cats_term::TermRef;
use std::collections::HashSet;

/// A key of the table, and the words of its object. They are not told if the key has many objects.
pub type SizedKey<'g> = (TermRef<'g>, usize);

/// What a view of a tree shows: leaves, and then keys in them, with their hashes.
pub enum Seen<'g> {
    Stretch(Stretch<'g, OwnedKey>),
    Key(u64, SizedKey<'g>),
}

impl<'g> Handle<'g> {
    /// The recorder of the table, if it is recorded.
    pub fn recorder(self) -> Option<&'g Recorder> {
        self.store().recorder()
    }

    /// Shows the last adaptations, the oldest first, with the keys at which base nodes were split or joined.
    pub fn each_adaptation(self, mut show: impl FnMut(&Adaptation, Option<&OwnedKey>)) {
        if let Some(events) = self.store().recordable() {
            events.each_adaptation(|adaptation| {
                let key = adaptation.key.as_ref().and_then(|key| key.downcast_ref());
                show(adaptation, key);
            });
        }
    }

    /// The number of buckets, if the engine is `hash`.
    pub fn hash_buckets(self) -> Option<usize> {
        self.store().default_engine()?.buckets()
    }

    /// See [`cats_engine::hash::Hash::view`]. Nothing for other engines.
    pub fn view_buckets(self, first: usize, amount: (usize, usize), strips: usize, view: &mut View) -> Option<usize> {
        self.store()
            .default_engine()?
            .view_buckets(self.guard, first, amount, strips, view)
    }

    /// Whether the engine is `ca`.
    pub fn has_tree(self) -> bool {
        self.store().default_engine().is_some_and(DefaultEngine::is_ordered)
    }

    /// See [`cats_engine::ca::Ca::view`]. Nothing for other engines. Also shows the keys that have one of these hashes.
    pub fn view_tree(
        self,
        from: Option<&Probe<'_>>,
        amount: (usize, usize),
        hashes: &HashSet<u64>,
        mut show: impl FnMut(Seen<'g>),
    ) -> Result<Option<&'g OwnedKey>, Busy> {
        // Most entries of a large table are kept out by a few bits of their hashes.
        let mut filter = [false; 4096];
        let place = |hash: u64| (hash >> 52) as usize;
        hashes.iter().for_each(|hash| filter[place(*hash)] = true);
        let is_wanted = |hash: u64| filter[place(hash)] && hashes.contains(&hash);
        let wanted: Option<&dyn Fn(u64) -> bool> = if hashes.is_empty() { None } else { Some(&is_wanted) };
        let visit = |sight: Sight<'g, OwnedKey>| match sight {
            Sight::Stretch(stretch) => show(Seen::Stretch(stretch)),
            Sight::Entry(entry) => show(Seen::Key(hash_of(entry.key), self.sized_key(entry))),
        };
        match self.store().default_engine() {
            Some(engine) => engine.view_tree(self.guard, from, amount, wanted, visit),
            None => Ok(None),
        }
    }

    /// A key with this hash, if the engine is `hash`.
    pub fn key_of_hash(self, hash: u64) -> Result<Option<SizedKey<'g>>, Busy> {
        let Some(engine) = self.store().default_engine() else {
            return Ok(None);
        };
        let found = engine.entry_of_hash(self.guard, hash)?;
        Ok(found.map(|entry| self.sized_key(entry)))
    }

    /// The key of an entry that was valid under the handle's guard.
    fn sized_key(self, entry: Entry) -> SizedKey<'g> {
        // SAFETY: what the entry points to is not freed under the guard.
        unsafe {
            let bytes = if is_group(entry.body) {
                0
            } else {
                body_bytes(entry.body)
            };
            (key_of(entry, self.table.key()), bytes / 8)
        }
    }
}
