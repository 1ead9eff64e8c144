//! Which keys a program can match. A bound key needs one lookup. In a table ordered by key, a partly bound key limits a scan to a range. So
//! does a guard that compares a part of the key with a constant.

use crate::function::Function;
use crate::head::{Flat, Pattern};
use crate::matcher::{comparisons_of, Comparison};
use crate::program::{Clause, Program, Spec};
use cats_term::{compare, equal, Block, Builder, Room, TermRef, View, BOTTOM, TOP};
use std::cmp::Ordering::Greater;

/// The keys that can match. Each block is a tuple with one element, the key.
pub enum Keys {
    /// Any key can match, or nothing is known.
    All,
    /// Only these keys.
    Exact(Vec<Block>),
    /// Only keys from the first one to the second one, both included. Each may contain [`BOTTOM`] or [`TOP`].
    Range(Block, Block),
}

/// The number of words of a key for which there is room on the stack.
const ROOM: usize = 64;

/// One end of the range of a variable.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Lower,
    Upper,
}

impl Clause {
    /// Whether this pattern of the key matches every key.
    fn is_open(&self, pattern: &Pattern) -> bool {
        match pattern {
            Pattern::Any => true,
            Pattern::Bind(variable) => comparisons_of(&self.comparisons, *variable).is_empty(),
            _ => false,
        }
    }
}

impl Program {
    /// The keys that objects must have for the program to match them. `position` is the key's place in objects, counted from 0. Ranges are
    /// returned only for `ordered` tables. `None` when memory is exhausted.
    pub fn keys(&self, position: usize, ordered: bool) -> Option<Keys> {
        let patterns: Vec<(&Clause, &Pattern)> = {
            let mut patterns = Vec::new();
            for clause in &self.code.clauses {
                match &clause.head {
                    Pattern::Tuple(elements) => {
                        patterns.extend(elements.get(position).map(|pattern| (clause, pattern)))
                    }
                    Pattern::Any | Pattern::Bind(_) => return Some(Keys::All),
                    // Such a head matches no object.
                    _ => {}
                }
            }
            patterns
        };
        let exact = patterns.iter().all(|(_, pattern)| pattern.is_ground());
        if exact && (!ordered || patterns.len() <= 1) {
            let keys = patterns
                .iter()
                .map(|(clause, pattern)| self.end(clause, pattern, End::Lower));
            return keys.collect::<Option<_>>().map(Keys::Exact);
        }
        if !ordered || patterns.iter().any(|(clause, pattern)| clause.is_open(pattern)) {
            return Some(Keys::All);
        }
        let outermost = |end: End, outer: std::cmp::Ordering| {
            let mut found: Option<Block> = None;
            for (clause, pattern) in &patterns {
                let key = self.end(clause, pattern, end)?;
                let further = found
                    .as_ref()
                    .is_none_or(|found| compare(found.as_ref().element(0), key.as_ref().element(0)) == outer);
                if further {
                    found = Some(key);
                }
            }
            found
        };
        Some(Keys::Range(
            outermost(End::Lower, Greater)?,
            outermost(End::Upper, Greater.reverse())?,
        ))
    }

    /// For each clause, the elements that an object must have for the clause to match. Each is a place, counted from 0, and the exact term.
    /// Elements that must be tuples, lists or maps are left out. So are clauses that match no object.
    pub fn elements(&self) -> impl Iterator<Item = Vec<(usize, TermRef<'_>)>> {
        self.code.clauses.iter().filter_map(|clause| match &clause.head {
            Pattern::Tuple(elements) => {
                let bound = elements.iter().enumerate();
                let bound = bound.filter_map(|(place, pattern)| Some((place, self.element(clause, pattern)?)));
                Some(bound.collect())
            }
            Pattern::Any | Pattern::Bind(_) => Some(Vec::new()),
            _ => None,
        })
    }

