//! Building terms. Children are added after their parents, and a parent's slots are filled in any order.
//!
//! What is built is used in place, as a key to search for, or is copied into a [`Block`] of its own.

use crate::block::{copy_words, write_bytes, Block, BlockRef, CountedFun};
use crate::compact;
use crate::format::*;
use cats_sync::epoch;
use cats_sync::slab;
use smallvec::SmallVec;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::NonNull;

/// A buffer in which one block at a time is built.
///
/// The first item is the outermost tuple. The methods return words. A word may be put into a slot of an item of the same block. A slot that
/// is not set is `[]`. What is held or counted is only borrowed here: [`finish`](Self::finish) retains it.
pub struct Builder<'a> {
    /// The first word: of the room that was given, or of `heap`.
    words: NonNull<u64>,
    used: usize,
    room: usize,
    /// Memory for terms that do not fit the room.
    heap: Vec<u64>,
    /// Whether there are held or counted items.
    held: bool,
    /// Whether there are packed items.
    packed: bool,
    given: PhantomData<&'a mut [MaybeUninit<u64>]>,
}

// SAFETY: the memory that the builder points to is its own, or is borrowed by this builder alone.
unsafe impl Send for Builder<'_> {}
// SAFETY: as above. Nothing is changed through a shared reference.
unsafe impl Sync for Builder<'_> {}

/// Room on the stack for the words of a builder, or of a [draft](crate::draft).
pub struct Room<const WORDS: usize>(pub(crate) [MaybeUninit<u64>; WORDS]);

impl<const WORDS: usize> Room<WORDS> {
    #[inline]
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; WORDS])
    }
}

impl Default for Builder<'_> {
    #[inline]
    fn default() -> Self {
        Self::new()
    }
}

/// The least number of words for which memory is allocated.
const LEAST: usize = 256;

/// A tuple, list or map whose slots can be set.
#[derive(Clone, Copy, Debug)]
pub struct Item {
    at: usize,
    tag: u64,
}

impl Item {
    /// The item that a word stands for.
    #[inline]
    pub fn of(word: u64) -> Self {
        Self {
            at: (word >> 2) as usize,
            tag: word & TAG_MASK,
        }
    }

    /// The word that stands for the item.
    #[inline]
    pub fn word(self) -> u64 {
        (self.at as u64) << 2 | self.tag
    }
}

impl<'a> Builder<'a> {
    /// A builder that uses only memory of its own.
    #[inline]
    pub const fn new() -> Self {
        Self {
            words: NonNull::dangling(),
            used: 0,
            room: 0,
            heap: Vec::new(),
            held: false,
            packed: false,
            given: PhantomData,
        }
    }

    /// A builder that uses `room` as long as the term fits there, and memory of its own beyond that.
    #[inline]
    pub fn within<const WORDS: usize>(room: &'a mut Room<WORDS>) -> Self {
        Self::over(&mut room.0)
    }

    /// The same for memory of any length.
    #[inline]
    pub(crate) fn over(memory: &'a mut [MaybeUninit<u64>]) -> Self {
        Self {
            room: memory.len(),
            words: NonNull::from(memory).cast(),
            ..Self::new()
        }
    }

    /// Forgets what was built.
    #[inline]
    pub fn clear(&mut self) {
        self.used = 0;
        self.held = false;
        self.packed = false;
    }

    /// Words built so far.
    #[inline]
    pub fn words(&self) -> usize {
        self.used
    }

    /// What was built.
    #[inline]
    fn built(&self) -> &[u64] {
        // SAFETY: the first `used` words are written.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.used) }
    }

    #[inline]
    fn built_mut(&mut self) -> &mut [u64] {
        // SAFETY: as above, and the builder is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_ptr(), self.used) }
    }

    /// Makes `count` more words part of what is built. The caller writes them at once.
    #[inline]
    fn add(&mut self, count: usize) -> NonNull<u64> {
        if self.room - self.used < count {
            self.grow(count);
        }
        // SAFETY: there is room, as was made sure above.
        let at = unsafe { self.words.add(self.used) };
        self.used += count;
        at
    }

    #[cold]
    fn grow(&mut self, count: usize) {
        let room = (2 * (self.used + count)).max(LEAST);
        let mut heap = Vec::new();
        slab::needed(heap.try_reserve_exact(room).ok());
        heap.extend_from_slice(self.built());
        self.heap = heap;
        // SAFETY: a vector's address is not null.
        self.words = unsafe { NonNull::new_unchecked(self.heap.as_mut_ptr()) };
        self.room = room;
    }

