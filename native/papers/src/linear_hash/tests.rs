//! The conformance suite for each kind of locking, and tests of what only this engine promises.

use super::*;
use cats_engine::testing::conformance::{entry, suite, tests, Map, TestKey, TestSchema};
use cats_sync::cache_line;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// As a function pointer, so that the suite is compiled once.
type Make = fn() -> LinearHash<TestSchema>;

fn table(bucket_locks: BucketLocks) -> LinearHash<TestSchema> {
    let config = Config {
        bucket_locks,
        reader_groups: 2,
        ..Config::default()
    };
    LinearHash::new(TestSchema, &config).expect("memory")
}

fn table_for_readers(bucket_locks: BucketLocks) -> LinearHash<TestSchema> {
    let config = Config {
        bucket_locks,
        reader_groups: 2,
        read_concurrency: true,
        ..Config::default()
    };
    LinearHash::new(TestSchema, &config).expect("memory")
}

fn locks_of(map: &Map<LinearHash<TestSchema>>) -> usize {
    map.0.locks.get(&epoch::pin()).len()
}

mod table_lock {
    use super::*;
    const MAKE: Make = || table(BucketLocks::TableLock);
    suite!(MAKE);
    tests!(MAKE, steps_of_scans_are_bounded);
}

mod one_bucket_lock {
    use super::*;
    const MAKE: Make = || table(BucketLocks::Fixed(1));
    suite!(MAKE);
}

mod bucket_locks_16_for_readers {
    use super::*;
    const MAKE: Make = || table_for_readers(BucketLocks::Fixed(16));
    suite!(MAKE);
}

mod bucket_locks_64 {
    use super::*;
    const MAKE: Make = || table(BucketLocks::Fixed(64));
    suite!(MAKE);
}

mod auto {
    use super::*;
    const MAKE: Make = || table(BucketLocks::Auto);
    suite!(MAKE);
}

/// More locks than one operation takes.
mod bucket_locks_512 {
    use super::*;
    const MAKE: Make = || table(BucketLocks::Fixed(512));
    tests!(
        MAKE,
        model,
        first_is_linearizable,
        many_keys_change_at_once,
        walks_meet_all_once
    );
}

#[test]
fn the_number_of_locks_follows_contention() {
    let map = Map(table(BucketLocks::Auto));
    (0..300).for_each(|n| map.put(n, 0));
    let grown = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !grown.load(Relaxed) {
                    (0..1000).for_each(|_| _ = map.change(0, |old| old.map(|n| n + 1)));
                    grown.fetch_or(locks_of(&map) > locks::LEAST, Relaxed);
                }
            });
        }
    });
    // A hundred thousand quiet operations under one lock for each halving.
    let (guard, key) = (epoch::pin(), TestKey::new(0));
    for _ in 0..800_000 {
        map.0
            .update(&guard, &key, |_| (Step::Keep, ()))
            .expect("nobody else is there");
        if locks_of(&map) == locks::LEAST {
            return;
        }
    }
    panic!("still {} locks", locks_of(&map));
}

#[test]
fn there_are_never_more_locks_than_buckets() {
    let map = Map(table(BucketLocks::Auto));
    let guard = epoch::pin();
    [128, 256, 512].into_iter().for_each(|count| map.0.adapt(&guard, count));
    assert_eq!(locks_of(&map), 256, "there are 256 buckets");
    (0..3000).for_each(|n| map.put(n, 1));
    [512, 1024].into_iter().for_each(|count| map.0.adapt(&guard, count));
    assert_eq!(locks_of(&map), 1024);
    (0..3000).for_each(|n| map.remove(n));
    assert!(map.0.buckets() >= 1024, "{} buckets are left", map.0.buckets());
    map.0.adapt(&guard, 512);
    let sums = map.0.events.sums();
    assert_eq!((sums[Event::Split as usize], sums[Event::Join as usize]), (4, 1));
    assert_eq!(table(BucketLocks::Fixed(32_768)).buckets(), 32_768);
}

#[test]
fn locks_are_replaced_under_operations() {
    let map = Map(table(BucketLocks::Auto));
    (0..2000).for_each(|n| map.put(10_000 + n, 1));
    let (rounds, done) = (20_000, AtomicBool::new(false));
    let mut replaced = 0;
    std::thread::scope(|scope| {
        let workers = [0, 1, 2].map(|thread| {
            let map = &map;
            scope.spawn(move || {
                for i in 0..rounds {
                    let number = i * (thread + 1) % 100;
                    match i % 7 {
                        0 => assert!(map.next(Some(number)).is_some()),
                        1 => {
                            _ = map.change_many(&[number, number + 3], |values| {
                                values
                                    .iter_mut()
                                    .for_each(|value| *value = Some(value.unwrap_or(0) + 1));
                            })
                        }
                        2 => assert!(map.get(10_000 + number).is_some()),
                        _ => _ = map.change(number, |old| Some(old.unwrap_or(0) + 2)),
                    }
                }
            })
        });
        scope.spawn(|| {
            while !done.load(Relaxed) {
                let guard = epoch::pin();
                let before = locks_of(&map);
                map.0.adapt(&guard, if before == 64 { 128 } else { before / 2 });
                replaced += usize::from(locks_of(&map) != before);
            }
        });
        workers
            .into_iter()
            .for_each(|worker| worker.join().expect("no failure"));
        done.store(true, Relaxed);
    });
    assert!(replaced > 100, "replaced {replaced} times");
    let sum: u32 = (0..103).map(|n| map.get(n).unwrap_or(0)).sum();
    let adding = (0..rounds as u32).map(|i| match i % 7 {
        0 | 2 => 0,
        _ => 2,
    });
    assert_eq!(sum, 3 * adding.sum::<u32>());
    let entries: i64 = map.0.locks.get(&epoch::pin()).iter().map(BucketLock::entries).sum();
    assert_eq!(entries as usize, map.scan(100).len());
}

