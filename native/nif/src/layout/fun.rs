//! Funs that are plain terms.
//!
//! Since OTP 29 a local fun is its header, the address of an entry of the VM's table of funs, and the terms of its
//! environment. Nobody counts the references to an entry, and no entry is ever freed. So such a fun is stored like a
//! tuple. Earlier releases count the references. There funs are held terms ([`held`](crate::held)), and so are external
//! funs in all releases.

use super::{boxed, BOXED};
use crate::encode::immediates;
use crate::vm::{Env, Term};
use cats_sync::facade::{AtomicBool, Ordering};
use rustler::sys::enif_binary_to_term;
use std::mem::MaybeUninit;
use std::slice::from_raw_parts;

/// Whether funs are as expected. Accesses are relaxed: it is written before the first table is made.
static KNOWN: AtomicBool = AtomicBool::new(false);

/// The major version of the runtime system of OTP 29, in which funs became plain terms.
const FIRST_RELEASE: u32 = 17;

/// A header is the kind, the arity from bit 8 on, and the number of terms from bit 16 on. The other bits are 0.
const KIND: u64 = 0x14;
const ARITY_SHIFT: u32 = 8;
const TERMS_SHIFT: u32 = 16;
const BYTE: u64 = 0xff;
const REST: u64 = !(BYTE << ARITY_SHIFT | BYTE << TERMS_SHIFT);

/// The words of a local fun before its environment, and the terms of the environment. Nothing for other terms, or if
/// funs are not plain terms.
///
/// # Safety
/// As for [`boxed`]; it lives for `'a`.
#[inline(always)]
pub unsafe fn read<'a>(term: Term) -> Option<([u64; 2], &'a [Term])> {
    // SAFETY: as the caller promises.
    unsafe { KNOWN.load(Ordering::Relaxed).then(|| read_plain(term))? }
}

/// All words of a local fun whose environment has immediates only. Nothing for other terms, or if funs are not plain
/// terms.
///
/// # Safety
/// As for [`boxed`]; it lives for `'a`.
#[inline(always)]
pub unsafe fn of_immediates<'a>(term: Term) -> Option<&'a [u64]> {
    // SAFETY: as the caller promises; the terms follow the other words.
    unsafe {
        let (words, terms) = read(term)?;
        immediates(terms).map(|_| from_raw_parts(super::address(term), words.len() + terms.len()))
    }
}

/// # Safety
/// As for [`read`], and funs are plain terms.
#[inline(always)]
unsafe fn read_plain<'a>(term: Term) -> Option<([u64; 2], &'a [Term])> {
    // SAFETY: as the caller promises; a fun has an address, and as many terms as its header says.
    unsafe {
        let (header, behind) = boxed(term)?;
        let count = (header >> TERMS_SHIFT & BYTE) as usize;
        (header & REST == KIND).then(|| ([header, *behind], from_raw_parts(behind.add(1).cast(), count)))
    }
}

/// Learns the layout of funs from examples, in a release in which they are plain terms.
pub fn learn(env: Env, release: u32) {
    let known = release >= FIRST_RELEASE && (0..4).all(|count| is_plain(env, count) == Some(true));
    KNOWN.store(known, Ordering::Relaxed);
}

/// Leaves funs to `erl_nif` until they are learned again.
pub fn forget() {
    KNOWN.store(false, Ordering::Relaxed);
}

/// Whether a fun of this many integers is what it is expected to be.
fn is_plain(env: Env, count: u8) -> Option<bool> {
    const ARITY: u8 = 3;
    let made = || {
        // SAFETY: the layout of environments is known.
        let begin = unsafe { super::next(env) };
        let fun = sample(env, ARITY, count)?;
        // SAFETY: as above. If the header is as expected, and there are that many words, it is a fun of that many terms.
        unsafe {
            let is_alone =
                fun.0 == begin.addr().get() as u64 | BOXED && super::next(env) == begin.add(2 + count as usize);
            is_alone.then(|| read_plain(fun))?
        }
    };
    let (first, second) = (made()?, made()?);
    let header = KIND | u64::from(ARITY) << ARITY_SHIFT | u64::from(count) << TERMS_SHIFT;
    let terms: Vec<_> = (0..count).map(|i| env.integer(i.into())).collect();
    // The entry is the same one.
    Some(first == second && first.0[0] == header && first.1 == terms)
}

/// A fun of this many integers, from its external format. Its module does not exist.
fn sample(env: Env, arity: u8, count: u8) -> Option<Term> {
    const NEW_FUN_EXT: u8 = 112;
    const SMALL_ATOM_UTF8_EXT: u8 = 119;
    const SMALL_INTEGER_EXT: u8 = 97;
    const NEW_PID_EXT: u8 = 88;
    let atom = |name: &[u8]| [&[SMALL_ATOM_UTF8_EXT, name.len() as u8], name].concat();
    let integer = |value: u8| vec![SMALL_INTEGER_EXT, value];
    let body = [
        vec![arity],
        vec![0; 16 + 4],
        u32::from(count).to_be_bytes().to_vec(),
        atom(b"cats no module"),
        [integer(0), integer(0)].concat(),
        [vec![NEW_PID_EXT], atom(b"nonode@nohost"), vec![0; 12]].concat(),
        (0..count).flat_map(integer).collect(),
    ]
    .concat();
    let size = (body.len() as u32 + 4).to_be_bytes();
    let external = [&[131, NEW_FUN_EXT], &size[..], &body].concat();
    let mut term = MaybeUninit::uninit();
    // SAFETY: the term is written when the call succeeds.
    unsafe {
        let read = enif_binary_to_term(
            env.raw(),
            external.as_ptr().cast_mut(),
            external.len(),
            term.as_mut_ptr(),
            0,
        );
        (read != 0).then(|| Term::from_raw(term.assume_init()))
    }
}
