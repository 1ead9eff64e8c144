//! Changes of a base node's B+tree: leaves grow, split and merge, and so do inner nodes.
//!
//! All of it happens under the base node's lock. First the new nodes are made. One store publishes them. Then the
//! leaves that they replace are marked dead and unlocked, and everything replaced is retired. So a panic before the
//! store (memory is exhausted) leaves the table unchanged, and nothing can fail after the store.

use super::base::{Base, Structure};
use super::counts::Count;
use super::inner::{common, Bound, Inner, Kind, Node, Parts, Piece, FANOUT};
use super::leaf::{compare_headed, lines_for, lines_to_stay, Entries, Held, Info, Leaf, Wanted, MAX_LINES, MAX_SLOTS};
use super::{Ca, Query};
use crate::{Busy, Entry, OrderedSchema};
use cats_sync::epoch::Guard;
use cats_sync::facade::{
    fence,
    Ordering::{Relaxed, Release, SeqCst},
};
use cats_sync::slab;
use smallvec::{smallvec, SmallVec};
use std::cmp::Ordering;
use std::ptr::NonNull;

/// Two neighbouring leaves merge if they have at most this many entries together, or if one is empty.
const MERGE: usize = if cfg!(shuttle) { 4 } else { MAX_SLOTS / 2 };
/// A full leaf of so many lines has got many keys.
const MANY_LINES: usize = 8;
/// An inner node with fewer children merges with a neighbour.
const LEAST_CHILDREN: usize = FANOUT / 4;

/// A step of the path to a leaf: an inner node, the index of the child taken, and the node's key range.
pub(super) struct Turn<K> {
    pub inner: Inner<K>,
    pub index: usize,
    pub low: Bound<K>,
    pub high: Bound<K>,
}

impl<K> Clone for Turn<K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K> Copy for Turn<K> {}

/// The nodes that a change replaces, and by how many bytes the table grows.
pub(super) struct Change<K> {
    pub leaves: Vec<Held>,
    pub inners: Vec<Inner<K>>,
    pub keys: Vec<Bound<K>>,
    pub bases: Vec<*mut u8>,
    /// The counts of new nodes, each with that of the old node for the same leaf.
    counts: Vec<(Count, Count)>,
    pub grown: i64,
}

