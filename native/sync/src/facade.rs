//! All atomics of the project come through this module. They are those of `std` in a build. Under a model checker they
//! are those of `loom` (`--cfg loom`: small models, all executions, weak memory) or `shuttle` (`--cfg shuttle`: whole
//! engines, random schedules, sequentially consistent memory).

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

/// Between the store and the load of a store-load pair. Both are SeqCst, which suffices. But the model checker treats
/// SeqCst accesses as weaker than they are, while it models fences.
#[inline]
pub fn store_load_fence() {
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

/// Reports accesses to plain memory to the model checker. No code in a build.
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

    /// Call it at each exclusive access, including a free.
    #[inline]
    pub fn see(&self) {
        #[cfg(loom)]
        self.0.with_mut(|_| ());
    }

    /// Call it at each shared access.
    #[inline]
    pub fn look(&self) {
        #[cfg(loom)]
        self.0.with(|_| ());
    }
}

#[cfg(loom)]
pub use loom::lazy_static;
#[cfg(shuttle)]
pub use shuttle::lazy_static;

/// A global whose atomics are new for each execution of a model.
#[macro_export]
macro_rules! global {
    ($(#[$attribute:meta])* static $name:ident: $type:ty = $value:expr;) => {
        #[cfg(not(any(loom, shuttle)))]
        $(#[$attribute])* static $name: $type = $value;
        #[cfg(loom)]
        $crate::facade::lazy_static! { $(#[$attribute])* static ref $name: $type = $value; }
        #[cfg(shuttle)]
        $crate::facade::lazy_static! { $(#[$attribute])* static ref $name: $type = $value; }
    };
}

/// A thread-local without a destructor, which can be used until the very end of its thread.
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

pub use global;
pub(crate) use per_thread;
