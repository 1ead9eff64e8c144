//! Signatures: one word for each object. Most objects that a search does not want can be ruled out by their signatures, without being read.
//!
//! Source: Faloutsos, Christodoulakis, "Signature files: an access method for documents and its analytical performance evaluation", TOIS
//! 1984. Here a signature has one byte for each of the first eight elements, except the key. Objects with the same element have the same
//! byte. Among objects with another element, one in 256 has it.

use super::chunk::PLANES;
use crate::object::ObjectRef;
use cats_pattern::Program;
use cats_sync::facade::{AtomicU8, Ordering};
use cats_term::{mix, Elements, TermRef, View};
use smallvec::SmallVec;

/// The signature of an object. `key` is the position of its key, counted from 0. O(1), however large the object is.
#[inline]
pub fn signature(object: ObjectRef<'_>, key: usize) -> u64 {
    let places = 0..object.arity().min(PLANES);
    match object.flat() {
        // The key's byte is computed too and then cleared, which is faster than skipping it.
        Some(words) => places.fold(0, |signature, place| signature | byte_of(place, words[place])) & !mask_of(key),
        None => places
            .filter(|place| *place != key)
            .fold(0, |signature, place| signature | byte(place, object.element(place))),
    }
}

/// The bits of a signature that belong to an element.
#[inline]
fn mask_of(place: usize) -> u64 {
    match place < PLANES {
        true => 0xff << (8 * place),
        false => 0,
    }
}

/// The byte of an element, at its place in the signature.
#[inline]
fn byte(place: usize, term: TermRef<'_>) -> u64 {
    byte_of(place, sample(term))
}

/// The highest byte of a product with an odd number. All bits of the other factor contribute to it.
#[inline]
fn byte_of(place: usize, sample: u64) -> u64 {
    (sample.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) << (8 * place)
}

/// A number that is the same for exactly equal terms. Only a part of a large term is read.
#[inline]
fn sample(term: TermRef<'_>) -> u64 {
    match term.is_immediate() {
        true => term.word(),
        false => sample_of_item(term),
    }
}

fn sample_of_item(term: TermRef<'_>) -> u64 {
    match term.view() {
        View::Immediate(word) => word,
        // -0.0 and 0.0 may be the same term. Adding 0.0 makes 0.0 of both.
        View::Float(value) => (value + 0.0).to_bits(),
        View::Integer(integer) => integer.digits[0],
        View::Binary(bytes) | View::SharedBinary(_, bytes) => {
            let (first, last) = (&bytes[..bytes.len().min(8)], &bytes[bytes.len().saturating_sub(8)..]);
            let word = |bytes: &[u8]| bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
            mix(word(first) ^ bytes.len() as u64) ^ word(last)
        }
        View::Tuple(elements) => of_elements(elements),
        View::List(list) => of_elements(list.elements()),
        View::Map(map) => map.keys.len() as u64,
        View::Reference(words) => words.iter().fold(0, |state, word| mix(state) ^ word),
        View::Fun(fun) => mix(fun.words[1]) ^ of_elements(fun.env),
        View::HeldTerm(_, held) => held.hash(),
    }
}

fn of_elements(elements: Elements<'_>) -> u64 {
    let immediates = elements.iter().take(4).filter(|element| element.is_immediate());
    immediates.fold(elements.len() as u64, |state, element| mix(state) ^ element.word())
}

/// The signatures that objects can have if a program matches them: pairs of a mask and bits. An object passes if, for some pair, its
/// signature has these bits at the mask's places.
#[derive(Clone)]
pub struct Filter(SmallVec<[(u64, u64); 2]>);

impl Filter {
    /// A filter that all objects pass.
    pub fn open() -> Self {
        Self(SmallVec::from_slice(&[(0, 0)]))
    }

    /// A filter that objects pass which agree with this one in all elements.
    #[inline]
    pub fn only(object: ObjectRef<'_>, key: usize) -> Self {
        let arity = object.arity().min(PLANES);
        let mask = !0 >> (8 * (PLANES - arity)) & !mask_of(key);
        Self(SmallVec::from_slice(&[(mask, signature(object, key))]))
    }

    /// The filter of a program. `key` is the position of the key in objects, counted from 0.
    pub fn of(program: &Program, key: usize) -> Self {
        let of_clause = |elements: Vec<(usize, TermRef<'_>)>| {
            let bytes = elements
                .into_iter()
                .filter(|(place, _)| *place < PLANES && *place != key);
            bytes.fold((0, 0), |(mask, bits), (place, term)| {
                (mask | 0xff << (8 * place), bits | byte(place, term))
            })
        };
        Self(program.elements().map(of_clause).collect())
    }

    /// A filter that objects pass which have the same byte at this place as this signature.
    #[cfg(test)]
    pub fn of_place(place: usize, signature: u64) -> Self {
        let mask = 0xff << (8 * place);
        Self::of_bits(mask, signature & mask)
    }

    #[cfg(test)]
    pub fn of_bits(mask: u64, bits: u64) -> Self {
        Self(SmallVec::from_slice(&[(mask, bits)]))
    }

    /// The first place of which the filter needs the plane.
    #[inline]
    pub fn first_place(&self) -> Option<usize> {
        let (mask, _) = self.0.first()?;
        (*mask != 0).then(|| mask.trailing_zeros() as usize / 8)
    }

