//! Turns at a lock that threads fight for.
//!
//! Where two threads take the same lock again and again, each call brings the lines of the lock and of what it protects from the
//! other's caches. A thread that finds the same lock held twice in a row backs off for a while. Meanwhile the other thread finds
//! the lines in its cache. A thread that finds a lock held now and then tries again at once. That is the case where keys spread
//! over many locks. Source: Radovic, Hagersten, "Hierarchical backoff locks for nonuniform communication architectures", HPCA
//! 2003; each processor's caches stand for the node.

use crate::facade::{per_thread, spin_loop};
use std::cell::Cell;

/// A turn in spins: about a microsecond, some twenty sections.
const SPINS: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 64 };

per_thread! {
    // Where this thread last met a lock held.
    static LAST: Cell<usize> = Cell::new(0);
}

/// To be called where a lock was met held, before it is tried again. `place` names what it protects: its address, or a hash.
#[cold]
pub fn back_off(place: usize) {
    if LAST.with(|last| last.replace(place)) == place {
        (0..SPINS).for_each(|_| spin_loop());
    }
}
