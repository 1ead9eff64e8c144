//! Operations on several keys at once, by two-phase locking: the base nodes of all keys in ascending order, which keeps the
//! structure as it is for everybody else, then the leaves in ascending order. Every wait is bounded; when one fails all locks
//! are freed before anything was done.

use super::base::{Base, Structure, SAMPLING, WIDE};
use super::inner::{bound, Bound, Kind, Node};
use super::leaf::{Held, Leaf, Wanted};
use super::{once_in, sparse, Ca, Query};
use crate::{Busy, Entry, Locked, OrderedSchema, Step};
use cats_sync::epoch::Guard;

/// The locked keys.
pub(super) struct Many<'a, S: OrderedSchema> {
    table: &'a Ca<S>,
    guard: &'a Guard,
    probes: &'a [&'a S::Probe],
    /// For each probe the place of its leaf among `leaves`, or where that was before it was replaced.
    places: Vec<usize>,
    /// Nothing where a leaf was replaced: what came in its place is behind. Leaves before base nodes: locks are freed in the order
    /// of the fields.
    leaves: Vec<Option<Held>>,
    bases: Vec<Structure<'a, S::Key>>,
    /// The leaf that was last searched for, in the place of one that was replaced, and its place.
    recent: Option<(Found<'a, S::Key>, usize)>,
    /// Probes whose leaf may have become nearly empty.
    shrinking: Vec<usize>,
    waited: bool,
}

/// The leaf of a key, and its range.
struct Found<'a, K> {
    base: &'a Base<K>,
    leaf: Leaf,
    low: Bound<K>,
    high: Bound<K>,
}

impl<K> Clone for Found<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Found<'_, K> {}

impl<S: OrderedSchema> Ca<S> {
    fn find_bounded<'a>(&self, query: &Query<S>) -> Found<'a, S::Key> {
        let base = self.find_base(query);
        let (mut low, mut high) = (base.low, base.high);
        let mut node = base.root();
        loop {
            match node.kind::<S::Key>() {
                Kind::Leaf(leaf) => return Found { base, leaf, low, high },
                Kind::Inner(inner) => {
                    let index = inner.search(query, true);
                    (low, high) = inner.bounds(index, low, high);
                    node = Node(inner.child(index));
                }
            }
        }
    }

    fn is_below(&self, probe: &S::Probe, high: Bound<S::Key>) -> bool {
        // SAFETY: a bound of a leaf that was found under the guard of the operation.
        unsafe { bound(high) }.is_none_or(|high| self.schema.compare_probes(probe, self.schema.probe(high)).is_lt())
    }
}

