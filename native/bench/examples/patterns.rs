//! Insertion of 2^20 keys into `ca` by the order of the keys. Prints nanoseconds of processor time for each insertion, and bytes for
//! each key.
//!
//! `cargo run --release -p cats-bench --example patterns [ROUNDS [ORDER]]`

use cats_bench::immediates::Immediates;
use cats_engine::ca::Ca;
use cats_engine::{mix, Engine, Entry, Step};
use cats_sync::epoch;

const KEYS: u64 = 1 << 20;

type Order = (&'static str, fn(u64) -> u64);

/// Each gives different keys at different indices.
const ORDERS: [Order; 10] = [
    ("random", |i| mix(i) >> 8),
    ("ascending", |i| i),
    ("descending", |i| KEYS - i),
    ("multiples mod 2^20", |i| i * 0x9E37_79B1 % KEYS),
    ("1000 mod prime", |i| i * 1000 % 1_048_583),
    ("64 runs", |i| i % 64 * (KEYS / 64) + i / 64),
    ("4096 runs", |i| i % 4096 * (KEYS / 4096) + i / 4096),
    ("inwards", |i| if i % 2 == 0 { i / 2 } else { KEYS - 1 - i / 2 }),
    ("blocks of 8 shuffled", |i| (mix(i / 8) >> 10 << 3) | (i % 8)),
    ("blocks shuffled", |i| (mix(i / 64) >> 10 << 6) | (i % 64)),
];

/// Nanoseconds of processor time that this thread has had.
fn cpu_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills the structure.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn main() {
    let rounds = std::env::args()
        .nth(1)
        .map_or(5, |rounds| rounds.parse().expect("a number of rounds"));
    let wanted = std::env::args().nth(2);
    for (name, order) in ORDERS {
        if wanted.as_ref().is_some_and(|wanted| wanted != name) {
            continue;
        }
        let keys: Vec<u64> = (0..KEYS).map(order).collect();
        let mut times = Vec::new();
        let mut bytes = 0;
        for _ in 0..rounds {
            let ca = Ca::new(Immediates);
            let start = cpu_time();
            for &key in &keys {
                let entry = Entry {
                    key: key << 4 | 15,
                    body: key << 4 | 15,
                };
                while ca.update(&epoch::pin(), &key, |_| (Step::Put(entry), ())).is_err() {}
            }
            times.push((cpu_time() - start) / KEYS as f64);
            bytes = ca.bytes();
        }
        times.sort_by(f64::total_cmp);
        let per_key = bytes as f64 / KEYS as f64;
        println!(
            "{name:20} {:6.1} {:6.1} ns {per_key:6.1} bytes",
            times[0],
            times[times.len() / 2]
        );
    }
}
