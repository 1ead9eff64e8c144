//! A group chunk: some of a group's objects with their signatures, one after the other. Removed objects leave gaps. The gaps are closed
//! when there is no more room at the end.
//!
//! A small chunk has a word for each object's signature. A chunk of [`FULL`] objects stores the bytes of signatures in up to eight *planes*.
//! A plane has the bytes of one element for all objects of the chunk, so one cache line answers a question about one element. The chunk has
//! only as many planes as the chunk before it needed. Where a plane is missing, every object passes.
//!
//! The *writer*, which holds the lock of the key's place, changes chunks in place. Readers read them meanwhile, under guards. Each slot
//! that they see has had an object of the group while their guard lived. The engine validates their result.

use super::signature::Filter;
use cats_sync::facade::{AtomicPtr, AtomicU64, AtomicU8, Ordering};
use cats_sync::slab;
use std::cell::Cell;
use std::ptr::{null_mut, NonNull};

/// The largest number of objects of a chunk. Only chunks of this size have successors.
pub const FULL: usize = 60;

/// The number of bytes of a signature, and the largest number of planes of a chunk.
pub const PLANES: usize = 8;

/// The beginning of a chunk. The bodies follow it, and then the signatures.
#[repr(C)]
pub struct Header {
    next: AtomicPtr<Header>,
    /// Only for the writer.
    previous: Cell<*mut Header>,
    /// A bit for each slot, set if the slot has an object. All slots below the highest such slot are initialized.
    live: AtomicU64,
    capacity: u32,
    /// The number of bytes of each signature that the chunk keeps. A full chunk has so many planes.
    kept: u8,
    /// Whether the chunk's objects are in the index. Only for the writer.
    indexed: Cell<bool>,
    /// A bit for each byte of signatures, kept or not, set if it is not 0 in all of them. Only for the writer.
    planes: Cell<u8>,
}

/// The address of a chunk. The chunk lives as long as this is used, because the caller holds the place's lock or a guard.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Chunk(NonNull<Header>);

/// A slot of a chunk, in one word. Addresses of chunks are multiples of 64, so the slot's number fits their low bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Position(NonNull<u8>);

impl Position {
    #[inline]
    pub fn chunk(self) -> Chunk {
        // SAFETY: without the slot's number, this is the chunk's address, which is not null.
        Chunk(unsafe { self.0.sub(self.slot()) }.cast())
    }

    #[inline]
    pub fn slot(self) -> usize {
        self.0.addr().get() % ALIGNMENT
    }

    /// As one word, which is not 0.
    #[inline]
    pub fn word(self) -> u64 {
        self.0.as_ptr() as u64
    }

    /// The position with this [word](Self::word). `None` if it is 0.
    #[inline]
    pub fn from_word(word: u64) -> Option<Self> {
        NonNull::new(word as *mut u8).map(Self)
    }

    /// The body in the slot: see [`Chunk::get`].
    #[inline]
    pub fn body(self) -> u64 {
        self.chunk().get(self.slot())
    }
}

/// Sizes of chunks are multiples of this number, so their addresses are too.
const ALIGNMENT: usize = 64;
const _: () = assert!(FULL <= ALIGNMENT);

const HEADER: usize = size_of::<Header>();

/// The size in bytes of a plane: a cache line.
const PLANE: usize = 64;
const _: () = assert!(FULL <= PLANE);

/// The distance of a prefetch, in chunks.
const AHEAD: usize = 8;

