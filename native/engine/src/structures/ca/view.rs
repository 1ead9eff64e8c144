//! What the tree looks like, for people: its leaves in key order, node by node, and where contention was met.

use super::base::Base;
use super::inner::{bound, Bound, Kind, Node};
use super::leaf::{Held, Leaf, SIZES};
use super::structure::Turn;
use super::walk::Target;
use super::{Ca, Query};
use crate::{Entry, OrderedSchema};
use cats_sync::epoch::Guard;
use cats_sync::{prefetch, Busy};
use std::ptr;

/// The number of sizes that leaves have.
pub const LEAF_SIZES: usize = SIZES.len();

/// Neighbouring leaves under one node.
pub struct Stretch<'g, K> {
    /// The lowest key that may be here. `None` at the begin of the table.
    pub from: Option<&'g K>,
    /// Distinguishes base nodes.
    pub base: usize,
    /// The contention statistic of the base node, and how often contention was met since the base node was made.
    pub statistic: i32,
    pub conflicts: u32,
    /// Nodes above the leaves in the base node.
    pub height: usize,
    pub leaves: usize,
    pub keys: usize,
    /// Changes of the leaves since these were made.
    pub changes: u64,
    /// For each size of leaves: their slots, how many leaves have that, and their keys.
    pub sizes: [(usize, usize, usize); LEAF_SIZES],
}

/// What a view shows.
pub enum Sight<'g, K> {
    Stretch(Stretch<'g, K>),
    /// An entry of the stretch that was shown last.
    Entry(Entry),
}

impl<S: OrderedSchema> Ca<S> {
    /// Shows the leaves from a key on, a stretch after the other, until at least `limit` leaves were shown. Returns the key from which to go
    /// on, or `None` at the end. Reads one leaf in `every` of a stretch. What is said of all its leaves is an estimate, then.
    ///
    /// Also shows what `wanted` makes of all entries. Fails only if a leaf that may have one is locked for too long.
    ///
    /// The stretches are of no one instant. An entry that moves to another leaf meanwhile may be shown twice.
    pub fn view<'g>(
        &self,
        _guard: &'g Guard,
        from: Option<&S::Probe>,
        (limit, every): (usize, usize),
        wanted: Option<&dyn Fn(Entry) -> Option<Entry>>,
        mut show: impl FnMut(Sight<'g, S::Key>),
    ) -> Result<Option<&'g S::Key>, Busy> {
        let mut begin: Bound<S::Key> = ptr::null();
        let mut seen = 0;
        loop {
            // SAFETY: bounds live as long as the guard.
            let key = unsafe { bound(begin) }.map(|key| self.schema.probe(key)).or(from);
            let query = key.map(|key| Query::new(&self.schema, key));
            let target = query.as_ref().map_or(Target::First, Target::At);
            let mut turns = Turns::default();
            let (base, leaf, low, high) = self.descend_to(&target, |turn| turns.add(turn));
            let (leaves, low, high) = match turns.last {
                Some(turn) => {
                    let leaves = (turn.index..turn.inner.len()).map(|child| {
                        match Node(turn.inner.child(child)).kind::<S::Key>() {
                            Kind::Leaf(leaf) => leaf,
                            Kind::Inner(_) => unreachable!("all leaves of a tree are on one level"),
                        }
                    });
                    (
                        leaves.collect(),
                        turn.inner.bounds(turn.index, turn.low, turn.high).0,
                        turn.high,
                    )
                }
                None => (vec![leaf], low, high),
            };
            // SAFETY: as above.
            let mut stretch = self.stretch(base, unsafe { bound(low) }, &leaves, every.max(1));
            stretch.height = turns.height;
            seen += leaves.len();
            show(Sight::Stretch(stretch));
            if let Some(wanted) = wanted {
                for leaf in leaves {
                    search::<S>(leaf, wanted)?
                        .into_iter()
                        .for_each(|entry| show(Sight::Entry(entry)));
                }
            }
            begin = high;
            // SAFETY: as above.
            let next = unsafe { bound(begin) };
            if next.is_none() || seen >= limit {
                return Ok(next);
            }
        }
    }

    fn stretch<'g>(
        &self,
        base: &Base<S::Key>,
        from: Option<&'g S::Key>,
        leaves: &[Leaf],
        every: usize,
    ) -> Stretch<'g, S::Key> {
        let mut stretch = Stretch {
            from,
            base: ptr::from_ref(base).addr(),
            statistic: base.statistic().statistic(),
            conflicts: base.statistic().conflicts(),
            height: 0,
            leaves: leaves.len(),
            keys: 0,
            changes: 0,
            sizes: SIZES.map(|lines| (8 * lines, 0, 0)),
        };
        let chosen = || leaves.iter().step_by(every);
        chosen().for_each(|leaf| prefetch(leaf.lock()));
        for leaf in chosen() {
            let keys = leaf.info().count();
            stretch.keys += keys;
            stretch.changes += leaf.lock().changes();
            let size = SIZES.partition_point(|lines| *lines < leaf.lines());
            stretch.sizes[size].1 += 1;
            stretch.sizes[size].2 += keys;
        }
        let read = chosen().count();
        if read < leaves.len() {
            let estimate = |sum: u64| (u128::from(sum) * leaves.len() as u128 / read as u128) as u64;
            stretch.keys = estimate(stretch.keys as u64) as usize;
            stretch.changes = estimate(stretch.changes);
            for (_, leaves, keys) in &mut stretch.sizes {
                (*leaves, *keys) = (estimate(*leaves as u64) as usize, estimate(*keys as u64) as usize);
            }
        }
        stretch
    }
}

/// The height of a path, and its last turn.
struct Turns<K> {
    height: usize,
    last: Option<Turn<K>>,
}

impl<K> Default for Turns<K> {
    fn default() -> Self {
        Self { height: 0, last: None }
    }
}

impl<K> Turns<K> {
    fn add(&mut self, turn: Turn<K>) {
        self.height += 1;
        self.last = Some(turn);
    }
}

/// What `wanted` makes of the entries of a leaf. Takes the lock if a writer disturbs the search, as one does again and again where
/// operations meet.
fn search<S: OrderedSchema>(leaf: Leaf, wanted: &dyn Fn(Entry) -> Option<Entry>) -> Result<Vec<Entry>, Busy> {
    leaf.prefetch_all::<S>();
    let entries = || leaf.filled::<S>().filter_map(wanted).collect();
    let lock = leaf.lock();
    if let Some(token) = lock.token() {
        let found = entries();
        if lock.validate(token) {
            return Ok(found);
        }
    }
    let (version, _) = lock.lock()?;
    let held = Held {
        leaf,
        version,
        changed: false,
    };
    let found = entries();
    drop(held);
    Ok(found)
}
