//! Guards and bodies as they run: code for a machine with a stack of values. How deep they are nested costs no stack of the processor, neither
//! when they are compiled nor when they run.

use crate::compile::Compiler;
use crate::function::Function;
use crate::head::Variables;
use crate::matcher::Comparison;
use crate::name::Name;
use crate::program::{Invalid, Output, Run, Spec};
use crate::template::{filled, Template};
use cats_term::{needed, List, TermRef, View, NIL};
use smallvec::{smallvec, SmallVec};
use std::sync::Arc;

/// An expression: its operations in the order in which they run. Each takes its arguments from the stack and leaves its value there.
pub(crate) struct Expression {
    pub(crate) ops: SmallVec<[Op; 3]>,
    /// The most values that are on the stack.
    pub(crate) height: usize,
}

pub(crate) enum Op {
    /// A term of the specification, by its word.
    Constant(u64),
    Variable(usize),
    /// `'$_'`
    Object,
    /// `{self}`
    Caller,
    /// A term that is built from the last values.
    Build(Box<Template>),
    /// A call with so many arguments.
    Call(Function, usize),
    /// `'and'` of so many arguments.
    And(usize),
    /// `'or'` of so many arguments.
    Or(usize),
    /// Follows each argument of `'andalso'` and `'orelse'` but the last. If the argument is the one that decides, or fails, that is the value,
    /// and the operation at `end` is next.
    Branch {
        decisive: bool,
        end: usize,
    },
}

/// The guards of a clause: those that compare a variable with a constant, and the others.
pub(crate) type Guards = (SmallVec<[Comparison; 1]>, SmallVec<[Expression; 1]>);

/// The values for which there is room on the processor's stack.
const STACK_VALUES: usize = 4;

impl Expression {
    fn of(op: Op) -> Self {
        Expression {
            ops: smallvec![op],
            height: 1,
        }
    }

    /// The code of `'$_'`.
    pub(crate) fn object() -> Self {
        Self::of(Op::Object)
    }

    /// The code of a constant, given by its word.
    pub(crate) fn constant(word: u64) -> Self {
        Self::of(Op::Constant(word))
    }

    /// The code of `'$$'`.
    pub(crate) fn bindings(places: Arc<[usize]>) -> Self {
        Self::of(Op::Build(Box::new(Template::bindings(places))))
    }

    /// Compiles the expressions of a body. Returns the last one, which is the result, and whether it is the only one.
    pub(crate) fn compile_body<'a>(
        spec: &Spec<'a>,
        term: TermRef<'a>,
        variables: &Variables,
    ) -> Result<(Self, bool), Invalid> {
        let list = proper(term)?.ok_or(Invalid)?;
        let mut last = Err(Invalid);
        for place in 0..list.elements().len() {
            let (term, word) = spec.part(list.elements(), place);
            last = Ok(Compiler::new(spec, variables).compile(term, word)?);
        }
        Ok((last?, list.elements().len() == 1))
    }

    /// Compiles guards, which are taken as a conjunction. Returns those that compare a variable with a constant, and the others. At the top
    /// of a guard, `'and'` and `'andalso'` are true if and only if all their arguments are true.
    pub(crate) fn compile_guards<'a>(
        spec: &Spec<'a>,
        term: TermRef<'a>,
        variables: &Variables,
    ) -> Result<Guards, Invalid> {
        let (mut comparisons, mut guards) = (SmallVec::new(), SmallVec::new());
        let Some(list) = proper(term)? else {
            return Ok((comparisons, guards));
        };
        // Guards to compile, the next one last, with their words.
        let mut rest: SmallVec<[_; 4]> = SmallVec::new();
        spec.add_parts(&mut rest, list.elements(), 0, |term, word| (term, word));
        while let Some((term, word)) = rest.pop() {
            if let Some((Name::Known("and" | "andalso" | "andthen"), elements)) = spec.call(term) {
                if elements.len() == 1 {
                    return Err(Invalid);
                }
                spec.add_parts(&mut rest, elements, 1, |term, word| (term, word));
                continue;
            }
            let code = Compiler::new(spec, variables).compile(term, word)?;
            match code.comparison() {
                Some(comparison) => {
                    needed(comparisons.try_reserve(1).ok());
                    comparisons.push(comparison);
                }
                None => {
                    needed(guards.try_reserve(1).ok());
                    guards.push(code);
                }
            }
        }
        Ok((comparisons, guards))
    }

    /// The comparison that it is, if it is one of a variable with a constant.
    fn comparison(&self) -> Option<Comparison> {
        match self.ops[..] {
            [Op::Variable(variable), Op::Constant(constant), Op::Call(function, 2)] => {
                function.mirrored().map(|_| Comparison {
                    variable,
                    function,
                    constant,
                })
            }
            [Op::Constant(constant), Op::Variable(variable), Op::Call(function, 2)] => {
                function.mirrored().map(|function| Comparison {
                    variable,
                    function,
                    constant,
                })
            }
            _ => None,
        }
    }

    /// Marks the variables whose bindings the expression uses.
    pub(crate) fn use_variables(&self, used: &mut [bool]) {
        for op in &self.ops {
            match op {
                Op::Variable(variable) => used[*variable] = true,
                Op::Build(template) => template.use_variables(used),
                _ => {}
            }
        }
    }

    /// The value. If a call fails, a guard has no value. In a body the call's value is `'EXIT'`, and the evaluation continues with that.
    #[inline(always)]
    pub(crate) fn evaluate<'a>(&self, run: &Run<'a>, bindings: &[TermRef<'a>], body: bool) -> Option<TermRef<'a>> {
        match self.ops[..] {
            [Op::Constant(word)] => Some(run.constant(word)),
            [Op::Variable(place)] => Some(bindings[place]),
            _ => self.evaluate_more(run, bindings, body),
        }
    }

    #[inline(never)]
    fn evaluate_more<'a>(&self, run: &Run<'a>, bindings: &[TermRef<'a>], body: bool) -> Option<TermRef<'a>> {
        self.with_stack(|stack| {
            let top = execute(&self.ops, run, bindings, body, stack)?;
            Some(stack[top - 1])
        })
    }

    #[inline(always)]
    fn with_stack<'a, R>(&self, f: impl FnOnce(&mut [TermRef<'a>]) -> Option<R>) -> Option<R> {
        let nothing = TermRef::immediate(NIL);
        if self.height <= STACK_VALUES {
            return f(&mut [nothing; STACK_VALUES]);
        }
        f(&mut filled(nothing, self.height))
    }

    /// The value of a body, built by `output`. What is built last is built directly, without a stored term in between.
    #[inline(always)]
    pub(crate) fn output<'a, O: Output>(
        &self,
        run: &Run<'a>,
        bindings: &[TermRef<'a>],
        output: &mut O,
    ) -> Option<O::Term> {
        match &self.ops[..] {
            [Op::Object] => Some(output.object()),
            [Op::Variable(place)] => Some(output.term(bindings[*place])),
            [Op::Build(template)] => Some(template.output(run, bindings, &[], output)),
            _ => self.output_made(run, bindings, output),
        }
    }

    #[inline(never)]
    fn output_made<'a, O: Output>(&self, run: &Run<'a>, bindings: &[TermRef<'a>], output: &mut O) -> Option<O::Term> {
        match &self.ops[..] {
            [before @ .., Op::Build(template)] => self.with_stack(|stack| {
                let top = execute(before, run, bindings, true, stack)?;
                Some(template.output(run, bindings, &stack[..top], output))
            }),
            _ => self.evaluate(run, bindings, true).map(|value| output.term(value)),
        }
    }
}

