//! The fast path of encoding: writes small terms of common types in stored form directly into a buffer on the stack. It
//! needs to know the [`layout`] of the VM's terms. It is the opposite of [`decode::fast`](crate::decode::fast) and
//! works in the same way.
//!
//! Each function takes and returns the place of the next item, so that it stays in a register. Of the elements of an
//! item that are not immediates, each but the last is a recursive call. The loop continues with the last one.

use crate::calls::TABLES;
use crate::encode::INLINE_BINARY;
use crate::layout::{self, fun, Look};
use crate::vm::{Env, Term};
use cats_sync::epoch::Guard;
use cats_term::{draft, is_immediate, Block, Class, CountedFun, Room, TermRef, MAX_DEPTH, NIL};
use std::ptr::NonNull;

/// Most words of a term. Each level of nesting takes two or more words, so no such term is nested too deep to be
/// stored.
pub const WORDS: usize = 2 * (MAX_DEPTH - 1);
const _: () = assert!(WORDS <= u128::BITS as usize, "a bit for each");

/// The object of these elements, not all of which are immediates, in a block. Nothing if it is too long, has elements
/// of other types, or memory is exhausted. Not inlined: its buffer would enlarge the stack frame of callers that do not
/// need it.
///
/// # Safety
/// The layout of terms is known, and these terms belong to the environment. This is the contract of all functions here.
#[inline(never)]
pub unsafe fn object(env: Env, elements: &[Term], guard: &Guard) -> Option<Block> {
    let mut room = Room::<WORDS>::new();
    let mut encoder = Encoder::new(env, &mut room);
    // SAFETY: as the caller promises; the words are those that were laid out.
    unsafe {
        let end = encoder.root(elements)?;
        let (words, kept) = (end.offset_from(encoder.first) as usize, encoder.kept);
        room.block(words, kept, guard)
    }
}

/// Encodes the tuple of these elements into `room`, to be used there. Nothing if it is too long or has elements of other
/// types.
///
/// # Safety
/// As for [`object`].
#[inline]
pub unsafe fn tuple<'r>(env: Env, elements: &[Term], room: &'r mut Room<WORDS>) -> Option<TermRef<'r>> {
    let mut encoder = Encoder::new(env, room);
    // SAFETY: as the caller promises; the tuple is the first item.
    unsafe {
        encoder.root(elements)?;
        let first = encoder.first;
        Some(room.term(draft::word(first, first)))
    }
}

/// Encodes a key into `room`. Returns its word, and whether the caller's term may replace a copy of an equal stored key
/// in a result. It may not if it has a binary outside the heap, because it would keep the whole binary alive. Nor if it
/// has a zero float, because 0.0 and -0.0 may be one key. Returns nothing if the key is too long or has other types.
///
/// # Safety
/// As for [`object`]; the key is not an immediate.
#[inline(always)]
pub unsafe fn key(env: Env, key: Term, room: &mut Room<WORDS>) -> Option<(u64, bool)> {
    let mut encoder = Encoder::new(env, room);
    let mut word = 0;
    // SAFETY: as the caller promises; the slot is a word.
    unsafe {
        match layout::float(key) {
            // A single float stays in registers.
            Some(value) => encoder.float(value, NonNull::from(&mut word), encoder.first),
            None => encoder.boxed(key, NonNull::from(&mut word), encoder.first),
        }?;
    }
    Some((word, encoder.may_stand))
}

/// A slot that is not set yet, and the term for it.
type Waiting = Option<(NonNull<u64>, Term)>;

/// Writes stored items one behind the other. Its methods return the place of the next item. They return `None` if the
/// buffer is full or a term has another type.
struct Encoder<'e> {
    env: Env<'e>,
    first: NonNull<u64>,
    end: NonNull<u64>,
    /// One bit for each word of the buffer: set where an item begins that is counted or held.
    kept: u128,
    may_stand: bool,
}

impl<'e> Encoder<'e> {
    #[inline(always)]
    fn new(env: Env<'e>, room: &mut Room<WORDS>) -> Self {
        let (first, end) = room.bounds();
        Self {
            env,
            first,
            end,
            kept: 0,
            may_stand: true,
        }
    }

    /// Fails unless there is room for this many words.
    #[inline(always)]
    fn room(&self, next: NonNull<u64>, words: usize) -> Option<()> {
        (words <= (self.end.addr().get() - next.addr().get()) / size_of::<u64>()).then_some(())
    }

