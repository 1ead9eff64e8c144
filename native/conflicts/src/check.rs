//! Checks all pairs of calls on tables in all states. Each state has a process of its own, so that what one leaves does not disturb another.

use crate::model::{Call, Kind, Model};
use crate::owner;
use crate::step::{self, Answer, Reader, Trace, LINE};
use crate::table::{plant, registry, Form, Subject};
use cats_table::EngineName;
use serde_json::{json, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::process::Command;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;
use std::thread;

/// The state of a table, and how it is called.
#[derive(Clone, Copy)]
struct State {
    engine: EngineName,
    bag: bool,
    form: Form,
    named: bool,
    objects: i64,
}

impl State {
    fn is_ordered(self) -> bool {
        self.engine.kinds().contains(&cats_table::Kind::OrderedSet)
    }
}

/// Numbers of keys: none, a few, as many as are half-way between two sizes of a growing table, and many.
const SIZES: [(&str, i64); 4] = [("empty", 0), ("small", 30), ("growing", 700), ("large", 1500)];

fn states() -> Vec<State> {
    let mut states = Vec::new();
    for (engine, bag) in [
        (EngineName::Hash, false),
        (EngineName::Hash, true),
        (EngineName::Ca, false),
        (EngineName::LinearHash, false),
        (EngineName::CaAvl, false),
        (EngineName::Avl, false),
    ] {
        let is_default = matches!(engine, EngineName::Hash | EngineName::Ca);
        for form in [Form::Pair, Form::Triple, Form::Changed] {
            if form == Form::Changed && bag || !is_default && form != Form::Pair {
                continue;
            }
            for (_, objects) in SIZES {
                for named in [false, true] {
                    if !named || is_default && form == Form::Pair {
                        states.push(State {
                            engine,
                            bag,
                            form,
                            named,
                            objects,
                        });
                    }
                }
            }
        }
    }
    states
}

/// How the keys of two calls lie to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Relation {
    SameKey,
    /// Different keys, in one bucket, leaf, or whatever else has one lock.
    SamePlace,
    /// In buckets whose heads share a cache line, or in leaves that follow each other.
    NextPlace,
    /// Inserted one after the other, and otherwise far.
    Beside,
    Far,
    OtherTable,
    /// One of the calls has no key.
    WholeTable,
}

impl Relation {
    fn text(self) -> &'static str {
        match self {
            Self::SameKey => "same key",
            Self::SamePlace => "same place",
            Self::NextPlace => "next place",
            Self::Beside => "inserted beside",
            Self::Far => "far",
            Self::OtherTable => "other table",
            Self::WholeTable => "whole table",
        }
    }
}

/// With a number, checks the state of this number. With `planted` before it, every call also adds to one shared counter, which must be
/// found. Without, checks all states.
pub fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(number) = arguments.last() {
        if arguments[0] == "planted" {
            plant();
        }
        println!(
            "{}",
            check(states()[number.parse::<usize>().expect("the number of a state")])
        );
        return;
    }
    let this = std::env::current_exe().expect("the path of this program");
    for number in 0..states().len() {
        let output = Command::new(&this)
            .arg(number.to_string())
            .output()
            .expect("this program");
        if !output.status.success() {
            eprintln!("state {number}: {}", String::from_utf8_lossy(&output.stderr));
            std::process::exit(1);
        }
        print!("{}", String::from_utf8_lossy(&output.stdout));
    }
}

/// Key number `index` of those in the table. They are even, and neither their order nor their hashes are that of the numbers.
fn key(index: i64) -> i64 {
    index * 48_271 % 65_537 * 2
}

/// A thread that records calls on the tables.
struct Worker {
    calls: Sender<(usize, Call)>,
    done: Receiver<()>,
}

impl Worker {
    /// The thread first makes each kind of call. So what it allocates once is there.
    fn new(tables: Arc<[Subject; 2]>, warm: i64) -> Self {
        let (calls, received) = channel::<(usize, Call)>();
        let (finish, done) = channel();
        thread::spawn(move || {
            for table in tables.iter() {
                for kind in Kind::ALL {
                    if table.is_bag() && kind.needs_one_object() {
                        continue;
                    }
                    // A bag gets as many objects of a key as the recorded calls make.
                    let inserts = [(Kind::Insert, 5), (Kind::Insert, 6), (Kind::Insert, 7)];
                    let inserts = &inserts[..if table.is_bag() { 3 } else { 1 }];
                    for (kind, number) in inserts.iter().copied().chain([(kind, 5), (Kind::Delete, 5)]) {
                        table.call(Call {
                            kind,
                            key: warm,
                            number,
                        });
                    }
                }
            }
            finish.send(()).expect("the checker");
            for (table, call) in received {
                step::record(&|| tables[table].call(call));
                finish.send(()).expect("the checker");
            }
        });
        done.recv().expect("a warm thread");
        Self { calls, done }
    }

