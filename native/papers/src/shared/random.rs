//! Random numbers of a thread, for heuristics and treaps. Source: Marsaglia, "Xorshift RNGs", Journal of Statistical
//! Software 2003.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

thread_local! {
    static STATE: Cell<u32> = const { Cell::new(0) };
}

/// A number that no caller can easily predict; never 0.
#[inline]
pub(crate) fn random() -> u32 {
    STATE.with(|state| {
        let mut x = state.get();
        if x == 0 {
            x = seed();
        }
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        state.set(x);
        x
    })
}

/// A different seed for each thread.
#[cold]
fn seed() -> u32 {
    static THREADS: AtomicU32 = AtomicU32::new(1);
    // Relaxed: only uniqueness matters.
    let thread = u64::from(THREADS.fetch_add(1, Relaxed));
    cats_engine::mix(thread) as u32 | 1
}
