//! What several threads see of each other's operations. The threads are real, and each acts as a process.

use crate::common::*;
use cats_sync::epoch;
use cats_table::{
    garbage, Addition, Cause, Direction, ElementOp, Failure, Handle, Heir, Host, Kind, Object, ObjectRef, Objects,
    Registry, Right, Selection, Table, Used, NOBODY,
};
use cats_term::lease::Request;
use cats_term::{small, Scratch, TermRef, View};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

const THREADS: u64 = 4;
const ROUNDS: i64 = 2000;

/// Repeats a call that found a lock held for long.
fn patiently<T>(mut call: impl FnMut() -> Result<T, Failure>) -> Result<T, Failure> {
    loop {
        match call() {
            Err(Failure::Busy) => thread::yield_now(),
            result => return result,
        }
    }
}

fn table(registry: &'static Registry, host: &dyn Host, kind: Kind, name: u64, owner: u64) -> Arc<Table> {
    enter(registry, host, &epoch::pin(), options(kind, 1), name, owner, None).unwrap()
}

fn word(value: i64) -> u64 {
    small(value).unwrap()
}

/// The second element of the object with a key.
fn value(handle: Handle<'_>, key: i64) -> Option<i64> {
    with_key(&Value::Int(key), |term| {
        let mut found = Objects::none();
        patiently(|| handle.lookup(&handle.table().probe(term), &mut found)).unwrap();
        found.as_slice().first()?.element(1).small()
    })
}

#[test]
fn lists_are_seen_whole_or_not_at_all() {
    for kind in [Kind::Set, Kind::OrderedSet] {
        let (registry, world) = (registry(), World::default());
        let table = table(registry, &world, kind, atom(1), 1);
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let writers: Vec<_> = (0..2)
                .map(|writer| {
                    let table = &table;
                    scope.spawn(move || {
                        for round in 0..ROUNDS {
                            let guard = epoch::pin();
                            let value = word(round * 2 + writer);
                            let objects: Vec<[u64; 2]> = (0..10).map(|key| [word(key), value]).collect();
                            let handle = table.by_identifier(&guard);
                            let list = || objects.iter().map(|object| Ok::<_, Failure>(Object::flat(object)));
                            patiently(|| handle.insert_list(list(), false, Request::Fresh)).unwrap();
                        }
                    })
                })
                .collect();
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    // The lists always have the same keys. The last key is read after the first one, and both are read twice. If both pairs
                    // of values are the same, they must not show one list's beginning with an older list's end.
                    let guard = epoch::pin();
                    let handle = table.by_identifier(&guard);
                    let before = (value(handle, 0), value(handle, 9));
                    let after = (value(handle, 0), value(handle, 9));
                    if before == after {
                        assert_eq!(before.0, before.1, "a list was seen in part");
                    }
                }
            });
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            done.store(true, Ordering::Relaxed);
        });
        let guard = epoch::pin();
        assert_eq!(table.by_identifier(&guard).size(), 10);
    }
}

