//! A chunk of a group's list: some objects with their signatures, one after the other, without gaps.
//!
//! The holder of the place's lock changes it, in place. Others read it meanwhile, under guards: each slot that they see has been
//! one of an object of the group while their guard lived, and the engine validates what they make of it.

use super::signature::Filter;
use cats_sync::facade::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use cats_sync::slab;
use std::cell::Cell;
use std::ptr::{null_mut, NonNull};

/// The most objects of a chunk. Only such chunks have successors, and room for the index's nodes.
pub const FULL: usize = 62;

/// An indexed object's place.
pub struct Node {
    pub chunk: Cell<Chunk>,
    /// The next node whose object has the same hash; that of the last one is the first.
    pub same: Cell<*mut Node>,
}

/// What stands before the slots: bodies, then signatures, then nodes.
#[repr(C)]
pub struct Header {
    next: AtomicPtr<Header>,
    /// Only for the writer.
    previous: Cell<*mut Header>,
    used: AtomicUsize,
    capacity: usize,
}

/// What a slot holds.
#[derive(Clone, Copy)]
pub struct Slot {
    pub body: u64,
    pub signature: u64,
    /// Null when the object is not in the index.
    pub node: *mut Node,
}

/// The address of a chunk that lives as long as it is used: the caller of [`at`](Self::at) holds the lock of the place, or a guard.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Chunk(NonNull<Header>);

const HEADER: usize = size_of::<Header>();

impl Chunk {
    /// An empty chunk for at least so many objects, if a chunk can have so many; nothing when memory is exhausted.
    pub fn new(objects: usize) -> Option<Chunk> {
        let capacity = [2, 6, 14, 30].into_iter().find(|n| objects <= *n).unwrap_or(FULL);
        let at = slab::alloc(bytes(capacity))?.cast::<Header>();
        // SAFETY: the memory is new and large enough.
        unsafe {
            at.write(Header {
                next: AtomicPtr::new(null_mut()),
                previous: Cell::new(null_mut()),
                used: AtomicUsize::new(0),
                capacity,
            });
        }
        Some(Chunk(at))
    }

    /// The chunk at an address.
    ///
    /// # Safety
    /// It is null, or that of a chunk that lives as long as the result is used.
    #[inline]
    pub unsafe fn at(address: *mut Header) -> Option<Chunk> {
        NonNull::new(address).map(Chunk)
    }

    #[inline]
    pub fn address(self) -> *mut Header {
        self.0.as_ptr()
    }

    #[inline]
    fn header<'a>(self) -> &'a Header {
        // SAFETY: the chunk lives.
        unsafe { self.0.as_ref() }
    }

    /// The bytes that it takes.
    pub fn bytes(self) -> usize {
        slab::usable(bytes(self.header().capacity))
    }

    #[inline]
    pub fn next(self) -> Option<Chunk> {
        // Acquire: pairs with the Release by which a chunk is linked, so that its contents are seen.
        // SAFETY: chunks are retired after they are unlinked, so the next one lives as long as this one.
        unsafe { Chunk::at(self.header().next.load(Ordering::Acquire)) }
    }

    /// Only for the writer.
    #[inline]
    pub fn previous(self) -> Option<Chunk> {
        // SAFETY: as for `next`.
        unsafe { Chunk::at(self.header().previous.get()) }
    }

    pub fn set_next(self, next: Option<Chunk>) {
        let next = next.map_or(null_mut(), Chunk::address);
        // Release: see `next`.
        self.header().next.store(next, Ordering::Release);
    }

    pub fn set_previous(self, previous: Option<Chunk>) {
        self.header().previous.set(previous.map_or(null_mut(), Chunk::address));
    }

    /// The number of objects.
    #[inline]
    pub fn used(self) -> usize {
        // Acquire: pairs with `set_used`, so that the slots are seen.
        self.header().used.load(Ordering::Acquire)
    }

    #[inline]
    pub fn set_used(self, used: usize) {
        self.header().used.store(used, Ordering::Release);
    }

    #[inline]
    pub fn is_full(self) -> bool {
        self.used() == self.header().capacity
    }

    #[inline]
    fn has_nodes(self) -> bool {
        self.header().capacity == FULL
    }

    /// The address of the first slot's body; signatures follow the bodies.
    #[inline]
    fn first(self) -> *mut AtomicU64 {
        // SAFETY: the slots lie behind the header.
        unsafe { self.0.add(1).cast().as_ptr() }
    }

