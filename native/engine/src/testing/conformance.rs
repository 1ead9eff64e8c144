//! One suite for every engine: a sequential model test, and stress tests with real threads.
//!
//! The tests of an engine use `crate::testing::conformance::suite!(|| Engine::new(TestSchema))`. An ordered engine also
//! uses `ordered_suite!`. Keys are numbers. The number decides whether its key is an immediate, a hashed key, or a key
//! that shares its hash with others. Values contain a check, so that a torn read is detected.

use super::cases::cases;
use crate::{hash_of, mix, Busy, Engine, Entry, OrderedEngine, OrderedSchema, Origin, Range, Schema, Step, Trail};
use cats_sync::epoch::{self, Guard};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use std::time::{Duration, Instant};

/// How long one stress test runs, in milliseconds. The default engines, whose tests are in this crate, are stressed
/// longer than the others. `CATS_STRESS_MS` overrides it, and `make check` sets it to a longer time.
fn stress_ms() -> u64 {
    let asked = std::env::var("CATS_STRESS_MS").ok();
    let default = if cfg!(test) { 100 } else { 30 };
    asked.map_or(default, |ms| ms.parse().expect("a number of milliseconds"))
}

/// The schema of the tests, whose keys are numbers.
pub struct TestSchema;

/// A number with the key word of its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestKey {
    pub number: u64,
    pub word: u64,
}

impl TestKey {
    /// Half of the numbers are immediates. A quarter has hashes of their own. In the last quarter each run of 64 shares
    /// one hash, which is sometimes that of an immediate.
    pub fn new(number: u64) -> Self {
        let word = match number % 4 {
            0 | 1 => number << 4 | 15,
            2 => mix(number) & !3 | 4,
            _ if number & 64 == 0 => hash_of(TestKey::new(number / 64 * 64).word),
            _ => mix(number / 64) & !3 | 4,
        };
        Self { number, word }
    }
}

/// The object of a hashed key. It is immutable once it is in a table, except for the counters.
struct Block {
    number: u64,
    value: u32,
    check: u64,
    /// Two counters that are equal whenever no thread holds the place.
    counters: [AtomicU64; 2],
}

/// An entry for a key and a value. For a hashed key, with a new block.
pub fn entry(key: &TestKey, value: u32) -> Entry {
    let body = if key.word & 3 == 3 {
        (key.number & 0xff_ffff) << 40 | u64::from(value) << 2 | 3
    } else {
        Box::into_raw(Box::new(Block {
            number: key.number,
            value,
            check: mix(key.number ^ u64::from(value) << 32),
            counters: Default::default(),
        })) as u64
    };
    Entry { key: key.word, body }
}

fn block<'a>(entry: Entry) -> Option<&'a Block> {
    if entry.key & 3 == 3 || entry.body & 3 != 0 {
        return None;
    }
    // SAFETY: such a body is the address of a block. It lives as long as the guard under which the entry was read.
    Some(unsafe { &*(entry.body as *const Block) })
}

/// The number and value of an entry. `None` if its two words do not belong together.
pub fn decode(entry: Entry) -> Option<(u64, u32)> {
    let (number, value) = match block(entry) {
        Some(block) if block.check == mix(block.number ^ u64::from(block.value) << 32) => (block.number, block.value),
        None if entry.body & 3 == 3 => {
            let number = entry.key >> 4;
            if number & 0xff_ffff != entry.body >> 40 {
                return None;
            }
            (number, (entry.body >> 2) as u32)
        }
        _ => return None,
    };
    (TestKey::new(number).word == entry.key).then_some((number, value))
}

fn whole(entry: Entry) -> (u64, u32) {
    decode(entry).expect("an entry whose words belong together")
}

unsafe fn drop_block(address: *mut u8, _: usize) {
    // SAFETY: a retired or dismantled block came from `entry`, and is dropped once.
    drop(unsafe { Box::from_raw(address.cast::<Block>()) });
}

pub fn retire(guard: &Guard, entry: Entry) {
    if block(entry).is_some() {
        // SAFETY: the caller has replaced or removed the entry.
        unsafe { guard.retire(entry.body as *mut u8, 0, drop_block) }
    }
}

/// Changes what the entry of a hashed key points to, under its lock. False if the key is an immediate.
pub fn touch(entry: Entry) -> bool {
    let Some(block) = block(entry) else { return false };
    for counter in &block.counters {
        // Relaxed and Release: the lock excludes other writers, and readers validate.
        counter.store(counter.load(Relaxed) + 1, Release);
    }
    true
}

/// How often the entry was touched. `None` if the read is torn.
pub fn touched(entry: Entry) -> Option<u64> {
    let counters = block(entry).map_or([0; 2], |block| {
        block.counters.each_ref().map(|counter| counter.load(Acquire))
    });
    (counters[0] == counters[1]).then_some(counters[0])
}

/// The number of an entry, which may be wrong after a torn read.
fn number(entry: Entry) -> u64 {
    block(entry).map_or(entry.key >> 4, |block| block.number)
}

impl Schema for TestSchema {
    type Probe = TestKey;

