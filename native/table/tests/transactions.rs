//! What changes between the reads of a call and the question whether they hold, and between them and a commit.

mod common;

use cats_sync::epoch;
use cats_table::{
    Addition, Found, Handle, Kind, LongReads, ObjectRef, Objects, Part, Range, Reads, Registry, Table, Words, Writes,
};
use common::*;
use std::sync::Arc;

/// A table with objects of three elements under the keys 1 to 3.
fn table(registry: &'static Registry, kind: Kind) -> Arc<Table> {
    let guard = epoch::pin();
    let table = enter(registry, &World::default(), &guard, options(kind, 1), atom(1), 1, None).unwrap();
    (1..=3).for_each(|key| insert(table.by_identifier(&guard), key, 0));
    table
}

fn insert(handle: Handle<'_>, key: i64, value: i64) {
    let elements = [key, value, 0].map(Value::Int);
    with_object(&elements, |object| handle.insert(object)).unwrap();
}

fn add(handle: Handle<'_>, key: i64) {
    with_key(&Value::Int(key), |key| {
        let addition = Addition {
            position: 2,
            increment: 1,
            limit: None,
        };
        handle.add_all(&handle.table().probe(key), &[addition], &mut Words::new())
    })
    .unwrap();
}

fn delete(handle: Handle<'_>, key: i64) {
    with_key(&Value::Int(key), |key| handle.delete(&handle.table().probe(key))).unwrap();
}

fn read<'g>(handle: Handle<'g>, reads: &mut Reads<'g>, key: i64) {
    let mut found = Objects::none();
    with_key(&Value::Int(key), |key| {
        handle.lookup_in(reads, &handle.table().probe(key), false, &mut found)
    })
    .unwrap();
}

fn read_all<'g>(handle: Handle<'g>, reads: &mut Reads<'g>) {
    let mut found = Objects::none();
    handle
        .range_in(reads, Range::above(None), usize::MAX, false, &mut found)
        .unwrap();
}

/// Whether reads of key 1, and of a range if there are any, hold after a change.
fn hold(kind: Kind, range: bool, change: impl Fn(Handle<'_>)) -> bool {
    let table = table(registry(), kind);
    // Once before, so that the object is one that is changed in place, if the change does that.
    change(table.by_identifier(&epoch::pin()));
    if table.is_dead() {
        return false;
    }
    let guard = epoch::pin();
    let handle = table.by_identifier(&guard);
    insert(handle, 7, 0);
    let mut reads = Reads::none();
    match range {
        true => read_all(handle, &mut reads),
        false => read(handle, &mut reads, 1),
    }
    assert!(reads.hold());
    change(handle);
    reads.hold()
}

#[test]
fn reads_hold_until_something_changes() {
    for kind in [Kind::Set, Kind::OrderedSet] {
        assert!(hold(kind, false, |_| ()), "{kind:?}");
        assert!(!hold(kind, false, |handle| insert(handle, 1, 5)), "{kind:?}");
        assert!(!hold(kind, false, |handle| add(handle, 1)), "{kind:?}");
        let empty = |handle: Handle<'_>| handle.delete_all_objects(&World::default()).unwrap();
        assert!(!hold(kind, false, empty), "{kind:?}");
    }
    assert!(hold(Kind::OrderedSet, true, |_| ()));
    assert!(!hold(Kind::OrderedSet, true, |handle| insert(handle, 2, 5)));
    assert!(!hold(Kind::OrderedSet, true, |handle| add(handle, 3)));
    assert!(!hold(Kind::OrderedSet, true, |handle| delete(handle, 7)));
}

/// A transaction that has read key 1 of one table writes key 1 and 2 of it and of another one.
fn commit(change: impl Fn(Handle<'_>, Handle<'_>)) -> (bool, [Option<i64>; 4]) {
    commit_in(registry(), change)
}

/// The same, with tables of this registry.
fn commit_in(registry: &'static Registry, change: impl Fn(Handle<'_>, Handle<'_>)) -> (bool, [Option<i64>; 4]) {
    let (one, other) = (table(registry, Kind::Set), table(registry, Kind::OrderedSet));
    let guard = epoch::pin();
    let (one, other) = (one.by_identifier(&guard), other.by_identifier(&guard));
    add(one, 1);
    let mut reads = Reads::none();
    read(one, &mut reads, 1);
    let mut writes = Writes::none(false);
    for handle in [other, one] {
        for key in [1, 2] {
            let elements = [key, 10 + key, 0].map(Value::Int);
            with_object(&elements, |object| writes.put(handle, object, None)).unwrap();
        }
    }
    change(one, other);
    let done = writes.commit(&guard, &mut reads, SHORT, |(), _| true).unwrap();
    let value = |handle: Handle<'_>, key: i64| {
        with_key(&Value::Int(key), |key| {
            let mut found = Objects::none();
            handle.lookup(&handle.table().probe(key), true, &mut found).unwrap();
            found.as_slice().first().and_then(|object| object.element(1).small())
        })
    };
    (done, [value(one, 1), value(one, 2), value(other, 1), value(other, 2)])
}

