//! All objects of one key in a bag or duplicate_bag: an unrolled list in the order of insertion, with a signature for each
//! object, and for more than [`SMALL`] objects an index by the hash of the object, so that looking for one of many equal-keyed
//! objects takes O(1), never a scan.
//!
//! Source: Shao, Reppy, Appel, "Unrolling lists", LFP 1994; for signatures see `signature.rs`.
//!
//! One thread at a time changes a group: the holder of the engine's lock on the key's place. Others read meanwhile, under
//! guards, and the engine validates what they read: they follow the chunks only, and what is unlinked is retired.
//!
//! An object comes into the index when one is sought: then some of those that are not in it yet are added, and the others
//! searched by their signatures. So who only adds objects pays for no index, but for each beyond [`UNINDEXED`].

mod chunk;
mod index;
mod signature;
#[cfg(test)]
mod tests;

use crate::object::{body_bytes, free_body, is_group, prefetch, refers, retire_body, words_to_read, ObjectRef, GROUP};
use crate::reaper::{self, Garbage};
use crate::schema::{identical, object_hash};
use cats_engine::Entry;
use cats_sync::epoch::Guard;
use cats_sync::facade::{AtomicPtr, AtomicUsize, Ordering};
use cats_sync::slab::Own;
use chunk::{bits, Chunk, Header, Node, Slot, FULL};
use index::Index;
use signature::signature;
use smallvec::SmallVec;
use std::cell::UnsafeCell;
use std::ptr::null_mut;

pub use signature::Filter;

/// Up to so many objects are searched one by one, by their signatures.
const SMALL: usize = 2 * FULL;

/// Objects that are not in the index, at most: those that a search goes over.
const UNINDEXED: usize = 1 << 16;

/// See the module's documentation.
pub struct Group {
    head: AtomicPtr<Header>,
    count: AtomicUsize,
    writer: UnsafeCell<Writer>,
}

/// What only the holder of the place's lock uses.
struct Writer {
    last: Chunk,
    /// Bytes of the group and its objects.
    bytes: usize,
    index: Option<Box<Indexed>>,
}

/// The index, and how far it goes.
struct Indexed {
    index: Index,
    /// No object before this chunk is missing in the index.
    end: Chunk,
}

/// Where the objects of a group have their key: the key word of the entry, and the place, counted from 0.
#[derive(Clone, Copy)]
pub struct KeyPlace {
    pub word: u64,
    pub place: usize,
}

impl KeyPlace {
    /// # Safety
    /// As for [`ObjectRef::new`].
    #[inline]
    pub unsafe fn object<'a>(self, body: u64) -> ObjectRef<'a> {
        let entry = Entry { key: self.word, body };
        // SAFETY: as the caller promises.
        unsafe { ObjectRef::new(entry, self.place) }
    }

    /// # Safety
    /// As for [`ObjectRef::stored`].
    #[inline]
    pub unsafe fn stored<'a>(self, body: u64) -> ObjectRef<'a> {
        let entry = Entry { key: self.word, body };
        // SAFETY: as the caller promises.
        unsafe { ObjectRef::stored(entry, self.place) }
    }
}

impl Group {
    /// The body of a group with these two objects, in this order; nothing when memory is exhausted.
    ///
    /// # Safety
    /// The objects live, and have this key.
    pub unsafe fn of_two(key: KeyPlace, first: u64, second: u64) -> Option<u64> {
        let chunk = Chunk::new(2)?;
        let mut bytes = size_of::<Group>() + chunk.bytes();
        for body in [first, second] {
            // SAFETY: as the caller promises.
            unsafe {
                chunk.push(slot_of(key, body));
                bytes += body_bytes(body);
            }
        }
        let group = Own::new(Group {
            head: AtomicPtr::new(chunk.address()),
            count: AtomicUsize::new(2),
            writer: UnsafeCell::new(Writer {
                last: chunk,
                bytes,
                index: None,
            }),
        });
        match group {
            Some(group) => Some(group.into_raw() as u64 | GROUP),
            None => {
                // SAFETY: nobody else knows the chunk.
                unsafe { chunk.free() };
                None
            }
        }
    }

    /// # Safety
    /// The body is that of a group, which lives for `'a`.
    #[inline]
    pub unsafe fn from_body<'a>(body: u64) -> &'a Group {
        // SAFETY: such a body is the address of a group plus a tag.
        unsafe { &*((body & !3) as *const Group) }
    }