    fn word(&self, probe: &TestKey) -> u64 {
        probe.word
    }
    unsafe fn matches(&self, probe: &TestKey, entry: Entry) -> bool {
        assert!(probe.word == entry.key && entry.key & 3 == 0);
        number(entry) == probe.number
    }
    unsafe fn compare_colliding(&self, probe: &TestKey, entry: Entry) -> Ordering {
        probe.number.cmp(&number(entry))
    }
    unsafe fn compare_colliding_entries(&self, a: Entry, b: Entry) -> Ordering {
        number(a).cmp(&number(b))
    }
}

/// The normalized key of the ordered tests: a common prefix, then the number without its lowest bits. Those must be
/// compared.
fn head(number: u64, skip: usize) -> u64 {
    let mut bytes = [0; 24];
    bytes[..5].copy_from_slice(b"start");
    bytes[5..13].copy_from_slice(&(number >> 2).to_be_bytes());
    let rest = &bytes[skip.min(16)..];
    u64::from_be_bytes(rest[..8].try_into().expect("eight bytes"))
}

impl OrderedSchema for TestSchema {
    type Key = TestKey;

    unsafe fn own(&self, entry: Entry) -> TestKey {
        TestKey::new(number(entry))
    }
    fn own_probe(&self, probe: &TestKey) -> TestKey {
        *probe
    }
    fn probe<'a>(&self, key: &'a TestKey) -> &'a TestKey {
        key
    }
    unsafe fn compare(&self, probe: &TestKey, entry: Entry) -> Ordering {
        probe.number.cmp(&number(entry))
    }
    unsafe fn compare_entries(&self, a: Entry, b: Entry) -> Ordering {
        number(a).cmp(&number(b))
    }
    fn compare_probes(&self, a: &TestKey, b: &TestKey) -> Ordering {
        a.number.cmp(&b.number)
    }
    fn head(&self, probe: &TestKey, skip: usize) -> u64 {
        head(probe.number, skip)
    }
    unsafe fn entry_head(&self, entry: Entry, skip: usize) -> u64 {
        head(number(entry), skip)
    }
    fn number(&self, probe: &TestKey) -> Option<i64> {
        self.number_of_word(probe.word)
    }
    fn number_of_word(&self, word: u64) -> Option<i64> {
        (word & 3 == 3).then_some((word >> 4) as i64)
    }
}

/// Repeats a call until the result is not `Busy`.
pub fn patiently<R>(mut call: impl FnMut() -> Result<R, Busy>) -> R {
    loop {
        match call() {
            Ok(result) => return result,
            Err(Busy) => cats_sync::facade::yield_now(),
        }
    }
}

/// An engine used as a map from numbers to values. Each call makes a guard.
pub struct Map<E: Engine<TestSchema>>(pub E);

impl<E: Engine<TestSchema>> Map<E> {
    pub fn get(&self, number: u64) -> Option<u32> {
        let (guard, key) = (epoch::pin(), TestKey::new(number));
        let found = patiently(|| self.0.read(&guard, &key, |found| found.map(decode)));
        found.map(|decoded| {
            let (of, value) = decoded.expect("no torn read");
            assert_eq!(of, number);
            value
        })
    }

    /// Replaces the value by the result of `change`.
    pub fn change(&self, number: u64, change: impl Fn(Option<u32>) -> Option<u32>) -> Option<u32> {
        let (guard, key) = (epoch::pin(), TestKey::new(number));
        let old = patiently(|| {
            self.0.update(&guard, &key, |old| {
                let value = old.map(|old| {
                    let (of, value) = whole(old);
                    assert_eq!(of, number);
                    value
                });
                match change(value) {
                    Some(new) if Some(new) == value => (Step::Keep, None),
                    Some(new) => (Step::Put(entry(&key, new)), old),
                    None => (Step::Remove, old),
                }
            })
        });
        old.map(|old| {
            retire(&guard, old);
            whole(old).1
        })
    }
    pub fn put(&self, number: u64, value: u32) {
        self.change(number, |_| Some(value));
    }
    pub fn remove(&self, number: u64) {
        let (guard, key) = (epoch::pin(), TestKey::new(number));
        let old = patiently(|| {
            self.0.update_present(&guard, &key, |old| {
                assert_eq!(whole(old).0, number);
                (Step::Remove, Some(old))
            })
        });
        old.into_iter().for_each(|old| retire(&guard, old));
    }

    /// Replaces the values of several numbers by the result of `change`, all at one instant.
    pub fn change_many(&self, numbers: &[u64], change: impl Fn(&mut Vec<Option<u32>>)) -> Vec<Option<u32>> {
        let guard = epoch::pin();
        let keys: Vec<TestKey> = numbers.iter().map(|&number| TestKey::new(number)).collect();
        let probes: Vec<&TestKey> = keys.iter().collect();
        let (values, garbage) = patiently(|| {
            self.0.update_many(&guard, &probes, |locked| {
                let mut garbage = Vec::new();
                let values: Vec<_> = (0..keys.len()).map(|i| locked.get(i).map(|e| whole(e).1)).collect();
                let mut new = values.clone();
                change(&mut new);
                for (i, key) in keys.iter().enumerate() {
                    // If the list has a number twice, its latest value is here.
                    let now = locked.get(i);
                    locked.update(i, &mut |old| {
                        assert_eq!(old, now);
                        if old.map(|e| whole(e).1) == new[i] {
                            return Step::Keep;
                        }
                        garbage.extend(old);
                        new[i].map_or(Step::Remove, |value| Step::Put(entry(key, value)))
                    });
                    assert_eq!(locked.get(i).map(|e| whole(e).1), new[i]);
                }
                (values, garbage)
            })
        });
        garbage.into_iter().for_each(|old| retire(&guard, old));
        values
    }

