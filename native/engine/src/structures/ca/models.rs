//! Models of `ca`: its operations, concurrent with splits and joins of base nodes and leaves. Random schedules
//! interleave all accesses to atomics. Run by `make test-schedules`.
//!
//! docs/internals/checking.md lists the faults that were planted, and which model found each.

use super::tests::{check, count, force};
use super::*;
use crate::testing::conformance::{Map, TestKey, TestSchema};
use crate::testing::schedules::{explore, together};
use crate::testing::transactions::{transact, Then};
use crate::{Mark, Range};
use std::sync::Arc;

type Table = Map<Ca<TestSchema>>;
type Task = fn(&Table);

/// Adapts only when a task demands it.
const CALM: Thresholds = Thresholds {
    split: i32::MAX,
    join: i32::MIN,
};

fn split(table: &Table, number: u64) {
    force(&table.0, number, true);
}
fn join(table: &Table, number: u64) {
    force(&table.0, number, false);
}

/// Runs tasks concurrently on a tree of `numbers`, after base nodes were split at `splits`. At the end, all invariants
/// hold and `left` remain.
fn model(numbers: &'static [u64], splits: &'static [u64], tasks: &'static [Task], left: &'static [u64]) {
    explore(move || {
        let table: Table = Map(Ca::with_thresholds(TestSchema, CALM));
        numbers.iter().for_each(|&number| table.put(number, 1));
        splits.iter().for_each(|&number| split(&table, number));
        let table = Arc::new(table);
        together(&table, tasks);
        assert_eq!(check(&table.0), left);
    });
}

#[test]
fn split_beside_lookup_and_insertion() {
    let tasks: &[Task] = &[
        |table| split(table, 4),
        |table| assert_eq!([table.get(4), table.get(8)], [Some(1); 2]),
        |table| table.put(5, 1),
    ];
    model(&[0, 4, 8, 12], &[], tasks, &[0, 4, 5, 8, 12]);
}

/// The route node is replaced while other threads use the old one.
#[test]
fn join_beside_lookup_and_change() {
    let tasks: &[Task] = &[
        |table| join(table, 0),
        |table| assert_eq!([table.get(0), table.get(8)], [Some(1); 2]),
        |table| {
            table.remove(4);
            table.put(1, 1);
        },
    ];
    model(&[0, 4, 8], &[0], tasks, &[0, 1, 8]);
}

#[test]
fn joins_that_meet_and_a_split() {
    let tasks: &[Task] = &[
        |table| join(table, 0),
        |table| join(table, 8),
        |table| split(table, 4),
        |table| assert_eq!(table.get(4), Some(1)),
    ];
    model(&[0, 2, 4, 6, 8, 10], &[0, 4, 8], tasks, &[0, 2, 4, 6, 8, 10]);
}

/// A step passes an empty base node that is removed meanwhile, and leaves that are replaced.
#[test]
fn walk_beside_join_and_split() {
    let tasks: &[Task] = &[
        |table| join(table, 0),
        |table| split(table, 8),
        |table| assert_eq!(table.next(Some(0)), Some((8, 1))),
    ];
    model(&[0, 8, 12], &[0], tasks, &[0, 8, 12]);
}

/// At every instant one of two keys is present.
#[test]
fn first_beside_a_move() {
    let tasks: &[Task] = &[
        |table| _ = table.change_many(&[0, 8], |values| values.swap(0, 1)),
        |table| assert!(table.next(None).is_some()),
        |table| join(table, 0),
    ];
    model(&[0], &[], tasks, &[8]);
}

#[test]
fn moves_across_base_nodes_beside_joins() {
    let tasks: &[Task] = &[
        |table| _ = table.change_many(&[0, 8], |values| values.swap(0, 1)),
        |table| {
            let values = table.change_many(&[8, 0], |_| ());
            assert!(values[0] != values[1], "one state of two keys");
        },
        |table| join(table, 8),
    ];
    model(&[0, 4, 12], &[0], tasks, &[4, 8, 12]);
}