    fn record(&self, reader: &mut Reader, table: usize, call: Call) -> Trace {
        self.calls.send((table, call)).expect("the thread");
        self.done.recv().expect("the thread");
        reader.read()
    }
}

/// A recorded call.
struct Recorded {
    call: Call,
    role: Option<Relation>,
    trace: Trace,
}

fn check(state: State) -> Value {
    step::prepare();
    let registry = registry();
    let name = |text| state.named.then_some(text);
    let make = |name| Subject::new(registry, state.engine, state.bag, name, state.form);
    let tables = Arc::new([make(name("one")), make(name("other"))]);
    let present: Vec<i64> = (0..state.objects).map(key).collect();
    let mut objects = BTreeMap::new();
    for table in tables.iter() {
        for key in &present {
            fill(table, state, *key);
            objects.insert(*key, if state.bag { vec![0, 1] } else { vec![0] });
        }
    }
    let workers = [
        Worker::new(tables.clone(), 1_000_001),
        Worker::new(tables.clone(), 1_000_003),
    ];
    let mut reader = Reader::new();
    let mut lock_of = |key| {
        let insert = Call {
            kind: Kind::Insert,
            key,
            number: 9,
        };
        workers[0]
            .record(&mut reader, 0, insert)
            .lock
            .expect("the lock of an insertion")
    };
    let heads = head_bytes(state);
    let relate = |a: u64, b: u64| match a == b {
        true => Relation::SamePlace,
        false if a / LINE <= (b + heads - 1) / LINE && b / LINE <= (a + heads - 1) / LINE => Relation::NextPlace,
        false => Relation::Far,
    };
    // Keys by how they lie to the first one: the keys in the table, and keys that are not there.
    let home = present.first().copied().unwrap_or(1);
    let home_lock = lock_of(home);
    let ordered: BTreeSet<i64> = present.iter().copied().collect();
    let mut roles: BTreeMap<(bool, Relation), (i64, u64)> = BTreeMap::new();
    roles.insert((!present.is_empty(), Relation::SameKey), (home, home_lock));
    let nearby = ordered.range(home + 1..).take(300).copied();
    let candidates: Vec<i64> = nearby
        .chain(present.iter().copied().take(600))
        .filter(|key| *key != home)
        .collect();
    let absent = candidates.iter().map(|key| key + 1).chain((0..40).map(|i| 2 * i + 3));
    let absent: Vec<i64> = [home | 1]
        .into_iter()
        .chain(absent)
        .filter(|key| *key != home)
        .collect();
    for (is_there, keys) in [(true, &candidates), (false, &absent)] {
        let mut before = Relation::SamePlace;
        let wanted = [Relation::SamePlace, Relation::NextPlace, Relation::Far];
        for key in keys.iter() {
            if wanted.iter().all(|relation| roles.contains_key(&(is_there, *relation))) {
                break;
            }
            let lock = lock_of(*key);
            let mut relation = relate(home_lock, lock);
            // In a tree, the first leaf after the home leaf is the next one.
            if state.is_ordered() && before == Relation::SamePlace && relation == Relation::Far {
                relation = Relation::NextPlace;
            }
            before = relation;
            roles.entry((is_there, relation)).or_insert((*key, lock));
        }
    }
    if let Some(key) = present.get(1) {
        let lock = lock_of(*key);
        if relate(home_lock, lock) == Relation::Far {
            roles.insert((true, Relation::Beside), (*key, lock));
        }
    }
    let order = order_of(state, &present, &roles);
    let model = Model::new(state.bag, objects, order);
    let mut traces: [Vec<Recorded>; 3] = Default::default();
    for kind in Kind::ALL {
        // In a hash table, `prev` is `next`, and `last` is `first`.
        let is_twice = !state.is_ordered() && matches!(kind, Kind::Prev | Kind::Last);
        if state.bag && kind.needs_one_object() || is_twice {
            continue;
        }
        let mut keys: Vec<(i64, Option<(bool, Relation)>)> = vec![(home, None)];
        if kind.has_key() {
            keys = roles.iter().map(|(role, (key, _))| (*key, Some(*role))).collect();
        }
        for (key, role) in keys {
            let is_home = role.is_none_or(|(is_there, relation)| match relation {
                Relation::SameKey => true,
                Relation::SamePlace => !is_there,
                _ => false,
            });
            for (list, worker, table) in [(0, 0, 0), (1, 1, 0), (2, 1, 1)] {
                if list == 1 || is_home {
                    let call = Call {
                        kind,
                        key,
                        number: if kind == Kind::DeleteObject {
                            0
                        } else {
                            7 + worker as i64
                        },
                    };
                    let trace = workers[worker].record(&mut reader, table, call);
                    assert_eq!(trace.answer, model.answer(call), "{call:?} is not as the model says");
                    traces[list].push(Recorded {
                        call,
                        role: role.map(|(_, relation)| relation),
                        trace,
                    });
                }
            }
        }
    }
    let locks: HashMap<i64, u64> = roles.values().copied().collect();
    let mut found: BTreeMap<(Kind, Kind, Relation), Count> = BTreeMap::new();
    for (list, is_other) in [(1, false), (2, true)] {
        for a in &traces[0] {
            for b in &traces[list] {
                if !is_other && !model.commute(a.call, b.call) {
                    continue;
                }
                let relation = match (is_other, a.call.kind.has_key() && b.call.kind.has_key()) {
                    (true, _) => Relation::OtherTable,
                    (_, false) => Relation::WholeTable,
                    _ if a.call.key == b.call.key => Relation::SameKey,
                    _ if a.role == Some(Relation::SameKey) && b.role == Some(Relation::Beside) => Relation::Beside,
                    _ => {
                        let relation = relate(locks[&a.call.key], locks[&b.call.key]);
                        match b.role {
                            Some(Relation::NextPlace) if relation == Relation::Far => Relation::NextPlace,
                            _ => relation,
                        }
                    }
                };
                let count = found.entry((a.call.kind, b.call.kind, relation)).or_default();
                count.pairs += 1;
                let lines = conflicts(&a.trace, &b.trace);
                count.conflicts += usize::from(!lines.is_empty());
                for line in lines {
                    *count.lines.entry(line).or_default() += 1;
                }
            }
        }
    }
    report(state, &locks, found)
}

