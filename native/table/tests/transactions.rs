//! What changes between the reads of a call and the question whether they hold, and between them and a commit.

use crate::common::*;
use cats_sync::epoch::{self, Guard};
use cats_table::{
    Addition, BagChange, Budget, Committed, Failure, Found, Handle, Kind, LongReads, ObjectRef, Objects, OptionItem,
    Part, Range, Reads, Registry, Table, Terms, Words, Writes,
};
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

/// Those of a long transaction that is not preferred.
const TERMS: Terms = Terms {
    keeper: None,
    memory: 1 << 16,
};

/// A table with objects of three elements under the keys 1 to 3.
fn table(registry: &'static Registry, kind: Kind) -> Arc<Table> {
    let guard = epoch::pin();
    let table = enter(registry, &World::default(), &guard, options(kind, 1), atom(1), 1, None).unwrap();
    (1..=3).for_each(|key| insert(table.by_identifier(&guard), key, 0));
    table
}

const BAGS: [Kind; 2] = [Kind::Bag, Kind::DuplicateBag];

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

fn remove(handle: Handle<'_>, key: i64, value: i64) {
    let elements = [key, value, 0].map(Value::Int);
    with_object(&elements, |object| handle.delete_object(object)).unwrap();
}

/// Removes an object and adds it again.
fn replace(handle: Handle<'_>, key: i64) {
    insert(handle, key, 6);
    remove(handle, key, 0);
    insert(handle, key, 0);
}

fn read<'g>(handle: Handle<'g>, reads: &mut Reads<'g>, key: i64) {
    let mut found = Objects::none();
    with_key(&Value::Int(key), |key| {
        handle.lookup_in(reads, &handle.table().probe(key), &mut found)
    })
    .unwrap();
}