    /// The whole contents, by a scan with steps of `limit`.
    pub fn scan(&self, limit: usize) -> Vec<(u64, u32)> {
        let mut cursor = E::Cursor::default();
        let mut all = Vec::new();
        loop {
            // A guard for each step, as in the table layer.
            let guard = epoch::pin();
            let more = patiently(|| {
                self.0.scan(&guard, &mut cursor, limit, &mut all, |entry, out| {
                    out.push(decode(entry))
                })
            });
            if !more {
                return all.into_iter().map(|decoded| decoded.expect("no torn read")).collect();
            }
        }
    }

    /// A step along this thread's trail if it leads from there, otherwise a step by search.
    pub fn next(&self, after: Option<u64>) -> Option<(u64, u32)> {
        let (guard, key) = (epoch::pin(), after.map(TestKey::new));
        let found = self.follow(&guard, after, false).unwrap_or_else(|| {
            TRAIL.with_borrow_mut(|trail| {
                patiently(|| self.0.next_on(&guard, key.as_ref(), trail, |found| found.map(decode)))
            })
        });
        found.map(|decoded| decoded.expect("no torn read"))
    }

    fn follow(&self, guard: &Guard, from: Option<u64>, down: bool) -> Option<Option<Option<(u64, u32)>>> {
        let from = from?;
        let is_here = |origin| match origin {
            Origin::Entry(entry) => whole(entry).0 == from,
            Origin::Word(word) => word & 3 == 3 && word == TestKey::new(from).word,
        };
        TRAIL.with_borrow_mut(|trail| self.0.follow(guard, trail, down, is_here, |found| found.map(decode)))
    }

    /// All numbers, in the order of `next`.
    pub fn walk(&self) -> Vec<u64> {
        std::iter::successors(self.next(None), |&(last, _)| self.next(Some(last)))
            .map(|(number, _)| number)
            .collect()
    }
}

impl<E: OrderedEngine<TestSchema>> Map<E> {
    /// Like [`next`](Self::next), downwards.
    pub fn prev(&self, before: Option<u64>) -> Option<(u64, u32)> {
        let (guard, key) = (epoch::pin(), before.map(TestKey::new));
        let found = self.follow(&guard, before, true).unwrap_or_else(|| {
            TRAIL.with_borrow_mut(|trail| {
                patiently(|| self.0.prev_on(&guard, key.as_ref(), trail, |found| found.map(decode)))
            })
        });
        found.map(|decoded| decoded.expect("no torn read"))
    }
}

thread_local! {
    /// Maps are not freed through epochs, so each map clears the trail at its end.
    static TRAIL: RefCell<Trail> = const { RefCell::new(Trail::new()) };
}

impl<E: Engine<TestSchema>> Drop for Map<E> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let mut freed = HashSet::new();
        let expected: HashSet<u64> = self.walk().into_iter().collect();
        while !self.0.dismantle(10, &mut |entry| {
            assert!(freed.insert(whole(entry).0), "dismantle shows an entry once");
            if block(entry).is_some() {
                // SAFETY: the engine is being taken apart, and no other thread reads.
                unsafe { drop_block(entry.body as *mut u8, 0) }
            }
        }) {}
        assert_eq!(freed, expected);
        TRAIL.with_borrow_mut(Trail::clear);
    }
}

