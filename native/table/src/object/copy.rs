//! Copies of entries for snapshots: of what a key had, or a tombstone if it had nothing.
//!
//! A tombstone of an immediate key is a body of its own. That of another key is a tuple with the key at its position, where engines look for
//! it, and [`BOTTOM`] everywhere else. One element stands behind the key.

use crate::object::group::{Group, KeyPlace, GROUP_LIMIT};
use crate::object::schema::Probe;
use crate::object::{
    address, block, block_of, body_bytes, changing, free_body, is_block, is_changing, is_group, lease_of, own_end_of,
    size_bits, unseated, word_of, Copies, ObjectRef, ADDRESS_BITS, COPY_LIMIT,
};
use cats_engine::seat::is_seat;
use cats_engine::Entry;
use cats_sync::epoch::Guard;
use cats_term::lease::SharedLease;
use cats_term::{Block, Builder, BOTTOM};
use std::iter;

/// The body of a tombstone whose key is an immediate. No other body has these low bits.
const TOMBSTONE: u64 = 0b1001;

/// Whether the body is that of a tombstone.
///
/// # Safety
/// What the body refers to lives.
#[inline]
pub unsafe fn is_tombstone(body: u64) -> bool {
    if body == TOMBSTONE {
        return true;
    }
    // SAFETY: as the caller promises.
    let block = unsafe { block(body) }.filter(|_| !is_changing(body));
    block.is_some_and(|block| block.arity() > 1 && block.element(block.arity() - 1).word() == BOTTOM)
}

/// The body of a tombstone for a key, whose position is `key`. `None` when memory is exhausted.
pub fn tombstone(probe: &Probe<'_>, key: usize) -> Option<u64> {
    if probe.term().is_immediate() {
        return Some(TOMBSTONE);
    }
    let mut builder = Builder::new();
    let root = builder.tuple(key + 2);
    builder.slots(root).fill(BOTTOM);
    let word = builder.copy(probe.term());
    builder.set(root, key, word);
    builder.finish().map(address)
}

/// Whether this thread may copy what the body refers to, which is no seat.
///
/// # Safety
/// The place of the body is locked.
pub unsafe fn may_copy(body: u64) -> bool {
    if is_group(body) {
        // SAFETY: as the caller promises.
        let group = unsafe { Group::from_body(body) };
        // SAFETY: as above.
        return GROUP_LIMIT.admits(group.count()) && COPY_LIMIT.admits(unsafe { group.bytes() } / 8);
    }
    // SAFETY: as the caller promises.
    unsafe { block(body) }.is_none_or(|block| COPY_LIMIT.admits(block.words()))
}

/// A copy of all objects of an entry, whose memory is the copy's own. None of them is changed in place. `None` when memory is exhausted.
///
/// # Safety
/// The place of the entry is locked. `leased` says whether its table has leases.
pub unsafe fn copied(guard: &Guard, entry: Entry, key: usize, leased: bool) -> Option<u64> {
    if is_seat(entry.body) {
        // SAFETY: as the caller promises.
        return unsafe { copied_beside(guard, entry, key) };
    }
    if !is_group(entry.body) {
        // SAFETY: as the caller promises.
        return unsafe { copied_object(guard, entry.body, leased) };
    }
    let place = KeyPlace {
        word: entry.key,
        place: key,
    };
    // SAFETY: as the caller promises, the group and its objects live. The copies are this function's own.
    unsafe {
        let mut copies = Vec::new();
        Group::from_body(entry.body).each(|body| {
            let copy = copied_object(guard, body, leased);
            copies.extend(copy);
            copy.is_some()
        });
        let whole = copies.len() == Group::from_body(entry.body).count();
        let (body, rest) = match copies[..] {
            [only] if whole => return Some(only),
            [first, second, ..] if whole => (Group::of_two(place, first, second, copies.len() - 2), &copies[2..]),
            _ => (None, &copies[..0]),
        };
        let Some(body) = body else {
            copies.iter().for_each(|copy| free_body(*copy));
            return None;
        };
        let group = Group::from_body(body);
        let inserted = rest
            .iter()
            .take_while(|copy| group.insert(guard, place, **copy))
            .count();
        if inserted < rest.len() {
            rest[inserted..].iter().for_each(|copy| free_body(*copy));
            crate::object::group::free_entry(body);
            return None;
        }
        Some(body)
    }
}

/// The same for an entry with a seat. The copy has its lease in its block.
///
/// # Safety
/// As for [`copied`].
unsafe fn copied_beside(guard: &Guard, entry: Entry, key: usize) -> Option<u64> {
    // SAFETY: as the caller promises.
    let (entry, lease) = unsafe { (unseated(entry), lease_of(entry.body).load()) };
    // SAFETY: as above.
    let copy = match unsafe {
        (
            copied_object(guard, entry.body, false)?,
            ObjectRef::stored(entry, key).flat(),
        )
    } {
        // SAFETY: the copy is this function's own.
        (body, _) if is_block(body) => unsafe { block_of(body) }.leased(lease, None, guard),
        (_, Some(words)) => Block::flat_leased(words, lease, None, guard),
        _ => unreachable!("an object without a block is flat"),
    };
    copy.map(address)
}

/// The same for the body of one object.
///
/// # Safety
/// As for [`copied`].
unsafe fn copied_object(guard: &Guard, body: u64, leased: bool) -> Option<u64> {
    if !is_block(body) {
        return Some(body);
    }
    // SAFETY: as the caller promises.
    unsafe {
        if let Some(object) = changing(body) {
            // The place is locked, so no change is in progress, and nobody reads the elements but this copy.
            return object.in_place().with_elements(iter::empty()).map(address);
        }
        let copy = block(body)?.with_elements(iter::empty())?;
        if !leased {
            return Some(address(copy));
        }
        // Relaxed: readers may move the deadline, which makes no difference here.
        let lease = lease_of(body).load();
        let end = own_end_of(body, lease).map(SharedLease::load);
        copy.leased(lease, end, guard).map(address)
    }
}

/// The bytes of a copy.
///
/// # Safety
/// The copy lives, and nobody changes it.
pub unsafe fn copied_bytes(body: u64) -> usize {
    // SAFETY: as the caller promises.
    unsafe {
        match is_group(body) {
            true => Group::from_body(body).bytes(),
            false => body_bytes(body),
        }
    }
}

/// The entry with an object that does not change, for a reader of the live table: an object that is changed in place is copied. The copy
/// lives as long as the thread's present guards. One with a seat has no lease any more.
///
/// # Safety
/// As for [`ObjectRef::new`], except that the body may be that of a group, which stays as it is.
#[inline]
pub unsafe fn stable(entry: Entry) -> Entry {
    // SAFETY: as the caller promises.
    unsafe {
        let entry = unseated(entry);
        match is_changing(entry.body) {
            false => entry,
            true => stable_copy(entry),
        }
    }
}

/// # Safety
/// As for [`stable`].
#[cold]
unsafe fn stable_copy(entry: Entry) -> Entry {
    // SAFETY: as the caller promises.
    let copy = unsafe { changing(entry.body).map(|object| Copies::new(object.words()).copy(object)) };
    let Some(ObjectRef::Block(block)) = copy else {
        unreachable!("an object that is changed in place")
    };
    let body = word_of(block.address()) | size_bits(block.words()) << ADDRESS_BITS;
    Entry { key: entry.key, body }
}
