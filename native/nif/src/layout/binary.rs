//! Binaries outside the heaps: reads them in place and counts references to them.
//!
//! Such a binary has a *record*, in which the VM counts the references to it. A term has the record's address and says
//! which of its bytes are meant. A stored object counts a reference of its own, as an object of ETS does, and gives it
//! back through `erl_nif`.
//!
//! The layout of such terms differs between releases, and `erl_nif` says nothing about it. As in
//! [`layout`](crate::layout), [`learn`] checks it on examples. If something differs from what is expected, such binaries
//! are stored as held terms ([`held`](crate::held)).
//!
//! Two kinds are not read in place. One is bit strings that do not begin and end with a whole byte. The other is
//! binaries to which their process may append, because their bytes may move. A copy of the latter can be read: copying
//! makes the VM give up appending.

use crate::layout::{address, boxed, header, BOXED};
use crate::vm::{Env, Term};
use cats_sync::facade::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use rustler::sys::*;
use std::mem::MaybeUninit;
use std::slice::from_raw_parts;

/// The layout of terms.
#[derive(Clone, Copy)]
#[repr(u64)]
enum Form {
    Unknown,
    /// Up to OTP 26: a [`Whole`], or a [`Part`] of one.
    Earlier,
    /// Since OTP 27: a [`Range`].
    Later,
}

/// The [`Form`] of the terms that are read. Accesses are relaxed, as for everything in this file but the count of
/// references: it is written before the first table is made, and nobody reads such a binary before.
static FORM: AtomicU64 = AtomicU64::new(Form::Unknown as u64);
/// Two offsets from the beginning of a record: of its count of references, and of its bytes. The word before the bytes
/// has their number.
static COUNT: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);
/// Whether `enif_make_binary` makes terms of any bytes of a binary, or only of all of them.
static RANGES: AtomicBool = AtomicBool::new(false);

/// Most bytes of a record before those of the binary.
const RECORD: usize = 64;

const WHOLE: u64 = header(0x20, 5);
const PART: u64 = header(0x28, 3);
const RANGE: u64 = header(0x24, 4);
const REFERENCE: u64 = header(0x28, 2);

#[repr(C)]
struct Whole {
    header: u64,
    size: usize,
    _next: usize,
    record: u64,
    bytes: *const u8,
    /// Not 0 if the process may append to it.
    flags: u64,
}

#[repr(C)]
struct Part {
    _header: u64,
    size: usize,
    offset: usize,
    /// The number of bits behind the last whole byte, and before the first.
    bits: [u8; 2],
    whole: Term,
}

#[repr(C)]
struct Range {
    _header: u64,
    /// An address. Its low bits say whether the process may append to the binary.
    base: usize,
    /// In bits from the address.
    start: usize,
    end: usize,
    reference: Term,
}

/// The low bits of a range's base.
const FLAGS: usize = 3;

#[repr(C)]
struct Reference {
    _header: u64,
    record: u64,
}

/// A binary as `erl_nif` knows it.
#[repr(C)]
struct Native {
    size: usize,
    data: *const u8,
    /// The record to which it owns a counted reference, if any.
    record: *mut u8,
    _spare: [usize; 2],
}

const _: () = assert!(size_of::<Native>() == size_of::<ErlNifBinary>());

impl Native {
    fn new(record: u64, bytes: &[u8]) -> Self {
        Self {
            size: bytes.len(),
            data: bytes.as_ptr(),
            record: record as *mut u8,
            _spare: [0; 2],
        }
    }

    fn raw(&mut self) -> *mut ErlNifBinary {
        (&raw mut *self).cast()
    }

    /// Makes a term of these bytes, which takes over the reference.
    fn into_term(mut self, env: Env) -> Term {
        // SAFETY: the caller owns the reference and gives it away once.
        Term::from_raw(unsafe { enif_make_binary(env.raw(), self.raw()) })
    }
}