/// Three elements of an object are changed together. The third is an immediate or an item. A read sees all changes or none. Nobody who
/// read one element finds an older one later.
#[test]
fn elements_that_are_changed_together_are_seen_together() {
    for (kind, item) in [Kind::Set, Kind::OrderedSet]
        .into_iter()
        .flat_map(|kind| [(kind, false), (kind, true)])
    {
        let (registry, world) = (registry(), World::default());
        let table = table(registry, &world, kind, atom(1), 1);
        let done = AtomicBool::new(false);
        let (rounds, key) = (20 * ROUNDS, word(1));
        let probe = || table.probe(TermRef::immediate(key));
        {
            let guard = epoch::pin();
            let handle = table.by_identifier(&guard);
            handle.insert(Object::flat(&[key, word(0), word(0), word(0)])).unwrap();
        }
        let value = |object: &ObjectRef<'_>, index: usize| match object.element(index).view() {
            View::Float(value) => value as i64,
            _ => object.element(index).small().unwrap(),
        };
        let is_state = |object: &ObjectRef<'_>| {
            let [first, second, third] = [1, 2, 3].map(|index| value(object, index));
            assert!(
                first == second && second == third,
                "{first}, {second} and {third} are no state"
            );
        };
        let read = |look: &(dyn Fn(Handle<'_>) + Sync)| {
            while !done.load(Ordering::Relaxed) {
                let guard = epoch::pin();
                look(table.by_identifier(&guard));
            }
        };
        thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for round in 1..=rounds {
                    let guard = epoch::pin();
                    let handle = table.by_identifier(&guard);
                    let third = if item {
                        Value::Float(round as f64)
                    } else {
                        Value::Int(round)
                    };
                    with_key(&third, |third| {
                        let [first, second] = [1, 2].map(|i| (i + 1, TermRef::immediate(word(round))));
                        let ops = [first, second, (4, third)].map(|(position, term)| ElementOp::Set(position, term));
                        patiently(|| crate::common::set_elements(handle, &probe(), &ops, None)).unwrap();
                        if round % 1000 == 0 {
                            let object = [key, word(round), word(round), word(round)];
                            patiently(|| handle.insert(Object::flat(&object))).unwrap();
                        }
                    });
                }
            });
            scope.spawn(|| {
                read(&|handle| {
                    let mut scratch = Scratch::new();
                    // It fails if the place was locked for long, or the writer was interrupted.
                    if let Ok(found) = handle.get::<Used>(&probe(), &mut scratch) {
                        found.iter().for_each(is_state);
                    }
                })
            });
            scope.spawn(|| {
                read(&|handle| {
                    let element = |index| {
                        let mut scratch = Scratch::new();
                        let found = handle.get_for_element(&probe(), index, &mut scratch).ok()??;
                        Some(value(&found, index))
                    };
                    let seen: Vec<i64> = [1, 2, 3, 2, 1].into_iter().filter_map(element).collect();
                    assert!(seen.is_sorted(), "{seen:?}");
                })
            });
            scope.spawn(|| {
                read(&|handle| {
                    let mut selection = Selection::all(&table, Direction::Up);
                    let mut met = cats_table::Met::default();
                    while patiently(|| handle.slice(&mut selection, 10, &mut met)).unwrap() {}
                    met.as_slice().iter().for_each(is_state);
                })
            });
            writer.join().unwrap();
            done.store(true, Ordering::Relaxed);
        });
    }
}

