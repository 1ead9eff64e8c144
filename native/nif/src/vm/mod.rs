//! Terms and environments of the VM as this crate uses them: thin, inlined wrappers of `erl_nif`.
//!
//! A [`Term`] is a word of the VM. If its two lowest bits are 11, it is an *immediate*: a small integer, an atom, `[]`,
//! a local pid or port. An immediate means the same in every environment for ever, and may be stored.
//! [`crate::entry::load`] checks that. Any other word is given back to `erl_nif` within the environment that it came
//! from, or is read in place ([`crate::layout`]).
//!
//! Source: `erl_nif` of Erlang/OTP, version 2.16. `enif_term_type` is never called: it ends the VM on a native record.

pub mod atoms;
pub mod external;
mod memory;
pub mod monitor;
pub mod resource;

use crate::layout;
use crate::layout::binary;
use rustler::sys::*;
use std::marker::PhantomData;
use std::mem::{transmute, MaybeUninit};

/// A word of the VM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct Term(pub u64);

const _: () = assert!(size_of::<Term>() == size_of::<ErlNifTerm>());

/// The environment of a native call, or of a batch of held terms.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Env<'a> {
    raw: *mut ErlNifEnv,
    call: PhantomData<&'a ()>,
}

/// The bits of an immediate.
const TAG: u64 = 3;
/// The bits of a small integer, and their number.
const INTEGER: u64 = 0xf;
const INTEGER_BITS: u32 = 4;
/// The length of a time slice, in nanoseconds, as [`account`](Env::account) counts it.
const TURN_NS: usize = 200_000;

impl Term {
    #[inline]
    pub fn raw(self) -> ErlNifTerm {
        // SAFETY: both are transparent over a word.
        unsafe { transmute(self.0) }
    }

    #[inline]
    pub fn from_raw(raw: ErlNifTerm) -> Self {
        // SAFETY: both are transparent over a word.
        unsafe { transmute(raw) }
    }

    /// Whether the word is an immediate.
    #[inline]
    pub fn is_immediate(self) -> bool {
        self.0 & TAG == TAG
    }

    /// The value of a small integer. It has at most 60 bits.
    #[inline]
    pub fn small_integer(self) -> Option<i64> {
        (self.0 & INTEGER == INTEGER).then_some(self.0 as i64 >> INTEGER_BITS)
    }

    /// The small integer of this byte.
    #[inline]
    pub fn byte(value: u8) -> Self {
        Self::small(value.into())
    }

    /// The small integer of this value of at most 59 bits.
    #[inline]
    pub fn small(value: u64) -> Self {
        debug_assert!(value >> 59 == 0);
        Self(value << INTEGER_BITS | INTEGER)
    }

    /// Prefetches the memory that the term refers to, if it refers to any.
    #[inline]
    pub fn prefetch(self) {
        cats_sync::prefetch(self.0 as *const u64);
    }

    /// The pid of a local process, as `erl_nif` takes it. The term must be such a pid.
    #[inline]
    pub fn as_local_pid(self) -> ErlNifPid {
        const { assert!(size_of::<ErlNifPid>() == size_of::<Term>()) };
        // SAFETY: to `erl_nif`, it is a structure of this one word.
        unsafe { transmute(self.0) }
    }

    /// The terms as words.
    #[inline]
    pub fn words(terms: &[Term]) -> &[u64] {
        // SAFETY: Term is transparent over u64.
        unsafe { transmute(terms) }
    }

    /// The words as terms.
    #[inline]
    pub fn slice(words: &[u64]) -> &[Term] {
        // SAFETY: Term is transparent over u64.
        unsafe { transmute(words) }
    }
}

impl<'a> Env<'a> {
    /// # Safety
    /// `raw` is an environment that this thread may use during `'a`.
    #[inline]
    pub unsafe fn new(raw: *mut ErlNifEnv) -> Self {
        Self { raw, call: PhantomData }
    }

