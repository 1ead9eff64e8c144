//! Normalized keys: byte strings whose order, as by `memcmp`, is the order of terms (DESIGN section 5).
//!
//! | term | bytes |
//! |---|---|
//! | number | below |
//! | atom | class, text as bytes are, 0 0 |
//! | tuple | class, arity, elements |
//! | map | class, number of pairs; ends the key unless that is 0 |
//! | `[]` | class |
//! | list | for each element the class and the element, then the tail |
//! | bit string | class, bytes with 0 written as 0 255, then 0 and the number of bits of the last byte |
//! | others, and terms nested deeper than 16 | class; ends the key |
//! | the words below and above all terms | nothing, and 255; end the key |
//!
//! A positive number of 2^e up to 2^(e + 1), e below 64, is a byte for e, then the e bits of its integral part below the
//! highest, left-aligned in whole bytes, then 0, or 1 and the fraction in 8 bytes. Larger numbers have an 8-byte e and all
//! bits; numbers below 1 two bytes for e and 8 of mantissa. Negative numbers are the complement of their magnitude's bytes.
//! So 1 and 1.0 have the same bytes, and no number needs to be rounded.
//!
//! No string is a proper prefix of another: each ends where its own bytes say so (a class that ends the key does so wherever
//! it stands). So strings may be compared eight bytes at a time, filled up with zeros.

use crate::format::{padded, Class, Elements, Integer, TermRef, View};
use crate::host::host;
use crate::number::{decompose, Whole};
use std::cell::Cell;

/// Deeper terms end the key. Terms of the VM's own form stand deeper than this, if they are tuples, lists or maps.
const MAX_DEPTH: usize = 16;

const ZERO: u8 = 0x80;
/// Positive numbers below 1.
const FRACTION: u8 = 0x81;
/// Positive numbers from 1 up to 2; the next 63 bytes are those of larger exponents.
const ONE: u8 = 0x82;
/// Numbers from 2^64 on.
const HUGE: u8 = 0xc2;
/// Atoms; the other classes follow.
const ATOM: u8 = 0xd0;

const fn class_byte(class: Class) -> u8 {
    ATOM + (class as u8 - Class::Atom as u8)
}

/// Appends the term's normalized key to `out`, cut off at `limit` bytes.
///
/// If the keys of two terms differ, the terms are ordered as they are; if not, they may be equal or not.
pub fn normalize(term: TermRef<'_>, out: &mut Vec<u8>, limit: usize) {
    let mut writer = Appender {
        end: out.len() + limit,
        out,
    };
    let _ = write(&mut writer, term, 0);
}

/// Eight bytes of the term's normalized key from byte `skip` on, as a big-endian number, zeros after its end.
#[inline]
pub fn head(term: TermRef<'_>, skip: usize) -> u64 {
    match term.small() {
        Some(value) if skip == 0 => head_of_small(value).0,
        _ => head_of_any(term, skip),
    }
}

/// [`head`] of a small integer, and the length of its whole string.
#[inline]
fn head_of_small(value: i64) -> (u64, u32) {
    let magnitude = value.unsigned_abs();
    if magnitude == 0 {
        return ((ZERO as u64) << 56, 1);
    }
    let zeros = magnitude.leading_zeros();
    let exponent = 63 - zeros;
    let length = 2 + exponent.div_ceil(8);
    let positive = ((ONE as u64 + exponent as u64) << 56) | (magnitude << zeros << 1) >> 8;
    if value > 0 {
        (positive, length)
    } else {
        (!positive & (!0 << (64 - 8 * length.min(8))), length)
    }
}

#[inline(never)]
fn head_of_any(term: TermRef<'_>, skip: usize) -> u64 {
    let head = match term.view() {
        View::Binary(bytes) | View::SharedBinary(_, bytes) => head_of_bytes(bytes, skip),
        View::Float(value) if skip <= 8 => first_of_float(value).map(|first| (first << (8 * skip) >> 64) as u64),
        _ => None,
    };
    if let Some(head) = head {
        return head;
    }
    let [head] = heads(term, skip);
    head
}

/// The [`head`] at `skip`, that at eight bytes more, and so on: for little more than one of them takes.
pub fn heads<const N: usize>(term: TermRef<'_>, skip: usize) -> [u64; N] {
    let mut window = Window {
        skip,
        words: [0; N],
        filled: 0,
    };
    let _ = write(&mut window, term, 0);
    window.words
}

