//! What the model of many cores starts from (docs/internals/many-cores.md). It measures what a cache line costs, and what a lock costs. It
//! also measures the operations of each engine in the mixed phase of `ets_bench`, on one thread and on two. Prints a JSON object a line.
//!
//! Other programs may run on the machine. A sample counts only if all its threads ran undisturbed: each had as much processor time as
//! the clock went on. A figure is the median of the samples of a round. A host may move a virtual processor to another core. Then a
//! transfer between two of them takes another time. So each row of two threads says what a transfer took before it and after it.
//! Needs Linux, and two processors.
//!
//! `cargo run --release -p cats-bench --example many_cores [ROUNDS] > costs.jsonl`

use cats_bench::immediates::Immediates;
use cats_engine::ca::Ca;
use cats_engine::config::{BucketLocks, Config, READER_GROUPS};
use cats_engine::hash::Hash;
use cats_engine::{mix, Busy, Engine, Entry, Step};
use cats_papers::avl::Avl;
use cats_papers::bucket_lock::BucketLock;
use cats_papers::ca_tree::CaAvl;
use cats_papers::linear_hash::LinearHash;
use cats_papers::lock::rw::Rw;
use cats_papers::lock::TableLock;
use cats_papers::stat_rw_lock::StatRwLock;
use cats_sync::backoff;
use cats_sync::epoch;
use cats_sync::version_lock::VersionLock;
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

/// Time that a sample should take: long beside the clock's own cost, short beside the turns of the operating system.
const SAMPLE: Duration = Duration::from_micros(400);
/// Threads wait for so long before a sample. Whoever has waited gets the processor sooner.
const REST: Duration = Duration::from_millis(2);
/// A row ends here even if it has too few samples.
const PATIENCE: Duration = Duration::from_secs(5);
/// A sample counts if its threads had so much of the time.
const UNDISTURBED: f64 = 0.98;
/// Samples of a figure in a round.
const SAMPLES: usize = 7;
const FEW: usize = 3;
const RANGES: [u64; 4] = [1 << 3, 1 << 10, 1 << 16, 1 << 21];
/// Lookups in a hundred operations.
const SHARES: [u64; 6] = [100, 99, 90, 80, 50, 0];

/// In a pair of cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Alone<T>(T);

