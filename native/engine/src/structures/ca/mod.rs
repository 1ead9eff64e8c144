//! `ca`, the default engine of `ordered_set`: a contention adapting tree.
//!
//! Source for the adaptation: Sagonas, Winblad, "A contention adapting approach to concurrent ordered sets", JPDC 2018,
//! and "More Scalable Ordered Set for ETS Using Adaptation", Erlang 2014, sections 3 to 5. The layout is this project's
//! own. From the top:
//! - At most one route node, immutable and so always balanced. It is copied when it changes, which is rare.
//! - Base nodes: a single one without contention, more where there is contention.
//! - In each base node a B+tree of immutable inner nodes over leaves of up to 112 entries.
//!
//! Locks: an operation on one key locks its leaf. A change of structure locks its base node, then the leaves that it
//! replaces. Adaptation takes the table's adaptation lock and the locks of base nodes, without waiting. A reader takes
//! no lock. A leaf's key range never changes, so a reader validates only the leaves that it read, and nothing above
//! them. Every wait is bounded.
//!
//! Guarantees: all operations of the traits are linearizable, with two exceptions. A call of `scan` is linearizable
//! leaf by leaf, and `slot` is not linearizable. A lookup or an update is O(log n). Below the inner nodes a lookup has
//! one cache miss. For an absent key it has none, if the marks of the leaves are cached.

mod adapt;
mod base;
mod counts;
mod inner;
mod leaf;
mod many;
#[cfg(all(test, shuttle))]
mod models;
mod order;
mod route;
mod structure;
#[cfg(test)]
mod tests;
mod trim;
mod view;
mod walk;

use crate::shared::line::{self, wide};
use crate::{
    hash_of, Busy, Cursor, Engine, Entry, Locked, Mark, Marked, OrderedEngine, OrderedSchema, Origin, Range, Step,
    Trail,
};
use base::{Base, GRAVITY, GRAVITY_SAMPLING, SAMPLING};
use cats_sync::epoch::Guard;
use cats_sync::events::Events;
use cats_sync::facade::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32, Ordering::*};
use cats_sync::probe;
use cats_sync::slab;
use cats_sync::stat_lock;
use cats_sync::version_lock::VersionLock;
use inner::{Inner, Kind, Node};
use leaf::{Held, Leaf, Place, Wanted};
use route::Route;
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr;
pub use view::{Sight, Stretch, LEAF_SIZES};

/// How often an optimistic read fails before it takes locks.
const PATIENCE: u32 = 8;
/// How often an operation starts again because another thread had replaced its leaf. Then it returns `Busy`.
const ATTEMPTS: u32 = 1000;

/// When base nodes split and join.
#[derive(Clone, Copy, Debug)]
pub struct Thresholds {
    /// A base node splits if its statistic is above this.
    pub split: i32,
    /// A base node joins a neighbour if its statistic is below this.
    pub join: i32,
}

impl Thresholds {
    /// Base nodes never split.
    pub const NEVER: Self = Self {
        split: i32::MAX,
        join: i32::MIN,
    };
}

impl Default for Thresholds {
    /// The thresholds of the authors' code.
    fn default() -> Self {
        Self {
            split: stat_lock::SPLIT_ABOVE,
            join: stat_lock::JOIN_BELOW,
        }
    }
}

/// See the module's documentation.
pub struct Ca<S: OrderedSchema> {
    /// A [`Route`]. Null after the engine was dismantled.
    route: AtomicPtr<u8>,
    schema: S,
    /// Whether the entries of each leaf are counted, because order statistics were asked for.
    counting: AtomicBool,
    thresholds: Thresholds,
    /// Held while the route is being replaced.
    adapting: VersionLock,
    /// Bytes of all nodes.
    bytes: AtomicI64,
    /// Where the tree is trimmed next.
    trimmed: AtomicU32,
    events: Events,
    /// Nodes that are still to be dismantled.
    remains: Vec<Node>,
}

// SAFETY: the engine owns the nodes, and accesses them as their locks and the epochs allow. Separators may be shared
// and sent (`OrderedSchema::Key`).
unsafe impl<S: OrderedSchema> Send for Ca<S> {}
// SAFETY: as above.
unsafe impl<S: OrderedSchema> Sync for Ca<S> {}

