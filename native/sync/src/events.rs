//! What rarely happens to a table: waits for locks, reads that are repeated, adaptations. Each is counted where it
//! happens, which is off the usual path. The memory for it comes with the first event that is no adaptation.
//!
//! The last adaptations that tell of contention or of a large change are kept in a log. While somebody wants to know more, a
//! [`Recorder`] gets each wait, too.

use crate::caller::{caller, Caller};
use crate::facade::{AtomicPtr, AtomicU64, Ordering};
use crate::recorder::Recorder;
use crate::slab::Own;
use crate::tally::Tally;
use crate::trace::{self, Kind};
use crate::try_cell::TryCell;
use crate::{probe_counted, Busy};
use std::any::Any;
use std::collections::VecDeque;
use std::mem;
use std::ptr;
use std::sync::Arc;
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
    /// The key of an object that was evicted lately came back.
    Readmitted,
    /// A call failed because nothing could be evicted.
    Refused,
    /// The function of a fetch has made an object.
    FetchMade,
    /// The function of a fetch has failed.
    FetchFailed,
    /// A fetch waited for the function of another process.
    FetchWaited,
    /// A fetch returned an object that had ended.
    FetchStale,
}

/// The number of events that are adaptations. They come first. One thread at a time adapts a table, and small tables do
/// too, so these counters are not striped.
const ADAPTATIONS: usize = 2;
/// The number of [`Event`]s.
const SINGLE: usize = Event::FetchStale as usize + 1;
/// The number of counters: the events, and behind them the classes of waits.
pub const COUNTERS: usize = SINGLE + WAIT_CLASSES.len() + 1;

/// Adaptations that a log keeps.
const LOGGED: usize = 64;

/// An adaptation that a log keeps.
#[derive(Debug)]
pub struct Adaptation {
    /// Whether something was split. Otherwise something was joined.
    pub split: bool,
    pub at: Instant,
    /// How many base nodes or buckets there were after it.
    pub number: usize,
    /// The key at which a base node was split, or at which two were joined, as the engine stores keys.
    pub key: Option<Box<dyn Any + Send + Sync>>,
    /// The bytes of the key.
    pub bytes: usize,
}

/// What most tables do not need.
#[derive(Debug)]
struct More {
    /// The counters of what is no adaptation, or null.
    tally: AtomicPtr<Tally<{ COUNTERS - ADAPTATIONS }>>,
    log: TryCell<VecDeque<Adaptation>>,
    /// The recorder, or null. It belongs to those who want what is recorded.
    recorder: AtomicPtr<Recorder>,
}

/// Counts events. See the module's documentation.
#[derive(Debug)]
pub struct Events {
    adaptations: [AtomicU64; ADAPTATIONS],
    /// The others, or null.
    more: AtomicPtr<More>,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            adaptations: std::array::from_fn(|_| AtomicU64::new(0)),
            more: AtomicPtr::new(ptr::null_mut()),
        }
    }
}

/// Publishes something new in a place that was empty, unless somebody else has done so. Returns what is there.
fn publish<T>(place: &AtomicPtr<T>, fresh: Own<T>) -> Option<&T> {
    let fresh = fresh.into_raw();
    // Release pairs with the Acquire of `published`.
    let set = place.compare_exchange(ptr::null_mut(), fresh, Ordering::Release, Ordering::Relaxed);
    if set.is_err() {
        // SAFETY: taken apart above and not published.
        drop(unsafe { Own::from_raw(fresh) });
    }
    published(place)
}

fn published<T>(place: &AtomicPtr<T>) -> Option<&T> {
    // Acquire pairs with the Release of `publish`. SAFETY: what is published stays until its place is dropped.
    unsafe { place.load(Ordering::Acquire).as_ref() }
}

/// Frees what was published.
fn unpublish<T>(place: &AtomicPtr<T>) {
    // Relaxed: nobody else uses it any more.
    let there = place.load(Ordering::Relaxed);
    if !there.is_null() {
        // SAFETY: `publish` made it by `into_raw`.
        drop(unsafe { Own::from_raw(there) });
    }
}

impl Drop for More {
    fn drop(&mut self) {
        unpublish(&self.tally);
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        unpublish(&self.more);
    }
}

impl Events {
    fn more(&self) -> Option<&More> {
        published(&self.more)
    }

    /// The same, made if there is none. `None` when memory is exhausted.
    fn make_more(&self) -> Option<&More> {
        if let Some(more) = self.more() {
            return Some(more);
        }
        let fresh = More {
            tally: AtomicPtr::new(ptr::null_mut()),
            log: TryCell::new(VecDeque::new()),
            recorder: AtomicPtr::new(ptr::null_mut()),
        };
        publish(&self.more, Own::new(fresh)?)
    }

    fn tally(&self) -> Option<&Tally<{ COUNTERS - ADAPTATIONS }>> {
        published(&self.more()?.tally)
    }

