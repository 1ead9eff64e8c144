//! Models of the locks, a file for each, checked exhaustively under the weak memory model, up to a bound on
//! preemptions. Run by `RUSTFLAGS="--cfg loom" cargo test --release -p cats-papers --test lock_models`.
#![cfg(loom)]

mod cc_synch;
mod dr_mcs;
mod ets_pointer;
mod mcs;
mod mrqd;
mod qd;
mod rw;

use cats_papers::lock::TableLock;
use cats_sync::Busy;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

/// A number whose reads and writes the checker tracks.
struct Watched(UnsafeCell<u64>);

// SAFETY: the models check that the accesses exclude each other. The checker reports a violation.
unsafe impl Sync for Watched {}
// SAFETY: as above.
unsafe impl Send for Watched {}

impl Watched {
    fn new() -> Self {
        Self(UnsafeCell::new(0))
    }
    fn get(&self) -> u64 {
        // SAFETY: the checker reports a concurrent write.
        self.0.with(|value| unsafe { *value })
    }
    fn add(&self, amount: u64) -> u64 {
        // SAFETY: the checker reports a concurrent access.
        self.0.with_mut(|value| unsafe {
            *value += amount;
            *value
        })
    }
}

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.check(model);
}

/// Runs all concurrently.
fn all<T: Send + Sync + 'static>(preemptions: usize, make: fn() -> T, runs: &'static [fn(&T)], after: fn(&T)) {
    check(preemptions, move || {
        let shared = Arc::new(make());
        let threads: Vec<_> = runs[1..]
            .iter()
            .map(|run| {
                let shared = shared.clone();
                thread::spawn(move || run(&shared))
            })
            .collect();
        runs[0](&shared);
        for thread in threads {
            thread.join().unwrap();
        }
        after(&shared);
    });
}

/// Repeats a call until the result is not `Busy`.
fn patiently<R>(mut call: impl FnMut() -> Result<R, Busy>) -> R {
    loop {
        match call() {
            Ok(result) => return result,
            Err(Busy) => thread::yield_now(),
        }
    }
}

/// A lock around a watched number.
fn make<L: TableLock<Watched>>() -> L {
    L::new(Watched::new(), 2)
}

fn read<L: TableLock<Watched>>(lock: &L) {
    let _ = lock.read(|value| value.get());
}

fn write<L: TableLock<Watched>>(lock: &L) {
    patiently(|| lock.write(|value| value.add(1)));
}

/// A reader and a writer, in both roles, because the checker does not try every order of the first thread's accesses.
fn a_reader_and_a_writer_exclude_each_other<L: TableLock<Watched> + 'static>(preemptions: usize) {
    let once = |lock: &L| assert_eq!(patiently(|| lock.read(|value| value.get())), 1);
    all(preemptions, make::<L>, &[read::<L>, write::<L>], once);
    all(preemptions, make::<L>, &[write::<L>, read::<L>], once);
}

/// Two writers, and a reader that starts as soon as one of them is done.
fn writers_exclude_each_other<L: TableLock<Watched> + 'static>(preemptions: usize) {
    all(preemptions, make::<L>, &[write::<L>, write::<L>], |lock| {
        assert_eq!(patiently(|| lock.read(|value| value.get())), 2);
    });
}

/// Two writers and a reader.
fn three_threads_exclude_each_other<L: TableLock<Watched> + 'static>(preemptions: usize) {
    all(preemptions, make::<L>, &[write::<L>, read::<L>, write::<L>], |lock| {
        assert_eq!(patiently(|| lock.read(|value| value.get())), 2);
    });
}

/// The tests of any lock, with the bound on preemptions that each can afford.
macro_rules! models {
    ($lock:ty, $pair:expr, $writers:expr, $three:expr) => {
        crate::models!($lock, $pair, $writers);
        #[test]
        fn three_threads_exclude_each_other() {
            crate::three_threads_exclude_each_other::<$lock>($three);
        }
    };
    ($lock:ty, $pair:expr, $writers:expr) => {
        #[test]
        fn a_reader_and_a_writer_exclude_each_other() {
            crate::a_reader_and_a_writer_exclude_each_other::<$lock>($pair);
        }
        #[test]
        fn writers_exclude_each_other() {
            crate::writers_exclude_each_other::<$lock>($writers);
        }
    };
}

use models;
