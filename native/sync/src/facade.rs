//! The one door to atomics: `std` in a build, `loom` under the model checker (`--cfg loom`).

#[cfg(loom)]
pub use loom::{
    hint::spin_loop,
    sync::atomic::{fence, AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU64, AtomicUsize, Ordering},
    thread::yield_now,
};
#[cfg(not(loom))]
pub use std::{
    hint::spin_loop,
    sync::atomic::{fence, AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU64, AtomicUsize, Ordering},
    thread::yield_now,
};
