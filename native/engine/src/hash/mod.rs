//! The default engine of set, bag and duplicate_bag: linear hashing over cache-line buckets, read optimistically.
//!
//! Source: Larson, "Dynamic hash tables", CACM 1988, for the addressing and for growing a bucket at a time; the bucket layout
//! ([`bucket`]), the versions and the traversal order are this project's own. ALGORITHMS sections 6.1, 6.3 and 6.6.
//!
//! Guarantees: reads write nothing shared (but for one that keeps being overtaken, which takes the bucket's lock); a miss reads
//! one cache line of the table, a hit two adjacent ones; an update takes one bucket's lock; growing and shrinking move a few
//! buckets at a time, and wait for nobody.
//!
//! # Why a stale size does no harm
//!
//! A key's bucket is [`Size::number_of`] its hash. It changes only when that bucket is split or merged, by a thread that holds
//! the locks of both buckets concerned and stores the new size before it frees them. So:
//! - A writer locks the bucket, then reads the size again. If the number is still the same, it stays so until the unlock.
//! - A reader takes the bucket's token, then reads the size again. A token from after a split or merge comes with its new size
//!   (Release of the unlock, Acquire of the token), so the reader notices; a token from before no longer validates.
//! - Who comes by the new size meets the new bucket locked, because it was locked before that size was stored (Release,
//!   Acquire), until all entries are there. Buckets beyond the size are locked for good (see [`directory`]), so nobody who
//!   comes with a larger, old size finds anything in them.
//!
//! # Traversal
//!
//! The order of traversal is that of the *reversed* bits of the hash: the entries of a bucket fill an interval in it, which a
//! split halves and a merge reunites with its neighbour. So a position in that order needs no care when the table changes.

mod bucket;
mod directory;
mod resize;

use crate::{hash_of, Busy, Cursor, Engine, Entry, Locked, Schema, Step};
use bucket::{Bucket, Search, Spare, SLOTS};
use cats_sync::epoch::{self, Guard};
use cats_sync::facade::{spin_loop, AtomicBool, AtomicI64, AtomicUsize, Ordering};
use directory::Directory;
use std::cmp;

/// How often a call tries before it reports `Busy`: some microseconds.
const SPINS: usize = 1000;
/// How often an optimistic read is overtaken before it takes the lock.
const OPTIMISM: usize = 8;

/// See the module's documentation.
pub struct Hash<S> {
    /// What every call reads.
    shared: Line<Shared<S>>,
    /// What only some insertions and deletions touch.
    growth: Line<Growth>,
}

/// Begins a cache line of its own.
#[repr(align(64))]
struct Line<T>(T);

struct Shared<S> {
    schema: S,
    /// A [`Size`].
    size: AtomicUsize,
    directory: Directory,
}

struct Growth {
    /// The number of keys of which [`sampled`] is true.
    sample: AtomicI64,
    /// Held by the one thread that changes the size.
    resizing: AtomicBool,
    /// Memory of the directory, the segments and the overflow buckets.
    bytes: AtomicUsize,
}

/// How many buckets are in use, with the whole part of the logarithm of that: one word, so that both are of one time.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Size(usize);

impl Size {
    fn new(buckets: usize) -> Self {
        Self(buckets << 6 | buckets.checked_ilog2().unwrap_or(0) as usize)
    }
    #[inline]
    fn buckets(self) -> usize {
        self.0 >> 6
    }
    #[inline]
    fn level(self) -> u32 {
        self.0 as u32 & 63
    }

    /// The number of the bucket of a hash.
    #[inline]
    fn number_of(self, hash: u64) -> usize {
        let half = 1 << self.level();
        let number = (hash >> 2) as usize & (2 * half - 1);
        if number >= self.buckets() {
            number - half
        } else {
            number
        }
    }

    /// How many bits of the hash lead to the bucket that it is in.
    fn depth(self, hash: u64) -> u32 {
        let half = 1 << self.level();
        let number = self.number_of(hash);
        self.level() + u32::from(number >= half || number < self.buckets() - half)
    }
}

