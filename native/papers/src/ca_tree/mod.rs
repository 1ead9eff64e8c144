//! `ca_avl` and `ca_treap`: contention adapting search trees, as proposed for ETS.
//!
//! Source: Sagonas, Winblad, "More Scalable Ordered Set for ETS Using Adaptation", Erlang 2014, sections 3 to 5 and 7.
//! A binary tree of route nodes is above the base nodes. A base node is a sequential ordered set (`Tree`) under a
//! lock that measures its own contention. A contended base node splits in two under a new route node. An uncontended
//! one joins its neighbour. Every operation, even a lookup, locks the base node of its key and checks that it is still
//! valid. That lock is exclusive, or shared between readers.
//!
//! Invariants, on which the correctness rests:
//!
//! 1. The valid base nodes partition the keys. A base node's range never changes: the node is replaced, never resized.
//! 2. A slot that holds a base node is written by the holder of that node's lock. A slot that holds a route node is
//!    written by the holder of two locks: that node's, and that of the node with the slot.
//! 3. `valid` goes from true to false once, under the node's lock. A removed route node keeps its children. So a search
//!    on an old path ends in an invalid base node or in the right one.
//! 4. The parent of a valid base node is valid. A route node is removed only together with a base node below it and
//!    that one's neighbour across the route node, both locked.
//! 5. The bounds of a valid base node are the keys of route nodes in the tree.
//!
//! Locking order: base nodes in ascending order of keys, otherwise they are only tried. Route nodes are locked after
//! base nodes, and a route node before the one above it. Every wait is bounded. Nodes that left the tree are retired
//! through epochs.
//!
//! All operations of the traits are linearizable, with two exceptions. A call of `scan` is linearizable range by range,
//! and `slot` is not linearizable.

mod adapt;
#[cfg(test)]
mod inspect;
mod many;
#[cfg(all(test, shuttle))]
mod models;
mod node;
#[cfg(all(test, not(shuttle)))]
mod tests;
mod walk;

use crate::detaching::Detaching;
use crate::eventful::Eventful;
use crate::sequential::{Avl, Balance, Treap, Tree, NODE};
use crate::shared::by_range::{self, Position};
use crate::shared::random::random;
use crate::shared::room::Room;
use cats_engine::ca::Thresholds;
use cats_engine::config::{BaseLock, Config};
use cats_engine::{Busy, Engine, Entry, Locked, OrderedEngine, OrderedSchema, Range, Step};
use cats_sync::epoch::Guard;
use cats_sync::events::Events;
use cats_sync::facade::{AtomicPtr, AtomicUsize, Ordering::*};
use many::Many;
use node::{Base, Child, Node, Route};
use std::ptr;

/// The contention adapting tree with AVL trees.
pub type CaAvl<S> = CaTree<S, Avl>;
/// The contention adapting tree with treaps.
pub type CaTreap<S> = CaTree<S, Treap>;

/// How often an operation starts again because another thread had replaced its base node. Then it returns `Busy`.
const ATTEMPTS: u32 = 1000;
/// Readers that share locks do not lower the statistic. One reader in this many adds `GRAVITY` for all of them. The
/// numbers are those of Erlang/OTP.
const GRAVITY_SAMPLING: u32 = 512;
const GRAVITY: i32 = -500;

/// See the module's documentation.
pub struct CaTree<S: OrderedSchema, B: Balance> {
    /// Null after the engine was dismantled.
    root: AtomicPtr<u8>,
    schema: S,
    thresholds: Thresholds,
    /// Whether readers share the locks of base nodes.
    shared: bool,
    events: Events,
    /// The number of base nodes. Relaxed: a statistic.
    bases: AtomicUsize,
    /// Nodes that are still to be dismantled.
    remains: Vec<Node<S::Key, B>>,
}

// SAFETY: the engine owns the nodes, and uses them as locks and epochs allow. Keys may be shared and sent
// (`OrderedSchema::Key`).
unsafe impl<S: OrderedSchema, B: Balance> Send for CaTree<S, B> {}
// SAFETY: as above.
unsafe impl<S: OrderedSchema, B: Balance> Sync for CaTree<S, B> {}

/// Which base node to find.
enum Target<'a, S: OrderedSchema> {
    First,
    Last,
    /// The base node whose range holds the key.
    At(&'a S::Probe),
    /// The base node whose range holds the keys right below the key.
    Below(&'a S::Probe),
}

impl<S: OrderedSchema> Target<'_, S> {
    /// The side of a route node on which the target is.
    #[inline]
    fn side(&self, schema: &S, key: &S::Key) -> usize {
        let right = match self {
            Target::First => false,
            Target::Last => true,
            Target::At(probe) => schema.compare_probes(probe, schema.probe(key)).is_ge(),
            Target::Below(probe) => schema.compare_probes(probe, schema.probe(key)).is_gt(),
        };
        usize::from(right)
    }
}

/// A base node that was found, and the route node above it.
struct Found<'g, K, B> {
    base: &'g Base<K, B>,
    parent: Option<&'g Route<K>>,
    /// The number of route nodes above it.
    depth: u32,
}

