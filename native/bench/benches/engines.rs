//! All engines and table locks beside maps of other Rust libraries, with the mixed workload of `ets_bench`. It looks up random
//! integer keys, half of which are there, and inserts as often as it deletes. Source: Klaftenegger, Sagonas, Winblad, "On the
//! Scalability of the Erlang Term Storage", Erlang 2013. Prints what criterion prints, and then one table of operations a second.
//!
//! `make bench-native`: some 8 minutes; with `QUICK=1` some 2, on fewer keys. `FILTER=text` measures the rows whose name has it.

use cats_bench::immediates::Immediates;
use cats_bench::split_ordered_list::SplitOrderedList;
use cats_engine::ca::Ca;
use cats_engine::config::{BaseLock, BucketLocks, Config, Delegate, LockName};
use cats_engine::hash::Hash;
use cats_engine::{mix, Engine, Entry, Step};
use cats_papers::avl::Avl;
use cats_papers::ca_tree::{CaAvl, CaTreap};
use cats_papers::detaching::{Detached, Detaching};
use cats_papers::linear_hash::LinearHash;
use cats_papers::skip_list::SkipList;
use cats_papers::std_hash::StdHash;
use cats_sync::epoch;
use criterion::{BenchmarkId, Criterion};
use parking_lot::RwLock;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Lookups in a hundred operations.
const SHARES: [u64; 5] = [50, 80, 90, 99, 100];
const THREADS: [u64; 2] = [1, 2];
/// Operations of each thread that criterion counts as one iteration: far more than it takes to begin together.
const BATCH: u64 = 10_000;

/// A map from numbers to numbers that threads share.
trait Map: Sync {
    fn insert(&self, key: u64);
    fn lookup(&self, key: u64) -> bool;
    fn delete(&self, key: u64);
}

/// One of the engines.
struct Ours<E>(E);

impl<E: Engine<Immediates>> Map for Ours<E> {
    fn insert(&self, key: u64) {
        self.write(key, put(key));
    }
    fn lookup(&self, key: u64) -> bool {
        patiently(|| self.0.read(&epoch::pin(), &key, |found| found.map(|entry| entry.body))).is_some()
    }
    fn delete(&self, key: u64) {
        self.write(key, Step::Remove);
    }
}

impl<E: Engine<Immediates>> Ours<E> {
    fn write(&self, key: u64, step: Step) {
        patiently(|| self.0.update(&epoch::pin(), &key, |_| (step, ())));
    }
}

/// One that leaves steps to other threads.
struct Delegating<E>(Ours<E>);

impl<E: Engine<Immediates> + Detaching> Map for Delegating<E> {
    fn insert(&self, key: u64) {
        self.write(key, put(key));
    }
    fn lookup(&self, key: u64) -> bool {
        self.0.lookup(key)
    }
    fn delete(&self, key: u64) {
        self.write(key, Step::Remove);
    }
}

impl<E: Engine<Immediates> + Detaching> Delegating<E> {
    fn write(&self, key: u64, step: Step) {
        let update = Detached {
            step,
            key: Entry {
                key: key << 4 | 15,
                body: 0,
            },
            settle: |_, _, _| (),
            context: std::ptr::null(),
        };
        // SAFETY: the engine outlives all threads, and there is nothing to settle.
        patiently(|| unsafe { self.0 .0.detach(&epoch::pin(), update) });
    }
}

/// The step that inserts a key.
fn put(key: u64) -> Step {
    Step::Put(Entry {
        key: key << 4 | 15,
        body: key << 4 | 15,
    })
}

/// An engine, which leaves steps to other threads if it can.
fn ours<E: Engine<Immediates> + Detaching + 'static>(engine: E) -> Box<dyn Map> {
    match engine.detaches() {
        true => Box::new(Delegating(Ours(engine))),
        false => Box::new(Ours(engine)),
    }
}

fn patiently<R>(mut call: impl FnMut() -> Result<R, cats_engine::Busy>) -> R {
    loop {
        match call() {
            Ok(result) => return result,
            Err(_) => std::thread::yield_now(),
        }
    }
}

macro_rules! peer {
    ($type:ty, $self:ident, $key:ident, $insert:expr, $lookup:expr, $delete:expr) => {
        impl Map for $type {
            fn insert(&$self, $key: u64) {
                let _ = $insert;
            }
            fn lookup(&$self, $key: u64) -> bool {
                $lookup
            }
            fn delete(&$self, $key: u64) {
                $delete;
            }
        }
    };
}

