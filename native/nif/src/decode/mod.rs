//! Decodes stored terms into terms of the VM.
//!
//! The words of a tuple of immediates are copied as they are. Other objects take the fast path ([`fast`]) if the layout
//! of the VM's terms is known. Otherwise `erl_nif` makes them.

pub mod fast;
mod whole;

use crate::encode::check_words;
use crate::entry::failure::{no_memory, Failure};
use crate::layout;
use crate::layout::{binary, fun};
use crate::vm::{atoms, external};
use crate::vm::{Env, Term};
use cats_sync::slab;
use cats_term::{BlockRef, Class, Elements, Fun, Integer, Shared, TermRef, View};

/// The tuple that a block stores. Fails with `Big` if it is too large for this scheduler.
#[inline]
pub fn object(env: Env, block: BlockRef) -> Result<Term, Failure> {
    if block.has_packed() {
        return packed_object(env, block, None);
    }
    check_words(block.words())?;
    if block.is_flat() {
        return Ok(env.tuple(Term::slice(block.elements_raw())));
    }
    if layout::is_known() {
        // SAFETY: the layout of terms and environments is known.
        return unsafe { fast::object(env, block) };
    }
    Ok(env.tuple(&made(env, block.elements())?))
}

/// As [`object`], but the element at `place` is `key`, a term of the environment.
#[inline]
pub fn object_with(env: Env, block: BlockRef, place: usize, key: Term) -> Result<Term, Failure> {
    if block.has_packed() {
        return packed_object(env, block, Some((place, key)));
    }
    check_words(block.words())?;
    if layout::is_known() {
        // SAFETY: the layout of terms and environments is known.
        return unsafe { fast::object_with(env, block, place, key) };
    }
    let mut elements = made(env, block.elements())?;
    elements[place] = key;
    Ok(env.tuple(&elements))
}

/// As [`object`], for a block with packed elements. If `own` is given, the element at that place is that term of the environment.
#[inline(never)]
fn packed_object(env: Env, block: BlockRef, own: Option<(usize, Term)>) -> Result<Term, Failure> {
    check_words(block.unpacked_words())?;
    if layout::is_known() {
        // SAFETY: the layout of terms and environments is known.
        return unsafe { fast::packed_object(env, block, own) };
    }
    let elements: Result<Vec<Term>, Failure> = block.elements().iter().map(|each| element(env, each)).collect();
    let mut elements = elements?;
    if let Some((place, term)) = own {
        elements[place] = term;
    }
    Ok(env.tuple(&elements))
}

/// One element of a block, which may be packed. The caller checks its size, as [`object`] does.
#[inline]
pub fn element(env: Env, element: TermRef) -> Result<Term, Failure> {
    match element.parts() {
        None => term(env, element),
        // SAFETY: the layout of terms and environments is known.
        Some(_) if layout::is_known() => unsafe { fast::element(env, element) },
        Some(mut parts) => make(env, parts.unpack(&mut vec![0; element.packed_words().unwrap_or(0)])),
    }
}

/// Whether an exactly equal term of the process may replace a copy of this stored term in a result. It may not if the
/// term has binaries, because they may be parts of larger ones and would keep those alive. Nor if it has floats,
/// because 0.0 and -0.0 may be one key.
pub fn may_stand(term: TermRef) -> bool {
    match term.view() {
        View::Immediate(_) | View::Integer(_) | View::Reference(_) => true,
        View::Tuple(elements) | View::Fun(Fun { env: elements, .. }) => {
            term.is_flat() || elements.iter().all(may_stand)
        }
        View::List(list) => term.is_flat() || list.elements().iter().all(may_stand) && may_stand(list.tail()),
        View::HeldTerm(class, _) => matches!(class, Class::Reference | Class::Pid | Class::Port),
        View::Map(_) | View::Float(_) | View::Binary(_) | View::SharedBinary(..) => false,
    }
}

/// One term of a block. The caller checks its size, as [`object`] does.
#[inline]
pub fn term(env: Env, term: TermRef) -> Result<Term, Failure> {
    if term.is_immediate() {
        return Ok(Term(term.word()));
    }
    if layout::is_known() {
        // SAFETY: the layout of terms and environments is known.
        return unsafe { fast::term(env, term) };
    }
    make(env, term)
}

