//! Adaptation: base nodes split where there is contention, and join where there is none.
//!
//! Source: Sagonas, Winblad, "More Scalable Ordered Set for ETS Using Adaptation", Erlang 2014, section 3. Here one
//! route node replaces their binary tree of route nodes. A split or join makes a new route node, or none if one base
//! node remains. It happens under a lock of its own, which also keeps the neighbours of base nodes stable.
//!
//! A split cuts the root of the base node's B+tree in two. A join concatenates two B+trees along their inner edges. No
//! leaf is copied unless it is the root. Nothing here waits. If a lock is not free, the statistic starts again from
//! zero, and a later operation will try again.

use super::base::{Base, Structure};
use super::inner::{Bound, Inner, Kind, Node, Parts, Piece, FANOUT};
use super::leaf::Held;
use super::route::Route;
use super::structure::Change;
use super::Ca;
use crate::OrderedSchema;
use cats_sync::epoch::Guard;
use cats_sync::events::Adaptation;
use cats_sync::facade::Ordering::*;
use cats_sync::probe;
use cats_sync::trace;
use cats_sync::version_lock::VersionLock;
use std::time::Instant;

/// The largest number of base nodes.
pub(super) const MAX_BASES: usize = 512;

struct Adapting<'a>(&'a VersionLock, u64);

impl Drop for Adapting<'_> {
    fn drop(&mut self) {
        self.0.unlock(self.1);
    }
}

/// The locks with which an adaptation starts, and the index of the base node in the route node.
struct Begun<'a, K> {
    _adapting: Adapting<'a>,
    _structure: Structure<'a, K>,
    route: Route<'a, K>,
    place: usize,
}

/// A tree to concatenate: its root, its height and its outer bound.
struct Side<K> {
    node: Node,
    height: usize,
    bound: Bound<K>,
}

impl<S: OrderedSchema> Ca<S> {
    /// Splits or joins the base node, if its statistic is beyond a threshold.
    pub(super) fn adapt(&self, guard: &Guard, base: &Base<S::Key>) {
        let statistic = base.statistic().statistic();
        if statistic > self.thresholds.split {
            self.split_base(guard, base);
        } else if statistic < self.thresholds.join {
            self.join_base(guard, base);
        }
    }

    fn begin<'a>(&'a self, base: &'a Base<S::Key>) -> Option<Begun<'a, S::Key>> {
        let adapting = Adapting(&self.adapting, self.adapting.try_lock()?);
        let structure = base.try_lock()?;
        if !base.valid() {
            return None;
        }
        base.statistic().reset();
        let route = self.route();
        let place = (0..route.len()).find(|&i| std::ptr::addr_eq(route.child(i), base))?;
        Some(Begun {
            _adapting: adapting,
            _structure: structure,
            route,
            place,
        })
    }

    /// Counts, logs and traces a split or join at a key, after which there are so many base nodes.
    fn log_adaptation(&self, split: bool, number: usize, key: Bound<S::Key>) {
        let kind = if split { trace::Kind::Split } else { trace::Kind::Join };
        self.events.record(kind, [number as u64, 0]);
        self.events.adapted(1, || {
            // SAFETY: separators are not null. They live as long as the caller's guard.
            let own = self.schema.own_probe(self.schema.probe(unsafe { &*key }));
            Adaptation {
                split,
                at: Instant::now(),
                number,
                bytes: size_of::<S::Key>() + self.schema.key_bytes(&own),
                key: Some(Box::new(own)),
            }
        });
    }

    fn publish_route(&self, change: &mut Change<S::Key>, old: Route<S::Key>, parts: Parts<S::Key>) {
        let new = match parts.children[..] {
            [only] => Route::<S::Key>::one(only),
            _ => change
                .inner(&self.schema, std::ptr::null(), std::ptr::null(), parts)
                .address(),
        };
        if let Route::Many(old) = old {
            change.inners.push(old);
        }
        // Release: publishes the new nodes.
        self.route.store(new, Release);
    }

    #[cold]
    pub(super) fn split_base(&self, guard: &Guard, base: &Base<S::Key>) {
        let Some(begun) = self.begin(base) else { return };
        let (route, place) = (begun.route, begun.place);
        if route.len() >= MAX_BASES {
            return;
        }
        let mut change = Change::new();
        let piece = match base.root().kind() {
            Kind::Leaf(leaf) => {
                let Some(held) = Held::try_lock(leaf) else { return };
                if leaf.info().count() < 2 {
                    return;
                }
                leaf.prefetch_objects(&self.schema);
                change.leaves.push(held);
                self.split_leaf(&mut change, leaf, base.low, base.high)
            }
            Kind::Inner(inner) => {
                let mut left = change.take_apart(inner);
                let (key, right) = left.cut(inner.len() / 2);
                let left = self.root_of(&mut change, base.low, key, left);
                let right = self.root_of(&mut change, key, base.high, right);
                Piece::two(left, key, right)
            }
        };
        let (key, right) = piece.others[0];
        let left = change.base(base.low, key, piece.first);
        let right = change.base(key, base.high, right);
        let mut parts = route.parts();
        parts.put(&self.schema, place, Piece::two(Node(left), key, Node(right)));
        probe!(ca_split, std::ptr::from_ref(self), parts.children.len());
        self.log_adaptation(true, parts.children.len(), key);
        self.publish_route(&mut change, route, parts);
        base.invalidate();
        change.bases.push(std::ptr::from_ref(base).cast_mut().cast());
        change.commit(self, guard);
    }

