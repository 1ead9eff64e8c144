//! The head of a clause as it runs, together with the guards that compare a variable with a constant.
//!
//! Both become tests of an object's element words. Cheap tests run first. So most objects that do not match are found out before any
//! variable is bound. Only variables that something uses are bound. The order makes no difference to what matches: no test has an effect,
//! and none fails.

use crate::function::Function;
use crate::head::{map_place, rest, Flat, Pattern};
use crate::program::{place, Program, Run};
use cats_term::{compare, equal, is_immediate, needed, Elements, List, TermRef, View};
use smallvec::{smallvec, SmallVec};

/// A guard that compares a variable, as its first argument, with a term of the specification.
pub(crate) struct Comparison {
    pub(crate) variable: usize,
    pub(crate) function: Function,
    pub(crate) constant: u64,
}

pub(crate) enum Matcher {
    /// The head is neither a tuple nor a variable.
    Never,
    /// The head is a variable or `'_'`, which stands for the whole object.
    Whole(Part),
    Tuple(Fields),
}

/// The conditions on a tuple.
pub(crate) struct Fields {
    arity: usize,
    /// Tests of elements, with the elements' places.
    tests: Vec<(usize, Test)>,
    /// Elements that must be tuples, for which there are only tests.
    tuples: Vec<(usize, Fields)>,
    /// The other conditions on elements. Bindings of variables come first.
    parts: Vec<(usize, Part)>,
}

/// A test of one term.
#[derive(Clone, Copy)]
pub(crate) enum Test {
    /// The term is the immediate to which code refers by this word.
    Word(u64),
    /// The term is exactly this term of the specification, or, if false, is not.
    Same(u64, bool),
    /// The order of the term relative to this term of the specification is one of these. They are given as a sum of [`LESS`], [`EQUAL`] and
    /// [`GREATER`].
    Order(u64, u8),
}

const LESS: u8 = 1;
const EQUAL: u8 = 2;
const GREATER: u8 = 4;

/// The condition on a single term.
pub(crate) enum Part {
    Any,
    Bind(usize),
    /// The term to which the variable is bound.
    Bound(usize),
    Test(Test),
    /// All of these conditions.
    All(Vec<Part>),
    /// A float with the same bits as this term of the specification.
    Float(u64),
    Tuple(Fields),
    /// A list that begins with these elements and then has this rest.
    List(Vec<Part>, Box<Part>),
    /// A map that has at least these keys.
    Map(Vec<(u64, Part)>),
    /// A tuple, list or map that is nested deeper than objects are stored: the conditions in it, in the order of [`Pattern::Deep`].
    Deep(Vec<Step>),
}

/// A part of [`Part::Deep`].
pub(crate) enum Step {
    /// A tuple of so many elements.
    Tuple(usize),
    /// A list that begins with so many elements.
    List(usize),
    /// A map that has at least these keys.
    Map(Box<[u64]>),
    /// A condition without parts.
    Leaf(Part),
}

/// The comparisons that are about this variable. `comparisons` are in the order of the variables.
pub(crate) fn comparisons_of(comparisons: &[Comparison], variable: usize) -> &[Comparison] {
    let first = comparisons.partition_point(|comparison| comparison.variable < variable);
    let rest = &comparisons[first..];
    &rest[..rest.partition_point(|comparison| comparison.variable == variable)]
}

impl Comparison {
    fn test(&self) -> Test {
        match self.function {
            Function::Above => Test::Order(self.constant, GREATER),
            Function::AtLeast => Test::Order(self.constant, GREATER | EQUAL),
            Function::Below => Test::Order(self.constant, LESS),
            Function::AtMost => Test::Order(self.constant, LESS | EQUAL),
            Function::EqualTo => Test::Order(self.constant, EQUAL),
            Function::Unequal => Test::Order(self.constant, LESS | GREATER),
            Function::Same => Test::same(self.constant),
            Function::Different => Test::Same(self.constant, false),
            other => unreachable!("{other:?} is no comparison"),
        }
    }
}

