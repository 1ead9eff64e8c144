//! Transactions as the table layer makes them of marks and of operations on many keys.

use crate::testing::conformance::{entry, patiently, retire, Map, TestKey, TestSchema};
use crate::{Entry, Mark, Marked, Step};
use cats_sync::epoch;
use cats_sync::facade::yield_now;

/// What a transaction does with a key that it has read.
#[derive(Clone, Copy, PartialEq)]
pub enum Then {
    Keep,
    Put(u32),
    Remove,
}

/// Reads the numbers, which differ, and does with each what `decide` says. Returns what it saw. Starts again until all
/// took effect together.
pub fn transact<E: Marked<TestSchema>, V>(
    map: &Map<E>,
    numbers: &[u64],
    look: impl Fn(Option<Entry>) -> V,
    decide: impl Fn(&[V]) -> Vec<Then>,
) -> Vec<V> {
    let guard = epoch::pin();
    let keys: Vec<TestKey> = numbers.iter().map(|&number| TestKey::new(number)).collect();
    loop {
        let read = keys
            .iter()
            .map(|key| patiently(|| map.0.read_marked(&guard, key, &look)));
        let (values, marks): (Vec<V>, Vec<Mark<'_>>) = read.unzip();
        let then = decide(&values);
        let written: Vec<usize> = (0..keys.len()).filter(|&i| then[i] != Then::Keep).collect();
        if written.is_empty() {
            if marks.iter().all(Mark::holds) {
                return values;
            }
            yield_now();
            continue;
        }
        let probes: Vec<&TestKey> = written.iter().map(|&i| &keys[i]).collect();
        let garbage = patiently(|| {
            map.0.update_many(&guard, &probes, |locked| {
                let mut held = Vec::new();
                locked.held(&mut held);
                let holds = |mark: &Mark<'_>| mark.holds() || held.contains(&mark.place());
                marks.iter().all(holds).then(|| {
                    let mut garbage = Vec::new();
                    for (place, &i) in written.iter().enumerate() {
                        locked.update(place, &mut |old| {
                            garbage.extend(old);
                            match then[i] {
                                Then::Put(value) => Step::Put(entry(&keys[i], value)),
                                _ => Step::Remove,
                            }
                        });
                    }
                    garbage
                })
            })
        });
        if let Some(garbage) = garbage {
            garbage.into_iter().for_each(|old| retire(&guard, old));
            return values;
        }
        yield_now();
    }
}
