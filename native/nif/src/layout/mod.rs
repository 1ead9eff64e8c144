//! Terms as they lie in the VM's memory: list cells, tuples, small maps, numbers, small binaries and references, read and made in place;
//! and what references to resources refer to.
//!
//! Asking `erl_nif` takes 2 to 8 ns, in which some twenty words can be read or written. Cells, tuples and floats look the same in all
//! releases that there are, as does the part of an environment that tells where its next term goes; binaries do not (of those outside
//! the heaps tells [`binary`](crate::layout::binary)). All that is tried out when the library is loaded, on terms that the VM makes ([`learn`]);
//! where something is not as expected, or the release is a later one, `erl_nif` is asked.

pub mod binary;
pub mod equal;

use crate::vm::external;
use crate::vm::{Env, Term};
use cats_sync::facade::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use cats_term::NIL;
use rustler::sys::{enif_system_info, ErlNifResourceType, ErlNifSysInfo};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::slice::from_raw_parts;

/// The bits that tell what a word refers to: a cell, or an item that begins with a header.
const TAG: u64 = 3;
pub const CELL: u64 = 1;
pub const BOXED: u64 = 2;
/// The bits of a word that are no address: a VM may mark literals by the third one.
const MARKS: u64 = 7;
/// A header's low bits tell the kind of an item, and the others how many words follow it.
const KIND: u64 = 0x3f;
const KIND_BITS: u32 = 6;
const TUPLE: u64 = 0;
const REFERENCE_KIND: u64 = 0x10;
const FLOAT: u64 = 0x18;
/// The header of floats.
pub const FLOAT_HEADER: u64 = header(FLOAT, 1);
/// No header has this kind.
const UNKNOWN: u64 = !0;

/// Bytes of the largest binary that lies within a process' heap.
pub const HEAP_BINARY: usize = 64;
/// Words before a binary's bytes: its header and its size.
const BINARY_WORDS: usize = 2;

/// Whether cells, tuples, floats and environments are as expected. Relaxed, as for all in this file but [`RESOURCE`]: written while the
/// library is being loaded, before any other use.
static KNOWN: AtomicBool = AtomicBool::new(false);
/// The kind of binaries within the heap, and the logarithm of the unit of their size.
static BINARIES: AtomicU64 = AtomicU64::new(UNKNOWN);
static UNIT: AtomicU64 = AtomicU64::new(0);

/// The header of maps whose pairs lie side by side, behind the number of pairs and a tuple of the keys; and how many such a map has at
/// most. In larger ones they are the leaves of a tree.
static MAP: AtomicU64 = AtomicU64::new(UNKNOWN);
static PAIRS: AtomicUsize = AtomicUsize::new(0);
/// Words before such a map's values: its header, its size and its keys.
const MAP_WORDS: usize = 3;
/// Pairs with which maps are tried out, and some for trees.
const TRIED_PAIRS: std::ops::RangeInclusive<usize> = 1..=40;
const TREES: [usize; 3] = [100, 1000, 5000];

/// The kinds of integers that are no immediates, positive and negative ones: the digits of the magnitude follow the header, least first.
static POSITIVE: AtomicU64 = AtomicU64::new(UNKNOWN);
static NEGATIVE: AtomicU64 = AtomicU64::new(UNKNOWN);
/// Digits of the longest integer that is laid out.
const DIGITS: usize = 16;

/// The header of a reference of this node that is nothing but a number: not a table's, nor another resource's, nor an alias. The next
/// word's lower half tells it from those of resources.
static REFERENCE: AtomicU64 = AtomicU64::new(UNKNOWN);
const PLAIN: u64 = u32::MAX as u64;

/// The header of references to resources, once it is known where the resource lies: the next word refers to a record, in which the
/// object is at the offset [`OBJECT`], a pointer to its type [`TYPE_BEFORE`] words before that, and [`DESTRUCTOR_BEFORE`] words before it
/// a function's address that all records have, and those of resources in common. Learned while calls run: see [`learn_resource`].
static RESOURCE: AtomicU64 = AtomicU64::new(UNKNOWN);
static OBJECT: AtomicUsize = AtomicUsize::new(0);
static DESTRUCTOR: AtomicU64 = AtomicU64::new(UNKNOWN);
const TYPE_BEFORE: usize = 2;
const DESTRUCTOR_BEFORE: usize = 5;
/// The offsets of objects in the releases that were looked at: up to OTP 26, and later.
const OBJECTS: [usize; 2] = [64, 72];

