//! Normalized keys: byte strings that order by `memcmp` as their terms order.
//!
//! | term | bytes |
//! |---|---|
//! | number | below |
//! | atom | class, the bytes of its UTF-8 text, each plus 1, and 0 |
//! | tuple | class, arity, elements |
//! | map | class, number of pairs; ends the key unless that number is 0 |
//! | `[]` | class |
//! | list | class, elements as below, the end as below |
//! | bit string | class, bytes with 0 written as 0 255, then 0 and the number of bits of the last byte |
//! | pid | class, serial and ID as numbers, node as below; ends the key if it is of another node |
//! | reference of this node | class, node as below, its three lowest numbers, the last one first |
//! | reference of another node | class, node as below; ends the key |
//! | others, terms of these two classes if their [layout](crate::IdentifierLayout) is not known, and terms nested deeper than 16 levels | class; ends the key |
//! | [`BOTTOM`] | nothing; ends the key |
//! | `TOP` | 255; ends the key |
//!
//! The bytes of a positive number depend on its size. Here e is the number's exponent: the number is at least 2^e and less than 2^(e + 1).
//!
//! | positive number | bytes |
//! |---|---|
//! | below 1 | one byte for all such numbers, then 8 bytes with the bits of the float |
//! | from 1, below 2^64 | one byte for e, then the bits listed below, filled up to whole bytes |
//! | from 2^64 | one byte for all such numbers, 8 bytes for e, then all bits of the integral part |
//!
//! The bits of the middle row come in three parts. First are the e bits of the integral part below its highest bit. Then one bit says whether
//! there is a fraction. Last are the bits of the fraction.
//!
//! The bytes of a negative number are the complement of its magnitude's bytes. So 1 and 1.0 have the same bytes, and no number is rounded.
//!
//! In a list, an integer from 1 to 248 is one byte. So a string is as dense as a binary:
//!
//! | in a list | bytes |
//! |---|---|
//! | a tail that orders below `[]` | 1 and the tail |
//! | `[]`, the end | 2 |
//! | an element below 1 | 3 and the element |
//! | an element from 1, below 249 | 3 plus its integral part; if it has a fraction, also 255 and the element |
//! | any other element | 252 and the element |
//! | a tail that orders above lists | 253 and the tail |
//!
//! The node of a pid or a reference is one byte. An alias may have more than three numbers, and references with less order below it:
//!
//! | node | byte |
//! |---|---|
//! | orders below this one | 1 |
//! | this one | 2 |
//! | this one, with more numbers that are not all 0 | 3, and the 8 bytes of these two |
//! | orders above this one | 4 |
//!
//! No byte string is a proper prefix of another one. Each shows by its own bytes where it ends. A class that ends the key does so wherever it
//! stands. So strings may be compared eight bytes at a time, filled up with zeros.

use crate::format::{as_chunks, padded, Class, Elements, Integer, TermRef, View, BOTTOM, NIL};
use crate::host::{host, HeldTerm};
use crate::identifier::{identifiers, HeldReference};
use crate::number::Whole;
use std::cell::Cell;
use std::cmp::Ordering;
use std::mem::MaybeUninit;

/// Terms nested deeper end the key. Tuples, lists and maps are held only at greater depths than this.
const MAX_DEPTH: usize = 16;

const ZERO: u8 = 0x80;
/// First byte of positive numbers below 1.
const FRACTION: u8 = 0x81;
/// First byte of positive numbers from 1, below 2. The next 63 bytes stand for larger exponents.
const ONE: u8 = 0x82;
/// First byte of numbers from 2^64.
const HUGE: u8 = 0xc2;
/// The class byte of atoms. Those of the other classes follow.
const ATOM: u8 = 0xd0;
/// The byte of `TOP`.
const ABOVE: u8 = 0xff;

