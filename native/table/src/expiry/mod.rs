//! What objects that expire need besides the contents that have them: timer wheels, and what wakes the reaper and tells processes.

pub mod notices;
pub(crate) mod wheel;

use cats_sync::barrier;
use cats_sync::facade::{AtomicU64, Ordering};
use std::sync::OnceLock;

/// The time at which the reaper looks again. 0 while it is at work.
pub(crate) static WAKES: AtomicU64 = AtomicU64::new(u64::MAX);

static WAKE: OnceLock<fn()> = OnceLock::new();

/// Sets what wakes the thread that calls [`expire`](crate::due::expire). The first call counts. `wake` is short and takes no lock.
pub fn on_due(wake: fn()) {
    WAKE.get_or_init(|| wake);
}

/// Something may expire at this time.
#[inline]
pub(crate) fn wake_by(time: u64) {
    // Pairs with the barrier in `expire`.
    barrier::light();
    // Relaxed: ordered by the barrier. The load first spares the line a write.
    if WAKES.load(Ordering::Relaxed) > time && WAKES.fetch_min(time, Ordering::Relaxed) > time {
        if let Some(wake) = WAKE.get() {
            wake();
        }
    }
}
