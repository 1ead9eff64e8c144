//! Compiles an expression of a guard or body: constants, variables, constructors, logical operators and calls.
//!
//! What is left to do waits in a list, so that how deep the expression is nested costs no stack of the processor.

use crate::expression::{Expression, Op};
use crate::function::Function;
use crate::head::Variables;
use crate::name::{name, Name};
use crate::program::{Invalid, Spec};
use crate::template::{Piece, Template};
use cats_term::{needed, Elements, List, Map, TermRef, View};
use smallvec::SmallVec;
use std::sync::Arc;

pub(crate) struct Compiler<'s, 'a> {
    spec: &'s Spec<'a>,
    variables: &'s Variables,
    code: Expression,
    /// The number of values that are on the stack when the operations so far have run.
    top: usize,
    /// What is left to do, the next last.
    tasks: SmallVec<[Task<'a>; 8]>,
    /// The templates that are being filled, each inside the one before.
    templates: SmallVec<[Template; 1]>,
    /// Where the branches are that lack an end. Those of an inner operator come last.
    branches: SmallVec<[usize; 4]>,
}

/// Something left to do. A term comes with the word by which code refers to it.
enum Task<'a> {
    /// Code for the term.
    Value(TermRef<'a>, u64),
    /// The term is a part of the last template.
    Part(TermRef<'a>, u64),
    Op(Op),
    /// The last template is complete.
    Build,
    Branch(bool),
    /// The end of so many branches.
    Join(usize),
}

/// What an expression is.
enum Form<'a> {
    Constant(u64),
    Variable(usize),
    Object,
    Bindings(Arc<[usize]>),
    Tuple(Elements<'a>),
    List(List<'a>),
    Map(Map<'a>),
    /// A call, with its name before the arguments.
    Call(&'static str, Elements<'a>),
}

impl<'s, 'a> Compiler<'s, 'a> {
    pub(crate) fn new(spec: &'s Spec<'a>, variables: &'s Variables) -> Self {
        Compiler {
            spec,
            variables,
            code: Expression {
                ops: SmallVec::new(),
                height: 0,
            },
            top: 0,
            tasks: SmallVec::new(),
            templates: SmallVec::new(),
            branches: SmallVec::new(),
        }
    }

    /// Compiles a term. `word` is the word by which code refers to it.
    pub(crate) fn compile(mut self, term: TermRef<'a>, word: u64) -> Result<Expression, Invalid> {
        self.tasks.push(Task::Value(term, word));
        while let Some(task) = self.tasks.pop() {
            match task {
                Task::Value(term, word) => self.value(term, word)?,
                Task::Part(term, word) => self.part(term, word)?,
                Task::Op(op) => self.op(op),
                Task::Build => {
                    let template = self.templates.pop().ok_or(Invalid)?;
                    self.op(Op::Build(Box::new(template)));
                }
                Task::Branch(decisive) => {
                    push(&mut self.branches, self.code.ops.len());
                    self.op(Op::Branch { decisive, end: 0 });
                }
                Task::Join(count) => self.join(count),
            }
        }
        self.shorten();
        Ok(self.code)
    }

    fn form(&self, term: TermRef<'a>, word: u64) -> Result<Form<'a>, Invalid> {
        Ok(match term.view() {
            View::Immediate(_) => match name(self.spec.vm, term) {
                Name::Variable(number) => Form::Variable(self.variables.place(number).ok_or(Invalid)?),
                Name::Object => Form::Object,
                Name::Bindings => Form::Bindings(self.variables.in_order()),
                Name::Plain | Name::Known(_) => Form::Constant(word),
            },
            View::List(list) => Form::List(list),
            View::Map(map) => Form::Map(map),
            View::Tuple(elements) => match (self.spec.call(term), elements.len()) {
                (Some((Name::Known("const"), _)), 2) => Form::Constant(self.spec.word(elements, 1)),
                (Some((Name::Known("const"), _)), _) => return Err(Invalid),
                (Some((Name::Known(name), _)), _) => Form::Call(name, elements),
                (None, 1) => Form::Tuple(elements.get(0).as_tuple().ok_or(Invalid)?),
                _ => return Err(Invalid),
            },
            _ => Form::Constant(word),
        })
    }

    fn value(&mut self, term: TermRef<'a>, word: u64) -> Result<(), Invalid> {
        match self.form(term, word)? {
            Form::Constant(word) => self.op(Op::Constant(word)),
            Form::Variable(place) => self.op(Op::Variable(place)),
            Form::Object => self.op(Op::Object),
            Form::Bindings(places) => self.op(Op::Build(Box::new(Template::bindings(places)))),
            Form::Tuple(_) | Form::List(_) | Form::Map(_) => {
                push(&mut self.templates, Template::default());
                push(&mut self.tasks, Task::Build);
                push(&mut self.tasks, Task::Part(term, word));
            }
            Form::Call(name, elements) => self.call(name, elements)?,
        }
        Ok(())
    }

    fn call(&mut self, name: &'static str, elements: Elements<'a>) -> Result<(), Invalid> {
        let count = elements.len() - 1;
        let op = match name {
            "and" | "or" | "andalso" | "andthen" | "orelse" if count == 0 => return Err(Invalid),
            "and" => Op::And(count),
            "or" => Op::Or(count),
            "andalso" | "andthen" => return self.branching(false, elements),
            "orelse" => return self.branching(true, elements),
            "self" if count == 0 => Op::Caller,
            _ => Op::Call(Function::find(name, count).ok_or(Invalid)?, count),
        };
        push(&mut self.tasks, Task::Op(op));
        self.spec.add_parts(&mut self.tasks, elements, 1, Task::Value);
        Ok(())
    }

    /// `'orelse'` if `true` is decisive, or `'andalso'`.
    fn branching(&mut self, decisive: bool, elements: Elements<'a>) -> Result<(), Invalid> {
        let last = elements.len() - 1;
        push(&mut self.tasks, Task::Join(last - 1));
        needed(self.tasks.try_reserve(2 * last).ok());
        for place in (1..=last).rev() {
            if place < last {
                self.tasks.push(Task::Branch(decisive));
            }
            let (term, word) = self.spec.part(elements, place);
            self.tasks.push(Task::Value(term, word));
        }
        Ok(())
    }

    fn join(&mut self, count: usize) {
        let here = self.code.ops.len();
        let first = self.branches.len() - count;
        for branch in self.branches.drain(first..) {
            if let Op::Branch { end, .. } = &mut self.code.ops[branch] {
                *end = here;
            }
        }
    }

    fn part(&mut self, term: TermRef<'a>, word: u64) -> Result<(), Invalid> {
        let form = self.form(term, word)?;
        let template = self.templates.last_mut().ok_or(Invalid)?;
        let piece = match form {
            Form::Constant(word) => Piece::Constant(word),
            Form::Variable(place) => Piece::Variable(place),
            Form::Object => Piece::Object,
            Form::Bindings(places) => Piece::Bindings(places),
            Form::Tuple(elements) => {
                self.spec.add_parts(&mut self.tasks, elements, 0, Task::Part);
                Piece::Tuple(elements.len())
            }
            Form::List(list) => {
                self.spec.add_parts(&mut self.tasks, list.elements(), 0, Task::Part);
                push(&mut self.tasks, Task::Part(list.tail(), self.spec.tail_word(list)));
                Piece::List(list.elements().len())
            }
            Form::Map(map) => {
                let first_key = template.values;
                template.values += map.keys.len();
                self.spec.add_parts(&mut self.tasks, map.values, 0, Task::Part);
                self.spec.add_parts(&mut self.tasks, map.keys, 0, Task::Value);
                Piece::Map(map.keys.len(), first_key)
            }
            Form::Call(name, elements) => {
                let value = template.values;
                template.values += 1;
                push(&mut self.tasks, Task::Value(term, word));
                match self.element_of_object(name, elements) {
                    Some(place) => Piece::Element(value, place),
                    None => Piece::Value(value),
                }
            }
        };
        if let Some(template) = self.templates.last_mut() {
            push(&mut template.pieces, piece);
        }
        Ok(())
    }

    /// The word of the position, if a call is `{element, Position, '$_'}` for a constant position.
    fn element_of_object(&self, name: &'static str, elements: Elements<'a>) -> Option<u64> {
        if name != "element" || elements.len() != 3 {
            return None;
        }
        let form = |place| {
            let (term, word) = self.spec.part(elements, place);
            self.form(term, word).ok()
        };
        match (form(1)?, form(2)?) {
            (Form::Constant(word), Form::Object) => Some(word),
            _ => None,
        }
    }

    fn op(&mut self, op: Op) {
        self.top -= match &op {
            Op::Constant(_) | Op::Variable(_) | Op::Object | Op::Caller => 0,
            Op::Build(template) => template.values,
            Op::Call(_, count) | Op::And(count) | Op::Or(count) => *count,
            Op::Branch { .. } => 1,
        };
        if !matches!(op, Op::Branch { .. }) {
            self.top += 1;
            self.code.height = self.code.height.max(self.top);
        }
        push(&mut self.code.ops, op);
    }

    /// Where a branch leads to another one that decides the same, lets it lead to the end of that one.
    fn shorten(&mut self) {
        for at in (0..self.code.ops.len()).rev() {
            let Op::Branch { decisive, end } = self.code.ops[at] else {
                continue;
            };
            if let Some(&Op::Branch {
                decisive: next,
                end: further,
            }) = self.code.ops.get(end)
            {
                if next == decisive {
                    self.code.ops[at] = Op::Branch { decisive, end: further };
                }
            }
        }
    }
}

fn push<A: smallvec::Array>(list: &mut SmallVec<A>, item: A::Item) {
    needed(list.try_reserve(1).ok());
    list.push(item);
}