#[test]
fn the_table_follows_the_number_of_keys() {
    for locks in [BucketLocks::TableLock, BucketLocks::Fixed(64)] {
        let map = Map(table(locks));
        let small = map.0.bytes();
        assert!(small < 4096 + 64 * cache_line::BYTES, "{small} bytes when empty");
        // Keys that share hashes with others would not be evenly distributed.
        let numbers = (0..400_000).step_by(4);
        for (i, n) in numbers.clone().enumerate() {
            map.put(n, 1);
            if i % 20_000 == 19_999 {
                let load = (i + 1) as f64 / map.0.buckets() as f64;
                assert!((0.7..1.1).contains(&load), "{load} entries a bucket at {i}");
                let each = (map.0.bytes() - small) as f64 / (i + 1) as f64;
                let more = each - super::chain::bytes_of_entry() as f64;
                assert!((6.0..16.0).contains(&more), "{each} bytes an entry at {i}");
            }
        }
        numbers.for_each(|n| map.remove(n));
        assert!(map.0.buckets() <= 1024, "{} buckets are left", map.0.buckets());
        assert!(map.0.bytes() <= small + 20_000, "{} bytes are left", map.0.bytes());
    }
}

#[test]
fn unwinding_leaves_the_table_as_it_was() {
    for locks in [BucketLocks::TableLock, BucketLocks::Fixed(16)] {
        let map = Map(table(locks));
        (0..20).for_each(|n| map.put(n, 1));
        let bytes = map.0.bytes();
        let guard = epoch::pin();
        let key = TestKey::new(30);
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            map.0.update(&guard, &key, |_| panic!("on purpose"))
        }));
        assert!(unwound.map(|result: Result<(), Busy>| result).is_err());
        let keys: Vec<TestKey> = (25..40).map(TestKey::new).collect();
        let probes: Vec<&TestKey> = keys.iter().collect();
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            map.0.update_many(&guard, &probes, |locked| {
                locked.update(3, &mut |_| Step::Put(entry(&keys[3], 2)));
                panic!("on purpose")
            })
        }));
        assert!(unwound.map(|result: Result<(), Busy>| result).is_err());
        let unwound = catch_unwind(AssertUnwindSafe(|| map.0.read(&guard, &key, |_| panic!("on purpose"))));
        assert!(unwound.map(|result: Result<(), Busy>| result).is_err());
        assert_eq!(map.get(keys[3].number), Some(2), "what was done before stays");
        map.remove(keys[3].number);
        assert_eq!(map.0.bytes(), bytes);
        assert_eq!(map.walk().len(), 20);
    }
}

#[test]
fn a_table_can_be_dropped_in_use() {
    let map = table(BucketLocks::Fixed(64));
    let guard = epoch::pin();
    for n in 0..5000 {
        // Immediates: nothing to free.
        let key = TestKey::new(4 * n);
        map.update(&guard, &key, |_| (Step::Put(entry(&key, 1)), ()))
            .expect("no other thread");
    }
}

/// Asserts that every operation which needs a held lock returns `Busy`.
fn all_are_busy(map: &Map<LinearHash<TestSchema>>, reads_are_busy: bool) {
    let (guard, key) = (epoch::pin(), TestKey::new(0));
    let busy = |result: Result<(), Busy>, expected: bool| assert_eq!(result.is_err(), expected);
    busy(map.0.update(&guard, &key, |_| (Step::Keep, ())), true);
    busy(map.0.update_many(&guard, &[&key], |_| ()), true);
    busy(map.0.read(&guard, &key, |_| ()), reads_are_busy);
    busy(map.0.next(&guard, None, |_| ()), reads_are_busy);
    let scan = map
        .0
        .scan(&guard, &mut Position::default(), 10, &mut Vec::<u64>::new(), |_, _| ());
    busy(scan.map(|_| ()), reads_are_busy);
    busy(
        map.0.slot(&guard, 0, |_, _: &mut Vec<u64>| ()).map(|_| ()),
        reads_are_busy,
    );
}

#[test]
fn a_held_lock_is_busy() {
    for locks in [BucketLocks::TableLock, BucketLocks::Fixed(1), BucketLocks::Auto] {
        let map = Map(table(locks));
        map.put(0, 1);
        map.0.table.write_here(|()| all_are_busy(&map, true)).expect("free");
        let guard = epoch::pin();
        if map.0.locking == Locking::Buckets {
            let lock = lock_of(map.0.locks.get(&guard), hash_of(TestKey::new(0).word));
            let held = lock.read().expect("free");
            let reads = map.get(0);
            assert_eq!(reads, Some(1));
            assert_eq!(map.0.update(&guard, &TestKey::new(0), |_| (Step::Keep, ())), Err(Busy));
            drop(held);
            let held = lock.write().expect("free");
            assert_eq!(map.0.read(&guard, &TestKey::new(0), |_| ()), Err(Busy));
            assert_eq!(map.0.update(&guard, &TestKey::new(0), |_| (Step::Keep, ())), Err(Busy));
            drop(held);
        } else {
            map.0.table.read_here(|()| all_are_busy(&map, false)).expect("free");
        }
        assert_eq!(map.get(0), Some(1));
    }
}
