//! The conformance suite, and tests of what only this engine promises.

use super::node::LEVELS;
use super::*;
use cats_engine::testing::cases::cases;
use cats_engine::testing::conformance::{
    decode, entry, ordered_suite, patiently, suite, Map, Numbers, Random, TestKey, TestSchema,
};
use cats_engine::Schema;
use cats_sync::epoch;
use proptest::prelude::*;
use std::cmp::Ordering as Order;
use std::collections::BTreeSet;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::time::{Duration, Instant};

fn list() -> SkipList<TestSchema> {
    SkipList::new(TestSchema, &Config::default()).expect("memory")
}

suite!(list);
ordered_suite!(list);

/// The nodes of a level of a list that nobody else uses.
fn level(list: &SkipList<TestSchema>, level: usize) -> Vec<Node> {
    let next = |node: &Node| {
        // SAFETY: nobody else uses the list.
        unsafe { Node::from_address(node.link(level).load(Ordering::Relaxed)) }
    };
    std::iter::successors(next(&list.head), next).collect()
}

/// Asserts all invariants of a list that nobody else uses. Returns its keys in order.
fn check(list: &SkipList<TestSchema>) -> Vec<u64> {
    let all = level(list, 0);
    let mut below: Vec<Node> = all.clone();
    for number in 1..LEVELS {
        let nodes = level(list, number);
        let expected: Vec<_> = below.iter().copied().filter(|node| node.height() > number).collect();
        assert!(nodes == expected, "level {number} is a part of the one below");
        below = nodes;
    }
    let mut bytes = 0;
    let mut numbers = Vec::new();
    for node in all {
        assert!(!node.is_dead() && node.lock.token().is_some());
        let number = node.own(&TestSchema).number;
        let (of, _) = decode(node.entry().expect("no empty node is left")).expect("a whole entry");
        assert_eq!(of, number);
        numbers.push(number);
        bytes += node.bytes(&TestSchema);
    }
    assert!(numbers.is_sorted_by(|a, b| a < b), "keys ascend");
    assert_eq!(list.bytes.sum(), bytes as i64);
    numbers
}

proptest! {
    #![proptest_config(cases(10))]

    /// Random insertions, removals and operations on many keys keep every invariant.
    #[test]
    fn invariants_hold(ops in prop::collection::vec((0..4u8, 0..3000u64, 1..600u64), 0..40)) {
        let map = Map(list());
        let mut model = BTreeSet::new();
        for (kind, from, many) in ops {
            let numbers: Vec<u64> = (from..from + many).collect();
            match kind {
                0 => numbers.iter().for_each(|&n| map.put(n, 1)),
                1 => numbers.iter().for_each(|&n| map.remove(n)),
                // Some are inserted, some removed, some stay absent.
                _ => _ = map.change_many(&numbers, |values| {
                    values.iter_mut().step_by(3).for_each(|value| *value = value.xor(Some(2)))
                }),
            }
            match kind {
                0 => model.extend(numbers),
                1 => numbers.iter().for_each(|n| _ = model.remove(n)),
                _ => numbers.iter().step_by(3).for_each(|n| if !model.remove(n) { model.insert(*n); }),
            }
            prop_assert_eq!(check(&map.0), model.iter().copied().collect::<Vec<_>>());
        }
    }
}

#[test]
fn heights_are_distributed() {
    let mut counts = [0u32; LEVELS + 1];
    (0..100_000).for_each(|_| counts[random_height()] += 1);
    assert_eq!(counts[0], 0);
    assert!((73_000..77_000).contains(&counts[1]), "{counts:?}");
    assert!((17_500..20_000).contains(&counts[2]), "{counts:?}");
}

