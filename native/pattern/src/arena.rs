//! Memory for the terms that an evaluation makes: floats, large integers, tuples that a guard compares, and others.

use crate::program::Vm;
use cats_term::{needed, Block, BlockRef, Builder, Item, TermRef};
use std::cell::{Cell, RefCell};

/// Keeps the terms until [`clear`](Self::clear). Most evaluations make only immediates, so nothing is allocated here.
pub struct Arena {
    builder: RefCell<Builder<'static>>,
    blocks: RefCell<Vec<Block>>,
    /// The cost of the evaluation so far. Its unit is the time that making one word takes.
    spent: Cell<usize>,
    /// Whether an evaluation may have this cost.
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

    /// An empty arena for evaluations whose costs `fits` accepts.
    pub fn within(fits: fn(usize) -> bool) -> Self {
        Self {
            builder: RefCell::default(),
            blocks: RefCell::default(),
            spent: Cell::new(0),
            fits,
        }
    }

    /// Forgets all terms made so far, and their cost.
    pub fn clear(&mut self) {
        self.blocks.get_mut().clear();
        self.spent.set(0);
    }

    /// The cost of evaluations since the arena was last cleared.
    pub fn spent(&self) -> usize {
        self.spent.get()
    }

    /// Whether evaluations have cost too much since the arena was last cleared. Their results have no meaning then.
    pub fn is_exhausted(&self) -> bool {
        let spent = self.spent.get();
        spent != 0 && !(self.fits)(spent)
    }

    /// Adds the cost of the next computation. `None` if the cost is now too high.
    pub(crate) fn spend(&self, cost: usize) -> Option<()> {
        self.spent.set(self.spent.get().saturating_add(cost));
        (!self.is_exhausted()).then_some(())
    }

    /// Sets the slots of an item, from `first` on, to copies of terms. `None` if they cost too much.
    pub(crate) fn copy_all<'a>(
        &self,
        builder: &mut Builder<'_>,
        item: Item,
        first: usize,
        terms: impl Iterator<Item = TermRef<'a>>,
    ) -> Option<()> {
        for (slot, term) in (first..).zip(terms) {
            let word = self.copy(builder, term)?;
            builder.set(item, slot, word);
        }
        Some(())
    }

    /// Adds a copy of a term. `None` if what is built costs too much.
    pub(crate) fn copy(&self, builder: &mut Builder<'_>, term: TermRef<'_>) -> Option<u64> {
        let word = builder.copy(term);
        if !(self.fits)(self.spent.get().saturating_add(builder.words())) {
            self.spend(builder.words())?;
        }
        Some(word)
    }

    /// Keeps a block. Returns its first element.
    fn keep(&self, block: Block) -> TermRef<'_> {
        let address = block.as_ref().address();
        self.blocks.borrow_mut().push(block);
        // SAFETY: the block stays where it is until `clear`. That borrows the arena mutably, so no term is in use then.
        unsafe { BlockRef::from_raw(address) }.element(0)
    }

    /// A held tuple, list or map with nothing held for its depth. `None` if it costs too much.
    #[cold]
    pub(crate) fn open(&self, vm: &Vm, term: TermRef<'_>) -> Option<TermRef<'_>> {
        match (vm.open)(term) {
            Some(block) => {
                self.spend(block.as_ref().words())?;
                Some(self.keep(block))
            }
            None => self.spend(usize::MAX / 2).and(None),
        }
    }

    /// The term that `build` makes and whose word it returns. `None` if the term costs too much.
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
        Some(self.keep(needed(builder.finish())))
    }
}
