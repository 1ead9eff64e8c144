//! How the VM's terms lie in memory. List cells, tuples, small maps, numbers, small binaries and references are read
//! and made in place. The object of a resource is found through its reference.
//!
//! A call of `erl_nif` takes as long as reading or writing many words. So this module avoids such calls. Cells, tuples
//! and floats have the same layout in all supported releases, and so has the part of an environment that says where its
//! next term goes. Binaries do not; see [`binary`](crate::layout::binary) for those outside the heaps.
//!
//! Nothing of this is taken on trust: before the first table is made, [`learn`] makes terms through the VM and looks at
//! them. If something differs from what is expected, or the release is a later one, `erl_nif` does the work. So it does
//! if the setting `vm_terms` is `erl_nif`: then [`learn`] is not called, and nothing here reads or writes memory of the VM.

pub mod binary;
pub mod equal;
pub mod fun;
pub mod identifier;
pub mod node;
pub mod tree;

use crate::vm::external;
use crate::vm::{Env, Term};
use cats_sync::facade::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use cats_term::NIL;
use rustler::sys::{enif_system_info, ErlNifResourceType, ErlNifSysInfo};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::slice::from_raw_parts;

/// The bits that say what a word refers to: a cell, or an item that begins with a header.
const TAG: u64 = 3;
pub const CELL: u64 = 1;
pub const BOXED: u64 = 2;
/// The bits of a word that are not part of the address. A VM may mark literals by the third one.
const MARKS: u64 = 7;
/// The low bits of a header are the kind of its item. The others are the number of words that follow.
const KIND: u64 = 0x3f;
const KIND_BITS: u32 = 6;
const TUPLE: u64 = 0;
const REFERENCE_KIND: u64 = 0x10;
const FLOAT: u64 = 0x18;
/// The header of floats.
pub const FLOAT_HEADER: u64 = header(FLOAT, 1);
/// No header has this kind.
const UNKNOWN: u64 = !0;

/// Bytes of the largest binary that is stored inside a process' heap.
pub const HEAP_BINARY: usize = 64;
/// Words before the bytes of such a binary: its header and its size.
const BINARY_WORDS: usize = 2;

/// Whether the layout of cells, tuples, floats and environments is known. Accesses are relaxed, as for everything in this
/// file but [`RESOURCE_TAG`]: it is written before the first table is made. Calls that have found no table look only at
/// cells and tuples, for which nothing needs to be learned.
static KNOWN: AtomicBool = AtomicBool::new(false);
/// Whether examples are looked at.
#[cfg(debug_assertions)]
static LEARNING: AtomicBool = AtomicBool::new(false);
/// The kind of binaries inside a heap, and the binary logarithm of the unit of their size.
static BINARIES: AtomicU64 = AtomicU64::new(UNKNOWN);
static UNIT: AtomicU64 = AtomicU64::new(0);

/// Whether the record of an environment's process begins with its pid.
static PROCESSES: AtomicBool = AtomicBool::new(false);

/// The header of flat maps: the number of pairs and a tuple of the keys follow, then the values. And the most pairs
/// that such a map has. Larger maps are trees.
static MAP: AtomicU64 = AtomicU64::new(UNKNOWN);
static PAIRS: AtomicUsize = AtomicUsize::new(0);
/// Words before the values of a flat map: its header, its size and its keys.
const MAP_WORDS: usize = 3;
/// The sizes of maps that are tried, and some that must be trees.
const TRIED_PAIRS: std::ops::RangeInclusive<usize> = 1..=40;
const TREES: [usize; 2] = [100, 1000];

/// The kinds of positive and negative integers that are not immediates. The digits of the magnitude follow the header,
/// lowest first.
static POSITIVE: AtomicU64 = AtomicU64::new(UNKNOWN);
static NEGATIVE: AtomicU64 = AtomicU64::new(UNKNOWN);
/// Most digits of an integer that is made in place.
const DIGITS: usize = 16;

