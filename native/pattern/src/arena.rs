//! Memory for the terms that an evaluation makes (floats, large integers, tuples compared in a guard, ...).

use cats_term::{Block, BlockRef, Builder, Item, TermRef};
use std::cell::{Cell, RefCell};

/// Keeps what was made until [`clear`](Self::clear); most evaluations make nothing but immediates and never allocate here.
pub struct Arena {
    builder: RefCell<Builder<'static>>,
    blocks: RefCell<Vec<Block>>,
    /// What the evaluation has cost so far, in words made.
    spent: Cell<usize>,
    /// Whether an evaluation may cost so much.
    fits: fn(usize) -> bool,
}

impl Default for Arena {
    fn default() -> Self {
        Self::within(|_| true)
    }
}

impl Arena {
    /// An empty arena.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty arena for evaluations that may cost as much as `fits` allows.
    pub fn within(fits: fn(usize) -> bool) -> Self {
        Self {
            builder: RefCell::default(),
            blocks: RefCell::default(),
            spent: Cell::new(0),
            fits,
        }
    }

    /// Forgets all terms made so far, and what they cost.
    pub fn clear(&mut self) {
        self.blocks.get_mut().clear();
        self.spent.set(0);
    }

    /// What evaluations have cost since the arena was cleared.
    pub fn spent(&self) -> usize {
        self.spent.get()
    }

    /// Whether evaluations cost too much since the arena was cleared. Their results mean nothing then.
    pub fn is_exhausted(&self) -> bool {
        let spent = self.spent.get();
        spent != 0 && !(self.fits)(spent)
    }

    /// Counts the cost of what comes next; nothing if it is too much.
    pub(crate) fn spend(&self, cost: usize) -> Option<()> {
        self.spent.set(self.spent.get().saturating_add(cost));
        (!self.is_exhausted()).then_some(())
    }

    /// Sets the slots of an item from `first` on to copies of terms; nothing if they cost too much.
    pub(crate) fn copy_all<'a>(
        &self,
        builder: &mut Builder<'_>,
        item: Item,
        first: usize,
        terms: impl Iterator<Item = TermRef<'a>>,
    ) -> Option<()> {
        for (slot, term) in (first..).zip(terms) {
            let word = builder.copy(term);
            builder.set(item, slot, word);
            if !(self.fits)(self.spent.get().saturating_add(builder.words())) {
                self.spend(builder.words())?;
            }
        }
        Some(())
    }

    /// The term whose word `build` returns, having built it; nothing when memory is exhausted, or it costs
    /// too much.
    pub(crate) fn make(&self, build: impl FnOnce(&mut Builder) -> Option<u64>) -> Option<TermRef<'_>> {
        let mut builder = self.builder.borrow_mut();
        builder.clear();
        let root = builder.tuple(1);
        let word = build(&mut builder)?;
        self.spend(builder.words())?;
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
