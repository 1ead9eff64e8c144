//! The conformance suite, and tests of what only this engine promises.

use super::*;
use crate::mix;
use crate::testing::conformance::{entry, suite, tests, Map, TestKey, TestSchema};
use cats_sync::cache_line;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::panic::{catch_unwind, AssertUnwindSafe};

fn hash() -> Hash<TestSchema> {
    Hash::new(TestSchema).expect("memory")
}

suite!(hash);
tests!(hash, steps_of_scans_are_bounded);

#[test]
#[ignore = "records for another program, see the module histories"]
fn transaction_histories() {
    crate::testing::histories::histories_of_transactions(hash, module_path!());
}

#[test]
fn an_empty_table_is_small() {
    assert!(hash().bytes() <= 384 + 2 * cache_line::BYTES);
}

#[test]
fn memory_follows_the_number_of_keys() {
    let map = Map(hash());
    for n in 0..100_000 {
        map.put(n, 1);
        if n % 10_000 == 9_999 {
            let each = map.0.bytes() as f64 / (n + 1) as f64;
            assert!((22.0..32.0).contains(&each), "{each} bytes an entry at {n}");
        }
    }
    for n in 0..100_000 {
        map.remove(n);
    }
    assert!(map.0.buckets() <= 16, "{} buckets are left", map.0.buckets());
    assert!(map.0.bytes() < 8192, "{} bytes are left", map.0.bytes());
}

/// However entries came and went, and whatever their hashes are, a table can be trimmed to few bytes an entry. Then it stays as small.
#[test]
fn a_trimmed_table_takes_few_bytes_an_entry() {
    let sets: [fn(u64) -> u64; 3] = [|n| n, |n| 4 * n, |n| 4 * n + 3];
    for (number, key) in sets.into_iter().enumerate() {
        for kept in [1, 3, 50, 20_000] {
            let (map, guard) = (Map(hash()), epoch::pin());
            (0..20_000).for_each(|n| map.put(key(n), 1));
            let stays = |n: &u64| mix(*n).is_multiple_of(kept);
            (0..20_000).filter(|n| !stays(n)).for_each(|n| map.remove(key(n)));
            let count = (0..20_000).filter(stays).count();
            let most = hash().bytes() + 32 * (count + 40);
            (0..20).for_each(|_| map.0.trim(&guard, most).unwrap());
            assert!(map.0.bytes() <= most, "{number}, {kept}: {} of {most}", map.0.bytes());
            // New keys have room only in the segments that are there, and in overflow blocks.
            map.0.trim(&guard, map.0.bytes()).unwrap();
            let segments = map.0.shared.0.directory.bytes();
            (20_000..21_000).for_each(|n| map.put(key(n), 1));
            assert_eq!(map.0.shared.0.directory.bytes(), segments, "{number}, {kept}");
            assert!((0..21_000).all(|n| map.get(key(n)).is_some() == (n >= 20_000 || stays(&n))));
        }
    }
}

/// Numbers whose keys all have one hash: see [`TestKey::new`].
fn colliding() -> impl Iterator<Item = u64> {
    (0..16).map(|i| 64 + 4 * i + 3)
}

#[test]
fn long_chains_work() {
    // Few hashes with many keys each.
    let map = Map(hash());
    for round in 0..3 {
        let numbers: Vec<u64> = (0..4096).filter(|n| n % 4 == 3).collect();
        for &n in &numbers {
            map.put(n, n as u32);
        }
        for &n in &numbers {
            assert_eq!(map.get(n), Some(n as u32));
        }
        for &n in numbers.iter().filter(|n| *n / 4 % 3 != round) {
            map.remove(n);
        }
        for &n in &numbers {
            assert_eq!(map.get(n), (n / 4 % 3 == round).then_some(n as u32));
        }
    }
}

#[test]
fn many_keys_of_one_chain_come_and_go_together() {
    let map = Map(hash());
    let numbers: Vec<u64> = colliding().collect();
    // One operation frees and takes slots, also in overflow blocks.
    for round in 0..200u64 {
        let wanted: Vec<_> = numbers
            .iter()
            .map(|n| (!mix(n * 1000 + round).is_multiple_of(3)).then_some(round as u32))
            .collect();
        map.change_many(&numbers, |values| values.clone_from(&wanted));
        for (&n, &value) in numbers.iter().zip(&wanted) {
            assert_eq!(map.get(n), value);
        }
    }
}