/// The header of a plain reference. It does not belong to a table or another resource. The lower half of the next word
/// tells it from references to resources. An alias has one more word, with the process.
static REFERENCE: AtomicU64 = AtomicU64::new(UNKNOWN);
pub const REFERENCE_WORDS: usize = 3;
const ALIAS_MORE: u64 = 1 << KIND_BITS;
const PLAIN: u64 = u32::MAX as u64;

/// The header of references to resources. It is known once [`learn_resource`] has learned where the object is. That
/// happens while calls run. The word behind the header is the address of a record. In it the object is at the offset
/// [`OBJECT`]. [`TYPE_BEFORE`] words before the object is a pointer to its type. [`DESTRUCTOR_BEFORE`] words before it
/// is the address of the record's destructor, which is the same function for all resources.
static RESOURCE: AtomicU64 = AtomicU64::new(UNKNOWN);
/// The tag of words that refer to resources, once they are learned. Before, no word has it, and nothing is read.
static RESOURCE_TAG: AtomicU64 = AtomicU64::new(UNKNOWN);
static OBJECT: AtomicUsize = AtomicUsize::new(0);
static DESTRUCTOR: AtomicU64 = AtomicU64::new(UNKNOWN);
const TYPE_BEFORE: usize = 2;
const DESTRUCTOR_BEFORE: usize = 5;
/// The offsets of objects: up to OTP 26, and later.
const OBJECTS: [usize; 2] = [64, 72];

/// Most words that are copied one by one.
const WORD_BY_WORD: usize = 4;

/// The major version of the runtime system of OTP 29, the last release whose layout was checked.
const LAST_RELEASE: u32 = 17;

/// The beginning of an environment.
#[repr(C)]
struct Environment {
    _module: *const u8,
    /// The record of the process. Its first word is the process' pid.
    process: *const u64,
    /// Where the next term goes, and the end of the memory for terms. When it is full, the VM gets more.
    next: *mut u64,
    end: *mut u64,
}

/// The header of an item with this many words behind it.
#[inline(always)]
pub const fn header(kind: u64, words: usize) -> u64 {
    kind | (words as u64) << KIND_BITS
}

/// Whether the layout of cells, tuples, floats and environments is known.
#[inline(always)]
pub fn is_known() -> bool {
    KNOWN.load(Ordering::Relaxed)
}

/// Every access to memory of the VM begins here: it is a fault if layouts are not in use.
#[inline(always)]
fn check_use() {
    #[cfg(debug_assertions)]
    assert!(
        is_known() || LEARNING.load(Ordering::Relaxed),
        "memory of the VM is left alone"
    );
}

#[inline(always)]
fn environment_of(env: Env) -> *mut Environment {
    check_use();
    env.raw().cast()
}

#[inline(always)]
pub fn address(term: Term) -> *const u64 {
    check_use();
    (term.0 & !MARKS) as *const u64
}

/// The header of the item that a term refers to, and the address behind it. Nothing if the term does not refer to an
/// item with a header.
///
/// # Safety
/// The layout of terms is known, and this term is alive. This is the contract of all functions that look into a term.
#[inline(always)]
pub unsafe fn boxed(term: Term) -> Option<(u64, *const u64)> {
    // SAFETY: as the caller promises, there is a header.
    (term.0 & TAG == BOXED).then(|| unsafe { (*address(term), address(term).add(1)) })
}

/// The word of the pid of an environment's process. Nothing if the layout is not known.
///
/// # Safety
/// The environment belongs to a process.
#[inline(always)]
pub unsafe fn process(env: Env) -> Option<Term> {
    // SAFETY: the layout is known then, and the process lives while its environment does.
    PROCESSES
        .load(Ordering::Relaxed)
        .then(|| unsafe { Term(*(*env.raw().cast::<Environment>()).process) })
}

