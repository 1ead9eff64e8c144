//! Snapshots, step by step, and histories of them for the checker of linearizability.

use crate::common::*;
use cats_sync::epoch;
use cats_table::{
    begin_snapshot, is_snapshot_of, Addition, Beginning, Begun, Budget, Cause, Committed, Failure, Handle, Kind,
    Object, Objects, Reads, Registry, Table, Words, Writes,
};
use cats_term::lease::Request;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc};
use std::thread;
use std::time::{Duration, Instant};

fn table(registry: &'static Registry, kind: Kind) -> Arc<Table> {
    enter(
        registry,
        &World::default(),
        &epoch::pin(),
        options(kind, 1),
        atom(1),
        1,
        None,
    )
    .unwrap()
}

/// Repeats a call that found a lock held for long.
fn patiently<T>(mut call: impl FnMut() -> Result<T, Failure>) -> Result<T, Failure> {
    loop {
        match call() {
            Err(Failure::Busy) => thread::yield_now(),
            result => return result,
        }
    }
}

/// A snapshot that was begun.
struct Taken {
    beginning: Beginning,
    tables: Vec<Arc<Table>>,
}

fn begin(tables: &[&Arc<Table>]) -> Result<Taken, Failure> {
    let guard = epoch::pin();
    let sources: Vec<Handle<'_>> = tables.iter().map(|table| table.by_identifier(&guard)).collect();
    match begin_snapshot(&guard, &sources)? {
        Begun::Taken(beginning, tables) => Ok(Taken {
            beginning,
            tables: tables.into_iter().map(Arc::new).collect(),
        }),
        Begun::Beside(other) => {
            drop(guard);
            other.finish()?;
            Err(Failure::Busy)
        }
    }
}

fn held_back(snapshot: &Table) -> usize {
    let guard = epoch::pin();
    snapshot.by_identifier(&guard).bytes()
}

fn held_size(snapshot: &Table) -> usize {
    let guard = epoch::pin();
    snapshot.by_identifier(&guard).size()
}

fn finish(taken: &Taken) -> Result<bool, Failure> {
    taken.beginning.finish(&taken.tables)
}

fn is_of(taken: &Taken, tables: &[&Arc<Table>]) -> bool {
    let guard = epoch::pin();
    let mut pairs = taken.tables.iter().zip(tables);
    pairs.all(|(snapshot, table)| is_snapshot_of(snapshot, table.by_identifier(&guard)))
}

/// Takes a snapshot of all tables, as the caller of the two steps does.
fn snapshot(tables: &[&Arc<Table>]) -> Vec<Arc<Table>> {
    loop {
        let taken = patiently(|| begin(tables)).unwrap();
        if patiently(|| finish(&taken)).unwrap() && is_of(&taken, tables) {
            return taken.tables;
        }
    }
}

/// Half of the keys are immediates.
fn key(number: i64) -> Value {
    match number % 2 {
        0 => Value::Int(number),
        _ => Value::Tuple(vec![Value::Int(number), Value::Binary(vec![7; 40])]),
    }
}

fn object(number: i64, value: i64) -> [Value; 3] {
    [key(number), Value::Int(value), Value::Int(0)]
}

fn insert(table: &Table, number: i64, value: i64) {
    let guard = epoch::pin();
    patiently(|| {
        with_object(&object(number, value), |object| {
            table.by_identifier(&guard).insert(object)
        })
    })
    .unwrap();
}

fn delete(table: &Table, number: i64) {
    let guard = epoch::pin();
    with_key(&key(number), |term| {
        patiently(|| table.by_identifier(&guard).delete(&table.probe(term)))
    })
    .unwrap();
}

/// Adds one to the third element, in place.
fn count(table: &Table, number: i64) -> Option<i64> {
    let guard = epoch::pin();
    let addition = Addition {
        position: 3,
        increment: 1,
        limit: None,
    };
    with_key(&key(number), |term| {
        let probe = table.probe(term);
        let mut words = Words::new();
        match patiently(|| table.by_identifier(&guard).add_all(&probe, &[addition], &mut words)) {
            Ok(true) => cats_term::TermRef::immediate(words[0]).small(),
            Ok(false) => None,
            Err(failure) => panic!("{failure:?}"),
        }
    })
}

fn clear(table: &Table) {
    let guard = epoch::pin();
    patiently(|| table.by_identifier(&guard).delete_all_objects(&World::default())).unwrap();
}

/// No object.
const NONE: i64 = -1;

/// Second and third element of the objects found, as one number.
fn number(found: &Objects<'_>) -> i64 {
    let Some(object) = found.as_slice().first() else {
        return NONE;
    };
    let [value, times] = [1, 2].map(|index| object.element(index).small().unwrap());
    value | times << 32
}

