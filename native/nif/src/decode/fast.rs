//! The fast path of decoding: writes stored terms as terms of the VM directly into the memory of an environment. It
//! needs to know the [`layout`] of terms and environments.
//!
//! Each function takes and returns the place of the next item, so that it stays in a register. Reading it from the
//! environment each time would make each item wait for the write of the one before.
//!
//! The elements of an object are decoded [as a whole](super::whole). Whatever that leaves to this file, each element of a packed object, and a
//! single term is one call. Terms nested in it wait in an array of slots, and the loop of the same call decodes them. The elements of long
//! lists, and terms that find the array full, are a recursive call each. The depth of calls is limited: what is nested deeper waits in a list
//! of its own.

use crate::decode;
use crate::entry::failure::Failure;
use crate::layout::{self, fun, tree, BOXED, CELL};
use crate::vm::{Env, Term};
use cats_sync::slab;
use cats_table::ObjectRef;
use cats_term::draft::write_bytes;
use cats_term::{is_immediate, BlockRef, Elements, Map, Part, Parts, TermRef, View, MAX_DEPTH, NIL, SCRATCH_WORDS};
use smallvec::SmallVec;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// The tuple that a block stores.
///
/// # Safety
/// The layout of terms and environments is known. This is the contract of all functions here.
#[inline(always)]
pub unsafe fn object(env: Env, block: BlockRef) -> Result<Term, Failure> {
    // SAFETY: as the caller promises.
    unsafe { object_of(env, block, |_| None) }
}

/// As [`object`], but the element at one place is another term of the environment.
///
/// # Safety
/// As for [`object`].
#[inline(always)]
pub unsafe fn object_with(env: Env, block: BlockRef, place: usize, term: Term) -> Result<Term, Failure> {
    // SAFETY: as the caller promises.
    unsafe { object_of(env, block, move |i| (i == place).then_some(term)) }
}

/// An object whose elements take at least so many words, with the header and without their own words, is decoded [as a whole](super::whole).
/// Another one has one or two parts, which are mostly short.
const WHOLE: usize = 16;

/// The tuple that a block stores. Where `own` gives a term, that one is the element.
#[inline(always)]
unsafe fn object_of(env: Env, block: BlockRef, own: impl Fn(usize) -> Option<Term>) -> Result<Term, Failure> {
    // SAFETY: as the caller promises.
    unsafe {
        match block.words() < WHOLE + block.arity() {
            true => small_object(env, block, own),
            false => whole_object(env, block, own),
        }
    }
}

/// Not inlined, like the next one, as that needs more registers, and an array.
#[inline(never)]
unsafe fn small_object(env: Env, block: BlockRef, own: impl Fn(usize) -> Option<Term>) -> Result<Term, Failure> {
    let elements = block.elements();
    let mut decoder = Decoder::new(env);
    // SAFETY: as the caller promises; the slots are those of the tuple.
    unsafe {
        let (at, mut next) = decoder.item(layout::next(env), layout::tuple_header(elements.len()), elements.len());
        for (i, element) in elements.iter().enumerate() {
            let slot = at.add(1 + i);
            match own(i) {
                Some(term) => slot.write(term.0),
                None => next = decoder.term(element, slot, next),
            }
        }
        layout::set_next(env, next);
        decoder.done(Term(at.addr().get() as u64 | BOXED))
    }
}

#[inline(never)]
unsafe fn whole_object(env: Env, block: BlockRef, own: impl Fn(usize) -> Option<Term>) -> Result<Term, Failure> {
    let mut decoder = Decoder::new(env);
    // SAFETY: as the caller promises; the slots are those of the tuple.
    unsafe {
        let (at, next) = decoder.item(layout::next(env), layout::tuple_header(block.arity()), block.arity());
        let next = decoder.elements(block, at.add(1), own, next);
        layout::set_next(env, next);
        decoder.done(Term(at.addr().get() as u64 | BOXED))
    }
}

