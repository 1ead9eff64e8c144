//! Funs that are not held.
//!
//! | release | a local fun | an external fun |
//! |---|---|---|
//! | OTP 25 | header, address of an entry of the VM's table of funs, link, arity, number of terms, creator, terms | the same, without references |
//! | OTP 29 | header with the arity and the number of terms, address of the entry, terms | header, address |
//!
//! Since OTP 29 nobody counts the references to an entry, and no entry is ever freed. So a fun is stored like a tuple. In OTP 25 an entry
//! counts its references. A fun of immediates is stored with a counted reference of its own, as a binary outside the heaps is. It gets a
//! header as in OTP 29. In both releases external funs refer to what is never freed.
//!
//! `erl_nif` says nothing about funs. As in [`layout`](crate::layout), [`learn`] checks all this on examples. Other funs are held terms
//! ([`held`](crate::held)).

use super::{address, boxed, header, BOXED};
use crate::encode::immediates;
use crate::vm::{external, Env, Term};
use cats_sync::facade::{AtomicU64, AtomicUsize, Ordering};
use cats_term::{CountedFun, Fun, FUN_RECORD, NIL};
use rustler::sys::{enif_alloc_env, enif_binary_to_term, enif_free_env};
use smallvec::SmallVec;
use std::mem::MaybeUninit;
use std::slice::from_raw_parts;

/// How funs look.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
enum Form {
    Unknown,
    /// In OTP 25: an [`Earlier`].
    Earlier,
    /// Since OTP 29.
    Plain,
}

/// The [`Form`] of the funs that are read. Accesses are relaxed, as for everything in this file but the count of references: it is written
/// before the first table is made.
static FORM: AtomicU64 = AtomicU64::new(Form::Unknown as u64);
/// The word in place of the creator of an [`Earlier`] fun that is external.
static EXTERNAL_CREATOR: AtomicU64 = AtomicU64::new(NIL);
/// The offset of the count of references in an entry.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The major versions of the runtime systems of OTP 25 and 29.
const EARLIER_RELEASE: u32 = 13;
const FIRST_PLAIN_RELEASE: u32 = 17;

/// A header is the kind, the arity from bit 8 on, the number of terms from bit 16 on, and a bit for external funs. The other bits are 0.
const KIND: u64 = 0x14;
const ARITY_SHIFT: u32 = 8;
const TERMS_SHIFT: u32 = 16;
const EXTERNAL: u64 = 1 << 24;
const BYTE: u64 = 0xff;
const REST: u64 = !(BYTE << ARITY_SHIFT | BYTE << TERMS_SHIFT | EXTERNAL);

/// A fun in OTP 25. The terms of the environment follow.
#[repr(C)]
#[derive(Clone, Copy)]
struct Earlier {
    header: u64,
    entry: u64,
    _next: u64,
    arity: u8,
    terms: u8,
    _rest: [u8; 6],
    creator: Term,
}

const EARLIER_HEADER: u64 = header(KIND, 3);
const EARLIER_WORDS: usize = size_of::<Earlier>() / size_of::<u64>();
/// The most terms in the environment of a fun that is counted.
const MOST_TERMS: u8 = 16;
/// The words of an entry that are looked at for its count.
const ENTRY_WORDS: usize = 12;

/// The [words](Fun::words) of a fun, and the terms of its environment. Nothing for other terms, and for funs whose references are counted.
///
/// # Safety
/// As for [`boxed`]; it lives for `'a`.
#[inline(always)]
pub unsafe fn read<'a>(term: Term) -> Option<([u64; 2], &'a [Term])> {
    let form = FORM.load(Ordering::Relaxed);
    // SAFETY: as the caller promises; funs have this form.
    unsafe {
        if form == Form::Plain as u64 {
            read_plain(term)
        } else if form == Form::Earlier as u64 {
            let fun = earlier(term)?;
            fun.is_external()
                .then(|| ([fun.normalized() | EXTERNAL, fun.entry], &[][..]))
        } else {
            None
        }
    }
}

/// All words of a fun whose environment has immediates only. Nothing for other terms, or if funs are not plain terms.
///
/// # Safety
/// As for [`boxed`]; it lives for `'a`.
#[inline(always)]
pub unsafe fn of_immediates<'a>(term: Term) -> Option<&'a [u64]> {
    if FORM.load(Ordering::Relaxed) != Form::Plain as u64 {
        return None;
    }
    // SAFETY: as the caller promises; the terms follow the other words.
    unsafe {
        let (words, terms) = read_plain(term)?;
        immediates(terms).map(|_| from_raw_parts(address(term), words.len() + terms.len()))
    }
}

