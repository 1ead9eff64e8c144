//! The one door to atomics: `std` in a build, `loom` under the model checker (`--cfg loom`).

#[cfg(loom)]
pub use loom::{
    hint::spin_loop,
    sync::atomic::{fence, AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU64, AtomicU8, AtomicUsize, Ordering},
    thread::yield_now,
};
#[cfg(not(loom))]
pub use std::{
    hint::spin_loop,
    sync::atomic::{fence, AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU64, AtomicU8, AtomicUsize, Ordering},
    thread::yield_now,
};

/// A global whose atomics are made anew for each execution of a model.
macro_rules! global {
    ($(#[$attribute:meta])* $visibility:vis static $name:ident: $type:ty = $value:expr;) => {
        #[cfg(not(loom))]
        $(#[$attribute])* $visibility static $name: $type = $value;
        #[cfg(loom)]
        loom::lazy_static! { $(#[$attribute])* $visibility static ref $name: $type = $value; }
    };
}

/// A thread-local without a destructor, so that it can be used until the very end of its thread.
macro_rules! per_thread {
    ($visibility:vis static $name:ident: $type:ty = $value:expr;) => {
        #[cfg(not(loom))]
        std::thread_local! { $visibility static $name: $type = const { $value }; }
        #[cfg(loom)]
        loom::thread_local! { $visibility static $name: $type = $value; }
    };
}

pub(crate) use {global, per_thread};