#[test]
fn memory_follows_the_number_of_keys() {
    let map = Map(list());
    let empty = map.0.bytes();
    assert!(empty < 1024);
    for n in 0..100_000 {
        map.put(n, 1);
    }
    let each = map.0.bytes() as f64 / 1e5;
    assert!((64.0..100.0).contains(&each), "{each} bytes an entry");
    for n in 0..100_000 {
        map.remove(n);
    }
    assert_eq!(map.0.bytes(), empty);
    assert!(map.0.retired.len() <= crate::hazard::BATCH, "garbage is bounded");
}

/// Keys that are all hashed, and whose copies are counted.
struct Counted;
static COPIES: AtomicI64 = AtomicI64::new(0);
struct Copied(TestKey);

impl Copied {
    fn new(key: TestKey) -> Self {
        COPIES.fetch_add(1, Ordering::Relaxed);
        Self(key)
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        COPIES.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Schema for Counted {
    type Probe = TestKey;
    fn word(&self, probe: &TestKey) -> u64 {
        TestSchema.word(probe)
    }
    unsafe fn matches(&self, _: &TestKey, _: Entry) -> bool {
        unreachable!("keys of nodes are compared")
    }
    unsafe fn compare_colliding(&self, _: &TestKey, _: Entry) -> Order {
        unreachable!("keys of nodes are compared")
    }
    unsafe fn compare_colliding_entries(&self, _: Entry, _: Entry) -> Order {
        unreachable!("keys of nodes are compared")
    }
}

impl OrderedSchema for Counted {
    type Key = Copied;
    unsafe fn own(&self, entry: Entry) -> Copied {
        // SAFETY: as the caller promises.
        Copied::new(unsafe { TestSchema.own(entry) })
    }
    fn own_probe(&self, probe: &TestKey) -> Copied {
        Copied::new(*probe)
    }
    fn probe<'a>(&self, key: &'a Copied) -> &'a TestKey {
        assert_eq!(key.0, TestKey::new(key.0.number), "the key of a node is whole");
        &key.0
    }
    unsafe fn compare(&self, _: &TestKey, _: Entry) -> Order {
        unreachable!("keys of nodes are compared")
    }
    unsafe fn compare_entries(&self, _: Entry, _: Entry) -> Order {
        unreachable!("keys of nodes are compared")
    }
    fn compare_probes(&self, a: &TestKey, b: &TestKey) -> Order {
        TestSchema.compare_probes(a, b)
    }
    /// Never decides.
    fn head(&self, _: &TestKey, _: usize) -> u64 {
        7
    }
    unsafe fn entry_head(&self, _: Entry, _: usize) -> u64 {
        7
    }
}

/// Each thread works at least once.
fn run_for(time: Duration, threads: u64, work: impl Fn(u64, &mut Random) + Sync) {
    let end = Instant::now() + time;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let work = &work;
            scope.spawn(move || {
                let mut random = Random(0x9e37_79b9 + thread * 0x1234_5678);
                work(thread, &mut random);
                while Instant::now() < end {
                    work(thread, &mut random);
                }
            });
        }
    });
}

/// A hashed key for a small number, and an entry for it that points to nothing.
fn hashed(n: u64) -> (TestKey, Entry) {
    let key = TestKey::new(4 * n + 2);
    let body = key.number << 3 | 3;
    (key, Entry { key: key.word, body })
}

