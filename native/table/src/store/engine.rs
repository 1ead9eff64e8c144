//! What contents ask of the default engines, in one form for both. All that differs between the two stands here.

use super::items::{place_item, CopiedKey, KeyItem};
use crate::failure::Failure;
use crate::object::schema::{Exact, Ordered, OwnedKey, Probe, Seated};
use crate::object::{lease_of, unseated};
use cats_engine::ca::Ca;
use cats_engine::hash::{place_of_hash, Hash, Position, View, PLAIN, WITH_CELLS};
use cats_engine::{
    ca, hash_of, Between, Engine, Entry, Locked, Mark, Marked, Numbered, OrderedEngine, OrderedSchema, Origin, Range,
    Schema, Step, Trail,
};
use cats_sync::epoch::Guard;
use cats_sync::events::Events;
use cats_sync::Busy;
use cats_term::TermRef;

/// A hash table of up to this number of buckets probably fits the caches, with its objects.
const CACHED_BUCKETS: usize = 1024;
/// The same for a tree whose nodes have this number of bytes.
const CACHED_BYTES: usize = 160 << 10;

/// Where a call of [`approach`](InlineEngine::approach) came to, for engines in which finding it again takes long.
#[derive(Clone, Copy)]
pub struct Spot<'g>(Option<ca::Spot<'g>>);

impl Spot<'_> {
    pub const NOWHERE: Self = Self(None);
}

/// How an engine looks into the keys of tables.
pub trait Keyed {
    type Schema: Schema<Probe = Probe<'static>>;
}

/// An engine that a store has inline, with leases or without.
pub trait InlineEngine: Keyed + Either + Marked<<Self as Keyed>::Schema> {
    /// By which an object is found again that has a lease.
    type Item: KeyItem;
    /// Whether keys are ordered.
    const ORDERED: bool;
    /// Whether there are cells.
    const SEATED: bool = false;

