//! The body word of an entry, and what it tells of the object.

use crate::object::schema::OwnedKey;
use cats_engine::seat::{body_of, cell_of, is_seat};
use cats_engine::Entry;
use cats_sync::facade::Ordering;
use cats_term::lease::{Lease, SharedLease};
use cats_term::{bytes_of, Block, BlockRef, ChangingRef};
use std::ptr::NonNull;

/// The body of `{Key}`.
pub(crate) const SINGLE: u64 = 1;
/// The low bits of a body that is the address of a group.
pub const GROUP: u64 = 2;
const TAG: u64 = 3;
/// A further bit in the body of a block: elements of the object are changed in place.
pub(super) const CHANGING: u64 = 4;
/// In a body that refers to memory, the bits above these of the address store the size of a block.
pub use cats_sync::slab::ADDRESS_BITS;
/// Among the bits above the address: something in the block is held or counted. Then fewer bits store the number of words, and the bits
/// above those store the weight.
const HELD: u64 = 1 << 15;
pub(super) const HELD_WORDS: u64 = (1 << WEIGHT_AT) - 1;
const WEIGHT_AT: u32 = 10;
const MAX_WEIGHT: u64 = (1 << (15 - WEIGHT_AT)) - 1;
/// The number of bytes for which the weight 0 stands. Each further step of the weight doubles them.
const LEAST_WEIGHT: usize = 64;

/// Whether the body is the address of a group, which is all objects of one key.
#[inline]
pub fn is_group(body: u64) -> bool {
    body & TAG == GROUP
}

/// Whether the body refers to memory: to a block or a group.
#[inline]
pub fn refers(body: u64) -> bool {
    body & SINGLE == 0
}

/// Whether the body is the address of a block.
#[inline]
pub fn is_block(body: u64) -> bool {
    body & TAG == 0
}

/// Whether the body is the address of a block whose elements are changed in place.
#[inline]
pub fn is_changing(body: u64) -> bool {
    body & (TAG | CHANGING) == CHANGING
}

/// The body that refers to a block.
#[inline(always)]
pub(super) fn address(block: Block) -> u64 {
    let view = block.as_ref();
    let words = view.words();
    let size = match view.has_held() {
        true => held_size_bits(words, view.weight()),
        false => size_bits(words),
    };
    word_of(block.into_raw()) | size << ADDRESS_BITS
}

/// What a body stores above the address, for a block of this number of words in which nothing is held or counted.
#[inline(always)]
pub(super) fn size_bits(words: usize) -> u64 {
    match words as u64 {
        words if words < HELD => words,
        _ => 0,
    }
}

/// The same for a block of this weight in which something is held or counted.
#[inline]
pub(super) fn held_size_bits(words: usize, weight: usize) -> u64 {
    let weight = u64::from(weight.div_ceil(LEAST_WEIGHT).next_power_of_two().ilog2());
    match words as u64 {
        words if words <= HELD_WORDS && weight <= MAX_WEIGHT => HELD | weight << WEIGHT_AT | words,
        _ => 0,
    }
}

#[inline(always)]
pub(super) fn word_of(address: NonNull<u64>) -> u64 {
    let address = address.as_ptr() as u64;
    // All blocks and groups are memory of the slab, which has no longer addresses.
    debug_assert!(address >> ADDRESS_BITS == 0);
    address
}

/// The address that a body refers to: of a block, or of a group.
#[inline]
pub fn referent(body: u64) -> *mut u8 {
    (body & ((1 << ADDRESS_BITS) - 1) & !(TAG | CHANGING)) as *mut u8
}

/// The number of words of the block's memory, if the body stores it and nothing in the block is held or counted. So replacing or deleting
/// the object avoids a cache miss.
#[inline]
pub(super) fn words(body: u64) -> Option<usize> {
    let size = body >> ADDRESS_BITS;
    (size.wrapping_sub(1) < HELD - 1).then_some(size as usize)
}

