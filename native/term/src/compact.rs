//! The compact form of terms, a string of bytes, for elements of objects in compressed tables (docs/internals/objects.md).
//!
//! Each term begins with a byte. Its three high bits are the form. Its five low bits are an argument below 24, or say how many bytes of
//! argument follow (1 to 8, least first), as in CBOR (RFC 8949). Parts of a term follow it in order. What is held or counted has no
//! compact form.

use crate::format::*;
use std::mem::MaybeUninit;

/// A small integer that is not negative. The argument is its value.
const INTEGER: u8 = 0;
/// A negative small integer. The argument is its complement.
const NEGATIVE: u8 = 1;
/// An atom. The argument is its index in the VM.
const ATOM: u8 = 2;
/// A list of small integers from 0 to 255: the length, then a byte for each.
const STRING: u8 = 3;
/// Another list whose tail is `[]`: the length, then the elements.
const ELEMENTS: u8 = 4;
/// The arity, then the elements.
const FIELDS: u8 = 5;
/// The size, then the bytes.
const BYTES: u8 = 6;
/// One of the forms below, which is the argument.
const OTHER: u8 = 7;

const EMPTY: u64 = 0;
/// Another immediate: its word.
const WORD: u64 = 1;
/// The bits.
const DOUBLE: u64 = 2;
/// The magnitude: the number of digits, then the digits.
const ABOVE_ZERO: u64 = 3;
const BELOW_ZERO: u64 = 4;
/// The number of elements, the elements, the tail.
const IMPROPER: u64 = 5;
/// The number of pairs, the keys, the values.
const PAIRS: u64 = 6;
/// The number of pairs and of [nodes](Map::nodes), the keys, the values, the nodes.
const TREE: u64 = 7;
/// The same, with the nodes as words.
const ODD_TREE: u64 = 8;
/// The number of words, then the words: an item that is the same in the VM.
const SAME: u64 = 9;
/// The number of terms in the environment, these, and the two words of the fun.
const CLOSURE: u64 = 10;

/// Arguments below this are in the first byte. Above it stands the number of bytes that follow, less one.
const DIRECT: u64 = 24;
const ARGUMENT: u8 = 31;
const FORM_SHIFT: u32 = 5;
/// The most bytes of a form and its argument, and of an immediate.
const HEAD: usize = 1 + size_of::<u64>();

const ATOM_SHIFT: u32 = 6;
const ATOM_TAG: u64 = 0xb;

/// The bits in which the nodes of most trees differ: see [`TREE`].
const NODE_BITS: u64 = 0xffff_ffff_0000;
const NODE_SHIFT: u32 = 16;