/// Words that are copied one by one.
const FEW: usize = 4;

/// The major version of the runtime system of OTP 29, the last release that was looked at.
const LAST_RELEASE: u32 = 17;

/// The beginning of an environment.
#[repr(C)]
struct Environment {
    _module: *const u8,
    _process: *const u8,
    /// Where the next term goes, and the end of the memory for terms. (If there is none, the VM gets more.)
    next: *mut u64,
    end: *mut u64,
}

/// The header of an item with so many words behind it.
#[inline(always)]
pub const fn header(kind: u64, words: usize) -> u64 {
    kind | (words as u64) << KIND_BITS
}

/// Whether cells, tuples, floats and environments are as expected.
#[inline(always)]
pub fn is_known() -> bool {
    KNOWN.load(Ordering::Relaxed)
}

#[inline(always)]
pub fn address(term: Term) -> *const u64 {
    (term.0 & !MARKS) as *const u64
}

/// The header of what a term refers to, and what follows it; nothing if it does not refer to such.
///
/// # Safety
/// Terms are as expected, and this one lives; so in all functions that look into a term.
#[inline(always)]
pub unsafe fn boxed(term: Term) -> Option<(u64, *const u64)> {
    // SAFETY: as the caller promises, there is a header.
    (term.0 & TAG == BOXED).then(|| unsafe { (*address(term), address(term).add(1)) })
}

/// The elements of a tuple.
///
/// # Safety
/// As for [`boxed`]; it lives for `'a`.
#[inline(always)]
pub unsafe fn tuple<'a>(term: Term) -> Option<&'a [Term]> {
    // SAFETY: a tuple's header tells the number of its elements, which follow and never change.
    unsafe {
        let (header, elements) = boxed(term)?;
        (header & KIND == TUPLE).then(|| from_raw_parts(elements.cast(), (header >> KIND_BITS) as usize))
    }
}

/// The head and the tail of a list's first cell.
///
/// # Safety
/// As for [`boxed`].
#[inline(always)]
pub unsafe fn cell(term: Term) -> Option<(Term, Term)> {
    // SAFETY: a cell has two words.
    (term.0 & TAG == CELL).then(|| unsafe { (Term(*address(term)), Term(*address(term).add(1))) })
}

/// # Safety
/// As for [`boxed`].
#[inline(always)]
pub unsafe fn float(term: Term) -> Option<f64> {
    // SAFETY: one word follows a float's header.
    unsafe {
        let (found, bits) = boxed(term)?;
        (found == header(FLOAT, 1)).then(|| f64::from_bits(*bits))
    }
}

/// The bytes of a binary within a heap. Nothing for others, which the VM is asked for.
///
/// # Safety
/// As for [`boxed`]; it lives for `'a`.
#[inline(always)]
pub unsafe fn heap_binary<'a>(term: Term) -> Option<&'a [u8]> {
    // SAFETY: the size follows the header, and the bytes follow the size and never change.
    unsafe {
        let (header, size) = boxed(term)?;
        if header & KIND != BINARIES.load(Ordering::Relaxed) {
            return None;
        }
        let (size, unit) = (*size, UNIT.load(Ordering::Relaxed) as u32);
        // What is no multiple is a bit string.
        let bytes = size.wrapping_shr(unit);
        (bytes.wrapping_shl(unit) == size)
            .then(|| from_raw_parts(address(term).add(BINARY_WORDS).cast(), bytes as usize))
    }
}

/// The keys and the values of a map whose pairs lie side by side.
///
/// # Safety
/// As for [`boxed`]; it lives for `'a`.
#[inline(always)]
pub unsafe fn map<'a>(term: Term) -> Option<(&'a [Term], &'a [Term])> {
    // SAFETY: the size follows the header, then come a tuple of as many keys and the values, which never change.
    unsafe {
        let (header, size) = boxed(term)?;
        if header != MAP.load(Ordering::Relaxed) {
            return None;
        }
        let keys = tuple(Term(*size.add(1)))?;
        Some((
            keys,
            from_raw_parts(address(term).add(MAP_WORDS).cast(), *size as usize),
        ))
    }
}

