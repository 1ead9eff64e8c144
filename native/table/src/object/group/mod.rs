//! Groups: all objects of one key of a bag or duplicate_bag. A group is an unrolled list in the order of insertion. Each object has a
//! signature. A group of more than [`SMALL`] objects has an index by the hash of the object. So finding one among many objects of the same
//! key takes O(1) and never a scan.
//!
//! Source: Shao, Reppy, Appel, "Unrolling lists", LFP 1994. For signatures see `signature.rs`.
//!
//! Only the holder of the engine's lock on the key's place changes a group. Others read at the same time, under guards, and the engine
//! validates what they read. They follow only the chunks. What is unlinked is retired.
//!
//! Objects enter the index chunk by chunk, when an object is sought. Each search adds some of the missing objects to the index, and looks
//! at the signatures of the other missing ones. So a caller that only adds objects does not pay for an index, except for objects beyond
//! [`UNINDEXED`]. The last chunk is never in the index. So the index always has all objects of the chunks before some chunk.

mod chunk;
mod index;
mod room;
mod signature;
#[cfg(test)]
mod tests;

use crate::budget::Budget;
use crate::failure::Failure;
use crate::garbage::{Expected, Garbage, ReapProcess, PLACES};
use crate::object::schema::{identical, object_hash};
use crate::object::{
    body_bytes, free_body, is_group, prefetch, referent, refers, retire_body, retire_counted, words_to_read, ObjectRef,
    GROUP,
};
use cats_engine::Entry;
use cats_sync::epoch::Guard;
use cats_sync::facade::{AtomicPtr, AtomicUsize, Ordering};
use cats_sync::slab::Own;
use chunk::{bits, Chunk, Header, Position, FULL, PLANES};
use index::{Index, Indexed, HASH_BITS};
use signature::signature;
use smallvec::SmallVec;
use std::cell::UnsafeCell;
use std::ptr::null_mut;

pub use room::Room;
pub use signature::Filter;

/// Up to this number of objects, a search looks at all signatures and uses no index.
const SMALL: usize = 2 * FULL;

/// The largest number of objects that are not in the index. A search looks at the signatures of all of them.
const UNINDEXED: usize = 1 << 16;

/// See the module's documentation.
pub struct Group {
    head: AtomicPtr<Header>,
    count: AtomicUsize,
    writer: UnsafeCell<Writer>,
}

/// The part that only the holder of the place's lock uses.
struct Writer {
    last: Chunk,
    /// The size in bytes of the group and its objects, without the index.
    bytes: usize,
    index: Option<Box<Index>>,
    /// The first chunk whose objects are not in the index. Only valid if there is an index.
    end: Chunk,
}

/// An object that will be removed.
struct Found {
    position: Position,
    body: u64,
    /// Only valid if the object is in the index.
    hash: u32,
}