/// Appends the compact form of a term. Returns the number of words that it unpacks to. `None` if the term has no compact form.
///
/// The recursion is as deep as the term: at most the 64 levels of stored terms.
pub(crate) fn write(term: TermRef<'_>, to: &mut Vec<u8>) -> Option<usize> {
    let words = match term.view() {
        View::Immediate(word) => {
            write_immediate(word, to);
            0
        }
        View::Tuple(elements) => {
            write_head(FIELDS, elements.len() as u64, to);
            1 + write_each(elements, to)?
        }
        View::List(list) if list.tail().word() != NIL => {
            write_other(IMPROPER, list.elements().len(), to);
            let words = write_each(list.elements(), to)?;
            2 + words + write(list.tail(), to)?
        }
        View::List(list) => {
            let words = list.elements().words();
            if are_bytes(words) {
                write_head(STRING, words.len() as u64, to);
                to.extend(words.iter().map(|word| (word >> 4) as u8));
                return Some(1 + words.len());
            }
            write_head(ELEMENTS, words.len() as u64, to);
            1 + write_each(list.elements(), to)?
        }
        View::Map(map) if map.ordered => {
            let uniform = are_uniform(map.nodes);
            let form = match map.nodes {
                [] => PAIRS,
                _ if uniform => TREE,
                _ => ODD_TREE,
            };
            write_other(form, map.keys.len(), to);
            if form != PAIRS {
                write_head(INTEGER, map.nodes.len() as u64, to);
            }
            let words = 1 + write_each(map.keys, to)? + write_each(map.values, to)?;
            match map.nodes {
                [first, rest @ ..] if uniform => {
                    for node in [first, rest.first().unwrap_or(first)] {
                        to.extend_from_slice(&(*node as u16).to_le_bytes());
                    }
                    for node in map.nodes {
                        to.extend_from_slice(&((node >> NODE_SHIFT) as u32).to_le_bytes());
                    }
                }
                nodes => write_words(nodes, to),
            }
            words + map.nodes.len()
        }
        View::Float(value) => {
            to.push(OTHER << FORM_SHIFT | DOUBLE as u8);
            write_words(&[value.to_bits()], to);
            2
        }
        View::Integer(integer) => {
            let form = if integer.negative { BELOW_ZERO } else { ABOVE_ZERO };
            write_other(form, integer.digits.len(), to);
            write_words(integer.digits, to);
            1 + integer.digits.len()
        }
        View::Binary(bytes) => {
            write_head(BYTES, bytes.len() as u64, to);
            to.extend_from_slice(bytes);
            1 + bytes.len().div_ceil(8)
        }
        View::Reference(words) => write_same(words, to),
        View::Fun(fun) => match term.same_words() {
            Some(words) => write_same(words, to),
            None if fun.is_counted() => return None,
            None => {
                write_other(CLOSURE, fun.env.len(), to);
                let words = write_each(fun.env, to)?;
                write_words(&fun.words, to);
                1 + words + FUN_WORDS
            }
        },
        View::Map(_) | View::SharedBinary(..) | View::HeldTerm(..) => return None,
    };
    Some(words)
}

fn write_each(elements: Elements<'_>, to: &mut Vec<u8>) -> Option<usize> {
    let mut words = elements.len();
    to.reserve(HEAD * words);
    for (index, element) in elements.iter().enumerate() {
        match element.is_immediate() {
            // SAFETY: there is memory for all elements from here on.
            true => unsafe { append_immediate(element.word(), to) },
            false => {
                words += write(element, to)?;
                to.reserve(HEAD * (elements.len() - index));
            }
        }
    }
    Some(words)
}

fn write_same(words: &[u64], to: &mut Vec<u8>) -> usize {
    write_other(SAME, words.len(), to);
    write_words(words, to);
    words.len()
}

fn write_immediate(word: u64, to: &mut Vec<u8>) {
    to.reserve(HEAD);
    // SAFETY: there is memory for it.
    unsafe { append_immediate(word, to) }
}

/// # Safety
/// There is memory for [`HEAD`] more bytes.
#[inline(always)]
unsafe fn append_immediate(word: u64, to: &mut Vec<u8>) {
    let value = word as i64 >> 4;
    let (form, argument) = if word & SMALL == SMALL {
        match value < 0 {
            true => (NEGATIVE, !value as u64),
            false => (INTEGER, value as u64),
        }
    } else if word & ((1 << ATOM_SHIFT) - 1) == ATOM_TAG {
        (ATOM, word >> ATOM_SHIFT)
    } else if word == NIL {
        (OTHER, EMPTY)
    } else {
        to.push(OTHER << FORM_SHIFT | WORD as u8);
        return to.extend_from_slice(&word.to_le_bytes());
    };
    // SAFETY: as the caller promises.
    unsafe { append_head(form, argument, to) }
}

fn write_other(form: u64, count: usize, to: &mut Vec<u8>) {
    write_head(OTHER, form, to);
    write_head(INTEGER, count as u64, to);
}

fn write_head(form: u8, argument: u64, to: &mut Vec<u8>) {
    to.reserve(HEAD);
    // SAFETY: there is memory for it.
    unsafe { append_head(form, argument, to) }
}

