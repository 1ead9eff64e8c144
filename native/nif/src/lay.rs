//! Stored terms laid out in an environment's memory, as the VM would do it, in releases in which that is known ([`layout`]).
//!
//! Where the next item goes is passed on from one to the other, so in a register: an environment's own word for it, written and read
//! again, would have each item wait for the one before. Of the elements of an item that are no immediates, all but the last are a call
//! each, and the last one follows in the same: so what is nested in its last elements, as lists of lists are, goes no deeper.

use crate::decode;
use crate::failure::Failure;
use crate::layout::{self, BOXED, CELL};
use crate::vm::{Env, Term};
use cats_table::ObjectRef;
use cats_term::{BlockRef, Elements, TermRef, View, NIL};
use std::ptr::NonNull;

/// The tuple that a block holds.
///
/// # Safety
/// Terms and environments are as expected; so in all functions here.
pub unsafe fn object(env: Env, block: BlockRef) -> Result<Term, Failure> {
    // SAFETY: as the caller promises.
    unsafe { object_of(env, block, |_| None) }
}

/// As [`object`], with another term of the environment as the element at one place.
///
/// # Safety
/// As for [`object`].
pub unsafe fn object_with(env: Env, block: BlockRef, place: usize, term: Term) -> Result<Term, Failure> {
    // SAFETY: as the caller promises.
    unsafe { object_of(env, block, |i| (i == place).then_some(term)) }
}

#[inline(always)]
unsafe fn object_of(env: Env, block: BlockRef, own: impl Fn(usize) -> Option<Term>) -> Result<Term, Failure> {
    let elements = block.elements();
    let mut laying = Laying { env, failure: None };
    // SAFETY: as the caller promises; the slots are those of the tuple.
    unsafe {
        let (at, mut next) = laying.item(layout::next(env), layout::tuple_header(elements.len()), elements.len());
        for (i, element) in elements.iter().enumerate() {
            let slot = at.add(1 + i);
            match own(i) {
                Some(term) => slot.write(term.0),
                None => next = laying.term(element, slot, next),
            }
        }
        layout::set_next(env, next);
        laying.done(Term(at.addr().get() as u64 | BOXED))
    }
}

/// The list of these objects. A cell and its tuple are one item, and the cell's tail is written with the next one.
///
/// # Safety
/// As for [`object`].
pub unsafe fn list(env: Env, objects: &[ObjectRef<'_>]) -> Result<Term, Failure> {
    let mut laying = Laying { env, failure: None };
    let mut list = 0;
    let mut tail = NonNull::from(&mut list);
    // SAFETY: as the caller promises; the slots are those of the cells and tuples.
    unsafe {
        let mut next = layout::next(env);
        for object in objects {
            let arity = object.arity();
            let at = layout::room(env, next, 3 + arity);
            let tuple = at.add(2);
            tail.write(at.addr().get() as u64 | CELL);
            tail = at.add(1);
            at.write(tuple.addr().get() as u64 | BOXED);
            tuple.write(layout::tuple_header(arity));
            next = tuple.add(1 + arity);
            match (object, object.flat()) {
                (_, Some(words)) => copy(words, tuple.add(1)),
                (ObjectRef::Block(block), None) => {
                    for (i, element) in block.elements().iter().enumerate() {
                        next = laying.term(element, tuple.add(1 + i), next);
                    }
                }
                _ => unreachable!("inline objects are flat"),
            }
        }
        tail.write(NIL);
        layout::set_next(env, next);
    }
    laying.done(Term(list))
}

/// One term of a block.
///
/// # Safety
/// As for [`object`].
pub unsafe fn term(env: Env, term: TermRef) -> Result<Term, Failure> {
    let mut laying = Laying { env, failure: None };
    let mut word = 0;
    // SAFETY: as the caller promises; the slot is a word.
    unsafe {
        let next = laying.boxed(term, NonNull::from(&mut word), layout::next(env));
        layout::set_next(env, next);
    }
    laying.done(Term(word))
}

/// Words of a short binary's bytes at most, and of a small tuple.
const SMALL: usize = layout::HEAP_BINARY / size_of::<u64>();

/// A word to be written, and the term that it will refer to.
type Waiting<'t> = Option<(NonNull<u64>, TermRef<'t>)>;

struct Laying<'e> {
    env: Env<'e>,
    /// Why, if something could not be made. What is made is complete all the same, as the VM may go over it.
    failure: Option<Failure>,
}

