//! The log of the keys that are written in some contents while long transactions read them.
//!
//! Source: Spear, Michael and von Praun, "RingSTM: scalable transactions with a single atomic instruction", SPAA 2008. There the log has the
//! transactions of the whole program, in a ring of filters. Here it has the keys of one table, and also those of writers outside of
//! transactions.
//!
//! A writer adds a key while it holds the lock of its place, and before it changes anything. It adds only keys that some reader has
//! announced, as a [filter] says, or that are where a reader [walks](hulls). A reader keeps the end of the log up to which
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
//! the [moment](Moment) at which the bit was set have ended. When the last reader has left, the next writer clears the bit. If there was
//! none, the next reader relies on the log at once.
//!
//! A preferred reader reserves what it reads: a commit of others that writes such a key is refused while its places are locked, before it adds
//! to the log. The reader has a mark of each place that it reads, and asks it after it has reserved. If nobody had locked the place until then,
//! whoever does so later sees the reservation.

use crate::engines::Kind;
use crate::exclusive::Exclusive;
use crate::failure::Failure;
use crate::garbage::{Expected, Garbage, ReapProcess};
use crate::history::History;
use crate::object::key::Key;
use crate::object::schema::Probe;
use crate::preferred;
use crate::read_set::{KeyRead, Part, Parts, RangeRead};
use cats_sync::epoch::{pin, Guard, Moment};
use cats_sync::facade::{fence, spin_loop, store_load_fence, yield_now, AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use cats_sync::Busy;
use std::cell::Cell;
use std::mem;
use std::ptr::{self, null_mut};
use std::sync::Arc;

use filter::Slots;
use hulls::Hulls;

/// Who has written: a number of a long transaction, or [`NOBODY`].
pub type Author = u64;

/// An author that no reader leaves out.
pub const NOBODY: Author = 0;

/// Who writes several keys.
#[derive(Clone, Copy)]
pub struct Actor<'a> {
    author: Author,
    /// Of a commit. It is set if the commit is refused, because a preferred transaction has read what it would write.
    refused: Option<&'a Cell<bool>>,
}

impl<'a> Actor<'a> {
    /// A call outside of transactions. It is not refused.
    pub const OUTSIDE: Self = Self {
        author: NOBODY,
        refused: None,
    };

    /// A commit.
    pub fn commit(author: Author, refused: &'a Cell<bool>) -> Self {
        Self {
            author,
            refused: Some(refused),
        }
    }

    pub fn author(self) -> Author {
        self.author
    }
}

/// In place of the word of a key. No key has it.
const NO_KEY: u64 = 0;

/// How many writes are compared with what is reserved before others may reserve.
const COMPARED: usize = 100;

/// How many writes are freed at once.
const FREED: usize = 500;

/// After so many bytes of writes, a writer looks whether readers are too far behind.
const LOOK: usize = 1 << 20;

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
    /// The writes of these keys.
    fn new<'a>(author: Author, ordered: bool, probes: impl Iterator<Item = &'a Probe<'static>>) -> Self {
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

    fn iter(&self) -> impl Iterator<Item = &Write> {
        // SAFETY: the chain owns its writes.
        let mut next = unsafe { self.first.as_ref() };
        std::iter::from_fn(move || {
            let write = next?;
            // SAFETY: as above. Relaxed: nobody else knows them.
            next = unsafe { write.next.load(Ordering::Relaxed).as_ref() };
            Some(write)
        })
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        // SAFETY: the chain owns its first write, unless that is null.
        unsafe { release(self.first) };
    }
}

/// Gives up a reference to a write, and frees up to `most` writes to which nobody refers then. Returns the rest, whose reference is the
/// caller's, or null, and how many bytes were freed.
///
/// # Safety
/// The caller has the reference, or the pointer is null.
unsafe fn release_some(mut write: *mut Write, most: usize) -> (*mut Write, usize) {
    let mut freed = 0;
    for _ in 0..most {
        // SAFETY: what is referred to lives. The last one that gives a reference up frees it, and has its reference to the next one then.
        unsafe {
            // Release pairs with the fence: all uses are over before it is freed.
            if write.is_null() || (*write).count.fetch_sub(1, Ordering::Release) != 1 {
                return (null_mut(), freed);
            }
            fence(Ordering::Acquire);
            let mut gone = Box::from_raw(write);
            write = *gone.next.get_mut();
            freed += gone.bytes();
        }
    }
    (write, freed)
}

