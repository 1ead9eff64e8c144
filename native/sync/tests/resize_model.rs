//! A model of how the hash engine splits and merges buckets concurrently with readers and writers (see the engine's
//! `hash` module). It is small enough for all interleavings: two keys, of which key 2 moves between the buckets 0 and
//! 1. Run by `make test-models`.
#![cfg(loom)]

use cats_sync::facade::{yield_now, AtomicU64, AtomicUsize, Ordering};
use cats_sync::version_lock::VersionLock;
use loom::sync::Arc;
use loom::thread;

/// Mistakes of a table. The models must detect each.
#[derive(Clone, Copy, PartialEq)]
enum Mistake {
    None,
    /// A reader or writer trusts the size that it read first.
    NoSecondLook,
    /// A reader does not validate the version.
    NoValidation,
    /// The size is stored after the buckets are free again.
    LateSize,
    /// A bucket that was split is unlocked as unchanged.
    SameVersion,
    /// A bucket that is not in use is not locked.
    FreeTarget,
}

struct Bucket {
    lock: VersionLock,
    keys: [AtomicU64; 2],
    bodies: [AtomicU64; 2],
}

struct Table {
    size: AtomicUsize,
    buckets: [Bucket; 2],
    mistake: Mistake,
}

fn number_of(key: u64, size: usize) -> usize {
    (key as usize - 1) % size
}

impl Bucket {
    fn new(lock: VersionLock) -> Self {
        Self {
            lock,
            keys: Default::default(),
            bodies: Default::default(),
        }
    }

    fn fill(&self, slot: usize, key: u64, body: u64) {
        self.bodies[slot].store(body, Ordering::Release);
        self.keys[slot].store(key, Ordering::Release);
    }

    fn slot(&self, key: u64) -> Option<usize> {
        (0..2).find(|&slot| self.keys[slot].load(Ordering::Acquire) == key)
    }
}

impl Table {
    /// One bucket in use with keys 1 and 2, whose bodies are 10 and 20.
    fn new(mistake: Mistake) -> Arc<Self> {
        let table = Self {
            size: AtomicUsize::new(1),
            buckets: [
                Bucket::new(VersionLock::default()),
                Bucket::new(if mistake == Mistake::FreeTarget {
                    VersionLock::default()
                } else {
                    VersionLock::held()
                }),
            ],
            mistake,
        };
        table.buckets[0].fill(0, 1, 10);
        table.buckets[0].fill(1, 2, 20);
        Arc::new(table)
    }

    fn still(&self, key: u64, number: usize) -> bool {
        self.mistake == Mistake::NoSecondLook || number_of(key, self.size.load(Ordering::Acquire)) == number
    }

    /// The key's body, or 0. `None` if the try failed.
    fn try_read(&self, key: u64) -> Option<u64> {
        let number = number_of(key, self.size.load(Ordering::Acquire));
        let bucket = &self.buckets[number];
        let token = bucket.lock.token()?;
        if !self.still(key, number) {
            return None;
        }
        let body = bucket
            .slot(key)
            .map_or(0, |slot| bucket.bodies[slot].load(Ordering::Acquire));
        (self.mistake == Mistake::NoValidation || bucket.lock.validate(token)).then_some(body)
    }

    fn read(&self, key: u64) -> u64 {
        loop {
            if let Some(body) = self.try_read(key) {
                return body;
            }
            yield_now();
        }
    }

    fn try_write(&self, key: u64, body: u64) -> Option<()> {
        let number = number_of(key, self.size.load(Ordering::Acquire));
        let bucket = &self.buckets[number];
        let version = bucket.lock.try_lock()?;
        if !self.still(key, number) {
            bucket.lock.unlock_unchanged(version);
            return None;
        }
        let slot = bucket.slot(key).expect("the key is never removed");
        bucket.bodies[slot].store(body, Ordering::Release);
        bucket.lock.unlock(version);
        Some(())
    }

    fn write(&self, key: u64, body: u64) {
        while self.try_write(key, body).is_none() {
            yield_now();
        }
    }