impl Laying<'_> {
    #[inline(always)]
    fn done(self, term: Term) -> Result<Term, Failure> {
        match self.failure {
            None => Ok(term),
            Some(failure) => Err(failure),
        }
    }

    /// Begins an item of a header and so many words; where it is, and where the next one goes. Here and below, `next` is where the next item
    /// goes, as the environment does not know yet.
    #[inline(always)]
    unsafe fn item(&self, next: NonNull<u64>, header: u64, words: usize) -> (NonNull<u64>, NonNull<u64>) {
        // SAFETY: as the caller promises; there is room for all of it.
        unsafe {
            let at = layout::room(self.env, next, 1 + words);
            at.write(header);
            (at, at.add(1 + words))
        }
    }

    /// Writes the word of a term to `slot`, and lays out what it refers to.
    #[inline(always)]
    unsafe fn term(&mut self, term: TermRef, slot: NonNull<u64>, next: NonNull<u64>) -> NonNull<u64> {
        if term.is_immediate() {
            // SAFETY: the caller's slot.
            unsafe { slot.write(term.word()) };
            return next;
        }
        // SAFETY: as the caller promises.
        unsafe { self.boxed(term, slot, next) }
    }

    /// As [`term`](Self::term), of one that is no immediate. What is commonest and small is laid out here, if there is room for it: a few
    /// immediates in a tuple, a short binary, a float, a reference. There is no call but one that ends this one, so hardly a register
    /// need be saved.
    #[inline(never)]
    unsafe fn boxed(&mut self, term: TermRef, slot: NonNull<u64>, next: NonNull<u64>) -> NonNull<u64> {
        // SAFETY: as the caller promises; each item has the words that its kind's layout has.
        unsafe {
            if !layout::has_room(self.env, next, 2 + SMALL) {
                return self.nested(term, slot, next);
            }
            let refer = || slot.write(next.addr().get() as u64 | BOXED);
            if let Some(words) = term.flat_tuple().filter(|words| (1..=SMALL).contains(&words.len())) {
                refer();
                next.write(layout::tuple_header(words.len()));
                return copy_few(words, next.add(1));
            }
            if let Some(bytes) = term.own_binary() {
                if let Some((header, size)) = layout::binary_header(bytes.len()) {
                    refer();
                    next.write(header);
                    next.add(1).write(size);
                    return copy_few(padded(bytes), next.add(2));
                }
            }
            if let Some(&[bits]) = term.float_words() {
                refer();
                next.write(layout::FLOAT_HEADER);
                next.add(1).write(bits);
                return next.add(2);
            }
            if let Some(words) = term.reference_words() {
                refer();
                return copy_few(words, next);
            }
            self.nested(term, slot, next)
        }
    }

    /// As [`boxed`](Self::boxed), of any term.
    unsafe fn nested(&mut self, mut term: TermRef, mut slot: NonNull<u64>, mut next: NonNull<u64>) -> NonNull<u64> {
        loop {
            let mut last = None;
            // SAFETY: as the caller promises; each item has the words that its kind's layout has.
            unsafe {
                match term.view() {
                    View::Tuple(elements) if !elements.is_empty() => {
                        let count = elements.len();
                        let (at, behind) = self.item(next, layout::tuple_header(count), count);
                        slot.write(at.addr().get() as u64 | BOXED);
                        next = self.slots::<1>(elements, term.is_flat(), at.add(1), &mut last, behind);
                    }
                    View::List(list) => {
                        let elements = list.elements();
                        let count = elements.len();
                        let at = layout::room(self.env, next, 2 * count);
                        slot.write(at.addr().get() as u64 | CELL);
                        next = self.slots::<2>(elements, term.is_flat(), at, &mut last, at.add(2 * count));
                        next = self.slot(list.tail(), at.add(2 * count - 1), &mut last, next);
                    }
                    View::Map(map) if map.ordered && layout::is_laid_map(map.keys.len()) => {
                        let (pairs, flat) = (map.keys.len(), term.is_flat());
                        let (keys, behind) = self.item(next, layout::tuple_header(pairs), pairs);
                        let (at, behind) = self.item(behind, layout::map_header(), 2 + pairs);
                        slot.write(at.addr().get() as u64 | BOXED);
                        at.add(1).write(pairs as u64);
                        at.add(2).write(keys.addr().get() as u64 | BOXED);
                        next = self.slots::<1>(map.keys, flat, keys.add(1), &mut last, behind);
                        next = self.slots::<1>(map.values, flat, at.add(3), &mut last, next);
                    }
                    View::Float(value) => {
                        let (at, behind) = self.item(next, layout::FLOAT_HEADER, 1);
                        at.add(1).write(value.to_bits());
                        slot.write(at.addr().get() as u64 | BOXED);
                        return behind;
                    }
                    View::Binary(bytes) => {
                        let Some((header, size)) = layout::binary_header(bytes.len()) else {
                            return self.by_vm(term, slot, next);
                        };
                        let words = padded(bytes);
                        let (at, behind) = self.item(next, header, 1 + words.len());
                        at.add(1).write(size);
                        copy(words, at.add(2));
                        slot.write(at.addr().get() as u64 | BOXED);
                        return behind;
                    }
                    View::Integer(integer) => {
                        let digits = integer.digits;
                        let Some(header) = layout::integer_header(integer.negative, digits.len()) else {
                            return self.by_vm(term, slot, next);
                        };
                        let (at, behind) = self.item(next, header, digits.len());
                        copy(digits, at.add(1));
                        slot.write(at.addr().get() as u64 | BOXED);
                        return behind;
                    }
                    View::Reference(words) => {
                        let (at, behind) = self.item(next, words[0], words.len() - 1);
                        copy(&words[1..], at.add(1));
                        slot.write(at.addr().get() as u64 | BOXED);
                        return behind;
                    }
                    _ => return self.by_vm(term, slot, next),
                }
            }
            match last {
                Some(waiting) => (slot, term) = waiting,
                None => return next,
            }
        }
    }

    /// Writes the words of these elements from `first` on, each `STEP` words from the one before, and lays out what they refer to, except
    /// for the last one that is no immediate. With a step of two they are the heads of cells, each of which refers to the one behind it.
    #[inline(always)]
    unsafe fn slots<'t, const STEP: usize>(
        &mut self,
        elements: Elements<'t>,
        flat: bool,
        first: NonNull<u64>,
        last: &mut Waiting<'t>,
        mut next: NonNull<u64>,
    ) -> NonNull<u64> {
        // SAFETY: as the caller promises.
        unsafe {
            if flat && STEP == 1 {
                copy(elements.words(), first);
                return next;
            }
            for (i, element) in elements.iter().enumerate() {
                let slot = first.add(STEP * i);
                if STEP == 2 {
                    slot.add(1).write(slot.add(2).addr().get() as u64 | CELL);
                }
                if flat {
                    slot.write(element.word());
                } else {
                    next = self.slot(element, slot, last, next);
                }
            }
        }
        next
    }

    /// As [`term`](Self::term), but a term that is no immediate waits in `last`, and the one that waited there is laid out.
    #[inline(always)]
    unsafe fn slot<'t>(
        &mut self,
        term: TermRef<'t>,
        slot: NonNull<u64>,
        last: &mut Waiting<'t>,
        next: NonNull<u64>,
    ) -> NonNull<u64> {
        // SAFETY: as the caller promises.
        unsafe {
            if term.is_immediate() {
                slot.write(term.word());
                return next;
            }
            match last.replace((slot, term)) {
                Some((slot, term)) => self.boxed(term, slot, next),
                None => next,
            }
        }
    }

    /// Has the VM make a term.
    #[inline(never)]
    unsafe fn by_vm(&mut self, term: TermRef, slot: NonNull<u64>, next: NonNull<u64>) -> NonNull<u64> {
        // SAFETY: as the caller promises. The VM makes the term behind what was laid out: nothing looks at that before the call ends.
        unsafe {
            layout::set_next(self.env, next);
            let made = decode::make(self.env, term).unwrap_or_else(|failure| {
                self.failure = Some(failure);
                Term(NIL)
            });
            slot.write(made.0);
            layout::next(self.env)
        }
    }
}

