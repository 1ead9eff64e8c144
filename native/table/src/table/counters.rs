//! What the calls on a table with option `stats` do, counted by kind.

use cats_sync::epoch::Guard;
use cats_sync::slab::Own;
use cats_sync::tally::Tally;

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads a key.
    Lookup,
    /// A lookup that found nothing. It is counted as a lookup, too.
    Miss,
    /// Inserts an object.
    Insert,
    /// Changes the object of a key.
    Update,
    /// Deletes a key or an object.
    Delete,
    /// Goes to the next key, or to the first.
    Step,
    /// Goes over many objects.
    Scan,
}

/// The number of [`Operation`]s.
pub const OPERATIONS: usize = Operation::Scan as usize + 1;

/// In a stripe, the number of what its thread counted last, from 1.
const LAST: usize = OPERATIONS;

/// The counters of one table.
#[derive(Debug)]
pub(crate) struct Counters(Own<Tally<{ OPERATIONS + 1 }>>);

impl Counters {
    /// `small`: they take few bytes. `None` when memory is exhausted.
    pub fn new(small: bool) -> Option<Self> {
        Own::new(if small { Tally::small()? } else { Tally::new()? }).map(Self)
    }

    /// Counts the operation of a call, if it has one.
    #[inline]
    pub fn count(&self, guard: &Guard, operation: Option<Operation>) {
        match operation {
            Some(operation) => self.0.count(guard, operation as usize, (LAST, operation as u64 + 1)),
            None => _ = self.0.take(guard, LAST),
        }
    }

    /// Counts what the operation of a call came to.
    pub fn count_beside(&self, guard: &Guard, operation: Operation) {
        self.0.count(guard, operation as usize, (LAST, 0));
    }

    pub fn add(&self, operation: Operation, times: u64) {
        self.0.add(operation as usize, times);
    }

    /// Takes back what this thread counted last. A thread without counters of its own takes nothing back.
    pub fn take_back(&self, guard: &Guard) {
        let last = self.0.take(guard, LAST);
        if last > 0 {
            self.0.add(last as usize - 1, 1_u64.wrapping_neg());
        }
    }

    pub fn sums(&self) -> [u64; OPERATIONS] {
        let sums = self.0.sums();
        std::array::from_fn(|operation| sums[operation])
    }

    pub fn bytes(&self) -> usize {
        size_of_val(&*self.0) + self.0.bytes()
    }
}
