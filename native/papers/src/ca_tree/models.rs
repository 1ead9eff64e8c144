//! Models of the contention adapting trees: every operation of the engine, concurrent with splits and joins. Random
//! schedules interleave all accesses to atomics. Run by `RUSTFLAGS="--cfg shuttle" cargo test -p cats-papers --lib
//! ca_tree::models`.
//!
//! docs/internals/checking.md lists the faults that were planted, and which model found each.

use super::inspect::{check, force, make, NERVOUS};
use super::*;
use cats_engine::testing::conformance::{decode, Map, TestKey, TestSchema};
use cats_sync::epoch::{self, collect};
use std::sync::Arc;

type Table = Map<CaAvl<TestSchema>>;
type Task = fn(&Table);

/// Adapts only when a task demands it.
const CALM: Thresholds = Thresholds {
    split: i32::MAX,
    join: i32::MIN,
};

/// Schedules for each model and kind of lock, with each of two strategies.
const SCHEDULES: usize = 1000;

fn at(number: u64) -> TestKey {
    TestKey::new(number)
}
fn split(table: &Table, number: u64) {
    force(&table.0, &Target::At(&at(number)), true);
}
fn join(table: &Table, number: u64) {
    force(&table.0, &Target::At(&at(number)), false);
}

/// Runs tasks concurrently on a tree of `numbers`, after base nodes were split at `splits`. At the end, all invariants
/// hold and `left` remain.
fn model(numbers: &'static [u64], splits: &'static [u64], tasks: &'static [Task], left: &'static [u64]) {
    for shared in [false, true] {
        explore(move || {
            let table = table(CALM, shared, numbers);
            splits.iter().for_each(|&number| split(&table, number));
            together(&table, tasks);
            assert_eq!(check(&table.0), left);
        });
    }
}

fn table(thresholds: Thresholds, shared: bool, numbers: &[u64]) -> Arc<Table> {
    let table = Map(make(thresholds, shared));
    numbers.iter().for_each(|&number| table.put(number, 1));
    Arc::new(table)
}

fn explore(model: impl Fn() + Clone + Send + Sync + 'static) {
    shuttle::check_random(model.clone(), SCHEDULES);
    shuttle::check_pct(model, SCHEDULES, 3);
}