/// The key of a group's objects: the entry's key word, and the key's position in objects, counted from 0.
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
    /// The body of a new group with these two objects, in this order, with room for `more` if they are few. `None` when memory is exhausted.
    ///
    /// # Safety
    /// The objects live, and have this key.
    pub unsafe fn of_two(key: KeyPlace, first: u64, second: u64, more: usize) -> Option<u64> {
        // A full chunk keeps only the planes that the objects before it needed.
        let chunk = Chunk::new((2 + more).min(FULL / 2), PLANES)?;
        let mut bytes = 0;
        for body in [first, second] {
            // SAFETY: as the caller promises.
            unsafe {
                push(chunk, key, body);
                bytes += body_bytes(body);
            }
        }
        Self::of_chunk(chunk, 2, bytes).map(Self::into_body)
    }

    /// A group with this chunk, which has so many objects of so many bytes. When memory is exhausted, frees the chunk.
    #[inline]
    fn of_chunk(chunk: Chunk, count: usize, bytes: usize) -> Option<Own<Group>> {
        // A group owns its objects and chunks. One that is made and dropped would free them, and the objects are the caller's.
        let group = Own::new_with(|| Group {
            head: AtomicPtr::new(chunk.address()),
            count: AtomicUsize::new(count),
            writer: UnsafeCell::new(Writer {
                last: chunk,
                bytes: size_of::<Group>() + chunk.bytes() + bytes,
                index: None,
                end: chunk,
            }),
        });
        if group.is_none() {
            // SAFETY: nobody else knows the chunk.
            unsafe { chunk.free() };
        }
        group
    }

    /// The body of an entry that has the group.
    #[inline]
    fn into_body(group: Own<Group>) -> u64 {
        group.into_raw() as u64 | GROUP
    }

    /// # Safety
    /// The body is that of a group that lives for `'a`.
    #[inline]
    pub unsafe fn from_body<'a>(body: u64) -> &'a Group {
        // SAFETY: such a body is the address of a group plus a tag.
        unsafe { &*((body & !3) as *const Group) }
    }

    /// The number of objects.
    #[inline]
    pub fn count(&self) -> usize {
        // Relaxed: readers validate the place after reading, and writers hold its lock.
        self.count.load(Ordering::Relaxed)
    }

    #[inline]
    fn head(&self) -> Option<Chunk> {
        // Acquire pairs with the Release by which a chunk is linked. SAFETY: chunks are retired through the epoch. This thread holds a
        // guard or the place's lock.
        unsafe { Chunk::at(self.head.load(Ordering::Acquire)) }
    }

    fn set_head(&self, chunk: Option<Chunk>) {
        // Release pairs with the Acquire in `head`.
        self.head
            .store(chunk.map_or(null_mut(), Chunk::address), Ordering::Release);
    }

    fn chunks(&self) -> impl Iterator<Item = Chunk> {
        std::iter::successors(self.head(), |chunk| chunk.next())
    }

    /// Calls `show` with the objects' bodies in the order of insertion, until it returns false. For a reader without the lock, the result
    /// is valid only after the engine has validated the place.
    #[inline]
    pub fn each(&self, mut show: impl FnMut(u64) -> bool) {
        for chunk in self.chunks() {
            if !chunk.all(&mut show) {
                return;
            }
        }
    }

    /// Like [`each`](Self::each), but only for objects that pass the filter.
    #[inline]
    pub fn each_passing(&self, filter: &Filter, mut show: impl FnMut(u64)) {
        // A bound, because writers could make a concurrent reader go on and on. Its result is not valid then anyway.
        let most = self.count() + 16;
        for chunk in self.chunks().take(most) {
            chunk.prefetch_ahead(filter);
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

    /// The number of words of the blocks from which its objects are read.
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

    /// The size in bytes of the group and all its objects.
    ///
    /// # Safety
    /// The caller holds the lock of the place.
    pub unsafe fn bytes(&self) -> usize {
        // SAFETY: the caller is the only writer.
        let writer = unsafe { &*self.writer.get() };
        writer.bytes + writer.index.as_ref().map_or(0, |index| index.bytes())
    }

    /// # Safety
    /// While the caller uses the result, it holds the lock of the place, and has no other such reference.
    #[allow(clippy::mut_from_ref)]
    unsafe fn writer(&self) -> &mut Writer {
        // SAFETY: as the caller promises.
        unsafe { &mut *self.writer.get() }
    }

    /// Whether an equal object is in the group. O(1).
    ///
    /// # Safety
    /// The caller holds the lock of the place.
    pub unsafe fn contains(&self, key: KeyPlace, object: ObjectRef<'_>) -> bool {
        // SAFETY: the caller is the only writer. The objects live while it holds the lock.
        unsafe {
            self.extend_index(key);
            let is_it = |body: u64| identical(key.object(body), object);
            let mut indexed = false;
            if let Some(index) = &self.writer().index {
                index.each(hash(&object, key), |entry| {
                    indexed = is_it(entry.body());
                    !indexed
                });
            }
            let filter = Filter::only(object, key.place);
            indexed || self.unindexed().any(|chunk| chunk.bodies_passing(&filter).any(is_it))
        }
    }

    /// The chunks whose objects are not in the index.
    ///
    /// # Safety
    /// The caller holds the lock of the place.
    unsafe fn unindexed(&self) -> impl Iterator<Item = Chunk> {
        // SAFETY: as the caller promises.
        let writer = unsafe { self.writer() };
        let from = match writer.index {
            Some(_) => Some(writer.end),
            None => self.head(),
        };
        std::iter::successors(from, |chunk| chunk.next())
    }

    /// Adds an object at the end. Returns false, and does nothing, when memory is exhausted. O(1).
    ///
    /// # Safety
    /// The caller holds the lock of the place. The object has the group's key.
    pub unsafe fn insert(&self, guard: &Guard, key: KeyPlace, body: u64) -> bool {
        // SAFETY: as the caller promises.
        unsafe { self.insert_in(guard, key, body, Chunk::new) }
    }

    /// [`insert`](Self::insert) of an object for which there is [room](Room). Does not fail.
    ///
    /// # Safety
    /// As for [`insert`](Self::insert).
    pub unsafe fn insert_into_room(&self, guard: &Guard, key: KeyPlace, body: u64, room: &mut Room) {
        // SAFETY: as the caller promises.
        let inserted = unsafe { self.insert_in(guard, key, body, |_, _| room.take_chunk()) };
        assert!(inserted, "room for the object");
    }

    /// [`insert`](Self::insert) with memory from `make`, which is called as [`Chunk::new`].
    ///
    /// # Safety
    /// As for [`insert`](Self::insert).
    #[inline(always)]
    unsafe fn insert_in(
        &self,
        guard: &Guard,
        key: KeyPlace,
        body: u64,
        make: impl FnOnce(usize, usize) -> Option<Chunk>,
    ) -> bool {
        // SAFETY: as the caller promises.
        unsafe {
            let last = self.writer().last;
            let last = if last.make_room(1, |_, _, _| ()) {
                last
            } else {
                match self.extend(guard, last, make) {
                    Some(chunk) => chunk,
                    None => return false,
                }
            };
            push(last, key, body);
            let writer = self.writer();
            writer.bytes += body_bytes(body);
            // Relaxed: see `count`.
            let count = self.count() + 1;
            self.count.store(count, Ordering::Relaxed);
            if count > UNINDEXED && count - self.indexed() > UNINDEXED {
                self.index_more(key, 1);
            }
        }
        true
    }

    /// Makes room after the last chunk, which is full. A chunk that is not of the largest size is the only one, and a larger chunk replaces
    /// it. Otherwise another chunk is added.
    ///
    /// # Safety
    /// The caller holds the lock of the place.
    #[inline]
    unsafe fn extend(
        &self,
        guard: &Guard,
        last: Chunk,
        make: impl FnOnce(usize, usize) -> Option<Chunk>,
    ) -> Option<Chunk> {
        let more = make((last.capacity() + 1).min(FULL), last.needed())?;
        // SAFETY: as the caller promises.
        let writer = unsafe { self.writer() };
        writer.bytes += more.bytes();
        if last.capacity() < FULL {
            for slot in bits(last.live()) {
                more.push(last.get(slot), last.signature(slot));
            }
            self.set_head(Some(more));
            writer.bytes -= last.bytes();
            writer.end = more;
            retire_chunk(guard, last);
        } else {
            more.set_previous(Some(last));
            last.set_next(Some(more));
        }
        writer.last = more;
        Some(more)
    }

    /// The number of objects in the index.
    ///
    /// # Safety
    /// The caller holds the lock of the place.
    unsafe fn indexed(&self) -> usize {
        // SAFETY: as the caller promises.
        unsafe { self.writer() }.index.as_ref().map_or(0, |index| index.len())
    }

    /// To be called before a search. If the group is large enough for an index, adds more objects to the index.
    ///
    /// # Safety
    /// The caller holds the lock of the place.
    #[inline]
    unsafe fn extend_index(&self, key: KeyPlace) {
        // SAFETY: as the caller promises.
        unsafe {
            let writer = self.writer();
            let begun = writer.index.is_some();
            if begun && writer.end != writer.last || !begun && self.count() > SMALL {
                // This is about as much work as looking at the signatures of the missing objects.
                let missing = self.count() - self.indexed();
                self.index_more(key, (missing / 16).min(1024));
            }
        }
    }

    /// Adds the objects of the next chunks, except the last chunk, to the index: some more than `limit` objects. Objects for which there is
    /// no memory stay out of the index.
    ///
    /// # Safety
    /// The caller holds the lock of the place.
    #[cold]
    unsafe fn index_more(&self, key: KeyPlace, limit: usize) {
        // SAFETY: as the caller promises.
        let writer = unsafe { self.writer() };
        if writer.index.is_none() {
            let (Some(index), Some(head)) = (Index::new(), self.head()) else {
                return;
            };
            writer.index = Some(Box::new(index));
            writer.end = head;
        }
        let Some(index) = &mut writer.index else { return };
        let mut added = 0;
        while let Some(next) = writer.end.next().filter(|_| added <= limit) {
            let chunk = writer.end;
            for body in chunk.bodies() {
                prefetch(body);
            }
            // SAFETY: the object belongs to the group.
            let hash = |slot: usize| hash(&unsafe { key.object(chunk.get(slot)) }, key);
            for slot in bits(chunk.live()) {
                if !index.add(Indexed::new(hash(slot), chunk.position(slot), chunk.get(slot))) {
                    bits(chunk.live() & ((1 << slot) - 1))
                        .for_each(|slot| index.remove(hash(slot), chunk.position(slot)));
                    return;
                }
                added += 1;
            }
            chunk.set_indexed(true);
            writer.end = next;
        }
    }

    /// Drops the index until the next search. Where many objects are equal, updating the index may be more work than building it anew.
    ///
    /// # Safety
    /// The caller holds the lock of the place.
    unsafe fn drop_index(&self) {
        // SAFETY: as the caller promises.
        if unsafe { self.writer() }.index.take().is_some() {
            self.chunks().for_each(|chunk| chunk.set_indexed(false));
        }
    }

    /// Replaces the objects for which `new` returns another one. Returns their number, and by how many bytes the group has grown. O(n).
    ///
    /// # Safety
    /// The caller holds the lock of the place. The new objects have the group's key, and belong to the group from now on.
    pub unsafe fn replace_each(
        &self,
        guard: &Guard,
        key: KeyPlace,
        mut new: impl FnMut(&ObjectRef<'_>) -> Option<u64>,
    ) -> (usize, i64) {
        let mut replaced = 0;
        // SAFETY: the caller is the only writer. Objects in the group live. They are retired after they have left it.
        unsafe {
            let before = self.bytes();
            for chunk in self.chunks() {
                for slot in bits(chunk.live()) {
                    let old = chunk.get(slot);
                    let Some(body) = new(&key.object(old)) else {
                        continue;
                    };
                    if chunk.is_indexed() {
                        // Updating it would be as much work as everything else here.
                        self.drop_index();
                    }
                    chunk.set(slot, body, signature(key.object(body), key.place));
                    let writer = self.writer();
                    writer.bytes += body_bytes(body);
                    writer.bytes -= body_bytes(old);
                    retire_body(guard, old);
                    replaced += 1;
                }
            }
            (replaced, self.bytes() as i64 - before as i64)
        }
    }

    /// Removes all objects equal to this one, or only the first one found if objects are `distinct`. Returns their number. Does nothing,
    /// and returns `None`, if more than `limit` objects may be equal. O(1) for each.
    ///
    /// # Safety
    /// The caller holds the lock of the place.
    pub unsafe fn remove(
        &self,
        guard: &Guard,
        key: KeyPlace,
        object: ObjectRef<'_>,
        distinct: bool,
        limit: usize,
    ) -> Option<usize> {
        // SAFETY: the caller is the only writer. Objects in the group live.
        unsafe {
            let is_it = |other: &ObjectRef<'_>| identical(*other, object);
            if self.may_equal_more(key, object, limit) {
                return None;
            }
            self.extend_index(key);
            let mut removed = 0;
            while let Some(index) = &mut self.writer().index {
                let Some(entry) = index.take(hash(&object, key), |entry| {
                    entry.position.chunk().prefetch_header();
                    is_it(&key.object(entry.body()))
                }) else {
                    break;
                };
                self.take(guard, key, entry.position.chunk(), 1 << entry.position.slot());
                removed += 1;
                if distinct {
                    return Some(removed);
                }
            }
            let filter = Filter::only(object, key.place);
            if distinct {
                let found = self.unindexed().find_map(|chunk| {
                    let mut slots = bits(chunk.passing(&filter));
                    let slot = slots.find(|slot| is_it(&key.object(chunk.get(*slot))))?;
                    Some((chunk, 1 << slot))
                });
                found.inspect(|(chunk, slot)| self.take(guard, key, *chunk, *slot));
                return Some(usize::from(found.is_some()));
            }
            if let Some(from) = self.unindexed().next() {
                let all = self.sweep(guard, key, from, &filter, usize::MAX, |_| true, is_it);
                removed += all.unwrap_or(0);
            }
            Some(removed)
        }
    }

    /// Whether more than `limit` objects may be equal to this one.
    ///
    /// # Safety
    /// The caller holds the lock of the place. Objects in the group live.
    #[inline]
    pub unsafe fn may_equal_more(&self, key: KeyPlace, object: ObjectRef<'_>, limit: usize) -> bool {
        // SAFETY: as the caller promises.
        self.count() > limit && unsafe { self.may_equal(hash(&object, key), object, key, limit) } > limit
    }

    /// An upper bound of the number of objects that equal this one, whose hash is `hash`. If there may be more than `limit`, the result is
    /// any number above `limit`.
    ///
    /// # Safety
    /// The caller holds the lock of the place.
    unsafe fn may_equal(&self, hash: u32, object: ObjectRef<'_>, key: KeyPlace, limit: usize) -> usize {
        // SAFETY: as the caller promises.
        let index = unsafe { self.writer() }.index.as_ref();
        // Usually the lengths of the bucket and of the group are enough to know.
        let most =
            self.count() - index.map_or(0, |index| index.len()) + index.map_or(0, |index| index.most(hash, limit));
        if most <= limit {
            return most;
        }
        let mut indexed = 0;
        if let Some(index) = index {
            index.each(hash, |_| {
                indexed += 1;
                indexed <= limit
            });
        }
        let filter = Filter::only(object, key.place);
        // SAFETY: as the caller promises.
        let unindexed = unsafe { self.unindexed() };
        indexed
            + unindexed
                .map(|chunk| chunk.passing(&filter).count_ones() as usize)
                .sum::<usize>()
    }

    /// Removes the objects that pass the filter and for which `unwanted` is true. Returns their number. Does nothing, and returns `None`,
    /// in two cases: more than `limit` objects pass, or reading those that pass takes more words than `fits` accepts. O(n), but only the
    /// signatures of most objects are read.
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
        let Some(head) = self.head() else { return Some(0) };
        // SAFETY: as the caller promises.
        unsafe { self.sweep(guard, key, head, filter, limit, fits, unwanted) }
    }

    /// Removes the objects in these slots, given as a bit each. They are not in the index, or not any more.
    ///
    /// # Safety
    /// The caller holds the lock of the place.
    #[inline]
    unsafe fn take(&self, guard: &Guard, key: KeyPlace, chunk: Chunk, slots: u64) {
        chunk.remove(slots);
        // SAFETY: as the caller promises. The slots keep the bodies.
        unsafe {
            self.drop_objects(guard, bits(slots).map(|slot| (chunk, chunk.get(slot))));
            if chunk.count() <= FULL / 2 {
                self.merge_sparse_and_next(guard, key, chunk);
            }
        }
    }

    /// [`remove_each`](Self::remove_each), beginning with this chunk. If it is the last one, a single pass does.
    ///
    /// # Safety
    /// The caller holds the lock of the place.
    #[inline]
    #[allow(clippy::too_many_arguments)]
    unsafe fn sweep(
        &self,
        guard: &Guard,
        key: KeyPlace,
        from: Chunk,
        filter: &Filter,
        limit: usize,
        fits: impl Fn(usize) -> bool,
        mut unwanted: impl FnMut(&ObjectRef<'_>) -> bool,
    ) -> Option<usize> {
        if from.next().is_some() {
            // SAFETY: as the caller promises.
            return unsafe { self.sweep_many(guard, key, from, filter, limit, fits, unwanted) };
        }
        let passing = from.passing(filter);
        if passing.count_ones() as usize > limit {
            return None;
        }
        let (mut words, mut gone) = (0, 0);
        for slot in bits(passing) {
            let body = from.get(slot);
            // SAFETY: the object belongs to the group.
            let object = unsafe {
                words += words_to_read(body);
                if !fits(words) {
                    return None;
                }
                key.object(body)
            };
            gone |= u64::from(unwanted(&object)) << slot;
        }
        // SAFETY: as the caller promises.
        unsafe { self.take(guard, key, from, gone) };
        Some(gone.count_ones() as usize)
    }

    /// [`sweep`](Self::sweep) of several chunks. It runs in passes, each of which prefetches what the next pass needs: first the bodies,
    /// then the objects, then their entries in the index.
    ///
    /// # Safety
    /// The caller holds the lock of the place.
    #[inline(never)]
    #[allow(clippy::too_many_arguments)]
    unsafe fn sweep_many(
        &self,
        guard: &Guard,
        key: KeyPlace,
        from: Chunk,
        filter: &Filter,
        limit: usize,
        fits: impl Fn(usize) -> bool,
        mut unwanted: impl FnMut(&ObjectRef<'_>) -> bool,
    ) -> Option<usize> {
        let mut found = SmallVec::<[Found; 128]>::new();
        let mut find = |hits: &[(Chunk, u64)]| {
            for &(chunk, slots) in hits {
                for slot in bits(slots) {
                    chunk.prefetch(slot);
                    found.push(Found {
                        position: chunk.position(slot),
                        body: 0,
                        hash: 0,
                    });
                }
            }
        };
        // The processor cannot predict which chunks have such objects. So this loop has no branch on that: it collects four chunks at a
        // time.
        let (mut hits, mut len) = ([(from, 0); 4], 0);
        for chunk in std::iter::successors(Some(from), |chunk| chunk.next()) {
            chunk.prefetch_ahead(filter);
            let passing = chunk.passing(filter);
            hits[len] = (chunk, passing);
            len += usize::from(passing != 0);
            if len == hits.len() {
                find(&hits);
                len = 0;
            }
        }
        find(&hits[..len]);
        if found.len() > limit {
            return None;
        }
        for found in &mut found {
            found.body = found.position.body();
            prefetch(found.body);
        }
        // SAFETY: as the caller promises.
        let index = &mut unsafe { self.writer() }.index;
        let (mut words, mut too_large) = (0, false);
        found.retain(|found| {
            // SAFETY: the object belongs to the group.
            words += unsafe { words_to_read(found.body) };
            too_large |= !fits(words);
            // SAFETY: the object belongs to the group.
            let object = unsafe { key.object(found.body) };
            let gone = !too_large && unwanted(&object);
            if let (true, true, Some(index)) = (gone, found.position.chunk().is_indexed(), &index) {
                found.hash = hash(&object, key);
                index.prefetch(found.hash);
            }
            gone
        });
        if too_large {
            return None;
        }
        let (mut sparse, mut near) = (SmallVec::<[Chunk; 8]>::new(), true);
        for &Found { position, hash, .. } in &found {
            let chunk = position.chunk();
            chunk.remove(1 << position.slot());
            if let (true, true, Some(index)) = (near, chunk.is_indexed(), &mut *index) {
                near = index.remove_near(hash, position);
            }
            if chunk.count() <= FULL / 2 && sparse.last() != Some(&chunk) {
                sparse.push(chunk);
            }
        }
        // SAFETY: as the caller promises.
        unsafe {
            if !near {
                self.drop_index();
            }
            // Only after all are removed from their slots: a thread that pins after the first retirement must not find an object that is
            // retired.
            self.drop_objects(guard, found.iter().map(|found| (found.position.chunk(), found.body)));
            // From the last chunk to the first, because merging a chunk can unlink that chunk or the next one.
            for chunk in sparse.into_iter().rev() {
                self.merge_sparse_and_next(guard, key, chunk);
            }
        }
        Some(found.len())
    }

    /// Retires objects that were in these chunks and are not in any slot any more.
    ///
    /// # Safety
    /// The caller holds the lock of the place.
    #[inline]
    unsafe fn drop_objects(&self, guard: &Guard, objects: impl Iterator<Item = (Chunk, u64)>) {
        let (mut removed, mut bytes) = (0, 0);
        for (chunk, body) in objects {
            debug_assert!(!refers(body) || chunk.bodies().all(|other| referent(other) != referent(body)));
            removed += 1;
            // SAFETY: as the caller promises.
            bytes += unsafe { retire_counted(guard, body) };
        }
        // SAFETY: as the caller promises.
        unsafe { self.writer() }.bytes -= bytes;
        // Relaxed: see `count`.
        self.count.store(self.count() - removed, Ordering::Relaxed);
    }

    /// [Merges](Self::merge_sparse) a chunk that has lost objects, and the chunk after it.
    ///
    /// # Safety
    /// The caller holds the lock of the place.
    unsafe fn merge_sparse_and_next(&self, guard: &Guard, key: KeyPlace, chunk: Chunk) {
        // SAFETY: as the caller promises.
        unsafe {
            if let Some(next) = chunk.next() {
                self.merge_sparse(guard, key, next);
            } else if chunk.previous().is_none() {
                // The only chunk stays.
                return;
            }
            self.merge_sparse(guard, key, chunk);
        }
    }

    /// Unlinks a chunk if it is empty, or if all its objects and those of the chunk before it fill at most half a chunk. They move to that
    /// chunk.
    ///
    /// An empty chunk stays if it is the only one, or the only one that is not in the index. Others stay if the chunk before has more
    /// planes, or if only one of the two is in the index.
    ///
    /// # Safety
    /// The caller holds the lock of the place.
    unsafe fn merge_sparse(&self, guard: &Guard, key: KeyPlace, chunk: Chunk) {
        let count = chunk.count();
        if count > FULL / 2 {
            return;
        }
        let (previous, next) = (chunk.previous(), chunk.next());
        let stays = match previous {
            Some(previous) if previous.is_indexed() == chunk.is_indexed() => {
                // If the chunk before has more planes, the signatures here lack bytes for them.
                count > 0 && (previous.count() + count > FULL / 2 || previous.kept() > chunk.kept())
            }
            _ => count > 0 || next.is_none(),
        };
        if stays {
            return;
        }
        // SAFETY: as the caller promises.
        let writer = unsafe { self.writer() };
        let mut near = true;
        if let (Some(previous), true) = (previous, count > 0) {
            let mut moved = |body: u64, position: Position, to: Position| {
                if let (true, true, Some(index)) = (near, chunk.is_indexed(), &mut writer.index) {
                    // SAFETY: the object belongs to the group.
                    let hash = hash(&unsafe { key.object(body) }, key);
                    near = index.move_near(position, Indexed::new(hash, to, body));
                }
            };
            previous.make_room(count, &mut moved);
            for slot in bits(chunk.live()) {
                let body = chunk.get(slot);
                let to = previous.push(body, chunk.signature(slot));
                moved(body, chunk.position(slot), to);
            }
        }
        match previous {
            Some(previous) => previous.set_next(next),
            None => self.set_head(next),
        }
        match (previous, next) {
            (_, Some(next)) => {
                next.set_previous(previous);
                if writer.end == chunk {
                    writer.end = next;
                }
            }
            // The chunk before it is not in the index either.
            (Some(previous), None) => writer.last = previous,
            (None, None) => unreachable!("the only chunk stays"),
        }
        writer.bytes -= chunk.bytes();
        retire_chunk(guard, chunk);
        if !near {
            // SAFETY: as the caller promises.
            unsafe { self.drop_index() };
        }
    }

    /// Frees up to `limit` objects of a group that nobody else can see. Returns true when none is left.
    pub fn dismantle(&mut self, limit: usize) -> bool {
        let mut freed = 0;
        while let Some(chunk) = self.head() {
            for slot in bits(chunk.live()).take(limit - freed) {
                chunk.remove(1 << slot);
                // SAFETY: this is the only user.
                unsafe { free_body(chunk.get(slot)) };
                freed += 1;
            }
            if chunk.live() != 0 {
                return false;
            }
            self.set_head(chunk.next());
            // SAFETY: as above.
            unsafe { chunk.free() };
        }
        let index = &mut self.writer.get_mut().index;
        if let Some(left) = index {
            if freed >= limit || !left.dismantle(limit) {
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

// SAFETY: everything that is not atomic is used only under the lock of the place.
unsafe impl Send for Group {}
// SAFETY: as above.
unsafe impl Sync for Group {}

/// Adds an object to a chunk that has room after its last one.
///
/// # Safety
/// As for [`ObjectRef::new`].
#[inline]
unsafe fn push(chunk: Chunk, key: KeyPlace, body: u64) {
    // SAFETY: as the caller promises.
    chunk.push(body, signature(unsafe { key.object(body) }, key.place));
}

/// The hash of an object in the index.
#[inline]
fn hash(object: &ObjectRef<'_>, key: KeyPlace) -> u32 {
    (object_hash(object, key.place) >> (u64::BITS - HASH_BITS)) as u32
}

/// Frees an unlinked chunk as soon as no reader can see it.
fn retire_chunk(guard: &Guard, chunk: Chunk) {
    unsafe fn free(address: *mut u8, _: usize) {
        // SAFETY: the chunk was retired once, and nobody reads it any more.
        unsafe {
            if let Some(chunk) = Chunk::at(address.cast()) {
                chunk.free();
            }
        }
    }
    // SAFETY: unlinked, and retired once.
    unsafe { guard.retire_sized(chunk.address().cast(), 0, free, chunk.bytes()) }
}

/// The largest number of objects of one key that a scheduler reads at once.
pub const GROUP_LIMIT: Budget = Budget(1000);

/// Groups of up to this size are freed by the thread that reclaims them, and larger ones by the reaper. A thread frees hundreds of retired
/// objects in one go, so each must be small.
const FREE_AT_ONCE: usize = 64;

/// How many objects an entry's body stands for, and their size in bytes.
///
/// # Safety
/// The caller holds the lock of the place.
#[inline]
pub unsafe fn extent(body: u64) -> (usize, usize) {
    // SAFETY: as the caller promises.
    unsafe {
        if is_group(body) {
            let group = Group::from_body(body);
            (group.count(), group.bytes())
        } else {
            (1, body_bytes(body))
        }
    }
}

/// Frees the object or group to which an entry's body refers, as soon as no reader can see it.
///
/// # Safety
/// The entry is unlinked, and this is called once.
#[inline(never)]
pub unsafe fn retire_entry(guard: &Guard, body: u64) {
    // SAFETY: as the caller promises, nothing links to it any more.
    unsafe {
        if is_group(body) {
            let expected = expectation_of(Group::from_body(body));
            guard.retire(
                (body & !3) as *mut u8,
                expected.map(Expected::into_raw).is_some().into(),
                drop_group,
            );
        } else {
            retire_body(guard, body);
        }
    }
}

/// [`retire_entry`] for the former entry of a place that has another entry now, or none. `body` is 0 if the place had no entry.
///
/// # Safety
/// As for [`retire_entry`], unless the body is 0.
#[inline(always)]
pub unsafe fn retire_replaced(guard: &Guard, body: u64) {
    if body == 0 || !refers(body) {
        return;
    }
    // SAFETY: as the caller promises.
    unsafe {
        match is_group(body) {
            true => retire_entry(guard, body),
            false => retire_body(guard, body),
        }
    }
}

/// Frees the object or group of an entry of a dismantled engine. A large group is left to the reaper, which frees it in slices.
///
/// # Safety
/// Nobody else uses the entry.
pub unsafe fn free_entry(body: u64) {
    // SAFETY: as the caller promises.
    unsafe {
        if is_group(body) {
            let expected = expectation_of(Group::from_body(body));
            drop_group(
                (body & !3) as *mut u8,
                expected.map(Expected::into_raw).is_some().into(),
            );
        } else {
            free_body(body);
        }
    }
}

/// The reaper's expectation of a group, if the reaper must free it.
fn expectation_of(group: &Group) -> Option<Expected> {
    (group.count() > FREE_AT_ONCE).then(Expected::new)
}

impl Garbage for Own<Group> {
    fn step(&mut self, _reap: ReapProcess<'_>) -> Result<bool, Failure> {
        Ok(!self.dismantle(PLACES))
    }
}

/// Frees a group, or hands it to the reaper if its expectation has become raw, which is then not 0. Has the type
/// `cats_sync::epoch::Drop`.
unsafe fn drop_group(address: *mut u8, expected: usize) {
    // SAFETY: the address is that of a group that `of_two` made. The group is unlinked, and nobody reads it.
    let group = unsafe { Own::from_raw(address.cast::<Group>()) };
    if expected != 0 {
        // SAFETY: see above.
        unsafe { Expected::from_raw() }.enqueue(group);
    }
}