/// [`head`] of a binary that reaches far enough and has no 0 so far.
#[inline]
fn head_of_bytes(bytes: &[u8], skip: usize) -> Option<u64> {
    let bytes = bytes.get(..skip.checked_add(7)?)?;
    if bytes.contains(&0) {
        return None;
    }
    let mut head = [class_byte(Class::BitString); 8];
    match skip {
        0 => head[1..].copy_from_slice(bytes),
        _ => head.copy_from_slice(&bytes[skip - 1..]),
    }
    Some(u64::from_be_bytes(head))
}

/// The first 16 bytes of the string of a float whose magnitude is below 2^64, filled up with zeros.
#[inline]
fn first_of_float(value: f64) -> Option<u128> {
    if value == 0.0 {
        return Some((ZERO as u128) << 120);
    }
    let (mantissa, exponent) = decompose(value);
    let (first, length) = match exponent {
        ..0 => {
            let exponent = (exponent + 1100) as u128;
            (
                (FRACTION as u128) << 120 | exponent << 104 | (mantissa as u128) << 40,
                11,
            )
        }
        0..64 => {
            // The mantissa's highest bit is left out; the integral part's others come in whole bytes.
            let bits = (mantissa as u128) << 76;
            let end = 1 + (exponent as u32).div_ceil(8);
            let integral = bits & !(!0 >> exponent);
            let fraction = bits << exponent;
            let first = (ONE as u128 + exponent as u128) << 120 | integral >> 8;
            match fraction {
                0 => (first, end + 1),
                _ => (first | 1 << (120 - 8 * end) | fraction >> (8 * (end + 1)), end + 9),
            }
        }
        _ => return None,
    };
    Some(if value > 0.0 {
        first
    } else {
        !first & !u128::MAX.checked_shr(8 * length).unwrap_or(0)
    })
}

/// There is nothing more to write: the key ends here, or enough was written.
struct End;

trait Writer {
    fn put(&mut self, bytes: &[u8]) -> Result<(), End>;

    /// Writes the highest `length` bytes of a word, 1 to 8; the others are zeros.
    fn put_word(&mut self, word: u64, length: u32) -> Result<(), End> {
        self.put(&word.to_be_bytes()[..length as usize])
    }
}

struct Appender<'a> {
    out: &'a mut Vec<u8>,
    end: usize,
}

impl Writer for Appender<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), End> {
        let room = self.end - self.out.len();
        if bytes.len() < room {
            self.out.extend_from_slice(bytes);
            Ok(())
        } else {
            self.out.extend_from_slice(&bytes[..room]);
            Err(End)
        }
    }
}

struct Window<const N: usize> {
    skip: usize,
    words: [u64; N],
    /// Bytes of the words.
    filled: usize,
}

impl<const N: usize> Writer for Window<N> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) -> Result<(), End> {
        if self.skip >= bytes.len() {
            self.skip -= bytes.len();
            return Ok(());
        }
        let bytes = &bytes[std::mem::take(&mut self.skip)..];
        let (whole, rest) = bytes.as_chunks::<8>();
        whole
            .iter()
            .try_for_each(|bytes| self.put_word(u64::from_be_bytes(*bytes), 8))?;
        match rest {
            [] => Ok(()),
            _ => self.put_word(u64::from_be_bytes(padded(rest).to_ne_bytes()), rest.len() as u32),
        }
    }

    #[inline]
    fn put_word(&mut self, word: u64, length: u32) -> Result<(), End> {
        let length = length as usize;
        if self.skip >= length {
            self.skip -= length;
            return Ok(());
        }
        let word = word << (8 * self.skip);
        let (at, shift) = (self.filled / 8, 8 * (self.filled % 8));
        self.words[at] |= word >> shift;
        if N > 1 && shift > 0 && at + 1 < N {
            self.words[at + 1] = word << (64 - shift);
        }
        self.filled += length - self.skip;
        self.skip = 0;
        if self.filled < 8 * N {
            Ok(())
        } else {
            Err(End)
        }
    }
}

