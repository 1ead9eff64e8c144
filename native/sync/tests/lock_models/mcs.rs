//! The MCS queue lock alone: an unlock against one who is about to line up, and hand-over through a queue of three.

use crate::{all, Watched};
use cats_sync::lock::mcs::Mcs;

type Locked = (Mcs, Watched);

fn make() -> Locked {
    (Mcs::default(), Watched::new())
}

fn add((lock, value): &Locked) {
    lock.with(|_| value.add(1));
}

fn add_twice(locked: &Locked) {
    add(locked);
    add(locked);
}

#[test]
fn an_unlock_meets_one_who_lines_up() {
    all(3, make, &[add_twice, add], |locked| assert_eq!(locked.1.get(), 3));
}

#[test]
fn three_hand_the_lock_on() {
    all(2, make, &[add, add, add], |locked| assert_eq!(locked.1.get(), 3));
}
