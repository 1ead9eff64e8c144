//! The layout of stored terms (docs/internals/terms.md), and how to read it.
//!
//! A [`TermRef`] is a word, and the block from whose start the word's offset counts. Blocks are immutable, except for the words of held
//! items, which are atomics. So a `TermRef` is read without a lock as long as its block lives.

use crate::compact::Parts;
use crate::host::HeldTerm;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// The VM's word for `[]`.
pub const NIL: u64 = 0x3b;

/// Words that order below and above every term of the VM, for the ends of ranges. They occur in keys to search for, never in stored
/// objects. (The VM uses this tag only on its stack.)
pub const BOTTOM: u64 = 0x1b;
pub const TOP: u64 = 0x5b;

/// The two low bits of a word: an immediate, a list item, or another item.
pub(crate) const TAG_MASK: u64 = 3;
pub(crate) const TAG_IMMEDIATE: u64 = 3;
pub(crate) const TAG_LIST: u64 = 1;
pub(crate) const TAG_ITEM: u64 = 2;

/// Header bit: all element words of the item are immediates, including a list's tail.
pub(crate) const FLAT: u64 = 0x80;
/// Header bit of a block's outermost tuple: the block has held items or counted binaries.
pub(crate) const HAS_HELD: u64 = 0x40;
/// Header bit of a block's outermost tuple: some of its elements are [`PACKED`].
pub(crate) const HAS_PACKED: u64 = 0x20;
pub(crate) const KIND_MASK: u64 = 0x1f;

pub(crate) const TUPLE: u64 = 1;
/// A list whose tail word follows its elements.
pub(crate) const LIST: u64 = 2;
pub(crate) const MAP: u64 = 3;
pub(crate) const FLOAT: u64 = 4;
pub(crate) const INTEGER_POSITIVE: u64 = 5;
pub(crate) const INTEGER_NEGATIVE: u64 = 6;
pub(crate) const BINARY: u64 = 7;
pub(crate) const SHARED_BINARY: u64 = 8;
pub(crate) const HELD: u64 = 9;
/// A list whose tail is `[]`.
pub(crate) const PROPER_LIST: u64 = 10;
/// A map whose pairs are in any order.
pub(crate) const UNORDERED_MAP: u64 = 11;
/// A binary of the VM to which the block has a counted reference.
pub(crate) const COUNTED_BINARY: u64 = 12;
/// A map that is a tree in the VM. The [nodes](Map::nodes) of the tree follow the values.
pub(crate) const TREE_MAP: u64 = 13;
/// A fun with an environment that is not all immediates. The [words](Fun::words) follow the terms of the environment.
pub(crate) const FUN: u64 = 14;
/// A fun of immediates to whose entry the block has a counted reference: the entry's [record](FUN_RECORD), the second and the third word of
/// [`Fun`], then the environment.
pub(crate) const COUNTED_FUN: u64 = 15;
/// A term in its [compact form](crate::compact). Only elements of a block's outermost tuple are packed.
pub(crate) const PACKED: u64 = 0x12;
/// A plain reference or an alias. The item is what the VM has: its header is [`PLAIN_REFERENCE`] or [`ALIAS`].
pub(crate) const REFERENCE: u64 = PLAIN_REFERENCE & KIND_MASK;

/// A fun of immediates. The item is what the VM has: the [words](Fun::words), then the environment. The header has the number of terms there
/// from bit 16 on.
pub(crate) const PLAIN_FUN: u64 = 0x14;
/// The [lease](crate::lease) of an object: one word, the last item of its block, or the own end before it. It is no term.
pub(crate) const LEASE: u64 = 0x11;
const PLAIN_FUN_SHIFT: u32 = 16;
/// The bit in which the kinds of plain references and plain funs differ.
const IS_FUN: u64 = PLAIN_FUN ^ REFERENCE;

/// The VM's headers of plain references and of aliases, which are also the headers of the items. (The bit for FLAT is set, but there are no
/// element words.)
pub const PLAIN_REFERENCE: u64 = reference_header(2);
pub const ALIAS: u64 = reference_header(3);

/// The number of words of a plain reference, including its header.
pub(crate) const REFERENCE_WORDS: usize = 3;

/// The VM's header of a reference of this many words behind it.
const fn reference_header(words: u64) -> u64 {
    0x10 | words << REFERENCE_SHIFT
}
const REFERENCE_SHIFT: u32 = 6;

/// The bits of a [`TREE_MAP`]'s header that count its pairs, and its nodes. The pairs begin at bit 8.
const TREE_PAIRS_BITS: u32 = 28;
const TREE_NODES_SHIFT: u32 = 8 + TREE_PAIRS_BITS;
/// The most pairs, and the most nodes, of a map that is stored with the nodes of its tree.
pub(crate) const TREE_LIMIT: usize = (1 << TREE_PAIRS_BITS) - 1;