    #[inline]
    pub fn raw(self) -> *mut ErlNifEnv {
        self.raw
    }

    /// An atom of at most 255 Latin-1 characters.
    pub fn atom(self, name: &str) -> Term {
        // SAFETY: the name's address and length are those of a live string; the VM copies it.
        Term::from_raw(unsafe { enif_make_atom_len(self.raw, name.as_ptr().cast(), name.len()) })
    }

    #[inline]
    pub fn integer(self, value: i64) -> Term {
        match cats_term::small(value) {
            Some(word) => Term(word),
            None => self.make_integer(value),
        }
    }

    /// [`integer`](Self::integer), made by the VM whatever the value.
    pub fn make_integer(self, value: i64) -> Term {
        // SAFETY: the environment is alive, as `new` requires. The same is true of all calls below.
        Term::from_raw(unsafe { enif_make_int64(self.raw, value) })
    }

    #[inline]
    pub fn unsigned(self, value: u64) -> Term {
        if let Some(word) = i64::try_from(value).ok().and_then(cats_term::small) {
            return Term(word);
        }
        // SAFETY: as in `integer`.
        Term::from_raw(unsafe { enif_make_uint64(self.raw, value) })
    }

    /// A float; `value` is finite.
    #[inline]
    pub fn float(self, value: f64) -> Term {
        debug_assert!(value.is_finite());
        // SAFETY: as in `integer`. For infinities and NaN the VM raises badarg; callers never pass those.
        Term::from_raw(unsafe { enif_make_double(self.raw, value) })
    }

    /// A binary with a copy of these bytes.
    #[inline]
    pub fn binary(self, bytes: &[u8]) -> Term {
        let mut term = MaybeUninit::uninit();
        // SAFETY: the VM returns memory for the bytes of a new binary that nobody else sees yet.
        unsafe {
            let data = enif_make_new_binary(self.raw, bytes.len(), term.as_mut_ptr());
            data.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            Term::from_raw(term.assume_init())
        }
    }

    /// A tuple of these terms, which are immediates or belong to this environment.
    #[inline(always)]
    pub fn tuple(self, elements: &[Term]) -> Term {
        if layout::is_known() {
            // SAFETY: the terms are immediates or belong to the environment.
            if let Some(term) = unsafe { layout::make_tuple(self, elements) } {
                return term;
            }
        }
        self.tuple_from(elements)
    }

    /// A tuple of these immediates. They need not be in memory.
    #[inline(always)]
    pub fn tuple_of<const N: usize>(self, words: [u64; N]) -> Term {
        if layout::is_known() {
            // SAFETY: immediates are terms of every environment.
            if let Some(term) = unsafe { layout::make_tuple_of(self, words) } {
                return term;
            }
        }
        self.tuple_from(Term::slice(&words))
    }

    /// As [`tuple`](Self::tuple), but the VM makes it.
    #[cold]
    pub fn tuple_from(self, elements: &[Term]) -> Term {
        // SAFETY: the elements' address and number are those of a live slice.
        Term::from_raw(unsafe {
            enif_make_tuple_from_array(self.raw, elements.as_ptr().cast(), elements.len() as c_uint)
        })
    }

    /// A proper list of these terms.
    #[inline]
    pub fn list(self, elements: &[Term]) -> Term {
        // A few cells are made faster one by one.
        if elements.len() <= 8 {
            return elements
                .iter()
                .rfold(Term(cats_term::NIL), |tail, head| self.cons(*head, tail));
        }
        // SAFETY: as in `tuple`.
        Term::from_raw(unsafe {
            enif_make_list_from_array(self.raw, elements.as_ptr().cast(), elements.len() as c_uint)
        })
    }

    /// The cell `[head | tail]`.
    #[inline]
    pub fn cons(self, head: Term, tail: Term) -> Term {
        if layout::is_known() {
            // SAFETY: as in `tuple`.
            if let Some(term) = unsafe { layout::make_cell(self, head, tail) } {
                return term;
            }
        }
        // SAFETY: as in `integer`.
        Term::from_raw(unsafe { enif_make_list_cell(self.raw, head.raw(), tail.raw()) })
    }

