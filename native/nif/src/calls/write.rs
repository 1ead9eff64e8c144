//! `insert/2`, `insert_new/2`, `delete/2`, `delete_object/2`, `delete_all_objects/1`, `take/2`.

use super::*;
use cats_sync::slab::OutOfMemory;
use cats_table::{Lifetime, LIST_LIMIT};
use cats_term::lease::Request;
use cats_term::BlockRef;
use std::panic::resume_unwind;

pub fn insert(env: Env, &[table, objects]: &[Term; 2]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, INSERT)?;
    match env.tuple_elements(objects) {
        Some(elements) => match inline(elements) {
            Some(words) => handle.insert(Object::flat(words))?,
            None => insert_other(env, handle, elements)?,
        },
        None => {
            insert_list(env, handle, objects, false, None)?;
        }
    }
    Ok(atoms::true_())
}

/// [`insert`] of an object that may need a block. Not inlined, so that an object without a block needs fewer registers.
#[inline(never)]
fn insert_other(env: Env, handle: Handle<'_>, elements: &[Term]) -> Result<(), Failure> {
    Ok(handle.insert(other_object(env, handle, elements, None)?)?)
}

pub fn insert_new(env: Env, &[table, objects]: &[Term; 2]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, INSERT)?;
    let new = match env.tuple_elements(objects) {
        Some(elements) => match has_key_of(env, handle, elements)? {
            PRESENT => false,
            word => insert_absent(env, handle, elements, word)?,
        },
        None => insert_list(env, handle, objects, true, None)?,
    };
    Ok(atoms::boolean(new))
}

/// [`insert_new`] of an object whose key had none. `word` is what [`has_key_of`] has returned.
#[inline(never)]
fn insert_absent(env: Env, handle: Handle<'_>, elements: &[Term], word: u64) -> Result<bool, Failure> {
    let object = match inline(elements) {
        Some(words) => Object::flat(words),
        None => {
            let exact = handle.table().kind() != cats_table::Kind::OrderedSet;
            other_object(env, handle, elements, (exact && word != 0).then_some(word))?
        }
    };
    Ok(handle.insert_new(object)?)
}

/// Stands in place of a key word. No key word has these low bits.
const PRESENT: u64 = 1;

/// [`PRESENT`] if the key of these elements has an object, and otherwise its key word, or 0 without a key. Looking first takes no lock. It
/// is also cheaper than making an object that is not used.
#[inline(always)]
fn has_key_of(env: Env, handle: Handle<'_>, elements: &[Term]) -> Result<u64, Failure> {
    match elements.get(handle.table().key()) {
        None => Ok(0),
        Some(&key) => with_probe(
            env,
            handle.table(),
            key,
            #[inline(always)]
            |probe| {
                Ok(match handle.member::<Unused>(probe)? {
                    true => PRESENT,
                    false => probe.word(),
                })
            },
        ),
    }
}

/// Inserts an object, or with `new` only if its key has none. Returns whether it did.
#[inline]
pub(super) fn insert_one(
    handle: Handle<'_>,
    object: Object<'_>,
    new: bool,
    lifetime: Option<Lifetime>,
) -> Result<bool, Failure> {
    Ok(match (new, lifetime) {
        (true, None) => handle.insert_new(object)?,
        (true, Some(lifetime)) => handle.insert_new_lasting(object, lifetime)?,
        (false, None) => handle.insert(object).map(|()| true)?,
        (false, Some(lifetime)) => handle.insert_lasting(object, lifetime).map(|()| true)?,
    })
}

pub(super) fn insert_list(
    env: Env,
    handle: Handle<'_>,
    list: Term,
    new: bool,
    lifetime: Option<Lifetime>,
) -> Result<bool, Failure> {
    let count = length(env, list)?;
    let (mut rest, mut words) = (list, 0);
    if count == 1 {
        let (head, _) = env.cell(list).ok_or_else(bad)?;
        let object = object(env, handle, env.tuple_elements(head).ok_or_else(bad)?)?;
        let words = object.words();
        let inserted = insert_one(handle, object, new, lifetime)?;
        account(env, words);
        return Ok(inserted);
    }
    // This closure is used in one place only, so that it is inlined.
    let objects = (0..count).map(|_| -> Result<_, Failure> {
        let (head, tail) = env.cell(rest).ok_or_else(bad)?;
        rest = tail;
        let object = object(env, handle, env.tuple_elements(head).ok_or_else(bad)?)?;
        words += object.words();
        check_words(words)?;
        Ok(object)
    });
    let inserted = handle.insert_list(objects, new, lifetime.map_or(Request::Fresh, Lifetime::request))?;
    account(env, words + count * 50);
    // The call itself was counted as one.
    handle.table().count_more(Operation::Insert, count.saturating_sub(1));
    Ok(inserted)
}

