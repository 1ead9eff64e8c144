//! A chunk of a group's list: some objects with their signatures, one after the other. Those that are removed leave gaps, which
//! are closed when there is no more room at the end. Signatures stand a byte in each of up to eight *planes*, so that what is asked
//! about one element of all objects is read from one cache line. A chunk of many objects has only as many planes as those before it
//! needed: an object with more elements passes by the others.
//!
//! The holder of the place's lock changes it, in place. Others read it meanwhile, under guards: each slot that they see has been
//! one of an object of the group while their guard lived, and the engine validates what they make of it.

use super::signature::Filter;
use cats_sync::facade::{AtomicPtr, AtomicU64, AtomicU8, Ordering};
use cats_sync::slab;
use std::cell::Cell;
use std::ptr::{null_mut, NonNull};

/// The most objects of a chunk. Only such chunks have successors.
pub const FULL: usize = 60;

/// Bytes of a signature, and the most planes of a chunk.
pub const PLANES: usize = 8;

/// What stands before the bodies; the planes of the signatures are behind them.
#[repr(C)]
pub struct Header {
    next: AtomicPtr<Header>,
    /// Only for the writer.
    previous: Cell<*mut Header>,
    /// The slots that hold objects, a bit each. All below the highest one are initialised.
    live: AtomicU64,
    capacity: u32,
    /// How many planes it has.
    kept: u8,
    /// Whether its objects are in the index; only for the writer.
    indexed: Cell<bool>,
    /// The planes, kept or not, in which signatures have other bytes than 0, a bit each; only for the writer.
    planes: Cell<u8>,
}

/// The address of a chunk that lives as long as it is used: the caller of [`at`](Self::at) holds the lock of the place, or a guard.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Chunk(NonNull<Header>);

/// A slot of a chunk, in one word: chunks lie at multiples of 64, so in their addresses there is room for its number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Position(NonNull<u8>);

impl Position {
    #[inline]
    pub fn chunk(self) -> Chunk {
        // SAFETY: the chunk's address is what is left, and not null.
        Chunk(unsafe { self.0.sub(self.slot()) }.cast())
    }

    #[inline]
    pub fn slot(self) -> usize {
        self.0.addr().get() % ALIGNMENT
    }

    /// In one word, which is not 0.
    #[inline]
    pub fn word(self) -> u64 {
        self.0.as_ptr() as u64
    }

    /// The position of this [word](Self::word), or nothing if it is 0.
    #[inline]
    pub fn from_word(word: u64) -> Option<Self> {
        NonNull::new(word as *mut u8).map(Self)
    }

    /// As [`Chunk::get`].
    #[inline]
    pub fn body(self) -> u64 {
        self.chunk().get(self.slot())
    }
}

/// Sizes of chunks are multiples of it, so their memory lies at multiples.
const ALIGNMENT: usize = 64;
const _: () = assert!(FULL <= ALIGNMENT);

const HEADER: usize = size_of::<Header>();

/// How many chunks before it is come to a chunk it is asked for.
const AHEAD: usize = 8;

impl Chunk {
    /// An empty chunk for at least so many objects, if a chunk can have so many, with at least the first planes, as many as told; nothing
    /// when memory is exhausted.
    pub fn new(objects: usize, planes: usize) -> Option<Chunk> {
        let capacity = [2, 6, 14, 30].into_iter().find(|n| objects <= *n).unwrap_or(FULL);
        let kept = if capacity == FULL { planes } else { PLANES };
        let at = slab::alloc(bytes(capacity, kept))?.cast::<Header>();
        debug_assert!(at.addr().get().is_multiple_of(ALIGNMENT));
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
            at.add(1)
                .cast::<u8>()
                .add(8 * capacity)
                .write_bytes(0, kept * stride(capacity));
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
        slab::usable(bytes(self.capacity(), self.kept()))
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

    #[inline]
    pub fn capacity(self) -> usize {
        self.header().capacity as usize
    }

    /// How many planes it has.
    #[inline]
    pub fn kept(self) -> usize {
        self.header().kept.into()
    }

    /// How many planes, from the first, would have all that is in the signatures of its objects; only for the writer.
    pub fn needed(self) -> usize {
        above(self.header().planes.get().into())
    }

    /// The slots that hold objects, a bit each.
    #[inline]
    pub fn live(self) -> u64 {
        // Acquire: pairs with `set_live`, so that the slots are seen.
        self.header().live.load(Ordering::Acquire)
    }

    fn set_live(self, live: u64) {
        self.header().live.store(live, Ordering::Release);
    }

    /// The number of objects.
    #[inline]
    pub fn count(self) -> usize {
        self.live().count_ones() as usize
    }

    /// The slots up to the last object.
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
        // SAFETY: this is within the chunk.
        Position(unsafe { self.0.cast::<u8>().add(slot) })
    }