    #[inline(always)]
    unsafe fn root(&mut self, elements: &[Term]) -> Option<NonNull<u64>> {
        let at = self.first;
        self.room(at, 1 + elements.len())?;
        // SAFETY: there is room.
        unsafe {
            at.write(draft::tuple_header(elements.len(), false));
            let mut next = at.add(1 + elements.len());
            for (i, element) in elements.iter().enumerate() {
                let slot = at.add(1 + i);
                if element.is_immediate() {
                    slot.write(element.0);
                } else {
                    next = self.boxed(*element, slot, next)?;
                }
            }
            Some(next)
        }
    }

    /// Encodes a term that is not an immediate, and writes its word to `slot`.
    unsafe fn boxed(&mut self, mut term: Term, mut slot: NonNull<u64>, mut next: NonNull<u64>) -> Option<NonNull<u64>> {
        loop {
            let mut last = None;
            let at = next;
            // SAFETY: as the caller promises; there is room for what is written.
            unsafe {
                match layout::look(term) {
                    Look::Cell(..) => {
                        slot.write(draft::list_word(self.first, at));
                        next = self.list(term, at, &mut last)?;
                    }
                    Look::Tuple(elements) => {
                        let count = elements.len();
                        self.room(at, 1 + count)?;
                        slot.write(draft::word(self.first, at));
                        next = self.slots(elements, at.add(1), &mut last, at.add(1 + count))?;
                        at.write(draft::tuple_header(count, last.is_none()));
                    }
                    Look::Map(keys, values) => {
                        let count = keys.len();
                        self.room(at, 1 + 2 * count)?;
                        slot.write(draft::word(self.first, at));
                        next = self.slots(keys, at.add(1), &mut last, at.add(1 + 2 * count))?;
                        next = self.slots(values, at.add(1 + count), &mut last, next)?;
                        at.write(draft::map_header(count, last.is_none()));
                    }
                    Look::Float(value) => return self.float(value, slot, at),
                    Look::Binary(bytes) => return self.binary(bytes, slot, at),
                    Look::Same(words) => {
                        self.room(at, words.len())?;
                        slot.write(draft::word(self.first, at));
                        return Some(copy(words, at));
                    }
                    Look::Integer(negative, digits) => {
                        self.room(at, 1 + digits.len())?;
                        slot.write(draft::word(self.first, at));
                        at.write(draft::integer_header(negative, digits.len()));
                        return Some(copy(digits, at.add(1)));
                    }
                    Look::Other => return self.other(term, slot, at),
                }
            }
            match last {
                Some((waiting, element)) => (slot, term) = (waiting, element),
                None => return Some(next),
            }
        }
    }

    #[inline(always)]
    unsafe fn list(&mut self, list: Term, at: NonNull<u64>, last: &mut Waiting) -> Option<NonNull<u64>> {
        self.room(at, 1)?;
        // SAFETY: as the caller promises.
        unsafe {
            let first = at.add(1);
            let (mut place, mut rest, mut tags) = (first, list, !0);
            while let Some((head, tail)) = layout::cell(rest) {
                if place == self.end {
                    return None;
                }
                place.write(head.0);
                place = place.add(1);
                tags &= head.0;
                rest = tail;
            }
            let length = place.offset_from(first) as usize;
            let is_proper = rest.0 == NIL;
            if !is_proper {
                self.room(place, 1)?;
                place.write(rest.0);
                place = place.add(1);
                tags &= rest.0;
            }
            let is_flat = is_immediate(tags);
            at.write(draft::list_header(length, is_proper, is_flat));
            let mut next = place;
            if !is_flat {
                let mut slot = first;
                while slot != place {
                    let element = Term(slot.read());
                    if !element.is_immediate() {
                        next = self.slot(element, slot, last, next)?;
                    }
                    slot = slot.add(1);
                }
            }
            Some(next)
        }
    }

    /// Sets the slots from `first` on to these terms. The last one that is not an immediate waits in `last`.
    #[inline(always)]
    unsafe fn slots(
        &mut self,
        elements: &[Term],
        first: NonNull<u64>,
        last: &mut Waiting,
        mut next: NonNull<u64>,
    ) -> Option<NonNull<u64>> {
        for (i, element) in elements.iter().enumerate() {
            // SAFETY: as the caller promises.
            unsafe {
                let slot = first.add(i);
                if element.is_immediate() {
                    slot.write(element.0);
                } else {
                    next = self.slot(*element, slot, last, next)?;
                }
            }
        }
        Some(next)
    }

    /// Puts a term that is not an immediate into `last`, and encodes the one that waited there.
    #[inline(always)]
    unsafe fn slot(
        &mut self,
        term: Term,
        slot: NonNull<u64>,
        last: &mut Waiting,
        next: NonNull<u64>,
    ) -> Option<NonNull<u64>> {
        match last.replace((slot, term)) {
            // SAFETY: as the caller promises.
            Some((slot, term)) => unsafe { self.boxed(term, slot, next) },
            None => Some(next),
        }
    }