fn read_all<'g>(handle: Handle<'g>, reads: &mut Reads<'g>) {
    let mut found = Objects::none();
    handle
        .range_in(reads, Range::above(None), usize::MAX, &mut found)
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
    for kind in BAGS {
        assert!(hold(kind, false, |_| ()), "{kind:?}");
        // What a bag has already does not change it.
        assert_eq!(hold(kind, false, |handle| insert(handle, 1, 5)), kind == Kind::Bag);
        assert!(
            !hold(kind, false, |handle| insert(handle, 1, handle.size() as i64)),
            "{kind:?}"
        );
        assert!(!hold(kind, false, |handle| replace(handle, 1)), "{kind:?}");
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
    let mut writes = Writes::none();
    for handle in [other, one] {
        for key in [1, 2] {
            let elements = [key, 10 + key, 0].map(Value::Int);
            with_object(&elements, |object| writes.put(handle, object, None)).unwrap();
        }
    }
    change(one, other);
    let done = writes.commit(&guard, &mut reads, SHORT, all_hold) == Ok(Committed::Done);
    let value = |handle: Handle<'_>, key: i64| {
        with_key(&Value::Int(key), |key| {
            let mut found = Objects::none();
            handle.lookup(&handle.table().probe(key), &mut found).unwrap();
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
    let mut writes = Writes::none();
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
        handle.lookup(&probe(i), &mut found).unwrap();
        found.as_slice().first().and_then(|object| object.element(1).small())
    };
    (done == Ok(Committed::Done), now(0), now(1))
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
    let mut long = LongReads::new(TERMS);
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
    let mut read = |part: Part| {
        long.announce(&guard, &table, &part);
        long.add(&table, part, u64::MAX);
    };
    with_key(&Value::Int(1), |key| read(Part::key(kind, &table.probe(key))));
    if kind == Kind::OrderedSet {
        let ends = [5, 7].map(|key| block(&[Value::Int(key)]));
        let [from, to] = [0, 1].map(|i| table.probe(ends[i].as_ref().element(0)));
        let range = Range {
            from: Some((&from, true)),
            to: Some(&to),
            down: false,
        };
        read(Part::range(&range, None));
    }
    change(handle);
    assert!(!long.is_exhausted());
    let found = long.look(&guard, None).unwrap();
    let mut writes = Writes::none();
    with_object(&[3, 30, 0].map(Value::Int), |object| match kind.is_bag() {
        true => {
            let mut change = BagChange::new(false);
            change.add(handle, object)?;
            writes.change(handle, change)
        }
        false => writes.put(handle, object, None::<()>),
    })
    .unwrap();
    let done = writes.commit(&guard, &mut Reads::none(), Some(&mut long), all_hold);
    (matches!(found, Found::Unchanged), done == Ok(Committed::Done))
}

#[test]
fn a_long_transaction_finds_changes_of_what_it_has_read() {
    for kind in [Kind::Set, Kind::OrderedSet, Kind::Bag, Kind::DuplicateBag] {
        assert_eq!(long(kind, |_| ()), (true, true));
        assert_eq!(long(kind, |handle| insert(handle, 2, 5)), (true, true));
        assert_eq!(long(kind, |handle| insert(handle, 3, 5)), (true, true));
        assert_eq!(long(kind, |handle| insert(handle, 1, 5)), (false, false));
        match kind.is_bag() {
            true => assert_eq!(long(kind, |handle| remove(handle, 1, 0)), (false, false)),
            false => assert_eq!(long(kind, |handle| add(handle, 1)), (false, false)),
        }
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

/// What nobody has read does not fill the log.
#[test]
fn writes_of_other_keys_need_no_memory() {
    for kind in [Kind::Set, Kind::OrderedSet, Kind::Bag] {
        let others = |handle: Handle<'_>| (100..10_000).for_each(|key| insert(handle, key, 5));
        assert_eq!(long(kind, others), (true, true));
    }
}

/// Numbers at random.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }
}

/// An object of a bag: inline, small or, in a compressed table, packed.
fn of_bag(key: i64, value: i64) -> Elements {
    let (key, number) = (Value::Int(key), Value::Int(value));
    match value % 3 {
        0 => vec![key, number],
        1 => vec![key, number, Value::Int(7)],
        _ => vec![key, Value::List(vec![number; 20]), Value::Int(7)],
    }
}

/// What a transaction does with a key of a bag.
#[derive(Debug)]
struct Planned {
    all: bool,
    gone: Vec<i64>,
    added: Vec<i64>,
}

impl Planned {
    fn at_random(random: &mut Random) -> Self {
        let mut values = |counts: &[u64], values| {
            let count = counts[random.below(counts.len() as u64) as usize];
            (0..count).map(|_| random.below(values) as i64).collect::<Vec<_>>()
        };
        let (gone, added) = (values(&[0, 0, 1, 3], 12), values(&[0, 1, 1, 2, 40, 130], 12));
        Self {
            all: random.below(6) == 0,
            gone,
            added,
        }
    }

    /// What the key has then.
    fn apply(&self, unique: bool, objects: &mut Vec<i64>) {
        objects.retain(|value| !self.all && !self.gone.contains(value));
        for value in &self.added {
            if !unique || !objects.contains(value) {
                objects.push(*value);
            }
        }
    }

    fn change(&self, handle: Handle<'_>, key: i64) -> Result<BagChange, Failure> {
        let mut change = BagChange::new(self.all);
        for value in &self.gone {
            with_object(&of_bag(key, *value), |object| change.remove(handle, object))?;
        }
        for value in &self.added {
            with_object(&of_bag(key, *value), |object| change.add(handle, object))?;
        }
        Ok(change)
    }
}

/// Commits of changes of several keys of two bags, compared with lists.
#[test]
fn bags_have_what_commits_add_and_leave() {
    for (kind, seed) in BAGS.into_iter().flat_map(|kind| (0..12).map(move |seed| (kind, seed))) {
        let registry = registry();
        let tables = [false, true].map(|compressed| {
            let mut options = options(kind, 1);
            if compressed {
                options.add(OptionItem::Compressed);
            }
            enter(registry, &World::default(), &epoch::pin(), options, atom(1), 1, None).unwrap()
        });
        let mut random = Random(seed);
        let mut lists: [[Vec<i64>; 4]; 2] = Default::default();
        let empty = tables.clone().map(|table| {
            let guard = epoch::pin();
            let handle = table.by_identifier(&guard);
            (0..4).for_each(|key| (insert(handle, key, 0), delete(handle, key)).1);
            handle.bytes()
        });
        for round in 0..60 {
            let guard = epoch::pin();
            let handles = [0, 1].map(|i| tables[i].by_identifier(&guard));
            let mut writes = Writes::<()>::none();
            // Many keys are brought into the order of their places.
            for (handle, lists) in handles.into_iter().zip(&mut lists) {
                for (key, list) in (0..).zip(lists) {
                    let planned = Planned::at_random(&mut random);
                    if !planned.gone.is_empty() || !planned.added.is_empty() {
                        planned.apply(kind == Kind::Bag, list);
                        writes.change(handle, planned.change(handle, key).unwrap()).unwrap();
                    }
                }
            }
            let done = writes.commit(&guard, &mut Reads::none(), SHORT, all_hold);
            assert_eq!(done, Ok(Committed::Done));
            for (handle, lists) in handles.into_iter().zip(&lists) {
                for (key, list) in (0..).zip(lists) {
                    assert_eq!(of_key(handle, key), *list, "{kind:?} {seed} {round}");
                }
                assert_eq!(handle.size(), lists.iter().map(Vec::len).sum::<usize>());
            }
        }
        for (table, empty) in tables.iter().zip(empty) {
            let guard = epoch::pin();
            let handle = table.by_identifier(&guard);
            (0..4).for_each(|key| delete(handle, key));
            assert_eq!((handle.size(), handle.bytes()), (0, empty));
        }
    }
}

/// The values of a key's objects.
fn of_key(handle: Handle<'_>, key: i64) -> Vec<i64> {
    lookup(handle, key).unwrap()
}

fn lookup(handle: Handle<'_>, key: i64) -> Result<Vec<i64>, Failure> {
    let mut found = Objects::none();
    with_key(&Value::Int(key), |key| {
        handle.lookup(&handle.table().probe(key), &mut found)
    })?;
    Ok(numbers(&found))
}

/// The values of objects of a bag.
fn numbers(found: &Objects<'_>) -> Vec<i64> {
    let value = |object: &ObjectRef<'_>| match &elements(object)[1] {
        Value::Int(value) => *value,
        Value::List(values) => match values[0] {
            Value::Int(value) => value,
            _ => unreachable!("a list of integers"),
        },
        other => unreachable!("{other:?}"),
    };
    found.as_slice().iter().map(value).collect()
}

/// A commit that changes a key of a bag changes its mark.
#[test]
fn reads_do_not_hold_after_a_commit() {
    for kind in BAGS {
        let table = table(registry(), kind);
        for (gone, added, held) in [
            (vec![], vec![1], false),
            (vec![], vec![2], false),
            (vec![1], vec![], false),
            (vec![2], vec![2], false),
            (vec![9], vec![], true),
            (vec![], vec![2], kind == Kind::Bag),
            (vec![0, 2], vec![], false),
        ] {
            let guard = epoch::pin();
            let handle = table.by_identifier(&guard);
            let mut reads = Reads::none();
            read(handle, &mut reads, 1);
            let all = false;
            let planned = Planned { all, gone, added };
            let mut writes = Writes::<()>::none();
            writes.change(handle, planned.change(handle, 1).unwrap()).unwrap();
            assert_eq!(
                writes.commit(&guard, &mut Reads::none(), SHORT, all_hold),
                Ok(Committed::Done)
            );
            assert_eq!(reads.hold(), held, "{kind:?} {planned:?}");
        }
    }
}

/// A commit that fails, or of which a read does not hold, leaves bags as they are.
#[test]
fn a_bag_is_left_when_a_commit_is_not_done() {
    for kind in BAGS {
        let table = table(registry(), kind);
        let guard = epoch::pin();
        let handle = table.by_identifier(&guard);
        (10..60).for_each(|value| insert(handle, 2, value));
        let mut reads = Reads::none();
        read(handle, &mut reads, 1);
        let mut writes = Writes::<()>::none();
        for key in [2, 3] {
            let mut change = BagChange::new(false);
            for value in [0, 10, 11] {
                with_object(&[key, value, 0].map(Value::Int), |object| change.remove(handle, object)).unwrap();
            }
            for value in 100..200 {
                with_object(&[key, value, 0].map(Value::Int), |object| change.add(handle, object)).unwrap();
            }
            writes.change(handle, change).unwrap();
        }
        let (two, three) = (of_key(handle, 2), of_key(handle, 3));
        insert(handle, 1, 5);
        assert_eq!(
            writes.commit(&guard, &mut reads, SHORT, all_hold),
            Ok(Committed::Changed)
        );
        assert_eq!((of_key(handle, 2), of_key(handle, 3)), (two, three));
        assert_eq!(handle.size(), 54);
    }
}

/// Very many objects are removed on a dirty scheduler only.
#[test]
fn a_commit_that_removes_much_is_refused_on_a_scheduler() {
    let table = table(registry(), Kind::DuplicateBag);
    let guard = epoch::pin();
    let handle = table.by_identifier(&guard);
    (0..2000).for_each(|_| insert(handle, 2, 5));
    let remove = || {
        let mut writes = Writes::<()>::none();
        for (key, value) in [(1, 0), (2, 5)] {
            let mut change = BagChange::new(false);
            with_object(&[key, value, 0].map(Value::Int), |object| change.remove(handle, object)).unwrap();
            writes.change(handle, change).unwrap();
        }
        writes.commit(&guard, &mut Reads::none(), SHORT, all_hold)
    };
    assert_eq!(on_scheduler(remove), Err(Failure::Big));
    assert_eq!(handle.size(), 2003);
    assert_eq!(remove(), Ok(Committed::Done));
    assert_eq!((handle.size(), of_key(handle, 2)), (2, vec![0]));
}

/// Repeats a call that found a lock held for long.
fn patiently<T>(mut call: impl FnMut() -> Result<T, Failure>) -> T {
    loop {
        match call() {
            Err(Failure::Busy) => thread::yield_now(),
            result => return result.unwrap(),
        }
    }
}

/// The number of keys of a history: two of each table.
const KEYS: i64 = 4;

/// Stands for what is not read.
const UNREAD: i64 = -3;

/// Records the calls of one thread on two tables, for `test/linearizability`. A set counts as a bag whose keys have one object at most.
struct Recorder<'a> {
    kind: Kind,
    tables: &'a [Arc<Table>; 2],
    thread: usize,
    random: Random,
    since: Instant,
    calls: String,
}

