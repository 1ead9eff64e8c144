//! Work in the middle of a write that may be too long for a scheduler: a copy of a large entry. Engines report only that a write did not
//! happen, by [`Busy`]. Here stands why.

use crate::failure::Failure;
use cats_sync::Busy;
use std::cell::Cell;
use std::sync::OnceLock;

/// Whether the present thread may take its time.
static PATIENT: OnceLock<fn() -> bool> = OnceLock::new();

thread_local! {
    /// Whether the last [`Busy`] of this thread means that the work is too long.
    static TOO_LONG: Cell<bool> = const { Cell::new(false) };
}

/// Sets what tells whether the present thread may take its time. The first call counts. Without it, all threads may.
pub fn set_patience(is_patient: fn() -> bool) {
    PATIENT.get_or_init(|| is_patient);
}

pub fn is_patient() -> bool {
    PATIENT.get().is_none_or(|is_patient| is_patient())
}

/// What to fail with when the work is too long for this thread.
#[cold]
pub fn too_long() -> Busy {
    TOO_LONG.set(true);
    Busy
}

/// What a [`Busy`] of this thread means.
#[cold]
pub fn why_busy() -> Failure {
    match TOO_LONG.replace(false) {
        true => Failure::Big,
        false => Failure::Busy,
    }
}