#[test]
fn unwinding_leaves_the_table_as_it_was() {
    let map = Map(hash());
    let numbers: Vec<u64> = colliding().collect();
    for &n in &numbers[..8] {
        map.put(n, 1);
    }
    // The table grows as far as it would below.
    for _ in 0..10 {
        map.put(numbers[8], 1);
        map.remove(numbers[8]);
    }
    let bytes = map.0.bytes();
    let guard = epoch::pin();
    let unwound = |result: std::thread::Result<Result<(), Busy>>| assert!(result.is_err());
    // The bucket is full: an overflow block was provided.
    let key = TestKey::new(numbers[9]);
    unwound(catch_unwind(AssertUnwindSafe(|| {
        map.0.update(&guard, &key, |_| panic!("on purpose"))
    })));
    let keys: Vec<TestKey> = numbers.iter().map(|&n| TestKey::new(n)).collect();
    let probes: Vec<&TestKey> = keys.iter().collect();
    unwound(catch_unwind(AssertUnwindSafe(|| {
        map.0.update_many(&guard, &probes, |locked| {
            locked.update(9, &mut |_| Step::Put(entry(&keys[9], 2)));
            panic!("on purpose")
        })
    })));
    drop(guard);
    assert_eq!(map.get(numbers[9]), Some(2), "what was done before stays");
    map.remove(numbers[9]);
    assert_eq!(map.0.bytes(), bytes);
    assert_eq!(map.walk().len(), 8);
}

/// Entries are found and removed by their places alone, in blocks and in overflow blocks.
#[test]
fn entries_leave_by_their_places() {
    let (map, guard) = (Map(hash()), epoch::pin());
    let numbers: Vec<u64> = (0..20_000).filter(|n| n % 4 < 2).collect();
    for &n in &numbers {
        map.put(n, 1);
    }
    for (i, &n) in numbers.iter().enumerate() {
        let key = TestKey::new(n);
        let (place, is_it) = (crate::place_of(key.word), |entry: Entry| entry.key == key.word);
        let look = |entry| is_it(entry).then_some(entry.key);
        let found = map.0.find_at(&guard, place, look).expect("nobody else is here");
        assert_eq!(found, Some(key.word));
        let step = if i % 3 == 0 { Step::Keep } else { Step::Remove };
        let shown = map.0.update_at(&guard, place, is_it, |entry| (step, entry.is_some()));
        assert_eq!(shown, Ok(true));
        assert_eq!(map.get(n), (i % 3 == 0).then_some(1));
        if i % 3 != 0 {
            assert_eq!(
                map.0.update_at(&guard, place, is_it, |entry| (step, entry.is_some())),
                Ok(false)
            );
        }
        if i % 1000 == 0 {
            check(&map.0);
        }
    }
    assert_eq!(check(&map.0), numbers.len().div_ceil(3));
}

/// Asserts that all buckets are intact and unlocked, and that their entries and the estimate are counted.
pub(super) fn check(table: &Hash<TestSchema>) -> usize {
    let guard = epoch::pin();
    let (mut entries, mut blocks, mut sample) = (0, 0, 0);
    let size = table.size();
    for number in 0..size.buckets() {
        let bucket = table.bucket(&guard, number).expect("a bucket in use");
        assert!(bucket.head.lock.token().is_some());
        let (found, more) = bucket.check(&guard);
        for entry in &found {
            assert_eq!(size.number_of(hash_of(entry.key)), number);
            sample += i64::from(sampled(hash_of(entry.key)));
        }
        entries += found.len();
        blocks += more;
    }
    assert_eq!(table.growth.0.sample.load(Ordering::Relaxed), sample);
    let others = table.shared.0.directory.bytes();
    assert_eq!(
        table.bytes(),
        size_of::<Hash<TestSchema>>() + others + blocks * size_of::<Overflow>()
    );
    entries
}

/// Numbers that share one hash, or share two buckets in a table of any size below 16.
fn crowding() -> Vec<u64> {
    let mut numbers: Vec<u64> = colliding().chain((64..128).filter(|n| n % 4 == 3)).collect();
    numbers.extend(
        (0..4000)
            .filter(|&n| n % 4 != 3 && hash_of(TestKey::new(n).word) >> 2 & 7 == 1)
            .take(60),
    );
    numbers
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Random operations on a few long chains that are split and merged meanwhile.
    #[test]
    fn invariants_hold(ops in prop::collection::vec((0..8u8, 0..1000usize, 1..20usize), 0..120)) {
        let map = Map(hash());
        let numbers = crowding();
        let mut model = BTreeMap::new();
        for (op, from, count) in ops {
            let some = (from..from + count).map(|i| numbers[i * 7 % numbers.len()]);
            match op {
                0..=2 => for n in some {
                    map.put(n, op.into());
                    model.insert(n, u32::from(op));
                },
                3 => for n in some {
                    map.remove(n);
                    model.remove(&n);
                },
                4..=5 => {
                    let some: Vec<u64> = some.collect::<std::collections::BTreeSet<_>>().into_iter().collect();
                    let value = |n: u64| (!mix(n * 1000 + from as u64).is_multiple_of(3)).then_some(7);
                    map.change_many(&some, |values| values.iter_mut().zip(&some).for_each(|(to, n)| *to = value(*n)));
                    for n in some {
                        match value(n) {
                            Some(value) => model.insert(n, value),
                            None => model.remove(&n),
                        };
                    }
                }
                _ => for _ in 0..count {
                    let (guard, size) = (epoch::pin(), map.0.size().buckets());
                    if op == 6 && size < 40 {
                        map.0.split(&guard, size);
                    } else {
                        map.0.merge(&guard, size);
                    }
                },
            }
            prop_assert_eq!(check(&map.0), model.len());
            for &n in &numbers {
                prop_assert_eq!(map.get(n), model.get(&n).copied());
            }
        }
    }
}