/// A key to search for. It caches the part of its normalized key that was needed last.
struct Query<'a, S: OrderedSchema> {
    schema: &'a S,
    probe: &'a S::Probe,
    /// The first byte of the cached part, and the number of its words.
    from: Cell<usize>,
    count: Cell<usize>,
    piece: Cell<[u64; PIECE]>,
}

/// The most words of the cached part: the prefix of an inner node and the key head behind it.
const PIECE: usize = inner::PREFIX + 1;

impl<'a, S: OrderedSchema> Query<'a, S> {
    #[inline(always)]
    fn new(schema: &'a S, probe: &'a S::Probe) -> Self {
        Self {
            schema,
            probe,
            from: Cell::new(0),
            count: Cell::new(0),
            piece: Cell::new([0; PIECE]),
        }
    }

    /// The hash of the key.
    fn hash(&self) -> u64 {
        hash_of(self.schema.word(self.probe))
    }

    /// The probe's key head at `skip`.
    #[inline(always)]
    fn head(&self, skip: usize) -> u64 {
        self.look_ahead(skip, skip);
        self.piece_at(skip)
    }

    /// Caches the key heads from `skip` to `last` together, because computing one costs nearly as much as computing
    /// all. `last` is at most the length of a prefix behind `skip`.
    #[inline(always)]
    fn look_ahead(&self, skip: usize, last: usize) {
        let from = self.from.get();
        if skip < from || last + 8 > from + 8 * self.count.get() {
            self.read(skip, last);
        }
    }

    #[inline(never)]
    fn read(&self, skip: usize, last: usize) {
        let count = (last + 8 - skip).div_ceil(8);
        // SAFETY: nobody else refers to the cached part, as it is never lent. Written in place, because copying it
        // would cause a store-forwarding stall.
        let piece = unsafe { &mut *self.piece.as_ptr() };
        *piece = [0; PIECE];
        self.schema.heads(self.probe, skip, &mut piece[..count]);
        self.from.set(skip);
        self.count.set(count);
    }

    /// The key head at `skip`, which is cached.
    #[inline(always)]
    fn piece_at(&self, skip: usize) -> u64 {
        let piece: &Cell<[u64]> = &self.piece;
        let word = |i: usize| piece.as_slice_of_cells()[i].get();
        let at = skip - self.from.get();
        match 8 * (at % 8) {
            0 => word(at / 8),
            bits => word(at / 8) << bits | word(at / 8 + 1) >> (64 - bits),
        }
    }
}

/// The leaf of a key, as found under the guard.
#[derive(Clone, Copy)]
pub struct Spot<'g>(Leaf, PhantomData<&'g Guard>);

/// A leaf with its base node and the node in which it was found. No such node if the leaf is the root of its base node.
type Found<'a, K> = (&'a Base<K>, Leaf, Option<Inner<K>>);

/// The locked leaf of a key.
struct Acquired<'a, K> {
    base: &'a Base<K>,
    held: Held,
    /// The node above the leaf when the leaf was found, if there was one.
    above: Option<Inner<K>>,
    /// Whether another thread held the lock.
    waited: bool,
    /// The key's slot and entry, or a free slot for it.
    spot: Result<(usize, Entry), Place>,
}

/// True in one of `period` calls of a thread on average. `period` is a power of two.
#[inline]
fn once_in(period: u32) -> bool {
    thread_local! {
        static MULTIPLE: Cell<u32> = const { Cell::new(0) };
    }
    // A Weyl sequence: multiples of the golden ratio. They are spread evenly, also if calls follow nearly any periodic
    // pattern.
    MULTIPLE.with(|multiple| {
        let x = multiple.get().wrapping_add(0x9e37_79b9);
        multiple.set(x);
        x < u32::MAX / period
    })
}

impl<S: OrderedSchema> Ca<S> {
    /// An empty table.
    pub fn new(schema: S) -> Self {
        Self::with_thresholds(schema, Thresholds::default())
    }

    /// An empty table with these thresholds of adaptation.
    pub fn with_thresholds(schema: S, thresholds: Thresholds) -> Self {
        line::detect();
        let leaf = Leaf::empty::<S>(1, 0);
        let base = Base::<S::Key>::allocate(ptr::null(), ptr::null(), Node::leaf(leaf));
        let bytes = leaf.size::<S>() + size_of::<Base<S::Key>>();
        Self {
            route: AtomicPtr::new(Route::<S::Key>::one(base)),
            schema,
            counting: AtomicBool::new(false),
            thresholds,
            adapting: VersionLock::new(0),
            bytes: AtomicI64::new(bytes as i64),
            trimmed: AtomicU32::new(0),
            events: Events::default(),
            remains: Vec::new(),
        }
    }

