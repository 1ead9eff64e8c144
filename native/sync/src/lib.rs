//! Synchronisation for table structures: version locks, memory reclamation, striped counters and slabs.
//!
//! Nothing here knows of terms or of the Erlang VM. All atomics come through [`facade`], so that a model checker can take
//! their place. Nothing here ever parks a thread: a wait spins a bounded time and then reports [`Busy`], and the caller lets
//! its scheduler run somebody else before it tries again. (In the queues of some [`lock`]s a thread waits for its turn, and yields
//! the processor meanwhile.)

pub mod backoff;
mod barrier;
pub mod bucket_lock;
pub mod epoch;
pub mod facade;
pub mod hazard;
pub mod lock;
pub mod seqlock;
pub mod slab;
pub mod stat_lock;
pub mod stat_rw_lock;
pub mod stripes;
mod thread;
pub mod version_lock;

/// Asks the processor for the cache line of an address, of whatever memory: nothing is read that could be seen.
#[inline]
pub fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address has no effect but on caches.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// A lock was held by another thread for longer than a bounded spin. Nothing was done; try again after letting others run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;