impl Chunk {
    /// An empty chunk for at least `objects` objects, as far as a chunk can have so many, with at least the first `planes` bytes of their
    /// signatures. `None` when memory is exhausted.
    pub fn new(objects: usize, planes: usize) -> Option<Chunk> {
        let capacity = [2, 6, 14, 30].into_iter().find(|n| objects <= *n).unwrap_or(FULL);
        let kept = if capacity == FULL { planes } else { PLANES };
        let at = slab::alloc(bytes(capacity, kept))?.cast::<Header>();
        debug_assert!(at.addr().get() % ALIGNMENT == 0);
        // SAFETY: the memory is new and large enough.
        unsafe {
            at.write(Header {
                next: AtomicPtr::new(null_mut()),
                previous: Cell::new(null_mut()),
                live: AtomicU64::new(0),
                capacity: capacity as u32,
                kept: kept as u8,
                indexed: Cell::new(false),
                planes: Cell::new(0),
            });
            // Planes are read as a whole.
            if capacity == FULL {
                at.add(1).cast::<u8>().add(8 * FULL).write_bytes(0, kept * PLANE);
            }
        }
        Some(Chunk(at))
    }

    /// The chunk at an address. `None` if the address is null.
    ///
    /// # Safety
    /// The address is null, or that of a chunk that lives as long as the result is used.
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

    /// The size of its memory in bytes.
    pub fn bytes(self) -> usize {
        slab::usable(bytes(self.capacity(), self.kept()))
    }

    #[inline]
    pub fn next(self) -> Option<Chunk> {
        // Acquire pairs with the Release by which a chunk is linked, so its contents are seen. SAFETY: chunks are retired after they are
        // unlinked, so the next one lives as long as this one.
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
        // Release pairs with the Acquire in `next`.
        self.header().next.store(next, Ordering::Release);
    }

    pub fn set_previous(self, previous: Option<Chunk>) {
        self.header().previous.set(previous.map_or(null_mut(), Chunk::address));
    }

    #[inline]
    pub fn capacity(self) -> usize {
        self.header().capacity as usize
    }

    /// The number of bytes of each signature that the chunk keeps.
    #[inline]
    pub fn kept(self) -> usize {
        self.header().kept.into()
    }

    /// The number of bytes, counted from the first, that would have everything in the signatures of its objects. Only for the writer.
    pub fn needed(self) -> usize {
        above(self.header().planes.get().into())
    }

    /// A bit for each slot, set if the slot has an object.
    #[inline]
    pub fn live(self) -> u64 {
        // Acquire pairs with the Release in `set_live`, so the slots' contents are seen.
        self.header().live.load(Ordering::Acquire)
    }

    fn set_live(self, live: u64) {
        // Release pairs with the Acquire in `live`.
        self.header().live.store(live, Ordering::Release);
    }

    /// The number of objects.
    #[inline]
    pub fn count(self) -> usize {
        self.live().count_ones() as usize
    }

    /// The number of slots up to the last object.
    #[inline]
    fn used(self) -> usize {
        above(self.live())
    }

    /// Whether its objects are in the index; only for the writer.
    #[inline]
    pub fn is_indexed(self) -> bool {
        self.header().indexed.get()
    }

    pub fn set_indexed(self, indexed: bool) {
        self.header().indexed.set(indexed);
    }

    #[inline]
    pub fn position(self, slot: usize) -> Position {
        debug_assert!(slot < self.capacity());
        // SAFETY: the address lies within the chunk.
        Position(unsafe { self.0.cast::<u8>().add(slot) })
    }

    /// Prefetches the body in a slot.
    #[inline]
    pub fn prefetch(self, slot: usize) {
        cats_sync::prefetch(self.body(slot));
    }

    /// Prefetches the header.
    #[inline]
    pub fn prefetch_header(self) {
        cats_sync::prefetch(self.address());
    }

    /// Prefetches what [`passing`](Self::passing) will read of a chunk further on, at the place where that chunk is likely to be. Chunks of
    /// a group that grew in one go lie at equal distances.
    #[inline]
    pub fn prefetch_ahead(self, filter: &Filter) {
        // Relaxed: nothing is read through this address.
        let next = self.header().next.load(Ordering::Relaxed);
        let distance = next.addr().wrapping_sub(self.address().addr());
        let there = self.address().cast::<u8>().wrapping_add(AHEAD.wrapping_mul(distance));
        cats_sync::prefetch(there);
        if let Some(plane) = filter.first_place() {
            cats_sync::prefetch(there.wrapping_add(HEADER + 8 * FULL + plane * PLANE));
        }
    }

