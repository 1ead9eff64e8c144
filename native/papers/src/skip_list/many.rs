//! Operations on several keys: two-phase locking of their nodes in descending order. An absent key gets an empty node,
//! which is linked while its lock is held. So no other thread can insert the key. If the node is still empty at the
//! end, it is removed.

use super::node::Held;
use super::write::carry_out;
use super::SkipList;
use crate::hazard::Hazards;
use cats_engine::{Busy, Entry, Locked, OrderedSchema, Step};
use cats_sync::epoch::Guard;
use std::cmp::Ordering;

/// The locked keys.
pub(super) struct Many<'a, S: OrderedSchema> {
    list: &'a SkipList<S>,
    guard: &'a Guard,
    /// For each distinct key its node, and the index of its probe.
    held: Vec<(Held, usize)>,
    probes: &'a [&'a S::Probe],
    /// For each probe the index of its node in `held`.
    places: Vec<usize>,
    /// Keys whose node may have to be removed.
    emptied: Vec<usize>,
}

impl<'a, S: OrderedSchema> Many<'a, S> {
    pub fn lock(list: &'a SkipList<S>, guard: &'a Guard, probes: &'a [&'a S::Probe]) -> Result<Self, Busy> {
        let mut sorted: Vec<usize> = (0..probes.len()).collect();
        sorted.sort_by(|&a, &b| list.schema.compare_probes(probes[b], probes[a]));
        let mut many = Self {
            list,
            guard,
            held: Vec::with_capacity(probes.len()),
            probes,
            places: vec![0; probes.len()],
            emptied: Vec::new(),
        };
        for i in sorted {
            let last = many.held.last().map(|&(_, last)| probes[last]);
            if last.is_none_or(|last| list.schema.compare_probes(last, probes[i]) != Ordering::Equal) {
                let (held, made) = list.lock_place(guard, &list.sought(probes[i]))?;
                many.held.push((held, i));
                if made {
                    many.emptied.push(i);
                }
            }
            many.places[i] = many.held.len() - 1;
        }
        Ok(many)
    }
}

impl<S: OrderedSchema> Locked for Many<'_, S> {
    fn get(&self, i: usize) -> Option<Entry> {
        self.held[self.places[i]].0.node.entry()
    }

    fn update(&mut self, i: usize, change: &mut dyn FnMut(Option<Entry>) -> Step) {
        let held = &mut self.held[self.places[i]].0;
        let step = change(held.node.entry());
        held.changed |= carry_out(held.node, step);
        if step == Step::Remove {
            self.emptied.push(i);
        }
    }
}

impl<S: OrderedSchema> Drop for Many<'_, S> {
    /// Frees the locks, then removes empty nodes.
    fn drop(&mut self) {
        self.emptied
            .retain(|&i| self.held[self.places[i]].0.node.entry().is_none());
        self.held.clear();
        if self.emptied.is_empty() {
            return;
        }
        let hazards = Hazards::new(self.guard);
        for &i in &self.emptied {
            self.list.clean(&hazards, &self.list.sought(self.probes[i]));
        }
    }
}
