//! `first/1` to `prev_lookup/2`, and `slot/2`.

use super::*;
use cats_sync::epoch::pin;
use cats_table::Direction;

pub fn first(env: Env, &[table]: &[Term; 1]) -> Result<Term, Failure> {
    step(env, table, None, Direction::Up)
}

pub fn last(env: Env, &[table]: &[Term; 1]) -> Result<Term, Failure> {
    step(env, table, None, Direction::Down)
}

pub fn next(env: Env, &[table, key]: &[Term; 2]) -> Result<Term, Failure> {
    step(env, table, Some(key), Direction::Up)
}

pub fn prev(env: Env, &[table, key]: &[Term; 2]) -> Result<Term, Failure> {
    step(env, table, Some(key), Direction::Down)
}

pub fn first_lookup(env: Env, &[table]: &[Term; 1]) -> Result<Term, Failure> {
    step_lookup(env, table, None, Direction::Up)
}

pub fn last_lookup(env: Env, &[table]: &[Term; 1]) -> Result<Term, Failure> {
    step_lookup(env, table, None, Direction::Down)
}

pub fn next_lookup(env: Env, &[table, key]: &[Term; 2]) -> Result<Term, Failure> {
    step_lookup(env, table, Some(key), Direction::Up)
}

pub fn prev_lookup(env: Env, &[table, key]: &[Term; 2]) -> Result<Term, Failure> {
    step_lookup(env, table, Some(key), Direction::Down)
}

/// Lends the key to start from, if there is one.
#[inline]
fn with_start<R>(
    env: Env,
    table: &Table,
    key: Option<Term>,
    f: impl FnOnce(Option<&Probe<'_>>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    match key {
        None => f(None),
        Some(key) => with_probe(env, table, key, |probe| f(Some(probe))),
    }
}

#[inline]
fn step(env: Env, table: Term, key: Option<Term>, direction: Direction) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, Right::Read)?;
    let found = with_start(env, handle.table(), key, |from| Ok(handle.step(from, direction)?))?;
    match found {
        Some(key) => decode::term(env, key),
        None => Ok(atoms::end_of_table()),
    }
}

#[inline]
fn step_lookup(env: Env, table: Term, key: Option<Term>, direction: Direction) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, Right::Read)?;
    let patient = patient(handle.table());
    let found = with_start(env, handle.table(), key, |from| {
        Ok(handle.step_lookup(from, direction, patient)?)
    })?;
    match found {
        Some((key, objects)) => {
            let objects = read::objects(env, &objects)?;
            Ok(env.tuple(&[decode::term(env, key)?, objects]))
        }
        None => Ok(atoms::end_of_table()),
    }
}

pub fn slot(env: Env, &[table, number]: &[Term; 2]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, Right::Read)?;
    let number = number.small_integer().and_then(|number| usize::try_from(number).ok());
    match handle.slot(number.ok_or_else(bad)?, on_dirty_scheduler())? {
        Some(objects) => tuples(env, &objects),
        None => Ok(atoms::end_of_table()),
    }
}
