//! Histories for the linearizability checker in `test/linearizability`: the calls of several threads to an engine, when
//! each call began and ended, and its result.
//!
//! An engine's conformance suite records them (`make linearizability`). It writes them into the directory
//! `CATS_HISTORIES`, as a file for each engine and a line of JSON for each history. `CATS_ROUNDS` sets their number.
//! Meanwhile another thread fills and empties the engine with other keys. So the engine grows and shrinks, and splits
//! and joins.
//!
//! A key is recorded as its rank in the engine's traversal order. A step of a traversal may find a key of the history
//! or another key. Either result shows which keys of the history were absent: those in between.

#[cfg(test)]
use crate::structures::ca::Ca;
use crate::testing::conformance::{decode, entry, patiently, retire, touch, touched, Map, Random, TestKey, TestSchema};
use crate::testing::transactions::{transact, Then};
use crate::{Engine, Entry, Marked, OrderedEngine, Range, Step};
use cats_sync::epoch::{self, Guard};
use std::cell::Cell;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Instant;

/// The number of threads that are recorded.
const THREADS: usize = 3;
/// The number of keys that a history uses, and the first of them. They have all kinds of key words.
const KEYS: u64 = 6;
const FIRST: u64 = 1001;
/// The number of the other keys. Some are below, some above.
const OTHERS: u64 = 400;
/// Means no key and no value.
const NONE: i64 = -1;
/// The rank behind the last key.
const END: i64 = i64::MAX >> 16;

/// The number of the other key `n`.
fn other(n: u64) -> u64 {
    if n < OTHERS / 2 {
        n
    } else {
        FIRST + 100 + n
    }
}

/// The ranks of all numbers, found by a walk when all are present.
struct Ranks(HashMap<u64, i64>);

impl Ranks {
    fn of<E: Engine<TestSchema>>(map: &Map<E>) -> Self {
        let all = || (FIRST..FIRST + KEYS).chain((0..OTHERS).map(other));
        all().for_each(|number| map.put(number, 0));
        let ranks = map.walk().into_iter().zip(0..).collect();
        all().for_each(|number| map.remove(number));
        Self(ranks)
    }

    fn rank(&self, number: u64) -> i64 {
        self.0[&number]
    }
    /// Whether the number is a key of the history.
    fn is_key(number: u64) -> bool {
        (FIRST..FIRST + KEYS).contains(&number)
    }
}

/// Sometimes delays, in the middle of a closure, so that calls overlap.
fn delay() {
    thread_local! {
        static CALLS: Cell<u32> = const { Cell::new(0) };
    }
    let calls = CALLS.replace(CALLS.get().wrapping_add(1));
    if calls % 64 == 63 {
        std::thread::yield_now();
    } else if calls % 8 == 7 {
        (0..200).for_each(|_| std::hint::spin_loop());
    }
}

/// A value as recorded in histories: what the object was made with, and how often it was touched since. It is -2 if it
/// was torn.
fn value(entry: Option<Entry>) -> i64 {
    let Some(entry) = entry else { return NONE };
    let before = touched(entry);
    delay();
    match (decode(entry), touched(entry)) {
        (Some((_, value)), Some(times)) if before == Some(times) => i64::from(value) | (times as i64) << 32,
        _ => -2,
    }
}

/// One call and its result, as the checker reads them.
struct Call {
    thread: usize,
    begin: u128,
    end: u128,
    name: &'static str,
    /// The ranks of the call's keys, and for each the value to write (`NONE` to remove, `KEEP` to leave).
    keys: Vec<i64>,
    new: Vec<i64>,
    /// The values seen, or ranks and values in turn. For a range, also the rank up to which it is complete, both ends
    /// exclusive.
    seen: Vec<i64>,
    bound: i64,
}

/// Leaves a key of `many` unchanged.
const KEEP: i64 = -3;

/// Carries out a step for which nobody waits, on the place of an entry, and retires what it replaces.
pub type Leave<E> = fn(&E, &Guard, Step, Entry);