    #[inline(always)]
    unsafe fn float(&mut self, value: f64, slot: NonNull<u64>, at: NonNull<u64>) -> Option<NonNull<u64>> {
        self.room(at, 2)?;
        // SAFETY: as the caller promises; there is room.
        unsafe {
            slot.write(draft::word(self.first, at));
            at.write(draft::FLOAT_HEADER);
            at.add(1).write(value.to_bits());
            self.may_stand &= value != 0.0;
            Some(at.add(2))
        }
    }

    #[inline(always)]
    unsafe fn binary(&mut self, bytes: &[u8], slot: NonNull<u64>, at: NonNull<u64>) -> Option<NonNull<u64>> {
        let words = bytes.len().div_ceil(8);
        if bytes.len() > INLINE_BINARY {
            return None;
        }
        self.room(at, 1 + words)?;
        // SAFETY: as the caller promises; there is room.
        unsafe {
            slot.write(draft::word(self.first, at));
            at.write(draft::binary_header(bytes.len()));
            draft::write_bytes(bytes, at.add(1));
            Some(at.add(1 + words))
        }
    }

    /// A binary outside the heap, a fun, or a reference to a table.
    #[inline(never)]
    unsafe fn other(&mut self, term: Term, slot: NonNull<u64>, at: NonNull<u64>) -> Option<NonNull<u64>> {
        let Some((record, bytes)) = self.env.counted_binary(term) else {
            // SAFETY: as the caller promises.
            return unsafe {
                match TABLES.reference_of(term) {
                    Some(_) => self.held(Class::Reference, term, slot, at),
                    None => self.fun(term, slot, at),
                }
            };
        };
        self.may_stand = false;
        // SAFETY: as the caller promises; there is room.
        unsafe {
            if bytes.len() <= INLINE_BINARY {
                return self.binary(bytes, slot, at);
            }
            self.room(at, 3)?;
            self.kept |= 1 << at.offset_from(self.first);
            slot.write(draft::word(self.first, at));
            at.write(draft::counted_binary_header(bytes.len()));
            at.add(1).write(record);
            at.add(2).write(bytes.as_ptr().expose_provenance() as u64);
            Some(at.add(3))
        }
    }

    unsafe fn held(&mut self, class: Class, term: Term, slot: NonNull<u64>, at: NonNull<u64>) -> Option<NonNull<u64>> {
        self.room(at, 3)?;
        // SAFETY: there is room.
        unsafe {
            self.kept |= 1 << at.offset_from(self.first);
            slot.write(draft::word(self.first, at));
            at.write(draft::held_header(class));
            at.add(1).write(term.0);
            at.add(2).write(0);
            Some(at.add(3))
        }
    }

    unsafe fn fun(&mut self, term: Term, slot: NonNull<u64>, at: NonNull<u64>) -> Option<NonNull<u64>> {
        self.may_stand = false;
        // SAFETY: as the caller promises; there is room.
        unsafe {
            let Some((words, terms)) = fun::read(term) else {
                return self.counted_fun(fun::counted(term)?, slot, at);
            };
            let count = terms.len();
            self.room(at, 1 + count + words.len())?;
            slot.write(draft::word(self.first, at));
            let behind = copy(&words, at.add(1 + count));
            let mut last = None;
            let next = self.slots(terms, at.add(1), &mut last, behind)?;
            at.write(draft::fun_header(count, last.is_none()));
            match last {
                Some((slot, term)) => self.boxed(term, slot, next),
                None => Some(next),
            }
        }
    }

    unsafe fn counted_fun(
        &mut self,
        fun: CountedFun<'_>,
        slot: NonNull<u64>,
        at: NonNull<u64>,
    ) -> Option<NonNull<u64>> {
        self.room(at, fun.item_words())?;
        // SAFETY: there is room.
        unsafe {
            self.kept |= 1 << at.offset_from(self.first);
            slot.write(draft::word(self.first, at));
            fun.write(at);
            Some(at.add(fun.item_words()))
        }
    }
}

/// Copies words one by one. Returns the place behind them.
#[inline(always)]
unsafe fn copy(words: &[u64], to: NonNull<u64>) -> NonNull<u64> {
    for (i, word) in words.iter().enumerate() {
        // SAFETY: the caller has room for them.
        unsafe { to.add(i).write(*word) };
    }
    // SAFETY: this is at most one word behind the last.
    unsafe { to.add(words.len()) }
}
