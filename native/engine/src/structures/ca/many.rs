//! Operations on several keys, by two-phase locking. First the base nodes of all keys are locked in ascending order,
//! which keeps their structure stable. Then the leaves are locked in ascending order. Every wait is bounded. If one
//! fails, all locks are freed before anything was changed.
//!
//! Some keys change their order when this node gets another name: funs that hold pids or references. Then the tree is out of order for
//! them: several leaves have a range to which such a key belongs. Here each key goes to one of these that is locked.

use super::base::{Base, Structure, SAMPLING, WIDE};
use super::inner::{bound, Bound, Kind, Node};
use super::leaf::{Held, Leaf, Wanted};
use super::structure::{Path, Turn};
use super::{once_in, sparse, Ca, Query};
use crate::shared::radix;
use crate::{Busy, Entry, HeldPlace, Locked, OrderedSchema, Step};
use cats_sync::epoch::Guard;
use smallvec::SmallVec;
use std::ptr;

/// For up to this many keys little is allocated.
const STACK_KEYS: usize = 16;

/// The locked keys.
pub(super) struct Many<'a, S: OrderedSchema> {
    table: &'a Ca<S>,
    guard: &'a Guard,
    probes: &'a [&'a S::Probe],
    /// For each probe the index of its leaf in `leaves`. If the leaf was replaced, the index where it was.
    places: SmallVec<[usize; STACK_KEYS]>,
    /// The held leaves. `None` where a leaf was replaced; the new leaves are at the end. Declared before the base
    /// nodes, because locks are freed in the order of the fields.
    leaves: Vec<Option<Held>>,
    bases: Vec<Structure<'a, S::Key>>,
    /// The leaf that was last searched for after its first one was replaced, and its index.
    recent: Option<(Found<'a, S::Key>, usize)>,
    /// Probes whose leaf may have become nearly empty.
    shrinking: Vec<usize>,
    waited: bool,
}

/// The leaf of a key, and its key range.
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
        let base = self.find_base(query.probe);
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

    pub(super) fn is_below(&self, probe: &S::Probe, high: Bound<S::Key>) -> bool {
        // SAFETY: the bound of a leaf that was found under the guard of this operation.
        unsafe { bound(high) }.is_none_or(|high| self.schema.compare_probes(probe, self.schema.probe(high)).is_lt())
    }

    fn is_between(&self, probe: &S::Probe, low: Bound<S::Key>, high: Bound<S::Key>) -> bool {
        self.is_below(probe, high) && (low.is_null() || !self.is_below(probe, low))
    }
}

/// The path to a leaf, and its base node.
type BasePath<'a, K> = (&'a Base<K>, Path<K>);

/// Goes to the first leaf below a node for which this is true, and adds the turns. Returns the leaf and its range.
fn descend<K>(
    node: Node,
    low: Bound<K>,
    high: Bound<K>,
    turns: &mut Vec<Turn<K>>,
    is_it: &impl Fn(Leaf, Bound<K>, Bound<K>) -> bool,
) -> Option<(Leaf, Bound<K>, Bound<K>)> {
    match node.kind::<K>() {
        Kind::Leaf(leaf) => is_it(leaf, low, high).then_some((leaf, low, high)),
        Kind::Inner(inner) => (0..inner.len()).find_map(|index| {
            let depth = turns.len();
            turns.push(Turn {
                inner,
                index,
                low,
                high,
            });
            let (low, high) = inner.bounds(index, low, high);
            let found = descend(Node(inner.child(index)), low, high, turns, is_it);
            if found.is_none() {
                turns.truncate(depth);
            }
            found
        }),
    }
}

/// The indices of the probes in the order of their keys.
fn in_order<S: OrderedSchema>(schema: &S, probes: &[&S::Probe]) -> SmallVec<[usize; STACK_KEYS]> {
    if probes.is_sorted_by(|a, b| schema.compare_probes(a, b).is_le()) {
        return (0..probes.len()).collect();
    }
    // Key heads decide most comparisons.
    let mut sorted: SmallVec<[(u64, usize); STACK_KEYS]> =
        probes.iter().map(|probe| schema.head(probe, 0)).zip(0..).collect();
    radix::sort(&mut sorted);
    for run in sorted.chunk_by_mut(|a, b| a.0 == b.0) {
        run.sort_unstable_by(|(_, a), (_, b)| schema.compare_probes(probes[*a], probes[*b]));
    }
    let places: SmallVec<[usize; STACK_KEYS]> = sorted.into_iter().map(|(_, place)| place).collect();
    debug_assert!(places.is_sorted_by(|a, b| schema.compare_probes(probes[*a], probes[*b]).is_le()));
    places
}