#[derive(Clone, Debug)]
enum Op {
    Put(u64, u32),
    Remove(u64),
    Get(u64),
    Touch(u64),
    Fill(u64, u64),
    Empty(u64, u64),
    Many(Vec<(u64, Option<u32>)>),
    Scan(usize),
    Next(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let number = prop_oneof![0..40u64, 0..3000u64];
    let op = prop_oneof![
        4 => (number.clone(), 0..1000u32).prop_map(|(n, v)| Op::Put(n, v)),
        3 => number.clone().prop_map(Op::Remove),
        2 => number.clone().prop_map(Op::Get),
        1 => number.clone().prop_map(Op::Touch),
        1 => (number.clone(), 0..500u64).prop_map(|(n, m)| Op::Fill(n, m)),
        1 => (number.clone(), 0..2000u64).prop_map(|(n, m)| Op::Empty(n, m)),
        2 => prop::collection::vec((number.clone(), prop::option::of(0..1000u32)), 0..20).prop_map(Op::Many),
        1 => (1..100usize).prop_map(Op::Scan),
        2 => number.prop_map(Op::Next),
    ];
    prop::collection::vec(op, 0..60)
}

fn run(map: &Map<impl Engine<TestSchema>>, model: &mut BTreeMap<u64, u32>, op: Op) {
    match op {
        Op::Put(n, v) => {
            map.put(n, v);
            model.insert(n, v);
        }
        Op::Remove(n) => {
            map.remove(n);
            model.remove(&n);
        }
        Op::Get(n) => assert_eq!(map.get(n), model.get(&n).copied()),
        Op::Touch(n) => {
            let guard = epoch::pin();
            let found = map
                .0
                .update(&guard, &TestKey::new(n), |old| (Step::Touch, old.map(|e| whole(e).1)));
            assert_eq!(found, Ok(model.get(&n).copied()));
        }
        Op::Fill(n, m) => {
            for n in n..n + m {
                map.put(n, 7);
                model.insert(n, 7);
            }
        }
        Op::Empty(n, m) => {
            for n in n..n + m {
                map.remove(n);
                model.remove(&n);
            }
        }
        Op::Many(changes) => {
            let numbers: Vec<u64> = changes.iter().map(|&(n, _)| n).collect();
            let values = map.change_many(&numbers, |values| {
                values
                    .iter_mut()
                    .zip(&changes)
                    .for_each(|(value, &(_, new))| *value = new);
            });
            let expected: Vec<_> = numbers.iter().map(|n| model.get(n).copied()).collect();
            assert_eq!(values, expected);
            for (n, new) in changes {
                match new {
                    Some(v) => model.insert(n, v),
                    None => model.remove(&n),
                };
            }
        }
        Op::Scan(limit) => {
            let mut all = map.scan(limit);
            all.sort_unstable();
            assert_eq!(all, model.iter().map(|(&n, &v)| (n, v)).collect::<Vec<_>>());
        }
        Op::Next(n) => {
            // An absent key has its place in the order, too. The result is the same as if it were present.
            let next = map.next(Some(n));
            if !model.contains_key(&n) {
                map.put(n, 1);
                assert_eq!(map.next(Some(n)), next);
                map.remove(n);
            }
        }
    }
}

fn contents(map: &Map<impl Engine<TestSchema>>, model: &BTreeMap<u64, u32>) {
    let mut walked = map.walk();
    walked.sort_unstable();
    assert_eq!(walked, model.keys().copied().collect::<Vec<_>>());
    for (&n, &v) in model {
        assert_eq!(map.get(n), Some(v));
    }
    let guard = epoch::pin();
    let slot = |i| {
        map.0
            .slot(&guard, i, |e, out| out.push(whole(e)))
            .expect("nobody else is there")
    };
    if map.0.buckets() > 0 {
        let mut all: Vec<_> = (0..map.0.buckets()).flat_map(|i| slot(i).expect("a bucket")).collect();
        all.sort_unstable();
        assert_eq!(all, model.iter().map(|(&n, &v)| (n, v)).collect::<Vec<_>>());
        assert_eq!(slot(map.0.buckets()), None);
    } else {
        assert_eq!(slot(model.len()), None);
        for (i, expected) in model.iter().enumerate().step_by(1 + model.len() / 20) {
            assert_eq!(slot(i), Some(vec![(*expected.0, *expected.1)]));
        }
    }
}

/// Runs a test of some engine on random operations. These functions have no type parameter, so that proptest is compiled
/// once for all engines.
fn on_ops(test: &dyn Fn(Vec<Op>) -> TestCaseResult) {
    proptest!(cases(20), |(ops in ops())| test(ops)?);
}

/// A step or a range of an ordered engine: the number from which it goes and whether that is included, the last number,
/// whether it goes down, and the limit.
type Reach = (Option<(u64, bool)>, Option<u64>, bool, usize);

fn on_ops_and_reaches(test: &dyn Fn(Vec<Op>, Vec<Reach>) -> TestCaseResult) {
    let reach = (
        prop::option::of((0..3600u64, any::<bool>())),
        prop::option::of(0..3600u64),
        any::<bool>(),
        1..200usize,
    );
    proptest!(cases(20), |(ops in ops(), reaches in prop::collection::vec(reach, 1..30))| test(ops, reaches)?);
}

/// Steps of a walk: whether it goes down, how many, and whether steps are made again after a change and after a step.
type Steps = (bool, usize, [bool; 2]);

fn on_ops_and_steps(test: &dyn Fn(Vec<Op>, Vec<Steps>) -> TestCaseResult) {
    let steps = (any::<bool>(), 0..20usize, any::<[bool; 2]>());
    proptest!(cases(20), |(ops in ops(), steps in prop::collection::vec(steps, 100))| test(ops, steps)?);
}

/// Tests every method against a map of the standard library.
pub fn model<E: Engine<TestSchema>>(make: impl Fn() -> E) {
    on_ops(&|ops| {
        let (map, mut model) = (Map(make()), BTreeMap::new());
        ops.into_iter().for_each(|op| run(&map, &mut model, op));
        contents(&map, &model);
        Ok(())
    });
}

/// Tests `next`, `prev` and `range` of an ordered engine against a map of the standard library.
pub fn ordered_model<E: OrderedEngine<TestSchema>>(make: impl Fn() -> E) {
    on_ops_and_reaches(&|ops, reaches| {
        let (map, mut model) = (Map(make()), BTreeMap::new());
        ops.into_iter().for_each(|op| run(&map, &mut model, op));
        let guard = epoch::pin();
        for (from, to, down, limit) in reaches {
            let key = from.map(|(n, inclusive)| (TestKey::new(n), inclusive));
            let mut rest: Vec<u64> = match (from, down) {
                (None, false) => model.keys().copied().collect(),
                (None, true) => model.keys().rev().copied().collect(),
                (Some((n, inclusive)), false) => model
                    .range(n..)
                    .map(|(&k, _)| k)
                    .filter(|&k| inclusive || k != n)
                    .collect(),
                (Some((n, inclusive)), true) => model
                    .range(..=n)
                    .rev()
                    .map(|(&k, _)| k)
                    .filter(|&k| inclusive || k != n)
                    .collect(),
            };
            let before = key.as_ref().map(|(key, _)| key);
            let step = if down {
                map.0.prev(&guard, before, |e| e.map(|e| whole(e).0))
            } else {
                map.0.next(&guard, before, |e| e.map(|e| whole(e).0))
            };
            prop_assert_eq!(
                step.unwrap(),
                rest.iter().copied().find(|&k| from.is_none_or(|(n, _)| n != k))
            );
            rest.retain(|&k| to.is_none_or(|n| if down { k >= n } else { k <= n }));
            let to = to.map(TestKey::new);
            let mut out = Vec::new();
            let mut at = key;
            loop {
                let before = out.len();
                let expand = |e, out: &mut Vec<u64>| out.push(whole(e).0);
                let range = Range {
                    from: at.as_ref().map(|(key, inclusive)| (key, *inclusive)),
                    to: to.as_ref(),
                    down,
                };
                let more = map.0.range(&guard, range, limit, &mut out, expand);
                if !more.unwrap() {
                    break;
                }
                prop_assert!(out.len() > before, "a step with more to come makes progress");
                at = Some((TestKey::new(out[out.len() - 1]), false));
            }
            prop_assert_eq!(out, rest);
        }
        Ok(())
    });
}

/// Tests walks in both directions, with changes during the walk and steps made again, against a map of the standard
/// library.
pub fn walk_model<E: OrderedEngine<TestSchema>>(make: impl Fn() -> E) {
    on_ops_and_steps(&|ops, steps| {
        let (map, mut model) = (Map(make()), BTreeMap::new());
        let step = |model: &BTreeMap<u64, u32>, at: Option<u64>, down: bool| {
            let expected = match (at, down) {
                (None, false) => model.keys().next(),
                (None, true) => model.keys().next_back(),
                (Some(n), false) => model.range(n + 1..).map(|(k, _)| k).next(),
                (Some(n), true) => model.range(..n).map(|(k, _)| k).next_back(),
            };
            let found = if down { map.prev(at) } else { map.next(at) };
            prop_assert_eq!(found, expected.map(|k| (*k, model[k])));
            Ok(found.map(|found| found.0))
        };
        let mut at = None;
        let mut last = (None, false);
        for (op, (down, count, [after_change, after_step])) in ops.into_iter().zip(steps.into_iter().cycle()) {
            run(&map, &mut model, op);
            if after_change {
                step(&model, last.0, last.1)?;
            }
            let start = at;
            for _ in 0..count {
                last = (at, down);
                at = step(&model, at, down)?;
                if after_step {
                    prop_assert_eq!(step(&model, last.0, down)?, at);
                }
            }
            step(&model, start, down)?;
        }
        Ok(())
    });
}

/// Random numbers of a thread. Source: Marsaglia, "Xorshift RNGs", Journal of Statistical Software 2003.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

/// Calls `work` repeatedly on `threads` threads until the time is up, on each at least once. `work` gets the thread's
/// number and random numbers.
pub fn crowd(threads: u64, work: impl Fn(u64, &mut Random) + Sync) {
    crowd_of(threads, &work);
}

/// [`crowd`] without a type parameter, as each thread that is spawned in another way is much to compile.
fn crowd_of(threads: u64, work: &(dyn Fn(u64, &mut Random) + Sync)) {
    let end = Instant::now() + Duration::from_millis(stress_ms());
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let mut random = Random(0x9e37_79b9 + thread * 0x1234_5678);
                loop {
                    work(thread, &mut random);
                    if Instant::now() >= end {
                        break;
                    }
                }
            });
        }
    });
}