struct Recorder<'a, E: Engine<TestSchema>> {
    map: &'a Map<E>,
    leave: Option<Leave<E>>,
    ranks: &'a Ranks,
    thread: usize,
    random: Random,
    since: Instant,
    values: u32,
    calls: Vec<Call>,
}

impl<E: Engine<TestSchema>> Recorder<'_, E> {
    fn number(&mut self) -> u64 {
        FIRST + self.random.below(KEYS)
    }

    /// A value that occurs only once in a history.
    fn fresh(&mut self) -> u32 {
        self.values += 1;
        (self.thread as u32 + 1) << 20 | self.values
    }

    fn record(
        &mut self,
        name: &'static str,
        keys: Vec<i64>,
        new: Vec<i64>,
        call: impl FnOnce(&Map<E>, &Ranks) -> (Vec<i64>, i64),
    ) {
        let begin = self.since.elapsed().as_nanos();
        let (seen, bound) = call(self.map, self.ranks);
        let end = self.since.elapsed().as_nanos();
        let thread = self.thread;
        self.calls.push(Call {
            thread,
            begin,
            end,
            name,
            keys,
            new,
            seen,
            bound,
        });
    }

    fn get(&mut self) {
        let number = self.number();
        let rank = self.ranks.rank(number);
        self.record("get", vec![rank], vec![], |map, _| {
            let (guard, key) = (epoch::pin(), TestKey::new(number));
            (vec![patiently(|| map.0.read(&guard, &key, value))], 0)
        });
    }

    /// Writes a value, or removes it.
    fn swap(&mut self, remove: bool) {
        let number = self.number();
        let rank = self.ranks.rank(number);
        let new = if remove { None } else { Some(self.fresh()) };
        let written = new.map_or(NONE, i64::from);
        self.record("swap", vec![rank], vec![written], |map, _| {
            let (guard, key) = (epoch::pin(), TestKey::new(number));
            let (seen, old) = patiently(|| match new {
                Some(new) => map
                    .0
                    .update(&guard, &key, |old| (Step::Put(entry(&key, new)), (value(old), old))),
                None => {
                    let removed = map
                        .0
                        .update_present(&guard, &key, |old| (Step::Remove, Some((value(Some(old)), Some(old)))));
                    removed.map(|removed| removed.unwrap_or((NONE, None)))
                }
            });
            old.into_iter().for_each(|old| retire(&guard, old));
            (vec![seen], 0)
        });
    }

    /// Writes a value, or removes it, without waiting for the result if the engine can.
    fn write(&mut self, remove: bool) {
        let Some(leave) = self.leave else {
            return self.swap(remove);
        };
        let number = self.number();
        let rank = self.ranks.rank(number);
        let new = if remove { None } else { Some(self.fresh()) };
        let key = TestKey::new(number);
        self.record("leave", vec![rank], vec![new.map_or(NONE, i64::from)], |map, _| {
            let guard = epoch::pin();
            let place = entry(&key, new.unwrap_or_default());
            leave(&map.0, &guard, new.map_or(Step::Remove, |_| Step::Put(place)), place);
            if remove {
                retire(&guard, place);
            }
            (vec![], 0)
        });
    }

    /// Changes what an entry points to.
    fn touch(&mut self) {
        let number = self.number();
        let rank = self.ranks.rank(number);
        let key = TestKey::new(number);
        let hashed = i64::from(key.word & 3 == 0);
        self.record("touch", vec![rank], vec![hashed], |map, _| {
            let guard = epoch::pin();
            let seen = patiently(|| {
                map.0.update(&guard, &key, |old| {
                    let touched = old.is_some_and(touch);
                    (if touched { Step::Touch } else { Step::Keep }, value(old))
                })
            });
            (vec![seen], 0)
        });
    }

    /// Reads and writes several keys together.
    fn many(&mut self) {
        let count = 2 + self.random.below(2) as usize;
        let numbers: Vec<u64> = (0..count).map(|_| self.number()).collect();
        let new: Vec<i64> = (0..count)
            .map(|_| match self.random.below(4) {
                0 => NONE,
                1 => KEEP,
                _ => i64::from(self.fresh()),
            })
            .collect();
        let keys = numbers.iter().map(|&number| self.ranks.rank(number)).collect();
        let written = new.clone();
        self.record("many", keys, written, |map, _| {
            let guard = epoch::pin();
            let keys: Vec<TestKey> = numbers.iter().map(|&number| TestKey::new(number)).collect();
            let probes: Vec<&TestKey> = keys.iter().collect();
            let (seen, garbage) = patiently(|| {
                map.0.update_many(&guard, &probes, |locked| {
                    let mut garbage = Vec::new();
                    let mut seen = Vec::new();
                    for (i, &new) in new.iter().enumerate() {
                        locked.update(i, &mut |old| {
                            seen.push(value(old));
                            if new == KEEP {
                                return Step::Keep;
                            }
                            garbage.extend(old);
                            u32::try_from(new).map_or(Step::Remove, |new| Step::Put(entry(&keys[i], new)))
                        });
                    }
                    (seen, garbage)
                })
            });
            garbage.into_iter().for_each(|old| retire(&guard, old));
            (seen, 0)
        });
    }

    /// A key to start at, or none to start at the end.
    fn start(&mut self) -> (Option<TestKey>, Vec<i64>) {
        match self.random.below(KEYS + 1) {
            KEYS => (None, vec![NONE]),
            n => (Some(TestKey::new(FIRST + n)), vec![self.ranks.rank(FIRST + n)]),
        }
    }

    fn next(&mut self) {
        let (after, keys) = self.start();
        self.record("next", keys, vec![], |map, ranks| {
            let guard = epoch::pin();
            let found = patiently(|| map.0.next(&guard, after.as_ref(), |found| shown(ranks, found, END)));
            (found, 0)
        });
    }

    /// A call on one key.
    fn one(&mut self) {
        match self.random.below(10) {
            0..3 => self.get(),
            3..5 => self.swap(false),
            5 => self.write(false),
            6 => self.swap(true),
            7 => self.write(true),
            _ => self.touch(),
        }
    }

    fn any(&mut self) {
        match self.random.below(10) {
            0..5 => self.one(),
            5..7 => self.many(),
            _ => self.next(),
        }
    }
}

