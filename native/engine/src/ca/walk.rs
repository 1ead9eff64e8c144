//! Ordered operations: `next`, `prev`, ranges, scans and places by number.
//!
//! A step reads the leaf of the key that it starts from and, while that has nothing further, its neighbours; the tokens of all
//! of them are validated together, so there was an instant at which all of it held. After some failures it locks the leaves
//! instead; as it may go downwards, against the order of other lockers, it counts on every wait being bounded. A range goes on
//! beside the leaf where it begins, each leaf being validated by itself.

use super::base::Base;
use super::inner::{bound, Bound, Inner, Kind, Node};
use super::leaf::{Held, Info, Leaf, Torn};
use super::structure::Turn;
use super::{Ca, Position, Query, ATTEMPTS, PATIENCE};
use crate::{Busy, Entry, OrderedSchema};
use cats_sync::epoch::Guard;

/// From so many entries on a leaf is read as a whole.
const MANY: usize = 16;

/// Which leaf is sought.
enum Target<'q, 'a, S: OrderedSchema> {
    First,
    Last,
    /// The one whose range holds the key.
    At(&'q Query<'a, S>),
    /// The one whose range holds the keys right below the key.
    Below(&'q Query<'a, S>),
}

/// A leaf with its bounds.
struct Spot<'a, K> {
    base: &'a Base<K>,
    leaf: Leaf,
    low: Bound<K>,
    high: Bound<K>,
    /// The turn at the node above, if there is one.
    above: Option<Turn<K>>,
}

impl<K> Clone for Spot<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K> Copy for Spot<'_, K> {}

impl<K> Spot<'_, K> {
    /// Where the leaf ends in this direction, if that is not the end of the table.
    fn beyond(&self, down: bool) -> Option<Bound<K>> {
        let bound = if down { self.low } else { self.high };
        (!bound.is_null()).then_some(bound)
    }

    /// The leaf beside this one, unless it is under another node. As ranges of leaves never change, it is that if it is not dead.
    fn beside(&self, down: bool) -> Option<Self> {
        let mut turn = self.above?;
        turn.index = if down {
            turn.index.checked_sub(1)?
        } else {
            turn.index + 1
        };
        if turn.index == turn.inner.len() {
            return None;
        }
        match Node(turn.inner.child(turn.index)).kind::<K>() {
            Kind::Inner(_) => None,
            Kind::Leaf(leaf) => {
                let (low, high) = turn.inner.bounds(turn.index, turn.low, turn.high);
                Some(Self {
                    base: self.base,
                    leaf,
                    low,
                    high,
                    above: Some(turn),
                })
            }
        }
    }
}

/// A leaf that was read, as it must still be at the end.
enum Seen {
    Token(Leaf, u64),
    Locked(Held),
}

impl Seen {
    fn holds(&self) -> bool {
        match self {
            Seen::Token(leaf, token) => leaf.lock().validate(*token),
            Seen::Locked(_) => true,
        }
    }
}

/// Entries of one leaf, from some place on in the direction of a walk; or nothing, at the end of the table.
pub(super) struct View<'s, 'a, K> {
    spot: &'s Spot<'a, K>,
    /// Ranks from `start` up to `end`.
    start: usize,
    end: usize,
    down: bool,
}

impl<K> View<'_, '_, K> {
    fn len(&self) -> usize {
        self.end - self.start
    }
    /// The `i`-th entry in the walk's direction.
    fn entry(&self, i: usize) -> Result<Entry, Torn> {
        let rank = if self.down { self.end - 1 - i } else { self.start + i };
        self.spot.leaf.at(rank)
    }
    /// Where the leaf ends, if that is not the end of the table.
    fn beyond(&self) -> Option<Bound<K>> {
        self.spot.beyond(self.down)
    }
    /// Shows the first entry, or that there is none.
    pub fn show_first<R>(&self, look: &mut impl FnMut(Option<Entry>) -> R) -> Result<R, Torn> {
        Ok(look(if self.len() == 0 { None } else { Some(self.entry(0)?) }))
    }

