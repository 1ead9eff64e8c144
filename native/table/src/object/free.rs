//! The end of objects: at once, when no reader can see them, or in slices.

use super::body::{block, block_of, body_bytes, held, is_block, referent, words, HELD_WORDS};
use crate::failure::Failure;
use crate::garbage::{Expected, Garbage, ReapProcess};
use cats_sync::epoch::Guard;
use cats_term::{bytes_of, Block, Dismantled};
use std::ptr::NonNull;

/// Frees an object that nobody else can see.
///
/// # Safety
/// The body is not that of a group. It came from [`Object::into_body`], and nobody uses it any more.
#[inline]
pub unsafe fn free_body(body: u64) {
    if is_block(body) {
        // SAFETY: as the caller promises.
        unsafe { free_block(body) }
    }
}

/// [`free_body`] for an object in a block. Not inlined: each insertion ends with `free_body`, and usually nothing must be freed there.
///
/// # Safety
/// As for [`free_body`], and the object is in a block.
#[inline(never)]
pub(super) unsafe fn free_block(body: u64) {
    // SAFETY: the address of a block that nobody else uses.
    unsafe {
        match words(body) {
            Some(words) => Block::free_words(referent(body), words),
            None if held(body).is_some() => held(body).map_or((), |(words, _)| Block::free_held(referent(body), words)),
            None if is_for_reaper(body) => {
                Expected::new().into_raw();
                enqueue_block(referent(body), 0);
            }
            None => Block::free(referent(body), 0),
        }
    }
}

/// If something is held or counted in a block of at least this number of words, the reaper frees it in slices. The body of such a block
/// does not store its number of words.
pub(super) const FREE_IN_SLICES: usize = 4 << 10;
const _: () = assert!(FREE_IN_SLICES > HELD_WORDS as usize);

/// Whether the reaper must free the block.
///
/// # Safety
/// The body is the address of a block that lives.
#[inline]
unsafe fn is_for_reaper(body: u64) -> bool {
    if held(body).is_some() {
        return false;
    }
    // SAFETY: as the caller promises.
    unsafe { block(body) }.is_some_and(|block| block.has_held() && block.words() >= FREE_IN_SLICES)
}

/// Items of a block that are freed in a step.
const ITEMS: usize = 256;

impl Garbage for Option<Dismantled> {
    fn step(&mut self, _reap: ReapProcess<'_>) -> Result<bool, Failure> {
        *self = self.take().and_then(|block| block.step(ITEMS));
        Ok(self.is_some())
    }
}

/// Hands a block to the reaper, whose expectation of it has become raw. Has the type `cats_sync::epoch::Drop`.
///
/// # Safety
/// The address came from [`Block::into_raw`], and nobody reads the block any more. [`Expected::into_raw`] was called for it.
unsafe fn enqueue_block(address: *mut u8, _: usize) {
    // SAFETY: as the caller promises. Addresses of blocks are never null.
    let (block, expected) = unsafe {
        (
            Block::from_raw(NonNull::new_unchecked(address.cast())),
            Expected::from_raw(),
        )
    };
    expected.enqueue(Some(Dismantled::new(block)));
}

/// Frees an object as soon as no reader can see it.
///
/// # Safety
/// As for [`free_body`], except that others may still read the object under guards.
#[inline]
pub unsafe fn retire_body(guard: &Guard, body: u64) {
    if is_block(body) {
        // SAFETY: unlinked, as the caller promises, and retired once.
        unsafe {
            match words(body) {
                Some(words) => block_of(body).retire_words(guard, words),
                None => retire_in_general(guard, body),
            }
        }
    }
}

/// [`retire_body`] for a block in which something is held or counted, or which is large.
///
/// # Safety
/// As for [`retire_body`].
#[inline(never)]
unsafe fn retire_in_general(guard: &Guard, body: u64) {
    // SAFETY: as the caller promises.
    unsafe {
        match held(body) {
            Some((words, weight)) => block_of(body).retire_held(guard, words, weight),
            None if is_for_reaper(body) => {
                Expected::new().into_raw();
                guard.retire_sized(referent(body), 0, enqueue_block, FREE_IN_SLICES * 8);
            }
            None => block_of(body).retire(guard),
        }
    }
}

/// Like [`retire_body`]. Returns the object's [bytes](body_bytes).
///
/// # Safety
/// As for [`retire_body`].
#[inline]
pub unsafe fn retire_counted(guard: &Guard, body: u64) -> usize {
    // SAFETY: as the caller promises.
    unsafe {
        let bytes = match words(body) {
            Some(words) if is_block(body) => bytes_of(words),
            _ => body_bytes(body),
        };
        retire_body(guard, body);
        bytes
    }
}
