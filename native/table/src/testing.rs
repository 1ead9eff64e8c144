//! What tests inside of the crate and models under shuttle share.

use cats_sync::facade::yield_now;
use cats_sync::Busy;

/// Runs the model under many schedules. One model at a time: some atomics are of the whole process, and those of shuttle are for one thread.
#[cfg(shuttle)]
pub fn explore(model: impl Fn() + Clone + Send + Sync + 'static) {
    use cats_engine::testing::schedules;
    use std::sync::{Mutex, PoisonError};

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