/// Nanoseconds of processor time that this thread has had.
fn cpu_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills the structure.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Keeps this thread on one processor.
fn stay_on(processor: usize) {
    // SAFETY: the set is a plain structure, of which zeros are a value.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

/// Nanoseconds an operation: the median of samples, the quarter points, and how many there are. With two threads, of each.
struct Figure {
    median: f64,
    low: f64,
    high: f64,
    samples: usize,
}

impl Figure {
    fn of(mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        let at = |share: f64| {
            samples
                .get((share * samples.len() as f64) as usize)
                .copied()
                .unwrap_or(f64::NAN)
        };
        Self {
            median: at(0.5),
            low: at(0.25),
            high: at(0.75),
            samples: samples.len(),
        }
    }

    fn print(&self, of: &str) {
        let Self {
            median,
            low,
            high,
            samples,
        } = self;
        println!("{{{of}, \"ns\": {median:.2}, \"low\": {low:.2}, \"high\": {high:.2}, \"samples\": {samples}}}");
    }
}

/// One thread's part of a sample: nanoseconds an operation, if nothing disturbed the thread.
///
/// All threads begin together. Each works for a while to fill its caches, then under the clock, and then until all have ended.
fn part(thread: u64, each: u64, begun: &AtomicU32, ended: &AtomicU32, threads: u32, work: &dyn Fn(u64)) -> Option<f64> {
    begun.fetch_add(1, Ordering::SeqCst);
    let (wall, cpu) = (Instant::now(), cpu_time());
    while begun.load(Ordering::SeqCst) < threads {
        spin_loop();
    }
    (0..2 * each).for_each(|_| work(thread));
    let start = Instant::now();
    (0..each).for_each(|_| work(thread));
    let taken = start.elapsed().as_nanos() as f64;
    ended.fetch_add(1, Ordering::SeqCst);
    while ended.load(Ordering::SeqCst) < threads {
        work(thread);
    }
    let wall = wall.elapsed().as_nanos() as f64;
    ((cpu_time() - cpu) > UNDISTURBED * wall).then_some(taken / each as f64)
}

/// Nanoseconds of one call of `work` on each of so many threads at the same time.
fn measure(samples: usize, threads: u32, work: impl Fn(u64) + Sync) -> Figure {
    let work: &(dyn Fn(u64) + Sync) = &work;
    let (begun, ended) = (AtomicU32::new(0), AtomicU32::new(0));
    let (each, over) = (AtomicU64::new(64), AtomicBool::new(false));
    let (barrier, rates) = (Barrier::new(threads as usize), Mutex::new(Vec::new()));
    let parts = Mutex::new(Vec::new());
    let until = Instant::now() + PATIENCE;
    let run = |thread: u64| {
        stay_on(thread as usize);
        loop {
            std::thread::sleep(REST);
            barrier.wait();
            let operations = each.load(Ordering::Relaxed);
            let part = part(thread, operations, &begun, &ended, threads, work);
            parts.lock().expect("no panic").push(part);
            if barrier.wait().is_leader() {
                begun.store(0, Ordering::Relaxed);
                ended.store(0, Ordering::Relaxed);
                let parts = std::mem::take(&mut *parts.lock().expect("no panic"));
                if let Some(parts) = parts.into_iter().collect::<Option<Vec<f64>>>() {
                    let rate: f64 = parts.iter().map(|ns| 1.0 / ns).sum();
                    let ns = f64::from(threads) / rate;
                    let wanted = (SAMPLE.as_nanos() as f64 / ns) as u64;
                    if operations < wanted / 2 {
                        each.store(wanted.min(8 * operations), Ordering::Relaxed);
                    } else {
                        rates.lock().expect("no panic").push(ns);
                    }
                }
                let enough = rates.lock().expect("no panic").len() >= samples;
                over.store(enough || Instant::now() > until, Ordering::Relaxed);
            }
            // The barriers order all accesses to what the threads share.
            barrier.wait();
            if over.load(Ordering::Relaxed) {
                break;
            }
        }
    };
    std::thread::scope(|scope| {
        let run = &run;
        (0..u64::from(threads)).for_each(|thread| _ = scope.spawn(move || run(thread)));
    });
    Figure::of(rates.into_inner().expect("no panic"))
}

fn patiently<R>(mut call: impl FnMut() -> Result<R, Busy>) -> R {
    loop {
        match call() {
            Ok(result) => return result,
            Err(Busy) => std::thread::yield_now(),
        }
    }
}

//-------------------------------------------------------------------------------------------------

/// Costs of single cache lines and of locks.
fn costs(round: u32, samples: usize) {
    let cost = |name: &str, threads: u32, figure: Figure| {
        figure.print(&format!(
            "\"round\": {round}, \"cost\": \"{name}\", \"threads\": {threads}"
        ))
    };
    for (name, bytes) in [
        ("load from 256 KiB", 1 << 18),
        ("load from 8 MiB", 1 << 23),
        ("load from 256 MiB", 1 << 28),
    ] {
        let chain = Chain::new(bytes);
        for threads in [1, 2] {
            let at = [Alone(AtomicU64::new(0)), Alone(AtomicU64::new(chain.middle()))];
            let load = |thread: u64| {
                let at = &at[thread as usize].0;
                at.store(chain.next(at.load(Ordering::Relaxed)), Ordering::Relaxed);
            };
            cost(name, threads, measure(samples, threads, load));
        }
    }
    let place = 64;
    cost("back-off", 1, measure(samples, 1, |_| backoff::back_off(place)));
    cost("scan of a line written by the other", 2, scan(samples));
    let word = Alone(AtomicU64::new(0));
    let version = Alone(VersionLock::default());
    let bucket = Alone(BucketLock::new(0, 1));
    let base = Alone(StatRwLock::default());
    let table = Rw::new((), READER_GROUPS);
    for threads in [1, 2] {
        cost(
            "atomic addition",
            threads,
            measure(samples, threads, |_| _ = word.0.fetch_add(1, Ordering::Relaxed)),
        );
        let section = |_| {
            let (held, _) = patiently(|| version.0.lock());
            version.0.unlock(held);
        };
        cost("version lock", threads, measure(samples, threads, section));
        cost(
            "bucket lock, writers",
            threads,
            measure(samples, threads, |_| drop(patiently(|| bucket.0.write()))),
        );
        cost(
            "bucket lock, readers",
            threads,
            measure(samples, threads, |_| drop(patiently(|| bucket.0.read()))),
        );
        let section = |_| {
            patiently(|| base.0.lock());
            base.0.unlock();
        };
        cost("base node lock", threads, measure(samples, threads, section));
        cost(
            "table lock, writers",
            threads,
            measure(samples, threads, |_| patiently(|| table.write_here(|()| ()))),
        );
        cost(
            "table lock, readers",
            threads,
            measure(samples, threads, |_| patiently(|| table.read_here(|()| ()))),
        );
        cost(
            "pin",
            threads,
            measure(samples, threads, |_| drop(black_box(epoch::pin()))),
        );
    }
}

/// Passing a line to the other thread and getting it back: four transactions, as each thread fetches the line and then gets it for itself.
fn passes(samples: usize) -> Figure {
    let turn = Alone(AtomicU64::new(0));
    measure(samples, 2, |thread| {
        for _ in 0..1_000_000 {
            let now = turn.0.load(Ordering::Acquire);
            if now % 2 == thread {
                turn.0.store(now + 1, Ordering::Release);
                break;
            }
        }
    })
}

/// A chain through memory in random order, a step a cache line.
struct Chain(Vec<u64>);

impl Chain {
    const STEP: u64 = 8; // words of a line

    fn new(bytes: u64) -> Self {
        let lines = bytes / 64;
        let mut order: Vec<u64> = (0..lines).collect();
        (1..lines)
            .rev()
            .for_each(|i| order.swap(i as usize, (mix(i) % (i + 1)) as usize));
        let mut words = vec![0; (lines * Self::STEP) as usize];
        for (at, line) in order.iter().enumerate() {
            words[(line * Self::STEP) as usize] = order[(at + 1) % order.len()] * Self::STEP;
        }
        Self(words)
    }

    /// A place that is far from the first one on the chain.
    fn middle(&self) -> u64 {
        mix(1) % (self.0.len() as u64 / Self::STEP) * Self::STEP
    }

    fn next(&self, at: u64) -> u64 {
        self.0[at as usize]
    }
}

/// Reading lines that another thread has just written, as a writer reads the reader groups: nanoseconds a line.
fn scan(samples: usize) -> Figure {
    let lines: Vec<Alone<AtomicU64>> = (0..READER_GROUPS).map(|_| Alone::default()).collect();
    let turn = Alone(AtomicU64::new(0));
    let found = Mutex::new(Vec::new());
    measure(samples, 2, |thread| {
        for _ in 0..1_000_000 {
            let now = turn.0.load(Ordering::Acquire);
            if now % 2 != thread {
                continue;
            }
            if thread == 0 {
                lines.iter().for_each(|line| line.0.store(now, Ordering::Relaxed));
            } else {
                let start = Instant::now();
                black_box(lines.iter().all(|line| line.0.load(Ordering::SeqCst) == now - 1));
                found
                    .lock()
                    .expect("no panic")
                    .push(start.elapsed().as_nanos() as f64 / READER_GROUPS as f64);
            }
            turn.0.store(now + 1, Ordering::Release);
            break;
        }
    });
    Figure::of(found.into_inner().expect("no panic"))
}

//-------------------------------------------------------------------------------------------------

/// An engine with integer keys.
trait Map: Sync {
    fn insert(&self, key: u64);
    fn lookup(&self, key: u64);
    fn delete(&self, key: u64);
}

impl<E: Engine<Immediates>> Map for E {
    fn insert(&self, key: u64) {
        let word = key << 4 | 15;
        let entry = Entry { key: word, body: word };
        patiently(|| self.update(&epoch::pin(), &key, |_| (Step::Put(entry), ())));
    }
    fn lookup(&self, key: u64) {
        black_box(patiently(|| {
            self.read(&epoch::pin(), &key, |found| found.map(|entry| entry.body))
        }));
    }
    fn delete(&self, key: u64) {
        patiently(|| self.update(&epoch::pin(), &key, |_| (Step::Remove, ())));
    }
}

/// The engines with the options of the papers: reader groups, and 64 bucket locks.
fn engines() -> Vec<(&'static str, Box<dyn Map>)> {
    let some = "memory for an empty table";
    let config = Config {
        bucket_locks: BucketLocks::Fixed(64),
        reader_groups: READER_GROUPS,
        ..Config::default()
    };
    let for_readers = Config {
        read_concurrency: true,
        ..config.clone()
    };
    vec![
        ("hash", Box::new(<Hash<_>>::new(Immediates).expect(some))),
        (
            "linear_hash",
            Box::new(LinearHash::new(Immediates, &config).expect(some)),
        ),
        ("ca", Box::new(Ca::new(Immediates))),
        ("ca_avl", Box::new(CaAvl::new(Immediates, &config).expect(some))),
        ("avl", Box::new(Avl::new(Immediates, &for_readers).expect(some))),
    ]
}

/// What the threads do next: a random number for each, each on a line of its own.
#[derive(Default)]
struct Random([Alone<AtomicU64>; 2]);

impl Random {
    fn next(&self, thread: u64) -> u64 {
        let state = &self.0[thread as usize].0;
        let random = mix(state
            .load(Ordering::Relaxed)
            .wrapping_add(0x9e37_79b9_7f4a_7c15 + thread));
        state.store(random, Ordering::Relaxed);
        random
    }
}

/// The operations of one engine on one range of keys, half of which are in the table.
fn operations(round: u32, samples: usize, name: &str, map: &dyn Map, range: u64) {
    let random = Random::default();
    (0..range).for_each(|i| {
        let key = mix(i) % range;
        if i % 2 == 0 {
            map.insert(key)
        } else {
            map.delete(key)
        }
    });
    let row = |text: &str, threads, figure: Figure| {
        figure.print(&format!(
            "\"round\": {round}, \"engine\": \"{name}\", \"range\": {range}, {text}, \"threads\": {threads}"
        ));
    };
    if range >= 1 << 10 {
        let [insert, delete] = changes(samples, range / 16, |insert| {
            let key = random.next(0) % range;
            if insert {
                map.insert(key)
            } else {
                map.delete(key)
            }
        });
        row("\"operation\": \"insert\"", 1, insert);
        row("\"operation\": \"delete\"", 1, delete);
    }
    for share in SHARES {
        for threads in [1, 2] {
            let before = (threads == 2).then(|| passes(FEW));
            let figure = measure(samples, threads, |thread| {
                let random = random.next(thread);
                let key = random % range;
                match (random >> 40) % 200 {
                    chance if chance < 2 * share => map.lookup(key),
                    chance if chance % 2 == 0 => map.insert(key),
                    _ => map.delete(key),
                }
            });
            let passes = before.map(|before| (before.median + passes(FEW).median) / 2.0);
            let passes = passes.map_or(String::new(), |ns| format!(", \"passes\": {ns:.1}"));
            row(&format!("\"lookups\": {share}{passes}"), threads, figure);
        }
    }
}

/// Nanoseconds of an insertion and of a deletion. They come in runs of one kind, short enough that about half of the keys stay.
fn changes(samples: usize, run: u64, change: impl Fn(bool) + Sync) -> [Figure; 2] {
    let run = run.min(1 << 12);
    let found = [Mutex::new(Vec::new()), Mutex::new(Vec::new())];
    measure(samples, 1, |_| {
        for (kind, insert) in found.iter().zip([true, false]) {
            let start = Instant::now();
            (0..run).for_each(|_| change(insert));
            let ns = start.elapsed().as_nanos() as f64 / run as f64;
            kind.lock().expect("no panic").push(ns);
        }
    });
    found.map(|kind| Figure::of(kind.into_inner().expect("no panic")))
}

fn main() {
    let rounds = std::env::args()
        .nth(1)
        .map_or(5, |text| text.parse().expect("a number of rounds"));
    for round in 0..rounds {
        costs(round, SAMPLES);
        for range in RANGES {
            for (name, map) in engines() {
                operations(round, SAMPLES, name, &*map, range);
            }
        }
    }
}
