//! `first/1` to `prev_lookup/2`, the steps of folds, and `slot/2`.

use super::*;
use crate::layout::equal::equals_stored;
use cats_table::Direction;
use cats_term::Scratch;

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

/// Refuses to go on behind the end, as `ets` does: a walk would begin anew. The atom may also be the key of an object.
#[cold]
fn behind_end(env: Env, handle: Handle<'_>) -> Result<(), Failure> {
    let is_key = |probe: &Probe<'_>| Ok(handle.member::<Unused>(probe)?);
    match with_probe(env, handle.table(), atoms::end_of_table(), is_key)? {
        true => Ok(()),
        false => Err(Failure::Bad(atoms::badkey())),
    }
}

#[inline(always)]
fn step(env: Env, table: Term, key: Option<Term>, direction: Direction) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, STEP)?;
    if key == Some(atoms::end_of_table()) {
        behind_end(env, handle)?;
    }
    let found = match key {
        None => handle.step(None, direction)?,
        Some(key) if key.is_immediate() => handle.step_from(key.0, direction)?,
        Some(key) => return step_from_other(env, handle, key, direction),
    };
    key_or_end(env, found)
}

/// A step from a key that is not an immediate.
#[inline(always)]
fn step_from_other(env: Env, handle: Handle<'_>, key: Term, direction: Direction) -> Result<Term, Failure> {
    let found = match handle.step_along(|last| equals_stored(env, key, last), direction)? {
        Some(found) => found,
        None => with_probe(env, handle.table(), key, |from| Ok(handle.step(Some(from), direction)?))?,
    };
    key_or_end(env, found)
}

#[inline(always)]
fn key_or_end(env: Env, found: Option<TermRef<'_>>) -> Result<Term, Failure> {
    match found {
        Some(key) => decode::term(env, key),
        None => Ok(atoms::end_of_table()),
    }
}

#[inline]
fn step_lookup(env: Env, table: Term, key: Option<Term>, direction: Direction) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, STEP)?;
    if key == Some(atoms::end_of_table()) {
        behind_end(env, handle)?;
    }
    step_to(env, handle, key, direction, |found| {
        let objects = tuples(env, found)?;
        let key = decode::term(env, found[0].element(handle.table().key()))?;
        Ok(env.tuple(&[key, objects]))
    })
}

/// Makes a term of the objects, one or more, of the key after or before this one.
#[inline(always)]
fn step_to(
    env: Env,
    handle: Handle<'_>,
    key: Option<Term>,
    direction: Direction,
    make: impl Fn(&[ObjectRef<'_>]) -> Result<Term, Failure>,
) -> Result<Term, Failure> {
    if let (Some(key), false) = (key, handle.table().kind().is_bag()) {
        let mut scratch = Scratch::new();
        match handle.step_get_along(|last| equals_stored(env, key, last), direction, &mut scratch)? {
            Some(Some(object)) => return make(&[object]),
            Some(None) => return Ok(atoms::end_of_table()),
            None => {}
        }
    }
    with_start(env, handle.table(), key, |from| {
        let mut found = Objects::none();
        handle.step_lookup(from, direction, &mut found)?;
        match found.as_slice() {
            [] => Ok(atoms::end_of_table()),
            objects => make(objects),
        }
    })
}

pub fn next_objects(env: Env, &[table, object]: &[Term; 2]) -> Result<Term, Failure> {
    step_objects(env, table, object, Direction::Up)
}

pub fn prev_objects(env: Env, &[table, object]: &[Term; 2]) -> Result<Term, Failure> {
    step_objects(env, table, object, Direction::Down)
}

fn step_objects(env: Env, table: Term, object: Term, direction: Direction) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, STEP)?;
    step_by_key(env, handle, object, direction, |found| match found {
        [object] => tuple(env, object),
        objects => tuples(env, objects),
    })
}

/// Makes a term of the objects of the key after or before the key of an object. In a snapshot it is `[Objects]`, with those of many keys.
#[inline(never)]
fn step_by_key(
    env: Env,
    handle: Handle<'_>,
    object: Term,
    direction: Direction,
    make: impl Fn(&[ObjectRef<'_>]) -> Result<Term, Failure>,
) -> Result<Term, Failure> {
    let key = env
        .tuple_elements(object)
        .and_then(|elements| elements.get(handle.table().key()));
    let key = *key.ok_or_else(bad)?;
    if !handle.table().is_snapshot() {
        return step_to(env, handle, Some(key), direction, make);
    }
    with_probe(env, handle.table(), key, |from| {
        let found = handle.objects_behind(from, direction, |words| words <= RUN_WORDS)?;
        match found[..] {
            [] => Ok(atoms::end_of_table()),
            _ => Ok(env.cons(tuples(env, &found)?, Term(NIL))),
        }
    })
}

pub fn next_numbered(env: Env, &[table, object, number]: &[Term; 3]) -> Result<Term, Failure> {
    step_numbered(env, table, object, number, Direction::Up)
}

pub fn prev_numbered(env: Env, &[table, object, number]: &[Term; 3]) -> Result<Term, Failure> {
    step_numbered(env, table, object, number, Direction::Down)
}

/// As [`step_objects`], but without reading the object if the last step ended at the place with this number.
#[inline(never)]
fn step_numbered(env: Env, table: Term, object: Term, number: Term, direction: Direction) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, STEP)?;
    let mut scratch = Scratch::new();
    let number = number.small_integer().ok_or_else(bad)? as u64;
    match handle.step_get_from(number, direction, &mut scratch)? {
        Some(Some(object)) => tuple(env, &object),
        Some(None) => Ok(atoms::end_of_table()),
        None => step_anew(env, handle, object, direction),
    }
}

/// As [`step_objects`]. In a table with one object a key, the object comes with a new number, as `[Number | Object]`.
#[inline(never)]
fn step_anew(env: Env, handle: Handle<'_>, object: Term, direction: Direction) -> Result<Term, Failure> {
    step_by_key(env, handle, object, direction, |found| match found {
        [object] if !handle.table().kind().is_bag() => {
            let object = tuple(env, object)?;
            Ok(env.cons(Term::small(handle.number()), object))
        }
        [object] => tuple(env, object),
        objects => tuples(env, objects),
    })
}

/// The words of objects of a snapshot that a step of a fold returns at most, if they are those of several keys.
const RUN_WORDS: usize = 4096;

pub fn slot(env: Env, &[table, number]: &[Term; 2]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, STEP)?;
    let number = number.small_integer().and_then(|number| usize::try_from(number).ok());
    let number = number.ok_or_else(bad)?;
    let objects = timed(env, || Ok(handle.slot(number)?))?;
    match objects {
        Some(objects) => tuples(env, &objects),
        None => Ok(atoms::end_of_table()),
    }
}