fn write(out: &mut impl Writer, term: TermRef<'_>, depth: usize) -> Result<(), End> {
    if let Some(value) = term.small() {
        return match head_of_small(value) {
            (head, length @ ..=8) => out.put_word(head, length),
            _ => write_number(out, value < 0, value.unsigned_abs(), 0),
        };
    }
    match term.view() {
        View::Immediate(word) => match Class::of_immediate(word) {
            Class::Bottom => Err(End),
            Class::Top => write_byte(out, 0xff).and(Err(End)),
            Class::Atom => write_class(out, Class::Atom).and_then(|()| write_atom(out, word)),
            Class::Nil => write_class(out, Class::Nil),
            class => write_class(out, class).and(Err(End)),
        },
        View::Integer(integer) => write_integer(out, integer),
        View::Float(value) => write_float(out, value),
        View::Tuple(elements) => {
            write_class(out, Class::Tuple)?;
            if depth >= MAX_DEPTH {
                return Err(End);
            }
            write_size(out, elements.len())?;
            elements.iter().try_for_each(|element| write(out, element, depth + 1))
        }
        View::Map(map) => {
            write_class(out, Class::Map)?;
            if depth >= MAX_DEPTH {
                return Err(End);
            }
            write_size(out, map.keys.len())?;
            if map.keys.is_empty() {
                Ok(())
            } else {
                Err(End)
            }
        }
        View::List(list) => {
            write_class(out, Class::List)?;
            if depth >= MAX_DEPTH {
                return Err(End);
            }
            write_list(out, list.elements(), depth)?;
            write(out, list.tail(), depth + 1)
        }
        View::Binary(bytes) | View::SharedBinary(_, bytes) => {
            write_class(out, Class::BitString)?;
            write_bits(out, bytes, bytes.len() * 8)
        }
        View::Held(Class::BitString, held) => {
            write_class(out, Class::BitString)?;
            with_buffer(|bytes| {
                let bits = (host().bits)(held.term(), bytes);
                write_bits(out, bytes, bits)
            })
        }
        View::Reference(_) => write_class(out, Class::Reference).and(Err(End)),
        View::Held(class, _) => write_class(out, class).and(Err(End)),
    }
}

#[inline]
fn write_class(out: &mut impl Writer, class: Class) -> Result<(), End> {
    write_byte(out, class_byte(class))
}

/// What stands for an atom behind its class, if it is short: texts of atoms never change.
#[derive(Clone, Copy)]
struct Text {
    /// 0 for none.
    atom: u64,
    length: usize,
    /// The bytes, big-endian, filled up with zeros.
    words: [u64; TEXT / 8],
}

/// Bytes of a text at most.
const TEXT: usize = 24;
/// Texts that a thread remembers.
const TEXTS: usize = 64;

/// Writes an atom's text and its end.
fn write_atom(out: &mut impl Writer, atom: u64) -> Result<(), End> {
    thread_local! {
        static KNOWN: [Cell<Text>; TEXTS] = const {
            [const { Cell::new(Text { atom: 0, length: 0, words: [0; TEXT / 8] }) }; TEXTS]
        };
    }
    // The VM numbers atoms one after the other, above six bits of tag.
    let place = (atom >> 6) as usize % TEXTS;
    let mut text = KNOWN.with(|known| known[place].get());
    if text.atom != atom {
        text = match text_of(atom) {
            Ok(text) => text,
            Err(bytes) => return out.put(&bytes),
        };
        KNOWN.with(|known| known[place].set(text));
    }
    let mut left = text.length;
    for word in text.words {
        if left <= 8 {
            return out.put_word(word, left as u32);
        }
        out.put_word(word, 8)?;
        left -= 8;
    }
    Ok(())
}

/// The text of an atom, or all of its bytes if these are too many.
#[inline(never)]
fn text_of(atom: u64) -> Result<Text, Vec<u8>> {
    let mut text = Vec::new();
    (host().atom_text)(atom, &mut text);
    let mut bytes = Vec::with_capacity(text.len() + 2);
    let mut writer = Appender {
        end: usize::MAX,
        out: &mut bytes,
    };
    let _ = write_bytes(&mut writer, &text);
    bytes.extend([0, 0]);
    let length = bytes.len();
    if length > TEXT {
        return Err(bytes);
    }
    bytes.resize(TEXT, 0);
    let word = |i| u64::from_be_bytes(std::array::from_fn(|j| bytes[8 * i + j]));
    Ok(Text {
        atom,
        length,
        words: std::array::from_fn(word),
    })
}

/// Lends an empty buffer, which is kept to save allocations.
fn with_buffer<R>(body: impl FnOnce(&mut Vec<u8>) -> R) -> R {
    thread_local! {
        static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    }
    let mut buffer = BUFFER.take();
    let result = body(&mut buffer);
    buffer.clear();
    buffer.shrink_to(1024);
    BUFFER.set(buffer);
    result
}

#[inline]
fn write_byte(out: &mut impl Writer, byte: u8) -> Result<(), End> {
    out.put_word((byte as u64) << 56, 1)
}

