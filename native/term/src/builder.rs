//! Building terms: children are added after their parents, whose slots are filled in any order.
//!
//! What is built can be used in place, as a key to search for, or copied into a [`Block`] of its own.

use crate::block::Block;
use crate::format::*;
use smallvec::SmallVec;

/// A buffer in which one block at a time is built.
///
/// The first item is the outermost tuple. Words that the methods return are put into slots of items of the same block; a
/// slot that is not set is `[]`. Held terms are only borrowed here: [`finish`](Self::finish) retains them.
#[derive(Default)]
pub struct Builder {
    words: SmallVec<[u64; FEW]>,
    /// Whether there are held items.
    held: bool,
}

/// Words that are built without allocating memory.
const FEW: usize = 128;

/// A tuple, list or map whose slots can be set.
#[derive(Clone, Copy, Debug)]
pub struct Item {
    at: usize,
    tag: u64,
}

impl Item {
    /// The word that stands for the item.
    #[inline]
    pub fn word(self) -> u64 {
        (self.at as u64) << 2 | self.tag
    }
}

impl Builder {
    #[inline]
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets what was built.
    #[inline]
    pub fn clear(&mut self) {
        self.words.clear();
        self.held = false;
    }

    /// Words built so far.
    #[inline]
    pub fn words(&self) -> usize {
        self.words.len()
    }

    #[inline]
    fn item(&mut self, header: u64) -> usize {
        self.words.push(header);
        self.words.len() - 1
    }

    #[inline]
    fn reserve(&mut self, header: u64, slots: usize, tag: u64) -> Item {
        let at = self.item(header | FLAT);
        self.words.resize(at + 1 + slots, NIL);
        Item { at, tag }
    }

    /// Adds a tuple; the first one is the block's outermost. Panics above [`MAX_ARITY`].
    #[inline]
    pub fn tuple(&mut self, arity: usize) -> Item {
        assert!(arity <= MAX_ARITY);
        self.reserve(header(TUPLE, arity), arity, TAG_ITEM)
    }

    /// Adds a tuple with these elements; words that are no immediates must be [set](Self::set) again.
    #[inline]
    pub fn filled_tuple(&mut self, elements: &[u64]) -> Item {
        assert!(elements.len() <= MAX_ARITY);
        let at = self.item(header(TUPLE, elements.len()) | FLAT);
        self.words.extend_from_slice(elements);
        Item { at, tag: TAG_ITEM }
    }

    /// Adds a list of `length` elements, not 0, whose tail is `[]`.
    #[inline]
    pub fn proper_list(&mut self, length: usize) -> Item {
        assert!(length > 0);
        self.reserve(header(PROPER_LIST, length), length, TAG_LIST)
    }

    /// Adds a list of `length` elements, not 0 (the empty list is the immediate [`NIL`]). Slot `length` is the tail.
    #[inline]
    pub fn list(&mut self, length: usize) -> Item {
        assert!(length > 0);
        self.reserve(header(LIST, length), length + 1, TAG_LIST)
    }

    /// Adds a map of `pairs` pairs: slots 0 to `pairs - 1` are the keys, in the VM's order of iteration, the next `pairs`
    /// slots the values.
    #[inline]
    pub fn map(&mut self, pairs: usize) -> Item {
        self.reserve(header(MAP, pairs), 2 * pairs, TAG_ITEM)
    }

    /// Sets slot `slot`, counted from 0: an immediate, or a word that a method of this builder returned for this block.
    #[inline]
    pub fn set(&mut self, item: Item, slot: usize, word: u64) {
        debug_assert!(slot < slots(self.words[item.at]));
        debug_assert!(is_immediate(word) || (word >> 2) as usize > item.at);
        self.words[item.at + 1 + slot] = word;
        if !is_immediate(word) {
            self.words[item.at] &= !FLAT;
        }
    }

    /// The slots of an item, for those that fill them at once; words that are no immediates must be [set](Self::set) again.
    #[inline]
    pub fn slots(&mut self, item: Item) -> &mut [u64] {
        let count = slots(self.words[item.at]);
        &mut self.words[item.at + 1..][..count]
    }

    /// The word in a slot.
    #[inline]
    pub fn slot(&self, item: Item, slot: usize) -> u64 {
        debug_assert!(slot < slots(self.words[item.at]));
        self.words[item.at + 1 + slot]
    }

    /// Begins a list whose length is not known yet. Nothing but [`push`](Self::push) until it is [closed](Self::close_list).
    #[inline]
    pub fn open_list(&mut self) -> Item {
        let at = self.item(header(LIST, 0) | FLAT);
        Item { at, tag: TAG_LIST }
    }

    /// Adds an element to the open list; a word that is no immediate must be [set](Self::set) again once it is closed.
    #[inline]
    pub fn push(&mut self, word: u64) {
        self.words.push(word);
    }

    /// Ends an open list of one or more elements with a tail, as for [`push`](Self::push).
    #[inline]
    pub fn close_list(&mut self, list: Item, tail: u64) {
        let length = self.words.len() - list.at - 1;
        assert!(length > 0);
        if tail == NIL {
            self.words[list.at] = header(PROPER_LIST, length) | FLAT;
            return;
        }
        self.words.push(tail);
        self.words[list.at] = header(LIST, length) | FLAT;
    }

    /// Adds a float.
    #[inline]
    pub fn float(&mut self, value: f64) -> u64 {
        let at = self.item(header(FLOAT, 0));
        self.words.push(value.to_bits());
        (at as u64) << 2 | TAG_ITEM
    }

