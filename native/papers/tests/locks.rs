//! The locks with real threads. Each kind excludes what it must, lets every thread through, and survives panics. It
//! keeps the order of one thread's operations, detached or not.
#![cfg(not(loom))]

use cats_papers::lock::{AnyLock, Kind, TableLock};
use cats_sync::Busy;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

const STRESS: Duration = Duration::from_millis(200);
const THREADS: usize = 4;

/// Words that are all equal whenever no thread is changing them.
type Words = [u64; 32];

fn each(test: impl Fn(Kind)) {
    Kind::ALL.into_iter().for_each(test);
}

/// Repeats a call until the result is not `Busy`.
fn patiently<R>(mut call: impl FnMut() -> Result<R, Busy>) -> R {
    loop {
        match call() {
            Ok(result) => return result,
            Err(Busy) => std::thread::yield_now(),
        }
    }
}

fn increment(words: &mut Words) -> u64 {
    words.iter_mut().for_each(|word| *word += 1);
    words[0]
}

/// An operation for `detach`. Records a number and that it is the `words[1]`th operation of its thread.
fn note(seen: &mut Vec<(u64, u64)>, words: &[u64]) {
    seen.push((words[0], words[1]));
}

fn whole(words: &Words) -> u64 {
    assert!(words.iter().all(|word| *word == words[0]), "a reader met a writer");
    words[0]
}

#[test]
fn writers_and_readers_exclude_each_other_and_all_get_through() {
    each(|kind| {
        let lock = AnyLock::of(kind, [0_u64; 32], 2);
        let (changes, end) = (AtomicUsize::new(0), Instant::now() + STRESS);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (lock, changes) = (&lock, &changes);
                scope.spawn(move || {
                    let (mut turns, mut last) = (thread, 0);
                    // With a lock that lets a thread starve this never ends.
                    while Instant::now() < end || turns < 1000 {
                        turns += 1;
                        let now = match turns % 5 {
                            0 => patiently(|| lock.write(increment)),
                            1 => patiently(|| lock.write_here(increment)),
                            2 => patiently(|| lock.read_here(whole)),
                            _ => patiently(|| lock.read(whole)),
                        };
                        changes.fetch_add(usize::from(turns % 5 < 2), Relaxed);
                        assert!(now >= last, "time went back");
                        last = now;
                    }
                });
            }
        });
        assert_eq!(patiently(|| lock.read(whole)), changes.into_inner() as u64, "{kind:?}");
    });
}

#[test]
fn what_a_thread_detaches_is_done_in_its_order_before_what_it_asks_for_next() {
    each(|kind| {
        let lock = AnyLock::of(kind, Vec::new(), 2);
        let end = Instant::now() + STRESS;
        std::thread::scope(|scope| {
            for thread in 0..THREADS as u64 {
                let lock = &lock;
                scope.spawn(move || {
                    let mut turn = 0;
                    while Instant::now() < end {
                        turn += 1;
                        // SAFETY: any thread may run the operation.
                        patiently(|| unsafe { lock.detach(note, &[thread, turn]) });
                        if turn % 3 == 0 {
                            let last = move |seen: &Vec<_>| {
                                seen.iter().rev().find(|noted: &&(u64, u64)| noted.0 == thread).copied()
                            };
                            assert_eq!(patiently(|| lock.read(last)), Some((thread, turn)), "{kind:?}");
                        }
                    }
                    turn
                });
            }
        });
        let mut turns = [0; THREADS];
        for (thread, turn) in patiently(|| lock.write(std::mem::take)) {
            turns[thread as usize] += 1;
            assert_eq!(turn, turns[thread as usize], "in order, each once");
        }
    });
}

