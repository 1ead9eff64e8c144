//! Sequential ordered sets of entries: binary search trees that can be split in two and joined.
//!
//! Contention adapting trees need such sets (Sagonas, Winblad, "More Scalable Ordered Set for ETS Using Adaptation",
//! Erlang 2014, section 3). This module has what all binary search trees share: nodes, searches, places, and
//! dismantling. A [`Balance`] keeps a tree in shape: [`Avl`] or [`Treap`].
//!
//! A set is for one thread at a time. The caller's lock excludes others. Nodes are freed at once.

mod avl;
#[cfg(test)]
mod tests;
mod treap;

pub use avl::Avl;
pub use treap::Treap;

use crate::shared::room::Room;
use cats_engine::{Entry, OrderedSchema, Step};
use cats_sync::slab;
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::marker::PhantomData;
use std::ptr;

/// The address of a node, or null.
pub type Link = *mut Node;

const LEFT: usize = 0;
const RIGHT: usize = 1;

/// An entry in a tree.
pub struct Node {
    entry: Entry,
    /// The key head of the entry. It decides most comparisons without reading the key.
    head: u64,
    child: [Link; 2],
    /// In an AVL tree, the height of the right subtree minus that of the left subtree. In a treap, the priority.
    rank: i64,
}

/// Bytes of a node.
pub const NODE: usize = size_of::<Node>();

/// Makes a node for an entry. The caller puts it into a tree.
fn node<S: OrderedSchema>(room: Room<Node>, schema: &S, entry: Entry) -> Link {
    room.fill(Node {
        entry,
        // SAFETY: the caller has just made the entry.
        head: unsafe { schema.entry_head(entry, 0) },
        child: [ptr::null_mut(); 2],
        rank: 0,
    })
}

/// A step down: a node, and the side taken.
#[derive(Clone, Copy)]
pub struct Turn {
    node: Link,
    side: usize,
}

/// The path from the root to a place: the turns at all nodes above it.
pub type Path = SmallVec<[Turn; 64]>;

/// The link at the end of a path.
///
/// # Safety
/// The path belongs to the tree with this root, and the caller owns the tree.
unsafe fn slot<'a>(root: &'a mut Link, path: &[Turn]) -> &'a mut Link {
    match path.last() {
        None => root,
        // SAFETY: as the caller promises.
        Some(turn) => unsafe { &mut (*turn.node).child[turn.side] },
    }
}

/// How a binary search tree is kept in shape.
///
/// # Safety
/// An implementation keeps the nodes in order and loses none. The caller owns all nodes and trees that it passes.
pub unsafe trait Balance: Send + Sync + 'static {
    /// Links a node at the end of a path, where no node is. Its children are null.
    unsafe fn insert(root: &mut Link, path: &[Turn], node: Link);

    /// Removes the entry of the node at the end of a path. Returns an unlinked node that the caller must free.
    unsafe fn remove(root: &mut Link, path: &mut Path) -> Link;

    /// Splits a tree of at least two nodes into two that are not empty, the first below the second. O(log n).
    unsafe fn split(root: Link) -> (Link, Link);

    /// Joins two trees that are not empty, the first below the second. O(log n).
    unsafe fn join(left: Link, right: Link) -> Link;
}

/// An ordered set. Dropping it frees the nodes without showing the entries.
pub struct Tree<B> {
    root: Link,
    balance: PhantomData<B>,
}

// SAFETY: the tree owns its nodes. A shared tree is only read.
unsafe impl<B> Send for Tree<B> {}
// SAFETY: as above.
unsafe impl<B> Sync for Tree<B> {}

impl<B> Default for Tree<B> {
    fn default() -> Self {
        Self {
            root: ptr::null_mut(),
            balance: PhantomData,
        }
    }
}

/// A key to search for, with its key head.
struct Query<'a, S: OrderedSchema> {
    schema: &'a S,
    probe: &'a S::Probe,
    head: u64,
}

impl<'a, S: OrderedSchema> Query<'a, S> {
    #[inline]
    fn new(schema: &'a S, probe: &'a S::Probe) -> Self {
        let head = schema.head(probe, 0);
        Self { schema, probe, head }
    }

    /// How the key compares with the key of a node.
    #[inline]
    fn order(&self, node: &Node) -> Ordering {
        // SAFETY: the entry of a node is valid while the tree is not changed.
        (self.head.cmp(&node.head)).then_with(|| unsafe { self.schema.compare(self.probe, node.entry) })
    }
}

