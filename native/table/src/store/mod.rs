//! The contents of a table: an engine and counters. `delete_all_objects` replaces them as a whole.

mod books;
mod change;
#[cfg(feature = "compared")]
mod compared;
mod content;
pub mod due;
pub(crate) mod engine;
mod expired;
mod items;
mod leased;
pub(crate) mod leases;
pub(crate) mod limited;
pub(crate) mod other;
mod plain;
pub(crate) mod retire;
pub(crate) mod setup;
mod watched;

use crate::engines::EngineName;
use crate::evict::account::{Limit, Unit};
use crate::evict::allowance::is_small;
use crate::evict::policies::Policy;
use crate::expiry::notices::Notices;
use crate::failure::Failure;
use crate::flights::Flights;
use crate::history::History;
use crate::object::group::free_entry;
use crate::object::schema::{Exact, Ordered, Probe, Seated};
use crate::object::{unseated, ObjectRef};
use crate::write_log::{Actor, WriteLog};
use books::Books;
use cats_engine::ca::{Ca, Thresholds};
use cats_engine::hash::Hash;
use cats_engine::{Between, Engine, Entry, Locked, Origin, Range, Step, Trail};
#[cfg(feature = "compared")]
use cats_papers::detaching::Detaching;
use cats_sync::epoch::Guard;
use cats_sync::events::{Event, Events, COUNTERS};
use cats_sync::recorder::Recorder;
use cats_sync::stripes::Stripes;
use cats_sync::Busy;
use change::Alone;
use engine::{erased, DefaultEngine, Either, InlineEngine, SeatedCa, SeatedHash, Spot};
use leased::{Leased, LeasedEngine};
use leases::{lives, Leases, Life};
use limited::Planned;
use other::{Boxed, Frozen, Other};
use setup::{is_seated, Setup};
use std::ptr;
use std::sync::{Arc, OnceLock};

pub(crate) use content::Content;
pub use content::{Unused, Use, Used};
pub(crate) use plain::Plain;

/// The default engines are stored inline: a store is one allocation. All others are behind virtual functions.
enum Stock {
    Hash(Hash<Exact>),
    Ca(Ca<Ordered>),
    Far(Far),
}

/// What costs plain tables no more than a branch that is not taken.
#[allow(clippy::large_enum_variant)]
enum Far {
    SeatedHash(LeasedEngine<SeatedHash>),
    SeatedCa(LeasedEngine<SeatedCa>),
    LeasedHash(LeasedEngine<Hash<Exact>>),
    LeasedCa(LeasedEngine<Ca<Ordered>>),
    Boxed(Box<dyn Other>),
}

/// See the module's documentation.
pub struct Store {
    stock: Stock,
    books: Books,
    /// `None`: with the defaults.
    setup: Option<Box<Setup>>,
}

#[cfg(debug_assertions)]
impl Drop for Store {
    /// The reaper would find memory that is free.
    fn drop(&mut self) {
        assert!(!due::is_entered(self), "contents are freed that the reaper finds");
    }
}

/// These stand in place of the words of an entry. No entry has the key word 0.
const NO_ENTRY: (u64, u64) = (0, 0);
const BUSY: (u64, u64) = (0, 1);

/// Whether this build has an engine of this name.
pub const fn is_built(name: EngineName) -> bool {
    cfg!(feature = "compared") || matches!(name, EngineName::Hash | EngineName::Ca)
}

/// Calls a method of the [content](Content) of a store: inline if that is plain, otherwise [apart].
macro_rules! content {
    ($store:expr, $content:ident => $call:expr) => {{
        let books = &$store.books;
        match $store.near() {
            Ok($content) => $call,
            Err(far) => apart(move || far!(far, books, $content => $call)),
        }
    }};
}

/// The same of a content that is not plain.
macro_rules! far {
    ($far:expr, $books:ident, $content:ident => $call:expr) => {
        match $far {
            Far::SeatedHash(owner) => {
                let $content = Leased { owner, books: $books };
                $call
            }
            Far::SeatedCa(owner) => {
                let $content = Leased { owner, books: $books };
                $call
            }
            Far::LeasedHash(owner) => {
                let $content = Leased { owner, books: $books };
                $call
            }
            Far::LeasedCa(owner) => {
                let $content = Leased { owner, books: $books };
                $call
            }
            Far::Boxed(engine) => {
                let $content = Boxed {
                    engine: &**engine,
                    books: $books,
                };
                $call
            }
        }
    };
}