/// The tuple that a block with packed elements stores. If `own` is given, the element at that place is that term of the environment.
///
/// # Safety
/// As for [`object`].
pub unsafe fn packed_object(env: Env, block: BlockRef, own: Option<(usize, Term)>) -> Result<Term, Failure> {
    let elements = block.elements();
    let mut decoder = Decoder::new(env);
    // SAFETY: as in `object_of`.
    unsafe {
        let (at, mut next) = decoder.item(layout::next(env), layout::tuple_header(elements.len()), elements.len());
        for (i, element) in elements.iter().enumerate() {
            let slot = at.add(1 + i);
            match own {
                Some((place, term)) if place == i => slot.write(term.0),
                _ => next = decoder.element(element, slot, next),
            }
        }
        layout::set_next(env, next);
        decoder.done(Term(at.addr().get() as u64 | BOXED))
    }
}

/// The list of these objects. Each cell is written together with its tuple. The tail of a cell is written with the next
/// one.
///
/// # Safety
/// As for [`object`].
pub unsafe fn list(env: Env, objects: &[ObjectRef<'_>]) -> Result<Term, Failure> {
    let mut decoder = Decoder::new(env);
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
                    next = decoder.elements(*block, tuple.add(1), |_| None, next);
                }
                _ => unreachable!("inline objects are flat"),
            }
        }
        tail.write(NIL);
        layout::set_next(env, next);
    }
    decoder.done(Term(list))
}

/// One term of a block.
///
/// # Safety
/// As for [`object`].
pub unsafe fn term(env: Env, term: TermRef) -> Result<Term, Failure> {
    let mut decoder = Decoder::new(env);
    let mut word = 0;
    // SAFETY: as the caller promises; the slot is a word.
    unsafe {
        let next = decoder.boxed(term, NonNull::from(&mut word), layout::next(env));
        layout::set_next(env, next);
    }
    decoder.done(Term(word))
}

/// One element of a block, which may be packed.
///
/// # Safety
/// As for [`object`].
pub unsafe fn element(env: Env, element: TermRef) -> Result<Term, Failure> {
    let mut decoder = Decoder::new(env);
    let mut word = 0;
    // SAFETY: as in `term`.
    unsafe {
        let next = decoder.element(element, NonNull::from(&mut word), layout::next(env));
        layout::set_next(env, next);
    }
    decoder.done(Term(word))
}

/// Most words of the bytes of a short binary, and of the elements of a small tuple.
const SMALL: usize = layout::HEAP_BINARY / size_of::<u64>();

/// Most slots that wait, and most of those from one list.
const WAITING: usize = 32;
const WAITING_OF_LIST: usize = WAITING / 2;

/// Slots whose terms are not decoded yet. The last one in is the first one out.
struct Waiting<'r> {
    slots: &'r mut [MaybeUninit<NonNull<u64>>; WAITING],
    count: usize,
}

impl Waiting<'_> {
    /// Adds a slot. Returns false if there was no room.
    #[inline(always)]
    fn put(&mut self, slot: NonNull<u64>) -> bool {
        let place = self.slots.get_mut(self.count);
        let has_room = place.is_some();
        if let Some(place) = place {
            place.write(slot);
            self.count += 1;
        }
        has_room
    }

    #[inline(always)]
    fn take(&mut self) -> Option<NonNull<u64>> {
        self.count = self.count.checked_sub(1)?;
        // SAFETY: all slots below `count` are initialized.
        Some(unsafe { self.slots.get_unchecked(self.count).assume_init() })
    }
}

/// A packed term that is being decoded.
struct Packed<'a> {
    /// What is left of it.
    parts: Parts<'a>,
    /// The number of words that all of it unpacks to.
    words: usize,
    /// For parts that are unpacked.
    memory: SmallVec<[u64; SCRATCH_WORDS]>,
}