    /// What rarely happens here.
    pub fn events(&self) -> &Events {
        &self.events
    }

    #[inline]
    fn route<'a>(&self) -> Route<'a, S::Key> {
        // SAFETY: not null before the engine is dismantled. Acquire pairs with the Release that published the route.
        unsafe { Route::from_word(self.route.load(Acquire)) }
    }

    /// The base node at an address that was found in the route node under a guard.
    fn base<'a>(&self, at: *mut u8) -> &'a Base<S::Key> {
        // SAFETY: the children of the route node are base nodes, which are freed only through the epochs.
        unsafe { &*at.cast() }
    }

    #[inline(always)]
    fn find_base<'a>(&self, probe: &S::Probe) -> &'a Base<S::Key> {
        match self.route() {
            Route::One(base) => base,
            Route::Many(route) => self.base_of(route, probe),
        }
    }

    #[inline(never)]
    fn base_of<'a>(&self, route: Inner<S::Key>, probe: &S::Probe) -> &'a Base<S::Key> {
        self.base(route.child(route.search(&Query::new(&self.schema, probe), true)))
    }

    /// The leaf whose range holds the key. It is dead if another thread has just replaced it.
    #[inline(always)]
    fn find<'a>(&self, probe: &S::Probe) -> (&'a Base<S::Key>, Leaf) {
        let (base, leaf, _) = self.find_below(probe);
        (base, leaf)
    }

    /// As [`find`](Self::find), with the node in which the leaf was found.
    #[inline(always)]
    fn find_below<'a>(&self, probe: &S::Probe) -> Found<'a, S::Key> {
        let base = self.find_base(probe);
        let root = base.root();
        let (node, above) = match root.kind::<S::Key>() {
            Kind::Inner(inner) if inner.is_searched_by_heads() => {
                let head = self.schema.head(probe, 0);
                // SAFETY: `WIDE` only if `wide` is true.
                let (node, above) = unsafe {
                    match wide() {
                        true => Self::descend::<true>(head, inner),
                        false => Self::descend::<false>(head, inner),
                    }
                };
                (node, Some(above))
            }
            _ => (root, None),
        };
        match node.kind() {
            Kind::Leaf(leaf) => (base, leaf, above),
            Kind::Inner(inner) => {
                let (leaf, above) = self.descend_by_keys(probe, inner);
                (base, leaf.as_leaf::<S::Key>(), Some(above))
            }
        }
    }

    /// Descends from an inner node with a key's key head, while comparing key heads suffices. Returns the leaf and the node above it.
    /// Or returns the first node that needs more. Another function handles that node, so this one need not save registers.
    ///
    /// # Safety
    /// `WIDE` only if [`wide`] is true.
    #[inline(never)]
    unsafe fn descend<const WIDE: bool>(head: u64, inner: Inner<S::Key>) -> (Node, Inner<S::Key>) {
        let mut inner = inner;
        // SAFETY: the caller's promise.
        while let Some(child) = unsafe { inner.child_of::<WIDE>(head) } {
            match child.kind() {
                Kind::Leaf(_) => return (child, inner),
                Kind::Inner(next) => inner = next,
            }
        }
        (Node::inner(inner), inner)
    }

    /// The key's leaf below an inner node, and the node above it.
    #[inline(never)]
    fn descend_by_keys(&self, probe: &S::Probe, inner: Inner<S::Key>) -> (Node, Inner<S::Key>) {
        let query = Query::new(&self.schema, probe);
        let mut inner = inner;
        loop {
            let child = Node(inner.child(inner.search(&query, true)));
            match child.kind() {
                Kind::Inner(next) => inner = next,
                Kind::Leaf(_) => return (child, inner),
            }
        }
    }

    /// Prefetches the leaf of this key. To find it, this reads the nodes above.
    #[inline]
    pub fn prefetch<'g>(&self, _guard: &'g Guard, probe: &S::Probe) -> Spot<'g> {
        let (_, leaf) = self.find(probe);
        leaf.prefetch::<S>(Wanted::new(self.schema.word(probe)).hash);
        Spot(leaf, PhantomData)
    }

    /// Prefetches what the key's entry points to, if the leaf is cached and the entry is in its home line.
    #[inline]
    pub fn prefetch_object(&self, probe: &S::Probe, spot: Spot<'_>) {
        spot.0.show_home::<S>(Wanted::new(self.schema.word(probe)), |entry| {
            self.schema.prefetch(entry)
        });
    }

    /// Updates the statistic of the base node, and adapts. Counts each operation that waited for a lock, and samples
    /// the others.
    #[inline(always)]
    fn count(&self, guard: &Guard, base: &Base<S::Key>, waited: bool, sampled: bool) {
        if waited || sampled {
            self.count_one(guard, base, waited);
        }
    }

    /// Counts one operation that waited for a lock. Otherwise counts as many as one sample stands for.
    #[inline(never)]
    fn count_one(&self, guard: &Guard, base: &Base<S::Key>, waited: bool) {
        match waited {
            true => base.statistic().contended(),
            false => base.statistic().bump(-(SAMPLING as i32)),
        }
        self.adapt(guard, base);
    }

    /// Counts a read, if the table has several base nodes.
    #[inline(always)]
    fn count_read(&self, guard: &Guard, base: &Base<S::Key>) {
        if !base.alone() {
            self.count_read_among_several(guard, base);
        }
    }

    /// Counts a read of a table with several base nodes. Not inlined, so that the caller need not save registers.
    #[inline(never)]
    fn count_read_among_several(&self, guard: &Guard, base: &Base<S::Key>) {
        if once_in(GRAVITY_SAMPLING) {
            base.statistic().bump(GRAVITY);
            self.adapt(guard, base);
        }
    }

    /// Locks the key's leaf. `None` if that has neither an entry of the key nor room for one, and the caller `adds` none.
    #[inline(never)]
    fn acquire<'a>(
        &self,
        guard: &Guard,
        probe: &S::Probe,
        wanted: Wanted,
        adds: bool,
    ) -> Result<Option<Acquired<'a, S::Key>>, Busy> {
        for _ in 0..ATTEMPTS {
            let (base, leaf, above) = self.find_below(probe);
            leaf.prefetch_entries::<S>(wanted.hash);
            let Ok((held, waited)) = Held::lock(leaf, &self.events, wanted.hash) else {
                base.statistic().contended();
                self.adapt(guard, base);
                return Err(Busy);
            };
            if leaf.info().dead() {
                continue;
            }
            if let Some(spot) = self.spot(leaf, probe, wanted) {
                return Ok(Some(Acquired {
                    base,
                    held,
                    above,
                    waited,
                    spot,
                }));
            }
            drop(held);
            if !adds {
                self.count(guard, base, waited, once_in(SAMPLING));
                return Ok(None);
            }
            self.make_room(guard, &Query::new(&self.schema, probe), wanted)?;
        }
        Err(Busy)
    }

    /// Locks the key's leaf at the first try, if its lock is free and the leaf is neither full nor replaced.
    #[inline(always)]
    fn try_acquire<'a>(&self, probe: &S::Probe, wanted: Wanted) -> Option<Acquired<'a, S::Key>> {
        let (base, leaf, above) = self.find_below(probe);
        leaf.prefetch_entries::<S>(wanted.hash);
        let held = Held::try_lock(leaf)?;
        if leaf.info().dead() {
            return None;
        }
        let spot = self.spot(leaf, probe, wanted)?;
        Some(Acquired {
            base,
            held,
            above,
            waited: false,
            spot,
        })
    }

    /// The key's slot and entry in a locked leaf, or a free slot for it. `None` if the leaf is full.
    #[inline(always)]
    fn spot(&self, leaf: Leaf, probe: &S::Probe, wanted: Wanted) -> Option<Result<(usize, Entry), Place>> {
        match leaf.find(&self.schema, probe, wanted, leaf.info()) {
            Some(found) => Some(Ok(found)),
            None => leaf.room(wanted.hash).map(Err),
        }
    }
}