/// All threads insert, remove, look up, walk and read ranges of neighbouring keys. No protected node is freed, which
/// the copies of keys would show. At the end everything is freed. Only a few retired nodes accumulate at any time.
#[test]
fn nodes_are_freed_when_nobody_reads_them() {
    let map = SkipList::new(Counted, &Config::default()).expect("memory");
    let most = AtomicI64::new(0);
    run_for(Duration::from_millis(1500), 4, |thread, random| {
        for _ in 0..50 {
            let guard = epoch::pin();
            let (key, entry) = hashed(random.below(if thread == 0 { 4 } else { 24 }));
            let whole = |found: Option<Entry>| found.is_none_or(|found| found == entry);
            match random.below(8) {
                0 | 1 => patiently(|| map.update(&guard, &key, |_| (Step::Put(entry), ()))),
                2 | 3 => patiently(|| map.update(&guard, &key, |_| (Step::Remove, ()))),
                4 => {
                    let other = hashed(random.below(24));
                    patiently(|| {
                        map.update_many(&guard, &[&key, &other.0], |locked| {
                            locked.update(0, &mut |_| Step::Remove);
                            locked.update(1, &mut |_| Step::Put(other.1));
                        })
                    })
                }
                5 => assert!(patiently(|| map.read(&guard, &key, whole))),
                6 => _ = patiently(|| map.next(&guard, Some(&key), |found| found.map(|found| found.body))),
                _ => {
                    let (down, mut out) = (random.below(2) == 0, Vec::new());
                    let expand = |entry: Entry, out: &mut Vec<u64>| out.push(entry.body);
                    patiently(|| {
                        map.range(
                            &guard,
                            Range {
                                from: Some((&key, true)),
                                to: None,
                                down,
                            },
                            20,
                            &mut out,
                            expand,
                        )
                    });
                    assert!(out.is_sorted_by(|a, b| if down { a > b } else { a < b }), "{out:?}");
                }
            }
        }
        most.fetch_max(COPIES.load(Ordering::Relaxed), Ordering::Relaxed);
    });
    let bound = 24 + 3 * 4 * crate::hazard::SLOTS + 2 * crate::hazard::BATCH;
    assert!(most.into_inner() < bound as i64, "garbage is bounded");
    drop(map);
    assert_eq!(COPIES.load(Ordering::Relaxed), 0, "all nodes are freed");
}

/// At every instant one or two keys are present, because each key is inserted before the previous one is removed. A
/// range over all, up or down, sees one state, and so do the first and the last key.
#[test]
fn ranges_see_one_state() {
    let map = Map(list());
    map.put(0, 0);
    let moving = AtomicBool::new(false);
    run_for(Duration::from_millis(1500), 3, |thread, random| {
        if thread == 0 {
            moving.store(true, Ordering::Relaxed);
            let mut at = 0;
            for _ in 0..100 {
                let next = random.below(12);
                if next != at {
                    map.put(next, 1);
                    map.remove(at);
                    at = next;
                }
            }
            if at != 0 {
                map.put(0, 0);
                map.remove(at);
            }
            return;
        }
        let guard = epoch::pin();
        for _ in 0..20 {
            let (down, mut out) = (random.below(2) == 0, Vec::new());
            let more = patiently(|| {
                map.0.range(
                    &guard,
                    Range {
                        from: None,
                        to: None,
                        down,
                    },
                    50,
                    &mut out,
                    |e, out| out.push(decode(e).map(|(number, _)| number)),
                )
            });
            // A range that is overtaken too often shows fewer entries.
            assert!((1..=2).contains(&out.len()), "{out:?}");
            assert!(more || out.iter().all(Option::is_some));
            let last = patiently(|| map.0.prev(&guard, None, |found| found.is_some()));
            assert!(last && map.next(None).is_some());
        }
    });
    assert!(moving.into_inner());
    assert_eq!(check(&map.0), [0]);
}

/// Empty nodes that updates left are removed once there is no contention.
#[test]
fn no_empty_nodes_stay() {
    let map = Map(list());
    run_for(Duration::from_millis(1000), 4, |_, random| {
        let numbers: Vec<u64> = (0..4).map(|_| random.below(30)).collect();
        map.change_many(&numbers, |values| {
            values.iter_mut().for_each(|value| *value = value.xor(Some(1)))
        });
        map.remove(random.below(30));
    });
    (0..30).for_each(|n| map.put(n, 1));
    assert_eq!(check(&map.0), (0..30).collect::<Vec<_>>());
}