/// The bits of a [`PACKED`] item's header that count its bytes, from bit 8, and the words that it unpacks to.
const PACKED_BYTES_BITS: u32 = 28;
const PACKED_WORDS_SHIFT: u32 = 8 + PACKED_BYTES_BITS;
/// The most bytes, and the most words, of an item that is packed.
pub(crate) const PACKED_LIMIT: usize = (1 << PACKED_BYTES_BITS) - 1;

/// An item of immediates of fewer words than this is not packed.
const WORTHWHILE: usize = 8;

/// The largest arity of a tuple, as in the VM.
pub const MAX_ARITY: usize = (1 << 24) - 1;
/// The number of words of a held item's [`HeldTerm`].
pub(crate) const HELD_WORDS: usize = 2;
/// The number of words of a fun besides its header and its environment.
pub(crate) const FUN_WORDS: usize = 2;
/// The number of data words of a counted binary: the address of the VM's record, and the address of the bytes.
pub(crate) const COUNTED_WORDS: usize = 2;
/// The number of words of a counted fun besides its header and its environment.
pub(crate) const COUNTED_FUN_WORDS: usize = 3;
/// The bit that tells the record of a fun from that of a binary. Records are aligned.
pub const FUN_RECORD: u64 = 1;

#[inline]
pub(crate) fn header(kind: u64, size: usize) -> u64 {
    kind | (size as u64) << 8
}

#[inline]
pub(crate) fn tuple_arity(header: u64) -> usize {
    (header >> 8) as usize & MAX_ARITY
}

/// The header of a [`TREE_MAP`].
#[inline]
pub(crate) fn tree_map_header(pairs: usize, nodes: usize) -> u64 {
    debug_assert!(pairs <= TREE_LIMIT && nodes <= TREE_LIMIT);
    header(TREE_MAP, pairs) | (nodes as u64) << TREE_NODES_SHIFT
}

/// The number of pairs of a [`TREE_MAP`].
#[inline]
fn tree_pairs(header: u64) -> usize {
    (header >> 8) as usize & TREE_LIMIT
}

/// The number of nodes of a [`TREE_MAP`].
#[inline]
fn tree_nodes(header: u64) -> usize {
    (header >> TREE_NODES_SHIFT) as usize
}

/// The header of a [`PACKED`] item.
#[inline]
pub(crate) fn packed_header(bytes: usize, words: usize) -> u64 {
    debug_assert!(bytes <= PACKED_LIMIT && words <= PACKED_LIMIT);
    header(PACKED, bytes) | (words as u64) << PACKED_WORDS_SHIFT
}

/// The number of bytes of a [`PACKED`] item.
#[inline]
fn packed_bytes(header: u64) -> usize {
    (header >> 8) as usize & PACKED_LIMIT
}

/// Whether an item with this header is packed.
#[inline]
pub(crate) fn is_packed(header: u64) -> bool {
    header & KIND_MASK == PACKED
}

/// The number of an item's data words that stand for terms.
#[inline]
pub(crate) fn slots(header: u64) -> usize {
    match header & KIND_MASK {
        TUPLE => tuple_arity(header),
        LIST => (header >> 8) as usize + 1,
        PROPER_LIST | FUN => (header >> 8) as usize,
        MAP | UNORDERED_MAP => (header >> 8) as usize * 2,
        TREE_MAP => tree_pairs(header) * 2,
        _ => 0,
    }
}

/// The number of terms in the environment of a [`PLAIN_FUN`].
#[inline]
fn plain_fun_terms(header: u64) -> usize {
    (header >> PLAIN_FUN_SHIFT & 0xff) as usize
}

/// What follows the header of an item, for a decoder that reads the words of a block itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Head {
    /// So many elements.
    Tuple(usize),
    /// So many elements.
    ProperList(usize),
    /// The keys of so many pairs, in the VM's order of iteration, and then their values.
    Map(usize),
    /// So many bytes, padded to whole words.
    Binary(usize),
    /// The bits.
    Float,
    /// A plain reference or an alias: the item is what the VM has, and has so many words with the header.
    Reference(usize),
    /// Something else.
    Other,
}

impl Head {
    /// That of an item with this header.
    #[inline(always)]
    pub fn of(header: u64) -> Self {
        let size = (header >> 8) as usize;
        match header & KIND_MASK {
            TUPLE => Head::Tuple(tuple_arity(header)),
            PROPER_LIST => Head::ProperList(size),
            MAP => Head::Map(size),
            BINARY => Head::Binary(size),
            FLOAT => Head::Float,
            REFERENCE => Head::Reference(1 + (header >> REFERENCE_SHIFT) as usize),
            _ => Head::Other,
        }
    }

    /// Whether all element words of the tuple, list or map with this header are immediates.
    #[inline(always)]
    pub fn is_flat(header: u64) -> bool {
        header & FLAT != 0
    }
}

/// Whether an item with this header is held or counted. Such items must be given back to the VM.
#[inline]
pub(crate) fn is_held(header: u64) -> bool {
    matches!(header & KIND_MASK, SHARED_BINARY | HELD | COUNTED_BINARY | COUNTED_FUN)
}

