//! What `cats` does to one object, and `ets` does not: `replace/3`, `add/3`, and the steps of `update/3,4`.

use super::read::lookup_key;
use super::update::{
    after, each, few_additions, get_number, has_integer, is_sound, number, simple_addition, NO_ADDITION, STACK_OPS,
};
use super::*;
use crate::layout::equal::equals_stored;
use cats_table::{Amount, Increment};
use cats_term::{equal, View};

/// Fails if a key of this table may have several objects.
pub(super) fn check_single(table: &Table) -> Result<(), Failure> {
    match table.kind().is_bag() {
        true => Err(Cause::TableType.into()),
        false => Ok(()),
    }
}

/// A list of the object of a key, or `false`. The caller may write to the table. Does not count as a use.
pub fn lookup_to_update(env: Env, &[table, key]: &[Term; 2]) -> Result<Term, Failure> {
    object_to_update::<Unused>(env, LOOKUP_TO_UPDATE, table, key, None)
}

/// As [`lookup_to_update`], but counts as a use.
pub fn lookup_to_fetch(env: Env, &[table, key]: &[Term; 2]) -> Result<Term, Failure> {
    object_to_update::<Used>(env, LOOKUP_TO_FETCH, table, key, None)
}

/// As [`lookup_to_update`], but returns the default tuple, with this key as its key, in place of `false`.
pub fn lookup_to_update_default(env: Env, &[table, key, default]: &[Term; 3]) -> Result<Term, Failure> {
    object_to_update::<Unused>(env, LOOKUP_TO_UPDATE, table, key, Some(default))
}

#[inline]
fn object_to_update<U: Use>(
    env: Env,
    want: Want,
    table: Term,
    key: Term,
    default: Option<Term>,
) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, want)?;
    if !is_sound(env, handle, default) {
        return Err(Cause::Default.into());
    }
    check_single(handle.table())?;
    match (lookup_key::<U>(env, handle, key)?, default) {
        (Term(NIL), None) => Ok(atoms::false_()),
        (Term(NIL), Some(default)) => {
            let mut elements = encode::tuple(env, default)?.to_vec();
            elements[handle.table().key()] = key;
            Ok(env.tuple(&elements))
        }
        (found, _) => Ok(found),
    }
}

/// Inserts the second tuple unless its key has an object. The first one has the same key. Returns whether it did.
pub fn insert_absent(env: Env, &[table, old, new]: &[Term; 3]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, INSERT)?;
    let (_, object) = old_and_new(env, handle, old, new)?;
    Ok(atoms::boolean(handle.insert_new(object)?))
}

pub fn replace(env: Env, &[table, old, new]: &[Term; 3]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, UPDATE)?;
    if let (Some(old), Some(new)) = (env.tuple_elements(old), env.tuple_elements(new)) {
        let place = handle.table().key();
        let stored_so = !handle.table().kind().is_bag() && !handle.table().options().leased();
        if let (Some(old), Some(new), true) = (inline(old), inline(new), stored_so) {
            if old.len() > place && new.len() > place && old[place] == new[place] {
                return Ok(atoms::boolean(handle.replace_inline(old, new)?));
            }
        }
    }
    replace_other(env, handle, old, new)
}

/// [`replace`] of and by objects that may need blocks.
#[inline(never)]
fn replace_other(env: Env, handle: Handle<'_>, old: Term, new: Term) -> Result<Term, Failure> {
    let (old, object) = old_and_new(env, handle, old, new)?;
    account(env, object.words());
    let replaced = handle.replace(
        object,
        |stored| is_surely_stored(env, old, stored),
        |stored| is_stored(env, old, stored),
    )?;
    Ok(atoms::boolean(replaced))
}

/// The elements of a tuple, and the object of another one. Fails unless they have the same key.
#[inline]
pub(super) fn old_and_new<'a>(
    env: Env<'a>,
    handle: Handle<'_>,
    old: Term,
    new: Term,
) -> Result<(&'a [Term], Object<'a>), Failure> {
    check_single(handle.table())?;
    let (old, new) = (encode::tuple(env, old)?, encode::tuple(env, new)?);
    let place = handle.table().key();
    if old.len() <= place || new.len() <= place {
        return Err(bad());
    }
    let object = object(env, handle, new)?;
    match has_key(env, handle, &object, old[place])? {
        true => Ok((old, object)),
        false => Err(Failure::Bad(atoms::other_key())),
    }
}

/// Whether this is the key of the object.
#[inline]
fn has_key(env: Env, handle: Handle<'_>, object: &Object<'_>, key: Term) -> Result<bool, Failure> {
    let own = object.element(handle.table().key());
    if equals_stored(env, key, own) {
        return Ok(true);
    }
    if key.is_immediate() {
        return Ok(handle.table().is_same_key(TermRef::immediate(key.0), own));
    }
    with_built_key(env, key, |key| Ok(handle.table().is_same_key(key.term, own)))
}