/// Whether binaries outside the heaps are read in place.
pub fn is_known() -> bool {
    FORM.load(Ordering::Relaxed) != Form::Unknown as u64
}

/// The record's address and the bytes of a binary outside the heaps. Nothing for other terms, and for binaries that are
/// not read in place.
///
/// # Safety
/// The term lives for `'a`.
#[inline(always)]
pub unsafe fn read<'a>(term: Term) -> Option<(u64, &'a [u8])> {
    // SAFETY: as the caller promises; this is the learned form.
    unsafe { read_as(FORM.load(Ordering::Relaxed), term) }
}

/// The record's address of a binary or bit string outside the heaps, wherever it begins and ends. Nothing if records are not known.
///
/// # Safety
/// The term lives.
pub unsafe fn record(term: Term) -> Option<u64> {
    let form = FORM.load(Ordering::Relaxed);
    // SAFETY: as the caller promises; this is the learned form.
    unsafe {
        if form == Form::Later as u64 {
            let range = item::<Range>(term, RANGE)?;
            Some(item::<Reference>(range.reference, REFERENCE)?.record)
        } else if form == Form::Earlier as u64 {
            let whole = item::<Part>(term, PART).map_or(term, |part| part.whole);
            Some(item::<Whole>(whole, WHOLE)?.record)
        } else {
            None
        }
    }
}

/// # Safety
/// The term lives for `'a`, and items have the layout of this form.
#[inline(always)]
unsafe fn read_as<'a>(form: u64, term: Term) -> Option<(u64, &'a [u8])> {
    // SAFETY: as the caller promises.
    unsafe {
        if form == Form::Later as u64 {
            read_range(term)
        } else if form == Form::Earlier as u64 {
            read_whole(term).or_else(|| read_part(term))
        } else {
            None
        }
    }
}

/// # Safety
/// The term lives for `'a`, and an item with the header of a [`Range`] or a [`Reference`] is one.
#[inline(always)]
unsafe fn read_range<'a>(term: Term) -> Option<(u64, &'a [u8])> {
    // SAFETY: as the caller promises. A record lives as long as the terms that refer to it. Bytes that may move are not
    // read.
    unsafe {
        let range = item::<Range>(term, RANGE)?;
        if range.base & FLAGS != 0 || (range.start | range.end) & 7 != 0 {
            return None;
        }
        let reference = item::<Reference>(range.reference, REFERENCE)?;
        let first = (range.base + range.start / 8) as *const u8;
        Some((reference.record, from_raw_parts(first, (range.end - range.start) / 8)))
    }
}

/// # Safety
/// As for [`read_range`], of a [`Whole`].
#[inline(always)]
unsafe fn read_whole<'a>(term: Term) -> Option<(u64, &'a [u8])> {
    // SAFETY: as in `read_range`.
    unsafe {
        let whole = item::<Whole>(term, WHOLE)?;
        (whole.flags == 0).then(|| (whole.record, from_raw_parts(whole.bytes, whole.size)))
    }
}

/// # Safety
/// As for [`read_range`], of a [`Part`] and a [`Whole`].
#[inline(always)]
unsafe fn read_part<'a>(term: Term) -> Option<(u64, &'a [u8])> {
    // SAFETY: as in `read_range`; a part lies within the whole.
    unsafe {
        let part = item::<Part>(term, PART)?;
        if part.bits != [0, 0] {
            return None;
        }
        let (record, bytes) = read_whole(part.whole)?;
        Some((record, from_raw_parts(bytes.as_ptr().add(part.offset), part.size)))
    }
}

/// The item that a term refers to, if it begins with this header.
///
/// # Safety
/// As for [`boxed`]; an item with this header is a `T`.
#[inline(always)]
unsafe fn item<'a, T>(term: Term, header: u64) -> Option<&'a T> {
    // SAFETY: as the caller promises; all words of an item follow its header.
    unsafe {
        let (found, _) = boxed(term)?;
        (found == header).then(|| &*address(term).cast())
    }
}

