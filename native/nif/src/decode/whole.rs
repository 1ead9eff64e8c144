//! Decodes the elements of an object in one loop, with all that is in them. The commonest items are written here. The others, and what finds
//! no room, are left to the [fast path](super::fast).
//!
//! The loop reads the words of the block itself. What it needs to know of an item is in the item's header, see [`Head`]. All that it
//! goes by stays in registers, and the words of tuples and maps are written without a branch for each.

use super::fast::Decoder;
use crate::layout::{self, BOXED, CELL};
use crate::vm::Term;
use cats_term::{is_immediate, BlockRef, Head, NIL};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// Most slots that wait.
const WAITING: usize = 32;

/// Slots whose terms are not decoded yet. The last one in is the first one out. There is one place more than slots may wait, which is written
/// where none is to wait.
struct Waiting<'r> {
    slots: &'r mut [MaybeUninit<NonNull<u64>>; WAITING + 1],
    count: usize,
}

impl Waiting<'_> {
    #[inline(always)]
    fn has_room(&self, slots: usize) -> bool {
        slots <= WAITING - self.count
    }

    /// Has a slot wait, unless its word is an immediate.
    ///
    /// # Safety
    /// There is [room](Self::has_room) for it.
    #[inline(always)]
    unsafe fn put(&mut self, slot: NonNull<u64>, word: u64) {
        // SAFETY: as the caller promises, there is such a place.
        unsafe { self.slots.get_unchecked_mut(self.count) }.write(slot);
        self.count += usize::from(!is_immediate(word));
    }

    #[inline(always)]
    fn take(&mut self) -> Option<NonNull<u64>> {
        self.count = self.count.checked_sub(1)?;
        // SAFETY: all slots below `count` are initialized.
        Some(unsafe { self.slots.get_unchecked(self.count).assume_init() })
    }

    /// Copies words, and has the slots of those wait that are no immediates. The first one is taken first.
    ///
    /// # Safety
    /// There is [room](Self::has_room) for them, and for the words.
    #[inline(always)]
    unsafe fn fill(&mut self, from: NonNull<u64>, to: NonNull<u64>, count: usize) {
        for i in (0..count).rev() {
            // SAFETY: as the caller promises.
            unsafe {
                let (word, slot) = (from.add(i).read(), to.add(i));
                slot.write(word);
                self.put(slot, word);
            }
        }
    }
}