/// Walks from one of two leaves to the other, which begins with 12, concurrent with the tasks. At first both are under
/// one base node. At every instant one of 10 and 12 is present, and one of 9 and 11.
fn steps_across(prepare: fn(&Table), tasks: &'static [Task]) {
    const UP: Task = |table| {
        let next = |&last: &u64| table.next(Some(last)).map(|(next, _)| next);
        let numbers: Vec<u64> = std::iter::successors(Some(5), next).collect();
        assert!(!has_steps(&numbers, &[[5, 9], [9, 13]]), "{numbers:?}");
    };
    const DOWN: Task = |table| {
        let prev = |&last: &u64| table.prev(Some(last)).map(|(prev, _)| prev);
        let numbers: Vec<u64> = std::iter::successors(Some(20), prev).collect();
        assert!(!has_steps(&numbers, &[[13, 9], [12, 8], [9, 5]]), "{numbers:?}");
    };
    for walk in [UP, DOWN] {
        across(prepare, &[tasks, &[walk]].concat());
    }
}

fn has_steps(numbers: &[u64], steps: &[[u64; 2]]) -> bool {
    numbers.windows(2).any(|step| steps.iter().any(|of| step == of))
}

fn exchange(table: &Table, pair: [u64; 2]) {
    table.change_many(&pair, |values| values.swap(0, 1));
}

/// Runs tasks concurrently on two leaves under one base node. The second one begins with 12.
fn across(prepare: fn(&Table), tasks: &[Task]) {
    const NUMBERS: &[u64] = &[0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21];
    let tasks = tasks.to_vec();
    explore(move || {
        let table: Table = Map(Ca::with_thresholds(TestSchema, CALM));
        NUMBERS.iter().for_each(|&number| table.put(number, 1));
        split(&table, 0);
        join(&table, 0);
        prepare(&table);
        let table = Arc::new(table);
        together(&table, &tasks);
        check(&table.0);
    });
}

/// A search finds nothing in the leaf of its key, and goes on in the other one. The entry there moves to the first leaf.
#[test]
fn search_across_beside_a_move() {
    const UP: Task = |table| {
        let found = table.next(Some(9)).expect("always one above").0;
        assert!([10, 12].contains(&found), "{found}");
    };
    const DOWN: Task = |table| {
        let found = table.prev(Some(13)).expect("always one below").0;
        assert!([10, 12].contains(&found), "{found}");
    };
    for search in [UP, DOWN] {
        across(|_| (), &[|table| exchange(table, [12, 10]), search]);
        across(
            |table| exchange(table, [12, 10]),
            &[|table| exchange(table, [12, 10]), search],
        );
    }
}

/// The slot of the first entry in the other leaf is given to another key, while a search reads it.
#[test]
fn search_across_beside_the_reuse_of_a_slot() {
    across(
        |_| (),
        &[
            |table| {
                table.remove(12);
                [24, 25, 28, 29].iter().for_each(|&number| table.put(number, 1));
            },
            |table| {
                let found = table.next(Some(9)).expect("always one above").0;
                assert!([12, 13].contains(&found), "{found}");
            },
        ],
    );
}

/// A step is made again from the trail, while the entry that it came to moves to another leaf.
#[test]
fn repeated_step_beside_a_move() {
    const REPEAT: Task = |table| {
        table.next(Some(8));
        let gone = table.get(9).is_none();
        let found = table.next(Some(8)).expect("always one above").0;
        assert!(found == 12 || found == 9 && !gone, "{found}");
    };
    across(|_| (), &[|table| exchange(table, [9, 14]), REPEAT]);
}

/// The next entry moves from the leaf ahead to the leaf of the trail.
#[test]
fn step_across_beside_a_move() {
    steps_across(|_| (), &[|table| exchange(table, [12, 10])]);
    steps_across(|_| (), &[|table| exchange(table, [9, 11])]);
}

