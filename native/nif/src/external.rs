//! The external term format, for what `erl_nif` has no other way in or out: large integers, atoms beyond Latin-1, bit strings.
//!
//! Source: the chapter "External Term Format" of the ERTS User's Guide.

use crate::vm::{Env, Term};
use rustler::sys::*;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::slice::from_raw_parts;

const VERSION: u8 = 131;
const BIT_BINARY_EXT: u8 = 77;
const ATOM_EXT: u8 = 100;
const SMALL_BIG_EXT: u8 = 110;
const LARGE_BIG_EXT: u8 = 111;
const SMALL_ATOM_EXT: u8 = 115;
const ATOM_UTF8_EXT: u8 = 118;
const SMALL_ATOM_UTF8_EXT: u8 = 119;

/// A term in the external format.
pub struct External(ErlNifBinary);

impl Deref for External {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the VM filled a binary of this size, which is never empty.
        unsafe { from_raw_parts(self.0.data, self.0.size) }
    }
}

impl Drop for External {
    fn drop(&mut self) {
        // SAFETY: the binary is this value's own.
        unsafe { enif_release_binary(&mut self.0) }
    }
}

/// The external format of a term; nothing when memory is exhausted.
pub fn of(env: Env, term: Term) -> Option<External> {
    let mut binary = MaybeUninit::uninit();
    // SAFETY: the binary is written when the call succeeds, and belongs to the caller then.
    unsafe {
        (enif_term_to_binary(env.raw(), term.raw(), binary.as_mut_ptr()) != 0).then(|| External(binary.assume_init()))
    }
}

/// Sign and magnitude, 64-bit digits, least first, of an integer of more than 32 bits.
pub fn big_integer(bytes: &[u8]) -> Option<(bool, Vec<u64>)> {
    let (sign, digits) = match bytes {
        [VERSION, SMALL_BIG_EXT, _, sign, digits @ ..] => (sign, digits),
        [VERSION, LARGE_BIG_EXT, _, _, _, _, sign, digits @ ..] => (sign, digits),
        _ => return None,
    };
    let digit = |bytes: &[u8]| bytes.iter().rev().fold(0, |digit, &byte| digit << 8 | u64::from(byte));
    Some((*sign != 0, digits.chunks(8).map(digit).collect()))
}

/// The integer of this sign and magnitude; nothing when it has too many digits for the VM.
pub fn make_integer(env: Env, negative: bool, magnitude: &[u64]) -> Option<Term> {
    let size = u32::try_from(magnitude.len() * 8).ok()?;
    let mut bytes = Vec::with_capacity(magnitude.len() * 8 + 7);
    bytes.extend([VERSION, LARGE_BIG_EXT]);
    bytes.extend(size.to_be_bytes());
    bytes.push(negative.into());
    bytes.extend(magnitude.iter().flat_map(|digit| digit.to_le_bytes()));
    let mut term = MaybeUninit::uninit();
    // SAFETY: the term is written when the call succeeds.
    unsafe {
        (enif_binary_to_term(env.raw(), bytes.as_ptr(), bytes.len(), term.as_mut_ptr(), 0) != 0)
            .then(|| Term::from_raw(term.assume_init()))
    }
}

/// Appends an atom's text, given its external format, in UTF-8.
pub fn atom_text(bytes: &[u8], text: &mut Vec<u8>) {
    match bytes {
        [VERSION, SMALL_ATOM_UTF8_EXT, _, name @ ..] | [VERSION, ATOM_UTF8_EXT, _, _, name @ ..] => {
            text.extend_from_slice(name);
        }
        [VERSION, SMALL_ATOM_EXT, _, name @ ..] | [VERSION, ATOM_EXT, _, _, name @ ..] => {
            let name: String = name.iter().map(|&latin1| char::from(latin1)).collect();
            text.extend_from_slice(name.as_bytes());
        }
        _ => unreachable!("no other format holds an atom"),
    }
}

/// Appends the bits of a bit string of a number of bits that 8 does not divide, given its external format, the last byte filled
/// up with zeros, and returns how many there are.
pub fn bits(bytes: &[u8], bits: &mut Vec<u8>) -> usize {
    match bytes {
        [VERSION, BIT_BINARY_EXT, _, _, _, _, in_last, data @ .., last] => {
            bits.extend_from_slice(data);
            bits.push(last & !(0xff_u8.checked_shr(u32::from(*in_last)).unwrap_or(0)));
            data.len() * 8 + usize::from(*in_last)
        }
        _ => unreachable!("no other format holds a bit string"),
    }
}
