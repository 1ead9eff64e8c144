//! The root of a table: a route node, or the base node itself if there is only one.

use super::base::Base;
use super::inner::{Bound, Inner, Parts};
use std::ptr;

/// A pointer to a base node (bit 0 set) or to a route node. Its holder got it from a table under a guard that is still
/// alive, or owns the table. So the nodes are not freed.
pub(super) enum Route<'a, K> {
    One(&'a Base<K>),
    Many(Inner<K>),
}

impl<K: 'static> Route<'_, K> {
    /// # Safety
    /// `word` came from [`one`](Self::one) or is a route node's address. The caller may read the nodes (see [`Route`]).
    #[inline]
    pub unsafe fn from_word(word: *mut u8) -> Self {
        if word.addr() & 1 == 1 {
            // SAFETY: bit 0 says that this is a base node. The caller promises the rest.
            Self::One(unsafe { &*word.map_addr(|address| address & !1).cast() })
        } else {
            // SAFETY: the caller's promise.
            Self::Many(unsafe { Inner::from_address(word) })
        }
    }

    /// The word for a single base node.
    pub fn one(base: *mut u8) -> *mut u8 {
        base.map_addr(|address| address | 1)
    }

    /// The number of base nodes.
    pub fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Many(inner) => inner.len(),
        }
    }

    /// The address of the `i`-th base node.
    pub fn child(&self, i: usize) -> *mut u8 {
        match self {
            Self::One(base) => ptr::from_ref(*base).cast_mut().cast(),
            Self::Many(inner) => inner.child(i),
        }
    }

    /// The separator between the base nodes `i` and `i + 1`.
    pub fn key(&self, i: usize) -> Bound<K> {
        match self {
            Self::One(_) => unreachable!("one base node has no neighbour"),
            Self::Many(inner) => inner.key(i),
        }
    }

    /// A copy of the contents.
    pub fn parts(&self) -> Parts<K> {
        match self {
            Self::One(_) => Parts::single(self.child(0)),
            Self::Many(inner) => inner.parts(),
        }
    }
}