/// Several threads add to few and to many counters. No addition is lost.
pub fn counters_add_up<E: Engine<TestSchema>>(make: impl Fn() -> E) {
    for range in [4, 5000] {
        let (map, total) = (Map(make()), AtomicU64::new(0));
        crowd(4, |_, random| {
            for _ in 0..100 {
                map.change(random.below(range), |old| Some(old.unwrap_or(0) + 1));
            }
            total.fetch_add(100, Relaxed);
        });
        let sum: u64 = map.scan(50).into_iter().map(|(_, value)| u64::from(value)).sum();
        assert_eq!(sum, total.into_inner());
    }
}

/// Each thread owns some keys among all others, whose values only it changes. It always reads what it wrote.
pub fn own_writes_are_seen<E: Engine<TestSchema>>(make: impl Fn() -> E) {
    let map = Map(make());
    crowd(4, |thread, random| {
        let mut mine: HashMap<u64, u32> = HashMap::new();
        let size = [3, 100, 3000][random.below(3) as usize];
        for _ in 0..2 * size {
            let number = random.below(size) * 4 + thread;
            // The thread's numbers are of all kinds.
            let number = number / 16 * 16 + (number % 4 * 4 + number / 4 % 4);
            match random.below(4) {
                0 => {
                    map.remove(number);
                    mine.remove(&number);
                }
                1 => {
                    let value = random.below(1000) as u32;
                    map.put(number, value);
                    mine.insert(number, value);
                }
                _ => assert_eq!(map.get(number), mine.get(&number).copied()),
            }
        }
        mine.keys().for_each(|&number| map.remove(number));
    });
    assert_eq!(map.scan(10), []);
}

