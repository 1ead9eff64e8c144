//! The process that is inside the function of a transaction which has failed several times, and alone may commit.
//!
//! It may not write from outside of the transaction to tables that the transaction uses: such a write makes the transaction fail again, and
//! cannot be taken back. Its tables have a bit in their state, so calls on other tables need not look.

use cats_sync::facade::{AtomicU64, Ordering};

/// The word of the process' pid, or 0. All accesses are relaxed: the process itself sees what it has written. Others only look whether there
/// is such a process, and do so again under a lock.
static PROCESS: AtomicU64 = AtomicU64::new(0);

/// The function begins.
pub fn begin(process: u64) {
    PROCESS.store(process, Ordering::Relaxed);
}

/// The function of this process has ended.
pub fn end(process: u64) {
    if is(process) {
        end_any();
    }
}

/// The function has ended, whichever process it was.
pub fn end_any() {
    PROCESS.store(0, Ordering::Relaxed);
}

/// Whether this process is inside.
#[inline]
pub fn is(process: u64) -> bool {
    PROCESS.load(Ordering::Relaxed) == process
}

/// Whether no process is inside.
pub fn is_none() -> bool {
    is(0)
}