/// The number of words of the block's memory, or 0 if the body does not store it.
#[inline(always)]
pub(super) fn known_words(body: u64) -> u64 {
    let size = body >> ADDRESS_BITS;
    match size & HELD {
        0 => size,
        _ => size & HELD_WORDS,
    }
}

/// The number of words and the weight of a block in which something is held or counted, if the body stores them. The weight is rounded up
/// by less than a factor of two.
#[inline]
pub(super) fn held(body: u64) -> Option<(usize, usize)> {
    let size = body >> ADDRESS_BITS;
    let weight = LEAST_WEIGHT << (size >> WEIGHT_AT & MAX_WEIGHT);
    (size & HELD != 0).then_some(((size & HELD_WORDS) as usize, weight))
}

/// # Safety
/// The body is the address of a block, and the caller has the right to retire it.
#[inline]
pub(super) unsafe fn block_of(body: u64) -> Block {
    // SAFETY: as the caller promises. Addresses of blocks are never null.
    unsafe { Block::from_raw(NonNull::new_unchecked(referent(body).cast())) }
}

/// # Safety
/// If the body refers to a block, that lives for `'a`.
#[inline]
pub(super) unsafe fn block<'a>(body: u64) -> Option<BlockRef<'a>> {
    if !is_block(body) {
        return None;
    }
    // SAFETY: bodies with these low bits are addresses of blocks, never 0.
    Some(unsafe { BlockRef::from_raw(NonNull::new_unchecked(referent(body).cast())) })
}

/// # Safety
/// If the body refers to a block, that lives for `'a`.
#[inline]
pub(super) unsafe fn changing<'a>(body: u64) -> Option<ChangingRef<'a>> {
    is_changing(body).then(|| {
        let words = known_words(body) as usize - 1;
        // SAFETY: bodies of this kind come from `changing_body`.
        unsafe { ChangingRef::from_raw(NonNull::new_unchecked(referent(body).cast()), words) }
    })
}

/// The entry with its body where there is a [seat](cats_engine::seat).
///
/// # Safety
/// The entry was shown under this thread's guard.
#[inline(always)]
pub unsafe fn unseated(entry: Entry) -> Entry {
    if !is_seat(entry.body) {
        return entry;
    }
    // SAFETY: as the caller promises.
    unsafe { behind_seat(entry) }.0
}

/// The same, with the lease, for an entry that has a seat.
///
/// # Safety
/// As for [`unseated`].
#[inline(always)]
pub unsafe fn behind_seat<'a>(entry: Entry) -> (Entry, &'a SharedLease) {
    // SAFETY: as the caller promises. Acquire: in an optimistic read it may be the address of a new block by now.
    unsafe {
        let body = body_of(entry.body).load(Ordering::Acquire);
        (Entry { body, ..entry }, SharedLease::of_cell(cell_of(entry.body)))
    }
}

/// The lease of an object of a table with leases: in its cell if the body is a [seat](cats_engine::seat), otherwise in its block.
///
/// # Safety
/// The body is that of such an object, and the object lives for `'a`.
#[inline(always)]
pub unsafe fn lease_of<'a>(body: u64) -> &'a SharedLease {
    if is_seat(body) {
        // SAFETY: as the caller promises.
        return SharedLease::of_cell(unsafe { cell_of(body) });
    }
    debug_assert!(is_block(body));
    let known = known_words(body);
    // The count of an object that is changed in place stands behind the lease.
    let words = match known {
        // SAFETY: as the caller promises.
        0 => unsafe { block(body) }.expect("a block").words() as u64,
        known => known - u64::from(body & CHANGING != 0),
    };
    // SAFETY: the last word of the block is the lease, which all access as an atomic.
    unsafe { &*referent(body).cast::<SharedLease>().add(words as usize - 1) }
}

/// The own end of such an object, whose lease this is. `None` if there is no word for one.
///
/// # Safety
/// As for [`lease_of`].
#[inline]
pub unsafe fn own_end_of<'a>(body: u64, lease: Lease) -> Option<&'a SharedLease> {
    // SAFETY: as the caller promises. The lease says that it stands there.
    lease
        .has_own_end()
        .then(|| unsafe { &*std::ptr::from_ref(lease_of(body)).sub(1) })
}