impl<S: OrderedSchema> Ca<S> {
    /// One optimistic read. `None` if a writer holds the leaf, overtakes the read, or has replaced the leaf.
    #[inline(always)]
    fn try_read<R>(
        &self,
        guard: &Guard,
        probe: &S::Probe,
        wanted: Wanted,
        look: &mut impl FnMut(Option<Entry>) -> R,
    ) -> Option<R> {
        let (base, leaf) = self.find(probe);
        leaf.prefetch_entries::<S>(wanted.hash);
        let token = leaf.lock().token()?;
        let info = leaf.info();
        if info.dead() {
            return None;
        }
        let result = look(leaf.find(&self.schema, probe, wanted, info).map(|found| found.1));
        if !leaf.lock().validate(token) {
            return None;
        }
        self.count_read(guard, base);
        Some(result)
    }

    /// Repeats a read whose first try failed.
    #[cold]
    #[inline(never)]
    fn read_again<R>(
        &self,
        guard: &Guard,
        probe: &S::Probe,
        wanted: Wanted,
        mut look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        probe!(read_again, ptr::from_ref(self), wanted.hash);
        self.events.read_again(wanted.hash as usize, wanted.hash);
        let mut failures = 0;
        for _ in 0..ATTEMPTS {
            let (base, leaf) = self.find(probe);
            leaf.prefetch_entries::<S>(wanted.hash);
            if failures < PATIENCE {
                let token = leaf.lock().token_counted(&self.events, wanted.hash)?;
                let info = leaf.info();
                if info.dead() {
                    continue;
                }
                let result = look(leaf.find(&self.schema, probe, wanted, info).map(|found| found.1));
                if leaf.lock().validate(token) {
                    self.count_read(guard, base);
                    return Ok(result);
                }
                failures += 1;
            } else {
                let held = Held::lock(leaf, &self.events, wanted.hash);
                base.statistic().contended();
                let (held, _) = held?;
                let info = leaf.info();
                if info.dead() {
                    continue;
                }
                let result = look(leaf.find(&self.schema, probe, wanted, info).map(|found| found.1));
                drop(held);
                self.adapt(guard, base);
                return Ok(result);
            }
        }
        Err(Busy)
    }

