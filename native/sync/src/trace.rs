//! A trace: what rarely happens to tables, each event with its time, in rings of the threads that met it.
//!
//! While a [`Recording`] is on, the places of the [probes](crate::probe) write events too. Each thread writes to a ring of its own, whose
//! memory comes with the first event. A full ring loses its oldest events. While no recording is on, a place costs a load and a branch,
//! and all of them are on paths that are rare or slow.
//!
//! A ring may be copied while its thread writes to it. So each place has a sequence number, as a sequence lock has (Boehm, "Can seqlocks
//! get along with programming language memory models?", MSPC 2012).

use crate::epoch;
use crate::facade::{fence, global, AtomicPtr, AtomicU64, Ordering};
use std::ptr;
use std::time::Instant;

/// What happened. What the subject and the arguments of an event are depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A wait for a lock. Subject: the address of the table's [`Events`](crate::events::Events), as for all until `FewerLocks`. The place that
    /// was waited for, and whether the thread got it.
    Wait,
    /// The first try of an optimistic read failed. The hash.
    ReadAgain,
    /// A base node was split. How many there are now.
    Split,
    /// Two base nodes were joined. How many there are now.
    Join,
    /// Buckets were split. How many there were, and are.
    Grow,
    /// Buckets were merged. How many there were, and are.
    Shrink,
    /// There are more bucket locks. How many there were, and are.
    MoreLocks,
    /// There are fewer bucket locks. How many there were, and are.
    FewerLocks,
    /// A bag of retired objects was sealed. No subject. The objects, and their weight.
    Retire,
    /// Retired objects were freed. No subject. The objects, and their weight.
    Reclaim,
    /// Contents of a table are to be freed. Subject: as for a wait. The objects, and their bytes.
    RetireContents,
    /// Contents of a table have been freed. Subject: as for a wait.
    ReclaimContents,
    /// A slice of a long call. Subject: the serial number of the table, as for all that follow. Whether it was long.
    Slice,
    /// A call begins on a dirty scheduler. The name of the function.
    CallBegin,
    /// A call on a dirty scheduler. The name of the function, and whether it returned.
    Call,
    /// A call is made again because a lock was held for too long.
    Busy,
    /// A table was made. Its name.
    Created,
    /// A table got contents of its own. The address of their [`Events`](crate::events::Events).
    Contents,
    /// A table was renamed. Its name.
    Renamed,
    /// A table was given away. The former owner, and the new one.
    Given,
    /// A table was deleted.
    Deleted,
}

impl Kind {
    /// All kinds, in their order.
    pub const ALL: [Self; 21] = [
        Self::Wait,
        Self::ReadAgain,
        Self::Split,
        Self::Join,
        Self::Grow,
        Self::Shrink,
        Self::MoreLocks,
        Self::FewerLocks,
        Self::Retire,
        Self::Reclaim,
        Self::RetireContents,
        Self::ReclaimContents,
        Self::Slice,
        Self::CallBegin,
        Self::Call,
        Self::Busy,
        Self::Created,
        Self::Contents,
        Self::Renamed,
        Self::Given,
        Self::Deleted,
    ];

    /// The name.
    pub fn text(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::ReadAgain => "read_again",
            Self::Split => "split",
            Self::Join => "join",
            Self::Grow => "grow",
            Self::Shrink => "shrink",
            Self::MoreLocks => "more_locks",
            Self::FewerLocks => "fewer_locks",
            Self::Retire => "retire",
            Self::Reclaim => "reclaim",
            Self::RetireContents => "retire_contents",
            Self::ReclaimContents => "reclaim_contents",
            Self::Slice => "slice",
            Self::CallBegin => "call_begin",
            Self::Call => "call",
            Self::Busy => "busy",
            Self::Created => "created",
            Self::Contents => "contents",
            Self::Renamed => "renamed",
            Self::Given => "given",
            Self::Deleted => "deleted",
        }
    }
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    pub kind: Kind,
    pub subject: u64,
    /// The process in whose name it happened, or 0 if that is not known.
    pub process: u64,
    pub arguments: [u64; 2],
}

