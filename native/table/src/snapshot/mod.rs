//! Snapshots: read-only tables of one instant (docs/internals/snapshots.md).
//!
//! | module | |
//! |---|---|
//! | `gather` | the entries of a part of a snapshot |
//! | `order` | order statistics |
//! | `take` | taking a snapshot |
//!
//! A snapshot reads the live table, and what the nodes of its [history](crate::history) have kept. This file has the snapshot as an engine.

mod gather;
mod order;
pub(crate) mod take;

use crate::budget::Budget;
use crate::failure;
use crate::history::marks::Marks;
use crate::history::{held_back, Node};
use crate::object::copy::{is_tombstone, stable};
use crate::object::schema::Probe;
use crate::object::ObjectRef;
use crate::store::engine::DefaultEngine;
use crate::store::other::{Expand, Frozen, Look, Other};
use crate::store::Store;
use cats_engine::{place_of, Between, Entry, Locked, Range, Step};
use cats_sync::epoch::Guard;
use cats_sync::facade::{fence, AtomicU32, Ordering};
use cats_sync::Busy;
use gather::{walk_order, Gathered, Seen, END};
use std::any::Any;
use std::sync::Arc;

/// The entries and nodes that a scheduler looks at to find an entry that is not hidden.
const PASSED: Budget = Budget(5000);
/// The nodes that a scheduler searches at once.
const NODES: Budget = Budget(2000);
/// The entries that a step looks at first. Each further attempt looks at four times as many, up to the second number.
const FIRST_ENTRIES: usize = 4;
const MOST_ENTRIES: usize = 512;
/// The objects of a slot on average.
const SLOT: usize = 4;

/// A snapshot as an engine that is only read.
pub struct Snapshot {
    node: Arc<Node>,
    /// The binary logarithm of the number of slots.
    slots: AtomicU32,
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.release();
    }
}

impl Snapshot {
    fn new(node: Arc<Node>) -> Self {
        Self {
            node,
            slots: AtomicU32::new(0),
        }
    }

    /// The snapshot whose contents these are.
    #[inline]
    pub fn of(store: &Store) -> Option<&Self> {
        Self::behind(store.snapshot()?)
    }

    fn behind(frozen: &dyn Frozen) -> Option<&Self> {
        frozen.as_any().downcast_ref()
    }

    fn key(&self) -> usize {
        self.node.form().key
    }

    fn marks(&self) -> &Marks {
        self.node.marks()
    }

    /// The number of objects, if none of those that were there at the instant had expired.
    fn exact_size(&self) -> Option<usize> {
        (!self.node.form().leased).then(|| self.node.size())
    }

    /// Fails if the snapshot has died. What was read before is right if it has not.
    fn check(&self) -> Result<(), Busy> {
        // Acquire pairs with the Release in `Node::keep`: whoever sees a change for which nothing was kept sees that the snapshot has died.
        fence(Ordering::Acquire);
        match self.is_overfull() {
            true => Err(Busy),
            false => Ok(()),
        }
    }

    /// Whether the snapshot has the object of a copy.
    fn shows_copy(&self, entry: Entry) -> bool {
        // SAFETY: copies live under the caller's guard.
        unsafe { !is_tombstone(entry.body) && self.node.lived(entry) }
    }

