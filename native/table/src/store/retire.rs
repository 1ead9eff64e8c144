//! How contents are freed that nobody has any more: small ones at once, others by the reaper.

use super::Store;
use crate::failure::Failure;
use crate::garbage::{Expected, Garbage, ReapProcess, PLACES};
use cats_sync::epoch::Guard;
use cats_sync::probe;
use cats_sync::slab::Own;
use cats_sync::trace::{self, Event, Kind};

/// Objects in contents, and bytes of them, that are freed at once.
const SMALL_OBJECTS: usize = 64;
const SMALL_BYTES: usize = 16 * 1024;

/// Frees what a table or a snapshot contained once nobody reads it.
///
/// # Safety
/// No table and no snapshot has the store any more, and nobody finds it. The reaper does not expire its objects.
pub unsafe fn retire_store(guard: &Guard, store: *mut Store) {
    unsafe fn free(store: *mut u8, expected: usize) {
        // SAFETY: retired once, and nobody uses it any more. The flag is that of below.
        unsafe { free_store(store.cast(), (expected != 0).then(|| Expected::from_raw())) }
    }
    // SAFETY: the store is retired here only.
    unsafe {
        let (expected, bytes) = expectation_of(&*store);
        guard.retire_sized(
            store.cast(),
            expected.map(Expected::into_raw).is_some().into(),
            free,
            bytes,
        );
    }
}

/// The reaper's expectation of contents that will be retired, if they are for the reaper, and their bytes.
pub fn expectation_of(store: &Store) -> (Option<Expected>, usize) {
    let (objects, bytes) = (store.size(), store.total_bytes());
    let large = objects > SMALL_OBJECTS || bytes > SMALL_BYTES;
    if large {
        probe!(retire_contents, store.engine_address(), objects, bytes);
        trace::record(|| {
            Event::new(
                Kind::RetireContents,
                store.trace_address(),
                [objects as u64, bytes as u64],
            )
        });
    }
    (large.then(Expected::new), bytes)
}

impl Garbage for Own<Store> {
    fn step(&mut self, _reap: ReapProcess<'_>) -> Result<bool, Failure> {
        let done = self.dismantle(PLACES);
        if done {
            probe!(reclaim_contents, self.engine_address());
            trace::record(|| Event::new(Kind::ReclaimContents, self.trace_address(), [0, 0]));
        }
        Ok(!done)
    }
}

/// Frees a store, a small one at once, one that the reaper expects by way of the reaper. If it has snapshots, the last of them retires it.
///
/// # Safety
/// Nobody uses it any more but its snapshots.
pub unsafe fn free_store(store: *mut Store, expected: Option<Expected>) {
    // SAFETY: the caller's promise.
    if !unsafe { &*store }.history().give_up() {
        return;
    }
    // SAFETY: the caller's promise.
    let mut store = unsafe { Own::from_raw(store) };
    if expected.is_none() && store.dismantle(2 * SMALL_OBJECTS) {
        return;
    }
    // Without an expectation, it has grown since it was retired.
    expected.unwrap_or_else(Expected::new).enqueue(store);
}
