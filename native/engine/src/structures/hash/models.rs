//! Models of `hash`: reads, updates, walks and operations on many keys, concurrent with growing and shrinking. Random
//! schedules interleave all accesses to atomics. Run by `make test-schedules`.
//!
//! docs/internals/checking.md lists the faults that were planted, and which model found each.

use super::*;
use crate::testing::conformance::{decode, Map, TestKey, TestSchema};
use crate::testing::schedules::{explore, together};
use crate::testing::transactions::{transact, Then};
use cats_sync::epoch;
use std::sync::Arc;

type Table = Map<Hash<TestSchema>>;
type Task = fn(&Table);

fn split(table: &Table) {
    table.0.split(&epoch::pin(), table.0.size().buckets());
}
fn merge(table: &Table) {
    table.0.merge(&epoch::pin(), table.0.size().buckets());
}
fn change(table: &Table) {
    table.remove(2);
    table.put(9, 1);
}
/// All numbers are present, except perhaps 2.
fn read(table: &Table) {
    (0..8).for_each(|number| assert!(number == 2 || table.get(number).is_some()));
}
fn ask(table: &Table) {
    (0..8).for_each(|number| assert!(number == 2 || table.0.may_have(&epoch::pin(), &TestKey::new(number))));
}

/// Numbers that share one bucket in a table of 8 buckets, enough for two overflow blocks. None of them counts for the
/// load.
fn crowd() -> impl Iterator<Item = u64> {
    let crowds = |number: &u64| hash_of(TestKey::new(*number).word) >> 2 & 7 == 1;
    let counts = |number: &u64| sampled(hash_of(TestKey::new(*number).word));
    (0..).filter(move |number| crowds(number) && !counts(number)).take(13)
}

/// Runs tasks concurrently on a table whose next split is of a bucket with overflow blocks. At the end, `left` numbers
/// remain.
fn model_of_a_crowd(tasks: &'static [Task], left: usize) {
    explore(move || {
        let table: Table = Map(Hash::new(TestSchema).expect("memory"));
        crowd().for_each(|number| table.put(number, 1));
        while table.0.size().buckets() < 9 {
            split(&table);
        }
        let table = Arc::new(table);
        together(&table, tasks);
        assert_eq!(tests::check(&table.0), left);
    });
}

/// Runs tasks concurrently on a table of two buckets with the numbers below 8. At the end, `left` remain.
fn model(tasks: &'static [Task], left: &'static [u64]) {
    explore(move || {
        let table: Table = Map(Hash::new(TestSchema).expect("memory"));
        split(&table);
        (0..8).for_each(|number| table.put(number, 1));
        let table = Arc::new(table);
        together(&table, tasks);
        let mut numbers = table.walk();
        numbers.sort();
        assert_eq!(numbers, left);
    });
}

#[test]
fn split_beside_reads_and_changes() {
    let tasks: &[Task] = &[split, read, change];
    model(tasks, &[0, 1, 3, 4, 5, 6, 7, 9]);
}

#[test]
fn merge_beside_reads_and_changes() {
    let tasks: &[Task] = &[merge, read, change];
    model(tasks, &[0, 1, 3, 4, 5, 6, 7, 9]);
}

#[test]
fn absence_is_told_beside_a_split_and_a_merge() {
    let tasks: &[Task] = &[
        |table| {
            split(table);
            merge(table);
        },
        ask,
        change,
    ];
    model(tasks, &[0, 1, 3, 4, 5, 6, 7, 9]);
}

#[test]
fn walk_beside_a_split_and_a_merge() {
    let tasks: &[Task] = &[
        |table| {
            split(table);
            merge(table);
            merge(table);
        },
        |table| assert_eq!(table.walk().len(), 8),
        |table| table.put(3, 2),
    ];
    model(tasks, &[0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn multi_key_operations_beside_a_split() {
    let tasks: &[Task] = &[
        split,
        |table| _ = table.change_many(&[1, 4, 6], |values| values.fill(Some(2))),
        |table| {
            let values = table.change_many(&[6, 1, 4], |_| ());
            assert!(
                values[0] == values[1] && values[1] == values[2],
                "one state of three keys"
            );
        },
    ];
    model(tasks, &[0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn overflow_blocks_beside_a_split_and_a_merge() {
    let tasks: &[Task] = &[
        |table| {
            split(table);
            merge(table);
        },
        |table| crowd().skip(2).for_each(|number| assert!(table.get(number).is_some())),
        |table| crowd().take(2).for_each(|number| table.remove(number)),
    ];
    model_of_a_crowd(tasks, 11);
}

fn value(entry: Option<Entry>) -> u32 {
    entry.map_or(0, |entry| decode(entry).map_or(u32::MAX, |(_, value)| value))
}

/// Moves 1 from one number to another, if a third one says so.
fn transfer(table: &Table, from: u64, to: u64, allowed: u64) {
    transact(table, &[from, to, allowed], value, |seen| match seen {
        [from, to, allowed] if *from > 0 && *allowed > 0 => vec![Then::Put(from - 1), Then::Put(to + 1), Then::Keep],
        _ => vec![Then::Keep; 3],
    });
}

/// Transactions that read and write the same places in other orders, and one that only reads.
#[test]
fn transactions_beside_a_split() {
    let tasks: &[Task] = &[
        split,
        |table| transfer(table, 1, 4, 0),
        |table| transfer(table, 4, 6, 0),
        |table| {
            let seen = transact(table, &[6, 4, 1], value, |_| vec![Then::Keep; 3]);
            assert_eq!(seen.iter().sum::<u32>(), 3, "one state of three keys");
        },
    ];
    model(tasks, &[0, 1, 2, 3, 4, 5, 6, 7]);
}

/// Takes one number if the other one is free.
fn take(table: &Table, own: u64, other: u64) {
    transact(table, &[own, other], value, |seen| match seen {
        [_, 1] => vec![Then::Put(2), Then::Keep],
        _ => vec![Then::Keep; 2],
    });
}

/// Each of two transactions writes what the other one reads. Only one finds what both need.
#[test]
fn transactions_that_exclude_each_other() {
    explore(|| {
        let table: Table = Map(Hash::new(TestSchema).expect("memory"));
        split(&table);
        (0..8).for_each(|number| table.put(number, 1));
        let table = Arc::new(table);
        let tasks: &[Task] = &[
            |table| {
                split(table);
                merge(table);
            },
            |table| take(table, 1, 4),
            |table| take(table, 4, 1),
        ];
        together(&table, tasks);
        assert_eq!(
            [table.get(1), table.get(4)]
                .iter()
                .filter(|value| **value == Some(2))
                .count(),
            1
        );
    });
}
