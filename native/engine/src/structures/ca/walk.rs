//! Ordered operations: `next`, `prev`, ranges, scans and slots by number.
//!
//! A step reads the leaf of its start key. While it finds nothing there, it reads the following leaves. It validates
//! the tokens of all of them together at the end, so at one instant everything held. After several failures it locks
//! the leaves instead. A downward step locks against the order of other threads, which is safe because every wait is
//! bounded.
//!
//! A range continues in the leaves behind the first one. Each leaf is validated by itself.

use super::base::Base;
use super::inner::{bound, Bound, Inner, Kind, Node};
use super::leaf::{Held, Info, Leaf, Torn};
use super::route::Route;
use super::structure::Turn;
use super::{Ca, Position, Query, ATTEMPTS, PATIENCE};
use crate::shared::seat::body_of;
use crate::shared::trail::{Beyond, Origin, Trail, RUN};
use crate::{Busy, Entry, Mark, OrderedSchema, Range};
use cats_sync::epoch::Guard;
use cats_sync::facade::Ordering::Acquire;
use std::ptr::NonNull;

/// The low bits of a trail's note hold the number of lines of the leaf. The others hold the rank of the first entry of
/// its run.
const LINES_BITS: u32 = 5;

/// If at least this many entries of a leaf are shown, the whole leaf is prefetched.
const MANY_SHOWN: usize = 16;

/// Which leaf to find.
pub(super) enum Target<'q, 'a, S: OrderedSchema> {
    First,
    Last,
    /// The leaf whose range holds the key.
    At(&'q Query<'a, S>),
    /// The leaf whose range holds the keys right below the key.
    Below(&'q Query<'a, S>),
}

/// A leaf with its base node and its bounds.
type Bounded<'a, K> = (&'a Base<K>, Leaf, Bound<K>, Bound<K>);

/// A leaf with its bounds.
struct BoundedLeaf<'a, K> {
    base: &'a Base<K>,
    leaf: Leaf,
    low: Bound<K>,
    high: Bound<K>,
    /// The last turn of the path, if the leaf has a node above it in its base node.
    above: Option<Turn<K>>,
}

impl<K> Clone for BoundedLeaf<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K> Copy for BoundedLeaf<'_, K> {}

impl<K> BoundedLeaf<'_, K> {
    /// The bound of the leaf in this direction. `None` at the end of the table.
    fn beyond(&self, down: bool) -> Option<Bound<K>> {
        let bound = if down { self.low } else { self.high };
        (!bound.is_null()).then_some(bound)
    }

    /// The neighbour leaf, if it is under the same inner node. Ranges of leaves never change, so it is the neighbour
    /// unless it is dead.
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

/// A leaf that was read, and must be unchanged or locked at the end.
pub(super) enum Seen {
    Token(Leaf, u64),
    Locked(Held),
}

impl Seen {
    fn token(&self) -> Option<u64> {
        match self {
            Seen::Token(_, token) => Some(*token),
            Seen::Locked(_) => None,
        }
    }
    /// The mark that the leaf will have when it is not locked any more.
    fn mark<'g>(&self) -> Mark<'g> {
        match self {
            Seen::Token(leaf, token) => Mark::new(leaf.lock(), *token),
            Seen::Locked(held) => Mark::new(held.leaf.lock(), held.version + 2 * u64::from(held.changed)),
        }
    }
    pub(super) fn holds(&self) -> bool {
        match self {
            Seen::Token(leaf, token) => leaf.lock().validate(*token),
            Seen::Locked(_) => true,
        }
    }
}

/// Entries of one leaf, from some rank on in the direction of the walk. Empty at the end of the table.
pub(super) struct View<'s, 'a, K> {
    spot: &'s BoundedLeaf<'a, K>,
    /// The leaf's token, if it was not locked.
    token: Option<u64>,
    /// The key word from which a walk starts in this leaf, or 0.
    from: u64,
    /// The ranks `start..end`.
    start: usize,
    end: usize,
    down: bool,
}

