//! Compares terms of the VM with stored ones, without encoding them. A traversal uses it: the key that a caller passes
//! is probably the one that the last step gave.

use crate::layout;
use crate::vm::{Env, Term};
use cats_term::{Class, Elements, Integer, TermRef, View};
use rustler::sys::*;

/// Most parts of a key to compare.
const PARTS: usize = 256;

/// True only if the terms are exactly equal (`=:=`). May be false for equal terms whose comparison takes long or is
/// rarely needed: long keys, maps, funs, bit strings, integers of more than 64 bits.
#[inline]
pub fn equals_stored(env: Env, term: Term, stored: TermRef<'_>) -> bool {
    if term.is_immediate() || stored.is_immediate() {
        return term.0 == stored.word();
    }
    if let (Some(words), true) = (stored.flat_tuple(), layout::is_known()) {
        // SAFETY: the layout of terms is known.
        let elements = unsafe { layout::tuple(term) };
        return elements.is_some_and(|elements| {
            elements.len() == words.len()
                && elements.len() <= PARTS
                && std::iter::zip(elements, words).all(|(a, b)| a.0 == *b)
        });
    }
    let mut left = PARTS;
    item_equals(env, term, stored, &mut left)
}

fn part_equals(env: Env, term: Term, stored: TermRef<'_>, left: &mut usize) -> bool {
    if term.is_immediate() || stored.is_immediate() {
        return term.0 == stored.word();
    }
    item_equals(env, term, stored, left)
}

/// The recursion is as deep as the stored term is nested: at most 64 levels.
fn item_equals(env: Env, term: Term, stored: TermRef<'_>, left: &mut usize) -> bool {
    match stored.view() {
        View::Immediate(word) => term.0 == word,
        View::Tuple(elements) => env.tuple_elements(term).is_some_and(|terms| {
            terms.len() == elements.len()
                && spend(left, terms.len())
                && match stored.is_flat() {
                    true => Term::words(terms) == elements.words(),
                    false => elements_equals(env, terms, elements, left),
                }
        }),
        View::List(list) => {
            let elements = list.elements();
            spend(left, elements.len()) && {
                let mut rest = term;
                let prefix = elements.iter().all(|element| match env.cell(rest) {
                    Some((head, tail)) => {
                        rest = tail;
                        part_equals(env, head, element, left)
                    }
                    None => false,
                });
                prefix && part_equals(env, rest, list.tail(), left)
            }
        }
        View::Float(value) => env.get_f64(term).is_some_and(|term| term.to_bits() == value.to_bits()),
        View::Integer(integer) => integer_equals(env, term, integer),
        View::Binary(bytes) | View::SharedBinary(_, bytes) => {
            spend(left, bytes.len() / 64) && env.binary_bytes(term) == Some(bytes)
        }
        View::Reference(words) => env.plain_reference(term) == Some(words),
        // SAFETY: both terms live during the call: the held one as long as its object.
        View::HeldTerm(Class::Reference | Class::Port | Class::Pid, held) => unsafe {
            enif_is_identical(term.raw(), Term(held.term()).raw()) != 0
        },
        View::HeldTerm(..) | View::Map(_) | View::Fun(_) => false,
    }
}

fn elements_equals(env: Env, terms: &[Term], elements: Elements<'_>, left: &mut usize) -> bool {
    let mut pairs = terms.iter().zip(elements.iter());
    pairs.all(|(&term, element)| part_equals(env, term, element, left))
}

fn integer_equals(env: Env, term: Term, integer: Integer<'_>) -> bool {
    match (integer.negative, integer.digits) {
        (false, &[digit]) => env.get_u64(term) == Some(digit),
        (true, &[digit]) => env
            .get_i64(term)
            .is_some_and(|value| value < 0 && value.unsigned_abs() == digit),
        _ => false,
    }
}

/// Subtracts from `left`. False if there is not enough.
fn spend(left: &mut usize, parts: usize) -> bool {
    match left.checked_sub(parts) {
        Some(rest) => {
            *left = rest;
            true
        }
        None => false,
    }
}
