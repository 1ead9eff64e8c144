//! Whether a program can replace an object only by one with exactly the same key. `select_replace` requires that.

use crate::expression::Expression;
use crate::function::Function;
use crate::head::Pattern;
use crate::program::{Clause, Program};
use cats_term::{equal, Elements, TermRef, View};

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
        let [body] = &clause.body[..] else { return false };
        if matches!(body, Expression::Object) {
            return true;
        }
        let Some(key) = self.key(clause, position) else {
            return false;
        };
        match body {
            Expression::Tuple(elements) => elements
                .get(position)
                .is_some_and(|element| self.yields(key, element) || self.is_key_of_object(element, position)),
            Expression::Constant(word) => match self.constant(*word).view() {
                View::Tuple(elements) => elements.len() > position && key.is_only(elements.get(position)),
                _ => false,
            },
            _ => false,
        }
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

    /// Whether the expression is `{element, KeyPosition, '$_'}`.
    fn is_key_of_object(&self, expression: &Expression, position: usize) -> bool {
        match expression {
            Expression::Call(Function::Element, arguments) => match &arguments[..] {
                [Expression::Constant(word), Expression::Object] => {
                    self.constant(*word).small() == Some(position as i64 + 1)
                }
                _ => false,
            },
            _ => false,
        }
    }

    /// Whether the value of the expression is always what the part matched.
    fn yields(&self, part: Part<'_>, expression: &Expression) -> bool {
        let all = |patterns: &[Pattern], terms: Elements<'_>, expressions: &[Expression]| {
            let parts = patterns
                .iter()
                .zip(terms.iter())
                .map(|(pattern, term)| Part { pattern, term });
            patterns.len() == expressions.len()
                && parts
                    .zip(expressions)
                    .all(|(part, expression)| self.yields(part, expression))
        };
        match (part.pattern, part.term.view(), expression) {
            (Pattern::Bind(a) | Pattern::Bound(a), _, Expression::Variable(b)) => a == b,
            (Pattern::Tuple(patterns), View::Tuple(terms), Expression::Tuple(expressions)) => {
                all(patterns, terms, expressions)
            }
            (Pattern::List(patterns, end), View::List(list), Expression::List(expressions, tail)) => {
                let end = Part {
                    pattern: end,
                    term: list.tail(),
                };
                all(patterns, list.elements(), expressions) && self.yields(end, tail)
            }
            (_, _, Expression::Constant(word)) => part.is_only(self.constant(*word)),
            _ => false,
        }
    }
}

/// A part of a head: its pattern, and the term of the specification that the pattern is.
#[derive(Clone, Copy)]
struct Part<'a> {
    pattern: &'a Pattern,
    term: TermRef<'a>,
}

impl Part<'_> {
    /// Whether the part matches only this term.
    fn is_only(&self, term: TermRef<'_>) -> bool {
        self.pattern.is_ground() && equal(self.term, term)
    }
}
