//! Memory for the terms that an evaluation makes (floats, large integers, tuples compared in a guard, ...).

use cats_term::{Block, BlockRef, Builder, TermRef};
use std::cell::RefCell;

/// Keeps what was made until [`clear`](Self::clear); most evaluations make nothing but immediates and never allocate here.
#[derive(Default)]
pub struct Arena {
    builder: RefCell<Builder<'static>>,
    blocks: RefCell<Vec<Block>>,
}

impl Arena {
    /// An empty arena.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets all terms made so far.
    pub fn clear(&mut self) {
        self.blocks.get_mut().clear();
    }

    /// The term whose word `build` returns, having built it; nothing when memory is exhausted.
    pub(crate) fn make(&self, build: impl FnOnce(&mut Builder) -> u64) -> Option<TermRef<'_>> {
        let mut builder = self.builder.borrow_mut();
        builder.clear();
        let root = builder.tuple(1);
        let word = build(&mut builder);
        if cats_term::is_immediate(word) {
            return Some(TermRef::immediate(word));
        }
        builder.set(root, 0, word);
        let block = builder.finish()?;
        let address = block.as_ref().address();
        self.blocks.borrow_mut().push(block);
        // SAFETY: the block stays where it is until `clear`, which needs the arena for itself alone.
        Some(unsafe { BlockRef::from_raw(address) }.element(0))
    }
}