/// The sign and the magnitude of an integer that is no immediate: whether it is negative, and its digits.
///
/// # Safety
/// As for [`boxed`]; it lives for `'a`.
#[inline(always)]
pub unsafe fn integer<'a>(term: Term) -> Option<(bool, &'a [u64])> {
    // SAFETY: the digits follow the header and never change.
    unsafe {
        let (header, digits) = boxed(term)?;
        let is = |kind: &AtomicU64| header & KIND == kind.load(Ordering::Relaxed);
        let (positive, negative) = (is(&POSITIVE), is(&NEGATIVE));
        let digits = (positive || negative).then(|| from_raw_parts(digits, (header >> KIND_BITS) as usize))?;
        (!negative || *digits != [LOWEST]).then_some((negative, digits))
    }
}

/// The magnitude of the lowest small integer, which the VM makes of a float in the form of a big one.
const LOWEST: u64 = 1 << 59;

/// A term that is no immediate, as far as it is looked into.
pub enum Look<'a> {
    /// Head and tail of a list's first cell.
    Cell(Term, Term),
    Tuple(&'a [Term]),
    /// Keys and values.
    Map(&'a [Term], &'a [Term]),
    Float(f64),
    Binary(&'a [u8]),
    Reference(&'a [u64]),
    /// Whether it is negative, and its magnitude.
    Integer(bool, &'a [u64]),
    Other,
}

/// What a term that is no immediate is. One look at its header, and no calls, for all kinds.
///
/// # Safety
/// As for [`boxed`]; it lives for `'a`.
#[inline(always)]
pub unsafe fn look<'a>(term: Term) -> Look<'a> {
    // SAFETY: as the caller promises.
    unsafe {
        if let Some((head, tail)) = cell(term) {
            Look::Cell(head, tail)
        } else if let Some(elements) = tuple(term) {
            Look::Tuple(elements)
        } else if let Some(value) = float(term) {
            Look::Float(value)
        } else if let Some(bytes) = heap_binary(term) {
            Look::Binary(bytes)
        } else if let Some((keys, values)) = map(term) {
            Look::Map(keys, values)
        } else if let Some(words) = reference(term) {
            Look::Reference(words)
        } else {
            integer(term).map_or(Look::Other, |(negative, digits)| Look::Integer(negative, digits))
        }
    }
}

/// All words of a reference of this node that is nothing but a number.
///
/// # Safety
/// As for [`boxed`]; it lives for `'a`.
#[inline(always)]
pub unsafe fn reference<'a>(term: Term) -> Option<&'a [u64]> {
    // SAFETY: a header tells the number of words behind it, which never change.
    unsafe {
        let (header, number) = boxed(term)?;
        let plain = header == REFERENCE.load(Ordering::Relaxed) && *number & PLAIN == PLAIN;
        plain.then(|| from_raw_parts(address(term), 1 + (header >> KIND_BITS) as usize))
    }
}

/// The object of a resource of this type. Nothing for other terms, and perhaps for this one, too: the VM is to be asked.
///
/// # Safety
/// As for [`boxed`].
#[inline(always)]
pub unsafe fn resource(term: Term, kind: *const ErlNifResourceType) -> Option<NonNull<u64>> {
    // SAFETY: a reference has more than one word; if it is none that is plain, the first refers to a record that lives as long as
    // the term, and each has a destructor. If that is the one of resources, there is a type, and an object.
    unsafe {
        let (header, first) = boxed(term)?;
        // Acquire pairs with `learn_resource`.
        if header != RESOURCE.load(Ordering::Acquire) || *first & PLAIN == PLAIN {
            return None;
        }
        let object = (*first as *mut u64).byte_add(OBJECT.load(Ordering::Relaxed));
        let is_it = *object.sub(DESTRUCTOR_BEFORE) == DESTRUCTOR.load(Ordering::Relaxed)
            && *object.sub(TYPE_BEFORE) == kind as u64;
        is_it.then(|| NonNull::new_unchecked(object))
    }
}

/// Has [`resource`] known what resources look like, of one that the VM was asked for: the reference, its type and its object.
///
/// # Safety
/// As for [`boxed`].
pub unsafe fn learn_resource(term: Term, kind: *const ErlNifResourceType, object: *const u64) {
    // SAFETY: as in `resource`; what is between a record's beginning and its object belongs to it.
    unsafe {
        let header = REFERENCE.load(Ordering::Relaxed);
        let Some((found, first)) = boxed(term).filter(|_| is_known()) else {
            return;
        };
        if found != header || *first & PLAIN == PLAIN {
            return;
        }
        let offset = object.addr().wrapping_sub(*first as usize);
        if OBJECTS.contains(&offset) && *object.sub(TYPE_BEFORE) == kind as u64 {
            OBJECT.store(offset, Ordering::Relaxed);
            DESTRUCTOR.store(*object.sub(DESTRUCTOR_BEFORE), Ordering::Relaxed);
            // Release: who sees it sees the others. Whoever learns it at the same time learns the same.
            RESOURCE.store(header, Ordering::Release);
        }
    }
}

/// Tries out what terms look like. (What resources look like comes with the first that is asked for: there are none yet.)
pub fn learn(env: Env) {
    let expected =
        is_known_release() && environment(env).is_some() && cells_and_tuples(env).is_some() && floats(env).is_some();
    KNOWN.store(expected, Ordering::Relaxed);
    let (kind, unit) = match expected {
        true => binaries(env).unwrap_or((UNKNOWN, 1)),
        false => (UNKNOWN, 1),
    };
    BINARIES.store(kind, Ordering::Relaxed);
    UNIT.store(unit.ilog2().into(), Ordering::Relaxed);
    let (map, pairs) = if expected { maps(env) } else { None }.unwrap_or((UNKNOWN, 0));
    let (positive, negative) = if expected { integers(env) } else { None }.unwrap_or((UNKNOWN, UNKNOWN));
    POSITIVE.store(positive, Ordering::Relaxed);
    NEGATIVE.store(negative, Ordering::Relaxed);
    MAP.store(map, Ordering::Relaxed);
    PAIRS.store(pairs, Ordering::Relaxed);
    let reference = if expected { references(env) } else { None };
    REFERENCE.store(reference.unwrap_or(UNKNOWN), Ordering::Relaxed);
}

/// Has everything asked through `erl_nif`, until terms are learned again.
#[cfg(feature = "selftest")]
pub fn forget() {
    KNOWN.store(false, Ordering::Relaxed);
    RESOURCE.store(UNKNOWN, Ordering::Relaxed);
}

/// Whether resources are looked into, as they are in builds of the VM without debugging once one was asked for.
#[cfg(feature = "selftest")]
pub fn knows_resources() -> bool {
    RESOURCE.load(Ordering::Relaxed) != UNKNOWN
}

fn is_known_release() -> bool {
    let mut info = MaybeUninit::<ErlNifSysInfo>::zeroed();
    // SAFETY: the VM fills as much of it as it is told; the version is a string that stays.
    let version = unsafe {
        enif_system_info(info.as_mut_ptr(), size_of::<ErlNifSysInfo>());
        CStr::from_ptr(info.assume_init().erts_version)
    };
    let major = version
        .to_str()
        .ok()
        .and_then(|version| version.split('.').next()?.parse().ok());
    major.is_some_and(|major: u32| major <= LAST_RELEASE)
}

/// Whether an environment tells where its next term goes: what is made in turn lies where it said.
fn environment(env: Env) -> Option<()> {
    let raw = env.raw().cast::<Environment>();
    for arity in 1..=8 {
        // SAFETY: an environment is longer than this.
        let (next, end) = unsafe { (&raw const (*raw).next, &raw const (*raw).end) };
        // SAFETY: as above. The VM changes them.
        let ends = || unsafe { (next.read_volatile().addr(), end.read_volatile().addr()) };
        let before = ends();
        let term = env.tuple(&[Term(NIL); 8][..arity]);
        let (next, end) = ends();
        let words = size_of::<u64>() * (arity + 1);
        let here = address(term).addr();
        let moved = next == here + words && next <= end && next.is_multiple_of(8) && end.is_multiple_of(8);
        // Where there was not enough memory left, the VM has got more.
        let in_turn = before.0 == here && before.1 == end || before.1 < before.0 + words;
        if !moved || !in_turn {
            return None;
        }
    }
    Some(())
}

fn cells_and_tuples(env: Env) -> Option<()> {
    let elements = [1, -1, 2, 0].map(|value| env.integer(value));
    for count in 0..=elements.len() {
        let term = env.tuple(&elements[..count]);
        // SAFETY: if the word has the tag of what begins with a header, there is memory for that; and if the header is a tuple's of so
        // many elements, for these. The bits above the tag are no address's if they are as expected.
        unsafe {
            let (found, _) = boxed(term)?;
            if term.0 & MARKS & !4 != BOXED || found != header(TUPLE, count) || tuple(term)? != &elements[..count] {
                return None;
            }
        }
    }
    let term = env.cons(elements[0], elements[1]);
    // SAFETY: whatever a list refers to has room for head and tail.
    let is_cell = term.0 & MARKS == CELL && unsafe { cell(term) } == Some((elements[0], elements[1]));
    is_cell.then_some(())
}

fn floats(env: Env) -> Option<()> {
    let is_float = |value: f64| {
        let term = env.float(value);
        // SAFETY: as in `cells_and_tuples`.
        term.0 & MARKS == BOXED && unsafe { float(term) }.map(f64::to_bits) == Some(value.to_bits())
    };
    [1.5, -0.0, f64::MAX].map(is_float).iter().all(|is| *is).then_some(())
}

/// The kind of binaries within the heap, and the unit in which their size is told, if they all have the same.
fn binaries(env: Env) -> Option<(u64, u64)> {
    let mut learned = None;
    for size in 1..=HEAP_BINARY {
        let bytes = [0xa5; HEAP_BINARY];
        let term = env.binary(&bytes[..size]);
        let seen = env.binary_bytes(term)?;
        // SAFETY: as in `cells_and_tuples`; binaries of this size have more words than their bytes need.
        let (found, told) = unsafe { boxed(term).map(|(header, told)| (header, *told))? };
        let beside = std::ptr::eq(seen.as_ptr(), address(term).wrapping_add(BINARY_WORDS).cast());
        let kind = found & KIND;
        let unit = told / size as u64;
        if !beside
            || found != header(kind, 1 + size.div_ceil(8))
            || told != unit * size as u64
            || !unit.is_power_of_two()
        {
            return None;
        }
        if *learned.get_or_insert((kind, unit)) != (kind, unit) {
            return None;
        }
    }
    learned
}

/// The kinds of positive and of negative integers that are no immediates.
fn integers(env: Env) -> Option<(u64, u64)> {
    const MAGNITUDES: [&[u64]; 5] = [&[1 << 60], &[u64::MAX], &[5, 7], &[0, 1, 1 << 63], &[1, 2, 3, 4]];
    let kind_of = |negative| {
        let mut learned = None;
        for digits in MAGNITUDES {
            let term = external::make_integer(env, negative, digits)?;
            // SAFETY: as in `cells_and_tuples`; if the header tells of so many words, there are.
            unsafe {
                let (found, words) = boxed(term)?;
                let kind = found & KIND;
                let is_expected = term.0 & MARKS == BOXED
                    && found == header(kind, digits.len())
                    && from_raw_parts(words, digits.len()) == digits;
                if !is_expected || *learned.get_or_insert(kind) != kind {
                    return None;
                }
            }
        }
        learned
    };
    let kinds = (kind_of(false)?, kind_of(true)?);
    (kinds.0 != kinds.1).then_some(kinds)
}

/// The header of maps whose pairs lie side by side, and how many they have at most, as far as that was tried.
fn maps(env: Env) -> Option<(u64, usize)> {
    let make = |pairs: usize| {
        let integers = |from: i64| {
            (0..pairs as i64)
                .rev()
                .map(|i| env.integer(from + i))
                .collect::<Vec<_>>()
        };
        env.map(&integers(0), &integers(-1000))
    };
    // SAFETY: as in `cells_and_tuples`.
    let header = |map: Term| unsafe { boxed(map) };
    let (known, _) = header(make(1)?)?;
    let mut most = 0;
    for pairs in TRIED_PAIRS {
        let map = make(pairs)?;
        let (found, size) = header(map)?;
        if found != known {
            break;
        }
        // SAFETY: what has a pair has more than two words behind its header, and if there are a size and a tuple of as many keys, as
        // many values.
        let (keys, values) = unsafe {
            let keys = tuple(Term(*size.add(1)))?;
            if map.0 & MARKS != BOXED || *size != pairs as u64 || keys.len() != pairs {
                return None;
            }
            (keys, from_raw_parts(address(map).add(MAP_WORDS).cast::<Term>(), pairs))
        };
        let mut lying = keys.iter().zip(values);
        let mut in_order = true;
        env.each_pair(map, pairs, |key, value| {
            in_order &= lying.next() == Some((&key, &value))
        })?;
        if !in_order {
            return None;
        }
        most = pairs;
    }
    let is_tree = |pairs| Some(header(make(pairs)?)?.0 != known);
    (most < *TRIED_PAIRS.end() && TREES.iter().all(|&pairs| is_tree(pairs) == Some(true))).then_some((known, most))
}

/// The header of references, if they are all as one another. (Those of resources have an address where these have [`PLAIN`].)
fn references(env: Env) -> Option<u64> {
    let mut learned = None;
    for _ in 0..8 {
        let term = env.new_reference();
        // SAFETY: as in `cells_and_tuples`; a reference has more than one word.
        let (found, number) = unsafe { boxed(term).map(|(header, number)| (header, *number))? };
        let as_before = *learned.get_or_insert(found) == found;
        if !as_before || found & KIND != REFERENCE_KIND || found >> KIND_BITS != 2 || number & PLAIN != PLAIN {
            return None;
        }
    }
    learned
}

/// Memory for an item of this environment, to be written at once; nothing if there is not enough left, and the VM is to make it.
///
/// # Safety
/// Terms and environments are as expected.
#[inline(always)]
unsafe fn take<'a>(env: Env<'a>, words: usize) -> Option<&'a mut [MaybeUninit<u64>]> {
    let raw = env.raw().cast::<Environment>();
    // SAFETY: the environment is this thread's, and nobody refers to it meanwhile. What is between its pointers is free.
    unsafe {
        let next = (*raw).next;
        let behind = next.wrapping_add(words);
        if behind > (*raw).end {
            return None;
        }
        (*raw).next = behind;
        Some(std::slice::from_raw_parts_mut(next.cast(), words))
    }
}

/// Where the next item of this environment goes.
///
/// # Safety
/// As for [`take`], here and below.
#[inline(always)]
pub unsafe fn next(env: Env) -> NonNull<u64> {
    // SAFETY: as in `take`; what the VM reserves is somewhere.
    unsafe { NonNull::new_unchecked((*env.raw().cast::<Environment>()).next) }
}

/// Has the next item of this environment go here: behind all that was laid out from [`next`] on.
///
/// # Safety
/// As for [`take`]; the place is not behind the end, and what is before it is complete when the VM has the environment again.
#[inline(always)]
pub unsafe fn set_next(env: Env, next: NonNull<u64>) {
    // SAFETY: as in `take`.
    unsafe { (*env.raw().cast::<Environment>()).next = next.as_ptr() }
}

/// Where so many words can be written, two or more: at `next`, if there is enough memory left.
///
/// # Safety
/// As for [`set_next`].
#[inline(always)]
pub unsafe fn room(env: Env, next: NonNull<u64>, words: usize) -> NonNull<u64> {
    // SAFETY: as the caller promises.
    unsafe {
        match has_room(env, next, words) {
            true => next,
            false => more(env, next, words),
        }
    }
}

/// Whether there is memory left for so many words at `next`.
///
/// # Safety
/// As for [`set_next`].
#[inline(always)]
pub unsafe fn has_room(env: Env, next: NonNull<u64>, words: usize) -> bool {
    // SAFETY: as in `take`.
    let end = unsafe { (*env.raw().cast::<Environment>()).end };
    next.as_ptr().wrapping_add(words) <= end
}

/// Memory for so many words, two or more: that of a tuple which the VM makes, and which is then forgotten.
#[cold]
#[inline(never)]
unsafe fn more(env: Env, next: NonNull<u64>, words: usize) -> NonNull<u64> {
    // SAFETY: as the caller promises. A tuple lies behind all other items of the environment, up to where the next one goes.
    unsafe {
        set_next(env, next);
        let tuple = env.tuple_from(&vec![Term(NIL); words - 1]);
        let at = NonNull::new_unchecked(address(tuple).cast_mut());
        set_next(env, at);
        at
    }
}

/// The header of a binary of so many bytes, and the word behind it, if it can be laid out; the bytes follow.
#[inline(always)]
pub fn binary_header(bytes: usize) -> Option<(u64, u64)> {
    let kind = BINARIES.load(Ordering::Relaxed);
    let laid = kind != UNKNOWN && bytes != 0 && bytes <= HEAP_BINARY;
    laid.then(|| {
        (
            header(kind, 1 + bytes.div_ceil(8)),
            (bytes as u64).wrapping_shl(UNIT.load(Ordering::Relaxed) as u32),
        )
    })
}

/// The header of an integer of so many digits, if it can be laid out; they follow.
#[inline(always)]
pub fn integer_header(negative: bool, digits: usize) -> Option<u64> {
    let kind = if negative { &NEGATIVE } else { &POSITIVE }.load(Ordering::Relaxed);
    (kind != UNKNOWN && digits <= DIGITS).then(|| header(kind, digits))
}

/// Whether a map of so many pairs can be laid out.
#[inline(always)]
pub fn is_laid_map(pairs: usize) -> bool {
    // There is but one empty map.
    pairs != 0 && pairs <= PAIRS.load(Ordering::Relaxed)
}

/// The header of such a map.
#[inline(always)]
pub fn map_header() -> u64 {
    MAP.load(Ordering::Relaxed)
}

/// The header of a tuple.
#[inline(always)]
pub fn tuple_header(arity: usize) -> u64 {
    header(TUPLE, arity)
}

/// Makes a tuple of one element or more; nothing, here and below, if the VM is to make it.
///
/// # Safety
/// As for [`take`], here and below; the elements are of this environment, or immediates.
#[inline(always)]
pub unsafe fn make_tuple(env: Env, elements: &[Term]) -> Option<Term> {
    if elements.is_empty() {
        // There is but one.
        return None;
    }
    // SAFETY: as the caller promises.
    let (first, slots) = unsafe { take(env, elements.len() + 1) }?.split_first_mut()?;
    first.write(header(TUPLE, elements.len()));
    fill(slots, Term::words(elements));
    Some(refer(first, BOXED))
}

/// As [`make_tuple`], of words that are known one by one: they are written as they come, not by way of the stack.
///
/// # Safety
/// As for [`make_tuple`].
#[inline(always)]
pub unsafe fn make_tuple_of<const N: usize>(env: Env, words: [u64; N]) -> Option<Term> {
    const { assert!(N > 0, "there is but one empty tuple") };
    // SAFETY: as the caller promises.
    let (first, slots) = unsafe { take(env, N + 1) }?.split_first_mut()?;
    first.write(header(TUPLE, N));
    for (slot, word) in slots.iter_mut().zip(words) {
        slot.write(word);
    }
    Some(refer(first, BOXED))
}

/// Makes a cell.
///
/// # Safety
/// As for [`take`].
#[inline(always)]
pub unsafe fn make_cell(env: Env, head: Term, tail: Term) -> Option<Term> {
    // SAFETY: as the caller promises.
    let [first, second] = unsafe { take(env, 2) }?.as_chunks_mut::<2>().0.first_mut()?;
    first.write(head.0);
    second.write(tail.0);
    Some(refer(first, CELL))
}

/// Makes a copy of an item whose words refer to nothing.
///
/// # Safety
/// As for [`take`].
#[inline(always)]
pub unsafe fn make_like(env: Env, words: &[u64]) -> Option<Term> {
    // SAFETY: as the caller promises.
    let own = unsafe { take(env, words.len()) }?;
    fill(own, words);
    Some(refer(own.first()?, BOXED))
}

/// Writes as many words: few of them each by itself, as they may have just been written so, and what is wider would have to wait until they
/// are in the cache.
#[inline(always)]
fn fill(to: &mut [MaybeUninit<u64>], from: &[u64]) {
    let few = from.len() <= FEW;
    for (to, from) in to.iter_mut().zip(from) {
        to.write(match few {
            // SAFETY: a word. Volatile: the compiler makes no wider ones of these.
            true => unsafe { (&raw const *from).read_volatile() },
            false => *from,
        });
    }
}

/// A term for what begins at this word.
#[inline(always)]
fn refer(word: &MaybeUninit<u64>, tag: u64) -> Term {
    Term((&raw const *word).addr() as u64 | tag)
}
