//! Synchronisation for table structures: version locks, memory reclamation, striped counters and a slab allocator.
//!
//! This crate does not know terms or the Erlang VM. All atomics come through [`facade`], so that a model checker can
//! replace them. No function parks a thread. A wait spins for a bounded time and then returns [`Busy`]. Then the caller
//! lets its scheduler run other processes before it tries again. One exception: in the queues of some [`lock`]s a
//! thread waits for its turn, and yields the processor meanwhile.

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

/// Prefetches the cache line of an address, which may be any address.
#[inline]
pub fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address only affects caches.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Another thread held a lock for longer than a bounded spin. Nothing was done. Try again after letting others run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;