impl<K, B> Clone for Found<'_, K, B> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K, B> Copy for Found<'_, K, B> {}

/// A locked base node, which was valid when it was locked. Dropping it frees the lock.
struct Held<'g, K, B> {
    found: Found<'g, K, B>,
    shared: bool,
}

impl<'g, K, B: Balance> Held<'g, K, B> {
    /// Takes the lock after a bounded wait.
    #[inline]
    fn lock(found: Found<'g, K, B>, shared: bool) -> Result<Self, Busy> {
        let lock = found.base.lock();
        if shared {
            lock.lock_shared()?;
        } else {
            lock.lock()?;
        }
        Ok(Self { found, shared })
    }

    fn try_lock(found: Found<'g, K, B>, shared: bool) -> Option<Self> {
        let lock = found.base.lock();
        let taken = if shared {
            lock.try_lock_shared()
        } else {
            lock.try_lock()
        };
        taken.then(|| Self { found, shared })
    }

    #[inline]
    fn base(&self) -> &'g Base<K, B> {
        self.found.base
    }

    #[inline]
    fn tree(&self) -> &Tree<B> {
        // SAFETY: the lock is held, and this borrow excludes `tree_mut`.
        unsafe { &*self.base().tree() }
    }

    #[inline]
    fn tree_mut(&mut self) -> &mut Tree<B> {
        debug_assert!(!self.shared);
        // SAFETY: the lock is held exclusively.
        unsafe { &mut *self.base().tree() }
    }
}

impl<K, B> Drop for Held<'_, K, B> {
    #[inline]
    fn drop(&mut self) {
        let lock = self.found.base.lock();
        if self.shared {
            lock.unlock_shared();
        } else {
            lock.unlock();
        }
    }
}

impl<S: OrderedSchema, B: Balance> CaTree<S, B> {
    /// An empty table with the configured thresholds and locks of base nodes. `None` when memory is exhausted.
    pub fn new(schema: S, config: &Config) -> Option<Self> {
        Self::with(schema, config.thresholds(), config.base_lock == BaseLock::Rw)
    }

    /// An empty table. `shared` says whether readers share the locks of base nodes. `None` when memory is exhausted.
    fn with(schema: S, thresholds: Thresholds, shared: bool) -> Option<Self> {
        let base = Base::<S::Key, B>::new(Tree::default(), 0, ptr::null(), ptr::null());
        Some(Self {
            root: AtomicPtr::new(Node::base(Room::take()?.fill(base)).address()),
            schema,
            thresholds,
            shared,
            events: Events::default(),
            bases: AtomicUsize::new(1),
            remains: Vec::new(),
        })
    }

    fn root(&self) -> Node<S::Key, B> {
        // Acquire pairs with the Release that published the node.
        Node::from_address(self.root.load(Acquire))
    }

    #[inline]
    fn find<'g>(&self, _guard: &'g Guard, target: &Target<S>) -> Found<'g, S::Key, B> {
        let (mut node, mut parent, mut depth) = (self.root(), None, 0);
        loop {
            // SAFETY: nodes are retired through epochs, so a node that was found under a guard lives as long as the
            // guard.
            match unsafe { node.child() } {
                Child::Base(base) => return Found { base, parent, depth },
                Child::Route(route) => {
                    node = route.child(target.side(&self.schema, &route.key));
                    parent = Some(route);
                    depth += 1;
                }
            }
        }
    }

    /// Finds and locks a valid base node.
    #[inline]
    fn enter<'g>(&self, guard: &'g Guard, target: &Target<S>, shared: bool) -> Result<Held<'g, S::Key, B>, Busy> {
        for _ in 0..ATTEMPTS {
            let held = Held::lock(self.find(guard, target), shared)?;
            if held.base().valid() {
                return Ok(held);
            }
        }
        Err(Busy)
    }

    /// After an operation that locked only this base node: adapts if its statistic is beyond a threshold, and frees the
    /// lock.
    #[inline]
    fn leave(&self, guard: &Guard, held: Held<S::Key, B>) {
        let statistic = held.base().lock().statistic();
        if held.shared && !held.base().is_alone() && random() % GRAVITY_SAMPLING == 0 {
            statistic.bump(GRAVITY);
        }
        let value = statistic.value();
        if value > self.thresholds.split || value < self.thresholds.join {
            self.adapt(guard, held);
        }
    }

    /// The bytes of a node and all nodes below it, and the number of base nodes among them.
    fn measure(&self) -> (usize, usize) {
        let _guard = cats_sync::epoch::pin();
        let (mut bytes, mut bases) = (0, 0);
        let mut nodes = vec![self.root()];
        while let Some(node) = nodes.pop() {
            // SAFETY: as in `find`.
            match unsafe { node.child() } {
                Child::Base(base) => {
                    bytes += size_of::<Base<S::Key, B>>() as i64 + base.count() * NODE as i64;
                    bases += 1;
                }
                Child::Route(route) => {
                    bytes += size_of::<Route<S::Key>>() as i64;
                    nodes.extend([route.child(1), route.child(0)]);
                }
            }
        }
        (usize::try_from(bytes).unwrap_or(0), bases)
    }
}

