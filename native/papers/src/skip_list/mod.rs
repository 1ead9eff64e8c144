//! `skip_list`: a concurrent skip list with hazard pointers.
//!
//! Source: Herlihy, Lev, Luchangco, Shavit, "A simple optimistic skiplist algorithm", SIROCCO 2007. Klaftenegger,
//! Sagonas, Winblad use it in ETS in "On the Scalability of the Erlang Term Storage", Erlang 2013, section 6.2.1.
//! Reclamation: Michael, "Hazard pointers: safe memory reclamation for lock-free objects", TPDS 2004. Insertions and
//! removals first search optimistically. Then they lock the nodes whose links they change, and validate what the search
//! found.
//!
//! A node is the *place* of a key, with a lock of its own. A place is taken (it has an entry), empty (linked, without
//! an entry) or dead (unlinked for good). An update of a present key locks its node. An update of an absent key locks
//! the predecessors of its place, so nobody can insert the key meanwhile. A removal empties the node, then locks its
//! predecessors, marks it dead and unlinks it. If that would take long, the node stays empty, and the next update
//! nearby unlinks it. An operation on several keys makes empty nodes for absent keys, and so has a lock for each key.
//! Locks are taken in descending order of keys. Each wait is bounded.
//!
//! Protection: the caller's guard protects what entries point to. Hazard pointers alone protect nodes. A removed node
//! keeps its links. So it is not enough to announce `node` and then read `pred.next == node` again, because `pred` may
//! have been removed itself. After the announcement `pred` must also be found not dead. If it is dead, the search
//! starts again.
//!
//! Progress: a search takes no lock and waits for no thread. It starts again only where another thread has removed the
//! node on which it stood. So it is lock-free, but *not* wait-free. The paper's search is wait-free, as it relies on
//! garbage collection instead of hazard pointers. A call that is overtaken again and again returns `Busy`. A lookup
//! that has found its key's node reads the entry, and everything that it points to, under the node's version. It waits,
//! for a bounded time, only for a writer of the same key. A lookup of an absent key waits for no thread.
//!
//! Linearization points:
//! - `read` of a present key: any instant between taking the node's token and validating it. The same at an empty node.
//! - `read` of an absent key without a node: the second load of the link at level 0 after which the predecessor was
//!   found not dead. At a node that is still being linked: the load that shows so. At a dead node: an instant within
//!   the call at which it was empty.
//! - `update`: the release of the node's lock. For a new node: the first release after it was linked. If nothing is put
//!   where nothing was: any instant at which the predecessors are locked.
//! - `update_many`: any instant at which all its nodes are locked.
//! - `next`, `prev` and each call of `range`: any instant between taking the last node's token and validating the first
//!   one. A version covers a node's entry and its link at level 0. So everything between the first and the last node is
//!   one state.
//! - Each step of `scan` is such a call. `slot` counts through several of them, so it is not linearizable.

mod chain;
mod many;
mod node;
mod search;
#[cfg(test)]
mod tests;
mod write;

pub use chain::Position;

use crate::detaching::Detaching;
use crate::eventful::Eventful;
use crate::hazard::{Hazards, Retired};
use cats_engine::config::Config;
use cats_engine::{Busy, Engine, Entry, Locked, OrderedEngine, OrderedSchema, Range, Step};
use cats_sync::epoch::Guard;
use cats_sync::events::Events;
use cats_sync::facade::Ordering;
use cats_sync::stripes::Stripes;
use node::{Held, Node};
use std::cell::Cell;
use std::ptr;

/// How often an operation starts again before it returns `Busy`.
const ATTEMPTS: u32 = if cfg!(any(loom, shuttle)) { 3 } else { 300 };
/// How often an optimistic read fails before it takes the lock.
const PATIENCE: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 8 };

/// See the module's documentation.
pub struct SkipList<S: OrderedSchema> {
    schema: S,
    head: Node,
    /// Nodes that were unlinked and may still have readers.
    retired: Retired,
    /// The bytes of the linked nodes.
    bytes: Stripes,
    events: Events,
}

// SAFETY: the list owns its nodes, and accesses them as their locks and the hazard pointers allow. Keys may be shared
// and sent (`OrderedSchema::Key`).
unsafe impl<S: OrderedSchema> Send for SkipList<S> {}
// SAFETY: as above.
unsafe impl<S: OrderedSchema> Sync for SkipList<S> {}

/// A key to search for.
struct Sought<'a, S: OrderedSchema> {
    schema: &'a S,
    probe: &'a S::Probe,
    /// Its key head at byte 0.
    head: u64,
}

impl<'a, S: OrderedSchema> Sought<'a, S> {
    fn new(schema: &'a S, probe: &'a S::Probe) -> Self {
        let head = schema.head(probe, 0);
        Self { schema, probe, head }
    }
}

/// A random height of 1 or more. Each height has a quarter of the probability of the one below.
fn random_height() -> usize {
    if cfg!(any(loom, shuttle)) {
        return node::LEVELS;
    }
    thread_local! {
        static RANDOM: Cell<u64> = const { Cell::new(0x9e37_79b9_7f4a_7c15) };
    }
    // Source: Marsaglia, "Xorshift RNGs", Journal of Statistical Software 2003.
    RANDOM.with(|random| {
        let mut x = random.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        random.set(x);
        // The upper bits, which are better mixed in a product.
        let bits = x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32 | 1 << 32;
        (1 + bits.trailing_zeros() as usize / 2).min(node::LEVELS)
    })
}

