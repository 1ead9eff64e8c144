//! The MCS queue lock alone: an unlock while another thread enters the queue or leaves it, and hand-over in a queue of
//! three.

use crate::{all, patiently, Watched};
use cats_papers::lock::mcs::Mcs;
use std::sync::atomic::{AtomicU64, Ordering};

/// With the number of sections that ran, which the checker does not track.
type Locked = (Mcs, Watched, AtomicU64);

fn make() -> Locked {
    (Mcs::default(), Watched::new(), AtomicU64::new(0))
}

/// A thread that leaves if the others are slow.
fn try_to_add((lock, value, added): &Locked) {
    if lock.with(|_| value.add(1)).is_ok() {
        added.fetch_add(1, Ordering::Relaxed);
    }
}

fn add((lock, value, added): &Locked) {
    patiently(|| lock.with(|_| value.add(1)));
    added.fetch_add(1, Ordering::Relaxed);
}

fn add_twice(locked: &Locked) {
    add(locked);
    add(locked);
}

/// The queue is empty.
fn check((lock, value, added): &Locked) {
    assert_eq!(value.get(), added.load(Ordering::Relaxed));
    assert!(lock.is_free());
}

#[test]
fn an_unlock_meets_one_who_lines_up() {
    all(3, make, &[add_twice, add], check);
}

#[test]
fn three_hand_the_lock_on_or_leave() {
    all(2, make, &[try_to_add, try_to_add, try_to_add], check);
}

#[test]
fn one_lines_up_behind_a_place_that_was_left() {
    all(2, make, &[add, try_to_add, try_to_add], check);
}