/// # Safety
/// There is memory for [`HEAD`] more bytes.
#[inline(always)]
unsafe fn append_head(form: u8, argument: u64, to: &mut Vec<u8>) {
    debug_assert!(to.capacity() - to.len() >= HEAD);
    let more = match argument < DIRECT {
        true => 0,
        false => 8 - argument.leading_zeros() as usize / 8,
    };
    let first = match more {
        0 => argument as u8,
        more => (DIRECT as usize - 1 + more) as u8,
    };
    // SAFETY: as the caller promises. All bytes below the new length are written.
    unsafe {
        let at = to.as_mut_ptr().add(to.len());
        at.write(form << FORM_SHIFT | first);
        at.add(1).cast::<u64>().write_unaligned(argument.to_le());
        to.set_len(to.len() + 1 + more);
    }
}

fn write_words(words: &[u64], to: &mut Vec<u8>) {
    words.iter().for_each(|word| to.extend_from_slice(&word.to_le_bytes()));
}

/// Whether all are small integers from 0 to 255.
fn are_bytes(words: &[u64]) -> bool {
    let other = |word: u64| (word ^ SMALL) & !(0xff << 4);
    // Pieces are looked at without a branch for each word.
    words
        .chunks(16)
        .all(|piece| piece.iter().fold(0, |all, word| all | other(*word)) == 0)
}

/// Whether the nodes of a tree, without the first one, differ only in [`NODE_BITS`].
fn are_uniform(nodes: &[u64]) -> bool {
    let other = |node: &u64| node & !NODE_BITS;
    let mut rest = nodes.iter().skip(1).map(other);
    let second = rest.next();
    nodes.iter().all(|node| other(node) <= u64::from(u16::MAX)) && rest.all(|node| Some(node) == second)
}

/// What is left of a compact form.
#[derive(Clone, Copy)]
struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    #[inline(always)]
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    /// The form and the argument.
    #[inline(always)]
    fn head(&mut self) -> (u8, u64) {
        let (first, rest) = self.0.split_first().expect("a term");
        let argument = u64::from(first & ARGUMENT);
        self.0 = rest;
        let form = first >> FORM_SHIFT;
        if argument < DIRECT {
            return (form, argument);
        }
        let more = argument as usize + 1 - DIRECT as usize;
        let value = match self.0.first_chunk() {
            Some(bytes) => u64::from_le_bytes(*bytes) & u64::MAX >> (64 - 8 * more),
            None => padded(&self.0[..more]).to_le(),
        };
        self.take(more);
        (form, value)
    }

    #[inline]
    fn count(&mut self) -> usize {
        self.head().1 as usize
    }

    #[inline]
    fn word(&mut self) -> u64 {
        u64::from_le_bytes(*self.take(8).first_chunk().expect("a word"))
    }
}

/// A term in its compact form, to be read part by part. The parts of a term follow it, in order.
#[derive(Clone, Copy)]
pub struct Parts<'a>(Source<'a>);