    /// Makes counters that take few bytes, for a table that is to be small. Nobody knows it yet. `None` when memory is exhausted.
    pub fn make_small(&self) -> Option<()> {
        publish(&self.make_more()?.tally, Own::new(Tally::small()?)?).map(|_| ())
    }

    /// Makes the counters, if nobody else does. `None` when memory is exhausted.
    fn make(&self) -> Option<&Tally<{ COUNTERS - ADAPTATIONS }>> {
        publish(&self.make_more()?.tally, Own::new(Tally::new()?)?)
    }

    /// Counts an adaptation so many times, and keeps it in the log. Not in models.
    #[cold]
    pub fn adapted(&self, times: usize, make: impl FnOnce() -> Adaptation) {
        let adaptation = make();
        self.count(if adaptation.split { Event::Split } else { Event::Join }, times);
        self.log(adaptation);
    }

    /// Keeps an adaptation in the log, in place of the oldest if that is full. It is lost when memory is exhausted, or when others use the
    /// log.
    fn log(&self, adaptation: Adaptation) {
        if cfg!(any(loom, shuttle)) {
            return;
        }
        if let Some(more) = self.make_more() {
            let oldest = more.log.with(|log| {
                let oldest = if log.len() == LOGGED { log.pop_front() } else { None };
                log.push_back(adaptation);
                oldest
            });
            drop(oldest);
        }
    }

    /// Shows the adaptations in the log, the oldest first. None if others use the log.
    pub fn each_adaptation(&self, show: impl FnMut(&Adaptation)) {
        if let Some(more) = self.more() {
            more.log.with(|log| log.iter().for_each(show));
        }
    }

    /// The recorder, if there is one. To be called under a guard under which the table was found.
    pub fn recorder(&self) -> Option<&Recorder> {
        // Acquire pairs with the Release of `set_recorder`. SAFETY: whoever takes the recorder away frees it only after the guards under
        // which it could be found.
        unsafe { self.more()?.recorder.load(Ordering::Acquire).as_ref() }
    }

    /// The recorder as an owner of its own has it. The caller keeps others from changing it.
    pub fn own_recorder(&self) -> Option<Arc<Recorder>> {
        let recorder = ptr::from_ref(self.recorder()?);
        // SAFETY: `set_recorder` got it of an owner, which still is one, as nobody has taken the recorder away.
        Some(unsafe {
            Arc::increment_strong_count(recorder);
            Arc::from_raw(recorder)
        })
    }

    /// Sets the recorder, or takes it away. The owners stay owners. They drop a recorder that was taken away only after the guards under
    /// which it could be found. The callers exclude each other. False when memory is exhausted.
    pub fn set_recorder(&self, recorder: Option<&Arc<Recorder>>) -> bool {
        let word = recorder.map_or(ptr::null(), Arc::as_ptr);
        let more = if word.is_null() { self.more() } else { self.make_more() };
        if let Some(more) = more {
            // Release: publishes the recorder.
            more.recorder.store(word.cast_mut(), Ordering::Release);
        }
        more.is_some() || word.is_null()
    }

    /// Records that a read met a writer, and counts it. `place` and `hash` are as for [`waiting`].
    #[cold]
    pub fn read_again(&self, place: usize, hash: u64) {
        self.count(Event::ReadAgain, 1);
        self.record(Kind::ReadAgain, [hash, 0]);
        if let Some(recorder) = self.recorder() {
            recorder.read_again(place as u64, hash);
        }
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
            // Relaxed: statistics.
            *sum = word.load(Ordering::Relaxed);
        }
        if let Some(tally) = self.tally() {
            sums[ADAPTATIONS..].copy_from_slice(&tally.sums());
        }
        sums
    }

    /// Adds what another one has counted, and takes over its log and its recorder. The caller keeps others from changing the
    /// recorder.
    pub fn absorb(&self, other: &Self) {
        for (counter, amount) in other.sums().into_iter().enumerate() {
            if amount > 0 {
                self.add(counter, amount);
            }
        }
        if let Some(more) = other.more() {
            more.log
                .with(mem::take)
                .into_iter()
                .flatten()
                .for_each(|adaptation| self.log(adaptation));
        }
        if let Some(recorder) = other.own_recorder() {
            self.set_recorder(Some(&recorder));
            other.set_recorder(None);
        }
    }

    /// By which a [trace](crate::trace) knows the contents of a table.
    pub fn address(&self) -> u64 {
        ptr::from_ref(self).addr() as u64
    }

    /// Records an event of the table in a trace, if one is on.
    #[inline(always)]
    pub fn record(&self, kind: Kind, arguments: [u64; 2]) {
        trace::record(|| trace::Event::new(kind, self.address(), arguments).by(caller().word));
    }

    /// Bytes of the counters, of the log and of the recorder.
    pub fn bytes(&self) -> usize {
        let Some(more) = self.more() else { return 0 };
        let tally = published(&more.tally).map_or(0, |tally| size_of_val(tally) + tally.bytes());
        let log = more.log.with(|log| {
            let keys: usize = log.iter().map(|adaptation| adaptation.bytes).sum();
            log.capacity() * size_of::<Adaptation>() + keys
        });
        let recorder = self.recorder().map_or(0, Recorder::bytes);
        size_of_val(more) + tally + log.unwrap_or(0) + recorder
    }
}