const LOW_TAIL: u8 = 1;
const NIL_TAIL: u8 = 2;
const LOW_ELEMENT: u8 = 3;
/// The largest integer that is one byte in a list.
const ELEMENT: i64 = 248;
const HIGH_ELEMENT: u8 = 252;
const HIGH_TAIL: u8 = 253;
const FRACTION_ELEMENT: u8 = 255;

const NODE_BELOW: u8 = 1;
const THIS_NODE: u8 = 2;
const THIS_NODE_MORE: u8 = 3;
const NODE_ABOVE: u8 = 4;

const fn class_byte(class: Class) -> u8 {
    ATOM + (class as u8 - Class::Atom as u8)
}

/// Appends the term's normalized key to `out`, cut off at `limit` bytes.
///
/// If the keys of two terms differ, the terms order as the keys do. If the keys are the same, the terms may or may not be equal.
pub fn normalize(term: TermRef<'_>, out: &mut Vec<u8>, limit: usize) {
    let end = out.len().saturating_add(limit);
    const PIECE: usize = 32;
    for skip in (0..limit).step_by(8 * PIECE) {
        let mut piece = [0; PIECE];
        let count = heads_of(term, skip, &mut piece);
        let bytes = piece.iter().flat_map(|head| head.to_be_bytes());
        out.extend(bytes.take(count.min(end - out.len())));
        if count < 8 * PIECE {
            break;
        }
    }
}

/// The eight bytes of the term's normalized key that begin at byte `skip`, as a big-endian number. The bytes after the key's end are zeros.
#[inline]
pub fn head(term: TermRef<'_>, skip: usize) -> u64 {
    match term.small() {
        Some(value) if skip == 0 => head_of_small(value),
        _ => head_of_any(term, skip),
    }
}

/// [`head`] of a small integer.
#[inline]
fn head_of_small(value: i64) -> u64 {
    match value.unsigned_abs() {
        0 => u64::from(ZERO) << 56,
        magnitude => Digits::of_whole(magnitude).head(value < 0),
    }
}

/// [`head`] of any term. Floats are handled here, as other kinds of terms need registers that must be saved.
#[inline(never)]
fn head_of_any(term: TermRef<'_>, skip: usize) -> u64 {
    if skip == 0 && !term.is_immediate() {
        if let Some(&[bits]) = term.float_words() {
            let value = f64::from_bits(bits);
            if let Some(digits) = Digits::of_float(value) {
                return digits.head(value < 0.0);
            }
        }
    }
    head_of_other(term, skip)
}

#[inline(never)]
fn head_of_other(term: TermRef<'_>, skip: usize) -> u64 {
    let head = match term.view() {
        View::Binary(bytes) | View::SharedBinary(_, bytes) => head_of_bytes(bytes, skip),
        _ => None,
    };
    if let Some(head) = head {
        return head;
    }
    let mut head = 0;
    heads(term, skip, std::slice::from_mut(&mut head));
    head
}

/// [`head`] of a binary, if the binary is long enough and has no byte 0 up to there.
#[inline]
fn head_of_bytes(bytes: &[u8], skip: usize) -> Option<u64> {
    let head = match skip.checked_sub(1) {
        Some(skip) => u64::from_be_bytes(*bytes.get(skip..)?.first_chunk()?),
        None => u64::from(class_byte(Class::BitString)) << 56 | u64::from_be_bytes(*bytes.first_chunk()?) >> 8,
    };
    (!bytes[..skip.min(bytes.len())].contains(&0) && !has_zero(head)).then_some(head)
}

/// Sets `heads` to the [`head`] at `skip`, the one eight bytes further on, and so on. All of `heads` must be 0 before. This takes little
/// more time than computing one head.
#[inline(never)]
pub fn heads(term: TermRef<'_>, skip: usize, heads: &mut [u64]) {
    heads_of(term, skip, heads);
}

/// [`heads`], and returns the number of bytes that the key has there.
fn heads_of(term: TermRef<'_>, skip: usize, heads: &mut [u64]) -> usize {
    write(Window::new(skip, heads), term)
}

