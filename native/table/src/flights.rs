//! Which keys of some contents processes are making objects for, each in a *flight*: see `src/cats_fetch.erl`.
//!
//! A flight is a process of the VM that stands for the making of one object. Those that wait for the object wait for the end of the
//! process. Whoever changes the key ends the flight: the key has none any more, and the process is told.
//!
//! Writers know from a bit of the contents' [history](crate::history::History), which they look at anyway, whether there are
//! flights.

use crate::exclusive::Exclusive;
use crate::failure::Failure;
use crate::garbage;
use crate::object::key::Key;
use crate::object::schema::Probe;
use crate::store::Store;
use crate::table::Handle;
use cats_sync::facade::yield_now;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// A flight: the word of its pid, and that of the process that makes the object, its leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flight {
    pub process: u64,
    pub leader: u64,
}

/// Tells the process of a flight that the flight was ended.
type Tell = fn(process: u64);

/// What tells processes, and what wakes the thread that does.
static TELL: OnceLock<(Tell, fn())> = OnceLock::new();

/// Sets what tells processes, on the thread that calls [`Registry::reap`](crate::Registry::reap), and what wakes this thread. The first call
/// counts.
pub fn on_end(tell: Tell, wake: fn()) {
    TELL.get_or_init(|| (tell, wake));
}

/// Has the reaper tell it. A thread of the VM may send messages only in a call that gives it an environment.
fn tell(flight: Flight) {
    if let Some((tell, wake)) = TELL.get() {
        garbage::leave(Box::new(move || {
            tell(flight.process);
            Ok(())
        }));
        wake();
    }
}

/// The flights of some contents.
#[derive(Default)]
pub struct Flights(Exclusive<Open>);

#[derive(Default)]
struct Open {
    flights: BTreeMap<Key, Flight>,
    /// The table has given the contents up.
    closed: bool,
}

impl Handle<'_> {
    /// The flight of a key.
    pub fn flight_to(self, probe: &Probe<'_>) -> Result<Option<Flight>, Failure> {
        let store = self.store();
        let key = Key::sought(probe.term(), store.is_ordered());
        let flight = store.flights().0.with(|open| open.flights.get(&key).copied())?;
        self.still_named()?;
        Ok(flight)
    }

    /// Begins a flight, unless the key has one for which `lives` returns true. Returns whether it did. Fails with [`Failure::Busy`] if the
    /// table has other contents by now.
    pub fn begin_flight(
        self,
        probe: &Probe<'_>,
        flight: Flight,
        lives: impl Fn(&Flight) -> bool,
    ) -> Result<bool, Failure> {
        let store = self.store();
        // Made before the lock is taken, as it may be long.
        let key = Key::own(probe.term(), store.is_ordered());
        store.flights().0.with(|open| {
            self.still_named()?;
            if open.closed {
                return Err(Failure::Busy);
            }
            if open.flights.get(&key).is_some_and(lives) {
                return Ok(false);
            }
            open.flights.insert(key, flight);
            store.history().set_awaited(true);
            Ok(true)
        })?
    }

    /// Ends the flight of a key, if it is the one of this process, which is not told. Returns whether it was.
    pub fn end_flight(self, probe: &Probe<'_>, process: u64) -> bool {
        let store = self.store();
        let key = Key::sought(probe.term(), store.is_ordered());
        store.remove_flight(&key, |flight| flight.process == process).is_some()
    }
}

impl Store {
    /// To be called after a key was written while there were flights: ends the flight of the key.
    #[cold]
    #[inline(never)]
    pub(crate) fn wrote(&self, probe: &Probe<'_>) {
        let key = Key::sought(probe.term(), self.is_ordered());
        if let Some(flight) = self.remove_flight(&key, |_| true) {
            tell(flight);
        }
    }

    fn remove_flight(&self, key: &Key, is_it: impl Fn(&Flight) -> bool) -> Option<Flight> {
        self.with_flights(|open| {
            open.flights.get(key).filter(|flight| is_it(flight))?;
            let (_key, flight) = open.flights.remove_entry(key)?;
            if open.flights.is_empty() {
                self.history().set_awaited(false);
            }
            Some(flight)
        })
    }

    /// Ends all flights, and lets none begin. To be called when the table gives the contents up.
    pub(crate) fn close_flights(&self) {
        let flights = self.with_flights(|open| {
            open.closed = true;
            self.history().set_awaited(false);
            std::mem::take(&mut open.flights)
        });
        flights.into_values().for_each(tell);
    }

    /// What the caller has done cannot be taken back, so it waits for the lock. The holder needs a bounded time, unless its thread does not
    /// run.
    fn with_flights<R>(&self, mut f: impl FnMut(&mut Open) -> R) -> R {
        loop {
            match self.flights().0.with(&mut f) {
                Ok(result) => return result,
                Err(_) => yield_now(),
            }
        }
    }
}
