//! Sequence count: words that one writer at a time changes, one at each change, are read together.
//!
//! Source: the sequence lock (Boehm, "Can seqlocks get along with programming language memory models?", MSPC'12). As each change is
//! one atomic store, what a reader saw is one state if at most one change came in between: nothing has to be odd meanwhile, and no
//! reader ever waits for a writer.

use crate::facade::{fence, AtomicBool, AtomicU32, AtomicU64, Ordering};

/// How often a reader tries before it asks for rest.
const TRIES: usize = if cfg!(any(loom, shuttle)) { 1 } else { 16 };

/// See the module's documentation. Eight bytes.
#[derive(Debug, Default)]
#[repr(C)]
pub struct SeqCount {
    /// The changes that were made. (As many as there are numbers take longer than any read.)
    count: AtomicU32,
    /// A reader asks that no more changes are made.
    rest: AtomicBool,
}

impl SeqCount {
    /// Changes a word; false, and nothing is done, if a reader asked for rest, which it gets for ever: the writer has to replace the
    /// whole by something new. Writers exclude each other.
    #[inline]
    pub fn change(&self, word: &AtomicU64, new: u64) -> bool {
        // Relaxed: nothing is handed over.
        if self.rest.load(Ordering::Relaxed) {
            return false;
        }
        // Relaxed: only writers count, and this is the only one.
        let count = self.count.load(Ordering::Relaxed);
        // Release pairs with the fence of `read`: whoever sees this change sees the count of the one before.
        word.store(new, Ordering::Release);
        // Release pairs with the Acquire of `read`: whoever sees the count sees the change.
        self.count.store(count.wrapping_add(1), Ordering::Release);
        true
    }

    /// What `read` gives, which loads the words, `Relaxed`, and may be called several times. What the last call saw is one state.
    #[inline]
    pub fn read<R>(&self, mut read: impl FnMut() -> R) -> R {
        let mut tries = 0;
        loop {
            // Acquire pairs with the Release of the count in `change`.
            let before = self.count.load(Ordering::Acquire);
            let result = read();
            // Acquire pairs with the Release of the word in `change`.
            fence(Ordering::Acquire);
            // Relaxed: it is the fence that keeps it behind what was read.
            if self.count.load(Ordering::Relaxed) == before {
                return result;
            }
            tries += 1;
            if tries == TRIES {
                // Relaxed: as where it is loaded.
                self.rest.store(true, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_is_always_disturbed_gets_rest() {
        let (count, word) = (SeqCount::default(), AtomicU64::new(0));
        let (mut tries, mut changes) = (0, 0);
        let seen = count.read(|| {
            let seen = word.load(Ordering::Relaxed);
            tries += 1;
            changes += u64::from(count.change(&word, seen + 1));
            seen
        });
        assert_eq!((tries, changes), (TRIES + 1, TRIES as u64));
        assert_eq!(seen, changes);
        assert!(!count.change(&word, 0));
        assert_eq!(word.load(Ordering::Relaxed), changes);
    }
}
