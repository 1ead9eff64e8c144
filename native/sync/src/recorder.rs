//! Records for a while where the operations of one table wait for each other, and which processes meet there.
//!
//! Only a thread that has to wait anyway, or whose read failed, writes to a recorder. The memory is bounded: what occurs often stays, and
//! what is rare gets lost. A place, or a pair of processes, belongs to one of [`SETS`] sets. Each set keeps [`WAYS`], and gives up the one
//! that it has met least.
//!
//! While a table is recorded, each of its calls tells which process makes it ([`Guard::tell_caller`]). The thread keeps that beside what it
//! announces. So a thread that waits knows its own process, and finds another one that is in a call on the table. With two schedulers this is
//! the one that holds the lock. With more it is one of those that may.

use crate::epoch::Guard;
use crate::facade::{global, AtomicU64, Ordering};
use crate::thread;
use crate::try_cell::TryCell;
use std::time::{Duration, Instant};

/// The number of sets.
const SETS: usize = 64;
/// What a set keeps.
const WAYS: usize = 4;
/// The processes that are kept of those that were met at a place.
pub const PROCESSES: usize = 4;

/// What was met, and how often.
#[derive(Clone, Copy, Debug)]
pub struct Met<const N: usize> {
    /// For a place: 0 and the hash of the key, or the address of the lock and 0. For a meeting: the process that waited, and another one.
    pub what: (u64, u64),
    pub waits: u64,
    /// Reads that failed.
    pub reads: u64,
    /// The nanoseconds of the waits.
    pub time: u64,
    /// Processes that were met here, or 0.
    pub processes: [u64; N],
}

/// What was met most. See the module's documentation.
#[derive(Debug)]
struct Hits<const N: usize>(Vec<TryCell<[Met<N>; WAYS]>>);

impl<const N: usize> Hits<N> {
    fn new() -> Self {
        Self((0..SETS).map(|_| TryCell::new([Met::of((0, 0)); WAYS])).collect())
    }

    fn meet(&self, what: (u64, u64), wait: Option<Duration>, process: u64) {
        let mixed = (what.0 ^ what.1.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0[(mixed >> 32) as usize % SETS].with(|set| {
            let known = set.iter().position(|met| met.what == what);
            let place = known.unwrap_or_else(|| {
                let least = (0..WAYS)
                    .min_by_key(|&way| set[way].waits + set[way].reads)
                    .unwrap_or(0);
                set[least] = Met::of(what);
                least
            });
            let met = &mut set[place];
            match wait {
                Some(time) => {
                    met.waits += 1;
                    met.time += time.as_nanos() as u64;
                }
                None => met.reads += 1,
            }
            if process != 0 && !met.processes.contains(&process) {
                // The free place, or one after the other.
                let count = (met.waits + met.reads) as usize;
                let free = met.processes.iter().position(|process| *process == 0);
                if let Some(place) = met.processes.get_mut(free.unwrap_or(count % N.max(1))) {
                    *place = process;
                }
            }
        });
    }

    fn all(&self) -> Vec<Met<N>> {
        let mut all = Vec::new();
        for set in &self.0 {
            set.with(|set| all.extend(set.iter().filter(|met| met.waits + met.reads > 0)));
        }
        all
    }

    fn bytes(&self) -> usize {
        self.0.len() * size_of::<TryCell<[Met<N>; WAYS]>>()
    }
}

impl<const N: usize> Met<N> {
    fn of(what: (u64, u64)) -> Self {
        Self {
            what,
            waits: 0,
            reads: 0,
            time: 0,
            processes: [0; N],
        }
    }
}

global! {
    /// The number of recorders that were made.
    static RECORDERS: AtomicU64 = AtomicU64::new(0);
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Recorder {
    /// Distinguishes recorders. Never 0.
    number: u64,
    begin: Instant,
    waits: AtomicU64,
    reads: AtomicU64,
    /// The nanoseconds of the waits.
    time: AtomicU64,
    places: Hits<PROCESSES>,
    meetings: Hits<0>,
    /// How many want what is recorded. Changed under a lock of the table.
    users: AtomicU64,
}

/// All that a recorder has met.
#[derive(Debug)]
pub struct Recorded {
    pub since: Duration,
    pub waits: u64,
    pub reads: u64,
    pub time: u64,
}

/// The key says more than the lock, which may be replaced by another one.
fn place_of(lock: u64, hash: u64) -> (u64, u64) {
    match hash {
        0 => (lock, 0),
        _ => (0, hash),
    }
}

impl Recorder {
    /// A recorder that nobody wants so far.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self {
            // Relaxed: only uniqueness matters.
            number: RECORDERS.fetch_add(1, Ordering::Relaxed) + 1,
            begin: Instant::now(),
            waits: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            time: AtomicU64::new(0),
            places: Hits::new(),
            meetings: Hits::new(),
            users: AtomicU64::new(0),
        }
    }