/// Values of few keys are replaced continually. Readers see no torn values.
pub fn reads_are_not_torn<E: Engine<TestSchema>>(make: impl Fn() -> E) {
    let map = Map(make());
    crowd(4, |thread, random| {
        for _ in 0..100 {
            let number = random.below(12);
            match thread {
                0 => map.put(number, random.below(1 << 32) as u32),
                1 => map.change(number, |old| old.xor(Some(5))).map_or((), |_| ()),
                _ => _ = map.get(number),
            }
        }
    });
}

/// What an entry points to is changed in place. Readers see no torn state of it.
pub fn touched_objects_are_read_whole<E: Engine<TestSchema>>(make: impl Fn() -> E) {
    let map = Map(make());
    // Hashed keys.
    let key = |i| TestKey::new(4 * i + 2);
    (0..4).for_each(|i| map.put(key(i).number, 0));
    crowd(3, |thread, random| {
        for _ in 0..100 {
            let (guard, key) = (epoch::pin(), key(random.below(4)));
            let counters = |entry| &block(entry).expect("a hashed key's block").counters;
            if thread == 0 {
                patiently(|| {
                    map.0.update(&guard, &key, |old| {
                        counters(old.expect("never removed")).iter().for_each(|counter| {
                            counter.fetch_add(1, AcqRel);
                            std::hint::spin_loop();
                        });
                        (Step::Touch, ())
                    })
                });
            } else {
                let look = |entry| {
                    counters(entry).each_ref().map(|counter| {
                        std::hint::spin_loop();
                        counter.load(Acquire)
                    })
                };
                let seen = match random.below(3) {
                    0 => vec![patiently(|| map.0.read(&guard, &key, |found| found.map(look))).expect("never removed")],
                    1 => vec![patiently(|| map.0.next(&guard, None, |found| found.map(look))).expect("never removed")],
                    _ => {
                        let (mut cursor, mut seen) = (E::Cursor::default(), Vec::new());
                        while patiently(|| {
                            map.0
                                .scan(&guard, &mut cursor, 9, &mut seen, |e, out| out.push(look(e)))
                        }) {}
                        assert_eq!(seen.len(), 4);
                        seen
                    }
                };
                assert!(seen.iter().all(|[a, b]| a == b));
            }
        }
    });
}

/// Keys come and go between the steps of a scan and of a walk, many or few. Both meet each key that stays exactly once,
/// and no other key twice. It uses one thread, so that each step finds another size.
pub fn traversals_survive_changes<E: Engine<TestSchema>>(make: impl Fn() -> E) {
    let mut random = Random(7);
    for round in 0..stress_ms() / 10 {
        let map = Map(make());
        let others = [30, 300, 1500][round as usize % 3];
        (0..100).for_each(|n| map.put(n * 7, 1));
        let mut there = false;
        let mut change = |map: &Map<E>| {
            if random.below(3) == 0 {
                there = !there;
                for n in (0..others).filter(|n| n % 7 != 0) {
                    if there {
                        map.put(n, 1);
                    } else {
                        map.remove(n);
                    }
                }
            }
        };
        let mut scanned = Vec::new();
        let mut cursor = E::Cursor::default();
        let guard = epoch::pin();
        while map
            .0
            .scan(&guard, &mut cursor, 1, &mut scanned, |e, out| out.push(whole(e).0))
            == Ok(true)
        {
            change(&map);
        }
        let mut walked = Vec::new();
        while let Some((n, _)) = map.next(walked.last().copied()) {
            walked.push(n);
            if walked.len() % 5 == 0 {
                change(&map);
            }
        }
        for met in [scanned, walked] {
            let distinct: HashSet<u64> = met.iter().copied().collect();
            assert_eq!(distinct.len(), met.len(), "no key is met twice");
            assert!(
                (0..100).all(|n| distinct.contains(&(n * 7))),
                "no key that stays is missed"
            );
        }
    }
}

/// Numbers. Each is an immediate or, as a float, a hashed key that is equal to it.
pub struct Numbers;

type Number = (u64, bool);

fn value(entry: Entry) -> u64 {
    if entry.key & 3 == 3 {
        entry.key >> 4
    } else {
        entry.body >> 2
    }
}

fn number_entry((number, float): Number) -> Entry {
    Entry {
        key: Numbers.word(&(number, float)),
        body: number << 2 | 3,
    }
}

impl Schema for Numbers {
    type Probe = Number;
    fn word(&self, &(number, float): &Number) -> u64 {
        let immediate = number << 4 | 15;
        if float {
            crate::hash_of(immediate)
        } else {
            immediate
        }
    }
    unsafe fn matches(&self, probe: &Number, entry: Entry) -> bool {
        probe.0 == value(entry)
    }
    unsafe fn compare_colliding(&self, probe: &Number, entry: Entry) -> Ordering {
        probe.0.cmp(&value(entry))
    }
    unsafe fn compare_colliding_entries(&self, a: Entry, b: Entry) -> Ordering {
        value(a).cmp(&value(b))
    }
}

