//! The engine `linear_hash` under random schedules. The first segments have two buckets, so a few keys suffice to split
//! and merge buckets and to add and free segments. Run by `RUSTFLAGS="--cfg shuttle" cargo test --release -p
//! cats-papers --test linear_hash_shuttle`.
#![cfg(shuttle)]

#[path = "../../bench/src/immediates.rs"]
mod immediates;

use cats_engine::config::{BucketLocks, Config};
use cats_engine::{hash_of, Busy, Engine, Entry, Step};
use cats_papers::linear_hash::LinearHash;
use cats_sync::epoch;
use immediates::Immediates;
use shuttle::sync::Arc;
use shuttle::thread;
use std::collections::BTreeMap;

const SCHEDULES: usize = 1000;

fn patiently<R>(mut call: impl FnMut() -> Result<R, Busy>) -> R {
    loop {
        match call() {
            Ok(result) => return result,
            Err(Busy) => thread::yield_now(),
        }
    }
}

struct Map(LinearHash<Immediates>);

impl Map {
    fn new(bucket_locks: BucketLocks, read_concurrency: bool) -> Arc<Self> {
        let config = Config {
            bucket_locks,
            read_concurrency,
            reader_groups: 2,
            ..Config::default()
        };
        Arc::new(Self(LinearHash::new(Immediates, &config).expect("memory")))
    }

    fn get(&self, key: u64) -> Option<u64> {
        patiently(|| self.0.read(&epoch::pin(), &key, |found| found.map(|entry| entry.body)))
    }

    fn change(&self, key: u64, change: impl Fn(Option<u64>) -> Option<u64>) {
        patiently(|| {
            self.0.update(&epoch::pin(), &key, |old| {
                let step = match change(old.map(|entry| entry.body)) {
                    Some(body) => Step::Put(Entry {
                        key: key << 4 | 15,
                        body,
                    }),
                    None => Step::Remove,
                };
                (step, ())
            })
        })
    }

    fn put(&self, key: u64, body: u64) {
        self.change(key, |_| Some(body));
    }

    fn scan(&self) -> BTreeMap<u64, u64> {
        let (mut cursor, mut all) = (Default::default(), Vec::new());
        while patiently(|| {
            self.0.scan(&epoch::pin(), &mut cursor, 1, &mut all, |entry, out| {
                out.push((entry.key >> 4, entry.body))
            })
        }) {}
        let distinct: BTreeMap<u64, u64> = all.iter().copied().collect();
        assert_eq!(distinct.len(), all.len(), "no key is met twice");
        distinct
    }

    /// Makes the table grow and shrink.
    fn churn(&self) {
        let keys = 100..106;
        keys.clone().for_each(|key| self.put(key, 1));
        keys.for_each(|key| self.change(key, |_| None));
    }
}

/// Two threads increment and read three keys that stay, while a third makes buckets split and merge.
fn resizing_disturbs_nobody(bucket_locks: BucketLocks, read_concurrency: bool) {
    let run = move || {
        let map = Map::new(bucket_locks, read_concurrency);
        (0..3).for_each(|key| map.put(key, 0));
        let counting = [0, 1].map(|_| {
            let map = map.clone();
            thread::spawn(move || {
                let mut before = [0; 3];
                for key in (0..3).chain(0..3) {
                    map.change(key, |old| Some(old.expect("a stable key") + 1));
                    let now = map.get(key).expect("a stable key");
                    assert!(now > before[key as usize]);
                    before[key as usize] = now;
                }
            })
        });
        let churning = {
            let map = map.clone();
            thread::spawn(move || map.churn())
        };
        let seen = map.scan();
        assert!((0..3).all(|key| seen.contains_key(&key)), "no stable key is missed");
        counting.into_iter().for_each(|thread| thread.join().unwrap());
        churning.join().unwrap();
        assert_eq!(map.scan(), (0..3).map(|key| (key, 4)).collect());
        assert!((100..106).all(|key| map.get(key).is_none()));
    };
    shuttle::check_random(run, SCHEDULES);
}

#[test]
fn resizing_under_the_table_lock() {
    resizing_disturbs_nobody(BucketLocks::TableLock, false);
}

#[test]
fn resizing_under_one_bucket_lock() {
    resizing_disturbs_nobody(BucketLocks::Fixed(1), false);
}

#[test]
fn resizing_under_two_bucket_locks() {
    resizing_disturbs_nobody(BucketLocks::Fixed(2), false);
}

#[test]
fn resizing_under_two_bucket_locks_with_reader_groups() {
    resizing_disturbs_nobody(BucketLocks::Fixed(2), true);
}

/// Keys that are changed together are seen together, in whatever buckets they are.
#[test]
fn many_keys_change_at_once() {
    let run = || {
        let map = Map::new(BucketLocks::Fixed(2), false);
        let writing = [[1, 2, 3], [3, 1, 2]].map(|keys: [u64; 3]| {
            let map = map.clone();
            thread::spawn(move || {
                let guard = epoch::pin();
                patiently(|| {
                    map.0.update_many(&guard, &[&keys[0], &keys[1], &keys[2]], |locked| {
                        let bodies = [0, 1, 2].map(|i| locked.get(i).map_or(0, |entry| entry.body));
                        assert!(bodies.iter().all(|body| *body == bodies[0]));
                        for (i, key) in keys.iter().enumerate() {
                            let (key, body) = (key << 4 | 15, bodies[0] + 1);
                            locked.update(i, &mut |_| Step::Put(Entry { key, body }));
                        }
                    })
                })
            })
        });
        map.churn();
        writing.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(map.scan(), (1..4).map(|key| (key, 2)).collect());
    };
    shuttle::check_random(run, SCHEDULES);
}

/// At every instant one or two keys are present, though none stays. Each new key is under the other lock.
#[test]
fn first_is_linearizable() {
    let run = || {
        let under = |lock| move |key: &u64| hash_of(key << 4 | 15) >> 2 & 1 == lock;
        let keys: Vec<u64> = (0..100)
            .filter(under(1))
            .zip((0..100).filter(under(0)))
            .flat_map(|(one, other)| [one, other])
            .take(6)
            .collect();
        let map = Map::new(BucketLocks::Fixed(2), false);
        map.put(keys[0], 1);
        let moving = {
            let map = map.clone();
            thread::spawn(move || {
                for pair in keys.windows(2) {
                    map.put(pair[1], 1);
                    map.change(pair[0], |_| None);
                }
            })
        };
        for _ in 0..5 {
            assert!(patiently(|| map.0.next(&epoch::pin(), None, |found| found.is_some())));
        }
        moving.join().unwrap();
    };
    // The other thread must run while this one is between two locks. Schedules with priorities reach that.
    shuttle::check_pct(run, SCHEDULES, 3);
}