fn read(table: &Table, number_of_key: i64) -> i64 {
    let guard = epoch::pin();
    with_key(&key(number_of_key), |term| {
        let mut found = Objects::none();
        patiently(|| table.by_identifier(&guard).lookup(&table.probe(term), &mut found)).unwrap();
        number(&found)
    })
}

fn reap(registry: &'static Registry) {
    registry.reap(&World::default(), Duration::from_millis(1));
}

const KINDS: [Kind; 2] = [Kind::Set, Kind::OrderedSet];

/// What is written before the instant is in the snapshot, and what is written after it is not.
#[test]
fn a_writer_at_each_step() {
    for kind in KINDS {
        let table = table(registry(), kind);
        (1..=4).for_each(|number| insert(&table, number, 1));
        let write = |value| {
            insert(&table, 1, value);
            insert(&table, 2, value);
            count(&table, 2);
            delete(&table, 3);
            insert(&table, 10 + value, value);
        };
        write(2);
        let taken = begin(&[&table]).unwrap();
        write(3);
        insert(&table, 3, 3);
        assert_eq!(patiently(|| finish(&taken)), Ok(true));
        assert!(is_of(&taken, &[&table]));
        let seen = || [1, 2, 3, 4, 12, 13, 14].map(|number| read(&taken.tables[0], number));
        let expected = [3, 3 | 1 << 32, 3, 1, 2, 3, NONE];
        assert_eq!(seen(), expected, "{kind:?}");
        // The first time something is kept, the second time it is found kept.
        for _ in 0..2 {
            write(4);
            assert_eq!(seen(), expected, "{kind:?}");
        }
        let guard = epoch::pin();
        assert_eq!(contents(taken.tables[0].by_identifier(&guard)).len(), 6);
        assert_eq!(taken.tables[0].by_identifier(&guard).size(), 6);
        // Once more makes no difference.
        drop(guard);
        assert_eq!(finish(&taken), Ok(true));
        assert_eq!(held_size(&taken.tables[0]), 6);
    }
}

/// Nothing of a snapshot changes once it is taken, however writers are in the way. And its tables are of one instant: each writer writes
/// the second table before the first.
#[test]
fn beside_writers_that_never_rest() {
    for kind in KINDS {
        let tables = [table(registry(), kind), table(registry(), kind)];
        tables.iter().for_each(|table| insert(table, 1, 0));
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for value in (1..).take_while(|_| !done.load(Ordering::Relaxed)) {
                    insert(&tables[1], 1, value);
                    insert(&tables[0], 1, value);
                }
            });
            let (_done, since) = (SetAtEnd(&done), Instant::now());
            while since.elapsed() < Duration::from_secs(1) {
                let taken = snapshot(&[&tables[0], &tables[1]]);
                let seen = || [read(&taken[0], 1), read(&taken[1], 1)];
                let [first, second] = seen();
                assert!(first <= second && second <= first + 1, "{first} and {second}");
                thread::yield_now();
                assert_eq!(seen(), [first, second]);
                assert_eq!(held_size(&taken[0]), 1);
            }
        });
    }
}

/// A writer that began before the snapshot did goes on until it ends, and all that it writes is in the snapshot.
#[test]
fn waits_for_a_guard() {
    let table = table(registry(), Kind::Set);
    insert(&table, 1, 1);
    let (go, wait) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        let table = &table;
        scope.spawn(move || {
            let guard = epoch::pin();
            tell.send(()).unwrap();
            wait.recv().unwrap();
            let handle = table.by_identifier(&guard);
            with_object(&object(1, 2), |object| handle.insert(object)).unwrap();
            drop(guard);
            tell.send(()).unwrap();
        });
        told.recv().unwrap();
        let taken = begin(&[table]).unwrap();
        assert_eq!(finish(&taken), Err(Failure::Busy));
        go.send(()).unwrap();
        told.recv().unwrap();
        assert_eq!(patiently(|| finish(&taken)), Ok(true));
        insert(table, 1, 3);
        assert_eq!(read(&taken.tables[0], 1), 2);
    });
}

/// While one snapshot begins no other one does. A snapshot that is given up leaves nothing.
#[test]
fn given_up() {
    let registry = registry();
    for kind in KINDS {
        let [one, other] = [table(registry, kind), table(registry, kind)];
        insert(&one, 1, 1);
        let first = begin(&[&one, &other]).unwrap();
        drop(first);
        insert(&one, 1, 2);
        let second = begin(&[&other, &one]).unwrap();
        insert(&one, 1, 3);
        assert_eq!(patiently(|| finish(&second)), Ok(true));
        insert(&one, 1, 4);
        assert_eq!(read(&second.tables[1], 1), 3);
        drop(second);
        (0..10).for_each(|_| reap(registry));
    }
}