/// When a wait began, and another process that was in a call on the table then, or 0.
struct Begin(Instant, u64);

impl Begin {
    #[inline(never)]
    fn now(events: Option<&Events>) -> Self {
        let other = events.and_then(Events::recorder).map_or(0, Recorder::someone_else);
        Self(Instant::now(), other)
    }

    #[inline(never)]
    fn end(self, events: Option<&Events>, place: usize, hash: u64, success: bool, process: u64) {
        let Self(begin, other) = self;
        let time = begin.elapsed();
        if let Some(events) = events {
            events.waited(time, success);
            if let Some(recorder) = events.recorder() {
                recorder.waited(place as u64, hash, time, other);
            }
        }
        trace::record_since(begin, || {
            let contents = events.map_or(0, Events::address);
            trace::Event::new(Kind::Wait, contents, [place as u64, success.into()]).by(process)
        });
    }
}

/// Runs a wait for a lock, between two probes, counts it, and records it in a trace. `place` is the lock's address, or the hash of the key
/// that it guards. `hash` is that of the key for which the caller wants the lock, or 0. To be called as [`Events::recorder`].
#[inline(always)]
pub fn waiting<R>(
    events: Option<&Events>,
    place: usize,
    hash: u64,
    wait: impl FnOnce() -> Result<R, Busy>,
) -> Result<R, Busy> {
    let Caller { word, number } = caller();
    probe_counted!(lock_wait_begin, place, number);
    let begin = (events.is_some() || trace::is_on()).then(|| Begin::now(events));
    let result = wait();
    if let Some(begin) = begin {
        begin.end(events, place, hash, result.is_ok(), word);
    }
    probe_counted!(lock_wait_end, place, result.is_ok(), number);
    result
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
        assert_eq!(waiting(Some(&events), 0, 0, || Ok(7)), Ok(7));
        assert_eq!(waiting::<()>(Some(&events), 0, 0, || Err(Busy)), Err(Busy));
        assert!(events.bytes() > 0);
        let heir = Events::default();
        heir.count(Event::Split, 1);
        heir.absorb(&events);
        let sums = heir.sums();
        assert_eq!((sums[Event::Split as usize], sums[Event::GaveUp as usize]), (5, 1));
        assert_eq!(sums[SINGLE..].iter().sum::<u64>(), 2);
    }

    fn adaptation(number: usize) -> Adaptation {
        Adaptation {
            split: true,
            at: Instant::now(),
            number,
            key: Some(Box::new(number)),
            bytes: 8,
        }
    }

    fn numbers(events: &Events) -> Vec<usize> {
        let mut numbers = Vec::new();
        events.each_adaptation(|adaptation| {
            let key = adaptation.key.as_ref().and_then(|key| key.downcast_ref());
            assert_eq!(key, Some(&adaptation.number));
            numbers.push(adaptation.number);
        });
        numbers
    }

    #[test]
    fn the_log_keeps_the_last_adaptations_and_goes_over_to_an_heir() {
        let events = Events::default();
        for number in 0..3 * LOGGED {
            events.adapted(2, || adaptation(number));
        }
        assert_eq!(events.sums()[Event::Split as usize], 6 * LOGGED as u64);
        assert_eq!(numbers(&events), (2 * LOGGED..3 * LOGGED).collect::<Vec<_>>());
        assert!((LOGGED * 8..10_000).contains(&events.bytes()));
        let heir = Events::default();
        heir.adapted(1, || adaptation(7));
        heir.absorb(&events);
        assert_eq!(numbers(&heir)[..], numbers_from(7)[1..]);
        assert!(numbers(&events).is_empty());
    }

    fn numbers_from(first: usize) -> Vec<usize> {
        [first].into_iter().chain(2 * LOGGED..3 * LOGGED).collect()
    }

    #[test]
    fn a_recorder_gets_waits_and_failed_reads_until_it_is_taken_away() {
        let events = Events::default();
        let recorder = Arc::new(Recorder::new());
        assert!(events.set_recorder(None) && events.bytes() == 0);
        assert!(events.set_recorder(Some(&recorder)));
        assert_eq!(waiting(Some(&events), 8, 9, || Ok(())), Ok(()));
        events.read_again(8, 9);
        let heir = Events::default();
        heir.absorb(&events);
        heir.read_again(8, 9);
        for events in [events, heir] {
            events.set_recorder(None);
            events.read_again(8, 9);
            assert!(events.own_recorder().is_none());
        }
        let places = recorder.places();
        assert_eq!(
            (places.len(), places[0].what, places[0].waits, places[0].reads),
            (1, (0, 9), 1, 2)
        );
        assert_eq!(Arc::strong_count(&recorder), 1);
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