    #[inline]
    fn body<'a>(self, slot: usize) -> &'a AtomicU64 {
        debug_assert!(slot < self.capacity());
        // SAFETY: the bodies follow the header, and the chunk lives.
        unsafe { &*self.0.add(1).cast::<AtomicU64>().as_ptr().add(slot) }
    }

    /// Whether signatures are in planes.
    #[inline]
    fn has_planes(self) -> bool {
        self.capacity() == FULL
    }

    /// The bytes of a plane. Only for a chunk that [has planes](Self::has_planes).
    #[inline]
    fn plane<'a>(self, plane: usize) -> &'a [AtomicU8] {
        debug_assert!(plane < self.kept() && self.has_planes());
        // SAFETY: the planes follow the bodies, and the chunk lives. They were initialized when it was made.
        unsafe {
            let at = self.0.add(1).cast::<u8>().add(8 * FULL + plane * PLANE);
            std::slice::from_raw_parts(at.cast().as_ptr(), PLANE)
        }
    }

    /// The signature in a slot. Only for a chunk without planes.
    #[inline]
    fn word<'a>(self, slot: usize) -> &'a AtomicU64 {
        debug_assert!(slot < self.capacity() && !self.has_planes());
        // SAFETY: the signatures follow the bodies, and the chunk lives.
        unsafe {
            let at = self.0.add(1).cast::<AtomicU64>().add(self.capacity() + slot);
            &*at.as_ptr()
        }
    }

    /// The planes that the chunk has, except those in which all bytes are 0.
    #[inline]
    fn planes(self) -> impl Iterator<Item = usize> {
        let kept = (1 << self.kept()) - 1;
        bits(kept & u64::from(self.header().planes.get()))
    }

    /// The bodies of the objects, from the first to the last.
    #[inline]
    pub fn bodies(self) -> impl Iterator<Item = u64> {
        // Acquire pairs with the Release in `set`, so the object is seen.
        bits(self.live()).map(move |slot| self.body(slot).load(Ordering::Acquire))
    }

    /// Calls `show` with the objects' bodies, from the first to the last, until it returns false. Returns whether it always returned true.
    #[inline]
    pub fn all(self, mut show: impl FnMut(u64) -> bool) -> bool {
        let live = self.live();
        // Acquire: as above.
        let show = |slot| show(self.body(slot).load(Ordering::Acquire));
        // Usually there are no gaps. Then a simple loop replaces the one over the bits.
        match live & live.wrapping_add(1) {
            0 => (0..above(live)).all(show),
            _ => bits(live).all(show),
        }
    }

    /// The body in a slot that has had an object. Only for the writer.
    #[inline]
    pub fn get(self, slot: usize) -> u64 {
        // Relaxed: only the writer changes it.
        self.body(slot).load(Ordering::Relaxed)
    }

    /// The signature in such a slot, as far as the chunk keeps it. Only for the writer.
    #[inline]
    pub fn signature(self, slot: usize) -> u64 {
        // Relaxed, twice: as above.
        if !self.has_planes() {
            return self.word(slot).load(Ordering::Relaxed);
        }
        let byte = |plane: usize| u64::from(self.plane(plane)[slot].load(Ordering::Relaxed));
        self.planes()
            .fold(0, |signature, plane| signature | byte(plane) << (8 * plane))
    }

    /// Only for the writer.
    #[inline]
    pub fn set(self, slot: usize, body: u64, signature: u64) {
        let planes = &self.header().planes;
        planes.set(planes.get() | nonzero(signature));
        // Relaxed, twice: nothing is read through a signature.
        match self.has_planes() {
            true => self
                .planes()
                .for_each(|plane| self.plane(plane)[slot].store((signature >> (8 * plane)) as u8, Ordering::Relaxed)),
            false => self.word(slot).store(signature, Ordering::Relaxed),
        }
        // Release pairs with the Acquire of readers, so they see the object's block.
        self.body(slot).store(body, Ordering::Release);
    }

