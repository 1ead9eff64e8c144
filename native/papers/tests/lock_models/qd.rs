//! The delegation queue alone, with one flag as its lock. It tests four cases.
//! - A close races with a reservation.
//! - A reservation crosses the end of the buffer.
//! - A thread uses a word of an earlier session.
//! - A buffer is cleared before it is used again.
//!
//! The buffer has 7 words here: two records of 3.

use crate::{all, check, Watched};
use cats_papers::lock::qd::DelegationQueue;
use cats_sync::facade::{AtomicBool, AtomicU64, Ordering};
use loom::sync::Arc;
use loom::thread;

/// What the lock protects: the number of a `Shared`.
struct Protected(*const Watched);

struct Shared {
    held: AtomicBool,
    queue: DelegationQueue<Protected>,
    value: Watched,
    /// The total that the queue accepted.
    accepted: AtomicU64,
}

fn make() -> Shared {
    Shared {
        held: AtomicBool::new(false),
        queue: DelegationQueue::default(),
        value: Watched::new(),
        accepted: AtomicU64::new(0),
    }
}

fn run(value: &mut Protected, payload: &[u64]) {
    assert!(payload.len() == 1, "a whole entry");
    // SAFETY: the number lives as long as the queue.
    unsafe { &*value.0 }.add(payload[0]);
}

impl Shared {
    fn try_session(&self) -> bool {
        let taken = self
            .held
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_ok();
        if taken {
            self.queue.open();
            // The session's own section.
            self.value.add(100);
            self.queue.flush(&mut Protected(&self.value));
            self.held.store(false, Ordering::Release);
        }
        taken
    }

    fn leave(&self, amount: u64) {
        // SAFETY: `run` may run anywhere.
        if unsafe { self.queue.enqueue(run, &[amount]) } {
            self.accepted.fetch_add(amount, Ordering::Relaxed);
        }
    }
}

fn session(shared: &Shared) {
    assert!(shared.try_session());
}

fn two_sessions(shared: &Shared) {
    session(shared);
    session(shared);
}

/// What was accepted was done exactly once.
fn nothing_is_lost(shared: &Shared) {
    let done = shared.value.get() % 100;
    assert_eq!(done, shared.accepted.load(Ordering::Relaxed));
    // And nothing remains that another session would find.
    session(shared);
    assert_eq!(shared.value.get() % 100, done);
}

#[test]
fn closing_meets_reserving() {
    all(3, make, &[session, |shared| shared.leave(1)], nothing_is_lost);
    all(3, make, &[|shared| shared.leave(1), session], nothing_is_lost);
}

#[test]
fn two_leave_a_section_at_once() {
    all(
        2,
        make,
        &[session, |shared| shared.leave(1), |shared| shared.leave(10)],
        nothing_is_lost,
    );
}

#[test]
fn one_straddles_the_end() {
    fn leave_three(shared: &Shared) {
        (0..3).for_each(|_| shared.leave(1));
    }
    all(2, make, &[two_sessions, leave_three], nothing_is_lost);
    all(
        2,
        make,
        &[session, leave_three, |shared| shared.leave(10)],
        nothing_is_lost,
    );
}

/// A thread that saw the queue open in the first session reserves in the second, perhaps in words that the first has
/// cleared.
#[test]
fn one_comes_from_an_earlier_session() {
    all(3, make, &[two_sessions, |shared| shared.leave(1)], nothing_is_lost);
    all(
        2,
        make,
        &[two_sessions, |shared| shared.leave(1), |shared| shared.leave(10)],
        nothing_is_lost,
    );
}

/// Sessions of different threads: the words that one thread has cleared are written in the other's session.
#[test]
fn sessions_of_two_threads() {
    fn maybe(shared: &Shared) {
        shared.try_session();
    }
    all(2, make, &[maybe, maybe, |shared| shared.leave(1)], nothing_is_lost);
}

/// Records of two sizes. So a session starts records where an earlier one had payloads or its end mark.
fn sessions_of_different_entries(first: &'static [usize], second: &'static [usize]) {
    fn count(value: &mut Protected, payload: &[u64]) {
        assert!(payload.iter().all(|word| *word == 7));
        // SAFETY: the number lives as long as the queue.
        unsafe { &*value.0 }.add(1);
    }
    fn enqueue(shared: &Shared, payload: usize) {
        // SAFETY: `count` may run anywhere.
        if unsafe { shared.queue.enqueue(count, &[7; 1][..payload]) } {
            shared.accepted.fetch_add(1, Ordering::Relaxed);
        }
    }
    check(3, move || {
        let shared = Arc::new(make());
        shared.queue.open();
        first.iter().for_each(|payload| enqueue(&shared, *payload));
        shared.queue.flush(&mut Protected(&shared.value));
        let other = {
            let shared = shared.clone();
            thread::spawn(move || enqueue(&shared, 0))
        };
        shared.queue.open();
        second.iter().for_each(|payload| enqueue(&shared, *payload));
        shared.queue.flush(&mut Protected(&shared.value));
        other.join().unwrap();
        assert_eq!(shared.value.get(), shared.accepted.load(Ordering::Relaxed));
    });
}

#[test]
fn words_are_cleared_before_they_are_used_otherwise() {
    // The other thread's record starts at a payload, at the end mark, or at a length.
    sessions_of_different_entries(&[1, 0, 1], &[0]);
    sessions_of_different_entries(&[1, 0, 1], &[1, 0]);
    sessions_of_different_entries(&[1, 1, 1], &[0, 0]);
}
