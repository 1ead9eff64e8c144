//! How many objects with large binaries wait to be freed when no reader is there. The only test of its process.

use cats_sync::epoch::pin;
use cats_term::kept_weight;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

static FREED: AtomicUsize = AtomicUsize::new(0);

unsafe fn count(_: *mut u8, _: usize) {
    FREED.fetch_add(1, SeqCst);
}

/// The most bytes that wait while so many objects are retired that keep so many bytes.
fn most_waiting(objects: usize, bytes: usize) -> usize {
    let before = FREED.load(SeqCst);
    let waiting = |retired| {
        // SAFETY: `count` frees nothing.
        unsafe { pin().retire_sized(ptr::null_mut(), 0, count, kept_weight(bytes)) };
        (before + retired - FREED.load(SeqCst)) * bytes
    };
    (1..=objects).map(waiting).max().unwrap_or(0)
}

#[test]
fn large_binaries_are_freed_at_once_and_small_ones_in_numbers() {
    assert!(most_waiting(500, 1 << 20) < 1 << 20);
    assert!(most_waiting(500, 256 << 10) < 1 << 20);
    // A barrier of all processors for each of them would cost more than to free them.
    assert!(most_waiting(1000, 1 << 10) >= 100 << 10);
    assert!((1..1 << 30).step_by(1000).all(|bytes| kept_weight(bytes) >= bytes / 8));
}