/// A term whose parts follow, or that has none.
pub enum Part<'a> {
    Immediate(u64),
    /// A list of small integers from 0 to 255.
    String(&'a [u8]),
    /// A list of this many elements, whose tail is `[]`.
    List(usize),
    Tuple(usize),
    /// A map that is no tree, of this many pairs: the keys, then the values.
    Map(usize),
    Float(f64),
    Binary(&'a [u8]),
    /// Any other term, perhaps with parts that belong to it. Only [`Parts::unpack`] reads it.
    Other,
}

impl<'a> Parts<'a> {
    #[inline]
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(Source(bytes))
    }

    /// Takes the next term, if it is an immediate.
    #[inline(always)]
    pub fn immediate(&mut self) -> Option<u64> {
        let mut source = self.0;
        let word = match source.head() {
            (INTEGER, value) => value << 4 | SMALL,
            (NEGATIVE, value) => !value << 4 | SMALL,
            (ATOM, index) => index << ATOM_SHIFT | ATOM_TAG,
            (OTHER, EMPTY) => NIL,
            (OTHER, WORD) => source.word(),
            _ => return None,
        };
        self.0 = source;
        Some(word)
    }

    /// Takes the next term without its parts.
    #[inline]
    pub fn part(&mut self) -> Part<'a> {
        if let Some(word) = self.immediate() {
            return Part::Immediate(word);
        }
        let source = &mut self.0;
        let (form, argument) = source.head();
        let count = argument as usize;
        match (form, argument) {
            (STRING, _) => Part::String(source.take(count)),
            (ELEMENTS, _) => Part::List(count),
            (FIELDS, _) => Part::Tuple(count),
            (BYTES, _) => Part::Binary(source.take(count)),
            (_, DOUBLE) => Part::Float(f64::from_bits(source.word())),
            (_, PAIRS) => Part::Map(source.count()),
            _ => Part::Other,
        }
    }

    /// Takes the next term with all of its parts, unpacked into `memory`. Panics if that has fewer words than the term.
    pub fn unpack<'m>(&mut self, memory: &'m mut [u64]) -> TermRef<'m> {
        let mut reader = Reader {
            source: self.0,
            words: &mut *memory,
            next: 0,
            base: 0,
        };
        let word = reader.term();
        self.0 = reader.source;
        // SAFETY: the term was just written there.
        unsafe { TermRef::new(memory.as_ptr(), word) }
    }
}

/// Reads terms from their compact form, into words.
struct Reader<'a, 'w> {
    source: Source<'a>,
    words: &'w mut [u64],
    /// The next of them to be written.
    next: usize,
    /// The place of the first of them in their block.
    base: usize,
}

/// Writes the items of a term, given its compact form, and returns the term's word. `base` is the place of the first word in the block.
/// Panics unless there are as many words as the term has.
pub(crate) fn read(bytes: &[u8], words: &mut [MaybeUninit<u64>], base: usize) -> u64 {
    for word in words.iter_mut() {
        word.write(0);
    }
    // SAFETY: all words were written just now.
    let words = unsafe { &mut *(std::ptr::from_mut(words) as *mut [u64]) };
    let mut reader = Reader {
        source: Source(bytes),
        words,
        next: 0,
        base,
    };
    let word = reader.term();
    assert_eq!(reader.next, reader.words.len());
    word
}

impl Reader<'_, '_> {
    /// Begins an item of this many words behind its header. Returns the place of that.
    #[inline]
    fn item(&mut self, header: u64, words: usize) -> usize {
        let at = self.next;
        self.words[at] = header;
        self.next = at + 1 + words;
        at
    }

    /// The word of the item at a place.
    #[inline]
    fn refer(&self, at: usize, tag: u64) -> u64 {
        ((self.base + at) as u64) << 2 | tag
    }

    /// Reads the next words of the item at a place as they are.
    fn fill_words(&mut self, from: usize, count: usize) {
        for at in from..from + count {
            self.words[at] = self.source.word();
        }
    }

    /// Reads `count` terms, which stand for the element words of the item at a place.
    #[inline]
    fn fill(&mut self, item: usize, count: usize) {
        let mut flat = true;
        for at in item + 1..item + 1 + count {
            let word = match self.source.head() {
                (INTEGER, value) => value << 4 | SMALL,
                (ATOM, index) => index << ATOM_SHIFT | ATOM_TAG,
                (form, argument) => self.term_of(form, argument),
            };
            flat &= is_immediate(word);
            self.words[at] = word;
        }
        if flat {
            self.words[item] |= FLAT;
        }
    }

    fn term(&mut self) -> u64 {
        let (form, argument) = self.source.head();
        self.term_of(form, argument)
    }

