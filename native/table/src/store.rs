//! The contents of a table: an engine with its counters. `delete_all_objects` replaces the whole of it.

use crate::group::free_entry;
use crate::options::EngineName;

use crate::schema::{Exact, Ordered, Probe};
use cats_engine::ca::Ca;
use cats_engine::hash::Hash;
use cats_engine::{Engine, Entry, Locked, OrderedEngine, Step};
use cats_sync::epoch::Guard;
use cats_sync::stripes::Stripes;
use cats_sync::Busy;

enum Structure {
    Hash(Hash<Exact>),
    Ca(Ca<Ordered>),
}

/// See the module's documentation.
pub struct Store {
    structure: Structure,
    /// Objects, and bytes of their blocks and groups; counted while their places are locked.
    counters: Stripes<2>,
}

const OBJECTS: usize = 0;
const BYTES: usize = 1;

/// Position of a scan of an unordered store.
pub type Cursor = <Hash<Exact> as Engine<Exact>>::Cursor;

macro_rules! each {
    ($self:expr, $engine:ident => $call:expr) => {
        match &$self.structure {
            Structure::Hash($engine) => $call,
            Structure::Ca($engine) => $call,
        }
    };
}

impl Store {
    /// An empty store for objects whose key is at `key`, counted from 0; for many writers at once when `shared`.
    /// Nothing when memory is exhausted.
    pub fn new(engine: EngineName, key: usize, shared: bool) -> Option<Self> {
        Some(Self {
            structure: match engine {
                EngineName::Hash => Structure::Hash(Hash::new(Exact::new(key))?),
                EngineName::Ca => Structure::Ca(Ca::new(Ordered::new(key))),
            },
            counters: if shared { Stripes::striped() } else { Stripes::new() },
        })
    }

    /// Counts objects and bytes that came or went. The caller holds the lock of their place.
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
        matches!(self.structure, Structure::Ca(_))
    }

    /// Asks the processor for what a call with this key will read first.
    #[inline]
    pub fn prefetch(&self, guard: &Guard, probe: &Probe<'_>) {
        if let Structure::Hash(engine) = &self.structure {
            engine.prefetch(guard, probe.erase());
        }
    }

    /// See [`Engine::read`].
    #[inline(always)]
    pub fn read<R>(&self, guard: &Guard, probe: &Probe<'_>, look: impl FnMut(Option<Entry>) -> R) -> Result<R, Busy> {
        let probe = probe.erase();
        each!(self, engine => engine.read(guard, probe, look))
    }

    /// See [`Engine::update`].
    #[inline(always)]
    pub fn update<R>(
        &self,
        guard: &Guard,
        probe: &Probe<'_>,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        let probe = probe.erase();
        each!(self, engine => engine.update(guard, probe, change))
    }

    /// See [`Engine::update_many`].
    pub fn update_many<R>(
        &self,
        guard: &Guard,
        probes: &[&Probe<'_>],
        change: impl FnOnce(&mut dyn Locked) -> R,
    ) -> Result<R, Busy> {
        let probes: Vec<_> = probes.iter().map(|probe| probe.erase()).collect();
        each!(self, engine => engine.update_many(guard, &probes, change))
    }

    /// See [`Engine::next`].
    pub fn next<R>(
        &self,
        guard: &Guard,
        after: Option<&Probe<'_>>,
        look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        let after = after.map(|probe| probe.erase());
        each!(self, engine => engine.next(guard, after, look))
    }

    /// As [`next`](Self::next), downwards; upwards in an unordered store, as `prev` of a hash table is its `next` in ETS.
    pub fn previous<R>(
        &self,
        guard: &Guard,
        before: Option<&Probe<'_>>,
        look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        let before = before.map(|probe| probe.erase());
        match &self.structure {
            Structure::Hash(engine) => engine.next(guard, before, look),
            Structure::Ca(engine) => engine.prev(guard, before, look),
        }
    }

    /// See [`Engine::scan`]; finds nothing in an ordered store, see [`range`](Self::range).
    pub fn scan<T>(
        &self,
        guard: &Guard,
        cursor: &mut Cursor,
        limit: usize,
        out: &mut Vec<T>,
        expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy> {
        match &self.structure {
            Structure::Hash(engine) => engine.scan(guard, cursor, limit, out, expand),
            Structure::Ca(_) => Ok(false),
        }
    }

    /// See [`OrderedEngine::range`]; appends nothing in an unordered store.
    #[allow(clippy::too_many_arguments)]
    pub fn range<T>(
        &self,
        guard: &Guard,
        from: Option<&Probe<'_>>,
        inclusive: bool,
        down: bool,
        limit: usize,
        out: &mut Vec<T>,
        expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy> {
        let from = from.map(|probe| probe.erase());
        match &self.structure {
            Structure::Hash(_) => Ok(false),
            Structure::Ca(engine) => engine.range(guard, from, inclusive, down, limit, out, expand),
        }
    }

    /// See [`Engine::buckets`].
    pub fn buckets(&self) -> usize {
        each!(self, engine => engine.buckets())
    }

    /// See [`Engine::slot`].
    pub fn slot<T>(
        &self,
        guard: &Guard,
        number: usize,
        expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<Option<Vec<T>>, Busy> {
        each!(self, engine => engine.slot(guard, number, expand))
    }

    /// The number of base nodes of a contention adapting tree.
    pub fn base_nodes(&self) -> Option<usize> {
        match &self.structure {
            Structure::Hash(_) => None,
            Structure::Ca(engine) => Some(engine.base_nodes()),
        }
    }

    /// Bytes that the store holds.
    pub fn total_bytes(&self) -> usize {
        let structure = each!(self, engine => engine.bytes());
        size_of::<Self>() + structure + usize::try_from(self.counters.sum_of(BYTES)).unwrap_or(0)
    }

    /// Frees about `limit` places of a store that has no other user; true when nothing is left.
    pub fn dismantle(&mut self, limit: usize) -> bool {
        let mut free = |entry: Entry| {
            // SAFETY: the store has no other user, and the engine shows each entry once.
            unsafe { free_entry(entry.body) }
        };
        match &mut self.structure {
            Structure::Hash(engine) => engine.dismantle(limit, &mut free),
            Structure::Ca(engine) => engine.dismantle(limit, &mut free),
        }
    }
}
