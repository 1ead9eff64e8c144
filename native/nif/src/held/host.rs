//! What the VM does for stored terms ([`cats_term::Host`]).

use crate::decode;
use crate::held;
use crate::layout::{binary, fun, identifier, node};
use crate::vm::external;
use crate::vm::{Env, Term};
use cats_sync::slab::{self, account};
use cats_term::{HeldReference, Host, TermRef, View, FUN_RECORD, NIL};
use rustler::sys::*;
use std::cmp::Ordering;

/// Installs the host. Called whenever the library is loaded; the first time counts.
pub fn install(env: Env) {
    let zeros = (env.float(0.0), env.float(-0.0));
    cats_term::install(Host {
        // SAFETY: the terms live during the call.
        compare: |a, b| unsafe { node::compare_kept(Term(a), Term(b)) },
        identical: |a, b| identical(Term(a), Term(b)),
        // SAFETY: the term lives during the call.
        hash: |term| unsafe { enif_hash(ErlNifHash::ERL_NIF_INTERNAL_HASH, Term(term).raw(), 0) },
        hash_whole: |term| {
            // SAFETY: the term lives during the question.
            with_term(term, |_, term| unsafe {
                enif_hash(ErlNifHash::ERL_NIF_INTERNAL_HASH, term.raw(), 0)
            })
        },
        atom_text,
        zeros_identical: identical(zeros.0, zeros.1),
        compare_mixed: |a, b| Workspace::new().with(a, b, compare),
        compare_keys,
        identical_mixed: |a, b| Workspace::new().with(a, b, identical),
        foreign_pid,
        held_reference,
        bits: |term, bits| {
            let workspace = Workspace::new();
            let bytes = slab::needed(external::of(workspace.env(), Term(term)));
            external::bits(&bytes, bits)
        },
        // SAFETY: the words name a term of the call, or one that lives while its guard does.
        counted_fun: |held| unsafe { fun::by_anyone(Term(held.term())) },
        retain: held::retain,
        release: held::release,
        retain_counted: |record| match is_fun(record) {
            true => fun::retain(record),
            false => {
                account::count(binary::size(record) as isize);
                binary::retain(record)
            }
        },
        release_counted: |record| match is_fun(record) {
            true => fun::release(record),
            false => {
                account::count(-(binary::size(record) as isize));
                binary::release(record)
            }
        },
        kept_bytes: |record| match is_fun(record) {
            true => 0,
            false => binary::size(record),
        },
        held_bytes: held::bytes,
    });
}

/// Whether a record is that of a fun, and not of a binary.
fn is_fun(record: u64) -> bool {
    record & FUN_RECORD != 0
}

pub fn compare(a: Term, b: Term) -> Ordering {
    // SAFETY: the terms live during the call.
    unsafe { enif_compare(a.raw(), b.raw()) }.cmp(&0)
}

fn identical(a: Term, b: Term) -> bool {
    // SAFETY: the terms live during the call.
    unsafe { enif_is_identical(a.raw(), b.raw()) != 0 }
}

/// The VM compares the keys of maps of the same size in the order of map keys.
fn compare_keys(a: TermRef, b: TermRef) -> Ordering {
    let workspace = Workspace::new();
    let map = |key| workspace.env().map(&[key], &[Term(NIL)]).expect("there is one key");
    workspace.with(a, b, |a, b| compare(map(a), map(b)))
}

fn foreign_pid(pid: u64) -> ([u32; 2], Ordering) {
    let pid = Term(pid);
    // SAFETY: the layout of pids is known, and the term lives during the call.
    let parts = unsafe { identifier::foreign_parts(pid) }.expect("all pids of other nodes have the same layout");
    // SAFETY: as above.
    (parts, unsafe { node::compare_node(pid) })
}

fn held_reference(reference: u64) -> HeldReference {
    let reference = Term(reference);
    // SAFETY: as in `foreign_pid`. All plain references and aliases are stored, not held.
    match unsafe { identifier::numbers_here(reference) } {
        Some(numbers) => HeldReference::Here(numbers),
        // SAFETY: as above.
        None => HeldReference::Elsewhere(unsafe { node::compare_node(reference) }),
    }
}

/// Appends the text of an atom, given its word, in UTF-8.
pub fn atom_text(atom: u64, text: &mut Vec<u8>) {
    let atom = Term(atom);
    let mut name = [0u8; 256];
    // SAFETY: the VM writes at most as many bytes as it is told; it needs no environment for an atom.
    let size = unsafe {
        let latin1 = ErlNifCharEncoding::ERL_NIF_LATIN1;
        enif_get_atom(
            std::ptr::null_mut(),
            atom.raw(),
            name.as_mut_ptr().cast(),
            name.len() as c_uint,
            latin1,
        )
    };
    if size > 0 {
        // Without the zero at the end.
        for &latin1 in &name[..size as usize - 1] {
            let mut utf8 = [0; 2];
            text.extend_from_slice(char::from(latin1).encode_utf8(&mut utf8).as_bytes());
        }
    } else {
        let workspace = Workspace::new();
        let bytes = slab::needed(external::of(workspace.env(), atom));
        external::atom_text(&bytes, text);
    }
}

/// Makes a term of a stored one for the time of a question.
pub fn with_term<R>(term: TermRef, ask: impl FnOnce(Env, Term) -> R) -> R {
    let workspace = Workspace::new();
    let made = decode::term(workspace.env(), term).expect("terms that were stored can be made");
    ask(workspace.env(), made)
}

/// An environment for terms that live for one question.
pub struct Workspace(*mut ErlNifEnv);

impl Workspace {
    pub fn new() -> Self {
        // SAFETY: no precondition.
        Self(unsafe { enif_alloc_env() })
    }

    pub fn env(&self) -> Env<'_> {
        // SAFETY: the environment lives as long as this value, and is this thread's.
        unsafe { Env::new(self.0) }
    }

    /// What a function says of two stored terms. A held term stays where it is: the VM collects no garbage in an environment.
    fn with<R>(&self, a: TermRef, b: TermRef, ask: impl FnOnce(Term, Term) -> R) -> R {
        let made = |term: TermRef| match term.view() {
            View::HeldTerm(_, held) => Term(held.term()),
            _ => decode::term(self.env(), term).expect("terms that were stored can be made"),
        };
        ask(made(a), made(b))
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        // SAFETY: nothing refers to its terms any more.
        unsafe { enif_free_env(self.0) }
    }
}
