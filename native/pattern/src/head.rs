//! The head of a clause: a pattern with variables. A held tuple, list or map, which is nested too deep, is a constant here. Variables in it
//! are not known.

use crate::arena::Arena;
use crate::name::{name, Name};
use crate::program::{Invalid, Spec, Vm};
use cats_term::{equal, Elements, List, Map, TermRef, View};
use smallvec::SmallVec;
use std::collections::BTreeMap;

pub(crate) enum Pattern {
    /// `'_'`
    Any,
    /// The first occurrence of a variable.
    Bind(usize),
    /// A further occurrence of a variable, which must be exactly the same term.
    Bound(usize),
    /// Exactly this term of the specification, given by its word.
    Constant(u64),
    /// A float of the specification, compared by its bits. The VM does so in heads too: there 0.0 does not match -0.0.
    Float(u64),
    Tuple(Vec<Pattern>),
    List(Vec<Pattern>, Box<Pattern>),
    /// A map that has at least these keys.
    Map(Vec<(u64, Pattern)>),
}

/// The variables of one clause that the head has bound so far.
#[derive(Default)]
pub(crate) struct Variables {
    /// The place of each variable among the bindings, by the variable's number.
    places: BTreeMap<u64, usize>,
}

impl Variables {
    pub(crate) fn place(&self, number: u64) -> Option<usize> {
        self.places.get(&number).copied()
    }

    /// The places in the order of the variables' numbers, as `'$$'` lists them.
    pub(crate) fn in_order(&self) -> SmallVec<[usize; 4]> {
        self.places.values().copied().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    fn bind(&mut self, number: u64) -> Pattern {
        match self.place(number) {
            Some(place) => Pattern::Bound(place),
            None => {
                let place = self.places.len();
                self.places.insert(number, place);
                Pattern::Bind(place)
            }
        }
    }
}

/// The number of a variable. `None` if the term is not a variable.
pub(crate) fn variable(vm: &Vm, term: TermRef<'_>) -> Option<u64> {
    match name(vm, term) {
        Name::Variable(number) => Some(number),
        _ => None,
    }
}

impl Pattern {
    /// Compiles a term. `word` is the word by which code refers to it.
    pub(crate) fn compile<'a>(
        spec: &Spec<'a>,
        term: TermRef<'a>,
        word: u64,
        variables: &mut Variables,
    ) -> Result<Pattern, Invalid> {
        Ok(match term.view() {
            View::Immediate(atom) if atom == spec.vm.underscore => Pattern::Any,
            View::Immediate(_) => match variable(spec.vm, term) {
                Some(number) => variables.bind(number),
                None => Pattern::Constant(word),
            },
            View::Tuple(elements) => Pattern::Tuple(Self::compile_all(spec, elements, variables)?),
            View::List(list) => {
                let elements = Self::compile_all(spec, list.elements(), variables)?;
                let tail = Self::compile(spec, list.tail(), spec.tail_word(list), variables)?;
                Pattern::List(elements, Box::new(tail))
            }
            View::Map(map) => {
                let mut pairs = Vec::with_capacity(map.keys.len());
                for place in 0..map.keys.len() {
                    let (key, value) = (map.keys.get(place), map.values.get(place));
                    if key.word() == spec.vm.underscore || variable(spec.vm, key).is_some() {
                        return Err(Invalid);
                    }
                    let value = Self::compile(spec, value, spec.word(map.values, place), variables)?;
                    pairs.push((spec.word(map.keys, place), value));
                }
                Pattern::Map(pairs)
            }
            View::Float(_) => Pattern::Float(word),
            _ => Pattern::Constant(word),
        })
    }

    fn compile_all<'a>(
        spec: &Spec<'a>,
        elements: Elements<'a>,
        variables: &mut Variables,
    ) -> Result<Vec<Pattern>, Invalid> {
        let mut patterns = Vec::with_capacity(elements.len());
        for (place, element) in elements.iter().enumerate() {
            patterns.push(Self::compile(spec, element, spec.word(elements, place), variables)?);
        }
        Ok(patterns)
    }

    /// Whether the pattern has no variable, no `'_'` and no map. Then exactly one term matches it.
    pub(crate) fn is_ground(&self) -> bool {
        match self {
            Pattern::Any | Pattern::Bind(_) | Pattern::Bound(_) | Pattern::Map(_) => false,
            Pattern::Constant(_) | Pattern::Float(_) => true,
            Pattern::Tuple(elements) => elements.iter().all(Self::is_ground),
            Pattern::List(elements, tail) => elements.iter().all(Self::is_ground) && tail.is_ground(),
        }
    }

    /// Marks the variables whose bindings the pattern itself uses.
    pub(crate) fn use_variables(&self, used: &mut [bool]) {
        match self {
            Pattern::Bound(variable) => used[*variable] = true,
            Pattern::Tuple(elements) => elements.iter().for_each(|element| element.use_variables(used)),
            Pattern::List(elements, tail) => {
                elements.iter().for_each(|element| element.use_variables(used));
                tail.use_variables(used);
            }
            Pattern::Map(pairs) => pairs.iter().for_each(|(_, value)| value.use_variables(used)),
            Pattern::Any | Pattern::Bind(_) | Pattern::Constant(_) | Pattern::Float(_) => {}
        }
    }
}

/// The list after the first `from` elements, as a term of its own. `None` when memory is exhausted, or if it costs too much. `from` is at
/// most the number of elements.
pub(crate) fn rest<'a>(list: List<'a>, from: usize, arena: &'a Arena) -> Option<TermRef<'a>> {
    let left = list.elements().len() - from;
    if left == 0 {
        return Some(list.tail());
    }
    arena.make(|builder| {
        let item = builder.list(left);
        let terms = list.elements().iter().skip(from).chain([list.tail()]);
        arena.copy_all(builder, item, 0, terms)?;
        Some(item.word())
    })
}

/// The value of a key of a map. Keys are compared exactly.
pub(crate) fn map_get<'a>(map: Map<'a>, key: TermRef<'_>) -> Option<TermRef<'a>> {
    map_place(map, key, 0).map(|place| map.values.get(place))
}

/// The place of a key in a map. The search begins at place `from`, and ends with the places before it.
pub(crate) fn map_place(map: Map<'_>, key: TermRef<'_>, from: usize) -> Option<usize> {
    let mut places = (from..map.keys.len()).chain(0..from);
    places.find(|&place| equal(map.keys.get(place), key))
}
