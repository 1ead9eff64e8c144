//! The log of the keys that are written in some contents while long transactions read them.
//!
//! Source: Spear, Michael and von Praun, "RingSTM: scalable transactions with a single atomic instruction", SPAA 2008. There the log has the
//! transactions of the whole program, in a ring of filters. Here it has the keys of one table, and also those of writers outside of
//! transactions.
//!
//! A writer adds a key while it holds the lock of its place, and before it changes anything. A reader keeps the end of the log up to which
//! nothing that it has read was written. To look again, it takes the new end and goes through what lies between. If its keys are not among
//! that, none of them was changed before it took the new end. So a look costs what others have written, not what was read.
//!
//! ```text
//! reader ----> write --> write --> write <---- last
//! ```
//!
//! Each write counts who refers to it: the one before it, the log's `last`, and readers. So what all readers have passed is freed.
//!
//! Nothing is added while there are no readers: a bit of the contents' [history](crate::history::History), which writers look at
//! anyway, says so. A writer that has looked before it was set may still be at work. So a reader relies on the log when the guards of
//! the [moment](Moment) at which it began have ended.

use crate::exclusive::Exclusive;
use crate::history::History;
use crate::object::key::Key;
use crate::object::schema::Probe;
use cats_sync::epoch::Moment;
use cats_sync::facade::{fence, spin_loop, store_load_fence, yield_now, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use cats_sync::Busy;
use std::ptr::{self, null_mut};
use std::sync::Arc;

/// Who has written: a number of a transaction, or [`NOBODY`].
pub type Author = u64;

/// An author that no reader leaves out.
pub const NOBODY: Author = 0;

/// In place of the word of a key. No key has it.
const NO_KEY: u64 = 0;

/// The most bytes that the writes of a log have, besides those of transactions. Then readers fail.
const MOST: usize = 64 << 20;

/// How often a reader looks whether the next write is there.
const SPINS: usize = if cfg!(any(loom, shuttle)) { 3 } else { 1000 };

/// One write.
pub struct Write {
    next: AtomicPtr<Write>,
    /// How many refer to it.
    count: AtomicUsize,
    author: Author,
    /// The word of the key's probe.
    word: u64,
    /// In an ordered table.
    key: Option<Arc<Key>>,
}

impl Write {
    /// A write with one reference.
    fn new(author: Author, word: u64, key: Option<Arc<Key>>) -> *mut Self {
        Box::into_raw(Box::new(Self {
            next: AtomicPtr::new(null_mut()),
            count: AtomicUsize::new(1),
            author,
            word,
            key,
        }))
    }

    /// One that only stands for a place in the log.
    fn of_no_key() -> *mut Self {
        Self::new(NOBODY, NO_KEY, None)
    }

    pub fn word(&self) -> u64 {
        self.word
    }

    pub fn key(&self) -> Option<&Arc<Key>> {
        self.key.as_ref()
    }

    /// The bytes of its memory.
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.key().map_or(0, |key| key.bytes())
    }
}

/// Writes that are not in the log yet, linked.
pub struct Chain {
    first: *mut Write,
    last: *mut Write,
    bytes: usize,
    author: Author,
}

impl Chain {
    /// The writes of these keys. To be made before their places are locked.
    pub fn new<'a>(author: Author, ordered: bool, probes: impl Iterator<Item = &'a Probe<'static>>) -> Self {
        let (mut first, mut last, mut bytes) = (null_mut(), null_mut::<Write>(), 0);
        for probe in probes {
            let key = ordered.then(|| Arc::new(Key::own(probe.term(), true)));
            let write = Write::new(author, probe.word(), key);
            // SAFETY: it was just made.
            let more = unsafe { (*write).bytes() };
            match bytes {
                0 => first = write,
                // SAFETY: it was made here, and nobody else knows it. Relaxed: likewise.
                _ => unsafe { (*last).next.store(write, Ordering::Relaxed) },
            }
            (last, bytes) = (write, bytes + more);
        }
        Self {
            first,
            last,
            bytes,
            author,
        }
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        // SAFETY: the chain owns its first write, unless that is null.
        unsafe { release(self.first) };
    }
}

/// Gives up a reference to a write. Returns how many bytes were freed.
///
/// # Safety
/// The caller has the reference, or the pointer is null.
unsafe fn release(mut write: *mut Write) -> usize {
    let mut freed = 0;
    // SAFETY: what is referred to lives. The last one that gives a reference up frees it, and has its reference to the next one then.
    unsafe {
        // Release pairs with the fence: all uses are over before it is freed.
        while !write.is_null() && (*write).count.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            let mut gone = Box::from_raw(write);
            write = *gone.next.get_mut();
            freed += gone.bytes();
        }
    }
    freed
}