    /// Whether objects pass that have no element in common.
    pub fn is_open(&self) -> bool {
        self.0.iter().any(|(mask, _)| *mask == 0)
    }

    /// Whether an object with this signature passes.
    #[inline]
    pub fn passes(&self, signature: u64) -> bool {
        self.0.iter().any(|(mask, bits)| signature & mask == *bits)
    }

    /// A bit for each of up to 64 objects, set if its signature passes. Bits without an object may be set, too. `plane` returns the plane
    /// at a place. Where it returns `None`, all objects pass.
    #[inline]
    pub fn passing<'a>(&self, plane: impl Fn(usize) -> Option<&'a [AtomicU8]>) -> u64 {
        let mut passing = 0;
        for &(mut mask, bits) in &self.0 {
            let mut agreeing = !0;
            while mask != 0 && agreeing != 0 {
                let place = mask.trailing_zeros() as usize / 8;
                mask &= !(0xff << (8 * place));
                if let Some(plane) = plane(place) {
                    agreeing &= equal_bytes(plane, (bits >> (8 * place)) as u8);
                }
            }
            passing |= agreeing;
        }
        passing
    }
}

/// A bit for each of at most 64 bytes, set if the byte equals `byte`. 64 bytes are compared with vector instructions that all processors
/// of the architecture have.
#[inline]
fn equal_bytes(bytes: &[AtomicU8], byte: u8) -> u64 {
    #[cfg(all(target_arch = "x86_64", not(any(direct, loom, shuttle, portable))))]
    if bytes.len() == 64 {
        let (first, second, third, fourth): (u32, u32, u32, u32);
        // SAFETY: reads the 64 bytes, 16 at a time. Each byte of them is one that an atomic load could return.
        unsafe {
            std::arch::asm!(
                "movd {byte}, {word:e}",
                "punpcklbw {byte}, {byte}",
                "pshuflw {byte}, {byte}, 0",
                "punpcklqdq {byte}, {byte}",
                "movdqu {a}, [{at}]",
                "movdqu {b}, [{at} + 16]",
                "movdqu {c}, [{at} + 32]",
                "movdqu {d}, [{at} + 48]",
                "pcmpeqb {a}, {byte}",
                "pcmpeqb {b}, {byte}",
                "pcmpeqb {c}, {byte}",
                "pcmpeqb {d}, {byte}",
                "pmovmskb {first:e}, {a}",
                "pmovmskb {second:e}, {b}",
                "pmovmskb {third:e}, {c}",
                "pmovmskb {fourth:e}, {d}",
                at = in(reg) bytes.as_ptr(),
                word = in(reg) u32::from(byte),
                first = lateout(reg) first,
                second = lateout(reg) second,
                third = lateout(reg) third,
                fourth = lateout(reg) fourth,
                byte = out(xmm_reg) _,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                options(readonly, nostack, preserves_flags),
            );
        }
        return u64::from(first | second << 16) | u64::from(third | fourth << 16) << 32;
    }
    #[cfg(all(target_arch = "aarch64", not(any(direct, loom, shuttle, portable))))]
    if bytes.len() == 64 {
        let equal: u64;
        // SAFETY: as above. Each equal byte becomes its bit of its group of eight bytes. Adding neighbours three times adds up each group.
        unsafe {
            std::arch::asm!(
                "dup {byte:v}.16b, {word:w}",
                "dup {bits:v}.2d, {all_bits}",
                "ldp {a:q}, {b:q}, [{at}]",
                "ldp {c:q}, {d:q}, [{at}, 32]",
                "cmeq {a:v}.16b, {a:v}.16b, {byte:v}.16b",
                "cmeq {b:v}.16b, {b:v}.16b, {byte:v}.16b",
                "cmeq {c:v}.16b, {c:v}.16b, {byte:v}.16b",
                "cmeq {d:v}.16b, {d:v}.16b, {byte:v}.16b",
                "and {a:v}.16b, {a:v}.16b, {bits:v}.16b",
                "and {b:v}.16b, {b:v}.16b, {bits:v}.16b",
                "and {c:v}.16b, {c:v}.16b, {bits:v}.16b",
                "and {d:v}.16b, {d:v}.16b, {bits:v}.16b",
                "addp {a:v}.16b, {a:v}.16b, {b:v}.16b",
                "addp {c:v}.16b, {c:v}.16b, {d:v}.16b",
                "addp {a:v}.16b, {a:v}.16b, {c:v}.16b",
                "addp {a:v}.16b, {a:v}.16b, {a:v}.16b",
                "fmov {equal}, {a:d}",
                at = in(reg) bytes.as_ptr(),
                word = in(reg) u32::from(byte),
                all_bits = in(reg) 0x8040_2010_0804_0201_u64,
                equal = lateout(reg) equal,
                byte = out(vreg) _,
                bits = out(vreg) _,
                a = out(vreg) _,
                b = out(vreg) _,
                c = out(vreg) _,
                d = out(vreg) _,
                options(readonly, nostack, preserves_flags),
            );
        }
        return equal;
    }
    // Relaxed: nothing is read through a signature.
    let is_it = |other: &AtomicU8| u64::from(other.load(Ordering::Relaxed) == byte);
    bytes.iter().rev().fold(0, |equal, other| equal << 1 | is_it(other))
}
