//! The contents of a table: an engine and counters. `delete_all_objects` replaces them as a whole.

#[cfg(feature = "compared")]
mod compared;
pub mod due;
pub(crate) mod leased;
pub(crate) mod limited;
pub(crate) mod other;
pub(crate) mod retire;
pub(crate) mod setup;

use crate::engines::EngineName;
use crate::evict::allowance::is_small;
use crate::expiry::notices::Why;
use crate::failure::Failure;
use crate::flights::Flights;
use crate::history::{History, Writer};
use crate::object::group::free_entry;
use crate::object::key::Key;
use crate::object::schema::{last_of_keys, Exact, Ordered, Probe};
use crate::object::{body_bytes, more_bytes, ObjectRef};
use crate::write_log::{Author, Chain, Log, WriteLog, NOBODY};
use cats_engine::ca::{Ca, Thresholds};
use cats_engine::hash::{Hash, Position};
use cats_engine::{Between, Engine, Entry, Locked, Mark, Marked, Numbered, OrderedEngine, Origin, Range, Step, Trail};
#[cfg(feature = "compared")]
use cats_papers::detaching::Detaching;
use cats_sync::clock;
use cats_sync::epoch::Guard;
use cats_sync::events::{Event, Events, COUNTERS};
use cats_sync::recorder::Recorder;
use cats_sync::stripes::Stripes;
use cats_sync::Busy;
use cats_term::lease::{Lease, NEVER, NOWHERE};
use cats_term::{is_immediate, TermRef};
use leased::{deadline, is_expired, lease, lives, LeasedPlaces, Leases};
use limited::{Limits, Paying, Planned};
use other::{Frozen, Other};
use setup::Setup;
use std::ptr;
use std::sync::OnceLock;

/// The default engines are stored inline. All others are behind virtual functions. Where objects have leases, each function has a way of its
/// own, so that other tables do not ask for them.
enum Structure {
    Hash(Hash<Exact>),
    Ca(Ca<Ordered>),
    Other(Box<dyn Other>),
    LeasedHash(Hash<Exact>, Box<Leases>),
    LeasedCa(Ca<Ordered>, Box<Leases>),
}

/// A default engine, with leases or without.
enum DefaultEngine<'a> {
    Hash(&'a Hash<Exact>),
    Ca(&'a Ca<Ordered>),
}

/// See the module's documentation.
pub struct Store {
    structure: Structure,
    /// The number of objects, and the bytes of their blocks and groups. Counted while the objects' places are locked.
    counters: Stripes<2>,
    /// `None`: with the defaults.
    setup: Option<Box<Setup>>,
    /// The snapshots of these contents.
    history: History,
    /// The keys that objects are being made for.
    flights: Flights,
    /// The keys that are written while long transactions read.
    log: WriteLog,
}

#[cfg(debug_assertions)]
impl Drop for Store {
    /// The reaper would find memory that is free.
    fn drop(&mut self) {
        assert!(!due::is_entered(self), "contents are freed that the reaper finds");
    }
}

/// What a writer has to do besides, as there is a snapshot, a flight or a long transaction.
struct Watch<'g> {
    /// The writer, and whether it must keep what the key has.
    writer: Option<(Writer<'g>, bool)>,
    /// Whether there are flights.
    awaited: bool,
    /// The log, if somebody reads it.
    log: Option<&'g Log>,
}

/// Where a call of [`Store::approach`] came to, for engines in which finding it again takes long.
#[derive(Clone, Copy)]
pub struct Spot<'g>(Option<cats_engine::ca::Spot<'g>>);

/// Whether a read of a key counts as a use of its object: for option `idle`, and for evictions.
pub trait Use {
    const COUNTS: bool;
}

/// A read that its caller asked for.
pub struct Used;

/// A look for the sake of something else, which leaves the object as it is.
pub struct Unused;

impl Use for Used {
    const COUNTS: bool = true;
}

impl Use for Unused {
    const COUNTS: bool = false;
}

/// A hash table of up to this number of buckets probably fits the caches, with its objects.
const CACHED_BUCKETS: usize = 1024;
/// The same for a tree whose nodes have this number of bytes.
const CACHED_BYTES: usize = 160 << 10;

/// The body of an object that a change may put, and whether it does, by what the place has.
type Adding<'a> = (u64, &'a dyn Fn(Option<Entry>) -> bool);

const OBJECTS: usize = 0;
const BYTES: usize = 1;

/// These stand in place of the words of an entry. No entry has the key word 0.
const NO_ENTRY: (u64, u64) = (0, 0);
const BUSY: (u64, u64) = (0, 1);

/// Whether this build has an engine of this name.
pub const fn is_built(name: EngineName) -> bool {
    cfg!(feature = "compared") || matches!(name, EngineName::Hash | EngineName::Ca)
}

/// Calls a method of the store's engine.
macro_rules! each {
    ($self:expr, $engine:ident => $call:expr) => {
        match &$self.structure {
            Structure::Hash($engine) | Structure::LeasedHash($engine, _) => $call,
            Structure::Ca($engine) | Structure::LeasedCa($engine, _) => $call,
            Structure::Other($engine) => $call,
        }
    };
}

impl Store {
    /// An empty store. The key of its objects is at position `key`, counted from 0. `shared` says that many processes may write at the same
    /// time. The engine [is built](is_built). Without a setup it is built with its defaults. `None` when memory is exhausted.
    pub fn new(engine: EngineName, setup: Option<Box<Setup>>, key: usize, shared: bool) -> Option<Self> {
        let thresholds = || {
            setup
                .as_ref()
                .map_or_else(Thresholds::default, |setup| setup.config.thresholds())
        };
        let (expiry, limit) = setup.as_ref().map_or((None, None), |setup| (setup.expiry, setup.limit));
        let leases = (expiry.is_some() || limit.is_some()).then(|| {
            let ordered = engine == EngineName::Ca;
            Box::new(Leases::new(expiry, limit, key, ordered, shared))
        });
        let small = limit.as_ref().is_some_and(is_small);
        let striped = shared && !small;
        let leased_hash = |leases: Box<Leases>| {
            let engine = Hash::new(Exact::new(key))?;
            let most = leases.limits().and_then(Limits::bucket_bytes);
            Some(Structure::LeasedHash(
                match most {
                    Some(bytes) => engine.within(bytes),
                    None => engine,
                },
                leases,
            ))
        };
        // A split of a base node takes more bytes than its objects pay for.
        let leased_thresholds = if small { Thresholds::NEVER } else { thresholds() };
        let store = Self {
            structure: match (engine, leases) {
                (EngineName::Hash, None) => Structure::Hash(Hash::new(Exact::new(key))?),
                (EngineName::Ca, None) => Structure::Ca(Ca::with_thresholds(Ordered::new(key), thresholds())),
                (EngineName::Hash, Some(leases)) => leased_hash(leases)?,
                (EngineName::Ca, Some(leases)) => {
                    Structure::LeasedCa(Ca::with_thresholds(Ordered::new(key), leased_thresholds), leases)
                }
                #[cfg(feature = "compared")]
                (other, _) => Structure::Other(compared::make(other, setup.as_ref().map(|setup| &setup.config), key)?),
                #[cfg(not(feature = "compared"))]
                (other, _) => unreachable!("options with the engine {other:?} are refused"),
            },
            counters: if striped { Stripes::striped() } else { Stripes::new() },
            setup,
            history: History::default(),
            flights: Flights::default(),
            log: WriteLog::default(),
        };
        if let Some(events) = store.events().filter(|_| small) {
            events.make_small()?;
        }
        Some(store)
    }