    /// Shows up to `limit` entries; how many, and whether there may be more beyond them.
    fn show<T>(
        &self,
        limit: usize,
        out: &mut Vec<T>,
        expand: &mut impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<(usize, bool), Torn> {
        let shown = self.len().min(limit);
        if shown > MANY {
            // All lines of this leaf, and then those of the next one, will be read.
            self.spot.leaf.prefetch_all();
            if let Some(next) = self.spot.beside(self.down) {
                next.leaf.prefetch_all();
            }
        }
        for i in 0..shown {
            expand(self.entry(i)?, out);
        }
        Ok((shown, self.len() > shown || self.beyond().is_some()))
    }
}

impl<S: OrderedSchema> Ca<S> {
    fn seek<'a>(&self, target: &Target<S>) -> Spot<'a, S::Key> {
        let search = |inner: Inner<S::Key>| match target {
            Target::First => 0,
            Target::Last => inner.len() - 1,
            Target::At(query) => inner.search(query, true),
            Target::Below(query) => inner.search(query, false),
        };
        let route = self.route();
        let base: &'a Base<S::Key> = self.base(route.child(search(route)));
        let (mut low, mut high) = (base.low, base.high);
        let mut node = base.root();
        let mut above = None;
        loop {
            match node.kind::<S::Key>() {
                Kind::Leaf(leaf) => {
                    return Spot {
                        base,
                        leaf,
                        low,
                        high,
                        above,
                    }
                }
                Kind::Inner(inner) => {
                    let index = search(inner);
                    above = Some(Turn {
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

    /// Takes a leaf's token or lock, in order; nothing if it is dead.
    fn enter(&self, leaf: Leaf, locking: bool) -> Result<Option<(Seen, Info)>, Busy> {
        loop {
            let seen = if locking {
                Seen::Locked(Held::lock(leaf)?.0)
            } else {
                Seen::Token(leaf, leaf.lock().token_spinning()?)
            };
            let info = leaf.info();
            if info.dead() {
                return Ok(None);
            }
            if info.ordered() {
                leaf.touch_order();
                return Ok(Some((seen, info)));
            }
            let mut held = match seen {
                Seen::Locked(held) => held,
                Seen::Token(..) => Held::lock(leaf)?.0,
            };
            let info = leaf.info();
            if !info.dead() && !info.ordered() {
                leaf.sort(&self.schema);
                held.changed = true;
            }
        }
    }

    /// Shows `visit` the entries from a key on, up or down: those of the first leaf that has any. `visit` may be repeated;
    /// the last call, whose result is returned, saw one state.
    pub(super) fn walk<'a, R>(
        &self,
        guard: &Guard,
        from: Option<(&S::Probe, bool)>,
        down: bool,
        mut visit: impl FnMut(&View<'_, 'a, S::Key>) -> Result<R, Torn>,
    ) -> Result<R, Busy> {
        let from = from.map(|(probe, inclusive)| (Query::new(&self.schema, probe), inclusive));
        let mut failures = 0;
        'again: for _ in 0..ATTEMPTS {
            let locking = failures >= PATIENCE;
            let mut spot = self.seek(&match &from {
                None if down => Target::Last,
                None => Target::First,
                Some((query, false)) if down => Target::Below(query),
                Some((query, _)) => Target::At(query),
            });
            let start = spot.base;
            let mut empty = None;
            // The first leaf is nearly always the only one, and a vector without elements costs nothing.
            let mut passed = Vec::new();
            loop {
                let Some((seen, info)) = self.enter(spot.leaf, locking)? else {
                    continue 'again;
                };
                let count = info.count();
                let rank = match &from {
                    Some((query, inclusive)) if passed.is_empty() => {
                        spot.leaf.rank_of_key(query, info, *inclusive == down)
                    }
                    _ => Ok(if down { count } else { 0 }),
                };
                let view = rank.map(|rank| View {
                    spot: &spot,
                    start: if down { 0 } else { rank },
                    end: if down { rank } else { count },
                    down,
                });
                let more = view
                    .as_ref()
                    .is_ok_and(|view| view.len() == 0 && view.beyond().is_some());
                if more {
                    passed.push(seen);
                    if count == 0 {
                        empty = Some((
                            spot.base,
                            spot.leaf,
                            if spot.low.is_null() { spot.high } else { spot.low },
                        ));
                    }
                    // SAFETY: bounds live as long as the guard.
                    let Some(key) = spot.beyond(down).and_then(|key| unsafe { bound(key) }) else {
                        continue 'again;
                    };
                    let query = Query::new(&self.schema, self.schema.probe(key));
                    let target = if down {
                        Target::Below(&query)
                    } else {
                        Target::At(&query)
                    };
                    spot = self.seek(&target);
                    continue;
                }
                let result = view.and_then(|view| visit(&view));
                if let (Ok(result), true) = (result, seen.holds() && passed.iter().all(Seen::holds)) {
                    drop((seen, passed));
                    if let Some((base, leaf, near)) = empty {
                        self.drop_empty(guard, base, leaf, near);
                    }
                    if locking {
                        start.statistic().contended();
                        self.adapt(guard, start);
                    } else {
                        self.count_read(guard, start);
                    }
                    return Ok(result);
                }
                failures += 1;
                continue 'again;
            }
        }
        Err(Busy)
    }

    /// Does away with an empty leaf that a walk met: whoever emptied it could not, as locks were held. `near` is a bound of it.
    #[cold]
    fn drop_empty(&self, guard: &Guard, base: &Base<S::Key>, leaf: Leaf, near: Bound<S::Key>) {
        if base.root() == Node::leaf(leaf) {
            self.join_base(guard, base);
        // SAFETY: bounds live as long as the guard.
        } else if let Some(near) = unsafe { bound(near) } {
            self.shrink(guard, &Query::new(&self.schema, self.schema.probe(near)));
        }
    }

    /// See [`crate::OrderedEngine::range`].
    #[expect(clippy::too_many_arguments, reason = "as in the trait")]
    pub(super) fn range_on<T>(
        &self,
        guard: &Guard,
        from: Option<&S::Probe>,
        inclusive: bool,
        down: bool,
        limit: usize,
        out: &mut Vec<T>,
        mut expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy> {
        let (start, limit) = (out.len(), limit.max(1));
        let walked = self.walk(guard, from.map(|key| (key, inclusive)), down, |view| {
            out.truncate(start);
            let (shown, more) = view.show(limit, out, &mut expand)?;
            Ok((*view.spot, shown, more))
        });
        let Ok((mut spot, mut places, mut more)) = walked else {
            out.truncate(start);
            return Err(Busy);
        };
        // On into the leaves beside it, until there is one that is not as it should be.
        while more && places < limit {
            let before = out.len();
            let mut read = || {
                let next = spot.beside(down)?;
                let (seen, info) = self.enter(next.leaf, false).ok()??;
                let view = View {
                    spot: &next,
                    start: 0,
                    end: info.count(),
                    down,
                };
                let (shown, more) = view.show(limit - places, out, &mut expand).ok()?;
                (shown > 0 && seen.holds()).then_some((next, shown, more))
            };
            let Some((next, shown, beyond)) = read() else {
                out.truncate(before);
                break;
            };
            (spot, places, more) = (next, places + shown, beyond);
        }
        Ok(more)
    }

    pub(super) fn scan_up<T>(
        &self,
        guard: &Guard,
        cursor: &mut Position<S::Key>,
        limit: usize,
        out: &mut Vec<T>,
        mut expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy> {
        let mut places = 0;
        while !cursor.done && places < limit.max(1) {
            let start = out.len();
            let wanted = limit.max(1) - places;
            let from = cursor.behind.as_ref().map(|key| (self.schema.probe(key), false));
            let step = self.walk(guard, from, false, |view| {
                out.truncate(start);
                let shown = view.len().min(wanted);
                let mut last = None;
                for i in 0..shown {
                    let entry = view.entry(i)?;
                    last = Some(entry);
                    expand(entry, out);
                }
                Ok((shown, last, view.len() > shown || view.beyond().is_some()))
            });
            let Ok((shown, last, more)) = step else {
                // What failed attempts appended; what stands before is done, and the cursor behind it.
                out.truncate(start);
                return if places > 0 { Ok(true) } else { Err(Busy) };
            };
            places += shown;
            cursor.done = !more;
            if let Some(last) = last {
                // SAFETY: the entry was valid under the guard, so what it points to is still there.
                cursor.behind = Some(unsafe { self.schema.own(last) });
            }
        }
        Ok(!cursor.done)
    }

    pub(super) fn nth<T>(
        &self,
        guard: &Guard,
        number: usize,
        mut expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<Option<Vec<T>>, Busy> {
        let mut left = number;
        let mut from: Option<Bound<S::Key>> = None;
        loop {
            // SAFETY: bounds live as long as the guard.
            let key = from.and_then(|from| unsafe { bound(from) });
            let mut out = Vec::new();
            let (count, beyond) = self.walk(guard, key.map(|key| (self.schema.probe(key), true)), false, |view| {
                out.clear();
                if left < view.len() {
                    expand(view.entry(left)?, &mut out);
                }
                Ok((view.len(), view.beyond()))
            })?;
            if left < count {
                return Ok(Some(out));
            }
            left -= count;
            if beyond.is_none() {
                return Ok(None);
            }
            from = beyond;
        }
    }
}
