//! The flights of `cats_flight`, and who waits for which.

use super::expiry::duration;
use super::many::{of_each, MOST_AT_ONCE};
use super::objects::block;
use super::one::check_single;
use super::*;
use cats_table::flights::{Flight, Known};
use cats_term::Scratch;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, MutexGuard};

pub use cats_table::flights::on_end;

fn process(env: Env, pid: Term) -> Result<u64, Failure> {
    env.local_pid(pid).map(|_| pid.0).ok_or_else(bad)
}

/// `{Flight, Leader, Number}` of a key, `{failed, Failure}`, or `false`. A flight whose process has ended counts as none.
pub fn flight_to(env: Env, &[table, key]: &[Term; 2]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, WRITE)?;
    with_probe(env, handle.table(), key, |probe| {
        let Some(known) = handle.flight_to(probe, |flight| lives(env, flight))? else {
            return Ok(atoms::false_());
        };
        let mut words = 0;
        let known = known_term(env, &known, &mut words)?;
        account(env, words);
        Ok(known)
    })
}

/// What is known of a key. Adds its words to those of the call. Fails with `Big` if these become too many for this scheduler.
fn known_term(env: Env, known: &Known, words: &mut usize) -> Result<Term, Failure> {
    Ok(match known {
        Known::Flight(flight) => env.tuple(&[Term(flight.process), Term(flight.leader), env.unsigned(flight.number)]),
        Known::Failed(failed) => {
            let failed = failed.as_ref().as_ref();
            count_words(words, failed.words())?;
            env.tuple(&[env.atom("failed"), decode::term(env, failed.element(0))?])
        }
    })
}

fn count_words(words: &mut usize, more: usize) -> Result<(), Failure> {
    check_words(*words + more)?;
    *words += more;
    Ok(())
}

/// Whether the process of a flight lives.
fn lives(env: Env, flight: &Flight) -> bool {
    monitor::is_alive(env, Term(flight.process))
}

/// Begins the flight of a key, unless it has one. Returns whether it did.
pub fn flight_begin(env: Env, &[table, key, flight, leader]: &[Term; 4]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, WRITE)?;
    let flight = Flight {
        process: process(env, flight)?,
        leader: process(env, leader)?,
        number: 0,
    };
    with_probe(env, handle.table(), key, |probe| {
        let known = handle.begin_flight(probe, flight, |other| lives(env, other), false)?;
        Ok(atoms::boolean(known.is_none()))
    })
}

/// So many keys are treated in a call that begins flights: one takes some microseconds.
const BEGUN_AT_ONCE: usize = 64;

/// Begins the flights of keys, which get the numbers from `first` on. Returns for each key: `true`; `[Object]` if the table has it, so that
/// the key gets no flight; what [`flight_to`] returns if it has a flight; and the same, if `failures` is true, where a failure is remembered.
/// If one call cannot treat all keys: `{List, Rest}` with the results for the first keys and the keys that are left.
pub fn flights_begin(env: Env, &[table, keys, first, process, leader, failures]: &[Term; 6]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, WRITE)?;
    check_single(handle.table())?;
    let first = first.small_integer().and_then(|first| u64::try_from(first).ok());
    let mut flight = Flight {
        process: self::process(env, process)?,
        leader: self::process(env, leader)?,
        number: first.ok_or_else(bad)?,
    };
    let failures = failures == atoms::true_();
    let (mut results, mut words) = (SmallVec::<[Term; BEGUN_AT_ONCE]>::new(), 0);
    let rest = of_each(env, handle, keys, BEGUN_AT_ONCE, |probe| {
        results.push(begun(env, handle, probe, flight, failures, &mut words)?);
        flight.number += 1;
        Ok(())
    })?;
    account(env, words + results.len() * 60);
    Ok(match rest.0 {
        NIL => env.list(&results),
        _ => env.tuple(&[env.list(&results), rest]),
    })
}

/// Begins the flight of one of several keys. If that fails, it may be done again.
fn begun(
    env: Env,
    handle: Handle<'_>,
    probe: &Probe<'_>,
    flight: Flight,
    failures: bool,
    words: &mut usize,
) -> Result<Term, Failure> {
    if let Some(known) = handle.begin_flight(probe, flight, |other| lives(env, other), failures)? {
        return known_term(env, &known, words);
    }
    // Another process may have stored it before this flight began.
    let mut scratch = Scratch::new();
    let Some(object) = handle.get::<Used>(probe, &mut scratch)? else {
        return Ok(atoms::true_());
    };
    count_words(words, object.words())?;
    let found = env.cons(tuple(env, &object)?, Term(NIL));
    handle.outdate_flight(probe);
    Ok(found)
}

