//! What models under shuttle share.

use cats_engine::testing::schedules;
use cats_sync::facade::yield_now;
use cats_sync::Busy;
use std::sync::{Mutex, PoisonError};

/// Runs the model under many schedules. One model at a time: some atomics are of the whole process, and those of shuttle are for one thread.
pub fn explore(model: impl Fn() + Clone + Send + Sync + 'static) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    schedules::explore(model);
}

/// What a call returns when it gets its lock.
pub fn patiently<R>(mut call: impl FnMut() -> Result<R, Busy>) -> R {
    loop {
        match call() {
            Ok(returned) => return returned,
            Err(Busy) => yield_now(),
        }
    }
}
