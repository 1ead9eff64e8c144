//! `linear_hash`: the hash table of the papers. Linear hashing with chained buckets, under one table lock and a number
//! of bucket locks.
//!
//! Source: Klaftenegger, Sagonas, Winblad, "On the Scalability of the Erlang Term Storage", Erlang 2013, sections 2,
//! 3.2 to 3.4 and 6.1, which describe the hash tables of ETS. Larson, "Dynamic hash tables", CACM 1988, for linear
//! hashing.
//!
//! Every operation takes locks, as in ETS. First it takes the table lock in read mode, and then the lock of the key's
//! bucket in read or write mode. Without bucket locks (`Locking::Table`) writers take the table lock in write mode.
//! The load is estimated from what one lock guards. So the only shared words that an operation writes are the reader
//! counts in the locks.
//!
//! # Why the bucket of a key is stable
//!
//! A key's bucket is `Size::number_of` its hash, computed under the lock of the bucket. The hash alone selects the
//! lock, and both halves of a split have the same lock. A thread that moves the key needs that lock, too. So the size
//! that an operation reads may be stale, but it gives the same bucket.
//!
//! # Order of locks
//!
//! First the table lock. Then bucket locks in traversal order, in which the buckets of one lock are adjacent. Resizing
//! takes a bucket lock only if it holds none. An operation that needs more than `MOST_LOCKS` bucket locks takes the table
//! lock in write mode instead.

mod chain;
mod directory;
mod locks;
mod many;
mod resize;
mod traverse;

use crate::bucket_lock::{BucketLock, Reading, Writing};
use crate::detaching::Detaching;
use crate::eventful::Eventful;
use crate::lock::rw::Rw;
use crate::lock::TableLock;
use cats_engine::config::{BucketLocks, Config};
use cats_engine::linear::{Position, Size};
use cats_engine::{hash_of, Busy, Engine, Entry, Locked, Schema, Step};
use cats_sync::epoch::{self, Guard};
use cats_sync::events::{Event, Events};
use cats_sync::facade::{AtomicBool, AtomicUsize, Ordering};
use cats_sync::probe;
use cats_sync::trace::Kind;
use chain::{Chain, Place, Spare};
use directory::Directory;
use locks::{lock_of, Locks};
use std::ptr;

/// The most bucket locks that one operation holds.
const MOST_LOCKS: usize = 64;

/// Which locks an operation holds besides the table lock.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Locking {
    /// The table lock is held in read mode, and the locks of the buckets guard them.
    Buckets,
    /// The table lock guards everything.
    Table,
}

/// See the module's documentation.
pub struct LinearHash<S> {
    schema: S,
    /// How an operation on one key locks.
    locking: Locking,
    /// Whether the number of bucket locks follows contention.
    adaptive: bool,
    /// The first lock that every operation takes.
    table: Rw<()>,
    /// One lock without bucket locks, because it counts entries.
    locks: Locks,
    /// A [`Size`].
    size: AtomicUsize,
    /// Set by the one thread that is changing the size.
    resizing: AtomicBool,
    directory: Directory,
    events: Events,
}

impl<S: Schema> LinearHash<S> {
    /// An empty table. `None` when memory is exhausted.
    pub fn new(schema: S, config: &Config) -> Option<Self> {
        let (locking, count) = match config.bucket_locks {
            BucketLocks::TableLock => (Locking::Table, 1),
            BucketLocks::Fixed(count) => (Locking::Buckets, count as usize),
            BucketLocks::Auto => (Locking::Buckets, locks::LEAST),
        };
        let groups_if = |many_read| if many_read { config.reader_groups } else { 1 };
        // With bucket locks nearly all operations are readers of the table lock.
        let table_groups = groups_if(locking == Locking::Buckets || config.read_concurrency);
        let table = Self {
            schema,
            locking,
            adaptive: config.bucket_locks == BucketLocks::Auto,
            table: Rw::new((), table_groups),
            locks: Locks::new(count, groups_if(config.read_concurrency))?,
            size: AtomicUsize::new(Size::new(0).0),
            resizing: AtomicBool::new(false),
            directory: Directory::new(),
            events: Events::default(),
        };
        let guard = epoch::pin();
        // Never fewer buckets than locks.
        for number in 0..directory::FIRST.max(count) {
            if !table.directory.extend(&guard, number) {
                return None;
            }
            table.set_size(number + 1);
        }
        Some(table)
    }