impl<K: Send + Sync + 'static> Change<K> {
    pub fn new() -> Self {
        Self {
            leaves: Vec::new(),
            inners: Vec::new(),
            keys: Vec::new(),
            bases: Vec::new(),
            counts: Vec::new(),
            grown: 0,
        }
    }

    /// A new leaf.
    pub fn leaf<S: OrderedSchema>(
        &mut self,
        lines: usize,
        skip: usize,
        entries: impl IntoIterator<Item = Entry>,
        ordered: bool,
    ) -> Leaf {
        let leaf = Leaf::build::<S>(lines, skip, entries, ordered);
        self.grown += leaf.size::<S>() as i64;
        leaf
    }
    /// A new leaf for a key range.
    pub fn leaf_for<S: OrderedSchema<Key = K>>(
        &mut self,
        schema: &S,
        (low, high): (Bound<K>, Bound<K>),
        lines: usize,
        entries: impl IntoIterator<Item = Entry>,
        ordered: bool,
    ) -> Node {
        Node::leaf(self.leaf::<S>(lines, common(schema, low, high), entries, ordered))
    }
    /// A new leaf of the largest size without entries, for a key range.
    fn empty_leaf<S: OrderedSchema<Key = K>>(&mut self, schema: &S, low: Bound<K>, high: Bound<K>) -> Node {
        let leaf = Leaf::empty::<S>(MAX_LINES, common(schema, low, high));
        self.grown += leaf.size::<S>() as i64;
        Node::leaf(leaf)
    }
    /// A new leaf with the entries of a locked one.
    fn copy<S: OrderedSchema>(&mut self, leaf: Leaf, skip: usize) -> Leaf {
        self.grown += leaf.size::<S>() as i64;
        leaf.copy::<S>(skip)
    }
    /// A new inner node.
    pub fn inner<S: OrderedSchema<Key = K>>(
        &mut self,
        schema: &S,
        low: Bound<K>,
        high: Bound<K>,
        mut parts: Parts<K>,
    ) -> Inner<K> {
        let old = std::mem::take(&mut parts.counts);
        let inner = Inner::build(schema, low, high, parts, old.iter().any(Option::is_some));
        self.grown += inner.size() as i64;
        if let Some(counts) = inner.counts() {
            self.grown += size_of_val(counts) as i64;
            let of = |(i, old): (usize, &Option<Count>)| Some((counts.at(i), (*old)?));
            self.counts.extend(old.iter().enumerate().filter_map(of));
        }
        inner
    }
    /// Notes that an inner node will be replaced, and returns its contents.
    pub fn take_apart(&mut self, inner: Inner<K>) -> Parts<K> {
        inner.mark_replaced();
        self.inners.push(inner);
        inner.parts()
    }
    /// A new base node.
    pub fn base(&mut self, low: Bound<K>, high: Bound<K>, root: Node) -> *mut u8 {
        self.grown += size_of::<Base<K>>() as i64;
        Base::allocate(low, high, root)
    }
    /// A new separator.
    fn key(&mut self, key: K) -> Bound<K> {
        self.grown += size_of::<K>() as i64;
        Box::into_raw(Box::new(key))
    }

    /// One node for the parts, or two if they are too many.
    pub fn assemble<S: OrderedSchema<Key = K>>(
        &mut self,
        schema: &S,
        low: Bound<K>,
        high: Bound<K>,
        mut parts: Parts<K>,
    ) -> Piece<K> {
        if parts.children.len() <= FANOUT {
            return Piece::one(Node::inner(self.inner(schema, low, high, parts)));
        }
        let (key, right) = parts.cut(parts.children.len() / 2);
        let left = Node::inner(self.inner(schema, low, key, parts));
        let right = Node::inner(self.inner(schema, key, high, right));
        Piece::two(left, key, right)
    }

    /// Kills and retires what was replaced and is now unlinked.
    pub fn commit<S: OrderedSchema<Key = K>>(mut self, table: &Ca<S>, guard: &Guard) {
        if !self.counts.is_empty() {
            // SeqCst: between R2 and R3 of the protocol of counts.
            fence(SeqCst);
            self.counts.drain(..).for_each(|(new, old)| new.take_over(old));
        }
        for held in self.leaves.drain(..) {
            let leaf = held.leaf;
            held.kill();
            self.grown -= leaf.size::<S>() as i64;
            // SAFETY: unlinked, like the others below. The structure was the only owner of each. Leaves and inner nodes
            // came from the slab with these sizes.
            unsafe { guard.retire_memory(leaf.start::<S>(), leaf.size::<S>()) };
        }
        for inner in self.inners.drain(..) {
            self.grown -= inner.size() as i64;
            if let Some((counts, size)) = inner.counts_pointer().memory() {
                self.grown -= size as i64;
                // SAFETY: as above. A node that is marked as replaced gets no other counts.
                unsafe { guard.retire_memory(counts, size) };
            }
            // SAFETY: as above.
            unsafe { guard.retire_memory(NonNull::new_unchecked(inner.address()), inner.size()) };
        }
        for base in self.bases.drain(..) {
            self.grown -= size_of::<Base<K>>() as i64;
            // SAFETY: as above.
            unsafe { guard.retire(base, size_of::<Base<K>>(), free) };
        }
        for key in self.keys.drain(..) {
            self.grown -= size_of::<K>() as i64;
            // SAFETY: as above.
            unsafe { guard.retire(key.cast_mut().cast(), 0, drop_key::<K>) };
        }
        // Relaxed: a statistic.
        table.bytes.fetch_add(self.grown, Relaxed);
    }
}

unsafe fn free(address: *mut u8, size: usize) {
    // SAFETY: whatever is retired with this function came from the slab with this size.
    unsafe { slab::free(NonNull::new_unchecked(address), size) }
}

unsafe fn drop_key<K>(address: *mut u8, _: usize) {
    // SAFETY: separators are boxed.
    drop(unsafe { Box::from_raw(address.cast::<K>()) });
}

/// The path to the leaf of a key, in a locked base node.
pub(super) struct Path<K> {
    pub turns: Vec<Turn<K>>,
    pub leaf: Leaf,
    pub low: Bound<K>,
    pub high: Bound<K>,
}

fn may_merge(a: Info, b: Info) -> bool {
    let (a, b) = (a.count(), b.count());
    a == 0 || b == 0 || a + b <= MERGE
}