impl<'a> Packed<'a> {
    /// The term, if it is packed.
    #[inline(always)]
    fn new(term: TermRef<'a>) -> Option<Self> {
        Some(Self {
            words: term.packed_words()?,
            parts: term.parts()?,
            memory: SmallVec::new(),
        })
    }
}

pub(super) struct Decoder<'e> {
    env: Env<'e>,
    /// The reason, if a term could not be made. The result is complete nevertheless, because the VM may read it, for
    /// example when it collects garbage.
    failure: Option<Failure>,
    /// How many calls of [`nested`](Self::nested) there are within one another.
    depth: usize,
    /// The slots that wait because there were too many.
    deep: Vec<NonNull<u64>>,
}

impl<'e> Decoder<'e> {
    #[inline(always)]
    fn new(env: Env<'e>) -> Self {
        Self {
            env,
            failure: None,
            depth: 0,
            deep: Vec::new(),
        }
    }

    #[inline(always)]
    fn done(self, term: Term) -> Result<Term, Failure> {
        match self.failure {
            None => Ok(term),
            Some(failure) => Err(failure),
        }
    }

    /// Begins an item: a header and this many words. Returns its place and the place behind it. Here and below, `next`
    /// is the place of the next item; the environment's own pointer is not updated until the end.
    #[inline(always)]
    unsafe fn item(&self, next: NonNull<u64>, header: u64, words: usize) -> (NonNull<u64>, NonNull<u64>) {
        // SAFETY: as the caller promises; there is room for all of it.
        unsafe {
            let at = layout::room(self.env, next, 1 + words);
            at.write(header);
            (at, at.add(1 + words))
        }
    }

    /// Whether there is memory left for this many words at `next`.
    #[inline(always)]
    pub(super) unsafe fn has_room(&self, next: NonNull<u64>, words: usize) -> bool {
        // SAFETY: as the caller promises.
        unsafe { layout::has_room(self.env, next, words) }
    }

    /// Decodes a term, and writes its word to `slot`.
    #[inline(always)]
    pub(super) unsafe fn term(&mut self, term: TermRef, slot: NonNull<u64>, next: NonNull<u64>) -> NonNull<u64> {
        if term.is_immediate() {
            // SAFETY: the caller's slot.
            unsafe { slot.write(term.word()) };
            return next;
        }
        // SAFETY: as the caller promises.
        unsafe { self.boxed(term, slot, next) }
    }

