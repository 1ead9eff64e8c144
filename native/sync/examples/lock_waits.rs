//! Prints, for each kind of table lock, how long an operation took at most when threads outnumber processors, and how many were
//! done: `cargo run --release -p cats-sync --example lock_waits [threads] [seconds]`.

use cats_sync::lock::{AnyLock, Kind, TableLock};
use cats_sync::Busy;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What one thread saw.
#[derive(Default)]
struct Seen {
    operations: u64,
    /// The longest call, Busy or not, and the longest time from the first call to one that succeeded.
    longest_call: Duration,
    longest_operation: Duration,
    busy: u64,
}

fn work(lock: &AnyLock<BTreeMap<u64, u64>>, thread: u64, end: Instant) -> Seen {
    let (mut seen, mut random) = (Seen::default(), thread + 1);
    while Instant::now() < end {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let key = random >> 48;
        let start = Instant::now();
        loop {
            let call = Instant::now();
            let done: Result<_, Busy> = if random % 2 == 0 {
                lock.read(|map| map.get(&key).copied())
            } else {
                lock.write(|map| map.insert(key, random))
            };
            seen.longest_call = seen.longest_call.max(call.elapsed());
            if done.is_ok() {
                break;
            }
            seen.busy += 1;
            std::thread::yield_now();
        }
        seen.longest_operation = seen.longest_operation.max(start.elapsed());
        seen.operations += 1;
    }
    seen
}

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .map(|argument| argument.parse().expect("a number"));
    let threads: u64 = arguments.next().unwrap_or(8);
    let time = Duration::from_secs(arguments.next().unwrap_or(2));
    println!("{threads} threads, half of their operations writes");
    println!(
        "{:16} {:>14} {:>14} {:>16} {:>8}",
        "lock", "operations/s", "longest call", "longest operation", "busy"
    );
    for kind in Kind::ALL {
        let lock = AnyLock::of(kind, BTreeMap::new(), 2);
        let end = Instant::now() + time;
        let seen: Vec<Seen> = std::thread::scope(|scope| {
            let spawn = |thread| {
                let lock = &lock;
                scope.spawn(move || work(lock, thread, end))
            };
            let threads: Vec<_> = (0..threads).map(spawn).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"))
                .collect()
        });
        let operations: u64 = seen.iter().map(|seen| seen.operations).sum();
        let longest = |part: fn(&Seen) -> Duration| seen.iter().map(part).max().unwrap_or_default();
        println!(
            "{:16} {:14.0} {:>14.1?} {:>16.1?} {:8}",
            format!("{kind:?}"),
            operations as f64 / time.as_secs_f64(),
            longest(|seen| seen.longest_call),
            longest(|seen| seen.longest_operation),
            seen.iter().map(|seen| seen.busy).sum::<u64>()
        );
    }
}