    /// Searches for an entry, and locks the leaf only if the entry exists. `None` if other threads are changing the
    /// leaf.
    #[inline(always)]
    fn glance<'a>(
        &self,
        (base, leaf, above): Found<'a, S::Key>,
        probe: &S::Probe,
        wanted: Wanted,
    ) -> Option<Option<Acquired<'a, S::Key>>> {
        let token = leaf.lock().token()?;
        let info = leaf.info();
        if info.dead() {
            return None;
        }
        match leaf.find(&self.schema, probe, wanted, info) {
            None => leaf.lock().validate(token).then_some(None),
            Some(found) => {
                let held = Held::lock_since(leaf, token)?;
                Some(Some(Acquired {
                    base,
                    held,
                    above,
                    waited: false,
                    spot: Ok(found),
                }))
            }
        }
    }

    /// Repeats an update whose first try failed. If it `adds` nothing, it gives no room to an absent key.
    #[cold]
    #[inline(never)]
    fn update_again<R>(
        &self,
        guard: &Guard,
        probe: &S::Probe,
        wanted: Wanted,
        adds: bool,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        Ok(match self.acquire(guard, probe, wanted, adds)? {
            Some(acquired) => self.change(guard, probe, acquired, change),
            None => change(None).1,
        })
    }

    /// Makes a change in a leaf that was locked for it.
    #[inline(always)]
    fn change<R>(
        &self,
        guard: &Guard,
        probe: &S::Probe,
        acquired: Acquired<S::Key>,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> R {
        let Acquired {
            base,
            mut held,
            above,
            waited,
            spot,
        } = acquired;
        // If the closure unwinds, readers must assume a change.
        held.changed = true;
        let (step, result) = change(spot.ok().map(|found| found.1));
        let mut removed = false;
        match (step, spot) {
            (Step::Keep, _) | (Step::Remove, Err(_)) => held.changed = false,
            (Step::Touch, _) => {}
            (Step::Put(entry), Ok((slot, old))) => held.leaf.replace::<S>(slot, old, entry),
            (Step::Put(entry), Err(place)) => {
                held.leaf.insert(&self.schema, probe, place, entry);
                self.keep_count(probe, held.leaf, above);
            }
            (Step::Remove, Ok((slot, _))) => {
                held.leaf.remove::<S>(slot);
                self.keep_count(probe, held.leaf, above);
                removed = true;
            }
        }
        let shrink = removed && sparse(held.leaf.info().count()) && base.root() != Node::leaf(held.leaf);
        let (changed, sampled) = (held.changed, held.is_sampled());
        drop(held);
        if shrink {
            self.shrink(guard, &Query::new(&self.schema, probe));
        }
        // The version of an unchanged leaf stays the same, so it cannot serve for sampling.
        let sampled = if changed { sampled } else { once_in(SAMPLING) };
        self.count(guard, base, waited, sampled);
        result
    }
}