/// Whether an item with this header is a counted binary or fun.
#[inline]
pub(crate) fn is_counted(header: u64) -> bool {
    matches!(header & KIND_MASK, COUNTED_BINARY | COUNTED_FUN)
}

/// Whether an item with this header is a lease.
#[inline]
pub(crate) fn is_lease(header: u64) -> bool {
    header & KIND_MASK == LEASE
}

/// The number of words of an item with this header.
#[inline]
pub(crate) fn item_words(header: u64) -> usize {
    let size = (header >> 8) as usize;
    1 + match header & KIND_MASK {
        FLOAT => 1,
        INTEGER_POSITIVE | INTEGER_NEGATIVE => size,
        REFERENCE => (header >> REFERENCE_SHIFT) as usize,
        BINARY => size.div_ceil(8),
        PACKED => packed_bytes(header).div_ceil(8),
        SHARED_BINARY => HELD_WORDS + 1,
        COUNTED_BINARY => COUNTED_WORDS,
        COUNTED_FUN => COUNTED_FUN_WORDS + size,
        HELD => HELD_WORDS,
        TREE_MAP => slots(header) + tree_nodes(header),
        FUN => slots(header) + FUN_WORDS,
        PLAIN_FUN => plain_fun_terms(header) + FUN_WORDS - 1,
        _ => slots(header),
    }
}

/// The pieces of `N` elements that a slice consists of, and the rest. The standard library has it since Rust 1.88.
#[inline(always)]
pub(crate) fn as_chunks<const N: usize, T>(slice: &[T]) -> (&[[T; N]], &[T]) {
    let (whole, rest) = slice.split_at(slice.len() / N * N);
    // SAFETY: `whole` has so many arrays of `N` elements, one behind the other.
    (
        unsafe { std::slice::from_raw_parts(whole.as_ptr().cast(), whole.len() / N) },
        rest,
    )
}

/// The word whose memory has these bytes, fewer than eight, with zeros after them. Pieces of fixed size are loaded, as a copy of unknown
/// length would become a function call.
#[inline]
pub(crate) fn padded(bytes: &[u8]) -> u64 {
    let at = |byte: usize, value: u64| value << (8 * byte);
    let little_endian = if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        // The two pieces may overlap. The bytes in both are the same.
        u64::from(u32::from_le_bytes(*first)) | at(bytes.len() - 4, u32::from_le_bytes(*last).into())
    } else if let [first, .., last] = *bytes {
        let middle = bytes.len() / 2;
        u64::from(first) | at(middle, bytes[middle].into()) | at(bytes.len() - 1, last.into())
    } else {
        bytes.first().map_or(0, |&byte| byte.into())
    };
    little_endian.to_le()
}

/// The low bits of a small integer. Also the word of 0. No header has these low bits.
pub(crate) const SMALL: u64 = 0xf;

/// The header of an item with [plain words](TermRef::plain_words), without the bits that only an outermost tuple has.
#[inline]
pub(crate) fn plain_header(header: u64) -> u64 {
    match header & KIND_MASK {
        TUPLE => header & u64::from(u32::MAX),
        _ => header,
    }
}

/// The VM's word of a [`View::Reference`], given its words including the header.
#[inline]
pub fn vm_word_at(words: &[u64]) -> u64 {
    const BOXED: u64 = 2;
    words.as_ptr().addr() as u64 | BOXED
}

/// Tuples, lists, maps and funs nested deeper than this in a stored object are held. An element of the object is nested one level deep. What
/// a match specification has or computes may be nested deeper.
pub const MAX_DEPTH: usize = 64;

/// Whether the word is an immediate of the VM: small integer, atom, `[]`, local pid or local port.
#[inline]
pub fn is_immediate(word: u64) -> bool {
    word & TAG_MASK == TAG_IMMEDIATE
}

/// The bits of a word that tell of which class a small integer, a local pid or a local port is.
pub(crate) const CLASS_MASK: u64 = 0xf;

/// See [`TermRef::varies`].
#[inline]
pub(crate) fn varies(word: u64) -> bool {
    const OTHER_IMMEDIATE: u64 = 0xb;
    is_immediate(word) && word & CLASS_MASK != OTHER_IMMEDIATE
}

/// The word of a small integer. `None` if the value does not fit (60 bits, signed).
#[inline]
pub fn small(value: i64) -> Option<u64> {
    let word = small_word(value);
    (word as i64 >> 4 == value).then_some(word)
}

/// The value of a small integer's word. `None` if it is another word, such as a key word that is a hash.
#[inline]
pub fn small_value(word: u64) -> Option<i64> {
    (word & SMALL == SMALL).then_some(word as i64 >> 4)
}

/// The word of a value that is known to fit a small integer.
#[inline]
pub(crate) fn small_word(value: i64) -> u64 {
    (value as u64) << 4 | SMALL
}