    /// A map of these pairs; nothing if a key occurs twice.
    #[inline]
    pub fn map(self, keys: &[Term], values: &[Term]) -> Option<Term> {
        assert_eq!(keys.len(), values.len());
        let mut map = MaybeUninit::uninit();
        // SAFETY: the addresses and numbers are those of live slices; the map is written when the call succeeds.
        unsafe {
            let made = enif_make_map_from_arrays(
                self.raw,
                keys.as_ptr().cast(),
                values.as_ptr().cast(),
                keys.len(),
                map.as_mut_ptr(),
            );
            (made != 0).then(|| Term::from_raw(map.assume_init()))
        }
    }

    /// Calls `pass` with each pair of a map, in the order of the VM's iteration. Nothing if the VM has no memory for
    /// that.
    #[inline]
    pub fn each_pair(self, map: Term, pairs: usize, mut pass: impl FnMut(Term, Term)) -> Option<()> {
        let mut iterator = MaybeUninit::uninit();
        // SAFETY: the term is a map; a pair is written where there is one; the iterator is destroyed in the end.
        unsafe {
            let head = ErlNifMapIteratorEntry::ERL_NIF_MAP_ITERATOR_HEAD;
            if enif_map_iterator_create(self.raw, map.raw(), iterator.as_mut_ptr(), head) == 0 {
                return None;
            }
            for _ in 0..pairs {
                let (mut key, mut value) = (MaybeUninit::uninit(), MaybeUninit::uninit());
                let iterator = iterator.as_mut_ptr();
                let met = enif_map_iterator_get_pair(self.raw, iterator, key.as_mut_ptr(), value.as_mut_ptr());
                assert!(met != 0, "a map has as many pairs as its size");
                pass(Term::from_raw(key.assume_init()), Term::from_raw(value.assume_init()));
                enif_map_iterator_next(self.raw, iterator);
            }
            enif_map_iterator_destroy(self.raw, iterator.as_mut_ptr());
        }
        Some(())
    }

    /// The map with this pair added, or with this value for a key that it has.
    pub fn map_put(self, map: Term, key: Term, value: Term) -> Term {
        let mut out = MaybeUninit::uninit();
        // SAFETY: the term is a map. So the call succeeds and writes the new map.
        unsafe {
            let made = enif_make_map_put(self.raw, map.raw(), key.raw(), value.raw(), out.as_mut_ptr());
            assert!(made != 0, "the term is a map");
            Term::from_raw(out.assume_init())
        }
    }

    /// A copy in this environment of a term of any environment.
    ///
    /// # Safety
    /// The term's environment is alive, and is not freed during the call.
    #[inline]
    pub unsafe fn copy(self, term: Term) -> Term {
        // SAFETY: the caller keeps the term alive.
        Term::from_raw(unsafe { enif_make_copy(self.raw, term.raw()) })
    }

