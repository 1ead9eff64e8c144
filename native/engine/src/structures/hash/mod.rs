//! `hash`: the default engine of `set`, `bag` and `duplicate_bag`. Linear hashing over cache-line buckets, with
//! optimistic reads.
//!
//! Source: Larson, "Dynamic hash tables", CACM 1988, for the bucket numbers and for growth by one bucket at a time. The
//! bucket layout (`bucket`), the versions and the traversal order are this project's own.
//!
//! Guarantees:
//! - A read writes no shared memory. The exception is a read that writers overtake again and again: it takes the
//!   bucket's lock.
//! - A miss reads one cache line of the table, which other buckets share. A hit reads one more.
//! - An update takes the lock of one bucket.
//! - Growing and shrinking move a few buckets at a time, and wait for no other thread.
//!
//! # Why a stale size does no harm
//!
//! A key's bucket is `Size::number_of` its hash. It changes only when that bucket is split or merged. The thread that
//! does this holds the locks of both buckets, and stores the new size before it frees them. So:
//! - A writer locks the bucket, then reads the size again. If the number is still the same, it stays the same until the
//!   unlock.
//! - A reader takes the bucket's token, then reads the size again. If the token is from after a split or merge, the
//!   reader sees the new size (Release of the unlock, Acquire of the token). If it is from before, it no longer
//!   validates.
//! - A thread that reads the new size finds the new bucket locked until all entries are there. The bucket was locked
//!   before that size was stored (Release, Acquire).
//! - Buckets beyond the size stay locked (see `directory`). So a thread with a larger, old size finds nothing in
//!   them.

mod bucket;
mod directory;
mod many;
mod resize;
mod traverse;
mod view;

pub use crate::shared::linear::position as place_of_hash;
pub use crate::shared::linear::Position;
pub use bucket::{PLAIN, WITH_CELLS};
pub use view::{Strip, View, LOADS, STRIPS};

use crate::shared::linear::Size;
use crate::{hash_of, Busy, Engine, Entry, Locked, Mark, Marked, Origin, Schema, Step, Trail};
use bucket::{Bucket, Overflow, Search, Spare};
use cats_sync::cache_line::CacheLine;
use cats_sync::epoch::{self, Guard};
use cats_sync::events::{self, Events};
use cats_sync::facade::{spin_loop, AtomicBool, AtomicI64, AtomicUsize, Ordering};
use cats_sync::{backoff, probe};
use directory::Directory;
use many::Many;
use std::{mem, ptr};

/// How often a call tries before it returns `Busy`: some microseconds.
const SPINS: usize = 1000;
/// How often writers may overtake an optimistic read before it takes the lock.
const OPTIMISM: usize = 8;

/// See the module's documentation. A block has [`PLAIN`] words, or [`WITH_CELLS`] if there are [cells](crate::shared::seat).
pub struct Hash<S, const WORDS: usize = PLAIN> {
    /// Fields that every call reads.
    shared: Line<Shared<S, WORDS>>,
    /// Fields that only some insertions and deletions use.
    growth: Line<Growth>,
}

/// Starts a new cache line.
struct Line<T>(T, CacheLine);

struct Shared<S, const WORDS: usize> {
    schema: S,
    /// A [`Size`].
    size: AtomicUsize,
    directory: Directory<WORDS>,
}

struct Growth {
    /// The number of keys for which [`sampled`] is true. Relaxed: an estimate, and no count of it is lost.
    sample: AtomicI64,
    /// Set by the one thread that is changing the size.
    resizing: AtomicBool,
    /// The most buckets. Relaxed: a number of its own.
    most: AtomicUsize,
    /// The most bytes: see [`Hash::trim`].
    most_bytes: AtomicUsize,
    /// Bytes of the directory, the segments and the overflow blocks. Relaxed: a figure.
    bytes: AtomicUsize,
    events: Events,
}

/// Whether a key counts for the estimate of the table's load. One key in eight does, chosen by bits of the hash that do
/// not select its bucket.
#[inline]
fn sampled(hash: u64) -> bool {
    hash >> 61 == 0
}

/// Whether the hash is in the same bucket at both sizes.
#[cold]
#[inline(never)]
fn is_same_bucket(hash: u64, one: Size, other: Size) -> bool {
    one.number_of(hash) == other.number_of(hash)
}

