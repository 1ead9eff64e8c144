//! The flights of `cats_fetch`, and who waits for which.

use super::expiry::duration;
use super::objects::block;
use super::*;
use cats_table::flights::{Flight, Known};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::MutexGuard;

pub use cats_table::flights::on_end;

fn process(env: Env, pid: Term) -> Result<u64, Failure> {
    env.local_pid(pid).map(|_| pid.0).ok_or_else(bad)
}

/// `{Flight, Leader}` of a key, `{failed, Failure}`, or `false`. A flight whose process has ended counts as none.
pub fn flight_to(env: Env, &[table, key]: &[Term; 2]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, WRITE)?;
    with_probe(env, handle.table(), key, |probe| {
        Ok(match handle.flight_to(probe, |flight| lives(env, flight))? {
            Some(Known::Flight(flight)) => env.tuple(&[Term(flight.process), Term(flight.leader)]),
            Some(Known::Failed(failed)) => {
                let failed = failed.as_ref().as_ref();
                account(env, failed.words());
                env.tuple(&[env.atom("failed"), decode::term(env, failed.element(0))?])
            }
            None => atoms::false_(),
        })
    })
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
    };
    with_probe(env, handle.table(), key, |probe| {
        let begun = handle.begin_flight(probe, flight, |other| lives(env, other))?;
        Ok(atoms::boolean(begun))
    })
}

/// Ends the flight of a key if it is this one. Any process may do this, as the flight of a private table does.
pub fn flight_end(env: Env, &[table, key, flight]: &[Term; 3]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, INFO)?;
    let flight = process(env, flight)?;
    with_probe(env, handle.table(), key, |probe| {
        Ok(atoms::boolean(handle.end_flight(probe, flight)))
    })
}

/// Ends the flight of a key as its function has failed, if it is this one. Remembers the failure for some milliseconds. Returns whether it
/// was this flight.
pub fn flight_fail(env: Env, &[table, key, flight, failed, time]: &[Term; 5]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, INFO)?;
    let flight = process(env, flight)?;
    let time = duration(env, time)?;
    let failed = block(env, &[failed])?;
    with_probe(env, handle.table(), key, |probe| {
        Ok(atoms::boolean(handle.fail_flight(probe, flight, failed, time)))
    })
}

/// Tells the process of a flight that it was ended. Called by the reaper.
pub(super) fn tell(process: u64) {
    reaper::send_term(process, |env| {
        Some(env.tuple(&[env.atom("cats_fetch"), env.atom("written")]))
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
/// returns the flights on the way: the one that it wants to wait for, the one that the leader of that waits for, and so on.
pub fn flight_wait(env: Env, &[flight, leader]: &[Term; 2]) -> Result<Term, Failure> {
    let own = env.this_process().0;
    let flight = Flight {
        process: process(env, flight)?,
        leader: process(env, leader)?,
    };
    let mut waits = waits();
    let mut way = vec![Term(flight.process)];
    let mut leader = flight.leader;
    // A process that was killed waits for nothing.
    while leader != own && monitor::is_alive(env, Term(leader)) {
        let Some(next) = waits.flights.get(&leader) else {
            break;
        };
        way.push(Term(next.process));
        WAY.check(way.len())?;
        leader = next.leader;
    }
    if leader == own {
        drop(waits);
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