/// A local fun of few immediates, if references to funs are counted. Nothing if another node has created it, as such a creator is no immediate.
///
/// # Safety
/// As for [`boxed`]; it lives for `'a`.
#[inline]
pub unsafe fn counted<'a>(term: Term) -> Option<CountedFun<'a>> {
    // SAFETY: as the caller promises.
    let fun = unsafe { by_anyone(term) }?;
    Term(fun.creator()).is_immediate().then_some(fun)
}

/// As [`counted`], whoever has created it. Creators do not tell funs apart.
///
/// # Safety
/// As for [`boxed`]; it lives for `'a`.
#[inline]
pub unsafe fn by_anyone<'a>(term: Term) -> Option<CountedFun<'a>> {
    if FORM.load(Ordering::Relaxed) != Form::Earlier as u64 {
        return None;
    }
    // SAFETY: as the caller promises, and funs have this form. The term has a counted reference.
    unsafe {
        let fun = earlier(term)?;
        if fun.is_external() || fun.terms > MOST_TERMS {
            return None;
        }
        let env = from_raw_parts(address(term).add(EARLIER_WORDS).cast(), fun.terms.into());
        let record = fun.entry | FUN_RECORD;
        Some(CountedFun::new(
            record,
            fun.normalized(),
            fun.creator.0,
            immediates(env)?,
        ))
    }
}

/// The terms of a fun's environment. Nothing for other terms, or if the layout of funs is not known.
///
/// # Safety
/// As for [`boxed`]; it lives for `'a`.
pub unsafe fn environment<'a>(term: Term) -> Option<&'a [Term]> {
    let form = FORM.load(Ordering::Relaxed);
    // SAFETY: as the caller promises, and funs have this form.
    unsafe {
        if form == Form::Plain as u64 {
            read_plain(term).map(|(_, terms)| terms)
        } else if form == Form::Earlier as u64 {
            let fun = earlier(term)?;
            Some(match fun.is_external() {
                true => &[],
                false => from_raw_parts(address(term).add(EARLIER_WORDS).cast(), fun.terms.into()),
            })
        } else {
            None
        }
    }
}

/// Whether the words of stored funs are laid out as they are. Otherwise [`make`] makes funs.
#[inline(always)]
pub fn is_laid_out() -> bool {
    FORM.load(Ordering::Relaxed) == Form::Plain as u64
}

/// Makes a fun with an environment of these terms.
///
/// # Safety
/// The terms belong to the environment. If the fun is counted, somebody owns a reference to it.
pub unsafe fn make(env: Env, fun: Fun<'_>, terms: &[Term]) -> Term {
    let creator = match fun.is_counted() {
        true => fun.creator,
        false => EXTERNAL_CREATOR.load(Ordering::Relaxed),
    };
    let mut words = SmallVec::<[u64; EARLIER_WORDS + MOST_TERMS as usize]>::new();
    match creator {
        NIL => words.extend_from_slice(&fun.words),
        _ => words.extend_from_slice(&earlier_words(fun.words, creator)),
    }
    words.extend_from_slice(Term::words(terms));
    // SAFETY: these are the words of a fun. A copy of it gets a reference of its own.
    unsafe { env.copy(Term(cats_term::vm_word_at(&words))) }
}

/// The words of an [`Earlier`] fun with these [words](Fun::words) and this creator. Its environment is empty, or follows.
#[inline(always)]
fn earlier_words([header, entry]: [u64; 2], creator: u64) -> [u64; EARLIER_WORDS] {
    let numbers = header >> ARITY_SHIFT & (BYTE | BYTE << (TERMS_SHIFT - ARITY_SHIFT));
    [EARLIER_HEADER, entry & !FUN_RECORD, 0, numbers, creator]
}

/// The words of an external fun in OTP 25. Nothing in later releases.
#[inline(always)]
pub fn earlier_external(fun: Fun<'_>) -> Option<[u64; EARLIER_WORDS]> {
    let creator = EXTERNAL_CREATOR.load(Ordering::Relaxed);
    (creator != NIL).then(|| earlier_words(fun.words, creator))
}

/// Counts one more reference ([`cats_term::Host::retain_counted`]).
#[inline]
pub fn retain(record: u64) {
    // SAFETY: the caller's own reference keeps the entry alive.
    // Relaxed: as the VM does. Giving back the last reference is ordered after all other accesses.
    unsafe { count(record).fetch_add(1, Ordering::Relaxed) };
}

/// Gives a counted reference back ([`cats_term::Host::release_counted`]).
pub fn release(record: u64) {
    // SAFETY: the caller's own reference keeps the entry alive.
    let count = unsafe { count(record) };
    // Relaxed: the number alone tells whether this is the last reference.
    let mut references = count.load(Ordering::Relaxed);
    while references > 1 {
        // Release: what was done with the reference is before the VM frees the entry.
        match count.compare_exchange_weak(references, references - 1, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => references = now,
        }
    }
    release_last(record);
}