/// Elements of an object are changed one after the other. A read always sees the object as it was at one instant.
#[test]
fn objects_that_are_changed_in_place_are_seen_whole() {
    for kind in [Kind::Set, Kind::OrderedSet] {
        let (registry, world) = (registry(), World::default());
        let table = table(registry, &world, kind, atom(1), 1);
        let done = AtomicBool::new(false);
        const KEYS: i64 = 3;
        let fresh = |key: i64| [word(key), word(0), word(7), word(0)];
        let is_state = |object: &ObjectRef<'_>| {
            let [first, second] = [1, 3].map(|index| object.element(index).small().unwrap());
            assert!(
                first == second || first == second + 1,
                "{first} and {second} are no state"
            );
        };
        {
            let guard = epoch::pin();
            for key in 0..KEYS {
                table.by_identifier(&guard).insert(Object::flat(&fresh(key))).unwrap();
            }
        }
        let read = |look: &(dyn Fn(Handle<'_>, i64) + Sync)| {
            let mut round = 0;
            while !done.load(Ordering::Relaxed) {
                let guard = epoch::pin();
                look(table.by_identifier(&guard), round % KEYS);
                round += 1;
            }
        };
        thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for round in 1..=20 * ROUNDS {
                    let guard = epoch::pin();
                    let handle = table.by_identifier(&guard);
                    for key in 0..KEYS {
                        with_key(&Value::Int(key), |term| {
                            let probe = table.probe(term);
                            for position in [2, 4] {
                                // At times there is no object.
                                let _ = patiently(|| handle.add(&probe, position, 1)).unwrap();
                            }
                            if round % 100 == key {
                                patiently(|| handle.insert(Object::flat(&fresh(key)))).unwrap();
                            }
                        });
                    }
                }
            });
            scope.spawn(|| {
                read(&|handle, key| {
                    with_key(&Value::Int(key), |term| {
                        let mut scratch = Scratch::new();
                        // It fails if the place was locked for long.
                        if let Ok(found) = handle.get::<Used>(&table.probe(term), &mut scratch) {
                            found.iter().for_each(is_state);
                        }
                    })
                })
            });
            scope.spawn(|| {
                read(&|handle, key| {
                    with_key(&Value::Int(key), |term| {
                        let mut found = Objects::none();
                        patiently(|| handle.lookup(&table.probe(term), &mut found)).unwrap();
                        found.as_slice().iter().for_each(is_state);
                    })
                })
            });
            scope.spawn(|| {
                read(&|handle, _| {
                    let mut selection = Selection::all(&table, Direction::Up);
                    let mut met = cats_table::Met::default();
                    while patiently(|| handle.slice(&mut selection, 10, &mut met)).unwrap() {
                        met.as_slice().iter().for_each(is_state);
                        met.clear();
                    }
                    met.as_slice().iter().for_each(is_state);
                })
            });
            writer.join().unwrap();
            done.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn counters_add_up() {
    for kind in [Kind::Set, Kind::OrderedSet] {
        let (registry, world) = (registry(), World::default());
        let table = table(registry, &world, kind, atom(1), 1);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for round in 0..ROUNDS {
                        let guard = epoch::pin();
                        let handle = table.by_identifier(&guard);
                        let zero = [word(0), word(0)];
                        let one = Addition {
                            position: 2,
                            increment: 1,
                            limit: None,
                        };
                        with_key(&Value::Int(round % 3), |term| {
                            let probe = table.probe(term);
                            let default = Some(cats_table::Tuple::Flat(&zero));
                            patiently(|| add(handle, &probe, &[one], default)).unwrap();
                        });
                    }
                });
            }
        });
        let guard = epoch::pin();
        let handle = table.by_identifier(&guard);
        let sum: i64 = (0..3).map(|key| value(handle, key).unwrap()).sum();
        assert_eq!(sum, THREADS as i64 * ROUNDS);
        assert_eq!(handle.size(), 3);
    }
}

/// Some threads add and remove objects of one key while others read them.
#[test]
fn groups_are_read_while_they_change() {
    let (registry, world) = (registry(), World::default());
    let table = table(registry, &world, Kind::Bag, atom(1), 1);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..2i64)
            .map(|writer| {
                let table = &table;
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let guard = epoch::pin();
                        let handle = table.by_identifier(&guard);
                        let number = (round * 7 + writer) % 50;
                        let object = vec![
                            Value::Int(0),
                            Value::Int(number * 2 + writer),
                            Value::Float(number as f64),
                        ];
                        patiently(|| with_object(&object, |object| handle.insert(object))).unwrap();
                        if round % 3 != 0 {
                            patiently(|| with_object(&object, |object| handle.delete_object(object))).unwrap();
                        }
                        if round % 500 == 0 {
                            with_key(&Value::Int(0), |term| patiently(|| handle.delete(&table.probe(term)))).unwrap();
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let guard = epoch::pin();
                let handle = table.by_identifier(&guard);
                with_key(&Value::Int(0), |term| {
                    let mut objects = Objects::none();
                    patiently(|| handle.lookup(&table.probe(term), &mut objects)).unwrap();
                    let mut seen: Vec<i64> = Vec::new();
                    for object in objects.as_slice() {
                        let object = elements(object);
                        let (Value::Int(number), Value::Float(float)) = (&object[1], &object[2]) else {
                            panic!("{object:?}")
                        };
                        assert_eq!((number / 2) as f64, *float, "an object of two halves");
                        assert!(!seen.contains(number), "the same object twice");
                        seen.push(*number);
                    }
                });
            }
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::Relaxed);
    });
    let guard = epoch::pin();
    let handle = table.by_identifier(&guard);
    assert_eq!(handle.size(), contents(handle).len());
}

