//! Models of the engine `linear_hash` with the real locks, small enough for all interleavings. Run by
//! `RUSTFLAGS="--cfg loom" cargo test --release -p cats-papers --test linear_hash_model`.
//!
//! - One is of the bucket lock itself.
//! - One is of a bucket that is split and merged concurrently with readers and writers.
//! - One is of the replacement of the array of bucket locks.
#![cfg(loom)]

use cats_papers::bucket_lock::BucketLock;
use cats_papers::lock::rw::Rw;
use cats_papers::lock::TableLock;
use cats_sync::facade::{yield_now, AtomicUsize, Ordering};
use cats_sync::Busy;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.check(model);
}

/// Runs `one` on a thread of its own and `other` on this one. When both are done, runs `last` on this one.
fn together<T: 'static>(shared: Arc<T>, one: impl FnOnce(&T) + 'static, other: impl FnOnce(&T), last: impl FnOnce(&T)) {
    let thread = {
        let shared = shared.clone();
        thread::spawn(move || one(&shared))
    };
    other(&shared);
    thread.join().unwrap();
    last(&shared);
}

/// Repeats a call while the result is `Busy`, at most a few times. Otherwise the search would not end.
fn patiently<R>(mut call: impl FnMut() -> Result<R, Busy>) -> Option<R> {
    for _ in 0..3 {
        match call() {
            Ok(result) => return Some(result),
            Err(Busy) => yield_now(),
        }
    }
    None
}

/// A word whose accesses loom checks.
struct Guarded {
    lock: BucketLock,
    value: UnsafeCell<u32>,
}

unsafe impl Sync for Guarded {}
unsafe impl Send for Guarded {}

impl Guarded {
    fn new(groups: usize) -> Arc<Self> {
        Arc::new(Self {
            lock: BucketLock::new(0, groups),
            value: UnsafeCell::new(0),
        })
    }
    fn write(&self) -> bool {
        let Ok(_held) = self.lock.write() else { return false };
        self.value.with_mut(|value| unsafe { *value += 1 });
        true
    }
    fn read(&self) -> Option<u32> {
        let _held = self.lock.read().ok()?;
        Some(self.value.with(|value| unsafe { *value }))
    }
}

/// A writer, which may give up, and a reader. This thread also writes and reads.
fn a_bucket_lock_excludes(groups: usize, preemptions: usize) {
    check(preemptions, move || {
        let guarded = Guarded::new(groups);
        let others = [true, false].map(|writes| {
            let guarded = guarded.clone();
            thread::spawn(move || {
                if writes {
                    guarded.write()
                } else {
                    guarded.read();
                    false
                }
            })
        });
        let mut written = u32::from(guarded.write());
        let seen = guarded.read();
        assert!(seen.is_none_or(|seen| seen >= written));
        written += others
            .into_iter()
            .map(|thread| u32::from(thread.join().unwrap()))
            .sum::<u32>();
        assert_eq!(guarded.read(), Some(written), "all holds have ended");
    });
}

#[test]
fn a_bucket_lock_excludes_writers() {
    // `make check` sets THOROUGH.
    a_bucket_lock_excludes(1, 2 + usize::from(std::env::var_os("THOROUGH").is_some()));
}

#[test]
fn a_bucket_lock_with_reader_groups_excludes_writers() {
    a_bucket_lock_excludes(2, 2);
}

/// Mistakes of a table. The models must detect each.
#[derive(Clone, Copy, PartialEq)]
enum Mistake {
    None,
    /// The bucket number is computed only before the bucket lock is taken.
    AddressBeforeLock,
    /// A split or merge takes no lock.
    NoLock,
    /// The two halves of a split have different locks, and only the old one is taken: more locks than buckets.
    LocksOfHalves,
    /// The size is stored after the bucket is free again.
    LateSize,
    /// The array of locks is replaced without the table lock.
    NoTableLock,
}

/// Keys 0 and 1 start in bucket 0. Key 1 moves to bucket 1 and back. A bucket holds the values of the keys, 0 for none.
struct Table {
    size: AtomicUsize,
    table: Rw<()>,
    /// The number of the lock array in use, and the arrays: one with one lock, one with two.
    array: AtomicUsize,
    locks: [BucketLock; 3],
    buckets: [UnsafeCell<[u32; 2]>; 2],
    mistake: Mistake,
}

unsafe impl Sync for Table {}
unsafe impl Send for Table {}

impl Table {
    fn new(mistake: Mistake) -> Arc<Self> {
        Arc::new(Self {
            size: AtomicUsize::new(1),
            table: Rw::new((), 1),
            array: AtomicUsize::new(0),
            locks: [(); 3].map(|()| BucketLock::new(0, 1)),
            buckets: [[10, 20], [0, 0]].map(UnsafeCell::new),
            mistake,
        })
    }

    fn size(&self) -> usize {
        self.size.load(Ordering::Acquire)
    }

    fn lock_of(&self, key: usize) -> &BucketLock {
        if self.mistake == Mistake::LocksOfHalves {
            return &self.locks[key];
        }
        match self.array.load(Ordering::Acquire) {
            0 => &self.locks[0],
            _ => &self.locks[1 + key],
        }
    }

    fn read(&self, key: usize) -> Result<u32, Busy> {
        let early = key % self.size();
        let _held = self.lock_of(key).read()?;
        let number = match self.mistake {
            Mistake::AddressBeforeLock => early,
            _ => key % self.size(),
        };
        Ok(self.buckets[number].with(|bucket| unsafe { (*bucket)[key] }))
    }