/// The leaf that the trail found ahead is replaced by a larger one.
#[test]
fn step_across_beside_a_leaf_that_grows() {
    steps_across(
        |table| [24, 25].iter().for_each(|&number| table.put(number, 1)),
        &[|table| {
            table.put(28, 1);
            exchange(table, [12, 10]);
        }],
    );
}

/// The leaves move under base nodes of their own, and back.
#[test]
fn step_across_beside_a_split_and_a_join() {
    steps_across(
        |_| (),
        &[
            |table| split(table, 0),
            |table| {
                exchange(table, [12, 10]);
                join(table, 12);
            },
        ],
    );
}

/// A full leaf is replaced by a larger one, concurrent with changes in it.
#[test]
fn leaf_that_grows() {
    const FULL: &[u64] = &[0, 1, 4, 5, 8, 9, 12, 13];
    let tasks: &[Task] = &[
        |table| table.put(16, 1),
        |table| table.remove(0),
        |table| assert_eq!([table.get(1), table.get(13)], [Some(1); 2]),
    ];
    model(FULL, &[], tasks, &[1, 4, 5, 8, 9, 12, 13, 16]);
}

/// A slot is given to another key between the reads of its two words.
#[test]
fn read_beside_the_reuse_of_a_slot() {
    let tasks: &[Task] = &[
        |table| {
            table.remove(0);
            table.put(5, 1);
        },
        |table| assert!(table.get(0).is_none_or(|value| value == 1)),
    ];
    model(&[0, 4], &[], tasks, &[4, 5]);
}

/// The replaced leaf stays in use under another base node, so the change belongs there.
#[test]
fn leaf_that_grows_beside_a_split_of_its_base_node() {
    const NUMBERS: [u64; 12] = [0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21];
    explore(|| {
        let table: Table = Map(Ca::with_thresholds(TestSchema, CALM));
        NUMBERS.iter().for_each(|&number| table.put(number, 1));
        // Two leaves under an inner node, the second of them full.
        split(&table, 0);
        join(&table, 0);
        [24, 25].iter().for_each(|&number| table.put(number, 1));
        let table = Arc::new(table);
        let tasks: &[Task] = &[
            |table| split(table, 0),
            |table| table.put(28, 1),
            |table| assert_eq!([table.get(0), table.get(12)], [Some(1); 2]),
        ];
        together(&table, tasks);
        assert_eq!(check(&table.0).len(), NUMBERS.len() + 3);
    });
}

/// A table of three leaves below an inner node.
fn three_leaves() -> Table {
    const NUMBERS: [u64; 12] = [0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21];
    let table: Table = Map(Ca::with_thresholds(TestSchema, CALM));
    NUMBERS.iter().for_each(|&number| table.put(number, 1));
    split(&table, 0);
    split(&table, 21);
    join(&table, 0);
    join(&table, 21);
    table
}

/// Counts are right, and those who have finished are counted, while nodes are replaced by each of the ways. The counts are asked for
/// before, or at the same time.
#[test]
fn counts_beside_nodes_that_are_replaced() {
    const REPLACE: &[Task] = &[
        |table| split(table, 0),
        |table| {
            split(table, 0);
            join(table, 0);
        },
        // The last two leaves merge.
        |table| [9, 12, 16, 17, 20].iter().for_each(|&number| table.remove(number)),
        // A leaf grows.
        |table| [24, 25, 28, 29, 32].iter().for_each(|&number| table.put(number, 1)),
    ];
    const WRITE: &[Task] = &[
        |table| {
            table.put(2, 1);
            assert_eq!(count(&table.0, None, Some(3)), 3);
            table.remove(0);
            assert_eq!(count(&table.0, None, Some(3)), 2);
        },
        |table| {
            table.remove(4);
            table.put(3, 1);
        },
    ];
    for replace in REPLACE {
        for counted in [true, false] {
            explore(move || {
                let table = three_leaves();
                if counted {
                    assert_eq!(count_all(&table), 12);
                }
                let table = Arc::new(table);
                together(&table, &[&[*replace], WRITE].concat());
                let keys = check(&table.0);
                assert_eq!(count_all(&table), keys.len());
                assert_eq!(check(&table.0), keys);
            });
        }
    }
}