/// The place of a hash in the order of traversal: a multiple of 4.
#[inline]
fn position(hash: u64) -> u64 {
    (hash >> 2).reverse_bits()
}

/// The least hash that is at a position.
#[inline]
fn hash_at(position: u64) -> u64 {
    position.reverse_bits() << 2
}

/// The first position behind the interval of a bucket that `at` is in; nothing if it is the last one.
fn behind(at: u64, depth: u32) -> Option<u64> {
    if depth == 0 {
        return None;
    }
    let shift = u64::BITS - depth;
    ((at >> shift) + 1).checked_mul(1 << shift)
}

/// Whether a key counts for the estimate of the table's load: one in eight, by bits that have no part in its bucket's number.
#[inline]
fn sampled(hash: u64) -> bool {
    hash >> 61 == 0
}

/// A locked bucket. Frees the lock when dropped, by default as changed.
struct Held<'g> {
    head: &'g Bucket,
    version: u64,
    changed: bool,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.changed {
            self.head.lock.unlock(self.version);
        } else {
            self.head.lock.unlock_unchanged(self.version);
        }
    }
}

/// What an update leaves to do for when the locks are free. Declared before the locks, so dropped after them.
struct Aftermath<'g> {
    /// Overflow buckets provided and not used, or emptied.
    spare: Spare<'g>,
    /// A key was added to a full bucket, or to one that nearly is.
    crowded: bool,
    /// A key was taken from a bucket that has hardly any.
    lonely: bool,
}

impl<S: Schema> Hash<S> {
    /// An empty table, or nothing when memory is exhausted.
    pub fn new(schema: S) -> Option<Self> {
        let hash = Self {
            shared: Line(Shared {
                schema,
                size: AtomicUsize::new(Size::new(1).0),
                directory: Directory::new(),
            }),
            growth: Line(Growth {
                sample: AtomicI64::new(0),
                resizing: AtomicBool::new(false),
                bytes: AtomicUsize::new(0),
            }),
        };
        let guard = epoch::pin();
        if !hash.shared.0.directory.extend(&guard, 0, &hash.growth.0.bytes) {
            return None;
        }
        if let Some(first) = hash.bucket(&guard, 0) {
            first.lock.unlock(0);
        }
        Some(hash)
    }

    /// Asks the processor for what a call with this key will read.
    #[inline]
    pub fn prefetch(&self, guard: &Guard, probe: &S::Probe) {
        let hash = hash_of(self.shared.0.schema.word(probe));
        if let Some(bucket) = self.bucket(guard, self.size().number_of(hash)) {
            bucket.prefetch();
        }
    }

    /// Whether the hash is in the same bucket as when the size was `size`.
    #[inline]
    fn still(&self, hash: u64, size: Size) -> bool {
        let now = self.size();
        now == size || now.number_of(hash) == size.number_of(hash)
    }

