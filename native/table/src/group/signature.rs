//! Signatures: a word an object, which tells of most objects that they are not the ones sought, without a look at them.
//!
//! Source: Faloutsos, Christodoulakis, "Signature files: an access method for documents and its analytical performance
//! evaluation", TOIS 1984. Here a byte for each of the first eight elements but the key: objects that agree in an element agree in
//! its byte, and of others one in 256 does.

use crate::object::ObjectRef;
use cats_pattern::Program;
use cats_sync::facade::{AtomicU64, Ordering};
use cats_term::{mix, Elements, TermRef, View};
use smallvec::SmallVec;

/// Elements that have a byte.
const PLACES: usize = 8;

/// The signature of an object whose key is at `key`, counted from 0. O(1), however large the object is.
#[inline]
pub fn signature(object: ObjectRef<'_>, key: usize) -> u64 {
    let places = (0..object.arity().min(PLACES)).filter(|place| *place != key);
    places.fold(0, |signature, place| signature | byte(place, object.element(place)))
}

/// The byte of an element, where it stands in the signature.
#[inline]
fn byte(place: usize, term: TermRef<'_>) -> u64 {
    (mix(sample(term)) >> 32 & 0xff) << (8 * place)
}

/// A number that exactly equal terms have in common; of a large one only some of it is looked at.
#[inline]
fn sample(term: TermRef<'_>) -> u64 {
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

    /// Lets this signature pass.
    pub fn only(signature: u64) -> Self {
        Self(SmallVec::from_slice(&[(!0, signature)]))
    }

    /// That of a program in a table of objects whose key is at `key`, counted from 0.
    pub fn of(program: &Program, key: usize) -> Self {
        let of_clause = |elements: Vec<(usize, TermRef<'_>)>| {
            let bytes = elements
                .into_iter()
                .filter(|(place, _)| *place < PLACES && *place != key);
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

    /// Whether objects pass that have nothing in common.
    pub fn is_open(&self) -> bool {
        self.0.iter().any(|(mask, _)| *mask == 0)
    }

    /// The signatures of at most 64 that pass, a bit each.
    #[inline]
    pub fn passing(&self, signatures: &[AtomicU64]) -> u64 {
        let (lines, rest) = signatures.as_chunks::<8>();
        let mut passing = 0;
        for &(mask, bits) in &self.0 {
            for (i, line) in lines.iter().enumerate() {
                passing |= u64::from(agreeing(line, mask, bits)) << (8 * i);
            }
            // Without branches, as few pass. Relaxed: no memory is reached by a signature.
            for (slot, signature) in (8 * lines.len()..).zip(rest) {
                passing |= u64::from(signature.load(Ordering::Relaxed) & mask == bits) << slot;
            }
        }
        passing
    }
}

/// Those of eight signatures that agree with `bits` in the bits of `mask`, a bit each.
#[inline]
fn agreeing(signatures: &[AtomicU64; 8], mask: u64, bits: u64) -> u8 {
    #[cfg(all(target_arch = "x86_64", not(any(direct, loom, shuttle))))]
    {
        let halves: u32;
        // SAFETY: reads the signatures as 16 bytes at a time, of which each eight, which are aligned, are what an atomic load gives.
        unsafe {
            std::arch::asm!(
                "movq {mask}, {mask_word}",
                "movq {bits}, {bits_word}",
                "punpcklqdq {mask}, {mask}",
                "punpcklqdq {bits}, {bits}",
                "movdqu {a}, [{at}]",
                "movdqu {b}, [{at} + 16]",
                "movdqu {c}, [{at} + 32]",
                "movdqu {d}, [{at} + 48]",
                "pand {a}, {mask}",
                "pand {b}, {mask}",
                "pand {c}, {mask}",
                "pand {d}, {mask}",
                "pcmpeqd {a}, {bits}",
                "pcmpeqd {b}, {bits}",
                "pcmpeqd {c}, {bits}",
                "pcmpeqd {d}, {bits}",
                "packssdw {a}, {b}",
                "packssdw {c}, {d}",
                "packsswb {a}, {c}",
                "pmovmskb {halves:e}, {a}",
                at = in(reg) signatures.as_ptr(),
                mask_word = in(reg) mask,
                bits_word = in(reg) bits,
                halves = lateout(reg) halves,
                mask = out(xmm_reg) _,
                bits = out(xmm_reg) _,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                options(readonly, nostack, preserves_flags),
            );
        }
        // A bit for each half of a signature: few have both.
        let both = halves & halves >> 1 & 0x5555;
        if both == 0 {
            return 0;
        }
        let pairs = (both | both >> 1) & 0x3333;
        let fours = (pairs | pairs >> 2) & 0x0f0f;
        (fours | fours >> 4) as u8
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(direct, loom, shuttle)))))]
    {
        let agrees = |signature: &AtomicU64| u8::from(signature.load(Ordering::Relaxed) & mask == bits);
        signatures
            .iter()
            .rev()
            .fold(0, |passing, signature| passing << 1 | agrees(signature))
    }
}