/// Calls a method of the engine of a store, which does not ask for leases.
macro_rules! engine {
    ($store:expr, $engine:ident => $call:expr, $other:pat => $otherwise:expr) => {
        match &$store.stock {
            Stock::Hash($engine) | Stock::Far(Far::LeasedHash(LeasedEngine { engine: $engine, .. })) => $call,
            Stock::Far(Far::SeatedHash(LeasedEngine { engine: $engine, .. })) => $call,
            Stock::Far(Far::SeatedCa(LeasedEngine { engine: $engine, .. })) => $call,
            Stock::Ca($engine) | Stock::Far(Far::LeasedCa(LeasedEngine { engine: $engine, .. })) => $call,
            Stock::Far(Far::Boxed($other)) => $otherwise,
        }
    };
}

/// Calls a method of the content of a store with leases. `None` if there are none.
macro_rules! leased {
    ($store:expr, $content:ident => $call:expr) => {
        match &$store.stock {
            Stock::Far(Far::SeatedHash(owner)) => {
                let $content = Leased {
                    owner,
                    books: &$store.books,
                };
                Some($call)
            }
            Stock::Far(Far::SeatedCa(owner)) => {
                let $content = Leased {
                    owner,
                    books: &$store.books,
                };
                Some($call)
            }
            Stock::Far(Far::LeasedHash(owner)) => {
                let $content = Leased {
                    owner,
                    books: &$store.books,
                };
                Some($call)
            }
            Stock::Far(Far::LeasedCa(owner)) => {
                let $content = Leased {
                    owner,
                    books: &$store.books,
                };
                Some($call)
            }
            _ => None,
        }
    };
}

/// Lets an engine take no more bytes than its contents may have, if they are limited.
fn keep_within<E: InlineEngine>(engine: &E, leases: &Leases<E::Item>) {
    if let Some(bytes) = leases.limits().and_then(|limits| limits.bucket_bytes()) {
        engine.keep_within(bytes);
    }
}

/// Calls a function that is not inlined. What it needs is moved there, so that only this way has it in memory.
#[inline(never)]
fn apart<R>(call: impl FnOnce() -> R) -> R {
    call()
}

impl Store {
    /// An empty store. The key of its objects is at position `key`, counted from 0. `shared` says that many processes may write at the same
    /// time. Without a setup the engine is built with its defaults. `None` when memory is exhausted, or if this build
    /// [lacks](is_built) the engine.
    pub fn new(name: EngineName, setup: Option<Box<Setup>>, key: usize, shared: bool) -> Option<Self> {
        let config = setup.as_ref().map(|setup| &setup.config);
        let thresholds = config.map_or_else(Thresholds::default, |config| config.thresholds());
        let (expiry, limit) = setup.as_ref().map_or((None, None), |setup| (setup.expiry, setup.limit));
        let is_leased = expiry.is_some() || limit.is_some();
        let (seated, small) = (is_seated(expiry), is_small(limit));
        let stock = match (name, is_leased) {
            (EngineName::Hash, false) => Stock::Hash(Hash::new(Exact::new(key))?),
            (EngineName::Ca, false) => Stock::Ca(Ca::with_thresholds(Ordered::new(key), thresholds)),
            (EngineName::Hash, true) if seated => {
                let leases = Box::new(Leases::new(expiry, limit, key, (false, true), shared));
                let engine = Hash::new(Seated(Exact::new(key)))?;
                keep_within(&engine, &leases);
                Stock::Far(Far::SeatedHash(LeasedEngine { engine, leases }))
            }
            (EngineName::Hash, true) => {
                let leases = Box::new(Leases::new(expiry, limit, key, (false, false), shared));
                let engine = Hash::new(Exact::new(key))?;
                keep_within(&engine, &leases);
                Stock::Far(Far::LeasedHash(LeasedEngine { engine, leases }))
            }
            (EngineName::Ca, true) => {
                let leases = Box::new(Leases::new(expiry, limit, key, (true, seated), shared));
                // A split of a base node takes more bytes than its objects pay for.
                let thresholds = if small { Thresholds::NEVER } else { thresholds };
                Stock::Far(match seated {
                    true => Far::SeatedCa(LeasedEngine {
                        engine: Ca::with_thresholds(Seated(Ordered::new(key)), thresholds),
                        leases,
                    }),
                    false => Far::LeasedCa(LeasedEngine {
                        engine: Ca::with_thresholds(Ordered::new(key), thresholds),
                        leases,
                    }),
                })
            }
            #[cfg(feature = "compared")]
            (other, _) => Stock::Far(Far::Boxed(compared::make(other, config, key)?)),
            #[cfg(not(feature = "compared"))]
            _ => return None,
        };
        let striped = shared && !small;
        let counters = if striped { Stripes::striped() } else { Stripes::new() };
        let store = Self {
            stock,
            books: Books::new(counters),
            setup,
        };
        if let Some(events) = store.events().filter(|_| small) {
            events.make_small()?;
        }
        Some(store)
    }