impl<S: OrderedSchema> Ca<S> {
    /// Locks the base node of the key.
    pub(super) fn lock_base<'a>(&self, query: &Query<S>) -> Result<Structure<'a, S::Key>, Busy> {
        for _ in 0..super::ATTEMPTS {
            let held = self.find_base(query.probe).lock(&self.events, query.hash())?;
            if held.base.valid() {
                return Ok(held);
            }
        }
        Err(Busy)
    }

    /// The path to the key's leaf. Call it under the base node's lock.
    pub(super) fn path(&self, base: &Base<S::Key>, query: &Query<S>) -> Path<S::Key> {
        let mut turns = Vec::new();
        let (mut low, mut high) = (base.low, base.high);
        let mut node = base.root();
        loop {
            match node.kind::<S::Key>() {
                Kind::Leaf(leaf) => return Path { turns, leaf, low, high },
                Kind::Inner(inner) => {
                    let index = inner.search(query, true);
                    turns.push(Turn {
                        inner,
                        index,
                        low,
                        high,
                    });
                    (low, high) = inner.bounds(index, low, high);
                    node = Node(inner.child(index));
                }
            }
        }
    }

    /// Makes space in a leaf that was full for this key: replaces it by a larger one, or by two.
    #[cold]
    pub(super) fn make_room(&self, guard: &Guard, query: &Query<S>, wanted: Wanted) -> Result<(), Busy> {
        let structure = self.lock_base(query)?;
        let path = self.path(structure.base, query);
        path.leaf.prefetch_all::<S>();
        let (held, _) = Held::lock(path.leaf, &self.events, wanted.hash)?;
        if path.leaf.room(wanted.hash).is_none() {
            self.extend(guard, structure.base, path, held, query, |_| {});
        }
        Ok(())
    }

    /// Replaces a locked leaf by a larger one, or by several. Calls `prepare` with each new leaf before it is published.
    pub(super) fn extend(
        &self,
        guard: &Guard,
        base: &Base<S::Key>,
        path: Path<S::Key>,
        held: Held,
        query: &Query<S>,
        mut prepare: impl FnMut(Leaf),
    ) {
        let mut change = Change::new();
        let leaf = path.leaf;
        let piece = if let Some(lines) = self.more_lines(&path, query) {
            let larger = change.leaf::<S>(lines, leaf.skip(), leaf.entries::<S>(), leaf.info().ordered());
            Piece::one(Node::leaf(larger))
        } else {
            leaf.prefetch_objects(&self.schema);
            self.set_apart(&mut change, &path, query)
                .or_else(|| self.split_around(&mut change, &path, query))
                .unwrap_or_else(|| self.split_leaf(&mut change, leaf, path.low, path.high))
        };
        let others = piece.others.iter().map(|(_, node)| *node);
        [piece.first]
            .into_iter()
            .chain(others)
            .for_each(|node| prepare(node.as_leaf::<S::Key>()));
        change.leaves.push(held);
        self.graft(&mut change, base, path.turns, piece);
        change.commit(self, guard);
    }

    /// The number of lines of a leaf in place of a full one. `None` if that has the largest size. A leaf that has got many keys beside each
    /// other will probably get more of them. So it grows to the largest size at once. A table of one leaf may stay small.
    fn more_lines(&self, path: &Path<S::Key>, query: &Query<S>) -> Option<usize> {
        let (leaf, lines) = (path.leaf, path.leaf.more_lines()?);
        let may_fill = leaf.lines() >= MANY_LINES && lines < MAX_LINES && !path.turns.is_empty();
        Some(if may_fill && leaf.is_beside_recent(query) {
            MAX_LINES
        } else {
            lines
        })
    }

    /// A copy of a locked leaf and an empty leaf beside it, for a key beyond all its entries. Keys that come in order
    /// are like that.
    fn set_apart(&self, change: &mut Change<S::Key>, path: &Path<S::Key>, query: &Query<S>) -> Option<Piece<S::Key>> {
        let (schema, leaf) = (&self.schema, path.leaf);
        if leaf.is_beyond(query, Ordering::Greater) {
            let key = change.key(schema.own_probe(query.probe));
            let copy = change.copy::<S>(leaf, common(schema, path.low, key));
            let empty = change.empty_leaf(schema, key, path.high);
            Some(Piece::two(Node::leaf(copy), key, empty))
        } else if leaf.is_beyond(query, Ordering::Less) {
            // SAFETY: the entries of a locked leaf are valid.
            let key = change.key(unsafe { schema.own(leaf.lowest(schema)?) });
            let empty = change.empty_leaf(schema, path.low, key);
            let copy = change.copy::<S>(leaf, common(schema, key, path.high));
            Some(Piece::two(empty, key, Node::leaf(copy)))
        } else {
            None
        }
    }

