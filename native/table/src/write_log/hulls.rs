//! Where readers walk in an ordered table: of each the smallest range that has all ranges that it has read.
//!
//! A reader marks what it reads, then widens its hull, and then asks the marks. If nobody had locked a place until then, whoever locks it
//! later finds the key in the hull.

use crate::object::key::Key;
use crate::read_set::RangeRead;
use cats_sync::epoch::Guard;
use cats_sync::facade::{AtomicPtr, AtomicUsize, Ordering};
use std::ptr::null_mut;

/// A writer asks so many hulls at most.
const PLACES: usize = 8;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Hulls {
    /// A bit for each place that is taken.
    taken: AtomicUsize,
    ranges: [AtomicPtr<RangeRead>; PLACES],
}

impl Hulls {
    /// A free place for a hull.
    pub(super) fn take(&self) -> Option<usize> {
        let place = |taken: usize| taken.trailing_ones() as usize;
        let take = |taken: usize| (place(taken) < PLACES).then(|| taken | 1 << place(taken));
        // AcqRel: who had the place before has emptied it.
        let taken = self.taken.fetch_update(Ordering::AcqRel, Ordering::Relaxed, take);
        taken.ok().map(place)
    }

    /// Gives a place back.
    pub(super) fn give_back(&self, guard: &Guard, place: usize) {
        self.put(guard, place, null_mut());
        // Release: the place is empty for the next one.
        self.taken.fetch_and(!(1 << place), Ordering::Release);
    }

    /// Sets the hull at a place. To be followed by [`order`](super::filter::order).
    pub(super) fn set(&self, guard: &Guard, place: usize, range: RangeRead) {
        self.put(guard, place, Box::into_raw(Box::new(range)));
    }

    fn put(&self, guard: &Guard, place: usize, range: *mut RangeRead) {
        // AcqRel: whoever finds the range sees what is in it.
        let before = self.ranges[place].swap(range, Ordering::AcqRel);
        if !before.is_null() {
            // SAFETY: it was unlinked here, and any thread may free it.
            unsafe { guard.retire(before.cast(), 0, free) };
        }
    }

    /// Whether a key is in a hull. To be asked after [`order`](super::filter::order).
    pub(super) fn has(&self, _guard: &Guard, key: impl FnOnce() -> Key) -> bool {
        // Relaxed: see `order`.
        if self.taken.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let key = key();
        self.ranges.iter().any(|range| {
            // Acquire pairs with the swap in `put`.
            let range = range.load(Ordering::Acquire);
            // SAFETY: it is retired through the epoch.
            unsafe { range.as_ref() }.is_some_and(|range| range.has(&key))
        })
    }
}

/// # Safety
/// As `Guard::retire` calls it: the address is that of a range which is the caller's own.
unsafe fn free(range: *mut u8, _: usize) {
    // SAFETY: as the caller promises.
    drop(unsafe { Box::from_raw(range.cast::<RangeRead>()) });
}