/// The elements of a tuple.
///
/// # Safety
/// As for [`boxed`]; it lives for `'a`.
#[inline(always)]
pub unsafe fn tuple<'a>(term: Term) -> Option<&'a [Term]> {
    // SAFETY: a tuple's header has the number of its elements, which follow it and never change.
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

/// The bytes of a binary inside a heap. Nothing for other terms.
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
        // A size that is not a whole number of bytes belongs to a bit string.
        let bytes = size.wrapping_shr(unit);
        (bytes.wrapping_shl(unit) == size)
            .then(|| from_raw_parts(address(term).add(BINARY_WORDS).cast(), bytes as usize))
    }
}

/// The keys and the values of a flat map.
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

/// An integer that is not an immediate: whether it is negative, and the digits of its magnitude.
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

/// The magnitude of the lowest small integer. When the VM converts a float to it, it makes a big integer. That one is
/// left to the VM.
const LOWEST: u64 = 1 << 59;

/// What a term that is not an immediate is, with its parts.
pub enum Look<'a> {
    /// Head and tail of a list's first cell.
    Cell(Term, Term),
    Tuple(&'a [Term]),
    /// Keys and values.
    Map(&'a [Term], &'a [Term]),
    Float(f64),
    Binary(&'a [u8]),
    /// The words of a plain reference, an alias, or a fun of immediates. An item of a block is the same.
    Same(&'a [u64]),
    /// Whether it is negative, and its magnitude.
    Integer(bool, &'a [u64]),
    Other,
}

/// Looks at a term that is not an immediate. Reads its header once and calls nothing, whatever its type.
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
            Look::Same(words)
        } else if let Some((negative, digits)) = integer(term) {
            Look::Integer(negative, digits)
        } else {
            fun::of_immediates(term).map_or(Look::Other, Look::Same)
        }
    }
}

/// All words of a plain reference or an alias.
///
/// # Safety
/// As for [`boxed`]; it lives for `'a`.
#[inline(always)]
pub unsafe fn reference<'a>(term: Term) -> Option<&'a [u64]> {
    // SAFETY: a header has the number of words behind it, which never change.
    unsafe {
        let (header, number) = boxed(term)?;
        let known = REFERENCE.load(Ordering::Relaxed);
        let plain = (header == known || header == known.wrapping_add(ALIAS_MORE)) && *number & PLAIN == PLAIN;
        plain.then(|| from_raw_parts(address(term), 1 + (header >> KIND_BITS) as usize))
    }
}

/// The object of a resource of this type. Nothing for other terms. It may be nothing for such a resource too, so the
/// caller then asks the VM.
///
/// # Safety
/// As for [`boxed`].
#[inline(always)]
pub unsafe fn resource(term: Term, kind: *const ErlNifResourceType) -> Option<NonNull<u64>> {
    // SAFETY: a reference has more than one word. If it is not a plain one, the word behind the header is the address
    // of a record that lives as long as the term. Each record has a destructor. If that is the destructor of resources,
    // there is a type and an object.
    unsafe {
        // Acquire pairs with `learn_resource`.
        if term.0 & TAG != RESOURCE_TAG.load(Ordering::Acquire) {
            return None;
        }
        let (header, first) = boxed(term)?;
        if header != RESOURCE.load(Ordering::Relaxed) || *first & PLAIN == PLAIN {
            return None;
        }
        let object = (*first as *mut u64).byte_add(OBJECT.load(Ordering::Relaxed));
        let is_it = *object.sub(DESTRUCTOR_BEFORE) == DESTRUCTOR.load(Ordering::Relaxed)
            && *object.sub(TYPE_BEFORE) == kind as u64;
        is_it.then(|| NonNull::new_unchecked(object))
    }
}