    /// Adds a word.
    #[inline]
    fn word(&mut self, word: u64) {
        // SAFETY: the place is new.
        unsafe { self.add(1).write(word) }
    }

    /// Adds words that lie outside the builder.
    #[inline]
    fn append(&mut self, words: &[u64]) {
        let at = self.add(words.len());
        // SAFETY: the places are new.
        unsafe { copy_words(words, at) }
    }

    #[inline]
    fn item(&mut self, header: u64) -> usize {
        let at = self.used;
        self.word(header);
        at
    }

    #[inline]
    fn reserve(&mut self, header: u64, slots: usize, tag: u64) -> Item {
        let at = self.item(header | FLAT);
        let places = self.add(slots);
        for slot in 0..slots {
            // SAFETY: one of the new places.
            unsafe { places.add(slot).write(NIL) }
        }
        Item { at, tag }
    }

    /// Adds a tuple. The first one is the block's outermost tuple. Panics above [`MAX_ARITY`].
    #[inline]
    pub fn tuple(&mut self, arity: usize) -> Item {
        assert!(arity <= MAX_ARITY);
        self.reserve(header(TUPLE, arity), arity, TAG_ITEM)
    }

    /// Adds a tuple with these elements. Words that are not immediates must be [set](Self::set) again.
    #[inline]
    pub fn filled_tuple(&mut self, elements: &[u64]) -> Item {
        assert!(elements.len() <= MAX_ARITY);
        self.filled(header(TUPLE, elements.len()), elements, &[])
    }

    /// Adds a map of these pairs, which are in the VM's order of iteration. Words as for [`filled_tuple`](Self::filled_tuple).
    #[inline]
    pub fn filled_map(&mut self, keys: &[u64], values: &[u64]) -> Item {
        assert_eq!(keys.len(), values.len());
        self.filled(header(MAP, keys.len()), keys, values)
    }

    #[inline]
    fn filled(&mut self, header: u64, first: &[u64], then: &[u64]) -> Item {
        let at = self.used;
        let places = self.add(1 + first.len() + then.len());
        // SAFETY: the places are new.
        unsafe {
            places.write(header | FLAT);
            copy_words(first, places.add(1));
            copy_words(then, places.add(1 + first.len()));
        }
        Item { at, tag: TAG_ITEM }
    }

    /// Adds a list of `length` elements whose tail is `[]`. `length` is not 0.
    #[inline]
    pub fn proper_list(&mut self, length: usize) -> Item {
        assert!(length > 0);
        self.reserve(header(PROPER_LIST, length), length, TAG_LIST)
    }

    /// Adds a list of `length` elements. `length` is not 0, as the empty list is the immediate [`NIL`]. Slot `length` is the tail.
    #[inline]
    pub fn list(&mut self, length: usize) -> Item {
        assert!(length > 0);
        self.reserve(header(LIST, length), length + 1, TAG_LIST)
    }

    /// Adds a map of `pairs` pairs. The first `pairs` slots are the keys, in the VM's order of iteration. The next `pairs` slots are the
    /// values.
    #[inline]
    pub fn map(&mut self, pairs: usize) -> Item {
        self.reserve(header(MAP, pairs), 2 * pairs, TAG_ITEM)
    }

    /// Adds a fun with these [words](Fun::words). Its slots are the environment, with words as for [`filled_tuple`](Self::filled_tuple).
    /// A fun of immediates that looks the same in the VM is added by [`same`](Self::same).
    pub fn filled_fun(&mut self, env: &[u64], words: [u64; 2]) -> Item {
        let item = self.filled(header(FUN, env.len()), env, &[]);
        self.append(&words);
        item
    }

    /// Adds a fun whose references are counted.
    pub fn counted_fun(&mut self, fun: CountedFun<'_>) -> u64 {
        let at = self.item(header(COUNTED_FUN, fun.env.len()));
        self.append(&fun.words);
        self.append(fun.env);
        self.held = true;
        (at as u64) << 2 | TAG_ITEM
    }

    /// Adds the [nodes](Map::nodes) of a map's tree. The map is what was added last. Does nothing if the map is too large for that.
    pub fn nodes(&mut self, map: Item, nodes: &[u64]) {
        let header = self.built()[map.at];
        let pairs = slots(header) / 2;
        debug_assert!(map.at + 1 + 2 * pairs == self.used);
        if pairs <= TREE_LIMIT && nodes.len() <= TREE_LIMIT {
            self.built_mut()[map.at] = tree_map_header(pairs, nodes.len()) | header & FLAT;
            self.append(nodes);
        }
    }