/// True only if an object is exactly the tuple of these terms. May be false for terms that [`equals_stored`] does not compare.
pub(super) fn is_surely_stored(env: Env, terms: &[Term], object: &ObjectRef<'_>) -> bool {
    let mut elements = terms.iter().zip(0..);
    terms.len() == object.arity() && elements.all(|(term, index)| equals_stored(env, *term, object.element(index)))
}

/// Whether an object is exactly the tuple of these terms.
pub(super) fn is_stored(env: Env, terms: &[Term], object: &ObjectRef<'_>) -> Result<bool, Failure> {
    if terms.len() != object.arity() {
        return Ok(false);
    }
    if is_surely_stored(env, terms, object) {
        return Ok(true);
    }
    let elements = || {
        terms
            .iter()
            .zip(0..)
            .map(|(term, index)| (*term, object.element(index)))
    };
    // For an immediate, what is not the same word is another term.
    if elements().any(|(term, element)| (term.is_immediate() || element.is_immediate()) && term.0 != element.word()) {
        return Ok(false);
    }
    let mut room = Room::<OBJECT_WORDS>::new();
    let mut builder = Builder::within(&mut room);
    encode::object(env, terms, &mut builder)?;
    match builder.root().view() {
        View::Tuple(built) => Ok(built
            .iter()
            .zip(0..)
            .all(|(term, index)| equal(term, object.element(index)))),
        _ => unreachable!("a tuple was built"),
    }
}

/// Deletes exactly this object. Returns whether it was there.
pub fn remove(env: Env, &[table, object]: &[Term; 2]) -> Result<Term, Failure> {
    let _relief = Relief::new();
    let guard = pin();
    let handle = find(env, &guard, table, DELETE)?;
    let removed = super::write::delete_exactly(env, handle, object)?;
    Ok(atoms::boolean(removed > 0))
}

pub fn add(env: Env, &[table, key, increments]: &[Term; 3]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, UPDATE)?;
    if key.is_immediate() {
        let probe = handle.table().probe(TermRef::immediate(key.0));
        if let Some((position, increment)) = simple_addition(env, handle, increments) {
            if let Some(word) = handle.add(&probe, position, increment)? {
                return Ok(Term(word));
            }
        } else {
            let (mut additions, mut words) = ([NO_ADDITION; STACK_OPS], [0; STACK_OPS]);
            let count = few_additions(env, increments, &mut additions);
            let additions = &additions[..count];
            let simple = count > 0 && additions.iter().all(|addition| addition.limit.is_none());
            if simple && handle.add_in_place(&probe, additions, &mut words[..count])? {
                return Ok(env.list(Term::slice(&words[..count])));
            }
        }
    }
    with_probe(env, handle.table(), key, |probe| {
        add_in_general(env, handle, probe, increments)
    })
}

#[inline(never)]
fn add_in_general(env: Env, handle: Handle<'_>, probe: &Probe<'_>, increments: Term) -> Result<Term, Failure> {
    let mut digits = 0;
    let add = |list: &[Increment]| handle.add_amounts(probe, list, &has_integer(env));
    let single = match amount(env, increments, &mut digits)? {
        Some(amount) => Some((after(handle.table().key()), amount)),
        None if env.tuple_elements(increments).is_some() => Some(increment(env, increments, &mut digits)?),
        None => None,
    };
    if let Some(increment) = single {
        return sum(env, &add(&[increment])?[0]);
    }
    let mut list = SmallVec::<[Increment; STACK_OPS]>::new();
    each(env, increments, |term| {
        list.push(increment(env, term.ok_or_else(bad)?, &mut digits)?);
        Ok(true)
    })?;
    let mut result = Term(NIL);
    for value in add(&list)?.iter().rev() {
        result = env.cons(sum(env, value)?, result);
    }
    Ok(result)
}

/// `{Position, Number}`. Counts digits as [`get_number`] does.
fn increment(env: Env, term: Term, digits: &mut usize) -> Result<Increment, Failure> {
    let Some(&[position, number]) = env.tuple_elements(term) else {
        return Err(bad());
    };
    match (position.small_integer(), amount(env, number, digits)?) {
        (Some(position), Some(amount)) => Ok((position, amount)),
        _ => Err(bad()),
    }
}

/// The number that a term is, if it is one. Counts digits as [`get_number`] does.
fn amount(env: Env, term: Term, digits: &mut usize) -> Result<Option<Amount>, Failure> {
    if !term.is_immediate() {
        if let Some(value) = env.get_f64(term) {
            return Ok(Some(Amount::Float(value)));
        }
    }
    Ok(get_number(env, term, digits)?.map(Amount::Integer))
}

fn sum(env: Env, value: &Amount) -> Result<Term, Failure> {
    match value {
        Amount::Integer(value) => number(env, value),
        Amount::Float(value) => Ok(env.float(*value)),
    }
}