/// See the module's documentation.
pub struct Log {
    last: AtomicPtr<Write>,
    /// The bytes of the writes.
    bytes: AtomicUsize,
    /// How many readers there are. Held to set or clear the bit of the history: it is set if there are readers.
    readers: Exclusive<usize>,
    /// How often a write was not added, because there were too many.
    lost: AtomicU64,
}

// SAFETY: writes are shared by counted references, and a key is not changed after it was made.
unsafe impl Send for Log {}
// SAFETY: as above.
unsafe impl Sync for Log {}

impl Log {
    fn new() -> Self {
        Self {
            last: AtomicPtr::new(Write::of_no_key()),
            bytes: AtomicUsize::new(size_of::<Write>()),
            readers: Exclusive::new(0),
            lost: AtomicU64::new(0),
        }
    }

    /// Adds writes. Their places are locked, and nothing was changed yet.
    pub fn add(&self, mut chain: Chain) {
        if chain.bytes == 0 {
            return;
        }
        if chain.author == NOBODY && self.bytes() >= MOST {
            // SeqCst: as the swap below.
            self.lost.fetch_add(1, Ordering::SeqCst);
            return;
        }
        self.link(std::mem::replace(&mut chain.first, null_mut()), chain.last, chain.bytes);
    }

    /// Puts linked writes behind the last one. They are this thread's own, with a reference to the first.
    fn link(&self, first: *mut Write, last: *mut Write, bytes: usize) {
        // Relaxed: a count.
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        // SAFETY: nobody else knows it yet. Relaxed: likewise. The reference is that of `self.last`.
        unsafe { (*last).count.fetch_add(1, Ordering::Relaxed) };
        // SeqCst pairs with the load in `look`, between two transactions that have both added what they write: one of them sees what the
        // other has added. Acquire and Release: whoever follows sees the writes.
        let before = self.last.swap(last, Ordering::SeqCst);
        // SAFETY: `last` had a reference to it, which is this thread's now.
        unsafe {
            // Release pairs with the Acquire in `look`.
            (*before).next.store(first, Ordering::Release);
            self.release(before);
        }
        store_load_fence();
    }

    /// # Safety
    /// As for [`release`].
    unsafe fn release(&self, write: *mut Write) {
        // SAFETY: as the caller promises.
        let freed = unsafe { release(write) };
        // Relaxed: a count.
        self.bytes.fetch_sub(freed, Ordering::Relaxed);
    }

    /// About the bytes of the writes.
    fn bytes(&self) -> usize {
        // Relaxed: a bound for memory.
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // SAFETY: `last` has a reference.
        unsafe { release(*self.last.get_mut()) };
    }
}

/// What a reader has found.
pub enum Look {
    /// It has been shown all writes up to the end that the log had meanwhile.
    Unchanged,
    /// `show` has returned false, or writes are missing.
    Changed,
    /// There were more writes than it may be shown at once.
    Unfinished,
}

/// A reader of a log.
pub struct Reader {
    log: Arc<Log>,
    /// The last write that it has seen.
    at: *mut Write,
    lost: u64,
    began: Moment,
    /// Whether it counts as a reader.
    reads: bool,
}

// SAFETY: it owns a reference to the write.
unsafe impl Send for Reader {}

impl Reader {
    fn new(log: Arc<Log>, history: &History) -> Result<Self, Busy> {
        log.readers.with(|readers| {
            *readers += 1;
            history.set_logged(true);
        })?;
        // A write of its own gives it a place in the log.
        let at = Write::of_no_key();
        // SAFETY: nobody else knows it. Relaxed: likewise. The reference is that of the reader.
        unsafe { (*at).count.fetch_add(1, Ordering::Relaxed) };
        // SeqCst: as in `look`.
        let lost = log.lost.load(Ordering::SeqCst);
        log.link(at, at, size_of::<Write>());
        Ok(Self {
            log,
            at,
            lost,
            began: Moment::now(),
            reads: true,
        })
    }

    /// Reads no more: from now on nothing is added for it. What it has not seen is freed when it is dropped.
    pub fn quit(&mut self) {
        while self.reads && self.log.readers.with(|readers| *readers -= 1).is_err() {
            yield_now();
        }
        self.reads = false;
    }

    /// Whether all writes since it began are in the log. The caller has no guard from before.
    pub fn is_complete(&self) -> bool {
        self.began.is_past()
    }

    /// Whether this is the log that it reads.
    pub fn reads(&self, log: &WriteLog) -> bool {
        ptr::eq(log.get(), Arc::as_ptr(&self.log))
    }

    /// About how many writes there are to look at, at most.
    pub fn behind(&self) -> usize {
        self.log.bytes() / size_of::<Write>()
    }