/// Teaches [`resource`] the layout of resources by an example from the VM: a reference, its type and its object.
///
/// # Safety
/// As for [`boxed`].
pub unsafe fn learn_resource(term: Term, kind: *const ErlNifResourceType, object: *const u64) {
    // SAFETY: as in `resource`; the memory between the beginning of a record and its object belongs to the record.
    unsafe {
        if !is_known() {
            return;
        }
        let header = REFERENCE.load(Ordering::Relaxed);
        let Some((found, first)) = boxed(term) else {
            return;
        };
        if found != header || *first & PLAIN == PLAIN {
            return;
        }
        let offset = object.addr().wrapping_sub(*first as usize);
        if OBJECTS.contains(&offset) && *object.sub(TYPE_BEFORE) == kind as u64 {
            OBJECT.store(offset, Ordering::Relaxed);
            DESTRUCTOR.store(*object.sub(DESTRUCTOR_BEFORE), Ordering::Relaxed);
            RESOURCE.store(header, Ordering::Relaxed);
            // Release: a thread that sees the tag sees the other values. Threads that learn at the same time store the
            // same values.
            RESOURCE_TAG.store(BOXED, Ordering::Release);
        }
    }
}

/// Learns the layout of terms from examples. That of resources is learned later, from the first one that a call passes,
/// because none exists yet.
pub fn learn(env: Env) {
    // Until the end the VM makes and reads all terms.
    forget();
    let Some(release) = release().filter(|release| *release <= LAST_RELEASE) else {
        return;
    };
    #[cfg(debug_assertions)]
    LEARNING.store(true, Ordering::Relaxed);
    let expected = environment(env).is_some() && cells_and_tuples(env).is_some() && floats(env).is_some();
    if expected {
        learn_others(env, release);
        PROCESSES.store(process_begins_with_pid(env), Ordering::Relaxed);
    }
    #[cfg(debug_assertions)]
    LEARNING.store(false, Ordering::Relaxed);
    KNOWN.store(expected, Ordering::Relaxed);
}

/// Learns what may differ between releases.
fn learn_others(env: Env, release: u32) {
    let (kind, unit) = binaries(env).unwrap_or((UNKNOWN, 1));
    BINARIES.store(kind, Ordering::Relaxed);
    UNIT.store(unit.ilog2().into(), Ordering::Relaxed);
    let (map, pairs) = maps(env).unwrap_or((UNKNOWN, 0));
    let (positive, negative) = integers(env).unwrap_or((UNKNOWN, UNKNOWN));
    POSITIVE.store(positive, Ordering::Relaxed);
    NEGATIVE.store(negative, Ordering::Relaxed);
    if map != UNKNOWN {
        let sizes = TRIED_PAIRS.chain(TREES).filter(|size| *size > pairs);
        tree::learn(env, map & KIND, sizes, |pairs| make_map(env, pairs));
    }
    MAP.store(map, Ordering::Relaxed);
    PAIRS.store(pairs, Ordering::Relaxed);
    fun::learn(env, release);
    REFERENCE.store(references(env).unwrap_or(UNKNOWN), Ordering::Relaxed);
    identifier::learn(env);
    binary::learn(env);
}

/// Lets `erl_nif` do everything until terms are learned again.
pub fn forget() {
    KNOWN.store(false, Ordering::Relaxed);
    tree::forget();
    fun::forget();
    RESOURCE_TAG.store(UNKNOWN, Ordering::Relaxed);
    binary::forget();
    PROCESSES.store(false, Ordering::Relaxed);
}

/// Whether resources are read in place. In a release build of the VM this is true after the first call with one.
#[cfg(feature = "selftest")]
pub fn knows_resources() -> bool {
    RESOURCE_TAG.load(Ordering::Relaxed) != UNKNOWN
}

/// The major version of the runtime system.
pub fn release() -> Option<u32> {
    let mut info = MaybeUninit::<ErlNifSysInfo>::zeroed();
    // SAFETY: the VM fills no more bytes than the given size. The version is a string that is never freed.
    let version = unsafe {
        enif_system_info(info.as_mut_ptr(), size_of::<ErlNifSysInfo>());
        CStr::from_ptr(info.assume_init().erts_version)
    };
    version.to_str().ok()?.split('.').next()?.parse().ok()
}

