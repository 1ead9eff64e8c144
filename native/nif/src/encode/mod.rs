//! Encodes terms of the VM into stored form, in a [`Builder`]. This is the general path. [`fast`] encodes small objects
//! of common types.
//!
//! A tuple of immediates needs neither: [`immediates`] gives its elements as they are in the process, and
//! `cats_term::Block::flat` copies them.

pub mod callers_key;
pub mod fast;

use crate::entry::failure::{no_memory, Failure};
use crate::layout::binary;
use crate::layout::{self, fun, tree, Look};
use crate::vm::atoms;
use crate::vm::external;
use crate::vm::{on_scheduler, Env, Term};
use cats_sync::slab;
use cats_table::Budget;
use cats_term::{is_immediate, Builder, Class, CountedBinary, Elements, Item, Short, TermRef, View, MAX_DEPTH};
use rustler::sys::*;
use smallvec::SmallVec;

/// A normal scheduler does not encode or decode terms of more words than this.
pub const SCHEDULER_WORDS: Budget = cats_table::COPY_LIMIT;
/// Length in bytes of the longest binary that is stored inside its object.
pub const INLINE_BINARY: usize = 64;
/// Most elements of a tuple that [`short`] lends.
const SHORT_TUPLE: usize = 32;

/// Whether this scheduler may read or copy this many words in one call.
#[inline]
pub fn fits(words: usize) -> bool {
    SCHEDULER_WORDS.admits(words)
}

/// Fails with `Big` if this scheduler may not copy this many words in one call.
#[inline]
pub fn check_words(words: usize) -> Result<(), Failure> {
    match fits(words) {
        true => Ok(()),
        false => Err(Failure::Big),
    }
}

/// The elements of a tuple, in place. Fails for any other term.
#[inline]
pub fn tuple<'a>(env: Env<'a>, term: Term) -> Result<&'a [Term], Failure> {
    env.tuple_elements(term).ok_or_else(|| Failure::Bad(atoms::none()))
}

/// The words of these terms, if all of them are immediates.
#[inline]
pub fn immediates(terms: &[Term]) -> Option<&[u64]> {
    let words = Term::words(terms);
    // No early exit: the loop has no branches to mispredict.
    let tags = words.iter().fold(!0, |tags, word| tags & word);
    is_immediate(tags).then_some(words)
}

/// Builds the tuple of these elements in the builder, and replaces what was in it.
///
/// Fails with `Big` if the tuple is too large for this scheduler. Until the builder finishes a block, it only refers to
/// held terms and large binaries. So the builder's content is valid only as long as `env`.
#[inline]
pub fn object(env: Env, elements: &[Term], builder: &mut Builder) -> Result<(), Failure> {
    build(env, elements, Deep::HeldTerm, SCHEDULER_WORDS.0, builder)
}

/// Builds a key to search for, as a tuple of one element. Otherwise as [`object`].
#[inline]
pub fn key(env: Env, key: Term, builder: &mut Builder) -> Result<(), Failure> {
    object(env, &[key], builder)
}

/// As [`key`], for a specification. Nothing in it is held for its depth.
pub fn specification(env: Env, specification: Term, builder: &mut Builder) -> Result<(), Failure> {
    build(env, &[specification], Deep::Stored, SCHEDULER_WORDS.0, builder)
}

/// As [`object`], however large the object is.
pub fn any_object(env: Env, elements: &[Term], builder: &mut Builder) -> Result<(), Failure> {
    build(env, elements, Deep::HeldTerm, usize::MAX, builder)
}

/// Whether [`object`] would store this term in this form at this depth. It need not if a program has computed the term.
///
/// The recursion ends at the greatest depth of objects.
pub fn is_as_encoded(term: TermRef, depth: usize) -> bool {
    let are = |elements: Elements| elements.iter().all(|element| is_as_encoded(element, depth + 1));
    match term.view() {
        View::Tuple(elements) => depth < MAX_DEPTH && are(elements),
        View::List(list) => depth < MAX_DEPTH && are(list.elements()) && is_as_encoded(list.tail(), depth + 1),
        View::Map(map) => depth < MAX_DEPTH && are(map.keys) && are(map.values),
        View::Fun(fun) => depth < MAX_DEPTH && are(fun.env),
        View::HeldTerm(Class::Tuple | Class::List | Class::Map, _) => depth >= MAX_DEPTH,
        // SAFETY: a stored term, which lives as long as it is borrowed.
        View::HeldTerm(Class::Fun, held) => depth >= MAX_DEPTH || unsafe { fun::read(Term(held.term())) }.is_none(),
        _ => true,
    }
}

