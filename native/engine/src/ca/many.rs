//! Operations on several keys at once, by two-phase locking: the base nodes of all keys in ascending order, which keeps the
//! structure as it is for everybody else, then the leaves in ascending order. Every wait is bounded; when one fails all locks
//! are freed before anything was done.

use super::base::{Structure, WIDE};
use super::leaf::{Held, Leaf, Wanted};
use super::{sparse, Ca, Query};
use crate::{Busy, Entry, Locked, OrderedSchema, Step};
use cats_sync::epoch::Guard;

/// The locked keys.
pub(super) struct Many<'a, S: OrderedSchema> {
    table: &'a Ca<S>,
    guard: &'a Guard,
    probes: &'a [&'a S::Probe],
    // Leaves before base nodes: locks are freed in the order of the fields.
    leaves: Vec<Held>,
    bases: Vec<Structure<'a, S::Key>>,
    /// Probes whose leaf may have become nearly empty.
    shrinking: Vec<usize>,
    waited: bool,
}

impl<'a, S: OrderedSchema> Many<'a, S> {
    pub fn lock(table: &'a Ca<S>, guard: &'a Guard, probes: &'a [&'a S::Probe]) -> Result<Self, Busy> {
        let mut sorted = probes.to_vec();
        sorted.sort_by(|a, b| table.schema.compare_probes(a, b));
        let mut many = Self {
            table,
            guard,
            probes,
            leaves: Vec::new(),
            bases: Vec::new(),
            shrinking: Vec::new(),
            waited: false,
        };
        for probe in &sorted {
            let query = Query::new(&table.schema, *probe);
            // A locked base node stays where it is.
            let last = many.bases.last().map(|held| held.base);
            if last.is_none_or(|last| !std::ptr::eq(table.find_base(&query), last)) {
                many.bases.push(table.lock_base(&query)?);
            }
        }
        for probe in sorted {
            let (base, leaf) = table.find(&Query::new(&table.schema, probe));
            if many.leaves.last().is_none_or(|last| last.leaf != leaf) {
                let taken = Held::lock(leaf);
                if !matches!(taken, Ok((_, false))) {
                    base.statistic().contended();
                    many.waited = true;
                }
                many.leaves.push(taken?.0);
            }
        }
        Ok(many)
    }

    /// The leaf of a probe's key, and its place among those that are held.
    fn leaf(&self, query: &Query<S>) -> (Leaf, usize) {
        let leaf = self.table.find(query).1;
        let held = self.leaves.iter().position(|held| held.leaf == leaf);
        (leaf, held.expect("the leaves of all keys are locked"))
    }

    fn put(&mut self, query: &Query<S>, wanted: Wanted, entry: Entry) {
        let (leaf, held) = self.leaf(query);
        if let Some((slot, _)) = leaf.find(query, wanted, leaf.info()) {
            self.leaves[held].changed = true;
            return leaf.replace(slot, entry);
        }
        if let Some(place) = leaf.any_room(wanted.hash) {
            self.leaves[held].changed = true;
            return leaf.insert(query, place, entry);
        }
        let base = self.table.find_base(query);
        let way = self.table.way(base, query);
        let held = self.leaves.swap_remove(held);
        let leaves = &mut self.leaves;
        self.table.extend(self.guard, base, way, held, query, |leaf| {
            leaves.extend(Held::try_lock(leaf));
        });
        self.put(query, wanted, entry)
    }

    /// Frees the locks and does what is better done without them.
    pub fn finish(mut self) {
        let bases: Vec<_> = self.bases.iter().map(|held| held.base).collect();
        self.leaves.clear();
        self.bases.clear();
        for &i in &self.shrinking {
            self.table
                .shrink(self.guard, &Query::new(&self.table.schema, self.probes[i]));
        }
        match bases[..] {
            [base] => self.table.count(self.guard, base, self.waited),
            _ => bases.iter().for_each(|base| base.statistic().bump(WIDE)),
        }
    }
}

impl<S: OrderedSchema> Locked for Many<'_, S> {
    fn get(&self, i: usize) -> Option<Entry> {
        let query = Query::new(&self.table.schema, self.probes[i]);
        let (leaf, _) = self.leaf(&query);
        let wanted = Wanted::new(self.table.schema.word(self.probes[i]));
        leaf.find(&query, wanted, leaf.info()).map(|found| found.1)
    }

    fn step(&mut self, i: usize, step: Step) {
        let probe = self.probes[i];
        let query = Query::new(&self.table.schema, probe);
        let wanted = Wanted::new(self.table.schema.word(probe));
        let (leaf, held) = self.leaf(&query);
        match step {
            Step::Keep => {}
            Step::Touch => self.leaves[held].changed = true,
            Step::Put(entry) => self.put(&query, wanted, entry),
            Step::Remove => {
                if let Some((slot, _)) = leaf.find(&query, wanted, leaf.info()) {
                    self.leaves[held].changed = true;
                    leaf.remove(slot);
                    if sparse(leaf.info().count()) {
                        self.shrinking.push(i);
                    }
                }
            }
        }
    }
}
