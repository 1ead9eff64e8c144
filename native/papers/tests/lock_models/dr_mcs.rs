//! DR-MCS: the store-load pair, and the wait for readers that a writer omits if the lock was handed over to it.

use crate::{all, make, read, Watched};
use cats_papers::lock::dr_mcs::DrMcs;
use cats_papers::lock::TableLock;

crate::models!(DrMcs<Watched>, 3, 3, 2);

fn try_to_write(lock: &DrMcs<Watched>) {
    let _ = lock.write(|value| value.add(1));
}

/// The first of two writers may have given up waiting for the reader when it hands the lock on.
#[test]
fn a_chain_of_writers_beside_a_reader() {
    all(3, make::<DrMcs<Watched>>, &[try_to_write, read, try_to_write], |_| ());
}