    #[inline]
    fn bucket<'g>(&self, guard: &'g Guard, number: usize) -> Option<&'g Bucket> {
        self.shared.0.directory.bucket(guard, number)
    }

    /// The key's bucket with a token, unless a writer holds it or the table changes.
    #[inline]
    fn token<'g>(&self, guard: &'g Guard, hash: u64) -> Option<(&'g Bucket, u64)> {
        let size = self.size();
        let head = self.bucket(guard, size.number_of(hash))?;
        head.prefetch_bodies();
        let token = head.lock.token()?;
        self.still(hash, size).then_some((head, token))
    }

    /// Locks the key's bucket.
    #[inline]
    fn lock<'g>(&self, guard: &'g Guard, hash: u64) -> Result<Held<'g>, Busy> {
        for _ in 0..SPINS {
            let size = self.size();
            if let Some(head) = self.bucket(guard, size.number_of(hash)) {
                head.prefetch();
                if let Some(version) = head.lock.try_lock() {
                    let mut held = Held {
                        head,
                        version,
                        changed: true,
                    };
                    if self.still(hash, size) {
                        return Ok(held);
                    }
                    held.changed = false;
                }
            }
            spin_loop();
        }
        Err(Busy)
    }

    #[inline]
    fn matches<'a>(&'a self, probe: &'a S::Probe) -> impl FnMut(Entry) -> bool + 'a {
        // SAFETY: entries are read under the caller's guard, each word was stored in this table, and buckets ask only for
        // equal words that end in 00.
        move |entry| unsafe { self.shared.0.schema.matches(probe, entry) }
    }

    #[inline]
    fn search<'g>(&self, guard: &'g Guard, held: &Held<'g>, word: u64, probe: &S::Probe) -> Search<'g> {
        held.head.search(guard, word, self.matches(probe))
    }

    fn spare<'g>(&'g self, guard: &'g Guard) -> Spare<'g> {
        Spare::new(guard, &self.growth.0.bytes)
    }

    fn aftermath<'g>(&'g self, guard: &'g Guard) -> Aftermath<'g> {
        Aftermath {
            spare: self.spare(guard),
            crowded: false,
            lonely: false,
        }
    }

    /// Carries out a step on a place just searched for. A new key finds a free place or a spare bucket.
    #[inline]
    fn step(
        &self,
        guard: &Guard,
        held: &mut Held<'_>,
        hash: u64,
        search: &Search<'_>,
        step: Step,
        after: &mut Aftermath<'_>,
    ) {
        match (step, search.found) {
            (Step::Keep, _) | (Step::Remove, None) => return,
            (Step::Touch, _) => (),
            (Step::Put(entry), Some((place, old))) => {
                debug_assert_eq!(entry.key, old.key);
                place.replace(entry.body);
            }
            (Step::Put(entry), None) => {
                match search.free {
                    Some(place) => place.fill(entry),
                    None => held.head.push_overflow(entry, &mut after.spare),
                }
                if sampled(hash) {
                    self.growth.0.sample.fetch_add(1, Ordering::Relaxed);
                }
                after.crowded |= search.crowd >= resize::CROWD;
            }
            (Step::Remove, Some((place, _))) => {
                held.head.remove(guard, place, &mut after.spare);
                if sampled(hash) {
                    self.growth.0.sample.fetch_sub(1, Ordering::Relaxed);
                }
                after.lonely |= search.crowd <= resize::LONELY;
            }
        }
        held.changed = true;
    }

    /// Does what an update left to do.
    #[inline]
    fn finish(&self, guard: &Guard, after: Aftermath<'_>) {
        if after.crowded {
            self.grow(guard);
        }
        if after.lonely {
            self.shrink(guard);
        }
    }

    /// Shows `each` all entries of the bucket that holds the position, optimistically at first; `reset` runs before each try.
    /// Returns the depth of the bucket.
    fn visit(
        &self,
        guard: &Guard,
        hash: u64,
        mut reset: impl FnMut(),
        mut each: impl FnMut(Entry),
    ) -> Result<u32, Busy> {
        let mut overtaken = 0;
        for _ in 0..SPINS {
            let Some((head, token)) = self.token(guard, hash) else {
                spin_loop();
                continue;
            };
            let size = self.size();
            reset();
            if head.each(guard, token, &mut each) && head.lock.validate(token) {
                return Ok(size.depth(hash));
            }
            overtaken += 1;
            if overtaken == OPTIMISM {
                break;
            }
        }
        let mut held = self.lock(guard, hash)?;
        held.changed = false;
        let size = self.size();
        reset();
        held.head.each(guard, held.version + 1, &mut each);
        Ok(size.depth(hash))
    }

    /// The order of traversal between two entries.
    fn order(&self, a: Entry, b: Entry) -> cmp::Ordering {
        let key = |entry: Entry| (position(hash_of(entry.key)), entry.key);
        key(a).cmp(&key(b)).then_with(|| {
            if a.key & 3 == 3 {
                return cmp::Ordering::Equal;
            }
            // SAFETY: both were read under the caller's guard, and have one word, which ends in 00.
            unsafe { self.shared.0.schema.compare_colliding_entries(a, b) }
        })
    }

    /// Whether an entry stands behind the probe, whose word is given, in the order of traversal.
    fn is_behind(&self, word: u64, probe: &S::Probe, entry: Entry) -> bool {
        let key = |word: u64| (position(hash_of(word)), word);
        let order = key(word).cmp(&key(entry.key)).then_with(|| {
            if word & 3 == 3 {
                return cmp::Ordering::Equal;
            }
            // SAFETY: as in `order`.
            unsafe { self.shared.0.schema.compare_colliding(probe, entry) }
        });
        order == cmp::Ordering::Less
    }

    /// The first entry behind the key, and the buckets that were read for it with their tokens.
    fn least<'g>(
        &self,
        guard: &'g Guard,
        after: Option<(u64, &S::Probe)>,
        read: &mut Vec<(&'g Bucket, u64)>,
    ) -> Option<Option<Entry>> {
        let mut at = after.map_or(0, |(word, _)| position(hash_of(word)));
        loop {
            let hash = hash_at(at);
            let (head, token) = self.token(guard, hash)?;
            let size = self.size();
            read.push((head, token));
            let mut least: Option<Entry> = None;
            let whole = head.each(guard, token, |entry| {
                let behind = after.is_none_or(|(word, probe)| self.is_behind(word, probe, entry));
                if behind && least.is_none_or(|least| self.order(entry, least).is_lt()) {
                    least = Some(entry);
                }
            });
            if !whole {
                return None;
            }
            if least.is_some() {
                return Some(least);
            }
            match behind(at, size.depth(hash)) {
                Some(next) => at = next,
                None => return Some(None),
            }
        }
    }
}