impl<B: Balance> Tree<B> {
    pub fn is_empty(&self) -> bool {
        self.root.is_null()
    }

    /// The entry of a key.
    pub fn find<S: OrderedSchema>(&self, schema: &S, probe: &S::Probe) -> Option<Entry> {
        let query = Query::new(schema, probe);
        let mut at = self.root;
        // SAFETY: links lead to nodes of the tree, which nobody changes meanwhile.
        while let Some(node) = unsafe { at.as_ref() } {
            match query.order(node) {
                Ordering::Less => at = node.child[LEFT],
                Ordering::Equal => return Some(node.entry),
                Ordering::Greater => at = node.child[RIGHT],
            }
        }
        None
    }

    /// Calls `change` once with the entry of the key's place and carries out its step. Also returns by how much the
    /// number of entries grew.
    pub fn update<S: OrderedSchema, R>(
        &mut self,
        schema: &S,
        probe: &S::Probe,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> (R, i64) {
        let query = Query::new(schema, probe);
        let mut path = Path::new();
        let mut at = self.root;
        // SAFETY: links lead to nodes of the tree, which this function owns.
        while let Some(node) = unsafe { at.as_mut() } {
            let side = match query.order(node) {
                Ordering::Less => LEFT,
                Ordering::Greater => RIGHT,
                Ordering::Equal => {
                    let (step, result) = change(Some(node.entry));
                    match step {
                        Step::Keep | Step::Touch => {}
                        // An equal key may be a different term (1.0 for 1), but its key head is the same.
                        Step::Put(entry) => node.entry = entry,
                        Step::Remove => {
                            // SAFETY: the path leads to the node, and the returned node is no longer in the tree.
                            unsafe { Room::free(B::remove(&mut self.root, &mut path)) };
                            return (result, -1);
                        }
                    }
                    return (result, 0);
                }
            };
            path.push(Turn { node: at, side });
            at = node.child[side];
        }
        // Allocates before the change, so that nothing was done when memory is exhausted.
        let room = slab::needed(Room::take());
        let (step, result) = change(None);
        let Step::Put(entry) = step else { return (result, 0) };
        // SAFETY: the path leads to where the key belongs, and no node is there.
        unsafe { B::insert(&mut self.root, &path, node(room, schema, entry)) };
        (result, 1)
    }

    /// Splits the tree into two that are not empty, the first below the second. `None` if it has fewer than two
    /// entries. O(log n).
    pub fn split(&mut self) -> Option<(Self, Self)> {
        // SAFETY: this function owns the tree.
        let root = unsafe { self.root.as_ref() }?;
        if root.child == [ptr::null_mut(); 2] {
            return None;
        }
        // SAFETY: as above. It has at least two nodes.
        let (left, right) = unsafe { B::split(std::mem::replace(&mut self.root, ptr::null_mut())) };
        Some((Self::of(left), Self::of(right)))
    }

    /// Joins two trees, the first below the second. O(log n).
    pub fn join(mut self, mut other: Self) -> Self {
        let take = |tree: &mut Self| std::mem::replace(&mut tree.root, ptr::null_mut());
        let (left, right) = (take(&mut self), take(&mut other));
        if left.is_null() || right.is_null() {
            return Self::of(if left.is_null() { right } else { left });
        }
        // SAFETY: this function owns both, and neither is empty.
        Self::of(unsafe { B::join(left, right) })
    }

    fn of(root: Link) -> Self {
        Self {
            root,
            balance: PhantomData,
        }
    }

    /// The entries from a key on, or from the end; upwards, or downwards if `down`. The key itself only if `inclusive`.
    pub fn entries<S: OrderedSchema>(&self, schema: &S, from: Option<(&S::Probe, bool)>, down: bool) -> Entries<'_> {
        let mut place = Descent::default();
        match from {
            None => self.end(&mut place, if down { RIGHT } else { LEFT }),
            Some((probe, inclusive)) => self.from(&mut place, schema, probe, inclusive, down),
        }
        Entries {
            place,
            down,
            tree: PhantomData,
        }
    }

    /// Moves a place to the first entry (`LEFT`) or the last (`RIGHT`).
    fn end(&self, place: &mut Descent, side: usize) {
        place.nodes.clear();
        place.descend(self.root, side);
    }