    fn root_of(
        &self,
        change: &mut Change<S::Key>,
        low: Bound<S::Key>,
        high: Bound<S::Key>,
        parts: Parts<S::Key>,
    ) -> Node {
        match parts.children[..] {
            [only] => Node(only),
            _ => Node::inner(change.inner(&self.schema, low, high, parts)),
        }
    }

    #[cold]
    pub(super) fn join_base(&self, guard: &Guard, base: &Base<S::Key>) {
        let Some(begun) = self.begin(base) else { return };
        let (route, place) = (begun.route, begun.place);
        if route.len() == 1 {
            return;
        }
        let first = place.min(route.len() - 2);
        let neighbour = self.base(route.child(if first == place { first + 1 } else { first }));
        // A base node in the route node is valid while the route node cannot be replaced.
        let Some(_other) = neighbour.try_lock() else { return };
        let (left, right) = if first == place {
            (base, neighbour)
        } else {
            (neighbour, base)
        };
        let mut change = Change::new();
        let mut parts = route.parts();
        let key = route.key(first);
        let piece = self.concatenate(&mut change, side(left, left.low), key, side(right, right.high));
        let root = self.root_of(&mut change, left.low, right.high, Parts::of(&self.schema, piece));
        let joined = change.base(left.low, right.high, root);
        parts.merge(first, Node(joined));
        probe!(ca_join, std::ptr::from_ref(self), parts.children.len());
        self.log_adaptation(false, parts.children.len(), key);
        self.publish_route(&mut change, route, parts);
        for base in [left, right] {
            base.invalidate();
            change.bases.push(std::ptr::from_ref(base).cast_mut().cast());
        }
        change.commit(self, guard);
    }

    /// Concatenates two trees: one tree, or two of the height of the higher one. Consumes the separator `key`.
    fn concatenate(
        &self,
        change: &mut Change<S::Key>,
        left: Side<S::Key>,
        key: Bound<S::Key>,
        right: Side<S::Key>,
    ) -> Piece<S::Key> {
        let schema = &self.schema;
        let (low, high) = (left.bound, right.bound);
        match (left.node.kind(), right.node.kind()) {
            (Kind::Leaf(a), Kind::Leaf(b)) => {
                if let (Some(a), Some(b)) = (Held::try_lock(a), Held::try_lock(b)) {
                    if let Some(merged) = self.merge_leaves(change, a, b, low, high) {
                        change.keys.push(key);
                        return Piece::one(Node::leaf(merged));
                    }
                }
                Piece::two(left.node, key, right.node)
            }
            (Kind::Inner(a), Kind::Inner(b)) if left.height == right.height => {
                if a.len() + b.len() > FANOUT {
                    return Piece::two(left.node, key, right.node);
                }
                let mut parts = change.take_apart(a);
                parts.append(schema, key, change.take_apart(b));
                Piece::one(Node::inner(change.inner(schema, low, high, parts)))
            }
            (Kind::Inner(a), _) if left.height > right.height => {
                let last = a.len() - 1;
                let inside = Side {
                    node: Node(a.child(last)),
                    height: left.height - 1,
                    bound: a.bounds(last, low, key).0,
                };
                let piece = self.concatenate(change, inside, key, right);
                self.put_back(change, a, last, piece, (low, high))
            }
            (_, Kind::Inner(b)) => {
                let inside = Side {
                    node: Node(b.child(0)),
                    height: right.height - 1,
                    bound: b.bounds(0, key, high).1,
                };
                let piece = self.concatenate(change, left, key, inside);
                self.put_back(change, b, 0, piece, (low, high))
            }
            (Kind::Inner(_), Kind::Leaf(_)) => unreachable!("an inner node is higher than a leaf"),
        }
    }

    /// A copy of a node whose child at an outer edge is replaced. The new child may have another key range.
    fn put_back(
        &self,
        change: &mut Change<S::Key>,
        inner: Inner<S::Key>,
        i: usize,
        piece: Piece<S::Key>,
        range: (Bound<S::Key>, Bound<S::Key>),
    ) -> Piece<S::Key> {
        let mut parts = change.take_apart(inner);
        parts.put(&self.schema, i, piece);
        change.assemble(&self.schema, range.0, range.1, parts)
    }
}

fn side<K>(base: &Base<K>, bound: Bound<K>) -> Side<K> {
    let mut height = 0;
    let mut node = base.root();
    while let Kind::Inner(inner) = node.kind::<K>() {
        height += 1;
        node = Node(inner.child(0));
    }
    Side {
        node: base.root(),
        height,
        bound,
    }
}