/// The classes of terms, in the VM's order of classes. Native records stand between tuples and maps since OTP 29.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Class {
    /// The class of [`BOTTOM`] alone.
    Bottom,
    Number,
    Atom,
    Reference,
    Fun,
    Port,
    Pid,
    Tuple,
    Record,
    Map,
    Nil,
    List,
    BitString,
    /// The class of [`TOP`] alone.
    Top,
}

impl Class {
    /// Whether terms of this class may have numbers inside.
    pub fn may_hold_numbers(self) -> bool {
        matches!(
            self,
            Class::Fun | Class::Tuple | Class::Record | Class::Map | Class::List
        )
    }

    const ALL: [Class; 14] = [
        Class::Bottom,
        Class::Number,
        Class::Atom,
        Class::Reference,
        Class::Fun,
        Class::Port,
        Class::Pid,
        Class::Tuple,
        Class::Record,
        Class::Map,
        Class::Nil,
        Class::List,
        Class::BitString,
        Class::Top,
    ];

    /// The class of an immediate word.
    #[inline]
    pub fn of_immediate(word: u64) -> Class {
        match word & 0xf {
            SMALL => Class::Number,
            0x3 => Class::Pid,
            0x7 => Class::Port,
            _ if word & 0x3f == NIL => Class::Nil,
            _ if word == BOTTOM => Class::Bottom,
            _ if word == TOP => Class::Top,
            _ => Class::Atom,
        }
    }
}

/// A term: an immediate word, or a word of a block that lives for `'a`.
#[derive(Clone, Copy)]
pub struct TermRef<'a> {
    base: NonNull<u64>,
    word: u64,
    block: PhantomData<&'a [u64]>,
}

/// What keeps the bytes of a shared binary alive.
#[derive(Clone, Copy)]
pub enum Shared<'a> {
    /// A held term.
    HeldTerm(&'a HeldTerm),
    /// A counted reference. This is the address of the VM's record of the binary.
    Counted(u64),
}