    /// Moves a place to the entry that follows a key, or to the key's own entry if `inclusive`.
    pub fn from<S: OrderedSchema>(
        &self,
        place: &mut Descent,
        schema: &S,
        probe: &S::Probe,
        inclusive: bool,
        down: bool,
    ) {
        let before = if down { Ordering::Less } else { Ordering::Greater };
        let order = self.seek(place, schema, probe);
        // The last node of a search is the key's own or one of its two neighbours.
        if order.is_some_and(|order| order == before || order.is_eq() && !inclusive) {
            place.step(down);
        }
    }

    /// Moves a place to where the search for a key ends. Returns how the key compares with the entry there, if there is
    /// one.
    pub fn seek<S: OrderedSchema>(&self, place: &mut Descent, schema: &S, probe: &S::Probe) -> Option<Ordering> {
        let query = Query::new(schema, probe);
        place.nodes.clear();
        let mut last = None;
        let mut at = self.root;
        // SAFETY: links lead to nodes of the tree, which nobody changes meanwhile.
        while let Some(node) = unsafe { at.as_ref() } {
            place.nodes.push(at);
            let order = query.order(node);
            last = Some(order);
            match order {
                Ordering::Less => at = node.child[LEFT],
                Ordering::Equal => break,
                Ordering::Greater => at = node.child[RIGHT],
            }
        }
        last
    }

    /// Frees nodes, least keys first, and shows their entries, until `limit` were shown. Returns how many were. Needs
    /// constant space and, in total, linear time.
    pub fn dismantle(&mut self, limit: usize, show: &mut dyn FnMut(Entry)) -> usize {
        let mut shown = 0;
        while shown < limit && !self.root.is_null() {
            let at = self.root;
            // SAFETY: this function owns the tree.
            unsafe {
                let left = (*at).child[LEFT];
                if left.is_null() {
                    self.root = (*at).child[RIGHT];
                    show((*at).entry);
                    Room::free(at);
                    shown += 1;
                } else {
                    // A rotation. In the end no node is on the left.
                    (*at).child[LEFT] = (*left).child[RIGHT];
                    (*left).child[RIGHT] = at;
                    self.root = left;
                }
            }
        }
        shown
    }
}

impl<B> Drop for Tree<B> {
    fn drop(&mut self) {
        // The balance is no longer needed.
        let mut rest = Tree::<Avl>::of(std::mem::replace(&mut self.root, ptr::null_mut()));
        rest.dismantle(usize::MAX, &mut |_| {});
        std::mem::forget(rest);
    }
}

/// A place in a tree: the nodes from the root to it. Valid until the tree is changed.
#[derive(Default)]
pub struct Descent {
    nodes: SmallVec<[Link; 64]>,
}

// SAFETY: a place owns nothing. It is read only together with its tree.
unsafe impl Send for Descent {}

impl Descent {
    /// The entry there. `None` beyond the end.
    pub fn entry(&self) -> Option<Entry> {
        // SAFETY: the nodes are in the tree, which was not changed.
        self.nodes.last().map(|&node| unsafe { (*node).entry })
    }

    /// Moves the place beyond the end.
    pub fn clear(&mut self) {
        self.nodes.clear();
    }

    /// Descends from a node as far as possible on one side.
    fn descend(&mut self, mut at: Link, side: usize) {
        while !at.is_null() {
            self.nodes.push(at);
            // SAFETY: as in `entry`.
            at = unsafe { (*at).child[side] };
        }
    }

    /// Moves to the next entry up or down. O(1) on average over a walk.
    pub fn step(&mut self, down: bool) {
        let (towards, away) = if down { (LEFT, RIGHT) } else { (RIGHT, LEFT) };
        let Some(&at) = self.nodes.last() else { return };
        // SAFETY: as in `entry`.
        let child = unsafe { (*at).child[towards] };
        if !child.is_null() {
            return self.descend(child, away);
        }
        while let Some(below) = self.nodes.pop() {
            // SAFETY: as in `entry`.
            let came_from = |&above: &Link| unsafe { (*above).child[away] } == below;
            if self.nodes.last().is_none_or(came_from) {
                return;
            }
        }
    }
}

/// Entries in order. See [`Tree::entries`].
pub struct Entries<'a> {
    place: Descent,
    down: bool,
    tree: PhantomData<&'a ()>,
}

impl Entries<'_> {
    /// Whether none is left.
    pub fn is_at_end(&self) -> bool {
        self.place.nodes.is_empty()
    }
}

impl Iterator for Entries<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        let entry = self.place.entry()?;
        self.place.step(self.down);
        Some(entry)
    }
}