/// Gives back the last reference, after which the VM frees the entry. It does so for a term in an environment.
#[cold]
fn release_last(record: u64) {
    let words = earlier_words([0, record], NIL);
    // SAFETY: these are the words of a fun. The environment belongs to this thread and is freed once.
    unsafe {
        let env = enif_alloc_env();
        Env::new(env).copy(Term(cats_term::vm_word_at(&words)));
        // Release: as in `release`. The copy has a reference, so this is not the last one.
        count(record).fetch_sub(1, Ordering::Release);
        enif_free_env(env);
    }
}

/// The count of references of a record.
///
/// # Safety
/// Somebody owns a counted reference for `'a`.
#[inline]
unsafe fn count<'a>(record: u64) -> &'a AtomicU64 {
    let at = (record & !FUN_RECORD) as usize + COUNT.load(Ordering::Relaxed);
    // SAFETY: as the caller promises. The VM also accesses that word atomically.
    unsafe { &*(at as *const AtomicU64) }
}

impl Earlier {
    #[inline(always)]
    fn is_external(&self) -> bool {
        self.creator.0 == EXTERNAL_CREATOR.load(Ordering::Relaxed)
    }

    /// The header that such a fun has since OTP 29.
    #[inline(always)]
    fn normalized(&self) -> u64 {
        KIND | u64::from(self.arity) << ARITY_SHIFT | u64::from(self.terms) << TERMS_SHIFT
    }
}