/// A term taken apart by one level.
#[derive(Clone, Copy)]
pub enum View<'a> {
    Immediate(u64),
    Tuple(Elements<'a>),
    List(List<'a>),
    Map(Map<'a>),
    Float(f64),
    /// An integer that is not an immediate.
    Integer(Integer<'a>),
    /// A binary whose bytes are in the block.
    Binary(&'a [u8]),
    /// A binary whose bytes belong to the VM.
    SharedBinary(Shared<'a>, &'a [u8]),
    /// A plain reference or an alias: its words in the VM, including the header.
    Reference(&'a [u64]),
    Fun(Fun<'a>),
    /// A held term.
    HeldTerm(Class, &'a HeldTerm),
}

impl<'a> TermRef<'a> {
    /// The term of an immediate word.
    #[inline]
    pub fn immediate(word: u64) -> TermRef<'static> {
        debug_assert!(is_immediate(word));
        TermRef {
            base: NonNull::dangling(),
            word,
            block: PhantomData,
        }
    }

    /// # Safety
    /// `base` is the start of a well-formed block that lives for `'a` and does not change meanwhile. `word` is a word of that block, or an
    /// immediate.
    #[inline]
    pub unsafe fn new(base: *const u64, word: u64) -> TermRef<'a> {
        TermRef {
            // SAFETY: a block is somewhere.
            base: unsafe { NonNull::new_unchecked(base.cast_mut()) },
            word,
            block: PhantomData,
        }
    }

    /// The word: an immediate, or an offset that has a meaning only inside its block.
    #[inline]
    pub fn word(self) -> u64 {
        self.word
    }

    #[inline]
    pub fn is_immediate(self) -> bool {
        is_immediate(self.word)
    }

    /// Whether it is a list of at least one element.
    #[inline]
    pub fn is_list(self) -> bool {
        self.word & TAG_MASK == TAG_LIST
    }

    /// The value of a small integer.
    #[inline]
    pub fn small(self) -> Option<i64> {
        small_value(self.word)
    }

    /// Whether it is an immediate that does not belong to the [shape](crate::BlockRef::shape) of its block: a small integer, a local pid or a
    /// local port.
    #[inline]
    pub fn varies(self) -> bool {
        varies(self.word)
    }

    /// Whether both are the same word of the same block. Then they are surely the same term.
    #[inline]
    pub fn same_place(self, other: TermRef<'_>) -> bool {
        self.word == other.word && (self.is_immediate() || self.base == other.base)
    }

    /// The address of the item. The word must not be an immediate.
    #[inline]
    fn item(self) -> *const u64 {
        debug_assert!(!self.is_immediate());
        // SAFETY: a word that is no immediate is an offset inside the block, by the contract of `new`.
        unsafe { self.base.add((self.word >> 2) as usize).as_ptr() }
    }

    /// The header of the item. The word must not be an immediate.
    #[inline]
    pub(crate) fn header(self) -> u64 {
        // SAFETY: items begin with a header, by the contract of `new`.
        unsafe { *self.item() }
    }

    /// `count` words of the item's data.
    ///
    /// # Safety
    /// The item has them.
    #[inline]
    unsafe fn data(self, count: usize) -> &'a [u64] {
        // SAFETY: the words lie in the block, which lives for `'a`.
        unsafe { std::slice::from_raw_parts(self.item().add(1), count) }
    }

    /// The words of an item, including its header, if none of them is an offset or held.
    #[inline]
    pub(crate) fn plain_words(self) -> Option<&'a [u64]> {
        if self.is_immediate() {
            return None;
        }
        let header = self.header();
        let plain = header & FLAT != 0
            || matches!(
                header & KIND_MASK,
                FLOAT | INTEGER_POSITIVE | INTEGER_NEGATIVE | BINARY | REFERENCE | PLAIN_FUN | PACKED
            );
        // SAFETY: an item has as many words as its header says.
        plain.then(|| unsafe { self.words(item_words(header)) })
    }

    /// The words of the item, which is no immediate.
    pub(crate) fn item_words(self) -> &'a [u64] {
        // SAFETY: an item has as many words as its header says.
        unsafe { self.words(item_words(self.header())) }
    }

    /// All slots of the item, which is no immediate: those of a map are its keys and then its values, those of an improper list end with its
    /// tail.
    pub fn slots(self) -> Elements<'a> {
        Elements::new(self.base, &self.item_words()[1..][..slots(self.header())])
    }

    /// The number of words of a copy, if the term is nested by at most `depth` levels.
    pub fn words_within(self, depth: usize) -> Option<usize> {
        if self.is_immediate() {
            return Some(0);
        }
        let words = self.item_words().len();
        if self.plain_words().is_some() {
            return Some(words);
        }
        let depth = depth.checked_sub(1)?;
        self.slots()
            .iter()
            .try_fold(words, |words, slot| Some(words + slot.words_within(depth)?))
    }

    /// Whether it is a tuple, list or map that is held.
    pub fn is_held_compound(self) -> bool {
        !self.is_immediate()
            && self.header() & KIND_MASK == HELD
            && matches!(self.class(), Class::Tuple | Class::List | Class::Map)
    }

    /// The number of words that it unpacks to, if it is packed. Then nothing else may be read of it.
    #[inline]
    pub fn packed_words(self) -> Option<usize> {
        if self.is_immediate() {
            return None;
        }
        let header = self.header();
        is_packed(header).then_some((header >> PACKED_WORDS_SHIFT) as usize)
    }

    /// The term part by part, if it is packed.
    #[inline]
    pub fn parts(self) -> Option<Parts<'a>> {
        self.packed_words().map(|_| Parts::new(self.packed_bytes()))
    }

    /// The bytes of the compact form. The term is packed.
    pub(crate) fn packed_bytes(self) -> &'a [u8] {
        let header = self.header();
        assert!(is_packed(header));
        // SAFETY: a packed item has as many bytes as its header says.
        unsafe { std::slice::from_raw_parts(self.item().add(1).cast(), packed_bytes(header)) }
    }

    /// Whether the compact form may be smaller: a tuple, list, map or fun of more than a few words.
    #[inline]
    pub(crate) fn is_worth_packing(self) -> bool {
        if self.is_immediate() {
            return false;
        }
        let header = self.header();
        let least = if header & FLAT != 0 { WORTHWHILE } else { 2 };
        matches!(header & KIND_MASK, TUPLE | PROPER_LIST | LIST | MAP | TREE_MAP | FUN) && item_words(header) >= least
    }

    /// The first `count` words of the item, including its header.
    ///
    /// # Safety
    /// The item has them.
    #[inline]
    pub(crate) unsafe fn words(self, count: usize) -> &'a [u64] {
        // SAFETY: the words lie in the block, which lives for `'a`.
        unsafe { std::slice::from_raw_parts(self.item(), count) }
    }

    /// Whether both terms have the same layout, so that they are surely the same term. Compares all items of this term with those of
    /// `other`, word by word. An offset must differ by the distance between the two terms. False if something is held or counted. Neither
    /// word may be an immediate.
    pub(crate) fn is_laid_out_as(self, other: TermRef<'_>) -> bool {
        let (first, others) = (self.item(), other.item());
        let apart = self.word.wrapping_sub(other.word);
        let (mut at, mut last) = (0, 0);
        while at <= last {
            // SAFETY: both blocks have an item at `at`. Items follow one another without gaps. All items so far are the same in both
            // blocks, and both blocks have an item at `last`.
            let (header, same) = unsafe { (*first.add(at), *others.add(at)) };
            if header != same || is_held(header) {
                return false;
            }
            let (words, slots) = (item_words(header), if header & FLAT != 0 { 0 } else { slots(header) });
            for i in at + 1..at + words {
                // SAFETY: in both blocks the item has `words` words.
                let (word, same) = unsafe { (*first.add(i), *others.add(i)) };
                if i > at + slots || is_immediate(word) {
                    if word != same {
                        return false;
                    }
                } else if word.wrapping_sub(same) == apart && word > self.word {
                    last = last.max(((word >> 2) - (self.word >> 2)) as usize);
                } else {
                    return false;
                }
            }
            at += words;
        }
        true
    }

    /// The elements, if it is a tuple of immediates. Takes one comparison with the header, which is faster than a [view](Self::view). For
    /// this method and the next three, the word must not be an immediate.
    #[inline]
    pub fn flat_tuple(self) -> Option<&'a [u64]> {
        let header = self.header();
        // SAFETY: a tuple has as many elements as its arity says.
        (header & (KIND_MASK | FLAT) == TUPLE | FLAT).then(|| unsafe { self.data(tuple_arity(header)) })
    }

    /// The bits, if it is a float.
    #[inline]
    pub fn float_words(self) -> Option<&'a [u64]> {
        // SAFETY: one word follows a float's header.
        (self.header() & KIND_MASK == FLOAT).then(|| unsafe { self.data(1) })
    }

    /// The words in the VM, including the header, if the item is the same there: a plain reference, an alias, or a fun of immediates.
    #[inline]
    pub fn same_words(self) -> Option<&'a [u64]> {
        let header = self.header();
        if header == PLAIN_REFERENCE {
            // SAFETY: a plain reference has this number of words.
            return Some(unsafe { self.words(REFERENCE_WORDS) });
        }
        // SAFETY: an item has as many words as its header says.
        (header & (KIND_MASK & !IS_FUN) == REFERENCE).then(|| unsafe { self.words(item_words(header)) })
    }

    /// The bytes, if it is a binary whose bytes are in the block.
    #[inline]
    pub fn own_binary(self) -> Option<&'a [u8]> {
        let header = self.header();
        (header & KIND_MASK == BINARY).then(|| {
            let size = (header >> 8) as usize;
            // SAFETY: a binary has as many bytes as its header says.
            unsafe { std::slice::from_raw_parts(self.item().add(1).cast(), size) }
        })
    }

    /// The elements, if it is a tuple.
    #[inline]
    pub fn as_tuple(self) -> Option<Elements<'a>> {
        if self.is_immediate() {
            return None;
        }
        let (header, base) = (self.header(), self.base);
        (header & KIND_MASK == TUPLE).then(|| {
            // SAFETY: a tuple has as many elements as its arity says.
            let words = unsafe { self.data(tuple_arity(header)) };
            Elements { base, words }
        })
    }

    /// Takes the term apart by one level.
    #[inline]
    pub fn view(self) -> View<'a> {
        if self.is_immediate() {
            return View::Immediate(self.word);
        }
        self.items().next()
    }

    /// The items of the block, beginning with this one. The word must not be an immediate.
    #[inline]
    pub fn items(self) -> Items<'a> {
        Items {
            base: self.base,
            at: self.item(),
            block: PhantomData,
        }
    }

    /// The term of another word of the same block.
    ///
    /// # Safety
    /// `word` is a word of that block.
    #[inline]
    pub unsafe fn beside(self, word: u64) -> TermRef<'a> {
        TermRef { word, ..self }
    }

    /// The term's class.
    #[inline]
    pub fn class(self) -> Class {
        match self.view() {
            View::Immediate(word) => Class::of_immediate(word),
            View::Tuple(_) => Class::Tuple,
            View::List(_) => Class::List,
            View::Map(_) => Class::Map,
            View::Float(_) | View::Integer(_) => Class::Number,
            View::Binary(_) | View::SharedBinary(..) => Class::BitString,
            View::Reference(_) => Class::Reference,
            View::Fun(_) => Class::Fun,
            View::HeldTerm(class, _) => class,
        }
    }

    /// The bytes of a binary. `None` for other terms, including bit strings with an incomplete last byte.
    #[inline]
    pub fn bytes(self) -> Option<&'a [u8]> {
        match self.view() {
            View::Binary(bytes) | View::SharedBinary(_, bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Whether it is a binary of these bytes.
    #[inline]
    pub fn is_binary(self, bytes: &[u8]) -> bool {
        if self.is_immediate() || self.header() != header(BINARY, bytes.len()) {
            return self.bytes() == Some(bytes);
        }
        // Words are compared, because a comparison of unknown length would become a function call. Zeros follow the last byte.
        let (whole, rest) = as_chunks(bytes);
        // SAFETY: a binary has as many words.
        let words = unsafe { self.data(bytes.len().div_ceil(8)) };
        whole
            .iter()
            .zip(words)
            .all(|(bytes, word)| u64::from_ne_bytes(*bytes) == *word)
            && (rest.is_empty() || words[whole.len()] == padded(rest))
    }

    /// Whether all element words of this tuple, list or map are immediates, including a list's tail.
    #[inline]
    pub fn is_flat(self) -> bool {
        !self.is_immediate() && self.header() & FLAT != 0
    }
}

/// The items of a block, in the order in which they follow one another.
pub struct Items<'a> {
    base: NonNull<u64>,
    /// The next item.
    at: *const u64,
    block: PhantomData<&'a [u64]>,
}