impl Test {
    fn same(constant: u64) -> Test {
        match place(constant).is_some() || is_immediate(constant) {
            true => Test::Word(constant),
            false => Test::Same(constant, true),
        }
    }

    #[inline(always)]
    fn holds(&self, term: TermRef<'_>, program: &Program) -> bool {
        match *self {
            Test::Word(word) => term.word() == program.word(word),
            Test::Same(constant, wanted) => equal(program.constant(constant), term) == wanted,
            Test::Order(constant, wanted) => {
                let order = compare(term, program.constant(constant));
                wanted >> (order as i8 + 1) & 1 == 1
            }
        }
    }
}

/// What matchers are made from.
struct Parts<'a> {
    comparisons: &'a [Comparison],
    /// For each variable, whether something uses its binding.
    used: &'a [bool],
}

impl Matcher {
    /// The matcher of a head with these guards. `used` says for each variable whether something uses its binding.
    pub(crate) fn new(head: &Pattern, comparisons: &[Comparison], used: &[bool]) -> Matcher {
        let parts = Parts { comparisons, used };
        match head {
            Pattern::Tuple(elements) => Matcher::Tuple(parts.fields(elements)),
            Pattern::Any | Pattern::Bind(_) => Matcher::Whole(parts.part(head)),
            _ => Matcher::Never,
        }
    }

    /// Whether an object with these elements passes all tests that need no bindings.
    #[inline(always)]
    pub(crate) fn passes(&self, elements: Elements<'_>, program: &Program) -> bool {
        match self {
            Matcher::Never => false,
            Matcher::Whole(_) => true,
            Matcher::Tuple(fields) => fields.pass(elements, program),
        }
    }

    /// Whether an object that [`passes`](Self::passes) also passes the tests of the tuples inside it.
    #[inline(always)]
    pub(crate) fn tuples_pass(&self, elements: Elements<'_>, program: &Program) -> bool {
        match self {
            Matcher::Tuple(fields) => fields.tuples_pass(elements, program),
            Matcher::Never | Matcher::Whole(_) => true,
        }
    }

    /// Whether every object that passes these tests matches, and no variable must be bound.
    pub(crate) fn is_tests_alone(&self) -> bool {
        match self {
            Matcher::Never => false,
            Matcher::Whole(part) => matches!(part, Part::Any),
            Matcher::Tuple(fields) => fields.is_tests_alone(),
        }
    }

    /// The place of the last element that has a test.
    pub(crate) fn last_tested(&self) -> Option<usize> {
        match self {
            Matcher::Tuple(fields) => {
                let (tests, tuples) = (fields.tests.iter(), fields.tuples.iter());
                tests
                    .map(|(place, _)| *place)
                    .chain(tuples.map(|(place, _)| *place))
                    .max()
            }
            Matcher::Never | Matcher::Whole(_) => None,
        }
    }

    /// Whether an object that [`passes`](Self::passes) matches. Binds variables.
    #[inline]
    pub(crate) fn matches<'a>(&self, run: &Run<'a>, bindings: &mut [TermRef<'a>]) -> bool {
        match self {
            Matcher::Never => false,
            Matcher::Whole(Part::Any) => true,
            Matcher::Whole(part) => run.whole().is_some_and(|whole| part.matches(whole, run, bindings)),
            Matcher::Tuple(fields) => fields.match_parts(run.object.elements, run, bindings),
        }
    }
}

