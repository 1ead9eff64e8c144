//! `rank/2`, `nth/2`, `count/2,3` and `range/3,4`: order statistics of ordered tables.

use super::*;
use cats_table::{Between, Kind as TableKind};

/// The most objects that one call of [`range_between`] returns on a scheduler.
const OBJECTS: usize = 500;

/// `rank(Table, Key)`: the number of keys below the key.
pub fn rank(env: Env, &[table, key]: &[Term; 2]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find_for_statistics(env, &guard, table)?;
    with_probe(env, handle.table(), key, |probe| {
        let below = Between {
            from: None,
            to: Some((probe, false)),
        };
        count(env, handle, below)
    })
}

/// `count_between(Table, From, To)`: the number of objects between two [bounds](bound).
pub fn count_between(env: Env, &[table, from, to]: &[Term; 3]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find_for_statistics(env, &guard, table)?;
    with_bounds(env, handle, from, to, |between| count(env, handle, between))
}

fn count(env: Env, handle: Handle<'_>, between: Between<'_, Probe<'_>>) -> Result<Term, Failure> {
    let count = timed(env, || Ok(handle.count(between)?))?;
    Ok(Term::small(count as u64))
}

/// `nth(Table, Number)`: the object with this number, counted from 0. Negative numbers count from the end: the last object has number -1.
pub fn nth(env: Env, &[table, number]: &[Term; 2]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find_for_statistics(env, &guard, table)?;
    let number = env.get_i64(number).ok_or_else(bad)?;
    let down = number < 0;
    let from_end = if down { !number } else { number };
    let found = timed(env, || Ok(handle.nth(from_end as usize, down)?))?;
    match found {
        None => Ok(atoms::end_of_table()),
        Some(object) => {
            check_words(object.words())?;
            tuple(env, &object)
        }
    }
}

/// `range_between(Table, From, To, Down, Limit)`: up to `Limit` objects between two [bounds](bound), in order. If one call cannot return
/// all: `{Objects, Key, Limit}`, with the last key and the number of objects that are still wanted.
pub fn range_between(env: Env, &[table, from, to, down, limit]: &[Term; 5]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, SCAN)?;
    if handle.table().kind() != TableKind::OrderedSet {
        return Err(Failure::Bad(atoms::no_ranges()));
    }
    let wanted = match limit.small_integer() {
        Some(limit) if limit >= 1 => limit as usize,
        None if limit == atoms::infinity() => usize::MAX,
        _ => return Err(bad()),
    };
    let mut objects = Vec::new();
    let more = with_bounds(env, handle, from, to, |between| {
        let down = down == atoms::true_();
        Ok(handle.range(between, down, wanted.min(OBJECTS), &mut objects)?)
    })?;
    // As many as fit, but at least one.
    let (mut words, mut fit) = (0, 0);
    while let Some(object) = objects.get(fit) {
        words += object.words() + 2;
        if fit > 0 && !fits(words) {
            break;
        }
        fit += 1;
    }
    let list = tuples(env, &objects[..fit])?;
    let left = wanted.saturating_sub(fit);
    match objects[..fit].last() {
        Some(last) if left > 0 && (more || fit < objects.len()) => {
            let key = decode::term(env, last.element(handle.table().key()))?;
            let left = if wanted == usize::MAX {
                limit
            } else {
                Term::small(left as u64)
            };
            Ok(env.tuple(&[list, key, left]))
        }
        _ => Ok(list),
    }
}

fn find_for_statistics<'g>(env: Env<'g>, guard: &'g Guard, table: Term) -> Result<Handle<'g>, Failure> {
    let handle = find(env, guard, table, SCAN)?;
    match handle.has_order_statistics() {
        true => Ok(handle),
        false => Err(Failure::Bad(atoms::no_order_statistics())),
    }
}

/// Lends the bounds that two terms stand for.
fn with_bounds<R>(
    env: Env,
    handle: Handle<'_>,
    from: Term,
    to: Term,
    f: impl FnOnce(Between<'_, Probe<'_>>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let (mut from_room, mut to_room) = (None, None);
    let from = bound_in(env, handle.table(), bound(env, from)?, &mut from_room)?;
    let to = bound_in(env, handle.table(), bound(env, to)?, &mut to_room)?;
    f(Between {
        from: from.as_ref().map(|(probe, inclusive)| (probe, *inclusive)),
        to: to.as_ref().map(|(probe, inclusive)| (probe, *inclusive)),
    })
}