#[derive(Default)]
struct Count {
    pairs: usize,
    conflicts: usize,
    /// The lines in which they conflict, with an instruction that writes it.
    lines: BTreeMap<(u64, u64), usize>,
}

/// Puts the objects of a key into a table.
fn fill(table: &Subject, state: State, key: i64) {
    let call = |kind, number| {
        table.call(Call { kind, key, number });
    };
    call(Kind::Insert, 0);
    if state.bag {
        call(Kind::Insert, 1);
    }
    if table.form() == Form::Changed {
        call(Kind::UpdateElement, 3);
        call(Kind::UpdateElement, 0);
    }
}

/// All keys in the order in which the table has them, or would have them.
fn order_of(state: State, present: &[i64], roles: &BTreeMap<(bool, Relation), (i64, u64)>) -> Vec<i64> {
    let table = Subject::new(registry(), state.engine, state.bag, None, Form::Pair);
    let call = |kind, key| table.call(Call { kind, key, number: 0 });
    for key in present.iter().copied().chain(roles.values().map(|(key, _)| *key)) {
        call(Kind::Insert, key);
    }
    let mut order = Vec::new();
    let mut answer = call(Kind::First, 0);
    while answer != Answer::new() {
        let key = answer.first();
        order.push(key);
        answer = call(Kind::Next, key);
    }
    order
}

/// The lines that one of two calls writes and the other one uses.
fn conflicts(a: &Trace, b: &Trace) -> Vec<(u64, u64)> {
    let mut lines = Vec::new();
    for (line, one) in &a.lines {
        let Some(other) = b.lines.get(line) else { continue };
        if let Some(writer) = one.or(*other) {
            lines.push((*line, writer));
        }
    }
    lines
}

/// Bytes that a place has beside each other from its lock on.
fn head_bytes(state: State) -> u64 {
    match state.engine {
        EngineName::Hash => 24,
        _ => 8,
    }
}

fn lock_name(state: State) -> &'static str {
    match state.engine {
        EngineName::Hash => "bucket head",
        EngineName::Ca => "leaf header",
        EngineName::LinearHash => "bucket lock",
        EngineName::CaAvl => "lock and statistic of a base node",
        _ => "table lock",
    }
}

fn report(state: State, locks: &HashMap<i64, u64>, found: BTreeMap<(Kind, Kind, Relation), Count>) -> Value {
    let addresses: BTreeSet<u64> = found
        .values()
        .flat_map(|count| count.lines.keys().map(|(_, writer)| *writer))
        .collect();
    let addresses: Vec<u64> = addresses.into_iter().collect();
    let names = owner::names(&addresses);
    // Where a lock lies, its line has one name, whatever else is written there.
    let heads: HashMap<u64, &str> = locks
        .values()
        .flat_map(|lock| {
            [
                (lock / LINE, lock_name(state)),
                ((lock + head_bytes(state) - 1) / LINE, lock_name(state)),
            ]
        })
        .collect();
    let pairs: Vec<Value> = found
        .into_iter()
        .map(|((a, b, relation), count)| {
            let mut owners: BTreeMap<&str, usize> = BTreeMap::new();
            for ((line, writer), times) in count.lines {
                let name = heads.get(&line).copied();
                *owners.entry(name.unwrap_or_else(|| &names[&writer])).or_default() += times;
            }
            json!({"a": a.text(), "b": b.text(), "one_key": a.is_of_one_key() && b.is_of_one_key(),
                   "relation": relation.text(), "pairs": count.pairs, "conflicts": count.conflicts, "lines": owners})
        })
        .collect();
    json!({"engine": state.engine.text(), "bag": state.bag, "form": state.form.text(), "named": state.named, "objects": state.objects, "pairs": pairs})
}