/// The bits of a number are combined with this mask by exclusive or.
#[inline]
fn mask(negative: bool) -> u64 {
    if negative {
        u64::MAX
    } else {
        0
    }
}

/// The bytes of a magnitude below 2^64.
#[derive(Clone, Copy)]
struct Digits {
    first: u8,
    /// The bytes after the first one, filled up with zeros.
    rest: u64,
    /// The number of bytes, 1 to 9.
    length: u32,
}

impl Digits {
    /// Of an integer, which is not 0.
    #[inline(always)]
    fn of_whole(magnitude: u64) -> Self {
        let zeros = magnitude.leading_zeros();
        Self::without_fraction(63 - zeros, magnitude << zeros << 1)
    }

    /// Of an integer with this exponent. `bits` are the bits below its highest one, at the upper end of the word.
    #[inline(always)]
    fn without_fraction(exponent: u32, bits: u64) -> Self {
        Self {
            first: ONE + exponent as u8,
            rest: bits,
            length: 2 + exponent / 8,
        }
    }

    /// Of a float. `None` if its magnitude is 2^64 or more.
    #[inline(always)]
    fn of_float(value: f64) -> Option<Self> {
        let bits = value.abs().to_bits();
        let mantissa = bits << 12;
        match ((bits >> 52) as u32).wrapping_sub(1023) {
            exponent @ ..64 => Some(match mantissa << exponent {
                0 => Self::without_fraction(exponent, mantissa),
                // The bit that announces a fraction moves the fraction's bits down by one. The lowest twelve bits of the mantissa's word
                // are zeros, so nothing is lost.
                fraction => Self {
                    first: ONE + exponent as u8,
                    rest: mantissa & !(!0 >> exponent) | 1 << (63 - exponent) | fraction >> 1 >> exponent,
                    length: 8,
                },
            }),
            exponent if exponent as i32 > 0 => None,
            _ if bits == 0 => Some(Self {
                first: ZERO,
                rest: 0,
                length: 1,
            }),
            // In a float below 1, the sign and the highest bit of the exponent are 0.
            _ => Some(Self {
                first: FRACTION,
                rest: bits << 2,
                length: 9,
            }),
        }
    }

    /// The first eight bytes.
    #[inline(always)]
    fn head(self, negative: bool) -> u64 {
        let head = u64::from(self.first) << 56 | self.rest >> 8;
        if negative {
            !head & !0 << (64 - 8 * self.length.min(8))
        } else {
            head
        }
    }
}

/// Whether one of the bytes is 0.
#[inline]
fn has_zero(word: u64) -> bool {
    const ONES: u64 = u64::MAX / 0xff;
    word.wrapping_sub(ONES) & !word & (ONES << 7) != 0
}

/// The part of a key that is to be computed.
struct Window<'a> {
    /// All words are 0 at first.
    heads: &'a mut [u64],
    /// The index of the head that is being filled. Heads with a negative index are not wanted.
    at: isize,
    word: u64,
    /// The number of its bits that are filled.
    bits: u32,
}

impl<'a> Window<'a> {
    fn new(skip: usize, heads: &'a mut [u64]) -> Self {
        Self {
            heads,
            at: -(skip.div_ceil(8) as isize),
            word: 0,
            bits: skip.wrapping_neg() as u32 % 8 * 8,
        }
    }

    #[inline(always)]
    fn is_full(&self) -> bool {
        self.at >= self.heads.len() as isize
    }

    /// Writes the highest `length` bytes of a word. `length` is 1 to 8. The other bytes are zeros.
    #[inline(always)]
    fn put_word(&mut self, word: u64, length: u32) {
        self.word |= word >> self.bits;
        let bits = self.bits + 8 * length;
        if bits < 64 {
            self.bits = bits;
        } else {
            self.store();
            // The bytes that did not fit. Two shifts, as one shift could be by 64.
            self.word = word << (63 - self.bits) << 1;
            self.bits = bits - 64;
        }
    }

