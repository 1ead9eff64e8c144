//! Order statistics: how many entries are between two keys, and the entry with a number.
//!
//! They pass the leaves from one key to another. Below an inner node they add up the counts of its leaves (see `counts`). They read the
//! entries only of the leaves in which the keys are.
//!
//! Ranges of nodes never change. For each part of the key range, one version of one node is asked once. So an entry that is there during
//! the whole call is counted exactly once. If a leaf that must be read is dead, the pass goes on from that leaf's bound, in the nodes that
//! are there now.

use super::inner::{bound, Bound, Inner, Kind, Node};
use super::leaf::{Held, Info, Leaf, Torn};
use super::structure::Turn;
use super::walk::Target;
use super::{Ca, Query, ATTEMPTS, PATIENCE};
use crate::{Between, Entry, OrderedSchema, Unfinished};
use cats_sync::epoch::Guard;
use cats_sync::facade::{fence, Ordering::*};
use std::ops::Range;

/// How much work it is to ask a leaf for its count, if adding up the counts of a node is 1.
const ASKED: usize = 3;

/// Limits the work of a call.
struct Work(usize);

impl Work {
    fn take(&mut self, work: usize) -> Result<(), Unfinished> {
        self.0 = self.0.checked_sub(work).ok_or(Unfinished::Long)?;
        Ok(())
    }
}

/// Where a pass begins or goes on.
enum Near<'k, S: OrderedSchema> {
    /// At a key, and whether it belongs to the range.
    Key(&'k S::Probe, bool),
    /// At the bound of a node. Null at an end of the table.
    Bound(Bound<S::Key>),
}

/// What a pass comes to.
enum Part<'p, S: OrderedSchema> {
    /// These children of a node, which are leaves.
    Leaves(Turn<S::Key>, Range<usize>),
    /// The entries of a leaf between two bounds.
    Within(Leaf, Between<'p, S::Probe>),
}

/// Why a pass does not go on.
enum Stop<K> {
    /// All was seen that was wanted.
    End,
    /// A leaf is dead, so it must go on from this bound. `None`: from where the part began.
    Dead(Option<Bound<K>>),
    Failed(Unfinished),
}

impl<K, E: Into<Unfinished>> From<E> for Stop<K> {
    fn from(failure: E) -> Self {
        Self::Failed(failure.into())
    }
}

/// The way to a leaf: the last two turns, and the leaf with its bounds.
struct Way<K> {
    over: Option<Turn<K>>,
    above: Option<Turn<K>>,
    leaf: Leaf,
    low: Bound<K>,
    high: Bound<K>,
}

fn leaf_at<K>(node: Inner<K>, child: usize) -> Leaf {
    Node(node.child(child)).as_leaf::<K>()
}

/// The number of entries of a leaf whose count is unknown. Makes it known, if the leaf's lock is free.
#[cold]
fn ask_leaf<K>(node: Inner<K>, child: usize) -> usize {
    let leaf = leaf_at(node, child);
    // A dead leaf keeps its entries as they were.
    match Held::try_lock(leaf) {
        Some(held) if !leaf.info().dead() => {
            let count = leaf.info().count();
            node.store_count(child, count);
            drop(held);
            count
        }
        _ => leaf.info().count(),
    }
}

impl<S: OrderedSchema> Ca<S> {
    /// Keeps the count of the key's leaf, which the caller has locked and changed. `above` is the node in which the caller has found the
    /// leaf, if it knows one.
    #[inline(always)]
    pub(super) fn keep_count(&self, probe: &S::Probe, leaf: Leaf, above: Option<Inner<S::Key>>) {
        // Relaxed: the leaf's lock orders it. See the module `counts`.
        if self.counting.load(Relaxed) {
            self.store_count(probe, leaf, above);
        }
    }