impl Event {
    /// An event of a process that is not known.
    pub fn new(kind: Kind, subject: u64, arguments: [u64; 2]) -> Self {
        Self {
            kind,
            subject,
            process: 0,
            arguments,
        }
    }

    /// The same, of this process.
    pub fn by(self, process: u64) -> Self {
        Self { process, ..self }
    }
}

/// An event as it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    pub event: Event,
    /// Nanoseconds from the start of the recording to the end of the event.
    pub end: u64,
    /// Nanoseconds that it took.
    pub duration: u64,
}

/// Words of an event in a ring.
const WORDS: usize = 7;

impl Recorded {
    fn words(&self) -> [u64; WORDS] {
        let Event {
            kind,
            subject,
            process,
            arguments: [first, second],
        } = self.event;
        [kind as u64, self.end, self.duration, subject, process, first, second]
    }

    fn from_words([kind, end, duration, subject, process, first, second]: [u64; WORDS]) -> Self {
        let kind = Kind::ALL[kind as usize];
        let event = Event::new(kind, subject, [first, second]).by(process);
        Self { event, end, duration }
    }
}

/// One place of a ring: a cache line.
#[derive(Debug)]
#[repr(align(64))]
struct RingSlot<const N: usize> {
    /// One more than the number of the entry that is here. 0 while there is none, and while it is being written.
    number: AtomicU64,
    words: [AtomicU64; N],
}

/// The last entries of `N` words that a thread has written.
#[derive(Debug)]
pub struct Ring<const N: usize> {
    places: Box<[RingSlot<N>]>,
    /// The number of entries that were written.
    written: AtomicU64,
}

impl<const N: usize> Ring<N> {
    /// A ring for so many entries, which are at least one. `None` when memory is exhausted.
    pub fn new(room: usize) -> Option<Self> {
        let mut places = Vec::new();
        places.try_reserve_exact(room).ok()?;
        places.extend((0..room).map(|_| RingSlot {
            number: AtomicU64::new(0),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
        }));
        Some(Self {
            places: places.into_boxed_slice(),
            written: AtomicU64::new(0),
        })
    }

    /// Adds an entry. Only one thread at a time may write.
    pub fn write(&self, entry: [u64; N]) {
        // Relaxed: only the writer changes it.
        let number = self.written.load(Ordering::Relaxed);
        let place = &self.places[number as usize % self.places.len()];
        // Relaxed, and the fence: pairs with the fence of `read`. A reader that sees one of the new words sees this or a later number
        // afterwards.
        place.number.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        for (word, value) in place.words.iter().zip(entry) {
            // Relaxed: the number orders them.
            word.store(value, Ordering::Relaxed);
        }
        // Relaxed: the next store publishes it.
        place.number.store(number + 1, Ordering::Relaxed);
        // Release pairs with the Acquire in `read`: a reader that looks for the entry sees its words, or later ones.
        self.written.store(number + 1, Ordering::Release);
    }

    /// Passes the entries, the oldest first, and returns how many were lost. The thread may write meanwhile.
    pub fn read(&self, mut pass: impl FnMut([u64; N])) -> u64 {
        // Acquire pairs with the Release in `write`.
        let written = self.written.load(Ordering::Acquire);
        let first = written.saturating_sub(self.places.len() as u64);
        let mut lost = first;
        for number in first..written {
            let place = &self.places[number as usize % self.places.len()];
            // Relaxed: these words are not older than the entry. If one is newer, the number tells.
            let entry = std::array::from_fn(|i| place.words[i].load(Ordering::Relaxed));
            // Acquire pairs with the fence in `write`.
            fence(Ordering::Acquire);
            // Relaxed: the fence keeps it behind the words.
            if place.number.load(Ordering::Relaxed) == number + 1 {
                pass(entry);
            } else {
                lost += 1;
            }
        }
        lost
    }
}

/// Most threads that have a ring.
const THREADS: usize = 4096;

/// The ring of a thread, and the thread's name.
struct Named {
    name: [u8; NAME],
    ring: Ring<WORDS>,
}