impl<'a> Recorder<'a> {
    /// The table of a key, and the key in it.
    fn of(&self, key: i64) -> (&Arc<Table>, i64) {
        (&self.tables[key as usize / 2], key % 2)
    }

    /// Records a call that changes keys so, and returns what it has seen of each of them.
    fn record(&mut self, changes: &[(i64, Planned)], call: impl FnOnce(&Self) -> Vec<Option<Vec<i64>>>) {
        let begin = self.since.elapsed().as_nanos();
        let seen = call(self);
        let end = self.since.elapsed().as_nanos();
        let keys: Vec<i64> = changes.iter().map(|(key, _)| *key).collect();
        let (mut new, mut found) = (Vec::new(), Vec::new());
        for (_, Planned { all, gone, added }) in changes {
            new.extend([i64::from(*all), gone.len() as i64]);
            new.extend(gone);
            new.push(added.len() as i64);
            new.extend(added);
        }
        for seen in seen {
            match seen {
                Some(values) => {
                    found.push(values.len() as i64);
                    found.extend(values);
                }
                None => found.push(UNREAD),
            }
        }
        let separator = if self.calls.is_empty() { "" } else { "," };
        write!(
            self.calls,
            "{separator}{{\"thread\":{},\"begin\":{begin},\"end\":{end},\"name\":\"change\",\"keys\":{keys:?},\"new\":{new:?},\
             \"seen\":{found:?}}}",
            self.thread
        )
        .unwrap();
    }

