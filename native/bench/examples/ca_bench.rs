//! The contention adapting engine beside the standard library's tree. Prints nanoseconds of processor time for each operation.
//! There are 2^20 operations over 2^21 integer keys, each phase in its own random order. They run on one thread, and for `ca` on
//! two at once. Then appends, a walk, and a small queue.
//!
//! `cargo run --release -p cats-bench --example ca_bench [ROUNDS]`

use cats_bench::immediates::Immediates;
use cats_engine::ca::Ca;
use cats_engine::{mix, Engine, Entry, Step};
use cats_sync::epoch;
use std::collections::BTreeMap;
use std::hint::black_box;

const OPERATIONS: usize = 1 << 20;
const RANGE: u64 = 1 << 21;

/// A map that is measured.
trait Map {
    fn insert(&mut self, key: u64);
    fn lookup(&mut self, key: u64) -> bool;
    fn delete(&mut self, key: u64);
}

/// The engine, as two threads may use it at once.
struct Shared<'a>(&'a Ca<Immediates>);

impl Map for Shared<'_> {
    fn insert(&mut self, key: u64) {
        let entry = Entry {
            key: key << 4 | 15,
            body: key << 4 | 15,
        };
        while self.0.update(&epoch::pin(), &key, |_| (Step::Put(entry), ())).is_err() {}
    }
    fn lookup(&mut self, key: u64) -> bool {
        loop {
            let found = self.0.read(&epoch::pin(), &key, |found| found.map(|entry| entry.body));
            if let Ok(found) = black_box(found) {
                return found.is_some();
            }
        }
    }
    fn delete(&mut self, key: u64) {
        while self.0.update(&epoch::pin(), &key, |_| (Step::Remove, ())).is_err() {}
    }
}

impl Map for BTreeMap<u64, u64> {
    fn insert(&mut self, key: u64) {
        BTreeMap::insert(self, key, key);
    }
    fn lookup(&mut self, key: u64) -> bool {
        black_box(self.get(&key).copied()).is_some()
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

fn phase(keys: &[u64], operation: impl FnMut(u64)) -> f64 {
    let start = cpu_time();
    keys.iter().copied().for_each(operation);
    (cpu_time() - start) / keys.len() as f64
}

/// What was measured: nanoseconds to insert, look up (a part of the keys is there), look up keys that are there, delete.
type Figures = [f64; 4];

fn measure(map: &mut impl Map, round: u64) -> Figures {
    let inserted = keys(10 * round);
    let mut present = inserted.clone();
    present.sort_unstable_by_key(|&key| mix(key + round));
    let insert = phase(&inserted, |key| map.insert(key));
    let some = phase(&keys(10 * round + 1), |key| _ = map.lookup(key));
    let all = phase(&present, |key| _ = map.lookup(key));
    let delete = phase(&keys(10 * round + 2), |key| map.delete(key));
    [insert, some, all, delete]
}

/// Prints the best of several rounds: others use the machine too.
fn best(name: &str, rounds: impl Iterator<Item = Figures>) {
    let best = rounds.reduce(|a, b| std::array::from_fn(|i| a[i].min(b[i])));
    let [insert, some, all, delete] = best.unwrap_or_default();
    println!("{name:10} insert {insert:5.0}  lookup {some:5.0}  all hits {all:5.0}  delete {delete:5.0}");
}

fn walk(name: &str, table: &Ca<Immediates>) {
    let start = cpu_time();
    let (mut at, mut count) = (None, 0);
    loop {
        let next = table.next(&epoch::pin(), at.as_ref(), |next| next.map(|entry| entry.key >> 4));
        at = next.expect("no other thread");
        if at.is_none() {
            break;
        }
        count += 1;
    }
    println!("{name:10} next {:6.1}", (cpu_time() - start) / f64::from(count));
}

fn main() {
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(3);
    best(
        "ca",
        (0..rounds).map(|round| measure(&mut Shared(&Ca::new(Immediates)), round)),
    );
    best(
        "BTreeMap",
        (0..rounds).map(|round| measure(&mut BTreeMap::new(), round)),
    );
    let two = |round| {
        let table = Ca::new(Immediates);
        let figures = std::thread::scope(|scope| {
            let other = scope.spawn(|| measure(&mut Shared(&table), rounds + round));
            let mine = measure(&mut Shared(&table), round);
            other
                .join()
                .map_or(mine, |other| std::array::from_fn(|i| (mine[i] + other[i]) / 2.0))
        });
        figures
    };
    best("two of ca", (0..rounds).map(two));
    let table = Ca::new(Immediates);
    keys(1).iter().for_each(|&key| Shared(&table).insert(key));
    let entries = {
        let mut all = keys(1);
        all.sort_unstable();
        all.dedup();
        all.len()
    };
    println!("bytes an entry {:.1}", table.bytes() as f64 / entries as f64);
    let table = Ca::new(Immediates);
    let start = cpu_time();
    (0..RANGE).for_each(|n| Shared(&table).insert(n));
    println!("{:10} insert {:6.1}", "append", (cpu_time() - start) / RANGE as f64);
    walk("first", &table);
    walk("again", &table);
    let table = Ca::new(Immediates);
    let mut map = Shared(&table);
    (0..100).for_each(|n| map.insert(n));
    let start = cpu_time();
    for n in 100..1_000_000 {
        let first = table.next(&epoch::pin(), None, |first| first.map(|entry| entry.key >> 4));
        map.delete(first.expect("no other thread").expect("an entry"));
        map.insert(n);
    }
    println!(
        "{:10} first, delete, insert {:6.1}",
        "queue",
        (cpu_time() - start) / 1e6
    );
    let start = cpu_time();
    for _ in 0..100_000 {
        black_box(Ca::new(Immediates));
    }
    println!(
        "new and drop {:.0} ns, empty {} bytes",
        (cpu_time() - start) / 1e5,
        Ca::new(Immediates).bytes()
    );
}
