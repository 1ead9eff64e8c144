//! Tests of engines that carry out detached steps, besides the conformance suite.

use crate::detaching::{Detached, Detaching};
use cats_engine::testing::conformance::{crowd, entry, patiently, retire, Map, TestKey, TestSchema};
use cats_engine::testing::histories::Leave;
use cats_engine::{Engine, Entry, Step};
use cats_sync::epoch;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Runs after a detached step: counts the entries, and retires the replaced one.
unsafe fn count(present: *const (), step: Step, old: Option<Entry>) {
    // SAFETY: `set` passes such a counter.
    let present = unsafe { &*present.cast::<AtomicU64>() };
    let more = u64::from(matches!(step, Step::Put(_))).wrapping_sub(u64::from(old.is_some()));
    present.fetch_add(more, Relaxed);
    if let Some(old) = old {
        retire(&epoch::pin(), old);
    }
}

/// Puts or removes, detached if the engine can, and counts the entries.
fn set<E: Engine<TestSchema> + Detaching>(map: &Map<E>, number: u64, value: Option<u32>, present: &AtomicU64) {
    let (guard, key) = (epoch::pin(), TestKey::new(number));
    if !map.0.detaches() || value.is_none() && key.word & 3 == 0 {
        let old = map.change(number, |_| value);
        let more = u64::from(value.is_some()).wrapping_sub(u64::from(old.is_some()));
        present.fetch_add(more, Relaxed);
        return;
    }
    let update = Detached {
        step: value.map_or(Step::Remove, |value| Step::Put(entry(&key, value))),
        key: Entry { key: key.word, body: 0 },
        settle: count,
        context: std::ptr::from_ref(present).cast(),
    };
    // SAFETY: the entry is made for the step. The engine and the counter outlive the threads of the test.
    patiently(|| unsafe { map.0.detach(&guard, update) });
}

/// Detached steps of keys that each thread owns: each thread finds what its last step stored.
pub fn detached_steps_are_seen<E: Engine<TestSchema> + Detaching>(make: impl Fn() -> E) {
    for size in [2, 100, 3000] {
        let (map, present) = (Map(make()), AtomicU64::new(0));
        crowd(4, |thread, random| {
            let mut mine: HashMap<u64, u32> = HashMap::new();
            for _ in 0..2 * size {
                // Numbers of all kinds, among those of the other threads.
                let number = random.below(size) * 4 + thread;
                let number = number / 16 * 16 + (number % 4 * 4 + number / 4 % 4);
                match random.below(4) {
                    0 => {
                        set(&map, number, None, &present);
                        mine.remove(&number);
                    }
                    1 | 2 => {
                        // Always different from the previous value.
                        let value = mine.get(&number).copied().unwrap_or(0) + 1 + random.below(1000) as u32;
                        set(&map, number, Some(value), &present);
                        mine.insert(number, value);
                    }
                    _ => {
                        assert_eq!(map.get(number), mine.get(&number).copied());
                    }
                }
            }
            for number in mine.into_keys() {
                set(&map, number, None, &present);
                assert_eq!(map.get(number), None);
            }
        });
        assert_eq!(map.scan(10), []);
        assert_eq!(present.into_inner(), 0, "each step is settled once");
    }
}

/// Retires what a detached step replaced.
unsafe fn settle(_: *const (), _: Step, old: Option<Entry>) {
    old.into_iter().for_each(|old| retire(&epoch::pin(), old));
}

/// How histories leave steps to the engine, if it is one that detaches.
pub fn leave<E: Engine<TestSchema> + Detaching>(engine: &E) -> Option<Leave<E>> {
    let leave: Leave<E> = |engine, guard, step, key| {
        let update = Detached {
            step,
            key,
            settle,
            context: std::ptr::null(),
        };
        // SAFETY: the engine outlives the recorders. What was replaced is retired under a guard that is older.
        patiently(|| unsafe { engine.detach(guard, update) });
    };
    engine.detaches().then_some(leave)
}