/// The same for all of them.
///
/// # Safety
/// As for [`release_some`].
unsafe fn release(write: *mut Write) {
    // SAFETY: as the caller promises.
    unsafe { release_some(write, usize::MAX) };
}

/// What a reader has reserved while its keeper is the preferred one.
struct Reservation {
    author: Author,
    keeper: u64,
    parts: Parts,
}

/// A reader's reference to the last write that it has seen, or null if it has been cut off.
struct Seen(*mut Write);

// SAFETY: it owns a reference to the write.
unsafe impl Send for Seen {}

/// How far a reader has come.
struct Progress {
    /// Held by the reader while it looks, and by writers who try to cut it off.
    seen: Exclusive<Seen>,
    /// The bytes of all writes up to there.
    passed: AtomicUsize,
    /// How many bytes it may be behind.
    memory: usize,
    /// Whether it may be behind by any number: it commits, and has added to the log itself.
    spared: AtomicBool,
}

impl Progress {
    /// How many bytes of writes are behind it, if so many were added in all.
    fn behind(&self, total: usize) -> usize {
        // Relaxed: a bound for memory. Both counts are inexact while writes are added, so it may be ahead by some.
        let behind = total.wrapping_sub(self.passed.load(Ordering::Relaxed));
        if behind > isize::MAX as usize {
            0
        } else {
            behind
        }
    }

    /// Cuts the reader off if it is too far behind. Returns what it has not seen.
    fn cut_off(&self, total: usize) -> Option<*mut Write> {
        // Relaxed: a commit that is cut off because this was not seen yet fails, and writes nothing.
        let is_late = self.behind(total) > self.memory && !self.spared.load(Ordering::Relaxed);
        // A reader that has the lock goes on.
        let seen = is_late.then(|| self.seen.try_with(|seen| mem::replace(&mut seen.0, null_mut())))??;
        (!seen.is_null()).then_some(seen)
    }
}

/// Writes that nobody will read, which the reaper frees.
struct Unread {
    write: *mut Write,
    log: Arc<Log>,
}

// SAFETY: it owns a reference to the write.
unsafe impl Send for Unread {}

impl Garbage for Unread {
    fn step(&mut self, _reap: ReapProcess<'_>) -> Result<bool, Failure> {
        // SAFETY: the reference is this one's. What is left is, too.
        self.write = unsafe { self.log.release(self.write, FREED) };
        Ok(!self.write.is_null())
    }
}

/// The readers of a log.
#[derive(Default)]
struct Readers {
    /// How far each has come.
    progress: Vec<Arc<Progress>>,
    /// The moment when the bit of the history was set.
    began: Option<Moment>,
}

impl Readers {
    /// Sets the bit of the history, if it is not set, and returns the moment when it was.
    fn begin(&mut self, history: &History) -> Moment {
        match self.began {
            Some(began) if history.is_logged() => began,
            _ => {
                history.set_logged(true);
                *self.began.insert(Moment::now())
            }
        }
    }
}