/// A locked bucket. Dropping it frees the lock, by default as changed.
struct Held<'g, const WORDS: usize> {
    bucket: Bucket<'g, WORDS>,
    version: u64,
    changed: bool,
}

impl<'g, const WORDS: usize> Held<'g, WORDS> {
    /// Locks a bucket if its lock is free.
    #[inline]
    fn new(bucket: Bucket<'g, WORDS>) -> Option<Self> {
        let version = bucket.head.lock.try_lock()?;
        Some(Self {
            bucket,
            version,
            changed: true,
        })
    }

    /// A token that is valid while the lock is held.
    fn token(&self) -> u64 {
        self.version + 1
    }
}

impl<const WORDS: usize> Drop for Held<'_, WORDS> {
    fn drop(&mut self) {
        if self.changed {
            self.bucket.head.lock.unlock(self.version);
        } else {
            self.bucket.head.lock.unlock_unchanged(self.version);
        }
    }
}

/// What an update does after its locks are free. Declared before the locks, and so dropped after them.
struct Aftermath<'g> {
    /// Overflow blocks that were provided but not used, or that became empty.
    spare: Spare<'g>,
    /// The number of keys that were added to buckets with full blocks.
    crowded: u32,
    /// A key was removed from a nearly empty bucket.
    lonely: bool,
}

impl<S: Schema, const WORDS: usize> Hash<S, WORDS> {
    /// An empty table. `None` when memory is exhausted.
    pub fn new(schema: S) -> Option<Self> {
        let hash = Self {
            shared: Line(
                Shared {
                    schema,
                    size: AtomicUsize::new(Size::new(1).0),
                    directory: Directory::new(),
                },
                CacheLine,
            ),
            growth: Line(
                Growth {
                    sample: AtomicI64::new(0),
                    resizing: AtomicBool::new(false),
                    most: AtomicUsize::new(directory::MAX),
                    most_bytes: AtomicUsize::new(usize::MAX),
                    bytes: AtomicUsize::new(0),
                    events: Events::default(),
                },
                CacheLine,
            ),
        };
        let guard = epoch::pin();
        if !hash.shared.0.directory.extend(&guard, 0, &hash.growth.0.bytes) {
            return None;
        }
        if let Some(first) = hash.bucket(&guard, 0) {
            first.head.lock.unlock(0);
        }
        Some(hash)
    }

    /// Lets the buckets take at most so many bytes from now on. They become crowded where there should be more.
    pub fn keep_within(&self, bytes: usize) {
        let most = directory::buckets_within::<WORDS>(bytes);
        self.growth.0.most.store(most, Ordering::Relaxed);
    }

    /// What rarely happens here.
    pub fn events(&self) -> &Events {
        &self.growth.0.events
    }

    /// Prefetches what a call with this key will read.
    #[inline]
    pub fn prefetch(&self, guard: &Guard, probe: &S::Probe) {
        self.prefetch_bucket(guard, hash_of(self.shared.0.schema.word(probe)));
    }

    /// The number of a key's bucket at this time. Operations on many keys are fastest in this order.
    #[inline]
    pub fn number(&self, probe: &S::Probe) -> usize {
        self.size().number_of(hash_of(self.shared.0.schema.word(probe)))
    }

    /// Prefetches what the key's entry points to, if the bucket is cached and holds the key.
    #[inline]
    pub fn prefetch_object(&self, guard: &Guard, probe: &S::Probe) {
        let schema = &self.shared.0.schema;
        let word = schema.word(probe);
        if let Some(bucket) = self.bucket(guard, self.size().number_of(hash_of(word))) {
            bucket.show_hits(word, |entry| schema.prefetch(entry));
        }
    }

    /// False if the marks of the bucket head show that the key is absent. Then the bucket need not be locked.
    #[inline(always)]
    pub fn may_have(&self, guard: &Guard, probe: &S::Probe) -> bool {
        let hash = hash_of(self.shared.0.schema.word(probe));
        match self.token(guard, hash) {
            Some((bucket, token)) => bucket.may_have(hash) || !bucket.head.lock.validate(token),
            None => true,
        }
    }

    /// Whether the hash is in the same bucket as when the size was `size`.
    #[inline(always)]
    fn still(&self, hash: u64, size: Size) -> bool {
        let now = self.size();
        now == size || is_same_bucket(hash, now, size)
    }