impl Parts<'_> {
    fn tests(&self, variable: usize) -> impl Iterator<Item = Test> + '_ {
        comparisons_of(self.comparisons, variable).iter().map(Comparison::test)
    }

    fn fields(&self, elements: &[Pattern]) -> Fields {
        let (mut tests, mut tuples, mut binds, mut parts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (place, pattern) in elements.iter().enumerate() {
            match pattern {
                Pattern::Any => {}
                Pattern::Constant(word) => tests.push((place, Test::same(*word))),
                Pattern::Bind(variable) => {
                    tests.extend(self.tests(*variable).map(|test| (place, test)));
                    if self.used[*variable] {
                        binds.push((place, Part::Bind(*variable)));
                    }
                }
                _ => match self.part(pattern) {
                    Part::Tuple(fields) if fields.is_tests_alone() => tuples.push((place, fields)),
                    part => parts.push((place, part)),
                },
            }
        }
        tests.sort_by_key(|(_, test)| !matches!(test, Test::Word(_)));
        binds.extend(parts);
        Fields {
            arity: elements.len(),
            tests,
            tuples,
            parts: binds,
        }
    }

    fn part(&self, pattern: &Pattern) -> Part {
        match pattern {
            Pattern::Any => Part::Any,
            Pattern::Bind(variable) => {
                let mut parts: Vec<_> = self.tests(*variable).map(Part::Test).collect();
                if self.used[*variable] {
                    parts.push(Part::Bind(*variable));
                }
                match parts.len() {
                    0 => Part::Any,
                    1 => parts.remove(0),
                    _ => Part::All(parts),
                }
            }
            Pattern::Bound(variable) => Part::Bound(*variable),
            Pattern::Constant(word) => Part::Test(Test::same(*word)),
            Pattern::Float(word) => Part::Float(*word),
            Pattern::Tuple(elements) => Part::Tuple(self.fields(elements)),
            Pattern::List(elements, tail) => Part::List(
                elements.iter().map(|element| self.part(element)).collect(),
                Box::new(self.part(tail)),
            ),
            Pattern::Map(pairs) => Part::Map(pairs.iter().map(|(key, value)| (*key, self.part(value))).collect()),
            Pattern::Deep(_, parts) => Part::Deep(
                parts
                    .iter()
                    .map(|part| match part {
                        Flat::Tuple(count, _) => Step::Tuple(*count),
                        Flat::List(count, _) => Step::List(*count),
                        Flat::Map(keys) => Step::Map(keys.clone()),
                        Flat::Leaf(pattern) => Step::Leaf(self.part(pattern)),
                    })
                    .collect(),
            ),
        }
    }
}

impl Fields {
    #[inline(always)]
    fn pass(&self, elements: Elements<'_>, program: &Program) -> bool {
        if elements.len() != self.arity {
            return false;
        }
        for (place, test) in &self.tests {
            if !test.holds(elements.get(*place), program) {
                return false;
            }
        }
        true
    }

    /// Whether the tuples inside a tuple pass their tests.
    #[inline(always)]
    fn tuples_pass(&self, elements: Elements<'_>, program: &Program) -> bool {
        for (place, fields) in &self.tuples {
            let Some(elements) = elements.get(*place).as_tuple() else {
                return false;
            };
            if !fields.pass(elements, program) || !fields.tuples.is_empty() && !fields.deeper_pass(elements, program) {
                return false;
            }
        }
        true
    }

    #[inline(never)]
    fn deeper_pass(&self, elements: Elements<'_>, program: &Program) -> bool {
        self.tuples_pass(elements, program)
    }

    fn is_tests_alone(&self) -> bool {
        self.parts.is_empty()
    }

    /// Whether a tuple inside an object matches. Binds variables.
    #[inline(never)]
    fn matches<'a>(&self, elements: Elements<'a>, run: &Run<'a>, bindings: &mut [TermRef<'a>]) -> bool {
        self.pass(elements, run.program) && self.match_parts(elements, run, bindings)
    }

    #[inline(always)]
    fn match_parts<'a>(&self, elements: Elements<'a>, run: &Run<'a>, bindings: &mut [TermRef<'a>]) -> bool {
        if !self.tuples_pass(elements, run.program) {
            return false;
        }
        for (place, part) in &self.parts {
            if !part.matches(elements.get(*place), run, bindings) {
                return false;
            }
        }
        true
    }
}

