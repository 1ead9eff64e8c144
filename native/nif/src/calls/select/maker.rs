//! What a program sees of an object, and what it makes: terms for the caller, and objects to store.

use super::*;
use cats_pattern::Output;

/// The object as a program sees it.
#[inline(always)]
pub fn seen<'a>(object: &'a ObjectRef<'_>) -> cats_pattern::Object<'a> {
    match object {
        ObjectRef::Block(block) => cats_pattern::Object::stored(*block),
        ObjectRef::Pair(words) => cats_pattern::Object::immediates(words),
        ObjectRef::Single(words) => cats_pattern::Object::immediates(words),
    }
}

/// Whether an object matches.
pub(super) fn matching<'a>(
    program: &'a Program,
    caller: u64,
    arena: &'a mut Arena,
) -> impl FnMut(&ObjectRef<'_>) -> bool + 'a {
    move |object| {
        arena.clear();
        let from = program.candidate(seen(object));
        from.is_some_and(|from| program.is_true(from, &seen(object), caller, arena))
    }
}

/// Makes results in the caller's environment.
pub struct Maker<'e, 'a> {
    env: Env<'e>,
    object: &'a ObjectRef<'a>,
    words: usize,
    /// The first failure; what is made from then on is not used.
    failure: Option<Failure>,
}

impl<'e, 'a> Maker<'e, 'a> {
    pub fn new(env: Env<'e>, object: &'a ObjectRef<'a>) -> Self {
        Self {
            env,
            object,
            words: 0,
            failure: None,
        }
    }

    /// The number of words that were made, or why the result has no meaning. `arena` is that of the evaluation.
    pub fn finish(self, arena: &Arena) -> Result<usize, Failure> {
        match (arena.is_exhausted(), self.failure) {
            (true, _) => Err(Failure::Big),
            (false, Some(failure)) => Err(failure),
            (false, None) => Ok(self.words),
        }
    }

    /// Counts so many words more; false if that is too much for this scheduler, or something has failed before.
    fn count(&mut self, words: usize) -> bool {
        self.words += words;
        if !STEP_WORDS.admits(self.words) {
            self.failure.get_or_insert(Failure::Big);
        }
        self.failure.is_none()
    }

    fn checked(&mut self, made: Result<Term, Failure>) -> Term {
        made.unwrap_or_else(|failure| {
            self.failure.get_or_insert(failure);
            Term(NIL)
        })
    }
}

impl Output for Maker<'_, '_> {
    type Term = Term;

    fn object(&mut self) -> Term {
        if !self.count(self.object.words()) {
            return Term(NIL);
        }
        let made = tuple(self.env, self.object);
        self.checked(made)
    }

    fn term(&mut self, term: TermRef<'_>) -> Term {
        if term.is_immediate() {
            return Term(term.word());
        }
        // An object too large for a scheduler has been refused before any of its parts is asked for.
        if !self.count(self.object.words()) {
            return Term(NIL);
        }
        let made = check_words(self.object.words()).and_then(|()| decode::term(self.env, term));
        self.checked(made)
    }

    fn tuple(&mut self, elements: &[Term]) -> Term {
        self.words += elements.len() + 1;
        self.env.tuple(elements)
    }

    fn list(&mut self, elements: &[Term], tail: Term) -> Term {
        self.words += 2 * elements.len();
        elements
            .iter()
            .rev()
            .fold(tail, |tail, &head| self.env.cons(head, tail))
    }

    fn map(&mut self, keys: &[Term], values: &[Term]) -> Term {
        self.words += 2 * keys.len();
        if let Some(map) = self.env.map(keys, values) {
            return map;
        }
        let empty = self.env.map(&[], &[]).expect("the empty map");
        let pairs = keys.iter().zip(values);
        pairs.fold(empty, |map, (&key, &value)| self.env.map_put(map, key, value))
    }
}

/// A tuple as an object to store; nothing when memory is exhausted. A program that keeps the key has no other results.
pub(super) fn stored(value: TermRef<'_>) -> Option<Block> {
    let mut room = Room::<OBJECT_WORDS>::new();
    let mut builder = Builder::within(&mut room);
    builder.copy(value);
    let is_plain = builder.words() <= encode::fast::WORDS && !builder.has_held();
    if is_plain || encode::is_as_encoded(value, 0) {
        return builder.finish();
    }
    crate::held::host::with_term(value, |env, object| {
        encode::any_object(env, encode::tuple(env, object).ok()?, &mut builder).ok()?;
        // The builder refers to terms of this environment.
        builder.finish()
    })
}
