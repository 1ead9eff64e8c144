//! Objects to read.

use super::body::{block, changing, SINGLE};
use crate::failure::Failure;
use crate::object::packed;
use cats_engine::seat::is_seat;
use cats_engine::Entry;
use cats_sync::epoch;
use cats_sync::slab;
use cats_term::{is_immediate, Block, BlockRef, ChangingRef, Scratch, TermRef, SCRATCH_WORDS};
use std::mem::MaybeUninit;

/// An object to read.
#[derive(Clone, Copy)]
pub enum ObjectRef<'a> {
    /// `{Key}`, where the key is an immediate.
    Single([u64; 1]),
    /// A pair of immediates.
    Pair([u64; 2]),
    Block(BlockRef<'a>),
}

impl<'a> ObjectRef<'a> {
    /// The object of an entry. `key` is the key's position, counted from 0. It may be called within an optimistic read of an engine. If that
    /// is not valid in the end, only the object's number of words and its arity may be read.
    ///
    /// # Safety
    /// The body is not that of a group. Its block, if any, lives for `'a`, and this thread has a guard during `'a`.
    #[inline]
    pub unsafe fn new(entry: Entry, key: usize) -> ObjectRef<'a> {
        // SAFETY: as the caller promises.
        unsafe { Self::stable(entry, key).unpacked() }
    }

    /// Like [`new`](Self::new), without unpacking elements.
    ///
    /// # Safety
    /// As for [`new`](Self::new).
    #[inline]
    pub unsafe fn stable(entry: Entry, key: usize) -> ObjectRef<'a> {
        // SAFETY: as the caller promises.
        unsafe {
            match changing(entry.body) {
                Some(changing) => Copies::new(changing.words()).copy(changing),
                None => Self::stored(entry, key),
            }
        }
    }

    /// Like [`stable`](Self::stable), after an engine has validated the entry. A copy of an object that is changed in place is written to
    /// `scratch`. Fails with [`Failure::Busy`] if a writer of the object takes too long.
    ///
    /// # Safety
    /// As for [`new`](Self::new).
    #[inline(always)]
    pub unsafe fn read_within(entry: Entry, key: usize, scratch: &'a mut Scratch) -> Result<ObjectRef<'a>, Failure> {
        // SAFETY: as the caller promises.
        unsafe {
            match changing(entry.body) {
                Some(changing) => {
                    let room = match changing.words() <= SCRATCH_WORDS {
                        true => &mut scratch.0[..],
                        false => memory_for_now(changing.words()),
                    };
                    match changing.copy_within(room) {
                        (block, true) => Ok(ObjectRef::Block(block)),
                        (_, false) => Err(Failure::Busy),
                    }
                }
                None => Ok(Self::stored(entry, key)),
            }
        }
    }

    /// Like [`read_within`](Self::read_within), for a caller that reads only the element at `index`, and only once. So an object that is
    /// changed in place is rarely copied.
    ///
    /// # Safety
    /// As for [`new`](Self::new).
    #[inline(always)]
    pub unsafe fn read_for_element(
        entry: Entry,
        key: usize,
        index: usize,
        scratch: &'a mut Scratch,
    ) -> Result<ObjectRef<'a>, Failure> {
        // SAFETY: as the caller promises.
        unsafe {
            match changing(entry.body) {
                Some(changing) if changing.replaces(index) => Self::read_within(entry, key, scratch),
                Some(changing) if changing.settled() => Ok(ObjectRef::Block(changing.in_place())),
                Some(_) => Err(Failure::Busy),
                None => Ok(Self::stored(entry, key)),
            }
        }
    }

    /// The number of words that [`unpacked`](Self::unpacked) writes. 0 if no element is packed.
    #[inline]
    pub fn packed_words(&self) -> usize {
        match self {
            ObjectRef::Block(block) if block.has_packed() => block.unpacked_words(),
            _ => 0,
        }
    }

    /// The object as it is read, given the form in which it is [stored](Self::stored).
    ///
    /// # Safety
    /// The object lives, and this thread has a guard during `'a`.
    #[inline]
    pub unsafe fn unpacked(self) -> ObjectRef<'a> {
        match self {
            // SAFETY: as the caller promises.
            ObjectRef::Block(block) if block.has_packed() => ObjectRef::Block(unsafe { packed::unpack(block) }),
            object => object,
        }
    }

    /// Like [`new`](Self::new), but returns the form in which the object is stored, perhaps with packed elements. Does not read the block.
    ///
    /// # Safety
    /// As for [`new`](Self::new). If the object is changed in place, its elements are read only while its place is locked.
    #[inline]
    pub unsafe fn stored(entry: Entry, key: usize) -> ObjectRef<'a> {
        debug_assert!(!is_seat(entry.body), "another entry may be there soon");
        // SAFETY: as the caller promises.
        match unsafe { block(entry.body) } {
            Some(block) => ObjectRef::Block(block),
            None if entry.body == SINGLE => ObjectRef::Single([entry.key]),
            None if key == 0 => ObjectRef::Pair([entry.key, entry.body]),
            None => ObjectRef::Pair([entry.body, entry.key]),
        }
    }

    /// Prefetches the beginning of the object's block, and the memory of element `index`, counted from 0.
    #[inline]
    pub fn prefetch(&self, index: usize) {
        if let ObjectRef::Block(block) = self {
            block.prefetch();
            block.prefetch_element(index);
        }
    }

    #[inline]
    pub fn arity(&self) -> usize {
        match self {
            ObjectRef::Single(_) => 1,
            ObjectRef::Pair(_) => 2,
            ObjectRef::Block(block) => block.arity(),
        }
    }

    /// Element `index`, counted from 0. Panics if there is none.
    #[inline]
    pub fn element(&self, index: usize) -> TermRef<'a> {
        match self {
            ObjectRef::Single(words) => TermRef::immediate(words[index]),
            ObjectRef::Pair(words) => TermRef::immediate(words[index]),
            ObjectRef::Block(block) => block.element(index),
        }
    }

    /// The element words, if all elements are immediates.
    #[inline]
    pub fn flat(&self) -> Option<&[u64]> {
        match self {
            ObjectRef::Single(words) => Some(words),
            ObjectRef::Pair(words) => Some(words),
            ObjectRef::Block(block) => block.is_flat().then(|| block.elements_raw()),
        }
    }

    /// The approximate number of words that a copy of the object takes in a process. O(items) if some elements are packed.
    #[inline]
    pub fn words(&self) -> usize {
        match self {
            ObjectRef::Block(block) => block.unpacked_words(),
            other => other.arity() + 1,
        }
    }

    /// The number of words of the object's block, as it is stored.
    #[inline]
    pub fn stored_words(&self) -> usize {
        match self {
            ObjectRef::Block(block) => block.words(),
            _ => 0,
        }
    }

    /// The same tuple with other elements at some places. Places are counted from 0. The last change of a place counts. `None` when memory
    /// is exhausted.
    pub fn with_elements(&self, changes: &[(usize, TermRef<'_>)]) -> Option<Block> {
        match self {
            ObjectRef::Block(block) => block.with_elements(changes.iter().copied()),
            ObjectRef::Single(words) => inline_with_elements(words, changes),
            ObjectRef::Pair(words) => inline_with_elements(words, changes),
        }
    }
}

fn inline_with_elements(words: &[u64], changes: &[(usize, TermRef<'_>)]) -> Option<Block> {
    Block::flat(words, &epoch::pin())?
        .as_ref()
        .with_elements(changes.iter().copied())
}

/// Memory for copies of objects that are changed in place. It lives as long as the thread's present guards.
pub struct Copies {
    words: usize,
    /// The unused rest of the memory.
    free: &'static mut [MaybeUninit<u64>],
}

impl Copies {
    /// Allocates memory for `words` words at a time, when it is needed.
    pub fn new(words: usize) -> Self {
        let free = &mut [];
        Self { words, free }
    }

    /// The object of an entry, as it is at one instant.
    ///
    /// # Safety
    /// As for [`ObjectRef::new`], and the object is [changed in place](is_changing).
    #[inline]
    pub unsafe fn object<'a>(&mut self, entry: Entry) -> ObjectRef<'a> {
        // SAFETY: as the caller promises.
        unsafe { self.copy(changing(entry.body).expect("an object that is changed in place")) }
    }

    /// # Safety
    /// As for [`ObjectRef::new`].
    #[inline]
    pub(super) unsafe fn copy<'a>(&mut self, object: ChangingRef<'_>) -> ObjectRef<'a> {
        let words = object.words();
        if words > self.free.len() {
            // SAFETY: as the caller promises.
            self.free = unsafe { memory_for_now(self.words.max(words)) };
        }
        let (room, free) = std::mem::take(&mut self.free).split_at_mut(words);
        self.free = free;
        // If the copy is not whole, the writer holds the lock of the object's place. So this is an optimistic read that is not valid.
        ObjectRef::Block(object.copy_within(room).0)
    }
}

/// New memory of `words` words. As it is given back soon, it may come from what is kept for that.
///
/// # Safety
/// This thread has a guard as long as the memory is used.
#[inline(never)]
pub(super) unsafe fn memory_for_now<'a>(words: usize) -> &'a mut [MaybeUninit<u64>] {
    let _relief = slab::Relief::new();
    let guard = epoch::pin();
    let memory = slab::needed(slab::alloc_pinned(&guard, words * 8));
    // SAFETY: the memory is new and has no other user. It is retired once, so it lives until all present guards have ended.
    unsafe {
        guard.retire_memory(memory, words * 8);
        std::slice::from_raw_parts_mut(memory.cast().as_ptr(), words)
    }
}

/// The key of an entry's object.
///
/// # Safety
/// As for [`ObjectRef::new`].
#[inline]
pub unsafe fn key_of<'a>(entry: Entry, key: usize) -> TermRef<'a> {
    if is_immediate(entry.key) {
        return TermRef::immediate(entry.key);
    }
    // SAFETY: a key that is not an immediate is in the block.
    match unsafe { block(entry.body) } {
        Some(block) => block.element(key),
        None => unreachable!("an object without a block has an immediate key"),
    }
}
