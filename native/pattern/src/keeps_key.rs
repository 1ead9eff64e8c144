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
        let Pattern::Tuple(head) = &clause.head else {
            return false;
        };
        let Some(key) = head.get(position) else { return false };
        match body {
            Expression::Tuple(elements) => elements
                .get(position)
                .is_some_and(|element| self.yields(key, element) || self.is_key_of_object(element, position)),
            Expression::Constant(word) => match self.constant(*word).view() {
                View::Tuple(elements) => elements.len() > position && self.is_only(key, elements.get(position)),
                _ => false,
            },
            _ => false,
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

    /// Whether the value of the expression is always what the pattern matched.
    fn yields(&self, pattern: &Pattern, expression: &Expression) -> bool {
        let all = |patterns: &[Pattern], expressions: &[Expression]| {
            patterns.len() == expressions.len()
                && patterns
                    .iter()
                    .zip(expressions)
                    .all(|(pattern, expression)| self.yields(pattern, expression))
        };
        match (pattern, expression) {
            (Pattern::Bind(a) | Pattern::Bound(a), Expression::Variable(b)) => a == b,
            (Pattern::Tuple(patterns), Expression::Tuple(expressions)) => all(patterns, expressions),
            (Pattern::List(patterns, end), Expression::List(expressions, tail)) => {
                all(patterns, expressions) && self.yields(end, tail)
            }
            (_, Expression::Constant(word)) => self.is_only(pattern, self.constant(*word)),
            _ => false,
        }
    }

    /// Whether the pattern matches only this term.
    fn is_only(&self, pattern: &Pattern, term: TermRef<'_>) -> bool {
        let all = |patterns: &[Pattern], elements: Elements<'_>| {
            patterns.len() == elements.len()
                && patterns
                    .iter()
                    .zip(elements.iter())
                    .all(|(pattern, element)| self.is_only(pattern, element))
        };
        match (pattern, term.view()) {
            (Pattern::Constant(word) | Pattern::Deep(word) | Pattern::Float(word), _) => {
                equal(self.constant(*word), term)
            }
            (Pattern::Tuple(patterns), View::Tuple(elements)) => all(patterns, elements),
            (Pattern::List(patterns, end), View::List(list)) => {
                all(patterns, list.elements()) && self.is_only(end, list.tail())
            }
            _ => false,
        }
    }
}