    #[inline(always)]
    fn store(&mut self) {
        if let Some(head) = self.heads.get_mut(self.at as usize) {
            *head = self.word;
        }
        self.at += 1;
    }

    #[inline(always)]
    fn put_byte(&mut self, byte: u8) {
        self.put_word(u64::from(byte) << 56, 1);
    }

    #[inline(always)]
    fn put_class(&mut self, class: Class) {
        self.put_byte(class_byte(class));
    }

    /// Writes bytes, none of which is 0.
    #[inline(always)]
    fn put(&mut self, bytes: &[u8]) {
        let (whole, rest) = as_chunks::<8, _>(bytes);
        for bytes in whole {
            self.put_word(u64::from_be_bytes(*bytes), 8);
            if self.is_full() {
                return;
            }
        }
        if !rest.is_empty() {
            self.put_word(u64::from_be(padded(rest)), rest.len() as u32);
        }
    }

    #[inline(always)]
    fn put_digits(&mut self, negative: bool, digits: Digits) {
        if digits.length <= 8 {
            return self.put_word(digits.head(negative), digits.length);
        }
        self.put_byte(digits.first ^ mask(negative) as u8);
        self.put_word(digits.rest ^ mask(negative), 8);
    }

    #[inline(always)]
    fn put_small(&mut self, value: i64) {
        match value.unsigned_abs() {
            0 => self.put_byte(ZERO),
            magnitude => self.put_digits(value < 0, Digits::of_whole(magnitude)),
        }
    }

    /// Writes a class and a size. A small size takes one byte. For a larger one, that byte says how many bytes follow.
    #[inline(always)]
    fn put_size(&mut self, class: Class, size: usize) {
        let class = u64::from(class_byte(class)) << 56;
        if size < 0xf0 {
            return self.put_word(class | (size as u64) << 48, 2);
        }
        let zeros = size.leading_zeros() / 8;
        self.put_word(class | u64::from(0xf8 - zeros) << 48, 2);
        self.put_word((size as u64) << (8 * zeros), 8 - zeros);
    }

    /// Writes the serial, the ID and the node of a pid.
    #[inline(always)]
    fn put_pid(&mut self, [serial, id]: [u32; 2], node: u8) {
        self.put_small(serial.into());
        self.put_small(id.into());
        self.put_byte(node);
    }

    /// Writes the numbers of a reference of this node: the highest two, the next two, and the lowest one.
    #[inline(always)]
    fn put_reference(&mut self, high: u64, middle: u64, low: u32) {
        if high == 0 {
            self.put_byte(THIS_NODE);
        } else {
            self.put_byte(THIS_NODE_MORE);
            self.put_word(high, 8);
        }
        self.put_word(middle, 8);
        self.put_word(u64::from(low) << 32, 4);
    }

    /// Writes the bytes that precede an element of a list. Returns true if these are all bytes of the element.
    #[inline(always)]
    fn put_place(&mut self, element: TermRef<'_>) -> bool {
        let (byte, is_all) = match element.small() {
            Some(value @ 1..=ELEMENT) => (LOW_ELEMENT + value as u8, true),
            Some(value) => (if value < 1 { LOW_ELEMENT } else { HIGH_ELEMENT }, false),
            None => match element.view() {
                View::Float(value) if value < 1.0 => (LOW_ELEMENT, false),
                View::Float(value) if value < (ELEMENT + 1) as f64 => {
                    let whole = value as u8;
                    if f64::from(whole) != value {
                        self.put_byte(LOW_ELEMENT + whole);
                        (FRACTION_ELEMENT, false)
                    } else {
                        (LOW_ELEMENT + whole, true)
                    }
                }
                View::Integer(integer) if integer.negative => (LOW_ELEMENT, false),
                View::Immediate(BOTTOM) => (LOW_ELEMENT, false),
                _ => (HIGH_ELEMENT, false),
            },
        };
        self.put_byte(byte);
        is_all
    }