/// Bytes of a thread's name in Linux, with a zero.
const NAME: usize = 16;

struct Recorder {
    start: Instant,
    /// A bit for each kind that is wanted.
    kinds: u64,
    /// Entries of a ring.
    room: usize,
    /// By [`epoch::slot_index`].
    rings: Box<[AtomicPtr<Named>]>,
    /// Events of threads that have no ring.
    missed: AtomicU64,
    /// When it was stopped, in nanoseconds since the start; `u64::MAX` while it is on.
    stopped: AtomicU64,
}

global! {
    /// The recorder that is on, or null.
    static RECORDER: AtomicPtr<Recorder> = AtomicPtr::new(ptr::null_mut());
}

/// Whether a recording is on. Never in models, which test [`Ring`] by itself.
#[inline(always)]
pub fn is_on() -> bool {
    // Relaxed: a hint. `write` looks again.
    !cfg!(any(loom, shuttle)) && !RECORDER.load(Ordering::Relaxed).is_null()
}

/// Records what happens now, if a recording is on.
#[inline(always)]
pub fn record(event: impl FnOnce() -> Event) {
    if is_on() {
        write(event(), None);
    }
}

/// Records what happened since this time, if a recording is on.
#[inline(always)]
pub fn record_since(begin: Instant, event: impl FnOnce() -> Event) {
    if is_on() {
        write(event(), Some(begin));
    }
}