    /// Calls `run` with the table lock in read mode.
    #[inline]
    fn shared<R>(&self, run: impl FnOnce() -> Result<R, Busy>) -> Result<R, Busy> {
        self.table.read_here(|()| run())?
    }

    /// Calls `run` with the table lock in the mode for `locking`.
    #[inline]
    fn within<R>(&self, locking: Locking, run: impl FnOnce() -> Result<R, Busy>) -> Result<R, Busy> {
        match locking {
            Locking::Buckets => self.shared(run),
            Locking::Table => self.table.write_here(|()| run())?,
        }
    }

    /// The bucket of a hash. The caller holds its lock, for writing if it changes the chain.
    #[inline]
    fn chain<'l>(&self, guard: &Guard, hash: u64) -> Chain<'l> {
        let first = self.directory.bucket(guard, self.size().number_of(hash));
        // SAFETY: the caller's promise.
        unsafe { Chain::new(first) }
    }

    /// The place of a key. The caller holds the lock of its bucket.
    #[inline]
    fn find<'l>(&self, guard: &Guard, hash: u64, word: u64, probe: &S::Probe) -> Place<'l> {
        // SAFETY: the entries of a locked chain are in the table. Chains call this only for equal words that end in
        // bits 00.
        let matches = |entry| unsafe { self.schema.matches(probe, entry) };
        self.chain(guard, hash).find(word, matches)
    }

    /// Carries out a step on a place just found. Returns whether the number of entries changed. A new key takes a spare
    /// node.
    #[inline]
    fn step(&self, lock: &BucketLock, place: Place<'_>, step: Step, spare: &mut Spare) -> bool {
        match (step, place.entry()) {
            (Step::Keep | Step::Touch, _) | (Step::Remove, None) => return false,
            (Step::Put(entry), Some(old)) => {
                debug_assert_eq!(entry.key, old.key);
                place.replace(entry);
                return false;
            }
            (Step::Put(entry), None) => {
                place.append(entry, spare);
                lock.add(1);
            }
            (Step::Remove, Some(_)) => {
                place.remove(spare);
                lock.add(-1);
            }
        }
        true
    }

    /// An update under the table lock in the mode for `locking`. Also returns the number of bucket locks that there
    /// should be.
    #[inline]
    fn update_in<R>(
        &self,
        guard: &Guard,
        locking: Locking,
        probe: &S::Probe,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> Result<(R, Option<usize>), Busy> {
        let word = self.schema.word(probe);
        let hash = hash_of(word);
        let locks = self.locks.get(guard);
        let lock = lock_of(locks, hash);
        let mut spare = Spare::new();
        let held = to_write(lock, locking)?;
        let place = self.find(guard, hash, word, probe);
        let old = place.entry();
        if old.is_none() {
            spare.allocate_or_panic();
        }
        let (step, result) = change(old);
        let counts = self.step(lock, place, step, &mut spare);
        drop(held);
        if counts {
            self.resize(guard, locking, lock);
        }
        let wish = if self.adaptive {
            Locks::wish(lock, locks.len())
        } else {
            None
        };
        Ok((result, wish))
    }

    /// Changes the number of bucket locks, if there are enough buckets for them and the table lock is free.
    #[cold]
    fn adapt(&self, guard: &Guard, count: usize) {
        let replace = || {
            let now = self.locks.get(guard).len();
            // Another thread may have done it, or the table may have shrunk.
            let fits = (2 * now == count && 2 * now <= self.size().buckets()) || 2 * count == now;
            if fits && self.locks.replace(guard, count) {
                self.adapted(now, count);
            }
            Ok(())
        };
        // If it fails, a later operation will try again.
        let _ = self.within(Locking::Table, replace);
    }
}

impl<S> LinearHash<S> {
    /// Counts and traces that there are so many bucket locks in place of so many.
    fn adapted(&self, before: usize, now: usize) {
        let (event, kind) = if now > before {
            probe!(locks_grow, ptr::from_ref(self), before, now);
            (Event::Split, Kind::MoreLocks)
        } else {
            probe!(locks_shrink, ptr::from_ref(self), before, now);
            (Event::Join, Kind::FewerLocks)
        };
        self.events.record(kind, [before as u64, now as u64]);
        self.events.count(event, 1);
    }
}

/// Holds a bucket lock, unless the table lock suffices.
#[inline]
fn to_read(lock: &BucketLock, locking: Locking) -> Result<Option<Reading<'_>>, Busy> {
    match locking {
        Locking::Buckets => lock.read().map(Some),
        Locking::Table => Ok(None),
    }
}