/// See the module's documentation.
pub struct Log {
    last: AtomicPtr<Write>,
    /// The bytes of the writes.
    bytes: AtomicUsize,
    /// The bytes of all writes that were ever added. It may wrap.
    total: AtomicUsize,
    /// Held to set or clear the bit of the history: it is set if there are readers.
    readers: Exclusive<Readers>,
    /// Whether there are readers, so that writers need not ask for that lock.
    read: AtomicBool,
    /// How many readers have announced all keys.
    all: AtomicUsize,
    /// Where others walk.
    hulls: Hulls,
    /// What a preferred reader has read.
    reserved: Exclusive<Option<Reservation>>,
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
            total: AtomicUsize::new(0),
            readers: Exclusive::default(),
            read: AtomicBool::new(false),
            all: AtomicUsize::new(0),
            hulls: Hulls::default(),
            reserved: Exclusive::default(),
        }
    }

    /// The writes of those of these keys that a reader has announced. Their places are locked.
    pub fn chain(&self, guard: &Guard, author: Author, ordered: bool, probes: &[&Probe<'static>]) -> Chain {
        filter::order();
        // Relaxed: see `filter::order`.
        let all = self.all.load(Ordering::Relaxed) != 0;
        let walked = |probe: &Probe<'_>| self.hulls.has(guard, || Key::sought(probe.term(), true));
        let announced = |probe: &&Probe<'_>| all || filter::has(self, probe.word()) || walked(probe);
        Chain::new(author, ordered, probes.iter().copied().filter(announced))
    }

    /// Fails, and marks the actor, if that is refused. The places of the writes are locked.
    pub fn admit(&self, actor: Actor<'_>, chain: &Chain) -> Result<(), Busy> {
        match actor.refused.filter(|_| preferred::keeper() != 0) {
            Some(refused) if self.is_reserved(chain)? => {
                refused.set(true);
                Err(Busy)
            }
            _ => Ok(()),
        }
    }

    /// Whether a preferred transaction, and not that of the chain, has read what is to be written.
    fn is_reserved(&self, chain: &Chain) -> Result<bool, Busy> {
        let mut writes = chain.iter().peekable();
        while writes.peek().is_some() {
            let some = writes.by_ref().take(COMPARED);
            let compare = |reserved: &mut Option<Reservation>| {
                let reserved = reserved.as_ref()?;
                let is_live = reserved.author != chain.author && reserved.keeper == preferred::keeper();
                is_live.then(|| {
                    some.into_iter()
                        .any(|write| reserved.parts.has(write.word, write.key()))
                })
            };
            match self.reserved.with(compare)? {
                Some(false) => (),
                found => return Ok(found.is_some()),
            }
        }
        Ok(false)
    }

    /// Adds writes. Their places are locked, and nothing was changed yet.
    pub fn add(&self, mut chain: Chain) {
        if chain.bytes == 0 {
            return;
        }
        let total = self.link(mem::replace(&mut chain.first, null_mut()), chain.last, chain.bytes);
        if total % LOOK < chain.bytes {
            self.cut_off(total);
        }
    }

    /// Cuts off the readers that are too far behind: what only they have not seen is freed, and they fail.
    #[cold]
    fn cut_off(&self, total: usize) {
        let cut = |readers: &mut Readers| -> Vec<_> {
            readers
                .progress
                .iter()
                .filter_map(|reader| reader.cut_off(total))
                .collect()
        };
        // Whoever has the lock leaves the rest to the next writer.
        for write in self.readers.try_with(cut).into_iter().flatten() {
            self.leave(write);
        }
    }

    /// Leaves writes to the reaper.
    fn leave(&self, write: *mut Write) {
        // SAFETY: logs are made in counted references only, by `WriteLog::read`.
        let log = unsafe {
            Arc::increment_strong_count(self);
            Arc::from_raw(self)
        };
        Expected::new().enqueue(Unread { write, log });
    }

    /// Puts linked writes behind the last one. They are this thread's own, with a reference to the first. Returns the bytes of all writes
    /// that were ever added.
    fn link(&self, first: *mut Write, last: *mut Write, bytes: usize) -> usize {
        // Relaxed: counts.
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let total = self.total.fetch_add(bytes, Ordering::Relaxed).wrapping_add(bytes);
        // SAFETY: nobody else knows it yet. Relaxed: likewise. The reference is that of `self.last`.
        unsafe { (*last).count.fetch_add(1, Ordering::Relaxed) };
        // SeqCst pairs with the load in `look`, between two transactions that have both added what they write: one of them sees what the
        // other has added. Acquire and Release: whoever follows sees the writes.
        let before = self.last.swap(last, Ordering::SeqCst);
        // SAFETY: `last` had a reference to it, which is this thread's now.
        unsafe {
            // Release pairs with the Acquire in `look`.
            (*before).next.store(first, Ordering::Release);
            let rest = self.release(before, FREED);
            if !rest.is_null() {
                self.leave(rest);
            }
        }
        store_load_fence();
        total
    }

    /// See [`release_some`].
    ///
    /// # Safety
    /// As for that.
    unsafe fn release(&self, write: *mut Write, most: usize) -> *mut Write {
        // SAFETY: as the caller promises.
        let (rest, freed) = unsafe { release_some(write, most) };
        // Relaxed: a count.
        self.bytes.fetch_sub(freed, Ordering::Relaxed);
        rest
    }

    /// About the bytes of the writes.
    fn bytes(&self) -> usize {
        // Relaxed: for information.
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
    /// `show` has returned false.
    Changed,
    /// The reader was too far behind, and has been cut off.
    CutOff,
    /// There were more writes than it may be shown at once.
    Unfinished,
}

/// A reader of a log.
pub struct Reader {
    log: Arc<Log>,
    author: Author,
    progress: Arc<Progress>,
    began: Moment,
    slots: Slots,
    announced: Announced,
}

/// What a reader has announced besides single keys.
enum Announced {
    Nothing,
    /// A hull, and its place.
    Range(usize, RangeRead),
    All,
}

impl Reader {
    fn new(log: Arc<Log>, history: &History, author: Author, memory: usize) -> Result<Self, Busy> {
        // A write of its own gives it a place in the log.
        let own = Write::of_no_key();
        let progress = Arc::new(Progress {
            seen: Exclusive::new(Seen(own)),
            // Relaxed: a count. Writers may look at it before it is right.
            passed: AtomicUsize::new(log.total.load(Ordering::Relaxed)),
            memory,
            spared: AtomicBool::new(false),
        });
        let entered = log.readers.with(|readers| {
            readers.progress.push(progress.clone());
            // Relaxed: see `WriteLog::wanted`.
            log.read.store(true, Ordering::Relaxed);
            readers.begin(history)
        });
        let began = entered.inspect_err(|Busy| {
            // SAFETY: nobody else knows it.
            unsafe { release(own) };
        })?;
        // SAFETY: nobody else knows it. Relaxed: likewise. The reference is that of the reader.
        unsafe { (*own).count.fetch_add(1, Ordering::Relaxed) };
        let total = log.link(own, own, size_of::<Write>());
        // Relaxed: a count.
        progress.passed.store(total, Ordering::Relaxed);
        Ok(Self {
            log,
            author,
            progress,
            began,
            slots: Slots::default(),
            announced: Announced::Nothing,
        })
    }

    /// Has writers add this to the log from now on. A key, or all keys, are announced before they are read. A range is announced when it was
    /// read: if this returns true, its marks are to be asked after that.
    pub fn announce(&mut self, guard: &Guard, part: &Part) -> bool {
        let widened = match (part, &self.announced) {
            (_, Announced::All) => return false,
            (Part::Word(word) | Part::Key(KeyRead(word, _)), _) => {
                self.slots.announce(&self.log, *word);
                false
            }
            (Part::All, _) => {
                self.announce_all(guard);
                false
            }
            (Part::Range(range), Announced::Range(place, hull)) => {
                let (place, Some(wider)) = (*place, hull.widened(range)) else {
                    return false;
                };
                self.announce_range(guard, place, wider);
                true
            }
            (Part::Range(range), Announced::Nothing) => {
                match self.log.hulls.take() {
                    Some(place) => self.announce_range(guard, place, range.clone()),
                    None => self.announce_all(guard),
                }
                true
            }
        };
        filter::order();
        widened
    }

    fn announce_range(&mut self, guard: &Guard, place: usize, range: RangeRead) {
        self.log.hulls.set(guard, place, range.clone());
        self.announced = Announced::Range(place, range);
    }

    fn announce_all(&mut self, guard: &Guard) {
        // Relaxed: see `filter::order`.
        self.log.all.fetch_add(1, Ordering::Relaxed);
        self.withdraw(guard);
        self.announced = Announced::All;
    }

    /// Announces nothing besides single keys.
    fn withdraw(&mut self, guard: &Guard) {
        match mem::replace(&mut self.announced, Announced::Nothing) {
            Announced::Nothing => (),
            Announced::Range(place, _) => self.log.hulls.give_back(guard, place),
            // Relaxed: the reader needs no writes any more.
            Announced::All => _ = self.log.all.fetch_sub(1, Ordering::Relaxed),
        }
    }

    /// About the bytes of what it has announced.
    pub fn bytes(&self) -> usize {
        self.slots.bytes()
    }

    /// Has commits of others that write this be refused while this keeper is the preferred one.
    pub fn reserve(&self, keeper: u64, kind: Kind, part: Part) -> Result<(), Busy> {
        let author = self.author;
        self.log.reserved.with(|reserved| match reserved {
            Some(own) if own.author == author => {
                own.parts.add(part);
                None
            }
            other if preferred::keeper() == keeper => {
                let mut parts = Parts::of(kind);
                parts.add(part);
                // What another transaction has left, which is preferred no more.
                other.replace(Reservation { author, keeper, parts })
            }
            _ => None,
        })?;
        Ok(())
    }

    /// Whether all writes from now on are in the log. The caller has no guard from before it began.
    pub fn is_complete(&self) -> bool {
        self.began.is_past()
    }

    /// Whether this is the log that it reads.
    pub fn reads(&self, log: &WriteLog) -> bool {
        ptr::eq(log.get(), Arc::as_ptr(&self.log))
    }

    /// About the bytes of the writes that it has not seen.
    pub fn behind(&self) -> usize {
        // Relaxed: a bound for memory.
        self.progress.behind(self.log.total.load(Ordering::Relaxed))
    }

    /// Whether it is not cut off however much is behind it, because it is about to add to the log itself.
    pub fn spare(&self, spared: bool) {
        // Relaxed: see `Progress::cut_off`.
        self.progress.spared.store(spared, Ordering::Relaxed);
    }

    /// Shows the writes of others since the last look, up to `most` of them.
    pub fn look(&mut self, most: usize, mut show: impl FnMut(&Write) -> bool) -> Result<Look, Busy> {
        store_load_fence();
        // SeqCst: see `Log::link`.
        let end = self.log.last.load(Ordering::SeqCst);
        let (log, author, passed) = (&self.log, self.author, &self.progress.passed);
        self.progress.seen.with(|seen| {
            let (mut spins, mut left) = (0, most);
            if seen.0.is_null() {
                return Ok(Look::CutOff);
            }
            while seen.0 != end {
                // SAFETY: the reader has a reference to where it is, and a write has one to the next.
                unsafe {
                    // Acquire pairs with the Release in `link`.
                    let next = (*seen.0).next.load(Ordering::Acquire);
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
                    // Relaxed: the write before it keeps it alive. And a count.
                    (*next).count.fetch_add(1, Ordering::Relaxed);
                    passed.fetch_add((*next).bytes(), Ordering::Relaxed);
                    // This frees one write at most, as the next one is referred to.
                    log.release(mem::replace(&mut seen.0, next), usize::MAX);
                }
            }
            Ok(Look::Unchanged)
        })?
    }
}

impl Drop for Reader {
    /// From now on nothing is added for it, and nothing is reserved.
    fn drop(&mut self) {
        self.withdraw(&pin());
        let leave = |readers: &mut Readers| {
            readers.progress.retain(|reader| !Arc::ptr_eq(reader, &self.progress));
            // Relaxed: see `WriteLog::wanted`.
            self.log.read.store(!readers.progress.is_empty(), Ordering::Relaxed);
        };
        while self.log.readers.with(leave).is_err() {
            yield_now();
        }
        let is_own = |reserved: &mut Reservation| reserved.author == self.author;
        while self.log.reserved.with(|reserved| reserved.take_if(is_own)).is_err() {
            yield_now();
        }
        // Nobody has the lock any more, except a writer who cuts it off.
        while let Err(Busy) = self.progress.seen.with(|seen| {
            let write = mem::replace(&mut seen.0, null_mut());
            // SAFETY: the reader has a reference to where it is.
            let rest = unsafe { self.log.release(write, FREED) };
            if !rest.is_null() {
                self.log.leave(rest);
            }
        }) {
            yield_now();
        }
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

    /// Begins to read for this author, with so many bytes of memory. The history is that of the same contents.
    pub fn read(&self, history: &History, author: Author, memory: usize) -> Result<Reader, Busy> {
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
        Reader::new(log, history, author, memory)
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
        // Relaxed: what is not seen is seen under the lock.
        if log.read.load(Ordering::Relaxed) {
            return Some(log);
        }
        // A reader that begins after the bit was cleared waits for the writer's guard.
        let is_unwanted = |readers: &mut Readers| {
            if readers.progress.is_empty() {
                history.set_logged(false);
            }
            readers.progress.is_empty()
        };
        match log.readers.try_with(is_unwanted) {
            Some(true) => None,
            _ => Some(log),
        }
    }
}

mod filter;
mod hulls;
#[cfg(all(test, shuttle))]
mod models;
#[cfg(test)]
mod tests;