    #[inline]
    fn bucket<'g>(&self, guard: &'g Guard, number: usize) -> Option<Bucket<'g, WORDS>> {
        self.shared.0.directory.bucket(guard, number)
    }

    /// The key's bucket with a token. `None` if a writer holds the bucket or the table changes size.
    #[inline]
    fn token<'g>(&self, guard: &'g Guard, hash: u64) -> Option<(Bucket<'g, WORDS>, u64)> {
        let size = self.size();
        let bucket = self.bucket(guard, size.number_of(hash))?;
        // Unconditionally. If head and block are both not cached, waiting for the head first would double the delay.
        bucket.prefetch_block();
        let token = bucket.head.lock.token()?;
        self.still(hash, size).then_some((bucket, token))
    }

    /// Locks the key's bucket. By default for a change.
    #[inline(always)]
    fn lock<'g>(&self, guard: &'g Guard, hash: u64) -> Result<Held<'g, WORDS>, Busy> {
        let (bucket, version) = self.take_lock(guard, hash)?;
        let changed = true;
        Ok(Held {
            bucket,
            version,
            changed,
        })
    }

    /// Like [`lock`](Self::lock), but returns the bucket and the version at which it was locked. Nothing frees the lock
    /// when dropped. The first try is inlined into the caller, as for reads.
    #[inline(always)]
    fn take_lock<'g>(&self, guard: &'g Guard, hash: u64) -> Result<(Bucket<'g, WORDS>, u64), Busy> {
        match self.try_lock(guard, hash) {
            Some(locked) => Ok(locked),
            None => match self.lock_again(guard, hash) {
                Ok((bucket, version)) => Ok((bucket, version)),
                Err(Busy) => Err(Busy),
            },
        }
    }

    #[inline(always)]
    fn try_lock<'g>(&self, guard: &'g Guard, hash: u64) -> Option<(Bucket<'g, WORDS>, u64)> {
        let size = self.size();
        let bucket = self.bucket(guard, size.number_of(hash))?;
        bucket.prefetch_block();
        let version = bucket.head.lock.try_lock()?;
        if self.still(hash, size) {
            return Some((bucket, version));
        }
        bucket.head.lock.unlock_unchanged(version);
        None
    }

    #[cold]
    #[inline(never)]
    fn lock_again<'g>(&self, guard: &'g Guard, hash: u64) -> Result<(Bucket<'g, WORDS>, u64), Busy> {
        events::waiting(Some(self.events()), hash as usize, hash, || {
            backoff::back_off(hash as usize);
            for _ in 0..SPINS {
                spin_loop();
                if let Some(locked) = self.try_lock(guard, hash) {
                    return Ok(locked);
                }
            }
            Err(Busy)
        })
    }

    /// Locks the key's bucket for an operation that changes nothing.
    #[cold]
    fn lock_to_read<'g>(&self, guard: &'g Guard, hash: u64) -> Result<Held<'g, WORDS>, Busy> {
        let mut held = self.lock(guard, hash)?;
        held.changed = false;
        Ok(held)
    }

    /// Refers to the probe. A copy would be made before it is known whether it is needed, and reading words together that were
    /// written one by one takes long.
    #[inline]
    fn matches<'a>(&'a self, probe: &'a S::Probe) -> impl FnMut(Entry) -> bool + 'a {
        // SAFETY: entries are read under the caller's guard, and each word was stored in this table. Buckets call this
        // only for equal words that end in bits 00.
        move |entry| unsafe { self.shared.0.schema.matches(probe, entry) }
    }

    /// Whether the entry has the probe's key. Their key words are equal and no immediates.
    #[inline(never)]
    fn is_of(&self, probe: S::Probe, entry: Entry) -> bool {
        self.matches(&probe)(entry)
    }

    /// One optimistic read. `None` if a writer holds the key's bucket or overtakes the read.
    #[inline(always)]
    fn try_read<R>(
        &self,
        guard: &Guard,
        probe: &S::Probe,
        word: u64,
        hash: u64,
        look: &mut impl FnMut(Option<Entry>) -> R,
    ) -> Option<R> {
        let (bucket, token) = self.token(guard, hash)?;
        let found = bucket.find(guard, token, word, hash, self.matches(probe))?;
        let result = look(found);
        bucket.head.lock.validate(token).then_some(result)
    }

    /// Repeats a read whose first try failed.
    #[cold]
    #[inline(never)]
    fn read_again<R>(
        &self,
        guard: &Guard,
        probe: S::Probe,
        hash: u64,
        mut look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        let probe = &probe;
        let word = self.shared.0.schema.word(probe);
        probe!(read_again, ptr::from_ref(self), hash);
        self.events().read_again(hash as usize, hash);
        let mut overtaken = 0;
        for _ in 0..SPINS {
            if let Some(result) = self.try_read(guard, probe, word, hash, &mut look) {
                return Ok(result);
            }
            if self.token(guard, hash).is_none() {
                spin_loop();
                continue;
            }
            overtaken += 1;
            if overtaken == OPTIMISM {
                break;
            }
        }
        let held = self.lock_to_read(guard, hash)?;
        let search = self.search(guard, &held, word, hash, probe);
        Ok(look(search.found.map(|(_, entry)| entry)))
    }

    #[inline]
    fn search<'g>(
        &self,
        guard: &'g Guard,
        held: &Held<'g, WORDS>,
        word: u64,
        hash: u64,
        probe: &S::Probe,
    ) -> Search<'g, WORDS> {
        held.bucket.search(guard, word, hash, self.matches(probe))
    }

    fn spare<'g>(&'g self, guard: &'g Guard) -> Spare<'g> {
        Spare::new(guard, &self.growth.0.bytes)
    }

    fn aftermath<'g>(&'g self, guard: &'g Guard) -> Aftermath<'g> {
        Aftermath {
            spare: self.spare(guard),
            crowded: 0,
            lonely: false,
        }
    }

    /// Carries out a step on a place just found. A new key takes a free slot or a spare block.
    #[inline]
    fn step<'g>(
        &self,
        guard: &'g Guard,
        held: &mut Held<'g, WORDS>,
        hash: u64,
        search: &Search<'_, WORDS>,
        step: Step,
        after: &mut Aftermath<'_>,
    ) {
        match (step, search.found) {
            (Step::Keep, _) | (Step::Remove, None) => return,
            (Step::Touch, _) => (),
            (Step::Put(entry), Some((place, old))) => {
                debug_assert_eq!(entry.key, old.key);
                place.replace(entry);
            }
            (Step::Put(entry), None) => {
                match search.free {
                    Some(place) => place.fill(entry, hash),
                    None => held.bucket.push_overflow(entry, hash, &mut after.spare),
                }
                self.count_sample(hash, 1);
                after.crowded += u32::from(bucket::is_full(search.crowd));
            }
            (Step::Remove, Some((place, _))) => {
                held.bucket.remove(guard, place, &mut after.spare);
                self.count_sample(hash, -1);
                after.lonely |= search.crowd <= resize::LONELY;
            }
        }
        held.changed = true;
    }

    /// Counts an added or removed key for the estimate of the load.
    #[inline]
    fn count_sample(&self, hash: u64, change: i64) {
        if sampled(hash) {
            self.growth.0.sample.fetch_add(change, Ordering::Relaxed);
        }
    }

    /// An update in a bucket whose block is full and does not hold the key. The key may be in an overflow block, or
    /// will go there.
    #[inline(never)]
    fn update_full<'g, R>(
        &'g self,
        guard: &'g Guard,
        probe: S::Probe,
        (word, hash): (u64, u64),
        (bucket, version): (Bucket<'g, WORDS>, u64),
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> R {
        let mut after = self.aftermath(guard);
        // Dropped, and so unlocked, before the aftermath.
        let mut held = Held {
            bucket,
            version,
            changed: false,
        };
        let search = held.bucket.search_overflow(guard, word, hash, self.matches(&probe));
        if search.found.is_none() && search.free.is_none() {
            after.spare.allocate_or_panic();
        }
        let (step, result) = change(search.found.map(|(_, entry)| entry));
        self.step(guard, &mut held, hash, &search, step, &mut after);
        drop(held);
        self.finish(guard, &after);
        result
    }

    /// Frees a slot of a full block. An entry of an overflow block may move there.
    #[inline(never)]
    fn remove_from_full<'g>(
        &'g self,
        guard: &'g Guard,
        bucket: Bucket<'g, WORDS>,
        version: u64,
        slot: usize,
        hash: u64,
    ) {
        let mut spare = self.spare(guard);
        let held = Held {
            bucket,
            version,
            changed: true,
        };
        held.bucket.remove(guard, held.bucket.in_block(slot), &mut spare);
        self.count_sample(hash, -1);
        // Unlocks first, so that nobody waits while blocks are freed.
        drop(held);
    }

    /// Carries out what an update left for later.
    #[inline]
    fn finish(&self, guard: &Guard, after: &Aftermath<'_>) {
        if after.crowded > 0 {
            self.grow(guard, after.crowded);
        }
        if after.lonely {
            self.shrink(guard);
        }
    }
}