    /// As [`term`](Self::term), for a term that is not an immediate. The most common small terms are decoded here: a
    /// few immediates in a tuple, a short binary, a float, a reference. All calls in this function are tail calls, so
    /// it has to save almost no registers.
    #[inline(never)]
    pub(super) unsafe fn boxed(&mut self, term: TermRef, slot: NonNull<u64>, next: NonNull<u64>) -> NonNull<u64> {
        // SAFETY: as the caller promises; each item has as many words as the layout of its type.
        unsafe {
            if term.is_list() || !layout::has_room(self.env, next, 2 + SMALL) {
                return self.nested(term, slot, next);
            }
            let refer = || slot.write(next.addr().get() as u64 | BOXED);
            if let Some(words) = term.flat_tuple() {
                if !(1..=SMALL).contains(&words.len()) {
                    return self.nested(term, slot, next);
                }
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
            if let Some(words) = term.same_words().filter(|words| words.len() <= SMALL) {
                refer();
                return copy_few(words, next);
            }
            self.nested(term, slot, next)
        }
    }

    /// As [`boxed`](Self::boxed), for any term. What is nested too deep in it comes last.
    #[inline(never)]
    unsafe fn nested(&mut self, term: TermRef, slot: NonNull<u64>, next: NonNull<u64>) -> NonNull<u64> {
        if self.depth == MAX_DEPTH {
            // SAFETY: the caller's slot.
            unsafe { slot.write(term.word()) };
            slab::needed(self.deep.try_reserve(1).ok());
            self.deep.push(slot);
            return next;
        }
        self.depth += 1;
        // SAFETY: as the caller promises.
        let mut next = unsafe { self.nested_here(term, slot, next) };
        self.depth -= 1;
        while self.depth == 0 {
            let Some(slot) = self.deep.pop() else { break };
            self.depth += 1;
            // SAFETY: the slot has a word of the same block.
            next = unsafe { self.nested_here(term.beside(slot.read()), slot, next) };
            self.depth -= 1;
        }
        next
    }

    /// A slot that waits has a word of the block in the meantime. The first slot is taken first, so the next term to decode is mostly the
    /// next item in the block.
    #[inline(always)]
    unsafe fn nested_here(&mut self, term: TermRef, mut slot: NonNull<u64>, mut next: NonNull<u64>) -> NonNull<u64> {
        let mut items = term.items();
        let mut slots = [const { MaybeUninit::uninit() }; WAITING];
        let mut waiting = Waiting {
            slots: &mut slots,
            count: 0,
        };
        // SAFETY: the caller's slot.
        unsafe { slot.write(term.word()) };
        loop {
            let is_flat = items.is_flat();
            // SAFETY: as the caller promises; each item has as many words as the layout of its type.
            next = unsafe {
                match items.next() {
                    View::List(list) => {
                        let words = list.elements().words();
                        let at = layout::room(self.env, next, 2 * words.len());
                        let (behind, tail) = (at.add(2 * words.len()), list.tail().word());
                        slot.write(at.addr().get() as u64 | CELL);
                        // For a fixed small number of cells the compiler unrolls the loop.
                        let next = match *words {
                            [a] => self.cells(term, &[a], tail, &mut waiting, behind),
                            [a, b] => self.cells(term, &[a, b], tail, &mut waiting, behind),
                            [a, b, c] => self.cells(term, &[a, b, c], tail, &mut waiting, behind),
                            _ if !is_flat && words.len() <= WAITING_OF_LIST => {
                                self.cells(term, words, tail, &mut waiting, behind)
                            }
                            _ => self.many_cells(term, words, is_flat, at, behind),
                        };
                        behind.sub(1).write(tail);
                        self.part(term, tail, behind.sub(1), &mut waiting, next)
                    }
                    View::Tuple(elements) if !elements.is_empty() => {
                        let count = elements.len();
                        let (at, behind) = self.item(next, layout::tuple_header(count), count);
                        slot.write(at.addr().get() as u64 | BOXED);
                        self.slots(term, elements, is_flat, at.add(1), &mut waiting, behind)
                    }
                    View::Map(map) if map.ordered && layout::is_laid_map(map.keys.len()) => {
                        let pairs = map.keys.len();
                        let (keys, behind) = self.item(next, layout::tuple_header(pairs), pairs);
                        let (at, behind) = self.item(behind, layout::map_header(), 2 + pairs);
                        slot.write(at.addr().get() as u64 | BOXED);
                        at.add(1).write(pairs as u64);
                        at.add(2).write(keys.addr().get() as u64 | BOXED);
                        let behind = self.slots(term, map.values, is_flat, at.add(3), &mut waiting, behind);
                        self.slots(term, map.keys, is_flat, keys.add(1), &mut waiting, behind)
                    }
                    View::Map(map) if !map.nodes.is_empty() && tree::is_known() => {
                        self.tree(term, map, is_flat, slot, next)
                    }
                    View::Float(value) => {
                        let (at, behind) = self.item(next, layout::FLOAT_HEADER, 1);
                        at.add(1).write(value.to_bits());
                        slot.write(at.addr().get() as u64 | BOXED);
                        behind
                    }
                    View::Binary(bytes) => match layout::binary_header(bytes.len()) {
                        Some((header, size)) => {
                            let words = padded(bytes);
                            let (at, behind) = self.item(next, header, 1 + words.len());
                            at.add(1).write(size);
                            copy(words, at.add(2));
                            slot.write(at.addr().get() as u64 | BOXED);
                            behind
                        }
                        None => self.by_vm(term.beside(slot.read()), slot, next),
                    },
                    View::Integer(integer) => match layout::integer_header(integer.negative, integer.digits.len()) {
                        Some(header) => {
                            let (at, behind) = self.item(next, header, integer.digits.len());
                            copy(integer.digits, at.add(1));
                            slot.write(at.addr().get() as u64 | BOXED);
                            behind
                        }
                        None => self.by_vm(term.beside(slot.read()), slot, next),
                    },
                    View::Fun(fun) if fun::is_laid_out() => {
                        let count = fun.env.len();
                        let (at, behind) = self.item(next, fun.words[0], 1 + count);
                        at.add(1).write(fun.words[1]);
                        slot.write(at.addr().get() as u64 | BOXED);
                        self.slots(term, fun.env, is_flat, at.add(2), &mut waiting, behind)
                    }
                    // Only external ones are not counted there.
                    View::Fun(fun) if !fun.is_counted() => match fun::earlier_external(fun) {
                        Some(words) => {
                            let (at, behind) = self.item(next, words[0], words.len() - 1);
                            copy(&words[1..], at.add(1));
                            slot.write(at.addr().get() as u64 | BOXED);
                            behind
                        }
                        None => self.by_vm(term.beside(slot.read()), slot, next),
                    },
                    View::Reference(words) => {
                        let (at, behind) = self.item(next, words[0], words.len() - 1);
                        copy(&words[1..], at.add(1));
                        slot.write(at.addr().get() as u64 | BOXED);
                        behind
                    }
                    _ => self.by_vm(term.beside(slot.read()), slot, next),
                }
            };
            slot = match waiting.take() {
                Some(first) => first,
                None => return next,
            };
            // SAFETY: the slot has a word of the same block.
            unsafe { items.expect(slot.read()) };
        }
    }

    /// As [`term`](Self::term), for an element of an object, which may be packed.
    #[inline(always)]
    unsafe fn element(&mut self, term: TermRef, slot: NonNull<u64>, next: NonNull<u64>) -> NonNull<u64> {
        // SAFETY: as the caller promises.
        unsafe {
            match Packed::new(term) {
                Some(mut packed) => self.unpack(&mut packed, slot, next),
                None => self.term(term, slot, next),
            }
        }
    }

    /// Decodes the next term of a packed one with all of its parts. What is no list of immediates, tuple, small map, float or short
    /// binary is unpacked into words first. The calls are as deep as the term.
    unsafe fn unpack(&mut self, packed: &mut Packed, slot: NonNull<u64>, next: NonNull<u64>) -> NonNull<u64> {
        let before = packed.parts;
        // SAFETY: as the caller promises; each item has as many words as the layout of its type.
        unsafe {
            match packed.parts.part() {
                Part::Immediate(word) => {
                    slot.write(word);
                    next
                }
                Part::String(bytes) => {
                    let at = layout::room(self.env, next, 2 * bytes.len());
                    slot.write(at.addr().get() as u64 | CELL);
                    let mut cell = at;
                    for byte in bytes {
                        cell.write(Term::byte(*byte).0);
                        cell.add(1).write(cell.add(2).addr().get() as u64 | CELL);
                        cell = cell.add(2);
                    }
                    cell.sub(1).write(NIL);
                    cell
                }
                Part::List(count) => {
                    let at = layout::room(self.env, next, 2 * count);
                    slot.write(at.addr().get() as u64 | CELL);
                    let behind = at.add(2 * count);
                    for i in 0..count {
                        let cell = at.add(2 * i);
                        cell.add(1).write(cell.add(2).addr().get() as u64 | CELL);
                    }
                    behind.sub(1).write(NIL);
                    self.unpack_each::<2>(packed, count, at, behind)
                }
                Part::Tuple(count) if count > 0 => {
                    let (at, behind) = self.item(next, layout::tuple_header(count), count);
                    slot.write(at.addr().get() as u64 | BOXED);
                    self.unpack_each::<1>(packed, count, at.add(1), behind)
                }
                Part::Map(pairs) if layout::is_laid_map(pairs) => {
                    let (keys, behind) = self.item(next, layout::tuple_header(pairs), pairs);
                    let (at, behind) = self.item(behind, layout::map_header(), 2 + pairs);
                    slot.write(at.addr().get() as u64 | BOXED);
                    at.add(1).write(pairs as u64);
                    at.add(2).write(keys.addr().get() as u64 | BOXED);
                    let behind = self.unpack_each::<1>(packed, pairs, keys.add(1), behind);
                    self.unpack_each::<1>(packed, pairs, at.add(3), behind)
                }
                Part::Float(value) => {
                    let (at, behind) = self.item(next, layout::FLOAT_HEADER, 1);
                    slot.write(at.addr().get() as u64 | BOXED);
                    at.add(1).write(value.to_bits());
                    behind
                }
                Part::Binary(bytes) => match layout::binary_header(bytes.len()) {
                    Some((header, size)) => {
                        let (at, behind) = self.item(next, header, 1 + bytes.len().div_ceil(8));
                        slot.write(at.addr().get() as u64 | BOXED);
                        at.add(1).write(size);
                        write_bytes(bytes, at.add(2));
                        behind
                    }
                    None => self.unpack_words(packed, before, slot, next),
                },
                _ => self.unpack_words(packed, before, slot, next),
            }
        }
    }

    /// Decodes the next terms of a packed one. Their slots are `STEP` words apart.
    #[inline(always)]
    unsafe fn unpack_each<const STEP: usize>(
        &mut self,
        packed: &mut Packed,
        count: usize,
        first: NonNull<u64>,
        mut next: NonNull<u64>,
    ) -> NonNull<u64> {
        // Immediates are read without a write to memory.
        let mut parts = packed.parts;
        for i in 0..count {
            // SAFETY: as the caller promises.
            unsafe {
                let slot = first.add(STEP * i);
                if let Some(word) = parts.immediate() {
                    slot.write(word);
                } else {
                    packed.parts = parts;
                    next = self.unpack(packed, slot, next);
                    parts = packed.parts;
                }
            }
        }
        packed.parts = parts;
        next
    }

    /// Decodes a term of a packed one, which is unpacked into words. `before` is what was left before it.
    #[inline(never)]
    unsafe fn unpack_words<'a>(
        &mut self,
        packed: &mut Packed<'a>,
        before: Parts<'a>,
        slot: NonNull<u64>,
        next: NonNull<u64>,
    ) -> NonNull<u64> {
        packed.parts = before;
        packed.memory.resize(packed.words, 0);
        let term = packed.parts.unpack(&mut packed.memory);
        // SAFETY: as the caller promises.
        unsafe { self.boxed(term, slot, next) }
    }

