//! What a part of the live table and the nodes of a snapshot have together, for walks over a snapshot.
//!
//! The live table is read first, and the nodes after it. So whoever has changed an entry before it was read has kept it where it is found
//! then. What a node has hides the entry of the live table, and an older node hides a newer one, which is read before it.

use crate::object::copy::stable;
use crate::object::schema::{exact_order, stored_key, Probe};
use crate::object::ObjectRef;
use crate::snapshot::{Snapshot, NODES};
use crate::store::engine::DefaultEngine;
use crate::store::other::Expand;
use cats_engine::{behind_place, place_of, Entry, Range};
use cats_sync::epoch::Guard;
use cats_sync::facade::{fence, Ordering};
use cats_sync::Busy;
use cats_term::{compare, equal, is_immediate, TermRef};
use smallvec::SmallVec;
use std::cmp;
use std::ops;

/// An entry of the snapshot.
pub struct Seen<'g> {
    pub entry: Entry,
    pub key: TermRef<'g>,
    /// Whether it had not expired at the instant. Only known of an entry of the live table.
    lived: bool,
    /// Its objects, among those of [`Gathered`].
    pub objects: ops::Range<usize>,
}

/// The entries of a part of the snapshot.
pub struct Gathered<'g> {
    pub entries: Vec<Seen<'g>>,
    pub objects: Vec<ObjectRef<'g>>,
    /// The entries that were looked at, the hidden ones included, and as many as the search of the nodes counts for.
    pub looked_at: usize,
}

impl<'g> Gathered<'g> {
    pub fn nothing() -> Self {
        Self {
            entries: Vec::new(),
            objects: Vec::new(),
            looked_at: 0,
        }
    }

    /// The objects of an entry.
    pub fn objects_of(&self, seen: &Seen<'g>) -> &[ObjectRef<'g>] {
        &self.objects[seen.objects.clone()]
    }
}

/// What nodes have kept of a part, the newest node first.
struct Kept<'g> {
    entries: Vec<Seen<'g>>,
    /// How many there should be at most.
    most: usize,
    /// How many there were, also of those that are not within the part any more.
    looked_at: usize,
    nodes: usize,
}

impl Default for Kept<'_> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            most: MANY_KEPT,
            looked_at: 0,
            nodes: 0,
        }
    }
}

impl<'g> Kept<'g> {
    /// Adds what a node has within the part, with the key at this position.
    fn add(&mut self, found: &[Entry], key: usize, is_within: impl Fn(&Seen<'g>) -> bool) {
        self.looked_at += found.len();
        self.nodes += 1;
        let all = found.iter().filter_map(|entry| seen(*entry, key, true, 0..0));
        self.entries.extend(all.filter(is_within));
    }

    /// Where the part is to end, if there are too many: in the middle, by this order of what `of` tells of an entry.
    fn middle<K: Copy>(&self, of: impl Fn(&Seen<'g>) -> K, order: impl Fn(&K, &K) -> cmp::Ordering) -> Option<K> {
        if self.entries.len() < self.most {
            return None;
        }
        let mut all: Vec<K> = self.entries.iter().map(of).collect();
        let middle = (all.len() - 1) / 2;
        Some(*all.select_nth_unstable_by(middle, order).1)
    }

    /// How much work it was to find these, in entries.
    fn work(&self) -> usize {
        self.looked_at + self.nodes / NODES_OF_AN_ENTRY
    }

    /// Keeps what is within the part. Of one key there may be one entry in each node.
    fn retain(&mut self, is_within: impl Fn(&Seen<'g>) -> bool) {
        self.entries.retain(is_within);
        self.most = MANY_KEPT.max(2 * self.entries.len());
    }
}

/// The most entries that are collected of a store at once, of which it is not known yet how many are needed.
const STEP: usize = 64;

/// When nodes have shown so many entries of a part, it becomes smaller.
const MANY_KEPT: usize = 2048;

/// To search so many nodes is as much work as to look at an entry.
const NODES_OF_AN_ENTRY: usize = 2;

/// Up to this number of nodes need no allocation.
const FEW_NODES: usize = 8;

/// The position after all others.
pub const END: u64 = u64::MAX;

/// The first place that a scan at this position has not met. The lowest bit says that the scan is complete.
fn bound(position: u64) -> u64 {
    match position & 1 {
        0 => position,
        _ => END,
    }
}

/// An entry of the live table with its key, which is read while the engine shows the entry. `None` if the read is not valid.
fn seen<'g>(entry: Entry, key: usize, lived: bool, objects: ops::Range<usize>) -> Option<Seen<'g>> {
    // SAFETY: the engine shows the entry under the caller's guard, under which the key lives. It takes back what is not valid.
    let key = unsafe { stored_key(entry, key) }?;
    Some(Seen {
        entry,
        key,
        lived,
        objects,
    })
}

impl Snapshot {
    /// Reads the live entries that `read` shows, with their objects.
    fn gather_live<'g>(
        &self,
        expand: Expand<'_, 'g>,
        read: impl FnOnce(&mut Vec<Option<Seen<'g>>>, &mut dyn FnMut(Entry, &mut Vec<Option<Seen<'g>>>)) -> Result<(), Busy>,
    ) -> Result<Gathered<'g>, Busy> {
        let key = self.key();
        let mut gathered = Gathered::nothing();
        let objects = &mut gathered.objects;
        // Where the objects of each entry end.
        let mut ends: Vec<usize> = Vec::new();
        let mut entries: Vec<Option<Seen<'g>>> = Vec::new();
        read(&mut entries, &mut |entry, entries| {
            // The engine may have taken back some entries that it showed before.
            ends.truncate(entries.len());
            let start = ends.last().copied().unwrap_or(0);
            objects.truncate(start);
            // SAFETY: the engine shows the entry under the caller's guard.
            let (lived, entry) = unsafe { (self.node.lived(entry), stable(entry)) };
            expand(entry, objects);
            ends.push(objects.len());
            entries.push(seen(entry, key, lived, start..objects.len()));
        })?;
        gathered.looked_at = entries.len();
        gathered.entries = entries.into_iter().flatten().collect();
        Ok(gathered)
    }