/// Whoever wants a snapshot of a table of which another one begins finishes that one first.
#[test]
fn finished_by_another_taker() {
    for kind in KINDS {
        let [one, other] = [table(registry(), kind), table(registry(), kind)];
        insert(&one, 1, 1);
        let first = begin(&[&one, &other]).unwrap();
        insert(&one, 1, 2);
        let second = snapshot(&[&other]);
        insert(&one, 1, 3);
        insert(&other, 1, 4);
        assert_eq!(finish(&first), Ok(true));
        assert!(is_of(&first, &[&one, &other]));
        assert_eq!(
            [
                read(&first.tables[0], 1),
                read(&first.tables[1], 1),
                read(&second[0], 1)
            ],
            [2, NONE, NONE]
        );
    }
}

/// What released snapshots have kept goes into an older one. They leave the chain when nobody is left who may be between the two.
#[test]
fn merged_when_no_reader_is_left() {
    let registry = registry();
    for kind in KINDS {
        let table = table(registry, kind);
        (1..=3).for_each(|number| insert(&table, number, 0));
        let old = snapshot(&[&table]);
        for value in 1..=3 {
            let between = snapshot(&[&table]);
            insert(&table, value, value);
            drop(between);
        }
        let new = snapshot(&[&table]);
        let held = || {
            (0..20).for_each(|_| reap(registry));
            held_back(&old[0])
        };
        let (go, wait) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let before = thread::scope(|scope| {
            scope.spawn(move || {
                let _guard = epoch::pin();
                tell.send(()).unwrap();
                wait.recv().unwrap();
            });
            told.recv().unwrap();
            let before = held();
            go.send(()).unwrap();
            before
        });
        // Guards of other tests may keep nodes for a while.
        let leaves = (0..10_000).any(|_| {
            thread::sleep(Duration::from_millis(1));
            held() < before
        });
        assert!(leaves, "nothing has left the chain");
        assert_eq!([1, 2, 3].map(|number| read(&old[0], number)), [0; 3]);
        assert_eq!([1, 2, 3].map(|number| read(&new[0], number)), [1, 2, 3]);
    }
}

/// A table that is emptied before the instant has other contents than the snapshot.
#[test]
fn emptied_before_the_instant() {
    let [one, other] = [table(registry(), Kind::Set), table(registry(), Kind::OrderedSet)];
    insert(&one, 1, 1);
    let taken = begin(&[&one, &other]).unwrap();
    clear(&one);
    insert(&one, 1, 2);
    assert_eq!(patiently(|| finish(&taken)), Ok(true));
    assert!(!is_of(&taken, &[&one, &other]));
    assert_eq!(read(&snapshot(&[&other, &one])[1], 1), 2);
}

#[test]
fn of_what_has_none() {
    let table = table(registry(), Kind::Bag);
    let taken = snapshot(&[&table]);
    let guard = epoch::pin();
    let again = begin_snapshot(&guard, &[taken[0].by_identifier(&guard)]);
    assert!(matches!(again, Err(Failure::Bad(Cause::Snapshot))));
}

/// A hash table and a tree, with four keys each. A key of the history is one of the first, or 4 more.
struct Pair([Arc<Table>; 2]);

const KEYS: i64 = 8;
/// Means that a key is not changed.
const KEEP: i64 = -3;

impl Pair {
    fn of(&self, rank: i64) -> (&Arc<Table>, i64) {
        (&self.0[rank as usize / 4], rank % 4 + 1)
    }
}

struct Recorder<'a> {
    pair: &'a Pair,
    thread: usize,
    state: u64,
    since: Instant,
    values: i64,
    calls: String,
}