#[test]
fn unwinding_leaves_the_list_as_it_was() {
    let map = Map(list());
    [1, 2, 6].into_iter().for_each(|n| map.put(n, 1));
    let bytes = map.0.bytes();
    let guard = epoch::pin();
    let unwound = |result: std::thread::Result<Result<(), Busy>>| assert!(result.is_err());
    for n in [2, 3] {
        let key = TestKey::new(n);
        unwound(catch_unwind(AssertUnwindSafe(|| {
            map.0.update(&guard, &key, |_| panic!("on purpose"))
        })));
    }
    let keys = [2, 3, 4].map(TestKey::new);
    unwound(catch_unwind(AssertUnwindSafe(|| {
        map.0.update_many(&guard, &[&keys[0], &keys[1], &keys[2]], |locked| {
            locked.update(1, &mut |_| Step::Put(entry(&keys[1], 2)));
            panic!("on purpose")
        })
    })));
    drop(guard);
    assert_eq!(map.get(3), Some(2), "what was done before stays");
    map.remove(3);
    assert_eq!(map.0.bytes(), bytes);
    assert_eq!(check(&map.0), [1, 2, 6]);
}

#[test]
fn a_held_place_is_busy() {
    let map = Map(list());
    [1, 5].into_iter().for_each(|n| map.put(n, 1));
    let guard = epoch::pin();
    let key = TestKey::new(1);
    let held = {
        let (held, made) = map.0.lock_place(&guard, &map.0.sought(&key)).expect("free");
        assert!(!made);
        held
    };
    assert_eq!(map.0.read(&guard, &key, |_| ()), Err(Busy));
    assert_eq!(map.0.update(&guard, &key, |_| (Step::Keep, ())), Err(Busy));
    assert_eq!(map.0.update_many(&guard, &[&key], |_| ()), Err(Busy));
    assert_eq!(map.0.next(&guard, None, |_| ()), Err(Busy));
    assert_eq!(map.0.prev(&guard, Some(&TestKey::new(5)), |_| ()), Err(Busy));
    // The place of its neighbour needs the same lock as long as no node is there.
    assert_eq!(map.0.update(&guard, &TestKey::new(2), |_| (Step::Keep, ())), Err(Busy));
    // A lookup of another key, present or not, waits for no thread.
    assert_eq!(map.get(2), None);
    assert_eq!(map.get(5), Some(1));
    drop(held);
    assert_eq!(map.get(1), Some(1));
}

/// An update of an absent key holds its place, so no other thread can insert the key meanwhile.
#[test]
fn an_absent_place_can_be_held() {
    let map = Map(list());
    [1, 5].into_iter().for_each(|n| map.put(n, 1));
    let key = TestKey::new(3);
    let guard = epoch::pin();
    let inserted = AtomicBool::new(false);
    patiently(|| {
        map.0.update_many(&guard, &[&key, &TestKey::new(4)], |locked| {
            assert_eq!(locked.get(0), None);
            std::thread::scope(|scope| {
                let other = scope.spawn(|| {
                    let guard = epoch::pin();
                    let busy = map.0.update(&guard, &key, |_| (Step::Keep, ()));
                    assert_eq!(busy, Err(Busy));
                    assert_eq!(map.0.read(&guard, &key, |_| ()), Err(Busy));
                });
                other.join().expect("no panic");
            });
            assert_eq!(locked.get(0), None);
            inserted.store(true, Ordering::Relaxed);
        })
    });
    assert!(inserted.into_inner());
    assert_eq!(check(&map.0), [1, 5]);
}

#[test]
fn equal_numbers_are_one_key() {
    cats_engine::testing::conformance::equal_numbers_are_one_key(
        SkipList::new(Numbers, &Config::default()).expect("memory"),
    );
}

#[test]
fn a_list_can_be_dropped_in_use() {
    let map = list();
    let guard = epoch::pin();
    for n in 0..5000 {
        // Immediates: nothing to free.
        let key = TestKey::new(4 * n);
        map.update(&guard, &key, |_| (Step::Put(entry(&key, 1)), ()))
            .expect("no other thread");
    }
}