impl OrderedSchema for Numbers {
    type Key = Number;
    unsafe fn own(&self, entry: Entry) -> Number {
        (value(entry), false)
    }
    fn own_probe(&self, probe: &Number) -> Number {
        *probe
    }
    fn probe<'a>(&self, key: &'a Number) -> &'a Number {
        key
    }
    unsafe fn compare(&self, probe: &Number, entry: Entry) -> Ordering {
        probe.0.cmp(&value(entry))
    }
    unsafe fn compare_entries(&self, a: Entry, b: Entry) -> Ordering {
        value(a).cmp(&value(b))
    }
    fn compare_probes(&self, a: &Number, b: &Number) -> Ordering {
        a.0.cmp(&b.0)
    }
    fn head(&self, probe: &Number, skip: usize) -> u64 {
        probe.0.checked_shl(8 * skip as u32).unwrap_or(0)
    }
    unsafe fn entry_head(&self, entry: Entry, skip: usize) -> u64 {
        self.head(&(value(entry), false), skip)
    }
    fn number(&self, probe: &Number) -> Option<i64> {
        self.number_of_word(self.word(probe))
    }
    fn number_of_word(&self, word: u64) -> Option<i64> {
        (word & 3 == 3).then_some((word >> 4) as i64)
    }
}

/// 1 and 1.0 are one key of an ordered table, whichever of them is stored.
pub fn equal_numbers_are_one_key(table: impl OrderedEngine<Numbers>) {
    let guard = epoch::pin();
    let mut model = BTreeMap::new();
    let mut random = Random(5);
    for _ in 0..100_000 {
        let key: Number = (random.below(2000), random.below(2) == 0);
        let insert = random.below(5) < 3;
        let old = table.update(&guard, &key, |old| match insert {
            true => (Step::Put(number_entry(key)), old),
            false => (Step::Remove, old),
        });
        let expected = if insert {
            model.insert(key.0, key)
        } else {
            model.remove(&key.0)
        };
        assert_eq!(old, Ok(expected.map(number_entry)));
        let other: Number = (random.below(2000), random.below(2) == 0);
        let found = table.read(&guard, &other, |found| found);
        assert_eq!(found, Ok(model.get(&other.0).copied().map(number_entry)));
        let next = table.next(&guard, Some(&other), |next| next);
        let expected = model.range(other.0 + 1..).next().map(|(_, &key)| number_entry(key));
        assert_eq!(next, Ok(expected));
    }
}

const STABLE: u64 = 400;

/// Some keys stay while others come and go, and the structure grows and shrinks.
fn churn<E: Engine<TestSchema>>(make: impl Fn() -> E, observe: impl Fn(&Map<E>) -> Vec<u64> + Sync) {
    let map = Map(make());
    (0..STABLE).for_each(|n| map.put(n * 7, 1));
    let done = AtomicBool::new(false);
    crowd(3, |thread, random| {
        if thread == 0 {
            let seen = observe(&map);
            let distinct: HashSet<u64> = seen.iter().copied().collect();
            assert_eq!(distinct.len(), seen.len(), "no key is met twice");
            let stable = (0..STABLE).filter(|n| !distinct.contains(&(n * 7))).collect::<Vec<_>>();
            assert!(stable.is_empty(), "missed {stable:?}");
            done.store(true, Relaxed);
            return;
        }
        // Up to thousands of keys, and down to none.
        let (from, count) = (random.below(20_000), [5, 300, 6000][random.below(3) as usize]);
        let churned = (from..from + count).filter(|n| n % 7 != 0 && n % 2 == thread % 2);
        churned.clone().for_each(|n| map.put(n, 2));
        churned.for_each(|n| map.remove(n));
    });
    assert!(done.into_inner(), "at least one observation was whole");
    let mut left: Vec<u64> = map.scan(100).into_iter().map(|(n, _)| n).collect();
    left.sort_unstable();
    assert_eq!(left, (0..STABLE).map(|n| n * 7).collect::<Vec<_>>());
}

/// A scan during changes meets each stable key exactly once, and no other key twice.
pub fn scans_meet_all_once<E: Engine<TestSchema>>(make: impl Fn() -> E) {
    churn(make, |map| map.scan(20).into_iter().map(|(n, _)| n).collect());
}

/// A step of a scan visits fewer places if each of them shows much.
pub fn steps_of_scans_are_bounded<E: Engine<TestSchema>>(make: impl Fn() -> E) {
    let map = Map(make());
    (0..2000).for_each(|n| map.put(n, 0));
    let (limit, each) = (64, 1000);
    let (mut cursor, mut all, mut more) = (E::Cursor::default(), 0, true);
    while more {
        let (guard, mut shown) = (epoch::pin(), Vec::new());
        let expand = |_, out: &mut Vec<()>| out.resize(out.len() + each, ());
        more = patiently(|| map.0.scan(&guard, &mut cursor, limit, &mut shown, expand));
        all += shown.len();
        // At most what its limit allows, and the rest of the last bucket.
        assert!(shown.len() < limit * each, "{} shown", shown.len());
    }
    assert_eq!(all, 2000 * each);
}

/// A walk by `next` during changes meets each stable key exactly once, and no other key twice.
pub fn walks_meet_all_once<E: Engine<TestSchema>>(make: impl Fn() -> E) {
    churn(make, Map::walk);
}

