//! The ordered engines with AVL trees and treaps beside the default one, in the mixed phase of `ets_bench`. Prints nanoseconds of
//! processor time and of the clock for each operation, on one thread and on two. Then it measures lookups and steps of two
//! threads with and without a static stack. Run it on an idle machine.
//!
//! `cargo run --release -p cats-bench --example trees_bench [LOG2_OPERATIONS]`

use cats_bench::immediates::Immediates;
use cats_engine::avl::Avl;
use cats_engine::ca::Ca;
use cats_engine::ca_tree::{CaAvl, CaTreap};
use cats_engine::config::{BaseLock, Config};
use cats_engine::{mix, Busy, Engine, Entry, OrderedEngine, Step};
use cats_sync::epoch;
use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

fn patiently<R>(mut call: impl FnMut() -> Result<R, Busy>) -> R {
    loop {
        match call() {
            Ok(result) => return result,
            Err(Busy) => std::thread::yield_now(),
        }
    }
}

fn lookup(table: &impl Engine<Immediates>, key: u64) {
    black_box(patiently(|| {
        table.read(&epoch::pin(), &key, |found| found.map(|entry| entry.body))
    }));
}
fn change(table: &impl Engine<Immediates>, key: u64, insert: bool) {
    let word = key << 4 | 15;
    let step = if insert {
        Step::Put(Entry { key: word, body: word })
    } else {
        Step::Remove
    };
    patiently(|| table.update(&epoch::pin(), &key, |_| (step, ())));
}

/// Nanoseconds of processor time that this thread has had.
fn cpu_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills the structure.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Runs `work` on some threads; nanoseconds an operation, of each thread's processor time and of the clock.
fn measure(threads: u64, operations: u64, work: impl Fn(u64, u64) + Sync) -> String {
    let (barrier, start) = (Barrier::new(threads as usize), Instant::now());
    let cpu: f64 = std::thread::scope(|scope| {
        let run = |thread| {
            let (barrier, work) = (&barrier, &work);
            scope.spawn(move || {
                barrier.wait();
                let start = cpu_time();
                (0..operations).for_each(|i| work(thread, mix(mix(thread + 1).wrapping_add(i))));
                cpu_time() - start
            })
        };
        let all: Vec<_> = (0..threads).map(run).collect();
        all.into_iter().map(|thread| thread.join().unwrap_or(f64::NAN)).sum()
    });
    let clock = start.elapsed().as_nanos() as f64;
    let count = (threads * operations) as f64;
    format!("{:5.0} ({:5.0})", cpu / count, clock / count)
}

fn mixed<E: OrderedEngine<Immediates>>(name: &str, operations: u64, make: impl Fn() -> Option<E>) {
    let range = 2 * operations;
    for threads in [1, 2] {
        print!("{name:12} {threads}");
        let table = make().expect("memory");
        (0..operations).for_each(|i| change(&table, mix(i) % range, true));
        for share in [100, 80, 50] {
            let work = |_, random: u64| {
                let key = (random >> 20) % range;
                if random % 100 < share {
                    lookup(&table, key);
                } else {
                    change(&table, key, random & 1 == 0);
                }
            };
            print!("  {share} %: {}", measure(threads, operations, work));
        }
        println!("  base nodes {}", table.base_nodes());
    }
}

fn main() {
    let log = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(20);
    let operations = 1u64 << log;
    let config = Config::default;
    let shared = || Config {
        base_lock: BaseLock::Rw,
        ..config()
    };
    println!("engine, threads; by share of lookups, ns of processor time (of the clock) an operation");
    mixed("ca", operations, || Some(Ca::new(Immediates)));
    mixed("ca_avl", operations, || CaAvl::new(Immediates, &config()));
    mixed("ca_avl rw", operations, || CaAvl::new(Immediates, &shared()));
    mixed("ca_treap", operations, || CaTreap::new(Immediates, &config()));
    mixed("ca_treap rw", operations, || CaTreap::new(Immediates, &shared()));
    mixed("avl", operations, || Avl::new(Immediates, &config()));
    for static_stack in [false, true] {
        let config = Config {
            static_stack,
            read_concurrency: true,
            ..config()
        };
        let table = Avl::new(Immediates, &config).expect("memory");
        // Small enough for the caches, so that what is measured is not memory.
        (0..1000).for_each(|key| change(&table, key, true));
        for threads in [1, 2] {
            let lookups = measure(threads, operations, |_, random| lookup(&table, random % 1000));
            let steps = measure(threads, operations, |_, random| {
                let key = random % 1000;
                black_box(patiently(|| {
                    table.next(&epoch::pin(), Some(&key), |next| next.map(|entry| entry.body))
                }));
            });
            println!("static stack {static_stack:5}, {threads} threads: lookups {lookups}  steps {steps}");
        }
    }
}