impl<E: OrderedEngine<TestSchema>> Recorder<'_, E> {
    fn prev(&mut self) {
        let (before, keys) = self.start();
        self.record("prev", keys, vec![], |map, ranks| {
            let guard = epoch::pin();
            let found = patiently(|| map.0.prev(&guard, before.as_ref(), |found| shown(ranks, found, NONE)));
            (found, 0)
        });
    }

    fn range(&mut self) {
        let (from, keys) = self.start();
        let down = self.random.below(2) == 0;
        let inclusive = self.random.below(2) == 0;
        let limit = 1 + self.random.below(KEYS) as usize;
        let name = match (down, inclusive) {
            (false, false) => "above",
            (false, true) => "from",
            (true, false) => "below",
            (true, true) => "down_from",
        };
        self.record(name, keys, vec![], |map, ranks| {
            let guard = epoch::pin();
            let mut all = Vec::new();
            let range = Range {
                from: from.as_ref().map(|key| (key, inclusive)),
                to: None,
                down,
            };
            let more = patiently(|| {
                all.clear();
                map.0.range(&guard, range, limit, &mut all, |entry, out| {
                    out.push((decode(entry), value(Some(entry))))
                })
            });
            let found: Vec<(u64, i64)> = all
                .into_iter()
                .map(|(decoded, value)| (decoded.expect("no torn read").0, value))
                .collect();
            let end = if down { NONE } else { END };
            let bound = match found.last() {
                Some(last) if more => ranks.rank(last.0) + if down { -1 } else { 1 },
                // The result says nothing about it.
                None if more => KEEP,
                _ => end,
            };
            let seen = found
                .into_iter()
                .filter(|found| Ranks::is_key(found.0))
                .flat_map(|(number, value)| [ranks.rank(number), value])
                .collect();
            (seen, bound)
        });
    }

    fn any_ordered(&mut self) {
        match self.random.below(10) {
            0..3 => self.one(),
            3..5 => self.many(),
            5..6 => self.next(),
            6..7 => self.prev(),
            _ => self.range(),
        }
    }
}