impl<'a> Items<'a> {
    /// Whether all element words of the next item are immediates, as in [`TermRef::is_flat`].
    #[inline(always)]
    pub fn is_flat(&self) -> bool {
        // SAFETY: an item begins with a header.
        unsafe { *self.at & FLAT != 0 }
    }

    /// Makes the item of this word the next one. Usually it is the next one already.
    ///
    /// # Safety
    /// `word` is a word of the block, and no immediate.
    #[inline(always)]
    pub unsafe fn expect(&mut self, word: u64) {
        #[cold]
        #[inline(never)]
        fn elsewhere(at: *const u64) -> *const u64 {
            at
        }
        // SAFETY: as the caller promises.
        let expected = unsafe { self.base.add((word >> 2) as usize).as_ptr() }.cast_const();
        // A branch, which the processor predicts. With an assignment, it could not read the item before the word has arrived.
        if self.at != expected {
            self.at = elsewhere(expected);
        }
    }

    /// The `count` words after the header of the next item, which has that many. Goes on to the item after it.
    ///
    /// # Safety
    /// There is such an item.
    #[inline(always)]
    unsafe fn take(&mut self, count: usize) -> &'a [u64] {
        // SAFETY: as the caller promises. The words lie in the block, which lives for `'a`.
        unsafe {
            let words = std::slice::from_raw_parts(self.at.add(1), count);
            self.at = words.as_ptr_range().end;
            words
        }
    }

    /// Takes the next item apart by one level. There must be such an item.
    #[inline(always)]
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> View<'a> {
        let (item, base) = (self.at, self.base);
        // SAFETY: here and below, an item begins with a header. The words after it are those that the layout of its kind has.
        unsafe {
            let header = *item;
            let size = (header >> 8) as usize;
            match header & KIND_MASK {
                TUPLE => {
                    let words = self.take(tuple_arity(header));
                    View::Tuple(Elements { base, words })
                }
                LIST => {
                    let (words, tail) = self.take(size + 1).split_at(size);
                    let tail = tail[0];
                    View::List(List { base, words, tail })
                }
                PROPER_LIST => {
                    let words = self.take(size);
                    View::List(List { base, words, tail: NIL })
                }
                kind @ (MAP | UNORDERED_MAP) => {
                    let (keys, values) = self.take(size * 2).split_at(size);
                    View::Map(Map {
                        keys: Elements { base, words: keys },
                        values: Elements { base, words: values },
                        ordered: kind == MAP,
                        nodes: &[],
                    })
                }
                TREE_MAP => {
                    let pairs = tree_pairs(header);
                    let (keys, rest) = self.take(pairs * 2 + tree_nodes(header)).split_at(pairs);
                    let (values, nodes) = rest.split_at(pairs);
                    View::Map(Map {
                        keys: Elements { base, words: keys },
                        values: Elements { base, words: values },
                        ordered: true,
                        nodes,
                    })
                }
                FLOAT => View::Float(f64::from_bits(self.take(1)[0])),
                kind @ (INTEGER_POSITIVE | INTEGER_NEGATIVE) => View::Integer(Integer {
                    negative: kind == INTEGER_NEGATIVE,
                    digits: self.take(size),
                }),
                // The words contain at least `size` bytes.
                BINARY => {
                    let words = self.take(size.div_ceil(8));
                    View::Binary(std::slice::from_raw_parts(words.as_ptr().cast(), size))
                }
                // After the held words stands the address of `size` bytes. The held term keeps them alive.
                SHARED_BINARY => {
                    let address = self.take(HELD_WORDS + 1)[HELD_WORDS] as *const u8;
                    let bytes = std::slice::from_raw_parts(address, size);
                    View::SharedBinary(Shared::HeldTerm(held(item)), bytes)
                }
                // The second word is the address of `size` bytes. They live as long as the reference is counted.
                COUNTED_BINARY => {
                    let words = self.take(COUNTED_WORDS);
                    let bytes = std::slice::from_raw_parts(words[1] as *const u8, size);
                    View::SharedBinary(Shared::Counted(words[0]), bytes)
                }
                // The header is one of the words of the reference.
                REFERENCE => {
                    let count = item_words(header);
                    self.take(count - 1);
                    View::Reference(std::slice::from_raw_parts(item, count))
                }
                FUN => {
                    let (words, rest) = self.take(size + FUN_WORDS).split_at(size);
                    View::Fun(Fun {
                        env: Elements { base, words },
                        words: [rest[0], rest[1]],
                        creator: NIL,
                    })
                }
                PLAIN_FUN => {
                    let behind = self.take(item_words(header) - 1);
                    View::Fun(Fun {
                        env: Elements {
                            base,
                            words: &behind[FUN_WORDS - 1..],
                        },
                        words: [header, behind[0]],
                        creator: NIL,
                    })
                }
                COUNTED_FUN => {
                    let (words, env) = self.take(COUNTED_FUN_WORDS + size).split_at(COUNTED_FUN_WORDS);
                    View::Fun(Fun {
                        env: Elements { base, words: env },
                        words: [words[1], words[0]],
                        creator: words[2],
                    })
                }
                HELD => {
                    self.take(HELD_WORDS);
                    View::HeldTerm(Class::ALL[size], held(item))
                }
                kind => unreachable!("kind {kind}"),
            }
        }
    }
}

