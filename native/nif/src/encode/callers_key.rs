//! Keys to search for in a table that compares keys exactly, where they lie in the caller's heap. A key is hashed and compared with stored
//! keys without its stored form, which would be written only to be read once. It needs to know the [`layout`] of the VM's terms.
//!
//! Only keys of the most common types are treated so, and only those that [`fast`] can encode. So the stored form can be made at any time
//! for whatever needs it.

use super::{fast, immediates, INLINE_BINARY};
use crate::layout;
use crate::vm::{Env, Term};
use cats_table::CallersKey;
use cats_term::{is_immediate, HashState, Room, TermRef, View, NIL};
use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;

/// A key in the caller's heap, with room for its stored form.
pub struct Callers<'e> {
    env: Env<'e>,
    key: Term,
    /// The word of the stored form in the room, or 0 if it was not made yet.
    stored: Cell<u64>,
    room: UnsafeCell<Room<{ fast::WORDS }>>,
}

impl<'e> Callers<'e> {
    /// Not an immediate.
    #[inline(always)]
    pub fn new(env: Env<'e>, key: Term) -> Self {
        Self {
            env,
            key,
            stored: Cell::new(0),
            room: UnsafeCell::new(Room::new()),
        }
    }

    /// The [key word](cats_term::key_word). Nothing if the key is long or has parts of other types. Then it has no probe.
    ///
    /// # Safety
    /// The layout of terms is known, and the key belongs to the environment.
    #[inline(always)]
    pub unsafe fn word(&self) -> Option<u64> {
        let mut left = fast::WORDS;
        // SAFETY: as the caller promises.
        unsafe { absorb(HashState::new(), self.key, &mut left) }.map(HashState::finish)
    }

    /// Room for the stored form of a key that has no probe here.
    #[inline(always)]
    pub fn room(&mut self) -> &mut Room<{ fast::WORDS }> {
        self.room.get_mut()
    }
}

impl CallersKey for Callers<'_> {
    fn is(&self, stored: TermRef<'_>) -> bool {
        // SAFETY: there is a probe, so the layout is known, and the key has only parts that `absorb` knows.
        unsafe { is(self.key, stored) }
    }

    #[cold]
    fn term(&self) -> TermRef<'_> {
        // SAFETY: as above. The room is written once, before anybody reads it. The word was made for it.
        unsafe {
            if self.stored.get() == 0 {
                let encoded = fast::key(self.env, self.key, &mut *self.room.get());
                self.stored.set(encoded.expect("absorb has counted the words").0);
            }
            (*self.room.get()).term(self.stored.get())
        }
    }
}

/// Most elements of a list.
const LIST: usize = 64;

/// Absorbs a part of a key that is not an immediate, as [`cats_term::hash`] absorbs its stored form. Counts the words of that. Nothing if
/// too few are `left`, or for other types: a zero float too, as 0.0 and -0.0 may be one key. Each level of nesting takes words, so the
/// recursion has an end.
///
/// # Safety
/// The layout of terms is known, and this one belongs to a live environment. This is the contract of all functions here.
#[inline]
unsafe fn absorb(state: HashState, term: Term, left: &mut usize) -> Option<HashState> {
    // SAFETY: as the caller promises.
    unsafe {
        if let Some(elements) = layout::tuple(term) {
            spend(left, 1 + elements.len())?;
            let state = state.tuple(elements.len());
            match immediates(elements) {
                Some(words) => Some(state.words(words)),
                None => absorb_each(state, elements.iter().copied(), left),
            }
        } else if layout::cell(term).is_some() {
            absorb_list(state, term, left)
        } else if let Some(bytes) = layout::heap_binary(term) {
            spend(left, 1 + bytes.len().div_ceil(8))?;
            (bytes.len() <= INLINE_BINARY).then(|| state.short_binary(bytes))
        } else if let Some(words) = layout::reference(term) {
            spend(left, words.len())?;
            Some(state.reference(words))
        } else if let Some(value) = layout::float(term) {
            spend(left, 2)?;
            (value != 0.0).then(|| state.exact_float(value))
        } else if let Some((negative, digits)) = layout::integer(term) {
            spend(left, 1 + digits.len())?;
            Some(state.integer(negative, digits))
        } else {
            None
        }
    }
}

