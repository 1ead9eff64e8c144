//! Models of the skip list, checked by loom under the weak memory model, up to a bound on preemptions. Run by
//! `RUSTFLAGS="--cfg loom" cargo test --release -p cats-papers --test skip_list_model`.
//!
//! Two threads run one or two operations each on two or three neighbouring keys. Nodes have two levels, and are freed
//! as soon as no hazard pointer protects them. A call may return `Busy`: then it must have done nothing.
#![cfg(loom)]

use cats_engine::config::Config;
use cats_engine::{Engine, Entry, OrderedEngine, OrderedSchema, Schema, Step};
use cats_papers::skip_list::SkipList;
use cats_sync::epoch::pin;
use loom::sync::Arc;
use loom::thread;
use std::cmp::Ordering;

/// Numbers that are immediates.
struct Numbers;

fn word(number: u64) -> u64 {
    number << 4 | 15
}

impl Schema for Numbers {
    type Probe = u64;
    fn word(&self, probe: &u64) -> u64 {
        word(*probe)
    }
    unsafe fn matches(&self, probe: &u64, entry: Entry) -> bool {
        word(*probe) == entry.key
    }
    unsafe fn compare_colliding(&self, probe: &u64, entry: Entry) -> Ordering {
        word(*probe).cmp(&entry.key)
    }
    unsafe fn compare_colliding_entries(&self, a: Entry, b: Entry) -> Ordering {
        a.key.cmp(&b.key)
    }
}

impl OrderedSchema for Numbers {
    type Key = u64;
    unsafe fn own(&self, entry: Entry) -> u64 {
        entry.key >> 4
    }
    fn own_probe(&self, probe: &u64) -> u64 {
        *probe
    }
    fn probe<'a>(&self, key: &'a u64) -> &'a u64 {
        key
    }
    unsafe fn compare(&self, probe: &u64, entry: Entry) -> Ordering {
        word(*probe).cmp(&entry.key)
    }
    unsafe fn compare_entries(&self, a: Entry, b: Entry) -> Ordering {
        a.key.cmp(&b.key)
    }
    fn compare_probes(&self, a: &u64, b: &u64) -> Ordering {
        a.cmp(b)
    }
    fn head(&self, probe: &u64, _: usize) -> u64 {
        *probe
    }
    unsafe fn entry_head(&self, entry: Entry, _: usize) -> u64 {
        entry.key >> 4
    }
}

struct List(SkipList<Numbers>);

impl List {
    fn new(numbers: &[u64]) -> Arc<Self> {
        let list = Arc::new(Self(SkipList::new(Numbers, &Config::default()).expect("memory")));
        for &number in numbers {
            assert_eq!(list.put(number, 0), Some(None));
        }
        list
    }

    fn update(&self, number: u64, step: Step) -> Option<Option<u64>> {
        let guard = pin();
        let old = self.0.update(&guard, &number, |old| (step, old.map(|old| old.body)));
        old.ok().map(|old| old.map(|body| body >> 2))
    }

    /// The replaced value. `None` if busy.
    fn put(&self, number: u64, value: u64) -> Option<Option<u64>> {
        let (key, body) = (word(number), value << 2 | 3);
        self.update(number, Step::Put(Entry { key, body }))
    }

    /// Gives keys 1 and 2 the value together. False if busy.
    fn put_both(&self, value: u64) -> bool {
        let guard = pin();
        let both = self.0.update_many(&guard, &[&1, &2], |locked| {
            for (i, number) in [1, 2].into_iter().enumerate() {
                let (key, body) = (word(number), value << 2 | 3);
                locked.update(i, &mut |_| Step::Put(Entry { key, body }));
            }
        });
        both.is_ok()
    }

    /// The removed value. `None` if busy.
    fn remove(&self, number: u64) -> Option<Option<u64>> {
        self.update(number, Step::Remove)
    }

    /// The value. `None` if busy.
    fn get(&self, number: u64) -> Option<Option<u64>> {
        let guard = pin();
        let found = self.0.read(&guard, &number, |found| found.map(|found| found.body >> 2));
        found.ok()
    }

    /// The first number, or the last. `None` if busy.
    fn end(&self, last: bool) -> Option<Option<u64>> {
        let guard = pin();
        let look = |found: Option<Entry>| found.map(|found| found.key >> 4);
        let found = if last {
            self.0.prev(&guard, None, look)
        } else {
            self.0.next(&guard, None, look)
        };
        found.ok()
    }

    /// The number behind another one. `None` if busy.
    fn after(&self, number: u64) -> Option<Option<u64>> {
        let guard = pin();
        let found = self
            .0
            .next(&guard, Some(&number), |found| found.map(|found| found.key >> 4));
        found.ok()
    }

    /// The contents, after all other threads have ended.
    fn contents(&self) -> Vec<u64> {
        let (guard, mut all) = (pin(), Vec::new());
        let mut at = None;
        loop {
            let look = |found: Option<Entry>| found.map(|found| found.key >> 4);
            at = self.0.next(&guard, at.as_ref(), look).expect("nobody else is there");
            match at {
                Some(number) => all.push(number),
                None => return all,
            }
        }
    }
}

/// Runs both concurrently, then calls `end` with their results.
fn race<A: Send + 'static, B: 'static>(
    numbers: &'static [u64],
    one: impl Fn(&List) -> A + Copy + Send + Sync + 'static,
    other: impl Fn(&List) -> B + Copy + Send + Sync + 'static,
    end: impl Fn(&List, A, B) + Send + Sync + 'static,
) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(2));
    builder.max_branches = 100_000;
    builder.check(move || {
        let list = List::new(numbers);
        let thread = {
            let list = list.clone();
            thread::spawn(move || one(&list))
        };
        let b = other(&list);
        let a = thread.join().unwrap();
        end(&list, a, b);
    });
}