#[test]
fn a_commit_writes_all_or_nothing() {
    let written = [Some(11), Some(12), Some(11), Some(12)];
    assert_eq!(commit(|_, _| ()), (true, written));
    // What was written but not read may change.
    assert_eq!(commit(|_, other| insert(other, 2, 5)), (true, written));
    let changed = (false, [Some(5), Some(0), Some(0), Some(0)]);
    assert_eq!(commit(|one, _| insert(one, 1, 5)), changed);
    assert_eq!(
        commit(|one, _| add(one, 1)),
        (false, [Some(2), Some(0), Some(0), Some(0)])
    );
    assert_eq!(
        commit(|one, _| delete(one, 1)),
        (false, [None, Some(0), Some(0), Some(0)])
    );
    let world = World::default();
    let emptied = |_: Handle<'_>, other: Handle<'_>| other.delete_all_objects(&world).unwrap();
    assert_eq!(commit(emptied), (false, [Some(1), Some(0), None, None]));
    let registry = registry();
    let deleted = |_: Handle<'_>, other: Handle<'_>| registry.delete(&world, other).unwrap();
    assert!(!commit_in(registry, deleted).0);
}

/// A transaction that has read three keys, and writes one and deletes the others, with what it has noted of them. Returns whether it has
/// committed, and the values of the first two keys.
fn commit_noted(kind: Kind, change: impl Fn(Handle<'_>)) -> (bool, Option<i64>, Option<i64>) {
    let table = table(registry(), kind);
    let guard = epoch::pin();
    let handle = table.by_identifier(&guard);
    add(handle, 1);
    change(handle);
    let keys = [1, 2, 9].map(|key| block(&[Value::Int(key)]));
    let probe = |i: usize| table.probe(keys[i].as_ref().element(0));
    let value = |object: ObjectRef<'_>| object.element(1).small();
    let mut writes = Writes::none(false);
    with_object(&[1, 10, 0].map(Value::Int), |object| {
        writes.put(handle, object, Some(Some(1)))
    })
    .unwrap();
    writes.delete(handle, probe(1), Some(Some(0))).unwrap();
    writes.delete(handle, probe(2), Some(None)).unwrap();
    let done = writes.commit(&guard, &mut Reads::none(), SHORT, |noted, found| {
        found.and_then(value) == noted
    });
    let now = |i| {
        let mut found = Objects::none();
        handle.lookup(&probe(i), true, &mut found).unwrap();
        found.as_slice().first().and_then(|object| object.element(1).small())
    };
    (done.unwrap(), now(0), now(1))
}

#[test]
fn what_was_noted_of_written_keys_is_compared() {
    for kind in [Kind::Set, Kind::OrderedSet] {
        assert_eq!(commit_noted(kind, |_| ()), (true, Some(10), None));
        assert_eq!(commit_noted(kind, |handle| add(handle, 1)), (false, Some(2), Some(0)));
        assert_eq!(
            commit_noted(kind, |handle| insert(handle, 1, 5)),
            (false, Some(5), Some(0))
        );
        assert_eq!(commit_noted(kind, |handle| add(handle, 2)), (false, Some(1), Some(1)));
        assert_eq!(commit_noted(kind, |handle| delete(handle, 2)), (false, Some(1), None));
        assert_eq!(
            commit_noted(kind, |handle| insert(handle, 9, 5)),
            (false, Some(1), Some(0))
        );
    }
}

/// A long transaction reads key 1, and keys 5 to 7 of an ordered table. Returns what a look finds after a change, and whether the commit of
/// a write of key 3 is done then.
fn long(kind: Kind, change: impl Fn(Handle<'_>)) -> (bool, bool) {
    let table = table(registry(), kind);
    let mut long = LongReads::default();
    {
        let guard = epoch::pin();
        long.join(table.by_identifier(&guard), table.clone()).unwrap();
    }
    // Another test may have a guard.
    while !long.is_complete() {
        std::thread::yield_now();
    }
    let guard = epoch::pin();
    let handle = table.by_identifier(&guard);
    with_key(&Value::Int(1), |key| {
        long.add(&table, Part::key(&table, &table.probe(key)), u64::MAX)
    });
    if kind == Kind::OrderedSet {
        let ends = [5, 7].map(|key| block(&[Value::Int(key)]));
        let [from, to] = [0, 1].map(|i| table.probe(ends[i].as_ref().element(0)));
        let range = Range {
            from: Some((&from, true)),
            to: Some(&to),
            down: false,
        };
        long.add(&table, Part::range(&range, None), u64::MAX);
    }
    change(handle);
    let found = long.look(&guard, None, false).unwrap();
    let mut writes = Writes::none(false);
    with_object(&[3, 30, 0].map(Value::Int), |object| {
        writes.put(handle, object, None::<()>)
    })
    .unwrap();
    let done = writes.commit(&guard, &mut Reads::none(), Some(&mut long), |(), _| true);
    (matches!(found, Found::Unchanged), done.unwrap())
}

#[test]
fn a_long_transaction_finds_changes_of_what_it_has_read() {
    for kind in [Kind::Set, Kind::OrderedSet] {
        assert_eq!(long(kind, |_| ()), (true, true));
        assert_eq!(long(kind, |handle| insert(handle, 2, 5)), (true, true));
        assert_eq!(long(kind, |handle| insert(handle, 3, 5)), (true, true));
        assert_eq!(long(kind, |handle| insert(handle, 1, 5)), (false, false));
        assert_eq!(long(kind, |handle| add(handle, 1)), (false, false));
        assert_eq!(long(kind, |handle| delete(handle, 1)), (false, false));
        let world = World::default();
        let emptied = |handle: Handle<'_>| handle.delete_all_objects(&world).unwrap();
        assert_eq!(long(kind, emptied), (false, false));
    }
    let inserted = |key| long(Kind::OrderedSet, move |handle| insert(handle, key, 0));
    assert_eq!(
        [4, 5, 6, 7, 8].map(|key| inserted(key).1),
        [true, false, false, false, true]
    );
    assert_eq!(long(Kind::OrderedSet, |handle| delete(handle, 6)), (true, true));
}