/// A step from the last key finds none behind it, though entries change places just when the trail says where it ended.
pub fn trails_lead_on_from_their_key<E: Engine<TestSchema>>(make: impl Fn() -> E) {
    // Most of these triples share a hash.
    for first in (0..600).map(|n| n * 4 + 3) {
        let map = Map(make());
        let numbers = [first, first + 4, first + 8];
        numbers.iter().rev().for_each(|n| map.put(*n, 1));
        let last = *map.walk().last().expect("a number");
        // The walk went on to the end, so the trail ends again at the last key.
        let before = map.walk().into_iter().rev().nth(1);
        assert_eq!(map.next(before).map(|(n, _)| n), Some(last));
        let moved = Cell::new(false);
        let is_here = |_| {
            if !moved.replace(true) {
                // The other keys take its place, and it takes another one.
                [last].iter().chain(&numbers).for_each(|n| map.remove(*n));
                numbers.iter().filter(|n| **n != last).for_each(|n| map.put(*n, 2));
                map.put(last, 2);
            }
            true
        };
        let step = |trail: &mut Trail| {
            let guard = epoch::pin();
            map.0.follow(&guard, trail, false, is_here, |found| found.map(decode))
        };
        let behind = TRAIL.with_borrow_mut(step);
        assert!(matches!(behind, None | Some(None)), "{behind:?} behind {last}");
    }
}

/// At every instant one key or more is present, though none stays. `first` always finds one.
pub fn first_is_linearizable<E: Engine<TestSchema>>(make: impl Fn() -> E) {
    let map = Map(make());
    // Many places, nearly all of them empty.
    (0..2000).for_each(|n| map.put(n, 0));
    (1..2000).for_each(|n| map.remove(n));
    crowd(3, |thread, random| {
        if thread == 0 {
            let mut at = 0;
            for _ in 0..100 {
                let next = (at + 1 + random.below(400)) % 500;
                map.put(next, 1);
                if next != at {
                    map.remove(at);
                }
                at = next;
            }
            map.put(0, 0);
            if at != 0 {
                map.remove(at);
            }
        } else {
            assert!(map.next(None).is_some());
        }
    });
}

/// Pairs of keys that come and go together, and amounts that are moved between keys, are seen in one state.
pub fn many_keys_change_at_once<E: Engine<TestSchema>>(make: impl Fn() -> E) {
    for pairs in [2, 2000] {
        let map = Map(make());
        crowd(4, |thread, random| {
            let a = random.below(pairs);
            let b = a + 10_000;
            let order = if random.below(2) == 0 { [a, b] } else { [b, a] };
            if thread == 3 && pairs > 2 {
                // Meanwhile the structure grows and shrinks.
                (20_000..23_000).for_each(|n| map.put(n, 1));
                (20_000..23_000).for_each(|n| map.remove(n));
                return;
            }
            if thread < 2 {
                let value = random.below(3).checked_sub(1).map(|v| v as u32);
                map.change_many(&order, |values| values.fill(value));
            } else {
                let values = map.change_many(&order, |_| ());
                assert_eq!(values[0], values[1]);
            }
        });
    }
    let accounts = 50;
    let map = Map(make());
    (0..accounts).for_each(|n| map.put(n, 1000));
    crowd(4, |_, random| {
        let (from, to) = (random.below(accounts), random.below(accounts));
        if from != to {
            map.change_many(&[from, to], |values| {
                let (a, b) = (values[0].unwrap_or(0), values[1].unwrap_or(0));
                let amount = a.min(500);
                // An empty account is removed.
                values[0] = (a > amount).then_some(a - amount);
                values[1] = Some(b + amount);
            });
        }
        if random.below(20) == 0 {
            let all: Vec<u64> = (0..accounts).rev().collect();
            let values = map.change_many(&all, |_| ());
            assert_eq!(values.into_iter().flatten().sum::<u32>(), 1000 * accounts as u32);
        }
    });
}

/// The tests of any engine, one `#[test]` each.
#[doc(hidden)]
#[macro_export]
macro_rules! suite {
    ($make:expr) => {
        $crate::testing::conformance::suite!($make, None);
    };
    ($make:expr, $leave:expr) => {
        $crate::testing::conformance::tests!(
            $make,
            model,
            counters_add_up,
            own_writes_are_seen,
            reads_are_not_torn,
            touched_objects_are_read_whole,
            traversals_survive_changes,
            scans_meet_all_once,
            walks_meet_all_once,
            trails_lead_on_from_their_key,
            first_is_linearizable,
            many_keys_change_at_once
        );

        #[test]
        #[ignore = "records for another program, see the module histories"]
        fn histories() {
            $crate::testing::histories::histories($make, module_path!(), $leave)
        }
    };
}

/// The further tests of an ordered engine.
#[doc(hidden)]
#[macro_export]
macro_rules! ordered_suite {
    ($make:expr) => {
        $crate::testing::conformance::tests!($make, ordered_model, walk_model);

        #[test]
        #[ignore = "records for another program, see the module histories"]
        fn ordered_histories() {
            $crate::testing::histories::ordered_histories($make, module_path!())
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! tests {
    ($make:expr, $($test:ident),*) => {
        $(
            #[test]
            fn $test() {
                $crate::testing::conformance::$test($make)
            }
        )*
    };
}

pub use crate::{ordered_suite, suite, tests};
