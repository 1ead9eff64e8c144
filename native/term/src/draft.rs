//! Terms laid out by those that call, in a [`Room`]: to search for, or to be copied into a block.
//!
//! Items follow one another as in a block. What their headers and the words for them look like is told here. Who writes them keeps in a
//! register where the next one goes, which a [`Builder`](crate::Builder) has to read and write for each.

use crate::block::Block;
use crate::builder::Room;
use crate::format::*;
use crate::host::host;
use cats_sync::epoch::Guard;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::slice::from_raw_parts;

pub use crate::block::write_bytes;

impl<const WORDS: usize> Room<WORDS> {
    /// Where the first word goes, and the end.
    #[inline]
    pub fn bounds(&mut self) -> (NonNull<u64>, NonNull<u64>) {
        let first = NonNull::from(&mut self.0).cast::<u64>();
        // SAFETY: one behind the last.
        (first, unsafe { first.add(WORDS) })
    }

    /// The item that a word stands for.
    ///
    /// # Safety
    /// It was laid out here with all that it refers to, and what is counted in it lives for as long as this is borrowed.
    #[inline]
    pub unsafe fn term(&self, word: u64) -> TermRef<'_> {
        // SAFETY: as the caller promises.
        unsafe { TermRef::new(self.0.as_ptr().cast(), word) }
    }

    /// A block of the first words. Nothing when memory is exhausted.
    ///
    /// # Safety
    /// They are a tuple that is not flat and all that is in it, without gaps. `counted`: a bit for the place of each binary of which
    /// references are counted; they live.
    #[inline]
    pub unsafe fn block(&mut self, words: usize, counted: u128, guard: &Guard) -> Option<Block> {
        let held = if counted != 0 { HAS_HELD } else { 0 };
        // SAFETY: as the caller promises.
        let block = unsafe {
            *self.0[0].assume_init_mut() |= (words as u64) << 32 | held;
            Block::from_words(from_raw_parts(self.0.as_ptr().cast(), words), guard)
        };
        // If the host panics, references that were not counted must not be given back: then the block is lost.
        let block = ManuallyDrop::new(block?);
        let mut rest = counted;
        while rest != 0 {
            // SAFETY: the record's address follows the header.
            let record = unsafe { self.0[rest.trailing_zeros() as usize + 1].assume_init() };
            (host().retain_binary)(record);
            rest &= rest - 1;
        }
        Some(ManuallyDrop::into_inner(block))
    }
}

/// The word for a list at this address, in a room that begins at `first`.
#[inline(always)]
pub fn list_word(first: NonNull<u64>, at: NonNull<u64>) -> u64 {
    offset(first, at) | TAG_LIST
}

/// The word for another item.
#[inline(always)]
pub fn word(first: NonNull<u64>, at: NonNull<u64>) -> u64 {
    offset(first, at) | TAG_ITEM
}

/// An offset in words, above the tag.
#[inline(always)]
fn offset(first: NonNull<u64>, at: NonNull<u64>) -> u64 {
    let bytes = at.addr().get() - first.addr().get();
    (bytes / (size_of::<u64>() / 4)) as u64
}

#[inline(always)]
fn slots_header(kind: u64, size: usize, is_flat: bool) -> u64 {
    header(kind, size) | if is_flat { FLAT } else { 0 }
}

/// The header of a tuple, whose elements follow. Here and below, `is_flat` tells whether all that follow are immediates.
#[inline(always)]
pub fn tuple_header(arity: usize, is_flat: bool) -> u64 {
    slots_header(TUPLE, arity, is_flat)
}

/// The header of a list of one element or more, which follow, and then the tail if it `is_proper` not.
#[inline(always)]
pub fn list_header(length: usize, is_proper: bool, is_flat: bool) -> u64 {
    slots_header(if is_proper { PROPER_LIST } else { LIST }, length, is_flat)
}

/// The header of a map, whose keys follow, in the VM's order of iteration, and then its values.
#[inline(always)]
pub fn map_header(pairs: usize, is_flat: bool) -> u64 {
    slots_header(MAP, pairs, is_flat)
}

/// The header of a float, whose bits follow.
pub const FLOAT_HEADER: u64 = FLOAT;

/// The header of an integer that is no immediate, whose digits follow, least first.
#[inline(always)]
pub fn integer_header(is_negative: bool, digits: usize) -> u64 {
    let kind = if is_negative {
        INTEGER_NEGATIVE
    } else {
        INTEGER_POSITIVE
    };
    header(kind, digits)
}

/// The header of a binary, whose bytes follow, written by [`write_bytes`].
#[inline(always)]
pub fn binary_header(bytes: usize) -> u64 {
    header(BINARY, bytes)
}

/// The header of a binary of which references are counted: the addresses of the VM's record and of the bytes follow.
#[inline(always)]
pub fn counted_binary_header(bytes: usize) -> u64 {
    header(COUNTED_BINARY, bytes)
}
