//! What the reaper does to the items of objects that expire.

use crate::alone;
use crate::common::*;
use cats_sync::epoch;
use cats_table::due::{expire, Next};
use cats_table::{Failure, Kind, Object, OptionItem, Unit};
use cats_term::small;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Most slices that the reaper may take. It looks at 16 items in each, at least.
const SLICES: usize = 100_000;

/// Stale items stand between those of objects that live.
#[test]
fn stale_items_go() {
    alone(|| {
        for kind in [Kind::Set, Kind::OrderedSet] {
            let mut options = options(kind, 1);
            options.add(OptionItem::Ttl(86_400_000));
            let table = enter(registry(), &World::default(), &epoch::pin(), options, atom(1), 1, None).unwrap();
            let insert = |key: i64| {
                let guard = epoch::pin();
                let words = [key, 0].map(|number| small(number).unwrap());
                table.by_identifier(&guard).insert(Object::flat(&words)).unwrap();
            };
            let delete = |key: i64| {
                let guard = epoch::pin();
                with_key(&Value::Int(key), |term| {
                    table.by_identifier(&guard).delete(&table.probe(term))
                })
                .unwrap();
            };
            let bytes = || table.by_identifier(&epoch::pin()).bytes();
            (0..30_000).for_each(&insert);
            let before = bytes();
            (0..30_000).for_each(delete);
            for key in 0..30_000 {
                insert(key);
                for other in [key + 30_000, key + 60_000] {
                    insert(other);
                    delete(other);
                }
            }
            let slices = (0..SLICES).find(|_| !matches!(expire(Duration::from_micros(200)), Next::Work { .. }));
            assert!(slices.is_some(), "{kind:?}: the reaper never rests");
            assert!(bytes() < before + 500_000, "{kind:?}: {} of {before}", bytes());
        }
    });
}

/// Contents that were made for a table, and that it did not take: it had died, or others were at the registry. The reaper does not look
/// at them.
#[test]
fn contents_that_no_table_took_are_gone() {
    alone(|| {
        let world = World::default();
        for option in [
            OptionItem::Ttl(1),
            OptionItem::Idle(1),
            OptionItem::Limit(Unit::Objects, 10),
        ] {
            let registry = registry();
            let made = |name| {
                let mut options = options(Kind::Set, 1);
                options.add(option);
                enter(registry, &world, &epoch::pin(), options, atom(name), 1, None).unwrap()
            };
            let (dead, done) = (made(1), AtomicBool::new(false));
            {
                let guard = epoch::pin();
                registry.delete(&world, dead.by_identifier(&guard)).unwrap();
            }
            let table = made(2);
            thread::scope(|scope| {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        expire(Duration::from_micros(200));
                    }
                });
                let _end = SetAtEnd(&done);
                thread::scope(|scope| {
                    for _ in 0..2 {
                        scope.spawn(|| {
                            for key in 0..3000 {
                                let guard = epoch::pin();
                                assert!(dead.by_identifier(&guard).delete_all_objects(&world).is_err());
                                let handle = table.by_identifier(&guard);
                                let emptied = handle.delete_all_objects(&world);
                                assert!(matches!(emptied, Ok(()) | Err(Failure::Busy)));
                                let inserted = handle.insert(Object::flat(&[small(key).unwrap()]));
                                assert!(matches!(inserted, Ok(()) | Err(Failure::Busy)));
                            }
                        });
                    }
                });
            });
        }
    });
}