/// Subtracts words from those that are left. Nothing if there are not enough.
#[inline(always)]
fn spend(left: &mut usize, words: usize) -> Option<()> {
    *left = left.checked_sub(words)?;
    Some(())
}

#[inline(never)]
unsafe fn absorb_list(state: HashState, list: Term, left: &mut usize) -> Option<HashState> {
    let mut words = [const { MaybeUninit::uninit() }; LIST];
    let (mut length, mut tags, mut rest) = (0, !0, list);
    // SAFETY: as the caller promises; all `length` words are written.
    unsafe {
        while let Some((head, tail)) = layout::cell(rest) {
            words.get_mut(length)?.write(head.0);
            length += 1;
            tags &= head.0;
            rest = tail;
        }
        spend(left, 1 + length + (rest.0 != NIL) as usize)?;
        let words = &*(&raw const words[..length] as *const [u64]);
        let state = state.list(length);
        if is_immediate(tags & rest.0) {
            return Some(state.word(rest.0).words(words));
        }
        let state = absorb_each(state, words.iter().map(|word| Term(*word)), left)?;
        match rest.is_immediate() {
            true => Some(state.word(rest.0)),
            false => absorb(state, rest, left),
        }
    }
}

/// Absorbs elements, not all of which are immediates.
#[inline(never)]
unsafe fn absorb_each(
    mut state: HashState,
    mut elements: impl Iterator<Item = Term>,
    left: &mut usize,
) -> Option<HashState> {
    let one = |state: HashState, term: Term, left: &mut usize| match term.is_immediate() {
        true => Some(state.word(term.0)),
        // SAFETY: as the caller promises.
        false => unsafe { absorb(state, term, left) },
    };
    while let Some(first) = elements.next() {
        let Some(second) = elements.next() else {
            return one(state, first, left);
        };
        state = match first.is_immediate() && second.is_immediate() {
            true => state.two_words(first.0, second.0),
            false => one(one(state, first, left)?, second, left)?,
        };
    }
    Some(state)
}

/// Whether a part of a key is exactly the same as a stored term. Both have only parts that [`absorb`] knows, or they differ.
#[inline(always)]
unsafe fn is(term: Term, stored: TermRef<'_>) -> bool {
    match term.is_immediate() || stored.is_immediate() {
        true => term.0 == stored.word(),
        // SAFETY: as the caller promises.
        false => unsafe { is_item(term, stored) },
    }
}

unsafe fn is_item(term: Term, stored: TermRef<'_>) -> bool {
    // SAFETY: as the caller promises.
    unsafe {
        if let Some(elements) = layout::tuple(term) {
            stored.as_tuple().is_some_and(|others| {
                elements.len() == others.len() && elements.iter().zip(others.iter()).all(|(a, b)| is(*a, b))
            })
        } else if layout::cell(term).is_some() {
            match stored.view() {
                View::List(list) => {
                    let mut rest = term;
                    let begins = list.elements().iter().all(|element| match layout::cell(rest) {
                        Some((head, tail)) => {
                            rest = tail;
                            is(head, element)
                        }
                        None => false,
                    });
                    begins && is(rest, list.tail())
                }
                _ => false,
            }
        } else if let Some(bytes) = layout::heap_binary(term) {
            stored.is_binary(bytes)
        } else if let Some(words) = layout::reference(term) {
            matches!(stored.view(), View::Reference(others) if words == others)
        } else if let Some(value) = layout::float(term) {
            matches!(stored.view(), View::Float(other) if value.to_bits() == other.to_bits())
        } else if let Some((negative, digits)) = layout::integer(term) {
            matches!(stored.view(), View::Integer(other) if negative == other.negative && digits == other.digits)
        } else {
            false
        }
    }
}
