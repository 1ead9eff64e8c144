//! The preferred transaction: one that has failed several times. What it has read is reserved, see [`write_log`](crate::write_log).
//!
//! Its keeper is a process that stands for it. The process that is inside of its function may not write to the transaction's tables from
//! outside of it. Such a write makes the transaction fail again, and cannot be taken back. Its tables have a bit in their state, so calls on
//! other tables need not look.

use cats_sync::facade::{AtomicU64, Ordering};

/// The word of the keeper's pid, or 0.
static KEEPER: AtomicU64 = AtomicU64::new(0);

/// The word of the process' pid, or 0. All accesses are relaxed: the process itself sees what it has written. Others only look whether there
/// is such a process, and do so again under a lock.
static PROCESS: AtomicU64 = AtomicU64::new(0);

/// Prefers the transaction of this keeper, whose function the process begins. Returns false if another one is preferred.
pub fn begin(keeper: u64, process: u64) -> bool {
    // AcqRel: nothing but the word itself is passed on. Its order with locks does not matter.
    let begun = KEEPER.compare_exchange(0, keeper, Ordering::AcqRel, Ordering::Relaxed);
    if begun.is_ok() {
        PROCESS.store(process, Ordering::Relaxed);
    }
    begun.is_ok()
}

/// Prefers the transaction of this keeper no more.
pub fn dismiss(keeper: u64) {
    // AcqRel: as in `begin`.
    let dismissed = KEEPER.compare_exchange(keeper, 0, Ordering::AcqRel, Ordering::Relaxed);
    if dismissed.is_ok() {
        // Another one may be preferred by now. Then its writes from outside are not found.
        PROCESS.store(0, Ordering::Relaxed);
    }
}

/// The keeper of the transaction that is preferred, or 0.
#[inline]
pub fn keeper() -> u64 {
    // Relaxed: a commit that does not see the word yet counts as one that began before.
    KEEPER.load(Ordering::Relaxed)
}

/// The function of this process has ended.
pub fn end(process: u64) {
    if is_inside(process) {
        PROCESS.store(0, Ordering::Relaxed);
    }
}

/// Whether this process is inside.
#[inline]
pub fn is_inside(process: u64) -> bool {
    PROCESS.load(Ordering::Relaxed) == process
}

/// Whether no process is inside.
pub fn is_nobody_inside() -> bool {
    is_inside(0)
}
