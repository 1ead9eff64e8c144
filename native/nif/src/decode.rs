//! Stored terms into terms of the VM.
//!
//! What is immediate within an object is passed on as it is stored; tuples, lists and maps of immediates are made in one go each, of the
//! words as they stand.

use crate::encode::check_words;
use crate::external;
use crate::failure::Failure;
use crate::vm::{Env, Term};
use cats_term::{BlockRef, Class, Elements, Integer, List, Map, TermRef, View, NIL};
use std::mem::MaybeUninit;

/// How many bytes before those of a shared binary their references are counted.
const COUNT_BEFORE: usize = 16;

/// The tuple that a block holds. `Big` when it is too large for this scheduler.
#[inline]
pub fn object(env: Env, block: BlockRef) -> Result<Term, Failure> {
    check_words(block.words())?;
    if block.is_flat() {
        return Ok(env.tuple(Term::slice(block.elements_raw())));
    }
    make_tuple(env, block.elements())
}

/// As [`object`], with `key`, a term of the environment, as the element at `place`.
#[inline]
pub fn object_with(env: Env, block: BlockRef, place: usize, key: Term) -> Result<Term, Failure> {
    check_words(block.words())?;
    let make = |(i, element)| if i == place { Ok(key) } else { term(env, element) };
    with_made(block.elements().iter().enumerate().map(make), |elements| {
        env.tuple(elements)
    })
}

/// Whether a term of the process that is exactly the same may stand for a copy of this stored one. Not for one with binaries in it,
/// which may be parts of larger ones that would be kept; nor with floats, of which 0.0 and -0.0 may be the same.
pub fn is_sharable(term: TermRef) -> bool {
    match term.view() {
        View::Immediate(_) | View::Integer(_) | View::Reference(_) => true,
        View::Tuple(elements) => term.is_flat() || elements.iter().all(is_sharable),
        View::List(list) => term.is_flat() || list.elements().iter().all(is_sharable) && is_sharable(list.tail()),
        View::Held(class, _) => matches!(class, Class::Reference | Class::Pid | Class::Port),
        View::Map(_) | View::Float(_) | View::Binary(_) | View::SharedBinary(..) => false,
    }
}

/// One term of a block. The caller sees to its size; see [`object`].
#[inline]
pub fn term(env: Env, term: TermRef) -> Result<Term, Failure> {
    if term.is_immediate() {
        return Ok(Term(term.word()));
    }
    make(env, term)
}

fn make(env: Env, term: TermRef) -> Result<Term, Failure> {
    match term.view() {
        View::Immediate(word) => Ok(Term(word)),
        View::Tuple(elements) if term.is_flat() => Ok(env.tuple(Term::slice(elements.words()))),
        View::Tuple(elements) => make_tuple(env, elements),
        View::List(list) => make_list(env, list, term.is_flat()),
        View::Map(map) => make_map(env, map, term.is_flat()),
        View::Float(value) => Ok(env.float(value)),
        View::Integer(integer) => make_integer(env, integer).ok_or(Failure::SystemLimit),
        View::Binary(bytes) => Ok(env.binary(bytes)),
        View::Reference(words) => Ok(env.reference(words)),
        View::SharedBinary(held, bytes) => {
            // The VM will count one reference more to them, in the line before the bytes: at once, not behind a look at the term.
            cats_sync::prefetch(bytes.as_ptr().wrapping_sub(COUNT_BEFORE).cast::<u64>());
            // SAFETY: as below.
            Ok(unsafe { env.copy(Term(held.term())) })
        }
        // SAFETY: the term is held as long as its object, which the caller keeps.
        View::Held(_, held) => Ok(unsafe { env.copy(Term(held.term())) }),
    }
}

/// Elements for which there is room on the stack.
const FEW: usize = 16;

/// Makes terms of these and passes them on.
#[inline]
fn with_elements<R>(env: Env, elements: Elements, body: impl FnOnce(&[Term]) -> R) -> Result<R, Failure> {
    with_made(elements.iter().map(|element| term(env, element)), body)
}

/// Passes on what is made one after the other.
#[inline]
fn with_made<R>(
    terms: impl ExactSizeIterator<Item = Result<Term, Failure>>,
    body: impl FnOnce(&[Term]) -> R,
) -> Result<R, Failure> {
    let count = terms.len();
    if count > FEW {
        return with_many(terms, body);
    }
    let mut few = [const { MaybeUninit::uninit() }; FEW];
    for (place, term) in few.iter_mut().zip(terms) {
        place.write(term?);
    }
    // SAFETY: that many were written, and a term may lie where one that is perhaps not yet written may.
    Ok(body(unsafe { std::slice::from_raw_parts(few.as_ptr().cast(), count) }))
}

#[cold]
fn with_many<R>(
    terms: impl Iterator<Item = Result<Term, Failure>>,
    body: impl FnOnce(&[Term]) -> R,
) -> Result<R, Failure> {
    let made: Result<Vec<Term>, Failure> = terms.collect();
    Ok(body(&made?))
}

fn make_tuple(env: Env, elements: Elements) -> Result<Term, Failure> {
    with_elements(env, elements, |elements| env.tuple(elements))
}

fn make_list(env: Env, list: List, flat: bool) -> Result<Term, Failure> {
    let elements = list.elements();
    if list.tail().word() != NIL {
        let tail = term(env, list.tail())?;
        let cons = |elements: &[Term]| elements.iter().rev().fold(tail, |tail, &head| env.cons(head, tail));
        return with_elements(env, elements, cons);
    }
    if flat {
        return Ok(env.list(Term::slice(elements.words())));
    }
    with_elements(env, elements, |elements| env.list(elements))
}

fn make_map(env: Env, map: Map, flat: bool) -> Result<Term, Failure> {
    let made = if flat {
        env.map(Term::slice(map.keys.words()), Term::slice(map.values.words()))
    } else {
        with_elements(env, map.keys, |keys| {
            with_elements(env, map.values, |values| env.map(keys, values))
        })??
    };
    // The pairs came from a map.
    Ok(made.expect("the keys of a map differ"))
}

fn make_integer(env: Env, integer: Integer) -> Option<Term> {
    match (integer.negative, integer.digits) {
        (false, &[digit]) => Some(env.unsigned(digit)),
        (true, &[digit]) if digit <= 1 << 63 => Some(env.integer(0i64.wrapping_sub_unsigned(digit))),
        (negative, digits) => external::make_integer(env, negative, digits),
    }
}
