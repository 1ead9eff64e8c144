//! Bucket lock: a readers-writer lock in one cache line. It measures its own contention and counts the entries that it
//! guards.
//!
//! Source: the bucket locks of ETS, described in Klaftenegger, Sagonas, Winblad, "On the Scalability of the Erlang Term
//! Storage", Erlang 2013, sections 3.2 to 3.4. The statistic and the counter in the same cache line are those of
//! Erlang/OTP since release 25 (`erl_db_hash.c`).
//!
//! The word holds the flag of a writer and the number of readers, unless reader groups count the readers. A writer
//! announces itself, after which no reader gets in. Then it waits for the readers to leave. The lock is not recursive.
//! Writers may overtake a reader any number of times.

use crate::lock::read_indicator::{Arrival, ReadIndicator};
use cats_sync::cache_line::{self, CacheLine};
use cats_sync::facade::{spin_loop, AtomicI32, AtomicI64, AtomicUsize, Ordering};
use cats_sync::{events, Busy};
use std::ptr;

/// How often a waiter tries before it gives up: as for a version lock.
const SPINS: u32 = if cfg!(any(loom, shuttle)) { 2 } else { 2000 };
const WRITER: usize = 1;
const READER: usize = 2;

const CONTENDED: i32 = 100;
const UNCONTENDED: i32 = -1;

/// See the module's documentation.
#[derive(Debug)]
pub struct BucketLock {
    _line: CacheLine,
    word: AtomicUsize,
    groups: Option<ReadIndicator>,
    /// Contention of writers. Always Relaxed: a heuristic, for which lost updates are harmless.
    statistic: AtomicI32,
    /// Always Relaxed: written by the writer, and read by others as an estimate.
    entries: AtomicI64,
}

const _: () = assert!(cfg!(any(loom, shuttle)) || size_of::<BucketLock>() == cache_line::BYTES);

/// A lock held for reading. Dropping it frees the lock.
#[derive(Debug)]
pub enum Reading<'a> {
    Counted(Counted<'a>),
    Grouped(Arrival<'a>),
}

/// A reader that is counted in the word.
#[derive(Debug)]
pub struct Counted<'a>(&'a BucketLock);

/// A lock held for writing. Dropping it frees the lock.
#[derive(Debug)]
pub struct Writing<'a>(&'a BucketLock);

impl BucketLock {
    /// A free lock with statistic 0 that guards this many entries. If `groups` is above 1, it has this many reader
    /// groups, each with a cache line.
    pub fn new(entries: i64, groups: usize) -> Self {
        Self {
            _line: CacheLine,
            word: AtomicUsize::new(0),
            groups: (groups > 1).then(|| ReadIndicator::new(groups)),
            statistic: AtomicI32::new(0),
            entries: AtomicI64::new(entries),
        }
    }