    /// Shows the writes since the last look that are not of this author, up to `most` of them.
    pub fn look(&mut self, author: Author, most: usize, mut show: impl FnMut(&Write) -> bool) -> Result<Look, Busy> {
        store_load_fence();
        // SeqCst: see `Log::link`.
        let end = self.log.last.load(Ordering::SeqCst);
        // SeqCst: as above. What was not added is counted before it is changed.
        if self.log.lost.load(Ordering::SeqCst) != self.lost {
            return Ok(Look::Changed);
        }
        let (mut spins, mut left) = (0, most);
        while self.at != end {
            // SAFETY: the reader has a reference to where it is, and a write has one to the next.
            unsafe {
                // Acquire pairs with the Release in `link`.
                let next = (*self.at).next.load(Ordering::Acquire);
                if next.is_null() {
                    if spins == SPINS {
                        return Err(Busy);
                    }
                    spins += 1;
                    spin_loop();
                    continue;
                }
                if left == 0 {
                    return Ok(Look::Unfinished);
                }
                left -= 1;
                if (*next).word != NO_KEY && (*next).author != author && !show(&*next) {
                    return Ok(Look::Changed);
                }
                // Relaxed: the write before it keeps it alive.
                (*next).count.fetch_add(1, Ordering::Relaxed);
                self.log.release(std::mem::replace(&mut self.at, next));
            }
        }
        Ok(Look::Unchanged)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.quit();
        // SAFETY: the reader has a reference to where it is.
        unsafe { self.log.release(self.at) };
    }
}

/// The log of some contents, made for its first reader.
#[derive(Default)]
pub struct WriteLog(AtomicPtr<Log>);

impl Drop for WriteLog {
    fn drop(&mut self) {
        let log = *self.0.get_mut();
        if !log.is_null() {
            // SAFETY: `read` made it of a counted reference.
            drop(unsafe { Arc::from_raw(log) });
        }
    }
}

impl WriteLog {
    fn get(&self) -> *const Log {
        // Acquire pairs with the Release in `read`.
        self.0.load(Ordering::Acquire)
    }

    /// Begins to read. The history is that of the same contents.
    pub fn read(&self, history: &History) -> Result<Reader, Busy> {
        if self.get().is_null() {
            let log = Arc::into_raw(Arc::new(Log::new())).cast_mut();
            // AcqRel pairs with `get`.
            let made = self
                .0
                .compare_exchange(null_mut(), log, Ordering::AcqRel, Ordering::Acquire);
            if made.is_err() {
                // SAFETY: nobody else knows it.
                drop(unsafe { Arc::from_raw(log) });
            }
        }
        let log = self.get();
        // SAFETY: it is not null, and lives as long as the contents.
        let log = unsafe {
            Arc::increment_strong_count(log);
            Arc::from_raw(log)
        };
        Reader::new(log, history)
    }

    /// The bytes of its writes.
    pub fn bytes(&self) -> usize {
        // SAFETY: it lives as long as the contents.
        unsafe { self.get().as_ref() }.map_or(0, Log::bytes)
    }