    fn values(&mut self, limit: u64) -> Vec<i64> {
        (0..self.random.below(limit))
            .map(|_| 1 + self.random.below(9) as i64)
            .collect()
    }

    /// One of the calls on a single key.
    fn one(&mut self) {
        let key = self.random.below(KEYS as u64) as i64;
        let value = 1 + self.random.below(9) as i64;
        let which = self.random.below(5);
        let plan = |all, gone: &[i64], added: &[i64]| Planned {
            all,
            gone: gone.to_vec(),
            added: added.to_vec(),
        };
        let planned = match which {
            0 => plan(false, &[], &[]),
            1 => plan(!self.kind.is_bag(), &[], &[value]),
            2 => plan(false, &[value], &[]),
            _ => plan(true, &[], &[]),
        };
        self.record(&[(key, planned)], |recorder| {
            let guard = epoch::pin();
            let (table, key) = recorder.of(key);
            let handle = table.by_identifier(&guard);
            let object = of_bag(key, value);
            match which {
                0 => return vec![Some(patiently(|| lookup(handle, key)))],
                1 => patiently(|| with_object(&object, |object| handle.insert(object))),
                2 => patiently(|| with_object(&object, |object| handle.delete_object(object)).map(|_| ())),
                3 => patiently(|| with_key(&Value::Int(key), |term| handle.delete(&table.probe(term)))),
                _ => {
                    let mut taken = Objects::none();
                    with_key(&Value::Int(key), |term| {
                        patiently(|| handle.take(&table.probe(term), Budget(1000), &mut taken));
                    });
                    return vec![Some(numbers(&taken))];
                }
            }
            vec![None]
        });
    }