impl Recorder<'_> {
    fn below(&mut self, limit: i64) -> i64 {
        // Xorshift.
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 8) as i64 % limit
    }

    /// A value that occurs only once in a history.
    fn fresh(&mut self) -> i64 {
        self.values += 1;
        (self.thread as i64 + 1) << 20 | self.values
    }

    /// Records a call. It returns what was seen, and when it ended if that was earlier than now.
    fn record(
        &mut self,
        name: &str,
        keys: Vec<i64>,
        new: Vec<i64>,
        call: impl FnOnce(&Pair) -> (Vec<i64>, Option<Instant>),
    ) {
        let begin = self.since.elapsed().as_nanos();
        let (seen, ended) = call(self.pair);
        let ended = ended.unwrap_or_else(Instant::now);
        let end = ended.duration_since(self.since).as_nanos();
        let separator = if self.calls.is_empty() { "" } else { "," };
        let thread = self.thread;
        write!(
            self.calls,
            "{separator}{{\"thread\":{thread},\"begin\":{begin},\"end\":{end},\"name\":\"{name}\",\"keys\":{keys:?},\"new\":{new:?},\
             \"seen\":{seen:?}}}"
        )
        .unwrap();
    }

    fn one(&mut self) {
        let rank = self.below(KEYS);
        match self.below(5) {
            0 => self.record("get", vec![rank], vec![], |pair| {
                let (table, key) = pair.of(rank);
                (vec![read(table, key)], None)
            }),
            1 => {
                let new = self.fresh();
                self.record("leave", vec![rank], vec![new], |pair| {
                    let (table, key) = pair.of(rank);
                    insert(table, key, new);
                    (vec![], None)
                })
            }
            2 => self.record("leave", vec![rank], vec![NONE], |pair| {
                let (table, key) = pair.of(rank);
                delete(table, key);
                (vec![], None)
            }),
            3 => self.record("swap", vec![rank], vec![NONE], |pair| {
                let (table, number_of_key) = pair.of(rank);
                let (guard, mut taken) = (epoch::pin(), Objects::none());
                with_key(&key(number_of_key), |term| {
                    let probe = table.probe(term);
                    patiently(|| table.by_identifier(&guard).take(&probe, Budget(1000), &mut taken)).unwrap();
                });
                (vec![number(&taken)], None)
            }),
            _ => self.record("count", vec![rank], vec![], |pair| {
                let (table, key) = pair.of(rank);
                (vec![count(table, key).unwrap_or(NONE)], None)
            }),
        }
    }

    /// A list into one table.
    fn list(&mut self) {
        let first = self.below(2) * 4;
        let ranks: Vec<i64> = (first..first + 4).filter(|_| self.below(2) == 0).collect();
        let new: Vec<i64> = ranks.iter().map(|_| self.fresh()).collect();
        let (keys, written) = (ranks.clone(), new.clone());
        self.record("many", keys, written, |pair| {
            let guard = epoch::pin();
            let table = &pair.0[first as usize / 4];
            let handle = table.by_identifier(&guard);
            patiently(|| {
                let made: Vec<_> = ranks
                    .iter()
                    .zip(&new)
                    .map(|(rank, new)| object(rank % 4 + 1, *new))
                    .collect();
                let words: Vec<_> = made.iter().map(|elements| immediates(elements)).collect();
                let objects = made
                    .iter()
                    .zip(&words)
                    .map(|(elements, words)| match elements[0].immediate() {
                        Some(_) => Ok::<_, Failure>(Object::flat(words)),
                        None => Ok(Object::in_block(words, block(elements))),
                    });
                handle.insert_list(objects, false, Request::Fresh)
            })
            .unwrap();
            (vec![], None)
        });
    }

    /// Empties a table.
    fn clear(&mut self) {
        let first = self.below(2) * 4;
        self.record("many", (first..first + 4).collect(), vec![NONE; 4], |pair| {
            clear(&pair.0[first as usize / 4]);
            (vec![], None)
        });
    }

    /// Reads keys of both tables and writes some of them.
    fn transact(&mut self) {
        let ranks: Vec<i64> = (0..KEYS).filter(|_| self.below(3) == 0).collect();
        let new: Vec<i64> = (0..ranks.len())
            .map(|_| match self.below(4) {
                0 => KEEP,
                1 => NONE,
                _ => self.fresh(),
            })
            .collect();
        let (keys, written) = (ranks.clone(), new.clone());
        self.record("many", keys, written, |pair| loop {
            let guard = epoch::pin();
            let mut reads = Reads::none();
            let mut seen = Vec::new();
            let terms: Vec<_> = ranks.iter().map(|rank| block(&[key(pair.of(*rank).1)])).collect();
            for (rank, term) in ranks.iter().zip(&terms) {
                let (table, mut found) = (pair.of(*rank).0, Objects::none());
                let probe = table.probe(term.as_ref().element(0));
                patiently(|| table.by_identifier(&guard).lookup_in(&mut reads, &probe, &mut found)).unwrap();
                seen.push(number(&found));
            }
            let mut writes = Writes::none();
            for ((rank, term), new) in ranks.iter().zip(&terms).zip(&new) {
                let (table, key) = pair.of(*rank);
                let handle = table.by_identifier(&guard);
                match *new {
                    KEEP => (),
                    NONE => writes
                        .delete(handle, table.probe(term.as_ref().element(0)), None)
                        .unwrap(),
                    new => with_object(&object(key, new), |object| writes.put(handle, object, None)).unwrap(),
                }
            }
            if matches!(writes.commit(&guard, &mut reads, SHORT, all_hold), Ok(Committed::Done)) {
                return (seen, None);
            }
        });
    }

    /// Takes a snapshot of both tables, or of one, and reads all of it some time later.
    fn snapshot(&mut self) {
        let which = self.below(3);
        let (walk, later) = (self.below(2) == 0, self.below(4) as u32);
        let ranks: Vec<i64> = match which {
            0 => (0..4).collect(),
            1 => (4..8).collect(),
            _ => (0..8).collect(),
        };
        let keep = vec![KEEP; ranks.len()];
        self.record("many", ranks.clone(), keep, |pair| {
            let tables: Vec<&Arc<Table>> = match which {
                0 => vec![&pair.0[0]],
                1 => vec![&pair.0[1]],
                _ => vec![&pair.0[1], &pair.0[0]],
            };
            let mut taken = snapshot(&tables);
            let ended = Instant::now();
            if which == 2 {
                taken.reverse();
            }
            for _ in 0..later {
                thread::yield_now();
            }
            let of = |rank: i64| &taken[if which == 2 { rank as usize / 4 } else { 0 }];
            let seen = match walk {
                false => ranks.iter().map(|rank| read(of(*rank), rank % 4 + 1)).collect(),
                true => {
                    let guard = epoch::pin();
                    let all: Vec<Vec<Elements>> = taken
                        .iter()
                        .map(|table| contents(table.by_identifier(&guard)))
                        .collect();
                    let at = |rank: i64| &all[if which == 2 { rank as usize / 4 } else { 0 }];
                    let value = |elements: &Elements| match (&elements[1], &elements[2]) {
                        (Value::Int(value), Value::Int(times)) => value | times << 32,
                        other => panic!("{other:?}"),
                    };
                    let find = |rank: &i64| at(*rank).iter().find(|elements| elements[0] == key(rank % 4 + 1));
                    ranks.iter().map(|rank| find(rank).map_or(NONE, value)).collect()
                }
            };
            (seen, Some(ended))
        });
    }

    fn any(&mut self) {
        match self.below(20) {
            0..9 => self.one(),
            9..11 => self.list(),
            11..14 => self.transact(),
            14 => self.clear(),
            _ => self.snapshot(),
        }
    }
}

