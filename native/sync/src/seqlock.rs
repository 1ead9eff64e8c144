//! Sequence count: words that are read together. One writer at a time changes them.
//!
//! Source: Boehm, "Can seqlocks get along with programming language memory models?", MSPC 2012. A change of one word is
//! one atomic store. So if at most one such change happened during a read, the reader saw one state. Hence no odd value
//! marks such a change in progress, and a reader never waits for it. While several words are changed together, the count
//! is odd.

use crate::facade::{fence, spin_loop, AtomicBool, AtomicU32, AtomicU64, Ordering};

/// How often a reader is overtaken before it requests rest.
const TRIES: usize = if cfg!(any(loom, shuttle)) { 1 } else { 16 };
/// How often a reader looks whether a change of several words is complete: some microseconds.
const LOOKS: usize = if cfg!(any(loom, shuttle)) { 2 } else { 1000 };

/// See the module's documentation. Eight bytes.
#[derive(Debug, Default)]
#[repr(C)]
pub struct SeqCount {
    /// Twice the number of changes. One more while several words are changed. It wraps, but 2^31 changes take longer than
    /// any read.
    count: AtomicU32,
    /// A reader requested that no more changes are made.
    rest: AtomicBool,
    mark: bool,
}

impl SeqCount {
    /// A count of no changes, with a mark for the caller's use. The mark never changes.
    #[inline]
    pub fn marked(mark: bool) -> Self {
        Self {
            mark,
            ..Self::default()
        }
    }

    #[inline]
    pub fn mark(&self) -> bool {
        self.mark
    }

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
        self.count.store(count.wrapping_add(2), Ordering::Release);
        true
    }

    /// Calls `change`, which changes several words by Relaxed stores. Readers see all of these changes or none. Otherwise
    /// like [`change`](Self::change). `change` must not panic.
    #[inline(always)]
    pub fn change_all(&self, change: impl FnOnce()) -> bool {
        // Relaxed: as in `change`.
        if self.rest.load(Ordering::Relaxed) {
            return false;
        }
        let count = self.count.load(Ordering::Relaxed);
        self.count.store(count.wrapping_add(1), Ordering::Relaxed);
        // Release pairs with the fence of `read`, and with the Acquire of a word that is read after `settled`. A reader that
        // sees one of the new words sees an odd count afterwards, or a later one.
        fence(Ordering::Release);
        change();
        // Release: as in `change`.
        self.count.store(count.wrapping_add(2), Ordering::Release);
        true
    }

    /// Calls `read`, which loads the words with Relaxed, perhaps several times. Returns the result of the last call,
    /// which saw one state. Nothing if a change of several words takes too long: its thread was interrupted.
    #[inline]
    pub fn read<R>(&self, mut read: impl FnMut() -> R) -> Option<R> {
        let (mut tries, mut looks) = (0, 0);
        loop {
            // Acquire pairs with the Release of the count in `change` and `change_all`.
            let before = self.count.load(Ordering::Acquire);
            if before % 2 == 0 {
                let result = read();
                // Acquire pairs with the Release of the word in `change`, and with the fence in `change_all`.
                fence(Ordering::Acquire);
                // Relaxed: the fence keeps it behind the reads of the words.
                if self.count.load(Ordering::Relaxed) == before {
                    return Some(result);
                }
                tries += 1;
                if tries == TRIES {
                    // Relaxed: as where it is loaded.
                    self.rest.store(true, Ordering::Relaxed);
                }
            } else {
                spin_loop();
                looks += 1;
                if looks == LOOKS {
                    return None;
                }
            }
        }
    }

    /// The count, for [`is_at`](Self::is_at). What is read after this is not older than the count.
    #[inline]
    pub fn token(&self) -> u32 {
        // Acquire pairs with the Release of the count: whoever sees the count sees the change.
        self.count.load(Ordering::Acquire)
    }

    /// Whether no change was completed since [`token`](Self::token).
    #[inline]
    pub fn is_at(&self, token: u32) -> bool {
        // Relaxed: the caller has synchronized with the writers that it asks about.
        self.count.load(Ordering::Relaxed) == token
    }

    /// Waits until no change of several words is in progress. False if that takes too long. After this, a single word is
    /// read with Acquire.
    ///
    /// A change may begin before the word is read. Whoever sees its new word sees the odd count afterwards. So nobody who
    /// saw the new word sees an old one later.
    #[inline]
    pub fn settled(&self) -> bool {
        // Acquire pairs with the Release of the count: the word is not older than the count.
        self.count.load(Ordering::Acquire) % 2 == 0 || self.settles()
    }

    #[cold]
    fn settles(&self) -> bool {
        (0..LOOKS).any(|_| {
            spin_loop();
            // Acquire: as in `settled`.
            self.count.load(Ordering::Acquire) % 2 == 0
        })
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
        let seen = seen.expect("no change of several words");
        assert_eq!((tries, changes), (TRIES + 1, TRIES as u64));
        assert_eq!(seen, changes);
        assert!(!count.change(&word, 0));
        assert_eq!(word.load(Ordering::Relaxed), changes);
    }
}