/// The number of elements of a proper list. Fails with `Big` if it is too long for this scheduler. Prefetches the memory of the
/// elements on the way.
fn length(env: Env, list: Term) -> Result<usize, Failure> {
    let mut rest = list;
    let mut length = 0;
    let in_place = layout::is_known();
    while let Some((head, tail)) = env.cell(rest) {
        if in_place {
            head.prefetch();
        }
        length += 1;
        LIST_LIMIT.check(length)?;
        rest = tail;
    }
    if rest.0 == NIL {
        Ok(length)
    } else {
        Err(bad())
    }
}

/// `delete(Table, Key)`. If memory is exhausted, it is done once more with the reserve: to ask for that from the start would take time.
pub fn delete_key(env: Env, arguments: &[Term; 2]) -> Result<Term, Failure> {
    match catch_unwind(AssertUnwindSafe(|| delete_without_reserve(env, arguments))) {
        Ok(Err(Failure::SystemLimit(_))) => delete_with_reserve(env, arguments),
        Ok(done) => done,
        Err(payload) if payload.is::<OutOfMemory>() => delete_with_reserve(env, arguments),
        Err(payload) => resume_unwind(payload),
    }
}

#[cold]
fn delete_with_reserve(env: Env, arguments: &[Term; 2]) -> Result<Term, Failure> {
    let _relief = Relief::new();
    delete_without_reserve(env, arguments)
}

#[inline(always)]
fn delete_without_reserve(env: Env, &[table, key]: &[Term; 2]) -> Result<Term, Failure> {
    if !key.is_immediate() {
        return delete_built(env, table, key);
    }
    let guard = pin();
    let handle = find(env, &guard, table, DELETE)?;
    handle.delete(&handle.table().probe(TermRef::immediate(key.0)))?;
    wake(env);
    Ok(atoms::true_())
}

/// [`delete_without_reserve`] for a key that is not an immediate. It finds the table itself, because passing a handle would go
/// through memory.
#[inline(never)]
fn delete_built(env: Env, table: Term, key: Term) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, DELETE)?;
    with_callers_key(env, handle.table(), key, |probe, _| Ok(handle.delete(probe)?))?;
    wake(env);
    Ok(atoms::true_())
}

pub fn delete_object(env: Env, &[table, sought]: &[Term; 2]) -> Result<Term, Failure> {
    let _relief = Relief::new();
    let guard = pin();
    let handle = find(env, &guard, table, DELETE)?;
    delete_exactly(env, handle, sought)?;
    Ok(atoms::true_())
}

/// Deletes all objects that are exactly this one, and returns their number.
pub(super) fn delete_exactly(env: Env, handle: Handle<'_>, sought: Term) -> Result<usize, Failure> {
    let elements = encode::tuple(env, sought)?;
    if elements.len() <= handle.table().key() {
        return Err(bad());
    }
    let deleted = match delete_compared(env, handle, elements) {
        Some(deleted) => deleted?,
        None => handle.delete_object(object(env, handle, elements)?)?,
    };
    wake(env);
    Ok(deleted)
}

/// [`delete_exactly`] without a block for the tuple. `None` if it is long, has elements of rarer types or only immediates, or if stored
/// objects have another form.
#[inline(never)]
fn delete_compared(env: Env, handle: Handle<'_>, elements: &[Term]) -> Option<Result<usize, cats_table::Failure>> {
    if !layout::is_known() || handle.table().options().compressed() || encode::immediates(elements).is_some() {
        return None;
    }
    let mut room = Room::new();
    // SAFETY: the layout of terms is known, and these terms belong to the environment.
    let tuple = unsafe { encode::fast::tuple(env, elements, &mut room) }?;
    Some(handle.delete_like(BlockRef::in_place(tuple)?))
}

pub fn delete_all_objects(env: Env, &[table]: &[Term; 1]) -> Result<Term, Failure> {
    let _relief = Relief::new();
    let guard = pin();
    let handle = find(env, &guard, table, DELETE)?;
    handle.delete_all_objects(&Vm(env))?;
    Ok(atoms::true_())
}

pub fn take(env: Env, &[table, key]: &[Term; 2]) -> Result<Term, Failure> {
    let guard = pin();
    let handle = find(env, &guard, table, DELETE)?;
    with_probe(env, handle.table(), key, |probe| {
        let mut taken = Objects::none();
        handle.take(probe, SCHEDULER_WORDS, &mut taken)?;
        wake(env);
        let objects = taken.as_slice();
        account(env, objects.iter().map(ObjectRef::words).sum());
        list(env, objects)
    })
}
