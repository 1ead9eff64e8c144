//! What atoms stand for in match specifications.
//!
//! Each thread remembers this for the atoms that it met last. Asking the VM for an atom's text takes longer than the whole rest of
//! compiling a small specification. An atom's text never changes, so what is remembered stays true.

use crate::function::Function;
use crate::program::Vm;
use cats_term::{Class, TermRef};
use std::cell::Cell;

/// What an atom stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// Itself.
    Plain,
    /// The variable with this number: `'$'` and a decimal number without leading zeros.
    Variable(u64),
    /// `'$_'`
    Object,
    /// `'$$'`
    Bindings,
    /// A function, or another name that may stand first in a tuple of a guard or body. Elsewhere the atom stands for itself.
    Known(&'static str),
}

/// Names that may stand first in a tuple but are not functions.
const OTHERS: &[&str] = &["and", "or", "andalso", "andthen", "orelse", "const", "self"];

/// The number of atoms that each thread remembers.
const PLACES: usize = 64;

thread_local! {
    /// An atom's word, 0 if there is none, and what the atom stands for. The word determines the place.
    static NAMES: [Cell<(u64, Name)>; PLACES] = const { [const { Cell::new((0, Name::Plain)) }; PLACES] };
}

/// What a term stands for, at a place where a variable may stand.
#[inline]
pub(crate) fn name(vm: &Vm, term: TermRef<'_>) -> Name {
    if term.class() != Class::Atom {
        return Name::Plain;
    }
    let word = term.word();
    let place = (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % PLACES;
    NAMES.with(|names| match names[place].get() {
        (met, name) if met == word => name,
        _ => {
            let name = find(vm, word);
            names[place].set((word, name));
            name
        }
    })
}

#[cold]
fn find(vm: &Vm, word: u64) -> Name {
    let mut text = Vec::new();
    (vm.atom_text)(word, &mut text);
    let Ok(text) = String::from_utf8(text) else {
        return Name::Plain;
    };
    match text.as_str() {
        "$_" => Name::Object,
        "$$" => Name::Bindings,
        text => match variable(text) {
            Some(number) => Name::Variable(number),
            None => {
                let mut known = Function::NAMES.iter().chain(OTHERS);
                known
                    .find(|known| **known == text)
                    .map_or(Name::Plain, |known| Name::Known(known))
            }
        },
    }
}

fn variable(text: &str) -> Option<u64> {
    let digits = text.strip_prefix('$')?;
    let plain = digits == "0" || !digits.starts_with('0');
    (plain && !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())).then_some(())?;
    digits.parse().ok()
}