    /// The log, if it has readers, for a writer that has seen the bit. Clears the bit if there are none.
    pub fn wanted(&self, history: &History) -> Option<&Log> {
        // SAFETY: it lives as long as the contents.
        let log = unsafe { self.get().as_ref() }?;
        let is_unwanted = |readers: &mut usize| {
            if *readers == 0 {
                history.set_logged(false);
            }
            *readers == 0
        };
        // A reader that begins after this waits for the writer's guard.
        match log.readers.try_with(is_unwanted) {
            Some(true) => None,
            _ => Some(log),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cats_sync::epoch::pin;
    use cats_term::TermRef;

    fn probe(number: u64) -> Probe<'static> {
        Probe::exact(TermRef::immediate(number << 4 | 15))
    }

    fn chain(author: Author, numbers: &[u64]) -> Chain {
        let probes: Vec<Probe<'static>> = numbers.iter().copied().map(probe).collect();
        Chain::new(author, false, probes.iter())
    }

    /// What a reader is shown, as numbers.
    fn shown(reader: &mut Reader, author: Author) -> Vec<u64> {
        let mut seen = Vec::new();
        let look = reader.look(author, usize::MAX, |write| {
            seen.push(write.word() >> 4);
            true
        });
        assert!(matches!(look, Ok(Look::Unchanged)));
        seen
    }

    fn begin() -> (History, WriteLog, Reader) {
        let (history, log) = (History::default(), WriteLog::default());
        assert!(log.wanted(&history).is_none());
        let reader = log.read(&history).expect("a free lock");
        assert!(history.is_logged());
        (history, log, reader)
    }

    #[test]
    fn shows_the_writes_of_others_once() {
        let (history, log, mut reader) = begin();
        let writers = log.wanted(&history).expect("a reader");
        writers.add(chain(NOBODY, &[1]));
        writers.add(chain(7, &[2, 3]));
        writers.add(chain(8, &[4]));
        assert_eq!(shown(&mut reader, 7), [1, 4]);
        assert!(shown(&mut reader, 7).is_empty());
        writers.add(chain(NOBODY, &[5]));
        assert_eq!(shown(&mut reader, 7), [5]);
    }

    #[test]
    fn stays_where_it_was_shown_a_change() {
        let (history, log, mut reader) = begin();
        log.wanted(&history).expect("a reader").add(chain(NOBODY, &[1, 2]));
        for _ in 0..2 {
            let look = reader.look(7, usize::MAX, |write| write.word() != probe(2).word());
            assert!(matches!(look, Ok(Look::Changed)));
        }
        assert!(matches!(reader.look(7, 0, |_| true), Ok(Look::Unfinished)));
        assert_eq!(shown(&mut reader, 7), [2]);
    }

    #[test]
    fn is_complete_when_the_guards_of_its_beginning_have_ended() {
        let guard = pin();
        let (_history, _log, reader) = begin();
        assert!(!reader.is_complete());
        drop(guard);
        // Another test may have a guard.
        while !reader.is_complete() {
            yield_now();
        }
    }

    #[test]
    fn frees_what_all_readers_have_passed() {
        let (history, log, mut first) = begin();
        let mut second = log.read(&history).expect("a free lock");
        let writers = log.wanted(&history).expect("two readers");
        let empty = writers.bytes();
        for number in 1..=100 {
            writers.add(chain(NOBODY, &[number]));
        }
        assert_eq!(shown(&mut first, 7).len(), 100);
        // The first one has left a place of its own.
        assert_eq!(writers.bytes(), empty + 99 * size_of::<Write>());
        assert_eq!(shown(&mut second, 8).len(), 100);
        // Both are at the last one.
        assert_eq!(writers.bytes(), size_of::<Write>());
        writers.add(chain(NOBODY, &[1, 2, 3]));
        drop((first, second));
        assert_eq!(writers.bytes(), size_of::<Write>());
        assert!(log.wanted(&history).is_none());
        assert!(!history.is_logged());
    }

    /// As when a table is emptied or deleted.
    #[test]
    fn stays_with_its_readers_when_the_contents_end() {
        let (history, log, reader) = begin();
        let mut other = log.read(&history).expect("a free lock");
        let probes: Vec<Probe<'static>> = (1..=100).map(probe).collect();
        let writers = log.wanted(&history).expect("readers");
        writers.add(Chain::new(NOBODY, true, probes.iter()));
        let mut keys = Vec::new();
        let look = other.look(7, usize::MAX, |write| {
            keys.extend(write.key().cloned());
            true
        });
        assert!(matches!(look, Ok(Look::Unchanged)) && keys.len() == 100);
        let held = || keys.iter().filter(|key| Arc::strong_count(key) > 1).count();
        drop((other, log));
        assert_eq!(held(), 100);
        drop(reader);
        assert_eq!(held(), 0);
    }

    #[test]
    fn fails_its_readers_rather_than_grow_without_end() {
        let (history, log, mut reader) = begin();
        let writers = log.wanted(&history).expect("a reader");
        for number in 0..(2 * MOST / size_of::<Write>()) as u64 {
            writers.add(chain(NOBODY, &[number + 1]));
        }
        assert!(writers.bytes() <= MOST + size_of::<Write>());
        assert!(matches!(reader.look(7, usize::MAX, |_| true), Ok(Look::Changed)));
        // Another one begins where there is room again.
        drop(reader);
        let mut reader = log.read(&history).expect("a free lock");
        writers.add(chain(NOBODY, &[9]));
        assert_eq!(shown(&mut reader, 7), [9]);
    }

    #[test]
    fn loses_nothing_between_threads() {
        const EACH: u64 = if cfg!(miri) { 50 } else { 5000 };
        let (history, log, mut reader) = begin();
        let mut other = log.read(&history).expect("a free lock");
        std::thread::scope(|scope| {
            for writer in 0..3 {
                let writers = log.wanted(&history).expect("readers");
                scope.spawn(move || (0..EACH).for_each(|i| writers.add(chain(NOBODY, &[1 + 3 * i + writer]))));
            }
            let mut seen = Vec::new();
            while seen.len() < 3 * EACH as usize {
                _ = reader.look(7, 100, |write| {
                    seen.push(write.word() >> 4);
                    true
                });
            }
            // Each writer's own in their order.
            for writer in 0..3 {
                let own: Vec<u64> = seen
                    .iter()
                    .copied()
                    .filter(|number| (number - 1) % 3 == writer)
                    .collect();
                assert!(own.is_sorted());
            }
            seen.sort_unstable();
            assert!(seen.iter().copied().eq(1..=3 * EACH));
        });
        assert_eq!(shown(&mut other, 7).len(), 3 * EACH as usize);
    }
}