/// Position of a scan: all entries before it have been met.
#[derive(Debug, Default, Clone, Copy)]
pub struct Position {
    at: u64,
    end: bool,
}

impl Cursor for Position {}

impl<S: Schema> Engine<S> for Hash<S> {
    type Cursor = Position;

    #[inline]
    fn read<R>(&self, guard: &Guard, probe: &S::Probe, mut look: impl FnMut(Option<Entry>) -> R) -> Result<R, Busy> {
        let word = self.shared.0.schema.word(probe);
        let hash = hash_of(word);
        let mut overtaken = 0;
        for _ in 0..SPINS {
            let Some((head, token)) = self.token(guard, hash) else {
                spin_loop();
                continue;
            };
            if let Some(found) = head.find(guard, token, word, self.matches(probe)) {
                let result = look(found);
                if head.lock.validate(token) {
                    return Ok(result);
                }
            }
            overtaken += 1;
            if overtaken == OPTIMISM {
                break;
            }
        }
        let mut held = self.lock(guard, hash)?;
        held.changed = false;
        let search = self.search(guard, &held, word, probe);
        Ok(look(search.found.map(|(_, entry)| entry)))
    }

    #[inline]
    fn update<R>(
        &self,
        guard: &Guard,
        probe: &S::Probe,
        change: impl FnOnce(Option<Entry>) -> (Step, R),
    ) -> Result<R, Busy> {
        let word = self.shared.0.schema.word(probe);
        let hash = hash_of(word);
        let mut after = self.aftermath(guard);
        let mut held = self.lock(guard, hash)?;
        let search = self.search(guard, &held, word, probe);
        if search.found.is_none() && search.free.is_none() {
            after.spare.allocate_or_panic();
        }
        let (step, result) = change(search.found.map(|(_, entry)| entry));
        held.changed = false;
        self.step(guard, &mut held, hash, &search, step, &mut after);
        drop(held);
        self.finish(guard, after);
        Ok(result)
    }

    fn update_many<R>(
        &self,
        guard: &Guard,
        probes: &[&S::Probe],
        change: impl FnOnce(&mut dyn Locked) -> R,
    ) -> Result<R, Busy> {
        let keys: Vec<(u64, u64)> = probes
            .iter()
            .map(|probe| self.shared.0.schema.word(probe))
            .map(|word| (word, hash_of(word)))
            .collect();
        let mut many = Many {
            table: self,
            guard,
            probes,
            keys,
            heads: Vec::new(),
            after: self.aftermath(guard),
        };
        many.lock()?;
        many.provide();
        let result = change(&mut many);
        let Many { heads, after, .. } = many;
        drop(heads);
        self.finish(guard, after);
        Ok(result)
    }