    /// The entries from a position on, of about `limit` places, or of fewer if nodes have kept much of these. Moves the position behind them.
    /// Only for an unordered table.
    pub fn gather<'g>(
        &self,
        guard: &'g Guard,
        position: &mut u64,
        limit: usize,
        expand: Expand<'_, 'g>,
    ) -> Result<Gathered<'g>, Busy> {
        if bound(*position) == END {
            return Ok(Gathered::nothing());
        }
        let live = self.live(guard)?;
        let mut at = *position;
        let mut gathered = self.gather_live(expand, |entries, show| {
            live.scan(guard, &mut at, limit, entries, show)?;
            Ok(())
        })?;
        // Acquire pairs with the Release in `Node::keep`: whoever sees a change finds what was kept before it.
        fence(Ordering::Acquire);
        let mut end = bound(at);
        let mut kept = Kept::default();
        let (mut found, mut step) = (Vec::new(), limit.min(STEP));
        for copies in self.copies_from_newest(guard)? {
            let mut at = *position;
            found.clear();
            while bound(at) < end && found.len() < limit {
                let show = &mut |entry, found: &mut Vec<Entry>| found.push(entry);
                copies.scan(guard, &mut at, step, &mut found, show)?;
            }
            end = end.min(bound(at));
            kept.add(&found, self.key(), |seen| place_of(seen.entry.key) < end);
            if let Some(middle) = kept.middle(|seen| place_of(seen.entry.key), u64::cmp) {
                // Not behind the end: this node may have shown nothing there.
                (end, step) = (end.min(behind_place(middle)), step.div_ceil(2));
                kept.retain(|seen| place_of(seen.entry.key) < end);
            }
        }
        self.check()?;
        let is_within = |seen: &Seen<'_>| place_of(seen.entry.key) < end;
        gathered.looked_at += kept.work();
        gathered.entries.retain(|seen| is_within(seen) && seen.lived);
        let mut kept = kept.entries;
        kept.retain(is_within);
        if !kept.is_empty() {
            // Stable, so an older node stays before a newer one.
            kept.reverse();
            kept.sort_by(exact);
            kept.dedup_by(|other, one| exact(other, one).is_eq());
            let is_kept = |seen: &Seen<'_>| kept.binary_search_by(|other| exact(other, seen)).is_ok();
            gathered.entries.retain(|seen| !is_kept(seen));
            self.add_kept(&mut gathered, kept, expand);
        }
        *position = end;
        Ok(gathered)
    }

    /// The entries of a range, of about `limit` keys, or of fewer if nodes have kept much of these, in order. Also returns the key from which
    /// the range goes on. Only for an ordered table.
    pub fn gather_range<'g>(
        &self,
        guard: &'g Guard,
        range: Range<'_, Probe<'static>>,
        limit: usize,
        expand: Expand<'_, 'g>,
    ) -> Result<(Gathered<'g>, Option<TermRef<'g>>), Busy> {
        let down = range.down;
        let in_order = |a: TermRef<'_>, b: TermRef<'_>| match down {
            false => compare(a, b),
            true => compare(b, a),
        };
        let nearer = |a: Option<TermRef<'g>>, b: Option<TermRef<'g>>| match (a, b) {
            (Some(a), Some(b)) if in_order(a, b).is_gt() => Some(b),
            (a, b) => a.or(b),
        };
        let live = self.live(guard)?;
        let mut more = false;
        let mut gathered = self.gather_live(expand, |entries, show| {
            more = live.range(guard, range, limit, entries, show)?;
            Ok(())
        })?;
        // Acquire: as in `gather`.
        fence(Ordering::Acquire);
        let mut end = gathered.entries.last().filter(|_| more).map(|seen| seen.key);
        let mut kept = Kept::default();
        let mut found = Vec::new();
        for copies in self.copies_from_newest(guard)? {
            found.clear();
            let probe = end.map(Probe::ordered);
            let to = probe.as_ref().map(|probe| probe.erase()).or(range.to);
            let part = Range { to, ..range };
            let more = copies.range(guard, part, limit, &mut found, &mut |entry, found: &mut Vec<Entry>| {
                found.push(entry)
            })?;
            let start = kept.entries.len();
            kept.add(&found, self.key(), |_| true);
            if more {
                end = nearer(end, kept.entries[start..].last().map(|seen| seen.key));
            }
            if let Some(middle) = kept.middle(|seen| seen.key, |a, b| in_order(*a, *b)) {
                end = nearer(end, Some(middle));
                kept.retain(|seen| in_order(seen.key, middle).is_le());
            }
        }
        self.check()?;
        let is_within = |seen: &Seen<'_>| end.is_none_or(|end| in_order(seen.key, end).is_le());
        gathered.looked_at += kept.work();
        gathered.entries.retain(|seen| is_within(seen) && seen.lived);
        let mut kept = kept.entries;
        kept.retain(is_within);
        if !kept.is_empty() {
            let order = |a: &Seen<'_>, b: &Seen<'_>| in_order(a.key, b.key);
            // Stable, so an older node stays before a newer one.
            kept.reverse();
            kept.sort_by(order);
            kept.dedup_by(|other, one| order(other, one).is_eq());
            let is_kept = |seen: &Seen<'_>| kept.binary_search_by(|other| order(other, seen)).is_ok();
            gathered.entries.retain(|seen| !is_kept(seen));
            self.add_kept(&mut gathered, kept, expand);
            gathered.entries.sort_by(order);
        }
        Ok((gathered, end))
    }

    /// How many keys are looked up at once, of `most` at most. Each may be searched for in all nodes.
    pub fn keys_at_once(&self, guard: &Guard, most: usize) -> usize {
        most.min(NODES.0 / self.nodes(guard)).max(1)
    }

    /// The number of nodes from this snapshot's to the newest, as far as a scheduler may search them.
    pub fn nodes(&self, guard: &Guard) -> usize {
        self.copies(guard).take(NODES.0).count()
    }

    /// What the nodes have kept, from the newest to this snapshot's. In this order, what is found in a node is right unless an older one has
    /// the key: see [`copies`](Self::copies).
    fn copies_from_newest<'g>(&self, guard: &'g Guard) -> Result<impl Iterator<Item = DefaultEngine<'g>>, Busy> {
        let copies = self.copies(guard).collect::<Result<SmallVec<[_; FEW_NODES]>, _>>()?;
        Ok(copies.into_iter().rev())
    }

    /// Adds what nodes have kept, without tombstones and what had expired.
    fn add_kept<'g>(&self, gathered: &mut Gathered<'g>, kept: Vec<Seen<'g>>, expand: Expand<'_, 'g>) {
        for mut seen in kept {
            if !self.shows_copy(seen.entry) {
                continue;
            }
            let start = gathered.objects.len();
            expand(seen.entry, &mut gathered.objects);
            seen.objects = start..gathered.objects.len();
            gathered.entries.push(seen);
        }
    }
}

/// A total order in which only entries of the same key of an unordered table are equal.
fn exact(a: &Seen<'_>, b: &Seen<'_>) -> cmp::Ordering {
    let words = a.entry.key.cmp(&b.entry.key);
    words.then_with(|| match is_immediate(a.entry.key) || equal(a.key, b.key) {
        true => cmp::Ordering::Equal,
        false => exact_order(a.key, b.key),
    })
}

/// The order of two entries of an unordered table in a walk.
pub fn walk_order(a: (u64, TermRef<'_>), b: (u64, TermRef<'_>)) -> cmp::Ordering {
    let places = place_of(a.0).cmp(&place_of(b.0)).then(a.0.cmp(&b.0));
    places.then_with(|| match is_immediate(a.0) {
        true => cmp::Ordering::Equal,
        false => exact_order(a.1, b.1),
    })
}