    fn live<'g>(&self, guard: &'g Guard) -> Result<DefaultEngine<'g>, Busy> {
        self.node.live(guard).and_then(Store::default_engine).ok_or(Busy)
    }

    /// What the nodes have kept, from this snapshot's to the newest. On a scheduler, of [`NODES`] at most.
    ///
    /// An older node hides a newer one. While somebody goes through the nodes, the instant of a newer one may pass. Then a key may be kept in
    /// an older one, after that was looked at, and again in the newer one. So a key that was found in a newer node is right only if the older
    /// ones do not have it afterwards: nothing is kept in them any more.
    fn copies<'g>(&self, guard: &'g Guard) -> impl Iterator<Item = Result<DefaultEngine<'g>, Busy>> {
        // SAFETY: the snapshot's node lives as long as this value, which is retired through the epoch.
        let own: &'g Node = unsafe { &*Arc::as_ptr(&self.node) };
        let copies = |(number, node): (usize, &'g Node)| match NODES.admits(number) {
            true => node.copies(guard).and_then(Store::default_engine).ok_or(Busy),
            false => Err(failure::too_long()),
        };
        std::iter::successors(Some(own), |node| node.newer(guard))
            .enumerate()
            .map(copies)
    }

    /// What was kept of a key.
    fn kept(&self, guard: &Guard, probe: &Probe<'_>) -> Result<Option<Entry>, Busy> {
        let first = |nodes: usize| {
            for (i, copies) in self.copies(guard).take(nodes).enumerate() {
                if let Some(entry) = copies?.read(guard, probe, |entry| entry)? {
                    return Ok(Some((i, entry)));
                }
            }
            Ok(None)
        };
        let Some((older, entry)) = first(usize::MAX)? else {
            return Ok(None);
        };
        Ok(Some(first(older)?.map_or(entry, |(_, entry)| entry)))
    }

    /// The first entries behind a key, in the order of walks. In an unordered table they are those of about `limit` places, and both
    /// directions are the same.
    fn entries_behind<'g>(
        &self,
        guard: &'g Guard,
        after: Option<&Probe<'static>>,
        down: bool,
        limit: usize,
        expand: Expand<'_, 'g>,
    ) -> Result<Gathered<'g>, Busy> {
        match self.is_ordered() {
            true => self.entries_in_order(guard, after, down, limit, expand),
            false => self.entries_in_walk(guard, after, limit, expand),
        }
    }

    fn entries_in_walk<'g>(
        &self,
        guard: &'g Guard,
        after: Option<&Probe<'static>>,
        mut limit: usize,
        expand: Expand<'_, 'g>,
    ) -> Result<Gathered<'g>, Busy> {
        let mut position = after.map_or(0, |probe| place_of(probe.word()));
        let mut passed = 0;
        while position != END {
            let mut gathered = self.gather(guard, &mut position, limit, expand)?;
            let place = |seen: &Seen<'g>| (seen.entry.key, seen.key);
            let after = after.map(|probe| (probe.word(), probe.term()));
            gathered
                .entries
                .retain(|seen| after.is_none_or(|after| walk_order(after, place(seen)).is_lt()));
            if !gathered.entries.is_empty() {
                gathered.entries.sort_by(|a, b| walk_order(place(a), place(b)));
                return Ok(gathered);
            }
            (limit, passed) = pass(limit, passed + gathered.looked_at)?;
        }
        Ok(Gathered::nothing())
    }

    fn entries_in_order<'g>(
        &self,
        guard: &'g Guard,
        after: Option<&Probe<'static>>,
        down: bool,
        limit: usize,
        expand: Expand<'_, 'g>,
    ) -> Result<Gathered<'g>, Busy> {
        let mut first = Gathered::nothing();
        let range = Range {
            from: after.map(|probe| (probe, false)),
            to: None,
            down,
        };
        self.each_part(guard, range, limit, PASSED, expand, |gathered| {
            std::mem::swap(&mut first, gathered);
            first.entries.is_empty()
        })?;
        Ok(first)
    }

    /// Appends the objects of keys behind this one, in the order of walks: of one key, or of about `limit` as long as `fits` accepts their
    /// number of words.
    pub fn objects_behind<'g>(
        &self,
        guard: &'g Guard,
        (after, down): (&Probe<'static>, bool),
        limit: usize,
        fits: impl Fn(usize) -> bool,
        expand: Expand<'_, 'g>,
    ) -> Result<Vec<ObjectRef<'g>>, Busy> {
        let gathered = self.entries_behind(guard, Some(after), down, limit, expand)?;
        let (mut objects, mut words) = (Vec::new(), 0);
        for seen in &gathered.entries {
            let more = gathered.objects_of(seen);
            words += more.iter().map(|object| object.words() + 2).sum::<usize>();
            if !objects.is_empty() && !fits(words) {
                break;
            }
            match down {
                false => objects.extend_from_slice(more),
                true => objects.extend(more.iter().rev()),
            }
        }
        Ok(objects)
    }

    /// [`next`](Other::next), or with `down` [`previous`](Other::previous).
    fn step(&self, guard: &Guard, after: Option<&Probe<'static>>, down: bool, look: Look<'_>) -> Result<(), Busy> {
        let gathered = self.entries_behind(guard, after, down, FIRST_ENTRIES, &mut |_, _| ())?;
        match gathered.entries.first() {
            // What was gathered of an ordered table does not change.
            first if self.is_ordered() => look(first.map(|seen| seen.entry)),
            Some(first) => return self.read(guard, Probe::of_entry(first.key, first.entry.key).erase(), look),
            None => look(None),
        }
        Ok(())
    }

    /// Calls `show` with the parts of a range of an ordered table, until it returns false or the range ends. Returns whether it may go on.
    /// On a scheduler it passes about `most` entries and nodes.
    fn each_part<'g>(
        &self,
        guard: &'g Guard,
        range: Range<'_, Probe<'static>>,
        limit: usize,
        most: Budget,
        expand: Expand<'_, 'g>,
        mut show: impl FnMut(&mut Gathered<'g>) -> bool,
    ) -> Result<bool, Busy> {
        let (mut limit, mut passed) = (limit, 0);
        let mut last = None;
        loop {
            let probe = last.map(Probe::ordered);
            let from = probe.as_ref().map(|probe| (probe.erase(), false)).or(range.from);
            let (mut gathered, end) = self.gather_range(guard, Range { from, ..range }, limit, expand)?;
            passed += gathered.looked_at;
            if !show(&mut gathered) {
                return Ok(end.is_some());
            }
            if end.is_none() {
                return Ok(false);
            }
            last = end;
            limit = (4 * limit).min(MOST_ENTRIES.max(limit));
            if !most.admits(passed) {
                return Err(failure::too_long());
            }
        }
    }
}

