//! Terms that the caller writes word by word into a [`Room`]. They are keys to search for, or are copied into a block.
//!
//! Items follow one another as in a block. This file makes their headers, and the words that stand for them. The caller keeps in a register
//! where the next item goes. A [`Builder`](crate::Builder) has to read that from memory and write it back for each item.

use crate::block::{retain_held, Block};
use crate::builder::Room;
use crate::format::*;
use crate::host::host;
use cats_sync::epoch::Guard;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::slice::from_raw_parts;

pub use crate::block::write_bytes;

impl<const WORDS: usize> Room<WORDS> {
    /// The places of the first word and of the end.
    #[inline]
    pub fn bounds(&mut self) -> (NonNull<u64>, NonNull<u64>) {
        let first = NonNull::from(&mut self.0).cast::<u64>();
        // SAFETY: the end is one past the last word.
        (first, unsafe { first.add(WORDS) })
    }

    /// The item that a word stands for.
    ///
    /// # Safety
    /// The item was written to this room with everything that it refers to. What is counted in it lives as long as this borrow.
    #[inline]
    pub unsafe fn term(&self, word: u64) -> TermRef<'_> {
        // SAFETY: as the caller promises.
        unsafe { TermRef::new(self.0.as_ptr().cast(), word) }
    }

    /// A block of the first `words` words. `None` when memory is exhausted.
    ///
    /// # Safety
    /// The words are a tuple that is not flat, and everything in it, without gaps. `kept` has a bit for the place of each item
    /// that is counted, or held and no binary. These terms are alive.
    #[inline]
    pub unsafe fn block(&mut self, words: usize, kept: u128, guard: &Guard) -> Option<Block> {
        let held = if kept != 0 { HAS_HELD } else { 0 };
        // SAFETY: as the caller promises.
        let block = unsafe {
            *self.0[0].assume_init_mut() |= (words as u64) << 32 | held;
            Block::from_words(from_raw_parts(self.0.as_ptr().cast(), words), guard)
        };
        let block = block?.unretained()?;
        let mut rest = kept;
        while rest != 0 {
            let at = rest.trailing_zeros() as usize;
            // SAFETY: an item begins there. If it is counted, the record follows its header.
            let [header, record] = unsafe { [self.0[at].assume_init(), self.0[at + 1].assume_init()] };
            match is_counted(header) {
                true => (host().retain_counted)(record),
                // SAFETY: an item of the new block.
                false => retain_held(unsafe { TermRef::new(block.address().as_ptr(), (at as u64) << 2 | TAG_ITEM) }),
            }
            rest &= rest - 1;
        }
        Some(ManuallyDrop::into_inner(block))
    }
}

/// The word for a list at address `at`, in a room that begins at `first`.
#[inline(always)]
pub fn list_word(first: NonNull<u64>, at: NonNull<u64>) -> u64 {
    offset(first, at) | TAG_LIST
}

/// The word for any other item at `at`.
#[inline(always)]
pub fn word(first: NonNull<u64>, at: NonNull<u64>) -> u64 {
    offset(first, at) | TAG_ITEM
}

/// The offset in words, shifted to its place above the tag.
#[inline(always)]
fn offset(first: NonNull<u64>, at: NonNull<u64>) -> u64 {
    let bytes = at.addr().get() - first.addr().get();
    (bytes / (size_of::<u64>() / 4)) as u64
}

#[inline(always)]
fn slots_header(kind: u64, size: usize, is_flat: bool) -> u64 {
    header(kind, size) | if is_flat { FLAT } else { 0 }
}

/// The header of a tuple. The elements follow it. Here and below, `is_flat` says whether all words that follow are immediates.
#[inline(always)]
pub fn tuple_header(arity: usize, is_flat: bool) -> u64 {
    slots_header(TUPLE, arity, is_flat)
}

/// The header of a list of at least one element. The elements follow it, and then the tail, unless the list `is_proper`.
#[inline(always)]
pub fn list_header(length: usize, is_proper: bool, is_flat: bool) -> u64 {
    slots_header(if is_proper { PROPER_LIST } else { LIST }, length, is_flat)
}

/// The header of a map. The keys follow it, in the VM's order of iteration, and then the values.
#[inline(always)]
pub fn map_header(pairs: usize, is_flat: bool) -> u64 {
    slots_header(MAP, pairs, is_flat)
}

/// The header of a fun. The terms of its environment follow it, and then its [words](Fun::words).
#[inline(always)]
pub fn fun_header(terms: usize, is_flat: bool) -> u64 {
    slots_header(FUN, terms, is_flat)
}

/// The header of a float. The bits follow it.
pub const FLOAT_HEADER: u64 = FLOAT;

/// The header of an integer that is not an immediate. The digits follow it, least digit first.
#[inline(always)]
pub fn integer_header(is_negative: bool, digits: usize) -> u64 {
    let kind = if is_negative {
        INTEGER_NEGATIVE
    } else {
        INTEGER_POSITIVE
    };
    header(kind, digits)
}

/// The header of a held term. Its word in the VM follows it, and then 0.
#[inline(always)]
pub fn held_header(class: Class) -> u64 {
    header(HELD, class as usize)
}

/// The header of a binary. The bytes follow it, written by [`write_bytes`].
#[inline(always)]
pub fn binary_header(bytes: usize) -> u64 {
    header(BINARY, bytes)
}

/// The header of a counted binary. The addresses of the VM's record and of the bytes follow it.
#[inline(always)]
pub fn counted_binary_header(bytes: usize) -> u64 {
    header(COUNTED_BINARY, bytes)
}