impl Part {
    /// Whether the term meets the condition. Binds variables.
    #[inline(always)]
    fn matches<'a>(&self, term: TermRef<'a>, run: &Run<'a>, bindings: &mut [TermRef<'a>]) -> bool {
        match self {
            Part::Any => true,
            Part::Bind(variable) => {
                bindings[*variable] = term;
                true
            }
            Part::Test(test) => test.holds(term, run.program),
            Part::Tuple(fields) => match term.as_tuple() {
                Some(elements) => fields.matches(elements, run, bindings),
                None => false,
            },
            _ => self.matches_compound(term, run, bindings),
        }
    }

    #[inline(never)]
    fn matches_compound<'a>(&self, term: TermRef<'a>, run: &Run<'a>, bindings: &mut [TermRef<'a>]) -> bool {
        match self {
            Part::Any | Part::Bind(_) | Part::Test(_) | Part::Tuple(_) => self.matches(term, run, bindings),
            Part::Bound(variable) => equal(bindings[*variable], term),
            Part::All(parts) => parts.iter().all(|part| part.matches(term, run, bindings)),
            Part::Float(word) => match (term.view(), run.constant(*word).view()) {
                (View::Float(a), View::Float(b)) => a.to_bits() == b.to_bits(),
                _ => false,
            },
            Part::List(parts, tail) => match term.view() {
                View::List(list) => {
                    list.elements().len() >= parts.len()
                        && parts
                            .iter()
                            .zip(list.elements().iter())
                            .all(|(part, element)| part.matches(element, run, bindings))
                        && tail.matches_rest(list, parts.len(), run, bindings)
                }
                _ => false,
            },
            Part::Map(pairs) => match term.view() {
                View::Map(map) => {
                    // Two maps have their common keys in the same order. So the search for each key begins after the previous one.
                    let mut behind = 0;
                    pairs.iter().all(|(key, part)| {
                        let place = map_place(map, run.constant(*key), behind);
                        place.is_some_and(|place| {
                            behind = place + 1;
                            part.matches(map.values.get(place), run, bindings)
                        })
                    })
                }
                _ => false,
            },
            Part::Deep(steps) => Self::matches_deep(steps, term, run, bindings).is_some(),
        }
    }

    /// Fails where a term does not meet its condition.
    #[cold]
    fn matches_deep<'a>(steps: &[Step], term: TermRef<'a>, run: &Run<'a>, bindings: &mut [TermRef<'a>]) -> Option<()> {
        // The terms that must meet the next conditions, the next one last.
        let mut terms: SmallVec<[TermRef<'a>; 8]> = smallvec![term];
        let add = |terms: &mut SmallVec<[TermRef<'a>; 8]>, count: usize| needed(terms.try_reserve(count).ok());
        for (at, step) in steps.iter().enumerate() {
            let term = terms.pop()?;
            if let Step::Leaf(part) = step {
                part.matches(term, run, bindings).then_some(())?;
                continue;
            }
            let term = run.opened(term)?;
            match (step, term.view()) {
                (Step::Tuple(count), View::Tuple(elements)) if elements.len() == *count => {
                    add(&mut terms, *count);
                    terms.extend((0..*count).rev().map(|place| elements.get(place)));
                }
                (Step::List(count), View::List(list)) if list.elements().len() >= *count => {
                    add(&mut terms, count + 1);
                    terms.extend((0..*count).rev().map(|place| list.elements().get(place)));
                    let tail = match steps.get(at + 1) {
                        Some(Step::Leaf(Part::Any)) => list.tail(),
                        _ => rest(list, *count, run.arena)?,
                    };
                    terms.push(tail);
                }
                (Step::Map(keys), View::Map(map)) => {
                    add(&mut terms, keys.len());
                    for key in keys.iter().rev() {
                        let place = map_place(map, run.constant(*key), 0)?;
                        terms.push(map.values.get(place));
                    }
                }
                _ => return None,
            }
        }
        Some(())
    }

    /// Whether the list after its first `from` elements meets the condition.
    fn matches_rest<'a>(&self, list: List<'a>, from: usize, run: &Run<'a>, bindings: &mut [TermRef<'a>]) -> bool {
        if from == list.elements().len() {
            return self.matches(list.tail(), run, bindings);
        }
        match self {
            Part::Any => true,
            // A list with elements is not an immediate.
            Part::Test(Test::Word(_)) => false,
            _ => rest(list, from, run.arena).is_some_and(|rest| self.matches(rest, run, bindings)),
        }
    }
}
