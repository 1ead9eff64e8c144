//! Which keys of some contents processes are making objects for, each in a *flight*: see `src/cats_fetch.erl`.
//!
//! A flight is a process of the VM that stands for the making of one object. Those that wait for the object wait for the end of the
//! process. Whoever changes the key ends the flight: the key has none any more, and the process is told.
//!
//! Writers know from a bit of the contents' [history](History), which they look at anyway, whether there are
//! flights.

use crate::exclusive::Exclusive;
use crate::failure::Failure;
use crate::garbage;
use crate::history::History;
use crate::object::key::Key;
use cats_sync::facade::yield_now;
use cats_sync::Busy;
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

impl Flights {
    /// The flight of a key.
    pub(crate) fn of(&self, key: &Key) -> Result<Option<Flight>, Busy> {
        self.0.with(|open| open.flights.get(key).copied())
    }

    /// Begins a flight, unless the key has one for which `lives` returns true. Returns whether it did. Fails if `check` does, and with
    /// [`Failure::Busy`] if the table has given the contents up. The history is that of the same contents.
    pub(crate) fn begin(
        &self,
        history: &History,
        (key, flight): (Key, Flight),
        lives: impl Fn(&Flight) -> bool,
        check: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<bool, Failure> {
        self.0.with(|open| {
            check()?;
            if open.closed {
                return Err(Failure::Busy);
            }
            if open.flights.get(&key).is_some_and(lives) {
                return Ok(false);
            }
            open.flights.insert(key, flight);
            history.set_awaited(true);
            Ok(true)
        })?
    }

    /// Ends the flight of a key that was written.
    pub(crate) fn end(&self, history: &History, key: &Key) {
        if let Some(flight) = self.remove(history, key, |_| true) {
            tell(flight);
        }
    }

    /// Ends the flight of a key, if `is_it`. Its process is not told.
    pub(crate) fn remove(&self, history: &History, key: &Key, is_it: impl Fn(&Flight) -> bool) -> Option<Flight> {
        self.surely_with(|open| {
            open.flights.get(key).filter(|flight| is_it(flight))?;
            let (_key, flight) = open.flights.remove_entry(key)?;
            if open.flights.is_empty() {
                history.set_awaited(false);
            }
            Some(flight)
        })
    }

    /// Ends all flights, and lets none begin. To be called when the table gives the contents up.
    pub(crate) fn close(&self, history: &History) {
        let flights = self.surely_with(|open| {
            open.closed = true;
            history.set_awaited(false);
            std::mem::take(&mut open.flights)
        });
        flights.into_values().for_each(tell);
    }

    /// What the caller has done cannot be taken back, so it waits for the lock. The holder needs a bounded time, unless its thread does not
    /// run.
    fn surely_with<R>(&self, mut f: impl FnMut(&mut Open) -> R) -> R {
        loop {
            match self.0.with(&mut f) {
                Ok(result) => return result,
                Err(_) => yield_now(),
            }
        }
    }
}
