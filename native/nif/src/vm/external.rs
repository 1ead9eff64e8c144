//! The external term format. It serves for what `erl_nif` can neither make nor read otherwise: large integers, atoms
//! beyond Latin-1, bit strings, the nodes of pids, the arities of funs.
//!
//! Source: the chapter "External Term Format" of the ERTS User's Guide.

use crate::vm::{Env, Term};
use rustler::sys::*;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::slice::from_raw_parts;

const VERSION: u8 = 131;
const BIT_BINARY_EXT: u8 = 77;
const NEW_PID_EXT: u8 = 88;
const NEW_PORT_EXT: u8 = 89;
const NEWER_REFERENCE_EXT: u8 = 90;
const SMALL_INTEGER_EXT: u8 = 97;
const ATOM_EXT: u8 = 100;
const SMALL_BIG_EXT: u8 = 110;
const LARGE_BIG_EXT: u8 = 111;
const NEW_FUN_EXT: u8 = 112;
const EXPORT_EXT: u8 = 113;
const SMALL_ATOM_EXT: u8 = 115;
const ATOM_UTF8_EXT: u8 = 118;
const SMALL_ATOM_UTF8_EXT: u8 = 119;
const V4_PORT_EXT: u8 = 120;

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
        // SAFETY: this value owns the binary.
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

/// An integer of more than 32 bits: whether it is negative, and the 64-bit digits of its magnitude, lowest first.
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
    read(env, &bytes)
}

/// Appends the text of an atom in UTF-8. `bytes` is its external format.
pub fn atom_text(bytes: &[u8], text: &mut Vec<u8>) {
    let [VERSION, atom @ ..] = bytes else {
        unreachable!("every term's external format begins with this")
    };
    atom_at(atom, text).expect("no other format holds an atom");
}

/// Appends the text of the atom that `bytes` begins with. Nothing if there is none.
fn atom_at(bytes: &[u8], text: &mut Vec<u8>) -> Option<()> {
    let (utf8, size, rest) = match bytes {
        [SMALL_ATOM_UTF8_EXT, size, rest @ ..] => (true, usize::from(*size), rest),
        [ATOM_UTF8_EXT, high, low, rest @ ..] => (true, usize::from(u16::from_be_bytes([*high, *low])), rest),
        [SMALL_ATOM_EXT, size, rest @ ..] => (false, usize::from(*size), rest),
        [ATOM_EXT, high, low, rest @ ..] => (false, usize::from(u16::from_be_bytes([*high, *low])), rest),
        _ => return None,
    };
    let name = rest.get(..size)?;
    if utf8 {
        text.extend_from_slice(name);
    } else {
        let name: String = name.iter().map(|&latin1| char::from(latin1)).collect();
        text.extend_from_slice(name.as_bytes());
    }
    Some(())
}

/// Appends the name of the node of a pid, port or reference. `bytes` is its external format. Nothing for other terms.
pub fn node_text(bytes: &[u8], text: &mut Vec<u8>) -> Option<()> {
    match bytes {
        [VERSION, NEW_PID_EXT | NEW_PORT_EXT | V4_PORT_EXT, node @ ..] => atom_at(node, text),
        [VERSION, NEWER_REFERENCE_EXT, _, _, node @ ..] => atom_at(node, text),
        _ => None,
    }
}

/// A pid with this serial and ID, otherwise like the one whose external format is `pid`. These bits of its creation are changed. Nothing if
/// the VM refuses such a pid.
pub fn pid_like(env: Env, pid: &[u8], [serial, id]: [u32; 2], changed: u32) -> Option<Term> {
    let [VERSION, NEW_PID_EXT, ..] = pid else {
        return None;
    };
    let (rest, creation) = pid.split_last_chunk()?;
    let (node, _) = rest.split_last_chunk::<8>()?;
    let creation = u32::from_be_bytes(*creation) ^ changed;
    let numbers = [id, serial, creation].map(u32::to_be_bytes);
    read(env, &[node, numbers.as_flattened()].concat())
}

/// A port and a reference of the same node as the pid whose external format is `pid`, with the lowest numbers.
pub fn port_and_reference_beside(env: Env, pid: &[u8]) -> Option<[Term; 2]> {
    let [VERSION, NEW_PID_EXT, rest @ ..] = pid else {
        return None;
    };
    let (rest, creation) = rest.split_last_chunk::<4>()?;
    let (node, _) = rest.split_last_chunk::<8>()?;
    let port = [&[VERSION, V4_PORT_EXT], node, &[0; 8], creation].concat();
    let reference = [&[VERSION, NEWER_REFERENCE_EXT, 0, 3], node, creation, &[0; 12]].concat();
    Some([read(env, &port)?, read(env, &reference)?])
}

/// The term with this external format. Nothing if the VM refuses it.
fn read(env: Env, bytes: &[u8]) -> Option<Term> {
    let mut term = MaybeUninit::uninit();
    // SAFETY: the term is written when the call succeeds.
    unsafe {
        (enif_binary_to_term(env.raw(), bytes.as_ptr().cast_mut(), bytes.len(), term.as_mut_ptr(), 0) != 0)
            .then(|| Term::from_raw(term.assume_init()))
    }
}

/// The numbers of a reference that has three. `bytes` is its external format. Nothing for other terms.
pub fn reference_numbers(bytes: &[u8]) -> Option<[u32; 3]> {
    let [VERSION, NEWER_REFERENCE_EXT, 0, 3, .., a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3] = bytes else {
        return None;
    };
    Some([[*a0, *a1, *a2, *a3], [*b0, *b1, *b2, *b3], [*c0, *c1, *c2, *c3]].map(u32::from_be_bytes))
}

/// The arity of a fun. `bytes` is its external format. Nothing for other terms.
pub fn fun_arity(bytes: &[u8]) -> Option<u64> {
    match bytes {
        [VERSION, NEW_FUN_EXT, _, _, _, _, arity, ..] => Some(u64::from(*arity)),
        [VERSION, EXPORT_EXT, .., SMALL_INTEGER_EXT, arity] => Some(u64::from(*arity)),
        _ => None,
    }
}

/// Appends the bits of a bit string that does not end with a whole byte, and returns how many there are. The last byte
/// is filled up with zeros. `bytes` is the external format.
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
