//! Asymmetric barriers: the store-load order between a frequent and a rare side, paid by the rare one.
//!
//! If the frequent side stores, runs [`light`] and loads, and the rare side stores, runs [`heavy`] and loads, then at least one
//! of them sees the other's store. `heavy` makes every running thread of the process execute a full
//! barrier (Linux `membarrier`, PRIVATE_EXPEDITED); where the kernel does not offer it, and under the model checker, both sides
//! are a sequentially consistent fence.

use crate::facade::{fence, Ordering};

#[cfg(all(target_os = "linux", not(any(loom, shuttle))))]
mod kernel {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::Once;

    /// Written once, by `prepare`, before any thread has run `light`.
    static ASYMMETRIC: AtomicBool = AtomicBool::new(false);
    static PREPARED: Once = Once::new();

    fn membarrier(command: libc::c_int) -> bool {
        // SAFETY: the call takes two integers and changes no memory.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0) == 0 }
    }

    pub fn prepare() {
        PREPARED.call_once(|| {
            let registered = membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
                && membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED);
            // Relaxed: `Once` orders it before everything that a thread does after its own `prepare`.
            ASYMMETRIC.store(registered, Ordering::Relaxed);
        });
    }

    #[inline]
    pub fn asymmetric() -> bool {
        // Relaxed: see `prepare`.
        ASYMMETRIC.load(Ordering::Relaxed)
    }

    pub fn run() -> bool {
        membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
    }
}

#[cfg(not(all(target_os = "linux", not(any(loom, shuttle)))))]
mod kernel {
    pub fn prepare() {}
    pub fn asymmetric() -> bool {
        #[cfg(loom)]
        super::model::switch();
        false
    }
    pub fn run() -> bool {
        false
    }
}

/// The model checker does not take a fence for a place where threads may be switched; an access that all barriers have in common
/// is one, and orders nothing that the fences do not.
#[cfg(loom)]
mod model {
    use crate::facade::{global, AtomicUsize, Ordering};

    global! {
        static SWITCH: AtomicUsize = AtomicUsize::new(0);
    }

    pub fn switch() {
        SWITCH.fetch_add(1, Ordering::Relaxed);
    }
}

/// Chooses the form of both barriers. Each thread calls it before its first barrier; only the first call does something.
pub(crate) fn prepare() {
    kernel::prepare();
}

/// Whether [`light`] needs no instruction, for good, so that [`light_if_free`] does. After [`prepare`].
pub(crate) fn is_light_free() -> bool {
    kernel::asymmetric()
}

/// [`light`] for who knows that it is free.
#[inline]
pub(crate) fn light_if_free() {
    // The processor may still reorder; the compiler may not.
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// The frequent side's barrier between its store and its loads: free where `heavy` can do the work.
#[inline]
pub(crate) fn light() {
    if kernel::asymmetric() {
        light_if_free();
    } else {
        fence(Ordering::SeqCst);
    }
}

/// The rare side's barrier between its store and its loads; false when the kernel had no memory for it, and nothing is
/// ordered. A system call of 0.1 to some microseconds.
#[must_use]
pub(crate) fn heavy() -> bool {
    let asymmetric = kernel::asymmetric();
    // The fence orders this thread itself, whatever the kernel does for its caller.
    fence(Ordering::SeqCst);
    !asymmetric || kernel::run()
}