/// The held words of an item.
///
/// # Safety
/// The item is of a kind whose data begin with held words. Its block lives for `'a`.
#[inline]
unsafe fn held<'a>(item: *const u64) -> &'a HeldTerm {
    // SAFETY: as the caller promises. Atomics have the same memory layout as the words.
    unsafe { &*item.add(1).cast::<HeldTerm>() }
}

/// Several terms of one block: a tuple's elements, or a map's keys or values.
#[derive(Clone, Copy)]
pub struct Elements<'a> {
    base: NonNull<u64>,
    words: &'a [u64],
}

impl<'a> Elements<'a> {
    #[inline]
    pub(crate) fn new(base: NonNull<u64>, words: &'a [u64]) -> Self {
        Elements { base, words }
    }

    /// The element at a place, if there are so many.
    #[inline]
    pub(crate) fn get_if(self, index: usize) -> Option<TermRef<'a>> {
        (index < self.len()).then(|| self.get(index))
    }

    /// The terms of immediate words.
    #[inline]
    pub fn immediates(words: &'a [u64]) -> Self {
        debug_assert!(words.iter().all(|&word| is_immediate(word)));
        Elements::new(NonNull::dangling(), words)
    }

    #[inline]
    pub fn len(self) -> usize {
        self.words.len()
    }

    #[inline]
    pub fn is_empty(self) -> bool {
        self.words.is_empty()
    }

    /// The words as they are stored. If all are immediates, they are the VM's own words.
    #[inline]
    pub fn words(self) -> &'a [u64] {
        self.words
    }

    /// Element `index`, counted from 0. Panics if there is none.
    #[inline]
    pub fn get(self, index: usize) -> TermRef<'a> {
        TermRef {
            base: self.base,
            word: self.words[index],
            block: PhantomData,
        }
    }

    /// The first element, and the others.
    #[inline]
    pub fn split_first(self) -> Option<(TermRef<'a>, Self)> {
        let (&word, words) = self.words.split_first()?;
        let (base, block) = (self.base, PhantomData);
        Some((TermRef { base, word, block }, Elements { base, words }))
    }

    #[inline]
    pub fn iter(self) -> impl DoubleEndedIterator<Item = TermRef<'a>> + ExactSizeIterator + Clone {
        self.words.iter().map(move |&word| TermRef {
            base: self.base,
            word,
            block: PhantomData,
        })
    }
}