/// Makes a term of bytes of a binary.
///
/// # Safety
/// Somebody owns a counted reference to the binary of this record, and these bytes belong to it.
#[inline]
pub unsafe fn make(env: Env, record: u64, bytes: &[u8]) -> Term {
    let first = record as usize + BYTES.load(Ordering::Relaxed);
    if RANGES.load(Ordering::Relaxed) || first == bytes.as_ptr().addr() && size(record) == bytes.len() {
        retain(record);
        return Native::new(record, bytes).into_term(env);
    }
    // These are the words of a term. A copy of it gets a reference of its own.
    let whole = Whole {
        header: WHOLE,
        size: bytes.len(),
        _next: 0,
        record,
        bytes: bytes.as_ptr(),
        flags: 0,
    };
    let term = Term((&raw const whole).expose_provenance() as u64 | BOXED);
    // SAFETY: nobody changes these words before the call returns.
    unsafe { env.copy(term) }
}

/// Counts one more reference ([`cats_term::Host::retain_counted`]).
#[inline]
pub fn retain(record: u64) {
    let count = (record + COUNT.load(Ordering::Relaxed) as u64) as *const AtomicU64;
    // SAFETY: the caller's own reference keeps the binary alive, and the VM also accesses that word atomically.
    // Relaxed: as the VM does. Giving back the last reference is ordered after all other accesses.
    unsafe { (*count).fetch_add(1, Ordering::Relaxed) };
}

/// The bytes of a whole binary ([`cats_term::Host::kept_bytes`]).
#[inline]
pub fn size(record: u64) -> usize {
    let behind = record as usize + BYTES.load(Ordering::Relaxed);
    // SAFETY: the word before the bytes belongs to the record, and the binary is alive.
    unsafe { *(behind as *const usize).sub(1) }
}

/// Gives a counted reference back ([`cats_term::Host::release_counted`]).
pub fn release(record: u64) {
    let mut binary = Native::new(record, &[]);
    // SAFETY: the caller owns the reference and gives it back once.
    unsafe { enif_release_binary(binary.raw()) };
}

/// Learns the layout of binaries from examples. That of other terms is as expected.
pub fn learn(env: Env) {
    let form = learned(env).unwrap_or(Form::Unknown);
    FORM.store(form as u64, Ordering::Relaxed);
}

/// Stores binaries as held terms until they are learned again. Terms can still be made of binaries that are counted
/// already.
pub fn forget() {
    FORM.store(Form::Unknown as u64, Ordering::Relaxed);
}

fn learned(env: Env) -> Option<Form> {
    let mut as_before = None;
    for size in [65, 100, 1000, 100_000] {
        let sample = Sample::new(env, size)?;
        let offsets = (sample.bytes_offset()?, sample.count_offset()?);
        if *as_before.get_or_insert(offsets) != offsets {
            return None;
        }
    }
    let (bytes, count) = as_before?;
    BYTES.store(bytes, Ordering::Relaxed);
    COUNT.store(count, Ordering::Relaxed);

    let sample = Sample::new(env, 1000)?;
    // The term takes over this reference.
    retain(sample.record);
    let made = Native::new(sample.record, &sample.bytes[1..]).into_term(env);
    let form = [Form::Earlier, Form::Later].into_iter().find(|form| {
        // SAFETY: headers have the number of words that follow, and these items have that many.
        unsafe { read_as(*form as u64, sample.term) }.is_some()
    })?;
    let is = |term: Term, bytes: &[u8]| {
        // SAFETY: as above.
        let read = unsafe { read_as(form as u64, term) };
        read.is_some_and(|(record, read)| record == sample.record && std::ptr::eq(read, bytes))
    };
    RANGES.store(is(made, &sample.bytes[1..]), Ordering::Relaxed);
    let parts = [(0, 1000), (1, 999), (0, 999), (100, 65), (63, 130)];
    let as_expected = parts.into_iter().all(|(at, size)| {
        let part = &sample.bytes[at..][..size];
        let before = sample.count();
        // SAFETY: the binary has these bytes, and lives as long as its term.
        let (sub, made) = unsafe {
            let sub = enif_make_sub_binary(env.raw(), sample.term.raw(), at, size);
            (Term::from_raw(sub), make(env, sample.record, part))
        };
        let made = is(sub, part) && is(made, part) && sample.count() == before + 1;
        retain(sample.record);
        release(sample.record);
        made && sample.count() == before + 1
    });
    // SAFETY: as above.
    let reads_bits = |bits| unsafe { read_as(form as u64, bits) }.is_some();
    (as_expected && is(sample.term, sample.bytes) && !reads_bits(bit_string(env)?)).then_some(form)
}

