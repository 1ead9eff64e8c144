//! Native functions for the tests of this crate.

use crate::encode::callers_key::Callers;
use crate::entry::failure::{bad, no_memory, Failure};
use crate::layout::{binary, fun};
use crate::vm::atoms;
use crate::vm::monitor;
use crate::vm::resource::{Kind, Value};
use crate::vm::{Env, Term};
use crate::{decode, encode, held, layout};
use cats_sync::epoch;
use cats_sync::facade::{AtomicPtr, Ordering};
use cats_sync::slab;
use cats_table::CallersKey;
use cats_term::{Block, BlockRef, Builder};
use std::cell::RefCell;
use std::ffi::CStr;
use std::ptr::{null_mut, NonNull};

thread_local! {
    static BUILDER: RefCell<Builder<'static>> = const { RefCell::new(Builder::new()) };
}

/// A block that Erlang holds.
pub struct Kept(AtomicPtr<u64>);

impl Value for Kept {
    const NAME: &'static CStr = c"test";
}

pub static KEPT: Kind<Kept> = Kind::new();

impl Kept {
    fn retire(&self) -> bool {
        // AcqRel: a thread that takes the address sees the block.
        let address = self.0.swap(null_mut(), Ordering::AcqRel);
        if address.is_null() {
            return false;
        }
        // SAFETY: the block is unlinked, and only once. Readers have guards.
        unsafe { epoch::pin().retire(address.cast(), 0, Block::free) };
        true
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.retire();
    }
}

fn store(env: Env, term: Term) -> Result<Block, Failure> {
    BUILDER.with_borrow_mut(|builder| {
        encode::key(env, term, builder)?;
        builder.finish().ok_or_else(no_memory)
    })
}

/// Encodes and decodes the term. Fails if the fast path stores it differently than a builder.
pub fn roundtrip(env: Env, &[term]: &[Term; 1]) -> Result<Term, Failure> {
    let block = match encode::immediates(&[term]) {
        Some(words) => Block::flat(words, &epoch::pin()).ok_or_else(no_memory)?,
        None => {
            let block = store(env, term)?;
            let is_known = layout::is_known();
            // SAFETY: the layout of terms is known, and this term belongs to the environment.
            let fast = is_known.then(|| unsafe { encode::fast::object(env, &[term], &epoch::pin()) });
            match fast.flatten() {
                Some(fast) if fast.as_ref().as_words() != block.as_ref().as_words() => {
                    return Err(Failure::Bad(atoms::none()));
                }
                _ => block,
            }
        }
    };
    let tuple = decode::object(env, block.as_ref())?;
    Ok(encode::tuple(env, tuple)?[0])
}

/// Whether terms, including binaries outside the heaps and funs, are read and made in place. With `true`, their layout is
/// learned first. With `false`, it is forgotten, and the VM is asked instead until the next call.
pub fn layout(env: Env, &[learned]: &[Term; 1]) -> Result<Term, Failure> {
    match learned == atoms::true_() {
        true => layout::learn(env),
        false => layout::forget(),
    }
    let are_funs_known = layout::release().is_some_and(fun::is_known);
    Ok(atoms::boolean(
        layout::is_known() && binary::is_known() && are_funs_known,
    ))
}

/// Whether resources are read in place too. That begins soon after terms are learned.
pub fn layout_of_resources(_: Env, _: &[Term; 0]) -> Result<Term, Failure> {
    Ok(atoms::boolean(layout::knows_resources()))
}

/// Stores an object and frees it again.
pub fn store_and_free(env: Env, &[term]: &[Term; 1]) -> Result<Term, Failure> {
    let elements = encode::tuple(env, term)?;
    let block = match encode::immediates(elements) {
        Some(words) => Block::flat(words, &epoch::pin()).ok_or_else(no_memory)?,
        None => BUILDER.with_borrow_mut(|builder| {
            encode::object(env, elements, builder)?;
            builder.finish().ok_or_else(no_memory)
        })?,
    };
    drop(block);
    Ok(atoms::true_())
}

fn with_two<R>(env: Env, terms: &[Term; 2], ask: impl Fn(&Builder, &Builder) -> R) -> Result<R, Failure> {
    let (mut a, mut b) = (Builder::new(), Builder::new());
    encode::key(env, terms[0], &mut a)?;
    encode::key(env, terms[1], &mut b)?;
    Ok(ask(&a, &b))
}