impl Decoder<'_> {
    /// Decodes the elements of an object's tuple, which begin at `first`. Where `own` gives a term, that one is the element. `next`
    /// is the place of the next item. Returns the place behind the last one.
    ///
    /// # Safety
    /// The layout of terms and environments is known. No element is packed.
    #[inline(always)]
    pub(super) unsafe fn elements(
        &mut self,
        block: BlockRef,
        first: NonNull<u64>,
        own: impl Fn(usize) -> Option<Term>,
        mut next: NonNull<u64>,
    ) -> NonNull<u64> {
        let count = block.arity();
        let mut slots = [const { MaybeUninit::uninit() }; WAITING + 1];
        let mut waiting = Waiting {
            slots: &mut slots,
            count: 0,
        };
        // SAFETY: as the caller promises; the elements follow the header.
        unsafe {
            let words = block.address().add(1);
            // The first item that is decoded. Not the first one of all, if that is of an element which `own` gives.
            let mut at = words.add(count);
            if !waiting.has_room(count) {
                for (i, element) in block.elements().iter().enumerate() {
                    let slot = first.add(i);
                    match own(i) {
                        Some(term) => slot.write(term.0),
                        None => next = self.term(element, slot, next),
                    }
                }
                return next;
            }
            for i in (0..count).rev() {
                let slot = first.add(i);
                match own(i) {
                    Some(term) => slot.write(term.0),
                    None => {
                        let word = words.add(i).read();
                        slot.write(word);
                        waiting.put(slot, word);
                        if !is_immediate(word) {
                            at = block.address().add((word >> 2) as usize);
                        }
                    }
                }
            }
            self.waiting(block, waiting, at, next)
        }
    }

    /// Decodes the terms of the slots that wait. Each slot has a word of the block. Items mostly follow one another in the order in which
    /// they are referred to. So the next one is expected where the last one ends, and at first at `at`.
    ///
    /// # Safety
    /// As for [`elements`](Self::elements).
    #[inline(always)]
    unsafe fn waiting(
        &mut self,
        block: BlockRef,
        mut waiting: Waiting,
        mut at: NonNull<u64>,
        mut next: NonNull<u64>,
    ) -> NonNull<u64> {
        while let Some(slot) = waiting.take() {
            // SAFETY: as the caller promises. An item of the block has as many words as its header says. One of the environment has as many
            // as the layout of its type.
            unsafe {
                let item = block.address().add((slot.read() >> 2) as usize);
                // A branch, which the processor predicts. With an assignment, it could not read the item before the word has arrived.
                if at != item {
                    at = elsewhere(item);
                }
                let header = at.read();
                let (from, is_flat) = (at.add(1), Head::is_flat(header));
                match Head::of(header) {
                    Head::Tuple(count) if count != 0 && waiting.has_room(count) && self.has_room(next, 1 + count) => {
                        slot.write(next.addr().get() as u64 | BOXED);
                        next.write(layout::tuple_header(count));
                        match is_flat {
                            true => copy(from, next.add(1), count),
                            false => waiting.fill(from, next.add(1), count),
                        }
                        next = next.add(1 + count);
                        at = from.add(count);
                    }
                    Head::Map(pairs)
                        if layout::is_laid_map(pairs)
                            && waiting.has_room(2 * pairs)
                            && self.has_room(next, 4 + 2 * pairs) =>
                    {
                        let (keys, map) = (next, next.add(1 + pairs));
                        let values = map.add(3);
                        slot.write(map.addr().get() as u64 | BOXED);
                        keys.write(layout::tuple_header(pairs));
                        map.write(layout::map_header());
                        map.add(1).write(pairs as u64);
                        map.add(2).write(keys.addr().get() as u64 | BOXED);
                        if is_flat {
                            copy(from, keys.add(1), pairs);
                            copy(from.add(pairs), values, pairs);
                        } else {
                            waiting.fill(from.add(pairs), values, pairs);
                            waiting.fill(from, keys.add(1), pairs);
                        }
                        next = values.add(pairs);
                        at = from.add(2 * pairs);
                    }
                    Head::ProperList(length) if is_flat && length != 0 && self.has_room(next, 2 * length) => {
                        slot.write(next.addr().get() as u64 | CELL);
                        for i in 0..length {
                            next.write(from.add(i).read());
                            next.add(1).write(next.add(2).addr().get() as u64 | CELL);
                            next = next.add(2);
                        }
                        next.sub(1).write(NIL);
                        at = from.add(length);
                    }
                    Head::ProperList(length) if waiting.has_room(length) && self.has_room(next, 2 * length) => {
                        next = next.add(2 * length);
                        let (mut cell, mut tail) = (next, NIL);
                        for i in (0..length).rev() {
                            let word = from.add(i).read();
                            cell = cell.sub(2);
                            cell.write(word);
                            cell.add(1).write(tail);
                            tail = cell.addr().get() as u64 | CELL;
                            waiting.put(cell, word);
                        }
                        slot.write(tail);
                        at = from.add(length);
                    }
                    Head::Binary(bytes) if self.has_room(next, 2 + bytes.div_ceil(8)) => {
                        match layout::binary_header(bytes) {
                            Some((header, size)) => {
                                let count = bytes.div_ceil(8);
                                slot.write(next.addr().get() as u64 | BOXED);
                                next.write(header);
                                next.add(1).write(size);
                                copy(from, next.add(2), count);
                                next = next.add(2 + count);
                                at = from.add(count);
                            }
                            None => next = self.boxed(block.term().beside(slot.read()), slot, next),
                        }
                    }
                    Head::Float if self.has_room(next, 2) => {
                        slot.write(next.addr().get() as u64 | BOXED);
                        next.write(layout::FLOAT_HEADER);
                        next.add(1).write(from.read());
                        next = next.add(2);
                        at = from.add(1);
                    }
                    Head::Reference(count) if self.has_room(next, count) => {
                        slot.write(next.addr().get() as u64 | BOXED);
                        copy(at, next, count);
                        next = next.add(count);
                        at = at.add(count);
                    }
                    _ => next = self.boxed(block.term().beside(slot.read()), slot, next),
                }
            }
        }
        next
    }
}

#[cold]
#[inline(never)]
fn elsewhere(item: NonNull<u64>) -> NonNull<u64> {
    item
}

/// Copies one word or more, by two. The last two may overlap those before. A copy of any length would be a call of `memcpy`.
///
/// # Safety
/// There are so many words, and there is room for them.
#[inline(always)]
unsafe fn copy(from: NonNull<u64>, to: NonNull<u64>, count: usize) {
    // SAFETY: as the caller promises.
    let two = |at: usize| unsafe { to.add(at).cast().write(from.add(at).cast::<[u64; 2]>().read()) };
    if count == 1 {
        // SAFETY: as above.
        unsafe { to.write(from.read()) };
        return;
    }
    let last = count - 2;
    for at in (0..last).step_by(2) {
        two(at);
    }
    two(last);
}