    /// The number of objects.
    #[inline]
    pub fn count(&self) -> usize {
        // Relaxed: readers validate the place after reading, writers hold its lock.
        self.count.load(Ordering::Relaxed)
    }

    #[inline]
    fn head(&self) -> Option<Chunk> {
        // Acquire: pairs with the Release by which a chunk is linked.
        // SAFETY: chunks are retired through the epoch; this thread holds a guard or the place's lock.
        unsafe { Chunk::at(self.head.load(Ordering::Acquire)) }
    }

    fn set_head(&self, chunk: Option<Chunk>) {
        // Release: see `head`.
        self.head
            .store(chunk.map_or(null_mut(), Chunk::address), Ordering::Release);
    }

    fn chunks(&self) -> impl Iterator<Item = Chunk> {
        std::iter::successors(self.head(), |chunk| chunk.next())
    }

    /// Shows the objects' bodies in the order of insertion, until `show` returns false. What a reader without the lock sees
    /// counts only once the engine has validated the place.
    #[inline]
    pub fn each(&self, mut show: impl FnMut(u64) -> bool) {
        for chunk in self.chunks() {
            for body in chunk.words().0 {
                // Acquire: pairs with `Chunk::set`, so that the object is seen.
                if !show(body.load(Ordering::Acquire)) {
                    return;
                }
            }
        }
    }

    /// As [`each`](Self::each), but only objects that the filter lets pass.
    #[inline]
    pub fn each_passing(&self, filter: &Filter, mut show: impl FnMut(u64)) {
        // A reader that met writers may be led on for long; what it has is not valid anyway.
        let most = self.count() + 16;
        for chunk in self.chunks().take(most) {
            for body in chunk.bodies_passing(filter) {
                prefetch(body);
                show(body);
            }
        }
    }

    /// The first object's body, if there is one.
    #[inline]
    pub fn first(&self) -> Option<u64> {
        let mut first = None;
        self.each(|body| {
            first = Some(body);
            false
        });
        first
    }

    /// The words of the blocks that its objects are read from.
    ///
    /// # Safety
    /// The caller holds the lock of the place.
    pub unsafe fn words_to_read(&self) -> usize {
        let mut words = 0;
        self.each(|body| {
            // SAFETY: as the caller promises.
            words += unsafe { words_to_read(body) };
            true
        });
        words
    }

    /// Bytes of the group and all its objects.
    ///
    /// # Safety
    /// The caller holds the lock of the place.
    pub unsafe fn bytes(&self) -> usize {
        // SAFETY: the caller is the only writer.
        unsafe { (*self.writer.get()).bytes }
    }

    /// # Safety
    /// The caller holds the lock of the place while it uses the result, and has no other one.
    #[allow(clippy::mut_from_ref)]
    unsafe fn writer(&self) -> &mut Writer {
        // SAFETY: as the caller promises.
        unsafe { &mut *self.writer.get() }
    }

    /// Whether an equal object is in the group. O(1).
    ///
    /// # Safety
    /// The caller holds the lock of the place.
    pub unsafe fn contains(&self, guard: &Guard, key: KeyPlace, object: ObjectRef<'_>) -> bool {
        // SAFETY: the caller is the only writer; the objects live while it holds the lock.
        unsafe {
            self.extend_index(guard, key);
            if self.writer().index.is_some() {
                let hash = object_hash(object, key.place);
                if self.indexed(guard, key, hash, object).is_some() {
                    return true;
                }
            }
            let filter = Filter::only(signature(object, key.place));
            let is_it = |body: u64| identical(key.object(body), object);
            self.unindexed().any(|chunk| chunk.bodies_passing(&filter).any(is_it))
        }
    }

    /// The place of the first equal object in the index, which has this hash: its chunk and slot.
    ///
    /// # Safety
    /// The caller holds the lock of the place.
    unsafe fn indexed(&self, guard: &Guard, key: KeyPlace, hash: u64, object: ObjectRef<'_>) -> Option<(Chunk, usize)> {
        // SAFETY: as the caller promises.
        unsafe {
            let indexed = self.writer().index.as_ref()?;
            let mut nodes = indexed.index.nodes(guard, hash);
            nodes.find_map(|node| {
                let chunk = (*node).chunk.get();
                let slot = chunk.slot_of(node);
                identical(key.object(chunk.get(slot).body), object).then_some((chunk, slot))
            })
        }
    }