    fn term_of(&mut self, form: u8, argument: u64) -> u64 {
        let count = argument as usize;
        match form {
            INTEGER => argument << 4 | SMALL,
            NEGATIVE => !argument << 4 | SMALL,
            ATOM => argument << ATOM_SHIFT | ATOM_TAG,
            STRING => {
                let at = self.item(header(PROPER_LIST, count) | FLAT, count);
                let bytes = self.source.take(count);
                for (word, byte) in self.words[at + 1..][..count].iter_mut().zip(bytes) {
                    *word = u64::from(*byte) << 4 | SMALL;
                }
                self.refer(at, TAG_LIST)
            }
            ELEMENTS => {
                let at = self.item(header(PROPER_LIST, count), count);
                self.fill(at, count);
                self.refer(at, TAG_LIST)
            }
            FIELDS => {
                let at = self.item(header(TUPLE, count), count);
                self.fill(at, count);
                self.refer(at, TAG_ITEM)
            }
            BYTES => {
                let at = self.item(header(BINARY, count), count.div_ceil(8));
                let (whole, rest) = as_chunks::<8, _>(self.source.take(count));
                let words = whole.iter().map(|bytes| u64::from_ne_bytes(*bytes));
                let last = (!rest.is_empty()).then(|| padded(rest));
                for (place, word) in self.words[at + 1..].iter_mut().zip(words.chain(last)) {
                    *place = word;
                }
                self.refer(at, TAG_ITEM)
            }
            _ => self.other(argument),
        }
    }

    fn other(&mut self, form: u64) -> u64 {
        match form {
            EMPTY => return NIL,
            WORD => return self.source.word(),
            _ => {}
        }
        if form == DOUBLE {
            let at = self.item(header(FLOAT, 0), 1);
            self.fill_words(at + 1, 1);
            return self.refer(at, TAG_ITEM);
        }
        let count = self.source.count();
        let at = match form {
            ABOVE_ZERO | BELOW_ZERO => {
                let kind = [INTEGER_NEGATIVE, INTEGER_POSITIVE][usize::from(form == ABOVE_ZERO)];
                let at = self.item(header(kind, count), count);
                self.fill_words(at + 1, count);
                at
            }
            IMPROPER => {
                let at = self.item(header(LIST, count), count + 1);
                self.fill(at, count + 1);
                return self.refer(at, TAG_LIST);
            }
            PAIRS => {
                let at = self.item(header(MAP, count), 2 * count);
                self.fill(at, 2 * count);
                at
            }
            TREE | ODD_TREE => {
                let nodes = self.source.count();
                let at = self.item(tree_map_header(count, nodes), 2 * count + nodes);
                self.fill(at, 2 * count);
                let behind = at + 1 + 2 * count;
                match form {
                    TREE => self.fill_nodes(behind, nodes),
                    _ => self.fill_words(behind, nodes),
                }
                at
            }
            SAME => {
                let at = self.item(0, count - 1);
                self.fill_words(at, count);
                at
            }
            CLOSURE => {
                let at = self.item(header(FUN, count), count + FUN_WORDS);
                self.fill(at, count);
                self.fill_words(at + 1 + count, FUN_WORDS);
                at
            }
            form => unreachable!("form {form}"),
        };
        self.refer(at, TAG_ITEM)
    }

