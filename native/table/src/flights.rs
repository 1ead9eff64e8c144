//! Which keys of some contents processes are making objects for, each in a *flight*: see `src/cats_flight.erl`.
//!
//! A flight is a process of the VM that stands for the making of one object, or of those of several keys. Those that wait for an object wait
//! for the end of the process, or for what it tells of the key. Whoever changes the key ends its flight: the key has none any more, and the
//! process is told.
//!
//! The function that makes an object may [fail](crate::failures), and that may be remembered for some time. A write to the key ends that too.
//!
//! Writers know from a bit of the contents' [history](History), which they look at anyway, whether there are
//! flights or failures.

use crate::exclusive::Exclusive;
use crate::expiry;
use crate::failure::Failure;
use crate::failures::{Failed, Failures};
use crate::garbage;
use crate::history::History;
use crate::object::key::Key;
use cats_sync::clock;
use cats_sync::facade::yield_now;
use cats_sync::Busy;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

/// A flight of a key: the word of its pid, and that of the process that makes the object, its leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flight {
    pub process: u64,
    pub leader: u64,
    /// Which of its keys this is, from 1 on. 0 if it has no others.
    pub number: u64,
}

/// A flight, and whether its leader is storing the object. Then nobody needs to be told that the key was written.
pub(crate) struct Row {
    flight: Flight,
    stores: bool,
}

/// What is known of a key.
pub enum Known {
    Flight(Flight),
    Failed(Failed),
}

/// Tells the process of a flight that the key with this number was written. 0 if none of its keys has a flight any more.
type Tell = fn(process: u64, number: u64);

/// What tells processes, and what wakes the thread that does.
static TELL: OnceLock<(Tell, fn())> = OnceLock::new();

/// Sets what tells processes, on the thread that calls [`Registry::reap`](crate::Registry::reap), and what wakes this thread. The first call
/// counts.
pub fn on_end(tell: Tell, wake: fn()) {
    TELL.get_or_init(|| (tell, wake));
}