/// With locked meta tables, an identifier leads to a table only as long as the main table has it.
#[test]
fn locked_meta_tables_know_what_is_entered() {
    for (registry, locked) in registries().into_iter().zip([false, true]) {
        let world = World::default();
        let guard = epoch::pin();
        let check = |table: &Table| table.check(Right::Write, || 1);
        let stranger = Table::new(registry, options(Kind::Set, 1).finish(1).unwrap(), atom(1), 1).unwrap();
        assert_eq!(check(&stranger).is_err(), locked);
        let known = table(registry, &world, Kind::Set, atom(1), 1);
        assert_eq!(check(&known), Ok(()));
        patiently(|| registry.delete(&world, known.by_identifier(&guard))).unwrap();
        assert_eq!(check(&known), Err(Failure::Bad(Cause::Id)));
    }
}

/// A handle that found a table by name fails if the table had another name in the meantime. It might have read what was written then.
#[test]
fn a_table_that_had_another_name_meanwhile_is_not_the_one_that_was_found() {
    for registry in registries() {
        let (world, guard) = (World::default(), epoch::pin());
        let mut named = options(Kind::Set, 1);
        named.add(cats_table::OptionItem::NamedTable);
        let names = [atom(1), atom(2)];
        enter(registry, &world, &guard, named, names[0], 1, None).unwrap();
        let found = patiently(|| registry.find(&world, &guard, names[0], 1)).unwrap();
        for (old, new) in [(names[0], names[1]), (names[1], names[0])] {
            let handle = patiently(|| registry.find(&world, &guard, old, 1)).unwrap();
            patiently(|| registry.rename(&world, handle, new, 1)).unwrap();
        }
        let lookup = |handle: Handle<'_>| {
            with_key(&Value::Int(0), |term| {
                patiently(|| handle.lookup(&handle.table().probe(term), &mut Objects::none()))
            })
        };
        assert_eq!(lookup(found), Err(Failure::Bad(Cause::Id)));
        let again = patiently(|| registry.find(&world, &guard, names[0], 1)).unwrap();
        assert_eq!(lookup(again), Ok(()));
    }
}

/// A table that is renamed back and forth is found by exactly one of its names. What was inserted after a renaming is never seen under the
/// old name.
#[test]
fn renaming_is_atomic() {
    registries().into_iter().for_each(renaming_is_atomic_in);
}

fn renaming_is_atomic_in(registry: &'static Registry) {
    let world = World::default();
    let mut named = options(Kind::Set, 1);
    named.add(cats_table::OptionItem::NamedTable);
    let names = [atom(1), atom(2)];
    enter(registry, &world, &epoch::pin(), named, names[0], 1, None).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for (own, name) in names.into_iter().enumerate() {
            let (world, done) = (&world, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let guard = epoch::pin();
                    let Ok(handle) = patiently(|| registry.find(world, &guard, name, 1)) else {
                        continue;
                    };
                    // Gives time for a renaming between finding the table and reading it.
                    thread::sleep(Duration::from_micros(20));
                    let mut found = Objects::none();
                    let result = with_key(&Value::Int(0), |term| {
                        patiently(|| handle.lookup(&handle.table().probe(term), &mut found))
                    });
                    // The value says under which name it was written.
                    if let (Ok(()), [object]) = (result, found.as_slice()) {
                        assert_eq!(object.element(1).small(), Some(own as i64), "seen by the other name");
                    }
                }
            });
        }
        let _done = SetAtEnd(&done);
        for round in 0..ROUNDS as usize {
            let guard = epoch::pin();
            let (old, new) = (names[round % 2], names[(round + 1) % 2]);
            let handle = patiently(|| registry.find(&world, &guard, old, 1)).unwrap();
            patiently(|| with_key(&Value::Int(0), |term| handle.delete(&handle.table().probe(term)))).unwrap();
            patiently(|| registry.rename(&world, handle, new, 1)).unwrap();
            assert!(patiently(|| registry.find(&world, &guard, old, 1)).is_err());
            let handle = patiently(|| registry.find(&world, &guard, new, 1)).unwrap();
            let object = [word(0), word((round as i64 + 1) % 2)];
            patiently(|| handle.insert(Object::flat(&object))).unwrap();
            if round % 10 == 0 {
                thread::sleep(Duration::from_micros(20));
            }
        }
    });
}