    /// The chunks in which objects may be that are not in the index.
    ///
    /// # Safety
    /// The caller holds the lock of the place.
    unsafe fn unindexed(&self) -> impl Iterator<Item = Chunk> {
        // SAFETY: as the caller promises.
        let from = match unsafe { &self.writer().index } {
            Some(indexed) if indexed.index.len() == self.count() => None,
            Some(indexed) => Some(indexed.end),
            None => self.head(),
        };
        std::iter::successors(from, |chunk| chunk.next())
    }

    /// Adds an object at the end; false, and nothing done, when memory is exhausted. O(1).
    ///
    /// # Safety
    /// The caller holds the lock of the place; the object has the group's key.
    pub unsafe fn insert(&self, guard: &Guard, key: KeyPlace, body: u64) -> bool {
        // SAFETY: as the caller promises.
        unsafe {
            let last = self.writer().last;
            let last = if last.is_full() {
                match self.extend(guard, last) {
                    Some(chunk) => chunk,
                    None => return false,
                }
            } else {
                last
            };
            last.push(slot_of(key, body));
            let writer = self.writer();
            writer.bytes += body_bytes(body);
            // Relaxed: see `count`.
            let count = self.count() + 1;
            self.count.store(count, Ordering::Relaxed);
            let indexed = writer.index.as_ref().map_or(0, |indexed| indexed.index.len());
            if count - indexed > UNINDEXED {
                self.index_more(guard, key, 2);
            }
        }
        true
    }

    /// Makes room behind the last chunk, which is full: a larger chunk in its place while it is the only one, else one more.
    ///
    /// # Safety
    /// The caller holds the lock of the place.
    unsafe fn extend(&self, guard: &Guard, last: Chunk) -> Option<Chunk> {
        let more = Chunk::new(if last.used() < FULL { last.used() + 1 } else { FULL })?;
        // SAFETY: as the caller promises.
        let writer = unsafe { self.writer() };
        writer.bytes += more.bytes();
        if last.used() < FULL {
            (0..last.used()).for_each(|slot| more.push(last.get(slot)));
            self.set_head(Some(more));
            writer.bytes -= last.bytes();
            retire_chunk(guard, last);
        } else {
            more.set_previous(Some(last));
            last.set_next(Some(more));
        }
        writer.last = more;
        Some(more)
    }

    /// Before a search: has the index, if the group is large enough for one, go further.
    ///
    /// # Safety
    /// The caller holds the lock of the place.
    unsafe fn extend_index(&self, guard: &Guard, key: KeyPlace) {
        // SAFETY: as the caller promises.
        unsafe {
            let indexed = self.writer().index.as_ref().map_or(0, |indexed| indexed.index.len());
            let missing = self.count() - indexed;
            if missing > 0 && (indexed > 0 || self.count() > SMALL) {
                // About as much work as it is to search them.
                self.index_more(guard, key, (missing / 16).clamp(16, 1024));
            }
        }
    }

    /// Adds the next so many objects to the index. What it has no memory for is searched without it.
    ///
    /// # Safety
    /// The caller holds the lock of the place.
    unsafe fn index_more(&self, guard: &Guard, key: KeyPlace, mut limit: usize) {
        let Some(head) = self.head() else { return };
        // SAFETY: as the caller promises.
        let writer = unsafe { self.writer() };
        if writer.index.is_none() {
            let Some(index) = Index::new() else { return };
            writer.index = Some(Box::new(Indexed { index, end: head }));
        }
        let Some(indexed) = &mut writer.index else { return };
        loop {
            let chunk = indexed.end;
            let first = chunk.nodes().iter().position(|node| node.is_null());
            for slot in first.unwrap_or(chunk.used())..chunk.used() {
                if limit == 0 {
                    return;
                }
                limit -= 1;
                let mut at = chunk.get(slot);
                // SAFETY: the object is the group's.
                let hash = object_hash(unsafe { key.object(at.body) }, key.place);
                let Some(node) = indexed.index.add(guard, hash, chunk) else {
                    return;
                };
                writer.bytes += Index::BYTES;
                at.node = node;
                chunk.set(slot, at);
            }
            match chunk.next() {
                Some(next) => indexed.end = next,
                None => return,
            }
        }
    }

    /// Takes an object, by its hash, out of the index.
    ///
    /// # Safety
    /// The caller holds the lock of the place; the slot of the node is given up, or its object replaced.
    unsafe fn unindex(&self, guard: &Guard, hash: u64, node: *mut Node) {
        // SAFETY: as the caller promises.
        unsafe {
            let writer = self.writer();
            let indexed = writer.index.as_mut().expect("nodes belong to an index");
            indexed.index.remove(guard, hash, node);
            writer.bytes -= Index::BYTES;
        }
    }

