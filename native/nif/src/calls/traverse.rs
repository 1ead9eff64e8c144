//! `first/1` to `prev_lookup/2`, `slot/2`, and `scan/2` in slices.

use super::*;
use cats_sync::epoch::pin;
use cats_table::{Cursor, Direction};
use std::sync::Mutex;

/// Objects that one slice of a scan appends, roughly, and words at which it ends early.
const SLICE_OBJECTS: usize = 500;
const SLICE_WORDS: usize = 8000;
/// Objects that are asked for at once within a slice.
const STEP: usize = 64;

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
    match handle.slot(number.ok_or_else(bad)?)? {
        Some(objects) => tuples(env, &objects),
        None => Ok(atoms::end_of_table()),
    }
}

/// Where a scan of a table stands. Whoever has the reference may go on with it; two at once do so one after the other.
pub struct Scan {
    table: Owned<Table>,
    cursor: Mutex<Cursor>,
}

impl Value for Scan {
    const NAME: &'static CStr = c"scan";
}

pub static SCANS: Kind<Scan> = Kind::new();

pub fn scan(env: Env, &[from, list]: &[Term; 2]) -> Result<Term, Failure> {
    let guard = pin();
    if let Some(scan) = (!from.is_immediate()).then(|| SCANS.get(env, from)).flatten() {
        let mut cursor = scan.cursor.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        scan.table.check(Right::Read, || env.this_process().0)?;
        let handle = scan.table.by_identifier(&guard);
        let (list, more) = slice(env, handle, &mut cursor, list)?;
        return Ok(if more { env.tuple(&[list, from]) } else { list });
    }
    let handle = find(env, &guard, from, Right::Read)?;
    let mut cursor = Cursor::Start;
    let (list, more) = slice(env, handle, &mut cursor, list)?;
    if !more {
        return Ok(list);
    }
    let scan = Scan {
        table: owned(handle.table()),
        cursor: Mutex::new(cursor),
    };
    Ok(env.tuple(&[list, SCANS.make(env, scan)]))
}

/// One more reference to a table.
fn owned(table: &Table) -> Owned<Table> {
    // SAFETY: tables exist inside resources only, and this one lives; the reference that is taken back here is taken first.
    unsafe {
        enif_keep_resource((table as *const Table).cast_mut().cast());
        Owned::from_raw(table)
    }
}

/// Puts the objects of one slice before the list; whether there are more. When it fails nothing was done.
fn slice(env: Env, handle: Handle<'_>, cursor: &mut Cursor, list: Term) -> Result<(Term, bool), Failure> {
    let mut list = list;
    let mut objects = Vec::with_capacity(STEP);
    let (mut count, mut words) = (0, 0);
    let mut more = true;
    while more && count < SLICE_OBJECTS && words < SLICE_WORDS {
        let before = cursor.clone();
        objects.clear();
        let step = handle.scan(cursor, STEP, &mut objects).map_err(Failure::from);
        let made = step.and_then(|more| Ok((more, cons_reversed(env, &objects, list)?)));
        match made {
            Ok((more_now, longer)) => (more, list) = (more_now, longer),
            Err(failure) => {
                *cursor = before;
                if count == 0 {
                    return Err(failure);
                }
                // What was done so far counts; the next slice begins here.
                break;
            }
        }
        count += objects.len();
        words += objects.iter().map(|object| object.words() + 2).sum::<usize>();
    }
    account(env, words);
    Ok((list, more))
}

/// Makes terms of these objects and puts them before a list, the last one foremost.
fn cons_reversed(env: Env, objects: &[ObjectRef<'_>], list: Term) -> Result<Term, Failure> {
    let mut list = list;
    for object in objects {
        list = env.cons(tuple(env, object)?, list);
    }
    Ok(list)
}
