//! The tests that need a process for themselves: the reaper works at all tables, all threads retire to one place, and the slabs have one
//! source of memory. So one of them runs at a time.

mod common;
mod expiry;
#[cfg(not(direct))]
mod memory;
mod reaper;

use std::sync::{Mutex, PoisonError};
use std::{panic, thread};

/// Runs a test while no other one runs, in a thread that has ended before the next one begins: a thread gives memory back when it ends.
fn alone(test: impl FnOnce() + Send) {
    static TURN: Mutex<()> = Mutex::new(());
    #[cfg(not(direct))]
    memory::set_source();
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let done = thread::scope(|scope| scope.spawn(test).join());
    done.unwrap_or_else(|payload| panic::resume_unwind(payload));
}