    /// Moves key 2 to bucket 1.
    fn split(&self) {
        let [from, to] = &self.buckets;
        let Some(version) = from.lock.try_lock() else { return };
        if self.mistake != Mistake::LateSize {
            self.size.store(2, Ordering::Release);
        }
        to.fill(0, 2, from.bodies[1].load(Ordering::Relaxed));
        from.keys[1].store(0, Ordering::Release);
        if self.mistake == Mistake::SameVersion {
            from.lock.unlock_unchanged(version);
        } else {
            from.lock.unlock(version);
        }
        if self.mistake != Mistake::FreeTarget {
            to.lock.unlock(to.lock.held_version());
        }
        if self.mistake == Mistake::LateSize {
            self.size.store(2, Ordering::Release);
        }
    }

    /// Moves key 2 back.
    fn merge(&self) {
        if self.size.load(Ordering::Relaxed) == 1 {
            return;
        }
        let [to, from] = &self.buckets;
        let Some(version) = to.lock.try_lock() else { return };
        if from.lock.try_lock().is_none() {
            return to.lock.unlock_unchanged(version);
        }
        self.size.store(1, Ordering::Release);
        to.fill(1, 2, from.bodies[0].load(Ordering::Relaxed));
        from.keys[0].store(0, Ordering::Release);
        to.lock.unlock(version);
    }
}

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(model);
}

fn readers_find_keys_that_move(mistake: Mistake) {
    check(move || {
        let table = Table::new(mistake);
        let resizer = {
            let table = table.clone();
            thread::spawn(move || {
                table.split();
                table.merge();
            })
        };
        assert_eq!(table.read(2), 20);
        assert_eq!(table.read(1), 10);
        resizer.join().unwrap();
        assert_eq!(table.read(2), 20);
    });
}

fn writes_are_not_lost(mistake: Mistake) {
    check(move || {
        let table = Table::new(mistake);
        let resizer = {
            let table = table.clone();
            thread::spawn(move || {
                table.split();
                table.merge();
            })
        };
        table.write(2, 21);
        assert_eq!(table.read(2), 21);
        resizer.join().unwrap();
        assert_eq!(table.read(2), 21);
    });
}

fn a_read_does_not_go_back(mistake: Mistake) {
    check(move || {
        let table = Table::new(mistake);
        let resizer = {
            let table = table.clone();
            thread::spawn(move || table.split())
        };
        let writer = {
            let table = table.clone();
            thread::spawn(move || table.try_write(2, 21).is_some())
        };
        // Without loops, which would cause too many interleavings.
        let (first, second) = (table.try_read(2), table.try_read(2));
        assert!([None, Some(20), Some(21)].contains(&first));
        assert!(first != Some(21) || [None, Some(21)].contains(&second));
        resizer.join().unwrap();
        let written = writer.join().unwrap();
        assert_eq!(table.read(2), if written { 21 } else { 20 });
    });
}

#[test]
fn resizing_under_readers() {
    readers_find_keys_that_move(Mistake::None);
}

#[test]
fn resizing_under_writers() {
    writes_are_not_lost(Mistake::None);
}

#[test]
fn resizing_under_readers_and_writers() {
    a_read_does_not_go_back(Mistake::None);
}

#[test]
#[should_panic]
fn readers_must_look_twice() {
    readers_find_keys_that_move(Mistake::NoSecondLook);
}

#[test]
#[should_panic]
fn writers_must_look_twice() {
    writes_are_not_lost(Mistake::NoSecondLook);
}

#[test]
#[should_panic]
fn readers_must_validate() {
    readers_find_keys_that_move(Mistake::NoValidation);
}

#[test]
#[should_panic]
fn the_size_must_be_stored_before_the_buckets_are_free() {
    readers_find_keys_that_move(Mistake::LateSize);
}

#[test]
#[should_panic]
fn buckets_not_in_use_must_be_locked() {
    readers_find_keys_that_move(Mistake::FreeTarget);
}

#[test]
#[should_panic]
fn a_split_must_change_the_version() {
    readers_find_keys_that_move(Mistake::SameVersion);
}