/// Checks that an environment says where its next term goes: terms that are made one after the other lie where it said.
fn environment(env: Env) -> Option<()> {
    let raw = environment_of(env);
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
        let moved = next == here + words && next <= end && next % 8 == 0 && end % 8 == 0;
        // Where there was not enough memory left, the VM has got more.
        let in_turn = before.0 == here && before.1 == end || before.1 < before.0 + words;
        if !moved || !in_turn {
            return None;
        }
    }
    Some(())
}

/// Whether the record of the environment's process begins with its pid.
fn process_begins_with_pid(env: Env) -> bool {
    // SAFETY: an environment is longer than this.
    let process = unsafe { (*env.raw().cast::<Environment>()).process };
    // SAFETY: in a known release, an environment has the address of its process there. A record is longer than a word.
    process.is_aligned() && !process.is_null() && unsafe { *process } == env.ask_for_process().0
}

fn cells_and_tuples(env: Env) -> Option<()> {
    let elements = [1, -1, 2, 0].map(|value| env.integer(value));
    for count in 0..=elements.len() {
        let term = env.tuple(&elements[..count]);
        // SAFETY: if the word has the tag of an item with a header, there is memory for a header. If the header is that
        // of a tuple of this many elements, there is memory for these. The bits above the tag are checked not to be
        // part of an address.
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

/// The kind of binaries inside a heap and the unit of their size, if all of them have the same.
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

/// The kinds of positive and of negative integers that are not immediates.
fn integers(env: Env) -> Option<(u64, u64)> {
    const MAGNITUDES: [&[u64]; 5] = [&[1 << 60], &[u64::MAX], &[5, 7], &[0, 1, 1 << 63], &[1, 2, 3, 4]];
    let kind_of = |negative| {
        let mut learned = None;
        for digits in MAGNITUDES {
            let term = external::make_integer(env, negative, digits)?;
            // SAFETY: as in `cells_and_tuples`; if the header counts this many words, they exist.
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

/// A map of this many pairs of integers.
fn make_map(env: Env, pairs: usize) -> Option<Term> {
    let integers = |from: i64| {
        (0..pairs as i64)
            .rev()
            .map(|i| env.integer(from + i))
            .collect::<Vec<_>>()
    };
    env.map(&integers(0), &integers(-1000))
}

/// The header of flat maps, and the most pairs that one of those tried has.
fn maps(env: Env) -> Option<(u64, usize)> {
    let make = |pairs| make_map(env, pairs);
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
        // SAFETY: a map with a pair has more than two words behind its header. If these are a size and a tuple of as
        // many keys, there are as many values.
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

/// The header of references, if all of them have the same. Those of resources have an address where these have
/// [`PLAIN`].
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

/// Memory for an item of this environment. The caller must write it at once. Nothing if there is not enough left, so
/// that the VM has to make the item.
///
/// # Safety
/// The layout of terms and environments is known.
#[inline(always)]
unsafe fn take<'a>(env: Env<'a>, words: usize) -> Option<&'a mut [MaybeUninit<u64>]> {
    let raw = environment_of(env);
    // SAFETY: the environment belongs to this thread, and nobody else refers to it now. The memory between its pointers
    // is free.
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
    // SAFETY: as in `take`; the pointer is never null.
    unsafe { NonNull::new_unchecked((*environment_of(env)).next) }
}

/// The address of the end of the memory in which the next item of this environment goes.
///
/// # Safety
/// As for [`take`].
pub unsafe fn end(env: Env) -> usize {
    // SAFETY: as in `take`.
    unsafe { (*env.raw().cast::<Environment>()).end.addr() }
}

/// Sets the place of the next item of this environment: behind everything that was written from [`next`] on.
///
/// # Safety
/// As for [`take`]; the place is not behind the end. All items before it are complete when the VM gets the environment
/// back.
#[inline(always)]
pub unsafe fn set_next(env: Env, next: NonNull<u64>) {
    // SAFETY: as in `take`.
    unsafe { (*environment_of(env)).next = next.as_ptr() }
}

/// Where this many words, two or more, can be written: at `next`, if there is enough memory left.
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

/// Whether there is memory left for this many words at `next`.
///
/// # Safety
/// As for [`set_next`].
#[inline(always)]
pub unsafe fn has_room(env: Env, next: NonNull<u64>, words: usize) -> bool {
    // SAFETY: as in `take`.
    let end = unsafe { (*environment_of(env)).end };
    next.as_ptr().wrapping_add(words) <= end
}

/// Memory for this many words, two or more. The VM makes a tuple of that size, whose memory is then used instead.
#[cold]
#[inline(never)]
unsafe fn more(env: Env, next: NonNull<u64>, words: usize) -> NonNull<u64> {
    // SAFETY: as the caller promises. A new tuple lies behind all other items of the environment, and the next item
    // goes directly behind it.
    unsafe {
        set_next(env, next);
        let tuple = env.tuple_from(&vec![Term(NIL); words - 1]);
        let at = NonNull::new_unchecked(address(tuple).cast_mut());
        set_next(env, at);
        at
    }
}

/// The header of a binary of this many bytes, and the word behind it. The bytes follow. Nothing if such a binary cannot
/// be made in place.
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

/// The header of an integer of this many digits, which follow. Nothing if such an integer cannot be made in place.
#[inline(always)]
pub fn integer_header(negative: bool, digits: usize) -> Option<u64> {
    let kind = if negative { &NEGATIVE } else { &POSITIVE }.load(Ordering::Relaxed);
    (kind != UNKNOWN && digits <= DIGITS).then(|| header(kind, digits))
}

/// Whether a map of this many pairs can be made in place.
#[inline(always)]
pub fn is_laid_map(pairs: usize) -> bool {
    // All empty maps are one and the same in the VM.
    pairs != 0 && pairs <= PAIRS.load(Ordering::Relaxed)
}

/// The header of a flat map.
#[inline(always)]
pub fn map_header() -> u64 {
    MAP.load(Ordering::Relaxed)
}

/// The header of a tuple.
#[inline(always)]
pub fn tuple_header(arity: usize) -> u64 {
    header(TUPLE, arity)
}

/// Makes a tuple of one element or more. Here and below, the result is nothing if the VM has to make the term.
///
/// # Safety
/// As for [`take`], here and below. The elements are immediates or terms of this environment.
#[inline(always)]
pub unsafe fn make_tuple(env: Env, elements: &[Term]) -> Option<Term> {
    if elements.is_empty() {
        // All empty tuples are one and the same in the VM.
        return None;
    }
    // SAFETY: as the caller promises.
    let (first, slots) = unsafe { take(env, elements.len() + 1) }?.split_first_mut()?;
    first.write(header(TUPLE, elements.len()));
    fill(slots, Term::words(elements));
    Some(refer(first, BOXED))
}

/// As [`make_tuple`], for words in registers: they are written directly and not first to the stack.
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
    let [first, second] = unsafe { take(env, 2) }?.first_chunk_mut()?;
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

/// Copies words. A few are copied one by one, because they may have just been written one by one. A wider read of them
/// would cause a store-forwarding stall.
#[inline(always)]
fn fill(to: &mut [MaybeUninit<u64>], from: &[u64]) {
    let few = from.len() <= WORD_BY_WORD;
    for (to, from) in to.iter_mut().zip(from) {
        to.write(match few {
            // SAFETY: this is a valid word. Volatile: the compiler must not merge these reads into wider ones.
            true => unsafe { (&raw const *from).read_volatile() },
            false => *from,
        });
    }
}

/// A term that refers to the item that begins at this word.
#[inline(always)]
fn refer(word: &MaybeUninit<u64>, tag: u64) -> Term {
    Term((&raw const *word).addr() as u64 | tag)
}