/// The words of a block that hold these bytes and what pads them.
///
/// # Safety
/// They are the bytes of a block's binary.
#[inline(always)]
unsafe fn padded(bytes: &[u8]) -> &[u64] {
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len().div_ceil(8)) }
}

/// Copies at most [`SMALL`] words, and no fewer than one; where the next ones go. Those at the beginning and those at the end, which may be
/// the same: so there is no loop, whose setup would take longer than it.
#[inline(always)]
unsafe fn copy_few(words: &[u64], to: NonNull<u64>) -> NonNull<u64> {
    /// The words at both ends.
    #[inline(always)]
    unsafe fn ends<const N: usize>(from: *const u64, to: NonNull<u64>, words: usize) {
        // SAFETY: as the caller promises, there are `N` words or more.
        unsafe {
            for at in [0, words - N] {
                let part = from.add(at).cast::<[u64; N]>().read();
                to.add(at).cast().write(part);
            }
        }
    }
    let (from, count) = (words.as_ptr(), words.len());
    debug_assert!((1..=SMALL).contains(&count));
    // SAFETY: the caller has room for them.
    unsafe {
        match count {
            1 => to.write(*from),
            2..4 => ends::<2>(from, to, count),
            _ => ends::<4>(from, to, count),
        }
        to.add(count)
    }
}

/// Copies words one by one: a copy of any length would be a call.
#[inline(always)]
unsafe fn copy(words: &[u64], to: NonNull<u64>) {
    for (i, word) in words.iter().enumerate() {
        // SAFETY: the caller has room for them.
        unsafe { to.add(i).write(*word) };
    }
}