    /// The writer's part of the protocol in the module `counts`.
    #[inline(never)]
    fn store_count(&self, probe: &S::Probe, leaf: Leaf, above: Option<Inner<S::Key>>) {
        let query = Query::new(&self.schema, probe);
        let index_in = |inner: Inner<S::Key>| {
            let index = inner.index_of(self.schema.head(probe, 0));
            index.unwrap_or_else(|| inner.search(&query, true))
        };
        let search = || {
            let mut found = None;
            self.descend_to(&Target::At(&query), |turn| found = Some((turn.inner, turn.index)));
            found
        };
        let mut found = above.map(|inner| (inner, index_in(inner)));
        let mut last = None;
        while let Some((inner, index)) = found.take().or_else(search) {
            let again = last.replace(inner.address()) == Some(inner.address());
            if again || inner.store_count(index, leaf.info().count()) {
                return;
            }
            // SeqCst: between W1 and W3.
            fence(SeqCst);
        }
    }

    /// The number of entries between two bounds. An entry that is there during the whole call is counted exactly once.
    ///
    /// `limit` is the amount of work that the caller allows. A unit takes less than 0.1 µs.
    pub fn count_between(
        &self,
        guard: &Guard,
        between: Between<'_, S::Probe>,
        limit: usize,
    ) -> Result<usize, Unfinished> {
        let (mut count, mut work, mut failures) = (0, Work(limit), 0);
        // Leaves are searched only for keys in their range.
        if let (Some((from, _)), Some((to, _))) = (between.from, between.to) {
            if self.schema.compare_probes(from, to).is_gt() {
                return Ok(0);
            }
        }
        self.pass(guard, between, false, |part| {
            count += match part {
                Part::Leaves(turn, children) => self.sum(turn.inner, children, &mut work)?,
                Part::Within(leaf, between) => {
                    self.look_into(leaf, &mut failures, |info| Ok(self.ranks(leaf, info, between)?.len()))?
                }
            };
            Ok(())
        })?;
        Ok(count)
    }

    /// Appends the entry with this number, counted from 0 in the order of keys, or with `down` in the opposite order. Appends
    /// nothing if there are not so many entries. Each entry that is there during the whole call is counted exactly once.
    ///
    /// `limit` as in [`count_between`](Self::count_between). `expand` as in [`OrderedEngine::range`](crate::OrderedEngine::range).
    pub fn find_nth<T>(
        &self,
        guard: &Guard,
        (number, down): (usize, bool),
        limit: usize,
        out: &mut Vec<T>,
        mut expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<(), Unfinished> {
        let (mut work, mut failures) = (Work(limit), 0);
        let start = out.len();
        // Passes a leaf, or ends there.
        let mut look = |leaf: Leaf, between: Between<'_, S::Probe>, left: &mut usize| {
            let inside = self.look_into(leaf, &mut failures, |info| {
                out.truncate(start);
                let ranks = self.ranks(leaf, info, between)?;
                if *left < ranks.len() {
                    let rank = if down {
                        ranks.end - 1 - *left
                    } else {
                        ranks.start + *left
                    };
                    expand(leaf.at::<S>(rank)?, out);
                }
                Ok(ranks.len())
            })?;
            if *left < inside {
                return Err(Stop::End);
            }
            *left -= inside;
            Ok(())
        };
        let mut left = number;
        let all = Between { from: None, to: None };
        self.pass(guard, all, down, |part| {
            let (turn, children) = match part {
                Part::Within(leaf, between) => return look(leaf, between, &mut left),
                Part::Leaves(turn, children) => (turn, children),
            };
            let sum = self.sum(turn.inner, children.clone(), &mut work)?;
            if sum <= left {
                left -= sum;
                return Ok(());
            }
            for step in 0..children.len() {
                let child = if down {
                    children.end - 1 - step
                } else {
                    children.start + step
                };
                let one = self.sum(turn.inner, child..child + 1, &mut work)?;
                if one <= left {
                    left -= one;
                    continue;
                }
                let (low, high) = turn.inner.bounds(child, turn.low, turn.high);
                let begin = if down { high } else { low };
                look(leaf_at(turn.inner, child), all, &mut left).map_err(|stop| begun_at(stop, begin))?;
            }
            Ok(())
        })
    }