/// Whether a leaf should merge with a neighbour. Asked only now and then, so that a refusal costs little.
fn sparse(count: usize) -> bool {
    count == 0 || count <= 16 && count.is_power_of_two()
}

impl<S: OrderedSchema> Marked<S> for Ca<S> {
    fn read_marked<'g, R>(
        &self,
        guard: &'g Guard,
        probe: &S::Probe,
        mut look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<(R, Mark<'g>), Busy> {
        let wanted = Wanted::new(self.schema.word(probe));
        for _ in 0..ATTEMPTS {
            let (base, leaf) = self.find(probe);
            leaf.prefetch_entries::<S>(wanted.hash);
            let token = leaf.lock().token_counted(&self.events, wanted.hash)?;
            let info = leaf.info();
            if info.dead() {
                continue;
            }
            let result = look(leaf.find(&self.schema, probe, wanted, info).map(|found| found.1));
            let mark = Mark::new(leaf.lock(), token);
            if mark.holds() {
                self.count_read(guard, base);
                return Ok((result, mark));
            }
        }
        Err(Busy)
    }
}

impl<S: OrderedSchema> Engine<S> for Ca<S> {
    type Cursor = Position<S::Key>;

    /// The first try is inlined into the caller.
    #[inline(always)]
    fn read<R>(&self, guard: &Guard, probe: &S::Probe, mut look: impl FnMut(Option<Entry>) -> R) -> Result<R, Busy> {
        let wanted = Wanted::new(self.schema.word(probe));
        match self.try_read(guard, probe, wanted, &mut look) {
            Some(result) => Ok(result),
            // Destructured, because otherwise the result of the first try would go through the memory of this result.
            None => match self.read_again(guard, probe, wanted, look) {
                Ok(result) => Ok(result),
                Err(Busy) => Err(Busy),
            },
        }
    }

    #[inline(always)]
    fn update<R>(
        &self,
        guard: &Guard,
        probe: &S::Probe,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        let wanted = Wanted::new(self.schema.word(probe));
        match self.try_acquire(probe, wanted) {
            Some(acquired) => Ok(self.change(guard, probe, acquired, change)),
            // As in `read`.
            None => match self.update_again(guard, probe, wanted, true, change) {
                Ok(result) => Ok(result),
                Err(Busy) => Err(Busy),
            },
        }
    }

    /// Locks nothing if there is no entry.
    #[inline(always)]
    fn update_present<R: Default>(
        &self,
        guard: &Guard,
        probe: &S::Probe,
        change: impl FnOnce(Entry) -> (Step, R),
    ) -> Result<R, Busy> {
        let wanted = Wanted::new(self.schema.word(probe));
        let found @ (base, leaf, _) = self.find_below(probe);
        leaf.prefetch_entries::<S>(wanted.hash);
        let change = |old: Option<Entry>| old.map_or_else(|| (Step::Keep, R::default()), change);
        match self.glance(found, probe, wanted) {
            Some(None) => {
                self.count_read(guard, base);
                Ok(R::default())
            }
            Some(Some(acquired)) => Ok(self.change(guard, probe, acquired, change)),
            // As in `read`.
            None => match self.update_again(guard, probe, wanted, false, change) {
                Ok(result) => Ok(result),
                Err(Busy) => Err(Busy),
            },
        }
    }

    fn update_many<R>(
        &self,
        guard: &Guard,
        probes: &[&S::Probe],
        change: impl FnOnce(&mut dyn Locked) -> R,
    ) -> Result<R, Busy> {
        let mut all = many::Many::lock(self, guard, probes)?;
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
        self.scan_up(guard, cursor, limit, out, expand)
    }

    fn next<R>(
        &self,
        guard: &Guard,
        after: Option<&S::Probe>,
        look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        self.step(guard, after, false, &mut Trail::new(), look)
    }

    fn next_on<R>(
        &self,
        guard: &Guard,
        after: Option<&S::Probe>,
        trail: &mut Trail,
        look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        self.step(guard, after, false, trail, look)
    }

    #[inline(always)]
    fn follow<R>(
        &self,
        guard: &Guard,
        trail: &mut Trail,
        down: bool,
        is_here: impl Fn(Origin) -> bool,
        look: impl FnMut(Option<Entry>) -> R,
    ) -> Option<R> {
        self.step_along(guard, trail, down, is_here, look)
    }

