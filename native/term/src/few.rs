//! Terms of few words, to search for: laid out as in a block, in place.

use crate::format::*;
use std::mem::MaybeUninit;

/// Words of a term at most.
const ROOM: usize = 64;

/// Room for one term of the commonest kinds of keys, if it is not too long. Items are added as to a builder: parents first, each
/// method giving the word that stands for the item, or nothing when there is no room left.
pub struct Few {
    words: [MaybeUninit<u64>; ROOM],
    used: usize,
}

impl Few {
    #[inline]
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self {
            words: [const { MaybeUninit::uninit() }; ROOM],
            used: 0,
        }
    }

    /// A tuple of these elements, and whether all are immediates; those that are not must be [set](Self::set) again.
    #[inline]
    pub fn tuple(&mut self, elements: &[u64]) -> Option<(u64, bool)> {
        let (at, places) = self.item(header(TUPLE, elements.len()), elements.len())?;
        let mut tags = !0;
        for (place, word) in places.iter_mut().zip(elements) {
            // SAFETY: a reference. Volatile: the compiler makes no call of a copy of so few.
            let word = unsafe { (&raw const *word).read_volatile() };
            place.write(word);
            tags &= word;
        }
        let is_flat = is_immediate(tags);
        if is_flat {
            self.words[at].write(header(TUPLE, elements.len()) | FLAT);
        }
        Some(((at as u64) << 2 | TAG_ITEM, is_flat))
    }

    /// Sets an element of a tuple or a list to an item that was added after it.
    #[inline]
    pub fn set(&mut self, item: u64, element: usize, word: u64) {
        let place = (item >> 2) as usize + 1 + element;
        assert!(place < (word >> 2) as usize && (word >> 2) < self.used as u64);
        self.words[place].write(word);
    }

    /// The proper list of these elements, at least one, with how many there are, and whether all are immediates; those that are not must be
    /// [set](Self::set) again.
    #[inline]
    pub fn list(&mut self, elements: impl Iterator<Item = u64>) -> Option<(u64, usize, bool)> {
        let at = self.used;
        let mut places = self.words.get_mut(at..)?.iter_mut();
        let first = places.next()?;
        let (mut tags, mut length) = (!0, 0);
        for element in elements {
            places.next()?.write(element);
            tags &= element;
            length += 1;
        }
        assert!(length > 0);
        let is_flat = is_immediate(tags);
        first.write(header(PROPER_LIST, length) | if is_flat { FLAT } else { 0 });
        self.used = at + 1 + length;
        Some(((at as u64) << 2 | TAG_LIST, length, is_flat))
    }

    /// Element `index` of an item, as it was given.
    #[inline]
    pub fn element(&self, item: u64, index: usize) -> u64 {
        let place = (item >> 2) as usize + 1 + index;
        assert!(place < self.used);
        // SAFETY: up to `used` all words were written.
        unsafe { self.words[place].assume_init() }
    }

    /// A binary.
    #[inline]
    pub fn binary(&mut self, bytes: &[u8]) -> Option<u64> {
        let (at, places) = self.item(header(BINARY, bytes.len()), bytes.len().div_ceil(8))?;
        let (whole, rest) = bytes.as_chunks::<8>();
        for (place, bytes) in places.iter_mut().zip(whole) {
            place.write(u64::from_ne_bytes(*bytes));
        }
        if let Some(place) = places.get_mut(whole.len()) {
            place.write(padded(rest));
        }
        Some((at as u64) << 2 | TAG_ITEM)
    }

    /// A reference that is nothing but these words of the VM, its header among them.
    #[inline]
    pub fn reference(&mut self, words: &[u64]) -> Option<u64> {
        debug_assert!(words.len() == REFERENCE_WORDS && words[0] == PLAIN_REFERENCE);
        let (at, places) = self.item(PLAIN_REFERENCE, REFERENCE_WORDS - 1)?;
        for (place, word) in places.iter_mut().zip(&words[1..]) {
            place.write(*word);
        }
        Some((at as u64) << 2 | TAG_ITEM)
    }

    /// An integer of this sign and magnitude, which is no immediate: its digits, least first.
    #[inline]
    pub fn integer(&mut self, negative: bool, digits: &[u64]) -> Option<u64> {
        let kind = if negative { INTEGER_NEGATIVE } else { INTEGER_POSITIVE };
        let (at, places) = self.item(header(kind, digits.len()), digits.len())?;
        for (place, digit) in places.iter_mut().zip(digits) {
            place.write(*digit);
        }
        Some((at as u64) << 2 | TAG_ITEM)
    }

    /// A float.
    #[inline]
    pub fn float(&mut self, value: f64) -> Option<u64> {
        let (at, places) = self.item(header(FLOAT, 0), 1)?;
        places[0].write(value.to_bits());
        Some((at as u64) << 2 | TAG_ITEM)
    }

    /// Adds a header, and places for so many words behind it, which the caller fills.
    #[inline]
    fn item(&mut self, header: u64, count: usize) -> Option<(usize, &mut [MaybeUninit<u64>])> {
        let at = self.used;
        let (first, places) = self.words.get_mut(at..)?.split_first_mut()?;
        let places = places.get_mut(..count)?;
        first.write(header);
        self.used = at + 1 + count;
        Some((at, places))
    }

    /// The item of this word, as the methods gave it, once its elements are set.
    #[inline]
    pub fn term(&self, word: u64) -> TermRef<'_> {
        assert!((word >> 2) < self.used as u64 && !is_immediate(word));
        // SAFETY: whole items were written, which stay while they are borrowed.
        unsafe { TermRef::new(self.words.as_ptr().cast(), word) }
    }
}