peer!(
    RwLock<HashMap<u64, u64>>,
    self,
    key,
    self.write().insert(key, key),
    self.read().get(&key).is_some(),
    self.write().remove(&key)
);
peer!(
    RwLock<BTreeMap<u64, u64>>,
    self,
    key,
    self.write().insert(key, key),
    self.read().get(&key).is_some(),
    self.write().remove(&key)
);
peer!(dashmap::DashMap<u64, u64>, self, key, self.insert(key, key), self.get(&key).is_some(), self.remove(&key));
peer!(papaya::HashMap<u64, u64>, self, key, self.pin().insert(key, key), self.pin().get(&key).is_some(),
    self.pin().remove(&key));
peer!(scc::HashMap<u64, u64>, self, key, self.upsert_sync(key, key), self.read_sync(&key, |_, _| ()).is_some(),
    self.remove_sync(&key));
peer!(scc::TreeIndex<u64, u64>, self, key, self.insert_sync(key, key), self.peek_with(&key, |_, _| ()).is_some(),
    self.remove_sync(&key));
peer!(crossbeam_skiplist::SkipMap<u64, u64>, self, key, self.insert(key, key), self.get(&key).is_some(),
    self.remove(&key));
peer!(
    SplitOrderedList,
    self,
    key,
    self.insert(key, key),
    self.lookup(key).is_some(),
    self.delete(key)
);
peer!(
    congee::U64Congee<usize>,
    self,
    key,
    self.insert(key, key as usize, &congee::epoch::pin()),
    self.get(key, &congee::epoch::pin()).is_some(),
    self.remove(key, &congee::epoch::pin())
);

type Make = Box<dyn Fn() -> Box<dyn Map>>;

/// A row: the structure, its lock, and how to make one.
struct Row(&'static str, &'static str, Make);

/// All rows.
fn rows() -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    macro_rules! row {
        ($name:expr, $lock:expr, $make:expr) => {
            rows.push(Row($name, $lock, Box::new(move || Box::new($make))))
        };
    }
    let some = "memory for an empty table";
    let with = |lock, delegate| Config {
        lock,
        delegate,
        ..Config::default()
    };
    let locks = [
        ("rw", with(LockName::Rw, Delegate::Copy)),
        ("dr_mcs", with(LockName::DrMcs, Delegate::Copy)),
        ("cc_synch", with(LockName::CcSynch, Delegate::Copy)),
        ("mrqd wait", with(LockName::Mrqd, Delegate::Wait)),
        ("mrqd malloc", with(LockName::Mrqd, Delegate::Malloc)),
        ("mrqd copy", with(LockName::Mrqd, Delegate::Copy)),
        ("ets_pointer", with(LockName::EtsPointer, Delegate::Copy)),
    ];
    row!("hash", "-", Ours(<Hash<_>>::new(Immediates).expect(some)));
    for (lock, bucket_locks) in [
        ("table", BucketLocks::TableLock),
        ("16", BucketLocks::Fixed(16)),
        ("64", BucketLocks::Fixed(64)),
        ("auto", BucketLocks::Auto),
    ] {
        let config = Config {
            bucket_locks,
            ..Config::default()
        };
        row!(
            "linear_hash",
            lock,
            Ours(LinearHash::new(Immediates, &config).expect(some))
        );
    }
    row!("ca", "-", Ours(Ca::new(Immediates)));
    for (lock, config) in locks.clone() {
        let make = move || ours(StdHash::new(Immediates, &config).expect(some));
        rows.push(Row("std_hash", lock, Box::new(make)));
    }
    for (lock, config) in locks {
        let make = move || ours(Avl::new(Immediates, &config).expect(some));
        rows.push(Row("avl", lock, Box::new(make)));
    }
    let config = Config {
        static_stack: true,
        ..Config::default()
    };
    row!(
        "avl static_stack",
        "rw",
        Ours(Avl::new(Immediates, &config).expect(some))
    );
    for (lock, base_lock) in [("mutex", BaseLock::Mutex), ("rw", BaseLock::Rw)] {
        let config = Config {
            base_lock,
            ..Config::default()
        };
        let treap = config.clone();
        row!("ca_avl", lock, Ours(CaAvl::new(Immediates, &config).expect(some)));
        row!("ca_treap", lock, Ours(CaTreap::new(Immediates, &treap).expect(some)));
    }
    row!(
        "skip_list",
        "-",
        Ours(SkipList::new(Immediates, &Config::default()).expect(some))
    );
    row!("std HashMap", "parking_lot", RwLock::new(HashMap::<u64, u64>::new()));
    row!("std BTreeMap", "parking_lot", RwLock::new(BTreeMap::<u64, u64>::new()));
    row!("dashmap", "-", dashmap::DashMap::<u64, u64>::new());
    row!("papaya", "-", papaya::HashMap::<u64, u64>::new());
    row!("scc HashMap", "-", scc::HashMap::<u64, u64>::new());
    row!("scc TreeIndex", "-", scc::TreeIndex::<u64, u64>::new());
    row!("crossbeam SkipMap", "-", crossbeam_skiplist::SkipMap::<u64, u64>::new());
    row!("split_ordered_list", "-", SplitOrderedList::default());
    row!("congee", "-", congee::U64Congee::<usize>::default());
    rows
}