/// The word of an element of an object in a block.
///
/// # Safety
/// The object is such an object, lives, and is not linked in any place any more.
#[inline]
pub unsafe fn element_word(body: u64, index: usize) -> u64 {
    // SAFETY: as the caller promises.
    unsafe { block(body) }.expect("a block").elements_raw()[index]
}

/// Prefetches the first cache line of the block or group.
#[inline]
pub fn prefetch(body: u64) {
    cats_sync::prefetch(referent(body).cast_const());
}

/// The number of words of the largest block that is prefetched as a whole.
const PREFETCHED: usize = 64;

/// Prefetches all cache lines of a small block, if the body stores its number of words. So they are all requested at once, before the first
/// one has arrived.
#[inline]
pub(super) fn prefetch_small(body: u64) {
    if let Some(words) = words(body).filter(|words| *words <= PREFETCHED) {
        let at = referent(body).cast_const();
        for word in (0..words).step_by(8).chain([words - 1]) {
            cats_sync::prefetch(at.wrapping_add(8 * word));
        }
    }
}

/// The size in bytes of the block of `body`, minus that of the block of `than`. An inline object has no block.
///
/// # Safety
/// As for [`body_bytes`], for both.
#[inline(always)]
pub unsafe fn more_bytes(body: u64, than: u64) -> i64 {
    let alike = match (is_block(body), is_block(than)) {
        (true, true) => body >> ADDRESS_BITS != 0 && (body ^ than) >> ADDRESS_BITS == 0,
        (one, other) => one == other,
    };
    match alike {
        true => 0,
        // SAFETY: as the caller promises.
        false => unsafe { body_bytes(body) as i64 - body_bytes(than) as i64 },
    }
}

/// The size in bytes of the block that the body refers to. 0 for inline objects.
///
/// # Safety
/// The body is not that of a group, and the object lives.
#[inline(never)]
pub unsafe fn body_bytes(body: u64) -> usize {
    if !is_block(body) {
        return 0;
    }
    match words(body).or(held(body).map(|(words, _)| words)) {
        Some(words) => bytes_of(words),
        // SAFETY: as the caller promises.
        None => unsafe { block(body) }.map_or(0, BlockRef::bytes),
    }
}

/// The same, with the bytes of shared binaries and held terms that the object keeps. Reads the block only if something in it is held or counted.
///
/// # Safety
/// As for [`body_bytes`].
pub unsafe fn memory_of(body: u64) -> usize {
    // SAFETY: as the caller promises.
    unsafe {
        match words(body) {
            None if is_block(body) => body_bytes(body) + block(body).map_or(0, BlockRef::kept_bytes),
            _ => body_bytes(body),
        }
    }
}

/// The number of words of the block from which the object is read, with its elements unpacked. 0 for an inline object.
///
/// # Safety
/// The body is not that of a group, and the object lives.
#[inline]
pub unsafe fn words_to_read(body: u64) -> usize {
    // SAFETY: as the caller promises.
    unsafe { block(body) }.map_or(0, BlockRef::unpacked_words)
}

/// The number of words of the object's block. 0 for an inline object.
///
/// # Safety
/// As for [`words_to_read`].
#[inline]
pub unsafe fn stored_words(body: u64) -> usize {
    // SAFETY: as the caller promises.
    unsafe { block(body) }.map_or(0, BlockRef::words)
}

/// The bytes of an [`OwnedKey`] for the key of an object, 0 if the key is an immediate. A deeply nested key is taken to be as large as the
/// object. `key` is the position of the key.
///
/// # Safety
/// As for [`body_bytes`].
#[inline]
pub unsafe fn owned_key_bytes(body: u64, key: usize) -> usize {
    // SAFETY: as the caller promises.
    match unsafe { block(body) }.map(|block| block.element(key)) {
        // SAFETY: as above.
        Some(key) if !key.is_immediate() => OwnedKey::bytes_for(key, || unsafe { body_bytes(body) }),
        _ => 0,
    }
}