impl<E: Marked<TestSchema>> Recorder<'_, E> {
    /// Reads several keys and writes some of them, as a transaction. For the checker this is one operation on many keys.
    fn transact(&mut self) {
        let first = self.random.below(KEYS);
        let count = 1 + self.random.below(4);
        let numbers: Vec<u64> = (0..count).map(|n| FIRST + (first + n) % KEYS).collect();
        let then: Vec<Then> = numbers
            .iter()
            .map(|_| match self.random.below(4) {
                0 => Then::Remove,
                1 => Then::Put(self.fresh()),
                _ => Then::Keep,
            })
            .collect();
        let new = then.iter().map(|then| match then {
            Then::Keep => KEEP,
            Then::Put(value) => i64::from(*value),
            Then::Remove => NONE,
        });
        let keys = numbers.iter().map(|&number| self.ranks.rank(number)).collect();
        self.record("many", keys, new.collect(), |map, _| {
            (transact(map, &numbers, value, |_| then.clone()), 0)
        });
    }

    fn any_in_transactions(&mut self) {
        match self.random.below(10) {
            0..3 => self.one(),
            3..4 => self.many(),
            _ => self.transact(),
        }
    }
}

#[cfg(test)]
impl Recorder<'_, Ca<TestSchema>> {
    /// Reads all keys above one, in one state.
    fn range_marked(&mut self) {
        let (from, keys) = self.start();
        self.record("above", keys, vec![], |map, ranks| {
            let guard = epoch::pin();
            loop {
                let (mut all, mut marks) = (Vec::new(), Vec::new());
                let read = map.0.range_marked(
                    &guard,
                    Range::above(from.as_ref()),
                    usize::MAX,
                    &mut all,
                    &mut marks,
                    |entry, out| out.push((decode(entry), value(Some(entry)))),
                );
                if read.is_ok() && marks.iter().all(crate::Mark::holds) {
                    let found = all
                        .into_iter()
                        .map(|(decoded, value)| (decoded.expect("one state").0, value));
                    let seen = found
                        .filter(|found| Ranks::is_key(found.0))
                        .flat_map(|(number, value)| [ranks.rank(number), value]);
                    return (seen.collect(), END);
                }
            }
        });
    }

    fn any_in_ordered_transactions(&mut self) {
        match self.random.below(4) {
            0 => self.range_marked(),
            _ => self.any_in_transactions(),
        }
    }
}

/// The rank and value of what a step of a traversal found. `end` if it found nothing.
fn shown(ranks: &Ranks, found: Option<Entry>, end: i64) -> Vec<i64> {
    match found.map(|entry| (decode(entry), value(Some(entry)))) {
        None => vec![end, NONE],
        Some((Some((number, _)), value)) if Ranks::is_key(number) => vec![ranks.rank(number), value],
        Some((Some((number, _)), _)) => vec![ranks.rank(number), NONE],
        // The read should have been repeated. If it was not, the checker detects it.
        Some((None, _)) => vec![end, -2],
    }
}

/// The output file for the histories of an engine. `None` if no histories are wanted.
fn output(engine: &str, kind: &str) -> Option<(BufWriter<File>, usize)> {
    let directory = PathBuf::from(std::env::var_os("CATS_HISTORIES")?);
    let engine = engine.replace("::tests", "").replace("::", ".");
    let file = File::create(directory.join(format!("{engine}.{kind}.jsonl"))).expect("a file for histories");
    let rounds = std::env::var("CATS_ROUNDS").map_or(100, |rounds| rounds.parse().expect("a number of rounds"));
    Some((BufWriter::new(file), rounds))
}

