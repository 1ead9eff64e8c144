//! `lookup/2`, `lookup_element/3,4`, `lookup_elements/3`, `member/2`.

use super::*;
use cats_table::Kind;
use cats_term::{equal, Scratch};

pub fn lookup(env: Env, &[table, key]: &[Term; 2]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, LOOKUP)?;
    lookup_key::<Used>(env, handle, key)
}

#[inline(always)]
pub(super) fn lookup_key<U: Use>(env: Env, handle: Handle<'_>, key: Term) -> Result<Term, Failure> {
    match key.is_immediate() {
        true => lookup_probe::<U>(env, handle, &handle.table().probe(TermRef::immediate(key.0)), None),
        false => lookup_built::<U>(env, handle, key),
    }
}

#[inline(never)]
fn lookup_built<U: Use>(env: Env, handle: Handle<'_>, key: Term) -> Result<Term, Failure> {
    with_callers_key(env, handle.table(), key, |probe, may_stand| {
        lookup_probe::<U>(env, handle, probe, may_stand.then_some(key))
    })
}

/// The objects of a key. `own` is the caller's term if it may replace a copy of an exactly equal stored key. With `U`, the object of a table
/// with one object per key counts as used.
#[inline(always)]
fn lookup_probe<U: Use>(env: Env, handle: Handle<'_>, probe: &Probe<'_>, own: Option<Term>) -> Result<Term, Failure> {
    if handle.table().kind().is_bag() {
        return lookup_in_bag(env, handle, probe);
    }
    match handle.get::<U>(probe, &mut Scratch::new())? {
        None => {
            missed(handle);
            Ok(Term(NIL))
        }
        Some(object) => {
            let tuple = match own {
                Some(own) => tuple_of_key(env, handle.table(), &object, own, probe)?,
                None => tuple(env, &object)?,
            };
            account(env, object.words());
            Ok(env.cons(tuple, Term(NIL)))
        }
    }
}

#[inline(never)]
fn lookup_in_bag(env: Env, handle: Handle<'_>, probe: &Probe<'_>) -> Result<Term, Failure> {
    let mut found = Objects::none();
    handle.lookup(probe, &mut found)?;
    if found.as_slice().is_empty() {
        missed(handle);
    }
    tuples(env, found.as_slice())
}

/// Decodes the object that was found for a key. If the caller's key is exactly equal to the object's, the result has
/// the caller's key. That saves a copy, and terms never change.
#[inline(always)]
fn tuple_of_key(
    env: Env,
    table: &Table,
    object: &ObjectRef<'_>,
    own: Term,
    probe: &Probe<'_>,
) -> Result<Term, Failure> {
    match object {
        ObjectRef::Block(block)
            if table.kind() != Kind::OrderedSet || equal(block.element(table.key()), probe.term()) =>
        {
            decode::object_with(env, *block, table.key(), own)
        }
        _ => tuple(env, object),
    }
}

pub fn member(env: Env, &[table, key]: &[Term; 2]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, LOOKUP)?;
    with_probe(
        env,
        handle.table(),
        key,
        #[inline(always)]
        move |probe| {
            let found = handle.member::<Used>(probe)?;
            if !found {
                missed(handle);
            }
            Ok(atoms::boolean(found))
        },
    )
}

pub fn lookup_element(env: Env, &[table, key, position]: &[Term; 3]) -> Result<Term, Failure> {
    element_or(env, table, key, position, || Err(Cause::BadKey.into()))
}

pub fn lookup_element_default(env: Env, &[table, key, position, default]: &[Term; 4]) -> Result<Term, Failure> {
    element_or(env, table, key, position, || Ok(default))
}

#[inline]
fn element_or(
    env: Env,
    table: Term,
    key: Term,
    position: Term,
    absent: impl FnOnce() -> Result<Term, Failure>,
) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, LOOKUP)?;
    let index = index(position)?;
    with_probe(
        env,
        handle.table(),
        key,
        #[inline(always)]
        move |probe| {
            if handle.table().kind().is_bag() {
                return elements_in_bag(env, handle, probe, index, absent);
            }
            match handle.get_for_element(probe, index, &mut Scratch::new())? {
                None => {
                    missed(handle);
                    absent()
                }
                Some(object) if index < object.arity() => element(env, &object, index),
                Some(_) => Err(bad()),
            }
        },
    )
}

#[inline(never)]
fn elements_in_bag(
    env: Env,
    handle: Handle<'_>,
    probe: &Probe<'_>,
    index: usize,
    absent: impl FnOnce() -> Result<Term, Failure>,
) -> Result<Term, Failure> {
    let mut found = Objects::none();
    handle.lookup(probe, &mut found)?;
    if found.as_slice().is_empty() {
        missed(handle);
        return absent();
    }
    let words = |object: &ObjectRef<'_>| match index < object.arity() && !object.element(index).is_immediate() {
        true => object.words(),
        false => 0,
    };
    list_of(env, found.as_slice(), words, |object| {
        if index < object.arity() {
            element(env, object, index)
        } else {
            Err(bad())
        }
    })
}

/// With more positions than this, a call takes too long for a normal scheduler.
const POSITIONS_LIMIT: Budget = Budget(1000);

pub fn lookup_elements(env: Env, &[table, key, positions]: &[Term; 3]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, LOOKUP)?;
    let mut indices = Vec::new();
    let mut rest = positions;
    while let Some((position, tail)) = env.cell(rest) {
        indices.push(index(position)?);
        POSITIONS_LIMIT.check(indices.len())?;
        rest = tail;
    }
    if rest.0 != NIL {
        return Err(bad());
    }
    // If the positions ascend, each element occurs at most once. Otherwise all may be that of the longest element.
    let times = match indices.is_sorted_by(|a, b| a < b) {
        true => 1,
        false => indices.len(),
    };
    let words = |object: &ObjectRef<'_>| match object.flat() {
        Some(_) => 2 * indices.len(),
        None => 2 * indices.len() + times * object.words(),
    };
    with_probe(env, handle.table(), key, |probe| {
        let mut found = Objects::none();
        handle.lookup(probe, &mut found)?;
        let elements = |object: &ObjectRef<'_>| {
            let mut list = Term(NIL);
            for index in indices.iter().rev() {
                if *index >= object.arity() {
                    return Err(bad());
                }
                list = env.cons(element(env, object, *index)?, list);
            }
            Ok(list)
        };
        match found.as_slice() {
            [] => {
                missed(handle);
                Err(Cause::BadKey.into())
            }
            [object] if !handle.table().kind().is_bag() => {
                check_words(words(object))?;
                elements(object)
            }
            objects => list_of(env, objects, words, elements),
        }
    })
}

/// The list of the results of `make` for each object. Each result has at most `words` words.
fn list_of(
    env: Env,
    objects: &[ObjectRef<'_>],
    words: impl Fn(&ObjectRef<'_>) -> usize,
    make: impl Fn(&ObjectRef<'_>) -> Result<Term, Failure>,
) -> Result<Term, Failure> {
    check_words(objects.iter().map(words).sum())?;
    let mut list = Term(NIL);
    for object in objects.iter().rev() {
        list = env.cons(make(object)?, list);
    }
    account(env, objects.iter().map(ObjectRef::words).sum());
    Ok(list)
}

/// The index, counted from 0, of a position that is counted from 1.
#[inline]
fn index(position: Term) -> Result<usize, Failure> {
    match position.small_integer() {
        Some(position) if position >= 1 => Ok(position as usize - 1),
        _ => Err(bad()),
    }
}
