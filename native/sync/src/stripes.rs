//! A counter in stripes, one line a thread group: cheap to change by many threads, exact when read.
//!
//! Each stripe holds two words that only ever grow, so two equal collects of all stripes mean that nothing changed between
//! them, and their sum is the value at that instant (ALGORITHMS section 8, "monotone stripes with double collect").

use crate::facade::{AtomicU64, Ordering};

/// See the module's documentation.
#[derive(Default, Debug)]
pub struct Stripes {
    added: AtomicU64,
    removed: AtomicU64,
}

impl Stripes {
    /// A counter of value zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `amount`, which may be negative.
    #[inline]
    pub fn add(&self, amount: i64) {
        if amount >= 0 {
            self.added.fetch_add(amount as u64, Ordering::Release);
        } else {
            self.removed.fetch_add(amount.unsigned_abs(), Ordering::Release);
        }
    }

    /// The value at one instant during the call.
    pub fn sum(&self) -> i64 {
        self.added
            .load(Ordering::Acquire)
            .wrapping_sub(self.removed.load(Ordering::Acquire)) as i64
    }
}
