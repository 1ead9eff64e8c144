//! Makes a tree smaller whose leaves have become sparse, for tables with a limit of bytes.
//!
//! Leaves merge by themselves only when they have few entries. So a tree whose entries go here and there may take several times what its
//! entries need. [`Ca::trim`] looks at a few neighbouring leaves in many places. Those whose entries fit one leaf merge, and the others
//! become as small as their entries allow.
//!
//! Where nothing is left to do, two neighbours have more than [`DENSE`] entries together, or would take more as one. So leaves have at most
//! 33 bytes an entry, and inner nodes two more.

use super::inner::{Bound, Inner, Kind, Node, Piece};
use super::leaf::{lines_to_stay, size, Held, MAX_SLOTS};
use super::structure::{Change, Turn};
use super::Ca;
use crate::{Busy, Engine, OrderedSchema};
use cats_sync::epoch::Guard;
use cats_sync::facade::Ordering::{Relaxed, Release};
use smallvec::SmallVec;

/// Leaves merge if they have at most this many entries together. Others may come to them before they split.
const DENSE: usize = MAX_SLOTS * 3 / 4;
/// So many neighbouring leaves are looked at together, and a call looks in so many places at most.
const TOGETHER: usize = 8;
const PLACES: usize = 32;
/// The golden ratio: its multiples are spread evenly.
const GOLDEN: u32 = 0x9e37_79b9;

/// The bytes of the smallest leaf for so many entries.
fn bytes_for<S: OrderedSchema>(count: usize) -> usize {
    size::<S>(lines_to_stay(count))
}

/// Leaves in whose place one is put.
struct Group {
    first: usize,
    leaves: SmallVec<[Held; TOGETHER]>,
    one: Node,
}

impl<S: OrderedSchema> Ca<S> {
    /// Makes the tree smaller until it takes at most so many bytes. Ends after a bounded time in any case. Fails if other threads were in
    /// the way.
    #[inline]
    pub fn trim(&self, guard: &Guard, most: usize) -> Result<(), Busy> {
        match self.bytes() > most {
            true => self.trim_places(guard, most),
            false => Ok(()),
        }
    }

    #[cold]
    fn trim_places(&self, guard: &Guard, most: usize) -> Result<(), Busy> {
        let mut result = Ok(());
        for _ in 0..PLACES {
            if self.bytes() <= most {
                return Ok(());
            }
            result = self.trim_next(guard).and(result);
        }
        result
    }

    /// Makes the next place smaller.
    fn trim_next(&self, guard: &Guard) -> Result<(), Busy> {
        // Relaxed: a number.
        let mut place = self.trimmed.fetch_add(GOLDEN, Relaxed);
        // One of so many children. The rest of the place chooses one below it.
        let mut choose = |len: usize| {
            let product = u64::from(place) * len as u64;
            place = product as u32;
            (product >> u32::BITS) as usize
        };
        let route = self.route();
        let base = self.base(route.child(choose(route.len())));
        let structure = base.try_lock().filter(|_| base.valid()).ok_or(Busy)?;
        let mut turns: Vec<Turn<S::Key>> = Vec::new();
        let (mut low, mut high) = (base.low, base.high);
        let mut node = base.root();
        while let Kind::Inner(inner) = node.kind::<S::Key>() {
            let index = choose(inner.len());
            turns.push(Turn {
                inner,
                index,
                low,
                high,
            });
            (low, high) = inner.bounds(index, low, high);
            node = Node(inner.child(index));
        }
        let mut change = Change::new();
        let Some(Turn {
            inner,
            index,
            low,
            high,
        }) = turns.pop()
        else {
            if route.len() > 1 {
                // A base node of one leaf is smaller as a part of another one.
                drop(structure);
                self.join_base(guard, base);
                return Ok(());
            }
            let leaf = node.as_leaf::<S::Key>();
            if bytes_for::<S>(leaf.info().count()) < leaf.size::<S>() {
                let held = Held::try_lock(leaf).ok_or(Busy)?;
                let lines = lines_to_stay(leaf.info().count()).min(leaf.lines());
                let smaller = change.leaf::<S>(lines, leaf.skip(), leaf.entries::<S>(), leaf.info().ordered());
                change.leaves.push(held);
                base.set_root(Node::leaf(smaller));
                change.commit(self, guard);
            }
            return Ok(());
        };
        let (groups, result) = self.groups(&mut change, inner, index, (low, high));
        if groups.is_empty() {
            return result;
        }
        if groups.iter().all(|group| group.leaves.len() == 1) {
            for Group { first, leaves, one } in groups {
                // Release: publishes the leaf.
                inner.slot(first).store(one.0, Release);
                change.leaves.extend(leaves);
            }
        } else {
            let mut parts = change.take_apart(inner);
            // From the right, as what is right of a leaf moves.
            for Group { first, leaves, one } in groups.into_iter().rev() {
                parts.put(&self.schema, first, Piece::one(one));
                change.keys.extend((1..leaves.len()).map(|_| parts.merge(first, one)));
                change.leaves.extend(leaves);
            }
            self.contract(&mut change, base, turns, parts, (low, high));
        }
        change.commit(self, guard);
        result
    }

    /// The groups among the leaves of an inner node from this child on, as far as one leaf takes less in their place. Fails for those that
    /// other threads hold: the others are there all the same.
    fn groups(
        &self,
        change: &mut Change<S::Key>,
        inner: Inner<S::Key>,
        index: usize,
        (low, high): (Bound<S::Key>, Bound<S::Key>),
    ) -> (SmallVec<[Group; TOGETHER]>, Result<(), Busy>) {
        let leaf = |i| Node(inner.child(i)).as_leaf::<S::Key>();
        let end = inner.len().min(index + TOGETHER);
        (index..end).for_each(|i| cats_sync::prefetch(leaf(i).address()));
        let mut groups = SmallVec::new();
        let (mut first, mut result) = (index, Ok(()));
        while first < end {
            let (mut next, mut count, mut bytes) = (first, 0, 0);
            // Relaxed: others may change the leaves, so this is looked at once more when they are locked.
            while next < end {
                let more = leaf(next).info().count();
                let is_smaller = count + more <= DENSE
                    && bytes_for::<S>(count + more) <= bytes_for::<S>(count) + bytes_for::<S>(more);
                if next > first && !is_smaller {
                    break;
                }
                (next, count, bytes) = (next + 1, count + more, bytes + leaf(next).size::<S>());
            }
            let (start, range) = (first, first..next);
            first = next;
            if bytes_for::<S>(count) >= bytes {
                continue;
            }
            let Some(leaves) = range
                .clone()
                .map(|i| Held::try_lock(leaf(i)))
                .collect::<Option<SmallVec<_>>>()
            else {
                result = Err(Busy);
                continue;
            };
            let count: usize = range.clone().map(|i| leaf(i).info().count()).sum();
            if bytes_for::<S>(count) < bytes && (count <= DENSE || leaves.len() == 1) {
                let ordered = range.clone().all(|i| leaf(i).info().ordered());
                let bounds = (inner.bounds(start, low, high).0, inner.bounds(next - 1, low, high).1);
                let entries = range.flat_map(|i| leaf(i).entries::<S>());
                let one = change.leaf_for(&self.schema, bounds, lines_to_stay(count), entries, ordered);
                groups.push(Group {
                    first: start,
                    leaves,
                    one,
                });
            }
        }
        (groups, result)
    }
}