    /// Like [`map`](Self::map), with pairs in any order.
    #[inline]
    pub fn unordered_map(&mut self, pairs: usize) -> Item {
        self.reserve(header(UNORDERED_MAP, pairs), 2 * pairs, TAG_ITEM)
    }

    /// Sets a slot, counted from 0. `word` is an immediate, or a word that a method of this builder returned for this block.
    #[inline]
    pub fn set(&mut self, item: Item, slot: usize, word: u64) {
        let built = self.built_mut();
        debug_assert!(slot < slots(built[item.at]));
        debug_assert!(is_immediate(word) || (word >> 2) as usize > item.at);
        built[item.at + 1 + slot] = word;
        if !is_immediate(word) {
            built[item.at] &= !FLAT;
        }
    }

    /// The slots of an item, to be filled at once. Words that are not immediates must be [set](Self::set) again.
    #[inline]
    pub fn slots(&mut self, item: Item) -> &mut [u64] {
        let built = self.built_mut();
        let count = slots(built[item.at]);
        &mut built[item.at + 1..][..count]
    }

    /// The word in a slot.
    #[inline]
    pub fn slot(&self, item: Item, slot: usize) -> u64 {
        debug_assert!(slot < slots(self.built()[item.at]));
        self.built()[item.at + 1 + slot]
    }

    /// Begins a list of unknown length. Until it is [closed](Self::close_list), only [`push`](Self::push) and [`push_all`](Self::push_all)
    /// may be called.
    #[inline]
    pub fn open_list(&mut self) -> Item {
        let at = self.item(header(LIST, 0) | FLAT);
        Item { at, tag: TAG_LIST }
    }

    /// Adds an element to the open list. A word that is not an immediate must be [set](Self::set) again after the list is closed.
    #[inline]
    pub fn push(&mut self, word: u64) {
        self.word(word);
    }

    /// Adds elements to the open list until `next` returns `None` or `most` words are built. Elements as for [`push`](Self::push).
    #[inline(always)]
    pub fn push_all(&mut self, most: usize, mut next: impl FnMut() -> Option<u64>) {
        while self.used < most {
            if self.used == self.room {
                self.grow(1);
            }
            // The loop keeps the number of words in a register. In the builder's memory, each element would depend on the store before it.
            let (words, end) = (self.words, self.room.min(most));
            let mut used = self.used;
            while used < end {
                let Some(word) = next() else {
                    self.used = used;
                    return;
                };
                // SAFETY: there is room, as `used` is below `end`.
                unsafe { words.add(used).write(word) };
                used += 1;
            }
            self.used = used;
        }
    }

    /// Ends an open list of at least one element. The tail is as for [`push`](Self::push). Returns the number of the list's slots.
    #[inline]
    pub fn close_list(&mut self, list: Item, tail: u64) -> usize {
        let length = self.used - list.at - 1;
        assert!(length > 0);
        if tail == NIL {
            self.built_mut()[list.at] = header(PROPER_LIST, length) | FLAT;
            return length;
        }
        self.word(tail);
        self.built_mut()[list.at] = header(LIST, length) | FLAT;
        length + 1
    }

    /// Adds a float.
    #[inline]
    pub fn float(&mut self, value: f64) -> u64 {
        let at = self.item(header(FLOAT, 0));
        self.word(value.to_bits());
        (at as u64) << 2 | TAG_ITEM
    }