    /// Writes cells that end at `next`. Their heads are these words of the block of `term`. Heads that are not
    /// immediates wait.
    #[inline(always)]
    unsafe fn cells(
        &mut self,
        term: TermRef,
        words: &[u64],
        tail: u64,
        waiting: &mut Waiting,
        mut next: NonNull<u64>,
    ) -> NonNull<u64> {
        let (mut cell, mut link) = (next, tail);
        for &word in words.iter().rev() {
            // SAFETY: as the caller promises.
            unsafe {
                cell = cell.sub(2);
                cell.write(word);
                cell.add(1).write(link);
                next = self.part(term, word, cell, waiting, next);
            }
            link = cell.addr().get() as u64 | CELL;
        }
        next
    }

    /// Writes cells from `first` on. Their heads are these words of the block of `term`. Heads that are not immediates
    /// are decoded at once.
    #[inline(always)]
    unsafe fn many_cells(
        &mut self,
        term: TermRef,
        words: &[u64],
        flat: bool,
        first: NonNull<u64>,
        mut next: NonNull<u64>,
    ) -> NonNull<u64> {
        for (i, &word) in words.iter().enumerate() {
            // SAFETY: as the caller promises.
            unsafe {
                let cell = first.add(2 * i);
                cell.add(1).write(cell.add(2).addr().get() as u64 | CELL);
                cell.write(word);
                if !flat && !is_immediate(word) {
                    next = self.boxed(term.beside(word), cell, next);
                }
            }
        }
        next
    }