    /// The ranks of the entries between two bounds in an ordered leaf.
    fn ranks(&self, leaf: Leaf, info: Info, between: Between<'_, S::Probe>) -> Result<Range<usize>, Torn> {
        let rank = |key, through| leaf.rank_of_key(&Query::new(&self.schema, key), info, through);
        let start = match between.from {
            Some((from, inclusive)) => rank(from, !inclusive)?,
            None => 0,
        };
        let end = match between.to {
            Some((to, inclusive)) => rank(to, inclusive)?,
            None => info.count(),
        };
        Ok(start..end.max(start))
    }

    /// Reads a leaf, which is in order then.
    fn look_into<R>(
        &self,
        leaf: Leaf,
        failures: &mut u32,
        mut look: impl FnMut(Info) -> Result<R, Torn>,
    ) -> Result<R, Stop<S::Key>> {
        while *failures < ATTEMPTS {
            let Some((seen, info)) = self.enter(leaf, *failures >= PATIENCE)? else {
                *failures += 1;
                return Err(Stop::Dead(None));
            };
            match look(info) {
                Ok(result) if seen.holds() => return Ok(result),
                _ => *failures += 1,
            }
        }
        Err(Stop::Failed(Unfinished::Busy))
    }

    /// The number of entries of these children of a node, which are leaves.
    fn sum(&self, node: Inner<S::Key>, children: Range<usize>, work: &mut Work) -> Result<usize, Unfinished> {
        work.take(1)?;
        if node.counts().is_none() {
            // Relaxed: a statistic.
            self.bytes.fetch_add(node.make_counts() as i64, Relaxed);
        }
        let mut asked = 0;
        let mut ask = |child| {
            asked += 1;
            ask_leaf(node, child)
        };
        let sum = match node.counts() {
            Some(counts) => counts.sum(children, &mut ask),
            // The node is replaced, or there is no memory.
            None => children.map(&mut ask).sum(),
        };
        work.take(ASKED * asked)?;
        Ok(sum)
    }

