//! Keys outside of the engines, in an order in which two are equal if they are the same key in their table.

use crate::object::schema::{exact_order, OwnedKey};
use cats_term::{compare, TermRef};
use std::cmp::Ordering;

/// A key as the table compares it.
pub(crate) struct Key {
    term: TermRef<'static>,
    /// To which the term refers. `None` in a key that is only sought.
    own: Option<OwnedKey>,
    ordered: bool,
}

// SAFETY: the term refers to memory of this key. A key that is sought stays on its thread.
unsafe impl Send for Key {}
// SAFETY: as above. A key does not change.
unsafe impl Sync for Key {}

impl Key {
    /// A copy of a key.
    pub(crate) fn own(term: TermRef<'_>, ordered: bool) -> Self {
        let own = OwnedKey::new(term);
        Self {
            // SAFETY: the value that owns the term has this one.
            term: unsafe { std::mem::transmute::<TermRef<'_>, TermRef<'static>>(own.probe().term()) },
            own: Some(own),
            ordered,
        }
    }

    /// The bytes of its memory.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.own.as_ref().map_or(0, OwnedKey::bytes)
    }

    /// A key that is sought. It must not outlive the term.
    pub(crate) fn sought(term: TermRef<'_>, ordered: bool) -> Self {
        Self {
            // SAFETY: the callers drop the key before the term ends.
            term: unsafe { std::mem::transmute::<TermRef<'_>, TermRef<'static>>(term) },
            own: None,
            ordered,
        }
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        match self.ordered {
            true => compare(self.term, other.term),
            false => exact_order(self.term, other.term),
        }
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Key {}