impl<S: Schema, const WORDS: usize> Marked<S> for Hash<S, WORDS> {
    fn read_marked<'g, R>(
        &self,
        guard: &'g Guard,
        probe: &S::Probe,
        mut look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<(R, Mark<'g>), Busy> {
        let word = self.shared.0.schema.word(probe);
        let hash = hash_of(word);
        for _ in 0..SPINS {
            let Some((bucket, token)) = self.token(guard, hash) else {
                spin_loop();
                continue;
            };
            if let Some(found) = bucket.find(guard, token, word, hash, self.matches(probe)) {
                let (result, mark) = (look(found), Mark::new(&bucket.head.lock, token));
                if mark.holds() {
                    return Ok((result, mark));
                }
            }
        }
        Err(Busy)
    }
}

impl<S: Schema, const WORDS: usize> Engine<S> for Hash<S, WORDS> {
    type Cursor = Position;

    /// The first try is inlined into the caller, short and without loops. So in a large table the processor can start
    /// the following calls while it waits for a bucket, as far as its instruction window reaches.
    #[inline(always)]
    fn read<R>(&self, guard: &Guard, probe: &S::Probe, mut look: impl FnMut(Option<Entry>) -> R) -> Result<R, Busy> {
        let word = self.shared.0.schema.word(probe);
        let hash = hash_of(word);
        match self.try_read(guard, probe, word, hash, &mut look) {
            Some(result) => Ok(result),
            // Destructured, because otherwise the result of the first try would go through the memory of this result.
            None => match self.read_again(guard, *probe, hash, look) {
                Ok(result) => Ok(result),
                Err(Busy) => Err(Busy),
            },
        }
    }

