//! Stored terms into terms of the VM.
//!
//! What is immediate within an object is passed on as it is stored; tuples, lists and maps of immediates are made by one call
//! of the VM each.

use crate::encode::SCHEDULER_WORDS;
use crate::external;
use crate::failure::Failure;
use crate::vm::{on_dirty_scheduler, Env, Term};
use cats_term::{BlockRef, Elements, Integer, List, Map, TermRef, View};
use std::cell::RefCell;

thread_local! {
    /// Terms made for a container that is not made yet; kept to save allocations.
    static MADE: RefCell<Vec<Term>> = const { RefCell::new(Vec::new()) };
}

/// The tuple that a block holds. `Big` when it is too large for this scheduler.
#[inline]
pub fn object(env: Env, block: BlockRef) -> Result<Term, Failure> {
    if block.words() > SCHEDULER_WORDS && !on_dirty_scheduler() {
        return Err(Failure::Big);
    }
    if block.is_flat() {
        return Ok(env.tuple(Term::slice(block.elements_raw())));
    }
    with_decoder(env, |decoder| decoder.tuple(block.elements()))
}

/// One term of a block. The caller sees to its size; see [`object`].
#[inline]
pub fn term(env: Env, term: TermRef) -> Result<Term, Failure> {
    if term.is_immediate() {
        return Ok(Term(term.word()));
    }
    with_decoder(env, |decoder| decoder.item(term))
}

fn with_decoder(env: Env, body: impl FnOnce(&mut Decoder) -> Result<Term, Failure>) -> Result<Term, Failure> {
    let mut decoder = Decoder { env, made: MADE.take() };
    let result = body(&mut decoder);
    let mut made = decoder.made;
    made.clear();
    made.shrink_to(SCHEDULER_WORDS);
    MADE.set(made);
    result
}

struct Decoder<'a> {
    env: Env<'a>,
    /// The children of the containers that are being made, outermost first.
    made: Vec<Term>,
}

impl Decoder<'_> {
    fn item(&mut self, term: TermRef) -> Result<Term, Failure> {
        let env = self.env;
        match term.view() {
            View::Immediate(word) => Ok(Term(word)),
            View::Tuple(elements) if term.is_flat() => Ok(env.tuple(Term::slice(elements.words()))),
            View::Tuple(elements) => self.tuple(elements),
            View::List(list) => self.list(list, term.is_flat()),
            View::Map(map) => self.map(map, term.is_flat()),
            View::Float(value) => Ok(env.float(value)),
            View::Integer(integer) => make_integer(env, integer).ok_or(Failure::SystemLimit),
            View::Binary(bytes) => Ok(env.binary(bytes)),
            // SAFETY: the term is held as long as its object, which the caller keeps.
            View::SharedBinary(held, _) | View::Held(_, held) => Ok(unsafe { env.copy(Term(held.term())) }),
        }
    }

    /// Makes terms of these, and leaves them at the end of `made`, from the returned place on.
    fn elements(&mut self, elements: Elements) -> Result<usize, Failure> {
        let first = self.made.len();
        for element in elements.iter() {
            let term = if element.is_immediate() {
                Term(element.word())
            } else {
                self.item(element)?
            };
            self.made.push(term);
        }
        Ok(first)
    }

    fn tuple(&mut self, elements: Elements) -> Result<Term, Failure> {
        let first = self.elements(elements)?;
        let tuple = self.env.tuple(&self.made[first..]);
        self.made.truncate(first);
        Ok(tuple)
    }

    fn list(&mut self, list: List, flat: bool) -> Result<Term, Failure> {
        let tail = list.tail();
        let proper = tail.word() == cats_term::NIL;
        if flat && proper {
            return Ok(self.env.list(Term::slice(list.elements().words())));
        }
        let first = self.elements(list.elements())?;
        let made = if proper {
            self.env.list(&self.made[first..])
        } else {
            let tail = self.item(tail)?;
            self.made[first..]
                .iter()
                .rev()
                .fold(tail, |tail, &head| self.env.cons(head, tail))
        };
        self.made.truncate(first);
        Ok(made)
    }

    fn map(&mut self, map: Map, flat: bool) -> Result<Term, Failure> {
        // The pairs came from a map, so no key occurs twice.
        let unique = "the keys of a map differ";
        if flat {
            return Ok(self
                .env
                .map(Term::slice(map.keys.words()), Term::slice(map.values.words()))
                .expect(unique));
        }
        let first = self.elements(map.keys)?;
        let values = self.elements(map.values)?;
        let made = self
            .env
            .map(&self.made[first..values], &self.made[values..])
            .expect(unique);
        self.made.truncate(first);
        Ok(made)
    }
}

fn make_integer(env: Env, integer: Integer) -> Option<Term> {
    match (integer.negative, integer.digits) {
        (false, &[digit]) => Some(env.unsigned(digit)),
        (true, &[digit]) if digit <= 1 << 63 => Some(env.integer(0i64.wrapping_sub_unsigned(digit))),
        (negative, digits) => external::make_integer(env, negative, digits),
    }
}
