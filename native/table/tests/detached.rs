//! Detached insertions and deletions, in tables whose lock delegates. A thread sees its own last operation. Whoever ran an operation has
//! also counted and freed what it replaced.

use crate::common::*;
use cats_sync::epoch;
use cats_table::{EngineName, EngineOption, Failure, Kind, Object, Objects, OptionItem, Table};
use cats_term::small;
use std::sync::Arc;
use std::thread;

fn patiently<T>(mut call: impl FnMut() -> Result<T, Failure>) -> T {
    loop {
        match call() {
            Err(Failure::Busy) => thread::yield_now(),
            result => return result.unwrap(),
        }
    }
}

fn index(option: EngineOption, name: &str) -> OptionItem {
    let cats_table::Values::Names(names) = option.values() else {
        unreachable!("an option of names")
    };
    let index = names.iter().position(|other| *other == name).unwrap();
    OptionItem::OfEngine(option, index as u32)
}

fn table(engine: EngineName, kind: Kind, delegate: &str) -> Arc<Table> {
    let mut options = options(kind, 1);
    for item in [
        OptionItem::Engine(engine),
        index(EngineOption::Lock, "mrqd"),
        index(EngineOption::Delegate, delegate),
    ] {
        options.add(item);
    }
    enter(registry(), &World::default(), &epoch::pin(), options, atom(1), 1, None).unwrap()
}

/// The number in the second element of the object with a key.
fn value(table: &Table, key: i64) -> Option<i64> {
    let guard = epoch::pin();
    let handle = table.by_identifier(&guard);
    with_key(&Value::Int(key), |term| {
        let mut found = Objects::none();
        patiently(|| handle.lookup(&table.probe(term), &mut found));
        found.as_slice().first()?.element(1).small()
    })
}

/// If `long`, the object has a third element, so it has a block of its own.
fn insert(table: &Table, key: i64, value: i64, long: bool) {
    let guard = epoch::pin();
    let handle = table.by_identifier(&guard);
    let words = [key, value, 0].map(|number| small(number).unwrap());
    patiently(|| handle.insert(Object::flat(&words[..if long { 3 } else { 2 }])));
}

fn delete(table: &Table, key: i64) {
    let guard = epoch::pin();
    let handle = table.by_identifier(&guard);
    with_key(&Value::Int(key), |term| patiently(|| handle.delete(&table.probe(term))));
}

#[test]
fn what_was_detached_is_found_counted_and_freed() {
    for (engine, kind) in [(EngineName::StdHash, Kind::Set), (EngineName::Avl, Kind::OrderedSet)] {
        for delegate in ["copy", "malloc", "wait"] {
            let table = table(engine, kind, delegate);
            let guard = epoch::pin();
            let handle = table.by_identifier(&guard);
            let empty = handle.bytes();
            thread::scope(|scope| {
                for own in 0..4 {
                    let table = &table;
                    scope.spawn(move || {
                        for round in 0..3000 {
                            insert(table, own, round, round % 3 != 0);
                            // All threads change this key.
                            insert(table, 4, round, round % 2 == 0);
                            if round % 5 == 0 {
                                assert_eq!(value(table, own), Some(round), "{engine:?} {delegate}");
                            }
                            if round % 7 == 0 {
                                delete(table, own);
                                delete(table, 4);
                                assert_eq!(value(table, own), None);
                            }
                        }
                        delete(table, own);
                        delete(table, 4);
                    });
                }
            });
            assert_eq!((handle.size(), handle.bytes()), (0, empty), "{engine:?} {delegate}");
        }
    }
}
