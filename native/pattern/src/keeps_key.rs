//! Whether a program can replace an object only by one with exactly the same key. `select_replace` requires that.

use crate::expression::Op;
use crate::head::{Flat, Pattern};
use crate::program::{Clause, Program};
use crate::template::Piece;
use cats_term::{equal, Elements, TermRef, View};
use smallvec::{smallvec, SmallVec};

impl Program {
    /// Whether each clause's body can be seen, by its form alone, to be an object with the matched object's key. `position` is the key's
    /// place in objects, counted from 0.
    pub fn keeps_key(&self, position: usize) -> bool {
        self.code
            .clauses
            .iter()
            .all(|clause| self.clause_keeps_key(clause, position))
    }

    fn clause_keeps_key(&self, clause: &Clause, position: usize) -> bool {
        if !clause.has_one_body {
            return false;
        }
        match &clause.body.ops[..] {
            [Op::Object] => true,
            [Op::Constant(word)] => match (self.key(clause, position), self.constant(*word).view()) {
                (Some(key), View::Tuple(elements)) => elements.len() > position && key.is_only(elements.get(position)),
                _ => false,
            },
            [.., Op::Build(template)] => match (self.key(clause, position), template.element(position)) {
                (_, Some([Piece::Element(_, word)])) if self.is_position(*word, position) => true,
                (Some(key), Some(pieces)) => self.yield_key(key, pieces),
                _ => false,
            },
            _ => false,
        }
    }

    /// Whether the position of a call of `element/2` is this place, counted from 0.
    fn is_position(&self, word: u64, place: usize) -> bool {
        self.constant(word).small() == Some(place as i64 + 1)
    }

    /// The key in the clause's head.
    fn key<'a>(&'a self, clause: &'a Clause, position: usize) -> Option<Part<'a>> {
        match (&clause.head, self.constant(clause.word).view()) {
            (Pattern::Tuple(patterns), View::Tuple(elements)) => Some(Part {
                pattern: patterns.get(position)?,
                term: elements.get(position),
            }),
            _ => None,
        }
    }

    /// Whether what the pieces build is always what the key matched.
    fn yield_key(&self, key: Part<'_>, pieces: &[Piece]) -> bool {
        // The parts of the key that the next pieces must yield, the next one last.
        let mut parts: SmallVec<[Part<'_>; 8]> = smallvec![key];
        let mut rest = pieces;
        while let Some(part) = parts.pop() {
            let Some((piece, others)) = rest.split_first() else {
                return false;
            };
            rest = others;
            match (part.pattern, part.term.view(), piece) {
                (Pattern::Deep(_, flat), ..) => match self.yield_deep(flat, part.term, piece, rest) {
                    Some(behind) => rest = behind,
                    None => return false,
                },
                (Pattern::Bind(a) | Pattern::Bound(a), _, Piece::Variable(b)) if a == b => {}
                (Pattern::Tuple(patterns), View::Tuple(terms), Piece::Tuple(count)) if patterns.len() == *count => {
                    parts.extend(Part::all(patterns, terms));
                }
                (Pattern::List(patterns, tail), View::List(list), Piece::List(count)) if patterns.len() == *count => {
                    parts.extend(Part::all(patterns, list.elements()));
                    parts.push(Part {
                        pattern: tail,
                        term: list.tail(),
                    });
                }
                (_, _, Piece::Constant(word)) if part.is_only(self.constant(*word)) => {}
                _ => return false,
            }
        }
        true
    }

    /// Whether a piece and those that follow yield what a deep part of the key matched. Returns the pieces behind them.
    fn yield_deep<'n>(
        &self,
        flat: &[Flat],
        term: TermRef<'_>,
        piece: &Piece,
        pieces: &'n [Piece],
    ) -> Option<&'n [Piece]> {
        if let Piece::Constant(word) = piece {
            return (flat.iter().all(Flat::is_ground) && equal(term, self.constant(*word))).then_some(pieces);
        }
        let (mut piece, mut pieces, mut at) = (piece, pieces, 0);
        loop {
            let part = flat.get(at)?;
            at += 1;
            match (part, piece) {
                (Flat::Tuple(a, _), Piece::Tuple(b)) | (Flat::List(a, _), Piece::List(b)) if a == b => {}
                (Flat::Leaf(Pattern::Bind(a) | Pattern::Bound(a)), Piece::Variable(b)) if a == b => {}
                (Flat::Leaf(Pattern::Constant(a) | Pattern::Float(a)), Piece::Constant(b))
                    if equal(self.constant(*a), self.constant(*b)) => {}
                (Flat::Tuple(_, a) | Flat::List(_, a), Piece::Constant(b)) => {
                    let end = at - 1 + length(&flat[at - 1..]);
                    let ground = flat[at..end].iter().all(Flat::is_ground);
                    (ground && equal(self.constant(*a), self.constant(*b))).then_some(())?;
                    at = end;
                }
                _ => return None,
            }
            if at == flat.len() {
                return Some(pieces);
            }
            (piece, pieces) = pieces.split_first()?;
        }
    }
}

/// The number of patterns in the first part with all that is nested in it.
fn length(flat: &[Flat]) -> usize {
    let (mut left, mut count) = (1, 0);
    while left > 0 {
        left += flat[count].parts();
        left -= 1;
        count += 1;
    }
    count
}

/// A part of a head: its pattern, and the term of the specification that the pattern is.
#[derive(Clone, Copy)]
struct Part<'a> {
    pattern: &'a Pattern,
    term: TermRef<'a>,
}

impl<'a> Part<'a> {
    /// The parts of a tuple or list, the last one first.
    fn all(patterns: &'a [Pattern], terms: Elements<'a>) -> impl Iterator<Item = Part<'a>> {
        let places = (0..patterns.len()).rev();
        places.map(move |place| Part {
            pattern: &patterns[place],
            term: terms.get(place),
        })
    }

    /// Whether the part matches only this term.
    fn is_only(&self, term: TermRef<'_>) -> bool {
        self.pattern.is_ground() && equal(self.term, term)
    }
}