impl<S: OrderedSchema> SkipList<S> {
    /// An empty table. `None` when memory is exhausted. There is nothing to configure.
    pub fn new(schema: S, _: &Config) -> Option<Self> {
        Some(Self {
            schema,
            head: Node::head()?,
            retired: Retired::default(),
            bytes: Stripes::striped(),
            events: Events::default(),
        })
    }

    fn sought<'a>(&'a self, probe: &'a S::Probe) -> Sought<'a, S> {
        Sought::new(&self.schema, probe)
    }
}

impl<S: OrderedSchema> Engine<S> for SkipList<S> {
    type Cursor = Position<S::Key>;

    fn read<R>(&self, guard: &Guard, probe: &S::Probe, mut look: impl FnMut(Option<Entry>) -> R) -> Result<R, Busy> {
        let sought = self.sought(probe);
        let hazards = Hazards::new(guard);
        let Some(node) = self.lookup(&hazards, &sought)? else {
            return Ok(look(None));
        };
        for _ in 0..PATIENCE {
            if node.lock.held_version() == 0 {
                // Another thread is still linking it, so the key is absent.
                return Ok(look(None));
            }
            let token = node.lock.token_spinning()?;
            let result = look(node.entry());
            if node.lock.validate(token) {
                return Ok(result);
            }
        }
        let held = Held::lock(node)?;
        Ok(look(held.node.entry()))
    }

    fn update<R>(
        &self,
        guard: &Guard,
        probe: &S::Probe,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        self.update_one(guard, probe, change)
    }

    fn update_many<R>(
        &self,
        guard: &Guard,
        probes: &[&S::Probe],
        change: impl FnOnce(&mut dyn Locked) -> R,
    ) -> Result<R, Busy> {
        let mut all = many::Many::lock(self, guard, probes)?;
        Ok(change(&mut all))
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
        self.scan_up(guard, cursor, limit, out, expand)
    }

    fn next<R>(
        &self,
        guard: &Guard,
        after: Option<&S::Probe>,
        mut look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        self.step(guard, after, false, &mut look)
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
        self.nth(guard, number, expand)
    }

    /// Without removed nodes that may still have readers, which are a few hundred at most.
    fn bytes(&self) -> usize {
        size_of::<Self>() + node::size(node::LEVELS) + usize::try_from(self.bytes.sum()).unwrap_or(0)
    }

    fn dismantle(&mut self, limit: usize, free: &mut dyn FnMut(Entry)) -> bool {
        self.take_apart(limit, free)
    }
}

impl<S: OrderedSchema> Detaching for SkipList<S> {}

impl<S: OrderedSchema> Eventful for SkipList<S> {
    fn events(&self) -> &Events {
        &self.events
    }
}

impl<S: OrderedSchema> OrderedEngine<S> for SkipList<S> {
    fn prev<R>(
        &self,
        guard: &Guard,
        before: Option<&S::Probe>,
        mut look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        self.step(guard, before, true, &mut look)
    }

    fn range<T>(
        &self,
        guard: &Guard,
        range: Range<'_, S::Probe>,
        limit: usize,
        out: &mut Vec<T>,
        mut expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy> {
        let start = out.len();
        let from = range.from.map(|(probe, inclusive)| (self.sought(probe), inclusive));
        let more = self.chain(guard, from, range.down, limit, |entries, end| {
            out.truncate(start);
            // SAFETY: the entries were read under the guard. Their words belong together.
            let inside = entries.partition_point(|&entry| unsafe { range.has(&self.schema, entry) });
            entries[..inside].iter().for_each(|&entry| expand(entry, out));
            !end && inside == entries.len()
        });
        if more.is_err() {
            out.truncate(start);
        }
        more
    }

    /// It has no base nodes.
    fn base_nodes(&self) -> usize {
        0
    }
}

impl<S: OrderedSchema> SkipList<S> {
    /// Takes nodes apart, from the left, until `limit` were shown.
    /// Relaxed is enough for all links, and Acquire more than enough: nobody else uses the list.
    fn take_apart(&mut self, limit: usize, free: &mut dyn FnMut(Entry)) -> bool {
        // SAFETY: nobody else uses the list, so no hazard pointer protects a retired node.
        self.retired.clear(|node| unsafe { free_retired::<S>(node) });
        for level in 1..node::LEVELS {
            self.head.link(level).store(ptr::null_mut(), Ordering::Relaxed);
        }
        for _ in 0..limit.max(1) {
            // SAFETY: the list owns the node, and nobody else uses it.
            let Some(node) = (unsafe { Node::from_address(self.head.link(0).load(Ordering::Acquire)) }) else {
                return true;
            };
            let next = node.link(0).load(Ordering::Acquire);
            self.head.link(0).store(next, Ordering::Relaxed);
            self.bytes.add(-(node.bytes(&self.schema) as i64));
            node.entry().into_iter().for_each(&mut *free);
            // SAFETY: as above; it was unlinked just now.
            unsafe { node.free::<S>() };
        }
        self.head.link(0).load(Ordering::Relaxed).is_null()
    }
}

/// Frees a retired node.
///
/// # Safety
/// As for [`Node::free`].
unsafe fn free_retired<S: OrderedSchema>(node: *mut crate::hazard::Link) {
    // SAFETY: the caller's promise; a node begins with its link.
    if let Some(node) = unsafe { Node::from_address(node.cast()) } {
        // SAFETY: the caller's promise.
        unsafe { node.free::<S>() };
    }
}

impl<S: OrderedSchema> Drop for SkipList<S> {
    fn drop(&mut self) {
        self.take_apart(usize::MAX, &mut |_| ());
        // SAFETY: nobody else uses the list, and it is not used again.
        unsafe { self.head.free::<S>() };
    }
}