    #[inline(always)]
    fn update<R>(
        &self,
        guard: &Guard,
        probe: &S::Probe,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        let word = self.shared.0.schema.word(probe);
        let hash = hash_of(word);
        let (bucket, version) = self.take_lock(guard, hash)?;
        // Its fields stay in registers, because nobody takes its address. If `change` unwinds, the bucket counts as
        // unchanged.
        let mut held = Held {
            bucket,
            version,
            changed: false,
        };
        let found = bucket.find_in_block(
            word,
            hash,
            // Only the comparison, which is not inlined, copies the probe.
            #[inline(always)]
            |entry| self.is_of(*probe, entry),
        );
        if found.is_none() && bucket.has_full_block() {
            mem::forget(held);
            return Ok(self.update_full(guard, *probe, (word, hash), (bucket, version), change));
        }
        let (step, result) = change(found.map(|(_, entry)| entry));
        let mut lonely = false;
        held.changed = match (step, found) {
            (Step::Keep, _) | (Step::Remove, None) => false,
            (Step::Touch, _) => true,
            (Step::Put(entry), Some((slot, old))) => {
                debug_assert_eq!(entry.key, old.key);
                bucket.replace_in_block(slot, entry);
                true
            }
            (Step::Put(entry), None) => {
                bucket.in_block(bucket.crowd()).fill(entry, hash);
                self.count_sample(hash, 1);
                true
            }
            (Step::Remove, Some((slot, _))) if bucket.has_full_block() => {
                mem::forget(held);
                self.remove_from_full(guard, bucket, version, slot, hash);
                return Ok(result);
            }
            (Step::Remove, Some((slot, _))) => {
                let crowd = bucket.crowd();
                bucket.remove_from_block(slot, crowd);
                self.count_sample(hash, -1);
                lonely = crowd <= resize::LONELY;
                true
            }
        };
        drop(held);
        if lonely {
            self.shrink(guard);
        }
        Ok(result)
    }