    /// Reads some keys of both tables and changes some of them, with or without having read them.
    fn transact(&mut self) {
        let mut changes = Vec::new();
        let mut read = Vec::new();
        for key in 0..KEYS {
            let (all, gone, added) = match self.kind.is_bag() {
                true => (self.random.below(8) == 0, self.values(3), self.values(7)),
                false => (true, vec![], self.values(2)),
            };
            match self.random.below(4) {
                0 => continue,
                1 => changes.push((
                    key,
                    Planned {
                        all: false,
                        gone: vec![],
                        added: vec![],
                    },
                )),
                _ => changes.push((key, Planned { all, gone, added })),
            }
            read.push(self.random.below(2) == 0 || changes.last().is_some_and(|(_, planned)| planned.is_nothing()));
        }
        let is_long = self.random.below(2) == 0;
        let of = |recorder: &Self| loop {
            let done = match is_long {
                true => recorder.long(&changes, &read),
                false => recorder.short(&changes, &read),
            };
            if let Some(seen) = done {
                return seen;
            }
        };
        self.record(&changes, of);
    }

    /// Lets others go on inside of a transaction.
    fn rest(&self) {
        if self.random.0 & 1 << 40 == 0 {
            thread::yield_now();
        }
    }

    /// A short transaction. Returns what it has seen, if it was carried out.
    fn short(&self, changes: &[(i64, Planned)], read: &[bool]) -> Option<Vec<Option<Vec<i64>>>> {
        let guard = epoch::pin();
        let (mut reads, mut seen) = (Reads::none(), Vec::new());
        for ((key, _), read) in changes.iter().zip(read) {
            let (table, key) = self.of(*key);
            let mut found = Objects::none();
            seen.push(read.then(|| {
                with_key(&Value::Int(key), |term| {
                    let (handle, probe) = (table.by_identifier(&guard), table.probe(term));
                    patiently(|| handle.lookup_in(&mut reads, &probe, &mut found));
                });
                numbers(&found)
            }));
        }
        let done = self.writes(&guard, changes).commit(&guard, &mut reads, SHORT, all_hold);
        matches!(done, Ok(Committed::Done)).then_some(seen)
    }

    /// The same as a long transaction.
    fn long(&self, changes: &[(i64, Planned)], read: &[bool]) -> Option<Vec<Option<Vec<i64>>>> {
        let mut long = LongReads::new(TERMS);
        for table in self.tables {
            let guard = epoch::pin();
            patiently(|| long.join(table.by_identifier(&guard), table.clone()));
        }
        while !long.is_complete() {
            thread::yield_now();
        }
        let (guard, mut seen) = (epoch::pin(), Vec::new());
        for ((key, _), read) in changes.iter().zip(read) {
            let (table, key) = self.of(*key);
            seen.push(match read {
                true => Some(self.read_long(&guard, &mut long, table, key)?),
                false => None,
            });
        }
        let mut reads = Reads::none();
        let done = self
            .writes(&guard, changes)
            .commit(&guard, &mut reads, Some(&mut long), all_hold);
        matches!(done, Ok(Committed::Done)).then_some(seen)
    }

    /// A key, in an ordered table as a range. `None` if the transaction is over.
    fn read_long(
        &self,
        guard: &Guard,
        long: &mut LongReads<Arc<Table>>,
        table: &Arc<Table>,
        key: i64,
    ) -> Option<Vec<i64>> {
        let key = block(&[Value::Int(key)]);
        let (handle, probe) = (table.by_identifier(guard), table.probe(key.as_ref().element(0)));
        loop {
            let (mut reads, mut found) = (Reads::none(), Objects::none());
            let (part, widened) = match self.kind {
                Kind::OrderedSet => {
                    let range = Range {
                        from: Some((&probe, true)),
                        to: Some(&probe),
                        down: false,
                    };
                    patiently(|| handle.range_in(&mut reads, range, 1, &mut found));
                    let part = Part::range(&range, None);
                    let widened = long.announce(guard, table, &part);
                    (part, widened)
                }
                kind => {
                    let part = Part::key(kind, &probe);
                    long.announce(guard, table, &part);
                    patiently(|| handle.lookup_in(&mut reads, &probe, &mut found));
                    (part, false)
                }
            };
            if widened && !reads.hold() {
                continue;
            }
            match patiently(|| long.look(guard, Some((table, &part)))) {
                Found::ReadAgain => (),
                Found::Unchanged => {
                    long.add(table, part, u64::MAX);
                    self.rest();
                    return Some(numbers(&found));
                }
                Found::Changed | Found::Exhausted => return None,
            }
        }
    }

