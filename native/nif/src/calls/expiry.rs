//! `insert/3`, `insert_new/3`, `touch/3`, `ttl/2`, and the steps of `fetch/4`: objects that expire.

use super::one::{check_single, is_stored, is_surely_stored, old_and_new};
use super::write::{insert_list, insert_one};
use super::*;
use cats_sync::clock;
use cats_table::{Life, Lifetime};
use cats_term::Scratch;

/// Milliseconds, or `infinity`.
pub(super) fn lifetime(time: Term) -> Option<Lifetime> {
    match time == atoms::infinity() {
        true => Some(Lifetime::Infinity),
        false => {
            let time = u64::try_from(time.small_integer()?).ok()?;
            (1..=Lifetime::LONGEST)
                .contains(&time)
                .then_some(Lifetime::Milliseconds(time))
        }
    }
}

fn needed(env: Env, time: Term) -> Result<Lifetime, Failure> {
    lifetime(time).ok_or_else(|| Failure::Bad(env.atom("no_time")))
}

/// Inserts an object, or a list of objects, which live for this time.
pub fn insert_lasting(env: Env, arguments: &[Term; 3]) -> Result<Term, Failure> {
    insert_for_time(env, arguments, false)
}

/// Inserts an object, or a list of objects, which live for this time, if their keys have none.
pub fn insert_new_lasting(env: Env, arguments: &[Term; 3]) -> Result<Term, Failure> {
    insert_for_time(env, arguments, true)
}

fn insert_for_time(env: Env, &[table, objects, time]: &[Term; 3], new: bool) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, INSERT)?;
    handle.check_expiry()?;
    let lifetime = Some(needed(env, time)?);
    let inserted = match env.tuple_elements(objects) {
        Some(elements) => insert_one(handle, object(env, handle, elements)?, new, lifetime)?,
        None => insert_list(env, handle, objects, new, lifetime)?,
    };
    Ok(atoms::boolean(inserted))
}

pub fn touch(env: Env, &[table, key, time]: &[Term; 3]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, UPDATE)?;
    handle.check_expiry()?;
    let lifetime = needed(env, time)?;
    with_probe(env, handle.table(), key, |probe| {
        Ok(atoms::boolean(handle.touch(probe, lifetime)?))
    })
}

/// The milliseconds that the object of a key still lives, `infinity`, or `undefined` if there is none.
pub fn ttl(env: Env, &[table, key]: &[Term; 2]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, LOOKUP)?;
    with_probe(env, handle.table(), key, |probe| {
        Ok(match handle.time_left(probe)? {
            None => atoms::undefined(),
            Some((left, _)) => lifetime_term(env, left),
        })
    })
}

/// The same, and how long the object lives at most if it is read, as a pair.
pub fn times(env: Env, &[table, key]: &[Term; 2]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, LOOKUP)?;
    with_probe(env, handle.table(), key, |probe| {
        Ok(match handle.time_left(probe)? {
            None => atoms::undefined(),
            Some((left, most)) => env.tuple(&[lifetime_term(env, left), lifetime_term(env, most)]),
        })
    })
}

fn lifetime_term(env: Env, time: Lifetime) -> Term {
    match time {
        Lifetime::Infinity => atoms::infinity(),
        Lifetime::Milliseconds(time) => env.unsigned(time),
    }
}

/// Inserts an object that had so much time left when it was written to a file: [`times`].
pub fn insert_bounded(env: Env, &[table, object_term, left, most]: &[Term; 4]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, INSERT)?;
    handle.check_expiry()?;
    let (left, most) = (needed(env, left)?, needed(env, most)?);
    let elements = env.tuple_elements(object_term).ok_or_else(bad)?;
    handle.insert_bounded(object(env, handle, elements)?, left, most)?;
    Ok(atoms::true_())
}

/// How an object lives that a fetch has found.
fn life(env: Env, life: Life) -> Term {
    env.atom(match life {
        Life::Lives => "lives",
        Life::Due => "due",
        Life::Ended => "ended",
    })
}