    /// The contents of a snapshot.
    pub fn of_snapshot(snapshot: Box<dyn Other>) -> Self {
        Self {
            structure: Structure::Other(snapshot),
            counters: Stripes::new(),
            setup: None,
            history: History::default(),
            flights: Flights::default(),
            log: WriteLog::default(),
        }
    }

    /// The snapshot whose contents these are.
    #[inline]
    pub fn snapshot(&self) -> Option<&dyn Frozen> {
        match &self.structure {
            Structure::Other(engine) => engine.snapshot(),
            _ => None,
        }
    }

    #[inline]
    pub fn history(&self) -> &History {
        &self.history
    }

    pub(crate) fn flights(&self) -> &Flights {
        &self.flights
    }

    /// To be called after a key was written while there were flights: ends the flight of the key.
    #[cold]
    #[inline(never)]
    fn wrote(&self, probe: &Probe<'_>) {
        self.flights
            .end(&self.history, &Key::sought(probe.term(), self.is_ordered()));
    }

    pub(crate) fn log(&self) -> &WriteLog {
        &self.log
    }

    /// The log, if somebody reads it.
    #[inline]
    fn wanted_log(&self) -> Option<&Log> {
        match self.history.is_logged() {
            true => self.log.wanted(&self.history),
            false => None,
        }
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

    /// The default engine. Only for a store that has one.
    #[inline(always)]
    fn default_engine(&self) -> DefaultEngine<'_> {
        match &self.structure {
            Structure::Hash(engine) | Structure::LeasedHash(engine, _) => DefaultEngine::Hash(engine),
            Structure::Ca(engine) | Structure::LeasedCa(engine, _) => DefaultEngine::Ca(engine),
            Structure::Other(_) => unreachable!("not a default engine"),
        }
    }

    /// What the store has for the leases of its objects. `None` if they have none.
    #[inline]
    pub fn leases(&self) -> Option<&Leases> {
        match &self.structure {
            Structure::LeasedHash(_, leases) | Structure::LeasedCa(_, leases) => Some(leases),
            _ => None,
        }
    }

    /// See [`Leases::settle`].
    pub fn settle(&self, guard: &Guard, clear: bool) -> Result<(), Failure> {
        self.leases().map_or(Ok(()), |leases| leases.settle(self, guard, clear))
    }

    /// The address of the engine, as the probes of the engines tell it.
    pub fn engine_address(&self) -> *const u8 {
        match &self.structure {
            Structure::Hash(engine) | Structure::LeasedHash(engine, _) => ptr::from_ref(engine).cast(),
            Structure::Ca(engine) | Structure::LeasedCa(engine, _) => ptr::from_ref(engine).cast(),
            Structure::Other(engine) => ptr::from_ref(&**engine).cast(),
        }
    }

    /// By which a trace knows the contents, 0 for those of a snapshot or of all blank tables.
    pub fn trace_address(&self) -> u64 {
        self.events().filter(|_| !self.is_blank()).map_or(0, Events::address)
    }

    /// What rarely happens to the contents. `None` for those of a snapshot.
    fn events(&self) -> Option<&Events> {
        match &self.structure {
            Structure::Hash(engine) | Structure::LeasedHash(engine, _) => Some(engine.events()),
            Structure::Ca(engine) | Structure::LeasedCa(engine, _) => Some(engine.events()),
            Structure::Other(engine) => engine.events(),
        }
    }

    /// What happened to an engine that can be recorded. `None` for others.
    pub fn recordable(&self) -> Option<&Events> {
        match &self.structure {
            Structure::Other(_) => None,
            _ => self.events(),
        }
    }

    /// The recorder of the contents.
    pub fn recorder(&self) -> Option<&Recorder> {
        self.recordable()?.recorder()
    }

    /// The tree, if that is how the contents are stored.
    pub fn tree(&self) -> Option<&Ca<Ordered>> {
        match &self.structure {
            Structure::Ca(engine) | Structure::LeasedCa(engine, _) => Some(engine),
            _ => None,
        }
    }

    /// The hash table, if that is how the contents are stored.
    pub fn hash_table(&self) -> Option<&Hash<Exact>> {
        match &self.structure {
            Structure::Hash(engine) | Structure::LeasedHash(engine, _) => Some(engine),
            _ => None,
        }
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

    /// With what the contents were made. `None`: with the defaults.
    pub fn setup(&self) -> Option<&Setup> {
        self.setup.as_deref()
    }

    /// Counts objects and bytes that were added or removed. The caller holds the lock of their place.
    #[inline]
    pub fn count(&self, objects: i64, bytes: i64) {
        if objects != 0 {
            self.counters.add_to(OBJECTS, objects);
        }
        if bytes != 0 {
            self.counters.add_to(BYTES, bytes);
        }
    }

    /// The number of objects at one instant.
    pub fn size(&self) -> usize {
        usize::try_from(self.counters.sum_of(OBJECTS)).unwrap_or(0)
    }

    /// Whether keys are ordered.
    #[inline]
    pub fn is_ordered(&self) -> bool {
        match &self.structure {
            Structure::Hash(_) | Structure::LeasedHash(..) => false,
            Structure::Ca(_) | Structure::LeasedCa(..) => true,
            Structure::Other(engine) => engine.is_ordered(),
        }
    }

    /// Whether the store is so large that a call's reads probably miss the caches. Found out without a search.
    #[inline]
    pub fn outgrows_caches(&self) -> bool {
        match &self.structure {
            Structure::Hash(engine) | Structure::LeasedHash(engine, _) => engine.buckets() > CACHED_BUCKETS,
            Structure::Ca(engine) | Structure::LeasedCa(engine, _) => engine.bytes() > CACHED_BYTES,
            Structure::Other(_) => false,
        }
    }

    /// See [`Handle::announce`](crate::Handle::announce).
    #[inline]
    pub fn announce(&self, guard: &Guard, key: u64) {
        if let Structure::Hash(engine) | Structure::LeasedHash(engine, _) = &self.structure {
            if engine.buckets() > CACHED_BUCKETS {
                engine.prefetch(guard, Probe::exact(TermRef::immediate(key)).erase());
            }
        }
    }

    /// Goes to where a call with this key will go, and prefetches what the call will read there.
    #[inline]
    pub fn approach<'g>(&self, guard: &'g Guard, probe: &Probe<'_>) -> Spot<'g> {
        match &self.structure {
            Structure::Hash(engine) | Structure::LeasedHash(engine, _) => engine.prefetch(guard, probe.erase()),
            Structure::Ca(engine) | Structure::LeasedCa(engine, _) => {
                return Spot(Some(engine.prefetch(guard, probe.erase())))
            }
            Structure::Other(_) => (),
        }
        Spot(None)
    }

    /// Prefetches the key's object. To be called when the lines that `approach` requested have arrived.
    #[inline]
    pub fn prefetch_object<'g>(&self, guard: &'g Guard, probe: &Probe<'_>, spot: Spot<'g>) {
        match (&self.structure, spot.0) {
            (Structure::Hash(engine) | Structure::LeasedHash(engine, _), _) => {
                engine.prefetch_object(guard, probe.erase());
            }
            (Structure::Ca(engine) | Structure::LeasedCa(engine, _), Some(spot)) => {
                engine.prefetch_object(probe.erase(), spot);
            }
            _ => (),
        }
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
        match &self.structure {
            Structure::Hash(engine) => engine.read(guard, probe, look),
            Structure::Ca(engine) => engine.read(guard, probe, look),
            _ => self.read_far::<U, R>(guard, probe, look),
        }
    }