    /// Notes that one more wants what is recorded, or one less. Returns their number. The callers exclude each other.
    pub fn used(&self, more: bool) -> u64 {
        // Relaxed: the callers exclude each other.
        let users = self.users.load(Ordering::Relaxed);
        let users = if more { users + 1 } else { users.saturating_sub(1) };
        self.users.store(users, Ordering::Relaxed);
        users
    }

    /// A process, other than that of this thread, that is in a call on the table. 0 if none is seen.
    pub fn someone_else(&self) -> u64 {
        // Relaxed: a choice. The number changes, so it is not always the same one of several.
        thread::other_caller(self.number, self.waits.load(Ordering::Relaxed))
    }

    /// Records a wait of this thread. `other` comes from [`someone_else`](Self::someone_else) when it began.
    pub fn waited(&self, place: u64, hash: u64, time: Duration, other: u64) {
        // Relaxed, here and below: counters order nothing.
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.time.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
        let caller = thread::caller(self.number);
        self.places.meet(place_of(place, hash), Some(time), caller);
        if caller != 0 && other != 0 {
            self.meetings.meet((caller, other), Some(time), 0);
        }
    }

    /// Records that a read of this thread met a writer.
    pub fn read_again(&self, place: u64, hash: u64) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.places
            .meet(place_of(place, hash), None, thread::caller(self.number));
    }

    /// All in numbers.
    pub fn recorded(&self) -> Recorded {
        Recorded {
            since: self.begin.elapsed(),
            waits: self.waits.load(Ordering::Relaxed),
            reads: self.reads.load(Ordering::Relaxed),
            time: self.time.load(Ordering::Relaxed),
        }
    }

    /// The places that were met most.
    pub fn places(&self) -> Vec<Met<PROCESSES>> {
        self.places.all()
    }

    /// The pairs of processes that met most: the one that waited, and another one.
    pub fn meetings(&self) -> Vec<Met<0>> {
        self.meetings.all()
    }

    /// Bytes of the recorder.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.places.bytes() + self.meetings.bytes()
    }
}

impl Guard {
    /// Tells which process makes the call that this guard is for, on a table with this recorder.
    #[cold]
    pub fn tell_caller(&self, recorder: &Recorder, process: u64) {
        self.slot().tell_caller(recorder.number, process);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::epoch::pin;
    use std::sync::Barrier;

    #[test]
    fn what_is_met_often_stays() {
        let recorder = Recorder::new();
        for rare in 1..=100_000 {
            recorder.waited(0, rare, Duration::from_nanos(1), 0);
            if rare % 20 == 0 {
                recorder.waited(7, u64::MAX, Duration::from_micros(2), 0);
            }
        }
        let places = recorder.places();
        assert!(places.len() <= SETS * WAYS);
        let most = places.iter().max_by_key(|met| met.waits).unwrap();
        assert_eq!((most.what, most.waits, most.time), ((0, u64::MAX), 5000, 5000 * 2000));
        assert_eq!(recorder.recorded().waits, 105_000);
    }

    #[test]
    fn a_thread_knows_its_process_and_another_one_in_a_call() {
        let (recorder, other_recorder) = (Recorder::new(), Recorder::new());
        let barrier = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let guard = pin();
                guard.tell_caller(&recorder, 16);
                barrier.wait();
                barrier.wait();
                drop(guard);
                barrier.wait();
                barrier.wait();
            });
            let guard = pin();
            barrier.wait();
            // This thread's process is not known.
            recorder.waited(1, 2, Duration::ZERO, recorder.someone_else());
            assert!(recorder.meetings().is_empty());
            guard.tell_caller(&recorder, 32);
            assert_eq!(recorder.someone_else(), 16);
            assert_eq!(other_recorder.someone_else(), 0);
            recorder.waited(1, 2, Duration::ZERO, recorder.someone_else());
            recorder.read_again(1, 2);
            barrier.wait();
            barrier.wait();
            // The other call has ended.
            assert_eq!(recorder.someone_else(), 0);
            barrier.wait();
        });
        let meetings = recorder.meetings();
        assert_eq!((meetings.len(), meetings[0].what, meetings[0].waits), (1, (32, 16), 1));
        let places = recorder.places();
        assert_eq!((places[0].what, places[0].waits, places[0].reads), ((0, 2), 2, 1));
        assert_eq!(places[0].processes, [32, 0, 0, 0]);
    }

    #[test]
    fn users_are_counted() {
        let recorder = Recorder::new();
        recorder.read_again(8, 0);
        assert_eq!(recorder.places()[0].what, (8, 0));
        assert_eq!([true, true, false, false].map(|more| recorder.used(more)), [1, 2, 1, 0]);
        assert!(recorder.bytes() < 40 << 10);
    }
}
