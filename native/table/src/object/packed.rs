//! Objects of `compressed` tables: elements are packed where that makes them smaller, each in a compact form of its own
//! (`native/term/src/compact.rs`). The key is not packed. Immediates, numbers, binaries, and whatever is held or counted stay as they are.

use crate::object::memory_for_now;
use cats_term::{Block, BlockRef};

/// The object with elements packed, if that makes some of them smaller. Otherwise the object as it is.
pub fn pack(block: Block, key: usize) -> Block {
    block.as_ref().packed(key).unwrap_or(block)
}

/// The object with no element packed, in memory that lives as long as the thread's present guards.
///
/// # Safety
/// This thread has a guard during `'a`, and the object lives as long.
#[cold]
pub unsafe fn unpack<'a>(block: BlockRef<'a>) -> BlockRef<'a> {
    // SAFETY: as the caller promises.
    let memory = unsafe { memory_for_now(block.unpacked_words()) };
    block.unpacked_within(memory)
}