    /// [`read`](Self::read) of the entry itself.
    #[inline(always)]
    pub fn read_entry<U: Use>(&self, guard: &Guard, probe: &Probe<'_>) -> Result<Option<Entry>, Busy> {
        let probe = probe.erase();
        match &self.structure {
            Structure::Hash(engine) => engine.read(guard, probe, |entry| entry),
            Structure::Ca(engine) => engine.read(guard, probe, |entry| entry),
            _ => match self.read_entry_far::<U>(guard, probe) {
                NO_ENTRY => Ok(None),
                BUSY => Err(Busy),
                (key, body) => Ok(Some(Entry { key, body })),
            },
        }
    }

    /// [`read_entry`](Self::read_entry) of a store with leases, or with an engine behind virtual functions. Returns the entry's two words, or
    /// one of two constants. Two words are returned in registers. Through memory they would cause a store-forwarding stall.
    #[inline(never)]
    fn read_entry_far<U: Use>(&self, guard: &Guard, probe: &Probe<'static>) -> (u64, u64) {
        // Not one result for both engines, because it would go through memory.
        match &self.structure {
            Structure::LeasedHash(engine, leases) => living::<U>(leases, engine.read(guard, probe, |entry| entry)),
            Structure::LeasedCa(engine, leases) => living::<U>(leases, engine.read(guard, probe, |entry| entry)),
            _ => words(self.read_far::<U, _>(guard, probe, |entry| entry)),
        }
    }

    /// [`read`](Self::read) of a store with leases, or with an engine behind virtual functions.
    #[inline(never)]
    fn read_far<U: Use, R>(
        &self,
        guard: &Guard,
        probe: &Probe<'static>,
        mut look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        // The body of what was found, or 0, and its lease.
        let none = Lease::new(NEVER, NOWHERE);
        let mut seen = (0, none);
        let look_living = |entry: Option<Entry>| {
            // SAFETY: engines show entries under the guard.
            let living = entry.map(|entry| (entry, unsafe { lease(entry) }));
            let living = living.filter(|(_, lease)| !is_expired(*lease));
            seen = living.map_or((0, none), |(entry, lease)| (entry.body, lease));
            look(living.map(|(entry, _)| entry))
        };
        let (result, leases) = match &self.structure {
            Structure::LeasedHash(engine, leases) => (engine.read(guard, probe, look_living)?, leases),
            Structure::LeasedCa(engine, leases) => (engine.read(guard, probe, look_living)?, leases),
            Structure::Other(engine) => return looked(look, |look| engine.read(guard, probe, look)),
            _ => unreachable!("read without a call"),
        };
        let (body, lease) = seen;
        if U::COUNTS && body != 0 {
            leases.used(body, lease);
        }
        Ok(result)
    }

    /// The entry of a key, and whether its object has ended, by less than `stale` milliseconds. An object that lives will be found for so
    /// long after its end. Only for a store with leases.
    pub fn read_keeping(&self, guard: &Guard, probe: &Probe<'_>, stale: u64) -> Result<Option<(Entry, bool)>, Busy> {
        let leases = self.leases().expect("a store with leases");
        leases.keep_for(stale);
        let entry = self.read_as_it_is(guard, probe, |entry| entry)?;
        // SAFETY: the engine has validated the entry.
        Ok(entry.and_then(|entry| Some((entry, unsafe { leases.fetched(entry, stale) }?))))
    }

    /// Lets a fetch have a new object for so many milliseconds after its end. Only for a store with leases.
    pub fn keep_new(&self, entry: Entry, stale: u64) {
        let leases = self.leases().expect("a store with leases");
        leases.keep_for(stale);
        // SAFETY: the caller has the new object.
        leases.keep(entry, unsafe { lease(entry) });
    }

    /// [`read`](Self::read) of a default engine. Also shows what has expired.
    pub fn read_as_it_is<R>(
        &self,
        guard: &Guard,
        probe: &Probe<'_>,
        look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        let probe = probe.erase();
        match self.default_engine() {
            DefaultEngine::Hash(engine) => engine.read(guard, probe, look),
            DefaultEngine::Ca(engine) => engine.read(guard, probe, look),
        }
    }

    /// See [`Marked::read_marked`]. Only for an engine with transactions.
    pub fn read_marked<'g, R>(
        &self,
        guard: &'g Guard,
        probe: &Probe<'_>,
        look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<(R, Mark<'g>), Busy> {
        let probe = probe.erase();
        match self.default_engine() {
            DefaultEngine::Hash(engine) => engine.read_marked(guard, probe, look),
            DefaultEngine::Ca(engine) => engine.read_marked(guard, probe, look),
        }
    }

