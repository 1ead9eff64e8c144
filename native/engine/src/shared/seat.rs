//! Cells and seats. In a table with cells there is a word beside each entry, its *cell*. The engine stores it and moves it with the entry, and
//! knows nothing of its meaning.
//!
//! Such a table shows a *seat* in place of a body: a word that tells where the body and the cell are. Whoever puts an entry gives the seat of
//! two words of its own. So entries have two words everywhere, and a table without cells does nothing for them.
//!
//! A seat refers to memory that the guard keeps, but perhaps to another entry's words later on. After an optimistic read it holds as long as
//! that is valid, otherwise as long as the place is locked.

use crate::Entry;
use cats_sync::facade::{AtomicU64, Ordering};
use std::ptr;

/// The low bits of a seat.
const SEAT: u64 = 0b101;
const TAG: u64 = 0b111;

/// Whether a body is a seat.
#[inline(always)]
pub fn is_seat(body: u64) -> bool {
    body & TAG == SEAT
}

/// The seat of a body, whose cell is the next word.
#[inline(always)]
pub fn seat(body: &AtomicU64) -> u64 {
    ptr::from_ref(body).expose_provenance() as u64 | SEAT
}

/// The body to which a seat refers.
///
/// # Safety
/// The guard under which the seat was shown, or the [`Staged`] of which it is, lives for `'a`.
#[inline(always)]
pub unsafe fn body_of<'a>(seat: u64) -> &'a AtomicU64 {
    debug_assert!(is_seat(seat));
    // SAFETY: a seat is made of such an address, and its memory lives as the caller promises.
    unsafe { &*ptr::with_exposed_provenance((seat & !TAG) as usize) }
}

/// The cell to which a seat refers.
///
/// # Safety
/// As for [`body_of`].
#[inline(always)]
pub unsafe fn cell_of<'a>(seat: u64) -> &'a AtomicU64 {
    // SAFETY: as in `body_of`. The cell is the next word.
    unsafe { &*ptr::from_ref(body_of(seat)).add(1) }
}

/// A body and a cell that are in no table.
#[derive(Default)]
#[repr(C)]
pub struct Staged {
    body: AtomicU64,
    cell: AtomicU64,
}

impl Staged {
    /// The two words to which a seat refers.
    ///
    /// # Safety
    /// It is the seat of such words.
    #[inline]
    pub unsafe fn address(seat: u64) -> *mut Self {
        // SAFETY: as the caller promises. The body comes first.
        unsafe { ptr::from_ref(body_of(seat)).cast_mut().cast() }
    }

    /// Sets both, and returns their seat.
    #[inline]
    pub fn seat(&self, body: u64, cell: u64) -> u64 {
        // Relaxed, for both: only the caller's thread uses them.
        self.body.store(body, Ordering::Relaxed);
        self.cell.store(cell, Ordering::Relaxed);
        seat(&self.body)
    }
}

/// An entry as it is stored, and the value of its cell. 0 in a table without cells.
#[derive(Clone, Copy)]
pub struct Stored {
    pub entry: Entry,
    pub cell: u64,
}

impl Stored {
    /// What is stored for an entry that is put into a table, which may have cells.
    #[inline(always)]
    pub fn of(entry: Entry, cells: bool) -> Self {
        if !cells {
            return Self { entry, cell: 0 };
        }
        // SAFETY: whoever puts a seat holds what it refers to: words of its own, or of a place that it has locked.
        let (body, cell) = unsafe { (body_of(entry.body), cell_of(entry.body)) };
        // Relaxed, for both: as above.
        let (body, cell) = (body.load(Ordering::Relaxed), cell.load(Ordering::Relaxed));
        Self {
            entry: Entry { body, ..entry },
            cell,
        }
    }
}
