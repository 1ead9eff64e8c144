//! Sequence count: words that are read together. One writer at a time changes them, one word at each change.
//!
//! Source: Boehm, "Can seqlocks get along with programming language memory models?", MSPC 2012. Each change is one
//! atomic store. So if at most one change happened during a read, the reader saw one state. Hence no odd value marks a
//! change in progress, and a reader never waits for a writer.

use crate::facade::{fence, AtomicBool, AtomicU32, AtomicU64, Ordering};

/// How often a reader tries before it requests rest.
const TRIES: usize = if cfg!(any(loom, shuttle)) { 1 } else { 16 };

/// See the module's documentation. Eight bytes.
#[derive(Debug, Default)]
#[repr(C)]
pub struct SeqCount {
    /// The number of changes. It wraps, but 2^32 changes take longer than any read.
    count: AtomicU32,
    /// A reader requested that no more changes are made.
    rest: AtomicBool,
}

impl SeqCount {
    /// Changes a word. Returns false, and does nothing, if a reader has requested rest. That request stays for ever, so
    /// the writer must replace the whole object. The caller excludes other writers.
    #[inline]
    pub fn change(&self, word: &AtomicU64, new: u64) -> bool {
        // Relaxed: it publishes nothing.
        if self.rest.load(Ordering::Relaxed) {
            return false;
        }
        // Relaxed: only writers change the count, and this is the only one.
        let count = self.count.load(Ordering::Relaxed);
        // Release pairs with the fence of `read`: a reader that sees this change sees the count of the previous one.
        word.store(new, Ordering::Release);
        // Release pairs with the Acquire of `read`: a reader that sees the count sees the change.
        self.count.store(count.wrapping_add(1), Ordering::Release);
        true
    }

    /// Calls `read`, which loads the words with Relaxed, perhaps several times. Returns the result of the last call,
    /// which saw one state.
    #[inline]
    pub fn read<R>(&self, mut read: impl FnMut() -> R) -> R {
        let mut tries = 0;
        loop {
            // Acquire pairs with the Release of the count in `change`.
            let before = self.count.load(Ordering::Acquire);
            let result = read();
            // Acquire pairs with the Release of the word in `change`.
            fence(Ordering::Acquire);
            // Relaxed: the fence keeps it behind the reads of the words.
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