    /// Puts other objects in the places of those for which `new` gives one; how many, and by how many bytes the group has grown.
    /// O(n).
    ///
    /// # Safety
    /// The caller holds the lock of the place; the new objects have the group's key, and are the group's from now on.
    pub unsafe fn replace_each(
        &self,
        guard: &Guard,
        key: KeyPlace,
        mut new: impl FnMut(&ObjectRef<'_>) -> Option<u64>,
    ) -> (usize, i64) {
        let mut replaced = 0;
        // SAFETY: the caller is the only writer; objects in the group live, and are retired once they are out of it.
        unsafe {
            let before = self.bytes();
            for chunk in self.chunks() {
                for slot in 0..chunk.used() {
                    let old = chunk.get(slot);
                    let Some(body) = new(&key.object(old.body)) else {
                        continue;
                    };
                    let mut now = slot_of(key, body);
                    if !old.node.is_null() {
                        self.unindex(guard, object_hash(key.object(old.body), key.place), old.node);
                        let writer = self.writer();
                        let indexed = writer.index.as_mut().expect("nodes belong to an index");
                        let hash = object_hash(key.object(body), key.place);
                        // The node that was just freed leaves room for it.
                        now.node = indexed.index.add(guard, hash, chunk).expect("memory for a node");
                        writer.bytes += Index::BYTES;
                    }
                    chunk.set(slot, now);
                    let writer = self.writer();
                    writer.bytes += body_bytes(body);
                    writer.bytes -= body_bytes(old.body);
                    retire_body(guard, old.body);
                    replaced += 1;
                }
            }
            (replaced, self.bytes() as i64 - before as i64)
        }
    }

    /// Removes all objects equal to this one; how many. O(1) for each.
    ///
    /// # Safety
    /// The caller holds the lock of the place.
    pub unsafe fn remove(&self, guard: &Guard, key: KeyPlace, object: ObjectRef<'_>) -> usize {
        let mut removed = 0;
        // SAFETY: the caller is the only writer; objects in the group live.
        unsafe {
            self.extend_index(guard, key);
            if self.writer().index.is_some() {
                let hash = object_hash(object, key.place);
                while let Some((chunk, slot)) = self.indexed(guard, key, hash, object) {
                    self.take(guard, hash, chunk, slot);
                    removed += 1;
                }
            }
            let filter = Filter::only(signature(object, key.place));
            let from = self.unindexed().next();
            let is_it = |other: &ObjectRef<'_>| identical(*other, object);
            let all = self.sweep(guard, key, from, &filter, usize::MAX, |_| true, is_it);
            removed + all.unwrap_or(0)
        }
    }

    /// Removes the objects whose signatures the filter lets pass, and of which `unwanted` is true; how many. Nothing, and nothing is
    /// done, where more than `limit` pass, or what is to be looked at has more words than what `fits`. O(n), but of most objects only
    /// signatures are looked at.
    ///
    /// # Safety
    /// The caller holds the lock of the place.
    pub unsafe fn remove_each(
        &self,
        guard: &Guard,
        key: KeyPlace,
        filter: &Filter,
        limit: usize,
        fits: impl Fn(usize) -> bool,
        unwanted: impl FnMut(&ObjectRef<'_>) -> bool,
    ) -> Option<usize> {
        // SAFETY: as the caller promises.
        unsafe { self.sweep(guard, key, self.head(), filter, limit, fits, unwanted) }
    }

    /// Removes an indexed object.
    ///
    /// # Safety
    /// The caller holds the lock of the place; the object in this slot is in the index, under this hash.
    unsafe fn take(&self, guard: &Guard, hash: u64, chunk: Chunk, slot: usize) {
        // SAFETY: as the caller promises.
        unsafe {
            let Slot { body, node, .. } = chunk.get(slot);
            self.unindex(guard, hash, node);
            chunk.remove(1 << slot);
            self.drop_object(guard, chunk, body);
            if chunk.used() > FULL / 2 {
                return;
            }
            let next = chunk.next();
            self.settle(guard, chunk);
            if let Some(next) = next {
                self.settle(guard, next);
            }
        }
    }

    /// [`remove_each`](Self::remove_each) from this chunk on. What is needed next is asked for while it goes on with what was asked
    /// for before: first the objects, then their places in the index.
    ///
    /// # Safety
    /// The caller holds the lock of the place.
    #[allow(clippy::too_many_arguments)]
    unsafe fn sweep(
        &self,
        guard: &Guard,
        key: KeyPlace,
        from: Option<Chunk>,
        filter: &Filter,
        limit: usize,
        fits: impl Fn(usize) -> bool,
        mut unwanted: impl FnMut(&ObjectRef<'_>) -> bool,
    ) -> Option<usize> {
        let mut found = SmallVec::<[(Chunk, u64); 8]>::new();
        let mut count = 0;
        for chunk in std::iter::successors(from, |chunk| chunk.next()) {
            let slots = chunk.passing(filter);
            if slots != 0 {
                found.push((chunk, slots));
                count += slots.count_ones() as usize;
                bits(slots).for_each(|slot| prefetch(chunk.get(slot).body));
            }
        }
        if count > limit {
            return None;
        }
        let mut hashes = SmallVec::<[u64; 16]>::new();
        // SAFETY: as the caller promises.
        let writer = unsafe { self.writer() };
        let mut words = 0;
        for (chunk, slots) in &mut found {
            for slot in bits(*slots) {
                let at = chunk.get(slot);
                // SAFETY: the object is the group's.
                words += unsafe { words_to_read(at.body) };
                if !fits(words) {
                    return None;
                }
                // SAFETY: the object is the group's.
                let object = unsafe { key.object(at.body) };
                if !unwanted(&object) {
                    *slots &= !(1 << slot);
                } else if let (false, Some(indexed)) = (at.node.is_null(), &writer.index) {
                    let hash = object_hash(object, key.place);
                    indexed.index.prefetch(guard, hash, at.node);
                    hashes.push(hash);
                }
            }
        }
        let mut hashes = hashes.into_iter();
        let mut removed = 0;
        for (chunk, slots) in found.into_iter().filter(|(_, slots)| *slots != 0) {
            let gone: SmallVec<[Slot; 64]> = bits(slots).map(|slot| chunk.get(slot)).collect();
            // First: who pins from now on must not find what is retired.
            chunk.remove(slots);
            for at in gone {
                // SAFETY: as the caller promises; the hashes are those of the indexed objects in this order.
                unsafe {
                    if !at.node.is_null() {
                        let hash = hashes.next().expect("a hash for each node");
                        self.unindex(guard, hash, at.node);
                    }
                    self.drop_object(guard, chunk, at.body);
                }
            }
            removed += slots.count_ones() as usize;
            // What goes with a chunk is at most that chunk: the others are still there.
            // SAFETY: as the caller promises.
            unsafe { self.settle(guard, chunk) };
        }
        Some(removed)
    }

    /// Retires an object that was in this chunk, and is in no slot any more.
    ///
    /// # Safety
    /// The caller holds the lock of the place.
    unsafe fn drop_object(&self, guard: &Guard, chunk: Chunk, body: u64) {
        debug_assert!(!refers(body) || (0..chunk.used()).all(|slot| chunk.get(slot).body != body));
        // SAFETY: as the caller promises.
        unsafe {
            self.writer().bytes -= body_bytes(body);
            retire_body(guard, body);
        }
        // Relaxed: see `count`.
        self.count.store(self.count() - 1, Ordering::Relaxed);
    }

    /// Does away with a chunk that is empty, or with its neighbour before it at most half full, unless it is the only one.
    ///
    /// # Safety
    /// The caller holds the lock of the place.
    unsafe fn settle(&self, guard: &Guard, chunk: Chunk) {
        if chunk.used() > FULL / 2 {
            return;
        }
        let (previous, next) = (chunk.previous(), chunk.next());
        let Some(neighbour) = previous.or(next) else { return };
        match previous {
            _ if chunk.used() == 0 => {}
            Some(previous) if previous.used() + chunk.used() <= FULL / 2 => {
                (0..chunk.used()).for_each(|slot| previous.push(chunk.get(slot)));
            }
            _ => return,
        }
        match previous {
            Some(previous) => previous.set_next(next),
            None => self.set_head(next),
        }
        // SAFETY: as the caller promises.
        let writer = unsafe { self.writer() };
        match next {
            Some(next) => next.set_previous(previous),
            None => writer.last = neighbour,
        }
        if let Some(indexed) = &mut writer.index {
            if indexed.end == chunk {
                indexed.end = neighbour;
            }
        }
        writer.bytes -= chunk.bytes();
        retire_chunk(guard, chunk);
    }

    /// Frees up to `limit` objects of a group that nobody else can see; true when none is left.
    pub fn dismantle(&mut self, limit: usize) -> bool {
        let mut freed = 0;
        while let Some(chunk) = self.head() {
            while chunk.used() > 0 && freed < limit {
                let slot = chunk.get(chunk.used() - 1);
                chunk.set_used(chunk.used() - 1);
                // SAFETY: this is the only user.
                unsafe { free_body(slot.body) };
                if let (false, Some(indexed)) = (slot.node.is_null(), &mut self.writer.get_mut().index) {
                    // SAFETY: as above.
                    unsafe { indexed.index.free(slot.node) };
                }
                freed += 1;
            }
            if chunk.used() > 0 {
                return false;
            }
            self.set_head(chunk.next());
            // SAFETY: as above.
            unsafe { chunk.free() };
        }
        let index = &mut self.writer.get_mut().index;
        if let Some(indexed) = index {
            if freed >= limit || !indexed.index.dismantle(limit) {
                return false;
            }
            *index = None;
        }
        true
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        while !self.dismantle(usize::MAX) {}
    }
}

// SAFETY: what is not atomic is used only under the lock of the place.
unsafe impl Send for Group {}
// SAFETY: as above.
unsafe impl Sync for Group {}

/// What a slot holds for an object that is not in the index.
///
/// # Safety
/// As for [`ObjectRef::new`].
#[inline]
unsafe fn slot_of(key: KeyPlace, body: u64) -> Slot {
    Slot {
        body,
        // SAFETY: as the caller promises.
        signature: signature(unsafe { key.object(body) }, key.place),
        node: null_mut(),
    }
}

/// Frees a chunk that is unlinked once nobody can be reading it.
fn retire_chunk(guard: &Guard, chunk: Chunk) {
    unsafe fn free(address: *mut u8, _: usize) {
        // SAFETY: retired once, and nobody reads it any more.
        unsafe {
            if let Some(chunk) = Chunk::at(address.cast()) {
                chunk.free();
            }
        }
    }
    // SAFETY: unlinked, and retired once.
    unsafe { guard.retire_sized(chunk.address().cast(), 0, free, chunk.bytes()) }
}

/// Groups up to this size are freed where they are met, larger ones by the reaper: a thread that frees what it has retired
/// frees some hundred of them at once.
const FREE_AT_ONCE: usize = 64;

/// Frees what an entry's body refers to, an object or a group, once nobody can be reading it.
///
/// # Safety
/// The entry is unlinked, and this happens once.
pub unsafe fn retire_entry(guard: &Guard, body: u64) {
    // SAFETY: what the entry refers to is unlinked, as the caller promises.
    unsafe {
        if is_group(body) {
            let large = leave_to_reaper(Group::from_body(body));
            guard.retire((body & !3) as *mut u8, large as usize, drop_group);
        } else {
            retire_body(guard, body);
        }
    }
}

/// The same of a place that has another entry now, or none; 0 if it had none before.
///
/// # Safety
/// As for [`retire_entry`], unless the body is 0.
#[inline(always)]
pub unsafe fn retire_replaced(guard: &Guard, body: u64) {
    if body != 0 && refers(body) {
        // SAFETY: as the caller promises.
        unsafe { retire_entry(guard, body) }
    }
}

/// Frees what an entry of a dismantled engine refers to; a large group is left to be freed in slices.
///
/// # Safety
/// Nobody else uses the entry.
pub unsafe fn free_entry(body: u64) {
    // SAFETY: as the caller promises.
    unsafe {
        if is_group(body) {
            let large = leave_to_reaper(Group::from_body(body));
            drop_group((body & !3) as *mut u8, large as usize);
        } else {
            free_body(body);
        }
    }
}

/// Whether the group is one for the reaper, which is told so.
fn leave_to_reaper(group: &Group) -> bool {
    let large = group.count() > FREE_AT_ONCE;
    if large {
        reaper::expect();
    }
    large
}

/// Frees a group, or leaves it to the reaper if the number is not 0; fits `cats_sync::epoch::Drop`.
unsafe fn drop_group(address: *mut u8, large: usize) {
    // SAFETY: the address is that of a group that was made by `of_two`, and this one is unlinked and unread.
    let group = unsafe { Own::from_raw(address.cast::<Group>()) };
    if large != 0 {
        reaper::enqueue(Garbage::Group(group));
    }
}