    /// The bodies of the objects, and their signatures.
    #[inline]
    pub fn words<'a>(self) -> (&'a [AtomicU64], &'a [AtomicU64]) {
        let used = self.used();
        // SAFETY: slots in use are initialised, and lie in the chunk.
        unsafe {
            (
                std::slice::from_raw_parts(self.first(), used),
                std::slice::from_raw_parts(self.first().add(self.header().capacity), used),
            )
        }
    }

    /// The address of the node of a slot, or behind the last one; only for the writer, in a chunk that has them.
    #[inline]
    fn node(self, slot: usize) -> *mut *mut Node {
        debug_assert!(self.has_nodes() && slot <= FULL);
        // SAFETY: the nodes lie behind the signatures.
        unsafe { self.0.add(1).cast::<*mut Node>().as_ptr().add(2 * FULL + slot) }
    }

    /// Only for the writer; the slot is in use.
    #[inline]
    pub fn get(self, slot: usize) -> Slot {
        let capacity = self.header().capacity;
        debug_assert!(slot < self.used());
        // SAFETY: within the chunk, and written. Relaxed: the writer's own.
        unsafe {
            Slot {
                body: (*self.first().add(slot)).load(Ordering::Relaxed),
                signature: (*self.first().add(capacity + slot)).load(Ordering::Relaxed),
                node: if self.has_nodes() { *self.node(slot) } else { null_mut() },
            }
        }
    }

    /// Only for the writer. The slot is below the capacity; a node that has come from another chunk is to be told.
    #[inline]
    pub fn set(self, slot: usize, new: Slot) {
        let capacity = self.header().capacity;
        debug_assert!(slot < capacity);
        // SAFETY: within the chunk. Release: a reader sees the object's block.
        unsafe {
            (*self.first().add(slot)).store(new.body, Ordering::Release);
            (*self.first().add(capacity + slot)).store(new.signature, Ordering::Release);
            if self.has_nodes() {
                *self.node(slot) = new.node;
            }
        }
    }

    /// Adds an object, which may have a node, to a chunk that is not full.
    #[inline]
    pub fn push(self, new: Slot) {
        let used = self.used();
        self.set(used, new);
        self.set_used(used + 1);
        // SAFETY: nodes of objects in a group are in use.
        if let Some(node) = unsafe { new.node.as_ref() } {
            node.chunk.set(self);
        }
    }

    /// The slots whose signatures pass, a bit each.
    #[inline]
    pub fn passing(self, filter: &Filter) -> u64 {
        filter.passing(self.words().1)
    }

    /// The bodies of the objects whose signatures pass.
    #[inline]
    pub fn bodies_passing(self, filter: &Filter) -> impl Iterator<Item = u64> {
        bits(self.passing(filter)).map(move |slot| {
            // SAFETY: once written, a slot stays so. Acquire: the object is seen.
            unsafe { (*self.first().add(slot)).load(Ordering::Acquire) }
        })
    }

    /// Takes the objects of these slots out, a bit each and at least one; those behind them move up.
    pub fn remove(self, slots: u64) {
        let used = self.used();
        let (bodies, signatures) = self.words();
        let mut to = slots.trailing_zeros() as usize;
        let mut left = slots;
        while left != 0 {
            let from = left.trailing_zeros() as usize + 1;
            left &= left - 1;
            let end = used.min(left.trailing_zeros() as usize);
            // Relaxed: the writer's own. Release as in `set`.
            for (new, old) in (to..).zip(from..end) {
                bodies[new].store(bodies[old].load(Ordering::Relaxed), Ordering::Release);
                signatures[new].store(signatures[old].load(Ordering::Relaxed), Ordering::Release);
            }
            if self.has_nodes() {
                // SAFETY: nodes of slots in use are initialised, and the writer's own.
                unsafe { self.node(to).copy_from(self.node(from), end - from) };
            }
            to += end - from;
        }
        self.set_used(to);
    }

    /// The slot of an object by its node, which is in this chunk.
    pub fn slot_of(self, node: *mut Node) -> usize {
        let nodes = self.nodes();
        nodes
            .iter()
            .position(|other| *other == node)
            .expect("a node in its chunk")
    }

    /// The nodes of the objects; only for the writer, in a chunk that has them.
    pub fn nodes<'a>(self) -> &'a [*mut Node] {
        // SAFETY: those in use are initialised.
        unsafe { std::slice::from_raw_parts(self.node(0), self.used()) }
    }

    /// Frees the chunk, but nothing that is in it.
    ///
    /// # Safety
    /// Nobody uses it any more.
    pub unsafe fn free(self) {
        let size = bytes(self.header().capacity);
        // SAFETY: as the caller promises; chunks come from `new`.
        unsafe { slab::free(self.0.cast(), size) }
    }
}

/// The numbers of the bits that are set.
#[inline]
pub fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then_some(word.trailing_zeros() as usize)?;
        word &= word - 1;
        Some(bit)
    })
}

/// The bytes of a chunk for so many objects.
const fn bytes(capacity: usize) -> usize {
    HEADER + capacity * if capacity == FULL { 24 } else { 16 }
}