    /// Splits a locked leaf in which keys come beside each other into three. The first has the entries below this key, but for
    /// the last of them. The second has only that one. The third has the entries above. So later keys find a leaf with nearly
    /// no entries but theirs, whether they come from below, from above or from both. That leaf is small at first, because few
    /// keys may follow. The first leaf is left out if it had no entries.
    fn split_around(
        &self,
        change: &mut Change<S::Key>,
        path: &Path<S::Key>,
        query: &Query<S>,
    ) -> Option<Piece<S::Key>> {
        let (schema, leaf) = (&self.schema, path.leaf);
        if !leaf.is_beside_recent(query) {
            return None;
        }
        let ordered = leaf.info().ordered();
        // SAFETY: the entries of a locked leaf are valid.
        let is_below = |entry: &Entry| unsafe { schema.compare(query.probe, *entry) }.is_gt();
        let (mut below, above): (Entries, Entries) = leaf.entries::<S>().partition(is_below);
        // SAFETY: as above.
        let order = |a: &Entry, b: &Entry| unsafe { schema.compare_entries(*a, *b) };
        let last = (0..below.len()).max_by(|a, b| order(&below[*a], &below[*b]))?;
        let next_below = below.remove(last);
        let next_above = above.iter().copied().min_by(order)?;
        // SAFETY: as above.
        let end = change.key(unsafe { schema.own(next_above) });
        let above = change.leaf_for(schema, (end, path.high), lines_to_stay(above.len()), above, ordered);
        if below.is_empty() {
            let near = change.leaf_for(schema, (path.low, end), lines_for(1), [next_below], true);
            return Some(Piece::two(near, end, above));
        }
        // SAFETY: as above.
        let start = change.key(unsafe { schema.own(next_below) });
        let near = change.leaf_for(schema, (start, end), lines_for(1), [next_below], true);
        let below = change.leaf_for(schema, (path.low, start), lines_to_stay(below.len()), below, ordered);
        Some(Piece {
            first: below,
            others: smallvec![(start, near), (end, above)],
        })
    }

    /// Two leaves for the entries of a locked leaf that has at least two.
    pub(super) fn split_leaf(
        &self,
        change: &mut Change<S::Key>,
        leaf: Leaf,
        low: Bound<S::Key>,
        high: Bound<S::Key>,
    ) -> Piece<S::Key> {
        let schema = &self.schema;
        let (ordered, skip) = (leaf.info().ordered(), leaf.skip());
        let with_head = |entry| match ordered {
            true => (0, entry),
            // SAFETY: the entries of a locked leaf are valid.
            false => (unsafe { schema.entry_head(entry, skip) }, entry),
        };
        let mut entries: SmallVec<[(u64, Entry); MAX_SLOTS]> = leaf.entries::<S>().map(with_head).collect();
        let middle = entries.len() / 2;
        if !ordered {
            entries.select_nth_unstable_by(middle, |a, b| compare_headed(schema, *a, *b));
        }
        // SAFETY: as above.
        let key = change.key(unsafe { schema.own(entries[middle].1) });
        let (left, right) = entries.split_at(middle);
        let mut half = |range, half: &[(u64, Entry)]| {
            let entries = half.iter().map(|item| item.1);
            change.leaf_for(schema, range, lines_for(half.len()), entries, ordered)
        };
        Piece::two(half((low, key), left), key, half((key, high), right))
    }

    /// Puts a piece at the end of the path.
    pub(super) fn graft(
        &self,
        change: &mut Change<S::Key>,
        base: &Base<S::Key>,
        mut turns: Vec<Turn<S::Key>>,
        mut piece: Piece<S::Key>,
    ) {
        while !piece.others.is_empty() {
            piece = match turns.pop() {
                Some(turn) => {
                    let mut parts = change.take_apart(turn.inner);
                    parts.put(&self.schema, turn.index, piece);
                    change.assemble(&self.schema, turn.low, turn.high, parts)
                }
                None => change.assemble(&self.schema, base.low, base.high, Parts::of(&self.schema, piece)),
            };
        }
        match turns.pop() {
            // Release, also in `set_root`: publishes the new nodes.
            Some(turn) => turn.inner.slot(turn.index).store(piece.first.0, Release),
            None => base.set_root(piece.first),
        }
    }

