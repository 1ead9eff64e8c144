//! Updates of one key, and the linking and unlinking of nodes.

use super::node::{Held, Node, LEVELS};
use super::search::{Found, Target};
use super::{free_retired, random_height, SkipList, Sought, ATTEMPTS};
use crate::hazard::Hazards;
use cats_engine::{Busy, Entry, OrderedSchema, Step};
use cats_sync::epoch::Guard;
use cats_sync::facade::Ordering;
use cats_sync::slab;
use smallvec::SmallVec;
use std::marker::PhantomData;

/// How often the unlinking of a node is tried before it is left to other threads.
const UNLINKING: u32 = if cfg!(any(loom, shuttle)) { 2 } else { 8 };

/// The locked predecessors of a place, on its levels from 0 up, in descending order of keys. A node may be the
/// predecessor on several levels. These are adjacent, so each node is locked once.
struct Preds {
    nodes: [Node; LEVELS],
    held: SmallVec<[Held; 4]>,
}

impl Preds {
    /// The predecessor on a level. It is locked, and so in the list and not dead.
    fn at(&self, level: usize) -> Node {
        self.nodes[level]
    }

    /// Records that the link at level 0 has changed.
    fn changed(&mut self) {
        self.held[0].changed = true;
    }
}

/// A locked node that is not linked. Dropping it frees the node.
struct Fresh<S: OrderedSchema> {
    node: Option<Held>,
    schema: PhantomData<S>,
}

impl<S: OrderedSchema> Fresh<S> {
    /// A new node for a key. Unwinds when memory is exhausted. Nothing was done yet then.
    fn new(sought: &Sought<'_, S>) -> Self {
        let node = slab::needed(Node::new(sought, random_height()));
        Self {
            node: Held::lock(node).ok(),
            schema: PhantomData,
        }
    }

    /// Like [`new`](Self::new), with a lock that has been free before. So a lookup that meets the node waits, because
    /// several nodes may get their entries together.
    fn waited_for(sought: &Sought<'_, S>) -> Self {
        let mut fresh = Self::new(sought);
        let node = fresh.node();
        fresh.node.take().into_iter().for_each(|mut held| held.changed = true);
        fresh.node = Held::lock(node).ok();
        fresh
    }

    fn node(&self) -> Node {
        self.node.as_ref().expect("not yet linked").node
    }
}

impl<S: OrderedSchema> Drop for Fresh<S> {
    fn drop(&mut self) {
        if let Some(held) = self.node.take() {
            let node = held.node;
            drop(held);
            // SAFETY: never linked, so no other thread can reach it.
            unsafe { node.free::<S>() };
        }
    }
}

impl<S: OrderedSchema> SkipList<S> {
    /// Locks the predecessors on the levels of a node, from level 0 up. `None` if a link there does not lead to `succ`
    /// of its level, as the search found.
    fn lock_preds(
        &self,
        found: &Found,
        height: usize,
        succ: impl Fn(usize) -> Option<Node>,
    ) -> Result<Option<Preds>, Busy> {
        let mut preds = Preds {
            nodes: found.preds,
            held: SmallVec::new(),
        };
        for level in 0..height {
            let pred = found.preds[level];
            if preds.held.last().is_none_or(|last| last.node != pred) {
                preds.held.push(Held::lock(pred)?);
            }
            // Relaxed: only the holder of the lock changes the link. The successor is protected, so the same address is
            // the same node. A node that is not dead is in the list.
            let next = pred.link(level).load(Ordering::Relaxed);
            if pred.is_dead() || next != succ(level).map_or(std::ptr::null_mut(), Node::address) {
                return Ok(None);
            }
        }
        Ok(Some(preds))
    }

    /// Links a new node between its locked predecessors and the successors that the search found.
    fn link(&self, mut fresh: Fresh<S>, found: &Found, preds: &mut Preds) -> Held {
        let held = fresh.node.take().expect("not yet linked");
        let node = held.node;
        self.bytes.add(node.bytes(&self.schema) as i64);
        for level in 0..node.height() {
            let next = found.succs[level].map_or(std::ptr::null_mut(), Node::address);
            // Relaxed: published by the store below.
            node.link(level).store(next, Ordering::Relaxed);
            // Release pairs with the Acquire of `protect`: a search that finds the node sees it complete.
            preds.at(level).link(level).store(node.address(), Ordering::Release);
        }
        preds.changed();
        held
    }

