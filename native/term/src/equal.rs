//! Exact equality of terms (`=:=`).

use crate::format::{Class, Elements, Map, TermRef, View, MAX_DEPTH};
use crate::hash::hash;
use crate::host::host;

/// Whether two terms are exactly the same.
///
/// O(size). O(n^2) for maps with the same keys in different orders, which the VM does not make.
///
/// The recursion ends at 64 levels. What is nested deeper is left to the VM, which needs no stack for it.
#[inline(always)]
pub fn equal(a: TermRef<'_>, b: TermRef<'_>) -> bool {
    if a.is_immediate() || b.is_immediate() {
        a.word() == b.word()
    } else {
        are_same_words(a, b) || equal_others(a, b)
    }
}

/// [`equal`] for terms that are nested, or not stored as the same words. Terms that were found by their hash usually have the same layout,
/// so that is tried first.
#[inline(never)]
fn equal_others(a: TermRef<'_>, b: TermRef<'_>) -> bool {
    a.is_laid_out_as(b) || equal_items(a, b, 0)
}

/// [`equal`] for parts of terms whose layouts differ.
fn equal_parts(a: TermRef<'_>, b: TermRef<'_>, depth: usize) -> bool {
    if a.is_immediate() || b.is_immediate() {
        a.word() == b.word()
    } else if are_same_words(a, b) {
        true
    } else if depth < MAX_DEPTH {
        equal_items(a, b, depth)
    } else {
        (host().identical_mixed)(a, b)
    }
}

/// Whether both items consist of the same words, and no word is an offset or held. That is the usual case for terms found by their hash.
#[inline]
fn are_same_words(a: TermRef<'_>, b: TermRef<'_>) -> bool {
    if let (Some(a), Some(b)) = (a.float_words(), b.float_words()) {
        return a[0] == b[0];
    }
    a.header() == b.header()
        && a.plain_words().is_some_and(|words| {
            // SAFETY: the headers are equal, and the header determines how many words an item has.
            let others = unsafe { b.words(words.len()) };
            // A loop, because a comparison of unknown length would become a function call.
            words.iter().zip(others).all(|(word, other)| word == other)
        })
}

#[inline(never)]
fn equal_items(a: TermRef<'_>, b: TermRef<'_>, depth: usize) -> bool {
    let depth = depth + 1;
    match (a.view(), b.view()) {
        (View::Tuple(a), View::Tuple(b)) => all_equal(a, b, depth),
        (View::List(a), View::List(b)) => {
            all_equal(a.elements(), b.elements(), depth) && equal_parts(a.tail(), b.tail(), depth)
        }
        (View::Map(a), View::Map(b)) => equal_maps(a, b, depth),
        (View::Float(a), View::Float(b)) => equal_floats(a, b),
        (View::Integer(a), View::Integer(b)) => a == b,
        (View::Binary(a) | View::SharedBinary(_, a), View::Binary(b) | View::SharedBinary(_, b)) => a == b,
        (View::Reference(a), View::Reference(b)) => a == b,
        (View::Fun(a), View::Fun(b)) => a.words == b.words && all_equal(a.env, b.env, depth),
        // A plain reference is never held.
        (View::Reference(_), View::HeldTerm(..)) | (View::HeldTerm(..), View::Reference(_)) => false,
        (View::HeldTerm(Class::Reference, a), View::HeldTerm(Class::Reference, b)) => {
            (host().identical)(a.term(), b.term())
        }
        (View::HeldTerm(class, a), View::HeldTerm(other, b)) => {
            class == other && a.hash() == b.hash() && (host().identical)(a.term(), b.term())
        }
        (View::HeldTerm(class, _), _) => class == b.class() && (host().identical_mixed)(a, b),
        (_, View::HeldTerm(class, _)) => class == a.class() && (host().identical_mixed)(a, b),
        _ => false,
    }
}

#[inline]
fn equal_floats(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || (a == 0.0 && b == 0.0 && host().zeros_identical)
}

/// Whether two sequences of terms are the same, element by element.
#[inline]
pub fn equal_elements(a: Elements<'_>, b: Elements<'_>) -> bool {
    a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| equal(a, b))
}

/// [`equal_elements`] for parts of terms whose layouts differ.
fn all_equal(a: Elements<'_>, b: Elements<'_>, depth: usize) -> bool {
    a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| equal_parts(a, b, depth))
}

fn equal_maps(a: Map<'_>, b: Map<'_>, depth: usize) -> bool {
    if a.keys.len() != b.keys.len() {
        return false;
    }
    if all_equal(a.keys, b.keys, depth) {
        return all_equal(a.values, b.values, depth);
    }
    let by_hash = |map: Map<'_>| {
        let mut places: Vec<_> = map.keys.iter().enumerate().map(|(i, key)| (coarse(key), i)).collect();
        places.sort_unstable();
        places
    };
    let places = by_hash(b);
    a.keys.iter().zip(a.values.iter()).all(|(key, value)| {
        let hash = coarse(key);
        let first = places.partition_point(|place| place.0 < hash);
        places[first..]
            .iter()
            .take_while(|place| place.0 == hash)
            .any(|&(_, i)| equal_parts(b.keys.get(i), key, depth) && equal_parts(b.values.get(i), value, depth))
    })
}

/// A hash that is the same whether parts of a term are held or not.
fn coarse(key: TermRef<'_>) -> u64 {
    match key.class() {
        class @ (Class::Tuple | Class::List | Class::Map | Class::Fun) => class as u64,
        _ => hash(key),
    }
}