/// Has the reaper tell processes. A thread of the VM may send messages only in a call that gives it an environment.
fn have_told(mut told: impl FnMut(Tell) + Send + 'static) {
    if let Some((tell, wake)) = TELL.get() {
        garbage::leave(Box::new(move || {
            told(*tell);
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
    flights: BTreeMap<Key, Row>,
    /// Made when the first function fails whose failure is remembered.
    failures: Option<Box<Failures>>,
    /// The table has given the contents up.
    closed: bool,
}

impl Open {
    /// Notes whether writers have to look.
    fn note(&self, history: &History) {
        let failures = self.failures.as_ref().is_some_and(|failures| !failures.is_empty());
        history.set_awaited(failures || !self.flights.is_empty());
    }

    fn flight(&self, key: &Key) -> Option<Flight> {
        self.flights.get(key).map(|row| row.flight)
    }

    fn failed(&self, key: &Key) -> Option<Known> {
        let failed = self.failures.as_ref()?.of(key, clock::now())?;
        Some(Known::Failed(failed.clone()))
    }
}

impl Flights {
    /// The flight of a key for which `lives` returns true, or else the failure that is remembered.
    pub(crate) fn of(&self, key: &Key, lives: impl Fn(&Flight) -> bool) -> Result<Option<Known>, Busy> {
        self.0.with(|open| {
            let flight = open.flight(key).filter(lives).map(Known::Flight);
            flight.or_else(|| open.failed(key))
        })
    }

    /// Begins a flight, unless the key has another one for which `lives` returns true, or `failures` count and one is remembered. Returns
    /// what is so, or `None`. Fails if `check` does, and with [`Failure::Busy`] if the table has given the contents up. The history is that
    /// of the same contents.
    pub(crate) fn begin(
        &self,
        history: &History,
        (key, flight): (Key, Flight),
        (lives, failures): (impl Fn(&Flight) -> bool, bool),
        check: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<Option<Known>, Failure> {
        self.0.with(|open| {
            check()?;
            if open.closed {
                return Err(Failure::Busy);
            }
            if let Some(other) = open.flight(&key).filter(lives) {
                return Ok((other != flight).then_some(Known::Flight(other)));
            }
            if let Some(failed) = failures.then(|| open.failed(&key)).flatten() {
                return Ok(Some(failed));
            }
            open.flights.insert(key, Row { flight, stores: false });
            history.set_awaited(true);
            Ok(None)
        })?
    }

    /// Notes that the leader of a key's flight now stores the object, if `is_it`.
    pub(crate) fn store(&self, key: &Key, is_it: impl Fn(&Flight) -> bool) {
        self.surely_with(|open| {
            if let Some(row) = open.flights.get_mut(key).filter(|row| is_it(&row.flight)) {
                row.stores = true;
            }
        });
    }

    /// Ends the flight of a key that was written, and forgets its failure.
    pub(crate) fn end(&self, history: &History, key: &Key) {
        if let Some(Row { flight, stores: false }) = self.remove(history, key, |_| true, true) {
            have_told(move |tell| tell(flight.process, flight.number));
        }
    }

    /// Ends the flight of a key, if `is_it`, as its function has failed. Its process is not told. The failure is remembered for some
    /// milliseconds. `first` is called before the first failure of the contents is remembered, under the lock of the flights.
    pub(crate) fn fail(
        &self,
        history: &History,
        key: Key,
        is_it: impl Fn(&Flight) -> bool,
        (failed, time): (Failed, u64),
        first: impl FnOnce(),
    ) {
        let until = clock::now() + time;
        let mut given = Some((key, failed, first));
        self.surely_with(|open| {
            let Some((key, failed, first)) = given
                .take()
                .filter(|(key, ..)| open.flight(key).is_some_and(|flight| is_it(&flight)))
            else {
                return;
            };
            open.flights.remove(&key);
            let failures = open.failures.get_or_insert_with(|| {
                first();
                Box::default()
            });
            failures.remember(key, failed, until);
            open.note(history);
        });
        expiry::wake_by(until);
    }

    /// Forgets failures whose time is over, for the reaper. Returns whether all of these are forgotten.
    pub(crate) fn expire(&self, history: &History) -> Result<bool, Busy> {
        self.0.with(|open| {
            let Some(failures) = open.failures.as_mut().filter(|failures| !failures.is_empty()) else {
                return true;
            };
            let complete = failures.expire(clock::now());
            open.note(history);
            complete
        })
    }

    /// The time at which the reaper has something to forget. It comes again if somebody else has the lock.
    pub(crate) fn due(&self) -> u64 {
        let due = self
            .0
            .with(|open| open.failures.as_ref().map(|failures| failures.due()));
        due.unwrap_or(Some(0)).unwrap_or(u64::MAX)
    }

    /// The number of keys that have a flight, also of those whose process has died.
    pub(crate) fn rows(&self) -> Result<usize, Busy> {
        self.0.with(|open| open.flights.len())
    }

    /// The bytes of the failures.
    pub(crate) fn bytes(&self) -> usize {
        let bytes = self
            .0
            .with(|open| open.failures.as_ref().map(|failures| failures.bytes()));
        bytes.ok().flatten().unwrap_or(0)
    }

    /// Ends the flight of a key, if `is_it`. Its process is not told. If it `forgets`, also forgets the failure of the key.
    pub(crate) fn remove(
        &self,
        history: &History,
        key: &Key,
        is_it: impl Fn(&Flight) -> bool,
        forgets: bool,
    ) -> Option<Row> {
        self.surely_with(|open| {
            let failures = open.failures.as_mut().filter(|_| forgets);
            let forgotten = failures.is_some_and(|failures| failures.forget(key));
            let ended = match open.flight(key).is_some_and(|flight| is_it(&flight)) {
                true => open.flights.remove(key),
                false => None,
            };
            if ended.is_some() || forgotten {
                open.note(history);
            }
            ended
        })
    }

    /// Ends all flights, forgets all failures, and lets none begin. To be called when the table gives the contents up. Returns whether
    /// a failure was ever remembered.
    pub(crate) fn close(&self, history: &History) -> bool {
        let (flights, failures) = self.surely_with(|open| {
            open.closed = true;
            history.set_awaited(false);
            (std::mem::take(&mut open.flights), open.failures.take())
        });
        if !flights.is_empty() {
            let mut rows = Some(flights);
            have_told(move |tell| {
                let rows = rows.take().into_iter().flat_map(BTreeMap::into_values);
                let processes: BTreeSet<u64> = rows.map(|row| row.flight.process).collect();
                processes.into_iter().for_each(|process| tell(process, 0));
            });
        }
        failures.is_some()
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