    fn scan<T>(
        &self,
        guard: &Guard,
        cursor: &mut Position,
        limit: usize,
        out: &mut Vec<T>,
        mut expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<bool, Busy> {
        let mut places = 0;
        while !cursor.end {
            let (at, before) = (cursor.at, out.len());
            let met = std::cell::Cell::new(0);
            let out = std::cell::RefCell::new(&mut *out);
            let visited = self.visit(
                guard,
                hash_at(at),
                || {
                    met.set(0);
                    out.borrow_mut().truncate(before);
                },
                |entry| {
                    if position(hash_of(entry.key)) >= at {
                        met.set(met.get() + 1);
                        expand(entry, &mut out.borrow_mut());
                    }
                },
            );
            match visited {
                Ok(depth) => match behind(at, depth) {
                    Some(next) => cursor.at = next,
                    None => cursor.end = true,
                },
                Err(Busy) => {
                    out.borrow_mut().truncate(before);
                    return if places > 0 { Ok(true) } else { Err(Busy) };
                }
            }
            places += met.get();
            if places >= limit.max(1) {
                return Ok(!cursor.end);
            }
        }
        Ok(false)
    }

    fn next<R>(
        &self,
        guard: &Guard,
        after: Option<&S::Probe>,
        mut look: impl FnMut(Option<Entry>) -> R,
    ) -> Result<R, Busy> {
        let after = after.map(|probe| (self.shared.0.schema.word(probe), probe));
        let mut read = Vec::new();
        for _ in 0..SPINS {
            read.clear();
            if let Some(found) = self.least(guard, after, &mut read) {
                let result = look(found);
                // No bucket that was read has changed since: there was an instant at which all were as read.
                if read.iter().all(|(head, token)| head.lock.validate(*token)) {
                    return Ok(result);
                }
            }
            spin_loop();
        }
        Err(Busy)
    }

    fn buckets(&self) -> usize {
        self.size().buckets()
    }

    fn slot<T>(
        &self,
        guard: &Guard,
        number: usize,
        mut expand: impl FnMut(Entry, &mut Vec<T>),
    ) -> Result<Option<Vec<T>>, Busy> {
        let mut out = Vec::new();
        for _ in 0..SPINS {
            if number >= self.size().buckets() {
                return Ok(None);
            }
            let Some((head, token)) = self
                .bucket(guard, number)
                .and_then(|head| Some((head, head.lock.token()?)))
            else {
                spin_loop();
                continue;
            };
            out.clear();
            if head.each(guard, token, |entry| expand(entry, &mut out)) && head.lock.validate(token) {
                return Ok(Some(out));
            }
        }
        Err(Busy)
    }

    fn bytes(&self) -> usize {
        std::mem::size_of::<Self>() + self.growth.0.bytes.load(Ordering::Relaxed)
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

impl<S> Hash<S> {
    #[inline]
    fn size(&self) -> Size {
        // Acquire pairs with the Release of `set_size`: the buckets exist, and those just added are locked.
        Size(self.shared.0.size.load(Ordering::Acquire))
    }

    fn set_size(&self, buckets: usize) {
        self.shared.0.size.store(Size::new(buckets).0, Ordering::Release);
    }

    /// Frees the last bucket, showing its entries; returns their number. The caller is the last user.
    fn free_last(&mut self, last: usize, free: &mut dyn FnMut(Entry)) -> usize {
        let guard = epoch::pin();
        let mut entries = 0;
        let bytes = &self.growth.0.bytes;
        if let Some(head) = self.shared.0.directory.bucket(&guard, last) {
            head.each(&guard, 0, |entry| {
                entries += 1;
                free(entry)
            });
            // SAFETY: nobody else uses the table.
            let freed = unsafe { head.free_overflow(&guard) };
            bytes.fetch_sub(freed * bucket::BYTES, Ordering::Relaxed);
        }
        self.set_size(last);
        // SAFETY: nobody else uses the table; the memory came from the slab with this size.
        self.shared.0.directory.cut(last, bytes, |memory, size| unsafe {
            bucket::free(memory.as_ptr(), size)
        });
        entries
    }
}

impl<S> Drop for Hash<S> {
    fn drop(&mut self) {
        while let Some(last) = self.size().buckets().checked_sub(1) {
            self.free_last(last, &mut |_| ());
        }
    }
}

/// The keys of one multi-key operation.
struct Many<'a, S: Schema> {
    table: &'a Hash<S>,
    guard: &'a Guard,
    probes: &'a [&'a S::Probe],
    /// The words and hashes of the probes.
    keys: Vec<(u64, u64)>,
    /// The buckets by number, locked. Dropped, and so unlocked, before the aftermath.
    heads: Vec<Group<'a>>,
    after: Aftermath<'a>,
}

/// A bucket of a multi-key operation.
struct Group<'a> {
    number: usize,
    held: Held<'a>,
    /// How many of the probes are there.
    probes: usize,
}