impl<K> View<'_, '_, K> {
    fn len(&self) -> usize {
        self.end - self.start
    }
    /// The `i`-th entry in the walk's direction.
    fn entry<S: OrderedSchema>(&self, i: usize) -> Result<Entry, Torn> {
        let rank = if self.down { self.end - 1 - i } else { self.start + i };
        self.spot.leaf.at::<S>(rank)
    }
    /// The bound of the leaf in the walk's direction. `None` at the end of the table.
    fn beyond(&self) -> Option<Bound<K>> {
        self.spot.beyond(self.down)
    }
    /// Starts a trail at the first entry, unless the leaf is locked.
    #[inline(always)]
    fn begin<E>(&self, trail: &mut Trail, engine: &E, epoch: u64, first: Entry) {
        if let Some(token) = self.token {
            let leaf = self.spot.leaf;
            let rank = if self.down { self.end - 1 } else { self.start };
            trail.begin(engine, epoch, (self.down, self.from), (leaf.lock(), token), first);
            note(trail, leaf, rank, self.beyond().unwrap_or(std::ptr::null()));
        }
    }

    /// How many of the first `count` entries are inside the range. Of many, looks at the last one first, because mostly
    /// all are. If not, it gallops, because mostly few are.
    fn inside<S>(&self, schema: &S, range: Range<'_, S::Probe>, count: usize) -> Result<usize, Torn>
    where
        S: OrderedSchema<Key = K>,
    {
        let has = |i| {
            let entry = self.entry::<S>(i)?;
            // SAFETY: the entry was read under the caller's guard. Its words may not belong together, as `compare` allows.
            Ok(unsafe { range.has(schema, entry) })
        };
        if range.to.is_none() || count > MANY_SHOWN && has(count - 1)? {
            return Ok(count);
        }
        let (mut low, mut high, mut step) = if count > MANY_SHOWN {
            (0, count - 1, 4)
        } else {
            (0, count, 1)
        };
        while low < high {
            let middle = usize::midpoint(low, high).min(low + step);
            if has(middle)? {
                low = middle + 1;
                step *= 2;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// Shows up to `limit` entries of the range. Returns how many, and whether more may follow.
    fn show<S, T>(
        &self,
        schema: &S,
        range: Range<'_, S::Probe>,
        limit: usize,
        out: &mut Vec<T>,
        expand: &mut impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<(usize, bool), Torn>
    where
        S: OrderedSchema<Key = K>,
    {
        let wanted = self.len().min(limit);
        let shown = self.inside(schema, range, wanted)?;
        if shown > MANY_SHOWN {
            // All lines of this leaf, and then those of the next one, will be read.
            self.spot.leaf.prefetch_all::<S>();
            if let Some(next) = self.spot.beside(self.down) {
                next.leaf.prefetch_all::<S>();
            }
        }
        for i in 0..shown {
            expand(self.entry::<S>(i)?, out);
        }
        let more = shown == wanted && (self.len() > shown || self.beyond().is_some());
        Ok((shown, more))
    }
}

/// Stores the present position in a trail: the leaf, the rank of the entry there, and the leaf's bound in the trail's
/// direction.
fn note<K>(trail: &mut Trail, leaf: Leaf, rank: usize, beyond: Bound<K>) {
    trail.node = leaf.address();
    trail.note = rank << LINES_BITS | leaf.lines();
    trail.bound = beyond.cast();
    trail.beyond = None;
}

impl<S: OrderedSchema> Ca<S> {
    /// Finds a leaf, with its bounds.
    #[inline(always)]
    fn seek<'a>(&self, target: &Target<S>) -> BoundedLeaf<'a, S::Key> {
        let mut above = None;
        let (base, leaf, low, high) = self.descend_to(target, |turn| above = Some(turn));
        BoundedLeaf {
            base,
            leaf,
            low,
            high,
            above,
        }
    }

    /// Finds a leaf, with its base node and its bounds. Shows each turn on the way.
    #[inline(always)]
    pub(super) fn descend_to<'a>(&self, target: &Target<S>, mut turn: impl FnMut(Turn<S::Key>)) -> Bounded<'a, S::Key> {
        let route = self.route();
        if let Route::One(base) = route {
            // No key head is needed.
            if let Kind::Leaf(leaf) = base.root().kind::<S::Key>() {
                return (base, leaf, base.low, base.high);
            }
        }
        // The key head at byte 0 mostly suffices in all nodes.
        let head = match target {
            Target::At(query) | Target::Below(query) => self.schema.head(query.probe, 0),
            Target::First | Target::Last => 0,
        };
        let search = |inner: Inner<S::Key>| match target {
            Target::First => 0,
            Target::Last => inner.len() - 1,
            Target::At(query) => inner.index_of(head).unwrap_or_else(|| inner.search(query, true)),
            Target::Below(query) => inner.index_of(head).unwrap_or_else(|| inner.search(query, false)),
        };
        let base: &'a Base<S::Key> = match route {
            Route::One(base) => base,
            Route::Many(route) => self.base(route.child(search(route))),
        };
        let (mut low, mut high) = (base.low, base.high);
        let mut node = base.root();
        loop {
            match node.kind::<S::Key>() {
                Kind::Leaf(leaf) => return (base, leaf, low, high),
                Kind::Inner(inner) => {
                    let index = search(inner);
                    turn(Turn {
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

    /// Takes a leaf's token or lock, and makes sure that it is ordered. `None` if it is dead.
    pub(super) fn enter(&self, leaf: Leaf, locking: bool) -> Result<Option<(Seen, Info)>, Busy> {
        loop {
            let seen = if locking {
                Seen::Locked(Held::lock(leaf, &self.events, 0)?.0)
            } else {
                Seen::Token(leaf, leaf.lock().token_counted(&self.events, 0)?)
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
                Seen::Token(..) => Held::lock(leaf, &self.events, 0)?.0,
            };
            let info = leaf.info();
            if !info.dead() && !info.ordered() {
                leaf.sort(&self.schema);
                held.changed = true;
            }
        }
    }

    /// Calls `visit` with the entries from a key on, up or down, of the first leaf that has any. `visit` may be
    /// repeated. The last call, whose result is returned, saw one state. The first try is inlined into the caller.
    #[inline(always)]
    pub(super) fn walk<'a, R>(
        &self,
        guard: &Guard,
        from: Option<(&S::Probe, bool)>,
        down: bool,
        mut visit: impl FnMut(&View<'_, 'a, S::Key>) -> Result<R, Torn>,
    ) -> Result<R, Busy> {
        match self.try_walk(guard, from, down, &mut visit) {
            Some(result) => Ok(result),
            None => self.walk_on(guard, from, down, visit, |_| ()),
        }
    }

    /// One optimistic try in the leaf where the walk begins, or in the one beside it. `None` if neither has an entry to
    /// show and others follow, if one is not ordered, or if a writer holds it, overtakes the read, or has replaced it.
    #[inline(always)]
    fn try_walk<'a, R>(
        &self,
        guard: &Guard,
        from: Option<(&S::Probe, bool)>,
        down: bool,
        visit: &mut impl FnMut(&View<'_, 'a, S::Key>) -> Result<R, Torn>,
    ) -> Option<R> {
        let from = from.map(|(probe, inclusive)| (Query::new(&self.schema, probe), inclusive));
        let spot = match &from {
            None if down => self.seek(&Target::Last),
            None => self.seek(&Target::First),
            Some((query, false)) if down => self.seek(&Target::Below(query)),
            Some((query, _)) => self.seek(&Target::At(query)),
        };
        let leaf = spot.leaf;
        let token = leaf.lock().token()?;
        let info = leaf.info();
        if info.dead() || !info.ordered() {
            return None;
        }
        leaf.touch_order();
        let count = info.count();
        let rank = match &from {
            Some((query, inclusive)) => leaf.rank_of_key(query, info, *inclusive == down).ok()?,
            None if down => count,
            None => 0,
        };
        let view = View {
            spot: &spot,
            token: Some(token),
            from: from.as_ref().map_or(0, |(query, _)| self.schema.word(query.probe)),
            start: if down { 0 } else { rank },
            end: if down { rank } else { count },
            down,
        };
        if view.len() == 0 && view.beyond().is_some() {
            return self.try_beside(guard, &spot, token, down, visit);
        }
        let result = visit(&view).ok()?;
        if !leaf.lock().validate(token) {
            return None;
        }
        self.count_read(guard, spot.base);
        Some(result)
    }

    /// Goes on with [`try_walk`](Self::try_walk) in the leaf beside one that has no entry to show. The walk has this token
    /// of that one. `None` also if the leaf beside it is under another node.
    #[inline(never)]
    fn try_beside<'a, R>(
        &self,
        guard: &Guard,
        spot: &BoundedLeaf<'a, S::Key>,
        token: u64,
        down: bool,
        visit: &mut impl FnMut(&View<'_, 'a, S::Key>) -> Result<R, Torn>,
    ) -> Option<R> {
        let beside = spot.beside(down)?;
        let leaf = beside.leaf;
        let beside_token = leaf.lock().token()?;
        let info = leaf.info();
        if info.dead() || !info.ordered() || info.count() == 0 {
            return None;
        }
        leaf.touch_order();
        let view = View {
            spot: &beside,
            token: Some(beside_token),
            from: 0,
            start: 0,
            end: info.count(),
            down,
        };
        let result = visit(&view).ok()?;
        if !spot.leaf.lock().validate(token) || !leaf.lock().validate(beside_token) {
            return None;
        }
        self.count_read(guard, spot.base);
        Some(result)
    }

    /// A [`walk`](Self::walk) that goes on to other leaves and repeats what fails. At the end it shows each leaf that it
    /// read.
    #[inline(never)]
    fn walk_on<'a, R>(
        &self,
        guard: &Guard,
        from: Option<(&S::Probe, bool)>,
        down: bool,
        mut visit: impl FnMut(&View<'_, 'a, S::Key>) -> Result<R, Torn>,
        mut saw: impl FnMut(&Seen),
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
            // The first leaf is nearly always the only one, and an empty vector costs nothing.
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
                    token: seen.token(),
                    from: 0,
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
                    passed.iter().chain([&seen]).for_each(&mut saw);
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

    /// Calls `look` with the first entry from a key on, up or down, and starts a trail there.
    pub(super) fn step<R>(
        &self,
        guard: &Guard,
        from: Option<&S::Probe>,
        down: bool,
        trail: &mut Trail,
        mut look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        let epoch = guard.epoch();
        // The trail is written here, not returned, because a larger result would pass through memory.
        let result = self.walk(
            guard,
            from.map(|key| (key, false)),
            down,
            #[inline(always)]
            |view| {
                trail.clear();
                let first = (view.len() > 0).then(|| view.entry::<S>(0)).transpose()?;
                let result = look(first);
                if let Some(first) = first {
                    view.begin(trail, self, epoch, first);
                }
                Ok(result)
            },
        );
        // What a failed attempt saw may not be valid.
        if result.is_err() {
            trail.clear();
        }
        result
    }

    /// See [`crate::Engine::follow`]. A trail leads from leaf to leaf.
    #[inline(always)]
    pub(super) fn step_along<R>(
        &self,
        guard: &Guard,
        trail: &mut Trail,
        down: bool,
        is_here: impl Fn(Origin) -> bool,
        mut look: impl FnMut(Option<Entry>) -> R,
    ) -> Option<R> {
        let here = trail.here(self, guard, down)?;
        if !is_here(Origin::Entry(here)) {
            return match is_here(Origin::Word(trail.from())) {
                true => trail.repeat(here, &mut look),
                false => None,
            };
        }
        match trail.ahead() {
            Some(next) => trail.step(next, &mut look),
            None => self.step_on(trail, down, &mut look),
        }
    }

    /// Goes on from the last entry of the trail's run.
    #[inline(never)]
    fn step_on<R>(&self, trail: &mut Trail, down: bool, look: &mut impl FnMut(Option<Entry>) -> R) -> Option<R> {
        // SAFETY: the trail's node is a leaf of this size. It has not been freed, as `here` checked.
        let leaf = unsafe { Leaf::from_address(NonNull::new_unchecked(trail.node), trail.note % (1 << LINES_BITS)) };
        // The leaf is ordered while the trail is valid. What is read of it is validated below, and again by later
        // steps.
        let first = trail.note >> LINES_BITS;
        let passed = trail.passed();
        let rank = if down { first - passed } else { first + passed };
        let left = if down {
            rank
        } else {
            leaf.info().count().saturating_sub(rank + 1)
        };
        if left == 0 {
            return self.step_across(trail, down, look);
        }
        if left < 2 * RUN && trail.beyond.is_none() {
            self.look_beyond(trail, down);
        }
        let ahead = |steps: usize| leaf.at::<S>(if down { rank - steps } else { rank + steps }).ok();
        let next_run = RUN..=left.min(2 * RUN - 2);
        next_run.filter_map(ahead).for_each(|entry| self.schema.prefetch(entry));
        trail.extend((1..=left).map_while(ahead));
        trail.note = rank << LINES_BITS | leaf.lines();
        trail.step(trail.ahead()?, look)
    }

    /// Finds the leaf to which a trail will come next, if there is one, and prefetches all of it.
    #[inline(never)]
    fn look_beyond(&self, trail: &mut Trail, down: bool) {
        // SAFETY: a bound of the trail's leaf. The leaf has not been freed, and so the bound has not.
        let Some(key) = (unsafe { bound(trail.bound.cast::<S::Key>()) }) else {
            return;
        };
        let query = Query::new(&self.schema, self.schema.probe(key));
        let BoundedLeaf { leaf, low, high, .. } = self.seek(&if down {
            Target::Below(&query)
        } else {
            Target::At(&query)
        });
        leaf.prefetch_all::<S>();
        trail.beyond = Some(Beyond {
            node: leaf.address(),
            bound: if down { low } else { high }.cast(),
            note: leaf.lines(),
        });
    }

    /// Goes on from the last entry of the trail's leaf to the next leaf, if that has entries.
    #[inline(never)]
    fn step_across<R>(&self, trail: &mut Trail, down: bool, look: &mut impl FnMut(Option<Entry>) -> R) -> Option<R> {
        if trail.bound.is_null() {
            let result = look(None);
            return trail.holds().then_some(result);
        }
        if trail.beyond.is_none() {
            self.look_beyond(trail, down);
        }
        let Beyond {
            node,
            bound,
            note: lines,
        } = trail.beyond?;
        // SAFETY: a leaf of this size, which was reachable in the trail's epoch, so it has not been freed. Ranges of
        // leaves never change, so it is the next one unless it is dead.
        let leaf = unsafe { Leaf::from_address(NonNull::new_unchecked(node), lines) };
        let (seen, info) = self.enter(leaf, false).ok()??;
        let count = info.count();
        let rank = |step: usize| if down { count - 1 - step } else { step };
        (1..RUN.min(count))
            .filter_map(|step| leaf.at::<S>(rank(step)).ok())
            .for_each(|entry| self.schema.prefetch(entry));
        let next = (count > 0).then(|| leaf.at::<S>(rank(0)).ok())??;
        let result = look(Some(next));
        let token = seen.token()?;
        (trail.holds() && seen.holds()).then(|| {
            trail.lead(next, (leaf.lock(), token));
            note(trail, leaf, rank(0), bound.cast::<S::Key>());
            result
        })
    }

    /// Removes an empty leaf that a walk met. The thread that emptied it could not, because locks were held. `near` is
    /// a bound of the leaf.
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
    pub(super) fn range_on<T>(
        &self,
        guard: &Guard,
        range: Range<'_, S::Probe>,
        limit: usize,
        out: &mut Vec<T>,
        mut expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy> {
        let (start, limit) = (out.len(), limit.max(1));
        let down = range.down;
        let walked = self.walk(guard, range.from, down, |view| {
            out.truncate(start);
            let (shown, more) = view.show(&self.schema, range, limit, out, &mut expand)?;
            Ok((*view.spot, shown, more))
        });
        let Ok((mut spot, mut places, mut more)) = walked else {
            out.truncate(start);
            return Err(Busy);
        };
        // Continues in the leaves beside it, until one is dead or changing.
        while more && places < limit {
            let before = out.len();
            let mut read = || {
                let next = spot.beside(down)?;
                let (seen, info) = self.enter(next.leaf, false).ok()??;
                let view = View {
                    spot: &next,
                    token: seen.token(),
                    from: 0,
                    start: 0,
                    end: info.count(),
                    down,
                };
                let (shown, more) = view.show(&self.schema, range, limit - places, out, &mut expand).ok()?;
                ((shown > 0 || !more) && seen.holds()).then_some((next, shown, more))
            };
            let Some((next, shown, beyond)) = read() else {
                out.truncate(before);
                break;
            };
            (spot, places, more) = (next, places + shown, beyond);
        }
        Ok(more)
    }

    /// Like [`OrderedEngine::range`](crate::OrderedEngine::range), but goes on until `limit` entries were shown or the
    /// range ends. Appends a mark of each leaf that it read to `marks`. All that it appends is one state if all marks
    /// hold.
    pub fn range_marked<'g, T>(
        &self,
        guard: &'g Guard,
        range: Range<'_, S::Probe>,
        limit: usize,
        out: &mut Vec<T>,
        marks: &mut Vec<Mark<'g>>,
        mut expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy> {
        let down = range.down;
        let mut from = range.from;
        let mut places = 0;
        loop {
            let start = out.len();
            let visit = |view: &View<'_, '_, S::Key>| {
                out.truncate(start);
                let (shown, more) = view.show(&self.schema, range, limit - places, out, &mut expand)?;
                Ok((shown, more, view.beyond()))
            };
            let (shown, more, beyond) = self.walk_on(guard, from, down, visit, |seen| marks.push(seen.mark()))?;
            places += shown;
            if !more || places >= limit {
                return Ok(more);
            }
            // SAFETY: bounds live as long as the guard.
            let Some(key) = beyond.and_then(|beyond| unsafe { bound(beyond) }) else {
                return Ok(false);
            };
            from = Some((self.schema.probe(key), !down));
        }
    }

    /// A shown entry as it is stored: a seat may be that of another entry when the read is over.
    fn lasting(&self, entry: Entry) -> Entry {
        match S::CELLS {
            true => {
                // SAFETY: the entry is shown under the caller's guard.
                let body = unsafe { body_of(entry.body) };
                // Acquire: see `Leaf::entry`.
                let body = body.load(Acquire);
                Entry { body, ..entry }
            }
            false => entry,
        }
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
                    let entry = view.entry::<S>(i)?;
                    last = Some(self.lasting(entry));
                    expand(entry, out);
                }
                Ok((shown, last, view.len() > shown || view.beyond().is_some()))
            });
            let Ok((shown, last, more)) = step else {
                // Removes what failed attempts appended. What comes before is complete, and the cursor is behind it.
                out.truncate(start);
                return if places > 0 { Ok(true) } else { Err(Busy) };
            };
            places += shown;
            cursor.done = !more;
            if let Some(last) = last {
                // SAFETY: the entry was valid under the guard, so what it points to is not freed yet.
                cursor.behind = Some(unsafe { self.schema.own(last) });
            }
        }
        Ok(!cursor.done)
    }
}
