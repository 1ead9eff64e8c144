//! What a held term takes, with the binaries that it refers to: what it costs in a table with a limit of bytes.

use super::weight::with_scratch;
use crate::layout::{binary, fun};
use crate::vm::{external, Env, Term};
use cats_term::Class;
use rustler::sys::{enif_is_pid, enif_is_port};
use smallvec::SmallVec;

const WORD: usize = size_of::<u64>();
/// Words of a fun beside its environment, and of a binary beside its bytes.
const FUN: usize = 5;
const BINARY: usize = 8;

/// About how many bytes a term of this class takes, with the whole binaries that it refers to. 0 for terms of few words. Takes as long as
/// the encoder does to find out how large a deep term is.
///
/// # Safety
/// The term lives during the call.
pub unsafe fn bytes(term: Term, class: Class) -> usize {
    match class {
        Class::Reference | Class::Port | Class::Pid => 0,
        // SAFETY: as the caller promises.
        _ => with_scratch(|env| unsafe { bytes_of(env, term) }).unwrap_or(0),
    }
}

/// # Safety
/// As for [`bytes`].
unsafe fn bytes_of(env: Env, term: Term) -> usize {
    let mut bytes = 0;
    let mut rest = SmallVec::<[Term; 32]>::from_slice(&[term]);
    while let Some(term) = rest.pop() {
        // SAFETY: a part of a term that lives.
        let (record, environment) = unsafe { (binary::record(term), fun::environment(term)) };
        bytes += if term.is_immediate() {
            0
        } else if let Some(record) = record {
            WORD * BINARY + binary::size(record)
        } else if let Some(bytes) = env.binary_bytes(term) {
            WORD * BINARY + bytes.len()
        } else if let Some(elements) = env.tuple_elements(term) {
            rest.extend_from_slice(elements);
            WORD * (1 + elements.len())
        } else if let Some((head, tail)) = env.cell(term) {
            rest.extend([tail, head]);
            WORD * 2
        } else if let Some(pairs) = env.map_size(term) {
            // Without memory for the way through it, the parts do not count.
            _ = env.each_pair(term, pairs, |key, value| rest.extend([key, value]));
            WORD * (2 + 2 * pairs)
        } else if let Some(terms) = environment {
            rest.extend_from_slice(terms);
            WORD * (FUN + terms.len())
        } else if is_small(env, term) {
            0
        } else {
            // What the VM does not take apart for us.
            external::of(env, term).map_or(0, |external| external.len())
        };
    }
    bytes
}

/// Whether a term has few words, whatever its value is.
fn is_small(env: Env, term: Term) -> bool {
    // SAFETY: tests of a term that lives.
    let is_identifier = unsafe { enif_is_pid(env.raw(), term.raw()) != 0 || enif_is_port(env.raw(), term.raw()) != 0 };
    is_identifier || env.is_reference(term) || env.get_f64(term).is_some()
}