    /// See [`cats_engine::Engine::update`].
    pub(super) fn update_one<R>(
        &self,
        guard: &Guard,
        probe: &S::Probe,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        let sought = self.sought(probe);
        let hazards = Hazards::new(guard);
        let mut fresh = None;
        for _ in 0..ATTEMPTS {
            let found = self.find(&hazards, &Target::At(&sought))?;
            if let Some(node) = found.hit {
                let mut held = Held::lock(node)?;
                if node.is_dead() {
                    continue;
                }
                // If the closure unwinds, readers must assume a change.
                held.changed = true;
                let (step, result) = change(node.entry());
                held.changed = carry_out(node, step);
                if node.entry().is_none() {
                    self.unlink(&hazards, &sought, held);
                } else {
                    drop(held);
                    self.tidy(&hazards, &found);
                }
                return Ok(result);
            }
            let new = fresh.take().unwrap_or_else(|| Fresh::new(&sought));
            let height = new.node().height();
            let Some(mut preds) = self.lock_preds(&found, height, |level| found.succs[level])? else {
                fresh = Some(new);
                continue;
            };
            let (step, result) = change(None);
            if let Step::Put(entry) = step {
                new.node().put(entry);
                let mut held = self.link(new, &found, &mut preds);
                held.changed = true;
            }
            drop(preds);
            self.tidy(&hazards, &found);
            return Ok(result);
        }
        Err(Busy)
    }

    /// Locks the key's place. Makes an empty node if there is none, and returns whether it did.
    pub(super) fn lock_place(&self, guard: &Guard, sought: &Sought<'_, S>) -> Result<(Held, bool), Busy> {
        let hazards = Hazards::new(guard);
        let mut fresh = None;
        for _ in 0..ATTEMPTS {
            let found = self.find(&hazards, &Target::At(sought))?;
            if let Some(node) = found.hit {
                let held = Held::lock(node)?;
                if node.is_dead() {
                    continue;
                }
                return Ok((held, false));
            }
            let new = fresh.take().unwrap_or_else(|| Fresh::waited_for(sought));
            let height = new.node().height();
            if let Some(mut preds) = self.lock_preds(&found, height, |level| found.succs[level])? {
                return Ok((self.link(new, &found, &mut preds), true));
            }
            fresh = Some(new);
        }
        Err(Busy)
    }

    /// Unlinks an empty node. Leaves it if that would take long.
    fn unlink(&self, hazards: &Hazards<'_>, sought: &Sought<'_, S>, held: Held) {
        let node = held.node;
        for _ in 0..UNLINKING {
            let Ok(found) = self.find(hazards, &Target::At(sought)) else {
                return;
            };
            let mut preds = match self.lock_preds(&found, node.height(), |_| Some(node)) {
                Ok(Some(preds)) => preds,
                Ok(None) => continue,
                Err(Busy) => return,
            };
            node.die();
            for level in (0..node.height()).rev() {
                // Relaxed: the node is locked. Release: a search that goes on sees the next node complete.
                let next = node.link(level).load(Ordering::Relaxed);
                preds.at(level).link(level).store(next, Ordering::Release);
            }
            preds.changed();
            let mut held = held;
            // Tokens of the node also cover that it is not dead.
            held.changed = true;
            drop(preds);
            drop(held);
            self.bytes.add(-(node.bytes(&self.schema) as i64));
            // SAFETY: this thread alone unlinked it on all levels, as the node was locked and not dead. `retired`
            // belongs to this list.
            unsafe { self.retired.retire(node.as_retired(), |node| free_retired::<S>(node)) };
            return;
        }
    }

    /// Unlinks the key's node if it is empty.
    pub(super) fn clean(&self, hazards: &Hazards<'_>, sought: &Sought<'_, S>) {
        let Ok(found) = self.find(hazards, &Target::At(sought)) else {
            return;
        };
        let Some(Ok(held)) = found.hit.map(Held::lock) else {
            return;
        };
        if held.node.entry().is_none() && !held.node.is_dead() {
            self.unlink(hazards, sought, held);
        }
    }

    /// Unlinks empty neighbours of a place.
    fn tidy(&self, hazards: &Hazards<'_>, found: &Found) {
        for node in [Some(found.preds[0]), found.succs[0]].into_iter().flatten() {
            if node != self.head && node.entry().is_none() && node.lock.token().is_some() {
                return self.clean_node(hazards, node);
            }
        }
    }

    /// Unlinks a node that seems to be empty. It is protected until the next search.
    #[cold]
    pub(super) fn clean_node(&self, hazards: &Hazards<'_>, node: Node) {
        let key = node.own(&self.schema);
        self.clean(hazards, &self.sought(self.schema.probe(&key)));
    }
}

/// Carries out a step on a locked node. Returns whether anything was changed.
pub(super) fn carry_out(node: Node, step: Step) -> bool {
    match step {
        Step::Keep => return false,
        Step::Touch => {}
        Step::Put(entry) => node.put(entry),
        Step::Remove => node.take(),
    }
    true
}