impl<'a, S: OrderedSchema> Many<'a, S> {
    pub fn lock(table: &'a Ca<S>, guard: &'a Guard, probes: &'a [&'a S::Probe]) -> Result<Self, Busy> {
        let sorted = in_order(&table.schema, probes);
        let mut many = Self {
            table,
            guard,
            probes,
            places: SmallVec::from_elem(0, probes.len()),
            leaves: Vec::with_capacity(probes.len()),
            bases: Vec::new(),
            recent: None,
            shrinking: Vec::new(),
            waited: false,
        };
        for &i in &sorted {
            // A locked base node stays in the table.
            let last = many.bases.last();
            if last.is_none_or(|last| !table.is_below(probes[i], last.base.high)) {
                many.bases.push(table.lock_base(&Query::new(&table.schema, probes[i]))?);
            }
        }
        // All leaves are prefetched before the first one is locked, so that the cache misses overlap.
        let mut found: Vec<(Found<S::Key>, u64)> = Vec::with_capacity(probes.len());
        for i in sorted {
            let leaf = match found.last() {
                Some((last, _)) if table.is_below(probes[i], last.high) => last.leaf,
                _ => {
                    let query = Query::new(&table.schema, probes[i]);
                    let last = found.last().map(|(last, _)| last.base);
                    found.push((many.find_below_locked(&query, last)?, query.hash()));
                    found[found.len() - 1].0.leaf
                }
            };
            leaf.prefetch::<S>(Wanted::new(table.schema.word(probes[i])).hash);
            many.places[i] = found.len() - 1;
        }
        for (Found { base, leaf, .. }, hash) in found {
            let taken = Held::lock(leaf, &table.events, hash);
            if !matches!(taken, Ok((_, false))) {
                base.statistic().contended();
                many.waited = true;
            }
            many.leaves.push(Some(taken?.0));
        }
        Ok(many)
    }

    /// The leaf of a key. Its base node is locked, now if not before. `last` is a locked one, which is looked at first.
    fn find_below_locked(&mut self, query: &Query<S>, last: Option<&Base<S::Key>>) -> Result<Found<'a, S::Key>, Busy> {
        loop {
            let found = self.table.find_bounded(query);
            let mut locked = last.into_iter().chain(self.bases.iter().map(|locked| locked.base));
            if locked.any(|base| ptr::eq(base, found.base)) {
                return Ok(found);
            }
            self.bases.push(self.table.lock_base(query)?);
        }
    }

    /// The index of the leaf of a probe's key, if the first leaf or the one last searched for is right.
    fn place_at_hand(&self, i: usize) -> Option<usize> {
        if self.leaves[self.places[i]].is_some() {
            return Some(self.places[i]);
        }
        let (found, place) = self.recent.as_ref()?;
        let is_it = self.leaves[*place].is_some() && self.table.is_between(self.probes[i], found.low, found.high);
        is_it.then_some(*place)
    }

    /// The index of a leaf, if it is held.
    fn place_of(&self, leaf: Leaf) -> Option<usize> {
        let is_it = |held: &Option<Held>| held.as_ref().is_some_and(|held| held.leaf == leaf);
        self.leaves.iter().rposition(is_it)
    }

    /// The index, among the held leaves, of the leaf of a probe's key.
    #[inline]
    fn place(&mut self, i: usize, query: &Query<S>) -> usize {
        match self.place_at_hand(i) {
            Some(place) => place,
            None => self.search(query),
        }
    }

    /// Searches for the index of a probe's leaf, where neither first nor last one is right.
    #[cold]
    fn search(&mut self, query: &Query<S>) -> usize {
        let found = self.table.find_bounded(query);
        let (found, place) = match self.place_of(found.leaf) {
            Some(place) => (found, place),
            None => self.search_held(query),
        };
        self.recent = Some((found, place));
        place
    }

    /// Searches all held leaves for one to whose range a key belongs, where a search for the key does not lead to a held one. There is one:
    /// the key belonged to the range of its first leaf, and the leaves that replaced it share this range. Only if the node gets another name
    /// during this call, there may be none. Then it is a leaf with room, or any leaf if none has room: that one is extended next.
    #[cold]
    fn search_held(&self, query: &Query<S>) -> (Found<'a, S::Key>, usize) {
        let is_held = |leaf| self.place_of(leaf).is_some();
        let has_room = |leaf: Leaf| {
            leaf.room(Wanted::new(self.table.schema.word(query.probe)).hash)
                .is_some()
        };
        let found = self
            .path_where(|leaf, low, high| self.table.is_between(query.probe, low, high) && is_held(leaf))
            .or_else(|| self.path_where(|leaf, _, _| is_held(leaf) && has_room(leaf)))
            .or_else(|| self.path_where(|leaf, _, _| is_held(leaf)));
        let (base, Path { leaf, low, high, .. }) = found.expect("a leaf is held");
        let place = self.place_of(leaf).expect("the leaf is held");
        (Found { base, leaf, low, high }, place)
    }

    /// The first path in the locked base nodes to a leaf for which this is true, and its base node.
    #[cold]
    fn path_where(&self, is_it: impl Fn(Leaf, Bound<S::Key>, Bound<S::Key>) -> bool) -> Option<BasePath<'a, S::Key>> {
        self.bases.iter().find_map(|Structure { base, .. }| {
            let mut turns = Vec::new();
            let (leaf, low, high) = descend(base.root(), base.low, base.high, &mut turns, &is_it)?;
            Some((*base, Path { turns, leaf, low, high }))
        })
    }

    /// The held leaf at this index.
    fn leaf(&self, place: usize) -> Leaf {
        self.leaves[place].as_ref().expect("a leaf that is held").leaf
    }

    fn change(&mut self, place: usize) {
        if let Some(held) = &mut self.leaves[place] {
            held.changed = true;
        }
    }

    /// Inserts an entry whose key is not in its leaf, which is held at this index.
    fn insert(&mut self, i: usize, query: &Query<S>, wanted: Wanted, entry: Entry, place: usize) {
        let leaf = self.leaf(place);
        if let Some(room) = leaf.room(wanted.hash) {
            self.change(place);
            leaf.insert(query.schema, query.probe, room, entry);
            return self.table.keep_count(query.probe, leaf, None);
        }
        let mut base = self.table.find_base(query.probe);
        let mut path = self.table.path(base, query);
        if path.leaf != leaf {
            let found = self.path_where(|other, _, _| other == leaf);
            (base, path) = found.expect("a held leaf is in a locked base node");
        }
        let held = self.leaves[place].take().expect("the leaf is held");
        let leaves = &mut self.leaves;
        self.table.extend(self.guard, base, path, held, query, |leaf| {
            leaves.push(Held::try_lock(leaf));
        });
        let place = self.place(i, query);
        self.insert(i, query, wanted, entry, place)
    }

    /// Frees the locks, then does what needs no locks.
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
        let (schema, probe) = (&self.table.schema, self.probes[i]);
        let leaf = match self.place_at_hand(i) {
            Some(place) => self.leaf(place),
            None => self.table.find(probe).1,
        };
        let wanted = Wanted::new(schema.word(probe));
        leaf.find(schema, probe, wanted, leaf.info()).map(|found| found.1)
    }

    fn update(&mut self, i: usize, change: &mut dyn FnMut(Option<Entry>) -> Step) {
        let probe = self.probes[i];
        let query = Query::new(&self.table.schema, probe);
        let wanted = Wanted::new(self.table.schema.word(probe));
        let place = self.place(i, &query);
        let leaf = self.leaf(place);
        let found = leaf.find(query.schema, probe, wanted, leaf.info());
        match (change(found.map(|(_, entry)| entry)), found) {
            (Step::Keep, _) | (Step::Remove, None) => {}
            (Step::Touch, _) => self.change(place),
            (Step::Put(entry), None) => self.insert(i, &query, wanted, entry, place),
            (Step::Put(entry), Some((slot, old))) => {
                self.change(place);
                leaf.replace::<S>(slot, old, entry);
            }
            (Step::Remove, Some((slot, _))) => {
                self.change(place);
                leaf.remove::<S>(slot);
                self.table.keep_count(probe, leaf, None);
                if sparse(leaf.info().count()) {
                    self.shrinking.push(i);
                }
            }
        }
    }

    fn held(&self, held: &mut Vec<HeldPlace>) {
        let leaves = self.leaves.iter().flatten();
        held.extend(leaves.map(|leaf| HeldPlace::new(leaf.leaf.lock(), leaf.version)));
    }
}
