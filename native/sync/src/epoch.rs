//! Epoch-based memory reclamation with pins that last one call.
//!
//! A thread that reads shared structures holds a [`Guard`]; memory handed to [`Guard::retire`] is freed when no guard is left
//! that was alive at that moment. Pinning writes one line of the thread's own; the rare reclaimer pays for the order between
//! a reader's announcement and its reads (`membarrier`, or a fence on both sides where the kernel lacks it).

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;

/// Frees one retired object: its address and the number it was retired with.
pub type Drop = unsafe fn(*mut u8, usize);

struct Retired {
    address: *mut u8,
    number: usize,
    drop: Drop,
}

/// Proof that this thread is announced. Must not outlive the call that made it, and does not leave its thread.
pub struct Guard {
    not_send: PhantomData<*mut u8>,
}

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    static BAG: RefCell<Vec<Retired>> = const { RefCell::new(Vec::new()) };
}

/// Announces this thread. Guards nest.
#[inline]
pub fn pin() -> Guard {
    DEPTH.with(|depth| depth.set(depth.get() + 1));
    Guard { not_send: PhantomData }
}

impl Guard {
    /// Hands over `address`, already unlinked, to be freed by `drop(address, number)` once nobody can read it.
    ///
    /// # Safety
    /// The object is unreachable for guards made from now on, is retired once, and `drop` may run on any thread.
    #[inline]
    pub unsafe fn retire(&self, address: *mut u8, number: usize, drop: Drop) {
        BAG.with(|bag| bag.borrow_mut().push(Retired { address, number, drop }));
    }
}

impl core::ops::Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        DEPTH.with(|depth| depth.set(depth.get() - 1));
    }
}