    /// What rarely happens to the engine.
    fn events(&self) -> &Events;
    /// See [`Store::outgrows_caches`](super::Store::outgrows_caches).
    fn outgrows_caches(&self) -> bool;
    /// See [`Hash::keep_within`].
    fn keep_within(&self, _bytes: usize) {}
    /// See [`Handle::announce`](crate::Handle::announce).
    fn announce(&self, _guard: &Guard, _key: u64) {}
    /// See [`Store::approach`](super::Store::approach).
    fn approach<'g>(&self, guard: &'g Guard, probe: &Probe<'static>) -> Spot<'g>;
    /// See [`Store::prefetch_object`](super::Store::prefetch_object).
    fn prefetch_object(&self, guard: &Guard, probe: &Probe<'static>, spot: Spot<'_>);
    /// False if it is known without a search that there is no entry of this key.
    fn may_have(&self, _guard: &Guard, _probe: &Probe<'static>) -> bool {
        true
    }
    /// Goes to the next entry, or to the one before if `down`. In an unordered engine both are the same, as in ETS.
    fn step<R>(
        &self,
        guard: &Guard,
        from: Option<&Probe<'static>>,
        trail: &mut Trail,
        down: bool,
        look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy>;
    /// See [`Engine::scan`]. Any number is a valid position, 0 the first one. Finds nothing in an ordered engine.
    fn scan_from<T>(
        &self,
        _guard: &Guard,
        _position: &mut u64,
        _limit: usize,
        _out: &mut Vec<T>,
        _expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy> {
        Ok(false)
    }
    /// See [`OrderedEngine::range`]. Finds nothing in an unordered engine.
    fn range<T>(
        &self,
        _guard: &Guard,
        _range: Range<'_, Probe<'static>>,
        _limit: usize,
        _out: &mut Vec<T>,
        _expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy> {
        Ok(false)
    }
    /// See [`Ca::range_marked`]. Finds nothing in an unordered engine.
    fn range_marked<'g, T>(
        &self,
        _guard: &'g Guard,
        _range: Range<'_, Probe<'static>>,
        _limit: usize,
        _out: &mut Vec<T>,
        _marks: &mut Vec<Mark<'g>>,
        _expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy> {
        Ok(false)
    }
    /// See [`Ca::count_between`]. Counts nothing in an unordered engine.
    fn count_between(
        &self,
        _guard: &Guard,
        _between: Between<'_, Probe<'static>>,
        _limit: usize,
    ) -> Result<usize, Failure> {
        Ok(0)
    }
    /// See [`Ca::find_nth`]. Finds nothing in an unordered engine.
    fn find_nth<T>(
        &self,
        _guard: &Guard,
        _place: (usize, bool),
        _limit: usize,
        _out: &mut Vec<T>,
        _expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<(), Failure> {
        Ok(())
    }
    /// The number of base nodes, or 0.
    fn base_nodes(&self) -> usize {
        0
    }
    /// Makes the engine smaller, until it takes at most so many bytes. Ends after a bounded time in any case. Fails if other threads were in
    /// the way.
    fn trim(&self, guard: &Guard, most: usize) -> Result<(), Busy>;

    /// The entry of an item.
    fn find(&self, guard: &Guard, item: &Self::Item) -> Result<Option<Entry>, Busy>;
    /// Runs a change of the entry of an item. It keeps the entry or removes it.
    fn update_found(
        &self,
        guard: &Guard,
        item: &Self::Item,
        change: &mut dyn FnMut(Option<Entry>) -> Step,
    ) -> Result<(), Busy>;
    /// Calls `f` with the keys of the entries of an item that are `wanted`. The key of an object is at position `key`. `found` is room.
    fn each_key(
        &self,
        guard: &Guard,
        item: &Self::Item,
        key: usize,
        found: &mut Vec<Entry>,
        wanted: impl Fn(Entry) -> bool,
        f: impl FnMut(&Probe<'static>) -> Result<(), Busy>,
    ) -> Result<(), Busy>;
    /// Prefetches what [`each_key`](Self::each_key) reads first, if that is not behind other misses.
    fn prefetch_keys(&self, _guard: &Guard, _item: &Self::Item) {}
    /// Prefetches what [`update_found`](Self::update_found) reads: early the place, later the object.
    fn prefetch_found(&self, guard: &Guard, item: &Self::Item, early: bool);
}

/// The default engine of a store, with leases or without. It also shows what has expired.
#[derive(Clone, Copy)]
pub enum DefaultEngine<'s> {
    Hash(&'s Hash<Exact>),
    Ca(&'s Ca<Ordered>),
    SeatedHash(&'s SeatedHash),
    SeatedCa(&'s SeatedCa),
}

/// The engines of contents with leases, unless objects may have an own end: there is a lease beside each entry.
pub type SeatedHash = Hash<Seated<Exact>, WITH_CELLS>;
pub type SeatedCa = Ca<Seated<Ordered>>;

/// Calls a method of a `hash`. `None` for another engine.
macro_rules! hash {
    ($self:expr, $engine:ident => $call:expr) => {
        match $self {
            DefaultEngine::Hash($engine) => Some($call),
            DefaultEngine::SeatedHash($engine) => Some($call),
            DefaultEngine::Ca(_) | DefaultEngine::SeatedCa(_) => None,
        }
    };
}

/// The same of a `ca`.
macro_rules! ca {
    ($self:expr, $engine:ident => $call:expr) => {
        match $self {
            DefaultEngine::Ca($engine) => Some($call),
            DefaultEngine::SeatedCa($engine) => Some($call),
            DefaultEngine::Hash(_) | DefaultEngine::SeatedHash(_) => None,
        }
    };
}

/// Calls a method of the engine.
macro_rules! default {
    ($self:expr, $engine:ident => $call:expr) => {
        match $self {
            DefaultEngine::Hash($engine) => $call,
            DefaultEngine::Ca($engine) => $call,
            DefaultEngine::SeatedHash($engine) => $call,
            DefaultEngine::SeatedCa($engine) => $call,
        }
    };
}

impl DefaultEngine<'_> {
    #[inline(always)]
    pub fn is_ordered(self) -> bool {
        matches!(self, Self::Ca(_) | Self::SeatedCa(_))
    }

    /// See [`Engine::read`].
    #[inline(always)]
    pub fn read<R>(self, guard: &Guard, probe: &Probe<'_>, look: impl FnMut(Option<Entry>) -> R) -> Result<R, Busy> {
        default!(self, engine => engine.read(guard, probe.erase(), look))
    }

    /// See [`Marked::read_marked`].
    pub fn read_marked<'g, R>(
        self,
        guard: &'g Guard,
        probe: &Probe<'_>,
        look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<(R, Mark<'g>), Busy> {
        default!(self, engine => engine.read_marked(guard, probe.erase(), look))
    }

    /// See [`Engine::update`].
    #[inline(always)]
    pub fn update<R>(
        self,
        guard: &Guard,
        probe: &Probe<'static>,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        default!(self, engine => engine.update(guard, probe, change))
    }

    /// See [`Engine::update_present`].
    #[inline(always)]
    pub fn update_present<R: Default>(
        self,
        guard: &Guard,
        probe: &Probe<'static>,
        change: impl FnOnce(Entry) -> (Step, R),
    ) -> Result<R, Busy> {
        default!(self, engine => engine.update_present(guard, probe, change))
    }

    /// See [`Engine::update_many`].
    #[inline(always)]
    pub fn update_many<R>(
        self,
        guard: &Guard,
        probes: &[&Probe<'static>],
        change: impl FnOnce(&mut dyn Locked) -> R,
    ) -> Result<R, Busy> {
        default!(self, engine => engine.update_many(guard, probes, change))
    }

    /// See [`InlineEngine::step`].
    #[inline(always)]
    pub fn step<R>(
        self,
        guard: &Guard,
        from: Option<&Probe<'static>>,
        trail: &mut Trail,
        down: bool,
        look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        default!(self, engine => engine.step(guard, from, trail, down, look))
    }

    /// See [`Engine::follow`].
    #[inline(always)]
    pub fn follow<R>(
        self,
        guard: &Guard,
        trail: &mut Trail,
        down: bool,
        is_here: impl Fn(Origin) -> bool,
        look: impl FnMut(Option<Entry>) -> R,
    ) -> Option<R> {
        default!(self, engine => engine.follow(guard, trail, down, is_here, look))
    }

    /// See [`InlineEngine::scan_from`].
    #[inline(always)]
    pub fn scan<T>(
        self,
        guard: &Guard,
        position: &mut u64,
        limit: usize,
        out: &mut Vec<T>,
        expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy> {
        default!(self, engine => engine.scan_from(guard, position, limit, out, expand))
    }

    /// See [`InlineEngine::range`].
    #[inline(always)]
    pub fn range<T>(
        self,
        guard: &Guard,
        range: Range<'_, Probe<'static>>,
        limit: usize,
        out: &mut Vec<T>,
        expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy> {
        default!(self, engine => InlineEngine::range(engine, guard, range, limit, out, expand))
    }

    /// See [`InlineEngine::range_marked`].
    pub fn range_marked<'g, T>(
        self,
        guard: &'g Guard,
        range: Range<'_, Probe<'_>>,
        limit: usize,
        out: &mut Vec<T>,
        marks: &mut Vec<Mark<'g>>,
        expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy> {
        let range = erased(range);
        default!(self, engine => InlineEngine::range_marked(engine, guard, range, limit, out, marks, expand))
    }

    /// See [`InlineEngine::announce`].
    pub fn announce(self, guard: &Guard, key: u64) {
        default!(self, engine => engine.announce(guard, key));
    }

    /// See [`Hash::number`]. 0 for another engine.
    pub fn number(self, probe: &Probe<'_>) -> usize {
        hash!(self, engine => engine.number(probe.erase())).unwrap_or(0)
    }

    /// The number of buckets of a `hash`.
    pub fn buckets(self) -> Option<usize> {
        hash!(self, engine => engine.buckets())
    }

    /// See [`Hash::view`]. Nothing for another engine.
    pub fn view_buckets(
        self,
        guard: &Guard,
        first: usize,
        amount: (usize, usize),
        strips: usize,
        view: &mut View,
    ) -> Option<usize> {
        hash!(self, engine => engine.view(guard, first, amount, strips, view))?
    }

    /// See [`Ca::view`]. Shows the entries whose keys have hashes that are wanted. Nothing for another engine.
    pub fn view_tree<'g>(
        self,
        guard: &'g Guard,
        from: Option<&Probe<'_>>,
        amount: (usize, usize),
        wanted: Option<&dyn Fn(u64) -> bool>,
        show: impl FnMut(ca::Sight<'g, OwnedKey>),
    ) -> Result<Option<&'g OwnedKey>, Busy> {
        let from = from.map(Probe::erase);
        let is_wanted = |entry: Entry| wanted.is_some_and(|wanted| wanted(hash_of(entry.key)));
        // SAFETY: engines show entries under the guard.
        let look = |entry: Entry| is_wanted(entry).then(|| unsafe { unseated(entry) });
        let look = wanted.is_some().then_some(&look as &dyn Fn(Entry) -> Option<Entry>);
        ca!(self, engine => engine.view(guard, from, amount, look, show)).unwrap_or(Ok(None))
    }

    /// An entry of a `hash` whose key has this hash.
    pub fn entry_of_hash(self, guard: &Guard, hash: u64) -> Result<Option<Entry>, Busy> {
        // SAFETY: engines show entries under the guard.
        let look = |entry: Entry| (hash_of(entry.key) == hash).then(|| unsafe { unseated(entry) });
        hash!(self, engine => engine.find_at(guard, place_of_hash(hash), look)).unwrap_or(Ok(None))
    }

    /// Prefetches what a call with this key will read.
    pub fn prefetch(self, guard: &Guard, probe: &Probe<'static>) {
        default!(self, engine => {
            let spot = engine.approach(guard, probe);
            InlineEngine::prefetch_object(engine, guard, probe, spot);
        });
    }
}

/// The range with probes of any lifetime.
pub fn erased<'a>(range: Range<'a, Probe<'_>>) -> Range<'a, Probe<'static>> {
    Range {
        from: range.from.map(|(probe, inclusive)| (probe.erase(), inclusive)),
        to: range.to.map(|probe| probe.erase()),
        down: range.down,
    }
}

impl Keyed for Hash<Exact> {
    type Schema = Exact;
}

impl Keyed for Ca<Ordered> {
    type Schema = Ordered;
}

impl Keyed for SeatedHash {
    type Schema = Seated<Exact>;
}

impl Keyed for SeatedCa {
    type Schema = Seated<Ordered>;
}

/// An engine that is one of the default ones.
pub trait Either {
    /// The engine as that.
    fn either(&self) -> DefaultEngine<'_>;
}

impl Either for Hash<Exact> {
    #[inline(always)]
    fn either(&self) -> DefaultEngine<'_> {
        DefaultEngine::Hash(self)
    }
}

impl Either for SeatedHash {
    #[inline(always)]
    fn either(&self) -> DefaultEngine<'_> {
        DefaultEngine::SeatedHash(self)
    }
}

impl Either for Ca<Ordered> {
    #[inline(always)]
    fn either(&self) -> DefaultEngine<'_> {
        DefaultEngine::Ca(self)
    }
}

impl Either for SeatedCa {
    #[inline(always)]
    fn either(&self) -> DefaultEngine<'_> {
        DefaultEngine::SeatedCa(self)
    }
}

/// The place of an item in the order of walks.
fn place_of_item(item: u32) -> u64 {
    u64::from(item) << 32
}

impl<S, const WORDS: usize> InlineEngine for Hash<S, WORDS>
where
    S: Schema<Probe = Probe<'static>>,
    Self: Keyed<Schema = S> + Either,
{
    type Item = u32;
    const ORDERED: bool = false;
    const SEATED: bool = WORDS != PLAIN;

    #[inline]
    fn events(&self) -> &Events {
        self.events()
    }

    #[inline]
    fn outgrows_caches(&self) -> bool {
        self.buckets() > CACHED_BUCKETS
    }

    fn keep_within(&self, bytes: usize) {
        self.keep_within(bytes);
    }

    #[inline]
    fn announce(&self, guard: &Guard, key: u64) {
        if self.outgrows_caches() {
            self.prefetch(guard, Probe::exact(TermRef::immediate(key)).erase());
        }
    }

    #[inline]
    fn approach<'g>(&self, guard: &'g Guard, probe: &Probe<'static>) -> Spot<'g> {
        self.prefetch(guard, probe);
        Spot::NOWHERE
    }

    #[inline]
    fn prefetch_object(&self, guard: &Guard, probe: &Probe<'static>, _spot: Spot<'_>) {
        self.prefetch_object(guard, probe);
    }

    #[inline]
    fn may_have(&self, guard: &Guard, probe: &Probe<'static>) -> bool {
        self.may_have(guard, probe)
    }

    #[inline(always)]
    fn step<R>(
        &self,
        guard: &Guard,
        from: Option<&Probe<'static>>,
        trail: &mut Trail,
        _down: bool,
        look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        self.next_on(guard, from, trail, look)
    }

    #[inline(always)]
    fn scan_from<T>(
        &self,
        guard: &Guard,
        position: &mut u64,
        limit: usize,
        out: &mut Vec<T>,
        expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy> {
        let mut cursor = Position::of_number(*position);
        let more = self.scan(guard, &mut cursor, limit, out, expand)?;
        *position = cursor.number();
        Ok(more)
    }

    fn trim(&self, guard: &Guard, most: usize) -> Result<(), Busy> {
        self.trim(guard, most)
    }

    fn find(&self, guard: &Guard, item: &u32) -> Result<Option<Entry>, Busy> {
        // SAFETY: engines show entries under the guard.
        let look = |entry: Entry| (place_item(entry.key) == *item).then(|| unsafe { unseated(entry) });
        self.find_at(guard, place_of_item(*item), look)
    }

    fn update_found(
        &self,
        guard: &Guard,
        item: &u32,
        change: &mut dyn FnMut(Option<Entry>) -> Step,
    ) -> Result<(), Busy> {
        let is_it = |entry: Entry| place_item(entry.key) == *item;
        self.update_at(guard, place_of_item(*item), is_it, |old| (change(old), ()))
    }

    fn each_key(
        &self,
        guard: &Guard,
        item: &u32,
        key: usize,
        found: &mut Vec<Entry>,
        wanted: impl Fn(Entry) -> bool,
        mut f: impl FnMut(&Probe<'static>) -> Result<(), Busy>,
    ) -> Result<(), Busy> {
        found.clear();
        self.entries_at(guard, place_of_item(*item), found, |entry, found| {
            if place_item(entry.key) == *item && wanted(entry) {
                // SAFETY: engines show entries under the guard.
                found.push(unsafe { unseated(entry) });
            }
        })?;
        found.iter().try_for_each(|entry| {
            // SAFETY: the engine has validated the entry, and objects are retired through the epoch.
            let probe = unsafe { Probe::stored(*entry, key) };
            probe.map_or(Ok(()), |probe| f(probe.erase()))
        })
    }

    fn prefetch_keys(&self, guard: &Guard, item: &u32) {
        self.prefetch_at(guard, place_of_item(*item));
    }

    fn prefetch_found(&self, guard: &Guard, item: &u32, early: bool) {
        if early {
            self.prefetch_at(guard, place_of_item(*item));
        } else if Self::SEATED {
            // The lease has come with the place.
        } else if let Ok(Some(entry)) = self.find(guard, item) {
            // SAFETY: the object lives under the guard, and has a lease.
            cats_sync::prefetch(unsafe { lease_of(entry.body) });
        }
    }
}

impl<S> InlineEngine for Ca<S>
where
    S: OrderedSchema<Probe = Probe<'static>>,
    Self: Keyed<Schema = S> + Either,
{
    type Item = CopiedKey;
    const ORDERED: bool = true;
    const SEATED: bool = S::CELLS;

    #[inline]
    fn events(&self) -> &Events {
        self.events()
    }

    #[inline]
    fn outgrows_caches(&self) -> bool {
        self.bytes() > CACHED_BYTES
    }

    #[inline]
    fn approach<'g>(&self, guard: &'g Guard, probe: &Probe<'static>) -> Spot<'g> {
        Spot(Some(self.prefetch(guard, probe)))
    }

    #[inline]
    fn prefetch_object(&self, _guard: &Guard, probe: &Probe<'static>, spot: Spot<'_>) {
        if let Some(spot) = spot.0 {
            self.prefetch_object(probe, spot);
        }
    }

    #[inline(always)]
    fn step<R>(
        &self,
        guard: &Guard,
        from: Option<&Probe<'static>>,
        trail: &mut Trail,
        down: bool,
        look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        match down {
            true => self.prev_on(guard, from, trail, look),
            false => self.next_on(guard, from, trail, look),
        }
    }

    #[inline(always)]
    fn range<T>(
        &self,
        guard: &Guard,
        range: Range<'_, Probe<'static>>,
        limit: usize,
        out: &mut Vec<T>,
        expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy> {
        OrderedEngine::range(self, guard, range, limit, out, expand)
    }

    fn range_marked<'g, T>(
        &self,
        guard: &'g Guard,
        range: Range<'_, Probe<'static>>,
        limit: usize,
        out: &mut Vec<T>,
        marks: &mut Vec<Mark<'g>>,
        expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy> {
        self.range_marked(guard, range, limit, out, marks, expand)
    }

    fn count_between(
        &self,
        guard: &Guard,
        between: Between<'_, Probe<'static>>,
        limit: usize,
    ) -> Result<usize, Failure> {
        Ok(self.count_between(guard, between, limit)?)
    }

    fn find_nth<T>(
        &self,
        guard: &Guard,
        place: (usize, bool),
        limit: usize,
        out: &mut Vec<T>,
        expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<(), Failure> {
        Ok(self.find_nth(guard, place, limit, out, expand)?)
    }

    fn base_nodes(&self) -> usize {
        OrderedEngine::base_nodes(self)
    }

    fn trim(&self, guard: &Guard, most: usize) -> Result<(), Busy> {
        self.trim(guard, most)
    }

    fn find(&self, guard: &Guard, item: &CopiedKey) -> Result<Option<Entry>, Busy> {
        // SAFETY: engines show entries under the guard.
        let look = |entry: Option<Entry>| entry.map(|entry| unsafe { unseated(entry) });
        item.with_probe(|probe| self.read(guard, probe, look))
    }

    fn update_found(
        &self,
        guard: &Guard,
        item: &CopiedKey,
        change: &mut dyn FnMut(Option<Entry>) -> Step,
    ) -> Result<(), Busy> {
        item.with_probe(|probe| self.update_present(guard, probe, |entry| (change(Some(entry)), ())))
    }

    fn each_key(
        &self,
        _guard: &Guard,
        item: &CopiedKey,
        _key: usize,
        _found: &mut Vec<Entry>,
        _wanted: impl Fn(Entry) -> bool,
        f: impl FnMut(&Probe<'static>) -> Result<(), Busy>,
    ) -> Result<(), Busy> {
        item.with_probe(f)
    }

    fn prefetch_found(&self, guard: &Guard, item: &CopiedKey, early: bool) {
        item.with_probe(|probe| {
            let spot = self.approach(guard, probe);
            if !early {
                InlineEngine::prefetch_object(self, guard, probe, spot);
            }
        });
    }
}