impl<'a, S: OrderedSchema> Many<'a, S> {
    pub fn lock(table: &'a Ca<S>, guard: &'a Guard, probes: &'a [&'a S::Probe]) -> Result<Self, Busy> {
        let mut sorted: Vec<usize> = (0..probes.len()).collect();
        sorted.sort_by(|a, b| table.schema.compare_probes(probes[*a], probes[*b]));
        let mut many = Self {
            table,
            guard,
            probes,
            places: vec![0; probes.len()],
            leaves: Vec::new(),
            bases: Vec::new(),
            recent: None,
            shrinking: Vec::new(),
            waited: false,
        };
        for &i in &sorted {
            // A locked base node stays where it is.
            let last = many.bases.last();
            if last.is_none_or(|last| !table.is_below(probes[i], last.base.high)) {
                many.bases.push(table.lock_base(&Query::new(&table.schema, probes[i]))?);
            }
        }
        // All leaves are asked for before the first of them is locked, so that the waits for memory overlap.
        let mut found: Vec<Found<S::Key>> = Vec::with_capacity(sorted.len());
        for &i in &sorted {
            let next = match found.last() {
                Some(last) if table.is_below(probes[i], last.high) => *last,
                _ => table.find_bounded(&Query::new(&table.schema, probes[i])),
            };
            next.leaf.prefetch(Wanted::new(table.schema.word(probes[i])).hash);
            found.push(next);
        }
        let mut last = None;
        for (i, Found { base, leaf, .. }) in sorted.into_iter().zip(found) {
            if last != Some(leaf) {
                last = Some(leaf);
                let taken = Held::lock(leaf);
                if !matches!(taken, Ok((_, false))) {
                    base.statistic().contended();
                    many.waited = true;
                }
                many.leaves.push(Some(taken?.0));
            }
            many.places[i] = many.leaves.len() - 1;
        }
        Ok(many)
    }

    /// The leaf of a probe's key and its place among those that are held, if it is the one that was held for it at first, or
    /// the one last searched for.
    fn leaf_at_hand(&self, i: usize) -> Option<(Leaf, usize)> {
        if let Some(held) = &self.leaves[self.places[i]] {
            return Some((held.leaf, self.places[i]));
        }
        let (found, place) = self.recent.as_ref()?;
        let held = self.leaves[*place].as_ref()?;
        let below = |bound| self.table.is_below(self.probes[i], bound);
        (below(found.high) && (found.low.is_null() || !below(found.low))).then_some((held.leaf, *place))
    }

    /// The leaf of a probe's key, and its place among those that are held.
    fn leaf(&mut self, i: usize, query: &Query<S>) -> (Leaf, usize) {
        if let Some(at_hand) = self.leaf_at_hand(i) {
            return at_hand;
        }
        let found = self.table.find_bounded(query);
        let held = self
            .leaves
            .iter()
            .rposition(|held| held.as_ref().is_some_and(|held| held.leaf == found.leaf));
        let place = held.expect("the leaves of all keys are locked");
        self.recent = Some((found, place));
        (found.leaf, place)
    }

    fn change(&mut self, place: usize) {
        if let Some(held) = &mut self.leaves[place] {
            held.changed = true;
        }
    }

    /// Puts an entry whose key is in none of the leaves.
    fn insert(&mut self, i: usize, query: &Query<S>, wanted: Wanted, entry: Entry) {
        let (leaf, place) = self.leaf(i, query);
        if let Some(room) = leaf.any_room(wanted.hash) {
            self.change(place);
            return leaf.insert(query, room, entry);
        }
        let base = self.table.find_base(query);
        let way = self.table.way(base, query);
        let held = self.leaves[place].take().expect("the leaf is held");
        let leaves = &mut self.leaves;
        self.table.extend(self.guard, base, way, held, query, |leaf| {
            leaves.push(Held::try_lock(leaf));
        });
        self.insert(i, query, wanted, entry)
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
            [base] => self.table.count(self.guard, base, self.waited, once_in(SAMPLING)),
            _ => bases.iter().for_each(|base| base.statistic().bump(WIDE)),
        }
    }
}

impl<S: OrderedSchema> Locked for Many<'_, S> {
    fn get(&self, i: usize) -> Option<Entry> {
        let query = Query::new(&self.table.schema, self.probes[i]);
        let at_hand = self.leaf_at_hand(i).map(|found| found.0);
        let leaf = at_hand.unwrap_or_else(|| self.table.find(&query).1);
        let wanted = Wanted::new(self.table.schema.word(self.probes[i]));
        leaf.find(&query, wanted, leaf.info()).map(|found| found.1)
    }

    fn update(&mut self, i: usize, change: &mut dyn FnMut(Option<Entry>) -> Step) {
        let probe = self.probes[i];
        let query = Query::new(&self.table.schema, probe);
        let wanted = Wanted::new(self.table.schema.word(probe));
        let (leaf, place) = self.leaf(i, &query);
        let found = leaf.find(&query, wanted, leaf.info());
        match (change(found.map(|(_, entry)| entry)), found) {
            (Step::Keep, _) | (Step::Remove, None) => {}
            (Step::Touch, _) => self.change(place),
            (Step::Put(entry), None) => self.insert(i, &query, wanted, entry),
            (Step::Put(entry), Some((slot, old))) => {
                self.change(place);
                leaf.replace(slot, old, entry);
            }
            (Step::Remove, Some((slot, _))) => {
                self.change(place);
                leaf.remove(slot);
                if sparse(leaf.info().count()) {
                    self.shrinking.push(i);
                }
            }
        }
    }
}