fn together(table: &Arc<Table>, tasks: &[Task]) {
    let threads: Vec<_> = tasks
        .iter()
        .map(|&task| {
            let table = table.clone();
            shuttle::thread::spawn(move || {
                task(&table);
                // Frees nodes that left the tree as soon as possible.
                collect(10);
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn split_beside_lookup_and_insertion() {
    model(
        &[0, 4, 8, 12],
        &[],
        &[
            |table| split(table, 4),
            |table| assert_eq!([table.get(4), table.get(8)], [Some(1); 2]),
            |table| table.put(5, 1),
        ],
        &[0, 4, 5, 8, 12],
    );
}

#[test]
fn join_beside_lookup_and_change() {
    model(
        &[0, 4, 8],
        &[0],
        &[
            |table| join(table, 0),
            |table| assert_eq!([table.get(0), table.get(8)], [Some(1); 2]),
            |table| {
                table.remove(4);
                table.put(1, 1);
            },
        ],
        &[0, 1, 8],
    );
}

/// Two joins, from both sides of one route node.
#[test]
fn joins_that_meet() {
    let tasks: &[Task] = &[
        |table| join(table, 0),
        |table| join(table, 8),
        |table| assert_eq!(table.get(4), Some(1)),
    ];
    model(&[0, 4, 8], &[0], tasks, &[0, 4, 8]);
}

/// The route node that one join removes is the grandparent in the other join.
#[test]
fn joins_on_one_path() {
    model(
        &[0, 4, 8, 12, 16],
        &[0, 4, 8],
        &[|table| join(table, 0), |table| join(table, 4), |table| join(table, 16)],
        &[0, 4, 8, 12, 16],
    );
}

/// One join moves up a subtree in which another join changes something. That change must not be lost.
#[test]
fn join_inside_the_sibling() {
    model(
        &[0, 4, 8, 12, 16, 20],
        &[0, 4, 8, 12],
        &[
            |table| join(table, 0),
            |table| {
                join(table, 20);
                join(table, 12);
            },
            |table| assert_eq!([table.get(4), table.get(12), table.get(20)], [Some(1); 3]),
        ],
        &[0, 4, 8, 12, 16, 20],
    );
}

/// A split of the neighbour, and a split deep in the sibling.
#[test]
fn join_beside_splits() {
    model(
        &[0, 4, 8, 12, 16, 20],
        &[0, 4],
        &[
            |table| join(table, 0),
            |table| split(table, 4),
            |table| split(table, 20),
        ],
        &[0, 4, 8, 12, 16, 20],
    );
}

/// An operation that waits for a base node which is then replaced starts again.
#[test]
fn changes_of_base_nodes_that_are_replaced() {
    model(
        &[0, 4, 8, 12],
        &[0],
        &[
            |table| {
                split(table, 8);
                join(table, 8);
            },
            |table| table.put(9, 1),
            |table| {
                table.remove(12);
                assert_eq!(table.get(12), None);
            },
        ],
        &[0, 4, 8, 9],
    );
}

fn number(entry: Option<Entry>) -> Option<u64> {
    entry.map(|entry| decode(entry).expect("a whole entry").0)
}

fn previous(table: &Table, before: u64) -> Option<u64> {
    let guard = epoch::pin();
    cats_engine::testing::conformance::patiently(|| table.0.prev(&guard, Some(&at(before)), number))
}

/// Walks meet all keys that stay, while route nodes on their path are removed.
#[test]
fn walks_beside_adaptation() {
    model(
        &[0, 4, 8, 12],
        &[0, 4],
        &[
            |table| {
                join(table, 0);
                split(table, 8);
            },
            |table| {
                assert_eq!(table.next(Some(0)), Some((4, 1)));
                assert_eq!(table.next(Some(4)), Some((8, 1)));
            },
            |table| {
                assert_eq!(previous(table, 8), Some(4));
                assert_eq!(previous(table, 4), Some(0));
            },
        ],
        &[0, 4, 8, 12],
    );
}

/// Three base nodes: one with 0 and 1, an empty one, and one with 8.
fn with_empty(shared: bool) -> Arc<Table> {
    // In this order the root is 4.
    let table = table(CALM, shared, &[4, 0, 8, 1]);
    [0, 4].into_iter().for_each(|number| split(&table, number));
    table.remove(4);
    assert_eq!(table.0.base_nodes(), 3);
    table
}

/// At every instant one of two keys is present. A step across an empty base node finds one of them, up or down.
#[test]
fn steps_across_an_empty_base_node() {
    for shared in [false, true] {
        explore(move || {
            let table = with_empty(shared);
            let change: Task = |table| {
                table.put(2, 1);
                table.remove(8);
            };
            together(&table, &[change, |table| assert!(table.next(Some(1)).is_some())]);
            assert_eq!(check(&table.0), [0, 1, 2]);
        });
        explore(move || {
            let table = with_empty(shared);
            let change: Task = |table| {
                table.put(4, 1);
                table.remove(1);
                table.remove(0);
            };
            together(&table, &[change, |table| assert!(previous(table, 8).is_some())]);
            assert_eq!(check(&table.0), [4, 8]);
        });
    }
}

/// The empty base node and those beside it are replaced during the step.
#[test]
fn adaptation_beside_an_empty_base_node() {
    let adapt: [Task; 3] = [|table| split(table, 0), |table| join(table, 0), |table| join(table, 4)];
    for shared in [false, true] {
        for other in adapt {
            explore(move || {
                let table = with_empty(shared);
                together(&table, &[other, |table| assert_eq!(previous(table, 8), Some(1))]);
                together(&table, &[other, |table| assert_eq!(table.next(Some(1)), Some((8, 1)))]);
                assert_eq!(check(&table.0), [0, 1, 8]);
            });
        }
    }
}

/// A reader that must adapt frees its shared lock for that, and another thread takes the lock first.
#[test]
fn readers_that_adapt() {
    let tasks: [Task; 2] = [|table| split(table, 8), |table| join(table, 8)];
    for other in tasks {
        explore(move || {
            let table = table(NERVOUS, true, &[0, 4, 8, 12]);
            split(&table, 0);
            let contended = Target::At(&at(8));
            table
                .0
                .find(&epoch::pin(), &contended)
                .base
                .lock()
                .statistic()
                .contended();
            let tasks: Vec<Task> = vec![other, |table| assert_eq!(table.get(8), Some(1))];
            together(&table, &tasks);
            assert_eq!(check(&table.0), [0, 4, 8, 12]);
        });
    }
}

/// Two keys that are changed together are seen together.
#[test]
fn several_keys_beside_adaptation() {
    let tasks: &[Task] = &[
        |table| {
            split(table, 8);
            join(table, 0);
        },
        |table| _ = table.change_many(&[8, 0], |values| values.fill(Some(2))),
        |table| {
            let values = table.change_many(&[0, 8], |_| ());
            assert_eq!(values[0], values[1]);
        },
    ];
    model(&[0, 4, 8, 12], &[0], tasks, &[0, 4, 8, 12]);
}

/// Adaptation by contention and quiet alone.
#[test]
fn nervous_trees_keep_all() {
    for shared in [false, true] {
        explore(move || {
            let table = table(NERVOUS, shared, &[0, 4, 8, 12]);
            together(
                &table,
                &[
                    |table| {
                        table.put(1, 1);
                        assert_eq!(table.get(4), Some(1));
                    },
                    |table| {
                        table.put(5, 1);
                        assert_eq!(table.get(8), Some(1));
                    },
                    |table| {
                        table.remove(12);
                        table.put(12, 1);
                    },
                ],
            );
            assert_eq!(check(&table.0), [0, 1, 4, 5, 8, 12]);
        });
    }
}