/// Owners die while their table is given away, deleted, looked up by name and created again. The name is always free for the next owner,
/// and in the end every table is forgotten.
#[test]
fn owners_die_amid_everything() {
    for locked in [false, true] {
        owners_die_amid_everything_in(locked);
    }
}

fn owners_die_amid_everything_in(locked: bool) {
    static FORGOTTEN: AtomicU64 = AtomicU64::new(0);
    FORGOTTEN.store(0, Ordering::Relaxed);
    install();
    let registry: &'static Registry = Box::leak(Box::new(
        Registry::new(|table| {
            FORGOTTEN.fetch_add(1, Ordering::Relaxed);
            // SAFETY: the registry gives up the reference that `enter` gave it.
            drop(unsafe { Arc::from_raw(table) });
        })
        .unwrap(),
    ));
    if locked {
        registry.use_locks(2);
    }
    let world = World::default();
    let name = atom(7);
    let next_pid = AtomicU64::new(1000);
    let made = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for round in 0..300 {
                    let guard = epoch::pin();
                    let owner = next_pid.fetch_add(2, Ordering::Relaxed);
                    let mut named = options(Kind::Set, 1);
                    named.add(cats_table::OptionItem::NamedTable);
                    let heir = (round % 3 == 0).then(|| Heir {
                        pid: owner + 1,
                        data: Some(Arc::new(block(&[Value::Int(round)]))),
                    });
                    let entered = loop {
                        match enter(registry, &world, &guard, copy(&named), name, owner, heir.clone()) {
                            Err(Failure::Busy) => thread::yield_now(),
                            entered => break entered,
                        }
                    };
                    let Ok(table) = entered else { continue };
                    made.fetch_add(1, Ordering::Relaxed);
                    let handle = table.by_identifier(&guard);
                    if round % 4 == 1 {
                        let _ = patiently(|| registry.give_away(&world, handle, owner, owner + 1));
                    }
                    if round % 5 == 2 {
                        let _ = patiently(|| registry.delete(&world, handle));
                    }
                    // First the process is dead, as in the VM. The callback comes at some later time.
                    world.kill(owner);
                    if round % 2 == 0 {
                        registry.owner_down(&world, owner);
                    }
                    let _ = patiently(|| registry.find(&world, &guard, name, 1));
                    world.kill(owner + 1);
                    registry.owner_down(&world, owner + 1);
                    registry.owner_down(&world, owner);
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..200 {
                registry.reap(&world, Duration::from_micros(200));
                thread::yield_now();
            }
        });
    });
    let guard = epoch::pin();
    assert!(patiently(|| registry.find(&world, &guard, name, 1)).is_err());
    drop(guard);
    while matches!(
        registry.reap(&world, Duration::from_millis(10)),
        garbage::Left::Work | garbage::Left::Blocked
    ) {
        thread::yield_now();
    }
    assert_eq!(registry.count(), Ok(0));
    // Objects that other tests retire may keep the reaper from freeing everything at once.
    while FORGOTTEN.load(Ordering::Relaxed) < made.load(Ordering::Relaxed) {
        epoch::collect(1000);
        thread::yield_now();
    }
    assert_eq!(FORGOTTEN.load(Ordering::Relaxed), made.load(Ordering::Relaxed));
}