/// The class of the first element's list is written already.
fn write_list(out: &mut impl Writer, elements: Elements<'_>, depth: usize) -> Result<(), End> {
    for (i, element) in elements.iter().enumerate() {
        if i > 0 {
            write_byte(out, class_byte(Class::List))?;
        }
        write(out, element, depth + 1)?;
    }
    Ok(())
}

/// A size in one byte, or in a byte that tells how many follow.
fn write_size(out: &mut impl Writer, size: usize) -> Result<(), End> {
    if size < 0xf0 {
        return write_byte(out, size as u8);
    }
    let bytes = (size as u64).to_be_bytes();
    let zeros = size.leading_zeros() as usize / 8;
    write_byte(out, 0xf8 - zeros as u8)?;
    out.put(&bytes[zeros..])
}

fn write_bits(out: &mut impl Writer, bytes: &[u8], bits: usize) -> Result<(), End> {
    write_bytes(out, bytes)?;
    out.put(&[0, if bits == 0 { 0 } else { (bits - 1) as u8 % 8 + 1 }])
}

/// Writes 0 as 0 255, so that 0 and a smaller byte can end the string.
fn write_bytes(out: &mut impl Writer, bytes: &[u8]) -> Result<(), End> {
    // In pieces, so that little is searched if little is wanted.
    for piece in bytes.chunks(32) {
        if !piece.contains(&0) {
            out.put(piece)?;
            continue;
        }
        let mut parts = piece.split(|&byte| byte == 0);
        out.put(parts.next().unwrap_or(&[]))?;
        for part in parts {
            out.put(&[0, 255])?;
            out.put(part)?;
        }
    }
    Ok(())
}

/// Writes a number of at least 1: `magnitude`, not 0, is the integral part, `fraction` the bits below the point.
fn write_number(out: &mut impl Writer, negative: bool, magnitude: u64, fraction: u64) -> Result<(), End> {
    let zeros = magnitude.leading_zeros();
    let exponent = 63 - zeros;
    let end = 1 + exponent.div_ceil(8) as usize;
    let mut bytes = [0; 18];
    bytes[0] = ONE + exponent as u8;
    bytes[1..9].copy_from_slice(&(magnitude << zeros << 1).to_be_bytes());
    let mut length = end + 1;
    if fraction == 0 {
        bytes[end] = 0;
    } else {
        bytes[end] = 1;
        bytes[end + 1..end + 9].copy_from_slice(&fraction.to_be_bytes());
        length += 8;
    }
    write_signed(out, negative, &mut bytes[..length])
}

fn write_signed(out: &mut impl Writer, negative: bool, bytes: &mut [u8]) -> Result<(), End> {
    if negative {
        bytes.iter_mut().for_each(|byte| *byte = !*byte);
    }
    out.put(bytes)
}

/// Writes a number of at least 2^64: its digits, the highest first, and its sign.
fn write_huge(
    out: &mut impl Writer,
    negative: bool,
    digits: impl DoubleEndedIterator<Item = u64> + ExactSizeIterator,
) -> Result<(), End> {
    let length = digits.len() as u64;
    for (i, digit) in digits.rev().enumerate() {
        if i == 0 {
            let exponent = length * 64 - 1 - digit.leading_zeros() as u64;
            write_signed(out, negative, &mut [HUGE])?;
            write_signed(out, negative, &mut exponent.to_be_bytes())?;
        }
        write_signed(out, negative, &mut digit.to_be_bytes())?;
    }
    Ok(())
}

fn write_integer(out: &mut impl Writer, integer: Integer<'_>) -> Result<(), End> {
    match *integer.digits {
        [digit] => write_number(out, integer.negative, digit, 0),
        _ => write_huge(out, integer.negative, integer.digits.iter().copied()),
    }
}

fn write_float(out: &mut impl Writer, value: f64) -> Result<(), End> {
    if value == 0.0 {
        return write_byte(out, ZERO);
    }
    let negative = value < 0.0;
    let (mantissa, exponent) = decompose(value);
    match exponent {
        ..0 => {
            let mut bytes = [FRACTION, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            bytes[1..3].copy_from_slice(&((exponent + 1100) as u16).to_be_bytes());
            bytes[3..].copy_from_slice(&mantissa.to_be_bytes());
            write_signed(out, negative, &mut bytes)
        }
        0..52 => {
            let point = 52 - exponent as u32;
            write_number(out, negative, mantissa >> point, mantissa << (64 - point))
        }
        52..64 => write_number(out, negative, mantissa << (exponent - 52), 0),
        _ => {
            let whole = Whole::of(value);
            write_huge(out, negative, (0..whole.len()).map(|i| whole.digit(i)))
        }
    }
}