    /// Asks the processor for the body in a slot.
    #[inline]
    pub fn prefetch(self, slot: usize) {
        cats_sync::prefetch(self.body(slot));
    }

    /// Asks the processor for the header.
    #[inline]
    pub fn prefetch_header(self) {
        cats_sync::prefetch(self.address());
    }

    /// Asks the processor for what [`passing`](Self::passing) will read of a chunk further on, if that is where it is likely to be:
    /// chunks of a group that grew at once lie at equal distances.
    #[inline]
    pub fn prefetch_ahead(self, filter: &Filter) {
        // Relaxed: nothing is read there.
        let next = self.header().next.load(Ordering::Relaxed);
        let distance = next.addr().wrapping_sub(self.address().addr());
        let there = self.address().cast::<u8>().wrapping_add(AHEAD.wrapping_mul(distance));
        cats_sync::prefetch(there);
        if let Some(plane) = filter.first_place() {
            cats_sync::prefetch(there.wrapping_add(HEADER + 8 * FULL + plane * stride(FULL)));
        }
    }

    #[inline]
    fn body<'a>(self, slot: usize) -> &'a AtomicU64 {
        debug_assert!(slot < self.capacity());
        // SAFETY: bodies lie behind the header, and the chunk lives.
        unsafe { &*self.0.add(1).cast::<AtomicU64>().as_ptr().add(slot) }
    }

    /// The bytes of a plane.
    #[inline]
    fn plane<'a>(self, plane: usize) -> &'a [AtomicU8] {
        self.plane_within(self.capacity(), plane)
    }

    /// The bytes of a plane of a chunk of this capacity.
    #[inline(always)]
    fn plane_within<'a>(self, capacity: usize, plane: usize) -> &'a [AtomicU8] {
        debug_assert!(plane < self.kept() && capacity == self.capacity());
        let stride = stride(capacity);
        // SAFETY: planes lie behind the bodies, and the chunk lives; they are initialised from the beginning.
        unsafe {
            let at = self.0.add(1).cast::<u8>().add(8 * capacity + plane * stride);
            std::slice::from_raw_parts(at.cast().as_ptr(), stride)
        }
    }

    /// The planes that it has and that have other bytes than 0.
    #[inline]
    fn planes(self) -> impl Iterator<Item = usize> {
        let kept = (1 << self.kept()) - 1;
        bits(kept & u64::from(self.header().planes.get()))
    }

    /// The bodies of the objects, from the first to the last.
    #[inline]
    pub fn bodies(self) -> impl Iterator<Item = u64> {
        // Acquire: pairs with `set`, so that the object is seen.
        bits(self.live()).map(move |slot| self.body(slot).load(Ordering::Acquire))
    }

    /// Shows the bodies of the objects, from the first to the last, until `show` returns false; whether it never did.
    #[inline]
    pub fn all(self, mut show: impl FnMut(u64) -> bool) -> bool {
        let live = self.live();
        // Acquire: as above.
        let show = |slot| show(self.body(slot).load(Ordering::Acquire));
        // Mostly there are no gaps, and then no bits to go by.
        match live & live.wrapping_add(1) {
            0 => (0..above(live)).all(show),
            _ => bits(live).all(show),
        }
    }

    /// The body in a slot that was in use once; only for the writer.
    #[inline]
    pub fn get(self, slot: usize) -> u64 {
        // Relaxed: the writer's own.
        self.body(slot).load(Ordering::Relaxed)
    }