#[test]
fn a_long_payload_arrives() {
    each(|kind| {
        let lock = AnyLock::of(kind, Vec::new(), 2);
        let words: Vec<u64> = (0..1000).collect();
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for len in 0..words.len() {
                        let sum =
                            |sums: &mut Vec<(usize, u64)>, words: &[u64]| sums.push((words.len(), words.iter().sum()));
                        // SAFETY: any thread may run the operation.
                        patiently(|| unsafe { lock.detach(sum, &words[..len]) });
                    }
                });
            }
        });
        let sums = patiently(|| lock.write(std::mem::take));
        assert_eq!(sums.len(), THREADS * words.len());
        assert!(sums.iter().all(|(len, sum)| *sum == words[..*len].iter().sum()));
    });
}

#[test]
fn a_panic_goes_to_the_one_whose_section_it_is_and_frees_the_lock() {
    each(|kind| {
        let lock = AnyLock::of(kind, [0_u64; 32], 2);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let lock = &lock;
                scope.spawn(move || {
                    for turn in 0..200 {
                        let call = || match (turn + thread) % 5 {
                            0 => patiently(|| lock.write(|_| -> u64 { std::panic::panic_any(thread) })),
                            1 => patiently(|| lock.write_here(|_| -> u64 { std::panic::panic_any(thread) })),
                            2 => patiently(|| lock.read(|_| -> u64 { std::panic::panic_any(thread) })),
                            3 => patiently(|| lock.write(increment)),
                            _ => patiently(|| lock.read(whole)),
                        };
                        match catch_unwind(AssertUnwindSafe(call)) {
                            Ok(_) => assert!((turn + thread) % 5 > 2),
                            Err(panic) => assert_eq!(panic.downcast_ref(), Some(&thread), "{kind:?}"),
                        }
                    }
                });
            }
        });
        assert_eq!(patiently(|| lock.read(whole)), THREADS as u64 * 40);
    });
}

/// A detached operation panics, and others follow it.
#[test]
fn a_panic_of_a_detached_operation_ends_there() {
    fn run(value: &mut u64, words: &[u64]) {
        assert!(words[0] != 0, "on purpose");
        *value += 1;
    }
    each(|kind| {
        let lock = AnyLock::of(kind, 0, 2);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for turn in 0..200 {
                        // SAFETY: any thread may run the operation.
                        let call = || patiently(|| unsafe { lock.detach(run, &[turn % 4]) });
                        // The caller gets the panic only if it ran the operation itself.
                        let result = catch_unwind(AssertUnwindSafe(call));
                        assert!(result.is_ok() || turn % 4 == 0);
                    }
                });
            }
        });
        assert_eq!(patiently(|| lock.read(|value| *value)), 150 * THREADS as u64);
    });
}

/// Threads that end after a few calls, among others that go on. No thread waits for one that has ended.
#[test]
fn threads_come_and_go() {
    each(|kind| {
        let lock = AnyLock::of(kind, 0_u64, 2);
        let going = AtomicBool::new(true);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while going.load(Relaxed) {
                    patiently(|| lock.read(|value| *value));
                    patiently(|| lock.write(|value| *value += 0));
                }
            });
            for _ in 0..200 {
                let short = || {
                    // SAFETY: any thread may run the operation.
                    patiently(|| unsafe { lock.detach(|value, _| *value += 1, &[]) });
                };
                let threads = [scope.spawn(short), scope.spawn(short)];
                threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
            }
            going.store(false, Relaxed);
        });
        assert_eq!(patiently(|| lock.read(|value| *value)), 400);
    });
}

/// One thread holds several locks at once.
#[test]
fn sections_of_different_locks_nest() {
    each(|kind| {
        let locks = Kind::ALL.map(|kind| AnyLock::of(kind, 0_u64, 2));
        let outer = AnyLock::of(kind, 0_u64, 2);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..100 {
                        patiently(|| {
                            outer.write(|_| {
                                locks
                                    .iter()
                                    .for_each(|lock| patiently(|| lock.write(|value| *value += 1)))
                            })
                        });
                    }
                });
            }
        });
        for lock in &locks {
            assert_eq!(patiently(|| lock.read(|value| *value)), 100 * THREADS as u64);
        }
    });
}
