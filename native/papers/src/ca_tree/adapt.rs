//! Adaptation: a contended base node splits, an uncontended one joins its neighbour.
//!
//! Source: Sagonas, Winblad, "More Scalable Ordered Set for ETS Using Adaptation", Erlang 2014, section 3.2. Neither
//! changes the contents of the table. A key whose base node is being replaced is not absent, but behind a lock. Nothing
//! is changed before all memory and all locks are there. If one is missing, the statistic starts again from zero, and a
//! later operation will try again.

use super::node::{Base, Child, Node, Route};
use super::{CaTree, Found, Held, Target};
use crate::sequential::Balance;
use crate::shared::room::Room;
use cats_engine::OrderedSchema;
use cats_sync::epoch::Guard;
use cats_sync::events::Event;
use cats_sync::facade::{AtomicPtr, Ordering::*};
use cats_sync::probe;
use cats_sync::trace::Kind;
use std::mem;

/// The most route nodes above a base node, as in Erlang/OTP. Insertions in order split the last base node again and
/// again, and without a limit the route nodes would become a list.
const MAX_DEPTH: u32 = 16;

/// A route node's lock. Dropping it frees the lock.
struct RouteLock<'g, K> {
    route: &'g Route<K>,
    version: u64,
}

impl<'g, K> RouteLock<'g, K> {
    /// Takes the lock after a bounded wait.
    fn take(route: &'g Route<K>) -> Option<Self> {
        let (version, _) = route.lock.lock().ok()?;
        Some(Self { route, version })
    }
}

impl<K> Drop for RouteLock<'_, K> {
    fn drop(&mut self) {
        self.route.lock.unlock(self.version);
    }
}

impl<S: OrderedSchema, B: Balance> CaTree<S, B> {
    /// Splits or joins a base node if its statistic is beyond a threshold, and frees its lock.
    #[cold]
    pub(super) fn adapt(&self, guard: &Guard, held: Held<S::Key, B>) {
        let mut held = held;
        if held.shared {
            let found = held.found;
            drop(held);
            match Held::try_lock(found, false) {
                Some(exclusive) if exclusive.base().valid() => held = exclusive,
                _ => return,
            }
        }
        if held.base().lock().statistic().value() > self.thresholds.split {
            self.split(guard, held);
        } else {
            self.join(guard, held);
        }
    }

    /// Splits a base node under a new route node, if it has at least two entries.
    pub(super) fn split(&self, guard: &Guard, mut held: Held<S::Key, B>) {
        let Found { base, parent, depth } = held.found;
        base.lock().statistic().reset();
        let rooms = (|| Some((Room::take()?, Room::take()?, Room::take()?)))();
        let Some((route, left, right)) = rooms.filter(|_| depth < MAX_DEPTH) else {
            return;
        };
        let Some((below, above)) = held.tree_mut().split() else {
            return;
        };
        let first = above.entries(&self.schema, None, false).next();
        // SAFETY: the entry is in the table.
        let key = unsafe { self.schema.own(first.expect("neither half is empty")) };
        let route = route.fill(Route::new(key));
        // SAFETY: made above, and no other thread can reach it.
        let (key, slots) = unsafe { (&raw const (*route).key, [(*route).slot(0), (*route).slot(1)]) };
        let count = base.count();
        let left = left.fill(Base::new(below, count / 2, base.low, key));
        let right = right.fill(Base::new(above, count - count / 2, key, base.high));
        // Relaxed: published with the route node.
        slots[0].store(Node::base(left).address(), Relaxed);
        slots[1].store(Node::base(right).address(), Relaxed);
        base.invalidate();
        let slot = self.slot_of(parent, Node::base(base));
        // Release: publishes the new nodes.
        slot.store(Node::<S::Key, B>::route(route).address(), Release);
        drop(held);
        // Relaxed: see `bases`.
        let number = self.bases.fetch_add(1, Relaxed) + 1;
        probe!(ca_split, std::ptr::from_ref(self), number);
        self.adapted(Event::Split, Kind::Split, number);
        self.retire_base(guard, base);
    }

    /// Counts and traces a split or join after which there are so many base nodes.
    fn adapted(&self, event: Event, kind: Kind, number: usize) {
        self.events.record(kind, [number as u64, 0]);
        self.events.count(event, 1);
    }