    /// The signature in such a slot, as far as there are planes; only for the writer.
    pub fn signature(self, slot: usize) -> u64 {
        // Relaxed: as above.
        let byte = |plane: usize| u64::from(self.plane(plane)[slot].load(Ordering::Relaxed));
        self.planes()
            .fold(0, |signature, plane| signature | byte(plane) << (8 * plane))
    }

    /// Only for the writer.
    #[inline]
    pub fn set(self, slot: usize, body: u64, signature: u64) {
        let planes = &self.header().planes;
        planes.set(planes.get() | nonzero(signature));
        for plane in self.planes() {
            // Relaxed: no memory is reached by a signature.
            self.plane(plane)[slot].store((signature >> (8 * plane)) as u8, Ordering::Relaxed);
        }
        // Release: a reader sees the object's block.
        self.body(slot).store(body, Ordering::Release);
    }

    /// Copies what is in a smaller chunk, which has all planes, into this one, which is empty, and which nobody else knows; only for the
    /// writer of the other.
    pub fn copy_from(self, other: Chunk) {
        let used = other.used();
        debug_assert!(used <= self.capacity() && self.live() == 0);
        // SAFETY: slots in use are initialised, and others only read them; nobody reads this chunk.
        unsafe {
            let body = |chunk: Chunk| chunk.0.add(1).cast::<u64>();
            body(self).copy_from_nonoverlapping(body(other), used);
            for plane in other.planes().take_while(|plane| *plane < self.kept()) {
                let byte = |chunk: Chunk| chunk.plane(plane).as_ptr().cast::<u8>();
                byte(self).cast_mut().copy_from_nonoverlapping(byte(other), used);
            }
        }
        self.header().planes.set(other.header().planes.get());
        self.set_live(other.live());
    }

    /// Makes room for so many more objects behind the last one, if there is as much in all. `moved` is told of each object that
    /// comes to another slot: its body, and from where to where.
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

    /// Adds an object to a chunk that has room behind its last one; where.
    #[inline]
    pub fn push(self, body: u64, signature: u64) -> Position {
        let live = self.live();
        let slot = above(live);
        self.set(slot, body, signature);
        self.set_live(live | 1 << slot);
        self.position(slot)
    }

    /// The slots of objects whose signatures pass, a bit each.
    #[inline]
    pub fn passing(self, filter: &Filter) -> u64 {
        let kept = self.kept();
        let passing = match self.capacity() {
            // Where the planes are is known here.
            FULL => filter.passing(|plane| (plane < kept).then(|| self.plane_within(FULL, plane))),
            capacity => filter.passing(|plane| Some(self.plane_within(capacity, plane))),
        };
        self.live() & passing
    }

    /// The bodies of the objects whose signatures pass.
    #[inline]
    pub fn bodies_passing(self, filter: &Filter) -> impl Iterator<Item = u64> {
        // Acquire: the object is seen.
        bits(self.passing(filter)).map(move |slot| self.body(slot).load(Ordering::Acquire))
    }

    /// Takes the objects of these slots out, a bit each. Who comes to the chunk from now on does not find them.
    #[inline]
    pub fn remove(self, slots: u64) {
        debug_assert!(slots & !self.live() == 0);
        self.set_live(self.live() & !slots);
    }

    /// Frees the chunk, but nothing that is in it.
    ///
    /// # Safety
    /// Nobody uses it any more.
    pub unsafe fn free(self) {
        let size = bytes(self.capacity(), self.kept());
        // SAFETY: as the caller promises; chunks come from `new`.
        unsafe { slab::free(self.0.cast(), size) }
    }
}

/// The number of the highest bit that is set, and one more.
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

/// The bytes that are not 0, a bit each.
#[inline]
fn nonzero(word: u64) -> u8 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let high = (((word & LOW) + LOW) | word) & !LOW;
    // The highest bit of byte n comes to bit 56 + n.
    ((high >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

/// The bytes of a chunk for so many objects with so many planes.
const fn bytes(capacity: usize, planes: usize) -> usize {
    let bytes = HEADER + 8 * capacity + planes * stride(capacity);
    assert!(bytes.is_multiple_of(ALIGNMENT));
    bytes
}

/// From a plane to the next: that of the largest chunks is a cache line.
#[inline]
const fn stride(capacity: usize) -> usize {
    if capacity == FULL {
        64
    } else {
        capacity
    }
}
