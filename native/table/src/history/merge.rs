//! Moves what released snapshots have kept into the next older node.
//!
//! While an older snapshot lives, what a newer one has kept stays, because it is the state of the older one too. Without merges, each
//! snapshot that comes and goes meanwhile would leave a node, and readers and writers pass all nodes.
//!
//! 1. What the released nodes have kept is copied to the older one, except for keys that it has. The oldest of them comes first.
//! 2. The guards of that moment end. A reader that looked into the older node before that has then seen the released ones too.
//! 3. The released nodes leave the chain.
//!
//! Writers keep nothing in the released nodes any more: the instant of a newer snapshot is past. In a chain one merge goes on at a time.

use super::{Form, Node, CHAINS};
use crate::failure::Failure;
use crate::garbage::{Expected, Garbage, ReapProcess};
use crate::object::copy::{copied, is_tombstone, tombstone};
use crate::object::schema::{OwnedKey, Probe};
use crate::store::engine::DefaultEngine;
use crate::store::Store;
use cats_engine::{Entry, Range};
use cats_sync::epoch::{pin, Guard};
use cats_sync::facade::Ordering;
use cats_sync::Busy;
use std::ops::Deref;
use std::sync::Arc;
use std::{mem, ptr};

/// Entries that a step copies.
const STEP: usize = 32;

/// Where the copying goes on.
enum Progress {
    /// In a hash table.
    Scan(u64),
    /// In an ordered one, behind this key.
    Behind(Option<OwnedKey>),
}

impl Progress {
    fn first(form: &Form) -> Self {
        match form.ordered {
            true => Progress::Behind(None),
            false => Progress::Scan(0),
        }
    }
}

/// See the module's documentation.
pub struct Merge {
    /// Neighbours in the chain, the oldest last.
    nodes: Vec<Merging>,
    /// How many of them are not copied yet.
    left: usize,
    /// Where the copying of the next of them goes on.
    place: Progress,
}

/// A node of a merge. While it is there, no other merge goes on in its chain.
struct Merging(Arc<Node>);

impl Merging {
    /// The caller holds [`CHAINS`], and no merge goes on in the chain.
    fn new(node: &Node) -> Self {
        // Relaxed: read by holders of the lock. Who sees late that a merge has ended begins none.
        node.merging.store(true, Ordering::Relaxed);
        Self(node.counted())
    }
}

impl Deref for Merging {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.0
    }
}

impl Drop for Merging {
    fn drop(&mut self) {
        // Relaxed: as in `new`.
        self.0.merging.store(false, Ordering::Relaxed);
    }
}

impl Garbage for Merge {
    fn step(&mut self, _reap: ReapProcess<'_>) -> Result<bool, Failure> {
        let guard = pin();
        if let Some(number) = self.left.checked_sub(1) {
            return Ok(self.copy(&guard, number)?);
        }
        let next = self.leave(&guard)?;
        let more = next.is_some();
        if let Some(next) = next {
            *self = next;
        }
        Ok(more)
    }
}

impl Merge {
    /// The next merge in the chain of a node, if there is one and none goes on.
    pub fn find(guard: &Guard, node: &Node) -> Result<Option<Self>, Busy> {
        CHAINS.with(|_| {
            let history = node.linked_history()?;
            let mut newest = history.newest(guard);
            // Writers may still keep something in the newest node whose instant is past.
            while let Some(open) = newest.filter(|node| !node.instant().is_past()) {
                newest = open.older(guard);
            }
            let (mut run, mut found) = (Vec::new(), Vec::new());
            let mut next = newest.and_then(|node| node.older(guard));
            while let Some(node) = next {
                // Relaxed: see `Merging`.
                if node.merging.load(Ordering::Relaxed) {
                    return None;
                }
                match node.is_done() {
                    true => run.push(node),
                    false if !run.is_empty() => found = mem::take(&mut run),
                    false => (),
                }
                next = node.older(guard);
            }
            (!found.is_empty()).then(|| Self {
                left: found.len(),
                place: Progress::first(&found[0].form()),
                nodes: found.into_iter().map(Merging::new).collect(),
            })
        })
    }