    /// Takes the lock for reading, together with other readers.
    #[inline]
    pub fn read(&self) -> Result<Reading<'_>, Busy> {
        match self.try_read() {
            Some(reading) => Ok(reading),
            None => self.read_contended(),
        }
    }

    #[inline]
    fn try_read(&self) -> Option<Reading<'_>> {
        match &self.groups {
            None => self.count().map(Reading::Counted),
            Some(groups) => self.arrive(groups).map(Reading::Grouped),
        }
    }

    #[cold]
    fn read_contended(&self) -> Result<Reading<'_>, Busy> {
        events::waiting(None, ptr::from_ref(self).addr(), 0, || {
            for _ in 0..SPINS {
                spin_loop();
                if let Some(reading) = self.try_read() {
                    return Ok(reading);
                }
            }
            Err(Busy)
        })
    }

    #[inline]
    fn count(&self) -> Option<Counted<'_>> {
        // Relaxed: the exchange looks again.
        let word = self.word.load(Ordering::Relaxed);
        if word & WRITER != 0 {
            return None;
        }
        // Acquire pairs with the Release of the last writer.
        self.word
            .compare_exchange(word, word + READER, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
            .then(|| Counted(self))
    }

    #[inline]
    fn arrive<'a>(&self, groups: &'a ReadIndicator) -> Option<Arrival<'a>> {
        // SeqCst: the load of a store-load pair, after the arrival. The load before the arrival only avoids a useless
        // arrival. The Acquire part pairs with the Release of the last writer.
        let is_free = || self.word.load(Ordering::SeqCst) == 0;
        if !is_free() {
            return None;
        }
        let arrival = groups.arrive(groups.group());
        is_free().then_some(arrival)
    }

    /// Takes the lock for writing. Records whether it had to wait.
    #[inline]
    pub fn write(&self) -> Result<Writing<'_>, Busy> {
        if let Some(writing) = self.announce(0) {
            if self.have_left(1) {
                self.bump(UNCONTENDED);
                return Ok(writing);
            }
            self.bump(CONTENDED);
            return self.outwait(writing);
        }
        self.write_contended()
    }

    /// Sets the writer's flag in the word.
    #[inline]
    fn announce(&self, word: usize) -> Option<Writing<'_>> {
        // Acquire pairs with the Release of the last writer, and of the readers if the word counts them. SeqCst: the
        // store of a store-load pair, whose loads are those of the groups.
        self.word
            .compare_exchange(word, word | WRITER, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok()
            .then(|| Writing(self))
    }

    /// Waits a bounded time until the reader groups, if there are any, have no readers.
    #[inline]
    fn have_left(&self, spins: u32) -> bool {
        self.groups.as_ref().is_none_or(|groups| groups.is_soon_empty(spins))
    }

    /// Waits a bounded time for the readers, after the announcement.
    #[cold]
    fn outwait<'a>(&'a self, writing: Writing<'a>) -> Result<Writing<'a>, Busy> {
        events::waiting(None, ptr::from_ref(self).addr(), 0, || {
            self.have_left(SPINS).then_some(writing).ok_or(Busy)
        })
    }

    #[cold]
    fn write_contended(&self) -> Result<Writing<'_>, Busy> {
        self.bump(CONTENDED);
        events::waiting(None, ptr::from_ref(self).addr(), 0, || self.announce_and_wait())
    }

    fn announce_and_wait(&self) -> Result<Writing<'_>, Busy> {
        let mut announced = None;
        for _ in 0..SPINS {
            // Acquire pairs with the Release of the readers.
            let word = self.word.load(Ordering::Acquire);
            if word == WRITER && announced.is_some() {
                return announced.filter(|_| self.have_left(SPINS)).ok_or(Busy);
            }
            if word & WRITER == 0 {
                announced = self.announce(word);
            } else {
                spin_loop();
            }
        }
        if let Some(writing) = announced {
            // The word still counts readers. Release, so that the next holder sees what it would see without this
            // attempt.
            std::mem::forget(writing);
            self.word.fetch_sub(WRITER, Ordering::Release);
        }
        Err(Busy)
    }

    fn bump(&self, amount: i32) {
        let statistic = self.statistic.load(Ordering::Relaxed);
        self.statistic
            .store(statistic.saturating_add(amount), Ordering::Relaxed);
    }

    /// The contention: plus a hundred for each time that a writer had to wait, minus one for each time that none did.
    #[inline]
    pub fn statistic(&self) -> i32 {
        self.statistic.load(Ordering::Relaxed)
    }

    /// Sets the statistic to 0.
    #[inline]
    pub fn reset(&self) {
        self.statistic.store(0, Ordering::Relaxed);
    }

    /// The number of entries.
    #[inline]
    pub fn entries(&self) -> i64 {
        self.entries.load(Ordering::Relaxed)
    }

    /// Adds to the number of entries. The caller holds the lock for writing, or has exclusive access in another way.
    #[inline]
    pub fn add(&self, amount: i64) {
        self.entries.store(self.entries() + amount, Ordering::Relaxed);
    }
}

impl Drop for Counted<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release pairs with the Acquire of the next writer: what this reader read comes before what that writer
        // writes.
        self.0.word.fetch_sub(READER, Ordering::Release);
    }
}

impl Drop for Writing<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release pairs with the Acquire of the next holder. A plain store suffices: while there is a writer and the
        // word counts no readers, no other thread changes it.
        self.0.word.store(0, Ordering::Release);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn both(test: impl Fn(BucketLock)) {
        [1, 3].into_iter().for_each(|groups| test(BucketLock::new(0, groups)));
    }

    #[test]
    fn readers_share_and_writers_do_not() {
        both(|lock| {
            let readers = [lock.read().unwrap(), lock.read().unwrap()];
            assert_eq!(lock.write().map(drop), Err(Busy));
            // A writer that gave up does not block.
            drop(lock.read().unwrap());
            drop(readers);
            let writer = lock.write().unwrap();
            assert_eq!(lock.read().map(drop), Err(Busy));
            assert_eq!(lock.write().map(drop), Err(Busy));
            drop(writer);
            assert!(lock.read().is_ok());
            assert!(lock.write().is_ok());
        });
    }

    #[test]
    fn the_statistic_tells_contention() {
        both(|lock| {
            for _ in 0..30 {
                drop(lock.write().unwrap());
            }
            assert_eq!(lock.statistic(), -30);
            let writer = lock.write().unwrap();
            assert_eq!(lock.write().map(drop), Err(Busy));
            assert_eq!(lock.statistic(), 69);
            drop(writer);
            let reader = lock.read().unwrap();
            assert_eq!(lock.write().map(drop), Err(Busy));
            assert_eq!(lock.statistic(), 169);
            drop(reader);
            lock.reset();
            assert_eq!(lock.statistic(), 0);
        });
    }
}