/// What becomes of tuples, lists and maps that are nested deeper than objects are stored.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Deep {
    HeldTerm,
    Stored,
}

fn build(env: Env, elements: &[Term], deep: Deep, limit: usize, builder: &mut Builder) -> Result<(), Failure> {
    builder.clear();
    let mut encoder = Encoder {
        env,
        builder,
        deep,
        limit,
        failure: Failure::Big,
    };
    match encoder.root(elements) {
        Some(()) => Ok(()),
        None => Err(encoder.failure),
    }
}

/// Lends a term of a common type that can be stored directly behind its tuple. Gives nothing for other terms. `f` is
/// called in one place for each type, so the compiler specializes it for that type.
///
/// # Safety
/// The layout of terms is known, and this term belongs to the environment.
#[inline(always)]
pub unsafe fn short<'a, R>(env: Env<'a>, term: Term, f: impl FnOnce(Short<'a>) -> Option<R>) -> Option<R> {
    // SAFETY: as the caller promises.
    match unsafe { layout::look(term) } {
        Look::Float(value) => f(Short::Float(value)),
        Look::Binary(bytes) if bytes.len() <= INLINE_BINARY => f(Short::Binary(bytes)),
        Look::Same(words) => f(Short::Same(words)),
        Look::Tuple(elements) if elements.len() <= SHORT_TUPLE => f(Short::Tuple(immediates(elements)?)),
        Look::Other => {
            let Some((record, bytes)) = env.counted_binary(term) else {
                // SAFETY: as the caller promises.
                return f(Short::Fun(unsafe { fun::counted(term) }?));
            };
            if bytes.len() <= INLINE_BINARY {
                return f(Short::Binary(bytes));
            }
            // SAFETY: the term that refers to the record lives as long as the environment.
            f(Short::Counted(unsafe { CountedBinary::new(record, bytes) }))
        }
        _ => None,
    }
}

/// Copies terms into the builder. Its methods return `None` when they fail.
struct Encoder<'a, 'b, 'r> {
    env: Env<'a>,
    builder: &'b mut Builder<'r>,
    deep: Deep,
    /// Most words to build.
    limit: usize,
    /// The reason, once a method has failed.
    failure: Failure,
}