/// The same options once more.
fn copy(_: &cats_table::Collect) -> cats_table::Collect {
    let mut named = options(Kind::Set, 1);
    named.add(cats_table::OptionItem::NamedTable);
    named
}

#[test]
fn an_heir_gets_the_table_with_its_data() {
    let (registry, world) = (registry(), World::default());
    let guard = epoch::pin();
    let heir = Heir {
        pid: 2,
        data: Some(Arc::new(block(&[Value::Float(1.5)]))),
    };
    let table = enter(registry, &world, &guard, options(Kind::Set, 1), atom(1), 1, Some(heir)).unwrap();
    world.kill(1);
    assert!(registry.lives(&world, &guard, &table).unwrap());
    assert_eq!(table.owner(), 2);
    let messages = world.messages.lock().unwrap().clone();
    assert_eq!(messages, [(table.serial(), 1, 2, Value::Float(1.5))]);
    world.kill(2);
    assert!(!registry.lives(&world, &guard, &table).unwrap());
    assert!(table.is_dead());
}

#[test]
fn a_kept_table_is_claimed_by_one_process() {
    for registry in registries() {
        let world = World::default();
        let guard = epoch::pin();
        for round in 0..200 {
            let owner = 2 + 10 * round;
            let keep = Heir {
                pid: NOBODY,
                data: None,
            };
            let table = enter(
                registry,
                &world,
                &guard,
                options(Kind::Set, 1),
                atom(1),
                owner,
                Some(keep),
            )
            .unwrap();
            let handle = table.by_identifier(&guard);
            let claim = |pid| patiently(|| registry.claim(&world, handle, pid));
            assert_eq!(claim(owner), Err(Cause::Owned.into()));
            world.kill(owner);
            let claims: Vec<_> = thread::scope(|scope| {
                let claims = (1..=THREADS).map(|n| {
                    let (table, world) = (&table, &world);
                    scope.spawn(move || {
                        let guard = epoch::pin();
                        patiently(|| registry.claim(world, table.by_identifier(&guard), owner + n))
                    })
                });
                let claims: Vec<_> = claims.collect();
                claims.into_iter().map(|claim| claim.join().unwrap()).collect()
            });
            let won = claims.iter().position(Result::is_ok).unwrap() as u64;
            assert_eq!(claims.iter().filter(|claim| claim.is_ok()).count(), 1);
            assert_eq!(table.owner(), owner + 1 + won);
            // It is kept again.
            world.kill(table.owner());
            assert!(registry.lives(&world, &guard, &table).unwrap());
            assert_eq!(table.owner(), NOBODY);
            registry.delete(&world, handle).unwrap();
            assert_eq!(claim(owner + 9), Err(Cause::Id.into()));
        }
    }
}