/// Holds a bucket lock for writing, unless the table lock suffices.
#[inline]
fn to_write(lock: &BucketLock, locking: Locking) -> Result<Option<Writing<'_>>, Busy> {
    match locking {
        Locking::Buckets => lock.write().map(Some),
        Locking::Table => Ok(None),
    }
}

impl<S> Detaching for LinearHash<S> {}

impl<S> Eventful for LinearHash<S> {
    fn events(&self) -> &Events {
        &self.events
    }
}

impl<S: Schema> Engine<S> for LinearHash<S> {
    type Cursor = Position;

    #[inline]
    fn read<R>(&self, guard: &Guard, probe: &S::Probe, mut look: impl FnMut(Option<Entry>) -> R) -> Result<R, Busy> {
        let word = self.schema.word(probe);
        let hash = hash_of(word);
        self.shared(|| {
            let _held = to_read(lock_of(self.locks.get(guard), hash), self.locking)?;
            Ok(look(self.find(guard, hash, word, probe).entry()))
        })
    }

    #[inline]
    fn update<R>(
        &self,
        guard: &Guard,
        probe: &S::Probe,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        let (result, wish) = self.within(self.locking, || self.update_in(guard, self.locking, probe, change))?;
        if let Some(count) = wish {
            self.adapt(guard, count);
        }
        Ok(result)
    }

    fn update_many<R>(
        &self,
        guard: &Guard,
        probes: &[&S::Probe],
        change: impl FnOnce(&mut dyn Locked) -> R,
    ) -> Result<R, Busy> {
        self.change_many(guard, probes, change)
    }

    fn scan<T>(
        &self,
        guard: &Guard,
        cursor: &mut Position,
        limit: usize,
        out: &mut Vec<T>,
        expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy> {
        self.scan_on(guard, cursor, limit, out, expand)
    }

    fn next<R>(
        &self,
        guard: &Guard,
        after: Option<&S::Probe>,
        look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        self.step_on(guard, after, look)
    }

    fn buckets(&self) -> usize {
        self.size().buckets()
    }

    fn slot<T>(
        &self,
        guard: &Guard,
        number: usize,
        expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<Option<Vec<T>>, Busy> {
        self.entries_of(guard, number, expand)
    }

    fn bytes(&self) -> usize {
        let guard = epoch::pin();
        let entries: i64 = self.locks.get(&guard).iter().map(BucketLock::entries).sum();
        size_of::<Self>()
            + self.locks.bytes(&guard)
            + self.directory.bytes()
            + usize::try_from(entries).unwrap_or(0) * chain::bytes_of_entry()
    }

    fn dismantle(&mut self, limit: usize, free: &mut dyn FnMut(Entry)) -> bool {
        self.free_last(limit.max(1), free)
    }
}

impl<S> LinearHash<S> {
    #[inline]
    fn size(&self) -> Size {
        // Acquire pairs with the Release of `set_size`: there is memory for the buckets.
        Size(self.size.load(Ordering::Acquire))
    }

    fn set_size(&self, buckets: usize) {
        // Release pairs with the Acquire of `size`.
        self.size.store(Size::new(buckets).0, Ordering::Release);
    }

    /// Frees the last buckets, up to `limit` buckets and entries, and shows the entries. True when nothing is left.
    fn free_last(&mut self, limit: usize, free: &mut dyn FnMut(Entry)) -> bool {
        let guard = epoch::pin();
        let first_lock = &self.locks.get(&guard)[0];
        let mut spare = Spare::new();
        for _ in 0..limit {
            let Some(last) = self.size().buckets().checked_sub(1) else {
                return true;
            };
            // SAFETY: nobody else uses the table.
            let place = unsafe { Chain::new(self.directory.bucket(&guard, last)) }.start();
            match place.entry() {
                Some(entry) => {
                    place.remove(&mut spare);
                    first_lock.add(-1);
                    free(entry);
                }
                None => {
                    self.set_size(last);
                    self.directory.cut(&guard, last);
                }
            }
        }
        false
    }
}

impl<S> Drop for LinearHash<S> {
    fn drop(&mut self) {
        while !self.free_last(usize::MAX, &mut |_| ()) {}
    }
}

#[cfg(test)]
mod tests;