    /// Merges the leaf of the key with a neighbour, if there is one and both have few entries. Gives up rather than
    /// wait.
    #[cold]
    pub(super) fn shrink(&self, guard: &Guard, query: &Query<S>) {
        let Some(structure) = self.find_base(query.probe).try_lock() else {
            return;
        };
        if !structure.base.valid() {
            return;
        }
        let Path { mut turns, .. } = self.path(structure.base, query);
        let Some(turn) = turns.pop() else { return };
        let leaf = |i| Node(turn.inner.child(i)).as_leaf::<S::Key>();
        let (before, after) = (turn.index.saturating_sub(1), turn.index.min(turn.inner.len() - 2));
        let Some(first) = [after, before]
            .into_iter()
            .find(|&i| may_merge(leaf(i).info(), leaf(i + 1).info()))
        else {
            return;
        };
        let (Some(left), Some(right)) = (Held::try_lock(leaf(first)), Held::try_lock(leaf(first + 1))) else {
            return;
        };
        let mut change = Change::new();
        let low = turn.inner.bounds(first, turn.low, turn.high).0;
        let high = turn.inner.bounds(first + 1, turn.low, turn.high).1;
        let Some(merged) = self.merge_leaves(&mut change, left, right, low, high) else {
            return;
        };
        let mut parts = change.take_apart(turn.inner);
        let key = parts.merge(first, Node::leaf(merged));
        change.keys.push(key);
        self.contract(&mut change, structure.base, turns, parts, (turn.low, turn.high));
        change.commit(self, guard);
    }

    /// One leaf for the entries of two, unless they are too many.
    pub(super) fn merge_leaves(
        &self,
        change: &mut Change<S::Key>,
        left: Held,
        right: Held,
        low: Bound<S::Key>,
        high: Bound<S::Key>,
    ) -> Option<Leaf> {
        let (a, b) = (left.leaf.info(), right.leaf.info());
        if !may_merge(a, b) {
            return None;
        }
        let merged = change.leaf::<S>(
            lines_for(a.count() + b.count()),
            common(&self.schema, low, high),
            left.leaf.entries::<S>().chain(right.leaf.entries::<S>()),
            a.ordered() && b.ordered(),
        );
        change.leaves.extend([left, right]);
        Some(merged)
    }

    /// Puts parts with fewer children at the end of the path. If a node has few children, it merges with a neighbour or
    /// shares with it.
    pub(super) fn contract(
        &self,
        change: &mut Change<S::Key>,
        base: &Base<S::Key>,
        mut turns: Vec<Turn<S::Key>>,
        mut parts: Parts<S::Key>,
        mut range: (Bound<S::Key>, Bound<S::Key>),
    ) {
        let schema = &self.schema;
        loop {
            if turns.is_empty() && parts.children.len() == 1 {
                return base.set_root(Node(parts.children[0]));
            }
            if turns.is_empty() || parts.children.len() >= LEAST_CHILDREN {
                let node = Node::inner(change.inner(schema, range.0, range.1, parts));
                return self.graft(change, base, turns, Piece::one(node));
            }
            let Some(turn) = turns.pop() else { return };
            let first = turn.index.min(turn.inner.len() - 2);
            let sibling = if first == turn.index { first + 1 } else { first };
            let Kind::Inner(neighbour) = Node(turn.inner.child(sibling)).kind::<S::Key>() else {
                unreachable!("all leaves of a tree are on one level")
            };
            let beside = change.take_apart(neighbour);
            let (mut both, right) = if first == turn.index {
                (parts, beside)
            } else {
                (beside, parts)
            };
            both.append(schema, turn.inner.key(first), right);
            let low = turn.inner.bounds(first, turn.low, turn.high).0;
            let high = turn.inner.bounds(first + 1, turn.low, turn.high).1;
            let piece = change.assemble(schema, low, high, both);
            parts = change.take_apart(turn.inner);
            range = (turn.low, turn.high);
            // The separator moved down. If there are two nodes, another one moves up in its place.
            parts.merge(first, piece.first);
            parts.put(schema, first, piece);
        }
    }
}