impl<'a, S: Schema> Many<'a, S> {
    /// Locks the buckets of all keys, in the order of their numbers.
    fn lock(&mut self) -> Result<(), Busy> {
        let mut spins = SPINS;
        while spins > 0 {
            spins -= 1;
            let size = self.table.size();
            let mut numbers: Vec<usize> = self.keys.iter().map(|key| size.number_of(key.1)).collect();
            numbers.sort_unstable();
            for run in numbers.chunk_by(|a, b| a == b) {
                let Some(held) = self.lock_number(run[0], &mut spins) else {
                    break;
                };
                self.heads.push(Group {
                    number: run[0],
                    held,
                    probes: run.len(),
                });
            }
            // A number that is right while its bucket is locked stays so. If all are right now, all are locked and right.
            let size = self.table.size();
            if self.keys.iter().all(|key| self.group(size.number_of(key.1)).is_some()) {
                return Ok(());
            }
            self.heads.clear();
        }
        Err(Busy)
    }

    /// Locks a bucket, unless that takes too long or it is in use no more.
    fn lock_number(&self, number: usize, spins: &mut usize) -> Option<Held<'a>> {
        while *spins > 0 && number < self.table.size().buckets() {
            let head = self.table.bucket(self.guard, number)?;
            if let Some(version) = head.lock.try_lock() {
                return Some(Held {
                    head,
                    version,
                    changed: false,
                });
            }
            *spins -= 1;
            spin_loop();
        }
        None
    }

    /// The place in `heads` of a bucket's number.
    fn group(&self, number: usize) -> Option<usize> {
        self.heads.binary_search_by_key(&number, |group| group.number).ok()
    }

    /// Provides overflow buckets for the case that all probes are inserted.
    fn provide(&mut self) {
        for group in &self.heads {
            let missing = group.probes.saturating_sub(group.held.head.room(self.guard));
            for _ in 0..missing.div_ceil(SLOTS) {
                self.after.spare.allocate_or_panic();
            }
        }
    }

    /// The place in `heads` of a probe's bucket, and what is there.
    fn search(&self, i: usize) -> (usize, Search<'a>) {
        let (word, hash) = self.keys[i];
        // While all are locked, no other size gives another number.
        let group = self
            .group(self.table.size().number_of(hash))
            .expect("the bucket is locked");
        (
            group,
            self.table
                .search(self.guard, &self.heads[group].held, word, self.probes[i]),
        )
    }
}

impl<S: Schema> Locked for Many<'_, S> {
    fn get(&self, i: usize) -> Option<Entry> {
        self.search(i).1.found.map(|(_, entry)| entry)
    }

    fn step(&mut self, i: usize, step: Step) {
        let (group, search) = self.search(i);
        let held = &mut self.heads[group].held;
        self.table
            .step(self.guard, held, self.keys[i].1, &search, step, &mut self.after);
    }
}

#[cfg(test)]
mod tests;
