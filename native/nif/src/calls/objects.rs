//! Objects, made of the caller's terms; and terms, made of objects.

use super::*;
use cats_term::key_word_of_part;
use std::time::Instant;

/// Words of an object that the buffer on the stack has room for.
pub(super) const OBJECT_WORDS: usize = 128;

/// Most elements of a tuple of immediates that needs no block.
pub(super) const INLINE: usize = 2;

/// Makes an object of a tuple's elements, to be stored in this table.
#[inline(always)]
pub(super) fn object<'a>(env: Env, handle: Handle<'_>, elements: &'a [Term]) -> Result<Object<'a>, Failure> {
    match inline(elements) {
        Some(words) => Ok(Object::flat(words)),
        None => other_object(env, handle, elements, None),
    }
}

/// The words of a tuple that needs no block, if it is one.
#[inline(always)]
pub(super) fn inline(elements: &[Term]) -> Option<&[u64]> {
    match elements.len() <= INLINE {
        true => encode::immediates(elements),
        false => None,
    }
}

/// As [`object`], for any other tuple. The most common kinds are made inline. `key_word` is given if the key's
/// [word](cats_term::key_word) in a table that compares keys exactly is known.
#[inline(always)]
pub(super) fn other_object<'a>(
    env: Env,
    handle: Handle<'_>,
    elements: &'a [Term],
    key_word: Option<u64>,
) -> Result<Object<'a>, Failure> {
    check_words(elements.len())?;
    let mut hashed = false;
    match elements.get(handle.table().key()) {
        // The memory of its place is prefetched while the block is made.
        Some(key) if key.is_immediate() => handle.announce(key.0),
        Some(_) => hashed = key_word.is_none() && handle.table().kind() != cats_table::Kind::OrderedSet,
        None => (),
    }
    let words = Term::words(elements);
    if elements.len() > INLINE && encode::immediates(elements).is_some() {
        return Ok(Object::flat(words));
    }
    if layout::is_known() {
        if let Some((index, element)) = only_other(elements) {
            // SAFETY: the layout of terms is known, and this term belongs to the environment.
            let object = unsafe {
                encode::short(
                    env,
                    element,
                    #[inline(always)]
                    |part| {
                        let key_word = match hashed {
                            true => key_word_of_part(&part),
                            false => key_word,
                        };
                        let object = Object::of_short(words, index, part, handle.guard())?;
                        Some(object.with_key_word(key_word))
                    },
                )
            };
            if let Some(object) = object {
                return Ok(object);
            }
        }
    }
    let block = object_block(env, handle.guard(), elements)?;
    Ok(Object::in_block(words, block).with_key_word(key_word))
}

/// If exactly one element of a tuple is not an immediate: its index, and the element.
#[inline(always)]
pub(super) fn only_other(elements: &[Term]) -> Option<(usize, Term)> {
    let is_other = |element: &Term| !element.is_immediate();
    let index = elements.iter().position(is_other)?;
    let rest = elements[index + 1..].iter().any(is_other);
    (!rest).then(|| (index, elements[index]))
}

/// Makes a block of the tuple of these terms, not all of which are immediates.
#[inline(never)]
pub(super) fn object_block(env: Env, guard: &Guard, elements: &[Term]) -> Result<Block, Failure> {
    match fast_block(env, guard, elements) {
        Some(block) => Ok(block),
        None => block(env, elements),
    }
}

/// The same, if that can be made by the fast path.
#[inline(always)]
pub(super) fn fast_block(env: Env, guard: &Guard, elements: &[Term]) -> Option<Block> {
    if !layout::is_known() {
        return None;
    }
    // SAFETY: the layout of terms is known, and these terms belong to the environment.
    unsafe { encode::fast::object(env, elements, guard) }
}

/// Makes a block of the tuple of these terms.
pub(super) fn block(env: Env, elements: &[Term]) -> Result<Block, Failure> {
    built(|builder| encode::object(env, elements, builder))
}

/// Makes a block of what a function builds. Not inlined: its buffer would enlarge the stack frame of callers that do not need it.
#[inline(never)]
pub(super) fn built(build: impl FnOnce(&mut Builder) -> Result<(), Failure>) -> Result<Block, Failure> {
    let mut room = Room::<OBJECT_WORDS>::new();
    let mut builder = Builder::within(&mut room);
    build(&mut builder)?;
    builder.finish().ok_or_else(no_memory)
}

/// Decodes an object.
#[inline(always)]
pub(super) fn tuple(env: Env, object: &ObjectRef<'_>) -> Result<Term, Failure> {
    match object {
        ObjectRef::Pair(words) => Ok(env.tuple_of(*words)),
        ObjectRef::Single(words) => Ok(env.tuple_of(*words)),
        ObjectRef::Block(block) => decode::object(env, *block),
    }
}

/// The list of these objects. Fails with `Big` if it is too large for this scheduler.
pub(super) fn tuples(env: Env, objects: &[ObjectRef<'_>]) -> Result<Term, Failure> {
    let words = objects.iter().map(|object| object.words() + 2).sum();
    check_words(words)?;
    let list = list(env, objects)?;
    account(env, words);
    Ok(list)
}

/// The list of these objects.
pub(super) fn list(env: Env, objects: &[ObjectRef<'_>]) -> Result<Term, Failure> {
    match objects {
        [] => Ok(Term(NIL)),
        [object] => Ok(env.cons(tuple(env, object)?, Term(NIL))),
        // SAFETY: the layout of terms and environments is known.
        objects if layout::is_known() => unsafe { decode::fast::list(env, objects) },
        objects => {
            let mut tuples = SmallVec::<[Term; 32]>::new();
            for object in objects {
                tuples.push(tuple(env, object)?);
            }
            Ok(env.list(&tuples))
        }
    }
}

/// Decodes one element. Fails with `Big` if it is packed and too large for this scheduler, or otherwise its object is.
#[inline]
pub(super) fn element(env: Env, object: &ObjectRef<'_>, index: usize) -> Result<Term, Failure> {
    let element = object.element(index);
    if element.is_immediate() {
        return Ok(Term(element.word()));
    }
    check_words(element.packed_words().unwrap_or_else(|| object.stored_words()))?;
    decode::element(env, element)
}

/// A rough estimate of the nanoseconds for encoding or decoding one word.
pub(super) const WORD_NS: usize = 5;

/// Reports to the scheduler how long a call takes that copies this many words.
#[inline]
pub(super) fn account(env: Env, words: usize) {
    env.account(words * WORD_NS);
}

/// Runs a part of a call, and reports to the scheduler how long it took, also if it is not done yet.
#[inline]
pub(super) fn timed<R>(env: Env, part: impl FnOnce() -> Result<R, Failure>) -> Result<R, Failure> {
    let begin = Instant::now();
    let result = part();
    env.account(begin.elapsed().as_nanos() as usize);
    result
}