    #[inline(always)]
    fn update_present<R: Default>(
        &self,
        guard: &Guard,
        probe: &S::Probe,
        change: impl FnOnce(Entry) -> (Step, R),
    ) -> Result<R, Busy> {
        if !self.may_have(guard, probe) {
            return Ok(R::default());
        }
        self.update(
            guard,
            probe,
            #[inline(always)]
            |old| match old {
                Some(old) => change(old),
                None => (Step::Keep, R::default()),
            },
        )
    }

    fn update_many<R>(
        &self,
        guard: &Guard,
        probes: &[&S::Probe],
        change: impl FnOnce(&mut dyn Locked) -> R,
    ) -> Result<R, Busy> {
        self.grow_for(guard, probes.len());
        let mut many = Many::new(self, guard, probes);
        many.lock()?;
        many.provide();
        let result = change(&mut many);
        many.finish();
        Ok(result)
    }

    fn scan<T>(
        &self,
        guard: &Guard,
        cursor: &mut Position,
        limit: usize,
        out: &mut Vec<T>,
        expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy> {
        self.scan_on(guard, cursor, limit, out, expand)
    }

    fn next<R>(
        &self,
        guard: &Guard,
        after: Option<&S::Probe>,
        look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        self.walk(guard, after, &mut Trail::new(), look)
    }

    fn next_on<R>(
        &self,
        guard: &Guard,
        after: Option<&S::Probe>,
        trail: &mut Trail,
        look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        self.walk(guard, after, trail, look)
    }

    #[inline(always)]
    fn follow<R>(
        &self,
        guard: &Guard,
        trail: &mut Trail,
        _down: bool,
        is_here: impl Fn(Origin) -> bool,
        look: impl FnMut(Option<Entry>) -> R,
    ) -> Option<R> {
        self.step_along(guard, trail, is_here, look)
    }

    fn buckets(&self) -> usize {
        self.size().buckets()
    }

    fn slot<T>(
        &self,
        guard: &Guard,
        number: usize,
        expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<Option<Vec<T>>, Busy> {
        self.entries_of(guard, number, expand)
    }

    fn bytes(&self) -> usize {
        mem::size_of::<Self>() + self.growth.0.bytes.load(Ordering::Relaxed)
    }

    fn dismantle(&mut self, limit: usize, free: &mut dyn FnMut(Entry)) -> bool {
        let mut places = 0;
        while places < limit.max(1) {
            let Some(last) = self.size().buckets().checked_sub(1) else {
                return true;
            };
            places += 1 + self.free_last(last, free);
        }
        self.size().buckets() == 0
    }
}

impl<S, const WORDS: usize> Hash<S, WORDS> {
    #[inline]
    fn size(&self) -> Size {
        // Acquire pairs with the Release of `set_size`: the buckets exist, and newly added ones are locked.
        Size(self.shared.0.size.load(Ordering::Acquire))
    }

    fn set_size(&self, buckets: usize) {
        // Release pairs with the Acquire of `size`.
        self.shared.0.size.store(Size::new(buckets).0, Ordering::Release);
    }

    /// Frees the last bucket and shows its entries. Returns their number. The caller is the last user.
    fn free_last(&mut self, last: usize, free: &mut dyn FnMut(Entry)) -> usize {
        let guard = epoch::pin();
        let mut entries = 0;
        let bytes = &self.growth.0.bytes;
        if let Some(bucket) = self.shared.0.directory.bucket(&guard, last) {
            let token = bucket.head.lock.token().expect("no lock is held where nobody else is");
            bucket.each(&guard, token, |entry| {
                entries += 1;
                free(entry)
            });
            // SAFETY: nobody else uses the table.
            let freed = unsafe { bucket.free_overflow(&guard) };
            bytes.fetch_sub(freed * size_of::<Overflow>(), Ordering::Relaxed);
        }
        self.set_size(last);
        // SAFETY: nobody else uses the table. The memory came from the slab with this size.
        let free = |memory, size| unsafe { bucket::free(memory, size) };
        self.shared.0.directory.cut(last, bytes, free);
        entries
    }
}

impl<S, const WORDS: usize> Drop for Hash<S, WORDS> {
    fn drop(&mut self) {
        while let Some(last) = self.size().buckets().checked_sub(1) {
            self.free_last(last, &mut |_| ());
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod cell_tests;
#[cfg(all(test, shuttle))]
mod models;
#[cfg(test)]
mod tests;
