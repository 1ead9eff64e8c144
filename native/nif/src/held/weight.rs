//! What a term takes on a heap, of which the VM tells nothing for funs and bit strings: how far a copy of it moves the end of an
//! environment that has nothing else in it.
//!
//! The VM takes what an environment needs from its heap one after the other, and goes on in a new piece when that is full. The
//! distance of two cells made before and after the copy is then as long as the copy, or more, or tells nothing, as when the new
//! piece is below. So this is an estimate: a VM that takes its memory otherwise makes it a bad one, which keeps dead terms longer.
//! What a term shares with others (the bytes of binaries) is not counted.
//!
//! Where the layout of terms is not in use, no word is taken for an address. Then the size of the term in the external
//! format counts.

use crate::layout;
use crate::vm::external;
use crate::vm::{Env, Term};
use cats_term::NIL;
use rustler::sys::{enif_alloc_env, enif_clear_env, enif_free_env, ErlNifEnv};

/// An environment that is empty between calls.
struct Scratch(*mut ErlNifEnv);

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: made by `enif_alloc_env`, and this thread's own.
        unsafe { enif_free_env(self.0) }
    }
}

thread_local! {
    // SAFETY: no precondition.
    static SCRATCH: Scratch = Scratch(unsafe { enif_alloc_env() });
}

/// Calls `f` with an environment that is this thread's own, and that is emptied then. `None` on a thread that is ending.
pub fn with_scratch<R>(f: impl FnOnce(Env) -> R) -> Option<R> {
    let with = |scratch: &Scratch| {
        // SAFETY: this thread's own, and nothing of it is used after the call.
        let result = f(unsafe { Env::new(scratch.0) });
        // SAFETY: as above.
        unsafe { enif_clear_env(scratch.0) };
        result
    };
    SCRATCH.try_with(with).ok()
}

/// About how many bytes a term takes on a heap; nothing if that is more than `limit`, or cannot be told.
///
/// # Safety
/// The term lives during the call.
pub unsafe fn weight(term: Term, limit: usize) -> Option<usize> {
    let (from, to) = with_scratch(|env| {
        if !layout::is_known() {
            return Some((0, external::of(env, term)?.len()));
        }
        let end = || (env.cons(Term(NIL), Term(NIL)).0 & !3) as usize;
        let from = end();
        // SAFETY: as the caller promises.
        unsafe { env.copy(term) };
        Some((from, end()))
    })
    .flatten()?;
    to.checked_sub(from).filter(|distance| *distance <= limit)
}

/// Copies a term into an environment. If the layout of environments is known, also returns how many bytes the copy takes,
/// unless the VM got more memory for it.
///
/// # Safety
/// The term lives during the call. The environment belongs to this thread.
pub unsafe fn copied(env: Env, term: Term) -> (Term, Option<usize>) {
    // SAFETY: as the caller promises, and the layout of environments is known.
    let place = || layout::is_known().then(|| unsafe { (layout::next(env).addr().get(), layout::end(env)) });
    let before = place();
    // SAFETY: as the caller promises.
    let copy = unsafe { env.copy(term) };
    let bytes = before.zip(place()).and_then(|(before, after)| {
        let is_same_memory = before.1 == after.1;
        is_same_memory.then(|| after.0 - before.0)
    });
    (copy, bytes)
}