#[test]
fn of_equal_replacements_one_wins() {
    for kind in [Kind::Set, Kind::OrderedSet] {
        let (registry, world) = (registry(), World::default());
        let table = table(registry, &world, kind, atom(1), 1);
        let object = |value: i64| [Value::Int(1), Value::Int(value), Value::Float(0.5)];
        let insert = |elements: &[Value]| {
            with_object(elements, |object| table.by_identifier(&epoch::pin()).insert(object)).unwrap();
        };
        insert(&object(0));
        insert(&[Value::Int(2), Value::Int(0)]);
        let won = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for value in 0..ROUNDS {
                        let guard = epoch::pin();
                        let handle = table.by_identifier(&guard);
                        // Half of the time as if the comparison under the lock could not tell.
                        let known = value % 2 == 0;
                        let is_old = |stored: &ObjectRef<'_>| elements(stored) == object(value);
                        let replaced = patiently(|| {
                            with_object(&object(value + 1), |new| {
                                handle.replace(new, |old| known && is_old(old), |old| Ok::<_, Failure>(is_old(old)))
                            })
                        });
                        let pair = |value| [word(2), word(value)];
                        let inline = patiently(|| handle.replace_inline(&pair(value), &pair(value + 1)));
                        for replaced in [replaced, inline] {
                            won.fetch_add(replaced.unwrap().into(), Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        // Each thread finds each value or a later one, so none is left out, and each is replaced once.
        assert_eq!(won.load(Ordering::Relaxed), 2 * ROUNDS as u64);
        let guard = epoch::pin();
        let values = [1, 2].map(|key| value(table.by_identifier(&guard), key));
        assert_eq!(values, [Some(ROUNDS); 2]);
    }
}

#[test]
fn a_dead_process_fixes_nothing() {
    let (registry, world) = (registry(), World::default());
    let guard = epoch::pin();
    let table = table(registry, &world, Kind::Set, atom(1), 1);
    let handle = table.by_identifier(&guard);
    registry.fix(&world, handle, 5, true).unwrap();
    registry.fix(&world, handle, 5, true).unwrap();
    registry.fix(&world, handle, 6, true).unwrap();
    let fixers = |world: &World| {
        registry
            .fixation(world, handle)
            .unwrap()
            .map(|fixation| fixation.processes)
    };
    assert_eq!(fixers(&world), Some(vec![(5, 2), (6, 1)]));
    world.kill(5);
    assert_eq!(fixers(&world), Some(vec![(6, 1)]));
    while registry.reap_process(&world, &guard, 5).unwrap() {}
    registry.fix(&world, handle, 6, false).unwrap();
    assert_eq!(fixers(&world), None);
}

/// Several threads write to a blank table at once, and perhaps one deletes it. All find the same contents. Threads that came before them
/// find none.
#[test]
fn first_writers_meet_in_the_same_contents() {
    for registry in registries() {
        let world = World::default();
        for round in 0..ROUNDS {
            let kind = [Kind::Set, Kind::OrderedSet, Kind::Bag][round as usize % 3];
            let deleted = round % 4 == 0;
            let table = enter_blank(registry, &world, &epoch::pin(), options(kind, 1), atom(1), 1, None).unwrap();
            let all = Barrier::new(THREADS as usize + 1);
            thread::scope(|scope| {
                for key in 0..THREADS as i64 {
                    let (table, all) = (&table, &all);
                    scope.spawn(move || {
                        all.wait();
                        let guard = epoch::pin();
                        let found = patiently(|| table.check(Right::Write, || 1));
                        assert!(found.is_ok() || deleted);
                        if found.is_ok() {
                            let handle = table.by_identifier(&guard);
                            patiently(|| handle.insert(Object::flat(&[word(key), word(key)]))).unwrap();
                            assert_eq!(value(handle, key), Some(key));
                        }
                    });
                }
                all.wait();
                let guard = epoch::pin();
                let handle = table.by_identifier(&guard);
                patiently(|| table.check(Right::Read, || 1)).unwrap();
                assert!(handle.size() <= THREADS as usize);
                if deleted {
                    patiently(|| registry.delete(&world, handle)).unwrap();
                }
            });
            let guard = epoch::pin();
            if !deleted {
                let handle = table.by_identifier(&guard);
                assert_eq!(handle.size(), THREADS as usize);
                assert_eq!(contents(handle).len(), THREADS as usize);
                patiently(|| registry.delete(&world, handle)).unwrap();
            }
        }
    }
}

/// The contents that blank tables share are never written to, and are not freed with one of the tables.
#[test]
fn blank_tables_stay_empty() {
    for kind in [Kind::Set, Kind::OrderedSet] {
        let (registry, world) = (registry(), World::default());
        let blank =
            |owner| enter_blank(registry, &world, &epoch::pin(), options(kind, 1), atom(1), owner, None).unwrap();
        let (first, second) = (blank(1), blank(1));
        let guard = epoch::pin();
        let (one, other) = (first.by_identifier(&guard), second.by_identifier(&guard));
        for right in [Right::Read, Right::Info, Right::Manage] {
            assert_eq!(first.check(right, || 1), Ok(()));
            assert_eq!(one.bytes(), other.bytes());
        }
        assert_eq!(first.check(Right::Write, || 1), Ok(()));
        one.insert(Object::flat(&[word(1), word(1)])).unwrap();
        assert!(one.bytes() > other.bytes());
        assert_eq!((one.size(), other.size()), (1, 0));
        assert_eq!((contents(other).len(), value(other, 1)), (0, None));
        registry.delete(&world, other).unwrap();
        assert_eq!(second.check(Right::Write, || 1), Err(Failure::Bad(Cause::Id)));
        drop(guard);
        while epoch::collect(usize::MAX) {}
        let third = blank(1);
        let guard = epoch::pin();
        assert_eq!(value(third.by_identifier(&guard), 1), None);
    }
}

/// The registry finds tables, and lists them in order, no matter which one was entered last.
#[test]
fn all_tables_are_known_whatever_their_order() {
    let (registry, world) = (registry(), World::default());
    let guard = epoch::pin();
    let known = || {
        let (mut known, mut from) = (Vec::new(), Some(cats_table::Position::default()));
        while let Some(position) = from {
            from = registry
                .each(&world, &guard, position, 2, |table| known.push(table.serial()))
                .unwrap();
        }
        known
    };
    let tables: Vec<_> = (0..20)
        .map(|number| table(registry, &world, Kind::Set, atom(1), 1 + number * 7 % 5 * 16))
        .collect();
    let mut expected: Vec<_> = tables.iter().map(|table| (table.owner(), table.serial())).collect();
    expected.sort_by_key(|(owner, serial)| (owner >> 4, *serial));
    let serials = |tables: &[(u64, u64)]| tables.iter().map(|(_, serial)| *serial).collect::<Vec<_>>();
    assert_eq!(known(), serials(&expected));
    // The table entered last, one before it, and one after a listing.
    for gone in [19, 3, 18] {
        let table = table(registry, &world, Kind::Set, atom(1), 1);
        registry.delete(&world, tables[gone].by_identifier(&guard)).unwrap();
        registry.delete(&world, table.by_identifier(&guard)).unwrap();
        expected.retain(|(_, serial)| *serial != tables[gone].serial());
        assert_eq!(registry.count().unwrap(), expected.len());
        assert_eq!(known(), serials(&expected));
    }
    let heirless = tables[0].owner();
    world.kill(heirless);
    while registry.reap_process(&world, &guard, heirless).unwrap() {}
    expected.retain(|(owner, _)| *owner != heirless);
    assert_eq!(known(), serials(&expected));
}

/// `delete_all_objects` runs at the same time as insertions. Objects inserted before it are gone. Objects inserted after it stay.
#[test]
fn all_objects_go_at_once() {
    for kind in [Kind::Set, Kind::OrderedSet] {
        let (registry, world) = (registry(), World::default());
        let table = table(registry, &world, kind, atom(1), 1);
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let guard = epoch::pin();
                    let handle = table.by_identifier(&guard);
                    for key in 0..50 {
                        patiently(|| handle.insert(Object::flat(&[word(key), word(key)]))).unwrap();
                    }
                }
            });
            for _ in 0..200 {
                let guard = epoch::pin();
                let handle = table.by_identifier(&guard);
                patiently(|| handle.delete_all_objects(&world)).unwrap();
                registry.reap(&world, Duration::from_micros(200));
            }
            done.store(true, Ordering::Relaxed);
        });
        let guard = epoch::pin();
        let handle = table.by_identifier(&guard);
        assert_eq!(handle.size(), contents(handle).len());
    }
}