/// What `fetch` with option `stale` or `refresh_ahead` finds: `{Object, lives | due | ended}`, or `false`. The caller may write to the table.
pub fn fetched(env: Env, &[table, key, stale, ahead]: &[Term; 4]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, LOOKUP_TO_FETCH)?;
    handle.check_expiry()?;
    let times = (duration(env, stale)?, duration(env, ahead)?);
    with_probe(env, handle.table(), key, |probe| {
        match handle.fetch(probe, times, &mut Scratch::new())? {
            Some((object, lives)) => {
                if lives == Life::Ended {
                    missed(handle);
                }
                account(env, object.words());
                Ok(env.tuple(&[tuple(env, &object)?, life(env, lives)]))
            }
            None => {
                missed(handle);
                Ok(atoms::false_())
            }
        }
    })
}

/// As [`fetched`] in any table, for a fetch that has looked before: so it counts as no lookup. The times are 0 if objects cannot expire.
pub fn fetched_again(env: Env, &[table, key, stale, ahead]: &[Term; 4]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, WRITE)?;
    check_single(handle.table())?;
    let times = (duration(env, stale)?, duration(env, ahead)?);
    with_probe(env, handle.table(), key, |probe| {
        let mut scratch = Scratch::new();
        let found = match handle.table().options().leased() {
            true => handle.fetch(probe, times, &mut scratch)?,
            false => handle
                .get::<Used>(probe, &mut scratch)?
                .map(|object| (object, Life::Lives)),
        };
        let Some((object, lives)) = found else {
            return Ok(atoms::false_());
        };
        account(env, object.words());
        Ok(env.tuple(&[tuple(env, &object)?, life(env, lives)]))
    })
}

/// Inserts the object that `fetch` has made, unless the key has one. The first tuple has the key. `time` is its time to live, or
/// `default`. Returns whether it did.
pub fn insert_fetched(env: Env, &[table, with_key, new, time, stale]: &[Term; 5]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, INSERT)?;
    handle.check_expiry()?;
    let (time, stale) = (given(env, time)?, duration(env, stale)?);
    let (_, object) = old_and_new(env, handle, with_key, new)?;
    Ok(atoms::boolean(handle.insert_fetched(object, time, stale)?))
}

/// Puts the object that `fetch` has made in place of the old one, which is about to end. Returns whether the table had that one.
pub fn replace_fetched(env: Env, &[table, old, new, time, stale]: &[Term; 5]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, UPDATE)?;
    handle.check_expiry()?;
    let times = (given(env, time)?, duration(env, stale)?);
    let (old, object) = old_and_new(env, handle, old, new)?;
    account(env, object.words());
    let replaced = handle.replace_fetched(
        object,
        times,
        |stored| is_surely_stored(env, old, stored),
        |stored| is_stored(env, old, stored),
    )?;
    Ok(atoms::boolean(replaced))
}

/// A time to live, or `default`.
fn given(env: Env, time: Term) -> Result<Option<Lifetime>, Failure> {
    match time == env.atom("default") {
        true => Ok(None),
        false => needed(env, time).map(Some),
    }
}

/// Counts what a fetch did.
pub fn count_fetch(env: Env, &[table, what]: &[Term; 2]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, INFO)?;
    let events = [
        (atoms::fetch_made(), Event::FetchMade),
        (atoms::fetch_failed(), Event::FetchFailed),
        (atoms::fetch_waited(), Event::FetchWaited),
        (atoms::fetch_stale(), Event::FetchStale),
    ];
    let event = events.iter().find(|(name, _)| *name == what);
    handle.count_event(event.ok_or_else(bad)?.1, 1);
    Ok(atoms::true_())
}

/// Milliseconds, perhaps 0.
pub(super) fn duration(env: Env, time: Term) -> Result<u64, Failure> {
    let time = time.small_integer().and_then(|time| u64::try_from(time).ok());
    time.filter(|time| *time <= Lifetime::LONGEST)
        .ok_or_else(|| Failure::Bad(env.atom("no_time")))
}

/// Stops the clock of leases at a time in milliseconds, or lets it go on: `false`. For tests. Returns the time.
pub fn stop_clock(env: Env, &[at]: &[Term; 1]) -> Result<Term, Failure> {
    let at = match at == atoms::false_() {
        true => None,
        false => Some(
            at.small_integer()
                .and_then(|at| u64::try_from(at).ok())
                .ok_or_else(bad)?,
        ),
    };
    clock::stop(at);
    reaper::wake();
    Ok(env.unsigned(clock::now()))
}