    /// Copies some entries of this one of the nodes. Returns whether there are more. If not, this value comes back to the reaper, unless
    /// there is nothing to merge.
    fn copy(&mut self, guard: &Guard, number: usize) -> Result<bool, Busy> {
        let [node, oldest] = [&self.nodes[number], &self.nodes[self.nodes.len() - 1]];
        // All may have left the chain at its oldest end.
        let older = oldest.older(guard);
        let from = node.copies(guard).and_then(Store::default_engine);
        let stores = (from, older.and_then(|older| older.copies(guard)));
        let (Some(older), (Some(from), Some(to))) = (older, stores) else {
            return Ok(false);
        };
        let (entries, place) = self.next_entries(guard, from)?;
        for entry in entries {
            // Without memory for a copy, the nodes stay in the chain.
            if !self.copy_entry(guard, entry, node, older, to)? {
                return Ok(false);
            }
        }
        if let Some(place) = place {
            self.place = place;
            return Ok(true);
        }
        self.left = number;
        self.place = Progress::first(&node.form());
        if self.left == 0 {
            self.come_back(guard);
        }
        Ok(self.left > 0)
    }

    /// Has the reaper go on when the present guards have ended.
    fn come_back(&mut self, guard: &Guard) {
        unsafe fn arrive(merge: *mut u8, _: usize) {
            // SAFETY: made below, and retired once.
            let (merge, expected) = *unsafe { Box::from_raw(merge.cast::<(Merge, Expected)>()) };
            expected.enqueue(merge);
        }
        let rest = Self {
            nodes: mem::take(&mut self.nodes),
            left: 0,
            place: Progress::Scan(0),
        };
        let rest = Box::new((rest, Expected::new()));
        // SAFETY: nobody else knows the memory. The reaper's queue may be reached from any thread.
        unsafe { guard.retire(Box::into_raw(rest).cast(), 0, arrive) };
    }

    /// The next entries, and the place behind them if there are more.
    fn next_entries(&self, guard: &Guard, from: DefaultEngine<'_>) -> Result<(Vec<Entry>, Option<Progress>), Busy> {
        let mut entries = Vec::new();
        let mut show = |entry, entries: &mut Vec<Entry>| entries.push(entry);
        let place = match &self.place {
            Progress::Scan(at) => {
                let mut at = *at;
                let more = from.scan(guard, &mut at, STEP, &mut entries, &mut show)?;
                more.then_some(Progress::Scan(at))
            }
            Progress::Behind(key) => {
                let range = Range {
                    from: key.as_ref().map(|key| (key.probe().erase(), false)),
                    to: None,
                    down: false,
                };
                let more = from.range(guard, range, STEP, &mut entries, &mut show)?;
                let last = entries.last().filter(|_| more).and_then(|entry| self.key_of(*entry));
                last.map(|last| Progress::Behind(Some(OwnedKey::new(last.term()))))
            }
        };
        Ok((entries, place))
    }

    /// The key of a copy.
    fn key_of(&self, entry: Entry) -> Option<Probe<'_>> {
        // SAFETY: what a node has kept lives as long as the caller's guard, and does not change.
        unsafe { Probe::stored(entry, self.nodes[0].form().key) }
    }

    /// Copies an entry of a node to the older one, unless that has the key. Returns false if there is no memory for it.
    fn copy_entry(&self, guard: &Guard, entry: Entry, node: &Node, older: &Node, to: &Store) -> Result<bool, Busy> {
        let Some(probe) = self.key_of(entry) else {
            unreachable!("a copy has a key")
        };
        let copied = older.put_copy(guard, &probe, to, || {
            // SAFETY: copies live under the guard, and do not change.
            match unsafe { is_tombstone(entry.body) } {
                true => tombstone(&probe, self.nodes[0].form().key),
                // SAFETY: as above.
                false => unsafe { copied(guard, entry, node.form().key, node.form().leased) },
            }
        })?;
        if let Some(bytes) = copied {
            node.give_bytes(older, bytes);
        }
        Ok(copied.is_some())
    }

    /// Takes the nodes out of the chain. Returns the next merge there.
    fn leave(&self, guard: &Guard) -> Result<Option<Self>, Busy> {
        let older = CHAINS.with(|_| {
            let [newest, oldest] = [&self.nodes[0], &self.nodes[self.nodes.len() - 1]];
            // If some have left the chain at its oldest end, all have.
            newest.linked_history()?;
            let (older, newer) = (oldest.older(guard)?, newest.newer(guard)?);
            // Release, for both, pairs with the Acquire of those who follow the chain.
            newer.older.store(ptr::from_ref(older).cast_mut(), Ordering::Release);
            older.newer.store(ptr::from_ref(newer).cast_mut(), Ordering::Release);
            // Relaxed: only the holder of the lock reads and writes it.
            self.nodes
                .iter()
                .for_each(|node| node.linked.store(false, Ordering::Relaxed));
            Some(older)
        })?;
        let Some(older) = older else { return Ok(None) };
        for node in &self.nodes {
            // SAFETY: the node has left the chain, and nobody needs what it has kept.
            unsafe { node.give_up(guard) };
        }
        Self::find(guard, older)
    }
}