    /// See [`Ca::range_marked`]. Only for an ordered engine with transactions.
    pub fn range_marked<'g, T>(
        &self,
        guard: &'g Guard,
        range: Range<'_, Probe<'_>>,
        limit: usize,
        out: &mut Vec<T>,
        marks: &mut Vec<Mark<'g>>,
        expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy> {
        match self.default_engine() {
            DefaultEngine::Ca(engine) => engine.range_marked(guard, erased(range), limit, out, marks, expand),
            DefaultEngine::Hash(_) => unreachable!("an engine without ranges"),
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
        match &self.structure {
            Structure::Other(engine) => self.update_other(&**engine, guard, probe, false, change),
            Structure::LeasedHash(_, leases) | Structure::LeasedCa(_, leases) => {
                self.update_leased(leases, guard, probe, None, false, change)
            }
            _ => self.update_plain(guard, probe, change),
        }
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
        match &self.structure {
            Structure::LeasedHash(_, leases) | Structure::LeasedCa(_, leases) => {
                self.update_leased(leases, guard, probe, Some((body, &puts)), false, change)
            }
            _ => self.update(guard, probe, change),
        }
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
        mut change: impl FnMut(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        match &self.structure {
            Structure::LeasedHash(_, leases) | Structure::LeasedCa(_, leases) if leases.limits().is_some() => {
                self.make_limited(leases, guard, probe, adds, change)
            }
            _ => self.update(guard, probe, |old| {
                let (step, result) = change(old);
                self.count_step(old, step);
                (step, result)
            }),
        }
    }

    /// Counts what a step puts. Neither object is a group.
    #[inline(always)]
    fn count_step(&self, old: Option<Entry>, step: Step) {
        if let Step::Put(new) = step {
            // SAFETY: the place is locked, and nobody else knows the new object yet.
            let more = unsafe { old.map_or_else(|| body_bytes(new.body) as i64, |old| more_bytes(new.body, old.body)) };
            self.count(old.is_none().into(), more);
        }
    }

    /// [`update_making`](Self::update_making) of a store with a limit.
    #[inline(never)]
    fn make_limited<R>(
        &self,
        leases: &Leases,
        guard: &Guard,
        probe: &Probe<'_>,
        adds: bool,
        mut change: impl FnMut(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        let limits = leases.limits().expect("contents with a limit");
        let (mut paying, mut purse, mut wrote) = (Paying::new(limits), limits.purse(), false);
        if adds {
            limits.hold(self, guard)?;
        }
        // As in `update_limited`.
        if adds && !limits.counts_bytes() && limits.lacks(1) && !self.may_have(guard, probe) {
            limits.make_room(self, guard, &[probe], 1, &mut purse)?;
        }
        loop {
            let mut gone = 0;
            let done = self.update_as_it_is(guard, probe, false, |old| {
                let now = leases.time_for(old);
                leases.change(self, now, old, &mut gone, Some(&mut paying), |live| {
                    let (step, result) = change(live);
                    if let Step::Put(new) = step {
                        let lack = match limits.fits(new.body) {
                            true => Some(limits.price_of_one(new.body, old)).filter(|price| !purse.affords(*price)),
                            false => Some(limits.price_of_one(new.body, None)),
                        };
                        if let Some(price) = lack {
                            // SAFETY: nobody else knows the object.
                            unsafe { free_entry(new.body) };
                            return (Step::Keep, Err(price));
                        }
                    }
                    self.count_step(live, step);
                    noting(&mut wrote, (step, Ok(result)))
                })
            })?;
            if gone != 0 {
                // SAFETY: the place has another entry now, or none.
                unsafe { leases.part_with(guard, gone, Why::Expired) }
            }
            match done {
                Ok(result) => {
                    paying.purse.take_over(&mut purse);
                    limits.settle(self, guard, &[probe], paying);
                    if wrote {
                        self.written(probe);
                    }
                    return Ok(result);
                }
                Err(price) => {
                    purse.take_over(&mut paying.purse);
                    limits.make_room(self, guard, &[probe], price, &mut purse)?;
                }
            }
        }
    }

    /// [`update`](Self::update) of a store with leases. `adding` is the body of what `change` may put, and says whether it will. `present`
    /// says that `change` does nothing without an entry.
    #[inline(never)]
    fn update_leased<R>(
        &self,
        leases: &Leases,
        guard: &Guard,
        probe: &Probe<'_>,
        adding: Option<Adding<'_>>,
        present: bool,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        let mut wrote = present;
        let result = self.change_leased(leases, guard, probe, adding, present, |old| {
            noting(&mut wrote, change(old))
        })?;
        if wrote {
            self.written(probe);
        }
        Ok(result)
    }

    /// [`update_leased`](Self::update_leased) without a look at flights: for what removes objects that have ended.
    fn change_leased<R>(
        &self,
        leases: &Leases,
        guard: &Guard,
        probe: &Probe<'_>,
        adding: Option<Adding<'_>>,
        present: bool,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        if let Some(limits) = leases.limits() {
            return self.update_limited(leases, limits, guard, probe, adding, present, change);
        }
        let mut gone = 0;
        // The clock is read with the place locked. So a change after the instant of a snapshot is not of an earlier time.
        let result = self.update_as_it_is(guard, probe, present, |old| {
            leases.change(self, clock::now(), old, &mut gone, None, change)
        })?;
        if gone != 0 {
            // SAFETY: the place has another entry now, or none.
            unsafe { leases.part_with(guard, gone, Why::Expired) }
        }
        Ok(result)
    }

    /// [`update_leased`](Self::update_leased) of a store with a limit.
    #[allow(clippy::too_many_arguments)]
    fn update_limited<R>(
        &self,
        leases: &Leases,
        limits: &Limits,
        guard: &Guard,
        probe: &Probe<'_>,
        adding: Option<Adding<'_>>,
        present: bool,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        let (mut change, mut paying) = (Some(change), Paying::new(limits));
        if adding.is_some() {
            limits.hold(self, guard)?;
        }
        // Most of what full contents lack are objects that are about to be put. So room is made before the place is locked.
        if let Some(price) = adding.map(|(body, _)| limits.price_of_one(body, None)) {
            if limits.lacks(price) && !self.may_have(guard, probe) {
                limits.make_room(self, guard, &[probe], price, &mut paying.purse)?;
            }
        }
        loop {
            let mut gone = 0;
            let done = self.update_as_it_is(guard, probe, present, |old| {
                let now = leases.time_for(old);
                // SAFETY: the place is locked, so its object lives.
                let live = old.filter(|entry| unsafe { deadline(*entry) } > now);
                let price = match adding {
                    Some((body, puts)) if puts(live) => match limits.fits(body) {
                        true => limits.price_of_one(body, old),
                        false => limits.price_of_one(body, None),
                    },
                    _ => 0,
                };
                if !paying.purse.affords(price) {
                    return (Step::Keep, Err(price));
                }
                let change = change.take().expect("a change runs once");
                let (step, result) = leases.change(self, now, old, &mut gone, Some(&mut paying), change);
                (step, Ok(result))
            })?;
            if gone != 0 {
                // SAFETY: the place has another entry now, or none.
                unsafe { leases.part_with(guard, gone, Why::Expired) }
            }
            match done {
                Ok(result) => {
                    limits.settle(self, guard, &[probe], paying);
                    return Ok(result);
                }
                Err(price) => limits.make_room(self, guard, &[probe], price, &mut paying.purse)?,
            }
        }
    }

    /// False if it is known without a search that a default engine has no entry of this key.
    #[inline]
    fn may_have(&self, guard: &Guard, probe: &Probe<'_>) -> bool {
        match self.default_engine() {
            DefaultEngine::Hash(engine) => engine.may_have(guard, probe.erase()),
            DefaultEngine::Ca(_) => true,
        }
    }

    /// [`update`](Self::update) of a default engine. Also shows what has expired.
    #[inline(always)]
    fn update_as_it_is<R>(
        &self,
        guard: &Guard,
        probe: &Probe<'_>,
        present: bool,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        if let Some(watch) = self.watch(guard, probe, false)? {
            return self.update_watched(watch, guard, probe, present, change);
        }
        let probe = probe.erase();
        match self.default_engine() {
            DefaultEngine::Hash(engine) => engine.update(guard, probe, change),
            DefaultEngine::Ca(engine) => engine.update(guard, probe, change),
        }
    }

    /// Gives the object of a key a deadline `time` from now on. False if there is none, or if `may` says no. Only for a store with leases.
    pub fn touch(&self, guard: &Guard, probe: &Probe<'_>, time: u64, may: impl FnOnce() -> bool) -> Result<bool, Busy> {
        let leases = self.leases().expect("a store with leases");
        self.update(guard, probe, |old| match old {
            Some(entry) if may() => {
                leases.touch(entry, time, clock::now());
                (Step::Touch, true)
            }
            _ => (Step::Keep, false),
        })
    }

    /// [`update`](Self::update) for a default engine. There is no virtual call, so what `change` refers to can stay in registers.
    #[inline(always)]
    pub fn update_plain<R>(
        &self,
        guard: &Guard,
        probe: &Probe<'_>,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        debug_assert!(!self.is_blank());
        if let Some(watch) = self.watch(guard, probe, true)? {
            return self.update_watched(watch, guard, probe, false, change);
        }
        let probe = probe.erase();
        match &self.structure {
            Structure::Hash(engine) => engine.update(guard, probe, change),
            Structure::Ca(engine) => engine.update(guard, probe, change),
            _ => unreachable!("an engine that is a call away"),
        }
    }

    /// The milliseconds that the object of a key still lives, or [`NEVER`](cats_term::lease::NEVER). Only for a store with leases.
    pub fn time_left(&self, guard: &Guard, probe: &Probe<'_>) -> Result<Option<u64>, Busy> {
        let now = clock::now();
        // SAFETY: engines show entries under the guard.
        let deadline = self.read_as_it_is(guard, probe, |entry| entry.map(|entry| unsafe { deadline(entry) }))?;
        Ok(deadline
            .filter(|deadline| *deadline > now)
            .map(|deadline| match deadline {
                NEVER => NEVER,
                deadline => deadline - now,
            }))
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
        match &self.structure {
            Structure::Other(engine) => self.update_other(&**engine, guard, probe, true, |old| {
                old.map_or_else(|| (Step::Keep, R::default()), change)
            }),
            Structure::LeasedHash(_, leases) | Structure::LeasedCa(_, leases) => {
                self.update_leased(leases, guard, probe, None, true, |old| {
                    old.map_or_else(|| (Step::Keep, R::default()), change)
                })
            }
            _ => self.update_present_plain(guard, probe, change),
        }
    }

    /// [`update_present`](Self::update_present) for a default engine: see [`update_plain`](Self::update_plain).
    #[inline(always)]
    pub fn update_present_plain<R: Default>(
        &self,
        guard: &Guard,
        probe: &Probe<'_>,
        change: impl FnOnce(Entry) -> (Step, R),
    ) -> Result<R, Busy> {
        debug_assert!(!self.is_blank());
        if let Some(watch) = self.watch(guard, probe, true)? {
            return self.update_present_watched(watch, guard, probe, change);
        }
        let probe = probe.erase();
        match &self.structure {
            Structure::Hash(engine) => engine.update_present(guard, probe, change),
            Structure::Ca(engine) => engine.update_present(guard, probe, change),
            _ => unreachable!("an engine that is a call away"),
        }
    }

    /// What a writer of this key has to do besides. It looks at flights if they `may` be awaited.
    #[inline(always)]
    fn watch<'g>(&'g self, guard: &'g Guard, probe: &Probe<'_>, may: bool) -> Result<Option<Watch<'g>>, Busy> {
        match self.history.is_watched() {
            true => self.watch_closely(guard, probe, may),
            false => Ok(None),
        }
    }

    #[cold]
    #[inline(never)]
    fn watch_closely<'g>(&'g self, guard: &'g Guard, probe: &Probe<'_>, may: bool) -> Result<Option<Watch<'g>>, Busy> {
        let (writer, log) = (self.writer(guard, probe)?, self.wanted_log());
        let awaited = may && self.history.is_awaited();
        Ok((writer.is_some() || awaited || log.is_some()).then_some(Watch { writer, awaited, log }))
    }

    /// See [`keeping_writer`](Self::keeping_writer). `None` if there is no snapshot, or if it is known without a search that nothing need be
    /// kept.
    #[inline(always)]
    fn writer<'g>(&'g self, guard: &'g Guard, probe: &Probe<'_>) -> Result<Option<(Writer<'g>, bool)>, Busy> {
        match self.history.is_watched() && !self.is_settled(guard, probe.word()) {
            true => self.keeping_writer(guard, probe),
            false => Ok(None),
        }
    }

    /// Whether a snapshot needs nothing more of the key with this word, as far as that is known without a search.
    #[cold]
    #[inline(never)]
    fn is_settled(&self, guard: &Guard, word: u64) -> bool {
        if !is_immediate(word) {
            return false;
        }
        // The cache misses of this and of the key's place overlap.
        self.announce(guard, word);
        self.history.is_settled(guard, word)
    }

    /// The writer of a key of contents that may have snapshots, and whether it must keep what the key has. `None` if it may change the key as
    /// if there were no snapshots.
    ///
    /// A snapshot that begins later makes no difference: it waits for the writer's guard.
    #[cold]
    #[inline(never)]
    fn keeping_writer<'g>(&'g self, guard: &'g Guard, probe: &Probe<'_>) -> Result<Option<(Writer<'g>, bool)>, Busy> {
        let writer = Writer::enter(&self.history, guard)?;
        // The cache misses of both places overlap, and then that of the object and the search for the copy.
        if let DefaultEngine::Hash(_) = self.default_engine() {
            writer.approach(probe);
        }
        let spot = self.approach(guard, probe);
        self.prefetch_object(guard, probe, spot);
        let keep = writer.must_keep(probe)?;
        Ok((keep || writer.is_inside()).then_some((writer, keep)))
    }

    /// [`update_plain`](Self::update_plain) of contents that have snapshots, flights or a log. `present` says that `change` does nothing without
    /// an entry. A deletion is such a change. It ends a flight also if there is nothing to delete.
    #[cold]
    #[inline(never)]
    fn update_watched<R>(
        &self,
        watch: Watch<'_>,
        guard: &Guard,
        probe: &Probe<'_>,
        present: bool,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        let (mut change, mut result, mut wrote) = (Some(change), None, present);
        let mut logged = watch
            .log
            .map(|log| (log, Chain::new(NOBODY, self.is_ordered(), [probe.erase()].into_iter())));
        let mut step = |entry: Option<Entry>| {
            if let Some((log, chain)) = logged.take().filter(|_| entry.is_some() || !present) {
                log.add(chain);
            }
            let change = change.take().expect("an engine runs a change once");
            let (step, value) = noting(&mut wrote, change(entry));
            result = Some(value);
            step
        };
        match (watch.writer, self.default_engine()) {
            (Some(writer), _) => self.watched(writer, guard, probe.erase(), present, &mut step)?,
            (None, DefaultEngine::Hash(engine)) => engine.update(guard, probe.erase(), |old| (step(old), ()))?,
            (None, DefaultEngine::Ca(engine)) => engine.update(guard, probe.erase(), |old| (step(old), ()))?,
        }
        if watch.awaited && wrote {
            self.wrote(probe);
        }
        Ok(result.expect("an engine runs a change"))
    }

    /// [`update_present_plain`](Self::update_present_plain) of contents that have snapshots, flights or a log.
    #[cold]
    #[inline(never)]
    fn update_present_watched<R: Default>(
        &self,
        watch: Watch<'_>,
        guard: &Guard,
        probe: &Probe<'_>,
        change: impl FnOnce(Entry) -> (Step, R),
    ) -> Result<R, Busy> {
        self.update_watched(watch, guard, probe, true, |old| {
            old.map_or_else(|| (Step::Keep, R::default()), change)
        })
    }

    /// Updates contents that have snapshots: keeps what the key has, and then calls `change`.
    fn watched(
        &self,
        (writer, keep): (Writer<'_>, bool),
        guard: &Guard,
        probe: &Probe<'static>,
        present: bool,
        change: &mut dyn FnMut(Option<Entry>) -> Step,
    ) -> Result<(), Busy> {
        let step = |old: Option<Entry>| {
            let kept = match keep && (old.is_some() || !present) {
                true => writer.keep(probe, old),
                false => Ok(()),
            };
            match kept {
                Ok(()) => (change(old), Ok(())),
                Err(Busy) => (Step::Keep, Err(Busy)),
            }
        };
        match self.default_engine() {
            DefaultEngine::Hash(engine) => engine.update(guard, probe, step)?,
            DefaultEngine::Ca(engine) => engine.update(guard, probe, step)?,
        }
    }

    /// [`update_many`](Self::update_many) of contents that have snapshots or a log.
    #[cold]
    #[inline(never)]
    fn update_many_watched<R>(
        &self,
        guard: &Guard,
        probes: &[&Probe<'static>],
        author: Author,
        change: impl FnOnce(&mut dyn Locked) -> R,
    ) -> Result<R, Busy> {
        let writer = Writer::enter(&self.history, guard)?;
        let logged = self
            .wanted_log()
            .map(|log| (log, Chain::new(author, self.is_ordered(), probes.iter().copied())));
        let step = |places: &mut dyn Locked| {
            writer.keep_all(probes, places)?;
            if let Some((log, chain)) = logged {
                log.add(chain);
            }
            Ok(change(places))
        };
        match self.default_engine() {
            DefaultEngine::Hash(engine) => engine.update_many(guard, probes, step)?,
            DefaultEngine::Ca(engine) => engine.update_many(guard, probes, step)?,
        }
    }

    /// The engine, if it carries out steps for which the caller does not wait.
    #[cfg(feature = "compared")]
    #[inline]
    pub fn detaching(&self) -> Option<&dyn Detaching> {
        match &self.structure {
            // Nobody would see when such a write takes effect, and end the key's flight then.
            Structure::Other(engine) if !self.history.is_awaited() => engine.detaching(),
            _ => None,
        }
    }

    /// For a hash table of the default engine, what orders keys as their places lie in memory at this time.
    pub fn memory_order(&self) -> Option<impl Fn(&Probe<'static>) -> usize + '_> {
        match &self.structure {
            Structure::Hash(engine) | Structure::LeasedHash(engine, _) => {
                Some(|probe: &Probe<'static>| engine.number(probe))
            }
            _ => None,
        }
    }

    /// See [`Engine::update_many`]. `planned` tells what the change may do in each place. Before it runs, all keys are in the log, if somebody
    /// reads that.
    pub fn update_many<R>(
        &self,
        guard: &Guard,
        probes: &[&Probe<'static>],
        author: Author,
        planned: impl Fn(usize) -> Planned,
        change: impl FnOnce(&mut dyn Locked) -> R,
    ) -> Result<R, Busy> {
        debug_assert!(!self.is_blank());
        match &self.structure {
            Structure::LeasedHash(_, leases) | Structure::LeasedCa(_, leases) => {
                self.update_many_leased(leases, guard, probes, author, &planned, change)
            }
            _ => self.update_many_as_it_is(guard, probes, author, change),
        }
    }

    /// To be called after a key was written by [`update_many`](Self::update_many), or deleted by an [`update`](Self::update) that perhaps
    /// found nothing.
    #[inline]
    pub(crate) fn written(&self, probe: &Probe<'_>) {
        if self.history.is_awaited() {
            self.wrote(probe);
        }
    }

    /// [`update`](Self::update) for an engine behind virtual functions. `present` as in [`update_watched`](Self::update_watched).
    #[inline(never)]
    fn update_other<R>(
        &self,
        engine: &dyn Other,
        guard: &Guard,
        probe: &Probe<'_>,
        present: bool,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        let (mut change, mut result, mut wrote) = (Some(change), None, present);
        engine.update(guard, probe.erase(), &mut |entry| {
            let change = change.take().expect("an engine runs a change once");
            let (step, value) = noting(&mut wrote, change(entry));
            result = Some(value);
            step
        })?;
        if wrote {
            self.written(probe);
        }
        Ok(result.expect("an engine runs a change"))
    }

    /// [`update_many`](Self::update_many) of a store with leases.
    #[inline(never)]
    fn update_many_leased<R>(
        &self,
        leases: &Leases,
        guard: &Guard,
        probes: &[&Probe<'static>],
        author: Author,
        planned: &dyn Fn(usize) -> Planned,
        change: impl FnOnce(&mut dyn Locked) -> R,
    ) -> Result<R, Busy> {
        let store = self;
        let (mut change, mut paying) = (Some(change), leases.limits().map(Paying::new));
        // Of several writes of one key the last one counts. That is looked at if there is no room for all of them.
        let mut lasting = None;
        if let Some(paying) = &mut paying {
            self.prepay(guard, probes, planned, paying, &mut lasting)?;
        }
        loop {
            let done = self.update_many_as_it_is(guard, probes, author, |places| {
                // As in `update_leased`.
                let now = clock::now();
                let is_refused = || (0..probes.len()).any(|i| planned(i).is_refused(places.get(i), now));
                if let Some(paying) = paying.as_mut().filter(|_| !is_refused()) {
                    let lasts = |i: &usize| lasting.as_ref().is_none_or(|lasting: &Vec<bool>| lasting[*i]);
                    let price = |old: &dyn Fn(usize) -> Option<Entry>| -> i64 {
                        let lasting = (0..probes.len()).filter(lasts);
                        lasting.map(|i| paying.limits.price_of(planned(i), old(i))).sum()
                    };
                    let needed = price(&|i| places.get(i));
                    if !paying.purse.affords(needed) {
                        // If all are too large together, nothing is to be evicted for them.
                        let whole = price(&|_| None);
                        return Err(if paying.limits.has_capacity(whole) {
                            needed
                        } else {
                            whole
                        });
                    }
                }
                let change = change.take().expect("a change runs once");
                let mut places = LeasedPlaces {
                    places,
                    leases,
                    store,
                    now,
                    paying: paying.as_mut(),
                    gone: Vec::new(),
                };
                Ok((change(&mut places), places.gone))
            })?;
            match (done, paying.as_mut()) {
                (Ok((result, gone)), _) => {
                    for body in gone {
                        // SAFETY: the places have other entries now, or none.
                        unsafe { leases.part_with(guard, body, Why::Expired) }
                    }
                    if let Some(paying) = paying {
                        paying.limits.settle(self, guard, probes, paying);
                    }
                    return Ok(result);
                }
                (Err(_), Some(_)) if lasting.is_none() && probes.len() > 1 => {
                    lasting = Some(last_of_keys(probes, self.is_ordered()));
                }
                (Err(price), Some(paying)) => {
                    paying.limits.make_room(self, guard, probes, price, &mut paying.purse)?;
                }
                (Err(_), None) => unreachable!("only contents with a limit have prices"),
            }
        }
    }

    /// Makes room for what a call on many keys will probably add. The engine grows for all its keys before it locks their places, so what is
    /// refused is refused before. With the places locked, the price is looked at again.
    fn prepay(
        &self,
        guard: &Guard,
        probes: &[&Probe<'static>],
        planned: &dyn Fn(usize) -> Planned,
        paying: &mut Paying<'_>,
        lasting: &mut Option<Vec<bool>>,
    ) -> Result<(), Busy> {
        let limits = paying.limits;
        limits.hold(self, guard)?;
        let whole = |i: usize| limits.price_of(planned(i), None);
        if !limits.lacks((0..probes.len()).map(whole).sum()) {
            return Ok(());
        }
        let lasting = lasting.get_or_insert_with(|| last_of_keys(probes, self.is_ordered()));
        let mut prices = (0, 0);
        for i in (0..probes.len()).filter(|i| lasting[*i]) {
            let old = self.read_as_it_is(guard, probes[i], |entry| entry)?;
            if planned(i).is_refused(old, clock::now()) {
                return Ok(());
            }
            prices.0 += limits.price_of(planned(i), old);
            prices.1 += whole(i);
        }
        // If all are too large together, nothing is to be evicted for them.
        let price = if limits.has_capacity(prices.1) {
            prices.0
        } else {
            prices.1
        };
        if !paying.purse.affords(price) {
            limits.make_room(self, guard, probes, price, &mut paying.purse)?;
        }
        Ok(())
    }

    /// [`update_many`](Self::update_many), which also shows what has expired.
    #[inline(always)]
    fn update_many_as_it_is<R>(
        &self,
        guard: &Guard,
        probes: &[&Probe<'static>],
        author: Author,
        change: impl FnOnce(&mut dyn Locked) -> R,
    ) -> Result<R, Busy> {
        let is_other = matches!(self.structure, Structure::Other(_));
        if self.history.is_watched() && !is_other {
            return self.update_many_watched(guard, probes, author, change);
        }
        match &self.structure {
            Structure::Hash(engine) | Structure::LeasedHash(engine, _) => engine.update_many(guard, probes, change),
            Structure::Ca(engine) | Structure::LeasedCa(engine, _) => engine.update_many(guard, probes, change),
            Structure::Other(engine) => {
                let (mut change, mut result) = (Some(change), None);
                engine.update_many(guard, probes, &mut |places| {
                    result = change.take().map(|change| change(places));
                })?;
                Ok(result.expect("an engine runs the change"))
            }
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
        match &self.structure {
            Structure::Hash(engine) => engine.next_on(guard, after, trail, look),
            Structure::Ca(engine) => engine.next_on(guard, after, trail, look),
            _ => self.step_far(guard, after, trail, false, look),
        }
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
        match &self.structure {
            Structure::Hash(engine) => engine.follow(guard, trail, down, is_here, look),
            Structure::Ca(engine) => engine.follow(guard, trail, down, is_here, look),
            // With leases, the way is always searched.
            _ => None,
        }
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
        match &self.structure {
            Structure::Hash(engine) => engine.next_on(guard, before, trail, look),
            Structure::Ca(engine) => engine.prev_on(guard, before, trail, look),
            _ => self.step_far(guard, before, trail, true, look),
        }
    }

    /// [`next`](Self::next), or [`previous`](Self::previous) if `down`, of a store with leases, or with an engine behind virtual functions.
    #[inline(never)]
    fn step_far<R>(
        &self,
        guard: &Guard,
        from: Option<&Probe<'static>>,
        trail: &mut Trail,
        down: bool,
        look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        match &self.structure {
            Structure::LeasedHash(engine, leases) => leases.next_living((self, guard), from, look, |from, look| {
                engine.next_on(guard, from, trail, look)
            }),
            Structure::LeasedCa(engine, leases) => {
                leases.next_living((self, guard), from, look, |from, look| match down {
                    true => engine.prev_on(guard, from, trail, look),
                    false => engine.next_on(guard, from, trail, look),
                })
            }
            Structure::Other(engine) => looked(look, |look| match down {
                true => engine.previous(guard, from, look),
                false => engine.next(guard, from, look),
            }),
            _ => unreachable!("a step without a call"),
        }
    }

    /// See [`Engine::scan`]. Finds nothing in an ordered store: see [`range`](Self::range). The scan starts at position 0. Any number is a
    /// valid position.
    pub fn scan<'g>(
        &self,
        guard: &'g Guard,
        position: &mut u64,
        limit: usize,
        out: &mut Vec<ObjectRef<'g>>,
        mut expand: impl FnMut(Entry, &mut Vec<ObjectRef<'g>>),
    ) -> Result<bool, Busy> {
        match &self.structure {
            Structure::Hash(engine) => {
                let mut cursor = Position::of_number(*position);
                let more = engine.scan(guard, &mut cursor, limit, out, expand)?;
                *position = cursor.number();
                Ok(more)
            }
            Structure::LeasedHash(..) => self.scan_entries(guard, position, limit, out, &mut |entry, out| {
                // SAFETY: engines show entries under the guard.
                if unsafe { lives(entry) } {
                    expand(entry, out);
                }
            }),
            Structure::Ca(_) | Structure::LeasedCa(..) => Ok(false),
            Structure::Other(engine) => engine.scan(guard, position, limit, out, &mut expand),
        }
    }

    /// [`scan`](Self::scan) of a `hash`, for any type of results. Also shows what has expired.
    pub fn scan_entries<T>(
        &self,
        guard: &Guard,
        position: &mut u64,
        limit: usize,
        out: &mut Vec<T>,
        show: &mut dyn FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy> {
        let DefaultEngine::Hash(engine) = self.default_engine() else {
            unreachable!("not a hash table");
        };
        let mut cursor = Position::of_number(*position);
        let more = engine.scan(guard, &mut cursor, limit, out, show)?;
        *position = cursor.number();
        Ok(more)
    }

    /// [`range`](Self::range) of a `ca`, for any type of results. Also shows what has expired.
    pub fn range_entries<T>(
        &self,
        guard: &Guard,
        range: Range<'_, Probe<'static>>,
        limit: usize,
        out: &mut Vec<T>,
        show: &mut dyn FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy> {
        let DefaultEngine::Ca(engine) = self.default_engine() else {
            unreachable!("not a tree");
        };
        engine.range(guard, range, limit, out, show)
    }

    /// See [`OrderedEngine::range`]. Appends nothing in an unordered store.
    pub fn range<'g>(
        &self,
        guard: &'g Guard,
        range: Range<'_, Probe<'_>>,
        limit: usize,
        out: &mut Vec<ObjectRef<'g>>,
        mut expand: impl FnMut(Entry, &mut Vec<ObjectRef<'g>>),
    ) -> Result<bool, Busy> {
        let range = erased(range);
        match &self.structure {
            Structure::Hash(_) | Structure::LeasedHash(..) => Ok(false),
            Structure::Ca(engine) => engine.range(guard, range, limit, out, expand),
            Structure::LeasedCa(engine, leases) => {
                leases.living_range((self, guard), range, out, expand, |range, out, expand| {
                    engine.range(guard, range, limit, out, expand)
                })
            }
            Structure::Other(engine) => engine.range(guard, range, limit, out, &mut expand),
        }
    }

    /// See [`Ca::count_between`]. Only for an engine with order statistics. `limit` is that of a `ca`.
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
        match &self.structure {
            Structure::Ca(engine) | Structure::LeasedCa(engine, _) => Ok(engine.count_between(guard, between, limit)?),
            _ => Ok(self.counting_snapshot().count_between(guard, between)?),
        }
    }

    /// See [`Ca::find_nth`]. Only for an engine with order statistics. `limit` is that of a `ca`.
    pub fn find_nth<'g>(
        &self,
        guard: &'g Guard,
        place: (usize, bool),
        limit: usize,
        out: &mut Vec<ObjectRef<'g>>,
        mut expand: impl FnMut(Entry, &mut Vec<ObjectRef<'g>>),
    ) -> Result<(), Failure> {
        match &self.structure {
            Structure::Ca(engine) => Ok(engine.find_nth(guard, place, limit, out, expand)?),
            Structure::LeasedCa(engine, _) => {
                let mut dead = false;
                engine.find_nth(guard, place, limit, out, |entry, out| {
                    // SAFETY: engines show entries under the guard.
                    dead = !unsafe { lives(entry) };
                    expand(entry, out);
                })?;
                // It has expired since the caller has removed all that had.
                if dead {
                    Err(Failure::Busy)
                } else {
                    Ok(())
                }
            }
            _ => Ok(self.counting_snapshot().find_nth(guard, place, out, &mut expand)?),
        }
    }

    fn counting_snapshot(&self) -> &dyn Frozen {
        self.snapshot()
            .expect("an engine with order statistics, or a snapshot of one")
    }

    /// See [`Engine::buckets`].
    pub fn buckets(&self) -> usize {
        each!(self, engine => engine.buckets())
    }

    /// See [`Engine::slot`].
    pub fn slot<'g>(
        &self,
        guard: &'g Guard,
        number: usize,
        mut expand: impl FnMut(Entry, &mut Vec<ObjectRef<'g>>),
    ) -> Result<Option<Vec<ObjectRef<'g>>>, Busy> {
        let leased = self.leases().is_some();
        let mut expand = |entry: Entry, out: &mut Vec<ObjectRef<'g>>| {
            // SAFETY: engines show entries under the guard.
            if !leased || unsafe { lives(entry) } {
                expand(entry, out);
            }
        };
        each!(self, engine => engine.slot(guard, number, &mut expand))
    }

    /// The number of base nodes of a contention adapting tree.
    pub fn base_nodes(&self) -> Option<usize> {
        let count = match &self.structure {
            Structure::Hash(_) | Structure::LeasedHash(..) => 0,
            Structure::Ca(engine) | Structure::LeasedCa(engine, _) => engine.base_nodes(),
            Structure::Other(engine) => engine.base_nodes(),
        };
        (count > 0).then_some(count)
    }

    /// The number of bytes that the store uses.
    pub fn total_bytes(&self) -> usize {
        size_of::<Self>() + self.structure_bytes() + usize::try_from(self.counters.sum_of(BYTES)).unwrap_or(0)
    }

    /// The number of bytes of the engine, without those that are a part of the store.
    pub fn structure_bytes(&self) -> usize {
        match &self.structure {
            Structure::Hash(engine) => engine.bytes() - size_of_val(engine),
            Structure::Ca(engine) => engine.bytes() - size_of_val(engine),
            Structure::LeasedHash(engine, leases) => engine.bytes() - size_of_val(engine) + leases.bytes(),
            Structure::LeasedCa(engine, leases) => engine.bytes() - size_of_val(engine) + leases.bytes(),
            Structure::Other(engine) => engine.bytes(),
        }
    }

    /// The number of bytes of a default engine, without those that are a part of the store.
    #[inline]
    pub fn engine_bytes(&self) -> usize {
        match self.default_engine() {
            DefaultEngine::Hash(engine) => engine.bytes() - size_of_val(engine),
            DefaultEngine::Ca(engine) => engine.bytes() - size_of_val(engine),
        }
    }

    /// Makes a default engine smaller, until it takes at most so many bytes without those that are a part of the store. Ends after a bounded
    /// time in any case. Fails if other threads were in the way.
    pub fn trim(&self, guard: &Guard, most: usize) -> Result<(), Busy> {
        match self.default_engine() {
            DefaultEngine::Hash(engine) => engine.trim(guard, most + size_of_val(engine)),
            DefaultEngine::Ca(engine) => engine.trim(guard, most + size_of_val(engine)),
        }
    }

    /// The number of bytes of the store, with those of its counters and of its log.
    pub fn all_bytes(&self) -> usize {
        self.total_bytes() + self.counter_bytes() + self.log.bytes()
    }

    /// The number of bytes of the counters' stripes. Only stores with many writers, or with events, have stripes.
    pub fn counter_bytes(&self) -> usize {
        self.counters.stripe_bytes() + self.events().map_or(0, Events::bytes)
    }

    /// Frees about `limit` places of a store that has no other user. Returns true when nothing is left.
    pub fn dismantle(&mut self, limit: usize) -> bool {
        let mut free = |entry: Entry| {
            // SAFETY: the store has no other user, and the engine shows each entry once.
            unsafe { free_entry(entry.body) }
        };
        match &mut self.structure {
            Structure::Hash(engine) | Structure::LeasedHash(engine, _) => engine.dismantle(limit, &mut free),
            Structure::Ca(engine) | Structure::LeasedCa(engine, _) => engine.dismantle(limit, &mut free),
            Structure::Other(engine) => engine.dismantle(limit, &mut free),
        }
    }
}

/// The words that [`Store::read_entry_far`] returns.
#[inline(always)]
fn words(entry: Result<Option<Entry>, Busy>) -> (u64, u64) {
    match entry {
        Ok(Some(entry)) => (entry.key, entry.body),
        Ok(None) => NO_ENTRY,
        Err(Busy) => BUSY,
    }
}

/// The same of an entry with a lease. With `U`, it counts as used.
#[inline(always)]
fn living<U: Use>(leases: &Leases, entry: Result<Option<Entry>, Busy>) -> (u64, u64) {
    let Ok(Some(found)) = entry else {
        return words(entry);
    };
    // SAFETY: the engine has validated the entry.
    let lease = unsafe { lease(found) };
    if is_expired(lease) {
        return NO_ENTRY;
    }
    if U::COUNTS {
        leases.used(found.body, lease);
    }
    (found.key, found.body)
}

/// The range with probes of any lifetime.
fn erased<'a>(range: Range<'a, Probe<'_>>) -> Range<'a, Probe<'static>> {
    Range {
        from: range.from.map(|(probe, inclusive)| (probe.erase(), inclusive)),
        to: range.to.map(|probe| probe.erase()),
        down: range.down,
    }
}

/// The result of `look` for an engine behind virtual functions.
#[inline(never)]
fn looked<R>(
    mut look: impl FnMut(Option<Entry>) -> R,
    call: impl FnOnce(&mut dyn FnMut(Option<Entry>)) -> Result<(), Busy>,
) -> Result<R, Busy> {
    let mut result = None;
    call(&mut |entry| result = Some(look(entry)))?;
    Ok(result.expect("an engine looks"))
}

/// Notes whether a change writes its key.
#[inline(always)]
fn noting<R>(wrote: &mut bool, (step, result): (Step, R)) -> (Step, R) {
    *wrote |= matches!(step, Step::Put(_) | Step::Remove);
    (step, result)
}