    /// Adds an integer, given by its sign and the 64-bit digits of its magnitude, least digit first. Leading zeros are allowed. The result
    /// is an immediate if the value fits.
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
        self.append(digits);
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
        let places = self.add(bytes.len().div_ceil(8));
        // SAFETY: the places are new, and there are enough for the bytes.
        unsafe { write_bytes(bytes, places) }
        (at as u64) << 2 | TAG_ITEM
    }

    /// Adds a plain reference, an alias, or a fun of immediates, given by its words in the VM, including the header.
    #[inline]
    pub fn same(&mut self, words: &[u64]) -> u64 {
        debug_assert!(words.len() == item_words(words[0]));
        let at = self.used;
        self.append(words);
        (at as u64) << 2 | TAG_ITEM
    }

    #[inline]
    fn add_held(&mut self, header: u64, term: u64, place: u64) -> u64 {
        let at = self.item(header);
        self.word(term);
        self.word(place);
        self.held = true;
        (at as u64) << 2 | TAG_ITEM
    }

    /// Adds a binary whose bytes stay where they are.
    ///
    /// # Safety
    /// `term` is the VM's word of a reference-counted binary with these bytes. The term lives as long as this builder's content is used. If
    /// the host retains copies of the term, they share the bytes.
    pub unsafe fn shared_binary(&mut self, term: u64, bytes: &[u8]) -> u64 {
        self.add_shared_binary(term, 0, bytes)
    }

    fn add_shared_binary(&mut self, term: u64, place: u64, bytes: &[u8]) -> u64 {
        let word = self.add_held(header(SHARED_BINARY, bytes.len()), term, place);
        self.word(bytes.as_ptr() as u64);
        word
    }

    /// Adds a binary whose bytes stay where they are. They lie in a binary of the VM whose record is at this address.
    ///
    /// # Safety
    /// Somebody has a counted reference to that binary as long as this builder's content is used.
    pub unsafe fn counted_binary(&mut self, record: u64, bytes: &[u8]) -> u64 {
        self.add_counted_binary(record, bytes)
    }

    fn add_counted_binary(&mut self, record: u64, bytes: &[u8]) -> u64 {
        let at = self.item(header(COUNTED_BINARY, bytes.len()));
        self.word(record);
        self.word(bytes.as_ptr() as u64);
        self.held = true;
        (at as u64) << 2 | TAG_ITEM
    }

    /// Adds a held term. Tuples, lists and maps are held only where they are nested too deep. Normalized keys end above that depth.
    ///
    /// # Safety
    /// `term` is a word of the VM of this class, and no immediate. The term lives as long as this builder's content is used.
    pub unsafe fn held(&mut self, class: Class, term: u64) -> u64 {
        self.add_held(header(HELD, class as usize), term, 0)
    }

    /// Adds a copy of a term of another block. Held terms in it must live as long as this builder's content is used.
    pub fn copy(&mut self, term: TermRef<'_>) -> u64 {
        match term.is_immediate() {
            true => term.word(),
            false => self.copy_item(term).unwrap_or_else(|| self.copy_nested(term)),
        }
    }

    /// Copies an item that has no slots with other items.
    #[inline]
    fn copy_item(&mut self, term: TermRef<'_>) -> Option<u64> {
        if let Some(words) = term.plain_words() {
            let at = self.item(plain_header(words[0]));
            self.append(&words[1..]);
            self.packed |= is_packed(words[0]);
            return Some((at as u64) << 2 | term.word() & TAG_MASK);
        }
        match term.view() {
            View::Fun(fun) if fun.is_counted() => Some(self.counted_fun(CountedFun::of(fun))),
            View::SharedBinary(Shared::HeldTerm(held), bytes) => {
                Some(self.add_shared_binary(held.term(), held.place(), bytes))
            }
            View::SharedBinary(Shared::Counted(record), bytes) => Some(self.add_counted_binary(record, bytes)),
            View::HeldTerm(class, held) => Some(self.add_held(header(HELD, class as usize), held.term(), held.place())),
            _ => None,
        }
    }

    /// Copies an item with slots. Those that still have to be copied wait in a list, so that the depth of the term costs no stack.
    fn copy_nested(&mut self, term: TermRef<'_>) -> u64 {
        /// An item, how many of its slots were looked at, and what is in them.
        type Open<'t> = (Item, usize, Elements<'t>);
        fn begin<'t>(builder: &mut Builder<'_>, term: TermRef<'t>) -> Open<'t> {
            let words = term.item_words();
            let at = builder.item(match words[0] & KIND_MASK {
                // That of an outermost tuple also tells of the block.
                TUPLE => header(TUPLE, tuple_arity(words[0])),
                _ => words[0],
            });
            builder.append(&words[1..]);
            let tag = term.word() & TAG_MASK;
            (Item { at, tag }, 0, term.slots())
        }
        let mut open = begin(self, term);
        let root = open.0.word();
        let mut waiting: SmallVec<[Open<'_>; 8]> = SmallVec::new();
        loop {
            let (item, next, slots) = open;
            let Some(element) = slots.get_if(next) else {
                open = match waiting.pop() {
                    Some(outer) => outer,
                    None => return root,
                };
                continue;
            };
            open.1 += 1;
            if element.is_immediate() {
                continue;
            }
            match self.copy_item(element) {
                Some(word) => self.set(item, next, word),
                None => {
                    slab::needed(waiting.try_reserve(1).ok());
                    waiting.push(open);
                    open = begin(self, element);
                    self.set(item, next, open.0.word());
                }
            }
        }
    }

    /// Adds a copy of a term of another block, in its [compact form](crate::compact) if that takes less memory. Otherwise as [`copy`](Self::copy)
    /// does. Returns the term's word, and whether it was packed here. `bytes` is scratch memory. The term is to be an element of the outermost
    /// tuple. Only [`unpack`](Self::unpack) and [`copy`](Self::copy) may read it.
    pub fn pack(&mut self, term: TermRef<'_>, bytes: &mut Vec<u8>) -> (u64, bool) {
        if term.is_worth_packing() {
            bytes.clear();
            let words = compact::write(term, bytes).unwrap_or(0);
            let packed = 1 + bytes.len().div_ceil(8);
            if packed < words && words <= PACKED_LIMIT {
                let at = self.item(packed_header(bytes.len(), words));
                let places = self.add(packed - 1);
                // SAFETY: the places are new, and there are enough for the bytes.
                unsafe { write_bytes(bytes, places) }
                self.packed = true;
                return ((at as u64) << 2 | TAG_ITEM, true);
            }
        }
        (self.copy(term), false)
    }

    /// Adds a copy of a term of another block: unpacked if it is packed, otherwise as [`copy`](Self::copy) does.
    pub fn unpack(&mut self, term: TermRef<'_>) -> u64 {
        let Some(words) = term.packed_words() else {
            return self.copy(term);
        };
        let base = self.used;
        let places = self.add(words);
        // SAFETY: the places are new.
        let places = unsafe { std::slice::from_raw_parts_mut(places.cast().as_ptr(), words) };
        compact::read(term.packed_bytes(), places, base)
    }

    /// Whether something that was built is packed.
    #[inline]
    pub fn has_packed(&self) -> bool {
        self.packed
    }

    /// The outermost tuple, in place.
    #[inline]
    pub fn root(&self) -> TermRef<'_> {
        assert!(self.used > 0);
        // SAFETY: the methods keep the content a well-formed block. It cannot change while it is borrowed.
        unsafe { TermRef::new(self.words.as_ptr(), TAG_ITEM) }
    }

    /// The first element of the outermost tuple. If the builder contains a key to search for, this is the key.
    #[inline]
    pub fn as_key(&self) -> TermRef<'_> {
        match self.root().view() {
            View::Tuple(elements) => elements.get(0),
            _ => unreachable!("the first item is a tuple"),
        }
    }

    /// Appends the lease of a stored object, as the last item of its block, or its own end before that.
    pub(crate) fn lease(&mut self, word: u64) {
        // SAFETY: there is room for one word.
        unsafe { self.add(1).write(word) };
    }

    /// Whether something that was built is held or counted.
    #[inline]
    pub fn has_held(&self) -> bool {
        self.held
    }

    /// Whether all elements of the outermost tuple are immediates.
    #[inline]
    pub(crate) fn is_flat(&self) -> bool {
        self.built()[0] & FLAT != 0
    }

    /// The words of a block of what was built, fewer than 2^32.
    #[inline]
    pub(crate) fn whole(&mut self) -> &[u64] {
        assert!(self.used > 0);
        let held = if self.held { HAS_HELD } else { 0 };
        let packed = if self.packed { HAS_PACKED } else { 0 };
        let total = (self.used as u64) << 32;
        self.built_mut()[0] |= total | held | packed;
        self.built()
    }

    /// What was built, as a block in the memory that was given. Panics if that was too small. What is held or counted is still borrowed.
    pub(crate) fn in_place(mut self) -> BlockRef<'a> {
        assert!(self.heap.is_empty());
        self.whole();
        // SAFETY: a block, in memory that is borrowed for `'a`.
        unsafe { BlockRef::from_raw(self.words) }
    }

    /// Makes a block of what was built, retains its held terms, and clears the builder. `None` when memory is exhausted, or when the block
    /// would have more than 2^32 words.
    pub fn finish(&mut self) -> Option<Block> {
        let held = self.held;
        let block = u32::try_from(self.used).ok().and_then(|_| {
            // SAFETY: the content is a well-formed block, and its header has the total number of words.
            unsafe { Block::from_words(self.whole(), &epoch::pin()) }
        });
        let block = block.and_then(Block::unretained);
        if let (Some(block), true) = (&block, held) {
            block.retain_held();
        }
        self.clear();
        block.map(ManuallyDrop::into_inner)
    }
}