    /// The elements of a tuple, in place.
    #[inline]
    pub fn tuple_elements(self, term: Term) -> Option<&'a [Term]> {
        if layout::is_known() {
            // SAFETY: a term of the environment lives as long as the environment.
            return unsafe { layout::tuple(term) };
        }
        let mut arity = 0;
        let mut elements = std::ptr::null();
        // SAFETY: both results are written when the call succeeds; the elements stay while the environment does, and are
        // never changed.
        unsafe {
            if enif_get_tuple(self.raw, term.raw(), &mut arity, &mut elements) == 0 {
                return None;
            }
            if arity == 0 {
                return Some(&[]);
            }
            Some(std::slice::from_raw_parts(elements.cast(), arity as usize))
        }
    }

    /// The head and the tail of a non-empty list.
    #[inline]
    pub fn cell(self, term: Term) -> Option<(Term, Term)> {
        if layout::is_known() {
            // SAFETY: as in `tuple_elements`.
            return unsafe { layout::cell(term) };
        }
        let (mut head, mut tail) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: both results are written when the call succeeds.
        unsafe {
            if enif_get_list_cell(self.raw, term.raw(), head.as_mut_ptr(), tail.as_mut_ptr()) == 0 {
                return None;
            }
            Some((Term::from_raw(head.assume_init()), Term::from_raw(tail.assume_init())))
        }
    }

    #[inline]
    pub fn get_i64(self, term: Term) -> Option<i64> {
        if let Some(value) = term.small_integer() {
            return Some(value);
        }
        let mut value = 0;
        // SAFETY: as in `integer`.
        (unsafe { enif_get_int64(self.raw, term.raw(), &mut value) } != 0).then_some(value)
    }

    #[inline]
    pub fn get_u64(self, term: Term) -> Option<u64> {
        let mut value = 0;
        // SAFETY: as in `integer`.
        (unsafe { enif_get_uint64(self.raw, term.raw(), &mut value) } != 0).then_some(value)
    }

    #[inline]
    pub fn get_f64(self, term: Term) -> Option<f64> {
        if layout::is_known() {
            // SAFETY: as in `tuple_elements`.
            return unsafe { layout::float(term) };
        }
        let mut value = 0.0;
        // SAFETY: as in `integer`.
        (unsafe { enif_get_double(self.raw, term.raw(), &mut value) } != 0).then_some(value)
    }

    /// The bytes of a binary inside a heap, which are few. Nothing for other terms, or if the layout is not known.
    #[inline]
    pub fn heap_binary(self, term: Term) -> Option<&'a [u8]> {
        // SAFETY: as in `tuple_elements`.
        layout::is_known()
            .then(|| unsafe { layout::heap_binary(term) })
            .flatten()
    }

    /// The bytes of a binary, in place.
    #[inline]
    pub fn binary_bytes(self, term: Term) -> Option<&'a [u8]> {
        if let Some(bytes) = self.heap_binary(term) {
            return Some(bytes);
        }
        if let Some((_, bytes)) = self.counted_binary(term) {
            return Some(bytes);
        }
        self.inspected_binary(term)
    }

    /// As [`binary_bytes`](Self::binary_bytes), but the VM is asked.
    pub fn inspected_binary(self, term: Term) -> Option<&'a [u8]> {
        let mut binary = MaybeUninit::<ErlNifBinary>::uninit();
        // SAFETY: the result is written when the call succeeds; the bytes stay while the environment does.
        unsafe {
            if enif_inspect_binary(self.raw, term.raw(), binary.as_mut_ptr()) == 0 {
                return None;
            }
            let binary = binary.assume_init();
            if binary.size == 0 {
                return Some(&[]);
            }
            Some(std::slice::from_raw_parts(binary.data, binary.size))
        }
    }

    /// The record and the bytes of a binary whose references can be counted.
    #[inline]
    pub fn counted_binary(self, term: Term) -> Option<(u64, &'a [u8])> {
        // SAFETY: as in `tuple_elements`.
        unsafe { binary::read(term) }
    }

    #[inline]
    pub fn is_atom(self, term: Term) -> bool {
        // SAFETY: as in `integer`. The same is true of the tests below.
        term.is_immediate() && unsafe { enif_is_atom(self.raw, term.raw()) } != 0
    }

    #[inline]
    pub fn is_number(self, term: Term) -> bool {
        // SAFETY: as in `is_atom`.
        unsafe { enif_is_number(self.raw, term.raw()) != 0 }
    }

    /// The number of pairs of a map.
    #[inline]
    pub fn map_size(self, term: Term) -> Option<usize> {
        let mut size = 0;
        // SAFETY: the size is written when the call succeeds.
        (unsafe { enif_get_map_size(self.raw, term.raw(), &mut size) } != 0).then_some(size)
    }

    #[inline]
    pub fn is_list(self, term: Term) -> bool {
        // SAFETY: as in `is_atom`.
        unsafe { enif_is_list(self.raw, term.raw()) != 0 }
    }

    #[inline]
    pub fn is_reference(self, term: Term) -> bool {
        // SAFETY: as in `is_atom`.
        unsafe { enif_is_ref(self.raw, term.raw()) != 0 }
    }

    /// A new reference, different from all others.
    pub fn new_reference(self) -> Term {
        // SAFETY: as in `integer`.
        Term::from_raw(unsafe { enif_make_ref(self.raw) })
    }

    /// The words of a plain reference or an alias, as the VM has them. Nothing for other terms.
    #[inline]
    pub fn plain_reference(self, term: Term) -> Option<&'a [u64]> {
        // SAFETY: as in `tuple_elements`.
        layout::is_known().then(|| unsafe { layout::reference(term) }).flatten()
    }

    /// A copy of a reference that [`plain_reference`](Self::plain_reference) gave.
    #[inline]
    pub fn reference(self, words: &[u64]) -> Term {
        if layout::is_known() {
            // SAFETY: the words of such a reference refer to nothing.
            if let Some(term) = unsafe { layout::make_like(self, words) } {
                return term;
            }
        }
        // SAFETY: the words are those of a term.
        unsafe { self.copy(Term(cats_term::vm_word_at(words))) }
    }

    /// The calling process.
    #[inline]
    pub fn this_process(self) -> Term {
        // SAFETY: the environment is a process' own.
        unsafe { layout::process(self) }.unwrap_or_else(|| self.ask_for_process())
    }

    /// As [`this_process`](Self::this_process), from the VM.
    #[inline(never)]
    pub fn ask_for_process(self) -> Term {
        let mut pid = MaybeUninit::<ErlNifPid>::uninit();
        // SAFETY: the environment is a process's own, so the pid is written.
        unsafe {
            enif_self(self.raw, pid.as_mut_ptr());
            Term::from_raw(enif_make_pid(self.raw, pid.assume_init()))
        }
    }

    /// The pid of a local process, as `erl_nif` takes it.
    #[inline]
    pub fn local_pid(self, term: Term) -> Option<ErlNifPid> {
        let mut pid = MaybeUninit::uninit();
        // SAFETY: the pid is written when the call succeeds.
        unsafe { (enif_get_local_pid(self.raw, term.raw(), pid.as_mut_ptr()) != 0).then(|| pid.assume_init()) }
    }

    /// Reports to the scheduler how many nanoseconds this call takes. So the time slice of its process ends after a
    /// fifth of a millisecond, which is one slice of a long call. A call of less than 2.5 µs is not reported.
    #[inline]
    pub fn account(self, nanoseconds: usize) {
        let percent = nanoseconds / (TURN_NS / 100);
        if percent > 0 {
            // SAFETY: as in `integer`.
            unsafe { enif_consume_timeslice(self.raw, percent.min(100) as c_int) };
        }
    }
}

/// Whether this thread is a dirty scheduler, where a call may take long.
pub fn on_dirty_scheduler() -> bool {
    // SAFETY: no precondition.
    let kind = unsafe { enif_thread_type() };
    matches!(kind, ERL_NIF_THR_DIRTY_CPU_SCHEDULER | ERL_NIF_THR_DIRTY_IO_SCHEDULER)
}

/// Whether this thread is a scheduler that must not be held for long.
pub fn on_scheduler() -> bool {
    // SAFETY: no precondition.
    unsafe { enif_thread_type() == ERL_NIF_THR_NORMAL_SCHEDULER }
}

/// Whether two terms are exactly equal (`=:=`).
pub fn identical(a: Term, b: Term) -> bool {
    // SAFETY: no precondition on two terms.
    unsafe { enif_is_identical(a.raw(), b.raw()) != 0 }
}