    /// The only term that matches this element's pattern. `None` if there is no such term, or if it is a compound term.
    fn element(&self, clause: &Clause, pattern: &Pattern) -> Option<TermRef<'_>> {
        match pattern {
            Pattern::Constant(word) | Pattern::Float(word) => Some(self.constant(*word)),
            Pattern::Bind(variable) => {
                let is_same = |other: &&Comparison| other.function == Function::Same;
                let comparison = comparisons_of(&clause.comparisons, *variable).iter().find(is_same)?;
                let constant = self.constant(comparison.constant);
                use View::*;
                matches!(
                    constant.view(),
                    Immediate(_) | Float(_) | Integer(_) | Binary(_) | SharedBinary(..)
                )
                .then_some(constant)
            }
            _ => None,
        }
    }

    /// Calls `f` with the least and the greatest key that can match, both included. Each may contain [`BOTTOM`] or [`TOP`]. Returns `None`
    /// unless there is one clause, and it limits the keys of an ordered table to a range. `position` is as for [`keys`](Self::keys). Needs
    /// no memory if the keys are short.
    pub fn with_range<R>(&self, position: usize, f: impl FnOnce(TermRef<'_>, TermRef<'_>) -> R) -> Option<R> {
        let [clause] = &self.code.clauses[..] else { return None };
        let Pattern::Tuple(elements) = &clause.head else {
            return None;
        };
        let pattern = elements.get(position).filter(|pattern| !clause.is_open(pattern))?;
        match clause.open.get(position) {
            Some(Some(open)) if self.words() <= ROOM => self.with_filled(clause, (position, pattern), open, f),
            _ => Some(self.with_built(clause, pattern, f)),
        }
    }

    /// [`with_range`](Self::with_range) in copies of the specification whose [open places](open_places) are filled.
    fn with_filled<R>(
        &self,
        clause: &Clause,
        (position, pattern): (usize, &Pattern),
        open: &[usize],
        f: impl FnOnce(TermRef<'_>, TermRef<'_>) -> R,
    ) -> Option<R> {
        let (words, key) = self.words_and_element(clause, position)?;
        // What is held in them stays with the program.
        let (mut below, mut above) = ([0; ROOM], [0; ROOM]);
        below[..words.len()].copy_from_slice(words);
        above[..words.len()].copy_from_slice(words);
        for &place in open {
            (below[place], above[place]) = (BOTTOM, TOP);
        }
        // SAFETY: both are copies of a block that lives longer, with immediates in place of some element words. They do not change while
        // `f` runs. It takes terms of any lifetime, so it keeps nothing of them.
        let (lower, upper) = unsafe { (TermRef::new(below.as_ptr(), key), TermRef::new(above.as_ptr(), key)) };
        debug_assert!(self.with_built(clause, pattern, |least, greatest| {
            equal(lower, least) && equal(upper, greatest)
        }));
        Some(f(lower, upper))
    }

    /// [`with_range`](Self::with_range) in terms that are built part by part.
    fn with_built<R>(&self, clause: &Clause, pattern: &Pattern, f: impl FnOnce(TermRef<'_>, TermRef<'_>) -> R) -> R {
        let (mut below, mut above) = (Room::<ROOM>::new(), Room::<ROOM>::new());
        let (mut lower, mut upper) = (Builder::within(&mut below), Builder::within(&mut above));
        self.build_key(&mut lower, clause, pattern, End::Lower);
        self.build_key(&mut upper, clause, pattern, End::Upper);
        f(lower.as_key(), upper.as_key())
    }

    /// The least or greatest key that the pattern and the clause's guards allow.
    fn end(&self, clause: &Clause, pattern: &Pattern, end: End) -> Option<Block> {
        let mut room = Room::<ROOM>::new();
        let mut builder = Builder::within(&mut room);
        self.build_key(&mut builder, clause, pattern, end);
        builder.finish()
    }

    /// Builds a tuple with the key that [`end`](Self::end) returns.
    fn build_key(&self, builder: &mut Builder, clause: &Clause, pattern: &Pattern, end: End) {
        let root = builder.tuple(1);
        let mut bound = true;
        let word = self.build_end(builder, clause, pattern, end, &mut bound);
        builder.set(root, 0, word);
    }

    /// Adds the end of a part of the key. `bound` says whether all parts before it are ground. Only then this part limits the range.
    fn build_end(&self, builder: &mut Builder, clause: &Clause, pattern: &Pattern, end: End, bound: &mut bool) -> u64 {
        let open = match end {
            End::Lower => BOTTOM,
            End::Upper => TOP,
        };
        if !*bound {
            return open;
        }
        match pattern {
            Pattern::Constant(word) | Pattern::Float(word) => builder.copy(self.constant(*word)),
            Pattern::Bind(place) => {
                *bound = false;
                match self.guarded(clause, *place, end) {
                    Some(constant) => builder.copy(constant),
                    None => open,
                }
            }
            Pattern::Tuple(elements) => {
                let item = builder.tuple(elements.len());
                for (slot, element) in elements.iter().enumerate() {
                    let word = self.build_end(builder, clause, element, end, bound);
                    builder.set(item, slot, word);
                }
                item.word()
            }
            Pattern::List(elements, tail) => {
                let item = builder.list(elements.len());
                for (slot, element) in elements.iter().chain([&**tail]).enumerate() {
                    let word = self.build_end(builder, clause, element, end, bound);
                    builder.set(item, slot, word);
                }
                item.word()
            }
            Pattern::Deep(word, parts) if parts.iter().all(Flat::is_ground) => builder.copy(self.constant(*word)),
            // What is nested so deep is no more part of a range.
            Pattern::Any | Pattern::Bound(_) | Pattern::Map(_) | Pattern::Deep(..) => {
                *bound = false;
                open
            }
        }
    }

    /// The tightest constant that the clause's guards give for this end of a variable's range.
    fn guarded<'a>(&'a self, clause: &'a Clause, variable: usize, end: End) -> Option<TermRef<'a>> {
        let mut found: Option<TermRef<'a>> = None;
        for comparison in comparisons_of(&clause.comparisons, variable) {
            let bounds = match comparison.function {
                Function::Above | Function::AtLeast => end == End::Lower,
                Function::Below | Function::AtMost => end == End::Upper,
                Function::EqualTo | Function::Same => true,
                _ => false,
            };
            let constant = self.constant(comparison.constant);
            let tighter = found.is_none_or(|found| match end {
                End::Lower => compare(constant, found).is_gt(),
                End::Upper => compare(constant, found).is_lt(),
            });
            if bounds && tighter {
                found = Some(constant);
            }
        }
        found
    }
}