    /// Joins a base node with its neighbour across the route node above it, which is removed. The neighbour's lock is
    /// only tried, because this may be against the locking order.
    pub(super) fn join(&self, guard: &Guard, mut held: Held<S::Key, B>) {
        let base = held.base();
        base.lock().statistic().reset();
        let Some(parent) = held.found.parent else { return };
        let side = parent.side_of(Node::base(base));
        let found = self.neighbour(guard, parent, side);
        let Some(mut other) = Held::try_lock(found, false) else {
            return;
        };
        let Some(room) = Room::take().filter(|_| other.base().valid()) else {
            return;
        };
        let Some(locked) = RouteLock::take(parent) else { return };
        let Some(above) = self.lock_above(guard, parent) else {
            return;
        };
        // From here on nothing can fail. The neighbour's parent is the one that the search found. If that is removed,
        // it is the route node above.
        let beside = if found.parent.is_some_and(|p| std::ptr::eq(p, parent)) {
            above.as_ref().map(|above| above.route)
        } else {
            found.parent
        };
        parent.invalidate();
        base.invalidate();
        other.base().invalidate();
        // Read after the lock was taken, because until then a join further down may write it.
        let sibling: Node<S::Key, B> = parent.child(1 - side);
        let slot = self.slot_of(above.as_ref().map(|above| above.route), Node::route(parent));
        // Release, here and below: publishes the node to searches.
        slot.store(sibling.address(), Release);
        drop((above, locked));
        let count = base.count() + other.base().count();
        let (mine, others) = (mem::take(held.tree_mut()), mem::take(other.tree_mut()));
        let joined = room.fill(if side == 0 {
            Base::new(mine.join(others), count, base.low, other.base().high)
        } else {
            Base::new(others.join(mine), count, other.base().low, base.high)
        });
        let slot = self.slot_of(beside, Node::base(other.base()));
        // Release: as above.
        slot.store(Node::base(joined).address(), Release);
        let other = {
            let base = other.base();
            drop((held, other));
            base
        };
        // Relaxed: see `bases`.
        let number = self.bases.fetch_sub(1, Relaxed) - 1;
        probe!(ca_join, std::ptr::from_ref(self), number);
        self.adapted(Event::Join, Kind::Join, number);
        // SAFETY: this thread alone has just taken it out of the tree.
        unsafe {
            let parent = std::ptr::from_ref(parent).cast_mut().cast();
            guard.retire(parent, 0, Room::<Route<S::Key>>::free_retired);
        }
        self.retire_base(guard, base);
        self.retire_base(guard, other);
    }

    /// The base node across a route node: the nearest one on its other side.
    fn neighbour<'g>(&self, _guard: &'g Guard, parent: &'g Route<S::Key>, side: usize) -> Found<'g, S::Key, B> {
        let (mut parent, mut node) = (parent, parent.child(1 - side));
        loop {
            // SAFETY: nodes are retired through epochs, so a node that was found under a guard lives as long as the
            // guard.
            match unsafe { node.child() } {
                Child::Base(base) => {
                    let (parent, depth) = (Some(parent), 0);
                    return Found { base, parent, depth };
                }
                Child::Route(route) => (parent, node) = (route, route.child(side)),
            }
        }
    }

    /// Locks the route node above one whose lock the caller holds. The root has none above. `None` if a lock stays held
    /// for long.
    fn lock_above<'g>(&self, guard: &'g Guard, route: &Route<S::Key>) -> Option<Option<RouteLock<'g, S::Key>>> {
        loop {
            let Some(above) = self.above(guard, route)? else {
                return Some(None);
            };
            let locked = RouteLock::take(above)?;
            // Another join removed it from the tree. Each such retry means that another thread made progress.
            if above.valid() {
                return Some(Some(locked));
            }
        }
    }

    /// The route node above one that is in the tree.
    fn above<'g>(&self, _guard: &'g Guard, route: &Route<S::Key>) -> Option<Option<&'g Route<S::Key>>> {
        let target = Target::At(self.schema.probe(&route.key));
        let (mut node, mut above) = (self.root(), None);
        loop {
            // SAFETY: as in `neighbour`.
            match unsafe { node.child() } {
                Child::Route(at) if std::ptr::eq(at, route) => return Some(above),
                Child::Route(at) => {
                    node = at.child(target.side(&self.schema, &at.key));
                    above = Some(at);
                }
                // It is not in the tree.
                Child::Base(_) => return None,
            }
        }
    }

    /// The slot that links a node: a child slot of `parent`, or the root.
    fn slot_of<'a>(&'a self, parent: Option<&'a Route<S::Key>>, node: Node<S::Key, B>) -> &'a AtomicPtr<u8> {
        match parent {
            None => &self.root,
            Some(parent) => parent.slot(parent.side_of(node)),
        }
    }

    fn retire_base(&self, guard: &Guard, base: &Base<S::Key, B>) {
        let base = std::ptr::from_ref(base).cast_mut().cast();
        // SAFETY: this thread alone has just taken it out of the tree.
        unsafe { guard.retire(base, 0, Room::<Base<S::Key, B>>::free_retired) }
    }

    /// Joins a base node that was found empty, if it is still empty.
    #[cold]
    pub(super) fn drop_empty(&self, guard: &Guard, found: Found<S::Key, B>) {
        if let Some(held) = Held::try_lock(found, false) {
            if held.base().valid() && held.tree().is_empty() {
                self.join(guard, held);
            }
        }
    }
}