    fn buckets(&self) -> usize {
        0
    }

    /// See [`find_nth`](Self::find_nth).
    fn slot<T>(
        &self,
        guard: &Guard,
        number: usize,
        expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<Option<Vec<T>>, Busy> {
        let mut out = Vec::new();
        self.find_nth(guard, (number, false), usize::MAX, &mut out, expand)
            .map_err(|_| Busy)?;
        Ok((!out.is_empty()).then_some(out))
    }

    fn bytes(&self) -> usize {
        // Relaxed: a statistic.
        size_of::<Self>() + self.bytes.load(Relaxed).max(0) as usize
    }

    fn dismantle(&mut self, limit: usize, free: &mut dyn FnMut(Entry)) -> bool {
        self.take_apart(limit, free)
    }
}

impl<S: OrderedSchema> OrderedEngine<S> for Ca<S> {
    fn prev<R>(
        &self,
        guard: &Guard,
        before: Option<&S::Probe>,
        look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        self.step(guard, before, true, &mut Trail::new(), look)
    }

    fn prev_on<R>(
        &self,
        guard: &Guard,
        before: Option<&S::Probe>,
        trail: &mut Trail,
        look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        self.step(guard, before, true, trail, look)
    }

    fn range<T>(
        &self,
        guard: &Guard,
        range: Range<'_, S::Probe>,
        limit: usize,
        out: &mut Vec<T>,
        expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy> {
        self.range_on(guard, range, limit, out, expand)
    }

    fn base_nodes(&self) -> usize {
        let _guard = cats_sync::epoch::pin();
        self.route().len()
    }
}

/// The position of a scan: behind a key.
pub struct Position<K> {
    behind: Option<K>,
    done: bool,
}

impl<K> Default for Position<K> {
    fn default() -> Self {
        Self {
            behind: None,
            done: false,
        }
    }
}

impl<K: Send> Cursor for Position<K> {}

impl<S: OrderedSchema> Ca<S> {
    /// Takes nodes apart, from the left, until `limit` entries were shown.
    fn take_apart(&mut self, limit: usize, free: &mut dyn FnMut(Entry)) -> bool {
        // A small table has only this node. An empty vector costs nothing.
        let mut next = None;
        // Relaxed, for both: this function owns the engine.
        let route = self.route.load(Relaxed);
        if !route.is_null() {
            self.route.store(ptr::null_mut(), Relaxed);
            // SAFETY: this function owns the engine, and so all nodes below the route.
            let route = unsafe { Route::<S::Key>::from_word(route) };
            for i in (0..route.len()).rev() {
                let base = route.child(i);
                self.remains.extend(next.replace(self.base(base).root()));
                // SAFETY: as above.
                unsafe { slab::free(ptr::NonNull::new_unchecked(base), size_of::<Base<S::Key>>()) };
            }
            if let Route::Many(inner) = route {
                drop_node(inner);
            }
        }
        let mut shown = 0;
        while let Some(node) = next.take().or_else(|| self.remains.pop()) {
            match node.kind::<S::Key>() {
                Kind::Inner(inner) => {
                    self.remains
                        .extend((0..inner.len()).rev().map(|i| Node(inner.child(i))));
                    drop_node(inner);
                }
                Kind::Leaf(leaf) => {
                    // An empty leaf counts as one entry, as it is work too.
                    shown += leaf.info().count().max(1);
                    leaf.filled::<S>().for_each(&mut *free);
                    // SAFETY: as above.
                    unsafe { leaf.free::<S>() };
                }
            }
            if shown >= limit {
                break;
            }
        }
        self.remains.is_empty()
    }
}

/// Frees a node and its separators, all owned by the caller.
fn drop_node<K>(inner: Inner<K>) {
    for i in 0..inner.len() - 1 {
        // SAFETY: the node owns its separators alone, and each was boxed.
        drop(unsafe { Box::from_raw(inner.key(i).cast_mut()) });
    }
    if let Some((counts, size)) = inner.counts_pointer().memory() {
        // SAFETY: as below.
        unsafe { slab::free(counts, size) };
    }
    // SAFETY: the caller owns it. It was allocated with this size.
    unsafe { slab::free(ptr::NonNull::new_unchecked(inner.address()), inner.size()) };
}

impl<S: OrderedSchema> Drop for Ca<S> {
    fn drop(&mut self) {
        self.take_apart(usize::MAX, &mut |_| {});
    }
}