/// Records histories with `length` calls for each thread.
fn record<E: Engine<TestSchema>>(
    make: &dyn Fn() -> E,
    engine: &str,
    kind: &str,
    length: usize,
    leave: Option<Leave<E>>,
    call: &(dyn Fn(&mut Recorder<'_, E>) + Sync),
) {
    let Some((mut file, rounds)) = output(engine, kind) else {
        return;
    };
    let map = Map(make());
    let ranks = Ranks::of(&map);
    for round in 0..rounds {
        (FIRST..FIRST + KEYS).for_each(|number| map.remove(number));
        let (ready, done) = (AtomicUsize::new(0), AtomicBool::new(false));
        let since = Instant::now();
        let calls = std::thread::scope(|scope| {
            let recorders: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (map, ranks, ready) = (&map, &ranks, &ready);
                    scope.spawn(move || {
                        let random = Random(0x9e37_79b9 * ((round * THREADS + thread) as u64 + 1));
                        let mut recorder = Recorder {
                            map,
                            leave,
                            ranks,
                            thread,
                            random,
                            since,
                            values: 0,
                            calls: Vec::with_capacity(length),
                        };
                        ready.fetch_add(1, SeqCst);
                        while ready.load(SeqCst) < THREADS {
                            std::thread::yield_now();
                        }
                        (0..length).for_each(|_| call(&mut recorder));
                        recorder.calls
                    })
                })
                .collect();
            let others = scope.spawn(|| {
                while !done.load(SeqCst) {
                    (0..OTHERS).for_each(|n| map.put(other(n), 1));
                    (0..OTHERS).for_each(|n| map.remove(other(n)));
                }
            });
            let calls: Vec<Call> = recorders
                .into_iter()
                .flat_map(|thread| thread.join().unwrap())
                .collect();
            done.store(true, SeqCst);
            others.join().unwrap();
            calls
        });
        let keys = (FIRST..FIRST + KEYS).map(|number| ranks.rank(number)).collect();
        writeln!(file, "{}", line(kind, keys, &calls)).expect("room for histories");
    }
}

fn line(kind: &str, keys: Vec<i64>, calls: &[Call]) -> String {
    let mut line = format!("{{\"kind\":\"{kind}\",\"keys\":{keys:?},\"calls\":[");
    for (i, call) in calls.iter().enumerate() {
        let separator = if i == 0 { "" } else { "," };
        write!(
            line,
            "{separator}{{\"thread\":{},\"begin\":{},\"end\":{},\"name\":\"{}\",\"keys\":{:?},\"new\":{:?},\"seen\":{:?},\"bound\":{}}}",
            call.thread, call.begin, call.end, call.name, call.keys, call.new, call.seen, call.bound
        )
        .expect("memory");
    }
    line + "]}"
}

/// Records calls on single keys, which are checked key by key, and then calls of all kinds.
pub fn histories<E: Engine<TestSchema>>(make: impl Fn() -> E, engine: &str, leave: Option<Leave<E>>) {
    record(&make, engine, "one", 300, leave, &|recorder| recorder.one());
    record(&make, engine, "any", 60, None, &|recorder| recorder.any());
}

/// Records calls of all kinds on an ordered engine.
pub fn ordered_histories<E: OrderedEngine<TestSchema>>(make: impl Fn() -> E, engine: &str) {
    record(&make, engine, "ordered", 60, None, &|recorder| recorder.any_ordered());
}

/// Records transactions, with calls of other kinds beside them.
pub fn histories_of_transactions<E: Marked<TestSchema>>(make: impl Fn() -> E, engine: &str) {
    record(&make, engine, "transactions", 60, None, &|recorder| {
        recorder.any_in_transactions()
    });
}

/// The same, with ranges. Not for other crates, for which it would be compiled once more.
#[cfg(test)]
pub fn histories_of_ordered_transactions(make: impl Fn() -> Ca<TestSchema>, engine: &str) {
    record(&make, engine, "ordered_transactions", 60, None, &|recorder| {
        recorder.any_in_ordered_transactions()
    });
}