/// A list of at least one element.
#[derive(Clone, Copy)]
pub struct List<'a> {
    base: NonNull<u64>,
    words: &'a [u64],
    tail: u64,
}

impl<'a> List<'a> {
    /// The elements before the tail.
    #[inline]
    pub fn elements(self) -> Elements<'a> {
        Elements {
            base: self.base,
            words: self.words,
        }
    }

    /// `[]`, unless the list is improper.
    #[inline]
    pub fn tail(self) -> TermRef<'a> {
        TermRef {
            base: self.base,
            word: self.tail,
            block: PhantomData,
        }
    }
}

/// The pairs of a map.
#[derive(Clone, Copy)]
pub struct Map<'a> {
    pub keys: Elements<'a>,
    pub values: Elements<'a>,
    /// Whether the pairs are in the VM's order of iteration. Maps from the VM always are.
    pub ordered: bool,
    /// The nodes of the tree that the map is in the VM, each before its children. Children are in the order of iteration. The lower half of
    /// a word is the VM's header of the node. Bit `32 + i` says that child `i` is a node. Other children are pairs. There are no words if the
    /// map is no tree, or if its nodes are not known.
    pub nodes: &'a [u64],
}

/// A fun that refers to nothing but terms.
#[derive(Clone, Copy)]
pub struct Fun<'a> {
    /// The terms of its environment.
    pub env: Elements<'a>,
    /// The header that the VM gives a fun since OTP 29, and the address of the code, or its [record](FUN_RECORD) if the fun is counted. Funs
    /// are exactly the same if these words and the environments are.
    pub words: [u64; FUN_WORDS],
    /// The process that made it, if the fun is counted.
    pub creator: u64,
}

impl Fun<'_> {
    /// Whether the block has a counted reference to it.
    #[inline]
    pub fn is_counted(&self) -> bool {
        self.words[1] & FUN_RECORD != 0
    }
}

/// An integer as its sign and magnitude.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Integer<'a> {
    pub negative: bool,
    /// The magnitude, least digit first. The last digit is not 0.
    pub digits: &'a [u64],
}
