//! `cats_nif:dirty(Function, Arguments)`: runs any native function on a dirty scheduler, where it may take its time.

use crate::atoms;
use crate::failure::Failure;
use crate::functions::FUNCTIONS;
use crate::vm::{Env, Term};
use std::sync::OnceLock;

/// The most arguments that a native function has.
const MAX_ARITY: usize = 8;

/// The atom of each function's name, in the order of [`FUNCTIONS`].
static NAMES: OnceLock<Vec<Term>> = OnceLock::new();

/// Makes the atoms of the functions' names.
pub fn make_names(env: Env) {
    NAMES.get_or_init(|| FUNCTIONS.iter().map(|function| env.atom(function.name)).collect());
}

/// Calls the native function of this name and this number of arguments.
pub fn dirty(env: Env, &[name, list]: &[Term; 2]) -> Result<Term, Failure> {
    let mut arguments = [Term(0); MAX_ARITY];
    let mut arity = 0;
    let mut rest = list;
    while let Some((argument, tail)) = env.cell(rest) {
        *arguments.get_mut(arity).ok_or(Failure::Bad(atoms::none()))? = argument;
        arity += 1;
        rest = tail;
    }
    let names = NAMES.get().map(Vec::as_slice).unwrap_or_default();
    let (_, function) = names
        .iter()
        .zip(FUNCTIONS)
        .find(|(atom, function)| **atom == name && function.arity as usize == arity)
        .ok_or(Failure::Bad(atoms::none()))?;
    Ok(function.call(env, &arguments[..arity]))
}