/// Records histories of snapshots beside other calls, for `test/linearizability`.
#[test]
#[ignore = "run by scripts/linearizability"]
fn histories() {
    const THREADS: usize = 3;
    let Some(directory) = std::env::var_os("CATS_HISTORIES") else {
        return;
    };
    let rounds = std::env::var("CATS_ROUNDS").map_or(100, |rounds| rounds.parse().expect("a number of rounds"));
    let path = std::path::PathBuf::from(directory).join("table.snapshots.jsonl");
    let mut file = std::io::BufWriter::new(std::fs::File::create(path).expect("a file for histories"));
    let registry = registry();
    for round in 0..rounds {
        let pair = Pair(KINDS.map(|kind| table(registry, kind)));
        let (done, since) = (AtomicBool::new(false), Instant::now());
        let calls: Vec<String> = thread::scope(|scope| {
            let (pair, done) = (&pair, &done);
            let recorders: Vec<_> = (0..THREADS)
                .map(|thread| {
                    scope.spawn(move || {
                        let mut recorder = Recorder {
                            pair,
                            thread,
                            state: 0x9e37_79b9 * ((round * THREADS + thread) as u64 + 1),
                            since,
                            values: 0,
                            calls: String::new(),
                        };
                        (0..50).for_each(|_| recorder.any());
                        recorder.calls
                    })
                })
                .collect();
            // Other keys, with which the tables grow and shrink. And the reaper.
            let others = scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    for table in &pair.0 {
                        (100..300).for_each(|key| insert(table, key, 1));
                        (100..300).for_each(|key| delete(table, key));
                    }
                    reap(registry);
                }
            });
            let calls = recorders.into_iter().map(|thread| thread.join().unwrap()).collect();
            done.store(true, Ordering::Relaxed);
            others.join().unwrap();
            calls
        });
        let keys: Vec<i64> = (0..KEYS).collect();
        writeln!(
            file,
            "{{\"kind\":\"snapshots\",\"keys\":{keys:?},\"calls\":[{}]}}",
            calls.join(",")
        )
        .expect("room for histories");
    }
}