/// Carries out `each` operations on each thread, and measures the time from the first to the last.
fn measure(map: &dyn Map, range: u64, share: u64, threads: u64, each: u64) -> Duration {
    let barrier = Barrier::new(threads as usize);
    let work = |thread: u64| {
        barrier.wait();
        let start = Instant::now();
        let mut random = mix(start.elapsed().as_nanos() as u64 + thread * 77 + each);
        for _ in 0..each {
            random = mix(random.wrapping_add(0x9e37_79b9_7f4a_7c15));
            let key = random % range;
            match (random >> 40) % 200 {
                chance if chance < 2 * share => _ = black_box(map.lookup(key)),
                chance if chance % 2 == 0 => map.insert(key),
                _ => map.delete(key),
            }
        }
        (start, Instant::now())
    };
    let spans: Vec<(Instant, Instant)> = std::thread::scope(|scope| {
        let work = &work;
        let others: Vec<_> = (1..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        let own = work(0);
        let others = others.into_iter().map(|thread| thread.join().expect("no panic"));
        others.chain([own]).collect()
    });
    let first = spans.iter().map(|span| span.0).min().expect("a thread");
    let last = spans.iter().map(|span| span.1).max().expect("a thread");
    last - first
}

fn main() {
    let quick = std::env::var("QUICK").is_ok_and(|quick| !quick.is_empty());
    let filter = std::env::var("FILTER").unwrap_or_default();
    let range = if quick { 1 << 16 } else { 1 << 21 };
    let (warm_up, time) = if quick { (20, 150) } else { (100, 1000) };
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(warm_up))
        .measurement_time(Duration::from_millis(time))
        .without_plots();
    let mut table = format!("{:<18} {:<12} threads", "structure", "lock");
    SHARES.iter().for_each(|share| table += &format!(" {share:>7} %"));
    table += "\n";
    for Row(name, lock, make) in rows() {
        if !name.contains(&filter) {
            continue;
        }
        let map = make();
        // Half of the keys, in a random order.
        (0..range / 2).for_each(|i| map.insert(mix(i) % range));
        let mut group = criterion.benchmark_group(format!("{name} {lock}"));
        for threads in THREADS {
            table += &format!("{name:<18} {lock:<12} {threads:>7}");
            for share in SHARES {
                // Operations a second of the samples, of which the median counts.
                let rates = RefCell::new(Vec::new());
                group.bench_function(BenchmarkId::new(format!("{threads} threads"), share), |bencher| {
                    bencher.iter_custom(|each| {
                        let operations = each * BATCH;
                        let taken = measure(&*map, range, share, threads, operations);
                        let rate = (threads * operations) as f64 / taken.as_secs_f64();
                        rates.borrow_mut().push((each, rate));
                        taken
                    })
                });
                let mut rates = rates.into_inner();
                // The longest runs: the first ones only warm up.
                rates.sort_by_key(|rate| std::cmp::Reverse(rate.0));
                rates.truncate(5);
                rates.sort_by(|a, b| a.1.total_cmp(&b.1));
                let median = rates.get(rates.len() / 2).map_or(0.0, |rate| rate.1);
                table += &format!(" {:>8.2}M", median / 1e6);
            }
            table += "\n";
        }
        group.finish();
    }
    println!(
        "\noperations a second, by share of lookups, {} keys of a range of {range}:\n{table}",
        range / 2
    );
}