    #[inline(always)]
    fn put_text(&mut self, text: &Text) {
        let mut left = text.length;
        for word in text.words {
            if left <= 8 {
                return self.put_word(word, left);
            }
            self.put_word(word, 8);
            left -= 8;
        }
    }

    /// Ends the key with zeros. Returns the number of bytes before them.
    #[inline(always)]
    fn finish(mut self) -> usize {
        let filled = 8 * self.at + (self.bits / 8) as isize;
        self.store();
        usize::try_from(filled).unwrap_or(0).min(8 * self.heads.len())
    }
}

/// The rest of a tuple or list that is being written.
#[derive(Clone, Copy)]
struct Parts<'a> {
    elements: Elements<'a>,
    /// Present for a list.
    tail: Option<TermRef<'a>>,
}

/// The tuples and lists around the current one.
struct Parents<'a> {
    places: [MaybeUninit<Parts<'a>>; MAX_DEPTH],
    count: usize,
}

impl<'a> Parents<'a> {
    #[inline(always)]
    fn is_full(&self) -> bool {
        self.count == MAX_DEPTH
    }

    #[inline(always)]
    fn push(&mut self, parts: Parts<'a>) {
        self.places[self.count].write(parts);
        self.count += 1;
    }

    #[inline(always)]
    fn pop(&mut self) -> Option<Parts<'a>> {
        self.count = self.count.checked_sub(1)?;
        // SAFETY: the places below the count were written.
        Some(unsafe { self.places[self.count].assume_init() })
    }
}

/// Writes the term's key into a window. Returns the number of bytes that are there.
fn write(window: Window<'_>, term: TermRef<'_>) -> usize {
    // The window stays in registers as long as no function gets its address. So functions take it by value and return it.
    let mut out = window;
    let mut item = term;
    let mut parts = Parts {
        elements: Elements::immediates(&[]),
        tail: None,
    };
    let mut parents = Parents {
        places: [const { MaybeUninit::uninit() }; MAX_DEPTH],
        count: 0,
    };
    'key: loop {
        let inner = match item.view() {
            View::Tuple(elements) => {
                if parents.is_full() {
                    out.put_class(Class::Tuple);
                    break;
                }
                out.put_size(Class::Tuple, elements.len());
                Some(Parts { elements, tail: None })
            }
            View::List(list) => {
                out.put_class(Class::List);
                if parents.is_full() {
                    break;
                }
                let (elements, tail) = (list.elements(), Some(list.tail()));
                Some(Parts { elements, tail })
            }
            View::Immediate(word) => {
                let ends;
                (out, ends) = put_immediate(out, word);
                if ends {
                    break;
                }
                None
            }
            View::Binary(bytes) | View::SharedBinary(_, bytes) => {
                out.put_class(Class::BitString);
                out = put_bits(out, bytes, bytes.len() * 8);
                None
            }
            View::Float(value) => {
                out = put_float(out, value);
                None
            }
            other => {
                let ends;
                (out, ends) = put_other(out, other, parents.is_full());
                if ends {
                    break;
                }
                None
            }
        };
        if out.is_full() {
            break;
        }
        if let Some(inner) = inner {
            parents.push(parts);
            parts = inner;
        }
        item = loop {
            if let Some((element, rest)) = parts.elements.split_first() {
                parts.elements = rest;
                if parts.tail.is_some() {
                    if !out.put_place(element) {
                        break element;
                    }
                } else if let Some(value) = element.small() {
                    out.put_small(value);
                } else if let Some(text) = text_of(element.word()) {
                    out.put_text(&text);
                } else {
                    break element;
                }
            } else if let Some(tail) = parts.tail.take() {
                if tail.word() == NIL {
                    out.put_byte(NIL_TAIL);
                } else {
                    out.put_byte(if tail.class() < Class::List {
                        LOW_TAIL
                    } else {
                        HIGH_TAIL
                    });
                    break tail;
                }
            } else {
                match parents.pop() {
                    Some(outer) => parts = outer,
                    None => break 'key,
                }
            }
            if out.is_full() {
                break 'key;
            }
        };
    }
    out.finish()
}