fn count_all(table: &Table) -> usize {
    count(&table.0, None, None)
}

/// The count of a leaf is right after one change, beside whatever makes counts known or replaces nodes. All have few steps, so the
/// schedules try most orders of them.
#[test]
fn counts_beside_one_change() {
    // What happens before, and what happens beside the change.
    const BESIDE: &[(Task, Task)] = &[
        (|_| (), |table| _ = count_all(table)),
        (|table| _ = count_all(table), |table| split(table, 0)),
        // The last two leaves merge.
        (
            |table| {
                count_all(table);
                table.remove(12);
            },
            |table| table.remove(16),
        ),
        // The first leaf has no node above it until then.
        (
            |table| {
                split(table, 0);
                count_all(table);
            },
            |table| {
                join(table, 0);
                count_all(table);
            },
        ),
    ];
    // In each of the leaves.
    const CHANGES: &[Task] = &[
        |table| table.put(2, 1),
        |table| table.remove(13),
        |table| table.put(18, 1),
    ];
    for &(before, beside) in BESIDE {
        for &change in CHANGES {
            explore(move || {
                let table = three_leaves();
                before(&table);
                let table = Arc::new(table);
                together(&table, &[beside, change]);
                let keys = check(&table.0);
                assert_eq!(count_all(&table), keys.len());
            });
        }
    }
}

/// Removes one number and inserts another one.
fn swap(table: &Table, from: u64, to: u64) {
    transact(
        table,
        &[from, to],
        |entry| entry.is_some(),
        |_| vec![Then::Remove, Then::Put(1)],
    );
}

/// All numbers from one on, in one state.
fn marked(table: &Table, from: u64) -> usize {
    let (guard, from) = (cats_sync::epoch::pin(), TestKey::new(from));
    loop {
        let (mut all, mut marks) = (Vec::new(), Vec::new());
        let range = Range::above(Some(&from));
        let read = table
            .0
            .range_marked(&guard, range, usize::MAX, &mut all, &mut marks, |entry, out| {
                out.push(entry.key)
            });
        if read.is_ok() && marks.iter().all(Mark::holds) {
            return all.len();
        }
        cats_sync::facade::yield_now();
    }
}

/// A range of several leaves is one state, beside a transaction that moves a number across it.
#[test]
fn range_beside_a_transaction_and_a_join() {
    let tasks: &[Task] = &[
        |table| swap(table, 4, 13),
        |table| assert_eq!(marked(table, 0), 3),
        |table| join(table, 8),
    ];
    model(&[0, 4, 8, 12], &[0], tasks, &[0, 8, 12, 13]);
}

/// Each of two transactions reads what the other one writes, while the base nodes split and join.
#[test]
fn transactions_that_exclude_each_other() {
    fn take(table: &Table, own: u64, other: u64) {
        transact(
            table,
            &[own, other],
            |entry| entry.is_some(),
            |seen| match seen[1] {
                true => vec![Then::Remove, Then::Keep],
                false => vec![Then::Keep; 2],
            },
        );
    }
    explore(|| {
        let table: Table = Map(Ca::with_thresholds(TestSchema, CALM));
        [0, 4, 8, 12].iter().for_each(|&number| table.put(number, 1));
        let table = Arc::new(table);
        together(
            &table,
            &[
                |table| split(table, 4),
                |table| take(table, 4, 12),
                |table| take(table, 12, 4),
            ],
        );
        assert_eq!(check(&table.0).len(), 3);
    });
}