    /// Adds an integer by sign and magnitude, 64-bit digits, least first; leading zeros do no harm. The result is an
    /// immediate if the value fits one.
    pub fn integer(&mut self, negative: bool, magnitude: &[u64]) -> u64 {
        let length = magnitude
            .iter()
            .rposition(|&digit| digit != 0)
            .map_or(0, |last| last + 1);
        let digits = &magnitude[..length];
        let signed = match digits {
            [] => Some(0),
            [digit] if negative => 0i64.checked_sub_unsigned(*digit),
            [digit] => i64::try_from(*digit).ok(),
            _ => None,
        };
        if let Some(word) = signed.and_then(small) {
            return word;
        }
        let at = self.item(header(
            if negative { INTEGER_NEGATIVE } else { INTEGER_POSITIVE },
            length,
        ));
        self.words.extend_from_slice(digits);
        (at as u64) << 2 | TAG_ITEM
    }

    /// Adds an integer.
    #[inline]
    pub fn integer_i64(&mut self, value: i64) -> u64 {
        small(value).unwrap_or_else(|| self.integer(value < 0, &[value.unsigned_abs()]))
    }

    /// Adds a binary whose bytes are stored in the block.
    pub fn binary(&mut self, bytes: &[u8]) -> u64 {
        let at = self.item(header(BINARY, bytes.len()));
        self.words.resize(at + 1 + bytes.len().div_ceil(8), 0);
        // SAFETY: the new words are at least as long as the bytes, which are not part of them.
        unsafe {
            let data = self.words.as_mut_ptr().add(at + 1).cast::<u8>();
            data.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        (at as u64) << 2 | TAG_ITEM
    }

    #[inline]
    fn add_held(&mut self, header: u64, term: u64, place: u64) -> u64 {
        let at = self.item(header);
        self.words.extend_from_slice(&[term, place]);
        self.held = true;
        (at as u64) << 2 | TAG_ITEM
    }

    /// Adds a binary whose bytes stay where they are.
    ///
    /// # Safety
    /// `term` is the VM's word of a reference-counted binary with these bytes; it lives as long as this builder's content is
    /// used, and copies of it that the host retains share the bytes.
    pub unsafe fn shared_binary(&mut self, term: u64, bytes: &[u8]) -> u64 {
        self.add_shared_binary(term, 0, bytes)
    }

    fn add_shared_binary(&mut self, term: u64, place: u64, bytes: &[u8]) -> u64 {
        let word = self.add_held(header(SHARED_BINARY, bytes.len()), term, place);
        self.words.push(bytes.as_ptr() as u64);
        word
    }

    /// Adds a term that stays in the VM's form. Tuples, lists and maps stay so only where they are nested deeper than 64 levels in
    /// the block (normalized keys end above that).
    ///
    /// # Safety
    /// `term` is a word of the VM, of this class and no immediate, that lives as long as this builder's content is used.
    pub unsafe fn held(&mut self, class: Class, term: u64) -> u64 {
        self.add_held(header(HELD, class as usize), term, 0)
    }

    /// Adds a copy of a term of another block, whose held terms must live as long as this builder's content is used.
    ///
    /// The depth of the recursion is that of the term: at most the 64 levels that terms are stored with.
    pub fn copy(&mut self, term: TermRef<'_>) -> u64 {
        match term.view() {
            View::Immediate(word) => word,
            View::Tuple(elements) => {
                let item = self.tuple(elements.len());
                self.copy_slots(item, 0, elements)
            }
            View::List(list) if list.tail().word() == NIL => {
                let item = self.proper_list(list.elements().len());
                self.copy_slots(item, 0, list.elements())
            }
            View::List(list) => {
                let item = self.list(list.elements().len());
                self.copy_slots(item, 0, list.elements());
                let tail = self.copy(list.tail());
                self.set(item, list.elements().len(), tail);
                item.word()
            }
            View::Map(map) => {
                let item = self.map(map.keys.len());
                self.copy_slots(item, 0, map.keys);
                self.copy_slots(item, map.keys.len(), map.values)
            }
            View::Float(value) => self.float(value),
            View::Integer(integer) => self.integer(integer.negative, integer.digits),
            View::Binary(bytes) => self.binary(bytes),
            View::SharedBinary(held, bytes) => self.add_shared_binary(held.term(), held.place(), bytes),
            View::Held(class, held) => self.add_held(header(HELD, class as usize), held.term(), held.place()),
        }
    }

    fn copy_slots(&mut self, item: Item, first: usize, elements: Elements<'_>) -> u64 {
        for (i, element) in elements.iter().enumerate() {
            let word = self.copy(element);
            self.set(item, first + i, word);
        }
        item.word()
    }

    /// The outermost tuple, in place.
    #[inline]
    pub fn root(&self) -> TermRef<'_> {
        assert!(!self.words.is_empty());
        // SAFETY: the methods keep the content a well-formed block, and it cannot change while it is borrowed.
        unsafe { TermRef::new(self.words.as_ptr(), TAG_ITEM) }
    }

    /// The first element of the outermost tuple: the term, if this is a key to search for.
    #[inline]
    pub fn as_key(&self) -> TermRef<'_> {
        match self.root().view() {
            View::Tuple(elements) => elements.get(0),
            _ => unreachable!("the first item is a tuple"),
        }
    }

    /// Makes a block of what was built, retaining its held terms, and clears the builder. Nothing when memory is exhausted or
    /// the block would have more than 2^32 words.
    pub fn finish(&mut self) -> Option<Block> {
        assert!(!self.words.is_empty());
        if self.held {
            self.words[0] |= HAS_HELD;
        }
        let block = u32::try_from(self.words.len()).ok().and_then(|total| {
            self.words[0] |= (total as u64) << 32;
            // SAFETY: the content is a well-formed block, with its total in the header.
            unsafe { Block::from_words(&self.words) }
        });
        if let (Some(block), true) = (&block, self.held) {
            block.retain_held();
        }
        self.clear();
        block
    }
}