    /// Makes room for `objects` more objects after the last one. Returns false if there is not enough room in the whole chunk. Calls
    /// `moved` for each object that moves to another slot, with its body and its old and new position.
    #[inline]
    pub fn make_room(self, objects: usize, moved: impl FnMut(u64, Position, Position)) -> bool {
        if self.used() + objects <= self.capacity() {
            return true;
        }
        if self.count() + objects > self.capacity() {
            return false;
        }
        self.close_gaps(moved);
        true
    }

    fn close_gaps(self, mut moved: impl FnMut(u64, Position, Position)) {
        let count = self.count();
        for (new, old) in bits(self.live()).enumerate() {
            if new != old {
                let body = self.get(old);
                self.set(new, body, self.signature(old));
                moved(body, self.position(old), self.position(new));
            }
        }
        self.set_live((1 << count) - 1);
    }

    /// Adds an object to a chunk that has room after its last one. Returns the position.
    #[inline]
    pub fn push(self, body: u64, signature: u64) -> Position {
        let live = self.live();
        let slot = above(live);
        self.set(slot, body, signature);
        self.set_live(live | 1 << slot);
        self.position(slot)
    }

    /// A bit for each slot, set if it has an object whose signature passes.
    #[inline]
    pub fn passing(self, filter: &Filter) -> u64 {
        let live = self.live();
        if self.has_planes() {
            let kept = self.kept();
            return live & filter.passing(|plane| (plane < kept).then(|| self.plane(plane)));
        }
        // Relaxed: nothing is read through a signature. The slots' contents are seen, see `live`.
        let passes = |slot: usize| u64::from(filter.passes(self.word(slot).load(Ordering::Relaxed)));
        bits(live).fold(0, |passing, slot| passing | passes(slot) << slot)
    }

    /// The bodies of the objects whose signatures pass.
    #[inline]
    pub fn bodies_passing(self, filter: &Filter) -> impl Iterator<Item = u64> {
        // Acquire pairs with the Release in `set`, so the object is seen.
        bits(self.passing(filter)).map(move |slot| self.body(slot).load(Ordering::Acquire))
    }

    /// Removes the objects in these slots, given as a bit each. Readers that come to the chunk from now on do not find them.
    #[inline]
    pub fn remove(self, slots: u64) {
        debug_assert!(slots & !self.live() == 0);
        self.set_live(self.live() & !slots);
    }

    /// Frees the chunk, but not its objects.
    ///
    /// # Safety
    /// Nobody uses the chunk any more.
    pub unsafe fn free(self) {
        let size = bytes(self.capacity(), self.kept());
        // SAFETY: as the caller promises. Chunks come from `new`.
        unsafe { slab::free(self.0.cast(), size) }
    }
}

/// One more than the number of the highest bit that is set. 0 if there is none.
#[inline]
fn above(word: u64) -> usize {
    64 - word.leading_zeros() as usize
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

/// A bit for each byte, set if the byte is not 0.
#[inline]
fn nonzero(word: u64) -> u8 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let high = (((word & LOW) + LOW) | word) & !LOW;
    // Moves the highest bit of byte n to bit 56 + n.
    ((high >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

/// The number of bytes, counted from the first, that have everything in signatures. `all` has the bits of all of them.
pub fn planes_of(all: u64) -> usize {
    above(nonzero(all).into())
}

/// The size in bytes of a chunk of this capacity that keeps this number of bytes of each signature.
const fn bytes(capacity: usize, kept: usize) -> usize {
    let signatures = if capacity == FULL { kept * PLANE } else { 8 * capacity };
    let bytes = HEADER + 8 * capacity + signatures;
    assert!(bytes % ALIGNMENT == 0);
    bytes
}