/// Writes an immediate. Returns true if it ends the key.
#[inline(never)]
fn put_immediate(out: Window<'_>, word: u64) -> (Window<'_>, bool) {
    let mut out = out;
    let class = Class::of_immediate(word);
    match class {
        Class::Bottom => {}
        Class::Top => out.put_byte(ABOVE),
        Class::Number => out.put_small(TermRef::immediate(word).small().expect("a small integer")),
        Class::Atom => match text_of(word) {
            Some(text) => out.put_text(&text),
            None => {
                let bytes = bytes_of(word);
                if let Some(text) = Text::new(word, &bytes) {
                    remember(text);
                }
                // The last byte is the 0. `put` cannot write it, as it writes no zeros.
                out.put(&bytes[..bytes.len() - 1]);
                out.put_byte(0);
            }
        },
        Class::Pid => {
            out.put_class(class);
            if let Some(layout) = identifiers() {
                out.put_pid(layout.parts(layout.number(word)), THIS_NODE);
                return (out, false);
            }
        }
        _ => out.put_class(class),
    }
    (out, !matches!(class, Class::Number | Class::Atom | Class::Nil))
}

/// Writes a term that is not a tuple, list, float or binary. Returns true if it ends the key.
#[cold]
#[inline(never)]
fn put_other<'a>(out: Window<'a>, view: View<'_>, is_deepest: bool) -> (Window<'a>, bool) {
    let mut out = out;
    match view {
        View::Integer(Integer { negative, digits }) => {
            match *digits {
                [digit] => out.put_digits(negative, Digits::of_whole(digit)),
                _ => put_huge(&mut out, negative, digits.len(), |i| digits[i]),
            }
            (out, false)
        }
        View::Map(map) => {
            match is_deepest {
                true => out.put_class(Class::Map),
                false => out.put_size(Class::Map, map.keys.len()),
            }
            (out, is_deepest || !map.keys.is_empty())
        }
        View::HeldTerm(Class::BitString, held) => {
            out.put_class(Class::BitString);
            (put_held_bits(out, held), false)
        }
        View::HeldTerm(class @ (Class::Pid | Class::Reference), held) if identifiers().is_some() => {
            out.put_class(class);
            put_held_identifier(out, class, held.term())
        }
        View::HeldTerm(class, _) => {
            out.put_class(class);
            (out, true)
        }
        View::Fun(_) => {
            out.put_class(Class::Fun);
            (out, true)
        }
        View::Reference(words) => {
            out.put_class(Class::Reference);
            let numbers = identifiers().map(|layout| layout.reference_numbers(words));
            if let Some((high, middle, low)) = numbers {
                out.put_reference(high, middle, low);
            }
            (out, numbers.is_none())
        }
        _ => unreachable!("other terms are written elsewhere"),
    }
}

/// Writes a pid or a reference that is held, without its class. Returns true if it ends the key.
fn put_held_identifier(out: Window<'_>, class: Class, term: u64) -> (Window<'_>, bool) {
    let mut out = out;
    let node = |order| match order {
        Ordering::Less => NODE_BELOW,
        _ => NODE_ABOVE,
    };
    if class == Class::Pid {
        let (parts, order) = (host().foreign_pid)(term);
        out.put_pid(parts, node(order));
        return (out, true);
    }
    match (host().held_reference)(term) {
        HeldReference::Here([first, second, third]) => {
            out.put_reference(0, u64::from(third) << 32 | u64::from(second), first);
            (out, false)
        }
        HeldReference::Elsewhere(order) => {
            out.put_byte(node(order));
            (out, true)
        }
    }
}

