//! The tests that need a process for themselves: the reaper works at all tables, all threads retire to one place, and the slabs have one
//! source of memory. So one of them runs at a time.

mod common;
mod expiry;
#[cfg(not(direct))]
mod memory;
mod reaper;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Each test has it while it runs.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    #[cfg(not(direct))]
    memory::set_source();
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