    /// Decodes a map that is a tree. Keys and values that are not immediates are decoded at once. The block is that of
    /// `term`.
    #[inline(never)]
    unsafe fn tree(
        &mut self,
        term: TermRef,
        map: Map,
        flat: bool,
        slot: NonNull<u64>,
        next: NonNull<u64>,
    ) -> NonNull<u64> {
        let (keys, values) = (map.keys.words(), map.values.words());
        let pairs = std::iter::zip(keys, values).map(|(key, value)| (*key, *value));
        // SAFETY: as the caller promises; each word that is not an immediate is one of the block.
        unsafe {
            let (at, behind) = tree::make(self.env, next, map.nodes, pairs);
            slot.write(at.addr().get() as u64 | BOXED);
            let mut next = behind;
            if !flat {
                let cells = behind.sub(2 * keys.len());
                for (first, words) in [(cells, keys), (cells.add(1), values)] {
                    for (i, &word) in words.iter().enumerate() {
                        if !is_immediate(word) {
                            next = self.boxed(term.beside(word), first.add(2 * i), next);
                        }
                    }
                }
            }
            next
        }
    }

    /// Writes the words of these elements of an item from `first` on. Those that are not immediates wait. The block is
    /// that of `term`.
    #[inline(always)]
    unsafe fn slots(
        &mut self,
        term: TermRef,
        elements: Elements,
        flat: bool,
        first: NonNull<u64>,
        waiting: &mut Waiting,
        mut next: NonNull<u64>,
    ) -> NonNull<u64> {
        // SAFETY: as the caller promises.
        unsafe {
            if flat {
                copy(elements.words(), first);
                return next;
            }
            let mut slot = first.add(elements.len());
            for &word in elements.words().iter().rev() {
                slot = slot.sub(1);
                slot.write(word);
                next = self.part(term, word, slot, waiting, next);
            }
        }
        next
    }