    /// Shows the parts of the table between two bounds until `visit` stops it. With `down`, there are no bounds, and it goes
    /// from the last part to the first one.
    fn pass(
        &self,
        _guard: &Guard,
        between: Between<'_, S::Probe>,
        down: bool,
        mut visit: impl FnMut(Part<'_, S>) -> Result<(), Stop<S::Key>>,
    ) -> Result<(), Unfinished> {
        // Relaxed: see the module `counts`.
        if !self.counting.load(Relaxed) {
            self.counting.store(true, Relaxed);
        }
        let mut near = match between.from {
            Some((key, inclusive)) => Near::Key(key, inclusive),
            None => Near::Bound(std::ptr::null()),
        };
        loop {
            match self.pass_from(&near, between.to, down, &mut visit) {
                Ok(end) if end.is_null() => return Ok(()),
                Ok(on) | Err(Stop::Dead(Some(on))) => near = Near::Bound(on),
                Err(Stop::Dead(None)) => {}
                Err(Stop::End) => return Ok(()),
                Err(Stop::Failed(failure)) => return Err(failure),
            }
        }
    }

    /// A pass up to the end of what is below one node, two levels above the leaves. Returns the bound there, which is null at the
    /// end of the table.
    fn pass_from(
        &self,
        near: &Near<'_, S>,
        to: Option<(&S::Probe, bool)>,
        down: bool,
        visit: &mut impl FnMut(Part<'_, S>) -> Result<(), Stop<S::Key>>,
    ) -> Result<Bound<S::Key>, Stop<S::Key>> {
        let way = self.way(near, down);
        let ends_below = |high| to.filter(|(to, _)| self.is_below(to, high));
        let (behind, beyond) = if down { (way.high, way.low) } else { (way.low, way.high) };
        let begins = matches!(near, Near::Bound(bound) if *bound == behind);
        let end = ends_below(way.high);
        let alone = !begins || end.is_some() || way.above.is_none();
        if alone {
            let mut part = Between { from: None, to: end };
            match near {
                _ if begins => {}
                Near::Key(key, inclusive) => part.from = Some((key, *inclusive)),
                // SAFETY: bounds live as long as the guard.
                Near::Bound(near) => match unsafe { bound(*near) }.map(|key| self.schema.probe(key)) {
                    Some(key) if down => part.to = Some((key, false)),
                    key => part.from = key.map(|key| (key, true)),
                },
            }
            visit(Part::Within(way.leaf, part))?;
            if end.is_some() {
                return Err(Stop::End);
            }
        }
        let Some(turn) = way.above else { return Ok(beyond) };
        let rest = match down {
            true => 0..turn.index + usize::from(!alone),
            false => turn.index + usize::from(alone)..turn.inner.len(),
        };
        self.pass_leaves(turn, rest, ends_below(turn.high), visit)?;
        let Some(over) = way.over else {
            return Ok(if down { turn.low } else { turn.high });
        };
        let end = ends_below(over.high);
        let last = match end {
            Some((to, _)) => over.inner.search(&Query::new(&self.schema, to), true),
            None if down => 0,
            None => over.inner.len() - 1,
        };
        let mut index = over.index;
        while index != last {
            index = if down { index - 1 } else { index + 1 };
            let Kind::Inner(inner) = Node(over.inner.child(index)).kind() else {
                unreachable!("all leaves of a tree are on one level")
            };
            let (low, high) = over.inner.bounds(index, over.low, over.high);
            let turn = Turn {
                inner,
                index,
                low,
                high,
            };
            self.pass_leaves(turn, 0..inner.len(), end.filter(|_| index == last), visit)?;
        }
        Ok(if down { over.low } else { over.high })
    }

    /// A pass over these children of a node, which are leaves. If it ends in one of them, that is at `end`.
    fn pass_leaves(
        &self,
        turn: Turn<S::Key>,
        children: Range<usize>,
        end: Option<(&S::Probe, bool)>,
        visit: &mut impl FnMut(Part<'_, S>) -> Result<(), Stop<S::Key>>,
    ) -> Result<(), Stop<S::Key>> {
        let Some((to, _)) = end else {
            return visit(Part::Leaves(turn, children));
        };
        let last = turn.inner.search(&Query::new(&self.schema, to), true);
        visit(Part::Leaves(turn, children.start..last))?;
        let part = Between { from: None, to: end };
        let (low, _) = turn.inner.bounds(last, turn.low, turn.high);
        visit(Part::Within(leaf_at(turn.inner, last), part)).map_err(|stop| begun_at(stop, low))?;
        Err(Stop::End)
    }

    /// The way to the leaf at which a pass begins or goes on.
    fn way(&self, near: &Near<'_, S>, down: bool) -> Way<S::Key> {
        let key = match near {
            Near::Key(key, _) => Some(*key),
            // SAFETY: bounds live as long as the guard.
            Near::Bound(near) => unsafe { bound(*near) }.map(|key| self.schema.probe(key)),
        };
        let query = key.map(|key| Query::new(&self.schema, key));
        let target = match &query {
            Some(query) if down => Target::Below(query),
            Some(query) => Target::At(query),
            None if down => Target::Last,
            None => Target::First,
        };
        let (mut over, mut above) = (None, None);
        let (_, leaf, low, high) = self.descend_to(&target, |turn| over = above.replace(turn));
        Way {
            over,
            above,
            leaf,
            low,
            high,
        }
    }
}

/// A stop in a part that began at this bound.
fn begun_at<K>(stop: Stop<K>, begin: Bound<K>) -> Stop<K> {
    match stop {
        Stop::Dead(None) => Stop::Dead(Some(begin)),
        stop => stop,
    }
}
