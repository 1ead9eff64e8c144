//! `insert/3`, `touch/3`, `ttl/2`: objects that expire.

use super::write::insert_list;
use super::*;
use cats_sync::clock;
use cats_table::Lifetime;

/// Milliseconds, or `infinity`.
pub(super) fn lifetime(time: Term) -> Option<Lifetime> {
    match time == atoms::infinity() {
        true => Some(Lifetime::Infinity),
        false => {
            let time = u64::try_from(time.small_integer()?).ok()?;
            (time > 0).then_some(Lifetime::Milliseconds(time))
        }
    }
}

fn needed(env: Env, time: Term) -> Result<Lifetime, Failure> {
    lifetime(time).ok_or_else(|| Failure::Bad(env.atom("no_time")))
}

/// Inserts an object, or a list of objects, which live for this time.
pub fn insert_lasting(env: Env, &[table, objects, time]: &[Term; 3]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, INSERT)?;
    handle.check_expiry()?;
    let lifetime = needed(env, time)?;
    match env.tuple_elements(objects) {
        Some(elements) => handle.insert_lasting(object(env, handle, elements)?, lifetime)?,
        None => {
            insert_list(env, handle, objects, false, Some(lifetime))?;
        }
    }
    Ok(atoms::true_())
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
            Some(Lifetime::Infinity) => atoms::infinity(),
            Some(Lifetime::Milliseconds(time)) => env.unsigned(time),
        })
    })
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