    /// If this word is not an immediate, its slot waits. If no more slots can wait, the term is decoded at once.
    #[inline(always)]
    unsafe fn part(
        &mut self,
        term: TermRef,
        word: u64,
        slot: NonNull<u64>,
        waiting: &mut Waiting,
        next: NonNull<u64>,
    ) -> NonNull<u64> {
        if is_immediate(word) || waiting.put(slot) {
            return next;
        }
        // SAFETY: as the caller promises; a word of the same block.
        unsafe { self.boxed(term.beside(word), slot, next) }
    }

    /// Lets the VM make a term.
    #[inline(never)]
    unsafe fn by_vm(&mut self, term: TermRef, slot: NonNull<u64>, next: NonNull<u64>) -> NonNull<u64> {
        // SAFETY: as the caller promises. The VM makes the term behind what was written so far, and does not look at
        // that before the call ends.
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

/// The words of a block that contain these bytes and their padding.
///
/// # Safety
/// These are the bytes of a binary in a block.
#[inline(always)]
unsafe fn padded(bytes: &[u8]) -> &[u64] {
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len().div_ceil(8)) }
}

/// Copies at least one and at most [`SMALL`] words. Returns the place behind them. It copies the words at the beginning
/// and those at the end, which may overlap. So there is no loop, whose setup would take longer than the copy.
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

/// Copies words one by one. A copy of any length would be a call of `memcpy`.
#[inline(always)]
unsafe fn copy(words: &[u64], to: NonNull<u64>) {
    for (i, word) in words.iter().enumerate() {
        // SAFETY: the caller has room for them.
        unsafe { to.add(i).write(*word) };
    }
}