/// -1, 0 or 1.
pub fn compare(env: Env, terms: &[Term; 2]) -> Result<Term, Failure> {
    let order = with_two(env, terms, |a, b| cats_term::compare(a.as_key(), b.as_key()))?;
    Ok(env.integer(order as i64))
}

/// Whether the terms are exactly the same. Fails if a search by the second one, where the caller has it, goes wrong. Then its hash is not
/// that of its stored form, or it does not compare as its stored form does.
pub fn equal(env: Env, terms: &[Term; 2]) -> Result<Term, Failure> {
    with_two(env, terms, |a, b| {
        let equal = cats_term::equal(a.as_key(), b.as_key());
        let key = Callers::new(env, terms[1]);
        let is_known = layout::is_known() && !terms[1].is_immediate();
        // SAFETY: the layout of terms is known, and this term belongs to the environment.
        let is_right = match is_known.then(|| unsafe { key.word() }).flatten() {
            Some(word) => word == cats_term::key_word(b.as_key()) && key.is(a.as_key()) == equal,
            None => true,
        };
        is_right.then(|| atoms::boolean(equal)).ok_or_else(bad)
    })?
}

/// The beginning of the term's normalized key.
pub fn normalized_key(env: Env, &[term]: &[Term; 1]) -> Result<Term, Failure> {
    let mut builder = Builder::new();
    encode::key(env, term, &mut builder)?;
    let mut bytes = Vec::new();
    cats_term::normalize(builder.as_key(), &mut bytes, 100);
    Ok(env.binary(&bytes))
}

/// The hash of the exact term, and that of its value.
pub fn hash(env: Env, &[term]: &[Term; 1]) -> Result<Term, Failure> {
    let mut builder = Builder::new();
    encode::key(env, term, &mut builder)?;
    let key = builder.as_key();
    Ok(env.tuple(&[
        env.unsigned(cats_term::hash(key)),
        env.unsigned(cats_term::hash_ordered(key)),
    ]))
}

/// A reference to a stored term.
pub fn keep(env: Env, &[term]: &[Term; 1]) -> Result<Term, Failure> {
    let block = store(env, term)?;
    Ok(KEPT.make(env, Kept(AtomicPtr::new(block.into_raw().as_ptr()))))
}

/// The term of a reference; `undefined` once it was dropped.
pub fn kept(env: Env, &[reference]: &[Term; 1]) -> Result<Term, Failure> {
    let kept = KEPT.get(env, reference).ok_or(Failure::Bad(atoms::none()))?;
    let _guard = epoch::pin();
    // Acquire: a thread that sees the address sees the block.
    match NonNull::new(kept.0.load(Ordering::Acquire)) {
        // SAFETY: the block lives as long as the guard.
        Some(address) => decode::term(env, unsafe { BlockRef::from_raw(address) }.element(0)),
        None => Ok(atoms::undefined()),
    }
}

/// Frees the block of a reference.
pub fn drop_kept(env: Env, &[reference]: &[Term; 1]) -> Result<Term, Failure> {
    let kept = KEPT.get(env, reference).ok_or(Failure::Bad(atoms::none()))?;
    Ok(atoms::boolean(kept.retire()))
}

/// The number of batches of held terms.
pub fn batches(env: Env, _: &[Term; 0]) -> Result<Term, Failure> {
    Ok(env.unsigned(held::batches() as u64))
}

/// Frees retired memory, and the dead terms of batches.
pub fn collect(env: Env, _: &[Term; 0]) -> Result<Term, Failure> {
    held::sweep();
    Ok(if epoch::collect(1000) {
        env.atom("more")
    } else {
        env.atom("idle")
    })
}

/// Panics.
pub fn panic(_: Env, _: &[Term; 0]) -> Result<Term, Failure> {
    panic!("as asked");
}

/// Unwinds as when memory is exhausted.
pub fn out_of_memory(_: Env, _: &[Term; 0]) -> Result<Term, Failure> {
    slab::needed(None)
}

/// Monitors a process.
pub fn watch(env: Env, &[process]: &[Term; 1]) -> Result<Term, Failure> {
    Ok(atoms::boolean(monitor::watch(env, process)))
}

/// The number of monitored processes.
pub fn watched(env: Env, _: &[Term; 0]) -> Result<Term, Failure> {
    Ok(env.unsigned(monitor::watched() as u64))
}
