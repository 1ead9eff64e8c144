//! Asymmetric barriers: they order a store before a load on a frequent and on a rare side, and only the rare side pays.
//!
//! The frequent side stores, calls [`light`] and loads. The rare side stores, calls [`heavy`] and loads. Then at least
//! one of them sees the other's store. `heavy` makes every running thread of the process execute a full barrier (Linux
//! `membarrier`, PRIVATE_EXPEDITED). If the system does not support that, with `--cfg portable`, and under a model checker,
//! both barriers are sequentially consistent fences.

use crate::facade::{fence, Ordering};

#[cfg(all(target_os = "linux", not(any(loom, shuttle, portable))))]
mod kernel {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::Once;

    /// Written once, by `prepare`, before any thread has called `light`.
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

#[cfg(not(all(target_os = "linux", not(any(loom, shuttle, portable)))))]
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

/// The model checker does not switch threads at a fence, but it does at an access. This access is common to all
/// barriers, and orders nothing that the fences do not.
#[cfg(loom)]
mod model {
    use crate::facade::{global, AtomicUsize, Ordering};

    global! {
        static SWITCH: AtomicUsize = AtomicUsize::new(0);
    }

    pub fn switch() {
        // Relaxed: it orders nothing.
        SWITCH.fetch_add(1, Ordering::Relaxed);
    }
}

/// Chooses the form of both barriers. Each thread calls it before its first barrier. Only the first call has an effect.
pub(crate) fn prepare() {
    kernel::prepare();
}

/// Whether [`light`] needs no instruction, which never changes. Then [`light_if_free`] may replace it. Call it after
/// [`prepare`].
pub(crate) fn is_light_free() -> bool {
    kernel::asymmetric()
}

/// [`light`] for a caller that knows that it needs no instruction.
#[inline]
pub(crate) fn light_if_free() {
    // SeqCst: no store moves below a later load. Restrains the compiler, not the processor.
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// The frequent side's barrier between its store and its loads. It needs no instruction if `heavy` can do the work.
#[inline]
pub fn light() {
    if kernel::asymmetric() {
        light_if_free();
    } else {
        // SeqCst pairs with the fence of `heavy`.
        fence(Ordering::SeqCst);
    }
}

/// The rare side's barrier between its store and its loads. A system call, which takes microseconds at most. False if
/// the kernel had no memory for it: then nothing is ordered.
#[must_use]
pub fn heavy() -> bool {
    let asymmetric = kernel::asymmetric();
    // The fence orders this thread itself, whatever the kernel does for the caller.
    // SeqCst pairs with the fence of `light`.
    fence(Ordering::SeqCst);
    !asymmetric || kernel::run()
}
