//! Operations on several keys, by two-phase locking: the base nodes of all keys are locked in ascending order.

use super::{CaTree, Held, Target};
use crate::sequential::Balance;
use cats_engine::{Busy, Entry, Locked, OrderedSchema, Step};
use cats_sync::epoch::Guard;

/// The locked keys.
pub(super) struct Many<'a, S: OrderedSchema, B: Balance> {
    table: &'a CaTree<S, B>,
    guard: &'a Guard,
    probes: &'a [&'a S::Probe],
    /// Base nodes, in ascending order.
    bases: Vec<Held<'a, S::Key, B>>,
    /// For each probe the index of its base node.
    places: Vec<usize>,
}

impl<'a, S: OrderedSchema, B: Balance> Many<'a, S, B> {
    pub fn lock(table: &'a CaTree<S, B>, guard: &'a Guard, probes: &'a [&'a S::Probe]) -> Result<Self, Busy> {
        let schema = &table.schema;
        let mut order: Vec<usize> = (0..probes.len()).collect();
        order.sort_by(|&a, &b| schema.compare_probes(probes[a], probes[b]));
        let mut bases: Vec<Held<'a, S::Key, B>> = Vec::new();
        let mut places = vec![0; probes.len()];
        for i in order {
            let inside = bases.last().is_some_and(|last| {
                // SAFETY: bounds live as long as their node.
                let high = unsafe { last.base().high.as_ref() };
                high.is_none_or(|high| schema.compare_probes(probes[i], schema.probe(high)).is_lt())
            });
            if !inside {
                bases.push(table.enter(guard, &Target::At(probes[i]), false)?);
            }
            places[i] = bases.len() - 1;
        }
        Ok(Self {
            table,
            guard,
            probes,
            bases,
            places,
        })
    }

    /// Frees the locks. Adapts only if there was one base node. If there were several, contention says little about
    /// each of them.
    pub fn finish(mut self) {
        if self.bases.len() == 1 {
            let only = self.bases.pop().expect("one");
            self.table.leave(self.guard, only);
        }
    }
}

impl<S: OrderedSchema, B: Balance> Locked for Many<'_, S, B> {
    fn get(&self, i: usize) -> Option<Entry> {
        let tree = self.bases[self.places[i]].tree();
        tree.find(&self.table.schema, self.probes[i])
    }

    fn update(&mut self, i: usize, change: &mut dyn FnMut(Option<Entry>) -> Step) {
        let held = &mut self.bases[self.places[i]];
        let probe = self.probes[i];
        let (_, more) = held
            .tree_mut()
            .update(&self.table.schema, probe, |old| (change(old), ()));
        held.base().add(more);
    }
}