#[inline(never)]
fn put_float(out: Window<'_>, value: f64) -> Window<'_> {
    let mut out = out;
    match Digits::of_float(value) {
        Some(digits) => out.put_digits(value < 0.0, digits),
        None => {
            let whole = Whole::of(value);
            put_huge(&mut out, value < 0.0, whole.len(), |i| whole.digit(i));
        }
    }
    out
}

/// The bytes of a short atom. They can be kept, as the text of an atom never changes.
#[derive(Clone, Copy)]
struct Text {
    /// 0 if there is none.
    atom: u64,
    length: u32,
    /// The bytes, big-endian, filled up with zeros.
    words: [u64; TEXT / 8],
}

/// The largest number of bytes.
const TEXT: usize = 24;
/// The number of texts that each thread remembers.
const TEXTS: usize = 64;

thread_local! {
    static KNOWN: [Cell<Text>; TEXTS] = const {
        [const { Cell::new(Text { atom: 0, length: 0, words: [0; TEXT / 8] }) }; TEXTS]
    };
}

/// The place of an atom's text. The VM numbers atoms consecutively. The number stands above six bits of tag.
#[inline(always)]
fn place_of(atom: u64) -> usize {
    (atom >> 6) as usize % TEXTS
}

/// The bytes of the atom, if the word is an atom that this thread remembers.
#[inline(always)]
fn text_of(word: u64) -> Option<Text> {
    let text = KNOWN.with(|known| known[place_of(word)].get());
    (text.atom == word).then_some(text)
}

fn remember(text: Text) {
    KNOWN.with(|known| known[place_of(text.atom)].set(text));
}

impl Text {
    /// `None` if there are too many bytes.
    fn new(atom: u64, bytes: &[u8]) -> Option<Self> {
        let mut words = [0; TEXT];
        words.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let (words, _) = as_chunks(&words);
        Some(Self {
            atom,
            length: bytes.len() as u32,
            words: std::array::from_fn(|i| u64::from_be_bytes(words[i])),
        })
    }
}

/// The bytes of an atom, beginning with its class.
fn bytes_of(atom: u64) -> Vec<u8> {
    let mut bytes = vec![class_byte(Class::Atom)];
    (host().atom_text)(atom, &mut bytes);
    // This does not overflow: UTF-8 has no bytes above 0xf4.
    bytes[1..].iter_mut().for_each(|byte| *byte += 1);
    bytes.push(0);
    bytes
}

/// Writes a number of at least 2^64 that has `length` digits.
fn put_huge(out: &mut Window<'_>, negative: bool, length: usize, digit: impl Fn(usize) -> u64) {
    let mask = mask(negative);
    let exponent = length as u64 * 64 - 1 - u64::from(digit(length - 1).leading_zeros());
    out.put_byte(HUGE ^ mask as u8);
    out.put_word(exponent ^ mask, 8);
    for i in (0..length).rev() {
        if out.is_full() {
            break;
        }
        out.put_word(digit(i) ^ mask, 8);
    }
}

fn put_held_bits<'a>(out: Window<'a>, held: &HeldTerm) -> Window<'a> {
    thread_local! {
        // Kept to save allocations.
        static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    }
    let mut bytes = BUFFER.take();
    let bits = (host().bits)(held.term(), &mut bytes);
    let out = put_bits(out, &bytes, bits);
    bytes.clear();
    bytes.shrink_to(1024);
    BUFFER.set(bytes);
    out
}

/// Writes the bits of a bit string. A byte 0 is written as 0 255. So 0 and a smaller byte than 255 end the bit string.
#[inline(never)]
fn put_bits<'a>(out: Window<'a>, bytes: &[u8], bits: usize) -> Window<'a> {
    let mut out = out;
    for piece in bytes.chunks(8) {
        if piece.contains(&0) {
            for &byte in piece {
                match byte {
                    0 => out.put_word(0xff << 48, 2),
                    _ => out.put_byte(byte),
                }
            }
        } else {
            out.put(piece);
        }
        if out.is_full() {
            return out;
        }
    }
    let last = if bits == 0 { 0 } else { (bits - 1) % 8 + 1 };
    out.put_word((last as u64) << 48, 2);
    out
}