/// The places of the parts of this tuple, in the specification's block, from the first one on that is not ground. With [`BOTTOM`] there, the
/// tuple is the least term that matches. With [`TOP`], it is the greatest. `None` if that is not enough, or if the pattern is no tuple. No
/// guard compares a variable of the head.
pub(crate) fn open_places(spec: &Spec<'_>, pattern: &Pattern, term: TermRef<'_>) -> Option<Box<[usize]>> {
    let (mut places, mut bound) = (Vec::new(), true);
    match pattern {
        Pattern::Tuple(_) if add_open_places(spec, pattern, term, &mut bound, &mut places) => Some(places.into()),
        _ => None,
    }
}

/// Adds the open places of a tuple. `bound` says whether all parts before it are ground. Returns false if there are others.
fn add_open_places(
    spec: &Spec<'_>,
    pattern: &Pattern,
    term: TermRef<'_>,
    bound: &mut bool,
    places: &mut Vec<usize>,
) -> bool {
    let (Pattern::Tuple(patterns), Some(elements)) = (pattern, term.as_tuple()) else {
        // The tail of a list that ends with `[]` has no place.
        return false;
    };
    for (index, part) in patterns.iter().enumerate() {
        match part {
            _ if *bound && part.is_ground() => {}
            Pattern::Tuple(_) | Pattern::List(..) if *bound => {
                if !add_open_places(spec, part, elements.get(index), bound, places) {
                    return false;
                }
            }
            _ => {
                *bound = false;
                places.push(spec.place(elements, index));
            }
        }
    }
    true
}
