//! What contents have beside their objects: how many these are, and who must learn of writes.

use crate::flights::Flights;
use crate::history::History;
use crate::object::key::Key;
use crate::object::schema::Probe;
use crate::object::{body_bytes, more_bytes};
use crate::write_log::{Log, WriteLog};
use cats_engine::{Entry, Step};
use cats_sync::stripes::Stripes;

const OBJECTS: usize = 0;
const BYTES: usize = 1;

/// See the module's documentation.
pub struct Books {
    /// The number of objects, and the bytes of their blocks and groups. Counted while the objects' places are locked.
    pub counters: Stripes<2>,
    /// The snapshots of these contents.
    pub history: History,
    /// The keys that objects are being made for.
    pub flights: Flights,
    /// The keys that are written while long transactions read.
    pub log: WriteLog,
}

impl Books {
    pub fn new(counters: Stripes<2>) -> Self {
        Self {
            counters,
            history: History::default(),
            flights: Flights::default(),
            log: WriteLog::default(),
        }
    }

    /// See [`Store::count`](super::Store::count).
    #[inline]
    pub fn count(&self, objects: i64, bytes: i64) {
        if objects != 0 {
            self.counters.add_to(OBJECTS, objects);
        }
        if bytes != 0 {
            self.counters.add_to(BYTES, bytes);
        }
    }

    /// Counts what a step puts. Neither object is a group.
    #[inline(always)]
    pub fn count_step(&self, old: Option<Entry>, step: Step) {
        match (step, old) {
            // SAFETY: the place is locked, and nobody else knows the new object yet.
            (Step::Put(new), Some(old)) => self.count(0, unsafe { more_bytes(new.body, old.body) }),
            // SAFETY: as above.
            (Step::Put(new), None) => self.count(1, unsafe { body_bytes(new.body) } as i64),
            _ => (),
        }
    }

    /// The number of objects at one instant.
    pub fn size(&self) -> usize {
        usize::try_from(self.counters.sum_of(OBJECTS)).unwrap_or(0)
    }

    /// The bytes of the objects.
    pub fn object_bytes(&self) -> usize {
        usize::try_from(self.counters.sum_of(BYTES)).unwrap_or(0)
    }

    /// The log, if somebody reads it.
    #[inline]
    pub fn wanted_log(&self) -> Option<&Log> {
        match self.history.is_logged() {
            true => self.log.wanted(&self.history),
            false => None,
        }
    }

    /// To be called after a key was written while there were flights: ends the flight of the key.
    #[cold]
    #[inline(never)]
    pub fn wrote(&self, probe: &Probe<'_>, ordered: bool) {
        self.flights.end(&self.history, &Key::sought(probe.term(), ordered));
    }
}

/// Notes whether a change writes its key.
#[inline(always)]
pub fn noting<R>(wrote: &mut bool, (step, result): (Step, R)) -> (Step, R) {
    *wrote |= matches!(step, Step::Put(_) | Step::Remove);
    (step, result)
}
