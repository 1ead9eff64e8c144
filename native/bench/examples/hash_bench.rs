//! The hash engines beside the standard library's map and dashmap: nanoseconds an operation on one thread, 2^20
//! operations over 2^21 integer keys, each phase in its own random order. All hash with the same function.
//!
//! `cargo run --release -p cats-bench --example hash_bench [ROUNDS]`

use cats_bench::immediates::Immediates;
use cats_engine::config::{BucketLocks, Config};
use cats_engine::hash::Hash;
use cats_engine::linear_hash::LinearHash;
use cats_engine::{mix, Engine, Entry, Step};
use cats_sync::epoch;
use dashmap::DashMap;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::hint::black_box;

const OPERATIONS: usize = 1 << 20;
const RANGE: u64 = 1 << 21;

#[derive(Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are integers")
    }
    fn write_u64(&mut self, word: u64) {
        self.0 = mix(word);
    }
}

/// A map that is measured.
trait Map {
    fn insert(&mut self, key: u64);
    fn lookup(&mut self, key: u64) -> bool;
    fn delete(&mut self, key: u64);
    fn bytes(&self) -> usize {
        0
    }
}

/// An engine.
struct Ours<E>(E);

impl<E: Engine<Immediates>> Map for Ours<E> {
    fn insert(&mut self, key: u64) {
        let entry = Entry {
            key: key << 4 | 15,
            body: key << 4 | 15,
        };
        self.0
            .update(&epoch::pin(), &key, |_| (Step::Put(entry), ()))
            .expect("no other thread");
    }
    fn lookup(&mut self, key: u64) -> bool {
        let found = self.0.read(&epoch::pin(), &key, |found| found.map(|entry| entry.body));
        black_box(found).expect("no other thread").is_some()
    }
    fn delete(&mut self, key: u64) {
        self.0
            .update(&epoch::pin(), &key, |_| (Step::Remove, ()))
            .expect("no other thread");
    }
    fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

impl Map for HashMap<u64, u64, BuildHasherDefault<Mixer>> {
    fn insert(&mut self, key: u64) {
        HashMap::insert(self, key, key);
    }
    fn lookup(&mut self, key: u64) -> bool {
        black_box(self.get(&key).copied()).is_some()
    }
    fn delete(&mut self, key: u64) {
        self.remove(&key);
    }
}

impl Map for DashMap<u64, u64, BuildHasherDefault<Mixer>> {
    fn insert(&mut self, key: u64) {
        DashMap::insert(self, key, key);
    }
    fn lookup(&mut self, key: u64) -> bool {
        black_box(self.get(&key).map(|found| *found)).is_some()
    }
    fn delete(&mut self, key: u64) {
        self.remove(&key);
    }
}

/// Random keys of one phase.
fn keys(seed: u64) -> Vec<u64> {
    (0..OPERATIONS as u64)
        .map(|i| mix(mix(seed + 1).wrapping_add(i)) % RANGE)
        .collect()
}

/// Nanoseconds of processor time that this thread has had.
fn cpu_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills the structure.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn phase(keys: &[u64], mut operation: impl FnMut(u64) -> bool) -> (f64, usize) {
    let start = cpu_time();
    let hits = keys.iter().filter(|&&key| operation(key)).count();
    ((cpu_time() - start) / keys.len() as f64, hits)
}

fn measure(name: &str, map: &mut impl Map, round: u64) {
    let inserted = keys(10 * round);
    let mut present = inserted.clone();
    present.sort_unstable_by_key(|&key| mix(key + round));
    let insert = phase(&inserted, |key| {
        map.insert(key);
        true
    });
    let distinct = {
        let mut sorted = inserted.clone();
        sorted.sort_unstable();
        sorted.dedup();
        sorted.len()
    };
    let some = phase(&keys(10 * round + 1), |key| map.lookup(key));
    let all = phase(&present, |key| map.lookup(key));
    assert_eq!(all.1, OPERATIONS);
    let bytes = map.bytes() as f64 / distinct as f64;
    let delete = phase(&keys(10 * round + 2), |key| {
        map.delete(key);
        true
    });
    println!(
        "{name:24} insert {:6.1}  lookup {:6.1} ({:.0} % hits)  {:6.1} (all)  delete {:6.1}  bytes/entry {bytes:.1}",
        insert.0,
        some.0,
        100.0 * some.1 as f64 / OPERATIONS as f64,
        all.0,
        delete.0,
    );
}

fn main() {
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(3);
    for round in 0..rounds {
        measure("hash", &mut Ours(Hash::new(Immediates).expect("memory")), round);
        for (name, bucket_locks) in [
            ("linear_hash, table lock", BucketLocks::TableLock),
            ("linear_hash, 1 lock", BucketLocks::Fixed(1)),
            ("linear_hash, 64 locks", BucketLocks::Fixed(64)),
            ("linear_hash, auto", BucketLocks::Auto),
        ] {
            let config = Config {
                bucket_locks,
                ..Config::default()
            };
            measure(
                name,
                &mut Ours(LinearHash::new(Immediates, &config).expect("memory")),
                round,
            );
        }
        measure("std", &mut HashMap::<_, _, BuildHasherDefault<Mixer>>::default(), round);
        measure(
            "dashmap",
            &mut DashMap::<_, _, BuildHasherDefault<Mixer>>::default(),
            round,
        );
    }
    let mut filled = Ours(Hash::new(Immediates).expect("memory"));
    keys(0).into_iter().for_each(|key| filled.insert(key));
    let hash = filled.0;
    let start = cpu_time();
    let (mut steps, mut last) = (0, None);
    while let Some(entry) = hash
        .next(&epoch::pin(), last.as_ref(), |found| found)
        .expect("no other thread")
    {
        (steps, last) = (steps + 1, Some(entry.key >> 4));
    }
    println!("walk by next {:.1} ns a key", (cpu_time() - start) / f64::from(steps));
    let start = cpu_time();
    let (mut cursor, mut met) = (Default::default(), Vec::new());
    while hash.scan(&epoch::pin(), &mut cursor, 100, &mut met, |entry, out| {
        out.push(entry.body)
    }) == Ok(true)
    {}
    println!("scan {:.1} ns a key", (cpu_time() - start) / met.len() as f64);
    let start = cpu_time();
    for _ in 0..100_000 {
        black_box(Hash::new(Immediates));
    }
    println!(
        "new and drop {:.0} ns, empty {} bytes",
        (cpu_time() - start) / 1e5,
        Engine::bytes(&Hash::new(Immediates).expect("memory"))
    );
}