/// Notes that the leader of a flight stores the objects of the first keys: the flight is not told that they are written. Returns the keys that
/// are left.
pub fn flights_store(env: Env, &[table, keys, flight]: &[Term; 3]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, INFO)?;
    let flight = process(env, flight)?;
    of_flights(env, handle, keys, |probe| handle.store_flight(probe, flight))
}

/// Ends the flights of the first keys that have this one, and returns the keys that are left. Any process may do this, as the flight of a
/// private table does.
pub fn flights_end(env: Env, &[table, keys, flight]: &[Term; 3]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, INFO)?;
    let flight = process(env, flight)?;
    of_flights(env, handle, keys, |probe| handle.end_flight(probe, flight))
}

/// The same as the function of the flight has failed. Remembers the failure for some milliseconds.
pub fn flights_fail(env: Env, &[table, keys, flight, failed, time]: &[Term; 5]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, INFO)?;
    let flight = process(env, flight)?;
    let time = duration(env, time)?;
    let failed = Arc::new(block(env, &[failed])?);
    of_flights(env, handle, keys, |probe| {
        handle.fail_flight(probe, flight, failed.clone(), time);
    })
}

fn of_flights(env: Env, handle: Handle<'_>, keys: Term, mut act: impl FnMut(&Probe<'_>)) -> Result<Term, Failure> {
    let mut count = 0;
    let rest = of_each(env, handle, keys, MOST_AT_ONCE, |probe| {
        count += 1;
        act(probe);
        Ok(())
    })?;
    account(env, count * 30);
    Ok(rest)
}

/// Tells the process of a flight that the key with this number was written, 0 if the flight has ended. Called by the reaper.
pub(super) fn tell(process: u64, number: u64) {
    reaper::send_term(process, |env| {
        Some(env.tuple(&[env.atom("cats_flight"), env.atom("written"), env.unsigned(number)]))
    });
}

/// For each process that waits for a flight: the flight.
static WAITS: Mutex<Waits> = Mutex::new(Waits {
    flights: BTreeMap::new(),
    checked: 0,
});

struct Waits {
    flights: BTreeMap<u64, Flight>,
    /// The process that was last looked at, whether it was killed while it waited.
    checked: u64,
}

impl Waits {
    /// Forgets some processes that were killed. Called for each new one, so few of them stay.
    fn clean(&mut self, env: Env) {
        for _ in 0..2 {
            let next = self
                .flights
                .range((Bound::Excluded(self.checked), Bound::Unbounded))
                .next();
            self.checked = next.map_or(0, |(process, _)| *process);
            if self.checked != 0 && !monitor::is_alive(env, Term(self.checked)) {
                self.flights.remove(&self.checked);
            }
        }
    }
}

/// The most flights on a way that are looked at on a scheduler.
const WAY: Budget = Budget(2000);

/// Notes that the calling process waits for a flight, which has this leader. If it would wait for itself in the end, notes nothing, and
/// returns the way, as pairs of a process and the flight that it waits for: those of the caller, those of the leader of that flight, and so
/// on.
pub fn flight_wait(env: Env, &[flight, leader]: &[Term; 2]) -> Result<Term, Failure> {
    let own = env.this_process().0;
    let flight = Flight {
        process: process(env, flight)?,
        leader: process(env, leader)?,
        number: 0,
    };
    let mut waits = waits();
    let mut way = vec![(own, flight.process)];
    let mut leader = flight.leader;
    // A process that was killed waits for nothing.
    while leader != own && monitor::is_alive(env, Term(leader)) {
        let Some(next) = waits.flights.get(&leader) else {
            break;
        };
        way.push((leader, next.process));
        WAY.check(way.len())?;
        leader = next.leader;
    }
    if leader == own {
        drop(waits);
        let way: Vec<Term> = way
            .into_iter()
            .map(|(waits, flight)| env.tuple(&[Term(waits), Term(flight)]))
            .collect();
        return Ok(env.list(&way));
    }
    waits.flights.insert(own, flight);
    waits.clean(env);
    Ok(atoms::true_())
}

fn waits() -> MutexGuard<'static, Waits> {
    // Each change is one insertion or removal.
    WAITS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The calling process waits no more.
pub fn flight_waited(env: Env, &[]: &[Term; 0]) -> Result<Term, Failure> {
    waits().flights.remove(&env.this_process().0);
    Ok(atoms::true_())
}