/// A bit string of more than 64 bytes and three bits.
fn bit_string(env: Env) -> Option<Term> {
    const BYTES: usize = 100;
    // The external format: the version, the tag of a bit string, the number of bytes, and the number of bits in the
    // last one.
    let mut external = [0; 7 + BYTES];
    external[..7].copy_from_slice(&[131, 77, 0, 0, 0, BYTES as u8, 3]);
    let mut term = MaybeUninit::uninit();
    // SAFETY: the term is written when the call succeeds.
    unsafe {
        let read = enif_binary_to_term(env.raw(), external.as_mut_ptr(), external.len(), term.as_mut_ptr(), 0);
        (read != 0).then(|| Term::from_raw(term.assume_init()))
    }
}

/// A binary of the VM with one term.
struct Sample<'a> {
    record: u64,
    bytes: &'a [u8],
    term: Term,
}

impl<'a> Sample<'a> {
    fn new(env: Env<'a>, size: usize) -> Option<Self> {
        let mut binary = Native::new(0, &[]);
        // SAFETY: the VM writes the binary when the call succeeds. Its bytes are written at once, and live as long as
        // the term.
        unsafe {
            if enif_alloc_binary(size, binary.raw()) == 0 {
                return None;
            }
            binary.data.cast_mut().write_bytes(0xa5, size);
            Some(Self {
                record: binary.record.addr() as u64,
                bytes: from_raw_parts(binary.data, size),
                term: binary.into_term(env),
            })
        }
    }

    /// The offset of the bytes from the beginning of the record. The word before them has their number.
    fn bytes_offset(&self) -> Option<usize> {
        let offset = self.bytes.as_ptr().addr().checked_sub(self.record as usize)?;
        let fits = offset % 8 == 0 && (8..=RECORD).contains(&offset) && self.record % 8 == 0;
        let last = || *self.words(offset).last().expect("a word");
        (fits && last() == self.bytes.len() as u64).then_some(offset)
    }

    /// The offset of the count of references: the only word that changes while a copy of the term exists elsewhere.
    fn count_offset(&self) -> Option<usize> {
        let offset = self.bytes_offset()?;
        let one = self.words(offset);
        // SAFETY: the environment belongs to this thread and is freed once.
        let two = unsafe {
            let other = enif_alloc_env();
            Env::new(other).copy(self.term);
            let two = self.words(offset);
            enif_free_env(other);
            two
        };
        let mut changed = (0..one.len()).filter(|&i| one[i] != two[i]);
        let count = changed.next()?;
        let alone = changed.next().is_none() && (one[count], two[count]) == (1, 2) && self.words(offset) == one;
        alone.then_some(size_of::<u64>() * count)
    }

    /// The words of the record up to this offset.
    fn words(&self, offset: usize) -> Vec<u64> {
        let at = |i| (self.record as *const u64).wrapping_add(i);
        // SAFETY: these words lie before the bytes in the same allocation. Volatile: the VM changes them.
        (0..offset / size_of::<u64>())
            .map(|i| unsafe { at(i).read_volatile() })
            .collect()
    }

    fn count(&self) -> u64 {
        let words = self.words(BYTES.load(Ordering::Relaxed));
        words[COUNT.load(Ordering::Relaxed) / size_of::<u64>()]
    }
}
