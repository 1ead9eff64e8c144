//! The one door to atomics: `std` in a build; under a model checker `loom` (`--cfg loom`: small models, all executions,
//! weak memory) or `shuttle` (`--cfg shuttle`: whole engines, random schedules, sequentially consistent memory).

#[cfg(loom)]
pub use loom::{
    hint::spin_loop,
    sync::atomic::{
        fence, AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicU8, AtomicUsize, Ordering,
    },
    thread::yield_now,
};
#[cfg(shuttle)]
pub use shuttle::{
    hint::spin_loop,
    sync::atomic::{
        fence, AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicU8, AtomicUsize, Ordering,
    },
    thread::yield_now,
};
#[cfg(not(any(loom, shuttle)))]
pub use std::{
    hint::spin_loop,
    sync::atomic::{
        fence, AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicU8, AtomicUsize, Ordering,
    },
    thread::yield_now,
};

/// Stands between the store and the load, both SeqCst, of a store-load pair. The accesses suffice, but the model
/// checker takes them for weaker than they are, and knows fences.
#[inline]
pub fn store_load_fence() {
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

/// Shows the model checker accesses to plain memory; nothing in a build.
#[cfg(not(loom))]
pub struct Witness(());
#[cfg(loom)]
pub struct Witness(loom::cell::UnsafeCell<()>);

#[allow(clippy::new_without_default)]
impl Witness {
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self(())
    }
    #[cfg(loom)]
    pub fn new() -> Self {
        Self(loom::cell::UnsafeCell::new(()))
    }

    /// To be called at each exclusive access, a free included.
    #[inline]
    pub fn see(&self) {
        #[cfg(loom)]
        self.0.with_mut(|_| ());
    }

    /// To be called at a shared access.
    #[inline]
    pub fn look(&self) {
        #[cfg(loom)]
        self.0.with(|_| ());
    }
}

/// A global whose atomics are made anew for each execution of a model.
macro_rules! global {
    ($(#[$attribute:meta])* static $name:ident: $type:ty = $value:expr;) => {
        #[cfg(not(any(loom, shuttle)))]
        $(#[$attribute])* static $name: $type = $value;
        #[cfg(loom)]
        loom::lazy_static! { $(#[$attribute])* static ref $name: $type = $value; }
        #[cfg(shuttle)]
        shuttle::lazy_static! { $(#[$attribute])* static ref $name: $type = $value; }
    };
}

/// A thread-local without a destructor, so that it can be used until the very end of its thread.
macro_rules! per_thread {
    ($visibility:vis static $name:ident: $type:ty = $value:expr;) => {
        #[cfg(not(any(loom, shuttle)))]
        std::thread_local! { $visibility static $name: $type = const { $value }; }
        #[cfg(loom)]
        loom::thread_local! { $visibility static $name: $type = $value; }
        #[cfg(shuttle)]
        shuttle::thread_local! { $visibility static $name: $type = $value; }
    };
}

pub(crate) use {global, per_thread};