impl<S: OrderedSchema, B: Balance> Engine<S> for CaTree<S, B> {
    type Cursor = Position<S::Key>;

    fn read<R>(&self, guard: &Guard, probe: &S::Probe, mut look: impl FnMut(Option<Entry>) -> R) -> Result<R, Busy> {
        let held = self.enter(guard, &Target::At(probe), self.shared)?;
        let result = look(held.tree().find(&self.schema, probe));
        self.leave(guard, held);
        Ok(result)
    }

    fn update<R>(
        &self,
        guard: &Guard,
        probe: &S::Probe,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        let mut held = self.enter(guard, &Target::At(probe), false)?;
        let (result, more) = held.tree_mut().update(&self.schema, probe, change);
        held.base().add(more);
        self.leave(guard, held);
        Ok(result)
    }

    fn update_many<R>(
        &self,
        guard: &Guard,
        probes: &[&S::Probe],
        change: impl FnOnce(&mut dyn Locked) -> R,
    ) -> Result<R, Busy> {
        let mut all = Many::lock(self, guard, probes)?;
        let result = change(&mut all);
        all.finish();
        Ok(result)
    }

    /// In ascending order.
    fn scan<T>(
        &self,
        guard: &Guard,
        cursor: &mut Position<S::Key>,
        limit: usize,
        out: &mut Vec<T>,
        expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy> {
        by_range::scan(self, &self.schema, guard, cursor, limit, out, expand)
    }

    fn next<R>(
        &self,
        guard: &Guard,
        after: Option<&S::Probe>,
        mut look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        self.walk(guard, after.map(|key| (key, false)), false, |mut entries, _| {
            look(entries.next())
        })
    }

    fn buckets(&self) -> usize {
        0
    }

    /// O(n).
    fn slot<T>(
        &self,
        guard: &Guard,
        number: usize,
        expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<Option<Vec<T>>, Busy> {
        by_range::slot(self, &self.schema, guard, number, expand)
    }

    /// Linear in the number of base nodes. An estimate while base nodes split and join.
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.measure().0
    }

    fn dismantle(&mut self, limit: usize, free: &mut dyn FnMut(Entry)) -> bool {
        self.take_apart(limit, free)
    }
}

impl<S: OrderedSchema, B: Balance> Detaching for CaTree<S, B> {}

impl<S: OrderedSchema, B: Balance> Eventful for CaTree<S, B> {
    fn events(&self) -> &Events {
        &self.events
    }
}

impl<S: OrderedSchema, B: Balance> OrderedEngine<S> for CaTree<S, B> {
    fn prev<R>(
        &self,
        guard: &Guard,
        before: Option<&S::Probe>,
        mut look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        self.walk(guard, before.map(|key| (key, false)), true, |mut entries, _| {
            look(entries.next())
        })
    }

    fn range<T>(
        &self,
        guard: &Guard,
        range: Range<'_, S::Probe>,
        limit: usize,
        out: &mut Vec<T>,
        mut expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy> {
        self.walk(guard, range.from, range.down, |mut entries, beyond| {
            for entry in entries.by_ref().take(limit.max(1)) {
                // SAFETY: the entry is in the tree of a base node, which is locked.
                if !unsafe { range.has(&self.schema, entry) } {
                    return false;
                }
                expand(entry, out);
            }
            beyond || entries.next().is_some()
        })
    }

    fn base_nodes(&self) -> usize {
        self.measure().1
    }
}

impl<S: OrderedSchema, B: Balance> CaTree<S, B> {
    /// Takes nodes apart, from the left, until `limit` entries were shown.
    fn take_apart(&mut self, limit: usize, free: &mut dyn FnMut(Entry)) -> bool {
        // Relaxed: this function owns the engine.
        let root = self.root.swap(ptr::null_mut(), Relaxed);
        if !root.is_null() {
            self.remains.push(Node::from_address(root));
        }
        let mut shown = 0;
        while shown < limit {
            let Some(node) = self.remains.pop() else { return true };
            shown += 1;
            // SAFETY: this function owns the engine and all nodes still in it.
            unsafe {
                match node.child() {
                    Child::Route(route) => {
                        self.remains.extend([route.child(1), route.child(0)]);
                        Room::free(ptr::from_ref(route).cast_mut());
                    }
                    Child::Base(base) => {
                        let wanted = limit - shown + 1;
                        let here = (*base.tree()).dismantle(wanted, free);
                        shown += here;
                        if here == wanted {
                            self.remains.push(node);
                        } else {
                            Room::free(ptr::from_ref(base).cast_mut());
                        }
                    }
                }
            }
        }
        self.remains.is_empty()
    }
}

impl<S: OrderedSchema, B: Balance> Drop for CaTree<S, B> {
    fn drop(&mut self) {
        self.take_apart(usize::MAX, &mut |_| {});
    }
}