    /// Reads the nodes of a [`TREE`].
    fn fill_nodes(&mut self, from: usize, count: usize) {
        let mut same = [0; 2];
        for same in &mut same {
            *same = u64::from(u16::from_le_bytes(
                *self.source.take(2).first_chunk().expect("two bytes"),
            ));
        }
        for number in 0..count {
            let bits = u32::from_le_bytes(*self.source.take(4).first_chunk().expect("four bytes"));
            self.words[from + number] = same[number.min(1)] | u64::from(bits) << NODE_SHIFT;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::{Builder, Item};

    /// The words of a term that `build` makes are the same after they were packed and unpacked. Returns the number of packed bytes.
    fn same(build: impl FnOnce(&mut Builder<'_>) -> u64) -> usize {
        let mut builder = Builder::new();
        let root = builder.tuple(1);
        let word = build(&mut builder);
        builder.set(root, 0, word);
        let term = builder.as_key();
        let mut bytes = vec![7];
        let count = write(term, &mut bytes).expect("a compact form");
        let mut words = vec![MaybeUninit::uninit(); count];
        assert_eq!(read(&bytes[1..], &mut words, 2), word);
        if !is_immediate(word) {
            // SAFETY: all of them were written.
            let words: Vec<u64> = words.iter().map(|word| unsafe { word.assume_init() }).collect();
            // SAFETY: the term has as many words.
            assert_eq!(words, unsafe { term.words(count) });
        }
        bytes.len() - 1
    }

    fn filled(builder: &mut Builder<'_>, item: Item, words: impl Iterator<Item = u64>) -> u64 {
        builder
            .slots(item)
            .iter_mut()
            .zip(words)
            .for_each(|(slot, word)| *slot = word);
        item.word()
    }

    #[test]
    fn immediates() {
        for bits in 0..59 {
            for value in [(1_i64 << bits) - 1, 1 << bits, -1 << bits, (-1 << bits) - 1] {
                let bytes = same(|_| small(value).unwrap());
                assert!(bytes <= 2 + bits as usize / 8);
            }
        }
        for index in [0, 23, 24, 255, 256, 65_535, 65_536, 1 << 24, u32::MAX as u64] {
            same(|_| index << ATOM_SHIFT | ATOM_TAG);
        }
        assert_eq!(same(|_| NIL), 1);
        for word in [0x3, 0x7, 0x1233, 0x1237, u64::MAX << 4 | 3] {
            assert_eq!(same(|_| word), 9);
        }
    }

    #[test]
    fn strings_and_other_lists() {
        for length in [1, 7, 8, 15, 16, 17, 23, 24, 255, 256, 70_000] {
            for other in [None, Some(-1), Some(256)] {
                let bytes = same(|builder| {
                    let list = builder.proper_list(length);
                    let words = (0..length).map(|i| small(i as i64 * 7 % 256).unwrap());
                    filled(builder, list, words);
                    if let Some(other) = other {
                        builder.set(list, length - 1, small(other).unwrap());
                    }
                    list.word()
                });
                assert!(other.is_some() || bytes <= length + 4);
            }
            same(|builder| {
                let list = builder.list(length);
                builder.set(list, length, small(5).unwrap());
                list.word()
            });
        }
    }

    #[test]
    fn binaries_and_numbers() {
        for length in 0..40_u8 {
            let bytes: Vec<u8> = (1..=length).collect();
            same(|builder| builder.binary(&bytes));
        }
        for value in [0.0, -0.0, 1.5, f64::MAX, f64::NAN] {
            same(|builder| builder.float(value));
        }
        for digits in [&[1 << 60][..], &[u64::MAX, 1], &[0, 0, 1]] {
            same(|builder| builder.integer(true, digits));
            same(|builder| builder.integer(false, digits));
        }
    }

    #[test]
    fn trees_in_the_usual_form_and_in_others() {
        let uniform = [0x00ab_cd00_f3bc, 0x0700_1100_fbbc, 0xffff_ffff_fbbc, 0xfbbc];
        let uniform = uniform.map(|node| node & 0xffff_ffff_0000 | (node & 0xffff));
        let nodes: [&[u64]; 6] = [
            &[0x0001_abcd_00bc],
            &[0x0001_abcd_00bc, 0xabcd_007c],
            &[0xffff_ffff_00bc, 0xffff_ffff_007c, 0xffff_007c],
            &[0xffff_ffff_00bc, 0xffff_ffff_007c, 0xffff_017c],
            &[0x1_ffff_ffff_00bc, 0xffff_007c],
            &uniform,
        ];
        for nodes in nodes {
            for nested in [false, true] {
                same(|builder| {
                    let map = builder.map(40);
                    builder.nodes(map, nodes);
                    if nested {
                        let list = builder.proper_list(3);
                        builder.set(map, 79, list.word());
                    }
                    map.word()
                });
            }
        }
    }

    #[test]
    fn funs_and_references() {
        let plain_fun = [PLAIN_FUN | 2 << 16, 0x1000, NIL, NIL];
        for words in [&[PLAIN_REFERENCE, 1, 2][..], &[ALIAS, 1, 2, 3], &plain_fun] {
            same(|builder| builder.same(words));
        }
        same(|builder| {
            let fun = builder.filled_fun(&[NIL, NIL], [PLAIN_FUN, 0x1234_5678]);
            let word = builder.float(1.0);
            builder.set(fun, 1, word);
            fun.word()
        });
    }

    #[test]
    fn nested_terms() {
        same(|builder| {
            let tuple = builder.tuple(3);
            let empty = builder.tuple(0);
            builder.set(tuple, 0, empty.word());
            let map = builder.map(0);
            builder.set(tuple, 1, map.word());
            let list = builder.proper_list(2);
            builder.set(tuple, 2, list.word());
            let string = builder.proper_list(1);
            builder.set(list, 0, string.word());
            builder.set(string, 0, small(200).unwrap());
            let pair = builder.map(1);
            builder.set(list, 1, pair.word());
            let value = builder.binary(b"value");
            builder.set(pair, 1, value);
            tuple.word()
        });
    }

    /// What is read part by part, and what is unpacked in between, is the term.
    #[test]
    fn parts_follow_one_another() {
        let mut builder = Builder::new();
        let root = builder.tuple(1);
        let list = builder.proper_list(9);
        builder.set(root, 0, list.word());
        let string = builder.proper_list(3);
        filled(
            &mut builder,
            string,
            [97, 98, 99].map(|byte| small(byte).unwrap()).into_iter(),
        );
        let pair = builder.tuple(2);
        filled(&mut builder, pair, [small(-1).unwrap(), NIL].into_iter());
        let integer = builder.integer(true, &[3, 4]);
        let map = builder.map(1);
        filled(&mut builder, map, [small(1000).unwrap(), 0x123].into_iter());
        let improper = builder.list(1);
        filled(&mut builder, improper, [NIL, small(1).unwrap()].into_iter());
        let binary = builder.binary(b"bytes");
        let float = builder.float(1.5);
        let words = [
            string.word(),
            pair.word(),
            integer,
            map.word(),
            0x5_6789_abcb,
            improper.word(),
        ];
        filled(&mut builder, list, words.into_iter().chain([binary, float, 0x3]));
        let mut bytes = Vec::new();
        write(builder.as_key(), &mut bytes).expect("a compact form");

        let mut parts = Parts::new(&bytes);
        let mut memory = [0; 8];
        let immediate =
            |parts: &mut Parts<'_>, word| assert!(matches!(parts.part(), Part::Immediate(seen) if seen == word));
        assert_eq!(parts.immediate(), None);
        assert!(matches!(parts.part(), Part::List(9)));
        assert!(matches!(parts.part(), Part::String(b"abc")));
        assert!(matches!(parts.part(), Part::Tuple(2)));
        immediate(&mut parts, small(-1).unwrap());
        immediate(&mut parts, NIL);
        let before = parts;
        assert!(matches!(parts.part(), Part::Other));
        parts = before;
        assert!(matches!(
            parts.unpack(&mut memory).view(),
            View::Integer(Integer {
                negative: true,
                digits: [3, 4]
            })
        ));
        assert!(matches!(parts.part(), Part::Map(1)));
        immediate(&mut parts, small(1000).unwrap());
        immediate(&mut parts, 0x123);
        immediate(&mut parts, 0x5_6789_abcb);
        assert!(matches!(parts.unpack(&mut memory).view(), View::List(list) if list.tail().small() == Some(1)));
        assert!(matches!(parts.part(), Part::Binary(b"bytes")));
        assert!(matches!(parts.part(), Part::Float(1.5)));
        assert_eq!(parts.immediate(), Some(0x3));
        assert!(parts.0 .0.is_empty());
    }

    #[test]
    fn what_is_held_has_no_compact_form() {
        let mut builder = Builder::new();
        let root = builder.tuple(2);
        // SAFETY: nobody reads the binary.
        let word = unsafe { builder.counted_binary(8, &[]) };
        builder.set(root, 1, word);
        assert_eq!(write(builder.root(), &mut Vec::new()), None);
    }
}