#[test]
fn a_table_can_be_dropped_in_use() {
    let map = hash();
    let guard = epoch::pin();
    for n in 0..5000 {
        // Immediates: nothing to free.
        let key = TestKey::new(4 * n);
        map.update(&guard, &key, |_| (Step::Put(entry(&key, 1)), ()))
            .expect("no other thread");
    }
}

#[test]
fn a_held_bucket_is_busy() {
    let map = Map(hash());
    map.put(0, 1);
    let guard = epoch::pin();
    let key = TestKey::new(0);
    let held = map.0.lock(&guard, hash_of(key.word)).expect("free");
    assert_eq!(map.0.read(&guard, &key, |_| ()), Err(Busy));
    assert_eq!(map.0.update(&guard, &key, |_| (Step::Keep, ())), Err(Busy));
    assert_eq!(map.0.update_many(&guard, &[&key], |_| ()), Err(Busy));
    assert_eq!(map.0.next(&guard, None, |_| ()), Err(Busy));
    let mut cursor = Position::default();
    assert_eq!(
        map.0.scan(&guard, &mut cursor, 10, &mut Vec::<u64>::new(), |_, _| ()),
        Err(Busy)
    );
    assert_eq!(map.0.slot(&guard, 0, |_, _: &mut Vec<u64>| ()), Err(Busy));
    drop(held);
    assert_eq!(map.get(0), Some(1));
}

/// The sums of a view, a limited number of buckets after the other.
fn viewed(table: &Hash<TestSchema>, amount: (usize, usize)) -> View {
    let guard = epoch::pin();
    let mut view = View::default();
    let strips = View::strips(table.buckets());
    let mut next = Some(0);
    while let Some(first) = next {
        next = table.view(&guard, first, amount, strips, &mut view);
    }
    view
}

#[test]
fn a_view_counts_each_bucket_once_in_its_part_of_the_hash_range() {
    for number in [0, 1, 20, 1000, 30_000] {
        let map = Map(hash());
        // Keys with hashes of their own.
        (0..number).for_each(|n| map.put(4 * n, 1));
        let (buckets, strips) = (map.0.buckets(), View::strips(map.0.buckets()));
        for limit in [1, 100, usize::MAX] {
            let view = viewed(&map.0, (limit, 1));
            let sum = |of: fn(&Strip) -> usize| view.strips.iter().map(of).sum::<usize>();
            assert_eq!(
                (sum(|strip| strip.buckets), sum(|strip| strip.keys)),
                (buckets, number as usize)
            );
            assert!(view.strips[..strips].iter().all(|strip| strip.buckets > 0));
            let loads: Vec<usize> = view.loads.iter().enumerate().map(|(load, of)| load * of).collect();
            assert_eq!(view.loads.iter().sum::<usize>(), buckets);
            // The few buckets with more keys than the loads tell are told as if they had these.
            let (told, number) = (loads.iter().sum::<usize>(), number as usize);
            assert!(told <= number && 100 * told >= 99 * number, "{told}");
        }
        let before = viewed(&map.0, (100, 1));
        let hot = hash_of(TestSchema.word(&TestKey::new(28)));
        (0..100).for_each(|value| map.put(28, value));
        let after = viewed(&map.0, (100, 1));
        let changed = |strip: &usize| after.strips[*strip].changes > before.strips[*strip].changes;
        assert_eq!(
            (0..strips).filter(changed).collect::<Vec<_>>(),
            [View::strip_of(hot, strips)]
        );
    }
}

/// As the lowest bits of bucket numbers select the strip, an odd distance is used.
#[test]
fn a_view_of_some_buckets_has_some_of_each_strip() {
    let map = Map(hash());
    (0..30_000).for_each(|n| map.put(n, 1));
    for every in [3, 7, 15] {
        let view = viewed(&map.0, (1000, every));
        assert!(view.strips.iter().all(|strip| strip.buckets > 0));
        let keys: usize = view.strips.iter().map(|strip| strip.keys).sum();
        assert!((keys * every).abs_diff(30_000) < 3000, "{keys}");
    }
}

#[test]
fn growth_of_large_tables_is_logged() {
    let map = Map(hash());
    let logged = || {
        let mut logged = Vec::new();
        map.0
            .events()
            .each_adaptation(|adaptation| logged.push((adaptation.split, adaptation.number)));
        logged
    };
    (0..5000).for_each(|n| map.put(n, 1));
    assert!(map.0.buckets() < 1024 && logged().is_empty() && map.0.events().bytes() == 0);
    (5000..20_000).for_each(|n| map.put(n, 1));
    assert_eq!(logged(), [(true, 1024), (true, 2048)]);
    (0..20_000).for_each(|n| map.remove(n));
    assert_eq!(logged()[2..], [(false, 2048), (false, 1024)]);
}