/// # Safety
/// As for [`read`], and funs are as in OTP 25.
#[inline(always)]
unsafe fn earlier(term: Term) -> Option<Earlier> {
    // SAFETY: as the caller promises; such a header begins a fun.
    unsafe {
        let (header, _) = boxed(term)?;
        (header == EARLIER_HEADER).then(|| *address(term).cast())
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

/// Learns the layout of funs from examples.
pub fn learn(env: Env, release: u32) {
    forget();
    let form = match release {
        EARLIER_RELEASE if is_earlier(env) == Some(true) => Form::Earlier,
        FIRST_PLAIN_RELEASE.. if is_plain(env) == Some(true) => Form::Plain,
        _ => Form::Unknown,
    };
    FORM.store(form as u64, Ordering::Relaxed);
}

/// Whether funs are read in place, or are so in no process of this release.
#[cfg(feature = "selftest")]
pub fn is_known(release: u32) -> bool {
    FORM.load(Ordering::Relaxed) != Form::Unknown as u64
        || (EARLIER_RELEASE + 1..FIRST_PLAIN_RELEASE).contains(&release)
}

/// Leaves funs to `erl_nif` until they are learned again. Terms can still be made of funs that are counted already.
pub fn forget() {
    FORM.store(Form::Unknown as u64, Ordering::Relaxed);
}

/// The arity of examples.
const ARITY: u8 = 3;

/// The header of an example with this many terms.
fn normalized(count: u8) -> u64 {
    KIND | u64::from(ARITY) << ARITY_SHIFT | u64::from(count) << TERMS_SHIFT
}

/// Whether funs are what they are expected to be since OTP 29.
fn is_plain(env: Env) -> Option<bool> {
    for count in 0..4 {
        let made = || {
            // SAFETY: the example is alive.
            let (fun, words) = unsafe { copied(env, sample(env, count)) }?;
            // SAFETY: if the header is as expected, and there are that many words, it is a fun of that many terms.
            unsafe { (words == 2 + count as usize).then(|| read_plain(fun))? }
        };
        // The entry is the same one.
        let (first, second) = (made()?, made()?);
        let terms: Vec<_> = (0..count).map(|i| env.integer(i.into())).collect();
        if first != second || first.0[0] != normalized(count) || first.1 != terms {
            return Some(false);
        }
    }
    let external = external_sample(env)?;
    // SAFETY: the example is alive.
    let (copy, words) = unsafe { copied(env, Some(external)) }?;
    // SAFETY: it is alive. If the header is as expected, and there are that many words, it is a fun.
    let read = unsafe { (words == 2).then(|| (read_plain(external), read_plain(copy)))? };
    let is_expected = |fun: Option<([u64; 2], &[Term])>| fun.is_some_and(|fun| fun.0[0] == normalized(0) | EXTERNAL);
    Some(is_expected(read.0) && read.0 == read.1)
}

/// Whether funs are what they are expected to be in OTP 25. Learns where references are counted, and what creates external funs.
fn is_earlier(env: Env) -> Option<bool> {
    let external = external_sample(env)?;
    // SAFETY: the example is alive.
    let (_, words) = unsafe { copied(env, Some(external)) }?;
    if words != EARLIER_WORDS {
        return Some(false);
    }
    // SAFETY: the sample has that many words.
    let external = unsafe { earlier(external) }?;
    let is_expected = external.normalized() == normalized(0) && external.creator.is_immediate();
    EXTERNAL_CREATOR.store(external.creator.0, Ordering::Relaxed);
    let mut offset = None;
    for terms in 0..4 {
        // SAFETY: the example is alive.
        let (fun, words) = unsafe { copied(env, sample(env, terms)) }?;
        if words != EARLIER_WORDS + terms as usize {
            return Some(false);
        }
        // SAFETY: if the header is as expected, and there are that many words, it is a fun of that many terms. Entries are that long.
        let (read, before, between) = unsafe {
            let read = earlier(fun)?;
            let before = entry_words(read.entry);
            let other = enif_alloc_env();
            Env::new(other).copy(fun);
            let between = entry_words(read.entry);
            enif_free_env(other);
            (read, before, between)
        };
        let mut changed = (0..ENTRY_WORDS).filter(|&i| before[i] != between[i]);
        let count = changed.next()?;
        // Earlier examples may have references too.
        let references = before[count];
        let is_count = changed.next().is_none() && references > 0 && between[count] == references + 1;
        if !is_count || *offset.get_or_insert(count) != count || read.normalized() != normalized(terms) {
            return Some(false);
        }
        COUNT.store(size_of::<u64>() * count, Ordering::Relaxed);
        let record = read.entry | FUN_RECORD;
        retain(record);
        retain(record);
        let retained = entry_words(read.entry)[count];
        release(record);
        release_last(record);
        let released = entry_words(read.entry)[count];
        if (retained, released) != (references + 2, references) || read.creator != env.this_process() {
            return Some(false);
        }
    }
    Some(is_expected)
}

/// The first words of an entry.
fn entry_words(entry: u64) -> [u64; ENTRY_WORDS] {
    // SAFETY: entries are that long. Volatile: the VM changes them.
    unsafe { (entry as *const [u64; ENTRY_WORDS]).read_volatile() }
}

/// More words than an example has.
const MOST_WORDS: usize = 64;

/// A copy of an example and the number of its words, if it is where the environment says that its next term goes. The example itself need
/// not be there: the VM reads the external format into the process' own heap, if that has room.
///
/// # Safety
/// The example is alive.
unsafe fn copied(env: Env, example: Option<Term>) -> Option<(Term, usize)> {
    let example = example?;
    // SAFETY: the layout of environments is known, and there is free memory behind that place. The example is alive.
    let (begin, copy, end) = unsafe {
        let begin = super::room(env, super::next(env), MOST_WORDS);
        super::set_next(env, begin);
        (begin.addr().get(), env.copy(example), super::next(env).addr().get())
    };
    let is_next = copy.0 & !super::MARKS == begin as u64 && copy.0 & super::TAG == BOXED;
    is_next.then_some((copy, end.checked_sub(begin)? / size_of::<u64>()))
}

const VERSION: u8 = 131;
const NEW_FUN_EXT: u8 = 112;
const EXPORT_EXT: u8 = 113;
const SMALL_ATOM_UTF8_EXT: u8 = 119;
const SMALL_INTEGER_EXT: u8 = 97;

fn atom(name: &[u8]) -> Vec<u8> {
    [&[SMALL_ATOM_UTF8_EXT, name.len() as u8], name].concat()
}

fn integer(value: u8) -> Vec<u8> {
    vec![SMALL_INTEGER_EXT, value]
}

/// A fun of this many integers that this process has created. Its module does not exist.
fn sample(env: Env, count: u8) -> Option<Term> {
    let creator = external::of(env, env.this_process())?;
    let body = [
        vec![ARITY],
        vec![0; 16 + 4],
        u32::from(count).to_be_bytes().to_vec(),
        atom(b"cats no module"),
        [integer(0), integer(0)].concat(),
        // Without the version.
        creator[1..].to_vec(),
        (0..count).flat_map(integer).collect(),
    ]
    .concat();
    let size = (body.len() as u32 + 4).to_be_bytes();
    decoded(env, &[&[VERSION, NEW_FUN_EXT], &size[..], &body].concat())
}

/// An external fun.
fn external_sample(env: Env) -> Option<Term> {
    let parts = [
        vec![VERSION, EXPORT_EXT],
        atom(b"erlang"),
        atom(b"apply"),
        integer(ARITY),
    ];
    decoded(env, &parts.concat())
}

/// The term of which this is the external format.
fn decoded(env: Env, external: &[u8]) -> Option<Term> {
    let mut term = MaybeUninit::uninit();
    // SAFETY: the term is written when the call succeeds.
    unsafe {
        let bytes = external.as_ptr().cast_mut();
        let read = enif_binary_to_term(env.raw(), bytes, external.len(), term.as_mut_ptr(), 0);
        (read != 0).then(|| Term::from_raw(term.assume_init()))
    }
}
