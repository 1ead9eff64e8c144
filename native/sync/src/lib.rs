//! Synchronisation for table structures: version locks, memory reclamation, striped counters and a slab allocator.
//!
//! This crate does not know terms or the Erlang VM. All atomics come through [`facade`], so that a model checker can
//! replace them. No function parks a thread. A wait spins for a bounded time and then returns [`Busy`]. Then the caller
//! lets its scheduler run other processes before it tries again.

pub mod backoff;
pub mod barrier;
pub mod cache_line;
pub mod caller;
pub mod clock;
pub mod epoch;
pub mod events;
pub mod facade;
pub mod probe;
pub mod recorder;
pub mod seqlock;
pub mod slab;
pub mod stat_lock;
pub mod stripes;
pub mod tally;
mod thread;
pub mod trace;
pub mod try_cell;
pub mod version_lock;

#[cfg(not(all(target_pointer_width = "64", target_endian = "little")))]
compile_error!("cats needs a processor with 64-bit addresses and little-endian words");

/// Prefetches the cache line of an address, which may be any address. Does nothing where this is not known how.
#[inline]
pub fn prefetch<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(portable)))]
    // SAFETY: a prefetch of any address only affects caches.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(portable)))]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(readonly, nostack, preserves_flags));
    }
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(portable))))]
    let _ = address;
}

/// Another thread held a lock for longer than a bounded spin. Nothing was done. Try again after letting others run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;