/// The list, unless it is empty. It must be proper.
fn proper(term: TermRef<'_>) -> Result<Option<List<'_>>, Invalid> {
    match term.view() {
        View::Immediate(NIL) => Ok(None),
        View::List(list) if list.tail().word() == NIL => Ok(Some(list)),
        _ => Err(Invalid),
    }
}

/// Runs operations. Returns the number of values on the stack.
#[inline(always)]
fn execute<'a>(
    ops: &[Op],
    run: &Run<'a>,
    bindings: &[TermRef<'a>],
    body: bool,
    stack: &mut [TermRef<'a>],
) -> Option<usize> {
    let vm = run.vm();
    let failed = || body.then_some(TermRef::immediate(vm.exit));
    let (mut at, mut top) = (0, 0);
    while let Some(op) = ops.get(at) {
        at += 1;
        let (arguments, value) = match op {
            Op::Constant(word) => (0, run.constant(*word)),
            Op::Variable(place) => (0, bindings[*place]),
            Op::Object => (0, run.whole()?),
            Op::Caller => (0, TermRef::immediate(run.caller)),
            Op::Build(template) => {
                let count = template.values;
                (count, template.build(run, bindings, &stack[top - count..top])?)
            }
            Op::Call(function, count) => {
                run.arena.spend(1)?;
                let value = function.call(run, &stack[top - count..top]);
                (*count, value.or_else(failed)?)
            }
            Op::And(count) | Op::Or(count) => {
                run.arena.spend(*count)?;
                let decisive = matches!(op, Op::Or(_));
                (*count, decide(run, decisive, &stack[top - count..top]).or_else(failed)?)
            }
            Op::Branch { decisive, end } => {
                run.arena.spend(1)?;
                top -= 1;
                match stack[top].word() {
                    word if word == vm.boolean(!decisive).word() => continue,
                    word => {
                        at = *end;
                        match word == vm.boolean(*decisive).word() {
                            true => (0, stack[top]),
                            false => (0, failed()?),
                        }
                    }
                }
            }
        };
        top -= arguments;
        stack[top] = value;
        top += 1;
    }
    Some(top)
}

/// The value of `'or'` if `true` is decisive, or of `'and'`. `None` if an argument is not a boolean.
fn decide<'a>(run: &Run<'a>, decisive: bool, arguments: &[TermRef<'a>]) -> Option<TermRef<'a>> {
    let (decisive, other) = (run.vm().boolean(decisive), run.vm().boolean(!decisive));
    let mut result = other;
    for argument in arguments {
        match argument.word() {
            word if word == decisive.word() => result = decisive,
            word if word == other.word() => {}
            _ => return None,
        }
    }
    Some(result)
}