    /// The contents of a snapshot.
    pub fn of_snapshot(snapshot: Box<dyn Other>) -> Self {
        Self {
            stock: Stock::Far(Far::Boxed(snapshot)),
            books: Books::new(Stripes::new()),
            setup: None,
        }
    }

    /// The snapshot whose contents these are.
    #[inline]
    pub fn snapshot(&self) -> Option<&dyn Frozen> {
        engine!(self, _engine => None, other => other.snapshot())
    }

    #[inline]
    pub fn history(&self) -> &History {
        &self.books.history
    }

    pub(crate) fn flights(&self) -> &Flights {
        &self.books.flights
    }

    pub(crate) fn log(&self) -> &WriteLog {
        &self.books.log
    }

    /// The contents that all blank tables with this default engine share. They are empty and are only read. So the position of the key
    /// makes no difference.
    #[inline]
    pub fn blank(engine: EngineName) -> Option<&'static Self> {
        static BLANK: [OnceLock<Store>; 2] = [const { OnceLock::new() }; 2];
        debug_assert!(matches!(engine, EngineName::Hash | EngineName::Ca));
        let blank = &BLANK[usize::from(engine == EngineName::Ca)];
        if blank.get().is_none() {
            // A failure for lack of memory must not be remembered.
            let store = Self::new(engine, None, 0, false)?;
            return Some(blank.get_or_init(|| store));
        }
        blank.get()
    }

    /// Whether these are the contents that blank tables share.
    fn is_blank(&self) -> bool {
        let is_self = |engine| Self::blank(engine).is_some_and(|blank| ptr::eq(blank, self));
        is_self(EngineName::Hash) || is_self(EngineName::Ca)
    }

    /// The default engine, if the store has one.
    #[inline]
    pub fn default_engine(&self) -> Option<DefaultEngine<'_>> {
        engine!(self, engine => Some(engine.either()), _ => None)
    }

    /// The contents, for a change, if they have a default engine and no leases.
    #[inline(always)]
    pub fn plain(&self) -> Option<Plain<'_>> {
        debug_assert!(!self.is_blank());
        self.near().ok()
    }

    /// The contents if they are plain, otherwise what there is.
    #[inline(always)]
    fn near(&self) -> Result<Plain<'_>, &Far> {
        let engine = match &self.stock {
            Stock::Hash(engine) => engine.either(),
            Stock::Ca(engine) => engine.either(),
            Stock::Far(far) => return Err(far),
        };
        let books = &self.books;
        Ok(Plain { engine, books })
    }

    /// The engine, if it carries out steps for which the caller does not wait.
    #[cfg(feature = "compared")]
    #[inline]
    pub fn detaching(&self) -> Option<&dyn Detaching> {
        match self.books.history.is_awaited() {
            // Nobody would see when such a write takes effect, and end the key's flight then.
            true => None,
            false => engine!(self, _engine => None, other => other.detaching()),
        }
    }

    /// The address of the engine, as the probes of the engines tell it.
    pub fn engine_address(&self) -> *const u8 {
        engine!(self, engine => ptr::from_ref(engine).cast(), other => ptr::from_ref(&**other).cast())
    }

    /// By which a trace knows the contents, 0 for those of a snapshot or of all blank tables.
    pub fn trace_address(&self) -> u64 {
        self.events().filter(|_| !self.is_blank()).map_or(0, Events::address)
    }

    /// What rarely happens to the contents. `None` for those of a snapshot.
    fn events(&self) -> Option<&Events> {
        engine!(self, engine => Some(engine.events()), other => other.events())
    }

    /// What happened to an engine that can be recorded. `None` for others.
    pub fn recordable(&self) -> Option<&Events> {
        engine!(self, engine => Some(engine.events()), _ => None)
    }

    /// The recorder of the contents.
    pub fn recorder(&self) -> Option<&Recorder> {
        self.recordable()?.recorder()
    }

    /// Counts an event, unless the contents are those of a snapshot or of all blank tables.
    #[cold]
    pub fn count_event(&self, event: Event, times: usize) {
        if let (Some(events), false) = (self.events(), self.is_blank()) {
            events.count(event, times);
        }
    }

    /// How often each event happened: see [`Events::sums`].
    pub fn event_sums(&self) -> [u64; COUNTERS] {
        self.events().map_or([0; COUNTERS], Events::sums)
    }

    /// Counts what other contents have counted.
    pub fn absorb_events(&self, other: &Self) {
        if let (Some(events), Some(others)) = (self.events(), other.events()) {
            events.absorb(others);
        }
    }

    /// With what contents like these are made. `None`: with the defaults.
    pub fn setup(&self) -> Option<Setup> {
        let mut setup = self.setup.as_deref()?.clone();
        if let Some(expiry) = setup.expiry.as_mut() {
            expiry.ttl = leased!(self, content => content.owner.leases.ttl())?;
        }
        setup.limit = self.limit();
        Some(setup)
    }

    /// The limit of the contents.
    pub fn limit(&self) -> Option<Limit> {
        leased!(self, content => content.owner.leases.limits().map(|limits| limits.limit()))?
    }

    /// What is taken of the limit.
    pub fn taken(&self) -> Option<u64> {
        leased!(self, content => content.owner.leases.limits().map(|limits| limits.taken()))?
    }

    /// Whether the contents may have this limit in place of the one that they have.
    pub fn may_become(&self, unit: Unit, number: u64) -> bool {
        leased!(self, content => content.may_become(unit, number)).unwrap_or(false)
    }

    /// Whether objects may be evicted by this policy.
    pub fn may_evict_by(&self, policy: Option<Policy>) -> bool {
        let may = leased!(self, content => content.owner.leases.limits().map(|limits| limits.may_evict_by(policy)));
        may.flatten().unwrap_or(false)
    }

    /// Objects that are written from now on live for so many milliseconds. The caller holds the lock for the table.
    pub fn set_ttl(&self, ttl: u64) {
        leased!(self, content => content.owner.leases.set_ttl(ttl));
    }

    /// Objects are evicted by this policy from now on. The caller holds the lock for the table.
    pub fn set_policy(&self, policy: Option<Policy>) {
        leased!(self, content => content.set_policy(policy));
    }

    /// Gives the contents a limit of another number, step by step.
    pub fn set_limit(&self, guard: &Guard, number: u64, alone: Alone<'_>) -> Result<(), Failure> {
        leased!(self, content => content.set_limit(guard, number, alone)).unwrap_or(Ok(()))
    }

    /// Gives up so many objects, if the contents have a limit at which they evict.
    pub fn shed(&self, guard: &Guard, objects: usize) -> usize {
        leased!(self, content => content.shed(guard, objects)).unwrap_or(0)
    }

    /// Counts objects and bytes that were added or removed. The caller holds the lock of their place.
    #[inline]
    pub fn count(&self, objects: i64, bytes: i64) {
        self.books.count(objects, bytes);
    }

    /// The number of objects at one instant.
    pub fn size(&self) -> usize {
        self.books.size()
    }

    /// Whether keys are ordered.
    #[inline]
    pub fn is_ordered(&self) -> bool {
        engine!(self, engine => engine.either().is_ordered(), other => other.is_ordered())
    }

    /// Whether the store is so large that a call's reads probably miss the caches. Found out without a search.
    #[inline]
    pub fn outgrows_caches(&self) -> bool {
        engine!(self, engine => engine.outgrows_caches(), _ => false)
    }

    /// See [`Handle::announce`](crate::Handle::announce).
    #[inline]
    pub fn announce(&self, guard: &Guard, key: u64) {
        engine!(self, engine => engine.announce(guard, key), _ => ());
    }

    /// Goes to where a call with this key will go, and prefetches what the call will read there.
    #[inline]
    pub fn approach<'g>(&self, guard: &'g Guard, probe: &Probe<'_>) -> Spot<'g> {
        engine!(self, engine => engine.approach(guard, probe.erase()), _ => Spot::NOWHERE)
    }

    /// Prefetches the key's object. To be called when the lines that `approach` requested have arrived.
    #[inline]
    pub fn prefetch_object<'g>(&self, guard: &'g Guard, probe: &Probe<'_>, spot: Spot<'g>) {
        engine!(self, engine => InlineEngine::prefetch_object(engine, guard, probe.erase(), spot), _ => ());
    }

    /// See [`Engine::read`]. With `U`, what is found counts as used.
    #[inline(always)]
    pub fn read<U: Use, R>(
        &self,
        guard: &Guard,
        probe: &Probe<'_>,
        look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        let probe = probe.erase();
        content!(self, content => content.read::<U, R>(guard, probe, look))
    }

    /// [`read`](Self::read) of the entry itself.
    #[inline(always)]
    pub fn read_entry<U: Use>(&self, guard: &Guard, probe: &Probe<'_>) -> Result<Option<Entry>, Busy> {
        let probe = probe.erase();
        match self.near() {
            Ok(plain) => plain.read_entry::<U>(guard, probe),
            Err(far) => match far.words_of::<U>(&self.books, guard, probe) {
                NO_ENTRY => Ok(None),
                BUSY => Err(Busy),
                (key, body) => Ok(Some(Entry { key, body })),
            },
        }
    }

    /// See [`Engine::update`].
    #[inline(always)]
    pub fn update<R>(
        &self,
        guard: &Guard,
        probe: &Probe<'_>,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        debug_assert!(!self.is_blank());
        let probe = probe.erase();
        content!(self, content => content.update(guard, probe, change))
    }

    /// See [`Engine::update_present`].
    #[inline(always)]
    pub fn update_present<R: Default>(
        &self,
        guard: &Guard,
        probe: &Probe<'_>,
        change: impl FnOnce(Entry) -> (Step, R),
    ) -> Result<R, Busy> {
        debug_assert!(!self.is_blank());
        let probe = probe.erase();
        content!(self, content => content.update_present(guard, probe, change))
    }

    /// [`update`](Self::update), whose change puts an object with this body if `puts` says so of what the place has. Where the contents
    /// have a limit, there is room for it before `change` runs.
    #[inline(always)]
    pub fn update_adding<R>(
        &self,
        guard: &Guard,
        probe: &Probe<'_>,
        body: u64,
        puts: impl Fn(Option<Entry>) -> bool,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        debug_assert!(!self.is_blank());
        let probe = probe.erase();
        content!(self, content => content.update_adding(guard, probe, body, puts, change))
    }

    /// [`update`](Self::update), whose change makes the object that it puts. Counts objects and bytes, which the change does not. Where the
    /// contents have a limit and no room for the object, the object is freed, room is made, and the change runs again. `adds` says that it
    /// also puts an object where there is none.
    #[inline(always)]
    pub fn update_making<R>(
        &self,
        guard: &Guard,
        probe: &Probe<'_>,
        adds: bool,
        change: impl FnMut(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        debug_assert!(!self.is_blank());
        let probe = probe.erase();
        content!(self, content => content.update_making(guard, probe, adds, change))
    }

    /// See [`Engine::update_many`]. `planned` tells what the change may do in each place. Before it runs, all keys are in the log, if somebody
    /// reads that.
    pub fn update_many<R>(
        &self,
        guard: &Guard,
        probes: &[&Probe<'static>],
        actor: Actor<'_>,
        planned: impl Fn(usize) -> Planned,
        change: impl FnOnce(&mut dyn Locked) -> R,
    ) -> Result<R, Busy> {
        debug_assert!(!self.is_blank());
        content!(self, content => content.update_many(guard, probes, actor, planned, change))
    }

    /// To be called after a key was written by [`update_many`](Self::update_many), or deleted by an [`update`](Self::update) that perhaps
    /// found nothing.
    #[inline]
    pub(crate) fn written(&self, probe: &Probe<'_>) {
        if self.books.history.is_awaited() {
            self.books.wrote(probe, self.is_ordered());
        }
    }

    /// See [`Engine::next_on`].
    pub fn next<R>(
        &self,
        guard: &Guard,
        after: Option<&Probe<'_>>,
        trail: &mut Trail,
        look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        let after = after.map(|probe| probe.erase());
        content!(self, content => content.step(guard, after, trail, false, look))
    }

    /// Like [`next`](Self::next), downwards. In an unordered store it is the same as `next`, as in ETS, where `prev` of a hash table is its
    /// `next`.
    pub fn previous<R>(
        &self,
        guard: &Guard,
        before: Option<&Probe<'_>>,
        trail: &mut Trail,
        look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        let before = before.map(|probe| probe.erase());
        content!(self, content => content.step(guard, before, trail, true, look))
    }

    /// See [`Engine::follow`].
    #[inline(always)]
    pub fn follow<R>(
        &self,
        guard: &Guard,
        trail: &mut Trail,
        down: bool,
        is_here: impl Fn(Origin) -> bool,
        look: impl FnMut(Option<Entry>) -> R,
    ) -> Option<R> {
        // With leases, the way is always searched.
        let plain = self.near().ok()?;
        plain.engine.follow(guard, trail, down, is_here, look)
    }

    /// See [`Engine::scan`]. Finds nothing in an ordered store: see [`range`](Self::range). The scan starts at position 0. Any number is a
    /// valid position.
    pub fn scan<'g>(
        &self,
        guard: &'g Guard,
        position: &mut u64,
        limit: usize,
        out: &mut Vec<ObjectRef<'g>>,
        expand: impl FnMut(Entry, &mut Vec<ObjectRef<'g>>),
    ) -> Result<bool, Busy> {
        content!(self, content => content.scan(guard, position, limit, out, expand))
    }

    /// See [`OrderedEngine::range`](cats_engine::OrderedEngine::range). Appends nothing in an unordered store.
    pub fn range<'g>(
        &self,
        guard: &'g Guard,
        range: Range<'_, Probe<'_>>,
        limit: usize,
        out: &mut Vec<ObjectRef<'g>>,
        expand: impl FnMut(Entry, &mut Vec<ObjectRef<'g>>),
    ) -> Result<bool, Busy> {
        let range = erased(range);
        content!(self, content => content.range(guard, range, limit, out, expand))
    }

    /// See [`Ca::count_between`]. Counts nothing in a store without order statistics. `limit` is that of a `ca`.
    pub fn count_between(
        &self,
        guard: &Guard,
        between: Between<'_, Probe<'_>>,
        limit: usize,
    ) -> Result<usize, Failure> {
        let between = Between {
            from: between.from.map(|(probe, inclusive)| (probe.erase(), inclusive)),
            to: between.to.map(|(probe, inclusive)| (probe.erase(), inclusive)),
        };
        engine!(self, engine => InlineEngine::count_between(engine, guard, between, limit), other => {
            let count = other.snapshot().map(|snapshot| snapshot.count_between(guard, between));
            Ok(count.unwrap_or(Ok(0))?)
        })
    }

    /// See [`Ca::find_nth`]. Finds nothing in a store without order statistics. `limit` is that of a `ca`.
    pub fn find_nth<'g>(
        &self,
        guard: &'g Guard,
        place: (usize, bool),
        limit: usize,
        out: &mut Vec<ObjectRef<'g>>,
        mut expand: impl FnMut(Entry, &mut Vec<ObjectRef<'g>>),
    ) -> Result<(), Failure> {
        let (leased, mut dead) = (self.is_leased(), false);
        let mut expand = |entry: Entry, out: &mut Vec<ObjectRef<'g>>| {
            // SAFETY: engines show entries under the guard.
            dead = leased && !unsafe { lives(entry) };
            // SAFETY: as above.
            expand(unsafe { unseated(entry) }, out);
        };
        engine!(self, engine => InlineEngine::find_nth(engine, guard, place, limit, out, &mut expand)?, other => {
            if let Some(snapshot) = other.snapshot() {
                snapshot.find_nth(guard, place, out, &mut expand)?;
            }
        });
        // It has expired since the caller has removed all that had.
        if dead {
            Err(Failure::Busy)
        } else {
            Ok(())
        }
    }

    /// See [`Engine::buckets`].
    pub fn buckets(&self) -> usize {
        engine!(self, engine => engine.buckets(), other => other.buckets())
    }

    /// See [`Engine::slot`].
    pub fn slot<'g>(
        &self,
        guard: &'g Guard,
        number: usize,
        mut expand: impl FnMut(Entry, &mut Vec<ObjectRef<'g>>),
    ) -> Result<Option<Vec<ObjectRef<'g>>>, Busy> {
        let leased = self.is_leased();
        let mut expand = |entry: Entry, out: &mut Vec<ObjectRef<'g>>| {
            // SAFETY: engines show entries under the guard.
            if !leased || unsafe { lives(entry) } {
                // SAFETY: as above.
                expand(unsafe { unseated(entry) }, out);
            }
        };
        engine!(self, engine => engine.slot(guard, number, &mut expand), other => other.slot(guard, number, &mut expand))
    }

    /// Whether objects have leases.
    #[inline]
    pub fn is_leased(&self) -> bool {
        leased!(self, _content => ()).is_some()
    }

    /// Who is told what the table removes by itself.
    pub fn notices(&self) -> Option<&Arc<Notices>> {
        leased!(self, content => content.owner.leases.notices())?
    }

    /// To be called before anybody else knows the contents. False if they remove nothing.
    pub fn set_notices(&self, notices: Arc<Notices>) -> bool {
        leased!(self, content => content.owner.leases.set_notices(notices)).is_some()
    }

    /// Gives the object of a key a deadline `time` from now on. False if there is none, or if `may` says no. `None` if objects have no
    /// leases.
    pub fn touch(
        &self,
        guard: &Guard,
        probe: &Probe<'_>,
        time: u64,
        may: impl FnOnce() -> bool,
    ) -> Option<Result<bool, Busy>> {
        leased!(self, content => content.touch(guard, probe.erase(), time, may))
    }

    /// Makes room for what a call is about to put one by one, if the table evicts objects.
    pub fn make_room_for(
        &self,
        guard: &Guard,
        probes: &[&Probe<'static>],
        planned: impl Fn(usize) -> Planned,
    ) -> Result<(), Busy> {
        leased!(self, content => content.make_room_for(guard, probes, planned)).unwrap_or(Ok(()))
    }

    /// The milliseconds that the object of a key still lives, or [`NEVER`](cats_term::lease::NEVER), and those to its own end. `None` if
    /// objects have no leases.
    pub fn time_left(&self, guard: &Guard, probe: &Probe<'_>) -> Option<Result<Option<(u64, u64)>, Busy>> {
        leased!(self, content => content.time_left(guard, probe.erase()))
    }

    /// The entry of a key, and how its object lives: see [`Leases::fetched`]. An object that lives will be found for the first time's
    /// milliseconds after its end. `None` if objects have no leases.
    pub fn read_keeping(
        &self,
        guard: &Guard,
        probe: &Probe<'_>,
        times: (u64, u64),
    ) -> Option<Result<Option<(Entry, Life)>, Busy>> {
        leased!(self, content => content.read_keeping(guard, probe.erase(), times))
    }

    /// Lets a fetch have a new object for so many milliseconds after its end.
    pub fn keep_new(&self, entry: Entry, stale: u64) {
        leased!(self, content => content.keep_new(entry, stale));
    }

    /// Removes what has expired, or counts it out. With `clear`, nothing that has expired is left. Fails with [`Failure::Slice`] as long as
    /// more of that is left.
    pub fn settle(&self, guard: &Guard, clear: bool) -> Result<(), Failure> {
        leased!(self, content => content.settle(guard, clear)).unwrap_or(Ok(()))
    }

    /// The reaper's work, until `more` returns false. Returns whether it is complete.
    pub fn expire(&self, guard: &Guard, more: &mut dyn FnMut() -> bool) -> Result<bool, Busy> {
        while !self.flights().expire(self.history())? {
            if !more() {
                return Ok(false);
            }
        }
        leased!(self, content => content.expire(guard, more)).unwrap_or(Ok(true))
    }

    /// The time at which something may expire, or a process that is told of removals is to be sent a message.
    pub fn due(&self) -> u64 {
        let due = leased!(self, content => content.owner.leases.due()).unwrap_or(u64::MAX);
        due.min(self.flights().due())
    }

    /// The number of base nodes of a contention adapting tree.
    pub fn base_nodes(&self) -> Option<usize> {
        let count = engine!(self, engine => InlineEngine::base_nodes(engine), other => other.base_nodes());
        (count > 0).then_some(count)
    }

    /// The number of bytes that the store uses.
    pub fn total_bytes(&self) -> usize {
        size_of::<Self>() + self.structure_bytes() + self.books.object_bytes()
    }

    /// The number of bytes of the engine, without those that are a part of the store.
    pub fn structure_bytes(&self) -> usize {
        let leases = leased!(self, content => content.owner.leases.bytes()).unwrap_or(0);
        leases + engine!(self, engine => engine.bytes() - size_of_val(engine), other => other.bytes())
    }

    /// The number of bytes of the store, with those of its counters, of its log and of failures that it remembers.
    pub fn all_bytes(&self) -> usize {
        self.total_bytes() + self.counter_bytes() + self.books.log.bytes() + self.flights().bytes()
    }

    /// The number of bytes of the counters' stripes. Only stores with many writers, or with events, have stripes.
    pub fn counter_bytes(&self) -> usize {
        self.books.counters.stripe_bytes() + self.events().map_or(0, Events::bytes)
    }

    /// Frees about `limit` places of a store that has no other user. Returns true when nothing is left.
    pub fn dismantle(&mut self, limit: usize) -> bool {
        let mut free = |entry: Entry| {
            // SAFETY: the store has no other user, and the engine shows each entry once.
            unsafe { free_entry(unseated(entry).body) }
        };
        match &mut self.stock {
            Stock::Hash(engine) => engine.dismantle(limit, &mut free),
            Stock::Ca(engine) => engine.dismantle(limit, &mut free),
            Stock::Far(Far::SeatedHash(owner)) => owner.engine.dismantle(limit, &mut free),
            Stock::Far(Far::SeatedCa(owner)) => owner.engine.dismantle(limit, &mut free),
            Stock::Far(Far::LeasedHash(owner)) => owner.engine.dismantle(limit, &mut free),
            Stock::Far(Far::LeasedCa(owner)) => owner.engine.dismantle(limit, &mut free),
            Stock::Far(Far::Boxed(engine)) => engine.dismantle(limit, &mut free),
        }
    }
}

impl Far {
    /// Reads an entry. Returns its two words, or one of two constants. Two words are returned in registers. Through memory they would cause
    /// a store-forwarding stall.
    #[inline(never)]
    fn words_of<U: Use>(&self, books: &Books, guard: &Guard, probe: &Probe<'static>) -> (u64, u64) {
        // Not one result for all of them, because it would go through memory.
        far!(self, books, content => match content.read_entry::<U>(guard, probe) {
            Ok(Some(entry)) => (entry.key, entry.body),
            Ok(None) => NO_ENTRY,
            Err(Busy) => BUSY,
        })
    }
}