    fn add(&self, key: usize) -> Result<(), Busy> {
        let early = key % self.size();
        let _held = self.lock_of(key).write()?;
        let number = match self.mistake {
            Mistake::AddressBeforeLock => early,
            _ => key % self.size(),
        };
        self.buckets[number].with_mut(|bucket| unsafe { (*bucket)[key] += 1 });
        Ok(())
    }

    /// Moves key 1 from one bucket to the other. The caller holds the lock.
    fn carry(&self, from: usize, to: usize) {
        let value = self.buckets[from].with_mut(|bucket| unsafe { std::mem::take(&mut (*bucket)[1]) });
        self.buckets[to].with_mut(|bucket| unsafe { (*bucket)[1] += value });
    }

    /// Splits a table of one bucket, or merges one of two. Only one thread calls it.
    fn resize(&self, from: usize, to: usize) {
        if self.size() != from {
            return;
        }
        let locked = self.mistake != Mistake::NoLock;
        let held = locked.then(|| self.lock_of(0).write());
        if matches!(held, Some(Err(Busy))) {
            return;
        }
        if self.mistake != Mistake::LateSize {
            self.size.store(to, Ordering::Release);
        }
        self.carry(from - 1, to - 1);
        drop(held);
        if self.mistake == Mistake::LateSize {
            self.size.store(to, Ordering::Release);
        }
    }

    fn split(&self) {
        self.resize(1, 2);
    }

    fn merge(&self) {
        self.resize(2, 1);
    }

    /// Runs a section with the table lock in read mode.
    fn within<R>(&self, run: impl Fn() -> Result<R, Busy>) -> Result<R, Busy> {
        self.table.read_here(|()| run()).flatten()
    }

    /// Replaces one lock by two.
    fn adapt(&self) {
        let replace = || self.array.store(1, Ordering::Release);
        if self.mistake == Mistake::NoTableLock {
            replace();
        } else {
            let _ = self.table.write_here(|()| replace());
        }
    }
}

/// Both keys are found while one of them moves to the other bucket and back.
fn keys_are_found_while_they_move(mistake: Mistake) {
    check(3, move || {
        let resize = |table: &Table| {
            table.split();
            table.merge();
        };
        let read = |table: &Table| {
            assert!(patiently(|| table.read(1)).is_none_or(|value| value == 20));
            assert!(patiently(|| table.read(0)).is_none_or(|value| value == 10));
        };
        together(Table::new(mistake), resize, read, |table| {
            assert_eq!(table.read(1), Ok(20))
        });
    });
}

/// A value that is written to a moving key is kept.
fn writes_are_not_lost(mistake: Mistake) {
    check(3, move || {
        let resize = |table: &Table| {
            table.split();
            table.merge();
        };
        let table = Table::new(mistake);
        let written = patiently(|| table.add(1)).is_some();
        let write_and_read = |table: &Table| {
            if patiently(|| table.add(1)).is_some() {
                assert!(patiently(|| table.read(1)).is_none_or(|value| value == 21 + u32::from(written)));
            }
        };
        together(table, resize, write_and_read, |table| {
            assert!(table.read(1).is_ok_and(|value| value >= 20 + u32::from(written)));
        });
    });
}

/// Two threads add to one key while the lock array is replaced.
fn a_replaced_lock_guards_no_more(mistake: Mistake) {
    check(3, move || {
        let add = |table: &Table| table.within(|| table.add(0)).is_ok();
        let table = Table::new(mistake);
        let other = {
            let table = table.clone();
            thread::spawn(move || add(&table))
        };
        let adapter = {
            let table = table.clone();
            thread::spawn(move || table.adapt())
        };
        let mine = add(&table);
        let written = [mine, other.join().unwrap()];
        adapter.join().unwrap();
        let expected = 10 + written.into_iter().map(u32::from).sum::<u32>();
        assert_eq!(table.read(0), Ok(expected));
    });
}

#[test]
fn readers_find_keys_that_move() {
    keys_are_found_while_they_move(Mistake::None);
}

#[test]
fn writers_meet_keys_that_move() {
    writes_are_not_lost(Mistake::None);
}

#[test]
fn locks_are_replaced_while_nobody_holds_one() {
    a_replaced_lock_guards_no_more(Mistake::None);
}

#[test]
#[should_panic]
fn readers_must_compute_the_address_under_the_lock() {
    keys_are_found_while_they_move(Mistake::AddressBeforeLock);
}

#[test]
#[should_panic]
fn writers_must_compute_the_address_under_the_lock() {
    writes_are_not_lost(Mistake::AddressBeforeLock);
}

#[test]
#[should_panic]
fn a_split_must_hold_the_lock() {
    keys_are_found_while_they_move(Mistake::NoLock);
}

#[test]
#[should_panic]
fn both_halves_must_have_one_lock() {
    keys_are_found_while_they_move(Mistake::LocksOfHalves);
}

#[test]
#[should_panic]
fn the_size_must_be_stored_under_the_lock() {
    keys_are_found_while_they_move(Mistake::LateSize);
}

#[test]
#[should_panic]
fn locks_must_be_replaced_under_the_table_lock() {
    a_replaced_lock_guards_no_more(Mistake::NoTableLock);
}