/// The next limit of a search that has passed so many entries.
fn pass(limit: usize, passed: usize) -> Result<(usize, usize), Busy> {
    match PASSED.admits(passed) {
        true => Ok(((4 * limit).min(MOST_ENTRIES), passed)),
        false => Err(failure::too_long()),
    }
}

impl Frozen for Snapshot {
    fn count_between(&self, guard: &Guard, between: Between<'_, Probe<'static>>) -> Result<usize, Busy> {
        self.number_between(guard, between)
    }

    fn find_nth<'g>(
        &self,
        guard: &'g Guard,
        place: (usize, bool),
        out: &mut Vec<ObjectRef<'g>>,
        expand: Expand<'_, 'g>,
    ) -> Result<(), Busy> {
        self.by_number(guard, place, out, expand)
    }

    fn set_size(&self) -> usize {
        let size = self.node.size();
        let slots = (size / SLOT).next_power_of_two().ilog2();
        // Relaxed: the snapshot is not known to anybody else yet.
        self.slots.store(slots, Ordering::Relaxed);
        size
    }

    fn release(&self) {
        self.node.clone().release();
    }

    fn is_overfull(&self) -> bool {
        self.node.is_overfull()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Other for Snapshot {
    fn is_ordered(&self) -> bool {
        self.node.form().ordered
    }

    fn snapshot(&self) -> Option<&dyn Frozen> {
        Some(self)
    }

    fn read(&self, guard: &Guard, probe: &Probe<'static>, look: Look<'_>) -> Result<(), Busy> {
        let visible = |entry: Entry| self.shows_copy(entry).then_some(entry);
        if let Some(entry) = self.kept(guard, probe)? {
            look(visible(entry));
            return self.check();
        }
        self.live(guard)?.read(guard, probe, |entry| {
            // SAFETY: the engine shows the entry under the guard.
            let entry = entry.filter(|entry| unsafe { self.node.lived(*entry) });
            // SAFETY: as above.
            look(entry.map(|entry| unsafe { stable(entry) }))
        })?;
        // Acquire pairs with the Release in `Node::keep`: whoever sees a change finds what was kept before it.
        fence(Ordering::Acquire);
        if let Some(entry) = self.kept(guard, probe)? {
            look(visible(entry));
        }
        self.check()
    }

    fn next(&self, guard: &Guard, after: Option<&Probe<'static>>, look: Look<'_>) -> Result<(), Busy> {
        self.step(guard, after, false, look)
    }

    fn previous(&self, guard: &Guard, before: Option<&Probe<'static>>, look: Look<'_>) -> Result<(), Busy> {
        self.step(guard, before, true, look)
    }

    fn range<'g>(
        &self,
        guard: &'g Guard,
        range: Range<'_, Probe<'static>>,
        limit: usize,
        out: &mut Vec<ObjectRef<'g>>,
        expand: Expand<'_, 'g>,
    ) -> Result<bool, Busy> {
        self.each_part(guard, range, limit, PASSED, expand, |gathered| {
            let entries = gathered.entries.iter();
            out.extend(entries.flat_map(|seen| gathered.objects_of(seen)));
            gathered.entries.is_empty()
        })
    }

    fn buckets(&self) -> usize {
        match self.is_ordered() {
            true => 0,
            // Relaxed: as in `set_size`.
            false => 1 << self.slots.load(Ordering::Relaxed),
        }
    }

    fn slot<'g>(
        &self,
        guard: &'g Guard,
        number: usize,
        expand: Expand<'_, 'g>,
    ) -> Result<Option<Vec<ObjectRef<'g>>>, Busy> {
        if self.is_ordered() {
            let mut out = Vec::new();
            self.by_number(guard, (number, false), &mut out, expand)?;
            return Ok((!out.is_empty()).then_some(out));
        }
        let buckets = self.buckets();
        if number >= buckets {
            return Ok(None);
        }
        // A slot is an interval of the places of walks, of which a table of this number of buckets has one in each bucket.
        let start_of = |number: usize| number as u64 * (END / buckets as u64 + 1);
        let mut position = if buckets == 1 { 0 } else { start_of(number) };
        let end = if number + 1 == buckets {
            END
        } else {
            start_of(number + 1)
        };
        let (mut out, mut limit, mut passed) = (Vec::new(), 2 * SLOT, 0);
        while position < end {
            let gathered = self.gather(guard, &mut position, limit, expand)?;
            (limit, passed) = pass(limit, passed + gathered.looked_at)?;
            for seen in gathered.entries.iter().filter(|seen| place_of(seen.entry.key) < end) {
                out.extend(gathered.objects_of(seen));
            }
        }
        Ok(Some(out))
    }

    fn base_nodes(&self) -> usize {
        let guard = cats_sync::epoch::pin();
        self.node.live(&guard).and_then(Store::base_nodes).unwrap_or(0)
    }

    fn bytes(&self) -> usize {
        let guard = cats_sync::epoch::pin();
        size_of::<Self>() + held_back(&self.node, &guard)
    }

    fn dismantle(&mut self, _limit: usize, _free: &mut dyn FnMut(Entry)) -> bool {
        true
    }

    fn update(
        &self,
        _guard: &Guard,
        _probe: &Probe<'static>,
        _change: &mut dyn FnMut(Option<Entry>) -> Step,
    ) -> Result<(), Busy> {
        Err(failure::frozen())
    }

    fn update_many(
        &self,
        _guard: &Guard,
        _probes: &[&Probe<'static>],
        _change: &mut dyn FnMut(&mut dyn Locked),
    ) -> Result<(), Busy> {
        Err(failure::frozen())
    }
}

#[cfg(all(test, shuttle))]
mod models;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
#[cfg(test)]
mod world;
