//! The head of a clause: a pattern with variables.

use crate::arena::Arena;
use crate::name::{name, Name};
use crate::program::{Invalid, Spec, Vm};
use cats_term::{equal, needed, Elements, List, Map, TermRef, View, MAX_DEPTH};
use smallvec::{smallvec, SmallVec};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

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
    /// A tuple, list or map that is nested deeper than objects are stored, by its word, and the patterns in it, each before those that are nested in it. The
    /// tail of a list comes before its elements.
    Deep(u64, Vec<Flat>),
}

/// A part of [`Pattern::Deep`].
pub(crate) enum Flat {
    /// A tuple of so many elements. The second number is its word.
    Tuple(usize, u64),
    /// A list that begins with so many elements. The second number is its word.
    List(usize, u64),
    /// A map that has at least these keys.
    Map(Box<[u64]>),
    /// What has no parts.
    Leaf(Pattern),
}

/// The variables of one clause that the head has bound so far.
#[derive(Default)]
pub(crate) struct Variables {
    /// The place of each variable among the bindings, by the variable's number.
    places: BTreeMap<u64, usize>,
    in_order: OnceCell<Arc<[usize]>>,
}

impl Variables {
    pub(crate) fn place(&self, number: u64) -> Option<usize> {
        self.places.get(&number).copied()
    }

    /// The places in the order of the variables' numbers, as `'$$'` lists them. To be asked for when all variables are bound.
    pub(crate) fn in_order(&self) -> Arc<[usize]> {
        let places = || self.places.values().copied().collect();
        self.in_order.get_or_init(places).clone()
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
    /// Compiles a term. `word` is the word by which code refers to it, `depth` how deep what it matches is nested in an object.
    pub(crate) fn compile<'a>(
        spec: &Spec<'a>,
        term: TermRef<'a>,
        word: u64,
        depth: usize,
        variables: &mut Variables,
    ) -> Result<Pattern, Invalid> {
        Ok(match term.view() {
            View::Tuple(_) | View::List(_) | View::Map(_) if depth >= MAX_DEPTH => {
                Pattern::Deep(word, Self::compile_deep(spec, term, variables)?)
            }
            View::Tuple(elements) => Pattern::Tuple(Self::compile_all(spec, elements, depth + 1, variables)?),
            View::List(list) => {
                let elements = Self::compile_all(spec, list.elements(), depth + 1, variables)?;
                let tail = Self::compile(spec, list.tail(), spec.tail_word(list), depth + 1, variables)?;
                Pattern::List(elements, Box::new(tail))
            }
            View::Map(map) => {
                let mut pairs = Vec::with_capacity(map.keys.len());
                for place in 0..map.keys.len() {
                    let key = Self::compile_key(spec, map, place)?;
                    let (value, word) = (map.values.get(place), spec.word(map.values, place));
                    pairs.push((key, Self::compile(spec, value, word, depth + 1, variables)?));
                }
                Pattern::Map(pairs)
            }
            _ => Self::leaf(spec, term, word, variables),
        })
    }

    fn compile_all<'a>(
        spec: &Spec<'a>,
        elements: Elements<'a>,
        depth: usize,
        variables: &mut Variables,
    ) -> Result<Vec<Pattern>, Invalid> {
        let mut patterns = Vec::with_capacity(elements.len());
        for (place, element) in elements.iter().enumerate() {
            let word = spec.word(elements, place);
            patterns.push(Self::compile(spec, element, word, depth, variables)?);
        }
        Ok(patterns)
    }

    /// Compiles a term without parts.
    fn leaf(spec: &Spec<'_>, term: TermRef<'_>, word: u64, variables: &mut Variables) -> Pattern {
        match term.view() {
            View::Immediate(atom) if atom == spec.vm.underscore => Pattern::Any,
            View::Immediate(_) => match variable(spec.vm, term) {
                Some(number) => variables.bind(number),
                None => Pattern::Constant(word),
            },
            View::Float(_) => Pattern::Float(word),
            _ => Pattern::Constant(word),
        }
    }

    /// The word of a key of a map, which must be a constant.
    fn compile_key(spec: &Spec<'_>, map: Map<'_>, place: usize) -> Result<u64, Invalid> {
        let key = map.keys.get(place);
        match key.word() == spec.vm.underscore || variable(spec.vm, key).is_some() {
            true => Err(Invalid),
            false => Ok(spec.word(map.keys, place)),
        }
    }

    fn compile_deep<'a>(spec: &Spec<'a>, term: TermRef<'a>, variables: &mut Variables) -> Result<Vec<Flat>, Invalid> {
        let mut parts = Vec::new();
        // Terms to compile, the next one last, with their words.
        let mut rest: SmallVec<[_; 8]> = smallvec![(term, term.word())];
        let add = |rest: &mut _, elements| spec.add_parts(rest, elements, 0, |term, word| (term, word));
        while let Some((term, word)) = rest.pop() {
            let part = match term.view() {
                View::Tuple(elements) => {
                    add(&mut rest, elements);
                    Flat::Tuple(elements.len(), word)
                }
                View::List(list) => {
                    add(&mut rest, list.elements());
                    needed(rest.try_reserve(1).ok());
                    rest.push((list.tail(), spec.tail_word(list)));
                    Flat::List(list.elements().len(), word)
                }
                View::Map(map) => {
                    let keys = (0..map.keys.len()).map(|place| Self::compile_key(spec, map, place));
                    let keys = keys.collect::<Result<_, _>>()?;
                    add(&mut rest, map.values);
                    Flat::Map(keys)
                }
                _ => Flat::Leaf(Self::leaf(spec, term, word, variables)),
            };
            needed(parts.try_reserve(1).ok());
            parts.push(part);
        }
        Ok(parts)
    }

    /// Whether the pattern has no variable, no `'_'` and no map. Then exactly one term matches it.
    pub(crate) fn is_ground(&self) -> bool {
        match self {
            Pattern::Any | Pattern::Bind(_) | Pattern::Bound(_) | Pattern::Map(_) => false,
            Pattern::Constant(_) | Pattern::Float(_) => true,
            Pattern::Tuple(elements) => elements.iter().all(Self::is_ground),
            Pattern::List(elements, tail) => elements.iter().all(Self::is_ground) && tail.is_ground(),
            Pattern::Deep(_, parts) => parts.iter().all(Flat::is_ground),
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
            Pattern::Deep(_, parts) => parts.iter().for_each(|part| {
                if let Flat::Leaf(pattern) = part {
                    pattern.use_variables(used);
                }
            }),
            Pattern::Any | Pattern::Bind(_) | Pattern::Constant(_) | Pattern::Float(_) => {}
        }
    }
}

impl Flat {
    /// Whether it does not keep a pattern from being [ground](Pattern::is_ground).
    pub(crate) fn is_ground(&self) -> bool {
        match self {
            Flat::Tuple(..) | Flat::List(..) => true,
            Flat::Map(_) => false,
            Flat::Leaf(pattern) => pattern.is_ground(),
        }
    }

    /// The number of patterns that are nested in it directly.
    pub(crate) fn parts(&self) -> usize {
        match self {
            Flat::Tuple(count, _) => *count,
            Flat::List(count, _) => count + 1,
            Flat::Map(keys) => keys.len(),
            Flat::Leaf(_) => 0,
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
