//! Guards and bodies: constants, variables, constructors, logical operators and calls.

use crate::function::Function;
use crate::head::Variables;
use crate::name::{name, Name};
use crate::program::{Invalid, Output, Run, Spec};
use cats_term::{Elements, TermRef, View, NIL};
use smallvec::SmallVec;

pub(crate) enum Expression {
    /// A term of the specification, by its word.
    Constant(u64),
    Variable(usize),
    /// `'$_'`
    Object,
    /// `'$$'`: the places of all variables, in the order of the variables' numbers.
    Bindings(SmallVec<[usize; 4]>),
    Tuple(Vec<Expression>),
    List(Vec<Expression>, Box<Expression>),
    Map(Vec<Expression>, Vec<Expression>),
    And(Vec<Expression>),
    Or(Vec<Expression>),
    AndAlso(Vec<Expression>),
    OrElse(Vec<Expression>),
    /// `{self}`
    Caller,
    Call(Function, Vec<Expression>),
}

impl Expression {
    /// Compiles a proper list of guards, or of the expressions of a body.
    pub(crate) fn compile_list<'a>(
        spec: &Spec<'a>,
        term: TermRef<'a>,
        variables: &Variables,
    ) -> Result<SmallVec<[Self; 1]>, Invalid> {
        match term.view() {
            View::Immediate(NIL) => Ok(SmallVec::new()),
            View::List(list) if list.tail().word() == NIL => {
                let mut expressions = SmallVec::new();
                for place in 0..list.elements().len() {
                    expressions.push(Self::compile_part(spec, list.elements(), place, variables)?);
                }
                Ok(expressions)
            }
            _ => Err(Invalid),
        }
    }

    /// Compiles the elements from place `from` on.
    fn compile_all<'a>(
        spec: &Spec<'a>,
        elements: Elements<'a>,
        from: usize,
        variables: &Variables,
    ) -> Result<Vec<Self>, Invalid> {
        let places = from..elements.len();
        places
            .map(|place| Self::compile_part(spec, elements, place, variables))
            .collect()
    }

    fn compile_part<'a>(
        spec: &Spec<'a>,
        elements: Elements<'a>,
        place: usize,
        variables: &Variables,
    ) -> Result<Self, Invalid> {
        Self::compile(spec, elements.get(place), spec.word(elements, place), variables)
    }

    /// Compiles a term. `word` is the word by which code refers to it.
    fn compile<'a>(spec: &Spec<'a>, term: TermRef<'a>, word: u64, variables: &Variables) -> Result<Self, Invalid> {
        match term.view() {
            View::Immediate(_) => match name(spec.vm, term) {
                Name::Variable(number) => variables.place(number).map(Expression::Variable).ok_or(Invalid),
                Name::Object => Ok(Expression::Object),
                Name::Bindings => Ok(Expression::Bindings(variables.in_order())),
                Name::Plain | Name::Known(_) => Ok(Expression::Constant(word)),
            },
            View::List(list) => Ok(Expression::List(
                Self::compile_all(spec, list.elements(), 0, variables)?,
                Box::new(Self::compile(spec, list.tail(), spec.tail_word(list), variables)?),
            )),
            View::Map(map) => Ok(Expression::Map(
                Self::compile_all(spec, map.keys, 0, variables)?,
                Self::compile_all(spec, map.values, 0, variables)?,
            )),
            View::Tuple(elements) => {
                if elements.is_empty() {
                    return Err(Invalid);
                }
                let first = elements.get(0);
                if let (1, View::Tuple(inner)) = (elements.len(), first.view()) {
                    return Ok(Expression::Tuple(Self::compile_all(spec, inner, 0, variables)?));
                }
                let Name::Known(name) = name(spec.vm, first) else {
                    return Err(Invalid);
                };
                if name == "const" {
                    return match elements.len() {
                        2 => Ok(Expression::Constant(spec.word(elements, 1))),
                        _ => Err(Invalid),
                    };
                }
                let arguments = Self::compile_all(spec, elements, 1, variables)?;
                match name {
                    "and" | "or" | "andalso" | "andthen" | "orelse" if arguments.is_empty() => Err(Invalid),
                    "and" => Ok(Expression::And(arguments)),
                    "or" => Ok(Expression::Or(arguments)),
                    "andalso" | "andthen" => Ok(Expression::AndAlso(arguments)),
                    "orelse" => Ok(Expression::OrElse(arguments)),
                    "self" if arguments.is_empty() => Ok(Expression::Caller),
                    _ => match Function::find(name, arguments.len()) {
                        Some(function) => Ok(Expression::Call(function, arguments)),
                        None => Err(Invalid),
                    },
                }
            }
            _ => Ok(Expression::Constant(word)),
        }
    }

    /// Marks the variables whose bindings the expression uses.
    pub(crate) fn use_variables(&self, used: &mut [bool]) {
        let mut all = |expressions: &[Expression]| {
            for expression in expressions {
                expression.use_variables(used);
            }
        };
        match self {
            Expression::Constant(_) | Expression::Object | Expression::Caller => {}
            Expression::Variable(variable) => used[*variable] = true,
            Expression::Bindings(variables) => variables.iter().for_each(|&variable| used[variable] = true),
            Expression::Tuple(parts)
            | Expression::And(parts)
            | Expression::Or(parts)
            | Expression::AndAlso(parts)
            | Expression::OrElse(parts)
            | Expression::Call(_, parts) => all(parts),
            Expression::List(elements, tail) => {
                all(elements);
                tail.use_variables(used);
            }
            Expression::Map(keys, values) => {
                all(keys);
                all(values);
            }
        }
    }

    /// The value. If a call fails, a guard has no value. In a body the call's value is `'EXIT'`, and the evaluation continues with that.
    #[inline(always)]
    pub(crate) fn evaluate<'a>(&self, run: &Run<'a>, bindings: &[TermRef<'a>], body: bool) -> Option<TermRef<'a>> {
        match self {
            Expression::Constant(word) => Some(run.constant(*word)),
            Expression::Variable(place) => Some(bindings[*place]),
            _ => self.evaluate_more(run, bindings, body),
        }
    }

    #[inline(never)]
    fn evaluate_more<'a>(&self, run: &Run<'a>, bindings: &[TermRef<'a>], body: bool) -> Option<TermRef<'a>> {
        run.arena.spend(1)?;
        let vm = run.vm();
        let failed = || body.then_some(TermRef::immediate(vm.exit));
        let value = |expression: &Expression| expression.evaluate(run, bindings, body);
        match self {
            Expression::Constant(_) | Expression::Variable(_) => self.evaluate(run, bindings, body),
            Expression::Object => run.whole(),
            Expression::Caller => Some(TermRef::immediate(run.caller)),
            Expression::Bindings(places) => make_list(
                run,
                places.iter().map(|&place| bindings[place]),
                TermRef::immediate(NIL),
            ),
            Expression::Tuple(elements) => {
                let values = elements.iter().map(value).collect::<Option<Vec<_>>>()?;
                run.arena.make(|builder| {
                    let item = builder.tuple(values.len());
                    run.arena.copy_all(builder, item, 0, values.iter().copied())?;
                    Some(item.word())
                })
            }
            Expression::List(elements, tail) => {
                let values = elements.iter().map(value).collect::<Option<Vec<_>>>()?;
                make_list(run, values.into_iter(), value(tail)?)
            }
            Expression::Map(keys, values) => {
                let keys = keys.iter().map(value).collect::<Option<Vec<_>>>()?;
                let values = values.iter().map(value).collect::<Option<Vec<_>>>()?;
                make_map(run, &keys, &values)
            }
            Expression::And(arguments) | Expression::Or(arguments) => {
                let decisive = matches!(self, Expression::Or(_));
                let (decisive, other) = (vm.boolean(decisive).word(), vm.boolean(!decisive).word());
                let values = arguments.iter().map(value).collect::<Option<Vec<_>>>()?;
                let mut result = other;
                for value in values {
                    match value.word() {
                        word if word == decisive => result = decisive,
                        word if word == other => {}
                        _ => return failed(),
                    }
                }
                Some(TermRef::immediate(result))
            }
            Expression::AndAlso(arguments) | Expression::OrElse(arguments) => {
                let decisive = matches!(self, Expression::OrElse(_));
                let (decisive, other) = (vm.boolean(decisive).word(), vm.boolean(!decisive).word());
                let (last, before) = arguments.split_last()?;
                for argument in before {
                    match value(argument)?.word() {
                        word if word == decisive => return Some(TermRef::immediate(decisive)),
                        word if word == other => {}
                        _ => return failed(),
                    }
                }
                value(last)
            }
            Expression::Call(function, arguments) => {
                let mut values = [TermRef::immediate(NIL); 3];
                for (slot, argument) in values.iter_mut().zip(arguments) {
                    *slot = value(argument)?;
                }
                function.call(run, &values[..arguments.len()]).or_else(failed)
            }
        }
    }

    /// The value of a body, built by `output`. Outer constructors are built directly, without a stored term in between.
    #[inline(always)]
    pub(crate) fn output<'a, O: Output>(
        &self,
        run: &Run<'a>,
        bindings: &[TermRef<'a>],
        output: &mut O,
    ) -> Option<O::Term> {
        match self {
            Expression::Object => Some(output.object()),
            Expression::Variable(place) => Some(output.term(bindings[*place])),
            _ => self.output_made(run, bindings, output),
        }
    }

    #[inline(never)]
    fn output_made<'a, O: Output>(&self, run: &Run<'a>, bindings: &[TermRef<'a>], output: &mut O) -> Option<O::Term> {
        Some(match self {
            Expression::Bindings(places) => {
                let term = |&place: &usize| output.term(bindings[place]);
                let values: SmallVec<[_; 8]> = places.iter().map(term).collect();
                let nil = output.term(TermRef::immediate(NIL));
                output.list(&values, nil)
            }
            Expression::Tuple(elements) => {
                let values = outputs(elements, run, bindings, output)?;
                output.tuple(&values)
            }
            Expression::List(elements, tail) => {
                let values = outputs(elements, run, bindings, output)?;
                let tail = tail.output(run, bindings, output)?;
                output.list(&values, tail)
            }
            Expression::Map(keys, values) => {
                let keys = outputs(keys, run, bindings, output)?;
                let values = outputs(values, run, bindings, output)?;
                output.map(&keys, &values)
            }
            _ => {
                let value = self.evaluate(run, bindings, true)?;
                output.term(value)
            }
        })
    }
}

fn outputs<'a, O: Output>(
    expressions: &[Expression],
    run: &Run<'a>,
    bindings: &[TermRef<'a>],
    output: &mut O,
) -> Option<SmallVec<[O::Term; 8]>> {
    expressions
        .iter()
        .map(|expression| expression.output(run, bindings, output))
        .collect()
}

/// A list with this tail. The tail may itself be a list.
fn make_list<'a>(
    run: &Run<'a>,
    values: impl ExactSizeIterator<Item = TermRef<'a>>,
    tail: TermRef<'a>,
) -> Option<TermRef<'a>> {
    if values.len() == 0 {
        return Some(tail);
    }
    run.arena.make(|builder| {
        let (more, end) = match tail.view() {
            View::List(list) => (Some(list.elements()), list.tail()),
            _ => (None, tail),
        };
        let length = values.len() + more.map_or(0, |more| more.len());
        let item = builder.list(length);
        let more = more.into_iter().flat_map(|more| more.iter());
        run.arena.copy_all(builder, item, 0, values.chain(more).chain([end]))?;
        Some(item.word())
    })
}

/// A map. Of equal keys the last one counts.
fn make_map<'a>(run: &Run<'a>, keys: &[TermRef<'a>], values: &[TermRef<'a>]) -> Option<TermRef<'a>> {
    // Each key is compared with all keys after it.
    run.arena.spend(keys.len() * keys.len())?;
    let last = |i: &usize| !keys[i + 1..].iter().any(|later| cats_term::equal(*later, keys[*i]));
    let kept: Vec<usize> = (0..keys.len()).filter(last).collect();
    run.arena.make(|builder| {
        let item = builder.unordered_map(kept.len());
        let kept_of = |terms: &[TermRef<'a>]| kept.iter().map(|&i| terms[i]).collect::<Vec<_>>();
        run.arena
            .copy_all(builder, item, 0, kept_of(keys).into_iter().chain(kept_of(values)))?;
        Some(item.word())
    })
}