#[cold]
#[inline(never)]
fn write(event: Event, begin: Option<Instant>) {
    let guard = epoch::pin();
    // Acquire pairs with the Release of `start`. SAFETY: a recorder is freed when no guard is left that was there while it was on.
    let Some(recorder) = (unsafe { RECORDER.load(Ordering::Acquire).as_ref() }) else {
        return;
    };
    if recorder.kinds >> event.kind as u32 & 1 == 0 {
        return;
    }
    match recorder.ring(guard.slot_index()) {
        Some(ring) => {
            let now = Instant::now();
            let recorded = Recorded {
                event,
                end: now.duration_since(recorder.start).as_nanos() as u64,
                duration: begin.map_or(0, |begin| now.duration_since(begin).as_nanos() as u64),
            };
            ring.write(recorded.words());
        }
        None => {
            // Relaxed: a counter orders nothing.
            recorder.missed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Recorder {
    /// The ring of the calling thread, which has this slot. `None` without memory for it.
    fn ring(&self, slot: usize) -> Option<&Ring<WORDS>> {
        let place = self.rings.get(slot)?;
        // Relaxed: only this thread stores it, or one that had the slot before, whose stores this one sees.
        let mut named = place.load(Ordering::Relaxed);
        if named.is_null() {
            let (name, ring) = (thread_name(), Ring::new(self.room)?);
            named = Box::into_raw(Box::new(Named { name, ring }));
            // Release pairs with the Acquire of `named`: a reader sees an initialised ring.
            place.store(named, Ordering::Release);
        }
        // SAFETY: what is here stays until the recorder is freed.
        Some(unsafe { &(*named).ring })
    }

    /// The ring of a slot, with its thread's name.
    fn named(&self, slot: usize) -> Option<&Named> {
        // Acquire pairs with the Release of `ring`. SAFETY: as there.
        unsafe { self.rings.get(slot)?.load(Ordering::Acquire).as_ref() }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        for ring in &self.rings {
            // Relaxed: nobody else uses it any more.
            let named = ring.load(Ordering::Relaxed);
            if !named.is_null() {
                // SAFETY: `ring` made it by `into_raw`.
                drop(unsafe { Box::from_raw(named) });
            }
        }
    }
}

/// The name of the calling thread, and zeros.
fn thread_name() -> [u8; NAME] {
    #[allow(unused_mut)]
    let mut name = [0; NAME];
    #[cfg(all(target_os = "linux", not(miri)))]
    // SAFETY: the system writes at most 16 bytes.
    unsafe {
        libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr());
    }
    name
}

/// A recording: on until it is stopped or dropped.
#[derive(Debug)]
pub struct Recording(*mut Recorder);

// SAFETY: a recorder may be used by any thread, and the address does not change.
unsafe impl Send for Recording {}
// SAFETY: as above.
unsafe impl Sync for Recording {}

impl Recording {
    /// Starts to record the kinds whose bits are set, up to `room` events of each thread, which is at least one. `None` if a recording
    /// is on.
    pub fn start(kinds: u64, room: usize) -> Option<Self> {
        assert!(room > 0);
        let recorder = Box::into_raw(Box::new(Recorder {
            start: Instant::now(),
            kinds,
            room,
            rings: (0..THREADS).map(|_| AtomicPtr::new(ptr::null_mut())).collect(),
            missed: AtomicU64::new(0),
            stopped: AtomicU64::new(u64::MAX),
        }));
        // Release pairs with the Acquire of `write`.
        let set = RECORDER.compare_exchange(ptr::null_mut(), recorder, Ordering::Release, Ordering::Relaxed);
        if set.is_err() {
            // SAFETY: made above, and not published.
            drop(unsafe { Box::from_raw(recorder) });
            return None;
        }
        Some(Self(recorder))
    }

    fn recorder(&self) -> &Recorder {
        // SAFETY: it is freed after this was dropped.
        unsafe { &*self.0 }
    }

    /// Records nothing more from now on. What other threads are writing is left out when the events are read, if it ends later.
    pub fn stop(&self) {
        // Relaxed: it publishes nothing, and a thread that still sees the recorder may write to it.
        let _ = RECORDER.compare_exchange(self.0, ptr::null_mut(), Ordering::Relaxed, Ordering::Relaxed);
        // Relaxed: a number of its own. The first stop counts.
        self.recorder().stopped.fetch_min(self.elapsed(), Ordering::Relaxed);
    }

    /// Nanoseconds since the start.
    pub fn elapsed(&self) -> u64 {
        self.recorder().start.elapsed().as_nanos() as u64
    }

    /// The slots of threads that have recorded anything.
    pub fn slots(&self) -> impl Iterator<Item = usize> + '_ {
        (0..THREADS).filter(|slot| self.recorder().named(*slot).is_some())
    }

    /// The name of the thread that has a slot, its events, the oldest first, and how many of them were lost.
    pub fn events(&self, slot: usize) -> Option<(&str, Vec<Recorded>, u64)> {
        let Named { name, ring } = self.recorder().named(slot)?;
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let mut events = Vec::new();
        let lost = ring.read(|words| events.push(Recorded::from_words(words)));
        // Relaxed: a number of its own.
        let stopped = self.recorder().stopped.load(Ordering::Relaxed);
        events.retain(|event| event.end <= stopped);
        Some((std::str::from_utf8(name).unwrap_or_default(), events, lost))
    }

    /// Events of threads for whose rings there was no room.
    pub fn missed(&self) -> u64 {
        // Relaxed: a counter orders nothing.
        self.recorder().missed.load(Ordering::Relaxed)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        unsafe fn free(recorder: *mut u8, _: usize) {
            // SAFETY: retired once, and nobody uses it any more.
            drop(unsafe { Box::from_raw(recorder.cast::<Recorder>()) });
        }
        self.stop();
        let bytes = self.slots().count() * self.recorder().room * size_of::<RingSlot<WORDS>>();
        // SAFETY: it is not on any more, so no later guard finds it, and `start` made it by `into_raw`.
        unsafe { epoch::pin().retire_sized(self.0.cast(), 0, free, bytes) };
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::sync::Mutex;
    use std::thread;
    use std::time::Duration;

    /// Only one recording may be on.
    static ALONE: Mutex<()> = Mutex::new(());

    #[test]
    fn a_ring_has_the_last_entries_and_tells_how_many_are_lost() {
        let ring = Ring::<1>::new(4).unwrap();
        let entries = || {
            let mut entries = Vec::new();
            let lost = ring.read(|[entry]| entries.push(entry));
            (entries, lost)
        };
        assert_eq!(entries(), (vec![], 0));
        (0..3).for_each(|entry| ring.write([entry]));
        assert_eq!(entries(), (vec![0, 1, 2], 0));
        (3..10).for_each(|entry| ring.write([entry]));
        assert_eq!(entries(), (vec![6, 7, 8, 9], 6));
    }

    #[test]
    fn entries_that_are_read_during_writes_are_whole_and_in_order() {
        let (ring, end) = (Ring::<3>::new(8).unwrap(), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut number = 0_u64;
                while !end.load(Ordering::Relaxed) {
                    ring.write([number, !number, number.wrapping_mul(7)]);
                    number += 1;
                }
            });
            let begin = Instant::now();
            let mut last = 0;
            while begin.elapsed() < Duration::from_millis(200) {
                let mut before = None;
                let lost = ring.read(|[number, inverse, product]| {
                    assert_eq!((inverse, product), (!number, number.wrapping_mul(7)));
                    assert!(before.is_none_or(|before| before < number));
                    before = Some(number);
                });
                assert!(lost >= last);
                last = before.map_or(last, |before| before.saturating_sub(8));
            }
            end.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn a_recording_has_what_its_threads_recorded() {
        let _alone = ALONE.lock();
        let slice = |number| Event::new(Kind::Slice, number, [1, 2]).by(3);
        record(|| unreachable!("nothing is on"));
        let recording = Recording::start(1 << Kind::Slice as u32, 10).unwrap();
        assert!(Recording::start(u64::MAX, 10).is_none());
        let begin = Instant::now();
        record(|| slice(1));
        record(|| Event::new(Kind::Busy, 7, [0, 0]));
        record_since(begin, || slice(2));
        let events = |slot| recording.events(slot).map(|(_, events, lost)| (events, lost));
        let (own, lost) = events(epoch::slot_index()).unwrap();
        assert_eq!(
            own.iter().map(|one| one.event).collect::<Vec<_>>(),
            [slice(1), slice(2)]
        );
        assert_eq!((lost, own[0].duration), (0, 0));
        assert!(own[1].duration > 0 && own[0].end <= own[1].end && own[1].end <= recording.elapsed());
        thread::Builder::new()
            .name("another".into())
            .spawn(move || {
                (0..12).for_each(|number| record(|| slice(number)));
                epoch::slot_index()
            })
            .map(|thread| {
                let slot = thread.join().unwrap();
                let (_, lost) = events(slot).unwrap();
                assert_eq!(lost, 2);
                if cfg!(all(target_os = "linux", not(miri))) {
                    assert_eq!(recording.events(slot).unwrap().0, "another");
                }
                assert_eq!(recording.slots().count(), 2);
            })
            .unwrap();
        recording.stop();
        assert!(!is_on());
        record(|| unreachable!("it was stopped"));
        // A thread that began before is slow.
        let late = Recorded {
            event: slice(3),
            end: u64::MAX - 1,
            duration: 0,
        };
        let ring = recording.recorder().ring(epoch::slot_index()).unwrap();
        ring.write(late.words());
        assert_eq!(events(epoch::slot_index()).unwrap().0, own);
        // A recording that is not on does not end another one.
        let other = Recording::start(0, 1).unwrap();
        drop(recording);
        assert!(is_on());
        drop(other);
        assert!(!is_on());
    }

    #[test]
    fn recordings_come_and_go_under_writers() {
        let _alone = ALONE.lock();
        let end = AtomicBool::new(false);
        thread::scope(|scope| {
            for number in 0..2 {
                let end = &end;
                scope.spawn(move || {
                    while !end.load(Ordering::Relaxed) {
                        record(|| Event::new(Kind::Slice, number, [number, !number]));
                    }
                });
            }
            for _ in 0..200 {
                let recording = Recording::start(1 << Kind::Slice as u32, 16).unwrap();
                thread::yield_now();
                for slot in recording.slots() {
                    let (_, events, _) = recording.events(slot).unwrap();
                    assert!(events.iter().all(|one| one.event.arguments[1] == !one.event.subject));
                }
            }
            end.store(true, Ordering::Relaxed);
        });
    }
}
