//! A record for each thread that uses these structures, by the index of its slot in [`cats_sync::epoch`]. While the thread is pinned,
//! nobody else has that index. Records are never freed, and a later thread with the index has the record too.

use cats_sync::epoch::Guard;
use cats_sync::facade::{global, AtomicPtr, Ordering};
use std::ptr;

/// Hazard pointers of a thread.
pub(crate) const HAZARDS: usize = if cfg!(loom) { 8 } else { 104 };
/// Records that are made at once.
const CHUNK: usize = if cfg!(any(loom, shuttle)) { 1 } else { 64 };

/// What other threads may read of a thread. Aligned to a pair of cache lines, so that no two threads write to the same pair.
#[repr(align(128))]
pub(crate) struct Record {
    /// The lock under which the thread is reading. See [`crate::lock::ets_pointer`]. Only the owner writes it.
    pub ets_pointer: AtomicPtr<()>,
    /// The thread's spare queue node. See [`crate::lock::cc_synch`]. Only the owner uses it.
    pub combining_node: AtomicPtr<()>,
    /// What the thread has announced to [`crate::hazard`]. Only the owner writes it.
    pub hazards: [AtomicPtr<u8>; HAZARDS],
}

struct Chunk {
    records: [Record; CHUNK],
    next: AtomicPtr<Chunk>,
}

global! {
    static FIRST: AtomicPtr<Chunk> = AtomicPtr::new(ptr::null_mut());
}

/// The chunk behind a link.
#[inline]
fn follow(link: &AtomicPtr<Chunk>) -> Option<&'static Chunk> {
    // SeqCst: a thread that finds no chunk, after a fence of its own, may go on. Then the later loads of the threads with records
    // there see that thread's earlier stores. The Acquire part pairs with the Release part of `add`: the records are initialised.
    let chunk = link.load(Ordering::SeqCst);
    // SAFETY: chunks are never freed.
    unsafe { chunk.as_ref() }
}

/// The record of the thread that holds the guard.
#[inline]
pub(crate) fn own(guard: &Guard) -> &'static Record {
    let mut index = guard.slot_index();
    let mut link: &AtomicPtr<Chunk> = &FIRST;
    loop {
        let chunk = follow(link).unwrap_or_else(|| add(link));
        if let Some(record) = chunk.records.get(index) {
            return record;
        }
        index -= CHUNK;
        link = &chunk.next;
    }
}

/// Adds a chunk behind a link, unless another thread does so first.
#[cold]
fn add(link: &AtomicPtr<Chunk>) -> &'static Chunk {
    let new = Box::into_raw(Box::new(Chunk {
        records: std::array::from_fn(|_| Record {
            ets_pointer: AtomicPtr::new(ptr::null_mut()),
            combining_node: AtomicPtr::new(ptr::null_mut()),
            hazards: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
        }),
        next: AtomicPtr::new(ptr::null_mut()),
    }));
    // SeqCst, both: as in `follow`.
    match link.compare_exchange(ptr::null_mut(), new, Ordering::SeqCst, Ordering::SeqCst) {
        // SAFETY: chunks in the list are never freed.
        Ok(_) => unsafe { &*new },
        Err(other) => {
            // SAFETY: made above, and not published.
            drop(unsafe { Box::from_raw(new) });
            // SAFETY: as above.
            unsafe { &*other }
        }
    }
}

/// All records, including those without an owner.
pub(crate) fn records() -> impl Iterator<Item = &'static Record> {
    std::iter::successors(follow(&FIRST), |chunk| follow(&chunk.next)).flat_map(|chunk| &chunk.records)
}
