//! What rarely happens to a table: waits for locks, reads that are repeated, adaptations. Each is counted where it
//! happens, which is off the usual path. The memory for it comes with the first event that is no adaptation.

use crate::facade::{AtomicPtr, AtomicU64, Ordering};
use crate::slab::Own;
use crate::tally::Tally;
use crate::{probe, Busy};
use std::ptr;
use std::time::{Duration, Instant};

/// The first microseconds of each class of waits but the first: powers of 4.
pub const WAIT_CLASSES: [u64; 5] = [1, 4, 16, 64, 256];

/// An event to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A base node was split, or a bucket.
    Split,
    /// Two base nodes were joined, or two buckets.
    Join,
    /// The first try of an optimistic read failed.
    ReadAgain,
    /// Waiting for a lock was given up.
    GaveUp,
    /// A nanosecond of waiting.
    WaitNanosecond,
    /// A call met a lock that was held too long, and is made again.
    Busy,
    /// A call was too long for a scheduler, and is made again on a dirty one.
    Dirty,
    /// A slice of a long call, with another one to follow.
    Slice,
    /// A slice that held a scheduler for a millisecond or more.
    LongSlice,
    /// An object was removed because its time had come.
    Expired,
    /// An object was removed to make room for others.
    Evicted,
}

/// The number of events that are adaptations. They come first. One thread at a time adapts a table, and small tables do
/// too, so these counters are not striped.
const ADAPTATIONS: usize = 2;
/// The number of [`Event`]s.
const SINGLE: usize = Event::Evicted as usize + 1;
/// The number of counters: the events, and behind them the classes of waits.
pub const COUNTERS: usize = SINGLE + WAIT_CLASSES.len() + 1;

/// Counts events. See the module's documentation.
#[derive(Debug)]
pub struct Events {
    adaptations: [AtomicU64; ADAPTATIONS],
    /// The others, or null.
    tally: AtomicPtr<Tally<{ COUNTERS - ADAPTATIONS }>>,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            adaptations: std::array::from_fn(|_| AtomicU64::new(0)),
            tally: AtomicPtr::new(ptr::null_mut()),
        }
    }
}

impl Events {
    fn tally(&self) -> Option<&Tally<{ COUNTERS - ADAPTATIONS }>> {
        // Acquire pairs with the Release of `make`. SAFETY: what is here stays until this is dropped.
        unsafe { self.tally.load(Ordering::Acquire).as_ref() }
    }

    /// Makes the counters, if nobody else does. `None` when memory is exhausted.
    fn make(&self) -> Option<&Tally<{ COUNTERS - ADAPTATIONS }>> {
        let fresh = Own::new(Tally::new()?)?.into_raw();
        let set = self
            .tally
            .compare_exchange(ptr::null_mut(), fresh, Ordering::Release, Ordering::Relaxed);
        if set.is_err() {
            // SAFETY: made above and not published.
            drop(unsafe { Own::from_raw(fresh) });
        }
        self.tally()
    }

    /// Counts an event so many times. Not counted when memory is exhausted, nor in models.
    #[cold]
    pub fn count(&self, event: Event, times: usize) {
        self.add(event as usize, times as u64);
    }

    fn add(&self, counter: usize, amount: u64) {
        if cfg!(any(loom, shuttle)) {
            return;
        }
        if let Some(word) = self.adaptations.get(counter) {
            // Relaxed: a counter orders nothing.
            word.fetch_add(amount, Ordering::Relaxed);
        } else if let Some(tally) = self.tally().or_else(|| self.make()) {
            tally.add(counter - ADAPTATIONS, amount);
        }
    }

    fn waited(&self, time: Duration, success: bool) {
        let class = WAIT_CLASSES.partition_point(|least| u128::from(*least) <= time.as_micros());
        self.add(SINGLE + class, 1);
        self.count(Event::WaitNanosecond, time.as_nanos() as usize);
        if !success {
            self.count(Event::GaveUp, 1);
        }
    }

    /// How often each event happened, and behind them the waits of each class.
    pub fn sums(&self) -> [u64; COUNTERS] {
        let mut sums = [0; COUNTERS];
        for (sum, word) in sums.iter_mut().zip(&self.adaptations) {
            *sum = word.load(Ordering::Relaxed);
        }
        if let Some(tally) = self.tally() {
            sums[ADAPTATIONS..].copy_from_slice(&tally.sums());
        }
        sums
    }

    /// Adds what another one has counted.
    pub fn absorb(&self, other: &Self) {
        for (counter, amount) in other.sums().into_iter().enumerate() {
            if amount > 0 {
                self.add(counter, amount);
            }
        }
    }

    /// Bytes of the counters.
    pub fn bytes(&self) -> usize {
        self.tally().map_or(0, |tally| size_of_val(tally) + tally.bytes())
    }
}

/// Runs a wait for a lock, between two probes, and counts it. `place` names the lock: its address, or the hash of the key
/// that it guards.
#[inline(always)]
pub fn waiting<R>(events: Option<&Events>, place: usize, wait: impl FnOnce() -> Result<R, Busy>) -> Result<R, Busy> {
    probe!(lock_wait_begin, place);
    let begin = events.map(|events| (events, Instant::now()));
    let result = wait();
    if let Some((events, begin)) = begin {
        events.waited(begin.elapsed(), result.is_ok());
    }
    probe!(lock_wait_end, place, result.is_ok());
    result
}

impl Drop for Events {
    fn drop(&mut self) {
        // Relaxed: nobody else uses it any more.
        let tally = self.tally.load(Ordering::Relaxed);
        if !tally.is_null() {
            // SAFETY: `make` made it by `into_raw`.
            drop(unsafe { Own::from_raw(tally) });
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_and_taken_over() {
        let events = Events::default();
        assert_eq!((events.sums(), events.bytes()), ([0; COUNTERS], 0));
        events.count(Event::Split, 4);
        assert_eq!(events.bytes(), 0);
        assert_eq!(waiting(Some(&events), 0, || Ok(7)), Ok(7));
        assert_eq!(waiting::<()>(Some(&events), 0, || Err(Busy)), Err(Busy));
        assert!(events.bytes() > 0);
        let heir = Events::default();
        heir.count(Event::Split, 1);
        heir.absorb(&events);
        let sums = heir.sums();
        assert_eq!((sums[Event::Split as usize], sums[Event::GaveUp as usize]), (5, 1));
        assert_eq!(sums[SINGLE..].iter().sum::<u64>(), 2);
    }

    #[test]
    fn a_class_of_waits_begins_at_its_first_microsecond() {
        for (micros, class) in [(0, 0), (1, 1), (3, 1), (4, 2), (255, 4), (256, 5), (1_000_000, 5)] {
            let events = Events::default();
            events.waited(Duration::from_micros(micros), true);
            assert_eq!(events.sums()[SINGLE + class], 1, "{micros}");
        }
    }
}