#[test]
fn inserts_of_one_key() {
    race(
        &[],
        |list| list.put(1, 10),
        |list| list.put(1, 20),
        |list, a, b| {
            let expected = match (a, b) {
                (Some(None), None) | (Some(Some(20)), Some(None)) => Some(10),
                (None, Some(None)) | (Some(None), Some(Some(10))) => Some(20),
                (None, None) => None,
                other => panic!("{other:?}"),
            };
            assert_eq!(list.get(1), Some(expected));
        },
    );
}

#[test]
fn an_insert_beside_a_removal() {
    race(
        &[1],
        |list| list.put(2, 0).is_some(),
        |list| list.remove(1).is_some(),
        |list, put, removed| {
            let expected = [(1, !removed), (2, put)]
                .iter()
                .filter(|key| key.1)
                .map(|key| key.0)
                .collect::<Vec<u64>>();
            assert_eq!(list.contents(), expected);
        },
    );
}

#[test]
fn removals_of_neighbours() {
    race(
        &[1, 2],
        |list| list.remove(1).is_some(),
        |list| list.remove(2).is_some(),
        |list, first, second| {
            let expected = [(1, !first), (2, !second)]
                .iter()
                .filter(|key| key.1)
                .map(|key| key.0)
                .collect::<Vec<u64>>();
            assert_eq!(list.contents(), expected);
        },
    );
}

#[test]
fn removals_of_one_key() {
    race(
        &[1],
        |list| list.remove(1),
        |list| list.remove(1),
        |list, a, b| {
            let times = [a, b].iter().filter(|old| **old == Some(Some(0))).count();
            let calls = [a, b].iter().flatten().count();
            assert_eq!(times, calls.min(1));
            assert_eq!(list.contents(), vec![1; 1 - times]);
        },
    );
}

#[test]
fn a_lookup_while_its_key_is_removed_and_comes_again() {
    race(
        &[1],
        |list| [list.get(1), list.get(1)],
        |list| (list.remove(1), list.put(1, 5)),
        |_, [first, second], _| {
            let order = |found: Option<Option<u64>>| {
                match found {
                    Some(Some(0)) => 0,
                    Some(None) => 1,
                    Some(Some(5)) => 2,
                    None => return None,
                    other => panic!("{other:?}"),
                }
                .into()
            };
            if let (Some(first), Some(second)) = (order(first), order(second)) {
                let (first, second): (u32, u32) = (first, second);
                assert!(first <= second, "what was seen later is no older");
            }
        },
    );
}

#[test]
fn a_lookup_while_its_neighbours_are_removed() {
    race(
        &[1, 2, 3],
        |list| list.get(3),
        |list| {
            list.remove(1);
            list.remove(2);
        },
        |list, found, ()| {
            assert!(matches!(found, None | Some(Some(0))), "a key that stays is found");
            assert_eq!(list.get(3), Some(Some(0)));
        },
    );
}

/// The third removal frees the second node, because no hazard pointer protects it. The first node, which links to it,
/// may be protected.
#[test]
fn a_lookup_while_nodes_behind_a_removed_one_are_freed() {
    race(
        &[1, 2, 3, 4],
        |list| list.get(3),
        |list| {
            for number in [1, 2, 4] {
                list.remove(number);
            }
        },
        |_, found, ()| assert!(matches!(found, None | Some(Some(0))), "a key that stays is found"),
    );
}

#[test]
fn a_replacement_while_its_key_is_removed() {
    race(
        &[1],
        |list| list.put(1, 7),
        |list| list.remove(1),
        |list, put, removed| {
            let expected = match (put, removed) {
                (Some(Some(0)), Some(Some(7))) => None,
                (Some(None), Some(Some(0))) | (Some(Some(0)), None) => Some(7),
                (None, Some(Some(0))) => None,
                (None, None) => Some(0),
                other => panic!("{other:?}"),
            };
            assert_eq!(list.get(1), Some(expected));
        },
    );
}

#[test]
fn the_first_and_the_last_of_a_list_that_is_never_empty() {
    for last in [false, true] {
        race(
            &[2],
            move |list| list.end(last),
            |list| {
                // The second key is inserted before the first one is removed.
                if list.put(1, 0).is_some() {
                    list.remove(2);
                }
            },
            |_, end, ()| assert!(matches!(end, None | Some(Some(1 | 2))), "{end:?}"),
        );
    }
}

#[test]
fn a_step_from_a_key_that_is_inserted_beside_it() {
    race(
        &[1],
        |list| list.put(2, 0),
        |list| list.after(2),
        |_, _, next| assert!(matches!(next, None | Some(None)), "{next:?}"),
    );
}

#[test]
fn a_replacement_of_two_keys_while_one_is_removed() {
    race(
        &[1],
        |list| list.put_both(3),
        |list| list.remove(1),
        |list, put, removed| {
            let expected: &[u64] = match (put, removed) {
                (true, Some(Some(0)) | None) => &[1, 2],
                (true, Some(Some(3))) => &[2],
                (false, Some(Some(0))) => &[],
                (false, None) => &[1],
                other => panic!("{other:?}"),
            };
            assert_eq!(list.contents(), expected);
        },
    );
}

#[test]
fn an_insert_of_two_keys_at_once() {
    race(
        &[],
        |list| (list.get(1), list.get(2)),
        |list| list.put_both(0),
        |list, seen, put| {
            assert!(
                !matches!(seen, (Some(Some(_)), Some(None))),
                "one is seen, and then not the other"
            );
            assert_eq!(list.contents(), if put { vec![1, 2] } else { vec![] });
        },
    );
}