impl Encoder<'_, '_, '_> {
    /// Fails if this scheduler may not build `more` words beside those that are built or about to be built.
    #[inline]
    fn budget(&mut self, more: usize) -> Option<()> {
        if self.builder.words() + more <= self.limit {
            return Some(());
        }
        self.over_budget()
    }

    #[cold]
    fn over_budget(&mut self) -> Option<()> {
        if on_scheduler() {
            self.failure = Failure::Big;
            return None;
        }
        self.limit = usize::MAX;
        Some(())
    }

    /// Adds the outermost tuple and all that is in it, each item before the next slot of the one around it.
    fn root(&mut self, elements: &[Term]) -> Option<()> {
        /// An item, the slot in it that comes next, the number of its slots, and how deep what is in them is nested.
        type Open = (Item, usize, usize, usize);
        let (word, slots) = self.tuple(elements)?;
        let mut open: Open = (Item::of(word), 0, slots, 1);
        // The other items that are not filled. So the depth of the terms costs no stack.
        let mut waiting: SmallVec<[Open; 8]> = SmallVec::new();
        loop {
            let (item, next, slots, depth) = open;
            let rest = next..slots;
            let found = rest
                .map(|slot| (slot, Term(self.builder.slot(item, slot))))
                .find(|(_, term)| !term.is_immediate());
            let Some((slot, term)) = found else {
                match waiting.pop() {
                    Some(outer) => open = outer,
                    None => return Some(()),
                }
                continue;
            };
            let (word, inner) = self.add(term, depth)?;
            self.builder.set(item, slot, word);
            open.1 = slot + 1;
            if inner > 0 {
                if open.1 < slots {
                    slab::needed(waiting.try_reserve(1).ok());
                    waiting.push(open);
                }
                open = (Item::of(word), 0, inner, depth + 1);
            }
        }
    }

    /// Adds a term that is not an immediate. Returns its word and its number of slots. The number is 0 if no slot still
    /// has a word of the VM that is not an immediate.
    #[inline(always)]
    fn add(&mut self, term: Term, depth: usize) -> Option<(u64, usize)> {
        if layout::is_known() {
            let is_too_deep = self.is_too_deep(depth);
            // SAFETY: the layout of terms is known, and this term belongs to the environment.
            match unsafe { layout::look(term) } {
                Look::Cell(head, tail) if !is_too_deep => return self.list(head, tail),
                Look::Tuple(elements) if !is_too_deep => return self.tuple(elements),
                Look::Map(keys, values) if !is_too_deep => return self.map(keys, values),
                Look::Float(value) => return Some((self.builder.float(value), 0)),
                Look::Binary(bytes) if bytes.len() <= INLINE_BINARY => return Some((self.builder.binary(bytes), 0)),
                Look::Same(words) => return Some((self.builder.same(words), 0)),
                Look::Integer(negative, digits) => {
                    self.budget(digits.len())?;
                    return Some((self.builder.integer(negative, digits), 0));
                }
                _ => {}
            }
        }
        self.add_asking(term, depth)
    }

    #[inline]
    fn is_too_deep(&self, depth: usize) -> bool {
        depth >= MAX_DEPTH && self.deep == Deep::HeldTerm
    }

    /// As [`add`](Self::add), but asks the VM for the type of the term.
    #[inline(never)]
    fn add_asking(&mut self, term: Term, depth: usize) -> Option<(u64, usize)> {
        let env = self.env;
        let is_too_deep = self.is_too_deep(depth);
        if let Some((record, bytes)) = env.counted_binary(term) {
            return Some((self.counted_binary(record, bytes), 0));
        }
        if let Some(bytes) = env.binary_bytes(term) {
            return Some((self.other_binary(term, bytes), 0));
        }
        if let Some(elements) = env.tuple_elements(term) {
            return match is_too_deep {
                true => self.deep(Class::Tuple, term),
                false => self.tuple(elements),
            };
        }
        if let Some((head, tail)) = env.cell(term) {
            return match is_too_deep {
                true => self.deep(Class::List, term),
                false => self.list(head, tail),
            };
        }
        if let Some(pairs) = env.map_size(term) {
            return match is_too_deep {
                true => self.deep(Class::Map, term),
                false => self.map_asking(term, pairs),
            };
        }
        // SAFETY: the term belongs to the environment.
        if let (Some((words, terms)), false) = (unsafe { fun::read(term) }, depth >= MAX_DEPTH) {
            self.budget(terms.len())?;
            let item = self.builder.filled_fun(Term::words(terms), words);
            return Some((item.word(), Self::slots([terms, &[]])));
        }
        // SAFETY: as above.
        if let Some(fun) = unsafe { fun::counted(term) } {
            return Some((self.builder.counted_fun(fun), 0));
        }
        let word = if let Some(value) = env.get_f64(term) {
            self.builder.float(value)
        } else if env.is_reference(term) {
            self.hold(Class::Reference, term)
        } else if env.is_number(term) {
            self.integer(term)?
        } else {
            self.hold(self.class(term), term)
        };
        Some((word, 0))
    }

    #[inline]
    fn counted_binary(&mut self, record: u64, bytes: &[u8]) -> u64 {
        if bytes.len() <= INLINE_BINARY {
            return self.builder.binary(bytes);
        }
        // SAFETY: the term that refers to the record lives as long as the environment.
        unsafe { self.builder.counted_binary(record, bytes) }
    }

    /// A binary inside a heap, or one whose references cannot be counted as it is.
    fn other_binary(&mut self, term: Term, bytes: &[u8]) -> u64 {
        if bytes.len() <= INLINE_BINARY {
            return self.builder.binary(bytes);
        }
        if binary::is_known() {
            // The process may append to a binary, but not to a copy of it. So the references of the copy can be
            // counted.
            // SAFETY: the term lives as long as the environment.
            let copy = unsafe { self.env.copy(term) };
            if let Some((record, bytes)) = self.env.counted_binary(copy) {
                return self.counted_binary(record, bytes);
            }
        }
        // SAFETY: the term and its bytes live as long as the environment.
        unsafe { self.builder.shared_binary(term.0, bytes) }
    }

    /// The number of slots that still have to be encoded: 0 if all of these words are immediates.
    #[inline(always)]
    fn slots(words: [&[Term]; 2]) -> usize {
        match words.iter().all(|words| immediates(words).is_some()) {
            true => 0,
            false => words[0].len() + words[1].len(),
        }
    }

    #[inline(always)]
    fn tuple(&mut self, elements: &[Term]) -> Option<(u64, usize)> {
        self.budget(elements.len())?;
        let item = self.builder.filled_tuple(Term::words(elements));
        Some((item.word(), Self::slots([elements, &[]])))
    }

    #[inline(always)]
    fn map(&mut self, keys: &[Term], values: &[Term]) -> Option<(u64, usize)> {
        self.budget(keys.len() + values.len())?;
        let item = self.builder.filled_map(Term::words(keys), Term::words(values));
        Some((item.word(), Self::slots([keys, values])))
    }

    fn map_asking(&mut self, map: Term, pairs: usize) -> Option<(u64, usize)> {
        self.budget(2 * pairs)?;
        let item = self.builder.map(pairs);
        let (keys, values) = self.builder.slots(item).split_at_mut(pairs);
        // SAFETY: the term belongs to the environment.
        if let Some(nodes) = unsafe { tree::read(map, keys, values) } {
            let is_flat = is_immediate(keys.iter().chain(&*values).fold(!0, |tags, word| tags & word));
            self.budget(nodes.len())?;
            self.builder.nodes(item, &nodes);
            return Some((item.word(), if is_flat { 0 } else { 2 * pairs }));
        }
        let (keys, values) = self.builder.slots(item).split_at_mut(pairs);
        let mut places = keys.iter_mut().zip(values);
        let passed = self.env.each_pair(map, pairs, |key, value| {
            if let Some(place) = places.next() {
                (*place.0, *place.1) = (key.0, value.0);
            }
        });
        if passed.is_none() {
            self.failure = no_memory();
        }
        passed.map(|()| (item.word(), 2 * pairs))
    }

    #[inline(always)]
    fn list(&mut self, head: Term, tail: Term) -> Option<(u64, usize)> {
        let env = self.env;
        let item = self.builder.open_list();
        self.builder.push(head.0);
        let (mut tags, mut rest) = (head.0, tail);
        while env.cell(rest).is_some() {
            self.budget(1)?;
            self.builder.push_all(self.limit, || {
                let (head, tail) = env.cell(rest)?;
                rest = tail;
                tags &= head.0;
                Some(head.0)
            });
        }
        let slots = self.builder.close_list(item, rest.0);
        let is_flat = is_immediate(tags & rest.0);
        Some((item.word(), if is_flat { 0 } else { slots }))
    }

    fn integer(&mut self, term: Term) -> Option<u64> {
        if let Some(value) = self.env.get_i64(term) {
            return Some(self.builder.integer_i64(value));
        }
        if let Some(value) = self.env.get_u64(term) {
            return Some(self.builder.integer(false, &[value]));
        }
        let (negative, magnitude) = external::of(self.env, term)
            .and_then(|bytes| external::big_integer(&bytes))
            .or_else(|| {
                self.failure = no_memory();
                None
            })?;
        self.budget(magnitude.len())?;
        Some(self.builder.integer(negative, &magnitude))
    }

    /// Stores a tuple, list or map that is nested too deep as a held term.
    #[cold]
    fn deep(&mut self, class: Class, term: Term) -> Option<(u64, usize)> {
        if self.limit != usize::MAX && !is_small(self.env, term) {
            self.over_budget()?;
        }
        Some((self.hold(class, term), 0))
    }

    fn hold(&mut self, class: Class, term: Term) -> u64 {
        // SAFETY: the term lives as long as its environment. Callers never pass an immediate.
        unsafe { self.builder.held(class, term.0) }
    }

    /// The class of a term that has no other stored form and is not a reference.
    fn class(&self, term: Term) -> Class {
        let raw = self.env.raw();
        // SAFETY: tests of a term of the environment.
        unsafe {
            if enif_is_fun(raw, term.raw()) != 0 {
                Class::Fun
            } else if enif_is_pid(raw, term.raw()) != 0 {
                Class::Pid
            } else if enif_is_port(raw, term.raw()) != 0 {
                Class::Port
            } else if enif_compare(term.raw(), self.env.binary(b"").raw()) > 0 {
                // `erl_nif` has no test for bit strings, but no other term of these sorts after the empty binary.
                Class::BitString
            } else {
                Class::Record
            }
        }
    }
}

/// Whether the number of parts of a term, at all depths, is small enough for a normal scheduler.
fn is_small(env: Env, term: Term) -> bool {
    let mut left = SCHEDULER_WORDS.0;
    let mut rest = vec![term];
    while let Some(term) = rest.pop() {
        if let Some(elements) = env.tuple_elements(term) {
            if elements.len() > left {
                return false;
            }
            rest.extend_from_slice(elements);
            left -= elements.len();
        } else if let Some((head, tail)) = env.cell(term) {
            rest.extend([tail, head]);
            left = left.saturating_sub(2);
        } else if let Some(pairs) = env.map_size(term) {
            // The parts of a map's keys and values are not counted: maps nested this deep are rare.
            left = left.saturating_sub(2 * pairs);
        }
        if left == 0 {
            return false;
        }
    }
    true
}
