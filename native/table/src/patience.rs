//! Why a write did not happen. Engines report only that it did not, by [`Busy`]. There are other reasons. Work in the middle of the
//! write may be too long for a scheduler, such as a copy of a large entry. The table may be full, or a snapshot.

use crate::failure::{Cause, Failure};
use cats_sync::Busy;
use std::cell::Cell;
use std::sync::OnceLock;

/// Whether the present thread may take its time.
static PATIENT: OnceLock<fn() -> bool> = OnceLock::new();

thread_local! {
    /// What the last [`Busy`] of this thread means.
    static WHY: Cell<Failure> = const { Cell::new(Failure::Busy) };
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
    WHY.set(Failure::Big);
    Busy
}

/// What to fail with when the table is full and nothing can be evicted.
#[cold]
pub fn full() -> Busy {
    WHY.set(Failure::Full);
    Busy
}

/// What to fail with when the table's limit is smaller than what is put.
#[cold]
pub fn too_large() -> Busy {
    WHY.set(Failure::TooLarge);
    Busy
}

/// What to fail with when the table is a snapshot.
#[cold]
pub fn frozen() -> Busy {
    WHY.set(Failure::Bad(Cause::Snapshot));
    Busy
}

/// What a [`Busy`] of this thread means.
#[cold]
fn why_busy() -> Failure {
    WHY.replace(Failure::Busy)
}

impl From<Busy> for Failure {
    fn from(_: Busy) -> Self {
        why_busy()
    }
}
