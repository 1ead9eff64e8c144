//! Signatures: a word an object, which tells of most objects that they are not the ones sought, without a look at them.
//!
//! Source: Faloutsos, Christodoulakis, "Signature files: an access method for documents and its analytical performance
//! evaluation", TOIS 1984. Here a byte for each of the first eight elements but the key: objects that agree in an element agree in
//! its byte, and of others one in 256 does.

use super::chunk::PLANES;
use crate::object::ObjectRef;
use cats_pattern::Program;
use cats_sync::facade::{AtomicU8, Ordering};
use cats_term::{mix, Elements, TermRef, View};
use smallvec::SmallVec;

/// The signature of an object whose key is at `key`, counted from 0. O(1), however large the object is.
#[inline]
pub fn signature(object: ObjectRef<'_>, key: usize) -> u64 {
    let places = 0..object.arity().min(PLANES);
    match object.flat() {
        // The key's goes again, as it is quicker to make than to leave out.
        Some(words) => places.fold(0, |signature, place| signature | byte_of(place, words[place])) & !mask_of(key),
        None => places
            .filter(|place| *place != key)
            .fold(0, |signature, place| signature | byte(place, object.element(place))),
    }
}

/// The bits of a signature that an element has.
#[inline]
fn mask_of(place: usize) -> u64 {
    match place < PLANES {
        true => 0xff << (8 * place),
        false => 0,
    }
}

/// The byte of an element, where it stands in the signature.
#[inline]
fn byte(place: usize, term: TermRef<'_>) -> u64 {
    byte_of(place, sample(term))
}

/// Of a product with an odd number the highest byte, in which all bits of the other factor have a part.
#[inline]
fn byte_of(place: usize, sample: u64) -> u64 {
    (sample.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) << (8 * place)
}

/// A number that exactly equal terms have in common; of a large one only some of it is looked at.
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
        // Adding 0.0 makes 0.0 of -0.0, which may be the same term.
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
        View::Held(_, held) => held.hash(),
    }
}

fn of_elements(elements: Elements<'_>) -> u64 {
    let immediates = elements.iter().take(4).filter(|element| element.is_immediate());
    immediates.fold(elements.len() as u64, |state, element| mix(state) ^ element.word())
}

/// Which signatures the objects have that a program can match: those that agree with one of these pairs of a mask and bits in the
/// bits of the mask.
#[derive(Clone)]
pub struct Filter(SmallVec<[(u64, u64); 2]>);

impl Filter {
    /// Lets all pass.
    pub fn open() -> Self {
        Self(SmallVec::from_slice(&[(0, 0)]))
    }

    /// Lets objects pass that agree with this one in all elements.
    #[inline]
    pub fn only(object: ObjectRef<'_>, key: usize) -> Self {
        let arity = object.arity().min(PLANES);
        let mask = !0 >> (8 * (PLANES - arity)) & !mask_of(key);
        Self(SmallVec::from_slice(&[(mask, signature(object, key))]))
    }

    /// That of a program in a table of objects whose key is at `key`, counted from 0.
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

    /// For objects that agree in the byte of a place with this signature.
    #[cfg(test)]
    pub fn of_place(place: usize, signature: u64) -> Self {
        let mask = 0xff << (8 * place);
        Self::of_bits(mask, signature & mask)
    }

    #[cfg(test)]
    pub fn of_bits(mask: u64, bits: u64) -> Self {
        Self(SmallVec::from_slice(&[(mask, bits)]))
    }

    /// The first place that it asks about.
    #[inline]
    pub fn first_place(&self) -> Option<usize> {
        let (mask, _) = self.0.first()?;
        (*mask != 0).then(|| mask.trailing_zeros() as usize / 8)
    }

    /// Whether objects pass that have nothing in common.
    pub fn is_open(&self) -> bool {
        self.0.iter().any(|(mask, _)| *mask == 0)
    }

    /// The objects, of up to 64, whose signatures pass, a bit each. There may be bits of no objects. `plane` gives the bytes of
    /// the signatures at a place, if they are known.
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

/// Which of at most 64 bytes are this one, a bit each.
#[inline]
fn equal_bytes(bytes: &[AtomicU8], byte: u8) -> u64 {
    #[cfg(all(target_arch = "x86_64", not(any(direct, loom, shuttle))))]
    if bytes.len() == 64 {
        let (first, second, third, fourth): (u32, u32, u32, u32);
        // SAFETY: reads the 64 bytes, 16 at a time, of which each is what an atomic load gives.
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
    // Relaxed: no memory is reached by a signature.
    let is_it = |other: &AtomicU8| u64::from(other.load(Ordering::Relaxed) == byte);
    bytes.iter().rev().fold(0, |equal, other| equal << 1 | is_it(other))
}
