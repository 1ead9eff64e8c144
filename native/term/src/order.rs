//! The order of terms: `==` and `<` of Erlang, and the stricter order of map keys.
//!
//! The classes order as number < atom < reference < fun < port < pid < tuple < native record < map < `[]` < list < bit string. Inside a
//! class:
//!
//! * Numbers order by value, and atoms by text.
//! * Tuples and maps order by size first.
//! * Maps of one size order by their keys first. The keys order in the order of map keys, in which integers come before floats. Then the
//!   maps order by the values, taken in the order of the keys.
//!
//! The recursion ends at 64 levels. What is nested deeper is left to the VM, which needs no stack for it.

use crate::equal::equal_elements;
use crate::format::{vm_word_at, Class, Elements, List, Map, Shared, TermRef, View, MAX_DEPTH};
use crate::host::host;
use crate::identifier::{compare_pids, compare_references};
use crate::number::{compare_floats, Number};
use std::cmp::Ordering::{self, Equal, Greater, Less};

/// The VM stores maps of up to this many pairs as "flat" maps. As map keys, it compares flat maps in their order of iteration.
const FLAT_MAP_LIMIT: usize = 32;

/// Compares two terms in term order; `Equal` is `==`.
#[inline]
pub fn compare(a: TermRef<'_>, b: TermRef<'_>) -> Ordering {
    compare_as(a, b, false, 0)
}

/// Compares two terms in the order of map keys; `Equal` is `=:=`.
#[cfg(any(test, feature = "test-host"))]
pub(crate) fn compare_keys(a: TermRef<'_>, b: TermRef<'_>) -> Ordering {
    compare_as(a, b, true, 0)
}

#[inline]
fn compare_as(a: TermRef<'_>, b: TermRef<'_>, exact: bool, depth: usize) -> Ordering {
    match (a.small(), b.small()) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ if a.word() == b.word() && a.is_immediate() => Equal,
        _ => compare_others(a, b, exact, depth),
    }
}

/// [`compare`], or if `exact` the order of map keys.
///
/// The VM compares held terms: those nested deeper than 64 levels, and funs.
#[inline(never)]
fn compare_others(a: TermRef<'_>, b: TermRef<'_>, exact: bool, depth: usize) -> Ordering {
    if a.same_place(b) {
        return Equal;
    }
    if a.is_immediate() && b.is_immediate() {
        // The ends of ranges are immediates of classes of their own.
        let classes = Class::of_immediate(a.word()).cmp(&Class::of_immediate(b.word()));
        if classes != Equal {
            return classes;
        }
        if let Some(order) = compare_pids(a.word(), b.word()) {
            return order;
        }
    } else if depth == MAX_DEPTH && !a.is_immediate() && !b.is_immediate() {
        return a.class().cmp(&b.class()).then_with(|| match exact {
            true => (host().compare_keys)(a, b),
            false => (host().compare_mixed)(a, b),
        });
    // Keys of ordered tables that are no single words are mostly tuples.
    } else if let (Some(a), Some(b)) = (a.as_tuple(), b.as_tuple()) {
        return a
            .len()
            .cmp(&b.len())
            .then_with(|| compare_elements(a, b, exact, depth + 1));
    }
    let inner = depth + 1;
    match (a.view(), b.view()) {
        (View::Float(a), View::Float(b)) if !exact => compare_floats(a, b),
        (View::Reference(a), View::Reference(b)) => {
            compare_references(a, b).unwrap_or_else(|| (host().compare)(vm_word_at(a), vm_word_at(b)))
        }
        (View::List(a), View::List(b)) => compare_lists(a, b, exact, inner),
        (View::Map(a), View::Map(b)) => a
            .keys
            .len()
            .cmp(&b.keys.len())
            .then_with(|| compare_maps(a, b, exact, inner)),
        (View::Binary(a) | View::SharedBinary(_, a), View::Binary(b) | View::SharedBinary(_, b)) => a.cmp(b),
        (x, y) => match (Number::of(a), Number::of(b)) {
            (Some(a), Some(b)) if exact => a.compare_exact(b, host().zeros_identical),
            (Some(a), Some(b)) => a.compare(b),
            _ => a.class().cmp(&b.class()).then_with(|| match (vm_word(x), vm_word(y)) {
                _ if exact && a.class().may_hold_numbers() => (host().compare_keys)(a, b),
                (Some(a), Some(b)) => (host().compare)(a, b),
                _ => (host().compare_mixed)(a, b),
            }),
        },
    }
}

/// The VM's own word of a term, if it has one.
fn vm_word(view: View<'_>) -> Option<u64> {
    match view {
        View::Immediate(word) => Some(word),
        View::Reference(words) => Some(vm_word_at(words)),
        View::HeldTerm(_, held) | View::SharedBinary(Shared::HeldTerm(held), _) => Some(held.term()),
        _ => None,
    }
}

/// Compares the elements pairwise, as far as the shorter sequence goes.
fn compare_elements(a: Elements<'_>, b: Elements<'_>, exact: bool, depth: usize) -> Ordering {
    for (a, b) in a.iter().zip(b.iter()) {
        let order = compare_as(a, b, exact, depth);
        if order != Equal {
            return order;
        }
    }
    Equal
}

fn compare_lists(a: List<'_>, b: List<'_>, exact: bool, depth: usize) -> Ordering {
    let (x, y) = (a.elements(), b.elements());
    compare_elements(x, y, exact, depth).then_with(|| match x.len().cmp(&y.len()) {
        Equal => compare_as(a.tail(), b.tail(), exact, depth),
        // One list is longer. Its rest is a list, while a tail never is a non-empty list.
        Less => a.tail().class().cmp(&Class::List),
        Greater => Class::List.cmp(&b.tail().class()),
    })
}

/// Compares maps of the same size.
fn compare_maps(a: Map<'_>, b: Map<'_>, exact: bool, depth: usize) -> Ordering {
    if exact && a.keys.len() <= FLAT_MAP_LIMIT {
        return compare_elements(a.keys, b.keys, true, depth)
            .then_with(|| compare_elements(a.values, b.values, true, depth));
    }
    if equal_elements(a.keys, b.keys) {
        // The smallest key with different values decides.
        let mut smallest: Option<(TermRef<'_>, Ordering)> = None;
        for ((key, x), y) in a.keys.iter().zip(a.values.iter()).zip(b.values.iter()) {
            if smallest.is_some_and(|(smallest, _)| compare_as(smallest, key, true, depth) == Less) {
                continue;
            }
            let order = compare_as(x, y, exact, depth);
            if order != Equal {
                smallest = Some((key, order));
            }
        }
        return smallest.map_or(Equal, |(_, order)| order);
    }
    let sorted = |map: Map<'_>| {
        let mut places: Vec<_> = (0..map.keys.len()).collect();
        places.sort_unstable_by(|&i, &j| compare_as(map.keys.get(i), map.keys.get(j), true, depth));
        places
    };
    let (in_a, in_b) = (sorted(a), sorted(b));
    let compare_by = |x: Elements<'_>, y: Elements<'_>, exact| {
        let pairs = in_a
            .iter()
            .zip(&in_b)
            .map(|(&i, &j)| compare_as(x.get(i), y.get(j), exact, depth));
        pairs.into_iter().find(|&order| order != Equal).unwrap_or(Equal)
    };
    compare_by(a.keys, b.keys, true).then_with(|| compare_by(a.values, b.values, exact))
}
