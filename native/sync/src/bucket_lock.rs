//! Bucket lock: a readers-writer lock in one cache line that measures the contention on itself and counts what it protects.
//!
//! Source: the bucket locks of ETS, described in Klaftenegger, Sagonas, Winblad, "On the scalability of the Erlang term storage",
//! Erlang 2013, sections 3.2 to 3.4. The statistic and the counter in the lock's line are those of the Erlang VM since OTP 25
//! (`erl_db_hash.c`).
//!
//! The word is a flag of the writer and the number of readers, unless these are counted in reader groups. A writer announces
//! itself, after which no reader gets in, then waits for the readers to leave. Not recursive; a reader may be overtaken by
//! writers any number of times.

use crate::facade::{spin_loop, AtomicI32, AtomicI64, AtomicUsize, Ordering};
use crate::lock::read_indicator::{Arrival, ReadIndicator};
use crate::Busy;

/// How often a waiter looks before it gives up: as for a version lock.
const SPINS: u32 = if cfg!(any(loom, shuttle)) { 2 } else { 2000 };
const WRITER: usize = 1;
const READER: usize = 2;

const CONTENDED: i32 = 100;
const UNCONTENDED: i32 = -1;

/// See the module's documentation.
#[derive(Debug)]
#[repr(align(64))]
pub struct BucketLock {
    word: AtomicUsize,
    groups: Option<ReadIndicator>,
    /// Of writers. Relaxed, always: a heuristic, lost updates are harmless.
    statistic: AtomicI32,
    /// Relaxed, always: changed by the writer, and read by others as an estimate.
    entries: AtomicI64,
}

const _: () = assert!(cfg!(any(loom, shuttle)) || size_of::<BucketLock>() == 64);

/// A reader's hold.
#[derive(Debug)]
pub enum Reading<'a> {
    Counted(Counted<'a>),
    Grouped(Arrival<'a>),
}

/// A reader that the word counts.
#[derive(Debug)]
pub struct Counted<'a>(&'a BucketLock);

/// The writer's hold.
#[derive(Debug)]
pub struct Writing<'a>(&'a BucketLock);

impl BucketLock {
    /// A free lock of statistic 0 over so many entries; with a line for each of `groups` groups of readers, if that is above 1.
    pub fn new(entries: i64, groups: usize) -> Self {
        Self {
            word: AtomicUsize::new(0),
            groups: (groups > 1).then(|| ReadIndicator::new(groups)),
            statistic: AtomicI32::new(0),
            entries: AtomicI64::new(entries),
        }
    }

    /// Holds the lock together with other readers.
    #[inline]
    pub fn read(&self) -> Result<Reading<'_>, Busy> {
        for _ in 0..SPINS {
            let reading = match &self.groups {
                None => self.count().map(Reading::Counted),
                Some(groups) => self.arrive(groups).map(Reading::Grouped),
            };
            if let Some(reading) = reading {
                return Ok(reading);
            }
            spin_loop();
        }
        Err(Busy)
    }

    #[inline]
    fn count(&self) -> Option<Counted<'_>> {
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
        // SeqCst: the load of a store-load pair, after the arrival; before it, it spares one in vain. Its Acquire part pairs with
        // the Release of the last writer.
        let is_free = || self.word.load(Ordering::SeqCst) == 0;
        if !is_free() {
            return None;
        }
        let arrival = groups.arrive(groups.group());
        is_free().then_some(arrival)
    }

    /// Holds the lock alone. Counts whether it had to wait.
    #[inline]
    pub fn write(&self) -> Result<Writing<'_>, Busy> {
        if let Some(writing) = self.announce(0) {
            if self.have_left(1) {
                self.bump(UNCONTENDED);
                return Ok(writing);
            }
            self.bump(CONTENDED);
            return self.have_left(SPINS).then_some(writing).ok_or(Busy);
        }
        self.write_contended()
    }

    /// Sets the writer's flag in the word.
    #[inline]
    fn announce(&self, word: usize) -> Option<Writing<'_>> {
        // Acquire pairs with the Release of the last writer, and, if it counts none, of the readers. SeqCst: the store of a
        // store-load pair; the loads are those of the groups.
        self.word
            .compare_exchange(word, word | WRITER, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok()
            .then(|| Writing(self))
    }

    /// Whether the groups, if there are any, are soon without readers.
    #[inline]
    fn have_left(&self, spins: u32) -> bool {
        self.groups.as_ref().is_none_or(|groups| groups.is_soon_empty(spins))
    }

    #[cold]
    fn write_contended(&self) -> Result<Writing<'_>, Busy> {
        self.bump(CONTENDED);
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
            // The readers that are still there are in the word. Release: so that who takes the lock next has what it would have
            // without this attempt.
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

    /// The contention: a hundred for each time that a writer had to wait, less one for each time that none did.
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

    /// Adds to the number of entries. The caller holds the lock for writing, or what the lock guards in some other way.
    #[inline]
    pub fn add(&self, amount: i64) {
        self.entries.store(self.entries() + amount, Ordering::Relaxed);
    }
}

impl Drop for Counted<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release pairs with the Acquire of the next writer: what this reader read comes before what it writes.
        self.0.word.fetch_sub(READER, Ordering::Release);
    }
}

impl Drop for Writing<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release pairs with the Acquire of whoever takes the lock. Nobody else changes the word while there is a writer and it
        // counts no readers.
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
            // The writer that gave up is not in the way.
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
