//! Counters that only grow, for statistics. The first threads of the process have a cache line each, so that adding is a
//! load and a store. The other threads share one more line.
//!
//! A sum has all additions that happened before it was asked for. While others add, it is of no one instant.

use crate::cache_line::CacheLine;
use crate::epoch::{slot_index, Guard};
use crate::facade::{AtomicU64, Ordering};
use crate::slab::Own;
use std::sync::OnceLock;

/// Most threads that have a stripe of their own.
const MAX_OWN: usize = 128;

/// The stripes of a tally that takes few bytes, without the last one.
const FEW_STRIPES: usize = 7;

/// `N` counters. See the module's documentation.
#[derive(Debug)]
pub struct Tally<const N: usize>(Own<[Stripe<N>]>);

/// What one thread has counted. The last stripe is that of all threads without one of their own.
#[derive(Debug)]
struct Stripe<const N: usize>([AtomicU64; N], CacheLine);

/// Schedulers are the first threads of a VM that call the library, and each has a dirty one beside it.
fn own_stripes() -> usize {
    static NUMBER: OnceLock<usize> = OnceLock::new();
    let processors = || std::thread::available_parallelism().map_or(1, |number| number.get());
    *NUMBER.get_or_init(|| (2 * processors() + 2).min(MAX_OWN))
}

impl<const N: usize> Tally<N> {
    /// Counters of value zero. `None` when memory is exhausted.
    pub fn new() -> Option<Self> {
        Self::with(own_stripes())
    }

    /// The same with few stripes, on any machine.
    pub fn small() -> Option<Self> {
        Self::with(own_stripes().min(FEW_STRIPES))
    }

    fn with(own: usize) -> Option<Self> {
        let zero = || Stripe(std::array::from_fn(|_| AtomicU64::new(0)), CacheLine);
        Own::slice(own + 1, zero).map(Self)
    }

    /// Adds to a counter. Wait-free. Panics if there is no such counter.
    pub fn add(&self, counter: usize, amount: u64) {
        let slot = slot_index();
        // Relaxed: a counter orders nothing. A thread that takes over the slot of one that has ended sees what that one
        // wrote.
        match self.own(slot) {
            Some(words) => {
                let sum = words[counter].load(Ordering::Relaxed).wrapping_add(amount);
                words[counter].store(sum, Ordering::Relaxed);
            }
            None => {
                self.0[self.0.len() - 1].0[counter].fetch_add(amount, Ordering::Relaxed);
            }
        }
    }

    /// The counters that only the thread with this slot writes, if it has any.
    #[inline]
    fn own(&self, slot: usize) -> Option<&[AtomicU64; N]> {
        (slot < self.0.len() - 1).then(|| &self.0[slot].0)
    }

    /// Adds 1 to a counter and stores a word in place of another, for which sums make no sense. Does the second only if
    /// the thread has a stripe of its own.
    #[inline]
    pub fn count(&self, guard: &Guard, counter: usize, (place, word): (usize, u64)) {
        match self.own(guard.slot_index()) {
            // Relaxed: as in `add`.
            Some(words) => {
                let sum = words[counter].load(Ordering::Relaxed).wrapping_add(1);
                words[counter].store(sum, Ordering::Relaxed);
                words[place].store(word, Ordering::Relaxed);
            }
            None => self.add(counter, 1),
        }
    }

    /// A word that [`count`](Self::count) stored, and 0 in its place from now on.
    pub fn take(&self, guard: &Guard, place: usize) -> u64 {
        self.own(guard.slot_index()).map_or(0, |words| {
            // Relaxed, for both: the word is the thread's own.
            let word = words[place].load(Ordering::Relaxed);
            words[place].store(0, Ordering::Relaxed);
            word
        })
    }

    /// The sums of all counters.
    pub fn sums(&self) -> [u64; N] {
        let sum = |counter: usize| {
            // Relaxed: the sums are not of one instant.
            let words = self.0.iter().map(|stripe| stripe.0[counter].load(Ordering::Relaxed));
            words.fold(0, u64::wrapping_add)
        };
        std::array::from_fn(sum)
    }

    /// Bytes of the stripes.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn sums_have_the_additions_of_all_threads() {
        let tally = Tally::<3>::new().unwrap();
        // More threads than stripes, so some share one.
        let threads = MAX_OWN.min(own_stripes() + 20);
        let barrier = std::sync::Barrier::new(threads);
        thread::scope(|scope| {
            for number in 0..threads as u64 {
                let (tally, barrier) = (&tally, &barrier);
                scope.spawn(move || {
                    slot_index();
                    barrier.wait();
                    for _ in 0..1000 {
                        tally.add(0, 1);
                        tally.add(2, number);
                    }
                });
            }
        });
        let threads = threads as u64;
        assert_eq!(tally.sums(), [1000 * threads, 0, 1000 * threads * (threads - 1) / 2]);
    }
}