    fn writes<'g>(&'g self, guard: &'g Guard, changes: &[(i64, Planned)]) -> Writes<'g, 'static, ()> {
        let mut writes = Writes::none();
        for (key, planned) in changes {
            let (table, key) = self.of(*key);
            let handle = table.by_identifier(guard);
            match (&planned.gone[..], &planned.added[..]) {
                ([], []) if planned.all => {
                    let probe = cats_term::TermRef::immediate(cats_term::small(key).unwrap());
                    writes.delete(handle, table.probe(probe), None).unwrap();
                }
                ([], []) => (),
                ([], [value]) if !self.kind.is_bag() => {
                    with_object(&of_bag(key, *value), |object| writes.put(handle, object, None)).unwrap();
                }
                _ => writes.change(handle, planned.change(handle, key).unwrap()).unwrap(),
            }
        }
        writes
    }
}

impl Planned {
    fn is_nothing(&self) -> bool {
        !self.all && self.gone.is_empty() && self.added.is_empty()
    }
}

/// Records histories of transactions, half of them long ones, with other calls beside them, for `test/linearizability`.
#[test]
#[ignore = "run by scripts/linearizability"]
fn histories() {
    const THREADS: usize = 3;
    let Some(directory) = std::env::var_os("CATS_HISTORIES") else {
        return;
    };
    let rounds = std::env::var("CATS_ROUNDS").map_or(100, |rounds| rounds.parse().expect("a number of rounds"));
    let kinds = [
        (Kind::Bag, "bag", "bag"),
        (Kind::DuplicateBag, "duplicate_bag", "duplicate_bag"),
        (Kind::Set, "set", "bag"),
        (Kind::OrderedSet, "ordered_set", "bag"),
    ];
    for (kind, name, model) in kinds {
        let path = std::path::PathBuf::from(&directory).join(format!("table.transactions.{name}.jsonl"));
        let mut file = std::io::BufWriter::new(std::fs::File::create(path).expect("a file for histories"));
        let registry = registry();
        for round in 0..rounds {
            let tables = [0, 1].map(|_| {
                let world = World::default();
                enter(registry, &world, &epoch::pin(), options(kind, 1), atom(1), 1, None).unwrap()
            });
            let (done, since) = (AtomicBool::new(false), Instant::now());
            let calls: Vec<String> = thread::scope(|scope| {
                let (tables, done) = (&tables, &done);
                let recorders: Vec<_> = (0..THREADS)
                    .map(|thread| {
                        scope.spawn(move || {
                            let mut recorder = Recorder {
                                kind,
                                tables,
                                thread,
                                random: Random((round * THREADS + thread) as u64),
                                since,
                                calls: String::new(),
                            };
                            for _ in 0..50 {
                                match recorder.random.below(2) {
                                    0 => recorder.one(),
                                    _ => recorder.transact(),
                                }
                            }
                            recorder.calls
                        })
                    })
                    .collect();
                // Other keys, with which the tables grow and shrink.
                let others = scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        let guard = epoch::pin();
                        for table in tables {
                            let handle = table.by_identifier(&guard);
                            for key in 100..300 {
                                let object = of_bag(key, 0);
                                patiently(|| with_object(&object, |object| handle.insert(object)));
                            }
                            for key in 100..300 {
                                patiently(|| with_key(&Value::Int(key), |term| handle.delete(&table.probe(term))));
                            }
                            thread::yield_now();
                        }
                    }
                });
                let calls = recorders.into_iter().map(|thread| thread.join().unwrap()).collect();
                done.store(true, Ordering::Relaxed);
                others.join().unwrap();
                calls
            });
            let keys: Vec<i64> = (0..KEYS).collect();
            let calls = calls.join(",");
            writeln!(file, "{{\"kind\":\"{model}\",\"keys\":{keys:?},\"calls\":[{calls}]}}")
                .expect("room for histories");
        }
    }
}
