//! Statistics lock with a shared mode: a readers-writer lock in one word that measures its own contention.
//!
//! Source: Sagonas, Winblad, "More Scalable Ordered Set for ETS Using Adaptation", Erlang 2014, sections 3.1 and 7
//! (readers-writer locks in base nodes).
//!
//! Used only in exclusive mode, it is the plain statistics lock. A waiting writer keeps new readers out, so writers do
//! not starve. A writer that has just given up also keeps them out, until a reader has waited in vain for it.

use cats_sync::facade::{spin_loop, AtomicU64, Ordering};
use cats_sync::stat_lock::Statistic;
use cats_sync::{events, Busy};
use std::ptr;

/// How often a waiter tries to get a held lock before it gives up: as for a version lock.
const SPINS: u32 = if cfg!(any(loom, shuttle)) { 2 } else { 2000 };

/// A writer holds the lock.
const WRITER: u64 = 1;
/// A writer waits, so readers stay out. A hint: it may get lost, and is then set again.
const WAITING: u64 = 2;
/// One reader. The bits from here on count the readers that hold the lock.
const READER: u64 = 4;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct StatRwLock {
    word: AtomicU64,
    statistic: Statistic,
}

impl StatRwLock {
    /// Takes the lock if it is free. Does not change the statistic.
    #[inline]
    pub fn try_lock(&self) -> bool {
        // Relaxed: the exchange looks again.
        let word = self.word.load(Ordering::Relaxed);
        // Acquire pairs with the Release of both unlocks: this writer comes after the last readers' reads, and sees
        // what the last writer wrote.
        word & !WAITING == 0
            && self
                .word
                .compare_exchange(word, WRITER, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    /// Takes the lock after a bounded spin. Records whether it had to wait.
    #[inline]
    pub fn lock(&self) -> Result<(), Busy> {
        if self.try_lock() {
            self.statistic.acquired(false);
            return Ok(());
        }
        self.lock_contended()
    }

    #[cold]
    fn lock_contended(&self) -> Result<(), Busy> {
        self.statistic.contended();
        events::waiting(None, ptr::from_ref(self).addr(), 0, || {
            for _ in 0..SPINS {
                // Relaxed, here and below: a hint.
                if self.word.load(Ordering::Relaxed) & WAITING == 0 {
                    self.word.fetch_or(WAITING, Ordering::Relaxed);
                }
                spin_loop();
                if self.try_lock() {
                    return Ok(());
                }
            }
            // The flag stays set, because this writer will try again, and a steady stream of readers would keep it out.
            Err(Busy)
        })
    }

    /// Frees a lock held for writing.
    #[inline]
    pub fn unlock(&self) {
        // Release pairs with the Acquire of the next holder.
        self.word.store(0, Ordering::Release);
    }

    /// Takes the lock for reading, unless a writer has it or waits for it. Does not change the statistic.
    #[inline]
    pub fn try_lock_shared(&self) -> bool {
        // Relaxed: the exchange looks again.
        let mut word = self.word.load(Ordering::Relaxed);
        // Repeats if another reader caused the failure. The number of readers bounds the repetitions.
        while word & (WRITER | WAITING) == 0 {
            // Acquire pairs with the Release of `unlock`.
            match self
                .word
                .compare_exchange_weak(word, word + READER, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Takes the lock for reading after a bounded spin. Records it if it had to wait.
    #[inline]
    pub fn lock_shared(&self) -> Result<(), Busy> {
        if self.try_lock_shared() {
            return Ok(());
        }
        self.lock_shared_contended()
    }

    #[cold]
    fn lock_shared_contended(&self) -> Result<(), Busy> {
        self.statistic.contended();
        events::waiting(None, ptr::from_ref(self).addr(), 0, || {
            for _ in 0..SPINS {
                spin_loop();
                if self.try_lock_shared() {
                    return Ok(());
                }
            }
            // The writer may not try again. Relaxed: a hint.
            self.word.fetch_and(!WAITING, Ordering::Relaxed);
            Err(Busy)
        })
    }

    /// Frees a lock held for reading.
    #[inline]
    pub fn unlock_shared(&self) {
        // Release pairs with the Acquire of the next writer: this reader's reads come before its writes.
        self.word.fetch_sub(READER, Ordering::Release);
    }

    /// Whether no thread holds the lock.
    pub fn is_free(&self) -> bool {
        // Relaxed: a hint.
        self.word.load(Ordering::Relaxed) & !WAITING == 0
    }

    /// The contention on the lock.
    #[inline]
    pub fn statistic(&self) -> &Statistic {
        &self.statistic
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn readers_share_and_writers_do_not() {
        let lock = StatRwLock::default();
        assert!(lock.try_lock_shared() && lock.try_lock_shared());
        assert_eq!((lock.try_lock(), lock.lock()), (false, Err(Busy)));
        lock.unlock_shared();
        assert!(!lock.try_lock());
        assert_eq!(lock.lock_shared(), Err(Busy), "a writer that gave up is expected back");
        assert!(lock.try_lock_shared(), "but not for ever");
        lock.unlock_shared();
        lock.unlock_shared();
        assert!(lock.is_free() && lock.try_lock());
        assert_eq!((lock.try_lock(), lock.try_lock_shared()), (false, false));
        assert_eq!(lock.lock_shared(), Err(Busy));
        lock.unlock();
        assert!(lock.is_free());
    }

    #[test]
    fn waits_raise_the_statistic_and_exclusive_acquisitions_lower_it() {
        let lock = StatRwLock::default();
        for _ in 0..3 {
            assert_eq!(lock.lock(), Ok(()));
            lock.unlock();
            assert_eq!(lock.lock_shared(), Ok(()));
            lock.unlock_shared();
        }
        assert_eq!(lock.statistic().value(), -3);
        assert!(lock.try_lock());
        assert_eq!((lock.lock(), lock.lock_shared()), (Err(Busy), Err(Busy)));
        assert_eq!(lock.statistic().value(), 497);
    }
}