/// As [`term`], for a term that is not an immediate. `erl_nif` makes it.
pub fn make(env: Env, term: TermRef) -> Result<Term, Failure> {
    /// An item, how many of its slots are made, and where in `made` the first of them is.
    struct Open<'t> {
        term: TermRef<'t>,
        slots: Elements<'t>,
        next: usize,
        first: usize,
    }
    // Most need none of the memory below.
    if slots_to_make(term).is_none() {
        return make_item(env, term);
    }
    let mut made: Vec<Term> = Vec::new();
    // The items whose slots are being made, each inside the one before. So the depth of the term costs no stack.
    let mut open: Vec<Open> = Vec::new();
    let mut term = term;
    loop {
        let slots = slots_to_make(term);
        match slots {
            Some(slots) => {
                slab::needed(open.try_reserve(1).ok());
                open.push(Open {
                    term,
                    slots,
                    next: 0,
                    first: made.len(),
                });
            }
            None => push(&mut made, make_item(env, term)?),
        }
        // What is complete is made.
        term = loop {
            let Some(last) = open.last_mut() else {
                return made.pop().ok_or_else(no_memory);
            };
            if last.next < last.slots.len() {
                last.next += 1;
                break last.slots.get(last.next - 1);
            }
            let whole = make_of(env, last.term, &made[last.first..]);
            made.truncate(last.first);
            push(&mut made, whole);
            open.pop();
        };
    }
}

fn push(terms: &mut Vec<Term>, term: Term) {
    slab::needed(terms.try_reserve(1).ok());
    terms.push(term);
}

/// The slots that must be made before the item, unless its words can be taken as they are.
fn slots_to_make(term: TermRef<'_>) -> Option<Elements<'_>> {
    match term.view() {
        View::Tuple(_) | View::List(_) | View::Map(_) if !term.is_flat() => Some(term.slots()),
        View::Fun(fun) if !term.is_flat() && !fun.is_counted() => Some(fun.env),
        _ => None,
    }
}

/// An item without other items in its slots.
fn make_item(env: Env, term: TermRef) -> Result<Term, Failure> {
    match term.view() {
        View::Immediate(word) => Ok(Term(word)),
        View::Tuple(_) | View::List(_) | View::Map(_) => Ok(make_of(env, term, Term::slice(term.slots().words()))),
        View::Fun(fun) => Ok(make_fun(env, fun, Term::slice(fun.env.words()))),
        View::Float(value) => Ok(env.float(value)),
        View::Integer(integer) => make_integer(env, integer).ok_or_else(|| Failure::SystemLimit(atoms::integer())),
        View::Binary(bytes) => Ok(env.binary(bytes)),
        View::Reference(words) => Ok(env.reference(words)),
        // SAFETY: the object owns a reference to the binary, and the caller keeps the object alive.
        View::SharedBinary(Shared::Counted(record), bytes) => Ok(unsafe { binary::make(env, record, bytes) }),
        View::SharedBinary(Shared::HeldTerm(held), _) | View::HeldTerm(_, held) => {
            // SAFETY: the object owns the held term, and the caller keeps the object alive.
            Ok(unsafe { env.copy(Term(held.term())) })
        }
    }
}

/// An item with these terms in its slots.
fn make_of(env: Env, term: TermRef, slots: &[Term]) -> Term {
    match term.view() {
        View::List(list) => {
            let (elements, tail) = slots.split_at(list.elements().len());
            match tail {
                [tail] => elements.iter().rev().fold(*tail, |tail, &head| env.cons(head, tail)),
                _ => env.list(elements),
            }
        }
        View::Map(map) => {
            let (keys, values) = slots.split_at(map.keys.len());
            // The pairs came from a map.
            env.map(keys, values).expect("the keys of a map differ")
        }
        View::Fun(fun) => make_fun(env, fun, slots),
        _ => env.tuple(slots),
    }
}

fn make_fun(env: Env, fun: Fun, terms: &[Term]) -> Term {
    // SAFETY: the terms belong to this environment. The object owns a reference to the fun if that is counted, and the caller keeps the
    // object alive.
    unsafe { fun::make(env, fun, terms) }
}

/// The terms of these elements.
fn made(env: Env, elements: Elements) -> Result<Vec<Term>, Failure> {
    elements.iter().map(|element| term(env, element)).collect()
}

fn make_integer(env: Env, integer: Integer) -> Option<Term> {
    match (integer.negative, integer.digits) {
        (false, &[digit]) => Some(env.unsigned(digit)),
        (true, &[digit]) if digit <= 1 << 63 => Some(env.integer(0i64.wrapping_sub_unsigned(digit))),
        (negative, digits) => external::make_integer(env, negative, digits),
    }
}
