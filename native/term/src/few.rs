//! Terms of few words, to search for: laid out as in a block, in place.

use crate::format::*;
use std::mem::MaybeUninit;

/// Words of a term at most.
const ROOM: usize = 34;

/// Room for one term of the commonest kinds of keys, if it is not too long.
pub struct Few {
    words: [MaybeUninit<u64>; ROOM],
}

impl Few {
    #[inline]
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self {
            words: [const { MaybeUninit::uninit() }; ROOM],
        }
    }

    /// The tuple of these immediates.
    #[inline]
    pub fn tuple(&mut self, elements: &[u64]) -> Option<TermRef<'_>> {
        let places = self.places(header(TUPLE, elements.len()) | FLAT, elements.len())?;
        for (place, word) in places.iter_mut().zip(elements) {
            place.write(*word);
        }
        Some(self.term(TAG_ITEM))
    }

    /// The list of these immediates, at least one.
    #[inline]
    pub fn list(&mut self, elements: impl ExactSizeIterator<Item = u64>) -> Option<TermRef<'_>> {
        let length = elements.len();
        assert!(length > 0);
        let places = self.places(header(LIST, length) | FLAT, length + 1)?;
        for (place, word) in places.iter_mut().zip(elements.chain([NIL])) {
            place.write(word);
        }
        Some(self.term(TAG_LIST))
    }

    /// A binary.
    #[inline]
    pub fn binary(&mut self, bytes: &[u8]) -> Option<TermRef<'_>> {
        let places = self.places(header(BINARY, bytes.len()), bytes.len().div_ceil(8))?;
        for (place, bytes) in places.iter_mut().zip(bytes.chunks(8)) {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            place.write(u64::from_ne_bytes(word));
        }
        Some(self.term(TAG_ITEM))
    }

    /// A float.
    #[inline]
    pub fn float(&mut self, value: f64) -> TermRef<'_> {
        self.words[0].write(header(FLOAT, 0));
        self.words[1].write(value.to_bits());
        self.term(TAG_ITEM)
    }

    /// Writes the header; the places of so many words behind it, which the caller fills.
    #[inline]
    fn places(&mut self, header: u64, count: usize) -> Option<&mut [MaybeUninit<u64>]> {
        let (first, places) = self.words.split_first_mut()?;
        first.write(header);
        places.get_mut(..count)
    }

    #[inline]
    fn term(&self, tag: u64) -> TermRef<'_> {
        // SAFETY: the callers have written a whole item at the start, which stays while it is borrowed.
        unsafe { TermRef::new(self.words.as_ptr().cast(), tag) }
    }
}
